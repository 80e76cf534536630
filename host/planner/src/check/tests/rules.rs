//! Each rule of the check refuses a launch or a removal that breaks it, and nothing that keeps to it just so.

use super::*;
use crate::claim::{Condition, Phase};
use crate::facts::{Anchor, CloneSpec, ForeignMark, Freeze, Mark, Removal};
use crate::fixtures::{condition, hypervisor};

/// One hypervisor with an empty machine `m` of 4 cores and 8 GiB, and a plan that makes two more there.
fn on_alpha() -> (Scene, Plan) {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 128))].into();
    scene.machine("m", "alpha");
    scene.pending("web", 8, spec("cpu=4"));
    scene.workers().max_nodes = 3;
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    (scene, plan)
}

fn found(scene: &Scene, plan: &Plan) -> Option<Violation> {
    let all = violations(&scene.world(), at(NOW), &Limits::default(), plan);
    all.into_iter().next().map(|(_, violation)| violation)
}

/// The first violation after this change.
fn after(change: impl FnOnce(&mut Scene, &mut Plan)) -> Option<Violation> {
    let (mut scene, mut plan) = on_alpha();
    change(&mut scene, &mut plan);
    found(&scene, &plan)
}

/// The row of a launch in the plan's Ledger.
fn row(plan: &mut Plan, index: usize) -> &mut LedgerEntry {
    let claim = plan.launches[index].claim.clone();
    let mut rows = ledger(plan).entries.iter_mut();
    rows.find(|row| row.claim == claim).expect("it is reserved")
}

/// What a case changes of the world that the plan was made for.
type Change = fn(&mut Scene);

#[test]
fn a_launch_is_reserved_as_it_is_in_every_respect() {
    let changes: [fn(&mut LedgerEntry); 8] = [
        |row| row.pool = "other".into(),
        |row| row.cluster = "other".into(),
        |row| row.hypervisor = "other".into(),
        |row| row.vmid = Vmid(1500),
        |row| row.address = Some("10.0.0.9".parse().unwrap()),
        |row| row.milli_cores -= 1,
        |row| row.memory_bytes -= 1,
        |row| row.state = EntryState::Live,
    ];
    for change in changes {
        let violation = after(|_, plan| change(row(plan, 1)));
        assert_eq!(violation, Some(Violation::NotReserved));
    }
}

#[test]
fn only_a_template_of_the_class_is_cloned() {
    let cloned = |change: fn(&mut CloneSpec)| {
        after(|_, plan| change(plan.launches[1].spec.clone.as_mut().expect("a clone")))
    };
    assert_eq!(cloned(|_| {}), None);
    let refused = Some(Violation::NoTemplate);
    assert_eq!(cloned(|clone| clone.vmid = Vmid(1000)), refused);
    assert_eq!(cloned(|clone| clone.hypervisor = "beta".into()), refused);
    assert_eq!(after(|_, plan| plan.launches[1].spec.clone = None), refused);
}

#[test]
fn names_are_dns_labels_and_used_once() {
    let named = |name: &str| {
        after(|_, plan| {
            row(plan, 0).claim = name.into();
            plan.launches[0].claim = name.into();
            plan.launches[0].spec.vm_name = name.into();
        })
    };
    let longest = "a".repeat(63);
    for good in ["0", "a-b", &longest] {
        assert_eq!(named(good), None, "{good}");
    }
    let too_long = "a".repeat(64);
    for bad in ["", "A", "a_b", "a.b", "-a", "a-", "ä", &too_long] {
        assert_eq!(named(bad), Some(Violation::BadName), "{bad}");
    }
    let twice = after(|_, plan| {
        let mut twin = row(plan, 0).clone();
        twin.vmid = Vmid(1500);
        ledger(plan).entries.push(twin);
    });
    assert_eq!(twice, Some(Violation::NameTaken));
}

