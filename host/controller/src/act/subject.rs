//! What surrounds a claim when its drive begins, taken from the world.

use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::claim::{
    GuestHint, Hint, NodeLook, Observed, Phase, Settings, Subject, labels_differ, looks, next,
    ready_differs,
};
use kproxide_planner::facts::{
    ClaimFacts, ClaimSpec, ClassFacts, Drive, InventoryFacts, PoolFacts,
};
use kproxide_planner::guard::anchor;
use kproxide_planner::ids::{ClaimName, NodeName, StorageName};
use kproxide_planner::plan::Verdict;
use kproxide_planner::planning::{
    ends_with_machine, keepers, moved, promised_devices, registering,
};
use kproxide_planner::world::{Joined, World};

use super::Context;
use super::pause::Pause;
use kproxide_kube::convert::defaults;

/// Everything that a drive needs and that does not change while it runs.
pub(super) struct Surroundings {
    pub(super) settings: Settings,
    /// The API's defaults, if it is gone.
    pub(super) pool: PoolFacts,
    pub(super) hint: Hint,
    /// The Nodes that the world matches with the claim: names under which to look.
    pub(super) nodes: Vec<NodeName>,
    /// Which Nodes are machines that have joined.
    pub(super) joined: Arc<Joined>,
    /// `None`: the class is gone.
    pub(super) class: Option<Arc<ClassFacts>>,
    /// The storage of its template's cloud-init drive, until it is cloned.
    pub(super) cloud_init: Option<StorageName>,
}

impl Surroundings {
    /// `None`: its ProxmoxCluster is gone, so its VM cannot be read.
    pub(super) fn of_claim(
        name: &ClaimName,
        claim: &ClaimFacts,
        world: &World,
        context: &Context,
    ) -> Option<Self> {
        let mut surroundings = Self::of_spec(&claim.spec, world, context)?;
        if claim.status.phase == Phase::Pending || claim.status.phase == Phase::Launching {
            surroundings.cloud_init = cloud_init(&claim.spec, world);
        }
        let node = world.node_of(claim);
        // Later than that no taint waits for drivers.
        let joining =
            node.filter(|_| matches!(claim.status.phase, Phase::Launched | Phase::Registered));
        let hypervisor = claim.hypervisor();
        let cluster = world.clusters().get(&claim.spec.cluster);
        let is_declared = cluster.is_some_and(|cluster| cluster.off.contains(hypervisor));
        let inventory = world.inventories().get(&claim.spec.cluster);
        let answers = inventory.is_none_or(|inventory| inventory.answers(hypervisor));
        let is_another = node.map(|node| &node.facts.uid) != claim.status.node_uid.as_ref();
        let server_is_off = inventory.is_some_and(|inventory| inventory.is_off(hypervisor));
        let moved = node.and_then(|node| moved(world, claim, &node));
        let differs = node.is_some_and(|node| {
            let sets_zone = moved.as_ref().is_some_and(|moved| moved.keeps.is_none());
            let relabels = labels_differ(name, &claim.spec, node.facts);
            let is_other = ready_differs(&claim.status, node.facts, server_is_off, moved.as_ref());
            sets_zone || relabels || is_other
        });
        surroundings.hint = Hint {
            declared_off: is_declared && !answers,
            server_is_off,
            node_changed: is_another || differs,
            moved,
            registering: joining
                .map(|node| registering(world, &node))
                .unwrap_or_default(),
            devices: std::mem::take(&mut surroundings.hint.devices),
            ends_with_it: ends_with_machine(world, claim),
            keepers: keepers(world, claim),
            ..hint(claim, inventory)
        };
        let nodes = world.nodes_of(claim).into_iter();
        surroundings.nodes = nodes.map(|node| node.name().clone()).collect();
        Some(surroundings)
    }

    /// `None`: its pool, class or cluster is gone, so it is not launched.
    pub(super) fn of_launch(spec: &ClaimSpec, world: &World, context: &Context) -> Option<Self> {
        let mut surroundings = Self::of_spec(spec, world, context)?;
        surroundings.cloud_init = cloud_init(spec, world);
        let known = surroundings.class.is_some() && world.pools().contains_key(&spec.pool);
        known.then_some(surroundings)
    }

