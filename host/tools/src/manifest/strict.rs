//! Mistakes in files that the API server would refuse, and that reading alone would pass over.

use std::collections::BTreeMap;

use kproxide_planner::kubernetes::quantity::Quantity;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{BadInput, Object};
use kproxide_kube::convert::{Unreadable, decoded};
use kproxide_kube::crd::spec_of;
use kproxide_kube::view::PodSpecView;

const OURS: [&str; 5] = [
    "ProxmoxCluster",
    "NodeClass",
    "NodePool",
    "NodeClaim",
    "Ledger",
];

/// Fields whose values are amounts by name.
const AMOUNTS: [&str; 5] = ["requests", "limits", "capacity", "allocatable", "overhead"];

/// Refuses what the API server would refuse. It has looked at a stored object already.
///
/// # Errors
/// The field, its line and what to write there.
pub fn refuse(object: &Object) -> Result<(), BadInput> {
    if object.is_stored() || object.is_saved_world() {
        return Ok(());
    }
    if object.identity().group == "kproxide.dev" {
        return refuse_of_ours(object);
    }
    let template = match object.kind() {
        "Pod" => "spec",
        "Deployment"
        | "StatefulSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "DaemonSet"
        | "Job" => "spec.template.spec",
        "CronJob" => "spec.jobTemplate.spec.template.spec",
        "Node" | "PersistentVolume" | "PersistentVolumeClaim" => {
            return refuse_amounts(object, "", &object.value);
        }
        _ => return Ok(()),
    };
    decoded::<WorkloadView>(object.kind(), &object.value).map_err(
        |Unreadable { field, problem, .. }| {
            let problem = problem.replace("expected u32", "expected a whole number such as 3");
            object.bad(&field, problem)
        },
    )?;
    refuse_amounts(object, "", &object.value)?;
    let pointer = format!("/{}/containers", template.replace('.', "/"));
    let lacks = match object.value.pointer(&pointer) {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty() && object.kind() != "Pod",
        // The reader names what is there instead.
        Some(_) => false,
    };
    if lacks {
        return Err(object.bad(
            &format!("{template}.containers"),
            format_args!(
                "this {} has no containers: list at least one",
                object.kind()
            ),
        ));
    }
    Ok(())
}

/// What is read of workloads, so that a field of another type is named.
#[derive(Deserialize)]
struct WorkloadView {
    #[serde(rename = "spec")]
    _spec: Option<WorkloadSpecView>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadSpecView {
    #[serde(rename = "replicas")]
    _replicas: Option<u32>,
    #[serde(rename = "parallelism")]
    _parallelism: Option<u32>,
    #[serde(rename = "completions")]
    _completions: Option<u32>,
    #[serde(rename = "suspend")]
    _suspend: Option<bool>,
    #[serde(rename = "template")]
    _template: Option<TemplateView>,
    #[serde(rename = "jobTemplate")]
    _job_template: Option<Box<WorkloadView>>,
    #[serde(rename = "volumeClaimTemplates")]
    _claims: Option<Vec<BTreeMap<String, IgnoredAny>>>,
}

#[derive(Deserialize)]
struct TemplateView {
    #[serde(rename = "spec")]
    _spec: Option<PodSpecView>,
}

fn refuse_amounts(object: &Object, path: &str, value: &Value) -> Result<(), BadInput> {
    let fields = value.as_object().into_iter().flatten();
    for (name, inside) in fields.filter(|(name, _)| *name != "metadata") {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        if AMOUNTS.contains(&&**name) {
            for (name, amount) in inside.as_object().into_iter().flatten() {
                let text = amount.as_str().map(str::to_owned);
                let text = text.unwrap_or_else(|| amount.to_string());
                let problem = match text.parse::<Quantity>() {
                    Ok(quantity) if quantity >= Quantity::default() => continue,
                    Ok(_) => format!("{text:?} is negative: write 0 or more"),
                    Err(problem) => problem.to_string(),
                };
                return Err(object.bad(&format!("{path}.{name}"), problem));
            }
        }
        refuse_amounts(object, &path, inside)?;
    }
    let items = value.as_array().into_iter().flatten();
    for (index, item) in items.enumerate() {
        refuse_amounts(object, &format!("{path}[{index}]"), item)?;
    }
    Ok(())
}

/// The API server drops fields that the definition does not have, and kubectl warns of them.
fn refuse_of_ours(object: &Object) -> Result<(), BadInput> {
    let kind = object.kind();
    // It has a reader of its own that knows its fields.
    if kind == "Inventory" {
        return Ok(());
    }
    if !OURS.contains(&kind) {
        return Err(object.bad(
            "kind",
            format_args!(
                "kproxide has no kind {kind}; it has {} and, for plan alone, Inventory",
                OURS.join(", ")
            ),
        ));
    }
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    for (name, value) in object.value.as_object().into_iter().flatten() {
        if !known.contains(&&**name) {
            return Err(unknown(object, name, value, known.into_iter()));
        }
    }
    refuse_unknown(object, "spec", &object.value["spec"], &spec_of(kind))
}

fn refuse_unknown(
    object: &Object,
    path: &str,
    value: &Value,
    schema: &Value,
) -> Result<(), BadInput> {
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            refuse_unknown(object, &format!("{path}[{index}]"), item, &schema["items"])?;
        }
    }
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let is_closed = !properties.is_empty()
        && schema["x-kubernetes-preserve-unknown-fields"] != true
        && schema["additionalProperties"].is_null();
    for (name, inside) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match properties.get(name) {
            Some(schema) => refuse_unknown(object, &path, inside, schema)?,
            None if is_closed => {
                let known = properties.keys().map(String::as_str);
                return Err(unknown(object, &path, inside, known));
            }
            None => refuse_unknown(object, &path, inside, &schema["additionalProperties"])?,
        }
    }
    Ok(())
}

