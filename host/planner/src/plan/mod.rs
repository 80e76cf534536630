//! What a tick decides. Nothing in it is left to choose.

pub mod decision;
pub mod question;
pub mod report;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::facts::RemovalReason;
use crate::facts::{ClaimSpec, LedgerFacts, Mark, PolicyUse, Shape};
use crate::ids::{
    ClaimName, ClassName, ClusterName, Digest, InstanceTypeName, NodeName, PodKey, PoolName, Uid,
    Vmid,
};
use crate::kubernetes::eviction::Blocker;
use crate::plan::question::{Decoration, HypervisorDescription, Machine};
use crate::plan::report::Report;
use crate::reasons::kept::GiveUp;
use crate::reasons::on_hold::Hold;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[must_use = "a plan does nothing until it is acted on"]
pub struct Plan {
    /// The Ledger that must be written before anything of this plan is done: one `replace` with the resource version
    /// that the plan is based on. `None`: nothing to write. If the write conflicts, `launches` are dropped and the next
    /// tick plans anew.
    pub ledger: Option<LedgerFacts>,
    pub launches: Vec<Launch>,
    /// New claims for machines that have lost theirs.
    #[serde(default)]
    pub adoptions: Vec<Adoption>,
    /// Anchors to make or to give a new mark, once the Ledger is written.
    #[serde(default)]
    pub anchors: Vec<AnchorStep>,
    /// Finalizers of NodePools, NodeClasses and ProxmoxClusters, to be put on or taken off.
    #[serde(default)]
    pub finalizers: Vec<FinalizerStep>,
    /// One for every claim, by name: what may be done with it.
    pub advances: Vec<Advance>,
    /// What changed about the condition `Unneeded` of claims, by name: to be written to their status.
    #[serde(default)]
    pub unneeded: Vec<Unneeded>,
    /// What changed about the condition `Removable` of claims, by name: to be written to their status.
    #[serde(default)]
    pub removable: Vec<Removable>,
    /// Nodes that get the taint `kproxide.dev/unneeded`, or lose it.
    #[serde(default)]
    pub preferences: Vec<Preference>,
    /// Answers of label policies of this tick, for [`crate::world::World::remember`].
    #[serde(default)]
    pub decorations: Vec<DecorationMemo>,
    /// Since when this plan and those before it expect pods on Nodes, for [`crate::world::World::remember`].
    #[serde(default)]
    pub awaited: Awaited,
    pub report: Report,
    /// When the next tick is needed even if nothing changes.
    pub wake_at: Option<Timestamp>,
    /// No policy was asked and nothing is to be written: from this moment until `wake_at` the same world has this plan.
    #[serde(default)]
    pub settled_at: Option<Timestamp>,
}

/// What plans expect of the scheduler. The API does not say since when, and the planner has no memory: a new leader begins
/// to count anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// Pods for which the scheduler has nominated a Node.
    pub nominated: Vec<Nominated>,
    /// Shapes of pending pods that fit on a Node that is there.
    pub shapes: Vec<AwaitedShape>,
    /// Nodes in service with taints that something takes off by itself, and since when.
    #[serde(default)]
    pub passing: Vec<(NodeName, Timestamp)>,
    /// Nodes that lost the taint `kproxide.dev/unneeded`, and when.
    #[serde(default)]
    pub spared: Vec<(NodeName, Timestamp)>,
    /// Why machines stay, where their condition `Removable` says something else or was written a short time ago.
    #[serde(default)]
    pub removable: Vec<AwaitedReason>,
}

/// Why a machine stays, which is written once it has been so for some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedReason {
    pub claim: ClaimName,
    pub uid: Uid,
    pub reason: Arc<str>,
    pub message: Arc<str>,
    pub since: Timestamp,
    /// When the condition was last written.
    pub written: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AwaitedShape {
    pub shape: Shape,
    /// The first Node that they fit on, and since when.
    pub fits: Option<(NodeName, Timestamp)>,
    /// Nodes that do not count as a place for them, because the scheduler never put them there.
    pub refused: Vec<RefusedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNode {
    pub node: NodeName,
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nominated {
    pub pod: PodKey,
    pub uid: Uid,
    pub node: NodeName,
    pub since: Timestamp,
}

/// A machine to be made: its reservation is in `Plan::ledger`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub claim: ClaimName,
    pub spec: ClaimSpec,
    /// For the Event and the decision log.
    pub reason: String,
    /// Pods launch it: within `scaleUp.windows` alone.
    pub for_pods: bool,
}

/// A new claim for a machine that has lost its own. Proxmox is asked for nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adoption {
    pub claim: ClaimName,
    /// With `adopts`.
    pub spec: ClaimSpec,
    /// For the Event and the log.
    pub reason: String,
}

