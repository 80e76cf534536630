mod adoptions;
mod disruption;
mod removals;
mod rules;

use super::*;
use crate::fixtures::{GIB, NOW, Scene, at, spec};
use crate::plan::RemovalReason;

/// A scene with one empty machine, and a plan that launches two and removes that one.
fn scene() -> (Scene, Plan) {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.pending("web", 8, spec("cpu=4"));
    scene.workers().limits.max_nodes = 3;
    let mut plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    plan.advances[0].verdict = Verdict::Remove(RemovalReason::Empty);
    ledger(&mut plan).removals.push(crate::facts::Removal {
        claim: "m".into(),
        at: at(NOW),
        reason: RemovalReason::Empty,
    });
    (scene, plan)
}

/// The violation that a change of world or plan leads to.
fn check(change: impl FnOnce(&mut Scene, &mut Plan), expected: &str) {
    let (mut scene, mut plan) = scene();
    assert_eq!(
        violations(&scene.world(), at(NOW), &Limits::default(), &plan),
        []
    );
    change(&mut scene, &mut plan);
    let world = scene.world();
    let found = violations(&world, at(NOW), &Limits::default(), &plan);
    assert_eq!(
        found
            .first()
            .map(|(_, violation)| violation.to_string())
            .as_deref(),
        Some(expected)
    );
    let before = plan.launches.len();

    enforce(&world, at(NOW), &Limits::default(), &mut plan);
    assert_eq!(
        violations(&world, at(NOW), &Limits::default(), &plan),
        [],
        "nothing is left of it"
    );
    let defects = plan
        .report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Defect);
    assert!(defects.count() >= 1);
    let reserved = plan
        .ledger
        .iter()
        .flat_map(|ledger| &ledger.entries)
        .filter(|entry| is_reserved(entry));
    assert!(
        plan.launches.len() == before || reserved.count() == plan.launches.len(),
        "what is not launched is not reserved"
    );
}

fn ledger(plan: &mut Plan) -> &mut LedgerFacts {
    plan.ledger.get_or_insert_default()
}

#[test]
fn launches_are_held_against_every_limit() {
    check(
        |scene, _| scene.workers().limits.max_nodes = 2,
        "it would pass a limit of its pool",
    );
    check(
        |scene, _| scene.workers().limits.cpu_cores = Some(11),
        "it would pass a limit of its pool",
    );
    check(
        |scene, _| scene.workers().limits.memory_mib = Some((24 << 10) - 1),
        "it would pass a limit of its pool",
    );
    check(|scene, _| scene.pools.clear(), "its pool does not exist");
    check(
        |scene, _| scene.workers().node_class = "other".into(),
        "its pool is paused, being deleted, or cannot be used",
    );
    check(
        |scene, _| scene.workers().clusters = vec!["other".into()],
        "its Proxmox cluster is not its pool's, or cannot be written to",
    );
    check(
        |scene, _| scene.inventory.quorate = false,
        "its Proxmox cluster is not its pool's, or cannot be written to",
    );
    check(
        |scene, _| scene.host.key_known = false,
        "the ownership key is missing",
    );
    check(
        |scene, _| scene.cluster.vmid_range.first = Vmid(2000),
        "VMID 1001 is outside the cluster's range",
    );
}

#[test]
fn f47_f85_launches_are_held_against_their_hypervisor() {
    fn each(scene: &mut Scene, change: fn(&mut crate::facts::HypervisorFacts)) {
        scene.inventory.hypervisors.values_mut().for_each(change);
    }
    check(
        |scene, _| each(scene, |facts| facts.online = false),
        "its hypervisor cannot take it: it is offline or in maintenance",
    );
    check(
        |scene, _| each(scene, |facts| facts.memory_bytes = 7 * GIB),
        "its hypervisor has no room for it",
    );
    check(
        |scene, _| each(scene, |facts| facts.committed_threads = 126),
        "its hypervisor has no room for it",
    );
    check(
        |scene, _| each(scene, |facts| facts.storages.clear()),
        "its hypervisor cannot take it: its storage is not active",
    );
    check(
        |scene, _| scene.cluster.hypervisors.include = vec!["none".into()],
        "its hypervisor cannot take it: the operator excluded it",
    );
    check(
        |scene, _| scene.cluster.min_available_cpu_cores = 33,
        "its hypervisor cannot take it: it does not meet the cluster's minimums",
    );
    check(
        |scene, _| scene.cluster.max_machines_per_hypervisor = Some(0),
        "its hypervisor would hold too many machines",
    );
    check(
        |scene, _| scene.inventory.hypervisors.clear(),
        "its hypervisor cannot take it: it does not exist",
    );
}

