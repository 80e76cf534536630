//! What stops kproxide when the world looks wrong as a whole: too many machines go bad at once, too many go in a short time, or a copy of
//! this cluster is at work.

pub mod anchor;
pub mod breaker;
pub mod freeze;
