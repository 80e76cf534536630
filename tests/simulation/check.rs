//! One seed: runs in a runtime of their own, and what they must end in.

use std::any::Any;
use std::cell::Cell;
use std::future::pending;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use kproxide_lab::Lab;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::log::Log;
use crate::plan::FaultPlan;
use crate::run::{self, Outcome};
use crate::scenario::Scenario;
use crate::settled::EndState;

/// Of virtual time, for one run, after the last change of its load: a few hours to come to rest, and what stops and starts around them.
const RUN_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// Of so many seeds one is run without faults as well: what a scenario ends in must hold there first of all.
const SOUND_OF: u64 = 50;

/// What one run came to.
pub(crate) struct Checked {
    /// `Err`: what did not hold.
    pub(crate) came: Result<Outcome, String>,
    pub(crate) log: Vec<u8>,
}

/// A seed's run without faults.
pub(crate) fn quiet_by_seed(seed: u64) -> Checked {
    check(&Scenario::of(seed), &FaultPlan::none())
}

/// A seed's run with faults, which it must have had; of every fiftieth seed the run without as well.
pub(crate) fn checked_by_seed(seed: u64) -> Checked {
    let scenario = Scenario::of(seed);
    if seed.is_multiple_of(SOUND_OF) {
        let mut sound = check(&scenario, &FaultPlan::none());
        if let Err(error) = &mut sound.came {
            error.insert_str(0, "without faults: ");
            return sound;
        }
    }
    let mut checked = check(&scenario, &FaultPlan::of(&scenario));
    checked.came = checked.came.and_then(|faulty| {
        if faulty.met_faults() {
            Ok(faulty)
        } else {
            Err("none of its faults happened".to_owned())
        }
    });
    checked
}

/// Runs a scenario under a plan; it must end as the scenario says.
pub(crate) fn check(scenario: &Scenario, plan: &FaultPlan) -> Checked {
    ends_as_it_says(scenario, simulate(scenario, plan))
}

/// What a run came to, if it ended as its scenario says.
pub(crate) fn ends_as_it_says(scenario: &Scenario, mut checked: Checked) -> Checked {
    checked.came = checked.came.and_then(|outcome| {
        let expected = EndState::expected(scenario, &outcome.end);
        if outcome.end == expected {
            Ok(outcome)
        } else {
            Err(format!(
                "it does not end as its last load says\n  expected: {expected:?}\n  ended: {:?}",
                outcome.end
            ))
        }
    });
    checked
}

/// One run in a runtime of its own.
pub(crate) fn simulate(scenario: &Scenario, plan: &FaultPlan) -> Checked {
    simulate_beside(scenario, plan, async |_: &Lab, _: &Log| pending().await)
}

/// As [`simulate`], with somebody who looks on, see [`run::run`].
pub(crate) fn simulate_beside(
    scenario: &Scenario,
    plan: &FaultPlan,
    beside: impl AsyncFnOnce(&Lab, &Log) -> String,
) -> Checked {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the system");
    let mut written = None;
    count_panics();
    PANICS.set(0);
    let came = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let log = written.insert(Log::new());
            let _listening = log.listen();
            let rest = scenario.quarantine.unwrap_or_default();
            let deadline = scenario.end() + rest + RUN_DEADLINE;
            let run = timeout(deadline, run::run(scenario, plan, log, beside));
            run.await
                .unwrap_or_else(|_| Err(format!("no end after {deadline:?}")))
        })
    }));
    let log = written.expect("the log is made first");
    let came = came.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&*panic))));
    let came = came.and_then(|came| match (PANICS.get(), log.errors()) {
        (0, errors) if errors.is_empty() => Ok(came),
        (0, errors) => Err(format!("a host logged errors:\n{}", errors.join("\n"))),
        (panics, _) => Err(format!("{panics} panics in tasks")),
    });
    Checked {
        came,
        log: log.take(),
    }
}

thread_local! {
    /// Panics on this thread, also those that somebody caught: tasks of the world and of hosts run here too.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

fn count_panics() {
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            told(info);
        }));
    });
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would keep a host busy for ever must not keep the simulation so.
    #[test]
    fn a_world_that_never_comes_to_rest_is_an_error() {
        let mut scenario = Scenario::of(1);
        scenario.want_too_much();
        let error = simulate(&scenario, &FaultPlan::none()).came.unwrap_err();
        assert!(error.contains("L4: no rest after "), "{error}");
    }

    #[test]
    fn a_panic_in_a_task_is_an_error() {
        count_panics();
        PANICS.set(0);
        let _ = catch_unwind(|| panic!("caught by somebody"));
        assert_eq!(PANICS.get(), 1);
    }
}
