//! Why kproxide makes no machine of a pool on a hypervisor now. `Display` is the only place with texts.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::Requirement;
use crate::facts::limits::MOST_ENTRIES;
use crate::ids::{ClassName, ClusterName, HypervisorId, StorageName, Vmid};
use crate::kubernetes::resources::amount_text;
use crate::kubernetes::selector::RequirementText;
use crate::reasons::on_hold::Hold;

/// kproxide makes no machine on a storage with less free space than this.
pub(crate) const LEAST_FREE_PERCENT: u64 = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    Held(Hold),
    /// The ProxmoxCluster cannot be used as it stands.
    Cluster(String),
    Unreachable {
        cluster: ClusterName,
        problem: String,
    },
    NoQuorum(ClusterName),
    Excluded,
    Offline,
    /// Proxmox says that it is online, but it does not answer.
    Silent(Arc<str>),
    Maintenance,
    /// It is to be emptied.
    Drained,
    /// Of the NodePool.
    Requirement(Requirement),
    FewIdleCores {
        idle: u64,
        least: u64,
    },
    LittleFreeMemory {
        free: i64,
        least: i64,
    },
    /// The template cannot be cloned to any hypervisor.
    Template(String),
    NoTemplate {
        template: String,
        /// `None`: the template is missing on this hypervisor, and `placement: local` needs it there.
        cluster: Option<ClusterName>,
    },
    TemplateStays(String),
    /// The join script of its class would never run.
    NoAgent(Vmid),
    ClassGone,
    NoStorage(StorageName),
    StorageInactive(StorageName),
    StorageNearlyFull {
        storage: StorageName,
        free_percent: u64,
    },
    NoBridge(Arc<str>),
    /// Which bridges the hypervisor has.
    BridgesUnknown,
    StorageLocal {
        storage: StorageName,
        template: String,
        hypervisor: String,
    },
    /// A linked clone was asked for.
    NotLinkable {
        template: Vmid,
        disk: String,
        storage: StorageName,
        kind: String,
    },
    /// The same, and the storage could hold them.
    NotBase {
        template: Vmid,
        disk: String,
    },
    /// Launches failed here.
    LeftAlone {
        until: Timestamp,
        failures: u32,
        why: String,
    },
    LedgerFull,
    NoNumber {
        cluster: ClusterName,
        first: Vmid,
        last: Vmid,
    },
    NoAddress(ClassName),
    TooManyMachines(u32),
    /// Proxmox starts no VM with more virtual cores than the hypervisor has threads.
    FewThreads {
        asked: u64,
        threads: u64,
    },
    Lacks {
        resource: String,
        asked: i64,
        left: i64,
        /// What the hypervisor would have for machines if it were empty.
        whole: Option<i64>,
    },
    StorageFull {
        storage: StorageName,
        asked: i64,
        left: i64,
    },
    NotWhatPodsNeed,
    /// The policy's score was as high or higher here.
    PodsPreferAnother,
    TakenBefore,
    Policy {
        policy: String,
        reason: String,
    },
}

/// A refusal with the hypervisor that it is about.
pub type Refused = (HypervisorId, Refusal);

/// What is said of several servers stands once, behind their names.
pub fn grouped(said: impl IntoIterator<Item = (String, String)>) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (name, text) in said {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name),
            None => groups.push((text, vec![name])),
        }
    }
    let groups = groups
        .iter()
        .map(|(text, names)| format!("{}: {text}", named(names)));
    groups.collect::<Vec<_>>().join("; ")
}

