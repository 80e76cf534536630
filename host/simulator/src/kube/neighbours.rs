//! Which pods may stand together: the toy scheduler's filters for required affinity and anti-affinity between pods, and for
//! topology spread.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    object::items,
    placement::{Misfit, NodeView, PodNeeds},
    selector::LabelSelector,
};

/// A term of affinity or anti-affinity. Nodes with one value of the label `key` are one domain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodTerm {
    key: String,
    /// Nothing is meant without one.
    selector: Option<LabelSelector>,
    namespaces: Vec<String>,
    /// By their labels, besides.
    namespace_selector: Option<LabelSelector>,
}

/// The labels of each namespace.
pub(crate) type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

impl PodTerm {
    /// The required terms of a kind that a pod of this namespace has.
    pub(crate) fn all(spec: &Value, kind: &str, namespace: &str) -> Vec<Self> {
        let affinity = &spec["affinity"][kind];
        let terms = items(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        terms.map(|term| Self::of(term, namespace)).collect()
    }

    fn of(term: &Value, own: &str) -> Self {
        let named = items(term, "namespaces").iter().filter_map(Value::as_str);
        let mut named: Vec<String> = named.map(str::to_owned).collect();
        let namespace_selector = LabelSelector::from_object(&term["namespaceSelector"]);
        if named.is_empty() && namespace_selector.is_none() {
            named.push(own.to_owned());
        }
        Self {
            key: term["topologyKey"].as_str().unwrap_or_default().to_owned(),
            selector: LabelSelector::from_object(&term["labelSelector"]),
            namespaces: named,
            namespace_selector,
        }
    }

    /// The first field of a term that is not evaluated here.
    pub(crate) fn unsupported(term: &Value) -> Option<&'static str> {
        // The real API server writes these into the selector.
        let keys = ["matchLabelKeys", "mismatchLabelKeys"];
        keys.into_iter().find(|field| !term[field].is_null())
    }

    fn means(&self, pod: &PodNeeds, namespaces: &Namespaces) -> bool {
        let by_labels = self.namespace_selector.as_ref().is_some_and(|selector| {
            let labels = namespaces.get(&pod.namespace);
            selector.matches(labels.unwrap_or(&BTreeMap::new()))
        });
        let selector = self.selector.as_ref();
        (by_labels || self.namespaces.contains(&pod.namespace))
            && selector.is_some_and(|selector| selector.matches(&pod.labels))
    }
}

/// A key and one of its values.
type Domain<'a> = (&'a str, &'a str);

/// What the pods that stand somewhere leave to one that does not yet.
#[derive(Default)]
pub(crate) struct Neighbours<'a> {
    /// Where a pod stands that it does not want near it.
    shunned: BTreeSet<Domain<'a>>,
    /// Where a pod stands that does not want it near.
    closed: BTreeSet<Domain<'a>>,
    /// Where the pods stand that it wants beside it.
    wanted: BTreeSet<Domain<'a>>,
    /// No such pod stands anywhere, and it is one itself.
    is_first: bool,
}

impl<'a> Neighbours<'a> {
    /// `standing`: the pods on nodes, each with its node.
    pub(crate) fn of(
        pod: &'a PodNeeds,
        standing: impl Iterator<Item = (&'a PodNeeds, &'a NodeView)>,
        namespaces: &Namespaces,
    ) -> Self {
        let mut found = Self::default();
        let means = |term: &PodTerm, other: &PodNeeds| term.means(other, namespaces);
        let is_wanted = |other: &PodNeeds| pod.beside.iter().all(|term| means(term, other));
        for (other, node) in standing {
            let at = |term: &'a PodTerm| Some((&*term.key, node.labels.get(&term.key)?.as_str()));
            let shunned = pod.away.iter().filter(|term| means(term, other));
            found.shunned.extend(shunned.filter_map(at));
            let closed = other.away.iter().filter(|term| means(term, pod));
            found.closed.extend(closed.filter_map(at));
            if is_wanted(other) {
                found.wanted.extend(pod.beside.iter().filter_map(at));
            }
        }
        found.is_first = found.wanted.is_empty() && is_wanted(pod);
        found
    }

