mod daemons;

use super::*;
use crate::claim::Phase;
use crate::facts::*;
use crate::ids::Vmid;
use crate::plan::question::*;
use crate::planning::Limits;

#[test]
fn thirty_pods_get_as_many_machines_as_their_size_says() {
    // 4 cores and 8 GiB less an overhead of 200m and 512 MiB: seven pods of 500m each.
    let mut scene = Scene::default();
    scene.class.overhead.cpu = Amount::read("200m").unwrap();
    scene.class.overhead.memory = Amount::mib(512);
    scene.pending("web", 30, spec("cpu=500m memory=512Mi"));
    assert_eq!(launches(&scene), 5);
}

#[test]
fn f116_real_nodes_teach_what_their_type_offers() {
    let mut scene = Scene::default();
    scene.machine("first", "alpha");
    scene
        .nodes
        .get_mut("first")
        .unwrap()
        .allocatable
        .milli_cores = 3800;
    scene.running("full", 1, "first", spec("cpu=3800m"));
    scene.pending("web", 8, spec("cpu=500m"));
    assert_eq!(launches(&scene), 2, "3.8 cores hold seven");
}

#[test]
fn pods_that_fit_existing_nodes_or_coming_machines_create_nothing() {
    let mut scene = Scene::default();
    scene.node("static", node("cpu=2 memory=8Gi"));
    scene.coming_machine("coming", "alpha", Phase::Launching);
    scene.pending("web", 6, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(plan.launches, []);
    let outcomes: Vec<_> = plan
        .report
        .pending
        .iter()
        .map(|row| (row.count, row.outcome.clone()))
        .collect();
    assert_eq!(
        outcomes,
        [
            (2, PendingOutcome::FitsNode("static".into())),
            (4, PendingOutcome::FitsClaim("coming".into())),
        ]
    );
}

#[test]
fn f61_a_reservation_without_claim_is_capacity_to_come() {
    let mut scene = Scene::default();
    scene.coming_machine("coming", "alpha", Phase::Pending);
    scene.claims.clear();
    scene.ledger.entries[0].state = EntryState::Reserved { since: at(NOW - 1) };
    scene.pending("web", 4, spec("cpu=1"));
    assert_eq!(launches(&scene), 0);
}

#[test]
fn a_launch_past_its_deadline_is_no_capacity() {
    let mut scene = Scene::default();
    scene.coming_machine("stuck", "alpha", Phase::Launching);
    scene.claim("stuck").created = at(NOW - 300);
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(launches(&scene), 1);
}

#[test]
fn f14_a_node_that_joins_is_seen_as_it_will_be() {
    let mut scene = Scene::default();
    scene.machine("joining", "alpha");
    scene.claim("joining").status.phase = Phase::Registered;
    scene.claim("joining").status.started_at = Some(at(NOW - 60));
    scene.claim("joining").status.conditions.clear();
    let node = scene.nodes.get_mut("joining").unwrap();
    node.ready = false;
    node.taints = vec![
        taint("node.kubernetes.io/not-ready", TaintEffect::NoSchedule),
        taint("kproxide.dev/unregistered", TaintEffect::NoExecute),
    ];
    scene.pending("web", 4, spec("cpu=1"));
    assert_eq!(launches(&scene), 0);
}

#[test]
fn nodes_that_are_cordoned_tainted_or_not_ready_take_nothing() {
    for spoil in [
        (|node| node.unschedulable = true) as fn(&mut NodeFacts),
        |node| node.taints = vec![taint("dedicated", TaintEffect::NoSchedule)],
        |node| node.ready = false,
        |node| node.deleting = true,
    ] {
        let mut scene = Scene::default();
        spoil(scene.node("static", node("cpu=4 memory=8Gi")));
        scene.pending("web", 1, spec("cpu=1"));
        assert_eq!(launches(&scene), 1);
    }
}

#[test]
fn pods_that_the_scheduler_has_not_judged_create_nothing() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    scene.pod("web-00000").unschedulable_since = None;
    assert_eq!(launches(&scene), 0);
}

#[test]
fn a_pod_too_big_for_every_type_says_so() {
    let mut scene = Scene::default();
    scene.pending("big", 1, spec("cpu=5 memory=1Gi"));
    assert_eq!(
        why(&scene).to_string(),
        "asks for 5 of cpu; the largest machine offers 4"
    );
    scene
        .class
        .instance_types
        .push(instance_type("wide", 16, 4));
    scene.pods.clear();
    scene.pending("big", 1, spec("cpu=1 memory=9Gi"));
    assert_eq!(
        why(&scene).to_string(),
        "asks for 9Gi of memory; the largest machine offers 8Gi"
    );
}

