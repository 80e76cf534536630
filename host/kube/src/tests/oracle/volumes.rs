//! Draws PersistentVolumes: those of claims, free ones, and where they are attached.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::draw::{BETA_ZONE, Draw, HOST, REGION, ZONE, ZONES};
use super::storage::{CLAIMS, DRIVER, NAMESPACES, ROOM_DRIVER};

/// Volumes that no claim has yet, or not any more. No two of them are of one size: kube-scheduler would take either.
pub(super) fn free_volumes(draw: &mut Draw, nodes: usize, objects: &mut Vec<Value>) {
    let waits = |object: &&Value| {
        object["kind"] == "PersistentVolumeClaim" && object["spec"]["volumeName"].is_null()
    };
    let mut waiting: Vec<Value> = objects.iter().filter(waits).cloned().collect();
    for index in 0..draw.between(0, 5) {
        let class = draw.pick(&["local", "local", "local", "room", "csi", "now"]);
        let mut volume = volume(draw, &format!("free-{index}"), class, nodes);
        let gib = index + 1 + if draw.percent(40) { 6 } else { 0 };
        volume["spec"]["capacity"]["storage"] = json!(format!("{gib}Gi"));
        let mut phases = [
            "Available",
            "Available",
            "Available",
            "Available",
            "Pending",
        ];
        // Of two volumes for one claim kube-scheduler takes the first that it finds.
        if draw.percent(55) && !waiting.is_empty() {
            let claim = waiting.swap_remove(draw.between(0, waiting.len() - 1));
            let meta = &claim["metadata"];
            let mut kept = json!({"namespace": meta["namespace"], "name": meta["name"]});
            match draw.between(0, 2) {
                0 => {}
                1 => {
                    kept["uid"] = meta["uid"].clone();
                    phases = ["Available", "Bound", "Bound", "Bound", "Pending"];
                }
                // It was for a claim of this name that is gone.
                _ => {
                    kept["uid"] = json!("of-old");
                    phases = ["Available", "Released", "Released", "Failed", "Pending"];
                }
            }
            volume["spec"]["claimRef"] = kept;
            volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"].clone();
        }
        volume["status"]["phase"] = json!(draw.pick(&phases));
        if draw.percent(5) {
            volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        objects.push(volume);
    }
}

/// What a claim and its volume must have in common.
pub(super) fn modes(draw: &mut Draw, spec: &mut Value) {
    if draw.percent(8) {
        spec["volumeMode"] = json!("Block");
    }
    if draw.percent(8) {
        spec["volumeAttributesClassName"] = json!("gold");
    }
}

pub(super) fn volume(draw: &mut Draw, name: &str, class: &str, nodes: usize) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"],
        "capacity": {"storage": draw.pick(&["1Gi", "10Gi"])}, "storageClassName": class,
    });
    modes(draw, &mut spec);
    let mut metadata = json!({"name": name});
    match draw.between(0, 9) {
        0 => spec["nfs"] = json!({"server": "nas", "path": "/"}),
        1 => spec["local"] = json!({"path": "/data"}),
        2..=4 if class == "local" => spec["local"] = json!({"path": "/data"}),
        // People give several volumes one handle, such as that of a share. A provisioner never does.
        5..=6 => {
            let handle = draw.pick(&["share-0", "share-1"]);
            spec["csi"] = json!({"driver": draw.pick(&[DRIVER, DRIVER, ROOM_DRIVER]), "volumeHandle": handle});
        }
        _ => {
            spec["csi"] = json!({"driver": DRIVER, "volumeHandle": name});
            if draw.percent(50) {
                metadata["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
            }
        }
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
    if draw.percent(95) {
        // The last cannot be read.
        let zones = [
            "alpha",
            "beta",
            "gamma",
            "alpha",
            "beta",
            "alpha__gamma",
            "alpha____beta",
        ];
        let zone = draw.pick(&zones);
        metadata["labels"] = json!({draw.pick(&[ZONE, ZONE, BETA_ZONE]): zone});
        if draw.percent(10) {
            metadata["labels"][REGION] = json!(draw.pick(&["eu", "us"]));
        }
    }
    if draw.percent(50) {
        metadata["labels"]["tier"] = json!("fast");
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec,
        "status": {},
    })
}

/// At most one of each volume to each Node: so Kubernetes names them.
pub(super) fn attachments(draw: &mut Draw, nodes: usize, objects: &mut Vec<Value>) {
    let mut drawn = BTreeSet::new();
    for _ in 0..draw.between(0, 3) {
        let claim = draw.between(0, CLAIMS - 1);
        let volume = format!("{}-c{claim}", draw.pick(&NAMESPACES));
        drawn.insert((volume, draw.between(0, nodes - 1)));
    }
    for (volume, node) in drawn {
        let known = objects.iter().find(|it| it["metadata"]["name"] == *volume);
        let driver = known.and_then(|known| known["spec"]["csi"]["driver"].as_str());
        objects.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("{volume}-n{node}")},
            "spec": {"attacher": driver.unwrap_or(DRIVER), "nodeName": format!("n{node}"),
                     "source": {"persistentVolumeName": volume}},
            "status": {"attached": true},
        }));
    }
}
