use super::*;
use crate::claim::Phase;
use crate::facts::*;
use crate::ids::*;
use crate::planning::Limits;
use crate::question::*;

#[test]
fn thirty_pods_get_as_many_machines_as_their_size_says() {
    // 4 cores and 8 GiB less an overhead of 200m and 512 MiB: seven pods of 500m each.
    let mut scene = Scene::default();
    scene.class.overhead_milli_cores = 200;
    scene.class.overhead_memory_bytes = GIB / 2;
    scene.pending("web", 30, spec("cpu=500m memory=512Mi"));
    assert_eq!(launches(&scene), 5);
}

#[test]
fn real_nodes_teach_what_their_type_offers() {
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
fn a_reservation_without_claim_is_capacity_to_come() {
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
fn a_node_that_joins_is_seen_as_it_will_be() {
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
    gpu.extended = amounts("nvidia.com/gpu=1");
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
        "a=pool b=policy kproxide.dev/claim={} kproxide.dev/class=standard kproxide.dev/pool=workers kproxide.dev/template=debian \
         node.kubernetes.io/instance-type=medium topology.kubernetes.io/region=policy topology.kubernetes.io/zone={}",
        claim.claim, claim.spec.hypervisor
    );
    assert_eq!(claim.spec.labels, labels(&expected));
}

#[test]
fn a_label_policy_that_fails_blocks_its_pool_and_type() {
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
    scene.workers().max_nodes = 2;
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

    scene.workers().max_nodes = 10;
    scene.workers().max_milli_cores = Some(9_000);
    assert_eq!(launches(&scene), 2);
    scene.workers().max_milli_cores = None;
    scene.workers().max_memory_bytes = Some(8 * GIB);
    assert_eq!(launches(&scene), 1);
}

#[test]
fn hypervisors_are_filled_and_not_overfilled() {
    let mut scene = Scene::default();
    for name in ["alpha", "beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(4, 20);
    }
    scene.workers().max_nodes = 100;
    scene.pending("web", 100, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches.len(), 6, "two of 8 GiB on each of 20 GiB");

    scene.cluster.max_machines_per_hypervisor = Some(1);
    assert_eq!(launches(&scene), 3);
    scene.cluster.overcommit_cpu = 0.5;
    assert_eq!(launches(&scene), 0);
}

#[test]
fn machines_that_do_not_run_yet_take_room() {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 20))].into();
    scene.coming_machine("coming", "alpha", Phase::Launching);
    scene.pending("web", 12, spec("cpu=1"));
    assert_eq!(launches(&scene), 1);
}

#[test]
fn a_stopped_machine_is_counted_once() {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 24))].into();
    scene.machine("coming", "alpha");
    scene.claim("coming").status.phase = Phase::Launching;
    scene.claim("coming").created = at(NOW - 10);
    scene.claim("coming").status.started_at = None;
    scene.nodes.clear();
    scene.inventory.guests.values_mut().next().unwrap().status = GuestStatus::Stopped;
    scene.pending("web", 12, spec("cpu=1"));
    assert_eq!(launches(&scene), 2, "24 GiB hold it and two more");
}

#[test]
fn numbers_come_from_the_range_and_are_never_reused() {
    let mut scene = Scene::default();
    scene.cluster.vmid_first = Vmid(9998);
    scene.cluster.vmid_last = Vmid(10_003);
    scene.coming_machine("quarantined", "alpha", Phase::Pending);
    scene.claims.clear();
    scene.ledger.entries[0].vmid = Vmid(9998);
    scene.ledger.entries[0].state = EntryState::Quarantined { until: at(NOW + 1) };
    let guest = GuestFacts {
        hypervisor: "beta".into(),
        name: None,
        status: GuestStatus::Running,
        template: false,
        lock: None,
        pool: None,
        max_threads: 1,
        max_memory_bytes: GIB,
    };
    scene.inventory.guests.insert(Vmid(10_001), guest);
    scene.pending("web", 40, spec("cpu=1"));
    let plan = scene.plan();
    let numbers: Vec<u32> = plan
        .launches
        .iter()
        .map(|launch| launch.spec.vmid.0)
        .collect();
    assert_eq!(numbers, [10_000, 10_002, 10_003]);
    let rest = plan.report.pending.last().unwrap();
    assert!(
        format!("{:?}", rest.outcome)
            .contains("cluster pve has no free VMID in 9998 to 10003 (vmidRange)"),
        "{rest:?}"
    );
}

