//! A machine as pods will see it: labels and taints of its Node, what it will offer, what DaemonSets will take of it.

use std::borrow::Cow;

use super::csi::{self, Shown};
use crate::facts::{
    ClaimSpec, ClassFacts, InstanceType, Labels, NodeFacts, PodSpec, PoolFacts, Taint,
};
use crate::ids::{HypervisorId, PoolName};
use crate::keys;
use crate::kubernetes::resources::Resources;
use crate::plan::question::Decoration;
use crate::planning::pods::fit::NodeProfile;

/// Stands for the name of a machine that has none yet; no object can have it.
pub(in crate::planning) const NEW: &str = "(new)";

/// The labels that a claim asks for its Node. Precedence: ours, then the label policy's, then the pool's; of zone and region the policy's win.
pub(crate) fn claim_labels(
    claim: &str,
    pool_name: &PoolName,
    pool: &PoolFacts,
    class: &ClassFacts,
    size: &InstanceType,
    hypervisor: &HypervisorId,
    decoration: &Decoration,
) -> Labels {
    let mut labels = pool.labels.clone();
    labels.insert(keys::REGION.to_owned(), hypervisor.cluster.to_string());
    labels.insert(keys::ZONE.to_owned(), hypervisor.name.to_string());
    labels.extend(decoration.labels.clone());
    let cores = size.cores.to_string();
    let memory = size.memory_mib.to_string();
    let ours = [
        (keys::INSTANCE_TYPE, size.name.as_str()),
        (keys::POOL, pool_name.as_str()),
        (keys::CLASS, pool.node_class.as_str()),
        (keys::CLAIM, claim),
        (keys::INSTANCE_CPU, &cores),
        (keys::INSTANCE_MEMORY, &memory),
    ];
    let family = size.family.as_deref();
    let family = family.map(|family| (keys::INSTANCE_FAMILY, family));
    // Tags and a VMID are no name to select by.
    let template = class.template_in(&hypervisor.cluster);
    let template = template.name().map(|name| (keys::TEMPLATE, &**name));
    let ours = ours.into_iter().chain(family).chain(template);
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// The pool's taints and the label policy's, each once.
pub(in crate::planning) fn claim_taints(pool: &PoolFacts, decoration: &Decoration) -> Vec<Taint> {
    let mut all = pool.taints.clone();
    for taint in &decoration.taints {
        if !all.contains(taint) {
            all.push(taint.clone());
        }
    }
    all
}

/// A machine with these labels: its kubelet adds architecture, operating system (under their old names too) and host name.
pub(in crate::planning) fn profile(
    name: &str,
    class: &ClassFacts,
    shown: &Shown,
    mut labels: Labels,
    taints: Vec<Taint>,
) -> NodeProfile<'static> {
    shown.label(class, name, &mut labels);
    for (key, value) in [
        (keys::ARCH, class.arch.as_str()),
        (keys::BETA_ARCH, class.arch.as_str()),
        (keys::OS, class.os.as_str()),
        (keys::BETA_OS, class.os.as_str()),
        (keys::HOSTNAME, name),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    NodeProfile {
        name: name.into(),
        labels: Cow::Owned(labels),
        taints: Cow::Owned(taints),
        cordoned: false,
        room: Some(csi::rooms(class)),
        moved: None,
    }
}

/// What these ask together.
pub(in crate::planning) fn sum<'a>(specs: impl Iterator<Item = &'a PodSpec>) -> Resources {
    let mut total = Resources::default();
    for spec in specs {
        total.add(&spec.requests);
    }
    total
}

/// The instance type that a claim was made from. Whatever has become of the type, the machine has the size that its claim says.
pub(in crate::planning) fn size_of_claim(class: &ClassFacts, spec: &ClaimSpec) -> InstanceType {
    let mut types = class.instance_types.iter();
    let named = types.find(|size| size.name == spec.instance_type);
    InstanceType {
        name: spec.instance_type.clone(),
        family: named.and_then(|size| size.family.clone()),
        cores: u32::try_from(spec.resources.milli_cores / 1000).unwrap_or(u32::MAX),
        memory_mib: u32::try_from(spec.resources.memory_bytes >> 20).unwrap_or(u32::MAX),
        disk_gib: spec
            .resources
            .disk_bytes
            .map(|bytes| u32::try_from(bytes >> 30).unwrap_or(u32::MAX)),
        max_pods: named.map_or(110, |size| size.max_pods),
        extended_resources: named
            .map(|size| size.extended_resources.clone())
            .unwrap_or_default(),
    }
}

/// What a Node on its way into service offers: device plugins register their resources after the kubelet has said the rest.
pub(in crate::planning) fn promised(node: &NodeFacts, size: &InstanceType) -> Resources {
    let mut offered = node.allocatable.clone();
    for (name, amount) in size.extended() {
        if !offered.extended.contains_key(name) {
            offered.set_extended(name.clone(), amount);
        }
    }
    offered
}

pub(in crate::planning) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
