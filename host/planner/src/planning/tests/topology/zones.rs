//! Zones that a group of pods stands in, or keeps away from.

use super::*;

#[test]
fn the_rest_of_a_group_follows_although_another_zone_has_room() {
    let mut scene = Scene::default();
    server(&mut scene, "a", "alpha");
    server(&mut scene, "b", "beta");
    let group = |cpu: &str| {
        let mut group = beside(ZONE, "app=group");
        group.requests = amounts(cpu);
        group
    };
    running(&mut scene, "group", "b", group("cpu=8"));
    pending(&mut scene, "group", 1, group("cpu=1"));
    assert_eq!(places(&scene.plan()), ["beta"]);
}

#[test]
fn a_machine_does_not_move_to_the_zone_that_a_second_pod_keeps_away_from() {
    let mut scene = Scene::default();
    server(&mut scene, "b", "beta");
    running(&mut scene, "guard", "b", spec("cpu=8"));
    let mut plain = spec("cpu=2");
    plain.priority = 1;
    pending(&mut scene, "plain", 1, plain);
    let mut shy = away_from(ZONE, "app=guard");
    shy.node_affinity = Some(vec![NodeSelectorTerm {
        match_expressions: vec![Requirement {
            key: ZONE.into(),
            operator: Operator::In,
            values: vec!["beta".into(), "gamma".into()],
        }],
        match_fields: vec![],
    }]);
    pending(&mut scene, "shy", 1, shy);
    let plan = scene.plan();
    assert_eq!(places(&plan), ["alpha", "gamma"]);
}
