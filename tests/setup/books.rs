//! What Proxmox's programs know and do: the users, roles and grants that `pveum` keeps, of which the simulated Proxmox
//! VE learns all that counts there, and the machines that `qm` makes in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use kproxide_simulator::pve::topology::{
    AclSpec, DiskSpec, PoolSpec, TokenSpec, UserSpec, Version, VmSpec,
};
use kproxide_simulator::pve::{Pve, Topology};
use serde_json::{Value, json};

use crate::cluster::{Does, failed};
use crate::table::Call;

const GIB: u64 = 1 << 30;
/// The certificate's fingerprint, the same on each server.
pub(crate) const FINGERPRINT: &str = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF";

/// A user and its tokens, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) comment: String,
    /// Comment and secret.
    pub(crate) tokens: BTreeMap<String, (String, String)>,
}

/// What `pveum` keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) pools: BTreeMap<String, String>,
    pub(crate) users: BTreeMap<String, User>,
    /// Privileges by role.
    pub(crate) roles: BTreeMap<String, BTreeSet<String>>,
    /// Path, role, user or token, whether it reaches below the path.
    pub(crate) acl: BTreeMap<(String, String, String), bool>,
}

pub(crate) struct Books {
    pve: Pve,
    version: Version,
    servers: Vec<String>,
    /// What is `/etc/pve` on a server, by the server's name.
    folder: PathBuf,
    pub(crate) rights: Rights,
    /// Machines that `qm` has begun, by number: their server and configuration.
    drafts: BTreeMap<u32, (String, BTreeMap<String, String>)>,
    /// Servers that ssh does not reach.
    pub(crate) unreachable: BTreeSet<String>,
    /// Servers that are off.
    pub(crate) off: BTreeSet<String>,
    /// A command that fails, such as `qm template`.
    pub(crate) fails: Option<String>,
    pub(crate) calls: Vec<(String, Call)>,
    /// Calls that the table does not have.
    pub(crate) misused: Vec<String>,
    secrets: u32,
}

impl Books {
    pub(crate) fn new(pve: Pve, topology: &Topology, folder: PathBuf) -> Books {
        Books {
            pve,
            version: topology.version,
            servers: topology
                .hypervisors
                .iter()
                .map(|it| it.name.clone())
                .collect(),
            folder,
            rights: Rights {
                pools: topology
                    .pools
                    .iter()
                    .map(|it| (it.name.clone(), it.comment.clone()))
                    .collect(),
                ..Rights::default()
            },
            drafts: BTreeMap::new(),
            unreachable: BTreeSet::new(),
            off: BTreeSet::new(),
            fails: None,
            calls: Vec::new(),
            misused: Vec::new(),
            secrets: 0,
        }
    }

    /// `/etc/pve` as the cluster is now.
    pub(crate) fn write_files(&self) {
        let nodes = self.folder.join("nodes");
        let _ = fs::remove_dir_all(&nodes);
        for server in &self.servers {
            fs::create_dir_all(nodes.join(server).join("qemu-server")).unwrap();
            fs::write(nodes.join(server).join("pve-ssl.pem"), "").unwrap();
            fs::write(nodes.join(server).join("ssh_known_hosts"), "").unwrap();
        }
        let list: serde_json::Map<String, Value> = (1..)
            .zip(&self.servers)
            .map(|(id, server)| {
                let online = u8::from(!self.off.contains(server));
                (
                    server.clone(),
                    json!({"id": id, "online": online, "ip": format!("10.99.0.{id}")}),
                )
            })
            .collect();
        // Of each server, because the file says which one it is.
        for server in &self.servers {
            let of_server = self.folder.join(server);
            if !of_server.exists() {
                fs::create_dir(&of_server).unwrap();
                symlink(&nodes, of_server.join("nodes")).unwrap();
            }
            let mut members = json!({"nodename": server, "version": 3});
            if self.servers.len() > 1 {
                members["cluster"] =
                    json!({"name": "lab", "version": 2, "nodes": list.len(), "quorate": 1});
                members["nodelist"] = list.clone().into();
            }
            fs::write(of_server.join(".members"), members.to_string()).unwrap();
        }
        for vm in self.pve.snapshot().vms {
            write_configuration(&nodes, &vm.hypervisor, vm.vmid, &vm.config);
        }
        for (vmid, (server, config)) in &self.drafts {
            write_configuration(&nodes, server, *vmid, config);
        }
    }

