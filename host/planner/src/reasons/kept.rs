//! Why a drain is given up, why a Node is kept. `Display` is the only place with texts. Code compares values, never
//! texts.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::facts::{PoolFacts, RemovalReason, VolumeNeed};
use crate::ids::{ClaimName, Digest, PodKey, PoolName};
use crate::keys::SCALE_DOWN_DISABLED;
use crate::kubernetes::eviction::Blocker;
use crate::kubernetes::resources::Lack;
use crate::reasons::no_machine::{NoAnswer, Why};
use crate::reasons::on_hold::Hold;

/// Why the plan gives a drain up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GiveUp {
    Frozen,
    PoolGone,
    PoolPaused(PoolName),
    ScaleDownOff,
    DoNotDisrupt,
    /// Of a NodePool that is being deleted.
    MachinesKept,
    /// Its server was to be emptied, and is not any more.
    ServerStays,
    ScaleDownDisabled,
    /// It is pending, and fits on the Node. By its digest it is known once it runs there.
    Pending(PodKey, Digest),
    CameBack(Box<CameBack>),
    Stuck(Stuck),
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frozen => Hold::Frozen.fmt(f),
            Self::PoolGone => Kept::PoolGone.fmt(f),
            Self::PoolPaused(pool) => Hold::PoolPaused(pool.clone()).fmt(f),
            Self::ScaleDownOff => f.write_str("scale-down was disabled"),
            Self::DoNotDisrupt => Kept::DoNotDisrupt.fmt(f),
            Self::MachinesKept => f.write_str(
                "its NodePool is deleted without its machines (kproxide.dev/keep-machines)",
            ),
            Self::ServerStays => f.write_str("its server is not to be emptied any more"),
            Self::ScaleDownDisabled => Kept::ScaleDownDisabled.fmt(f),
            Self::Pending(pod, _) => write!(f, "pod {pod} is pending and fits on this Node"),
            Self::CameBack(back) => back.fmt(f),
            Self::Stuck(stuck) => stuck.fmt(f),
        }
    }
}

/// A pod that was evicted and came back to the Node, and must not end with its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CameBack {
    pub pod: PodKey,
    /// By which it tolerates the taints of a drain.
    pub toleration: String,
    pub keeps: Keeps,
}

/// Why a pod must not end with its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// It has to be detached first, or is on the Node alone.
    Volume(Arc<str>),
    Budget(Blocker),
}

impl fmt::Display for CameBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pod,
            toleration,
            keeps,
        } = self;
        write!(
            f,
            "pod {pod} came back after its eviction, because it tolerates the taints of a drain (toleration {toleration}). It cannot end with the machine: it "
        )?;
        match keeps {
            Keeps::Volume(volume) => write!(f, "uses {volume}")?,
            Keeps::Budget(blocker) => blocker.fmt(f)?,
        }
        f.write_str(". Let it tolerate fewer taints, or keep it off this pool's Nodes")
    }
}

/// A pod that must move and fits on no other Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    pub pod: PodKey,
    /// No other Node reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Box<VolumeNeed>>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} fits on no other Node", self.pod)?;
        match &self.volume {
            Some(need) => write!(f, ": {need}"),
            None => Ok(()),
        }
    }
}

/// What a machine waits for that is to be replaced, or why it went before its replacement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Replacing {
    /// This tick makes its replacement.
    Ordered,
    Coming(ClaimName),
    /// Its replacement is in service and does not take all its pods.
    Stuck(ClaimName, Stuck),
    /// Only when it has gone is there room for its replacement, and it does not go first (`disruption.oldFirst`).
    NoRoom(RemovalReason, Box<Why>),
    /// The same, and it goes first.
    OldFirst(Box<Why>),
    NotMade(Box<Why>),
}

