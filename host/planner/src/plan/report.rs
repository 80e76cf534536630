//! The reasons of a tick: for every pending shape, every Node kept, every hypervisor refused. They are enums, so that
//! code can act on them. `Display` makes the texts for people.

use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::facts::{PolicyRef, RemovalReason, TooMany};
use crate::ids::{
    ClaimName, ClassName, ClusterName, HypervisorId, InstanceTypeName, NodeName, PodKey, PoolName,
    Vmid,
};
use crate::kubernetes::resources::amount_text;
use crate::reasons::kept::{Kept, Replacing};
use crate::reasons::no_hypervisor::{Refusal, Refused};
pub use crate::reasons::no_machine::{
    DaemonsWhy, InVainWhy, LearnedWhy, Limit, Misfit, NoAnswer, Unusable, Why,
};

/// Everything that a tick has to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[must_use = "an unread report is not actionable"]
pub struct Report {
    /// One per shape of pending pods.
    pub pending: Vec<PendingShape>,
    /// Orders that were placed, with the score and the reason that the policy gave.
    pub placements: Vec<PlacementReport>,
    /// Hypervisors that could not take a machine this tick, each with its reason (only while something is to be placed).
    pub rejected: Vec<RejectedHypervisor>,
    /// Managed Nodes, each with why it stays or goes.
    pub nodes: Vec<NodeReport>,
    /// Pools that make no machines at all, by name, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<(PoolName, Unusable)>,
    /// Policies that gave no usable answer, and that no other policy replaced. Each reason once per pool, in the order
    /// of the questions.
    #[serde(default)]
    pub policy_failures: Vec<PolicyFailure>,
    /// Pools whose removals wait for the breaker, and until when; one for each.
    #[serde(default)]
    pub waiting: Vec<(PoolName, String)>,
    /// Set if kproxide removes nothing because too many machines went bad at once: what it saw, and what a person can
    /// do.
    #[serde(default)]
    pub frozen: Option<Frozen>,
    /// Proxmox clusters whose anchor is not in order, and what kproxide does not do there because of it.
    #[serde(default)]
    pub anchors: Vec<AnchorReport>,
    /// Machines that are to be replaced, by the order in which they go: what each waits for, or why it goes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replacing: Vec<(ClaimName, Replacing)>,
    /// Machines of ours without a claim, and what becomes of them.
    #[serde(default)]
    pub orphans: Vec<OrphanReport>,
    /// What Nodes alone show of their types, so that kproxide does not count on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Doubt>,
    /// Proposals that `check` dropped, and anything odd in the input.
    pub findings: Vec<Remark>,
}

/// A figure of one Node that no second Node of its type shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubt {
    pub class: ClassName,
    pub instance_type: InstanceTypeName,
    pub node: NodeName,
    pub resource: Arc<str>,
    pub amount: i64,
    /// Of a machine of this type, by its size.
    pub nominal: i64,
    /// The Node's static pods ask for so much. Otherwise it offers so little.
    pub by_static_pods: bool,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            class: _,
            instance_type,
            node,
            resource,
            amount,
            nominal,
            by_static_pods,
        } = self;
        let [amount, nominal] = [amount, nominal].map(|it| amount_text(resource, *it));
        match by_static_pods {
            true => write!(f, "static pods of Node {node} ask for {amount}")?,
            false => write!(f, "Node {node} offers {amount}")?,
        }
        write!(
            f,
            " of {resource}, and a machine of type {instance_type} has {nominal}"
        )
    }
}

/// Pods of one shape that no Node takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingShape {
    /// First pod of the shape by name, for examples.
    pub example: PodKey,
    /// All of them, at most 1000.
    pub pods: Vec<PodKey>,
    pub count: u32,
    pub outcome: PendingOutcome,
}

