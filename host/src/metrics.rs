//! Metrics, one registry per host, so that two hosts in one simulation do not share counters.
//!
//! Names of our own begin with `kproxide_`. The eight unprefixed gauges are kproximate's, with its meanings, so that dashboards made for it go on
//! working; `_total` on a gauge is its spelling, not ours.

use kproxide_planner::question::{Answer, AnswerBody, Question};
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

/// Gauges with kproximate's names and meanings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KproximateGauges {
    /// VMs of ours on Proxmox, in any state.
    pub machines: u32,
    /// Those whose Node is Ready.
    pub running: u32,
    pub cpu_provisioned_cores: f64,
    pub memory_provisioned_bytes: f64,
    pub cpu_allocatable_cores: f64,
    pub memory_allocatable_bytes: f64,
    pub cpu_allocated_cores: f64,
    pub memory_allocated_bytes: f64,
}

#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    pub leader: IntGauge,
    pub ticks: IntCounter,
    pub tick_seconds: Histogram,
    pub pending_pods: IntGaugeVec,
    pub claims: IntGaugeVec,
    pub launches: IntCounterVec,
    pub removals: IntCounterVec,
    pub frozen: IntGauge,
    pub orphans: IntGauge,
    pub steps: IntCounterVec,
    pub policy_calls: IntCounterVec,
    pub policy_reloads: IntCounterVec,
    pub findings: IntCounterVec,
    pub clusters: IntGaugeVec,
    kproximate: GaugeVecs,
}

/// Takes one number out of many.
type Reading = fn(&KproximateGauges) -> f64;

#[derive(Clone, Debug)]
struct GaugeVecs {
    machines: IntGauge,
    running: IntGauge,
    rest: Vec<(GaugeVec, Reading)>,
}

