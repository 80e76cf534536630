//! Why kproxide makes no machine of a pool for a pod. `Display` is the only place with texts.

mod misfit;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::{PolicyKind, PolicyRef, Taint};
use crate::ids::{
    ClaimName, ClassName, ClusterName, InstanceTypeName, NodeName, ObjectKey, PoolName,
};
use crate::kubernetes::resources::amount_text;
use crate::reasons::no_hypervisor::{Refused, grouped};
use crate::reasons::on_hold::opens_next;

pub use misfit::Misfit;

/// Why no machine of a pool is made for a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Why {
    /// The pod is larger than every instance type.
    TooBig {
        resource: Arc<str>,
        requested: i64,
        largest: i64,
        /// Without their DaemonSets, it is not.
        daemons: Option<Box<DaemonsWhy>>,
    },
    /// A type is large enough by its size, but its last Nodes offered less.
    LearnedTooBig(Box<LearnedWhy>),
    /// A machine would be large enough, but a filter keeps the pod away.
    Misfit(Box<Misfit<'static>>),
    Limit(Limit),
    /// The pool launches machines for pods at other times. The next one begins then.
    Window(Option<Timestamp>),
    /// The pool waits before it scales up.
    Stabilizing {
        seconds: i64,
    },
    /// This Node was made for such pods. It is idle, and they do not fit on it.
    MadeInVain {
        node: NodeName,
        misfit: Box<Misfit<'static>>,
    },
    /// Something has put this taint on an empty machine that was made while such a pod waited.
    UnexpectedTaint {
        node: NodeName,
        taint: Taint,
    },
    /// Pods of this workload did not use the last machine.
    InVain(Box<InVainWhy>),
    /// No hypervisor can take the machine. [`crate::plan::report::Report::rejected`] has the reasons too.
    NoHypervisor(Vec<Refused>),
    Policy {
        policy: PolicyRef,
        answer: NoAnswer,
    },
    /// The time for policies in one tick is used up.
    PoliciesNextTick,
    /// The pool, its class or its cluster cannot be used.
    Unusable(Unusable),
    /// This tick's launches are used up. The rest follows in the next ticks.
    NextTick,
}

/// What DaemonSets take of a resource of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonsWhy {
    pub resource: Arc<str>,
    pub asked: i64,
    /// What a machine offers to all pods.
    pub of: i64,
    /// Those that ask for most, the largest first.
    pub sets: Vec<(ObjectKey, i64)>,
}

/// Which Node has taught that an instance type is too small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedWhy {
    pub resource: Arc<str>,
    pub requested: i64,
    pub offered: i64,
    pub instance_type: InstanceTypeName,
    pub class: ClassName,
    pub node: NodeName,
    /// In service since.
    pub since: Timestamp,
    /// One machine is tried again.
    pub again: Timestamp,
}

/// Why a workload gets no other machine yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InVainWhy {
    pub pool: PoolName,
    pub workload: Arc<str>,
    pub instance_type: InstanceTypeName,
    /// Node of the last machine that was made in vain.
    pub node: Option<NodeName>,
    /// This machine of the workload stands unused.
    pub standing: Option<ClaimName>,
    pub until: Timestamp,
    /// The pods were gone when the machines came.
    pub too_late: bool,
    /// In the last hour more machines came for nobody than may: 20 of a workload, 40 of a namespace.
    #[serde(default)]
    pub given_up: bool,
}

/// Which limit is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    Machines { now: u32, most: u32 },
    MilliCores { now: u64, most: u64 },
    MemoryBytes { now: u64, most: u64 },
    Vmids(ClusterName),
    Addresses,
}

/// Why a pool makes no machines at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unusable {
    /// Something is wrong with the NodePool, in words for the user who wrote it.
    Pool {
        pool: PoolName,
        problem: String,
    },
    Paused(PoolName),
    /// Too many of its machines were made in vain.
    LaunchesPaused {
        pool: PoolName,
        until: Timestamp,
    },
    BeingDeleted(PoolName),
    NoKey,
    /// Something is wrong with the definitions of our own objects.
    Definitions(String),
    NoSuchCluster {
        pool: PoolName,
        cluster: ClusterName,
    },
    NoSuchClass {
        pool: PoolName,
        class: ClassName,
    },
    Class {
        class: ClassName,
        problem: String,
    },
    ClassBeingDeleted(ClassName),
    NoInstanceTypes(ClassName),
    NoCluster,
    UnseenCluster(ClusterName),
    /// `None`: it lists no hypervisors.
    Cluster {
        cluster: ClusterName,
        problem: Option<String>,
    },
    NothingToMake,
    /// No machine of the pool has anything of this resource, or DaemonSets take all of it.
    Lacks(Arc<str>, Option<Box<DaemonsWhy>>),
}

