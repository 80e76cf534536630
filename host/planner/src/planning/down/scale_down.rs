//! Which Nodes can go. First each Node is checked by itself, then each pool's policy orders those that can go, then
//! they are removed one after the other. Before each removal it is checked again, because earlier removals have used up
//! room.

mod standing;

use self::standing::reason_of;

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use crate::claim::Condition;
use crate::facts::PolicyKind;
use crate::ids::{HypervisorId, ObjectKey, PoolName};
use crate::kubernetes::eviction::ENDS;
use crate::kubernetes::resources::Resources;
use crate::ledger::policy_state;
use crate::plan::Verdict;
use crate::plan::question::{
    Answer, AnswerBody, OrderQuestion, RemovableNode, Removals, Size, States,
};
use crate::plan::report::{NoAnswer, NodeOutcome, NodeReport};
use crate::planning::Planning;
use crate::planning::claims::budgets::Budgets;
use crate::planning::claims::may_remove::is_closed_control_plane;
use crate::planning::claims::stages::Stage;
use crate::planning::hypervisors::attributes;
use crate::planning::machines::shape;
use crate::planning::up::pools;
use crate::reasons::kept::{Kept, Moment};
use crate::reasons::on_hold::Hold;
use crate::time::later;
use crate::world::{NodeView, PodView};

#[derive(Default)]
pub(in crate::planning) struct ScaleDown {
    /// Why a Node stays, by its row.
    pub(in crate::planning) kept: BTreeMap<usize, Kept>,
    /// Rows that may go now, by pool.
    removable: BTreeMap<PoolName, Vec<usize>>,
    to_ask: VecDeque<PoolName>,
    asked: Option<(PoolName, OrderQuestion)>,
    /// Rows in the order in which their pool's policy wants them to go.
    ordered: BTreeMap<PoolName, VecDeque<usize>>,
    load: Load,
    /// Nodes that the headroom keeps, and that were looked at for a better reason.
    looked_closer: u32,
    /// Removals that each disruption budget still allows.
    pub(in crate::planning) allowed: BTreeMap<ObjectKey, i32>,
}

/// Requests and capacity of the whole cluster, of which headroom is kept: A and T of `A × (1 + H) < T − K`.
#[derive(Clone, Debug, Default)]
struct Load {
    requested: Resources,
    allocatable: Resources,
}

impl Load {
    /// The cluster without `node` keeps the headroom, for CPU and for memory.
    fn allows_without(&self, node: &Resources, headroom: f64) -> bool {
        let holds = |requested: i64, allocatable: i64, node: i64| {
            requested as f64 * (1.0 + headroom) < allocatable.saturating_sub(node) as f64
        };
        let Self {
            requested: a,
            allocatable: t,
        } = self;
        holds(a.milli_cores, t.milli_cores, node.milli_cores)
            && holds(a.memory_bytes, t.memory_bytes, node.memory_bytes)
    }
}

impl<'w> Planning<'w> {
    /// Step 6: every managed Node gets its reason to stay, or is found removable.
    pub(in crate::planning) fn find_removable(&mut self) {
        self.scale_down.load = self.load();
        let budgets = self.tick.world.disruption_budgets();
        self.scale_down.allowed = budgets
            .iter()
            .map(|(key, budget)| (key.clone(), budget.disruptions_allowed))
            .collect();
        let stable_at = self.stable_at();
        for index in 0..self.rows.len() {
            let Some(node) = self.rows[index].node else {
                continue;
            };
            if self.rows[index].stage != Stage::InService {
                continue;
            }
            let (standing, why) = self.standing(index, &node);
            self.note_standing(index, standing);
            let stable_at = stable_at.get(&self.rows[index].claim.spec.pool).copied();
            match why.or_else(|| self.why_not_yet(index, &node, stable_at)) {
                Some(reason) => {
                    let postponed = self.rows[index].postponed.clone();
                    let reason = postponed.unwrap_or(reason);
                    self.scale_down.kept.insert(index, reason);
                }
                None => {
                    let pool = self.rows[index].claim.spec.pool.clone();
                    self.scale_down
                        .removable
                        .entry(pool)
                        .or_default()
                        .push(index);
                }
            }
        }
        self.scale_down.to_ask = self.scale_down.removable.keys().cloned().collect();
    }

