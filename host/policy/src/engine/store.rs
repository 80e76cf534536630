//! One call of a policy: a store with its limits, an instance, and the answer or the reason for a failure.

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::plan::question::Question;
use thiserror::Error;
use wasmtime::component::Linker;
use wasmtime::{Config, OperatorCost, ResourceLimiter, Store, StoreContextMut, Trap};

use super::bindings::host_selection::kproxide::policy::log::Level;
use super::load::Compiled;
use super::reply::{Replied, Reply, Said};
use super::ticker::Running;
use super::{CallError, Engine, check, convert};
use kproxide_common::foreign;

/// Linear memories and tables of all instances of a component together.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// wasmtime's own representation of one table element.
const TABLE_ELEMENT_BYTES: usize = size_of::<usize>();
/// Core instances in one component: those of a Python component are about 40.
const INSTANCES_MAX: usize = 200;
const STACK_BYTES_MAX: usize = 512 << 10;
/// Bytes that one answer may hand to the host, as wasmtime counts them: 1000 candidates with reasons are 0.1 MB.
const RETURNED_BYTES_MAX: usize = 4 << 20;
/// The backstop is 25 ticks of 10 ms: 250 ms.
const TICKS_MAX: u64 = 25;
/// However little others have left.
const TICKS_MIN: u64 = 3;
/// What is listened to in one call. A policy that has said too much can still say why it panics.
pub(super) const LOG_LINES_MAX: u32 = 50;
pub(super) const LOG_ERRORS_MAX: u32 = 5;
pub(super) const LOG_BYTES_MAX: usize = 1024;
/// What a line costs the policy, whether it is listened to or not: the host's work, as instructions.
const LOG_FUEL_PER_LINE: u64 = 10_000;
const LOG_FUEL_PER_BYTE: u64 = 16;

/// What a component's memories hold at first. wasmtime puts it together when it compiles ([`Images::Kept`]), or compiles a function that does it for each
/// instance. Of the 37,000 pieces that Go's linker makes, that function takes 1 GB to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Images {
    Kept,
    Never,
}

/// The same for every engine: two hosts with one world and one policy come to one answer.
pub(super) fn configure(images: Images) -> wasmtime::Result<wasmtime::Engine> {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES_MAX)
        .wasm_relaxed_simd(false)
        .memory_init_cow(images == Images::Kept)
        .operator_cost(costs())
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(20));
    wasmtime::Engine::new(&config)
}

/// One for each instruction. A process of its own copies the first content of its memory where others map it: that costs no instructions, so that both count
/// alike, and a policy that copies it over and over is ended by the clock.
fn costs() -> OperatorCost {
    let mut costs = OperatorCost::new();
    costs.variable.memory_init_per_byte = 0;
    costs.MemoryInit = u8::MAX;
    costs
}

/// What lives as long as one instance.
pub(super) struct State {
    bytes_left: usize,
    lines_left: u32,
    errors_left: u32,
    said: Vec<Said>,
    dropped: bool,
    last_words: LastWords,
    /// What a call may use.
    fuel: u64,
    /// `None`: without the backstop.
    _running: Option<Running>,
}

#[derive(Debug, Error)]
#[error("more than {MEMORY_BYTES_MAX} bytes of memory")]
struct OutOfMemory;

impl State {
    /// An error, not `false`: a policy told that there is no memory left would only panic over it and hide the cause.
    fn take(
        &mut self,
        size: usize,
        (current, desired): (usize, usize),
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let more = desired.saturating_sub(current).saturating_mul(size);
        self.bytes_left = self.bytes_left.checked_sub(more).ok_or(OutOfMemory)?;
        Ok(true)
    }
}

/// wasmtime's ready-made limits hold for each memory; these hold for all memories and tables of a component.
impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.take(1, (current, desired), maximum)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.take(TABLE_ELEMENT_BYTES, (current, desired), maximum)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }
}

/// The one import. Generated code would reach the state alone: here a line also costs fuel, so that a policy that does nothing but talk comes to its end.
pub(super) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    linker.instance("kproxide:policy/log@0.1.0")?.func_wrap(
        "log",
        |mut store: StoreContextMut<'_, State>, (level, message): (Level, String)| {
            let cost = LOG_FUEL_PER_LINE + LOG_FUEL_PER_BYTE * message.len() as u64;
            let left = store.get_fuel()?.saturating_sub(cost);
            store.set_fuel(left)?;
            store.data_mut().say(level, &message);
            Ok(())
        },
    )?;
    Ok(linker)
}

