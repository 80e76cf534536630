//! A world of the planner, made of objects.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kproxide_planner::facts::{Delta, EntryState, HostFacts, LedgerEntry, LedgerFacts};
use kproxide_planner::ids::{ClusterName, ObjectKey, PodKey};
use kproxide_planner::kubernetes::selector::node_matches;
use kproxide_planner::kubernetes::taints::untolerated;
use kproxide_planner::plan::Plan;
use kproxide_planner::world::{PodView, World};
use serde::Deserialize as _;
use serde_json::Value;

use super::inventory::{self, Known};
use super::{Changes, Told, Trouble, named};
use crate::manifest::{
    self, Admission, BadInput, Made, Object, Objects, Standing, documents, is_watched,
};
use kproxide_controller::judge::Finding;
use kproxide_kube::convert::ClusterConnection;
use kproxide_kube::watch::Change;
use kproxide_policy::Library;

const OURS: &str = "kproxide.dev";

/// Kinds that no watch knows, and that a plan depends on.
const READ_OTHERWISE: [&str; 10] = [
    "Inventory",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
    "CronJob",
    "LimitRange",
    "PriorityClass",
    "RuntimeClass",
];

/// What a person gives.
#[derive(Default)]
pub struct Input {
    /// Of the controller. A file may hold one too.
    pub saved: Option<SavedWorld>,
    /// Of the cluster. Empty without one.
    pub cluster: Vec<Object>,
    /// What the controller said, or why it said nothing. Of it only the servers count that nothing else describes.
    pub controller: Option<Result<Told, String>>,
    /// Paths of lists that the cluster does not show.
    pub unseen: Vec<String>,
    /// Of the files, a layer for each `-f`: they lie on top.
    pub files: Vec<Vec<Object>>,
    /// The question is how things are: without a NodePool none is assumed.
    pub is_as_given: bool,
}

/// A world, and what went into it.
pub struct Scene {
    pub world: World,
    /// When it is planned.
    pub now: Timestamp,
    /// The controller's last plan, where the input is the controller's own answer and nothing lies on top.
    pub planned: Option<Plan>,
    /// What the controller found, where the input is its own answer.
    pub findings: Option<Vec<Finding>>,
    /// Hypervisors are assumed of a Proxmox cluster, since nobody has said what it has.
    pub assumes_hypervisors: bool,
    /// What was assumed where the input says nothing, one sentence each.
    pub assumed: Vec<String>,
    /// Kinds that nothing depends on, and how many objects of each there are.
    pub ignored: BTreeMap<String, u32>,
    /// Pods that wait for a scheduling gate, as far as the objects of the input say.
    pub(super) gated: BTreeSet<PodKey>,
    /// How to reach the Proxmox clusters whose hypervisors no document gives.
    connections: BTreeMap<ClusterName, ClusterConnection>,
    known: BTreeMap<ClusterName, Known>,
    /// See [`Input::is_as_given`].
    is_as_given: bool,
    hypervisors_named: BTreeMap<ClusterName, (BTreeSet<String>, BTreeSet<String>)>,
    /// Why the controller was not asked for hypervisors.
    unasked: Option<String>,
}

