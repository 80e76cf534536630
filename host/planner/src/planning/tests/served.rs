//! Which pods get machines, and what is said of the others.

use super::*;

/// What the report says of the pods of a name, with their number.
fn said(plan: &Plan, name: &str) -> Vec<(u32, String)> {
    let rows = plan.report.pending.iter();
    let rows = rows.filter(|row| row.example.name.starts_with(name));
    rows.map(|row| (row.count, row.outcome.to_string()))
        .collect()
}

fn of_scheduler(name: &str) -> crate::facts::PodSpec {
    let mut spec = spec("cpu=3");
    spec.scheduler_name = Some(name.into());
    spec
}

#[test]
fn r28_pods_of_another_scheduler_get_no_machine_and_a_reason() {
    let mut scene = Scene::default();
    scene.pending("batch", 2, of_scheduler("volcano"));
    scene.pending("mine", 2, of_scheduler("mine"));
    scene.pending("web", 1, of_scheduler("default-scheduler"));
    // Where that scheduler does not run, nobody says that the pod cannot be placed.
    scene.pod("batch-00000").unschedulable_since = None;
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 1);
    let reason = |name: &str, served: &str| {
        format!(
            "its scheduler is {name}, and kproxide makes machines for pods of {served} (--scheduler-names)"
        )
    };
    assert_eq!(
        said(&plan, "batch"),
        [(2, reason("volcano", "default-scheduler"))]
    );
    assert_eq!(
        said(&plan, "mine"),
        [(2, reason("mine", "default-scheduler"))]
    );

    scene.host.served.schedulers = ["default-scheduler".into(), "mine".into()].into();
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 3);
    assert_eq!(
        said(&plan, "batch"),
        [(2, reason("volcano", "default-scheduler, mine"))]
    );
    scene.host.served.schedulers = ["mine".into()].into();
    assert_eq!(scene.plan().launches.len(), 2);
    let mut unnamed = spec("cpu=3");
    unnamed.scheduler_name = None;
    scene.pending("unnamed", 1, unnamed);
    assert_eq!(
        said(&scene.plan(), "unnamed"),
        [(1, reason("default-scheduler", "mine"))]
    );
}

#[test]
fn r28_another_scheduler_has_a_minute_to_place_its_pods() {
    let mut scene = Scene::default();
    scene.pending("batch", 2, of_scheduler("volcano"));
    for (name, age) in [("batch-00000", 59), ("batch-00001", 60)] {
        scene.pod(name).created = at(NOW - age);
    }
    let plan = scene.plan();
    assert_eq!(said(&plan, "batch").len(), 1);
    assert_eq!(said(&plan, "batch")[0].0, 1);
    assert_eq!(plan.wake_at, Some(at(NOW + 1)));
    scene.pod("batch-00001").node = Some("n".into());
    assert_eq!(said(&scene.plan(), "batch"), []);
}

#[test]
fn r28_the_schedulers_may_become_known_after_the_pods() {
    let mut scene = Scene::default();
    scene.pending("mine", 2, of_scheduler("mine"));
    let mut deltas = scene.deltas();
    let host = deltas.remove(0);
    let mut world = crate::world::World::default();
    deltas.into_iter().for_each(|delta| world.apply(delta));
    world.apply(host);
    assert_eq!(world.pending().len(), 0);
    scene.host.served.schedulers = ["mine".into()].into();
    world.apply(crate::facts::Delta::Host(scene.host.clone()));
    assert_eq!(world.pending().len(), 1);
    assert_eq!(world.of_other_schedulers().len(), 0);
}
