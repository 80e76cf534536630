//! Removes the Node first from which the fewest pods would have to move. Young Nodes stay.

use kproxide_policy_sdk::{About, Candidate, Context, Node, Plan, Policy, PolicyError, Removal, ScaleDown};

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Settings {
    minimum_age_seconds: u64,
}

pub struct Mine;

impl Policy for Mine {
    const ABOUT: About = About {
        name: "my-policy",
        version: env!("CARGO_PKG_VERSION"),
        description: "the Node with the fewest pods to move goes first; young Nodes stay",
        settings_schema: r#"{"properties": {"minimumAgeSeconds": {"type": "integer", "minimum": 0, "description": "Nodes younger than this stay"}}, "additionalProperties": false}"#,
    };
    type Settings = Settings;
}

impl ScaleDown for Mine {
    fn order(
        context: &Context,
        settings: &Settings,
        _: &str,
        nodes: &[Node],
        _: &[Candidate],
        _: u32,
    ) -> Result<Plan, PolicyError> {
        let is_old = |node: &Node| context.now.saturating_sub(node.created) >= settings.minimum_age_seconds;
        let removals = (0..).zip(nodes).filter(|(_, node)| is_old(node)).map(|(index, node)| Removal {
            index,
            score: 1.0 / (1.0 + f64::from(node.movable_pods)),
            reason: format!("pods to move: {}", node.movable_pods),
        });
        Ok(Plan { removals: removals.collect(), state: None })
    }
}

kproxide_policy_sdk::export_scale_down!(Mine);

// The same function runs natively, so it is tested like any other.
#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::Node;
    use kproxide_policy_sdk::call;
    use kproxide_policy_sdk::testkit::{context, node, removed_in_order};

    use super::Mine;

    #[test]
    fn few_pods_go_first_and_young_nodes_stay() {
        let context = context(r#"{"minimumAgeSeconds": 600}"#);
        let with = |name: &str, movable_pods: u32, age: u64| Node {
            movable_pods,
            created: context.now - age,
            ..node(name)
        };
        let nodes = [with("busy", 9, 3600), with("idle", 0, 3600), with("young", 0, 60)];
        let plan = call::order::<Mine>(&context, "workers", &nodes, &[], 3).unwrap();
        assert_eq!(removed_in_order(&plan, &nodes), ["idle", "busy"]);
        assert!(call::check_settings::<Mine>(r#"{"minimumAgeSeconds": "ten"}"#).is_err());
    }
}
