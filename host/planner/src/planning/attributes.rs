//! What policies are told beyond the fields of their records: facts by key. `wit/policy.wit` lists the keys.

use super::sites::Hypervisor;
use crate::question::Attribute;

/// What an operator says of a hypervisor. It stays from one decision to the next, so labels may depend on it.
pub(super) fn lasting(hypervisor: &Hypervisor<'_>) -> Vec<Attribute> {
    let said = hypervisor
        .cluster
        .hypervisor_attributes
        .get(&hypervisor.id.name);
    said.cloned().unwrap_or_default()
}
