//! A simulated cluster: the Nodes as the scheduler sees them, existing ones and coming ones, with the free room of
//! each. The planner puts pods here to try out where they fit.

mod leaving;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::decorate;
use crate::facts::{EntryState, LedgerEntry, PodSpec, TemplateFacts, VolumeNeed};
use crate::ids::{ClaimName, NodeName, PoolName, Vmid};
use crate::keys::{DRAINING_TAINT, UNSCHEDULABLE_TAINT};
use crate::kubernetes::taints;
use crate::mutants::{Mutant, broken};
use crate::planning::Planning;
use crate::planning::claims::stages::{ClaimState, Stage};
use crate::planning::machines::shape;
use crate::planning::pods::fit::{Free, NodeProfile, Place};
use crate::planning::pods::moved::{moved, zone_set};
use crate::planning::pods::topology::{MOST_STEPS, Spot, Topology, Turns};
use crate::planning::pods::volumes::{self, Attachable};
use crate::reasons::kept::Stuck;
use crate::time::later;
use crate::world::{Id, NodeView, PodView, World};

/// A Node that is younger counts as one whose CSI drivers have not published their room yet.
const DRIVERS_REGISTER: SignedDuration = SignedDuration::from_mins(5);

#[derive(Default)]
pub(in crate::planning) struct ClusterSnapshot<'w> {
    /// Existing Nodes by name, those of pools that keep headroom last; then coming machines by [`Turn`].
    pub(in crate::planning) nodes: Vec<NodeInfo<'w>>,
    /// Their places in that list by Node.
    by_node: Vec<Option<usize>>,
    /// Where the last pod of this spec was put. The next search begins there.
    hints: BTreeMap<Id, usize>,
    /// Which pods stand in which domains, those put here in thought included.
    pub(in crate::planning) topology: Topology<'w>,
}

#[derive(Clone)]
pub(in crate::planning) struct NodeInfo<'w> {
    /// A coming machine may have its Node already. It is taken as it will be, without taints and cordons that will go. So is
    /// a Node in service with taints that are expected to go.
    pub(in crate::planning) place: Place<'w>,
    pub(in crate::planning) claim: Option<ClaimName>,
    pub(in crate::planning) pool: Option<PoolName>,
    is_coming: bool,
    /// It takes pods: now, or soon if it is still coming.
    pub(in crate::planning) is_open: bool,
    /// Number of pending pods that this plan counts on it for.
    pub(in crate::planning) promised: u32,
    /// Number of pods that will move to it from other Nodes, because those are being drained or this plan removes them.
    pub(in crate::planning) moved: u32,
}

/// The order in which coming machines take pods. It is the order in which packing asked for them, so that a pod is
/// counted on the same machine in every tick. In another order pods could use up machines meant for others or for
/// headroom, and kproxide would make one more machine in every tick.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    since: Timestamp,
    weight: Reverse<i32>,
    pool: PoolName,
    /// Those of one tick have ascending numbers.
    vmid: Vmid,
    claim: ClaimName,
}

/// Moves away from one Node, which can be taken back.
#[derive(Default)]
pub(in crate::planning) struct Moves<'w> {
    from: Option<usize>,
    to: Vec<(usize, PodView<'w>)>,
    /// They fit on no other Node.
    pub(in crate::planning) stuck: Vec<PodView<'w>>,
}

impl<'w> NodeInfo<'w> {
    fn coming(claim: &ClaimName, pool: &PoolName, place: Place<'w>) -> Self {
        Self {
            place,
            claim: Some(claim.clone()),
            pool: Some(pool.clone()),
            is_coming: true,
            is_open: true,
            promised: 0,
            moved: 0,
        }
    }

    pub(in crate::planning) fn is_coming(&self) -> bool {
        self.is_coming
    }

    pub(in crate::planning) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(in crate::planning) fn node(&self) -> Option<NodeView<'w>> {
        self.place.node
    }

    pub(in crate::planning) fn takes(&self, spec: &PodSpec) -> bool {
        self.is_open && self.place.misfit(spec).is_none()
    }

    pub(in crate::planning) fn spot(&self) -> Spot<'_> {
        match self.is_coming {
            true => Spot::coming(&self.place.profile, self.place.node),
            false => Spot::of(&self.place.profile),
        }
    }
}

