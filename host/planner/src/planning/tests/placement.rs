mod numbers;

use super::*;
use crate::claim::Phase;
use crate::facts::limits::MOST_ENTRIES;
use crate::facts::*;
use crate::ids::*;
use crate::plan::question::*;

/// Why hypervisors were refused, by their names.
pub(super) fn rejections(plan: &Plan) -> Vec<String> {
    let rejected = plan.report.rejected.iter();
    rejected.map(|row| row.reason.to_string()).collect()
}

#[test]
fn f47_hypervisors_are_filled_and_not_overfilled() {
    let mut scene = Scene::default();
    for name in ["alpha", "beta", "gamma"] {
        *scene.hypervisor(name) = hypervisor(4, 20);
    }
    scene.workers().limits.max_nodes = 100;
    scene.pending("web", 100, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches.len(), 6, "two of 8 GiB on each of 20 GiB");

    scene.cluster.max_machines_per_hypervisor = Some(1);
    assert_eq!(launches(&scene), 3);
    scene.cluster.overcommit.cpu = 0.5;
    assert_eq!(launches(&scene), 0);
}

/// Proxmox refuses to start such a VM, whatever the overcommit.
#[test]
fn r13_no_machine_is_made_where_it_has_more_cores_than_the_hypervisor_has_threads() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("wide", 8, 8)];
    let sizes = [
        ("alpha".into(), hypervisor(4, 64)),
        ("beta".into(), hypervisor(8, 64)),
    ];
    scene.inventory.hypervisors = sizes.into();
    scene.pending("web", 1, spec("cpu=6"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(&*plan.launches[0].spec.hypervisor, "beta");
    *scene.hypervisor("beta") = hypervisor(7, 64);
    let plan = scene.plan();
    assert!(plan.launches.is_empty());
    let rejected: Vec<_> = plan
        .report
        .rejected
        .iter()
        .map(|row| row.reason.to_string())
        .collect();
    assert!(
        rejected
            .iter()
            .any(|reason| reason.contains("no VM with more than the 7 threads")),
        "{rejected:?}"
    );
}

#[test]
fn f47_machines_that_do_not_run_yet_take_room() {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 20))].into();
    scene.coming_machine("coming", "alpha", Phase::Launching);
    scene.pending("web", 12, spec("cpu=1"));
    assert_eq!(launches(&scene), 1);
}

#[test]
fn f110_a_machine_is_counted_once_however_proxmox_lists_it() {
    for status in [
        None,
        Some(GuestStatus::Unknown),
        Some(GuestStatus::Stopped),
        Some(GuestStatus::Running),
    ] {
        let mut scene = Scene::default();
        scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 24))].into();
        scene.machine("coming", "alpha");
        scene.claim("coming").status.phase = Phase::Launching;
        scene.claim("coming").created = at(NOW - 10);
        scene.claim("coming").status.started_at = None;
        scene.nodes.clear();
        scene.guest("coming", status);
        scene.pending("web", 16, spec("cpu=1"));
        assert_eq!(
            launches(&scene),
            2,
            "24 GiB hold it and two more, {status:?}"
        );
    }
}

#[test]
fn an_unknown_machine_of_known_size_is_counted_once() {
    // As when its hypervisor was silent for a moment.
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 24))].into();
    scene.machine("silent", "alpha");
    scene.inventory.guests.values_mut().next().unwrap().status = GuestStatus::Unknown;
    scene.pending("web", 12, spec("cpu=1"));
    assert_eq!(launches(&scene), 2);
}

#[test]
fn cores_of_an_unknown_machine_of_known_size_are_counted_once() {
    // 4 threads are 16 cores: its 4, and three machines more.
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(4, 128))].into();
    scene.machine("silent", "alpha");
    scene.inventory.guests.values_mut().next().unwrap().status = GuestStatus::Unknown;
    scene.pending("web", 24, spec("cpu=1"));
    assert_eq!(launches(&scene), 3);
}

#[test]
fn a_rank_question_tells_what_a_hypervisor_uses_and_has() {
    let mut scene = Scene::default();
    scene.machine("running", "alpha");
    scene.coming_machine("coming", "alpha", Phase::Launching);
    scene.cluster.system_reserved.cpu = Amount::read("500m").unwrap();
    scene.cluster.system_reserved.memory = Amount::mib(1 << 10);
    let alpha = scene.hypervisor("alpha");
    (alpha.cpu_usage, alpha.memory_used_bytes) = (0.25, 10 * GIB);
    scene.pending("web", 1, spec("cpu=4 memory=8Gi"));
    scene.running("full", 1, "running", spec("cpu=4"));
    scene.pending("first", 1, spec("cpu=4"));
    let mut asked = None;
    let _ = scene.plan_with(|question| {
        if let Question::Rank(rank) = question {
            asked.get_or_insert(rank.candidates[0].clone());
        }
        reasonable(question)
    });
    let alpha: Candidate = asked.expect("a Rank question");
    let size = |milli_cores, gib| Size {
        milli_cores,
        memory_bytes: gib * GIB,
    };
    assert_eq!(alpha.used, size(8_000, 10));
    assert_eq!(alpha.committed, size(4_000, 8));
    assert_eq!(alpha.in_flight, size(4_000, 8));
    assert_eq!(alpha.system_reserved, size(500, 1));
    // 32 × 4 cores and 128 GiB, less all of it; of memory what is used counts, since it is more than what is committed.
    assert_eq!(alpha.available, size(119_500, 109));
    assert_eq!((alpha.machines, alpha.machines_of_pool), (2, 2));
}

