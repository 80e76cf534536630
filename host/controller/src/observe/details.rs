//! What servers say of themselves to policies, read beside the loop: a tick takes what is known, and waits for nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::facts::{HypervisorDetails, InventoryFacts};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use kproxide_pve::client::Client;
use kproxide_pve::inventory::Inventory;

/// kproxide asks each server this often.
const EVERY: Duration = Duration::from_secs(60);
/// A load and notes that are older are told to nobody. What the server is made of stays.
const MEASURED_MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// The first look at a cluster waits this long, so that labels made of a kernel's version have it from the start.
const FIRST: Duration = Duration::from_secs(2);

/// The details of one cluster's servers.
#[derive(Default)]
pub(super) struct Details {
    known: BTreeMap<Arc<str>, Known>,
    reading: Reading,
    asked: Option<Instant>,
}

struct Known {
    at: Instant,
    details: Arc<HypervisorDetails>,
}

type Told = (Arc<str>, Option<HypervisorDetails>);
type Reading = JoinSet<Told>;

impl Details {
    /// Takes what was told since the last look. If it is time, asks each server that is online; who still owes an answer
    /// from before is not waited for. Gives back what the first look waits for: see [`first`].
    pub(super) fn refresh(&mut self, client: &Client, inventory: &Inventory) -> Option<Reading> {
        while let Some(told) = self.reading.try_join_next() {
            told.into_iter().for_each(|told| self.take(told));
        }
        if self.asked.is_some_and(|asked| asked.elapsed() < EVERY) {
            return None;
        }
        let is_first = self.asked.replace(Instant::now()).is_none();
        let mut reading = JoinSet::new();
        for hypervisor in inventory.hypervisors.iter().filter(|it| it.online) {
            let (client, name) = (client.clone(), hypervisor.name.clone());
            reading.spawn(async move {
                let details = client.details(&name).await;
                (name.into(), details)
            });
        }
        if is_first {
            return Some(reading);
        }
        self.reading = reading;
        None
    }

    /// What came of the first look, and what is still to come.
    pub(super) fn take_first(&mut self, first: Option<(Vec<Told>, Reading)>) {
        if let Some((told, reading)) = first {
            told.into_iter().for_each(|told| self.take(told));
            self.reading = reading;
        }
    }

    /// What is not told this time is as it was told before, where it does not change while the server runs.
    fn take(&mut self, (name, told): Told) {
        let Some(mut details) = told else { return };
        if let Some(before) = self.known.get(&name) {
            let HypervisorDetails {
                cpu_model,
                sockets,
                version,
                kernel,
                load: _,
                tags: _,
            } = (*before.details).clone();
            details.cpu_model = details.cpu_model.or(cpu_model);
            details.sockets = details.sockets.or(sockets);
            details.version = details.version.or(version);
            details.kernel = details.kernel.or(kernel);
        }
        let (at, details) = (Instant::now(), Arc::new(details));
        self.known.insert(name, Known { at, details });
    }

    /// Tells of each server what is known of it.
    pub(super) fn fill(&mut self, facts: &mut InventoryFacts) {
        let is_there = |name: &Arc<str>| facts.hypervisors.contains_key(name);
        self.known.retain(|name, _| is_there(name));
        for (name, known) in &mut self.known {
            let is_old = known.at.elapsed() >= MEASURED_MAX_AGE;
            if is_old && (known.details.load.is_some() || known.details.tags.is_some()) {
                let details = Arc::make_mut(&mut known.details);
                (details.load, details.tags) = (None, None);
            }
            if let Some(hypervisor) = facts.hypervisors.get_mut(name) {
                hypervisor.details = Some(known.details.clone());
            }
        }
    }
}

/// What servers tell at once, and those that are slower.
pub(super) async fn first(reading: Option<Reading>) -> Option<(Vec<Told>, Reading)> {
    let mut reading = reading?;
    let (until, mut told) = (Instant::now() + FIRST, Vec::new());
    while let Ok(Some(one)) = timeout_at(until, reading.join_next()).await {
        told.extend(one.ok());
    }
    // Tasks end in any order.
    told.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some((told, reading))
}
