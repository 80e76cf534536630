//! Which Nodes reach a pod's volumes: the toy scheduler's filter for PersistentVolumeClaims.

use serde_json::{Value, json};

use super::{
    Kube,
    object::{field_mut, items, meta_mut},
    placement::{Misfit, NodeView, Term, term},
    store::Key,
};

const CLAIMS: &str = "persistentvolumeclaims";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

/// The claims of one pod, as they are now.
pub(crate) struct PodVolumes {
    /// Alternatives, for each volume that is not reached everywhere.
    reach: Vec<Vec<Term>>,
    /// The Node that was chosen for volumes which are being made.
    chosen: Option<String>,
    /// Claims for which a Node is to be chosen.
    open: Vec<String>,
    /// Something waits for its volume.
    waits: bool,
}

/// Names of the claims that a pod's volumes use.
pub(crate) fn claim_names(pod: &str, spec: &Value) -> Vec<String> {
    let volumes = items(spec, "volumes").iter();
    let names = volumes.filter_map(|volume| {
        let name = volume["name"].as_str().unwrap_or_default();
        match volume["persistentVolumeClaim"]["claimName"].as_str() {
            Some(claim) => Some(claim.to_owned()),
            None if volume["ephemeral"].is_null() => None,
            None => Some(format!("{pod}-{name}")),
        }
    });
    names.collect()
}

impl PodVolumes {
    /// `Err`: no Node would do, in the scheduler's words.
    pub(crate) fn of(kube: &Kube, namespace: &str, claims: &[String]) -> Result<Self, String> {
        let mut volumes = Self {
            reach: Vec::new(),
            chosen: None,
            open: Vec::new(),
            waits: false,
        };
        for name in claims {
            let claim = kube.look(CLAIMS, namespace, name);
            let claim = claim.ok_or(format!("persistentvolumeclaim \"{name}\" not found"))?;
            if let Some(bound) = claim["spec"]["volumeName"].as_str() {
                let volume = kube.look("persistentvolumes", "", bound);
                let volume = volume.ok_or(format!("persistentvolume \"{bound}\" not found"))?;
                let required = &volume["spec"]["nodeAffinity"]["required"];
                if required.is_object() {
                    let terms = items(required, "nodeSelectorTerms").iter().map(term);
                    volumes.reach.push(terms.collect());
                }
                continue;
            }
            let class = claim["spec"]["storageClassName"]
                .as_str()
                .unwrap_or_default();
            let class = kube.look("storageclasses.storage.k8s.io", "", class);
            let waits = class.is_some_and(|it| it["volumeBindingMode"] == "WaitForFirstConsumer");
            if !waits {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            match claim["metadata"]["annotations"][SELECTED].as_str() {
                Some(node) => {
                    volumes.chosen = Some(node.to_owned());
                    volumes.waits = true;
                }
                None => volumes.open.push(name.clone()),
            }
        }
        Ok(volumes)
    }

    pub(crate) fn misfit(&self, node: &NodeView) -> Option<Misfit> {
        let is_other = self
            .chosen
            .as_ref()
            .is_some_and(|chosen| *chosen != node.name);
        let reaches = |terms: &Vec<Term>| terms.iter().any(|term| term.matches(node));
        (is_other || !self.reach.iter().all(reaches)).then_some(Misfit::VolumeConflict)
    }

    /// Asks for the volumes that are still to be made on this Node. `false`: there is nothing to wait for.
    pub(crate) fn choose(&self, kube: &Kube, pod: &Key, node: &str) -> bool {
        for name in &self.open {
            let Some(claim) = kube.look(CLAIMS, &pod.namespace, name) else {
                continue;
            };
            let mut claim = std::sync::Arc::unwrap_or_clone(claim);
            let annotations = meta_mut(&mut claim).entry("annotations");
            let annotations = annotations.or_insert_with(|| json!({}));
            *field_mut(annotations, SELECTED) = json!(node);
            // One that changed meanwhile comes back as a change.
            let _ = kube.write(CLAIMS, "", claim);
        }
        self.waits || !self.open.is_empty()
    }
}
