//! How many machines the law of loops allows in this tick ([`crate::guard::loops`]), and why no more.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::pools::{Offer, PoolPlan};
use super::schedule::Need;
use crate::facts::{PodSpec, RemovalReason, Tried, Tries};
use crate::guard::loops::{self, Key, PATIENCE};
use crate::ids::{ClaimName, Digest, InstanceTypeName};
use crate::keys::OF_POOL;
use crate::mutants::{Mutant, broken};
use crate::plan::report::{InVainWhy, Misfit, Why};
use crate::planning::Planning;
use crate::planning::claims::stages::{ClaimState, Stage};
use crate::planning::machines::csi::Shown;
use crate::planning::machines::shape;
use crate::planning::pods::fit::Place;
use crate::time::later;
use crate::world::NodeView;

/// A workload, and a digest of what the scheduler reads of its pods.
pub(in crate::planning) type MadeFor = (Arc<str>, Digest);

/// Which pods of a need may have machines of a pool in this tick.
#[derive(Default)]
pub(in crate::planning) struct Share {
    pub(in crate::planning) count: u32,
    /// Offers that none of these pods may have.
    pub(in crate::planning) closed: Vec<usize>,
    /// Whose pods they are, and how many of each.
    workloads: Vec<(MadeFor, u32)>,
    /// Why the other pods get none.
    pub(in crate::planning) why: Option<Why>,
    /// When that changes.
    pub(in crate::planning) until: Option<Timestamp>,
}

impl Share {
    /// For whom a machine is that takes so many of the pods.
    pub(in crate::planning) fn take(&mut self, mut count: u32) -> Vec<MadeFor> {
        let mut taken = Vec::new();
        for (made_for, left) in &mut self.workloads {
            let part = count.min(*left);
            if part > 0 {
                taken.push(made_for.clone());
            }
            *left -= part;
            count -= part;
        }
        taken
    }
}

/// Whether a workload may have a machine of one type.
enum Turn {
    Free,
    /// One machine, and one row by its place in the Ledger.
    Trial(usize),
    Rests(Why, Option<Timestamp>),
}

/// In [`Granted`]: a machine of a type is tried whose last Nodes offered too little.
const RETRIED: usize = usize::MAX;

/// Rows of which a machine is tried in this tick, by their place in the Ledger.
pub(in crate::planning) type Granted = BTreeSet<usize>;

impl<'w> Planning<'w> {
    /// Pods of workloads that do not rest go first. If there are none, one pod is tried.
    pub(in crate::planning) fn share(
        &self,
        pool: &PoolPlan<'w>,
        need: &Need<'_>,
        granted: &mut Granted,
    ) -> Share {
        let pods = loops::pods_digest(&need.spec);
        let is_large = |offer: &Offer<'_>| offer.free.misfit(&need.spec).is_none();
        let offers = pool.offers.iter().enumerate();
        let offers: Vec<_> = offers.filter(|(_, offer)| is_large(offer)).collect();
        // What is tried again in spite of what Nodes have shown is for pods that nothing else holds.
        let is_retry = !offers.is_empty() && offers.iter().all(|(_, offer)| offer.is_retry);
        let retries = |closed: &mut Vec<usize>| {
            let retries = offers
                .iter()
                .filter(|(_, offer)| offer.is_retry && !is_retry);
            closed.extend(retries.map(|(index, _)| *index));
        };
        let mut share = Share::default();
        retries(&mut share.closed);
        let mut trial: Option<(MadeFor, Vec<usize>, Vec<usize>)> = None;
        for (workload, count) in workloads(need) {
            let made_for = (workload, pods.clone());
            let (mut free, mut tried, mut closed, mut rows) = (false, false, vec![], vec![]);
            for (index, offer) in offers
                .iter()
                .filter(|(_, offer)| offer.is_retry == is_retry)
            {
                let turn = self.turn_of(pool, &made_for, &offer.instance_type.name, &need.spec);
                match turn {
                    Turn::Free => free = true,
                    Turn::Trial(row) if !granted.contains(&row) => {
                        tried = true;
                        rows.push(row);
                    }
                    Turn::Trial(_) => closed.push(*index),
                    Turn::Rests(why, until) => {
                        closed.push(*index);
                        share.why.get_or_insert(why);
                        share.until = share.until.into_iter().chain(until).min();
                    }
                }
            }
            let is_free = free && closed.is_empty() && rows.is_empty() && !is_retry;
            if is_free || offers.is_empty() {
                share.count += count;
                share.workloads.push((made_for, count));
            } else if free || tried {
                trial.get_or_insert((made_for, closed, if free { vec![] } else { rows }));
            }
        }
        if is_retry && trial.is_some() && !granted.insert(RETRIED) {
            share.why = Some(Why::NextTick);
            return share;
        }
        if let (0, Some((made_for, closed, rows))) = (share.count, trial) {
            granted.extend(&rows);
            share.closed.extend(closed);
            share.count = 1;
            share.workloads.push((made_for, 1));
        }
        share.count = share.count.min(need.left);
        // One machine is tried, for one pod of this need or of another.
        if share.count < need.left {
            share.why.get_or_insert(Why::NextTick);
        }
        share
    }