#[test]
fn numbers_are_in_range_and_nobody_elses() {
    let numbered = |vmid: u32, change: fn(&mut Scene, &mut Plan)| {
        after(|scene, plan| {
            plan.launches[1].spec.vmid = Vmid(vmid);
            row(plan, 1).vmid = Vmid(vmid);
            change(scene, plan);
        })
    };
    let out = |vmid| Some(Violation::NumberOutOfRange(Vmid(vmid)));
    let taken = Some(Violation::NumberTaken(Vmid(1500)));
    for vmid in [1500, 2999] {
        assert_eq!(numbered(vmid, |_, _| {}), None);
    }
    for vmid in [999, 3000] {
        assert_eq!(numbered(vmid, |_, _| {}), out(vmid));
    }
    let all = |scene: &mut Scene, _: &mut Plan| {
        (scene.cluster.vmid_first, scene.cluster.vmid_last) = (Vmid(1), Vmid(u32::MAX));
    };
    assert_eq!(numbered(FORBIDDEN_VMID, all), out(FORBIDDEN_VMID));
    let somebodys = numbered(1500, |scene, _| {
        let guest = scene.inventory.guests[&Vmid(1000)].clone();
        scene.inventory.guests.insert(Vmid(1500), guest);
    });
    assert_eq!(somebodys, taken);
    let claimed = numbered(1500, |scene, _| scene.claim("m").spec.vmid = Vmid(1500));
    assert_eq!(claimed, taken);
    let anchored = numbered(1500, |scene, plan| {
        scene.ledger.anchors = vec![anchor(Vmid(1500))];
        ledger(plan).anchors = scene.ledger.anchors.clone();
    });
    assert_eq!(anchored, taken);
    let elsewhere = numbered(1500, |_, plan| {
        let mut other = row(plan, 0).clone();
        (other.cluster, other.vmid) = ("other".into(), Vmid(1500));
        (other.claim, other.pool) = ("x".into(), "x".into());
        ledger(plan).entries.push(other);
    });
    assert_eq!(elsewhere, None);
}

#[test]
fn the_ledger_takes_as_many_rows_as_it_may() {
    let filled = |most: usize| {
        after(|_, plan| {
            let ledger = ledger(plan);
            for index in ledger.entries.len()..most {
                let mut resting = ledger.entries[0].clone();
                resting.claim = format!("resting-{index}").as_str().into();
                (resting.cluster, resting.vmid) = ("other".into(), Vmid(index as u32));
                resting.state = EntryState::Quarantined { until: at(NOW) };
                ledger.entries.push(resting);
            }
        })
    };
    assert_eq!(filled(MOST_ENTRIES), None);
    assert_eq!(filled(MOST_ENTRIES + 1), Some(Violation::LedgerFull));
}

#[test]
fn a_tick_begins_as_many_launches_as_it_may() {
    let (scene, plan) = on_alpha();
    for (most, expected) in [(2, 0), (1, 1), (0, 2)] {
        let limits = Limits {
            max_launches_per_tick: most,
            ..Limits::default()
        };
        let found = violations(&scene.world(), at(NOW), &limits, &plan);
        assert_eq!(found.len(), expected);
        let is_that = |(_, violation): &(_, Violation)| *violation == Violation::TooManyLaunches;
        assert!(found.iter().all(is_that));
    }
}

#[test]
fn a_pool_is_filled_up_to_its_limits_and_not_beyond() {
    // Three machines of 4 cores and 8 GiB.
    assert_eq!(
        after(|scene, _| {
            let pool = scene.workers();
            (pool.max_milli_cores, pool.max_memory_bytes) = (Some(12_000), Some(24 * GIB));
        }),
        None
    );
    let over: [fn(&mut Scene); 3] = [
        |scene| scene.workers().max_nodes = 2,
        |scene| scene.workers().max_milli_cores = Some(11_999),
        |scene| scene.workers().max_memory_bytes = Some(24 * GIB - 1),
    ];
    for over in over {
        assert_eq!(after(|scene, _| over(scene)), Some(Violation::PoolLimit));
    }
    // A number at rest is no machine.
    let resting = after(|scene, plan| {
        scene.workers().max_nodes = 2;
        scene.claims.clear();
        scene.ledger.entries[0].state = EntryState::Quarantined { until: at(NOW) };
        ledger(plan).entries[0].state = EntryState::Quarantined { until: at(NOW) };
    });
    assert_eq!(resting, None);
    let unused: [fn(&mut Scene); 3] = [
        |scene| scene.workers().paused = true,
        |scene| scene.workers().problem = Some("odd".to_owned()),
        |scene| scene.workers().class = "other".into(),
    ];
    for unused in unused {
        assert_eq!(
            after(|scene, _| unused(scene)),
            Some(Violation::PoolNotInUse)
        );
    }
}

