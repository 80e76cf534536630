//! The schema of the chart's values: the chart's own keys, and the specs of the CustomResourceDefinitions that it hands through.

use serde_json::{Map, Value, json};

use super::schema::spec_of;

/// What the chart itself understands.
const OWN: &str = include_str!("values.yaml");

/// The maps whose entries become one object each, with the objects' kind.
const OBJECTS: [(&str, &str); 3] = [
    ("clusters", "ProxmoxCluster"),
    ("nodeClasses", "NodeClass"),
    ("nodePools", "NodePool"),
];

/// `values.schema.json` of the chart; the same text on every run.
pub fn values_schema() -> String {
    let mut schema: Value = serde_saphyr::from_str(OWN).expect("the chart's own schema is YAML");
    for (key, kind) in OBJECTS {
        let mut spec = judged_by_helm(spec_of(kind));
        if let Value::Object(fields) = &mut spec {
            // The chart adds references, and its templates name all that is missing at once.
            fields.remove("required");
        }
        schema["properties"][key]["additionalProperties"]["properties"]["spec"] = spec;
    }
    // A policy by its name alone: the chart's templates say what to write.
    let policies =
        "/properties/nodePools/additionalProperties/properties/spec/properties/policies/properties";
    let policies = schema
        .pointer_mut(policies)
        .and_then(Value::as_object_mut)
        .expect("a pool has policies");
    for policy in policies.values_mut() {
        policy["type"] = json!(["object", "string"]);
    }
    let text = serde_json::to_string_pretty(&schema).expect("a schema is plain data");
    format!("{text}\n")
}

/// A part of a definition as JSON Schema. Rules that only the API server knows are left to it.
fn judged_by_helm(schema: Value) -> Value {
    let Value::Object(schema) = schema else {
        return schema;
    };
    let is = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(true));
    let is_closed = schema.get("type") == Some(&json!("object"))
        && !schema.contains_key("additionalProperties")
        && !is("x-kubernetes-preserve-unknown-fields");
    let is_amount = is("x-kubernetes-int-or-string");
    let mut judged = Map::new();
    for (keyword, value) in schema {
        let value = match (keyword.as_str(), value) {
            ("format", _) => continue,
            (keyword, _) if keyword.starts_with("x-kubernetes-") => continue,
            ("properties", Value::Object(fields)) => {
                let field = |(name, field)| (name, judged_by_helm(field));
                Value::Object(fields.into_iter().map(field).collect())
            }
            ("items" | "additionalProperties", value) => judged_by_helm(value),
            (_, value) => value,
        };
        judged.insert(keyword, value);
    }
    if is_closed {
        judged.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    if is_amount {
        judged.insert("type".to_owned(), json!(["integer", "string"]));
    }
    Value::Object(judged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a change of the types: `KPROXIDE_UPDATE=1 cargo test -p kproxide-kube --lib crd`.
    #[test]
    fn the_chart_ships_this_schema() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../charts/kproxide/values.schema.json");
        let text = values_schema();
        if std::env::var_os("KPROXIDE_UPDATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_spec_is_judged_as_far_as_helm_can() {
        let judged = judged_by_helm(json!({
            "type": "object",
            "x-kubernetes-validations": [{"rule": "self.a <= self.b", "message": "no"}],
            "required": ["a"],
            "properties": {
                "a": {"type": "integer", "format": "int64", "minimum": 0, "default": 3},
                "amount": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+$"},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "texts": {"type": "object", "additionalProperties": {"type": "string"}},
                "none": {"type": "object"},
                // A field that is called like a keyword.
                "format": {
                    "type": "array", "x-kubernetes-list-type": "map",
                    "items": {"type": "object", "properties": {"b": {"type": "string", "format": "date-time"}}},
                },
            },
        }));
        let expected = json!({
            "type": "object",
            "required": ["a"],
            "additionalProperties": false,
            "properties": {
                "a": {"type": "integer", "minimum": 0, "default": 3},
                "amount": {"type": ["integer", "string"], "pattern": "^[0-9]+$"},
                "open": {"type": "object"},
                "texts": {"type": "object", "additionalProperties": {"type": "string"}},
                "none": {"type": "object", "additionalProperties": false},
                "format": {
                    "type": "array",
                    "items": {
                        "type": "object", "additionalProperties": false,
                        "properties": {"b": {"type": "string"}},
                    },
                },
            },
        });
        assert_eq!(judged, expected);
    }
}
