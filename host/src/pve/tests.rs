//! Tests of the adapter as a whole.

mod secrets;

#[cfg(feature = "lab")]
mod simulated;
