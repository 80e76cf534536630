//! Lengths of time in flags.

use kproxide_planner::time::parse_period;

/// A longer duration is a mistake. The limit also keeps sums of a clock and a duration from overflowing.
const DURATION_MAX: std::time::Duration = std::time::Duration::from_hours(365 * 24);

/// A flag: a duration of at most a year.
///
/// # Errors
/// It is none; says how to write one.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    parse_period(text)
        .ok()
        .and_then(|period| std::time::Duration::try_from(period).ok())
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| {
            format!("{text:?} is not a duration: write it like 10s, 5m, 250ms or 7d, and not more than a year (8760h)")
        })
}
