//! The commands of kproxide for people: `plan`, `explain`, `status`, `doctor`, `init`, `policy`, `demo` and `simulate`.
//!
//! They read what the controller reads, ask what it asks, and judge as it does; they alone know files of objects, terminals and tables. The most
//! important: [`whatif::Scene`], [`manifest::Object`], [`doctor::Report`], [`status::Screen`], [`commands::Exit`].

#![cfg_attr(
    test,
    allow(
        clippy::wildcard_enum_match_arm,
        reason = "a test names the variant that it expects and shows any other"
    )
)]

// In reading order: rustfmt sorts within a group only.
pub mod args;

pub mod commands;

pub mod whatif;

pub mod doctor;

pub mod status;

mod stored;

pub mod manifest;
