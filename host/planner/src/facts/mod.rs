//! Facts: what the shell tells the planner about the world, already converted and checked at the edge.
//!
//! Plain data without behaviour. Kubernetes' side is in [`kubernetes`] and [`storage`], the operator's objects in [`pool`], [`class`] and [`cluster`], our own
//! records in [`claim`] and [`ledger`] (in the words of [`record`]), Proxmox's side in [`proxmox`]. Everything that
//! changes arrives as a [`Delta`].

pub mod limits;
pub(crate) mod removal;

mod attributes;
mod budgets;
mod claim;
mod class;
mod cluster;
mod disruption;
mod existence;
mod interface;
mod kubernetes;
mod learned;
mod ledger;
mod machine;
mod policies;
mod pool;
mod proxmox;
mod record;
mod recurring;
mod sizes;
mod storage;
mod template;
mod too_many;
mod tries;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use attributes::*;
pub use budgets::*;
pub use claim::*;
pub use class::*;
pub use cluster::*;
pub use disruption::*;
pub use existence::*;
pub use interface::*;
pub use kubernetes::*;
pub use learned::*;
pub use ledger::*;
pub use machine::*;
pub use policies::*;
pub use pool::*;
pub use proxmox::*;
pub use record::*;
pub use recurring::*;
pub use sizes::*;
pub use storage::*;
pub use template::*;
pub use too_many::*;
pub use tries::*;
pub(crate) use tries::{OF_NAMESPACE, most_given_up};
pub use written::*;

use crate::ids::{ClaimName, ClassName, ClusterName, NodeName, ObjectKey, PodKey, PoolName, Vmid};
use crate::keys::DEFAULT_SCHEDULER;

/// One change of the world. `None` means that the object is gone.
///
/// Deltas of one object arrive in their order; those of different objects in any. Applying all of them in any such order gives
/// the world that its final objects give (a property test holds the World to it).
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "facts about the host are one delta in a tick"
)]
pub enum Delta {
    Pod(PodKey, Option<Box<PodFacts>>),
    Node(NodeName, Option<Box<NodeFacts>>),
    DaemonSet(ObjectKey, Option<Box<DaemonSetFacts>>),
    DisruptionBudget(ObjectKey, Option<Box<DisruptionBudgetFacts>>),
    /// The labels of a namespace.
    Namespace(Arc<str>, Option<Box<Labels>>),
    /// Volume attachments per Node, by name of the attachment.
    VolumeAttachment(String, Option<VolumeAttachmentFacts>),
    VolumeClaim(ObjectKey, Option<Box<VolumeClaimFacts>>),
    Volume(String, Option<Box<VolumeFacts>>),
    StorageClass(String, Option<Box<StorageClassFacts>>),
    CsiNode(NodeName, Option<Box<CsiNodeFacts>>),
    CsiDriver(String, Option<Box<CsiDriverFacts>>),
    StorageCapacity(ObjectKey, Option<Box<StorageCapacityFacts>>),
    Cluster(ClusterName, Option<Box<ClusterFacts>>),
    Class(ClassName, Option<Box<ClassFacts>>),
    Pool(PoolName, Option<Box<PoolFacts>>),
    Claim(ClaimName, Option<Box<ClaimFacts>>),
    Ledger(Option<Box<LedgerFacts>>),
    /// What one Proxmox cluster says of itself; replaces what was known.
    Inventory(ClusterName, Option<Box<InventoryFacts>>),
    /// The guests of one Proxmox cluster that no claim names and whose own configuration was read; replaces what was known.
    Orphans(ClusterName, BTreeMap<Vmid, OrphanLook>),
    /// Which policy module serves which name now.
    Policy(PolicyRef, Option<PolicyFacts>),
    /// Facts about kproxide itself.
    Host(HostFacts),
}

/// Of [`Served::least_priority`], where nobody says otherwise. Cluster Autoscaler has the same.
pub const LEAST_PRIORITY: i32 = -10;

/// Which pods get machines. All others get none, and kproxide says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Those of these schedulers.
    pub schedulers: BTreeSet<Arc<str>>,
    /// Pods of a lower priority are expendable: they get no machine, and on a Node they do not keep it.
    pub least_priority: i32,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            schedulers: [Arc::from(DEFAULT_SCHEDULER)].into(),
            least_priority: LEAST_PRIORITY,
        }
    }
}

/// Facts about the running host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Identity of the Kubernetes cluster: UID of the `kube-system` namespace.
    pub cluster_id: String,
    /// The Node that this process runs on, if known: never drained.
    pub own_node: Option<NodeName>,
    /// No destructive step is taken before this moment (cold start: two ticks and 60 s since leadership began).
    pub armed_at: Option<jiff::Timestamp>,
    /// Since when this process leads.
    #[serde(default)]
    pub leads_since: Option<jiff::Timestamp>,
    /// Plans that are shown but not acted on.
    pub dry_run: bool,
    #[serde(default)]
    pub served: Served,
    /// The key for ownership proofs is at hand. Without it nothing is launched or destroyed.
    pub key_known: bool,
    /// Removals that have begun, whether or not their claims say so yet.
    #[serde(default)]
    pub removing: BTreeMap<ClaimName, RemovalReason>,
    /// Why claims cannot be relied on: their CustomResourceDefinition is missing, or is being deleted, and every claim
    /// with it. Until this ends kproxide launches and removes nothing.
    #[serde(default)]
    pub definition_problem: Option<String>,
    /// Our clock and the API server's disagree, so ages are wrong. Until this ends kproxide removes nothing.
    #[serde(default)]
    pub clock_problem: Option<String>,
    /// Random text of this process, for the marks of anchors ([`crate::guard::anchor`]). `None`: no anchors are kept.
    #[serde(default)]
    pub anchor_nonce: Option<Arc<str>>,
    /// Of the reservations that are old enough to be given up ([`crate::ledger::overdue`]), those of which the API server said just now that there is no such
    /// claim: the watch of claims may lag behind.
    #[serde(default)]
    pub unclaimed: BTreeSet<ClaimName>,
    /// Kinds of objects whose watch fails now, so that what is known of them may be old. Until this ends kproxide
    /// removes nothing.
    pub failing_watches: Vec<String>,
}
