//! Why kproxide leaves a claim as it is, or does not remove its machine. `Display` is the only place with texts. Code
//! compares values, never texts.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::facts::removal::Allowance;
use crate::facts::{DisruptionReason, Share};
use crate::ids::{ClaimName, ClusterName, PoolName, Vmid};
use crate::reasons::broken_plan::Violation;

/// Why kproxide leaves a claim exactly as it is, or does not remove its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    ClaimPaused,
    PoolPaused(PoolName),
    /// No window of the pool is open for it.
    Window(WindowWhy),
    /// As many machines of the pool are going as its budgets allow.
    Budget(BudgetWhy),
    /// A window, a budget or a schedule of the pool cannot be read.
    TimesUnreadable(PoolName),
    /// The claim has no finalizer: if it were deleted, kproxide would lose its machine.
    NoFinalizer,
    TwoClaims {
        other: ClaimName,
        vmid: Vmid,
    },
    OwnNode,
    ControlPlane,
    /// Only the Node reaches this PersistentVolume.
    LocalVolume(Arc<str>),
    /// A machine that was to be removed, but whose Node is Ready again.
    StaysReady,
    NoKey,
    NoCluster(ClusterName),
    NothingKnown(ClusterName),
    Unreachable(ClusterName),
    NoQuorum(ClusterName),
    /// Its server does not answer, or Proxmox does not say how it is.
    HypervisorUnknown(Arc<str>),
    /// Its server answers, and Proxmox does not say whether the VM runs.
    MachineUnknown {
        hypervisor: Arc<str>,
        vmid: Vmid,
    },
    /// The claims' CRD is missing or being deleted, so that Kubernetes deletes claims by itself. The text is the
    /// host's.
    Definition(String),
    /// kproxide's clock and the API server's disagree. The text is the host's.
    Clock(String),
    WatchFailing(String),
    /// Until this moment. `None`: the moment is not known yet.
    WarmingUp(Option<Timestamp>),
    Anchor(ClusterName, AnchorHold),
    Frozen,
    Breaker(Wait),
    /// The check of the finished plan found a defect of kproxide.
    Check(Violation),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimPaused => f.write_str("paused by the annotation kproxide.dev/pause"),
            Self::PoolPaused(pool) => write!(f, "NodePool {pool} is paused"),
            Self::Window(why) => why.fmt(f),
            Self::Budget(why) => why.fmt(f),
            Self::TimesUnreadable(pool) => write!(
                f,
                "a schedule or a time zone of NodePool {pool} cannot be read, so kproxide begins no removal there that could wait. The condition Ready of the NodePool names the field"
            ),
            Self::NoFinalizer => f.write_str(
                "its finalizer kproxide.dev/machine is gone. Put it back: without it kproxide would lose the machine",
            ),
            Self::TwoClaims { other, vmid } => write!(
                f,
                "NodeClaim {other} names the same VM {vmid}. Take the finalizer kproxide.dev/machine off one of the two, and delete that one"
            ),
            Self::OwnNode => {
                f.write_str("kproxide itself runs on this Node, so it never drains it")
            }
            Self::ControlPlane => f.write_str("kproxide never drains control-plane Nodes"),
            Self::LocalVolume(volume) => write!(
                f,
                "only this Node reaches PersistentVolume {volume}. If its data may be lost, annotate the NodeClaim with kproxide.dev/discard-local-volumes=true"
            ),
            Self::StaysReady => f.write_str(
                "its Node is Ready again, so kproxide keeps the machine. To remove it, delete this NodeClaim",
            ),
            Self::NoKey => f.write_str("the ownership key is missing"),
            Self::NoCluster(cluster) => write!(f, "there is no ProxmoxCluster {cluster}"),
            Self::NothingKnown(cluster) => {
                write!(f, "kproxide has not read Proxmox cluster {cluster} yet")
            }
            Self::Unreachable(cluster) => {
                write!(f, "Proxmox cluster {cluster} cannot be reached")
            }
            Self::NoQuorum(cluster) => write!(f, "Proxmox cluster {cluster} has no quorum"),
            Self::HypervisorUnknown(hypervisor) => write!(
                f,
                "server {hypervisor} does not answer, or Proxmox shows it as unknown. kproxide chooses no machine there to remove until that is over"
            ),
            Self::MachineUnknown { hypervisor, vmid } => write!(
                f,
                "Proxmox does not say whether VM {vmid} on {hypervisor} runs. kproxide does not choose it to be removed until that is over"
            ),
            Self::Definition(problem) | Self::Clock(problem) => f.write_str(problem),
            Self::WatchFailing(kind) => write!(f, "the watch of {kind} is failing"),
            Self::WarmingUp(None) => f.write_str(
                "kproxide has just started. It removes nothing before two full ticks and --cold-start are over",
            ),
            Self::WarmingUp(Some(moment)) => write!(
                f,
                "kproxide has just started. It removes nothing before {moment:.0} (--cold-start)"
            ),
            Self::Anchor(cluster, hold) => write!(
                f,
                "held: the anchor VM in Proxmox cluster {cluster} {hold}. See the condition Ready of the NodePool"
            ),
            Self::Frozen => f.write_str(
                "frozen: too many machines went bad at once. See the condition Ready of the NodePool",
            ),
            Self::Breaker(wait) => wait.fmt(f),
            Self::Check(violation) => write!(f, "the plan's check refused it: {violation}"),
        }
    }
}

