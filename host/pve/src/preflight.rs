//! What our token may not do yet, and the commands that grant it: the text when Proxmox refuses a call because a
//! privilege is missing. And what the token may do beyond what kproxide needs, because a stolen token should be worth
//! as little as possible.
//!
//! Proxmox: a fresh token has no rights of its own (privilege separation), its rights are the intersection of the user's
//! and its own, and version 9 split the guest agent's privilege from `VM.Monitor`.

use std::collections::{BTreeMap, BTreeSet};

use kproxide_planner::facts::Connection;

use super::client::Client;
use super::error::{Error, GRANT_IT, Meaning};
use super::machine::{Permissions, Version};
use super::request::{Call, Params};

/// To change `hotplug`, among others.
const HARDWARE: &str = "VM.Config.HWType";

/// What a cluster's configuration makes us do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// ProxmoxCluster's `pool`; none if no machine is to be made.
    pub pool: Option<String>,
    /// VMIDs of templates.
    pub templates: Vec<u32>,
    /// Storages that clones are made on.
    pub storages: Vec<String>,
    /// What machines are connected to: each with its SDN zone, and a VLAN as Proxmox asks for it. See [`network_paths`].
    pub networks: Vec<String>,
    /// Machines join through the guest agent.
    pub guest_exec: bool,
    /// A template has memory hotplug, which its clones must not have.
    pub memory_hotplug: bool,
}

impl Scope {
    /// With the storage or network that Proxmox refused. Its text names the zone of a bridge or VNET.
    fn with(&self, error: &Error) -> Scope {
        let mut scope = self.clone();
        let Meaning::PermissionDenied {
            path: Some(path),
            privilege,
        } = &error.meaning
        else {
            return scope;
        };
        scope.memory_hotplug |= privilege.as_deref() == Some(HARDWARE);
        if let Some(network) = path.strip_prefix("/sdn/zones/") {
            scope.networks.push(network.to_owned());
        } else if let Some(storage) = path.strip_prefix("/storage/") {
            scope.storages.push(storage.to_owned());
        }
        scope
    }
}

/// Below `/sdn/zones`, what a connection to a plain bridge takes: with VLANs each of these, else the bridge.
///
/// Source: `PVE::GuestHelpers::check_vnet_access` of pve-guest-common.
pub fn network_paths(connection: &Connection) -> Vec<String> {
    let Connection {
        bridge,
        vlan,
        trunks,
    } = connection;
    let mut paths: Vec<String> = vlan
        .iter()
        .chain(trunks)
        .map(|vlan| format!("{PLAIN_BRIDGES}/{bridge}/{vlan}"))
        .collect();
    if paths.is_empty() {
        paths.push(format!("{PLAIN_BRIDGES}/{bridge}"));
    }
    paths
}

/// The zone of bridges that belong to a server itself.
const PLAIN_BRIDGES: &str = "localnetwork";

/// The privileges missing on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The ACL path.
    pub path: String,
    /// Which, sorted.
    pub privileges: Vec<String>,
    /// What they are for.
    pub purpose: &'static str,
    /// Commands for a root shell on any hypervisor.
    pub pveum: Vec<String>,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, purpose) = (&self.path, self.purpose);
        let (privileges, commands) = (self.privileges.join(", "), self.pveum.join("; "));
        write!(
            out,
            "{path}: {privileges} is missing ({purpose}): `{commands}`"
        )
    }
}

/// The privileges on one path that kproxide never uses. What a path above has in excess already is not repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// The ACL path.
    pub path: String,
    /// Which, sorted.
    pub privileges: Vec<String>,
}

impl std::fmt::Display for Excess {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Excess { path, privileges } = self;
        write!(out, "{path}: {}", privileges.join(", "))
    }
}

/// One path with what we need there.
struct Need {
    path: String,
    role: &'static str,
    purpose: &'static str,
    privileges: Vec<&'static str>,
}

impl Client {
    /// The error in one line; where a privilege is missing, with the commands that grant what `scope` needs.
    pub async fn explained(&self, error: &Error, scope: &Scope) -> String {
        self.explained_with_commands(error, scope).await.0
    }

