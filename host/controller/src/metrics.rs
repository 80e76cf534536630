//! Metrics, one registry per host, so that two hosts in one simulation do not share counters.
//!
//! Names of our own begin with `kproxide_`. `charts/kproxide/METRICS.md` lists them all, made from what is registered
//! here.

mod found;
mod kproximate;

use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::plan::question::{Answer, AnswerBody, Question};
use prometheus::{
    Encoder, Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
    TextEncoder,
};

pub use self::found::Found;
pub use self::kproximate::KproximateGauges;

use self::kproximate::Kproximate;
use kproxide_common::metrics::{Described, Present, Register, Requests};

/// A tick waits for Proxmox's inventory for up to 8 s, and for writes after it.
const TICK_SECONDS: [f64; 11] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0];
/// From a linked clone that joins at once to a full clone over the network.
const PROVISION_SECONDS: [f64; 12] = [
    5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1200.0, 3600.0,
];
/// Up to what one call may take.
const POLICY_FUEL: [f64; 9] = [1e4, 3e4, 1e5, 3e5, 1e6, 1e7, 3e7, 1e8, 4e8];
/// The fuel of a call lasts about a fifth of a second.
const POLICY_SECONDS: [f64; 9] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    described: Arc<[Described]>,
    pub leader: IntGauge,
    pub ticks: IntCounter,
    pub tick_seconds: Histogram,
    /// Seconds since 1970. 0: this replica has had no tick yet.
    pub last_tick: Gauge,
    pub launches: IntCounterVec,
    pub launch_failures: IntCounterVec,
    pub provision_seconds: HistogramVec,
    pub removals: IntCounterVec,
    pub steps: IntCounterVec,
    pub findings: IntCounterVec,
    pub policy_reloads: IntCounterVec,
    policy_calls: IntCounterVec,
    policy_seconds: HistogramVec,
    policy_fuel: HistogramVec,
    pub requests: Requests,
    pub found: Found,
    kproximate: Option<Kproximate>,
}

impl Metrics {
    /// `kproximate`: with kproximate's eight gauges.
    ///
    /// # Errors
    /// Never with this fixed set of names; the library's type says it may.
    pub fn new(kproximate: bool) -> Result<Self, prometheus::Error> {
        let mut register = Register::default();
        let build = register.gauges(
            "kproxide_build_info",
            "Always 1; the label says which version runs.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let mut metrics = Self {
            leader: register.gauge("kproxide_leader", "1 while this replica acts.")?,
            ticks: register.counter("kproxide_ticks_total", "Ticks planned.")?,
            tick_seconds: register.histogram(
                "kproxide_tick_seconds",
                "Time from the start of a tick to its plan, Proxmox's inventory included.",
                &TICK_SECONDS,
            )?,
            last_tick: register.float(
                "kproxide_last_tick_timestamp_seconds",
                "When this replica last planned, in seconds since 1970; 0 before its first tick.",
            )?,
            launches: register.counters(
                "kproxide_launches_total",
                "Machines ordered.",
                &["pool", "cluster", "hypervisor"],
            )?,
            launch_failures: register.counters(
                "kproxide_launch_failures_total",
                "Launches that failed, by what they failed in: launch, join or initialize, as in kproxide_provision_seconds.",
                &["pool", "phase"],
            )?,
            provision_seconds: register.histograms(
                "kproxide_provision_seconds",
                "Time of machines that came into service: launch (from the NodeClaim to the started VM), join (to its Node), initialize (to a Ready Node without startup taints), and all of it.",
                &["pool", "phase"],
                &PROVISION_SECONDS,
            )?,
            removals: register.counters(
                "kproxide_removals_total",
                "Removals begun.",
                &["pool", "reason"],
            )?,
            steps: register.counters(
                "kproxide_steps_total",
                "Steps of claims, by result.",
                &["step", "result"],
            )?,
            findings: register.counters(
                "kproxide_findings_total",
                "What was found that people may want to know, orphans and leftover volumes among it; what lasts is counted again as often as it is logged.",
                &["severity"],
            )?,
            policy_reloads: register.counters(
                "kproxide_policy_reloads_total",
                "Policy files that changed, by whether they were taken.",
                &["policy", "result"],
            )?,
            policy_calls: register.counters(
                "kproxide_policy_calls_total",
                "Questions to policies, by how they were answered.",
                &["kind", "policy", "result"],
            )?,
            policy_seconds: register.histograms(
                "kproxide_policy_call_seconds",
                "Time from a question to a policy to its answer, that of a fallback included.",
                &["kind", "policy"],
                &POLICY_SECONDS,
            )?,
            policy_fuel: register.histograms(
                "kproxide_policy_call_fuel",
                "Instructions that a question to a policy took, those of a fallback included. A call may take 400 million.",
                &["kind", "policy"],
                &POLICY_FUEL,
            )?,
            requests: Requests::new(&mut register)?,
            found: Found::new(&mut register)?,
            kproximate: match kproximate {
                true => Some(Kproximate::new(&mut register)?),
                false => None,
            },
            registry: register.registry.clone(),
            described: Arc::default(),
        };
        register.described.sort();
        metrics.described = register.described.into();
        Ok(metrics)
    }

    pub fn count_answer(&self, question: &Question, answer: &Answer, took: Duration, fuel: u64) {
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
        let (kind, name) = (policy.kind.as_str(), &*policy.name);
        let calls = &self.policy_calls;
        // A counter that begins with its first failure shows no increase.
        for failed in ["failed", "fallback"] {
            calls.with_label_values(&[kind, name, failed]);
        }
        calls.with_label_values(&[kind, name, result]).inc();
        let seconds = self.policy_seconds.with_label_values(&[kind, name]);
        seconds.observe(took.as_secs_f64());
        let instructions = self.policy_fuel.with_label_values(&[kind, name]);
        instructions.observe(fuel as f64);
    }

    pub fn show_kproximate(&self, gauges: &KproximateGauges) {
        if let Some(kproximate) = &self.kproximate {
            kproximate.show(gauges);
        }
    }

    /// Forgets the series of what is gone.
    pub fn retain(&self, present: &Present) {
        for counters in [
            &self.launches,
            &self.launch_failures,
            &self.removals,
            &self.policy_reloads,
            &self.policy_calls,
            &self.requests.counted,
        ] {
            present.retain(counters);
        }
        for histograms in [
            &self.provision_seconds,
            &self.policy_seconds,
            &self.policy_fuel,
            &self.requests.seconds,
        ] {
            present.retain(histograms);
        }
    }

    /// This replica no longer acts: what it found last is no longer so.
    pub fn forget_found(&self) {
        self.found.clear();
        self.show_kproximate(&KproximateGauges::default());
    }

    /// All metrics by name, those without a series too.
    pub fn described(&self) -> &[Described] {
        &self.described
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

#[cfg(test)]
mod tests;
