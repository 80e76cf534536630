//! `hostile-scale-down`: a scale-down policy whose answers are wrong in the way its settings say; see `hostile`.

use kproxide_policy_sdk::{
    About, Candidate, Context, Node, Plan, Policy, PolicyError, Removal, ScaleDown,
};
use serde::Deserialize;

pub struct HostileScaleDown;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    #[serde(rename = "do")]
    pub what: Do,
}

/// What is wrong with its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Do {
    /// Nothing: every node may go.
    #[default]
    Behave,
    /// Gives the facts back as text in its state, so that a test sees what arrived.
    Echo,
    Panic,
    UnknownNode,
    RemovedTwice,
    ScoreAboveOne,
    HugeState,
    NoCandidate,
    Internal,
}

impl Policy for HostileScaleDown {
    const ABOUT: About = About {
        name: "hostile-scale-down",
        version: env!("CARGO_PKG_VERSION"),
        description: "answers wrongly as its settings say",
        settings_schema: "",
    };
    type Settings = Settings;
}

impl ScaleDown for HostileScaleDown {
    fn order(
        context: &Context,
        settings: &Settings,
        pool: &str,
        nodes: &[Node],
        hypervisors: &[Candidate],
        max_removals: u32,
    ) -> Result<Plan, PolicyError> {
        let removal = |index: u32, score: f64| Removal {
            index,
            score,
            reason: "as good as any".to_owned(),
        };
        let removals = |removals: Vec<Removal>| {
            let state = None;
            Ok(Plan { removals, state })
        };
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let all = (0..count).map(|index| removal(index, 0.5)).collect();
        match settings.what {
            Do::Behave => removals(all),
            Do::Echo => {
                let facts =
                    format!("{context:?} {pool:?} {nodes:?} {hypervisors:?} {max_removals}");
                let mut facts = facts.into_bytes();
                facts.truncate(4096);
                let state = Some(facts);
                Ok(Plan {
                    removals: all,
                    state,
                })
            }
            Do::Panic => panic!("on purpose"),
            Do::UnknownNode => removals(vec![removal(count, 0.5)]),
            Do::RemovedTwice => removals(vec![removal(0, 0.5), removal(0, 0.5)]),
            Do::ScoreAboveOne => removals(vec![removal(0, f64::INFINITY)]),
            Do::HugeState => Ok(Plan {
                removals: all,
                state: Some(vec![7; 4097]),
            }),
            Do::NoCandidate => Err(PolicyError::NoCandidate("not before noon".to_owned())),
            Do::Internal => Err(PolicyError::internal("the table of racks is empty")),
        }
    }
}

kproxide_policy_sdk::export_scale_down!(HostileScaleDown);
