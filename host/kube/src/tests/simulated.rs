//! The adapter against the simulated API server, on paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;

use kproxide_planner::claim::{NodePatch, NodeRef};
use kproxide_planner::facts::Delta;
use kproxide_planner::ids::ObjectKey;
use kproxide_simulator::clock::Clock as SimulatedClock;
use kproxide_simulator::kube::Kube;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt as _};

use super::cases::{self, EPOCH, clock, pod};
use crate::client::Client;
use crate::events::{self, About, Event};
use crate::lease::{self, LeaseSettings};
use crate::nodes;
use crate::pods;
use crate::watch::{self, Change, Kind, Report};

async fn world() -> (Kube, Client) {
    let kube = Kube::new(SimulatedClock::starting_at(EPOCH.parse().unwrap()), 1);
    let client = Client::from_service(kube.service());
    cases::install(&client).await;
    (kube, client)
}

/// One test for each case.
macro_rules! cases {
    ($($case:ident)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $case() {
            cases::$case(&world().await.1).await;
        }
    )*};
}

cases! {
    f56_f57_a_claim_lives_and_goes_by_compare_and_set
    f56_of_two_writers_of_the_ledger_one_loses
    what_the_schema_refuses_is_invalid
    f57_a_node_is_marked_cordoned_and_deleted_by_uid
    f57_f69_evictions_obey_budgets_and_uids
    the_key_is_made_once_and_told_from_others
    status_is_written_when_something_changes
    an_event_is_written
}

/// Names of what is known, as the deltas of the watches tell it.
#[derive(Default)]
struct Mirror {
    pods: BTreeSet<String>,
    pools: BTreeMap<String, Option<String>>,
    synced: BTreeSet<Kind>,
    failures: Vec<String>,
}

impl Mirror {
    fn take(&mut self, report: Report) {
        match report {
            Report::Changes(_, changes) => {
                changes.into_iter().for_each(|change| self.change(change))
            }
            Report::Synced(kind) => {
                self.synced.insert(kind);
            }
            Report::Failed(kind, problem) => self.failures.push(format!("{kind}: {problem}")),
            Report::Recovered(_) => {}
        }
    }

    fn change(&mut self, change: Change) {
        let Change::Delta(delta) = change else { return };
        if let Delta::Pod(key, facts) = delta {
            if facts.is_some() {
                self.pods.insert(key.name.to_string());
            } else {
                self.pods.remove(&*key.name);
            }
        } else if let Delta::Pool(name, Some(facts)) = delta {
            self.pools.insert(name.to_string(), facts.problem);
        }
    }

    /// Takes what arrives within the time.
    async fn settle(&mut self, reports: &mut mpsc::Receiver<Report>, time: Duration) {
        while let Ok(Some(report)) = tokio::time::timeout(time, reports.recv()).await {
            self.take(report);
        }
    }
}

fn watched(client: &Client) -> (JoinSet<()>, mpsc::Receiver<Report>) {
    let (sender, receiver) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    for (_, task) in watch::tasks(client, &sender) {
        tasks.spawn(task);
    }
    (tasks, receiver)
}

const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn f58_watches_sync_follow_and_survive_a_compacted_history() {
    let (kube, client) = world().await;
    for name in ["a", "b"] {
        kube.create("pods", pod(name)).unwrap();
    }
    let (_tasks, mut reports) = watched(&client);
    let mut mirror = Mirror::default();
    mirror.settle(&mut reports, MOMENT).await;
    assert_eq!(mirror.synced, Kind::ALL.into_iter().collect());
    assert_eq!(mirror.pods, ["a", "b"].map(str::to_owned).into());

    kube.create("pods", pod("c")).unwrap();
    kube.create(
        "nodepools.kproxide.dev",
        json!({"apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "workers"}, "spec": {"nodeClass": "default"}}),
    )
    .unwrap();
    mirror.settle(&mut reports, MOMENT).await;
    assert_eq!(mirror.pods, ["a", "b", "c"].map(str::to_owned).into());
    // Defaults came from the schema.
    assert_eq!(mirror.pools["workers"], None);

    // A finished pod leaves the watch.
    kube.patch(
        "pods",
        "status",
        "default",
        "c",
        json!({"status": {"phase": "Succeeded"}}),
    )
    .unwrap();
    // Longer than a moment: a watch that expires right after its list has failed.
    mirror.settle(&mut reports, Duration::from_secs(2)).await;
    assert_eq!(mirror.pods, ["a", "b"].map(str::to_owned).into());

    // Nobody hears of this deletion but by the next list.
    kube.compact();
    for name in ["a", "c"] {
        let _ = kube.delete("pods", "default", name);
    }
    kube.compact();
    mirror.settle(&mut reports, Duration::from_secs(400)).await;
    let left: BTreeSet<String> = kube
        .list("pods")
        .iter()
        .filter(|pod| pod["status"]["phase"] != "Succeeded")
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(mirror.pods, left);
    assert_eq!(mirror.failures, Vec::<String>::new());
}

/// More objects than a page holds, those that matter on the second.
#[tokio::test(start_paused = true)]
async fn every_page_of_a_list_is_read() {
    let (kube, client) = world().await;
    for index in 0..=500 {
        let node = if index == 500 { "n1" } else { "n2" };
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("a-{index:03}")},
            "spec": {"attacher": "csi.example.com", "nodeName": node, "source": {"persistentVolumeName": "v"}},
        });
        kube.create("volumeattachments.storage.k8s.io", attachment)
            .unwrap();
        kube.create("pods", pod(&format!("p-{index:03}"))).unwrap();
    }
    let attached = pods::volumes_attached_to(&client, &"n1".into()).await;
    let names: Vec<String> = attached
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["a-500"]);
    let bound = pods::on_node(&client, &"n1".into()).await.unwrap();
    assert_eq!(bound.len(), 501);

    let (_tasks, mut reports) = watched(&client);
    let mut mirror = Mirror::default();
    mirror.settle(&mut reports, MOMENT).await;
    assert_eq!(mirror.pods.len(), 501);
}

