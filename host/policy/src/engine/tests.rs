//! Each limit holds, each invalid answer is refused by name, and kproxide lives on. The policies are real components; the texts are what an operator reads.

mod answers;
mod blocking;
mod bytes;
mod later;
mod templates;
mod twins;

use super::*;
use crate::fixtures::{ask, engine, question, wasm};
use kproxide_common::captured::log_of;

fn hostile(what: &str) -> Called {
    ask(&question("hostile", &format!(r#"{{"do": "{what}"}}"#)))
}

fn error_of(called: Called) -> String {
    called.result.unwrap_err().to_string()
}

/// The line of the guest's source that holds this text.
fn line_of(text: &str) -> usize {
    let source = include_str!("../../../../policies/hostile/src/lib.rs");
    let lines: Vec<usize> = source
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.contains(text))
        .map(|(_, number)| number)
        .collect();
    assert_eq!(lines.len(), 1, "{text} is in one line");
    lines[0]
}

#[tokio::test]
async fn kept_modules_are_compiled_once() {
    let forgets = Engine::new(Execution::Inline).unwrap();
    let first = forgets.load(wasm("spread")).await.unwrap();
    let second = forgets.load(wasm("spread")).await.unwrap();
    assert!(!Arc::ptr_eq(&first.0, &second.0));
    let keeps = forgets.keeping_modules();
    let first = keeps.load(wasm("spread")).await.unwrap();
    // Somebody else's handle of the same engine.
    let second = keeps.clone().load(wasm("spread")).await.unwrap();
    assert!(Arc::ptr_eq(&first.0, &second.0));
    let error = keeps.load(Arc::from(&b"#!/bin/sh"[..])).await.unwrap_err();
    assert_eq!(
        keeps.load(Arc::from(&b"#!/bin/sh"[..])).await.unwrap_err(),
        error
    );
}

#[test]
fn f80_a_panic_says_why_in_the_log_and_in_the_answer() {
    let (called, log) = log_of(|| hostile("panic"));
    let said = format!(
        "panicked at policies/hostile/src/lib.rs:{}: on purpose",
        line_of(r#"panic!("on purpose")"#)
    );
    assert_eq!(error_of(called), format!("it crashed: {said}"));
    assert_eq!(
        log,
        [format!(
            r#"WARN policy says policy="hostile" line="{said}""#
        )]
    );
}

#[test]
fn f81_a_policy_that_spins_runs_out_of_fuel_and_uses_the_same_each_time() {
    let called = hostile("spin");
    assert_eq!(
        error_of(called.clone()),
        "it used up its 400000000 instructions"
    );
    assert_eq!(called.fuel, CALL_FUEL);
    assert_eq!(hostile("spin"), called);
}

#[test]
fn f90_the_same_question_costs_the_same_fuel() {
    let called = hostile("behave");
    assert!(
        called.result.is_ok() && (1..CALL_FUEL / 1000).contains(&called.fuel),
        "{called:?}"
    );
    assert_eq!(hostile("behave"), called);
}

#[test]
fn f82_memory_is_bounded() {
    assert_eq!(
        error_of(hostile("allocate")),
        "it asked for more than 64 MiB of memory"
    );
}

#[test]
fn f80_the_stack_is_bounded() {
    assert_eq!(
        error_of(hostile("recurse")),
        "it crashed: call stack exhausted"
    );
}

#[test]
fn f82_what_is_returned_is_bounded() {
    assert_eq!(
        error_of(hostile("huge-answer")),
        "it handed over more than 4 MiB at once"
    );
    assert_eq!(
        error_of(hostile("huge-state")),
        "its answer is invalid: its state has 4097 bytes; at most 4096 are kept"
    );
}

#[test]
fn lines_in_the_log_are_bounded_and_cost_fuel() {
    let (called, log) = log_of(|| hostile("log-forever"));
    assert_eq!(error_of(called), "it used up its 400000000 instructions");
    let mut expected = vec![r#"INFO policy says policy="hostile" line="again""#; 50];
    expected.push(
        r#"WARN policy says more than 50 lines in one call; the rest is dropped policy="hostile""#,
    );
    assert_eq!(log, expected);

    let (called, log) = log_of(|| hostile("log-much"));
    assert_eq!(
        (error_of(called).as_str(), log.len()),
        ("it handed over more than 4 MiB at once", 0)
    );
}

#[test]
fn a_policy_that_said_too_much_can_still_say_why_it_panics() {
    let (called, log) = log_of(|| hostile("log-then-panic"));
    let said = format!(
        "panicked at policies/hostile/src/lib.rs:{}: after 100 lines",
        line_of("after 100 lines")
    );
    assert_eq!(error_of(called), format!("it crashed: {said}"));
    assert_eq!(
        log.last().unwrap(),
        &format!(r#"WARN policy says policy="hostile" line="{said}""#)
    );
    assert_eq!(log.len(), 50 + 1 + 1);
}

#[test]
fn f90_an_instance_keeps_nothing_from_the_one_before() {
    let before = hostile("behave");
    for what in ["panic", "allocate", "recurse", "log-much"] {
        assert!(hostile(what).result.is_err());
    }
    assert_eq!(hostile("behave"), before);
}

#[tokio::test]
async fn settings_are_accepted_or_refused_with_the_field() {
    let module = crate::fixtures::module("hostile");
    let check = async |settings: &str| {
        engine()
            .check_settings(&module, "mine", settings.into())
            .await
            .map_err(|error| error.to_string())
    };
    assert_eq!(check("").await, Ok(()));
    assert_eq!(check(r#"{"do": "panic"}"#).await, Ok(()));
    assert_eq!(
        check(r#"{"did": "panic"}"#).await,
        Err("its settings are wrong: settings: unknown field `did`, expected `do`".to_owned())
    );
    let line = line_of("on purpose, in check-settings");
    assert_eq!(
        check(r#"{"do": "panic-in-check"}"#).await,
        Err(format!(
            "it crashed: panicked at policies/hostile/src/lib.rs:{line}: on purpose, in check-settings"
        ))
    );
}

#[test]
fn a_policy_of_another_kind_is_not_asked() {
    let mut order = crate::fixtures::order("hostile", "");
    order.policy.policy.name = "hostile".into();
    assert_eq!(
        error_of(ask(&Question::Order(order))),
        "it does not answer scale-down questions"
    );
}

#[test]
fn a_policy_without_a_name_or_with_a_schema_that_cannot_be_read_is_refused() {
    let said = |name: &str, schema: String| {
        let info = PolicyInfo {
            name: name.to_owned(),
            version: String::new(),
            description: String::new(),
            settings_schema: schema,
        };
        info.check().err().map(|error| error.to_string())
    };
    for schema in [String::new(), " \n".to_owned(), "{\n}".to_owned()] {
        assert_eq!(said("mine", schema), None);
    }
    for name in ["", "\u{200b} "] {
        let problem = said(name, String::new()).unwrap();
        assert!(problem.starts_with("describe gives no name"), "{problem}");
    }
    let problem = said("mine", "{".to_owned()).unwrap();
    assert!(
        problem.starts_with("its settings-schema is no JSON: EOF"),
        "{problem}"
    );
    let long = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    assert_eq!(said("mine", long(65536)), None);
    assert_eq!(
        said("mine", long(65537)).unwrap(),
        "its settings-schema has 65537 bytes, and kproxide reads at most 65536: shorten it"
    );
}
