//! Which pods must not be evicted, and so keep their Node.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::facts::{BlockedBy, TooMany};
use crate::time::later;

/// So long after the end of its grace a pod that is being deleted is waited for.
pub(crate) const ENDS: SignedDuration = SignedDuration::from_secs(30);

/// What Karpenter's `do-not-disrupt` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    No,
    Until(Timestamp),
    Always,
}

/// A duration counts from the start of the pod or the Node. What cannot be read protects.
pub fn protection(value: Option<&str>, start: Timestamp) -> Protection {
    match (
        value,
        value.and_then(|value| value.parse::<SignedDuration>().ok()),
    ) {
        (None | Some("false"), _) => Protection::No,
        (Some(_), Some(time)) => Protection::Until(later(start, time)),
        (Some(_), None) => Protection::Always,
    }
}

/// What forbids to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blocker {
    DoNotDisrupt,
    BarePod,
    UnfinishedJob,
    LocalVolume,
    EmptyDir,
    KubeSystem,
    /// The planner does not evaluate this field, so it cannot say where the pod would go.
    Unsupported(Arc<str>),
    /// The same: it asks for more than kproxide looks at.
    TooMany(TooMany),
    /// What it says about other pods, or they about it, is looked at in a later tick.
    LaterTick,
    SeveralBudgets,
    Budget(Arc<str>),
}

/// What of a pod bears on its eviction.
pub(crate) struct Ties<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) do_not_disrupt: bool,
    pub(crate) safe_to_evict: bool,
    pub(crate) is_bare: bool,
    pub(crate) of_unfinished_job: bool,
    pub(crate) local_volumes: bool,
    pub(crate) empty_dir: bool,
    pub(crate) is_expendable: bool,
}

/// The first rule that keeps a pod where it is. Without `rules`, or if the pod is expendable or says that it is safe to
/// evict, only its own annotation does.
pub(crate) fn blocker(pod: &Ties<'_>, rules: Option<&BlockedBy>) -> Option<Blocker> {
    if pod.do_not_disrupt {
        return Some(Blocker::DoNotDisrupt);
    }
    let rules = rules.filter(|_| !pod.is_expendable && !pod.safe_to_evict)?;
    if rules.bare_pods && pod.is_bare {
        Some(Blocker::BarePod)
    } else if rules.unfinished_jobs && pod.of_unfinished_job {
        Some(Blocker::UnfinishedJob)
    } else if rules.local_volumes && pod.local_volumes {
        Some(Blocker::LocalVolume)
    } else if rules.empty_dir && pod.empty_dir {
        Some(Blocker::EmptyDir)
    } else if rules.kube_system && pod.namespace == "kube-system" {
        Some(Blocker::KubeSystem)
    } else {
        None
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoNotDisrupt => f.write_str(
                "has an annotation against its eviction (kproxide.dev/do-not-disrupt or safe-to-evict)",
            ),
            Self::BarePod => {
                f.write_str("has no controller that would recreate it (blockedBy.barePods)")
            }
            Self::UnfinishedJob => {
                f.write_str("runs once, for an unfinished Job or another controller (blockedBy.unfinishedJobs)")
            }
            Self::LocalVolume => f.write_str("uses a local volume (blockedBy.localVolumes)"),
            Self::EmptyDir => f.write_str("uses an emptyDir (blockedBy.emptyDir)"),
            Self::KubeSystem => f.write_str("is a system pod (blockedBy.kubeSystem)"),
            Self::Unsupported(field) => write!(f, "uses {field}, which is not supported yet"),
            Self::TooMany(what) => write!(f, "has {what}"),
            Self::LaterTick => f.write_str(
                "has terms about other pods, or is selected by them, and there are too many for kproxide to look at all of them in one tick. It looks at these in a later tick",
            ),
            Self::SeveralBudgets => {
                f.write_str("has several PodDisruptionBudgets, which the Eviction API refuses")
            }
            Self::Budget(name) => write!(f, "is protected by PodDisruptionBudget {name}"),
        }
    }
}
