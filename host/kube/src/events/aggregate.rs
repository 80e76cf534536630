//! Which Events are written, and how: the first of its kind as an object, repetitions as its series, a flood not at all. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::Digest as _;

use super::{About, Event};

/// A repetition within this time belongs to the series; later, it is one of its own. As client-go has it.
const SERIES_GAP: SignedDuration = SignedDuration::from_mins(6);
/// A series is written again at most this often.
const SERIES_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// Events of one reason that one object may get at once, and how long it takes to earn another. Reasons are few, and none takes from another.
const PER_REASON: Bucket = Bucket {
    burst: 10,
    refill: SignedDuration::from_secs(30),
};
/// The same for all together: the API server is not ours alone.
const OVERALL: Bucket = Bucket {
    burst: 200,
    refill: SignedDuration::from_millis(200),
};
/// Series that are remembered. The oldest is forgotten first, which costs an Event too many.
const SERIES_MAX: usize = 10_000;
/// What waits to be told: the last Event of each object and reason, for so many and so long. (Kubernetes keeps Events for an hour.)
const WAITING_MAX: usize = 1_000;
const WAITING: SignedDuration = SignedDuration::from_hours(1);

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    First {
        name: String,
        event: Event,
        at: Timestamp,
    },
    Again {
        name: String,
        event: Event,
        count: i32,
        at: Timestamp,
    },
}

#[derive(Default)]
pub(super) struct Aggregate {
    series: BTreeMap<Event, Series>,
    reasons: BTreeMap<(About, &'static str), Tokens>,
    overall: Tokens,
    waiting: BTreeMap<(About, &'static str), (Event, Timestamp)>,
}

struct Series {
    name: String,
    count: i32,
    last_seen: Timestamp,
    last_written: Timestamp,
}

impl Aggregate {
    /// What to write for this event now, if anything. Where there are too many, the last of them is told later.
    pub(super) fn admit(&mut self, event: Event, now: Timestamp) -> Option<Write> {
        // It is the last word about what waits.
        self.waiting.remove(&(event.about.clone(), event.reason));
        let (write, is_dropped) = self.take(&event, now, now);
        if is_dropped {
            self.wait(event, now);
        }
        write
    }

    /// What was not told when it happened, and can be told now.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Write> {
        let mut due = Vec::new();
        for (event, at) in std::mem::take(&mut self.waiting).into_values() {
            if now.duration_since(at) > WAITING {
                continue;
            }
            match self.take(&event, at, now) {
                (Some(write), _) => due.push(write),
                (None, _) => self.wait(event, at),
            }
        }
        due
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A pod's Event is said again with every few ticks, as long as it is true.
    fn wait(&mut self, event: Event, at: Timestamp) {
        let is_said_again = matches!(event.about, About::Pod(..));
        let key = (event.about.clone(), event.reason);
        let is_room = self.waiting.len() < WAITING_MAX || self.waiting.contains_key(&key);
        if !is_said_again && is_room {
            self.waiting.insert(key, (event, at));
        }
    }

    /// What to write for this event, which happened then. If nothing: whether that is because there are too many.
    fn take(&mut self, event: &Event, at: Timestamp, now: Timestamp) -> (Option<Write>, bool) {
        if let Some(series) = self.series.get_mut(event)
            && now.duration_since(series.last_seen) <= SERIES_GAP
        {
            series.count = series.count.saturating_add(1);
            series.last_seen = now;
            if now.duration_since(series.last_written) < SERIES_PAUSE
                || !self.overall.take(OVERALL, now)
            {
                return (None, false);
            }
            series.last_written = now;
            let write = Write::Again {
                name: series.name.clone(),
                event: event.clone(),
                count: series.count,
                at: now,
            };
            return (Some(write), false);
        }
        // The common limit is asked first: it bounds how many objects are remembered.
        if !self.overall.has(OVERALL, now) {
            return (None, true);
        }
        self.make_room(now);
        let of_reason = (event.about.clone(), event.reason);
        let tokens = self.reasons.entry(of_reason).or_default();
        if !tokens.take(PER_REASON, now) {
            return (None, true);
        }
        self.overall.take(OVERALL, now);
        let name = event_name(event, at);
        self.series.insert(
            event.clone(),
            Series {
                name: name.clone(),
                count: 1,
                last_seen: now,
                last_written: now,
            },
        );
        let event = event.clone();
        (Some(Write::First { name, event, at }), false)
    }

    /// The write failed: it is told later, and the next of its kind is a first one again.
    pub(super) fn forget(&mut self, write: Write) {
        let (Write::First { event, at, .. } | Write::Again { event, at, .. }) = write;
        self.series.remove(&event);
        let key = (event.about.clone(), event.reason);
        if !self.waiting.contains_key(&key) {
            self.wait(event, at);
        }
    }

    /// Forgets what is over, and if that is not enough, the oldest.
    fn make_room(&mut self, now: Timestamp) {
        if self.series.len() >= SERIES_MAX {
            self.series
                .retain(|_, series| now.duration_since(series.last_seen) <= SERIES_GAP);
        }
        if self.series.len() >= SERIES_MAX
            && let Some(oldest) = self
                .series
                .iter()
                .min_by_key(|(_, series)| series.last_seen)
                .map(|(event, _)| event.clone())
        {
            self.series.remove(&oldest);
        }
        if self.reasons.len() >= SERIES_MAX {
            self.reasons.retain(|_, tokens| !tokens.is_full(now));
        }
    }
}

/// Unique, and the same in a simulated run that is repeated: the object's name, then a digest of the Event and the time.
fn event_name(event: &Event, now: Timestamp) -> String {
    let (_, object) = event.about.object();
    let digest = sha2::Sha256::digest(format!("{event:?} {}", now.as_nanosecond()));
    // Names of objects are ASCII; an Event's name may have 253 characters.
    let kept: String = object.chars().take(200).collect();
    format!(
        "{}.{}",
        kept.trim_end_matches(['.', '-']),
        kproxide_common::hex::hex(&digest[..8])
    )
}

/// A token bucket's shape.
#[derive(Clone, Copy)]
struct Bucket {
    burst: i32,
    refill: SignedDuration,
}

/// How much of a bucket is used: kept as the moment at which it is full again, so that an idle bucket costs no work.
#[derive(Default)]
struct Tokens {
    full_at: Option<Timestamp>,
}

impl Tokens {
    fn has(&self, bucket: Bucket, now: Timestamp) -> bool {
        self.full_after_one(bucket, now).duration_since(now) <= bucket.refill * bucket.burst
    }

    fn take(&mut self, bucket: Bucket, now: Timestamp) -> bool {
        let has = self.has(bucket, now);
        if has {
            self.full_at = Some(self.full_after_one(bucket, now));
        }
        has
    }

    fn full_after_one(&self, bucket: Bucket, now: Timestamp) -> Timestamp {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        full_at
            .saturating_add(bucket.refill)
            .unwrap_or(Timestamp::MAX)
    }

    fn is_full(&self, now: Timestamp) -> bool {
        self.full_at.is_none_or(|at| at <= now)
    }
}
