//! The life of one claim: from a reservation to a Node, and back to nothing.
//!
//! [`Phase`] says how far it is. [`Intent`] says which operation kproxide was about to do when it last wrote the
//! status. What to do next is a pure function of the claim and of what was just observed of its machine:
//!
//! ```text
//! looks(subject) ─► act reads ─► Observed ─► next(subject, observed, now) ─► Step ─► act performs ─► (again, until it waits)
//! ```
//!
//! Up: `launch` (`clone`, configure, start), `register` (join, then `adopt` labels the Node; `overdue` if it is late),
//! `service` (keep it; `labels` of ours; `power` if the VM has stopped or gone). A claim for a machine that has lost its own starts in
//! `orphan`. Down: `begin` (may it go?), `drain` (should it still go? it can be undone; `empty` does it), `terminate`
//! (prove, mark, stop, destroy), `closing` (prove that it is gone, close the records).

mod status;

mod subject;

mod observed;
mod off;

mod looks;

mod reads;

mod effect;

mod step;

mod op;

mod reasons;

mod answers;

mod failing;

mod node;

mod ownership;

mod next;

mod launch;

mod orphan;

mod clone;

mod adopt;

mod register;

mod evidence;

mod overdue;

mod labels;

mod moved;

mod service;

mod power;

mod begin;

mod drain;

mod empty;

mod terminate;

mod stalled;

mod closing;

mod ledger;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod tests;

pub use crate::facts::{Condition, GIVEN_UP, Intent, Op, Phase};
pub use adopt::provider_id;
pub use effect::{Effect, NodePatch, NodeRef, PodRef};
pub use labels::{LABELS_RESTORED, labels_differ};
pub use ledger::{Closing, close, entry_of, failing_pools};
pub(crate) use ledger::{backoff_with_open_claims, is_over};
pub use looks::{Looks, Need};
pub use next::next;
pub use observed::{
    Attempted, ClaimLook, EntryLook, Evidence, Failure, JoinLook, Machine, MachineLook, Marker,
    NodeLook, Observed, Outcome, PodOnNode, Power, Presence, Refusal,
};
pub use ownership::{Mismatch, Proven, is_proven, same_uuid};
pub use reads::looks;
pub use reasons::{
    BLOCKED_BY_POD, CORDONED, KEPT_FAILED, NODE_GONE, NODE_NOT_READY, NODE_READY, READY_REASONS,
    SCALE_DOWN_BLOCKED, SERVER_OFFLINE, ZONE_OUTDATED,
};
pub use service::ready_differs;
pub(crate) use status::retry_digest;
pub use step::{Change, Note, StatusChange, Step, Then, removable, unneeded};
pub use subject::{
    GuestHint, Hint, KeepsZone, Moved, Registering, Restored, Settings, Subject, Waits,
};
