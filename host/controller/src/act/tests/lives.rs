//! Lives without crashes: up, down, and what goes wrong by itself.

use std::time::Duration;

use http::Method;
use kproxide_planner::claim::{Condition, Phase};
use kproxide_planner::facts::EntryState;
use kproxide_planner::plan::{RemovalReason, Verdict};
use kproxide_simulator::faults::Fault;
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::AclSpec;
use kproxide_simulator::rng::Spread;
use serde_json::json;
use tokio::time::sleep;

use super::lab::{CLAIM, Lab, VMID, turn};

pub(super) async fn in_service(lab: &Lab) -> bool {
    lab.claim()
        .await
        .is_some_and(|claim| claim.facts.status.phase == Phase::Initialized)
}

pub(super) async fn closed(lab: &Lab) -> bool {
    lab.claim().await.is_none() && matches!(lab.entry().await, Some(EntryState::Quarantined { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_claim_becomes_a_node_and_goes_again() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);

    let node = lab.node().await.unwrap();
    assert_eq!(node.labels["rack"], "a");
    assert_eq!(node.annotations["example.com/made-by"], "a label policy");
    assert_eq!(node.labels["kproxide.dev/claim"], CLAIM);
    assert_eq!(node.labels["topology.kubernetes.io/zone"], "pve2");
    assert_eq!(node.provider_id.as_deref(), Some("proxmox://home/201"));
    assert!(node.taints.is_empty());
    let vm = lab
        .pve
        .snapshot()
        .vms
        .into_iter()
        .find(|vm| vm.vmid == VMID)
        .unwrap();
    assert_eq!(vm.name, CLAIM);
    assert_eq!(lab.asked("POST", "/clone"), 1);

    let down = Verdict::Remove(RemovalReason::Empty);
    assert!(turn(&mut lab, &mut host, &down, closed).await);
    assert!(lab.node().await.is_none());
    let left = lab.pve.snapshot();
    assert!(left.vms.iter().all(|vm| vm.vmid != VMID));
    assert!(
        left.volumes
            .iter()
            .all(|volume| !volume.volid.contains("vm-201-"))
    );
    let told: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok())
        .map(|note| note.note.reason)
        .collect();
    assert_eq!(
        told,
        ["Launched", "Registered", "Initialized", "ScaleDownEmpty"]
    );
}

/// The names that its Node may have are known.
#[tokio::test(start_paused = true)]
async fn a_machine_comes_into_service_without_a_look_at_all_nodes() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    let all_nodes = Matcher::new(Method::GET, "/api/v1/nodes");
    lab.faults.inject(all_nodes, Fault::Fail, u32::MAX);
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    assert!(lab.faults.happened().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_clone_is_asked_for_in_the_tick_of_the_reservation() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    let began = tokio::time::Instant::now();
    assert!(
        turn(&mut lab, &mut host, &Verdict::Keep, async |lab| lab
            .asked("POST", "/clone")
            == 1)
        .await
    );
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn f100_b2_a_machine_that_never_joins_goes_with_the_reason() {
    let mut lab = Lab::new().await;
    lab.joins = false;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
    assert!(lab.pve.snapshot().vms.iter().all(|vm| vm.vmid != VMID));
    let notes: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok()).collect();
    let failed = notes
        .iter()
        .find(|note| note.note.reason == "FailedToScaleUpGroup")
        .unwrap();
    for part in [
        "no Node joined within 10m",
        "/var/log/cloud-init-output.log",
    ] {
        let message = &failed.note.message;
        assert!(message.contains(part), "{message}");
    }
}

/// Proxmox names the path of the VM, which goes with the failed launch: what lasts is a role on the pool.
#[tokio::test(start_paused = true)]
async fn f33_a_privilege_missing_after_the_clone_is_to_be_granted_on_the_pool() {
    const MACHINES: [&str; 12] = [
        "VM.Allocate",
        "VM.Audit",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        "VM.Config.HWType",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.GuestAgent.Audit",
        "VM.PowerMgmt",
        "Pool.Audit",
    ];
    let grant = |path: &str, privileges: &[&str]| AclSpec {
        path: path.to_owned(),
        subject: "kproxide@pve".to_owned(),
        privileges: privileges.iter().map(ToString::to_string).collect(),
        propagate: true,
    };
    for missing in [
        "VM.Config.CPU",
        "VM.Config.Disk",
        "VM.Config.HWType",
        "VM.PowerMgmt",
    ] {
        let mut lab = Lab::new().await;
        for template in 9001..=9003 {
            let kinds = Some("disk,memory,network");
            lab.pve.human_sets(template, "hotplug", kinds).unwrap();
        }
        let machines = MACHINES.into_iter().filter(|it| *it != missing);
        lab.pve.set_acl(vec![
            grant(
                "/",
                &[
                    "Sys.Audit",
                    "VM.Audit",
                    "VM.Clone",
                    "SDN.Use",
                    "Datastore.Audit",
                    "Datastore.AllocateSpace",
                ],
            ),
            grant("/pool/k8s", &machines.collect::<Vec<_>>()),
        ]);
        let mut host = lab.host(1).await;
        assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
        let notes: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok()).collect();
        let failed = notes
            .iter()
            .find(|note| note.note.reason == "FailedToScaleUpGroup")
            .unwrap();
        let message = &failed.note.message;
        let expected = format!("; /pool/k8s: {missing} is missing (to make");
        assert!(message.contains(&expected), "{message}");
        assert!(!message.contains("grant it"), "{message}");
    }
}

