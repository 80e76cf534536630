//! Situations in which kproximate fails (`B…` in the list of its defects), each decided well here.

use super::*;
use crate::facts::*;
use crate::ids::*;
use crate::plan::RemovalReason;

#[test]
fn b3_zero_nodes_and_a_memory_short_pod_get_a_machine() {
    let mut scene = Scene::default();
    scene.pending("db", 1, spec("memory=6Gi"));
    assert_eq!(launches(&scene), 1);
}

#[test]
fn b4_a_pod_that_no_machine_can_help_creates_nothing() {
    let mut scene = Scene::default();
    scene.node("control-plane", node("cpu=4 memory=8Gi")).taints = vec![taint(
        "node-role.kubernetes.io/control-plane",
        TaintEffect::NoSchedule,
    )];
    let mut picky = spec("cpu=100m");
    picky.node_selector = labels("disk=ssd");
    scene.pending("picky", 1, picky);
    assert_eq!(
        why(&scene).to_string(),
        "no machine of this pool would carry the labels it needs: nodeSelector disk=ssd"
    );
}

#[test]
fn b5_a_tainted_control_plane_alone_leads_to_a_worker_whatever_the_scheduler_says() {
    // The facts hold no scheduler message at all, so none can be misread.
    let mut scene = Scene::default();
    scene.node("control-plane", node("cpu=4 memory=8Gi")).taints = vec![taint(
        "node-role.kubernetes.io/control-plane",
        TaintEffect::NoSchedule,
    )];
    scene.pending("web", 1, spec("cpu=100m memory=64Mi"));
    assert_eq!(launches(&scene), 1);
}

#[test]
fn b8_full_static_workers_keep_a_small_managed_node() {
    let mut scene = Scene::default();
    for name in ["static-1", "static-2", "static-3"] {
        scene.node(name, node("cpu=4 memory=8Gi"));
        scene.running(&format!("full-{name}"), 4, name, spec("cpu=1 memory=1Gi"));
    }
    scene.machine("small", "alpha");
    scene.running("web", 2, "small", spec("cpu=1 memory=1Gi"));
    let plan = scene.plan();
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        kept(&plan, "small").unwrap(),
        "pod default/web-00000 fits on no other Node"
    );
}

#[test]
fn b8_an_empty_managed_node_beside_full_static_workers_goes() {
    let mut scene = Scene::default();
    scene.node("static", node("cpu=4 memory=8Gi"));
    scene.running("full", 4, "static", spec("cpu=1 memory=1Gi"));
    scene.machine("empty", "alpha");
    assert_eq!(removed(&scene.plan()), ["empty"]);
}

#[test]
fn f40_b9_an_offline_hypervisor_gets_no_machine_however_empty() {
    let mut scene = Scene::default();
    scene.hypervisor("alpha").online = false;
    scene.hypervisor("beta").maintenance = true;
    scene.hypervisor("gamma").memory_used_bytes = 100 * GIB;
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(&*plan.launches[0].spec.hypervisor, "gamma");
    let rejected: Vec<String> = plan
        .report
        .rejected
        .iter()
        .map(|row| format!("{}: {}", row.hypervisor, row.reason))
        .collect();
    assert_eq!(rejected, ["pve/alpha: offline", "pve/beta: in maintenance"]);
}

#[test]
fn f85_b20_excluded_hypervisors_and_minimums_are_hard() {
    let mut scene = Scene::default();
    scene.cluster.hypervisors.exclude = vec!["alpha".into(), "beta".into(), "gamma".into()];
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(
        why(&scene).to_string(),
        "no hypervisor can take the machine: pve/alpha, pve/beta, pve/gamma: excluded by spec.hypervisors of the ProxmoxCluster"
    );

    scene.cluster.hypervisors.exclude = vec![];
    scene.cluster.min_available_cpu_cores = 33;
    assert!(
        why(&scene)
            .to_string()
            .contains("32 cores are idle, at least 33 must be (minAvailableCpuCores)")
    );

    scene.cluster.min_available_cpu_cores = 0;
    scene.cluster.min_available_memory_mb = 129 << 10;
    assert!(
        why(&scene)
            .to_string()
            .contains("128Gi of memory is free, at least 129Gi must be (minAvailableMemoryMB)")
    );
}

#[test]
fn b20_minimums_hold_against_what_is_idle_now() {
    let mut scene = Scene::default();
    scene.cluster.min_available_cpu_cores = 17;
    scene.hypervisor("alpha").cpu_usage = 0.5;
    scene.hypervisor("beta").cpu_usage = 0.46;
    scene.hypervisor("gamma").cpu_usage = 0.47;
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(&*plan.launches[0].spec.hypervisor, "beta");
}

#[test]
fn b25_pods_of_daemon_sets_create_nothing() {
    let mut scene = Scene::default();
    scene.pending("agent", 3, spec("cpu=1"));
    for pod in scene.pods.values_mut() {
        pod.owner = Some(owner("DaemonSet"));
    }
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), plan.report.pending.len()), (0, 0));
}

#[test]
fn b26_four_pods_of_1100_millicores_need_four_machines_of_two_cores() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("small", 2, 4)];
    scene.pending("web", 4, spec("cpu=1100m"));
    assert_eq!(launches(&scene), 4);
}

#[test]
fn b26_machines_are_counted_by_what_they_offer_beside_their_daemons() {
    let mut scene = Scene::default();
    scene.class.overhead.cpu = Amount::read("200m").unwrap();
    scene.daemon_sets.insert(
        ObjectKey::new("kube-system", "agent"),
        DaemonSetFacts {
            labels: Labels::new(),
            spec: spec("cpu=300m memory=100Mi"),
            csi_drivers: vec![],
        },
    );
    scene.pending("web", 4, spec("cpu=1"));
    assert_eq!(launches(&scene), 2, "4 cores less 500m hold three of them");
}

#[test]
fn b29_a_dead_node_counts_and_is_replaced() {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 1;
    scene.machine("dead", "alpha");
    let node = scene.nodes.get_mut("dead").unwrap();
    node.ready = false;
    node.ready_since = at(NOW - 599);
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(
        (plan.launches.len(), verdict(&plan, "dead")),
        (0, Verdict::Keep)
    );
    assert_eq!(
        plan.wake_at,
        Some(at(NOW + 1)),
        "the tick in which it is given up"
    );

    scene.nodes.get_mut("dead").unwrap().ready_since = at(NOW - 600);
    let plan = scene.plan();
    assert_eq!(
        verdict(&plan, "dead"),
        Verdict::Remove(RemovalReason::Repair)
    );
    assert_eq!(plan.launches, [], "it counts until it is proven gone");

    scene.ledger.entries[0].state = EntryState::Quarantined {
        since: None,
        until: at(NOW + 86_400),
    };
    scene.claims.clear();
    scene.nodes.clear();
    assert_eq!(launches(&scene), 1);
}

#[test]
fn a_dry_run_plans_like_any_other() {
    let mut scene = Scene::default();
    scene.pending("web", 4, spec("cpu=1"));
    let launches = scene.plan().launches;
    scene.host.dry_run = true;
    assert_eq!(scene.plan().launches, launches);
}
