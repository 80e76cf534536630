//! Kubernetes quantities, exactly: `500m`, `1.5Gi`, `1e3`, `-2`.
//!
//! A quantity is a whole number of billionths, as in Kubernetes (`k8s.io/apimachinery/pkg/api/resource`): what is finer is rounded away
//! from zero, what is beyond ±(2⁶³ − 1) is cut off there. Nothing goes through a float.

use std::fmt;
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
const LARGEST: i128 = i64::MAX as i128 * NANO;

/// No sensible quantity is longer; it bounds the work on hostile input.
const LONGEST: usize = 256;

/// An exact amount, in billionths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

impl Quantity {
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(if nanos > LARGEST {
            LARGEST
        } else if nanos < -LARGEST {
            -LARGEST
        } else {
            nanos
        })
    }

    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// In whole units, rounded up: what a request weighs.
    pub fn units_up(self) -> i64 {
        clamp(div_up(self.0, NANO))
    }

    /// In whole units, rounded down: what an offer is worth.
    pub fn units_down(self) -> i64 {
        clamp(self.0.div_euclid(NANO))
    }

    /// In thousandths, rounded up.
    pub fn milli_up(self) -> i64 {
        clamp(div_up(self.0, NANO / 1000))
    }

    /// In thousandths, rounded down.
    pub fn milli_down(self) -> i64 {
        clamp(self.0.div_euclid(NANO / 1000))
    }
}

/// Why a text is no quantity; names the text, so that the user finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Empty,
    TooLong,
    NoDigits,
    Suffix,
    Exponent,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem } = self;
        write!(f, "{text:?} is not a quantity: ")?;
        f.write_str(match problem {
            Problem::Empty => "it is empty; write a number such as 500m, 2 or 4Gi",
            Problem::TooLong => "it is longer than 256 characters",
            Problem::NoDigits => "it does not begin with a number",
            Problem::Suffix => {
                "its suffix is unknown; use n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
            }
            Problem::Exponent => "its exponent is not a whole number",
        })
    }
}

impl std::error::Error for QuantityError {}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).map_err(|problem| QuantityError {
            text: text.chars().take(64).collect(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Quantity, Problem> {
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    if text.len() > LONGEST {
        return Err(Problem::TooLong);
    }
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(Problem::NoDigits);
    }
    let (power_of_two, power_of_ten) = scale(suffix)?;

    let mut digits: Vec<u8> = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|byte| byte - b'0')
        .skip_while(|digit| *digit == 0)
        .collect();
    if digits.is_empty() {
        return Ok(Quantity(0));
    }
    multiply(&mut digits, 1 << power_of_two);
    // Billionths, hence the 9.
    let shift = power_of_ten + 9 - fraction.len() as i64;
    let nanos = shifted(&digits, shift).min(LARGEST);
    Ok(Quantity(if negative { -nanos } else { nanos }))
}

/// The powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Result<(u32, i64), Problem> {
    Ok(match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(Problem::Suffix)?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Problem::Exponent);
            }
            // Beyond this every number is 0 or too large anyway.
            let size = digits.parse::<i64>().unwrap_or(i64::MAX).min(100_000);
            (
                0,
                if exponent.starts_with('-') {
                    -size
                } else {
                    size
                },
            )
        }
    })
}

