//! What a simulated Proxmox VE cluster is made of: the description a test, a scenario file or the demo starts from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::timings::Timings;

/// One whole cluster. Everything the API can answer follows from this, the seed and the requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Topology {
    /// The name of the cluster; absent for one server that is in no cluster (it then reports no `cluster` element in
    /// `GET /cluster/status`).
    #[serde(default)]
    pub cluster: Option<String>,
    pub hypervisors: Vec<HypervisorSpec>,
    #[serde(default)]
    pub storages: Vec<StorageSpec>,
    /// Templates and all other machines that exist from the start.
    #[serde(default)]
    pub vms: Vec<VmSpec>,
    #[serde(default)]
    pub pools: Vec<PoolSpec>,
    #[serde(default)]
    pub users: Vec<UserSpec>,
    #[serde(default)]
    pub acl: Vec<AclSpec>,
    /// Tags that only somebody with `Sys.Modify` on `/` may set or remove (`registered-tags` of a data centre).
    #[serde(default)]
    pub registered_tags: Vec<String>,
    /// The tags that others may set or remove (`user-tag-access: list`); absent means all.
    #[serde(default)]
    pub allowed_tags: Option<Vec<String>>,
    /// Whether a machine fails to start when its hypervisor has not enough free memory. A real one overcommits.
    #[serde(default)]
    pub memory_is_hard: bool,
    #[serde(default)]
    pub timings: Timings,
    #[serde(default)]
    pub version: Version,
}

/// The release that the servers say they are; it decides which privilege a guest-agent call needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    #[serde(rename = "8")]
    V8,
    #[default]
    #[serde(rename = "9")]
    V9,
}

impl Version {
    /// What its texts call a question to a guest agent.
    pub(crate) fn agent_command(self) -> &'static str {
        match self {
            Version::V8 => "qmp command",
            Version::V9 => "qga command",
        }
    }
}

/// One Proxmox server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HypervisorSpec {
    pub name: String,
    /// Hardware threads.
    pub threads: u32,
    /// Physical cores; half the threads when absent.
    #[serde(default)]
    pub cores: Option<u32>,
    /// Bytes of RAM.
    pub memory: u64,
    #[serde(default = "yes")]
    pub online: bool,
    /// In HA maintenance mode.
    #[serde(default)]
    pub maintenance: bool,
    /// Names of its own bridges, and `ZONE/VNET` for those of SDN.
    #[serde(default = "vmbr0")]
    pub bridges: Vec<String>,
    /// What Proxmox shows as its notes.
    #[serde(default)]
    pub notes: String,
    /// Load of the server itself, without its machines, in threads.
    #[serde(default)]
    pub base_load: f64,
    /// Bytes of RAM that the server itself uses.
    #[serde(default)]
    pub base_memory: u64,
    /// Seconds from the start to the first status broadcast; drawn from the seed when absent.
    #[serde(default)]
    pub broadcast_offset_s: Option<f64>,
}

/// How a storage stores: decides volume names, linked clones, lock times and whether volumes are thin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageKind {
    Dir,
    LvmThin,
    ZfsPool,
    Lvm,
    Rbd,
    Nfs,
}

/// One entry of a data centre's storage list.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StorageSpec {
    pub name: String,
    pub kind: StorageKind,
    #[serde(default)]
    pub shared: bool,
    /// Bytes; per hypervisor when the storage is not shared.
    pub capacity: u64,
    /// Bytes in use by things that are no volumes of the simulation.
    #[serde(default)]
    pub used: u64,
    pub content: Vec<String>,
    /// Files that are no volumes of machines, by name (`iso/debian.iso`), with their bytes; the same on every hypervisor.
    #[serde(default)]
    pub files: BTreeMap<String, u64>,
    /// The hypervisors that have it; empty means all.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// One machine that exists from the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct VmSpec {
    pub vmid: u32,
    pub name: String,
    pub node: String,
    #[serde(default)]
    pub template: bool,
    #[serde(default)]
    pub running: bool,
    #[serde(default)]
    pub pool: Option<String>,
    /// Disks by configuration key, for example `scsi0`.
    #[serde(default)]
    pub disks: BTreeMap<String, DiskSpec>,
    /// Every other configuration key as it stands in the configuration file.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// A disk, or with `cloudinit` the drive that Proxmox writes cloud-init data to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DiskSpec {
    pub storage: String,
    /// Bytes.
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub cloudinit: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PoolSpec {
    pub name: String,
    #[serde(default)]
    pub comment: String,
    #[serde(default)]
    pub storages: Vec<String>,
}

