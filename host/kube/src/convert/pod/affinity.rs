//! What pods ask of their Node's labels.

use kproxide_planner::facts::{NodeSelectorTerm, Operator, PreferredTerm, Requirement};

use super::Unsupported;
use crate::view::{PreferredView, RequirementView, TermView};
use kproxide_common::foreign::{key, value};

pub(super) fn term_facts(term: &TermView, unsupported: &mut Unsupported) -> NodeSelectorTerm {
    let mut read = |list: &[RequirementView]| -> Vec<Requirement> {
        list.iter()
            .filter_map(|one| {
                let read = requirement_facts(one);
                if read.is_none() {
                    unsupported.field(&format!(
                        "spec.affinity.nodeAffinity: operator {}",
                        one.operator
                    ));
                }
                read
            })
            .collect()
    };
    NodeSelectorTerm {
        match_expressions: read(&term.match_expressions),
        match_fields: read(&term.match_fields),
    }
}

/// `None`: an operator of a later Kubernetes. The pod runs without what it prefers.
pub(super) fn preferred_facts(preferred: &PreferredView) -> Option<PreferredTerm> {
    let mut unread = Unsupported::default();
    let preference = term_facts(&preferred.preference, &mut unread);
    let weight = preferred.weight;
    unread
        .0
        .is_empty()
        .then_some(PreferredTerm { weight, preference })
}

/// `None`: an operator of a later Kubernetes.
pub(in crate::convert) fn requirement_facts(requirement: &RequirementView) -> Option<Requirement> {
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => return None,
    };
    Some(Requirement {
        key: key(&requirement.key).into(),
        operator,
        values: requirement
            .values
            .iter()
            .map(|it| value(it).into())
            .collect(),
    })
}
