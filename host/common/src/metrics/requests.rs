//! The requests to Proxmox.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Error, HistogramVec, IntCounterVec};

use super::register::Register;

/// Proxmox gives up forwarding a request to another hypervisor after 30 s, and we give it up after 35 s.
const SECONDS: [f64; 10] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 5.0, 10.0, 30.0, 40.0];

/// Counts requests and their time, of all Proxmox clusters.
#[derive(Clone, Debug)]
pub struct Requests {
    pub counted: IntCounterVec,
    pub seconds: HistogramVec,
}

impl Requests {
    /// Registers them; an error as in [`Register`].
    pub fn new(register: &mut Register) -> Result<Self, Error> {
        Ok(Self {
            counted: register.counters(
                "kproxide_proxmox_requests_total",
                "Requests to Proxmox, by call and result: ok, the status of a refusal, or what became of the answer.",
                &["cluster", "call", "result"],
            )?,
            seconds: register.histograms(
                "kproxide_proxmox_request_seconds",
                "Time from a request to Proxmox to its answer, or until it was given up.",
                &["cluster", "call"],
                &SECONDS,
            )?,
        })
    }

    /// Those of one cluster, by its name.
    pub fn of(&self, cluster: impl Into<Arc<str>>) -> ClusterRequests {
        ClusterRequests {
            cluster: cluster.into(),
            requests: self.clone(),
        }
    }
}

/// The requests to one Proxmox cluster.
#[derive(Clone, Debug)]
pub struct ClusterRequests {
    cluster: Arc<str>,
    requests: Requests,
}

impl ClusterRequests {
    /// `call`: method and path, with a name in braces in place of each value, so that there are few of them.
    pub fn count(&self, call: &str, result: &str, took: Duration) {
        let Self { cluster, requests } = self;
        let counted = &requests.counted;
        counted.with_label_values(&[&**cluster, call, result]).inc();
        let seconds = &requests.seconds;
        let seconds = seconds.with_label_values(&[&**cluster, call]);
        seconds.observe(took.as_secs_f64());
    }
}
