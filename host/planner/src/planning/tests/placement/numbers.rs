//! Numbers and addresses, and what is done when none is free.

use super::*;

#[test]
fn a_cluster_says_when_its_last_number_is_used() {
    let mut scene = Scene::default();
    scene.coming_machine("m", "alpha", Phase::Pending);
    for (last, is_used_up) in [(1000, true), (1001, false)] {
        scene.cluster.vmid_range.last = Vmid(last);
        let used_up = crate::planning::vmids_used_up(&scene.world(), &"pve".into());
        assert_eq!(used_up, is_used_up, "1000 to {last}");
    }
}

#[test]
fn f110_numbers_come_from_the_range_and_are_never_reused() {
    let mut scene = Scene::default();
    scene.cluster.vmid_range.first = Vmid(9998);
    scene.cluster.vmid_range.last = Vmid(10_003);
    scene.coming_machine("quarantined", "alpha", Phase::Pending);
    scene.claims.clear();
    scene.ledger.entries[0].vmid = Vmid(9998);
    scene.ledger.entries[0].state = EntryState::Quarantined {
        since: None,
        until: at(NOW + 1),
    };
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
    check_sound(&plan);
    let numbers: Vec<u32> = plan
        .launches
        .iter()
        .map(|launch| launch.spec.vmid.0)
        .collect();
    assert_eq!(numbers, [10_000, 10_002, 10_003]);
    let rest = plan.report.pending.last().unwrap();
    assert!(
        rest.outcome
            .to_string()
            .contains("cluster pve has no free VMID in 9998 to 10003 (vmidRange; kproxide's anchor VM takes one)"),
        "{rest:?}"
    );
}

/// Of four numbers, each with its address, two rest for long enough; one that Proxmox still shows, and one that rests since it is not known when, stay.
#[test]
fn s3_where_no_number_is_free_the_one_goes_that_rests_longest() {
    let mut scene = Scene::default();
    let hour = 3600;
    let rests = [
        ("shown", Some(9 * hour)),
        ("short", Some(hour - 1)),
        ("long", Some(hour)),
        ("unknown", None),
        ("longest", Some(2 * hour)),
    ];
    for (index, (name, rest)) in rests.into_iter().enumerate() {
        scene.coming_machine(name, "alpha", Phase::Pending);
        let entry = &mut scene.ledger.entries[index];
        entry.address = Some(format!("10.0.0.{index}").parse().unwrap());
        entry.state = EntryState::Quarantined {
            since: rest.map(|rest| at(NOW - rest)),
            until: at(NOW + 20 * hour),
        };
    }
    scene.claims.clear();
    scene.machine("other", "beta");
    let other = scene.inventory.guests.remove(&Vmid(1005)).unwrap();
    scene.inventory.guests.insert(Vmid(1000), other);
    scene.claims.clear();
    scene.ledger.entries.pop();
    scene.nodes.clear();
    scene.pending("web", 40, spec("cpu=1"));
    let given = |scene: &Scene| -> Vec<(u32, Option<String>)> {
        let plan = scene.plan();
        check_sound(&plan);
        let specs = plan.launches.iter().map(|launch| &launch.spec);
        let given: Vec<_> = specs
            .map(|spec| (spec.vmid.0, spec.address.map(|it| it.to_string())))
            .collect();
        let entries = plan.ledger.map_or(0, |ledger| ledger.entries.len());
        assert_eq!(entries, scene.ledger.entries.len(), "a row of each number");
        given
    };

    scene.cluster.vmid_range.last = Vmid(1004);
    let numbers: Vec<u32> = given(&scene)
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(numbers, [1004, 1002]);
    let rested = crate::planning::vmids_rested(&scene.world(), &"pve".into(), at(NOW));
    assert_eq!(rested, 2);

    // In the same way an address, where numbers abound.
    scene.cluster.vmid_range.last = Vmid(1100);
    scene.class.addresses = Some(vec![AddressRange {
        first: "10.0.0.0".parse().unwrap(),
        last: "10.0.0.4".parse().unwrap(),
    }]);
    let address = |index: u32| Some(format!("10.0.0.{index}"));
    let addresses: Vec<_> = given(&scene).into_iter().map(|(_, it)| it).collect();
    assert_eq!(addresses, [address(4), address(2)]);

    // What is free goes first, and nothing that rests is touched.
    scene.class.addresses = None;
    scene.cluster.vmid_range.last = Vmid(1005);
    let plan = scene.plan();
    let numbers = plan.launches.iter().map(|launch| launch.spec.vmid.0);
    assert_eq!(numbers.collect::<Vec<_>>(), [1005]);
    assert_eq!(plan.ledger.unwrap().entries.len(), 6);
}