#[test]
fn a_cluster_that_cannot_be_written_to_gets_no_machine() {
    let changes: [fn(&mut Scene); 3] = [
        |scene| scene.cluster.problem = Some("odd".to_owned()),
        |scene| scene.inventory.reachable = false,
        |scene| scene.inventory.quorate = false,
    ];
    for change in changes {
        assert_eq!(
            after(|scene, _| change(scene)),
            Some(Violation::WrongCluster)
        );
    }
    let (scene, plan) = on_alpha();
    let mut world = scene.world();
    world.apply(crate::facts::Delta::Inventory("pve".into(), None));
    let found = violations(&world, at(NOW), &Limits::default(), &plan);
    assert_eq!(found[0].1, Violation::WrongCluster);
}

#[test]
fn a_hypervisor_is_used_as_its_cluster_says() {
    let fine: [fn(&mut Scene); 4] = [
        |scene| {
            scene.hypervisor("alpha").cpu_usage = 0.5;
            scene.cluster.min_available_cpu_cores = 16;
        },
        |scene| {
            scene.hypervisor("alpha").memory_used_bytes = 28 * GIB;
            scene.cluster.min_available_memory_bytes = 100 * GIB;
        },
        |scene| scene.cluster.include = vec!["alpha".into(), "beta".into()],
        |scene| scene.cluster.max_machines_per_hypervisor = Some(3),
    ];
    for fine in fine {
        assert_eq!(after(|scene, _| fine(scene)), None);
    }
    let minimums = "it does not meet the cluster's minimums";
    let refused: [(Change, &str); 7] = [
        (
            |scene| {
                scene.hypervisor("alpha").cpu_usage = 0.5;
                scene.cluster.min_available_cpu_cores = 17;
            },
            minimums,
        ),
        (
            |scene| {
                scene.hypervisor("alpha").memory_used_bytes = 28 * GIB;
                scene.cluster.min_available_memory_bytes = 100 * GIB + 1;
            },
            minimums,
        ),
        (
            |scene| scene.cluster.include = vec!["beta".into()],
            "the operator excluded it",
        ),
        (
            |scene| scene.cluster.exclude = vec!["alpha".into()],
            "the operator excluded it",
        ),
        (
            |scene| scene.hypervisor("alpha").maintenance = true,
            "it is offline or in maintenance",
        ),
        (
            |scene| {
                let storages = &mut scene.hypervisor("alpha").storages;
                storages
                    .values_mut()
                    .for_each(|storage| storage.active = false);
            },
            "its storage is not active",
        ),
        (
            |scene| {
                let alpha = scene.inventory.hypervisors.remove("alpha");
                let beta = ("beta".into(), alpha.unwrap());
                scene.inventory.hypervisors.extend([beta]);
            },
            "it does not exist",
        ),
    ];
    for (change, reason) in refused {
        let violation = Some(Violation::Hypervisor(reason.to_owned()));
        assert_eq!(after(|scene, _| change(scene)), violation);
    }
    let crowded = after(|scene, _| scene.cluster.max_machines_per_hypervisor = Some(2));
    assert_eq!(crowded, Some(Violation::TooManyMachines));
}

