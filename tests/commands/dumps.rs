//! What of a process can get to the disk of its host, or to another process of its user.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use kproxide_testkit::{eventually, free_port};
use tokio::process::Command;

use super::{SOON, kubeconfig_of};

/// Somebody who is not root, as in the chart's container. Whoever runs the tests is that already, or may become it.
const SOMEBODY: u32 = 65_534;

#[tokio::test]
async fn s10_a_crash_writes_no_secret_to_the_disk_and_no_process_of_the_same_user_reads_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // Connections come about there, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let kubeconfig = folder.path().join("kubeconfig").display().to_string();
    fs::write(&kubeconfig, kubeconfig_of(&address.to_string())).unwrap();
    fs::set_permissions(&kubeconfig, Permissions::from_mode(0o644)).unwrap();
    let admin = format!("127.0.0.1:{}", free_port().unwrap());

    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // By its descriptor: somebody may not look into the folders above it.
    let program = File::open(env!("CARGO_BIN_EXE_kproxide")).unwrap();
    let program = format!("/proc/self/fd/{}", program.as_raw_fd());
    for arguments in [
        &[
            "run",
            "--kubeconfig",
            &kubeconfig,
            "--admin-address",
            &admin,
        ][..],
        // It waits for its input.
        &["plan", "-f", "-"],
    ] {
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env_clear()
            .env("TOKEN", "secret")
            .kill_on_drop(true);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if is_root {
            command.uid(SOMEBODY).gid(SOMEBODY);
        }
        let process = command.spawn().unwrap();
        let pid = process.id().unwrap();
        let of = |file: &str| format!("/proc/{pid}/{file}");
        eventually(SOON, "no dumps", async || {
            let limits = fs::read_to_string(of("limits")).unwrap();
            let core = limits
                .lines()
                .find(|it| it.starts_with("Max core file size"));
            let core: Vec<&str> = core.unwrap().split_whitespace().skip(4).take(2).collect();
            // The kernel gives the files of a process that is not dumpable to root.
            let owner = fs::metadata(of("environ")).unwrap().uid();
            let told = (core, owner);
            (told == (vec!["0", "0"], 0))
                .then_some(())
                .ok_or(format!("{arguments:?}: {told:?}"))
        })
        .await;
        let status = fs::read_to_string(of("status")).unwrap();
        let user = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))
            .unwrap();
        assert_ne!(
            user.split_whitespace().next(),
            Some("0"),
            "of root's the files are root's in any case"
        );
        // It is at work: what it is for has not ended for it.
        let state = status
            .lines()
            .find_map(|line| line.strip_prefix("State:"))
            .unwrap();
        assert!(!state.contains('Z'), "{state}");
    }
}
