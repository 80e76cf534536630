//! ProxmoxCluster: facts for the planner, and how to connect for the Proxmox adapter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kproxide_planner::facts::{
    ClusterFacts, ClusterSpec, Concurrency, Existence, Overcommit, VmidRange,
};
use kproxide_planner::keys;
use kproxide_planner::plan::question::{Attribute, AttributeValue, PROXMOX_SAYS};
use kube::api::ObjectMeta;
use serde_json::{Map, Value};

use super::Problems;
use super::defaults::least_cluster;
use super::pod::annotation;
use crate::crd::{ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX, ClusterSettings, Tls};
use kproxide_common::labels::check_key;

/// What the Proxmox adapter needs to reach one cluster; the planner has no use for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConnection {
    /// Base URLs, in the operator's order, without a slash at the end.
    pub endpoints: Vec<String>,
    pub trust: TrustSettings,
    /// Name of the folder below the credentials' mount.
    pub credentials: String,
    /// The Proxmox pool of the machines.
    pub pool: String,
}

/// Whose certificates are trusted; fingerprints still as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustSettings {
    System,
    CaFile(PathBuf),
    Fingerprints(Vec<String>),
    InsecureSkipVerify,
}

/// The connection is `None` where the settings contradict each other; the facts then say why.
pub fn cluster_facts(written: &Map<String, Value>) -> (ClusterFacts, Option<ClusterConnection>) {
    let mut problems = Problems::default();
    problems.too_deep(written);
    let mut spec: ClusterSpec = problems.read(written, least_cluster());
    let settings: ClusterSettings = problems.read(written, least_cluster());
    let is_whole = problems.is_empty();
    let connection = connection(&settings, &mut problems);
    let connection = connection
        .filter(|_| is_whole)
        .map(|connection| ClusterConnection {
            pool: spec.pool.to_string(),
            ..connection
        });
    check(&spec, &mut problems);
    let Concurrency {
        per_storage,
        per_hypervisor,
    } = &mut spec.concurrency;
    *per_storage = (*per_storage).max(1);
    *per_hypervisor = (*per_hypervisor).max(1);
    let facts = ClusterFacts {
        spec,
        hypervisor_attributes: attributes(&settings.hypervisor_attributes, &mut problems),
        problem: problems.text(),
        // The metadata has these.
        off: Vec::new(),
        existence: Existence::default(),
    };
    (facts, connection)
}

/// What the schema cannot say, or an API server with an older schema did not.
fn check(spec: &ClusterSpec, problems: &mut Problems) {
    let VmidRange { first, last } = spec.vmid_range;
    let (first, last) = (first.0, last.0);
    if first < 100 {
        problems.add(
            "vmidRange.first",
            format_args!("{first} is too small: Proxmox numbers VMs from 100"),
        );
    }
    if first > last {
        problems.add(
            "vmidRange",
            format_args!("{first}-{last} is empty: first must not be larger than last"),
        );
    }
    if (first..=last).contains(&PROXMOX_CSI_VMID) {
        problems.add(
            "vmidRange",
            format_args!(
                "{first}-{last} holds {PROXMOX_CSI_VMID}, which the volumes of proxmox-csi carry: end it at 9998 or begin it at 10000"
            ),
        );
    }
    let Overcommit { cpu, memory } = spec.overcommit;
    for (field, factor) in [("overcommit.cpu", cpu), ("overcommit.memory", memory)] {
        if !(factor.is_finite() && factor > 0.0) {
            problems.add(field, format_args!("{factor} is not a factor above 0"));
        }
    }
}

/// The volumes of proxmox-csi belong to a VM of this number that does not exist; a VM of it would own, and at its end delete, them all.
const PROXMOX_CSI_VMID: u32 = 9999;

fn connection(settings: &ClusterSettings, problems: &mut Problems) -> Option<ClusterConnection> {
    let ClusterSettings {
        endpoints,
        tls,
        credentials,
        ..
    } = settings;
    if endpoints.is_empty() {
        problems.add(
            "endpoints",
            "is empty: give at least one URL such as https://pve1.example:8006",
        );
        return None;
    }
    if credentials.is_empty() || credentials.contains('/') || credentials.starts_with('.') {
        problems.add(
            "credentials",
            format_args!(
                "{credentials:?} is not the name of a folder below the credentials' mount"
            ),
        );
        return None;
    }
    let trust = match tls {
        None => TrustSettings::System,
        Some(Tls {
            ca_file: Some(path),
            fingerprints: None,
            insecure_skip_verify: false,
        }) => TrustSettings::CaFile(path.into()),
        Some(Tls {
            ca_file: None,
            fingerprints: Some(fingerprints),
            insecure_skip_verify: false,
        }) => TrustSettings::Fingerprints(fingerprints.clone()),
        Some(Tls {
            ca_file: None,
            fingerprints: None,
            insecure_skip_verify: true,
        }) => TrustSettings::InsecureSkipVerify,
        Some(Tls { .. }) => {
            problems.add(
                "tls",
                "set exactly one of caFile, fingerprints and insecureSkipVerify: true",
            );
            return None;
        }
    };
    Some(ClusterConnection {
        endpoints: endpoints.iter().map(|url| shortened(url)).collect(),
        trust,
        credentials: credentials.to_owned(),
        pool: String::new(),
    })
}

