//! What a worker is stopped from doing, as the kernel here offers it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

const SIGSYS: i32 = 31;

/// A worker that tries this once its cage is shut.
fn attempt(what: &str) -> Output {
    let worker = Command::new(super::PROGRAM)
        .args(["policy-worker", "--memory-bytes=300000000", "--try", what])
        .stdin(Stdio::null())
        .output();
    worker.unwrap()
}

fn kernel_has_seccomp() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Seccomp:"))
}

#[test]
fn f90_a_worker_that_tries_to_leave_its_cage_is_ended() {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let has_seccomp = kernel_has_seccomp();
    eprintln!(
        "kernel {}: {}",
        kernel.trim(),
        if has_seccomp {
            "seccomp"
        } else {
            "no seccomp: only the limits of resources hold"
        }
    );
    for what in [
        "open-file",
        "parent-environment",
        "socket",
        "thread",
        "process",
    ] {
        let ended = attempt(what);
        if has_seccomp {
            assert_eq!(ended.status.signal(), Some(SIGSYS), "{what}: {ended:?}");
        } else {
            assert!(
                !ended.status.success() || what == "thread",
                "{what}: {ended:?}"
            );
        }
    }
}