impl State {
    pub(super) fn say(&mut self, level: Level, message: &str) {
        let line = foreign::line(message, LOG_BYTES_MAX);
        let is_error = level == Level::Error;
        if is_error {
            self.last_words.hear(&line);
            if self.last_words.is_stack {
                return;
            }
        }
        let left = if is_error && self.lines_left == 0 {
            &mut self.errors_left
        } else {
            &mut self.lines_left
        };
        let Some(fewer) = left.checked_sub(1) else {
            if !self.dropped {
                self.dropped = true;
                self.said.push(Said::TooMuch);
            }
            return;
        };
        *left = fewer;
        self.said.push(match level {
            Level::Debug => Said::Debug(line),
            Level::Info => Said::Info(line),
            Level::Warn | Level::Error => Said::Warn(line),
        });
    }
}

/// What a policy has said of its crash: the last line of level error, and of Go all that stands before the stack.
#[derive(Default)]
struct LastWords {
    said: Option<String>,
    /// Behind a panic the runtime of Go writes its stack, which the log has no room for.
    is_stack: bool,
}

impl LastWords {
    fn hear(&mut self, line: &str) {
        if line.starts_with("panicked at ") {
            // Rust's own words, whatever was said before.
            *self = Self::default();
        }
        // The runtime of Go writes its words in pieces, each of which is a line of the log.
        let of_go = |said: &&mut String| {
            ["panic:", "fatal error:"]
                .iter()
                .any(|it| said.starts_with(it))
        };
        match self.said.as_mut().filter(of_go) {
            None => self.said = Some(line.to_owned()),
            Some(_) if self.is_stack => {}
            Some(_) if line.starts_with("goroutine ") || line == "goroutine" => {
                self.is_stack = true
            }
            Some(said) if said.len() < LOG_BYTES_MAX => {
                said.push(' ');
                said.push_str(line);
            }
            Some(_) => {}
        }
    }
}

/// `spent`: instructions that others have taken of what there is.
pub(super) fn store(engine: &Engine, spent: u64) -> Store<State> {
    let running = engine.ticker.as_ref().map(|ticker| ticker.running());
    let state = State {
        bytes_left: MEMORY_BYTES_MAX,
        lines_left: LOG_LINES_MAX,
        errors_left: LOG_ERRORS_MAX,
        said: Vec::new(),
        dropped: false,
        last_words: LastWords::default(),
        fuel: 0,
        _running: running,
    };
    let mut store = Store::new(&engine.wasmtime, state);
    store.limiter(|state| state);
    store.set_hostcall_fuel(RETURNED_BYTES_MAX);
    let fuel = engine.fuel.saturating_sub(spent);
    store.set_fuel(fuel).expect("every engine counts fuel");
    store.data_mut().fuel = fuel;
    // Without a ticker the epoch never moves: the deadline must lie ahead, but not so far that adding it overflows.
    store.set_epoch_deadline(if engine.ticker.is_some() {
        let share = fuel.saturating_mul(TICKS_MAX) / engine.fuel.max(1);
        share.max(TICKS_MIN)
    } else {
        1 << 40
    });
    store
}

/// The instance stands, and the call begins. Starting has the same limit and is not counted: how many instructions it takes depends on whether the process
/// may have files.
fn begin(store: &mut Store<State>) -> wasmtime::Result<()> {
    let fuel = store.data().fuel;
    store.set_fuel(fuel)
}

pub(super) fn check_settings(engine: &Engine, compiled: &Compiled, settings: &str) -> Replied<()> {
    let settings = convert::given(settings);
    let mut store = store(engine, 0);
    let answer = if let Some(pre) = &compiled.host_selection {
        pre.instantiate(&mut store).and_then(|policy| {
            begin(&mut store)?;
            policy.call_check_settings(&mut store, settings)
        })
    } else if let Some(pre) = &compiled.scale_down {
        pre.instantiate(&mut store).and_then(|policy| {
            begin(&mut store)?;
            policy.call_check_settings(&mut store, settings)
        })
    } else {
        let Some(pre) = &compiled.labels else {
            return Replied::failed(CallError::WrongKind(PolicyKind::Labels), 0);
        };
        pre.instantiate(&mut store).and_then(|policy| {
            begin(&mut store)?;
            policy.call_check_settings(&mut store, settings)
        })
    };
    let result = match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refusal)) => Err(check::settings(convert::refused(refusal))),
        Err(error) => Err(failure(&error, store.data())),
    };
    replied(engine.fuel, store, result)
}