/// Names, those that count on by the first and the last: `pve1 to pve12, rack`.
fn named(names: &[String]) -> String {
    let parts = names.iter().map(|name| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: Option<u32> = name[stem.len()..].parse().ok();
        (stem, number, name.as_str())
    });
    let mut parts: Vec<_> = parts.collect();
    parts.sort_unstable();
    let runs = parts.chunk_by(|a, b| {
        let next = a.1.and_then(|number| number.checked_add(1));
        a.0 == b.0 && next.is_some() && next == b.1
    });
    let texts = runs.flat_map(|run| match run {
        [first, _, .., last] => vec![format!("{} to {}", first.2, last.2)],
        few => few.iter().map(|it| it.2.to_owned()).collect(),
    });
    texts.collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = |bytes: i64| amount_text("memory", bytes);
        match self {
            Self::Held(hold) => hold.fmt(f),
            Self::Cluster(text) | Self::Template(text) => f.write_str(text),
            Self::Unreachable { cluster, problem } => {
                write!(f, "Proxmox cluster {cluster} cannot be reached: {problem}")
            }
            Self::NoQuorum(cluster) => write!(f, "Proxmox cluster {cluster} has no quorum"),
            Self::Excluded => f.write_str("excluded by spec.hypervisors of the ProxmoxCluster"),
            Self::Offline => f.write_str("offline"),
            Self::Silent(problem) => write!(
                f,
                "online, but its Proxmox daemons do not answer ({problem}): restart pveproxy and pvedaemon on it"
            ),
            Self::Maintenance => f.write_str("in maintenance"),
            Self::Requirement(requirement) => {
                write!(f, "its NodePool requires {}", RequirementText(requirement))
            }
            Self::NoBridge(bridge) => write!(
                f,
                "it has no bridge or VNet {bridge}, or the token has no SDN.Use there"
            ),
            Self::BridgesUnknown => f.write_str("its bridges could not be read yet"),
            Self::Drained => {
                f.write_str("to be emptied, by spec.hypervisors.drain of the ProxmoxCluster")
            }
            Self::FewIdleCores { idle, least } => write!(
                f,
                "{idle} cores are idle, at least {least} must be (minAvailableCpuCores)"
            ),
            Self::LittleFreeMemory { free, least } => write!(
                f,
                "{} of memory is free, at least {} must be (minAvailableMemoryMB)",
                memory(*free),
                memory(*least)
            ),
            Self::NoTemplate { template, cluster } => match cluster {
                Some(cluster) => write!(f, "there is no template {template} in cluster {cluster}"),
                None => write!(f, "there is no template {template} on it"),
            },
            Self::TemplateStays(template) => write!(
                f,
                "template {template} is on another hypervisor's local storage"
            ),
            Self::NoAgent(template) => write!(
                f,
                "template {template} has no guest agent, by which the join script runs: `qm set {template} --agent 1`"
            ),
            Self::ClassGone => f.write_str("its class is gone"),
            Self::NoStorage(storage) => write!(
                f,
                "storage {storage} does not exist there, is disabled or not for this hypervisor (`disable`, `nodes`), or does not hold disk images (content `images`)"
            ),
            Self::StorageInactive(storage) => write!(
                f,
                "storage {storage} is not active there: see `pvesm status` on the hypervisor"
            ),
            Self::StorageNearlyFull {
                storage,
                free_percent,
            } => write!(
                f,
                "storage {storage} is nearly full: {free_percent} % are free, at least {LEAST_FREE_PERCENT} % must be"
            ),
            Self::StorageLocal {
                storage,
                template,
                hypervisor,
            } => write!(
                f,
                "storage {storage} is local, and template {template} is on {hypervisor}"
            ),
            Self::NotLinkable {
                template,
                disk,
                storage,
                kind,
            } => write!(
                f,
                "template.clone is linked, but template {template} has {disk} on storage {storage} ({kind}), which cannot hold linked clones: use `full` or `auto`"
            ),
            Self::NotBase { template, disk } => write!(
                f,
                "template.clone is linked, but {disk} of template {template} is no base volume: convert the template (`qm template {template}`), or use `full` or `auto`"
            ),
            Self::LeftAlone {
                until,
                failures,
                why,
            } => {
                write!(
                    f,
                    "kproxide launches nothing there until {until:.0}, after "
                )?;
                match failures {
                    1 => f.write_str("a failed launch")?,
                    failures => write!(f, "{failures} failed launches, the last")?,
                }
                write!(f, ": {why}")
            }
            Self::LedgerFull => write!(
                f,
                "the Ledger is full: it holds at most {MOST_ENTRIES} entries"
            ),
            Self::NoNumber {
                cluster,
                first,
                last,
            } => write!(
                f,
                "cluster {cluster} has no free VMID in {first} to {last} (vmidRange; kproxide's anchor VM takes one)"
            ),
            Self::NoAddress(class) => write!(
                f,
                "the address pool of NodeClass {class} has no free address"
            ),
            Self::TooManyMachines(most) => write!(
                f,
                "it holds {most} machines already (maxMachinesPerHypervisor)"
            ),
            Self::FewThreads { asked, threads } => write!(
                f,
                "the machine has {asked} cores, and Proxmox starts no VM with more than the {threads} threads of the hypervisor"
            ),
            Self::Lacks {
                resource,
                asked,
                left: _,
                whole: Some(whole),
            } if asked > whole => write!(
                f,
                "too small: the machine needs {} of {resource}, and an empty server offers {}",
                amount_text(resource, *asked),
                amount_text(resource, *whole)
            ),
            Self::Lacks {
                resource,
                asked,
                left,
                whole: _,
            } => write!(
                f,
                "no room: the machine needs {} of {resource}, {} left",
                amount_text(resource, *asked),
                amount_text(resource, (*left).max(0))
            ),
            Self::StorageFull {
                storage,
                asked,
                left,
            } => write!(
                f,
                "storage {storage} has no space: the disk needs {}, {} left",
                memory(*asked),
                memory(*left)
            ),
            Self::NotWhatPodsNeed => {
                f.write_str("a machine here would not carry the labels that its pods need")
            }
            Self::PodsPreferAnother => {
                f.write_str("the pods of this machine prefer another hypervisor")
            }
            Self::TakenBefore => f.write_str("machines planned before this one take its room"),
            Self::Policy { policy, reason } => write!(f, "policy {policy}: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r41_what_is_said_of_several_servers_stands_once() {
        let said = |names: &[&str], text: &str| {
            let said = names.iter().map(|name| (name.to_string(), text.to_owned()));
            said.collect::<Vec<_>>()
        };
        let twelve: Vec<String> = (1..=12).map(|number| format!("pve{number}")).collect();
        let mut twelve: Vec<&str> = twelve.iter().map(String::as_str).collect();
        // As they come by name.
        twelve.sort_unstable();
        let mut all = said(&twelve, "offline");
        all.extend(said(&["rack"], "in maintenance"));
        assert_eq!(grouped(all), "pve1 to pve12: offline; rack: in maintenance");
        for (names, expected) in [
            (&["a"][..], "a: x"),
            (&["a", "b"], "a, b: x"),
            (&["pve1", "pve2"], "pve1, pve2: x"),
            (
                &["pve01", "pve02", "pve03", "pve7"],
                "pve01 to pve03, pve7: x",
            ),
            (&["a1", "b2", "c3"], "a1, b2, c3: x"),
        ] {
            assert_eq!(grouped(said(names, "x")), expected);
        }
    }
}
