//! Storage, and what follows from it for each pod: the [`VolumeNeed`]s of its claims as they are now.
//!
//! They become part of the pod's spec. So pods whose volumes ask the same share a shape, and planning sees no claims.
//! The rules are those of kube-scheduler's plugins VolumeBinding, VolumeZone and VolumeRestrictions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::pods::Pods;
use crate::facts::{
    CsiDriverFacts, LabelSelector, Labels, NO_PROVISIONER, NodeSelectorTerm, Operator, PodClaim,
    PodFacts, READ_WRITE_ONCE_POD, Reach, Requirement, StorageCapacityFacts, StorageClassFacts,
    VolumeClaimFacts, VolumeFacts, VolumeName, VolumeNeed, VolumeProblem, VolumeWait,
};
use crate::ids::{ObjectKey, PodKey};
use crate::keys::{BETA_REGION, BETA_ZONE, REGION, ZONE};
use crate::selector::selects;

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

#[derive(Clone, Debug, Default)]
pub(super) struct Storage {
    pub(super) claims: BTreeMap<ObjectKey, VolumeClaimFacts>,
    pub(super) volumes: BTreeMap<Arc<str>, VolumeFacts>,
    pub(super) classes: BTreeMap<Arc<str>, StorageClassFacts>,
    pub(super) drivers: BTreeMap<Arc<str>, CsiDriverFacts>,
    pub(super) capacities: BTreeMap<ObjectKey, StorageCapacityFacts>,
    /// The claims of the pods that have any, and the other way round.
    of_pods: BTreeMap<PodKey, Vec<PodClaim>>,
    users: BTreeMap<ObjectKey, BTreeSet<PodKey>>,
    /// The claims that name a volume.
    by_volume: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// The volumes that are for Nodes with this value of some label, no other value.
    by_value: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// The claims whose pods a change may concern.
#[derive(Default)]
pub(super) struct Concerned {
    claims: BTreeSet<ObjectKey>,
    /// Those of this class too that are not bound yet.
    unbound_of: Option<Arc<str>>,
    /// Those of each class with this provisioner too that are not bound yet.
    unbound_by: Option<Arc<str>>,
}

impl Storage {
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    pub(super) fn claims_of(&self, pod: &PodKey) -> &[PodClaim] {
        self.of_pods.get(pod).map_or(&[], Vec::as_slice)
    }

    /// The claims of a pod from now on. Other pods with the same claims are concerned if only one may use them.
    pub(super) fn set_pod(&mut self, pod: &PodKey, claims: Vec<PodClaim>) -> Concerned {
        let key = |claim: &PodClaim| ObjectKey::new(&pod.namespace, &claim.name);
        if claims.is_empty() && !self.of_pods.contains_key(pod) {
            return Concerned::default();
        }
        let mut touched: BTreeSet<ObjectKey> = claims.iter().map(key).collect();
        for claim in self.of_pods.remove(pod).iter().flatten().map(key) {
            remove(&mut self.users, &claim, pod);
            touched.insert(claim);
        }
        for claim in claims.iter().map(key) {
            self.users.entry(claim).or_default().insert(pod.clone());
        }
        if !claims.is_empty() {
            self.of_pods.insert(pod.clone(), claims);
        }
        touched.retain(|claim| self.claims.get(claim).is_some_and(is_for_one_pod));
        Concerned {
            claims: touched,
            ..Concerned::default()
        }
    }

    pub(super) fn set_claim(
        &mut self,
        key: ObjectKey,
        facts: Option<VolumeClaimFacts>,
    ) -> Concerned {
        let old = self.claims.get(&key).and_then(|old| old.volume.clone());
        if let Some(volume) = old {
            remove(&mut self.by_volume, &volume, &key);
        }
        if let Some(volume) = facts.as_ref().and_then(|facts| facts.volume.clone()) {
            self.by_volume
                .entry(volume)
                .or_default()
                .insert(key.clone());
        }
        match facts {
            Some(facts) => self.claims.insert(key.clone(), facts),
            None => self.claims.remove(&key),
        };
        Concerned {
            claims: BTreeSet::from([key]),
            ..Concerned::default()
        }
    }

    pub(super) fn set_volume(&mut self, name: &str, facts: Option<VolumeFacts>) -> Concerned {
        let new = facts.clone();
        let old = match facts {
            Some(facts) => self.volumes.insert(name.into(), facts),
            None => self.volumes.remove(name),
        };
        let volume: Arc<str> = name.into();
        for requirement in old.iter().flat_map(only_values) {
            remove(&mut self.by_value, &requirement.values[0], &volume);
        }
        for requirement in new.iter().flat_map(only_values) {
            let value = requirement.values[0].clone();
            self.by_value
                .entry(value)
                .or_default()
                .insert(volume.clone());
        }
        let both = || [old.as_ref(), new.as_ref()].into_iter().flatten();
        let mut claims = self.by_volume.get(name).cloned().unwrap_or_default();
        claims.extend(both().filter_map(|volume| volume.claim.clone()));
        let free = both().find(|volume| volume.is_available);
        Concerned {
            claims,
            unbound_of: free.map(|volume| volume.class.clone()),
            unbound_by: None,
        }
    }

