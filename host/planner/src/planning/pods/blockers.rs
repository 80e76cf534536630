//! Pods that must not be evicted, and so keep their Node.

use crate::facts::{DisruptionBudgetFacts, PodPhase, PoolFacts};
use crate::ids::{ObjectKey, PodKey};
use crate::kubernetes::eviction::{Blocker, blocker};
use crate::kubernetes::selector::selects;
use crate::planning::Planning;
use crate::world::{NodeView, PodView, World};

impl<'w> Planning<'w> {
    /// The first pod by name that must not be evicted, and why.
    pub(in crate::planning) fn blocking_pod(
        &mut self,
        node: &NodeView<'w>,
        pool: &PoolFacts,
    ) -> Option<(PodKey, Blocker)> {
        let movable = node.pods().filter(PodView::is_movable);
        let blocking = movable.filter_map(|pod| {
            let blocker = self.why_blocking(&pod, pool)?;
            Some((pod.key(), blocker))
        });
        blocking.min_by(|(one, _), (other, _)| one.cmp(other))
    }

    fn why_blocking(&mut self, pod: &PodView<'w>, pool: &PoolFacts) -> Option<Blocker> {
        let ties = pod.ties(self.tick.now);
        if ties.do_not_disrupt
            && let Some(until) = pod.protected_until()
        {
            self.tick.reached(until);
        }
        let why = blocker(&ties, Some(&pool.scale_down.blocked_by));
        // Where it would go does not matter, and nobody evicts it.
        if pod.is_on_completion() {
            return why;
        }
        why.or_else(|| {
            let spec = pod.spec();
            let field = spec.unsupported.first().cloned();
            let unsupported = field.map(Blocker::Unsupported);
            let is_unsettled = self.turns.unsettled.contains(&pod.shape_id());
            let why = unsupported.or_else(|| spec.too_many.map(Blocker::TooMany));
            let why = why.or_else(|| is_unsettled.then_some(Blocker::LaterTick));
            why.filter(|_| !pod.is_expendable())
        })
        .or_else(|| self.blocking_budget(pod))
    }

    fn blocking_budget(&self, pod: &PodView<'w>) -> Option<Blocker> {
        let mut budgets = budgets_of(self.tick.world, pod);
        let (first, budget) = budgets.next()?;
        if pod.phase() == PodPhase::Pending {
            return None;
        }
        if budgets.next().is_some() {
            return Some(Blocker::SeveralBudgets);
        }
        let allowed = self.scale_down.allowed.get(first).copied().unwrap_or(0);
        (allowed <= 0 && is_counted(budget, pod)).then(|| Blocker::Budget(first.name.clone()))
    }

    /// Counts the evictions of a removal that begins.
    pub(in crate::planning) fn use_up_budgets(&mut self, node: &NodeView<'w>) {
        let evicted = |pod: &PodView<'w>| pod.is_movable() && !pod.is_on_completion();
        for pod in node.pods().filter(evicted) {
            for (key, budget) in budgets_of(self.tick.world, &pod) {
                if is_counted(budget, &pod)
                    && let Some(allowed) = self.scale_down.allowed.get_mut(key)
                {
                    *allowed -= 1;
                }
            }
        }
    }
}

pub(in crate::planning) fn budgets_of<'w>(
    world: &'w World,
    pod: &PodView<'w>,
) -> impl Iterator<Item = (&'w ObjectKey, &'w DisruptionBudgetFacts)> + use<'w> {
    let (namespace, labels) = (pod.namespace().clone(), pod.labels());
    let budgets = world.disruption_budgets().iter();
    budgets.filter(move |(key, budget)| {
        let selector = budget.selector.as_ref();
        key.namespace == namespace && selector.is_some_and(|selector| selects(selector, labels))
    })
}

/// Whether the eviction of this pod uses up one of the disruptions that its budget allows. The Eviction API lets a pod go
/// that has not begun to run; and one that is not Ready, while enough others are healthy or the budget frees such pods.
pub(in crate::planning) fn is_counted(budget: &DisruptionBudgetFacts, pod: &PodView<'_>) -> bool {
    let is_free = !pod.is_ready() && (budget.is_healthy || budget.frees_unhealthy);
    pod.phase() != PodPhase::Pending && !is_free
}
