//! Changes of conditions. Each is one line of the log. An Event follows, unless the object had one about the same condition
//! within 10 minutes: then it follows after them, if the condition is still another than was told.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{Condition, NODE_GONE, NODE_NOT_READY, NODE_READY, SERVER_OFFLINE};
use kproxide_planner::world::World;

use super::Reporter;
use crate::judge::reasons::{DEGRADED, READY_CONDITION as READY, TOKEN_FITS_CONDITION};
use kproxide_kube::crd::ConditionStatus;
use kproxide_kube::events::{About, Event};
use kproxide_kube::status::Turn;

/// An object has at most one Event about a condition in this time.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_mins(10);

#[derive(Default)]
pub(super) struct Turns(BTreeMap<(About, &'static str), Told>);

/// What was last told of a condition, and what has come since.
#[derive(Default)]
struct Told {
    last: Option<(Timestamp, ConditionStatus)>,
    next: Option<Turn>,
}

impl Turns {
    pub(super) fn note(&mut self, about: &About, turns: Vec<Turn>) {
        let Self(all) = self;
        for turn in turns {
            let (kind, name) = about.object();
            let (condition, status) = (turn.kind, word(turn.to));
            let (reason, message) = (turn.reason, &*turn.message);
            match is_trouble(&turn) {
                true => tracing::warn!(
                    kind,
                    name,
                    condition,
                    status,
                    reason,
                    text = message,
                    "condition"
                ),
                false => tracing::info!(
                    kind,
                    name,
                    condition,
                    status,
                    reason,
                    text = message,
                    "condition"
                ),
            }
            // That the token may do too much is told elsewhere. That all is well from the beginning is no news.
            let is_news = turn.kind != TOKEN_FITS_CONDITION && !(is_first(&turn) && is_well(&turn));
            if is_news {
                let told = all.entry((about.clone(), turn.kind)).or_default();
                told.next = Some(turn);
            }
        }
    }

    /// What is to be told now.
    fn due(&mut self, now: Timestamp) -> Vec<(About, Turn)> {
        let Self(all) = self;
        let mut due = Vec::new();
        for ((about, _), told) in all.iter_mut() {
            let waits = |(at, _): &(Timestamp, _)| now.duration_since(*at) < PAUSE;
            let Some(turn) = told.next.take() else {
                continue;
            };
            match told.last {
                // It is back where it was told to be.
                Some((_, status)) if status == turn.to => {}
                Some(last) if waits(&last) => told.next = Some(turn),
                Some(_) | None => {
                    told.last = Some((now, turn.to));
                    due.push((about.clone(), turn));
                }
            }
        }
        let is_recent = |(at, _): (Timestamp, _)| now.duration_since(at) < PAUSE;
        all.retain(|_, told| told.next.is_some() || told.last.is_some_and(is_recent));
        due
    }
}

impl Reporter {
    /// Claims whose Nodes are no longer Ready, or Ready again. What else makes a claim not Ready has an Event of its own.
    pub(super) fn follow_claims(&mut self, world: &World) {
        let before = std::mem::take(&mut self.claims_ready);
        for (name, claim) in world.claims() {
            let mut conditions = claim.status.conditions.iter();
            let Some(ready) = conditions.find(|it| it.kind == Condition::Ready) else {
                continue;
            };
            let of_node =
                |reason: &str| [NODE_NOT_READY, NODE_GONE, SERVER_OFFLINE].contains(&reason);
            let was = before.get(&claim.uid);
            let turned = was.filter(|was| was.status != ready.status);
            let reason = match (turned, ready.status) {
                (Some(was), true) if of_node(&was.reason) => Some(NODE_READY),
                (Some(_), false) if ready.reason == NODE_NOT_READY => Some(NODE_NOT_READY),
                (Some(_), false) if ready.reason == SERVER_OFFLINE => Some(SERVER_OFFLINE),
                (Some(_) | None, _) => None,
            };
            if let Some(reason) = reason {
                let status = |holds| match holds {
                    true => ConditionStatus::True,
                    false => ConditionStatus::False,
                };
                let turn = Turn {
                    kind: READY,
                    from: Some(status(!ready.status)),
                    to: status(ready.status),
                    is_bad: !ready.status,
                    reason,
                    message: ready.message.clone(),
                };
                self.turns.note(&About::claim(name, &claim.uid), vec![turn]);
            }
            self.claims_ready.insert(claim.uid.clone(), ready.clone());
        }
    }

    /// The Events of conditions that have changed.
    pub(super) fn tell_turns(&mut self, now: Timestamp) {
        for (about, turn) in self.turns.due(now) {
            // The same was told in other words just now.
            let subject = (about.clone(), turn.reason);
            if self.said.is_said(&subject, PAUSE, now) {
                continue;
            }
            let note = match (&*turn.message, is_well(&turn)) {
                ("", true) => format!("{} is {} again", turn.kind, word(turn.to)),
                ("", false) => format!("{} is {}", turn.kind, word(turn.to)),
                (message, _) => message.to_owned(),
            };
            let event = Event::new(is_trouble(&turn), about, turn.reason, note);
            self.events.say(event);
        }
    }
}

fn is_first(turn: &Turn) -> bool {
    matches!(turn.from, None | Some(ConditionStatus::Unknown))
}

/// As it should be.
fn is_well(turn: &Turn) -> bool {
    match turn.kind {
        READY => turn.to != ConditionStatus::False,
        _ => turn.to != ConditionStatus::True,
    }
}

/// Somebody should look at it. A pool that is paused or as large as it may be is as its owner wants it.
fn is_trouble(turn: &Turn) -> bool {
    matches!(turn.kind, READY | DEGRADED) && !is_well(turn)
}

fn word(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use ConditionStatus::{False, True, Unknown};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// When a turn of `Ready` at these seconds is told, and as what.
    fn told(
        turned: &[(i64, Option<ConditionStatus>, ConditionStatus)],
    ) -> Vec<(i64, ConditionStatus)> {
        let mut turns = Turns::default();
        let about = [
            About::pool(&"workers".into(), &"u1".into()),
            About::pool(&"others".into(), &"u2".into()),
        ];
        let mut told = Vec::new();
        for second in 0..4_000 {
            for (_, from, to) in turned.iter().filter(|(when, ..)| *when == second) {
                let turn = Turn {
                    kind: READY,
                    from: *from,
                    to: *to,
                    is_bad: false,
                    reason: "R",
                    message: String::new(),
                };
                turns.note(&about[0], vec![turn]);
            }
            for (of, turn) in turns.due(at(second)) {
                assert_eq!(of, about[0]);
                told.push((second, turn.to));
            }
        }
        assert!(turns.0.is_empty());
        told
    }

    #[test]
    fn each_change_is_told_once_and_two_are_ten_minutes_apart() {
        assert_eq!(told(&[(0, None, True), (5, Some(Unknown), True)]), []);
        assert_eq!(
            told(&[
                (0, None, True),
                (5, Some(True), False),
                (30, Some(False), True)
            ]),
            [(5, False), (605, True)]
        );
        // Back again before it was told.
        let flapping = [
            (5, Some(True), False),
            (30, Some(False), True),
            (60, Some(True), False),
        ];
        assert_eq!(told(&flapping), [(5, False)]);
        assert_eq!(
            told(&[
                (0, None, False),
                (1_000, Some(False), True),
                (1_700, Some(True), False)
            ]),
            [(0, False), (1_000, True), (1_700, False)]
        );
    }
}
