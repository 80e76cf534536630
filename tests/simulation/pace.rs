//! How often hosts ask: no effect on one object again and again (S16), and no herd of machines after an outage (L12).

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{AuditEntry, Verb};

use crate::history::is_by_host;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// S16: an effect on one object, whatever becomes of it, is asked for so often in an hour at most. (Of the API server by each replica of ours; Proxmox knows
/// all of them by one token. Clones have a number of their own.)
const TRIES: usize = 100;
/// Evictions are asked for every five seconds, until a drain is given up after ten minutes: 120. An hour has two of those, for what was given up rests for as long.
const EVICTIONS: usize = 300;
/// L12: so many machines are asked for in a minute at most: a few more than the pools of a world may have, or than those of days want at once.
const HERD: usize = 12;
/// Leases are renewed and Events told for as long as there is a host; the Ledger is an object of all effects.
const ALWAYS: [&str; 4] = [
    "leases.coordination.k8s.io",
    "events.events.k8s.io",
    "events",
    "ledgers.kproxide.dev",
];

#[derive(Default)]
pub(crate) struct Pace {
    /// When each effect on each object was asked for in the last hour.
    tries: BTreeMap<String, VecDeque<Timestamp>>,
    /// When machines were asked for in the last minute.
    clones: VecDeque<Timestamp>,
    /// So much of both servers' audits was reviewed.
    seen: (usize, usize),
    found: Vec<String>,
}

impl Pace {
    /// Counts everything that was asked since the last time.
    pub(crate) fn review(&mut self, lab: &Lab) {
        let asked = lab.kube.audit_since(self.seen.0);
        self.seen.0 += asked.len();
        let counts = |entry: &&AuditEntry| {
            let writes = !matches!(entry.verb, Verb::Get | Verb::List | Verb::Watch);
            writes && is_by_host(entry) && !ALWAYS.contains(&&*entry.resource)
        };
        for entry in asked.iter().filter(counts) {
            let AuditEntry {
                verb,
                resource,
                namespace,
                name,
                subresource,
                user,
                ..
            } = entry;
            let what = format!(
                "{} {resource} {namespace}/{name} {subresource} by {user}",
                verb.word()
            );
            let most = match &**subresource {
                "eviction" => EVICTIONS,
                _ => TRIES,
            };
            self.note_try(what, entry.at, most);
        }
        let now = lab.clock.now();
        self.tries.retain(|_, tries| {
            tries
                .back()
                .is_some_and(|last| now.duration_since(*last) <= HOUR)
        });
        let asked = lab.pve.audit_since(self.seen.1);
        self.seen.1 += asked.len();
        for entry in asked {
            let ours = entry.user.starts_with("kproxide") && entry.method != "GET";
            if ours && entry.path.ends_with("/clone") {
                self.note_clone(entry.at);
            } else if ours {
                let what = format!("{} {}", entry.method, entry.path);
                self.note_try(what, entry.at, TRIES);
            }
        }
    }

    pub(crate) fn found(&self) -> &[String] {
        &self.found
    }

    fn note_try(&mut self, what: String, at: Timestamp, most: usize) {
        let tries = self.tries.entry(what.clone()).or_default();
        let count = within(tries, at, HOUR);
        if count > most {
            self.found
                .push(format!("S16: {what}: {count} times within an hour"));
            tries.clear();
        }
    }

    fn note_clone(&mut self, at: Timestamp) {
        let count = within(&mut self.clones, at, MINUTE);
        if count > HERD {
            self.found
                .push(format!("L12: {count} machines asked for within a minute"));
            self.clones.clear();
        }
    }
}

/// Adds a moment, forgets what is older than `time`, and says how many there are.
fn within(moments: &mut VecDeque<Timestamp>, at: Timestamp, time: SignedDuration) -> usize {
    moments.push_back(at);
    while moments
        .front()
        .is_some_and(|first| at.duration_since(*first) > time)
    {
        moments.pop_front();
    }
    moments.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_again_and_again_is_found_and_what_is_tried_for_long_is_not() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut often = Pace::default();
        let mut seldom = Pace::default();
        let tries = i64::try_from(TRIES).unwrap();
        for number in 0..=tries {
            often.note_try("evict".to_owned(), at(number), TRIES);
            seldom.note_try("evict".to_owned(), at(number * 3700 / tries), TRIES);
        }
        assert_eq!((often.found().len(), seldom.found().len()), (1, 0));
    }

    #[test]
    fn a_herd_of_machines_is_found_and_as_many_one_after_the_other_are_not() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let (mut herd, mut one_by_one) = (Pace::default(), Pace::default());
        for number in 0..=i64::try_from(HERD).unwrap() {
            herd.note_clone(at(number));
            one_by_one.note_clone(at(number * 10));
        }
        assert_eq!((herd.found().len(), one_by_one.found().len()), (1, 0));
    }
}
