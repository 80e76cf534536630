//! The loop: something changed, or time passed → observe → plan → act.
//!
//! Events are hints to look sooner; a tick takes no input but the world, so that a missed one costs latency, never correctness. Nothing that waits for Proxmox or
//! for a drain is awaited here: claims are driven by [`Actor`] beside the loop.

use std::collections::BTreeMap;
use std::time::Duration;

use kproxide_planner::facts::{Delta, HostFacts};
use kproxide_planner::plan::Plan;
use kproxide_planner::{Limits, Planning, World};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::act::Actor;
use crate::clock::Clock;
use crate::kube::lease::Leadership;
use crate::metrics::Metrics;
use crate::observe::Clusters;
use crate::policy::{Budget, Library, PolicyFiles, Reload};
use crate::reporter::Reporter;

/// When the loop plans.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A tick at least so often.
    pub poll_interval: Duration,
    /// A tick when nothing has changed for so long after a change …
    pub batch_idle: Duration,
    /// … or so long after the first of the changes.
    pub batch_max: Duration,
    pub inventory_max_age: Duration,
    pub cold_start: Duration,
}

/// Where the loop's events come from.
#[derive(Debug)]
pub struct Inputs {
    pub deltas: mpsc::Receiver<Vec<Delta>>,
    /// Every watch has delivered its first list.
    pub synced: watch::Receiver<bool>,
    pub leadership: watch::Receiver<Leadership>,
    pub policy_files: mpsc::Receiver<PolicyFiles>,
    pub debug_plan: mpsc::Receiver<oneshot::Sender<Vec<u8>>>,
    /// Becomes true when the process shall end.
    pub stop: watch::Receiver<bool>,
}

/// The loop's own state: the world, and nothing that a new list would not rebuild.
pub struct Autoscaler {
    pub clock: Clock,
    pub timing: Timing,
    pub limits: Limits,
    pub world: World,
    pub host: HostFacts,
    pub clusters: Clusters,
    pub policies: Library,
    pub actor: Actor,
    pub reporter: Reporter,
    pub metrics: Metrics,
    /// Tells the admin endpoints that the loop turns.
    pub turned: watch::Sender<Instant>,
}

/// Everything that can make the loop turn.
enum Event {
    Changed(Vec<Delta>),
    Files(PolicyFiles),
    Leadership,
    Acted,
    Debug(oneshot::Sender<Vec<u8>>),
    Due,
    Stop,
}

/// When the next tick is due.
struct Schedule {
    poll: Instant,
    /// First and last change since the last tick.
    changed: Option<(Instant, Instant)>,
}

impl Schedule {
    fn nudge(&mut self) {
        let now = Instant::now();
        self.changed = Some((self.changed.map_or(now, |(first, _)| first), now));
    }

    fn due(&self, timing: &Timing) -> Instant {
        match self.changed {
            None => self.poll,
            Some((first, last)) => self.poll.min(last + timing.batch_idle).min(first + timing.batch_max),
        }
    }
}

/// The last tick, for `/debug/plan`: a file that can be replayed.
#[derive(Serialize)]
struct DebugPlan<'a> {
    now: jiff::Timestamp,
    plan: Option<&'a Plan>,
    world: &'a World,
}

impl Autoscaler {
    /// Runs until told to stop; then lets running steps reach a safe point and returns.
    pub async fn run(mut self, mut inputs: Inputs) {
        let mut schedule = Schedule { poll: Instant::now(), changed: None };
        let mut last_plan = None;
        loop {
            self.turned.send_replace(Instant::now());
            match self.next_event(&mut inputs, schedule.due(&self.timing)).await {
                Event::Changed(deltas) => {
                    if self.apply(deltas).await {
                        schedule.nudge();
                    }
                }
                Event::Files(files) => {
                    if self.take_policies(files).await {
                        schedule.nudge();
                    }
                }
                Event::Leadership | Event::Acted => schedule.nudge(),
                Event::Debug(answer) => self.show(last_plan.as_ref(), answer),
                Event::Due => {
                    schedule = Schedule { poll: Instant::now() + self.timing.poll_interval, changed: None };
                    let leadership = inputs.leadership.borrow().clone();
                    if *inputs.synced.borrow()
                        && let Some(plan) = self.tick(&leadership).await
                    {
                        schedule.poll = schedule.poll.min(self.instant(plan.wake_at));
                        last_plan = Some(plan);
                    }
                }
                Event::Stop => break,
            }
        }
        tracing::info!("stopping: running steps come to a safe point");
        self.actor.stop().await;
    }

