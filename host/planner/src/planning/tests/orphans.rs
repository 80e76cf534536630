//! Machines of ours whose claims are gone.

use super::*;
use crate::facts::*;
use crate::ids::Vmid;
use crate::plan::Adoption;
use crate::planning::{Limits, Planning};
use crate::world::World;

/// A machine in service whose claim was torn off.
pub(super) fn orphaned(scene: &mut Scene, name: &str) -> Vmid {
    scene.machine(name, "alpha");
    let vmid = scene.claims[name].spec.vmid;
    scene.claims.clear();
    vmid
}

fn set_ready(scene: &mut Scene, name: &str, ready: bool) {
    let node = scene.nodes.get_mut(name);
    node.expect("a Node of that name").ready = ready;
}

pub(super) fn facts(name: &str) -> OrphanFacts {
    OrphanFacts {
        claim_uid: format!("claim-{name}").into(),
        nonce: "abc".into(),
        name: Some(name.into()),
        hypervisor: "alpha".into(),
        smbios_uuid: Some(format!("uuid-{name}").into()),
        milli_cores: 4000,
        memory_bytes: 8 << 30,
        lock: None,
        protected: false,
        snapshot: None,
        tombstoned: false,
    }
}

fn seen(scene: &Scene, vmid: Vmid, look: OrphanLook) -> World {
    let mut world = scene.world();
    world.apply(Delta::Orphans("pve".into(), [(vmid, look)].into()));
    world
}

fn planned(scene: &Scene, vmid: Vmid, facts: OrphanFacts) -> Plan {
    let world = seen(scene, vmid, OrphanLook::Ours(Box::new(facts)));
    let plan = crate::fixtures::plan(&world, at(NOW), Limits::default(), reasonable);
    assert_eq!(
        crate::check::violations(&world, at(NOW), &Limits::default(), &plan),
        []
    );
    plan
}

/// It has waited for so many seconds.
pub(super) fn waited(scene: &mut Scene, vmid: Vmid, name: &str, seconds: i64) {
    scene.ledger.orphans = vec![OrphanSeen {
        cluster: "pve".into(),
        vmid,
        claim_uid: format!("claim-{name}").into(),
        since: at(NOW - seconds),
    }];
}

fn told(plan: &Plan) -> &str {
    let [report] = &plan.report.orphans[..] else {
        panic!("{:?}", plan.report.orphans);
    };
    &report.message
}

pub(super) const GRACE: i64 = 3600;

#[test]
fn f27_f112_a_machine_whose_node_is_ready_gets_its_claim_back_at_once() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.workers().limits.min_nodes = 1;
    // Whether the Ledger still knows of it, or was lost.
    for is_known in [true, false] {
        if !is_known {
            scene.ledger.entries.clear();
            scene.ledger.created = Some(at(NOW));
        }
        let plan = planned(&scene, vmid, facts("m"));
        let [adoption] = &plan.adoptions[..] else {
            panic!("{:?}", plan.report.orphans);
        };
        assert!(!adoption.is_condemned());
        assert_eq!(adoption.claim.as_str(), "m");
        assert_eq!(adoption.spec.pool.as_str(), "workers");
        assert_eq!(adoption.spec.class.as_str(), "standard");
        // What the Node says of itself stands.
        assert_eq!(adoption.spec.labels["kproxide.dev/claim"], "m");
        // Nothing else is made in its place.
        assert_eq!(plan.launches, []);
        let ledger = plan.ledger.as_ref().unwrap_or(&scene.ledger);
        assert_eq!(ledger.entries.len(), 1);
    }
    // Without its definition no NodeClaim can be made.
    scene.host.definition_problem = Some("the CRD is deleted".to_owned());
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(
        told(&plan).contains("the CRD is deleted"),
        "{}",
        told(&plan)
    );
}

#[test]
fn f27_what_cannot_serve_waits_for_its_grace_which_no_restart_changes() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.nodes.clear();
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert_eq!(plan.ledger.unwrap().orphans[0].since, at(NOW));
    assert_eq!(plan.wake_at, Some(at(NOW + GRACE)));

    waited(&mut scene, vmid, "m", GRACE - 1);
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("it has no Node"), "{}", told(&plan));
    assert!(told(&plan).contains("--orphan-grace"), "{}", told(&plan));

    waited(&mut scene, vmid, "m", GRACE);
    let plan = planned(&scene, vmid, facts("m"));
    assert!(plan.adoptions[0].is_condemned());

    // It waits as another machine: the number was used again.
    scene.ledger.orphans[0].claim_uid = "another".into();
    assert_eq!(planned(&scene, vmid, facts("m")).adoptions, []);
}

