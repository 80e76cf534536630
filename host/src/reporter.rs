//! Says what a tick found: Events about pods, Nodes, claims and pools, conditions of our objects, metrics. Nothing here decides, and nothing here may hold the loop up.
//!
//! Reason words are Cluster Autoscaler's where it has one, because people search for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::Phase;
use kproxide_planner::facts::{GuestStatus, InventoryFacts, PoolFacts};
use kproxide_planner::ids::{ClusterName, PodKey, PoolName};
use kproxide_planner::plan::Plan;
use kproxide_planner::report::{
    Finding, NodeOutcome, PendingOutcome, PendingShape, PlacementReport, RejectedHypervisor,
    Report, Severity,
};
use kproxide_planner::world::World;

use crate::act::ClaimNote;
use crate::kube::client::Client;
use crate::kube::events::{About, Event, Events};
use crate::kube::status::{ClusterSighting, Readiness, SeenHypervisor, StatusWriter};
use crate::metrics::{KproximateGauges, Metrics};
use crate::policy::{Reload, ReloadOutcome};

/// The same words about the same object are not repeated sooner.
const REPEAT: SignedDuration = SignedDuration::from_mins(5);
/// Events for the pods of one shape per tick: the others have the same reason.
const PODS_TOLD_MAX: usize = 10;
/// Hypervisors that are named as rejected in one Event.
const REJECTED_TOLD_MAX: usize = 5;
/// What was said is remembered for so many objects; beyond that some things are said again.
const SAID_MAX: usize = 10_000;
/// Status writes of one tick together; what does not fit is written in the next.
const STATUS_DEADLINE: Duration = Duration::from_secs(5);

pub struct Reporter {
    events: Events,
    /// `None` in a dry run: nothing is written.
    kube: Option<Client>,
    metrics: Metrics,
    statuses: StatusWriter,
    key_fingerprint: Option<String>,
    /// What was last said about an object under a reason, and when.
    said: BTreeMap<(About, &'static str), (String, Timestamp)>,
}

impl Reporter {
    pub fn new(
        events: Events,
        kube: Option<Client>,
        metrics: Metrics,
        key_fingerprint: Option<String>,
    ) -> Self {
        Self {
            events,
            kube,
            metrics,
            statuses: StatusWriter::default(),
            key_fingerprint,
            said: BTreeMap::new(),
        }
    }

    /// Tells of one tick.
    pub async fn report(&mut self, plan: &Plan, world: &World, now: Timestamp) {
        let Report {
            pending,
            placements,
            rejected,
            nodes,
            findings,
        } = &plan.report;
        for shape in pending {
            self.pending(shape, world, now);
        }
        for placement in placements {
            self.placement(placement, rejected, world, now);
        }
        for node in nodes {
            if let NodeOutcome::Removing(reason) = &node.outcome {
                let about = About::node(&node.node);
                if self.news(&about, "ScaleDown", reason.as_str(), now) {
                    tracing::info!(node = %node.node, claim = %node.claim, reason = reason.as_str(), "removing");
                    self.metrics
                        .removals
                        .with_label_values(&[node.pool.as_str(), reason.as_str()])
                        .inc();
                    self.events.say(Event::normal(
                        about,
                        "ScaleDown",
                        format!("the Node is removed: {reason}"),
                    ));
                }
            }
        }
        for Finding {
            severity,
            about,
            message,
        } in findings
        {
            let severity_word = match severity {
                Severity::Notice => "notice",
                Severity::Warning => "warning",
                Severity::Defect => "defect",
            };
            self.metrics
                .findings
                .with_label_values(&[severity_word])
                .inc();
            match severity {
                Severity::Notice => tracing::debug!(about, message, "finding"),
                Severity::Warning => tracing::warn!(about, message, "finding"),
                Severity::Defect => tracing::error!(
                    about,
                    message,
                    "the plan broke an invariant; the action was dropped"
                ),
            }
        }
        self.measure(&plan.report, world);
        if let Some(kube) = self.kube.clone()
            && tokio::time::timeout(STATUS_DEADLINE, self.write_statuses(&kube, world, now))
                .await
                .is_err()
        {
            tracing::warn!("status writes are slow; the rest follows with the next tick");
        }
    }

