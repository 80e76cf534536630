use super::*;
use crate::facts::Phase;
use crate::fixtures::{NOW, Scene, at, condition};
use crate::ids::{HypervisorId, PoolName, StorageName};
use crate::ledger::tests::failure;
use crate::ledger::{
    overdue, policy_state, record_failed_launch, record_failure, set_policy_state,
};

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn kept(scene: &Scene) -> Upkeep {
    upkeep(&scene.world(), at(NOW), DAY)
}

fn states(upkeep: &Upkeep) -> Vec<EntryState> {
    upkeep
        .ledger
        .entries
        .iter()
        .map(|entry| entry.state)
        .collect()
}

#[test]
fn f2_a_reservation_turns_live_with_its_claim_and_rests_without_one() {
    let mut scene = Scene::default();
    scene.coming_machine("seen", "alpha", Phase::Pending);
    scene.coming_machine("young", "alpha", Phase::Pending);
    scene.coming_machine("stale", "alpha", Phase::Pending);
    for (entry, age) in scene.ledger.entries.iter_mut().zip([5, 59, 60]) {
        entry.state = EntryState::Reserved {
            since: at(NOW - age),
        };
    }
    scene.claims.retain(|name, _| name.as_str() == "seen");
    let world = scene.world();
    assert!(
        overdue(&world, at(NOW))
            .map(|entry| &entry.claim)
            .eq([&ClaimName::from("stale")])
    );
    scene.host.unclaimed = ["young", "stale"].map(ClaimName::from).into();
    let upkeep = kept(&scene);
    assert_eq!(
        states(&upkeep),
        [
            EntryState::Live,
            EntryState::Reserved {
                since: at(NOW - 59)
            },
            // Not as long as the number of a machine: nothing was made.
            EntryState::Quarantined {
                since: Some(at(NOW)),
                until: at(NOW + 3600)
            },
        ]
    );
    assert_eq!(upkeep.wake_at, Some(at(NOW + 1)));
}

/// The watch of claims lags behind; the machine may have been made already, and would count for nobody.
#[test]
fn f60_a_reservation_counts_until_the_api_server_says_that_there_is_no_claim() {
    let mut scene = Scene::default();
    scene.coming_machine("unseen", "alpha", Phase::Pending);
    let reserved = EntryState::Reserved {
        since: at(NOW - 3600),
    };
    scene.ledger.entries[0].state = reserved;
    scene.claims.clear();
    assert_eq!(states(&kept(&scene)), [reserved]);
}

#[test]
fn quarantine_ends_with_its_time() {
    let mut scene = Scene::default();
    for (name, left) in [("over", 0), ("on", 1)] {
        scene.coming_machine(name, "alpha", Phase::Pending);
        scene.claims.clear();
        let entry = scene.ledger.entries.last_mut().unwrap();
        entry.state = EntryState::Quarantined {
            since: None,
            until: at(NOW + left),
        };
    }
    assert_eq!(
        states(&kept(&scene)),
        [EntryState::Quarantined {
            since: None,
            until: at(NOW + 1)
        }]
    );
}

#[test]
fn f50_an_entry_without_claim_counts_until_its_vm_is_gone() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.claims.clear();
    assert_eq!(states(&kept(&scene)), [EntryState::Live]);
    let told = |scene: &Scene| kept(scene).findings[0].message.clone();
    assert!(told(&scene).contains("could not be read yet"));
    let mut template = scene.clone();
    template
        .inventory
        .guests
        .values_mut()
        .next()
        .unwrap()
        .template = true;
    assert!(told(&template).contains("is now a template"));
    // It was moved since it was made.
    let guest = scene.inventory.guests.values_mut().next().unwrap();
    guest.hypervisor = "beta".into();
    scene.inventory.hypervisors.get_mut("beta").unwrap().online = false;
    let away = told(&scene);
    assert!(away.contains("may still exist on beta"), "{away}");
    assert!(away.contains("remove the entry of m from"), "{away}");

    scene.inventory.guests.clear();
    scene.inventory.complete = false;
    assert!(told(&scene).contains("is incomplete"));
    assert_eq!(
        states(&kept(&scene)),
        [EntryState::Live],
        "not listed means nothing in a partial list"
    );

    scene.inventory.complete = true;
    let whole = scene.inventory.hypervisors.clone();
    scene
        .inventory
        .hypervisors
        .retain(|name, _| &**name == "beta");
    assert_eq!(
        states(&kept(&scene)),
        [EntryState::Live],
        "a server that answers as a lone one knows of its own guests only"
    );

    scene.inventory.hypervisors = whole;
    assert_eq!(
        states(&kept(&scene)),
        [EntryState::Quarantined {
            since: Some(at(NOW)),
            until: at(NOW + 86_400)
        }]
    );
}

