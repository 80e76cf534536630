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
        text.starts_with(
            r#"label "rack": line 1, column 15: unclosed action, in the template "{{ "#
        ),
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
    for (template, reason) in [
        (
            "{{ range 1000000000 }}{{ end }}",
            "its ranges repeat more than 10000 times",
        ),
        (
            r#"{{ define "r" }}{{ template "r" . }}{{ end }}{{ template "r" . }}"#,
            "its templates call each other too deep",
        ),
        (
            r#"{{ $s := "x" }}{{ range 40 }}{{ $s = print $s $s }}{{ end }}{{ $s }}"#,
            "its functions make more than 1048576 bytes of text",
        ),
        (
            "{{ range 7000 }}0123456789{{ end }}",
            "it makes more than 65536 bytes",
        ),
    ] {
        let settings = format!(r#"{{"labels": {{"rack": {template:?}}}}}"#);
        assert_eq!(
            refusal(labels(&settings)),
            format!(r#"label "rack" on hypervisor home/pve1: {reason}"#)
        );
    }
}

/// Each is of all templates together, and of each render by itself.
#[test]
fn limits_hold_for_each_template_and_hypervisor_anew() {
    let on: Vec<_> = ["a", "b", "c"].map(hypervisor).into();
    let long = r#"{{ $s := printf \"%60000d\" 1 }}{{ range 6000 }}{{ end }}{{ range 10 }}{{ $t := print $s }}{{ end }}x"#;
    let settings = format!(r#"{{"labels": {{"one": "{long}", "other": "{long}"}}}}"#);
    let decorations = call::decorate::<GoTemplate>(&settings, &machine(), &on).unwrap();
    for decoration in decorations {
        let values: Vec<_> = decoration.labels.iter().map(|(_, value)| value).collect();
        assert_eq!(values, ["x", "x"]);
    }
    let [one, other] = ["a", "b"].map(|text| text.repeat(40_000));
    let both = format!(
        r#"{{"labels": {{"one": "{one}"}}, "taints": [{{"key": "b", "value": "{other}", "effect": "NoSchedule"}}]}}"#
    );
    let text = refusal(call::check_settings::<GoTemplate>(&both));
    let reason =
        r#"taint "b": all templates together have more than 65536 bytes, in the template "bbb"#;
    assert!(text.starts_with(reason), "{text}");
    assert!(text.ends_with(r#"bbb"…"#), "{text}");
}

/// All of them when the settings are checked: gotmpl would say nothing, or not before it renders.
#[test]
fn what_go_would_not_parse_is_refused_by_its_place() {
    let no_function = |place: &str, name: &str| {
        format!(
            "{place}: there is no function {name:?}; the functions are and, call, eq, ge, gt, html, index, js, le, len, lt, \
             ne, not, or, print, printf, println, slice, targetHost, urlquery"
        )
    };
    for (template, why) in [
        ("a{{ end }}lost", "line 1, column 2: no block ends here"),
        ("{{ if .Zone }}a", "line 1, column 1: this if has no end"),
        (
            "a\nb{{ .Zone | upper }}",
            &no_function("line 2, column 13", "upper"),
        ),
        (
            "{{ if false }}{{ print (lower .Zone) }}{{ end }}",
            &no_function("line 1, column 25", "lower"),
        ),
        (
            r#"{{ define "x" }}{{ upper }}{{ end }}"#,
            &no_function("line 1, column 20", "upper"),
        ),
        (
            "{{ range $k, $v := .Attributes }}{{ end }}{{ $v }}",
            "line 1, column 46: there is no variable $v",
        ),
        ("{{ $x = 1 }}", "line 1, column 4: there is no variable $x"),
        (
            r#"{{ $x := 1 }}{{ define "x" }}{{ $x.y }}{{ end }}"#,
            "line 1, column 33: there is no variable $x",
        ),
        (
            "{{ .Zone | 3 }}",
            "line 1, column 12: what stands after a | must be a function",
        ),
        (
            r#"{{ define "x" }}a{{ end }}{{ define "x" }}b{{ end }}"#,
            r#"the template "x" is defined twice"#,
        ),
    ] {
        let settings = format!(r#"{{"labels": {{"rack": {template:?}}}}}"#);
        assert_eq!(
            refusal(call::check_settings::<GoTemplate>(&settings)),
            format!(r#"label "rack": {why}, in the template {template:?}"#)
        );
    }
    let long = "ä".repeat(300) + "{{ end }}";
    let settings = format!(r#"{{"labels": {{"rack": "{long}"}}}}"#);
    let shown = "ä".repeat(64);
    assert_eq!(
        refusal(call::check_settings::<GoTemplate>(&settings)),
        format!(
            r#"label "rack": line 1, column 301: no block ends here, in the template "{shown}"…"#
        )
    );
}

/// kproxide shows 300 bytes of a reason.
#[test]
fn the_cause_stands_among_the_first_300_bytes_of_a_reason() {
    let long = "ä".repeat(200);
    for (template, cause) in [
        (format!("{long}{{{{ end }}}}"), "no block ends here"),
        (long.clone(), "must be at most 63"),
        (
            format!("{long}{{{{ .Attributes.none }}}}"),
            "the variables are",
        ),
    ] {
        let settings = format!(r#"{{"labels": {{"rack": "{template}"}}}}"#);
        let made = call::decorate::<GoTemplate>(&settings, &machine(), &[hypervisor("pve1")]);
        let why = refusal(made);
        let at = why.find(cause);
        assert!(at.is_some_and(|at| at + cause.len() <= 300), "{why}");
    }
}

/// gotmpl takes all of these for something, and Go none.
#[test]
fn broken_escapes_and_numbers_are_refused_as_go_refuses_them() {
    for template in [
        r#"{{ "\ud800" }}"#,
        r#"{{ "a\u62zz" }}"#,
        r#"{{ "\x4zz" }}"#,
        r#"{{ "\x+4" }}"#,
        r#"{{ "\U00110000" }}"#,
        r#"{{ "\400" }}"#,
        r#"{{ "\08" }}"#,
        "{{ \"a\nb\" }}",
        "{{ 1e400 }}",
        "{{ 08 }}",
        "{{ -1_9 }}{{ print 019 }}",
    ] {
        let settings = format!(r#"{{"annotations": {{"a": {template:?}}}}}"#);
        let why = refusal(call::check_settings::<GoTemplate>(&settings));
        assert!(
            why.starts_with(r#"annotation "a": line 1, column"#),
            "{why}"
        );
    }
    let fine = r#"{{ "\u00e4\x41\101\U0001F600\n\\" }}{{ print 017 0x1f 1_000 0.9 -0 10.08 }}"#;
    let settings = format!(r#"{{"annotations": {{"a": {fine:?}}}}}"#);
    let made = call::decorate::<GoTemplate>(&settings, &machine(), &[hypervisor("pve1")]);
    let [(_, value)] = &made.unwrap()[0].annotations[..] else {
        panic!("one annotation");
    };
    assert_eq!(value, "äAA😀\n\\15 31 1000 0.9 0 10.08");
}

#[test]
fn a_template_that_is_called_without_a_value_has_none() {
    let made = |template: &str| {
        let settings = format!(r#"{{"annotations": {{"a": {template:?}}}}}"#);
        call::decorate::<GoTemplate>(&settings, &machine(), &[hypervisor("pve1")])
    };
    let none = refusal(made(
        r#"{{ define "a" }}{{ .Pool }}{{ end }}{{ template "a" }}"#,
    ));
    assert!(none.contains("<no value>"), "{none}");
    assert!(made(r#"{{ define "a" }}{{ .Pool }}{{ end }}{{ template "a" . }}"#).is_ok());
    let none = refusal(made("{{ .Zone | targetHost }}"));
    assert!(none.contains("targetHost takes no arguments"), "{none}");
}

#[test]
fn every_function_that_is_known_is_there() {
    for name in functions::NAMES.split(' ') {
        let settings = format!(r#"{{"annotations": {{"a": "{{{{ {name} .Zone .Zone }}}}"}}}}"#);
        let made = call::decorate::<GoTemplate>(&settings, &machine(), &[hypervisor("pve1")]);
        if let Err(PolicyError::InvalidSettings(why)) = made {
            assert!(!why.contains("undefined function"), "{name}: {why}");
        }
    }
}

#[test]
fn variables_are_told_from_attributes_wherever_they_are_asked_for() {
    let on = Hypervisor {
        attributes: vec![
            Attribute {
                key: "rack".to_owned(),
                value: Fact::Text("r1".to_owned()),
            },
            Attribute {
                key: "price".to_owned(),
                value: Fact::Number(2_500_000.0),
            },
        ],
        ..hypervisor("pve1")
    };
    let made = |template: &str| {
        let settings = format!(r#"{{"annotations": {{"a": {template:?}}}}}"#);
        let on = std::slice::from_ref(&on);
        let mut decorations = call::decorate::<GoTemplate>(&settings, &machine(), on)?;
        Ok::<_, PolicyError>(decorations.remove(0).annotations.remove(0).1)
    };
    for (template, expected) in [
        (
            "{{ with .Attributes }}{{ .rack }}{{ with .nope }}x{{ end }}{{ end }}",
            "r1",
        ),
        (
            "{{ $a := .Attributes }}{{ $a.rack }}{{ if $a.nope }}x{{ end }}",
            "r1",
        ),
        (
            "{{ (or .Attributes 1).rack }}{{ $.Attributes.rack }}",
            "r1r1",
        ),
        (
            r#"{{ define "x" }}{{ .rack }}{{ end }}{{ template "x" .Attributes }}"#,
            "r1",
        ),
        ("{{ .Attributes }}", "map[price:2.5e+06 rack:r1]"),
        (
            "{{ .Attributes.price }} {{ print .Attributes.price 1 }}",
            "2.5e+06 2.5e+06 1",
        ),
    ] {
        assert_eq!(made(template).unwrap(), expected, "{template}");
    }
    for template in [
        "{{ if .rack }}x{{ end }}",
        "{{ $a := . }}{{ $a.rack }}",
        "{{ with .Attributes }}{{ $.rack }}{{ end }}",
        "{{ (or . 1).rack.x }}",
        r#"{{ define "x" }}{{ with .rack }}{{ end }}{{ end }}{{ template "x" . }}"#,
    ] {
        let why = refusal(made(template));
        assert!(
            why.contains("there is no variable .rack; the variables are"),
            "{why}"
        );
    }
    let why = refusal(made("{{ .Zone.rack }}{{ .Attributes.rack.x }}"));
    assert!(
        why.ends_with("can't evaluate field rack in type string"),
        "{why}"
    );
}

#[test]
fn printf_writes_as_go_does_or_says_that_it_cannot() {
    check(r#"{{ printf "%s-%02d" .TargetHost 7 }}"#, "pve1-07");
    check(r#"{{ printf "%[2]s.%[1]s" .Zone "a" }}"#, "a.rack-a");
    check(
        r#"{{ printf "%.2f" 1.005 }}{{ printf "%x" 255 }}"#,
        "1.00ff",
    );
    for (template, why) in [
        (
            "%d\" 1.5",
            "printf: %d cannot write a value of type float64",
        ),
        ("%s\" 4", "printf: %s cannot write a value of type int"),
        ("%T\" 4", "printf: %T cannot write a value of type int"),
        ("%5c\" 65", "printf: %5c cannot write a value of type int"),
        ("%s-%s\" .Zone", "printf: %s has no value"),
        ("%s\" .Zone .Pool", "printf: 1 values have no % of theirs"),
        ("%[3]s\" .Zone .Pool", "printf: %s has no value"),
        ("50%\"", "printf: the format ends with a % that has no verb"),
        (
            "%70000d\" 1",
            "printf: %70000d is wider than 65535 characters",
        ),
    ] {
        let template = format!(r#"{{{{ printf "{template} }}}}"#);
        let settings = format!(r#"{{"labels": {{"rack": {template:?}}}}}"#);
        assert_eq!(
            refusal(labels(&settings)),
            format!(r#"label "rack" on hypervisor home/pve1: {why}"#)
        );
    }
}