/// kube-scheduler tries every pod again within 5 minutes.
pub const SCHEDULER_PATIENCE: SignedDuration = SignedDuration::from_mins(6);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PendingOutcome {
    /// Fits a Node that is there: the scheduler will find it.
    FitsNode(NodeName),
    /// Fits a Node that is there, and the scheduler has not put it there for [`SCHEDULER_PATIENCE`].
    Refused(NodeName),
    /// Will fit a machine that is on its way.
    FitsClaim(ClaimName),
    /// Machines are being made for them in this tick.
    Launching(Vec<ClaimName>),
    /// No machine helps, or none may be made: the reason per pool, by name.
    Unhelped(Vec<(PoolName, Why)>),
    /// The planner does not evaluate this yet.
    NotSupported(String),
    /// It asks for more than kproxide looks at.
    TooMany(TooMany),
    /// There are too many pods with terms about other pods to look at all of them in one tick.
    LaterTick,
    /// Its priority is below `least`.
    Expendable { priority: i32, least: i32 },
    /// `served`: the schedulers whose pods get machines.
    OtherScheduler {
        scheduler: Arc<str>,
        served: Vec<Arc<str>>,
    },
    /// There is no pool at all.
    NoPool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementReport {
    pub claim: ClaimName,
    pub pool: PoolName,
    pub hypervisor: HypervisorId,
    pub score: f64,
    pub reason: String,
    /// The policy asked for did not answer; why.
    pub fallback: Option<String>,
    /// Hypervisors that could not take this machine when it was placed, or that its pods liked less, the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Refused>,
    /// The pods that it is for: the first of each shape that gets machines, as in [`PendingShape::example`], and how many.
    #[serde(default)]
    pub pods: Vec<(PodKey, u32)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectedHypervisor {
    pub pool: PoolName,
    pub hypervisor: HypervisorId,
    pub reason: Refusal,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: NodeName,
    pub claim: ClaimName,
    pub pool: PoolName,
    pub outcome: NodeOutcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeOutcome {
    Removing(RemovalReason),
    Kept(Kept),
}

/// A policy that failed its pool. One that refuses, or is asked again in the next tick, has not failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFailure {
    pub pool: PoolName,
    pub policy: PolicyRef,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    pub message: String,
    /// The lines of the message that a person can type.
    pub commands: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchorReport {
    pub cluster: ClusterName,
    pub trouble: AnchorTrouble,
    pub message: String,
    /// The lines of the message that a person can type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// What is wrong with an anchor, and what kproxide does not do because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AnchorTrouble {
    /// It is missing. Everything goes on, but kproxide would not notice a copy.
    Missing,
    /// Proxmox does not let kproxide change it. Everything goes on, but a copy that knows the present mark could act.
    Stuck,
    /// Not known yet to be ours. kproxide removes nothing in that Proxmox cluster.
    Unproven,
    /// It shows a mark that we did not write. kproxide does nothing in that Proxmox cluster.
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanReport {
    pub cluster: ClusterName,
    pub vmid: Vmid,
    /// Where it belonged, as far as that is known; it may not exist any more.
    pub pool: Option<PoolName>,
    pub node: Option<NodeName>,
    /// People should know.
    pub warning: bool,
    /// What a person writes into the Ledger, if kproxide is to take it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    pub severity: Severity,
    /// What it is about, such as `NodePool/workers`.
    pub about: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    Notice,
    Warning,
    /// An invariant of ours broke.
    Defect,
}

impl fmt::Display for PendingOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FitsNode(node) => write!(f, "fits on Node {node}; the scheduler will find it"),
            Self::Refused(node) => write!(
                f,
                "fits on Node {node} as far as kproxide sees, but the scheduler has not put it there for {} minutes. For an hour kproxide does not count on that Node for such pods",
                SCHEDULER_PATIENCE.as_mins()
            ),
            Self::FitsClaim(claim) => write!(f, "will fit on {claim}, which is on its way"),
            Self::Launching(claims) => {
                let names: Vec<&str> = claims.iter().map(ClaimName::as_str).collect();
                let verb = match claims.len() {
                    1 => "a machine is",
                    _ => "machines are",
                };
                write!(f, "{verb} being made: {}", names.join(", "))
            }
            Self::Unhelped(whys) => {
                let whys = whys
                    .iter()
                    .map(|(pool, why)| format!("NodePool {pool}: {why}"));
                f.write_str(&whys.collect::<Vec<_>>().join("; "))
            }
            Self::NotSupported(field) => write!(f, "not supported yet: {field}"),
            Self::TooMany(what) => write!(f, "has {what}"),
            Self::LaterTick => f.write_str(
                "too many pods with terms about other pods wait for kproxide to look at all of them in one tick. It looks at this one in a later tick",
            ),
            Self::Expendable { priority, least } => write!(
                f,
                "its priority is {priority}, and kproxide makes no machine for pods below {least} (--least-priority)"
            ),
            Self::OtherScheduler { scheduler, served } => write!(
                f,
                "its scheduler is {scheduler}, and kproxide makes machines for pods of {} (--scheduler-names)",
                served.join(", ")
            ),
            Self::NoPool => f.write_str("there is no NodePool"),
        }
    }
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removing(reason) => write!(f, "goes: {reason}"),
            Self::Kept(reason) => write!(f, "stays: {reason}"),
        }
    }
}

