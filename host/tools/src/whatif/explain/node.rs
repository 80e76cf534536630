//! Whether a Node stays.

use kproxide_planner::ids::NodeName;
use kproxide_planner::keys;
use kproxide_planner::plan::report::NodeOutcome;
use kproxide_planner::reasons::kept::Kept;
use kproxide_planner::reasons::on_hold::Hold;
use kproxide_planner::world::NodeView;

use super::pool::scale_down;
use super::{About, Explanation, asked};

impl About<'_> {
    pub(super) fn node(&self, name: &NodeName) -> Result<Explanation, String> {
        let node = self.world.node(name);
        let node = node.ok_or_else(|| format!("there is no Node {name}"))?;
        let reports = self.plan.report.nodes.iter();
        let Some(report) = reports.clone().find(|report| report.node == *name) else {
            let mut explanation = Explanation::new(format!(
                "Node {name} is no machine of kproxide, which leaves it as it is."
            ));
            room(&node, &mut explanation);
            return Ok(explanation);
        };
        let verb = match &report.outcome {
            NodeOutcome::Removing(_) => "goes",
            NodeOutcome::Kept(_) => "stays",
        };
        let why = match &report.outcome {
            NodeOutcome::Removing(reason) => reason.to_string(),
            NodeOutcome::Kept(reason) => reason.to_string(),
        };
        let mut explanation = Explanation::new(format!("Node {name} {verb}: {why}."));
        room(&node, &mut explanation);
        explanation.rule(
            "claim",
            format!("{} of NodePool {}", report.claim, report.pool),
        );
        if let Some(claim) = self.world.claims().get(&report.claim) {
            self.ages(&report.claim, claim, &mut explanation);
            self.decided(&report.claim, &mut explanation);
        }
        self.considered(name.as_str(), "scale-down", &mut explanation);
        if let Some(pool) = self.world.pools().get(&report.pool) {
            scale_down(pool, &mut explanation);
        }
        match &report.outcome {
            NodeOutcome::Kept(Kept::Pod(pod, _)) => explanation.next(format!(
                "evict or move pod {pod} yourself, or change scaleDown.blockedBy of NodePool {}",
                report.pool
            )),
            NodeOutcome::Kept(Kept::DoNotDisrupt) => explanation.next(
                "take the annotation kproxide.dev/do-not-disrupt off the Node, the claim and its pods",
            ),
            NodeOutcome::Kept(Kept::ScaleDownDisabled) => explanation.next(format!(
                "take the annotation {} off the Node",
                keys::SCALE_DOWN_DISABLED
            )),
            NodeOutcome::Kept(Kept::ScaleDownOff) => explanation
                .next(format!("set scaleDown.enabled of NodePool {} to true", report.pool)),
            NodeOutcome::Kept(Kept::MinNodes(_)) => {
                explanation.next(format!("lower limits.minNodes of NodePool {}", report.pool));
            }
            NodeOutcome::Kept(Kept::Schedule(_)) => {
                explanation.next(format!("wait until the schedule ends, or change schedules of NodePool {}", report.pool));
            }
            NodeOutcome::Kept(Kept::Held(Hold::Window(_))) => explanation.next(format!(
                "wait for that moment, or change disruption.windows of NodePool {}. To remove it now, delete its NodeClaim",
                report.pool
            )),
            NodeOutcome::Kept(_) => explanation
                .next("nothing, if the Node may stay. To remove it now, delete its NodeClaim"),
            NodeOutcome::Removing(_) => explanation.next(format!(
                "nothing. To keep it: kubectl annotate node {name} kproxide.dev/do-not-disrupt=true"
            )),
        }
        Ok(explanation)
    }
}

fn room(node: &NodeView<'_>, explanation: &mut Explanation) {
    explanation.rule("asked of it", asked(node.requested()));
    explanation.rule("offers", asked(node.facts.allocatable.clone()));
    explanation.rule("pods that would move", node.movable_pods().to_string());
    explanation.rule("Ready", node.facts.ready.to_string());
}
