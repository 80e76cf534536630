//! The API as a real client sees it: kube-rs over the in-process service, on paused time.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use ::kube::{
    Api, Client, Error, Resource as _, ResourceExt,
    api::{
        DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams,
        Preconditions,
    },
    core::{ApiResource, GroupVersionKind},
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

fn code(error: Error) -> (u16, String) {
    match error {
        Error::Api(status) => (status.code, status.message),
        other => panic!("not an API error: {other:?}"),
    }
}

fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 0},
                        "mode": {"type": "string", "default": "auto"},
                    }},
                    "status": {"type": "object", "properties": {
                        "size": {"type": "integer"},
                        "conditions": {
                            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                            "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
                        },
                    }},
                }}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
            }],
        },
    })
}

fn widgets(client: &Client) -> (Api<DynamicObject>, ApiResource) {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("example.com", "v1", "Widget"),
        "widgets",
    );
    (Api::all_with(client.clone(), &resource), resource)
}

fn widget(name: &str, resource: &ApiResource, spec: Value) -> DynamicObject {
    DynamicObject::new(name, resource).data(json!({"spec": spec}))
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
async fn lists_in_pages_and_by_selectors() {
    let (kube, client) = world();
    for index in 0..5 {
        run(&kube, &format!("p{index}"));
    }
    kube.create(
        "pods",
        json!({"metadata": {"name": "lone"}, "spec": {"containers": []}}),
    )
    .unwrap();
    let pods: Api<Pod> = Api::all(client);
    let first = pods.list(&ListParams::default().limit(4)).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (4, Some(2))
    );
    let token = first.metadata.continue_.unwrap();
    let rest = pods
        .list(&ListParams::default().continue_token(&token))
        .await
        .unwrap();
    let names: Vec<String> = rest.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["p3", "p4"]);
    assert_eq!(
        rest.metadata.resource_version,
        first.metadata.resource_version
    );

    let count = async |params: ListParams| pods.list(&params).await.unwrap().items.len();
    assert_eq!(count(ListParams::default().labels("app=web")).await, 5);
    assert_eq!(
        count(ListParams::default().fields("spec.nodeName=")).await,
        1
    );
    assert_eq!(
        count(ListParams::default().fields("status.phase=Running,metadata.name!=p0")).await,
        4
    );
    let unknown = pods
        .list(&ListParams::default().fields("spec.x=y"))
        .await
        .unwrap_err();
    assert_eq!(
        code(unknown),
        (400, "field label not supported: spec.x".to_owned())
    );
    run(&kube, "later");
    kube.compact();
    let expired = pods
        .list(&ListParams::default().continue_token(&token))
        .await
        .unwrap_err();
    assert_eq!(code(expired).0, 410);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_follows_and_survives_410() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let (kube, client) = world();
        run(&kube, "a");
        let api: Api<Pod> = Api::all(client);
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut next = async || match events.next().await.unwrap() {
            Ok(watcher::Event::Init) => "init".to_owned(),
            Ok(watcher::Event::InitApply(pod)) => format!("init {}", pod.name_any()),
            Ok(watcher::Event::InitDone) => "done".to_owned(),
            Ok(watcher::Event::Apply(pod)) => format!("apply {}", pod.name_any()),
            Ok(watcher::Event::Delete(pod)) => format!("delete {}", pod.name_any()),
            Err(error) => format!("error {error}")
                .split(" (")
                .next()
                .unwrap()
                .to_owned(),
        };
        while next().await != "done" {}
        run(&kube, "b");
        for _ in 0..3 {
            assert_eq!(next().await, "apply b");
        }
        let now = DeleteOptions {
            grace: Some(0),
            ..DeleteOptions::default()
        };
        kube.delete_with("pods", "default", "a", &now).unwrap();
        assert_eq!(next().await, "delete a");
        // What happened while nobody read is compacted away: the watcher is told so and lists anew.
        run(&kube, "c");
        kube.compact();
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "done") {
            seen.push(next().await);
        }
        assert_eq!(seen[seen.len() - 3..], ["init b", "init c", "done"]);
        run(&kube, "d");
        assert_eq!(next().await, "apply d");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks_and_ends_in_time() {
    let (kube, _) = world();
    let start = tokio::time::Instant::now();
    let request = http::Request::get(
        "/api/v1/pods?watch=true&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=150",
    );
    let response = kube
        .handle(request.body(bytes::Bytes::new()).unwrap())
        .await;
    let text = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    let kinds: Vec<Value> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds, ["BOOKMARK", "BOOKMARK"]);
    assert_eq!(start.elapsed(), Duration::from_secs(150));
}

