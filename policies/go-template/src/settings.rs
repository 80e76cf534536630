//! The settings as an operator writes them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::actions::{Kind, pieces};

/// The settings' JSON Schema.
pub(crate) const SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"properties":{
"labels":{"description":"label key to Go template; or key=template,key=template as kproximate's kpNodeLabels","oneOf":[{"type":"object","additionalProperties":{"type":"string"}},{"type":"string"}]},
"annotations":{"description":"annotation key to Go template","type":"object","additionalProperties":{"type":"string"}},
"taints":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["key","effect"],"properties":{"key":{"type":"string"},"value":{"description":"Go template","type":"string"},"effect":{"enum":["NoSchedule","PreferNoSchedule","NoExecute"]}}}}}}"#;

/// Keys to templates. Keys are no templates: kproxide must know which labels a machine will have.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    #[serde(deserialize_with = "map_or_kproximate_string")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "map")]
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<TaintTemplate>,
}

/// A taint whose value is a template.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaintTemplate {
    pub key: String,
    #[serde(default)]
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

fn map_or_kproximate_string<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_any(Templates { string_too: true })
}

fn map<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_any(Templates { string_too: false })
}

struct Templates {
    string_too: bool,
}

impl<'de> Visitor<'de> for Templates {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.string_too {
            "a map of key to template, or a string key=template,key=template"
        } else {
            "a map of key to template"
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        if !self.string_too {
            return Err(E::invalid_type(serde::de::Unexpected::Str(text), &self));
        }
        parse_kproximate(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut templates = BTreeMap::new();
        while let Some((key, template)) = entries.next_entry()? {
            templates.insert(key, template);
        }
        Ok(templates)
    }
}

/// Reads `key=template,key=template`. A comma within an action belongs to the template, as does any further `=`.
fn parse_kproximate(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut templates = BTreeMap::new();
    if text.trim().is_empty() {
        return Ok(templates);
    }
    for element in split_at_commas(text) {
        let element = element.trim();
        if element.is_empty() {
            return Err(format!(
                "there is a comma too many in {text:?}; write key=value,key=value"
            ));
        }
        let (key, template) = element
            .split_once('=')
            .ok_or_else(|| format!("{element:?} has no \"=\"; write key=value"))?;
        if templates
            .insert(key.trim().to_owned(), template.trim().to_owned())
            .is_some()
        {
            return Err(format!("{:?} is given twice", key.trim()));
        }
    }
    Ok(templates)
}

/// The parts between commas that stand outside `{{ }}`.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for piece in pieces(text).filter(|piece| piece.kind == Kind::Text) {
        for (at, comma) in piece.text.match_indices(',') {
            parts.push(&text[start..piece.at + at]);
            start = piece.at + at + comma.len();
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected = expected
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        assert_eq!(parse_kproximate(text), Ok(expected), "{text}");
    }

    #[test]
    fn a_kproximate_string_becomes_a_map() {
        check("", &[]);
        check("a=b", &[("a", "b")]);
        check(
            "a={{ .TargetHost }},b=c",
            &[("a", "{{ .TargetHost }}"), ("b", "c")],
        );
        check(" a = b ,\n c=", &[("a", "b"), ("c", "")]);
    }

    #[test]
    fn commas_and_equal_signs_within_a_template_belong_to_it() {
        check(
            r#"a={{ printf "%s,%s" .Zone .Pool }},b=c"#,
            &[("a", r#"{{ printf "%s,%s" .Zone .Pool }}"#), ("b", "c")],
        );
        check(
            r#"a={{ print "}},\"," }},b=c"#,
            &[("a", r#"{{ print "}},\"," }}"#), ("b", "c")],
        );
        check(
            "a={{ $x := .Pool }}{{ $x }}",
            &[("a", "{{ $x := .Pool }}{{ $x }}")],
        );
    }

    #[test]
    fn what_made_kproximate_panic_is_an_error_that_says_what_to_write() {
        for (text, error) in [
            (
                "a=b,",
                r#"there is a comma too many in "a=b,"; write key=value,key=value"#,
            ),
            (
                ",a=b",
                r#"there is a comma too many in ",a=b"; write key=value,key=value"#,
            ),
            ("a", r#""a" has no "="; write key=value"#),
            ("a=b,c", r#""c" has no "="; write key=value"#),
            ("a=b,a=c", r#""a" is given twice"#),
        ] {
            assert_eq!(parse_kproximate(text), Err(error.to_owned()));
        }
    }
}
