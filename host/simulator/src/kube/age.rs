//! What a real API server lets go of as time passes: the history of changes, and Events. A world of an hour keeps everything; one of many days must not.

use jiff::Timestamp;

use super::{Kube, State, resource::ResourceId, store::Key};

/// Under either name they are the same to a person.
const EVENTS: [&str; 2] = ["events", "events.events.k8s.io"];

impl Kube {
    /// Forgets what is older than `moment`: changes in the history of watches, Events that nobody has written since, and the audit, whose entries keep their
    /// numbers. The real server keeps Events for an hour, and history for five minutes.
    pub fn forget_before(&self, moment: Timestamp) {
        self.lock().forget_before(moment);
    }
}

impl State {
    fn forget_before(&mut self, moment: Timestamp) {
        let old = self.audit.partition_point(|entry| entry.at < moment);
        let Some(last) = old.checked_sub(1).map(|index| &self.audit[index]) else {
            return;
        };
        let revision = last.revision;
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

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
}
