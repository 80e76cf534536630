//! What provisioners and the controller of volumes would do with claims that no cluster has seen yet.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/>. Where claim or volume names the other one, the two
//! are bound. Else the scheduler chooses for a claim whose class waits for a pod, and others are bound at once.

use std::collections::BTreeMap;

use kproxide_planner::facts::{StorageClassFacts, VolumeClaimFacts, VolumeFacts};
use kproxide_planner::ids::ObjectKey;
use kproxide_planner::keys;
use kproxide_planner::kubernetes::selector::selects;
use serde_json::{Value, json};

use super::Object;
use kproxide_kube::convert::{decoded, storage_class_facts, volume_claim_facts, volume_facts};
use kproxide_kube::view::{StorageClassView, VolumeClaimView, VolumeView};

struct Claim {
    index: usize,
    key: ObjectKey,
    facts: VolumeClaimFacts,
}

struct Volume {
    index: usize,
    facts: VolumeFacts,
}

struct Class {
    facts: StorageClassFacts,
    /// Of the volumes that are made of it.
    affinity: Value,
}

/// Binds the claims that are new, and adds the volumes that provisioners make at once. What is assumed comes back in
/// words, each with the claims that it is about.
pub fn bind(
    objects: &mut Vec<Object>,
    is_new: impl Fn(&Object) -> bool,
) -> BTreeMap<String, Vec<String>> {
    let (mut claims, mut volumes, mut classes) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (index, object) in objects.iter().enumerate() {
        match object.kind() {
            "PersistentVolumeClaim" if is_new(object) => {
                let read = decoded::<VolumeClaimView>(object.kind(), &object.value).ok();
                let facts = read.map(|view| volume_claim_facts(&view));
                let facts = facts.filter(|facts| !facts.is_bound && !facts.deleting);
                let key = ObjectKey::new(object.namespace(), object.name());
                claims.extend(facts.map(|facts| Claim { index, key, facts }));
            }
            "PersistentVolume" => {
                let read = decoded::<VolumeView>(object.kind(), &object.value).ok();
                let facts = read.map(|view| volume_facts(&view));
                volumes.extend(facts.map(|facts| Volume { index, facts }));
            }
            "StorageClass" => {
                let read = decoded::<StorageClassView>(object.kind(), &object.value).ok();
                let class = read.map(|view| Class {
                    facts: storage_class_facts(&view),
                    affinity: affinity(&object.value),
                });
                classes.extend(class.map(|class| (object.name().to_owned(), class)));
            }
            _ => {}
        }
    }
    let mut assumed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // No claim takes a volume from another one that names it.
    let (named, others): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| {
        claim.facts.volume.is_some() || volumes.iter().any(|volume| claim.is_named_by(volume))
    });
    for claim in named.into_iter().chain(others) {
        let class_name = claim.facts.class.as_deref().unwrap_or_default();
        let class = classes.get(class_name);
        let at_once = class.is_none_or(|class| !class.facts.waits_for_pod);
        let (volume, what) = if let Some(volume) = claim.choose(objects, &mut volumes, at_once) {
            let what =
                "these new PersistentVolumeClaims are bound to a PersistentVolume of the input";
            (volume, what.to_owned())
        } else if let Some(class) = class
            && claim.facts.volume.is_none()
            && at_once
            && class.facts.is_provisioned()
        {
            objects.push(claim.made(&objects[claim.index], class_name, class));
            let reach = match class.facts.topologies {
                Some(_) => "that the Nodes of its allowedTopologies reach",
                None => "that every Node reaches",
            };
            let by = &class.facts.provisioner;
            let what = format!(
                "{by} has made a volume {reach} for each of these new PersistentVolumeClaims of StorageClass {class_name}"
            );
            (objects.len() - 1, what)
        } else {
            continue;
        };
        claim.bind_to(volume, objects);
        assumed.entry(what).or_default().push(claim.key.to_string());
    }
    assumed
}

impl Claim {
    fn is_named_by(&self, volume: &Volume) -> bool {
        let Volume { facts, .. } = volume;
        facts.claim.as_ref() == Some(&self.key)
            && (facts.claim_uid.is_none() || facts.claim_uid == self.facts.uid)
    }

    /// Takes the volume that the claim names, the one that names the claim, or the smallest that serves it.
    fn choose(
        &self,
        objects: &[Object],
        volumes: &mut Vec<Volume>,
        at_once: bool,
    ) -> Option<usize> {
        let VolumeClaimFacts {
            class,
            wants,
            selector,
            volume: named,
            ..
        } = &self.facts;
        let serves = |volume: &Volume| {
            let Volume { index, facts } = volume;
            let is_named = named.as_deref() == Some(objects[*index].name());
            let is_meant = match named {
                Some(_) => is_named && (facts.claim.is_none() || self.is_named_by(volume)),
                None => {
                    let selector = selector.as_ref();
                    let is_selected = selector.is_none_or(|it| selects(it, &facts.labels));
                    let is_free = facts.claim.is_none() && facts.is_available;
                    self.is_named_by(volume) || (at_once && is_free && is_selected)
                }
            };
            is_meant
                && !facts.deleting
                && *facts.class == *class.as_deref().unwrap_or_default()
                && facts.offers.serve(wants)
                && facts.offers.access_modes.is_superset(&wants.access_modes)
        };
        let those = volumes.iter().enumerate().filter(|(_, it)| serves(it));
        let best = those.min_by_key(|(_, it)| (!self.is_named_by(it), it.facts.offers.bytes));
        let place = best.map(|(place, _)| place)?;
        Some(volumes.swap_remove(place).index)
    }

