//! All children together: how many there are, what memory they share, and that one compiles at a time.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kproxide_planner::ids::Digest;
use kproxide_planner::plan::question::Question;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::process::{Gone, Process, is_out_of_memory};
use super::wire::{self, Described, Request, Response};
use crate::content::Content;
use crate::engine::{CALL_FUEL, CallError, LoadError, Replied, Reply, UNPACKED_BYTES_MAX};
use kproxide_common::foreign;

/// Children at once. The one that was asked least recently ends for another.
const CHILDREN_MAX: usize = 16;
/// What a file may take to load: with the start and the end of its process that is a minute.
const LOAD: Duration = Duration::from_secs(55);
/// The instance's own 250 ms, and as much again twice for a machine that is busy.
const CALL: Duration = Duration::from_millis(750);
/// The first asker waits so long for a child that is being started again, unless it is a person. If it takes longer, a later question gets the answer.
const START: Duration = Duration::from_millis(500);
/// Of a call: an instance's memory, and the question and the answer.
const CALL_BYTES: u64 = 80 << 20;
/// Children end until so much is left to compile in.
const LOAD_BYTES_MIN: u64 = 96 << 20;
/// A process that somebody kills while it loads, or that cannot be had, is started again so often at once.
const STARTS_MAX: u32 = 3;
/// Files that ended their process, and are not tried again. Forgetting one costs another process.
const DEAD_MAX: usize = 1000;

/// Starts children, and keeps them within their limits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workers(Arc<Shared>);

/// A policy in a process of its own. Cheap to clone; its process ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Caged(Arc<Policy>);

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    /// For all children together.
    memory_bytes: u64,
    /// From the file to the answer what it is.
    load: Duration,
    /// Until a child that is being started again can be asked.
    start: Duration,
    compiling: tokio::sync::Mutex<()>,
    policies: Mutex<Vec<Weak<Policy>>>,
    /// By the files' bytes, of what they died.
    dead: Mutex<BTreeMap<Digest, String>>,
    /// Counts questions.
    asked: AtomicU64,
    /// What the kernel refuses has been told.
    has_told: AtomicBool,
    /// Work with children that goes on whether or not anybody waits for it; each has a deadline.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Policy {
    shared: Arc<Shared>,
    content: Content,
    /// Kept while pools use it, because an older file that is still good may be gone from the disk. `None`: read again when they are needed.
    bytes: Mutex<Option<Arc<[u8]>>>,
    /// `None`: it has ended, and is started again for the next question. Empty as well while it works: were the work given up, so would be the process.
    process: Arc<tokio::sync::Mutex<Option<Process>>>,
    /// Its process is being started again, and somebody has waited for that already.
    is_starting: AtomicBool,
    /// Why its last start failed, if nobody waited for that any more: the next asker is told.
    unstarted: Mutex<Option<String>>,
    /// What its process has taken of the memory; 0: there is none.
    held_bytes: AtomicU64,
    /// What its last process had taken.
    needs_bytes: AtomicU64,
    /// Its process has ended for another, and was not started again since.
    is_displaced: AtomicBool,
    /// When it was asked last, as [`Shared::asked`] counts.
    asked: AtomicU64,
}

impl Workers {
    /// With this program, which must know the command `policy-worker`, and so much memory for all together.
    pub fn new(program: PathBuf, memory_bytes: u64) -> Self {
        Self::with(program, memory_bytes, LOAD, START)
    }

