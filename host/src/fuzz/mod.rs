//! What no input whatsoever may break, on the side of the adapters: each target takes any bytes and panics if something is wrong.
//!
//! The same targets run as property tests beside all others, and under libFuzzer in `tests/fuzz`. Nothing of this is in what is shipped.

mod mutate;
mod objects;
mod settings;

pub use kproxide_planner::fuzz::{Draw, deltas, ledger, next, quantity, resources};
pub use objects::objects;
pub use settings::settings;

pub(crate) use mutate::{mutated, mutated_text};

pub use crate::kube::lease::fuzz::fence;
pub use crate::kube::watch::fuzz::reflector;
pub use crate::policy::fuzz::component;
pub use crate::pve::fuzz::{answer, classify, marker, task, vm_config};

#[cfg(test)]
mod tests;
