//! What keeps a Node that could be spared: its pods, and those that will come to it.

use super::scale_down::idle;
use super::*;
use crate::facts::*;
use crate::ids::ObjectKey;
use crate::kubernetes::eviction::Blocker;
use crate::plan::Standing;

fn budget(selector: &str, allowed: i32) -> DisruptionBudgetFacts {
    DisruptionBudgetFacts {
        selector: Some(LabelSelector {
            match_labels: labels(selector),
            match_expressions: vec![],
        }),
        disruptions_allowed: allowed,
        ..DisruptionBudgetFacts::default()
    }
}

#[test]
fn f119_pods_block_as_the_pool_says() {
    let check = |change: fn(&mut PodFacts), expected: &str, lift: fn(&mut BlockedBy)| {
        let mut scene = idle();
        change(scene.pod("web-b-00000"));
        let reason = kept(&scene.plan(), "b").unwrap();
        assert!(
            reason.starts_with("pod default/web-b-00000 ") && reason.contains(expected),
            "{reason}"
        );
        lift(&mut scene.workers().scale_down.blocked_by);
        assert_eq!(removed(&scene.plan()), ["b"]);
    };
    check(
        |pod| pod.owner = None,
        "blockedBy.barePods",
        |by| by.bare_pods = false,
    );
    check(
        |pod| pod.owner = Some(owner("Job")),
        "blockedBy.unfinishedJobs",
        |by| by.unfinished_jobs = false,
    );
    check(
        |pod| pod.spec.local_volumes = true,
        "blockedBy.localVolumes",
        |by| by.local_volumes = false,
    );
}

#[test]
fn r17_a_pod_that_runs_once_blocks_as_a_jobs_does_unless_it_has_no_controller() {
    let mut scene = idle();
    for name in ["web-a-00000", "web-b-00000"] {
        scene.pod(name).owner = Some(owner("EphemeralRunner"));
        scene.pod(name).runs_once = true;
    }
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert!(
        kept(&plan, "b")
            .unwrap()
            .contains("blockedBy.unfinishedJobs")
    );
    scene.pod("web-b-00000").runs_once = false;
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.pod("web-b-00000").runs_once = true;
    scene.workers().scale_down.blocked_by.unfinished_jobs = false;
    assert_eq!(removed(&scene.plan()), ["b"]);
}

/// A budget that allows no disruption, and the pods of `a` and `b` under it.
#[test]
fn r19_a_budget_holds_pods_as_the_eviction_api_does() {
    let removed_with = |pod: fn(&mut PodFacts), is_healthy: bool, frees_unhealthy: bool| {
        let mut scene = idle();
        for name in ["web-a-00000", "web-b-00000"] {
            scene.pod(name).labels = labels("app=web");
        }
        pod(scene.pod("web-b-00000"));
        let budget = DisruptionBudgetFacts {
            is_healthy,
            frees_unhealthy,
            ..budget("app=web", 0)
        };
        scene
            .budgets
            .insert(ObjectKey::new("default", "web"), budget);
        let plan = scene.plan();
        removed(&plan) == ["b"]
    };
    let running: fn(&mut PodFacts) = |_| ();
    let crashing: fn(&mut PodFacts) = |pod| pod.ready = false;
    let starting: fn(&mut PodFacts) = |pod| (pod.ready, pod.phase) = (false, PodPhase::Pending);
    assert!(!removed_with(running, true, true), "a Ready pod");
    assert!(!removed_with(crashing, false, false), "too few are healthy");
    assert!(
        removed_with(crashing, true, false),
        "enough others are healthy"
    );
    assert!(removed_with(crashing, false, true), "AlwaysAllow");
    assert!(
        removed_with(starting, false, false),
        "it has not begun to run"
    );
}