fn unknown<'a>(
    object: &Object,
    path: &str,
    value: &Value,
    known: impl Iterator<Item = &'a str>,
) -> BadInput {
    let known: Vec<&str> = known.collect();
    let problem = format!(
        "there is no such field (its value is {value}). There are {}",
        known.join(", ")
    );
    object.bad(path, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::documents;

    fn refused(text: &str) -> String {
        let objects = documents("f.yaml", text, "default").unwrap();
        let problems = objects.iter().map(|object| match refuse(object) {
            Ok(()) => "taken".to_owned(),
            Err(problem) => problem.to_string(),
        });
        problems.collect::<Vec<_>>().join("\n")
    }

    fn workload(kind: &str, spec: &str) -> String {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n{spec}")
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let containers = "  template: {spec: {containers: [{name: c}]}}\n";
        let said = refused(&workload(
            "Deployment",
            &format!("  replicas: three\n{containers}"),
        ));
        assert_eq!(
            said,
            "f.yaml:5: spec.replicas: invalid type: string \"three\", expected a whole number such as 3"
        );
        let said = refused(&workload(
            "StatefulSet",
            &format!("{containers}  replicas: -1\n"),
        ));
        assert!(
            said.starts_with("f.yaml:6: spec.replicas: invalid value"),
            "{said}"
        );
        let job = "  jobTemplate:\n    spec:\n      parallelism: [2]\n";
        let said = refused(&workload("CronJob", job));
        assert!(
            said.starts_with("f.yaml:7: spec.jobTemplate.spec.parallelism: invalid type"),
            "{said}"
        );
        assert_eq!(refused(&workload("Deployment", containers)), "taken");
    }

    #[test]
    fn an_amount_that_is_none_is_named() {
        let pod = |amount: &str| {
            workload(
                "Pod",
                &format!(
                    "  containers:\n  - name: a\n    resources: {{requests: {{cpu: 1, memory: 1.5Gi}}}}\n  - name: b\n    resources:\n      limits:\n        example.com/gpu: {amount}\n"
                ),
            )
        };
        assert_eq!(refused(&pod("2")), "taken");
        let said = refused(&pod("5x"));
        let begin = "f.yaml:11: spec.containers[1].resources.limits.example.com/gpu: \"5x\" is not a quantity";
        assert!(said.starts_with(begin), "{said}");
        assert!(refused(&pod("-1")).ends_with("\"-1\" is negative: write 0 or more"));
        let claim = workload(
            "PersistentVolumeClaim",
            "  resources: {requests: {storage: much}}\n",
        );
        assert!(refused(&claim).contains("spec.resources.requests.storage: \"much\""));
    }

    #[test]
    fn a_template_without_containers_is_refused() {
        let says = |kind: &str, spec: &str, field: &str| {
            let said = refused(&workload(kind, spec));
            let expected = format!("{field}: this {kind} has no containers: list at least one");
            assert!(said.ends_with(&expected), "{said}");
        };
        says("Pod", "  container: [{name: c}]\n", "spec.containers");
        let template = "  template: {spec: {containers: []}}\n";
        says(
            "Deployment",
            template,
            "f.yaml:5: spec.template.spec.containers",
        );
        let template = "  jobTemplate: {spec: {template: {spec: {}}}}\n";
        says(
            "CronJob",
            template,
            "spec.jobTemplate.spec.template.spec.containers",
        );
    }

    #[test]
    fn an_unknown_field_of_our_own_objects_is_refused() {
        let ours = |kind: &str, spec: &str| {
            format!(
                "apiVersion: kproxide.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\n{spec}"
            )
        };
        let said = refused(&ours(
            "NodePool",
            "spec:\n  nodeClass: c\n  limits:\n    maxNode: 10\n",
        ));
        let expected =
            "f.yaml:7: spec.limits.maxNode: there is no such field (its value is 10). There are ";
        assert!(
            said.starts_with(expected) && said.contains("maxNodes"),
            "{said}"
        );
        let said = refused(&ours("NodePool", "specs: {}\n"));
        assert!(
            said.starts_with("f.yaml:4: specs: there is no such field"),
            "{said}"
        );
        let class = "spec:\n  template: {name: t}\n  instanceTypes:\n  - {name: s, cores: 2, memoryMiB: 4096, extendedResources: {a/b: 1}}\n  - {name: l, core: 2, memoryMiB: 4096}\n";
        let said = refused(&ours("NodeClass", class));
        assert!(
            said.starts_with("f.yaml:8: spec.instanceTypes[1].core: "),
            "{said}"
        );
        let said = refused(&ours("NodePools", "spec: {}\n"));
        assert!(
            said.starts_with("f.yaml:2: kind: kproxide has no kind NodePools"),
            "{said}"
        );
        let pool = ours("NodePool", "spec: {nodeClass: c, labels: {any: thing}}\n");
        assert_eq!(refused(&pool), "taken");
    }
}
