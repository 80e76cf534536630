//! Pools in the order in which they are tried, with what their machines would be: one offer per instance type (or per part of the hypervisors,
//! where DaemonSets differ).

use std::collections::BTreeMap;

use super::packing::BYTES_PER_MILLI_CORE;
use crate::facts::{ClassFacts, EntryState, InstanceType, LedgerEntry, PodSpec, PoolFacts};
use crate::guard::loops;
use crate::ids::{Digest, PoolName};
use crate::kubernetes::selector::unmet;
use crate::ledger::{self, Usage};
use crate::plan::question::{Decoration, Machine, Size};
use crate::plan::report::{Limit, Unusable, Why};
use crate::planning::Planning;
use crate::planning::hypervisors::room::Room;
use crate::planning::hypervisors::sites::Site;
use crate::planning::machines::shape::{self, NEW};
use crate::planning::pods::fit::{Free, NodeProfile};
use crate::planning::pods::volumes::Attachable;
use crate::reasons::no_hypervisor::Refusal;
use crate::world::World;

pub(in crate::planning) struct PoolPlan<'w> {
    pub(in crate::planning) name: &'w PoolName,
    pub(in crate::planning) facts: &'w PoolFacts,
    /// The class, or why nothing can be made for this pool whatever is asked.
    pub(in crate::planning) class: Result<&'w ClassFacts, Unusable>,
    /// Indices of the hypervisors of its clusters, by cluster and name.
    pub(in crate::planning) hypervisors: Vec<usize>,
    /// Digest of what its machines are made from.
    pub(in crate::planning) settings: Digest,
    /// What the Ledger counts of it, and what this tick wants. Nobody reads it after scale-up.
    pub(in crate::planning) usage: Usage,
    pub(in crate::planning) offers: Vec<Offer<'w>>,
    /// Types that a label policy's failure keeps from being made.
    pub(in crate::planning) blocked: Vec<Why>,
}

/// Machines of one instance type, as pods would find them.
pub(in crate::planning) struct Offer<'w> {
    pub(in crate::planning) instance_type: &'w InstanceType,
    pub(in crate::planning) size: Size,
    /// Its last Nodes offered less. One machine is tried again, for pods that no other machine holds.
    pub(in crate::planning) is_retry: bool,
    /// What is left for pods when the DaemonSets have taken theirs.
    pub(in crate::planning) free: Free,
    /// Each hypervisor of the pool, in its order: what is made there, or why nothing is.
    pub(in crate::planning) sites: Vec<Result<Site<'w>, Refusal>>,
    /// How the machine would look on each.
    pub(in crate::planning) profiles: Vec<NodeProfile<'w>>,
    /// The hypervisors whose machines have this much free.
    pub(in crate::planning) part: SiteSet,
}

impl<'w> Offer<'w> {
    /// The hypervisors on which a machine of this offer admits pods of this spec.
    pub(in crate::planning) fn admitting(&self, spec: &PodSpec) -> SiteSet {
        let mut set = SiteSet::default();
        for (index, profile) in self.looks() {
            if profile.misfit(spec).is_none() {
                set.insert(index);
            }
        }
        set
    }

    /// How a machine of this offer would look on each of its hypervisors.
    pub(in crate::planning) fn looks(&self) -> impl Iterator<Item = (usize, &NodeProfile<'w>)> {
        let all = self.profiles.iter().enumerate();
        all.filter(|(index, _)| self.part.contains(*index))
    }

    /// Memory-equivalent bytes: what a machine costs, where 1 core stands for 4 GiB.
    pub(in crate::planning) fn cost(&self) -> u64 {
        cost(self.size)
    }

    /// Whether there is room for a machine of this offer at this place of the pool's list.
    pub(in crate::planning) fn has_room(&self, place: usize, room: &Room) -> bool {
        match &self.sites[place] {
            Ok(site) => room.has_room(site, self.size),
            Err(_) => false,
        }
    }

