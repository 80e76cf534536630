//! What plays the storage of the worlds: classes, a provisioner, and the registrar of a CSI driver.

use kproxide_testkit::controlplane::{Api, CONTROL_PLANE_NODE};
use serde_json::{Value, json};

use crate::volumes::{CLASSES, LOCAL_PATH, PROXMOX, ZONE};

/// Its claims wait for a volume before any pod is placed, and nobody makes one.
pub(super) const IMMEDIATE: &str = "immediate";

/// Its volumes are made by people, and there are none.
pub(super) const MADE_BY_PEOPLE: &str = "made-by-people";

/// A Node holds so many volumes of the driver.
pub(super) const ATTACH_LIMIT: u32 = 3;

pub(super) const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
pub(super) const CSI_DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";
const NODES: &str = "/api/v1/nodes";

/// Classes, and the driver with its DaemonSet, whose pod registers it on each Node.
pub(super) async fn install(api: &Api) {
    LOCAL_PATH.install(api).await;
    PROXMOX.install(api).await;
    for (name, provisioner, mode) in [
        (IMMEDIATE, "example.com/nobody", "Immediate"),
        (
            MADE_BY_PEOPLE,
            "kubernetes.io/no-provisioner",
            "WaitForFirstConsumer",
        ),
    ] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode,
        });
        api.create(CLASSES, &class).await.unwrap();
    }
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": PROXMOX.name},
        "spec": {"attachRequired": false},
    });
    api.create(CSI_DRIVERS, &driver).await.unwrap();
    let labels = json!({"app": "csi-node"});
    let folder = format!("/var/lib/kubelet/plugins/{}", PROXMOX.name);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "csi-node"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{
                        "name": "driver", "image": "registry.k8s.io/pause:3.10",
                        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
                        "volumeMounts": [{"name": "socket", "mountPath": "/csi"}],
                    }],
                    "volumes": [{"name": "socket", "hostPath": {"path": folder}}],
                },
            },
        },
    });
    api.create(DAEMON_SETS, &set).await.unwrap();
}

/// One look of the provisioners and of the registrar.
pub(super) async fn serve(api: &Api) {
    LOCAL_PATH.provision(api).await;
    PROXMOX.provision(api).await;
    let known = api.list(CSI_NODES).await.unwrap();
    for node in api.list(NODES).await.unwrap() {
        let name = &node["metadata"]["name"];
        let has_registered = known.iter().any(|one| one["metadata"]["name"] == *name);
        if !has_registered && name != CONTROL_PLANE_NODE {
            // The Node may be gone, and with it this object again.
            let _ = api.create(CSI_NODES, &csi_node(&node)).await;
        }
    }
}

fn csi_node(node: &Value) -> Value {
    let meta = &node["metadata"];
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {
            "name": meta["name"],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"],
            }],
        },
        "spec": {"drivers": [{
            "name": PROXMOX.name, "nodeID": meta["name"], "topologyKeys": [ZONE],
            "allocatable": {"count": ATTACH_LIMIT},
        }]},
    })
}
