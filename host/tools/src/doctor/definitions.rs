//! The CustomResourceDefinitions: whether they stand, and whether they know each field that this program knows.

use futures::future::join_all;
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::Sources;
use super::cluster::KUBERNETES_DEADLINE;
use kproxide_controller::judge::{Finding, Group};
use kproxide_controller::judge::{named, reasons};
use kproxide_kube::crd::crds;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) async fn check(sources: &Sources) -> Vec<Finding> {
    let Some(kube) = &sources.kube else {
        return Vec::new();
    };
    let ours = crds();
    let looks = ours.iter().map(async |crd| {
        let name = crd.name_any();
        let object = named("CustomResourceDefinition", &name);
        let path = format!("{PATH}/{name}");
        let asked = timeout(KUBERNETES_DEADLINE, kube.ask(&path)).await;
        let group = Group::Kubernetes;
        match asked {
            Ok(Ok((200, found))) if found["metadata"]["deletionTimestamp"].is_string() => {
                let text = "it is being deleted, and all objects of its kind with it";
                Some(Finding::error(
                    group,
                    object,
                    &reasons::DEFINITION_MISSING,
                    text,
                ))
            }
            Ok(Ok((200, found))) => {
                let ours = serde_json::to_value(crd).unwrap_or_default();
                match lacking(&schema(&ours), &schema(&found)) {
                    Some(field) => {
                        let text = format!("it does not know the field {field}");
                        Some(Finding::error(
                            group,
                            object,
                            &reasons::DEFINITION_OLD,
                            text,
                        ))
                    }
                    None => Some(Finding::ok(group, object, "")),
                }
            }
            Ok(Ok((404, _))) => {
                let reason = &reasons::DEFINITION_MISSING;
                Some(Finding::error(group, object, reason, "there is none"))
            }
            // The lists of objects say that Kubernetes does not answer.
            Ok(Ok(_) | Err(_)) | Err(_) => None,
        }
    });
    join_all(looks).await.into_iter().flatten().collect()
}

fn schema(crd: &Value) -> Value {
    let versions = crd["spec"]["versions"].as_array();
    let ours = versions.into_iter().flatten();
    let mut ours = ours.filter(|version| version["name"] == kproxide_kube::crd::VERSION);
    let found = ours.next();
    found.map_or(Value::Null, |version| {
        version["schema"]["openAPIV3Schema"].clone()
    })
}

/// The first field that `theirs` does not have, such as `spec.limits.maxNodes`.
fn lacking(ours: &Value, theirs: &Value) -> Option<String> {
    let fields = ours["properties"].as_object();
    for (name, field) in fields.into_iter().flatten() {
        let known = &theirs["properties"][name];
        if known.is_null() {
            return Some(name.clone());
        }
        // Of a list, its elements. Of a map, its values.
        for part in ["", "items", "additionalProperties"] {
            let within = |of: &'_ Value| match part {
                "" => of.clone(),
                part => of[part].clone(),
            };
            if let Some(rest) = lacking(&within(field), &within(known)) {
                return Some(format!("{name}.{rest}"));
            }
        }
    }
    None
}