#[test]
fn f98_a_machine_without_pool_is_removed_only_after_its_grace() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.pools.clear();
    set_ready(&mut scene, "m", false);
    assert_eq!(planned(&scene, vmid, facts("m")).adoptions, []);
    waited(&mut scene, vmid, "m", GRACE);
    let plan = planned(&scene, vmid, facts("m"));
    assert!(plan.adoptions[0].is_condemned());
    assert!(told(&plan).contains("NodePool workers does not exist"));

    // What serves is never removed for want of an object.
    set_ready(&mut scene, "m", true);
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("Create the missing object again"));
}

#[test]
fn f112_what_the_ledger_does_not_know_may_have_been_restored_and_is_for_people() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.nodes.clear();
    waited(&mut scene, vmid, "m", 10 * GRACE);
    scene.ledger.entries.clear();
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("may have destroyed it and a user restored it"));
}

#[test]
fn the_grace_begins_anew_with_each_time_that_its_node_was_ready() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.pools.clear();
    waited(&mut scene, vmid, "m", 10 * GRACE);
    // It serves, and is left as it is.
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert_eq!(plan.ledger.unwrap().orphans, []);
    // So is one whose removal had begun.
    let tombstoned = OrphanFacts {
        tombstoned: true,
        ..facts("m")
    };
    let plan = planned(&scene, vmid, tombstoned);
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("tombstone"), "{}", told(&plan));
}

#[test]
fn f105_one_with_several_nodes_is_for_people() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    let twin = scene.nodes["m"].clone();
    scene.node("twin", twin).ready = false;
    waited(&mut scene, vmid, "m", GRACE);
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("several Nodes"), "{}", told(&plan));
}

#[test]
fn f41_time_in_which_nobody_could_look_is_no_grace() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.nodes.clear();
    waited(&mut scene, vmid, "m", GRACE);
    scene.hypervisor("alpha").online = false;
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert_eq!(plan.ledger.unwrap().orphans[0].since, at(NOW));
}

#[test]
fn f111_nothing_is_condemned_in_a_freeze_or_in_a_paused_pool() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.nodes.clear();
    waited(&mut scene, vmid, "m", GRACE);
    scene.workers().paused = true;
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("NodePool workers is paused"));

    scene.workers().paused = false;
    for name in ["a", "b", "c", "d"] {
        scene.machine(name, "beta");
        set_ready(&mut scene, name, false);
    }
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions, []);
    assert!(told(&plan).contains("frozen"), "{}", told(&plan));
}

#[test]
fn f111_a_condemned_claim_is_held_by_a_freeze_too() {
    let mut scene = Scene::default();
    scene.coming_machine("m", "alpha", Phase::Pending);
    scene.claim("m").spec.adopts = Some(Adopts {
        claim_uid: "claim-old".into(),
        nonce: "abc".into(),
        condemned: true,
    });
    for name in ["a", "b", "c", "d"] {
        scene.machine(name, "beta");
        set_ready(&mut scene, name, false);
    }
    for phase in [Phase::Pending, Phase::Draining] {
        scene.claim("m").status.phase = phase;
        let Verdict::Hold(why) = verdict(&scene.plan(), "m") else {
            panic!("{phase:?}: {:?}", verdict(&scene.plan(), "m"));
        };
        assert!(why.to_string().contains("frozen"), "{why}");
    }
}

#[test]
fn f50_nothing_is_condemned_before_everyone_has_answered() {
    type Edit = fn(&mut Scene);
    let cases: [(&str, Edit); 7] = [
        ("answers: beta", |scene| {
            scene.hypervisor("beta").online = false;
        }),
        ("does not answer in full", |scene| {
            scene.inventory.complete = false;
        }),
        ("has no quorum", |scene| scene.inventory.quorate = false),
        ("cannot be reached", |scene| {
            scene.inventory.reachable = false
        }),
        ("just started", |scene| scene.host.armed_at = None),
        ("the watch of pods", |scene| {
            scene.host.failing_watches = vec!["pods".to_owned()];
        }),
        ("the ownership key", |scene| scene.host.key_known = false),
    ];
    for (why, change) in cases {
        let mut scene = Scene::default();
        let vmid = orphaned(&mut scene, "m");
        scene.nodes.clear();
        waited(&mut scene, vmid, "m", GRACE);
        change(&mut scene);
        let plan = planned(&scene, vmid, facts("m"));
        assert_eq!(plan.adoptions, [], "{why}");
        assert!(told(&plan).contains(why), "{}", told(&plan));
        // It goes on waiting from where it began.
        let ledger = plan.ledger.as_ref().unwrap_or(&scene.ledger);
        assert_eq!(ledger.orphans, scene.ledger.orphans, "{why}");
    }
}

