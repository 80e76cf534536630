use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::pve::routes::{Endpoint, ROUTES, Route, find};

/// The complaints about a form sent to a path.
fn complaints(method: http::Method, path: &str, form: &[(&str, &str)]) -> BTreeMap<String, String> {
    let (route, vars) = find(&method, path).unwrap();
    let mut params = Params::default();
    for (name, value) in form {
        params.set(name, (*value).to_owned());
    }
    match check(&params, &vars, route, Version::V9) {
        Ok(()) => BTreeMap::new(),
        Err(Refusal::Parameters(errors)) => errors,
        Err(other) => panic!("unexpected {other:?}"),
    }
}

fn config(name: &str, value: &str) -> Option<String> {
    complaints(
        http::Method::PUT,
        "/nodes/pve1/qemu/101/config",
        &[(name, value)],
    )
    .remove(name)
}

#[test]
fn missing_and_unknown_parameters_are_named() {
    let found = complaints(
        http::Method::POST,
        "/nodes/pve1/qemu/9000/clone",
        &[("nope", "1")],
    );
    assert_eq!(found["newid"], "property is missing and it is not optional");
    assert_eq!(
        found["nope"],
        "property is not defined in schema and the schema does not allow additional properties"
    );
}

#[test]
fn values_are_checked_with_the_servers_texts() {
    assert_eq!(
        config("cores", "0").unwrap(),
        "value must have a minimum value of 1"
    );
    assert_eq!(
        config("cores", "x").unwrap(),
        "type check ('integer') failed - got 'x'"
    );
    assert_eq!(
        config("onboot", "true").unwrap(),
        "type check ('boolean') failed - got 'true'"
    );
    assert_eq!(
        config("tags", "a/b").unwrap(),
        "invalid format - invalid characters in tag\n"
    );
    assert_eq!(
        config("sshkeys", "ssh-ed25519 AAAA").unwrap(),
        "invalid format - invalid urlencoded string: ssh-ed25519 AAAA\n"
    );
    assert_eq!(
        config("name", "a_b").unwrap(),
        "invalid format - value does not look like a valid DNS name\n"
    );
    assert!(config("cpu", "x86-64-v2-AES,flags=+aes").is_none());
    assert!(
        config("cpu", "host,nested=1")
            .unwrap()
            .contains("cpu.nested: property is not defined")
    );
    assert!(config("net0", "virtio,bridge=vmbr0").is_none());
    assert!(config("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1").is_none());
    assert!(
        config("net0", "virtio,brigde=vmbr0")
            .unwrap()
            .contains("net0.brigde: property is not defined")
    );
    assert!(config("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1").is_none());
    assert!(
        config("ipconfig0", "ip=10.0.0.5")
            .unwrap()
            .contains("ipv4 network configuration")
    );
    assert!(config("scsi31", "local:1").is_some(), "there is no scsi31");
    assert!(config("scsi30", "local:1").is_none());
}

#[test]
fn bad_variables_of_the_path_are_refused() {
    let found = complaints(http::Method::GET, "/nodes/pve1/qemu/99/config", &[]);
    assert_eq!(found["vmid"], "value must have a minimum value of 100");
}

/// Of the table that agreed with the published schemas when they were last there. A changed table has another one: bring the schemas
/// (`KPROXIDE_PVE_SCHEMAS`), and write down here what the test says.
const COMPARED: &str = "a66ef7c8aa940a5236cd49c5ad0fc48e096b203670a7d2dbe2ae52aebcc86a0f";

