//! Kubernetes quantities as integers.

/// A quantity in thousandths, rounded up: `100m` is 100, `1` is 1000, `1Ki` is 1,024,000. None when the text is no quantity
/// or too large.
pub(crate) fn thousandths(text: &str) -> Option<i64> {
    let split =
        text.find(|character: char| !character.is_ascii_digit() && !"+-.".contains(character));
    let (number, suffix) = text.split_at(split.unwrap_or(text.len()));
    // Thousandths of one unit of the suffix, as a fraction.
    let (numerator, denominator): (i128, i128) = match suffix {
        "" => (1_000, 1),
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        exponent => {
            let power: u32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            (1_000 * 10_i128.checked_pow(power)?, 1)
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let value: i128 = digits.parse().ok()?;
    let denominator = denominator * 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = value.checked_mul(numerator)?;
    let rounded_up =
        scaled.div_euclid(denominator) + i128::from(scaled.rem_euclid(denominator) != 0);
    i64::try_from(rounded_up).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(thousandths(text), expected, "{text}");
    }

    #[test]
    fn suffixes_and_fractions() {
        check("100m", Some(100));
        check("1", Some(1_000));
        check("0.5", Some(500));
        check("1.5Gi", Some(1_610_612_736_000));
        check("1k", Some(1_000_000));
        check("2e3", Some(2_000_000));
        check("1n", Some(1));
        check("110", Some(110_000));
        check("", None);
        check("1x", None);
    }
}
