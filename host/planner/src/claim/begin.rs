//! Down, the beginning: whether a claim may be taken out of service, written down before anything is touched.

use jiff::Timestamp;

use super::answers::{not_visible, proven_absent, refuse};
use super::observed::{MachineLook, Observed, Presence};
use super::ownership::{Made, Mismatch, is_another, prove};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{Condition, Phase};
use crate::plan::{RemovalReason, Standing, Verdict};
use crate::reasons::kept::{Kept, REMOVING};

/// Writes down that the removal begins. Before that kproxide changes nothing. It does not begin if it could not remove
/// the machine in the end.
pub(super) fn begin(
    subject: &Subject<'_>,
    observed: &Observed,
    reason: RemovalReason,
    now: Timestamp,
) -> Step {
    if !subject.armed(now) {
        return warming_up(subject);
    }
    if subject.status().phase == Phase::Initialized && is_chosen(subject) {
        match obstacle(subject, observed, now) {
            Ok(()) => {}
            Err(Obstacle::Refused(mismatch)) => return refuse(subject, &mismatch, now),
            Err(Obstacle::Unknown(step)) => return step,
        }
    }
    begin_because(subject, reason, reason.to_string(), now)
}

pub(super) fn begin_because(
    subject: &Subject<'_>,
    reason: RemovalReason,
    why: String,
    now: Timestamp,
) -> Step {
    if !subject.armed(now) {
        return warming_up(subject);
    }
    let message = format!("{}: {why}", subject.name);
    let mut change = StatusChange::default()
        .phase(Phase::Draining, now)
        .condition(Condition::Drained, false, reason.as_str(), why, now)
        .condition(
            Condition::Removable,
            true,
            REMOVING,
            Kept::Removing(reason).to_string(),
            now,
        );
    change = match reason.is_trouble() {
        true => change.warn(reason.event(), message),
        false => change.say(reason.event(), message),
    };
    change.draining_since = Change::Set(now);
    if reason.is_voluntary() {
        // It becomes False when the drain is given up. The planner counts its pause from that time.
        let unneeded = super::step::unneeded(&Standing::CouldGo, now);
        change.conditions.extend(unneeded.conditions);
    }
    change.record()
}

pub(super) fn warming_up(subject: &Subject<'_>) -> Step {
    Step::wait(
        subject.settings.armed_at,
        "kproxide removes it once --cold-start is over",
    )
}

/// A machine in service whose removal is voluntary: it could also stay.
pub(super) fn is_chosen(subject: &Subject<'_>) -> bool {
    let is_voluntary = match subject.verdict {
        Verdict::Remove(reason) => reason.is_voluntary(),
        Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => false,
    };
    is_voluntary && !subject.deleting() && subject.was_in_service()
}

/// What would keep kproxide from destroying the machine once its Node is empty.
pub(super) enum Obstacle {
    Refused(Mismatch),
    Unknown(Step),
}

pub(super) fn obstacle(
    subject: &Subject<'_>,
    observed: &Observed,
    now: Timestamp,
) -> Result<(), Obstacle> {
    if proven_absent(observed) {
        return Ok(());
    }
    match (&observed.machine, observed.presence, observed.quorate) {
        (Some(MachineLook::Visible(machine)), ..) if is_another(subject, machine) => Ok(()),
        (Some(MachineLook::Visible(machine)), ..) => {
            match prove(subject, machine, Made::Configured) {
                Ok(_) => Ok(()),
                Err(mismatch) => Err(Obstacle::Refused(mismatch)),
            }
        }
        (Some(MachineLook::Invisible), Some(Presence::Taken), Some(true)) => {
            Err(Obstacle::Refused(Mismatch::Invisible))
        }
        (Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None, ..) => {
            Err(Obstacle::Unknown(not_visible(subject, observed, now)))
        }
    }
}
