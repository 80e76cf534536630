mod elsewhere;
mod numbers;
mod stuck;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::check::violations;
use crate::facts::{Delta, GuestStatus};
use crate::fixtures::{NOW, Scene, at, plan, reasonable};
use crate::plan::{Plan, Verdict};
use crate::planning::Limits;

const CLUSTER: &str = "pve";

/// What stands on Proxmox, whoever has written it.
#[derive(Clone, Default)]
struct Proxmox {
    anchors: BTreeMap<Vmid, Mark>,
    /// Numbers of VMs that our credentials do not see.
    hidden: BTreeSet<Vmid>,
    /// VMs that are called like anchors, without a line of ours.
    bare: BTreeSet<Vmid>,
    /// The hypervisor of all anchors does not answer.
    is_off: bool,
    /// Proxmox refuses to change any.
    is_locked: bool,
}

/// One kproxide with its Kubernetes cluster: two pods wait for a machine, and one machine is to go.
#[derive(Clone)]
struct Kproxide {
    scene: Scene,
}

impl Kproxide {
    fn new(nonce: &str) -> Self {
        let mut scene = Scene::default();
        scene.machine("m0", "alpha").claim("m0").deleting_since = Some(at(0));
        scene.host.anchor_nonce = Some(nonce.into());
        Self { scene }
    }

    /// Whoever starts from its Ledger: after a crash, or from a backup.
    fn restarted(&self, nonce: &str) -> Self {
        let mut again = self.clone();
        again.scene.host.anchor_nonce = Some(nonce.into());
        again
    }

    fn world(&self, proxmox: &Proxmox) -> World {
        let mut scene = self.scene.clone();
        scene.hypervisor("gamma").online = !proxmox.is_off;
        for vmid in proxmox.anchors.keys().chain(&proxmox.bare) {
            let mut guest = scene.inventory.guests.values().next().unwrap().clone();
            guest.hypervisor = "gamma".into();
            guest.name = Some(format!("{NAME}{vmid}").into());
            guest.status = GuestStatus::Stopped;
            scene.inventory.guests.insert(*vmid, guest);
        }
        let mut world = scene.world();
        // Only what is a suspect is looked at.
        let suspects = crate::check::orphans::suspects(&world);
        let looks = suspects.into_iter().filter_map(|((_, vmid), hypervisor)| {
            let is_bare = proxmox.hidden.contains(&vmid) || proxmox.bare.contains(&vmid);
            let bare = is_bare.then(|| OrphanLook::NotProven("somebody's".to_owned()));
            let anchor = proxmox.anchors.get(&vmid).zip(hypervisor);
            let anchor = anchor.map(|(mark, hypervisor)| {
                OrphanLook::Anchor(AnchorLook {
                    mark: mark.clone(),
                    hypervisor,
                })
            });
            Some((vmid, anchor.or(bare)?))
        });
        let looks = looks.collect();
        world.apply(Delta::Orphans(CLUSTER.into(), looks));
        world
    }

    fn plan(&mut self, proxmox: &Proxmox, second: i64) -> Plan {
        let world = self.world(proxmox);
        let plan = plan(&world, at(second), Limits::default(), reasonable);
        let wrong = violations(&world, at(second), &Limits::default(), &plan);
        assert_eq!(wrong, []);
        assert_eq!(plan.report.findings, []);
        if let Some(ledger) = &plan.ledger {
            self.scene.ledger = ledger.clone();
        }
        plan
    }

    /// One tick, and what it does on Proxmox.
    fn tick(&mut self, proxmox: &mut Proxmox, second: i64) -> Plan {
        let plan = self.plan(proxmox, second);
        for step in &plan.anchors {
            let is_refused = match step.from {
                Some(_) => proxmox.is_off || proxmox.is_locked,
                None => proxmox.hidden.contains(&step.vmid) || proxmox.bare.contains(&step.vmid),
            };
            if !is_refused && proxmox.anchors.get(&step.vmid) == step.from.as_ref() {
                proxmox.anchors.insert(step.vmid, step.to.clone());
            }
        }
        plan
    }

    /// Ticks once a minute until then; the last plan.
    fn run(&mut self, proxmox: &mut Proxmox, seconds: std::ops::Range<i64>) -> Plan {
        let mut last = self.tick(proxmox, seconds.start);
        for second in seconds.skip(1).step_by(60) {
            last = self.tick(proxmox, second);
        }
        last
    }

