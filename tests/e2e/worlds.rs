//! Drawn worlds: kproxide plans the machines of a whole world at once, the real scheduler binds as it likes, and all
//! machines go again. The test plays the provisioners and the registrar of CSI drivers.
//!
//! Each world has a pool of its own, so that many share a control plane.

mod classes;
mod draw;
mod proof;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kproxide_simulator::physics::Quirk;
use kproxide_simulator::pve::topology::HypervisorSpec;
use kproxide_testkit::controlplane::{Api, condition};
use kproxide_testkit::oracle::Scheduler;
use kproxide_testkit::{eventually, require_controlplane};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::classes::ATTACH_LIMIT;
use self::draw::{App, WORLD, World};
use self::proof::{Past, SPARE, name};
use crate::bench::on_a_cluster;
use crate::stage::{BUDGETS, DEPLOYMENTS, PODS, SOON, Scene, Stage};
use crate::volumes::{PROXMOX, STATEFUL_SETS, ZONE};

const SEED: u64 = 29;
const WAVES: usize = 2;
/// They have their machines at the same time.
const WORLDS_PER_WAVE: usize = 20;

/// Not fewer than there are.
const MACHINES_PER_WAVE: u64 = 80;

/// So many empty machines of some 55 in a wave may go without a proof.
const MOST_UNPROVEN: usize = 1;

const POOLS: &str = "/apis/kproxide.dev/v1alpha1/nodepools";
const LEDGER: &str = "/apis/kproxide.dev/v1alpha1/ledgers/kproxide";
const GIB: u64 = 1 << 30;

/// More than twenty removals within ten minutes wait; these are no accident.
const REMOVALS_BEFORE_THE_BREAKER: usize = 8;

#[test]
#[ignore = "tier: e2e"]
fn drawn_worlds_get_the_machines_that_they_need_and_give_them_back() {
    on_a_cluster(async |bench| {
        let programs = require_controlplane().unwrap();
        let mut scheduler = Scheduler::start(&programs);
        let stage = Stage::set(bench, scene()).await;
        classes::install(stage.api()).await;
        let mut players = JoinSet::new();
        players.spawn(play(stage.api().clone()));
        let mut empty = 0;
        for wave in 0..WAVES {
            let numbers = wave * WORLDS_PER_WAVE..(wave + 1) * WORLDS_PER_WAVE;
            let worlds = numbers.map(|number| draw::world(SEED, number)).collect();
            let wave = Wave {
                stage: &stage,
                worlds,
            };
            empty += wave.live(&mut scheduler).await;
        }
        eprintln!("{} machines, {empty} stayed empty", stage.born());
        players.shutdown().await;
        stage.end().await;
    });
}

fn scene() -> Scene {
    let values = json!({
        "clusters": {"lab": {"spec": {"concurrency": {"perStorage": 32, "perHypervisor": 32}}}},
        "nodeClasses": {"default": {"spec": {"csi": [{"driver": PROXMOX.name, "limit": ATTACH_LIMIT}]}}},
    });
    let mut scene = Scene::with(values);
    scene.guests.taints = vec![json!({"key": "kproxide.dev/unregistered", "effect": "NoExecute"})];
    for hypervisor in &mut scene.topology.hypervisors {
        *hypervisor = HypervisorSpec::new(&hypervisor.name, 256, 1024 * GIB);
    }
    scene
}

/// The parts of provisioners, of a CSI driver's registrar, and of the person who looks after the breaker.
async fn play(api: Api) {
    let mut looks = tokio::time::interval(Duration::from_millis(200));
    loop {
        looks.tick().await;
        classes::serve(&api).await;
        let ledger = api.find(LEDGER).await.unwrap().unwrap_or_default();
        let removals = ledger["spec"]["removals"].as_array();
        if removals.is_some_and(|all| all.len() > REMOVALS_BEFORE_THE_BREAKER) {
            let uncounted = json!({"spec": {"removals": null}});
            api.merge(LEDGER, &uncounted).await.unwrap();
        }
    }
}

