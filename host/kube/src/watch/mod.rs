//! From the API server's watches to the planner's deltas.
//!
//! One task per kind of object lists and watches it, converts every object at once and keeps only the names. When a
//! watch breaks (too old, a lost connection, a refused list), the next list is compared with the known names. So
//! objects that were deleted in between are reported as gone. Nothing is cached here: the one copy of the world is the
//! planner's.

mod backoff;
mod kinds;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use kproxide_planner::facts::Delta;
use kproxide_planner::ids::ClusterName;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::{Client, PAGE, larger_page, smaller_page};
use super::convert::{ClusterConnection, Unreadable, object_key};
use backoff::Backoff;
pub use kinds::Kind;
use kinds::Watched;
use kproxide_common::chain::chain;

/// One thing that is different now.
#[derive(Clone, Debug)]
pub enum Change {
    Delta(Delta),
    /// How to reach a Proxmox cluster; `None`: it is gone, or its settings cannot be used (its facts say why).
    Connection(ClusterName, Option<ClusterConnection>),
    /// An object that cannot be read: what was known of it still counts. For people, once per change of the object.
    Unreadable(Unreadable),
}

/// What one watch has to say, in order.
#[derive(Clone, Debug)]
pub enum Report {
    Changes(Kind, Vec<Change>),
    /// The first list is complete. Sent once per watch, after the changes of that list.
    Synced(Kind),
    /// The watch failed and is going to be tried again; for people. What is known is not current until [`Report::Recovered`].
    Failed(Kind, String),
    /// It works again.
    Recovered(Kind),
}

/// A watch that expires sooner than this after its list counts as failed. So a server that forgets faster than it lists
/// is reported, and not asked without a pause.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// A watch counts as sound only if it lived this long after its list. If a list were enough, a server that allows lists
/// and refuses watches would be asked for whole lists every second.
const SOUND_LIFE: Duration = Duration::from_secs(30);

/// A batch with this many changes is sent before more events are taken. (The names that a list lacks come as one
/// batch.)
const CHANGES_ENOUGH: usize = 256;

/// The watches of all kinds, each a task to be owned and awaited by the caller. A task ends when its receiver is gone.
/// Dropping the task ends the watch.
///
/// The channel's bound is the only buffer: a slow receiver slows the watches down. The first lists run side by side: one
/// after the other, a list that hangs would keep all others back, and the peak of memory is that of the Pods anyway.
pub fn tasks(
    client: &Client,
    reports: &mpsc::Sender<Report>,
) -> Vec<(Kind, BoxFuture<'static, ()>)> {
    Kind::ALL
        .into_iter()
        .map(|kind| (kind, kind.run(client.clone(), reports.clone())))
        .collect()
}

async fn run<K: Watched>(client: Client, reports: mpsc::Sender<Report>) {
    let path = K::url_path(&(), None);
    let mut follower = Follower::new(reports);
    loop {
        // Begins again with a list. After a failure, a watch alone would show only with the next change that it works
        // again. After an expiry there is no version to watch from.
        let config = watcher::Config::default().page_size(follower.page);
        let events = watcher(client.all::<K>(), K::selection(config));
        let (client, path) = (client.clone(), path.clone());
        let events = events.inspect(move |event| {
            if let Ok(Event::Apply(object) | Event::Delete(object)) = event
                && let Some(version) = &object.meta().resource_version
            {
                client.shown(&path, version);
            }
        });
        match follower.follow::<K>(std::pin::pin!(events)).await {
            Ok(()) => {}
            // The end of the program, not an error.
            Err(Closed) => return,
        }
    }
}

/// The receiver is gone.
struct Closed;

/// One watch, over its failures.
struct Follower {
    reports: mpsc::Sender<Report>,
    known: Known,
    backoff: Backoff,
    /// Objects per page of its next list.
    page: u32,
    failing: bool,
    synced: bool,
}

impl Follower {
    fn new(reports: mpsc::Sender<Report>) -> Self {
        Self {
            reports,
            known: Known::default(),
            backoff: Backoff::default(),
            page: PAGE,
            failing: false,
            synced: false,
        }
    }