impl Replacing {
    /// The reason of the Event that tells it.
    pub fn event(&self) -> &'static str {
        match self {
            Self::Ordered | Self::Coming(_) => "AwaitsReplacement",
            Self::Stuck(..) => "ReplacementTooSmall",
            Self::NoRoom(..) => "NoRoomForReplacement",
            Self::OldFirst(_) => "RemovedBeforeReplacement",
            Self::NotMade(_) => "ReplacementNotMade",
        }
    }

    /// People should know.
    pub fn is_trouble(&self) -> bool {
        !matches!(self, Self::Ordered | Self::Coming(_))
    }
}

impl fmt::Display for Replacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("kproxide makes the machine that replaces it"),
            Self::Coming(claim) => write!(
                f,
                "NodeClaim {claim} replaces it. kproxide drains the old Node once the new one is in service"
            ),
            Self::Stuck(claim, stuck) => write!(
                f,
                "NodeClaim {claim}, which replaces it, is in service, but {stuck}. The old Node stays until all its pods have a place"
            ),
            Self::NoRoom(reason, why) => write!(
                f,
                "{reason}, but its replacement has no room beside it: {why}. Make room, or set disruption.oldFirst: true in its NodePool, so that the old machine goes first"
            ),
            Self::OldFirst(why) => write!(
                f,
                "it goes before its replacement is there, because there is no room for both: {why}"
            ),
            Self::NotMade(why) => {
                write!(
                    f,
                    "it stays, because kproxide cannot make its replacement now: {why}"
                )
            }
        }
    }
}

/// Why a managed Node stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kept {
    Held(Hold),
    GivenUp(GiveUp),
    NotInService,
    /// It is already being removed.
    Removing(RemovalReason),
    PoolGone,
    ScaleDownOff,
    DoNotDisrupt,
    ScaleDownDisabled,
    /// Its condition asks for a person. This is the condition's message.
    Refused(String),
    /// A drain of it was given up a short time ago.
    Rests(Rest),
    /// It is to be replaced, and its replacement comes first.
    Replacing(Replacing),
    /// It replaces this NodeClaim, whose machine still stands.
    Replaces(ClaimName),
    NotReady,
    Cordoned,
    /// Pending pods will run on it.
    Promised,
    /// Pods that have to move will come to it.
    AwaitsPods(Moment),
    /// Of the whole cluster.
    LoadHeadroom {
        percent: u32,
        moment: Moment,
    },
    PoolHeadroom(Lack),
    Stuck(Stuck, Moment),
    Pod(PodKey, Blocker),
    MinNodeAge(SignedDuration),
    Stabilization,
    UnneededTime(SignedDuration),
    /// The pool's budget is used up.
    Budget,
    MinNodes(u32),
    /// A schedule of the pool, which is open now, keeps so many machines.
    Schedule(u32),
    NextTick,
    /// The scale-down policy of its pool has left it out.
    PolicyKeeps(Arc<str>),
    Policy(Arc<str>, NoAnswer),
}

/// The Node rests after a drain that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    pub until: Timestamp,
    /// Pods or volumes kept it: the rest may end before that.
    pub is_blocked: bool,
    /// Why the drain was given up. May be empty.
    pub why: Arc<str>,
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            until,
            is_blocked,
            why,
        } = self;
        f.write_str("kproxide gave its drain up")?;
        if !why.is_empty() {
            write!(f, ": {}", why.trim_end_matches('.'))?;
        }
        write!(f, ". It tries again at {until:.0}")?;
        match is_blocked {
            true => f.write_str(
                ", or once that has changed, or if you give the NodePool a new value of the annotation kproxide.dev/retry",
            ),
            false => Ok(()),
        }
    }
}

/// Whether a reason holds now, or only after the removals of this tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    Now,
    AfterThisTick,
}

impl Kept {
    pub(crate) fn load_headroom(pool: &PoolFacts, moment: Moment) -> Self {
        let percent = pool.scale_down.load_headroom * 100.0;
        Self::LoadHeadroom {
            percent: percent.round() as u32,
            moment,
        }
    }
}

