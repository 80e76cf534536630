//! The new machine first: what `kproxide.dev/replace`, expiry and repair wait for, and what they do not wait for.

use super::*;
use crate::facts::{EntryState, LaunchFailure};
use crate::ids::{ClaimName, HypervisorId, Vmid};
use crate::ledger::record_failure;
use crate::plan::RemovalReason;

/// `a` and `b` are full of pods: two of 1500m each. Both are to be replaced.
fn two_full(budget: u32) -> Scene {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = budget;
    for (name, on) in [("a", "alpha"), ("b", "beta")] {
        scene.machine(name, on);
        scene.running(&format!("web-{name}"), 2, name, spec("cpu=1500m"));
        scene.claim(name).replace = true;
    }
    scene
}

/// Each new claim, and the one that it replaces.
fn replaced(plan: &Plan) -> Vec<&str> {
    let launches = plan.launches.iter();
    let replaced = launches.map(|launch| launch.spec.replaces.as_ref().map(ClaimName::as_str));
    replaced.map(|old| old.unwrap_or("nothing")).collect()
}

/// The new machine `new` of `old`, on its way or in service.
fn replacement(scene: &mut Scene, new: &str, old: &str, phase: Phase) {
    if phase == Phase::Initialized {
        scene.successor(new, "gamma", old);
    } else {
        scene.coming_machine(new, "gamma", phase);
        scene.claim(new).spec.replaces = Some(old.into());
    }
}

fn told(plan: &Plan, claim: &str) -> String {
    let mut told = plan.report.replacing.iter();
    let found = told.find(|(name, _)| name.as_str() == claim);
    found.map_or(String::new(), |(_, what)| {
        format!("{}: {what}", what.event())
    })
}

#[test]
fn a_new_machine_is_made_first_for_pods_that_have_no_room_elsewhere() {
    let plan = two_full(1).plan();
    check_sound(&plan);
    assert_eq!(replaced(&plan), ["a"], "the budget is one");
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        told(&plan, "a"),
        "AwaitsReplacement: kproxide makes the machine that replaces it"
    );
    assert_eq!(
        plan.launches[0].reason,
        "it replaces NodeClaim a: you asked for its replacement (kproxide.dev/replace)"
    );
    let plan = two_full(2).plan();
    check_sound(&plan);
    assert_eq!(replaced(&plan), ["a", "b"]);

    // Where the pods have room, none is made. Each pod counts once.
    let mut scene = two_full(2);
    scene.machine("spare", "gamma");
    let plan = scene.plan();
    assert_eq!((removed(&plan), replaced(&plan)), (vec!["a"], vec!["b"]));
}

#[test]
fn after_a_restart_at_any_moment_there_is_one_replacement_for_each() {
    let scene = two_full(2);
    let first = scene.plan();
    // The Ledger was written, and no claim, one of them, or both.
    for count in 0..3 {
        let mut cut = first.clone();
        cut.launches.truncate(count);
        let after = acted(&scene, &cut);
        let reserved =
            |entry: &&crate::facts::LedgerEntry| matches!(entry.state, EntryState::Reserved { .. });
        assert_eq!(after.ledger.entries.iter().filter(reserved).count(), 2);
        let plan = after.plan();
        check_sound(&plan);
        assert_eq!(replaced(&plan), [] as [&str; 0], "{count} claims");
        assert_eq!(removed(&plan), [] as [&str; 0]);
    }
    for phase in [Phase::Pending, Phase::Launching, Phase::Registered] {
        let mut scene = two_full(1);
        // The one that has a replacement keeps its turn.
        replacement(&mut scene, "new", "b", phase);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(replaced(&plan), [] as [&str; 0], "{phase:?}");
        assert_eq!(removed(&plan), [] as [&str; 0], "{phase:?}");
        assert_eq!(
            told(&plan, "b"),
            "AwaitsReplacement: NodeClaim new replaces it. kproxide drains the old Node once the new one is in service"
        );
    }
}

