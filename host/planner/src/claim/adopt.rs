//! Gives the Node with the machine's UUID what the claim says: labels, annotations, taints, provider ID.

use jiff::Timestamp;

use super::answers::failed;
use super::effect::{Effect, NodePatch, NodeRef};
use super::labels::own;
use super::observed::Observed;
use super::step::{Change, StatusChange, Step};
use super::subject::Subject;
use crate::facts::{ClaimSpec, Condition, Labels, NodeFacts, Op, Phase, ProviderId, Taint};
use crate::ids::NodeName;
use crate::keys::{self, UNINITIALIZED_TAINT, UNREGISTERED_TAINT};

/// Labels that the kubelet sets about itself and that are never overwritten.
const KUBELET_LABELS: [&str; 3] = [keys::HOSTNAME, keys::ARCH, keys::OS];

/// What is to be done about a Node that carries the machine's UUID.
pub(super) enum Adoption {
    /// It is as the claim says.
    Complete,
    Patch(Step),
    /// Why the Node cannot be changed now.
    Lacking(String),
}

/// Brings a Node that carries the machine's UUID to what the claim says.
pub(super) fn adopt(
    subject: &Subject<'_>,
    observed: &Observed,
    name: &NodeName,
    node: &NodeFacts,
    now: Timestamp,
) -> Adoption {
    if node.deleting {
        return Adoption::Lacking(format!("Node {name} is being deleted"));
    }
    let Some(patch) = patch(subject, node, now) else {
        return Adoption::Complete;
    };
    if let Some(last) = observed.tried(Op::PatchNode) {
        return Adoption::Lacking(match failed(Some(last)) {
            Some((_, text)) => format!("Node {name} could not be labelled: {text}"),
            None => format!("Node {name} does not keep {}", named(&patch)),
        });
    }
    let node = NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    };
    Adoption::Patch(Step::Do(Effect::PatchNode(node, Box::new(patch))))
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
        change = change.phase(Phase::Registered, now);
        change.intent = Change::Clear;
    }
    change.node = Some(NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    });
    change.address = node.address.or(spec.address);
    change.record()
}

/// What the Node lacks. kproxide sets taints once, at registration. After that they are the user's.
fn patch(subject: &Subject<'_>, node: &NodeFacts, now: Timestamp) -> Option<NodePatch> {
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
        remove_unregistered: node.taints.iter().any(|t| &*t.key == UNREGISTERED_TAINT)
            && !subject.hint.registering.is_awaited(now),
        provider_id,
    };
    (patch != NodePatch::default()).then_some(patch)
}

/// The claim's labels; kproxide's own win. Labels for region and zone that a cloud controller has set stay, because its
/// volumes are bound to them. A label policy that sets other values than cluster and hypervisor wins over that. (If it
/// sets just these, they cannot be told from the defaults.) kproxide always sets the instance type, because pods select
/// by it, even if something else has set it (k3s writes `k3s`).
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
    labels.extend(own(subject.name, spec).map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// As Proxmox's cloud controller manager writes it.
pub fn provider_id(spec: &ClaimSpec) -> String {
    format!("proxmox://{}/{}", spec.cluster, spec.vmid)
}

/// Kubernetes: a taint is known by its key and effect.
pub(super) fn has(taints: &[Taint], wanted: &Taint) -> bool {
    taints
        .iter()
        .any(|taint| taint.key == wanted.key && taint.effect == wanted.effect)
}