    fn row(&self) -> &Anchor {
        &self.scene.ledger.anchors[0]
    }

    fn is_foreign(&self) -> bool {
        self.row().foreign.is_some()
    }
}

fn removes(plan: &Plan) -> bool {
    let is_removal = |verdict: &Verdict| matches!(verdict, Verdict::Remove(_));
    plan.advances.iter().any(|it| is_removal(&it.verdict))
}

fn held(plan: &Plan) -> Option<String> {
    plan.advances.iter().find_map(|it| match &it.verdict {
        Verdict::Hold(why) => Some(why.to_string()),
        Verdict::Keep | Verdict::Remove(_) | Verdict::GiveUp(_) => None,
    })
}

/// A new installation that has its machine after its first plan.
fn installed() -> (Kproxide, Proxmox, Plan) {
    let (mut kproxide, mut proxmox) = (Kproxide::new("one"), Proxmox::default());
    let mut new = Kproxide {
        scene: Scene {
            host: kproxide.scene.host.clone(),
            ..Scene::default()
        },
    };
    let plan = new.tick(&mut proxmox, NOW);
    kproxide.scene.ledger.anchors = new.scene.ledger.anchors;
    (kproxide, proxmox, plan)
}

/// An original that has run for ten minutes, and what it has written.
fn original() -> (Kproxide, Proxmox) {
    let (mut original, mut proxmox, _) = installed();
    let _ = original.run(&mut proxmox, NOW + 60..NOW + 600);
    (original, proxmox)
}

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

#[test]
fn a_new_install_makes_its_anchor_and_waits_for_nothing() {
    let (mut kproxide, mut proxmox, plan) = installed();
    assert_eq!(plan.report.anchors, []);
    let step = &plan.anchors[0];
    assert_eq!(
        (step.vmid, &*step.hypervisor, &*step.pool, &step.from),
        (Vmid(2999), "alpha", "kproxide", &None)
    );
    assert_eq!(step.to.to_string(), "1-one");

    // A machine never gets its number, and it is looked at as long as the Ledger knows it.
    let used = used_numbers(
        &kproxide.world(&proxmox),
        &kproxide.scene.ledger,
        &CLUSTER.into(),
    );
    assert!(used.contains(&2999));
    let suspects = crate::check::orphans::suspects(&kproxide.world(&proxmox));
    let key = (CLUSTER.into(), Vmid(2999));
    assert_eq!(suspects[&key], Some("gamma".into()));

    let plan = kproxide.tick(&mut proxmox, NOW + 60);
    assert!(removes(&plan));
    assert_eq!((plan.anchors, plan.report.anchors), (vec![], vec![]));
    let plan = kproxide.tick(&mut proxmox, NOW + 240);
    assert_eq!(plan.anchors[0].from, Some(step.to.clone()));
    assert_eq!(proxmox.anchors[&Vmid(2999)].to_string(), "2-one");
    assert!(removes(&plan));
}

#[test]
fn a_crash_between_the_intent_and_the_write_is_one_of_two_marks() {
    let (mut kproxide, mut proxmox) = original();
    let before = proxmox.clone();
    let plan = kproxide.tick(&mut proxmox, NOW + 14 * MINUTE);
    assert_eq!(plan.anchors.len(), 1);
    for shown in [before, proxmox] {
        let mut again = kproxide.restarted("two");
        let mut shown = shown.clone();
        let plan = again.run(&mut shown, NOW + 15 * MINUTE..NOW + HOUR);
        assert!(removes(&plan));
        assert_eq!(plan.report.anchors, []);
        assert_eq!(&*shown.anchors[&Vmid(2999)].nonce, "two");
    }
}

