//! Production: calls and compilations on blocking threads, with the wall clock as backstop.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;

use futures::poll;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use super::*;
use crate::fixtures::wasm;

fn blocking() -> Engine {
    Engine::new(Execution::Blocking).unwrap().with_fuel(1 << 50)
}

/// Panics unless the work waits for the one blocking thread, which is held for so long: then none of it is done on the thread that asks.
async fn elsewhere<T>(work: impl Future<Output = T>) -> T {
    let (release, held) = mpsc::channel::<()>();
    let holder = spawn_blocking(move || held.recv());
    let mut work = pin!(work);
    assert!(poll!(&mut work).is_pending());
    drop(release);
    assert!(holder.await.unwrap().is_err());
    work.await
}

#[test]
fn f93_nothing_runs_on_the_thread_that_asks() {
    let runtime = Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let engine = blocking();
        let module = elsewhere(engine.load(wasm("hostile"))).await.unwrap();
        assert_eq!(
            elsewhere(engine.check_settings(&module, "mine", "".into())).await,
            Ok(())
        );
        assert!(
            elsewhere(engine.ask(&module, &question("hostile", "")))
                .await
                .result
                .is_ok()
        );
    });
}

#[tokio::test]
async fn f81_a_call_that_fuel_does_not_end_is_ended_by_the_clock() {
    let engine = blocking();
    let module = engine.load(wasm("hostile")).await.unwrap();
    let called = engine
        .ask(&module, &question("hostile", r#"{"do": "spin"}"#))
        .await;
    assert_eq!(called.result, Err(CallError::Interrupted));
    assert_eq!(called.fuel, engine.fuel, "it costs all that it may use");
    assert_eq!(error_of(called), "it ran for more than 250 ms");
    // The clock begins anew with each call.
    assert!(
        engine
            .ask(&module, &question("hostile", ""))
            .await
            .result
            .is_ok()
    );
}

#[tokio::test]
async fn both_ways_to_execute_come_to_one_answer() {
    let engine = Engine::new(Execution::Blocking).unwrap();
    let module = engine.load(wasm("hostile")).await.unwrap();
    for what in ["behave", "panic", "allocate", "nan-score"] {
        let question = question("hostile", &format!(r#"{{"do": "{what}"}}"#));
        assert_eq!(
            engine.ask(&module, &question).await,
            ask(&question),
            "{what}"
        );
    }
}

#[tokio::test]
async fn calls_run_beside_each_other() {
    let engine = Engine::new(Execution::Blocking).unwrap();
    let module = engine.load(wasm("hostile")).await.unwrap();
    let question = question("hostile", "");
    let alone = engine.ask(&module, &question).await;
    let together = futures::future::join_all((0..16).map(|_| engine.ask(&module, &question))).await;
    assert!(together.iter().all(|called| *called == alone));
}
