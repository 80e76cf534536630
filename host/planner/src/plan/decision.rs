//! Ids of decisions: to launch a machine, to remove it. The same stands in the log (`decision_id`), on Events and on the
//! NodeClaim. An id is made from what is decided, so that whoever sees the decision computes the same.

use std::hash::{DefaultHasher, Hash};

use crate::facts::{ClaimFacts, ClaimSpec, Phase};
use crate::ids::{ClaimName, Digest, digest};

/// Of the launch, or of the adoption, that made this claim.
pub fn launch(claim: &ClaimName, spec: &ClaimSpec) -> Digest {
    let mut hasher = DefaultHasher::new();
    ("launch", claim, &spec.pool, &spec.instance_type).hash(&mut hasher);
    (spec.hypervisor_id(), spec.vmid).hash(&mut hasher);
    digest(&hasher)
}

/// Of the removal that is under way, or of one that begins now. A drain that was given up is another removal.
pub fn removal(claim: &ClaimFacts) -> Digest {
    let recorded = claim.status.removal_decision.as_ref();
    if let Some(recorded) = recorded.filter(|_| is_leaving(claim)) {
        return recorded.clone();
    }
    let mut hasher = DefaultHasher::new();
    ("removal", &claim.uid, recorded).hash(&mut hasher);
    digest(&hasher)
}

/// Of what is being done with the claim. `None`: it is in service.
pub fn present(name: &ClaimName, claim: &ClaimFacts) -> Option<Digest> {
    match claim.status.phase {
        Phase::Pending | Phase::Launching | Phase::Launched | Phase::Registered => {
            Some(launch(name, &claim.spec))
        }
        Phase::Initialized => None,
        Phase::Draining | Phase::Terminating => Some(removal(claim)),
    }
}

/// Its removal is recorded.
pub fn is_leaving(claim: &ClaimFacts) -> bool {
    claim.status.phase > Phase::Initialized
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Scene;

    #[test]
    fn each_decision_has_one_id_and_no_other_has_it() {
        let mut scene = Scene::default();
        scene.machine("a", "alpha").machine("b", "beta");
        let mut ids = Vec::new();
        for name in ["a", "b"] {
            let claim = scene.claim(name);
            assert_eq!(present(&name.into(), claim), None);
            claim.status.phase = Phase::Launching;
            let launched = launch(&name.into(), &claim.spec);
            assert_eq!(present(&name.into(), claim), Some(launched.clone()));
            ids.push(launched);
            for _ in 0..2 {
                claim.status.phase = Phase::Initialized;
                let planned = removal(claim);
                claim.status.phase = Phase::Draining;
                claim.status.removal_decision = Some(planned.clone());
                assert_eq!(removal(claim), planned);
                assert_eq!(present(&name.into(), claim), Some(planned.clone()));
                ids.push(planned);
            }
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
