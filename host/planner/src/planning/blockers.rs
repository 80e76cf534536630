//! Pods that must not be evicted, and so keep their Node.

use super::Planning;
use crate::facts::{DisruptionBudgetFacts, PoolFacts};
use crate::ids::ObjectKey;
use crate::selector::selects;
use crate::world::{NodeView, PodView};

impl<'w> Planning<'w> {
    /// The first pod by name that must not be evicted, and why.
    pub(super) fn blocking_pod(&mut self, node: &NodeView<'w>, pool: &PoolFacts) -> Option<String> {
        let mut first: Option<(PodView<'w>, String)> = None;
        for pod in node.pods().filter(PodView::is_movable) {
            if let Some(reason) = self.why_blocking(&pod, pool) {
                let name = |pod: &PodView<'w>| (pod.namespace().clone(), pod.name().clone());
                if first
                    .as_ref()
                    .is_none_or(|(other, _)| name(&pod) < name(other))
                {
                    first = Some((pod, reason));
                }
            }
        }
        let (pod, reason) = first?;
        Some(format!("pod {} {reason}", pod.key()))
    }

    fn why_blocking(&mut self, pod: &PodView<'w>, pool: &PoolFacts) -> Option<String> {
        let by = &pool.scale_down.blocked_by;
        let spec = pod.spec();
        if pod.do_not_disrupt() {
            Some("must not be disrupted (annotation)".to_owned())
        } else if by.bare_pods && pod.owner().is_none() {
            Some("has no controller that would make it again (blockedBy.barePods)".to_owned())
        } else if by.unfinished_jobs && pod.is_of_job() {
            Some("belongs to an unfinished Job (blockedBy.unfinishedJobs)".to_owned())
        } else if by.local_volumes && spec.local_volumes {
            Some("uses a local volume (blockedBy.localVolumes)".to_owned())
        } else if by.empty_dir && spec.empty_dir {
            Some("uses an emptyDir (blockedBy.emptyDir)".to_owned())
        } else if by.kube_system && &**pod.namespace() == "kube-system" {
            Some("is a system pod (blockedBy.kubeSystem)".to_owned())
        } else if let Some(field) = self.unsupported(pod) {
            Some(format!("uses {field}, which is not supported yet"))
        } else {
            self.blocking_budget(pod)
        }
    }

    fn blocking_budget(&self, pod: &PodView<'w>) -> Option<String> {
        if self.tick.world.disruption_budgets().is_empty() {
            return None;
        }
        let mut budgets = self.budgets_of(pod);
        let (first, _) = budgets.next()?;
        if budgets.next().is_some() {
            return Some(
                "has several PodDisruptionBudgets, which the Eviction API refuses".to_owned(),
            );
        }
        let allowed = self.scale_down.allowed.get(first).copied().unwrap_or(0);
        (allowed <= 0).then(|| format!("is protected by PodDisruptionBudget {}", first.name))
    }

    pub(super) fn budgets_of(
        &self,
        pod: &PodView<'w>,
    ) -> impl Iterator<Item = (&'w ObjectKey, &'w DisruptionBudgetFacts)> + use<'w> {
        let (namespace, labels) = (pod.namespace().clone(), pod.labels());
        self.tick
            .world
            .disruption_budgets()
            .iter()
            .filter(move |(key, budget)| {
                key.namespace == namespace
                    && budget
                        .selector
                        .as_ref()
                        .is_some_and(|selector| selects(selector, labels))
            })
    }
}