/// Without the path, which other clients of Proxmox want to have written.
fn shortened(url: &str) -> String {
    let url = url.trim_end_matches('/');
    url.strip_suffix("/api2/json").unwrap_or(url).to_owned()
}

/// What is wrong is left out.
fn attributes(
    written: &BTreeMap<String, BTreeMap<String, Value>>,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, Vec<Attribute>> {
    let of_each = written.iter().map(|(hypervisor, written)| {
        if written.len() > ATTRIBUTES_MAX {
            problems.add(
                &format!("hypervisorAttributes.{hypervisor}"),
                format_args!(
                    "has {} keys: at most {ATTRIBUTES_MAX} are taken",
                    written.len()
                ),
            );
        }
        let written = written.iter().take(ATTRIBUTES_MAX);
        let attributes = written.filter_map(|(key, value)| match attribute(key, value) {
            Ok(attribute) => Some(attribute),
            Err(problem) => {
                problems.add(&format!("hypervisorAttributes.{hypervisor}"), problem);
                None
            }
        });
        (hypervisor.as_str().into(), attributes.collect())
    });
    of_each.collect()
}

fn attribute(key: &str, value: &Value) -> Result<Attribute, String> {
    check_key("attribute", key).map_err(|problem| problem.to_string())?;
    if key.starts_with(PROXMOX_SAYS) {
        return Err(format!(
            "the attribute key {key:?} begins with {PROXMOX_SAYS:?}, as what Proxmox itself says does: take another key"
        ));
    }
    let value = match value {
        Value::String(text) if text.len() > ATTRIBUTE_BYTES_MAX => {
            return Err(format!(
                "the text of {key} has {} bytes: at most {ATTRIBUTE_BYTES_MAX} are taken",
                text.len()
            ));
        }
        Value::String(text) => AttributeValue::Text(text.as_str().into()),
        Value::Bool(boolean) => AttributeValue::Boolean(*boolean),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => AttributeValue::Integer(integer),
            (None, Some(number)) if number.is_finite() => AttributeValue::Number(number),
            (None, _) => return Err(format!("{number} of {key} is too large a number")),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(format!(
                "{key} is {value}: write a text, a number, true or false"
            ));
        }
    };
    let key = key.into();
    Ok(Attribute { key, value })
}