impl<'w> Planning<'w> {
    /// Everything that can take pods: Nodes that are Ready, and coming machines. A Node in service that is not Ready
    /// takes none.
    pub(in crate::planning) fn take_snapshot(&mut self) {
        self.learned = self.learn();
        self.report.doubts.clone_from(&self.learned.doubts);
        let mut row_of: Vec<Option<usize>> = vec![None; self.tick.world.node_places()];
        for (index, row) in self.rows.iter().enumerate() {
            if let Some(node) = &row.node {
                row_of[node.index()] = Some(index);
            }
        }
        self.turns = Turns::of(self.tick.world, self.tick.now, MOST_STEPS);
        if !(self.turns.later.is_empty() && self.turns.unsettled.is_empty()) {
            let next_tick = later(self.tick.now, SignedDuration::from_secs(1));
            self.tick.reached(next_tick);
        }
        let mut snapshot = ClusterSnapshot {
            by_node: vec![None; row_of.len()],
            topology: Topology::of(self.tick.world, &self.turns),
            ..ClusterSnapshot::default()
        };
        let mut coming: Vec<(Turn, NodeInfo<'w>)> = Vec::new();
        // Pods go to other Nodes first, so that they do not use up a pool's headroom.
        let keeps_headroom = |node: &NodeView<'w>| {
            let row = row_of[node.index()].map(|index| &self.rows[index]);
            row.is_some_and(|row| !self.keeps_free(&row.claim.spec.pool).is_zero())
        };
        let attached = self.tick.world.attached();
        let (last, first): (Vec<_>, Vec<_>) = self.tick.world.nodes().partition(keeps_headroom);
        for node in first.into_iter().chain(last) {
            let row = row_of[node.index()].map(|index| &self.rows[index]);
            let stage = row.map_or(Stage::InService, |row| row.stage);
            if stage == Stage::Coming {
                continue;
            }
            let is_open = match stage {
                Stage::InService => node.facts.ready && !node.facts.deleting,
                Stage::Coming | Stage::Overdue | Stage::Leaving => false,
            };
            snapshot.by_node[node.index()] = Some(snapshot.nodes.len());
            let mut place = Place::with_attached(node, &attached);
            let registered = later(node.facts.created, DRIVERS_REGISTER);
            if self.tick.world.knows_room() && !self.tick.reached(registered) {
                place.profile.room = Some(Arc::default());
            }
            let moved = row.and_then(|row| moved(self.tick.world, row.claim, &node));
            place.profile.moved = moved.map(|moved| zone_set(&node, &moved.to).into());
            let pool = row.and_then(|row| row.pool);
            let (claim, pool_name) = (
                row.map(|row| row.name.clone()),
                row.map(|row| row.claim.spec.pool.clone()),
            );
            let lasting = is_open.then(|| self.lasting_taints(&node, pool)).flatten();
            let is_coming = lasting.is_some();
            if let Some(taints) = lasting {
                place.profile.taints = Cow::Owned(taints);
            }
            snapshot.nodes.push(NodeInfo {
                place,
                claim,
                pool: pool_name,
                is_coming,
                is_open,
                promised: 0,
                moved: 0,
            });
        }
        for row in self.rows.iter().filter(|row| row.stage == Stage::Coming) {
            let spec = &row.claim.spec;
            let turn = self.turn(&spec.pool, spec.vmid, row.name, row.claim.created);
            coming.extend(self.coming_node(row).map(|info| (turn, info)));
        }
        for entry in &self.ledger.entries {
            match entry.state {
                EntryState::Reserved { since } => {
                    let turn = self.turn(&entry.pool, entry.vmid, &entry.claim, since);
                    let info = self.reserved_node(entry);
                    coming.extend(info.map(|info| (turn, info)));
                }
                EntryState::Live | EntryState::Quarantined { .. } => {}
            }
        }
        coming.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (_, info) in &coming {
            snapshot.topology.add_place(info.spot());
        }
        snapshot
            .nodes
            .extend(coming.into_iter().map(|(_, info)| info));
        self.snapshot = snapshot;
    }

    fn turn(&self, pool: &PoolName, vmid: Vmid, claim: &ClaimName, since: Timestamp) -> Turn {
        let facts = self.tick.world.pools().get(pool);
        Turn {
            since,
            weight: Reverse(facts.map_or(0, |facts| facts.weight)),
            pool: pool.clone(),
            vmid,
            claim: claim.clone(),
        }
    }