#[test]
fn the_drain_begins_once_the_new_one_is_in_service_and_every_pod_has_a_place() {
    let mut scene = two_full(1);
    replacement(&mut scene, "new", "b", Phase::Initialized);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["b"], "a has no room yet");
    assert_eq!(replaced(&plan), [] as [&str; 0]);
    assert_eq!(
        kept(&plan, "new"),
        Ok("it replaces NodeClaim b, which is not gone yet".to_owned())
    );

    // It offers less than the pods need: no second one is made.
    scene.nodes.get_mut("new").unwrap().allocatable.milli_cores = 1000;
    let plan = scene.plan();
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec![]));
    assert!(
        told(&plan, "b").starts_with("ReplacementTooSmall: NodeClaim new, which replaces it, is in service, but pod default/web-b-0000"),
        "{}",
        told(&plan, "b")
    );

    // Pods of others have taken its room: then one more is made.
    scene.nodes.get_mut("new").unwrap().allocatable.milli_cores = 4000;
    scene.running("other", 1, "new", spec("cpu=2500m"));
    let plan = scene.plan();
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec!["b"]));
}

#[test]
fn a_replacement_is_kept_until_the_old_machine_is_gone_and_no_longer() {
    let idle = |scene: &mut Scene, name: &str| {
        let unneeded = condition(Condition::Unneeded, at(NOW - 3600));
        scene.claim(name).status.conditions.push(unneeded);
    };
    let mut scene = two_full(2);
    replacement(&mut scene, "new", "b", Phase::Initialized);
    replacement(&mut scene, "next", "a", Phase::Pending);
    idle(&mut scene, "new");
    scene.nodes.get_mut("new").unwrap().allocatable.milli_cores = 1000;
    scene.claim("b").paused = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), [] as [&str; 0]);

    // Nobody wants the old ones to go any more.
    for name in ["a", "b"] {
        scene.claim(name).replace = false;
    }
    scene.claim("b").paused = false;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["new", "next"], "{:?}", plan.report.nodes);

    // Until then it is not due for anything else.
    let mut scene = two_full(2);
    scene.claim("a").replace = false;
    replacement(&mut scene, "new", "b", Phase::Initialized);
    scene.claim("new").replace = true;
    assert_eq!(removed(&scene.plan()), ["b"]);
}

#[test]
fn pending_pods_do_not_count_on_the_room_of_a_replacement() {
    let mut scene = two_full(1);
    replacement(&mut scene, "new", "a", Phase::Launching);
    scene.pending("late", 2, spec("cpu=1500m"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(replaced(&plan), ["nothing"], "their own machine");
}

#[test]
fn a_machine_that_is_to_go_stays_open_and_waits_for_pods_that_are_on_their_way_to_it() {
    let mut scene = two_full(1);
    scene.machine("spare", "gamma");
    scene.pending("late", 1, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(plan.launches, []);
    let first = &plan.report.pending[0].outcome;
    assert!(matches!(first, PendingOutcome::FitsNode(_)), "{first:?}");
}

type Full = fn(&mut Scene);

/// What only the end of a machine frees, and how the plan says it.
const LIMITS: [(&str, Full); 5] = [
    ("the pool has 2 of at most 2 machines (maxNodes)", |scene| {
        scene.workers().limits.max_nodes = 2;
    }),
    ("cores", |scene| {
        scene.workers().limits.cpu_cores = Some(9);
    }),
    ("limits.memoryMiB", |scene| {
        scene.workers().limits.memory_mib = Some(17 << 10);
    }),
    ("memory", |scene| {
        for name in ["alpha", "beta", "gamma"] {
            scene.hypervisor(name).memory_bytes = 9 << 30;
        }
        scene.hypervisor("gamma").online = false;
    }),
    ("maxMachinesPerHypervisor", |scene| {
        scene.cluster.max_machines_per_hypervisor = Some(1);
        scene.hypervisor("gamma").online = false;
    }),
];

/// What is in quarantine before it is free.
const NUMBERS: [(&str, Full); 2] = [
    ("VMID", |scene| scene.cluster.vmid_range.last = Vmid(1001)),
    ("address", |scene| {
        let range = crate::facts::AddressRange {
            first: "10.0.0.1".parse().unwrap(),
            last: "10.0.0.2".parse().unwrap(),
        };
        scene.class.addresses = Some(vec![range]);
        for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
            scene.claim(name).spec.address = Some(address.parse().unwrap());
        }
    }),
];

#[test]
fn where_only_its_end_makes_room_an_old_machine_goes_first_and_an_expired_one_waits() {
    for (word, limit) in LIMITS {
        let mut scene = two_full(1);
        limit(&mut scene);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            (removed(&plan), replaced(&plan)),
            (vec!["a"], vec![]),
            "{word}"
        );
        let said = told(&plan, "a");
        assert!(
            said.starts_with("RemovedBeforeReplacement: it goes before its replacement is there, because there is no room for both: "),
            "{said}"
        );
        assert!(said.contains(word), "{word}: {said}");

        for name in ["a", "b"] {
            scene.claim(name).replace = false;
        }
        scene.workers().expire_after = Some(jiff::SignedDuration::from_secs(1).into());
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            (removed(&plan), replaced(&plan)),
            (vec![], vec![]),
            "{word}"
        );
        for name in ["a", "b"] {
            let said = told(&plan, name);
            assert!(said.starts_with("NoRoomForReplacement: "), "{word}: {said}");
        }
        scene.workers().disruption.old_first = true;
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            (removed(&plan), replaced(&plan)),
            (vec!["a"], vec![]),
            "{word}"
        );
    }
}

