//! Which pods stand in one domain: required affinity and anti-affinity between pods, and topology spread, as kube-scheduler's
//! plugins InterPodAffinity and PodTopologySpread filter.
//!
//! A domain is all Nodes with one value of a label, such as one host or one zone. A [`Count`] says how many pods of a kind
//! stand in each. Counts are made once in a tick for the pods that are there, and kept by [`Topology::put`] and
//! [`Topology::take_back`] while pods are placed and moved in thought.

mod build;
mod count;
mod selecting;
mod soft_affinity;
mod turns;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use self::count::{Count, Who};
use self::soft_affinity::Preferred;
pub(in crate::planning) use self::turns::{MOST_STEPS, Turns};
use super::fit::NodeProfile;
use crate::facts::{PodSpec, SpreadConstraint};
use crate::ids::ObjectKey;
use crate::keys::HOSTNAME;
use crate::plan::report::Misfit;
use crate::world::{Id, NodeView, PodView};

#[cfg(test)]
std::thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Rules that plans of this thread have held against places so far.
#[cfg(test)]
pub(in crate::planning) fn steps() -> u64 {
    STEPS.get()
}

#[cfg(test)]
impl Topology<'_> {
    pub(in crate::planning) fn counts(&self) -> usize {
        self.counts.len()
    }

    pub(in crate::planning) fn rules(&self) -> usize {
        self.shapes.values().map(|kin| kin.rules.len()).sum()
    }
}

#[derive(Clone, Default)]
pub(in crate::planning) struct Topology<'w> {
    counts: Vec<Count<'w>>,
    /// What pending pods prefer to stand with, or away from. It keeps no pod away.
    preferred: Vec<Preferred<'w>>,
    /// What concerns the pods of a shape. A shape that is not here has no rules and is counted nowhere. Packing copies the
    /// counts often, and this never changes.
    shapes: Arc<BTreeMap<Id, Kin<'w>>>,
    /// DaemonSets whose pods some count counts. A machine to come brings them.
    daemons: Arc<[Daemon<'w>]>,
    /// Machines to be made that have a host name so far.
    hosts: usize,
}

#[derive(Clone)]
struct Daemon<'w> {
    key: &'w ObjectKey,
    spec: &'w PodSpec,
    counted_in: Vec<usize>,
}

/// A place, by the labels that say in which domains it is.
#[derive(Clone, Copy)]
pub(in crate::planning) struct Spot<'a> {
    profile: &'a NodeProfile<'a>,
    machine: Machine<'a>,
}

#[derive(Clone, Copy)]
enum Machine<'a> {
    InService,
    /// Its Node may be there already.
    Coming(Option<NodeView<'a>>),
    /// Its host name stands for one that it does not have yet: each machine is a domain of its own.
    ToBeMade {
        host: &'a str,
    },
}

impl<'a> Spot<'a> {
    pub(in crate::planning) fn of(profile: &'a NodeProfile<'a>) -> Self {
        Self {
            profile,
            machine: Machine::InService,
        }
    }

    pub(in crate::planning) fn coming(
        profile: &'a NodeProfile<'a>,
        node: Option<NodeView<'a>>,
    ) -> Self {
        Self {
            profile,
            machine: Machine::Coming(node),
        }
    }

    pub(in crate::planning) fn to_be_made(profile: &'a NodeProfile<'a>, host: &'a str) -> Self {
        Self {
            profile,
            machine: Machine::ToBeMade { host },
        }
    }

    fn domain(self, key: &str) -> Option<&'a str> {
        match self.machine {
            Machine::ToBeMade { host } if key == HOSTNAME => Some(host),
            Machine::InService | Machine::Coming(_) | Machine::ToBeMade { .. } => {
                self.profile.labels.get(key).map(String::as_str)
            }
        }
    }

    /// A pod of the DaemonSet will stand here, and is not counted yet.
    fn awaits(self, daemon: &Daemon<'_>) -> bool {
        let stands_on = |node: NodeView<'_>| {
            node.pods().any(|pod| {
                let name = pod.owner().map(|owner| &owner.name);
                pod.is_of_daemon_set()
                    && *pod.namespace() == daemon.key.namespace
                    && name == Some(&daemon.key.name)
            })
        };
        let is_awaited = match self.machine {
            Machine::InService => false,
            Machine::Coming(node) => !node.is_some_and(stands_on),
            Machine::ToBeMade { .. } => true,
        };
        is_awaited && self.profile.misfit(daemon.spec).is_none()
    }
}

