//! The controller's own pod, in clusters of two Nodes that do not take it, each for a reason of its own.

use kproxide_simulator::kube::fixtures;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::ward::Ward;
use crate::doctor::{Installation, NoKubernetes, Values, check_pod, pod};
use kproxide_controller::judge::{Level, reasons};

/// What the simulated scheduler and controllers need. After 40 s of silence a Node counts as unreachable.
const A_WHILE: Duration = Duration::from_secs(5);

struct Case {
    name: &'static str,
    values: Value,
    /// What each Node is given beyond the fixture's.
    nodes: Value,
    /// Of each Node: cores and memory.
    size: (&'static str, &'static str),
    words: &'static str,
    /// What mends it: values, or what the second Node is given.
    mend: Mend,
}

enum Mend {
    Values(Value),
    Node(Value),
}

fn cases() -> [Case; 8] {
    let plain = ("4", "8Gi");
    let mac = json!({ "metadata": { "labels": { "kubernetes.io/arch": "arm64" } } });
    let of_kproxide = json!({ "metadata": { "labels": { "kproxide.dev/claim": "a" } } });
    let taint = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let none = json!({ "spec": { "taints": [] } });
    let requests = |memory: &str| json!({ "resources": { "requests": { "memory": memory } } });
    [
        Case {
            name: "kproxide made all Nodes",
            values: json!({}),
            nodes: of_kproxide.clone(),
            size: plain,
            words: "kproxide.dev/claim",
            mend: Mend::Node(json!({ "metadata": { "labels": { "kproxide.dev/claim": null } } })),
        },
        Case {
            name: "kproxide made all Nodes, and may run there",
            values: json!({}),
            nodes: of_kproxide,
            size: plain,
            words: "kproxide.dev/claim",
            mend: Mend::Values(json!({ "allowManagedNodes": true })),
        },
        Case {
            name: "the image is not for their architecture",
            values: json!({ "image": { "architectures": ["amd64"] } }),
            nodes: mac,
            size: plain,
            words: "kubernetes.io/arch",
            mend: Mend::Values(json!({ "image": { "architectures": ["amd64", "arm64"] } })),
        },
        Case {
            name: "they lack the label",
            values: json!({ "nodeSelector": { "disk": "ssd" } }),
            nodes: json!({}),
            size: plain,
            words: "nodeSelector disk=ssd",
            mend: Mend::Node(json!({ "metadata": { "labels": { "disk": "ssd" } } })),
        },
        Case {
            name: "the pod does not tolerate their taint",
            values: json!({}),
            nodes: taint.clone(),
            size: plain,
            words: "taint gpu",
            mend: Mend::Values(json!({ "tolerations": [{ "key": "gpu", "operator": "Exists" }] })),
        },
        Case {
            name: "the pod does not tolerate their taint, which goes",
            values: json!({}),
            nodes: taint,
            size: plain,
            words: "taint gpu",
            mend: Mend::Node(none),
        },
        Case {
            name: "they are cordoned",
            values: json!({}),
            nodes: json!({ "spec": { "unschedulable": true } }),
            size: plain,
            words: "it is cordoned",
            mend: Mend::Node(json!({ "spec": { "unschedulable": false } })),
        },
        Case {
            name: "they are too small",
            values: requests("8Gi"),
            nodes: json!({}),
            size: ("4", "4Gi"),
            words: "it offers too little memory",
            mend: Mend::Values(requests("1Gi")),
        },
    ]
}

/// Two Nodes, so that a finding names both.
fn cluster(case: &Case) -> Ward {
    let ward = Ward::new();
    let kube = &ward.lab.kube;
    kube.create("namespaces", fixtures::namespace("ops"))
        .unwrap();
    for name in ["n1", "n2"] {
        fixtures::add_node(kube, fixtures::node(name, case.size.0, case.size.1)).unwrap();
        kube.patch("nodes", "", "", name, case.nodes.clone())
            .unwrap();
    }
    ward
}

