//! Server-side apply and who owns which field.
//!
//! Ownership is kept in `metadata.managedFields` in the real format (`FieldsV1`), with one simplification: managers that write
//! by other means than apply are recorded only from an object's first apply on. Before it, the fields belong to
//! `before-first-apply`, as on objects that the real server finds without ownership.

use serde_json::{Value, json};

use super::{
    error::ApiError,
    fields::{
        Fields, Path, Shape, display, find, merge, owned_fields, read_fields, remove, write_fields,
    },
    object::{items, meta_mut, meta_str},
};

/// What a manager's apply wants, who it is, and whether it may take fields from others.
pub(crate) struct Apply<'a> {
    pub(crate) config: &'a Value,
    pub(crate) manager: &'a str,
    pub(crate) force: bool,
    pub(crate) subresource: &'a str,
    /// `apiVersion` under which the ownership is recorded.
    pub(crate) api_version: &'a str,
    /// The schema of a custom resource; null for a built-in one.
    pub(crate) schema: &'a Value,
    pub(crate) now: &'a str,
}

impl Apply<'_> {
    /// The live object with the configuration applied and the ownership updated. `live` is `{}` for an object to come.
    pub(crate) fn onto(&self, live: &Value) -> Result<Value, ApiError> {
        let shape = Shape::new(self.schema);
        let mut owners = Owners::read(live);
        if owners.0.is_empty() && !meta_str(live, "uid").is_empty() {
            owners.0.push(Owner {
                manager: "before-first-apply".to_owned(),
                operation: "Update".to_owned(),
                subresource: String::new(),
                api_version: self.api_version.to_owned(),
                time: self.now.to_owned(),
                fields: owned_fields(shape, live),
            });
        }
        let wanted = owned_fields(shape, self.config);
        let is_self = |owner: &Owner| {
            owner.manager == self.manager
                && owner.operation == "Apply"
                && owner.subresource == self.subresource
        };

        let mut conflicts = Vec::new();
        for owner in owners.0.iter_mut().filter(|owner| !is_self(owner)) {
            let contested: Vec<&Path> = wanted
                .iter()
                .filter(|path| {
                    owner.fields.contains(*path) && find(live, path) != find(self.config, path)
                })
                .collect();
            match self.force {
                true => contested.into_iter().for_each(|path| {
                    owner.fields.remove(path);
                }),
                false => conflicts.extend(
                    contested
                        .into_iter()
                        .map(|path| (owner.manager.clone(), display(path))),
                ),
            }
        }
        if !conflicts.is_empty() {
            return Err(ApiError::apply_conflict(&conflicts));
        }

        let mut merged = live.clone();
        merge(shape, &mut Vec::new(), &mut merged, self.config);
        let before = owners
            .0
            .iter()
            .position(is_self)
            .map(|index| owners.0.remove(index));
        for path in before.iter().flat_map(|owner| &owner.fields) {
            if !wanted.contains(path) && !owners.0.iter().any(|owner| owner.fields.contains(path)) {
                remove(&mut merged, path);
            }
        }
        owners.0.push(Owner {
            manager: self.manager.to_owned(),
            operation: "Apply".to_owned(),
            subresource: self.subresource.to_owned(),
            api_version: self.api_version.to_owned(),
            time: match before {
                // An apply that changes nothing must not change the object, its time included.
                Some(before) if before.fields == wanted && same_but_owners(&merged, live) => {
                    before.time
                }
                Some(_) | None => self.now.to_owned(),
            },
            fields: wanted,
        });
        owners.write(&mut merged);
        Ok(merged)
    }
}

/// Records that `manager` changed `object` from `live` by a replace or a patch: it owns what it set, and the others lose it.
/// Objects that were never applied keep no record.
pub(crate) fn record_update(
    live: &Value,
    object: &mut Value,
    manager: &str,
    subresource: &str,
    schema: &Value,
    now: &str,
) {
    let mut owners = Owners::read(live);
    if owners.0.is_empty() {
        return;
    }
    let shape = Shape::new(schema);
    let (old, new) = (owned_fields(shape, live), owned_fields(shape, object));
    let changed: Fields = new
        .iter()
        .filter(|path| !old.contains(*path) || find(live, path) != find(object, path))
        .cloned()
        .collect();
    for owner in &mut owners.0 {
        owner
            .fields
            .retain(|path| new.contains(path) && !changed.contains(path));
    }
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if !changed.is_empty() {
        let is_self = |owner: &&mut Owner| {
            owner.manager == manager
                && owner.operation == "Update"
                && owner.subresource == subresource
        };
        match owners.0.iter_mut().find(is_self) {
            Some(owner) => {
                owner.fields.extend(changed);
                now.clone_into(&mut owner.time);
            }
            None => owners.0.push(Owner {
                manager: manager.to_owned(),
                operation: "Update".to_owned(),
                subresource: subresource.to_owned(),
                api_version,
                time: now.to_owned(),
                fields: changed,
            }),
        }
    }
    owners.write(object);
}

