//! `max-cpu`: the hypervisor whose CPU is most idle, or that has most cores to give.

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, Policy, PolicyError, Ranking, Request, percent,
};
use serde::Deserialize;

/// For machines that compute.
pub struct MaxCpu;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub measure: Measure,
}

/// What "most CPU" means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The idle part as Proxmox measures it now. Machines just placed do not show in it, so that a whole batch may go
    /// to one hypervisor.
    #[default]
    Share,
    /// Cores that may still be given, machines on their way taken off.
    Cores,
}

impl Policy for MaxCpu {
    const ABOUT: About = About {
        name: "max-cpu",
        version: env!("CARGO_PKG_VERSION"),
        description: "the hypervisor whose CPU is most idle, or with `measure: cores` the one with most available cores",
        settings_schema: r#"{"type":"object","additionalProperties":false,"properties":{"measure":{"enum":["share","cores"],"default":"share"}}}"#,
    };
    type Settings = Settings;
}

impl HostSelection for MaxCpu {
    fn rank(
        _: &Context,
        settings: &Settings,
        _: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        Ok(rank(settings.measure, candidates))
    }
}

fn rank(measure: Measure, candidates: &[Candidate]) -> Ranking {
    let cores = |candidate: &Candidate| candidate.available.milli_cores;
    let most = candidates
        .iter()
        .filter(|c| c.is_eligible())
        .map(cores)
        .max()
        .unwrap_or(0);
    Ranking::by_score(candidates, |candidate| match measure {
        Measure::Share => {
            let share = candidate.cpu_share();
            (share, format!("{} % of its CPU is idle", percent(share)))
        }
        Measure::Cores => {
            let cores = cores(candidate);
            let score = if most == 0 {
                0.0
            } else {
                cores as f64 / most as f64
            };
            (
                score,
                format!(
                    "{}.{} cores are available",
                    cores / 1000,
                    cores % 1000 / 100
                ),
            )
        }
    })
}

kproxide_policy_sdk::export_host_selection!(MaxCpu);

#[cfg(test)]
mod tests;