    fn turn_of(
        &self,
        pool: &PoolPlan<'w>,
        (workload, pods): &MadeFor,
        instance_type: &InstanceTypeName,
        spec: &PodSpec,
    ) -> Turn {
        let key = pool.key(workload, pods, instance_type);
        if broken(Mutant::LoopsWithoutEnd) {
            return Turn::Free;
        }
        let mut turn = Turn::Free;
        for row in loops::whole_rows(&self.ledger, &key) {
            match self.resting(pool, row) {
                Some(rests @ Turn::Rests(..)) => return rests,
                // One machine is tried for the whole namespace.
                Some(trial) if matches!(turn, Turn::Free) || row.is_of_namespace() => turn = trial,
                Some(_) | None => {}
            }
        }
        let Some(row) = loops::row(&self.ledger, &key) else {
            return turn;
        };
        if let Some(of_row) = self.resting(pool, row) {
            return match (turn, of_row) {
                // One machine is tried for the whole workload.
                (Turn::Trial(whole), Turn::Trial(_)) => Turn::Trial(whole),
                (_, of_row) => of_row,
            };
        }
        // Whether it was made in vain is known when it is gone.
        if let Some(tried) = row.machines.iter().find(|tried| self.goes_unused(tried)) {
            return Turn::Rests(in_vain(pool, row, Some(&tried.claim), self.tick.now), None);
        }
        let mut refusals = row.machines.iter().filter_map(|tried| {
            let row = self.rows.iter().find(|row| *row.name == tried.claim)?;
            let node = row.node?;
            let misfit = self.refusal_of(pool, spec, row, &node)?;
            Some((node.name().clone(), misfit))
        });
        match refusals.next() {
            Some((node, misfit)) => {
                let misfit = Box::new(misfit);
                Turn::Rests(Why::MadeInVain { node, misfit }, None)
            }
            None => turn,
        }
    }

    /// Why no machine of this type may be made for pods of this workload now, and when that changes.
    pub(in crate::planning) fn rest_of(
        &self,
        pool: &PoolPlan<'w>,
        made_for: &MadeFor,
        instance_type: &InstanceTypeName,
        spec: &PodSpec,
    ) -> Option<(Why, Option<Timestamp>)> {
        match self.turn_of(pool, made_for, instance_type, spec) {
            Turn::Rests(why, until) => Some((why, until)),
            Turn::Free | Turn::Trial(_) => None,
        }
    }

    /// `None`: none of its machines was in vain.
    fn resting(&self, pool: &PoolPlan<'w>, row: &Tries) -> Option<Turn> {
        let until = row.rests_until()?;
        let mut standing = row.machines.iter();
        let standing = standing.find(|tried| !row.is_of_pool() || self.is_on_trial(row, tried));
        let why = |standing| in_vain(pool, row, standing, until);
        Some(match standing {
            Some(tried) => Turn::Rests(why(Some(&tried.claim)), None),
            None if self.tick.now < until => Turn::Rests(why(None), Some(until)),
            None => Turn::Trial(self.index_of(row)),
        })
    }

    fn index_of(&self, row: &Tries) -> usize {
        let mut rows = self.ledger.tries.iter();
        let is_it = rows.position(|other| std::ptr::eq(other, row));
        is_it.expect("it is a row of this Ledger")
    }

    /// No pod has used it yet, and kproxide drains it because nobody needs it.
    fn goes_unused(&self, tried: &Tried) -> bool {
        let row = self.rows.iter().find(|row| *row.name == tried.claim);
        row.filter(|row| row.stage == Stage::Leaving)
            .and_then(|row| row.claim.status.removal())
            .is_some_and(RemovalReason::scales_down)
    }