/// Two pods of one budget that allows one disruption: the one that is not Ready uses up none.
#[test]
fn r19_a_pod_that_is_not_ready_uses_up_no_disruption() {
    let mut scene = idle();
    scene.workers().scale_down.budget = 2;
    scene.node("0-static", node("cpu=16 memory=64Gi"));
    for name in ["web-a-00000", "web-b-00000"] {
        scene.pod(name).labels = labels("app=web");
    }
    scene
        .budgets
        .insert(ObjectKey::new("default", "web"), budget("app=web", 1));
    assert_eq!(removed(&scene.plan()).len(), 1);
    scene.pod("web-b-00000").ready = false;
    let healthy = scene.budgets.values_mut().next().unwrap();
    healthy.is_healthy = true;
    assert_eq!(removed(&scene.plan()), ["a", "b"]);
}

#[test]
fn r22_a_duration_of_karpenters_annotation_runs_out() {
    let mut scene = idle();
    scene.pod("web-b-00000").protected_until = Some(at(NOW + 30));
    let plan = scene.plan();
    assert_eq!(
        (removed(&plan), plan.wake_at),
        (vec!["a"], Some(at(NOW + 30)))
    );
    scene.pod("web-b-00000").protected_until = Some(at(NOW));
    assert_eq!(removed(&scene.plan()), ["b"]);
    // On a Node it counts from the Node's creation.
    for (value, expected) in [("23h", "b"), ("25h", "a"), ("true", "a"), ("false", "b")] {
        let node = scene.nodes.get_mut("b").unwrap();
        node.annotations = labels(&format!("karpenter.sh/do-not-disrupt={value}"));
        assert_eq!(removed(&scene.plan()), [expected], "{value}");
    }
}

#[test]
fn r15_a_pod_on_completion_needs_no_other_place_and_no_budget() {
    let mut scene = idle();
    scene.pod("web-b-00000").labels = labels("app=job");
    scene.pod("web-b-00000").owner = Some(owner("Job"));
    scene.pod("web-b-00000").spec.requests = spec("cpu=3500m").requests.clone();
    scene.pod("web-a-00000").do_not_disrupt = true;
    scene.workers().scale_down.load_headroom = 0.0;
    scene.node("static", node("cpu=3 memory=8Gi"));
    scene
        .budgets
        .insert(ObjectKey::new("default", "job"), budget("app=job", 0));
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
    scene.pod("web-b-00000").on_completion = true;
    assert_eq!(removed(&scene.plan()), ["b"]);
}

#[test]
fn r15_a_pod_that_is_safe_to_evict_blocks_by_no_rule_of_the_pool() {
    let ties: [fn(&mut PodFacts); 4] = [
        |pod| pod.owner = None,
        |pod| pod.owner = Some(owner("Job")),
        |pod| pod.spec.local_volumes = true,
        |pod| pod.spec.empty_dir = true,
    ];
    for tie in ties {
        let mut scene = idle();
        scene.workers().scale_down.blocked_by.empty_dir = true;
        let pod = scene.pod("web-b-00000");
        tie(pod);
        pod.safe_to_evict = true;
        assert_eq!(removed(&scene.plan()), ["b"]);
        // Its own word against it, and its budget, hold.
        scene.pod("web-b-00000").do_not_disrupt = true;
        assert_eq!(removed(&scene.plan()), ["a"]);
        scene.pod("web-b-00000").do_not_disrupt = false;
        let pod = scene.pod("web-b-00000");
        pod.labels = labels("app=b");
        let key = ObjectKey::new("default", "b");
        scene.budgets.insert(key, budget("app=b", 0));
        assert_eq!(removed(&scene.plan()), ["a"]);
    }
}

#[test]
fn pods_block_whatever_the_pool_says() {
    let check = |change: fn(&mut PodFacts), expected: &str| {
        let mut scene = idle();
        scene.workers().scale_down.blocked_by.bare_pods = false;
        change(scene.pod("web-b-00000"));
        let plan = scene.plan();
        assert_eq!(removed(&plan), ["a"]);
        let reason = kept(&plan, "b").unwrap();
        assert!(reason.contains(expected), "{reason}");
    };
    check(|pod| pod.do_not_disrupt = true, "against its eviction");
    check(
        |pod| pod.spec.unsupported = vec!["spec.affinity.podAffinity".into()],
        "uses spec.affinity.podAffinity, which is not supported yet",
    );
}

