//! What the breaker counts stands in the Ledger before it is done.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kproxide_planner::claim::Op;
use kproxide_planner::facts::{LedgerFacts, Mark, Removal};
use kproxide_planner::ids::Vmid;
use kproxide_planner::plan::{
    Advance, AnchorStep, Plan, RemovalReason, Standing, Unneeded, Verdict,
};
use kproxide_planner::reasons::on_hold::Hold;
use kproxide_simulator::faults::Fault;
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::rng::Spread;
use tokio::time::{sleep, timeout};

use super::lab::{CLAIM, Host, Lab, tick, turn};
use super::lives::in_service;
use kproxide_kube::{claims::StoredClaim, ledger};
use kproxide_pve::limits::Concurrency;

/// A machine in service, and nothing that is being driven.
async fn at_rest() -> (Lab, Host, StoredClaim) {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    for _ in 0..10 {
        let _ = timeout(Duration::from_secs(5), host.actor.finished()).await;
    }
    let claim = lab.claim().await.expect("it is in service");
    (lab, host, claim)
}

#[tokio::test(start_paused = true)]
async fn f16_a_removal_that_the_ledger_could_not_count_does_not_begin() {
    let (lab, mut host, claim) = at_rest().await;
    let stands = ledger::get(&lab.client).await.unwrap().unwrap();
    let row = Removal {
        claim: CLAIM.into(),
        at: Timestamp::from_second(1_800_000_000).unwrap(),
        reason: RemovalReason::Empty,
    };
    for (version, begins) in [("1".into(), false), (stands.resource_version.clone(), true)] {
        let plan = Plan {
            ledger: Some(LedgerFacts {
                resource_version: version,
                removals: vec![row.clone()],
                ..stands.clone()
            }),
            advances: vec![Advance {
                claim: claim.name.clone(),
                uid: claim.facts.uid.clone(),
                verdict: Verdict::Remove(RemovalReason::Empty),
            }],
            ..Plan::default()
        };
        let started = host.actor.start(&plan, &host.world, &host.term).await;
        assert_eq!(started.ledger.is_some(), begins);
        assert_eq!(!host.actor.removing().is_empty(), begins);
    }
    let stands = ledger::get(&lab.client).await.unwrap().unwrap();
    assert_eq!(stands.removals, [row]);
}

/// A tick that waited for an answer while its Lease lapsed and was taken anew.
#[tokio::test(start_paused = true)]
async fn f73_what_was_planned_in_an_earlier_term_does_not_begin() {
    let (_lab, mut host, claim) = at_rest().await;
    let plan = Plan {
        advances: vec![Advance {
            claim: claim.name.clone(),
            uid: claim.facts.uid.clone(),
            verdict: Verdict::Remove(RemovalReason::Empty),
        }],
        ..Plan::default()
    };
    for (term, begins) in [("epoch-0", false), ("epoch-1", true)] {
        host.actor.start(&plan, &host.world, term).await;
        assert_eq!(!host.actor.removing().is_empty(), begins);
    }
}

/// The Lease lapsed and was taken anew while the drive waited for its first answer.
#[tokio::test(start_paused = true)]
async fn f73_a_drive_that_began_in_an_earlier_term_does_nothing() {
    let (lab, mut host, claim) = at_rest().await;
    host.actor
        .start(&advance(&claim, REMOVE), &host.world, &host.term)
        .await;
    *host.leads_in.lock().unwrap() = "epoch-2".into();
    rest(&mut host).await;
    let stands = lab.claim().await.expect("nothing has touched it");
    assert_eq!(stands.facts.status.phase, claim.facts.status.phase);
}

#[tokio::test(start_paused = true)]
async fn f73_no_anchor_is_made_for_an_earlier_term() {
    let (lab, host, claim) = at_rest().await;
    let step = AnchorStep {
        cluster: claim.facts.spec.cluster,
        vmid: Vmid(299),
        hypervisor: "pve1".into(),
        pool: "k8s".into(),
        from: None,
        to: Mark::try_from("1-x4f9".to_owned()).unwrap(),
    };
    for (term, made) in [("epoch-0", 0), ("epoch-1", 1)] {
        let refused = host.actor.anchor(std::slice::from_ref(&step), term).await;
        assert_eq!((lab.asked("POST", "/qemu"), refused), (made, Vec::new()));
    }
}