#[test]
fn s3_where_the_ledger_is_full_the_rows_go_that_rest_longest() {
    let mut scene = Scene::default();
    scene.coming_machine("m", "alpha", Phase::Pending);
    scene.claims.clear();
    let entry = scene.ledger.entries.pop().unwrap();
    let hour = 3600;
    for index in 0..MOST_ENTRIES {
        let rest = match index {
            7 => hour,
            4000 => 2 * hour,
            _ => hour - 1,
        };
        scene.ledger.entries.push(LedgerEntry {
            claim: format!("gone-{index}").as_str().into(),
            vmid: Vmid(100_000 + index as u32),
            state: EntryState::Quarantined {
                since: Some(at(NOW - rest)),
                until: at(NOW + 20 * hour),
            },
            ..entry.clone()
        });
    }
    let left = |scene: &Scene| -> Vec<bool> {
        let plan = scene.plan();
        check_sound(&plan);
        let ledger = plan.ledger.unwrap();
        assert_eq!(ledger.entries.len(), MOST_ENTRIES);
        let has = |claim: &str| ledger.entries.iter().any(|it| it.claim.as_str() == claim);
        [has("gone-4000"), has("gone-7"), has("gone-0")].into()
    };
    scene.pending("web", 1, spec("cpu=1"));
    assert_eq!(left(&scene), [false, true, true]);
    scene.pending("web", 40, spec("cpu=1"));
    assert_eq!(left(&scene), [false, false, true]);
    let rest = scene
        .plan()
        .report
        .pending
        .pop()
        .unwrap()
        .outcome
        .to_string();
    assert!(rest.contains("the Ledger is full"), "{rest}");
}

#[test]
fn addresses_come_from_the_class_in_order() {
    let mut scene = Scene::default();
    scene.class.addresses = Some(vec![
        AddressRange {
            first: "10.0.0.8".parse().unwrap(),
            last: "10.0.0.10".parse().unwrap(),
        },
        AddressRange {
            first: "fd00::1".parse().unwrap(),
            last: "fd00::1".parse().unwrap(),
        },
    ]);
    scene.coming_machine("one", "alpha", Phase::Launching);
    scene.claim("one").spec.address = Some("10.0.0.8".parse().unwrap());
    // A machine that has gone may still be remembered under its address by others.
    scene.coming_machine("gone", "alpha", Phase::Launching);
    scene.claims.remove("gone");
    let gone = &mut scene.ledger.entries[1];
    gone.state = EntryState::Quarantined {
        since: None,
        until: at(NOW + 1),
    };
    gone.address = Some("10.0.0.9".parse().unwrap());
    scene.pending("web", 40, spec("cpu=1"));
    let plan = scene.plan();
    check_sound(&plan);
    let addresses: Vec<String> = plan
        .launches
        .iter()
        .map(|launch| launch.spec.address.unwrap().to_string())
        .collect();
    assert_eq!(addresses, ["10.0.0.10", "fd00::1"]);
    let rest = plan.report.pending.last().unwrap();
    assert!(
        rest.outcome
            .to_string()
            .contains("the address pool of NodeClass standard has no free address")
    );
}
