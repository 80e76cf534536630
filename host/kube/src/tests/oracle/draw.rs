//! Draws worlds: Nodes, pods on them and pods that wait, as a user's objects reach the API server.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};

use super::containers::{containers, pod_level};
use super::storage;

/// Chances and choices of one seed.
pub(super) struct Draw(SmallRng);

pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(super) const REGION: &str = "topology.kubernetes.io/region";
pub(super) const ZONES: [&str; 3] = ["alpha", "beta", "gamma"];
const KEYS: [&str; 4] = [HOST, ZONE, ZONE, "rack"];
const NAMESPACES: [&str; 4] = ["default", "default", "team-a", "team-b"];
const EFFECTS: [&str; 4] = ["NoSchedule", "NoExecute", "NoSchedule", "PreferNoSchedule"];

impl Draw {
    fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    pub(super) fn percent(&mut self, chance: u32) -> bool {
        self.0.random_range(0..100) < chance
    }

    pub(super) fn between(&mut self, least: usize, most: usize) -> usize {
        self.0.random_range(least..=most)
    }

    pub(super) fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.between(0, of.len() - 1)]
    }
}

/// The objects of one world. Three of eight worlds have pods with volumes. Every other world has a machine to come, and
/// DaemonSets that will have pods on it.
pub(super) fn world(seed: u64) -> Vec<Value> {
    let draw = &mut Draw::new(seed);
    let nodes = draw.between(1, 5);
    let mut objects: Vec<Value> = (0..nodes).map(|index| node(draw, index)).collect();
    for index in 0..draw.between(0, 12) {
        // Now and then on a Node that is gone.
        let on = draw.between(0, nodes * 8) % (nodes + 1);
        objects.push(bound_pod(
            draw,
            &format!("bound-{index}"),
            &format!("n{on}"),
        ));
    }
    for index in 0..draw.between(1, 4) {
        objects.push(pod(draw, &format!("pending-{index}"), nodes));
    }
    if matches!(seed % 8, 0 | 2 | 4) {
        let mut claims = storage::storage(draw, nodes);
        for object in &mut objects {
            // Few of them have other wishes too, so that their volumes decide.
            if draw.percent(80) {
                make_plain(object);
            }
            // A pod on a Node that is gone holds its claims until it is gone too. The scheduler has forgotten it.
            let is_gone = object["spec"]["nodeName"] == format!("n{nodes}");
            if object["kind"] == "Pod" && !is_gone {
                storage::give_volumes(draw, object, &claims);
                claims.extend(storage::ephemeral_claims(draw, object, nodes));
            }
        }
        objects.extend(claims);
    } else if !seed.is_multiple_of(2) {
        objects.push(machine(draw));
        for index in 0..draw.between(0, 2) {
            objects.push(daemon_set(draw, &format!("daemon-{index}")));
        }
    }
    // The order in which watches tell is nobody's choice.
    for last in (1..objects.len()).rev() {
        objects.swap(last, draw.between(0, last));
    }
    objects
}

fn node(draw: &mut Draw, index: usize) -> Value {
    let name = format!("n{index}");
    let mut labels = json!({HOST: name});
    for (key, values, chance) in [
        (ZONE, &ZONES[..], 90),
        ("rack", &["r1", "r2"], 70),
        ("disk", &["ssd", "hdd"], 60),
        ("size", &["5", "10", "x"], 60),
        (BETA_ZONE, &ZONES, 8),
        (REGION, &["eu"], 15),
    ] {
        if draw.percent(chance) {
            labels[key] = json!(draw.pick(values));
        }
    }
    let mut taints = Vec::new();
    for (key, values) in [("dedicated", ["a", "b"]), ("gpu", ["", "x"])] {
        if draw.percent(12) {
            let (value, effect) = (draw.pick(&values), draw.pick(&EFFECTS));
            taints.push(json!({"key": key, "value": value, "effect": effect}));
        }
    }
    let mut allocatable = json!({
        "cpu": draw.pick(&["2", "3900m", "16", "16", "16"]),
        "memory": draw.pick(&["2Gi", "4000000Ki", "64Gi", "64Gi", "64Gi"]),
        "pods": draw.pick(&["3", "110", "110", "110", "110"]),
    });
    for (key, amounts, chance) in [
        ("ephemeral-storage", ["10Gi", "100Gi"], 90),
        ("example.com/gpu", ["1", "4"], 50),
        ("hugepages-2Mi", ["0", "64Mi"], 50),
    ] {
        if draw.percent(chance) {
            allocatable[key] = json!(draw.pick(&amounts));
        }
    }
    let mut spec = json!({"taints": taints});
    if draw.percent(12) {
        spec["unschedulable"] = json!(true);
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": spec, "status": {"allocatable": allocatable},
    })
}

