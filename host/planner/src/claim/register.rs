//! Up, second half: the started VM joins, its Node is labelled, becomes Ready, and is in service.

use jiff::{SignedDuration, Timestamp};

use super::launch::fail;
use super::next::{failed, refuse, settled, soon, unread};
use super::observed::{Did, JoinLook, MachineLook, NodeLook, Observed};
use super::overdue::{NOT_READY, broken, is_broken, overdue};
use super::ownership::{Made, Mismatch, prove};
use super::power::check_power;
use super::step::{Change, NodePatch, NodeRef, StatusChange, Step};
use super::subject::{ProviderId, Subject};
use super::{Condition, Op, Phase, service};
use crate::facts::{ClaimSpec, Join, Labels, NodeFacts, Taint};
use crate::ids::NodeName;
use crate::keys::{self, UNINITIALIZED_TAINT, UNREGISTERED_TAINT};
use crate::taints::delays_service;
use crate::time::later;

/// Between two looks at the guest agent, which occupies a worker of Proxmox for seconds while it is silent.
const AGENT_PAUSE: SignedDuration = SignedDuration::from_secs(3);

/// Bytes of a failed join's output that are told. An Event's note has 1024 bytes and loses its end.
const OUTPUT_TOLD: usize = 800;

/// Labels that the kubelet sets about itself and that are never overwritten.
const KUBELET_LABELS: [&str; 3] = [keys::HOSTNAME, keys::ARCH, keys::OS];

/// The VM was started: its Node is awaited, helped by a command in the guest where the class says so.
pub(super) fn launched(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if observed.node == Some(NodeLook::Absent) && now >= subject.join_deadline() {
        return fail(
            Condition::Registered,
            "JoinTimeout",
            format!(
                "no Node joined within {:#} of its start",
                subject.settings.timeouts.join
            ),
            now,
        );
    }
    if is_broken(subject, observed, now) {
        return broken(subject, Condition::Registered, now);
    }
    if let Some(step) = check_power(subject, observed, now) {
        return step;
    }
    match &observed.node {
        None => unread(observed, "the Node", now),
        Some(NodeLook::Several(names)) => several(subject, names, now),
        Some(NodeLook::One(name, node)) => match adopt(subject, observed, name, node) {
            // The Node is as it should be, and still to be written down.
            Adoption::Complete => registered_as(subject, name, node, now),
            Adoption::Patch(step) => step,
            Adoption::Lacking(why) if now >= subject.join_deadline() => overdue(
                subject,
                observed,
                Condition::Registered,
                "NodeNotLabelled",
                &why,
                now,
            ),
            Adoption::Lacking(why) => soon(now, why),
        },
        Some(NodeLook::Absent) => match subject.settings.join {
            Join::Template => Step::wait(Some(subject.join_deadline()), "its Node is awaited"),
            Join::GuestExec => join(subject, observed, now),
        },
    }
}

/// Its Node is known; it comes into service once it is Ready and free of startup taints.
pub(super) fn registered(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    if is_broken(subject, observed, now) {
        return broken(subject, Condition::Initialized, now);
    }
    if let Some(step) = check_power(subject, observed, now) {
        return step;
    }
    let late = now >= subject.join_deadline();
    let not_ready = |why: &str| {
        overdue(
            subject,
            observed,
            Condition::Initialized,
            NOT_READY,
            why,
            now,
        )
    };
    let (name, node) = match &observed.node {
        None => return unread(observed, "the Node", now),
        Some(NodeLook::Several(names)) => return several(subject, names, now),
        Some(NodeLook::Absent) => {
            let why = "its Node has gone again";
            return if let Some(step) = service::node_missing(subject, now) {
                step
            } else if late {
                not_ready(why)
            } else {
                Step::wait(Some(subject.join_deadline()), why)
            };
        }
        Some(NodeLook::One(name, node)) => (name, node),
    };
    match adopt(subject, observed, name, node) {
        Adoption::Complete => {}
        Adoption::Patch(step) => return step,
        Adoption::Lacking(why) if late => {
            return overdue(
                subject,
                observed,
                Condition::Initialized,
                "NodeNotLabelled",
                &why,
                now,
            );
        }
        Adoption::Lacking(why) => return soon(now, why),
    }
    if subject.status().node_uid.as_ref() != Some(&node.uid) {
        return registered_as(subject, name, node, now);
    }
    if let Some(step) = settled(subject, &[Condition::NodeMissing], now) {
        return step;
    }
    if !node.ready {
        return if late {
            not_ready("its Node is not Ready")
        } else {
            Step::wait(Some(subject.join_deadline()), "its Node is not Ready yet")
        };
    }
    let startup = node
        .taints
        .iter()
        .find(|taint| has(&subject.settings.startup_taints, taint) || delays_service(taint));
    if let Some(taint) = startup {
        let why = format!("Node {name} still has the taint {}", taint.key);
        return if late {
            overdue(
                subject,
                observed,
                Condition::Initialized,
                "StartupTaint",
                &why,
                now,
            )
        } else {
            Step::wait(Some(subject.join_deadline()), why)
        };
    }
    StatusChange::default()
        .phase(Phase::Initialized)
        .condition(Condition::Initialized, true, "Ready", "", now)
        .say("Initialized", format!("Node {name} is in service"))
        .record()
}

