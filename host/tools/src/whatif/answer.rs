//! What a plan says, as data. `kproxide plan -o json` prints it: fields may be added, and none changes its meaning.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use kproxide_planner::facts::{PoolFacts, VolumeProblem};
use kproxide_planner::ids::PodKey;
use kproxide_planner::keys::DEFAULT_SCHEDULER;
use kproxide_planner::plan::Plan;
use kproxide_planner::plan::report::{Misfit, NodeOutcome, PendingOutcome, PendingShape, Remark};
use kproxide_planner::planning::Filters;
use kproxide_planner::world::{NodeView, PodView, World};
use serde::Serialize;

use super::Scene;
use kproxide_controller::judge::{self, Finding, Known, reasons};
use kproxide_policy::Unfit;

/// The answer to "what would kproxide do?".
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// `kproxide.dev/v1alpha1`.
    pub api_version: &'static str,
    /// `Plan`.
    pub kind: &'static str,
    pub summary: Summary,
    /// Machines that would be made, in the order in which they would be begun.
    pub launches: Vec<Launch>,
    /// Nodes that would be removed, by name.
    pub removals: Vec<NodeLine>,
    /// What becomes of pending pods: one row for each shape and outcome.
    pub pending: Vec<Pending>,
    /// Nodes of kproxide that stay, by name, each with the reason.
    pub kept: Vec<NodeLine>,
    /// Hypervisors that get no machine of a pool, each with the reason. Empty if nothing is to be placed.
    pub hypervisors: Vec<RefusedHypervisor>,
    /// What is wrong, as `kproxide status` says it, the worst first.
    pub findings: Vec<Finding>,
    /// Anything odd in the input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// What the input does not say, and what was taken for it.
    pub assumed: Vec<String>,
    /// Kinds of objects that a plan does not depend on, with their number.
    pub ignored: BTreeMap<String, u32>,
    /// Each pending pod on each Node, with `--verdicts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdicts: Option<Vec<Verdict>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub launches: usize,
    pub removals: usize,
    pub pending_pods: u32,
    /// Pending pods that no Node takes and that get no machine.
    pub pods_without_help: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    pub claim: String,
    pub pool: String,
    pub node_class: String,
    pub instance_type: String,
    pub cpu_cores: u64,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    pub cluster: String,
    pub hypervisor: String,
    /// Why the machine is made.
    pub reason: String,
    /// What the policy says of its choice of the hypervisor.
    pub choice: String,
    pub score: f64,
    /// The pods that it is for. Of a shape with more than 1000 pods only the first 1000 are named.
    pub pods: Vec<String>,
    pub pod_count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    pub node: String,
    pub claim: String,
    pub pool: String,
    pub reason: String,
}

/// What becomes of pending pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// They fit on a Node that is there.
    FitsNode,
    /// They will fit on a machine that is on its way.
    FitsClaim,
    /// Machines are made for them.
    Launching,
    /// No machine helps, or none may be made.
    NoHelp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// Pods that are alike, at most the first 1000.
    pub pods: Vec<String>,
    pub count: u32,
    pub outcome: Outcome,
    /// The Node or the claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// With `noHelp`: why, for each pool that could have helped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolReason {
    /// Not given: it is about all pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedHypervisor {
    pub cluster: String,
    pub hypervisor: String,
    pub pool: String,
    pub reason: String,
}