#[test]
fn addresses_come_from_the_class_in_order() {
    let mut scene = Scene::default();
    scene.class.addresses = Some(vec![
        AddressRange {
            first: "10.0.0.8".parse().unwrap(),
            last: "10.0.0.9".parse().unwrap(),
        },
        AddressRange {
            first: "fd00::1".parse().unwrap(),
            last: "fd00::1".parse().unwrap(),
        },
    ]);
    scene.coming_machine("one", "alpha", Phase::Launching);
    scene.claim("one").spec.address = Some("10.0.0.8".parse().unwrap());
    scene.pending("web", 40, spec("cpu=1"));
    let plan = scene.plan();
    let addresses: Vec<String> = plan
        .launches
        .iter()
        .map(|launch| launch.spec.address.unwrap().to_string())
        .collect();
    assert_eq!(addresses, ["10.0.0.9", "fd00::1"]);
    let rest = plan.report.pending.last().unwrap();
    assert!(
        format!("{:?}", rest.outcome)
            .contains("the address pool of NodeClass standard has no free address")
    );
}

#[test]
fn one_tick_begins_at_most_twenty_machines() {
    let mut scene = Scene::default();
    scene.workers().max_nodes = 100;
    scene.pending("web", 30 * 4, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 20);
    let rest = plan.report.pending.last().unwrap();
    assert_eq!(
        (rest.count, &rest.outcome),
        (
            40,
            &PendingOutcome::Unhelped(vec![("workers".into(), Why::NextTick)])
        )
    );
}

#[test]
fn min_nodes_are_made_without_pods() {
    let mut scene = Scene::default();
    scene.workers().min_nodes = 3;
    scene.coming_machine("coming", "alpha", Phase::Launching);
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    assert_eq!(
        plan.launches[0].reason,
        "NodePool workers has fewer than 3 machines (minNodes)"
    );
}

#[test]
fn headroom_is_kept_free_beyond_the_pods() {
    let mut scene = Scene::default();
    scene.workers().headroom = amounts("cpu=3");
    assert_eq!(launches(&scene), 1);
    scene.pending("web", 1, spec("cpu=2"));
    assert_eq!(
        launches(&scene),
        2,
        "the machine of the pod has 2 cores left"
    );
    scene.pods.clear();
    scene.workers().headroom = amounts("a/gpu=1");
    assert_eq!(
        launches(&scene),
        1,
        "what no machine offers is not tried for ever"
    );
}