    pub(crate) fn answer(&mut self, server: &str, call: &Call) -> Does {
        if self.fails.as_ref() == Some(&call.command) {
            return failed("it fails, as the test wants");
        }
        match self.carry_out(server, call) {
            Ok(does) => does,
            Err(text) => failed(&text),
        }
    }

    fn carry_out(&mut self, server: &str, call: &Call) -> Result<Does, String> {
        let operand = |at: usize| call.operands[at].as_str();
        let said = |out: String| Does {
            out,
            ..Does::default()
        };
        let text = match &*call.command {
            "pveversion" => match self.version {
                Version::V8 => {
                    "pve-manager/8.4.14/b502d23c55afcba1 (running kernel: 6.8.12-15-pve)\n"
                }
                Version::V9 => {
                    "pve-manager/9.2.11/14a22df35955d97d (running kernel: 6.14.8-2-pve)\n"
                }
            }
            .to_owned(),
            "id" => "0\n".to_owned(),
            "hostname" => "10.99.0.1 fe80::1\n".to_owned(),
            "openssl x509" => {
                fs::read(call.option("in")).map_err(|error| error.to_string())?;
                format!("sha256 Fingerprint={FINGERPRINT}\n")
            }
            "wget" => return fetch(operand(0), call.option("output-document")),
            "qemu-img convert" => {
                fs::copy(operand(0), operand(1)).map_err(|error| error.to_string())?;
                String::new()
            }
            "qemu-img resize" => must_exist(operand(0))?,
            "virt-customize" => must_exist(call.option("add"))?,
            "ssh" => return self.connect(call),
            "scp" => {
                let target = self.reach(call)?;
                let (_, path) = target.rsplit_once(':').unwrap();
                fs::copy(operand(0), path).map_err(|error| error.to_string())?;
                String::new()
            }
            command if command.starts_with("qm ") => {
                let done = self.change_machine(server, call)?;
                self.write_files();
                done
            }
            _ => {
                let told = self.change_rights(call)?;
                self.tell_simulation();
                told
            }
        };
        Ok(said(text))
    }

    /// Who is there by ssh.
    fn reach(&self, call: &Call) -> Result<String, String> {
        let options: Vec<&str> = call
            .options
            .iter()
            .map(|(_, value)| value.as_str())
            .collect();
        let target = call.operands.last().unwrap().clone();
        let place = match &*call.command {
            "ssh" => call.operands[0].clone(),
            _ => target.split("]:").next().unwrap().replace('[', ""),
        };
        let server = (1..)
            .zip(&self.servers)
            .find(|(id, _)| place == format!("root@10.99.0.{id}"));
        let (_, server) = server.ok_or_else(|| format!("no route to {place}"))?;
        let known = format!("/nodes/{server}/ssh_known_hosts");
        let has = |wanted: &str| options.contains(&wanted);
        if !has("BatchMode=yes") || !has(&format!("HostKeyAlias={server}")) {
            return Err(format!("Host key verification failed: {options:?}"));
        }
        if !options
            .iter()
            .any(|it| it.starts_with("UserKnownHostsFile=") && it.ends_with(&known))
        {
            return Err(format!("Host key verification failed: {options:?}"));
        }
        match self.unreachable.contains(server) || self.off.contains(server) {
            true => Err(format!(
                "ssh: connect to host {place}: Connection timed out"
            )),
            false if call.command == "ssh" => Ok(server.clone()),
            false => Ok(target),
        }
    }

