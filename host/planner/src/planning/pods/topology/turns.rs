//! A plan takes only so many steps: namespaces have equal shares, so that none stops planning for the others. The planner
//! reads no clock, so it reckons beforehand what pods with terms about other pods or about Nodes cost, and puts off those that
//! are too dear. A pod without such terms is never put off.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::count::{Counted, Subject, standing};
use super::selecting::{Chooser, Reach, Selecting};
use crate::facts::{PodSpec, PodTerm};
use crate::planning::up::placement::stable_hash;
use crate::world::{Id, PodView, World};

/// One step holds a rule of a pod against a place, in one of the tries of packing, or one thing that a shape asks of Nodes
/// against a Node. Clusters of 10,000 pods that spread over 2,000 new machines stay below this.
pub(in crate::planning) const MOST_STEPS: u64 = 100_000_000;

/// A rule for a shape that a term selects takes no longer, but few enough are made that they need little memory.
const NEW_RULE: u64 = 20;

/// So long it takes to write down the domain of a place, and so few are written down that they need little memory.
const NEW_DOMAIN: u64 = 40;

/// Who is put off.
#[derive(Default)]
pub(in crate::planning) struct Turns {
    /// How many of the pending pods of a shape.
    pub(in crate::planning) later: BTreeMap<Id, u32>,
    /// Shapes whose terms are not looked at.
    pub(super) unheard: BTreeSet<Id>,
    /// Shapes of running pods that are unheard or that such a pod may keep away: where they could go nobody knows.
    pub(in crate::planning) unsettled: BTreeSet<Id>,
    /// Reckoned for those that have their turn.
    #[cfg(test)]
    pub(in crate::planning) steps: u64,
}

struct Waiting<'w> {
    shape: Id,
    spec: &'w PodSpec,
    namespace: &'w str,
    /// Pods that have not had their turn. Those that run have theirs together, as one.
    pods: u32,
    runs: bool,
}

struct Reckoning<'w> {
    reach: BTreeMap<Chooser<'w>, Reach>,
    /// What is reckoned already: pods of several shapes may have one term.
    reached: BTreeSet<Chooser<'w>>,
    /// The same of what spreads count.
    counted: BTreeSet<Counted<'w>>,
    /// What each place takes for these.
    spreads: u64,
    /// Nodes and machines to come. Each pod may get a machine of its own.
    places: u64,
    /// Where a machine may be made: one of each type of a pool on each hypervisor.
    sites: u64,
    /// See [`Turns::nodes`].
    nodes: u64,
    steps: u64,
}

impl Turns {
    pub(in crate::planning) fn of(world: &World, now: Timestamp, most: u64) -> Self {
        let asks = |spec: &PodSpec| spec.terms() > 0 || spec.asks_of_nodes() > 0;
        if !world.shapes().any(|(_, shape)| asks(shape.spec)) {
            return Self::default();
        }
        let pending: BTreeMap<Id, u32> = world
            .pending()
            .iter()
            .map(|(_, pods)| (pods.shape(), u32::try_from(pods.len()).unwrap_or(u32::MAX)))
            .collect();
        let mut running: BTreeMap<Id, u64> = BTreeMap::new();
        let pods = world.nodes().flat_map(|node| node.pods());
        for pod in pods.filter(PodView::is_alive) {
            *running.entry(pod.shape_id()).or_default() += 1;
        }
        let mut namespaces: BTreeMap<&str, Vec<Waiting<'_>>> = BTreeMap::new();
        for (id, shape) in world.shapes().filter(|(_, shape)| asks(shape.spec)) {
            let waits = pending.get(&id).map(|pods| (*pods, false));
            let runs = running.contains_key(&id) && shape.spec.terms() > 0;
            for (pods, runs) in runs.then_some((1, true)).into_iter().chain(waits) {
                let waiting = namespaces.entry(shape.namespace).or_default();
                waiting.push(Waiting {
                    shape: id,
                    spec: shape.spec,
                    namespace: shape.namespace,
                    pods,
                    runs,
                });
            }
        }
        if namespaces.is_empty() {
            return Self::default();
        }
        let counts = |shape: Id| Reach {
            shapes: 1,
            pods: pending.get(&shape).map_or(0, |pods| u64::from(*pods)),
            running: running.get(&shape).copied().unwrap_or(0),
        };
        let places = world.nodes().count() + world.claims().len();
        let mut reckoning = Reckoning {
            reach: BTreeMap::new(),
            reached: BTreeSet::new(),
            counted: BTreeSet::new(),
            spreads: 0,
            places: places as u64,
            sites: sites(world),
            nodes: Self::nodes(world),
            steps: 0,
        };
        let all = namespaces.values().flatten();
        let everything = world.shapes().map(|(id, _)| counts(id)).sum();
        if reckoning.at_most(all.clone(), everything) <= most {
            return Self::default();
        }
        reckoning.reach = reach(all, world, counts);
        // Each tick begins elsewhere, so that nobody is always the last.
        let now = now.as_second().to_string();
        let mut namespaces: Vec<_> = namespaces.into_values().collect();
        namespaces.sort_by_cached_key(|waiting| stable_hash(&[&now, waiting[0].namespace]));
        for waiting in &mut namespaces {
            waiting.sort_by(|a, b| (b.spec.priority, a.spec).cmp(&(a.spec.priority, b.spec)));
            let first = stable_hash(&[waiting[0].namespace, &now]) % waiting.len() as u64;
            waiting.rotate_left(first as usize);
        }
        // Then what some leave over.
        let share = most / namespaces.len() as u64;
        for share in [Some(share), None] {
            for of_one in &mut namespaces {
                let end = share.map_or(most, |share| most.min(reckoning.steps + share));
                for waiting in of_one.iter_mut().filter(|waiting| waiting.pods > 0) {
                    reckoning.take_turn(waiting, end);
                }
            }
        }
        let (off, heard): (Vec<_>, Vec<_>) =
            namespaces.into_iter().flatten().partition(|it| it.pods > 0);
        let mut unheard: BTreeSet<Id> = off.iter().map(|it| it.shape).collect();
        let later = off.iter().filter(|it| !it.runs);
        let later: BTreeMap<Id, u32> = later.map(|it| (it.shape, it.pods)).collect();
        let has_begun = |it: &Id| later.get(it).is_some_and(|pods| *pods < pending[it]);
        let heard: BTreeSet<Id> = heard.iter().map(|it| it.shape).collect();
        unheard.retain(|shape| !heard.contains(shape) && !has_begun(shape));
        let off = off
            .iter()
            .filter(|it| it.runs && unheard.contains(&it.shape));
        Self {
            unsettled: unsettled(off, world),
            later,
            unheard,
            #[cfg(test)]
            steps: reckoning.steps,
        }
    }