impl Adoption {
    /// The machine is taken over to be removed.
    pub fn is_condemned(&self) -> bool {
        self.spec.is_condemned()
    }
}

/// Gives an anchor a new mark. If that fails, a later plan tries again: the Ledger knows both marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchorStep {
    pub cluster: ClusterName,
    pub vmid: Vmid,
    pub hypervisor: Arc<str>,
    /// The resource pool that a new one is made in.
    pub pool: Arc<str>,
    /// The mark that it must show now. `None`: there is no anchor, so make one.
    pub from: Option<Mark>,
    pub to: Mark,
}

/// Machines need this object, or no longer do: its finalizer [`crate::keys::IN_USE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalizerStep {
    pub object: Needed,
    pub uid: Uid,
    /// The finalizer is put on. False: it is taken off.
    pub in_use: bool,
    /// Hypervisors that a person has said to be off ([`crate::keys::HYPERVISOR_OFF`]) and that answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answering: Vec<Arc<str>>,
}

/// An object of the user that machines need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Needed {
    Pool(PoolName),
    Class(ClassName),
    Cluster(ClusterName),
}

/// The Node of this claim could go, or no longer can: its condition `Unneeded` changes to this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unneeded {
    pub claim: ClaimName,
    pub uid: Uid,
    pub standing: Standing,
}

/// Whether kproxide may remove this machine, and why not: its condition `Removable` changes to this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removable {
    pub claim: ClaimName,
    pub uid: Uid,
    pub may_go: bool,
    pub reason: Arc<str>,
    pub message: Arc<str>,
}

/// Schedulers should rather put pods elsewhere than on the Node of this claim, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preference {
    pub claim: ClaimName,
    pub uid: Uid,
    pub node: NodeName,
    pub node_uid: Uid,
    pub is_unneeded: bool,
}

/// Whether the cluster could do without a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    Needed,
    CouldGo,
    /// Only this pod keeps it, which must not be evicted for this reason.
    Blocked(PodKey, Blocker),
    /// It runs no pods, and only a user's cordon keeps it.
    Cordoned(NodeName),
}

/// What a label policy answered, with everything that the answer depends on: it holds until one of them changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecorationMemo {
    /// Of the module that answered.
    pub digest: Digest,
    pub policy: PolicyUse,
    pub machine: Machine,
    pub hypervisors: Vec<HypervisorDescription>,
    /// One per hypervisor, in their order.
    pub decorations: Vec<Decoration>,
}

impl DecorationMemo {
    pub(crate) fn key(&self) -> (PoolName, InstanceTypeName) {
        let machine = &self.machine;
        (machine.pool.clone(), machine.instance_type.clone())
    }
}

/// Drive this claim on: `act` loops observe → `claim::next` → perform with this verdict until it must wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    pub claim: ClaimName,
    pub uid: Uid,
    pub verdict: Verdict,
}

/// What the planner decides about one claim from everything else in the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Launch, register, keep: nothing is to be removed.
    Keep,
    /// Remove it: begin the drain, or go on with it (the removal was simulated again on this tick's world).
    Remove(RemovalReason),
    /// A drain is under way that must be given up: uncordon, for this reason.
    GiveUp(GiveUp),
    /// Leave it exactly as it is (paused, cold start, no quorum, no key, frozen): no effect, for this reason.
    Hold(Hold),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Remove(reason) => write!(f, "remove: {reason}"),
            Self::GiveUp(reason) => write!(f, "give the drain up: {reason}"),
            Self::Hold(reason) => write!(f, "hold: {reason}"),
        }
    }
}

impl Plan {
    /// Only the Ledger that this plan writes counts this removal. So if that write is refused, the removal must not
    /// begin.
    pub fn rests_on_ledger(&self, advance: &Advance, stands: Option<&LedgerFacts>) -> bool {
        let Verdict::Remove(_) = advance.verdict else {
            return false;
        };
        let counted = |ledger: &LedgerFacts| {
            let mut rows = ledger.removals.iter();
            rows.find(|row| row.claim == advance.claim).cloned()
        };
        let planned = self.ledger.as_ref().and_then(counted);
        planned.is_some() && planned != stands.and_then(counted)
    }

    /// Planned again at this moment, with nothing changed in the world, it would be the same.
    pub(crate) fn holds_at(&self, now: Timestamp) -> bool {
        self.settled_at.is_some_and(|since| since <= now)
            && self.wake_at.is_none_or(|end| now < end)
    }
}
