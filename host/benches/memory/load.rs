//! 1000 Nodes, 30,000 pods and 10,000 PersistentVolumeClaims as an API server really sends them: of 300 Deployments, with probes, volumes, statuses and
//! managed fields.

use kproxide_simulator::kube::{Kube, fixtures};
use serde_json::{Value, json};

pub(crate) const NODES: usize = 1_000;
pub(crate) const PODS: usize = 30_000;
/// Every third pod has a PersistentVolumeClaim, bound to a volume that every Node reaches, with what the controllers of volumes write on both.
pub(crate) const CLAIMS: usize = PODS / 3;
const PODS_PER_DEPLOYMENT: usize = 100;
/// Of each pod, as JSON.
const POD_BYTES: usize = 6 << 10;
const NAMESPACES: usize = 20;

/// Makes the objects; how many bytes all the pods have.
pub(crate) fn fill(kube: &Kube) -> usize {
    let trial = Kube::new(*kube.clock(), 0);
    make_namespaces(&trial);
    let bare = run_pod(&trial, 1, "").to_string().len();
    // What is left goes into one annotation, as a rendered configuration or an injected sidecar's status does.
    let padding = "0123456789abcdef".repeat(POD_BYTES / 16);
    let padding = &padding[..POD_BYTES - bare];

    make_namespaces(kube);
    for index in 0..NODES {
        fixtures::add_node(kube, node(index)).unwrap();
    }
    for index in 0..PODS {
        run_pod(kube, index, padding);
    }
    // The simulator need not keep what was before.
    kube.compact();
    let bytes = kube.objects("pods").iter().map(|pod| pod.bytes.len()).sum();
    assert!(
        (98 * PODS * POD_BYTES..102 * PODS * POD_BYTES).contains(&(100 * bytes)),
        "{bytes} bytes of pods"
    );
    bytes
}

fn make_namespaces(kube: &Kube) {
    for index in 0..NAMESPACES {
        let namespace = fixtures::namespace(&namespace(index));
        kube.create("namespaces", namespace).unwrap();
    }
}

fn run_pod(kube: &Kube, index: usize, padding: &str) -> Value {
    let mut pod = pod(index);
    pod["metadata"]["annotations"]["example.com/rendered"] = json!(padding);
    pod["metadata"]["managedFields"] = managed_fields();
    if has_data(index) {
        for (resource, object) in volume(index) {
            kube.create(resource, object).unwrap();
        }
    }
    let mut pod = kube.create("pods", pod).unwrap();
    pod["status"] = pod_status(index);
    kube.update("pods", "status", pod).unwrap()
}

/// A pod that fits no machine of the pool, nor any Node, as the scheduler has found.
pub(crate) fn refuse_one(kube: &Kube) {
    let pod = fixtures::pod("too-big", "64", "1Gi");
    let mut pod = kube.create("pods", pod).unwrap();
    pod["status"] = json!({
        "phase": "Pending",
        "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }],
    });
    kube.update("pods", "status", pod).unwrap();
}

fn namespace(index: usize) -> String {
    format!("team-{:02}", index % NAMESPACES)
}

fn deployment(pod: usize) -> String {
    format!("service-{:03}", pod / PODS_PER_DEPLOYMENT)
}

fn node_name(index: usize) -> String {
    format!("node-{:04}", index % NODES)
}

fn node(index: usize) -> Value {
    let mut node = fixtures::node(&node_name(index), "8", "32Gi");
    let images: Vec<_> = (0..50)
        .map(|image| json!({
            "names": [
                format!("registry.example.com/team/service-{image:03}@sha256:{}", "5f".repeat(32)),
                format!("registry.example.com/team/service-{image:03}:1.{image}.0"),
            ],
            "sizeBytes": 123_456_789 + image,
        }))
        .collect();
    node["status"]["images"] = json!(images);
    node["status"]["nodeInfo"] = json!({
        "architecture": "amd64",
        "bootID": "0e0e0e0e-0000-4000-8000-000000000000",
        "containerRuntimeVersion": "containerd://2.1.4",
        "kernelVersion": "6.12.48+deb13-amd64",
        "kubeletVersion": "v1.34.2+k3s1",
        "operatingSystem": "linux",
        "osImage": "Debian GNU/Linux 13 (trixie)",
        "systemUUID": format!("00000000-0000-4000-8000-{index:012}"),
    });
    node["metadata"]["managedFields"] = managed_fields();
    node
}

/// The claim of a pod that has data, and its volume.
fn volume(index: usize) -> [(&'static str, Value); 2] {
    let (claim, volume) = (claim_name(index), format!("pvc-{index:032x}"));
    let namespace = namespace(index / PODS_PER_DEPLOYMENT);
    let capacity = json!({ "storage": "8Gi" });
    let made = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": volume, "managedFields": managed_fields(),
            "annotations": { "pv.kubernetes.io/provisioned-by": "driver.longhorn.io" } },
        "spec": {
            "capacity": capacity, "accessModes": ["ReadWriteOnce"], "storageClassName": "replicated",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim },
            "csi": { "driver": "driver.longhorn.io", "volumeHandle": volume, "fsType": "ext4" },
        },
        "status": { "phase": "Bound" },
    });
    let asked = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": claim, "namespace": namespace, "managedFields": managed_fields(),
            "annotations": { "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes" } },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": capacity }, "storageClassName": "replicated",
            "volumeMode": "Filesystem", "volumeName": volume,
        },
        "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": capacity },
    });
    [
        ("persistentvolumes", made),
        ("persistentvolumeclaims", asked),
    ]
}