    #[cfg(test)]
    pub(in crate::planning) fn is_unheard(&self, shape: Id) -> bool {
        self.unheard.contains(&shape)
    }

    /// What is held against what pods ask of Nodes: Nodes, machines to come, and where a machine may be made.
    pub(in crate::planning) fn nodes(world: &World) -> u64 {
        (world.nodes().count() + world.claims().len()) as u64 + sites(world)
    }
}

fn sites(world: &World) -> u64 {
    let classes = world.pools().values().map(|pool| &pool.node_class);
    let classes = classes.filter_map(|class| world.classes().get(class));
    let types: usize = classes.map(|class| class.instance_types.len()).sum();
    let inventories = world.inventories().values();
    let hypervisors: usize = inventories.map(|it| it.hypervisors.len()).sum();
    (types * hypervisors) as u64
}

impl<'w> Reckoning<'w> {
    /// Whatever the terms say, with `all` the shapes and pods that there are. In most clusters this settles it.
    fn at_most<'p>(&self, waiting: impl Iterator<Item = &'p Waiting<'w>>, all: Reach) -> u64
    where
        'w: 'p,
    {
        let (mut pods, mut terms, mut choosing, mut walks) = (0, 0, 0, 0);
        let (mut of_nodes, mut spreads) = (0, 0);
        for it in waiting {
            if !it.runs {
                of_nodes += self.of_nodes(it.spec);
            }
            if it.spec.terms() == 0 {
                continue;
            }
            let count = it.spec.spread.len() as u64;
            spreads += count * (of_spread(it.spec) + NEW_DOMAIN);
            terms += it.spec.terms() as u64;
            choosing += choosers(it)
                .map(|(chooser, _)| all.shapes * (chooser.size() + NEW_RULE))
                .sum::<u64>();
            if !it.runs {
                let of_site = count * of_spread(it.spec);
                pods += u64::from(it.pods);
                walks += u64::from(it.pods) * (it.spec.terms() as u64 + of_site);
            }
        }
        let places = self.places + pods;
        of_nodes
            + choosing
            + terms * (all.pods * places + all.running * NEW_DOMAIN)
            + spreads * (all.pods + places)
            + walks * (places + self.sites)
    }

    /// What the pods of a shape ask of Nodes is held against each once, whatever their number.
    fn of_nodes(&self, spec: &PodSpec) -> u64 {
        spec.asks_of_nodes() as u64 * self.nodes
    }