/// The pod of these values.
fn template(values: &Value) -> Value {
    pod::of_values(values).unwrap()
}

/// As the chart makes it of these values.
fn deployment(values: &Value) -> Value {
    let mut template = template(values);
    template["metadata"] = json!({ "labels": { "app": "scaler" } });
    template["spec"]["containers"][0]["image"] = json!("kproxide");
    if let Some(spec) = template["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "scaler", "namespace": "ops" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "scaler" } }, "template": template },
    })
}

/// What is wrong with the Deployment and its pods; that nobody leads is the other half.
async fn installed(ward: &Ward) -> Vec<(String, String)> {
    let read = Installation::read(&ward.kube(), "ops", "scaler").await;
    let ill = read.findings.into_iter();
    let ill = ill.filter(|it| it.level != Level::Ok && *it.reason != reasons::NO_LEADER);
    ill.map(|it| {
        assert_eq!(
            (it.level, it.reason.word),
            (Level::Error, "PodUnschedulable")
        );
        assert!(it.remedy().contains("Make room on one of these"), "{it:?}");
        (it.object, it.message)
    })
    .collect()
}

async fn before(ward: &Ward, values: &Value) -> Option<String> {
    let kube = ward.kube();
    let found = check_pod(&kube, "ops", "scaler", &template(values)).await;
    found.unwrap().map(|it| {
        assert_eq!(
            (it.level, it.reason.word),
            (Level::Error, "PodUnschedulable")
        );
        assert_eq!(it.object, "Deployment/ops/scaler");
        it.message
    })
}

#[tokio::test(start_paused = true)]
async fn what_keeps_the_pod_from_both_nodes_is_told_before_and_after_the_installation() {
    for case in cases() {
        let name = case.name;
        let ward = cluster(&case);
        let kube = &ward.lab.kube;
        let said = before(&ward, &case.values).await.expect(name);
        assert!(
            said.starts_with("no Node takes the pod of the controller: n1, n2 ("),
            "{name}: {said}"
        );
        assert!(said.contains(case.words), "{name}: {said}");

        kube.create("deployments.apps", deployment(&case.values))
            .unwrap();
        sleep(A_WHILE).await;
        let told = installed(&ward).await;
        let [(object, words)] = &told[..] else {
            panic!("{name}: {told:?}");
        };
        assert!(object.starts_with("Pod/ops/scaler-"), "{name}: {object}");
        let begin = format!("{said}. The scheduler says: 0/2 nodes are available");
        assert!(words.starts_with(&begin), "{name}: {words}");

        let values = match case.mend {
            Mend::Values(values) => {
                // The simulated controller rolls nothing out.
                kube.delete("deployments.apps", "ops", "scaler").unwrap();
                sleep(A_WHILE).await;
                kube.create("deployments.apps", deployment(&values))
                    .unwrap();
                values
            }
            Mend::Node(given) => {
                kube.patch("nodes", "", "", "n2", given).unwrap();
                case.values
            }
        };
        assert_eq!(before(&ward, &values).await, None, "{name}, mended");
        sleep(A_WHILE).await;
        assert_eq!(installed(&ward).await, [], "{name}, mended");
    }
}

