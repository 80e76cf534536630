//! What kproxide has told of each object, so that it tells nothing twice.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::REPEAT;

/// For this many objects the reporter remembers what it said. With more, some Events are repeated.
const SAID_MAX: usize = 10_000;

/// What was last said of each subject, and when.
pub(super) struct Said<K>(BTreeMap<K, (String, Timestamp)>);

impl<K> Default for Said<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Said<K> {
    /// True if this was not said of it for so long.
    pub(super) fn is_news(
        &mut self,
        subject: K,
        message: &str,
        repeats: SignedDuration,
        now: Timestamp,
    ) -> bool {
        let Self(said) = self;
        let lately = |at: &Timestamp| now.duration_since(*at) < REPEAT;
        // Another number or time alone is no news.
        let message: String = message.chars().filter(|c| !c.is_ascii_digit()).collect();
        if said
            .get(&subject)
            .is_some_and(|(words, at)| *words == message && now.duration_since(*at) < repeats)
        {
            return false;
        }
        if said.len() >= SAID_MAX {
            said.retain(|_, (_, at)| lately(at));
            if said.len() >= SAID_MAX {
                said.clear();
            }
        }
        said.insert(subject, (message, now));
        true
    }

    /// Something was said of it within this time.
    pub(super) fn is_said(&self, subject: &K, within: SignedDuration, now: Timestamp) -> bool {
        let Self(said) = self;
        let last = said.get(subject);
        last.is_some_and(|(_, at)| now.duration_since(*at) < within)
    }
}
