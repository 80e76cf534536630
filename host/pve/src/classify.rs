//! The total classifier: a status and a text become a [`Meaning`].
//!
//! Proxmox has no error codes: apart from 400, 401, 403, 501 and 595 onwards everything is a 500 with a sentence. The
//! sentences below are those of versions 8 and 9; `tests/data/pve/classification.txt` shows what becomes of each recorded one.
//! What is not recognised is [`Meaning::Unexpected`], never a guess.

use super::error::{Executed, Meaning};
use kproxide_common::foreign;

/// Of the parameters that Proxmox complains about, as many are told.
const PARAMETERS_MAX: usize = 8;

/// Classifies an answer by its status (400 and above) and its text, with the complaints about single parameters.
pub fn answer(status: u16, text: &str, parameters: &[(String, String)]) -> (Meaning, Executed) {
    match status {
        400 => (bad_request(text, parameters), Executed::No),
        401 => (Meaning::Unauthorized, Executed::No),
        403 => (forbidden(text), Executed::No),
        // The server does not take a body that large.
        501 if text.contains("for data too large") => (refused(text), Executed::No),
        501 => (Meaning::NotImplemented, Executed::No),
        // Proxmox: the proxy could not connect to the daemon or hypervisor that should do it.
        595 => (Meaning::HypervisorOffline, Executed::No),
        596 if text.contains("certificate verify failed") => {
            (Meaning::HypervisorUnknown, Executed::No)
        }
        // Proxmox: the proxy lost the connection after sending.
        596..=599 => (Meaning::AnswerLost, Executed::Unknown),
        // The agent may have got the command before the answer timed out.
        _ if asks_agent(text) => {
            let meaning = sentence(text);
            let executed = if meaning == Meaning::AgentBlocked {
                Executed::No
            } else {
                Executed::Unknown
            };
            (meaning, executed)
        }
        _ => {
            let meaning = sentence(text);
            let executed = if meaning == Meaning::Unexpected {
                Executed::Unknown
            } else {
                Executed::No
            };
            (meaning, executed)
        }
    }
}

/// Classifies the exit status of a failed task.
pub fn task(exit_status: &str) -> Meaning {
    sentence(exit_status)
}

fn bad_request(text: &str, parameters: &[(String, String)]) -> Meaning {
    let complaint = |parameter: &str| {
        parameters
            .iter()
            .find(|(name, _)| name == parameter)
            .map_or("", |(_, complaint)| complaint.as_str())
    };
    if complaint("upid").contains("no such task") {
        Meaning::TaskUnknown
    } else if complaint("vmid").contains("already exists") {
        Meaning::VmidTaken
    } else if parameters
        .iter()
        .any(|(_, complaint)| complaint.contains("Only root may use"))
    {
        Meaning::RootOnly
    } else if parameters.is_empty() && !text.is_empty() {
        // Old versions say it in the reason phrase alone, and then only that parameters are wrong.
        refused(text)
    } else {
        Meaning::InvalidParameter {
            parameters: (parameters.iter().take(PARAMETERS_MAX))
                .map(|(name, complaint)| (name.clone(), foreign::said(complaint)))
                .collect(),
        }
    }
}

/// What was asked, without a word on which part of it.
fn refused(text: &str) -> Meaning {
    Meaning::InvalidParameter {
        parameters: vec![("the parameters".to_owned(), foreign::said(text))],
    }
}

/// Proxmox: an answer to a question to a guest agent; version 8 calls it as it does one to QEMU.
fn asks_agent(text: &str) -> bool {
    text.contains("qga command") || text.contains("qmp command 'guest-")
}

/// `Permission check failed (/vms/301, VM.Audit)`, `… (pool 'x' does not exist)`, or without reason where one of several
/// privileges would do.
fn forbidden(text: &str) -> Meaning {
    if text.contains("not available with API token") {
        return Meaning::TicketNeeded;
    }
    let reason = text
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once(')'))
        .map(|(reason, _)| reason);
    match reason {
        Some(reason) if reason.starts_with("pool ") && reason.ends_with("does not exist") => {
            Meaning::PoolMissing {
                pool: quoted(reason).unwrap_or_default().to_owned(),
            }
        }
        Some(reason) => match reason.split_once(", ") {
            // `(/, Sys.Modify for modifying tag 'owned')`
            Some((_, privilege)) if privilege.contains("for modifying tag") => {
                Meaning::TagRefused {
                    tag: quoted(privilege).unwrap_or_default().to_owned(),
                }
            }
            Some((path, privilege)) => Meaning::PermissionDenied {
                path: Some(foreign::said(path)),
                privilege: Some(foreign::said(privilege)),
            },
            None => Meaning::PermissionDenied {
                path: None,
                privilege: None,
            },
        },
        None => Meaning::PermissionDenied {
            path: None,
            privilege: None,
        },
    }
}