    fn coming_node(&self, row: &ClaimState<'w>) -> Option<NodeInfo<'w>> {
        let learned = &self.learned;
        let spec = &row.claim.spec;
        let class = self.tick.world.classes().get(&spec.class)?;
        let shown = learned.csi(&spec.class);
        let profile = shape::profile(
            row.name.as_str(),
            class,
            shown,
            spec.labels.clone(),
            spec.taints.clone(),
        );
        let size = shape::size_of_claim(class, spec);
        let daemons = learned.daemons_on(&spec.class, &size, &profile);
        let offered = match row.node {
            // The kubelet has said what it offers; DaemonSets may not have taken their part of it yet.
            Some(node) if node.facts.allocatable.milli_cores > 0 => {
                let standing = node
                    .pods()
                    .filter(|pod| pod.is_alive() && pod.is_of_daemon_set());
                let mut counted_twice = shape::sum(standing.map(|pod| pod.spec()));
                counted_twice.lower_to(&shape::sum(daemons.iter().copied()));
                shape::promised(node.facts, &size)
                    .minus(&node.requested())
                    .plus(&counted_twice)
            }
            _ => {
                let disk = spec
                    .resources
                    .disk_bytes
                    .unwrap_or_else(|| self.template_disk(spec));
                learned.allocatable(&spec.class, class, &size, disk)
            }
        };
        // The template's own disks are one, as a rule.
        let limits = learned.volume_limits(&spec.class, class, &profile.labels, 1);
        let attachable = match &row.node {
            Some(node) => Attachable::of_coming(node, limits),
            None => Attachable::with(&limits),
        };
        let place = Place {
            profile,
            free: Free::with(offered, attachable, &daemons),
            node: row.node,
        };
        Some(NodeInfo::coming(row.name, &spec.pool, place))
    }

    fn template_disk(&self, spec: &crate::facts::ClaimSpec) -> u64 {
        let world = self.tick.world;
        let Some(class) = world.classes().get(&spec.class) else {
            return 0;
        };
        let templates = world.templates(class, &spec.cluster).iter();
        templates.map(TemplateFacts::boot_bytes).min().unwrap_or(0)
    }

    /// A machine that the Ledger promises but whose claim the watch has not shown yet. Its size tells the type, its
    /// place the labels.
    fn reserved_node(&self, entry: &LedgerEntry) -> Option<NodeInfo<'w>> {
        let learned = &self.learned;
        let world = self.tick.world;
        let pool = world.pools().get(&entry.pool)?;
        let class = world.classes().get(&pool.node_class)?;
        let size = class.instance_types.iter().find(|size| {
            u64::from(size.cores) * 1000 == entry.milli_cores
                && size.memory_bytes() == entry.memory_bytes
        })?;
        let hypervisor = entry.hypervisor_id();
        let decoration = decorate::remembered(world, &entry.pool, &size.name, &hypervisor);
        let name = entry.claim.as_str();
        let labels = shape::claim_labels(
            name,
            &entry.pool,
            pool,
            class,
            size,
            &hypervisor,
            &decoration,
        );
        let taints = shape::claim_taints(pool, &decoration);
        let shown = learned.csi(&pool.node_class);
        let profile = shape::profile(name, class, shown, labels, taints);
        let limits = learned.volume_limits(&pool.node_class, class, &profile.labels, 1);
        let daemons = learned.daemons_on(&pool.node_class, size, &profile);
        let offered = learned.allocatable(&pool.node_class, class, size, entry.disk_bytes);
        let place = Place {
            profile,
            free: Free::with(offered, Attachable::with(&limits), &daemons),
            node: None,
        };
        Some(NodeInfo::coming(&entry.claim, &entry.pool, place))
    }
}

impl<'w> ClusterSnapshot<'w> {
    /// Puts up to `count` pods of this spec where there is room and the Node is not refused, first Nodes that exist, then machines to come.
    /// Tells how many went where.
    pub(in crate::planning) fn put_pending(
        &mut self,
        shape: Id,
        spec: &PodSpec,
        count: u32,
        is_refused: impl Fn(&NodeView<'w>) -> bool,
    ) -> Vec<(usize, u32)> {
        // Each pod with rules about its neighbours may open or close places for the next.
        let one_by_one = self.topology.has_rules(shape);
        let mut left = count;
        let mut put: BTreeMap<usize, u32> = BTreeMap::new();
        let mut before = 0;
        // A pod may open places on Nodes that were passed over.
        while left > 0 && left != before && (before == 0 || one_by_one) {
            before = left;
            for (index, info) in self.nodes.iter_mut().enumerate() {
                let is_refused = info.place.node.as_ref().is_some_and(&is_refused);
                while left > 0 && info.is_open && !is_refused {
                    if self.topology.keeps_away(shape, info.spot()) {
                        break;
                    }
                    let most = if one_by_one { 1 } else { left };
                    let fitting = info.place.how_many(spec, most);
                    if fitting == 0 {
                        break;
                    }
                    info.place.free.put(spec, fitting);
                    info.promised += fitting;
                    left -= fitting;
                    self.topology.put(shape, info.spot(), fitting);
                    *put.entry(index).or_default() += fitting;
                }
            }
        }
        put.into_iter().collect()
    }

    /// Puts a pod on the Node that the scheduler has nominated for it, if it fits there without the pods of a lower priority that
    /// are ending there.
    pub(in crate::planning) fn put_nominated(
        &mut self,
        world: &'w World,
        pod: &PodView<'w>,
        node: &NodeName,
    ) -> bool {
        let Some(node) = world.node(node) else {
            return false;
        };
        let priority = pod.spec().priority;
        let is_preempted = |other: &PodView<'w>| {
            other.is_alive() && other.is_deleting() && other.spec().priority < priority
        };
        self.put_without(&node, pod.shape_id(), pod.spec(), is_preempted)
    }

