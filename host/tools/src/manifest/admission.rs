//! What the API server fills in before it stores a pod, a claim or a Namespace, as far as it decides where pods can run.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>: LimitRanger, Priority, RuntimeClass,
//! DefaultStorageClass and DefaultTolerationSeconds; and the defaults of the API's own types.

use std::collections::BTreeMap;

use kproxide_planner::keys;
use serde_json::{Map, Value, json};

use super::{Object, Objects};

/// Seconds that a pod stays on a Node that is not Ready or not reachable.
const TOLERATED: u32 = 300;

/// Priorities that every cluster has.
const SYSTEM_CLASSES: [(&str, i32); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// The objects that the API server fills things in from.
#[derive(Debug, Default)]
pub struct Admission {
    /// Requests and limits of containers that have none, by namespace; the first LimitRange by name comes first.
    limits: BTreeMap<String, Vec<ContainerDefaults>>,
    priorities: BTreeMap<String, i64>,
    default_priority: Option<i64>,
    runtimes: BTreeMap<String, Value>,
    storage_class: Option<String>,
}

#[derive(Debug, Default)]
struct ContainerDefaults {
    requests: Map<String, Value>,
    limits: Map<String, Value>,
}

impl Admission {
    pub fn of(objects: &Objects) -> Self {
        let mut admission = Self::default();
        for (identity, object) in objects.of("", "LimitRange") {
            let items = object.value["spec"]["limits"].as_array();
            let containers = items
                .into_iter()
                .flatten()
                .filter(|item| item["type"] == "Container");
            let defaults = containers.map(ContainerDefaults::of);
            let of_namespace = admission.limits.entry(identity.namespace.clone());
            of_namespace.or_default().extend(defaults);
        }
        for (name, value) in SYSTEM_CLASSES {
            admission.priorities.insert(name.to_owned(), value.into());
        }
        for (identity, object) in objects.of("scheduling.k8s.io", "PriorityClass") {
            let Some(value) = object.value["value"].as_i64() else {
                continue;
            };
            admission.priorities.insert(identity.name.clone(), value);
            if object.value["globalDefault"] == true {
                // Of several the least counts.
                let least = admission.default_priority.unwrap_or(value).min(value);
                admission.default_priority = Some(least);
            }
        }
        for (identity, object) in objects.of("node.k8s.io", "RuntimeClass") {
            let class = object.value.clone();
            admission.runtimes.insert(identity.name.clone(), class);
        }
        let defaults = objects
            .of("storage.k8s.io", "StorageClass")
            .filter(|(_, class)| {
                let annotations = &class.value["metadata"]["annotations"];
                annotations["storageclass.kubernetes.io/is-default-class"] == "true"
            });
        // Of several the newest counts, and of equally old ones the first by name.
        let newest = defaults.min_by_key(|(identity, class)| {
            let created = class.value["metadata"]["creationTimestamp"].as_str();
            let created = created.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            (std::cmp::Reverse(created), identity.name.clone())
        });
        admission.storage_class = newest.map(|(identity, _)| identity.name.clone());
        admission
    }

    /// Fills in an object that no API server has seen, and that can be read. What it names and the input lacks comes back
    /// in words.
    pub fn admit(&self, object: &mut Object) -> Vec<String> {
        if object.is_stored() {
            return Vec::new();
        }
        let namespace = object.namespace().to_owned();
        match object.kind() {
            "Pod" => self.admit_pod(&namespace, &mut object.value["spec"]),
            // Its pods go through the API server too, one by one.
            "DaemonSet" => {
                let template = object.value.pointer_mut("/spec/template/spec");
                template.map_or_else(Vec::new, |spec| self.admit_pod(&namespace, spec))
            }
            "PersistentVolumeClaim" => {
                self.admit_claim(&mut object.value);
                Vec::new()
            }
            // Selectors of namespaces name it.
            "Namespace" => {
                let name = object.name().into();
                object.value["metadata"]["labels"][keys::NAMESPACE_NAME] = name;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn admit_pod(&self, namespace: &str, spec: &mut Value) -> Vec<String> {
        if !spec.is_object() {
            return Vec::new();
        }
        let on_host_network = spec["hostNetwork"] == true;
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                if container.is_object() {
                    fill_ports(container, on_host_network);
                    self.fill_resources(namespace, container);
                }
            }
        }
        // A list that is null where it was missing would be another pod.
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|_, value| !value.is_null());
        }
        if spec["schedulerName"].is_null() {
            spec["schedulerName"] = "default-scheduler".into();
        }
        tolerate_for_a_while(spec);
        let missing = [self.set_priority(spec), self.set_runtime(spec)];
        missing.into_iter().flatten().collect()
    }

    fn fill_resources(&self, namespace: &str, container: &mut Value) {
        let part = |name: &str, container: &Value| {
            let amounts = container["resources"][name].as_object();
            amounts.cloned().unwrap_or_default()
        };
        let (mut requests, mut limits) = (part("requests", container), part("limits", container));
        lacking(&mut requests, &limits);
        for defaults in self.limits.get(namespace).into_iter().flatten() {
            lacking(&mut limits, &defaults.limits);
            lacking(&mut requests, &defaults.requests);
        }
        let mut set = |name: &str, amounts: Map<String, Value>| {
            if !amounts.is_empty() {
                container["resources"][name] = amounts.into();
            }
        };
        set("requests", requests);
        set("limits", limits);
    }

    fn set_priority(&self, spec: &mut Value) -> Option<String> {
        let class = spec["priorityClassName"].as_str().unwrap_or_default();
        let value = match class {
            "" => self.default_priority,
            name => self.priorities.get(name).copied(),
        };
        let missing = (value.is_none() && !class.is_empty())
            .then(|| format!("PriorityClass {class} is not in the input: priority 0 is assumed"));
        if spec["priority"].is_null() {
            spec["priority"] = value.unwrap_or(0).into();
        }
        missing
    }

    fn set_runtime(&self, spec: &mut Value) -> Option<String> {
        let name = spec["runtimeClassName"].as_str()?.to_owned();
        let Some(class) = self.runtimes.get(&name) else {
            return Some(format!(
                "RuntimeClass {name} is not in the input: no overhead is assumed"
            ));
        };
        if let Some(overhead) = class["overhead"]["podFixed"].as_object() {
            spec["overhead"] = overhead.clone().into();
        }
        if let Some(selector) = class["scheduling"]["nodeSelector"].as_object() {
            for (key, value) in selector {
                spec["nodeSelector"][key.as_str()] = value.clone();
            }
        }
        for toleration in class["scheduling"]["tolerations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            add(spec, toleration.clone());
        }
        None
    }

    fn admit_claim(&self, claim: &mut Value) {
        let names_one = !claim["metadata"]["annotations"][keys::BETA_STORAGE_CLASS].is_null();
        if let Some(spec) = claim.get_mut("spec").filter(|spec| spec.is_object()) {
            if spec["storageClassName"].is_null()
                && !names_one
                && let Some(class) = &self.storage_class
            {
                spec["storageClassName"] = class.as_str().into();
            }
            if spec["volumeMode"].is_null() {
                spec["volumeMode"] = "Filesystem".into();
            }
        }
        if claim["status"]["phase"].is_null() {
            claim["status"] = json!({"phase": "Pending"});
        }
    }
}

