//! What is known of a machine whose Node does not come, for the words of its failure: the VM is about to go.

use super::observed::{Evidence, JoinLook, Observed};
use super::subject::Subject;
use crate::facts::Join;

/// For a person who has nothing but this.
const WHERE_TO_LOOK: &str = "Open the console of the next one in Proxmox while it joins: does \
     /var/log/cloud-init-output.log end with an error, and does the kubelet reach the API server?";

/// What differs from machine to machine follows it.
const SAYS: &str = ". The guest says: ";

/// Begins with a full stop: it follows what has failed. The end may be cut off, so what is short comes first.
pub(super) fn of_guest(subject: &Subject<'_>, observed: &Observed) -> String {
    let mut text = String::new();
    if subject.settings.join == Join::GuestExec {
        text = of_join_command(subject, observed);
    }
    let Some(evidence) = &observed.evidence else {
        return text + ". kproxide could not ask its guest agent. " + WHERE_TO_LOOK;
    };
    let Evidence {
        addresses,
        cloud_init,
        log,
        log_end,
        unsaid,
    } = evidence;
    let mut said = Vec::new();
    match addresses.as_deref() {
        None => {}
        Some([]) => said.push("it has no address (look at its bridge, VLAN and DHCP)".to_owned()),
        Some(addresses) => said.push(format!("its addresses are {}", addresses.join(", "))),
    }
    if !cloud_init.is_empty() {
        said.push(format!("cloud-init: {cloud_init}"));
    }
    if !log.is_empty() {
        said.push(format!("the end of {log}: {log_end}"));
    }
    if !said.is_empty() {
        text += SAYS;
        text += &said.join("; ");
    }
    if let Some(why) = unsaid {
        text += &format!(". kproxide knows no more: {why}");
    }
    if log.is_empty() {
        text += ". ";
        text += WHERE_TO_LOOK;
    }
    text
}

/// The message of a failure without what one machine said: the same failure has the same text.
pub(super) fn lasting(message: &str) -> String {
    match message.split_once(SAYS) {
        Some((failure, _)) => {
            format!("{failure}. The Event of the NodeClaim shows what the guest said")
        }
        None => message.to_owned(),
    }
}

fn of_join_command(subject: &Subject<'_>, observed: &Observed) -> String {
    match &observed.join {
        None => format!(
            ". The guest agent could not be asked: {}",
            observed.unread.join("; ")
        ),
        Some(JoinLook::AgentSilent(why)) => format!(". The guest agent does not answer: {why}"),
        Some(JoinLook::Refused(why)) => format!(". {why}"),
        Some(JoinLook::Booting) => ". cloud-init has not finished in the guest".to_owned(),
        Some(JoinLook::NotRun) => match subject.status().join_error() {
            Some(error) => format!(". The join command could not be started: {error}"),
            None => ". The join command has not run".to_owned(),
        },
        Some(JoinLook::Running) => ". The join command is still running".to_owned(),
        Some(JoinLook::Succeeded) => {
            ". The join command has succeeded: look at the kubelet in the guest".to_owned()
        }
        Some(JoinLook::Failed { exit_code, .. }) => {
            format!(". The join command failed with exit code {exit_code}")
        }
    }
}
