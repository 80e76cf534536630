//! Proxmox clusters as the loop sees them: one client and one inventory each, refreshed when too old.
//!
//! A cluster that does not answer costs a tick at most [`INVENTORY_DEADLINE`], and only its own machines wait for it. A
//! hypervisor that does not answer costs it some seconds, and only its own machines wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridges::Bridges;
pub use bridges::vnets;
use details::Details;
use futures::future::join_all;
use futures::join;
use kproxide_planner::facts::{
    Delta, HypervisorFacts, InventoryFacts, TemplateChoice, TemplateFacts, Trouble,
};
use kproxide_planner::ids::{ClusterName, HypervisorId};
use tokio::time::{Instant, timeout};
pub use wanted::{Lacking, Wanted, wanted};

use kproxide_common::clock::Clock;
use kproxide_common::foreign::value;
use kproxide_common::metrics::Requests;
use kproxide_kube::convert::ClusterConnection;
use kproxide_pve::client::Client;
use kproxide_pve::convert::{inventory_facts, template_facts};
use kproxide_pve::error::Meaning;
use kproxide_pve::inventory::Inventory;
use kproxide_pve::limits::Concurrency;
use kproxide_pve::machine::Permissions;
use kproxide_pve::preflight::{Excess, Missing, Scope, excess};
use kproxide_pve::template::Placement;

/// Longer than a healthy cluster takes. A cluster that hangs must not hold up the others.
const INVENTORY_DEADLINE: Duration = Duration::from_secs(8);

/// For Proxmox's version, which is for people.
const VERSION_DEADLINE: Duration = Duration::from_secs(2);

/// Templates change when people change them; each costs a request. Less than the time between two ticks, so that a template
/// that is gone is said by the second look.
const TEMPLATES_MAX_AGE: Duration = Duration::from_secs(8);

/// kproxide asks at the start and then this often what the credentials may do, which costs one request.
const PERMISSIONS_MAX_AGE: Duration = Duration::from_secs(60);
/// The same after something lacked: a person may have granted it.
const PERMISSIONS_LACK: Duration = Duration::from_secs(30);
/// The same after they could not be told.
const PERMISSIONS_RETRY: Duration = Duration::from_secs(2 * 60);
/// A finished inventory waits this long for that answer.
const PERMISSIONS_DEADLINE: Duration = Duration::from_secs(2);
/// Paths and privileges of each that are named where the credentials may do too much.
const EXCESS_TOLD_MAX: usize = 5;

/// Pause between two tries to build a client, after it could not be built or did not trust the endpoint. A user may
/// have corrected the CA file.
const REBUILD: Duration = Duration::from_secs(30);

/// The templates under each name that a class wants.
pub(crate) type Lookups = BTreeMap<TemplateChoice, Vec<TemplateFacts>>;

/// Builds the client of a cluster: over HTTPS in production, over the simulator's service in simulation.
pub type Connect =
    Arc<dyn Fn(&ClusterConnection, Concurrency) -> Result<Client, String> + Send + Sync>;

/// The Proxmox clusters by name. Clones share their state: the loop refreshes, claims' drives take clients.
#[derive(Clone)]
pub struct Clusters {
    connect: Connect,
    requests: Option<Requests>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    clusters: BTreeMap<ClusterName, Cluster>,
    concurrency: BTreeMap<ClusterName, Concurrency>,
}

struct Cluster {
    connection: ClusterConnection,
    concurrency: Concurrency,
    /// The reason why there is no client.
    client: Result<Client, String>,
    built: Instant,
    /// A certificate was not trusted: a new client reads the CA file again.
    is_untrusted: bool,
    /// When the facts were last asked for, whatever came of it.
    asked: Option<Instant>,
    /// The last good look.
    facts: InventoryFacts,
    templates: Option<(Instant, Lookups)>,
    /// What those are the templates of.
    wanted: Wanted,
    version: Option<Arc<str>>,
    details: Details,
    bridges: Bridges,
    /// What the credentials may do without need, for people. Empty: they fit.
    excess: Option<String>,
    /// `None`: nothing is known to lack.
    lacking: Option<Lacking>,
    /// Why those in use are not the ones in the Secret. `None`: they are.
    unused: Option<String>,
    /// From when on both are asked again; at once if they never were.
    excess_due: Option<Instant>,
}

