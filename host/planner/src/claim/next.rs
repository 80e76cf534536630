//! The decision: one step for one claim, from the claim and one observation.

use jiff::Timestamp;

use super::answers::{soon, unread};
use super::begin::begin;
use super::observed::{ClaimLook, Observed, Outcome};
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use super::{closing, drain, launch, orphan, register, service, stalled, terminate};
use crate::facts::{Op, Phase};
use crate::plan::{RemovalReason, Verdict};

/// Why a deleted claim is left alone.
const SWEPT_AWAY: &str = "Kubernetes deletes this NodeClaim because its CustomResourceDefinition is deleted. kproxide keeps its machine";

/// What to do now. Total and pure: the same input gives the same step, and no input is refused.
///
/// If something could not be read, the step is to wait. Nothing is concluded from its absence.
pub fn next(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let mut step = decide(subject, observed, now);
    if let Step::Do(effect) = &step
        && let op = effect.op()
        && let Some(first) = op
            .held(subject, observed, now)
            .or_else(|| op.intent(subject))
    {
        step = first;
    }
    stalled::told(subject, step, now)
}

fn decide(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if observed.claim == ClaimLook::Gone {
        return Step::Done;
    }
    if let Some(step) = new_task(subject, observed) {
        return step;
    }
    match observed.claim {
        ClaimLook::Gone | ClaimLook::Here => {}
        ClaimLook::SweptAway => return soon(now, SWEPT_AWAY),
        ClaimLook::Unclear => {
            return unread(observed, "the CustomResourceDefinition of claims", now);
        }
    }
    if subject.deleting() && !subject.claim.has_finalizer {
        return closing::closed(subject, now);
    }
    if let Verdict::Hold(why) = subject.verdict {
        return Step::wait(None, why.to_string());
    }
    // A machine that is older than its claim is written down first, whatever the verdict is.
    if let (Phase::Pending, Some(adopts)) = (subject.status().phase, &subject.claim.spec.adopts) {
        return orphan::pending(subject, observed, adopts, now);
    }
    match subject.status().phase {
        Phase::Terminating => terminate::next(subject, observed, now),
        Phase::Draining => drain::next(subject, observed, now),
        phase @ (Phase::Pending
        | Phase::Launching
        | Phase::Launched
        | Phase::Registered
        | Phase::Initialized) => {
            if phase == Phase::Initialized && awaits_plan(subject) {
                return Step::wait(
                    None,
                    "deleted: kproxide removes it once a plan has counted it",
                );
            }
            if let Some(reason) = to_be_removed(subject) {
                return begin(subject, observed, reason, now);
            }
            match phase {
                Phase::Pending => launch::pending(subject, observed, now),
                Phase::Launching => launch::launching(subject, observed, now),
                Phase::Launched => register::launched(subject, observed, now),
                Phase::Registered => register::registered(subject, observed, now),
                Phase::Initialized | Phase::Draining | Phase::Terminating => {
                    service::initialized(subject, observed, now)
                }
            }
        }
    }
}

/// A task has begun, and only this process knows its UPID. It is written down before anything else, even if the claim
/// changed: otherwise no later leader would know that a clone still runs, or what a destroy warned of.
fn new_task(subject: &Subject<'_>, observed: &Observed) -> Option<Step> {
    let last = observed.last.as_ref()?;
    let Outcome::Running(upid) = &last.outcome else {
        return None;
    };
    if !last.op.is_some_and(Op::is_uncertain_after_loss) {
        return None;
    }
    // A claim that was held all along has begun no task, and a deleted claim without a finalizer is gone.
    let is_held = matches!(subject.verdict, Verdict::Hold(_));
    let is_gone = subject.deleting() && !subject.claim.has_finalizer;
    let change = StatusChange {
        upid: Change::Set(upid.clone()),
        ..StatusChange::default()
    };
    let is_new = subject.status().upid.is_none();
    (is_new && !is_held && !is_gone).then(|| change.record())
}

/// The claim was deleted after the plan was made. It may be one of many. So the next plan counts it first: for the
/// breaker, and to see whether most machines go at once.
fn awaits_plan(subject: &Subject<'_>) -> bool {
    subject.deleting()
        && match subject.verdict {
            Verdict::Remove(_) => false,
            Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => true,
        }
}

/// The verdict alone does not make a VM lost, because the inventory can be wrong: [`service`] looks at the VM itself.
fn to_be_removed(subject: &Subject<'_>) -> Option<RemovalReason> {
    if subject.deleting() {
        return Some(RemovalReason::Deleted);
    }
    match subject.verdict {
        // The plan wants to make the machine elsewhere, but its clone was asked for after the plan was made.
        Verdict::Remove(RemovalReason::LaunchFailed)
            if subject.status().phase != Phase::Pending =>
        {
            None
        }
        Verdict::Remove(RemovalReason::Lost) => None,
        Verdict::Remove(reason) => Some(*reason),
        Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => None,
    }
}