/// Three machines ask for 12 cores and 24 GiB, however Proxmox lists the one that is there.
#[test]
fn a_hypervisor_is_filled_up_to_its_room_and_not_beyond() {
    let fits = |change: &dyn Fn(&mut Scene)| match after(|scene, _| change(scene)) {
        None => true,
        Some(Violation::NoRoom) => false,
        Some(other) => panic!("{other}"),
    };
    for status in [
        Some(GuestStatus::Running),
        Some(GuestStatus::Stopped),
        Some(GuestStatus::Unknown),
        None,
    ] {
        let with = |threads: u32, memory: u64, change: fn(&mut Scene)| {
            fits(&|scene| {
                scene.guest("m", status);
                let alpha = scene.hypervisor("alpha");
                (alpha.threads, alpha.memory_bytes) = (threads, memory);
                change(scene);
            })
        };
        let twelve = |change| with(12, 24 * GIB, change);
        let exact = |scene: &mut Scene| scene.cluster.overcommit_cpu = 1.0;
        assert!(twelve(exact), "{status:?}");
        assert!(with(3, 24 * GIB, |_| {}), "three threads are twelve cores");
        assert!(!with(2, 24 * GIB, |_| {}));
        assert!(!with(12, 24 * GIB - 1, exact));
        assert!(!twelve(|scene| scene.cluster.overcommit_cpu = 0.99));
        assert!(!twelve(|scene| scene.cluster.overcommit_memory = 0.99));
        assert!(with(12, 12 * GIB, |scene| scene
            .cluster
            .overcommit_memory = 2.0));
        assert!(!twelve(|scene| {
            scene.cluster.overcommit_cpu = 1.0;
            scene.cluster.system_reserved_milli_cores = 1;
        }));
        assert!(!twelve(|scene| scene
            .cluster
            .system_reserved_memory_bytes = 1));
    }
    // What is listed as running and of unknown state is counted with its size once.
    let unknown = |threads: u32| {
        fits(&|scene| {
            let guest = scene.inventory.guests.values_mut().next();
            guest.expect("m").status = GuestStatus::Unknown;
            let alpha = scene.hypervisor("alpha");
            (alpha.threads, alpha.memory_bytes) = (threads, 24 * GIB);
        })
    };
    assert!(unknown(3) && !unknown(2));
    // Memory in use counts instead of what is committed, where it is more: 8 GiB.
    let used = |bytes: u64| {
        fits(&|scene| {
            let alpha = scene.hypervisor("alpha");
            (alpha.memory_bytes, alpha.memory_used_bytes) = (24 * GIB, bytes);
        })
    };
    assert!(used(8 * GIB) && !used(8 * GIB + 1));
    // A machine counts where it stands.
    let moved = |threads: u32| {
        fits(&|scene| {
            scene.guest("m", Some(GuestStatus::Stopped));
            let mut alpha = hypervisor(threads, 128);
            alpha.committed_threads = 0;
            let beta = hypervisor(32, 128);
            scene.inventory.hypervisors = [("alpha".into(), alpha), ("beta".into(), beta)].into();
            let guest = scene.inventory.guests.values_mut().next();
            guest.expect("m").hypervisor = "beta".into();
        })
    };
    assert!(moved(2) && !moved(1));
}

fn anchor(vmid: Vmid) -> Anchor {
    Anchor {
        cluster: "pve".into(),
        vmid,
        mark: None,
        next: mark(),
        at: at(NOW),
        watched_since: None,
        foreign: None,
    }
}

fn mark() -> Mark {
    Mark {
        sequence: 1,
        nonce: "nonce".into(),
    }
}

#[test]
fn an_anchor_that_is_not_in_order_stops_removals_and_a_foreign_one_launches_too() {
    let stopped = |change: fn(&mut Anchor)| {
        let (mut scene, mut plan) = scene();
        scene.host.anchor_nonce = Some("nonce".into());
        let mut anchor = anchor(Vmid(2999));
        change(&mut anchor);
        ledger(&mut plan).anchors = vec![anchor];
        let found = violations(&scene.world(), at(NOW), &Limits::default(), &plan);
        assert!(
            found
                .iter()
                .all(|(_, violation)| *violation == Violation::Anchor)
        );
        found.len()
    };
    assert_eq!(stopped(|_| {}), 0);
    assert_eq!(stopped(|anchor| anchor.watched_since = Some(at(NOW))), 1);
    assert_eq!(stopped(|anchor| anchor.cluster = "other".into()), 1);
    let foreign = stopped(|anchor| {
        anchor.foreign = Some(ForeignMark {
            vmid: Vmid(2999),
            mark: mark(),
            since: at(NOW),
            moved: 0,
        });
    });
    assert_eq!(foreign, 3, "two launches and a removal");
}

