//! Random worlds and random answers, for [`super::properties`].

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::claim::Phase;
use crate::facts::*;
use crate::ids::*;
use crate::plan::question::*;
fn any_spec() -> impl Strategy<Value = PodSpec> {
    (0..5usize, 0..6usize, any::<bool>(), 0..12usize, 0..16usize).prop_map(
        |(size, selector, tolerant, port, neighbours)| {
            let mut spec = spec(
                [
                    "cpu=100m memory=128Mi",
                    "cpu=1 memory=1Gi",
                    "cpu=2 memory=3Gi",
                    "cpu=3 memory=7Gi",
                    "cpu=9",
                ][size],
            );
            spec.node_selector = labels(
                [
                    "",
                    "",
                    "",
                    "topology.kubernetes.io/zone=beta",
                    "rack=r1",
                    "none=none",
                ][selector],
            );
            if tolerant {
                spec.tolerations = vec![Toleration {
                    key: Some("dedicated".into()),
                    exists: true,
                    ..Toleration::default()
                }];
            }
            let ports = ["80/TCP", "80/TCP 10.0.0.1", "80/TCP 10.0.0.2", "80/UDP"];
            rule_neighbours(&mut spec, neighbours);
            spec.host_ports = ports
                .get(port)
                .map(|port| host_port(port))
                .into_iter()
                .collect();
            spec
        },
    )
}

/// Rules about pods of the apps `even` and `odd`, of which every group of pods is one; or what the pods prefer.
fn rule_neighbours(spec: &mut PodSpec, which: usize) {
    let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    let selector = |app: &str| {
        Some(LabelSelector {
            match_labels: labels(&format!("app={app}")),
            match_expressions: vec![],
        })
    };
    let term = |key: &str, app: &str| PodTerm {
        topology_key: key.into(),
        selector: selector(app),
        namespaces: Namespaces::Own,
    };
    let spread = |key: &str, min_domains: u32| SpreadConstraint {
        topology_key: key.into(),
        selector: selector("even"),
        min_domains,
        ..SpreadConstraint::default()
    };
    let preferred = |key: &str, value: &str, weight: i32| PreferredTerm {
        weight,
        preference: NodeSelectorTerm {
            match_expressions: vec![Requirement {
                key: key.into(),
                operator: Operator::In,
                values: vec![value.into()],
            }],
            match_fields: vec![],
        },
    };
    match which {
        0 => spec.pod_anti_affinity = vec![term(host, "even")],
        1 => spec.pod_anti_affinity = vec![term(zone, "odd")],
        2 => spec.pod_affinity = vec![term(zone, "even")],
        3 => spec.pod_affinity = vec![term(host, "odd")],
        4 => spec.spread = vec![spread(zone, 1)],
        5 => spec.spread = vec![spread(host, 1)],
        6 => spec.spread = vec![spread(zone, 3)],
        7 => {
            spec.preferred_node_affinity =
                vec![preferred(zone, "beta", 30), preferred(zone, "gamma", 20)]
        }
        8 => spec.preferred_node_affinity = vec![preferred("rack", "r1", 1)],
        9 => {
            spec.preferred_neighbours = vec![
                PreferredNeighbours {
                    weight: -100,
                    term: term(zone, "even"),
                    is_spread: true,
                },
                PreferredNeighbours {
                    weight: 10,
                    term: term(zone, "odd"),
                    is_spread: false,
                },
            ]
        }
        _ => {}
    }
}

#[derive(Clone, Debug)]
struct Group {
    spec: PodSpec,
    count: usize,
    /// The Node of the pods; beyond the machines they are pending.
    node: usize,
    owned: bool,
    protected: bool,
    /// Which claims its pods have, one each.
    claims: usize,
}

fn any_group() -> impl Strategy<Value = Group> {
    (
        any_spec(),
        1..8usize,
        0..8usize,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.1),
        0..12usize,
    )
        .prop_map(|(spec, count, node, owned, protected, claims)| Group {
            spec,
            count,
            node,
            owned,
            protected,
            claims,
        })
}

