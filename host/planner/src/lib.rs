//! The functional core of kproxide: it decides what to do, from everything that is known. It has no I/O, no clock and
//! no randomness, and it cannot fail.
//!
//! In reading order: what is known ([`facts`], by [`ids`], in [`resources`], kept in the [`world`]), what is asked of policies ([`question`]),
//! how a tick is decided ([`planning`], with the [`ledger`] and the [`guard`] beside), what is decided ([`plan`], after a last [`check`]) and why ([`report`]), and
//! the life of one claim ([`claim`]).

// What is known.
pub mod ids;

pub mod keys;

mod base64;
pub mod time;

pub mod quantity;
pub mod resources;

pub mod facts;

pub mod selector;
pub mod taints;

mod why;
pub mod world;
pub use world::World;

// What is decided.
pub mod question;

pub mod planning;

pub mod guard;
pub mod learned;
pub mod ledger;
pub mod limits;
pub mod loops;
mod numbers;
pub mod orphans;
pub mod plan;

mod upkeep;

pub mod check;
pub mod decision;
pub mod eviction;
pub mod hold;
pub mod reasons;
pub mod refusal;
mod removal;
pub mod report;
mod violation;

pub mod claim;

#[doc(hidden)]
pub mod mutants;

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