/// A user `name@realm`, its password for ticket logins, and its API tokens. `root@pam` may be listed to give it tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UserSpec {
    pub name: String,
    #[serde(default)]
    pub password: Option<String>,
    #[serde(default)]
    pub tokens: Vec<TokenSpec>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenSpec {
    pub id: String,
    pub secret: String,
    /// With privilege separation a token has only what both it and its user were granted.
    #[serde(default = "yes")]
    pub privsep: bool,
    /// Seconds since 1970 after which the token is refused; 0 = never.
    #[serde(default)]
    pub expire: i64,
}

/// One grant. `subject` is `user@realm` or `user@realm!token`; `Administrator` among the privileges means all.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AclSpec {
    pub path: String,
    pub subject: String,
    pub privileges: Vec<String>,
    #[serde(default = "yes")]
    pub propagate: bool,
}

const GIB: u64 = 1 << 30;

impl Topology {
    /// The cluster of the demo and of most tests: `count` equal hypervisors `pve1..` with 16 threads and 64 GiB, a thin
    /// local storage `local-lvm`, a shared `ceph`, a pool `k8s`, one template per hypervisor (9001, 9002, … named
    /// `k8s-node`, on `local-lvm`) and the token `kproxide@pve!ci` = `secret` with every privilege.
    pub fn of(count: u32) -> Topology {
        let names: Vec<String> = (1..=count).map(|n| format!("pve{n}")).collect();
        Topology {
            cluster: Some("lab".into()),
            hypervisors: names
                .iter()
                .map(|name| HypervisorSpec::new(name, 16, 64 * GIB))
                .collect(),
            storages: vec![
                StorageSpec::new(
                    "local-lvm",
                    StorageKind::LvmThin,
                    400 * GIB,
                    &["images", "rootdir"],
                ),
                StorageSpec::new("ceph", StorageKind::Rbd, 2_000 * GIB, &["images"]).shared(),
            ],
            vms: (9001..)
                .zip(&names)
                .map(|(vmid, node)| VmSpec::template(vmid, "k8s-node", node, "local-lvm", 10 * GIB))
                .collect(),
            pools: vec![PoolSpec {
                name: "k8s".into(),
                comment: String::new(),
                storages: Vec::new(),
            }],
            users: vec![UserSpec {
                name: "kproxide@pve".into(),
                password: Some("password".into()),
                tokens: vec![TokenSpec {
                    id: "ci".into(),
                    secret: "secret".into(),
                    privsep: false,
                    expire: 0,
                }],
            }],
            acl: vec![AclSpec {
                path: "/".into(),
                subject: "kproxide@pve".into(),
                privileges: vec!["Administrator".into()],
                propagate: true,
            }],
            registered_tags: Vec::new(),
            allowed_tags: None,
            memory_is_hard: false,
            timings: Timings::default(),
            version: Version::default(),
        }
    }

