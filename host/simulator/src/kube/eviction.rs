//! Evictions and the budgets that refuse them.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    State,
    delete::Deleted,
    error::ApiError,
    object::{is_terminating, items, meta_str},
    request::{DeleteOptions, Params, Target},
    resource::ResourceId,
    selector::LabelSelector,
    store::{Key, Stored},
};

/// The numbers of a PodDisruptionBudget's status, computed from the pods of this instant.
///
/// The real server evicts by a status that its controller wrote earlier; here both the status and the eviction use this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) current_healthy: i64,
    pub(crate) desired_healthy: i64,
    pub(crate) expected_pods: i64,
    /// False when the size that a percentage or `maxUnavailable` refers to is unknown: a pod without a controller that has
    /// replicas. Nothing may be disrupted then.
    pub(crate) resolvable: bool,
}

impl Budget {
    pub(crate) fn disruptions_allowed(self) -> i64 {
        match self.resolvable {
            true => (self.current_healthy - self.desired_healthy).max(0),
            false => 0,
        }
    }
}

impl State {
    /// `POST pods/NAME/eviction`: deletes the pod unless a budget forbids it.
    pub(crate) fn evict(
        &mut self,
        target: &Target,
        eviction: &Value,
        params: &Params,
    ) -> Result<(), ApiError> {
        let pod = self.read(target)?;
        let mut options = params.delete_options(&eviction["deleteOptions"]);
        self.check_budget(&pod)?;
        // The budget was checked for this pod and no other.
        options.uid.get_or_insert_with(|| pod.uid.clone());
        match self.delete(target, &options)? {
            Deleted::Gone(_) | Deleted::Terminating(_) => Ok(()),
        }
    }

    fn check_budget(&self, pod: &Stored) -> Result<(), ApiError> {
        // Pods that count for no budget: they hold nothing up, or go already.
        if pod.terminating || pod.finished() || pod.phase.as_deref() == Some("Pending") {
            return Ok(());
        }
        let budgets = self.budgets_of(pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let numbers = self.budget(budget);
        if !pod.ready {
            // A pod that is not ready does not lower the number of healthy ones.
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            let healthy_enough =
                numbers.desired_healthy > 0 && numbers.current_healthy >= numbers.desired_healthy;
            if always || healthy_enough {
                return Ok(());
            }
        }
        if numbers.disruptions_allowed() > 0 {
            return Ok(());
        }
        Err(ApiError::disruption_budget(format!(
            "The disruption budget {} needs {} healthy pods and has {} currently",
            meta_str(budget, "name"),
            numbers.desired_healthy,
            numbers.current_healthy
        )))
    }

    fn budgets_of(&self, pod: &Stored) -> Vec<Arc<Value>> {
        let id = ResourceId::new("policy", "poddisruptionbudgets");
        self.store
            .list(&id, Some(&pod.key.namespace), None)
            .map(|budget| budget.value())
            .filter(|budget| selects(budget, pod))
            .collect()
    }

    /// The numbers of a budget now.
    pub(crate) fn budget(&self, budget: &Value) -> Budget {
        let namespace = meta_str(budget, "namespace");
        let selector = LabelSelector::from_object(&budget["spec"]["selector"]);
        let pods: Vec<&Arc<Stored>> = self
            .store
            .list(&ResourceId::new("", "pods"), Some(namespace), None)
            .filter(|pod| !pod.finished())
            .filter(|pod| {
                selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches(&pod.labels))
            })
            .collect();
        let current_healthy = count(pods.iter().filter(|pod| pod.ready && !pod.terminating));
        let spec = &budget["spec"];
        let matching = count(pods.iter());
        let (desired_healthy, expected_pods) =
            match (&spec["minAvailable"], &spec["maxUnavailable"]) {
                (_, max @ (Value::Number(_) | Value::String(_))) => {
                    let expected = self.expected_pods(namespace, &pods);
                    (
                        expected.map(|expected| (expected - scaled(max, expected)).max(0)),
                        expected,
                    )
                }
                (min @ Value::String(_), _) => {
                    let expected = self.expected_pods(namespace, &pods);
                    (expected.map(|expected| scaled(min, expected)), expected)
                }
                (Value::Number(min), _) => (min.as_i64(), Some(matching)),
                (_, _) => (Some(0), Some(matching)),
            };
        Budget {
            current_healthy,
            desired_healthy: desired_healthy.unwrap_or(0),
            expected_pods: expected_pods.unwrap_or(0),
            resolvable: desired_healthy.is_some(),
        }
    }

    /// The sum of the replicas that the pods' controllers want; None when a pod has no controller with replicas.
    fn expected_pods(&self, namespace: &str, pods: &[&Arc<Stored>]) -> Option<i64> {
        let mut seen = BTreeSet::new();
        let mut expected = 0;
        for pod in pods {
            let owner = pod.controller.as_ref()?;
            if !seen.insert(&owner.uid) {
                continue;
            }
            let id = match owner.kind.as_str() {
                "ReplicaSet" => ResourceId::new("apps", "replicasets"),
                "StatefulSet" => ResourceId::new("apps", "statefulsets"),
                "Deployment" => ResourceId::new("apps", "deployments"),
                _ => return None,
            };
            let owner = self
                .store
                .get(&id, &Key::new(namespace, owner.name.as_str()))?;
            expected += owner.value()["spec"]["replicas"].as_i64().unwrap_or(1);
        }
        Some(expected)
    }

    /// `POST pods/NAME/binding`: what a scheduler does.
    pub(crate) fn bind(&mut self, target: &Target, binding: &Value) -> Result<(), ApiError> {
        let mut pod = self.read(target)?.to_value();
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if is_terminating(&pod) {
            let why = format!(
                "pod {} is being deleted, cannot be assigned to a host",
                target.name()
            );
            return Err(ApiError::conflict(
                &ResourceId::new("", "pods/binding"),
                target.name(),
                &why,
            ));
        }
        if let Some(bound) = pod["spec"]["nodeName"]
            .as_str()
            .filter(|bound| !bound.is_empty())
        {
            let why = format!(
                "pod {} is already assigned to node {bound:?}",
                target.name()
            );
            return Err(ApiError::conflict(
                &ResourceId::new("", "pods/binding"),
                target.name(),
                &why,
            ));
        }
        let uid = meta_str(binding, "uid");
        if !uid.is_empty() && uid != meta_str(&pod, "uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta_str(&pod, "uid")
            );
            return Err(ApiError::conflict(target.id(), target.name(), &why));
        }
        pod["spec"]["nodeName"] = json!(node);
        let scheduled = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": super::object::time(self.clock.now()),
        });
        let mut conditions = items(&pod["status"], "conditions").to_vec();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(scheduled);
        pod["status"]["conditions"] = json!(conditions);
        self.store.put(target.id(), pod);
        Ok(())
    }
}

/// Whether the budget covers the pod; a budget without a selector covers none.
pub(crate) fn selects(budget: &Value, pod: &Stored) -> bool {
    LabelSelector::from_object(&budget["spec"]["selector"])
        .is_some_and(|selector| selector.matches(&pod.labels))
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}

/// A number, or a percentage of `total` rounded up.
fn scaled(value: &Value, total: i64) -> i64 {
    match value
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok())
    {
        Some(percent) => (total * percent + 99) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

impl DeleteOptions {
    /// Only an object with this UID.
    pub(crate) fn of_uid(uid: &str) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            ..Self::default()
        }
    }
}
