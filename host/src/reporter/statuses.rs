//! What the tick found, in the conditions and counts of our own objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{ClassFacts, Delta, Existence, InventoryFacts};
use kproxide_planner::ids::ClassName;
use kproxide_planner::learned;
use kproxide_planner::report::AnchorReport;
use kproxide_planner::world::World;

use super::Reporter;
use super::judging::{Judged, Known, judged};
use super::policies::{Failed, Failures};
use crate::chain::chain;
use crate::kube::client::Client;
use crate::kube::crd::{HypervisorStatus, ProxmoxClusterStatus};
use crate::kube::error::Error;
use crate::kube::events::About;
use crate::kube::status::{Found, Judgement, Turn};

impl Reporter {
    /// An object has changed: perhaps its status too, by a late write of an earlier leader or by a user. So it is read
    /// again.
    pub fn forget_changed(&mut self, delta: &Delta) {
        let (resource, name, is_there) = if let Delta::Pool(name, pool) = delta {
            ("nodepools", name.as_str(), pool.is_some())
        } else if let Delta::Class(name, class) = delta {
            ("nodeclasses", name.as_str(), class.is_some())
        } else if let Delta::Cluster(name, cluster) = delta {
            ("proxmoxclusters", name.as_str(), cluster.is_some())
        } else {
            return;
        };
        match is_there {
            true => self.statuses.forget(resource, name),
            false => self.statuses.forget_all(resource, name),
        }
    }

    /// Why files of join scripts cannot be read, by their paths, from now on.
    pub fn judge_join_files(&mut self, problems: BTreeMap<Arc<str>, String>) {
        self.join_problems = problems;
    }

    pub(super) async fn write_statuses(
        &mut self,
        kube: &Client,
        (failures, failed): (&Failures, &Failed),
        frozen: Option<&str>,
        anchors: &[&AnchorReport],
        world: &World,
        now: Timestamp,
    ) {
        let Judged {
            clusters,
            classes,
            pools,
        } = judged(
            world,
            &Known {
                key_problem: self.key_problem.as_ref(),
                lacking: &self.lacking,
                join_problems: &self.join_problems,
                refusals: &self.refusals,
                unfit: &self.unfit,
                failures,
                frozen,
                anchors,
            },
        );
        for (name, facts) in world.pools() {
            let of_pool = world.claims().values();
            let nodes = of_pool.filter(|claim| claim.spec.pool == *name).count();
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            let judgements = pools.get(name).map_or(&[][..], Vec::as_slice);
            let found = of(&facts.existence, judgements);
            let policies = self.shown(name, facts, failed, now);
            let seen = (nodes, policies);
            let turns = self.statuses.pool(kube, name, seen, found, now).await;
            self.turned(About::pool(name, &facts.existence.uid), turns);
        }
        for (name, facts) in world.classes() {
            let Some(ready) = classes.get(name) else {
                continue;
            };
            self.class(kube, world, name, facts, ready, now).await;
        }
        for (name, facts) in world.clusters() {
            let seen = match world.inventories().get(name) {
                Some(inventory) => sighting(inventory, self.key_fingerprint.clone()),
                None => ProxmoxClusterStatus::default(),
            };
            let judgements = clusters.get(name).cloned().into_iter();
            let judgements: Vec<_> = judgements.chain(self.token_fits(name)).collect();
            let found = of(&facts.existence, &judgements);
            let turns = self.statuses.cluster(kube, name, seen, found, now).await;
            self.turned(About::cluster(name, &facts.existence.uid), turns);
        }
    }

    async fn class(
        &mut self,
        kube: &Client,
        world: &World,
        name: &ClassName,
        facts: &ClassFacts,
        ready: &Judgement,
        now: Timestamp,
    ) {
        let shown = learned::shown(world, name, facts);
        let found = of(&facts.existence, std::slice::from_ref(ready));
        let statuses = &mut self.statuses;
        let turns = statuses.class(kube, name, facts, shown, found, now).await;
        self.turned(About::class(name, &facts.existence.uid), turns);
    }

    /// What a write of a status came to.
    fn turned(&mut self, about: About, turns: Result<Vec<Turn>, Error>) {
        match turns {
            Ok(turns) => self.turns.note(&about, turns),
            Err(error) => {
                let (kind, name) = about.object();
                tracing::warn!(kind, name, error = %chain(&error), "status not written");
            }
        }
    }
}

fn of<'f>(existence: &Existence, judgements: &'f [Judgement]) -> Found<'f> {
    Found {
        generation: existence.generation,
        judgements,
    }
}

fn sighting(inventory: &InventoryFacts, key_fingerprint: Option<String>) -> ProxmoxClusterStatus {
    ProxmoxClusterStatus {
        reachable: Some(inventory.reachable),
        quorate: inventory.reachable.then_some(inventory.quorate),
        version: inventory.version.as_deref().map(str::to_owned),
        hypervisors: inventory
            .hypervisors
            .iter()
            .map(|(name, hypervisor)| HypervisorStatus {
                name: name.to_string(),
                online: hypervisor.online,
                maintenance: hypervisor.maintenance,
            })
            .collect(),
        // That of the key that new machines are marked with. Not given: what stands there is a person's to change.
        key_fingerprint,
        conditions: Vec::new(),
    }
}