impl Clusters {
    pub fn new(connect: Connect) -> Self {
        Self {
            connect,
            requests: None,
            state: Arc::default(),
        }
    }

    /// These, with their requests counted there.
    #[must_use]
    pub fn counting(mut self, requests: Requests) -> Self {
        self.requests = Some(requests);
        self
    }

    fn client_of(
        &self,
        name: &ClusterName,
        connection: &ClusterConnection,
        concurrency: Concurrency,
    ) -> Result<Client, String> {
        let requests = self.requests.as_ref();
        let requests = requests.map(|requests| requests.of(name.as_str()));
        (self.connect)(connection, concurrency).map(|client| client.counting(requests))
    }

    /// Takes over a cluster's settings. `None`: the cluster is gone, or its settings cannot be used.
    pub fn configure(&self, name: &ClusterName, connection: Option<ClusterConnection>) {
        let mut state = self.lock();
        let Some(connection) = connection else {
            state.clusters.remove(name);
            return;
        };
        let concurrency = state.concurrency.get(name).copied().unwrap_or_default();
        if state.clusters.get(name).is_some_and(|cluster| {
            cluster.connection == connection && cluster.concurrency == concurrency
        }) {
            return;
        }
        let client = self.client_of(name, &connection, concurrency);
        let cluster = Cluster {
            connection,
            concurrency,
            client,
            built: Instant::now(),
            is_untrusted: false,
            asked: None,
            facts: InventoryFacts::default(),
            templates: None,
            wanted: Wanted::default(),
            version: None,
            details: Details::default(),
            bridges: Bridges::default(),
            excess: None,
            lacking: None,
            unused: None,
            excess_due: None,
        };
        state.clusters.insert(name.clone(), cluster);
    }

    /// Takes over how many requests a cluster may get at once, and replaces its client.
    pub fn limit(&self, name: &ClusterName, concurrency: Concurrency) {
        let connection = {
            let mut state = self.lock();
            state.concurrency.insert(name.clone(), concurrency);
            state
                .clusters
                .get(name)
                .map(|cluster| cluster.connection.clone())
        };
        if connection.is_some() {
            self.configure(name, connection);
        }
    }

    pub fn client(&self, name: &ClusterName) -> Option<Client> {
        self.lock().clusters.get(name)?.client.clone().ok()
    }

    /// A hypervisor as the last look at its cluster that succeeded saw it.
    pub fn hypervisor(&self, id: &HypervisorId) -> Option<HypervisorFacts> {
        let state = self.lock();
        let facts = &state.clusters.get(&id.cluster)?.facts;
        facts.hypervisors.get(&id.name).cloned()
    }

    /// What was last seen there is no longer so: the next refresh asks for everything, templates too, however young it is.
    pub fn look_again(&self, name: &ClusterName) {
        if let Some(cluster) = self.lock().clusters.get_mut(name) {
            (cluster.templates, cluster.asked) = (None, None);
        }
    }

    /// Of each cluster that was asked, what its credentials may do without need; empty if they fit.
    pub fn excess(&self) -> BTreeMap<ClusterName, String> {
        self.told(|cluster| cluster.excess.clone())
    }

    /// What the credentials of each cluster lack, with the commands that grant it.
    pub fn lacking(&self) -> BTreeMap<ClusterName, Lacking> {
        self.told(|cluster| cluster.lacking.clone())
    }

    /// Of each cluster whose credentials in use are not those in the Secret, the reason.
    pub fn unused(&self) -> BTreeMap<ClusterName, String> {
        self.told(|cluster| cluster.unused.clone())
    }

    fn told<T>(&self, of: impl Fn(&Cluster) -> Option<T>) -> BTreeMap<ClusterName, T> {
        let state = self.lock();
        let clusters = state.clusters.iter();
        let told = clusters.filter_map(|(name, cluster)| Some((name.clone(), of(cluster)?)));
        told.collect()
    }

