//! What shortens or ends the rests of workloads: another offer of a Node, and a pod that has run, if only for a second.

use std::sync::Arc;

use super::loops::{Play, made_for_pod, taints};
use super::*;
use crate::facts::*;
use crate::keys::{DISK_PRESSURE_TAINT, DRAINING_TAINT, NOT_READY_TAINT, UNNEEDED_TAINT};

type Change = fn(&mut Play);

/// Two machines of the class are in use. A third kind of pod makes machines in vain, and rests.
fn resting() -> Play {
    let mut play = Play::new();
    play.kubelet = taints;
    for name in ["old", "older"] {
        play.scene.machine(name, "beta");
        node(&mut play, name).taints.push(taint("example.com/slow"));
        play.scene
            .running(&format!("busy-{name}"), 1, name, spec("cpu=3"));
    }
    play.pod("web-1", ("ReplicaSet", "web"), "cpu=3");
    play.run(3600);
    // Until its last machine is gone.
    while !play.said.contains("InVain") {
        assert!(play.seconds < 7200, "{}", play.said);
        play.tick();
    }
    assert!(rounds(&play) > 2, "{:?}", play.scene.ledger.tries);
    play
}

fn node<'p>(play: &'p mut Play, name: &str) -> &'p mut NodeFacts {
    play.scene.nodes.get_mut(name).unwrap()
}

fn taint(key: &str) -> Taint {
    Taint {
        key: key.into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    }
}

fn rounds(play: &Play) -> u32 {
    let rows = play.scene.ledger.tries.iter();
    rows.map(|row| row.rounds).max().unwrap_or_default()
}

fn csi(name: &str, driver: &str) -> Delta {
    let driver = (Arc::from(driver), CsiNodeDriver::default());
    let facts = CsiNodeFacts {
        drivers: [driver].into(),
    };
    Delta::CsiNode(name.into(), Some(Box::new(facts)))
}

#[test]
fn another_offer_of_a_standing_node_shortens_the_rest() {
    let changes: [(&str, Change); 7] = [
        ("a label", |play| {
            let labels = &mut node(play, "old").labels;
            labels.insert("example.com/disk".to_owned(), "ssd".to_owned());
        }),
        ("no label", |play| {
            node(play, "older").labels.remove("kubernetes.io/hostname");
        }),
        ("no taint", |play| node(play, "old").taints.clear()),
        ("a taint", |play| {
            let taints = &mut node(play, "older").taints;
            taints.push(taint("example.com/theirs"));
        }),
        ("a device", |play| {
            let offered = &mut node(play, "old").allocatable;
            offered.set_extended("example.com/gpu".into(), 1);
        }),
        ("more memory", |play| {
            node(play, "older").allocatable.memory_bytes += 1 << 30;
        }),
        ("a CSI driver", |play| {
            play.scene.storage.push(csi("old", "csi.example.com"));
        }),
    ];
    for (what, change) in changes {
        let mut play = resting();
        let before = play.made.len();
        play.run(60);
        assert_eq!(play.made.len(), before, "it rests");
        change(&mut play);
        // Five minutes at most, where it would have rested for longer.
        play.run(360);
        assert_eq!(play.made.len(), before + 1, "{what}");
        assert!(rounds(&play) <= 2, "{what}");
    }
}

