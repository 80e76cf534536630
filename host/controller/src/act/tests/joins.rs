//! Joining through the guest agent, from the class's script to the Node.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use http::Method;
use kproxide_planner::plan::Verdict;
use kproxide_simulator::faults::{CrashPoint, Fault, Moment};
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::Version;

use super::guest::Guest;
use super::lab::{Host, Lab, VMID, turn};
use super::lives::{closed, in_service};
use kproxide_common::foreign;

/// What the script has written by now, a line for each run.
fn runs(lab: &Lab) -> String {
    let disk = lab.guest.as_ref().unwrap().disk();
    fs::read_to_string(disk.join("runs")).unwrap_or_default()
}

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
    assert_eq!(runs(&lab), "run\n");
}

/// In a real shell: what arrives there is what the operator wrote, and what it says comes back.
#[tokio::test(start_paused = true)]
async fn n1_a_script_with_letters_of_all_kinds_runs_as_it_was_written() {
    let text = "café αβ Жд 漢字 ✓ 🐧 é123 100% %s \\n \\\\ \"x\" $HOME";
    let script =
        format!("# It's done ✓\ncat >said <<'END'\n{text}\nEND\necho 'größer ✓ 🐧'; exit 7");
    let mut lab = lab(&script).await;
    let mut host = lab.host(1).await;
    let made = async |lab: &Lab| lab.claim().await.is_some();
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, made).await);
    let told = told_of_failure(&mut lab, &mut host).await;
    assert!(told.contains("exit code 7: größer ✓ 🐧"), "{told}");
    let said = lab.guest.as_ref().unwrap().disk().join("said");
    assert_eq!(fs::read_to_string(said).unwrap(), format!("{text}\n"));
}

/// The way up; the process dies at this request of the first process. Returns the first process's requests until the VM is there, and all of the last's.
async fn way_up(crash: Option<CrashPoint>) -> RangeInclusive<u64> {
    let mut lab = lab("echo run >>runs; touch joined").await;
    let mut host = lab.host(1).await;
    if let Some(point) = crash {
        lab.faults.crash_at(point);
    }
    let mut processes = 1;
    let born = async |lab: &Lab| lab.pve.snapshot().vms.iter().any(|vm| vm.vmid == VMID);
    turn(&mut lab, &mut host, &Verdict::Keep, born).await;
    let first = lab.faults.requests();
    while !turn(&mut lab, &mut host, &Verdict::Keep, in_service).await {
        drop(host);
        processes += 1;
        host = lab.host(processes).await;
    }
    assert_eq!(crash.is_some(), processes == 2, "{crash:?}");
    assert_eq!(runs(&lab), "run\n", "{crash:?}");
    first..=lab.faults.requests()
}

