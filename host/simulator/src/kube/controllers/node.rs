//! The life of nodes: silence makes them NotReady, NotReady taints them, taints evict their pods, and pods of a Node that no
//! longer exists are removed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Controllers, Work};
use crate::kube::{
    object::{condition, field_mut, items, map_mut, time},
    placement::{NodeView, PodNeeds, Taint},
    store::Stored,
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How often the garbage collector looks.
const GC_PERIOD: Duration = Duration::from_secs(20);
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

impl Controllers {
    pub(super) fn reconcile_node(&mut self, name: &str) {
        let Some(node) = self.kube.look("nodes", "", name) else {
            self.remove_pods_without_node(name);
            return;
        };
        self.nodeless.remove(name);
        let now = Instant::now();
        let alive = *self.alive.entry(name.to_owned()).or_insert(now);
        let silent_at = alive + self.patience.node_monitor_grace;
        let ready = condition(&node, "Ready")
            .map(|ready| &ready["status"])
            .unwrap_or(&Value::Null);
        if now < silent_at {
            if self.looks.get(name).is_none_or(|at| *at <= now) {
                self.looks.insert(name.to_owned(), silent_at);
                self.set_timer(silent_at, Work::Node(name.to_owned()));
            }
        } else if *ready != "Unknown" {
            self.mark_unknown(name, Arc::unwrap_or_clone(node));
            return;
        }
        if let Some(taints) = wanted_taints(&node, &time(self.kube.clock().now())) {
            let mut node = Arc::unwrap_or_clone(node);
            *field_mut(field_mut(&mut node, "spec"), "taints") = taints;
            // The write comes back as a change, and this function with it.
            let _ = self.kube.write("nodes", "", node);
            return;
        }
        let view = NodeView::of(&node);
        self.evict_from_tainted(&view);
        self.end_out_of_service(&view, *ready != "True");
    }

    /// Nothing runs any more on a node with this taint, says whoever set it: the garbage collector ends its pods that are
    /// Terminating, and then its volumes are detached by force.
    fn end_out_of_service(&mut self, node: &NodeView, is_silent: bool) {
        let is_out = node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
        if !is_out || !is_silent {
            self.out_of_service.remove(&node.name);
            return;
        }
        let now = Instant::now();
        let due = self
            .out_of_service
            .entry(node.name.clone())
            .or_insert(now + GC_PERIOD);
        if *due > now {
            let due = *due;
            self.set_timer(due, Work::Node(node.name.clone()));
            return;
        }
        *due = now + GC_PERIOD;
        self.set_timer(now + GC_PERIOD, Work::Node(node.name.clone()));
        let pods = self.pods_on(&node.name);
        for pod in pods.iter().filter(|pod| pod.terminating) {
            self.delete_pod(pod, Some(0));
        }
        if pods.is_empty() {
            for attachment in self.kube.list("volumeattachments.storage.k8s.io") {
                if attachment["spec"]["nodeName"] == *node.name {
                    let name = attachment["metadata"]["name"].as_str().unwrap_or_default();
                    let _ = self
                        .kube
                        .delete("volumeattachments.storage.k8s.io", "", name);
                }
            }
        }
    }

    /// The kubelet fell silent: all that it reports is unknown now, and its pods are not ready for anybody.
    fn mark_unknown(&mut self, name: &str, mut node: Value) {
        let now = time(self.kube.clock().now());
        let conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(|kind| {
            let heartbeat = condition(&node, kind)
                .map(|old| old["lastHeartbeatTime"].clone())
                .unwrap_or_default();
            json!({
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastHeartbeatTime": heartbeat,
                "lastTransitionTime": now,
            })
        });
        *field_mut(field_mut(&mut node, "status"), "conditions") = json!(conditions);
        let _ = self.kube.write("nodes", "status", node);
        for pod in self.pods_on(name).iter().filter(|pod| pod.ready) {
            self.mark_pod_unready(pod, &now);
        }
    }

    fn mark_pod_unready(&self, stored: &Stored, now: &str) {
        let mut pod = stored.to_value();
        if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
            for condition in conditions
                .iter_mut()
                .filter(|condition| condition["type"] == "Ready")
            {
                condition["status"] = json!("False");
                condition["lastTransitionTime"] = json!(now);
            }
        }
        let _ = self.kube.write("pods", "status", pod);
    }

    /// NoExecute taints: pods that do not tolerate them go now, those that do for a while go then.
    fn evict_from_tainted(&mut self, node: &NodeView) {
        let now = Instant::now();
        let taints: Vec<&Taint> = node
            .taints
            .iter()
            .filter(|taint| taint.effect == "NoExecute")
            .collect();
        self.tainted
            .retain(|(name, taint), _| *name != node.name || taints.contains(&taint));
        let since: Vec<(&Taint, Instant)> = taints
            .iter()
            .map(|taint| {
                let since = self
                    .tainted
                    .entry((node.name.clone(), (*taint).clone()))
                    .or_insert(now);
                (*taint, *since)
            })
            .collect();
        if since.is_empty() {
            return;
        }
        for pod in self.pods_on(&node.name) {
            if pod.terminating || pod.finished() {
                continue;
            }
            let needs = PodNeeds::of(&pod.value());
            let leaves_at = since.iter().filter_map(|(taint, since)| {
                let tolerations = needs
                    .tolerations
                    .iter()
                    .filter(|toleration| toleration.tolerates(taint));
                let patience = tolerations.map(|toleration| {
                    toleration
                        .seconds
                        .map_or(i64::MAX, |seconds| seconds.max(0))
                });
                match patience.min() {
                    None => Some(*since),
                    Some(i64::MAX) => None,
                    Some(seconds) => {
                        Some(*since + std::time::Duration::from_secs(seconds.unsigned_abs()))
                    }
                }
            });
            match leaves_at.min() {
                None => {}
                Some(at) if at <= now => self.delete_pod(&pod, None),
                Some(at) => self.set_timer(at, Work::Node(node.name.clone())),
            }
        }
    }

    fn remove_pods_without_node(&mut self, name: &str) {
        self.alive.remove(name);
        self.out_of_service.remove(name);
        self.looks.remove(name);
        self.tainted.retain(|(node, _), _| node != name);
        let pods = self.pods_on(name);
        if pods.is_empty() {
            self.nodeless.remove(name);
            return;
        }
        let now = Instant::now();
        let due = *self.nodeless.entry(name.to_owned()).or_insert(now) + self.patience.pod_gc;
        if now < due {
            self.set_timer(due, Work::Node(name.to_owned()));
            return;
        }
        for pod in &pods {
            self.delete_pod(pod, Some(0));
        }
    }
}