/// The sentence of a 500 or of a task's end. The order matters: what stops everything comes first.
fn sentence(text: &str) -> Meaning {
    let has = |part: &str| text.contains(part);

    // Credentials that may see every pool are told this; others are refused ([`forbidden`]).
    if text.starts_with("pool '") && text.ends_with("' does not exist") {
        return Meaning::PoolMissing {
            pool: quoted(text).unwrap_or_default().to_owned(),
        };
    }
    // A privilege that Proxmox asks for in the task alone, or for a part of what was asked.
    if let Some((_, refusal)) = text.split_once("403 Permission check failed") {
        return forbidden(refusal);
    }
    // Without quorum the configuration file system is read-only, and says so in three ways.
    if has("no quorum") || (has("/etc/pve/") && has("Permission denied")) {
        return Meaning::NoQuorum;
    }
    let busy = |before: &str, end: &[char]| Meaning::StorageBusy {
        storage: text
            .split_once(before)
            .and_then(|(_, rest)| rest.split(end).next())
            .map(foreign::said)
            .unwrap_or_default(),
    };
    if has("can't lock file") && has("pve-storage-") {
        return busy("pve-storage-", &['\'', ' ']);
    }
    if has("'storage-") && (has("got lock request timeout") || has("locked command timed out")) {
        return busy("'storage-", &['\'']);
    }
    if has("can't lock file") || has("got lock request timeout") || has("locked command timed out")
    {
        return Meaning::Busy;
    }
    if let Some(lock) = between(text, "VM is locked (", ")") {
        return Meaning::Locked {
            lock: lock.to_owned(),
        };
    }
    if has("already exists on node")
        || has("already exists") && (has("unable to create VM") || has("config file"))
        || has("/qemu-server/") && has("File exists")
    {
        return Meaning::VmidTaken;
    }
    if (has("already exists") || has("File exists"))
        && let Some(left) = cloud_init_left(text)
    {
        return left;
    }
    if has("unable to find configuration file for VM")
        || has("Configuration file '") && has("/qemu-server/") && has("does not exist")
    {
        return Meaning::NotFound;
    }
    if let Some(meaning) = of_hypervisors(text)
        .or_else(|| of_storages(text))
        .or_else(|| of_running(text))
        .or_else(|| of_configuration(text))
        .or_else(|| of_tasks(text))
    {
        return meaning;
    }
    Meaning::Unexpected
}

fn of_hypervisors(text: &str) -> Option<Meaning> {
    let has = |part: &str| text.contains(part);
    if has("hostname lookup '") || has("no such cluster node") {
        Some(Meaning::HypervisorUnknown)
    } else if has("got no worker upid") || has("unable to fork worker") {
        Some(Meaning::WorkerRefused)
    } else {
        None
    }
}

fn of_storages(text: &str) -> Option<Meaning> {
    /// As said by file systems, LVM, ZFS, Ceph and Proxmox itself.
    const FULL: [&str; 8] = [
        "No space left on device",
        "not enough free space",
        "insufficient free space",
        "Insufficient free space",
        "Insufficient suitable allocatable extents",
        "out of space",
        "out of data space",
        "Disk quota exceeded",
    ];
    let has = |part: &str| text.contains(part);
    if FULL.into_iter().any(has) {
        Some(Meaning::NoSpace)
    } else if has("can't clone VM to node") || has("can't clone to non-shared storage") {
        Some(Meaning::LocalStorage)
    } else if has("not allowed for linked clones") || has("Linked clone feature is not supported") {
        Some(Meaning::LinkedCloneRefused)
    } else if let Some(volume) = between(text, "volume '", "' does not exist") {
        Some(Meaning::VolumeMissing {
            volume: volume.to_owned(),
        })
    } else if has("is still in use by linked clone") {
        Some(Meaning::BaseInUse)
    } else if has("storage '") && has("does not support") {
        Some(Meaning::ContentRefused)
    } else if has("storage '")
        && (has("is not available")
            || has("is not online")
            || has("is disabled")
            || has("does not exist"))
    {
        Some(Meaning::StorageUnavailable {
            storage: text
                .split_once("storage ")
                .and_then(|(_, rest)| quoted(rest))
                .unwrap_or_default()
                .to_owned(),
        })
    } else {
        None
    }
}

