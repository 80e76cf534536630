//! What a hypervisor can take, and who uses it.

use kproxide_planner::facts::HypervisorFacts;
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::kubernetes::resources::amount_text;
use kproxide_planner::plan::report::RejectedHypervisor;
use kproxide_planner::planning::offers;

use super::{About, Explanation};
use kproxide_controller::judge::{Holding, Server, emptying, listed, server};

impl About<'_> {
    pub(super) fn hypervisor(&self, name: &str) -> Result<Explanation, String> {
        let all = self
            .world
            .inventories()
            .iter()
            .flat_map(|(cluster, inventory)| {
                let all = inventory.hypervisors.iter();
                all.map(move |(name, facts)| {
                    let id = HypervisorId {
                        cluster: cluster.clone(),
                        name: name.clone(),
                    };
                    (id, facts)
                })
            });
        let is_it = |id: &HypervisorId| *id.name == *name || id.to_string() == name;
        let (id, facts) = all
            .clone()
            .find(|(id, _)| is_it(id))
            .ok_or_else(|| format!("there is no hypervisor {name}"))?;
        let launches = self.plan.launches.iter();
        let launches = launches
            .filter(|launch| launch.spec.hypervisor_id() == id)
            .count();
        let rejected = self.plan.report.rejected.iter();
        let rejected: Vec<_> = rejected
            .filter(|rejected| rejected.hypervisor == id)
            .collect();
        let offers = offers(self.world, self.now);
        let Server { why_not, machines } =
            server(self.world, &id.cluster, &id.name, facts, &offers);
        let on_it = match machines[..] {
            [] => "no machine is on it".to_owned(),
            [one] => format!("1 machine is on it: {one}"),
            _ => format!(
                "{} machines are on it: {}",
                machines.len(),
                listed(&machines)
            ),
        };
        if let Some(why) = &why_not {
            let mut explanation =
                Explanation::new(format!("Hypervisor {id} gets no machine: {why}; {on_it}."));
            self.of_hypervisor(&id, facts, &rejected, &mut explanation);
            match machines[..] {
                [] => explanation.next("nothing, if it may stay so"),
                [..] => explanation.next(format!("kproxide explain claim {}", machines[0])),
            }
            return Ok(explanation);
        }
        let mut explanation = Explanation::new(match (launches, rejected.first()) {
            (0, Some(first)) => format!(
                "Hypervisor {id} gets no machine of NodePool {}: {}.",
                first.pool, first.reason
            ),
            (0, None) if self.plan.launches.is_empty() => {
                format!("No machine is to be made, so hypervisor {id} gets none.")
            }
            (0, None) => format!("Hypervisor {id} could take machines; the policy chose others."),
            (1, _) => format!("Hypervisor {id} gets 1 machine."),
            (count, _) => format!("Hypervisor {id} gets {count} machines."),
        });
        explanation.rule("machines", on_it);
        self.of_hypervisor(&id, facts, &rejected, &mut explanation);
        explanation.next("the policy of each NodePool (spec.policies.hostSelection) chooses among the hypervisors that can take the machine");
        Ok(explanation)
    }

    fn of_hypervisor(
        &self,
        id: &HypervisorId,
        facts: &HypervisorFacts,
        rejected: &[&RejectedHypervisor],
        explanation: &mut Explanation,
    ) {
        let memory = |bytes: u64| amount_text("memory", i64::try_from(bytes).unwrap_or(i64::MAX));
        explanation.rule("online", facts.online.to_string());
        explanation.rule("maintenance", facts.maintenance.to_string());
        let machines = emptying(self.world, &id.cluster, &id.name, self.now);
        if let Some(machines) = &machines {
            explanation.rule("drained", machines.is_empty().to_string());
        }
        for Holding { claim, reason } in machines.into_iter().flatten() {
            explanation.rule(
                format!("NodeClaim {claim}"),
                reason.unwrap_or("its turn comes"),
            );
        }
        explanation.rule(
            "cores",
            format!("{} promised of {}", facts.committed_threads, facts.threads),
        );
        explanation.rule(
            "memory",
            format!(
                "{} promised of {}, {} in use",
                memory(facts.committed_memory_bytes),
                memory(facts.memory_bytes),
                memory(facts.memory_used_bytes)
            ),
        );
        for (storage, facts) in &facts.storages {
            let (free, all) = (memory(facts.available_bytes), memory(facts.total_bytes));
            explanation.rule(
                format!("storage {storage}"),
                format!("{free} free of {all}"),
            );
        }
        if let Some(cluster) = self.world.clusters().get(&id.cluster) {
            explanation.rule(
                "overcommit",
                format!(
                    "cpu {}, memory {}",
                    cluster.overcommit.cpu, cluster.overcommit.memory
                ),
            );
        }
        for rejected in rejected {
            explanation.rule(
                format!("NodePool {}", rejected.pool),
                rejected.reason.to_string(),
            );
        }
        self.considered(&id.to_string(), "host-selection", explanation);
    }
}
