//! A specification as far as it can be read: what cannot be read is named and has its default, and the rest is as it was written.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};

use super::Problems;
use crate::view::is_too_deep;

impl Problems {
    /// The fields of `S` in a specification; others are passed over. `least` has all that `S` requires.
    pub(super) fn read<S: DeserializeOwned>(
        &mut self,
        written: &Map<String, Value>,
        least: Map<String, Value>,
    ) -> S {
        let shallow = written.iter().filter(|(_, value)| !is_too_deep(value));
        let shallow = shallow.map(|(field, value)| (field.clone(), value.clone()));
        let mut spec = Value::Object(shallow.collect());
        let mut left_out: Vec<String> = Vec::new();
        loop {
            let error = match serde_path_to_error::deserialize::<_, S>(&spec) {
                Ok(read) => return read,
                Err(error) => error,
            };
            let names = names(error.path());
            let Some(names) = left_out_at(&mut spec, &names) else {
                // Nothing that is there is wrong: something is missing.
                if left_out.is_empty() {
                    self.0.push(format!("spec: {}", error.inner()));
                }
                break;
            };
            let field = names.join(".");
            // That a field lacks what was just left out of it is no news.
            let is_within = |it: &String| {
                it.strip_prefix(&field)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            if !left_out.iter().any(is_within) {
                self.add(&error.path().to_string(), error.inner());
            }
            left_out.push(field);
        }
        let mut fields = least;
        if let Value::Object(readable) = spec {
            fields.extend(readable);
        }
        serde_json::from_value(Value::Object(fields)).expect("only what can be read is left")
    }

    /// Fields that nobody looks into.
    pub(super) fn too_deep(&mut self, written: &Map<String, Value>) {
        let deep = written.iter().filter(|(_, value)| is_too_deep(value));
        for (field, _) in deep {
            self.add(field, "it is nested too deep");
        }
    }
}

/// Down to the first list: a list without one of its items would mean something else.
fn names(path: &Path) -> Vec<String> {
    let name = |segment: &Segment| match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().map_while(name).collect()
}

/// Takes the field out, or the one that it would stand in. `None`: nothing of it is there.
fn left_out_at<'n>(spec: &mut Value, names: &'n [String]) -> Option<&'n [String]> {
    (1..=names.len())
        .rev()
        .map(|length| &names[..length])
        .find(|names| {
            let Some((field, above)) = names.split_last() else {
                return false;
            };
            let above = above
                .iter()
                .try_fold(&mut *spec, |at, name| at.get_mut(name));
            let fields = above.and_then(Value::as_object_mut);
            fields.is_some_and(|fields| fields.remove(field).is_some())
        })
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::PoolSpec;
    use serde_json::json;

    use super::*;
    use crate::convert::defaults::least_pool;

    fn read(spec: Value) -> (PoolSpec, Option<String>) {
        let mut problems = Problems::default();
        let written = spec.as_object().unwrap();
        problems.too_deep(written);
        let read = problems.read(written, least_pool());
        (read, problems.text())
    }

    #[test]
    fn f97_a_field_that_cannot_be_read_is_named_and_the_others_are_kept() {
        let (spec, problem) = read(json!({
            "nodeClass": "c", "weight": 7, "limits": {"minNodes": 2, "maxNodes": "many"},
            "scaleDown": {"enabled": false, "unneededTime": "soon"}, "clusters": ["a", 5],
        }));
        assert_eq!((spec.node_class.as_str(), spec.weight), ("c", 7));
        assert_eq!((spec.limits.min_nodes, spec.limits.max_nodes), (2, 3));
        assert!(!spec.scale_down.enabled && spec.clusters.is_empty());
        let expected = "spec.clusters[1]: invalid type: integer `5`, expected a string; \
                        spec.limits.maxNodes: invalid type: string \"many\", expected u32; \
                        spec.scaleDown.unneededTime: \"soon\" is not a length of time: write it like";
        let problem = problem.unwrap();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn a_field_that_is_missing_is_named_and_one_that_is_left_out_once() {
        let (_, problem) = read(json!({"weight": 7}));
        assert_eq!(problem.unwrap(), "spec: missing field `nodeClass`");
        let (spec, problem) = read(json!({"nodeClass": 7, "weight": 7}));
        let expected = "spec.nodeClass: invalid type: integer `7`, expected a string";
        assert_eq!((spec.weight, &*problem.unwrap()), (7, expected));
    }
}