#[test]
fn f106_f107_f108_what_is_not_certainly_ours_or_was_gone_is_left_alone() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    waited(&mut scene, vmid, "m", 10 * GRACE);
    let foreign = OrphanLook::NotProven("no marker".to_owned());
    let world = seen(&scene, vmid, foreign);
    let plan = Planning::new(&world, at(NOW), Limits::default()).finish();
    assert_eq!(plan.adoptions, []);
    let findings = plan.report.findings.iter();
    let mut told_of = findings.filter(|finding| finding.message.contains("not provably"));
    assert!(told_of.next().is_some());

    // Somebody has restored it from a backup.
    scene.ledger.entries[0].state = EntryState::Quarantined {
        since: None,
        until: at(NOW + GRACE),
    };
    for nodes in [scene.nodes.clone(), Default::default()] {
        scene.nodes = nodes;
        let plan = planned(&scene, vmid, facts("m"));
        assert_eq!(plan.adoptions, []);
        assert!(told(&plan).contains("restored"), "{}", told(&plan));
    }
}

#[test]
fn a_renamed_locked_or_protected_orphan_is_for_people() {
    type Edit = fn(&mut OrphanFacts);
    let cases: [(&str, Edit); 5] = [
        ("its NodeClaim was m", |facts| facts.name = Some("x".into())),
        ("its NodeClaim was m", |facts| facts.name = None),
        ("locked (backup)", |facts| {
            facts.lock = Some("backup".into())
        }),
        ("protection flag", |facts| facts.protected = true),
        ("it has a snapshot, before-upgrade", |facts| {
            facts.snapshot = Some("before-upgrade".into());
        }),
    ];
    for (why, change) in cases {
        let mut scene = Scene::default();
        let vmid = orphaned(&mut scene, "m");
        scene.nodes.clear();
        waited(&mut scene, vmid, "m", GRACE);
        let mut facts = facts("m");
        change(&mut facts);
        let plan = planned(&scene, vmid, facts);
        assert_eq!(plan.adoptions, [], "{why}");
        assert!(told(&plan).contains(why), "{}", told(&plan));
    }
}

#[test]
fn orphans_are_removed_one_at_a_time() {
    let mut scene = Scene::default();
    let first = orphaned(&mut scene, "a");
    scene.machine("b", "alpha");
    let second = scene.claims["b"].spec.vmid;
    scene.claims.clear();
    scene.nodes.clear();
    for (vmid, name) in [(first, "a"), (second, "b")] {
        scene.ledger.orphans.push(OrphanSeen {
            cluster: "pve".into(),
            vmid,
            claim_uid: format!("claim-{name}").into(),
            since: at(NOW - GRACE),
        });
    }
    let looks = [(first, "a"), (second, "b")];
    let looks = looks.map(|(vmid, name)| (vmid, OrphanLook::Ours(Box::new(facts(name)))));
    let mut world = scene.world();
    world.apply(Delta::Orphans("pve".into(), looks.into()));
    let plan = Planning::new(&world, at(NOW), Limits::default()).finish();
    let names: Vec<&str> = plan.adoptions.iter().map(|it| it.claim.as_str()).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn s8_a_machine_with_a_young_node_and_without_a_row_waits_for_the_word_of_its_own_marker() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.ledger.entries.clear();
    let created = scene.nodes["m"].created;
    let second = jiff::SignedDuration::from_secs(1);
    let taken = |scene: &Scene| {
        let plan = planned(scene, vmid, facts("m"));
        let words = plan.report.orphans.iter();
        let words: Vec<String> = words.filter_map(|it| it.word.clone()).collect();
        let after = plan.ledger.unwrap_or_else(|| scene.ledger.clone());
        (plan.adoptions.len(), words, after.orphans_acknowledged)
    };
    // Of the same second: nobody knows which was first.
    let word = || vec!["pve:1000:abc".to_owned()];
    for age in [created, created - second] {
        scene.ledger.created = Some(age);
        assert_eq!(taken(&scene), (0, word(), None));
    }
    for wrong in [
        "pve:1000:abd",
        "pve:1001:abc",
        "other:1000:abc",
        "pve:1000:",
        "abc",
    ] {
        scene.ledger.orphans_acknowledged = Some(wrong.into());
        assert_eq!(taken(&scene), (0, word(), Some(wrong.into())), "{wrong}");
    }
    // The word goes with the row. That of another VM stays.
    scene.ledger.orphans_acknowledged = Some("pve:1001:abc, pve:1000:abc".into());
    assert_eq!(taken(&scene), (1, Vec::new(), Some("pve:1001:abc".into())));
    scene.ledger.orphans_acknowledged = None;
    scene.ledger.created = Some(created + second);
    assert_eq!(taken(&scene), (1, Vec::new(), None));
}

