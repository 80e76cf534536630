//! CSI drivers and device plugins that are about to register on a Node. Before a driver has, the scheduler knows no attach
//! limit of its, and puts more pods there than the Node can hold volumes for.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::SignedDuration;

use super::fit::NodeProfile;
use crate::claim::Registering;
use crate::facts::{ClaimSpec, DaemonSetFacts, InstanceType, Taint, TaintEffect};
use crate::keys::UNREGISTERED_TAINT;
use crate::kubernetes::taints;
use crate::time::later;
use crate::world::{NodeView, World};

/// So long after the Node is Ready kproxide waits for them.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// The devices that the machine's instance type promises. Nothing about its Node: a drive may see that before the world does.
pub fn promised_devices(world: &World, spec: &ClaimSpec) -> Vec<Arc<str>> {
    let class = world.classes().get(&spec.class);
    let types = class.into_iter().flat_map(|class| &class.instance_types);
    let promised = types
        .filter(|size| size.name == spec.instance_type)
        .flat_map(InstanceType::extended);
    promised.map(|(name, _)| name.clone()).collect()
}

/// The drivers with a pod on the Node that have not registered.
pub fn registering(world: &World, node: &NodeView<'_>) -> Registering {
    let facts = node.facts;
    let sets = daemon_sets_on(world, node);
    // What does not tolerate the taint runs once it is gone. Perhaps the Node cannot be Ready without that.
    if !facts.ready && !sets.iter().all(|set| tolerates(set)) {
        return Registering::default();
    }
    let has_registered = |driver: &Arc<str>| {
        node.csi()
            .is_some_and(|csi| csi.drivers.contains_key(driver))
    };
    let running = sets.iter().filter(|set| tolerates(set));
    let drivers = running.flat_map(|set| &set.csi_drivers);
    let missing = drivers.filter(|driver| world.knows_driver(driver) && !has_registered(driver));
    Registering {
        drivers: missing.cloned().collect(),
        until: facts.ready.then(|| later(facts.ready_since, PATIENCE)),
    }
}

/// Those that run on the Node once it is in service.
fn daemon_sets_on<'w>(world: &'w World, node: &NodeView<'_>) -> Vec<&'w DaemonSetFacts> {
    let mut profile = NodeProfile::of(node);
    let mut lasting = node.facts.taints.clone();
    lasting.retain(|taint| !taints::is_passing(taint));
    profile.taints = Cow::Owned(lasting);
    profile.cordoned = false;
    let sets = world.daemon_sets().values();
    sets.filter(|set| profile.misfit(&set.spec).is_none())
        .collect()
}

fn tolerates(set: &DaemonSetFacts) -> bool {
    let unregistered = Taint {
        key: UNREGISTERED_TAINT.into(),
        value: "".into(),
        effect: TaintEffect::NoExecute,
    };
    taints::untolerated(&set.spec.tolerations, [&unregistered]).is_none()
}
