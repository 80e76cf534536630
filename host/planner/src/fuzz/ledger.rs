//! The Ledger under any clock: rows from the past, from the future and from nowhere.

use jiff::SignedDuration;

use super::{Draw, moment};
use crate::facts::{Backoff, EntryState, LaunchFailure, LedgerFacts};
use crate::fixtures::Scene;
use crate::ids::{HypervisorId, StorageName};
use crate::ledger::{
    LONGEST_BACKOFF, RESERVATION_LASTS, later, overdue, quarantine, record_failure, upkeep,
};

const PLACES: [(&str, Option<&str>); 3] = [
    ("alpha", None),
    ("alpha", Some("shared")),
    ("beta", Some("local")),
];

/// Upkeep of any Ledger at any moment, failures and quarantines in between.
pub fn upkeep_of_any(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut scene = scene(&mut draw);
    // Not ordered: clocks go back, and another replica's goes otherwise.
    for _ in 0..draw.below(6) {
        let now = moment(&mut draw);
        match draw.byte() % 3 {
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
                scene.ledger = quarantine(&scene.ledger, &name.as_str().into(), now);
            }
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
    scene.host.unclaimed = overdue(&scene.world(), now).cloned().collect();
    let kept = upkeep(&scene.world(), now, resting);
    assert!(kept.wake_at.is_none_or(|wake_at| wake_at > now));
    for row in &kept.ledger.backoff {
        assert!(
            row.until <= later(now, LONGEST_BACKOFF),
            "at {now} left alone until {}",
            row.until
        );
    }
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
                class: draw.word(&["Refused", "Retry"]).into(),
                message: String::new(),
                failures: draw.number() as u32,
                until: moment(draw),
            }
        })
        .collect();
    let LedgerFacts { entries, .. } = &mut scene.ledger;
    entries.truncate(draw.below(4));
    scene
}