    /// Passes on what a drive says about its claim.
    pub fn note(&mut self, note: &ClaimNote) {
        let about = About::claim(&note.claim, &note.uid);
        let (reason, message) = (note.note.reason, note.note.message.clone());
        if note.note.warning {
            tracing::warn!(claim = %note.claim, reason, message, "claim");
            self.events.say(Event::warning(about, reason, message));
        } else {
            tracing::info!(claim = %note.claim, reason, message, "claim");
            self.events.say(Event::normal(about, reason, message));
        }
    }

    /// Tells every pool that uses the policy what became of its file.
    pub fn policy_reloaded(&mut self, reload: &Reload, world: &World) {
        let (result, message) = match &reload.outcome {
            ReloadOutcome::Taken { digest, version } => (
                "taken",
                format!(
                    "policy {} is now version {version}, sha256:{digest}",
                    reload.policy
                ),
            ),
            ReloadOutcome::Refused(reason) => (
                "refused",
                format!(
                    "the new file of policy {} is refused and the last good one stays: {reason}",
                    reload.policy
                ),
            ),
            ReloadOutcome::Removed { builtin: true } => (
                "removed",
                format!(
                    "the file of policy {} is gone; the built-in answers again",
                    reload.policy
                ),
            ),
            ReloadOutcome::Removed { builtin: false } => (
                "removed",
                format!(
                    "the file of policy {} is gone, and no built-in has that name",
                    reload.policy
                ),
            ),
        };
        self.metrics
            .policy_reloads
            .with_label_values(&[&*reload.policy, result])
            .inc();
        let good = result == "taken";
        if good {
            tracing::info!(policy = %reload.policy, message, "policy file");
        } else {
            tracing::warn!(policy = %reload.policy, message, "policy file");
        }
        for (name, pool) in world.pools() {
            if uses(pool, &reload.policy) {
                let about = About::pool(name, &pool.uid);
                self.events.say(if good {
                    Event::normal(about, "PolicyReloaded", message.clone())
                } else {
                    Event::warning(about, "PolicyRefused", message.clone())
                });
            }
        }
    }

    fn pending(&mut self, shape: &PendingShape, world: &World, now: Timestamp) {
        let (reason, message) = match &shape.outcome {
            // The scheduler, or a machine on its way, will see to it: that was said before.
            PendingOutcome::FitsNode(_) | PendingOutcome::FitsClaim(_) => return,
            PendingOutcome::Launching(claims) => {
                let names: Vec<_> = claims.iter().map(|claim| claim.to_string()).collect();
                (
                    "TriggeredScaleUp",
                    format!("pod triggered scale-up: {}", names.join(", ")),
                )
            }
            PendingOutcome::Unhelped(reasons) => {
                let reasons: Vec<_> = reasons
                    .iter()
                    .map(|(pool, why)| format!("pool {pool}: {why}"))
                    .collect();
                (
                    "NotTriggerScaleUp",
                    format!("pod didn't trigger scale-up: {}", reasons.join("; ")),
                )
            }
            PendingOutcome::NotSupported(field) => (
                "NotTriggerScaleUp",
                format!("pod didn't trigger scale-up: not supported yet: {field}"),
            ),
            PendingOutcome::NoPool => (
                "NotTriggerScaleUp",
                "pod didn't trigger scale-up: there is no NodePool".to_owned(),
            ),
        };
        let shape_about = About::shape(&shape.example);
        if self.news(&shape_about, reason, &message, now) {
            tracing::info!(pod = %shape.example, pods = shape.count, reason, message, "pending");
        }
        for key in shape.pods.iter().take(PODS_TOLD_MAX) {
            let Some(about) = pod(key, world) else {
                continue;
            };
            if self.news(&about, reason, &message, now) {
                self.events
                    .say(Event::normal(about, reason, message.clone()));
            }
        }
    }

    fn placement(
        &mut self,
        placement: &PlacementReport,
        rejected: &[RejectedHypervisor],
        world: &World,
        now: Timestamp,
    ) {
        let PlacementReport {
            claim,
            pool,
            hypervisor,
            score,
            reason,
            fallback,
        } = placement;
        tracing::info!(%claim, %pool, %hypervisor, score, reason, "placed");
        self.metrics
            .launches
            .with_label_values(&[pool.as_str(), &hypervisor.to_string()])
            .inc();
        let Some(facts) = world.pools().get(pool) else {
            return;
        };
        let about = About::pool(pool, &facts.uid);
        if let Some(fallback) = fallback
            && self.news(&about, "PolicyFallback", fallback, now)
        {
            let message = format!("the built-in spread chose instead: {fallback}");
            tracing::warn!(%pool, message, "policy fallback");
            self.events
                .say(Event::warning(about.clone(), "PolicyFallback", message));
        }
        self.events.say(Event::normal(
            about,
            "ScaledUpGroup",
            format!(
                "{claim} on {hypervisor}: {reason}{}",
                not_on(pool, rejected)
            ),
        ));
    }

