//! Gives each Node a label with the name of its hypervisor.

use kproxide_policy_sdk::{About, Decoration, Hypervisor, Labels, Machine, Policy, PolicyError};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    key: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { key: "example.com/hypervisor".to_owned() }
    }
}

pub struct Mine;

impl Policy for Mine {
    const ABOUT: About = About {
        name: "my-policy",
        version: env!("CARGO_PKG_VERSION"),
        description: "a label with the name of the hypervisor",
        settings_schema: r#"{"properties": {"key": {"type": "string", "description": "the key of the label"}}, "additionalProperties": false}"#,
    };
    type Settings = Settings;
}

impl Labels for Mine {
    fn decorate(settings: &Settings, _: &Machine, hypervisors: &[Hypervisor]) -> Result<Vec<Decoration>, PolicyError> {
        let label = |hypervisor: &Hypervisor| (settings.key.clone(), hypervisor.id.name.clone());
        let decorations = hypervisors.iter().map(|hypervisor| Decoration {
            labels: vec![label(hypervisor)],
            annotations: Vec::new(),
            taints: Vec::new(),
        });
        Ok(decorations.collect())
    }
}

kproxide_policy_sdk::export_labels!(Mine);

// The same function runs natively, so it is tested like any other.
#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::call;
    use kproxide_policy_sdk::testkit::{candidate, machine};

    use super::Mine;

    #[test]
    fn the_label_has_the_name_of_the_hypervisor() {
        let hypervisors = ["pve1", "pve2"].map(|name| candidate(name).hypervisor);

        let decorations = call::decorate::<Mine>(r#"{"key": "example.com/server"}"#, &machine(), &hypervisors).unwrap();
        let labels: Vec<_> = decorations.into_iter().flat_map(|decoration| decoration.labels).collect();
        let label = |name: &str| ("example.com/server".to_owned(), name.to_owned());
        assert_eq!(labels, [label("pve1"), label("pve2")]);
        assert!(call::check_settings::<Mine>(r#"{"label": "a"}"#).is_err());
    }
}
