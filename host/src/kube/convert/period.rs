//! Lengths of time as people write them.

use jiff::SignedDuration;

/// `90s`, `5m`, `1h30m`, `1500ms`, `7d`: whole numbers, each with a unit, largest unit first. The error names the text and the fix.
pub fn parse_period(text: &str) -> Result<SignedDuration, String> {
    let refused =
        || format!("{text:?} is not a length of time: write it like 90s, 5m, 1h30m or 7d");
    let mut rest = text;
    let mut total_ms: i64 = 0;
    let mut last_unit = i64::MAX;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 60 * 60 * 1000,
            "d" => 24 * 60 * 60 * 1000,
            _ => return Err(refused()),
        };
        if unit_ms >= last_unit {
            return Err(refused());
        }
        last_unit = unit_ms;
        let amount: i64 = number.parse().map_err(|_| refused())?;
        total_ms = amount
            .checked_mul(unit_ms)
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or_else(refused)?;
        rest = after;
    }
    if text.is_empty() || total_ms > MAX_MS {
        return Err(refused());
    }
    Ok(SignedDuration::from_millis(total_ms))
}

/// A hundred years: no sensible length is longer, and moments can still be computed with it.
const MAX_MS: i64 = 100 * 366 * 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn what_is_none_is_refused_with_the_fix() {
        for text in [
            "",
            "5",
            "5 m",
            "-5m",
            "m",
            "5m5m",
            "5s1m",
            "1.5h",
            "5min",
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
}