    /// Takes room for one there; none where nothing can be made.
    pub(in crate::planning) fn take_room(&self, place: usize, room: &mut Room) {
        if let Ok(site) = &self.sites[place] {
            room.take(site, self.size);
        }
    }

    pub(in crate::planning) fn site_with_room(&self, set: &SiteSet, room: &Room) -> Option<usize> {
        self.sites_with_room(set, room).next()
    }

    pub(in crate::planning) fn sites_with_room<'a>(
        &'a self,
        set: &'a SiteSet,
        room: &'a Room,
    ) -> impl Iterator<Item = usize> + 'a {
        self.usable(set).filter(|index| self.has_room(*index, room))
    }

    /// Those of the set that this holds for.
    pub(in crate::planning) fn those(
        &self,
        set: &SiteSet,
        holds: impl Fn(usize) -> bool,
    ) -> SiteSet {
        let mut those = SiteSet::default();
        for index in self.usable(set).filter(|index| holds(*index)) {
            those.insert(index);
        }
        those
    }

    fn usable<'a>(&'a self, set: &'a SiteSet) -> impl Iterator<Item = usize> + 'a {
        (0..self.sites.len()).filter(|index| set.contains(*index))
    }
}

/// A set of a pool's hypervisors, by their place in its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::planning) struct SiteSet {
    first: u64,
    more: Vec<u64>,
}

impl SiteSet {
    pub(in crate::planning) fn insert(&mut self, index: usize) {
        match index / 64 {
            0 => self.first |= 1 << index,
            word => {
                if self.more.len() < word {
                    self.more.resize(word, 0);
                }
                self.more[word - 1] |= 1 << (index % 64);
            }
        }
    }

    pub(in crate::planning) fn remove(&mut self, index: usize) {
        let word = match index / 64 {
            0 => Some(&mut self.first),
            word => self.more.get_mut(word - 1),
        };
        if let Some(word) = word {
            *word &= !(1 << (index % 64));
        }
    }

    pub(in crate::planning) fn contains(&self, index: usize) -> bool {
        let word = match index / 64 {
            0 => self.first,
            word => self.more.get(word - 1).copied().unwrap_or(0),
        };
        word & (1 << (index % 64)) != 0
    }

    pub(in crate::planning) fn intersection(&self, other: &Self) -> Self {
        let more = self.more.iter().zip(&other.more).map(|(a, b)| a & b);
        Self {
            first: self.first & other.first,
            more: more.collect(),
        }
    }

    pub(in crate::planning) fn is_empty(&self) -> bool {
        self.first == 0 && self.more.iter().all(|word| *word == 0)
    }

    pub(in crate::planning) fn len(&self) -> u32 {
        self.first.count_ones() + self.more.iter().map(|word| word.count_ones()).sum::<u32>()
    }
}

impl<'w> PoolPlan<'w> {
    /// Why one more machine of this size would pass a limit of the pool.
    pub(in crate::planning) fn limit(&self, usage: &Usage, size: Size) -> Option<Limit> {
        limit(self.facts, usage, size)
    }

    /// Why nothing can be made for the pool, where it has no offers.
    pub(in crate::planning) fn nothing_to_make(&self) -> Why {
        let blocked = self.blocked.first().cloned();
        blocked.unwrap_or(Why::Unusable(Unusable::NothingToMake))
    }
}

fn limit(pool: &PoolFacts, usage: &Usage, size: Size) -> Option<Limit> {
    let limits = &pool.limits;
    if usage.nodes >= limits.max_nodes {
        let (now, most) = (usage.nodes, limits.max_nodes);
        return Some(Limit::Machines { now, most });
    }
    let cores = usage.milli_cores.saturating_add(size.milli_cores);
    if let Some(most) = limits.milli_cores().filter(|most| cores > *most) {
        let now = usage.milli_cores;
        return Some(Limit::MilliCores { now, most });
    }
    let memory = usage.memory_bytes.saturating_add(size.memory_bytes);
    if let Some(most) = limits.memory_bytes().filter(|most| memory > *most) {
        let now = usage.memory_bytes;
        return Some(Limit::MemoryBytes { now, most });
    }
    None
}