/// A claim for each pod whose name begins so: to be made, of a driver with a limit, of a hypervisor, of a Node, shared with
/// one pod, or one that no Node helps.
fn give_claims(scene: &mut Scene, prefix: &str, which: usize) {
    let (class, volume, nodes) = match which {
        0 => ("local", None, None),
        1 => ("proxmox", None, None),
        2 => (
            "proxmox",
            Some("csi.proxmox.sinextra.dev"),
            Some(("topology.kubernetes.io/zone", "beta")),
        ),
        3 => (
            "local",
            Some("local"),
            Some(("kubernetes.io/hostname", "m0")),
        ),
        4 => ("at-once", None, None),
        _ => return,
    };
    let mut storage = Vec::new();
    for (key, pod) in &mut scene.pods {
        if !key.name.starts_with(prefix) {
            continue;
        }
        pod.claims.push(PodClaim {
            name: key.name.clone(),
            is_ephemeral: false,
        });
        let claim = VolumeClaimFacts {
            class: Some(class.into()),
            volume: volume.map(|_| key.name.clone()),
            is_bound: volume.is_some(),
            ..VolumeClaimFacts::default()
        };
        storage.push(Delta::VolumeClaim(key.clone(), Some(Box::new(claim))));
        let affinity = nodes.map(|(key, value)| {
            vec![NodeSelectorTerm {
                match_expressions: vec![Requirement {
                    key: key.into(),
                    operator: Operator::In,
                    values: vec![value.into()],
                }],
                match_fields: vec![],
            }]
        });
        let facts = volume.map(|driver| VolumeFacts {
            source: "csi".into(),
            driver: Some(driver.into()),
            nodes: affinity.map(Into::into),
            claim: Some(key.clone()),
            ..VolumeFacts::default()
        });
        storage
            .extend(facts.map(|facts| Delta::Volume(key.name.to_string(), Some(Box::new(facts)))));
    }
    scene.storage.extend(storage);
}

/// Classes, and a driver that lets each Node hold two volumes.
fn any_classes(nodes: &[String]) -> Vec<Delta> {
    let class = |name: &str, provisioner: &str, waits_for_pod| {
        let facts = StorageClassFacts {
            provisioner: provisioner.into(),
            waits_for_pod,
            topologies: None,
        };
        Delta::StorageClass(name.to_owned(), Some(Box::new(facts)))
    };
    let driver = CsiNodeDriver {
        limit: Some(2),
        topology_keys: vec![],
    };
    let facts = CsiNodeFacts {
        drivers: [("csi.proxmox.sinextra.dev".into(), driver)].into(),
    };
    let of_nodes = nodes
        .iter()
        .map(|node| Delta::CsiNode(node.as_str().into(), Some(Box::new(facts.clone()))));
    let classes = [
        class("local", "local", true),
        class("proxmox", "csi.proxmox.sinextra.dev", true),
        class("at-once", "local", false),
    ];
    classes.into_iter().chain(of_nodes).collect()
}

fn any_hypervisor() -> impl Strategy<Value = HypervisorFacts> {
    (
        prop::sample::select(vec![2u32, 8, 32]),
        prop::sample::select(vec![8u64, 20, 64]),
        0..8u8,
        0.0..1.0f64,
    )
        .prop_map(|(threads, gib, state, cpu_usage)| {
            let mut facts = hypervisor(threads, gib);
            facts.online = state != 0;
            facts.maintenance = state == 1;
            facts.cpu_usage = cpu_usage;
            facts
        })
}

#[derive(Clone, Debug)]
struct Machine {
    hypervisor: usize,
    phase: Phase,
    is_ready: bool,
    is_deleted: bool,
    is_reserved: bool,
    guest: Option<GuestStatus>,
    /// Less than its type's size.
    is_small: bool,
}

fn any_machine() -> impl Strategy<Value = Machine> {
    let phase = prop::sample::select(vec![
        Phase::Pending,
        Phase::Launching,
        Phase::Launched,
        Phase::Initialized,
        Phase::Initialized,
        Phase::Initialized,
        Phase::Draining,
        Phase::Terminating,
    ]);
    (
        0..3usize,
        phase,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        0..10usize,
        prop::bool::weighted(0.3),
    )
        .prop_map(
            |(hypervisor, phase, is_ready, is_deleted, is_reserved, guest, is_small)| Machine {
                hypervisor,
                phase,
                is_ready,
                is_deleted,
                is_reserved,
                guest: match guest {
                    0 => None,
                    1 => Some(GuestStatus::Unknown),
                    2 => Some(GuestStatus::Stopped),
                    _ => Some(GuestStatus::Running),
                },
                is_small,
            },
        )
}

