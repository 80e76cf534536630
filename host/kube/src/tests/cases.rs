//! What must be true of the adapter whatever answers: the same cases run against the simulated API server and against a real one.

use jiff::SignedDuration;
use kproxide_planner::claim::{Intent, NodePatch, NodeRef, Op, Phase};
use kproxide_planner::facts::{
    ClaimSpec, ClaimStatus, EntryState, LedgerEntry, LedgerFacts, Taint, TaintEffect,
};
use kproxide_planner::ids::{ObjectKey, Uid, Vmid};
use kproxide_planner::keys;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

use crate::claims::{self, Creation, StoredClaim};
use crate::client::Client;
use crate::convert::tests_support::full_spec;
use crate::error::{Cas, Deletion, Error};
use crate::events::{self, About, Event};
use crate::evict::{self, Eviction};
use crate::nodes::{self, NodeWrite};
use crate::status::{Condition, Found, READY, StatusWriter};
use crate::{crd, identity, ledger, pods};
use kproxide_common::clock::Clock;

pub(super) const EPOCH: &str = "2026-01-01T00:00:00Z";

/// A request in JSON, past the adapter, as a user makes one. Unknown fields are refused, as kubectl asks for.
pub(super) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, String> {
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{path}?fieldValidation=Strict"))
        .header(
            "content-type",
            if method == "PATCH" {
                "application/merge-patch+json"
            } else {
                "application/json"
            },
        )
        .body(serde_json::to_vec(body).unwrap())
        .unwrap();
    client
        .raw()
        .request(request)
        .await
        .map_err(|error| error.to_string())
}

pub(super) async fn create(client: &Client, path: &str, body: Value) -> Value {
    send(client, "POST", path, &body).await.unwrap()
}

pub(super) async fn merge(client: &Client, path: &str, body: Value) -> Value {
    send(client, "PATCH", path, &body).await.unwrap()
}

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
pub(super) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const OURS: &str = "/apis/kproxide.dev/v1alpha1";

/// The definitions, served.
pub(super) async fn install(client: &Client) {
    for crd in crd::crds() {
        create(client, CRDS, serde_json::to_value(crd).unwrap()).await;
        let plural = &crd.spec.names.plural;
        eventually(async || {
            send(client, "GET", &format!("{OURS}/{plural}"), &Value::Null)
                .await
                .is_ok()
        })
        .await;
    }
}

/// Waits for a condition that others bring about.
pub(super) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen within half a minute");
}

pub(super) fn clock() -> Clock {
    Clock::starting_at(EPOCH.parse().unwrap())
}

pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
    })
}

fn uid(object: &Value) -> Uid {
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

pub(super) async fn f56_f57_a_claim_lives_and_goes_by_compare_and_set(client: &Client) {
    let claim = created(client).await;
    assert!(claim.facts.has_finalizer);
    assert_eq!(claim.facts.spec, full_spec());
    assert_eq!(
        claims::create(client, &"workers-x7".into(), &full_spec())
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
    let Cas::Written(second) = claims::write_status(client, &claim, &launching)
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
        claims::write_status(client, &claim, &launching)
            .await
            .unwrap(),
        Cas::Conflict
    );

    // What is no longer set is gone.
    let launched = ClaimStatus {
        phase: Phase::Launched,
        ..ClaimStatus::default()
    };
    let Cas::Written(third) = claims::write_status(client, &second, &launched)
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
        claims::delete(client, &claim.name, &"another".into())
            .await
            .unwrap(),
        Deletion::Replaced
    );
    assert_eq!(
        claims::delete(client, &claim.name, &claim.facts.uid)
            .await
            .unwrap(),
        Deletion::Accepted
    );
    let deleting = claims::get(client, &claim.name)
        .await
        .unwrap()
        .expect("the finalizer keeps it");
    assert!(deleting.facts.deleting_since.is_some());
    assert_eq!(
        claims::remove_finalizer(client, &claim).await.unwrap(),
        Cas::Conflict
    );
    assert_eq!(
        claims::remove_finalizer(client, &deleting).await.unwrap(),
        Cas::Written(())
    );
    assert_eq!(claims::get(client, &claim.name).await.unwrap(), None);
    assert_eq!(
        claims::delete(client, &claim.name, &claim.facts.uid)
            .await
            .unwrap(),
        Deletion::Gone
    );
    assert_eq!(
        claims::write_status(client, &deleting, &launched)
            .await
            .unwrap(),
        Cas::Gone
    );
}

