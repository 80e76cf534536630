//! Looks again when a policy directory may have changed.
//!
//! The directory is watched, never the file: after the first swap of a ConfigMap mount a watched file tells nothing any more. What an event says is ignored, and
//! because watching can fail or miss (inotify instances run out on real Nodes), the files are looked at every 30 s anyway.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify_debouncer_full::notify::{EventKind, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, new_debouncer};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::files::{Directories, PolicyFiles};

const POLL: Duration = Duration::from_secs(30);
const DEBOUNCE: Duration = Duration::from_millis(250);

/// Reads the directories whenever they may have changed, or other policies are `named`, and hands over what lies in them, until the receiver is gone. Only
/// production uses this: its events come from the operating system.
pub async fn watch_directories(
    directories: Vec<PathBuf>,
    mut named: watch::Receiver<BTreeSet<Arc<str>>>,
    files: mpsc::Sender<PolicyFiles>,
) {
    let (changed, mut changes) = mpsc::channel(1);
    let debouncer = new_debouncer(DEBOUNCE, None, move |events: DebounceEventResult| {
        // Our own reading shows as access: reacting to it would never end.
        let worth_a_look = events.map_or(true, |events| {
            events
                .iter()
                .any(|event| !matches!(event.kind, EventKind::Access(_)))
        });
        if worth_a_look {
            // A full channel already says that there is something to look at.
            let _ = changed.try_send(());
        }
    });
    let mut debouncer = debouncer
        .inspect_err(|error| tracing::warn!(%error, "policy directories are not watched but looked at every 30 s"))
        .ok();
    let mut poll = tokio::time::interval_at(Instant::now(), POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watched = vec![false; directories.len()];
    let mut contents = Directories::new(&directories);
    loop {
        tokio::select! {
            biased;
            () = files.closed() => return,
            Some(()) = changes.recv() => {}
            Ok(()) = named.changed() => {}
            _ = poll.tick() => {}
        }
        // A directory that comes later is watched from then on.
        for (directory, watched) in directories.iter().zip(&mut watched) {
            if let Some(debouncer) = &mut debouncer {
                *watched = *watched && directory.exists();
                if !*watched {
                    *watched = debouncer
                        .watch(directory, RecursiveMode::NonRecursive)
                        .is_ok();
                }
            }
        }
        let first = named.borrow_and_update().clone();
        let reading = tokio::task::spawn_blocking(move || {
            let read = contents.read(&first);
            (contents, read)
        });
        let Ok((back, read)) = reading.await else {
            return;
        };
        contents = back;
        if files.send(read).await.is_err() {
            return;
        }
    }
}
