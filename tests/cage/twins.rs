//! In a process of its own a policy says what it says in this one, and uses as many instructions.

use std::sync::Arc;

use fastrand::Rng;
use kproxide_builtins::{BUILTINS, HOSTILE};
use kproxide_policy::{CallError, Engine, Execution};

use super::questions::question;
use super::{caged, wasm};
use tokio::time::Instant;

const QUESTIONS: usize = 50;

#[tokio::test]
async fn f90_a_policy_answers_the_same_in_a_process_of_its_own_for_the_same_instructions() {
    let (here, there) = (Engine::new(Execution::Inline).unwrap(), caged());
    for policy in BUILTINS {
        let module = here
            .load_file(Arc::<[u8]>::from(policy.wasm))
            .await
            .unwrap();
        let twin = there
            .load_file(Arc::<[u8]>::from(policy.wasm))
            .await
            .unwrap();
        assert_eq!(module.info(), twin.info());
        assert_eq!(module.kinds(), twin.kinds());
        assert_eq!(module.digest(), twin.digest());
        assert_eq!(module.imports(), twin.imports());
        assert_eq!(module.unpacked_bytes(), twin.unpacked_bytes());
        let mut rng = Rng::with_seed(7);
        for n in 0..QUESTIONS {
            let question = question(policy.kind, policy.name, "", &mut rng);
            let expected = here.ask(&module, &question).await;
            assert!(expected.fuel > 0);
            let said = there.ask(&twin, &question).await;
            assert_eq!(said, expected, "question {n} to {}", policy.name);
        }
    }
}

/// What goes wrong is told in the same words, whichever process it went wrong in.
#[tokio::test]
async fn f90_a_policy_fails_the_same_in_a_process_of_its_own() {
    let (here, there) = (Engine::new(Execution::Inline).unwrap(), caged());
    let hostile = &HOSTILE.iter().find(|it| it.name == "hostile").unwrap();
    let module = here.load_file(wasm("hostile")).await.unwrap();
    let twin = there.load_file(wasm("hostile")).await.unwrap();
    let mut rng = Rng::with_seed(7);
    for what in [
        "behave",
        "panic",
        "allocate",
        "recurse",
        "huge-answer",
        "huge-state",
        "log-much",
        "log-then-panic",
        "nan-score",
        "nosuch",
    ] {
        let settings = format!(r#"{{"do": "{what}"}}"#);
        let question = question(hostile.kind, "hostile", &settings, &mut rng);
        let (expected, said) = (
            here.ask(&module, &question).await,
            there.ask(&twin, &question).await,
        );
        // The clock, which an engine that runs inline has not, ends a call on a machine that is busy.
        if said.result != Err(CallError::Interrupted) {
            assert_eq!(said, expected, "{what}");
        }
        assert_eq!(
            there
                .check_settings(&twin, "hostile", settings.as_str().into())
                .await,
            here.check_settings(&module, "hostile", settings.as_str().into())
                .await,
            "{what}"
        );
    }
    for bytes in [&b"#!/bin/sh"[..], b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"] {
        let expected = here
            .load_file(Arc::<[u8]>::from(bytes))
            .await
            .unwrap_err()
            .to_string();
        let said = there
            .load_file(Arc::<[u8]>::from(bytes))
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn w21_a_core_module_is_wrapped_and_refused_the_same_in_a_process_of_its_own() {
    let (here, there) = (Engine::new(Execution::Inline).unwrap(), caged());
    let policy = r#"(module
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
        (func (export "describe") (result i32) (i32.const 0))
        (func (export "check-settings") (param i32 i32) (result i32) (i32.const 0))
        (func (export "kproxide:policy/host-selection@0.1.0#rank") (param i32) (result i32) (i32.const 0)))"#;
    let policy = wat::parse_str(policy).unwrap();
    let broken = &policy[..policy.len() - 9];
    for (core, is_policy) in [
        (&policy[..], true),
        (broken, false),
        (&b"#!/bin/sh"[..], false),
    ] {
        let expected = here.wrap(core.into()).await;
        assert_eq!(expected.is_ok(), is_policy, "{expected:?}");
        assert_eq!(there.wrap(core.into()).await, expected);
    }
}

/// Printed, and held to what no machine is too slow for.
#[tokio::test]
async fn a_process_of_its_own_costs_a_call_little() {
    let (here, there) = (Engine::new(Execution::Inline).unwrap(), caged());
    let module = here.load_file(wasm("spread")).await.unwrap();
    let twin = there.load_file(wasm("spread")).await.unwrap();
    let policy = kproxide_builtins::builtin("spread").unwrap();
    let question = question(policy.kind, "spread", "", &mut Rng::with_seed(1));
    let mut costs = Vec::new();
    for (engine, module) in [(&here, &module), (&there, &twin)] {
        let started = Instant::now();
        for _ in 0..200 {
            assert!(engine.ask(module, &question).await.result.is_ok());
        }
        costs.push(started.elapsed() / 200);
    }
    eprintln!(
        "a call in this process {:?}, in another {:?}",
        costs[0], costs[1]
    );
    assert!(costs[1].as_millis() < 100, "{costs:?}");
}
