//! What the simulator forgets, so that long runs need no more memory than short ones.

use std::time::Duration;

use super::World;
use crate::pve::Topology;

#[tokio::test(start_paused = true)]
async fn what_ended_long_ago_is_forgotten_and_the_audit_keeps_its_numbers() {
    let world = World::new(Topology::of(1).instant());
    assert_eq!(world.clone(101).await, "OK");
    tokio::time::advance(Duration::from_secs(60)).await;
    let (moment, seen) = (world.pve.clock().now(), world.pve.audit().len());
    assert_eq!(world.clone(102).await, "OK");

    world.pve.forget_before(moment);

    let snapshot = world.pve.snapshot();
    assert_eq!(snapshot.tasks.len(), 1, "the second clone's");
    assert_eq!(snapshot.births.len(), 3, "all machines, the template too");
    assert_eq!(world.pve.audit().len(), 1);
    assert_eq!(world.pve.audit_since(seen), world.pve.audit());
    assert_eq!(world.pve.audit_since(seen + 1), []);
}
