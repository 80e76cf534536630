//! Documents of YAML and JSON, each with the place where it begins.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Error as YamlError, Options, Spanned};

use super::Identity;

/// Input that cannot be used: where, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct BadInput {
    /// File and line, or the name of the object.
    pub at: String,
    pub problem: String,
}

/// An object as plain data, and where it comes from.
#[derive(Clone, Debug)]
pub struct Object {
    pub value: Value,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    Document {
        document: Arc<Document>,
        /// The place of the object in its document, such as `items[3]`. Empty: it is the document.
        path: String,
    },
    /// A cluster, or kproxide itself.
    Elsewhere(Arc<str>),
}

#[derive(Debug)]
struct Document {
    file: Arc<str>,
    /// The file's line that the text begins with, from 1.
    line: u64,
    text: String,
}

/// The kinds without a namespace of their own are all others.
const NAMESPACED: [&str; 12] = [
    "Pod",
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
    "CronJob",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "CSIStorageCapacity",
    "LimitRange",
];

/// The documents of a file that need not be Kubernetes objects.
///
/// # Errors
/// It is no YAML and no JSON.
pub fn plain(file: &str, text: &str) -> Result<Vec<Object>, BadInput> {
    let file: Arc<str> = file.into();
    let mut found = Vec::new();
    for (line, text) in parts(text) {
        let document = Arc::new(Document {
            file: file.clone(),
            line,
            text: text.to_owned(),
        });
        let value = parsed(text).map_err(|(line, problem)| document.bad(line, problem))?;
        if !value.is_null() {
            let path = String::new();
            let origin = Origin::Document { document, path };
            found.push(Object { value, origin });
        }
    }
    Ok(found)
}

/// All objects of a file, those in lists one by one. `namespace` is for objects that name none.
///
/// # Errors
/// It is no YAML and no JSON, or an object lacks its kind or its name.
pub fn documents(file: &str, text: &str, namespace: &str) -> Result<Vec<Object>, BadInput> {
    let mut objects = Vec::new();
    for whole in plain(file, text)? {
        objects.extend(whole.unpacked(namespace)?);
    }
    Ok(objects)
}

/// The documents of a file, each with the line that it begins with. `---` at the beginning of a line can only separate
/// two documents.
fn parts(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let (mut first_line, mut begin, mut at) = (1, 0, 0);
    for (line, content) in (1..).zip(text.split_inclusive('\n')) {
        let is_separator = content
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_separator {
            parts.push((first_line, &text[begin..at]));
            (first_line, begin) = (line + 1, at + content.len());
        }
        at += content.len();
    }
    parts.push((first_line, &text[begin..]));
    parts
}

/// The data of a document, or its line and what is wrong there.
fn parsed(text: &str) -> Result<Value, (u64, String)> {
    // YAML may begin so too.
    let is_json = text.trim_start().starts_with(['{', '[']);
    let json = is_json.then(|| serde_json::from_str(text));
    let json_problem = match json {
        Some(Ok(value)) => return Ok(value),
        Some(Err(error)) => Some((error.line() as u64, error.to_string())),
        None => None,
    };
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let error = error.without_snippet();
        let problem = if let YamlError::DuplicateMappingKey { key, .. } = error {
            let key = key.as_ref().map_or(String::new(), |key| format!(" {key}"));
            format!("the key{key} stands here for the second time: remove one of the two")
        } else {
            error.to_string()
        };
        let problem = (line, problem);
        json_problem.unwrap_or(problem)
    })
}

/// Without the budget that is meant for input of strangers: a list of all pods of a cluster is larger.
fn options() -> Options {
    serde_saphyr::options! { budget: None }
}

impl Document {
    fn bad(&self, line: u64, problem: impl fmt::Display) -> BadInput {
        let line = self.line + line.saturating_sub(1);
        BadInput {
            at: format!("{}:{line}", self.file),
            problem: problem.to_string(),
        }
    }

    /// The line of a field, or of what is nearest above it.
    fn line_of(&self, path: &str) -> u64 {
        let options = options();
        match serde_saphyr::from_str_with_options::<Spanned<Lines>>(&self.text, options) {
            Ok(spanned) => Spot::from(spanned).line_of(path),
            Err(_) => 1,
        }
    }
}

impl Object {
    /// An object of a cluster, or one that kproxide has made itself.
    pub fn from_elsewhere(value: Value, place: impl Into<Arc<str>>) -> Self {
        Self {
            value,
            origin: Origin::Elsewhere(place.into()),
        }
    }

    /// Another object that follows from this one.
    pub fn derived(&self, value: Value) -> Self {
        Self {
            value,
            origin: self.origin.clone(),
        }
    }

