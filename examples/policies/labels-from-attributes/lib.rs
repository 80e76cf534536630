//! Gives each Node labels with the attributes of its hypervisor, such as the rack that it stands in.

use kproxide_policy_sdk::{About, Decoration, Hypervisor, Labels, Machine, Policy, PolicyError, Value};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    prefix: String,
    attributes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { prefix: "example.com/".to_owned(), attributes: vec!["rack".to_owned()] }
    }
}

pub struct FromAttributes;

impl Policy for FromAttributes {
    const ABOUT: About = About {
        name: "labels-from-attributes",
        version: "1.0.0",
        description: "a label for each of these attributes of the hypervisor",
        settings_schema: r#"{"properties": {"prefix": {"type": "string", "description": "before the name of each label; default example.com/"}, "attributes": {"type": "array", "items": {"type": "string"}, "description": "which ones; default [rack]"}}, "additionalProperties": false}"#,
    };
    type Settings = Settings;
}

impl Labels for FromAttributes {
    fn decorate(settings: &Settings, _: &Machine, hypervisors: &[Hypervisor]) -> Result<Vec<Decoration>, PolicyError> {
        let decorations = hypervisors.iter().map(|hypervisor| Decoration {
            labels: labels(settings, hypervisor),
            annotations: Vec::new(),
            taints: Vec::new(),
        });
        Ok(decorations.collect())
    }
}

/// An attribute that this hypervisor lacks makes no label.
fn labels(settings: &Settings, hypervisor: &Hypervisor) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for attribute in &settings.attributes {
        let found = hypervisor.attributes.iter().find(|it| it.key == *attribute);
        let value = match found.map(|it| &it.value) {
            None => continue,
            Some(Value::Text(text)) => legal(text),
            Some(Value::Integer(number)) => number.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Boolean(truth)) => truth.to_string(),
        };
        labels.push((format!("{}{attribute}", settings.prefix), value));
    }
    labels
}

/// The text as the value of a label: letters, digits, dashes, underscores and dots, at most 63.
fn legal(text: &str) -> String {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text: String = text.chars().map(|c| if is_legal(c) { c } else { '-' }).take(63).collect();
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

kproxide_policy_sdk::export_labels!(FromAttributes);

#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::testkit::{hypervisor, machine};
    use kproxide_policy_sdk::{Attribute, call};

    use super::*;

    #[test]
    fn each_attribute_that_is_asked_for_and_there_is_a_label() {
        let attribute = |key: &str, value: Value| Attribute { key: key.to_owned(), value };
        let mut first = hypervisor("pve1");
        first.attributes = vec![attribute("rack", Value::Text("row 1/a".to_owned())), attribute("power", Value::Integer(300))];
        let hypervisors = [first, hypervisor("pve2")];
        let settings = r#"{"prefix": "home/", "attributes": ["rack", "power", "price"]}"#;
        let decorations = call::decorate::<FromAttributes>(settings, &machine(), &hypervisors).unwrap();
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(decorations[0].labels, [label("home/rack", "row-1-a"), label("home/power", "300")]);
        assert_eq!(decorations[1].labels, []);
    }
}
