//! Others at work beside this process: another leader, an API server that lags behind or writes nothing, a stranger under our Node's name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use kproxide_planner::claim::{Condition, Phase};
use kproxide_planner::facts::{Adopts, ClaimSpec, Delta, EntryState};
use kproxide_planner::ids::{NodeName, Uid, Vmid};
use kproxide_planner::plan::{Adoption, Advance, Plan, RemovalReason, Verdict};
use kproxide_simulator::faults::Fault;
use kproxide_simulator::kube::Verb;
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::rng::Spread;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::lab::{CLAIM, Host, Lab, VMID, node_info, spec, tick, turn};
use super::lives::{closed, in_service};
use kproxide_kube::{claims, nodes};

/// Turns both hosts' loops, one after the other, until the claim is as `until` says.
async fn turn_both(
    lab: &mut Lab,
    hosts: &mut [Host; 2],
    verdict: &Verdict,
    until: impl AsyncFn(&Lab) -> bool,
) {
    for _ in 0..1_000 {
        if until(lab).await {
            return;
        }
        for host in hosts.iter_mut() {
            lab.physics();
            tick(host, &lab.client, verdict).await;
            // What ended is noted; drives that are under way go on beside the other host's.
            let _ = tokio::time::timeout(Duration::from_secs(1), host.actor.finished()).await;
        }
        sleep(Duration::from_millis(1_700)).await;
    }
    panic!("no end: {:#?}", lab.claim().await);
}

/// Each of them believes to lead, from the beginning to the end: no fence helps, but compare-and-set, numbers that exist once, and looking before each effect.
#[tokio::test(start_paused = true)]
async fn f72_two_hosts_that_both_lead_make_and_remove_one_machine() {
    for late in [None, Some("/clone"), Some("/status/start")] {
        let mut lab = Lab::new().await;
        let mut hosts = [lab.host(1).await, lab.host(2).await];
        if let Some(request) = late {
            // The one who asked for it first hears of it when the other has gone on.
            let asked = Matcher::new(Method::POST, request);
            lab.faults
                .inject(asked, Fault::Delay(Duration::from_secs(30)), 1);
        }
        turn_both(&mut lab, &mut hosts, &Verdict::Keep, in_service).await;
        let down = Verdict::Remove(RemovalReason::Empty);
        turn_both(&mut lab, &mut hosts, &down, closed).await;
        let left = lab.pve.snapshot();
        let births = left.births.iter().filter(|birth| birth.vmid == VMID);
        assert_eq!(births.count(), 1, "{late:?}");
        assert!(left.vms.iter().all(|vm| vm.template), "{late:?}: {left:?}");
        assert!(lab.node().await.is_none(), "{late:?}");
    }
}

fn add_node(lab: &Lab, node: &Value) {
    lab.kube.create("nodes", node.clone()).unwrap();
    let status = json!({"status": node["status"]});
    let name = node["metadata"]["name"].as_str().unwrap();
    lab.kube.patch("nodes", "status", "", name, status).unwrap();
}

/// Somebody takes the finalizer off the claim, and deletes the claim.
fn lose_claim(lab: &Lab) {
    let (kind, bare) = (
        "nodeclaims.kproxide.dev",
        json!({"metadata": {"finalizers": null}}),
    );
    lab.kube.patch(kind, "", "", CLAIM, bare).unwrap();
    lab.kube.delete(kind, "", CLAIM).unwrap();
}

fn adopts(claim_uid: Uid, nonce: &str) -> Adopts {
    Adopts {
        claim_uid,
        nonce: nonce.into(),
        condemned: false,
    }
}

/// A claim is to be made anew.
fn adoption(claim: &str, spec: ClaimSpec) -> Plan {
    Plan {
        adoptions: vec![Adoption {
            claim: claim.into(),
            spec,
            reason: "a test".to_owned(),
        }],
        ..Plan::default()
    }
}