/// No window of the pool is open for a removal, or none for long enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowWhy {
    pub(crate) pool: PoolName,
    pub(crate) reason: DisruptionReason,
    /// The next one opens then. `None`: none does.
    pub opens: Option<Timestamp>,
    /// A window is open, but closes before the replacement would be in service: it may take so long.
    pub(crate) needs: Option<SignedDuration>,
}

impl fmt::Display for WindowWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pool,
            reason,
            opens,
            needs,
        } = self;
        match needs {
            None => write!(
                f,
                "it may go ({reason}) only in the windows of NodePool {pool} (disruption.windows)"
            )?,
            Some(needs) => write!(
                f,
                "its replacement ({reason}) may take {needs:#} by the timeouts of its NodeClass, and the windows of NodePool {pool} (disruption.windows) are not open for so long from now on"
            )?,
        }
        opens_next(*opens, f)
    }
}

/// When a window opens that a thing waits for.
pub(crate) fn opens_next(opens: Option<Timestamp>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match opens {
        Some(opens) => write!(f, ". The next one opens at {opens:.0}"),
        None => f.write_str(". None opens, because none can be read"),
    }
}

/// As many machines of a pool are going as its budgets allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWhy {
    pub(crate) pool: PoolName,
    pub(crate) reason: DisruptionReason,
    /// The strictest.
    pub(crate) by: Share,
}

impl fmt::Display for BudgetWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, reason, by } = self;
        let counted = match by {
            Share::Nodes(_) => "going",
            Share::Percent(_) => "going or not Ready",
        };
        write!(
            f,
            "as many machines of NodePool {pool} are {counted} as disruption.budgets allow for {reason} ({by})"
        )
    }
}

/// Why kproxide does not act in a Proxmox cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnchorHold {
    /// kproxide has not looked for the anchor yet, and removes nothing.
    Unseen,
    /// kproxide was away for a while. It watches the anchor, and until then removes nothing.
    Watched,
    /// The anchor shows a mark that we did not write. kproxide does nothing at all.
    Foreign,
}

impl fmt::Display for AnchorHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unseen => "has not been found yet",
            Self::Watched => {
                "is watched for 12 minutes, because kproxide did not write to it for a while"
            }
            Self::Foreign => "was written by another kproxide, or comes from a backup",
        })
    }
}

/// The breaker counts a removal for this long.
pub const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// An allowance is used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub(crate) allowance: Allowance,
    pub(crate) counted: u32,
    pub(crate) allowed: u32,
    /// When the next removal may begin.
    pub until: Timestamp,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            allowance,
            counted,
            allowed,
            until,
        } = self;
        let verb = match allowance {
            Allowance::Repairs => "repaired",
            Allowance::All => "removed",
        };
        let machines = if *counted == 1 { "machine" } else { "machines" };
        write!(
            f,
            "waiting: kproxide {verb} {counted} {machines} in the last {} minutes, and the limit is {allowed}. The next may go at {until:.0}",
            WINDOW.as_mins()
        )?;
        match allowance {
            Allowance::Repairs => {
                f.write_str(". To have a machine removed at once, delete its NodeClaim")
            }
            Allowance::All => Ok(()),
        }
    }
}
