//! The chart as its users meet it: rendered, refused or installed by real Helm, against a real API server.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod render;

mod crds;
mod forms;
mod knobs;
mod monitoring;
mod readme;
mod release;

mod admission;
mod examples;
mod install;
mod join;
mod objects;
mod outside;
mod pod;
mod rbac;
mod values;