/// The plan is older than the list of claims that says so.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_a_claim_gets_no_second_one() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let claim = lab.claim().await.unwrap();
    let (uid, other) = (claim.facts.uid.clone(), Uid::from("another"));
    let vmid = claim.facts.spec.vmid.0;
    for (name, uid, vmid, is_made) in [
        ("same-vm", other.clone(), vmid, false),
        ("same-claim", uid, vmid + 1, false),
        ("another", other, vmid + 1, true),
    ] {
        let mut spec = claim.facts.spec.clone();
        (spec.vmid, spec.vm_name) = (Vmid(vmid), name.into());
        spec.adopts = Some(adopts(uid, "nonce"));
        let plan = adoption(name, spec);
        host.actor.start(&plan, &host.world, &host.term).await;
        sleep(Duration::from_secs(5)).await;
        let asked = lab.kube.audit_since(0);
        let mut creates = asked.iter().filter(|asked| asked.verb == Verb::Create);
        assert_eq!(creates.any(|asked| asked.name == name), is_made, "{name}");
    }
}

/// Its Node may have any name. kproxide reads all Nodes, and leaves out those of others, also the one on which root has just
/// written this machine's UUID.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_claim_is_adopted_with_its_own_node() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let server = json!({
        "metadata": {"name": "server"},
        "status": {"nodeInfo": node_info("4d6f1a3e-0000-4000-8000-000000000001")},
    });
    add_node(&lab, &server);
    let claim = lab.claim().await.unwrap();
    lose_claim(&lab);
    assert!(lab.claim().await.is_none());
    let mut spec = claim.facts.spec.clone();
    let nonce = claim.facts.status.nonce.clone().unwrap();
    spec.adopts = Some(adopts(claim.facts.uid.clone(), &nonce));
    let plan = adoption(CLAIM, spec);
    tick(&mut host, &lab.client, &Verdict::Keep).await;
    let mut other = claim.facts.clone();
    let name = NodeName::from("server");
    let server = nodes::get(&lab.client, &name).await.unwrap().unwrap();
    (other.status.smbios_uuid, other.status.node_uid) = (server.system_uuid, Some(server.uid));
    other.status.node_name = Some(name);
    host.world
        .apply(Delta::Claim("other".into(), Some(Box::new(other))));
    let copied = claim.facts.status.smbios_uuid.clone().unwrap();
    let copied = json!({"status": {"nodeInfo": node_info(copied.as_str())}});
    let patched = lab.kube.patch("nodes", "status", "", "server", copied);
    patched.unwrap();
    host.actor.start(&plan, &host.world, &host.term).await;
    host.actor.finished().await;
    let adopted = lab.claim().await.unwrap().facts;
    assert!(adopted.uid != claim.facts.uid);
    assert_eq!(adopted.status.node_uid, claim.facts.status.node_uid);
    assert_eq!(lab.asked("POST", "/clone"), 1);
}

/// Without a record of what is about to be done, nothing is asked of Proxmox.
#[tokio::test(start_paused = true)]
async fn f120_while_nothing_can_be_written_nothing_is_done_to_machines() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    let writes = Matcher::new(Method::PATCH, "/nodeclaims/*/status");
    lab.faults.inject(writes.clone(), Fault::Fail, 20);
    let refused = async |lab: &Lab| lab.faults.happened().len() >= 20;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, refused).await);
    assert_eq!(lab.asked("POST", "/clone"), 0);
    assert_eq!(
        lab.claim().await.unwrap().facts.status.phase,
        Phase::Pending
    );
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);

    // Nor on the way down.
    let down = Verdict::Remove(RemovalReason::Empty);
    let so_far = lab.faults.happened().len();
    lab.faults.inject(writes, Fault::Fail, 20);
    let refused = async |lab: &Lab| lab.faults.happened().len() >= so_far + 20;
    assert!(turn(&mut lab, &mut host, &down, refused).await);
    assert!(lab.node().await.is_some_and(|node| !node.unschedulable));
    assert!(lab.claim().await.unwrap().facts.deleting_since.is_none());
    for request in ["/status/shutdown", "/status/stop"] {
        assert_eq!(lab.asked("POST", request), 0);
    }
    assert!(turn(&mut lab, &mut host, &down, closed).await);
}

