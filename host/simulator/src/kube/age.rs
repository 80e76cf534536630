//! What a real API server lets go of as time passes: the history of changes, and Events. History goes by itself, as it does there; the rest is kept, unless a
//! world of many days is told to forget it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::{Kube, State, resource::ResourceId, store::Key};

/// How long kube-apiserver keeps history by default, and how often it has etcd let go of what is older.
const COMPACTION: Duration = Duration::from_secs(5 * 60);

/// Under either name they are the same to a person.
const EVENTS: [&str; 2] = ["events", "events.events.k8s.io"];

/// Lets go of old history until it is dropped, as kube-apiserver makes etcd do: a watch from before answers 410, if there was a change that it would miss.
pub async fn run(kube: Kube) {
    loop {
        sleep(COMPACTION).await;
        let moment = kube
            .clock()
            .now()
            .checked_sub(COMPACTION)
            .unwrap_or_default();
        let mut state = kube.lock();
        if let Some((_, revision)) = state.before(moment) {
            state.store.forget_through(revision);
        }
    }
}

impl Kube {
    /// Forgets what is older than `moment`: changes in the history of watches, Events that nobody has written since, and the audit, whose entries keep their
    /// numbers. The real server keeps Events for an hour.
    pub fn forget_before(&self, moment: Timestamp) {
        self.lock().forget_before(moment);
    }
}

impl State {
    fn forget_before(&mut self, moment: Timestamp) {
        let Some((old, revision)) = self.before(moment) else {
            return;
        };
        self.audit.drain(..old);
        self.audit_forgotten += old;
        for name in EVENTS {
            let events = ResourceId::parse(name);
            let all = self.store.list(&events, None, None);
            let expired: Vec<Key> = all
                .filter(|event| event.revision <= revision)
                .map(|event| event.key.clone())
                .collect();
            for key in expired {
                self.store.remove(&events, &key);
            }
        }
        self.store.forget_through(revision);
    }

    /// How many entries the audit has of before `moment`, and the newest revision then; none if it has none.
    fn before(&self, moment: Timestamp) -> Option<(usize, u64)> {
        let old = self.audit.partition_point(|entry| entry.at < moment);
        let last = old.checked_sub(1).map(|index| &self.audit[index])?;
        Some((old, last.revision))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::task::JoinSet;

    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn what_is_old_goes_and_what_is_there_stays() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let kube = Kube::new(clock, 1);
        let event = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
        kube.create("events", event("old")).unwrap();
        kube.create("pods", json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}}))
            .unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let moment = clock.now();
        kube.create("events", event("new")).unwrap();
        let seen = kube.audit().len();

        kube.forget_before(moment);

        let left: Vec<_> = kube.list("events");
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0]["metadata"]["name"], "new");
        assert!(kube.get("pods", "default", "web").is_some());
        assert_eq!(kube.audit().len(), 1, "the entry of the new Event");
        assert_eq!(kube.audit_since(seen - 1), kube.audit(), "the numbers stay");
        assert_eq!(kube.audit_since(seen), []);
        let pods = ResourceId::parse("pods");
        assert!(kube.lock().store.changes_after(&pods, 0).is_err());
        let newest = kube.revision();
        assert!(kube.lock().store.changes_after(&pods, newest).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn history_goes_by_itself() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let kube = Kube::new(clock, 1);
        let mut world = JoinSet::new();
        world.spawn(run(kube.clone()));
        let event = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
        kube.create("events", event("old")).unwrap();
        let old = kube.revision();
        tokio::time::sleep(COMPACTION).await;
        kube.create("events", event("new")).unwrap();
        let new = kube.revision();
        tokio::time::sleep(COMPACTION + Duration::from_secs(1)).await;
        let state = kube.lock();
        let events = ResourceId::parse("events");
        assert!(state.store.can_watch_from(&events, old - 1).is_err());
        assert!(state.store.can_watch_from(&events, new - 1).is_ok());
    }
}