#[test]
fn a_claim_that_the_ledger_lost_counts_again() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let before = scene.ledger.entries.clone();
    scene.ledger.entries.clear();
    assert_eq!(kept(&scene).ledger.entries, before);
}

#[test]
fn upkeep_of_what_it_made_changes_nothing() {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    scene.coming_machine("stale", "alpha", Phase::Pending);
    scene.ledger.entries[1].state = EntryState::Reserved { since: at(0) };
    scene.claims.remove("stale");
    scene.host.unclaimed = ["stale".into()].into();
    scene.ledger = kept(&scene).ledger;
    assert_eq!(kept(&scene).ledger, scene.ledger);
}

#[test]
fn a_machine_in_service_since_the_failure_ends_the_back_off_of_its_place() {
    let left = |hypervisor: &str, storage: Option<&str>, failed: i64| {
        let mut scene = Scene::default();
        scene.machine("m", "alpha");
        let id = HypervisorId::new("pve", hypervisor);
        let storage = storage.map(StorageName::from);
        for seconds in [failed - 300, failed] {
            scene.ledger = record_failure(
                &scene.ledger,
                &id,
                storage.as_ref(),
                &failure("Refused"),
                at(seconds),
            );
        }
        let claim = scene.claim("m");
        claim.status.conditions = vec![condition(Condition::Initialized, at(NOW - 60))];
        kept(&scene).ledger.backoff.len()
    };
    assert_eq!(left("alpha", Some("shared"), NOW - 61), 0);
    assert_eq!(left("alpha", None, NOW - 61), 0);
    assert_eq!(
        left("alpha", Some("shared"), NOW - 60),
        1,
        "it failed since"
    );
    assert_eq!(left("alpha", Some("local"), NOW - 61), 1);
    assert_eq!(left("beta", Some("shared"), NOW - 61), 1);
}

#[test]
fn failed_launches_count_until_a_machine_of_their_pool_serves() {
    let left = |pool: &str, serves_since: i64| {
        let mut scene = Scene::default();
        scene.machine("m", "alpha");
        let other: PoolName = "other".into();
        let facts = scene.workers().clone();
        scene.pools.insert(other.clone(), facts);
        scene.claim("m").spec.pool = pool.into();
        let served = condition(Condition::Initialized, at(serves_since));
        scene.claim("m").status.conditions = vec![served];
        let workers: PoolName = "workers".into();
        let failed = failure("Refused");
        scene.ledger = record_failed_launch(&scene.ledger, &workers, &failed, at(NOW - 60));
        scene.ledger = record_failed_launch(&scene.ledger, &other, &failed, at(NOW - 60));
        let rows = kept(&scene).ledger.failed_launches;
        let left: Vec<String> = rows.iter().map(|row| row.pool.to_string()).collect();
        left.join(" ")
    };
    assert_eq!(left("workers", NOW - 59), "other");
    assert_eq!(left("other", NOW - 59), "workers");
    assert_eq!(
        left("workers", NOW - 60),
        "other workers",
        "it failed since"
    );
}

#[test]
fn another_policy_begins_without_the_old_ones_state() {
    let mut scene = Scene::default();
    let mut row = policy_state(
        &scene.ledger,
        &"workers".into(),
        PolicyKind::HostSelection,
        "spread",
    );
    row.sequence = 7;
    set_policy_state(&mut scene.ledger, row);
    let sequence = |scene: &Scene, policy: &str| {
        policy_state(
            &kept(scene).ledger,
            &"workers".into(),
            PolicyKind::HostSelection,
            policy,
        )
        .sequence
    };
    assert_eq!(sequence(&scene, "spread"), 7);
    scene.workers().policies.host_selection.policy.name = "pack".into();
    assert_eq!(sequence(&scene, "pack"), 0);
    assert_eq!(kept(&scene).ledger.policy_state, [], "the row is dropped");
}

#[test]
fn what_a_clock_ahead_wrote_lasts_no_longer_than_what_ours_writes() {
    let years = NOW + 10 * 365 * 86_400;
    let mut scene = Scene::default();
    let hypervisor = HypervisorId::new("pve", "alpha");
    for _ in 0..2 {
        scene.ledger = record_failure(
            &scene.ledger,
            &hypervisor,
            None,
            &failure("Retry"),
            at(years),
        );
    }
    scene.coming_machine("unclaimed", "alpha", Phase::Pending);
    scene.claims.clear();
    scene.ledger.entries[0].state = EntryState::Reserved { since: at(years) };
    let kept = kept(&scene);
    assert_eq!(kept.ledger.backoff[0].until, at(NOW + 60));
    assert_eq!(states(&kept), [EntryState::Reserved { since: at(NOW) }]);
    assert_eq!(kept.wake_at, Some(at(NOW + 60)));
}