/// Why a policy has given no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoAnswer {
    /// In the policy's own words.
    Refused(String),
    Failed(String),
    Deferred,
    AnsweredAnotherQuestion,
    ChoseNone,
    ChoseImpossible,
    /// It answered for `of` hypervisors, but was asked about `asked`.
    Answered {
        of: usize,
        asked: usize,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooBig {
                resource,
                requested,
                largest,
                daemons,
            } => {
                write!(
                    f,
                    "asks for {} of {resource}; the largest machine offers {}",
                    amount_text(resource, *requested),
                    amount_text(resource, *largest)
                )?;
                taken_by(daemons.as_deref(), f)
            }
            Self::LearnedTooBig(why) => why.fmt(f),
            Self::Misfit(misfit) => match &**misfit {
                Misfit::Labels(unmatched) => write!(
                    f,
                    "no machine of this pool would carry the labels it needs: {unmatched}"
                ),
                Misfit::Taint(taint) => write!(f, "does not tolerate the taint {taint}"),
                Misfit::HostPort(_) => write!(
                    f,
                    "{misfit} by a DaemonSet on every machine of this pool that is large enough"
                ),
                Misfit::Cordon
                | Misfit::TooLittle { .. }
                | Misfit::PodAffinity { .. }
                | Misfit::PodAntiAffinity { .. }
                | Misfit::TopologySpread { .. }
                | Misfit::Volume(_)
                | Misfit::VolumeLimit { .. }
                | Misfit::VolumeWait(_) => misfit.fmt(f),
            },
            Self::Limit(limit) => limit.fmt(f),
            Self::Window(opens) => {
                f.write_str(
                    "the pool launches machines for pods only in its windows (scaleUp.windows)",
                )?;
                opens_next(*opens, f)
            }
            Self::Stabilizing { seconds } => write!(
                f,
                "the pool waits {seconds} s before it scales up (scaleUp.stabilizationWindow)"
            ),
            Self::MadeInVain { node, misfit } => write!(
                f,
                "kproxide made Node {node} for these pods, but they do not fit on it: {misfit}. kproxide makes no other machine for them while that Node stands unused"
            ),
            Self::UnexpectedTaint { node, taint } => write!(
                f,
                "Node {node}, an empty machine of this pool, has the taint {taint}, which the pool does not name. A new machine would get it too, so kproxide makes none for these pods. If the taint stays, name it in spec.taints. If something takes it off, name it in spec.startupTaints"
            ),
            Self::InVain(why) => why.fmt(f),
            Self::NoHypervisor(reasons) => {
                f.write_str("no hypervisor can take the machine")?;
                let said = reasons
                    .iter()
                    .map(|(hypervisor, reason)| (hypervisor.to_string(), reason.to_string()));
                match reasons.is_empty() {
                    true => Ok(()),
                    false => write!(f, ": {}", grouped(said)),
                }
            }
            Self::Policy { policy, answer } => {
                let kind = match policy.kind {
                    PolicyKind::HostSelection => "host-selection",
                    PolicyKind::ScaleDown => "scale-down",
                    PolicyKind::Labels => "label",
                };
                write!(f, "{kind} policy {}: {answer}", policy.name)
            }
            Self::PoliciesNextTick => f.write_str(
                "the policies have used up the time of this tick. kproxide goes on in the next one",
            ),
            Self::Unusable(unusable) => unusable.fmt(f),
            Self::NextTick => f.write_str(
                "kproxide launches no more machines in this tick. It goes on in the next one",
            ),
        }
    }
}

fn taken_by(daemons: Option<&DaemonsWhy>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match daemons {
        Some(daemons) => write!(f, ": {daemons}"),
        None => Ok(()),
    }
}

impl fmt::Display for DaemonsWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            asked,
            of,
            sets,
        } = self;
        write!(
            f,
            "DaemonSets ask for {} of the machine's {} (",
            amount_text(resource, *asked),
            amount_text(resource, *of)
        )?;
        let mut others = *asked;
        for (index, (set, amount)) in sets.iter().enumerate() {
            others -= amount;
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{set} {}", amount_text(resource, *amount))?;
        }
        if others > 0 {
            write!(f, ", others {}", amount_text(resource, others))?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for LearnedWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            requested,
            offered,
            instance_type,
            class,
            node,
            since,
            again,
        } = self;
        write!(
            f,
            "asks for {} of {resource}; a machine of type {instance_type} has {} left for pods, as Node {node} has shown ({since:.0}). kproxide tries one again after {again:.0}. To forget what Nodes have shown: kubectl annotate --overwrite nodeclass {class} {}=\"$(date)\"",
            amount_text(resource, *requested),
            amount_text(resource, *offered),
            crate::keys::FORGET_LEARNED
        )
    }
}

