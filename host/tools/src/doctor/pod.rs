//! The controller's own pod: where the chart lets it run, and whether a Node takes it, by the filters of the planner.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kproxide_planner::ids::PodKey;
use kproxide_planner::keys::{ARCH, CLAIM};
use kproxide_planner::planning::Filters;
use kproxide_planner::world::World;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::cluster::{KUBERNETES_DEADLINE, NoKubernetes, reach};
use crate::manifest::{Admission, Object, Objects, changes, everything, settle};
use kproxide_controller::judge::listed;
use kproxide_controller::judge::{Finding, Group, named, reasons};
use kproxide_kube::client::Client;
use kproxide_kube::watch::Change;

/// The chart's own, so that there is no second list of them.
const DEFAULTS: &str = include_str!("../../../../charts/kproxide/values.yaml");
const PLACING: &str = include_str!("../../../../charts/kproxide/templates/_pod.tpl");
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// Without these nobody can say whether there is room.
const NEEDED: [&str; 2] = ["/api/v1/nodes:", "/api/v1/pods:"];

/// What is wrong with the pod of these values in this cluster, before it is there. `name`: of the Deployment, whose pods of
/// before an upgrade go first. `None`: a Node takes the pod, or not all is seen that decides it.
///
/// # Errors
/// The API server cannot be reached, or does not know the caller.
pub async fn check(
    kube: &Client,
    namespace: &str,
    name: &str,
    template: &Value,
) -> Result<Option<Finding>, NoKubernetes> {
    reach(kube).await?;
    let why = refusal(kube, namespace, name, template).await;
    let object = named("Deployment", format!("{namespace}/{name}"));
    let reason = &reasons::POD_UNSCHEDULABLE;
    Ok(why.map(|why| Finding::error(Group::Kubernetes, object, reason, why)))
}

/// Why no Node takes a pod of this template. `None`: as for [`check`].
pub(super) async fn refusal(
    kube: &Client,
    namespace: &str,
    name: &str,
    template: &Value,
) -> Option<String> {
    let read = timeout(KUBERNETES_DEADLINE, everything(kube)).await;
    let (objects, unseen) = read.ok()?.ok()?;
    let is_needed = |path: &String| NEEDED.iter().any(|needed| path.starts_with(needed));
    if unseen.iter().any(is_needed) {
        return None;
    }
    let mut all = Objects::default();
    all.add(objects);
    let mut pod = Object::from_elsewhere(
        json!({
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": { "namespace": namespace, "name": name, "labels": template["metadata"]["labels"] },
        }),
        "the chart",
    );
    Admission::of(&all).admit(&mut pod);
    settle(
        &mut pod,
        kube.server_time().unwrap_or(Timestamp::UNIX_EPOCH),
    );
    let is_before = of_deployment(&all, namespace, name);
    let mut world = World::default();
    let there = all.iter().map(|(_, object)| object);
    let there = there.filter(|object| !is_before(object));
    for object in there.chain([&pod]) {
        // What cannot be read has a finding of its own, or is no Node and no pod.
        for change in changes(object).unwrap_or_default() {
            if let Change::Delta(delta) = change {
                world.receive(delta);
            }
        }
    }
    world.regroup();
    let pod = world.pod(&PodKey::new(namespace, name))?;
    let filters = Filters::of(&world);
    let mut nodes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in world.nodes() {
        let misfit = filters.misfit_if_preempting(&pod, node.name())?;
        let alike = nodes.entry(misfit.to_string()).or_default();
        alike.push(node.name().as_str());
    }
    if nodes.is_empty() {
        return Some("there is no Node for the pod of the controller".to_owned());
    }
    let whys = nodes.iter();
    let whys: Vec<String> = whys
        .map(|(why, nodes)| format!("{} ({why})", listed(nodes)))
        .collect();
    let whys: Vec<&str> = whys.iter().map(String::as_str).collect();
    Some(format!(
        "no Node takes the pod of the controller: {}",
        listed(&whys)
    ))
}

