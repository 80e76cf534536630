//! Lengths of time and amounts as people write them in specifications. One that cannot be read is an error that names the text and the fix.

use std::ops::Deref;
use std::sync::Arc;

use jiff::SignedDuration;
use jiff::fmt::friendly::{Spacing, SpanPrinter};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::kubernetes::quantity::Quantity;
use crate::time::parse_period;

/// A length of time: `90s`, `5m`, `1h30m`, `7d`, `0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub SignedDuration);

impl Period {
    pub const fn minutes(minutes: i64) -> Self {
        Self(SignedDuration::from_mins(minutes))
    }

    /// As people write it, such as `1h30m`.
    pub fn written(self) -> String {
        let printer = SpanPrinter::new().spacing(Spacing::None);
        printer.duration_to_string(&self.0)
    }
}

impl From<SignedDuration> for Period {
    fn from(duration: SignedDuration) -> Self {
        Self(duration)
    }
}

impl Deref for Period {
    type Target = SignedDuration;

    fn deref(&self) -> &SignedDuration {
        &self.0
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written())
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_period(&text).map(Self).map_err(de::Error::custom)
    }
}

/// A Kubernetes quantity of at least 0, such as `500m`, `2`, `512Mi`; a bare number may be written without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    written: Arc<str>,
    amount: Quantity,
}

impl Amount {
    /// # Errors
    /// It is none, or less than 0; says which text and why.
    pub fn read(written: &str) -> Result<Self, String> {
        let amount: Quantity = written.parse().map_err(|it| format!("{it}"))?;
        if amount < Quantity::default() {
            return Err(format!("{written:?} is negative"));
        }
        let written = written.into();
        Ok(Self { written, amount })
    }

    pub fn mib(mib: u32) -> Self {
        Self::read(&format!("{mib}Mi")).expect("a number and a unit")
    }

    /// Thousandths, rounded up.
    pub fn milli_up(&self) -> i64 {
        self.amount.milli_up()
    }

    /// Whole units, rounded up.
    pub fn units_up(&self) -> i64 {
        self.amount.units_up()
    }

    /// The same, of what cannot be less than none.
    pub fn bytes(&self) -> u64 {
        self.units_up().unsigned_abs()
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self {
            written: "0".into(),
            amount: Quantity::default(),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "invalid type: expected a quantity such as 500m, 2 or 4Gi"
        )]
        enum Written {
            Text(String),
            Whole(u64),
            Negative(i64),
            Fraction(f64),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Whole(number) => number.to_string(),
            Written::Negative(number) => number.to_string(),
            Written::Fraction(number) => number.to_string(),
        };
        Self::read(&text).map_err(de::Error::custom)
    }
}

/// Amounts of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuAndMemory {
    /// CPU, such as `500m` or `2`.
    pub cpu: Amount,
    /// Memory, such as `512Mi`.
    pub memory: Amount,
}

impl CpuAndMemory {
    pub fn milli_cores(&self) -> u64 {
        self.cpu.milli_up().unsigned_abs()
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

/// What the API server accepts.
#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Amount, Period};

    impl JsonSchema for Period {
        fn schema_name() -> Cow<'static, str> {
            "Period".into()
        }

        fn inline_schema() -> bool {
            true
        }

        /// One or more numbers with a unit each.
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "string", "pattern": "^([0-9]+(d|h|m|s|ms))+$", "maxLength": 32 })
        }
    }

    impl JsonSchema for Amount {
        fn schema_name() -> Cow<'static, str> {
            "Amount".into()
        }

        fn inline_schema() -> bool {
            true
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "x-kubernetes-int-or-string": true,
                "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_period_is_written_as_it_is_read() {
        for text in ["0s", "90s", "15m", "1h30m", "500ms", "7d", "1s500ms"] {
            let period: Period = serde_json::from_value(json!(text)).unwrap();
            let written = serde_json::to_value(period).unwrap();
            let back: Period = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(back, period, "{written}");
        }
        assert_eq!(Period::minutes(15).written(), "15m");
        assert_eq!(Period::default().written(), "0s");
        let soon = serde_json::from_value::<Period>(json!("soon")).unwrap_err();
        let expected = "\"soon\" is not a length of time: write it like 10s";
        assert!(soon.to_string().starts_with(expected), "{soon}");
    }

    #[test]
    fn an_amount_is_a_text_or_a_number_of_at_least_0() {
        let read = |value: serde_json::Value| {
            let read = serde_json::from_value::<Amount>(value);
            read.map(|it| it.milli_up()).map_err(|it| it.to_string())
        };
        assert_eq!(read(json!("500m")), Ok(500));
        assert_eq!((read(json!(2)), read(json!(0.5))), (Ok(2000), Ok(500)));
        for (value, problem) in [
            (json!("two"), "\"two\" is not a quantity"),
            (json!("-1"), "\"-1\" is negative"),
            (json!(-1), "\"-1\" is negative"),
            (json!([1]), "invalid type: expected a quantity"),
        ] {
            let found = read(value).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
        let written = serde_json::to_value(Amount::read("0.5Gi").unwrap()).unwrap();
        assert_eq!(written, "0.5Gi");
    }
}
