//! The steps that `act` can perform: concrete effects, nothing left to choose.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use super::effect::{Effect, NodeRef};
use super::observed::Failure;
use super::reasons::{
    BLOCKED_BY_POD, CORDONED, DRAINING, NODE_READY, NOT_IN_SERVICE, NUMBER_SPOILT, OUTDATED,
    REFUSED_EVERYWHERE, SCALE_DOWN_BLOCKED, STORAGE_BUSY, TERMINATING,
};
use crate::facts::{BlockedDrains, ClaimCondition, ClaimStatus, Condition, Intent, Op, Phase};
use crate::ids::Uid;
use crate::plan::{Removable, Standing};

/// What is to be done now for one claim.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a step is an order, not an effect"]
pub enum Step {
    /// Write the status, by compare-and-set on the version that the decision is based on. Then send the note, if any,
    /// as an Event.
    Record {
        change: Box<StatusChange>,
        then: Then,
    },
    Do(Effect),
    /// Wait for the end of an operation's task, at most half a minute, then look again.
    Follow {
        upid: Arc<str>,
        op: Op,
    },
    /// Nothing until something changes, or that moment.
    Wait {
        until: Option<Timestamp>,
        why: String,
    },
    /// Nothing before that moment, whatever changes.
    BackOff {
        until: Timestamp,
        why: String,
    },
    /// There is no such claim any more.
    Done,
}

/// What follows a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    Continue,
    BackOff { until: Timestamp, why: String },
}

/// An Event about the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

/// A change of one field of the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

/// A change of the status; what is not mentioned stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusChange {
    pub phase: Option<Phase>,
    /// The operation and its attempt; `act` adds its epoch.
    pub intent: Change<(Op, u32)>,
    /// `act` draws a new nonce.
    pub fresh_nonce: bool,
    pub upid: Change<Arc<str>>,
    pub smbios_uuid: Option<Uid>,
    pub disks: Option<Vec<Arc<str>>>,
    pub node: Option<NodeRef>,
    pub address: Option<IpAddr>,
    pub hypervisor: Option<Arc<str>>,
    pub started_at: Option<Timestamp>,
    pub draining_since: Change<Timestamp>,
    pub blocked_drains: Option<BlockedDrains>,
    pub conditions: Vec<ClaimCondition>,
    pub note: Option<Note>,
}

impl StatusChange {
    /// The status says all of it already: there is nothing to write.
    pub fn is_in(&self, status: &ClaimStatus) -> bool {
        let is_new = self.fresh_nonce || matches!(self.intent, Change::Set(_));
        let mut after = status.clone();
        self.apply(&mut after, "", "");
        !is_new && after == *status
    }

    /// The status after this change. `epoch` names who writes it, `nonce` is used if a fresh one is asked for.
    pub fn apply(&self, status: &mut ClaimStatus, epoch: &str, nonce: &str) {
        let Self {
            phase,
            intent,
            fresh_nonce,
            upid,
            smbios_uuid,
            disks,
            node,
            address,
            hypervisor,
            started_at,
            draining_since,
            blocked_drains,
            conditions,
            note: _,
        } = self;
        if let Some(phase) = phase {
            status.phase = *phase;
        }
        match intent {
            Change::Keep => {}
            Change::Clear => status.intent = None,
            Change::Set((op, attempt)) => {
                status.intent = Some(Intent {
                    op: *op,
                    attempt: *attempt,
                    epoch: epoch.to_owned(),
                });
            }
        }
        if *fresh_nonce {
            status.nonce = Some(nonce.into());
        }
        upid.clone().onto(&mut status.upid);
        draining_since.clone().onto(&mut status.draining_since);
        if let Some(uuid) = smbios_uuid {
            status.smbios_uuid = Some(uuid.clone());
        }
        if let Some(disks) = disks {
            status.disks.clone_from(disks);
        }
        if let Some(node) = node {
            status.node_name = Some(node.name.clone());
            status.node_uid = Some(node.uid.clone());
        }
        if address.is_some() {
            status.address = *address;
        }
        if let Some(hypervisor) = hypervisor {
            status.hypervisor = Some(hypervisor.clone());
        }
        if let Some(at) = started_at {
            status.started_at = Some(*at);
        }
        if let Some(drains) = blocked_drains {
            status.blocked_drains = Some(drains.clone());
        }
        for condition in conditions {
            set_condition(&mut status.conditions, condition);
        }
    }

