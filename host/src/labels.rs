//! Kubernetes' syntax for labels, and the keys that are neither a policy's nor a pool's to set.

use kproxide_planner::ids::is_dns_label;
use kproxide_planner::keys;
use thiserror::Error;

/// What is wrong with a label, annotation or taint.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum LabelError {
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
pub(crate) fn check_key(what: &'static str, key: &str) -> Result<(), LabelError> {
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
pub(crate) fn check_value(what: &'static str, key: &str, value: &str) -> Result<(), LabelError> {
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
    fn what_a_value_may_be() {
        for value in ["", "a", "pve-1.lab_2", &"x".repeat(63)] {
            assert_eq!(check_value("label", "k", value), Ok(()), "{value}");
        }
        for value in [" ", "<no value>", "a/b", "-a", &"x".repeat(64)] {
            assert!(check_value("label", "k", value).is_err(), "{value}");
        }
    }
}
