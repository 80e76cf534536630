//! Decides one tick, by questions and answers. The planner does no I/O: its caller asks the policies.
//!
//! ```text
//! let mut planning = Planning::new(&world, now, limits);
//! while let Some(question) = planning.question() { planning.answer(ask(question)) }
//! let plan = planning.finish();
//! ```
//!
//! [`Planning::question`] calls the steps in order. Each file below is one step, or something that several steps share. Its rooms, each on what stands before
//! it: which pods fit where ([`pods`]), machines as pods will see them ([`machines`]), hypervisors and their room ([`hypervisors`]), what becomes of the claims
//! that are there ([`claims`]), what is made ([`up`]) and what goes ([`down`]).

mod pods;

pub(crate) mod machines;

mod hypervisors;

mod claims;

mod up;

mod down;

#[cfg(any(test, feature = "fixtures"))]
pub mod expected;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use self::claims::drain_backoff::keepers;
pub use self::hypervisors::room::{
    addresses_left, addresses_rested, addresses_used_up, vmids_rested, vmids_used_up,
};
pub use self::hypervisors::sites::{Clones, Offer, clones, free, offers};
use self::machines::learned::Learned;
pub use self::pods::filters::Filters;
pub use self::pods::moved::moved;
pub use self::pods::registering::{promised_devices, registering};
pub use self::pods::returning_pods::ends_with_machine;
pub use self::up::outdated::{Outdated, outdated};
pub use self::up::pools::{limit_reached, machines_left};
use crate::check;
use crate::claim::backoff_with_open_claims;
pub use crate::facts::limits::Limits;
use crate::facts::{Backoff, LedgerFacts, PolicyRef};
use crate::guard::upkeep;
use crate::ids::PoolName;
use crate::plan::question::{Answer, AnswerBody, Question};
use crate::plan::report::{PolicyFailure, Remark, Report, Severity};
use crate::plan::{
    Adoption, Advance, AnchorStep, Awaited, DecorationMemo, Launch, Plan, Preference, Removable,
    RemovalReason, Unneeded, Verdict,
};
use crate::world::World;

/// One tick under way. See the module.
pub struct Planning<'w> {
    tick: Tick<'w>,
    step: Step,
    /// The Ledger as this plan leaves it.
    ledger: LedgerFacts,
    /// Its back-off, and that of failed launches whose claims are not closed yet.
    backoff: Vec<Backoff>,
    rows: Vec<claims::stages::ClaimState<'w>>,
    pools: Vec<up::pools::PoolPlan<'w>>,
    hypervisors: hypervisors::sites::Hypervisors<'w>,
    decorating: up::decorate::Decorating,
    snapshot: up::snapshot::ClusterSnapshot<'w>,
    turns: pods::topology::Turns,
    needs: Vec<up::schedule::Need<'w>>,
    placing: up::placement::Placing,
    scale_down: down::scale_down::ScaleDown,
    /// Number of machines of which the breaker allows a share.
    machines: u32,
    launches: Vec<Launch>,
    adoptions: Vec<Adoption>,
    anchors: Vec<AnchorStep>,
    unneeded: Vec<Unneeded>,
    removable: Vec<Removable>,
    preferences: Vec<Preference>,
    awaited: Awaited,
    /// What real Nodes have shown, as of this snapshot.
    learned: Learned,
    report: Report,
    /// A policy was asked. The next time it may answer differently on the same world, so the plan cannot be reused.
    has_asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claims,
    Decorate,
    Schedule,
    ScaleUp,
    Placement,
    ScaleDown,
    Order,
    Done,
}

/// What every step knows: the world, the time now, and the next time at which the plan changes without an event.
struct Tick<'w> {
    world: &'w World,
    now: Timestamp,
    limits: Limits,
    wake_at: Option<Timestamp>,
    findings: Vec<Remark>,
    /// What the clock says of each pool.
    pool_times: BTreeMap<PoolName, claims::pool_times::PoolTimes>,
}

impl Tick<'_> {
    /// Whether this moment has come. If not, a tick is due then. All comparisons with the clock go through here, except
    /// those of times in the Ledger, whose upkeep reports the next one.
    fn reached(&mut self, moment: Timestamp) -> bool {
        if self.now >= moment {
            return true;
        }
        self.wake_at = Some(self.wake_at.map_or(moment, |earlier| earlier.min(moment)));
        false
    }

    fn found(&mut self, severity: Severity, about: impl Into<String>, message: impl Into<String>) {
        self.findings.push(Remark {
            severity,
            about: about.into(),
            message: message.into(),
        });
    }
}

impl<'w> Planning<'w> {
    pub fn new(world: &'w World, now: Timestamp, limits: Limits) -> Self {
        Self {
            tick: Tick {
                world,
                now,
                limits,
                wake_at: None,
                findings: Vec::new(),
                pool_times: BTreeMap::new(),
            },
            // Nothing has changed since the last plan, and that plan still holds.
            step: match world.settled_plan(now) {
                Some(_) => Step::Done,
                None => Step::Claims,
            },
            ledger: LedgerFacts::default(),
            backoff: Vec::new(),
            rows: Vec::new(),
            pools: Vec::new(),
            hypervisors: hypervisors::sites::Hypervisors::default(),
            decorating: up::decorate::Decorating::default(),
            snapshot: up::snapshot::ClusterSnapshot::default(),
            turns: pods::topology::Turns::default(),
            needs: Vec::new(),
            placing: up::placement::Placing::default(),
            scale_down: down::scale_down::ScaleDown::default(),
            machines: 0,
            launches: Vec::new(),
            adoptions: Vec::new(),
            anchors: Vec::new(),
            unneeded: Vec::new(),
            preferences: Vec::new(),
            removable: Vec::new(),
            awaited: Awaited::default(),
            learned: Learned::default(),
            report: Report::default(),
            has_asked: false,
        }
    }

