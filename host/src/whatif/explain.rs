//! One thing and one plan: what becomes of it, by which rules with which values, and what a person can do next.

use std::fmt;

use kproxide_planner::claim::Condition;
use kproxide_planner::facts::{ClaimFacts, PoolFacts};
use kproxide_planner::ids::{ClaimName, HypervisorId, NodeName, ObjectKey, PodKey, PoolName};
use kproxide_planner::plan::Plan;
use kproxide_planner::planning::Filters;
use kproxide_planner::reasons::Kept;
use kproxide_planner::report::{Limit, Misfit, NodeOutcome, PendingOutcome, PendingShape, Why};
use kproxide_planner::resources::{Resources, amount_text};
use kproxide_planner::world::{NodeView, PodView, World};
use serde::Serialize;

use super::Scene;

/// Rows of one screen.
const MOST_RULES: usize = 24;

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Pod(PodKey),
    Node(NodeName),
    /// By name alone, or as `CLUSTER/NAME`.
    Hypervisor(String),
    Claim(ClaimName),
    Pool(PoolName),
}

/// The answer in one sentence, the rules behind it, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub answer: String,
    pub rules: Vec<Rule>,
    pub next: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub rule: String,
    pub value: String,
}

impl Subject {
    /// Reads `pod web-1`, `pod/web-1` or `pod shop/web-1`.
    ///
    /// # Errors
    /// Says how it is written.
    pub fn read(words: &[String], namespace: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{:?} names nothing: write pod, node, hypervisor, claim or pool and a name, such as pod web-1 or node/worker-3",
                words.join(" ")
            )
        };
        let (kind, name) = match words {
            [one] => one.split_once('/').ok_or_else(wrong)?,
            [kind, name] => (kind.as_str(), name.as_str()),
            _ => return Err(wrong()),
        };
        Ok(match kind.to_ascii_lowercase().as_str() {
            "pod" | "pods" | "po" => {
                let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
                Self::Pod(ObjectKey::new(namespace, name))
            }
            "node" | "nodes" | "no" => Self::Node(name.into()),
            "hypervisor" | "hypervisors" => Self::Hypervisor(name.to_owned()),
            "claim" | "claims" | "nodeclaim" | "nodeclaims" => Self::Claim(name.into()),
            "pool" | "pools" | "nodepool" | "nodepools" => Self::Pool(name.into()),
            _ => return Err(wrong()),
        })
    }
}

/// # Errors
/// There is no such thing.
pub fn explain(scene: &Scene, plan: &Plan, subject: &Subject) -> Result<Explanation, String> {
    let about = About {
        world: &scene.world,
        plan,
        now: scene.now,
    };
    let mut explanation = match subject {
        Subject::Pod(key) => about.pod(key),
        Subject::Node(name) => about.node(name),
        Subject::Hypervisor(name) => about.hypervisor(name),
        Subject::Claim(name) => about.claim(name),
        Subject::Pool(name) => about.pool(name),
    }?;
    let more = explanation.rules.len().saturating_sub(MOST_RULES);
    if more > 0 {
        explanation.rules.truncate(MOST_RULES);
        explanation.rule(
            "…",
            format!("{more} more (kproxide plan --verdicts lists all)"),
        );
    }
    Ok(explanation)
}

impl Explanation {
    fn new(answer: impl Into<String>) -> Self {
        Self {
            answer: answer.into(),
            rules: Vec::new(),
            next: Vec::new(),
        }
    }

    fn rule(&mut self, rule: impl Into<String>, value: impl Into<String>) {
        self.rules.push(Rule {
            rule: rule.into(),
            value: value.into(),
        });
    }

    fn next(&mut self, step: impl Into<String>) {
        let step = step.into();
        if !self.next.contains(&step) {
            self.next.push(step);
        }
    }
}

struct About<'a> {
    world: &'a World,
    plan: &'a Plan,
    now: jiff::Timestamp,
}