#[test]
fn one_tick_begins_at_most_twenty_machines() {
    let mut scene = Scene::default();
    scene.workers().limits.max_nodes = 100;
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
fn orders_with_fewest_hypervisors_are_placed_first_and_choices_leave_room() {
    // The policy prefers alpha, which alone can take the pods that select it.
    // Pods of a higher priority are packed first, and whatever was planned on alpha moves away for the others.
    for priority in [0, 10] {
        let mut scene = Scene::default();
        for name in ["alpha", "beta", "gamma"] {
            *scene.hypervisor(name) = hypervisor(32, 8);
        }
        let mut picky = spec("cpu=3");
        picky.node_selector = labels("topology.kubernetes.io/zone=alpha");
        let mut free = spec("cpu=4");
        free.priority = priority;
        scene.pending("a-free", 2, free);
        scene.pending("picky", 1, picky);
        let plan = scene.plan_with(|question| match question {
            Question::Rank(rank) => {
                let possible = (0..)
                    .zip(rank.candidates.iter())
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
        assert_eq!(
            plan.launches[0].reason,
            "for the pending pod default/picky-00000"
        );
    }
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
fn f117_templates_and_storages_decide_where_machines_can_be_made() {
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

    scene.class.template.placement = TemplatePlacement::Local;
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
    let rejected = rejections(&plan).join("; ");
    assert!(
        rejected.contains("storage local is not active there")
            && rejected.contains("there is no template debian on it"),
        "{rejected}"
    );
}

#[test]
fn a_shared_template_is_copied_to_local_storage_only_where_it_is() {
    let mut scene = Scene::default();
    scene.class.template.clone = CloneMode::Full;
    scene.class.template.storage = Some("local".into());
    scene.inventory.templates = [("debian".into(), vec![template(9000, "gamma", true)])].into();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(&*plan.launches[0].spec.hypervisor, "gamma");
    let rejected = rejections(&plan).join("; ");
    assert!(
        rejected.contains("storage local is local, and template debian is on gamma"),
        "{rejected}"
    );
}

#[test]
fn f45_no_machine_is_made_on_a_storage_that_is_nearly_full() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    for (free, made) in [(6, 1), (5, 1), (4, 0), (0, 0)] {
        for name in ["alpha", "beta", "gamma"] {
            let storages = &mut scene.hypervisor(name).storages;
            let shared = storages.get_mut("shared").unwrap();
            (shared.total_bytes, shared.available_bytes) = (100 * GIB, free * GIB);
        }
        let plan = scene.plan();
        assert_eq!(plan.launches.len(), made, "{free} %");
        if made == 0 {
            let why = plan.report.pending[0].outcome.to_string();
            assert!(why.contains("storage shared is nearly full"), "{why}");
        }
    }
}

#[test]
fn full_clones_need_space_for_their_disk() {
    let mut scene = Scene::default();
    scene.class.template.clone = CloneMode::Full;
    scene.class.template.storage = Some("local".into());
    scene.class.template.placement = TemplatePlacement::Local;
    let each = [(9000, "alpha"), (9001, "beta"), (9002, "gamma")];
    scene.inventory.templates = [(
        "debian".into(),
        each.map(|(vmid, on)| template(vmid, on, false)).into(),
    )]
    .into();
    for (name, gib) in [("alpha", 19), ("beta", 50), ("gamma", 0)] {
        scene
            .hypervisor(name)
            .storages
            .insert("local".into(), storage(false, gib));
    }
    scene.workers().limits.max_nodes = 10;
    scene.pending("web", 40, spec("cpu=1"));
    let plan = scene.plan();
    assert_eq!(
        plan.launches
            .iter()
            .map(|launch| &*launch.spec.hypervisor)
            .collect::<Vec<_>>(),
        ["beta", "beta"]
    );
    let rest = plan.report.pending.last().unwrap().outcome.to_string();
    assert!(
        rest.contains("storage local has no space: the disk needs 20Gi, 19Gi left"),
        "{rest}"
    );
}

#[test]
fn a_launch_is_reserved_as_it_is_made() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let plan = scene.plan();
    let ledger = plan.ledger.unwrap();
    let (launch, entry) = (&plan.launches[0], &ledger.entries[0]);
    assert_eq!(launch.reason, "for the pending pod default/web-00000");
    let mut two = scene.clone();
    two.pending("web", 2, spec("cpu=1"));
    assert_eq!(
        two.plan().launches[0].reason,
        "for 2 pending pods such as default/web-00000"
    );
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
    // W20: for people, its name and the start of the digest.
    assert_eq!(launch.spec.policy.as_deref(), Some("spread@spread-d"));
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
fn r41_a_machine_that_no_server_could_hold_is_not_said_to_lack_room() {
    let mut scene = Scene::default();
    scene.class.instance_types = vec![instance_type("huge", 4, 256)];
    scene.pending("web", 1, spec("cpu=1 memory=200Gi"));
    let text = why(&scene).to_string();
    let all = "pve/alpha, pve/beta, pve/gamma: too small: the machine needs 256Gi of memory";
    assert!(text.contains(all), "{text}");
    // They are large enough, and full.
    for name in ["alpha", "beta", "gamma"] {
        let hypervisor = scene.hypervisor(name);
        hypervisor.memory_bytes = 512 * GIB;
        hypervisor.memory_used_bytes = 400 * GIB;
    }
    let text = why(&scene).to_string();
    assert!(text.contains("no room: the machine needs 256Gi"), "{text}");
}

#[test]
fn o21_each_launch_names_a_pod_of_its_own() {
    let mut scene = Scene::default();
    scene.pending("web", 2, spec("cpu=3"));
    let plan = scene.plan();
    let reasons: Vec<&str> = plan.launches.iter().map(|it| &*it.reason).collect();
    assert_eq!(
        reasons,
        [
            "for the pending pod default/web-00000",
            "for the pending pod default/web-00001"
        ]
    );
}
