//! What the volumes of a pod ask, by the rules of kube-scheduler's plugins VolumeBinding, VolumeZone and
//! VolumeRestrictions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Claim, Storage, Volume, claim_key};
use crate::facts::{
    LabelSelector, Labels, NO_PROVISIONER, NodeSelectorTerm, Operator, PodClaim, PodFacts, Reach,
    Requirement, StorageCapacityFacts, StorageClassFacts, VolumeClaimFacts, VolumeFacts,
    VolumeName, VolumeNeed, VolumeProblem, VolumeWait,
};
use crate::ids::{ObjectKey, PodKey};
use crate::keys::{BETA_REGION, BETA_ZONE, REGION, ZONE};
use crate::selector::selects;
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
        for claim in self.claims_of(key) {
            match self.needs_of(pods, key, pod, claim) {
                Ok(needs) => pod.spec.volumes.extend(needs),
                Err(why) => {
                    // Whatever becomes of the claim, a pod that runs keeps its volume attached.
                    let known = self.claims.get(&claim_key(key, claim));
                    let bound = known.filter(|known| known.alike.is_bound);
                    let volume = bound.and_then(|bound| bound.volume.as_ref());
                    let needs = volume.map(|volume| self.bound(volume).unwrap_or_default());
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
            Some(volume) if facts.is_bound => self.bound(volume),
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

    fn bound(&self, name: &Arc<str>) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let missing = || VolumeProblem::VolumeMissing(name.clone());
        let volume = &self.volumes.get(name).ok_or_else(missing)?.alike;
        if !UNDERSTOOD.contains(&&*volume.source) {
            return Err(VolumeProblem::Unknown(volume.source.clone()));
        }
        let of_zone = zones(&volume.labels).map(|terms| VolumeNeed {
            volume: VolumeName::Of(name.clone()),
            driver: None,
            reach: Some(Reach::Zone(terms.into())),
        });
        let whole = VolumeNeed {
            volume: VolumeName::Of(name.clone()),
            driver: volume.driver.clone(),
            reach: volume.nodes.clone().map(Reach::Affinity),
        };
        Ok(std::iter::once(whole).chain(of_zone).collect())
    }

    fn unbound(&self, key: &ObjectKey, claim: &Claim) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let name = claim.alike.class.as_ref().filter(|name| !name.is_empty());
        let name = name.ok_or(VolumeProblem::NotBound)?;
        let missing = || VolumeProblem::ClassMissing(name.clone());
        let class = self.classes.get(name).ok_or_else(missing)?;
        let is_made = *class.provisioner != *NO_PROVISIONER;
        if !class.waits_for_pod && is_made {
            return Err(VolumeProblem::NotProvisioned {
                class: name.clone(),
                provisioner: class.provisioner.clone(),
            });
        }
        let need = |reach| VolumeNeed {
            volume: VolumeName::New(name.clone()),
            driver: None,
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
            let chosen = Reach::Chosen(node.clone());
            return Ok(needs(std::iter::once(chosen).chain(made()).collect()));
        }
        let (own, others): (Vec<_>, Vec<_>) = self
            .volumes
            .values()
            .filter(|volume| could_serve(volume, name, key, claim))
            .partition(|volume| volume.claim.is_some());
        let chosen = if own.is_empty() { others } else { own };
        let of_volumes = |chosen: &[&Volume]| -> Option<Arc<[NodeSelectorTerm]>> {
            let lists: Option<Vec<_>> = chosen.iter().map(|it| it.alike.nodes.clone()).collect();
            Some(lists?.concat().into())
        };
        match (is_made, chosen.is_empty()) {
            (false, true) => Err(VolumeProblem::NoVolume(name.clone())),
            (false, false) if !class.waits_for_pod => Err(VolumeProblem::NotBound),
            (false, false) => Ok(needs(
                of_volumes(&chosen)
                    .map(Reach::Affinity)
                    .into_iter()
                    .collect(),
            )),
            (true, false) => {
                let both = of_volumes(&chosen).zip(class.topologies.clone());
                let both = both.map(|(a, b)| Reach::Affinity([a, b].concat().into()));
                Ok(needs(both.into_iter().collect()))
            }
            (true, true) => Ok(needs(made().collect())),
        }
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
        class: of_class,
        offers,
        labels,
        nodes: _,
        claim: _,
        is_available,
        deleting,
    } = &**alike;
    let VolumeClaimFacts {
        wants, selector, ..
    } = &*claim.alike;
    let is_free = match taken_by {
        Some(owner) => owner == key,
        None => *is_available,
    };
    let is_selected = || {
        let selector = selector.as_ref();
        selector.is_none_or(|selector| selects(selector, labels))
    };
    is_free
        && !deleting
        && **of_class == *class
        && offers.bytes >= wants.bytes
        && offers.is_block == wants.is_block
        && offers.access_modes.is_superset(&wants.access_modes)
        && is_selected()
}

/// Nodes in the volume's zone and region, and Nodes that are in none: kube-scheduler lets those pass.
fn zones(labels: &Labels) -> Option<Vec<NodeSelectorTerm>> {
    let keys = [ZONE, REGION, BETA_ZONE, BETA_REGION];
    let asked = keys.into_iter().filter_map(|key| {
        let values = labels.get(key)?.split("__");
        let of_nodes = match key {
            BETA_ZONE => ZONE,
            BETA_REGION => REGION,
            other => other,
        };
        Some(requirement(of_nodes, Operator::In, values))
    });
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return None;
    }
    let nowhere = keys.map(|key| requirement(key, Operator::DoesNotExist, [].into_iter()));
    let term = |match_expressions| NodeSelectorTerm {
        match_expressions,
        match_fields: Vec::new(),
    };
    Some(vec![term(asked), term(nowhere.to_vec())])
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
