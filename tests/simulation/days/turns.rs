//! How often kproxide goes back on what it did.
//!
//! A *change of the demand* of a pool is a change of its pods after which they need another number of machines. A *launch* is a claim that is made (not one that
//! takes up a machine whose claim was lost), a *removal* the moment in which kproxide deletes a claim whose machine was in service and is well: it runs, and its
//! Node is Ready. What fails before it is in service is a failed launch and its end no removal; a claim that somebody deletes, or whose machine or Node is gone, off
//! or not Ready, is a loss.
//!
//! A *reversal* is a launch of a pool after a removal of the same pool, or the other way round, however much later, with neither a change of the pool's demand
//! between the two nor a mishap that begins or ends between them: with those there is a reason. Crashes, lost answers and splits are no reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kproxide_lab::Lab;
use kproxide_simulator::kube::{Change, ChangeKind, Verb};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::{DAY, curve};
use crate::log::Log;
use crate::object::{CLAIMS, condition_is_true, name, text};
use crate::plan::FaultPlan;
use crate::scenario::Scenario;

const DEPLOYMENTS: &str = "deployments.apps";

/// What [`Turns::note`] wants to know of.
pub(super) fn changes(lab: &Lab) -> UnboundedReceiver<Arc<Change>> {
    lab.kube.subscribe(&[CLAIMS, DEPLOYMENTS]).1
}

/// Collects what each pool did on each day.
pub(super) struct Turns<'a> {
    scenario: &'a Scenario,
    started: Instant,
    /// When something goes wrong with the world or is well again, after the beginning, in order.
    mishaps: Vec<Duration>,
    pools: Vec<Pool>,
    claims: BTreeMap<String, Claim>,
    /// So much of the audit was looked at.
    seen: usize,
    /// Claims that were deleted by somebody else than a host.
    deleted_by_people: BTreeSet<String>,
}

#[derive(Default)]
struct Pool {
    needed: u32,
    /// What was done last, unless there is a reason since to do something else.
    last: Option<(Way, Duration)>,
    days: Vec<Counts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Launch,
    Removal,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    changes: u32,
    launches: u32,
    failed: u32,
    removals: u32,
    lost: u32,
    reversals: u32,
}

struct Claim {
    was_in_service: bool,
    is_deleted: bool,
}

impl<'a> Turns<'a> {
    pub(super) fn new(scenario: &'a Scenario, plan: &FaultPlan) -> Self {
        let mut mishaps: Vec<Duration> = plan
            .mishaps
            .iter()
            .flat_map(|event| [event.at, event.at + event.length])
            .collect();
        mishaps.sort_unstable();
        Self {
            scenario,
            // Set anew when the run begins: there is no virtual time yet.
            started: Instant::now(),
            mishaps,
            pools: scenario.pools.iter().map(|_| Pool::default()).collect(),
            claims: BTreeMap::new(),
            seen: 0,
            deleted_by_people: BTreeSet::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.started = Instant::now();
    }

    pub(super) fn pools(&self) -> impl Iterator<Item = &'static str> + use<> {
        let names: Vec<&'static str> = self.scenario.pools.iter().map(|pool| pool.name).collect();
        names.into_iter()
    }

    /// Takes in one of [`changes`], in the instant in which it happens.
    pub(super) fn note(&mut self, lab: &Lab, log: &Log, change: &Change) {
        let object = change.object.value();
        if change.resource.to_string() == DEPLOYMENTS {
            self.note_load(&object);
        } else {
            self.note_claim(lab, log, change.kind, &object);
        }
    }

    fn note_load(&mut self, deployment: &Value) {
        let name = &deployment["metadata"]["name"];
        let Some(app) = self.scenario.apps.iter().find(|app| *name == *app.name) else {
            return;
        };
        let pods = deployment["spec"]["replicas"].as_u64().unwrap_or(0) as u32;
        let needed = pods.div_ceil(curve::on_a_machine(app));
        let day = self.today();
        let pool = &mut self.pools[app.pool];
        if pool.needed != needed {
            (pool.needed, pool.last) = (needed, None);
            pool.of(day).changes += 1;
        }
    }

    fn note_claim(&mut self, lab: &Lab, log: &Log, kind: ChangeKind, object: &Value) {
        let (name, day) = (name(object), self.today());
        let mut pools = self.scenario.pools.iter();
        let Some(pool) = pools.position(|pool| object["spec"]["pool"] == pool.name) else {
            return;
        };
        match kind {
            ChangeKind::Added => {
                let claim = Claim {
                    was_in_service: false,
                    is_deleted: false,
                };
                self.claims.insert(name.to_owned(), claim);
                if object["spec"]["adopts"].is_null() {
                    self.pools[pool].of(day).launches += 1;
                    self.turn(pool, Way::Launch, name, log);
                }
            }
            ChangeKind::Modified => {
                let Some(claim) = self.claims.get_mut(name) else {
                    return;
                };
                claim.was_in_service |= object["status"]["phase"] == "Initialized";
                if claim.is_deleted || object["metadata"]["deletionTimestamp"].is_null() {
                    return;
                }
                claim.is_deleted = true;
                let was_in_service = claim.was_in_service;
                self.look_for_people(lab);
                let counts = self.pools[pool].of(day);
                if !was_in_service {
                    counts.failed += 1;
                } else if self.deleted_by_people.contains(name) || !is_well(lab, object) {
                    counts.lost += 1;
                } else {
                    counts.removals += 1;
                    self.turn(pool, Way::Removal, name, log);
                }
            }
            ChangeKind::Deleted => {
                self.claims.remove(name);
                self.deleted_by_people.remove(name);
            }
        }
    }

