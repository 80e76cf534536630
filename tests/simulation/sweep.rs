//! Many seeds on a few threads.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::summary::Wall;

/// Of real time, for one seed, which takes a second or a few: a loop within one instant never meets a virtual deadline.
const SEED_DEADLINE: Duration = Duration::from_secs(10 * 60);

/// Calls `run` for each seed on so many threads, and `take` with each result, in the order in which they come.
pub(crate) fn each<T: Send>(
    seeds: impl Iterator<Item = u64>,
    threads: usize,
    run: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(u64, T),
) {
    let seeds = Mutex::new(seeds.collect::<Vec<_>>().into_iter());
    let running = Mutex::new(BTreeMap::new());
    let (results, came) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (seeds, running, run, results) = (&seeds, &running, &run, results.clone());
            scope.spawn(move || {
                while let Some(seed) = next(seeds) {
                    lock(running).insert(seed, Wall::now());
                    let result = run(seed);
                    lock(running).remove(&seed);
                    if results.send((seed, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        loop {
            match came.recv_timeout(Duration::from_secs(1)) {
                Ok((seed, result)) => take(seed, result),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            end_if_overdue(&lock(&running));
        }
    });
}

/// The seeds are free again for the other threads once one is taken.
fn next(seeds: &Mutex<impl Iterator<Item = u64>>) -> Option<u64> {
    lock(seeds).next()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, with the name of the seed, when one does not end.
fn end_if_overdue(running: &BTreeMap<u64, Wall>) {
    let overdue = running
        .iter()
        .find(|(_, since)| since.elapsed() > SEED_DEADLINE);
    if let Some((seed, _)) = overdue {
        let text =
            format!("simulation: seed {seed} does not end: it takes more than {SEED_DEADLINE:?}\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::abort();
    }
}