impl Kept {
    /// The reason of `Removable=False`, in Cluster Autoscaler's words where it has one
    /// (`simulator.UnremovableReason`). None: nothing is written.
    pub fn word(&self) -> Option<&'static str> {
        Some(match self {
            // After a start what is written stands until kproxide knows again.
            Self::NotInService | Self::Held(Hold::WarmingUp(_)) => return None,
            Self::Held(Hold::Window(_)) => "OutsideWindow",
            Self::Held(Hold::Budget(_)) | Self::Budget | Self::NextTick => {
                "MaxDeletionCountReached"
            }
            Self::Held(_) => "OnHold",
            Self::GivenUp(_) => "DrainGivenUp",
            Self::Removing(_) => REMOVING,
            Self::PoolGone => "NotAutoscaled",
            Self::ScaleDownOff => "ScaleDownDisabled",
            Self::DoNotDisrupt | Self::ScaleDownDisabled => "ScaleDownDisabledAnnotation",
            Self::Refused(_) => "NeedsAPerson",
            Self::Rests(_) => "RecentlyUnremovable",
            Self::Replacing(what) => what.event(),
            Self::Replaces(_) => "ReplacesAnother",
            Self::NotReady => "NotReady",
            Self::Cordoned => "Cordoned",
            Self::Promised | Self::AwaitsPods(_) => "PodsExpected",
            Self::LoadHeadroom { .. } | Self::PoolHeadroom(_) => "HeadroomNeeded",
            Self::Stuck(..) => "NoPlaceToMovePods",
            Self::Pod(..) => "BlockedByPod",
            Self::MinNodeAge(_) | Self::Stabilization | Self::UnneededTime(_) => {
                "NotUnneededLongEnough"
            }
            Self::MinNodes(_) | Self::Schedule(_) => "MinSizeReached",
            Self::PolicyKeeps(_) => "KeptByPolicy",
            Self::Policy(..) => "PolicyFailed",
        })
    }
}

/// The reasons of `Removable`, each with what it says to people.
pub const REMOVABLE_REASONS: [(&str, &str); 26] = [
    (
        "CurrentlyBeingDeleted",
        "True: kproxide removes it now. The message says why.",
    ),
    (
        "OnHold",
        "kproxide does nothing to it now. The message says why, and what ends that.",
    ),
    (
        "OutsideWindow",
        "No window of disruption.windows is open for it. The message says when the next one opens.",
    ),
    (
        "DrainGivenUp",
        "Its drain was given up. The message says why.",
    ),
    ("NotAutoscaled", "Its NodePool is gone."),
    (
        "ScaleDownDisabled",
        "scaleDown.enabled is false in its NodePool.",
    ),
    (
        "ScaleDownDisabledAnnotation",
        "An annotation keeps it. The message names it.",
    ),
    (
        "NeedsAPerson",
        "The message says what you have to do first.",
    ),
    (
        "RecentlyUnremovable",
        "Its drain was given up. The message says why, and when kproxide tries again.",
    ),
    (
        "AwaitsReplacement",
        "The machine that replaces it is being made.",
    ),
    (
        "ReplacementTooSmall",
        "Its replacement is in service, but a pod does not fit there.",
    ),
    (
        "NoRoomForReplacement",
        "Only when it has gone is there room for its replacement. Make room, or set disruption.oldFirst.",
    ),
    (
        "RemovedBeforeReplacement",
        "It goes first, because there is no room for both.",
    ),
    (
        "ReplacementNotMade",
        "kproxide cannot make its replacement now. The message says why.",
    ),
    (
        "ReplacesAnother",
        "It replaces a machine that still stands.",
    ),
    (
        "NotReady",
        "Its Node is not Ready. kproxide repairs it when repairAfter is over.",
    ),
    ("Cordoned", "Somebody has cordoned its Node."),
    (
        "PodsExpected",
        "Pending pods, or pods of Nodes that go, will run there.",
    ),
    (
        "HeadroomNeeded",
        "Without it the cluster or its NodePool would not keep its headroom.",
    ),
    (
        "NoPlaceToMovePods",
        "A pod there fits on no other Node. The message names it.",
    ),
    (
        "BlockedByPod",
        "A pod there must not be evicted. The message names it, and why.",
    ),
    (
        "NotUnneededLongEnough",
        "minNodeAge, stabilization or unneededTime is not over yet.",
    ),
    (
        "MaxDeletionCountReached",
        "As many removals are under way as disruption.budgets or scaleDown.budget allow.",
    ),
    (
        "MinSizeReached",
        "Its NodePool keeps minNodes machines, or those of a schedule that is open now.",
    ),
    (
        "KeptByPolicy",
        "The scale-down policy of its NodePool has left it out.",
    ),
    (
        "PolicyFailed",
        "The scale-down policy of its NodePool gave no usable answer.",
    ),
];