#[test]
fn k3s_add_ons_do_not_block() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.node("server", node("cpu=4 memory=8Gi")).labels = labels("kubernetes.io/hostname=server");
    for name in ["coredns", "metrics-server", "local-path-provisioner"] {
        let mut pod = running_pod("m", spec("cpu=100m memory=70Mi"));
        pod.spec.empty_dir = name == "metrics-server";
        if name == "coredns" {
            pod.labels = labels("k8s-app=kube-dns");
            pod.spec.spread = vec![spread("k8s-app=kube-dns")];
        }
        scene.pods.insert(ObjectKey::new("kube-system", name), pod);
    }
    assert_eq!(removed(&scene.plan()), ["m"]);
    scene.workers().scale_down.blocked_by.kube_system = true;
    assert_eq!(
        kept(&scene.plan(), "m").unwrap(),
        "pod kube-system/coredns is a system pod (blockedBy.kubeSystem)"
    );
}

fn spread(selector: &str) -> SpreadConstraint {
    SpreadConstraint {
        topology_key: "kubernetes.io/hostname".into(),
        selector: Some(LabelSelector {
            match_labels: labels(selector),
            match_expressions: vec![],
        }),
        ..SpreadConstraint::default()
    }
}

#[test]
fn a_pod_that_spreads_moves_only_where_no_other_counts() {
    let mut scene = idle();
    scene.pod("web-b-00000").labels = labels("app=web");
    scene.pod("web-b-00000").spec.spread = vec![spread("app=web")];
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.pod("web-a-00000").labels = labels("app=web");
    assert_eq!(
        kept(&scene.plan(), "b").unwrap(),
        "pod default/web-b-00000 fits on no other Node"
    );
    scene.pod("web-a-00000").deleting = true;
    assert_eq!(
        removed(&scene.plan()),
        ["b"],
        "the scheduler does not count it"
    );

    let a = scene.nodes.get_mut("a").unwrap();
    a.labels.remove("kubernetes.io/hostname");
    assert_eq!(
        kept(&scene.plan(), "b").unwrap(),
        "pod default/web-b-00000 fits on no other Node"
    );
}

#[test]
fn a_node_that_receives_pods_in_thought_stays() {
    // With budget for both, the pod of one must not be moved to the other while that one goes.
    let mut scene = idle();
    scene.workers().scale_down.budget = 2;
    scene.workers().scale_down.load_headroom = 0.0;
    scene.node("full", node("cpu=20 memory=20Gi"));
    scene.nodes.get_mut("full").unwrap().taints = vec![taint("full", TaintEffect::NoSchedule)];
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["b"]);
    assert_eq!(
        kept(&plan, "a").unwrap(),
        "pods of Nodes that this tick removes will come to it"
    );
    let later = acted(&scene, &plan).plan();
    assert_eq!(removed(&later), ["b"]);
    assert_eq!(
        kept(&later, "a").unwrap(),
        "pods of Nodes that are being removed will come to it"
    );
}

#[test]
fn pods_of_replaced_nodes_keep_their_room() {
    let check = |cores: u32, expected: &[&str]| {
        let mut scene = Scene::default();
        scene.workers().scale_down.budget = 2;
        scene.workers().scale_down.load_headroom = 0.0;
        scene.node("far", node("cpu=40 memory=80Gi")).taints =
            vec![taint("far", TaintEffect::NoSchedule)];
        for name in ["a", "b", "c"] {
            scene.machine(name, "alpha");
            scene.running(&format!("web-{name}"), 1, name, spec("cpu=1"));
        }
        scene.running("web-a", 1, "a", spec(&format!("cpu={cores}")));
        scene.claim("a").replace = true;
        assert_eq!(removed(&scene.plan()), expected, "{cores} cores");
    };
    check(2, &["a", "c"]);
    check(3, &["a"]);
}