fn has_data(index: usize) -> bool {
    index.is_multiple_of(PODS / CLAIMS)
}

fn claim_name(index: usize) -> String {
    format!("data-{}-{index:05}", deployment(index))
}

fn pod(index: usize) -> Value {
    let data = has_data(index).then(
        || json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim_name(index) } }),
    );
    let mut pod = pod_without_data(index);
    let volumes = pod["spec"]["volumes"].as_array_mut();
    volumes.unwrap().extend(data);
    pod
}

fn pod_without_data(index: usize) -> Value {
    let service = deployment(index);
    let environment: Vec<_> = ["LOG_LEVEL", "DATABASE_HOST", "DATABASE_NAME", "CACHE_URL", "REGION", "FEATURES"]
        .into_iter()
        .map(|name| json!({ "name": name, "value": format!("{service}.{}.svc.cluster.local", namespace(index)) }))
        .collect();
    let probe = |path: &str| {
        json!({
            "httpGet": { "path": path, "port": "http", "scheme": "HTTP" },
            "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{service}-6c5f9d7b84-{index:05}"),
            "generateName": format!("{service}-6c5f9d7b84-"),
            // A Deployment is in one namespace.
            "namespace": namespace(index / PODS_PER_DEPLOYMENT),
            "labels": {
                "app.kubernetes.io/name": service,
                "app.kubernetes.io/instance": "production",
                "app.kubernetes.io/managed-by": "Helm",
                "pod-template-hash": "6c5f9d7b84",
            },
            "annotations": { "checksum/config": "9f".repeat(32) },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{service}-6c5f9d7b84"),
                "uid": format!("00000000-0000-4000-9000-{:012}", index / PODS_PER_DEPLOYMENT),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node_name(index),
            "serviceAccountName": service,
            "securityContext": { "runAsNonRoot": true, "fsGroup": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [
                {
                    "name": "main",
                    "image": format!("registry.example.com/team/{service}:1.4.2"),
                    "imagePullPolicy": "IfNotPresent",
                    "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
                    "env": environment,
                    "resources": {
                        "requests": { "cpu": "200m", "memory": format!("{}Mi", 400 + index / PODS_PER_DEPLOYMENT % 50) },
                        "limits": { "memory": "1Gi" },
                    },
                    "livenessProbe": probe("/healthz"),
                    "readinessProbe": probe("/readyz"),
                    "volumeMounts": [
                        { "name": "config", "mountPath": "/etc/service", "readOnly": true },
                        { "name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true },
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                },
            ],
            "volumes": [
                { "name": "config", "configMap": { "name": service, "defaultMode": 420 } },
                { "name": "kube-api-access-x7k2p", "projected": { "defaultMode": 420, "sources": [
                    { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                    { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
                ] } },
            ],
        },
    })
}

fn pod_status(index: usize) -> Value {
    let at = "2026-11-01T08:00:00Z";
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at });
    let conditions = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .map(condition);
    let service = deployment(index);
    json!({
        "phase": "Running",
        "qosClass": "Burstable",
        "hostIP": format!("10.0.{}.{}", index % NODES / 250, index % 250),
        "podIP": format!("10.42.{}.{}", index / 250 % 250, index % 250),
        "startTime": at,
        "conditions": conditions,
        "containerStatuses": [{
            "name": "main", "ready": true, "started": true, "restartCount": 0,
            "image": format!("registry.example.com/team/{service}:1.4.2"),
            "imageID": format!("registry.example.com/team/{service}@sha256:{}", "5f".repeat(32)),
            "containerID": format!("containerd://{index:064x}"),
            "lastState": {}, "state": { "running": { "startedAt": at } },
        }],
    })
}

/// Who owns which field: a third of a usual pod.
fn managed_fields() -> Value {
    let of_controller = json!({
        "f:metadata": {
            "f:annotations": { ".": {}, "f:checksum/config": {} },
            "f:generateName": {},
            "f:labels": {
                ".": {}, "f:app.kubernetes.io/instance": {}, "f:app.kubernetes.io/managed-by": {},
                "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {},
            },
            "f:ownerReferences": { ".": {}, "k:{\"uid\":\"00000000-0000-4000-9000-000000000000\"}": {} },
        },
        "f:spec": {
            "f:containers": { "k:{\"name\":\"main\"}": {
                ".": {}, "f:env": { ".": {}, "k:{\"name\":\"CACHE_URL\"}": { ".": {}, "f:name": {}, "f:value": {} } },
                "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": { ".": {}, "f:failureThreshold": {}, "f:httpGet": {} },
                "f:name": {}, "f:ports": {}, "f:readinessProbe": {}, "f:resources": { ".": {}, "f:limits": {}, "f:requests": {} },
                "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}, "f:volumeMounts": {},
            } },
            "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
            "f:securityContext": {}, "f:serviceAccountName": {}, "f:terminationGracePeriodSeconds": {}, "f:volumes": {},
        },
    });
    let of_kubelet = json!({ "f:status": {
        "f:conditions": {
            "k:{\"type\":\"ContainersReady\"}": { ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {} },
            "k:{\"type\":\"Ready\"}": { ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {} },
        },
        "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:startTime": {},
    } });
    let entry = |manager: &str, subresource: Option<&str>, fields: Value| {
        let mut entry = json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-11-01T08:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if let Some(subresource) = subresource {
            entry["subresource"] = json!(subresource);
        }
        entry
    };
    json!([
        entry("kube-controller-manager", None, of_controller),
        entry("kubelet", Some("status"), of_kubelet),
    ])
}
