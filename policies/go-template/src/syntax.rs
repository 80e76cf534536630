//! What Kubernetes accepts as a label, an annotation key and a taint. The rules are those of its API machinery:
//! a qualified name is `[DNS subdomain/]name`, a label value is a name or empty.

const NAME_LENGTH_MAX: usize = 63;
const PREFIX_LENGTH_MAX: usize = 253;

/// Checks the key of a label, an annotation or a taint; says what is wrong with it.
pub(crate) fn check_key(key: &str) -> Result<(), String> {
    let wrong = |why: String| Err(format!("the key {} is not valid: {why}", shown(key)));
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, _)) if !is_dns_subdomain(prefix) => {
            return wrong(format!(
                "its prefix must be a DNS name of lower-case letters, digits, '-' and '.', \
                 at most {PREFIX_LENGTH_MAX} characters"
            ));
        }
        Some((_, name)) => name,
    };
    if is_name(name) {
        return Ok(());
    }
    wrong(format!(
        "its name must be 1 to {NAME_LENGTH_MAX} {NAME_RULE}"
    ))
}

/// Checks the value of a label or a taint; says what is wrong with it.
pub(crate) fn check_label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "the value {} is not valid: it must be at most {NAME_LENGTH_MAX} {NAME_RULE}",
        shown(value)
    ))
}

/// The beginning of a text, for an error: kproxide shows 300 bytes of a policy's reason, and the cause must be among them.
pub(crate) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    let shown: String = text.chars().take(CHARS_MAX).collect();
    let dots = if shown.len() < text.len() { "…" } else { "" };
    format!("{shown:?}{dots}")
}

/// Checks the effect of a taint.
pub(crate) fn check_effect(effect: &str) -> Result<(), String> {
    match effect {
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => Ok(()),
        other => Err(format!(
            "the effect {other:?} is none of NoSchedule, PreferNoSchedule, NoExecute"
        )),
    }
}

const NAME_RULE: &str =
    "letters, digits, '-', '_' or '.', and begin and end with a letter or digit";

fn is_name(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    text.len() <= NAME_LENGTH_MAX
        && text.bytes().all(inner)
        && text
            .bytes()
            .next()
            .is_some_and(|c| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .next_back()
            .is_some_and(|c| c.is_ascii_alphanumeric())
}

fn is_dns_subdomain(text: &str) -> bool {
    let outer = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.bytes().all(|c| outer(c) || c == b'-')
            && part.bytes().next().is_some_and(outer)
            && part.bytes().next_back().is_some_and(outer)
    };
    text.len() <= PREFIX_LENGTH_MAX && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let (long, too_long) = ("a".repeat(63), "a".repeat(64));
        let long_prefix = format!("{}/a", "a.".repeat(126) + "a");
        let too_long_prefix = format!("{}/a", "a.".repeat(127));
        for good in [
            "a",
            "A-b_c.9",
            "example.com/rack",
            "a-b.c/D",
            "9/9",
            &long,
            &long_prefix,
        ] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "-a",
            "a-",
            "a b",
            "ä",
            "A.com/x",
            "a..b/c",
            "-a/b",
            "a_b/c",
            "{{ .Pool }}",
            &too_long,
            &too_long_prefix,
        ] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values() {
        for good in ["", "a", "pve-1.home_lab", "0", &"x".repeat(63)] {
            assert_eq!(check_label_value(good), Ok(()), "{good}");
        }
        for bad in [
            " ",
            "a b",
            ".a",
            "a_",
            "a/b",
            "<no value>",
            "ü",
            "a\n",
            &"x".repeat(64),
        ] {
            assert!(check_label_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_message_names_the_value_and_the_rule() {
        assert_eq!(
            check_label_value("a b").unwrap_err(),
            "the value \"a b\" is not valid: it must be at most 63 letters, digits, '-', '_' or '.', \
             and begin and end with a letter or digit"
        );
    }
}
