//! Each rule of the check refuses a launch that breaks it, and nothing that keeps to it just so.

use super::*;
use crate::facts::{Anchor, CloneSpec, ForeignMark, Mark};
use crate::fixtures::hypervisor;

/// One hypervisor with an empty machine `m` of 4 cores and 8 GiB, and a plan that makes two more there.
fn on_alpha() -> (Scene, Plan) {
    let mut scene = Scene::default();
    scene.inventory.hypervisors = [("alpha".into(), hypervisor(32, 128))].into();
    scene.machine("m", "alpha");
    scene.pending("web", 8, spec("cpu=4"));
    scene.workers().limits.max_nodes = 3;
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    (scene, plan)
}

pub(super) fn found(scene: &Scene, plan: &Plan) -> Option<Violation> {
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
        (
            scene.cluster.vmid_range.first,
            scene.cluster.vmid_range.last,
        ) = (Vmid(1), Vmid(u32::MAX));
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

/// The stored row of a number that rests, and the plan's Ledger without it.
#[test]
fn s3_a_number_that_rests_is_used_after_an_hour_at_the_earliest() {
    let used = |rest: Option<i64>, shown: bool| {
        after(|scene, plan| {
            let mut resting = row(plan, 0).clone();
            resting.claim = "gone".into();
            resting.state = EntryState::Quarantined {
                since: rest.map(|rest| at(NOW - rest)),
                until: at(NOW + 60),
            };
            // A list that is not whole does not show that there is none.
            scene.inventory.complete = shown;
            scene.ledger.entries.push(resting);
        })
    };
    assert_eq!(used(Some(3600), true), None);
    for (rest, shown) in [(Some(3599), true), (None, true), (Some(3600), false)] {
        let found = used(rest, shown);
        assert!(
            matches!(found, Some(Violation::NumberTaken(_))),
            "{found:?}"
        );
    }
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
                resting.state = EntryState::Quarantined {
                    since: None,
                    until: at(NOW),
                };
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
            (pool.limits.cpu_cores, pool.limits.memory_mib) = (Some(12), Some(24 << 10));
        }),
        None
    );
    let over: [fn(&mut Scene); 3] = [
        |scene| scene.workers().limits.max_nodes = 2,
        |scene| scene.workers().limits.cpu_cores = Some(11),
        |scene| scene.workers().limits.memory_mib = Some((24 << 10) - 1),
    ];
    for over in over {
        assert_eq!(after(|scene, _| over(scene)), Some(Violation::PoolLimit));
    }
    // A number at rest is no machine.
    let resting = after(|scene, plan| {
        scene.workers().limits.max_nodes = 2;
        scene.claims.clear();
        scene.ledger.entries[0].state = EntryState::Quarantined {
            since: None,
            until: at(NOW),
        };
        ledger(plan).entries[0].state = EntryState::Quarantined {
            since: None,
            until: at(NOW),
        };
    });
    assert_eq!(resting, None);
    let unused: [fn(&mut Scene); 3] = [
        |scene| scene.workers().paused = true,
        |scene| scene.workers().problem = Some("odd".to_owned()),
        |scene| scene.workers().node_class = "other".into(),
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
            scene.cluster.min_available_memory_mb = 100 << 10;
        },
        |scene| scene.cluster.hypervisors.include = vec!["alpha".into(), "beta".into()],
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
                scene.cluster.min_available_memory_mb = (100 << 10) + 1;
            },
            minimums,
        ),
        (
            |scene| scene.cluster.hypervisors.include = vec!["beta".into()],
            "the operator excluded it",
        ),
        (
            |scene| scene.cluster.hypervisors.exclude = vec!["alpha".into()],
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
        let exact = |scene: &mut Scene| scene.cluster.overcommit.cpu = 1.0;
        assert!(twelve(exact), "{status:?}");
        assert!(with(3, 24 * GIB, |_| {}), "three threads are twelve cores");
        assert!(!with(2, 24 * GIB, |_| {}));
        assert!(!with(12, 24 * GIB - 1, exact));
        assert!(!twelve(|scene| scene.cluster.overcommit.cpu = 0.99));
        assert!(!twelve(|scene| scene.cluster.overcommit.memory = 0.99));
        assert!(with(12, 12 * GIB, |scene| scene
            .cluster
            .overcommit
            .memory = 2.0));
        assert!(!twelve(|scene| {
            scene.cluster.overcommit.cpu = 1.0;
            scene.cluster.system_reserved.cpu = crate::facts::Amount::read("1m").unwrap();
        }));
        assert!(!twelve(
            |scene| scene.cluster.system_reserved.memory = crate::facts::Amount::read("1").unwrap()
        ));
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