    /// Of this very program, whatever lies at its path by the time that a child is started.
    ///
    /// # Errors
    /// The kernel does not say which program this is.
    pub fn of_this_program(memory_bytes: u64) -> io::Result<Self> {
        let program = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe()?,
        };
        Ok(Self::new(program, memory_bytes))
    }

    /// With another deadline than a minute, before any file is loaded.
    pub fn loading_within(self, load: Duration) -> Self {
        Self::with(self.0.program.clone(), self.0.memory_bytes, load, START)
    }

    /// For a person, who waits for a child as long as it takes.
    pub fn patient(self) -> Self {
        let load = self.0.load;
        Self::with(self.0.program.clone(), self.0.memory_bytes, load, load)
    }

    fn with(program: PathBuf, memory_bytes: u64, load: Duration, start: Duration) -> Self {
        Self(Arc::new(Shared {
            load,
            start,
            program,
            memory_bytes,
            compiling: tokio::sync::Mutex::default(),
            policies: Mutex::default(),
            dead: Mutex::default(),
            asked: AtomicU64::new(1),
            has_told: AtomicBool::new(false),
            tasks: Mutex::default(),
        }))
    }

    /// Loads a file in a child of its own.
    ///
    /// # Errors
    /// What the child says is wrong with it, or of what the child died. Bytes that a child has died of are not tried again.
    pub(crate) async fn load(&self, content: Content) -> Result<(Described, Caged), LoadError> {
        let shared = &self.0;
        if let Some(reason) = lock(&shared.dead).get(content.digest()) {
            return Err(LoadError::Died(reason.clone()));
        }
        let policy = Arc::new(Policy {
            shared: shared.clone(),
            content,
            bytes: Mutex::default(),
            process: Arc::default(),
            is_starting: AtomicBool::new(false),
            unstarted: Mutex::default(),
            held_bytes: AtomicU64::new(0),
            needs_bytes: AtomicU64::new(0),
            is_displaced: AtomicBool::new(false),
            asked: AtomicU64::new(shared.asked.fetch_add(1, Relaxed)),
        });
        match policy.start().await {
            Ok((process, described)) => {
                *policy.process.lock().await = Some(process);
                let mut policies = lock(&shared.policies);
                policies.retain(|policy| policy.strong_count() > 0);
                policies.push(Arc::downgrade(&policy));
                drop(policies);
                Ok((described, Caged(policy)))
            }
            Err(Unstarted::Refused(reason)) => Err(LoadError::Refused(reason)),
            Err(Unstarted::Unread(reason)) => Err(LoadError::Read(reason)),
            Err(Unstarted::Lost(reason) | Unstarted::Cramped(reason)) => {
                Err(LoadError::Died(reason))
            }
            Err(Unstarted::Died(reason)) => {
                let mut dead = lock(&shared.dead);
                if dead.len() >= DEAD_MAX {
                    dead.clear();
                }
                dead.insert(policy.content.digest().clone(), reason.clone());
                Err(LoadError::Died(reason))
            }
        }
    }
}

impl Workers {
    /// Makes a policy of a core module, in a child that ends with it.
    ///
    /// # Errors
    /// What the child says is wrong with it, or of what the child died.
    pub(crate) async fn wrap(&self, core: &[u8]) -> Result<Vec<u8>, LoadError> {
        let shared = &self.0;
        let _alone = shared.compiling.lock().await;
        let memory_bytes = shared.make_room(false);
        let started = Process::start(&shared.program, memory_bytes).await;
        let (process, refused) = started.map_err(LoadError::Died)?;
        shared.tell(&refused);
        let died = |gone: Gone| LoadError::Died(gone.reason());
        let message = wire::with_bytes(&Request::Wrap(core.len() as u64), core)
            .map_err(|error| LoadError::Died(error.to_string()))?;
        let (process, response) = (process.exchange(&message, shared.load).await).map_err(died)?;
        let length = match response {
            Response::Wrapped(Err(reason)) => {
                process.kill().await;
                return Err(LoadError::Refused(foreign::line(&reason, 2000)));
            }
            Response::Wrapped(Ok(length)) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Some(length).filter(|length| *length <= UNPACKED_BYTES_MAX)
            }
            Response::Ready(_)
            | Response::Loaded(_)
            | Response::Checked(_)
            | Response::Replied(_) => None,
        };
        let Some(length) = length else {
            return Err(LoadError::Died(process.contradicts().await));
        };
        let (process, component) = process.behind(length, shared.load).await.map_err(died)?;
        process.kill().await;
        Ok(component)
    }

    /// Ends the children of these files, and lets go of what can be read again.
    pub(crate) fn rest(&self, unused: &BTreeSet<Digest>) {
        let policies = lock(&self.0.policies);
        let policies = policies.iter().filter_map(Weak::upgrade);
        for policy in policies.filter(|it| unused.contains(it.content.digest())) {
            if policy.content.is_on_disk() {
                *lock(&policy.bytes) = None;
            }
            // One that is at work is left alone until the next time.
            if let Ok(mut process) = policy.process.try_lock() {
                policy.held_bytes.store(0, Relaxed);
                drop(process.take());
            }
        }
    }
}

