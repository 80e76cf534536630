//! The wall-clock backstop: a thread that advances the engine's epoch while policies run, and waits while none does.
//!
//! It is a thread of its own, so that a busy async runtime cannot delay it. It never catches up on ticks that it missed: on a machine under load that would
//! end policies that have hardly run.

use std::io;
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wasmtime::EngineWeak;

const TICK: Duration = Duration::from_millis(10);

/// Ends its thread when dropped.
pub(super) struct Ticker(Arc<Shared>);

/// Keeps the epoch advancing for as long as it lives: one per instance.
pub(super) struct Running(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    running: usize,
    ended: bool,
}

impl Ticker {
    pub(super) fn start(engine: &wasmtime::Engine) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (of_thread, engine) = (shared.clone(), engine.weak());
        // A cage that is shut while a thread begins ends it: its C library still asks the kernel for things.
        let begun = Arc::new(Barrier::new(2));
        let begins = begun.clone();
        std::thread::Builder::new()
            .name("policy-ticker".to_owned())
            .spawn(move || {
                begins.wait();
                tick(&of_thread, &engine);
            })?;
        begun.wait();
        Ok(Self(shared))
    }

    pub(super) fn running(&self) -> Running {
        self.0.lock().running += 1;
        self.0.changed.notify_one();
        Running(self.0.clone())
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tick(shared: &Shared, engine: &EngineWeak) {
    loop {
        let idle = |calls: &mut Calls| calls.running == 0 && !calls.ended;
        let calls = shared
            .changed
            .wait_while(shared.lock(), idle)
            .unwrap_or_else(PoisonError::into_inner);
        if calls.ended {
            return;
        }
        drop(calls);
        std::thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.increment_epoch();
    }
}