    /// A pool launched or removed a machine by its own will.
    fn turn(&mut self, pool: usize, way: Way, claim: &str, log: &Log) {
        let (day, now) = (self.today(), self.started.elapsed());
        let next = |since: Duration| {
            self.mishaps[self.mishaps.partition_point(|at| *at < since)..].first()
        };
        let before = self.pools[pool].last.filter(|(_, since)| {
            // None began or ended since.
            next(*since).is_none_or(|at| *at > now)
        });
        if let Some((other, since)) = before.filter(|(other, _)| *other != way) {
            self.pools[pool].of(day).reversals += 1;
            let name = self.scenario.pools[pool].name;
            let text = format!(
                "pool {name}: {way:?} of {claim} reverses a {other:?} of {} s ago",
                (now - since).as_secs()
            );
            log.line("days", &text);
        }
        self.pools[pool].last = Some((way, now));
    }

    /// Takes in which claims were deleted by others than hosts.
    pub(super) fn look_for_people(&mut self, lab: &Lab) {
        let entries = lab.kube.audit_since(self.seen);
        self.seen += entries.len();
        let by_people = entries.into_iter().filter(|entry| {
            entry.verb == Verb::Delete
                && entry.resource == CLAIMS
                && !entry.user.starts_with("kproxide-")
        });
        self.deleted_by_people
            .extend(by_people.map(|entry| entry.name));
    }

    fn today(&self) -> usize {
        (self.started.elapsed().as_secs() / DAY.as_secs()) as usize
    }

    /// The world in a few words.
    pub(super) fn world(&self) -> String {
        let pools: Vec<String> = self
            .scenario
            .pools
            .iter()
            .map(|pool| format!("{} (at most {} Nodes)", pool.name, pool.max_nodes))
            .collect();
        format!(
            "{} hypervisors, pools {}",
            self.scenario.hypervisors,
            pools.join(", ")
        )
    }

    /// What each pool did on each day, in the order of days.
    pub(super) fn days(&self) -> Vec<String> {
        let days = self.pools.iter().map(|pool| pool.days.len()).max();
        let line = |day: usize| {
            let pools = self.scenario.pools.iter().zip(&self.pools);
            let counts = pools.map(|(pool, turns)| {
                let counts = turns.days.get(day).copied().unwrap_or_default();
                format!("{} {}", pool.name, counts.told())
            });
            counts.collect::<Vec<_>>().join("; ")
        };
        (0..days.unwrap_or(0)).map(line).collect()
    }

    pub(super) fn sum(&self) -> String {
        let mut sum = Counts::default();
        for counts in self.pools.iter().flat_map(|pool| &pool.days) {
            sum.add(*counts);
        }
        let pool_days = self.pools.iter().map(|pool| pool.days.len()).sum::<usize>();
        format!(
            "{}: {:.2} reversals a pool and day, {:.3} a change of demand",
            sum.told(),
            f64::from(sum.reversals) / pool_days.max(1) as f64,
            f64::from(sum.reversals) / f64::from(sum.changes.max(1))
        )
    }

    /// Pools that went back on themselves more often than their demand changed on some day, and days without a change, which show nothing.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (pool, turns) in self.scenario.pools.iter().zip(&self.pools) {
            for (day, counts) in (1..).zip(&turns.days) {
                if counts.reversals > counts.changes {
                    missed.push(format!(
                        "pool {}, day {day}: {} reversals for {} changes of its demand",
                        pool.name, counts.reversals, counts.changes
                    ));
                }
            }
            if turns.days.iter().all(|counts| counts.changes == 0) {
                missed.push(format!("the demand of pool {} never changed", pool.name));
            }
        }
        missed
    }
}

impl Pool {
    fn of(&mut self, day: usize) -> &mut Counts {
        if self.days.len() <= day {
            self.days.resize(day + 1, Counts::default());
        }
        &mut self.days[day]
    }
}

impl Counts {
    fn told(self) -> String {
        let Self {
            changes,
            launches,
            failed,
            removals,
            lost,
            reversals,
        } = self;
        format!(
            "{changes} changes of demand, {launches} launches ({failed} failed), {removals} removals, {lost} lost, {reversals} reversals"
        )
    }

    fn add(&mut self, other: Self) {
        self.changes += other.changes;
        self.launches += other.launches;
        self.failed += other.failed;
        self.removals += other.removals;
        self.lost += other.lost;
        self.reversals += other.reversals;
    }
}

/// The machine of a claim runs, and its Node is Ready.
fn is_well(lab: &Lab, claim: &Value) -> bool {
    let snapshot = lab.pve.snapshot();
    let mut vms = snapshot.vms.iter();
    let runs = vms.any(|vm| u64::from(vm.vmid) == claim["spec"]["vmid"] && vm.running);
    let node = lab
        .kube
        .get("nodes", "", text(&claim["status"]["nodeName"]))
        .unwrap_or_default();
    runs && condition_is_true(&node, "Ready")
}