/// Proxmox goes on with a clone whatever its client thinks of it.
#[tokio::test(start_paused = true)]
async fn b18_a_clone_slower_than_its_deadline_is_neither_repeated_nor_forgotten() {
    let mut topology = Topology::of(3);
    let hours = 2.0 * 60.0 * 60.0;
    topology.timings.local.clone_linked = Spread::new(hours, hours);
    let mut lab = Lab::with(topology).await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
    assert_eq!(lab.asked("POST", "/clone"), 1);
    let left = lab.pve.snapshot();
    assert!(left.vms.iter().all(|vm| vm.vmid != VMID), "{left:?}");
    let births = left.births.iter().filter(|birth| birth.vmid == VMID);
    assert_eq!(births.count(), 1, "the clone did not end");
}

#[tokio::test(start_paused = true)]
async fn f39_b23_a_vm_of_somebody_else_under_the_reserved_number_is_left_alone() {
    let mut lab = Lab::new().await;
    lab.pve.human_clones_vm(9002, VMID, CLAIM).unwrap();
    lab.pve.human_sets_pool(VMID, Some("k8s")).unwrap();
    sleep(Duration::from_secs(15)).await;
    let before = lab
        .pve
        .snapshot()
        .vms
        .into_iter()
        .find(|vm| vm.vmid == VMID);
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
    let after = lab
        .pve
        .snapshot()
        .vms
        .into_iter()
        .find(|vm| vm.vmid == VMID);
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[tokio::test(start_paused = true)]
async fn f30_a_machine_whose_marker_was_edited_is_frozen() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    lab.pve.human_edits_description(VMID, "mine now").unwrap();
    let down = Verdict::Remove(RemovalReason::Empty);
    let frozen = async |lab: &Lab| {
        let claim = lab.claim().await.unwrap();
        claim
            .facts
            .status
            .since(Condition::OwnershipMismatch)
            .is_some()
    };
    assert!(turn(&mut lab, &mut host, &down, frozen).await);
    let vm = lab
        .pve
        .snapshot()
        .vms
        .into_iter()
        .find(|vm| vm.vmid == VMID)
        .unwrap();
    assert!(vm.running, "{vm:?}");
}

/// Somebody may want that state back.
#[tokio::test(start_paused = true)]
async fn f51_a_machine_with_a_snapshot_stays_until_it_has_none() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let snapshot = |lab: &Lab, name| lab.pve.human_sets(VMID, "parent", name).unwrap();
    snapshot(&lab, Some("before-upgrade"));
    let down = Verdict::Remove(RemovalReason::Empty);
    let told = async |lab: &Lab| {
        let claim = lab.claim().await.expect("it stays");
        let conditions = &claim.facts.status.conditions;
        conditions.iter().any(|condition| {
            condition.kind == Condition::ProtectedVM
                && condition
                    .message
                    .contains("it has a snapshot, before-upgrade; if kproxide may remove it, delete its snapshots")
        })
    };
    assert!(turn(&mut lab, &mut host, &down, told).await);
    let vms = lab.pve.snapshot().vms;
    assert!(vms.iter().any(|vm| vm.vmid == VMID && vm.running));
    snapshot(&lab, None);
    assert!(turn(&mut lab, &mut host, &down, closed).await);
}