/// Its pods, by the selector.
fn of_deployment<'a>(
    all: &'a Objects,
    namespace: &'a str,
    name: &'a str,
) -> impl Fn(&&Object) -> bool + 'a {
    let mut found = all.of("apps", "Deployment");
    let found = found.find(|(it, _)| it.namespace == namespace && it.name == name);
    let labels = found.and_then(|(_, it)| it.value["spec"]["selector"]["matchLabels"].as_object());
    move |object| {
        let Some(labels) = labels.filter(|_| object.kind() == "Pod") else {
            return false;
        };
        let has =
            |(key, value): (&String, &Value)| object.value["metadata"]["labels"][key] == *value;
        object.namespace() == namespace && labels.iter().all(has)
    }
}

/// The template that the chart makes of its values, as far as it decides where the pod runs. `None`: they want no pod.
pub(super) fn of_values(given: &Value) -> Option<Value> {
    let mut values: Value =
        serde_saphyr::from_str(DEFAULTS).expect("the chart's own values can be read");
    lay(&mut values, given);
    if values["replicas"] == 0 {
        return None;
    }
    let own = PLACING.split_once("\ntolerations:\n");
    let own = own.and_then(|(_, rest)| rest.split_once("  {{- with .Values.tolerations }}"));
    let own = own.expect("the chart has tolerations of its own").0;
    let mut tolerations: Vec<Value> =
        serde_saphyr::from_str(own).expect("the chart's own tolerations can be read");
    tolerations.extend(
        values["tolerations"]
            .as_array()
            .into_iter()
            .flatten()
            .cloned(),
    );
    Some(json!({ "spec": {
        "nodeSelector": values["nodeSelector"],
        "affinity": affinity(&values),
        "tolerations": tolerations,
        "topologySpreadConstraints": values["topologySpreadConstraints"],
        "priorityClassName": values["priorityClassName"],
        "initContainers": values["initContainers"],
        "containers": [{ "name": "kproxide", "resources": values["resources"] }],
    } }))
}

/// The user's, and the chart's in each of its terms. What is only preferred is left out.
fn affinity(values: &Value) -> Value {
    let mut required = Vec::new();
    if values["allowManagedNodes"] != true {
        required.push(json!({ "key": CLAIM, "operator": "DoesNotExist" }));
    }
    let architectures = &values["image"]["architectures"];
    if architectures.as_array().is_some_and(|all| !all.is_empty()) {
        required.push(json!({ "key": ARCH, "operator": "In", "values": architectures }));
    }
    let mut affinity = values["affinity"].as_object().cloned().unwrap_or_default();
    let own = affinity.remove("nodeAffinity").unwrap_or_default();
    let own = own[REQUIRED]["nodeSelectorTerms"].as_array();
    let mut terms: Vec<Map<String, Value>> = own
        .into_iter()
        .flatten()
        .filter_map(|term| term.as_object().cloned())
        .collect();
    if terms.is_empty() && !required.is_empty() {
        terms.push(Map::new());
    }
    for term in &mut terms {
        let own = term.get("matchExpressions").and_then(Value::as_array);
        let all = required.iter().chain(own.into_iter().flatten());
        let all: Vec<Value> = all.cloned().collect();
        if !all.is_empty() {
            term.insert("matchExpressions".to_owned(), all.into());
        }
    }
    if !terms.is_empty() {
        let terms = json!({ REQUIRED: { "nodeSelectorTerms": terms } });
        affinity.insert("nodeAffinity".to_owned(), terms);
    }
    affinity.into()
}

/// As Helm lays values on the chart's own: maps key by key, and null takes a key away.
fn lay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, over) in over {
                if over.is_null() {
                    under.remove(key);
                } else {
                    lay(under.entry(key.clone()).or_insert(Value::Null), over);
                }
            }
        }
        (under, over) => *under = over.clone(),
    }
}
