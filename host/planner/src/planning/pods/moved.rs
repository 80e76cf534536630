//! A VM that has moved to another server than the label `topology.kubernetes.io/zone` of its Node says.

use std::borrow::Cow;
use std::sync::Arc;

use super::fit::NodeProfile;
use super::volumes;
use crate::claim::{KeepsZone, Moved};
use crate::facts::{ClaimFacts, Labels, ProviderId, VolumeName};
use crate::keys::{BETA_ZONE, ZONE};
use crate::world::{NodeView, PodView, World};

/// `None`: the label is true, or it is no name of a server.
pub fn moved(world: &World, claim: &ClaimFacts, node: &NodeView<'_>) -> Option<Moved> {
    let (from, to) = (node.facts.labels.get(ZONE)?, claim.hypervisor());
    if **from == **to {
        return None;
    }
    let inventory = world.inventories().get(&claim.spec.cluster);
    let is_server = **from == *claim.spec.hypervisor
        || inventory.is_some_and(|inventory| inventory.hypervisors.contains_key(from.as_str()));
    let is_chosen = (claim.spec.labels.get(ZONE)).is_some_and(|it| **it != *claim.spec.hypervisor);
    if !is_server || is_chosen {
        return None;
    }
    let class = world.classes().get(&claim.spec.class);
    // Cloud controllers write the old label too, and kproxide does not.
    let is_controllers = node.facts.labels.contains_key(BETA_ZONE)
        || class.is_some_and(|class| class.provider_id == ProviderId::Ccm);
    let keeps = match (is_controllers, bound(node, to)) {
        (true, _) => Some(KeepsZone::CloudController),
        (false, Some(volume)) => Some(KeepsZone::Volume(volume)),
        (false, None) => None,
    };
    Some(Moved {
        from: from.as_str().into(),
        to: to.clone(),
        keeps,
    })
}

/// The labels of the Node, once they say where its VM is.
pub(in crate::planning) fn zone_set(node: &NodeView<'_>, to: &str) -> Labels {
    let mut labels = node.facts.labels.clone();
    labels.insert(ZONE.to_owned(), to.to_owned());
    labels
}

/// A PersistentVolume of a pod there that the Node would reach no more.
fn bound(node: &NodeView<'_>, to: &str) -> Option<Arc<str>> {
    let now = NodeProfile::of(node);
    let then = NodeProfile {
        labels: Cow::Owned(zone_set(node, to)),
        ..now.clone()
    };
    let pods = node.pods().filter(PodView::is_alive);
    let needs = pods.flat_map(|pod| &pod.spec().volumes);
    let mut lost =
        needs.filter(|need| volumes::reaches(need, &now) && !volumes::reaches(need, &then));
    lost.find_map(|need| match &need.volume {
        VolumeName::Of(name) => Some(name.clone()),
        VolumeName::New(_) => None,
    })
}
