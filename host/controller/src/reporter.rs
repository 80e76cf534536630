//! Reports what a tick found: Events about pods, Nodes, claims and pools, conditions of our objects, metrics. Nothing
//! here decides, and nothing here may hold up the loop.
//!
//! Reason words are Cluster Autoscaler's where it has one, because people search for them.

mod gauges;
mod holding;
mod judging;
pub mod policies;
mod provisioning;
mod reload;
mod said;
mod scaling;
mod statuses;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{SCALE_DOWN_BLOCKED, Waits};
use kproxide_planner::facts::{ClaimCondition, PolicyRef};
use kproxide_planner::ids::{ClaimName, ClusterName, Digest, Uid};
use kproxide_planner::plan::report::{
    AnchorReport, AnchorTrouble, NodeOutcome, OrphanReport, Remark, Report, Severity, Unusable,
};
use kproxide_planner::plan::{Plan, decision};
use kproxide_planner::world::World;

use crate::act::{ClaimNote, Leftover, RefusedAnchor};
use crate::judge::{self, Finding, reasons, uses};
use crate::metrics::Metrics;
use crate::observe::Lacking;
use holding::Holding;
use kproxide_kube::client::Client;
use kproxide_kube::events::{About, Event, Events};
use kproxide_kube::status::StatusWriter;
use kproxide_policy::{Answering, Refusal, Reload, Unfit};
use provisioning::Launches;
use reload::ReloadNews;
use said::Said;
use turns::Turns;

/// kproxide launches and destroys nothing: the ownership key is missing, or was replaced.
const KEY_PROBLEM: &str = reasons::KEY_UNUSABLE.word;
/// Removals of this pool wait, because the breaker's allowance is used up.
const WAITING: &str = reasons::REMOVALS_WAIT.word;
/// No pod used too many of the pool's machines.
const LAUNCHES_PAUSED: &str = reasons::LAUNCHES_PAUSED.word;
/// A claim's launch has failed.
const LAUNCH_FAILED: &str = "FailedToScaleUpGroup";
/// kproxide removes nothing: too many machines went bad at once.
const FROZEN: &str = reasons::FROZEN.word;
/// kproxide does nothing in a Proxmox cluster: its anchor shows a mark that we did not write.
const ANCHOR_FOREIGN: &str = reasons::ANCHOR_FOREIGN.word;
/// kproxide removes nothing in a Proxmox cluster until its anchor is known to be ours.
const ANCHOR_UNPROVEN: &str = reasons::ANCHOR_UNPROVEN.word;
/// The anchor is missing: kproxide would not notice a copy of this cluster.
const ANCHOR_MISSING: &str = reasons::ANCHOR_MISSING.word;
/// kproxide cannot write to the anchor: a copy of this cluster may act.
const ANCHOR_STUCK: &str = reasons::ANCHOR_STUCK.word;
/// Proxmox refused to make the anchor or to change it.
const ANCHOR_REFUSED: &str = "AnchorRefused";
/// The same text about the same object is not repeated sooner.
const REPEAT: SignedDuration = SignedDuration::from_mins(5);
/// At most this many pods of one shape get an Event in one tick. The others have the same reason.
const PODS_TOLD_MAX: usize = 10;
/// For all status writes of one tick. The rest is written in the next one.
const STATUS_DEADLINE: Duration = Duration::from_secs(5);

pub struct Reporter {
    events: Events,
    /// `None` in a dry run: nothing is written.
    kube: Option<Client>,
    metrics: Metrics,
    statuses: StatusWriter,
    key_fingerprint: Option<String>,
    /// Why there is no usable key, and what to do. kproxide then launches and destroys nothing.
    key_problem: Option<String>,
    /// What was last said about an object under a reason.
    said: Said<(About, &'static str)>,
    /// Findings that were logged.
    logged: Said<(String, String)>,
    /// Claims whose removal has begun and was counted.
    counted: BTreeSet<ClaimName>,
    /// Policy files that are refused, by the policy's name.
    refusals: BTreeMap<Arc<str>, Refusal>,
    unfit: Unfit,
    held_up: BTreeMap<ClaimName, Waits>,
    answering: BTreeMap<PolicyRef, Answering>,
    /// The pools that were told of them, and how.
    refusals_reported: BTreeSet<(About, String)>,
    /// What the credentials of each Proxmox cluster may do beyond what kproxide needs. Empty text: nothing. No entry:
    /// not known.
    excess: BTreeMap<ClusterName, String>,
    /// The pools that were told of it, and how.
    excess_reported: BTreeSet<(ClusterName, About, String)>,
    holding: Holding,
    /// What is so, since the last tick.
    findings: Vec<Finding>,
    /// What the credentials of each Proxmox cluster lack. No entry: nothing is known to lack.
    lacking: BTreeMap<ClusterName, Lacking>,
    /// Why the credentials in use of a Proxmox cluster are not those in its Secret. No entry: they are.
    unused: BTreeMap<ClusterName, String>,
    /// Why files of join scripts cannot be read, by their paths.
    join_problems: BTreeMap<Arc<str>, String>,
    turns: Turns,
    launches: Launches,
    /// The condition Ready of each claim, as it was last seen.
    claims_ready: BTreeMap<Uid, ClaimCondition>,
}

fn anchor_reason(anchor: &AnchorReport) -> &'static str {
    match anchor.trouble {
        AnchorTrouble::Missing => ANCHOR_MISSING,
        AnchorTrouble::Stuck => ANCHOR_STUCK,
        AnchorTrouble::Unproven => ANCHOR_UNPROVEN,
        AnchorTrouble::Foreign => ANCHOR_FOREIGN,
    }
}

