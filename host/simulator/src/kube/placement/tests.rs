use serde_json::json;

use super::*;

fn node() -> NodeView {
    NodeView::of(&json!({
        "metadata": {"name": "n", "labels": {"zone": "a", "gen": "4"}},
        "spec": {"taints": [{"key": "role", "value": "db", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "2"}},
    }))
}

#[track_caller]
fn check(spec: Value, expected: &[Misfit]) {
    let needs = PodNeeds::of(&json!({"spec": spec}));
    let mut used = Used::default();
    used.put(&PodNeeds::of(&json!({})));
    assert_eq!(needs.misfits(&node(), &used), expected);
}

#[test]
fn filters_in_the_schedulers_order() {
    let tolerations = json!([{"key": "role", "operator": "Equal", "value": "db"}]);
    let request =
        |cpu: &str| json!([{"resources": {"requests": {"cpu": cpu, "example.com/gpu": "1"}}}]);
    check(json!({}), &[Misfit::UntoleratedTaint]);
    check(json!({"tolerations": tolerations}), &[]);
    check(
        json!({"tolerations": tolerations, "nodeSelector": {"zone": "b"}}),
        &[Misfit::AffinityOrSelector],
    );
    check(
        json!({"tolerations": tolerations, "containers": request("3")}),
        &[
            Misfit::Insufficient("cpu".to_owned()),
            Misfit::Insufficient("example.com/gpu".to_owned()),
        ],
    );
}

#[test]
fn one_pod_has_a_port_and_address_of_the_node() {
    let pod = |spec: Value| PodNeeds::of(&json!({"spec": spec}));
    let on = |port: Value| {
        pod(json!({"tolerations": [{"operator": "Exists"}], "containers": [{"ports": [port]}]}))
    };
    let mut used = Used::default();
    let first = on(json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}));
    used.put(&first);
    for (port, misfits) in [
        (
            json!({"hostPort": 80, "hostIP": "10.0.0.1"}),
            &[Misfit::NoFreePorts][..],
        ),
        (json!({"hostPort": 80}), &[Misfit::NoFreePorts]),
        (json!({"hostPort": 80, "hostIP": "10.0.0.2"}), &[]),
        (json!({"hostPort": 80, "protocol": "UDP"}), &[]),
        (json!({"hostPort": 81}), &[]),
        (json!({"containerPort": 80}), &[]),
    ] {
        assert_eq!(on(port.clone()).misfits(&node(), &used), misfits, "{port}");
    }
    used.take_back(&first);
    assert_eq!(on(json!({"hostPort": 80})).misfits(&node(), &used), []);
    let on_host =
        pod(json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}));
    used.put(&on_host);
    assert_eq!(
        on(json!({"hostPort": 80})).misfits(&node(), &used),
        [Misfit::NoFreePorts]
    );
}

#[test]
fn affinity_terms_are_alternatives() {
    let affinity = |terms: Value| {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        PodNeeds::of(&json!({"spec": {"affinity": {"nodeAffinity": required}}})).selects(&node())
    };
    assert!(!affinity(json!([{}])));
    assert!(affinity(
        json!([{}, {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]}])
    ));
    assert!(!affinity(
        json!([{"matchExpressions": [{"key": "gen", "operator": "Lt", "values": ["4"]}]}])
    ));
    assert!(affinity(
        json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])
    ));
}

#[test]
fn requests_of_init_containers_and_sidecars() {
    let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
    let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "200m"}}});
    let spec = json!({
        "initContainers": [container("1"), sidecar, container("900m")],
        "containers": [container("300m"), container("400m")],
        "overhead": {"cpu": "10m"},
    });
    // The third init container runs beside the sidecar: 1100m, more than 300m + 400m + 200m.
    assert_eq!(requests(&json!({ "spec": spec }))["cpu"], 1_110);
}

#[test]
fn requests_of_a_pod_that_is_resized() {
    let asks = |name: &str| json!({"name": name, "resources": {"requests": {"cpu": "1"}}});
    let cpu = |status: Value| {
        let pod = json!({"spec": {"containers": [asks("a"), asks("b")]}, "status": status});
        requests(&pod)["cpu"]
    };
    let status = |in_force: &str, granted: &str| {
        json!([
            {"name": "a", "resources": {"requests": {"cpu": in_force}}, "allocatedResources": {"cpu": granted}},
        ])
    };
    assert_eq!(cpu(json!({})), 2_000);
    assert_eq!(cpu(json!({"containerStatuses": status("3", "1")})), 4_000);
    assert_eq!(
        cpu(json!({"containerStatuses": status("100m", "2")})),
        3_000
    );
    let pending = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
    let refused = json!({"containerStatuses": status("100m", "200m"), "conditions": pending});
    assert_eq!(cpu(refused), 1_200);
}