    /// What a provisioner makes for the claim.
    fn made(&self, claim: &Object, class_name: &str, class: &Class) -> Object {
        let ObjectKey { namespace, name } = &self.key;
        let spec = &claim.value["spec"];
        claim.derived(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pvc-{namespace}-{name}")},
            "spec": {
                "storageClassName": class_name, "capacity": spec["resources"]["requests"],
                "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
                "csi": {"driver": class.facts.provisioner}, "nodeAffinity": class.affinity,
            },
        }))
    }

    fn bind_to(&self, volume: usize, objects: &mut [Object]) {
        let name = objects[volume].name().to_owned();
        let claim = &mut objects[self.index].value;
        claim["spec"]["volumeName"] = name.into();
        claim["metadata"]["annotations"][keys::BIND_COMPLETED] = "yes".into();
        claim["status"]["phase"] = "Bound".into();
        let ObjectKey { namespace, name } = &self.key;
        let volume = &mut objects[volume].value;
        volume["spec"]["claimRef"] =
            json!({"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name});
        volume["status"]["phase"] = "Bound".into();
    }
}

/// Volumes of a class are reached where the class allows them to be made.
fn affinity(class: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let term = |term: Value| {
        let labels = list(&term["matchLabelExpressions"]).into_iter();
        let labels = labels
            .map(|label| json!({"key": label["key"], "operator": "In", "values": label["values"]}));
        json!({"matchExpressions": labels.collect::<Vec<_>>()})
    };
    let terms = list(&class["allowedTopologies"]);
    match terms.is_empty() {
        true => Value::Null,
        false => {
            json!({"required": {"nodeSelectorTerms": terms.into_iter().map(term).collect::<Vec<_>>()}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::documents;

    const CLASSES: &str = "
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: waits}, provisioner: d, volumeBindingMode: WaitForFirstConsumer}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: zonal}
provisioner: d
allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: by-hand}, provisioner: kubernetes.io/no-provisioner}
";

    fn claim(name: &str, spec: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, {spec}}}}}\n"
        )
    }

    fn volume(name: &str, size: &str, spec: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce], capacity: {{storage: {size}}}, nfs: {{}}, {spec}}}, status: {{phase: Available}}}}\n"
        )
    }

    /// Each claim that is bound, with its volume.
    fn bound(text: &str) -> (Vec<(String, String)>, Vec<Object>) {
        let mut objects = documents("f.yaml", &(CLASSES.to_owned() + text), "default").unwrap();
        bind(&mut objects, |object| !object.is_stored());
        let claims = objects
            .iter()
            .filter(|it| it.kind() == "PersistentVolumeClaim");
        let pairs = claims.filter_map(|claim| {
            let volume = claim.value["spec"]["volumeName"].as_str()?.to_owned();
            let annotations = &claim.value["metadata"]["annotations"];
            (annotations[keys::BIND_COMPLETED] == "yes").then(|| (claim.name().to_owned(), volume))
        });
        (pairs.collect(), objects)
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        bound(text).0
    }

    fn pair(claim: &str, volume: &str) -> (String, String) {
        (claim.to_owned(), volume.to_owned())
    }

    #[test]
    fn v8_a_class_that_binds_at_once_has_its_volumes() {
        let (pairs, objects) = bound(&claim("a", "storageClassName: zonal"));
        assert_eq!(pairs, [pair("a", "pvc-default-a")]);
        let made = objects.last().unwrap();
        let term =
            json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
        let terms = &made.value["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(*terms, json!([term]));
        assert_eq!(made.value["spec"]["claimRef"]["name"], "a");
        let others = ["waits", "by-hand", "unknown"];
        for class in others.map(|class| format!("storageClassName: {class}")) {
            assert_eq!(bound(&claim("a", &class)).0, [], "{class}");
        }
        // A cluster has seen it: its provisioner has had its time.
        let seen = claim("a", "storageClassName: zonal").replace("name: a", "name: a, uid: u");
        assert_eq!(bound(&seen).0, []);
    }

    #[test]
    fn v8_a_claim_gets_the_volume_that_is_meant_for_it() {
        let two = volume("large", "5Gi", "") + &volume("small", "2Gi", "");
        let any = two.clone() + &claim("a", "storageClassName: ''");
        assert_eq!(pairs(&any), [pair("a", "small")]);
        let b = claim("b", "storageClassName: '', volumeName: small");
        let both = [pair("a", "large"), pair("b", "small")];
        assert_eq!(pairs(&(any.clone() + &b)), both, "b names its volume");
        let own = volume("own", "9Gi", "claimRef: {namespace: default, name: a}");
        assert_eq!(pairs(&(any.clone() + &own)), [pair("a", "own")]);
        let of_earlier = own.replace("name: a}", "name: a, uid: u}");
        assert_eq!(pairs(&(any + &of_earlier)), [pair("a", "small")]);
        // The scheduler chooses among the volumes of a class that waits.
        let waits = "storageClassName: waits";
        let free = volume("v", "1Gi", waits) + &claim("a", waits);
        assert_eq!(pairs(&free), []);
        let named = volume("v", "1Gi", waits) + &claim("a", &format!("{waits}, volumeName: v"));
        assert_eq!(pairs(&named), [pair("a", "v")]);
        let too_small = named.replace("storage: 1Gi}, nfs", "storage: 1Mi}, nfs");
        assert_eq!(pairs(&too_small), []);
    }
}
