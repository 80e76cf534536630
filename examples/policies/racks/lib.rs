//! Never two machines of a pool on one rack.

use std::collections::BTreeSet;

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, Policy, PolicyError, Ranking, Request, Value, percent,
};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    attribute: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { attribute: "rack".to_owned() }
    }
}

pub struct Racks;

impl Policy for Racks {
    const ABOUT: About = About {
        name: "racks",
        version: "1.0.0",
        description: "never two machines of a pool on one rack; of the free racks the emptiest hypervisor",
        settings_schema: r#"{"properties": {"attribute": {"type": "string", "description": "the attribute of hypervisors that names the rack; default rack"}}, "additionalProperties": false}"#,
    };
    type Settings = Settings;
}

impl HostSelection for Racks {
    fn rank(_: &Context, settings: &Settings, _: &Request, candidates: &[Candidate]) -> Result<Ranking, PolicyError> {
        let rack = |candidate: &Candidate| rack(candidate, &settings.attribute);
        // A hypervisor that takes no machine now may still have one.
        let taken: BTreeSet<Rack> = candidates.iter().filter(|it| it.machines_of_pool > 0).map(rack).collect();
        Ok(Ranking::by(candidates, |candidate| {
            let rack = rack(candidate);
            let name = &rack.1;
            if taken.contains(&rack) {
                return Err(format!("rack {name} has a machine of this pool"));
            }
            let share = candidate.memory_share();
            Ok((share, format!("rack {name} has none; {} % of the memory is free", percent(share))))
        }))
    }
}

/// A cluster, and the name of a rack in it.
type Rack = (String, String);

/// A hypervisor without a rack is one by itself.
fn rack(candidate: &Candidate, attribute: &str) -> Rack {
    let found = candidate.hypervisor.attributes.iter().find(|it| it.key == attribute);
    let name = match found.map(|it| &it.value) {
        Some(Value::Text(name)) => name.clone(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Number(_) | Value::Boolean(_)) | None => format!("of {}", candidate.hypervisor.id.name),
    };
    (candidate.hypervisor.id.cluster.clone(), name)
}

kproxide_policy_sdk::export_host_selection!(Racks);

#[cfg(test)]
mod tests {
    use kproxide_policy_sdk::testkit::{candidate, context, request, tried_in_order};
    use kproxide_policy_sdk::{Attribute, call};

    use super::*;

    fn on(name: &str, rack: &str, machines: u32) -> Candidate {
        let mut candidate = Candidate { machines_of_pool: machines, ..candidate(name) };
        let value = Value::Text(rack.to_owned());
        candidate.hypervisor.attributes.push(Attribute { key: "rack".to_owned(), value });
        candidate
    }

    #[test]
    fn a_rack_with_a_machine_of_the_pool_gets_no_other() {
        let full = Candidate { ineligible: Some("no room".to_owned()), ..on("b1", "b", 1) };
        let candidates = [on("a1", "a", 1), on("a2", "a", 0), full, on("b2", "b", 0), on("c1", "c", 0), candidate("d1")];
        let ranking = call::rank::<Racks>(&context("{}"), &request(), &candidates).unwrap();
        assert_eq!(tried_in_order(&ranking, &candidates), ["c1", "d1"]);
        let rejected: Vec<u32> = ranking.rejected.iter().map(|it| it.index).collect();
        assert_eq!(rejected, [0, 1, 2, 3]);
    }

    #[test]
    fn racks_of_one_name_in_two_clusters_are_two() {
        let mut elsewhere = on("b1", "a", 0);
        elsewhere.hypervisor.id.cluster = "elsewhere".to_owned();
        let candidates = [on("a1", "a", 1), on("a2", "a", 0), elsewhere];
        let ranking = call::rank::<Racks>(&context("{}"), &request(), &candidates).unwrap();
        assert_eq!(tried_in_order(&ranking, &candidates), ["b1"]);
    }
}
