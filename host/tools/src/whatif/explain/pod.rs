//! What becomes of a pod, and what each Node says to it.

use kproxide_planner::facts::{Phase, PodPhase};
use kproxide_planner::ids::{PodKey, PoolName};
use kproxide_planner::plan::report::{PendingOutcome, PendingShape, Why};
use kproxide_planner::planning::Filters;
use kproxide_planner::world::{NodeView, PodView};

use super::next::next_for;
use super::{About, Explanation, asked};

impl About<'_> {
    pub(super) fn pod(&self, key: &PodKey) -> Result<Explanation, String> {
        let pod = self.named(key)?;
        let key = &pod.key();
        if matches!(pod.phase(), PodPhase::Succeeded | PodPhase::Failed) {
            let mut explanation = Explanation::new(format!(
                "Pod {key} has finished ({:?}). It needs no place any more.",
                pod.phase()
            ));
            explanation.next("nothing");
            return Ok(explanation);
        }
        if let Some(node) = pod.node() {
            let mut explanation =
                Explanation::new(format!("Pod {key} has its place on Node {node}."));
            explanation.rule("asks", asked(pod.spec().requests.clone()));
            explanation.next(format!(
                "kproxide explain node {node}: whether that Node stays"
            ));
            return Ok(explanation);
        }
        let shapes = self.plan.report.pending.iter();
        let shape = shapes.clone().find(|shape| shape.pods.contains(key));
        let Some(shape) = shape else {
            if self.gated.contains(key) {
                let mut explanation = Explanation::new(format!(
                    "Pod {key} is gated: its spec.schedulingGates keep the scheduler away, and kproxide makes no machine for it."
                ));
                explanation.next("wait for the controller that set the gates, or take them off");
                return Ok(explanation);
            }
            let mut explanation = Explanation::new(format!("kproxide does nothing for pod {key}."));
            explanation.rule("phase", format!("{:?}", pod.phase()));
            explanation.rule(
                "scheduler",
                pod.spec()
                    .scheduler_name
                    .as_deref()
                    .unwrap_or("default-scheduler"),
            );
            let since = pod.unschedulable_since();
            explanation.rule(
                "unschedulable since",
                since.map_or("the scheduler has not said so".to_owned(), |since| {
                    format!("{since:.0}")
                }),
            );
            explanation.next("kproxide helps pods that the default scheduler calls unschedulable: kubectl describe pod shows what it says");
            return Ok(explanation);
        };
        let mut explanation = self.outcome(key, shape);
        explanation.rule("asks", asked(pod.spec().requests.clone()));
        explanation.rule("priority", pod.spec().priority.to_string());
        explanation.rule("pods alike", shape.count.to_string());
        self.verdicts(&pod, shape, &mut explanation);
        Ok(explanation)
    }

    fn named(&self, key: &PodKey) -> Result<PodView<'_>, String> {
        if !key.namespace.is_empty() {
            let pod = self.world.pod(key);
            return pod.ok_or_else(|| format!("there is no pod {key}"));
        }
        let pods = self.world.pods().filter(|pod| *pod.name() == key.name);
        let pods: Vec<PodView<'_>> = pods.collect();
        match &pods[..] {
            [] => Err(format!("there is no pod {} in any namespace", key.name)),
            [pod] => Ok(*pod),
            several => {
                let keys = several.iter().map(|pod| pod.key().to_string());
                let keys = keys.collect::<Vec<_>>().join(", ");
                Err(format!("{keys}: name one of them with its namespace"))
            }
        }
    }

    fn outcome(&self, key: &PodKey, shape: &PendingShape) -> Explanation {
        match &shape.outcome {
            PendingOutcome::FitsNode(node) => {
                let mut explanation = Explanation::new(format!(
                    "Pod {key} fits on a Node that is there, such as {node}."
                ));
                explanation.next("nothing: the scheduler will find the Node");
                explanation
            }
            PendingOutcome::FitsClaim(claim) => {
                let mut explanation = Explanation::new(format!(
                    "Pod {key} will fit on {claim}, which is on its way."
                ));
                explanation.next(format!("kproxide explain claim {claim}: how far it is"));
                explanation
            }
            PendingOutcome::Launching(claims) => {
                let count = match claims.len() {
                    1 => "1 machine".to_owned(),
                    count => format!("{count} machines"),
                };
                let mut explanation = Explanation::new(format!(
                    "kproxide launches {count} for pod {key} and the pods like it."
                ));
                for claim in claims {
                    self.launch(claim, &mut explanation);
                }
                if let [claim] = &claims[..] {
                    self.decided(claim, &mut explanation);
                }
                self.rejected(None, &mut explanation);
                explanation.next("nothing: the pod gets its place when the Node is Ready");
                explanation
            }
            PendingOutcome::Unhelped(whys) => {
                let mut explanation =
                    Explanation::new(format!("No machine helps pod {key}.{}", headline(whys)));
                for (pool, why) in whys {
                    explanation.rule(format!("NodePool {pool}"), why.to_string());
                    next_for(pool, why, &mut explanation);
                }
                explanation
            }
            PendingOutcome::Refused(_)
            | PendingOutcome::LaterTick
            | PendingOutcome::Expendable { .. }
            | PendingOutcome::OtherScheduler { .. } => {
                Explanation::new(format!("Pod {key}: {}.", shape.outcome))
            }
            PendingOutcome::NotSupported(field) => {
                let mut explanation = Explanation::new(format!(
                    "No machine helps pod {key}: kproxide does not support {field} yet."
                ));
                explanation.next(format!(
                    "make the pod without {field}, or make a Node for it by hand"
                ));
                explanation
            }
            PendingOutcome::TooMany(what) => {
                let mut explanation =
                    Explanation::new(format!("No machine helps pod {key}: it {}.", shape.outcome));
                explanation.next(format!(
                    "give the pod at most {} of them, or make a Node for it by hand",
                    what.most()
                ));
                explanation
            }
            PendingOutcome::NoPool => {
                let mut explanation =
                    Explanation::new(format!("No machine helps pod {key}: there is no NodePool."));
                explanation.next("create a NodePool");
                explanation
            }
        }
    }

    /// Each Node as it stands.
    fn verdicts(&self, pod: &PodView<'_>, shape: &PendingShape, explanation: &mut Explanation) {
        let filters = Filters::of(self.world);
        for node in self.world.nodes() {
            let verdict = match filters.misfit(pod, node.name()) {
                None => self.why_not_there(pod, shape, &node),
                Some(misfit) => format!("{}: {misfit}", misfit.plugin()),
            };
            explanation.rule(format!("Node {}", node.name()), verdict);
        }
    }

    /// No filter keeps the pod away.
    fn why_not_there(
        &self,
        pod: &PodView<'_>,
        shape: &PendingShape,
        node: &NodeView<'_>,
    ) -> String {
        let mut claims = self.world.claims().values();
        let claim = claims.find(|claim| claim.status.node_uid.as_ref() == Some(&node.facts.uid));
        let phase = claim.map_or(Phase::Initialized, |claim| claim.status.phase);
        let alike =
            self.plan.awaited.shapes.iter().filter(|it| {
                *it.shape.spec == *pod.spec() && it.shape.namespace == *pod.namespace()
            });
        let mut refused = alike.flat_map(|it| &it.refused);
        if let PendingOutcome::NotSupported(field) = &shape.outcome {
            return format!("fits as far as kproxide sees: it does not evaluate {field}");
        }
        if let PendingOutcome::TooMany(what) = &shape.outcome {
            return format!("fits as far as kproxide sees: it does not evaluate {what}");
        }
        if let PendingOutcome::OtherScheduler { scheduler, .. } = &shape.outcome {
            return format!("fits, but scheduler {scheduler} places the pod");
        }
        if matches!(shape.outcome, PendingOutcome::FitsNode(_)) {
            return "fits".to_owned();
        }
        if refused.any(|it| it.node == *node.name()) {
            "fits as far as kproxide sees, but the scheduler has not put it there: kubectl describe pod shows why"
        } else if phase > Phase::Initialized {
            "fits, but kproxide removes it"
        } else if phase < Phase::Initialized {
            "fits, but it is not in service yet"
        } else if !node.facts.ready {
            "fits, but it is not Ready"
        } else {
            "fits, but pods before this one take its room"
        }
        .to_owned()
    }
}

/// The reason of all pools, or of the one that comes nearest to helping.
fn headline(whys: &[(PoolName, Why)]) -> String {
    let distance = |why: &Why| match why {
        Why::Limit(_)
        | Why::Window(_)
        | Why::Stabilizing { .. }
        | Why::MadeInVain { .. }
        | Why::UnexpectedTaint { .. }
        | Why::InVain(_)
        | Why::NoHypervisor(_)
        | Why::Policy { .. }
        | Why::PoliciesNextTick
        | Why::NextTick => 0,
        Why::TooBig { .. } | Why::LearnedTooBig(_) => 1,
        Why::Misfit(_) => 2,
        Why::Unusable(_) => 3,
    };
    let Some((pool, why)) = whys.iter().min_by_key(|(_, why)| distance(why)) else {
        return String::new();
    };
    match whys {
        [_, _, ..] if whys.iter().all(|(_, other)| other == why) => {
            format!(" All NodePools: {why}.")
        }
        _ => format!(" NodePool {pool}: {why}."),
    }
}
