//! A drive that panics: its claim rests, everything else goes on, and the process lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kproxide_planner::claim::Phase;
use kproxide_planner::ids::Vmid;
use kproxide_planner::plan::{Launch, Plan, Verdict};
use tokio::runtime::Builder;
use tokio::time::Instant;

use super::lab::{CLAIM, Host, Lab, VMID, planned, reserved, tick, turn};
use super::lives::in_service;
use crate::act::{AFTER_PANIC, Actor};
use kproxide_common::captured::log_of;
use kproxide_kube::{claims, ledger};

const OTHER: &str = "workers-b";
const OTHER_VMID: u32 = 202;

/// From now on its randomness fails as an operating system's may: the first who asks for any panics.
fn without_entropy_for_a_moment(host: &mut Host) {
    let mut context = (*host.actor.context).clone();
    let (nonces, failed) = (context.nonces, AtomicBool::new(false));
    context.nonces = Arc::new(move || {
        assert!(failed.swap(true, Ordering::SeqCst), "no entropy");
        nonces()
    });
    host.actor = Actor::new(context);
}

/// Two launches in one plan.
async fn launch_both(lab: &Lab, host: &mut Host) {
    host.launched = true;
    tick(host, &lab.client, &Verdict::Keep).await;
    let mut wanted = ledger::get(&lab.client).await.unwrap().unwrap();
    let mut plan = Plan::default();
    for (claim, vmid) in [(CLAIM, VMID), (OTHER, OTHER_VMID)] {
        let mut spec = planned(&host.world).unwrap();
        spec.vmid = Vmid(vmid);
        spec.vm_name = claim.into();
        wanted.entries.push(reserved(claim, &spec, host));
        plan.launches.push(Launch {
            claim: claim.into(),
            spec,
            reason: "a test".to_owned(),
            for_pods: false,
        });
    }
    plan.ledger = Some(wanted);
    let started = host.actor.start(&plan, &host.world, &host.term).await;
    assert_eq!(started.launched.len(), 2);
}

fn runs(lab: &Lab, vmid: u32) -> bool {
    let vms = lab.pve.snapshot().vms;
    vms.iter().any(|vm| vm.vmid == vmid && vm.running)
}

async fn one_panics() {
    let mut lab = Lab::new().await;
    let mut host = lab.host(1).await;
    without_entropy_for_a_moment(&mut host);
    launch_both(&lab, &mut host).await;
    let began = Instant::now();

    // Both are of one tick. The one whose look is answered first panics.
    let one = async |lab: &Lab| lab.asked("POST", "/clone") == 1;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, one).await);
    let rest = Duration::try_from(AFTER_PANIC).unwrap();
    assert!(began.elapsed() < rest / 2, "the other claim has waited");
    let mut resting = 0;
    for name in [CLAIM, OTHER] {
        let stored = claims::get(&lab.client, &name.into()).await.unwrap();
        let claim = stored.expect("its record stays");
        resting += u32::from(claim.facts.status.phase == Phase::Pending);
    }
    assert_eq!(resting, 1);

    let again = async |lab: &Lab| lab.asked("POST", "/clone") == 2;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, again).await);
    let rested = began.elapsed();
    assert!(rested >= rest, "driven again after {rested:?}");
    assert!(rested < 2 * rest, "driven again after {rested:?}");
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let both = async |lab: &Lab| runs(lab, VMID) && runs(lab, OTHER_VMID);
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, both).await);
    assert_eq!(lab.asked("POST", "/clone"), 2);
}

#[test]
fn f77_a_drive_that_panics_leaves_the_others_at_work_and_is_repeated_after_a_rest() {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let ((), log) = log_of(|| runtime.block_on(one_panics()));
    let mut told = log.iter().filter(|line| line.contains("panicked"));
    let told = (told.next().map(String::as_str), told.next());
    let either = [CLAIM, OTHER]
        .map(|claim| format!("ERROR a drive panicked; its claim rests claim={claim}"));
    assert!(
        told.1.is_none() && either.iter().any(|line| Some(line.as_str()) == told.0),
        "{told:?}"
    );
}
