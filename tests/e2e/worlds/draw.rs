//! Draws worlds: a few workloads that ask for a pool of their own, each with wishes of its own. Some cannot be helped.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::classes::{IMMEDIATE, MADE_BY_PEOPLE};
use crate::install::merge;
use crate::volumes::{HOST, LOCAL_PATH, PROXMOX, ZONE};

/// The label of a world's Nodes and pods.
pub(super) const WORLD: &str = "example.com/world";

/// Pods with it keep each other away, whatever their workload.
const APART: &str = "example.com/apart";

/// More than any machine has.
const TOO_MANY_CORES: &str = "5";

pub(super) struct World {
    /// Of its pool too.
    pub(super) name: String,
    pub(super) apps: Vec<App>,
}

pub(super) struct App {
    pub(super) name: String,
    pub(super) replicas: usize,
    /// Once the load has fallen.
    pub(super) later: usize,
    /// Whether a new machine can help its pods.
    pub(super) can_be_helped: bool,
    /// The Deployment or StatefulSet.
    pub(super) object: Value,
}

/// What pods ask for besides CPU and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    Plain,
    /// No two on one Node.
    Alone,
    /// No two on one Node, together with those of other workloads.
    Apart,
    /// The same number in each zone.
    Spread,
    /// The same number in each of at least two zones.
    SpreadOverTwo,
    /// All in one zone.
    Together,
    Port,
    LocalVolume,
    ZonalVolume,
    TooLarge,
    Elsewhere,
    NobodysVolume,
    PeoplesVolume,
    ClassThatIsMissing,
}

use Wish::*;

const HELPED: [Wish; 9] = [
    Plain,
    Alone,
    Apart,
    Spread,
    SpreadOverTwo,
    Together,
    Port,
    LocalVolume,
    ZonalVolume,
];
const REFUSED: [Wish; 5] = [
    TooLarge,
    Elsewhere,
    NobodysVolume,
    PeoplesVolume,
    ClassThatIsMissing,
];
/// Wishes that can come on top of another one.
const MORE: [Wish; 5] = [Alone, Apart, Spread, Port, ZonalVolume];

struct Draw(SmallRng);

impl Draw {
    fn percent(&mut self, chance: u32) -> bool {
        self.0.random_range(0..100) < chance
    }

    fn between(&mut self, least: usize, most: usize) -> usize {
        self.0.random_range(least..=most)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() - 1)]
    }
}

/// Every eighth world has nothing that can be helped.
pub(super) fn world(seed: u64, number: usize) -> World {
    let mut draw = Draw(SmallRng::seed_from_u64(seed ^ ((number as u64) << 32)));
    let name = format!("world-{number}");
    let is_hopeless = number % 8 == 7;
    let mut wishes: Vec<Vec<Wish>> = Vec::new();
    if !is_hopeless {
        for _ in 0..draw.between(1, 3) {
            let mut all = vec![draw.pick(&HELPED)];
            if draw.percent(40) && all != [Together] {
                let more = draw.pick(&MORE);
                all.retain(|wish| *wish != more);
                all.push(more);
            }
            wishes.push(all);
        }
    }
    if is_hopeless || draw.percent(25) {
        wishes.push(vec![draw.pick(&REFUSED)]);
    }
    let apps = wishes.into_iter().enumerate();
    let apps = apps.map(|(index, wishes)| app(&mut draw, &name, index, &wishes));
    let apps = apps.collect();
    World { name, apps }
}

fn app(draw: &mut Draw, world: &str, index: usize, wishes: &[Wish]) -> App {
    let name = format!("{world}-{index}");
    let replicas = draw.between(1, if wishes == [Plain] { 6 } else { 4 });
    let cpu = if wishes.contains(&TooLarge) {
        TOO_MANY_CORES
    } else {
        draw.pick(&["200m", "600m", "1", "1500m", "2500m"])
    };
    let memory = draw.pick(&["128Mi", "512Mi", "2Gi"]);
    let mut labels = json!({"app": name, WORLD: world});
    let mut spec = json!({
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {WORLD: world},
        "containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
        }],
    });
    let own = json!({"matchLabels": {"app": name}});
    let mut class = None;
    for wish in wishes {
        let wished = match wish {
            Plain | TooLarge => json!({}),
            Alone => affinity("podAntiAffinity", HOST, &own),
            Apart => {
                labels[APART] = json!(world);
                let all = json!({"matchLabels": {APART: world}});
                affinity("podAntiAffinity", HOST, &all)
            }
            Spread => spread(&own, None),
            SpreadOverTwo => spread(&own, Some(2)),
            Together => affinity("podAffinity", ZONE, &own),
            Port => {
                spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080}]);
                json!({})
            }
            Elsewhere => json!({"nodeSelector": {"example.com/disk": "ssd"}}),
            LocalVolume => volume(&mut class, LOCAL_PATH.class),
            ZonalVolume => volume(&mut class, PROXMOX.class),
            NobodysVolume => volume(&mut class, IMMEDIATE),
            PeoplesVolume => volume(&mut class, MADE_BY_PEOPLE),
            ClassThatIsMissing => volume(&mut class, "missing"),
        };
        merge(&mut spec, wished);
    }
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": own,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    });
    if let Some(class) = class {
        object["kind"] = json!("StatefulSet");
        let of_sets = json!({
            "serviceName": name, "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
        });
        merge(&mut object["spec"], of_sets);
    }
    App {
        name,
        replicas,
        later: draw.between(0, replicas),
        can_be_helped: !wishes.iter().any(|wish| REFUSED.contains(wish)),
        object,
    }
}

fn affinity(kind: &str, key: &str, selector: &Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": selector},
    ]}}})
}

fn spread(selector: &Value, min_domains: Option<u32>) -> Value {
    json!({"topologySpreadConstraints": [{
        "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": min_domains, "labelSelector": selector,
    }]})
}

/// The claims come with the StatefulSet.
fn volume(class: &mut Option<&'static str>, of: &'static str) -> Value {
    *class = Some(of);
    json!({})
}
