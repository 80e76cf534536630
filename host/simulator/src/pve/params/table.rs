//! The parameters of every method, in our own words. A test compares names, types and limits with Proxmox's published
//! schemas where those are present.

use super::{Format, Kind, Param};
use crate::pve::routes::Endpoint;

/// Parameters that release 8 does not know.
pub(super) const ONLY_V9: [&str; 4] = [
    "allow-ksm",
    "ha-managed",
    "intel-tdx",
    "with-conntrack-state",
];

const fn required(name: &'static str, kind: Kind) -> Param {
    Param {
        name,
        kind,
        required: true,
    }
}

const fn optional(name: &'static str, kind: Kind) -> Param {
    Param {
        name,
        kind,
        required: false,
    }
}

const fn at_least(min: i64) -> Kind {
    Kind::Integer {
        min: Some(min),
        max: None,
    }
}

const fn between(min: i64, max: i64) -> Kind {
    Kind::Integer {
        min: Some(min),
        max: Some(max),
    }
}

const INTEGER: Kind = Kind::Integer {
    min: None,
    max: None,
};
const TEXT: Kind = Kind::Text(Format::Any);
const VMID: Kind = between(100, 999_999_999);
const NODE_NAME: Kind = Kind::Text(Format::NodeName);
const STORAGE: Kind = Kind::Text(Format::StorageId);
const FLAG: Kind = Kind::Boolean;

const NODE: &[Param] = &[required("node", NODE_NAME)];
const VM: &[Param] = &[required("node", NODE_NAME), required("vmid", VMID)];
const SKIPLOCK: &[Param] = &[optional("skiplock", FLAG)];

/// The parameters of a method, in groups that several methods share.
pub(super) fn parameters(endpoint: Endpoint) -> &'static [&'static [Param]] {
    match endpoint {
        Endpoint::Version | Endpoint::ClusterStatus | Endpoint::ClusterTasks | Endpoint::Nodes => {
            &[]
        }
        Endpoint::Permissions => const { &[&[optional("path", TEXT), optional("userid", TEXT)]] },
        Endpoint::Ticket => &[TICKET],
        Endpoint::Resources => {
            const {
                &[&[optional(
                    "type",
                    Kind::OneOf(&["vm", "storage", "node", "sdn"]),
                )]]
            }
        }
        Endpoint::NextId => const { &[&[optional("vmid", VMID)]] },
        Endpoint::HaResources => const { &[&[optional("type", Kind::OneOf(&["ct", "vm"]))]] },
        Endpoint::NodeStatus | Endpoint::NodeVersion | Endpoint::NodeConfig => &[NODE],
        Endpoint::NodeNetwork => const { &[NODE, &[optional("type", Kind::OneOf(NETWORK_TYPES))]] },
        Endpoint::StorageList => &[NODE, STORAGE_LIST],
        Endpoint::StorageContent => {
            const {
                &[
                    NODE,
                    &[
                        required("storage", STORAGE),
                        optional("content", TEXT),
                        optional("vmid", VMID),
                    ],
                ]
            }
        }
        Endpoint::VolumeDelete => {
            const {
                &[
                    NODE,
                    &[
                        optional("storage", STORAGE),
                        required("volume", TEXT),
                        optional("delay", between(1, 30)),
                    ],
                ]
            }
        }
        Endpoint::QemuList => const { &[NODE, &[optional("full", FLAG)]] },
        Endpoint::Create => &[VM, CREATE, CONFIG],
        Endpoint::Clone => &[VM, CLONE],
        Endpoint::ConfigGet => {
            const {
                &[
                    VM,
                    &[
                        optional("current", FLAG),
                        optional("snapshot", Kind::Text(Format::ConfigId)),
                    ],
                ]
            }
        }
        Endpoint::ConfigPut => &[VM, CONFIG_CALL, CONFIG],
        Endpoint::ConfigPost => {
            const {
                &[
                    VM,
                    CONFIG_CALL,
                    &[
                        optional("background_delay", between(1, 30)),
                        optional("import-working-storage", STORAGE),
                    ],
                    CONFIG,
                ]
            }
        }
        Endpoint::Resize => &[VM, SKIPLOCK, RESIZE],
        Endpoint::Template => const { &[VM, &[optional("disk", Kind::Text(Format::Disk))]] },
        Endpoint::Start => &[VM, SKIPLOCK, START],
        Endpoint::Stop => &[VM, SKIPLOCK, STOP],
        Endpoint::Shutdown => {
            const {
                &[
                    VM,
                    SKIPLOCK,
                    &[
                        optional("forceStop", FLAG),
                        optional("keepActive", FLAG),
                        optional("timeout", at_least(0)),
                    ],
                ]
            }
        }
        Endpoint::Reset => &[VM, SKIPLOCK],
        Endpoint::Destroy => {
            const {
                &[
                    VM,
                    SKIPLOCK,
                    &[
                        optional("destroy-unreferenced-disks", FLAG),
                        optional("purge", FLAG),
                    ],
                ]
            }
        }
        Endpoint::Pending
        | Endpoint::CloudinitPut
        | Endpoint::Current
        | Endpoint::AgentPing
        | Endpoint::AgentHostName
        | Endpoint::AgentInterfaces => &[VM],
        Endpoint::AgentExec => {
            const {
                &[
                    VM,
                    &[
                        required("command", Kind::List),
                        optional("input-data", Kind::Text(Format::Max(65_536))),
                    ],
                ]
            }
        }
        Endpoint::AgentExecStatus => const { &[VM, &[required("pid", INTEGER)]] },
        Endpoint::AgentFileWrite => &[VM, FILE_WRITE],
        Endpoint::TaskList => &[NODE, TASK_LIST],
        Endpoint::TaskStatus | Endpoint::TaskStop => const { &[NODE, &[required("upid", TEXT)]] },
        Endpoint::TaskLog => {
            const {
                &[
                    NODE,
                    &[
                        required("upid", TEXT),
                        optional("download", FLAG),
                        optional("limit", at_least(0)),
                        optional("start", at_least(0)),
                    ],
                ]
            }
        }
        Endpoint::PoolList => {
            const {
                &[&[
                    optional("poolid", Kind::Text(Format::PoolId)),
                    optional("type", Kind::OneOf(&["qemu", "lxc", "storage"])),
                ]]
            }
        }
        Endpoint::PoolUpdate => &[POOL_UPDATE],
    }
}

