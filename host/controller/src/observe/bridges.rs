//! The bridges of servers, read only where a class names some: a machine is made only where its bridges are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kproxide_planner::facts::{BridgeKind, InventoryFacts};
use tokio::time::{Instant, timeout};

use kproxide_pve::client::Client;
use kproxide_pve::inventory::Inventory;

/// kproxide asks each server this often, and believes no older answer.
const EVERY: Duration = Duration::from_secs(5 * 60);
const DEADLINE: Duration = Duration::from_secs(5);

/// What the servers of one cluster have told, and when.
#[derive(Clone, Default)]
pub(super) struct Bridges(BTreeMap<Arc<str>, Told>);

type Told = (Instant, Arc<BTreeMap<Arc<str>, BridgeKind>>);

impl Bridges {
    /// Asks each server that is online and has not told within five minutes.
    pub(super) async fn refreshed(mut self, client: &Client, inventory: &Inventory) -> Self {
        self.0.retain(|_, (told, _)| told.elapsed() < EVERY);
        let servers = inventory.hypervisors.iter();
        let owing = servers.filter(|it| it.online && !self.0.contains_key(&*it.name));
        let asked = owing.map(async |server| {
            let bridges = timeout(DEADLINE, client.bridges(&server.name)).await;
            Some((Arc::from(&*server.name), Arc::new(bridges.ok()?.ok()?)))
        });
        for (name, bridges) in join_all(asked).await.into_iter().flatten() {
            self.0.insert(name, (Instant::now(), bridges));
        }
        self
    }

    pub(super) fn fill(&self, facts: &mut InventoryFacts) {
        for (name, hypervisor) in &mut facts.hypervisors {
            let told = self.0.get(name);
            hypervisor.bridges = told.map(|(_, bridges)| bridges.clone());
        }
    }
}

/// Those of a cluster that any of its servers has told.
pub fn vnets(facts: &InventoryFacts) -> BTreeSet<Arc<str>> {
    let told = facts
        .hypervisors
        .values()
        .filter_map(|it| it.bridges.as_ref());
    let vnets = told.flat_map(|bridges| bridges.iter());
    let vnets = vnets.filter(|(_, kind)| **kind == BridgeKind::Vnet);
    vnets.map(|(name, _)| name.clone()).collect()
}