    /// The claim is Ready only while its machine is in service.
    pub(super) fn phase(mut self, phase: Phase, now: Timestamp) -> Self {
        self.phase = Some(phase);
        let (ready, reason, message) = match phase {
            Phase::Pending | Phase::Launching | Phase::Launched | Phase::Registered => (
                false,
                NOT_IN_SERVICE,
                "the machine is not in service yet: see status.phase and the Events",
            ),
            Phase::Initialized => (true, NODE_READY, ""),
            Phase::Draining => (false, DRAINING, "kproxide drains its Node"),
            Phase::Terminating => (false, TERMINATING, "kproxide destroys its machine"),
        };
        self.condition(Condition::Ready, ready, reason, message, now)
    }

    pub(super) fn intent(mut self, op: Op, attempt: u32) -> Self {
        self.intent = Change::Set((op, attempt));
        self
    }

    pub(super) fn condition(
        mut self,
        kind: Condition,
        status: bool,
        reason: &str,
        message: impl Into<String>,
        since: Timestamp,
    ) -> Self {
        self.conditions.push(ClaimCondition {
            kind,
            status,
            since,
            reason: reason.to_owned(),
            message: message.into(),
        });
        self
    }

    pub(super) fn say(mut self, reason: &'static str, message: impl Into<String>) -> Self {
        self.note = Some(Note {
            warning: false,
            reason,
            message: message.into(),
        });
        self
    }

    pub(super) fn warn(mut self, reason: &'static str, message: impl Into<String>) -> Self {
        self.note = Some(Note {
            warning: true,
            reason,
            message: message.into(),
        });
        self
    }

    pub(super) fn record(self) -> Step {
        Step::Record {
            change: Box::new(self),
            then: Then::Continue,
        }
    }

    pub(super) fn record_and_back_off(self, until: Timestamp, why: impl Into<String>) -> Step {
        Step::Record {
            change: Box::new(self),
            then: Then::BackOff {
                until,
                why: why.into(),
            },
        }
    }
}

impl<T> Change<T> {
    fn onto(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value),
        }
    }
}

impl Step {
    pub(super) fn wait(until: Option<Timestamp>, why: impl Into<String>) -> Self {
        Self::Wait {
            until,
            why: why.into(),
        }
    }

    pub(super) fn back_off(until: Timestamp, why: impl Into<String>) -> Self {
        Self::BackOff {
            until,
            why: why.into(),
        }
    }
}

impl Failure {
    /// Stable word, used as a condition's reason and as the class of a back-off.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            // A full storage, or a server that is off. The message says which.
            Self::Elsewhere => "HypervisorUnfit",
            Self::Outdated => OUTDATED,
            Self::NumberSpoilt => NUMBER_SPOILT,
            Self::StorageBusy => STORAGE_BUSY,
            Self::GiveUp => "Refused",
            Self::Everywhere => REFUSED_EVERYWHERE,
            Self::VmidTaken => "VmidTaken",
            Self::Freeze => "Frozen",
        }
    }
}

/// Records whether the claim's Node could go. The planner reads from it since when. If only a pod keeps the Node, an
/// Event says so, because only the pod's owner can change that.
pub fn unneeded(standing: &Standing, now: Timestamp) -> StatusChange {
    let record = |could_go: bool, reason: &str, message: &str| {
        StatusChange::default().condition(Condition::Unneeded, could_go, reason, message, now)
    };
    match standing {
        Standing::Needed => record(false, "Needed", ""),
        Standing::CouldGo => record(true, "CouldGo", ""),
        Standing::Blocked(pod, by) => {
            let why = format!("pod {pod} {by}");
            let message = format!("kproxide could remove its Node, but {why}");
            record(false, BLOCKED_BY_POD, &why).warn(SCALE_DOWN_BLOCKED, message)
        }
        Standing::Cordoned(node) => {
            let why = format!(
                "Node {node} is cordoned and runs no pods. It counts in maxNodes. To use it, run `kubectl uncordon {node}`. To remove it, delete this NodeClaim"
            );
            record(false, CORDONED, &why).warn(SCALE_DOWN_BLOCKED, why)
        }
    }
}

/// Records whether kproxide may remove the machine now, and why not.
pub fn removable(change: &Removable, now: Timestamp) -> StatusChange {
    let Removable {
        may_go,
        reason,
        message,
        ..
    } = change;
    StatusChange::default().condition(Condition::Removable, *may_go, reason, &**message, now)
}

/// `since` moves only when the status changes, as Kubernetes' `lastTransitionTime` does.
fn set_condition(conditions: &mut Vec<ClaimCondition>, new: &ClaimCondition) {
    match conditions.iter_mut().find(|c| c.kind == new.kind) {
        Some(old) => {
            let since = if old.status == new.status {
                old.since
            } else {
                new.since
            };
            *old = ClaimCondition {
                since,
                ..new.clone()
            };
        }
        None => {
            conditions.push(new.clone());
            conditions.sort_by_key(|c| c.kind);
        }
    }
}