const NETWORK_TYPES: &[&str] = &[
    "bridge",
    "bond",
    "eth",
    "alias",
    "vlan",
    "fabric",
    "OVSBridge",
    "OVSBond",
    "OVSPort",
    "OVSIntPort",
    "vnet",
    "any_bridge",
    "any_local_bridge",
    "include_sdn",
];

const TICKET: &[Param] = &[
    optional("new-format", FLAG),
    optional("otp", TEXT),
    required("password", TEXT),
    optional("path", Kind::Text(Format::Max(64))),
    optional("privs", Kind::Text(Format::Max(64))),
    optional("realm", Kind::Text(Format::Max(32))),
    optional("tfa-challenge", TEXT),
    required("username", Kind::Text(Format::Max(64))),
];

const STORAGE_LIST: &[Param] = &[
    optional("content", TEXT),
    optional("enabled", FLAG),
    optional("format", FLAG),
    optional("storage", STORAGE),
    optional("target", NODE_NAME),
];

const CREATE: &[Param] = &[
    optional("archive", Kind::Text(Format::Max(255))),
    optional("bwlimit", at_least(0)),
    optional("force", FLAG),
    optional("ha-managed", FLAG),
    optional("import-working-storage", STORAGE),
    optional("live-restore", FLAG),
    optional("pool", Kind::Text(Format::PoolId)),
    optional("start", FLAG),
    optional("storage", STORAGE),
    optional("unique", FLAG),
];

const CLONE: &[Param] = &[
    optional("bwlimit", at_least(0)),
    optional("description", TEXT),
    optional("format", Kind::OneOf(&["raw", "qcow2", "vmdk"])),
    optional("full", FLAG),
    optional("name", Kind::Text(Format::DnsName)),
    required("newid", VMID),
    optional("pool", Kind::Text(Format::PoolId)),
    optional("snapname", Kind::Text(Format::ConfigId)),
    optional("storage", STORAGE),
    optional("target", NODE_NAME),
];

const RESIZE: &[Param] = &[
    optional("digest", Kind::Text(Format::Max(40))),
    required("disk", Kind::Text(Format::Disk)),
    required("size", Kind::Text(Format::Growth)),
];

const START: &[Param] = &[
    optional("force-cpu", TEXT),
    optional("machine", TEXT),
    optional("migratedfrom", NODE_NAME),
    optional("migration_network", TEXT),
    optional("migration_type", Kind::OneOf(&["secure", "insecure"])),
    optional("nets-host-mtu", TEXT),
    optional("stateuri", Kind::Text(Format::Max(128))),
    optional("targetstorage", TEXT),
    optional("timeout", at_least(0)),
    optional("with-conntrack-state", FLAG),
];

const STOP: &[Param] = &[
    optional("keepActive", FLAG),
    optional("migratedfrom", NODE_NAME),
    optional("overrule-shutdown", FLAG),
    optional("timeout", at_least(0)),
];

const FILE_WRITE: &[Param] = &[
    required("content", Kind::Text(Format::Max(61_440))),
    optional("encode", FLAG),
    required("file", TEXT),
];

const TASK_LIST: &[Param] = &[
    optional("errors", FLAG),
    optional("limit", at_least(0)),
    optional("since", INTEGER),
    optional("source", Kind::OneOf(&["archive", "active", "all"])),
    optional("start", at_least(0)),
    optional("statusfilter", TEXT),
    optional("typefilter", TEXT),
    optional("until", INTEGER),
    optional("userfilter", TEXT),
    optional("vmid", VMID),
];

const POOL_UPDATE: &[Param] = &[
    optional("allow-move", FLAG),
    optional("comment", TEXT),
    optional("delete", FLAG),
    required("poolid", Kind::Text(Format::PoolId)),
    optional("storage", Kind::Text(Format::StorageIdList)),
    optional("vms", Kind::Text(Format::VmidList)),
];