/// Makes a world of the input. Hypervisors come with [`Scene::finish`].
///
/// # Errors
/// A document that cannot be read, or a flag that names what is not there.
pub fn build(
    input: Input,
    changes: &Changes,
    now: Option<Timestamp>,
    clock: Timestamp,
) -> Result<Scene, Trouble> {
    let mut saved = input.files.iter().flatten();
    let saved = saved.rfind(|object| object.is_saved_world());
    let saved = match input.saved {
        Some(saved) => Some(saved),
        None => saved.map(SavedWorld::read).transpose()?,
    };
    let is_saved = saved.is_some();
    let (world, at, planned, findings) = saved
        .map_or((World::default(), None, None, None), |saved| {
            (saved.world, Some(saved.now), saved.plan, saved.findings)
        });
    let mut others = input.cluster.iter().chain(input.files.iter().flatten());
    let is_alone = others.all(Object::is_saved_world);
    let now = now.or(at).unwrap_or(clock);
    let unseen = input.unseen.iter();
    let unseen = unseen.map(|path| format!("the cluster has none of {path}"));
    let mut scene = Scene {
        world,
        now,
        planned: planned.filter(|_| is_alone),
        findings: findings.filter(|_| is_alone),
        assumes_hypervisors: false,
        assumed: unseen.collect(),
        ignored: BTreeMap::new(),
        gated: BTreeSet::new(),
        connections: BTreeMap::new(),
        known: BTreeMap::new(),
        is_as_given: input.is_as_given,
        hypervisors_named: BTreeMap::new(),
        unasked: None,
    };
    if !is_saved {
        scene.world.apply(Delta::Host(HostFacts {
            cluster_id: "plan".to_owned(),
            armed_at: Some(Timestamp::UNIX_EPOCH),
            dry_run: true,
            key_known: true,
            ..HostFacts::default()
        }));
    }
    let is_from_files = input.cluster.is_empty() && !is_saved;
    let mut objects = Objects::default();
    objects.add(input.cluster);
    for mut layer in input.files {
        layer.retain(|object| !object.is_saved_world());
        layer.iter().try_for_each(manifest::refuse)?;
        objects.add(layer);
    }
    let needs_none = input.is_as_given && !objects.has(OURS, "NodePool");
    if !is_saved && !needs_none {
        scene.add_defaults(&mut objects);
    }
    for object in objects.of(OURS, "Inventory").map(|(_, object)| object) {
        let (cluster, known) = inventory::read(object)?;
        scene.known.insert(cluster, known);
    }
    let made = scene.make_pods(&objects, changes)?;
    let admission = Admission::of(&objects);
    // A new pod may have the name of one that goes.
    let stays =
        |object: &&Object| object.kind() != "Pod" || !made.surplus.contains(&key_of(object));
    let given = objects.iter().map(|(_, object)| object);
    let given = given.filter(stays).cloned();
    let mut all: Vec<Object> = given.chain(made.objects.iter().cloned()).collect();
    if !is_saved {
        scene.add_namespaces(&mut all);
    }
    let mut ready = Objects::default();
    let mut settled = Vec::new();
    for mut object in all {
        // What cannot be read is said before anything is filled in.
        manifest::changes(&object)?;
        scene.assumed.extend(admission.admit(&mut object));
        manifest::settle(&mut object, now);
        settled.push(object);
    }
    let is_stored = |object: &Object| {
        let before = objects.before(&object.identity());
        let was_stored = before.is_some_and(|before| before["metadata"]["uid"].is_string());
        was_stored || object.is_stored()
    };
    // In a cluster this takes seconds, and the question is what comes after.
    for (what, claims) in manifest::bind(&mut settled, |object| !is_stored(object)) {
        let count = u32::try_from(claims.len()).unwrap_or(u32::MAX);
        let claims = named(&claims, count);
        scene.assumed.push(format!("{what}: {claims}"));
    }
    ready.add(settled);
    for (namespace, name) in &made.surplus {
        scene
            .world
            .apply(Delta::Pod(ObjectKey::new(namespace, name), None));
    }
    for (_, object) in ready.iter() {
        let mut object = object.clone();
        manifest::settle_budget(&mut object, &ready);
        let gates = object.value["spec"]["schedulingGates"].as_array();
        if object.kind() == "Pod" && gates.is_some_and(|gates| !gates.is_empty()) {
            let key = ObjectKey::new(object.namespace(), object.name());
            scene.gated.insert(key);
        }
        scene.take(&object)?;
    }
    if is_from_files {
        scene.run_daemons(&ready)?;
    }
    match input.controller {
        Some(Ok(told)) => scene.take_hypervisors(&told),
        Some(Err(why)) => scene.unasked = Some(why),
        None => {}
    }
    scene.assumed.sort();
    scene.assumed.dedup();
    Ok(scene)
}