/// Multiplies decimal digits, highest first, by at most 2⁶⁰.
fn multiply(digits: &mut Vec<u8>, factor: u128) {
    if factor == 1 {
        return;
    }
    let mut carry = 0u128;
    for digit in digits.iter_mut().rev() {
        let product = u128::from(*digit) * factor + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    let mut high = Vec::new();
    while carry > 0 {
        high.push((carry % 10) as u8);
        carry /= 10;
    }
    digits.splice(0..0, high.into_iter().rev());
}

/// `digits × 10^shift`, rounded up to a whole number and cut off at [`LARGEST`].
fn shifted(digits: &[u8], shift: i64) -> i128 {
    // 28 digits hold LARGEST; a number that begins with a digit other than 0 and has more is larger.
    let length = digits.len() as i64 + shift;
    if length > 28 {
        return LARGEST;
    }
    let kept = length.clamp(0, digits.len() as i64) as usize;
    let mut value = digits[..kept]
        .iter()
        .fold(0i128, |value, digit| value * 10 + i128::from(*digit));
    for _ in 0..shift.max(0) {
        value *= 10;
    }
    let lost = digits[kept..].iter().any(|digit| *digit != 0);
    value + i128::from(lost)
}

fn div_up(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

fn clamp(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, nanos: i128) {
        assert_eq!(
            text.parse::<Quantity>().map(Quantity::nanos),
            Ok(nanos),
            "{text}"
        );
    }

    #[test]
    fn every_suffix_has_its_meaning() {
        for (text, units_times_nano) in [
            ("1n", 1),
            ("1u", 1_000),
            ("1m", 1_000_000),
            ("1", NANO),
            ("1k", 1_000 * NANO),
            ("1M", 1_000_000 * NANO),
            ("1G", 1_000_000_000 * NANO),
            ("1T", 1_000_000_000_000 * NANO),
            ("1P", 1_000_000_000_000_000 * NANO),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("1Ki", (1 << 10) * NANO),
            ("1Mi", (1 << 20) * NANO),
            ("1Gi", (1 << 30) * NANO),
            ("1Ti", (1 << 40) * NANO),
            ("1Pi", (1 << 50) * NANO),
            ("1Ei", (1 << 60) * NANO),
            ("1e3", 1_000 * NANO),
            ("1E3", 1_000 * NANO),
            ("1e+3", 1_000 * NANO),
            ("1e-3", 1_000_000),
            ("0e99999999999999999999", 0),
        ] {
            check(text, units_times_nano);
        }
    }

    #[test]
    fn numbers_of_every_form() {
        check("0", 0);
        check("-0", 0);
        check("+5", 5 * NANO);
        check("-1.5", -1_500_000_000);
        check(".5", 500_000_000);
        check("5.", 5 * NANO);
        check("000100m", 100_000_000);
        check("0.1Gi", 107_374_182_400_000_000);
        check("1.5Gi", 3 * (1 << 29) * NANO);
        check("0.25Ei", (1 << 58) * NANO);
        check("123456.789012345m", 123_456_789_013);
    }

    #[test]
    fn what_is_finer_than_a_billionth_rounds_away_from_zero() {
        check("0.1n", 1);
        check("-0.1n", -1);
        check("1e-40", 1);
        check("1.0000000000000000000000000000001n", 2);
        check("0.0000000000000000000000001Ei", 116);
    }

    #[test]
    fn what_is_too_large_is_cut_off() {
        for text in [
            "8Ei",
            "9223372036854775808",
            "1e30",
            "1e99999999999999999999",
            "99E",
        ] {
            check(text, LARGEST);
            check(&format!("-{text}"), -LARGEST);
        }
        check("9223372036854775807", LARGEST);
    }

    #[test]
    fn requests_round_up_and_offers_down() {
        let quantity: Quantity = "1.0001".parse().unwrap();
        assert_eq!(
            [
                quantity.units_up(),
                quantity.units_down(),
                quantity.milli_up(),
                quantity.milli_down()
            ],
            [2, 1, 1001, 1000]
        );
        let negative: Quantity = "-1.5".parse().unwrap();
        assert_eq!([negative.units_up(), negative.units_down()], [-1, -2]);
        assert_eq!("9E".parse::<Quantity>().unwrap().milli_up(), i64::MAX);
    }

    #[test]
    fn what_is_no_quantity_says_so() {
        let message = |text: &str| text.parse::<Quantity>().unwrap_err().to_string();
        assert!(message("").contains("it is empty"));
        assert!(message("4GB").contains("\"4GB\" is not a quantity: its suffix is unknown"));
        assert!(message("half").contains("does not begin with a number"));
        for text in [
            "-", ".", "1..2", "1.2.3", " 1", "1 ", "1ki", "1K", "1kI", "1mi", "--1", "1e", "1e1.5",
            "1eK", "1Gi5", "½", "1½",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
        assert!(message(&"1".repeat(300)).contains("longer than 256"));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn decimal_numbers_keep_their_value(value in -LARGEST..=LARGEST) {
            let sign = if value < 0 { "-" } else { "" };
            let size = value.unsigned_abs();
            let text = format!("{sign}{}.{:09}", size / NANO as u128, size % NANO as u128);
            prop_assert_eq!(text.parse::<Quantity>().unwrap().nanos(), value);
            let text = format!("{value}n");
            prop_assert_eq!(text.parse::<Quantity>().unwrap().nanos(), value);
        }

        #[test]
        fn binary_suffixes_are_powers_of_1024(units in 0i128..8192, power in 1u32..6) {
            let suffix = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power as usize - 1];
            let quantity: Quantity = format!("{units}{suffix}").parse().unwrap();
            prop_assert_eq!(quantity, Quantity::from_nanos(units * (1i128 << (10 * power)) * NANO));
        }

        #[test]
        fn rounding_encloses_the_value(nanos in -LARGEST..=LARGEST) {
            let quantity = Quantity::from_nanos(nanos);
            prop_assert!(i128::from(quantity.units_down()) * NANO <= nanos);
            prop_assert!(i128::from(quantity.units_up()) * NANO >= nanos);
            prop_assert!(quantity.units_up() - quantity.units_down() <= 1);
        }
    }
}