impl Reporter {
    pub fn new(
        events: Events,
        kube: Option<Client>,
        metrics: Metrics,
        key_fingerprint: Option<String>,
        key_problem: Option<String>,
    ) -> Self {
        Self {
            events,
            kube,
            metrics,
            statuses: StatusWriter::default(),
            key_fingerprint,
            key_problem,
            said: Said::default(),
            logged: Said::default(),
            counted: BTreeSet::new(),
            refusals: BTreeMap::new(),
            unfit: Unfit::default(),
            held_up: BTreeMap::new(),
            answering: BTreeMap::new(),
            refusals_reported: BTreeSet::new(),
            excess: BTreeMap::new(),
            excess_reported: BTreeSet::new(),
            holding: Holding::default(),
            findings: Vec::new(),
            lacking: BTreeMap::new(),
            unused: BTreeMap::new(),
            join_problems: BTreeMap::new(),
            turns: Turns::default(),
            launches: Launches::default(),
            claims_ready: BTreeMap::new(),
        }
    }

    /// What is so, as the last tick saw it.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// A new term as leader begins.
    pub fn begin_term(&mut self) {
        self.statuses.begin_term();
        // Since when a thing is so is counted by whoever leads.
        self.holding = Holding::default();
    }

    /// Reports one tick. `launched`: those of its launches that have begun.
    pub async fn report(
        &mut self,
        plan: &Plan,
        launched: &BTreeSet<ClaimName>,
        world: &World,
        now: Timestamp,
    ) {
        let Report {
            pending,
            placements,
            rejected: _,
            nodes,
            unusable,
            policy_failures: _,
            waiting,
            frozen,
            anchors,
            replacing,
            orphans,
            doubts: _,
            findings,
        } = &plan.report;
        let begun = plan.launches.iter();
        let begun = begun.filter(|launch| launched.contains(&launch.claim));
        let begun = begun.map(|it| (&it.claim, decision::launch(&it.claim, &it.spec)));
        let begun: BTreeMap<_, _> = begun.collect();
        for shape in pending {
            self.pending(shape, &begun, world, now);
        }
        for placement in placements {
            self.placement(placement, &begun, world, now);
        }
        self.obstacles(world, now);
        let count = i64::try_from(orphans.len()).unwrap_or(i64::MAX);
        self.metrics.found.orphans.set(count);
        for orphan in orphans {
            self.orphan(orphan, world, now);
        }
        self.report_refusals(world, now);
        self.report_failures(&judge::failures(&plan.report), world, now);
        self.judge(&plan.report, world, now);
        self.report_credentials(world, now);
        self.report_waits(world, now);
        // The condition Ready of each pool says why. This one lasts too short a time for a look at it.
        for (name, why) in unusable {
            if let (Unusable::LaunchesPaused { .. }, Some(pool)) = (why, world.pools().get(name)) {
                let about = About::pool(name, &pool.existence.uid);
                self.warn(about, LAUNCHES_PAUSED, &why.to_string(), now);
            }
        }
        for (name, wait) in waiting {
            if let Some(pool) = world.pools().get(name) {
                self.warn(About::pool(name, &pool.existence.uid), WAITING, wait, now);
            }
        }
        let frozen = frozen.as_ref().map(|it| &*it.message);
        self.freeze(frozen, world, now);
        let anchors = anchors.iter().filter(|it| judge::is_known(it, world));
        let anchors: Vec<_> = anchors.collect();
        for anchor in &anchors {
            self.anchor(anchor, world, now);
        }
        self.count_removals(nodes, world);
        for node in nodes {
            if let NodeOutcome::Removing(reason) = &node.outcome {
                let about = About::node(&node.node);
                if self.news(&about, reason.event(), reason.as_str(), now) {
                    let decision = world.claims().get(&node.claim).map(decision::removal);
                    let decision_id = decision.as_ref().map(Digest::as_str);
                    tracing::info!(node = %node.node, claim = %node.claim, reason = reason.as_str(), decision_id, "removing");
                    let message = format!("kproxide removes the Node: {reason}");
                    let event = Event::new(reason.is_trouble(), about, reason.event(), message);
                    self.events.say(event.decided(decision));
                }
            }
        }
        for (name, what) in replacing {
            let Some(claim) = world.claims().get(name) else {
                continue;
            };
            let about = About::claim(name, &claim.uid);
            let message = what.to_string();
            if self.news(&about, what.event(), &message, now) {
                tracing::info!(claim = %name, reason = what.event(), text = message, "to be replaced");
                let event = Event::new(what.is_trouble(), about, what.event(), message);
                self.events.say(event);
            }
        }
        for Remark {
            severity,
            about,
            message,
        } in findings
        {
            let subject = (about.clone(), message.clone());
            if !self.logged.is_news(subject, "", REPEAT, now) {
                continue;
            }
            let counted = &self.metrics.findings;
            counted.with_label_values(&[severity.to_string()]).inc();
            match severity {
                Severity::Notice => tracing::debug!(about, text = message, "finding"),
                Severity::Warning => tracing::warn!(about, text = message, "finding"),
                Severity::Defect => tracing::error!(
                    about,
                    text = message,
                    "the plan broke an invariant; the action was dropped"
                ),
            }
        }
        self.measure(&plan.report, &anchors, world, now);
        self.follow_launches(world);
        if let Some(kube) = self.kube.clone()
            && tokio::time::timeout(
                STATUS_DEADLINE,
                self.write_statuses(&kube, &policies::failed(&plan.report), world, now),
            )
            .await
            .is_err()
        {
            tracing::warn!("status writes are slow; the rest follows with the next tick");
        }
        self.follow_claims(world);
        self.tell_turns(now);
    }

