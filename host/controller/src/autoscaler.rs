//! The loop: something changed, or time passed → observe → plan → act.
//!
//! Events only make the loop look sooner. A tick takes no input beyond the world, so a missed event costs time, never
//! correctness. Everything that a tick waits for has a deadline: Proxmox's inventories, policies' answers, the write of
//! the Ledger, the writes of statuses. Longer work runs beside the loop: [`Actor`] drives claims, and a task compiles
//! and tests new policy files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::facts::{ClaimFacts, Delta, HostFacts};
use kproxide_planner::plan::Plan;
use kproxide_planner::planning::{Limits, Planning};
use kproxide_planner::time::later;
use kproxide_planner::world::World;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::act::{Actor, ClaimNote, Started};
use crate::judge::Finding;
use crate::metrics::Metrics;
use crate::observe::{self, Clusters};
use crate::reporter::{Reporter, policies};
use kproxide_common::chain::chain;
use kproxide_common::clock::Clock;
use kproxide_common::decisions::{Deciding, Decisions};
use kproxide_common::lines;
use kproxide_kube::lease::Fence;
use kproxide_kube::watch::{self as kube_watch, Change, Report};
use kproxide_policy::{Budget, Library, PolicyFiles, Reload, Reloading};
use kproxide_pve::limits::Concurrency;

/// Clocks that differ by no more than this count as equal, because an answer may take half a minute.
const CLOCKS_AGREE: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Changes come first, so that a tick plans with all that is known. But changes that cost more time than they leave put no tick off for longer than this.
const LATE: Duration = Duration::from_secs(1);
/// The loop turns at least this often, however long `--poll-interval` is: who looks whether it is alive must see it.
const TURN: Duration = Duration::from_secs(20);

/// When the loop plans.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// There is a tick at least this often.
    pub poll_interval: Duration,
    /// There is a tick when nothing has changed for this long after a change …
    pub batch_idle: Duration,
    /// … and this long after the first change at the latest.
    pub batch_max: Duration,
    pub inventory_max_age: Duration,
    pub cold_start: Duration,
}

/// Where the loop's events come from.
#[derive(Debug)]
pub struct Inputs {
    pub watches: mpsc::Receiver<Report>,
    /// Whether this process leads. A dry run plans as if it did.
    pub fence: Fence,
    pub policy_files: mpsc::Receiver<PolicyFiles>,
    /// Events that drives send about their claims.
    pub notes: mpsc::Receiver<ClaimNote>,
    pub debug_plan: mpsc::Receiver<oneshot::Sender<Vec<u8>>>,
    /// Set when the process has to end.
    pub stop: CancellationToken,
}

/// The loop's own state. New lists rebuild all of it, except the loop's own pace.
pub struct Autoscaler {
    pub clock: Clock,
    pub timing: Timing,
    pub limits: Limits,
    pub world: World,
    pub clusters: Clusters,
    pub policies: Library,
    pub actor: Actor,
    pub reporter: Reporter,
    pub metrics: Metrics,
    /// Tells the admin endpoints that the loop turns.
    pub turned: watch::Sender<Instant>,
    /// Tells them that every watch has delivered its first list.
    pub synced: watch::Sender<bool>,
    pub term: Term,
    pub reloading: Reloading,
    /// Read by `/debug/decisions`.
    pub decisions: Decisions,
}

/// Our present term as leader.
#[derive(Debug, Default)]
pub struct Term {
    epoch: Option<Arc<str>>,
    /// When it began, and how many ticks it has had.
    since: jiff::Timestamp,
    ticks: u32,
    kinds_synced: BTreeSet<kube_watch::Kind>,
    kinds_failing: BTreeSet<kube_watch::Kind>,
}

/// Everything that can make the loop turn.
enum Event {
    Watched(Report),
    Files(PolicyFiles),
    Reloaded(Vec<Reload>),
    Leadership,
    Acted,
    Note(ClaimNote),
    Debug(oneshot::Sender<Vec<u8>>),
    Due,
    /// Nothing is to be done, and the loop is alive.
    Turn,
    Stop,
}

/// A change comes first, unless a tick has been late for [`LATE`].
async fn change(watches: &mut mpsc::Receiver<Report>, due: Instant, has_begun: bool) -> Event {
    tokio::select! {
        biased;
        () = tokio::time::sleep_until(due + LATE), if has_begun => Event::Due,
        Some(report) = watches.recv() => Event::Watched(report),
        // The watches have ended.
        else => std::future::pending().await,
    }
}