#[test]
fn f113_a_copy_of_the_cluster_is_told_and_does_nothing_and_the_original_goes_on() {
    let (mut original, mut proxmox) = original();
    let mut copy = original.restarted("copy");
    let plan = original.run(&mut proxmox, NOW + 10 * MINUTE..NOW + HOUR);
    assert!(removes(&plan));

    copy.scene
        .pending("p", 2, crate::fixtures::spec("cpu=1 memory=1Gi"));
    let plan = copy.tick(&mut proxmox, NOW + HOUR);
    assert!(!removes(&plan) && plan.launches.is_empty() && plan.anchors.is_empty());
    assert!(
        held(&plan)
            .unwrap()
            .contains("was written by another kproxide, or comes from a backup")
    );
    let report = &plan.report.anchors[0];
    assert_eq!(report.trouble, AnchorTrouble::Foreign, "{report:?}");
    assert!(
        report
            .message
            .contains("or the Ledger was restored from a backup")
    );

    // It is moved on meanwhile: that cannot be a backup's doing, and no word of before fits it.
    let _ = original.run(&mut proxmox, NOW + HOUR..NOW + HOUR + 10 * MINUTE);
    let foreign = copy.row().foreign.clone().unwrap();
    let word = acknowledgement(&CLUSTER.into(), &foreign.mark);
    copy.scene.ledger.anchor_acknowledged = Some(word.into());
    let plan = copy.tick(&mut proxmox, NOW + HOUR + 10 * MINUTE);
    assert!(!removes(&plan));
    let message = &plan.report.anchors[0].message;
    assert!(
        message.contains("It has changed 1 times since"),
        "{message}"
    );
    let plan = original.tick(&mut proxmox, NOW + HOUR + 11 * MINUTE);
    assert!(removes(&plan));
    assert_eq!(plan.report.anchors, []);
}

#[test]
fn f113_f112_a_ledger_from_a_backup_waits_for_a_word_that_names_what_is_found() {
    let (mut kproxide, mut proxmox) = original();
    let backup = kproxide.clone();
    let _ = kproxide.run(&mut proxmox, NOW + 10 * MINUTE..NOW + HOUR);
    let mut restored = backup.restarted("two");
    let plan = restored.run(&mut proxmox, NOW + HOUR..NOW + 2 * HOUR);
    assert!(!removes(&plan));
    let message = plan.report.anchors[0].message.clone();
    let (_, word) = message.rsplit_once("acknowledge-anchor=").unwrap();

    restored.scene.ledger.anchor_acknowledged = Some("pve:1-one".into());
    assert!(!removes(&restored.tick(&mut proxmox, NOW + 2 * HOUR)));
    restored.scene.ledger.anchor_acknowledged = Some(word.into());
    let plan = restored.tick(&mut proxmox, NOW + 2 * HOUR + 10);
    assert!(removes(&plan));
    assert_eq!(plan.report.anchors, []);
    assert_eq!(restored.scene.ledger.anchor_acknowledged, None);
    let plan = restored.run(&mut proxmox, NOW + 2 * HOUR + 60..NOW + 3 * HOUR);
    assert!(removes(&plan));
    assert_eq!(&*proxmox.anchors[&Vmid(2999)].nonce, "two");
}

#[test]
fn a_ledger_that_is_deleted_beside_its_writer_waits_for_nobody() {
    let (mut kproxide, mut proxmox) = original();
    kproxide.scene.ledger.anchors.clear();
    let plan = kproxide.run(&mut proxmox, NOW + 10 * MINUTE..NOW + 20 * MINUTE);
    assert!(removes(&plan));
    assert_eq!(plan.report.anchors, []);
    assert!(proxmox.anchors[&Vmid(2999)].sequence > 2);
}

/// A rolling upgrade in which the version before leads once more: it writes the Ledger without what it does not know. Or somebody deleted the Ledger.
#[test]
fn f113_a_ledger_that_knows_no_anchor_watches_the_one_that_is_there_and_takes_it() {
    let (mut kproxide, mut proxmox) = original();
    kproxide.scene.ledger.anchors.clear();
    let mut kproxide = kproxide.restarted("two");
    kproxide
        .scene
        .pending("p", 2, crate::fixtures::spec("cpu=1 memory=1Gi"));
    let start = NOW + 20 * MINUTE;
    let plan = kproxide.tick(&mut proxmox, start);
    assert!(!removes(&plan) && plan.anchors.is_empty());
    assert!(!plan.launches.is_empty(), "pods wait for them");
    assert_eq!(plan.report.anchors[0].trouble, AnchorTrouble::Unproven);
    let plan = kproxide.run(&mut proxmox, start..start + 11 * MINUTE);
    assert!(!removes(&plan));
    let plan = kproxide.run(&mut proxmox, start + 11 * MINUTE..start + 14 * MINUTE);
    assert!(removes(&plan));
    assert_eq!(&*proxmox.anchors[&Vmid(2999)].nonce, "two");
}

