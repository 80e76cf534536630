//! What can go wrong between us and Proxmox, in the terms of what to do next.
//!
//! Proxmox answers nearly every failure with status 500 and a sentence. [`super::classify`] turns status and sentence into
//! a [`Meaning`]; each meaning has one [`Reaction`]; and every error says whether the request was [`Executed`], because
//! only that decides whether a write may be repeated.

use std::borrow::Cow;

use super::transport::TransportError;
use kproxide_common::foreign;

/// Did the request take effect?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    /// Certainly not: it was refused, or never sent, or it was a read.
    No,
    /// Certainly, and only its answer is unusable.
    Yes,
    /// It may have been done or not: look before doing it again.
    Unknown,
}

/// What the caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// The same again after a back-off.
    Retry,
    /// The same elsewhere: this hypervisor or storage cannot do it now.
    OtherHypervisor,
    /// Other work of Proxmox is in the way and will end: look again later.
    Wait,
    /// The world is not what we believed, or the outcome is unknown: read it before any other step.
    LookFirst,
    /// Repeating cannot help; a human must change something.
    GiveUp,
    /// No writes to this cluster until it is healthy and lets us in again.
    Freeze,
}

/// What an answer, a task's end or a failed connection means.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Meaning {
    /// The VMID of a clone exists already. Look whose VM it is. Never delete it for this reason.
    #[error("the VMID is taken")]
    VmidTaken,
    /// A cloud-init volume of this VMID was left behind, so no clone can get one. Another VMID can.
    #[error("{}", cloud_init_left(*.vmid, .volume, .storage.as_deref()))]
    CloudInitLeft {
        /// The VMID of the clone.
        vmid: u32,
        /// Its name on the storage: `vm-171-cloudinit`, `171/vm-171-cloudinit.qcow2`.
        volume: String,
        /// Where it is. Proxmox's words may have a path alone.
        storage: Option<String>,
    },
    /// A lock in the VM's configuration: `clone`, `backup`, `migrate`, ….
    #[error("the VM is locked by Proxmox ({lock})")]
    Locked {
        /// Proxmox's name of the lock.
        lock: String,
    },
    /// Another operation on the same VM, or on the user configuration, holds a short lock.
    #[error("another operation holds the lock")]
    Busy,
    /// kproxide did not send this write: its turn did not come soon enough, or this process may no longer write.
    #[error("the request was not sent")]
    Withheld,
    /// Too many allocations at once on one storage, or a task died with its lock; the task has cleaned up after itself.
    #[error(
        "the lock of storage {storage} was not to be had: too many tasks want it, or one died with it and Proxmox takes it back after 2 minutes. Until a clone gets it, kproxide makes one at a time there and removes no disk"
    )]
    StorageBusy {
        /// The storage, as far as the text names it.
        storage: String,
    },
    /// No such VM on that hypervisor: gone, or living on another one.
    #[error("no such VM on this hypervisor")]
    NotFound,
    /// The source of a clone is not where we believed it.
    #[error("template {vmid} does not exist on hypervisor {hypervisor}")]
    TemplateMissing {
        /// The VMID cloned from.
        vmid: u32,
        /// The hypervisor asked.
        hypervisor: String,
    },
    /// The cluster cannot agree on writes.
    #[error("the Proxmox cluster has no quorum")]
    NoQuorum,
    /// The storage is full.
    #[error("no space left on the storage: free some, or set `template.storage` to another one")]
    NoSpace,
    /// The storage is not there on this hypervisor: unknown, disabled or offline.
    #[error("storage {storage} is not available")]
    StorageUnavailable {
        /// The storage, as far as the text names it.
        storage: String,
    },
    /// A volume that a clone copies or a start needs.
    #[error("volume {volume} is not there")]
    VolumeMissing {
        /// As the text names it.
        volume: String,
    },
    /// A privilege is missing. Proxmox gives neither path nor privilege when one of several would do.
    #[error("{}", missing_privilege(.path, .privilege))]
    PermissionDenied {
        /// The ACL path, such as `/pool/k8s`.
        path: Option<String>,
        /// The privilege, such as `VM.Allocate`.
        privilege: Option<String>,
    },
    /// The resource pool is not there (or invisible, which Proxmox does not distinguish).
    #[error(
        "pool {pool} does not exist: create it with `pveum pool add {pool}`, or correct `pool`"
    )]
    PoolMissing {
        /// The pool's name.
        pool: String,
    },
    /// A tag that the datacenter's options reserve.
    #[error(
        "tag {tag} is reserved in this Proxmox cluster (`registered-tags`, `user-tag-access`): remove it from `tags` or from the template, or grant Sys.Modify on /"
    )]
    TagRefused {
        /// The tag, new or to be removed.
        tag: String,
    },
    /// Wrong, expired or revoked credentials.
    #[error(
        "Proxmox refused the credentials: check token-id (user@realm!name) and token-secret, or username and password, and that neither is expired"
    )]
    Unauthorized,
    /// Our credentials could not be read or used as they are.
    #[error("the credentials cannot be used")]
    CredentialsUnusable,
    /// The file beside the credentials does not allow that they go there.
    #[error("the credentials may not go there")]
    EndpointNotAllowed,
    /// Something that API tokens may not do.
    #[error("this call needs a login with user and password instead of an API token")]
    TicketNeeded,
    /// Something that only root@pam may do.
    #[error("only root@pam may set this: put it into the template, clones inherit it")]
    RootOnly,
    /// The hypervisor that should do it cannot be reached from a healthy one.
    #[error("the hypervisor is offline")]
    HypervisorOffline,
    /// No hypervisor of that name, or its name does not fit its certificate.
    #[error("no such hypervisor in the Proxmox cluster: use the names that `pvecm nodes` shows")]
    HypervisorUnknown,
    /// The endpoint's API daemon does not answer its own proxy (restarting, usually an upgrade).
    #[error("the endpoint's API daemon is not running")]
    EndpointDown,
    /// No connection to the endpoint.
    #[error("the endpoint cannot be reached")]
    Unreachable,
    /// The endpoint's certificate is not one that we trust.
    #[error("the endpoint's certificate is not trusted")]
    Untrusted,
    /// The request was sent and no usable answer came back.
    #[error("the answer was lost")]
    AnswerLost,
    /// The answer is not what this API gives.
    #[error("the answer cannot be understood")]
    Undecodable,
    /// The VM's configuration changed since it was read.
    #[error("the VM's configuration was changed by somebody else")]
    DigestMismatch,
    /// Protection mode is on: a human said no.
    #[error("the VM is protected against removal")]
    Protected,
    /// The VM must be stopped first.
    #[error("the VM is running")]
    Running,
    /// Start of a running VM: what was wanted is so.
    #[error("the VM is running already")]
    AlreadyRunning,
    /// The VM must run for this.
    #[error("the VM is not running")]
    NotRunning,
    /// The guest did not stop in time.
    #[error("the guest did not shut down in time")]
    ShutdownTimeout,
    /// The VM did not start here.
    #[error("the VM could not be started on this hypervisor")]
    StartFailed,
    /// It is a template, which cannot run.
    #[error("the VM is a template")]
    IsTemplate,
    /// The guest agent does not answer (yet).
    #[error("the guest agent does not answer")]
    AgentDown,
    /// Proxmox tells a command's end once. Somebody has read it, or the guest was started anew.
    #[error("the guest agent knows no such command: its end was read already")]
    ResultTaken,
    /// The guest agent is configured not to run commands.
    #[error(
        "the guest agent does not run commands: take guest-exec and guest-exec-status out of its block list in the template (`block-rpcs` or `allow-rpcs` in /etc/qemu/qemu-ga.conf, BLACKLIST_RPC or FILTER_RPC_ARGS in /etc/sysconfig/qemu-ga)"
    )]
    AgentBlocked,
    /// The agent lives and cannot start `/bin/sh`.
    #[error(
        "the guest has no /bin/sh, or its agent may not start it: use a template whose guest agent can run shell scripts, or let the machines join by themselves (`join.template`)"
    )]
    NoShell,
    /// The VM has no guest agent device.
    #[error(
        "the guest agent is not enabled in the VM's configuration (`agent: 1` in the template)"
    )]
    AgentDisabled,
    /// The template's disks are bound to its hypervisor.
    #[error("the VM's disks are on local storage, so it cannot be placed on another hypervisor")]
    LocalStorage,
    /// A linked clone that storage or parameters do not allow.
    #[error("a linked clone is not possible here")]
    LinkedCloneRefused,
    /// Another VM's disks build on this one's.
    #[error("linked clones still use the VM's disks")]
    BaseInUse,
    /// Storage holds other things.
    #[error("the storage does not take this content")]
    ContentRefused,
    /// A disk that the VM has not got.
    #[error("the VM has no such disk")]
    DiskMissing,
    /// A disk can only grow.
    #[error("the disk is larger than the size wanted, and disks cannot shrink")]
    ShrinkRefused,
    /// A public key that ssh-keygen does not accept.
    #[error("Proxmox does not accept an SSH public key (`cloudInit.sshKeys`)")]
    SshKeyRefused,
    /// Proxmox's parameter check; the names are ours or a setting's.
    #[error("Proxmox refused {}", complaints(.parameters))]
    InvalidParameter {
        /// Each parameter with Proxmox's complaint.
        parameters: Vec<(String, String)>,
    },
    /// A call without effect.
    #[error("nothing to change")]
    NothingToChange,
    /// Not part of this API version, or malformed.
    #[error("the server does not know this call")]
    NotImplemented,
    /// The server could not fork; nothing was done.
    #[error("the hypervisor could not start a worker")]
    WorkerRefused,
    /// A task ended without a verdict: killed, or the hypervisor restarted.
    #[error("the task was interrupted")]
    TaskInterrupted,
    /// The task is unknown: rotated away, or never started.
    #[error("no such task")]
    TaskUnknown,
    /// A failure without a known text. Never to be read as "not found".
    #[error("unexpected answer")]
    Unexpected,
}

