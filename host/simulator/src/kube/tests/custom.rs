//! Custom resources: definitions, schemas, apply, finalizers, discovery.

use super::*;

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
