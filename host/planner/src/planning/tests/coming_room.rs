//! Room that comes when pods end, and machines that are needed no more before they are made.

use super::*;
use crate::claim::Phase;
use crate::plan::RemovalReason;
use crate::planning::Limits;

/// `agent-1` and `agent-2` are full; on each a pod ends that long from now. Three successors wait.
fn rollout(ends_in: [i64; 2]) -> Scene {
    let mut scene = Scene::default();
    for (index, ends_in) in ends_in.into_iter().enumerate() {
        let name = format!("agent-{}", index + 1);
        scene.node(&name, node("cpu=4 memory=8Gi"));
        scene.running(&name, 2, &name, spec("cpu=1800m"));
        let ending = scene.pod(&format!("{name}-00000"));
        ending.deleting = true;
        ending.grace_ends = Some(at(NOW + ends_in));
    }
    scene.pending("new", 3, spec("cpu=1800m"));
    scene
}

#[test]
fn r5_where_a_pod_ends_soon_a_pending_pod_waits() {
    let machines = |scene: &Scene| {
        let plan = scene.plan();
        check_sound(&plan);
        plan.launches.len()
    };
    // Two of three fit where pods end; two fit on one machine.
    for (ends_in, expected) in [
        ([3, 60], 1),
        ([3, 61], 1),
        ([61, 61], 2),
        ([-29, 60], 1),
        ([-30, -30], 2),
    ] {
        let scene = rollout(ends_in);
        assert_eq!(machines(&scene), expected, "{ends_in:?}");
    }
    let mut two = rollout([3, 60]);
    two.pods
        .remove(&crate::ids::PodKey::new("default", "new-00002"));
    assert_eq!(machines(&two), 0);
    let mut broken = two.clone();
    broken.nodes.get_mut("agent-1").unwrap().ready = false;
    assert_eq!(machines(&broken), 1);
    let mut again = two.clone();
    again.pod("agent-2-00000").owner = Some(owner("DaemonSet"));
    assert_eq!(machines(&again), 1);
    let never = Limits {
        coming_room: jiff::SignedDuration::ZERO,
        ..Limits::default()
    };
    let plan = plan(&two.world(), at(NOW), never, reasonable);
    assert_eq!(plan.launches.len(), 1);
}

#[test]
fn r5_a_claim_whose_pods_have_a_place_is_withdrawn_before_its_clone() {
    let scene = |pods: usize| {
        let mut scene = Scene::default();
        scene.coming_machine("first", "alpha", Phase::Pending);
        scene.coming_machine("second", "beta", Phase::Pending);
        scene.coming_machine("cloning", "beta", Phase::Launching);
        scene.pending("web", pods, spec("cpu=3"));
        scene
    };
    let withdrawn = |scene: &Scene| -> Vec<String> {
        let plan = scene.plan();
        check_sound(&plan);
        let advances = plan.advances.iter();
        let closed =
            advances.filter(|it| it.verdict == Verdict::Remove(RemovalReason::LaunchFailed));
        closed.map(|it| it.claim.to_string()).collect()
    };
    assert_eq!(withdrawn(&scene(3)), [] as [&str; 0]);
    // The two that were asked for first take the two pods.
    assert_eq!(withdrawn(&scene(2)), [] as [&str; 0]);
    assert_eq!(withdrawn(&scene(1)), ["second"]);
    assert_eq!(withdrawn(&scene(0)), ["first", "second"]);
    let mut cold = scene(0);
    cold.host.armed_at = Some(at(NOW + 1));
    assert_eq!(withdrawn(&cold), [] as [&str; 0]);
    let mut kept = scene(0);
    kept.workers().limits.min_nodes = 2;
    assert_eq!(withdrawn(&kept), ["first"]);
    let mut kept = scene(0);
    kept.workers().headroom = headroom("cpu=5");
    assert_eq!(withdrawn(&kept), ["first"]);
}
