//! Machines that were made before their pool's labels or their type's size changed. They stay as they are.

use super::decorate;
use crate::facts::{ClaimFacts, ClassFacts, Phase, PoolFacts};
use crate::ids::PoolName;
use crate::world::World;

/// How many machines of a pool are not as its pool and class say now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outdated {
    /// Of so many machines in all. Those that are being removed do not count.
    pub machines: usize,
    /// With another value of a label of the pool, or without it. A label that was taken from the pool does not count:
    /// whoever else may have set it is not recorded.
    pub labels: usize,
    /// Of another size than their instance type has now. A type that is gone does not count.
    pub sizes: usize,
    /// Both, or one of the two.
    pub either: usize,
}

pub fn outdated(world: &World, name: &PoolName) -> Outdated {
    let mut found = Outdated::default();
    let Some(pool) = world.pools().get(name) else {
        return found;
    };
    for claim in world.claims().values() {
        let is_going = claim.deleting_since.is_some() || claim.status.phase >= Phase::Draining;
        if claim.spec.pool != *name || is_going {
            continue;
        }
        let class = world.classes().get(&claim.spec.class);
        let labels = labels_differ(world, pool, claim);
        let size = class.is_some_and(|class| size_differs(class, claim));
        found.machines += 1;
        found.labels += usize::from(labels);
        found.sizes += usize::from(size);
        found.either += usize::from(labels || size);
    }
    found
}

/// A label policy may set a label of the pool to something else: its settings name the label, or it said so.
fn labels_differ(world: &World, pool: &PoolFacts, claim: &ClaimFacts) -> bool {
    let spec = &claim.spec;
    let said = decorate::remembered(
        world,
        &spec.pool,
        &spec.instance_type,
        &spec.hypervisor_id(),
    );
    let is_others = |key: &str| {
        said.labels.contains_key(key) || pool.policies.labels.settings.contains(&format!("{key:?}"))
    };
    let mut differ =
        (pool.labels.iter()).filter(|(key, value)| spec.labels.get(*key) != Some(value));
    // A machine that lost its claim: the new one does not know its labels.
    spec.adopts.is_none() && differ.any(|(key, _)| !is_others(key))
}

fn size_differs(class: &ClassFacts, claim: &ClaimFacts) -> bool {
    let made = &claim.spec.resources;
    let mut types = class.instance_types.iter();
    let size = types.find(|size| size.name == claim.spec.instance_type);
    size.is_some_and(|size| {
        u64::from(size.cores) * 1000 != made.milli_cores
            || size.memory_bytes() != made.memory_bytes
            || size.disk_bytes() != made.disk_bytes
    })
}