/// The reason of `Removable=True`.
pub const REMOVING: &str = "CurrentlyBeingDeleted";

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(hold) => hold.fmt(f),
            Self::GivenUp(why) => write!(f, "kproxide gave its drain up: {why}"),
            Self::NotInService => f.write_str("it is not in service yet"),
            Self::Removing(reason) => write!(f, "being removed: {reason}"),
            Self::PoolGone => f.write_str("its pool is gone"),
            Self::ScaleDownOff => f.write_str("scale-down is disabled for its pool"),
            Self::DoNotDisrupt => f.write_str(
                "the annotation kproxide.dev/do-not-disrupt (or Karpenter's of that name) is set",
            ),
            Self::ScaleDownDisabled => write!(f, "its annotation {SCALE_DOWN_DISABLED} is set"),
            Self::Refused(message) => f.write_str(message),
            Self::Rests(rest) => rest.fmt(f),
            Self::Replacing(replacing) => replacing.fmt(f),
            Self::Replaces(old) => write!(f, "it replaces NodeClaim {old}, which is not gone yet"),
            Self::NotReady => f.write_str("it is not Ready. kproxide repairs it when repairAfter is over"),
            Self::Cordoned => f.write_str("a user cordoned it"),
            Self::Promised => f.write_str("pending pods will run on it"),
            Self::AwaitsPods(Moment::Now) => {
                f.write_str("pods of Nodes that are being removed will come to it")
            }
            Self::AwaitsPods(Moment::AfterThisTick) => {
                f.write_str("pods of Nodes that this tick removes will come to it")
            }
            Self::LoadHeadroom {
                percent,
                moment: Moment::Now,
            } => write!(
                f,
                "without it the cluster would not keep its headroom of {percent}% (loadHeadroom)"
            ),
            Self::LoadHeadroom {
                moment: Moment::AfterThisTick,
                ..
            } => f.write_str(
                "after the removals of this tick the cluster would not keep its headroom (loadHeadroom)",
            ),
            Self::PoolHeadroom(lack) => {
                write!(f, "the pool would not keep its headroom: {lack}")
            }
            Self::Stuck(stuck, Moment::Now) => stuck.fmt(f),
            Self::Stuck(stuck, Moment::AfterThisTick) => {
                write!(f, "after the removals of this tick {stuck}")
            }
            Self::Pod(pod, blocker) => write!(f, "pod {pod} {blocker}"),
            Self::MinNodeAge(age) => {
                write!(f, "it is younger than {} s (minNodeAge)", age.as_secs())
            }
            Self::Stabilization => {
                f.write_str("a machine came into service a short time ago (stabilization)")
            }
            Self::UnneededTime(time) => write!(
                f,
                "no pod needs it now. kproxide removes it when that has been so for {} s (unneededTime)",
                time.as_secs()
            ),
            Self::Budget => f.write_str(
                "as many removals of its pool are under way as its budget allows (scaleDown.budget)",
            ),
            Self::MinNodes(least) => write!(f, "its pool keeps {least} machines (minNodes)"),
            Self::Schedule(least) => write!(f, "its pool keeps {least} machines now (schedules)"),
            Self::NextTick => f.write_str("kproxide removes no more Nodes in this tick"),
            Self::PolicyKeeps(policy) => write!(f, "scale-down policy {policy} keeps it"),
            Self::Policy(policy, answer) => write!(f, "scale-down policy {policy}: {answer}"),
        }
    }
}
