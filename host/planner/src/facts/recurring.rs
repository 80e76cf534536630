//! What recurs for a while: a schedule, for how long each time, and in which time zone. Open or closed is a pure function of
//! the moment. The zones are those that jiff brings, never the system's: the planner does no I/O.

use std::fmt;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::written::Period;
use crate::time::cron::Cron;
use crate::time::later;

/// One time lasts no longer than this.
const LONGEST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// One time lasts no shorter than this.
const SHORTEST: SignedDuration = SignedDuration::from_mins(1);

/// Longer than any clock was ever set forward or back.
const CLOCK_CHANGE: SignedDuration = SignedDuration::from_hours(25);

/// So many that follow each other without a break are looked at.
const MOST_JOINED: usize = 1000;

/// What recurs. One that cannot be read never opens, and says what is wrong with it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Recurring {
    written: Written,
    read: Result<(Cron, TimeZone), Unreadable>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Written {
    /// When it opens: five fields as of a CronJob (minute, hour, day of month, month, day of week), such as
    /// `0 22 * * 1-5`, or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    schedule: Arc<str>,
    /// For how long it is open, such as `8h`: 1m to 7d.
    duration: Period,
    /// Time zone of the schedule, such as `Europe/Berlin`. Not given: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    time_zone: Option<Arc<str>>,
}

/// The field that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub field: &'static str,
    pub problem: String,
}

impl Recurring {
    pub fn new(schedule: &str, duration: Period, time_zone: Option<&str>) -> Self {
        Self::from(Written {
            schedule: schedule.into(),
            duration,
            time_zone: time_zone.map(Arc::from),
        })
    }

    /// In the place of what cannot be read: it never opens.
    pub fn unreadable() -> Self {
        Self::new("", Period::default(), None)
    }

    /// What is wrong with it. Then it never opens.
    pub fn problem(&self) -> Option<&Unreadable> {
        self.read.as_ref().err()
    }

    pub(crate) fn schedule(&self) -> &Arc<str> {
        &self.written.schedule
    }

    pub(crate) fn duration(&self) -> Period {
        self.written.duration
    }

    pub(crate) fn time_zone(&self) -> Option<&Arc<str>> {
        self.written.time_zone.as_ref()
    }

    /// When it closes, unless it starts again by then. `None`: it is closed now.
    pub fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let (cron, zone) = self.read.as_ref().ok()?;
        let duration = self.written.duration.0;
        let start = cron.last(wall_clock(zone, now), duration + CLOCK_CHANGE)?;
        Some(later(moment(zone, start), duration)).filter(|end| *end > now)
    }

    /// The first start after this.
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let (cron, zone) = self.read.as_ref().ok()?;
        let start = cron.next(wall_clock(zone, now))?;
        Some(moment(zone, start))
    }

    /// The next moment at which it opens or closes.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.end(now).or_else(|| self.next_start(now))
    }
}

/// The latest time that the clock on the wall has shown by then: after it was set back, that is before the change.
fn wall_clock(zone: &TimeZone, moment: Timestamp) -> DateTime {
    let instant = SignedDuration::from_nanos(1);
    let changed = zone.preceding(later(moment, instant)).next();
    let last = changed.and_then(|change| change.timestamp().checked_sub(instant).ok());
    let now = zone.to_datetime(moment);
    last.map_or(now, |last| zone.to_datetime(last).max(now))
}

/// When the clock on the wall shows this for the first time. A time that it leaves out is at the moment of the change.
fn moment(zone: &TimeZone, time: DateTime) -> Timestamp {
    let ambiguous = zone.to_ambiguous_timestamp(time);
    let is_left_out = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
    // Of a time that comes twice the first; of one that is left out a moment after the change.
    let found = match is_left_out {
        true => ambiguous.later(),
        false => ambiguous.earlier(),
    };
    let found = found.unwrap_or(Timestamp::MAX);
    let after = later(found, SignedDuration::from_nanos(1));
    let change = zone.preceding(after).next().filter(|_| is_left_out);
    change.map_or(found, |change| change.timestamp())
}

/// When the one that is open longest closes, as far as it has started by now. `None`: all are closed.
pub fn end_of<'a>(all: impl Iterator<Item = &'a Recurring>, now: Timestamp) -> Option<Timestamp> {
    all.filter_map(|it| it.end(now)).max()
}

/// From now on, one of them is open at each moment until then. It looks no further than `enough`.
pub fn open_until<'a>(
    all: impl Iterator<Item = &'a Recurring> + Clone,
    now: Timestamp,
    enough: Timestamp,
) -> Timestamp {
    let mut until = now;
    for _ in 0..MOST_JOINED {
        match end_of(all.clone(), until) {
            Some(end) if until < enough => until = end,
            Some(_) | None => break,
        }
    }
    until
}

/// At each moment from `now` to `until` one of them is open.
pub fn are_open<'a>(
    all: impl Iterator<Item = &'a Recurring> + Clone,
    now: Timestamp,
    until: Timestamp,
) -> bool {
    open_until(all.clone(), now, until) >= until && end_of(all, now).is_some()
}

/// When the first of them opens next.
pub fn next_start<'a>(
    all: impl Iterator<Item = &'a Recurring>,
    now: Timestamp,
) -> Option<Timestamp> {
    all.filter_map(|it| it.next_start(now)).min()
}

impl PartialEq for Recurring {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl fmt::Debug for Recurring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

/// As people read it.
impl fmt::Display for Recurring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written {
            schedule,
            duration,
            time_zone,
        } = &self.written;
        let zone = time_zone.as_deref().unwrap_or("UTC");
        write!(f, "\"{schedule}\" ({zone}) for {:#}", duration.0)
    }
}

impl From<Recurring> for Written {
    fn from(recurring: Recurring) -> Self {
        recurring.written
    }
}

impl From<Written> for Recurring {
    fn from(written: Written) -> Self {
        let read = read(&written);
        Self { written, read }
    }
}

fn read(written: &Written) -> Result<(Cron, TimeZone), Unreadable> {
    let unreadable = |field| move |problem| Unreadable { field, problem };
    let cron = Cron::read(&written.schedule).map_err(unreadable("schedule"))?;
    let Period(duration) = written.duration;
    if duration < SHORTEST || duration > LONGEST {
        let problem = format!("{duration:#} is not between 1m and 7d");
        return Err(unreadable("duration")(problem));
    }
    let name = written.time_zone.as_deref().unwrap_or("UTC");
    match TimeZoneDatabase::bundled().get(name) {
        Ok(zone) => Ok((cron, zone)),
        Err(_) => Err(unreadable("timeZone")(format!(
            "{name:?} is no time zone of the IANA database: write one such as Europe/Berlin, or UTC"
        ))),
    }
}

/// What the API server accepts.
#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator};

    use super::{Recurring, Written};

    impl JsonSchema for Recurring {
        fn schema_name() -> Cow<'static, str> {
            "Recurring".into()
        }

        fn inline_schema() -> bool {
            true
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            Written::json_schema(generator)
        }
    }
}

#[cfg(test)]
mod tests;