    /// Passes on what a drive says about its claim.
    pub fn note(&mut self, note: &ClaimNote, now: Timestamp) {
        let about = About::claim(&note.claim, &note.uid);
        let (reason, message) = (note.note.reason, note.note.message.clone());
        if reason == LAUNCH_FAILED {
            self.count_failure(note);
        }
        let decision_id = note.decision.as_ref().map(Digest::as_str);
        match note.note.warning {
            true => {
                tracing::warn!(claim = %note.claim, reason, text = message, decision_id, "claim")
            }
            false => {
                tracing::info!(claim = %note.claim, reason, text = message, decision_id, "claim")
            }
        }
        // One short pod after the other may keep a Node. The condition has the present one.
        let subject = (about.clone(), reason);
        let is_said = self.said.is_said(&subject, turns::PAUSE, now);
        if reason == SCALE_DOWN_BLOCKED && is_said {
            return;
        }
        self.said.is_news(subject, &message, REPEAT, now);
        let event = Event::new(note.note.warning, about, reason, message);
        self.events.say(event.decided(note.decision.clone()));
    }

    /// Volumes with the VMID of a machine that is gone. kproxide does not remove them, so it tells people.
    pub fn leftover(&mut self, leftover: &Leftover, world: &World) {
        let Leftover {
            cluster,
            vmid,
            hypervisor,
            pool,
            volumes,
        } = leftover;
        let commands: Vec<_> = volumes
            .iter()
            .map(|volume| format!("`pvesm free {volume}`"))
            .collect();
        let message = format!(
            "VM {vmid} of Proxmox cluster {cluster} is gone, but volumes with its VMID are there. Unless they belong to another cluster, remove them on {hypervisor}: {}",
            commands.join(", ")
        );
        self.metrics.findings.with_label_values(&["warning"]).inc();
        tracing::warn!(%cluster, vmid = vmid.0, text = message, "leftover volumes");
        if let Some(facts) = world.pools().get(pool) {
            let about = About::pool(pool, &facts.existence.uid);
            self.events
                .say(Event::warning(about, "LeakedVolume", message));
        }
    }