    /// True if this was not said about it lately.
    fn news(&mut self, about: &About, reason: &'static str, message: &str, now: Timestamp) -> bool {
        let key = (about.clone(), reason);
        if let Some((said, at)) = self.said.get(&key)
            && said == message
            && now.duration_since(*at) < REPEAT
        {
            return false;
        }
        if self.said.len() >= SAID_MAX {
            self.said
                .retain(|_, (_, at)| now.duration_since(*at) < REPEAT);
            if self.said.len() >= SAID_MAX {
                self.said.clear();
            }
        }
        self.said.insert(key, (message.to_owned(), now));
        true
    }

    fn measure(&self, report: &Report, world: &World) {
        self.metrics.pending_pods.reset();
        for shape in &report.pending {
            let outcome = match &shape.outcome {
                PendingOutcome::FitsNode(_) => "fits-node",
                PendingOutcome::FitsClaim(_) => "machine-coming",
                PendingOutcome::Launching(_) => "launching",
                PendingOutcome::Unhelped(_) | PendingOutcome::NoPool => "unhelped",
                PendingOutcome::NotSupported(_) => "not-supported",
            };
            self.metrics
                .pending_pods
                .with_label_values(&[outcome])
                .add(i64::from(shape.count));
        }
        self.metrics.claims.reset();
        for claim in world.claims().values() {
            let phase = match claim.status.phase {
                Phase::Pending => "pending",
                Phase::Launching => "launching",
                Phase::Launched => "launched",
                Phase::Registered => "registered",
                Phase::Initialized => "initialized",
                Phase::Draining => "draining",
                Phase::Terminating => "terminating",
            };
            self.metrics
                .claims
                .with_label_values(&[claim.spec.pool.as_str(), phase])
                .inc();
        }
        for (cluster, inventory) in world.inventories() {
            let usable = inventory.reachable && inventory.quorate;
            self.metrics
                .clusters
                .with_label_values(&[cluster.as_str()])
                .set(i64::from(usable));
        }
        self.metrics.set_kproximate(&kproximate_gauges(world));
    }

    async fn write_statuses(&mut self, kube: &Client, world: &World, now: Timestamp) {
        for (name, pool) in world.pools() {
            let nodes = world
                .claims()
                .values()
                .filter(|claim| claim.spec.pool == *name)
                .count();
            let ready = pool_readiness(name, pool, world);
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            if let Err(error) = self.statuses.pool(kube, name, nodes, &ready, now).await {
                tracing::warn!(pool = %name, error = %crate::app::chain(&error), "status not written");
            }
        }
        for (name, class) in world.classes() {
            let ready = readiness("InvalidSettings", class.problem.as_ref());
            if let Err(error) = self.statuses.class(kube, name, &ready, now).await {
                tracing::warn!(class = %name, error = %crate::app::chain(&error), "status not written");
            }
        }
        for (name, cluster) in world.clusters() {
            let Some(inventory) = world.inventories().get(name) else {
                let ready = readiness("InvalidSettings", cluster.problem.as_ref());
                self.cluster(kube, name, &ClusterSighting::default(), &ready, now)
                    .await;
                continue;
            };
            let ready = match &cluster.problem {
                Some(problem) => Readiness::not_ready("InvalidSettings", problem.clone()),
                None => inventory_readiness(inventory),
            };
            let seen = sighting(inventory, self.key_fingerprint.clone());
            self.cluster(kube, name, &seen, &ready, now).await;
        }
    }