    /// Puts a pod on this Node, if it fits there without these pods.
    pub(in crate::planning) fn put_without(
        &mut self,
        node: &NodeView<'w>,
        shape: Id,
        spec: &PodSpec,
        is_gone: impl Fn(&PodView<'w>) -> bool,
    ) -> bool {
        let index = self.index_of_node(node);
        let Some(index) = index.filter(|index| self.nodes[*index].is_open) else {
            return false;
        };
        let info = &mut self.nodes[index];
        let spot = Spot::of(&info.place.profile);
        let gone = node.pods().filter(&is_gone);
        let gone: Vec<Id> = gone.map(|pod| pod.shape_id()).collect();
        let fits = info.place.fits_without(spec, is_gone)
            && self.topology.misfit_without(shape, spot, &gone).is_none();
        if fits {
            self.topology.put(shape, spot, 1);
            info.place.free.put(spec, 1);
            info.promised += 1;
        }
        fits
    }

    /// Pods of other Nodes will come to this one.
    pub(in crate::planning) fn awaits_pods(&self, node: &NodeView<'w>) -> bool {
        self.index_of_node(node)
            .is_some_and(|index| self.nodes[index].moved > 0)
    }

    /// Whether a pod of this spec would fit on this Node if it were not cordoned.
    pub(in crate::planning) fn would_fit(
        &self,
        shape: Id,
        spec: &PodSpec,
        node: &NodeView<'w>,
    ) -> bool {
        let own = [DRAINING_TAINT, UNSCHEDULABLE_TAINT];
        node.facts.ready
            && self.index_of_node(node).is_some_and(|index| {
                let place = Place {
                    profile: NodeProfile::without(node, |taint| own.contains(&&*taint.key)),
                    ..self.nodes[index].place.clone()
                };
                let spot = Spot::of(&place.profile);
                place.misfit(spec).is_none() && !self.topology.keeps_away(shape, spot)
            })
    }

    /// The place of a machine that is coming.
    pub(in crate::planning) fn coming(&mut self, claim: &ClaimName) -> Option<&mut NodeInfo<'w>> {
        let mut nodes = self.nodes.iter_mut();
        nodes.find(|info| info.is_coming && info.claim.as_ref() == Some(claim))
    }

    pub(in crate::planning) fn index_of_node(&self, node: &NodeView<'w>) -> Option<usize> {
        self.by_node[node.index()]
    }

    /// Lets the Node take pods again, because its drain is given up and kproxide is about to uncordon it.
    pub(in crate::planning) fn reopen(&mut self, row: &ClaimState<'w>) {
        let Some(node) = row.node else { return };
        let Some(index) = self.index_of_node(&node) else {
            return;
        };
        let is_gone = |taint: &_| taints::is_passing(taint) || &*taint.key == DRAINING_TAINT;
        let info = &mut self.nodes[index];
        info.place.profile = NodeProfile::without(&node, is_gone);
        info.is_coming = true;
        info.is_open = node.facts.ready;
    }