    /// T: what Nodes have that are Ready, not cordoned, and no control plane whose taints keep pods away. A: the requests
    /// on them, of pods that still have to move from Nodes being drained, and of pending pods that fit on existing Nodes.
    /// Expendable pods keep no Node, so they do not count.
    fn load(&mut self) -> Load {
        let world = self.tick.world;
        let stuck = self.stuck();
        let least = world.host().served.least_priority;
        let has_expendable = world.shapes().any(|(_, it)| it.spec.priority < least);
        let expendable = |node: &NodeView<'w>, counts: fn(&PodView<'w>) -> bool| {
            if !has_expendable {
                return Resources::default();
            }
            let pods = node.pods();
            let pods = pods.filter(|pod| pod.is_expendable() && counts(pod));
            shape::sum(pods.map(|pod| pod.spec()))
        };
        let mut load = Load::default();
        let mut apart: Vec<Option<Stage>> = vec![None; self.tick.world.node_places()];
        for row in &self.rows {
            if let Some(node) = &row.node {
                apart[node.index()] = Some(row.stage);
            }
        }
        for node in self.tick.world.nodes() {
            match apart[node.index()] {
                Some(Stage::Leaving) => {
                    load.requested.add(&node.movable());
                    let expendable = expendable(&node, PodView::is_movable);
                    load.requested.subtract(&expendable);
                    continue;
                }
                Some(Stage::Coming | Stage::Overdue) => continue,
                Some(Stage::InService) | None => {}
            }
            if node.facts.ready && !node.facts.unschedulable && !is_closed_control_plane(&node) {
                load.allocatable.add(&node.facts.allocatable);
                load.requested.add(&node.requested());
                if let Some(stuck) = stuck.get(&node.index()) {
                    load.requested.subtract(stuck);
                }
                let expendable = expendable(&node, PodView::is_alive);
                load.requested.subtract(&expendable);
            }
        }
        for need in &self.needs {
            if let Some((_, count)) = &need.on_nodes {
                load.requested
                    .add_times(&need.spec.requests, i64::from(*count));
            }
        }
        load
    }

    /// What pods request that should have ended by now, by Node. An expendable pod is left out of the load anyway.
    fn stuck(&mut self) -> BTreeMap<usize, Resources> {
        let world = self.tick.world;
        let mut stuck: BTreeMap<usize, Resources> = BTreeMap::new();
        for pod in world.ending().filter(|pod| !pod.is_expendable()) {
            let end = pod.grace_ends().map(|end| later(end, ENDS));
            if end.is_some_and(|end| self.tick.reached(end))
                && let Some(node) = pod.node().and_then(|name| world.node(name))
            {
                stuck
                    .entry(node.index())
                    .or_default()
                    .add(&pod.spec().requests);
            }
        }
        stuck
    }

    /// When each pool's newest machine has been in service for the pool's `stabilization`.
    fn stable_at(&self) -> BTreeMap<&'w PoolName, Timestamp> {
        let mut stable_at = BTreeMap::new();
        for row in &self.rows {
            if let (Some(pool), Some(since)) =
                (row.pool, row.claim.status.since(Condition::Initialized))
            {
                let stable = later(since, pool.scale_down.stabilization.0);
                let newest = stable_at.entry(&row.claim.spec.pool).or_insert(stable);
                *newest = stable.max(*newest);
            }
        }
        stable_at
    }

    /// Step 7: asks the scale-down policy of the next pool to order its removable Nodes.
    pub(in crate::planning) fn order_question(&mut self) -> Option<OrderQuestion> {
        if let Some((_, question)) = &self.scale_down.asked {
            return Some(question.clone());
        }
        while let Some(pool) = self.scale_down.to_ask.pop_front() {
            let budgets = self.budgets();
            let (mut most, mut rows) = (0, Vec::new());
            for row in self.removable(&pool) {
                match self.removals_left(row, &budgets) {
                    0 => {
                        let why = self.why_none_left(row, &budgets);
                        self.scale_down.kept.insert(row, why);
                    }
                    left => {
                        most = most.max(left);
                        rows.push(row);
                    }
                }
            }
            if rows.is_empty() {
                continue;
            }
            if let Some(wait) = self.none_can_begin(&pool, &rows) {
                self.keep_all(&rows, &Kept::Held(Hold::Breaker(wait)));
                continue;
            }
            if let Some(question) = self.order(&pool, &rows, most) {
                self.scale_down.asked = Some((pool, question.clone()));
                return Some(question);
            }
        }
        None
    }

    fn removable(&self, pool: &PoolName) -> Vec<usize> {
        let rows = self.scale_down.removable.get(pool);
        rows.cloned().unwrap_or_default()
    }

    /// How many removals like that of this machine its pool may begin, by its budgets and `minNodes`.
    fn removals_left(&self, row: usize, budgets: &Budgets) -> u32 {
        let row = &self.rows[row];
        let (Some(pool), Some(node)) = (row.pool, row.node) else {
            return 0;
        };
        let name = &row.claim.spec.pool;
        match budgets.left(name, pool, reason_of(&node)) {
            0 => 0,
            left => left.min(self.serving(name).saturating_sub(self.least(name))),
        }
    }

    fn why_none_left(&self, row: usize, budgets: &Budgets) -> Kept {
        let row = &self.rows[row];
        let (Some(pool), Some(node)) = (row.pool, row.node) else {
            return Kept::PoolGone;
        };
        let (name, reason) = (&row.claim.spec.pool, reason_of(&node));
        match budgets.left(name, pool, reason) {
            0 => budgets.why(name, reason),
            _ => self.at_least(name),
        }
    }

    fn keep_all(&mut self, rows: &[usize], why: &Kept) {
        for row in rows {
            self.scale_down.kept.insert(*row, why.clone());
        }
    }

    fn order(&self, pool: &PoolName, rows: &[usize], most: u32) -> Option<OrderQuestion> {
        let plan = self.pools.iter().find(|plan| plan.name == pool)?;
        let policy = self.with_states(pool, &plan.facts.policies.scale_down);
        let state = policy_state(
            &self.ledger,
            pool,
            PolicyKind::ScaleDown,
            &policy.policy.name,
        );
        let hypervisors = plan.hypervisors.iter().map(|index| {
            self.hypervisors
                .candidate(*index, pool, None, 0, self.tick.now)
        });
        let nodes = rows
            .iter()
            .filter_map(|row| self.removable_node(*row, plan));
        Some(OrderQuestion {
            context: self.context(pool, state.sequence, state.state),
            pool: pool.clone(),
            nodes: nodes.collect(),
            hypervisors: hypervisors.collect(),
            max_removals: most,
            policy,
        })
    }

    fn removable_node(&self, row: usize, plan: &pools::PoolPlan<'w>) -> Option<RemovableNode> {
        let row = &self.rows[row];
        let node = row.node?;
        let claim = row.claim;
        let id = HypervisorId {
            name: claim.hypervisor().clone(),
            ..claim.spec.hypervisor_id()
        };
        let place = self.hypervisors.index_of(&id);
        let on = place.and_then(|place| plan.hypervisors.iter().position(|index| *index == place));
        let unneeded = claim.status.since(Condition::Unneeded);
        let unneeded_seconds =
            unneeded.map_or(0, |since| self.tick.now.duration_since(since).as_secs());
        Some(RemovableNode {
            name: node.name().clone(),
            instance_type: claim.spec.instance_type.clone(),
            on: on.and_then(|on| u32::try_from(on).ok()),
            created: node.facts.created.as_second(),
            unneeded_seconds: u64::try_from(unneeded_seconds).unwrap_or(0),
            allocatable: size_of(&node.facts.allocatable),
            requested: size_of(&node.requested()),
            movable_pods: node.movable_pods(),
            labels: node.facts.labels.clone(),
            attributes: attributes::pods_moving(&node, self.tick.now),
        })
    }

    pub(in crate::planning) fn take_order(&mut self, answer: Answer) {
        let Some((pool, question)) = self.scale_down.asked.take() else {
            return;
        };
        let rows = self.removable(&pool);
        let policy = &question.policy.policy;
        let (no_order, has_failed) = match answer.body {
            AnswerBody::Removals(removals) => {
                let is_fallback = answer.fallback.is_some();
                let removals = (removals, answer.states);
                return self.take_removals(&pool, &question, &rows, removals, is_fallback);
            }
            AnswerBody::NoCandidate(reason) => (NoAnswer::Refused(reason), false),
            AnswerBody::Deferred => (NoAnswer::Deferred, false),
            AnswerBody::Failed(reason) => (NoAnswer::Failed(reason), true),
            AnswerBody::Ranking(_) | AnswerBody::Decorations(_) => {
                (NoAnswer::AnsweredAnotherQuestion, true)
            }
        };
        if has_failed {
            self.policy_failed(&pool, policy, no_order.to_string());
        }
        self.keep_all(&rows, &Kept::Policy(policy.name.clone(), no_order));
    }

    fn take_removals(
        &mut self,
        pool: &PoolName,
        question: &OrderQuestion,
        rows: &[usize],
        (removals, mut states): (Removals, States),
        is_fallback: bool,
    ) {
        let name = |index: u32| &question.nodes[index as usize].name;
        let mut chosen: Vec<_> = removals
            .removals
            .iter()
            .filter(|scored| {
                scored.score.is_finite() && (scored.index as usize) < question.nodes.len()
            })
            .collect();
        chosen.sort_by(|a, b| {
            b.score
                .total_cmp(&a.score)
                .then_with(|| name(a.index).cmp(name(b.index)))
        });
        let mut order: Vec<usize> = Vec::new();
        for scored in chosen {
            let row = rows.iter().copied().find(|row| {
                self.rows[*row]
                    .node
                    .is_some_and(|node| node.name() == name(scored.index))
            });
            if let Some(row) = row.filter(|row| !order.contains(row)) {
                order.push(row);
            }
        }
        order.sort_by_key(|row| !self.leaves_its_server(*row));
        let left_out: Vec<usize> = rows
            .iter()
            .copied()
            .filter(|row| !order.contains(row))
            .collect();
        let policy = &question.policy.policy.name;
        self.keep_all(&left_out, &Kept::PolicyKeeps(policy.clone()));
        if !order.is_empty() && !is_fallback {
            states.extend(removals.state.map(|state| (policy.clone(), state)));
            self.keep_states(pool, PolicyKind::ScaleDown, states);
        }
        self.scale_down.ordered.insert(pool.clone(), order.into());
    }

    /// Step 8: removes one Node of each pool in turn, those on hypervisors that are to be empty first, and checks each again
    /// after the removals before it.
    pub(in crate::planning) fn remove(&mut self) {
        let mut left = self.tick.limits.max_removals_per_tick;
        let mut budgets = self.budgets();
        let mut ordered = std::mem::take(&mut self.scale_down.ordered);
        while ordered.values().any(|rows| !rows.is_empty()) {
            let mut next = ordered.values().filter_map(|rows| rows.front());
            let maintenance = next.any(|row| self.leaves_its_server(*row));
            for rows in ordered.values_mut() {
                let is_next = |row: &&usize| !maintenance || self.leaves_its_server(**row);
                let Some(row) = rows.front().filter(is_next).copied() else {
                    continue;
                };
                rows.pop_front();
                let problem = if self.removals_left(row, &budgets) == 0 {
                    Some(self.why_none_left(row, &budgets))
                } else if left == 0 {
                    Some(Kept::NextTick)
                } else {
                    self.remove_one(row)
                };
                match problem {
                    Some(reason) => {
                        self.scale_down.kept.insert(row, reason);
                    }
                    None => {
                        if let Some(node) = self.rows[row].node {
                            budgets.take(&self.rows[row], reason_of(&node));
                        }
                        left -= 1;
                    }
                }
            }
        }
    }

    /// Its hypervisor is in maintenance or to be emptied: the machine goes before others, of all pools.
    fn leaves_its_server(&self, row: usize) -> bool {
        let claim = self.rows[row].claim;
        let id = HypervisorId {
            name: claim.hypervisor().clone(),
            ..claim.spec.hypervisor_id()
        };
        let cluster = self.tick.world.clusters().get(&id.cluster);
        let place = self.hypervisors.index_of(&id);
        cluster.is_some_and(|it| it.drains(&id.name))
            || place.is_some_and(|place| self.hypervisors.all[place].facts.maintenance)
    }

    /// Decides a removal, or says what forbids it now.
    fn remove_one(&mut self, index: usize) -> Option<Kept> {
        let node = self.rows[index].node?;
        let pool = self.rows[index].pool?;
        if self.snapshot.awaits_pods(&node) {
            return Some(Kept::AwaitsPods(Moment::AfterThisTick));
        }
        if let Some((pod, blocker)) = self.blocking_pod(&node, pool) {
            return Some(Kept::Pod(pod, blocker));
        }
        let reason = reason_of(&node);
        let allocatable = &node.facts.allocatable;
        if node.carries_load(self.tick.now)
            && !self
                .scale_down
                .load
                .allows_without(allocatable, pool.scale_down.load_headroom)
        {
            return Some(Kept::load_headroom(pool, Moment::AfterThisTick));
        }
        let moves = match self.snapshot.move_away(&node) {
            Ok(moves) => moves,
            Err(stuck) => return Some(Kept::Stuck(stuck, Moment::AfterThisTick)),
        };
        let problem = self.pool_headroom_lacks(index);
        let waits = |wait| Kept::Held(Hold::Breaker(wait));
        if let Some(problem) = problem.or_else(|| self.count_removal(index, reason).map(waits)) {
            self.snapshot.move_back(&node, moves);
            return Some(problem);
        }
        self.scale_down.load.allocatable.subtract(allocatable);
        self.use_up_budgets(&node);
        self.rows[index].remove(reason);
        None
    }

    /// Why each managed Node stays or goes.
    pub(in crate::planning) fn report_nodes(&mut self) {
        for (index, row) in self.rows.iter().enumerate() {
            let Some(node) = row.node else { continue };
            let kept = self.scale_down.kept.get(&index);
            let outcome = match &row.verdict {
                Verdict::Remove(reason) => NodeOutcome::Removing(*reason),
                Verdict::Hold(hold) => NodeOutcome::Kept(Kept::Held(hold.clone())),
                Verdict::GiveUp(why) => NodeOutcome::Kept(Kept::GivenUp(why.clone())),
                Verdict::Keep => NodeOutcome::Kept(match (row.stage, kept) {
                    (Stage::InService | Stage::Leaving, Some(kept)) => kept.clone(),
                    _ => Kept::NotInService,
                }),
            };
            self.report.nodes.push(NodeReport {
                node: node.name().clone(),
                claim: row.name.clone(),
                pool: row.claim.spec.pool.clone(),
                outcome,
            });
        }
        self.report.nodes.sort_by(|a, b| a.node.cmp(&b.node));
    }
}

fn size_of(amounts: &Resources) -> Size {
    Size {
        milli_cores: u64::try_from(amounts.milli_cores).unwrap_or(0),
        memory_bytes: u64::try_from(amounts.memory_bytes).unwrap_or(0),
    }
}