/// Both are as old as the version that knew no anchors, and are upgraded one after the other.
#[test]
fn f113_of_two_upgraded_twins_only_one_goes_on() {
    let (mut one, mut two) = (Kproxide::new("one"), Kproxide::new("two"));
    let mut proxmox = Proxmox::default();
    for minute in 0..60 {
        let now = NOW + minute * MINUTE;
        let (first, second) = (
            one.tick(&mut proxmox, now),
            two.tick(&mut proxmox, now + 20),
        );
        assert_eq!(removes(&first), minute >= 12, "{minute}");
        assert!(!removes(&second), "{minute}");
    }
    assert!(two.is_foreign() && !one.is_foreign());
}

/// Its making took so long that another number was taken for it, or somebody took it out of the pool for a while.
#[test]
fn two_anchors_of_ours_do_not_take_each_other_for_a_copys() {
    for other in ["1-one", "2-one"] {
        let (mut kproxide, mut proxmox) = original();
        let other = Mark::try_from(other.to_owned()).unwrap();
        proxmox.anchors.insert(Vmid(2998), other);
        let backup = kproxide.clone();
        let plan = kproxide.run(&mut proxmox, NOW + 10 * MINUTE..NOW + HOUR);
        assert!(removes(&plan));
        assert_eq!(plan.report.anchors, []);
        // Both are moved on, so that whichever a copy sees is none that it knows.
        assert_eq!(proxmox.anchors[&Vmid(2998)], proxmox.anchors[&Vmid(2999)]);
        let plan = backup.restarted("copy").tick(&mut proxmox, NOW + HOUR);
        assert_eq!(plan.report.anchors[0].trouble, AnchorTrouble::Foreign);
    }
}

#[test]
fn what_has_disappeared_or_was_never_made_is_told_and_made_within_the_range_that_is_set_now() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.anchors.clear();
    kproxide.scene.cluster.vmid_range.last = Vmid(2900);
    let plan = kproxide.tick(&mut proxmox, NOW + 15 * MINUTE);
    assert!(removes(&plan));
    assert_eq!(plan.anchors[0].vmid, Vmid(2900));
    let report = &plan.report.anchors[0];
    assert_eq!(report.trouble, AnchorTrouble::Missing);
    assert!(
        report.message.contains("now tries VM 2900"),
        "{}",
        report.message
    );
}

/// The original is slow to make it and slow to move it on, one after the other: longer than a copy watches.
#[test]
fn f113_an_anchor_that_is_made_anew_shows_what_no_copy_knows() {
    let (backup, mut proxmox) = original();
    proxmox.is_off = true;
    let mut original = backup.restarted("two");
    let _ = original.run(&mut proxmox, NOW + 10 * MINUTE..NOW + 40 * MINUTE);
    proxmox = Proxmox::default();
    let mut copy = backup.restarted("copy");
    for minute in 40..70 {
        let now = NOW + minute * MINUTE;
        assert!(removes(&original.tick(&mut proxmox, now)));
        let plan = copy.tick(&mut proxmox, now);
        assert!(!removes(&plan) && plan.anchors.is_empty(), "{minute}");
    }
    assert_eq!(&*proxmox.anchors[&Vmid(2999)].nonce, "two");
    assert!(copy.is_foreign());
}

/// A container can have the number, and its configuration is never read.
#[test]
fn a_guest_that_answers_under_another_name_is_not_waited_for() {
    let (kproxide, _) = original();
    let mut late = kproxide.restarted("two");
    let mut guest = late.scene.inventory.guests.values().next().unwrap().clone();
    guest.name = Some("somebodys-container".into());
    late.scene.inventory.guests.insert(Vmid(2999), guest);
    let mut proxmox = Proxmox::default();
    let plan = late.run(&mut proxmox, NOW + HOUR..NOW + HOUR + 13 * MINUTE);
    assert!(removes(&plan));
    assert!(proxmox.anchors.contains_key(&Vmid(2998)));
}

