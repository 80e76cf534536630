//! The functional core of kproxide: it decides what to do, from everything that is known. It has no I/O, no clock and
//! no randomness, and it cannot fail.
//!
//! Its rooms in reading order, each on what stands before it: what is known ([`facts`], by [`ids`]) and how Kubernetes counts ([`kubernetes`]), why something
//! does not happen ([`reasons`]), what is asked and decided ([`plan`]), what is known as a whole ([`world`]), what is written down ([`ledger`]), the life of one
//! claim ([`claim`]), what stops a removal or a launch ([`guard`]), the last look at a plan ([`check`]), and how a tick is decided ([`planning`]).

pub mod ids;
pub mod keys;
pub mod time;

pub mod facts;
pub mod kubernetes;
pub mod reasons;

pub mod plan;

pub mod world;
pub use world::World;

pub mod ledger;

pub mod claim;

pub mod guard;

pub mod check;

pub mod planning;

#[doc(hidden)]
pub mod mutants;

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
