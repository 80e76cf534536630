//! Which selectors select a pod, found by the labels that they ask for: not by holding every selector against every pod.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;

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

    /// In the namespace of the pod alone.
    pub(super) fn own(owner: &'w str, selector: &'w Option<LabelSelector>) -> Option<Self> {
        Some(Self {
            owner,
            namespaces: &Namespaces::Own,
            selector: selector.as_ref()?,
        })
    }

    /// How much a pod is held against, at the most.
    pub(super) fn size(&self) -> u64 {
        (self.selector.size() + self.namespaces.size()).max(1) as u64
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

/// What a chooser is held against.
#[derive(Clone, Copy, Default)]
pub(super) struct Reach {
    pub(super) shapes: u64,
    /// Pending pods of these shapes.
    pub(super) pods: u64,
    /// Those that have a Node.
    pub(super) running: u64,
}

impl AddAssign for Reach {
    fn add_assign(&mut self, other: Self) {
        self.shapes += other.shapes;
        self.pods += other.pods;
        self.running += other.running;
    }
}

impl Sum for Reach {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// Where choosers stand that may select such a pod.
fn buckets_of(subject: Subject<'_>) -> impl Iterator<Item = Bucket<'_>> {
    let scopes = [Some(subject.namespace), None].into_iter();
    scopes.flat_map(move |scope| {
        let labels = subject.labels.iter();
        let labels = labels.flat_map(move |(key, value)| {
            let (key, value) = (Some(&**key), Some(&**value));
            [(scope, key, None), (scope, key, value)]
        });
        std::iter::once((scope, None, None)).chain(labels)
    })
}

impl<'w> Selectors<'_, 'w, ()> {
    /// Of these pods.
    pub(super) fn reach<'s>(
        &self,
        subjects: impl Iterator<Item = (Subject<'s>, Reach)>,
    ) -> BTreeMap<Chooser<'w>, Reach> {
        let mut of_buckets: BTreeMap<Bucket<'_>, Reach> = BTreeMap::new();
        for (subject, reach) in subjects {
            for bucket in buckets_of(subject) {
                if let Some((bucket, _)) = self.0.get_key_value(&bucket) {
                    *of_buckets.entry(*bucket).or_default() += reach;
                }
            }
        }
        let mut all: BTreeMap<Chooser<'w>, Reach> = BTreeMap::new();
        for (bucket, choosers) in &self.0 {
            let of_bucket = of_buckets.get(bucket).copied().unwrap_or_default();
            for (chooser, _) in choosers {
                *all.entry(*chooser).or_default() += of_bucket;
            }
        }
        all
    }
}

impl<T: Copy + Ord> Selectors<'_, '_, T> {
    /// `false`: none does. That takes no look at what the selectors say.
    pub(super) fn may_select(&self, subject: Subject<'_>) -> bool {
        buckets_of(subject).any(|bucket| self.0.contains_key(&bucket))
    }

    /// What stands with the choosers that select such a pod, ascending.
    pub(super) fn of(&self, subject: Subject<'_>) -> Vec<T> {
        let mut found = Vec::new();
        let choosers = buckets_of(subject).filter_map(|bucket| self.0.get(&bucket));
        for (chooser, what) in choosers.flatten() {
            if is_selected(chooser, subject) {
                found.extend(*what);
            }
        }
        found.sort_unstable();
        found
    }
}
