//! The Ledger under any clock: rows from the past, from the future and from nowhere.

use jiff::SignedDuration;

use super::{Draw, moment};
use crate::facts::{Backoff, EntryState, LaunchFailure, LedgerFacts, Removal};
use crate::fixtures::Scene;
use crate::guard::breaker;
use crate::guard::upkeep::upkeep;
use crate::ids::{ClaimName, HypervisorId, StorageName};
use crate::ledger::{LONGEST_BACKOFF, RESERVATION_LASTS, overdue, quarantine, record_failure};
use crate::plan::RemovalReason;
use crate::time::later;

const PLACES: [(&str, Option<&str>); 3] = [
    ("alpha", None),
    ("alpha", Some("shared")),
    ("beta", Some("local")),
];

const REASONS: [RemovalReason; 4] = [
    RemovalReason::Repair,
    RemovalReason::Empty,
    RemovalReason::Lost,
    RemovalReason::Deleted,
];

/// More than the breaker allows of a small cluster.
const REMOVALS_MAX: usize = 25;

/// Upkeep of any Ledger at any moment, failures, quarantines and removals in between.
pub fn upkeep_of_any(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut scene = scene(&mut draw);
    // Not ordered: clocks go back, and another replica's goes otherwise.
    for _ in 0..draw.below(6) {
        let now = moment(&mut draw);
        match draw.byte() % 4 {
            0 => {
                let (hypervisor, storage) = place(&mut draw);
                let failure = LaunchFailure {
                    class: draw.word(&["Refused", "Retry"]).into(),
                    message: draw.text(20),
                };
                scene.ledger =
                    record_failure(&scene.ledger, &hypervisor, storage.as_ref(), &failure, now);
            }
            1 => {
                let name = format!("m{}", draw.below(3));
                scene.ledger = quarantine(&scene.ledger, &name.as_str().into(), now, now);
            }
            2 => begun(&mut scene.ledger.removals, &mut draw, now),
            _ => kept(&mut scene, now, *draw.pick(&QUARANTINES)),
        }
    }
}

const QUARANTINES: [SignedDuration; 4] = [
    SignedDuration::from_hours(24),
    SignedDuration::from_hours(1),
    SignedDuration::from_secs(1),
    SignedDuration::MAX,
];

/// One upkeep: bounded pauses and reservations, nothing forgotten that may stand for a machine, nothing left to do at the same moment.
fn kept(scene: &mut Scene, now: jiff::Timestamp, resting: SignedDuration) {
    scene.host.unclaimed = overdue(&scene.world(), now)
        .map(|entry| entry.claim.clone())
        .collect();
    let kept = upkeep(&scene.world(), now, resting);
    assert!(kept.wake_at.is_none_or(|wake_at| wake_at > now));
    for row in &kept.ledger.backoff {
        assert!(
            row.until <= later(now, LONGEST_BACKOFF),
            "at {now} left alone until {}",
            row.until
        );
    }
    within_the_window(&kept.ledger.removals, now);
    for entry in &kept.ledger.entries {
        if let EntryState::Reserved { since } = entry.state {
            let end = later(since, RESERVATION_LASTS);
            assert!(now < end && end <= later(now, RESERVATION_LASTS));
        }
    }
    for entry in scene.ledger.entries.iter().filter(|entry| entry.counts()) {
        let mut left = kept.ledger.entries.iter();
        assert!(left.any(|left| left.claim == entry.claim && left.vmid == entry.vmid));
    }
    for (name, claim) in &scene.claims {
        let mut left = kept.ledger.entries.iter();
        let counts = left.any(|entry| entry.claim == *name && entry.vmid == claim.spec.vmid);
        assert!(counts, "the claim {name} is not counted");
    }
    scene.ledger = kept.ledger;
    // At the end of time nothing rests any longer.
    if later(now, resting) <= now {
        return;
    }
    let again = upkeep(&scene.world(), now, resting);
    assert_eq!(again.ledger, scene.ledger, "upkeep of its own result");
}

