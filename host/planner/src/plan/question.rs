//! What the planner asks policies, and what they answer.
//!
//! Plain serde data: these are the arguments of `wit/policy.wit`, with the names of their fields there, the decision
//! log, and the input of a replay. A field that a person may leave out has a default. The wasm engine (or a test) answers
//! them, and checks only the form of an answer. The planner checks the content.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::facts::{Labels, PolicyMember, PolicyUse, Taint};
use crate::ids::{Digest, HypervisorId, InstanceTypeName, NodeName, PoolName};

pub use crate::facts::{Attribute, AttributeValue, PROXMOX_SAYS};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    Rank(RankQuestion),
    Order(OrderQuestion),
    Decorate(DecorateQuestion),
}

impl Question {
    /// Which policy is asked, with which settings.
    pub fn policy(&self) -> &PolicyUse {
        match self {
            Self::Rank(question) => &question.policy,
            Self::Order(question) => &question.policy,
            Self::Decorate(question) => &question.policy,
        }
    }

    /// As it is put to one of several policies that decide together.
    pub fn to_member(&self, member: &PolicyMember) -> Self {
        let mut question = self.clone();
        let (policy, state) = match &mut question {
            Self::Rank(rank) => (&mut rank.policy, Some(&mut rank.context.state)),
            Self::Order(order) => (&mut order.policy, Some(&mut order.context.state)),
            Self::Decorate(decorate) => (&mut decorate.policy, None),
        };
        *policy = PolicyUse::alone(member.policy.clone(), member.settings.clone());
        if let Some(state) = state {
            state.clone_from(&member.state);
        }
        question
    }

    pub fn pool(&self) -> &PoolName {
        match self {
            Self::Rank(question) => &question.machine.pool,
            Self::Order(question) => &question.pool,
            Self::Decorate(question) => &question.machine.pool,
        }
    }
}

/// On which hypervisor shall this machine be made?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RankQuestion {
    pub policy: PolicyUse,
    pub context: Context,
    pub machine: Machine,
    /// Machines placed before this one in the same tick, and how many there will be.
    #[serde(default)]
    pub batch_index: u32,
    pub batch_size: u32,
    /// Placements ever made for this pool; survives restarts.
    #[serde(default)]
    pub sequence: u64,
    #[serde(default)]
    pub previous: Option<HypervisorId>,
    /// Every hypervisor of the pool's clusters, by cluster and name. The planner shares them: it keeps the question until its
    /// answer comes.
    pub candidates: Arc<[Candidate]>,
}

/// Which of these Nodes, all removable, shall go first?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OrderQuestion {
    pub policy: PolicyUse,
    pub context: Context,
    pub pool: PoolName,
    pub nodes: Vec<RemovableNode>,
    pub hypervisors: Vec<Candidate>,
    pub max_removals: u32,
}

/// Which labels, annotations and taints does a machine of this kind get on each hypervisor?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DecorateQuestion {
    pub policy: PolicyUse,
    pub machine: Machine,
    pub hypervisors: Vec<HypervisorDescription>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Context {
    /// Identity of the Kubernetes cluster.
    pub cluster: Arc<str>,
    /// Seconds since the epoch.
    pub now: i64,
    /// Stable for one decision.
    pub seed: u64,
    #[serde(default)]
    pub dry_run: bool,
    /// At most 4096 bytes.
    #[serde(default)]
    pub state: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Machine {
    pub pool: PoolName,
    pub instance_type: InstanceTypeName,
    pub size: Size,
    #[serde(default)]
    pub attributes: Vec<Attribute>,
}

/// WIT's `resources`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Size {
    pub milli_cores: u64,
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HypervisorDescription {
    pub id: HypervisorId,
    pub zone: Arc<str>,
    pub capacity: Size,
    /// By key. In a question about labels only what stays. The questions of one tick share it.
    #[serde(default)]
    pub attributes: Arc<[Attribute]>,
}

/// A hypervisor as it stands at this decision; the field comments of `wit/policy.wit` hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Candidate {
    pub hypervisor: HypervisorDescription,
    /// Why no machine may be placed here; `None`: it may.
    #[serde(default)]
    pub ineligible: Option<String>,
    #[serde(default)]
    pub used: Size,
    #[serde(default)]
    pub committed: Size,
    #[serde(default)]
    pub system_reserved: Size,
    #[serde(default)]
    pub in_flight: Size,
    pub available: Size,
    #[serde(default)]
    pub cpu_usage: f64,
    #[serde(default)]
    pub machines: u32,
    #[serde(default)]
    pub machines_of_pool: u32,
    #[serde(default)]
    pub storage_free: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RemovableNode {
    pub name: NodeName,
    pub instance_type: InstanceTypeName,
    /// Index into the hypervisors given.
    #[serde(default)]
    pub on: Option<u32>,
    pub created: i64,
    #[serde(default)]
    pub unneeded_seconds: u64,
    pub allocatable: Size,
    #[serde(default)]
    pub requested: Size,
    #[serde(default)]
    pub movable_pods: u32,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default)]
    pub attributes: Vec<Attribute>,
}

/// One answer, with what gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Digest of the module that answered; of several policies that decide together one over all of theirs.
    pub digest: Digest,
    /// The policy asked for failed, for this reason, and another one (host-selection: the built-in `spread`) answered instead.
    pub fallback: Option<String>,
    pub body: AnswerBody,
    /// What those of several policies that decide together want to be given again, by name. One that decides alone has it in its answer.
    #[serde(default)]
    pub states: States,
}

/// By name of the policy.
pub type States = BTreeMap<Arc<str>, Vec<u8>>;

impl Answer {
    /// By the policy asked for, which decides alone.
    pub fn of(digest: Digest, body: AnswerBody) -> Self {
        Self {
            digest,
            fallback: None,
            body,
            states: States::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerBody {
    Ranking(Ranking),
    Removals(Removals),
    Decorations(Vec<Decoration>),
    /// The policy wants nothing done now: an answer, not an error.
    NoCandidate(String),
    /// Policy and fallback failed, or the kind has no fallback.
    Failed(String),
    /// The tick's budget for policy calls is used up: ask again next tick.
    Deferred,
}

impl AnswerBody {
    /// What it says of the candidates of its question: those that it names, and those that it refuses. An answer that is no list of candidates names none.
    pub fn verdicts(&self) -> (&[Scored], &[Rejected]) {
        match self {
            Self::Ranking(ranking) => (&ranking.placements, &ranking.rejected),
            Self::Removals(removals) => (&removals.removals, &[]),
            Self::Decorations(_) | Self::NoCandidate(_) | Self::Failed(_) | Self::Deferred => {
                (&[], &[])
            }
        }
    }
}

/// Placements and rejections, by index into the candidates; already checked for form (indices known, unique and eligible, scores finite and
/// within 0..=1), in the order of the answer, which means nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    pub placements: Vec<Scored>,
    pub rejected: Vec<Rejected>,
    /// `None` leaves the stored state as it is.
    pub state: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    pub index: u32,
    pub score: f64,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub index: u32,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Removals {
    pub removals: Vec<Scored>,
    pub state: Option<Vec<u8>>,
}

/// One per hypervisor asked about, in their order; labels, annotations and taints already checked for Kubernetes' syntax and reserved keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decoration {
    pub labels: Labels,
    pub annotations: Labels,
    pub taints: Vec<Taint>,
}