#[test]
fn launches_are_what_was_reserved_under_numbers_and_names_of_their_own() {
    check(
        |_, plan| plan.ledger = None,
        "nothing is reserved for it in the Ledger",
    );
    check(
        |_, plan| plan.launches[0].spec.resources.memory_bytes += 1,
        "nothing is reserved for it in the Ledger",
    );
    check(
        |_, plan| {
            let twin = plan.launches[1].spec.vmid;
            let first = plan.launches[0].claim.clone();
            plan.launches[0].spec.vmid = twin;
            for entry in ledger(plan)
                .entries
                .iter_mut()
                .filter(|entry| entry.claim == first)
            {
                entry.vmid = twin;
            }
        },
        "VMID 1002 is in use",
    );
    check(
        |_, plan| {
            let taken = Some("10.0.0.9".parse().unwrap());
            let first = plan.launches[0].claim.clone();
            plan.launches[0].spec.address = taken;
            let mut rows = ledger(plan).entries.iter_mut();
            let row = rows.find(|row| row.claim == first);
            row.expect("it is reserved").address = taken;
            // Of a machine that has gone, say: it counts for nothing but its number and its address.
            let mut gone = ledger(plan).entries[0].clone();
            gone.claim = "gone".into();
            gone.vmid = Vmid(1099);
            gone.address = taken;
            gone.state = EntryState::Quarantined {
                since: None,
                until: Timestamp::MAX,
            };
            ledger(plan).entries.push(gone);
        },
        "address 10.0.0.9 is in use",
    );
    check(
        |scene, plan| {
            // Of a claim that the Ledger does not know.
            let taken = Some("10.0.0.9".parse().unwrap());
            scene.claim("m").spec.address = taken;
            let launch = &mut plan.launches[0];
            launch.spec.address = taken;
            let name = launch.claim.clone();
            let mut rows = ledger(plan).entries.iter_mut();
            let row = rows.find(|row| row.claim == name);
            row.expect("it is reserved").address = taken;
        },
        "address 10.0.0.9 is in use",
    );
    check(
        |scene, plan| {
            let claim = scene.claim("m").clone();
            scene.claims.insert(plan.launches[0].claim.clone(), claim);
        },
        "its name is taken",
    );
    check(
        |_, plan| {
            for launch in &mut plan.launches {
                launch.spec.vm_name = "Other".into();
            }
        },
        "its name is no DNS label",
    );
}

#[test]
fn f86_f87_removals_are_held_against_every_limit() {
    check(
        |scene, _| scene.host.own_node = Some("m".into()),
        "kproxide runs on its Node",
    );
    for role in crate::keys::CONTROL_PLANE_ROLES {
        check(
            |scene, _| {
                let labels = &mut scene.nodes.get_mut("m").unwrap().labels;
                labels.insert(role.to_owned(), String::new());
            },
            "its Node is a control plane",
        );
    }
    check(
        |scene, _| {
            let annotations = &mut scene.nodes.get_mut("m").unwrap().annotations;
            annotations.insert(crate::keys::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        },
        "it must not be disrupted",
    );
    check(
        |scene, _| scene.host.armed_at = None,
        "nothing may be removed yet",
    );
    check(
        |scene, _| scene.claim("m").do_not_disrupt = true,
        "it must not be disrupted",
    );
    check(
        |scene, _| scene.claim("m").paused = true,
        "it must not be disrupted",
    );
    check(
        |scene, _| scene.workers().scale_down.budget = 0,
        "more removals than its pool's budget",
    );
    check(
        |scene, _| scene.workers().limits.min_nodes = 1,
        "its pool would fall below minNodes",
    );
    check(
        |_, plan| ledger(plan).removals.clear(),
        "the Ledger does not count it for the breaker",
    );
    check(
        |_, plan| {
            ledger(plan).freeze = Some(crate::facts::Freeze {
                since: at(NOW),
                machines: 4,
            });
        },
        "too many machines are bad at once",
    );
    check(
        |_, plan| plan.advances[0].uid = "other".into(),
        "the claim is another one of that name",
    );
    check(
        |_, plan| plan.advances[0].claim = "other".into(),
        "the claim does not exist",
    );
    check(
        |_, plan| {
            let twice = plan.advances[0].clone();
            plan.advances.push(twice);
        },
        "the claim is another one of that name",
    );
}

#[test]
fn a_termination_under_way_goes_on_whatever_is_protected_by_then() {
    let (mut scene, plan) = scene();
    scene.claim("m").do_not_disrupt = true;
    scene.claim("m").deleting_since = Some(at(NOW - 60));
    scene.claim("m").status.phase = crate::claim::Phase::Terminating;
    let found = violations(&scene.world(), at(NOW), &Limits::default(), &plan);
    assert_eq!(found, []);
}

#[test]
fn a_tick_begins_no_more_launches_than_it_may() {
    let (scene, mut plan) = scene();
    let limits = Limits {
        max_launches_per_tick: 1,
        ..Limits::default()
    };
    enforce(&scene.world(), at(NOW), &limits, &mut plan);
    assert_eq!(plan.launches.len(), 1);
    let names: BTreeSet<&ClaimName> = plan
        .report
        .placements
        .iter()
        .map(|placement| &placement.claim)
        .collect();
    assert_eq!(names, [&plan.launches[0].claim].into());
}
