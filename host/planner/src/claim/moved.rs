//! The Node of a machine whose VM has moved to another server. kproxide sets the zone that it wrote itself. What keeps
//! the old zone is told in the condition Ready.

use std::fmt;

use jiff::Timestamp;

use super::answers::soon;
use super::effect::{Effect, NodePatch};
use super::node::node_ref;
use super::observed::Observed;
use super::step::Step;
use super::subject::{KeepsZone, Moved, Subject};
use crate::facts::{NodeFacts, Op};
use crate::ids::NodeName;
use crate::keys::ZONE;

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, keeps } = self;
        write!(
            f,
            "its VM has moved from {from} to {to}, but its Node's label {ZONE} says {from}"
        )?;
        match keeps {
            None => f.write_str(". kproxide sets it anew"),
            Some(KeepsZone::Volume(volume)) => write!(
                f,
                " and stays, because PersistentVolume {volume} of a pod there is bound to it. kproxide plans with no volume of {from} or {to} there. Move the VM back, or let kproxide replace it (annotation kproxide.dev/replace)"
            ),
            Some(KeepsZone::CloudController) => write!(
                f,
                ", and a cloud controller wrote it. kproxide plans with no volume of {from} or {to} there. Correct the label, move the VM back, or let kproxide replace it (annotation kproxide.dev/replace)"
            ),
        }
    }
}

/// Sets the zone that nothing keeps.
pub(super) fn zone_set(
    subject: &Subject<'_>,
    observed: &Observed,
    (name, node): (&NodeName, &NodeFacts),
    now: Timestamp,
) -> Option<Step> {
    let moved = subject.hint.moved.as_ref()?;
    let stands = node.labels.get(ZONE).is_some_and(|it| **it == *moved.from);
    if moved.keeps.is_some() || !stands || node.deleting {
        return None;
    }
    if observed.tried(Op::PatchNode).is_some() {
        return Some(soon(now, format!("Node {name} does not keep label {ZONE}")));
    }
    let patch = NodePatch {
        labels: [(ZONE.to_owned(), moved.to.to_string())].into(),
        ..NodePatch::default()
    };
    Some(Step::Do(Effect::PatchNode(
        node_ref(name, node),
        Box::new(patch),
    )))
}
