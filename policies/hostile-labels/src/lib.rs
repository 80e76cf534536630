//! `hostile-labels`: a label policy whose answers are wrong in the way its settings say; see `hostile`.

use kproxide_policy_sdk::{
    About, Decoration, Hypervisor, Labels, Machine, Policy, PolicyError, Taint,
};
use serde::Deserialize;

pub struct HostileLabels;

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
    /// Nothing: one label, one annotation and one taint.
    #[default]
    Behave,
    /// Gives the facts back as text in an annotation, so that a test sees what arrived.
    Echo,
    Panic,
    OneTooFew,
    OneTooMany,
    InvalidKey,
    InvalidPrefix,
    InvalidValue,
    InvalidTaintValue,
    ReservedLabel,
    ReservedTaint,
    Hostname,
    ControlPlane,
    UnknownEffect,
    LabelTwice,
    TaintTwice,
    ManyLabels,
    LongAnnotation,
    NoCandidate,
    Internal,
}

impl Policy for HostileLabels {
    const ABOUT: About = About {
        name: "hostile-labels",
        version: env!("CARGO_PKG_VERSION"),
        description: "answers wrongly as its settings say",
        settings_schema: "",
    };
    type Settings = Settings;
}

impl Labels for HostileLabels {
    fn decorate(
        settings: &Settings,
        machine: &Machine,
        hypervisors: &[Hypervisor],
    ) -> Result<Vec<Decoration>, PolicyError> {
        let all = |decoration: Decoration| Ok(vec![decoration; hypervisors.len()]);
        let labels = |pairs: &[(&str, &str)]| Decoration {
            labels: owned(pairs),
            annotations: Vec::new(),
            taints: Vec::new(),
        };
        let annotation = |value: String| Decoration {
            annotations: vec![("facts".to_owned(), value)],
            ..labels(&[])
        };
        let tainted = |taints: &[(&str, &str, &str)]| Decoration {
            taints: taints.iter().map(taint).collect(),
            ..labels(&[])
        };
        match settings.what {
            Do::Behave => all(Decoration {
                annotations: owned(&[("example.com/note", "any text: <at all>")]),
                taints: vec![taint(&("rack", "", "NoSchedule"))],
                ..labels(&[("rack", "a")])
            }),
            Do::Echo => {
                let mut facts = format!("{machine:?} {hypervisors:?}");
                facts.truncate(4096);
                all(annotation(facts))
            }
            Do::Panic => panic!("on purpose"),
            Do::OneTooFew => Ok(vec![labels(&[]); hypervisors.len().saturating_sub(1)]),
            Do::OneTooMany => Ok(vec![labels(&[]); hypervisors.len() + 1]),
            Do::InvalidKey => all(labels(&[("rack number", "1")])),
            Do::InvalidPrefix => all(labels(&[("Example.com/rack", "1")])),
            Do::InvalidValue => all(labels(&[("rack", "<no value>")])),
            Do::InvalidTaintValue => all(tainted(&[("rack", "a b", "NoSchedule")])),
            Do::ReservedLabel => all(labels(&[("kproxide.dev/pool", "another")])),
            Do::ReservedTaint => all(tainted(&[("kproxide.dev/draining", "", "NoSchedule")])),
            Do::Hostname => all(labels(&[("kubernetes.io/hostname", "another")])),
            Do::ControlPlane => all(labels(&[("node-role.kubernetes.io/control-plane", "")])),
            Do::UnknownEffect => all(tainted(&[("rack", "a", "NoRun")])),
            Do::LabelTwice => all(labels(&[("rack", "a"), ("rack", "b")])),
            Do::TaintTwice => all(tainted(&[
                ("rack", "a", "NoSchedule"),
                ("rack", "b", "NoSchedule"),
            ])),
            Do::ManyLabels => {
                let pairs = (0..65).map(|n| (format!("l{n}"), String::new()));
                all(Decoration {
                    labels: pairs.collect(),
                    ..labels(&[])
                })
            }
            Do::LongAnnotation => all(annotation("x".repeat(4097))),
            Do::NoCandidate => Err(PolicyError::NoCandidate("not before noon".to_owned())),
            Do::Internal => Err(PolicyError::internal("the table of racks is empty")),
        }
    }
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    owned.collect()
}

fn taint((key, value, effect): &(&str, &str, &str)) -> Taint {
    Taint {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        effect: (*effect).to_owned(),
    }
}

kproxide_policy_sdk::export_labels!(HostileLabels);
