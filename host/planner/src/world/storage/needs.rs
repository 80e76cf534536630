//! What the volumes of a pod ask, by the rules of kube-scheduler's plugins VolumeBinding, VolumeZone and
//! VolumeRestrictions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Claim, Storage, Volume, claim_key};
use crate::facts::{
    FreeVolume, LabelSelector, Labels, NodeSelectorTerm, Operator, PodClaim, PodFacts, Reach,
    Requirement, StorageCapacityFacts, StorageClassFacts, VolumeClaimFacts, VolumeFacts,
    VolumeName, VolumeNeed, VolumeProblem, VolumeWait,
};
use crate::ids::{ObjectKey, PodKey};
use crate::keys::{BETA_REGION, BETA_ZONE, REGION, ZONE};
use crate::kubernetes::selector::selects;
use crate::world::pods::Pods;

/// Sources of volumes that the scheduler holds against nothing but node affinity, zones and (`csi`) attach limits.
const UNDERSTOOD: [&str; 10] = [
    "csi",
    "local",
    "hostPath",
    "nfs",
    "cephfs",
    "glusterfs",
    "rbd",
    "iscsi",
    "fc",
    "flexVolume",
];

impl Storage {
    /// What the volumes of a pod ask, as everything is now.
    pub(in crate::world) fn resolve(&self, pods: &Pods, key: &PodKey, pod: &mut PodFacts) {
        pod.spec.volumes = Vec::new();
        pod.spec.volume_wait = None;
        let mut claims: Vec<&PodClaim> = self.claims_of(key).iter().collect();
        // The scheduler chooses volumes for the smallest claims first.
        claims.sort_by_key(|claim| {
            let known = self.claims.get(&claim_key(key, claim));
            let unbound = known.filter(|known| !known.alike.is_bound);
            unbound.map_or(0, |known| known.alike.wants.bytes)
        });
        for claim in claims {
            match self.needs_of(pods, key, pod, claim) {
                Ok(needs) => pod.spec.volumes.extend(needs),
                Err(why) => {
                    // Whatever becomes of the claim, a pod that runs keeps its volume attached.
                    let known = self.claims.get(&claim_key(key, claim));
                    let bound = known.filter(|known| known.alike.is_bound);
                    let needs = bound.and_then(|bound| {
                        let needs = match self.bound(bound.volume.as_ref()?, claim) {
                            Ok(needs) => needs,
                            Err(VolumeProblem::VolumeMissing(_)) => self.gone(bound),
                            Err(_) => Vec::new(),
                        };
                        Some(needs)
                    });
                    pod.spec.volumes.extend(needs.into_iter().flatten());
                    let claim = claim.name.clone();
                    let wait = Box::new(VolumeWait { claim, why });
                    pod.spec.volume_wait.get_or_insert(wait);
                }
            }
        }
        // Most have one, and there was room for four.
        pod.spec.volumes.shrink_to_fit();
    }