/// On an API server that takes watches and says nothing more, not even that they have ended, for as long as `silent` holds when they begin.
fn silencing(kube: &Kube, silent: &Arc<AtomicBool>) -> Client {
    let (service, silent) = (kube.service(), silent.clone());
    Client::from_service(tower::service_fn(move |request: Request<Body>| {
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let mute = watch && silent.load(Ordering::SeqCst);
        let answer = service.clone().oneshot(request);
        async move {
            let (parts, body) = answer.await?.into_parts();
            let body = if mute {
                let nothing = futures::stream::pending::<Result<Frame<Bytes>, BoxError>>();
                StreamBody::new(nothing).boxed_unsync()
            } else {
                body.map_err(BoxError::from).boxed_unsync()
            };
            Ok::<_, BoxError>(Response::from_parts(parts, body))
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn f59_a_watch_that_falls_silent_is_begun_anew() {
    let (kube, _) = world().await;
    let silent = Arc::new(AtomicBool::new(true));
    let (_tasks, mut reports) = watched(&silencing(&kube, &silent));
    let mut mirror = Mirror::default();
    mirror.settle(&mut reports, MOMENT).await;
    assert_eq!(mirror.synced, Kind::ALL.into_iter().collect());
    kube.create("pods", pod("a")).unwrap();
    mirror.settle(&mut reports, Duration::from_secs(60)).await;
    assert_eq!(mirror.pods, BTreeSet::new());

    silent.store(false, Ordering::SeqCst);
    mirror.settle(&mut reports, Duration::from_secs(300)).await;
    assert_eq!(mirror.pods, ["a".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_taken_kept_and_released() {
    let (kube, client) = world().await;
    let settings = LeaseSettings {
        namespace: "default".to_owned(),
        name: "kproxide".to_owned(),
        identity: "a".to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };
    let stop = CancellationToken::new();
    let (fence, run) = lease::elector(
        client,
        settings,
        clock(),
        "r".to_owned(),
        CancellationToken::new(),
        stop.clone(),
    );
    let mut tasks = JoinSet::new();
    tasks.spawn(run);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(fence.leads());
    let lease = kube
        .get("leases.coordination.k8s.io", "default", "kproxide")
        .unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], json!("a"));
    assert_eq!(
        lease["spec"]["acquireTime"],
        json!("2026-01-01T00:00:00.000000Z")
    );
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    let lease = kube
        .get("leases.coordination.k8s.io", "default", "kproxide")
        .unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], json!(""));
}

#[tokio::test(start_paused = true)]
async fn repeated_events_become_a_series() {
    let (kube, client) = world().await;
    let (events, writer) = events::writer(client, clock(), "kproxide", "a", false);
    let mut tasks = JoinSet::new();
    tasks.spawn(writer);
    for _ in 0..3 {
        let about = About::pod(&ObjectKey::new("default", "web"), &"u".into());
        events.say(Event::normal(
            about,
            "NotTriggerScaleUp",
            "too big".to_owned(),
        ));
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    drop(events);
    while tasks.join_next().await.is_some() {}
    let written = kube.list("events.events.k8s.io");
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(written[0]["series"]["count"], json!(3));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_nobody() {
    let (kube, client) = world().await;
    let before = kube.revision();
    let (events, writer) = events::writer(client, clock(), "kproxide", "a", true);
    let about = About::node(&"n".into());
    events.say(Event::normal(about, "ScaleDown", "x".to_owned()));
    drop(events);
    writer.await;
    assert_eq!(kube.revision(), before);
}

/// The admission policy lets kproxide do nothing to a Node that is not called its own but to call it so: a late one is cordoned or deleted before it has any marks.
#[tokio::test(start_paused = true)]
async fn the_first_write_to_a_node_calls_it_the_claims_and_does_nothing_else() {
    let (kube, client) = world().await;
    let claim = "workers-a".into();
    for first in ["mark", "cordon", "delete"] {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": first } });
        let node = kube.create("nodes", node).unwrap();
        let of = NodeRef {
            name: first.into(),
            uid: node["metadata"]["uid"].as_str().unwrap().into(),
        };
        let (_, mut changes) = kube.subscribe(&["nodes"]);
        let marks = NodePatch {
            labels: [("kproxide.dev/pool".to_owned(), "workers".to_owned())].into(),
            ..NodePatch::default()
        };
        match first {
            "mark" => drop(nodes::mark(&client, &of, &claim, &marks).await.unwrap()),
            "cordon" => drop(nodes::cordon(&client, &of, &claim).await.unwrap()),
            _ => drop(nodes::delete(&client, &of, &claim).await.unwrap()),
        }
        let named = changes.try_recv().expect("it was written").object.value();
        let mut labels = node["metadata"]["labels"].clone();
        labels["kproxide.dev/claim"] = json!("workers-a");
        assert_eq!(named["metadata"]["labels"], labels, "{first}");
        assert_eq!(named["spec"], node["spec"], "{first}");
        changes.try_recv().expect("and then the rest");
    }
}