    /// Asks every cluster whose facts are older than `max_age` or of other templates than those wanted now, all at once.
    pub async fn refresh(
        &self,
        max_age: Duration,
        mut wanted: BTreeMap<ClusterName, Wanted>,
        clock: &Clock,
    ) -> Vec<Delta> {
        let due: Vec<_> = {
            let mut state = self.lock();
            for (name, cluster) in &mut state.clusters {
                let wanted = wanted.remove(name).unwrap_or_default();
                if cluster.wanted != wanted {
                    cluster.wanted = wanted;
                    (cluster.templates, cluster.asked) = (None, None);
                    cluster.excess_due = None;
                }
            }
            let old =
                |cluster: &Cluster| cluster.asked.is_none_or(|asked| asked.elapsed() >= max_age);
            state
                .clusters
                .iter()
                .filter(|(_, cluster)| old(cluster))
                .map(|(name, _)| name.clone())
                .collect()
        };
        let facts = join_all(due.iter().map(|name| self.ask(name, clock))).await;
        due.into_iter()
            .zip(facts)
            .map(|(name, facts)| Delta::Inventory(name, facts.map(Box::new)))
            .collect()
    }

    /// `None`: the cluster was removed while it was asked.
    async fn ask(&self, name: &ClusterName, clock: &Clock) -> Option<InventoryFacts> {
        let (client, pool, known, wanted, is_judged, last, bridges) = {
            let mut state = self.lock();
            let cluster = state.clusters.get_mut(name)?;
            cluster.asked = Some(Instant::now());
            let is_useless = cluster.client.is_err() || cluster.is_untrusted;
            if is_useless && cluster.built.elapsed() >= REBUILD {
                cluster.client = self.client_of(name, &cluster.connection, cluster.concurrency);
                (cluster.built, cluster.is_untrusted) = (Instant::now(), false);
            }
            let known = cluster
                .templates
                .clone()
                .filter(|(read, _)| read.elapsed() < TEMPLATES_MAX_AGE);
            let is_judged = cluster.excess_due.is_some_and(|due| Instant::now() < due);
            (
                cluster.client.clone(),
                cluster.connection.pool.clone(),
                known,
                cluster.wanted.clone(),
                is_judged,
                cluster.facts.clone(),
                cluster.bridges.clone(),
            )
        };
        let client = match client {
            Ok(client) => client,
            // It could not be built: the CA file, say, cannot be read.
            Err(problem) => {
                let trouble = Some(Trouble::Certificate);
                return self.unreachable(name, (problem, Vec::new()), trouble);
            }
        };
        let taken_at = clock.now();
        match timeout(INVENTORY_DEADLINE, client.inventory()).await {
            Ok(Ok(mut inventory)) => {
                // Separate from the inventory, which has succeeded: permissions that are slow to tell must not make it
                // fail.
                let held = match is_judged && !misses_machines(&last, &inventory, &pool) {
                    true => None,
                    false => Some(timeout(PERMISSIONS_DEADLINE, client.permissions(None)).await),
                };
                if let Some(Ok(Ok(held))) = &held
                    && let Some(gap) = blindness(&client, held, &pool).await
                {
                    let mut commands = gap.pveum.clone();
                    let (problem, trouble) = match inventory.pools.contains(&pool) {
                        true => (
                            format!(
                                "the credentials may not see kproxide's machines, so nothing can be said of them. {gap}"
                            ),
                            Trouble::Privileges,
                        ),
                        false => (
                            format!(
                                "the Proxmox pool {pool} does not exist, or the credentials may not see it. If it does not exist, create it with `pveum pool add {pool}`, or correct spec.pool. If it exists, {gap}"
                            ),
                            Trouble::NoPool,
                        ),
                    };
                    if trouble == Trouble::NoPool {
                        commands.insert(0, make_pool(&pool));
                    }
                    return self.unreachable(name, (problem, commands), Some(trouble));
                }
                let silent = last.hypervisors.iter();
                let silent = silent.filter(|(_, facts)| facts.problem.is_some());
                let silent = silent.map(|(name, _)| name.to_string()).collect();
                client.probe(&mut inventory, &silent).await;
                let reading = {
                    let mut state = self.lock();
                    let cluster = state.clusters.get_mut(name)?;
                    cluster.details.refresh(&client, &inventory)
                };
                let look = async {
                    match known {
                        Some(templates) => (templates, None),
                        None => {
                            let (mut templates, version) = join!(
                                read_templates(&client, &inventory, &wanted.templates),
                                timeout(VERSION_DEADLINE, client.version())
                            );
                            keep_silent(&mut templates, last, &inventory);
                            // For people. If it cannot be read, the last known value stays.
                            (
                                (Instant::now(), templates),
                                version.ok().and_then(Result::ok),
                            )
                        }
                    }
                };
                let bridges = async {
                    match wanted.interfaces.is_empty() {
                        true => Bridges::default(),
                        false => bridges.refreshed(&client, &inventory).await,
                    }
                };
                let (((read, templates), version), told, bridges) =
                    join!(look, details::first(reading), bridges);
                let mut facts = inventory_facts(&inventory, templates.clone(), taken_at);
                bridges.fill(&mut facts);
                if let Some(problem) = missing_pool(&client, &inventory, &pool).await {
                    facts.problem = Some(problem);
                    facts.commands = vec![make_pool(&pool)];
                    facts.trouble = Some(Trouble::NoPool);
                }
                let lacking = match &held {
                    Some(Ok(Ok(held))) if facts.trouble.is_none() => {
                        let scope = wanted.scope(&pool, &templates, &vnets(&facts));
                        lacking(&client, &scope, held).await
                    }
                    Some(_) | None => None,
                };
                let unused = client.unused_credentials().await;
                let mut state = self.lock();
                let cluster = state.clusters.get_mut(name)?;
                cluster.unused = unused;
                if let Some(version) = version {
                    cluster.version = Some(value(&version.version).into());
                }
                facts.version.clone_from(&cluster.version);
                facts.count_maintenance(&cluster.facts);
                if let Some(told) = held {
                    // If it cannot be read, the last known value stays.
                    let rest = match told {
                        Ok(Ok(held)) => {
                            cluster.excess = Some(in_words(&excess(&held)));
                            cluster.lacking = lacking;
                            match cluster.lacking {
                                Some(_) => PERMISSIONS_LACK,
                                None => PERMISSIONS_MAX_AGE,
                            }
                        }
                        Ok(Err(_)) | Err(_) => PERMISSIONS_RETRY,
                    };
                    cluster.excess_due = Some(Instant::now() + rest);
                }
                cluster.bridges = bridges;
                cluster.details.take_first(told);
                cluster.details.fill(&mut facts);
                cluster.facts = facts.clone();
                // A template that could not be read is looked for again with the next inventory.
                let sound = templates
                    .values()
                    .flatten()
                    .all(|template| template.problem.is_none());
                cluster.templates = sound.then_some((read, templates));
                Some(facts)
            }
            Ok(Err(error)) => {
                if error.meaning == Meaning::Untrusted
                    && let Some(cluster) = self.lock().clusters.get_mut(name)
                {
                    cluster.is_untrusted = true;
                }
                let nothing_but_looking = Scope::default();
                let problem = timeout(
                    INVENTORY_DEADLINE,
                    client.explained_with_commands(&error, &nothing_but_looking),
                );
                let problem = problem.await;
                let problem = problem.unwrap_or_else(|_| (error.chain(), Vec::new()));
                self.unreachable(name, problem, trouble(&error.meaning))
            }
            Err(_) => self.unreachable(
                name,
                (
                    format!("no answer within {} s", INVENTORY_DEADLINE.as_secs()),
                    Vec::new(),
                ),
                None,
            ),
        }
    }