/// When the next tick is due.
struct Schedule {
    poll: Instant,
    /// When the last tick ended. However long it took, the changes that came meanwhile are taken before the next one.
    ended: Instant,
    /// First and last change since the last tick.
    changed: Option<(Instant, Instant)>,
}

impl Schedule {
    fn nudge(&mut self) {
        let now = Instant::now();
        self.changed = Some((self.changed.map_or(now, |(first, _)| first), now));
    }

    fn due(&self, timing: &Timing) -> Instant {
        let due = match self.changed {
            None => self.poll,
            Some((first, last)) => self
                .poll
                .min(last + timing.batch_idle)
                .min(first + timing.batch_max),
        };
        due.max(self.ended)
    }
}

/// The last tick, for `/debug/plan`: a file that can be replayed.
#[derive(Serialize)]
struct DebugPlan<'a> {
    now: jiff::Timestamp,
    plan: Option<&'a Plan>,
    findings: &'a [Finding],
    world: &'a World,
}

impl Autoscaler {
    /// Runs until told to stop; then lets running steps reach a safe point and returns.
    pub async fn run(mut self, mut inputs: Inputs) {
        let mut schedule = Schedule {
            poll: Instant::now(),
            ended: Instant::now(),
            changed: None,
        };
        let mut last_plan = None;
        loop {
            self.turned.send_replace(Instant::now());
            match self
                .next_event(&mut inputs, schedule.due(&self.timing))
                .await
            {
                Event::Watched(report) => {
                    if self.take_report(report) {
                        schedule.nudge();
                    }
                }
                Event::Files(files) => self.reloading.begin(&self.policies, files),
                Event::Reloaded(reloads) => {
                    if self.take_policies(&reloads) {
                        schedule.nudge();
                    }
                }
                Event::Leadership => {
                    if self.take_leadership(&inputs.fence) {
                        schedule.nudge();
                    }
                }
                Event::Acted => schedule.nudge(),
                Event::Note(note) => self.reporter.note(&note, self.clock.now()),
                Event::Debug(answer) => self.show(last_plan.as_ref(), answer),
                Event::Due => {
                    schedule.poll = Instant::now() + self.timing.poll_interval;
                    schedule.changed = None;
                    lines::turn();
                    self.take_leadership(&inputs.fence);
                    if let Some(plan) = self.tick().await {
                        schedule.poll = schedule.poll.min(self.instant(plan.wake_at));
                        last_plan = Some(plan);
                    }
                    schedule.ended = Instant::now();
                }
                Event::Turn => {}
                Event::Stop => break,
            }
        }
        tracing::info!("stopping: running steps come to a safe point");
        self.actor.stop().await;
    }

    async fn next_event(&mut self, inputs: &mut Inputs, due: Instant) -> Event {
        let has_begun = self.reloading.has_begun();
        tokio::select! {
            biased;
            () = inputs.stop.cancelled() => Event::Stop,
            () = inputs.fence.changed() => Event::Leadership,
            Some(files) = inputs.policy_files.recv(), if self.reloading.is_idle() => Event::Files(files),
            reloads = self.reloading.news() => Event::Reloaded(reloads),
            Some(note) = inputs.notes.recv() => Event::Note(note),
            event = change(&mut inputs.watches, due, has_begun) => event,
            () = self.actor.finished() => Event::Acted,
            () = tokio::time::sleep_until(due), if has_begun => Event::Due,
            () = tokio::time::sleep(TURN) => Event::Turn,
            // Last, so that a reader of /debug/plan does not keep the loop from its work.
            Some(answer) = inputs.debug_plan.recv() => Event::Debug(answer),
        }
    }

