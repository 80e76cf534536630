//! The pods that controllers would make: of Deployments, StatefulSets, ReplicaSets, ReplicationControllers, Jobs and
//! CronJobs, as many as the input lacks.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kproxide_planner::kubernetes::quantity::Quantity;
use serde_json::{Value, json};

use super::{Identity, Object, Objects};

/// How many pods a person wants a workload to have, whatever it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// `None`: in every namespace.
    pub namespace: Option<String>,
    pub kind: &'static str,
    pub name: String,
    pub count: u32,
}

/// A pod that is there, with the controller that made it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    pub namespace: String,
    pub name: String,
    pub owner_kind: String,
    pub owner_name: String,
}

/// What controllers would do.
#[derive(Debug, Default)]
pub struct Made {
    /// Pods, and the claims that StatefulSets make for theirs.
    pub objects: Vec<Object>,
    /// Pods that would go, by namespace and name.
    pub surplus: BTreeSet<(String, String)>,
}

const KINDS: [(&str, &str); 6] = [
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "ReplicaSet"),
    ("", "ReplicationController"),
    ("batch", "Job"),
    ("batch", "CronJob"),
];

impl Replicas {
    /// Reads `deploy/web=10` or `shop/deploy/web=10`.
    ///
    /// # Errors
    /// Says how it is written.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not KIND/NAME=N or NAMESPACE/KIND/NAME=N; the kinds are deploy, sts, rs, rc, job and cronjob"
            )
        };
        let (what, count) = text.rsplit_once('=').ok_or_else(wrong)?;
        let count = count.parse().map_err(|_| wrong())?;
        let parts: Vec<&str> = what.split('/').collect();
        let (namespace, kind, name) = match parts[..] {
            [kind, name] => (None, kind, name),
            [namespace, kind, name] => (Some(namespace.to_owned()), kind, name),
            _ => return Err(wrong()),
        };
        let kind = match kind.to_ascii_lowercase().as_str() {
            "deploy" | "deployment" | "deployments" => "Deployment",
            "sts" | "statefulset" | "statefulsets" => "StatefulSet",
            "rs" | "replicaset" | "replicasets" => "ReplicaSet",
            "rc" | "replicationcontroller" | "replicationcontrollers" => "ReplicationController",
            "job" | "jobs" => "Job",
            "cronjob" | "cronjobs" | "cj" => "CronJob",
            _ => return Err(wrong()),
        };
        Ok(Self {
            namespace,
            kind,
            name: name.to_owned(),
            count,
        })
    }

    fn is_of(&self, identity: &Identity) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == identity.namespace)
            && self.kind == identity.kind
            && self.name == identity.name
    }
}

/// The pods of the input that controllers count as theirs.
pub fn standing(objects: &Objects) -> Vec<Standing> {
    let pods = objects.of("", "Pod");
    pods.filter(|(_, pod)| {
        let phase = pod.value["status"]["phase"].as_str().unwrap_or_default();
        let is_ending = !pod.value["metadata"]["deletionTimestamp"].is_null();
        !is_ending && !matches!(phase, "Succeeded" | "Failed")
    })
    .filter_map(|(identity, pod)| {
        let (owner_kind, owner_name) = controller(&pod.value)?;
        Some(Standing {
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
            owner_kind,
            owner_name,
        })
    })
    .collect()
}

fn controller(object: &Value) -> Option<(String, String)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().map(str::to_owned);
    Some((text("kind")?, text("name")?))
}

/// What the controllers of these workloads would make and remove, where `standing` are the pods that there are. A
/// workload that a later layer has changed gives way to its new pods at once.
///
/// The controllers write the pods' times as `now`.
pub fn made(
    objects: &Objects,
    standing: &[Standing],
    wanted: &[Replicas],
    now: Timestamp,
) -> Result<Made, String> {
    let mut made = Made::default();
    let mut used = vec![false; wanted.len()];
    for (group, kind) in KINDS {
        for (identity, object) in objects.of(group, kind) {
            if is_of_another(objects, identity, object) {
                continue;
            }
            let mut replicas = replicas(kind, &object.value, objects.before(identity));
            let mut is_decided = objects.before(identity).is_some();
            for (index, wanted) in wanted.iter().enumerate() {
                if wanted.is_of(identity) {
                    (replicas, used[index], is_decided) = (wanted.count, true, true);
                }
            }
            let mut own: Vec<&Standing> = standing
                .iter()
                .filter(|pod| {
                    pod.namespace == identity.namespace && is_owner(objects, identity, pod)
                })
                .collect();
            own.sort_by_key(|pod| (ordinal(&pod.name), &pod.name));
            let workload = Workload {
                identity,
                object,
                now,
            };
            // A Deployment in the middle of an update has more pods than replicas for a while.
            let kept = match (is_changed(objects, identity), is_decided) {
                (true, _) => 0,
                (false, true) => own.len().min(replicas as usize),
                (false, false) => own.len(),
            };
            for pod in &own[kept..] {
                let key = (pod.namespace.clone(), pod.name.clone());
                made.surplus.insert(key);
            }
            let taken: BTreeSet<&str> = own[..kept].iter().map(|pod| &*pod.name).collect();
            workload.make(replicas, &taken, objects, &mut made.objects);
        }
    }
    for (_, pod) in objects.of("", "Pod") {
        made.objects.extend(ephemeral_claims(pod, objects));
    }
    match used.iter().position(|used| !used) {
        Some(index) => {
            let Replicas { kind, name, .. } = &wanted[index];
            Err(format!("there is no {kind} {name} in the input"))
        }
        None => Ok(made),
    }
}

