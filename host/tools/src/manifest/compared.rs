//! What [`super::admission`] fills in, compared with what a real API server fills in.

use std::time::Duration;

use kproxide_planner::facts::PodSpec;
use kproxide_planner::keys;
use kproxide_testkit::{ControlPlane, eventually};
use serde_json::{Value, json};

use super::{Admission, Object, Objects, documents};
use kproxide_kube::convert::{decoded, pod_facts};
use kproxide_kube::view::PodView;

/// Of each thing that is filled in from other objects there are two.
const CONTEXT: &str = "
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 7, globalDefault: true}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {cpu: 250m, memory: 120Mi}}
scheduling: {nodeSelector: {kata: installed}, tolerations: [{key: kata, operator: Exists, effect: NoSchedule}]}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: plain}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: example.com/fast
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow}, provisioner: example.com/slow}
---
apiVersion: v1
kind: LimitRange
metadata: {name: a, namespace: admitted}
spec:
  limits:
  - {type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}, min: {memory: 16Mi}, max: {memory: 4Gi}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: b, namespace: admitted}
spec: {limits: [{type: Container, defaultRequest: {ephemeral-storage: 1Gi}}, {type: Pod, max: {cpu: 64}}]}
";

fn pods() -> Vec<(&'static str, Value)> {
    let port =
        json!([{"containerPort": 80}, {"containerPort": 53, "hostPort": 53, "protocol": "UDP"}]);
    vec![
        ("bare", json!({"containers": [{"name": "a"}]})),
        (
            "limited",
            json!({"containers": [
                {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "200m"}}},
            ]}),
        ),
        (
            "sidecar",
            json!({
                "initContainers": [
                    {"name": "i", "restartPolicy": "Always", "ports": port},
                    {"name": "j", "resources": {"limits": {"cpu": "2"}}},
                ],
                "containers": [{"name": "a"}],
            }),
        ),
        (
            "on-host",
            json!({"hostNetwork": true, "priorityClassName": "high",
                   "containers": [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 443}]}]}),
        ),
        (
            "boxed",
            json!({"runtimeClassName": "kata", "nodeSelector": {"a": "b"}, "containers": [{"name": "a", "ports": port}]}),
        ),
        (
            "tolerant",
            json!({"runtimeClassName": "plain", "priorityClassName": "system-cluster-critical", "containers": [{"name": "a"}],
                   "tolerations": [{"key": keys::NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]}),
        ),
        (
            "tolerates-all",
            json!({"containers": [{"name": "a"}], "tolerations": [{"operator": "Exists"}]}),
        ),
    ]
}

fn path(kind: &str) -> &'static str {
    match kind {
        "PriorityClass" => "/apis/scheduling.k8s.io/v1/priorityclasses",
        "RuntimeClass" => "/apis/node.k8s.io/v1/runtimeclasses",
        "StorageClass" => "/apis/storage.k8s.io/v1/storageclasses",
        "LimitRange" => "/api/v1/namespaces/admitted/limitranges",
        "PersistentVolumeClaim" => "/api/v1/namespaces/admitted/persistentvolumeclaims",
        _ => "/api/v1/namespaces/admitted/pods",
    }
}

fn spec(pod: &Value) -> PodSpec {
    pod_facts(&decoded::<PodView>("Pod", pod).unwrap()).spec
}

#[tokio::test]
async fn files_are_completed_as_the_api_server_completes() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    let api = cluster.api();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "admitted"}});
    api.create("/api/v1/namespaces", &namespace).await.unwrap();
    let mut objects = Objects::default();
    let context = documents("context.yaml", CONTEXT, "admitted").unwrap();
    for object in &context {
        api.create(path(object.kind()), &object.value)
            .await
            .unwrap();
    }
    objects.add(context);
    let admission = Admission::of(&objects);
    // The controller manager makes it; without it the API server refuses pods.
    let account = "/api/v1/namespaces/admitted/serviceaccounts/default";
    eventually(Duration::from_secs(30), account, async || {
        api.get(account).await.map_err(|error| error.to_string())
    })
    .await;

    for (name, wanted) in pods() {
        let mut wanted = wanted;
        for list in ["containers", "initContainers"] {
            for container in wanted[list].as_array_mut().into_iter().flatten() {
                container["image"] = "image".into();
            }
        }
        if wanted["initContainers"].is_null() {
            wanted.as_object_mut().unwrap().remove("initContainers");
        }
        let value = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "admitted"}, "spec": wanted,
        });
        let stored = api.create(path("Pod"), &value).await.unwrap();
        let mut ours = Object::from_elsewhere(value, "a test");
        assert!(admission.admit(&mut ours).is_empty(), "{name}");
        assert_eq!(spec(&ours.value), spec(&stored), "{name}");
    }

    for (name, given) in [("a", json!({})), ("b", json!({"storageClassName": "slow"}))] {
        let mut wanted = given;
        wanted["accessModes"] = json!(["ReadWriteOnce"]);
        wanted["resources"] = json!({"requests": {"storage": "1Gi"}});
        let value = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "admitted"}, "spec": wanted,
        });
        let stored = api
            .create(path("PersistentVolumeClaim"), &value)
            .await
            .unwrap();
        let mut ours = Object::from_elsewhere(value, "a test");
        admission.admit(&mut ours);
        for field in ["storageClassName", "volumeMode"] {
            assert_eq!(
                ours.value["spec"][field], stored["spec"][field],
                "{name}.{field}"
            );
        }
    }
    cluster.stop().await;
}