#[derive(Clone, Default)]
struct Kin<'w> {
    rules: Vec<Rule<'w>>,
    /// The counts that a pod of this shape is part of.
    counted_in: Vec<usize>,
    /// Counts of `preferred`, and what each pod in them is worth to a pod of this shape.
    prefers: Vec<(usize, i32)>,
    /// The counts of `preferred` that a pod of this shape is part of.
    preferred_in: Vec<usize>,
}

#[derive(Clone)]
enum Rule<'w> {
    /// A counted pod may not stand in the domain. `ours`: the pod itself says so, not one that stands there.
    Away { count: usize, ours: bool },
    /// One count for each term: in all domains a pod must stand that all terms select. `selects_itself`: where there is no
    /// such pod anywhere, the first one may go where it likes.
    Beside {
        counts: Vec<usize>,
        selects_itself: bool,
    },
    Spread {
        count: usize,
        constraint: &'w SpreadConstraint,
        counts_itself: bool,
    },
}

impl<'w> Topology<'w> {
    /// A Node that is there, with its pods.
    fn add_node(&mut self, node: &NodeView<'w>) {
        let profile = NodeProfile::of(node);
        let spot = Spot::of(&profile);
        self.add_place(spot);
        for pod in node.pods().filter(PodView::is_alive) {
            self.change(pod.shape_id(), spot, pod.is_deleting(), |pods| *pods += 1);
            self.change_preferred(pod.shape_id(), spot, pod.is_deleting(), |pods| *pods += 1);
        }
    }

    /// A place makes its domains exist for the spreads that count it, if no other place has.
    pub(in crate::planning) fn add_place(&mut self, spot: Spot<'_>) {
        self.open_domains(spot, true);
    }

    /// The same for a machine to be made. Its host is a domain. Its hypervisor is one only if the machine `stays` there: the
    /// policy may choose another.
    pub(in crate::planning) fn open_domains(&mut self, spot: Spot<'_>, stays: bool) {
        for count in &mut self.counts {
            let is_spread = matches!(count.who, Who::Spread(..));
            if is_spread && (stays || count.key == HOSTNAME) && count.who.counts_on(spot) {
                count.at(spot, |_| {});
            }
        }
    }

    /// A machine there would be the first in a zone of some spread, and pods would spread to it.
    pub(in crate::planning) fn opens_domain(&self, spot: Spot<'_>) -> bool {
        self.counts.iter().any(|count| {
            let is_new = || {
                let value = spot.domain(count.key);
                value.is_some_and(|value| !count.domains.contains_key(value))
            };
            matches!(count.who, Who::Spread(..))
                && count.key != HOSTNAME
                && is_new()
                && count.who.counts_on(spot)
        })
    }

    /// Stands for the name of the next machine to be made.
    pub(in crate::planning) fn next_host(&self, pool: &str) -> Arc<str> {
        format!("{pool}#{}", self.hosts).into()
    }

    pub(in crate::planning) fn take_host(&mut self) {
        self.hosts += 1;
    }

    /// Whether the pods of this shape have to be placed one by one.
    pub(in crate::planning) fn has_rules(&self, shape: Id) -> bool {
        self.shapes
            .get(&shape)
            .is_some_and(|kin| !kin.rules.is_empty())
    }

    /// Whether it makes a difference on which hypervisor a machine with a pod of this shape stands.
    pub(in crate::planning) fn needs_place(&self, shape: Id) -> bool {
        self.shapes.get(&shape).is_some_and(|kin| {
            let of_rules = kin.rules.iter().flat_map(Rule::counts);
            let mut all = of_rules.chain(&kin.counted_in);
            all.any(|count| self.counts[*count].key != HOSTNAME)
        })
    }