/// Looks less often than cases that have few pods: the control plane needs the computer.
async fn until(what: &str, mut probe: impl AsyncFnMut() -> Result<(), String>) {
    let mut looks = tokio::time::interval(Duration::from_millis(500));
    eventually(SOON, what, async || {
        looks.tick().await;
        probe().await
    })
    .await;
}

struct Wave<'a> {
    stage: &'a Stage<'a>,
    worlds: Vec<World>,
}

impl Wave<'_> {
    /// From nothing to nothing. How many machines stayed empty.
    async fn live(&self, scheduler: &mut Scheduler) -> usize {
        let (stage, before) = (self.stage, self.stage.born());
        self.begin().await;
        self.let_machines_come_one_by_one();
        let go = json!({"spec": {"paused": false}});
        self.merge_into_pools(&go).await;
        self.until_helped().await;
        self.until_all_joined().await;
        let born = stage.born();
        stage.until_more_ticks(3).await;
        self.assert_born(born, "all pods that can be helped run")
            .await;
        let claims = self.count_claims().await;
        assert_eq!(born - before, claims.values().sum::<usize>(), "{claims:?}");
        for world in &self.worlds {
            let is_hopeless = world.apps.iter().all(|app| !app.can_be_helped);
            let claims = claims.get(&world.name).copied().unwrap_or(0);
            assert_eq!(
                claims == 0,
                is_hopeless,
                "{}: {claims} machines",
                world.name
            );
        }

        let empty = self.prove_empty_nodes(scheduler).await;
        let shrink = json!({"spec": {"scaleDown": {"enabled": true}}});
        self.merge_into_pools(&shrink).await;
        self.until_no_node_is_empty("empty ones").await;
        stage.until_more_ticks(3).await;
        self.assert_born(born, "the empty ones went").await;

        for world in &self.worlds {
            let path = format!("{BUDGETS}/{}", world.name);
            stage.api().delete(&path).await.unwrap();
        }
        self.scale(|app| app.later).await;
        self.until_no_node_is_empty("surplus").await;
        self.assert_born(born, "load fell").await;
        self.scale(|_| 0).await;
        self.until_no_node_is_empty("all").await;
        stage.until_nothing_is_left().await;
        self.assert_born(born, "all load went").await;
        self.end().await;
        empty
    }

    /// Pools, budgets and workloads. Returns when all pods wait, so that each world has one plan.
    async fn begin(&self) {
        let api = self.stage.api();
        for world in &self.worlds {
            api.create(POOLS, &pool(&world.name)).await.unwrap();
            // Nodes with pods stay until load falls.
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": world.name},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {WORLD: world.name}}},
            });
            api.create(BUDGETS, &budget).await.unwrap();
            for app in &world.apps {
                api.create(workloads(app), &app.object).await.unwrap();
            }
        }
        let apps = self.worlds.iter().flat_map(|world| &world.apps);
        let all: usize = apps.map(|app| app.replicas).sum();
        until(&format!("{all} pods without a place"), async || {
            let pods = self.pods().await;
            let waiting = pods.iter();
            let waiting = waiting.filter(|pod| condition(pod, "PodScheduled") == Some("False"));
            let waiting = waiting.count();
            if waiting == all && pods.len() == all {
                Ok(())
            } else {
                Err(format!("{waiting} of {} wait", pods.len()))
            }
        })
        .await;
        // kproxide's watch may be behind the API server: a whole tick begins and ends once they are there.
        self.stage.until_more_ticks(2).await;
    }

    /// The first ones of a world then have pods before the others are there.
    fn let_machines_come_one_by_one(&self) {
        for number in 0..MACHINES_PER_WAVE {
            self.stage.served.physics.quirk_of_next(Quirk {
                joins_later: Duration::from_millis(number * 701 % 4_000),
                ..Quirk::default()
            });
        }
    }

    async fn until_helped(&self) {
        until("all pods that can be helped running", async || {
            self.unlike(|app| app.replicas).await
        })
        .await;
    }

    /// Whether so many pods of each workload run that can be helped, and none of the others.
    async fn unlike(&self, wanted: impl Fn(&App) -> usize) -> Result<(), String> {
        let pods = self.pods().await;
        let mut wrong = Vec::new();
        for app in self.worlds.iter().flat_map(|world| &world.apps) {
            let own = || {
                let of = |pod: &&Value| pod["metadata"]["labels"]["app"] == app.name;
                pods.iter().filter(of)
            };
            let running = own().filter(|pod| is_running(pod)).count();
            let all = wanted(app);
            let ready = if app.can_be_helped { all } else { 0 };
            if running != ready || own().count() != all {
                let waiting = own().find(|pod| !is_running(pod));
                let conditions = waiting.map(|pod| &pod["status"]["conditions"]);
                wrong.push(format!(
                    "{}: {running} of {all} run; {conditions:?}",
                    app.name
                ));
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }

    async fn until_all_joined(&self) {
        let stage = self.stage;
        until("all machines in service", async || {
            let (claims, nodes) = (stage.claims().await, stage.nodes().await);
            let is_in_service = |claim: &Value| claim["status"]["phase"] == "Initialized";
            if claims.iter().all(is_in_service) && nodes.len() == claims.len() {
                Ok(())
            } else {
                Err(stage.describe().await)
            }
        })
        .await;
    }

    /// Each machine of a world's first plan that stayed empty was one that the scheduler can need. Later ones are there
    /// because it chose otherwise than planned.
    async fn prove_empty_nodes(&self, scheduler: &mut Scheduler) -> usize {
        let (nodes, pods) = (self.stage.nodes().await, self.pods().await);
        let claims = self.stage.claims().await;
        let mut empty = 0;
        let mut useless = Vec::new();
        for world in &self.worlds {
            let of_world = |object: &&Value| object["metadata"]["labels"][WORLD] == world.name;
            let of_pool = |claim: &&Value| claim["spec"]["pool"] == world.name;
            let created = |claim: &Value| claim["metadata"]["creationTimestamp"].to_string();
            let claims: Vec<&Value> = claims.iter().filter(of_pool).collect();
            let first = claims.iter().map(|claim| created(claim)).min();
            let planned = claims.into_iter();
            let planned = planned.filter(|claim| Some(created(claim)) == first);
            let planned: BTreeSet<&str> = planned
                .filter_map(|claim| claim["spec"]["vmName"].as_str())
                .collect();
            let nodes = nodes.iter().filter(of_world);
            let nodes: Vec<Value> = nodes
                .filter(|node| planned.contains(name(node)))
                .cloned()
                .collect();
            let pods = pods.iter().filter(of_world);
            let pods: Vec<Value> = pods.filter(|pod| is_running(pod)).cloned().collect();
            let used = nodes_of(&pods);
            let past = Past::of(self.stage.api(), &nodes, &pods).await;
            for node in nodes.iter().filter(|node| !used.contains(name(node))) {
                empty += 1;
                if !past.can_need(scheduler, name(node)) {
                    useless.push(format!("{} of {}", name(node), told(world, &nodes, &pods)));
                }
            }
            if let ([_], [_]) = (&nodes[..], &pods[..]) {
                let needs_two = past.with_spare().can_need(scheduler, SPARE);
                assert!(!needs_two, "{}: the proof proves anything", world.name);
            }
        }
        // When the scheduler decided is not recorded, only when its bindings were written.
        let useless_ones = useless.join("\n");
        eprintln!("not proven to be needed by some pod: {useless_ones}");
        assert!(
            useless.len() <= MOST_UNPROVEN,
            "no pod ever needs {useless_ones}"
        );
        empty
    }

    /// The pods that are wanted run, and there is no machine without one of them.
    async fn until_no_node_is_empty(&self, what: &str) {
        let stage = self.stage;
        until(&format!("no Node empty: {what}"), async || {
            let used = nodes_of(&self.pods().await);
            let (nodes, claims) = (stage.nodes().await, stage.claims().await);
            let names: BTreeSet<String> = nodes.iter().map(|node| name(node).to_owned()).collect();
            let in_step = names.len() == claims.len() && names.len() == stage.machines().len();
            if names == used && in_step {
                Ok(())
            } else {
                Err(format!("pods on {used:?}; {}", stage.describe().await))
            }
        })
        .await;
    }

    async fn assert_born(&self, born: usize, when: &str) {
        let now = self.stage.born();
        assert_eq!(
            now,
            born,
            "launched although {when}: {}; {:?}",
            self.stage.describe().await,
            self.unlike(|app| app.replicas).await
        );
    }

    async fn scale(&self, replicas: impl Fn(&App) -> usize) {
        for app in self.worlds.iter().flat_map(|world| &world.apps) {
            let path = format!("{}/{}", workloads(app), app.name);
            let patch = json!({"spec": {"replicas": replicas(app)}});
            self.stage.api().merge(&path, &patch).await.unwrap();
        }
        until("as many pods as are wanted", async || {
            self.unlike(&replicas).await
        })
        .await;
    }

    async fn merge_into_pools(&self, patch: &Value) {
        for world in &self.worlds {
            let path = format!("{POOLS}/{}", world.name);
            self.stage.api().merge(&path, patch).await.unwrap();
        }
    }

    async fn pods(&self) -> Vec<Value> {
        let path = format!("{PODS}?labelSelector={}", WORLD.replace('/', "%2F"));
        self.stage.api().list(&path).await.unwrap()
    }

    async fn count_claims(&self) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for claim in self.stage.claims().await {
            let pool = claim["spec"]["pool"].as_str().unwrap().to_owned();
            *count.entry(pool).or_default() += 1;
        }
        count
    }

    async fn end(&self) {
        let api = self.stage.api();
        for world in &self.worlds {
            for app in &world.apps {
                let path = format!("{}/{}", workloads(app), app.name);
                api.delete(&path).await.unwrap();
            }
            let path = format!("{POOLS}/{}", world.name);
            api.delete(&path).await.unwrap();
        }
    }
}