    async fn cluster(
        &mut self,
        kube: &Client,
        name: &ClusterName,
        seen: &ClusterSighting,
        ready: &Readiness,
        now: Timestamp,
    ) {
        if let Err(error) = self.statuses.cluster(kube, name, seen, ready, now).await {
            tracing::warn!(cluster = %name, error = %crate::app::chain(&error), "status not written");
        }
    }
}

/// Which hypervisors of the pool's clusters could not take a machine, and why.
fn not_on(pool: &PoolName, rejected: &[RejectedHypervisor]) -> String {
    rejected
        .iter()
        .filter(|rejected| rejected.pool == *pool)
        .take(REJECTED_TOLD_MAX)
        .map(|rejected| format!("; not on {}: {}", rejected.hypervisor, rejected.reason))
        .collect()
}

fn pod(key: &PodKey, world: &World) -> Option<About> {
    Some(About::pod(key, world.pod(key)?.uid()))
}

fn uses(pool: &PoolFacts, policy: &Arc<str>) -> bool {
    let policies = &pool.policies;
    [
        &policies.host_selection,
        &policies.scale_down,
        &policies.labels,
    ]
    .iter()
    .any(|used| used.policy.name == *policy)
}

fn readiness(reason: &'static str, problem: Option<&String>) -> Readiness {
    match problem {
        Some(problem) => Readiness::not_ready(reason, problem.clone()),
        None => Readiness::ready(),
    }
}

fn pool_readiness(name: &PoolName, pool: &PoolFacts, world: &World) -> Readiness {
    let Some(class) = world.classes().get(&pool.class) else {
        return Readiness::not_ready(
            "ClassMissing",
            format!(
                "spec.nodeClass: there is no NodeClass {}; create it or correct the name in NodePool {name}",
                pool.class
            ),
        );
    };
    match (&pool.problem, &class.problem) {
        (Some(problem), _) => Readiness::not_ready("InvalidSettings", problem.clone()),
        (None, Some(problem)) => Readiness::not_ready(
            "ClassNotReady",
            format!("NodeClass {}: {problem}", pool.class),
        ),
        (None, None) => Readiness::ready(),
    }
}

fn inventory_readiness(inventory: &InventoryFacts) -> Readiness {
    if !inventory.reachable {
        return Readiness::not_ready("Unreachable", inventory.problem.clone().unwrap_or_default());
    }
    if !inventory.quorate {
        return Readiness::not_ready(
            "NoQuorum",
            "the Proxmox cluster has no quorum: nothing is launched or destroyed",
        );
    }
    let template = inventory
        .templates
        .values()
        .flatten()
        .find_map(|template| template.problem.clone());
    match template {
        Some(problem) => Readiness::not_ready("TemplateUnusable", problem),
        None => Readiness::ready(),
    }
}

fn sighting(inventory: &InventoryFacts, key_fingerprint: Option<String>) -> ClusterSighting {
    ClusterSighting {
        reachable: inventory.reachable,
        quorate: inventory.reachable.then_some(inventory.quorate),
        version: None,
        hypervisors: inventory
            .hypervisors
            .iter()
            .map(|(name, hypervisor)| SeenHypervisor {
                name: name.to_string(),
                online: hypervisor.online,
                maintenance: hypervisor.maintenance,
            })
            .collect(),
        key_fingerprint,
    }
}

/// kproximate's numbers, from claims, the inventory and their Nodes.
fn kproximate_gauges(world: &World) -> KproximateGauges {
    const MILLI: f64 = 1000.0;
    let mut gauges = KproximateGauges::default();
    for claim in world.claims().values() {
        let guest = world
            .inventories()
            .get(&claim.spec.cluster)
            .and_then(|cluster| cluster.guests.get(&claim.spec.vmid));
        if guest.is_some_and(|guest| guest.status != GuestStatus::Unknown || guest.name.is_some()) {
            gauges.machines += 1;
        }
        let Some(node) = world.node_of(claim).filter(|node| node.facts.ready) else {
            continue;
        };
        let (allocatable, requested) = (&node.facts.allocatable, node.requested());
        gauges.running += 1;
        gauges.cpu_provisioned_cores += claim.spec.milli_cores as f64 / MILLI;
        gauges.memory_provisioned_bytes += claim.spec.memory_bytes as f64;
        gauges.cpu_allocatable_cores += allocatable.milli_cores as f64 / MILLI;
        gauges.memory_allocatable_bytes += allocatable.memory_bytes as f64;
        gauges.cpu_allocated_cores += requested.milli_cores as f64 / MILLI;
        gauges.memory_allocated_bytes += requested.memory_bytes as f64;
    }
    gauges
}
