//! Servers that are to be emptied, by a person or by Proxmox's maintenance mode.

use super::lifecycle::draining;
use super::*;
use crate::facts::{ClusterFacts, OnMaintenance};
use crate::plan::RemovalReason;

/// `a` and `b` on alpha, `c` on beta. Each is full of pods.
fn full() -> Scene {
    let mut scene = Scene::default();
    for (name, on) in [("a", "alpha"), ("b", "alpha"), ("c", "beta")] {
        scene.machine(name, on);
        scene.running(&format!("web-{name}"), 2, name, spec("cpu=1500m"));
    }
    scene
}

fn drain(scene: &mut Scene, servers: &[&str]) {
    scene.cluster.hypervisors.drain = servers.iter().map(|name| (*name).into()).collect();
}

/// Each new machine: which one it replaces, and where it is made.
fn made(plan: &Plan) -> Vec<(String, &str)> {
    let launches = plan.launches.iter();
    let made = launches.map(|launch| {
        let old = launch.spec.replaces.as_ref().map(ToString::to_string);
        (old.unwrap_or_default(), &*launch.spec.hypervisor)
    });
    made.collect()
}

fn told(plan: &Plan, claim: &str) -> String {
    let mut told = plan.report.replacing.iter();
    let found = told.find(|(name, _)| name.as_str() == claim);
    found.map_or(String::new(), |(_, what)| {
        format!("{}: {what}", what.event())
    })
}

#[test]
fn a_server_that_is_to_be_emptied_gets_no_machine_and_loses_its_own_one_after_the_other() {
    let mut scene = full();
    drain(&mut scene, &["alpha", "beta"]);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(
        made(&plan),
        [("a".to_owned(), "gamma")],
        "the budget is one"
    );
    assert_eq!(removed(&plan), [] as [&str; 0]);
    assert_eq!(
        plan.launches[0].reason,
        "it replaces NodeClaim a: its server is to be emptied"
    );
    let waits =
        "as many removals of its pool are under way as its budget allows (scaleDown.budget)";
    assert_eq!(kept(&plan, "b").unwrap(), waits);
    scene.workers().scale_down.budget = 3;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(made(&plan).len(), 3);
    assert!(made(&plan).iter().all(|(_, on)| *on == "gamma"));
    // Where pods have room elsewhere, none is made.
    scene.machine("spare", "gamma");
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a"]);
    // Pending pods get their machines elsewhere too.
    let mut pending = Scene::default();
    drain(&mut pending, &["alpha", "beta"]);
    pending.pending("web", 2, spec("cpu=3"));
    let plan = pending.plan();
    check_sound(&plan);
    assert!(made(&plan).iter().all(|(_, on)| *on == "gamma"));
}

#[test]
fn where_the_machine_is_now_counts_and_who_asks_that_it_stays_is_heard() {
    let mut scene = full();
    drain(&mut scene, &["alpha"]);
    scene.claim("a").status.hypervisor = Some("beta".into());
    scene.claim("c").status.hypervisor = Some("alpha".into());
    scene.claim("b").do_not_disrupt = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(
        made(&plan).iter().map(|it| &*it.0).collect::<Vec<_>>(),
        ["c"]
    );
}

#[test]
fn a_machine_leaves_only_where_another_server_has_room() {
    let mut scene = full();
    drain(&mut scene, &["alpha"]);
    for name in ["beta", "gamma"] {
        scene.hypervisor(name).online = false;
    }
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((made(&plan), removed(&plan)), (vec![], vec![]));
    assert!(told(&plan, "a").starts_with("ReplacementNotMade: it stays"));
    // Only its own end makes room: of its pool, say.
    scene.hypervisor("gamma").online = true;
    scene.workers().limits.max_nodes = 3;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((made(&plan), removed(&plan)), (vec![], vec![]));
    let said = told(&plan, "a");
    let begin =
        "NoRoomForReplacement: its server is to be emptied, but its replacement has no room";
    assert!(said.starts_with(begin), "{said}");
    scene.workers().disruption.old_first = true;
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!((made(&plan), removed(&plan)), (vec![], vec!["a"]));
}

#[test]
fn c1_18_maintenance_of_proxmox_empties_a_server_only_if_the_cluster_says_so_and_it_lasts_2_minutes()
 {
    let at_work = |change: fn(&mut ClusterFacts), since: i64| {
        let mut scene = full();
        change(&mut scene.cluster);
        let alpha = scene.hypervisor("alpha");
        (alpha.maintenance, alpha.maintenance_since) = (true, Some(at(NOW - since)));
        let plan = scene.plan();
        check_sound(&plan);
        (made(&plan).len(), plan.wake_at)
    };
    let replace = |it: &mut ClusterFacts| it.hypervisors.on_maintenance = OnMaintenance::Replace;
    assert_eq!(at_work(|_| {}, 3600).0, 0, "keep is the default");
    let (count, wake_at) = at_work(replace, 119);
    assert_eq!((count, wake_at), (0, Some(at(NOW + 1))));
    assert_eq!(at_work(replace, 120).0, 1);
}

#[test]
fn a_drain_is_given_up_once_nobody_wants_the_server_empty() {
    let mut scene = Scene::default();
    scene.workers().scale_down.budget = 2;
    for name in ["a", "b"] {
        scene.machine(name, "alpha");
        draining(&mut scene, name, RemovalReason::Maintenance);
    }
    scene.claim("b").status.hypervisor = Some("beta".into());
    drain(&mut scene, &["alpha"]);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a"]);
    assert!(
        kept(&plan, "b")
            .unwrap()
            .contains("not to be emptied any more")
    );
}

#[test]
fn a_claim_that_has_asked_for_nothing_yet_is_closed_and_made_elsewhere() {
    let mut scene = Scene::default();
    scene.workers().limits.min_nodes = 2;
    for name in ["a", "b"] {
        scene.coming_machine(name, "alpha", Phase::Pending);
    }
    scene.coming_machine("c", "alpha", Phase::Launched);
    drain(&mut scene, &["alpha"]);
    let plan = scene.plan();
    check_sound(&plan);
    assert_eq!(removed(&plan), ["a", "b"]);
    assert!(made(&plan).iter().all(|(_, on)| *on != "alpha"));
}