    async fn next_event(&mut self, inputs: &mut Inputs, due: Instant) -> Event {
        tokio::select! {
            biased;
            _ = inputs.stop.wait_for(|stop| *stop) => Event::Stop,
            Ok(()) = inputs.leadership.changed() => Event::Leadership,
            Some(answer) = inputs.debug_plan.recv() => Event::Debug(answer),
            Some(files) = inputs.policy_files.recv() => Event::Files(files),
            Some(deltas) = inputs.deltas.recv() => Event::Changed(deltas),
            () = self.actor.finished() => Event::Acted,
            () = tokio::time::sleep_until(due) => Event::Due,
        }
    }

    /// One pass: observe, plan, act. `None`: somebody else leads, or nothing can be planned yet.
    async fn tick(&mut self, leadership: &Leadership) -> Option<Plan> {
        let started = Instant::now();
        let leads = leadership.is_leader();
        self.metrics.leader.set(i64::from(leads));
        if !leads && !self.host.dry_run {
            self.host.armed_at = None;
            return None;
        }
        let now = self.clock.now();
        self.arm(leadership, now);
        for delta in self.clusters.refresh(self.timing.inventory_max_age, &self.clock).await {
            self.world.apply(delta);
        }
        let plan = self.plan(now).await;
        self.metrics.ticks.inc();
        self.metrics.tick_seconds.observe(started.elapsed().as_secs_f64());
        self.world.remember(&plan.decorations);
        self.reporter.report(&plan, &self.world, now).await;
        if !self.host.dry_run {
            self.actor.start(&plan, &self.world, leadership).await;
        }
        Some(plan)
    }

    async fn plan(&self, now: jiff::Timestamp) -> Plan {
        let mut budget = Budget::default();
        let mut planning = Planning::new(&self.world, now, self.limits);
        while let Some(question) = planning.question() {
            let answer = self.policies.ask(&question, &mut budget).await;
            self.metrics.count_answer(&question, &answer);
            planning.answer(answer);
        }
        planning.finish()
    }

    /// Nothing is destroyed before two full ticks and the cold-start time as leader: the first lists may be those of a cluster that is itself starting.
    fn arm(&mut self, leadership: &Leadership, now: jiff::Timestamp) {
        if self.host.armed_at.is_none() {
            let since = leadership.since().unwrap_or(now);
            let cold_start = jiff::SignedDuration::try_from(self.timing.cold_start).unwrap_or(jiff::SignedDuration::MAX);
            let earliest = since.checked_add(cold_start).unwrap_or(jiff::Timestamp::MAX);
            // A second tick comes after this one: never at this very moment.
            self.host.armed_at = Some(earliest.max(now.checked_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(now)));
            self.world.apply(Delta::Host(self.host.clone()));
        }
    }

    /// True if a tick is worthwhile.
    async fn apply(&mut self, deltas: Vec<Delta>) -> bool {
        let mut nudge = false;
        for delta in deltas {
            nudge |= is_news(&delta);
            self.world.apply(delta);
        }
        nudge
    }

    async fn take_policies(&mut self, files: PolicyFiles) -> bool {
        let reloads: Vec<Reload> = self.policies.sync(files).await;
        for reload in &reloads {
            self.reporter.policy_reloaded(reload).await;
        }
        self.tell_policies();
        !reloads.is_empty()
    }

    /// Tells the world which bytes answer for which name.
    pub fn tell_policies(&mut self) {
        let facts = self.policies.facts();
        let gone: Vec<_> = self.world.policies().keys().filter(|policy| !facts.contains_key(*policy)).cloned().collect();
        let gone = gone.into_iter().map(|policy| (policy, None));
        let known: BTreeMap<_, _> = facts.into_iter().map(|(policy, facts)| (policy, Some(facts))).collect();
        for (policy, facts) in gone.chain(known) {
            self.world.apply(Delta::Policy(policy, facts));
        }
    }

    fn show(&self, plan: Option<&Plan>, answer: oneshot::Sender<Vec<u8>>) {
        let shown = DebugPlan { now: self.clock.now(), plan, world: &self.world };
        let json = serde_json::to_vec(&shown).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}").into_bytes());
        // Whoever asked may have gone.
        let _ = answer.send(json);
    }

    /// The moment of tokio's clock at which the wall clock shows `at`.
    fn instant(&self, at: Option<jiff::Timestamp>) -> Instant {
        let wait = at.map(|at| Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default());
        Instant::now() + wait.unwrap_or(self.timing.poll_interval)
    }
}

/// Our own Ledger writes and the shell's own facts are no reason to plan again.
fn is_news(delta: &Delta) -> bool {
    match delta {
        Delta::Ledger(_) | Delta::Host(_) => false,
        Delta::Pod(..)
        | Delta::Node(..)
        | Delta::DaemonSet(..)
        | Delta::DisruptionBudget(..)
        | Delta::VolumeAttachment(..)
        | Delta::Cluster(..)
        | Delta::Class(..)
        | Delta::Pool(..)
        | Delta::Claim(..)
        | Delta::Inventory(..)
        | Delta::Policy(..) => true,
    }
}
