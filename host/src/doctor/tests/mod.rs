//! Each defect in a world that has only this one: doctor finds it and nothing else, and nothing more once it is mended.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod defects;
mod hanging;
mod installed;
mod scripts;
mod ward;
