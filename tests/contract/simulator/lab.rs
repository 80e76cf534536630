//! The laboratory in which the answers were recorded: one or two small servers, file storages, three users.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kproxide_simulator::clock::Clock;
use kproxide_simulator::pve::Pve;
use kproxide_simulator::pve::timings::Timings;
use kproxide_simulator::pve::topology::*;
use kproxide_simulator::rng::Spread;

const GIB: u64 = 1 << 30;

pub(crate) fn world(topology: Topology) -> Pve {
    let epoch = Timestamp::from_second(1_795_220_000).expect("a valid time");
    Pve::new(topology, Clock::starting_at(epoch), 1)
}

/// The laboratory: nothing takes time but forking, and nobody broadcasts.
pub(crate) fn lab(servers: u32) -> Topology {
    let names = (1..=servers).map(|n| format!("pve{n}"));
    let capacity = 270_553_174_016;
    Topology {
        cluster: (servers > 1).then(|| "lab".into()),
        hypervisors: names
            .map(|name| HypervisorSpec {
                cores: Some(2),
                ..HypervisorSpec::new(&name, 2, 25_276_514_304)
            })
            .collect(),
        storages: vec![
            StorageSpec::new(
                "shared",
                StorageKind::Dir,
                capacity,
                &["iso", "images", "import"],
            )
            .shared(),
            StorageSpec::new("noimg", StorageKind::Dir, capacity, &["iso"]),
            StorageSpec {
                files: BTreeMap::from([("iso/seed.iso".into(), 358_400)]),
                ..StorageSpec::new("local", StorageKind::Dir, capacity, &LOCAL_CONTENT)
            },
        ],
        vms: Vec::new(),
        pools: vec![PoolSpec {
            name: "k8s".into(),
            comment: String::new(),
            storages: Vec::new(),
        }],
        users: vec![
            user("aut@pve", &[("full", false), ("bare", true)]),
            user("pooluser@pve", &[("tt", false)]),
            user("stranger@pve", &[("none", false)]),
        ],
        acl: vec![
            grant("/", "aut@pve", &["Administrator"]),
            grant("/pool/k8s", "pooluser@pve", &POOL_PRIVILEGES),
            grant("/vms/9000", "pooluser@pve", &["VM.Clone", "VM.Audit"]),
            grant(
                "/storage/shared",
                "pooluser@pve",
                &["Datastore.AllocateSpace", "Datastore.Audit"],
            ),
            grant("/sdn/zones/localnetwork", "pooluser@pve", &["SDN.Use"]),
        ],
        registered_tags: Vec::new(),
        allowed_tags: None,
        memory_is_hard: false,
        timings: Timings {
            fork: Spread::new(0.045, 0.09),
            broadcast_s: 0.0,
            unauthorized_s: 3.0,
            ..Timings::instant()
        },
        version: Version::V9,
    }
}

const LOCAL_CONTENT: [&str; 6] = ["iso", "rootdir", "snippets", "images", "import", "vztmpl"];

pub(crate) const POOL_PRIVILEGES: [&str; 14] = [
    "Datastore.AllocateSpace",
    "Datastore.Audit",
    "Pool.Audit",
    "SDN.Use",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];

/// Two servers with a small machine 9000 that is about to become a template.
pub(crate) fn pair() -> Topology {
    let mut topology = lab(2);
    // Two requests sent at once are both checked before the first one acts.
    topology.timings.fork = Spread::exactly(0.045);
    topology.pools[0].comment = "x".into();
    topology.vms = vec![machine(9000, "tmpl")];
    for vm in &mut topology.vms {
        vm.config.extend([
            ("cores".into(), "1".into()),
            ("memory".into(), "512".into()),
        ]);
    }
    topology
}

/// The server of version 8.4.
pub(crate) fn eighth(mut topology: Topology) -> Topology {
    topology.version = Version::V8;
    topology.hypervisors[0].name = "pve8".into();
    for vm in &mut topology.vms {
        vm.node = "pve8".into();
    }
    topology
}

pub(crate) fn user(name: &str, tokens: &[(&str, bool)]) -> UserSpec {
    let token = |(id, privsep): &(&str, bool)| TokenSpec {
        id: (*id).into(),
        secret: "secret".into(),
        privsep: *privsep,
        expire: 0,
    };
    UserSpec {
        name: name.into(),
        password: Some("password".into()),
        tokens: tokens.iter().map(token).collect(),
    }
}

pub(crate) fn grant(path: &str, subject: &str, privileges: &[&str]) -> AclSpec {
    AclSpec {
        path: path.into(),
        subject: subject.into(),
        privileges: privileges.iter().map(|name| (*name).into()).collect(),
        propagate: true,
    }
}

/// The template of most recordings: on the shared storage, with a cloud-init drive.
pub(crate) fn source(vmid: u32, name: &str, tags: Option<&str>) -> VmSpec {
    let mut vm = VmSpec::template(vmid, name, "pve1", "shared", GIB);
    vm.config
        .extend(tags.map(|tags| ("tags".to_owned(), tags.to_owned())));
    vm
}

pub(crate) fn machine(vmid: u32, name: &str) -> VmSpec {
    VmSpec {
        template: false,
        ..source(vmid, name, None)
    }
}

/// A machine on local storage, without cloud-init drive and network.
pub(crate) fn local_source(vmid: u32) -> VmSpec {
    let mut vm = VmSpec::machine(vmid, "Copy-of-VM-tmpl2", "pve1", "local", GIB);
    vm.disks.remove("ide2");
    vm.config
        .retain(|key, _| matches!(key.as_str(), "cores" | "memory" | "ostype"));
    vm
}

/// A machine without anything.
pub(crate) fn bare(vmid: u32, name: &str) -> VmSpec {
    VmSpec {
        disks: BTreeMap::new(),
        config: BTreeMap::new(),
        ..VmSpec::machine(vmid, name, "pve1", "shared", GIB)
    }
}
