//! Pods that ask for more than kproxide looks at. Each term costs time, with every pod and every place, and any namespace may ask for thousands of them.

use std::{fmt, mem};

use serde::{Deserialize, Serialize};

use super::kubernetes::{
    LabelSelector, Namespaces, NodeSelectorTerm, PodSpec, PodTemplate, PodTerm, Requirement,
};

/// Terms of a pod about other pods.
pub const MOST_TERMS: usize = 50;

/// What a pod asks of Nodes and about other pods in all.
pub const MOST_REQUIREMENTS: usize = 500;

/// What a pod has, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TooMany {
    Terms(usize),
    Requirements(usize),
}

impl TooMany {
    pub fn most(self) -> usize {
        match self {
            Self::Terms(_) => MOST_TERMS,
            Self::Requirements(_) => MOST_REQUIREMENTS,
        }
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terms(count) => write!(
                f,
                "{count} terms of affinity, anti-affinity and topology spread about other pods"
            ),
            Self::Requirements(count) => write!(
                f,
                "{count} terms, requirements and values of affinity, topology spread, node selector, tolerations and host ports"
            ),
        }?;
        write!(
            f,
            ", and kproxide looks at no pod with more than {}",
            self.most()
        )
    }
}

impl PodSpec {
    /// How much it asks about other pods: required and preferred affinity and anti-affinity, and topology spread.
    pub fn terms(&self) -> usize {
        self.pod_affinity.len()
            + self.pod_anti_affinity.len()
            + self.spread.len()
            + self.preferred_neighbours.len()
    }

    /// What it asks of Nodes: each is held against every Node.
    pub(crate) fn asks_of_nodes(&self) -> usize {
        let liked = self.preferred_node_affinity.iter().map(|it| &it.preference);
        let all = self.node_affinity.iter().flatten().chain(liked);
        all.map(NodeSelectorTerm::size).sum()
    }

    /// Of a pod with more than kproxide looks at, that is kept, and no more of what it asks than its room: an object may have a
    /// megabyte. Whoever makes a pod's facts asks for this once, so that no plan has to go over all of it.
    pub fn forget_surplus(&mut self) {
        let (terms, requirements) = (self.terms(), self.requirements());
        let too_many = match (terms > MOST_TERMS, requirements > MOST_REQUIREMENTS) {
            (true, _) => TooMany::Terms(terms),
            (false, true) => TooMany::Requirements(requirements),
            (false, false) => return,
        };
        self.preferred_node_affinity = Vec::new();
        self.preferred_neighbours = Vec::new();
        let PodTemplate {
            requests,
            priority,
            scheduler_name,
            local_volumes,
            empty_dir,
            mut host_ports,
            unsupported,
            ..
        } = mem::take(&mut **self);
        host_ports.truncate(MOST_REQUIREMENTS);
        host_ports.shrink_to_fit();
        **self = PodTemplate {
            requests,
            priority,
            scheduler_name,
            local_volumes,
            empty_dir,
            host_ports,
            unsupported,
            too_many: Some(too_many),
            ..PodTemplate::default()
        };
    }

    fn requirements(&self) -> usize {
        let neighbours = self.preferred_neighbours.iter().map(|it| &it.term);
        let of_pods = self.pod_affinity.iter().chain(&self.pod_anti_affinity);
        let spreads = self.spread.iter().filter_map(|it| it.selector.as_ref());
        self.asks_of_nodes()
            + of_pods.chain(neighbours).map(PodTerm::size).sum::<usize>()
            + spreads.map(LabelSelector::size).sum::<usize>()
            + self.node_selector.len()
            + self.tolerations.len()
            + self.host_ports.len()
    }
}

impl NodeSelectorTerm {
    fn size(&self) -> usize {
        1 + sizes(&self.match_expressions) + sizes(&self.match_fields)
    }
}

impl PodTerm {
    fn size(&self) -> usize {
        self.selector.as_ref().map_or(0, LabelSelector::size) + self.namespaces.size()
    }
}

impl Namespaces {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Own | Self::All => 0,
            Self::Named(names) => names.len(),
            Self::Selected(selector, names) => selector.size() + names.len(),
        }
    }
}

impl LabelSelector {
    /// How much a pod is held against.
    pub(crate) fn size(&self) -> usize {
        self.match_labels.len() + sizes(&self.match_expressions)
    }
}

fn sizes(requirements: &[Requirement]) -> usize {
    requirements.iter().map(|it| 1 + it.values.len()).sum()
}