fn key_of(object: &Object) -> (String, String) {
    (object.namespace().to_owned(), object.name().to_owned())
}

/// What `/debug/plan` answers.
#[derive(serde::Deserialize)]
pub struct SavedWorld {
    now: Timestamp,
    #[serde(default)]
    plan: Option<Plan>,
    /// An older controller does not say them.
    #[serde(default)]
    pub findings: Option<Vec<Finding>>,
    world: World,
}

impl SavedWorld {
    pub(crate) fn read(object: &Object) -> Result<Self, BadInput> {
        let unreadable = |error: serde_json::Error| {
            object.bad(
                "",
                format_args!("this is no answer of /debug/plan of this version: {error}"),
            )
        };
        Self::deserialize(&object.value).map_err(unreadable)
    }
}

impl Scene {
    /// Our own objects where the input has none of a kind.
    fn add_defaults(&mut self, objects: &mut Objects) {
        let defaults = documents("default.yaml", include_str!("default.yaml"), "default");
        for default in defaults.expect("our own text can be read") {
            if objects.has(OURS, default.kind()) {
                continue;
            }
            let mut added = vec![default];
            // A class or a cluster that the pools name is taken for it, so that the pools can be used.
            let names = match added[0].kind() {
                "NodeClass" => named_by_pools(objects, |spec| vec![spec["nodeClass"].clone()]),
                "ProxmoxCluster" => {
                    let clusters = |spec: &'_ Value| spec["clusters"].as_array().cloned();
                    let of_pools =
                        named_by_pools(objects, |spec| clusters(spec).unwrap_or_default());
                    &of_pools | &names(objects, "Inventory")
                }
                _ => names(objects, "NodeClass"),
            };
            if !names.is_empty() {
                let default = added.remove(0);
                let is_pool = default.kind() == "NodePool";
                added = names
                    .iter()
                    .map(|name| {
                        let mut value = default.value.clone();
                        value["metadata"]["name"] = name.as_str().into();
                        if is_pool {
                            value["spec"]["nodeClass"] = name.as_str().into();
                        }
                        Object::from_elsewhere(value, "kproxide's defaults")
                    })
                    .collect();
            }
            for object in &added {
                self.assumed.push(assumption(object));
            }
            objects.add(added);
        }
    }

    fn add_namespaces(&mut self, objects: &mut Vec<Object>) {
        let names: Vec<String> = manifest::unknown_namespaces(objects).into_iter().collect();
        if names.is_empty() {
            return;
        }
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        self.assumed.push(format!(
            "these Namespaces have no label but their name (the input lacks them): {}",
            named(&names, count)
        ));
        objects.extend(names.iter().map(|name| manifest::plain_namespace(name)));
    }

    fn make_pods(&self, objects: &Objects, changes: &Changes) -> Result<Made, Trouble> {
        let mut standing = manifest::standing(objects);
        standing.extend(
            self.world
                .pods()
                .filter(|pod| pod.is_alive())
                .filter_map(|pod| {
                    let owner = pod.owner()?;
                    Some(Standing {
                        namespace: pod.namespace().to_string(),
                        name: pod.name().to_string(),
                        owner_kind: owner.kind.to_string(),
                        owner_name: owner.name.to_string(),
                    })
                }),
        );
        standing.sort();
        standing.dedup();
        let made = manifest::made(objects, &standing, &changes.replicas, self.now);
        made.map_err(|problem| Trouble::Flag(format!("--replicas: {problem}")))
    }

    /// Takes what follows from one object into the world.
    fn take(&mut self, object: &Object) -> Result<(), BadInput> {
        if !is_watched(object) {
            if !READ_OTHERWISE.contains(&object.kind()) {
                *self.ignored.entry(object.kind().to_owned()).or_default() += 1;
            }
            return Ok(());
        }
        for change in manifest::changes(object)? {
            match change {
                Change::Delta(delta) => {
                    refuse_problem(object, &delta)?;
                    self.note_hypervisors(object, &delta);
                    self.world.apply(delta);
                }
                Change::Connection(cluster, Some(connection)) => {
                    self.connections.insert(cluster, connection);
                }
                Change::Connection(_, None) | Change::Unreadable(_) => {}
            }
        }
        Ok(())
    }