impl Workers {
    /// What it takes to have the children of these files at once, and what there is, in bytes, if that is less: none could stay until the last is asked.
    pub(crate) fn misfit(&self, together: &BTreeSet<Digest>) -> Option<(u64, u64)> {
        let policies = lock(&self.0.policies);
        let policies = policies.iter().filter_map(Weak::upgrade);
        let policies = policies.filter(|it| together.contains(it.content.digest()));
        let needs: BTreeMap<Digest, u64> = policies
            .map(|it| (it.content.digest().clone(), it.needs_bytes.load(Relaxed)))
            .collect();
        let all: u64 = needs.values().sum();
        // At best the largest is compiled last.
        let others = all - needs.values().max()?;
        let needed = CALL_BYTES + all.max(others + LOAD_BYTES_MIN);
        let there = self.0.memory_bytes;
        (needs.len() > 1 && needed > there).then_some((needed, there))
    }
}

/// Why there is no child for a file.
enum Unstarted {
    /// Its file cannot be read again.
    Unread(String),
    /// The child's words.
    Refused(String),
    /// Through no fault of the file: the kernel started none, or somebody killed it.
    Lost(String),
    /// It had less memory than there is for all, because other children have some, and needs more.
    Cramped(String),
    Died(String),
}

impl Policy {
    async fn start(&self) -> Result<(Process, Described), Unstarted> {
        let (mut starts, mut ends_all) = (1, false);
        loop {
            match self.start_once(ends_all).await {
                Err(Unstarted::Lost(_)) if starts < STARTS_MAX => starts += 1,
                // Those that only wait to be asked end for it.
                Err(Unstarted::Cramped(_)) if !ends_all => ends_all = true,
                started => return started,
            }
        }
    }

    async fn start_once(&self, ends_all: bool) -> Result<(Process, Described), Unstarted> {
        let shared = &self.shared;
        let _alone = shared.compiling.lock().await;
        let bytes = self.read().await.map_err(Unstarted::Unread)?;
        let memory_bytes = shared.make_room(ends_all);
        let is_cramped = memory_bytes < shared.memory_bytes.saturating_sub(CALL_BYTES);
        let load = async {
            let started = Process::start(&shared.program, memory_bytes).await;
            let (process, refused) = started.map_err(Unstarted::Lost)?;
            shared.tell(&refused);
            let message = wire::with_bytes(&Request::Load(bytes.len() as u64), &bytes)
                .map_err(|error| Unstarted::Died(error.to_string()))?;
            let loaded = process.exchange(&message, shared.load).await;
            loaded.map_err(|gone| match gone {
                Gone::Killed(reason) => Unstarted::Lost(reason),
                Gone::OutOfMemory(reason) if is_cramped => Unstarted::Cramped(reason),
                Gone::OutOfMemory(reason) | Gone::Died(reason) => Unstarted::Died(reason),
            })
        };
        match load.await? {
            (mut process, Response::Loaded(Ok(described))) => {
                let held = process.confine(CALL_BYTES).unwrap_or(memory_bytes);
                self.held_bytes.store(held, Relaxed);
                self.needs_bytes.store(held, Relaxed);
                self.is_displaced.store(false, Relaxed);
                Ok((process, described))
            }
            (process, Response::Loaded(Err(reason))) => {
                process.kill().await;
                let reason = foreign::line(&reason, 2000);
                Err(match is_cramped && is_out_of_memory(&reason) {
                    true => Unstarted::Cramped(reason),
                    false => Unstarted::Refused(reason),
                })
            }
            (process, _) => Err(Unstarted::Died(process.contradicts().await)),
        }
    }

