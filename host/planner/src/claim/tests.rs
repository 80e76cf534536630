//! The life of a claim, held to the recovery table, to invariants over all small inputs and over any, and to a model with faults at every step.

#![cfg_attr(
    not(test),
    allow(dead_code, reason = "fuzzing needs a part of the small worlds")
)]

pub(super) mod fixture;

mod rules;

pub(crate) mod arbitrary;

#[cfg(test)]
mod recovery;

#[cfg(test)]
mod removal;

#[cfg(test)]
mod drains;

#[cfg(test)]
mod resting;

#[cfg(test)]
mod endings;

#[cfg(test)]
mod clones;

#[cfg(test)]
mod joining;

#[cfg(test)]
mod labels;
#[cfg(test)]
mod moved;

#[cfg(test)]
mod registering;

#[cfg(test)]
mod power;

#[cfg(test)]
mod off;
#[cfg(test)]
mod orphans;

#[cfg(test)]
mod invariants;

#[cfg(test)]
mod model;

#[cfg(test)]
mod faults;
