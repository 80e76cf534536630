//! Joining through the guest agent, from the class's script to the Node.

use std::fs;

use kproxide_planner::plan::Verdict;

use super::guest::Guest;
use super::lab::{Lab, turn};
use super::lives::in_service;

async fn lab(script: &str) -> Lab {
    let mut lab = Lab::new().await;
    lab.guest = Some(Guest::new(&lab.pve, script));
    lab
}

#[tokio::test(start_paused = true)]
async fn a_script_runs_once_in_the_guest_and_its_machine_becomes_a_node() {
    let mut lab = lab("echo run >>runs; touch joined").await;
    let mut host = lab.host(1).await;
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, in_service).await);
    let disk = lab.guest.as_ref().unwrap().disk();
    assert_eq!(fs::read_to_string(disk.join("runs")).unwrap(), "run\n");
}

/// Whatever request it died at: the lock in the guest says whether the script ran.
#[tokio::test(start_paused = true)]
async fn a_new_process_does_not_run_the_script_again() {
    let mut lab = lab("echo run >>runs").await;
    let mut first = lab.host(1).await;
    let ran = async |lab: &Lab| lab.guest.as_ref().unwrap().disk().join("runs").exists();
    assert!(turn(&mut lab, &mut first, &Verdict::Keep, ran).await);
    drop(first);

    let mut second = lab.host(2).await;
    let disk = lab.guest.as_ref().unwrap().disk();
    let asked = lab.asked("POST", "/agent/exec");
    let asked_again = async |lab: &Lab| lab.asked("POST", "/agent/exec") > asked + 2;
    assert!(turn(&mut lab, &mut second, &Verdict::Keep, asked_again).await);
    assert_eq!(fs::read_to_string(disk.join("runs")).unwrap(), "run\n");
    fs::write(disk.join("joined"), "").unwrap();
    assert!(turn(&mut lab, &mut second, &Verdict::Keep, in_service).await);
}

#[tokio::test(start_paused = true)]
async fn a_script_that_fails_closes_the_claim_with_its_output() {
    let mut lab = lab("echo no route to the server; exit 7").await;
    let mut host = lab.host(1).await;
    let closed = async |lab: &Lab| lab.claim().await.is_none();
    // Not before it was made.
    let made = async |lab: &Lab| lab.claim().await.is_some();
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, made).await);
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, closed).await);
    let said: Vec<_> = std::iter::from_fn(|| host.notes.try_recv().ok())
        .map(|note| note.note.message)
        .collect();
    assert!(
        said.iter()
            .any(|text| text.contains("exit code 7: no route to the server")),
        "{said:?}"
    );
}