/// Whatever request it died at once there was a VM: the lock in the guest says whether the script ran. (Those before have `crashes`.)
async fn died_at_every_request(moment: Moment) {
    let requests = way_up(None).await;
    assert!(requests.clone().count() > 20, "{requests:?}");
    for request in requests {
        way_up(Some(CrashPoint { request, moment })).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_any_request_leaves_the_script_to_run_once() {
    died_at_every_request(Moment::Before).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_request_took_effect_does_not_run_the_script_again() {
    died_at_every_request(Moment::Applied).await;
}

/// The dead process's command is still on its way, and arrives when the next process has seen that nothing ran, and asked for it itself.
#[tokio::test(start_paused = true)]
async fn a_command_that_arrives_late_does_not_run_the_script_again() {
    let mut lab = lab("echo run >>runs").await;
    let mut first = lab.host(1).await;
    // A look at the guest, then the run.
    let exec = Matcher::new(Method::POST, "/agent/exec");
    let late = Fault::Delay(Duration::from_secs(20));
    lab.faults.inject(exec, late, 2);
    let sent = async |lab: &Lab| lab.faults.happened().len() == 2;
    assert!(turn(&mut lab, &mut first, &Verdict::Keep, sent).await);
    drop(first);
    let arrived = lab.asked("POST", "/agent/exec");
    assert_eq!((arrived, runs(&lab).as_str()), (1, ""), "it is not late");

    let mut second = lab.host(2).await;
    let ran = async |lab: &Lab| !runs(lab).is_empty();
    assert!(turn(&mut lab, &mut second, &Verdict::Keep, ran).await);
    let asked = lab.asked("POST", "/agent/exec");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(
        lab.asked("POST", "/agent/exec"),
        asked + 1,
        "it is too late"
    );
    assert_eq!(runs(&lab), "run\n");
    fs::write(lab.guest.as_ref().unwrap().disk().join("joined"), "").unwrap();
    assert!(turn(&mut lab, &mut second, &Verdict::Keep, in_service).await);
    assert_eq!(runs(&lab), "run\n");
}

#[tokio::test(start_paused = true)]
async fn a_new_process_does_not_run_the_script_again() {
    let mut lab = lab("echo run >>runs").await;
    let mut first = lab.host(1).await;
    let ran = async |lab: &Lab| !runs(lab).is_empty();
    assert!(turn(&mut lab, &mut first, &Verdict::Keep, ran).await);
    drop(first);

    let mut second = lab.host(2).await;
    let asked = lab.asked("POST", "/agent/exec");
    let asked_again = async |lab: &Lab| lab.asked("POST", "/agent/exec") > asked + 2;
    assert!(turn(&mut lab, &mut second, &Verdict::Keep, asked_again).await);
    assert_eq!(runs(&lab), "run\n");
    let disk = lab.guest.as_ref().unwrap().disk();
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

/// What kproxide says of the machine that did not join.
async fn told_of_failure(lab: &mut Lab, host: &mut Host) -> String {
    assert!(turn(lab, host, &Verdict::Keep, closed).await);
    let mut notes = std::iter::from_fn(|| host.notes.try_recv().ok());
    let failed = notes.find(|note| note.note.reason == "FailedToScaleUpGroup");
    let note = failed.unwrap().note;
    assert!(note.warning && note.message.len() <= 1024, "{note:?}");
    note.message
}

/// An installer that shows its settings, and somebody in the guest who speaks to the terminal of whoever reads.
#[tokio::test(start_paused = true)]
async fn s5_a_script_that_fails_tells_no_secret_and_moves_no_terminal() {
    const SECRET: &str = "K10abcdef0123456789::server:4711";
    let mut lab = lab(&format!(
        "K3S_TOKEN={SECRET}; seq 1000; set -x; : \"$K3S_TOKEN\"; echo joining with {SECRET}; \
         printf '\\033]52;c;aGk=\\007 \\302\\2332J \\342\\200\\256 \\377 gone\\n'; exit 7"
    ))
    .await;
    let mut host = lab.host(1).await;
    let made = async |lab: &Lab| lab.claim().await.is_some();
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, made).await);
    let told = told_of_failure(&mut lab, &mut host).await;
    let start = "the join command failed with exit code 7: … ";
    assert!(told.contains(start) && told.contains(" gone"), "{told}");
    assert!(told.contains("joining with [hidden]"), "{told}");
    assert!(!told.contains("K10abcdef"), "{told}");
    // Said once more, it is the same: nothing is left to be taken out.
    assert_eq!(foreign::visible(&told), told);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_does_not_join_is_asked_why_and_its_secrets_stay_there() {
    const SECRET: &str = "K10abcdef0123456789::server:4711";
    let mut lab = lab(&format!(
        "seq 1000; echo \"joining as {SECRET}\"; printf '\\033[31mx509: unknown authority\\007\\n'"
    ))
    .await;
    let programs = lab.guest.as_ref().unwrap().disk().join("bin");
    fs::create_dir(&programs).unwrap();
    let cloud_init = programs.join("cloud-init");
    fs::write(&cloud_init, "#!/bin/sh\necho 'status: degraded'; echo").unwrap();
    fs::set_permissions(&cloud_init, fs::Permissions::from_mode(0o755)).unwrap();
    let mut host = lab.host(1).await;
    let told = told_of_failure(&mut lab, &mut host).await;
    for part in [
        "no Node joined within 10m",
        "The join command has succeeded",
        "10.0.0.7 (eth0), fd00::7 (eth0)",
        "cloud-init: status: degraded",
        "999 | 1000 | joining as [hidden] | x509: unknown authority",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains(SECRET) && !told.contains('\u{7}'), "{told}");
}

#[tokio::test(start_paused = true)]
async fn the_log_of_cloud_init_is_shown_where_no_join_script_runs() {
    for (log, part) in [
        (
            "fetching\nno route to host\n",
            "fetching | no route to host",
        ),
        ("token: 4711\n", "token: [hidden]"),
    ] {
        let mut lab = lab("").await;
        let guest = lab.guest.as_ref().unwrap();
        let logs = guest.disk().join("var/log");
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("cloud-init-output.log"), log).unwrap();
        // The script runs without any output.
        let mut host = lab.host(1).await;
        let told = told_of_failure(&mut lab, &mut host).await;
        assert!(told.contains(part), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_guest_may_not_be_asked_is_said_with_where_to_look() {
    let mut topology = Topology::of(3);
    topology.version = Version::V9;
    let mut topology = topology.least_privileged();
    for grant in &mut topology.acl {
        let may = &mut grant.privileges;
        may.retain(|privilege| privilege != "VM.GuestAgent.Unrestricted");
    }
    let mut lab = Lab::with(topology).await;
    lab.joins = false;
    let mut host = lab.host(1).await;
    let started = async |lab: &Lab| {
        let vms = lab.pve.snapshot().vms;
        vms.iter().any(|vm| vm.vmid == VMID && vm.running)
    };
    assert!(turn(&mut lab, &mut host, &Verdict::Keep, started).await);
    let addresses = ["10.0.0.7".to_owned()];
    lab.pve.set_guest(VMID, "guest", &addresses).unwrap();
    lab.pve.set_agent_ready(VMID, true).unwrap();
    let told = told_of_failure(&mut lab, &mut host).await;
    for part in [
        "its addresses are 10.0.0.7 (eth0)",
        "VM.GuestAgent.Unrestricted",
        "Open the console",
    ] {
        assert!(told.contains(part), "{told}");
    }
}
