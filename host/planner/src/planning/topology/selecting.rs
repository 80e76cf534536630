//! Which selectors select a pod, found by the labels that they ask for: not by holding every selector against every pod.

use std::collections::BTreeMap;

use super::count::{Subject, is_selected};
use crate::facts::{LabelSelector, Namespaces, Operator, PodTerm};

/// Whose pods a selector selects: it belongs to a pod of this namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chooser<'w> {
    pub(super) owner: &'w str,
    pub(super) namespaces: &'w Namespaces,
    pub(super) selector: &'w LabelSelector,
}

/// A namespace, unless pods of others may be selected too; a label's key, unless the selector asks for none; its value,
/// unless any will do.
type Bucket<'w> = (Option<&'w str>, Option<&'w str>, Option<&'w str>);

/// Equal choosers have one number, and are held against a pod once. `T` is what a pod has to do with those that select it.
pub(super) struct Selecting<'w, T> {
    choosers: BTreeMap<Chooser<'w>, Vec<T>>,
}

impl<T> Default for Selecting<'_, T> {
    fn default() -> Self {
        Self {
            choosers: BTreeMap::new(),
        }
    }
}

/// The same by what it takes to be selected.
pub(super) struct Selectors<'a, 'w, T>(BTreeMap<Bucket<'w>, Vec<(Chooser<'w>, &'a [T])>>);

impl<'w, T: Copy + Ord> Selecting<'w, T> {
    pub(super) fn add(&mut self, chooser: Chooser<'w>, what: T) {
        self.choosers.entry(chooser).or_default().push(what);
    }

    /// Each chooser stands under the label that fewest choosers ask for, of those that it asks for: many that share one label
    /// and differ in another are told apart.
    pub(super) fn by_label(&self) -> Selectors<'_, 'w, T> {
        let mut asked: BTreeMap<Bucket<'w>, usize> = BTreeMap::new();
        for chooser in self.choosers.keys() {
            for bucket in chooser.alternatives().into_iter().flatten() {
                *asked.entry(bucket).or_default() += 1;
            }
        }
        let mut buckets: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (chooser, what) in &self.choosers {
            let all = chooser.alternatives().into_iter();
            let rarest = all.min_by_key(|them| them.iter().map(|it| asked[it]).sum::<usize>());
            for bucket in rarest.unwrap_or_else(|| vec![(chooser.scope(), None, None)]) {
                let them = buckets.entry(bucket).or_default();
                them.push((*chooser, &what[..]));
            }
        }
        Selectors(buckets)
    }
}

impl<'w> Chooser<'w> {
    /// `owner`: the namespace of the pod that has the term. `None`: it selects no pod.
    pub(super) fn of(owner: &'w str, term: &'w PodTerm) -> Option<Self> {
        Some(Self {
            owner,
            namespaces: &term.namespaces,
            selector: term.selector.as_ref()?,
        })
    }

    fn scope(&self) -> Option<&'w str> {
        matches!(self.namespaces, Namespaces::Own).then_some(self.owner)
    }

    /// What it asks for: a selected pod is in one bucket of each.
    fn alternatives(&self) -> Vec<Vec<Bucket<'w>>> {
        let scope = self.scope();
        let labels = self.selector.match_labels.iter();
        let labels = labels.map(|(key, value)| vec![(scope, Some(&**key), Some(&**value))]);
        let expressions = self.selector.match_expressions.iter();
        let expressions = expressions.filter_map(|it| match it.operator {
            Operator::In => {
                let values = it.values.iter();
                let mut values: Vec<_> = values
                    .map(|value| (scope, Some(&*it.key), Some(&**value)))
                    .collect();
                values.sort_unstable();
                values.dedup();
                Some(values)
            }
            Operator::Exists => Some(vec![(scope, Some(&*it.key), None)]),
            Operator::NotIn | Operator::DoesNotExist | Operator::Gt | Operator::Lt => None,
        });
        labels.chain(expressions).collect()
    }
}

impl<T: Copy + Ord> Selectors<'_, '_, T> {
    /// What stands with the choosers that select such a pod, ascending.
    pub(super) fn of(&self, subject: Subject<'_>) -> Vec<T> {
        let mut found = Vec::new();
        for scope in [Some(subject.namespace), None] {
            let labels = subject.labels.iter();
            let labels = labels.flat_map(|(key, value)| {
                let (key, value) = (Some(&**key), Some(&**value));
                [(scope, key, None), (scope, key, value)]
            });
            let buckets = std::iter::once((scope, None, None)).chain(labels);
            let choosers = buckets.filter_map(|bucket| self.0.get(&bucket)).flatten();
            let selecting = choosers.filter(|(chooser, _)| is_selected(chooser, subject));
            found.extend(selecting.flat_map(|(_, what)| *what));
        }
        found.sort_unstable();
        found
    }
}