fn make_plain(object: &mut Value) {
    let is_pod = object["kind"] == "Pod";
    let spec = object["spec"].as_object_mut().expect("a specification");
    spec.retain(|field, _| field == "nodeName");
    if is_pod {
        spec.insert(
            "containers".to_owned(),
            json!([{"name": "c", "image": "image"}]),
        );
    }
}

/// See [`super::machine`].
fn machine(draw: &mut Draw) -> Value {
    let mut machine = json!({
        "kind": "Machine", "metadata": {"name": "new"}, "zone": draw.between(0, 2),
        "cores": draw.between(1, 8), "gib": draw.between(1, 64),
        "labels": draw.pick(&["", "disk=ssd", "disk=hdd rack=r1", "size=10 rack=r2"]),
    });
    for (key, value, chance) in [("gpus", 2, 40), ("pods", 3, 15), ("hugeMib", 64, 40)] {
        if draw.percent(chance) {
            machine[key] = json!(value);
        }
    }
    if draw.percent(15) {
        machine["taint"] = json!(draw.pick(&EFFECTS));
    }
    machine
}

fn daemon_set(draw: &mut Draw, name: &str) -> Value {
    let mut pod = pod(draw, name, 1);
    pod_level(draw, &mut pod["spec"], 25);
    let labels = json!({"labels": pod["metadata"]["labels"]});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": pod["metadata"]["namespace"]},
        "spec": {"selector": {}, "template": {"metadata": labels, "spec": pod["spec"]}},
    })
}

fn bound_pod(draw: &mut Draw, name: &str, node: &str) -> Value {
    let mut pod = pod(draw, name, 3);
    pod["spec"]["nodeName"] = json!(node);
    pod["status"]["phase"] = json!(draw.pick(&[
        "Running",
        "Running",
        "Running",
        "Running",
        "Pending",
        "Unknown",
        "Succeeded",
        "Failed",
    ]));
    if draw.percent(10) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }
    pod
}

fn pod(draw: &mut Draw, name: &str, nodes: usize) -> Value {
    let mut labels = json!({});
    for (key, values, chance) in [
        ("app", ["web", "db"], 90),
        ("tier", ["front", "back"], 50),
        ("version", ["v1", "v2"], 60),
    ] {
        if draw.percent(chance) {
            labels[key] = json!(draw.pick(&values));
        }
    }
    let mut spec = json!({});
    containers(draw, &mut spec);
    if draw.percent(12) {
        let pair = [
            ("disk", "ssd"),
            ("disk", "hdd"),
            (ZONE, "a"),
            ("rack", "r1"),
        ];
        let (key, value) = pair[draw.between(0, 3)];
        spec["nodeSelector"] = json!({key: value});
    }
    let mut affinity = Map::new();
    if draw.percent(15) {
        let terms = (0..draw.between(1, 2)).map(|_| node_term(draw, nodes));
        let terms: Vec<Value> = terms.collect();
        let required = json!({"nodeSelectorTerms": terms});
        affinity.insert("nodeAffinity".to_owned(), required_only(required));
    }
    for (kind, chance) in [("podAffinity", 8), ("podAntiAffinity", 12)] {
        if draw.percent(chance) {
            let terms: Vec<Value> = (0..draw.between(1, 5) / 4 + 1)
                .map(|_| pod_term(draw))
                .collect();
            affinity.insert(kind.to_owned(), required_only(json!(terms)));
        }
    }
    if !affinity.is_empty() {
        spec["affinity"] = affinity.into();
    }
    spec["tolerations"] = tolerations(draw);
    spec["topologySpreadConstraints"] = spread(draw);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": draw.pick(&NAMESPACES), "labels": labels,
                     "uid": format!("uid-{name}")},
        "spec": spec, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    })
}