pub(super) async fn f56_of_two_writers_of_the_ledger_one_loses(client: &Client) {
    let empty = ledger::get_or_create(client).await.unwrap();
    assert_eq!(ledger::get_or_create(client).await.unwrap(), empty);
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
    let Cas::Written(written) = ledger::replace(client, &with(600)).await.unwrap() else {
        panic!()
    };
    assert_ne!(written.resource_version, empty.resource_version);
    assert_eq!(
        ledger::replace(client, &with(601)).await.unwrap(),
        Cas::Conflict
    );
    assert_eq!(
        ledger::get(client).await.unwrap().unwrap().entries[0].vmid,
        Vmid(600)
    );
    // Facts that never came from a server overwrite nothing.
    assert_eq!(
        ledger::replace(client, &LedgerFacts::default())
            .await
            .unwrap(),
        Cas::Conflict
    );
}

pub(super) async fn what_the_schema_refuses_is_invalid(client: &Client) {
    let spec = ClaimSpec {
        vmid: Vmid(7),
        ..full_spec()
    };
    let error = claims::create(client, &"c".into(), &spec)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Invalid { message, .. } if message.contains("vmid")),
        "{error}"
    );
}

pub(super) async fn f57_a_node_is_marked_cordoned_and_deleted_by_uid(client: &Client) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "spec": {"taints": [{"key": keys::UNREGISTERED_TAINT, "effect": "NoExecute"}]},
    });
    let uid = uid(&create(client, NODES, node).await);
    let claim = "workers-a".into();
    let node = NodeRef {
        name: "n1".into(),
        uid,
    };
    let another = NodeRef {
        uid: "another".into(),
        ..node.clone()
    };
    let marks = NodePatch {
        labels: [(keys::POOL.to_owned(), "workers".to_owned())].into(),
        add_taints: vec![Taint {
            key: "dedicated".into(),
            value: "x".into(),
            effect: TaintEffect::NoSchedule,
        }],
        remove_unregistered: true,
        provider_id: Some("proxmox://lab/600".to_owned()),
        ..NodePatch::default()
    };
    assert_eq!(
        nodes::mark(client, &another, &claim, &marks).await.unwrap(),
        NodeWrite::Gone
    );
    assert_eq!(
        nodes::mark(client, &node, &claim, &marks).await.unwrap(),
        NodeWrite::Written
    );
    assert_eq!(
        nodes::mark(client, &node, &claim, &marks).await.unwrap(),
        NodeWrite::Unchanged
    );
    let facts = nodes::get(client, &node.name).await.unwrap().unwrap();
    assert_eq!(facts.provider_id.as_deref(), Some("proxmox://lab/600"));
    // Others put taints of their own onto a Node that is not Ready.
    let tainted = |facts: &kproxide_planner::facts::NodeFacts, key: &str| {
        facts.taints.iter().any(|taint| &*taint.key == key)
    };
    assert!(tainted(&facts, "dedicated") && !tainted(&facts, keys::UNREGISTERED_TAINT));

    assert_eq!(
        nodes::cordon(client, &node, &claim).await.unwrap(),
        NodeWrite::Written
    );
    let facts = nodes::get(client, &node.name).await.unwrap().unwrap();
    assert!(facts.unschedulable && tainted(&facts, keys::DRAINING_TAINT));
    let excluded = facts.labels.get(keys::EXCLUDE_FROM_LOAD_BALANCERS);
    assert_eq!(excluded.map(String::as_str), Some(keys::EXCLUDED_BY_US));
    assert_eq!(
        nodes::uncordon(client, &node, &claim).await.unwrap(),
        NodeWrite::Written
    );
    let facts = nodes::get(client, &node.name).await.unwrap().unwrap();
    assert!(
        !facts.unschedulable
            && !tainted(&facts, keys::DRAINING_TAINT)
            && !facts.labels.contains_key(keys::EXCLUDE_FROM_LOAD_BALANCERS)
            && tainted(&facts, "dedicated")
    );

    assert_eq!(
        nodes::delete(client, &another, &claim).await.unwrap(),
        Deletion::Replaced
    );
    assert_eq!(
        nodes::delete(client, &node, &claim).await.unwrap(),
        Deletion::Accepted
    );
    assert_eq!(nodes::get(client, &node.name).await.unwrap(), None);
    assert_eq!(
        nodes::delete(client, &node, &claim).await.unwrap(),
        Deletion::Gone
    );
}