#[test]
fn extended_resources_need_a_type_that_offers_them() {
    let mut scene = Scene::default();
    scene.pending("train", 2, spec("nvidia.com/gpu=1"));
    assert_eq!(
        why(&scene).to_string(),
        "asks for 1 of nvidia.com/gpu; the largest machine offers 0"
    );
    let mut gpu = instance_type("gpu", 4, 8);
    gpu.extended_resources = devices("nvidia.com/gpu=1");
    scene.class.instance_types.push(gpu);
    let plan = scene.plan();
    assert_eq!(
        plan.launches
            .iter()
            .map(|launch| launch.spec.instance_type.as_str())
            .collect::<Vec<_>>(),
        ["gpu", "gpu"]
    );
}

#[test]
fn taints_of_the_pool_keep_pods_away() {
    let mut scene = Scene::default();
    scene.workers().taints = vec![taint("dedicated", TaintEffect::NoSchedule)];
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(
        why(&scene).to_string(),
        "does not tolerate the taint dedicated:NoSchedule"
    );
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let mut scene = Scene::default();
    let mut spread = spec("cpu=1");
    spread.unsupported = vec!["spec.topologySpreadConstraints".into()];
    scene.pending("web", 1, spread);
    let plan = scene.plan();
    assert_eq!(plan.launches, []);
    assert_eq!(
        plan.report.pending[0].outcome,
        PendingOutcome::NotSupported("spec.topologySpreadConstraints".to_owned())
    );
}

#[test]
fn a_label_from_the_policy_finds_its_hypervisor_from_zero() {
    let mut scene = Scene::default();
    let mut picky = spec("cpu=1");
    picky.node_selector = labels("rack=rack-beta");
    scene.pending("web", 5, picky);
    let plan = scene.plan_with(|question| {
        decorate(question, |hypervisor| {
            labels(&format!("rack=rack-{}", hypervisor.name))
        })
    });
    let places: Vec<_> = plan
        .launches
        .iter()
        .map(|launch| {
            (
                &*launch.spec.hypervisor,
                launch.spec.labels["rack"].as_str(),
            )
        })
        .collect();
    assert_eq!(places, [("beta", "rack-beta"), ("beta", "rack-beta")]);
}

#[test]
fn zone_and_region_select_hypervisor_and_cluster() {
    let mut scene = Scene::default();
    let mut picky = spec("cpu=1");
    picky.node_selector =
        labels("topology.kubernetes.io/zone=gamma topology.kubernetes.io/region=pve");
    scene.pending("web", 1, picky);
    assert_eq!(&*scene.plan().launches[0].spec.hypervisor, "gamma");
}

#[test]
fn labels_take_precedence_ours_then_the_policys_then_the_pools() {
    let mut scene = Scene::default();
    scene.workers().labels =
        labels("a=pool b=pool kproxide.dev/pool=pool topology.kubernetes.io/zone=pool");
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan_with(|question| decorate(question, |_| labels("b=policy topology.kubernetes.io/region=policy node.kubernetes.io/instance-type=policy")));
    let claim = &plan.launches[0];
    let expected = format!(
        "a=pool b=policy kproxide.dev/claim={} kproxide.dev/class=standard kproxide.dev/instance-cpu=4 kproxide.dev/instance-memory=8192 kproxide.dev/pool=workers kproxide.dev/template=debian \
         node.kubernetes.io/instance-type=medium topology.kubernetes.io/region=policy topology.kubernetes.io/zone={}",
        claim.claim, claim.spec.hypervisor
    );
    assert_eq!(claim.spec.labels, labels(&expected));
}

#[test]
fn f80_a_label_policy_that_fails_blocks_its_pool_and_type() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan_with(|question| match question {
        Question::Decorate(_) => answered(question, AnswerBody::Failed("template: bad".to_owned())),
        Question::Rank(_) | Question::Order(_) => reasonable(question),
    });
    assert_eq!(plan.launches, []);
    let PendingOutcome::Unhelped(whys) = &plan.report.pending[0].outcome else {
        panic!()
    };
    assert_eq!(
        whys[0].1.to_string(),
        "label policy go-template: it failed: template: bad"
    );
    assert_eq!(
        failed(&plan),
        ["labels policy go-template: it failed: template: bad"]
    );
}