    /// Hypervisors of which only the names are known.
    fn note_hypervisors(&mut self, object: &Object, delta: &Delta) {
        let Delta::Cluster(cluster, Some(facts)) = delta else {
            return;
        };
        let (names, offline) = self.hypervisors_named.entry(cluster.clone()).or_default();
        names.extend(facts.hypervisors.include.iter().map(ToString::to_string));
        let status = object.value["status"]["hypervisors"].as_array();
        for hypervisor in status.into_iter().flatten() {
            let name = hypervisor["name"].as_str().unwrap_or_default();
            names.insert(name.to_owned());
            if hypervisor["online"] == false {
                offline.insert(name.to_owned());
            }
        }
    }

    /// The pods of DaemonSets on Nodes that no cluster has run yet.
    fn run_daemons(&mut self, objects: &Objects) -> Result<(), BadInput> {
        let mut pods = Vec::new();
        for (_, set) in objects.of("apps", "DaemonSet") {
            let key = ObjectKey::new(set.namespace(), set.name());
            let Some(facts) = self.world.daemon_sets().get(&key) else {
                continue;
            };
            for node in self.world.nodes() {
                let is_of_set = |pod: PodView<'_>| {
                    let owner = pod.owner();
                    *pod.namespace() == key.namespace
                        && pod.is_of_daemon_set()
                        && owner.is_some_and(|owner| owner.name == key.name)
                };
                let (name, labels) = (node.name().as_str(), &node.facts.labels);
                let stays_away = !node_matches(&facts.spec, name, labels)
                    || untolerated(&facts.spec.tolerations, &node.facts.taints).is_some();
                if !stays_away && !node.pods().any(is_of_set) {
                    pods.push(manifest::daemon(set, name));
                }
            }
        }
        for mut pod in pods {
            manifest::settle(&mut pod, self.now);
            self.take(&pod)?;
        }
        Ok(())
    }

    /// Adds the hypervisors, unless Proxmox has said what they are, and makes the changes that need them.
    ///
    /// # Errors
    /// A change names what is not there.
    pub fn finish(&mut self, changes: &Changes) -> Result<(), Trouble> {
        let clusters: Vec<ClusterName> = self.world.clusters().keys().cloned().collect();
        for cluster in clusters {
            let known = match self.known.remove(&cluster) {
                Some(known) => {
                    if !self.is_as_given {
                        let untold = inventory::untold(&cluster, &known, &self.world);
                        self.assumed.extend(untold);
                    }
                    known
                }
                None if self.world.inventories().contains_key(&cluster) => continue,
                None => self.assume(&cluster),
            };
            let facts = inventory::complete(&cluster, known, &self.world, self.now);
            self.world
                .apply(Delta::Inventory(cluster, Some(Box::new(facts))));
        }
        self.fill_ledger();
        if let Some(cluster) = self.known.keys().next() {
            let problem = format!("Inventory {cluster}: there is no ProxmoxCluster of that name");
            return Err(Trouble::Flag(problem));
        }
        changes.apply(&mut self.world)
    }

    fn take_hypervisors(&mut self, told: &Told) {
        for (cluster, facts) in told.world.world.inventories() {
            let is_known = self.known.contains_key(cluster)
                || self.world.inventories().contains_key(cluster)
                || !self.world.clusters().contains_key(cluster);
            if !is_known {
                self.assumed.push(format!(
                    "the hypervisors of ProxmoxCluster {cluster} are as {} sees them",
                    told.by
                ));
                let facts = Some(Box::new(facts.clone()));
                self.world.apply(Delta::Inventory(cluster.clone(), facts));
            }
        }
    }

    /// The Proxmox clusters that only Proxmox itself can describe.
    pub fn unknown_clusters(&self) -> Vec<(ClusterName, ClusterConnection)> {
        let all = self.connections.iter();
        let unknown = all.filter(|(name, _)| !self.known.contains_key(*name));
        unknown
            .map(|(name, connection)| (name.clone(), connection.clone()))
            .collect()
    }

    /// Which policies there are. A saved world may have been planned with others.
    pub fn take_policies(&mut self, policies: &Library) {
        let here = policies.facts();
        for (policy, facts) in self.world.policies() {
            if here.get(policy) != Some(facts) {
                self.assumed.push(format!(
                    "the {} policy {} answers as it does here; the controller has another file of that name (--policy-dir)",
                    policy.kind.as_str(),
                    policy.name
                ));
            }
        }
        for (policy, facts) in here {
            self.world.apply(Delta::Policy(policy, Some(facts)));
        }
    }

    /// Without a Ledger the claims say which machines there are.
    fn fill_ledger(&mut self) {
        if self.world.ledger().is_some() {
            return;
        }
        let claims = self.world.claims().iter();
        let entries =
            claims.map(|(name, claim)| LedgerEntry::of(name, &claim.spec, EntryState::Live));
        let ledger = LedgerFacts {
            entries: entries.collect(),
            ..LedgerFacts::default()
        };
        self.world.apply(Delta::Ledger(Some(Box::new(ledger))));
    }

    fn assume(&mut self, cluster: &ClusterName) -> Known {
        let (mut names, offline) = self.hypervisors_named.remove(cluster).unwrap_or_default();
        let claims = self.world.claims().values();
        let claims = claims.filter(|claim| claim.spec.cluster == *cluster);
        names.extend(claims.map(|claim| claim.hypervisor().to_string()));
        self.assumes_hypervisors = true;
        let known = inventory::assumed(names.iter().map(String::as_str), &offline);
        self.assumed
            .push(inventory::assumption(cluster, &known.facts));
        if let Some(why) = self.unasked.take() {
            self.assumed
                .push(format!("kproxide was not asked for the hypervisors: {why}"));
        }
        known
    }
}