fn of_running(text: &str) -> Option<Meaning> {
    let has = |part: &str| text.contains(part);
    if has("No QEMU guest agent configured") {
        Some(Meaning::AgentDisabled)
    } else if has("guest-exec") && (has("has been disabled") || has("has not been found")) {
        Some(Meaning::AgentBlocked)
    } else if has("guest agent is not running") || asks_agent(text) {
        Some(Meaning::AgentDown)
    } else if has("Agent error: PID ") && has("does not exist") {
        Some(Meaning::ResultTaken)
    } else if has("already running") {
        Some(Meaning::AlreadyRunning)
    } else if has("is running - destroy failed") || has("if VM is running") {
        Some(Meaning::Running)
    } else if has("not running") {
        Some(Meaning::NotRunning)
    } else if has("quit/powerdown failed") {
        Some(Meaning::ShutdownTimeout)
    } else if has("start a vm if it's a template") {
        Some(Meaning::IsTemplate)
    } else if has("start failed")
        || has("bridge '") && has("does not exist")
        || has("vcpus allowed per VM")
        || has("host NUMA node")
        || has("to define a policy for hostnode")
        || has("PCI device mapping")
        || has("NUMA nodes must be equal")
    {
        Some(Meaning::StartFailed)
    } else {
        None
    }
}

fn of_configuration(text: &str) -> Option<Meaning> {
    let has = |part: &str| text.contains(part);
    if has("checksum mismatch") {
        Some(Meaning::DigestMismatch)
    } else if has("protection mode enabled") {
        Some(Meaning::Protected)
    } else if has("nly root can") {
        Some(Meaning::RootOnly)
    } else if has("Wide character in subroutine entry") {
        // Proxmox makes bytes of the text before it asks the agent.
        Some(refused(text))
    } else if has("no options specified") {
        Some(Meaning::NothingToChange)
    } else if has("SSH public key validation error") {
        Some(Meaning::SshKeyRefused)
    } else if has("shrinking disks is not supported") {
        Some(Meaning::ShrinkRefused)
    } else if has("disk '") && has("does not exist") {
        Some(Meaning::DiskMissing)
    } else if has("Permission check failed") {
        // A task checks again and fails with the same words.
        Some(forbidden(text))
    } else {
        None
    }
}

fn of_tasks(text: &str) -> Option<Meaning> {
    let has = |part: &str| text.contains(part);
    if has("unexpected status")
        || has("unable to get last line from task log")
        || has("received interrupt")
        || has("interrupted by signal")
    {
        Some(Meaning::TaskInterrupted)
    } else if has("no such task") {
        Some(Meaning::TaskUnknown)
    } else {
        None
    }
}

/// `…/images/171/vm-171-cloudinit.qcow2` of a folder, `pve/vm-171-cloudinit` of others. Storages and groups of volumes may be called `vm-…` too.
fn cloud_init_left(text: &str) -> Option<Meaning> {
    text.match_indices("-cloudinit").find_map(|(end, _)| {
        let (before, number) = text[..end].rsplit_once("vm-")?;
        let vmid = number.parse().ok()?;
        let after = text[end..].split(['\'', '"', ' ']).next()?;
        let folder = match before.ends_with(&format!("/images/{vmid}/")) {
            true => format!("{vmid}/"),
            false => String::new(),
        };
        let volume = foreign::said(&format!("{folder}vm-{vmid}{after}"));
        let storage = None;
        Some(Meaning::CloudInitLeft {
            vmid,
            volume,
            storage,
        })
    })
}

/// What is longer than a foreign text may be is no name.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?
        .1
        .split_once(after)
        .map(|(inside, _)| inside)
        .filter(|inside| inside.len() <= foreign::LETTERS_MAX)
}

