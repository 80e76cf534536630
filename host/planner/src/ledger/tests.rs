use super::*;
use crate::fixtures::{NOW, Scene, at};
use crate::ids::Vmid;

#[test]
fn a_proof_of_absence_lets_number_and_address_rest() {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "alpha");
    let address = Some("10.0.0.9".parse().unwrap());
    scene.ledger.entries[0].address = address;
    let ledger = quarantine(&scene.ledger, &"a".into(), at(NOW - 1), at(NOW));
    let counting: Vec<Vmid> = ledger
        .entries
        .iter()
        .filter(|e| e.counts())
        .map(|e| e.vmid)
        .collect();
    assert_eq!(counting, [Vmid(1001)]);
    assert_eq!(
        ledger.entries[0].state,
        EntryState::Quarantined {
            since: Some(at(NOW - 1)),
            until: at(NOW)
        }
    );
    assert_eq!(ledger.entries[0].address, address);
}

/// With a message that is longer than a row keeps.
pub(crate) fn failure(class: &str) -> LaunchFailure {
    LaunchFailure {
        class: class.into(),
        message: "ü\n".repeat(1000),
    }
}

#[test]
fn f44_f100_failures_double_the_pause_up_to_half_an_hour() {
    let hypervisor = HypervisorId::new("pve", "alpha");
    let mut ledger = LedgerFacts::default();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        ledger = record_failure(&ledger, &hypervisor, None, &failure("storage-full"), at(0));
        pauses.push(ledger.backoff[0].until.duration_since(at(0)).as_secs());
    }
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1800, 1800]);
    let kept = &ledger.backoff[0].message;
    assert_eq!(*kept, format!("{}…", ["ü"; 100].join(" ")));
    let word = LaunchFailure {
        message: "ü".repeat(1000),
        ..failure("storage-full")
    };
    let ledger = record_failure(&ledger, &hypervisor, None, &word, at(0));
    let kept = &ledger.backoff[0].message;
    assert_eq!(*kept, format!("{}…", "ü".repeat(MOST_MESSAGE_CHARS - 2)));
    let other = record_failure(
        &ledger,
        &hypervisor,
        Some(&"local".into()),
        &failure("storage-full"),
        at(0),
    );
    assert_eq!(other.backoff.len(), 2);
}

#[test]
fn policies_keep_no_more_states_than_the_ledger_has_room_for() {
    let mut ledger = LedgerFacts::default();
    let row = |index: usize, sequence: u64| PolicyState {
        sequence,
        ..policy_state(
            &LedgerFacts::default(),
            &format!("pool-{index:03}").as_str().into(),
            PolicyKind::HostSelection,
            "spread",
        )
    };
    for index in 0..MOST_STATES + 2 {
        set_policy_state(&mut ledger, row(index, 1));
    }
    assert_eq!(ledger.policy_state.len(), MOST_STATES);
    // Those that are there go on.
    set_policy_state(&mut ledger, row(0, 2));
    set_policy_state(&mut ledger, row(MOST_STATES - 1, 3));
    let sequences: Vec<u64> = ledger.policy_state.iter().map(|row| row.sequence).collect();
    assert_eq!((sequences[0], sequences[MOST_STATES - 1]), (2, 3));
    assert_eq!(sequences.len(), MOST_STATES);
}
