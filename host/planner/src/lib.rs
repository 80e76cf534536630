//! The functional core of kproxide: what to do, given everything that is known. No I/O, no clock, no randomness, no failure.
//!
//! In reading order: what is known ([`facts`], by [`ids`], in [`resources`]), what is asked of policies ([`question`]), what is decided
//! ([`plan`]) and why ([`report`]), and the life of one claim ([`claim`]).

pub mod claim;
pub mod facts;
pub mod ids;
pub mod plan;
pub mod quantity;
pub mod question;
pub mod report;
pub mod resources;
pub mod selector;
pub mod taints;