impl fmt::Display for PolicyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyRef { kind, name } = &self.policy;
        write!(f, "{} policy {name}: {}", kind.as_str(), self.reason)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Defect => "defect",
        })
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.about, self.message)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::facts::{Taint, TaintEffect};

    #[test]
    fn outcomes_read_well_aloud() {
        let limit = Why::Limit(Limit::Machines { now: 3, most: 3 });
        for (outcome, expected) in [
            (
                PendingOutcome::FitsNode("n".into()),
                "fits on Node n; the scheduler will find it",
            ),
            (
                PendingOutcome::Refused("n".into()),
                "fits on Node n as far as kproxide sees, but the scheduler has not put it there for 6 minutes. For an hour kproxide does not count on that Node for such pods",
            ),
            (
                PendingOutcome::FitsClaim("c".into()),
                "will fit on c, which is on its way",
            ),
            (
                PendingOutcome::Launching(vec!["c".into()]),
                "a machine is being made: c",
            ),
            (
                PendingOutcome::Launching(vec!["c".into(), "d".into()]),
                "machines are being made: c, d",
            ),
            (
                PendingOutcome::Unhelped(vec![
                    ("a".into(), limit),
                    (
                        "b".into(),
                        Why::Misfit(Box::new(Misfit::Taint(Cow::Owned(Taint {
                            key: "gpu".into(),
                            value: "".into(),
                            effect: TaintEffect::NoSchedule,
                        })))),
                    ),
                ]),
                "NodePool a: the pool has 3 of at most 3 machines (maxNodes); NodePool b: does not tolerate the taint gpu:NoSchedule",
            ),
            (
                PendingOutcome::NotSupported("spec.resourceClaims".to_owned()),
                "not supported yet: spec.resourceClaims",
            ),
            (
                PendingOutcome::TooMany(TooMany::Terms(1500)),
                "has 1500 terms of affinity, anti-affinity and topology spread about other pods, and kproxide looks at no pod with more than 50",
            ),
            (
                PendingOutcome::LaterTick,
                "too many pods with terms about other pods wait for kproxide to look at all of them in one tick. It looks at this one in a later tick",
            ),
            (
                PendingOutcome::Expendable {
                    priority: -1000,
                    least: -10,
                },
                "its priority is -1000, and kproxide makes no machine for pods below -10 (--least-priority)",
            ),
            (
                PendingOutcome::OtherScheduler {
                    scheduler: "volcano".into(),
                    served: vec!["default-scheduler".into(), "mine".into()],
                },
                "its scheduler is volcano, and kproxide makes machines for pods of default-scheduler, mine (--scheduler-names)",
            ),
            (PendingOutcome::NoPool, "there is no NodePool"),
        ] {
            assert_eq!(outcome.to_string(), expected);
        }
        let going = NodeOutcome::Removing(RemovalReason::Empty);
        assert_eq!(going.to_string(), "goes: no pod needs it");
    }
}
