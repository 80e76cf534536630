//! The life of a claim, held to the recovery table, to invariants over all small inputs, and to a model with faults at every step.

pub(super) mod fixture;

mod recovery;

mod removal;

mod drains;

mod endings;

mod clones;

mod joining;

mod power;

mod orphans;

mod invariants;

mod model;

mod faults;
