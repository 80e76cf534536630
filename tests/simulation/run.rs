//! One run: the world lives, hosts run over it and die, people do what the scenario says; then everything must come to rest.

mod people;
mod rest;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::time::Duration;

use futures::future::{LocalBoxFuture, join_all};
use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use jiff::Timestamp;
use kproxide_controller::app::App;
use kproxide_lab::{HostHandle, Lab, config};
use kproxide_policy::PolicyFile;
use kproxide_simulator::faults::Fault;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::bound::bound;
use crate::broken::edge::mistake_settings;
use crate::conditions::Conditions;
use crate::effects::Effects;
use crate::history::{Foreign, History, until_foreign_is_touched};
use crate::invariants::Watch;
use crate::log::Log;
use crate::mishaps::{Mishap, World};
use crate::plan::{CutOff, FaultPlan, HostPlan, Split};
use crate::scenario::{Flags, Scenario, TRAP};
use crate::settings::Settings;
use crate::settled::EndState;
use crate::vain::Vain;
use crate::wire::{Traffic, Wires};

/// How often is looked whether the world is at rest.
const LOOK: Duration = Duration::from_secs(10);
/// A host that lost its Lease to a blow reaches it again so long after it may believe that it leads.
const WITHOUT_LEASE: Duration = Duration::from_secs(30);
/// Until all that is told at one moment is noted.
const NOTED: Duration = Duration::from_millis(1);
/// Static Nodes are Ready by then, and hosts start.
pub(crate) const PRELUDE: Duration = Duration::from_secs(30);

const NAMES: [&str; 2] = ["kproxide-0", "kproxide-1"];

/// What goes on at the same time. Whoever is woken is polled alone, and not all with him at every change in the world.
type Parts<'a> = FuturesUnordered<LocalBoxFuture<'a, Result<Result<Foreign, String>, String>>>;

/// What one run came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) end: EndState,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) machines_made: usize,
    /// Splits that found a leader, with whether the Lease was taken away too.
    pub(crate) splits: Vec<(CutOff, bool)>,
    /// Machines of ours that people copied.
    pub(crate) copies: u64,
    /// Nodes that somebody wanted kept.
    pub(crate) kept: u64,
    /// Of these, those onto a VMID that was promised to a claim.
    pub(crate) promised: u64,
    /// Mishaps that found something that they could happen to.
    pub(crate) mishaps: Vec<Mishap>,
    /// Freezes of which people said that they are meant.
    pub(crate) acknowledged: usize,
    /// Interrupted clones that people removed.
    pub(crate) cleared: usize,
    pub(crate) hypervisors: u32,
    /// As many as were wanted at one time.
    pub(crate) pods: u32,
    /// At some time more than a pool may have machines for.
    pub(crate) wanted_too_much: bool,
    /// Whether the last load needs a machine.
    pub(crate) ends_with_machine: bool,
    /// From the end of all faults and the last change of load to rest, and how long that may take.
    pub(crate) rest: Duration,
    pub(crate) bound: Duration,
    pub(crate) virtual_time: Duration,
}

impl Outcome {
    /// Something of its plan came about.
    pub(crate) fn met_faults(&self) -> bool {
        self.traffic
            .iter()
            .any(|traffic| traffic.crashes + traffic.refused > 0 || !traffic.by_chance.is_empty())
            || !self.mishaps.is_empty()
    }

    /// How often something went wrong with an effect, in all replicas.
    pub(crate) fn struck(&self) -> u64 {
        let met = self.traffic.iter().flat_map(|traffic| traffic.met.values());
        met.sum()
    }

    /// What happened, in one line.
    pub(crate) fn report(&self) -> String {
        let sum = |of: fn(&Traffic) -> u64| self.traffic.iter().map(of).sum::<u64>();
        format!(
            "{:.1} virtual hours, at rest {:.0} minutes after the last fault of at most {:.0}, {} machines, {} effects, {} crashes, {} splits, {} mishaps, {} faults of requests, {} requests cut off, {} copies",
            self.virtual_time.as_secs_f64() / 3600.0,
            self.rest.as_secs_f64() / 60.0,
            self.bound.as_secs_f64() / 60.0,
            self.machines_made,
            sum(|traffic| traffic.effects),
            sum(|traffic| traffic.crashes),
            self.splits.len(),
            self.mishaps.len(),
            sum(|traffic| traffic.by_chance.values().sum()),
            sum(|traffic| traffic.refused),
            self.copies
        )
    }
}

