//! Deployments, ReplicaSets, StatefulSets and Jobs: so many pods of this template, please.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Controllers;
use crate::kube::{
    object::{field_mut, is_terminating, meta_mut, meta_str, time},
    store::{Key, Stored},
};

impl Controllers {
    pub(super) fn reconcile_deployment(&mut self, key: &Key) {
        let Some(deployment) = self
            .kube
            .look("deployments.apps", &key.namespace, &key.name)
        else {
            return;
        };
        if is_terminating(&deployment) {
            return;
        }
        let uid = meta_str(&deployment, "uid");
        let template = &deployment["spec"]["template"];
        let hash = template_hash(template);
        let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        let sets: Vec<Arc<Value>> = self
            .kube
            .objects("replicasets.apps")
            .iter()
            .filter(|set| {
                set.controller
                    .as_ref()
                    .is_some_and(|owner| owner.uid == uid)
            })
            .map(|set| set.value())
            .collect();
        let is_new = |set: &&Arc<Value>| set["metadata"]["labels"]["pod-template-hash"] == hash;
        let number = |set: &Value, field: &str| set["status"][field].as_i64().unwrap_or(0);
        match sets.iter().find(is_new) {
            None => {
                let set = replica_set(&deployment, &hash, wanted);
                let _ = self.kube.create("replicasets.apps", set);
            }
            Some(set) => self.scale(set, wanted),
        }
        // The old template's pods leave as the new ones become ready.
        let ready_new: i64 = sets
            .iter()
            .filter(is_new)
            .map(|set| number(set, "readyReplicas"))
            .sum();
        let mut room = (wanted - ready_new).max(0);
        for set in sets.iter().filter(|set| !is_new(set)) {
            let keep = set["spec"]["replicas"].as_i64().unwrap_or(0).min(room);
            room -= keep;
            self.scale(set, keep);
        }
        let sum = |field: &str| sets.iter().map(|set| number(set, field)).sum::<i64>();
        let updated: i64 = sets
            .iter()
            .filter(is_new)
            .map(|set| number(set, "replicas"))
            .sum();
        let (replicas, ready) = (sum("replicas"), sum("readyReplicas"));
        let available = if ready >= wanted { "True" } else { "False" };
        let old = crate::kube::object::condition(&deployment, "Available");
        let since = match old.filter(|old| old["status"] == available) {
            Some(old) => old["lastTransitionTime"].clone(),
            None => json!(time(self.kube.clock().now())),
        };
        let status = json!({
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": (wanted - ready).max(0),
            "conditions": [{"type": "Available", "status": available, "lastTransitionTime": since}],
        });
        self.write_status("deployments.apps", deployment, status);
    }

    fn scale(&self, set: &Value, replicas: i64) {
        if set["spec"]["replicas"] != replicas {
            let mut set = set.clone();
            set["spec"]["replicas"] = json!(replicas);
            let _ = self.kube.write("replicasets.apps", "", set);
        }
    }

    pub(super) fn reconcile_replicaset(&mut self, key: &Key) {
        let Some(set) = self
            .kube
            .look("replicasets.apps", &key.namespace, &key.name)
        else {
            return;
        };
        if is_terminating(&set) {
            return;
        }
        let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
        let mut pods = self.pods_of(meta_str(&set, "uid"));
        pods.retain(|pod| !pod.finished() && !pod.terminating);
        for _ in pods.len()..wanted {
            let _ = self.kube.create("pods", pod_of("ReplicaSet", &set, None));
        }
        if pods.len() > wanted {
            let surplus = pods.len() - wanted;
            let mut order: Vec<(_, Arc<Stored>)> = pods
                .iter()
                .map(|pod| (value_of(pod), pod.clone()))
                .collect();
            order.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (_, pod) in order.into_iter().take(surplus) {
                self.delete_pod(&pod, None);
            }
        }
        // The count after this round comes with the changes of this round.
        let ready = pods.iter().filter(|pod| pod.ready).count();
        let status = json!({
            "observedGeneration": set["metadata"]["generation"],
            "replicas": pods.len(),
            "fullyLabeledReplicas": pods.len(),
            "readyReplicas": ready,
            "availableReplicas": ready,
        });
        self.write_status("replicasets.apps", set, status);
    }