/// Whether a pod fits on a Node as the two stand now, by kube-scheduler's filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub pod: String,
    pub node: String,
    /// No filter keeps the pod away, and all that the pod asks is evaluated.
    pub fits: bool,
    /// What no filter of kproxide evaluates, if none of them keeps the pod away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_evaluated: Option<String>,
    /// The plugin of kube-scheduler that keeps the pod away; the first that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Answer {
    pub fn of(scene: &Scene, plan: &Plan) -> Self {
        let report = &plan.report;
        let pending: Vec<Pending> = report.pending.iter().map(pending).collect();
        let (mut removals, mut kept) = (Vec::new(), Vec::new());
        for node in &report.nodes {
            let (list, reason) = match &node.outcome {
                NodeOutcome::Removing(reason) => (&mut removals, reason.to_string()),
                NodeOutcome::Kept(reason) => (&mut kept, reason.to_string()),
            };
            list.push(NodeLine {
                node: node.node.to_string(),
                claim: node.claim.to_string(),
                pool: node.pool.to_string(),
                reason,
            });
        }
        removals.sort_by(|a, b| a.node.cmp(&b.node));
        kept.sort_by(|a, b| a.node.cmp(&b.node));
        let launches = launches(plan);
        let sum = |wanted: Option<Outcome>| {
            let rows = pending.iter();
            let rows = rows.filter(|row| wanted.is_none_or(|wanted| row.outcome == wanted));
            rows.map(|row| row.count).sum()
        };
        Self {
            api_version: "kproxide.dev/v1alpha1",
            kind: "Plan",
            summary: Summary {
                launches: launches.len(),
                removals: removals.len(),
                pending_pods: sum(None),
                pods_without_help: sum(Some(Outcome::NoHelp)),
            },
            launches,
            removals,
            pending,
            kept,
            hypervisors: report
                .rejected
                .iter()
                .map(|rejected| RefusedHypervisor {
                    cluster: rejected.hypervisor.cluster.to_string(),
                    hypervisor: rejected.hypervisor.name.to_string(),
                    pool: rejected.pool.to_string(),
                    reason: rejected.reason.to_string(),
                })
                .collect(),
            findings: findings(scene, plan),
            remarks: plan.report.findings.clone(),
            assumed: scene.assumed.clone(),
            ignored: scene.ignored.clone(),
            verdicts: None,
        }
    }

    /// With each pending pod on each Node.
    pub fn with_verdicts(mut self, world: &World) -> Self {
        let filters = Filters::of(world);
        let waits = |pod: &PodView<'_>| {
            pod.node().is_none() && pod.is_alive() && pod.unschedulable_since().is_some()
        };
        let mut verdicts = Vec::new();
        for pod in world.pods().filter(waits) {
            for node in world.nodes() {
                let misfit = filters.misfit(&pod, node.name());
                verdicts.push(verdict(world, &pod, &node, misfit.as_ref()));
            }
        }
        self.verdicts = Some(verdicts);
        self
    }

    /// With these pods alone among the pending ones and the verdicts. The summary stays that of all.
    pub fn only(mut self, world: &World, is_listed: impl Fn(&PodView<'_>) -> bool) -> Self {
        let pods = world.pods().filter(is_listed);
        let listed: HashSet<String> = pods.map(|pod| pod.key().to_string()).collect();
        for row in &mut self.pending {
            row.pods.retain(|pod| listed.contains(pod));
            row.count = u32::try_from(row.pods.len()).unwrap_or(u32::MAX);
        }
        self.pending.retain(|row| row.count > 0);
        if let Some(verdicts) = &mut self.verdicts {
            verdicts.retain(|verdict| listed.contains(&verdict.pod));
        }
        self
    }

    /// There is something to do.
    pub fn has_work(&self) -> bool {
        self.summary.launches + self.summary.removals > 0
    }
}

fn verdict(
    world: &World,
    pod: &PodView<'_>,
    node: &NodeView<'_>,
    misfit: Option<&Misfit<'_>>,
) -> Verdict {
    let spec = pod.spec();
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
    let not_evaluated = if !world.host().served.schedulers.contains(scheduler) {
        Some(format!("the rules of scheduler {scheduler}"))
    } else if let Some(Misfit::VolumeWait(wait)) = misfit
        && let VolumeProblem::Unknown(kind) = &wait.why
    {
        Some(format!("PersistentVolumes of kind {kind}"))
    } else {
        let field = spec.unsupported.first().map(ToString::to_string);
        let too_many = || Some(spec.too_many?.to_string());
        field.or_else(too_many).filter(|_| misfit.is_none())
    };
    let misfit = misfit.filter(|_| not_evaluated.is_none());
    Verdict {
        pod: pod.key().to_string(),
        node: node.name().to_string(),
        fits: misfit.is_none() && not_evaluated.is_none(),
        not_evaluated,
        plugin: misfit.map(Misfit::plugin),
        reason: misfit.map(Misfit::to_string),
    }
}