/// The limit that keeps the pool from one more machine, of whatever type. Only machines whose NodeClaims exist count.
pub fn limit_reached(world: &World, name: &PoolName) -> Option<Limit> {
    let pool = world.pools().get(name)?;
    let mut ledger = world.ledger().cloned().unwrap_or_default();
    let is_live = |entry: &LedgerEntry| matches!(entry.state, EntryState::Live);
    ledger.entries.retain(is_live);
    let usage = ledger::usage_by_pool(&ledger);
    let usage = usage.get(name).copied().unwrap_or_default();
    let types = world.classes().get(&pool.node_class).map(|class| {
        let types = class.instance_types.iter().map(size_of);
        types.map(|size| limit(pool, &usage, size))
    });
    match types {
        // One type that can be made is enough.
        Some(limits) => limits.reduce(|a, b| a.and_then(|a| b.map(|_| a))).flatten(),
        None => limit(pool, &usage, Size::default()),
    }
}

/// How many more machines the limits of the pool allow, of the type of which they allow most. What is promised counts too.
pub fn machines_left(world: &World, name: &PoolName) -> u32 {
    let Some(pool) = world.pools().get(name) else {
        return 0;
    };
    let usage = world.ledger().map(ledger::usage_by_pool);
    let usage = usage.and_then(|usage| usage.get(name).copied());
    let usage = usage.unwrap_or_default();
    let by_number = pool.limits.max_nodes.saturating_sub(usage.nodes);
    let times = |most: Option<u64>, used: u64, each: u64| {
        let times = most?.saturating_sub(used).checked_div(each)?;
        u32::try_from(times).ok()
    };
    let class = world.classes().get(&pool.node_class).into_iter();
    let sizes = class.flat_map(|class| class.instance_types.iter().map(size_of));
    let of_each = sizes.map(|size| {
        let by_cores = times(
            pool.limits.milli_cores(),
            usage.milli_cores,
            size.milli_cores,
        );
        let by_memory = times(
            pool.limits.memory_bytes(),
            usage.memory_bytes,
            size.memory_bytes,
        );
        by_number
            .min(by_cores.unwrap_or(u32::MAX))
            .min(by_memory.unwrap_or(u32::MAX))
    });
    of_each.max().unwrap_or(0)
}

/// How large a machine is.
pub(in crate::planning) fn cost(size: Size) -> u64 {
    size.milli_cores
        .saturating_mul(BYTES_PER_MILLI_CORE)
        .saturating_add(size.memory_bytes)
}

pub(in crate::planning) fn add(usage: &mut Usage, size: Size) {
    usage.nodes += 1;
    usage.milli_cores = usage.milli_cores.saturating_add(size.milli_cores);
    usage.memory_bytes = usage.memory_bytes.saturating_add(size.memory_bytes);
}

pub(in crate::planning) fn remove(usage: &mut Usage, size: Size) {
    usage.nodes -= 1;
    usage.milli_cores -= size.milli_cores;
    usage.memory_bytes -= size.memory_bytes;
}

pub(in crate::planning) fn size_of(instance_type: &InstanceType) -> Size {
    Size {
        milli_cores: u64::from(instance_type.cores) * 1000,
        memory_bytes: instance_type.memory_bytes(),
    }
}

pub(in crate::planning) fn machine(pool: &PoolName, instance_type: &InstanceType) -> Machine {
    Machine {
        pool: pool.clone(),
        instance_type: instance_type.name.clone(),
        size: size_of(instance_type),
        attributes: Vec::new(),
    }
}