/// A world, for failures.
fn told(world: &World, nodes: &[Value], pods: &[Value]) -> String {
    let apps: Vec<String> = world
        .apps
        .iter()
        .map(|app| app.object.to_string())
        .collect();
    let zone = |node: &Value| node["metadata"]["labels"][ZONE].to_string();
    let created = |node: &Value| node["metadata"]["creationTimestamp"].to_string();
    let nodes = nodes
        .iter()
        .map(|node| format!("{} {} {}", name(node), zone(node), created(node)));
    let nodes: Vec<String> = nodes.collect();
    let pods = pods
        .iter()
        .map(|pod| format!("{} on {}", name(pod), pod["spec"]["nodeName"]));
    let pods: Vec<String> = pods.collect();
    format!("{} {nodes:?} {pods:?} {apps:?}", world.name)
}

fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "nodeClass": "default", "labels": {WORLD: name}, "paused": true, "limits": {"maxNodes": 20},
            "scaleDown": {
                "enabled": false, "stabilization": "1s", "minNodeAge": "1s", "unneededTime": "1s",
                "budget": 10, "loadHeadroom": 0,
            },
        },
    })
}

fn workloads(app: &App) -> &'static str {
    match app.object["kind"] == "StatefulSet" {
        true => STATEFUL_SETS,
        false => DEPLOYMENTS,
    }
}

fn is_running(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && condition(pod, "Ready") == Some("True")
}

fn nodes_of(pods: &[Value]) -> BTreeSet<String> {
    let nodes = pods
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str());
    nodes.map(str::to_owned).collect()
}