    fn connect(&self, call: &Call) -> Result<Does, String> {
        Ok(Does {
            server: Some(self.reach(call)?),
            out: call.operands[1].clone(),
            ..Does::default()
        })
    }

    fn change_machine(&mut self, server: &str, call: &Call) -> Result<String, String> {
        let vmid: u32 = call.operands[0].parse().map_err(|_| "no VMID".to_owned())?;
        match &*call.command {
            "qm create" => {
                let taken = self.pve.snapshot().vms.iter().any(|vm| vm.vmid == vmid);
                if taken || self.drafts.contains_key(&vmid) {
                    return Err(format!(
                        "unable to create VM {vmid} - VM {vmid} already exists"
                    ));
                }
                let config = call.options.iter().cloned().collect();
                self.drafts.insert(vmid, (server.to_owned(), config));
            }
            "qm set" => {
                let (_, config) = self.draft(server, vmid)?;
                for (key, value) in &call.options {
                    if let Some((_, rest)) = value.split_once("import-from=") {
                        must_exist(rest.split(',').next().unwrap())?;
                    }
                    config.insert(key.clone(), value.clone());
                }
            }
            "qm template" => {
                let (_, mut config) = self.draft(server, vmid)?.clone();
                self.drafts.remove(&vmid);
                let disks = ["scsi0", "scsi1"].map(|key| {
                    let line = config.remove(key).unwrap();
                    let (storage, rest) = line.split_once(':').unwrap();
                    let disk = DiskSpec {
                        storage: storage.to_owned(),
                        size: 20 * GIB,
                        cloudinit: rest == "cloudinit",
                    };
                    (key.to_owned(), disk)
                });
                self.pve.human_makes(VmSpec {
                    vmid,
                    name: config.remove("name").unwrap(),
                    node: server.to_owned(),
                    template: true,
                    running: false,
                    pool: None,
                    disks: disks.into(),
                    config,
                });
            }
            _ => {
                if self.drafts.remove(&vmid).is_none() {
                    let vms = self.pve.snapshot().vms;
                    let here = vms
                        .iter()
                        .any(|vm| vm.vmid == vmid && vm.hypervisor == server);
                    if !here {
                        return Err(format!(
                            "Configuration file 'nodes/{server}/qemu-server/{vmid}.conf' does not exist"
                        ));
                    }
                    self.pve
                        .human_destroys(vmid)
                        .map_err(|error| error.to_string())?;
                }
                self.rights
                    .acl
                    .retain(|(path, ..), _| *path != format!("/vms/{vmid}"));
                self.tell_simulation();
            }
        }
        Ok(String::new())
    }

    fn draft(
        &mut self,
        server: &str,
        vmid: u32,
    ) -> Result<&mut (String, BTreeMap<String, String>), String> {
        let draft = self.drafts.get_mut(&vmid).filter(|(of, _)| of == server);
        draft.ok_or_else(|| {
            format!("Configuration file 'nodes/{server}/qemu-server/{vmid}.conf' does not exist")
        })
    }