/// What steers a change of a configuration but is no part of it.
const CONFIG_CALL: &[Param] = &[
    optional("delete", Kind::Text(Format::ConfigIdList)),
    optional("digest", Kind::Text(Format::Max(40))),
    optional("force", FLAG),
    optional("revert", Kind::Text(Format::ConfigIdList)),
    optional("skiplock", FLAG),
];

/// The keys of a machine's configuration.
const CONFIG: &[Param] = &[
    optional("acpi", FLAG),
    optional("affinity", TEXT),
    optional("agent", Kind::Text(Format::Agent)),
    optional("allow-ksm", FLAG),
    optional("amd-sev", TEXT),
    optional("arch", Kind::OneOf(&["x86_64", "aarch64"])),
    optional("args", TEXT),
    optional("audio0", TEXT),
    optional("autostart", FLAG),
    optional("balloon", at_least(0)),
    optional("bios", Kind::OneOf(&["seabios", "ovmf"])),
    optional("boot", TEXT),
    optional("bootdisk", TEXT),
    optional("cdrom", TEXT),
    optional("cicustom", TEXT),
    optional("cipassword", TEXT),
    optional(
        "citype",
        Kind::OneOf(&["configdrive2", "nocloud", "opennebula"]),
    ),
    optional("ciupgrade", FLAG),
    optional("ciuser", TEXT),
    optional("cores", at_least(1)),
    optional("cpu", Kind::Text(Format::Cpu)),
    optional(
        "cpulimit",
        Kind::Number {
            min: 0.0,
            max: Some(128.0),
        },
    ),
    optional("cpuunits", between(1, 262_144)),
    optional("description", Kind::Text(Format::Max(8_192))),
    optional("efidisk0", TEXT),
    optional("freeze", FLAG),
    optional("hookscript", Kind::Text(Format::VolumeId)),
    optional("hostpci[n]", TEXT),
    optional("hotplug", TEXT),
    optional("hugepages", Kind::OneOf(&["any", "2", "1024"])),
    optional("ide[n]", TEXT),
    optional("intel-tdx", TEXT),
    optional("ipconfig[n]", Kind::Text(Format::IpConfig)),
    optional("ivshmem", TEXT),
    optional("keephugepages", FLAG),
    optional("keyboard", Kind::OneOf(KEYBOARDS)),
    optional("kvm", FLAG),
    optional("localtime", FLAG),
    optional("lock", Kind::OneOf(LOCKS)),
    optional("machine", TEXT),
    optional("memory", Kind::Text(Format::Memory)),
    optional(
        "migrate_downtime",
        Kind::Number {
            min: 0.0,
            max: None,
        },
    ),
    optional("migrate_speed", at_least(0)),
    optional("name", Kind::Text(Format::DnsName)),
    optional("nameserver", TEXT),
    optional("net[n]", Kind::Text(Format::Network)),
    optional("numa", FLAG),
    optional("numa[n]", TEXT),
    optional("onboot", FLAG),
    optional("ostype", Kind::OneOf(OS_TYPES)),
    optional("parallel[n]", TEXT),
    optional("protection", FLAG),
    optional("reboot", FLAG),
    optional("rng0", TEXT),
    optional("sata[n]", TEXT),
    optional("scsi[n]", TEXT),
    optional("scsihw", Kind::OneOf(SCSI_CONTROLLERS)),
    optional("searchdomain", TEXT),
    optional("serial[n]", TEXT),
    optional("shares", between(0, 50_000)),
    optional("smbios1", Kind::Text(Format::Max(512))),
    optional("smp", at_least(1)),
    optional("sockets", at_least(1)),
    optional("spice_enhancements", TEXT),
    optional("sshkeys", Kind::Text(Format::UrlEncoded)),
    optional("startdate", TEXT),
    optional("startup", TEXT),
    optional("tablet", FLAG),
    optional("tags", Kind::Text(Format::Tags)),
    optional("tdf", FLAG),
    optional("template", FLAG),
    optional("tpmstate0", TEXT),
    optional("unused[n]", TEXT),
    optional("usb[n]", TEXT),
    optional("vcpus", at_least(1)),
    optional("vga", TEXT),
    optional("virtio[n]", TEXT),
    optional("virtiofs[n]", TEXT),
    optional("vmgenid", TEXT),
    optional("vmstatestorage", STORAGE),
    optional("watchdog", TEXT),
];

const KEYBOARDS: &[&str] = &[
    "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is",
    "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr",
];
const LOCKS: &[&str] = &[
    "backup",
    "clone",
    "create",
    "migrate",
    "rollback",
    "snapshot",
    "snapshot-delete",
    "suspending",
    "suspended",
];
const OS_TYPES: &[&str] = &[
    "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24",
    "l26", "solaris",
];
const SCSI_CONTROLLERS: &[&str] = &[
    "lsi",
    "lsi53c810",
    "virtio-scsi-pci",
    "virtio-scsi-single",
    "megasas",
    "pvscsi",
];
