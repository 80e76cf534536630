//! Places machines on hypervisors whose name begins with what the operator sets, the emptiest first.

use kproxide_policy_sdk::{About, Candidate, Context, HostSelection, Policy, PolicyError, Ranking, Request};

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    prefix: String,
}

pub struct Mine;

impl Policy for Mine {
    const ABOUT: About = About {
        name: "my-policy",
        version: env!("CARGO_PKG_VERSION"),
        description: "hypervisors whose name has a prefix, the emptiest first",
        settings_schema: r#"{"properties": {"prefix": {"type": "string", "description": "how the names of preferred hypervisors begin"}}, "additionalProperties": false}"#,
    };
    type Settings = Settings;
}

impl HostSelection for Mine {
    fn rank(_: &Context, settings: &Settings, _: &Request, candidates: &[Candidate]) -> Result<Ranking, PolicyError> {
        Ok(Ranking::by_score(candidates, |candidate| {
            let preferred = candidate.hypervisor.id.name.starts_with(&settings.prefix);
            let score = if preferred { 0.5 } else { 0.0 } + candidate.memory_share() / 2.0;
            (score, format!("preferred: {preferred}"))
        }))
    }
}

kproxide_policy_sdk::export_host_selection!(Mine);

// The same function runs natively, so it is tested like any other.
#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::call;
    use kproxide_policy_sdk::testkit::{candidate, context, request, tried_in_order};

    use super::Mine;

    #[test]
    fn hypervisors_with_the_prefix_are_tried_first() {
        let candidates = [candidate("attic1"), candidate("rack1"), candidate("rack2")];
        let ranking = call::rank::<Mine>(&context(r#"{"prefix": "rack"}"#), &request(), &candidates).unwrap();
        assert_eq!(tried_in_order(&ranking, &candidates), ["rack1", "rack2", "attic1"]);
        assert!(call::check_settings::<Mine>(r#"{"prefx": "rack"}"#).is_err());
    }
}