    pub(super) fn set_class(&mut self, name: &str, facts: Option<StorageClassFacts>) -> Concerned {
        match facts {
            Some(facts) => self.classes.insert(name.into(), facts),
            None => self.classes.remove(name),
        };
        Concerned {
            unbound_of: Some(name.into()),
            ..Concerned::default()
        }
    }

    pub(super) fn set_driver(&mut self, name: &str, facts: Option<CsiDriverFacts>) -> Concerned {
        match facts {
            Some(facts) => self.drivers.insert(name.into(), facts),
            None => self.drivers.remove(name),
        };
        Concerned {
            unbound_by: Some(name.into()),
            ..Concerned::default()
        }
    }

    pub(super) fn set_capacity(
        &mut self,
        key: ObjectKey,
        facts: Option<StorageCapacityFacts>,
    ) -> Concerned {
        let class = facts.as_ref().map(|facts| facts.class.clone());
        let old = match facts {
            Some(facts) => self.capacities.insert(key, facts),
            None => self.capacities.remove(&key),
        };
        // The class of such an object never changes.
        Concerned {
            unbound_of: class.or_else(|| old.map(|old| old.class)),
            ..Concerned::default()
        }
    }

    /// A volume with a claim that is for Nodes of this name alone. `labels`: those of the Node.
    pub(super) fn local_volume(&self, name: &str, labels: &Labels) -> Option<&Arc<str>> {
        let is_own = |requirement: &Requirement| {
            *requirement.values[0] == *name
                && labels
                    .get(&*requirement.key)
                    .is_some_and(|value| value == name)
        };
        self.by_value.get(name)?.iter().find(|volume| {
            let volume = self.volumes.get(*volume);
            volume.is_some_and(|volume| {
                volume.claim.is_some() && !volume.deleting && only_values(volume).any(is_own)
            })
        })
    }

    pub(super) fn pods_of(&self, concerned: &Concerned) -> BTreeSet<PodKey> {
        let Concerned {
            claims,
            unbound_of,
            unbound_by,
        } = concerned;
        // Most pods have no claim that others must know of.
        let any = unbound_of.is_some() || unbound_by.is_some();
        if claims.is_empty() && !any {
            return BTreeSet::new();
        }
        let is_meant = |class: &Arc<str>| {
            let provisioner = || self.classes.get(class).map(|class| &class.provisioner);
            unbound_of.as_ref() == Some(class)
                || (unbound_by.is_some() && provisioner() == unbound_by.as_ref())
        };
        let is_unbound = |key: &&ObjectKey| {
            let claim = self.claims.get(*key).filter(|claim| !claim.is_bound);
            claim.is_some_and(|claim| claim.class.as_ref().is_some_and(is_meant))
        };
        let unbound = self.users.keys().filter(|_| any).filter(is_unbound);
        let users = claims
            .iter()
            .chain(unbound)
            .filter_map(|claim| self.users.get(claim));
        users.flatten().cloned().collect()
    }

    /// What the volumes of a pod ask, as everything is now.
    pub(super) fn resolve(&self, pods: &Pods, key: &PodKey, pod: &mut PodFacts) {
        pod.spec.volumes = Vec::new();
        pod.spec.volume_wait = None;
        for claim in self.claims_of(key) {
            match self.needs_of(pods, key, pod, claim) {
                Ok(needs) => pod.spec.volumes.extend(needs),
                Err(why) => {
                    // Whatever becomes of the claim, a pod that runs keeps its volume attached.
                    let facts = self
                        .claims
                        .get(&ObjectKey::new(&key.namespace, &claim.name));
                    let bound = facts.filter(|facts| facts.is_bound);
                    let volume = bound.and_then(|facts| facts.volume.as_ref());
                    let needs = volume.map(|volume| self.bound(volume).unwrap_or_default());
                    pod.spec.volumes.extend(needs.into_iter().flatten());
                    let claim = claim.name.clone();
                    let wait = Box::new(VolumeWait { claim, why });
                    pod.spec.volume_wait.get_or_insert(wait);
                }
            }
        }
    }

