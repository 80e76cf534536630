//! Which Events are written, and how: the first of its kind as an object, repetitions as its series, a flood not at all. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::Digest as _;

use super::{About, Event};

/// A repetition within this time belongs to the series; later, it is one of its own. As client-go has it.
const SERIES_GAP: SignedDuration = SignedDuration::from_mins(6);
/// A series is written again at most this often.
const SERIES_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// Events that one object may get at once, and how long it takes to earn another.
const PER_OBJECT: Bucket = Bucket {
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
    objects: BTreeMap<About, Tokens>,
    overall: Tokens,
}

struct Series {
    name: String,
    count: i32,
    last_seen: Timestamp,
    last_written: Timestamp,
}

impl Aggregate {
    /// What to write for this event, if anything.
    pub(super) fn admit(&mut self, event: Event, now: Timestamp) -> Option<Write> {
        if let Some(series) = self.series.get_mut(&event)
            && now.duration_since(series.last_seen) <= SERIES_GAP
        {
            series.count = series.count.saturating_add(1);
            series.last_seen = now;
            if now.duration_since(series.last_written) < SERIES_PAUSE
                || !self.overall.take(OVERALL, now)
            {
                return None;
            }
            series.last_written = now;
            return Some(Write::Again {
                name: series.name.clone(),
                event,
                count: series.count,
                at: now,
            });
        }
        // The common limit is asked first: it bounds how many objects are remembered.
        if !self.overall.has(OVERALL, now) {
            return None;
        }
        self.make_room(now);
        if !self
            .objects
            .entry(event.about.clone())
            .or_default()
            .take(PER_OBJECT, now)
        {
            return None;
        }
        self.overall.take(OVERALL, now);
        let name = event_name(&event, now);
        self.series.insert(
            event.clone(),
            Series {
                name: name.clone(),
                count: 1,
                last_seen: now,
                last_written: now,
            },
        );
        Some(Write::First {
            name,
            event,
            at: now,
        })
    }

    /// The write failed: the next of its kind is a first one again.
    pub(super) fn forget(&mut self, write: &Write) {
        let (Write::First { event, .. } | Write::Again { event, .. }) = write;
        self.series.remove(event);
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
        if self.objects.len() >= SERIES_MAX {
            self.objects.retain(|_, tokens| !tokens.is_full(now));
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
        crate::hex::hex(&digest[..8])
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