    /// The same cluster, whose users may do what `examples/proxmox/setup.sh` grants for its pools, templates and storages, and no more.
    pub fn least_privileged(mut self) -> Topology {
        const MACHINES: [&str; 12] = [
            "Pool.Audit",
            "VM.Allocate",
            "VM.Audit",
            "VM.Config.CPU",
            "VM.Config.Cloudinit",
            "VM.Config.Disk",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "VM.GuestAgent.Audit",
            "VM.GuestAgent.Unrestricted",
            "VM.PowerMgmt",
        ];
        let pools = self.pools.iter().map(|pool| format!("/pool/{}", pool.name));
        let templates = self.vms.iter().filter(|vm| vm.template);
        let templates = templates.map(|vm| format!("/vms/{}", vm.vmid));
        let storages = self.storages.iter();
        let storages = storages.map(|storage| format!("/storage/{}", storage.name));
        let paths: Vec<(String, &[&str])> = pools
            .map(|path| (path, &MACHINES[..]))
            .chain(templates.map(|path| (path, &["VM.Audit", "VM.Clone"][..])))
            .chain(storages.map(|path| (path, &["Datastore.AllocateSpace", "Datastore.Audit"][..])))
            .chain([
                ("/".to_owned(), &["Sys.Audit"][..]),
                ("/sdn/zones/localnetwork/vmbr0".to_owned(), &["SDN.Use"][..]),
            ])
            .collect();
        let grants = self.users.iter().flat_map(|user| {
            paths.iter().map(|(path, privileges)| AclSpec {
                path: path.clone(),
                subject: user.name.clone(),
                privileges: privileges.iter().map(|it| (*it).to_owned()).collect(),
                propagate: true,
            })
        });
        self.acl = grants.collect();
        self
    }

    /// The same cluster where nothing takes time.
    pub fn instant(mut self) -> Topology {
        self.timings = Timings::instant();
        self
    }
}

impl HypervisorSpec {
    pub fn new(name: &str, threads: u32, memory: u64) -> HypervisorSpec {
        HypervisorSpec {
            name: name.into(),
            threads,
            cores: None,
            memory,
            online: true,
            maintenance: false,
            bridges: vmbr0(),
            notes: String::new(),
            base_load: 0.2,
            base_memory: 2 * GIB,
            broadcast_offset_s: None,
        }
    }
}

impl StorageSpec {
    pub fn new(name: &str, kind: StorageKind, capacity: u64, content: &[&str]) -> StorageSpec {
        StorageSpec {
            name: name.into(),
            kind,
            shared: false,
            capacity,
            used: 0,
            content: content.iter().map(|s| (*s).into()).collect(),
            files: BTreeMap::new(),
            nodes: Vec::new(),
        }
    }

    pub fn shared(mut self) -> StorageSpec {
        self.shared = true;
        self
    }
}

impl VmSpec {
    /// A cloud-init template with one disk `scsi0`, as the usual how-tos make it.
    pub fn template(vmid: u32, name: &str, node: &str, storage: &str, size: u64) -> VmSpec {
        VmSpec {
            template: true,
            ..VmSpec::machine(vmid, name, node, storage, size)
        }
    }

    /// A stopped machine with two cores, 2 GiB, one disk and a cloud-init drive.
    pub fn machine(vmid: u32, name: &str, node: &str, storage: &str, size: u64) -> VmSpec {
        let disk = |size, cloudinit| DiskSpec {
            storage: storage.into(),
            size,
            cloudinit,
        };
        let config = [
            ("agent", "1"),
            ("boot", "order=scsi0;ide2;net0"),
            ("cores", "2"),
            ("memory", "2048"),
            ("net0", "virtio,bridge=vmbr0"),
            ("ostype", "l26"),
            ("scsihw", "virtio-scsi-single"),
        ];
        VmSpec {
            vmid,
            name: name.into(),
            node: node.into(),
            template: false,
            running: false,
            pool: None,
            disks: BTreeMap::from([
                ("scsi0".into(), disk(size, false)),
                ("ide2".into(), disk(0, true)),
            ]),
            config: config
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        }
    }
}

fn yes() -> bool {
    true
}

fn vmbr0() -> Vec<String> {
    vec!["vmbr0".into()]
}
