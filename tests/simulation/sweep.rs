//! Many seeds, or plans, on a few threads.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::summary::Wall;

/// Of real time, for one run, which takes a second or a few: a loop within one instant never meets a virtual deadline.
pub(crate) const RUN_DEADLINE: Duration = Duration::from_secs(10 * 60);

/// Calls `run` for each job on so many threads, and `take` with each result, in the order in which they come.
pub(crate) fn each<Job: Copy + Display + Ord + Send, T: Send>(
    jobs: impl Iterator<Item = Job>,
    threads: usize,
    run: impl Fn(Job) -> T + Sync,
    take: impl FnMut(Job, T),
) {
    each_within(RUN_DEADLINE, jobs, threads, run, take);
}

/// As [`each`], for jobs that may take so long in real time.
pub(crate) fn each_within<Job: Copy + Display + Ord + Send, T: Send>(
    deadline: Duration,
    jobs: impl Iterator<Item = Job>,
    threads: usize,
    run: impl Fn(Job) -> T + Sync,
    mut take: impl FnMut(Job, T),
) {
    let jobs = Mutex::new(jobs.collect::<Vec<_>>().into_iter());
    let running = Mutex::new(BTreeMap::new());
    let (results, came) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (jobs, running, run, results) = (&jobs, &running, &run, results.clone());
            scope.spawn(move || {
                while let Some(job) = next(jobs) {
                    lock(running).insert(job, Wall::now());
                    let result = run(job);
                    lock(running).remove(&job);
                    if results.send((job, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        loop {
            match came.recv_timeout(Duration::from_secs(1)) {
                Ok((job, result)) => take(job, result),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            end_if_overdue(&lock(&running), deadline);
        }
    });
}

/// The jobs are free again for the other threads once one is taken.
fn next<Job>(jobs: &Mutex<impl Iterator<Item = Job>>) -> Option<Job> {
    lock(jobs).next()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, with the name of the job, when one does not end.
fn end_if_overdue(running: &BTreeMap<impl Display, Wall>, deadline: Duration) {
    let overdue = running.iter().find(|(_, since)| since.elapsed() > deadline);
    if let Some((job, _)) = overdue {
        let text = format!(
            "simulation: seed or plan {job} does not end: it takes more than {deadline:?}\n"
        );
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::abort();
    }
}
