//! A whole life with a fault at each effect ends like one without.

use super::fixture;
use super::model::{FAULTS, Fault, Vm, World};
use crate::claim::*;
use crate::plan::{RemovalReason, Verdict};

fn in_service(world: &World) -> bool {
    world.phase() == Some(Phase::Initialized)
}

fn gone(world: &World) -> bool {
    world.claim.is_none()
}

fn up(fault: Option<(u32, Fault)>) -> World {
    let mut world = World::new();
    world.run(in_service, fault);
    world
}

fn down(world: &mut World, fault: Option<(u32, Fault)>) {
    world.pods = vec![fixture::pod("a"), fixture::pod("b")];
    world.verdict = Verdict::Remove(RemovalReason::Underutilized);
    world.run(gone, fault);
}

fn check_up(world: &World) {
    let claim = world.claim.as_ref().expect("a claim");
    assert_eq!(world.clones, 1, "{:#?}", world.trace);
    assert_eq!(claim.status.intent, None);
    let Some(NodeLook::One(_, node)) = &world.node else {
        panic!("no Node");
    };
    assert_eq!(node.labels["kproxide.dev/claim"], "workers-a");
    assert!(node.taints.is_empty());
}

fn check_down(world: &World) {
    assert!(world.vm.is_none() && world.node.is_none());
    assert_eq!(world.destroys, 1);
    assert_eq!(world.entry, EntryLook::Quarantined);
}

#[test]
fn a_life_without_faults() {
    let mut world = up(None);
    check_up(&world);
    down(&mut world, None);
    check_down(&world);
    assert!(
        world.effects < 40,
        "{} effects: {:#?}",
        world.effects,
        world.trace
    );
}

#[test]
fn f31_a_launch_survives_every_fault_at_every_effect() {
    let effects = up(None).effects;
    for nth in 1..=effects {
        for fault in FAULTS {
            let mut world = up(Some((nth, fault)));
            check_up(&world);
            down(&mut world, None);
            check_down(&world);
        }
    }
}

#[test]
fn f19_f31_a_removal_survives_every_fault_at_every_effect() {
    let before = up(None);
    let mut world = before.clone();
    down(&mut world, None);
    let effects = world.effects - before.effects;
    assert!(effects > 10);
    for nth in 1..=effects {
        for fault in FAULTS {
            let mut world = before.clone();
            down(&mut world, Some((nth, fault)));
            check_down(&world);
        }
    }
}

#[test]
fn a_launch_that_is_given_up_leaves_nothing() {
    let effects = up(None).effects;
    for nth in 1..effects {
        let mut world = World::new();
        world.run(
            |world| world.effects >= nth || in_service(world),
            Some((nth, Fault::CrashAfter)),
        );
        if let Some(claim) = &mut world.claim {
            claim.deleting_since = Some(world.now);
            world.verdict = Verdict::Remove(RemovalReason::Deleted);
        }
        world.run(gone, None);
        assert!(world.vm.is_none() && world.node.is_none(), "{nth}");
        assert_eq!(world.entry, EntryLook::Quarantined);
    }
}

#[test]
fn a_machine_that_never_joins_goes_within_its_deadline() {
    let mut world = World::new();
    world.settings.timeouts.join = jiff::SignedDuration::from_secs(10).into();
    world.run(gone, None);
    assert!(world.vm.is_none() && world.node.is_none());
    assert!(world.now < fixture::at(300));
}

#[test]
fn f39_a_strangers_vm_of_our_number_is_never_touched() {
    let stranger = Vm {
        machine: fixture::machine(),
        visible_at: fixture::t0(),
        started_at: None,
        configured: false,
        stranger: true,
    };
    // It came between the reservation and the clone.
    let mut world = World::new();
    world.vm = Some(stranger.clone());
    let parked = |world: &World| {
        gone(world)
            || world.claim.as_ref().is_some_and(|claim| {
                claim.status.since(Condition::StuckLocked).is_some()
                    && world.entry == EntryLook::Quarantined
            })
    };
    world.run(parked, None);
    assert_eq!((world.clones, world.destroys), (0, 0));
    // And when its owner removes it, the claim closes.
    world.vm = None;
    world.run(gone, None);
}