fn any_pool() -> impl Strategy<Value = PoolFacts> {
    (
        0..4u32,
        0..8u32,
        prop::option::of(4..30u32),
        0..3usize,
        any::<[bool; 3]>(),
        (0..3u32, 0..2i32),
    )
        .prop_map(
            |(
                min_nodes,
                max_nodes,
                cpu_cores,
                free_cores,
                [tainted, paused, enabled],
                (budget, weight),
            )| {
                let mut pool = pool();
                pool.limits.min_nodes = min_nodes;
                pool.limits.max_nodes = max_nodes;
                pool.weight = weight;
                pool.limits.cpu_cores = cpu_cores;
                pool.headroom = headroom(["", "", "cpu=2"][free_cores]);
                if tainted {
                    pool.taints = vec![taint("dedicated", TaintEffect::NoSchedule)];
                }
                pool.paused = paused && min_nodes == 3;
                pool.scale_down.enabled = enabled;
                pool.scale_down.budget = budget;
                pool.scale_down.stabilization = SignedDuration::ZERO.into();
                pool
            },
        )
}

prop_compose! {
    pub(super) fn any_scene()(
        hypervisors in prop::collection::vec(any_hypervisor(), 3),
        pools in prop::collection::vec(any_pool(), 1..3),
        types in prop::sample::subsequence(vec![("small", 2, 4), ("medium", 4, 8), ("large", 8, 32)], 1..=3),
        machines in prop::collection::vec(any_machine(), 0..6),
        groups in prop::collection::vec(any_group(), 0..6),
        most_machines in prop::option::of(1..4u32),
        last_vmid in 1000..1020u32,
        statics in 0..2usize,
        daemons in 0..3usize,
        daemons_port in prop::option::weighted(0.3, prop::sample::select(vec!["80/TCP", "80/TCP 10.0.0.1"])),
    ) -> Scene {
        let mut scene = Scene::default();
        let names = ["alpha", "beta", "gamma"];
        for (name, facts) in names.iter().zip(hypervisors) {
            *scene.hypervisor(name) = facts;
        }
        scene.cluster.max_machines_per_hypervisor = most_machines;
        scene.cluster.vmid_range.last = Vmid(last_vmid);
        scene.class.instance_types = types.into_iter().map(|(name, cores, gib)| instance_type(name, cores, gib)).collect();
        scene.pools = (0..).zip(pools).map(|(index, pool)| (["workers", "extra"][index].into(), pool)).collect();
        let mut nodes = Vec::new();
        for (index, machine) in machines.iter().enumerate() {
            let (name, on) = (format!("m{index}"), names[machine.hypervisor]);
            if machine.phase >= Phase::Initialized {
                scene.machine(&name, on);
                scene.claim(&name).status.phase = machine.phase;
                let node = scene.nodes.get_mut(name.as_str()).unwrap();
                node.ready = machine.is_ready;
                node.unschedulable = machine.phase >= Phase::Draining;
                if machine.is_small {
                    node.allocatable.subtract(&amounts("cpu=300m memory=500Mi"));
                }
                scene.guest(&name, machine.guest);
                nodes.push(name.clone());
            } else {
                scene.coming_machine(&name, on, machine.phase);
            }
            if machine.is_deleted {
                scene.claim(&name).deleting_since = Some(at(NOW - 5));
            }
            if machine.is_reserved {
                scene.ledger.entries.last_mut().unwrap().state = EntryState::Reserved { since: at(NOW - 5) };
            }
        }
        for index in 0..statics {
            let name = format!("static{index}");
            scene.node(&name, node("cpu=4 memory=8Gi")).labels = labels(&format!("kubernetes.io/hostname={name}"));
            nodes.push(name);
        }
        for (name, selector) in [("agent", ""), ("driver", "topology.kubernetes.io/zone=beta")].into_iter().take(daemons) {
            let mut spec = spec("cpu=100m memory=64Mi");
            spec.node_selector = labels(selector);
            spec.host_ports = daemons_port.map(host_port).into_iter().collect();
            scene.daemon_sets.insert(ObjectKey::new("kube-system", name), DaemonSetFacts { labels: labels(&format!("app={}", ["even", "odd"][daemons % 2])), spec, csi_drivers: vec![] });
        }
        scene.storage = any_classes(&nodes);
        for (index, group) in groups.iter().enumerate() {
            let name = format!("g{index}");
            match nodes.get(group.node) {
                Some(node) => scene.running(&name, group.count, node, group.spec.clone()),
                None => scene.pending(&name, group.count, group.spec.clone()),
            };
            give_claims(&mut scene, &format!("{name}-"), group.claims);
            let app = ["even", "odd"][index % 2];
            for (key, pod) in &mut scene.pods {
                if key.name.starts_with(&format!("{name}-")) {
                    pod.labels = labels(&format!("app={app}"));
                }
            }
            if let Some(pod) = scene.pods.get_mut(&PodKey::new("default", &format!("{name}-00000"))) {
                pod.do_not_disrupt = group.protected;
                if !group.owned {
                    pod.owner = None;
                }
            }
        }
        scene
    }
}