impl Meaning {
    /// What to do about it.
    pub fn reaction(&self) -> Reaction {
        match self {
            Meaning::Busy
            | Meaning::Withheld
            | Meaning::StorageBusy { .. }
            | Meaning::EndpointDown
            | Meaning::Unreachable
            | Meaning::ResultTaken
            | Meaning::WorkerRefused => Reaction::Retry,

            Meaning::NoSpace
            | Meaning::StorageUnavailable { .. }
            | Meaning::VolumeMissing { .. }
            | Meaning::HypervisorOffline
            | Meaning::StartFailed
            | Meaning::LocalStorage => Reaction::OtherHypervisor,

            Meaning::Locked { .. } | Meaning::AgentDown => Reaction::Wait,

            Meaning::VmidTaken
            | Meaning::CloudInitLeft { .. }
            | Meaning::NotFound
            | Meaning::AnswerLost
            | Meaning::Undecodable
            | Meaning::DigestMismatch
            | Meaning::Running
            | Meaning::AlreadyRunning
            | Meaning::NotRunning
            | Meaning::ShutdownTimeout
            | Meaning::TaskInterrupted
            | Meaning::TaskUnknown
            | Meaning::Unexpected => Reaction::LookFirst,

            Meaning::NoQuorum
            | Meaning::Unauthorized
            | Meaning::CredentialsUnusable
            | Meaning::EndpointNotAllowed => Reaction::Freeze,

            Meaning::TemplateMissing { .. }
            | Meaning::PermissionDenied { .. }
            | Meaning::PoolMissing { .. }
            | Meaning::TagRefused { .. }
            | Meaning::TicketNeeded
            | Meaning::RootOnly
            | Meaning::HypervisorUnknown
            | Meaning::Untrusted
            | Meaning::Protected
            | Meaning::IsTemplate
            | Meaning::AgentBlocked
            | Meaning::NoShell
            | Meaning::AgentDisabled
            | Meaning::LinkedCloneRefused
            | Meaning::BaseInUse
            | Meaning::ContentRefused
            | Meaning::DiskMissing
            | Meaning::ShrinkRefused
            | Meaning::SshKeyRefused
            | Meaning::InvalidParameter { .. }
            | Meaning::NothingToChange
            | Meaning::NotImplemented => Reaction::GiveUp,
        }
    }