    /// Until the watch fails or expires, and it is time to start it again.
    async fn follow<K: Watched>(
        &mut self,
        mut events: impl Stream<Item = watcher::Result<Event<K>>> + Unpin,
    ) -> Result<(), Closed> {
        let mut listed_at = None;
        while let Some(first) = events.next().await {
            let mut changes = Vec::new();
            let mut listed = false;
            let mut failure = None;
            let mut next = Some(first);
            while let Some(event) = next.take() {
                match event {
                    Ok(event) => listed |= self.known.take(event, &mut changes),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
                if changes.len() < CHANGES_ENOUGH {
                    next = events.next().now_or_never().flatten();
                }
            }
            if !changes.is_empty() {
                self.send(Report::Changes(K::KIND, changes)).await?;
            }
            if listed {
                listed_at = Some(Instant::now());
                self.page = larger_page(self.page);
            }
            if listed && self.failing {
                self.failing = false;
                self.send(Report::Recovered(K::KIND)).await?;
            }
            if listed && !self.synced {
                self.synced = true;
                self.send(Report::Synced(K::KIND)).await?;
            }
            let Some(error) = failure else { continue };
            let life = listed_at.map_or(Duration::ZERO, |at| at.elapsed());
            if is_expired(&error) && life >= SHORTEST_LIFE {
                // Ordinary: the server keeps history for a few minutes only. kube's watcher would list again by itself, but where the watch was refused
                // before it began it would ask for the same version, at once and for ever.
                tracing::debug!(resource = %K::KIND, "watch expired");
                break;
            }
            if life >= SOUND_LIFE {
                self.backoff = Backoff::default();
            }
            self.failing = true;
            self.send(Report::Failed(K::KIND, chain(&error))).await?;
            match smaller_page(self.page, &error) {
                Some(page) => self.page = page,
                None => tokio::time::sleep(self.backoff.next_delay()).await,
            }
            break;
        }
        Ok(())
    }

    async fn send(&self, report: Report) -> Result<(), Closed> {
        self.reports.send(report).await.map_err(|_| Closed)
    }
}

/// The server no longer has the history that the watch needs; a new list cures it. A list refused as too old is a failure like any other: what is
/// known is not current before one succeeds, and the next one may be refused as well.
fn is_expired(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::WatchError(status)
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code,
        watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::InitialListFailed(_)
        | watcher::Error::NoResourceVersion => return false,
    };
    code == 410
}

/// Which objects of a kind were reported and not yet reported gone, each with the list that has shown it.
#[derive(Default)]
struct Known {
    names: BTreeMap<Box<str>, u32>,
    /// How many lists have begun.
    lists: u32,
}

impl Known {
    /// True if a list has just been completed.
    fn take<K: Watched>(&mut self, event: Event<K>, changes: &mut Vec<Change>) -> bool {
        let mut tell = |name: &str, object: Option<&K>| match K::changes(name, object) {
            Ok(all) => changes.extend(all),
            Err(unreadable) => changes.push(Change::Unreadable(unreadable)),
        };
        match event {
            Event::Init => self.lists = self.lists.wrapping_add(1),
            Event::InitApply(object) | Event::Apply(object) => {
                let name = full_name(&object);
                tell(&name, Some(&object));
                self.names.insert(name, self.lists);
            }
            Event::InitDone => {
                let lists = self.lists;
                self.names.retain(|name, shown| {
                    let listed = *shown == lists;
                    if !listed {
                        tell(name, None);
                    }
                    listed
                });
                return true;
            }
            Event::Delete(object) => {
                let name = full_name(&object);
                self.names.remove(&name);
                tell(&name, None);
            }
        }
        false
    }
}

/// `name`, or `namespace/name`.
fn full_name<K: kube::Resource>(object: &K) -> Box<str> {
    let key = object_key(object.meta());
    if key.namespace.is_empty() {
        (*key.name).into()
    } else {
        key.to_string().into()
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