    /// The next question, or `None` when the plan is complete. Without an answer in between it returns the same
    /// question.
    pub fn question(&mut self) -> Option<Question> {
        loop {
            self.step = match self.step {
                Step::Claims => {
                    self.read_ledger();
                    self.read_times();
                    self.judge_claims();
                    self.see_to_orphans();
                    self.prepare_pools();
                    Step::Decorate
                }
                Step::Decorate => match self.decorate_question() {
                    Some(question) => return Some(Question::Decorate(question)),
                    None => Step::Schedule,
                },
                Step::Schedule => {
                    self.take_snapshot();
                    self.hold_room();
                    self.schedule();
                    self.review_drains();
                    Step::ScaleUp
                }
                Step::ScaleUp => {
                    let room = self.scale_up();
                    self.replace(room);
                    self.withdraw_needless();
                    self.give_up_kept();
                    Step::Placement
                }
                Step::Placement => match self.rank_question() {
                    Some(question) => return Some(Question::Rank(question)),
                    None => Step::ScaleDown,
                },
                Step::ScaleDown => {
                    self.find_removable();
                    Step::Order
                }
                Step::Order => match self.order_question() {
                    Some(question) => return Some(Question::Order(question)),
                    None => {
                        self.remove();
                        self.prefer_other_nodes();
                        Step::Done
                    }
                },
                Step::Done => return None,
            };
        }
    }

    /// Takes the answer to the last question. If the answer is of another kind than the question, the policy has
    /// failed.
    pub fn answer(&mut self, answer: Answer) {
        self.has_asked = true;
        match self.step {
            Step::Decorate => self.take_decorations(answer),
            Step::Placement => self.take_ranking(answer),
            Step::Order => self.take_order(answer),
            Step::Claims | Step::Schedule | Step::ScaleUp | Step::ScaleDown | Step::Done => {}
        }
    }

    /// The plan. A question without an answer counts as deferred.
    pub fn finish(mut self) -> Plan {
        if let Some(plan) = self.tick.world.settled_plan(self.tick.now) {
            return plan.clone();
        }
        while self.question().is_some() {
            self.answer(Answer::of("".into(), AnswerBody::Deferred));
        }
        self.review_awaited();
        self.report_pending();
        self.report_nodes();
        self.tell_removable();
        self.into_plan()
    }

    /// Reports each failure once per pool, although a policy is asked for every instance type and every machine.
    fn policy_failed(&mut self, pool: &PoolName, policy: &PolicyRef, reason: String) {
        let failure = PolicyFailure {
            pool: pool.clone(),
            policy: policy.clone(),
            reason,
        };
        if !self.report.policy_failures.contains(&failure) {
            self.report.policy_failures.push(failure);
        }
    }

    fn into_plan(mut self) -> Plan {
        let advances = self.rows.iter().map(|row| Advance {
            claim: row.name.clone(),
            uid: row.claim.uid.clone(),
            verdict: row.verdict.clone(),
        });
        let decorations: Vec<DecorationMemo> = self.decorating.memos;
        self.report.findings = self.tick.findings;
        let replacing = self.rows.iter();
        self.report.replacing = replacing
            .filter_map(|row| Some((row.name.clone(), row.replacing.clone()?)))
            .collect();
        let stands = match self.tick.world.ledger() {
            Some(ledger) => *ledger == self.ledger,
            None => self.ledger == LedgerFacts::default(),
        };
        let finalizers = claims::finalizers::steps(self.tick.world, &self.ledger, &self.launches);
        let mut plan = Plan {
            ledger: (!stands).then_some(self.ledger),
            launches: self.launches,
            adoptions: self.adoptions,
            anchors: self.anchors,
            finalizers,
            advances: advances.collect(),
            unneeded: self.unneeded,
            removable: self.removable,
            preferences: self.preferences,
            decorations,
            awaited: self.awaited,
            report: self.report,
            wake_at: self.tick.wake_at,
            settled_at: None,
        };
        check::enforce(self.tick.world, self.tick.now, &self.tick.limits, &mut plan);
        let is_settled = !self.has_asked
            && plan.ledger.is_none()
            && plan.launches.is_empty()
            && plan.adoptions.is_empty()
            && plan.finalizers.is_empty()
            && plan.unneeded.is_empty()
            && plan.removable.is_empty()
            && plan.preferences.is_empty()
            && plan.awaited == *self.tick.world.awaited();
        plan.settled_at = is_settled.then_some(self.tick.now);
        plan
    }

    fn read_ledger(&mut self) {
        let upkeep::Upkeep {
            ledger,
            findings,
            frozen,
            anchors,
            wake_at,
        } = upkeep::upkeep(self.tick.world, self.tick.now, self.tick.limits.quarantine);
        self.backoff = backoff_with_open_claims(&ledger, self.tick.world);
        for row in &self.backoff {
            self.tick.reached(row.until);
        }
        self.ledger = ledger;
        self.report.frozen = frozen;
        self.report.anchors = anchors.reports;
        self.anchors = anchors.steps;
        self.tick.findings.extend(findings);
        if let Some(moment) = wake_at {
            self.tick.reached(moment);
        }
    }
}

impl claims::stages::ClaimState<'_> {
    fn remove(&mut self, reason: RemovalReason) {
        self.verdict = Verdict::Remove(reason);
        self.stage = claims::stages::Stage::Leaving;
    }
}

#[cfg(test)]
mod tests;
