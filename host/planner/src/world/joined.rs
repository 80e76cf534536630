//! Which Node is which machine's, as NodeClaims record it.

use std::collections::BTreeSet;

use crate::facts::{ClaimFacts, NodeFacts};
use crate::ids::{ClaimName, Uid};

/// The UID of a Node, the claim that records it, and the SMBIOS UUID of that claim's VM.
#[derive(Clone, Debug, Default)]
pub struct Joined(BTreeSet<(Uid, ClaimName, Option<Uid>)>);

impl Joined {
    pub(super) fn set(
        &mut self,
        name: &ClaimName,
        old: Option<&ClaimFacts>,
        new: Option<&ClaimFacts>,
    ) {
        let row = |claim: &ClaimFacts| {
            let node = claim.status.node_uid.clone()?;
            Some((node, name.clone(), claim.status.smbios_uuid.clone()))
        };
        if let Some(old) = old.and_then(row) {
            self.0.remove(&old);
        }
        self.0.extend(new.and_then(row));
    }

    /// It is recorded as another machine's than that with this SMBIOS UUID: root on that one could have written it.
    pub fn is_anothers(&self, node: &NodeFacts, smbios: &Uid) -> bool {
        let first = (node.uid.clone(), ClaimName::from(""), None);
        let its = self.0.range(first..).take_while(|it| it.0 == node.uid);
        its.into_iter().any(|it| it.2.as_ref() != Some(smbios))
    }
}
