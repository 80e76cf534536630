//! Facts by key: in which questions each stands, and when it is left out.

use std::sync::Arc;

use super::*;
use crate::facts::{HypervisorDetails, PodFacts};
use crate::ids::PodKey;
use crate::plan::question::{
    Attribute, AttributeValue, Candidate, HypervisorDescription, Question,
};

fn attribute(key: &str, value: AttributeValue) -> Attribute {
    let key = key.into();
    Attribute { key, value }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::Text(value.into())
}

/// Every question that a tick asks of this world.
fn questions(scene: &Scene) -> Vec<Question> {
    let mut asked = Vec::new();
    let _ = scene.plan_with(|question| {
        asked.push(question.clone());
        reasonable(question)
    });
    asked
}

/// The hypervisors that a question shows.
fn shown(question: &Question) -> Vec<HypervisorDescription> {
    let described = |candidates: &[Candidate]| {
        let all = candidates.iter();
        all.map(|it| it.hypervisor.clone()).collect()
    };
    match question {
        Question::Rank(rank) => described(&rank.candidates),
        Question::Order(order) => described(&order.hypervisors),
        Question::Decorate(decorate) => decorate.hypervisors.clone(),
    }
}

/// `key=value` of the hypervisor, as the question shows it.
fn told(question: &Question, hypervisor: &str) -> Vec<String> {
    let shown = shown(question);
    let mut named = shown.iter().filter(|it| &*it.id.name == hypervisor);
    let attributes = &named.next().expect("a hypervisor of that name").attributes;
    assert!(
        attributes.is_sorted_by(|a, b| a.key < b.key),
        "{attributes:?}"
    );
    let in_words = attributes.iter().map(|it| match &it.value {
        AttributeValue::Text(text) => format!("{}={text}", it.key),
        AttributeValue::Integer(integer) => format!("{}={integer}", it.key),
        AttributeValue::Number(number) => format!("{}={number:?}", it.key),
        AttributeValue::Boolean(boolean) => format!("{}={boolean}", it.key),
    });
    in_words.collect()
}

/// Two pods that want a machine each.
fn busy() -> Scene {
    let mut scene = Scene::default();
    scene.pending("web", 2, spec("cpu=4"));
    scene
}

/// Two empty machines that may go.
fn idle() -> Scene {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene
}

#[test]
fn what_the_operator_says_of_a_hypervisor_stands_in_every_kind_of_question() {
    let said = [
        (
            "alpha",
            vec![
                attribute("power", AttributeValue::Integer(300)),
                attribute("rack", text("r1")),
            ],
        ),
        (
            "beta",
            vec![
                attribute("rack", text("r2")),
                attribute("ssd", AttributeValue::Boolean(true)),
            ],
        ),
    ];
    let mut kinds = [false; 3];
    for mut scene in [busy(), idle()] {
        let said = said.clone().map(|(name, said)| (name.into(), said));
        scene.cluster.hypervisor_attributes = said.into();
        for question in questions(&scene) {
            let kind = match question {
                Question::Rank(_) => 0,
                Question::Order(_) => 1,
                Question::Decorate(_) => 2,
            };
            kinds[kind] = true;
            let own = |name| {
                let mut told = told(&question, name);
                told.retain(|it| !it.starts_with("pve."));
                told
            };
            assert_eq!(own("alpha"), ["power=300", "rack=r1"]);
            assert_eq!(own("beta"), ["rack=r2", "ssd=true"]);
            assert_eq!(own("gamma"), [""; 0]);
        }
    }
    assert_eq!(kinds, [true; 3], "each kind was asked");
}

/// A server of which Proxmox tells everything.
fn talkative(scene: &mut Scene, name: &str, kernel: &str) {
    let alpha = scene.hypervisor(name);
    (alpha.guests, alpha.uptime_seconds) = (3, Some(86_400));
    alpha.ha_state = Some("online".into());
    alpha.details = Some(Arc::new(HypervisorDetails {
        cpu_model: Some("AMD EPYC".into()),
        sockets: Some(2),
        version: Some("9.2.11".into()),
        kernel: Some(kernel.into()),
        load: Some([0.5, 0.25, 1.0]),
        tags: Some(["gpu".into(), "ssd".into()].into()),
    }));
}

#[test]
fn what_proxmox_says_stands_in_rankings_and_removals_and_of_it_labels_get_what_stays() {
    let stays = [
        "pve.cpu-model=AMD EPYC",
        "pve.kernel=6.14.8",
        "pve.sockets=2",
        "pve.threads=32",
        "pve.version=9.2.11",
    ];
    let mut kinds = [false; 3];
    for (mut scene, promised) in [(busy(), "0.0"), (idle(), "0.125")] {
        talkative(&mut scene, "alpha", "6.14.8");
        talkative(&mut scene, "beta", "6.8.12");
        let promised = format!("pve.committed-cores-per-thread={promised}");
        let all = [
            promised.as_str(),
            "pve.cpu-model=AMD EPYC",
            "pve.guests=3",
            "pve.ha-state=online",
            "pve.kernel=6.14.8",
            "pve.load-15m=1.0",
            "pve.load-1m=0.5",
            "pve.load-5m=0.25",
            "pve.sockets=2",
            "pve.storage.local.free-bytes=1073741824000",
            "pve.storage.local.type=lvmthin",
            "pve.storage.shared.free-bytes=10737418240000",
            "pve.storage.shared.type=rbd",
            "pve.tags=gpu;ssd",
            "pve.threads=32",
            "pve.uptime-seconds=86400",
            "pve.version=9.2.11",
        ];
        let mut ranked = 0;
        for question in questions(&scene) {
            let told_of_beta = told(&question, "beta");
            assert!(told_of_beta.contains(&"pve.kernel=6.8.12".to_owned()));
            match question {
                Question::Decorate(_) => {
                    kinds[0] = true;
                    assert_eq!(told(&question, "alpha"), stays);
                    assert_eq!(told(&question, "gamma"), ["pve.threads=32"]);
                }
                Question::Order(_) => {
                    kinds[1] = true;
                    assert_eq!(told(&question, "alpha"), all);
                }
                // A machine that was placed before in the same tick counts.
                Question::Rank(_) if ranked == 0 => {
                    (kinds[2], ranked) = (true, 1);
                    assert_eq!(told(&question, "alpha"), all);
                }
                Question::Rank(_) => {
                    let with_one = "pve.committed-cores-per-thread=0.125";
                    assert_eq!(told(&question, "alpha")[0], with_one);
                }
            }
        }
    }
    assert_eq!(kinds, [true; 3], "each kind was asked");
}