/// The pod of a DaemonSet on a Node.
pub fn daemon(set: &Object, node: &str) -> Object {
    let template = template(&set.value);
    let mut spec = template["spec"].clone();
    spec["nodeName"] = node.into();
    let value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{}-{node}", set.name()), "namespace": set.namespace(),
            "labels": template["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": set.api_version(), "kind": "DaemonSet", "name": set.name(), "uid": "", "controller": true,
            }],
        },
        "spec": spec,
    });
    set.derived(value)
}

/// The controller of it is in the input too, and makes its pods.
fn is_of_another(objects: &Objects, identity: &Identity, object: &Object) -> bool {
    controller(&object.value).is_some_and(|(kind, name)| {
        objects.iter().any(|(other, _)| {
            other.namespace == identity.namespace && other.kind == kind && other.name == name
        })
    })
}

/// Pods of a Deployment belong to a ReplicaSet of it, and pods of a CronJob to a Job. If those are not in the input,
/// their names tell: they end with one more part.
fn is_owner(objects: &Objects, identity: &Identity, pod: &Standing) -> bool {
    let between = match identity.kind.as_str() {
        "Deployment" => ("apps", "ReplicaSet"),
        "CronJob" => ("batch", "Job"),
        _ => return pod.owner_kind == identity.kind && pod.owner_name == identity.name,
    };
    if pod.owner_kind != between.1 {
        return false;
    }
    let owner = Identity {
        group: between.0.to_owned(),
        kind: between.1.to_owned(),
        namespace: identity.namespace.clone(),
        name: pod.owner_name.clone(),
    };
    match objects.get(&owner) {
        Some(owner) => {
            controller(&owner.value) == Some((identity.kind.clone(), identity.name.clone()))
        }
        None => {
            let rest = pod.owner_name.strip_prefix(&identity.name);
            rest.and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(|rest| !rest.is_empty() && !rest.contains('-'))
        }
    }
}

/// The number at the end of a StatefulSet's pod.
fn ordinal(name: &str) -> Option<u32> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// A later layer says another template, so that the pods that there are would be replaced. What an API server fills in
/// is no change: only what the new template says is compared.
fn is_changed(objects: &Objects, identity: &Identity) -> bool {
    let after = objects.get(identity).map(|object| template(&object.value));
    let before = objects.before(identity).map(template);
    match (before, after) {
        (Some(before), Some(after)) => !says(before, after),
        _ => false,
    }
}

/// Everything that `new` says is so in `old`. The API server leaves out what is empty, 0 or false as a rule.
fn says(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => new.iter().all(|(name, new)| {
            let empty = [
                json!(null),
                json!({}),
                json!([]),
                json!(""),
                json!(0),
                json!(false),
            ];
            old.get(name)
                .map_or(empty.contains(new), |old| says(old, new))
        }),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| says(old, new))
        }
        // An amount or a port may be written as a number, and an amount in another unit.
        (old, new) => {
            let (old, new) = (written(old), written(new));
            let amount = |text: &str| text.parse::<Quantity>().ok();
            old == new || amount(&old).is_some_and(|old| amount(&new) == Some(old))
        }
    }
}

fn written(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}

fn template(workload: &Value) -> &Value {
    match workload["kind"].as_str() {
        Some("CronJob") => &workload["spec"]["jobTemplate"]["spec"]["template"],
        _ => &workload["spec"]["template"],
    }
}

/// How many pods it has when all goes well. A CronJob of a cluster has its Jobs there. A new one counts as if it was time
/// for its first run.
fn replicas(kind: &str, workload: &Value, before: Option<&Value>) -> u32 {
    let is_stored = |workload: &Value| workload["metadata"]["uid"].is_string();
    let number = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
    let spec = &workload["spec"];
    let of_job = |spec: &Value, status: &Value| {
        let conditions = status["conditions"].as_array();
        let has_ended = conditions.into_iter().flatten().any(|condition| {
            condition["status"] == "True"
                && matches!(condition["type"].as_str(), Some("Complete" | "Failed"))
        });
        if has_ended || spec["suspend"] == true {
            return 0;
        }
        let parallelism = number(&spec["parallelism"]).unwrap_or(1);
        let succeeded = number(&status["succeeded"]).unwrap_or(0);
        let completions = number(&spec["completions"]);
        completions.map_or(parallelism, |completions| {
            parallelism.min(completions.saturating_sub(succeeded))
        })
    };
    match kind {
        "Job" => of_job(spec, &workload["status"]),
        "CronJob" if spec["suspend"] == true => 0,
        "CronJob" if is_stored(workload) || before.is_some_and(is_stored) => 0,
        "CronJob" => of_job(&spec["jobTemplate"]["spec"], &Value::Null),
        _ => number(&spec["replicas"]).unwrap_or(1),
    }
}

