//! One thing and one plan: what becomes of it, by which rules with which values, and what a person can do next.

mod claim;
mod decided;
mod hypervisor;
mod next;
mod node;
mod pod;
mod pool;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kproxide_planner::ids::{ClaimName, ClusterName, NodeName, ObjectKey, PodKey, PoolName};
use kproxide_planner::kubernetes::resources::{Resources, amount_text};
use kproxide_planner::plan::Plan;
use kproxide_planner::world::World;
use serde::Serialize;

use super::{NoAnswer, Scene};
use kproxide_common::decisions::Decision;
use kproxide_controller::judge::{Finding, named, uses};

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
    /// Reads `pod web-1`, `pod/web-1` or `pod shop/web-1`. Without a namespace a pod is looked for in all.
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

/// `decisions`: what policies answered, the last answer last.
///
/// # Errors
/// There is no such thing.
pub fn explain(
    scene: &Scene,
    plan: &Plan,
    decisions: &[Decision],
    subject: &Subject,
) -> Result<Explanation, String> {
    let about = About {
        world: &scene.world,
        gated: &scene.gated,
        plan,
        decisions,
        now: scene.now,
    };
    let mut explanation = match subject {
        Subject::Pod(key) => about.pod(key),
        Subject::Node(name) => about.node(name),
        Subject::Hypervisor(name) => about.hypervisor(name),
        Subject::Claim(name) => about.claim(name),
        Subject::Pool(name) => about.pool(name),
    }?;
    if let Some(findings) = &scene.findings {
        about.found(subject, findings, &mut explanation);
    }
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
    /// Computed, since the controller gave no answer: nothing of it is known to be under way.
    #[must_use]
    pub fn without_leader(mut self, error: &NoAnswer, namespace: &str) -> Self {
        let (so, step) = match error {
            NoAnswer::Nobody(..) => (
                "No replica of kproxide leads, so nothing is done. If one led",
                "start kproxide",
            ),
            NoAnswer::Silent(..) | NoAnswer::Refused { .. } => (
                "The replica of kproxide that leads does not answer. If it worked",
                "see whether kproxide runs",
            ),
            // It runs.
            NoAnswer::Forbidden { .. } | NoAnswer::Unreadable(..) | NoAnswer::OtherVersion(_) => {
                return self;
            }
        };
        self.answer = format!("{so}: {}", self.answer);
        self.next.retain(|step| !step.starts_with("nothing: "));
        let step = format!("{step}: kubectl get pods,leases --namespace {namespace}");
        self.next.insert(0, step);
        self
    }

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
    gated: &'a BTreeSet<PodKey>,
    plan: &'a Plan,
    decisions: &'a [Decision],
    now: jiff::Timestamp,
}

impl About<'_> {
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

    /// What the controller has found of it, and of what it depends on, first.
    fn found(&self, subject: &Subject, findings: &[Finding], explanation: &mut Explanation) {
        let objects = self.objects(subject);
        let about = findings
            .iter()
            .filter(|it| it.is_trouble() && it.is_ripe(self.now) && objects.contains(&it.object));
        let mut commands = Vec::new();
        for (index, finding) in about.enumerate() {
            let rule = Rule {
                rule: finding.reason.word.to_owned(),
                value: format!("{}: {}", finding.object, finding.message),
            };
            explanation.rules.insert(index, rule);
            commands.extend(finding.commands.iter().cloned());
        }
        for command in commands.into_iter().rev() {
            if !explanation.next.contains(&command) {
                explanation.next.insert(0, command);
            }
        }
    }

    /// Itself, and what has to work for it.
    fn objects(&self, subject: &Subject) -> BTreeSet<String> {
        let of_pool = |name: &PoolName| {
            let pool = self.world.pools().get(name);
            let class = pool.map(|pool| named("NodeClass", &pool.node_class));
            let clusters = self.world.clusters().keys();
            let clusters = clusters.filter(|it| pool.is_some_and(|pool| uses(pool, it)));
            let clusters = clusters.map(|it| named("ProxmoxCluster", it));
            let own = [named("NodePool", name)];
            own.into_iter().chain(class).chain(clusters).collect()
        };
        let of_claim = |name: &ClaimName| {
            let mut objects = BTreeSet::from([named("NodeClaim", name)]);
            if let Some(claim) = self.world.claims().get(name) {
                let server = format!("{}/{}", claim.spec.cluster, claim.hypervisor());
                objects.insert(named("Hypervisor", server));
                objects.insert(named("ProxmoxCluster", &claim.spec.cluster));
            }
            objects
        };
        match subject {
            // Its pools say why they do not help.
            Subject::Pod(_) => BTreeSet::new(),
            Subject::Pool(name) => of_pool(name),
            Subject::Claim(name) => of_claim(name),
            Subject::Node(name) => {
                let claims = self.world.claims().iter();
                let mut of_node = claims.filter(|(_, claim)| {
                    let node = self.world.node_of(claim);
                    node.is_some_and(|node| node.name() == name)
                });
                let claim = of_node.next();
                let mut objects = claim.map_or_else(BTreeSet::new, |(claim, _)| of_claim(claim));
                objects.insert(named("Node", name));
                objects
            }
            Subject::Hypervisor(name) => {
                let names = self.world.inventories().iter();
                let names = names.flat_map(|(cluster, inventory)| {
                    let servers = inventory.hypervisors.keys();
                    servers.map(move |server| (cluster, server))
                });
                let is_it = |(cluster, server): &(&ClusterName, &Arc<str>)| {
                    ***server == **name || format!("{cluster}/{server}") == *name
                };
                let found = names.filter(is_it).flat_map(|(cluster, server)| {
                    let server = named("Hypervisor", format!("{cluster}/{server}"));
                    [server, named("ProxmoxCluster", cluster)]
                });
                found.collect()
            }
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
