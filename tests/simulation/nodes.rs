//! What stands at one moment on both servers about Nodes and their machines.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kproxide_lab::Lab;
use serde_json::Value;

use crate::object::{CLAIMS, is_bad, is_voluntary, name, text};

/// The VM of this Node, by its SMBIOS UUID, is running.
pub(crate) fn machine_runs(lab: &Lab, node: &Value) -> bool {
    let uuid = text(&node["status"]["nodeInfo"]["systemUUID"]);
    lab.pve.snapshot().vms.iter().any(|vm| {
        let its = vm.smbios_uuid.as_deref().unwrap_or_default();
        vm.running && its.eq_ignore_ascii_case(uuid)
    })
}

/// More than half of the Nodes of machines in service, and more than a few, have not been Ready for a minute.
pub(crate) fn most_are_bad(lab: &Lab, now: Timestamp) -> bool {
    let claims = lab.kube.list(CLAIMS);
    let in_service: BTreeSet<&str> = claims
        .iter()
        .filter(|claim| ["Initialized", "Draining"].contains(&text(&claim["status"]["phase"])))
        .filter_map(|claim| claim["status"]["nodeName"].as_str())
        .collect();
    let nodes = lab.kube.list("nodes");
    let bad = nodes
        .iter()
        .filter(|node| in_service.contains(name(node)) && is_bad(node, now));
    let bad = bad.count();
    bad > 3 && bad * 2 > in_service.len()
}

/// The Node's claim goes because we would rather be without it, and not yet at anybody's word.
pub(crate) fn goes_at_our_will(lab: &Lab, node: &str) -> bool {
    let claims = lab.kube.list(CLAIMS);
    let claim = claims
        .iter()
        .find(|claim| claim["status"]["nodeName"] == node);
    claim.is_some_and(|claim| {
        !claim["metadata"]["deletionTimestamp"].is_string() && is_voluntary(claim)
    })
}
