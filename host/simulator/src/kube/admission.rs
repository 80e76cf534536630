//! What the real server adds to, and refuses in, built-in objects: the part that an autoscaler can see.

use serde_json::{Value, json};

use super::{
    error::Cause,
    object::{entries, field_mut, items, map_mut, meta_mut, meta_str},
    resource::Resource,
};

/// Fills what the server and its default admission plugins fill in a new object.
pub(crate) fn default_new(resource: &Resource, object: &mut Value) {
    match (&*resource.id.group, &*resource.id.plural) {
        ("", "pods") => new_pod(object),
        ("", "nodes") => new_node(object),
        ("", "namespaces") => {
            let name = meta_str(object, "name").to_owned();
            field_mut(object, "spec")["finalizers"] = json!(["kubernetes"]);
            field_mut(object, "status")["phase"] = json!("Active");
            labels(object).insert("kubernetes.io/metadata.name".to_owned(), json!(name));
        }
        ("apps", "deployments" | "replicasets" | "statefulsets") => {
            default(field_mut(object, "spec"), "replicas", json!(1));
        }
        ("batch", "jobs") => {
            let spec = field_mut(object, "spec");
            default(spec, "parallelism", json!(1));
            default(spec, "completions", json!(1));
            default(spec, "backoffLimit", json!(6));
        }
        _ => {}
    }
}

fn new_pod(pod: &mut Value) {
    let phase = json!({"phase": "Pending", "qosClass": qos_class(&pod["spec"])});
    map_mut(pod).insert("status".to_owned(), phase);
    let spec = field_mut(pod, "spec");
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "serviceAccountName", json!("default"));
    default(spec, "enableServiceLinks", json!(true));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    let priority = match spec["priorityClassName"].as_str() {
        Some("system-node-critical") => 2_000_001_000,
        Some("system-cluster-critical") => 2_000_000_000,
        Some(_) | None => 0,
    };
    default(spec, "priority", json!(priority));
    for list in ["containers", "initContainers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            requests_from_limits(container);
        }
    }
    // The DefaultTolerationSeconds plugin: five minutes on a node that is not ready or unreachable.
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = items(spec, "tolerations").iter().any(|toleration| {
            let key_fits = toleration["key"] == key
                || toleration["key"].as_str().unwrap_or_default().is_empty();
            key_fits && (toleration["effect"] == "NoExecute" || toleration["effect"].is_null())
        });
        if !tolerated {
            push(
                spec,
                "tolerations",
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

/// The LimitRanger plugin: what the namespace gives to containers that say nothing. It comes before the pod's class of
/// service is worked out, and after the defaults of the pod itself.
pub(crate) fn limit<'a>(pod: &mut Value, ranges: &[impl std::borrow::Borrow<Value> + 'a]) {
    let of_containers = ranges
        .iter()
        .flat_map(|range| items(&range.borrow()["spec"], "limits"))
        .filter(|item| item["type"] == "Container");
    let of_containers: Vec<&Value> = of_containers.collect();
    if of_containers.is_empty() {
        return;
    }
    let spec = field_mut(pod, "spec");
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            requests_from_limits(container);
            for item in &of_containers {
                let resources = field_mut(container, "resources");
                // The API's own defaults of a LimitRange: a limit is at most the most, a request that limit, or the least.
                for (from, to) in [
                    ("defaultRequest", "requests"),
                    ("default", "requests"),
                    ("max", "requests"),
                    ("min", "requests"),
                    ("default", "limits"),
                    ("max", "limits"),
                ] {
                    for (name, amount) in entries(item, from) {
                        default(field_mut(resources, to), name, amount.clone());
                    }
                }
            }
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits: Vec<(String, Value)> = entries(&container["resources"], "limits")
        .map(|(name, limit)| (name.to_owned(), limit.clone()))
        .collect();
    if limits.is_empty() {
        return;
    }
    let requests = field_mut(field_mut(container, "resources"), "requests");
    for (name, limit) in limits {
        default(requests, &name, limit);
    }
}

