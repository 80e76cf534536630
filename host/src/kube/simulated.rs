//! The adapter against the simulated API server, on paused time. The same outcomes are held against a real one in `tests/`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kproxide_planner::claim::{Intent, Op, Phase};
use kproxide_planner::facts::{
    ClaimStatus, Delta, EntryState, LedgerEntry, LedgerFacts, Taint, TaintEffect,
};
use kproxide_planner::ids::{ObjectKey, Vmid};
use kproxide_simulator::clock::Clock as SimulatedClock;
use kproxide_simulator::kube::Kube;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::claims::{self, Creation, StoredClaim};
use super::client::Client;
use super::convert::tests_support::full_spec;
use super::error::{Cas, Deletion, Error};
use super::events::{self, About, Event};
use super::evict::{self, Eviction};
use super::lease::{self, LeaseSettings};
use super::nodes::{self, Marks, NodeWrite};
use super::status::{Readiness, StatusWriter};
use super::watch::{self, Change, Kind, Report};
use super::{crd, identity, ledger, pods};
use crate::clock::Clock;

const EPOCH: &str = "2026-01-01T00:00:00Z";

fn world() -> (Kube, Client) {
    let kube = Kube::new(SimulatedClock::starting_at(EPOCH.parse().unwrap()), 1);
    for crd in crd::crds() {
        kube.create(
            "customresourcedefinitions.apiextensions.k8s.io",
            serde_json::to_value(crd).unwrap(),
        )
        .unwrap();
    }
    let client = Client::from_service(kube.service());
    (kube, client)
}

fn clock() -> Clock {
    Clock::starting_at(EPOCH.parse().unwrap())
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
    })
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"taints": [{"key": nodes::UNREGISTERED_TAINT, "effect": "NoExecute"}]},
        "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}},
    })
}

fn uid(object: &Value) -> kproxide_planner::ids::Uid {
    object["metadata"]["uid"].as_str().unwrap().into()
}

