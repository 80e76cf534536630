//! Draws what pods with claims ask about: PersistentVolumeClaims, StorageClasses, and what CSI drivers say.

use serde_json::{Value, json};

use super::draw::{Draw, HOST, ZONE, ZONES, push};
use super::volumes::{attachments, free_volumes, modes, volume};

pub(super) const DRIVER: &str = "csi.example.com";
pub(super) const ROOM_DRIVER: &str = "room.example.com";
/// Claims of each namespace. Pods name one more, which is missing.
pub(super) const CLAIMS: usize = 4;
const BOUND: &str = "pv.kubernetes.io/bind-completed";
pub(super) const NAMESPACES: [&str; 3] = ["default", "team-a", "team-b"];

/// Everything about storage in a world with so many Nodes.
pub(super) fn storage(draw: &mut Draw, nodes: usize) -> Vec<Value> {
    let mut objects = classes(draw);
    // In some worlds most claims wait for the same volumes.
    let bound = if draw.percent(33) { 15 } else { 75 };
    for namespace in NAMESPACES {
        for index in 0..CLAIMS {
            claim(draw, namespace, index, nodes, bound, &mut objects);
        }
    }
    free_volumes(draw, nodes, &mut objects);
    for index in 0..nodes {
        if draw.percent(90) {
            objects.push(csi_node(draw, index));
        }
        if draw.percent(40) {
            objects.push(capacity(draw, index));
        }
    }
    attachments(draw, nodes, &mut objects);
    objects
}

/// Gives volumes to a pod. `all`: the objects about storage. A pod that has its Node has claims that are bound.
pub(super) fn give_volumes(draw: &mut Draw, pod: &mut Value, all: &[Value]) {
    let is_waiting = pod["spec"]["nodeName"].is_null();
    let is_there = |name: &str| all.iter().any(|object| object["metadata"]["name"] == *name);
    let is_usable = |name: &String| {
        let namespace = &pod["metadata"]["namespace"];
        let claim = all.iter().find(|object| {
            let meta = &object["metadata"];
            meta["name"] == *name && meta["namespace"] == *namespace
        });
        let is_bound = |claim: &Value| {
            let volume = claim["spec"]["volumeName"].as_str();
            claim["metadata"]["annotations"][BOUND] == "yes" && volume.is_some_and(is_there)
        };
        is_waiting || claim.is_some_and(is_bound)
    };
    let most = if draw.percent(15) { CLAIMS } else { CLAIMS - 1 };
    let named = (0..=most).map(|index| format!("c{index}"));
    let mut claims: Vec<String> = named.filter(is_usable).collect();
    for index in 0..draw.between(0, 2) {
        let mut volume = match draw.between(0, 20) {
            0 => json!({"emptyDir": {}}),
            1 => json!({"csi": {"driver": DRIVER}}),
            2 | 3 => json!({"ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }}}}),
            _ if claims.is_empty() => continue,
            _ => {
                let name = claims.swap_remove(draw.between(0, claims.len() - 1));
                json!({"persistentVolumeClaim": {"claimName": name}})
            }
        };
        volume["name"] = json!(format!("v{index}"));
        push(&mut pod["spec"]["volumes"], volume);
    }
}

/// The claims that Kubernetes makes for ephemeral volumes of this pod, with the volumes that they are bound to. Those of a
/// pod that has its Node are. Of another pod's now and then another object has such a name.
pub(super) fn ephemeral_claims(draw: &mut Draw, pod: &Value, nodes: usize) -> Vec<Value> {
    let meta = &pod["metadata"];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let is_waiting = pod["spec"]["nodeName"].is_null();
    let volumes = pod["spec"]["volumes"].as_array();
    let ephemeral = volumes.into_iter().flatten();
    let ephemeral = ephemeral.filter(|volume| !volume["ephemeral"].is_null());
    let mut objects = Vec::new();
    for volume in ephemeral {
        let of = match is_waiting && draw.percent(15) {
            true => "another".to_owned(),
            false => text(&meta["uid"]),
        };
        let name = format!("{}-{}", text(&meta["name"]), text(&volume["name"]));
        let class = draw.pick(&["csi", "room", "now"]);
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": meta["namespace"], "uid": format!("uid-{name}"),
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "controller": true,
                                     "name": meta["name"], "uid": of}],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": class,
            },
            "status": {"phase": "Pending"},
        });
        if !is_waiting || draw.percent(50) {
            let of = format!("pvc-{name}");
            claim["spec"]["volumeName"] = json!(of);
            claim["metadata"]["annotations"] = json!({BOUND: "yes"});
            claim["status"]["phase"] = json!("Bound");
            let mut volume = self::volume(draw, &of, class, nodes);
            volume["spec"]["claimRef"] = json!({
                "namespace": meta["namespace"], "name": name, "uid": claim["metadata"]["uid"],
            });
            volume["status"]["phase"] = json!("Bound");
            objects.push(volume);
        }
        objects.push(claim);
    }
    objects
}