#[test]
fn the_stabilization_window_holds_launches_back() {
    let mut scene = Scene::default();
    scene.workers().scale_up_stabilization = jiff::SignedDuration::from_secs(60);
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!((plan.launches.len(), plan.wake_at), (0, Some(at(NOW + 30))));
    scene.pod("web-00000").unschedulable_since = Some(at(NOW - 60));
    assert_eq!(launches(&scene), 1);
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
        ["large", "medium"],
        "fewest machines, then the cheapest"
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
fn pools_of_higher_weight_come_first_and_the_next_helps_out() {
    let mut scene = Scene::default();
    let mut preferred = scene.workers().clone();
    preferred.weight = 10;
    preferred.max_nodes = 1;
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
fn orders_with_fewest_hypervisors_are_placed_first_and_choices_leave_room() {
    // The policy prefers alpha, which alone can take the pods that select it.
    let mut scene = Scene::default();
    for name in ["alpha", "beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(32, 8);
    }
    let mut picky = spec("cpu=3");
    picky.node_selector = labels("topology.kubernetes.io/zone=alpha");
    scene.pending("a-free", 2, spec("cpu=4"));
    scene.pending("picky", 1, picky);
    let plan = scene.plan_with(|question| match question {
        Question::Rank(rank) => {
            let possible = (0..)
                .zip(&rank.candidates)
                .filter(|(_, candidate)| candidate.ineligible.is_none());
            let placements = possible.map(|(index, _)| Scored {
                index,
                score: 1.0 - f64::from(index) / 10.0,
                reason: String::new(),
            });
            answered(
                question,
                AnswerBody::Ranking(Ranking {
                    placements: placements.collect(),
                    ..Ranking::default()
                }),
            )
        }
        Question::Order(_) | Question::Decorate(_) => reasonable(question),
    });
    assert_eq!(plan.launches.len(), 3, "{:#?}", plan.report.pending);
    assert_eq!(&*plan.launches[0].spec.hypervisor, "alpha");
}

#[test]
fn a_choice_that_would_take_a_later_orders_room_is_skipped() {
    // Large machines fit on alpha alone; the small order comes first by its number of hypervisors and would like alpha.
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("large", 16, 32), instance_type("small", 2, 4)];
    *scene.hypervisor("alpha") = hypervisor(32, 34);
    *scene.hypervisor("beta") = hypervisor(32, 8);
    *scene.hypervisor("gamma") = hypervisor(32, 8);
    let mut picky = spec("cpu=1");
    picky.node_affinity = Some(vec![NodeSelectorTerm {
        match_expressions: vec![Requirement {
            key: "topology.kubernetes.io/zone".into(),
            operator: Operator::In,
            values: vec!["alpha".into(), "beta".into()],
        }],
        match_fields: vec![],
    }]);
    let mut tolerant = spec("cpu=14 memory=30Gi");
    tolerant.priority = -1;
    scene.pending("small", 1, picky);
    scene.pending("big", 1, tolerant);
    let plan = scene.plan();
    let mut places: Vec<_> = plan
        .launches
        .iter()
        .map(|launch| (launch.spec.instance_type.as_str(), &*launch.spec.hypervisor))
        .collect();
    places.sort_unstable();
    assert!(
        places == [("large", "alpha"), ("small", "beta")] || places == [("large", "alpha")],
        "{places:?}"
    );
    assert_eq!(
        plan.report
            .pending
            .iter()
            .filter(|row| matches!(row.outcome, PendingOutcome::Launching(_)))
            .count(),
        2
    );
}

#[test]
fn templates_and_storages_decide_where_machines_can_be_made() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    scene.inventory.templates.clear();
    assert!(
        why(&scene)
            .to_string()
            .contains("there is no template debian in cluster pve")
    );

    scene.inventory.templates = [("debian".into(), vec![template(9000, "beta", false)])].into();
    assert_eq!(
        &*scene.plan().launches[0].spec.hypervisor,
        "beta",
        "a local template stays where it is"
    );

    scene.class.local_template = true;
    scene.inventory.templates = [(
        "debian".into(),
        vec![
            template(9001, "gamma", false),
            template(9000, "alpha", false),
        ],
    )]
    .into();
    scene
        .hypervisor("alpha")
        .storages
        .get_mut("local")
        .unwrap()
        .active = false;
    let plan = scene.plan();
    assert_eq!(&*plan.launches[0].spec.hypervisor, "gamma");
    let rejected = format!("{:?}", plan.report.rejected);
    assert!(
        rejected.contains("storage local is not active there")
            && rejected.contains("there is no template debian on it"),
        "{rejected}"
    );
}