fn qos_class(spec: &Value) -> &'static str {
    let containers = || {
        items(spec, "containers")
            .iter()
            .chain(items(spec, "initContainers"))
    };
    let has =
        |container: &Value, list: &str| entries(&container["resources"], list).next().is_some();
    if containers().all(|container| !has(container, "requests") && !has(container, "limits")) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let resources = &container["resources"];
        ["cpu", "memory"].iter().all(|&name| {
            let (request, limit) = (&resources["requests"][name], &resources["limits"][name]);
            !limit.is_null() && (request.is_null() || request == limit)
        })
    });
    if guaranteed {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// The TaintNodesByCondition plugin: a node is closed until the node lifecycle controller has seen it Ready.
fn new_node(node: &mut Value) {
    let name = meta_str(node, "name").to_owned();
    labels(node)
        .entry("kubernetes.io/hostname")
        .or_insert_with(|| json!(name));
    let spec = field_mut(node, "spec");
    let key = "node.kubernetes.io/not-ready";
    if !items(spec, "taints")
        .iter()
        .any(|taint| taint["key"] == key)
    {
        push(spec, "taints", json!({"key": key, "effect": "NoSchedule"}));
    }
}

fn labels(object: &mut Value) -> &mut serde_json::Map<String, Value> {
    map_mut(meta_mut(object).entry("labels").or_insert(Value::Null))
}

fn default(parent: &mut Value, field: &str, value: Value) {
    let slot = field_mut(parent, field);
    if slot.is_null() {
        *slot = value;
    }
}

fn push(parent: &mut Value, field: &str, item: Value) {
    let slot = field_mut(parent, field);
    match slot.as_array_mut() {
        Some(list) => list.push(item),
        None => *slot = json!([item]),
    }
}

/// The invalid fields of an object's metadata.
pub(crate) fn check_metadata(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = meta_str(object, "name");
    if name.is_empty() {
        causes.push(Cause {
            reason: "FieldValueRequired",
            field: "metadata.name".to_owned(),
            message: "Required value: name or generateName is required".to_owned(),
        });
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid(
            "metadata.name",
            &json!(name),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ));
    }
    for (key, value) in entries(&object["metadata"], "labels") {
        if !is_qualified_name(key) {
            causes.push(Cause::invalid(
                "metadata.labels",
                &json!(key),
                QUALIFIED_NAME,
            ));
        }
        match value.as_str() {
            Some(text) if text.len() > 63 => {
                causes.push(Cause::invalid(
                    "metadata.labels",
                    value,
                    "must be no more than 63 bytes",
                ));
            }
            Some(text) if text.is_empty() || is_name_part(text) => {}
            Some(_) | None => causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE)),
        }
    }
    for (key, _) in entries(&object["metadata"], "annotations") {
        if !is_qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid(
                "metadata.annotations",
                &json!(key),
                QUALIFIED_NAME,
            ));
        }
    }
    for finalizer in items(&object["metadata"], "finalizers") {
        if !finalizer.as_str().is_some_and(is_qualified_name) {
            causes.push(Cause::invalid(
                "metadata.finalizers",
                finalizer,
                QUALIFIED_NAME,
            ));
        }
    }
    causes
}

/// The invalid taints of a Node.
pub(crate) fn check_taints(node: &Value) -> Vec<Cause> {
    let taints = items(&node["spec"], "taints");
    let effects = [
        json!("NoSchedule"),
        json!("PreferNoSchedule"),
        json!("NoExecute"),
    ];
    let mut causes = Vec::new();
    for (index, taint) in taints.iter().enumerate() {
        let field = format!("metadata.taints[{index}]");
        if !taint["key"].as_str().is_some_and(is_qualified_name) {
            causes.push(Cause::invalid(
                &format!("{field}.key"),
                &taint["key"],
                QUALIFIED_NAME,
            ));
        }
        if !effects.contains(&taint["effect"]) {
            causes.push(Cause::unsupported(
                &format!("{field}.effect"),
                &taint["effect"],
                &effects,
            ));
        }
        let twin =
            |other: &&Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if taints[..index].iter().any(|other| twin(&other)) {
            causes.push(Cause::duplicate(field, taint));
        }
    }
    causes
}

const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                              with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                              validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                           must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                           regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(|byte| edge(byte) || *byte == b'-')
    };
    // RBAC-like kinds allow more, but none of them is served here. A colon appears in bootstrap names only.
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: &u8| byte.is_ascii_alphanumeric();
    text.len() <= 63
        && bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|byte| edge(byte) || b"-_.".contains(byte))
}

fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}