    /// One pass: observe, plan, act. `None`: another replica leads, or the first lists are not complete.
    async fn tick(&mut self) -> Option<Plan> {
        let term = self.term.epoch.clone()?;
        if !*self.synced.borrow() {
            return None;
        }
        let started = Instant::now();
        self.world.regroup();
        for delta in self
            .clusters
            .refresh(
                self.timing.inventory_max_age,
                observe::wanted(&self.world),
                &self.clock,
            )
            .await
        {
            self.world.apply(delta);
        }
        self.look_at_definition().await;
        self.look_at_clock();
        for delta in self.actor.look_for_orphans(&self.world).await {
            self.world.apply(delta);
        }
        let unclaimed = self.actor.unclaimed(&self.world).await;
        self.host(|host| host.unclaimed = unclaimed);
        let now = self.clock.now();
        self.arm();
        let removing = self.actor.removing();
        self.host(|host| host.removing = removing);
        let mut budget = Budget::default();
        let used = policies::used(&self.world);
        let unfit = self.policies.judge(used, &mut budget).await;
        self.reporter.judge_policies(unfit);
        let plan = self.plan(now, budget).await;
        self.metrics.ticks.inc();
        self.metrics
            .tick_seconds
            .observe(started.elapsed().as_secs_f64());
        let since_1970 = self.clock.now().as_duration();
        self.metrics.last_tick.set(since_1970.as_secs_f64());
        self.world.remember(&plan);
        let mut started = Started::default();
        if !self.world.host().dry_run {
            started = self.actor.start(&plan, &self.world, &term).await;
            if let Some(ledger) = started.ledger.take() {
                self.world.apply(Delta::Ledger(Some(ledger)));
            }
        }
        for refused in &started.refused_anchors {
            self.reporter.refused_anchor(refused, &self.world, now);
        }
        self.reporter.judge_credentials(&self.clusters);
        let join_problems = self.actor.join_problems(&self.world);
        self.reporter.judge_join_files(join_problems);
        self.reporter.judge_claims(self.actor.held_up());
        self.reporter
            .report(&plan, &started.launched, &self.world, now)
            .await;
        if !self.world.host().dry_run {
            for leftover in self.actor.look_for_leftovers(&self.world).await {
                self.reporter.leftover(&leftover, &self.world);
            }
        }
        Some(plan)
    }