#[test]
fn full_clones_need_space_for_their_disk() {
    let mut scene = Scene::default();
    scene.class.linked = Some(false);
    scene.class.storage = Some("local".into());
    for (name, gib) in [("alpha", 19), ("beta", 50), ("gamma", 0)] {
        scene
            .hypervisor(name)
            .storages
            .insert("local".into(), storage(false, gib));
    }
    scene.workers().max_nodes = 10;
    scene.pending("web", 40, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(
        plan.launches
            .iter()
            .map(|launch| &*launch.spec.hypervisor)
            .collect::<Vec<_>>(),
        ["beta", "beta"]
    );
    let rest = format!("{:?}", plan.report.pending.last().unwrap().outcome);
    assert!(
        rest.contains("storage local has no space: the disk needs 20Gi, 19Gi left"),
        "{rest}"
    );
}

#[test]
fn what_failed_lately_is_left_alone() {
    let mut scene = Scene::default();
    for name in ["alpha", "beta"] {
        let hypervisor = HypervisorId::new("pve", name);
        scene.ledger = crate::ledger::record_failure(
            &scene.ledger,
            &hypervisor,
            Some(&"shared".into()),
            "clone",
            at(NOW - 10),
        );
    }
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(&*plan.launches[0].spec.hypervisor, "gamma");
    assert_eq!(plan.wake_at, Some(at(NOW + 20)));
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
        |scene| scene.workers().class = "none".into(),
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
        "the key for ownership proofs is missing",
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
fn policies_that_refuse_fail_or_wait_are_quoted() {
    let check = |body: AnswerBody, expected: &str| {
        let mut scene = Scene::default();
        scene.pending("web", 1, spec("cpu=1"));
        let plan = scene.plan_with(|question| match question {
            Question::Rank(_) => answered(question, body.clone()),
            Question::Order(_) | Question::Decorate(_) => reasonable(question),
        });
        assert_eq!(plan.launches, []);
        assert_eq!(plan.ledger, None, "nothing is reserved");
        let PendingOutcome::Unhelped(whys) = &plan.report.pending[0].outcome else {
            panic!()
        };
        assert_eq!(whys[0].1.to_string(), expected);
    };
    check(
        AnswerBody::NoCandidate("at night".to_owned()),
        "host-selection policy spread: at night",
    );
    check(
        AnswerBody::Failed("trap".to_owned()),
        "host-selection policy spread: it failed: trap",
    );
    check(
        AnswerBody::Ranking(Ranking::default()),
        "host-selection policy spread: it chose no hypervisor",
    );
    check(
        AnswerBody::Deferred,
        "policies have used up this tick's time; the rest follows",
    );
    check(
        AnswerBody::Removals(Removals::default()),
        "host-selection policy spread: it answered another question",
    );
}

#[test]
fn state_sequence_and_previous_run_through_the_batch() {
    let mut scene = Scene::default();
    scene.pending("web", 12, spec("cpu=1"));
    let mut seen = Vec::new();
    let plan = scene.plan_with(|question| match question {
        Question::Rank(rank) => {
            let index = rank.batch_index;
            seen.push((
                rank.sequence,
                rank.previous.clone().map(|id| id.name.to_string()),
                rank.context.state.clone(),
                rank.candidates[0].machines,
            ));
            let ranking = Ranking {
                placements: vec![Scored {
                    index,
                    score: 0.5,
                    reason: String::new(),
                }],
                rejected: vec![],
                state: Some(vec![index as u8]),
            };
            Answer {
                fallback: (index == 2).then(|| "trap".to_owned()),
                ..answered(question, AnswerBody::Ranking(ranking))
            }
        }
        Question::Order(_) | Question::Decorate(_) => reasonable(question),
    });
    assert_eq!(
        seen,
        [
            (0, None, vec![], 0),
            (1, Some("alpha".to_owned()), vec![0], 1),
            (2, Some("beta".to_owned()), vec![1], 1),
        ]
    );
    let row = &plan.ledger.unwrap().policy_state[0];
    assert_eq!(
        (row.sequence, &row.state),
        (3, &vec![1]),
        "a fallback's state is not kept"
    );
    assert_eq!(plan.report.placements[2].fallback.as_deref(), Some("trap"));
}

#[test]
fn a_launch_is_reserved_as_it_is_made() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    let ledger = plan.ledger.unwrap();
    let (launch, entry) = (&plan.launches[0], &ledger.entries[0]);
    assert_eq!(launch.reason, "for the pending pod default/web-00000");
    assert_eq!(
        (&entry.claim, entry.vmid, entry.state),
        (
            &launch.claim,
            Vmid(1000),
            EntryState::Reserved { since: at(NOW) }
        )
    );
    assert_eq!(
        (entry.milli_cores, entry.memory_bytes, entry.disk_bytes),
        (4000, 8 * GIB, 0)
    );
    assert_eq!(launch.spec.policy_digest, Digest::from("spread-digest"));
    assert!(
        launch.claim.as_str().starts_with("workers-")
            && launch.claim.as_str().len() == "workers-".len() + 8
    );
    assert_eq!(
        ledger.resource_version, scene.ledger.resource_version,
        "written on what was read"
    );
}

#[test]
fn names_are_dns_labels_whatever_the_pool_is_called() {
    let mut scene = Scene::default();
    let pool = scene.workers().clone();
    scene.pools = [(format!("gpu.{}", "x".repeat(80)).as_str().into(), pool)].into();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches[0].claim.as_str().len(), 63);
}