/// Nodes that take the pod, if there is room.
fn plain() -> Ward {
    cluster(&Case {
        nodes: json!({}),
        ..cases().into_iter().next().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_removes_pods_of_a_lower_priority_for_it_and_no_others() {
    const HIGHEST: u32 = 2_000_001_000;
    const OURS: u32 = 2_000_000_000;
    let both = "no Node takes the pod of the controller: n1, n2 (it offers too little cpu)";
    let lower = json!({ "priorityClassName": "" });
    for (priorities, values, expected) in [
        ([HIGHEST, OURS], json!({}), Some(both)),
        ([HIGHEST, OURS - 1], json!({}), None),
        ([1, 0], json!({}), None),
        ([1, 0], lower, Some(both)),
    ] {
        let ward = plain();
        for (node, priority) in ["n1", "n2"].into_iter().zip(priorities) {
            let mut pod = fixtures::pod(&format!("fills-{node}"), "4", "8Gi");
            pod["spec"]["nodeName"] = json!(node);
            pod["spec"]["priority"] = json!(priority);
            ward.lab.kube.create("pods", pod).unwrap();
        }
        let said = before(&ward, &values).await;
        assert_eq!(said.as_deref(), expected, "{priorities:?}, {values}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_told_before_the_scheduler_has_spoken() {
    let ward = cluster(&cases()[0]);
    let mut slow = deployment(&json!({}));
    slow["spec"]["template"]["spec"]["schedulerName"] = json!("slow");
    ward.lab.kube.create("deployments.apps", slow).unwrap();
    sleep(A_WHILE).await;
    let told = installed(&ward).await;
    let [(object, words)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(object, "Deployment/ops/scaler");
    assert!(words.starts_with("no Node takes the pod"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_and_one_that_nobody_wants_are_no_defects() {
    let small = json!({ "nodeSelector": { "kubernetes.io/hostname": "n1" },
        "resources": { "requests": { "memory": "5Gi" } } });
    let ward = plain();
    let kube = &ward.lab.kube;
    kube.create("deployments.apps", deployment(&small)).unwrap();
    sleep(A_WHILE).await;
    assert_eq!(installed(&ward).await, []);
    // There is no room for a second one, and none is asked for: an upgrade removes the first one before.
    assert_eq!(before(&ward, &small).await, None);
    let cordon = json!({ "spec": { "unschedulable": true } });
    kube.patch("nodes", "", "", "n1", cordon).unwrap();
    assert_eq!(installed(&ward).await, [], "it runs");
    // The next one would not.
    let said = before(&ward, &small).await.unwrap();
    let whys = "n1 (it is cordoned), n2 (nodeSelector kubernetes.io/hostname=n1)";
    assert!(said.ends_with(whys), "{said}");

    let none = json!({ "spec": { "replicas": 0 } });
    kube.patch("deployments.apps", "", "ops", "scaler", none)
        .unwrap();
    sleep(A_WHILE).await;
    assert_eq!(installed(&ward).await, [], "the controller runs elsewhere");
    let text = "replicas: 0\nclusters: {home: {spec: {}}}\n";
    assert_eq!(Values::read("values.yaml", text).unwrap().pod, None);
}

#[tokio::test(start_paused = true)]
async fn without_a_node_there_is_no_place_and_without_a_cluster_no_answer() {
    let ward = Ward::new();
    let said = before(&ward, &json!({})).await;
    let expected = "there is no Node for the pod of the controller";
    assert_eq!(said.as_deref(), Some(expected));
    let gone = kproxide_kube::client::Client::from_service(tower::service_fn(
        async |_: http::Request<kube::client::Body>| {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no route to it"))
        },
    ));
    let asked = check_pod(&gone, "ops", "scaler", &template(&json!({}))).await;
    assert!(matches!(asked, Err(NoKubernetes::Unreachable(_))));
}

/// `pods.json` is what Helm renders (`tests/chart/pod.rs`).
#[test]
fn the_pod_of_values_is_the_one_that_the_chart_renders() {
    let known: Vec<Value> = serde_json::from_str(include_str!("pods.json")).unwrap();
    assert!(known.len() >= 5);
    for case in known {
        let pod = &template(&case["values"])["spec"];
        for (field, expected) in case["pod"].as_object().unwrap() {
            let is_empty = |value: &Value| {
                value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty)
                    || value == ""
            };
            let made = match field.as_str() {
                "resources" => &pod["containers"][0]["resources"],
                field => &pod[field],
            };
            let made = if is_empty(made) { &Value::Null } else { made };
            assert_eq!(made, expected, "{field} of {}", case["values"]);
        }
    }
}