pub(super) async fn f57_f69_evictions_obey_budgets_and_uids(client: &Client) {
    let pod = create(client, PODS, pod("web")).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    merge(client, &format!("{PODS}/web/status"), ready).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let key = ObjectKey::new("default", "web");

    // Before there is a budget: an API server counts an eviction that fails on its UID against the budget for two minutes.
    let other = evict::evict(client, &key, &"another".into()).await.unwrap();
    assert_eq!(other, Eviction::Gone);
    let there = pods::on_node(client, &"n1".into()).await.unwrap();
    assert!(
        matches!(&there[..], [(_, facts)] if !facts.deleting),
        "{there:?}"
    );
    create(client, BUDGETS, budget).await;

    // A cache of the API server may not have the budget yet; the pod of another UID is safe in any case.
    let mut blocked = None;
    eventually(async || {
        blocked = Some(evict::evict(client, &key, &"another".into()).await.unwrap());
        matches!(blocked, Some(Eviction::Blocked(_)))
    })
    .await;
    assert!(
        matches!(&blocked, Some(Eviction::Blocked(text)) if text.contains("disruption budget")),
        "{blocked:?}"
    );

    merge(
        client,
        &format!("{BUDGETS}/web"),
        json!({"spec": {"minAvailable": 0}}),
    )
    .await;
    let pod_uid = uid(&pod);
    eventually(async || evict::evict(client, &key, &pod_uid).await.unwrap() == Eviction::Evicted)
        .await;
    let left = pods::on_node(client, &"n1".into()).await.unwrap();
    assert!(left.iter().all(|(_, facts)| facts.deleting), "{left:?}");
}

pub(super) async fn the_key_is_made_once_and_told_from_others(client: &Client) {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kproxide"}});
    create(client, "/api/v1/namespaces", namespace).await;
    assert!(!identity::cluster_id(client).await.unwrap().is_empty());
    assert_eq!(
        identity::ownership_key(client, "kproxide", "key")
            .await
            .unwrap(),
        None
    );
    let nowhere = identity::ownership_key_or_create(client, "nowhere", "key", [1; 32]).await;
    let problem = nowhere.unwrap_err().to_string();
    assert!(
        problem.contains("kubectl create namespace nowhere"),
        "{problem}"
    );
    let first = identity::ownership_key_or_create(client, "kproxide", "key", [1; 32])
        .await
        .unwrap();
    let second = identity::ownership_key_or_create(client, "kproxide", "key", [2; 32])
        .await
        .unwrap();
    assert_eq!(first, second);
    let read = identity::ownership_key(client, "kproxide", "key")
        .await
        .unwrap();
    assert_eq!(read.unwrap().bytes(), &[1; 32]);
}

