//! The API as a real client sees it: kube-rs over the in-process service, on paused time.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use ::kube::{
    Api, Client, Error, Resource as _, ResourceExt,
    api::{
        DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams,
        Preconditions,
    },
    core::{ApiResource, GroupVersionKind, Status},
    discovery::Discovery,
    runtime::{WatchStreamExt, watcher},
};
use futures::StreamExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use serde_json::{Value, json};

use super::*;

mod custom;
mod watching;
mod wire;

fn world() -> (Kube, Client) {
    let kube = Kube::new(
        Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
        1,
    );
    let client = Client::new(kube.service(), "default");
    (kube, client)
}

fn typed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn pod(name: &str) -> Pod {
    typed(
        json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
}

/// A pod that runs and is ready, without scheduler and kubelet.
fn run(kube: &Kube, name: &str) {
    let object = serde_json::to_value(pod(name)).unwrap();
    kube.create("pods", object).unwrap();
    kube.bind(&Key::new("default", name), "", "node-a").unwrap();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    kube.patch("pods", "status", "default", name, status)
        .unwrap();
}

fn refusal(error: Error) -> Status {
    let Error::Api(status) = error else {
        panic!("not an API error: {error:?}");
    };
    *status
}

fn code(error: Error) -> (u16, String) {
    let status = refusal(error);
    (status.code, status.message)
}

#[tokio::test(start_paused = true)]
async fn create_read_replace_delete() {
    let (_, client) = world();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let created = pods
        .create(&PostParams::default(), &pod("a"))
        .await
        .unwrap();
    assert_eq!(
        created.creation_timestamp().unwrap().0.to_string(),
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(
        created.status.as_ref().unwrap().phase.as_deref(),
        Some("Pending")
    );
    assert_eq!(
        created
            .spec
            .as_ref()
            .unwrap()
            .tolerations
            .as_ref()
            .unwrap()
            .len(),
        2
    );

    let twice = pods
        .create(&PostParams::default(), &pod("a"))
        .await
        .unwrap_err();
    assert_eq!(code(twice), (409, "pods \"a\" already exists".to_owned()));

    let mut changed = created.clone();
    changed.labels_mut().insert("x".to_owned(), "y".to_owned());
    let replaced = pods
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(replaced.resource_version(), created.resource_version());
    let stale = pods
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap_err();
    assert_eq!(
        code(stale),
        (
            409,
            "Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply your changes to the \
             latest version and try again"
                .to_owned()
        )
    );

    let wrong_uid = DeleteParams::default().preconditions(Preconditions {
        uid: Some("other".to_owned()),
        resource_version: None,
    });
    assert_eq!(code(pods.delete("a", &wrong_uid).await.unwrap_err()).0, 409);
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let missing = pods.get("a").await.unwrap_err();
    assert_eq!(code(missing), (404, "pods \"a\" not found".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_equal_write_makes_no_new_version() {
    let (kube, client) = world();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let created = pods
        .create(&PostParams::default(), &pod("a"))
        .await
        .unwrap();
    let before = kube.revision();
    pods.replace("a", &PostParams::default(), &created)
        .await
        .unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}));
    pods.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(kube.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn generated_names_and_dry_runs() {
    let (kube, client) = world();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut template = pod("x");
    template.metadata.name = None;
    template.metadata.generate_name = Some("web-".to_owned());
    let created = pods
        .create(&PostParams::default(), &template)
        .await
        .unwrap();
    assert_eq!(created.name_any().len(), "web-".len() + 5);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create(&dry, &pod("dry")).await.unwrap();
    assert_eq!(kube.objects("pods").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn evictions_respect_the_budget() {
    let (kube, client) = world();
    for name in ["a", "b", "c"] {
        run(&kube, name);
    }
    let budget = |spec: Value| json!({"metadata": {"name": "web"}, "spec": spec});
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}});
    budgets
        .create(&PostParams::default(), &typed(budget(spec.clone())))
        .await
        .unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());

    // By hand, because `Api::evict` of kube 5 misspells `deleteOptions`, which servers then ignore.
    let other =
        json!({"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"uid": "other"}}})
            .to_string();
    let eviction = http::Request::post("/api/v1/namespaces/default/pods/a/eviction")
        .body(other.into_bytes())
        .unwrap();
    assert_eq!(
        code(client.request::<Value>(eviction).await.unwrap_err()).0,
        409
    );
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let evicted = pods.get("a").await.unwrap();
    assert_eq!(evicted.metadata.deletion_grace_period_seconds, Some(30));

    let refused = refusal(pods.evict("b", &EvictParams::default()).await.unwrap_err());
    assert_eq!(refused.code, 429);
    assert_eq!(
        refused.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let causes = refused.details.unwrap().causes;
    assert_eq!(
        causes[0].message,
        "The disruption budget web needs 2 healthy pods and has 2 currently"
    );

    // The pods have no controller, so that nobody knows of how many one may be missing.
    let max = json!({"maxUnavailable": 1, "selector": spec["selector"]});
    budgets
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    budgets
        .create(&PostParams::default(), &typed(budget(max)))
        .await
        .unwrap();
    assert_eq!(
        code(pods.evict("b", &EvictParams::default()).await.unwrap_err()).0,
        429
    );
    budgets
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    pods.evict("b", &EvictParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leases_and_nodes() {
    let (_, client) = world();
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease: Lease = typed(
        json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n", "renewTime": "2026-01-01T00:00:00.000000Z"}}),
    );
    let made = leases.create(&PostParams::default(), &lease).await.unwrap();
    let mut renewed = made.clone();
    renewed.spec.as_mut().unwrap().renew_time = Some(typed(json!("2026-01-01T00:00:10.000000Z")));
    leases
        .replace("n", &PostParams::default(), &renewed)
        .await
        .unwrap();
    assert_eq!(
        code(
            leases
                .replace("n", &PostParams::default(), &renewed)
                .await
                .unwrap_err()
        )
        .0,
        409
    );

    let nodes: Api<Node> = Api::all(client);
    let node: Node = typed(json!({"metadata": {"name": "n"}}));
    let made = nodes.create(&PostParams::default(), &node).await.unwrap();
    let taints = made.spec.unwrap().taints.unwrap();
    assert_eq!(taints[0].key, "node.kubernetes.io/not-ready");
    let cordoned = nodes.cordon("n").await.unwrap();
    assert_eq!(cordoned.spec.unwrap().unschedulable, Some(true));
    let bad = Patch::Merge(json!({"metadata": {"labels": {"a": "b c"}}}));
    let error = code(
        nodes
            .patch("n", &PatchParams::default(), &bad)
            .await
            .unwrap_err(),
    );
    assert_eq!(error.0, 422);
    assert!(error.1.starts_with(
        "Node \"n\" is invalid: metadata.labels: Invalid value: \"b c\": a valid label must be"
    ));
}

#[tokio::test(start_paused = true)]
async fn the_audit_names_who_did_what() {
    let (kube, _) = world();
    let client = Client::new(kube.as_user("alice").service(), "default");
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("a"))
        .await
        .unwrap();
    pods.create(&PostParams::default(), &pod("a"))
        .await
        .unwrap_err();
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let lines: Vec<String> = kube.audit().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "2026-01-01T00:00:00.000000Z alice create pods default/a -> 201 @5",
            "2026-01-01T00:00:00.000000Z alice create pods default/ -> 409 @5",
            "2026-01-01T00:00:00.000000Z alice create pods/eviction default/a -> 201 @6",
        ]
    );
    let labels: BTreeMap<String, String> = kube.objects("namespaces")[0].labels.clone();
    assert_eq!(labels["kubernetes.io/metadata.name"], "default");
}

#[tokio::test(start_paused = true)]
async fn a_limit_range_gives_containers_what_they_do_not_say() {
    let (kube, _) = world();
    kube.create("namespaces", fixtures::namespace("other"))
        .unwrap();
    let range = |name: &str, namespace: &str, item: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"limits": [item]},
        });
        kube.create("limitranges", object).unwrap();
    };
    let both = json!({"cpu": "250m", "memory": "64Mi"});
    range(
        "a",
        "default",
        json!({"type": "Container", "defaultRequest": both, "default": {"cpu": "1"}}),
    );
    range(
        "b",
        "default",
        json!({"type": "Container", "min": {"memory": "1Mi", "example.com/x": "2"}}),
    );
    range("c", "default", json!({"type": "Pod", "max": {"cpu": "7"}}));
    range(
        "d",
        "other",
        json!({"type": "Container", "default": {"cpu": "3"}}),
    );
    let created = |name: &str, resources: Value| {
        let mut pod = fixtures::pod(name, "1", "1Gi");
        pod["spec"]["containers"] = json!([{"name": "a", "image": "i", "resources": resources}]);
        let pod = kube.create("pods", pod).unwrap();
        (
            pod["spec"]["containers"][0]["resources"].clone(),
            pod["status"]["qosClass"].clone(),
        )
    };
    let (silent, class) = created("silent", json!({}));
    let expected = json!({"cpu": "250m", "memory": "64Mi", "example.com/x": "2"});
    assert_eq!(
        (&silent["requests"], class),
        (&expected, json!("Burstable"))
    );
    assert_eq!(silent["limits"], json!({"cpu": "1"}));
    // Its own limit is its request, whatever the namespace gives to others.
    let (limited, _) = created(
        "limited",
        json!({"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}),
    );
    let expected = json!({"cpu": "2", "memory": "1Gi", "example.com/x": "2"});
    assert_eq!(limited["requests"], expected);
    assert_eq!(limited["limits"], json!({"cpu": "2"}));
}
