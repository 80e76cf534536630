//! How many pods of a kind stand in each domain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Spot;
use super::selecting::Chooser;
use crate::facts::{
    DaemonSetFacts, LabelSelector, Labels, Namespaces, NodeSelectorTerm, PodSpec, PodTerm,
    SpreadConstraint, Toleration,
};
use crate::ids::ObjectKey;
use crate::kubernetes::selector::{self, selects};
use crate::kubernetes::taints;
use crate::planning::pods::fit::NodeProfile;
use crate::world::{ShapeView, World};

/// How many pods of a kind stand in each domain of a label.
#[derive(Clone)]
pub(super) struct Count<'w> {
    /// The label.
    pub(super) key: &'w str,
    pub(super) who: Who<'w>,
    /// Pods in each domain. Of a spread, each domain that counts has its entry.
    pub(super) domains: BTreeMap<Arc<str>, u32>,
    /// How many of the domains have so many pods.
    levels: BTreeMap<u32, usize>,
}

/// What two counts have in common that count the same pods in the same domains: the label, the terms, or else the spread and
/// where its pod may stand, and the namespace.
pub(super) type Counted<'w> = (
    &'w str,
    &'w [PodTerm],
    Option<(&'w SpreadConstraint, Standing<'w>)>,
    &'w str,
);

/// What [`Who::counts_on`] reads of a pod that spreads. Of its other spreads only the labels: else pods that spread from many
/// others would have a count each.
pub(super) type Standing<'w> = (
    &'w BTreeMap<String, String>,
    &'w Option<Vec<NodeSelectorTerm>>,
    &'w [Toleration],
    BTreeSet<&'w str>,
);

pub(super) fn standing(spec: &PodSpec) -> Standing<'_> {
    let keys = spec.spread.iter().map(|one| &*one.topology_key);
    (
        &spec.node_selector,
        &spec.node_affinity,
        &spec.tolerations,
        keys.collect(),
    )
}

#[derive(Clone)]
pub(super) enum Who<'w> {
    /// Pods that all of these terms select, which a pod of this namespace has.
    Selected(&'w str, &'w [PodTerm]),
    /// Pods that have one term: it keeps others away from them.
    Having,
    /// Pods that the constraint of a pod of this spec and namespace counts.
    Spread(&'w str, &'w PodSpec, &'w SpreadConstraint),
}

/// A pod as terms see it.
#[derive(Clone, Copy)]
pub(super) struct Subject<'w> {
    pub(super) namespace: &'w str,
    /// `None`: it is not known, which is as if it had no labels.
    pub(super) namespace_labels: Option<&'w Labels>,
    pub(super) labels: &'w Labels,
    pub(super) spec: &'w PodSpec,
}

impl<'w> Subject<'w> {
    pub(super) fn of(shape: ShapeView<'w>, world: &'w World) -> Self {
        Self {
            namespace: shape.namespace,
            namespace_labels: world.namespaces().get(shape.namespace),
            labels: shape.labels,
            spec: shape.spec,
        }
    }

    pub(super) fn of_daemon_set(
        key: &'w ObjectKey,
        set: &'w DaemonSetFacts,
        world: &'w World,
    ) -> Self {
        Self {
            namespace: &key.namespace,
            namespace_labels: world.namespaces().get(&key.namespace),
            labels: &set.labels,
            spec: &set.spec,
        }
    }
}

impl<'w> Count<'w> {
    pub(super) fn new(key: &'w str, who: Who<'w>) -> Self {
        Self {
            key,
            who,
            domains: BTreeMap::new(),
            levels: BTreeMap::new(),
        }
    }

    /// Pods in the domain of this place; `None`: it is in none.
    pub(super) fn in_domain(&self, spot: Spot<'_>) -> Option<u32> {
        let value = spot.domain(self.key)?;
        Some(self.domains.get(value).copied().unwrap_or(0))
    }

