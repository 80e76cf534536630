//! Kubernetes' syntax for labels, and the keys that are neither a policy's nor a pool's to set.

use kproxide_planner::facts::{LabelSelector, Operator, Requirement};
use kproxide_planner::ids::is_dns_label;
use kproxide_planner::keys;
use thiserror::Error;

/// What is wrong with a label, annotation or taint.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LabelError {
    #[error("the {what} key {key:?} is invalid: {why}")]
    Key {
        what: &'static str,
        key: String,
        why: &'static str,
    },
    #[error("the {what} key {key:?} is reserved: {why}")]
    Reserved {
        what: &'static str,
        key: String,
        why: &'static str,
    },
    #[error("the value {value:?} of {what} {key:?} is invalid: {why}")]
    Value {
        what: &'static str,
        key: String,
        value: String,
        why: &'static str,
    },
    #[error("the {what} {key:?} is given twice")]
    Twice { what: &'static str, key: String },
    #[error(
        "the taint {key:?} has effect {effect:?}: use NoSchedule, PreferNoSchedule or NoExecute"
    )]
    Effect { key: String, effect: String },
    #[error("the annotation {key:?} is longer than {max} bytes")]
    LongAnnotation { key: String, max: usize },
    #[error("{count} labels, annotations or taints are given; at most {max} are taken")]
    TooMany { count: usize, max: usize },
}

const NAME_RULE: &str = "a name is 1 to 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit";
const PREFIX_RULE: &str = "a prefix is a lower-case DNS name of at most 253 characters";

/// A qualified name (`[prefix/]name`) that a policy or a pool may set.
///
/// # Errors
/// Says what is wrong, or who owns the key.
pub fn check_key(what: &'static str, key: &str) -> Result<(), LabelError> {
    let error = |why| LabelError::Key {
        what,
        key: key.chars().take(320).collect(),
        why,
    };
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if !is_name(name) {
        return Err(error(NAME_RULE));
    }
    let Some(prefix) = prefix else { return Ok(()) };
    if prefix.is_empty() || prefix.len() > 253 || !prefix.split('.').all(is_dns_label) {
        return Err(error(PREFIX_RULE));
    }
    match keys::reserved(key) {
        Some(why) => Err(LabelError::Reserved {
            what,
            key: key.to_owned(),
            why,
        }),
        None => Ok(()),
    }
}

/// The value of a label or a taint: empty, or a name.
///
/// # Errors
/// Says what is wrong.
pub fn check_value(what: &'static str, key: &str, value: &str) -> Result<(), LabelError> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(LabelError::Value {
        what,
        key: key.to_owned(),
        value: value.chars().take(100).collect(),
        why: "it must be empty, or 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
    })
}

/// Reads a label selector as kubectl takes it, such as `app=web,tier in (a,b),!old`.
///
/// # Errors
/// Says which part is none.
pub fn selector(text: &str) -> Result<LabelSelector, String> {
    let mut parts = vec![String::new()];
    let mut is_in_list = false;
    for letter in text.chars() {
        match letter {
            '(' => is_in_list = true,
            ')' => is_in_list = false,
            _ => {}
        }
        match (letter, parts.last_mut()) {
            (',', _) if !is_in_list => parts.push(String::new()),
            (_, Some(part)) => part.push(letter),
            (_, None) => {}
        }
    }
    let wrong = |part: &str| {
        format!(
            "{part:?} is no part of a selector: write key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
        )
    };
    let parts = parts.iter().map(|part| part.trim());
    let parts = parts.map(|part| requirement(part).ok_or_else(|| wrong(part)));
    Ok(LabelSelector {
        match_expressions: parts.collect::<Result<_, _>>()?,
        ..LabelSelector::default()
    })
}

fn requirement(part: &str) -> Option<Requirement> {
    let listed = |part: &'_ str| -> Option<(String, Operator, Vec<String>)> {
        let (before, values) = part.strip_suffix(')')?.split_once('(')?;
        let (key, word) = before.trim().rsplit_once(' ')?;
        let operator = match word {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            _ => return None,
        };
        let values = values.split(',').map(|value| value.trim().to_owned());
        Some((key.trim().to_owned(), operator, values.collect()))
    };
    let (key, operator, values) = if part.contains('(') {
        listed(part)?
    } else if let Some(key) = part.strip_prefix('!') {
        (key.trim().to_owned(), Operator::DoesNotExist, vec![])
    } else if let Some((key, value)) = part.split_once("!=") {
        (
            key.trim().to_owned(),
            Operator::NotIn,
            vec![value.trim().to_owned()],
        )
    } else if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        (
            key.trim().to_owned(),
            Operator::In,
            vec![value.trim().to_owned()],
        )
    } else {
        (part.to_owned(), Operator::Exists, vec![])
    };
    let name = key.rsplit_once('/').map_or(&*key, |(_, name)| name);
    let is_value = |value: &String| value.is_empty() || is_name(value);
    let is_sound = is_name(name) && !key.contains(' ') && values.iter().all(is_value);
    is_sound.then(|| Requirement {
        key: key.into(),
        operator,
        values: values.into_iter().map(Into::into).collect(),
    })
}

/// The text can be a namespace's, a Lease's or a pod's name, and leads nowhere else as part of a path.
pub fn is_path_part(text: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.');
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.chars().all(is_inner)
}

fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_may_set() {
        for key in [
            "rack",
            "example.com/rack",
            "topology.kubernetes.io/zone",
            "node-role.kubernetes.io/worker",
            "a_b.c-D",
        ] {
            assert_eq!(check_key("label", key), Ok(()), "{key}");
        }
        for key in [
            "",
            "/a",
            "a/",
            "a b",
            "-a",
            "a-",
            "Upper.com/a",
            "a/b/c",
            "kproxide.dev/pool",
            "x.kproxide.dev/y",
            "kubernetes.io/hostname",
            "node-role.kubernetes.io/control-plane",
        ] {
            assert!(check_key("label", key).is_err(), "{key}");
        }
    }

    #[test]
    fn a_selector_is_read_as_kubectl_reads_it() {
        let selects = |text: &str, pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let labels = pairs.map(|&(key, value)| (key.to_owned(), value.to_owned()));
            kproxide_planner::kubernetes::selector::selects(
                &selector(text).unwrap(),
                &labels.collect(),
            )
        };
        let (web, db) = (
            [("app", "web"), ("tier", "a")],
            [("app", "db"), ("old", "")],
        );
        for (text, expected) in [
            ("app=web", (true, false)),
            ("app == db", (false, true)),
            ("app!=web", (false, true)),
            ("tier!=b", (true, true)),
            ("app in (web, db)", (true, true)),
            ("tier in (a,b),!old", (true, false)),
            ("app notin (db)", (true, false)),
            ("old", (false, true)),
            ("app=web,old", (false, false)),
            ("old=", (false, true)),
        ] {
            assert_eq!(
                (selects(text, &web), selects(text, &db)),
                expected,
                "{text}"
            );
        }
        for wrong in [
            "",
            "app=web,",
            "app in web",
            "app is (web)",
            "a b",
            "=web",
            "app=a b",
        ] {
            assert!(
                selector(wrong).unwrap_err().contains("key=value"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_a_value_may_be() {
        for value in ["", "a", "pve-1.lab_2", &"x".repeat(63)] {
            assert_eq!(check_value("label", "k", value), Ok(()), "{value}");
        }
        for value in [" ", "<no value>", "a/b", "-a", &"x".repeat(64)] {
            assert!(check_value("label", "k", value).is_err(), "{value}");
        }
    }
}
