//! Why a pod does not fit on a Node, by the filter of kube-scheduler that says so.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::facts::{
    HostPort, NodeSelectorTerm, Reach, Taint, VolumeNeed, VolumeProblem, VolumeWait,
};
use crate::kubernetes::resources::Resources;
use crate::kubernetes::selector::{Unmatched, term_text};
use serde::{Deserialize, Serialize};

/// Why a place does not take a pod: one variant for each filter of `planning/fit.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Misfit<'a> {
    Cordon,
    Labels(Unmatched<'a>),
    Taint(Cow<'a, Taint>),
    TooLittle {
        asked: Cow<'a, Resources>,
        free: Cow<'a, Resources>,
    },
    HostPort(Cow<'a, HostPort>),
    /// No pod that its affinity asks for stands in the place's domain of this key.
    PodAffinity {
        key: Cow<'a, str>,
    },
    /// A pod stands in the domain that it keeps away from (`ours`), or that keeps it away.
    PodAntiAffinity {
        key: Cow<'a, str>,
        ours: bool,
    },
    /// With it, its domain would have too many of the pods that are spread. `least`: the domain with the fewest.
    TopologySpread {
        key: Cow<'a, str>,
        least: Option<Arc<str>>,
    },
    /// It does not reach one of the pod's volumes.
    Volume(Cow<'a, VolumeNeed>),
    /// It can hold no more volumes of this CSI driver.
    VolumeLimit {
        driver: Cow<'a, str>,
    },
    /// No place would help.
    VolumeWait(Cow<'a, VolumeWait>),
}

impl Misfit<'_> {
    /// The plugin of kube-scheduler that refuses for this reason.
    pub fn plugin(&self) -> &'static str {
        match self {
            Self::Cordon => "NodeUnschedulable",
            Self::Labels(Unmatched::TopologyKey(_)) | Self::TopologySpread { .. } => {
                "PodTopologySpread"
            }
            Self::Labels(Unmatched::NodeSelector { .. } | Unmatched::NodeAffinity(_)) => {
                "NodeAffinity"
            }
            Self::Taint(_) => "TaintToleration",
            Self::TooLittle { .. } => "NodeResourcesFit",
            Self::HostPort(_) => "NodePorts",
            Self::PodAffinity { .. } | Self::PodAntiAffinity { .. } => "InterPodAffinity",
            Self::Volume(need) if matches!(need.reach, Some(Reach::Zone(_))) => "VolumeZone",
            Self::VolumeWait(wait) if matches!(wait.why, VolumeProblem::InUse(_)) => {
                "VolumeRestrictions"
            }
            Self::Volume(_) | Self::VolumeWait(_) => "VolumeBinding",
            Self::VolumeLimit { .. } => "NodeVolumeLimits",
        }
    }

    pub fn into_owned(self) -> Misfit<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Cordon => Misfit::Cordon,
            Self::Labels(unmatched) => Misfit::Labels(unmatched.into_owned()),
            Self::Taint(taint) => Misfit::Taint(Cow::Owned(taint.into_owned())),
            Self::TooLittle { asked, free } => Misfit::TooLittle {
                asked: Cow::Owned(asked.into_owned()),
                free: Cow::Owned(free.into_owned()),
            },
            Self::HostPort(port) => Misfit::HostPort(Cow::Owned(port.into_owned())),
            Self::PodAffinity { key } => Misfit::PodAffinity { key: owned(key) },
            Self::PodAntiAffinity { key, ours } => Misfit::PodAntiAffinity {
                key: owned(key),
                ours,
            },
            Self::TopologySpread { key, least } => Misfit::TopologySpread {
                key: owned(key),
                least,
            },
            Self::Volume(need) => Misfit::Volume(Cow::Owned(need.into_owned())),
            Self::VolumeLimit { driver } => Misfit::VolumeLimit {
                driver: owned(driver),
            },
            Self::VolumeWait(wait) => Misfit::VolumeWait(Cow::Owned(wait.into_owned())),
        }
    }
}

/// Said of a Node.
impl fmt::Display for Misfit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordon => f.write_str("it is cordoned"),
            Self::Labels(unmatched) => unmatched.fmt(f),
            Self::Taint(taint) => write!(f, "taint {taint}"),
            Self::TooLittle { asked, free } => match asked.first_lacking(free) {
                Some(lack) => write!(f, "it offers too little {}", lack.resource),
                None => f.write_str("it offers too little"),
            },
            Self::HostPort(port) => {
                let HostPort {
                    port,
                    protocol,
                    address,
                } = &**port;
                write!(f, "host port {port}/{protocol}")?;
                if **address != *HostPort::EVERY_ADDRESS {
                    write!(f, " of {address}")?;
                }
                f.write_str(" is taken")
            }
            Self::PodAffinity { key } => {
                write!(
                    f,
                    "no pod that its podAffinity asks for is in the same {key}"
                )
            }
            Self::PodAntiAffinity { key, ours: true } => {
                write!(
                    f,
                    "a pod that its podAntiAffinity excludes is in the same {key}"
                )
            }
            Self::PodAntiAffinity { key, ours: false } => {
                write!(
                    f,
                    "the podAntiAffinity of a pod in the same {key} excludes it"
                )
            }
            Self::TopologySpread { key, least } => {
                write!(
                    f,
                    "topologySpreadConstraints over {key}: too many pods there"
                )?;
                match least {
                    Some(least) => write!(f, ", {least} has the fewest"),
                    None => Ok(()),
                }
            }
            Self::Volume(need) => need.fmt(f),
            Self::VolumeLimit { driver } => {
                write!(f, "it can hold no more volumes of CSI driver {driver}")
            }
            Self::VolumeWait(wait) => wait.fmt(f),
        }
    }
}

/// Why a Node that it does not reach is no place for the pod.
impl fmt::Display for VolumeNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let volume = &self.volume;
        let terms = |terms: &[NodeSelectorTerm]| {
            let terms: Vec<_> = terms.iter().map(term_text).collect();
            terms.join(" or ")
        };
        match &self.reach {
            None => write!(f, "{volume}"),
            Some(Reach::Affinity(nodes)) => {
                write!(
                    f,
                    "{volume} can be reached only from Nodes with {}",
                    terms(nodes)
                )
            }
            // The second term is about Nodes without any zone.
            Some(Reach::Zone(nodes)) => {
                let nodes = nodes.get(..1).unwrap_or_default();
                write!(
                    f,
                    "{volume} can be reached only from Nodes with {}",
                    terms(nodes)
                )
            }
            Some(Reach::Class(nodes)) => {
                write!(
                    f,
                    "{volume} can be made only for Nodes with {}",
                    terms(nodes)
                )
            }
            Some(Reach::Chosen(node)) => write!(f, "{volume} is being made for Node {node}"),
            Some(Reach::Room { .. }) => write!(f, "there is too little room for {volume}"),
            Some(Reach::Free { volumes, made }) => {
                write!(f, "{volume} needs a free PersistentVolume of its own")?;
                let nodes: Option<Vec<_>> = volumes.iter().map(|it| it.nodes.as_deref()).collect();
                if let Some(nodes) = nodes {
                    let nodes = terms(&nodes.concat());
                    write!(f, ", which only Nodes with {nodes} reach")?;
                }
                for reach in made.iter().flat_map(|made| made.iter()) {
                    let need = Self {
                        reach: Some(reach.clone()),
                        ..self.clone()
                    };
                    write!(f, "; {need}")?;
                }
                Ok(())
            }
        }
    }
}