#[test]
fn after_a_gap_nothing_is_removed_before_the_anchor_has_stood_still_in_sight() {
    let (kproxide, mut proxmox) = original();
    let mut late = kproxide.restarted("two");
    let start = NOW + 20 * MINUTE;
    let plan = late.tick(&mut proxmox, start);
    assert!(!removes(&plan));
    assert!(held(&plan).unwrap().contains("is watched"));
    let end = later(at(start), WATCH);
    let message = &plan.report.anchors[0].message;
    assert!(message.contains(&format!("before {end:.0}")), "{message}");

    // Out of sight nobody could have moved it.
    proxmox.is_off = true;
    let plan = late.run(&mut proxmox, start + MINUTE..start + HOUR);
    assert!(!removes(&plan));
    let message = &plan.report.anchors[0].message;
    assert!(message.contains("hypervisor gamma is offline"), "{message}");
    proxmox.is_off = false;
    let plan = late.run(&mut proxmox, start + HOUR..start + HOUR + 10 * MINUTE);
    assert!(!removes(&plan));
    let plan = late.run(
        &mut proxmox,
        start + HOUR + 10 * MINUTE..start + HOUR + 13 * MINUTE,
    );
    assert!(removes(&plan));
}

#[test]
fn an_unbroken_lineage_goes_on_while_its_anchor_is_off_and_makes_one_that_is_deleted_anew() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.is_off = true;
    let plan = kproxide.run(&mut proxmox, NOW + 10 * MINUTE..NOW + HOUR);
    assert!(removes(&plan));
    assert_eq!(plan.report.anchors, []);
    // A restart within its time belongs to it.
    let mut kproxide = kproxide.restarted("two");
    assert!(removes(
        &kproxide.tick(&mut proxmox, NOW + HOUR + 5 * MINUTE)
    ));

    proxmox = Proxmox::default();
    let plan = kproxide.run(&mut proxmox, NOW + HOUR + 6 * MINUTE..NOW + 2 * HOUR);
    assert!(removes(&plan));
    assert_eq!(proxmox.anchors.len(), 1);

    // After a gap another one might be about to make it.
    let mut late = kproxide.restarted("three");
    proxmox.anchors.clear();
    let plan = late.run(&mut proxmox, NOW + 3 * HOUR..NOW + 3 * HOUR + 11 * MINUTE);
    assert!(!removes(&plan) && proxmox.anchors.is_empty());
    let plan = late.run(
        &mut proxmox,
        NOW + 3 * HOUR + 11 * MINUTE..NOW + 3 * HOUR + 14 * MINUTE,
    );
    assert!(removes(&plan));
    assert_eq!(proxmox.anchors.len(), 1);
}

#[test]
fn a_number_that_is_somebody_elses_is_not_tried_again() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.anchors.clear();
    let mut world = kproxide.world(&proxmox);
    let taken = OrphanLook::NotProven("somebody else's".to_owned());
    world.apply(Delta::Orphans(CLUSTER.into(), [(Vmid(2999), taken)].into()));
    let mut ledger = kproxide.scene.ledger.clone();
    let review = review(&world, &mut ledger, at(NOW + 20 * MINUTE - 61));
    assert_eq!(review.steps, [], "after a gap it is watched first");
    kproxide.scene.ledger.anchors[0].at = at(NOW + 20 * MINUTE);
    let mut ledger = kproxide.scene.ledger.clone();
    let review = super::review(&world, &mut ledger, at(NOW + 25 * MINUTE));
    assert_eq!(review.steps[0].vmid, Vmid(2998));
    assert_eq!(ledger.anchors[0].vmid, Vmid(2998));
}

#[test]
fn a_full_range_is_told_and_removals_go_on() {
    let (mut kproxide, mut proxmox) = (Kproxide::new("one"), Proxmox::default());
    (
        kproxide.scene.cluster.vmid_range.first,
        kproxide.scene.cluster.vmid_range.last,
    ) = (Vmid(1000), Vmid(1000));
    let plan = kproxide.tick(&mut proxmox, NOW);
    assert!(removes(&plan));
    let message = &plan.report.anchors[0].message;
    assert!(message.contains("spec.vmidRange"), "{message}");
    assert_eq!(plan.anchors, []);
}

