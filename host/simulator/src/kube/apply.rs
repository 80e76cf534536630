//! Server-side apply and who owns which field.
//!
//! Ownership is kept in `metadata.managedFields` in the real format (`FieldsV1`), with one simplification: managers that write
//! by other means than apply are recorded only from an object's first apply on. Before it, the fields belong to
//! `before-first-apply`, as on objects that the real server finds without ownership.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    error::ApiError,
    object::{field_mut, items, map_mut, meta_mut, meta_str},
    patch::merge_key,
};

/// A step into an object, in the words of `FieldsV1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// `f:name`, a field.
    Field(String),
    /// `k:{"type":"Ready"}`, an item of a keyed list; the text is its key as JSON.
    Key(String),
    /// `v:"text"`, an item of a set.
    Item(String),
}

type Path = Vec<Step>;
type Fields = BTreeSet<Path>;

/// How the items of a list are told apart.
enum ListKind {
    Atomic,
    Set,
    Keyed(Vec<String>),
}

/// Which lists merge: from a custom resource's schema, else by the field names of built-in types.
#[derive(Clone, Copy)]
struct Shape<'s> {
    schema: &'s Value,
    custom: bool,
}

impl<'s> Shape<'s> {
    fn child(self, step: &Step) -> Self {
        let schema = match step {
            Step::Field(field) => match &self.schema["properties"][field] {
                Value::Null => &self.schema["additionalProperties"],
                known => known,
            },
            Step::Key(_) | Step::Item(_) => &self.schema["items"],
        };
        Self { schema, ..self }
    }

    fn list(self, path: &[Step], list: &[Value]) -> ListKind {
        let in_metadata = path.first() == Some(&Step::Field("metadata".to_owned()));
        let field = match path.last() {
            Some(Step::Field(field)) => field.as_str(),
            Some(Step::Key(_) | Step::Item(_)) | None => "",
        };
        let keyed = |keys: Vec<String>| {
            let complete = list.iter().all(|item| {
                item.is_object() && keys.iter().all(|key| !item[key.as_str()].is_null())
            });
            if complete {
                ListKind::Keyed(keys)
            } else {
                ListKind::Atomic
            }
        };
        if field == "finalizers" && in_metadata {
            return ListKind::Set;
        }
        if self.custom && !in_metadata {
            return match self.schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListKind::Set,
                Some("map") => keyed(
                    items(self.schema, "x-kubernetes-list-map-keys")
                        .iter()
                        .filter_map(|key| Some(key.as_str()?.to_owned()))
                        .collect(),
                ),
                Some(_) | None => ListKind::Atomic,
            };
        }
        match merge_key(field) {
            Some(key) => keyed(vec![key.to_owned()]),
            None => ListKind::Atomic,
        }
    }

    fn atomic_map(self) -> bool {
        self.schema["x-kubernetes-map-type"] == "atomic"
    }
}

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
        let shape = Shape {
            schema: self.schema,
            custom: !self.schema.is_null(),
        };
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
    let shape = Shape {
        schema,
        custom: !schema.is_null(),
    };
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

fn read_fields(tree: &Value, path: &mut Path, fields: &mut Fields) {
    let children: Vec<(&String, &Value)> = tree
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != ".")
        .collect();
    let named = tree.get(".").is_some();
    if !path.is_empty() && (children.is_empty() || named) {
        fields.insert(path.clone());
    }
    for (name, child) in children {
        let step = match name.split_once(':') {
            Some(("f", field)) => Step::Field(field.to_owned()),
            Some(("k", key)) => Step::Key(key.to_owned()),
            Some(("v", item)) => Step::Item(item.to_owned()),
            Some(_) | None => continue,
        };
        path.push(step);
        read_fields(child, path, fields);
        path.pop();
    }
}

fn write_fields(fields: &Fields) -> Value {
    let mut root = json!({});
    for path in fields {
        let mut place = &mut root;
        for step in path {
            let name = match step {
                Step::Field(field) => format!("f:{field}"),
                Step::Key(key) => format!("k:{key}"),
                Step::Item(item) => format!("v:{item}"),
            };
            place = field_mut(place, &name);
            map_mut(place);
        }
        // A path that is a prefix of another one is marked by a dot, a leaf by having no children.
        let is_prefix = fields
            .range((
                std::ops::Bound::Excluded(path.clone()),
                std::ops::Bound::Unbounded,
            ))
            .next()
            .is_some_and(|next| next.starts_with(path));
        if is_prefix {
            place["."] = json!({});
        }
    }
    root
}

