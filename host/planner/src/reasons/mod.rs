//! Why something does not happen, as values with their words for people: why there is no machine for a pod, why none on a hypervisor, why a machine
//! stays, what holds a claim, and what is wrong with a plan.

pub(crate) mod broken_plan;
pub mod kept;
pub mod no_hypervisor;
pub(crate) mod no_machine;
pub mod on_hold;
