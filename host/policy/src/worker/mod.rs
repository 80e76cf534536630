//! Processes for the bytes of others: one child for each policy of a file, which may die, and takes nothing with it.
//!
//! ```text
//! engine ──► Workers ──► Process ══ three pipes ══► `kproxide policy-worker`: cage, then engine
//!  (ours)   (how many,   (one, until                 (the file is unpacked, compiled and
//!            how large)    it dies)                    called here, and nowhere else)
//!
//! `kproxide run` and the tools for authors start the same children, with the same limits.
//! ```
//!
//! What a child says is as foreign as what a policy says: its length, its form and its time are checked in the parent.

mod args;
mod budget;
mod cage;
mod child;
mod pool;
mod process;
mod wire;

pub use self::args::{Escape, PolicyWorker};
pub use self::budget::memory_bytes;
pub use self::child::serve;
pub(super) use self::pool::Caged;
pub use self::pool::Workers;