#[test]
fn a_machine_that_works_does_not_go_for_one_whose_vmid_or_address_is_in_quarantine_first() {
    for (word, limit) in NUMBERS {
        let mut scene = two_full(1);
        limit(&mut scene);
        let plan = scene.plan();
        check_sound(&plan);
        assert_eq!(
            (removed(&plan), replaced(&plan)),
            (vec![], vec![]),
            "{word}"
        );
        let said = told(&plan, "a");
        assert!(said.contains(word), "{word}: {said}");
        assert!(said.contains("it stays"), "{word}: {said}");

        let limits = Limits {
            quarantine: jiff::SignedDuration::ZERO,
            ..Limits::default()
        };
        let at_once = plan_within(&scene, limits);
        check_sound(&at_once);
        assert_eq!(removed(&at_once), ["a"], "{word}: there is no quarantine");

        let mut expired = scene.clone();
        for name in ["a", "b"] {
            expired.claim(name).replace = false;
        }
        expired.workers().expire_after = Some(jiff::SignedDuration::from_secs(1).into());
        for old_first in [false, true] {
            expired.workers().disruption.old_first = old_first;
            let plan = expired.plan();
            check_sound(&plan);
            assert_eq!(removed(&plan), [] as [&str; 0], "{word}");
        }
    }
}

fn plan_within(scene: &Scene, limits: Limits) -> Plan {
    crate::fixtures::plan(&scene.world(), at(NOW), limits, reasonable)
}

#[test]
fn an_expired_machine_without_room_does_not_keep_an_empty_one_from_going() {
    let mut scene = two_full(1);
    scene
        .pods
        .retain(|_, pod| pod.node.as_ref().is_some_and(|node| node.as_str() == "a"));
    for name in ["a", "b"] {
        scene.claim(name).replace = false;
    }
    scene.workers().expire_after = Some(jiff::SignedDuration::from_secs(1).into());
    scene.workers().limits.max_nodes = 2;
    scene.nodes.get_mut("b").unwrap().allocatable.milli_cores = 1000;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["b"]);
}

#[test]
fn the_end_of_a_machine_makes_no_room_in_another_pool() {
    let mut scene = two_full(1);
    scene.claim("b").replace = false;
    // Its own pool has one machine too many. The other one is full with a machine of its own.
    scene.machine("c", "gamma");
    scene.running("web-c", 2, "c", spec("cpu=1500m"));
    let mut other = scene.workers().clone();
    other.limits.max_nodes = 1;
    scene.pools.insert("other".into(), other);
    scene.claim("c").spec.pool = "other".into();
    scene.ledger.entries[2].pool = "other".into();
    scene.workers().limits.max_nodes = 1;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec![]));
    let said = told(&plan, "a");
    assert!(said.contains("maxNodes"), "{said}");
    scene.workers().limits.max_nodes = 2;
    assert_eq!(removed(&scene.plan()), ["a"], "its end makes room");
}

