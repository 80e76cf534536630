//! A watch over whatever happens to it: what is told of it is what its server has, as far as the server has said so.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kproxide_planner::facts::Delta;
use kproxide_planner::fuzz::Draw;
use kube::runtime::watcher::{self, Event};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Change, Follower, Report};
use crate::view::PodView;

/// By name, which change was the last.
type Pods = BTreeMap<String, u32>;
type Received = watcher::Result<Event<PodView>>;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Watches of one kind, one after the other, each cut off somewhere: in its list or after it, by an error or none. In between the server's objects change.
pub fn reflector(data: &[u8]) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime
        .expect("a runtime without I/O")
        .block_on(watches(Draw::new(data)));
}

async fn watches(mut draw: Draw<'_>) {
    let (sender, mut reports) = mpsc::channel(1_000);
    let mut follower = Follower::new(sender);
    let (mut server, mut told) = (Server::default(), Told::default());
    let cut_off = 1 + draw.below(6);
    // The last one lists all.
    for is_last in std::iter::repeat_n(false, cut_off).chain([true]) {
        for _ in 0..draw.below(4) {
            server.change(&mut draw);
        }
        let mut watch = Watch::begin(&server, &told.pods, &mut draw, is_last);
        if watch.is_listed {
            for _ in 0..draw.below(6) {
                watch.events.push(Ok(server.change(&mut draw)));
            }
            watch.expected = server.pods.clone();
        }
        if !is_last && draw.flag() {
            watch.events.push(Err(error(&mut draw)));
        }
        let pauses = [0, 0, 0, 1, 40].map(Duration::from_secs);
        let paused = watch
            .events
            .into_iter()
            .map(|event| (*draw.pick(&pauses), event));
        let events = stream::iter(paused.collect::<Vec<_>>()).then(async |(pause, event)| {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            event
        });
        let followed = follower.follow::<PodView>(std::pin::pin!(events)).await;
        assert!(followed.is_ok(), "nobody has closed the channel");
        while let Ok(report) = reports.try_recv() {
            told.take(report, watch.is_listed);
        }
        let is_listed = watch.is_listed;
        assert_eq!(told.pods, watch.expected, "a whole list: {is_listed}");
        assert!(
            !is_listed || told.synced,
            "it is not told that all is known"
        );
    }
    assert!(!told.failing, "a whole list has not ended the failure");
}

#[derive(Default)]
struct Server {
    pods: Pods,
    changes: u32,
}

impl Server {
    /// A pod is made, changed or deleted.
    fn change(&mut self, draw: &mut Draw<'_>) -> Event<PodView> {
        let name = draw.word(&NAMES);
        self.changes += 1;
        if draw.byte().is_multiple_of(3)
            && let Some(last) = self.pods.remove(name)
        {
            return Event::Delete(pod(name, last));
        }
        self.pods.insert(name.to_owned(), self.changes);
        Event::Apply(pod(name, self.changes))
    }
}

/// What is received of one watch.
struct Watch {
    events: Vec<Received>,
    is_listed: bool,
    /// What has to be known after it.
    expected: Pods,
}

impl Watch {
    /// Its list, or the beginning of one: that removes nothing.
    fn begin(server: &Server, known: &Pods, draw: &mut Draw<'_>, whole: bool) -> Self {
        let is_listed = whole || !draw.byte().is_multiple_of(4);
        let mut listed: Vec<(&String, &u32)> = server.pods.iter().collect();
        if !is_listed {
            listed.truncate(draw.below(listed.len() + 1));
        }
        let mut events = vec![Ok(Event::Init)];
        let mut expected = known.clone();
        for (name, last) in listed {
            events.push(Ok(Event::InitApply(pod(name, *last))));
            expected.insert(name.clone(), *last);
        }
        if is_listed {
            events.push(Ok(Event::InitDone));
        }
        Self {
            events,
            is_listed,
            expected,
        }
    }
}

/// What was reported, as whoever receives it keeps it.
#[derive(Default)]
struct Told {
    pods: Pods,
    synced: bool,
    failing: bool,
}

impl Told {
    fn take(&mut self, report: Report, is_listed: bool) {
        match report {
            Report::Changes(_, changes) => {
                changes.into_iter().for_each(|change| self.apply(change))
            }
            Report::Synced(_) => {
                assert!(is_listed && !self.synced, "told too early, or twice");
                self.synced = true;
            }
            Report::Failed(_, problem) => {
                assert!(!problem.is_empty());
                self.failing = true;
            }
            Report::Recovered(_) => {
                assert!(is_listed && self.failing, "nothing has recovered");
                self.failing = false;
            }
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Delta(Delta::Pod(key, Some(pod))) => {
                let last = pod.labels["last"].parse().expect("a number of a change");
                self.pods.insert(key.name.to_string(), last);
            }
            Change::Delta(Delta::Pod(key, None)) => {
                let was = self.pods.remove(&*key.name);
                assert!(was.is_some(), "{key} is gone that was never there");
            }
            other => panic!("no change of a pod: {other:?}"),
        }
    }
}

fn pod(name: &str, last: u32) -> PodView {
    let metadata = json!({
        "name": name, "namespace": "shop", "uid": name, "labels": { "last": last.to_string() },
    });
    serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
}

fn error(draw: &mut Draw<'_>) -> watcher::Error {
    let status = match draw.flag() {
        true => kube::core::Status::failure("too old resource version", "Expired").with_code(410),
        false => kube::core::Status::failure("try again", "InternalError").with_code(500),
    };
    let status = Box::new(status);
    match draw.byte() % 5 {
        0 => watcher::Error::WatchError(status),
        1 => watcher::Error::WatchStartFailed(kube::Error::Api(status)),
        2 => watcher::Error::WatchFailed(kube::Error::Api(status)),
        3 => watcher::Error::InitialListFailed(kube::Error::Api(status)),
        _ => watcher::Error::NoResourceVersion,
    }
}
