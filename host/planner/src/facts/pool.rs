//! NodePool. What an operator writes is [`PoolSpec`], which is also the custom resource's `spec`: the schema, the defaults and what the
//! planner reads come from this one type. Only `policies` and `labelTemplates` stand beside it, in `host/kube/src/crd`, because the settings
//! of policies are JSON: [`PoolPolicies`] is what follows from them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::disruption::{Closed, Disruption, closed_until};
use super::existence::Existence;
use super::kubernetes::{Labels, Requirement, Taint};
use super::policies::PoolPolicies;
use super::recurring::{Recurring, are_open};
use super::written::{Amount, Period};
use crate::ids::{ClassName, ClusterName};
use crate::kubernetes::resources::Resources;

/// NodePool: how many machines of a class, with which labels, under which policies. It reads as its specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// As far as it could be read, and the annotation `kproxide.dev/pause` pauses too. An age that replaces too early is left out.
    pub spec: PoolSpec,
    pub policies: PoolPolicies,
    #[serde(default)]
    pub existence: Existence,
    /// If it is deleted, its machines stay, without a pool.
    #[serde(default)]
    pub keep_machines: bool,
    /// The annotation `kproxide.dev/retry`. A new value ends what the pool has learnt of machines made in vain.
    #[serde(default)]
    pub retry: Option<Arc<str>>,
    /// Why kproxide cannot use the object as it stands. It then launches nothing there.
    pub problem: Option<String>,
}

impl PoolFacts {
    /// It is being deleted, and its machines with it: since when.
    pub fn going_since(&self) -> Option<Timestamp> {
        let since = self.existence.deleting_since;
        since.filter(|_| !self.keep_machines)
    }
}

impl Deref for PoolFacts {
    type Target = PoolSpec;

    fn deref(&self) -> &PoolSpec {
        &self.spec
    }
}

impl DerefMut for PoolFacts {
    fn deref_mut(&mut self) -> &mut PoolSpec {
        &mut self.spec
    }
}

/// How many machines of a class, and with which labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(self.schedules) || self.schedules.all(s, !has(s.minNodes) || s.minNodes <= self.limits.maxNodes)",
        "message": "minNodes of a schedule must not be larger than limits.maxNodes"
    }]))
)]
pub struct PoolSpec {
    /// Name of the NodeClass that its machines are made from.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub node_class: ClassName,
    /// Names of the ProxmoxClusters in which kproxide may make its machines. Empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            with = "Vec<String>",
            length(max = 64),
            inner(length(min = 1, max = 253))
        )
    )]
    pub clusters: Vec<ClusterName>,
    /// How small and how large the pool may be.
    #[serde(default)]
    pub limits: PoolLimits,
    /// kproxide tries pools of higher weight first, and pools of one weight by name. 0 to 1000.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1000)))]
    pub weight: i32,
    /// Labels of its Nodes, such as `example.com/tier: burst`.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Taints of its Nodes. Only pods that tolerate them get machines of this pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub taints: Vec<Taint>,
    /// Taints that something else sets and removes while a Node starts. kproxide does not set them, and counts the Node as
    /// initialized when they are gone. These it knows by itself: Kubernetes' own, `*/agent-not-ready`,
    /// `cni.istio.io/not-ready`, `startup-taint.*`, `readiness.k8s.io/*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub startup_taints: Vec<Taint>,
    /// What machines of the pool must be: sites and sizes that do not match get none. All of them must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 30)))]
    pub requirements: Vec<Requirement>,
    /// While true, kproxide starts no launch and no removal in this pool. It finishes what it has begun. But a Node
    /// that it drains because it is unneeded, or to replace it, goes back into service.
    #[serde(default)]
    pub paused: bool,
    /// When machines are added.
    #[serde(default)]
    pub scale_up: ScaleUp,
    /// When Nodes are removed.
    #[serde(default)]
    pub scale_down: ScaleDown,
    /// How long the drain of a Node may take, such as `30m`. After that kproxide gives the drain up and puts the Node
    /// back into service. But if you deleted the NodeClaim, kproxide then destroys the machine with the pods left on
    /// it.
    #[serde(default = "default_drain_timeout")]
    pub drain_timeout: Period,
    /// kproxide replaces a Node that has not been Ready for this long, such as `20m`.
    #[serde(default = "default_repair_after")]
    pub repair_after: Period,
    /// kproxide replaces a machine whose NodeClaim is older than this, such as `30d`, within its budgets. At least
    /// 1h. Not given: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<Period>,
    /// How machines are replaced.
    #[serde(default)]
    pub disruption: Disruption,
    /// Room that kproxide keeps free in the pool for pods to come.
    #[serde(default)]
    pub headroom: Headroom,
    /// More machines, or more room that is kept free, at some times. Of several at once, and of `limits.minNodes` and
    /// `headroom`, the largest holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub schedules: Vec<CapacitySchedule>,
}

impl PoolSpec {
    /// kproxide keeps so many machines now.
    pub fn least(&self, now: Timestamp) -> u32 {
        let open = self.open_schedules(now).map(|it| it.min_nodes);
        open.fold(self.limits.min_nodes, u32::max)
    }

    /// kproxide keeps so much room free now.
    pub fn keeps_free(&self, now: Timestamp) -> Resources {
        let mut free = self.headroom.resources();
        for schedule in self.open_schedules(now) {
            free.raise_to(&schedule.headroom.resources());
        }
        free
    }

    fn open_schedules(&self, now: Timestamp) -> impl Iterator<Item = &CapacitySchedule> {
        let all = self.schedules.iter();
        all.filter(move |it| it.when.end(now).is_some())
    }

