//! Makes metrics, registers them, and notes what people read of them.

use prometheus::core::{Collector, Opts};
use prometheus::proto::MetricType;
use prometheus::{
    Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Registry,
};

use super::table::Table;

/// One metric, as the list for people has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Described {
    pub name: String,
    /// counter, gauge or histogram.
    pub kind: &'static str,
    pub labels: Vec<String>,
    pub help: String,
}

/// The metrics of one program. A name that is used twice, or that Prometheus does not allow, is an error: <https://prometheus.io/docs/concepts/data_model/>.
#[derive(Default)]
pub struct Register {
    /// What `/metrics` is written from.
    pub registry: Registry,
    pub described: Vec<Described>,
    /// Those whose rows go when what they are about is gone.
    pub tables: Vec<Table>,
}

impl Register {
    fn add<C: Collector + Clone + 'static>(&mut self, made: Result<C, Error>) -> Result<C, Error> {
        let collector = made?;
        let families = collector.collect();
        let kind = match families.first().map(|family| family.get_field_type()) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::HISTOGRAM) => "histogram",
            Some(_) | None => "gauge",
        };
        let described = collector.desc().into_iter().map(|desc| Described {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        });
        self.described.extend(described);
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    /// Only rises; from 0 at each start of kproxide.
    pub fn counter(&mut self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.add(IntCounter::new(name, help))
    }

    /// One counter for each set of values of `labels`.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A whole number that rises and falls.
    pub fn gauge(&mut self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::new(name, help))
    }

    /// A gauge with a fraction, for seconds and shares.
    pub fn float(&mut self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.add(Gauge::new(name, help))
    }

    /// One gauge for each set of values of `labels`.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, Error> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// Gauges that are shown anew in each pass: [`Table`].
    pub fn table(
        &mut self,
        name: &str,
        help: &str,
        labels: &'static [&'static str],
    ) -> Result<Table, Error> {
        let gauges = self.add(GaugeVec::new(Opts::new(name, help), labels))?;
        let table = Table { gauges, labels };
        self.tables.push(table.clone());
        Ok(table)
    }

    /// How often a value was at most each of `buckets`, which rise and have the unit that the name ends with.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts))
    }

    /// One histogram for each set of values of `labels`.
    pub fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, labels))
    }
}
