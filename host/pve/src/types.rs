//! Lenient decoding of Proxmox's answers: one file of helpers, used with `#[serde(deserialize_with)]`.
//!
//! Proxmox: the published return types are never enforced. Numbers come as integers, floats or strings
//! (`"memory": "4096"`), booleans as `0`, `1`, `"1"` or `true`, fields are `null` or missing. A value that cannot be
//! read counts as missing, so that one odd field never hides a whole cluster; callers require what they cannot do without.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A number, whatever its clothing.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(as_number(&Value::deserialize(deserializer)?))
}

/// A non-negative whole number; fractions are cut off.
pub fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(as_count(&Value::deserialize(deserializer)?))
}

/// A signed whole number; fractions are cut off.
pub fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(as_integer(&Value::deserialize(deserializer)?))
}

/// A flag: absent, `0`, `""` and `"0"` are false.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(as_flag(&Value::deserialize(deserializer)?))
}

/// A text; numbers and booleans are taken as Perl would print them.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(as_text(&Value::deserialize(deserializer)?))
}

/// See [`number`].
pub fn as_number(value: &Value) -> Option<f64> {
    let read = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    read.filter(|number| number.is_finite())
}

/// See [`count`].
pub fn as_count(value: &Value) -> Option<u64> {
    as_integer(value).and_then(|number| u64::try_from(number).ok())
}

/// See [`integer`].
pub fn as_integer(value: &Value) -> Option<i64> {
    // Whole numbers first: a float holds only 53 bits of a byte count.
    let whole = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    whole.or_else(|| {
        as_number(value)
            .map(f64::trunc)
            .filter(|number| number.abs() < 9.0e18)
            .map(|number| number as i64)
    })
}

/// See [`flag`].
pub fn as_flag(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.trim(), "" | "0" | "no" | "off" | "false"),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// See [`text`].
pub fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(u8::from(*flag).to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The parts of a Proxmox list (`tags`, `content`): separated by `;`, `,` or blanks, in the order given.
pub fn list(text: &str) -> Vec<String> {
    text.split([';', ',', ' ', '\n', '\t', '\0'])
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn f55_numbers_wear_any_clothing() {
        for value in [json!(4096), json!("4096"), json!(4096.0), json!(" 4096 ")] {
            assert_eq!(as_count(&value), Some(4096), "{value}");
        }
        assert_eq!(as_count(&json!(25276514304_u64)), Some(25_276_514_304));
        assert_eq!(as_number(&json!("0.25")), Some(0.25));
        for value in [
            json!(null),
            json!("many"),
            json!([1]),
            json!(-1),
            json!("NaN"),
        ] {
            assert_eq!(as_count(&value), None, "{value}");
        }
    }

    #[test]
    fn flags_wear_any_clothing() {
        for value in [json!(1), json!("1"), json!(true), json!("yes")] {
            assert!(as_flag(&value), "{value}");
        }
        for value in [json!(0), json!("0"), json!(false), json!(null), json!("")] {
            assert!(!as_flag(&value), "{value}");
        }
    }

    #[test]
    fn lists_take_every_separator() {
        assert_eq!(list("a;b,c d"), ["a", "b", "c", "d"]);
        assert_eq!(list(""), Vec::<String>::new());
    }
}