/// The claims of a pod's generic ephemeral volumes that the input lacks: Kubernetes makes them.
fn ephemeral_claims<'a>(
    pod: &'a Object,
    objects: &'a Objects,
) -> impl Iterator<Item = Object> + 'a {
    let volumes = pod.value["spec"]["volumes"].as_array();
    volumes.into_iter().flatten().filter_map(|volume| {
        let template = volume["ephemeral"].get("volumeClaimTemplate")?;
        let name = format!("{}-{}", pod.name(), volume["name"].as_str()?);
        let identity = Identity {
            group: String::new(),
            kind: "PersistentVolumeClaim".to_owned(),
            namespace: pod.namespace().to_owned(),
            name: name.clone(),
        };
        if objects.get(&identity).is_some() {
            return None;
        }
        let uid = pod.value["metadata"]["uid"].as_str().unwrap_or_default();
        Some(pod.derived(json!({
            "apiVersion": "v1", "kind": identity.kind,
            "metadata": {
                "name": name, "namespace": identity.namespace,
                "annotations": template["metadata"]["annotations"], "labels": template["metadata"]["labels"],
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": uid, "controller": true,
                }],
            },
            "spec": template["spec"],
        })))
    })
}

struct Workload<'a> {
    identity: &'a Identity,
    object: &'a Object,
    now: Timestamp,
}

impl Workload<'_> {
    /// Adds pods until there are `count`, with names that are not taken.
    fn make(&self, count: u32, taken: &BTreeSet<&str>, objects: &Objects, made: &mut Vec<Object>) {
        let is_stateful = self.identity.kind == "StatefulSet";
        let first = match is_stateful {
            true => self.object.value["spec"]["ordinals"]["start"]
                .as_u64()
                .unwrap_or(0),
            false => 1,
        };
        let mut lacking = (count as usize).saturating_sub(taken.len());
        let mut number = first;
        while lacking > 0 {
            let name = format!("{}-{number}", self.identity.name);
            number += 1;
            if taken.contains(&*name) {
                continue;
            }
            lacking -= 1;
            let mut pod = self.pod(&name);
            if is_stateful {
                self.make_claims(&name, &mut pod, objects, made);
            }
            let pod = self.object.derived(pod);
            made.extend(ephemeral_claims(&pod, objects));
            made.push(pod);
        }
    }

    fn pod(&self, name: &str) -> Value {
        let template = template(&self.object.value);
        let mut metadata = BTreeMap::from([
            ("name", json!(name)),
            ("namespace", json!(self.identity.namespace)),
            ("creationTimestamp", json!(self.now.to_string())),
        ]);
        for field in ["labels", "annotations"] {
            if template["metadata"][field].is_object() {
                metadata.insert(field, template["metadata"][field].clone());
            }
        }
        let owner_kind = match self.identity.kind.as_str() {
            "Deployment" => "ReplicaSet",
            "CronJob" => "Job",
            kind => kind,
        };
        metadata.insert(
            "ownerReferences",
            json!([{
                "apiVersion": self.object.api_version(), "kind": owner_kind, "name": self.identity.name,
                "uid": "", "controller": true,
            }]),
        );
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"],
        });
        if self.identity.kind == "StatefulSet" && pod["metadata"]["labels"].is_object() {
            let number = ordinal(name).unwrap_or(0).to_string();
            let labels = &mut pod["metadata"]["labels"];
            labels["statefulset.kubernetes.io/pod-name"] = name.into();
            labels["apps.kubernetes.io/pod-index"] = number.into();
        }
        pod
    }

    /// A claim of each template for the pod, unless there is one of that name; and the volumes of the pod that use them.
    fn make_claims(&self, name: &str, pod: &mut Value, objects: &Objects, made: &mut Vec<Object>) {
        let templates = self.object.value["spec"]["volumeClaimTemplates"].as_array();
        let mut volumes: Vec<Value> = pod["spec"]["volumes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for template in templates.into_iter().flatten() {
            let volume = template["metadata"]["name"].as_str().unwrap_or_default();
            let claim = format!("{volume}-{name}");
            let identity = Identity {
                group: String::new(),
                kind: "PersistentVolumeClaim".to_owned(),
                namespace: self.identity.namespace.clone(),
                name: claim.clone(),
            };
            if objects.get(&identity).is_none() {
                let value = json!({
                    "apiVersion": "v1", "kind": identity.kind,
                    "metadata": {
                        "name": claim, "namespace": identity.namespace,
                        "annotations": template["metadata"]["annotations"], "labels": template["metadata"]["labels"],
                    },
                    "spec": template["spec"],
                });
                made.push(self.object.derived(value));
            }
            volumes.retain(|one| one["name"] != volume);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
        }
        if !volumes.is_empty() && pod["spec"].is_object() {
            pod["spec"]["volumes"] = volumes.into();
        }
    }
}

#[cfg(test)]
mod tests;