    /// A machine for minNodes or headroom stands unused as a rule. It has shown enough when it was in service for a while.
    fn is_on_trial(&self, row: &Tries, tried: &Tried) -> bool {
        let Some(claim) = self.tick.world.claims().get(&tried.claim) else {
            return true;
        };
        let served = claim.status.since(crate::claim::Condition::Initialized);
        row.at.is_some_and(|at| claim.created > at)
            && served.is_none_or(|since| self.tick.now < later(since, PATIENCE))
    }

    /// Why the pool makes no machine of this type for minNodes and headroom. `Ok`: whether one machine is tried.
    pub(in crate::planning) fn turn_of_pool(
        &self,
        pool: &PoolPlan<'w>,
        instance_type: &InstanceTypeName,
    ) -> Result<bool, Why> {
        let (workload, pods) = of_pool();
        let key = pool.key(&workload, &pods, instance_type);
        let row = loops::row(&self.ledger, &key);
        match row.and_then(|row| self.resting(pool, row)) {
            _ if broken(Mutant::LoopsWithoutEnd) => Ok(false),
            Some(Turn::Rests(why, _)) => Err(why),
            Some(Turn::Trial(_)) => Ok(true),
            Some(Turn::Free) | None => Ok(false),
        }
    }

    /// Why an idle Node of the pool takes no pod of this spec, though its claim says that it would.
    fn refusal_of(
        &self,
        pool: &PoolPlan<'_>,
        spec: &PodSpec,
        row: &ClaimState<'_>,
        node: &NodeView<'_>,
    ) -> Option<Misfit<'static>> {
        let facts = node.facts;
        // A user's cordon is about this one Node, and says nothing about the next machine.
        let is_idle = row.stage == Stage::InService
            && facts.ready
            && !facts.deleting
            && !facts.unschedulable
            && node.is_empty();
        if !is_idle {
            return None;
        }
        let claim = &row.claim.spec;
        let class = self.tick.world.classes().get(&claim.class)?;
        let promised = shape::profile(
            node.name().as_str(),
            class,
            &Shown::default(),
            claim.labels.clone(),
            claim.taints.clone(),
        );
        let mut offers = pool.offers.iter();
        let holds_them = offers.any(|offer| {
            offer.instance_type.name == claim.instance_type && offer.free.misfit(spec).is_none()
        });
        if !holds_them || promised.misfit(spec).is_some() {
            return None;
        }
        let place = Place::of(*node);
        place.misfit(spec).map(Misfit::into_owned)
    }
}

impl PoolPlan<'_> {
    pub(in crate::planning) fn key<'a>(
        &'a self,
        workload: &'a Arc<str>,
        pods: &'a Digest,
        instance_type: &'a InstanceTypeName,
    ) -> Key<'a> {
        Key {
            workload,
            pods,
            pool: self.name,
            instance_type,
            settings: &self.settings,
        }
    }
}

fn in_vain(
    pool: &PoolPlan<'_>,
    row: &Tries,
    standing: Option<&ClaimName>,
    until: Timestamp,
) -> Why {
    Why::InVain(Box::new(InVainWhy {
        pool: pool.name.clone(),
        workload: row.workload.clone(),
        instance_type: row.instance_type.clone(),
        node: row.node.clone(),
        standing: standing.cloned(),
        until,
        too_late: row.arrives_too_late(),
        given_up: row.is_whole(),
    }))
}

/// For whom machines for minNodes and headroom are.
pub(in crate::planning) fn of_pool() -> MadeFor {
    (OF_POOL.into(), "".into())
}

/// Whose pods these are, and how many of each.
fn workloads(need: &Need<'_>) -> Vec<(Arc<str>, u32)> {
    let mut found: Vec<(Arc<str>, u32)> = Vec::new();
    let mut last = None;
    for pod in need.pods.iter() {
        // Siblings share one owner, and mostly stand together.
        let owner = pod.owner().map(std::ptr::from_ref);
        let known = match last {
            Some((same, index)) if same == owner => Some(index),
            _ => None,
        };
        let index = known.unwrap_or_else(|| {
            let workload = loops::workload(&pod);
            let known = found.iter().position(|(other, _)| *other == workload);
            known.unwrap_or_else(|| {
                found.push((workload, 0));
                found.len() - 1
            })
        });
        found[index].1 += 1;
        last = Some((owner, index));
    }
    found
}