    async fn read(&self) -> Result<Arc<[u8]>, String> {
        if let Some(bytes) = &*lock(&self.bytes) {
            return Ok(bytes.clone());
        }
        let bytes = self.content.read().await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        *lock(&self.bytes) = Some(bytes.clone());
        Ok(bytes)
    }

    /// The process, started again if it has ended. An asker who stops waiting does not stop the start, and the next ones do not wait: together they would
    /// use up the tick's time.
    async fn running(self: Arc<Self>) -> Result<OwnedMutexGuard<Option<Process>>, CallError> {
        if self.is_starting.load(Relaxed) {
            return Err(CallError::Starting);
        }
        if let Some(reason) = lock(&self.unstarted).take() {
            return Err(CallError::Died(reason));
        }
        let running = async {
            let mut slot = self.process.clone().lock_owned().await;
            // One that somebody has killed meanwhile did not die of its policy.
            if slot.as_mut().is_some_and(Process::is_alive) {
                return Ok(slot);
            }
            *slot = None;
            self.held_bytes.store(0, Relaxed);
            let policy = self.clone();
            let (started, outcome) = oneshot::channel();
            let starts = Starting::of(&policy);
            self.shared.spawn(async move {
                let starting = policy.start().await;
                let outcome = match starting {
                    Ok((process, _)) => {
                        *slot = Some(process);
                        Ok(slot)
                    }
                    Err(
                        Unstarted::Refused(reason)
                        | Unstarted::Lost(reason)
                        | Unstarted::Cramped(reason)
                        | Unstarted::Died(reason)
                        | Unstarted::Unread(reason),
                    ) => Err(CallError::Died(format!(
                        "it cannot be started again: {reason}"
                    ))),
                };
                if let Err(Err(CallError::Died(reason))) = started.send(outcome) {
                    *lock(&policy.unstarted) = Some(reason);
                }
                drop(starts);
            });
            outcome
                .await
                .unwrap_or_else(|error| Err(CallError::Lost(error.to_string())))
        };
        let running = timeout(self.shared.start, running).await;
        running.unwrap_or_else(|_| {
            let there = self.shared.memory_bytes >> 20;
            Err(match self.is_displaced.load(Relaxed) {
                true => CallError::NoRoom(format!(
                    "its process had to end for those of others, and was not started again in time: all of them together need more than the {there} MiB \
                     that there are (--policy-memory)"
                )),
                false => CallError::Starting,
            })
        })
    }

    /// Whoever stops waiting for the answer, as at the end of a tick's time, leaves the process at its work.
    ///
    /// # Errors
    /// It has died, or cannot be had in time.
    async fn call(self: &Arc<Self>, request: &Request<'_>) -> Result<Response, CallError> {
        let shared = &self.shared;
        self.asked
            .store(shared.asked.fetch_add(1, Relaxed), Relaxed);
        let message = wire::encode(request)
            .map_err(|error| CallError::Lost(format!("the question is too large: {error}")))?;
        let (done, answer) = oneshot::channel();
        let policy = self.clone();
        shared.spawn(async move {
            let _ = done.send(policy.exchange(&message).await);
        });
        answer
            .await
            .unwrap_or_else(|error| Err(CallError::Lost(error.to_string())))
    }

