use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sample {
    weight: u32,
    offset: i8,
    factor: f64,
    name: Option<String>,
    on: bool,
    mode: Mode,
    racks: Vec<Rack>,
    by_zone: BTreeMap<String, u64>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Plain,
    Limited(u8),
    Named {
        name: String,
    },
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rack {
    names: Vec<String>,
}

#[track_caller]
fn refusal<S: Settings + std::fmt::Debug>(json: &str) -> String {
    match S::parse(json).expect_err("these settings are wrong") {
        PolicyError::InvalidSettings(text) => text,
        other @ (PolicyError::NoCandidate(_) | PolicyError::Internal(_)) => {
            panic!("wrong kind: {other:?}")
        }
    }
}

#[track_caller]
fn check_refusal(json: &str, expected: &str) {
    assert_eq!(refusal::<Sample>(json), expected);
}

#[test]
fn nothing_means_the_defaults() {
    for json in ["", " \n", "null", "{}", " { } "] {
        assert_eq!(Sample::parse(json).unwrap(), Sample::default(), "{json:?}");
    }
}

#[test]
fn every_kind_of_value_is_read() {
    let json = r#" {"weight": 3, "offset": -4, "factor": 1.5e-1, "name": "a\"\u00fc\ud83d\ude00", "on": true,
        "mode": {"limited": 7}, "racks": [{"names": ["x", "y"]}, {"names": []}], "by_zone": {"z": 1}} "#;
    assert_eq!(
        Sample::parse(json).unwrap(),
        Sample {
            weight: 3,
            offset: -4,
            factor: 0.15,
            name: Some("a\"ü😀".to_owned()),
            on: true,
            mode: Mode::Limited(7),
            racks: vec![
                Rack {
                    names: vec!["x".to_owned(), "y".to_owned()]
                },
                Rack::default()
            ],
            by_zone: BTreeMap::from([("z".to_owned(), 1)]),
        }
    );
    assert_eq!(
        Sample::parse(r#"{"factor": 2, "name": null, "mode": "plain"}"#)
            .unwrap()
            .factor,
        2.0
    );
    let named = Sample::parse(r#"{"mode": {"named": {"name": "n"}}}"#).unwrap();
    assert_eq!(
        named.mode,
        Mode::Named {
            name: "n".to_owned()
        }
    );
}

#[test]
fn an_unknown_field_is_named() {
    let text = refusal::<Sample>(r#"{"wieght": 3}"#);
    assert!(
        text.starts_with("settings: unknown field `wieght`, expected one of `weight`, "),
        "{text}"
    );
    check_refusal(
        r#"{"racks": [{"nmaes": 1}]}"#,
        r#"settings field "racks[0]": unknown field `nmaes`, expected `names`"#,
    );
}

#[test]
fn a_wrong_value_is_named_by_its_path() {
    check_refusal(
        r#"{"racks": [{"names": []}, {"names": ["a", 3]}]}"#,
        r#"settings field "racks[1].names[1]": found 3, expected a string"#,
    );
    check_refusal(
        r#"{"weight": "3"}"#,
        r#"settings field "weight": found "3", expected u32"#,
    );
    check_refusal(
        r#"{"weight": -3}"#,
        r#"settings field "weight": found -3, expected u32"#,
    );
    check_refusal(
        r#"{"weight": 1.5}"#,
        r#"settings field "weight": found 1.5, expected u32"#,
    );
    check_refusal(
        r#"{"weight": 4294967296}"#,
        r#"settings field "weight": found 4294967296, expected u32"#,
    );
    check_refusal(
        r#"{"factor": 1e999}"#,
        r#"settings field "factor": found 1e999, expected f64"#,
    );
    check_refusal(
        r#"{"on": null}"#,
        r#"settings field "on": found null, expected a boolean"#,
    );
    check_refusal(
        r#"{"racks": {}}"#,
        r#"settings field "racks": found a map, expected a sequence"#,
    );
    check_refusal(
        r#"{"mode": "fast"}"#,
        r#"settings field "mode": unknown variant `fast`, expected one of `plain`, `limited`, `named`"#,
    );
    check_refusal("[3]", "settings: found a list, expected struct Sample");
    check_refusal("3", "settings: found 3, expected struct Sample");
}

#[test]
fn text_that_is_no_json_is_refused() {
    for (json, why) in [
        ("weight: 3", "expected a value and not 'w' at byte 0"),
        ("{} {}", "expected the end and not '{' at byte 3"),
        ("{", "expected a key in quotes and not the end"),
        (r#"{"a" 1}"#, "expected ':' and not '1' at byte 5"),
        (
            r#"{"a": 1,}"#,
            "expected a key in quotes and not '}' at byte 8",
        ),
        (r#"{"a": "b}"#, "expected '\"' and not the end"),
        (
            r#"{"a": [1 2]}"#,
            "expected ',' or ']' and not '2' at byte 9",
        ),
        (r#"{"a": 1, "a": 2}"#, "\"a\" is given twice"),
        (
            r#""\ud83d""#,
            "expected the second of two surrogates and not '\"' at byte 7",
        ),
    ] {
        assert_eq!(
            refusal::<Sample>(json),
            format!("the settings are no JSON: {why}")
        );
    }
    assert!(refusal::<Sample>(&"[".repeat(100_000)).contains("more than 64 levels deep"));
}

#[test]
fn a_policy_without_settings_takes_none() {
    for json in ["", " ", "null", "{}", " { }\n"] {
        assert!(NoSettings::parse(json).is_ok(), "{json:?}");
    }
    assert_eq!(
        refusal::<NoSettings>(r#"{"weight": 3}"#),
        "settings: unknown field `weight`, there are none"
    );
    assert_eq!(
        refusal::<NoSettings>("[]"),
        "settings: expected an empty map"
    );
    assert!(refusal::<NoSettings>("{").starts_with("the settings are no JSON: "));
}

/// What `serde_json` makes of a text, in our terms; None if it is no JSON.
fn reference(value: &serde_json::Value) -> Json {
    use serde_json::Value;
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::Number(number.to_string()),
        Value::String(text) => Json::Text(text.clone()),
        Value::Array(items) => Json::List(items.iter().map(reference).collect()),
        Value::Object(entries) => Json::Map(
            entries
                .iter()
                .map(|(k, v)| (k.clone(), reference(v)))
                .collect(),
        ),
    }
}

fn any_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_serde_json_writes_is_read_as_it_was(value in any_value()) {
        prop_assert_eq!(json::parse(&value.to_string()), Ok(reference(&value)));
        prop_assert_eq!(json::parse(&serde_json::to_string_pretty(&value).unwrap()), Ok(reference(&value)));
    }

    /// Of texts that are nearly JSON, both accept the same; a key given twice, which only we refuse, cannot occur.
    #[test]
    fn what_serde_json_refuses_is_refused(text in r#"[\[\],0-9.eE+\-tn]{0,3}|-?[0-9.eE+\-]{1,6}|"(\\[bfnrtux"/0-9a-f]{0,5}|[a\x00-\x21é])*"|\[(null|true|false|fals|1|,| ){0,5}\]|\{"a"[:, 1]{0,4}\}"#) {
        // Beyond the range of a floating point number serde_json refuses what is JSON.
        let reference = serde_json::from_str::<serde_json::Value>(&text);
        let out_of_range = reference.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"));
        prop_assert!(out_of_range || json::parse(&text).is_ok() == reference.is_ok(), "{}: {:?}", text, reference);
    }
}