    /// Only if there is a reason: one of our objects is deleted, claims cannot be watched, or a definition was missing
    /// the last time.
    async fn look_at_definition(&mut self) {
        let world = &self.world;
        let objects_go = {
            let pools = world.pools().values().map(|it| &it.existence);
            let classes = world.classes().values().map(|it| &it.existence);
            let clusters = world.clusters().values().map(|it| &it.existence);
            let mut all = pools.chain(classes).chain(clusters);
            all.any(|it| it.deleting_since.is_some())
        };
        let deleted = |claim: &ClaimFacts| claim.deleting_since.is_some();
        let suspicious = world.host().definition_problem.is_some()
            || self.term.kinds_failing.contains(&kube_watch::Kind::Claims)
            || world.claims().values().any(deleted)
            || objects_go;
        if !suspicious {
            return;
        }
        let problem = match self.actor.definition_problem().await {
            Ok(problem) => problem,
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "whether the definitions of our objects stand is not known"
                );
                // A deleted claim is looked at once more before its machine goes. For a deleted pool this is the look.
                if !objects_go {
                    return;
                }
                Some(format!(
                    "kproxide could not read whether the CustomResourceDefinitions stand, and tries again: {error}"
                ))
            }
        };
        if problem == self.world.host().definition_problem {
            return;
        }
        match &problem {
            Some(problem) => tracing::error!(problem, "nothing is launched or removed"),
            None => tracing::info!("the CustomResourceDefinitions stand again"),
        }
        self.host(|host| host.definition_problem = problem);
    }

    /// An age is our time minus a time that another machine wrote, such as a Node's heartbeat. If the clocks disagree,
    /// ages are wrong.
    fn look_at_clock(&mut self) {
        let off = self.actor.clock_ahead().and_then(clock_off);
        let problem = off.map(|off| {
            format!(
                "{off}. kproxide cannot trust ages, so it removes nothing. Correct the clock (NTP) of the machine that is wrong. If it is kproxide's, kproxide then restarts by itself"
            )
        });
        if problem == self.world.host().clock_problem {
            return;
        }
        // Logged when it begins and when it ends, not with each minute more.
        match (&problem, &self.world.host().clock_problem) {
            (Some(problem), None) => tracing::error!(problem, "nothing is removed"),
            (Some(_), Some(_)) => {}
            (None, _) => tracing::info!("the clocks agree again"),
        }
        self.host(|host| host.clock_problem = problem);
    }

    /// Changes what the world knows of this process.
    fn host(&mut self, change: impl FnOnce(&mut HostFacts)) {
        let mut host = self.world.host().clone();
        change(&mut host);
        if host != *self.world.host() {
            self.world.apply(Delta::Host(host));
        }
    }

    async fn plan(&self, now: jiff::Timestamp, mut budget: Budget) -> Plan {
        let mut deciding = Deciding::at(now);
        let mut planning = Planning::new(&self.world, now, self.limits);
        while let Some(question) = planning.question() {
            let (asked, before) = (Instant::now(), budget.fuel_left);
            let answer = self.policies.ask(&question, &mut budget).await;
            let took = asked.elapsed();
            let fuel = before - budget.fuel_left;
            self.metrics.count_answer(&question, &answer, took, fuel);
            deciding.answer(&mut planning, &question, answer);
        }
        let plan = planning.finish();
        self.decisions.keep(&deciding.settled(&plan));
        plan
    }

    /// A new leader destroys nothing before two full ticks and `--cold-start`: the whole cluster may be starting just
    /// now, so that its first lists do not show everything yet.
    fn arm(&mut self) {
        self.term.ticks = self.term.ticks.saturating_add(1);
        if self.world.host().armed_at.is_some() {
            return;
        }
        if self.term.ticks > 2 {
            let cold_start = jiff::SignedDuration::try_from(self.timing.cold_start)
                .unwrap_or(jiff::SignedDuration::MAX);
            let armed_at = later(self.term.since, cold_start);
            self.host(|host| host.armed_at = Some(armed_at));
        }
    }

    /// True if a term as leader began, so that a tick is due.
    fn take_leadership(&mut self, fence: &Fence) -> bool {
        let epoch = fence.leads().then(|| fence.epoch());
        if epoch == self.term.epoch {
            return false;
        }
        self.metrics.leader.set(i64::from(epoch.is_some()));
        match &epoch {
            Some(epoch) => {
                tracing::info!(%epoch, "leading");
                self.reporter.begin_term();
            }
            None => {
                tracing::info!("somebody else leads");
                self.metrics.forget_found();
            }
        }
        (self.term.since, self.term.ticks) = (self.clock.now(), 0);
        self.term.epoch = epoch;
        let leads_since = self.term.epoch.is_some().then_some(self.term.since);
        self.host(|host| (host.armed_at, host.leads_since) = (None, leads_since));
        self.term.epoch.is_some()
    }

    /// True if a tick is due.
    fn take_report(&mut self, report: Report) -> bool {
        match report {
            Report::Changes(_, changes) => {
                let mut nudge = false;
                for change in changes {
                    nudge |= self.take_change(change);
                }
                nudge
            }
            Report::Synced(kind) => {
                self.term.kinds_synced.insert(kind);
                let all = kube_watch::Kind::ALL
                    .iter()
                    .all(|kind| self.term.kinds_synced.contains(kind));
                if all && !self.synced.send_replace(true) {
                    tracing::info!("the first lists are complete");
                }
                all
            }
            Report::Failed(kind, problem) => {
                tracing::warn!(%kind, problem, "a watch failed and is tried again");
                self.term.kinds_failing.insert(kind);
                self.note_failing_watches();
                false
            }
            Report::Recovered(kind) => {
                tracing::info!(%kind, "a watch works again");
                self.term.kinds_failing.remove(&kind);
                self.note_failing_watches();
                true
            }
        }
    }

    /// Failing watches of the kinds that say which pods are on a Node and which may leave. While one of them fails,
    /// kproxide removes nothing.
    fn note_failing_watches(&mut self) {
        use kube_watch::Kind;
        let failing = self.term.kinds_failing.iter();
        let failing = failing
            .filter(|kind| matches!(kind, Kind::Pods | Kind::Nodes | Kind::DisruptionBudgets))
            .map(ToString::to_string)
            .collect();
        self.host(|host| host.failing_watches = failing);
    }

    fn take_change(&mut self, change: Change) -> bool {
        match change {
            Change::Delta(delta) => {
                if let Delta::Cluster(cluster, Some(facts)) = &delta {
                    self.clusters.limit(
                        cluster,
                        Concurrency {
                            per_storage: facts.concurrency.per_storage as usize,
                            per_hypervisor: facts.concurrency.per_hypervisor as usize,
                        },
                    );
                }
                if let Delta::Pool(pool, None) = &delta {
                    self.policies.forget_pool(pool);
                }
                self.reporter.forget_changed(&delta);
                let news = is_news(&delta);
                self.world.receive(delta);
                news
            }
            Change::Connection(cluster, connection) => {
                if connection.is_none() {
                    // The ProxmoxCluster is gone, so forget its inventory.
                    self.world.apply(Delta::Inventory(cluster.clone(), None));
                }
                self.clusters.configure(&cluster, connection);
                true
            }
            Change::Unreadable(problem) => {
                tracing::warn!(
                    object = problem.object,
                    %problem,
                    "an object cannot be read; what was known of it still counts"
                );
                false
            }
        }
    }

    fn take_policies(&mut self, reloads: &[Reload]) -> bool {
        for reload in reloads {
            self.reporter.policy_reloaded(reload, &self.world);
        }
        self.reporter.refuse(self.policies.refusals());
        self.apply_policies();
        !reloads.is_empty()
    }

    /// Tells the world which bytes answer for which name.
    pub fn apply_policies(&mut self) {
        self.reporter.answering(self.policies.answering());
        let facts = self.policies.facts();
        let gone: Vec<_> = self
            .world
            .policies()
            .keys()
            .filter(|policy| !facts.contains_key(*policy))
            .cloned()
            .collect();
        let gone = gone.into_iter().map(|policy| (policy, None));
        let known: BTreeMap<_, _> = facts
            .into_iter()
            .map(|(policy, facts)| (policy, Some(facts)))
            .collect();
        for (policy, facts) in gone.chain(known) {
            self.world.apply(Delta::Policy(policy, facts));
        }
    }

    fn show(&self, plan: Option<&Plan>, answer: oneshot::Sender<Vec<u8>>) {
        let shown = DebugPlan {
            now: self.clock.now(),
            plan,
            findings: self.reporter.findings(),
            world: &self.world,
        };
        let json = serde_json::to_vec(&shown)
            .unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}").into_bytes());
        // The reader may have gone.
        let _ = answer.send(json);
    }

    /// The moment of tokio's clock at which the wall clock shows `at`.
    fn instant(&self, at: Option<jiff::Timestamp>) -> Instant {
        let wait = at
            .map(|at| Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default());
        Instant::now() + wait.unwrap_or(self.timing.poll_interval)
    }
}