pub(super) fn racks(question: &Question) -> Answer {
    decorate(question, |hypervisor| {
        labels(if &*hypervisor.name == "alpha" {
            "rack=r1"
        } else {
            "rack=r2"
        })
    })
}

/// Answers of any form and content, one after the other.
pub(super) fn any_answers() -> impl Strategy<Value = Vec<AnswerBody>> {
    let scored = (
        0..6u32,
        prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -1.0..2.0f64],
    )
        .prop_map(|(index, score)| Scored {
            index,
            score,
            reason: "because".to_owned(),
        });
    let list = prop::collection::vec(scored, 0..6).boxed();
    let state = prop::option::of(
        prop::collection::vec(any::<u8>(), 0..3).prop_map(|bytes| bytes.repeat(2000)),
    )
    .boxed();
    let decoration = prop_oneof![
        Just("rack=r1"),
        Just("kproxide.dev/claim=x kubernetes.io/hostname=x"),
        Just("topology.kubernetes.io/zone=beta"),
    ]
    .prop_map(|text| Decoration {
        labels: labels(text),
        annotations: labels(text),
        taints: vec![
            taint("kproxide.dev/x", TaintEffect::NoExecute),
            taint("dedicated", TaintEffect::NoSchedule),
        ],
    });
    let body = prop_oneof![
        4 => (list.clone(), state.clone()).prop_map(|(placements, state)| AnswerBody::Ranking(Ranking { placements, rejected: vec![], state })),
        4 => (list, state).prop_map(|(removals, state)| AnswerBody::Removals(Removals { removals, state })),
        3 => prop::collection::vec(decoration, 3).prop_map(AnswerBody::Decorations),
        1 => Just(AnswerBody::NoCandidate("no".to_owned())),
        1 => Just(AnswerBody::Failed("trap".to_owned())),
        1 => Just(AnswerBody::Deferred),
    ];
    prop::collection::vec(body, 1..12)
}

/// The first body of the right kind from here on, so that hostile content is reached; now and then one of the wrong kind.
pub(super) fn hostile(question: &Question, bodies: &[AnswerBody], turn: usize) -> Answer {
    let suits = |body: &&AnswerBody| match (question, body) {
        (Question::Rank(_), AnswerBody::Ranking(_))
        | (Question::Order(_), AnswerBody::Removals(_))
        | (Question::Decorate(_), AnswerBody::Decorations(_)) => true,
        (Question::Rank(_) | Question::Order(_) | Question::Decorate(_), _) => false,
    };
    let rotated: Vec<&AnswerBody> = bodies
        .iter()
        .cycle()
        .skip(turn)
        .take(bodies.len())
        .collect();
    let found = rotated
        .iter()
        .copied()
        .find(suits)
        .filter(|_| turn % 5 != 4);
    answered(question, found.unwrap_or(rotated[0]).clone())
}
