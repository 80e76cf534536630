//! Pods that must not be evicted, and so keep their Node.

use super::Planning;
use crate::eviction::{Blocker, blocker};
use crate::facts::{DisruptionBudgetFacts, PoolFacts};
use crate::ids::{ObjectKey, PodKey};
use crate::selector::selects;
use crate::world::{NodeView, PodView};

impl<'w> Planning<'w> {
    /// The first pod by name that must not be evicted, and why.
    pub(super) fn blocking_pod(
        &mut self,
        node: &NodeView<'w>,
        pool: &PoolFacts,
    ) -> Option<(PodKey, Blocker)> {
        let mut first: Option<(PodView<'w>, Blocker)> = None;
        for pod in node.pods().filter(PodView::is_movable) {
            if let Some(blocker) = self.why_blocking(&pod, pool) {
                let name = |pod: &PodView<'w>| (pod.namespace().clone(), pod.name().clone());
                if first
                    .as_ref()
                    .is_none_or(|(other, _)| name(&pod) < name(other))
                {
                    first = Some((pod, blocker));
                }
            }
        }
        let (pod, blocker) = first?;
        Some((pod.key(), blocker))
    }

    fn why_blocking(&mut self, pod: &PodView<'w>, pool: &PoolFacts) -> Option<Blocker> {
        blocker(&pod.ties(), Some(&pool.scale_down.blocked_by))
            .or_else(|| {
                let mut unsupported = pod.spec().unsupported.iter();
                let field = unsupported.next().filter(|_| !pod.is_expendable());
                field.cloned().map(Blocker::Unsupported)
            })
            .or_else(|| self.blocking_budget(pod))
    }

    fn blocking_budget(&self, pod: &PodView<'w>) -> Option<Blocker> {
        if self.tick.world.disruption_budgets().is_empty() {
            return None;
        }
        let mut budgets = self.budgets_of(pod);
        let (first, _) = budgets.next()?;
        if budgets.next().is_some() {
            return Some(Blocker::SeveralBudgets);
        }
        let allowed = self.scale_down.allowed.get(first).copied().unwrap_or(0);
        (allowed <= 0).then(|| Blocker::Budget(first.name.clone()))
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
