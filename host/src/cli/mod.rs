//! The commands beside `run`.

pub mod policy;