impl fmt::Display for InVainWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pool,
            workload,
            instance_type,
            node,
            standing,
            until,
            too_late,
            given_up,
        } = self;
        match (**workload == *crate::keys::OF_POOL, given_up) {
            (true, _) => write!(
                f,
                "no pod used the last machine of type {instance_type} that kproxide made for minNodes or headroom"
            )?,
            (false, true) => write!(
                f,
                "in an hour kproxide made more than {} machines for {workload}, and the pods were gone before they could serve. The last one was of type {instance_type}",
                crate::facts::most_given_up(workload)
            )?,
            (false, false) => write!(
                f,
                "{workload} did not use the last machine of type {instance_type} that kproxide made for it"
            )?,
        }
        if let Some(node) = node {
            write!(f, " (Node {node})")?;
        }
        if *too_late {
            f.write_str(": its pods were gone before the machine was in service (ArrivesTooLate). Set headroom or minNodes of the NodePool, so that a machine is ready for them")?;
        }
        match standing {
            Some(claim) => write!(
                f,
                ". kproxide makes no other while machine {claim} stands unused"
            )?,
            None => write!(f, ". kproxide tries one more after {until:.0}")?,
        }
        write!(
            f,
            ". To try at once: kubectl annotate --overwrite nodepool {pool} {}=\"$(date)\"",
            crate::keys::RETRY
        )
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machines { now, most } => {
                write!(
                    f,
                    "the pool has {now} of at most {most} machines (maxNodes)"
                )
            }
            Self::MilliCores { now, most } => write!(
                f,
                "the pool has {} of at most {} cores (limits.cpuCores)",
                now / 1000,
                most / 1000
            ),
            Self::MemoryBytes { now, most } => write!(
                f,
                "the pool has {} of at most {} MiB (limits.memoryMiB)",
                now >> 20,
                most >> 20
            ),
            Self::Vmids(cluster) => write!(f, "cluster {cluster} has no free VMID"),
            Self::Addresses => f.write_str("the class's address pool has no free address"),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool { pool, problem } => write!(f, "NodePool {pool} cannot be used: {problem}"),
            Self::Paused(pool) => write!(f, "NodePool {pool} is paused"),
            Self::LaunchesPaused { pool, until } => write!(
                f,
                "no pod used more than 10 machines that NodePool {pool} made within an hour, so kproxide makes none for it before {until:.0} (LaunchesPaused). Look at why its Nodes take no pods. To go on at once: kubectl annotate --overwrite nodepool {pool} {}=\"$(date)\"",
                crate::keys::RETRY
            ),
            Self::BeingDeleted(pool) => write!(f, "NodePool {pool} is being deleted"),
            Self::ClassBeingDeleted(class) => write!(f, "NodeClass {class} is being deleted"),
            Self::NoKey => {
                f.write_str("the ownership key is missing, so kproxide launches nothing")
            }
            Self::Definitions(problem) => f.write_str(problem),
            Self::NoSuchCluster { pool, cluster } => write!(
                f,
                "NodePool {pool} names ProxmoxCluster {cluster}, which does not exist"
            ),
            Self::NoSuchClass { pool, class } => write!(
                f,
                "NodePool {pool} names NodeClass {class}, which does not exist"
            ),
            Self::Class { class, problem } => {
                write!(f, "NodeClass {class} cannot be used: {problem}")
            }
            Self::NoInstanceTypes(class) => write!(f, "NodeClass {class} has no instance types"),
            Self::NoCluster => f.write_str("there is no ProxmoxCluster"),
            Self::UnseenCluster(cluster) => {
                write!(f, "kproxide has not read Proxmox cluster {cluster} yet")
            }
            Self::Cluster { cluster, problem } => {
                let problem = problem.as_deref().unwrap_or("it lists no hypervisors");
                write!(f, "Proxmox cluster {cluster} cannot be used: {problem}")
            }
            Self::NothingToMake => f.write_str("no instance type can be made"),
            Self::Lacks(resource, daemons) => {
                write!(f, "its machines offer no {resource}")?;
                taken_by(daemons.as_deref(), f)
            }
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => f.write_str(reason),
            Self::Failed(reason) => write!(f, "it failed: {reason}"),
            Self::Deferred => f.write_str("kproxide asks it again in the next tick"),
            Self::AnsweredAnotherQuestion => f.write_str("its answer belongs to another question"),
            Self::ChoseNone => f.write_str("it chose no hypervisor"),
            Self::ChoseImpossible => {
                f.write_str("it chose a hypervisor that cannot take the machine")
            }
            Self::Answered { of, asked } => {
                write!(f, "it answered for {of} hypervisors of {asked}")
            }
        }
    }
}
