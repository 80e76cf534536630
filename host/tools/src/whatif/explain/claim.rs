//! How far a NodeClaim is.

use kproxide_planner::claim::Condition;
use kproxide_planner::facts::ClaimFacts;
use kproxide_planner::ids::ClaimName;
use kproxide_planner::plan::{Standing, Unneeded};
use kproxide_planner::planning::moved;
use kproxide_planner::world::PodView;

use super::super::answer::launches;
use super::{About, Explanation, seconds};

impl About<'_> {
    pub(super) fn claim(&self, name: &ClaimName) -> Result<Explanation, String> {
        if let Some(launch) = self
            .plan
            .launches
            .iter()
            .find(|launch| launch.claim == *name)
        {
            let mut launches = launches(self.plan).into_iter();
            let said = launches.find(|launch| *launch.claim == *name.as_str());
            let reason = said.map_or(launch.reason.clone(), |launch| launch.reason);
            let mut explanation =
                Explanation::new(format!("NodeClaim {name} would be launched: {reason}."));
            self.launch(name, &mut explanation);
            self.decided(name, &mut explanation);
            self.rejected(Some(&launch.spec.pool), &mut explanation);
            explanation.next(format!("kproxide explain pool {}", launch.spec.pool));
            return Ok(explanation);
        }
        let claim = self.world.claims().get(name);
        let claim = claim.ok_or_else(|| self.no_claim(name))?;
        let advances = self.plan.advances.iter();
        let verdict = advances.clone().find(|advance| advance.claim == *name);
        let verdict = verdict.map_or("kproxide does nothing with it".to_owned(), |advance| {
            advance.verdict.to_string()
        });
        let mut explanation = Explanation::new(format!(
            "NodeClaim {name} is {:?}. Verdict: {verdict}.",
            claim.status.phase
        ));
        explanation.rule(
            "machine",
            format!(
                "VM {} on {}/{}",
                claim.spec.vmid,
                claim.spec.cluster,
                claim.hypervisor()
            ),
        );
        explanation.rule("pool", claim.spec.pool.to_string());
        explanation.rule("type", claim.spec.instance_type.to_string());
        self.ages(name, claim, &mut explanation);
        self.decided(name, &mut explanation);
        for condition in &claim.status.conditions {
            let text = [&*condition.reason, &*condition.message];
            let text: Vec<&str> = text.into_iter().filter(|text| !text.is_empty()).collect();
            explanation.rule(
                format!("{:?}", condition.kind),
                format!(
                    "{} since {:.0} {}",
                    condition.word(),
                    condition.since,
                    text.join(": ")
                )
                .trim_end()
                .to_owned(),
            );
        }
        match self.world.node_of(claim) {
            Some(node) => {
                explanation.next(format!(
                    "kproxide explain node {}: whether it stays",
                    node.name()
                ));
            }
            None => explanation.next("wait: its Node is not there yet"),
        }
        Ok(explanation)
    }

    /// People call a PersistentVolumeClaim a claim too.
    fn no_claim(&self, name: &ClaimName) -> String {
        let none = format!("there is no NodeClaim {name}");
        let uses = |pod: &PodView<'_>| {
            let mut claims = self.world.volume_claims_of(&pod.key()).iter();
            claims.any(|claim| *claim.name == *name.as_str())
        };
        match self.world.pods().find(uses) {
            Some(pod) => format!(
                "{none}, and explain means NodeClaims by claim. Pod {} uses PersistentVolumeClaim {name}: ask kproxide explain pod {}",
                pod.key(),
                pod.key()
            ),
            None => none,
        }
    }

    pub(super) fn ages(&self, name: &ClaimName, claim: &ClaimFacts, explanation: &mut Explanation) {
        let ago = |since: jiff::Timestamp| seconds(self.now.duration_since(since));
        explanation.rule("age", ago(claim.created));
        let since = claim.status.since(Condition::Unneeded);
        let could_go = |one: &Unneeded| one.claim == *name && one.standing == Standing::CouldGo;
        // The condition is written by `kproxide run` alone.
        let without = match self.plan.unneeded.iter().any(could_go) {
            true => "0 s: unneeded now, as far as the input says",
            false => "not unneeded",
        };
        explanation.rule("unneeded for", since.map_or(without.to_owned(), ago));
        let node = self.world.node_of(claim);
        if let Some(moved) = node.and_then(|node| moved(self.world, claim, &node)) {
            explanation.rule("moved", moved.to_string());
        }
    }
}