    /// Says on which storage the machine's cloud-init drive is made.
    pub fn note_cloud_init(&mut self, of: &str) {
        if let Meaning::CloudInitLeft { storage, .. } = self {
            *storage = Some(of.to_owned());
        }
    }

    /// A refusal that would be the same on every hypervisor: of what the class asks for, or for want of a privilege that
    /// does not belong to one storage, network or template. `vmid`: the VM that it is about.
    pub fn is_alike_everywhere(&self, vmid: u32) -> bool {
        if let Meaning::PermissionDenied {
            path: Some(path), ..
        } = self
        {
            return path == "/" || path.starts_with("/pool/") || *path == format!("/vms/{vmid}");
        }
        matches!(
            self,
            Meaning::PoolMissing { .. }
                | Meaning::TagRefused { .. }
                | Meaning::TicketNeeded
                | Meaning::RootOnly
                | Meaning::SshKeyRefused
                | Meaning::InvalidParameter { .. }
        )
    }
}

/// What to do about a missing privilege if it is not known on which path to grant it.
pub(super) const GRANT_IT: &str = ": grant it to the user and to its token";

/// Begins the text of an error that a privilege mends.
pub const MISSING_PRIVILEGE: &str = "missing privilege";

fn missing_privilege(path: &Option<String>, privilege: &Option<String>) -> Cow<'static, str> {
    match (path, privilege) {
        (Some(path), Some(privilege)) => {
            format!("{MISSING_PRIVILEGE} {privilege} on {path}{GRANT_IT}").into()
        }
        (_, _) => "a privilege is missing, Proxmox does not say which".into(),
    }
}

