//! What recurs for a while: a schedule, for how long each time, and in which time zone. Open or closed is a pure function of
//! the moment. The zones are those that jiff brings, never the system's: the planner does no I/O.

use std::fmt;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use super::later;

/// One time lasts no longer than this.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// One time lasts no shorter than this.
pub const SHORTEST: SignedDuration = SignedDuration::from_mins(1);

/// Longer than any clock was ever set forward or back.
const CLOCK_CHANGE: SignedDuration = SignedDuration::from_hours(25);

/// So many that follow each other without a break are looked at.
const MOST_JOINED: usize = 1000;

/// What recurs, as it was written and read.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Recurring {
    written: Written,
    cron: Cron,
    zone: TimeZone,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    schedule: Arc<str>,
    duration: SignedDuration,
    zone: Option<Arc<str>>,
}

/// The field that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub field: &'static str,
    pub problem: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl Recurring {
    /// # Errors
    /// A part cannot be read; says which, and how to write it.
    pub fn read(
        schedule: &str,
        duration: SignedDuration,
        zone: Option<&str>,
    ) -> Result<Self, Unreadable> {
        let cron = Cron::read(schedule).map_err(|problem| Unreadable {
            field: "schedule",
            problem,
        })?;
        if duration < SHORTEST || duration > LONGEST {
            return Err(Unreadable {
                field: "duration",
                problem: format!("{duration:#} is not between 1m and 7d"),
            });
        }
        let name = zone.unwrap_or("UTC");
        let found = TimeZoneDatabase::bundled().get(name);
        let found = found.map_err(|_| Unreadable {
            field: "timeZone",
            problem: format!("{name:?} is no time zone of the IANA database: write one such as Europe/Berlin, or UTC"),
        })?;
        Ok(Self {
            written: Written {
                schedule: schedule.into(),
                duration,
                zone: zone.map(Arc::from),
            },
            cron,
            zone: found,
        })
    }

    /// When it closes, unless it starts again by then. `None`: it is closed now.
    pub fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let start = self.last_start(now)?;
        Some(later(start, self.written.duration)).filter(|end| *end > now)
    }

    /// The first start after this.
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let start = self.cron.next(self.wall_clock(now))?;
        Some(self.moment(start))
    }

    /// The last start that is not after `until` and not too long ago to be open.
    fn last_start(&self, until: Timestamp) -> Option<Timestamp> {
        let within = self.written.duration + CLOCK_CHANGE;
        let start = self.cron.last(self.wall_clock(until), within)?;
        Some(self.moment(start))
    }

    /// The latest time that the clock on the wall has shown by then: after it was set back, that is before the change.
    fn wall_clock(&self, moment: Timestamp) -> DateTime {
        let after = later(moment, SignedDuration::from_nanos(1));
        let changed = self.zone.preceding(after).next();
        let before = changed.and_then(|change| {
            let last = change
                .timestamp()
                .checked_sub(SignedDuration::from_nanos(1))
                .ok()?;
            Some(self.zone.to_datetime(last))
        });
        let now = self.zone.to_datetime(moment);
        before.map_or(now, |before| before.max(now))
    }

    /// When the clock on the wall shows this for the first time. A time that it leaves out is at the moment of the change.
    fn moment(&self, time: DateTime) -> Timestamp {
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        let is_left_out = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
        // Of a time that comes twice the first; of one that is left out a moment after the change.
        let found = match is_left_out {
            true => ambiguous.later(),
            false => ambiguous.earlier(),
        };
        let found = found.unwrap_or(Timestamp::MAX);
        let after = later(found, SignedDuration::from_nanos(1));
        let change = self.zone.preceding(after).next().filter(|_| is_left_out);
        change.map_or(found, |change| change.timestamp())
    }
}

/// When the one that is open longest closes, as far as it has started by now. `None`: all are closed.
pub fn end<'a>(all: impl Iterator<Item = &'a Recurring>, now: Timestamp) -> Option<Timestamp> {
    all.filter_map(|it| it.end(now)).max()
}

/// At each moment from `now` to `until` one of them is open.
pub fn are_open<'a>(
    all: impl Iterator<Item = &'a Recurring> + Clone,
    now: Timestamp,
    until: Timestamp,
) -> bool {
    let mut open_until = now;
    for _ in 0..MOST_JOINED {
        match end(all.clone(), open_until) {
            Some(end) if end >= until => return true,
            Some(end) => open_until = end,
            None => return false,
        }
    }
    false
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
            zone,
        } = &self.written;
        let zone = zone.as_deref().unwrap_or("UTC");
        write!(f, "\"{schedule}\" ({zone}) for {duration:#}")
    }
}

impl From<Recurring> for Written {
    fn from(recurring: Recurring) -> Self {
        recurring.written
    }
}

impl TryFrom<Written> for Recurring {
    type Error = Unreadable;

    fn try_from(written: Written) -> Result<Self, Unreadable> {
        let Written {
            schedule,
            duration,
            zone,
        } = written;
        Self::read(&schedule, duration, zone.as_deref())
    }
}

#[cfg(test)]
mod tests;