fn quoted(text: &str) -> Option<&str> {
    between(text, "'", "'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reaction;

    const NO_SPACE: &str =
        "no space left on the storage: free some, or set `template.storage` to another one";

    /// Texts that field reports and the published code give and no recording has.
    #[test]
    fn f36_f37_f43_f44_f46_texts_of_field_reports() {
        for (text, expected, reaction) in [
            (
                "clone failed: no space: qemu-img: No space left on device",
                NO_SPACE,
                Reaction::OtherHypervisor,
            ),
            (
                "lvcreate 'pve/vm-101-disk-0' error: Insufficient suitable allocatable extents",
                NO_SPACE,
                Reaction::OtherHypervisor,
            ),
            (
                "storage 'fast' is not available on node 'pve2'",
                "storage fast is not available",
                Reaction::OtherHypervisor,
            ),
            (
                "storage 'nfs' is not online",
                "storage nfs is not available",
                Reaction::OtherHypervisor,
            ),
            (
                "can't clone VM to node 'pve2' (VM uses local storage)",
                "the VM's disks are on local storage, so it cannot be placed on another hypervisor",
                Reaction::OtherHypervisor,
            ),
            (
                "parameter 'storage' not allowed for linked clones",
                "a linked clone is not possible here",
                Reaction::GiveUp,
            ),
            (
                "VM is locked (backup)",
                "the VM is locked by Proxmox (backup)",
                Reaction::Wait,
            ),
            (
                "'storage-ceph'-locked command timed out - aborting",
                "the lock of storage ceph was not to be had: too many tasks want it, or one died with it and Proxmox takes it back after 2 minutes. Until a clone gets it, kproxide makes one at a time there and removes no disk",
                Reaction::Retry,
            ),
            (
                "got no worker upid - start worker failed",
                "the hypervisor could not start a worker",
                Reaction::Retry,
            ),
            (
                "pool 'k8s' does not exist",
                "pool k8s does not exist: create it with `pveum pool add k8s`, or correct `pool`",
                Reaction::GiveUp,
            ),
            (
                "bridge 'vmbr9' does not exist",
                "the VM could not be started on this hypervisor",
                Reaction::OtherHypervisor,
            ),
            (
                "VM 101 qga command 'guest-exec' failed - got timeout",
                "the guest agent does not answer",
                Reaction::Wait,
            ),
            (
                "VM quit/powerdown failed - got timeout",
                "the guest did not shut down in time",
                Reaction::LookFirst,
            ),
            (
                "VM 101 not running",
                "the VM is not running",
                Reaction::LookFirst,
            ),
            (
                "unexpected status",
                "the task was interrupted",
                Reaction::LookFirst,
            ),
            (
                "flux capacitor misaligned",
                "unexpected answer",
                Reaction::LookFirst,
            ),
        ] {
            let meaning = task(text);
            assert_eq!(meaning.to_string(), expected, "{text}");
            assert_eq!(meaning.reaction(), reaction, "{text}");
        }
    }

    #[test]
    fn r26_a_guest_agent_that_runs_no_commands_is_told_from_a_silent_one() {
        for text in [
            "VM 101 qga command 'guest-exec' failed - Command guest-exec has been disabled",
            "Agent error: The command guest-exec-status has been disabled for this instance",
            "Agent error: The command guest-exec has not been found",
        ] {
            let (meaning, executed) = answer(500, text, &[]);
            assert_eq!(
                (meaning, executed),
                (Meaning::AgentBlocked, Executed::No),
                "{text}"
            );
        }
        // 9, and 8.4.
        for timeout in [
            "VM 101 qga command 'guest-exec' failed - got timeout",
            "VM 101 qmp command 'guest-exec' failed - got timeout",
        ] {
            assert_eq!(
                answer(500, timeout, &[]),
                (Meaning::AgentDown, Executed::Unknown)
            );
        }
    }

    #[test]
    fn an_unknown_sentence_may_have_been_executed() {
        assert_eq!(
            answer(500, "flux capacitor misaligned", &[]),
            (Meaning::Unexpected, Executed::Unknown)
        );
    }

    #[test]
    fn f43_a_rotated_task_is_unknown() {
        let complaints = [("upid".to_owned(), "no such task".to_owned())];
        let (meaning, _) = answer(400, "Parameter verification failed.", &complaints);
        assert_eq!(meaning, Meaning::TaskUnknown);
    }
}