fn cloud_init_left(vmid: u32, volume: &str, storage: Option<&str>) -> String {
    let mend = match storage {
        Some(storage) => format!("remove it on the server with `pvesm free {storage}:{volume}`"),
        None => format!(
            "look with `pvesm list STORAGE --vmid {vmid}` on the server, and remove it with `pvesm free STORAGE:{volume}`"
        ),
    };
    format!(
        "a cloud-init volume of VMID {vmid} was left behind: {mend} unless another cluster needs it"
    )
}

fn complaints(parameters: &[(String, String)]) -> String {
    parameters
        .iter()
        .map(|(name, complaint)| format!("{name}: {complaint}"))
        .collect::<Vec<_>>()
        .join("; ")
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.describe())]
pub struct Error {
    /// What it means.
    pub meaning: Meaning,
    /// Whether the request took effect.
    pub executed: Executed,
    #[source]
    context: Box<Context>,
}

/// Where an error happened, in Proxmox's or the transport's own words.
#[derive(Debug, thiserror::Error)]
#[error("{}", match (text.is_empty(), status) { (false, _) => text.clone(), (true, Some(status)) => format!("status {status}"), (true, None) => "no answer".to_owned() })]
struct Context {
    call: String,
    endpoint: String,
    status: Option<u16>,
    text: String,
    repeatable: bool,
    #[source]
    cause: Option<TransportError>,
}

/// The parts of an [`Error`], gathered by the client.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) meaning: Meaning,
    pub(super) executed: Executed,
    pub(super) status: Option<u16>,
    pub(super) text: String,
    pub(super) cause: Option<TransportError>,
}

impl Failure {
    pub(super) fn new(
        meaning: Meaning,
        executed: Executed,
        status: Option<u16>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            meaning,
            executed,
            status,
            text: text.into(),
            cause: None,
        }
    }
}

