//! What follows from a claim's conditions.

use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::evidence::lasting;
use super::reasons::{
    AWAITS_DEVICES, CLONE_FAILED, CLONED, JOIN_NOT_RUN, NOT_IN_SERVICE, NUMBER_SPOILT, OUTDATED,
    PREPARE_FAILED, START_FAILED, STORAGE_BUSY, VMID_TAKEN,
};
use crate::facts::{
    BlockedDrains, ClaimCondition, ClaimFacts, ClaimStatus, Condition, GIVEN_UP, LaunchFailure, Op,
    Phase, RemovalReason, Timeouts,
};
use crate::ids::{Digest, digest};
use crate::time::later;

impl ClaimFacts {
    /// By when the VM must run, if no clone is under way. Counted from the end of its clone, or from its first intent.
    pub(crate) fn provision_deadline(&self, timeouts: &Timeouts) -> Timestamp {
        let mut conditions = self.status.conditions.iter();
        let cloned = conditions.find(|c| c.kind == Condition::Launched && !c.status);
        let began = cloned.map(|cloned| cloned.since);
        let began = began.or(self.status.since(Condition::Reserved));
        later(began.unwrap_or(self.created), timeouts.provision.0)
    }

    /// By when the task of its clone must have ended.
    pub(crate) fn clone_deadline(&self, timeouts: &Timeouts) -> Timestamp {
        let began = self.status.since(Condition::Reserved);
        let limit = timeouts.clone.max(timeouts.provision).0;
        later(began.unwrap_or(self.created), limit)
    }

    /// The task of its clone has begun, and its end has not been seen.
    pub(crate) fn is_cloning(&self) -> bool {
        self.is_launching(Op::Clone) && self.status.upid.is_some()
    }

    /// Its first start is about to be asked for, or was.
    pub(crate) fn is_starting(&self) -> bool {
        self.is_launching(Op::Start)
    }

    fn is_launching(&self, op: Op) -> bool {
        let intent = self.status.intent.as_ref();
        self.status.phase == Phase::Launching && intent.is_some_and(|intent| intent.op == op)
    }
}

/// How long a Node rests after the first drain that pods or volumes kept from ending, and at most.
const FIRST_REST: SignedDuration = SignedDuration::from_mins(10);
const LONGEST_REST: SignedDuration = SignedDuration::from_hours(24);

/// The annotation may be long.
pub(crate) fn retry_digest(retry: Option<&Arc<str>>) -> Digest {
    let mut hasher = DefaultHasher::new();
    retry.hash(&mut hasher);
    digest(&hasher)
}

impl BlockedDrains {
    /// The next drain may begin then, if nothing changes before.
    pub fn rests_until(&self) -> Timestamp {
        let doublings = self.in_a_row.saturating_sub(1).min(10);
        let rest = FIRST_REST.checked_mul(1 << doublings);
        let rest = rest.unwrap_or(LONGEST_REST).min(LONGEST_REST);
        later(self.at, rest)
    }

    /// After one more, which began at that moment. If it began before the rest was over, what had kept the Node had changed.
    pub(super) fn one_more(
        before: Option<&Self>,
        began: Timestamp,
        pods: Vec<Digest>,
        retry: Digest,
        now: Timestamp,
    ) -> Self {
        let is_same = |before: &&Self| {
            let is_known = |pod| before.pods.contains(pod);
            let by_same = pods.iter().any(is_known) || (pods.is_empty() && before.pods.is_empty());
            by_same && began >= before.rests_until()
        };
        let so_far = before.filter(is_same).map_or(0, |before| before.in_a_row);
        Self {
            in_a_row: so_far.saturating_add(1),
            at: now,
            pods,
            retry,
        }
    }
}

impl ClaimCondition {
    /// Its status in Kubernetes' words. Before a machine is in service nobody can say whether it is Ready.
    pub fn word(&self) -> &'static str {
        let is_early = [NOT_IN_SERVICE, AWAITS_DEVICES].contains(&&*self.reason);
        match (self.status, self.kind) {
            (true, _) => "True",
            (false, Condition::Ready) if is_early => "Unknown",
            (false, _) => "False",
        }
    }
}