    /// As many of these pods as there are steps for.
    fn take_turn(&mut self, waiting: &mut Waiting<'w>, end: u64) {
        let spec = waiting.spec;
        let mut steps = self.steps;
        if !waiting.runs {
            steps += self.of_nodes(spec);
        }
        let news = choosers(waiting).filter(|(chooser, _)| !self.reached.contains(chooser));
        let news: BTreeMap<Chooser<'w>, bool> = news.collect();
        for (chooser, keeps_away) in &news {
            let Reach {
                shapes,
                pods,
                running,
            } = self.reach[chooser];
            // It becomes a rule of all pods that it selects.
            let places = if *keeps_away { self.places + 1 } else { 1 };
            steps += shapes * (chooser.size() + NEW_RULE) + pods * places + running * NEW_DOMAIN;
        }
        let counted = self.newly_counted(waiting);
        for (_, _, spread, namespace) in &counted {
            let (constraint, _) = spread.as_ref().expect("it is a spread's");
            let chooser = Chooser::own(namespace, &constraint.selector);
            let pods = chooser.map_or(0, |chooser| self.reach[&chooser].pods);
            steps += (of_spread(spec) + NEW_DOMAIN) * (self.places + pods);
        }
        let spreads = self.spreads + counted.len() as u64 * (of_spread(spec) + NEW_DOMAIN);
        let of_site = spec.spread.len() as u64 * of_spread(spec);
        let terms = spec.terms() as u64;
        let mut taken = 0;
        while taken < waiting.pods {
            let is_placed = terms > 0 && !waiting.runs;
            let cost = match is_placed {
                false => 0,
                true => terms * (self.places + 1) + of_site * self.sites + spreads,
            };
            if steps + cost > end {
                break;
            }
            steps += cost;
            self.places += u64::from(is_placed);
            taken += 1;
        }
        if taken > 0 {
            waiting.pods -= taken;
            self.reached.extend(news.into_keys());
            self.counted.extend(counted);
            self.spreads = spreads;
            self.steps = steps;
        }
    }

    /// What is counted for the spreads of these pods and for none before.
    fn newly_counted(&self, waiting: &Waiting<'w>) -> BTreeSet<Counted<'w>> {
        let Waiting {
            spec, namespace, ..
        } = *waiting;
        let counted = spec.spread.iter().map(|constraint| {
            let spread = Some((constraint, standing(spec)));
            (&*constraint.topology_key, &[][..], spread, namespace)
        });
        counted.filter(|it| !self.counted.contains(it)).collect()
    }
}

/// One spread of such a pod at one place: whether pods count there goes by all its spreads and by what it asks of Nodes.
fn of_spread(spec: &PodSpec) -> u64 {
    let asks = spec.asks_of_nodes() + spec.node_selector.len() + spec.tolerations.len();
    (spec.spread.len() + asks) as u64
}

/// What selects pods for this shape, and whether it keeps them away.
fn choosers<'w>(waiting: &Waiting<'w>) -> impl Iterator<Item = (Chooser<'w>, bool)> + use<'w> {
    let Waiting {
        spec,
        namespace,
        runs,
        ..
    } = *waiting;
    let of = move |term: &'w PodTerm| Chooser::of(namespace, term);
    let away = spec.pod_anti_affinity.iter().filter_map(of);
    let beside = spec.pod_affinity.iter();
    // What pods prefer that run already moves none of them.
    let liked = spec.preferred_neighbours.iter().filter(move |_| !runs);
    let others = beside.chain(liked.map(|it| &it.term)).filter_map(of);
    let spreads = spec.spread.iter();
    let spreads = spreads.filter_map(move |it| Chooser::own(namespace, &it.selector));
    let away = away.map(|chooser| (chooser, true));
    spreads.chain(others).map(|it| (it, false)).chain(away)
}

fn reach<'p, 'w: 'p>(
    waiting: impl Iterator<Item = &'p Waiting<'w>>,
    world: &'w World,
    counts: impl Fn(Id) -> Reach,
) -> BTreeMap<Chooser<'w>, Reach> {
    let mut selecting = Selecting::default();
    for (chooser, _) in waiting.flat_map(choosers) {
        selecting.add(chooser, ());
    }
    let subjects = world.shapes();
    let subjects = subjects.map(|(id, shape)| (Subject::of(shape, world), counts(id)));
    selecting.by_label().reach(subjects)
}

/// These shapes, and those that they may keep away.
fn unsettled<'p, 'w: 'p>(
    off: impl Iterator<Item = &'p Waiting<'w>> + Clone,
    world: &'w World,
) -> BTreeSet<Id> {
    let mut selecting = Selecting::default();
    for (chooser, keeps_away) in off.clone().flat_map(choosers) {
        if keeps_away {
            selecting.add(chooser, ());
        }
    }
    let selectors = selecting.by_label();
    let shapes = world.shapes();
    let kept = shapes.filter(|(_, shape)| selectors.may_select(Subject::of(*shape, world)));
    kept.map(|(id, _)| id)
        .chain(off.map(|it| it.shape))
        .collect()
}
