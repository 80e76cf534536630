//! Lines for kproxide's log: the only thing that a policy can do besides answering.
//!
//! kproxide bounds their number and length and adds the policy's name. Outside WebAssembly the lines are collected, per
//! thread, for [`testkit::take_log`](crate::testkit::take_log).

pub use crate::bindings::host_selection::kproxide::policy::log::Level;

pub fn debug(message: &str) {
    log(Level::Debug, message);
}

pub fn info(message: &str) {
    log(Level::Info, message);
}

pub fn warn(message: &str) {
    log(Level::Warn, message);
}

pub fn error(message: &str) {
    log(Level::Error, message);
}

/// Writes one line at `level`.
#[cfg(target_arch = "wasm32")]
pub fn log(level: Level, message: &str) {
    crate::bindings::host_selection::kproxide::policy::log::log(level, message);
}

/// Writes one line at `level`.
#[cfg(not(target_arch = "wasm32"))]
pub fn log(level: Level, message: &str) {
    native::collect(level, message);
}

/// Makes a panic say where and why before it becomes a trap, which says neither. Called at the start of every export,
/// since each call has a fresh instance.
#[cfg(target_arch = "wasm32")]
pub(crate) fn panics_to_log() {
    std::panic::set_hook(Box::new(report));
}

#[cfg(target_arch = "wasm32")]
fn report(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    match panic.location() {
        Some(at) => error(&format!(
            "panicked at {}:{}: {message}",
            at.file(),
            at.line()
        )),
        None => error(message),
    }
}

/// Outside WebAssembly the usual hook already shows both.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn panics_to_log() {}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native {
    use std::cell::RefCell;

    use super::Level;

    /// A native caller that never takes the lines must not grow without bound.
    const LINES_MAX: usize = 1000;

    thread_local! {
        static LINES: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn collect(level: Level, message: &str) {
        LINES.with_borrow_mut(|lines| {
            if lines.len() < LINES_MAX {
                lines.push((level, message.to_owned()));
            }
        });
    }

    pub(crate) fn take() -> Vec<(Level, String)> {
        LINES.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::take_log;

    #[test]
    fn lines_are_collected_in_order_and_taken_once() {
        info("first");
        error("second");
        assert_eq!(
            take_log(),
            [
                (Level::Info, "first".to_owned()),
                (Level::Error, "second".to_owned())
            ]
        );
        assert_eq!(take_log(), []);
    }

    #[test]
    fn collected_lines_are_bounded() {
        for _ in 0..5000 {
            debug("again");
        }
        assert_eq!(take_log().len(), 1000);
    }
}
