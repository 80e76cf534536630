//! What Kubernetes knows: pods, Nodes and what constrains moving pods.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::storage::{PodClaim, VolumeNeed, VolumeWait};
use super::too_many::TooMany;
use crate::ids::{NodeName, Uid};
use crate::kubernetes::resources::Resources;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodFacts {
    pub uid: Uid,
    pub created: Timestamp,
    /// The Node that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    pub phase: PodPhase,
    /// The scheduler has said `PodScheduled=False` with reason `Unschedulable`, since this moment. Its message is never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable_since: Option<Timestamp>,
    /// When it got its Node: since then `PodScheduled` is True.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_since: Option<Timestamp>,
    /// The Node on which the scheduler has preempted others for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominated: Option<NodeName>,
    pub ready: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleting: bool,
    /// When its grace ends or has ended, if it is being deleted: `metadata.deletionTimestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ends: Option<Timestamp>,
    /// The controller that made it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// A static pod's mirror in the API: it lives and dies with its kubelet.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mirror: bool,
    /// `restartPolicy: Never`: what it does is lost when it is evicted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub runs_once: bool,
    /// A container of it has started, whatever has become of it since.
    #[serde(default, skip_serializing_if = "is_false")]
    pub started: bool,
    /// Carries `kproxide.dev/do-not-disrupt: "true"` (or Cluster Autoscaler's `safe-to-evict: "false"`, or Karpenter's
    /// `do-not-disrupt`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub do_not_disrupt: bool,
    /// Carries Cluster Autoscaler's `safe-to-evict: "true"`: no `blockedBy` of its pool holds for it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub safe_to_evict: bool,
    /// Carries `safe-to-evict: "on-completion"`: a drain waits for its end and does not evict it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub on_completion: bool,
    /// Karpenter's `do-not-disrupt` has a duration. It keeps the pod's Node until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Timestamp>,
    pub labels: Labels,
    /// The PersistentVolumeClaims that its volumes name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PodClaim>,
    /// What the scheduler looks at; equal for the pods of one template. A World that is written as data holds each spec once.
    #[serde(skip)]
    pub spec: PodSpec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
}

impl PodFacts {
    /// A Job's pod, or one that another controller lets run once.
    pub fn is_of_job(&self) -> bool {
        let is_job = |owner: &Owner| &*owner.kind == "Job" || self.runs_once;
        self.owner.as_ref().is_some_and(is_job)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The part of a pod that decides where it can run and whether it can move. Pods with equal specs, namespaces and relevant labels share one shape.
///
/// The order of the fields, those of the template first, is the order in which equally large pods are packed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodSpec {
    /// Read as if it were part of this; changed, it becomes one of its own.
    #[serde(flatten)]
    pub template: Arc<PodTemplate>,
    /// What its volumes ask of a Node. The World derives it from the claims.
    #[serde(skip)]
    pub volumes: Vec<VolumeNeed>,
    /// Why no Node helps it now. The World derives it too.
    #[serde(skip)]
    pub volume_wait: Option<Box<VolumeWait>>,
    /// Preferred node affinity. It decides between types of equal cost and between hypervisors with room, and no
    /// machine is made for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_node_affinity: Vec<PreferredTerm>,
    /// Other pods that it likes to stand with, or away from. They decide between hypervisors with room, and no machine
    /// is made for them. Without those whose domain is one host: a machine to be made is a host of its own wherever it
    /// stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_neighbours: Vec<PreferredNeighbours>,
}

/// What the pods of one template have in common although each has volumes of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodTemplate {
    /// Effective requests: containers, init and sidecar containers, overhead, and 1 of `pods`. See [`crate::kubernetes::resources::pod_requests`].
    pub requests: Resources,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are alternatives. `None`: no such requirement; an empty list matches nothing.
    pub node_affinity: Option<Vec<NodeSelectorTerm>>,
    pub tolerations: Vec<Toleration>,
    pub priority: i32,
    pub scheduler_name: Option<Arc<str>>,
    /// Uses `hostPath` or a local volume whose data would be lost.
    pub local_volumes: bool,
    pub empty_dir: bool,
    /// Ports of its Node that it takes; ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// Required pod affinity: a pod of each term must stand in the same domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_affinity: Vec<PodTerm>,
    /// Required pod anti-affinity: no pod of any term may stand in the same domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_anti_affinity: Vec<PodTerm>,
    /// The constraints of its topology spread that must hold (`DoNotSchedule`).
    pub spread: Vec<SpreadConstraint>,
    /// Fields of the spec that the planner does not evaluate yet, or a value that could not be read. A pending pod with any gets
    /// "not supported yet: FIELD"; one on a Node keeps that Node from going.
    pub unsupported: Vec<Arc<str>>,
    /// It had more than kproxide looks at, and the surplus is forgotten: [`PodSpec::forget_surplus`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_many: Option<TooMany>,
}

impl Deref for PodSpec {
    type Target = PodTemplate;

    fn deref(&self) -> &PodTemplate {
        &self.template
    }
}

impl DerefMut for PodSpec {
    fn deref_mut(&mut self) -> &mut PodTemplate {
        Arc::make_mut(&mut self.template)
    }
}

/// What pods have in common that can stand in for each other: everything a decision may depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    pub namespace: Arc<str>,
    pub spec: Arc<PodSpec>,
    /// The labels whose keys some live selector reads. All labels would make every pod of a StatefulSet a shape of its own.
    pub labels: Labels,
}

