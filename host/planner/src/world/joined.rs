//! Which Node is which machine's, as NodeClaims record it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::facts::{ClaimFacts, NodeFacts};
use crate::ids::{ClaimName, Uid};

/// The UID of a Node, the claim that records it, and the SMBIOS UUID of that claim's VM.
#[derive(Clone, Debug, Default)]
pub struct Joined(BTreeSet<(Uid, ClaimName, Option<Uid>)>);

impl Joined {
    pub(super) fn set(
        joined: &mut Arc<Self>,
        name: &ClaimName,
        old: Option<&ClaimFacts>,
        new: Option<&ClaimFacts>,
    ) {
        let row = |claim: &ClaimFacts| {
            let node = claim.status.node_uid.clone()?;
            Some((node, name.clone(), claim.status.smbios_uuid.clone()))
        };
        let (old, new) = (old.and_then(row), new.and_then(row));
        if old == new {
            return;
        }
        let joined = Arc::make_mut(joined);
        if let Some(old) = old {
            joined.0.remove(&old);
        }
        joined.0.extend(new);
    }

    /// It is recorded as another machine's than that with this SMBIOS UUID: root on that one could have written it.
    pub fn is_anothers(&self, node: &NodeFacts, smbios: &Uid) -> bool {
        let first = (node.uid.clone(), ClaimName::from(""), None);
        let its = self.0.range(first..).take_while(|it| it.0 == node.uid);
        its.into_iter().any(|it| it.2.as_ref() != Some(smbios))
    }
}
