//! Label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    error::ApiError,
    object::{entries, items},
    resource::Resource,
    store::Stored,
};

/// A label selector; all its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// The operators of label selectors and of node affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl Operator {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "In" => Some(Self::In),
            "NotIn" => Some(Self::NotIn),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::DoesNotExist),
            "Gt" => Some(Self::Gt),
            "Lt" => Some(Self::Lt),
            _ => None,
        }
    }

    /// Whether a label with this value, or no such label, satisfies the operator.
    pub(crate) fn holds<V: AsRef<str>>(self, label: Option<&str>, values: &[V]) -> bool {
        let compare = |order: fn(&i64, &i64) -> bool| {
            let number = |text: &str| text.parse::<i64>().ok();
            match (label.and_then(number), values) {
                (Some(label), [value]) => {
                    number(value.as_ref()).is_some_and(|value| order(&label, &value))
                }
                (Some(_) | None, _) => false,
            }
        };
        match self {
            Self::In => {
                label.is_some_and(|label| values.iter().any(|value| value.as_ref() == label))
            }
            Self::NotIn => {
                label.is_none_or(|label| values.iter().all(|value| value.as_ref() != label))
            }
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::Gt => compare(i64::gt),
            Self::Lt => compare(i64::lt),
        }
    }
}

impl LabelSelector {
    /// Reads the text form of query parameters: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        split_outside_parentheses(text)
            .map(|part| {
                Requirement::parse(part).ok_or_else(|| {
                    ApiError::bad_request(format!(
                        "unable to parse requirement: {part:?} in {text:?}"
                    ))
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads a `metav1.LabelSelector`. Nothing selects when it is null; everything when it is `{}`.
    pub(crate) fn from_object(selector: &Value) -> Option<Self> {
        if selector.is_null() {
            return None;
        }
        let mut requirements: Vec<Requirement> = entries(selector, "matchLabels")
            .map(|(key, value)| Requirement {
                key: key.to_owned(),
                operator: Operator::In,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            })
            .collect();
        for expression in items(selector, "matchExpressions") {
            requirements.push(Requirement {
                key: expression["key"].as_str()?.to_owned(),
                operator: Operator::parse(expression["operator"].as_str()?)?,
                values: items(expression, "values")
                    .iter()
                    .filter_map(|value| Some(value.as_str()?.to_owned()))
                    .collect(),
            });
        }
        Some(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let label = labels.get(&requirement.key).map(String::as_str);
            requirement.operator.holds(label, &requirement.values)
        })
    }
}

impl Requirement {
    fn parse(part: &str) -> Option<Self> {
        let one = |key: &str, operator, value: &str| Self {
            key: key.trim().to_owned(),
            operator,
            values: vec![value.trim().to_owned()],
        };
        let bare = |key: &str, operator| Self {
            key: key.trim().to_owned(),
            operator,
            values: Vec::new(),
        };
        if let Some((head, list)) = part.split_once('(') {
            let mut words = head.split_whitespace();
            let (key, operator) = (words.next()?, words.next()?);
            let operator = match operator {
                "in" => Operator::In,
                "notin" => Operator::NotIn,
                _ => return None,
            };
            let values = list.trim_end().strip_suffix(')')?;
            return Some(Self {
                key: key.to_owned(),
                operator,
                values: values
                    .split(',')
                    .map(|value| value.trim().to_owned())
                    .collect(),
            });
        }
        if let Some((key, value)) = part.split_once("!=") {
            return Some(one(key, Operator::NotIn, value));
        }
        if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            return Some(one(key, Operator::In, value));
        }
        let part = part.trim();
        match part.strip_prefix('!') {
            Some(key) => Some(bare(key, Operator::DoesNotExist)),
            None if part.is_empty() || part.contains(char::is_whitespace) => None,
            None => Some(bare(part, Operator::Exists)),
        }
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}

/// A field selector: dotted paths that must be equal, or not equal, to a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Reads `metadata.name=x,spec.nodeName!=y`; a path that the resource does not index is refused as by the real server.
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<Self, ApiError> {
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
                    (path, false, value)
                } else if let Some((path, value)) =
                    part.split_once("==").or_else(|| part.split_once('='))
                {
                    (path, true, value)
                } else {
                    return Err(ApiError::bad_request(format!(
                        "invalid selector: {text:?}; can't understand {part:?}"
                    )));
                };
                match selectable_fields(resource).contains(&path) {
                    true => Ok((path.to_owned(), equal, value.to_owned())),
                    false => Err(ApiError::bad_request(format!(
                        "field label not supported: {path}"
                    ))),
                }
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, stored: &Stored) -> bool {
        let mut parsed = None;
        self.0.iter().all(|(path, equal, wanted)| {
            let found = match path.as_str() {
                "metadata.name" => stored.key.name.as_str(),
                "metadata.namespace" => stored.key.namespace.as_str(),
                "spec.nodeName" => stored.node_name.as_deref().unwrap_or_default(),
                "status.phase" => stored.phase.as_deref().unwrap_or_default(),
                other => {
                    let object: &Value = parsed.get_or_insert_with(|| stored.value());
                    let found = other.split('.').fold(object, |value, field| &value[field]);
                    match found {
                        Value::String(text) => text.as_str(),
                        Value::Bool(true) => "true",
                        // An absent boolean is selected by "false", as on typed objects.
                        Value::Bool(false) => "false",
                        Value::Null if other == "spec.unschedulable" => "false",
                        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => "",
                    }
                }
            };
            (found == wanted) == *equal
        })
    }
}

/// The fields that the real server lets select, per resource.
fn selectable_fields(resource: &Resource) -> &'static [&'static str] {
    match (&*resource.id.group, &*resource.id.plural) {
        ("", "pods") => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
        ],
        ("", "nodes") => &["metadata.name", "spec.unschedulable"],
        ("", "namespaces") => &["metadata.name", "status.phase"],
        ("", "secrets") => &["metadata.name", "metadata.namespace", "type"],
        ("", "events") => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "metadata.name",
            "metadata.namespace",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "type",
        ],
        (_, _) if resource.namespaced => &["metadata.name", "metadata.namespace"],
        (_, _) => &["metadata.name"],
    }
}

/// Which objects a list or a watch shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selector {
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, stored: &Stored) -> bool {
        self.labels.matches(&stored.labels) && self.fields.matches(stored)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let labels = labels
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(
            LabelSelector::parse(selector).unwrap().matches(&labels),
            expected,
            "{selector}"
        );
    }

    #[test]
    fn text_selectors() {
        check("", &[], true);
        check("a=b", &[("a", "b")], true);
        check("a==b,c=d", &[("a", "b")], false);
        check("a!=b", &[], true);
        check("a in (b, c),d", &[("a", "c"), ("d", "")], true);
        check("a notin (b,c)", &[("a", "c")], false);
        check("!a", &[("a", "")], false);
        check("kproxide.dev/pool", &[("kproxide.dev/pool", "x")], true);
        assert!(LabelSelector::parse("a b").is_err());
    }

    #[test]
    fn object_selectors() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}],
        }));
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        assert!(selector.unwrap().matches(&labels));
        assert_eq!(LabelSelector::from_object(&Value::Null), None);
    }
}