impl<'w> Planning<'w> {
    /// Pools by weight, then by name.
    pub(in crate::planning) fn prepare_pools(&mut self) {
        let world = self.tick.world;
        self.placing.room = self.survey();
        let usage = ledger::usage_by_pool(&self.ledger);
        let mut pools: Vec<PoolPlan<'w>> = world
            .pools()
            .iter()
            .map(|(name, facts)| (name, facts, loops::settings(world, name)))
            .map(|(name, facts, settings)| PoolPlan {
                name,
                facts,
                class: self.class_of(name, facts, &settings),
                settings,
                hypervisors: self.hypervisors_of(facts),
                usage: usage.get(name).copied().unwrap_or_default(),
                offers: Vec::new(),
                blocked: Vec::new(),
            })
            .collect();
        pools.sort_by(|a, b| (b.facts.weight, a.name).cmp(&(a.facts.weight, b.name)));
        self.pools = pools;
    }

    fn hypervisors_of(&self, pool: &PoolFacts) -> Vec<usize> {
        let all = self.hypervisors.all.iter().enumerate();
        all.filter(|(_, hypervisor)| {
            pool.clusters.is_empty() || pool.clusters.contains(&hypervisor.id.cluster)
        })
        .map(|(index, _)| index)
        .collect()
    }