/// A freeze, another's anchor, or somebody's annotation: it holds up what is under way too.
#[tokio::test(start_paused = true)]
async fn a_removal_under_way_rests_once_it_is_held() {
    let (lab, mut host, claim) = at_rest().await;
    for verdict in [REMOVE, Verdict::Hold(Hold::ClaimPaused)] {
        host.actor
            .start(&advance(&claim, verdict), &host.world, &host.term)
            .await;
    }
    rest(&mut host).await;
    let stands = lab.claim().await.expect("nothing has touched it");
    assert_eq!(stands.facts.status.phase, claim.facts.status.phase);
}

/// It is looking at its machine then: what it sees was asked for by a plan that is overtaken.
#[tokio::test(start_paused = true)]
async fn a_removal_that_is_held_while_it_looks_goes_no_further() {
    let (lab, mut host, claim) = at_rest().await;
    let look = Matcher::new(Method::GET, "/nodes/*/qemu/*/config");
    lab.faults
        .inject(look, Fault::Delay(Duration::from_secs(3)), 2);
    let remove = advance(&claim, REMOVE);
    host.actor.start(&remove, &host.world, &host.term).await;
    // The first look is the drain's: whether the machine of a dead Node is off.
    sleep(Duration::from_secs(4)).await;
    let status = lab.claim().await.expect("it is there").facts.status;
    assert_eq!(status.intent.map(|intent| intent.op), Some(Op::Tombstone));
    let hold = advance(&claim, Verdict::Hold(Hold::ClaimPaused));
    host.actor.start(&hold, &host.world, &host.term).await;
    rest(&mut host).await;
    assert_eq!(lab.asked("PUT", "/config"), 1);
}

/// Its turn to clone has come, and it asks once more whether its number is free.
#[tokio::test(start_paused = true)]
async fn a_launch_that_is_held_while_it_looks_does_not_begin() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    tick(&mut host, &lab.client, &Verdict::Keep).await;
    let claim = lab.claim().await.expect("it is planned");
    let look = Matcher::new(Method::GET, "/cluster/nextid");
    lab.faults
        .inject(look, Fault::Delay(Duration::from_secs(3)), 1);
    tick(&mut host, &lab.client, &Verdict::Keep).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.faults.happened().len(), 1);
    let all = 3 * Concurrency::default().per_hypervisor;
    assert_eq!(host.free_clone_turns().await, all - 1);
    let hold = advance(&claim, Verdict::Hold(Hold::ClaimPaused));
    host.actor.start(&hold, &host.world, &host.term).await;
    rest(&mut host).await;
    let stands = lab.claim().await.expect("nothing has touched it");
    assert_eq!(stands.facts.status.intent, None);
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
}

/// Its clone goes on meanwhile, and counts.
#[tokio::test(start_paused = true)]
async fn f36_a_claim_that_is_held_while_it_is_cloned_keeps_its_turn() {
    let (mut lab, mut host) = with_slow_clones().await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, is_cloned).await);
    keeps_its_turn_while_it_is_held(lab, host).await;
}

/// Proxmox takes long to say that it has begun, and by then a plan holds the claim.
#[tokio::test(start_paused = true)]
async fn f36_a_clone_that_begins_while_its_claim_is_held_is_written_down_and_keeps_its_turn() {
    let (lab, host) = with_a_late_clone().await;
    assert!(!is_cloned(&lab).await);
    keeps_its_turn_while_it_is_held(lab, host).await;
}

/// The clone runs, and the API server takes no record of it.
#[tokio::test(start_paused = true)]
async fn f36_a_clone_that_cannot_be_written_down_keeps_its_turn() {
    let (lab, mut host) = with_a_late_clone().await;
    let records = Matcher::new(Method::PATCH, "/nodeclaims/*/status");
    lab.faults.inject(records, Fault::Fail, 1_000);
    rest(&mut host).await;
    assert_eq!(lab.asked("POST", "/clone"), 1);
    assert!(!is_cloned(&lab).await, "nothing was written");
    let all = 3 * Concurrency::default().per_hypervisor;
    assert_eq!(host.free_clone_turns().await, all - 1);
}