    /// A question that somebody killed the process over is asked once more.
    async fn exchange(self: &Arc<Self>, message: &[u8]) -> Result<Response, CallError> {
        let mut may_repeat = true;
        loop {
            let mut slot = self.clone().running().await?;
            let Some(process) = slot.take() else {
                return Err(CallError::Starting);
            };
            match process.exchange(message, CALL).await {
                Ok((process, response)) => {
                    *slot = Some(process);
                    return Ok(response);
                }
                Err(Gone::Killed(_)) if may_repeat => may_repeat = false,
                Err(gone) => {
                    self.held_bytes.store(0, Relaxed);
                    return Err(CallError::Died(gone.reason()));
                }
            }
        }
    }

    /// Ends a process that answers what it was not asked.
    async fn contradicts<T>(&self) -> Replied<T> {
        let process = self.process.lock().await.take();
        self.held_bytes.store(0, Relaxed);
        failed(CallError::Died(match process {
            Some(process) => process.contradicts().await,
            None => "its process has ended".to_owned(),
        }))
    }
}

/// While this is there, the process is being started: until the end, however it comes.
struct Starting(Arc<Policy>);

impl Starting {
    fn of(policy: &Arc<Policy>) -> Self {
        policy.is_starting.store(true, Relaxed);
        Self(policy.clone())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.is_starting.store(false, Relaxed);
    }
}

impl Caged {
    pub(crate) async fn check_settings(&self, settings: &str) -> Replied<()> {
        let request = Request::CheckSettings(Cow::Borrowed(settings));
        match self.0.call(&request).await {
            Ok(Response::Checked(replied)) => replied.bounded(),
            Ok(
                Response::Ready(_)
                | Response::Loaded(_)
                | Response::Wrapped(_)
                | Response::Replied(_),
            ) => self.0.contradicts().await,
            Err(error) => failed(error),
        }
    }

    pub(crate) async fn ask(&self, question: &Question, spent: u64) -> Replied<Reply> {
        let request = Request::Ask(Cow::Borrowed(question), spent);
        match self.0.call(&request).await {
            Ok(Response::Replied(replied)) => replied.bounded(),
            Ok(
                Response::Ready(_)
                | Response::Loaded(_)
                | Response::Wrapped(_)
                | Response::Checked(_),
            ) => self.0.contradicts().await,
            Err(error) => failed(error),
        }
    }
}

/// A process that died has cost all that a call may.
fn failed<T>(error: CallError) -> Replied<T> {
    let has_died = matches!(error, CallError::Died(_));
    Replied::failed(error, if has_died { CALL_FUEL } else { 0 })
}

impl Shared {
    /// Ends children until there is room for another, or all that it may end. Returns what the other may use.
    fn make_room(&self, ends_all: bool) -> u64 {
        loop {
            let mut running: Vec<_> = lock(&self.policies)
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|policy| policy.held_bytes.load(Relaxed) > 0)
                .collect();
            let held: u64 = running
                .iter()
                .map(|policy| policy.held_bytes.load(Relaxed))
                .sum();
            let left = self.memory_bytes.saturating_sub(held + CALL_BYTES);
            let is_room = running.len() < CHILDREN_MAX && left >= LOAD_BYTES_MIN;
            if is_room && (!ends_all || running.is_empty()) {
                return left;
            }
            running.sort_by_key(|policy| policy.asked.load(Relaxed));
            let ended = running.iter().any(|policy| {
                // One that is at work is left alone.
                let Ok(mut process) = policy.process.try_lock() else {
                    return false;
                };
                policy.held_bytes.store(0, Relaxed);
                policy.is_displaced.store(true, Relaxed);
                drop(process.take());
                true
            });
            if !ended {
                return left.max(LOAD_BYTES_MIN);
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn tell(&self, refused: &[String]) {
        if !refused.is_empty() && !self.has_told.swap(true, Relaxed) {
            tracing::warn!(
                "the kernel refuses a part of the cage for policies of files: {}",
                refused.join(", ")
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