pub(super) async fn status_is_written_when_something_changes(client: &Client) {
    let pool = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "workers"}, "spec": {"nodeClass": "default"},
    });
    create(client, &format!("{OURS}/nodepools"), pool.clone()).await;
    let read = async || {
        send(
            client,
            "GET",
            &format!("{OURS}/nodepools/workers"),
            &Value::Null,
        )
        .await
        .unwrap()
    };
    let conditions = [Condition {
        kind: READY,
        status: crd::ConditionStatus::True,
        reason: "Ready",
        message: "",
        is_ripe: true,
        is_bad: false,
    }];
    let ready = Found {
        generation: 1,
        conditions: &conditions,
    };
    let mut writer = StatusWriter::default();
    let now = EPOCH.parse().unwrap();
    let name = "workers".into();
    writer
        .pool(client, &name, (2, Vec::new()), ready, now)
        .await
        .unwrap();
    let before = read().await;
    assert_eq!(before["status"]["nodes"], json!(2));
    assert_eq!(before["status"]["conditions"][0]["status"], json!("True"));
    // Defaults came from the schema.
    assert_eq!(
        before["spec"]["limits"],
        json!({"minNodes": 0, "maxNodes": 3})
    );

    writer
        .pool(client, &name, (2, Vec::new()), ready, now)
        .await
        .unwrap();
    // Nor does another replica write what stands there.
    StatusWriter::default()
        .pool(client, &name, (2, Vec::new()), ready, now)
        .await
        .unwrap();
    assert_eq!(
        read().await["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    writer
        .pool(client, &"missing".into(), (0, Vec::new()), ready, now)
        .await
        .unwrap();

    // F72: a leader that sees something else is not answered at once, or the two of them would write as fast as they can.
    // Nor is it longer by who set the clock back.
    for (seconds, nodes) in [(1, 3), (-1, 3), (-3600, 2), (-3599, 3), (-3589, 2)] {
        let then = now + SignedDuration::from_secs(seconds);
        StatusWriter::default()
            .pool(client, &name, (3, Vec::new()), ready, then)
            .await
            .unwrap();
        writer.forget("nodepools", "workers");
        writer
            .pool(client, &name, (2, Vec::new()), ready, then)
            .await
            .unwrap();
        assert_eq!(read().await["status"]["nodes"], json!(nodes));
    }

    // One that is made anew under the same name has no status yet.
    send(
        client,
        "DELETE",
        &format!("{OURS}/nodepools/workers"),
        &Value::Null,
    )
    .await
    .unwrap();
    let soon = now - SignedDuration::from_secs(3588);
    create(client, &format!("{OURS}/nodepools"), pool).await;
    writer.forget("nodepools", "workers");
    writer
        .pool(client, &name, (2, Vec::new()), ready, soon)
        .await
        .unwrap();
    assert_eq!(read().await["status"]["nodes"], json!(2));

    let scale = json!({"spec": {"replicas": 2}});
    merge(client, &format!("{OURS}/nodepools/workers/scale"), scale).await;
    assert_eq!(read().await["spec"]["limits"]["minNodes"], json!(2));
}

pub(super) async fn an_event_is_written(client: &Client) {
    let (events, writer) = events::writer(client.clone(), clock(), "kproxide", "a", false);
    let mut tasks = JoinSet::new();
    tasks.spawn(writer);
    let about = [
        About::pod(&ObjectKey::new("default", "web"), &"u".into()),
        About::node(&"n1".into()),
        About::claim(&"workers-x7".into(), &"u".into()),
    ];
    for about in about {
        events.say(Event::normal(
            about,
            "NotTriggerScaleUp",
            "too big".to_owned(),
        ));
    }
    drop(events);
    while tasks.join_next().await.is_some() {}
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let list = send(client, "GET", path, &Value::Null).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let ours = items.filter(|event| event["reason"] == "NotTriggerScaleUp");
    assert_eq!(ours.count(), 3, "{list}");
}
