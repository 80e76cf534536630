//! The status of PodDisruptionBudgets.

use serde_json::json;

use super::{Controllers, Work};
use crate::kube::{
    eviction::selects,
    store::{Change, Key},
};

impl Controllers {
    /// Marks the budgets that cover the pod, before or after the change.
    pub(super) fn note_budgets(&mut self, change: &Change) {
        let pod = &change.object;
        // Most updates of pods concern no budget.
        if let Some(previous) = &change.previous
            && (previous.ready, previous.terminating, &previous.phase)
                == (pod.ready, pod.terminating, &pod.phase)
            && previous.labels == pod.labels
            && change.kind == crate::kube::ChangeKind::Modified
        {
            return;
        }
        for stored in self.kube.objects("poddisruptionbudgets.policy") {
            if stored.key.namespace != pod.key.namespace {
                continue;
            }
            let budget = stored.value();
            let before = change
                .previous
                .as_ref()
                .is_some_and(|previous| selects(&budget, previous));
            if before || selects(&budget, pod) {
                self.work.insert(Work::Budget(stored.key.clone()));
            }
        }
    }

    /// Marks all budgets of a namespace: the number of pods that somebody wants may have changed.
    pub(super) fn note_expectation(&mut self, namespace: &str) {
        let budgets = self.kube.objects("poddisruptionbudgets.policy");
        let here = budgets
            .iter()
            .filter(|budget| budget.key.namespace == namespace);
        self.work
            .extend(here.map(|budget| Work::Budget(budget.key.clone())));
    }

    pub(super) fn reconcile_budget(&mut self, key: &Key) {
        let Some(budget) = self
            .kube
            .look("poddisruptionbudgets.policy", &key.namespace, &key.name)
        else {
            return;
        };
        let numbers = self.kube.lock().budget(&budget);
        let allowed = numbers.disruptions_allowed();
        let (status, reason) = match (numbers.resolvable, allowed > 0) {
            (false, _) => ("False", "SyncFailed"),
            (true, true) => ("True", "SufficientPods"),
            (true, false) => ("False", "InsufficientPods"),
        };
        let status = json!({
            "observedGeneration": budget["metadata"]["generation"],
            "currentHealthy": numbers.current_healthy,
            "desiredHealthy": numbers.desired_healthy,
            "expectedPods": numbers.expected_pods,
            "disruptionsAllowed": allowed,
            "conditions": [{"type": "DisruptionAllowed", "status": status, "reason": reason}],
        });
        self.write_status("poddisruptionbudgets.policy", budget, status);
    }
}
