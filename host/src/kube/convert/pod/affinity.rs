//! What pods ask of their Node's labels.

use kproxide_planner::facts::{NodePreference, NodeSelectorTerm, Operator, Requirement};

use super::Unsupported;
use crate::kube::view::{PreferredView, RequirementView, TermView};

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

/// `None`: a wish that cannot be read is not heard.
pub(super) fn preference_facts(preferred: &PreferredView) -> Option<NodePreference> {
    let mut unread = Unsupported::default();
    let term = term_facts(&preferred.preference, &mut unread);
    let weight = preferred.weight;
    unread
        .0
        .is_empty()
        .then_some(NodePreference { weight, term })
}

/// `None`: an operator of a later Kubernetes.
pub(in crate::kube::convert) fn requirement_facts(
    requirement: &RequirementView,
) -> Option<Requirement> {
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
        key: requirement.key.as_str().into(),
        operator,
        values: requirement
            .values
            .iter()
            .map(|it| it.as_str().into())
            .collect(),
    })
}