#[test]
fn decorations_are_asked_once_and_again_when_something_changed() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let asked = |world: &crate::world::World| {
        let mut count = 0;
        let plan = plan(world, at(NOW), Limits::default(), |question| {
            count += usize::from(matches!(question, Question::Decorate(_)));
            reasonable(question)
        });
        (count, plan)
    };
    let mut world = scene.world();
    let (first, plan) = asked(&world);
    world.remember(&plan);
    let (second, plan) = asked(&world);
    assert_eq!((first, second, plan.launches.len()), (1, 0, 1));

    let use_ = policy(PolicyKind::Labels, "go-template").policy;
    world.apply(Delta::Policy(
        use_,
        Some(PolicyFacts {
            digest: "new-digest".into(),
        }),
    ));
    assert_eq!(asked(&world).0, 1, "another module may answer otherwise");
}

#[test]
fn limits_are_those_of_the_ledger() {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 2;
    scene.pending("web", 12, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    let rest = plan.report.pending.last().unwrap();
    assert_eq!(rest.count, 4);
    let PendingOutcome::Unhelped(whys) = &rest.outcome else {
        panic!("{rest:?}")
    };
    assert_eq!(
        whys[0].1.to_string(),
        "the pool has 2 of at most 2 machines (maxNodes)"
    );

    scene.workers().limits.max_nodes = 10;
    scene.workers().limits.cpu_cores = Some(9);
    assert_eq!(launches(&scene), 2);
    scene.workers().limits.cpu_cores = None;
    scene.workers().limits.memory_mib = Some(8 << 10);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn f114_the_stabilization_window_holds_launches_back() {
    let mut scene = Scene::default();
    scene.workers().scale_up.stabilization_window = jiff::SignedDuration::from_secs(60).into();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), plan.wake_at), (0, Some(at(NOW + 30))));
    scene.pod("web-00000").unschedulable_since = Some(at(NOW - 60));
    assert_eq!(launches(&scene), 1);
}

#[test]
fn what_is_left_over_gets_a_smaller_machine_than_the_others() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("large", 8, 32), instance_type("small", 2, 8)];
    scene.pending("web", 9, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    let types = plan
        .launches
        .iter()
        .map(|launch| launch.spec.instance_type.as_str());
    let mut types: Vec<_> = types.collect();
    types.sort_unstable();
    assert_eq!(types, ["large", "small"]);
}

#[test]
fn the_smallest_type_that_holds_the_pods_is_taken() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![
        instance_type("large", 16, 64),
        instance_type("small", 2, 4),
        instance_type("medium", 4, 8),
    ];
    let types = |scene: &Scene| -> Vec<String> {
        scene
            .plan()
            .launches
            .iter()
            .map(|launch| launch.spec.instance_type.to_string())
            .collect()
    };
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(types(&scene), ["small"]);
    scene.pending("web", 3, spec("cpu=1"));
    assert_eq!(types(&scene), ["medium"]);
    scene.pending("web", 20, spec("cpu=1"));
    assert_eq!(
        types(&scene),
        ["medium"; 5],
        "cheapest machines, then the fewest"
    );
}

#[test]
fn where_large_machines_find_no_room_small_ones_are_made() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("large", 16, 64), instance_type("small", 2, 4)];
    for name in ["alpha", "beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(32, 9);
    }
    scene.pending("web", 8, spec("cpu=1"));
    assert_eq!(launches(&scene), 4);
}

#[test]
fn a_large_plan_finds_the_type_that_costs_least_too() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![
        instance_type("huge", 64, 512),
        instance_type("large", 48, 384),
        instance_type("medium", 32, 256),
        instance_type("lean", 16, 32),
    ];
    for types in &mut scene.class.instance_types {
        types.max_pods = 110;
    }
    for name in ["alpha", "beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(100_000, 1_000_000);
    }
    scene.cluster.vmid_range.last = Vmid(99_999);
    let workers = scene.workers();
    (
        workers.limits.max_nodes,
        workers.limits.cpu_cores,
        workers.limits.memory_mib,
    ) = (10_000, None, None);
    // 110 of the huge ones, of which most memory would be left over.
    scene.pending("web", 7_000, spec("cpu=1 memory=1Gi"));
    let plan = scene.plan();
    assert!(!plan.launches.is_empty());
    for launch in &plan.launches {
        assert_eq!(launch.spec.instance_type.as_str(), "lean");
    }
}

#[test]
fn pools_of_higher_weight_come_first_and_the_next_helps_out() {
    let mut scene = Scene::default();
    let mut preferred = scene.workers().clone();
    preferred.weight = 10;
    preferred.limits.max_nodes = 1;
    scene.pools.insert("zz-preferred".into(), preferred);
    scene.pending("web", 8, spec("cpu=1"));
    let plan = scene.plan();
    let mut pools: Vec<&str> = plan
        .launches
        .iter()
        .map(|launch| launch.spec.pool.as_str())
        .collect();
    pools.sort_unstable();
    assert_eq!(pools, ["workers", "zz-preferred"]);
}