    fn change_rights(&mut self, call: &Call) -> Result<String, String> {
        let operand = |at: usize| call.operands[at].clone();
        let comment = || call.option("comment").to_owned();
        let privileges = || call.option("privs").split(',').map(str::to_owned).collect();
        let missing = |what: &str, name: &str| format!("{what} '{name}' does not exist");
        let rights = &mut self.rights;
        match &*call.command {
            "pveum pool list" => {
                return Ok(list(rights.pools.iter().map(
                    |(name, comment)| json!({"poolid": name, "comment": comment}),
                )));
            }
            "pveum pool add" => {
                rights.pools.insert(operand(0), comment());
            }
            "pveum pool delete" => {
                let name = operand(0);
                let vms = self.pve.snapshot().vms;
                if let Some(vm) = vms.iter().find(|vm| vm.pool.as_ref() == Some(&name)) {
                    return Err(format!(
                        "delete pool failed: pool '{name}' is not empty (contains VMs {})",
                        vm.vmid
                    ));
                }
                rights
                    .pools
                    .remove(&name)
                    .ok_or_else(|| missing("pool", &name))?;
            }
            "pveum user list" => {
                return Ok(list(rights.users.iter().map(
                    |(name, user)| json!({"userid": name, "comment": user.comment, "enable": 1}),
                )));
            }
            "pveum user add" => {
                let user = User {
                    comment: comment(),
                    ..User::default()
                };
                rights.users.insert(operand(0), user);
            }
            "pveum user delete" => {
                let name = operand(0);
                rights
                    .users
                    .remove(&name)
                    .ok_or_else(|| missing("user", &name))?;
                let tokens = format!("{name}!");
                rights
                    .acl
                    .retain(|(_, _, who), _| *who != name && !who.starts_with(&tokens));
            }
            "pveum user token list" => {
                let name = operand(0);
                let user = rights
                    .users
                    .get(&name)
                    .ok_or_else(|| missing("user", &name))?;
                let tokens = user.tokens.iter();
                return Ok(list(tokens.map(|(name, (comment, _))| json!({"tokenid": name, "comment": comment, "privsep": 1}))));
            }
            "pveum user token add" => {
                let name = operand(0);
                let user = rights
                    .users
                    .get_mut(&name)
                    .ok_or_else(|| missing("user", &name))?;
                if user.tokens.contains_key(&operand(1)) {
                    return Err("Token already exists.".to_owned());
                }
                self.secrets += 1;
                let secret = format!("5ec4e700-0000-4000-8000-{:012}", self.secrets);
                user.tokens.insert(operand(1), (comment(), secret.clone()));
                let id = format!("{name}!{}", operand(1));
                return Ok(
                    json!({"full-tokenid": id, "info": {"privsep": "1"}, "value": secret})
                        .to_string(),
                );
            }
            "pveum user token remove" => {
                let name = operand(0);
                let user = rights
                    .users
                    .get_mut(&name)
                    .ok_or_else(|| missing("user", &name))?;
                user.tokens
                    .remove(&operand(1))
                    .ok_or_else(|| missing("token", &operand(1)))?;
                let id = format!("{name}!{}", operand(1));
                rights.acl.retain(|(_, _, who), _| *who != id);
            }
            "pveum role list" => {
                let role = |(name, privileges): (&String, &BTreeSet<String>)| {
                    // Not sorted, as Proxmox's are not.
                    let privileges: Vec<&str> =
                        privileges.iter().rev().map(String::as_str).collect();
                    json!({"roleid": name, "privs": privileges.join(","), "special": 0})
                };
                return Ok(list(rights.roles.iter().map(role)));
            }
            "pveum role add" => {
                if rights.roles.insert(operand(0), privileges()).is_some() {
                    return Err(format!("role '{}' already exists", operand(0)));
                }
            }
            "pveum role modify" => {
                let role = rights.roles.get_mut(&operand(0));
                *role.ok_or_else(|| missing("role", &operand(0)))? = privileges();
            }
            "pveum role delete" => {
                rights
                    .roles
                    .remove(&operand(0))
                    .ok_or_else(|| missing("role", &operand(0)))?;
            }
            "pveum acl list" => {
                let entry = |((path, role, who), propagate): (&(String, String, String), &bool)| {
                    let kind = if who.contains('!') { "token" } else { "user" };
                    json!({"path": path, "roleid": role, "ugid": who, "type": kind, "propagate": u8::from(*propagate)})
                };
                return Ok(list(rights.acl.iter().map(entry)));
            }
            "pveum acl modify" | "pveum acl delete" => {
                let role = call.option("roles").to_owned();
                let who = format!("{}{}", call.option("users"), call.option("tokens"));
                let (user, token) = who
                    .split_once('!')
                    .map_or((&*who, None), |(user, token)| (user, Some(token)));
                let found = rights
                    .users
                    .get(user)
                    .ok_or_else(|| missing("user", user))?;
                if token.is_some_and(|token| !found.tokens.contains_key(token)) {
                    return Err(missing("token", &who));
                }
                if !rights.roles.contains_key(&role) {
                    return Err(missing("role", &role));
                }
                let key = (operand(0), role, who);
                match call.command.ends_with("modify") {
                    true => rights.acl.insert(key, call.option("propagate") == "1"),
                    false => rights.acl.remove(&key),
                };
            }
            other => return Err(format!("the stand-ins have no {other}")),
        }
        Ok(String::new())
    }