#[tokio::test(start_paused = true)]
async fn f30_a_stopped_machine_in_service_is_started_again() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    sleep(Duration::from_secs(30)).await;
    lab.pve.human_stops(VMID).unwrap();
    let running =
        async |lab: &Lab| lab.asked("POST", "/status/start") == 2 && in_service(lab).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, running).await);
    assert_eq!(lab.asked("POST", "/clone"), 1);
}

#[tokio::test(start_paused = true)]
async fn f29_a_machine_that_somebody_destroyed_is_lost() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    lab.pve.human_destroys(VMID).unwrap();
    let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Test", "message": "",
        "lastTransitionTime": "2027-01-15T08:05:00Z", "lastHeartbeatTime": "2027-01-15T08:05:00Z"}]}});
    lab.kube
        .patch("nodes", "status", "", CLAIM, silent)
        .unwrap();
    let lost = Verdict::Remove(RemovalReason::Lost);
    assert!(turn(&mut lab, &mut host, &lost, closed).await);
    assert!(lab.node().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_the_shutdown_is_stopped() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    lab.pve.set_ignores_shutdown(VMID, true).unwrap();
    let down = Verdict::Remove(RemovalReason::Empty);
    assert!(turn(&mut lab, &mut host, &down, closed).await);
    assert_eq!(lab.asked("POST", "/status/stop"), 1);
}

/// A pod on the claim's Node, kept by a PodDisruptionBudget that allows nothing.
pub(super) fn kept_pod(lab: &Lab) {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]},
        "spec": {"nodeName": CLAIM, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    });
    lab.kube.create("pods", pod.clone()).unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    lab.kube
        .patch("pods", "status", "default", "web", ready)
        .unwrap();
    let budget = json!({
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    lab.kube
        .create("poddisruptionbudgets.policy", budget)
        .unwrap();
    let status = json!({"status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
        "expectedPods": 1, "observedGeneration": 1}});
    lab.kube
        .patch(
            "poddisruptionbudgets.policy",
            "status",
            "default",
            "web",
            status,
        )
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn f69_a_drain_that_a_budget_holds_up_is_named_and_given_up() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    kept_pod(&lab);
    let down = Verdict::Remove(RemovalReason::Underutilized);
    let draining = async |lab: &Lab| {
        lab.claim()
            .await
            .is_some_and(|claim| claim.facts.status.phase == Phase::Draining)
    };
    assert!(turn(&mut lab, &mut host, &down, draining).await);
    let began = lab.claim().await.unwrap().facts.status.draining_since;
    // The verdict still stands, so the next try begins as soon as this one is given up.
    let given_up = async |lab: &Lab| {
        lab.claim()
            .await
            .is_some_and(|claim| claim.facts.status.draining_since != began)
    };
    assert!(turn(&mut lab, &mut host, &down, given_up).await);
    assert!(lab.kube.get("pods", "default", "web").is_some());
    let notes: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok()).collect();
    let held = notes
        .iter()
        .find(|note| note.note.reason == "ScaleDownHeldUp")
        .unwrap();
    assert!(held.note.message.contains("web"), "{}", held.note.message);
    assert!(
        notes
            .iter()
            .any(|note| note.note.reason == "ScaleDownFailed")
    );
}

#[tokio::test(start_paused = true)]
async fn f42_f52_volumes_that_a_destroy_leaves_behind_are_named_and_left() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    lab.pve.set_disks_stuck(VMID, true);
    let down = Verdict::Remove(RemovalReason::Empty);
    assert!(turn(&mut lab, &mut host, &down, closed).await);

    let volumes = lab.pve.snapshot().volumes.into_iter();
    let left: Vec<String> = volumes
        .filter(|volume| volume.vmid == VMID)
        .map(|volume| volume.volid)
        .collect();
    assert!(!left.is_empty());
    let notes: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok()).collect();
    let mut leaked = notes
        .iter()
        .filter(|note| note.note.reason == "LeakedVolume");
    let told = &leaked.next().unwrap().note.message;
    for volume in &left {
        assert!(told.contains(&format!("`pvesm free {volume}`")), "{told}");
    }
    assert_eq!(leaked.next(), None);

    // They are found again as long as their number rests, by whoever looks, and again nothing is done about them.
    let found = host.leftovers().await;
    assert!(found.iter().all(|found| found.vmid.0 == VMID));
    let found = found.into_iter().flat_map(|found| found.volumes);
    let (mut found, mut left) = (found.collect::<Vec<_>>(), left);
    found.sort();
    left.sort();
    assert_eq!(found, left);
    assert_eq!(lab.asked("DELETE", ""), 1);
}