#[test]
fn no_anchor_is_kept_without_a_key_in_a_dry_run_or_if_it_is_switched_off() {
    let edits: [fn(&mut Scene); 3] = [
        |scene| scene.host.key_known = false,
        |scene| scene.host.dry_run = true,
        |scene| scene.host.anchor_nonce = None,
    ];
    for edit in edits {
        let mut kproxide = Kproxide::new("one");
        edit(&mut kproxide.scene);
        let plan = kproxide.plan(&Proxmox::default(), NOW);
        assert_eq!(
            (&plan.anchors[..], &plan.report.anchors[..]),
            (&[][..], &[][..])
        );
        let ledger = plan.ledger.unwrap_or_default();
        assert_eq!(ledger.anchors, []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever restarts and whatever is off: while the original lives, a copy that is older than [`FRESH`], or of a time before there was an anchor,
    /// removes and writes nothing, and the original never stops for it.
    #[test]
    fn f113_a_copy_never_acts_and_never_stops_the_original(
        backup in 0..60i64,
        delay in 11..120i64,
        copy_tick in 0..60i64,
        off in prop::collection::vec((0..300i64, 1..40i64), 0..4),
        restarts in prop::collection::vec(0..300i64, 0..20),
        copy_restarts in prop::collection::vec(0..300i64, 0..20),
        deleted in prop::option::of(0..300i64),
        knows_it in any::<bool>(),
    ) {
        let (mut original, mut proxmox) = original();
        let mut copy: Option<Kproxide> = None;
        let start = NOW + 10 * MINUTE;
        let mut fresh = original.clone();
        for minute in 0..300i64 {
            let now = start + minute * MINUTE;
            proxmox.is_off = off.iter().any(|(from, length)| (*from..from + length).contains(&minute));
            if deleted == Some(minute) {
                proxmox.anchors.clear();
            }
            if restarts.contains(&minute) {
                original = original.restarted(&format!("o{minute}"));
            }
            let plan = original.tick(&mut proxmox, now);
            prop_assert!(!original.is_foreign(), "{:?}", plan.report.anchors);
            prop_assert!(removes(&plan), "{:?}", plan.report.anchors);
            if minute == backup {
                fresh = original.clone();
            }
            if minute == backup + delay || (copy.is_some() && copy_restarts.contains(&minute)) {
                if !knows_it && copy.is_none() {
                    fresh.scene.ledger.anchors.clear();
                }
                let from = copy.as_ref().unwrap_or(&fresh);
                copy = Some(from.restarted(&format!("c{minute}")));
            }
            if let Some(copy) = &mut copy {
                let plan = copy.tick(&mut proxmox, now + copy_tick);
                prop_assert!(!removes(&plan), "{:?}", copy.row());
                prop_assert_eq!(plan.anchors, []);
            }
        }
    }

    /// Whatever the Ledger and Proxmox show: what is removed is removed with an anchor that the Ledger knows, or none in sight and a lineage that is
    /// unbroken or has watched.
    #[test]
    fn nothing_is_removed_beside_a_mark_that_the_ledger_does_not_know(
        shown in prop::collection::btree_map(2990..3000u32, (1..4u64, "[ab]"), 0..3),
        mark in prop::option::of((1..4u64, "[ab]")),
        next in (1..4u64, "[ab]"),
        age in -700..3000i64,
        watched in prop::option::of(-700..3000i64),
        is_off in any::<bool>(),
        word in prop::option::of((1..4u64, "[ab]")),
    ) {
        let to_mark = |(sequence, nonce): &(u64, String)| Mark { sequence: *sequence, nonce: nonce.as_str().into() };
        let mut kproxide = Kproxide::new("c");
        let proxmox = Proxmox {
            anchors: shown.iter().map(|(vmid, mark)| (Vmid(*vmid), to_mark(mark))).collect(),
            is_off,
            ..Proxmox::default()
        };
        let word = word.as_ref().map(|word| acknowledgement(&CLUSTER.into(), &to_mark(word)));
        kproxide.scene.ledger.anchor_acknowledged = word.as_deref().map(Into::into);
        kproxide.scene.ledger.anchors.push(Anchor {
            cluster: CLUSTER.into(),
            vmid: Vmid(2995),
            mark: mark.as_ref().map(to_mark),
            next: to_mark(&next),
            at: at(NOW - age),
            watched_since: watched.map(|ago| at(NOW - ago)),
            foreign: None,
        });
        let row = kproxide.row().clone();
        let plan = kproxide.plan(&proxmox, NOW);
        if removes(&plan) {
            let is_known = |mark: &Mark| row.mark.as_ref() == Some(mark) || row.next == *mark
                || word == Some(acknowledgement(&CLUSTER.into(), mark));
            if !is_off {
                prop_assert!(proxmox.anchors.values().any(is_known) || proxmox.anchors.is_empty());
            }
            prop_assert!(age < FRESH.as_secs() || word.is_some());
        }
        // The next plan finds the books in order.
        let again = kproxide.plan(&proxmox, NOW);
        prop_assert_eq!(removes(&plan), removes(&again));
    }
}
