//! Lengths of time in flags.

use std::time::Duration;

use jiff::SignedDuration;
use kproxide_planner::time::parse_period;

/// A longer duration is a mistake. The limit also keeps sums of a clock and a duration from overflowing.
const DURATION_MAX: SignedDuration = SignedDuration::from_hours(365 * 24);

/// A flag: a duration of at most a year.
///
/// # Errors
/// It is none; says how to write one.
pub fn duration(text: &str) -> Result<Duration, String> {
    signed_duration(text).map(SignedDuration::unsigned_abs)
}

/// The same for the planner, which reckons with moments. It is never negative.
///
/// # Errors
/// It is none; says how to write one.
pub fn signed_duration(text: &str) -> Result<SignedDuration, String> {
    let period = parse_period(text).ok();
    period.filter(|period| *period <= DURATION_MAX).ok_or_else(|| {
        format!("{text:?} is not a duration: write it like 10s, 5m, 250ms or 7d, and not more than a year (8760h)")
    })
}