    pub(crate) fn misfit(&self, pod: &PodNeeds, node: &NodeView) -> Option<Misfit> {
        let is_in = |domains: &BTreeSet<Domain<'_>>, labels: &BTreeMap<String, String>| {
            domains
                .iter()
                .any(|(key, value)| labels.get(*key).is_some_and(|own| own == value))
        };
        let has_it = |term: &PodTerm| {
            let value = node.labels.get(&term.key);
            value.is_some_and(|value| {
                self.is_first || self.wanted.contains(&(&*term.key, value.as_str()))
            })
        };
        if !pod.beside.iter().all(has_it) {
            Some(Misfit::NoFriend)
        } else if is_in(&self.shunned, &node.labels) {
            Some(Misfit::Shunned)
        } else if is_in(&self.closed, &node.labels) {
            Some(Misfit::Closed)
        } else {
            None
        }
    }
}

/// A topology spread constraint: pods are counted per value of the nodes' label `key`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread {
    key: String,
    max_skew: i64,
    min_domains: usize,
    /// Nodes are counted that the pod could not choose.
    any_node: bool,
    /// Nodes are left out whose taints it does not tolerate.
    honors_taints: bool,
    /// Nothing is counted without one.
    selector: Option<LabelSelector>,
}

impl Spread {
    /// The constraints of a pod that must hold; `ScheduleAnyway` is a wish.
    pub(crate) fn all(spec: &Value) -> Vec<Self> {
        let all = items(spec, "topologySpreadConstraints").iter();
        all.filter(|one| Self::must_hold(one))
            .map(Self::of)
            .collect()
    }

    pub(crate) fn must_hold(constraint: &Value) -> bool {
        constraint["whenUnsatisfiable"] != "ScheduleAnyway"
    }

    fn of(constraint: &Value) -> Self {
        Self {
            key: constraint["topologyKey"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
            min_domains: constraint["minDomains"]
                .as_u64()
                .map_or(1, |least| least as usize),
            any_node: constraint["nodeAffinityPolicy"] == "Ignore",
            honors_taints: constraint["nodeTaintsPolicy"] == "Honor",
            selector: LabelSelector::from_object(&constraint["labelSelector"]),
        }
    }
}

impl PodNeeds {
    /// Whether the spread constraints refuse the node. `nodes` are all there are, and `pods` the labels of the other pods of the namespace, each
    /// with its node; those that have ended or are about to are not among them.
    pub(crate) fn spread_misfit(
        &self,
        labels: &BTreeMap<String, String>,
        node: &NodeView,
        nodes: &[&NodeView],
        pods: &[(&BTreeMap<String, String>, &str)],
    ) -> Option<Misfit> {
        let has_topologies = |node: &NodeView| {
            self.spread
                .iter()
                .all(|constraint| node.labels.contains_key(&constraint.key))
        };
        if !has_topologies(node) {
            return Some(Misfit::NoTopology);
        }
        let hard = ["NoSchedule", "NoExecute"];
        let holds = |constraint: &Spread| {
            // By default, nodes that the pod could not choose are left out; tainted and cordoned ones are not.
            let counting = nodes.iter().copied().filter(|node| {
                has_topologies(node)
                    && (constraint.any_node || self.selects(node))
                    && (!constraint.honors_taints || self.untolerated(node, &hard).is_none())
            });
            let is_counted = |labels: &BTreeMap<String, String>| {
                let selector = constraint.selector.as_ref();
                selector.is_some_and(|selector| selector.matches(labels))
            };
            let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
            for other in counting {
                let on_it = pods
                    .iter()
                    .filter(|(labels, on)| *on == other.name && is_counted(labels))
                    .count();
                *counts.entry(&other.labels[&constraint.key]).or_default() +=
                    i64::try_from(on_it).unwrap_or(i64::MAX);
            }
            let here = counts.get(node.labels[&constraint.key].as_str());
            let least = match counts.len() < constraint.min_domains {
                true => 0,
                false => counts.values().min().copied().unwrap_or(0),
            };
            here.copied().unwrap_or(0) + i64::from(is_counted(labels)) - least
                <= constraint.max_skew
        };
        (!self.spread.iter().all(holds)).then_some(Misfit::NotSpread)
    }
}