/// Pods that a pod wants beside it or away from it. Two Nodes are in one domain if the label `topology_key` has one value on both.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodTerm {
    pub topology_key: Arc<str>,
    /// `None` selects no pod. `matchLabelKeys` and `mismatchLabelKeys` are part of it, as the API server merges them.
    pub selector: Option<LabelSelector>,
    pub namespaces: Namespaces,
}

/// Where the pods of a term are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Namespaces {
    /// In the namespace of the pod that has the term.
    #[default]
    Own,
    All,
    /// Ascending, each once.
    Named(Vec<Arc<str>>),
    /// Those whose labels the selector selects, and these.
    Selected(LabelSelector, Vec<Arc<str>>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// [`HostPort::EVERY_ADDRESS`] or one of the Node's.
    pub address: Arc<str>,
}

impl HostPort {
    pub const EVERY_ADDRESS: &str = "0.0.0.0";
}

/// Pods that the selector selects are counted per value of the Nodes' label, and the counts must not differ by more than `maxSkew`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpreadConstraint {
    /// A Node without this label takes no pod with the constraint.
    pub topology_key: Arc<str>,
    /// Pods of the namespace; `None` selects none. `matchLabelKeys` are part of it.
    pub selector: Option<LabelSelector>,
    /// At least 1.
    pub max_skew: u32,
    /// With fewer domains the least count is taken to be 0. At least 1, which is the default.
    pub min_domains: u32,
    /// `nodeAffinityPolicy: Ignore`: Nodes that the pod's selector and affinity rule out are counted too.
    pub any_affinity: bool,
    /// `nodeTaintsPolicy: Honor`: Nodes whose taints the pod does not tolerate are not counted.
    pub honors_taints: bool,
}

impl Default for SpreadConstraint {
    fn default() -> Self {
        Self {
            topology_key: Arc::from(""),
            selector: None,
            max_skew: 1,
            min_domains: 1,
            any_affinity: false,
            honors_taints: false,
        }
    }
}

/// A term of preferred node affinity: it counts `weight` for a Node that it matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// From 1 to 100, as the API server checks.
    pub weight: i32,
    pub preference: NodeSelectorTerm,
}

/// Pods that a pod likes to stand with, or away from: preferred affinity and anti-affinity between pods, and a topology
/// spread with `ScheduleAnyway`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredNeighbours {
    /// What each pod in the domain counts that the term selects: from 1 to 100, or from -100 to -1 to stay away.
    pub weight: i32,
    pub term: PodTerm,
    /// Of a topology spread: it does not count pods that end, and likes a Node without the label least.
    pub is_spread: bool,
}

/// All expressions of both lists must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSelectorTerm {
    pub match_expressions: Vec<Requirement>,
    /// Only `metadata.name` exists.
    pub match_fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Requirement {
    /// Key of the label.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = crate::keys::REQUIRABLE))
    )]
    pub key: Arc<str>,
    /// In, NotIn: the value is one of these, or none of them. Exists, DoesNotExist: without values. Gt, Lt: a whole number
    /// above, or below, the one value.
    pub operator: Operator,
    /// Values, at most 50.
    #[serde(default)]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Vec<String>", length(max = 50), inner(length(max = 63)))
    )]
    pub values: Vec<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// `None` with `exists` tolerates every taint.
    pub key: Option<Arc<str>>,
    /// Operator `Exists`; otherwise `Equal` to `value`.
    pub exists: bool,
    pub value: Arc<str>,
    /// `None`: every effect.
    pub effect: Option<TaintEffect>,
}

/// A taint, as on a Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Taint {
    /// Key of the taint.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 316)))]
    pub key: Arc<str>,
    /// Value of the taint; may be empty.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 63)))]
    pub value: Arc<str>,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    pub uid: Uid,
    pub created: Timestamp,
    pub labels: Labels,
    pub annotations: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub ready: bool,
    /// When `Ready` last changed.
    pub ready_since: Timestamp,
    pub allocatable: Resources,
    pub capacity: Resources,
    pub provider_id: Option<Arc<str>>,
    /// `status.nodeInfo.systemUUID`, lower case.
    pub system_uuid: Option<Uid>,
    /// The first `InternalIP` of `status.addresses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::IpAddr>,
    pub deleting: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonSetFacts {
    /// Of its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// What one of its pods asks; its own template's selector and affinity included.
    pub spec: PodSpec,
    /// CSI drivers whose sockets its pods make on the Node: `hostPath` volumes below the kubelet's folder `plugins`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub csi_drivers: Vec<Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DisruptionBudgetFacts {
    /// `None` matches nothing; an empty selector everything in the namespace.
    pub selector: Option<LabelSelector>,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// `status.currentHealthy` is at least `desiredHealthy`, and that is not 0.
    #[serde(default)]
    pub is_healthy: bool,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    #[serde(default)]
    pub frees_unhealthy: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelSelector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    /// The labels that it reads.
    pub fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        let of_labels = self.match_labels.keys().map(String::as_str);
        let expressions = self.match_expressions.iter();
        of_labels.chain(expressions.map(|requirement| &*requirement.key))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAttachmentFacts {
    pub node: NodeName,
    pub volume: Option<Arc<str>>,
}
