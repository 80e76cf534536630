//! Moments and spans.

use jiff::{SignedDuration, Timestamp};

/// A later moment. The last possible moment if that is too late.
pub fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}