impl ClaimStatus {
    /// Why the last start of its VM failed, or what comes before it.
    pub(super) fn start_error(&self) -> Option<&str> {
        let failed = self.launch_error(START_FAILED);
        failed.or_else(|| self.launch_error(PREPARE_FAILED))
    }

    /// Why the join command could not be started in the guest.
    pub(super) fn join_error(&self) -> Option<&str> {
        self.launch_error(JOIN_NOT_RUN)
    }

    fn launch_error(&self, reason: &str) -> Option<&str> {
        let mut conditions = self.conditions.iter();
        let failed = conditions.find(|c| c.kind == Condition::Launched && c.reason == reason);
        failed.map(|c| &*c.message)
    }

    /// Its last drain was given up, because the plan or the load had changed: when kproxide may try again. It waits as
    /// long as the drains have taken so far, at least a minute and at most an hour. One minute, if pods or volumes kept the
    /// Node: after that [`BlockedDrains::rests_until`] says more.
    pub fn pauses_until(&self) -> Option<Timestamp> {
        let given_up = |kind| {
            self.conditions
                .iter()
                .find(|c| c.kind == kind && !c.status && c.reason == GIVEN_UP)
        };
        let ended = given_up(Condition::Unneeded)?.since;
        // After several failed drains in a row, `since` is the time of the first.
        let began = given_up(Condition::Drained).map_or(ended, |drained| drained.since);
        let least = SignedDuration::from_mins(1);
        let blocked = self.blocked_drains.as_ref();
        let pause = match blocked.is_some_and(|blocked| blocked.at >= ended) {
            true => least,
            false => ended.duration_since(began),
        };
        Some(later(
            ended,
            pause.clamp(least, SignedDuration::from_hours(1)),
        ))
    }

    /// The reason that was written down when the removal began.
    pub(crate) fn removal(&self) -> Option<RemovalReason> {
        self.conditions
            .iter()
            .filter(|condition| {
                matches!(
                    condition.kind,
                    Condition::Drained
                        | Condition::InstanceTerminating
                        | Condition::VolumesDetached
                )
            })
            .find_map(|condition| RemovalReason::from_word(&condition.reason))
    }

    /// Its Node should be in service, but is not.
    pub fn is_overdue(&self) -> bool {
        self.conditions
            .iter()
            .any(|c| matches!(c.kind, Condition::Registered | Condition::Initialized) && !c.status)
    }

    /// Why the launch failed, for the Ledger's back-off. A VMID that was taken says nothing about the hypervisor.
    pub(crate) fn launch_failure(&self) -> Option<LaunchFailure> {
        if self.since(Condition::Initialized).is_some() {
            return None;
        }
        let is_of_launch = |kind| {
            let of_launch = [
                Condition::Launched,
                Condition::Registered,
                Condition::Initialized,
            ];
            of_launch.contains(&kind)
        };
        let is_of_nobody = |reason: &str| {
            matches!(
                reason,
                "" | VMID_TAKEN
                    | NUMBER_SPOILT
                    | OUTDATED
                    | CLONE_FAILED
                    | PREPARE_FAILED
                    | STORAGE_BUSY
                    | CLONED
                    | "ReservationLost"
                    | "Lost"
            )
        };
        let mut conditions = self.conditions.iter();
        conditions
            .find(|c| is_of_launch(c.kind) && !c.status && !is_of_nobody(&c.reason))
            .map(|c| LaunchFailure {
                class: c.reason.as_str().into(),
                message: lasting(&c.message),
            })
    }

    /// Its machine was made and never came into service, and kproxide is about to remove it for that.
    pub(crate) fn is_failed_launch(&self) -> bool {
        let is_made = self.smbios_uuid.is_some();
        let reason = self.removal() == Some(RemovalReason::LaunchFailed);
        is_made && reason && self.launch_failure().is_some()
    }

    /// Why kproxide leaves the VM alone: it is not provably the claim's, or it is protected.
    pub fn refusal(&self) -> Option<&str> {
        self.conditions
            .iter()
            .filter(|c| {
                matches!(
                    c.kind,
                    Condition::OwnershipMismatch | Condition::ProtectedVM
                )
            })
            .find(|c| c.status)
            .map(|c| &*c.message)
    }
}
