//! Which pods get machines, and what is said of the others.

use super::scale_down::idle;
use super::*;
use crate::facts::{DisruptionBudgetFacts, LabelSelector, PodFacts};
use crate::ids::ObjectKey;

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

fn of_priority(priority: i32) -> crate::facts::PodSpec {
    let mut spec = spec("cpu=3");
    spec.priority = priority;
    spec
}

#[test]
fn r8_pods_below_the_cutoff_launch_nothing() {
    let mut scene = Scene::default();
    scene.pending("low", 2, of_priority(-11));
    scene.pending("least", 2, of_priority(-10));
    let plan = scene.plan();
    assert_eq!(plan.launches.len(), 2);
    let reason =
        "its priority is -11, and kproxide makes no machine for pods below -10 (--least-priority)";
    assert_eq!(said(&plan, "low"), [(2, reason.to_owned())]);
    scene.host.served.least_priority = -11;
    assert_eq!(scene.plan().launches.len(), 4);
    scene.host.served.least_priority = 0;
    assert_eq!(scene.plan().launches.len(), 0);
}

#[test]
fn r8_pending_pods_below_the_cutoff_keep_no_node() {
    let mut scene = idle();
    scene.pending("low", 1, of_priority(-11));
    assert_eq!(removed(&scene.plan()), ["b"]);
    scene.pod("low-00000").spec.priority = -10;
    assert_eq!(removed(&scene.plan()), [] as [&str; 0]);
}

/// The second of two machines is full of pods below the cutoff, and this is changed in the larger one.
fn kept_by(change: fn(&mut PodFacts)) -> Result<String, String> {
    let mut scene = idle();
    scene.claim("a").do_not_disrupt = true;
    scene.running("low", 2, "b", of_priority(-11));
    scene.pod("low-00000").spec.requests = amounts("cpu=2 memory=512Mi");
    scene.pod("low-00001").spec.requests = amounts("cpu=1400m memory=512Mi");
    scene.pod("low-00001").spec.unsupported = vec!["spec.resourceClaims".into()];
    let pod = scene.pod("low-00000");
    pod.owner = None;
    pod.spec.local_volumes = true;
    pod.labels = labels("app=low");
    change(pod);
    let budget = |allowed, app: &str| DisruptionBudgetFacts {
        selector: Some(LabelSelector {
            match_labels: labels(&format!("app={app}")),
            match_expressions: vec![],
        }),
        disruptions_allowed: allowed,
        ..DisruptionBudgetFacts::default()
    };
    for (name, budget) in [("yields", budget(1, "low")), ("holds", budget(0, "held"))] {
        let key = ObjectKey::new("default", name);
        scene.budgets.insert(key, budget);
    }
    kept(&scene.plan(), "b")
}

#[test]
fn r8_running_pods_below_the_cutoff_keep_no_node() {
    assert!(kept_by(|_| {}).is_err());
    let reason = kept_by(|pod| pod.spec.priority = -10).unwrap();
    assert!(reason.contains("loadHeadroom"), "{reason}");
    let small = kept_by(|pod| {
        pod.spec.priority = -10;
        pod.spec.requests = amounts("cpu=10m");
    });
    assert!(small.unwrap().contains("barePods"));
}

#[test]
fn r8_the_last_node_goes_with_pods_below_the_cutoff_alone() {
    let removed_with = |priority| {
        let mut scene = Scene::default();
        scene.machine("m", "alpha");
        scene.running("low", 2, "m", of_priority(priority));
        for name in ["low-00000", "low-00001"] {
            scene.pod(name).spec.requests = amounts("cpu=1");
        }
        removed(&scene.plan()).len()
    };
    assert_eq!(removed_with(-11), 1);
    assert_eq!(removed_with(-10), 0);
}

#[test]
fn r8_budgets_and_the_annotation_hold_for_pods_below_the_cutoff() {
    let budget = kept_by(|pod| pod.labels = labels("app=held")).unwrap();
    assert!(budget.contains("PodDisruptionBudget holds"), "{budget}");
    let annotation = kept_by(|pod| pod.do_not_disrupt = true).unwrap();
    assert!(annotation.contains("do-not-disrupt"), "{annotation}");
}