    /// The last known inventory, marked as unreachable.
    fn unreachable(
        &self,
        name: &ClusterName,
        (problem, commands): (String, Vec<String>),
        trouble: Option<Trouble>,
    ) -> Option<InventoryFacts> {
        let mut state = self.lock();
        let cluster = state.clusters.get_mut(name)?;
        if trouble == Some(Trouble::Credentials) {
            // None are in use.
            cluster.unused = None;
        }
        let Cluster { facts, details, .. } = cluster;
        details.fill(facts);
        facts.reachable = false;
        facts.complete = false;
        (facts.problem, facts.trouble) = (Some(problem), trouble);
        facts.commands = commands;
        Some(facts.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A few of them, each with a few of its privileges.
fn in_words(excess: &[Excess]) -> String {
    let more = |all: usize| match all.saturating_sub(EXCESS_TOLD_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let paths: Vec<String> = excess
        .iter()
        .take(EXCESS_TOLD_MAX)
        .map(|Excess { path, privileges }| {
            let named = privileges.iter().take(EXCESS_TOLD_MAX).cloned();
            let named = named.collect::<Vec<_>>().join(", ");
            format!("{path}: {named}{}", more(privileges.len()))
        })
        .collect();
    format!("{}{}", paths.join("; "), more(excess.len()))
}

async fn read_templates(
    client: &Client,
    inventory: &Inventory,
    wanted: &BTreeSet<(TemplateChoice, bool)>,
) -> Lookups {
    let found = join_all(wanted.iter().map(|(choice, local)| async {
        let placement = if *local {
            Placement::Local
        } else {
            Placement::Shared
        };
        (
            choice.clone(),
            template_facts(
                inventory,
                client.templates(inventory, choice, placement).await,
            ),
        )
    }));
    found.await.into_iter().collect()
}

fn make_pool(pool: &str) -> String {
    format!("pveum pool add {pool}")
}

/// A VM of the pool was listed at the last look and is not now.
fn misses_machines(last: &InventoryFacts, inventory: &Inventory, pool: &str) -> bool {
    last.guests.iter().any(|(vmid, guest)| {
        guest.pool.as_deref() == Some(pool) && inventory.guest(vmid.0).is_none()
    })
}

/// An error that a person has to mend.
fn trouble(meaning: &Meaning) -> Option<Trouble> {
    if matches!(
        meaning,
        Meaning::Unauthorized | Meaning::CredentialsUnusable
    ) {
        Some(Trouble::Credentials)
    } else if *meaning == Meaning::EndpointNotAllowed {
        Some(Trouble::Endpoint)
    } else if matches!(meaning, Meaning::PermissionDenied { .. }) {
        Some(Trouble::Privileges)
    } else {
        (*meaning == Meaning::Untrusted).then_some(Trouble::Certificate)
    }
}

/// The Proxmox pool for the machines is not there. A pool that only the credentials may not see is no such one.
async fn missing_pool(client: &Client, inventory: &Inventory, pool: &str) -> Option<String> {
    let is_whole = inventory.quorate && inventory.complete;
    if !is_whole || inventory.pools.contains(pool) {
        return None;
    }
    let exists = timeout(PERMISSIONS_DEADLINE, client.pool_exists(pool)).await;
    matches!(exists, Ok(Ok(false))).then(|| {
        format!(
            "the Proxmox pool {pool} does not exist, so no machine can be made: create it with `pveum pool add {pool}`, or correct spec.pool"
        )
    })
}

/// What the credentials lack for it, in words.
async fn lacking(client: &Client, scope: &Scope, held: &Permissions) -> Option<Lacking> {
    let gaps = timeout(PERMISSIONS_DEADLINE, client.lacking(scope, held)).await;
    Lacking::of(&gaps.ok()?.ok()?)
}

/// What the credentials lack to see the machines. Proxmox leaves VMs that they may not see out of its lists, so that
/// all of them seem gone.
async fn blindness(client: &Client, held: &Permissions, pool: &str) -> Option<Missing> {
    const SEES: &str = "VM.Audit";
    let of_pool = format!("/pool/{pool}");
    let sees = |path: &str| held.get(path).is_some_and(|held| held.contains_key(SEES));
    if ["/", "/vms", "/pool", &of_pool].into_iter().any(sees) {
        return None;
    }
    let scope = Scope {
        pool: Some(pool.to_owned()),
        ..Scope::default()
    };
    let gaps = timeout(PERMISSIONS_DEADLINE, client.missing_privileges(&scope)).await;
    let gaps = gaps.ok()?.ok()?;
    gaps.into_iter().find(|gap| gap.path == of_pool)
}

/// The templates of a hypervisor that is off or silent stay as they were last seen. Nothing is cloned from them until it
/// answers. A server that goes off must not look like a change of what machines are made from: that ends rests.
fn keep_silent(templates: &mut Lookups, last: InventoryFacts, inventory: &Inventory) {
    for (name, known) in last.templates {
        let Some(templates) = templates.get_mut(&name) else {
            continue;
        };
        let is_silent = |template: &TemplateFacts| {
            let hypervisor = inventory.hypervisor(&template.hypervisor);
            hypervisor.is_some_and(|it| !it.online || it.problem.is_some())
        };
        // There is one without a hypervisor if the name is in trouble as such.
        let is_in_trouble = |it: &TemplateFacts| it.problem.is_some();
        if !templates.iter().any(is_in_trouble) {
            templates.extend(known.into_iter().filter(is_silent));
        }
    }
}

mod bridges;
mod details;
#[cfg(test)]
mod tests;
mod wanted;