impl About<'_> {
    fn pod(&self, key: &PodKey) -> Result<Explanation, String> {
        let pod = self.world.pod(key);
        let pod = pod.ok_or_else(|| format!("there is no pod {key}"))?;
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
                    since.to_string()
                }),
            );
            explanation.next("kproxide helps pods that the default scheduler calls unschedulable: kubectl describe pod shows what it says");
            return Ok(explanation);
        };
        let mut explanation = self.outcome(key, shape);
        explanation.rule("asks", asked(pod.spec().requests.clone()));
        explanation.rule("priority", pod.spec().priority.to_string());
        explanation.rule("pods alike", shape.count.to_string());
        let has_node = matches!(shape.outcome, PendingOutcome::FitsNode(_));
        self.verdicts(&pod, has_node, &mut explanation);
        Ok(explanation)
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
                self.rejected(None, &mut explanation);
                explanation.next("nothing: the pod gets its place when the Node is Ready");
                explanation
            }
            PendingOutcome::Unhelped(whys) => {
                let first = whys.first().map_or(String::new(), |(pool, why)| {
                    format!(" NodePool {pool}: {why}.")
                });
                let mut explanation =
                    Explanation::new(format!("No machine helps pod {key}.{first}"));
                for (pool, why) in whys {
                    explanation.rule(format!("NodePool {pool}"), why.to_string());
                    next_for(pool, why, &mut explanation);
                }
                explanation
            }
            PendingOutcome::Refused(_)
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
            PendingOutcome::NoPool => {
                let mut explanation =
                    Explanation::new(format!("No machine helps pod {key}: there is no NodePool."));
                explanation.next("create a NodePool");
                explanation
            }
        }
    }

    fn launch(&self, claim: &ClaimName, explanation: &mut Explanation) {
        let launch = self
            .plan
            .launches
            .iter()
            .find(|launch| launch.claim == *claim);
        let placements = &self.plan.report.placements;
        let placement = placements
            .iter()
            .find(|placement| placement.claim == *claim);
        if let (Some(launch), Some(placement)) = (launch, placement) {
            explanation.rule(
                format!("machine {claim}"),
                format!(
                    "{} on {}: score {:.2}, {}",
                    launch.spec.instance_type,
                    placement.hypervisor,
                    placement.score,
                    placement.reason
                ),
            );
        }
    }

    fn rejected(&self, pool: Option<&PoolName>, explanation: &mut Explanation) {
        for rejected in &self.plan.report.rejected {
            if pool.is_none_or(|pool| *pool == rejected.pool) {
                explanation.rule(
                    format!("not on {}", rejected.hypervisor),
                    format!("NodePool {}: {}", rejected.pool, rejected.reason),
                );
            }
        }
    }

    /// Each Node as it stands. `has_node`: the plan counts the pod on one of them.
    fn verdicts(&self, pod: &PodView<'_>, has_node: bool, explanation: &mut Explanation) {
        let filters = Filters::of(self.world);
        for node in self.world.nodes() {
            let verdict = match filters.misfit(pod, node.name()) {
                None if has_node => "fits".to_owned(),
                None => "fits, but it takes no pods now, or pods before this one take its room"
                    .to_owned(),
                Some(misfit) => format!("{}: {misfit}", misfit.plugin()),
            };
            explanation.rule(format!("Node {}", node.name()), verdict);
        }
    }

    fn node(&self, name: &NodeName) -> Result<Explanation, String> {
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
            self.ages(claim, &mut explanation);
        }
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
            NodeOutcome::Kept(Kept::ScaleDownOff) => explanation
                .next(format!("set scaleDown.enabled of NodePool {} to true", report.pool)),
            NodeOutcome::Kept(Kept::MinNodes(_)) => {
                explanation.next(format!("lower limits.minNodes of NodePool {}", report.pool));
            }
            NodeOutcome::Kept(_) => explanation
                .next("nothing, if the Node may stay. To remove it now, delete its NodeClaim"),
            NodeOutcome::Removing(_) => explanation.next(format!(
                "nothing. To keep it: kubectl annotate node {name} kproxide.dev/do-not-disrupt=true"
            )),
        }
        Ok(explanation)
    }

    fn ages(&self, claim: &ClaimFacts, explanation: &mut Explanation) {
        let ago = |since: jiff::Timestamp| seconds(self.now.duration_since(since));
        explanation.rule("age", ago(claim.created));
        let since = claim.status.since(Condition::Unneeded);
        explanation.rule("unneeded for", since.map_or("not unneeded".to_owned(), ago));
    }

    fn hypervisor(&self, name: &str) -> Result<Explanation, String> {
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
        let memory = |bytes: u64| amount_text("memory", i64::try_from(bytes).unwrap_or(i64::MAX));
        explanation.rule("online", facts.online.to_string());
        explanation.rule("maintenance", facts.maintenance.to_string());
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
                    cluster.overcommit_cpu, cluster.overcommit_memory
                ),
            );
        }
        for rejected in rejected {
            explanation.rule(
                format!("NodePool {}", rejected.pool),
                rejected.reason.to_string(),
            );
        }
        for placement in &self.plan.report.placements {
            explanation.rule(
                format!("machine {}", placement.claim),
                format!(
                    "{}: score {:.2}, {}",
                    placement.hypervisor, placement.score, placement.reason
                ),
            );
        }
        explanation.next("the policy of each NodePool (spec.policies.hostSelection) chooses among the hypervisors that can take the machine");
        Ok(explanation)
    }

    fn claim(&self, name: &ClaimName) -> Result<Explanation, String> {
        if let Some(launch) = self
            .plan
            .launches
            .iter()
            .find(|launch| launch.claim == *name)
        {
            let mut explanation = Explanation::new(format!(
                "NodeClaim {name} would be launched: {}.",
                launch.reason
            ));
            self.launch(name, &mut explanation);
            self.rejected(Some(&launch.spec.pool), &mut explanation);
            explanation.next(format!("kproxide explain pool {}", launch.spec.pool));
            return Ok(explanation);
        }
        let claim = self.world.claims().get(name);
        let claim = claim.ok_or_else(|| format!("there is no NodeClaim {name}"))?;
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
        self.ages(claim, &mut explanation);
        for condition in &claim.status.conditions {
            let text = [&*condition.reason, &*condition.message];
            let text: Vec<&str> = text.into_iter().filter(|text| !text.is_empty()).collect();
            explanation.rule(
                format!("{:?}", condition.kind),
                format!(
                    "{} since {} {}",
                    condition.status,
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

    fn pool(&self, name: &PoolName) -> Result<Explanation, String> {
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
            pool.max_nodes,
            removals.count(),
        ));
        if let Some(problem) = &pool.problem {
            explanation.rule("problem", problem.clone());
        }
        explanation.rule("nodeClass", pool.class.to_string());
        explanation.rule("weight", pool.weight.to_string());
        explanation.rule("minNodes", pool.min_nodes.to_string());
        explanation.rule("paused", pool.paused.to_string());
        explanation.rule(
            "policy for the hypervisor",
            pool.policies.host_selection.policy.name.to_string(),
        );
        explanation.rule(
            "scaleUp.stabilizationWindow",
            seconds(pool.scale_up_stabilization),
        );
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
        for node in nodes() {
            explanation.rule(format!("Node {}", node.node), node.outcome.to_string());
        }
        if explanation.next.is_empty() {
            explanation.next("nothing: no pod lacks a machine of this pool");
        }
        Ok(explanation)
    }
}

/// What a person can do about a refusal.
fn next_for(pool: &PoolName, why: &Why, explanation: &mut Explanation) {
    let step = if let Why::TooBig { .. } = why {
        "add a larger instance type to the NodeClass; kproxide plan --add-type big=16x64 shows whether it helps"
            .to_owned()
    } else if let Why::Misfit(misfit) = why {
        if let Misfit::Taint(taint) = &**misfit {
            format!("give the pod a toleration of {taint}, or make a NodePool without that taint")
        } else if let Misfit::Labels(_) = &**misfit {
            format!(
                "add the label to spec.labels of NodePool {pool}, or change what the pod asks for"
            )
        } else {
            "change what the pod asks for, or make room where it may run".to_owned()
        }
    } else if let Why::Limit(Limit::Machines { .. }) = why {
        format!("raise limits.maxNodes of NodePool {pool}")
    } else if let Why::Limit(_) = why {
        format!("raise that limit of NodePool {pool}")
    } else if let Why::NoHypervisor(_) = why {
        "make room on a hypervisor, or add one: kproxide explain hypervisor NAME shows each"
            .to_owned()
    } else if let Why::Policy { .. } = why {
        format!("mend the policy or its settings in NodePool {pool}")
    } else if let Why::Unusable(_) = why {
        format!("mend NodePool {pool} or what it names")
    } else {
        "wait: kproxide tries again by itself".to_owned()
    };
    explanation.next(step);
}

fn room(node: &NodeView<'_>, explanation: &mut Explanation) {
    explanation.rule("asked of it", asked(node.requested()));
    explanation.rule("offers", asked(node.facts.allocatable.clone()));
    explanation.rule("pods that would move", node.movable_pods().to_string());
    explanation.rule("Ready", node.facts.ready.to_string());
}

fn scale_down(pool: &PoolFacts, explanation: &mut Explanation) {
    let rules = &pool.scale_down;
    explanation.rule("scaleDown.enabled", rules.enabled.to_string());
    explanation.rule("scaleDown.minNodeAge", seconds(rules.min_node_age));
    explanation.rule("scaleDown.unneededTime", seconds(rules.unneeded_time));
    explanation.rule("scaleDown.stabilization", seconds(rules.stabilization));
    explanation.rule("scaleDown.budget", rules.budget.to_string());
    explanation.rule("scaleDown.loadHeadroom", rules.load_headroom.to_string());
}

fn asked(resources: Resources) -> String {
    format!(
        "cpu {}, memory {}",
        amount_text("cpu", resources.milli_cores),
        amount_text("memory", resources.memory_bytes)
    )
}

fn seconds(duration: jiff::SignedDuration) -> String {
    format!("{} s", duration.as_secs())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.answer)?;
        let width = self
            .rules
            .iter()
            .map(|rule| rule.rule.chars().count())
            .max();
        let width = width.unwrap_or(0);
        if !self.rules.is_empty() {
            writeln!(f)?;
        }
        for Rule { rule, value } in &self.rules {
            writeln!(f, "  {rule:width$}  {value}")?;
        }
        if !self.next.is_empty() {
            writeln!(f, "\nNext:")?;
        }
        for step in &self.next {
            writeln!(f, "  {step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_read_with_and_without_a_slash() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Subject::read(&words, "default")
        };
        let pod = |namespace, name| Subject::Pod(ObjectKey::new(namespace, name));
        assert_eq!(read(&["pod", "web-1"]), Ok(pod("default", "web-1")));
        assert_eq!(read(&["pod/web-1"]), Ok(pod("default", "web-1")));
        assert_eq!(read(&["pod", "shop/web-1"]), Ok(pod("shop", "web-1")));
        assert_eq!(read(&["node/a"]), Ok(Subject::Node("a".into())));
        assert_eq!(
            read(&["hypervisor", "home/pve1"]),
            Ok(Subject::Hypervisor("home/pve1".to_owned()))
        );
        for wrong in [&["pod"][..], &["service", "a"], &["pod", "a", "b"], &[]] {
            assert!(read(wrong).unwrap_err().contains("names nothing"));
        }
    }
}