/// SHA-256 of everything that is compared.
fn fingerprint() -> String {
    let mut text = format!("{:?}", table::ONLY_V9);
    for route in ROUTES {
        text += &format!("{} {}", route.method, route.path);
        for param in parameters(route.endpoint).iter().copied().flatten() {
            text += &format!(" {} {} {:?}", param.name, param.required, param.kind);
        }
    }
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The published schemas are not part of this repository, for they are AGPL: they are compared with when they are there.
fn schemas() -> Option<[Value; 2]> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/schema");
    let folder = std::env::var_os("KPROXIDE_PVE_SCHEMAS").map_or(beside, PathBuf::from);
    let read = |name| serde_json::from_slice(&std::fs::read(folder.join(name)).ok()?).ok();
    Some([read("pve8.json")?, read("pve9.json")?])
}

/// The schemas are a selection, which this method is not in. It takes no parameter but the server's name.
const UNPUBLISHED: &str = "GET /nodes/{node}/config";

#[test]
fn table_agrees_with_the_published_schemas() {
    let mut wrong = Vec::new();
    if let Some([v8, v9]) = schemas() {
        let key = |route: &Route| format!("{} {}", route.method, route.path);
        for route in ROUTES.iter().filter(|route| key(route) != UNPUBLISHED) {
            let key = key(route);
            for (schema, version) in [(&v8, Version::V8), (&v9, Version::V9)] {
                match schema.get(&key) {
                    Some(published) => {
                        compare(&key, route.endpoint, published, version, &mut wrong)
                    }
                    None => wrong.push(format!("{key}: not in the schema of {version:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        fingerprint(),
        COMPARED,
        "the table has changed since it was compared"
    );
}

fn compare(
    key: &str,
    endpoint: Endpoint,
    published: &Value,
    version: Version,
    wrong: &mut Vec<String>,
) {
    let empty = serde_json::Map::new();
    let properties = published["parameters"]["properties"]
        .as_object()
        .unwrap_or(&empty);
    let ours: Vec<&Param> = parameters(endpoint)
        .iter()
        .flat_map(|group| group.iter())
        .filter(|param| version == Version::V9 || !table::ONLY_V9.contains(&param.name))
        .collect();
    let names: BTreeSet<&str> = ours.iter().map(|param| param.name).collect();
    let theirs: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
    let missing: Vec<_> = theirs.difference(&names).collect();
    let extra: Vec<_> = names.difference(&theirs).collect();
    if !missing.is_empty() || !extra.is_empty() {
        wrong.push(format!(
            "{key} in {version:?}: missing {missing:?}, too many {extra:?}"
        ));
    }
    for param in ours {
        let Some(property) = properties.get(param.name) else {
            continue;
        };
        let is_optional = property["optional"].as_u64() == Some(1);
        if is_optional == param.required {
            wrong.push(format!(
                "{key} {}: required is {}",
                param.name, param.required
            ));
        }
        if !same_kind(param.kind, property) {
            wrong.push(format!(
                "{key} {}: {:?} is not {property}",
                param.name, param.kind
            ));
        }
    }
}

fn same_kind(kind: Kind, property: &Value) -> bool {
    let number = |name: &str| {
        let value = &property[name];
        value.as_f64().or_else(|| value.as_str()?.parse().ok())
    };
    let limits =
        |min: Option<f64>, max: Option<f64>| number("minimum") == min && number("maximum") == max;
    let theirs = property["type"].as_str().unwrap_or("string");
    match kind {
        Kind::Boolean => theirs == "boolean",
        Kind::Integer { min, max } => {
            theirs == "integer" && limits(min.map(|v| v as f64), max.map(|v| v as f64))
        }
        Kind::Number { min, max } => theirs == "number" && limits(Some(min), max),
        Kind::List => theirs == "array",
        Kind::OneOf(values) => {
            let theirs = property["enum"].as_array();
            // Release 8 has fewer network types.
            theirs.is_some_and(|all| {
                all.iter()
                    .all(|value| values.iter().any(|ours| value == ours))
            })
        }
        Kind::Text(Format::Disk) => property["enum"].is_array(),
        Kind::Text(Format::Max(length)) => {
            theirs == "string" && number("maxLength") == Some(length as f64)
        }
        Kind::Text(_) => theirs == "string",
    }
}