fn same_but_owners(one: &Value, other: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        meta_mut(&mut object).remove("managedFields");
        object
    };
    stripped(one) == stripped(other)
}

/// One entry of `metadata.managedFields`.
struct Owner {
    manager: String,
    operation: String,
    subresource: String,
    api_version: String,
    time: String,
    fields: Fields,
}

struct Owners(Vec<Owner>);

impl Owners {
    fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let owners = items(&object["metadata"], "managedFields")
            .iter()
            .map(|entry| {
                let mut fields = Fields::new();
                read_fields(&entry["fieldsV1"], &mut Vec::new(), &mut fields);
                Owner {
                    manager: text(&entry["manager"]),
                    operation: text(&entry["operation"]),
                    subresource: text(&entry["subresource"]),
                    api_version: text(&entry["apiVersion"]),
                    time: text(&entry["time"]),
                    fields,
                }
            });
        Self(owners.collect())
    }

    fn write(mut self, object: &mut Value) {
        self.0.retain(|owner| !owner.fields.is_empty());
        self.0.sort_by(|one, other| {
            let key = |owner: &Owner| {
                (
                    owner.operation.clone(),
                    owner.time.clone(),
                    owner.manager.clone(),
                )
            };
            key(one).cmp(&key(other))
        });
        let entries: Vec<Value> = self
            .0
            .iter()
            .map(|owner| {
                let mut entry = json!({
                    "manager": owner.manager,
                    "operation": owner.operation,
                    "apiVersion": owner.api_version,
                    "time": owner.time,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": write_fields(&owner.fields),
                });
                if !owner.subresource.is_empty() {
                    entry["subresource"] = json!(owner.subresource);
                }
                entry
            })
            .collect();
        meta_mut(object).insert("managedFields".to_owned(), json!(entries));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(live: &Value, manager: &str, force: bool, config: Value) -> Result<Value, ApiError> {
        Apply {
            config: &config,
            manager,
            force,
            subresource: "",
            api_version: "v1",
            schema: &Value::Null,
            now: "2026-01-01T00:00:00Z",
        }
        .onto(live)
    }

    #[test]
    fn what_a_manager_stops_setting_goes_away() {
        let live = apply(
            &json!({}),
            "a",
            false,
            json!({"metadata": {"labels": {"x": "1", "y": "1"}}}),
        )
        .unwrap();
        let live = apply(
            &live,
            "b",
            false,
            json!({"metadata": {"labels": {"y": "1"}}}),
        )
        .unwrap();
        let live = apply(
            &live,
            "a",
            false,
            json!({"metadata": {"labels": {"z": "1"}}}),
        )
        .unwrap();
        assert_eq!(live["metadata"]["labels"], json!({"y": "1", "z": "1"}));
    }

    #[test]
    fn another_managers_value_is_a_conflict_until_forced() {
        let live = apply(&json!({}), "a", false, json!({"spec": {"replicas": 1}})).unwrap();
        let error = apply(&live, "b", false, json!({"spec": {"replicas": 2}})).unwrap_err();
        assert_eq!(
            error.message,
            "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas"
        );
        let live = apply(&live, "b", true, json!({"spec": {"replicas": 2}})).unwrap();
        assert_eq!(live["spec"]["replicas"], 2);
        let error = apply(&live, "a", false, json!({"spec": {"replicas": 1}})).unwrap_err();
        assert_eq!(error.code, 409);
    }

    #[test]
    fn keyed_lists_merge_and_atomic_lists_do_not() {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let live = apply(
            &json!({}),
            "a",
            false,
            json!({"status": {"conditions": [condition("A")]}, "spec": {"taints": [1]}}),
        );
        let live = apply(
            &live.unwrap(),
            "b",
            true,
            json!({"status": {"conditions": [condition("B")]}, "spec": {"taints": [2]}}),
        );
        let live = live.unwrap();
        assert_eq!(
            live["status"]["conditions"],
            json!([condition("A"), condition("B")])
        );
        assert_eq!(live["spec"]["taints"], json!([2]));
        let live = apply(&live, "a", false, json!({})).unwrap();
        assert_eq!(live["status"]["conditions"], json!([condition("B")]));
    }

    #[test]
    fn an_equal_apply_changes_nothing() {
        let config = json!({"metadata": {"labels": {"x": "1"}}, "status": {"conditions": [{"type": "A", "status": "True"}]}});
        let once = apply(&json!({}), "a", false, config.clone()).unwrap();
        assert_eq!(apply(&once, "a", false, config).unwrap(), once);
    }
}