    fn needs_of(
        &self,
        pods: &Pods,
        pod_key: &PodKey,
        pod: &PodFacts,
        claim: &PodClaim,
    ) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let key = claim_key(pod_key, claim);
        let known = self.claims.get(&key).ok_or(VolumeProblem::ClaimMissing)?;
        let facts = &known.alike;
        if claim.is_ephemeral && facts.owner.as_ref() != Some(&pod.uid) {
            return Err(VolumeProblem::OfAnother);
        }
        if facts.is_lost {
            return Err(VolumeProblem::ClaimLost);
        }
        if facts.deleting {
            return Err(VolumeProblem::ClaimDeleting);
        }
        if known.is_for_one_pod()
            && let Some(other) = self.other_user(pods, &key, pod_key)
        {
            return Err(VolumeProblem::InUse(other));
        }
        match &known.volume {
            Some(volume) if facts.is_bound => self.bound(volume, claim),
            Some(volume) if !self.volumes.contains_key(volume) => {
                Err(VolumeProblem::VolumeAwaited(volume.clone()))
            }
            Some(_) => Err(VolumeProblem::NotBound),
            None => self.unbound(&key, known),
        }
    }

    /// Another pod that stands on a Node and uses the claim, or one that waits for it and comes first by name.
    fn other_user(&self, pods: &Pods, claim: &ObjectKey, own: &PodKey) -> Option<PodKey> {
        let is_placed = |key: &PodKey| {
            let pod = pods.get(key).filter(|pod| pod.is_alive());
            pod.map(|pod| pod.node().is_some())
        };
        let own_is_placed = is_placed(own) == Some(true);
        let users = self.users.of(claim).filter(|key| *key != own);
        let mut blocking = users.filter(|key| match is_placed(key) {
            Some(true) => !own_is_placed || *key < own,
            Some(false) => !own_is_placed && *key < own,
            None => false,
        });
        blocking.next().cloned()
    }

    fn bound(&self, name: &Arc<str>, of: &PodClaim) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let missing = || VolumeProblem::VolumeMissing(name.clone());
        let volume = &self.volumes.get(name).ok_or_else(missing)?.alike;
        if !UNDERSTOOD.contains(&&*volume.source) {
            return Err(VolumeProblem::Unknown(volume.source.clone()));
        }
        let need = |reach| VolumeNeed {
            volume: VolumeName::Of(name.clone()),
            driver: None,
            handle: None,
            reach,
        };
        let whole = VolumeNeed {
            driver: volume.driver.clone(),
            handle: volume.handle.clone(),
            ..need(volume.nodes.clone().map(Reach::Affinity))
        };
        // VolumeZone looks at the claims that a pod names, not at those that are made for it.
        let terms = zones(&volume.labels).filter(|_| !of.is_ephemeral);
        let of_zone = terms.map(|terms| need(Some(Reach::Zone(terms.into()))));
        Ok(std::iter::once(whole).chain(of_zone).collect())
    }

    /// Of a claim whose volume is gone: the scheduler counts it as one of its class.
    fn gone(&self, claim: &Claim) -> Vec<VolumeNeed> {
        let class = claim.alike.class.as_ref();
        let class = class.and_then(|name| self.classes.get(name));
        let driver = class.filter(|class| class.is_provisioned());
        let need = claim.volume.clone().zip(driver);
        let need = need.map(|(volume, class)| VolumeNeed {
            volume: VolumeName::Of(volume),
            driver: Some(class.provisioner.clone()),
            handle: None,
            reach: None,
        });
        need.into_iter().collect()
    }

    fn unbound(&self, key: &ObjectKey, claim: &Claim) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let name = claim.alike.class.as_ref().filter(|name| !name.is_empty());
        let name = name.ok_or(VolumeProblem::NotBound)?;
        let missing = || VolumeProblem::ClassMissing(name.clone());
        let class = self.classes.get(name).ok_or_else(missing)?;
        let is_made = class.is_provisioned();
        if !class.waits_for_pod && is_made {
            return Err(VolumeProblem::NotProvisioned {
                class: name.clone(),
                provisioner: class.provisioner.clone(),
            });
        }
        let need = |reach| VolumeNeed {
            volume: VolumeName::New(name.clone()),
            driver: None,
            handle: None,
            reach,
        };
        // The volume is attached once, whatever it asks.
        let needs = |reaches: Vec<Reach>| {
            let mut needs: Vec<_> = reaches.into_iter().map(|it| need(Some(it))).collect();
            let mut last = needs.pop().unwrap_or_else(|| need(None));
            last.driver = is_made.then(|| class.provisioner.clone());
            needs.push(last);
            needs
        };
        let made = || {
            let of_class = class.topologies.clone().map(Reach::Class);
            of_class
                .into_iter()
                .chain(self.room_for(name, class, claim.alike.wants.bytes))
        };
        let selected = claim.selected_node.as_ref();
        if let Some(node) = selected.filter(|_| class.waits_for_pod) {
            // Where nobody makes volumes, Kubernetes now binds a free one by itself.
            if !is_made {
                return Err(VolumeProblem::NotBound);
            }
            let chosen = Reach::Chosen(node.clone());
            return Ok(needs(std::iter::once(chosen).chain(made()).collect()));
        }
        let (own, others): (Vec<_>, Vec<_>) = self
            .volumes
            .iter()
            .filter(|(_, volume)| could_serve(volume, name, key, claim))
            .partition(|(_, volume)| volume.claim.is_some());
        let mut chosen = if own.is_empty() { others } else { own };
        match (is_made, chosen.is_empty()) {
            (false, true) => return Err(VolumeProblem::NoVolume(name.clone())),
            (false, false) if !class.waits_for_pod => return Err(VolumeProblem::NotBound),
            (true, true) => return Ok(needs(made().collect())),
            (_, false) => {}
        }
        let made: Option<Arc<[Reach]>> = is_made.then(|| made().collect());
        if made.as_ref().is_some_and(|made| made.is_empty()) {
            // Every Node has a free volume or gets a new one.
            return Ok(needs(Vec::new()));
        }
        chosen.sort_by_key(|(_, volume)| volume.alike.offers.bytes);
        let volumes = chosen.into_iter().map(|(name, volume)| FreeVolume {
            name: name.clone(),
            nodes: volume.alike.nodes.clone(),
        });
        let volumes = volumes.collect();
        Ok(needs(vec![Reach::Free { volumes, made }]))
    }

    /// Where a driver that says how much room there is has enough of it.
    fn room_for(&self, name: &str, class: &StorageClassFacts, bytes: u64) -> Option<Reach> {
        let driver = self.drivers.get(&class.provisioner)?;
        if !driver.storage_capacity || bytes == 0 {
            return None;
        }
        let of_class = self.capacities.values().filter(|it| *it.class == *name);
        let nodes = |capacity: &StorageCapacityFacts| capacity.nodes.clone();
        let known = of_class.clone().filter_map(nodes);
        let enough = of_class.filter(|it| it.largest_bytes >= bytes);
        Some(Reach::Room {
            bytes,
            enough: sorted(enough.filter_map(nodes)),
            known: sorted(known),
        })
    }
}

