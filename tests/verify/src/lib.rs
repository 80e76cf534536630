//! What every change must pass, and which part of the rest runs today.
//!
//! `cargo verify` runs every test that has no `#[ignore]`. What takes longer has `#[ignore = "tier: WORD"]`, and its word names a
//! [group](groups::Group). `cargo verify-all` runs these too. `cargo slice` runs a part of them, which a number says: see [`mod@slice`].

pub mod changes;
pub mod groups;
pub mod known;
pub mod nested;
pub mod slice;
