//! PersistentVolumeClaims: made for ephemeral volumes, bound to a volume that a toy provisioner makes, and their volumes
//! removed after them.
//!
//! The class says with the parameter `reach` from where its volumes can be reached: `node`, `zone`, or else everywhere.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Controllers, Work};
use crate::kube::{
    object::{field_mut, is_terminating, items, meta_mut, meta_str},
    store::{Change, ChangeKind, Key},
};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

impl Controllers {
    /// A pod with ephemeral volumes needs claims.
    pub(super) fn note_volumes_of(&mut self, change: &Change) {
        if change.kind != ChangeKind::Added {
            return;
        }
        let pod = change.object.value();
        let mut volumes = items(&pod["spec"], "volumes").iter();
        if volumes.any(|volume| !volume["ephemeral"].is_null()) {
            self.work
                .insert(Work::EphemeralVolumes(change.object.key.clone()));
        }
    }

    pub(super) fn make_claims(&mut self, key: &Key) {
        let Some(pod) = self.kube.look("pods", &key.namespace, &key.name) else {
            return;
        };
        for volume in items(&pod["spec"], "volumes") {
            let template = &volume["ephemeral"]["volumeClaimTemplate"];
            if template.is_null() {
                continue;
            }
            let name = volume["name"].as_str().unwrap_or_default();
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": format!("{}-{name}", key.name), "namespace": key.namespace,
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Pod", "name": key.name,
                        "uid": meta_str(&pod, "uid"), "controller": true,
                    }],
                },
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            });
            // One that is there is left alone.
            let _ = self.kube.create(CLAIMS, claim);
        }
    }

    /// Makes and binds the volume of a claim that needs one.
    pub(super) fn reconcile_claim(&mut self, key: &Key) {
        let Some(claim) = self.kube.look(CLAIMS, &key.namespace, &key.name) else {
            return;
        };
        let (spec, annotations) = (&claim["spec"], &claim["metadata"]["annotations"]);
        if is_terminating(&claim) || !spec["volumeName"].is_null() {
            return;
        }
        let class = spec["storageClassName"].as_str().unwrap_or_default();
        let Some(class) = self.kube.look("storageclasses.storage.k8s.io", "", class) else {
            return;
        };
        let waits = class["volumeBindingMode"] == "WaitForFirstConsumer";
        let node = match annotations[SELECTED].as_str() {
            Some(name) => self.kube.look("nodes", "", name),
            None if waits => return,
            None => None,
        };
        if waits && node.is_none() {
            // The provisioner gives the choice back: the Node is gone.
            let mut claim = Arc::unwrap_or_clone(claim);
            if let Some(annotations) = meta_mut(&mut claim)["annotations"].as_object_mut() {
                annotations.remove(SELECTED);
            }
            let _ = self.kube.write(CLAIMS, "", claim);
            return;
        }
        let uid = meta_str(&claim, "uid");
        let name = format!("pvc-{uid}");
        let _ = self
            .kube
            .create(VOLUMES, volume(&name, &claim, &class, node.as_deref()));
        let mut claim = Arc::unwrap_or_clone(claim);
        *field_mut(field_mut(&mut claim, "spec"), "volumeName") = json!(name);
        let annotations = meta_mut(&mut claim).entry("annotations");
        let annotations = annotations.or_insert_with(|| json!({}));
        *field_mut(annotations, "pv.kubernetes.io/bind-completed") = json!("yes");
        let _ = self.kube.write(CLAIMS, "", claim);
    }

    /// A claim that is gone takes its volume with it.
    pub(super) fn forget_claim(&self, change: &Change) {
        let claim = change.object.value();
        if let Some(name) = claim["spec"]["volumeName"].as_str() {
            let _ = self.kube.delete(VOLUMES, "", name);
        }
    }
}

fn volume(name: &str, claim: &Value, class: &Value, node: Option<&Value>) -> Value {
    let key = match class["parameters"]["reach"].as_str() {
        Some("node") => Some("kubernetes.io/hostname"),
        Some("zone") => Some("topology.kubernetes.io/zone"),
        Some(_) | None => None,
    };
    let mut spec = json!({
        "capacity": claim["spec"]["resources"]["requests"],
        "accessModes": claim["spec"]["accessModes"],
        "storageClassName": meta_str(class, "name"),
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": class["provisioner"], "volumeHandle": name},
        "claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": meta_str(claim, "uid"),
            "namespace": meta_str(claim, "namespace"), "name": meta_str(claim, "name"),
        },
    });
    if let Some((key, node)) = key.zip(node) {
        let term = json!({"matchExpressions": [
            {"key": key, "operator": "In", "values": [node["metadata"]["labels"][key]]},
        ]});
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": spec, "status": {"phase": "Bound"},
    })
}
