//! kproxide's own labels on a Node in service. Its kubelet may write them, and pods that select another pool by them would come to it. All other labels
//! are the user's once the Node is in service.

use jiff::{SignedDuration, Timestamp};

use super::effect::{Effect, NodePatch};
use super::node::node_ref;
use super::step::{StatusChange, Step};
use super::subject::{Restored, Subject};
use crate::facts::{ClaimSpec, Labels, NodeFacts};
use crate::ids::{ClaimName, NodeName};
use crate::keys;
use crate::time::later;

/// kproxide puts them right this often at most, however often somebody changes them.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// And says so this often.
const SAID: SignedDuration = SignedDuration::from_hours(1);

/// The Event that says so.
pub const LABELS_RESTORED: &str = "NodeLabelsRestored";

/// What there is to do about the labels.
pub(super) enum Restoring {
    Nothing,
    Later(Timestamp),
    Now(Step),
}

/// By which a Node is known to be whose.
pub(super) fn own<'a>(name: &'a ClaimName, spec: &'a ClaimSpec) -> [(&'static str, &'a str); 3] {
    [
        (keys::POOL, spec.pool.as_str()),
        (keys::CLASS, spec.class.as_str()),
        (keys::CLAIM, name.as_str()),
    ]
}

/// Somebody has changed them.
pub fn labels_differ(name: &ClaimName, spec: &ClaimSpec, node: &NodeFacts) -> bool {
    let stands = |(key, value): (&str, &str)| node.labels.get(key).is_some_and(|it| it == value);
    !own(name, spec).into_iter().all(stands)
}

pub(super) fn restoring(
    subject: &Subject<'_>,
    (name, node): (&NodeName, &NodeFacts),
    now: Timestamp,
) -> Restoring {
    let Restored { written, said } = subject.hint.restored;
    let wrong: Vec<_> = own(subject.name, &subject.claim.spec)
        .into_iter()
        .filter(|(key, value)| node.labels.get(*key).is_none_or(|it| it != value))
        .collect();
    if wrong.is_empty() || node.deleting {
        return Restoring::Nothing;
    }
    if let Some(next) = written.map(|at| later(at, PAUSE)).filter(|it| now < *it) {
        return Restoring::Later(next);
    }
    // Before the write: a crash in between costs an Event too many, and not the only one.
    if said.is_none_or(|at| later(at, SAID) <= now) {
        let found = wrong
            .iter()
            .map(|(key, value)| match node.labels.get(*key) {
                Some(found) => format!("{key} is {found} and not {value}"),
                None => format!("{key} is gone, which was {value}"),
            });
        let found: Vec<String> = found.collect();
        let message = format!(
            "somebody has changed labels of Node {name} that are kproxide's own: {}. kproxide sets them back. The Node's kubelet may write them: look at that machine if no person did it",
            found.join(", ")
        );
        let change = StatusChange::default().warn(LABELS_RESTORED, message);
        return Restoring::Now(change.record());
    }
    let labels = wrong.into_iter();
    let labels: Labels = labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let patch = NodePatch {
        labels,
        ..NodePatch::default()
    };
    Restoring::Now(Step::Do(Effect::PatchNode(
        node_ref(name, node),
        Box::new(patch),
    )))
}