#[test]
fn what_comes_goes_or_passes_shortens_no_rest() {
    let changes: [(&str, Change); 7] = [
        ("a machine comes", |play| {
            play.scene.machine("other", "alpha");
            play.scene.running("busy", 1, "other", spec("cpu=3"));
        }),
        ("a Node of the user's comes", |play| {
            let facts = super::node("cpu=1 memory=1Gi");
            play.scene.node("theirs", facts);
        }),
        ("a machine goes", |play| {
            play.scene.guest("old", None);
            play.scene.claims.remove("old");
            play.scene.nodes.remove("old");
            play.scene
                .pods
                .retain(|_, pod| pod.node != Some("old".into()));
        }),
        ("a kubelet is silent", |play| {
            let node = node(play, "old");
            node.ready = false;
            node.taints.push(taint(NOT_READY_TAINT));
        }),
        ("pressure and the agent of a network", |play| {
            let taints = &mut node(play, "old").taints;
            taints.push(taint(DISK_PRESSURE_TAINT));
            taints.push(taint("node.cilium.io/agent-not-ready"));
        }),
        ("a cordon and taints of kproxide's", |play| {
            let node = node(play, "older");
            node.unschedulable = true;
            node.taints.push(taint(DRAINING_TAINT));
            node.taints.push(taint(UNNEEDED_TAINT));
        }),
        ("a new kernel", |play| {
            node(play, "older").allocatable.memory_bytes += 8192;
        }),
    ];
    for (what, change) in changes {
        let mut play = resting();
        let before = rounds(&play);
        change(&mut play);
        play.run(400);
        assert_eq!(rounds(&play), before, "{what}");
    }
    // A server was off: its devices come some minutes after its kubelet.
    let mut play = resting();
    let before = rounds(&play);
    let device = |play: &mut Play, count| {
        let offered = &mut node(play, "old").allocatable;
        offered.set_extended("example.com/gpu".into(), count);
    };
    node(&mut play, "old").ready = false;
    play.run(60);
    let now = at(play.now());
    (
        node(&mut play, "old").ready,
        node(&mut play, "old").ready_since,
    ) = (true, now);
    device(&mut play, 1);
    play.run(120);
    device(&mut play, 0);
    play.run(240);
    assert_eq!(rounds(&play), before);
}

#[test]
fn a_label_that_changes_every_minute_shortens_rests_once_in_six_hours() {
    let made = |flaps: bool, hours: i64| {
        let mut play = resting();
        let before = play.made.len();
        for minute in 0..hours * 60 {
            if flaps {
                let labels = &mut node(&mut play, "old").labels;
                labels.insert("example.com/seen".to_owned(), minute.to_string());
            }
            play.run(60);
        }
        play.made.len() - before
    };
    let (still, flapping) = (made(false, 5), made(true, 5));
    assert!(still < flapping, "{still} {flapping}");
    // 1 + log2(300 / 5)
    assert!(flapping <= 7, "{flapping}");
    let later = made(true, 17);
    assert!((flapping + 1..=3 * 8).contains(&later), "{later}");
}

#[test]
fn what_a_class_offers_is_read_from_its_own_nodes_that_stay() {
    let mut play = resting();
    let offered = |play: &Play| {
        let rows = play.scene.ledger.offered.iter();
        let nodes = rows.flat_map(|row| row.nodes.keys().map(ToString::to_string));
        nodes.collect::<Vec<_>>()
    };
    let before = offered(&play);
    assert!(before.contains(&"old".to_owned()), "{before:?}");
    for name in ["theirs", "leaving"] {
        play.scene.machine(name, "alpha");
        let now = at(play.now());
        let claim = play.scene.claim(name);
        if name == "theirs" {
            claim.spec.class = "other".into();
        } else {
            claim.deleting_since = Some(now);
        }
    }
    // The next tick is the last one with the machine that leaves.
    play.tick();
    let names = offered(&play);
    let has = |name: &str| names.iter().any(|it| it == name);
    assert!(has("old") && !has("theirs") && !has("leaving"), "{names:?}");
}

#[test]
fn a_machine_is_used_by_a_pod_that_fails_within_a_second() {
    // A kubelet that starts the pod and reports that it failed, one that refuses it, one that has not begun.
    for (phase, started, used) in [
        (PodPhase::Failed, true, true),
        (PodPhase::Pending, true, true),
        (PodPhase::Failed, false, false),
        (PodPhase::Pending, false, false),
    ] {
        let mut scene = Scene::default();
        scene.pending("job", 2, spec("cpu=1"));
        for (pod, machine) in [("job-00000", "a"), ("job-00001", "b")] {
            made_for_pod(&mut scene, pod, machine);
            scene.machine(machine, "alpha");
        }
        let pod = scene.pod("job-00000");
        (pod.node, pod.phase, pod.started) = (Some("a".into()), phase, started);
        let plan = scene.plan();
        let ledger = plan.ledger.as_ref().unwrap_or(&scene.ledger);
        let machines = ledger.tries.iter().flat_map(|row| &row.machines);
        let open: Vec<_> = machines.map(|tried| tried.claim.as_str()).collect();
        let expected = if used { &["b"][..] } else { &["a", "b"] };
        assert_eq!(open, expected, "{phase:?} {started}");
    }
}
