//! How long launches took, and in what they failed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{Condition, Phase};
use kproxide_planner::facts::ClaimFacts;
use kproxide_planner::ids::Uid;
use kproxide_planner::world::World;

use super::Reporter;
use crate::act::ClaimNote;

/// Claims that were seen before their machines came into service, each with the last such phase.
#[derive(Debug, Default)]
pub(super) struct Launches(BTreeMap<Uid, Phase>);

/// In what a claim of this phase is.
fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending | Phase::Launching => "launch",
        Phase::Launched => "join",
        Phase::Registered | Phase::Initialized | Phase::Draining | Phase::Terminating => {
            "initialize"
        }
    }
}

/// Name and length of each part of a launch, if all are known.
fn parts(claim: &ClaimFacts) -> Option<[(&'static str, SignedDuration); 4]> {
    let at = |condition| claim.status.since(condition);
    let created = claim.created;
    let launched = at(Condition::Launched)?;
    let registered = at(Condition::Registered)?;
    let initialized = at(Condition::Initialized)?;
    let span = |from: Timestamp, to: Timestamp| to.duration_since(from);
    Some([
        ("launch", span(created, launched)),
        ("join", span(launched, registered)),
        ("initialize", span(registered, initialized)),
        ("all", span(created, initialized)),
    ])
}

impl Reporter {
    /// A machine is counted when this process saw it on its way. One that was adopted has not been made now.
    pub(super) fn follow_launches(&mut self, world: &World) {
        let mut seen = BTreeMap::new();
        for claim in world.claims().values() {
            let phase = claim.status.phase;
            if phase < Phase::Initialized {
                seen.insert(claim.uid.clone(), phase);
                continue;
            }
            let Some(before) = self.launches.0.get(&claim.uid) else {
                continue;
            };
            if phase > Phase::Initialized {
                // It has failed, perhaps: that is told a moment later.
                seen.insert(claim.uid.clone(), *before);
            } else if let Some(parts) = parts(claim).filter(|_| claim.spec.adopts.is_none()) {
                let seconds = &self.metrics.provision_seconds;
                for (part, took) in parts {
                    let labels = [claim.spec.pool.as_str(), part];
                    // The clocks of two replicas may differ a little.
                    let took = took.as_secs_f64().max(0.0);
                    seconds.with_label_values(&labels).observe(took);
                }
            }
        }
        self.launches = Launches(seen);
    }

    /// No tick may have seen the claim: then it failed at once.
    pub(super) fn count_failure(&self, note: &ClaimNote) {
        let phase = self.launches.0.get(&note.uid).copied();
        let doing = doing(phase.unwrap_or_default());
        let failures = &self.metrics.launch_failures;
        let labels = [note.pool.as_str(), doing];
        failures.with_label_values(&labels).inc();
    }
}