impl ContainerDefaults {
    /// An item of a LimitRange: a default limit may come from the greatest one, a default request from the default limit
    /// or from the least one.
    fn of(item: &Value) -> Self {
        let part = |name: &str| item[name].as_object().cloned().unwrap_or_default();
        let (mut limits, mut requests) = (part("default"), part("defaultRequest"));
        lacking(&mut limits, &part("max"));
        lacking(&mut requests, &limits);
        lacking(&mut requests, &part("min"));
        Self { requests, limits }
    }
}

/// Adds what is not there yet.
fn lacking(amounts: &mut Map<String, Value>, defaults: &Map<String, Value>) {
    for (name, value) in defaults {
        if !amounts.contains_key(name) {
            amounts.insert(name.clone(), value.clone());
        }
    }
}

/// On the network of the host each port of a container is one of the host.
fn fill_ports(container: &mut Value, on_host_network: bool) {
    for port in container["ports"].as_array_mut().into_iter().flatten() {
        if !port.is_object() {
            continue;
        }
        if port["protocol"].is_null() {
            port["protocol"] = "TCP".into();
        }
        if on_host_network && port["hostPort"].as_i64().unwrap_or(0) == 0 {
            port["hostPort"] = port["containerPort"].clone();
        }
        // Looking a field up has put a null in its place.
        if let Some(port) = port.as_object_mut() {
            port.retain(|_, value| !value.is_null());
        }
    }
    if let Some(container) = container.as_object_mut() {
        container.retain(|_, value| !value.is_null());
    }
}

/// Every pod tolerates for some minutes that its Node is away, unless it says something else about that.
fn tolerate_for_a_while(spec: &mut Value) {
    for key in [keys::NOT_READY_TAINT, keys::UNREACHABLE_TAINT] {
        let says_so = |toleration: &Value| {
            let of_key = toleration["key"]
                .as_str()
                .is_none_or(|own| own.is_empty() || own == key);
            let effect = toleration["effect"].as_str().unwrap_or_default();
            of_key && matches!(effect, "" | "NoExecute")
        };
        let all = spec["tolerations"].as_array();
        if !all.into_iter().flatten().any(says_so) {
            let toleration = json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED,
            });
            add(spec, toleration);
        }
    }
}

