//! DaemonSets: one pod on every node that fits.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Controllers, workload::pod_of};
use crate::kube::{
    object::{field_mut, is_terminating, items, meta_str},
    placement::{NodeView, PodNeeds, Toleration},
    store::Key,
};

/// What every DaemonSet pod tolerates, as (key, effect).
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

impl Controllers {
    pub(super) fn reconcile_daemonset(&mut self, key: &Key) {
        let Some(set) = self.kube.look("daemonsets.apps", &key.namespace, &key.name) else {
            return;
        };
        if is_terminating(&set) {
            return;
        }
        let mut needs = PodNeeds::of(&set["spec"]["template"]);
        needs
            .tolerations
            .extend(TOLERATED.map(|(key, effect)| Toleration::exists(key, effect)));
        let mut on_node = BTreeMap::<String, Vec<_>>::new();
        for pod in self.pods_of(meta_str(&set, "uid")) {
            on_node
                .entry(target_node(&pod.value()))
                .or_default()
                .push(pod);
        }
        let (mut desired, mut current, mut ready) = (0, 0, 0);
        for node in self.kube.objects("nodes") {
            let view = NodeView::of(&node.value());
            let starts = needs.selects(&view)
                && needs
                    .untolerated(&view, &["NoSchedule", "NoExecute"])
                    .is_none();
            let stays = needs.selects(&view) && needs.untolerated(&view, &["NoExecute"]).is_none();
            let pods = on_node.remove(&view.name).unwrap_or_default();
            let mut kept = 0;
            for pod in &pods {
                match (stays && !pod.finished() && kept == 0, pod.terminating) {
                    (_, true) => kept += 1,
                    (true, false) => {
                        kept += 1;
                        current += 1;
                        ready += i64::from(pod.ready);
                    }
                    (false, false) => self.delete_pod(pod, None),
                }
            }
            if kept == 0 && starts {
                let _ = self.kube.create("pods", daemon_pod(&set, &view.name));
            }
            desired += i64::from(starts || kept > 0);
        }
        let status = json!({
            "observedGeneration": set["metadata"]["generation"],
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": current,
            "numberReady": ready,
            "numberAvailable": ready,
            "numberMisscheduled": 0,
        });
        self.write_status("daemonsets.apps", set, status);
    }
}

/// A pod pinned to its node by affinity, for the scheduler to bind, as the real controller makes it.
fn daemon_pod(set: &Value, node: &str) -> Value {
    let mut pod = pod_of("DaemonSet", set, None);
    let spec = field_mut(&mut pod, "spec");
    let pin = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = field_mut(field_mut(spec, "affinity"), "nodeAffinity");
    let required = field_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    let mut terms = items(required, "nodeSelectorTerms").to_vec();
    if terms.is_empty() {
        terms.push(json!({}));
    }
    for term in &mut terms {
        term["matchFields"] = json!([pin]);
    }
    *required = json!({"nodeSelectorTerms": terms});
    let mut tolerations = items(spec, "tolerations").to_vec();
    tolerations.extend(
        TOLERATED
            .iter()
            .map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect})),
    );
    *field_mut(spec, "tolerations") = json!(tolerations);
    pod
}

/// The node that a pod of a DaemonSet is for, bound or not.
fn target_node(pod: &Value) -> String {
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let pinned = items(required, "nodeSelectorTerms")
        .iter()
        .flat_map(|term| items(term, "matchFields"))
        .find(|field| field["key"] == "metadata.name")
        .and_then(|field| field["values"][0].as_str());
    let bound = pod["spec"]["nodeName"].as_str();
    bound.or(pinned).unwrap_or_default().to_owned()
}
