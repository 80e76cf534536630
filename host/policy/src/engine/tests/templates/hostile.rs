//! Templates that would take a policy's time, memory or stack. Each ends with a reason of its own, well within a call's limits.

use std::fmt::Write as _;

use kproxide_planner::plan::question::{AnswerBody, Question};
use serde_json::json;

use super::{Place, places, refusal};
use crate::engine::{CALL_FUEL, CallError};
use crate::fixtures::ask;

/// The reason that the policy itself gives: neither a trap nor one of the engine's limits.
#[track_caller]
fn check(template: &str, reason: &str) {
    let [place, _] = places();
    let settings = json!({"labels": {"rack": template}});
    let asked = ask(&Question::Decorate(place.question(&settings)));
    match asked.result {
        Err(CallError::InvalidSettings(why)) => assert!(why.contains(reason), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(
        asked.fuel < CALL_FUEL / 4 * 3,
        "{} instructions",
        asked.fuel
    );
}

/// As before, and found when the settings are checked.
#[track_caller]
fn check_refused(template: &str, reason: &str) {
    check(template, reason);
    let settings = json!({"labels": {"rack": template}});
    let why = refusal(&settings).unwrap();
    assert!(why.contains(reason), "{why}");
}

#[track_caller]
fn makes(place: &Place, template: &str, length: usize) {
    let settings = json!({"annotations": {"a": template}});
    let asked = ask(&Question::Decorate(place.question(&settings)));
    match asked.result {
        Ok(AnswerBody::Decorations(made)) => assert_eq!(made[0].annotations["a"].len(), length),
        other => panic!("{other:?}"),
    }
}

#[test]
fn templates_are_bounded_in_length() {
    let reason = "all templates together have more than 65536 bytes";
    check_refused(&"{{".repeat(512 << 10), reason);
    check_refused(&"{{ .Pool }}".repeat(100_000), reason);
    check_refused(&"a".repeat(65_537), reason);
    // What does not fit together says more.
    check_refused(&"{{".repeat(120 << 10), "unclosed action");
    check_refused(&"{{(".repeat(20_000), "unclosed action");
    // As long as may be.
    check(
        &"{{.Pool}}".repeat((64 << 10) / 9),
        "it makes more than 65536 bytes",
    );
}

#[test]
fn blocks_and_parentheses_are_bounded_in_depth() {
    let nested = |depth: usize| "{{ if true }}".repeat(depth) + &"{{ end }}".repeat(depth);
    check_refused(&nested(10_000), "blocks nest more than 64 deep");
    let chain = "{{ if false }}".to_owned() + &"{{ else if false }}".repeat(10_000) + "{{ end }}";
    check_refused(&chain, "blocks nest more than 64 deep");
    let parentheses = |depth: usize| "(".repeat(depth) + "1" + &")".repeat(depth);
    check_refused(
        &format!("{{{{ {} }}}}", parentheses(10_000)),
        "template nesting depth exceeded 100",
    );
    // As deep as may be: both at once, and at the end of the deepest call.
    let [place, _] = places();
    let body = |inner: &str| "{{ if true }}".repeat(60) + inner + &"{{ end }}".repeat(60);
    let deep = body(&format!("{{{{ print {} }}}}", parentheses(35)));
    makes(&place, &deep, 1);
    let chain = "{{ if false }}".to_owned() + &"{{ else if false }}".repeat(63) + "{{ end }}";
    makes(&place, &chain, 0);
}

#[test]
fn templates_that_call_each_other_are_bounded_in_depth() {
    let reason = "its templates call each other too deep";
    check(
        r#"{{ define "r" }}{{ template "r" . }}{{ end }}{{ template "r" . }}"#,
        reason,
    );
    check(
        r#"{{ define "a" }}{{ template "b" . }}{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ template "a" . }}"#,
        reason,
    );
    // What takes most of the stack on the way: every kind of block, around a call whose argument is nested too.
    let argument = "(".repeat(30) + ".Zone" + &")".repeat(30);
    let open = "{{ range 1 }}{{ with $ }}{{ if $ }}".repeat(20);
    let close = "{{ end }}".repeat(60);
    check(
        &format!(
            r#"{{{{ define "r" }}}}{open}{{{{ if {argument} }}}}{{{{ end }}}}{{{{ template "r" $ }}}}{close}{{{{ end }}}}{{{{ template "r" . }}}}"#
        ),
        reason,
    );
}

#[test]
fn loops_are_bounded() {
    let reason = "its ranges repeat more than 10000 times";
    check("{{ range 1000000000 }}{{ end }}", reason);
    check("{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}", reason);
    check(
        "{{ range $n := 9223372036854775807 }}{{ print $n }}{{ end }}",
        reason,
    );
    let [place, _] = places();
    makes(&place, "{{ range 100 }}{{ range 99 }}{{ end }}{{ end }}", 0);
}

#[test]
fn what_functions_make_is_bounded() {
    let reason = "its functions make more than 1048576 bytes of text";
    check(
        r#"{{ $s := "x" }}{{ range 40 }}{{ $s = print $s $s }}{{ end }}{{ $s }}"#,
        reason,
    );
    check(
        r#"{{ $s := "<" }}{{ range 40 }}{{ $s = html $s $s }}{{ end }}"#,
        reason,
    );
    check(
        r#"{{ $s := "x" }}{{ range 40 }}{{ $s = printf "%s%[1]s" $s }}{{ end }}"#,
        reason,
    );
    check(
        r#"{{ $s := "\"" }}{{ range 40 }}{{ $s = printf "%q" $s }}{{ end }}"#,
        reason,
    );
    check(
        r#"{{ range 100 }}{{ $s := printf "%60000d" 1 }}{{ end }}"#,
        reason,
    );
    // Parts of a long text, each kept.
    let mut slices = r#"{{ $s := printf "%60000d" 1 }}"#.to_owned();
    for n in 0..100 {
        write!(slices, "{{{{ $v{n} := slice $s 1 }}}}").unwrap();
    }
    check(&slices, reason);
}

#[test]
fn widths_are_bounded() {
    let reason = "is wider than 65535 characters";
    check(r#"{{ printf "%1000000000d" 1 }}"#, reason);
    check(r#"{{ printf "%.1000000000f" 1.5 }}"#, reason);
    check(r#"{{ printf "%99999999999999999999999s" "a" }}"#, reason);
    check(
        r#"{{ printf "%*d" 1000000000 1 }}"#,
        "printf: %* cannot write a value of type int",
    );
    check(
        &format!(
            r#"{{{{ printf "{}" {} }}}}"#,
            "%65535d".repeat(1000),
            "1 ".repeat(1000)
        ),
        "its functions make more than 1048576 bytes of text",
    );
    // The widest that may be is cut by the limit of what may be written.
    check(
        r#"{{ printf "%65535d" 1 }}{{ print "ab" }}"#,
        "it makes more than 65536 bytes",
    );
}