    /// Changes how many pods stand in the domain of this place. The domain exists from then on.
    pub(super) fn at(&mut self, spot: Spot<'_>, by: impl Fn(&mut u32)) {
        let Some(value) = spot.domain(self.key) else {
            return;
        };
        let (before, now) = match self.domains.get_mut(value) {
            Some(pods) => {
                let before = *pods;
                by(pods);
                (Some(before), *pods)
            }
            None => {
                let pods = self.domains.entry(value.into()).or_default();
                by(pods);
                (None, *pods)
            }
        };
        if before == Some(now) {
            return;
        }
        *self.levels.entry(now).or_default() += 1;
        let Some(before) = before else { return };
        if let Some(domains) = self.levels.get_mut(&before) {
            *domains -= 1;
            if *domains == 0 {
                self.levels.remove(&before);
            }
        }
    }

    /// How many pods the emptiest domain has; `one`: but for one domain that has so many.
    pub(super) fn least_without(&self, one: Option<u32>) -> Option<u32> {
        let mut levels = self.levels.iter();
        let other = levels.find(|(pods, domains)| one != Some(**pods) || **domains > 1);
        other.map(|(pods, _)| *pods)
    }

    /// How many pods the fullest domain has.
    pub(super) fn most(&self) -> u32 {
        self.levels.keys().next_back().copied().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.keys().all(|pods| *pods == 0)
    }

    /// The domain that takes the next pod.
    pub(super) fn emptiest(&self) -> Option<Arc<str>> {
        let least = self.domains.iter().min_by_key(|(_, pods)| **pods)?;
        Some(least.0.clone())
    }
}

impl<'w> Who<'w> {
    /// What has to select a pod, all of it, for it to be counted. `None`: the count does not go by selectors, or no pod is.
    pub(super) fn choosers(&self) -> Option<Vec<Chooser<'w>>> {
        match self {
            Self::Selected(owner, terms) => {
                terms.iter().map(|term| Chooser::of(owner, term)).collect()
            }
            Self::Having => None,
            // kube-scheduler counts no pod for a selector that selects all of them, but the pod that it places.
            Self::Spread(owner, _, constraint) => {
                let chooser = Chooser::own(owner, &constraint.selector)?;
                (*chooser.selector != LabelSelector::default()).then(|| vec![chooser])
            }
        }
    }

    /// How many of them there are.
    pub(super) fn choosers_count(&self) -> usize {
        match self {
            Self::Selected(_, terms) => terms.len(),
            Self::Having | Self::Spread(..) => 1,
        }
    }

    /// Pods on this place are counted. A spread leaves Nodes out where its pod could not stand anyway, as its policies say.
    pub(super) fn counts_on(&self, spot: Spot<'_>) -> bool {
        let Self::Spread(_, spec, constraint) = self else {
            return true;
        };
        let is_labelled = spec
            .spread
            .iter()
            .all(|one| spot.domain(&one.topology_key).is_some());
        let NodeProfile {
            name,
            labels,
            taints,
            ..
        } = spot.profile;
        let is_meant = || constraint.any_affinity || selector::node_matches(spec, name, labels);
        let is_tolerated = || taints::untolerated(&spec.tolerations, &**taints).is_none();
        is_labelled && is_meant() && (!constraint.honors_taints || is_tolerated())
    }
}

pub(super) fn is_selected(chooser: &Chooser<'_>, subject: Subject<'_>) -> bool {
    let is_named = |names: &[Arc<str>]| names.iter().any(|name| **name == *subject.namespace);
    let in_namespace = match chooser.namespaces {
        Namespaces::Own => subject.namespace == chooser.owner,
        Namespaces::All => true,
        Namespaces::Named(names) => is_named(names),
        Namespaces::Selected(selector, names) => {
            let none = Labels::new();
            is_named(names) || selects(selector, subject.namespace_labels.unwrap_or(&none))
        }
    };
    in_namespace && selects(chooser.selector, subject.labels)
}
