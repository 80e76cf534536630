//! How many machines may go at once: `disruption.budgets` of a NodePool.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::disruption::DisruptionReason;
use super::recurring::Recurring;
use super::written::Period;

/// How many machines may go at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenBudget", into = "WrittenBudget")]
pub struct DisruptionBudget {
    pub nodes: Share,
    /// Empty: all six.
    pub reasons: Vec<DisruptionReason>,
    /// `None`: always.
    pub when: Option<Recurring>,
}

/// How many machines may go at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "has(self.schedule) == has(self.duration) && (has(self.schedule) || !has(self.timeZone))",
        "message": "schedule and duration go together, and timeZone only with them: give both, or none for a budget that always holds"
    }]))
)]
struct WrittenBudget {
    /// At most so many of the pool's machines are going at once: a number such as `1`, or a share such as `10%` of those
    /// that are initialized, rounded up, less those that are going or not Ready.
    nodes: Share,
    /// The reasons that it limits: Empty, Underutilized, Expired, Drifted, Maintenance, Replace. Not given: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 6)))]
    reasons: Vec<DisruptionReason>,
    /// When it becomes active, as of a window. Not given: it always is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    schedule: Option<Arc<str>>,
    /// For how long it is active, such as `8h`: 1m to 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration: Option<Period>,
    /// Time zone of the schedule, such as `Europe/Berlin`. Not given: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    time_zone: Option<Arc<str>>,
}

impl DisruptionBudget {
    pub fn is_active(&self, now: Timestamp) -> bool {
        let when = self.when.as_ref();
        when.is_none_or(|when| when.end(now).is_some())
    }
}

impl From<WrittenBudget> for DisruptionBudget {
    fn from(written: WrittenBudget) -> Self {
        let WrittenBudget {
            nodes,
            reasons,
            schedule,
            duration,
            time_zone,
        } = written;
        let is_always = schedule.is_none() && duration.is_none() && time_zone.is_none();
        // One that is given in part is none that always holds: it cannot be read.
        let when = || {
            let schedule = schedule.unwrap_or_default();
            Recurring::new(
                &schedule,
                duration.unwrap_or_default(),
                time_zone.as_deref(),
            )
        };
        Self {
            nodes,
            reasons,
            when: (!is_always).then(when),
        }
    }
}

impl From<DisruptionBudget> for WrittenBudget {
    fn from(budget: DisruptionBudget) -> Self {
        let when = budget.when.as_ref();
        Self {
            nodes: budget.nodes,
            reasons: budget.reasons,
            schedule: when.map(|when| when.schedule().clone()),
            duration: when.map(Recurring::duration),
            time_zone: when.and_then(|when| when.time_zone().cloned()),
        }
    }
}

/// A number of machines, or a share of a pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Nodes(u32),
    Percent(u32),
}

/// How a pool's machines stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Going {
    /// Those that are or were in service.
    pub initialized: u32,
    /// Of them those that are going for whatever reason, or are not Ready.
    pub out: u32,
    /// Going for one of the reasons that budgets limit.
    pub disrupted: u32,
}

/// How many more machines may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub machines: u32,
    /// By this.
    pub by: Share,
}

/// How many more machines may go by the strictest of these. `None`: there are none.
pub fn strictest(shares: &[Share], pool: Going) -> Option<Left> {
    let left = shares.iter().map(|share| share.left(pool));
    left.min_by_key(|left| left.machines)
}

impl Share {
    fn left(self, pool: Going) -> Left {
        let machines = match self {
            Self::Nodes(most) => most.saturating_sub(pool.disrupted),
            Self::Percent(percent) => {
                let most = u64::from(pool.initialized) * u64::from(percent);
                let most = u32::try_from(most.div_ceil(100)).unwrap_or(u32::MAX);
                most.saturating_sub(pool.out)
            }
        };
        Left { machines, by: self }
    }

    /// # Errors
    /// It is none; says how to write one.
    fn read(text: &str) -> Result<Self, String> {
        let number = |text: &str, most: u32| {
            let is_plain = text.bytes().all(|letter| letter.is_ascii_digit());
            text.parse()
                .ok()
                .filter(|number| is_plain && *number <= most)
        };
        let read = match text.strip_suffix('%') {
            Some(percent) => number(percent, 100).map(Self::Percent),
            None => number(text, MOST_NODES).map(Self::Nodes),
        };
        read.ok_or_else(|| {
            format!("{text:?} is no number of machines: write 0 to {MOST_NODES}, or 0% to 100%")
        })
    }
}

const MOST_NODES: u32 = 5000;

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nodes(nodes) => serializer.serialize_u32(*nodes),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "invalid type: expected a number of machines such as 1, or a share such as 10%"
        )]
        enum Form {
            Text(String),
            Number(i64),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Text(text) => text,
            Form::Number(number) => number.to_string(),
        };
        Self::read(&text).map_err(de::Error::custom)
    }
}

/// What the API server accepts.
#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{DisruptionBudget, Share, WrittenBudget};

    impl JsonSchema for DisruptionBudget {
        fn schema_name() -> Cow<'static, str> {
            "DisruptionBudget".into()
        }

        fn inline_schema() -> bool {
            true
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            WrittenBudget::json_schema(generator)
        }
    }

    impl JsonSchema for Share {
        fn schema_name() -> Cow<'static, str> {
            "Share".into()
        }

        fn inline_schema() -> bool {
            true
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "x-kubernetes-int-or-string": true,
                "pattern": "^(100%|[0-9]{1,2}%|[0-4]?[0-9]{1,3}|5000)$",
                "maxLength": 4,
                "minimum": 0,
                "maximum": 5000,
            })
        }
    }
}
