//! What of the pods and DaemonSets that are there has to be counted, and which rules each shape has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::count::{Count, Counted, Subject, Who, is_selected, standing};
use super::selecting::{Chooser, Selecting};
use super::turns::Turns;
use super::{Daemon, Kin, Rule, Topology};
use crate::facts::PodTerm;
use crate::ids::ObjectKey;
use crate::kubernetes::selector::selects;
use crate::world::{Id, World};

/// Anti-affinity of pods, by their namespace, and where they are counted.
type KeepingAway<'w> = BTreeMap<(&'w str, &'w PodTerm), usize>;

/// What it means for a pod that a selector selects it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Selected {
    /// It is in this count, if all selectors of the count select it.
    Counted(usize),
    Preferred(usize),
    /// Pods with the term of this place in [`KeepingAway`] keep it away.
    Away(usize),
}

/// Those whose terms are looked at. Others are only counted where terms of other pods select them.
fn looked_at<'s, 'w, T>(
    subjects: &'s [(T, Subject<'w>)],
) -> impl Iterator<Item = &'s (T, Subject<'w>)> {
    subjects
        .iter()
        .filter(|(_, subject)| subject.spec.too_many.is_none())
}

impl<'w> Topology<'w> {
    /// Of the pods that are there. Few pods have such rules; where none has, nothing is counted.
    pub(in crate::planning) fn of(world: &'w World, turns: &Turns) -> Self {
        let subjects: Vec<(Id, Subject<'w>)> = world
            .shapes()
            .filter(|(id, _)| !turns.unheard.contains(id) || turns.unsettled.contains(id))
            .map(|(id, shape)| (id, Subject::of(shape, world)))
            .collect();
        let heard = || looked_at(&subjects).filter(|(id, _)| !turns.unheard.contains(id));
        let mut topology = Self::default();
        let mut shapes: BTreeMap<Id, Kin<'w>> = BTreeMap::new();
        let mut shared = BTreeMap::new();
        let mut keeping_away = KeepingAway::new();
        for (id, subject) in heard() {
            let rules = topology.own_rules(&mut shared, *subject);
            if !rules.is_empty() {
                shapes.entry(*id).or_default().rules = rules;
            }
        }
        let daemons = world.daemon_sets().iter();
        let daemons: Vec<(&ObjectKey, Subject<'w>)> = daemons
            .map(|(key, set)| (key, Subject::of_daemon_set(key, set, world)))
            .collect();
        let of_pods = heard().map(|(_, subject)| *subject);
        let of_daemons = looked_at(&daemons).map(|(_, subject)| *subject);
        for subject in of_pods.chain(of_daemons) {
            for term in &subject.spec.pod_anti_affinity {
                keeping_away
                    .entry((subject.namespace, term))
                    .or_insert_with(|| topology.count(&term.topology_key, Who::Having));
            }
        }
        topology.count_preferred(world, heard(), &mut shapes);
        if topology.counts.is_empty() && topology.preferred.is_empty() {
            return topology;
        }
        let selecting = topology.selecting(&keeping_away);
        let selectors = selecting.by_label();
        let away: Vec<usize> = keeping_away.values().copied().collect();
        for (id, subject) in &subjects {
            let selected = selectors.of(*subject);
            let rules = selected.iter().filter_map(|it| match it {
                Selected::Away(term) => Some(Rule::Away {
                    count: away[*term],
                    ours: false,
                }),
                Selected::Counted(_) | Selected::Preferred(_) => None,
            });
            let rules: Vec<_> = rules.collect();
            let counted_in = topology.counting(*subject, &selected, &keeping_away);
            let preferred_in = selected.iter().filter_map(|it| match it {
                Selected::Preferred(index) => Some(*index),
                Selected::Counted(_) | Selected::Away(_) => None,
            });
            let preferred_in: Vec<_> = preferred_in.collect();
            if !(rules.is_empty() && counted_in.is_empty() && preferred_in.is_empty()) {
                let kin = shapes.entry(*id).or_default();
                kin.rules.extend(rules);
                kin.counted_in = counted_in;
                kin.preferred_in = preferred_in;
            }
        }
        let counted = daemons.into_iter().filter_map(|(key, subject)| {
            let selected = selectors.of(subject);
            let counted_in = topology.counting(subject, &selected, &keeping_away);
            let spec = subject.spec;
            (!counted_in.is_empty()).then_some(Daemon {
                key,
                spec,
                counted_in,
            })
        });
        topology.daemons = counted.collect();
        topology.shapes = Arc::new(shapes);
        for node in world.nodes() {
            topology.add_node(&node);
        }
        topology
    }

    fn selecting(&self, keeping_away: &KeepingAway<'w>) -> Selecting<'w, Selected> {
        let mut selecting = Selecting::default();
        for (index, count) in self.counts.iter().enumerate() {
            for chooser in count.who.choosers().into_iter().flatten() {
                selecting.add(chooser, Selected::Counted(index));
            }
        }
        for (index, preferred) in self.preferred.iter().enumerate() {
            for chooser in preferred.count.who.choosers().into_iter().flatten() {
                selecting.add(chooser, Selected::Preferred(index));
            }
        }
        for (index, (namespace, term)) in keeping_away.keys().enumerate() {
            if let Some(chooser) = Chooser::of(namespace, term) {
                selecting.add(chooser, Selected::Away(index));
            }
        }
        selecting
    }

    /// The counts that such a pod is part of, ascending.
    fn counting(
        &self,
        subject: Subject<'w>,
        selected: &[Selected],
        keeping_away: &KeepingAway<'w>,
    ) -> Vec<usize> {
        let by_selectors = selected.chunk_by(PartialEq::eq);
        let by_selectors = by_selectors.filter_map(|same| match same[0] {
            Selected::Counted(index) => {
                let all = self.counts[index].who.choosers_count();
                (same.len() == all).then_some(index)
            }
            Selected::Preferred(_) | Selected::Away(_) => None,
        });
        let own = subject.spec.pod_anti_affinity.iter();
        let own = own.filter_map(|term| keeping_away.get(&(subject.namespace, term)).copied());
        let mut counting: Vec<usize> = by_selectors.chain(own).collect();
        counting.sort_unstable();
        counting.dedup();
        counting
    }

    fn count(&mut self, key: &'w str, who: Who<'w>) -> usize {
        self.counts.push(Count::new(key, who));
        self.counts.len() - 1
    }

    /// Shapes that differ only in what they request share their counts.
    fn shared_count(
        &mut self,
        shared: &mut BTreeMap<Counted<'w>, usize>,
        key: &'w str,
        who: Who<'w>,
    ) -> usize {
        let counted: Counted<'w> = match who {
            Who::Selected(namespace, terms) => (key, terms, None, namespace),
            // It counts others than the pods that the term selects.
            Who::Having => return self.count(key, who),
            Who::Spread(namespace, spec, constraint) => {
                (key, &[], Some((constraint, standing(spec))), namespace)
            }
        };
        if let Some(count) = shared.get(&counted) {
            return *count;
        }
        let count = self.count(key, who);
        shared.insert(counted, count);
        count
    }

    fn own_rules(
        &mut self,
        shared: &mut BTreeMap<Counted<'w>, usize>,
        subject: Subject<'w>,
    ) -> Vec<Rule<'w>> {
        let Subject {
            namespace, spec, ..
        } = subject;
        let mut rules = Vec::new();
        if !spec.pod_affinity.is_empty() {
            let who = Who::Selected(namespace, &spec.pod_affinity);
            let all = who.choosers();
            let selects_itself =
                all.is_some_and(|all| all.iter().all(|it| is_selected(it, subject)));
            let terms = spec.pod_affinity.iter();
            let counts =
                terms.map(|term| self.shared_count(shared, &term.topology_key, who.clone()));
            rules.push(Rule::Beside {
                counts: counts.collect(),
                selects_itself,
            });
        }
        for term in &spec.pod_anti_affinity {
            let who = Who::Selected(namespace, std::slice::from_ref(term));
            let count = self.shared_count(shared, &term.topology_key, who);
            rules.push(Rule::Away { count, ours: true });
        }
        for constraint in &spec.spread {
            let who = Who::Spread(namespace, spec, constraint);
            let selector = constraint.selector.as_ref();
            let counts_itself = selector.is_some_and(|it| selects(it, subject.labels));
            let count = self.shared_count(shared, &constraint.topology_key, who);
            rules.push(Rule::Spread {
                count,
                constraint,
                counts_itself,
            });
        }
        rules
    }
}