    /// The same, and the commands apart.
    pub async fn explained_with_commands(
        &self,
        error: &Error,
        scope: &Scope,
    ) -> (String, Vec<String>) {
        let mut line = error.chain();
        let Meaning::PermissionDenied { privilege, .. } = &error.meaning else {
            return (line, Vec::new());
        };
        // Best effort: a token without privileges may not be allowed to read privileges either.
        let scope = scope.with(error);
        let mut gaps = self.missing_privileges(&scope).await.unwrap_or_default();
        if let (true, Some(refused)) = (gaps.is_empty(), privilege) {
            gaps = self.refused(&scope, refused).await;
        }
        if !gaps.is_empty() {
            // Proxmox may have named the path of one VM; these last.
            line = line.replacen(GRANT_IT, "", 1);
        }
        let mut commands = Vec::new();
        for missing in gaps {
            line.push_str(&format!("; {missing}"));
            commands.extend(missing.pveum);
        }
        (line, commands)
    }

    /// What `scope` needs of a privilege that Proxmox refuses, although its list of permissions has it, or says nothing.
    async fn refused(&self, scope: &Scope, refused: &str) -> Vec<Missing> {
        let Ok(version) = self.version().await else {
            return Vec::new();
        };
        let login = self.login_name().await.unwrap_or_default();
        let mut all = missing(scope, &version, &Permissions::new(), &login);
        // Proxmox: alternatives stand beside each other, as in `VM.Config.CPU|VM.Config.Memory`.
        let is_refused = |privilege: &String| refused.split('|').any(|it| it == privilege);
        for missing in &mut all {
            missing.privileges.retain(is_refused);
        }
        all.retain(|missing| !missing.privileges.is_empty());
        all
    }

    /// As [`Self::missing_privileges`], with what is known of all paths: mostly that needs no further question.
    ///
    /// # Errors
    /// As there.
    pub async fn lacking(&self, scope: &Scope, held: &Permissions) -> Result<Vec<Missing>, Error> {
        let version = self.version().await?;
        match missing(scope, &version, held, "").is_empty() {
            true => Ok(Vec::new()),
            // What is granted on a path above is not told of every path below.
            false => self.missing_privileges(scope).await,
        }
    }