fn classes(draw: &mut Draw) -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode,
        })
    };
    let waits = "WaitForFirstConsumer";
    let mut csi = class("csi", DRIVER, waits);
    if draw.percent(60) {
        let zones = [draw.pick(&ZONES), draw.pick(&["beta", "delta"])];
        csi["allowedTopologies"] =
            json!([{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]);
        if draw.percent(30) {
            let rack = json!({"matchLabelExpressions": [{"key": "rack", "values": ["r2"]}]});
            push(&mut csi["allowedTopologies"], rack);
        }
    }
    let driver = |name: &str, has_capacity: bool| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name},
            "spec": {"storageCapacity": has_capacity},
        })
    };
    vec![
        csi,
        class("local", "kubernetes.io/no-provisioner", waits),
        class("now", DRIVER, "Immediate"),
        class("room", ROOM_DRIVER, waits),
        driver(DRIVER, false),
        driver(ROOM_DRIVER, true),
    ]
}

/// `bound`: the chance that it has its volume.
fn claim(
    draw: &mut Draw,
    namespace: &str,
    index: usize,
    nodes: usize,
    bound: u32,
    objects: &mut Vec<Value>,
) {
    let name = format!("c{index}");
    let class = match bound < 50 && draw.percent(80) {
        true => draw.pick(&["local", "local", "room"]),
        false => draw.pick(&["csi", "csi", "local", "room", "room", "now", "missing", ""]),
    };
    let mut spec = json!({
        "accessModes": [draw.pick(&[
            "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteOncePod", "ReadWriteMany",
            "ReadWriteOncePod", "ReadWriteOnce",
        ])],
        "resources": {"requests": {"storage": draw.pick(&["1Gi", "3Gi", "5Gi"])}},
        "storageClassName": class,
    });
    modes(draw, &mut spec);
    if draw.percent(10) {
        spec["selector"] = json!({"matchLabels": {"tier": "fast"}});
    }
    let uid = format!("uid-{namespace}-{name}");
    let mut metadata = json!({"name": name, "namespace": namespace, "uid": uid});
    let mut phase = "Pending";
    if draw.percent(bound) {
        let of = format!("{namespace}-{name}");
        spec["volumeName"] = json!(of);
        if draw.percent(95) {
            metadata["annotations"] = json!({BOUND: "yes"});
        }
        phase = if draw.percent(4) { "Lost" } else { "Bound" };
        if draw.percent(95) {
            let mut volume = volume(draw, &of, class, nodes);
            volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": name, "uid": uid});
            volume["status"]["phase"] = json!("Bound");
            objects.push(volume);
        }
    } else if draw.percent(12) {
        let node = format!("n{}", draw.between(0, nodes));
        metadata["annotations"] = json!({"volume.kubernetes.io/selected-node": node});
    }
    if draw.percent(4) {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": spec, "status": {"phase": phase},
    }));
}

fn csi_node(draw: &mut Draw, index: usize) -> Value {
    let name = format!("n{index}");
    let mut driver = json!({"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE]});
    if draw.percent(80) {
        driver["allocatable"] = json!({"count": draw.between(1, 2)});
    }
    let mut drivers = vec![driver];
    if draw.percent(50) {
        let count = draw.between(1, 3);
        drivers.push(json!({"name": ROOM_DRIVER, "nodeID": name, "allocatable": {"count": count}}));
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": drivers},
    })
}

fn capacity(draw: &mut Draw, index: usize) -> Value {
    let mut capacity = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": format!("room-{index}"), "namespace": "kube-system"},
        "storageClassName": draw.pick(&["room", "room", "room", "csi"]),
        "capacity": draw.pick(&["2Gi", "4Gi", "8Gi"]),
        "nodeTopology": {"matchLabels": {HOST: format!("n{index}")}},
    });
    if draw.percent(30) {
        capacity["maximumVolumeSize"] = json!("2Gi");
    }
    if draw.percent(20) {
        capacity["nodeTopology"] = json!({"matchLabels": {ZONE: draw.pick(&ZONES)}});
    }
    capacity
}
