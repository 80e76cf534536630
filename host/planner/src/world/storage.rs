//! Storage, and what follows from it for each pod: the needs of its volumes as its claims are now.
//!
//! They become part of the pod's spec. So pods whose volumes ask the same share a shape, and planning sees no claims.

mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::pairs::Pairs;
use super::shared::Shared;
use crate::facts::{
    CsiDriverFacts, Labels, Operator, PodClaim, READ_WRITE_ONCE_POD, Requirement,
    StorageCapacityFacts, StorageClassFacts, VolumeClaimFacts, VolumeFacts,
};
use crate::ids::{NodeName, ObjectKey, PodKey};

#[derive(Clone, Debug, Default)]
pub(super) struct Storage {
    claims: BTreeMap<ObjectKey, Claim>,
    volumes: BTreeMap<Arc<str>, Volume>,
    pub(super) classes: BTreeMap<Arc<str>, StorageClassFacts>,
    pub(super) drivers: BTreeMap<Arc<str>, CsiDriverFacts>,
    pub(super) capacities: BTreeMap<ObjectKey, StorageCapacityFacts>,
    /// The claims of the pods that have any, and the other way round.
    of_pods: BTreeMap<PodKey, Box<[PodClaim]>>,
    users: Pairs<ObjectKey, PodKey>,
    /// The claims that name a volume.
    by_volume: Pairs<Arc<str>, ObjectKey>,
    /// The volumes that are for Nodes with this value of some label, no other value.
    by_value: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Names that several objects have: claim, volume and pod name each other.
    names: Shared<str>,
    claim_facts: Shared<VolumeClaimFacts>,
    volume_facts: Shared<VolumeFacts>,
}

/// A PersistentVolumeClaim. There may be 10,000 of them, and most are alike in all but a few names.
#[derive(Clone, Debug)]
struct Claim {
    volume: Option<Arc<str>>,
    selected_node: Option<NodeName>,
    /// Without what is above.
    alike: Arc<VolumeClaimFacts>,
}

/// A PersistentVolume, in the same way.
#[derive(Clone, Debug)]
struct Volume {
    claim: Option<ObjectKey>,
    alike: Arc<VolumeFacts>,
}

/// The claims whose pods a change may concern.
#[derive(Default)]
pub(super) struct Concerned {
    claims: BTreeSet<ObjectKey>,
    /// Those of this class too that have no volume yet, or none any more.
    unbound_of: Option<Arc<str>>,
    /// Those of each class with this provisioner too, likewise.
    unbound_by: Option<Arc<str>>,
}

impl Storage {
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    pub(super) fn claims_of(&self, pod: &PodKey) -> &[PodClaim] {
        self.of_pods.get(pod).map_or(&[], |claims| claims)
    }

    /// Every PersistentVolumeClaim, as it was told.
    pub(super) fn claims(&self) -> impl Iterator<Item = (ObjectKey, VolumeClaimFacts)> {
        self.claims.iter().map(|(key, claim)| {
            let facts = VolumeClaimFacts {
                volume: claim.volume.clone(),
                selected_node: claim.selected_node.clone(),
                ..VolumeClaimFacts::clone(&claim.alike)
            };
            (key.clone(), facts)
        })
    }

    /// Every PersistentVolume, as it was told.
    pub(super) fn volumes(&self) -> impl Iterator<Item = (Arc<str>, VolumeFacts)> {
        self.volumes.iter().map(|(name, volume)| {
            let facts = VolumeFacts {
                claim: volume.claim.clone(),
                ..VolumeFacts::clone(&volume.alike)
            };
            (name.clone(), facts)
        })
    }

