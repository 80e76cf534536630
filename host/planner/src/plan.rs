//! What a tick decides: everything concrete, nothing left to choose.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::{ClaimSpec, LedgerFacts};
use crate::ids::{ClaimName, Uid};
use crate::report::Report;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[must_use = "a plan does nothing until it is acted on"]
pub struct Plan {
    /// The Ledger as it must stand before anything of this plan is done: one `replace` with the resource version that was planned on. `None`:
    /// it stands as it should. If the write conflicts, `launches` are dropped and the next tick plans anew.
    pub ledger: Option<LedgerFacts>,
    pub launches: Vec<Launch>,
    /// One for every claim that exists, by name: how far the world lets it go.
    pub advances: Vec<Advance>,
    pub report: Report,
    /// When a tick is worthwhile even if nothing changes.
    pub wake_at: Option<Timestamp>,
}

/// A machine to be made: its reservation is in `Plan::ledger`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub claim: ClaimName,
    pub spec: ClaimSpec,
    /// For the Event and the decision log.
    pub reason: String,
}

/// Drive this claim on: `act` loops observe → `claim::next` → perform with this verdict until it must wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    pub claim: ClaimName,
    pub uid: Uid,
    pub verdict: Verdict,
}

/// What the whole world says about one claim; the claim alone cannot know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Launch, register, keep: nothing is to be removed.
    Keep,
    /// Remove it: begin the drain, or go on with it (the removal was simulated again on this tick's world).
    Remove(RemovalReason),
    /// A drain is under way that must be given up: uncordon, for this reason.
    GiveUp(String),
    /// Leave it exactly as it is (paused, cold start, no quorum, no key, frozen): no effect, for this reason.
    Hold(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RemovalReason {
    /// No pods that would have to move.
    Empty,
    Underutilized,
    /// The annotation `kproxide.dev/replace`.
    Replace,
    /// Not Ready for too long.
    Repair,
    /// The launch failed or its deadline passed.
    LaunchFailed,
    /// Its claim was deleted by somebody.
    Deleted,
    /// The VM is gone.
    Lost,
}