fn names(objects: &Objects, kind: &str) -> BTreeSet<String> {
    objects
        .of(OURS, kind)
        .map(|(identity, _)| identity.name.clone())
        .collect()
}

fn named_by_pools(objects: &Objects, fields: impl Fn(&Value) -> Vec<Value>) -> BTreeSet<String> {
    let pools = objects.of(OURS, "NodePool");
    let named = pools.flat_map(|(_, pool)| fields(&pool.value["spec"]));
    named
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

fn assumption(object: &Object) -> String {
    let (kind, name, spec) = (object.kind(), object.name(), &object.value["spec"]);
    let more = match kind {
        "NodeClass" => {
            let types = spec["instanceTypes"].as_array().into_iter().flatten();
            let types = types.map(|size| {
                let gib = size["memoryMiB"].as_u64().unwrap_or_default() >> 10;
                format!(
                    "{} {}x{gib}",
                    size["name"].as_str().unwrap_or_default(),
                    size["cores"]
                )
            });
            format!(" with the types {}", types.collect::<Vec<_>>().join(", "))
        }
        "NodePool" => format!(" of at most {} machines", spec["limits"]["maxNodes"]),
        _ => String::new(),
    };
    format!("there is a {kind} {name}{more} (the input has no {kind})")
}

/// What the API server would not take, or kproxide could not use, is a mistake in a file.
fn refuse_problem(object: &Object, delta: &Delta) -> Result<(), BadInput> {
    let problem = if let Delta::Cluster(_, Some(facts)) = delta {
        &facts.problem
    } else if let Delta::Class(_, Some(facts)) = delta {
        &facts.problem
    } else if let Delta::Pool(_, Some(facts)) = delta {
        &facts.problem
    } else {
        &None
    };
    match problem {
        Some(problem) if !object.is_stored() => {
            let (field, problem) = problem.split_once(": ").unwrap_or(("", problem));
            Err(object.bad(field, problem))
        }
        Some(_) | None => Ok(()),
    }
}