    /// Whether there is such a resource pool.
    ///
    /// # Errors
    /// Proxmox could not be asked, or the credentials may not see it.
    pub async fn pool_exists(&self, pool: &str) -> Result<bool, Error> {
        let call = Call::get(&["pools"]).params(Params::new().with("poolid", pool));
        match self.fetch::<serde::de::IgnoredAny>(call).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.meaning, Meaning::PoolMissing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Everything that `scope` needs and the token lacks, by path; empty if all is well.
    ///
    /// # Errors
    /// Proxmox could not be asked, or refuses the credentials.
    pub async fn missing_privileges(&self, scope: &Scope) -> Result<Vec<Missing>, Error> {
        let version = self.version().await?;
        let mut granted = Permissions::new();
        for need in needs(scope, &version) {
            match self.permissions(Some(&need.path)).await {
                Ok(permissions) => granted.extend(permissions),
                // Not even that may be seen.
                Err(error) if matches!(error.meaning, Meaning::PermissionDenied { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let login = self.login_name().await.unwrap_or_default();
        Ok(missing(scope, &version, &granted, &login))
    }
}

/// What `granted` has that no setting makes kproxide use.
pub fn excess(granted: &Permissions) -> Vec<Excess> {
    let mut found: Vec<Excess> = Vec::new();
    // In the order of the map a path comes after those above it.
    for (path, privileges) in granted {
        let is_above = |above: &Excess| {
            above.path == "/"
                || path
                    .strip_prefix(&above.path)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        let above: BTreeSet<&String> = found
            .iter()
            .filter(|above| is_above(above))
            .flat_map(|above| &above.privileges)
            .collect();
        let privileges: Vec<String> = privileges
            .keys()
            .filter(|privilege| !is_of_use(path, privilege) && !above.contains(privilege))
            .cloned()
            .collect();
        if !privileges.is_empty() {
            let path = path.clone();
            found.push(Excess { path, privileges });
        }
    }
    found
}

/// Whether any setting makes kproxide use the privilege there, or it only lets harmless things be read. On `/` and `/vms` a privilege for machines
/// reaches those of everybody, and `VM.Audit` the join secrets in their cloud-init data.
fn is_of_use(path: &str, privilege: &str) -> bool {
    const HARMLESS: [&str; 5] = [
        "Datastore.Audit",
        "Mapping.Audit",
        "Pool.Audit",
        "SDN.Audit",
        "Sys.Audit",
    ];
    const MACHINES: [&str; 15] = [
        "VM.Allocate",
        "VM.Audit",
        "VM.Clone",
        "VM.Config.CDROM",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        HARDWARE,
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.GuestAgent.Audit",
        "VM.GuestAgent.Unrestricted",
        "VM.Monitor",
        "VM.PowerMgmt",
    ];
    let below = |parent: &str| {
        path.strip_prefix(parent)
            .is_some_and(|name| !name.is_empty())
    };
    let for_machines = MACHINES.contains(&privilege);
    HARMLESS.contains(&privilege)
        || (for_machines && (below("/pool/") || below("/vms/")))
        || (privilege == "Datastore.AllocateSpace" && below("/storage/"))
        // The storages of a pool have what was granted on the pool.
        || (for_machines && below("/storage/"))
        || (privilege == "SDN.Use" && below("/sdn/"))
}

/// The difference between what `scope` needs and what `granted` has. `login` is `user@realm` or `user@realm!token`.
pub fn missing(
    scope: &Scope,
    version: &Version,
    granted: &Permissions,
    login: &str,
) -> Vec<Missing> {
    let nothing = BTreeMap::new();
    needs(scope, version)
        .into_iter()
        .filter_map(|need| {
            let has = granted.get(&need.path).unwrap_or(&nothing);
            let privileges: BTreeSet<&str> = need
                .privileges
                .iter()
                .copied()
                .filter(|privilege| !has.contains_key(*privilege))
                .collect();
            if privileges.is_empty() {
                return None;
            }
            Some(Missing {
                pveum: pveum(&need, login),
                path: need.path,
                privileges: privileges.into_iter().map(str::to_owned).collect(),
                purpose: need.purpose,
            })
        })
        .collect()
}

fn needs(scope: &Scope, version: &Version) -> Vec<Need> {
    let Scope {
        pool,
        templates,
        storages,
        networks,
        guest_exec,
        memory_hotplug,
    } = scope;
    let mut machines = vec![
        "VM.Allocate",
        "VM.Audit",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.PowerMgmt",
    ];
    if version.major() >= 9 {
        machines.push("VM.GuestAgent.Audit");
        if *guest_exec {
            machines.push("VM.GuestAgent.Unrestricted");
        }
    } else {
        machines.push("VM.Monitor");
    }
    if *memory_hotplug {
        machines.push(HARDWARE);
    }
    machines.push("Pool.Audit");
    let mut needs = vec![Need {
        path: "/".to_owned(),
        role: "KproxideAudit",
        purpose: "to know whether the cluster has quorum, and how loaded its hypervisors are",
        privileges: vec!["Sys.Audit"],
    }];
    if let Some(pool) = pool {
        needs.push(Need {
            path: format!("/pool/{pool}"),
            role: "KproxideMachines",
            purpose: "to make, start, stop and remove machines",
            privileges: machines,
        });
    }
    let unique = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
    for template in templates.iter().collect::<BTreeSet<_>>() {
        needs.push(Need {
            path: format!("/vms/{template}"),
            role: "KproxideTemplate",
            purpose: "to clone the template",
            privileges: vec!["VM.Audit", "VM.Clone"],
        });
    }
    for storage in unique(storages) {
        needs.push(Need {
            path: format!("/storage/{storage}"),
            role: "KproxideStorage",
            purpose: "to make the machines' disks",
            privileges: vec!["Datastore.AllocateSpace", "Datastore.Audit"],
        });
    }
    for network in unique(networks) {
        needs.push(Need {
            path: format!("/sdn/zones/{network}"),
            role: "KproxideNetwork",
            purpose: "to connect the machines",
            privileges: vec!["SDN.Use"],
        });
    }
    needs
}

/// A role with what the path needs, given to the token and to its user: only both together count. A role that is there
/// keeps what it has, because another class may need it.
fn pveum(need: &Need, login: &str) -> Vec<String> {
    let Need { path, role, .. } = need;
    let user = login.split('!').next().unwrap_or(login);
    let tokens = if login.contains('!') {
        format!(" --tokens '{login}'")
    } else {
        String::new()
    };
    let privileges = need.privileges.join(" ");
    let role_exists = format!(
        "pveum role add {role} --privs '{privileges}' || pveum role modify {role} --append 1 --privs '{privileges}'"
    );
    let grant = |path: &str, options: &str| {
        format!("pveum acl modify {path} --roles {role} --users '{user}'{tokens}{options}")
    };
    match &**path {
        // Everything else is below it. Only the servers' load is needed there.
        "/" => vec![
            role_exists,
            grant("/", " --propagate 0"),
            grant("/nodes", ""),
        ],
        path => vec![role_exists, grant(path, "")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        Scope {
            pool: Some("k8s".to_owned()),
            templates: vec![9000],
            storages: vec!["ceph".to_owned()],
            networks: vec!["localnetwork/vmbr0".to_owned()],
            guest_exec: true,
            memory_hotplug: false,
        }
    }

    fn version(version: &str) -> Version {
        Version {
            version: version.to_owned(),
            release: String::new(),
        }
    }

    fn granted(privileges: serde_json::Value) -> Permissions {
        serde_json::from_value(privileges).unwrap()
    }

    #[test]
    fn a_fresh_token_lacks_everything() {
        let all = missing(
            &scope(),
            &version("9.2.11"),
            &Permissions::new(),
            "aut@pve!full",
        );
        let paths: Vec<&str> = all.iter().map(|missing| missing.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/",
                "/pool/k8s",
                "/vms/9000",
                "/storage/ceph",
                "/sdn/zones/localnetwork/vmbr0"
            ]
        );
        assert_eq!(
            all[2].to_string(),
            "/vms/9000: VM.Audit, VM.Clone is missing (to clone the template): \
             `pveum role add KproxideTemplate --privs 'VM.Audit VM.Clone' || pveum role modify KproxideTemplate --append 1 --privs 'VM.Audit VM.Clone'; \
             pveum acl modify /vms/9000 --roles KproxideTemplate --users 'aut@pve' --tokens 'aut@pve!full'`"
        );
    }

    /// The roles of `examples/proxmox/setup.sh`, as Proxmox tells them of every path.
    #[test]
    fn the_roles_that_are_recommended_fit() {
        let machines = json!({"VM.Allocate":1,"VM.Audit":1,"VM.Config.CPU":1,"VM.Config.Cloudinit":1,"VM.Config.Disk":1,"VM.Config.Memory":1,
            "VM.Config.Network":1,"VM.Config.Options":1,"VM.PowerMgmt":1,"VM.GuestAgent.Audit":1,"VM.GuestAgent.Unrestricted":1,"Pool.Audit":1});
        let have = granted(json!({
            "/": {"Sys.Audit": 0}, "/nodes": {"Sys.Audit": 1}, "/nodes/pve1": {"Sys.Audit": 1},
            "/pool/k8s": machines, "/vms/500": machines, "/vms/9000": {"VM.Audit":1,"VM.Clone":1},
            "/storage/ceph": {"Datastore.AllocateSpace":1,"Datastore.Audit":1},
            "/sdn/zones/localnetwork/vmbr0": {"SDN.Use":1},
        }));
        assert_eq!(excess(&have), []);
    }

    #[test]
    fn what_nobody_needs_is_named_once_at_the_highest_path() {
        let have = granted(json!({
            "/": {"Sys.Audit": 1, "VM.PowerMgmt": 1},
            "/nodes/pve1": {"Sys.Audit": 1, "Sys.Modify": 1, "VM.PowerMgmt": 1},
            "/pool/k8s": {"Permissions.Modify": 1, "VM.Allocate": 1, "VM.PowerMgmt": 1},
            "/vms": {"VM.Audit": 1, "VM.PowerMgmt": 1},
            "/vms/101": {"VM.Audit": 1, "VM.PowerMgmt": 1},
        }));
        let told: Vec<String> = excess(&have).iter().map(Excess::to_string).collect();
        assert_eq!(
            told,
            [
                "/: VM.PowerMgmt",
                "/nodes/pve1: Sys.Modify",
                "/pool/k8s: Permissions.Modify",
                "/vms: VM.Audit",
            ]
        );
    }

    #[test]
    fn p3_a_refused_storage_or_network_is_named_with_its_own_path() {
        let refused = |path: &str| {
            let call = super::super::request::Call::get(&["x"]);
            let meaning = Meaning::PermissionDenied {
                path: Some(path.to_owned()),
                privilege: Some("X".to_owned()),
            };
            let executed = super::super::error::Executed::No;
            let failure = super::super::error::Failure::new(meaning, executed, Some(403), "");
            let scope = Scope::default().with(&Error::new(&call, "pve1", failure));
            let gaps = missing(&scope, &version("9.2.11"), &Permissions::new(), "u@pve!t");
            gaps.iter().map(Missing::to_string).collect::<Vec<_>>()
        };
        for (path, role) in [
            ("/storage/local-lvm", "KproxideStorage"),
            ("/storage/ceph", "KproxideStorage"),
            ("/sdn/zones/localnetwork/vmbr7", "KproxideNetwork"),
            ("/sdn/zones/office/vnet3", "KproxideNetwork"),
        ] {
            let [_, told] = &refused(path)[..] else {
                panic!("{path}");
            };
            let line = format!(
                "pveum acl modify {path} --roles {role} --users 'u@pve' --tokens 'u@pve!t'`"
            );
            assert!(told.ends_with(&line), "{told}");
        }
        let [root] = &refused("/vms/101")[..] else {
            panic!("the machines' privileges are on their pool");
        };
        assert!(
            root.contains("acl modify / --roles KproxideAudit --users 'u@pve' --tokens 'u@pve!t' --propagate 0; \
                pveum acl modify /nodes --roles KproxideAudit"),
            "{root}"
        );
    }

    #[test]
    fn one_missing_privilege_is_named() {
        let have = granted(json!({
            "/": {"Sys.Audit": 1},
            "/pool/k8s": {"VM.Allocate":1,"VM.Audit":1,"VM.Config.CPU":1,"VM.Config.Cloudinit":1,"VM.Config.Disk":1,"VM.Config.Memory":1,
                "VM.Config.Network":1,"VM.Config.Options":1,"VM.GuestAgent.Audit":1,"VM.GuestAgent.Unrestricted":1,"Pool.Audit":1},
            "/vms/9000": {"VM.Audit":1,"VM.Clone":0},
            "/storage/ceph": {"Datastore.AllocateSpace":1,"Datastore.Audit":1},
            "/sdn/zones/localnetwork/vmbr0": {"SDN.Use":1},
        }));
        let gaps = missing(&scope(), &version("9.0.0"), &have, "aut@pve!full");
        assert_eq!(gaps.len(), 1);
        assert_eq!(gaps[0].privileges, ["VM.PowerMgmt"]);
    }

    #[test]
    fn memory_hotplug_takes_a_privilege_where_a_template_has_it_or_proxmox_asks_for_it() {
        let of_machines = |scope: &Scope| {
            missing(scope, &version("9.2.11"), &Permissions::new(), "u@pve")[1]
                .privileges
                .contains(&HARDWARE.to_owned())
        };
        assert!(!of_machines(&scope()));
        let hotplugs = Scope {
            memory_hotplug: true,
            ..scope()
        };
        assert!(of_machines(&hotplugs));
    }

    #[test]
    fn the_agents_privilege_depends_on_the_version() {
        let machines = |text: &str| {
            missing(&scope(), &version(text), &Permissions::new(), "aut@pve")[1]
                .privileges
                .clone()
        };
        assert!(machines("8.4.1").contains(&"VM.Monitor".to_owned()));
        assert!(
            !machines("8.4.1")
                .iter()
                .any(|privilege| privilege.contains("GuestAgent"))
        );
        assert!(machines("9.0.3").contains(&"VM.GuestAgent.Unrestricted".to_owned()));
    }
}