    pub(super) fn reconcile_statefulset(&mut self, key: &Key) {
        let Some(set) = self
            .kube
            .look("statefulsets.apps", &key.namespace, &key.name)
        else {
            return;
        };
        if is_terminating(&set) {
            return;
        }
        let wanted = set["spec"]["replicas"].as_i64().unwrap_or(1);
        let pods = self.pods_of(meta_str(&set, "uid"));
        let ordinal = |pod: &Stored| -> i64 {
            let number = pod
                .key
                .name
                .rsplit('-')
                .next()
                .and_then(|number| number.parse().ok());
            number.unwrap_or(i64::MAX)
        };
        for pod in &pods {
            // A finished pod is replaced under its own name; one beyond the count goes.
            if (pod.finished() || ordinal(pod) >= wanted) && !pod.terminating {
                self.delete_pod(pod, None);
            }
        }
        for number in 0..wanted {
            if !pods.iter().any(|pod| ordinal(pod) == number) {
                let _ = self
                    .kube
                    .create("pods", pod_of("StatefulSet", &set, Some(number)));
            }
        }
        let ready = pods.iter().filter(|pod| pod.ready).count();
        let status = json!({
            "observedGeneration": set["metadata"]["generation"],
            "replicas": pods.len(),
            "readyReplicas": ready,
            "availableReplicas": ready,
        });
        self.write_status("statefulsets.apps", set, status);
    }

    pub(super) fn reconcile_job(&mut self, key: &Key) {
        let Some(job) = self.kube.look("jobs.batch", &key.namespace, &key.name) else {
            return;
        };
        let ended = ["Complete", "Failed"]
            .iter()
            .any(|kind| crate::kube::object::condition_is_true(&job, kind));
        if is_terminating(&job) || ended {
            return;
        }
        let number = |field: &str, default: i64| job["spec"][field].as_i64().unwrap_or(default);
        let pods = self.pods_of(meta_str(&job, "uid"));
        let count = |phase: &str| {
            let counted = pods
                .iter()
                .filter(|pod| pod.phase.as_deref() == Some(phase));
            i64::try_from(counted.count()).unwrap_or(i64::MAX)
        };
        let (succeeded, failed) = (count("Succeeded"), count("Failed"));
        let active = pods
            .iter()
            .filter(|pod| !pod.finished() && !pod.terminating)
            .count();
        let active = i64::try_from(active).unwrap_or(i64::MAX);
        let completions = number("completions", 1);
        let end = match (succeeded >= completions, failed > number("backoffLimit", 6)) {
            (true, _) => Some("Complete"),
            (false, true) => Some("Failed"),
            (false, false) => None,
        };
        let mut status = json!({"active": active, "succeeded": succeeded, "failed": failed});
        match end {
            Some(kind) => {
                let now = time(self.kube.clock().now());
                status["conditions"] =
                    json!([{"type": kind, "status": "True", "lastTransitionTime": now}]);
            }
            None => {
                for _ in active..number("parallelism", 1).min(completions - succeeded) {
                    let _ = self.kube.create("pods", pod_of("Job", &job, None));
                }
            }
        }
        self.write_status("jobs.batch", job, status);
    }
}

/// How much worth a pod is to a shrinking ReplicaSet: the least goes first. Unassigned before assigned, pending before
/// running, unready before ready, young before old, then by name.
fn value_of(pod: &Stored) -> (bool, bool, bool, std::cmp::Reverse<String>, String) {
    let created = meta_str(&pod.value(), "creationTimestamp").to_owned();
    (
        pod.node_name.is_some(),
        pod.phase.as_deref() == Some("Running"),
        pod.ready,
        std::cmp::Reverse(created),
        pod.key.name.clone(),
    )
}

fn template_hash(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string());
    digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn replica_set(deployment: &Value, hash: &str, replicas: i64) -> Value {
    let spec = &deployment["spec"];
    let mut template = spec["template"].clone();
    field_mut(field_mut(&mut template, "metadata"), "labels")["pod-template-hash"] = json!(hash);
    let mut selector = spec["selector"].clone();
    field_mut(&mut selector, "matchLabels")["pod-template-hash"] = json!(hash);
    json!({
        "metadata": {
            "name": format!("{}-{hash}", meta_str(deployment, "name")),
            "namespace": meta_str(deployment, "namespace"),
            "labels": template["metadata"]["labels"],
            "ownerReferences": [owner_of("Deployment", deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

fn owner_of(kind: &str, owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A pod from its owner's template; with an ordinal it is named after it.
pub(super) fn pod_of(kind: &str, owner: &Value, ordinal: Option<i64>) -> Value {
    let template = &owner["spec"]["template"];
    let name = meta_str(owner, "name");
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    let metadata = meta_mut(&mut pod);
    metadata.insert(
        "namespace".to_owned(),
        owner["metadata"]["namespace"].clone(),
    );
    metadata.insert("ownerReferences".to_owned(), json!([owner_of(kind, owner)]));
    match ordinal {
        Some(ordinal) => metadata.insert("name".to_owned(), json!(format!("{name}-{ordinal}"))),
        None => metadata.insert("generateName".to_owned(), json!(format!("{name}-"))),
    };
    pod
}
