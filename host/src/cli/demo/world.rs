//! What there is: three hypervisors, a small k3s with its usual add-ons, one pool.

use std::fs;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use kproxide_simulator::pve::Topology;
use serde_json::{Value, json};

use crate::lab::{Lab, Setting};
use crate::policy::{PolicyFile, PolicyFiles, legal_name};

/// The pool's name.
pub(super) const POOL: &str = "workers";
/// The Deployment that the demo scales.
pub(super) const APP: &str = "web";

/// Nodes that are no machines of ours.
pub(super) const STATIC: usize = 2;

/// Which policy chooses hypervisors.
pub(super) struct Policy {
    pub(super) name: String,
    /// The module, where it is a file of the user's.
    pub(super) files: PolicyFiles,
}

/// A built-in's name, or a file.
///
/// # Errors
/// There is neither; says what there is.
pub(super) fn policy(text: &str) -> Result<Policy, String> {
    if !text.ends_with(".wasm") {
        let known: Vec<_> = kproxide_builtins::BUILTINS
            .iter()
            .filter(|builtin| builtin.kind == kproxide_builtins::Kind::HostSelection)
            .map(|builtin| builtin.name)
            .collect();
        if !known.contains(&text) {
            return Err(format!(
                "--policy {text}: give one of {}, or a .wasm file",
                known.join(", ")
            ));
        }
        return Ok(Policy {
            name: text.to_owned(),
            files: PolicyFiles::new(),
        });
    }
    let bytes = fs::read(text).map_err(|error| format!("--policy {text}: {error}"))?;
    // Unlike in a policy folder, the file's name does not matter here.
    let name = legal_name(
        text.rsplit('/')
            .next()
            .unwrap_or(text)
            .trim_end_matches(".wasm"),
    );
    Ok(Policy {
        files: PolicyFiles::from([(name.as_str().into(), PolicyFile::alone(&bytes))]),
        name,
    })
}

/// The world before anything happens.
pub(super) fn build(seed: u64, policy: &str) -> Lab {
    let mut setting = Setting::new(seed, 3);
    setting.topology = Topology {
        cluster: Some("homelab".into()),
        ..setting.topology
    };
    let lab = Lab::new(setting);
    lab.kubelets.start_node(NodeSpec {
        labels: [(
            "node-role.kubernetes.io/control-plane".to_owned(),
            "true".to_owned(),
        )]
        .into(),
        taints: vec![
            json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }),
        ],
        ..NodeSpec::new(
            "server-1",
            "a0000000-0000-4000-8000-000000000001",
            2000,
            4096,
        )
    });
    lab.kubelets.start_node(NodeSpec::new(
        "agent-1",
        "a0000000-0000-4000-8000-000000000002",
        4000,
        8192,
    ));
    lab.apply(fixtures::k3s_addons());
    lab.apply(objects(policy));
    lab
}

fn objects(policy: &str) -> [(&'static str, Value); 3] {
    let meta = |name: &str| json!({ "name": name });
    [
        (
            "proxmoxclusters.kproxide.dev",
            json!({
                "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": meta("homelab"),
                "spec": {
                    "endpoints": ["https://pve1:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "homelab",
                    "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
                },
            }),
        ),
        (
            "nodeclasses.kproxide.dev",
            json!({
                "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodeClass", "metadata": meta("debian"),
                "spec": {
                    "template": { "name": "k8s-node", "placement": "local" },
                    "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
                    "cloudInit": { "dhcp": true },
                    "join": { "template": {} },
                },
            }),
        ),
        (
            "nodepools.kproxide.dev",
            json!({
                "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": meta(POOL),
                "spec": {
                    "nodeClass": "debian", "clusters": ["homelab"], "limits": { "maxNodes": 12 },
                    "policies": { "hostSelection": { "use": policy } },
                    "repairAfter": "2m",
                    "labelTemplates": { "topology.kubernetes.io/zone": "{{ .TargetHost }}" },
                    "scaleDown": { "stabilization": "2m", "minNodeAge": "2m", "unneededTime": "30s", "budget": 2 },
                },
            }),
        ),
    ]
}

/// The Deployment whose load rises and falls.
pub(super) fn app(replicas: u32) -> Value {
    fixtures::deployment("default", APP, replicas, "500m", "512Mi")
}

/// The pods of the load, counted in one way wherever they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Ready, as Kubernetes knows it.
    pub(super) running: usize,
    /// No Node was found for them yet.
    pub(super) pending: usize,
    /// All but those that end: each of these has a successor, or is wanted no longer.
    pub(super) all: usize,
    pub(super) ending: usize,
}

impl Load {
    pub(super) fn of(pods: &[Value]) -> Self {
        let mut load = Self::default();
        for pod in pods.iter().filter(|pod| is_load(pod)) {
            if !stays(pod) {
                load.ending += 1;
                continue;
            }
            load.all += 1;
            load.pending += usize::from(pod["spec"]["nodeName"].is_null());
            load.running += usize::from(is_ready(pod));
        }
        load
    }
}

/// It is not about to end.
pub(super) fn stays(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

/// A pod or a Node has the condition Ready.
pub(super) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// True for pods of [`APP`]: the add-ons live elsewhere.
pub(super) fn is_load(pod: &Value) -> bool {
    pod["metadata"]["namespace"] == "default"
}