/// What is to be done about a Node that carries the machine's UUID.
pub(super) enum Adoption {
    /// It is as the claim says.
    Complete,
    Patch(Step),
    /// It cannot be made so now; says why.
    Lacking(String),
}

/// Brings a Node that carries the machine's UUID to what the claim says.
pub(super) fn adopt(
    subject: &Subject<'_>,
    observed: &Observed,
    name: &NodeName,
    node: &NodeFacts,
) -> Adoption {
    if node.deleting {
        return Adoption::Lacking(format!("Node {name} is being deleted"));
    }
    let Some(patch) = patch(subject, node) else {
        return Adoption::Complete;
    };
    if let Some(last) = &observed.last
        && last.did == Did::PatchNode
    {
        return Adoption::Lacking(match failed(Some(last)) {
            Some((_, text)) => format!("Node {name} could not be labelled: {text}"),
            None => format!("Node {name} does not keep {}", named(&patch)),
        });
    }
    let node = NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    };
    Adoption::Patch(Step::PatchNode(node, Box::new(patch)))
}

/// What is in a patch, for people.
fn named(patch: &NodePatch) -> String {
    let NodePatch {
        labels,
        annotations,
        add_taints,
        remove_unregistered,
        provider_id,
    } = patch;
    let mut names: Vec<String> = labels.keys().map(|key| format!("label {key}")).collect();
    names.extend(annotations.keys().map(|key| format!("annotation {key}")));
    names.extend(
        add_taints
            .iter()
            .map(|taint| format!("taint {}", taint.key)),
    );
    if *remove_unregistered {
        names.push(format!("itself free of the taint {UNREGISTERED_TAINT}"));
    }
    names.extend(provider_id.iter().map(|id| format!("provider ID {id}")));
    names.join(", ")
}

/// Writes down which Node the machine became.
pub(super) fn registered_as(
    subject: &Subject<'_>,
    name: &NodeName,
    node: &NodeFacts,
    now: Timestamp,
) -> Step {
    let mut remarks = Vec::new();
    let spec = &subject.claim.spec;
    if name.as_str() != &*spec.vm_name {
        remarks.push(format!("the Node is named {name}, the VM {}", spec.vm_name));
    }
    let expected = provider_id(spec);
    if let Some(found) = &node.provider_id
        && **found != *expected
    {
        remarks.push(format!("its provider ID is {found}, not {expected}"));
    }
    let in_service = subject.was_in_service() || subject.status().phase == Phase::Initialized;
    let mut change = StatusChange::default()
        .condition(
            Condition::Registered,
            true,
            "Registered",
            remarks.join("; "),
            now,
        )
        .say("Registered", format!("the machine is Node {name}"));
    if !in_service {
        change = change.phase(Phase::Registered);
        change.intent = Change::Clear;
    }
    change.node = Some(NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    });
    change.record()
}

fn several(subject: &Subject<'_>, names: &[NodeName], now: Timestamp) -> Step {
    let names: Vec<_> = names.iter().map(NodeName::as_str).collect();
    refuse(subject, &Mismatch::SeveralNodes(names.join(", ")), now)
}

