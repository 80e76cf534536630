//! How often conditions change and are told (S24): an object's condition at most so often in an hour, whatever the world does,
//! and so the Events with the reason of one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{Change, ChangeKind};
use serde_json::{Value, json};

use crate::history::{Notice, Notices};
use crate::object::{name, text};

const EVENTS: &str = "events.events.k8s.io";
const OBJECTS: [&str; 3] = [
    "nodepools.kproxide.dev",
    "nodeclasses.kproxide.dev",
    "proxmoxclusters.kproxide.dev",
];
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// One process changes a condition 25 times in an hour at most. Three of them may follow each other.
const CHANGES: usize = 75;
/// And tells of it once in 10 minutes. What else has the same reason is told every 5 minutes.
const TOLD: usize = 36;

pub(crate) struct Conditions {
    notices: Notices,
    /// What each condition last said.
    said: BTreeMap<String, Value>,
    /// Reasons that conditions have had.
    reasons: BTreeSet<String>,
    /// What happened to each condition in the last hour.
    happened: BTreeMap<String, VecDeque<Timestamp>>,
    found: Vec<String>,
}

impl Conditions {
    pub(crate) fn new(lab: &Lab) -> Self {
        let [pools, classes, clusters] = OBJECTS;
        Self {
            notices: Notices::new(lab, &[pools, classes, clusters, EVENTS]),
            said: BTreeMap::new(),
            reasons: BTreeSet::new(),
            happened: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    /// Takes notes of every change, for as long as it is polled.
    pub(crate) async fn follow(&mut self, lab: &Lab) {
        while let Some(notice) = self.notices.next().await {
            if let Notice::Changed(change) = notice {
                self.note(&change, lab.clock.now());
            }
        }
    }

    pub(crate) fn violations(self) -> Vec<String> {
        self.found
    }

    fn note(&mut self, change: &Change, now: Timestamp) {
        let object = change.object.value();
        if change.resource.is(EVENTS) {
            if change.kind == ChangeKind::Added {
                self.note_event(&object, now);
            }
            return;
        }
        let of = OBJECTS.iter().find(|kind| change.resource.is(kind));
        let of = format!("{} {}", of.copied().unwrap_or_default(), name(&object));
        let conditions = object["status"]["conditions"].as_array();
        for condition in conditions.into_iter().flatten() {
            let what = format!("{} of {of}", text(&condition["type"]));
            let says = json!([
                condition["status"],
                condition["reason"],
                condition["message"]
            ]);
            self.reasons.insert(text(&condition["reason"]).to_owned());
            if self.said.insert(what.clone(), says.clone()) != Some(says) {
                self.happens(what, now, CHANGES);
            }
        }
    }

    fn note_event(&mut self, event: &Value, now: Timestamp) {
        let (of, reason) = (&event["regarding"], text(&event["reason"]));
        if self.reasons.contains(reason) {
            let what = format!(
                "Event {reason} about {} {}",
                text(&of["kind"]),
                text(&of["name"])
            );
            self.happens(what, now, TOLD);
        }
    }

    fn happens(&mut self, what: String, now: Timestamp, most: usize) {
        let moments = self.happened.entry(what.clone()).or_default();
        moments.push_back(now);
        while moments
            .front()
            .is_some_and(|first| now.duration_since(*first) > HOUR)
        {
            moments.pop_front();
        }
        if moments.len() > most {
            let count = moments.len();
            self.found
                .push(format!("S24: {what}: {count} times within an hour"));
            moments.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_changes_all_the_time_is_found_and_one_that_does_so_slowly_is_not() {
        let lab = Scenario::of(1).build();
        let mut conditions = Conditions::new(&lab);
        let at = |second: usize| Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        for number in 0..=CHANGES {
            conditions.happens("often".to_owned(), at(number), CHANGES);
            conditions.happens("seldom".to_owned(), at(number * 3_700 / CHANGES), CHANGES);
        }
        let found = conditions.violations();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("S24: often: "), "{found:?}");
    }
}