    /// What is attached of a PersistentVolume, and the CSI driver that does it.
    pub(super) fn attached<'a>(
        &'a self,
        volume: &'a Arc<str>,
    ) -> Option<(&'a Arc<str>, &'a Arc<str>)> {
        let facts = &self.volumes.get(volume)?.alike;
        Some((
            facts.handle.as_ref().unwrap_or(volume),
            facts.driver.as_ref()?,
        ))
    }

    /// The claims of a pod from now on. Other pods with the same claims are concerned if only one may use them.
    pub(super) fn set_pod(&mut self, pod: &PodKey, mut claims: Vec<PodClaim>) -> Concerned {
        if claims.is_empty() && !self.of_pods.contains_key(pod) {
            return Concerned::default();
        }
        for claim in &mut claims {
            claim.name = self.names.share(claim.name.clone());
        }
        let key = |claim: &PodClaim| claim_key(pod, claim);
        let mut touched: BTreeSet<ObjectKey> = claims.iter().map(key).collect();
        for claim in self.of_pods.remove(pod).iter().flatten().map(key) {
            self.users.remove(&claim, pod);
            touched.insert(claim);
        }
        for claim in claims.iter().map(key) {
            self.users.insert(claim, pod.clone());
        }
        if !claims.is_empty() {
            self.of_pods.insert(pod.clone(), claims.into());
        }
        touched.retain(|claim| self.claims.get(claim).is_some_and(Claim::is_for_one_pod));
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
        let key = self.shared_key(key);
        let new = facts.map(|mut facts| Claim {
            volume: facts.volume.take().map(|name| self.names.share(name)),
            selected_node: facts
                .selected_node
                .take()
                .map(|node| NodeName(self.names.share(node.0))),
            alike: self.claim_facts.share(facts.into()),
        });
        let volume = new.as_ref().and_then(|claim| claim.volume.clone());
        let old = match new {
            Some(claim) => self.claims.insert(key.clone(), claim),
            None => self.claims.remove(&key),
        };
        if let Some(volume) = old.and_then(|claim| claim.volume) {
            self.by_volume.remove(&volume, &key);
        }
        if let Some(volume) = volume {
            self.by_volume.insert(volume, key.clone());
        }
        Concerned {
            claims: BTreeSet::from([key]),
            ..Concerned::default()
        }
    }

    pub(super) fn set_volume(&mut self, name: &str, facts: Option<VolumeFacts>) -> Concerned {
        let name = self.names.share(name.into());
        let new = facts.map(|mut facts| Volume {
            claim: facts.claim.take().map(|key| self.shared_key(key)),
            alike: self.volume_facts.share(facts.into()),
        });
        let old = match new.clone() {
            Some(volume) => self.volumes.insert(name.clone(), volume),
            None => self.volumes.remove(&name),
        };
        for requirement in old.iter().flat_map(|old| only_values(&old.alike)) {
            remove(&mut self.by_value, &requirement.values[0], &name);
        }
        for requirement in new.iter().flat_map(|new| only_values(&new.alike)) {
            let value = requirement.values[0].clone();
            self.by_value.entry(value).or_default().insert(name.clone());
        }
        let both = || [old.as_ref(), new.as_ref()].into_iter().flatten();
        let mut claims: BTreeSet<_> = self.by_volume.of(&name).cloned().collect();
        claims.extend(both().filter_map(|volume| volume.claim.clone()));
        let free = both().find(|volume| volume.alike.is_available);
        Concerned {
            claims,
            unbound_of: free.map(|volume| volume.alike.class.clone()),
            unbound_by: None,
        }
    }

    fn shared_key(&mut self, key: ObjectKey) -> ObjectKey {
        ObjectKey {
            namespace: self.names.share(key.namespace),
            name: self.names.share(key.name),
        }
    }

    /// A pod's namespace, as others have it.
    pub(super) fn shared_name(&mut self, name: Arc<str>) -> Arc<str> {
        self.names.share(name)
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
                let Volume { claim, alike } = volume;
                claim.is_some() && !alike.deleting && only_values(alike).any(is_own)
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
        // A claim whose volume is gone counts by its class too.
        let is_open = |claim: &&Claim| {
            let volume = claim.volume.as_ref();
            let is_there = volume.is_some_and(|volume| self.volumes.contains_key(volume));
            !(claim.alike.is_bound && is_there)
        };
        let is_unbound = |key: &ObjectKey| {
            let unbound = self.claims.get(key).filter(is_open);
            unbound.is_some_and(|claim| claim.alike.class.as_ref().is_some_and(is_meant))
        };
        let all = self.users.iter().filter(|_| any);
        let of_unbound = all.filter(|(claim, _)| is_unbound(claim));
        let users = claims.iter().flat_map(|claim| self.users.of(claim));
        users
            .chain(of_unbound.map(|(_, pod)| pod))
            .cloned()
            .collect()
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

impl Claim {
    fn is_for_one_pod(&self) -> bool {
        self.alike.wants.access_modes.contains(READ_WRITE_ONCE_POD)
    }
}

fn claim_key(pod: &PodKey, claim: &PodClaim) -> ObjectKey {
    ObjectKey {
        namespace: pod.namespace.clone(),
        name: claim.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 10,000 claims the World shall take little more than their names.
    #[test]
    fn what_claims_and_volumes_have_in_common_is_there_once() {
        let entries = size_of::<(ObjectKey, Claim)>() + size_of::<(Arc<str>, Volume)>();
        assert!(entries <= 128, "{entries}");

        let key = |index: u32| ObjectKey::new("default", &format!("data-{index}"));
        let mut storage = Storage::default();
        for index in 0..2 {
            let volume = VolumeFacts {
                source: "csi".into(),
                claim: Some(key(index)),
                ..VolumeFacts::default()
            };
            storage.set_volume(&format!("pv-{index}"), Some(volume));
            let claims = vec![PodClaim {
                name: key(index).name,
                is_ephemeral: false,
            }];
            storage.set_pod(&ObjectKey::new("default", &format!("db-{index}")), claims);
            let claim = VolumeClaimFacts {
                class: Some("fast".into()),
                volume: Some(format!("pv-{index}").into()),
                ..VolumeClaimFacts::default()
            };
            storage.set_claim(key(index), Some(claim));
        }
        let claims: Vec<_> = storage.claims.values().collect();
        assert!(Arc::ptr_eq(&claims[0].alike, &claims[1].alike));
        let volumes: Vec<_> = storage.volumes.iter().collect();
        assert!(Arc::ptr_eq(&volumes[0].1.alike, &volumes[1].1.alike));

        let name = &storage.claims.keys().next().unwrap().name;
        let of_volume = &volumes[0].1.claim.as_ref().unwrap().name;
        let of_pod = &storage.of_pods.values().next().unwrap()[0].name;
        assert!(Arc::ptr_eq(name, of_volume) && Arc::ptr_eq(name, of_pod));
        assert!(Arc::ptr_eq(
            claims[0].volume.as_ref().unwrap(),
            volumes[0].0
        ));
    }
}