    /// Tells every pool that uses the policy what became of its file. A refused file is reported with the next plan, so
    /// that pools created later hear of it too.
    pub fn policy_reloaded(&mut self, reload: &Reload, world: &World) {
        let ReloadNews {
            result,
            reason,
            warning,
            message,
        } = ReloadNews::of(reload);
        self.metrics
            .policy_reloads
            .with_label_values(&[&*reload.policy, result])
            .inc();
        if warning {
            tracing::warn!(policy = %reload.policy, text = message, "policy file");
        } else {
            tracing::info!(policy = %reload.policy, text = message, "policy file");
        }
        let Some(reason) = reason else { return };
        for (name, pool) in world.pools() {
            if policies::used_by(pool).contains(&reload.policy) {
                let about = About::pool(name, &pool.existence.uid);
                let event = Event::new(warning, about, reason, message.clone());
                self.events.say(event);
            }
        }
    }

    /// Tells every pool, when a freeze begins and, while it lasts, again every few minutes.
    fn freeze(&mut self, frozen: Option<&str>, world: &World, now: Timestamp) {
        self.metrics.found.frozen.set(i64::from(frozen.is_some()));
        if let Some(message) = frozen {
            self.warn_pools_of(None, FROZEN, message, world, now);
        }
    }

    fn anchor(&mut self, anchor: &AnchorReport, world: &World, now: Timestamp) {
        let (cluster, message) = (Some(&anchor.cluster), &anchor.message);
        self.warn_pools_of(cluster, anchor_reason(anchor), message, world, now);
    }

    /// An anchor that Proxmox did not let us make or move on.
    pub fn refused_anchor(&mut self, refused: &RefusedAnchor, world: &World, now: Timestamp) {
        let RefusedAnchor { cluster, message } = refused;
        self.warn_pools_of(Some(cluster), ANCHOR_REFUSED, message, world, now);
    }

    /// Every pool that uses the Proxmox cluster is told.
    fn warn_pools_of(
        &mut self,
        cluster: Option<&ClusterName>,
        reason: &'static str,
        message: &str,
        world: &World,
        now: Timestamp,
    ) {
        for (name, pool) in world.pools() {
            if cluster.is_none_or(|cluster| uses(pool, cluster)) {
                self.warn(About::pool(name, &pool.existence.uid), reason, message, now);
            }
        }
    }

    /// What keeps kproxide from looking after its machines at all.
    fn obstacles(&mut self, world: &World, now: Timestamp) {
        if let Some(problem) = self.key_problem.clone() {
            self.warn_pools_of(None, KEY_PROBLEM, &problem, world, now);
        }
        for (name, claim) in world.claims() {
            let cluster = &claim.spec.cluster;
            if !world.clusters().contains_key(cluster) {
                let problem = format!(
                    "there is no ProxmoxCluster {cluster}, so kproxide knows nothing of VM {} and does nothing to it. Create the ProxmoxCluster again",
                    claim.spec.vmid
                );
                self.warn(
                    About::claim(name, &claim.uid),
                    "ClusterMissing",
                    &problem,
                    now,
                );
            }
        }
    }

    /// The Event is about its pool, or else its Node, because it has no claim.
    fn orphan(&mut self, orphan: &OrphanReport, world: &World, now: Timestamp) {
        let OrphanReport {
            cluster,
            vmid,
            pool,
            node,
            warning,
            word: _,
            message,
        } = orphan;
        let severity = if *warning { "warning" } else { "notice" };
        let subject = (format!("VM/{cluster}/{vmid}"), message.clone());
        if !self.logged.is_news(subject, "", REPEAT, now) {
            return;
        }
        self.metrics.findings.with_label_values(&[severity]).inc();
        tracing::warn!(%cluster, vmid = vmid.0, text = message, "a machine without a claim");
        let pool = pool.as_ref().and_then(|name| {
            let facts = world.pools().get(name)?;
            Some(About::pool(name, &facts.existence.uid))
        });
        if let Some(about) = pool.or_else(|| node.as_ref().map(About::node)) {
            let event = Event::new(*warning, about, reasons::ORPHAN.word, message.clone());
            self.events.say(event);
        }
    }

    fn warn(&mut self, about: About, reason: &'static str, message: &str, now: Timestamp) {
        if self.news(&about, reason, message, now) {
            tracing::warn!(?about, reason, text = message, "obstacle");
            self.events
                .say(Event::warning(about, reason, message.to_owned()));
        }
    }

    /// True if this was not said about it lately.
    fn news(&mut self, about: &About, reason: &'static str, message: &str, now: Timestamp) -> bool {
        self.said
            .is_news((about.clone(), reason), message, REPEAT, now)
    }
}