#[tokio::test(start_paused = true)]
async fn a_label_that_stops_matching_is_a_deletion_for_the_watch() {
    let (kube, client) = world();
    run(&kube, "a");
    let api: Api<Pod> = Api::all(client);
    let mut events = pin!(watcher(api, watcher::Config::default().labels("app=web")));
    while !matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::InitDone
    ) {}
    let patch = json!({"metadata": {"labels": {"app": "other"}}});
    kube.patch("pods", "", "default", "a", patch).unwrap();
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::Delete(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_posted_definition_is_served_with_its_schema() {
    let (kube, client) = world();
    kube.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        widget_definition(),
    )
    .unwrap();
    let (api, resource) = widgets(&client);
    let post = PostParams::default();
    let made = api
        .create(
            &post,
            &widget("w", &resource, json!({"size": 1, "seize": 2})),
        )
        .await
        .unwrap();
    assert_eq!(made.data["spec"], json!({"size": 1, "mode": "auto"}));
    assert_eq!(made.metadata.generation, Some(1));

    let invalid = api
        .create(&post, &widget("v", &resource, json!({"size": -1})))
        .await
        .unwrap_err();
    assert_eq!(
        code(invalid),
        (
            422,
            "Widget.example.com \"v\" is invalid: spec.size: Invalid value: -1: spec.size in body should be greater than or \
             equal to 0"
                .to_owned()
        )
    );
    let strict = http::Request::post("/apis/example.com/v1/widgets?fieldValidation=Strict");
    let body = json!({"metadata": {"name": "u"}, "spec": {"size": 1, "seize": 2}}).to_string();
    let error = client
        .request::<Value>(strict.body(body.into_bytes()).unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        code(error),
        (
            400,
            "strict decoding error: unknown field \"spec.seize\"".to_owned()
        )
    );

    // The status is written alone, and does not count as a generation.
    let status = Patch::Merge(json!({"status": {"size": 7}, "spec": {"size": 9}}));
    let patched = api
        .patch_status("w", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(
        (
            &patched.data["spec"]["size"],
            &patched.data["status"]["size"]
        ),
        (&json!(1), &json!(7))
    );
    assert_eq!(patched.metadata.generation, Some(1));

    let scale = api.get_scale("w").await.unwrap();
    assert_eq!(
        (scale.spec.unwrap().replicas, scale.status.unwrap().replicas),
        (Some(1), 7)
    );
    let scaled = Patch::Merge(json!({"spec": {"replicas": 3}}));
    api.patch_scale("w", &PatchParams::default(), &scaled)
        .await
        .unwrap();
    let now = api.get("w").await.unwrap();
    assert_eq!(
        (&now.data["spec"]["size"], now.metadata.generation),
        (&json!(3), Some(2))
    );

    let mut unversioned = now.clone();
    unversioned.metadata.resource_version = None;
    let error = api.replace("w", &post, &unversioned).await.unwrap_err();
    assert!(
        code(error).1.contains(
            "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn apply_owns_fields() {
    let (kube, client) = world();
    kube.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        widget_definition(),
    )
    .unwrap();
    let (api, _) = widgets(&client);
    let config = |spec: Value| {
        Patch::Apply(json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": spec}))
    };
    let ours = PatchParams::apply("kproxide");
    api.patch("w", &ours, &config(json!({"size": 1, "mode": "full"})))
        .await
        .unwrap();
    let before = kube.revision();
    api.patch("w", &ours, &config(json!({"size": 1, "mode": "full"})))
        .await
        .unwrap();
    assert_eq!(kube.revision(), before, "an equal apply writes nothing");
    let other = PatchParams::apply("kubectl");
    let error = api
        .patch("w", &other, &config(json!({"size": 2})))
        .await
        .unwrap_err();
    assert_eq!(
        code(error).1,
        "Apply failed with 1 conflict: conflict with \"kproxide\": .spec.size"
    );
    let forced = api
        .patch("w", &other.force(), &config(json!({"size": 2})))
        .await
        .unwrap();
    assert_eq!(forced.data["spec"]["size"], 2);
    // What we stop setting goes back to its default.
    let again = api
        .patch("w", &ours.clone().force(), &config(json!({"size": 2})))
        .await
        .unwrap();
    assert_eq!(again.data["spec"]["mode"], "auto");

    let condition = |kind: &str| {
        Patch::Apply(json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "status": {"conditions": [{"type": kind, "status": "True"}]}}))
    };
    api.patch_status("w", &PatchParams::apply("a"), &condition("A"))
        .await
        .unwrap();
    let both = api
        .patch_status("w", &PatchParams::apply("b"), &condition("B"))
        .await
        .unwrap();
    assert_eq!(
        both.data["status"]["conditions"].as_array().unwrap().len(),
        2
    );
    assert_eq!(both.data["spec"]["size"], 2);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_a_deletion() {
    let (kube, client) = world();
    kube.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        widget_definition(),
    )
    .unwrap();
    let (api, resource) = widgets(&client);
    let mut object = widget("w", &resource, json!({"size": 1}));
    object.finalizers_mut().push("example.com/hold".to_owned());
    api.create(&PostParams::default(), &object).await.unwrap();
    api.delete("w", &DeleteParams::default()).await.unwrap();
    let mut held = api.get("w").await.unwrap();
    assert!(held.meta().deletion_timestamp.is_some());
    held.finalizers_mut().push("example.com/more".to_owned());
    let error = api
        .replace("w", &PostParams::default(), &held)
        .await
        .unwrap_err();
    assert!(
        code(error)
            .1
            .contains("no new finalizers can be added if the object is being deleted")
    );
    let patch = Patch::Json::<()>(typed(
        json!([{"op": "remove", "path": "/metadata/finalizers"}]),
    ));
    api.patch("w", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(code(api.get("w").await.unwrap_err()).0, 404);
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

    let refused = match pods.evict("b", &EvictParams::default()).await.unwrap_err() {
        Error::Api(status) => status,
        other => panic!("{other:?}"),
    };
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
async fn discovery_finds_built_in_and_custom_kinds() {
    let (kube, client) = world();
    kube.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        widget_definition(),
    )
    .unwrap();
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    for (group, version, kind, plural) in [
        ("", "v1", "Pod", "pods"),
        (
            "policy",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
        ),
        ("example.com", "v1", "Widget", "widgets"),
    ] {
        let (resource, _) = discovery
            .resolve_gvk(&GroupVersionKind::gvk(group, version, kind))
            .unwrap();
        assert_eq!(resource.plural, plural);
    }
    assert_eq!(
        client.apiserver_version().await.unwrap().git_version,
        "v1.36.3"
    );
    let absent: Api<Namespace> = Api::all(client);
    assert_eq!(code(absent.get("nope").await.unwrap_err()).0, 404);
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