#[test]
fn what_proxmox_measured_minutes_ago_is_left_out() {
    for (age, is_told) in [(60, true), (299, true), (300, false), (3600, false)] {
        let mut scene = idle();
        talkative(&mut scene, "alpha", "6.14.8");
        scene.inventory.taken_at = Some(at(NOW - age));
        let order = questions(&scene).pop().expect("a question");
        let told = told(&order, "alpha");
        for measured in ["pve.guests=3", "pve.load-1m=0.5", "pve.tags=gpu;ssd"] {
            let stands = told.iter().any(|it| it == measured);
            assert_eq!(stands, is_told, "{age} s: {told:?}");
        }
        for stays in ["pve.kernel=6.14.8", "pve.committed-cores-per-thread=0.125"] {
            assert!(told.iter().any(|it| it == stays), "{told:?}");
        }
    }
}

#[test]
fn of_a_storage_whose_size_proxmox_does_not_say_only_the_type_is_told() {
    let mut scene = idle();
    let storages = &mut scene.hypervisor("alpha").storages;
    let mut unknown = storages["local"].clone();
    unknown.total_bytes = 0;
    storages.insert("unknown".into(), unknown);
    let order = questions(&scene).pop().expect("a question");
    let told = told(&order, "alpha").join(" ");
    assert!(told.contains("pve.storage.local.free-bytes="), "{told}");
    assert!(told.contains("pve.storage.unknown.type=lvmthin"), "{told}");
    assert!(!told.contains("pve.storage.unknown.free"), "{told}");
}

#[test]
fn a_ranking_is_told_how_many_pods_wait_for_the_machine_and_how_urgently() {
    let mut scene = Scene::default();
    scene.pending("web", 3, spec("cpu=1"));
    let mut urgent = spec("cpu=3");
    urgent.priority = 1000;
    scene.pending("urgent", 1, urgent);
    // The others wait since 30 s.
    scene.pod("web-00001").unschedulable_since = Some(at(NOW - 90));
    scene.workers().limits.min_nodes = 3;
    let mut told = Vec::new();
    for question in questions(&scene) {
        if let Question::Rank(rank) = question {
            let attributes = rank.machine.attributes;
            assert!(attributes.is_sorted_by(|a, b| a.key < b.key));
            let in_words = attributes.iter().map(|it| {
                let AttributeValue::Integer(integer) = it.value else {
                    panic!("{it:?}");
                };
                format!("{}={integer}", it.key)
            });
            told.push(in_words.collect::<Vec<_>>().join(" "));
        }
    }
    told.sort();
    assert_eq!(
        told,
        [
            "pods.highest-priority=0 pods.oldest-seconds=90 pods.waiting=2",
            "pods.highest-priority=1000 pods.oldest-seconds=90 pods.waiting=2",
            "pods.waiting=0",
        ]
    );
}

#[test]
fn a_policy_for_removals_is_told_of_the_pods_that_would_have_to_move() {
    let mut scene = idle();
    // Three on the one Node, none on the other but what a DaemonSet ties to it.
    scene.machine("c", "alpha");
    scene.running("web-b", 1, "b", spec("cpu=500m memory=512Mi"));
    let mut urgent = spec("cpu=100m");
    urgent.priority = 1000;
    scene.running("urgent", 1, "b", urgent.clone());
    scene.pod("urgent-00000").created = at(NOW - 40);
    scene.pod("web-b-00000").created = at(NOW - 90);
    for (name, node, kind) in [("tied", "c", "DaemonSet"), ("job", "b", "Job")] {
        let pod = PodFacts {
            owner: Some(owner(kind)),
            ..running_pod(node, urgent.clone())
        };
        scene.pods.insert(PodKey::new("default", name), pod);
    }
    scene.workers().scale_down.blocked_by.unfinished_jobs = false;
    let Some(Question::Order(order)) = questions(&scene).pop() else {
        panic!("nothing can go");
    };
    let told = |name: &str| {
        let node = order
            .nodes
            .iter()
            .find(|it| it.name.as_str() == name)
            .expect("it can go");
        assert!(node.attributes.is_sorted_by(|a, b| a.key < b.key));
        let in_words = node
            .attributes
            .iter()
            .map(|it| format!("{}={:?}", it.key, it.value));
        in_words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        told("b"),
        "pods.highest-priority=Integer(1000) pods.of-jobs=Integer(1) pods.youngest-seconds=Integer(40)"
    );
    assert_eq!(told("c"), "pods.of-jobs=Integer(0)");
}