/// The volume could be bound to the claim.
fn could_serve(volume: &Volume, class: &str, key: &ObjectKey, claim: &Claim) -> bool {
    let Volume {
        claim: taken_by,
        alike,
    } = volume;
    let VolumeFacts {
        source: _,
        driver: _,
        handle: _,
        class: of_class,
        offers,
        labels,
        nodes: _,
        claim: _,
        claim_uid,
        is_available,
        deleting,
    } = &**alike;
    let VolumeClaimFacts {
        wants,
        selector,
        uid,
        ..
    } = &*claim.alike;
    let is_free = match taken_by {
        Some(owner) => owner == key && (claim_uid.is_none() || claim_uid == uid),
        None => {
            let selector = selector.as_ref();
            *is_available
                && offers.access_modes.is_superset(&wants.access_modes)
                && selector.is_none_or(|selector| selects(selector, labels))
        }
    };
    is_free && !deleting && **of_class == *class && offers.serve(wants)
}

/// Nodes in the volume's zone and region, and Nodes that are in none: kube-scheduler lets those pass.
fn zones(labels: &Labels) -> Option<Vec<NodeSelectorTerm>> {
    let keys = [ZONE, REGION, BETA_ZONE, BETA_REGION];
    let lacks = |key: &str| requirement(key, Operator::DoesNotExist, [].into_iter());
    let mut terms = vec![Vec::new()];
    for key in keys {
        let Some(value) = labels.get(key) else {
            continue;
        };
        let values: Vec<&str> = value.split("__").map(str::trim).collect();
        // The scheduler passes over what it cannot read.
        if values.iter().any(|value| value.is_empty()) {
            continue;
        }
        let among = |key: &str| requirement(key, Operator::In, values.iter().copied());
        let mut alternatives = vec![vec![among(key)]];
        // A Node that lacks an old label is asked for the new one.
        let new = match key {
            BETA_ZONE => Some(ZONE),
            BETA_REGION => Some(REGION),
            _ => None,
        };
        if let Some(new) = new {
            alternatives.push(vec![among(new), lacks(key)]);
        }
        let both = terms.iter().flat_map(|term: &Vec<Requirement>| {
            let alternatives = alternatives.iter();
            alternatives.map(move |one| [term.as_slice(), one.as_slice()].concat())
        });
        terms = both.collect();
    }
    if terms == [vec![]] {
        return None;
    }
    terms.push(keys.map(lacks).to_vec());
    let term = |match_expressions| NodeSelectorTerm {
        match_expressions,
        match_fields: Vec::new(),
    };
    Some(terms.into_iter().map(term).collect())
}

fn requirement<'a>(
    key: &str,
    operator: Operator,
    values: impl Iterator<Item = &'a str>,
) -> Requirement {
    Requirement {
        key: key.into(),
        operator,
        values: values.map(Arc::from).collect(),
    }
}

fn sorted(selectors: impl Iterator<Item = LabelSelector>) -> Vec<LabelSelector> {
    let selectors: BTreeSet<_> = selectors.collect();
    selectors.into_iter().collect()
}