/// Three empty machines, all of which a plan removes for this reason.
fn removing(reason: RemovalReason) -> (Scene, Plan) {
    let mut scene = Scene::default();
    for name in ["a", "b", "c"] {
        scene.machine(name, "alpha");
    }
    scene.workers().scale_down.budget = 3;
    let goes = reason == RemovalReason::PoolDeleted;
    scene.workers().existence.deleting_since = goes.then(|| at(NOW));
    let mut plan = scene.plan();
    for advance in &mut plan.advances {
        advance.verdict = Verdict::Remove(reason);
    }
    count(&mut plan, &["a", "b", "c"], reason);
    (scene, plan)
}

fn count(plan: &mut Plan, claims: &[&str], reason: RemovalReason) {
    let row = |claim: &&str| Removal {
        claim: (*claim).into(),
        at: at(NOW),
        reason,
    };
    ledger(plan).removals = claims.iter().map(row).collect();
}

fn removals_refused(scene: &Scene, plan: &Plan, expected: &Violation) -> usize {
    let found = violations(&scene.world(), at(NOW), &Limits::default(), plan);
    for (claim, violation) in &found {
        assert_eq!(violation, expected, "{claim}");
    }
    found.len()
}

#[test]
fn removals_keep_to_the_budget_of_their_pool_all_together() {
    use RemovalReason::{Deleted, Empty, LaunchFailed, Lost, Repair, Replace, Underutilized};
    for reason in [Empty, Underutilized, Replace, Repair] {
        let (mut scene, plan) = removing(reason);
        for (budget, refused) in [(3, 0), (2, 1), (0, 3)] {
            scene.workers().scale_down.budget = budget;
            let found = removals_refused(&scene, &plan, &Violation::Budget);
            assert_eq!(found, refused, "{reason} {budget}");
        }
        // One that is under way takes its part, and goes on.
        scene.workers().scale_down.budget = 2;
        scene.claim("c").status.phase = Phase::Draining;
        let draining = condition(Condition::Drained, at(NOW - 60));
        scene.claim("c").status.conditions.push(draining);
        assert_eq!(removals_refused(&scene, &plan, &Violation::Budget), 1);
    }
    for reason in [Lost, LaunchFailed, Deleted] {
        let (mut scene, plan) = removing(reason);
        scene.workers().scale_down.budget = 0;
        assert_eq!(found(&scene, &plan), None, "{reason}");
    }
}

#[test]
fn removals_of_our_own_choice_leave_min_nodes_all_together() {
    use RemovalReason::{Empty, Repair, Replace, Underutilized};
    for reason in [Empty, Underutilized] {
        let (mut scene, plan) = removing(reason);
        for (min_nodes, refused) in [(0, 0), (1, 1), (3, 3)] {
            scene.workers().min_nodes = min_nodes;
            let found = removals_refused(&scene, &plan, &Violation::MinNodes);
            assert_eq!(found, refused, "{reason} {min_nodes}");
        }
        // A drain that is given up leaves a machine that stays.
        let (mut scene, mut plan) = removing(reason);
        scene.workers().min_nodes = 1;
        scene.claim("c").status.phase = Phase::Draining;
        assert_eq!(removals_refused(&scene, &plan, &Violation::MinNodes), 1);
        plan.advances[2].verdict = Verdict::GiveUp(crate::reasons::GiveUp::ScaleDownOff);
        assert_eq!(removals_refused(&scene, &plan, &Violation::MinNodes), 0);
    }
    for reason in [Repair, Replace] {
        let (mut scene, plan) = removing(reason);
        scene.workers().min_nodes = 3;
        assert_eq!(found(&scene, &plan), None, "{reason}");
    }
}