pub(super) fn launches(plan: &Plan) -> Vec<Launch> {
    // The pods of each shape, in the order in which machines are made for them.
    let mut waiting: HashMap<&PodKey, VecDeque<&PodKey>> = HashMap::new();
    for shape in &plan.report.pending {
        if let PendingOutcome::Launching(_) = shape.outcome {
            waiting.insert(&shape.example, shape.pods.iter().collect());
        }
    }
    let placements = plan.report.placements.iter();
    let placements: HashMap<_, _> = placements.map(|one| (&one.claim, one)).collect();
    let launches = plan.launches.iter();
    launches
        .map(|launch| {
            let spec = &launch.spec;
            let placement = placements.get(&launch.claim);
            let mut pods = Vec::new();
            let mut pod_count = 0;
            for (example, count) in placement.into_iter().flat_map(|one| &one.pods) {
                pod_count += count;
                let Some(waiting) = waiting.get_mut(example) else {
                    continue;
                };
                let named = waiting.len().min(*count as usize);
                pods.extend(waiting.drain(..named).map(ToString::to_string));
            }
            Launch {
                claim: launch.claim.to_string(),
                pool: spec.pool.to_string(),
                node_class: spec.class.to_string(),
                instance_type: spec.instance_type.to_string(),
                cpu_cores: spec.resources.milli_cores / 1000,
                memory_mib: spec.resources.memory_bytes >> 20,
                cluster: spec.cluster.to_string(),
                hypervisor: spec.hypervisor.to_string(),
                reason: match &pods[..] {
                    [] => launch.reason.clone(),
                    [pod] if pod_count == 1 => format!("for the pending pod {pod}"),
                    [pod, ..] => format!("for {pod_count} pending pods such as {pod}"),
                },
                choice: placement.map(|one| one.reason.clone()).unwrap_or_default(),
                // YAML and JSON write the last digits of a number differently.
                score: placement.map_or(0.0, |one| (one.score * 1e4).round() / 1e4),
                pods,
                pod_count,
            }
        })
        .collect()
}

fn pending(shape: &PendingShape) -> Pending {
    let names = |names: &[kproxide_planner::ids::ClaimName]| {
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let for_all = |reason: String| vec![PoolReason { pool: None, reason }];
    let (outcome, on, reasons) = match &shape.outcome {
        PendingOutcome::FitsNode(node) => (Outcome::FitsNode, vec![node.to_string()], vec![]),
        PendingOutcome::FitsClaim(claim) => (Outcome::FitsClaim, vec![claim.to_string()], vec![]),
        PendingOutcome::Launching(claims) => (Outcome::Launching, names(claims), vec![]),
        PendingOutcome::Unhelped(whys) => {
            let reasons = whys.iter().map(|(pool, why)| PoolReason {
                pool: Some(pool.to_string()),
                reason: why.to_string(),
            });
            (Outcome::NoHelp, vec![], reasons.collect())
        }
        PendingOutcome::NotSupported(_)
        | PendingOutcome::TooMany(_)
        | PendingOutcome::LaterTick
        | PendingOutcome::Refused(_)
        | PendingOutcome::Expendable { .. }
        | PendingOutcome::OtherScheduler { .. }
        | PendingOutcome::NoPool => (Outcome::NoHelp, vec![], for_all(shape.outcome.to_string())),
    };
    Pending {
        pods: shape.pods.iter().map(ToString::to_string).collect(),
        count: shape.count,
        outcome,
        on,
        reasons,
    }
}

/// The policies that a pool names and nobody has given. Machines are placed by `spread` then.
pub(super) fn missing_policies(world: &World, pool: &PoolFacts) -> Vec<String> {
    let used = pool.policies.each();
    let missing = used
        .into_iter()
        .filter(|(_, used)| !world.policies().contains_key(&used.policy));
    let said = missing.map(|(field, used)| {
        let (kind, name) = (used.policy.kind.as_str(), &used.policy.name);
        format!(
            "spec.policies.{field}: there is no {kind} policy {name}. Give the folder of {name}.wasm with --policy-dir, or correct the name"
        )
    });
    said.collect()
}

/// What the controller has found, or what the judge says of a world that is not the controller's.
fn findings(scene: &Scene, plan: &Plan) -> Vec<Finding> {
    let mut all = scene.findings.clone().unwrap_or_else(|| {
        let known = Known {
            report: &plan.report,
            key_problem: None,
            lacking: &BTreeMap::new(),
            excess: &BTreeMap::new(),
            unused: &BTreeMap::new(),
            join_problems: &BTreeMap::new(),
            refusals: &BTreeMap::new(),
            unfit: &Unfit::default(),
            sees_books: scene.world.ledger().is_some(),
            held_up: &BTreeMap::new(),
            now: scene.now,
        };
        judge::judge(&scene.world, &known)
    });
    all.retain(|it| it.is_trouble() && it.is_ripe(scene.now));
    for finding in &mut all {
        if *finding.reason == reasons::POLICY_MISSING {
            finding.message += ". A plan takes the folder of its file with --policy-dir";
        }
    }
    all.sort_by(|a, b| (b.level, &a.object).cmp(&(a.level, &b.object)));
    all
}