/// One removal, as the planner begins it: no more of them within the window than are allowed, and whoever has to wait is told of a moment at which it has
/// not to, unless the other allowance is used up too.
fn begun(removals: &mut Vec<Removal>, draw: &mut Draw<'_>, mut now: jiff::Timestamp) {
    let claim = ClaimName::from(format!("m{}", draw.below(REMOVALS_MAX + 2)).as_str());
    let (reason, machines) = (*draw.pick(&REASONS), u32::from(draw.byte()));
    let is_repair = |row: &Removal| row.reason == RemovalReason::Repair;
    for _ in 0..3 {
        let before = removals.clone();
        breaker::forget(removals, now);
        within_the_window(removals, now);
        let known = removals.iter().find(|row| row.claim == claim).cloned();
        let rows = removals.clone();
        let Err(wait) = breaker::count(removals, machines, &claim, reason, now) else {
            let mut counted = removals.iter().filter(|row| row.claim == claim);
            let latest = counted.any(|row| now.duration_since(row.at).as_secs() < 60);
            assert!(latest, "{claim} is not counted at {now}: {removals:?}");
            assert!(removals.len() <= rows.len() + usize::from(known.is_none()));
            let (half, tenth) = ((machines / 2).max(20), (machines / 10).max(1));
            if known.is_none() {
                assert!(removals.len() <= half as usize, "{removals:?}");
            }
            if reason == RemovalReason::Repair && !known.as_ref().is_some_and(is_repair) {
                let repairs = removals.iter().filter(|row| is_repair(row)).count();
                assert!(repairs <= tenth as usize, "{removals:?}");
            }
            return;
        };
        assert_eq!(*removals, rows, "refused, and counted all the same");
        assert!(
            now < wait.until && wait.until <= later(now, breaker::WINDOW),
            "at {now} waiting until {}: {before:?}",
            wait.until
        );
        now = wait.until;
    }
    panic!("{claim} waits for ever: {removals:?}");
}

fn within_the_window(removals: &[Removal], now: jiff::Timestamp) {
    for row in removals {
        let ago = now.duration_since(row.at);
        let window = SignedDuration::ZERO..breaker::WINDOW;
        assert!(window.contains(&ago), "at {now}: {row:?}");
    }
}

fn place(draw: &mut Draw<'_>) -> (HypervisorId, Option<StorageName>) {
    let (hypervisor, storage) = *draw.pick(&PLACES);
    (
        HypervisorId::new("pve", hypervisor),
        storage.map(StorageName::from),
    )
}

fn scene(draw: &mut Draw<'_>) -> Scene {
    let mut scene = Scene::default();
    for index in 0..3 {
        scene.machine(&format!("m{index}"), draw.word(&["alpha", "beta"]));
    }
    for index in 0..3 {
        let name = format!("m{index}");
        if draw.flag() {
            scene.guest(&name, None);
        }
        if draw.flag() {
            scene.claims.remove(name.as_str());
        }
        let state = match draw.byte() % 4 {
            0 | 1 => EntryState::Live,
            2 => EntryState::Reserved {
                since: moment(draw),
            },
            _ => EntryState::Quarantined {
                since: draw.flag().then(|| moment(draw)),
                until: moment(draw),
            },
        };
        scene.ledger.entries[index].state = state;
    }
    scene.inventory.complete = !draw.byte().is_multiple_of(4);
    scene.ledger.backoff = (0..draw.below(4))
        .map(|_| {
            let (hypervisor, storage) = place(draw);
            Backoff {
                hypervisor,
                storage,
                node_class: None,
                class: draw.word(&["Refused", "Retry"]).into(),
                message: String::new(),
                failures: draw.number() as u32,
                until: moment(draw),
            }
        })
        .collect();
    // A claim has one row, however its removal was begun again.
    let removals = (0..draw.below(REMOVALS_MAX)).map(|index| Removal {
        claim: ClaimName::from(format!("m{index}").as_str()),
        at: moment(draw),
        reason: *draw.pick(&REASONS),
    });
    scene.ledger.removals = removals.collect();
    let LedgerFacts { entries, .. } = &mut scene.ledger;
    entries.truncate(draw.below(4));
    scene
}
