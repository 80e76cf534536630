//! Label selectors and node selectors, with Kubernetes' exact meaning (`k8s.io/apimachinery/pkg/labels`, `component-helpers/scheduling`).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::{LabelSelector, Labels, NodeSelectorTerm, Operator, PodSpec, Requirement};

/// Of what a pod lists, in one text.
const MOST_LETTERS: usize = 200;

/// Does the selector select what carries these labels? An empty selector selects everything.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    selector.match_labels.iter().all(equal)
        && selector.match_expressions.iter().all(|requirement| {
            holds(
                requirement,
                labels.get(&*requirement.key).map(String::as_str),
            )
        })
}

/// What a pod demands of a Node's labels and they lack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Unmatched<'a> {
    NodeSelector {
        key: Cow<'a, str>,
        value: Cow<'a, str>,
    },
    TopologyKey(Cow<'a, str>),
    NodeAffinity(Cow<'a, [NodeSelectorTerm]>),
}

/// May a pod of this spec stand on a Node of this name with these labels, as far as its node selector, its required node affinity and the keys
/// of its topology spread say?
pub fn node_matches(spec: &PodSpec, name: &str, labels: &Labels) -> bool {
    unmatched(spec, name, labels).is_none()
}

/// The first thing that the spec demands of a Node's labels and that these lack; `None` if they satisfy it.
pub fn unmatched<'s>(spec: &'s PodSpec, name: &str, labels: &Labels) -> Option<Unmatched<'s>> {
    if let Some((key, value)) = spec
        .node_selector
        .iter()
        .find(|(key, value)| labels.get(*key) != Some(value))
    {
        let (key, value) = (Cow::Borrowed(key.as_str()), Cow::Borrowed(value.as_str()));
        return Some(Unmatched::NodeSelector { key, value });
    }
    if let Some(key) = unlabelled(spec, labels) {
        return Some(Unmatched::TopologyKey(Cow::Borrowed(key)));
    }
    let terms = spec.node_affinity.as_ref()?;
    let is_met = terms.iter().any(|term| term_matches(term, name, labels));
    (!is_met).then_some(Unmatched::NodeAffinity(Cow::Borrowed(terms)))
}

impl Unmatched<'_> {
    pub fn into_owned(self) -> Unmatched<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::NodeSelector { key, value } => Unmatched::NodeSelector {
                key: owned(key),
                value: owned(value),
            },
            Self::TopologyKey(key) => Unmatched::TopologyKey(owned(key)),
            Self::NodeAffinity(terms) => Unmatched::NodeAffinity(Cow::Owned(terms.into_owned())),
        }
    }
}

impl fmt::Display for Unmatched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeSelector { key, value } => write!(f, "nodeSelector {key}={value}"),
            Self::TopologyKey(key) => write!(f, "topologySpreadConstraints over {key}"),
            Self::NodeAffinity(terms) => {
                f.write_str("node affinity")?;
                if !terms.is_empty() {
                    write!(f, " {}", first_of(terms.iter().map(term_text), " or "))?;
                }
                Ok(())
            }
        }
    }
}

/// A topology that the pods spread over and that these labels do not place the Node in.
fn unlabelled<'s>(spec: &'s PodSpec, labels: &Labels) -> Option<&'s str> {
    let keys = spec
        .spread
        .iter()
        .map(|constraint| &*constraint.topology_key);
    keys.into_iter().find(|key| !labels.contains_key(*key))
}

/// How much of what the pod prefers such a Node has: the sum of the weights of the terms that match.
pub(crate) fn preference(spec: &PodSpec, name: &str, labels: &Labels) -> i64 {
    let terms = spec.preferred_node_affinity.iter();
    let matching = terms.filter(|it| term_matches(&it.preference, name, labels));
    matching.map(|it| i64::from(it.weight)).sum()
}

