//! One call: a store with its limits, an instance, the answer or the reason why there is none.

use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::question::Question;
use wasmtime::{Config, Store, StoreLimits, StoreLimitsBuilder, Trap};

use super::bindings::host_selection::kproxide::policy::{log, types};
use super::{CALL_FUEL, CallError, Called, Engine, Execution, Module, convert};

const MEMORY_BYTES_MAX: usize = 64 << 20;
const STACK_BYTES_MAX: usize = 512 << 10;
/// Bytes that a call may hand to the host, as wasmtime counts them: 1000 candidates with reasons are 0.1 MB.
const RETURNED_BYTES_MAX: usize = 4 << 20;
/// The backstop is 25 ticks of 10 ms: 250 ms.
const TICK: Duration = Duration::from_millis(10);
const TICKS_MAX: u64 = 25;
const LOG_LINES_MAX: u32 = 50;
const LOG_BYTES_MAX: usize = 1024;

/// The same for every engine: two hosts with one world and one policy come to one answer.
pub(super) fn configure() -> wasmtime::Result<wasmtime::Engine> {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES_MAX)
        .wasm_relaxed_simd(false)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(20));
    wasmtime::Engine::new(&config)
}

/// Advances the engine's epoch from a thread of its own: a busy async runtime cannot delay it. Ends with the returned token.
pub(super) fn start_ticker(engine: &wasmtime::Engine) -> Arc<()> {
    let token = Arc::new(());
    let (alive, engine) = (Arc::downgrade(&token), engine.weak());
    std::thread::spawn(move || {
        while alive.strong_count() > 0 {
            std::thread::sleep(TICK);
            let Some(engine) = engine.upgrade() else {
                return;
            };
            engine.increment_epoch();
        }
    });
    token
}

/// What lives as long as one instance.
pub(super) struct State {
    limits: StoreLimits,
    policy: Arc<str>,
    lines_left: u32,
}

impl types::Host for State {}

impl log::Host for State {
    fn log(&mut self, level: log::Level, message: String) {
        let Some(left) = self.lines_left.checked_sub(1) else {
            return;
        };
        self.lines_left = left;
        let message = convert::printable(&message, LOG_BYTES_MAX);
        let policy = &*self.policy;
        match level {
            log::Level::Debug => tracing::debug!(policy, message, "policy says"),
            log::Level::Info => tracing::info!(policy, message, "policy says"),
            // A policy's errors are its own: they are no broken invariant of ours.
            log::Level::Warn | log::Level::Error => tracing::warn!(policy, message, "policy says"),
        }
    }
}

pub(super) fn store(engine: &Engine, policy: Arc<str>) -> Result<Store<State>, CallError> {
    let limits = StoreLimitsBuilder::new()
        .memory_size(MEMORY_BYTES_MAX)
        .table_elements(100_000)
        .trap_on_grow_failure(true)
        .build();
    let mut store = Store::new(
        &engine.wasmtime,
        State {
            limits,
            policy,
            lines_left: LOG_LINES_MAX,
        },
    );
    store.limiter(|state| &mut state.limits);
    store.set_hostcall_fuel(RETURNED_BYTES_MAX);
    store.set_fuel(CALL_FUEL).map_err(|error| failure(&error))?;
    // Without a ticker the epoch never moves: the deadline must lie ahead, but not so far that adding it overflows.
    store.set_epoch_deadline(match engine.execution {
        Execution::Blocking => TICKS_MAX,
        Execution::Inline => 1 << 40,
    });
    Ok(store)
}

pub(super) fn check_settings(
    engine: &Engine,
    module: &Module,
    settings: &str,
) -> Result<(), CallError> {
    let mut store = store(engine, module.0.info.name.as_str().into())?;
    let compiled = &module.0;
    let answer = if let Some(pre) = &compiled.host_selection {
        pre.instantiate(&mut store)
            .and_then(|policy| policy.call_check_settings(&mut store, settings))
    } else if let Some(pre) = &compiled.scale_down {
        pre.instantiate(&mut store)
            .and_then(|policy| policy.call_check_settings(&mut store, settings))
    } else if let Some(pre) = &compiled.labels {
        pre.instantiate(&mut store)
            .and_then(|policy| policy.call_check_settings(&mut store, settings))
    } else {
        return Err(CallError::WrongKind("any known"));
    };
    match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refusal)) => Err(match convert::refusal(refusal) {
            convert::Refusal::NoCandidate(text) | convert::Refusal::InvalidSettings(text) => {
                CallError::InvalidSettings(text)
            }
            convert::Refusal::Internal(text) => CallError::Internal(text),
        }),
        Err(error) => Err(failure(&error)),
    }
}

pub(super) fn ask(engine: &Engine, module: &Module, question: &Question) -> Called {
    let mut store = match store(engine, question.policy().policy.name.clone()) {
        Ok(store) => store,
        Err(error) => {
            return Called {
                result: Err(error),
                fuel: 0,
            };
        }
    };
    let compiled = &module.0;
    let result = match question {
        Question::Rank(rank) => match &compiled.host_selection {
            None => Err(CallError::WrongKind("host-selection")),
            Some(pre) => {
                let (context, request, candidates) = convert::rank(rank);
                pre.instantiate(&mut store)
                    .and_then(|policy| {
                        policy.kproxide_policy_host_selection().call_rank(
                            &mut store,
                            &context,
                            &request,
                            &candidates,
                        )
                    })
                    .map_err(|error| failure(&error))
                    .and_then(|answer| convert::ranking(answer, rank))
            }
        },
        Question::Order(order) => match &compiled.scale_down {
            None => Err(CallError::WrongKind("scale-down")),
            Some(pre) => {
                let (context, nodes, hypervisors) = convert::order(order);
                pre.instantiate(&mut store)
                    .and_then(|policy| {
                        policy.kproxide_policy_scale_down().call_order(
                            &mut store,
                            &context,
                            order.pool.as_str(),
                            &nodes,
                            &hypervisors,
                            order.max_removals,
                        )
                    })
                    .map_err(|error| failure(&error))
                    .and_then(|answer| convert::removals(answer, order))
            }
        },
        Question::Decorate(decorate) => match &compiled.labels {
            None => Err(CallError::WrongKind("labels")),
            Some(pre) => {
                let (machine, hypervisors) = convert::decorate(decorate);
                pre.instantiate(&mut store)
                    .and_then(|policy| {
                        policy.kproxide_policy_labels().call_decorate(
                            &mut store,
                            &decorate.policy.settings,
                            &machine,
                            &hypervisors,
                        )
                    })
                    .map_err(|error| failure(&error))
                    .and_then(|answer| convert::decorations(answer, decorate))
            }
        },
    };
    let fuel = CALL_FUEL - store.get_fuel().unwrap_or(0);
    Called { result, fuel }
}

/// What wasmtime's error means for the policy's author.
pub(super) fn failure(error: &wasmtime::Error) -> CallError {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => CallError::OutOfFuel,
        Some(Trap::Interrupt) => CallError::Interrupted,
        _ => {
            let text = format!("{error:#}");
            if text.contains("forcing trap when growing memory") {
                CallError::OutOfMemory
            } else if text.contains("too much data") {
                CallError::TooMuch(convert::printable(&text, 300))
            } else {
                CallError::Trapped(convert::printable(&text, 300))
            }
        }
    }
}