/// What has failed does not go on: others clone while it waits for its next try.
#[tokio::test(start_paused = true)]
async fn f36_a_clone_that_fails_gives_its_turn_back_until_its_next_try() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    let all = 3 * Concurrency::default().per_hypervisor;
    for template in 9001..=9003 {
        let backup = Duration::from_secs(10 * 60);
        lab.pve.human_holds_lock(template, backup).unwrap();
    }
    let again = async |lab: &Lab| {
        lab.claim().await.is_some_and(|claim| {
            let intent = claim.facts.status.intent;
            intent.is_some_and(|intent| (intent.op, intent.attempt) == (Op::Clone, 2))
        })
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, again).await);
    rest(&mut host).await;
    assert_eq!(lab.asked("POST", "/clone"), 1);
    assert_eq!(host.free_clone_turns().await, all);
}

async fn with_slow_clones() -> (Lab, Host) {
    let mut slow = Topology::of(3);
    slow.timings.local.clone_linked = Spread::exactly(60.0);
    let lab = Lab::with(slow).await;
    let host = lab.host(1).await;
    (lab, host)
}

/// kproxide asks for a clone. Proxmox answers only after 12 seconds.
async fn with_a_late_clone() -> (Lab, Host) {
    let (mut lab, mut host) = with_slow_clones().await;
    let clones = Matcher::new(Method::POST, "/nodes/*/qemu/*/clone");
    let late = Fault::Delay(Duration::from_secs(12));
    lab.faults.inject(clones, late, 1);
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, is_to_be_cloned).await);
    (lab, host)
}

/// For minutes; held for longer, it keeps nobody else from cloning.
async fn keeps_its_turn_while_it_is_held(mut lab: Lab, mut host: Host) {
    tick(&mut host, &lab.client, &Verdict::Keep).await;
    let claim = lab.claim().await.expect("it is being cloned");
    assert!(host.world.claims().contains_key(&claim.name));
    let all = 3 * Concurrency::default().per_hypervisor;
    let hold = advance(&claim, Verdict::Hold(Hold::ClaimPaused));
    let minutes = |count: u64| sleep(Duration::from_secs(60 * count));
    for _ in 0..2 {
        host.actor.start(&hold, &host.world, &host.term).await;
        rest(&mut host).await;
        assert_eq!(host.free_clone_turns().await, all - 1);
        // The clone has ended by then: one that is not held would go on.
        minutes(1).await;
    }
    let stands = lab.claim().await.expect("nothing has touched it");
    assert_eq!(stands.facts.status.intent, claim.facts.status.intent);
    assert!(stands.facts.status.upid.is_some());
    minutes(3).await;
    host.actor.start(&hold, &host.world, &host.term).await;
    assert_eq!(host.free_clone_turns().await, all);
    // It has ended long ago, and is used.
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    assert_eq!(host.free_clone_turns().await, all);
}

/// The clone is about to be asked for, or was.
async fn is_to_be_cloned(lab: &Lab) -> bool {
    lab.claim().await.is_some_and(|claim| {
        let intent = claim.facts.status.intent;
        intent.is_some_and(|intent| intent.op == Op::Clone)
    })
}

/// Proxmox has taken the clone's task on.
async fn is_cloned(lab: &Lab) -> bool {
    lab.claim().await.is_some_and(|claim| {
        let status = claim.facts.status;
        let clones = status.intent.is_some_and(|intent| intent.op == Op::Clone);
        clones && status.upid.is_some()
    })
}

/// The watch lags behind: plan after plan asks for the record that stands already.
#[tokio::test(start_paused = true)]
async fn f60_what_a_claim_says_already_is_not_written_again() {
    let (lab, mut host, claim) = at_rest().await;
    let plan = Plan {
        unneeded: vec![Unneeded {
            claim: claim.name.clone(),
            uid: claim.facts.uid.clone(),
            standing: Standing::CouldGo,
        }],
        ..advance(&claim, Verdict::Keep)
    };
    let records = || {
        let asked = lab.kube.audit_since(0);
        let of_claims = asked.iter().filter(|asked| asked.subresource == "status");
        of_claims.count()
    };
    let before = records();
    for _ in 0..3 {
        host.actor.start(&plan, &host.world, &host.term).await;
        rest(&mut host).await;
    }
    assert_eq!(records() - before, 1);
}

const REMOVE: Verdict = Verdict::Remove(RemovalReason::Deleted);

pub(super) fn advance(claim: &StoredClaim, verdict: Verdict) -> Plan {
    Plan {
        advances: vec![Advance {
            claim: claim.name.clone(),
            uid: claim.facts.uid.clone(),
            verdict,
        }],
        ..Plan::default()
    }
}

async fn rest(host: &mut Host) {
    for _ in 0..10 {
        let _ = timeout(Duration::from_secs(5), host.actor.finished()).await;
    }
}