/// An empty term matches no Node, as the API says.
pub(crate) fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let NodeSelectorTerm {
        match_expressions,
        match_fields,
    } = term;
    if match_expressions.is_empty() && match_fields.is_empty() {
        return false;
    }
    match_expressions.iter().all(|requirement| {
        holds(
            requirement,
            labels.get(&*requirement.key).map(String::as_str),
        )
    }) && match_fields
        .iter()
        .all(|requirement| &*requirement.key == "metadata.name" && holds(requirement, Some(name)))
}

/// The first requirement that a Node with these labels does not meet.
pub(crate) fn unmet<'r>(
    requirements: &'r [Requirement],
    labels: &Labels,
) -> Option<&'r Requirement> {
    let value = |it: &Requirement| labels.get(&*it.key).map(String::as_str);
    requirements.iter().find(|it| !holds(it, value(it)))
}

/// `NotIn` and `DoesNotExist` hold for a label that is absent; `Gt` and `Lt` compare whole numbers and never hold for anything else.
fn holds(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|listed| &**listed == value);
    match requirement.operator {
        Operator::In => value.is_some_and(listed),
        Operator::NotIn => !value.is_some_and(listed),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compared(requirement, value).is_some_and(|(value, bound)| value > bound),
        Operator::Lt => compared(requirement, value).is_some_and(|(value, bound)| value < bound),
    }
}

fn compared(requirement: &Requirement, value: Option<&str>) -> Option<(i64, i64)> {
    let [bound] = &requirement.values[..] else {
        return None;
    };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}

pub(crate) fn term_text(term: &NodeSelectorTerm) -> String {
    let parts: Vec<&Requirement> = term
        .match_expressions
        .iter()
        .chain(&term.match_fields)
        .collect();
    match parts.is_empty() {
        true => "(an empty term, which matches nothing)".to_owned(),
        false => first_of(
            parts.into_iter().map(|it| RequirementText(it).to_string()),
            " and ",
        ),
    }
}

/// As many of these texts as [`MOST_LETTERS`] hold, at least one, and how many more there are.
fn first_of(texts: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let mut left = texts.len();
    let mut all = String::new();
    for text in texts {
        if !all.is_empty() {
            if all.chars().count() + text.chars().count() > MOST_LETTERS {
                return format!("{all} and {left} more");
            }
            all += between;
        }
        all += &text;
        left -= 1;
    }
    all
}

pub(crate) struct RequirementText<'a>(pub(crate) &'a Requirement);

