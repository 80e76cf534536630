//! From types to the CustomResourceDefinitions that the API server takes.

use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::{
    LEDGER_NAME, Ledger, NodeClaim, NodeClass, NodePool, ProxmoxCluster, VERSION_ANNOTATION,
};

/// The five definitions, in a fixed order. They are made once in a process.
pub fn crds() -> &'static [CustomResourceDefinition] {
    static MADE: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    MADE.get_or_init(|| {
        [
            ProxmoxCluster::crd(),
            NodeClass::crd(),
            NodePool::crd(),
            NodeClaim::crd(),
            Ledger::crd(),
        ]
        .into_iter()
        .map(tidied)
        .collect()
    })
}

/// The five definitions as YAML documents; the same text on every run.
pub fn crds_yaml() -> String {
    crds()
        .iter()
        .map(|crd| format!("---\n{}", crd_yaml(crd)))
        .collect()
}

/// The schema of a kind's specification.
pub fn spec_of(kind: &str) -> Value {
    schema_of(kind)["properties"]["spec"].take()
}

fn schema_of(kind: &str) -> Value {
    let crd = crds()
        .iter()
        .find(|crd| crd.spec.names.kind == kind)
        .expect("a kind of ours");
    serde_json::to_value(crd).expect("a definition is plain data")["spec"]["versions"][0]["schema"]
        ["openAPIV3Schema"]
        .take()
}

/// One definition as YAML.
pub(super) fn crd_yaml(crd: &CustomResourceDefinition) -> String {
    // By way of a value, whose keys are sorted.
    let value = serde_json::to_value(crd).expect("a definition is plain data");
    serde_saphyr::to_string(&value).expect("plain data can be written as YAML")
}

/// What the derive macros cannot say, and what the API server would warn about.
fn tidied(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(crd).expect("a definition is plain data");
    value["metadata"]["annotations"] = json!({ VERSION_ANNOTATION: env!("CARGO_PKG_VERSION") });
    let is_ledger = value.pointer("/spec/names/kind") == Some(&json!("Ledger"));
    if let Some(schema) = value.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        tidy_schema(schema);
        if is_ledger {
            schema["x-kubernetes-validations"] = json!([{
                "rule": format!("self.metadata.name == '{LEDGER_NAME}'"),
                "message": format!("there is one Ledger, named {LEDGER_NAME}"),
            }]);
            let fields = schema.pointer_mut("/properties/spec/properties");
            for field in fields.and_then(Value::as_object_mut).into_iter().flatten() {
                if field.1["type"] == json!("array") {
                    field.1["x-kubernetes-list-type"] = json!("atomic");
                }
            }
        }
    }
    serde_json::from_value(value).expect("a tidied definition is a definition")
}