fn add(spec: &mut Value, toleration: Value) {
    match spec["tolerations"].as_array_mut() {
        Some(all) => all.push(toleration),
        None => spec["tolerations"] = json!([toleration]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::documents;

    fn objects(text: &str) -> Objects {
        let mut objects = Objects::default();
        objects.add(documents("f.yaml", text, "default").unwrap());
        objects
    }

    fn pod(spec: &Value) -> Object {
        let value = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}, "spec": spec,
        });
        Object::from_elsewhere(value, "a test")
    }

    fn admitted(context: &str, spec: &Value) -> (Value, Vec<String>) {
        let mut pod = pod(spec);
        let missing = Admission::of(&objects(context)).admit(&mut pod);
        (pod.value["spec"].clone(), missing)
    }

    #[test]
    fn requests_come_from_limits_then_from_the_limit_ranges_of_the_namespace() {
        let ranges = "
apiVersion: v1
kind: LimitRange
metadata: {name: first}
spec:
  limits:
  - {type: Container, defaultRequest: {cpu: 100m}, max: {memory: 1Gi}}
  - {type: Pod, max: {cpu: 9}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: second, namespace: other}
spec: {limits: [{type: Container, defaultRequest: {cpu: 7}}]}
";
        let spec = json!({"containers": [
            {"name": "bare"},
            {"name": "limited", "resources": {"limits": {"cpu": "2"}}},
            {"name": "asks", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}},
        ]});
        let (spec, _) = admitted(ranges, &spec);
        let resources = |index: usize| spec["containers"][index]["resources"].clone();
        assert_eq!(
            resources(0),
            json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}})
        );
        assert_eq!(
            resources(1),
            json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}})
        );
        assert_eq!(
            resources(2),
            json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"memory": "1Gi"}})
        );
    }

    #[test]
    fn ports_on_the_hosts_network_are_the_hosts() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "hostPort": 53}]);
        let spec = |host: bool| json!({"hostNetwork": host, "containers": [{"name": "a", "ports": ports}]});
        let ports = |host| admitted("", &spec(host)).0["containers"][0]["ports"].clone();
        assert_eq!(
            ports(true),
            json!([{"containerPort": 80, "protocol": "TCP", "hostPort": 80},
                   {"containerPort": 53, "protocol": "UDP", "hostPort": 53}])
        );
        assert_eq!(
            ports(false)[0],
            json!({"containerPort": 80, "protocol": "TCP"})
        );
    }

    #[test]
    fn priority_comes_from_the_class_or_from_the_default_one() {
        let classes = "
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 5, globalDefault: true}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: later}, value: 9, globalDefault: true}
";
        let priority = |name: &str| {
            let (spec, missing) = admitted(classes, &json!({"priorityClassName": name}));
            (spec["priority"].clone(), !missing.is_empty())
        };
        assert_eq!(priority("high"), (json!(1000), false));
        assert_eq!(priority(""), (json!(5), false));
        assert_eq!(
            priority("system-node-critical"),
            (json!(2_000_001_000), false)
        );
        assert_eq!(priority("unknown"), (json!(0), true));
        let both = json!({"priorityClassName": "a", "runtimeClassName": "b"});
        assert_eq!(admitted("", &both).1.len(), 2, "each is told");
    }

    #[test]
    fn a_runtime_class_brings_overhead_and_places() {
        let class = "
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {memory: 120Mi}}
scheduling: {nodeSelector: {kata: 'yes'}, tolerations: [{key: kata, operator: Exists}]}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: other}, handler: x, overhead: {podFixed: {cpu: 7}}}
";
        let spec = json!({"runtimeClassName": "kata", "nodeSelector": {"a": "b"}});
        let (spec, _) = admitted(class, &spec);
        assert_eq!(spec["overhead"], json!({"memory": "120Mi"}));
        assert_eq!(spec["nodeSelector"], json!({"a": "b", "kata": "yes"}));
        let tolerations = spec["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 3);
        assert_eq!(tolerations[2], json!({"key": "kata", "operator": "Exists"}));
    }

    #[test]
    fn the_newest_default_storage_class_is_taken() {
        let classes = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: a
  creationTimestamp: '2026-01-01T00:00:00Z'
  annotations: {storageclass.kubernetes.io/is-default-class: 'true'}
provisioner: a
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: b
  creationTimestamp: '2026-02-01T00:00:00Z'
  annotations: {storageclass.kubernetes.io/is-default-class: 'true'}
provisioner: b
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: c}
";
        let admission = Admission::of(&objects(classes));
        let class_of = |spec: Value| {
            let value = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"}, "spec": spec,
            });
            let mut claim = Object::from_elsewhere(value, "a test");
            admission.admit(&mut claim);
            claim.value["spec"]["storageClassName"].clone()
        };
        assert_eq!(class_of(json!({})), "b");
        assert_eq!(class_of(json!({"storageClassName": ""})), "");
        assert_eq!(class_of(json!({"storageClassName": "c"})), "c");
    }

    #[test]
    fn what_an_api_server_has_stored_stays_as_it_is() {
        let mut pod = pod(&json!({"containers": [{"name": "a"}]}));
        pod.value["metadata"]["uid"] = "u".into();
        let before = pod.value.clone();
        Admission::default().admit(&mut pod);
        assert_eq!(pod.value, before);
    }
}