/// A permission that was taken away, a webhook that denies, an API server that is busy: nothing is done without its record, and the server is left alone.
#[tokio::test(start_paused = true)]
async fn f63_f65_a_server_that_refuses_is_left_alone_and_nothing_is_done_meanwhile() {
    let busy = json!({"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "the server is busy", "details": {"retryAfterSeconds": 30}});
    let denied = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "admission webhook \"no\" denied the request"});
    for (answer, most) in [(busy, 21), (denied, 11)] {
        let mut lab = Lab::new().await;
        let mut host = lab.host(1).await;
        let asked = Arc::new(AtomicU32::new(0));
        let writes = Matcher::new(Method::PATCH, "/nodeclaims/*/status");
        *lab.refusal.lock().unwrap() = Some((writes, answer, asked.clone()));
        let began = Instant::now();
        let long = async |_: &Lab| began.elapsed() > Duration::from_secs(600);
        assert!(turn(&mut lab, &mut host, &Verdict::Keep, long).await);
        assert_eq!(lab.asked("POST", "/clone"), 0);
        let asked = asked.load(Ordering::SeqCst);
        assert!((5..=most).contains(&asked), "{asked}");

        *lab.refusal.lock().unwrap() = None;
        assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
        assert_eq!(lab.asked("POST", "/clone"), 1);
    }
}

/// The world is that of an API server which has not heard of it yet: by now the claim is another one.
#[tokio::test(start_paused = true)]
async fn f57_a_plan_of_yesterdays_world_does_nothing_to_what_is_there_today() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let before = lab.claim().await.unwrap();

    lose_claim(&lab);
    let _ = claims::create(&lab.client, &CLAIM.into(), &spec())
        .await
        .unwrap();
    let today = lab.claim().await.unwrap();
    assert_ne!(today.facts.uid, before.facts.uid);

    for verdict in [
        Verdict::Remove(RemovalReason::Empty),
        Verdict::Remove(RemovalReason::Deleted),
        Verdict::Keep,
    ] {
        let asked = lab.pve.audit().len();
        let revision = lab.kube.revision();
        let mut plan = Plan::default();
        plan.advances.push(Advance {
            claim: CLAIM.into(),
            uid: before.facts.uid.clone(),
            verdict,
        });
        host.actor.start(&plan, &host.world, &host.term).await;
        let _ = tokio::time::timeout(Duration::from_secs(60), host.actor.finished()).await;
        assert_eq!(lab.kube.revision(), revision);
        assert_eq!(lab.pve.audit().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn f104_a_stranger_under_our_nodes_name_is_neither_taken_nor_touched() {
    let mut lab = Lab::new().await;
    lab.joins = false;
    let stranger = json!({
        "metadata": {"name": CLAIM, "labels": {"kubernetes.io/hostname": CLAIM}},
        "status": {
            "nodeInfo": node_info("11111111-1b04-4b04-ba4f-c09d2b1c5a16"),
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastTransitionTime": "2027-01-15T08:00:00Z", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}],
        },
    });
    add_node(&lab, &stranger);
    let name = NodeName::from(CLAIM);
    let before = nodes::get(&lab.client, &name).await.unwrap().unwrap();

    let mut host = lab.host(1).await;
    // It is waited for a Node of the machine's own UUID, in vain, and only the machine goes.
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
    assert_eq!(lab.asked("POST", "/clone"), 1);
    assert!(lab.pve.snapshot().vms.iter().all(|vm| vm.vmid != VMID));
    let after = nodes::get(&lab.client, &name).await.unwrap().unwrap();
    assert_eq!(after, before);
}

/// Root on two machines that joined before writes the UUID of one that has not. Then two Nodes are made with it.
#[tokio::test(start_paused = true)]
async fn f104_f105_nodes_that_show_a_machines_uuid_before_it_joins_are_not_taken_for_it() {
    let mut lab = Lab::new().await;
    lab.joins = false;
    let node = |name: &str, uuid: &str| json!({"metadata": {"name": name}, "status": {"nodeInfo": node_info(uuid)}});
    for name in ["old-a", "old-b"] {
        add_node(&lab, &node(name, "11111111-1b04-4b04-ba4f-c09d2b1c5a16"));
    }
    sleep(Duration::from_secs(2)).await;
    let mut host = lab.host(1).await;
    let started = async |lab: &Lab| {
        let claim = lab.claim().await;
        claim.is_some_and(|claim| claim.facts.status.phase == Phase::Launched)
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, started).await);
    let status = lab.claim().await.unwrap().facts.status;
    let uuid = status.smbios_uuid.unwrap();
    let show = |lab: &Lab, name: &str| {
        let shown = node(name, uuid.as_str());
        let status = json!({"status": shown["status"]});
        lab.kube.patch("nodes", "status", "", name, status).unwrap();
    };
    show(&lab, "old-a");
    let began = Instant::now();
    let waited = async |lab: &Lab| {
        let status = lab.claim().await.unwrap().facts.status;
        assert_eq!(status.node_name, None, "{status:?}");
        began.elapsed() > Duration::from_secs(30)
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, waited).await);
    show(&lab, "old-b");
    add_node(&lab, &node("new-a", uuid.as_str()));
    add_node(&lab, &node("new-b", uuid.as_str()));
    let frozen = async |lab: &Lab| {
        let status = lab.claim().await.unwrap().facts.status;
        assert_eq!(status.node_name, None, "{status:?}");
        status.since(Condition::OwnershipMismatch).is_some()
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, frozen).await);
    let conditions = lab.claim().await.unwrap().facts.status.conditions;
    assert!(
        conditions
            .iter()
            .any(|it| it.message.contains("new-a, new-b")),
        "{conditions:?}"
    );
}