    fn class_of(
        &self,
        name: &PoolName,
        pool: &PoolFacts,
        settings: &Digest,
    ) -> Result<&'w ClassFacts, Unusable> {
        let world = self.tick.world;
        if let Some(problem) = pool.problem.clone() {
            let pool = name.clone();
            return Err(Unusable::Pool { pool, problem });
        }
        if pool.existence.deleting_since.is_some() {
            return Err(Unusable::BeingDeleted(name.clone()));
        }
        if pool.paused {
            return Err(Unusable::Paused(name.clone()));
        }
        if let Some(until) = loops::paused_until(&self.ledger, name, settings) {
            let pool = name.clone();
            return Err(Unusable::LaunchesPaused { pool, until });
        }
        if !world.host().key_known {
            return Err(Unusable::NoKey);
        }
        if let Some(problem) = &world.host().definition_problem {
            return Err(Unusable::Definitions(problem.clone()));
        }
        let mut named = pool.clusters.iter();
        if let Some(gone) = named.find(|cluster| !world.clusters().contains_key(*cluster)) {
            let (pool, cluster) = (name.clone(), gone.clone());
            return Err(Unusable::NoSuchCluster { pool, cluster });
        }
        let class = pool.node_class.clone();
        let Some(facts) = world.classes().get(&class) else {
            let pool = name.clone();
            return Err(Unusable::NoSuchClass { pool, class });
        };
        if facts.existence.deleting_since.is_some() {
            return Err(Unusable::ClassBeingDeleted(class));
        }
        if let Some(problem) = facts.problem.clone() {
            return Err(Unusable::Class { class, problem });
        }
        if facts.instance_types.is_empty() {
            return Err(Unusable::NoInstanceTypes(class));
        }
        if self.hypervisors_of(pool).is_empty() {
            return Err(self.no_hypervisors(pool));
        }
        Ok(facts)
    }

    fn no_hypervisors(&self, pool: &PoolFacts) -> Unusable {
        let world = self.tick.world;
        let mut clusters = world
            .clusters()
            .keys()
            .filter(|name| pool.clusters.is_empty() || pool.clusters.contains(name));
        let Some(cluster) = clusters.next().cloned() else {
            return Unusable::NoCluster;
        };
        match world.inventories().get(&cluster) {
            None => Unusable::UnseenCluster(cluster),
            Some(inventory) => Unusable::Cluster {
                problem: inventory.problem.clone(),
                cluster,
            },
        }
    }

    /// What each pool's machines would be, now that their labels are known.
    pub(in crate::planning) fn make_offers(&mut self) {
        for index in 0..self.pools.len() {
            let (offers, blocked) = self.offers_of(&self.pools[index]);
            self.pools[index].offers = offers;
            self.pools[index].blocked = blocked;
        }
    }

    fn offers_of(&self, pool: &PoolPlan<'w>) -> (Vec<Offer<'w>>, Vec<Why>) {
        let (mut offers, mut blocked) = (Vec::new(), Vec::new());
        let Ok(class) = &pool.class else {
            return (offers, blocked);
        };
        for instance_type in &class.instance_types {
            match self.decorating.of(pool.name, &instance_type.name) {
                Some(Err(why)) => blocked.push(why.clone()),
                Some(Ok(decorations)) => {
                    offers.extend(self.parts(pool, class, instance_type, decorations))
                }
                None => {}
            }
        }
        (offers, blocked)
    }

    /// The offers of one type: usually one; several where different DaemonSets would run on different hypervisors.
    fn parts(
        &self,
        pool: &PoolPlan<'w>,
        class: &'w ClassFacts,
        instance_type: &'w InstanceType,
        decorations: &[Decoration],
    ) -> Vec<Offer<'w>> {
        let size = size_of(instance_type);
        let learned = &self.learned;
        let shown = learned.csi(&pool.facts.node_class);
        let sites: Vec<_> = pool
            .hypervisors
            .iter()
            .map(|index| {
                self.hypervisors.site(
                    *index,
                    &pool.facts.node_class,
                    class,
                    instance_type,
                    &self.backoff,
                    self.tick.now,
                )
            })
            .collect();
        let profiles: Vec<NodeProfile<'w>> = pool
            .hypervisors
            .iter()
            .zip(decorations)
            .map(|(index, decoration)| {
                let id = &self.hypervisors.all[*index].id;
                let labels = shape::claim_labels(
                    NEW,
                    pool.name,
                    pool.facts,
                    class,
                    instance_type,
                    id,
                    decoration,
                );
                let taints = shape::claim_taints(pool.facts, decoration);
                shape::profile(NEW, class, shown, labels, taints)
            })
            .collect();
        let required = &pool.facts.requirements;
        let sites = sites.into_iter().zip(&profiles).map(|(site, profile)| {
            match unmet(required, &profile.labels) {
                Some(unmet) => Err(Refusal::Requirement(unmet.clone())),
                None => site,
            }
        });
        let sites: Vec<_> = sites.collect();
        let disks = sites
            .iter()
            .flatten()
            .map(|site| site.clone.template.boot_bytes());
        let whole = learned.allocatable(
            &pool.facts.node_class,
            class,
            instance_type,
            disks.clone().min().unwrap_or(0),
        );
        let template_disks = sites
            .iter()
            .flatten()
            .map(|site| site.clone.template.disks.len());
        let template_disks = u32::try_from(template_disks.max().unwrap_or(1)).unwrap_or(u32::MAX);
        let name = &pool.facts.node_class;
        let nominal = learned.nominal(name, class, instance_type, disks.min().unwrap_or(0));
        let is_tried = learned.is_tried_again(name, instance_type, self.tick.now);
        let nominal = (is_tried && !nominal.fits(&whole)).then_some(nominal);
        let mut nominal_parts: BTreeMap<Free, SiteSet> = BTreeMap::new();
        let mut parts: BTreeMap<Free, SiteSet> = BTreeMap::new();
        for (index, profile) in profiles.iter().enumerate() {
            let name = &pool.facts.node_class;
            let daemons = learned.daemons_on(name, instance_type, profile);
            let limits = learned.volume_limits(name, class, &profile.labels, template_disks);
            let free = Free::with(whole.clone(), Attachable::with(&limits), &daemons);
            if let Some(nominal) = &nominal {
                let nominal = Free::with(nominal.clone(), Attachable::with(&limits), &daemons);
                nominal_parts.entry(nominal).or_default().insert(index);
            }
            parts.entry(free).or_default().insert(index);
        }
        let parts = parts.into_iter().map(|(free, part)| (free, part, false));
        let nominal_parts = nominal_parts.into_iter();
        parts
            .chain(nominal_parts.map(|(free, part)| (free, part, true)))
            .map(|(free, part, is_retry)| Offer {
                is_retry,
                instance_type,
                size,
                free,
                sites: sites.clone(),
                profiles: profiles.clone(),
                part,
            })
            .collect()
    }
}