impl Metrics {
    /// # Errors
    /// Never with this fixed set of names; the library's type says it may.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let register = Register(&registry);
        let tick_seconds = Histogram::with_opts(
            HistogramOpts::new(
                "kproxide_tick_seconds",
                "Time from the start of a tick to its plan, Proxmox's inventory included.",
            )
            .buckets(vec![
                0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0,
            ]),
        )?;
        registry.register(Box::new(tick_seconds.clone()))?;
        let build = register.gauges(
            "kproxide_build_info",
            "Always 1; the label says which version runs.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let kproximate = GaugeVecs {
            machines: register.gauge(
                "kpnodes_total",
                "VMs of kproxide on Proxmox, in any state (kproximate's name).",
            )?,
            running: register.gauge(
                "kpnodes_running",
                "VMs of kproxide whose Node is Ready (kproximate's name).",
            )?,
            rest: vec![
                (
                    register.float("cpu_provisioned_total", "Cores of the running machines.")?,
                    |g| g.cpu_provisioned_cores,
                ),
                (
                    register.float(
                        "memory_provisioned_total",
                        "Bytes of memory of the running machines.",
                    )?,
                    |g| g.memory_provisioned_bytes,
                ),
                (
                    register.float("cpu_allocatable_total", "Allocatable cores of their Nodes.")?,
                    |g| g.cpu_allocatable_cores,
                ),
                (
                    register.float(
                        "memory_allocatable_total",
                        "Allocatable bytes of memory of their Nodes.",
                    )?,
                    |g| g.memory_allocatable_bytes,
                ),
                (
                    register.float(
                        "cpu_allocated_total",
                        "Cores requested by the pods on their Nodes.",
                    )?,
                    |g| g.cpu_allocated_cores,
                ),
                (
                    register.float(
                        "memory_allocated_total",
                        "Bytes of memory requested by the pods on their Nodes.",
                    )?,
                    |g| g.memory_allocated_bytes,
                ),
            ],
        };
        Ok(Self {
            leader: register.gauge("kproxide_leader", "1 while this replica acts.")?,
            ticks: register.counter("kproxide_ticks_total", "Ticks planned.")?,
            tick_seconds,
            pending_pods: register.gauges(
                "kproxide_pending_pods",
                "Pods that the scheduler cannot place, by what kproxide does about them.",
                &["outcome"],
            )?,
            claims: register.gauges(
                "kproxide_claims",
                "NodeClaims, by pool and phase.",
                &["pool", "phase"],
            )?,
            launches: register.counters(
                "kproxide_launches_total",
                "Machines ordered.",
                &["pool", "hypervisor"],
            )?,
            removals: register.counters(
                "kproxide_removals_total",
                "Removals begun.",
                &["pool", "reason"],
            )?,
            frozen: register.gauge(
                "kproxide_frozen",
                "1 while nothing is removed because too many machines went bad at once.",
            )?,
            orphans: register.gauge(
                "kproxide_orphans",
                "VMs of kproxide that no NodeClaim names.",
            )?,
            steps: register.counters(
                "kproxide_steps_total",
                "Steps of claims, by result.",
                &["step", "result"],
            )?,
            policy_calls: register.counters(
                "kproxide_policy_calls_total",
                "Questions to policies, by how they were answered.",
                &["kind", "policy", "result"],
            )?,
            policy_reloads: register.counters(
                "kproxide_policy_reloads_total",
                "Policy files that changed, by whether they were taken.",
                &["policy", "result"],
            )?,
            findings: register.counters(
                "kproxide_findings_total",
                "What was found that people may want to know, orphans and leftover volumes among it; what lasts is counted again as often as it is logged.",
                &["severity"],
            )?,
            clusters: register.gauges(
                "kproxide_cluster_reachable",
                "1 while a Proxmox cluster answers and is quorate.",
                &["cluster"],
            )?,
            kproximate,
            registry: registry.clone(),
        })
    }

    pub fn count_answer(&self, question: &Question, answer: &Answer) {
        let result = match (&answer.body, &answer.fallback) {
            (AnswerBody::Deferred, _) => "deferred",
            (AnswerBody::Failed(_), _) => "failed",
            (_, Some(_)) => "fallback",
            (AnswerBody::NoCandidate(_), None) => "no-candidate",
            (
                AnswerBody::Ranking(_) | AnswerBody::Removals(_) | AnswerBody::Decorations(_),
                None,
            ) => "answered",
        };
        let policy = &question.policy().policy;
        self.policy_calls
            .with_label_values(&[policy.kind.as_str(), &policy.name, result])
            .inc();
    }

    pub fn set_kproximate(&self, gauges: &KproximateGauges) {
        self.kproximate.machines.set(i64::from(gauges.machines));
        self.kproximate.running.set(i64::from(gauges.running));
        for (gauge, value) in &self.kproximate.rest {
            gauge.with_label_values::<&str>(&[]).set(value(gauges));
        }
    }

    /// Prometheus' text format.
    ///
    /// # Errors
    /// Never for metrics that were registered; the library's type says it may.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Makes and registers in one go.
struct Register<'r>(&'r Registry);

impl Register<'_> {
    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        let counter = IntCounter::new(name, help)?;
        self.0.register(Box::new(counter.clone()))?;
        Ok(counter)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(counters.clone()))?;
        Ok(counters)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        let gauge = IntGauge::new(name, help)?;
        self.0.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, prometheus::Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(gauges.clone()))?;
        Ok(gauges)
    }

    fn float(&self, name: &str, help: &str) -> Result<GaugeVec, prometheus::Error> {
        let gauges = GaugeVec::new(Opts::new(name, format!("{help} (kproximate's name.)")), &[])?;
        self.0.register(Box::new(gauges.clone()))?;
        Ok(gauges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kproximates_eight_names_are_there_with_values() {
        let metrics = Metrics::new().unwrap();
        metrics.set_kproximate(&KproximateGauges {
            machines: 3,
            running: 2,
            cpu_allocated_cores: 1.5,
            ..Default::default()
        });
        let text = metrics.render().unwrap();
        for line in [
            "kpnodes_total 3",
            "kpnodes_running 2",
            "cpu_provisioned_total 0",
            "memory_provisioned_total 0",
            "cpu_allocatable_total 0",
            "memory_allocatable_total 0",
            "cpu_allocated_total 1.5",
            "memory_allocated_total 0",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