/// The template's hypervisor dies in the middle of a clone: what is left of it has a number, a lock, and nothing that says whose it is.
#[tokio::test(start_paused = true)]
async fn f41_a_clone_whose_hypervisor_died_is_left_to_a_human_and_out_of_the_way() {
    let mut topology = Topology::of(3);
    topology.timings.local.clone_linked = Spread::new(120.0, 120.0);
    let mut lab = Lab::with(topology).await;
    let mut host = lab.host(1).await;
    let asked = async |lab: &Lab| lab.asked("POST", "/clone") == 1;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, asked).await);
    lab.pve.set_hypervisor_online("pve2", false);
    sleep(Duration::from_secs(60)).await;
    lab.pve.set_hypervisor_online("pve2", true);
    let stuck = async |lab: &Lab| {
        let claim = lab.claim().await.unwrap();
        let status = &claim.facts.status;
        status.phase == Phase::Terminating
            && status.since(Condition::StuckLocked).is_some()
            && matches!(lab.entry().await, Some(EntryState::Quarantined { .. }))
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, stuck).await);
    assert_eq!(lab.asked("POST", "/clone"), 1);
    assert!(lab.pve.snapshot().vms.iter().any(|vm| vm.vmid == VMID));
    let told: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok())
        .map(|note| note.note.reason)
        .collect();
    assert!(told.contains(&"StuckLocked"), "{told:?}");

    lab.pve.human_destroys(VMID).unwrap();
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
}

/// Somebody's backup was killed, and its lock stays.
#[tokio::test(start_paused = true)]
async fn r33_a_lock_that_keeps_a_machine_is_told_after_a_minute_and_no_more_once_it_is_gone() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let down = Verdict::Remove(RemovalReason::Empty);
    let terminates = async |lab: &Lab| {
        let claim = lab.claim().await.unwrap();
        claim.facts.status.phase == Phase::Terminating
    };
    assert!(turn(&mut lab, &mut host, &down, terminates).await);
    lab.pve.human_sets(VMID, "lock", Some("backup")).unwrap();
    let began = host.clock.now();
    let told = async |lab: &Lab| {
        let claim = lab.claim().await.unwrap();
        claim.facts.status.since(Condition::Stalled).is_some()
    };
    assert!(turn(&mut lab, &mut host, &down, told).await);
    let waited = host.clock.now().duration_since(began).as_secs();
    assert!((60..=90).contains(&waited), "{waited} s");
    sleep(Duration::from_secs(600)).await;
    let events = std::iter::from_fn(|| host.notes.try_recv().ok());
    let events = events.filter(|note| note.note.reason == "RemovalStalled");
    assert_eq!(events.count(), 1);
    lab.pve.human_sets(VMID, "lock", None).unwrap();
    assert!(turn(&mut lab, &mut host, &down, closed).await);
}