#[test]
fn two_orphans_are_taken_back_in_one_tick_unless_their_names_are_one() {
    let mut scene = Scene::default();
    let first = orphaned(&mut scene, "m");
    let second = orphaned(&mut scene, "n");
    // Their old rows would say which name is whose.
    scene.ledger.entries.clear();
    scene.ledger.created = Some(at(NOW));
    let planned = |name: &str| {
        let mut twin = facts("n");
        twin.name = Some(name.into());
        let looks = [(first, facts("m")), (second, twin)];
        let looks = looks.map(|(vmid, facts)| (vmid, OrphanLook::Ours(Box::new(facts))));
        let mut world = scene.world();
        world.apply(Delta::Orphans("pve".into(), looks.into()));
        let plan = crate::fixtures::plan(&world, at(NOW), Limits::default(), reasonable);
        check_sound(&plan);
        plan
    };
    assert_eq!(planned("n").adoptions.len(), 2);
    let plan = planned("m");
    assert_eq!(plan.adoptions.len(), 1);
    let mut told = plan.report.orphans.iter().map(|report| &report.message);
    assert!(told.any(|text| text.contains("another NodeClaim of its name")));
}

#[test]
fn f105_two_claims_of_one_machine_are_held() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let mut second = scene.claims["m"].clone();
    second.uid = "claim-second".into();
    second.deleting_since = Some(at(NOW));
    second.status = ClaimStatus {
        phase: Phase::Terminating,
        ..ClaimStatus::default()
    };
    second.spec.adopts = Some(Adopts {
        claim_uid: "claim-m".into(),
        nonce: "abc".into(),
        condemned: true,
    });
    scene.claims.insert("second".into(), second);
    let Verdict::Hold(why) = verdict(&scene.plan(), "second") else {
        panic!("it may be destroyed");
    };
    assert!(
        why.to_string().contains("NodeClaim m names the same VM"),
        "{why}"
    );
}

#[test]
fn the_check_drops_an_adoption_before_its_time() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    scene.nodes.clear();
    waited(&mut scene, vmid, "m", GRACE);
    let plan = planned(&scene, vmid, facts("m"));
    let [adoption]: [Adoption; 1] = plan.adoptions.clone().try_into().unwrap();
    let refused = |scene: &Scene| {
        let world = scene.world();
        !crate::check::violations(&world, at(NOW), &Limits::default(), &plan).is_empty()
    };
    assert!(!refused(&scene));
    let mut young = scene.clone();
    waited(&mut young, vmid, "m", GRACE - 1);
    let mut partial = scene.clone();
    partial.hypervisor("beta").online = false;
    let mut claimed = scene.clone();
    claimed.coming_machine("n", "alpha", Phase::Pending);
    claimed.claim("n").spec.vmid = adoption.spec.vmid;
    for scene in [young, partial, claimed] {
        assert!(refused(&scene));
    }
}

#[test]
fn s8_the_check_drops_an_adoption_without_a_row_or_the_word_or_a_younger_ledger() {
    let mut scene = Scene::default();
    let vmid = orphaned(&mut scene, "m");
    let row = scene.ledger.entries.remove(0);
    let created = scene.nodes["m"].created;
    scene.ledger.created = Some(created);
    scene.ledger.orphans_acknowledged = Some("pve:1000:abc".into());
    let plan = planned(&scene, vmid, facts("m"));
    assert_eq!(plan.adoptions.len(), 1);
    let refused = |scene: &Scene| {
        let world = seen(scene, vmid, OrphanLook::Ours(Box::new(facts("m"))));
        !crate::check::violations(&world, at(NOW), &Limits::default(), &plan).is_empty()
    };
    assert!(!refused(&scene));
    // An older version has written the Ledger without the word, or it is for another marker.
    for word in [None, Some("pve:1000:abd")] {
        scene.ledger.orphans_acknowledged = word.map(Into::into);
        assert!(refused(&scene), "{word:?}");
    }
    let mut lost = scene.clone();
    lost.ledger.created = Some(created + jiff::SignedDuration::from_secs(1));
    assert!(!refused(&lost));
    let until = at(NOW + GRACE);
    let rests = EntryState::Quarantined { since: None, until };
    for (state, is_refused) in [(EntryState::Live, false), (rests, true)] {
        let row = LedgerEntry {
            state,
            ..row.clone()
        };
        scene.ledger.entries = vec![row];
        assert_eq!(refused(&scene), is_refused);
    }
}