impl Error {
    pub(super) fn new(call: &super::request::Call, endpoint: &str, failure: Failure) -> Error {
        Error {
            meaning: failure.meaning,
            // A read has no effect, even if its answer was lost.
            executed: if call.repeatable {
                Executed::No
            } else {
                failure.executed
            },
            context: Box::new(Context {
                call: call.to_string(),
                endpoint: endpoint.to_owned(),
                status: failure.status,
                text: failure.text,
                repeatable: call.repeatable,
                cause: failure.cause,
            }),
        }
    }

    /// What to do about it.
    pub fn reaction(&self) -> Reaction {
        let says_nothing = matches!(
            self.meaning,
            Meaning::AnswerLost | Meaning::Undecodable | Meaning::Unexpected
        );
        if says_nothing && self.context.repeatable {
            // Nothing to look for after a read.
            Reaction::Retry
        } else {
            self.meaning.reaction()
        }
    }

    /// The endpoint failed, not the call: another one may answer.
    pub(super) fn is_of_endpoint(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::AnswerLost | Meaning::Unreachable | Meaning::Untrusted | Meaning::EndpointDown
        )
    }

    /// The error and its causes in one line, for conditions and Events.
    pub fn chain(&self) -> String {
        kproxide_common::chain::chain(self)
    }

    /// The status of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.context.status
    }

    /// Proxmox's own words, or empty.
    pub fn text(&self) -> &str {
        &self.context.text
    }

    /// Without what may be a secret of the script that was sent.
    #[must_use]
    pub fn without_secrets(mut self, script: &str) -> Error {
        let hide = |text: &mut String| *text = foreign::without_secrets(text, script);
        hide(&mut self.context.text);
        if let Meaning::InvalidParameter { parameters } = &mut self.meaning {
            parameters
                .iter_mut()
                .for_each(|(_, complaint)| hide(complaint));
        }
        self
    }

    /// The endpoint that was asked.
    pub fn endpoint(&self) -> &str {
        &self.context.endpoint
    }

    pub(super) fn mean(mut self, meaning: Meaning) -> Error {
        self.meaning = meaning;
        self
    }

    /// Proxmox: the agent closes its connection to a command that it could not start.
    pub(super) fn is_broken_pipe(&self) -> bool {
        self.status() == Some(596) && self.text() == "Broken pipe"
    }

    fn describe(&self) -> String {
        let Context { call, endpoint, .. } = self.context.as_ref();
        format!("{call} at {endpoint}: {}", self.meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::super::classify;
    use super::super::request::Call;
    use super::*;

    /// Proxmox's answer to the command says what it was given.
    #[test]
    fn s5_an_error_that_repeats_the_script_is_told_without_it() {
        const SECRET: &str = "K10abcdef0123456789::server:4711";
        let script = format!("K3S_TOKEN={SECRET} ./install\n");
        let repeats = format!("not understood: '{SECRET}'");
        let meaning = Meaning::InvalidParameter {
            parameters: vec![("input-data".to_owned(), repeats.clone())],
        };
        let failure = Failure::new(meaning, Executed::No, Some(400), repeats);
        let error = Error::new(&Call::get(&["nodes"]), "pve1", failure);
        assert!(error.chain().contains(SECRET));
        let told = error.without_secrets(&script).chain();
        assert!(
            told.contains("input-data: not understood: [hidden]"),
            "{told}"
        );
        assert!(!told.contains("K10abcdef"), "{told}");

        // What comes in is cut before anybody knows of the script.
        let long = format!("{} {SECRET}", "x".repeat(180));
        let meaning = classify::answer(400, &long, &[]).0;
        let failure = Failure::new(meaning, Executed::No, Some(400), foreign::said(&long));
        let error = Error::new(&Call::get(&["nodes"]), "pve1", failure);
        assert!(error.chain().contains("K10abcdef"));
        let told = error.without_secrets(&script).chain();
        assert!(!told.contains("K10abcdef"), "{told}");
    }
}
