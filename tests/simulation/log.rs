//! The log of one run: what every host asked and was told, what it decided, and what happened to machines, with virtual time. Two processes
//! with one seed write the same bytes.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Clones write to the same log.
#[derive(Clone)]
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    /// Lines of errors that were cut off with what was before them.
    errors: Arc<Mutex<Vec<String>>>,
    time: VirtualTime,
}

#[derive(Clone, Copy)]
struct VirtualTime {
    started: Instant,
}

impl Log {
    /// Must be called inside the runtime whose time it shows.
    pub(crate) fn new() -> Self {
        Self {
            text: Arc::default(),
            errors: Arc::default(),
            time: VirtualTime {
                started: Instant::now(),
            },
        }
    }

    /// One line.
    pub(crate) fn line(&self, source: &str, text: &str) {
        let mut log = self.lock();
        let mut line = String::new();
        let _ = self.time.format_time(&mut Writer::new(&mut line));
        log.extend_from_slice(format!("{line} {source}: {text}\n").as_bytes());
    }

    /// What hosts log on this thread goes here too, until the guard is dropped.
    pub(crate) fn listen(&self) -> DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("off,kproxide=debug"))
            .with_ansi(false)
            .with_timer(self.time)
            .with_writer(move || Lines(log.clone()))
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// What was written until now; the log is empty after that.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }

    /// Cuts off all but about the last `keep` bytes, and returns what is cut off. Errors in it are remembered.
    pub(crate) fn shorten(&self, keep: usize) -> Vec<u8> {
        let mut log = self.lock();
        let cut = log.len().saturating_sub(keep);
        let line = log[cut..].iter().position(|byte| *byte == b'\n');
        let cut = line.map_or(0, |end| if cut == 0 { 0 } else { cut + end + 1 });
        let rest = log.split_off(cut);
        let old = std::mem::replace(&mut *log, rest);
        lock(&self.errors).extend(errors_in(&old));
        old
    }

    /// The lines in which a host says that something is wrong with itself; faults around it are warnings.
    pub(crate) fn errors(&self) -> Vec<String> {
        let mut errors = lock(&self.errors).clone();
        errors.extend(errors_in(&self.lock()));
        errors
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.text)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errors_in(log: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(log);
    let is_error = |line: &&str| line.contains(" ERROR kproxide");
    text.lines().filter(is_error).map(str::to_owned).collect()
}

/// The last `count` lines of a log.
pub(crate) fn tail(log: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

impl FormatTime for VirtualTime {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        let elapsed = self.started.elapsed();
        let seconds = elapsed.as_secs();
        write!(
            out,
            "{:02}:{:02}:{:02}.{:06}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            elapsed.subsec_micros()
        )
    }
}

struct Lines(Log);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_cut_off_leaves_its_errors() {
        let log = Log::new();
        log.line("a", " ERROR kproxide: first");
        log.line("a", "second");
        let old = log.shorten(10);
        assert!(old.ends_with(b"first\n00:00:00.000000 a: second\n"));
        log.line("a", "third");
        assert!(log.shorten(1000).is_empty());
        assert_eq!(log.errors().len(), 1, "{:?}", log.errors());
        assert!(log.take().ends_with(b"third\n"));
    }
}
