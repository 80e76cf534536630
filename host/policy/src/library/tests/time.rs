//! What a policy may cost in wall time, and that one which the clock ends is left alone.

use kproxide_planner::ids::PoolName;

use super::*;
use crate::engine::Execution;

const SPIN: &str = r#"{"do": "spin"}"#;

/// On threads and with the clock, as in production, but without a limit of instructions: as on a machine that is too slow for its fuel.
async fn slow() -> Library {
    let engine = Engine::new(Execution::Blocking).unwrap();
    let library = Library::new(engine.with_fuel(1 << 50));
    library.sync(files(&[("mine", "hostile")])).await;
    library
}

const ON_TIME: &str = "policy mine: it ran for more than 250 ms";

#[tokio::test(start_paused = true)]
async fn w5_a_policy_that_the_clock_ends_five_times_is_tried_again_after_ten_minutes() {
    let library = slow().await;
    let spinning = named("mine", "hostile", SPIN);
    let said = async || ask(&library, &spinning).await.fallback.unwrap();
    for _ in 0..FAILURES_MAX {
        assert_eq!(said().await, ON_TIME);
    }
    let left_alone = "policy mine: after 5 failures in a row kproxide calls it only once in 10 minutes, or when its file or its settings change. The last failure: it ran for more than 250 ms";
    assert_eq!(said().await, left_alone);
    tokio::time::advance(BUSY_PAUSE - Duration::from_secs(1)).await;
    assert_eq!(said().await, left_alone);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(said().await, ON_TIME);
    // In the same words: a condition repeats them.
    assert_eq!(said().await, left_alone);
}

/// A pool without pods that wait asks nothing, and would stay not Ready for ever.
#[tokio::test(start_paused = true)]
async fn settings_whose_check_the_clock_ended_are_checked_again_though_nobody_asks() {
    let library = slow().await;
    let checking = named("mine", "hostile", r#"{"do": "spin-in-check"}"#);
    let judge = async || {
        let pool = (PoolName::from("workers"), checking.policy().clone());
        let mut budget = Budget::default();
        library
            .judge([pool].into_iter(), &mut budget)
            .await
            .given_up
    };
    for _ in 0..FAILURES_MAX {
        assert_eq!(judge().await, [].into());
    }
    assert_eq!(judge().await.len(), 1);
    tokio::time::advance(BUSY_PAUSE).await;
    assert_eq!(judge().await.len(), 1);
    // That was a call, so there is none for the next ten minutes.
    let said = ask(&library, &checking).await.fallback.unwrap();
    assert!(said.contains("after 5 failures in a row"), "{said}");
}

/// Twenty launches by a policy that never ends took 5.8 s.
#[tokio::test]
async fn w5_the_policies_of_a_tick_end_within_a_second_and_the_rest_goes_on() {
    let library = slow().await;
    let spinning = named("mine", "hostile", SPIN);
    let mut budget = Budget {
        fuel_left: u64::MAX,
        ..Budget::default()
    };
    let mut answered = 0;
    loop {
        let answer = library.ask(&spinning, &mut budget).await;
        if answer.body == AnswerBody::Deferred {
            break;
        }
        assert_eq!(answer.fallback.as_deref(), Some(ON_TIME));
        answered += 1;
        assert!(answered < FAILURES_MAX, "four times 250 ms are a second");
    }
    assert_eq!(budget.time_left, Duration::ZERO);
    let innocent = library.ask(&question("spread", ""), &mut budget).await;
    assert_eq!(innocent.body, AnswerBody::Deferred);
    assert_eq!(ask(&library, &question("spread", "")).await.fallback, None);
}

#[tokio::test]
async fn w5_a_call_that_the_end_of_the_ticks_time_cuts_short_is_no_failure() {
    let library = slow().await;
    let spinning = named("mine", "hostile", SPIN);
    for _ in 0..2 * FAILURES_MAX {
        let mut budget = Budget {
            time_left: Duration::from_millis(1),
            ..Budget::default()
        };
        let answer = library.ask(&spinning, &mut budget).await;
        assert_eq!((answer.fallback, answer.body), (None, AnswerBody::Deferred));
    }
    let said = ask(&library, &spinning).await.fallback.unwrap();
    assert_eq!(said, ON_TIME);
}

#[tokio::test]
async fn w5_a_check_of_settings_that_the_clock_ends_is_a_failure_too() {
    let library = slow().await;
    let checking = named("mine", "hostile", r#"{"do": "spin-in-check"}"#);
    let mut budget = Budget::default();
    let answer = library.ask(&checking, &mut budget).await;
    assert_eq!(answer.fallback.unwrap(), ON_TIME);
    assert!(budget.fuel_left <= 4 * CALL_FUEL, "{budget:?}");
    for _ in 1..FAILURES_MAX {
        ask(&library, &checking).await;
    }
    let said = ask(&library, &checking).await.fallback.unwrap();
    assert!(
        said.contains("after 5 failures in a row kproxide"),
        "{said}"
    );
}