    /// Moves every pod that must leave this Node to other existing Nodes, and closes the Node. The caller can undo the
    /// moves. If a pod fits nowhere, returns that pod, and nothing has changed.
    pub(in crate::planning) fn move_away(
        &mut self,
        node: &NodeView<'w>,
    ) -> Result<Moves<'w>, Stuck> {
        let mut moves = self.moves_from(node);
        let own = self.index_of_node(node);
        let was_open = own.map(|index| std::mem::replace(&mut self.nodes[index].is_open, false));
        for pod in in_order(node.pods().filter(needs_place)) {
            if self.move_pod(&pod, &mut moves).is_none() && !broken(Mutant::PodsFitNowhere) {
                // The Node itself is closed here.
                let volume = self.unreached(&pod).cloned().map(Box::new);
                self.take_back(moves);
                if let (Some(index), Some(was_open)) = (own, was_open) {
                    self.nodes[index].is_open = was_open;
                }
                return Err(Stuck {
                    pod: pod.key(),
                    volume,
                });
            }
        }
        Ok(moves)
    }

    /// A volume of the pod that no Node reaches which takes pods.
    fn unreached(&self, pod: &PodView<'w>) -> Option<&'w VolumeNeed> {
        let open = self
            .nodes
            .iter()
            .filter(|info| info.is_open && !info.is_coming);
        let profiles = open.map(|info| &info.place.profile);
        let unreached = |need: &&VolumeNeed| {
            let mut profiles = profiles.clone();
            profiles.all(|profile| !volumes::reaches(need, profile))
        };
        pod.spec().volumes.iter().find(unreached)
    }

    fn moves_from(&self, node: &NodeView<'w>) -> Moves<'w> {
        Moves {
            from: self.index_of_node(node),
            ..Moves::default()
        }
    }

    /// Reserves room for the pods of a Node that goes in any case, as far as there is room.
    pub(in crate::planning) fn make_room_for(&mut self, node: &NodeView<'w>) {
        let mut moves = self.moves_from(node);
        for pod in in_order(node.pods().filter(needs_place)) {
            // A pod that fits nowhere will soon be pending, and then gets a machine.
            let _ = self.move_pod(&pod, &mut moves);
        }
    }

    /// Undoes moves away from a Node that stays after all.
    pub(in crate::planning) fn move_back(&mut self, node: &NodeView<'w>, moves: Moves<'w>) {
        self.take_back(moves);
        if let Some(index) = self.index_of_node(node) {
            self.nodes[index].is_open = true;
        }
    }

    fn move_pod(&mut self, pod: &PodView<'w>, moves: &mut Moves<'w>) -> Option<()> {
        let (spec, shape) = (pod.spec(), pod.shape_id());
        // The scheduler places what replaces it when the pod is gone.
        self.recount(moves.from, shape, Topology::take_back);
        let first = self.hints.get(&shape).copied().unwrap_or(0);
        let count = self.nodes.len();
        let target = (0..count).map(|step| (first + step) % count).find(|index| {
            let info = &self.nodes[*index];
            !info.is_coming && info.takes(spec) && !self.topology.keeps_away(shape, info.spot())
        });
        let Some(target) = target else {
            self.recount(moves.from, shape, Topology::put);
            return None;
        };
        self.nodes[target].place.free.put(spec, 1);
        self.nodes[target].moved += 1;
        self.recount(Some(target), shape, Topology::put);
        self.hints.insert(shape, target);
        moves.to.push((target, *pod));
        Some(())
    }

    fn take_back(&mut self, moves: Moves<'w>) {
        for (index, pod) in moves.to.into_iter().rev() {
            self.nodes[index].place.free.take_back(pod.spec(), 1);
            self.nodes[index].moved -= 1;
            self.recount(Some(index), pod.shape_id(), Topology::take_back);
            self.recount(moves.from, pod.shape_id(), Topology::put);
        }
    }

    /// One pod more or less at this place.
    fn recount(
        &mut self,
        at: Option<usize>,
        shape: Id,
        change: fn(&mut Topology<'w>, Id, Spot<'_>, u32),
    ) {
        if let Some(at) = at {
            change(&mut self.topology, shape, self.nodes[at].spot(), 1);
        }
    }
}

/// It must run elsewhere when its Node goes. An expendable pod need not, nor one whose end a drain waits for.
fn needs_place(pod: &PodView<'_>) -> bool {
    pod.is_movable() && !pod.is_expendable() && !pod.is_on_completion()
}

/// Larger pods first, equal ones by name: the order in which moves are tried.
fn in_order<'w>(pods: impl Iterator<Item = PodView<'w>>) -> Vec<PodView<'w>> {
    let mut pods: Vec<_> = pods.collect();
    pods.sort_by(|a, b| {
        let size = |pod: &PodView<'w>| {
            let requests = &pod.spec().requests;
            (requests.memory_bytes, requests.milli_cores)
        };
        let name = |pod: &PodView<'w>| (pod.name(), pod.namespace());
        size(b).cmp(&size(a)).then_with(|| name(a).cmp(&name(b)))
    });
    pods
}
