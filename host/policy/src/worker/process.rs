//! One child: starting it, a message there and back, and why it ended.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::wire::{self, Response};
use kproxide_common::foreign;

/// To set up the cage and say so.
const READY: Duration = Duration::from_secs(10);
/// Killed, it ends at once.
const END: Duration = Duration::from_secs(5);
/// What is looked at of the end of its standard error.
const ERROR_BYTES_KEPT: usize = 4 << 10;

/// Why a child is no more.
#[derive(Debug)]
pub(super) enum Gone {
    /// By somebody else, who may have meant another.
    Killed(String),
    /// It needed more than it might use.
    OutOfMemory(String),
    Died(String),
}

impl Gone {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Killed(reason) | Self::OutOfMemory(reason) | Self::Died(reason) => reason,
        }
    }
}

/// A running child. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Read when it has ended. A child that writes more than the pipe holds gets no further, and is ended for its silence.
    errors: ChildStderr,
    memory_bytes: u64,
}

impl Process {
    /// Starts a child that may use so much memory, and waits until its cage is shut. Says what of the cage the kernel refuses.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn start(
        program: &Path,
        memory_bytes: u64,
    ) -> Result<(Self, Vec<String>), String> {
        let mut child = Command::new(program)
            .arg("policy-worker")
            .arg(format!("--memory-bytes={memory_bytes}"))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("no process can be started for it: {error}"))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err("its process has no pipes".to_owned());
        };
        let process = Self {
            child,
            input,
            output,
            errors,
            memory_bytes,
        };
        match process.exchange(&[], READY).await.map_err(Gone::reason)? {
            (process, Response::Ready(refused)) => Ok((process, refused)),
            (process, _) => Err(process.contradicts().await),
        }
    }

    /// It has not ended while nobody asked it anything.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a request's frame, and returns what it answers. A process that fails at that is gone, and so is one whose answer nobody waits for any more.
    ///
    /// # Errors
    /// Why it is gone.
    pub(super) async fn exchange(
        mut self,
        message: &[u8],
        time: Duration,
    ) -> Result<(Self, Response), Gone> {
        let (input, output) = (&mut self.input, &mut self.output);
        let talk = async {
            input.write_all(message).await?;
            input.flush().await?;
            let mut frame = vec![0; wire::check_length(output.read_u32_le().await?)?];
            output.read_exact(&mut frame).await?;
            wire::decode(&frame)
        };
        let talked = timeout(time, talk).await;
        self.after(talked, time).await
    }

    /// The bytes that follow an answer's frame, as many as it says.
    ///
    /// # Errors
    /// Why it is gone.
    pub(super) async fn behind(
        mut self,
        length: usize,
        time: Duration,
    ) -> Result<(Self, Vec<u8>), Gone> {
        let mut bytes = vec![0; length];
        let read = timeout(time, self.output.read_exact(&mut bytes)).await;
        let (process, _) = self.after(read, time).await?;
        Ok((process, bytes))
    }

    /// A process that failed at what it was to do within this time is gone.
    async fn after<T>(
        self,
        outcome: Result<io::Result<T>, Elapsed>,
        time: Duration,
    ) -> Result<(Self, T), Gone> {
        match outcome {
            Ok(Ok(done)) => Ok((self, done)),
            Ok(Err(error)) if is_end(&error) => Err(self.ended().await),
            Ok(Err(error)) => {
                let reason = format!("its process sent {error}, and was ended");
                self.kill().await;
                Err(Gone::Died(reason))
            }
            Err(_) => {
                self.kill().await;
                Err(Gone::Died(format!(
                    "its process gave no answer within {time:?}, and was ended"
                )))
            }
        }
    }

    /// Ends a process that answers what it was not asked.
    pub(super) async fn contradicts(self) -> String {
        self.kill().await;
        "its process sent an answer to another question, and was ended".to_owned()
    }

    pub(super) async fn kill(mut self) {
        let _ = self.child.start_kill();
        let _ = timeout(END, self.child.wait()).await;
    }

    /// It has closed a pipe: it is about to end, or does so now.
    async fn ended(mut self) -> Gone {
        let status = match timeout(END, self.child.wait()).await {
            Ok(Ok(status)) => status,
            _ => {
                self.kill().await;
                return Gone::Died("its process closed its pipes, and was ended".to_owned());
            }
        };
        let mut errors = Vec::new();
        let _ = timeout(END, self.errors.read_to_end(&mut errors)).await;
        let last = errors.len().saturating_sub(ERROR_BYTES_KEPT);
        let last = String::from_utf8_lossy(&errors[last..]);
        let reason = why(status, &last, self.memory_bytes);
        match status.signal() {
            _ if is_out_of_memory(&last) => Gone::OutOfMemory(reason),
            Some(SIGKILL) => Gone::Killed(reason),
            _ => Gone::Died(reason),
        }
    }

    /// What it may still use is what it has, and so many bytes more. Returns what it has, or `None` where that cannot be told.
    pub(super) fn confine(&mut self, more_bytes: u64) -> Option<u64> {
        let pid = self.child.id()?;
        let bytes = data_bytes(pid)?;
        let most = bytes.saturating_add(more_bytes).min(self.memory_bytes);
        if set_memory(pid, most) {
            self.memory_bytes = most;
        }
        Some(bytes)
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// By what a process says that gets no more memory: Rust's own words, the kernel's, or those of wasmtime about the kernel's.
pub(super) fn is_out_of_memory(said: &str) -> bool {
    [
        "memory allocation of",
        "Cannot allocate memory",
        "os error 12",
    ]
    .iter()
    .any(|words| said.contains(words))
}

/// Why a child has ended: by its exit status and the end of its standard error.
fn why(status: ExitStatus, errors: &str, memory_bytes: u64) -> String {
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let last = foreign::line(last.unwrap_or_default(), 300);
    let said = match last.as_str() {
        "" => String::new(),
        last => format!(": {last}"),
    };
    let mib = memory_bytes >> 20;
    match (status.signal(), status.code()) {
        _ if is_out_of_memory(errors) => format!(
            "its process needed more memory than the {mib} MiB that it may use (see --policy-memory)"
        ),
        _ if errors.contains("has overflowed its stack") => {
            "it is nested too deeply: its process ran out of stack".to_owned()
        }
        (Some(SIGSYS), _) => {
            format!(
                "its process asked the kernel for what no policy needs, and was ended (SIGSYS){said}"
            )
        }
        (Some(SIGKILL), _) => format!(
            "its process was killed (SIGKILL): by somebody, or because the container ran out of memory{said}"
        ),
        (Some(SIGSEGV), _) => format!("its process crashed (SIGSEGV){said}"),
        (Some(signal), _) => format!("its process crashed (signal {signal}){said}"),
        (None, Some(code)) => format!("its process ended with exit code {code}{said}"),
        (None, None) => format!("its process ended{said}"),
    }
}

// As signal(7) has them, for all processors that kproxide runs on.
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGSYS: i32 = 31;

/// What a process has of what RLIMIT_DATA counts.
fn data_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(target_os = "linux")]
fn set_memory(pid: u32, bytes: u64) -> bool {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    prlimit(Some(pid), Resource::Data, limit).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn set_memory(_: u32, _: u64) -> bool {
    false
}