/// Runs a scenario to its end under a plan. `beside` looks on from the moment in which hosts start; if it returns, it says why the run ends.
///
/// # Errors
/// What did not hold. The log tells how it came to that.
pub(crate) async fn run(
    scenario: &Scenario,
    plan: &FaultPlan,
    log: &Log,
    beside: impl AsyncFnOnce(&Lab, &Log) -> String,
) -> Result<Outcome, String> {
    let started = Instant::now();
    let lab = scenario.build();
    let mut history = History::new(&lab);
    let mut watch = Watch::new(&lab, scenario.flags.lease.duration);
    let mut effects = Effects::new(&lab);
    let calm = Cell::new(false);
    let mut settings = Settings::new(&lab, scenario, &calm);
    let mut vain = Vain::new(&lab);
    let mut conditions = Conditions::new(&lab);
    sleep(PRELUDE).await;
    let stage = Stage {
        lab: &lab,
        scenario,
        log,
        wires: NAMES
            .iter()
            .zip(0..)
            .take(plan.hosts.len())
            .map(|(name, index)| Wires::new(name, scenario.seed + (index << 32), log))
            .collect(),
        stop: CancellationToken::new(),
        calm: &calm,
        happened: RefCell::default(),
    };
    let mut parts = Parts::new();
    parts.push(stops("the API server", history.follow(&lab)));
    parts.push(stops("the API server", watch.follow(&lab)));
    parts.push(stops("the API server", effects.follow(&lab)));
    parts.push(stops("the API server", settings.follow(&lab)));
    parts.push(stops("the API server", vain.follow(&lab)));
    parts.push(stops("the API server", conditions.follow(&lab)));
    parts.push(stops("Proxmox", tell_machines(&stage)));
    parts.push(stops("whoever takes Leases", stage.take_leases()));
    if plan.dies_when_other_is_blind {
        parts.push(stops("whoever looks", stage.die_when_other_is_blind()));
    }
    parts.push(Box::pin(async {
        Err(until_foreign_is_touched(&lab).await)
    }));
    parts.push(Box::pin(async { Err(beside(&lab, log).await) }));
    parts.push(Box::pin(async {
        let played = stage.play(plan).await;
        // Whoever takes notes gets to the last of them.
        sleep(NOTED).await;
        Ok(played)
    }));
    let ended = parts.next().await;
    drop(parts);
    let played = ended.expect("somebody plays")?;
    let forgot = stage.happened.borrow().forgot;
    let mut violations = watch.violations(&lab, scenario, forgot);
    violations.extend(effects.violations(&lab));
    violations.extend(settings.violations());
    violations.extend(vain.violations());
    violations.extend(conditions.violations());
    let cleared = stage.happened.borrow().cleared.clone();
    violations.extend(history.violations(&lab, scenario, &cleared));
    match played {
        Ok(foreign) => violations.extend(foreign.changed(&lab)),
        // What it came to, after what led to it.
        Err(error) => violations.push(error),
    }
    if !violations.is_empty() {
        return Err(violations.join("\n"));
    }
    let Happened {
        splits,
        copies,
        kept,
        promised,
        mishaps,
        forgot: _,
        acknowledged,
        cleared,
        rest,
    } = stage.happened.take();
    Ok(Outcome {
        end: EndState::of(&lab),
        traffic: stage.wires.iter().map(Wires::traffic).collect(),
        machines_made: History::machines_made(&lab),
        splits,
        copies,
        kept,
        promised,
        mishaps,
        acknowledged,
        cleared: cleared.len(),
        hypervisors: scenario.hypervisors,
        pods: scenario.most_pods(),
        wanted_too_much: scenario.wants_too_much(),
        ends_with_machine: (0..scenario.pools.len()).any(|pool| scenario.machines_needed(pool) > 0),
        rest,
        bound: bound(scenario, plan),
        virtual_time: started.elapsed(),
    })
}

/// Somebody who never comes to an end, unless what he follows does.
fn stops<'a>(
    what: &'static str,
    follows: impl Future<Output = ()> + 'a,
) -> LocalBoxFuture<'a, Result<Result<Foreign, String>, String>> {
    Box::pin(async move {
        follows.await;
        Err(format!("{what} stopped"))
    })
}