/// The taints that the node should have; None when it has them.
fn wanted_taints(node: &Value, now: &str) -> Option<Value> {
    let status = condition(node, "Ready").and_then(|ready| ready["status"].as_str());
    let mut wanted: Vec<(&str, &str)> = match status {
        Some("True") => Vec::new(),
        Some("Unknown") => vec![(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
        Some(_) => vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
        // A node that never reported keeps what it was born with.
        None => vec![(NOT_READY, "NoSchedule")],
    };
    if node["spec"]["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let present = items(&node["spec"], "taints");
    let is = |taint: &Value, (key, effect): (&str, &str)| {
        taint["key"] == key && taint["effect"] == effect
    };
    let ours = |taint: &Value| {
        [NOT_READY, UNREACHABLE, UNSCHEDULABLE]
            .iter()
            .any(|key| taint["key"] == *key)
    };
    let mut taints: Vec<Value> = present
        .iter()
        .filter(|taint| !ours(taint) || wanted.iter().any(|pair| is(taint, *pair)))
        .cloned()
        .collect();
    for &(key, effect) in &wanted {
        if !taints.iter().any(|taint| is(taint, (key, effect))) {
            let mut taint = json!({"key": key, "effect": effect});
            if effect == "NoExecute" {
                map_mut(&mut taint).insert("timeAdded".to_owned(), json!(now));
            }
            taints.push(taint);
        }
    }
    (taints != present).then(|| json!(taints))
}
