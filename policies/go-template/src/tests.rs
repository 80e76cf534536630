use kproxide_policy_sdk::testkit::{hypervisor, machine};
use kproxide_policy_sdk::{Attribute, Resources, Value as Fact, call};

use super::*;

/// The labels on one hypervisor `pve1` of the cluster `home`, zone `rack-a`.
fn labels(settings: &str) -> Result<Vec<(String, String)>, PolicyError> {
    let on = Hypervisor {
        zone: "rack-a".to_owned(),
        ..hypervisor("pve1")
    };
    let mut decorations = call::decorate::<GoTemplate>(settings, &machine(), &[on])?;
    Ok(decorations.remove(0).labels)
}

#[track_caller]
fn check(template: &str, expected: &str) {
    let settings = format!(r#"{{"labels": {{"a": {template:?}}}}}"#);
    assert_eq!(
        labels(&settings).unwrap(),
        [("a".to_owned(), expected.to_owned())],
        "{template}"
    );
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, PolicyError>) -> String {
    match result.unwrap_err() {
        PolicyError::InvalidSettings(text) => text,
        other @ (PolicyError::NoCandidate(_) | PolicyError::Internal(_)) => {
            panic!("wrong kind: {other:?}")
        }
    }
}

#[test]
fn every_variable_renders() {
    check("{{ .TargetHost }}", "pve1");
    check("{{ targetHost }}", "pve1");
    check("{{ .Cluster }}", "home");
    check("{{ .Zone }}", "rack-a");
    check("{{ .Pool }}", "default");
    check("{{ .InstanceType }}", "medium");
    check("{{ .Cores }}", "4");
    check("{{ .MemoryMiB }}", "8192");
    check("fixed", "fixed");
    check("", "");
}

#[test]
fn half_a_core_renders_as_a_fraction() {
    let small = Machine {
        size: Resources {
            milli_cores: 1500,
            memory_bytes: 0,
        },
        ..machine()
    };
    let settings = r#"{"labels": {"a": "{{ .Cores }}"}}"#;
    let decorations =
        call::decorate::<GoTemplate>(settings, &small, &[hypervisor("pve1")]).unwrap();
    assert_eq!(decorations[0].labels[0].1, "1.5");
}

#[test]
fn go_syntax_works() {
    check(
        r#"{{ if eq .Pool "default" }}yes{{ else }}no{{ end }}"#,
        "yes",
    );
    check(r#"{{ printf "%s-%d" .TargetHost .Cores }}"#, "pve1-4");
    check("{{- .TargetHost -}} ", "pve1");
    check(
        r#"{{ with $n := .TargetHost }}{{ slice $n 0 3 }}{{ end }}"#,
        "pve",
    );
    check("{{/* a comment */}}x", "x");
}

#[test]
fn a_kproximate_string_works() {
    let expected = [
        ("a".to_owned(), "pve1".to_owned()),
        ("b".to_owned(), "c".to_owned()),
    ];
    assert_eq!(
        labels(r#"{"labels": "a={{ .TargetHost }},b=c"}"#).unwrap(),
        expected
    );
    assert_eq!(
        labels(r#"{"labels": "a={{ targetHost }},b=c"}"#).unwrap(),
        expected
    );
}

#[test]
fn each_hypervisor_gets_its_own_in_the_order_given() {
    let on = [hypervisor("c"), hypervisor("a"), hypervisor("b")];
    let decorations = call::decorate::<GoTemplate>(
        r#"{"labels": {"n": "{{ targetHost }}-{{ .TargetHost }}"}}"#,
        &machine(),
        &on,
    )
    .unwrap();
    let values: Vec<_> = decorations.iter().map(|d| d.labels[0].1.as_str()).collect();
    assert_eq!(values, ["c-c", "a-a", "b-b"]);
}

#[test]
fn annotations_and_taints_are_templates_too() {
    let settings = r#"{"annotations": {"example.com/note": "made on {{ .TargetHost }}, for you"},
        "taints": [{"key": "rack", "value": "{{ .Zone }}", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]}"#;
    let decorations =
        call::decorate::<GoTemplate>(settings, &machine(), &[hypervisor("pve1")]).unwrap();
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.into(),
        value: value.into(),
        effect: effect.into(),
    };
    assert_eq!(
        decorations,
        [Decoration {
            labels: vec![],
            annotations: vec![(
                "example.com/note".to_owned(),
                "made on pve1, for you".to_owned()
            )],
            taints: vec![
                taint("rack", "pve1", "NoSchedule"),
                taint("x", "", "NoExecute")
            ],
        }]
    );
}

#[test]
fn no_settings_mean_no_labels() {
    for settings in ["", "{}", r#"{"labels": ""}"#, r#"{"labels": {}}"#] {
        assert_eq!(labels(settings).unwrap(), [], "{settings}");
    }
}

#[test]
fn a_syntax_error_is_found_when_the_settings_are_checked() {
    let settings = r#"{"labels": {"good": "x", "rack": "{{ .TargetHost"}}"#;
    let text = refusal(call::check_settings::<GoTemplate>(settings));
    assert!(
        text.starts_with(r#"label "rack": the template "{{ .TargetHost" is not valid: line 1"#),
        "{text}"
    );
    let text = refusal(call::check_settings::<GoTemplate>(
        r#"{"labels": {"rack": "{{ sprig }}"}}"#,
    ));
    assert!(text.contains("rack") && text.contains("sprig"), "{text}");
}

#[test]
fn a_wrong_key_or_effect_is_found_when_the_settings_are_checked() {
    let text = refusal(call::check_settings::<GoTemplate>(
        r#"{"labels": {"a b": "x"}}"#,
    ));
    assert!(
        text.starts_with(r#"label: the key "a b" is not valid: its name must be 1 to 63"#),
        "{text}"
    );
    let taint = r#"{"taints": [{"key": "a", "effect": "NoScheduling"}]}"#;
    let text = refusal(call::check_settings::<GoTemplate>(taint));
    assert!(
        text.starts_with(r#"taint "a": the effect "NoScheduling" is none of NoSchedule"#),
        "{text}"
    );
}

#[test]
fn wrong_settings_are_named_by_their_field() {
    for (settings, part) in [
        (r#"{"label": {}}"#, "unknown field `label`"),
        (
            r#"{"labels": {"a": 1}}"#,
            r#"settings field "labels.a": found 1, expected a string"#,
        ),
        (
            r#"{"labels": "a=b,"}"#,
            r#"settings field "labels": there is a comma too many"#,
        ),
        (
            r#"{"labels": "a"}"#,
            r#"settings field "labels": "a" has no "=""#,
        ),
        (
            r#"{"labels": {"a": "x", "a": "y"}}"#,
            r#""a" is given twice"#,
        ),
        (
            r#"{"labels": ["a"]}"#,
            "expected a map of key to template, or a string",
        ),
        (
            r#"{"annotations": "a=b"}"#,
            "expected a map of key to template",
        ),
    ] {
        let text = refusal(call::check_settings::<GoTemplate>(settings));
        assert!(text.contains(part), "{settings}: {text}");
    }
}

#[test]
fn an_unknown_variable_names_the_key_the_hypervisor_and_what_there_is() {
    assert_eq!(
        refusal(labels(r#"{"labels": {"rack": "{{ .Missing }}"}}"#)),
        r#"label "rack" on hypervisor home/pve1: there is no variable .Missing; the variables are .TargetHost, .Cluster, .Zone, .Pool, .InstanceType, .Cores, .MemoryMiB, .Attributes"#
    );
}

#[test]
fn attributes_of_the_hypervisor_render_and_one_that_it_lacks_can_be_left_out() {
    let attribute = |key: &str, value: Fact| Attribute {
        key: key.to_owned(),
        value,
    };
    let racked = |name: &str, rack: &str| Hypervisor {
        attributes: vec![
            attribute("rack", Fact::Text(rack.to_owned())),
            attribute("power", Fact::Integer(300)),
            attribute("price", Fact::Number(0.25)),
            attribute("ssd", Fact::Boolean(true)),
            attribute("pve.kernel", Fact::Text("6.14.8-2-pve".to_owned())),
        ],
        ..hypervisor(name)
    };
    let on = [racked("a", "r1"), racked("b", "r2"), hypervisor("c")];
    let made = |template: &str, on: &[Hypervisor]| {
        let settings = format!(r#"{{"labels": {{"a": {template:?}}}}}"#);
        let decorations = call::decorate::<GoTemplate>(&settings, &machine(), on)?;
        let values = decorations.into_iter().map(|mut it| it.labels.remove(0).1);
        Ok::<_, PolicyError>(values.collect::<Vec<_>>())
    };
    let rack = "{{ .Attributes.rack }}";
    assert_eq!(made(rack, &on[..2]).unwrap(), ["r1", "r2"]);
    let all = r#"{{ .Attributes.power }}-{{ .Attributes.price }}-{{ .Attributes.ssd }}-{{ index .Attributes "pve.kernel" }}"#;
    assert_eq!(
        made(all, &on[..2]).unwrap(),
        ["300-0.25-true-6.14.8-2-pve"; 2]
    );
    let or_none = r#"{{ with .Attributes.rack }}{{ . }}{{ else }}none{{ end }}"#;
    assert_eq!(made(or_none, &on).unwrap(), ["r1", "r2", "none"]);
    assert!(refusal(made(rack, &on)).starts_with(
        r#"label "a" on hypervisor home/c: the template yields "<no value>"; the variables are"#
    ));
    let text = refusal(made("{{ .Attributes.rak }}", &on[..1]));
    assert!(
        text.ends_with(".Attributes (here: rack, power, price, ssd, pve.kernel)"),
        "{text}"
    );
}

#[test]
fn no_value_is_refused_wherever_it_comes_from() {
    let text = refusal(labels(r#"{"labels": {"rack": "{{ nil }}"}}"#));
    assert!(text.contains(r#""rack""#), "{text}");
    let text = refusal(labels(r#"{"labels": {"rack": "x{{ and nil 1 }}"}}"#));
    assert_eq!(
        text.split(';').next(),
        Some(r#"label "rack" on hypervisor home/pve1: the template yields "x<no value>""#)
    );
}

#[test]
fn an_invalid_label_value_names_the_key_the_hypervisor_and_the_value() {
    let text = refusal(labels(r#"{"labels": {"rack": "{{ .TargetHost }} top"}}"#));
    assert!(
        text.starts_with(
            r#"label "rack" on hypervisor home/pve1: the value "pve1 top" is not valid"#
        ),
        "{text}"
    );
}

#[test]
fn an_endless_template_is_stopped() {
    for template in [
        "{{ range 1000000000 }}{{ end }}",
        r#"{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}"#,
    ] {
        let text = refusal(labels(&format!(
            r#"{{"labels": {{"rack": "{template}"}}}}"#
        )));
        assert!(
            text.starts_with(r#"label "rack" on hypervisor home/pve1: line 1"#),
            "{text}"
        );
    }
}
