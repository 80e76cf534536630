//! What a NodePool has, launches and removes.

use jiff::Timestamp;
use kproxide_planner::facts::{PoolFacts, Recurring, Unreadable};
use kproxide_planner::ids::PoolName;
use kproxide_planner::plan::report::{NodeOutcome, PendingOutcome, Unusable};

use super::super::answer::missing_policies;
use super::next::{next_for, unpause};
use super::{About, Explanation, seconds};

impl About<'_> {
    pub(super) fn pool(&self, name: &PoolName) -> Result<Explanation, String> {
        let pool = self.world.pools().get(name);
        let pool = pool.ok_or_else(|| format!("there is no NodePool {name}"))?;
        let launches = self.plan.launches.iter();
        let launches = launches.filter(|launch| launch.spec.pool == *name).count();
        let nodes = || {
            self.plan
                .report
                .nodes
                .iter()
                .filter(|node| node.pool == *name)
        };
        let removals = nodes().filter(|node| matches!(node.outcome, NodeOutcome::Removing(_)));
        let machines = self
            .world
            .claims()
            .values()
            .filter(|claim| claim.spec.pool == *name);
        let machines = machines.count();
        let mut explanation = Explanation::new(format!(
            "NodePool {name} has {machines} of at most {} machines; kproxide launches {launches} and removes {}.",
            pool.limits.max_nodes,
            removals.count(),
        ));
        let unusable = self.plan.report.unusable.iter();
        for (_, why) in unusable.filter(|(pool, _)| pool == name) {
            explanation.rule("gets no machines", why.to_string());
            explanation.next(if let Unusable::Paused(_) = why {
                unpause(name)
            } else if let Unusable::BeingDeleted(_) = why {
                format!("wait: `kubectl describe nodepool {name}` says what keeps its machines")
            } else {
                format!("mend NodePool {name} or what it names")
            });
        }
        for problem in missing_policies(self.world, pool) {
            explanation.rule("problem", problem);
            explanation.next(format!("mend spec.policies of NodePool {name}"));
        }
        explanation.rule("nodeClass", pool.node_class.to_string());
        explanation.rule("weight", pool.weight.to_string());
        explanation.rule("minNodes", pool.limits.min_nodes.to_string());
        explanation.rule("paused", pool.paused.to_string());
        explanation.rule(
            "policy for the hypervisor",
            pool.policies.host_selection.policy.name.to_string(),
        );
        explanation.rule(
            "scaleUp.stabilizationWindow",
            seconds(pool.scale_up.stabilization_window.0),
        );
        for (field, when) in pool.times() {
            explanation.rule(field, opens(when, self.now));
        }
        scale_down(pool, &mut explanation);
        for shape in &self.plan.report.pending {
            let PendingOutcome::Unhelped(whys) = &shape.outcome else {
                continue;
            };
            for (_, why) in whys.iter().filter(|(of, _)| of == name) {
                explanation.rule(
                    format!("{} pods such as {}", shape.count, shape.example),
                    why.to_string(),
                );
                next_for(name, why, &mut explanation);
            }
        }
        self.rejected(Some(name), &mut explanation);
        self.decided_for(name, &mut explanation);
        for node in nodes() {
            explanation.rule(format!("Node {}", node.node), node.outcome.to_string());
        }
        if explanation.next.is_empty() {
            explanation.next("nothing: no pod lacks a machine of this pool");
        }
        Ok(explanation)
    }
}

/// Whether it is open, and when that changes.
fn opens(when: &Recurring, now: Timestamp) -> String {
    match (when.problem(), when.end(now), when.next_start(now)) {
        (Some(Unreadable { field, problem }), ..) => format!("never opens: {field}: {problem}"),
        (None, Some(end), _) => format!("{when}, open until {end:.0}"),
        (None, None, Some(start)) => format!("{when}, opens at {start:.0}"),
        (None, None, None) => when.to_string(),
    }
}

pub(super) fn scale_down(pool: &PoolFacts, explanation: &mut Explanation) {
    let rules = &pool.scale_down;
    explanation.rule("scaleDown.enabled", rules.enabled.to_string());
    explanation.rule("scaleDown.minNodeAge", seconds(rules.min_node_age.0));
    explanation.rule("scaleDown.unneededTime", seconds(rules.unneeded_time.0));
    explanation.rule("scaleDown.stabilization", seconds(rules.stabilization.0));
    explanation.rule("scaleDown.budget", rules.budget.to_string());
    for (index, budget) in pool.disruption.budgets.iter().enumerate() {
        let reasons: Vec<String> = budget.reasons.iter().map(ToString::to_string).collect();
        let of = match reasons.is_empty() {
            true => "every reason".to_owned(),
            false => reasons.join(", "),
        };
        let what = format!("{} at once, for {of}", budget.nodes);
        explanation.rule(format!("disruption.budgets[{index}].nodes"), what);
    }
    explanation.rule("scaleDown.loadHeadroom", rules.load_headroom.to_string());
}
