//! Draws what a pod asks for: its containers, and the pod as a whole.

use serde_json::{Value, json};

use super::draw::Draw;

pub(super) fn containers(draw: &mut Draw, spec: &mut Value) {
    let on_host_network = draw.percent(5);
    if on_host_network {
        spec["hostNetwork"] = json!(true);
    }
    let mut free_ports: Vec<Value> = [("TCP", 80), ("", 80), ("", 443), ("UDP", 80)]
        .into_iter()
        .map(|(protocol, port)| {
            let mut one = json!({"containerPort": port, "hostPort": port});
            if !protocol.is_empty() {
                one["protocol"] = json!(protocol);
            }
            one
        })
        .collect();
    let mut named = |draw: &mut Draw, name: String, is_init: bool| {
        let mut one = json!({"name": name, "image": "image", "resources": resources(draw)});
        if is_init && draw.percent(40) {
            one["restartPolicy"] = json!("Always");
        }
        if on_host_network && !free_ports.is_empty() && draw.percent(50) {
            one["ports"] = json!([{"containerPort": free_ports.remove(0)["containerPort"]}]);
            free_ports.clear();
        } else if !free_ports.is_empty() && draw.percent(38) {
            let mut port = free_ports.swap_remove(draw.between(0, free_ports.len() - 1));
            if on_host_network || draw.percent(60) {
                port["hostIP"] = json!(draw.pick(&["", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"]));
            }
            one["ports"] = json!([port]);
            free_ports.clear();
        }
        one
    };
    let all: Vec<Value> = (0..draw.between(1, 2))
        .map(|index| named(draw, format!("c{index}"), false))
        .collect();
    let init: Vec<Value> = (0..draw.between(0, 4).saturating_sub(2))
        .map(|index| named(draw, format!("i{index}"), true))
        .collect();
    spec["containers"] = all.into();
    spec["initContainers"] = init.into();
    if draw.percent(5) {
        spec["overhead"] = json!({"cpu": "250m", "memory": "120Mi"});
    }
    pod_level(draw, spec, 5);
}

/// What the pod asks as a whole: more than its containers can ask for together, or limits alone. These become requests
/// where no container says what it requests.
pub(super) fn pod_level(draw: &mut Draw, spec: &mut Value, chance: u32) {
    if !draw.percent(chance) {
        return;
    }
    let mut resources = json!({});
    for (key, amounts, chance) in [("cpu", ["12", "14"], 80), ("memory", ["15Gi", "40Gi"], 60)] {
        if draw.percent(chance) {
            let of = draw.pick(&["requests", "limits"]);
            resources[of][key] = json!(draw.pick(&amounts));
        }
    }
    if draw.percent(25) && huge_pages(spec) <= 2 {
        resources["limits"]["hugepages-2Mi"] = json!("64Mi");
        // Kubernetes wants another resource beside them.
        resources["requests"]["cpu"] = json!("14");
        if let Some(limits) = resources["limits"].as_object_mut() {
            limits.remove("cpu");
        }
    }
    spec["resources"] = resources;
}

/// How many containers have them.
fn huge_pages(spec: &Value) -> usize {
    let all = ["containers", "initContainers"].map(|kind| spec[kind].as_array());
    let all = all.into_iter().flatten().flatten();
    all.filter(|one| !one["resources"]["limits"]["hugepages-2Mi"].is_null())
        .count()
}

fn resources(draw: &mut Draw) -> Value {
    let mut resources = json!({});
    for (key, amounts, chance) in [
        ("cpu", ["10m", "0.1", "250m", "1500m", "3"], 50),
        ("memory", ["128974848", "129M", "512Mi", "1e8", "3e9"], 50),
        (
            "ephemeral-storage",
            ["1Gi", "2Gi", "4Gi", "6Gi", "20Gi"],
            10,
        ),
    ] {
        if draw.percent(chance) {
            // A limit alone is a request too.
            let of = draw.pick(&["requests", "requests", "limits"]);
            resources[of][key] = json!(draw.pick(&amounts));
        }
    }
    for (key, amount, chance) in [("example.com/gpu", "1", 4), ("hugepages-2Mi", "32Mi", 6)] {
        if draw.percent(chance) {
            resources["limits"][key] = json!(amount);
            resources["requests"][key] = json!(amount);
            resources["requests"]["cpu"] = json!("100m");
            if let Some(limits) = resources["limits"].as_object_mut() {
                limits.remove("cpu");
            }
        }
    }
    resources
}
