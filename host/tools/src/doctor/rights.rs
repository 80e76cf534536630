//! The controller's rights in Kubernetes, against those that the chart grants.

use futures::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::time::timeout;

use super::Sources;
use super::cluster::KUBERNETES_DEADLINE;
use kproxide_common::chain::chain;
use kproxide_controller::judge::reasons;
use kproxide_controller::judge::{Finding, Group};
use kproxide_kube::access::{Account, Permission, may};
use kproxide_kube::error::Error;

/// The chart's own rules, so that there is no second list of them.
const RULES: &str = include_str!("../../../../charts/kproxide/templates/rbac.yaml");
/// In the chart: the name of the controller.
const NAME: &str = "{{ include \"kproxide.fullname\" . }}";
/// Questions at once.
const AT_ONCE: usize = 16;

/// `account`: of the controller. `None`: it is not known.
pub(super) async fn check(sources: &Sources, account: Option<&Account>) -> Vec<Finding> {
    let (Some(account), Some(kube)) = (account, &sources.kube) else {
        return Vec::new();
    };
    let needed = needed(&sources.namespace, &sources.name);
    let asked = stream::iter(needed.into_iter().map(async |permission| {
        let asked = may(kube, account, &permission);
        (timeout(KUBERNETES_DEADLINE, asked).await, permission)
    }));
    let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    let object = match account {
        Account::Caller => "ServiceAccount".to_owned(),
        Account::Service { namespace, name } => format!("ServiceAccount/{namespace}/{name}"),
    };
    let group = Group::Kubernetes;
    let mut missing = Vec::new();
    for (answer, permission) in answers {
        match answer {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => missing.push(permission),
            // A server that knows no authorization (a simulated one) refuses nobody.
            Ok(Err(Error::NotFound { .. })) => return Vec::new(),
            Ok(Err(error)) => {
                let text = format!("its rights cannot be asked for: {}", chain(&error));
                return vec![Finding::warning(group, object, &reasons::NOT_LISTED, text)];
            }
            Err(_) => {
                let text = "its rights cannot be asked for: no answer in time";
                return vec![Finding::warning(group, object, &reasons::NOT_LISTED, text)];
            }
        }
    }
    if missing.is_empty() {
        let text = "it may do what the controller does";
        return vec![Finding::ok(group, object, text)];
    }
    missing.sort();
    let texts: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let text = format!("it may not {}", texts.join(", "));
    vec![Finding::error(group, object, &reasons::RIGHT_MISSING, text)]
}

/// What the chart grants to a controller of this name in this namespace.
fn needed(namespace: &str, name: &str) -> Vec<Permission> {
    let named = RULES.replace(NAME, name);
    // The rest of the template is about the objects, not about their rules.
    let lines = named.lines().filter(|line| !line.contains("{{"));
    let plain = lines.collect::<Vec<_>>().join("\n");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&plain).unwrap_or_default();
    let mut needed = Vec::new();
    for object in objects {
        let namespace = match object["kind"].as_str() {
            Some("ClusterRole") => "",
            Some("Role") => namespace,
            Some(_) | None => continue,
        };
        for rule in object["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let names = texts(&rule["resourceNames"]);
                        let names = if names.is_empty() { vec![""] } else { names };
                        needed.extend(names.into_iter().map(|name| Permission {
                            verb: verb.to_owned(),
                            group: group.to_owned(),
                            resource: resource.to_owned(),
                            namespace: namespace.to_owned(),
                            name: name.to_owned(),
                        }));
                    }
                }
            }
        }
    }
    needed
}

fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_rules_are_read_with_the_controllers_name() {
        let needed: Vec<String> = needed("ops", "scaler")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(needed.len() > 60, "{needed:?}");
        for one in [
            "watch pods",
            "create pods/eviction",
            "patch nodeclaims/status.kproxide.dev",
            "get namespaces kube-system",
            "update leases.coordination.k8s.io scaler in namespace ops",
            "get secrets scaler-ownership-key in namespace ops",
        ] {
            assert!(needed.iter().any(|it| it == one), "{one}: {needed:?}");
        }
    }
}
