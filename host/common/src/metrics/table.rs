//! Series that come and go with what they are about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use prometheus::GaugeVec;
use prometheus::core::{Collector as _, MetricVec, MetricVecBuilder};
use prometheus::proto::LabelPair;

/// Gauges that one look at the world sets all together. Series that the look does not name disappear.
//
// The library's `reset` would show a reader no series at all, between the reset and the new values.
#[derive(Clone, Debug)]
pub struct Table {
    pub gauges: GaugeVec,
    pub labels: &'static [&'static str],
}

/// Values by the values of their labels, in the order of the labels.
#[derive(Debug, Default)]
pub struct Rows(BTreeMap<Vec<String>, f64>);

impl Rows {
    /// Adds to what is there. `labels`: one value for each label of the table.
    pub fn add(&mut self, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|it| (*it).to_owned()).collect();
        *self.0.entry(labels).or_default() += value;
    }
}

impl Table {
    /// # Panics
    /// A row has not one value for each label.
    pub fn show(&self, rows: &Rows) {
        for (labels, value) in &rows.0 {
            self.gauges.with_label_values(labels).set(*value);
        }
        keep(&self.gauges, |labels| {
            let value = |label: &&str| labels.get(*label).map_or("", |it| *it).to_owned();
            rows.0
                .contains_key(&self.labels.iter().map(value).collect::<Vec<_>>())
        });
    }
}

/// Forgets the series whose labels, by name, `is_wanted` refuses.
fn keep<T: MetricVecBuilder>(
    series: &MetricVec<T>,
    is_wanted: impl Fn(&HashMap<&str, &str>) -> bool,
) {
    for family in series.collect() {
        for metric in family.get_metric() {
            let pair = |pair: &'_ LabelPair| (pair.name().to_owned(), pair.value().to_owned());
            let owned: Vec<_> = metric.get_label().iter().map(pair).collect();
            let labels = owned.iter().map(|(name, value)| (&**name, &**value));
            let labels: HashMap<&str, &str> = labels.collect();
            if !is_wanted(&labels) {
                // It is there, and nobody else removes any.
                let _ = series.remove(&labels);
            }
        }
    }
}

/// What there is: series of other pools, clusters, hypervisors and policies are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// By the label that names it. A label that is not among these keeps any value.
    pub names: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Present {
    /// Forgets the series of what is not there any more.
    pub fn retain<T: MetricVecBuilder>(&self, series: &MetricVec<T>) {
        keep(series, |labels| {
            self.names.iter().all(|(label, names)| {
                let value = labels.get(label);
                value.is_none_or(|value| names.contains(*value))
            })
        });
    }
}