/// - `nullable` goes: the API server then drops a null before it applies defaults, so that null means "not given".
/// - Formats that OpenAPI does not know (`uint32`) become those it knows; the minimum of 0 stays.
/// - Line breaks of doc comments become spaces.
fn tidy_schema(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("nullable");
            object.remove("title");
            if let Some(Value::String(format)) = object.get_mut("format")
                && format.starts_with("uint")
            {
                *format = if format == "uint64" || format == "uint32" {
                    "int64"
                } else {
                    "int32"
                }
                .to_owned();
            }
            if let Some(Value::String(description)) = object.get_mut("description") {
                *description = description
                    .split("\n\n")
                    .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
                    .collect::<Vec<_>>()
                    .join("\n\n");
            }
            for (key, child) in object.iter_mut() {
                // The keys of `properties` are names of fields, one of which may be called like a keyword.
                if key == "properties" {
                    if let Value::Object(properties) = child {
                        properties.values_mut().for_each(tidy_schema);
                    }
                } else if !matches!(
                    key.as_str(),
                    "default" | "enum" | "x-kubernetes-validations"
                ) {
                    tidy_schema(child);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chart ships what the types say. After a change of the types: `KPROXIDE_UPDATE=1 cargo test -p kproxide-kube --lib crd`.
    #[test]
    fn the_chart_ships_these_crds() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/kproxide/crds");
        for crd in crds() {
            let path = folder.join(format!("{}.yaml", crd.spec.names.plural));
            let text = crd_yaml(crd);
            if std::env::var_os("KPROXIDE_UPDATE").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                text,
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn yaml_reads_back_as_the_same_definitions() {
        for crd in crds() {
            let back: CustomResourceDefinition = serde_saphyr::from_str(&crd_yaml(crd)).unwrap();
            assert_eq!(back, *crd);
        }
    }

    /// kubectl shows how long ago a date is. Of a string it shows all, nanoseconds too.
    #[test]
    fn o21_a_column_that_shows_a_time_is_a_date() {
        let mut times = Vec::new();
        for column in crds()
            .iter()
            .flat_map(|it| &it.spec.versions)
            .flat_map(|it| it.additional_printer_columns.iter().flatten())
        {
            let (_, field) = column.json_path.rsplit_once('.').unwrap();
            let field = field.to_ascii_lowercase();
            if ["since", "timestamp", "time", "until"]
                .iter()
                .any(|end| field.ends_with(end))
            {
                assert_eq!(column.type_, "date", "{}", column.name);
                times.push(column.name.as_str());
            }
        }
        assert!(times.contains(&"Frozen for"), "{times:?}");
    }

    #[test]
    fn every_field_is_described_and_no_schema_is_left_open() {
        fn walk(path: &str, schema: &Value) {
            assert!(schema.get("$ref").is_none(), "{path} has a reference");
            assert!(schema.get("nullable").is_none(), "{path} is nullable");
            assert!(schema.get("oneOf").is_none(), "{path} is not structural");
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                if let Some(items) = schema.get("items") {
                    walk(&format!("{path}[]"), items);
                }
                return;
            };
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                assert!(
                    property["description"]
                        .as_str()
                        .is_some_and(|text| text.len() > 4),
                    "{path} has no description"
                );
                walk(&path, property);
            }
        }
        for crd in crds() {
            let kind = &crd.spec.names.kind;
            let schema = schema_of(kind);
            walk(&format!("{kind}.spec"), &schema["properties"]["spec"]);
            if let Some(status) = schema["properties"].get("status") {
                walk(&format!("{kind}.status"), status);
            }
        }
    }

    #[test]
    fn defaults_are_those_of_the_design() {
        let pool = schema_of("NodePool");
        let spec = &pool["properties"]["spec"]["properties"];
        assert_eq!(
            spec["limits"]["default"],
            json!({"minNodes": 0, "maxNodes": 3})
        );
        assert_eq!(
            spec["limits"]["properties"]["maxNodes"]["default"],
            json!(3)
        );
        assert_eq!(
            spec["scaleDown"]["properties"]["loadHeadroom"]["default"],
            json!(0.2)
        );
        assert_eq!(spec["drainTimeout"]["default"], json!("15m"));
        assert_eq!(
            spec["policies"]["properties"]["hostSelection"]["default"],
            json!({})
        );
        let cluster = schema_of("ProxmoxCluster");
        let spec = &cluster["properties"]["spec"]["properties"];
        assert_eq!(
            spec["overcommit"]["default"],
            json!({"cpu": 4.0, "memory": 1.0})
        );
        let class = schema_of("NodeClass");
        let spec = &class["properties"]["spec"]["properties"];
        assert_eq!(
            spec["timeouts"]["default"],
            json!({"clone": "1h", "provision": "5m", "agent": "3m", "join": "10m"})
        );
        assert_eq!(spec["join"]["default"], json!({"template": {}}));
    }

    #[test]
    fn a_claims_specification_is_immutable_and_the_ledgers_lists_are_atomic() {
        let claim = schema_of("NodeClaim");
        assert_eq!(
            claim["properties"]["spec"]["x-kubernetes-validations"][0]["rule"],
            json!("self == oldSelf")
        );
        let ledger = schema_of("Ledger");
        for list in ["entries", "policyState", "backoff"] {
            assert_eq!(
                ledger["properties"]["spec"]["properties"][list]["x-kubernetes-list-type"],
                json!("atomic"),
                "{list}"
            );
        }
    }
}
