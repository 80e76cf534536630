//! How much a tick may do, how long things rest, and how much the Ledger holds.

use jiff::SignedDuration;

/// Entries in the Ledger, of 200 bytes in one object: beyond this nothing is launched.
pub const MOST_ENTRIES: usize = 5_000;

/// Bounds of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Machines begun in one tick, at most; the rest follows in the next ticks.
    pub max_launches_per_tick: u32,
    /// Nodes whose removal begins in one tick, at most, over all pools.
    pub max_removals_per_tick: u32,
    /// How long a VMID and an address are not used again after their machine is gone.
    pub quarantine: SignedDuration,
    /// How long kproxide waits before it removes a machine that has lost its claim and whose Node is not Ready.
    pub orphan_grace: SignedDuration,
    /// A pod that ends within this time makes room for pending pods. 0: never.
    pub coming_room: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_launches_per_tick: 20,
            max_removals_per_tick: 100,
            quarantine: SignedDuration::from_hours(24),
            orphan_grace: SignedDuration::from_hours(1),
            coming_room: SignedDuration::from_mins(1),
        }
    }
}