#[test]
fn what_cannot_be_used_says_why() {
    let check = |change: fn(&mut Scene), expected: &str| {
        let mut scene = Scene::default();
        scene.pending("web", 1, spec("cpu=1"));
        change(&mut scene);
        let text = why(&scene).to_string();
        assert!(text.contains(expected), "{text}");
    };
    check(
        |scene| scene.workers().paused = true,
        "NodePool workers is paused",
    );
    check(
        |scene| scene.workers().problem = Some("bad".to_owned()),
        "NodePool workers cannot be used: bad",
    );
    check(
        |scene| scene.workers().node_class = "none".into(),
        "names NodeClass none, which does not exist",
    );
    check(
        |scene| scene.workers().clusters = vec!["other".into()],
        "names ProxmoxCluster other, which does not exist",
    );
    check(
        |scene| scene.class.problem = Some("bad".to_owned()),
        "NodeClass standard cannot be used: bad",
    );
    check(
        |scene| scene.class.instance_types.clear(),
        "NodeClass standard has no instance types",
    );
    check(
        |scene| scene.host.key_known = false,
        "the ownership key is missing",
    );
    check(
        |scene| scene.host.definition_problem = Some("the claims are swept away".to_owned()),
        "the claims are swept away",
    );
    check(
        |scene| scene.inventory.quorate = false,
        "Proxmox cluster pve has no quorum",
    );
    check(
        |scene| {
            scene.inventory.reachable = false;
            scene.inventory.problem = Some("no route".to_owned());
        },
        "Proxmox cluster pve cannot be reached: no route",
    );
    check(
        |scene| {
            scene.inventory = InventoryFacts {
                problem: Some("401".to_owned()),
                ..InventoryFacts::default()
            };
        },
        "Proxmox cluster pve cannot be used: 401",
    );
}

#[test]
fn pods_that_fit_anywhere_do_not_take_the_place_of_those_that_do_not() {
    let mut scene = Scene::default();
    scene.node("anywhere", node("cpu=2 memory=8Gi"));
    scene.node("special", node("cpu=2 memory=8Gi")).labels = labels("disk=ssd");
    let mut picky = spec("cpu=100m");
    picky.node_selector = labels("disk=ssd");
    scene.pending("large", 3, spec("cpu=1"));
    scene.pending("picky", 2, picky);
    let plan = scene.plan();
    let unplaced: Vec<_> = plan
        .report
        .pending
        .iter()
        .filter(|row| !matches!(row.outcome, PendingOutcome::FitsNode(_)))
        .collect();
    assert!(unplaced.is_empty(), "{unplaced:?}");
}

#[test]
fn machines_that_a_pool_wants_and_cannot_have_are_reported() {
    let mut scene = Scene::default();
    scene.workers().limits.min_nodes = 3;
    scene.workers().limits.max_nodes = 2;
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    assert_eq!(
        plan.report.findings[0].to_string(),
        "warning: NodePool/workers: kproxide can make no more machines for the pool's minNodes: the pool has 2 of at most 2 machines (maxNodes)"
    );
    scene.cluster.hypervisors.exclude = vec!["alpha".into(), "beta".into(), "gamma".into()];
    assert!(scene.plan().report.findings[0].message.contains(
        "pve/alpha, pve/beta, pve/gamma: excluded by spec.hypervisors of the ProxmoxCluster"
    ));
}

#[test]
fn hypervisors_that_could_take_nothing_are_reported_with_their_reasons() {
    let mut scene = Scene::default();
    scene
        .inventory
        .hypervisors
        .values_mut()
        .for_each(|facts| facts.online = false);
    scene.pending("web", 1, spec("cpu=1"));
    let rejected: Vec<String> = scene
        .plan()
        .report
        .rejected
        .iter()
        .map(|row| format!("{} {}", row.hypervisor, row.reason))
        .collect();
    assert_eq!(
        rejected,
        ["pve/alpha offline", "pve/beta offline", "pve/gamma offline"]
    );
}

#[test]
fn the_largest_pods_get_room_first_where_a_core_counts_as_four_gigabytes() {
    let mut scene = Scene::default();
    scene.node("server", node("cpu=2 memory=5Gi"));
    scene.pending("cores", 1, spec("cpu=2 memory=1Gi"));
    scene.pending("memory", 1, spec("cpu=100m memory=5000Mi"));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1);
    assert_eq!(
        plan.launches[0].reason,
        "for the pending pod default/memory-00000"
    );
}