    /// How many of the pods that a pod of this shape spreads from are there already. Where several domains may take it, the
    /// emptiest is best.
    pub(in crate::planning) fn crowd(&self, shape: Id, spot: Spot<'_>) -> u32 {
        let rules = self.shapes.get(&shape).map_or(&[][..], |kin| &kin.rules);
        let spreads = rules.iter().filter_map(|rule| match rule {
            Rule::Spread { count, .. } => self.in_domain(*count, spot),
            Rule::Away { .. } | Rule::Beside { .. } => None,
        });
        spreads.sum()
    }

    pub(in crate::planning) fn put(&mut self, shape: Id, spot: Spot<'_>, pods: u32) {
        self.put_in_thought(shape, spot, pods);
        self.put_for_preferences(shape, spot, pods);
    }

    /// Puts pods on a machine whose hypervisor the policy has yet to choose.
    pub(in crate::planning) fn put_in_thought(&mut self, shape: Id, spot: Spot<'_>, pods: u32) {
        self.change(shape, spot, false, |count| *count += pods);
    }

    pub(in crate::planning) fn take_back(&mut self, shape: Id, spot: Spot<'_>, pods: u32) {
        let by = |count: &mut u32| *count = count.saturating_sub(pods);
        self.change(shape, spot, false, by);
        self.change_preferred(shape, spot, false, by);
    }

    fn change(&mut self, shape: Id, spot: Spot<'_>, is_deleting: bool, by: impl Fn(&mut u32)) {
        let Some(kin) = self.shapes.get(&shape) else {
            return;
        };
        for index in &kin.counted_in {
            let count = &mut self.counts[*index];
            // A spread does not count pods that are on their way out.
            let is_spread = matches!(count.who, Who::Spread(..));
            if !(is_spread && is_deleting) && count.who.counts_on(spot) {
                count.at(spot, &by);
            }
        }
    }

    /// The first rule that keeps a pod of this shape away from a place.
    pub(in crate::planning) fn misfit(&self, shape: Id, spot: Spot<'_>) -> Option<Misfit<'static>> {
        let rules = &self.shapes.get(&shape)?.rules;
        rules.iter().find_map(|rule| self.broken_rule(rule, spot))
    }

    /// Whether a rule does: [`Self::misfit`] without the reason, for the many places that packing looks at.
    pub(in crate::planning) fn keeps_away(&self, shape: Id, spot: Spot<'_>) -> bool {
        let rules = self.shapes.get(&shape).map_or(&[][..], |kin| &kin.rules);
        #[cfg(test)]
        STEPS.set(STEPS.get() + rules.len() as u64);
        let is_broken = |rule: &Rule<'w>| match rule {
            // Telling which domain would take the pod looks at all of them.
            Rule::Spread {
                count,
                constraint,
                counts_itself,
            } => self.is_skewed(*count, constraint, *counts_itself, spot),
            Rule::Away { count, .. } => self.in_domain(*count, spot).is_some_and(|pods| pods > 0),
            Rule::Beside { .. } => self.broken_rule(rule, spot).is_some(),
        };
        rules.iter().any(is_broken)
    }

    /// A pod on the same host does: it stays, whatever else is packed.
    pub(in crate::planning) fn host_keeps_away(&self, shape: Id, spot: Spot<'_>) -> bool {
        let rules = self.shapes.get(&shape).map_or(&[][..], |kin| &kin.rules);
        rules.iter().any(|rule| match rule {
            Rule::Away { count, .. } => {
                let count = &self.counts[*count];
                count.key == HOSTNAME && count.in_domain(spot).is_some_and(|pods| pods > 0)
            }
            Rule::Beside { .. } | Rule::Spread { .. } => false,
        })
    }

