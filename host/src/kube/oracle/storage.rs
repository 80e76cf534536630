//! Draws what pods with claims ask about: PersistentVolumeClaims, PersistentVolumes, StorageClasses, and what CSI drivers
//! say.

use serde_json::{Value, json};

use super::draw::{Draw, HOST, ZONE, ZONES, push};

const DRIVER: &str = "csi.example.com";
const ROOM_DRIVER: &str = "room.example.com";
/// Claims of each namespace. Pods name one more, which is missing.
const CLAIMS: usize = 4;
const BOUND: &str = "pv.kubernetes.io/bind-completed";

/// Everything about storage in a world with so many Nodes.
pub(super) fn storage(draw: &mut Draw, nodes: usize) -> Vec<Value> {
    let mut objects = classes(draw);
    for namespace in ["default", "team-a", "team-b"] {
        for index in 0..CLAIMS {
            claim(draw, namespace, index, nodes, &mut objects);
        }
    }
    for index in 0..draw.between(0, 3) {
        let mut volume = volume(draw, &format!("free-{index}"), "local", nodes);
        volume["status"]["phase"] = json!("Available");
        if draw.percent(20) {
            let name = format!("c{}", draw.between(0, CLAIMS - 1));
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name});
        }
        objects.push(volume);
    }
    for index in 0..nodes {
        if draw.percent(90) {
            objects.push(csi_node(draw, index));
        }
        if draw.percent(40) {
            objects.push(capacity(draw, index));
        }
    }
    for index in 0..draw.between(0, 2) {
        let volume = format!("team-a-c{index}");
        objects.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("attachment-{index}")},
            "spec": {"attacher": DRIVER, "nodeName": format!("n{}", draw.between(0, nodes - 1)),
                     "source": {"persistentVolumeName": volume}},
            "status": {"attached": true},
        }));
    }
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
            2 | 3 if is_waiting => json!({"ephemeral": {"volumeClaimTemplate": {"spec": {
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

/// The claims that Kubernetes makes for ephemeral volumes of this pod. Now and then another object has such a name.
pub(super) fn ephemeral_claims(draw: &mut Draw, pod: &Value) -> Vec<Value> {
    let meta = &pod["metadata"];
    let volumes = pod["spec"]["volumes"].as_array();
    let ephemeral = volumes.into_iter().flatten();
    let ephemeral = ephemeral.filter(|volume| !volume["ephemeral"].is_null());
    let claims = ephemeral.map(|volume| {
        let name = |value: &Value| value.as_str().expect("a name").to_owned();
        let of = match draw.percent(15) {
            true => "another".to_owned(),
            false => name(&meta["uid"]),
        };
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": format!("{}-{}", name(&meta["name"]), name(&volume["name"])),
                "namespace": meta["namespace"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "controller": true,
                                     "name": meta["name"], "uid": of}],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": draw.pick(&["csi", "room", "now"]),
            },
            "status": {"phase": "Pending"},
        })
    });
    claims.collect()
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

fn claim(draw: &mut Draw, namespace: &str, index: usize, nodes: usize, objects: &mut Vec<Value>) {
    let name = format!("c{index}");
    let classes = ["csi", "csi", "local", "room", "room", "now", "missing", ""];
    let class = draw.pick(&classes);
    // Two claims of one pod never want the same PersistentVolume.
    let class = if index > 0 && class == "local" {
        "csi"
    } else {
        class
    };
    let mut spec = json!({
        "accessModes": [draw.pick(&[
            "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteOncePod", "ReadWriteMany",
            "ReadWriteOncePod", "ReadWriteOnce",
        ])],
        "resources": {"requests": {"storage": draw.pick(&["1Gi", "5Gi"])}},
        "storageClassName": class,
    });
    let mut metadata = json!({"name": name, "namespace": namespace});
    let mut phase = "Pending";
    if draw.percent(75) {
        let of = format!("{namespace}-{name}");
        spec["volumeName"] = json!(of);
        if draw.percent(95) {
            metadata["annotations"] = json!({BOUND: "yes"});
        }
        phase = if draw.percent(4) { "Lost" } else { "Bound" };
        if draw.percent(95) {
            let mut volume = volume(draw, &of, class, nodes);
            volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": name});
            volume["status"]["phase"] = json!("Bound");
            objects.push(volume);
        }
    } else if draw.percent(15) && class != "local" {
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

fn volume(draw: &mut Draw, name: &str, class: &str, nodes: usize) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"],
        "capacity": {"storage": draw.pick(&["1Gi", "10Gi"])}, "storageClassName": class,
    });
    match draw.between(0, 9) {
        0 => spec["nfs"] = json!({"server": "nas", "path": "/"}),
        1 => spec["local"] = json!({"path": "/data"}),
        _ => spec["csi"] = json!({"driver": DRIVER, "volumeHandle": name}),
    }
    let is_local = !spec["local"].is_null();
    if is_local || draw.percent(6) {
        let by = |key: &str, values: Vec<String>| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
        let mut terms = Vec::new();
        for _ in 0..draw.between(1, 2) {
            terms.push(match is_local || draw.percent(40) {
                true => by(HOST, vec![format!("n{}", draw.between(0, nodes))]),
                false => by(ZONE, vec![draw.pick(&ZONES).to_owned()]),
            });
        }
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    let mut metadata = json!({"name": name});
    if draw.percent(95) {
        let zone = draw.pick(&["alpha", "beta", "alpha__gamma"]);
        let key = draw.pick(&[ZONE, ZONE, "failure-domain.beta.kubernetes.io/zone"]);
        metadata["labels"] = json!({key: zone});
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec,
        "status": {},
    })
}

fn csi_node(draw: &mut Draw, index: usize) -> Value {
    let name = format!("n{index}");
    let mut driver = json!({"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE]});
    if draw.percent(80) {
        driver["allocatable"] = json!({"count": draw.between(1, 2)});
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    })
}

fn capacity(draw: &mut Draw, index: usize) -> Value {
    let mut capacity = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": format!("room-{index}"), "namespace": "kube-system"},
        "storageClassName": "room", "capacity": draw.pick(&["2Gi", "8Gi"]),
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