#[test]
fn pods_that_end_or_stay_with_the_node_do_not_block() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    for (name, change) in [
        (
            "done",
            (|pod| pod.phase = PodPhase::Succeeded) as fn(&mut PodFacts),
        ),
        ("static", |pod| pod.mirror = true),
        ("agent", |pod| pod.owner = Some(owner("DaemonSet"))),
    ] {
        let mut pod = running_pod("m", spec("cpu=1"));
        pod.owner = None;
        change(&mut pod);
        scene.pods.insert(ObjectKey::new("default", name), pod);
    }
    let plan = scene.plan();
    assert_eq!(kept(&plan, "m").unwrap_err(), "no pod needs it");
}

#[test]
fn b14_a_disruption_budget_without_disruptions_keeps_the_node() {
    let mut scene = idle();
    scene.pod("web-b-00000").labels = labels("app=web");
    scene
        .budgets
        .insert(ObjectKey::new("default", "web"), budget("app=web", 0));
    assert_eq!(
        kept(&scene.plan(), "b").unwrap(),
        "pod default/web-b-00000 is protected by PodDisruptionBudget web"
    );

    scene
        .budgets
        .insert(ObjectKey::new("default", "web"), budget("app=web", 1));
    assert_eq!(removed(&scene.plan()), ["b"]);

    scene
        .budgets
        .insert(ObjectKey::new("default", "all"), budget("", 1));
    assert!(
        kept(&scene.plan(), "b")
            .unwrap()
            .contains("has several PodDisruptionBudgets")
    );

    scene.budgets = [(ObjectKey::new("elsewhere", "web"), budget("app=web", 0))].into();
    assert_eq!(removed(&scene.plan()), ["b"]);
}

/// Only its owner can change that, so it is told on the claim, once; and taken back when the budget yields.
#[test]
fn l10_a_pod_that_alone_keeps_its_node_is_told_on_the_claim() {
    let mut scene = idle();
    scene.workers().scale_down.unneeded_time = jiff::SignedDuration::from_secs(60).into();
    scene.pod("web-b-00000").labels = labels("app=web");
    let key = ObjectKey::new("default", "web");
    scene.budgets.insert(key.clone(), budget("app=web", 0));
    let why = "pod default/web-b-00000 is protected by PodDisruptionBudget web";
    let of_b = |plan: &Plan| {
        let noted = plan
            .unneeded
            .iter()
            .find(|noted| noted.claim.as_str() == "b");
        noted.map(|noted| noted.standing.clone())
    };
    let standing = of_b(&scene.plan()).unwrap();
    assert_eq!(
        standing,
        Standing::Blocked(
            ObjectKey::new("default", "web-b-00000"),
            Blocker::Budget("web".into())
        )
    );

    let record = crate::claim::unneeded(&standing, at(NOW));
    record.apply(&mut scene.claim("b").status, "epoch", "nonce");
    assert_eq!(of_b(&scene.plan()), None, "it is told once");
    let note = record.note.unwrap();
    assert_eq!(note.reason, "ScaleDownBlocked");
    assert_eq!(
        note.message,
        format!("kproxide could remove its Node, but {why}")
    );

    scene.budgets.insert(key, budget("app=web", 1));
    assert_eq!(of_b(&scene.plan()), Some(Standing::CouldGo));
    // A Node that is needed is blocked by nobody.
    scene.workers().scale_down.enabled = false;
    assert_eq!(of_b(&scene.plan()), Some(Standing::Needed));
}

#[test]
fn one_disruption_is_not_spent_twice() {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 2;
    scene.node("static", node("cpu=40 memory=80Gi"));
    for name in ["a", "b"] {
        scene.machine(name, "alpha");
        scene.running(&format!("web-{name}"), 1, name, spec("cpu=1"));
        scene.pod(&format!("web-{name}-00000")).labels = labels("app=web");
    }
    scene
        .budgets
        .insert(ObjectKey::new("default", "web"), budget("app=web", 1));
    assert_eq!(removed(&scene.plan()).len(), 1);
}
