//! A machine to come, as kproxide expects it, made into the objects that would then be there: its Node and the pods of
//! its DaemonSets.

use kproxide_planner::World;
use kproxide_planner::facts::{Taint, TaintEffect};
use kproxide_planner::fixtures::{
    NOW, Scene, at, devices, instance_type, labels, reasonable, taint,
};
use kproxide_planner::kubernetes::resources::Resources;
use kproxide_planner::planning::expected::Expected;
use kproxide_planner::planning::{Limits, Planning};
use kproxide_testkit::oracle::full_name;
use serde_json::{Value, json};

/// One pool with one class, as the object of kind Machine says: `cores`, `gib` and `pods` of its type, `gpus`, huge pages
/// of `hugeMib`, `labels` and a `taint` of this effect. `zone` chooses the hypervisor.
pub(super) fn scene(machine: &Value) -> Scene {
    let number = |field: &str| machine[field].as_u64();
    let mut scene = Scene::default();
    let cores = number("cores").unwrap_or(4) as u32;
    let mut size = instance_type("drawn", cores, number("gib").unwrap_or(8));
    size.max_pods = number("pods").unwrap_or(110) as u32;
    let gpus = number("gpus").map(|gpus| format!("example.com/gpu={gpus}"));
    let huge = number("hugeMib").map(|mib| format!("hugepages-2Mi={}", mib << 20));
    let extended: Vec<String> = gpus.into_iter().chain(huge).collect();
    size.extended_resources = devices(&extended.join(" "));
    scene.class.instance_types = vec![size];
    let overhead = json!({"cpu": "100m", "memory": "500Mi"});
    scene.class.overhead = serde_json::from_value(overhead).unwrap();
    let pool = scene.workers();
    pool.labels = labels(machine["labels"].as_str().unwrap_or_default());
    let effect = machine["taint"].as_str().and_then(TaintEffect::from_word);
    pool.taints = effect
        .map(|effect| taint("dedicated", effect))
        .into_iter()
        .collect();
    scene
}

/// The machine that kproxide could make there, if it could make any.
pub(super) fn expected<'w>(machine: &Value, world: &'w World) -> Option<Expected<'w>> {
    let mut all = Planning::machines_to_come(world, at(NOW), Limits::default(), reasonable);
    let zone = machine["zone"].as_u64().unwrap_or_default() as usize;
    (zone < all.len()).then(|| all.swap_remove(zone))
}

/// The objects that there would be with it.
pub(super) fn rendered(machine: &Expected<'_>, name: &str, objects: &[Value]) -> Vec<Value> {
    let taints = machine.taints().iter().map(|Taint { key, value, effect }| {
        json!({"key": &**key, "value": &**value, "effect": effect.to_string()})
    });
    let Resources {
        milli_cores,
        memory_bytes,
        ephemeral_bytes,
        pods,
        extended,
    } = &machine.allocatable;
    let mut allocatable = json!({
        "cpu": format!("{milli_cores}m"), "memory": memory_bytes.to_string(),
        "ephemeral-storage": ephemeral_bytes.to_string(), "pods": pods.to_string(),
    });
    for (resource, amount) in extended {
        allocatable[&**resource] = json!(amount.to_string());
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": machine.labels(name)},
        "spec": {"taints": taints.collect::<Vec<_>>()}, "status": {"allocatable": allocatable},
    });
    let daemons = machine.daemons.iter().map(|key| {
        let is_meant =
            |set: &&Value| set["kind"] == "DaemonSet" && full_name(set) == key.to_string();
        let set = objects.iter().find(is_meant).expect("it was read");
        let template = &set["spec"]["template"];
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{}-{name}", key.name), "namespace": &*key.namespace,
                         "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        });
        pod["spec"]["nodeName"] = json!(name);
        pod
    });
    [node].into_iter().chain(daemons).collect()
}