async fn created(client: &Client) -> StoredClaim {
    match claims::create(client, &"workers-x7".into(), &full_spec())
        .await
        .unwrap()
    {
        Creation::Created(claim) => *claim,
        Creation::AlreadyExists => panic!("the cluster was empty"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_lives_and_goes_by_compare_and_set() {
    let (_kube, client) = world();
    let claim = created(&client).await;
    assert!(claim.facts.has_finalizer);
    assert_eq!(claim.facts.spec, full_spec());
    assert_eq!(
        claims::create(&client, &"workers-x7".into(), &full_spec())
            .await
            .unwrap(),
        Creation::AlreadyExists
    );

    let launching = ClaimStatus {
        phase: Phase::Launching,
        intent: Some(Intent {
            op: Op::Clone,
            attempt: 1,
            epoch: "0-ab".into(),
        }),
        nonce: Some("n".into()),
        ..ClaimStatus::default()
    };
    let Cas::Written(second) = claims::write_status(&client, &claim, &launching)
        .await
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(second.facts.status.intent, launching.intent);
    assert_eq!(second.facts.status.hypervisor.as_deref(), Some("pve1"));
    // The finalizer is not a matter of the status.
    assert!(second.facts.has_finalizer);

    // Whoever read the first version is too late.
    assert_eq!(
        claims::write_status(&client, &claim, &launching)
            .await
            .unwrap(),
        Cas::Conflict
    );

    // What is no longer set is gone.
    let launched = ClaimStatus {
        phase: Phase::Launched,
        ..ClaimStatus::default()
    };
    let Cas::Written(third) = claims::write_status(&client, &second, &launched)
        .await
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (third.facts.status.intent, third.facts.status.nonce),
        (None, None)
    );

    assert_eq!(
        claims::delete(&client, &claim.name, &"another".into())
            .await
            .unwrap(),
        Deletion::Replaced
    );
    assert_eq!(
        claims::delete(&client, &claim.name, &claim.facts.uid)
            .await
            .unwrap(),
        Deletion::Accepted
    );
    let deleting = claims::get(&client, &claim.name)
        .await
        .unwrap()
        .expect("the finalizer keeps it");
    assert!(deleting.facts.deleting_since.is_some());
    assert_eq!(
        claims::remove_finalizer(&client, &claim).await.unwrap(),
        Cas::Conflict
    );
    assert_eq!(
        claims::remove_finalizer(&client, &deleting).await.unwrap(),
        Cas::Written(())
    );
    assert_eq!(claims::get(&client, &claim.name).await.unwrap(), None);
    assert_eq!(
        claims::delete(&client, &claim.name, &claim.facts.uid)
            .await
            .unwrap(),
        Deletion::Gone
    );
    assert_eq!(
        claims::write_status(&client, &deleting, &launched)
            .await
            .unwrap(),
        Cas::Gone
    );
}

#[tokio::test(start_paused = true)]
async fn of_two_writers_of_the_ledger_one_loses() {
    let (_kube, client) = world();
    let empty = ledger::get_or_create(&client).await.unwrap();
    assert_eq!(ledger::get_or_create(&client).await.unwrap(), empty);
    let with = |vmid: u32| LedgerFacts {
        entries: vec![LedgerEntry {
            claim: "c".into(),
            pool: "p".into(),
            cluster: "lab".into(),
            vmid: Vmid(vmid),
            hypervisor: "pve1".into(),
            storage: None,
            milli_cores: 1000,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            address: None,
            state: EntryState::Reserved {
                since: EPOCH.parse().unwrap(),
            },
        }],
        ..empty.clone()
    };
    let Cas::Written(written) = ledger::replace(&client, &with(600)).await.unwrap() else {
        panic!()
    };
    assert_ne!(written.resource_version, empty.resource_version);
    assert_eq!(
        ledger::replace(&client, &with(601)).await.unwrap(),
        Cas::Conflict
    );
    assert_eq!(
        ledger::get(&client).await.unwrap().unwrap().entries[0].vmid,
        Vmid(600)
    );
    // Facts that never came from a server overwrite nothing.
    assert_eq!(
        ledger::replace(&client, &LedgerFacts::default())
            .await
            .unwrap(),
        Cas::Conflict
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_schema_refuses_is_invalid() {
    let (_kube, client) = world();
    let spec = kproxide_planner::facts::ClaimSpec {
        vmid: Vmid(7),
        ..full_spec()
    };
    let error = claims::create(&client, &"c".into(), &spec)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Invalid { message, .. } if message.contains("vmid")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_is_marked_cordoned_and_deleted_by_uid() {
    let (kube, client) = world();
    let uid = uid(&kube.create("nodes", node("n1")).unwrap());
    let name = "n1".into();
    let marks = Marks {
        labels: [("kproxide.dev/pool".to_owned(), "workers".to_owned())].into(),
        taints: vec![Taint {
            key: "dedicated".into(),
            value: "x".into(),
            effect: TaintEffect::NoSchedule,
        }],
        registered: true,
        provider_id: Some("proxmox://lab/600".to_owned()),
        ..Marks::default()
    };
    assert_eq!(
        nodes::mark(&client, &name, &"another".into(), &marks)
            .await
            .unwrap(),
        NodeWrite::Gone
    );
    assert_eq!(
        nodes::mark(&client, &name, &uid, &marks).await.unwrap(),
        NodeWrite::Written
    );
    assert_eq!(
        nodes::mark(&client, &name, &uid, &marks).await.unwrap(),
        NodeWrite::Unchanged
    );
    let facts = nodes::get(&client, &name).await.unwrap().unwrap();
    assert_eq!(facts.provider_id.as_deref(), Some("proxmox://lab/600"));
    // The API server adds a taint of its own to a new Node.
    let taints: Vec<&str> = facts.taints.iter().map(|taint| &*taint.key).collect();
    assert_eq!(taints, ["node.kubernetes.io/not-ready", "dedicated"]);

    assert_eq!(
        nodes::cordon(&client, &name, &uid).await.unwrap(),
        NodeWrite::Written
    );
    let facts = nodes::get(&client, &name).await.unwrap().unwrap();
    assert!(
        facts.unschedulable
            && facts
                .taints
                .iter()
                .any(|taint| &*taint.key == nodes::DRAINING_TAINT)
    );
    assert_eq!(
        nodes::uncordon(&client, &name, &uid).await.unwrap(),
        NodeWrite::Written
    );
    let facts = nodes::get(&client, &name).await.unwrap().unwrap();
    assert!(!facts.unschedulable && facts.taints.len() == 2);

    assert_eq!(
        nodes::delete(&client, &name, &"another".into())
            .await
            .unwrap(),
        Deletion::Replaced
    );
    assert_eq!(
        nodes::delete(&client, &name, &uid).await.unwrap(),
        Deletion::Accepted
    );
    assert_eq!(nodes::get(&client, &name).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn evictions_obey_budgets_and_uids() {
    let (kube, client) = world();
    let pod = kube.create("pods", pod("web")).unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    kube.patch("pods", "status", "default", "web", ready)
        .unwrap();
    kube.create(
        "poddisruptionbudgets.policy",
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
               "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}),
    )
    .unwrap();
    let key = ObjectKey::new("default", "web");

    let blocked = evict::evict(&client, &key, &uid(&pod)).await.unwrap();
    assert!(
        matches!(&blocked, Eviction::Blocked(text) if text.contains("disruption budget")),
        "{blocked:?}"
    );
    kube.patch(
        "poddisruptionbudgets.policy",
        "",
        "default",
        "web",
        json!({"spec": {"minAvailable": 0}}),
    )
    .unwrap();
    assert_eq!(
        evict::evict(&client, &key, &"another".into())
            .await
            .unwrap(),
        Eviction::Gone
    );
    assert_eq!(pods::on_node(&client, &"n1".into()).await.unwrap().len(), 1);
    assert_eq!(
        evict::evict(&client, &key, &uid(&pod)).await.unwrap(),
        Eviction::Evicted
    );
    let left = pods::on_node(&client, &"n1".into()).await.unwrap();
    assert!(left.iter().all(|(_, facts)| facts.deleting), "{left:?}");
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
        match delta {
            Delta::Pod(key, Some(_)) => {
                self.pods.insert(key.name.to_string());
            }
            Delta::Pod(key, None) => {
                self.pods.remove(&*key.name);
            }
            Delta::Pool(name, Some(facts)) => {
                self.pools.insert(name.to_string(), facts.problem);
            }
            _ => {}
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
async fn watches_sync_follow_and_survive_a_compacted_history() {
    let (kube, client) = world();
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
    mirror.settle(&mut reports, MOMENT).await;
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

#[tokio::test(start_paused = true)]
async fn the_key_is_made_once_and_told_from_others() {
    let (kube, client) = world();
    kube.create(
        "namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kproxide"}}),
    )
    .unwrap();
    assert!(!identity::cluster_id(&client).await.unwrap().is_empty());
    assert_eq!(
        identity::ownership_key(&client, "kproxide", "key")
            .await
            .unwrap(),
        None
    );
    let first = identity::ownership_key_or_create(&client, "kproxide", "key", [1; 32])
        .await
        .unwrap();
    let second = identity::ownership_key_or_create(&client, "kproxide", "key", [2; 32])
        .await
        .unwrap();
    assert_eq!(first, second);
    assert_eq!(
        identity::ownership_key(&client, "kproxide", "key")
            .await
            .unwrap()
            .unwrap()
            .bytes(),
        &[1; 32]
    );
}

#[tokio::test(start_paused = true)]
async fn status_is_written_when_something_changes() {
    let (kube, client) = world();
    kube.create(
        "nodepools.kproxide.dev",
        json!({"apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "workers"}, "spec": {"nodeClass": "default"}}),
    )
    .unwrap();
    let mut writer = StatusWriter::default();
    let now = EPOCH.parse().unwrap();
    let name = "workers".into();
    writer
        .pool(&client, &name, 2, &Readiness::ready(), now)
        .await
        .unwrap();
    let before = kube.revision();
    writer
        .pool(&client, &name, 2, &Readiness::ready(), now)
        .await
        .unwrap();
    // Nor does another replica write what stands there.
    StatusWriter::default()
        .pool(&client, &name, 2, &Readiness::ready(), now)
        .await
        .unwrap();
    assert_eq!(kube.revision(), before);
    let pool = kube.get("nodepools.kproxide.dev", "", "workers").unwrap();
    assert_eq!(pool["status"]["nodes"], json!(2));
    assert_eq!(pool["status"]["conditions"][0]["status"], json!("True"));
    writer
        .pool(&client, &"missing".into(), 0, &Readiness::ready(), now)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_taken_kept_and_released() {
    let (kube, client) = world();
    let settings = LeaseSettings {
        namespace: "default".to_owned(),
        name: "kproxide".to_owned(),
        identity: "a".to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };
    let stop = CancellationToken::new();
    let (fence, run) = lease::elector(client, settings, clock(), "r".to_owned(), stop.clone());
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
async fn events_are_written_and_repeated_as_a_series() {
    let (kube, client) = world();
    let (events, writer) = events::writer(client, clock(), "kproxide", "a", false);
    let mut tasks = JoinSet::new();
    tasks.spawn(writer);
    let event = || {
        let about = About::pod(&ObjectKey::new("default", "web"), &"u".into());
        Event::normal(about, "NotTriggerScaleUp", "too big".to_owned())
    };
    for _ in 0..3 {
        events.say(event());
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    drop(events);
    while tasks.join_next().await.is_some() {}
    let written = kube.list("events.events.k8s.io");
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(written[0]["reason"], json!("NotTriggerScaleUp"));
    assert_eq!(written[0]["series"]["count"], json!(3));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_nobody() {
    let (kube, client) = world();
    let before = kube.revision();
    let (events, writer) = events::writer(client, clock(), "kproxide", "a", true);
    events.say(Event::normal(
        About::node(&"n".into()),
        "ScaleDown",
        "x".to_owned(),
    ));
    drop(events);
    writer.await;
    assert_eq!(kube.revision(), before);
}