pub(super) fn ask(
    engine: &Engine,
    compiled: &Compiled,
    question: &Question,
    spent: u64,
) -> Replied<Reply> {
    let mut store = store(engine, spent);
    let result = match question {
        Question::Rank(rank) => match &compiled.host_selection {
            None => Err(CallError::WrongKind(PolicyKind::HostSelection)),
            Some(pre) => {
                let (context, request, candidates) = convert::rank(rank);
                pre.instantiate(&mut store)
                    .and_then(|policy| {
                        begin(&mut store)?;
                        policy.kproxide_policy_host_selection().call_rank(
                            &mut store,
                            &context,
                            &request,
                            &candidates,
                        )
                    })
                    .map_err(|error| failure(&error, store.data()))
                    .map(convert::ranking)
            }
        },
        Question::Order(order) => match &compiled.scale_down {
            None => Err(CallError::WrongKind(PolicyKind::ScaleDown)),
            Some(pre) => {
                let (context, nodes, hypervisors) = convert::order(order);
                pre.instantiate(&mut store)
                    .and_then(|policy| {
                        begin(&mut store)?;
                        policy.kproxide_policy_scale_down().call_order(
                            &mut store,
                            &context,
                            order.pool.as_str(),
                            &nodes,
                            &hypervisors,
                            order.max_removals,
                        )
                    })
                    .map_err(|error| failure(&error, store.data()))
                    .map(convert::removals)
            }
        },
        Question::Decorate(decorate) => match &compiled.labels {
            None => Err(CallError::WrongKind(PolicyKind::Labels)),
            Some(pre) => {
                let (machine, hypervisors) = convert::decorate(decorate);
                pre.instantiate(&mut store)
                    .and_then(|policy| {
                        begin(&mut store)?;
                        policy.kproxide_policy_labels().call_decorate(
                            &mut store,
                            convert::given(&decorate.policy.settings),
                            &machine,
                            &hypervisors,
                        )
                    })
                    .map_err(|error| failure(&error, store.data()))
                    .map(convert::decorations)
            }
        },
    };
    replied(engine.fuel.saturating_sub(spent), store, result)
}

fn replied<T>(given: u64, mut store: Store<State>, result: Result<T, CallError>) -> Replied<T> {
    let fuel = match &result {
        Err(CallError::Interrupted) => given,
        Ok(_) | Err(_) => given - store.get_fuel().unwrap_or(0),
    };
    Replied {
        result,
        fuel,
        said: std::mem::take(&mut store.data_mut().said),
    }
}

/// What wasmtime's error means for the policy's author.
pub(super) fn failure(error: &wasmtime::Error, state: &State) -> CallError {
    let cause = error.root_cause().to_string();
    let trap = error.downcast_ref::<Trap>();
    match trap {
        Some(Trap::OutOfFuel) => return CallError::OutOfFuel,
        Some(Trap::Interrupt) => return CallError::Interrupted,
        _ if error.is::<OutOfMemory>() => return CallError::OutOfMemory,
        // The type of this one is private to wasmtime.
        _ if cause.starts_with("too much data is being copied") => return CallError::TooMuch,
        _ => {}
    }
    tracing::debug!(error = format!("{error:#}"), "policy crashed");
    match &state.last_words.said {
        // A panic ends in this trap, which says nothing of it.
        Some(said) if trap == Some(&Trap::UnreachableCodeReached) => {
            CallError::Trapped(said.clone())
        }
        _ => CallError::Trapped(foreign::line(cause.trim_start_matches("wasm trap: "), 300)),
    }
}

/// Whether the component could not be put together because its interface is not ours, rather than because it did something.
pub(super) fn is_mismatch(error: &wasmtime::Error) -> bool {
    !error.is::<Trap>() && !error.is::<OutOfMemory>()
}