    /// A machine that was made then may have been for a schedule that is over now.
    pub fn was_scheduled(&self, made: Timestamp, now: Timestamp) -> bool {
        let mut open = self.open_schedules(made);
        open.any(|it| !are_open(std::iter::once(&it.when), made, now))
    }

    /// All that opens and closes, each with its field.
    pub fn times(&self) -> impl Iterator<Item = (String, &Recurring)> {
        let windows = self.scale_up.windows.iter().enumerate();
        let windows = windows.map(|(at, it)| (format!("scaleUp.windows[{at}]"), it));
        let schedules = self.schedules.iter().enumerate();
        let schedules = schedules.map(|(at, it)| (format!("schedules[{at}]"), &it.when));
        self.disruption.times().chain(windows).chain(schedules)
    }
}

/// More machines, or more room that is kept free, at some times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapacitySchedule {
    #[serde(flatten)]
    pub when: Recurring,
    /// kproxide keeps at least this many machines then. Not more than `limits.maxNodes`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(max = 5000)))]
    pub min_nodes: u32,
    /// Room that kproxide keeps free in the pool then.
    #[serde(default, skip_serializing_if = "Headroom::is_none")]
    pub headroom: Headroom,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn default_drain_timeout() -> Period {
    Period::minutes(15)
}

fn default_repair_after() -> Period {
    Period::minutes(10)
}

/// How small and how large the pool may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.minNodes <= self.maxNodes",
        "message": "limits.minNodes must not be larger than limits.maxNodes"
    }]))
)]
pub struct PoolLimits {
    /// kproxide keeps at least this many machines, even if no pod needs them. `kubectl scale nodepool` sets it.
    #[cfg_attr(feature = "schema", schemars(range(max = 5000)))]
    pub min_nodes: u32,
    /// The pool has at most this many machines. Machines that are still being launched count.
    #[cfg_attr(feature = "schema", schemars(range(max = 5000)))]
    pub max_nodes: u32,
    /// All machines of the pool together have at most this many cores. Not given: no limit. 0 is a limit too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 10000000)))]
    pub cpu_cores: Option<u32>,
    /// All machines of the pool together have at most this much memory, in MiB. Not given: no limit.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1099511627776u64)))]
    pub memory_mib: Option<u64>,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            min_nodes: 0,
            max_nodes: 3,
            cpu_cores: None,
            memory_mib: None,
        }
    }
}

impl PoolLimits {
    pub fn milli_cores(&self) -> Option<u64> {
        self.cpu_cores.map(|cores| u64::from(cores) * 1000)
    }

    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_mib.map(|mib| mib.saturating_mul(1 << 20))
    }
}

/// When machines are added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScaleUp {
    /// A pod must have been unschedulable for this long before kproxide launches a machine for it, such as `30s`.
    pub stabilization_window: Period,
    /// When pods may launch machines. `minNodes`, `schedules`, headroom, replacements and repairs always may. Empty: at any
    /// time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub windows: Vec<Recurring>,
}

impl ScaleUp {
    /// When pods may launch machines, if not now.
    pub fn closed_until(&self, now: Timestamp) -> Option<Closed> {
        closed_until(self.windows.iter(), now)
    }
}

/// When Nodes are removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScaleDown {
    /// Whether kproxide removes Nodes that are unneeded.
    pub enabled: bool,
    /// Share of the cluster's load that must stay free. After a removal, load × (1 + loadHeadroom) must be less than
    /// what the remaining Nodes have. 0.2 is 20 %.
    // H in `A × (1 + H) < T − K`: A is the load, T what all Nodes have, K what the removed Node has.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 10.0)))]
    pub load_headroom: f64,
    /// kproxide removes no unneeded Node until this long after the pool's newest Node came into service, such as `10m`.
    pub stabilization: Period,
    /// kproxide keeps a Node that is younger than this, such as `1h`, even if it is unneeded.
    pub min_node_age: Period,
    /// kproxide removes a Node only after it has been unneeded for this long without a break, such as `5m`.
    pub unneeded_time: Period,
    /// At most this many removals of this pool run at once: of unneeded Nodes, replacements and repairs together.
    #[cfg_attr(feature = "schema", schemars(range(max = 100)))]
    pub budget: u32,
    /// Pods that keep their Node.
    pub blocked_by: BlockedBy,
}

impl Default for ScaleDown {
    fn default() -> Self {
        Self {
            enabled: true,
            load_headroom: 0.2,
            stabilization: Period::minutes(5),
            min_node_age: Period::minutes(10),
            unneeded_time: Period::minutes(1),
            budget: 1,
            blocked_by: BlockedBy::default(),
        }
    }
}

/// Pods that keep their Node. Each field names a kind of pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockedBy {
    /// Pods with hostPath or local volumes.
    pub local_volumes: bool,
    /// Pods without a controller: nothing would make them again.
    pub bare_pods: bool,
    /// Pods of Jobs that have not finished.
    pub unfinished_jobs: bool,
    /// Pods with emptyDir volumes.
    pub empty_dir: bool,
    /// Pods in kube-system that do not belong to a DaemonSet.
    pub kube_system: bool,
}

impl Default for BlockedBy {
    fn default() -> Self {
        Self {
            local_volumes: true,
            bare_pods: true,
            unfinished_jobs: true,
            empty_dir: false,
            kube_system: false,
        }
    }
}

/// Room that kproxide keeps free for pods to come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Headroom {
    /// CPU, such as `500m` or `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    /// Memory, such as `2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Room for this many more pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100000)))]
    pub pods: Option<u32>,
}

impl Headroom {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub fn resources(&self) -> Resources {
        Resources {
            milli_cores: self.cpu.as_ref().map_or(0, Amount::milli_up),
            memory_bytes: self.memory.as_ref().map_or(0, Amount::units_up),
            pods: self.pods.unwrap_or_default().into(),
            ..Resources::default()
        }
    }
}