    /// What of it counts in the API.
    pub(crate) fn tell_simulation(&self) {
        let Rights {
            pools,
            users,
            roles,
            acl,
        } = &self.rights;
        self.pve.set_pools(
            pools
                .iter()
                .map(|(name, comment)| PoolSpec {
                    name: name.clone(),
                    comment: comment.clone(),
                    storages: Vec::new(),
                })
                .collect(),
        );
        let token = |id: &str, secret: &str, privsep| TokenSpec {
            id: id.to_owned(),
            secret: secret.to_owned(),
            privsep,
            expire: 0,
        };
        let user = |name: &str, tokens| UserSpec {
            name: name.to_owned(),
            password: None,
            tokens,
        };
        let mut all = vec![user("root@pam", vec![token("test", "secret", false)])];
        all.extend(users.iter().map(|(name, of)| {
            let tokens = of.tokens.iter();
            user(
                name,
                tokens
                    .map(|(id, (_, secret))| token(id, secret, true))
                    .collect(),
            )
        }));
        self.pve.set_users(all);
        let grant = |((path, role, who), propagate): (&(String, String, String), &bool)| AclSpec {
            path: path.clone(),
            subject: who.clone(),
            privileges: roles.get(role).into_iter().flatten().cloned().collect(),
            propagate: *propagate,
        };
        self.pve.set_acl(acl.iter().map(grant).collect());
    }
}

fn write_configuration(nodes: &Path, server: &str, vmid: u32, config: &BTreeMap<String, String>) {
    let mut text = String::new();
    for (key, value) in config {
        match key.as_str() {
            // As Proxmox writes notes: encoded, each line as a comment.
            "description" => {
                for line in value.lines() {
                    text.push_str(&format!(
                        "#{}\n",
                        line.replace('%', "%25").replace(':', "%3A")
                    ));
                }
            }
            key => text.push_str(&format!("{key}: {value}\n")),
        }
    }
    // A snapshot's section is not the machine.
    text.push_str("\n[before]\nname: k8s-node\ntemplate: 1\n#kproxide%3A v1 of the past\n");
    fs::write(
        nodes
            .join(server)
            .join("qemu-server")
            .join(format!("{vmid}.conf")),
        text,
    )
    .unwrap();
}

fn list(entries: impl Iterator<Item = Value>) -> String {
    Value::from_iter(entries).to_string()
}

fn must_exist(path: &str) -> Result<String, String> {
    match Path::new(path).is_file() {
        true => Ok(String::new()),
        false => Err(format!("there is no file {path}")),
    }
}

/// The internet: one image, and the list of checksums beside it.
fn fetch(url: &str, path: &str) -> Result<Does, String> {
    const IMAGE: &str = "an image";
    // printf 'an image' | sha256sum
    const SHA256: &str = "a5df3fde7b200c3fa2791144c7e05c5c2bced4c6ad863d3a4cf76c972c1712f9";
    let text = match url.rsplit_once('/').unwrap().1 {
        "noble-server-cloudimg-amd64.img" => IMAGE.to_owned(),
        "SHA256SUMS" if url.starts_with("https://cloud-images.ubuntu.com/noble/current/") => {
            format!(
                "{}  noble-server.manifest\n{SHA256} *noble-server-cloudimg-amd64.img\n",
                "0".repeat(64)
            )
        }
        _ => {
            return Ok(Does {
                code: 8,
                err: format!("{url}: 404 Not Found\n"),
                ..Does::default()
            });
        }
    };
    fs::write(path, text).map_err(|error| error.to_string())?;
    Ok(Does::default())
}