    fn needs_of(
        &self,
        pods: &Pods,
        pod_key: &PodKey,
        pod: &PodFacts,
        claim: &PodClaim,
    ) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let key = ObjectKey::new(&pod_key.namespace, &claim.name);
        let facts = self.claims.get(&key).ok_or(VolumeProblem::ClaimMissing)?;
        if claim.is_ephemeral && facts.owner.as_ref() != Some(&pod.uid) {
            return Err(VolumeProblem::OfAnother);
        }
        if facts.is_lost {
            return Err(VolumeProblem::ClaimLost);
        }
        if facts.deleting {
            return Err(VolumeProblem::ClaimDeleting);
        }
        if is_for_one_pod(facts)
            && let Some(other) = self.other_user(pods, &key, pod_key)
        {
            return Err(VolumeProblem::InUse(other));
        }
        match &facts.volume {
            Some(volume) if facts.is_bound => self.bound(volume),
            Some(_) => Err(VolumeProblem::NotBound),
            None => self.unbound(&key, facts),
        }
    }

    /// Another pod that stands on a Node and uses the claim, or one that waits for it and comes first by name.
    fn other_user(&self, pods: &Pods, claim: &ObjectKey, own: &PodKey) -> Option<PodKey> {
        let is_placed = |key: &PodKey| {
            let pod = pods.get(key).filter(|pod| pod.is_alive());
            pod.map(|pod| pod.node().is_some())
        };
        let own_is_placed = is_placed(own) == Some(true);
        let users = self.users.get(claim)?.iter().filter(|key| *key != own);
        let mut blocking = users.filter(|key| match is_placed(key) {
            Some(true) => !own_is_placed || *key < own,
            Some(false) => !own_is_placed && *key < own,
            None => false,
        });
        blocking.next().cloned()
    }

    fn bound(&self, name: &Arc<str>) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let missing = || VolumeProblem::VolumeMissing(name.clone());
        let volume = self.volumes.get(name).ok_or_else(missing)?;
        if !UNDERSTOOD.contains(&&*volume.source) {
            return Err(VolumeProblem::Unknown(volume.source.clone()));
        }
        let of_zone = zones(&volume.labels).map(|terms| VolumeNeed {
            volume: VolumeName::Of(name.clone()),
            driver: None,
            reach: Some(Reach::Zone(terms)),
        });
        let whole = VolumeNeed {
            volume: VolumeName::Of(name.clone()),
            driver: volume.driver.clone(),
            reach: volume.nodes.clone().map(Reach::Affinity),
        };
        Ok(std::iter::once(whole).chain(of_zone).collect())
    }

    fn unbound(
        &self,
        key: &ObjectKey,
        claim: &VolumeClaimFacts,
    ) -> Result<Vec<VolumeNeed>, VolumeProblem> {
        let name = claim.class.as_ref().filter(|name| !name.is_empty());
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
                .chain(self.room_for(name, class, claim.wants.bytes))
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
        let of_volumes = |chosen: &[&VolumeFacts]| -> Option<Vec<NodeSelectorTerm>> {
            let lists: Option<Vec<_>> = chosen.iter().map(|it| it.nodes.clone()).collect();
            Some(lists?.concat())
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
                let both = both.map(|(a, b)| Reach::Affinity([a, b].concat()));
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

fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}

/// The requirements of a volume's node affinity that name one value. A volume with several terms may be for several Nodes.
fn only_values(volume: &VolumeFacts) -> impl Iterator<Item = &Requirement> {
    let terms = volume.nodes.as_deref().filter(|terms| terms.len() == 1);
    let requirements = terms
        .into_iter()
        .flatten()
        .flat_map(|term| &term.match_expressions);
    requirements.filter(|one| one.operator == Operator::In && one.values.len() == 1)
}

fn is_for_one_pod(claim: &VolumeClaimFacts) -> bool {
    claim.wants.access_modes.contains(READ_WRITE_ONCE_POD)
}

/// The volume could be bound to the claim.
fn could_serve(
    volume: &VolumeFacts,
    class: &str,
    key: &ObjectKey,
    claim: &VolumeClaimFacts,
) -> bool {
    let VolumeFacts {
        source: _,
        driver: _,
        class: of_class,
        offers,
        labels,
        nodes: _,
        claim: taken_by,
        is_available,
        deleting,
    } = volume;
    let is_free = match taken_by {
        Some(owner) => owner == key,
        None => *is_available,
    };
    let is_selected = || {
        let selector = claim.selector.as_ref();
        selector.is_none_or(|selector| selects(selector, labels))
    };
    is_free
        && !deleting
        && **of_class == *class
        && offers.bytes >= claim.wants.bytes
        && offers.is_block == claim.wants.is_block
        && offers.access_modes.is_superset(&claim.wants.access_modes)
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
