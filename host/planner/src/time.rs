//! Moments and spans.

use jiff::{SignedDuration, Timestamp};

/// A moment later by so much; the end of time if there is none.
pub(crate) fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}