impl fmt::Display for RequirementText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement {
            key,
            operator,
            values,
        } = self.0;
        let values = first_of(values.iter().map(ToString::to_string), ", ");
        match operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} not in ({values})"),
            Operator::Exists => write!(f, "{key} exists"),
            Operator::DoesNotExist => write!(f, "{key} does not exist"),
            Operator::Gt => write!(f, "{key} > {values}"),
            Operator::Lt => write!(f, "{key} < {values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::facts::PodTemplate;

    fn labels(text: &str) -> Labels {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement {
            key: key.into(),
            operator,
            values: values.iter().map(|value| Arc::from(*value)).collect(),
        }
    }

    fn affinity(terms: Vec<NodeSelectorTerm>) -> PodSpec {
        let template = PodTemplate {
            node_affinity: Some(terms),
            ..PodTemplate::default()
        };
        PodSpec {
            template: template.into(),
            ..PodSpec::default()
        }
    }

    fn term(expressions: Vec<Requirement>) -> NodeSelectorTerm {
        NodeSelectorTerm {
            match_expressions: expressions,
            match_fields: vec![],
        }
    }

    #[test]
    fn operators_mean_what_kubernetes_says() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        for (operator, values, value, expected) in [
            (In, &["a", "b"][..], Some("b"), true),
            (In, &["a"], Some("b"), false),
            (In, &["a"], None, false),
            (NotIn, &["a"], Some("b"), true),
            (NotIn, &["a"], Some("a"), false),
            (NotIn, &["a"], None, true),
            (Exists, &[], Some(""), true),
            (Exists, &[], None, false),
            (DoesNotExist, &[], None, true),
            (DoesNotExist, &[], Some("x"), false),
            (Gt, &["4"], Some("5"), true),
            (Gt, &["4"], Some("4"), false),
            (Gt, &["4"], Some("many"), false),
            (Gt, &["few"], Some("5"), false),
            (Gt, &["4", "5"], Some("6"), false),
            (Gt, &["4"], None, false),
            (Lt, &["4"], Some("-1"), true),
            (Lt, &["4"], Some("4"), false),
        ] {
            let requirement = requirement("k", operator, values);
            assert_eq!(
                holds(&requirement, value),
                expected,
                "{} with {value:?}",
                RequirementText(&requirement)
            );
        }
    }

    #[test]
    fn terms_are_alternatives_and_expressions_conditions() {
        let zone = |zone| requirement("zone", Operator::In, &[zone]);
        let ssd = requirement("ssd", Operator::Exists, &[]);
        let spec = affinity(vec![term(vec![zone("a"), ssd]), term(vec![zone("b")])]);
        assert!(node_matches(&spec, "n", &labels("zone=a ssd=yes")));
        assert!(node_matches(&spec, "n", &labels("zone=b")));
        assert!(!node_matches(&spec, "n", &labels("zone=a")));
        assert_eq!(
            unmatched(&spec, "n", &labels("zone=c"))
                .map(|it| it.to_string())
                .as_deref(),
            Some("node affinity zone in (a) and ssd exists or zone in (b)")
        );
    }

    #[test]
    fn a_text_names_the_first_of_many_and_counts_the_others() {
        let values: Vec<String> = (0..1000)
            .map(|number| format!("value-{number:03}"))
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let zone = || requirement("zone", Operator::In, &values);
        let text = |terms| {
            let spec = affinity(terms);
            unmatched(&spec, "n", &labels("")).unwrap().to_string()
        };
        let one = text(vec![term(vec![zone()])]);
        let end = "value-016, value-017 and 982 more)";
        assert!(
            one.starts_with("node affinity zone in (value-000, ") && one.ends_with(end),
            "{one}"
        );
        let many = text(vec![term(vec![zone(); 10]); 10]);
        assert!(many.ends_with("982 more) and 9 more and 9 more"), "{many}");
    }

    #[test]
    fn an_affinity_without_terms_or_with_an_empty_one_matches_nothing() {
        assert!(!node_matches(&affinity(vec![]), "n", &labels("")));
        assert!(!node_matches(
            &affinity(vec![term(vec![])]),
            "n",
            &labels("")
        ));
        assert!(node_matches(&PodSpec::default(), "n", &labels("")));
    }

    #[test]
    fn fields_know_the_name_alone() {
        let by = |key: &str| {
            affinity(vec![NodeSelectorTerm {
                match_expressions: vec![],
                match_fields: vec![requirement(key, Operator::In, &["node-1"])],
            }])
        };
        assert!(node_matches(&by("metadata.name"), "node-1", &labels("")));
        assert!(!node_matches(&by("metadata.name"), "node-2", &labels("")));
        assert!(!node_matches(
            &by("spec.unschedulable"),
            "node-1",
            &labels("")
        ));
    }

    #[test]
    fn selector_and_affinity_must_both_hold() {
        let mut spec = affinity(vec![term(vec![requirement("b", Operator::Exists, &[])])]);
        spec.node_selector = labels("a=1");
        assert!(node_matches(&spec, "n", &labels("a=1 b=2")));
        assert_eq!(
            unmatched(&spec, "n", &labels("a=2 b=2"))
                .map(|it| it.to_string())
                .as_deref(),
            Some("nodeSelector a=1")
        );
        assert!(!node_matches(&spec, "n", &labels("a=1")));
    }

    #[test]
    fn label_selectors_combine_labels_and_expressions() {
        let selector = LabelSelector {
            match_labels: labels("app=web"),
            match_expressions: vec![requirement("tier", Operator::NotIn, &["canary"])],
        };
        assert!(selects(&selector, &labels("app=web")));
        assert!(!selects(&selector, &labels("app=web tier=canary")));
        assert!(!selects(&selector, &labels("tier=stable")));
        assert!(selects(&LabelSelector::default(), &labels("")));
    }
}