    pub fn api_version(&self) -> &str {
        self.value["apiVersion"].as_str().unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
    }

    /// An API server has seen it, and filled in what it does.
    pub fn is_stored(&self) -> bool {
        self.value["metadata"]["uid"].is_string()
    }

    pub fn identity(&self) -> Identity {
        let group = self
            .api_version()
            .split_once('/')
            .map_or("", |(group, _)| group);
        Identity {
            group: group.to_owned(),
            kind: self.kind().to_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// What is wrong with a field of it.
    pub fn bad(&self, field: &str, problem: impl fmt::Display) -> BadInput {
        let problem = match field {
            "" | "." => problem.to_string(),
            field => format!("{field}: {problem}"),
        };
        match &self.origin {
            Origin::Document { document, path } => {
                let path = match (path.as_str(), field) {
                    ("", field) => field.to_owned(),
                    (path, field) => format!("{path}.{field}"),
                };
                document.bad(document.line_of(&path), problem)
            }
            Origin::Elsewhere(place) => BadInput {
                at: format!("{} {} of {place}", self.kind(), self.name()),
                problem,
            },
        }
    }

    /// Itself, or the items if it is a list.
    fn unpacked(self, namespace: &str) -> Result<Vec<Self>, BadInput> {
        let kind = self.kind();
        let Some(of) = kind
            .strip_suffix("List")
            .filter(|_| self.value["items"].is_array())
        else {
            return self.named(namespace).map(|object| vec![object]);
        };
        let (of, version) = (of.to_owned(), self.value["apiVersion"].clone());
        let mut value = self.value;
        let items = value["items"].as_array_mut().map(std::mem::take);
        let items = items.unwrap_or_default().into_iter().enumerate();
        items
            .map(|(index, mut value)| {
                // The items of a `PodList` need not repeat what they are.
                if !of.is_empty() && value.is_object() && value["kind"].is_null() {
                    value["kind"] = of.as_str().into();
                    value["apiVersion"] = version.clone();
                }
                let origin = match &self.origin {
                    Origin::Document { document, .. } => Origin::Document {
                        document: document.clone(),
                        path: format!("items[{index}]"),
                    },
                    Origin::Elsewhere(place) => Origin::Elsewhere(place.clone()),
                };
                Self { value, origin }.named(namespace)
            })
            .collect()
    }

    /// With the namespace that is meant.
    fn named(mut self, namespace: &str) -> Result<Self, BadInput> {
        if self.is_saved_world() {
            return Ok(self);
        }
        let is_text = |field: &str| {
            self.value[field]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        };
        for field in ["apiVersion", "kind"] {
            if !self.value.is_object() || !is_text(field) {
                return Err(self.bad(
                    "",
                    format_args!("this is no Kubernetes object: it has no {field}"),
                ));
            }
        }
        let version = self.value["apiVersion"].as_str().unwrap_or_default();
        if version.starts_with("kustomize.config.k8s.io/") {
            return Err(self.bad(
                "",
                "this is no object of a cluster. Render its folder first: kubectl kustomize FOLDER | kproxide plan -f -",
            ));
        }
        let metadata = &mut self.value["metadata"];
        if metadata["name"].is_null()
            && let Some(prefix) = metadata["generateName"].as_str()
        {
            metadata["name"] = format!("{prefix}1").into();
        }
        if metadata["name"].as_str().is_none_or(str::is_empty) {
            let kind = self.kind();
            let name = &self.value["metadata"]["name"];
            return Err(match name.is_null() {
                true => self.bad("metadata", format_args!("this {kind} has no name")),
                false => self.bad(
                    "metadata.name",
                    format_args!("{name} is no text: YAML needs quotes around such a name"),
                ),
            });
        }
        if NAMESPACED.contains(&self.kind()) && self.namespace().is_empty() {
            self.value["metadata"]["namespace"] = namespace.into();
        }
        Ok(self)
    }

    /// What `/debug/plan` answers: a whole world of kproxide.
    pub fn is_saved_world(&self) -> bool {
        self.value["world"].is_object() && self.value["kind"].is_null()
    }
}

/// Where the fields of a document stand.
#[derive(Default)]
enum Lines {
    Fields(Vec<(String, Spot)>),
    Items(Vec<Spot>),
    #[default]
    Leaf,
}

struct Spot {
    line: u64,
    inside: Lines,
}

impl From<Spanned<Lines>> for Spot {
    fn from(spanned: Spanned<Lines>) -> Self {
        Self {
            line: spanned.referenced.line(),
            inside: spanned.value,
        }
    }
}

impl Spot {
    /// A path is written like `spec.containers[0].ports`. Names may have dots themselves.
    fn line_of(&self, path: &str) -> u64 {
        let next = match &self.inside {
            Lines::Fields(fields) => {
                let path = path.trim_start_matches('.');
                let rest = |name: &str| path.strip_prefix(name).filter(|rest| ends_name(rest));
                fields
                    .iter()
                    .filter_map(|(name, spot)| Some((name.len(), spot, rest(name)?)))
                    .max_by_key(|(length, ..)| *length)
                    .map(|(_, spot, rest)| (spot, rest))
            }
            Lines::Items(items) => path.strip_prefix('[').and_then(|path| {
                let (index, rest) = path.split_once(']')?;
                Some((items.get(index.parse::<usize>().ok()?)?, rest))
            }),
            Lines::Leaf => None,
        };
        next.map_or(self.line, |(spot, rest)| spot.line_of(rest))
    }
}

fn ends_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['.', '['])
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Lines;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lines, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, spot)) = map.next_entry::<String, Spanned<Lines>>()? {
                    fields.push((name, spot.into()));
                }
                Ok(Lines::Fields(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Lines, A::Error> {
                let mut items = Vec::new();
                while let Some(spot) = seq.next_element::<Spanned<Lines>>()? {
                    items.push(spot.into());
                }
                Ok(Lines::Items(items))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Lines, D::Error> {
                Lines::deserialize(deserializer)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }

            fn visit_str<E>(self, _: &str) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }

            fn visit_none<E>(self) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }

            fn visit_unit<E>(self) -> Result<Lines, E> {
                Ok(Lines::Leaf)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
# Two documents.
apiVersion: v1
kind: Pod
metadata:
  name: a
  labels:
    app.kubernetes.io/name: [1]
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: b, namespace: other}
- metadata:
    name: c
  spec:
    containers:
    - name: x
      ports: wrong
";

    fn bad(text: &str) -> String {
        documents("f.yaml", text, "default")
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn documents_and_lists_become_objects_with_a_namespace() {
        let objects = documents("f.yaml", TWO, "default").unwrap();
        let named: Vec<_> = objects
            .iter()
            .map(|object| (object.kind(), object.namespace(), object.name()))
            .collect();
        let expected = [
            ("Pod", "default", "a"),
            ("Pod", "other", "b"),
            ("Pod", "default", "c"),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_field_is_named_with_its_line_in_lists_and_behind_names_with_dots() {
        let objects = documents("f.yaml", TWO, "default").unwrap();
        let at = |index: usize, field: &str| objects[index].bad(field, "wrong").to_string();
        assert_eq!(
            at(0, "metadata.labels.app.kubernetes.io/name"),
            "f.yaml:7: metadata.labels.app.kubernetes.io/name: wrong"
        );
        assert_eq!(at(1, "spec"), "f.yaml:12: spec: wrong");
        assert_eq!(
            at(2, "spec.containers[0].ports"),
            "f.yaml:18: spec.containers[0].ports: wrong"
        );
        let refused = super::super::changes(&objects[2]).unwrap_err().to_string();
        assert!(
            refused.starts_with("f.yaml:18: spec.containers[0].ports: invalid type"),
            "{refused}"
        );
    }

    #[test]
    fn json_is_read_with_its_lines_too() {
        let text = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n \"metadata\": {\"name\": \"a\"},\n \"spec\": {\"containers\": 7}}";
        let objects = documents("f.json", text, "default").unwrap();
        assert_eq!(objects[0].bad("spec.containers", "wrong").at, "f.json:3");
        assert!(bad("{\"apiVersion\": \"v1\",\n  \"kind\" \"Pod\"}").starts_with("f.yaml:2: "));
    }

    #[test]
    fn what_is_no_object_is_refused_with_its_line() {
        assert_eq!(
            bad("kind: Pod\n"),
            "f.yaml:1: this is no Kubernetes object: it has no apiVersion"
        );
        assert_eq!(
            bad("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"),
            "f.yaml:1: this is no object of a cluster. Render its folder first: kubectl kustomize FOLDER | kproxide plan -f -"
        );
        assert_eq!(
            bad("---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n"),
            "f.yaml:7: metadata: this Pod has no name"
        );
        assert_eq!(
            bad("apiVersion: v1\nkind: Pod\nmetadata:\n  name: off\n"),
            "f.yaml:4: metadata.name: false is no text: YAML needs quotes around such a name"
        );
        let unfinished = bad("a: 1\n---\nb: [1, 2\nc: 3\n");
        assert!(unfinished.starts_with("f.yaml:"), "{unfinished}");
    }
}