    /// An adopted machine exists, even if its pool and class are gone.
    pub(super) fn of_adoption(spec: &ClaimSpec, world: &World, context: &Context) -> Option<Self> {
        Self::of_spec(spec, world, context)
    }

    fn of_spec(spec: &ClaimSpec, world: &World, context: &Context) -> Option<Self> {
        let cluster = world.clusters().get(&spec.cluster)?;
        let class = world.classes().get(&spec.class);
        let rules = class.map_or(&*defaults::CLASS, |class| class);
        let settings = Settings {
            vmid_first: cluster.vmid_range.first,
            vmid_last: cluster.vmid_range.last,
            pool: cluster.pool.clone(),
            timeouts: rules.timeouts,
            join: rules.join.way(),
            keep_failed: rules.join.keeps_failed(),
            provider_id: rules.provider_id,
            shutdown_timeout: context.rules.shutdown_timeout,
            quarantine: context.rules.quarantine,
            least_priority: world.host().served.least_priority,
            armed_at: match anchor::hold(world, world.ledger(), &spec.cluster) {
                Some(_) => None,
                None => world.host().armed_at,
            },
        };
        Some(Self {
            settings,
            pool: world
                .pools()
                .get(&spec.pool)
                .unwrap_or(&defaults::POOL)
                .clone(),
            hint: Hint {
                devices: promised_devices(world, spec),
                ..Hint::default()
            },
            nodes: Vec::new(),
            joined: world.joined().clone(),
            class: class.cloned(),
            cloud_init: None,
        })
    }
}

fn cloud_init(spec: &ClaimSpec, world: &World) -> Option<StorageName> {
    let (clone, inventory) = (
        spec.clone.as_ref()?,
        world.inventories().get(&spec.cluster)?,
    );
    let mut templates = inventory.templates.values().flatten();
    let template = templates.find(|it| it.vmid == clone.vmid)?;
    let mut disks = template.disks.iter();
    let drive = disks.find(|disk| disk.drive == Drive::CloudInit)?;
    Some(drive.storage.clone())
}

/// What the last inventory said of the machine.
fn hint(claim: &ClaimFacts, inventory: Option<&InventoryFacts>) -> Hint {
    let Some(inventory) = inventory.filter(|inventory| inventory.reachable) else {
        return Hint::default();
    };
    let guest = inventory.guests.get(&claim.spec.vmid);
    Hint {
        guest: GuestHint::of(claim, inventory),
        hypervisor: guest.map(|guest| guest.hypervisor.clone()),
        ..Hint::default()
    }
}

/// The decision, if what the world knows is enough to see that the claim has to wait. That is so for most claims, most
/// of the time. `None`: `act` has to look.
///
/// The world can stand in only for a look at the Node, and only to say that there is nothing to do yet.
pub(super) fn without_looking(
    name: &ClaimName,
    claim: &ClaimFacts,
    verdict: &Verdict,
    surroundings: &Surroundings,
    world: &World,
    now: Timestamp,
) -> Option<Pause> {
    let subject = Subject {
        name,
        claim,
        verdict,
        settings: &surroundings.settings,
        pool: &surroundings.pool,
        hint: &surroundings.hint,
    };
    let mut wanted = looks(&subject, None);
    let mut observed = Observed::default();
    if wanted.node {
        wanted.node = false;
        let nodes = world.nodes_of(claim);
        observed.node = Some(match &nodes[..] {
            [] => NodeLook::Absent,
            [node] => NodeLook::One(node.name().clone(), Box::new(node.facts.clone())),
            several => NodeLook::Several(several.iter().map(|node| node.name().clone()).collect()),
        });
    }
    if wanted != kproxide_planner::claim::Looks::default() {
        return None;
    }
    Pause::of(next(&subject, &observed, now)).ok()
}
