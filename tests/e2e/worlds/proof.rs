//! Asks kube-scheduler's own filters whether a machine that stayed empty was of use when it was planned.

use std::collections::{BTreeSet, VecDeque};

use kproxide_testkit::controlplane::Api;
use kproxide_testkit::oracle::Scheduler;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use serde_json::{Value, json};

use super::classes::{CSI_DRIVERS, CSI_NODES};
use crate::volumes::{CLAIMS, CLASSES, HOST};

/// So many other choices of the scheduler are tried for each machine.
const HISTORIES: u64 = 60;

pub(super) const SPARE: &str = "spare";

/// A world as it was before its first pod was bound, but with all of its Nodes.
pub(super) struct Past {
    nodes: Vec<Value>,
    /// Those of DaemonSets, on their Nodes.
    daemons: Vec<Value>,
    /// Without Nodes.
    pods: Vec<Value>,
    /// Claims without volumes, classes, and what drivers say.
    rest: Vec<Value>,
}

impl Past {
    /// `nodes` and `pods` are the world's, as they are now.
    pub(super) async fn of(api: &Api, nodes: &[Value], pods: &[Value]) -> Self {
        let names: BTreeSet<&str> = nodes.iter().map(name).collect();
        let mut daemons = api
            .list("/api/v1/namespaces/kube-system/pods")
            .await
            .unwrap();
        daemons.retain(|pod| {
            let node = pod["spec"]["nodeName"].as_str();
            node.is_some_and(|node| names.contains(node))
        });
        let mut rest = Vec::new();
        for (path, version, kind) in [
            ("/api/v1/namespaces", "v1", "Namespace"),
            (CLAIMS, "v1", "PersistentVolumeClaim"),
            (CLASSES, "storage.k8s.io/v1", "StorageClass"),
            (CSI_DRIVERS, "storage.k8s.io/v1", "CSIDriver"),
            (CSI_NODES, "storage.k8s.io/v1", "CSINode"),
        ] {
            for mut object in api.list(path).await.unwrap() {
                // Lists leave this to their own kind.
                object["apiVersion"] = json!(version);
                object["kind"] = json!(kind);
                if kind == "PersistentVolumeClaim" {
                    object["spec"]["volumeName"] = json!("");
                    object["metadata"]["annotations"] = json!({});
                    object["status"] = json!({"phase": "Pending"});
                }
                let is_of_world = match kind {
                    "CSINode" => names.contains(name(&object)),
                    "PersistentVolumeClaim" => pods.iter().any(|pod| uses(pod, name(&object))),
                    _ => true,
                };
                if is_of_world {
                    rest.push(object);
                }
            }
        }
        let as_node = |node: &Value| {
            let mut node = node.clone();
            node["apiVersion"] = json!("v1");
            node["kind"] = json!("Node");
            node["spec"]["taints"] = json!([]);
            node
        };
        let waiting = |pod: &Value| {
            let mut pod = as_pod(pod);
            pod["spec"]["nodeName"] = Value::Null;
            pod
        };
        Self {
            nodes: nodes.iter().map(as_node).collect(),
            daemons: daemons.iter().map(as_pod).collect(),
            pods: pods.iter().map(waiting).collect(),
            rest,
        }
    }

    /// With one more Node like the first.
    pub(super) fn with_spare(mut self) -> Self {
        let mut spare = self.nodes[0].clone();
        spare["metadata"]["name"] = json!(SPARE);
        spare["metadata"]["labels"][HOST] = json!(SPARE);
        self.nodes.push(spare);
        self
    }

    /// Whether the scheduler can choose so that a pod has no other place than this Node: with all Nodes there, or as
    /// they came one after the other.
    pub(super) fn can_need(&self, scheduler: &mut Scheduler, empty: &str) -> bool {
        (0..HISTORIES).any(|seed| self.needs(scheduler, empty, seed))
    }

    fn needs(&self, scheduler: &mut Scheduler, empty: &str, seed: u64) -> bool {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut to_come = self.nodes.clone();
        // The API server knows seconds.
        to_come.shuffle(&mut rng);
        to_come.sort_by_key(|node| node["metadata"]["creationTimestamp"].to_string());
        let mut to_come = VecDeque::from(to_come);
        let mut waiting = self.pods.clone();
        waiting.shuffle(&mut rng);
        let (mut there, mut placed) = (Vec::new(), Vec::new());
        while !to_come.is_empty() {
            let next = if seed.is_multiple_of(2) {
                to_come.len()
            } else {
                1
            };
            there.extend(to_come.drain(..next));
            for pod in std::mem::take(&mut waiting) {
                let mut fits = self.fits(scheduler, &there, &placed, &pod);
                let fits_there = fits.remove(empty);
                let others: Vec<String> = fits.into_iter().collect();
                match others.choose(&mut rng) {
                    Some(node) => placed.push(on(&pod, node)),
                    // Before the last Node is there, the pod could have another place soon.
                    None if fits_there && to_come.is_empty() => return true,
                    None => waiting.push(pod),
                }
            }
        }
        false
    }

    /// The Nodes that all filters allow.
    fn fits(
        &self,
        scheduler: &mut Scheduler,
        nodes: &[Value],
        placed: &[Value],
        pod: &Value,
    ) -> BTreeSet<String> {
        let is_there = |daemon: &&Value| {
            nodes
                .iter()
                .any(|node| node["metadata"]["name"] == daemon["spec"]["nodeName"])
        };
        let daemons = self.daemons.iter().filter(is_there);
        let objects = self.rest.iter().chain(nodes).chain(daemons).chain(placed);
        let objects: Vec<Value> = objects.chain([pod]).cloned().collect();
        let verdicts = scheduler.judge(&objects).unwrap().into_iter();
        let fitting = verdicts.filter(|(_, refused)| refused.is_empty());
        fitting.map(|((_, node), _)| node).collect()
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn uses(pod: &Value, claim: &str) -> bool {
    let volumes = pod["spec"]["volumes"].as_array();
    let mut volumes = volumes.into_iter().flatten();
    volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == claim)
}

fn as_pod(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["status"] = json!({});
    pod
}

fn on(pod: &Value, node: &str) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = json!(node);
    pod
}