/// The join command runs once per claim: a lock and a result file in the guest, by claim UID, say whether it did.
fn join(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Step {
    let again = later(now, AGENT_PAUSE);
    if let Some(last) = &observed.last
        && last.did == Did::Join
        && let Some((_, text)) = failed(Some(last))
    {
        return soon(
            now,
            format!("the join command could not be started: {text}"),
        );
    }
    let begun = observed
        .last
        .as_ref()
        .is_some_and(|last| last.did == Did::Join);
    let intent = subject.status().intent.as_ref().map(|intent| intent.op);
    match &observed.join {
        Some(JoinLook::NotRun) if begun => {
            Step::back_off(again, "the join command is about to run")
        }
        None => unread(observed, "the join command's result", now),
        // An agent that answered once may be silent while the command takes the whole machine.
        Some(JoinLook::AgentSilent(why))
            if now >= subject.agent_deadline() && intent != Some(Op::Join) =>
        {
            fail(
                Condition::Registered,
                "AgentTimeout",
                format!(
                    "the guest agent did not answer within {:#}: {why}",
                    subject.settings.timeouts.agent
                ),
                now,
            )
        }
        Some(JoinLook::AgentSilent(why)) => {
            Step::back_off(again, format!("the guest agent does not answer yet: {why}"))
        }
        Some(JoinLook::Booting) => Step::back_off(again, "cloud-init has not finished"),
        Some(JoinLook::NotRun) => {
            if intent != Some(Op::Join) {
                return StatusChange::default().intent(Op::Join, 1).record();
            }
            match &observed.machine {
                Some(MachineLook::Visible(machine)) => {
                    match prove(subject, machine, Made::Configured) {
                        Ok(proven) => Step::Join(proven),
                        Err(mismatch) => refuse(subject, &mismatch, now),
                    }
                }
                Some(MachineLook::Invisible | MachineLook::Unreachable(_)) | None => {
                    unread(observed, "the machine", now)
                }
            }
        }
        Some(JoinLook::Running) => Step::back_off(again, "the join command is running"),
        Some(JoinLook::Succeeded) => Step::wait(
            Some(subject.join_deadline()),
            "the join command has succeeded; its Node is awaited",
        ),
        Some(JoinLook::Failed { exit_code, output }) => fail(
            Condition::Registered,
            "JoinFailed",
            format!(
                "the join command failed with exit code {exit_code}: {}",
                end_of(output)
            ),
            now,
        ),
    }
}

/// The end of a command's output, where it says what went wrong.
fn end_of(output: &str) -> String {
    if output.len() <= OUTPUT_TOLD {
        return output.to_owned();
    }
    let mut start = output.len() - OUTPUT_TOLD;
    while !output.is_char_boundary(start) {
        start += 1;
    }
    format!("… {}", &output[start..])
}

/// What the Node lacks. Taints are given once, at registration: afterwards they are the operator's.
fn patch(subject: &Subject<'_>, node: &NodeFacts) -> Option<NodePatch> {
    let first = subject.status().node_uid.as_ref() != Some(&node.uid);
    let spec = &subject.claim.spec;
    let labels = wanted_labels(subject, node)
        .into_iter()
        .filter(|(key, value)| node.labels.get(key) != Some(value))
        .collect();
    let annotations = spec
        .annotations
        .iter()
        .filter(|(key, value)| node.annotations.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let add_taints = if first {
        spec.taints
            .iter()
            .filter(|taint| !has(&node.taints, taint))
            .cloned()
            .collect()
    } else {
        Vec::new()
    };
    let expects_ccm = node.taints.iter().any(|t| &*t.key == UNINITIALIZED_TAINT);
    let provider_id = match subject.settings.provider_id {
        ProviderId::Auto if node.provider_id.is_none() && !expects_ccm => Some(provider_id(spec)),
        ProviderId::Auto | ProviderId::Kubelet | ProviderId::Ccm | ProviderId::None => None,
    };
    let patch = NodePatch {
        labels,
        annotations,
        add_taints,
        remove_unregistered: node.taints.iter().any(|t| &*t.key == UNREGISTERED_TAINT),
        provider_id,
    };
    (patch != NodePatch::default()).then_some(patch)
}

/// The claim's labels, ours first of all. Of region and zone, somebody else's word stays: a cloud controller's labels are what its volumes are
/// bound to. A label policy that says something else than cluster and hypervisor means it, and is written; where it says the same, that cannot
/// be told from nobody having said anything. The instance type is ours whatever others call it (k3s writes `k3s`), since pods select by it.
fn wanted_labels(subject: &Subject<'_>, node: &NodeFacts) -> Labels {
    let spec = &subject.claim.spec;
    let hypervisor = subject.status().hypervisor.as_ref();
    let mut labels = spec.labels.clone();
    labels.retain(|key, _| !KUBELET_LABELS.contains(&key.as_str()));
    for (key, planned, actual) in [
        (keys::REGION, spec.cluster.as_str(), spec.cluster.as_str()),
        (
            keys::ZONE,
            &*spec.hypervisor,
            hypervisor.unwrap_or(&spec.hypervisor),
        ),
    ] {
        if labels.get(key).is_some_and(|chosen| chosen != planned) {
            continue;
        }
        if node.labels.contains_key(key) {
            labels.remove(key);
        } else {
            labels.insert(key.to_owned(), actual.to_owned());
        }
    }
    labels.insert(
        keys::INSTANCE_TYPE.to_owned(),
        spec.instance_type.to_string(),
    );
    let ours = [
        (keys::POOL, spec.pool.as_str()),
        (keys::CLASS, spec.class.as_str()),
        (keys::CLAIM, subject.name.as_str()),
    ];
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// As Proxmox's cloud controller manager writes it.
pub fn provider_id(spec: &ClaimSpec) -> String {
    format!("proxmox://{}/{}", spec.cluster, spec.vmid)
}

/// Kubernetes: a taint is known by its key and effect.
fn has(taints: &[Taint], wanted: &Taint) -> bool {
    taints
        .iter()
        .any(|taint| taint.key == wanted.key && taint.effect == wanted.effect)
}