    /// One more pod here would be too many.
    fn is_skewed(
        &self,
        count: usize,
        constraint: &SpreadConstraint,
        counts_itself: bool,
        spot: Spot<'_>,
    ) -> bool {
        let brought = self.brought(count, spot);
        let count = &self.counts[count];
        // A Node without the label is refused as one whose labels do not match.
        let Some(value) = spot.domain(count.key) else {
            return false;
        };
        let standing = count.domains.get(value).copied();
        // The place's own domain exists once the place does.
        let is_new = standing.is_none() && count.who.counts_on(spot);
        let domains = count.domains.len() + usize::from(is_new);
        let here = standing.unwrap_or(0) + brought;
        let own = (is_new || standing.is_some()).then_some(here);
        // The place's own domain counts with what the machine brings.
        let others = count.least_without(standing);
        let least = others.into_iter().chain(own).min();
        let too_few = domains < constraint.min_domains as usize;
        let least = if too_few { 0 } else { least.unwrap_or(0) };
        let after = here + u32::from(counts_itself);
        after.saturating_sub(least) > constraint.max_skew
    }

    /// Pods in the domain of this place, with those that a machine to come brings; `None`: it is in none.
    fn in_domain(&self, count: usize, spot: Spot<'_>) -> Option<u32> {
        let standing = self.counts[count].in_domain(spot)?;
        Some(standing + self.brought(count, spot))
    }

    /// Pods of DaemonSets that will stand on this machine and be counted.
    fn brought(&self, count: usize, spot: Spot<'_>) -> u32 {
        let counted = |daemon: &&Daemon<'_>| daemon.counted_in.contains(&count);
        let coming = self.daemons.iter().filter(counted);
        let coming = coming.filter(|daemon| spot.awaits(daemon)).count();
        match coming > 0 && self.counts[count].who.counts_on(spot) {
            true => u32::try_from(coming).unwrap_or(u32::MAX),
            false => 0,
        }
    }

    /// The same once these pods are gone that end on the place.
    pub(in crate::planning) fn misfit_without(
        &mut self,
        shape: Id,
        spot: Spot<'_>,
        ending: &[Id],
    ) -> Option<Misfit<'static>> {
        for pod in ending {
            self.change(*pod, spot, true, |count| *count = count.saturating_sub(1));
        }
        let misfit = self.misfit(shape, spot);
        for pod in ending {
            self.change(*pod, spot, true, |count| *count += 1);
        }
        misfit
    }

    fn broken_rule(&self, rule: &Rule<'w>, spot: Spot<'_>) -> Option<Misfit<'static>> {
        let owned = |key: &str| Cow::Owned(key.to_owned());
        match rule {
            Rule::Away { count, ours } => {
                (self.in_domain(*count, spot)? > 0).then(|| Misfit::PodAntiAffinity {
                    key: owned(self.counts[*count].key),
                    ours: *ours,
                })
            }
            Rule::Beside {
                counts,
                selects_itself,
            } => {
                let outside = counts
                    .iter()
                    .find(|count| self.in_domain(**count, spot).is_none());
                if let Some(outside) = outside {
                    return Some(Misfit::PodAffinity {
                        key: owned(self.counts[*outside].key),
                    });
                }
                let is_empty = |count: &usize| {
                    self.counts[*count].is_empty() && self.brought(*count, spot) == 0
                };
                let is_first = || *selects_itself && counts.iter().all(is_empty);
                let alone = counts
                    .iter()
                    .find(|count| self.in_domain(**count, spot) == Some(0))?;
                (!is_first()).then(|| Misfit::PodAffinity {
                    key: owned(self.counts[*alone].key),
                })
            }
            Rule::Spread {
                count,
                constraint,
                counts_itself,
            } => {
                let is_skewed = self.is_skewed(*count, constraint, *counts_itself, spot);
                let count = &self.counts[*count];
                is_skewed.then(|| Misfit::TopologySpread {
                    key: owned(count.key),
                    least: count.emptiest(),
                })
            }
        }
    }
}

impl Rule<'_> {
    fn counts(&self) -> &[usize] {
        match self {
            Self::Away { count, .. } | Self::Spread { count, .. } => std::slice::from_ref(count),
            Self::Beside { counts, .. } => counts,
        }
    }
}
