//! Objects that simulated clusters are made of, as JSON.
//!
//! Each function returns an object that [`Kube::create`] takes; a test changes in it what it is about.

use serde_json::{Value, json};

use super::{ApiError, Kube};

/// A Ready worker with `cpu` and `memory` both as capacity and as allocatable, and room for 110 pods.
///
/// It has no kubelet: for a cluster with controllers, start the node through [`crate::kubelet`] instead.
pub fn node(name: &str, cpu: &str, memory: &str) -> Value {
    let size = json!({"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "50Gi"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
        }},
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

/// A node with the labels and the taint of a control plane.
pub fn control_plane_node(name: &str, cpu: &str, memory: &str) -> Value {
    let mut node = node(name, cpu, memory);
    node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("true");
    node["spec"]["taints"] =
        json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    node
}

/// Creates a node and opens it for pods at once, as the node lifecycle controller does for a node that is Ready.
///
/// # Errors
/// When the API refuses the node.
pub fn add_node(kube: &Kube, node: Value) -> Result<Value, ApiError> {
    let mut node = kube.create("nodes", node)?;
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|taint| taint["key"] != "node.kubernetes.io/not-ready");
    }
    kube.update("nodes", "", node)
}

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A bare pod in `default` with one container that requests `cpu` and `memory`.
pub fn pod(name: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": pod_spec(cpu, memory),
    })
}

fn pod_spec(cpu: &str, memory: &str) -> Value {
    json!({"containers": [{
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }]})
}

fn workload(kind: &str, namespace: &str, name: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(cpu, memory)},
        },
    })
}

/// A Deployment whose pods carry the label `app: NAME` and request `cpu` and `memory` each.
pub fn deployment(namespace: &str, name: &str, replicas: u32, cpu: &str, memory: &str) -> Value {
    let mut deployment = workload("Deployment", namespace, name, cpu, memory);
    deployment["spec"]["replicas"] = json!(replicas);
    deployment
}

/// A DaemonSet whose pods carry the label `app: NAME` and request `cpu` and `memory` each.
pub fn daemonset(namespace: &str, name: &str, cpu: &str, memory: &str) -> Value {
    workload("DaemonSet", namespace, name, cpu, memory)
}

/// A budget over the pods with the label `app: APP`; `min_available` is a number or a percentage.
pub fn disruption_budget(namespace: &str, app: &str, min_available: Value) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    })
}

/// What a fresh k3s cluster runs in `kube-system`, with its requests and volumes: CoreDNS, metrics-server, local-path-provisioner, and the
/// load balancer's DaemonSet, whose pods tolerate everything that svclb pods tolerate.
pub fn k3s_addons() -> Vec<(&'static str, Value)> {
    let critical = json!([
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
    ]);
    let mut deployments: Vec<Value> = [
        ("coredns", "100m", "70Mi"),
        ("metrics-server", "100m", "70Mi"),
        ("local-path-provisioner", "0", "0"),
    ]
    .into_iter()
    .map(|(name, cpu, memory)| {
        let mut addon = deployment("kube-system", name, 1, cpu, memory);
        let spec = &mut addon["spec"]["template"]["spec"];
        spec["tolerations"] = critical.clone();
        spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        if name == "coredns" {
            let labels = json!({"k8s-app": "kube-dns"});
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
            }]);
            addon["spec"]["selector"]["matchLabels"] = labels.clone();
            addon["spec"]["template"]["metadata"]["labels"] = labels;
        }
        let spec = &mut addon["spec"]["template"]["spec"];
        spec["volumes"] = match name {
            "coredns" => json!([
                {"name": "config-volume", "configMap": {"name": "coredns"}},
                {"name": "custom-config-volume", "configMap": {"name": "coredns-custom", "optional": true}},
            ]),
            "metrics-server" => json!([{"name": "tmp-dir", "emptyDir": {}}]),
            _ => json!([{"name": "config-volume", "configMap": {"name": "local-path-config"}}]),
        };
        if name != "local-path-provisioner" {
            spec["priorityClassName"] = json!("system-cluster-critical");
        }
        addon
    })
    .collect();
    // The provisioner sets no requests at all.
    if let Some(provisioner) = deployments.last_mut() {
        provisioner["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    }
    let mut balancer = daemonset("kube-system", "svclb-traefik", "0", "0");
    let spec = &mut balancer["spec"]["template"]["spec"];
    spec["containers"][0]["resources"] = json!({});
    spec["tolerations"] = critical;
    deployments
        .into_iter()
        .map(|addon| ("deployments.apps", addon))
        .chain([("daemonsets.apps", balancer)])
        .collect()
}