fn required_only(terms: Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

fn node_term(draw: &mut Draw, nodes: usize) -> Value {
    let mut term = json!({});
    for _ in 0..draw.between(0, 2) {
        let one = match draw.between(0, 6) {
            0 => json!({"key": "size", "operator": "Gt", "values": [draw.pick(&["4", "7"])]}),
            1 => json!({"key": "size", "operator": "Lt", "values": [draw.pick(&["7", "10"])]}),
            2 => json!({"key": draw.pick(&["rack", "size"]), "operator": "Exists"}),
            3 => json!({"key": draw.pick(&["rack", "disk"]), "operator": "DoesNotExist"}),
            4 => json!({"key": "disk", "operator": "NotIn", "values": ["hdd"]}),
            _ => {
                json!({"key": ZONE, "operator": "In", "values": ["alpha", draw.pick(&["beta", "delta"])]})
            }
        };
        push(&mut term["matchExpressions"], one);
    }
    if draw.percent(25) {
        let operator = draw.pick(&["In", "NotIn"]);
        let name = format!("n{}", draw.between(0, nodes));
        push(
            &mut term["matchFields"],
            json!({"key": "metadata.name", "operator": operator, "values": [name]}),
        );
    }
    term
}

pub(super) fn push(list: &mut Value, one: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(one),
        None => *list = json!([one]),
    }
}

/// `None`: no selector, which selects no pod.
fn selector(draw: &mut Draw) -> Option<Value> {
    Some(match draw.between(0, 9) {
        0 => return None,
        1 => json!({}),
        2..=5 => json!({"matchLabels": {"app": draw.pick(&["web", "db"])}}),
        6 => json!({"matchLabels": {"app": "web", "tier": "front"}}),
        7 => json!({"matchExpressions": [
            {"key": "tier", "operator": draw.pick(&["Exists", "DoesNotExist"])},
        ]}),
        _ => json!({"matchExpressions": [
            {"key": "app", "operator": draw.pick(&["In", "NotIn"]), "values": ["web"]},
        ]}),
    })
}

fn pod_term(draw: &mut Draw) -> Value {
    let mut term = json!({"topologyKey": draw.pick(&KEYS)});
    if draw.percent(30) {
        let other = draw.pick(&NAMESPACES);
        term["namespaces"] = json!([other]);
    }
    if draw.percent(15) {
        term["namespaceSelector"] = json!({});
    }
    if let Some(selector) = selector(draw) {
        term["labelSelector"] = selector;
        if draw.percent(20) {
            let of = draw.pick(&["matchLabelKeys", "mismatchLabelKeys"]);
            term[of] = json!(["version"]);
        }
    }
    term
}

fn tolerations(draw: &mut Draw) -> Value {
    let mut all = Vec::new();
    for (key, value) in [("dedicated", "a"), ("gpu", "")] {
        if draw.percent(20) {
            let mut one = match draw.percent(50) {
                true => json!({"key": key, "operator": "Exists"}),
                false => json!({"key": key, "value": value}),
            };
            if draw.percent(50) {
                one["effect"] = json!(draw.pick(&EFFECTS));
            }
            all.push(one);
        }
    }
    if draw.percent(4) {
        all.push(json!({"operator": "Exists"}));
    }
    if draw.percent(10) {
        all.push(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}));
    }
    all.into()
}

fn spread(draw: &mut Draw) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for (key, chance) in [(HOST, 45), (ZONE, 60), ("rack", 20)] {
        if !draw.percent(chance) {
            continue;
        }
        let mut one = json!({"topologyKey": key, "maxSkew": draw.between(1, 5).div_ceil(3)});
        one["whenUnsatisfiable"] = json!("DoNotSchedule");
        if draw.percent(15) {
            one["whenUnsatisfiable"] = json!("ScheduleAnyway");
        } else if draw.percent(30) {
            one["minDomains"] = json!(draw.between(1, 4));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if draw.percent(40) {
                one[policy] = json!(draw.pick(&["Honor", "Ignore"]));
            }
        }
        if let Some(selector) = selector(draw) {
            one["labelSelector"] = selector;
            if draw.percent(20) {
                one["matchLabelKeys"] = json!(["version"]);
            }
        }
        all.push(one);
    }
    all.into()
}
