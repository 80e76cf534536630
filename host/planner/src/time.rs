//! Moments and spans.

pub mod cron;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

/// A later moment. The last possible moment if that is too late.
pub fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// `90s`, `5m`, `1h30m`, `1500ms`, `7d`; a day has 24 hours. The error names the text and the fix.
///
/// The API server takes no other than such whole numbers with a unit each; flags also come as `1.5h` or `PT5M`.
pub fn parse_period(text: &str) -> Result<SignedDuration, String> {
    text.parse::<Span>()
        .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
        .ok()
        .filter(|period| !period.is_negative() && *period <= MAX)
        .ok_or_else(|| {
            format!("{text:?} is not a length of time: write it like 10s, 90s, 5m, 1h30m or 7d")
        })
}

/// A hundred years: no sensible length is longer, and moments can still be computed with it.
const MAX: SignedDuration = SignedDuration::from_hours(100 * 366 * 24);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_of_time() {
        let check = |text: &str, seconds: f64| {
            assert_eq!(parse_period(text).unwrap().as_secs_f64(), seconds, "{text}")
        };
        check("0s", 0.0);
        check("90s", 90.0);
        check("5m", 300.0);
        check("1h30m", 5400.0);
        check("7d", 604_800.0);
        check("1s500ms", 1.5);
        check("1.5h", 5400.0);
    }

    #[test]
    fn what_is_none_is_refused_with_the_fix() {
        for text in [
            "",
            "5",
            "-5m",
            "m",
            "5m5m",
            "5s1m",
            "1month",
            "99999999999999999999s",
            "999999d",
        ] {
            let problem = parse_period(text).unwrap_err();
            assert!(
                problem.contains(&format!("{text:?}")) && problem.contains("90s"),
                "{problem}"
            );
        }
    }

    proptest! {
        /// Whole numbers, each with a unit, largest unit first: all that fits the pattern of the CRDs and makes sense.
        #[test]
        fn what_the_api_server_takes_is_read(
            amounts in [0..36_600_u64, 0..100_000_u64, 0..100_000_u64, 0..100_000_u64, 0..100_000_u64],
            named in proptest::sample::subsequence(vec![0_usize, 1, 2, 3, 4], 1..=5),
        ) {
            const UNITS: [(&str, u64); 5] =
                [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
            let part = |&unit: &usize| format!("{}{}", amounts[unit], UNITS[unit].0);
            let text: String = named.iter().map(part).collect();
            let expected: u64 = named.iter().map(|&unit| amounts[unit] * UNITS[unit].1).sum();
            match parse_period(&text) {
                Ok(period) => prop_assert_eq!(period.as_millis(), i128::from(expected)),
                Err(_) => prop_assert!(i128::from(expected) > MAX.as_millis(), "{}", text),
            }
        }
    }
}