#[test]
fn when_the_launch_has_merely_failed_the_old_machine_stays() {
    let mut scene = two_full(1);
    for name in ["alpha", "beta", "gamma"] {
        let at_fault = HypervisorId {
            cluster: "pve".into(),
            name: name.into(),
        };
        let failure = LaunchFailure {
            class: "Retry".into(),
            message: "no such bridge".into(),
        };
        scene.ledger = record_failure(&scene.ledger, &at_fault, None, &failure, at(NOW));
    }
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec![]));
    for name in ["a", "b"] {
        let said = told(&plan, name);
        assert!(said.starts_with("ReplacementNotMade: it stays, "), "{said}");
        assert!(said.contains("no such bridge"), "{said}");
    }
}

#[test]
fn a_broken_node_gets_its_replacement_first_and_stays_when_it_is_ready_again() {
    let mut scene = two_full(1);
    for name in ["a", "b"] {
        scene.claim(name).replace = false;
        let node = scene.nodes.get_mut(name).unwrap();
        (node.ready, node.ready_since) = (false, at(NOW - 601));
    }
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec!["a"]));

    replacement(&mut scene, "new", "a", Phase::Initialized);
    let plan = scene.plan();
    assert_eq!(verdict(&plan, "a"), Verdict::Remove(RemovalReason::Repair));

    // Ready again: nothing goes, and the replacement is an ordinary machine.
    scene.claims.remove("new");
    scene.nodes.remove("new");
    scene.ledger.entries.pop();
    replacement(&mut scene, "new", "a", Phase::Pending);
    let mut ready = scene.clone();
    for name in ["a", "b"] {
        ready.nodes.get_mut(name).unwrap().ready = true;
    }
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
    assert_eq!(removed(&ready.plan()), ["new"]);

    // Its pods are on their way out: their successors are pending or run elsewhere.
    for pod in scene.pods.values_mut() {
        pod.deleting = true;
    }
    scene.claims.remove("new");
    scene.ledger.entries.pop();
    let plan = scene.plan();
    assert_eq!(removed(&plan), ["a"]);

    // What no machine takes is no better off on a broken Node.
    let mut scene = two_full(1);
    scene.claim("a").replace = false;
    let node = scene.nodes.get_mut("a").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 601));
    scene.running("large", 1, "a", spec("cpu=64"));
    assert_eq!(removed(&scene.plan()), ["a"]);
}

#[test]
fn min_nodes_and_headroom_get_their_machine_first_too() {
    let mut scene = two_full(1);
    scene.pods.clear();
    scene.workers().limits.min_nodes = 2;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec!["a"]));
    // One is coming anyway.
    let mut coming = scene.clone();
    coming.coming_machine("young", "gamma", Phase::Launching);
    let plan = coming.plan();
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec![]));
    replacement(&mut scene, "new", "a", Phase::Initialized);
    assert_eq!(removed(&scene.plan()), ["a"]);

    let mut scene = two_full(1);
    scene.pods.clear();
    scene.workers().headroom = headroom("cpu=7");
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((removed(&plan), replaced(&plan)), (vec![], vec!["a"]));
    scene.workers().headroom = headroom("cpu=3");
    assert_eq!(removed(&scene.plan()), ["a"], "b keeps it free");
}

#[test]
fn the_law_of_loops_limits_replacements_and_does_not_count_them_while_the_old_one_stands() {
    let mut scene = two_full(1);
    let first = scene.plan();
    let rows = first.ledger.as_ref().unwrap().tries.iter();
    let rows: Vec<_> = rows.map(|row| row.workload.to_string()).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");

    // In service and idle for longer than the law is patient, and a pod of the same workload waits all the while.
    scene.ledger = first.ledger.clone().unwrap();
    let name = first.launches[0].claim.as_str();
    scene.ledger.entries.pop();
    replacement(&mut scene, name, "a", Phase::Initialized);
    scene.claim("a").paused = true;
    scene.claim(name).status.conditions = vec![condition(Condition::Initialized, at(NOW - 200))];
    scene.pending("web-a-more", 1, spec("cpu=1500m"));
    scene.pod("web-a-more-00000").unschedulable_since = Some(at(NOW - 1000));
    let in_vain = |scene: &Scene| {
        let plan = scene.plan();
        let ledger = plan.ledger.unwrap_or(scene.ledger.clone());
        ledger.in_vain.len()
    };
    assert_eq!(in_vain(&scene), 0);
    scene.claim(name).spec.replaces = None;
    assert_eq!(in_vain(&scene), 1, "made for anything else it is in vain");
}