/// The leaves that a configuration sets; what identifies the object is nobody's, and the rest of `metadata` is the server's.
fn owned_fields(shape: Shape<'_>, config: &Value) -> Fields {
    let mut fields = Fields::new();
    for (field, value) in config.as_object().into_iter().flatten() {
        let step = Step::Field(field.clone());
        match field.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
                    if !value[part].is_null() {
                        let mut path = vec![step.clone(), Step::Field(part.to_owned())];
                        collect(shape, &mut path, &value[part], &mut fields);
                    }
                }
            }
            _ => collect(shape.child(&step), &mut vec![step], value, &mut fields),
        }
    }
    fields
}

fn collect(shape: Shape<'_>, path: &mut Path, value: &Value, fields: &mut Fields) {
    let children: Vec<(Step, &Value)> = match value {
        Value::Object(map) if !map.is_empty() && !shape.atomic_map() => map
            .iter()
            .map(|(field, child)| (Step::Field(field.clone()), child))
            .collect(),
        Value::Array(list) => list_steps(&shape.list(path, list), list).unwrap_or_default(),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Vec::new()
        }
    };
    let is_item = matches!(path.last(), Some(Step::Key(_)));
    if children.is_empty() || is_item {
        fields.insert(path.clone());
    }
    for (step, child) in children {
        let shape = shape.child(&step);
        path.push(step);
        collect(shape, path, child, fields);
        path.pop();
    }
}

fn list_steps<'v>(kind: &ListKind, list: &'v [Value]) -> Option<Vec<(Step, &'v Value)>> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(
            list.iter()
                .map(|item| (Step::Item(item.to_string()), item))
                .collect(),
        ),
        ListKind::Keyed(keys) => Some(
            list.iter()
                .map(|item| (Step::Key(key_of(item, keys)), item))
                .collect(),
        ),
    }
}

fn key_of(item: &Value, keys: &[String]) -> String {
    let key: Map<String, Value> = keys
        .iter()
        .map(|key| (key.clone(), item[key.as_str()].clone()))
        .collect();
    Value::Object(key).to_string()
}

fn merge(shape: Shape<'_>, path: &mut Path, target: &mut Value, config: &Value) {
    match config {
        Value::Object(map) if !shape.atomic_map() => {
            let target = map_mut(target);
            for (field, child) in map {
                let step = Step::Field(field.clone());
                let shape = if path.is_empty() && field == "metadata" {
                    shape
                } else {
                    shape.child(&step)
                };
                path.push(step);
                merge(
                    shape,
                    path,
                    target.entry(field).or_insert(Value::Null),
                    child,
                );
                path.pop();
            }
        }
        Value::Array(list) => {
            let Some(steps) = list_steps(&shape.list(path, list), list) else {
                *target = config.clone();
                return;
            };
            if !target.is_array() {
                *target = json!([]);
            }
            for (step, item) in steps {
                let shape = shape.child(&step);
                let present = target
                    .as_array()
                    .into_iter()
                    .flatten()
                    .position(|other| is_at(other, &step));
                path.push(step);
                match (present, target.as_array_mut()) {
                    (Some(index), Some(present)) => merge(shape, path, &mut present[index], item),
                    (None, Some(present)) => present.push(item.clone()),
                    (_, None) => {}
                }
                path.pop();
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *target = config.clone()
        }
    }
}

fn is_at(item: &Value, step: &Step) -> bool {
    match step {
        Step::Field(_) => false,
        Step::Item(text) => item.to_string() == *text,
        Step::Key(text) => {
            let key: Value = serde_json::from_str(text).unwrap_or_default();
            key.as_object()
                .is_some_and(|key| key.iter().all(|(name, value)| item[name] == *value))
        }
    }
}

fn find<'v>(object: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, step| match step {
        Step::Field(field) => value.get(field),
        Step::Key(_) | Step::Item(_) => value.as_array()?.iter().find(|item| is_at(item, step)),
    })
}

fn remove(object: &mut Value, path: &[Step]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut place = object;
    for step in parents {
        let next = match step {
            Step::Field(field) => place.get_mut(field),
            Step::Key(_) | Step::Item(_) => place
                .as_array_mut()
                .and_then(|list| list.iter_mut().find(|item| is_at(item, step))),
        };
        match next {
            Some(next) => place = next,
            None => return,
        }
    }
    match last {
        Step::Field(field) => {
            if let Some(map) = place.as_object_mut() {
                map.remove(field);
            }
        }
        Step::Key(_) | Step::Item(_) => {
            if let Some(list) = place.as_array_mut() {
                list.retain(|item| !is_at(item, last));
            }
        }
    }
}

/// A path as conflicts show it: `.spec.replicas`, `.status.conditions[type="Ready"].status`.
fn display(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(field) => format!(".{field}"),
            Step::Item(item) => format!("[={item}]"),
            Step::Key(key) => {
                let key: Value = serde_json::from_str(key).unwrap_or_default();
                let pairs: Vec<String> = key
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("[{}]", pairs.join(","))
            }
        })
        .collect()
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
