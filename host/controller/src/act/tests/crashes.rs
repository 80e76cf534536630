//! The process dies before every request of a whole life, or before its answer; the next one carries on. (After an answer is
//! before the next request: the servers see the same.)

use kproxide_planner::claim::Phase;
use kproxide_planner::facts::EntryState;
use kproxide_planner::plan::{RemovalReason, Verdict};
use kproxide_simulator::faults::{CrashPoint, Moment};

use super::lab::{Lab, VMID, turn};

async fn in_service(lab: &Lab) -> bool {
    lab.claim()
        .await
        .is_some_and(|claim| claim.facts.status.phase == Phase::Initialized)
}

async fn closed(lab: &Lab) -> bool {
    lab.claim().await.is_none() && matches!(lab.entry().await, Some(EntryState::Quarantined { .. }))
}

/// A whole life; the process dies at this request of the first process. Returns the requests of the last process.
async fn life(crash: Option<CrashPoint>) -> u64 {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    if let Some(point) = crash {
        lab.faults.crash_at(point);
    }
    let mut processes = 1;
    let stages: [(Verdict, bool); 2] = [
        (Verdict::Keep, true),
        (Verdict::Remove(RemovalReason::Empty), false),
    ];
    for (verdict, up) in stages {
        loop {
            let ended = if up {
                turn(&mut lab, &mut host, &verdict, in_service).await
            } else {
                turn(&mut lab, &mut host, &verdict, closed).await
            };
            if ended {
                break;
            }
            drop(host);
            processes += 1;
            host = lab.host(processes).await;
        }
        if up {
            let vms = lab.pve.snapshot().vms;
            let ours: Vec<_> = vms.iter().filter(|vm| vm.vmid == VMID).collect();
            assert_eq!(ours.len(), 1);
            // While the first growth runs the disk still shows its old size, and it is asked for again: to a size, not by one.
            let disk = &ours[0].config["scsi0"];
            assert!(disk.contains("size=20G"), "{crash:?}: {disk}");
            assert!(
                lab.node()
                    .await
                    .is_some_and(|node| node.ready && node.taints.is_empty())
            );
        }
    }
    let left = lab.pve.snapshot();
    assert!(left.vms.iter().all(|vm| vm.template), "{left:?}");
    assert!(
        left.volumes
            .iter()
            .all(|volume| !volume.volid.contains("vm-201-")),
        "{left:?}"
    );
    assert!(lab.node().await.is_none());
    // A clone that was asked for before the crash is found, not asked for again.
    let births = left.births.iter().filter(|birth| birth.vmid == VMID);
    assert_eq!(births.count(), 1, "{crash:?}");
    assert!(
        lab.asked("PUT", "/resize") <= processes as usize,
        "{crash:?}"
    );
    assert_eq!(crash.is_some(), processes == 2, "{crash:?}");
    lab.faults.requests()
}

async fn every_nth(moment: Moment) {
    let requests = life(None).await;
    assert!(requests > 60, "{requests}");
    for request in 1..=requests {
        life(Some(CrashPoint { request, moment })).await;
    }
}

#[tokio::test(start_paused = true)]
async fn f1_f3_to_f10_f12_f13_f17_f20_to_f26_a_crash_before_any_request_changes_nothing_in_the_end()
{
    every_nth(Moment::Before).await;
}

#[tokio::test(start_paused = true)]
async fn f3_to_f10_f12_f13_f17_f20_to_f26_b6_a_crash_after_any_request_took_effect_changes_nothing_in_the_end()
 {
    every_nth(Moment::Applied).await;
}
