//! Each rule of the check refuses an adoption that breaks it.

use super::*;
use crate::facts::{Anchor, Delta, Freeze, Mark, OrphanFacts, OrphanSeen};
use crate::fixtures::plan;

struct Case {
    scene: Scene,
    look: OrphanFacts,
    plan: Plan,
}

/// A machine whose claim and Node are gone, and whose grace is over: the plan condemns it.
fn condemned() -> Case {
    let mut scene = Scene::default();
    scene.machine("m", "alpha");
    let spec = scene.claims["m"].spec.clone();
    scene.claims.clear();
    scene.nodes.clear();
    scene.ledger.orphans = vec![OrphanSeen {
        cluster: "pve".into(),
        vmid: spec.vmid,
        claim_uid: "claim-m".into(),
        since: at(NOW - 3600),
    }];
    let look = OrphanFacts {
        claim_uid: "claim-m".into(),
        nonce: "abc".into(),
        name: Some("m".into()),
        hypervisor: "alpha".into(),
        smbios_uuid: Some("uuid-m".into()),
        milli_cores: 4000,
        memory_bytes: 8 * GIB,
        lock: None,
        protected: false,
        snapshot: None,
        tombstoned: false,
    };
    let mut case = Case {
        scene,
        look,
        plan: Plan::default(),
    };
    case.plan = plan(
        &case.world(),
        at(NOW),
        Limits::default(),
        crate::fixtures::reasonable,
    );
    assert_eq!(case.plan.adoptions.len(), 1);
    assert!(case.plan.adoptions[0].is_condemned());
    case
}

impl Case {
    fn world(&self) -> World {
        let mut world = self.scene.world();
        let look = OrphanLook::Ours(Box::new(self.look.clone()));
        world.apply(Delta::Orphans("pve".into(), [(Vmid(1000), look)].into()));
        world
    }

    fn spec(&mut self) -> &mut ClaimSpec {
        &mut self.plan.adoptions[0].spec
    }
}

fn after(change: impl FnOnce(&mut Case)) -> Option<Violation> {
    let mut case = condemned();
    change(&mut case);
    let found = violations(&case.world(), at(NOW), &Limits::default(), &case.plan);
    found.into_iter().next().map(|(_, violation)| violation)
}

#[test]
fn an_adoption_is_of_a_machine_that_nobody_else_has() {
    assert_eq!(after(|_| {}), None);
    assert_eq!(
        after(|case| case.spec().adopts = None),
        Some(Violation::NotOurs)
    );
    assert_eq!(
        after(|case| case.spec().cluster = "other".into()),
        Some(Violation::WrongCluster)
    );
    assert_eq!(
        after(|case| case.scene.host.key_known = false),
        Some(Violation::NoKey)
    );
    for (first, last) in [(1001, 2999), (100, 999)] {
        let range = after(|case| {
            let cluster = &mut case.scene.cluster;
            (cluster.vmid_range.first, cluster.vmid_range.last) = (Vmid(first), Vmid(last));
        });
        assert_eq!(range, Some(Violation::NumberOutOfRange(Vmid(1000))));
    }
    let exact = after(|case| {
        let cluster = &mut case.scene.cluster;
        (cluster.vmid_range.first, cluster.vmid_range.last) = (Vmid(1000), Vmid(1000));
    });
    assert_eq!(exact, None);
    assert_eq!(
        after(|case| case.spec().vm_name = "n".into()),
        Some(Violation::NameTaken)
    );
    let named = after(|case| {
        case.scene
            .coming_machine("m", "alpha", crate::claim::Phase::Pending);
    });
    assert_eq!(named, Some(Violation::NameTaken));
    let taken = Some(Violation::NumberTaken(Vmid(1000)));
    let claimed = after(|case| {
        case.scene
            .coming_machine("n", "alpha", crate::claim::Phase::Pending);
        case.scene.claim("n").spec.vmid = Vmid(1000);
    });
    assert_eq!(claimed, taken);
    let twice = after(|case| {
        let mut twin = case.plan.adoptions[0].clone();
        twin.claim = "n".into();
        twin.spec.vm_name = "n".into();
        case.plan.adoptions.push(twin);
    });
    assert_eq!(twice, taken);
    let resting = EntryState::Quarantined {
        since: None,
        until: at(NOW + 60),
    };
    let rests = after(|case| case.scene.ledger.entries[0].state = resting);
    assert_eq!(rests, taken);
    let anothers = after(|case| case.scene.ledger.entries[0].claim = "n".into());
    assert_eq!(anothers, taken);
}

#[test]
fn a_machine_is_condemned_only_if_nothing_speaks_for_it() {
    let unknown = after(|case| case.scene.ledger.entries.clear());
    assert_eq!(unknown, Some(Violation::NotOurs));
    let frozen = after(|case| {
        ledger(&mut case.plan).freeze = Some(Freeze {
            since: at(NOW),
            machines: 4,
        });
    });
    assert_eq!(frozen, Some(Violation::Frozen));
    let watched = after(|case| {
        case.scene.host.anchor_nonce = Some("nonce".into());
        let anchor = Anchor {
            cluster: "pve".into(),
            vmid: Vmid(2999),
            mark: None,
            next: Mark {
                sequence: 1,
                nonce: "nonce".into(),
            },
            at: at(NOW),
            watched_since: Some(at(NOW)),
            foreign: None,
        };
        ledger(&mut case.plan).anchors = vec![anchor];
    });
    assert_eq!(watched, Some(Violation::Anchor));
    let serves = |ready: bool| {
        after(|case| {
            let node = case
                .scene
                .node("m", crate::fixtures::node("cpu=4 memory=8Gi"));
            node.system_uuid = Some("uuid-m".into());
            node.ready = ready;
        })
    };
    assert_eq!(
        (serves(true), serves(false)),
        (Some(Violation::Protected), None)
    );

    let too_early: [fn(&mut Case); 9] = [
        |case| case.scene.ledger.orphans[0].since = at(NOW - 3599),
        |case| case.scene.ledger.orphans[0].vmid = Vmid(1001),
        |case| case.scene.ledger.orphans[0].cluster = "other".into(),
        |case| case.scene.inventory.reachable = false,
        |case| case.scene.inventory.quorate = false,
        |case| case.scene.inventory.complete = false,
        |case| case.scene.hypervisor("beta").online = false,
        |case| case.scene.host.armed_at = Some(at(NOW + 1)),
        |case| case.scene.host.armed_at = None,
    ];
    for change in too_early {
        assert_eq!(after(change), Some(Violation::NotArmed));
    }
}

#[test]
fn s8_what_the_check_refuses_leaves_no_row_that_speaks_for_it_in_the_next_tick() {
    let mut case = condemned();
    case.scene = Scene::default();
    case.scene.machine("m", "alpha");
    case.scene.claims.clear();
    case.scene.ledger.entries.clear();
    for tick in 0..2 {
        // As a planner would plan that takes each Node for older than the Ledger.
        case.scene.ledger.created = Some(at(NOW));
        let world = case.world();
        let reasonable = crate::fixtures::reasonable;
        let mut forged = plan(&world, at(NOW), Limits::default(), reasonable);
        assert_eq!(forged.adoptions.len(), 1, "tick {tick}");
        case.scene.ledger.created = Some(at(0));
        let world = case.world();
        enforce(&world, at(NOW), &Limits::default(), &mut forged);
        assert_eq!(forged.adoptions, [], "tick {tick}");
        case.scene.ledger.entries = forged.ledger.unwrap_or_default().entries;
    }
}
