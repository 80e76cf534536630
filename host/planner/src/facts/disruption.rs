//! When machines of a pool may go, and how many at once: `disruption` of a NodePool.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::recurring::{Recurring, end_of, next_start};
use super::written::Period;

/// Why a machine goes that works and could stay, in the words of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DisruptionReason {
    /// It runs no pod that would have to move.
    Empty,
    /// Its pods fit on other Nodes.
    Underutilized,
    /// Older than the pool's `expireAfter`.
    Expired,
    /// Its class or its template has changed.
    Drifted,
    /// Its server is to be emptied.
    Maintenance,
    /// The annotation `kproxide.dev/replace`.
    Replace,
}

impl DisruptionReason {
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Underutilized,
        Self::Expired,
        Self::Drifted,
        Self::Maintenance,
        Self::Replace,
    ];

    /// A window that names no reason means it. The others are what a person asks for.
    fn is_of_every_window(self) -> bool {
        match self {
            Self::Empty | Self::Underutilized | Self::Expired | Self::Drifted => true,
            Self::Maintenance | Self::Replace => false,
        }
    }

    /// A person wants it of one machine or server. One that is not Ready may then go whatever the budgets say, as its
    /// repair may.
    pub fn is_asked_for(self) -> bool {
        !self.is_of_every_window()
    }
}

impl fmt::Display for DisruptionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How machines are replaced, and when and how many machines may go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disruption {
    /// kproxide makes the new machine before it drains the old one, if pods need it. true: where there is no room for both,
    /// a machine older than `expireAfter` goes first. false: it stays until there is room. Repairs, and replacements that
    /// you ask for (`kproxide.dev/replace`), go first in any case.
    pub old_first: bool,
    /// When removals may begin. A reason that some window names begins only while one of its windows is open; what has
    /// begun goes to its end. A machine is replaced only if the timeouts for clone, provision and join of its
    /// replacement end in the window. Empty: at any time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub windows: Vec<DisruptionWindow>,
    /// How many machines may go at once. Of the active budgets for a reason the strictest holds; where none is active, 10%.
    /// Then `scaleDown.budget` holds for repairs and for the deletion of the pool alone. Empty: `scaleDown.budget` holds
    /// for everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub budgets: Vec<DisruptionBudget>,
}

impl Disruption {
    /// The windows that a removal for this reason keeps to. None: it may begin at any time.
    pub fn windows_for(
        &self,
        reason: DisruptionReason,
    ) -> impl Iterator<Item = &Recurring> + Clone {
        let windows = self.windows.iter();
        let named = windows
            .filter(move |window| names(&window.reasons, reason, |it| it.is_of_every_window()));
        named.map(|window| &window.when)
    }

    /// When a removal for this reason may begin, if not now.
    pub fn closed_until(&self, reason: DisruptionReason, now: Timestamp) -> Option<Closed> {
        let windows = self.windows_for(reason);
        closed_until(windows, now)
    }

    /// How many more machines may go for this reason, and what says so. `None`: the pool has no `budgets`.
    pub fn left(&self, reason: DisruptionReason, now: Timestamp, pool: Going) -> Option<Left> {
        if self.budgets.is_empty() {
            return None;
        }
        let active = self.budgets.iter().filter(|budget| {
            let is_active = budget
                .when
                .as_ref()
                .is_none_or(|when| when.end(now).is_some());
            is_active && names(&budget.reasons, reason, |_| true)
        });
        let left = active.map(|budget| budget.nodes.left(pool));
        let otherwise = || Share::Percent(10).left(pool);
        Some(
            left.min_by_key(|left| left.machines)
                .unwrap_or_else(otherwise),
        )
    }

    /// All times, each with its field.
    pub fn times(&self) -> impl Iterator<Item = (String, &Recurring)> {
        let windows = self.windows.iter().enumerate();
        let windows = windows.map(|(at, it)| (format!("disruption.windows[{at}]"), &it.when));
        let budgets = self.budgets.iter().enumerate();
        let budgets = budgets
            .filter_map(|(at, it)| Some((format!("disruption.budgets[{at}]"), it.when.as_ref()?)));
        windows.chain(budgets)
    }
}

/// Of the list, or of those that an empty list means.
fn names(
    list: &[DisruptionReason],
    reason: DisruptionReason,
    by_default: impl Fn(DisruptionReason) -> bool,
) -> bool {
    match list.is_empty() {
        true => by_default(reason),
        false => list.contains(&reason),
    }
}

/// If there are any, and all are closed: until when.
pub fn closed_until<'a>(
    windows: impl Iterator<Item = &'a Recurring> + Clone,
    now: Timestamp,
) -> Option<Closed> {
    let is_open = windows.clone().next().is_none() || end_of(windows.clone(), now).is_some();
    (!is_open).then(|| Closed {
        opens: next_start(windows, now),
    })
}

/// No window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The next one opens then. `None`: none ever does, because it cannot be read.
    pub opens: Option<Timestamp>,
}

/// When removals may begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DisruptionWindow {
    /// Empty, Underutilized, Expired, Drifted, Maintenance, Replace. Not given: the first four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 6)))]
    pub reasons: Vec<DisruptionReason>,
    #[serde(flatten)]
    pub when: Recurring,
}

impl DisruptionWindow {
    /// In the place of windows that cannot be read: nothing may begin.
    pub fn unreadable() -> Self {
        Self {
            reasons: Vec::new(),
            when: Recurring::new("", Period::default(), None),
        }
    }
}

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

impl Going {
    /// One more goes, which was Ready or not.
    pub fn one_goes(&mut self, was_ready: bool) {
        self.disrupted += 1;
        self.out += u32::from(was_ready);
    }
}

/// How many more machines may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub machines: u32,
    /// By this.
    pub by: Share,
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
                "pattern": "^(100%|[0-9]{1,2}%|[0-9]{1,4})$",
                "minimum": 0,
                "maximum": 5000,
            })
        }
    }
}

#[cfg(test)]
mod tests;
