//! Tests of the adapter as a whole.

mod conformance;
mod parameters;
mod secrets;

mod simulated;