/// By how much this process's clock is off, in words. `ahead`: its lead over the API server's clock. `None`: the clocks
/// agree.
pub fn clock_off(ahead: jiff::SignedDuration) -> Option<String> {
    let (off, side) = match ahead.is_negative() {
        true => (ahead.abs(), "behind"),
        false => (ahead, "ahead of"),
    };
    (off > CLOCKS_AGREE).then(|| {
        let minutes = off.as_mins();
        format!("this process's clock is {minutes} minutes {side} the API server's")
    })
}

/// Our own Ledger writes and the shell's own facts are no reason to plan again. Nor is the free room of a storage: drivers
/// write it every minute, and a pod that waits for it is looked at with the next poll.
fn is_news(delta: &Delta) -> bool {
    !matches!(
        delta,
        Delta::Ledger(_) | Delta::Host(_) | Delta::StorageCapacity(..)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kproxide_kube::watch::Kind;

    /// Changes that never end, and each takes 100 ms.
    #[tokio::test(start_paused = true)]
    async fn s12_changes_put_a_tick_off_for_a_second_and_no_longer() {
        let (more, mut watches) = mpsc::channel(100);
        for _ in 0..100 {
            more.try_send(Report::Recovered(Kind::Pods)).unwrap();
        }
        let due = Instant::now() + Duration::from_millis(500);
        let mut taken = 0;
        while let Event::Watched(_) = change(&mut watches, due, true).await {
            taken += 1;
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(taken, 15);
        // A tick that takes longer than it is to the next one would otherwise leave no time for any.
        let schedule = Schedule {
            poll: due,
            ended: Instant::now(),
            changed: None,
        };
        let second = Duration::from_secs(1);
        let timing = Timing {
            poll_interval: second,
            batch_idle: second,
            batch_max: second,
            inventory_max_age: second,
            cold_start: second,
        };
        let due = schedule.due(&timing);
        let next = change(&mut watches, due, true).await;
        assert!(matches!(next, Event::Watched(_)));
        // Before the policies were read there is no tick.
        let next = change(&mut watches, due, false).await;
        assert!(matches!(next, Event::Watched(_)));
    }
}
