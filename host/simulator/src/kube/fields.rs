//! Paths into objects, for ownership: which fields a configuration sets, and how such sets are written as `FieldsV1`.

use std::{collections::BTreeSet, ops::Bound};

use serde_json::{Map, Value, json};

use super::{
    object::{field_mut, items, map_mut},
    patch::merge_key,
    schema::field_schema,
};

/// A step into an object, in the words of `FieldsV1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// `f:name`, a field.
    Field(String),
    /// `k:{"type":"Ready"}`, an item of a keyed list; the text is its key as JSON.
    Key(String),
    /// `v:"text"`, an item of a set.
    Item(String),
}

pub(crate) type Path = Vec<Step>;
pub(crate) type Fields = BTreeSet<Path>;

/// How the items of a list are told apart.
enum ListKind {
    Atomic,
    Set,
    Keyed(Vec<String>),
}

/// Which lists merge: from a custom resource's schema, else by the field names of built-in types.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'s> {
    schema: &'s Value,
    custom: bool,
}

impl<'s> Shape<'s> {
    /// The shape of a custom resource with this schema, of a built-in one when it is null.
    pub(crate) fn new(schema: &'s Value) -> Self {
        Self {
            schema,
            custom: !schema.is_null(),
        }
    }

    fn child(self, step: &Step) -> Self {
        let schema = match step {
            Step::Field(field) => field_schema(self.schema, field),
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

/// The leaves that a configuration sets; what identifies the object is nobody's, and the rest of `metadata` is the server's.
pub(crate) fn owned_fields(shape: Shape<'_>, config: &Value) -> Fields {
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

/// Applies a configuration: maps merge, and the items of keyed lists and sets.
pub(crate) fn merge(shape: Shape<'_>, path: &mut Path, target: &mut Value, config: &Value) {
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
        Step::Item(text) => serde_json::from_str(text).is_ok_and(|wanted: Value| *item == wanted),
        Step::Key(text) => {
            let key: Value = serde_json::from_str(text).unwrap_or_default();
            key.as_object()
                .is_some_and(|key| key.iter().all(|(name, value)| item[name] == *value))
        }
    }
}

/// What is at a path.
pub(crate) fn find<'v>(object: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, step| match step {
        Step::Field(field) => value.get(field),
        Step::Key(_) | Step::Item(_) => value.as_array()?.iter().find(|item| is_at(item, step)),
    })
}

/// Removes what is at a path.
pub(crate) fn remove(object: &mut Value, path: &[Step]) {
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
pub(crate) fn display(path: &[Step]) -> String {
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

/// Reads a set of paths from the tree that `FieldsV1` is.
pub(crate) fn read_fields(tree: &Value, path: &mut Path, fields: &mut Fields) {
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

/// The tree of a set of paths.
pub(crate) fn write_fields(fields: &Fields) -> Value {
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
            .range((Bound::Excluded(path.clone()), Bound::Unbounded))
            .next()
            .is_some_and(|next| next.starts_with(path));
        if is_prefix {
            place["."] = json!({});
        }
    }
    root
}