/// The names in the annotation `kproxide.dev/hypervisor-off`.
pub(crate) fn hypervisors_off(meta: &ObjectMeta) -> Vec<Arc<str>> {
    let names = annotation(meta, keys::HYPERVISOR_OFF).unwrap_or_default();
    let names = names.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(Arc::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(change: impl FnOnce(&mut Value)) -> (ClusterFacts, Option<ClusterConnection>) {
        let mut spec = json!({
            "endpoints": ["https://pve1.example:8006/"],
            "credentials": "lab",
            "vmidRange": {"first": 600, "last": 699},
        });
        change(&mut spec);
        cluster_facts(&serde_json::from_value(spec).unwrap())
    }

    fn problem(change: impl FnOnce(&mut Value)) -> String {
        read(change).0.problem.expect("a problem")
    }

    #[test]
    fn three_fields_are_enough() {
        let (facts, connection) = read(|_| {});
        assert_eq!(facts.problem, None);
        assert_eq!(&*facts.pool, "kproxide");
        assert_eq!((facts.overcommit.cpu, facts.overcommit.memory), (4.0, 1.0));
        assert_eq!(
            (
                facts.concurrency.per_storage,
                facts.concurrency.per_hypervisor
            ),
            (2, 3)
        );
        let connection = connection.unwrap();
        assert_eq!(connection.endpoints, ["https://pve1.example:8006"]);
        assert_eq!(connection.trust, TrustSettings::System);
    }

    #[test]
    fn o17_the_path_of_the_api_is_left_out_of_an_address() {
        for written in ["", "/", "/api2/json", "/api2/json/"] {
            let url = format!("https://pve1.example:8006{written}");
            let (facts, connection) = read(|spec| spec["endpoints"] = json!([url]));
            assert_eq!(facts.problem, None);
            let endpoints = connection.unwrap().endpoints;
            assert_eq!(endpoints, ["https://pve1.example:8006"], "{written}");
        }
    }

    #[test]
    fn amounts_are_exact() {
        let (facts, _) = read(|spec| {
            spec["systemReserved"] = json!({"cpu": "1500m", "memory": "2Gi"});
            spec["minAvailableMemoryMB"] = json!(512);
        });
        assert_eq!(facts.system_reserved.milli_cores(), 1500);
        assert_eq!(facts.system_reserved.memory_bytes(), 2 << 30);
        assert_eq!(facts.min_available_memory_bytes(), 512 << 20);
    }

    #[test]
    fn problems_name_field_value_and_fix() {
        let text = problem(|spec| spec["vmidRange"] = json!({"first": 9000, "last": 10000}));
        assert!(
            text.starts_with("spec.vmidRange: 9000-10000 holds 9999")
                && text.contains("end it at 9998"),
            "{text}"
        );
        let text = problem(|spec| spec["vmidRange"] = json!({"first": 700, "last": 600}));
        assert!(text.contains("700-600 is empty"), "{text}");
        let text = problem(|spec| spec["systemReserved"] = json!({"cpu": "two"}));
        assert!(
            text.starts_with("spec.systemReserved.cpu:") && text.contains("two"),
            "{text}"
        );
        let text = problem(|spec| spec["credentials"] = json!("../etc"));
        assert!(
            text.contains("\"../etc\" is not the name of a folder"),
            "{text}"
        );
    }

    #[test]
    fn attributes_of_hypervisors_are_texts_numbers_and_truths_by_key() {
        let (facts, _) = read(|spec| {
            spec["hypervisorAttributes"] = json!({
                "pve1": {"rack": "a", "power": 300, "example.com/price": 0.25, "ssd": true},
                "pve2": {"rack": "b", "power": 18446744073709551615u64},
            });
        });
        assert_eq!(facts.problem, None);
        let said: Vec<String> = facts
            .hypervisor_attributes
            .iter()
            .flat_map(|(name, of)| {
                of.iter()
                    .map(move |it| format!("{name} {} {:?}", it.key, it.value))
            })
            .collect();
        assert_eq!(
            said,
            [
                "pve1 example.com/price Number(0.25)",
                "pve1 power Integer(300)",
                "pve1 rack Text(\"a\")",
                "pve1 ssd Boolean(true)",
                "pve2 power Number(1.8446744073709552e19)",
                "pve2 rack Text(\"b\")",
            ]
        );
    }

    #[test]
    fn attributes_that_are_none_are_named_and_the_others_stay() {
        let many: serde_json::Map<_, _> = (0..33).map(|n| (format!("k{n:02}"), json!(n))).collect();
        let long = "ä".repeat(129);
        let (facts, _) = read(|spec| {
            spec["hypervisorAttributes"] = json!({
                "pve1": {"rack": {"row": 1}, "row": null, "a b": 1, "pve.kernel": "6", "kproxide.dev/x": 1, "good": 2},
                "pve2": {"note": long, "also": ["x"]},
                "pve3": many,
            });
        });
        let text = facts.problem.unwrap();
        for expected in [
            "spec.hypervisorAttributes.pve1: rack is {\"row\":1}: write a text, a number, true or false",
            "spec.hypervisorAttributes.pve1: row is null: write",
            "spec.hypervisorAttributes.pve1: the attribute key \"a b\" is invalid",
            "spec.hypervisorAttributes.pve1: the attribute key \"pve.kernel\" begins with \"pve.\"",
            "spec.hypervisorAttributes.pve1: the attribute key \"kproxide.dev/x\" is reserved",
            "spec.hypervisorAttributes.pve2: the text of note has 258 bytes: at most 256 are taken",
            "spec.hypervisorAttributes.pve2: also is [\"x\"]: write",
            "spec.hypervisorAttributes.pve3: has 33 keys: at most 32 are taken",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        let kept = facts.hypervisor_attributes;
        assert_eq!(kept.values().map(Vec::len).collect::<Vec<_>>(), [1, 0, 32]);
    }

    #[test]
    fn trust_is_exactly_one_thing() {
        let (facts, connection) =
            read(|spec| spec["tls"] = json!({"caFile": "/ca.pem", "insecureSkipVerify": true}));
        assert!(facts.problem.unwrap().contains("spec.tls: set exactly one"));
        assert_eq!(connection, None);
        let (_, connection) = read(|spec| spec["tls"] = json!({"caFile": "/ca.pem"}));
        assert_eq!(
            connection.unwrap().trust,
            TrustSettings::CaFile("/ca.pem".into())
        );
    }
}