#[test]
fn machines_go_with_their_pool_only_while_somebody_deletes_it_with_them() {
    let (mut scene, plan) = removing(RemovalReason::PoolDeleted);
    scene.workers().keep_machines = true;
    assert_eq!(removals_refused(&scene, &plan, &Violation::PoolStays), 3);
    scene.workers().keep_machines = false;
    scene.workers().existence.deleting_since = None;
    assert_eq!(removals_refused(&scene, &plan, &Violation::PoolStays), 3);
}

#[test]
fn removals_wait_until_they_are_armed() {
    for reason in RemovalReason::ALL {
        let (mut scene, plan) = removing(reason);
        for (armed_at, refused) in [(Some(at(NOW)), 0), (Some(at(NOW + 1)), 3), (None, 3)] {
            scene.host.armed_at = armed_at;
            let found = removals_refused(&scene, &plan, &Violation::NotArmed);
            assert_eq!(found, refused, "{reason}");
        }
    }
}

#[test]
fn a_freeze_stops_all_removals_but_those_of_failed_launches() {
    for reason in RemovalReason::ALL {
        let (scene, mut plan) = removing(reason);
        let freeze = Freeze {
            since: at(NOW),
            machines: 4,
        };
        let word = acknowledgement(&freeze);
        ledger(&mut plan).freeze = Some(freeze);
        let refused = if reason == RemovalReason::LaunchFailed {
            0
        } else {
            3
        };
        let frozen = removals_refused(&scene, &plan, &Violation::Frozen);
        assert_eq!(frozen, refused, "{reason}");
        ledger(&mut plan).acknowledged = Some("another".into());
        let frozen = removals_refused(&scene, &plan, &Violation::Frozen);
        assert_eq!(frozen, refused, "{reason}");
        ledger(&mut plan).acknowledged = Some(word.into());
        assert_eq!(found(&scene, &plan), None, "{reason}");
    }
}

#[test]
fn who_asks_that_a_machine_stays_is_heard_against_our_own_choice() {
    for reason in RemovalReason::ALL {
        let (mut scene, plan) = removing(reason);
        scene.claim("b").do_not_disrupt = true;
        let labelled = &mut scene.nodes.get_mut("c").unwrap().annotations;
        labelled.insert(crate::keys::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        let refused = removals_refused(&scene, &plan, &Violation::Protected);
        assert_eq!(
            refused,
            if reason.is_voluntary() { 2 } else { 0 },
            "{reason}"
        );
        // A word that says nothing.
        scene.claim("b").do_not_disrupt = false;
        let labelled = &mut scene.nodes.get_mut("c").unwrap().annotations;
        labelled.insert(crate::keys::DO_NOT_DISRUPT.to_owned(), "false".to_owned());
        assert_eq!(found(&scene, &plan), None, "{reason}");
        let mut karpenters = scene.clone();
        let labelled = &mut karpenters.nodes.get_mut("c").unwrap().annotations;
        labelled.insert(
            crate::keys::KARPENTER_DO_NOT_DISRUPT.to_owned(),
            "true".to_owned(),
        );
        assert_eq!(
            removals_refused(&karpenters, &plan, &Violation::Protected),
            usize::from(reason.is_voluntary()),
            "{reason}"
        );

        // Of a paused pool nothing begins, and what has begun is finished.
        scene.workers().paused = true;
        scene.claim("a").status.phase = Phase::Draining;
        let refused = removals_refused(&scene, &plan, &Violation::Protected);
        assert_eq!(refused, 2, "{reason}");
    }
}

#[test]
fn every_removal_of_a_machine_in_service_is_counted_first() {
    let (mut scene, mut plan) = removing(RemovalReason::Empty);
    count(&mut plan, &["a", "c"], RemovalReason::Empty);
    assert_eq!(removals_refused(&scene, &plan, &Violation::NotCounted), 1);
    // One that never came into service takes nothing away.
    scene.claim("b").status.phase = Phase::Registered;
    assert_eq!(found(&scene, &plan), None);
}