struct Stage<'a> {
    lab: &'a Lab,
    scenario: &'a Scenario,
    log: &'a Log,
    wires: Vec<Wires>,
    stop: CancellationToken,
    /// Nothing goes wrong now.
    calm: &'a Cell<bool>,
    happened: RefCell<Happened>,
}

/// What of a plan and a scenario came about: not everything finds what it needs.
#[derive(Default)]
struct Happened {
    splits: Vec<(CutOff, bool)>,
    copies: u64,
    kept: u64,
    promised: u64,
    mishaps: Vec<Mishap>,
    /// When the Ledger lost something that it knew.
    forgot: Option<Timestamp>,
    acknowledged: usize,
    /// By their incarnations.
    cleared: Vec<u64>,
    /// From the end of all faults and the last change of load.
    rest: Duration,
}

impl Stage<'_> {
    /// The whole story. Returns other people's things as they left them.
    async fn play(&self, plan: &FaultPlan) -> Result<Foreign, String> {
        let hosts = self
            .wires
            .iter()
            .zip(&plan.hosts)
            .map(|(wires, host)| self.replica(wires, host));
        let story = async {
            let (foreign, ()) = tokio::join!(self.people(), self.misfortunes(plan));
            let took = self.come_to_rest(plan).await?;
            self.happened.borrow_mut().rest = took;
            self.encore(plan).await?;
            if let Some(quarantine) = self.scenario.quarantine {
                self.stay_at_rest(quarantine).await?;
                self.come_to_rest(plan).await?;
            }
            self.stop.cancel();
            Ok::<_, String>(foreign)
        };
        let mut parts =
            FuturesUnordered::<LocalBoxFuture<'_, Result<Option<Foreign>, String>>>::new();
        for host in hosts {
            parts.push(Box::pin(async {
                host.await?;
                Ok(None)
            }));
        }
        parts.push(Box::pin(async { Ok(Some(story.await?)) }));
        let mut foreign = None;
        // The first that goes wrong ends the others too: hosts run until they are stopped.
        while let Some(ended) = parts.try_next().await? {
            foreign = foreign.or(ended);
        }
        drop(parts);
        self.restart().await?;
        Ok(foreign.expect("the story came to its end"))
    }

    /// The processes of one replica, one after the other.
    async fn replica(&self, wires: &Wires, plan: &HostPlan) -> Result<(), String> {
        wires.faults.set_rates(plan.rates);
        wires.strike(&plan.blows);
        if plan.takes_notes {
            wires.sight.take_notes();
        }
        if let Some(blind) = &plan.blind {
            wires.sight.lose(blind.clone());
        }
        sleep(plan.starts).await;
        for request in &plan.lost {
            let matcher = request.parse().expect("the plan names known requests");
            wires.faults.inject(matcher, Fault::LoseAnswer, 1);
        }
        let lives = plan
            .lives
            .iter()
            .copied()
            .map(Some)
            .chain(std::iter::repeat(None));
        for (life, number) in lives.zip(1_u32..) {
            wires.begin(life);
            self.log
                .line(wires.name, &format!("process {number} starts"));
            let (app, handle) = self.host(wires, number);
            let faults = wires.faults.clone();
            tokio::select! {
                biased;
                () = faults.crashed() => {}
                ended = self.until_stopped(app, &handle) => return ended,
            }
            self.log.line(wires.name, &format!("process {number} dies"));
            let down = life.map(|life| life.down).unwrap_or_default();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sleep(down) => {}
            }
        }
        Ok(())
    }

    fn host(&self, wires: &Wires, process: u32) -> (App, HostHandle) {
        // Randomness is another one in every process.
        let randomness = format!("{}/{process}", wires.name);
        let mut config = config(wires.name);
        let Flags {
            poll_interval,
            lease,
            anchor,
        } = self.scenario.flags;
        (config.timing.poll_interval, config.lease) = (poll_interval, lease);
        config.anchor = anchor;
        if let Some(quarantine) = self.scenario.quarantine {
            config.limits.quarantine = quarantine
                .try_into()
                .expect("the scenario's quarantine is short");
        }
        if self.scenario.has_trap() {
            config.policy_dirs = vec!["/policies".into()];
        }
        mistake_settings(&mut config);
        let host = self.lab.host_over(
            &randomness,
            config,
            wires.kube(self.lab),
            wires.proxmox(self.lab),
        );
        let (app, handle) = host.expect("policies run on every platform that the tests run on");
        if self.scenario.has_trap() {
            let hostile = kproxide_builtins::HOSTILE.iter();
            let trap = hostile
                .filter(|policy| policy.name == "hostile")
                .map(|policy| (TRAP.into(), PolicyFile::alone(policy.wasm)));
            let sent = handle.policy_files.try_send(trap.collect());
            sent.expect("a new host takes one set of files");
        }
        (app, handle)
    }

    async fn until_stopped(&self, app: App, handle: &HostHandle) -> Result<(), String> {
        let running = app.run();
        tokio::pin!(running);
        tokio::select! {
            biased;
            ended = &mut running => return Err(format!("a host ended by itself: {ended:?}")),
            () = self.stop.cancelled() => handle.stop.cancel(),
        }
        running
            .await
            .map_err(|error| format!("a host did not stop in order: {error:?}"))
    }

    /// Splits and mishaps at their times, and the end of all faults.
    async fn misfortunes(&self, plan: &FaultPlan) {
        let started = Instant::now();
        let splits = async {
            for split in &plan.splits {
                sleep_until(started + split.at).await;
                self.split(split).await;
            }
        };
        let world = World {
            lab: self.lab,
            log: self.log,
            wires: &self.wires,
        };
        let world = &world;
        let mishaps = plan.mishaps.iter().map(|event| async move {
            if world.happen(started, event).await {
                let mut happened = self.happened.borrow_mut();
                happened.mishaps.push(event.mishap);
                if event.mishap.makes_forget() {
                    happened.forgot = Some(self.lab.clock.now());
                }
            }
        });
        tokio::join!(splits, join_all(mishaps));
        sleep_until(started + plan.until).await;
        for wires in &self.wires {
            wires.faults.calm();
            wires.spare();
        }
        self.log.line("world", "faults end");
    }

    async fn split(&self, split: &Split) {
        let Split {
            at: _,
            length,
            from,
            lease_moves,
        } = *split;
        let lease = self
            .lab
            .kube
            .get("leases.coordination.k8s.io", "kube-system", "kproxide");
        let holder = lease
            .as_ref()
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str())
            .unwrap_or_default()
            .to_owned();
        let Some(wires) = self
            .wires
            .iter()
            .find(|wires| holder.starts_with(wires.name))
        else {
            return;
        };
        self.log
            .line("world", &format!("{} is cut off from {from:?}", wires.name));
        wires.cut(Some(from));
        let split = (from, lease_moves);
        self.happened.borrow_mut().splits.push(split);
        if lease_moves {
            self.free_lease();
        }
        sleep(length).await;
        self.log
            .line("world", &format!("{} reaches everything again", wires.name));
        wires.cut(None);
    }

    /// Takes the Lease from whoever holds it; before the first leader nobody does.
    fn free_lease(&self) {
        let (resource, namespace, name) = ("leases.coordination.k8s.io", "kube-system", "kproxide");
        if self.lab.kube.get(resource, namespace, name).is_some() {
            let patch = json!({"spec": {"holderIdentity": ""}});
            let moved = self.lab.kube.patch(resource, "", namespace, name, patch);
            moved.expect("the Lease is there");
        }
    }

    /// Takes the Lease away whenever a blow cuts the first replica off from it.
    async fn take_leases(&self) {
        let wires = &self.wires[0];
        loop {
            wires.lease_lost().await;
            self.log
                .line("world", &format!("{} loses its Lease", wires.name));
            self.free_lease();
            sleep(self.scenario.flags.lease.renew_deadline + WITHOUT_LEASE).await;
            self.log
                .line("world", &format!("{} reaches everything again", wires.name));
            wires.cut(None);
        }
    }

    async fn die_when_other_is_blind(&self) {
        let [first, second] = &self.wires[..] else {
            return pending().await;
        };
        second.sight.is_behind().await;
        self.log
            .line("world", &format!("{} sees nothing new", second.name));
        first.die();
        pending().await
    }

    fn effects(&self) -> u64 {
        self.wires.iter().map(Wires::effects).sum()
    }

    fn anchor_moves(&self) -> u64 {
        self.wires.iter().map(Wires::anchor_moves).sum()
    }
}

/// Machines that start, stop and go, in the log.
async fn tell_machines(stage: &Stage<'_>) {
    let mut events = stage.lab.pve.machine_events();
    while let Some(event) = events.recv().await {
        stage.log.line("proxmox", &format!("{event:?}"));
    }
    pending().await
}
