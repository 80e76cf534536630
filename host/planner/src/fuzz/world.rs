//! A World from any changes, in any order that one object's changes keep.

use std::collections::BTreeMap;

use super::{Draw, moment};
use crate::facts::{Delta, DisruptionBudgetFacts, LabelSelector, PodPhase, VolumeAttachmentFacts};
use crate::fixtures::{NOW, Scene, at, labels, node, owner, pending_pod, plan, reasonable, spec};
use crate::ids::{ClaimName, NodeName, ObjectKey};
use crate::planning::Limits;
use crate::world::World;

/// In the order given, in another one, and from the last state of each object alone, as a list gives it: nobody can tell them apart.
pub fn deltas(data: &[u8]) {
    let mut draw = Draw::new(data);
    let scene = scene();
    let all: Vec<Delta> = scene.deltas();
    let deltas: Vec<Delta> = all
        .iter()
        .cloned()
        .chain((0..draw.below(24)).map(|_| delta(&mut draw, &scene)))
        .collect();

    let mut in_order = World::default();
    for delta in &deltas {
        in_order.apply(delta.clone());
    }

    let mut keys: BTreeMap<String, usize> = BTreeMap::new();
    let mut shuffled: Vec<(usize, usize)> = Vec::new();
    for (index, delta) in deltas.iter().enumerate() {
        let floor = keys.entry(object(delta)).or_default();
        *floor = (*floor).max(draw.below(256));
        shuffled.push((*floor, index));
    }
    shuffled.sort();
    let mut another = World::default();
    for (_, index) in shuffled {
        another.apply(deltas[index].clone());
    }

    let last: BTreeMap<String, &Delta> = deltas.iter().map(|one| (object(one), one)).collect();
    let mut listed = World::default();
    for delta in last.into_values() {
        listed.apply(delta.clone());
    }

    let now = moment(&mut draw);
    let seen = [in_order, another, listed].map(|world| seen(&world, now));
    assert_eq!(seen[0], seen[1], "another order, another world");
    assert_eq!(seen[0], seen[2], "a list would have shown another world");
}

/// What readers see of a World, and what is planned for it.
fn seen(world: &World, now: jiff::Timestamp) -> Vec<String> {
    let mut seen = vec![
        format!("{:?}", world.daemon_sets()),
        format!("{:?}", world.disruption_budgets()),
        format!("{:?}", world.namespaces()),
        format!("{:?}", world.volume_attachments()),
        format!("{:?}", world.pools()),
        format!("{:?}", world.claims()),
        format!("{:?}", world.ledger()),
        format!("{:?}", world.inventories()),
        format!("{:?}", world.policies()),
        format!("{:?}", world.host()),
        format!("{} {}", world.pod_count(), world.shape_count()),
    ];
    seen.extend(
        world
            .pods()
            .map(|pod| format!("{:?} {:?}", pod.key(), pod.to_facts())),
    );
    for node in world.nodes() {
        let mut pods: Vec<_> = node.pods().map(|pod| pod.key()).collect();
        pods.sort();
        let sums = (node.requested(), node.movable(), node.movable_pods());
        let uuid = node.facts.system_uuid.as_ref();
        let found = uuid.and_then(|uuid| world.node_by_uuid(uuid));
        let found = found.map(|node| node.name());
        seen.push(format!(
            "{:?} {:?} {pods:?} {sums:?} {found:?}",
            node.name(),
            node.facts
        ));
    }
    for (shape, pods) in world.pending() {
        let pods: Vec<_> = pods.iter().map(|pod| pod.key()).collect();
        seen.push(format!("{shape:?} {pods:?}"));
    }
    for now in [now, at(NOW)] {
        let plan = plan(world, now, Limits::default(), reasonable);
        seen.push(format!("{plan:?}"));
    }
    seen
}

/// Which object a change is about.
fn object(delta: &Delta) -> String {
    match delta {
        Delta::Pod(key, _) => format!("pod {key}"),
        Delta::Node(name, _) => format!("node {name}"),
        Delta::DaemonSet(key, _) => format!("daemon set {key}"),
        Delta::DisruptionBudget(key, _) => format!("budget {key}"),
        Delta::Namespace(name, _) => format!("namespace {name}"),
        Delta::VolumeAttachment(name, _) => format!("attachment {name}"),
        Delta::VolumeClaim(key, _) => format!("volume claim {key}"),
        Delta::Volume(name, _) => format!("volume {name}"),
        Delta::StorageClass(name, _) => format!("storage class {name}"),
        Delta::CsiNode(name, _) => format!("CSI node {name}"),
        Delta::CsiDriver(name, _) => format!("CSI driver {name}"),
        Delta::StorageCapacity(key, _) => format!("storage capacity {key}"),
        Delta::Cluster(name, _) => format!("cluster {name}"),
        Delta::Class(name, _) => format!("class {name}"),
        Delta::Pool(name, _) => format!("pool {name}"),
        Delta::Claim(name, _) => format!("claim {name}"),
        Delta::Ledger(_) => "ledger".to_owned(),
        Delta::Inventory(name, _) => format!("inventory {name}"),
        Delta::Orphans(cluster, _) => format!("orphans of {cluster}"),
        Delta::Policy(policy, _) => format!("policy {policy:?}"),
        Delta::Host(_) => "host".to_owned(),
    }
}

fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.machine("m", "alpha").machine("n", "beta");
    scene.running("web", 3, "m", spec("cpu=1"));
    scene.pending("api", 2, spec("cpu=2 memory=1Gi"));
    scene
}

/// A change of one of few objects, so that they meet; or the end of any.
fn delta(draw: &mut Draw<'_>, scene: &Scene) -> Delta {
    let kind = draw.byte() % 13;
    let is_gone = draw.byte().is_multiple_of(4);
    fn set<T>(is_gone: bool, facts: T) -> Option<Box<T>> {
        (!is_gone).then(|| Box::new(facts))
    }
    match kind {
        0..5 => {
            let name = draw.word(&["web-00000", "web-00001", "api-00000", "new"]);
            Delta::Pod(ObjectKey::new("default", name), set(is_gone, pod(draw)))
        }
        5 | 6 => {
            let name: NodeName = draw.word(&["m", "n", "o"]).into();
            let mut facts = node(draw.word(&["cpu=4 memory=8Gi", "cpu=1", ""]));
            facts.ready = draw.flag();
            facts.unschedulable = draw.flag();
            facts.system_uuid = draw
                .flag()
                .then(|| draw.word(&["uuid-m", "uuid-n", "u"]).into());
            Delta::Node(name, set(is_gone, facts))
        }
        7 => {
            let selectors = ["app=a", "app=b", "extra=1", ""];
            let facts = DisruptionBudgetFacts {
                selector: draw.flag().then(|| LabelSelector {
                    match_labels: labels(draw.word(&selectors)),
                    match_expressions: vec![],
                }),
                disruptions_allowed: (draw.byte() % 2).into(),
                ..DisruptionBudgetFacts::default()
            };
            let name = draw.word(&["b", "c"]);
            Delta::DisruptionBudget(ObjectKey::new("default", name), set(is_gone, facts))
        }
        8 => {
            let name: ClaimName = draw.word(&["m", "n"]).into();
            let mut facts = scene.claims[&name].clone();
            facts.paused = draw.flag();
            facts.deleting_since = draw.flag().then(|| moment(draw));
            Delta::Claim(name, set(is_gone, facts))
        }
        9 => {
            let mut facts = scene.inventory.clone();
            facts.complete = draw.flag();
            facts.quorate = draw.flag();
            facts.taken_at = Some(moment(draw));
            Delta::Inventory("pve".into(), set(is_gone, facts))
        }
        10 => {
            let facts = VolumeAttachmentFacts {
                node: draw.word(&["m", "n"]).into(),
                volume: Some("v".into()),
            };
            Delta::VolumeAttachment("a".to_owned(), (!is_gone).then_some(facts))
        }
        11 => {
            let team = labels(draw.word(&["team=a", "team=b", ""]));
            let name = draw.word(&["default", "other"]).into();
            Delta::Namespace(name, set(is_gone, team))
        }
        _ => {
            let all = scene.deltas();
            match draw.pick(&all).clone() {
                Delta::Ledger(_) if is_gone => Delta::Ledger(None),
                Delta::Pool(name, _) if is_gone => Delta::Pool(name, None),
                Delta::Class(name, _) if is_gone => Delta::Class(name, None),
                Delta::Cluster(name, _) if is_gone => Delta::Cluster(name, None),
                Delta::Policy(policy, _) if is_gone => Delta::Policy(policy, None),
                other @ (Delta::Pod(..)
                | Delta::Node(..)
                | Delta::DaemonSet(..)
                | Delta::DisruptionBudget(..)
                | Delta::Namespace(..)
                | Delta::VolumeAttachment(..)
                | Delta::VolumeClaim(..)
                | Delta::Volume(..)
                | Delta::StorageClass(..)
                | Delta::CsiNode(..)
                | Delta::CsiDriver(..)
                | Delta::StorageCapacity(..)
                | Delta::Cluster(..)
                | Delta::Class(..)
                | Delta::Pool(..)
                | Delta::Claim(..)
                | Delta::Ledger(_)
                | Delta::Inventory(..)
                | Delta::Orphans(..)
                | Delta::Policy(..)
                | Delta::Host(_)) => other,
            }
        }
    }
}

fn pod(draw: &mut Draw<'_>) -> crate::facts::PodFacts {
    let spec = spec(draw.word(&["cpu=1", "cpu=2 memory=1Gi", "a/gpu=1", ""]));
    let mut pod = pending_pod(spec);
    pod.node = draw
        .flag()
        .then(|| draw.word(&["m", "n", "o", "elsewhere"]).into());
    pod.labels = labels(draw.word(&["app=a", "app=b", "app=a extra=1", ""]));
    pod.deleting = draw.flag();
    pod.grace_ends = (pod.deleting && draw.flag()).then(|| moment(draw));
    pod.runs_once = draw.flag();
    pod.started = draw.flag();
    pod.phase = *draw.pick(&[
        PodPhase::Pending,
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
    ]);
    pod.unschedulable_since = draw.flag().then(|| moment(draw));
    pod.bound_since = draw.flag().then(|| moment(draw));
    pod.owner = draw
        .flag()
        .then(|| owner(draw.word(&["ReplicaSet", "DaemonSet", "Job"])));
    pod.mirror = draw.byte().is_multiple_of(8);
    pod
}
