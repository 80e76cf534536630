use std::time::Duration;

use tokio::{task::JoinSet, time::sleep};

use super::*;
use crate::{clock::Clock, kube::fixtures};

fn world() -> (Kube, Scheduler) {
    let kube = Kube::new(
        Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
        1,
    );
    (kube.clone(), Scheduler::new(kube, Scoring::LeastAllocated))
}

/// Runs one pass over everything that is stored.
fn pass(kube: &Kube, scheduler: &mut Scheduler) {
    let (present, _) = kube.subscribe(&["nodes", "pods"]);
    for change in &present {
        scheduler.apply(change);
    }
    scheduler.schedule();
}

fn node_of(kube: &Kube, pod: &str) -> Option<String> {
    let pod = kube.get("pods", "default", pod).unwrap();
    pod["spec"]["nodeName"].as_str().map(str::to_owned)
}

fn message_of(kube: &Kube, pod: &str) -> String {
    let pod = kube.get("pods", "default", pod).unwrap();
    let condition = super::super::object::condition(&pod, "PodScheduled").unwrap();
    assert_eq!(condition["reason"], "Unschedulable");
    condition["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn spreads_over_the_emptiest_nodes() {
    let (kube, mut scheduler) = world();
    for name in ["a", "b"] {
        fixtures::add_node(&kube, fixtures::node(name, "2", "4Gi")).unwrap();
    }
    for name in ["p1", "p2", "p3"] {
        kube.create("pods", fixtures::pod(name, "500m", "512Mi"))
            .unwrap();
    }
    pass(&kube, &mut scheduler);
    let nodes = ["p1", "p2", "p3"].map(|pod| node_of(&kube, pod).unwrap());
    assert_eq!(nodes, ["a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn says_why_in_the_schedulers_words() {
    let (kube, mut scheduler) = world();
    kube.create("pods", fixtures::pod("big", "8", "1Gi"))
        .unwrap();
    pass(&kube, &mut scheduler);
    assert_eq!(
        message_of(&kube, "big"),
        "no nodes available to schedule pods"
    );
    fixtures::add_node(&kube, fixtures::node("a", "2", "4Gi")).unwrap();
    fixtures::add_node(&kube, fixtures::control_plane_node("cp", "2", "4Gi")).unwrap();
    kube.create("pods", fixtures::pod("large", "8", "1Gi"))
        .unwrap();
    pass(&kube, &mut scheduler);
    assert_eq!(
        message_of(&kube, "large"),
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, \
         preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 \
         Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn tries_a_pod_again_on_a_node_that_it_fits_on() {
    let (kube, _) = world();
    let mut world = JoinSet::new();
    world.spawn(run(kube.clone(), Scoring::LeastAllocated));
    let a_moment = || sleep(Duration::from_millis(1));
    for (name, cpu) in [("big", "8"), ("small", "1")] {
        kube.create("pods", fixtures::pod(name, cpu, "1Gi"))
            .unwrap();
    }
    a_moment().await;
    fixtures::add_node(&kube, fixtures::node("a", "2", "4Gi")).unwrap();
    a_moment().await;
    assert_eq!(node_of(&kube, "small").as_deref(), Some("a"));
    assert_eq!(
        message_of(&kube, "big"),
        "no nodes available to schedule pods"
    );
    fixtures::add_node(&kube, fixtures::node("b", "10", "4Gi")).unwrap();
    a_moment().await;
    assert_eq!(node_of(&kube, "big").as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn counts_the_pods_that_spread() {
    let (kube, mut scheduler) = world();
    for name in ["a", "b"] {
        fixtures::add_node(&kube, fixtures::node(name, "8", "16Gi")).unwrap();
    }
    let spread = |name: &str| {
        let mut pod = fixtures::pod(name, "1", "1Gi");
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]);
        pod
    };
    // The emptier node would be b.
    kube.create("pods", fixtures::pod("other", "4", "8Gi"))
        .unwrap();
    for name in ["p1", "p2"] {
        kube.create("pods", spread(name)).unwrap();
    }
    pass(&kube, &mut scheduler);
    let nodes = ["other", "p1", "p2"].map(|pod| node_of(&kube, pod).unwrap());
    assert_eq!(nodes, ["a", "b", "a"]);

    // A node without room counts as one without pods: the third would be the second one more on the others.
    fixtures::add_node(&kube, fixtures::node("c", "0", "0")).unwrap();
    kube.create("pods", spread("p3")).unwrap();
    pass(&kube, &mut scheduler);
    assert_eq!(
        message_of(&kube, "p3"),
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 2 node(s) didn't match pod topology spread constraints. no new \
         claims to deallocate, preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
    );
}

#[tokio::test(start_paused = true)]
async fn pods_stand_with_those_they_want_and_away_from_others() {
    let (kube, mut scheduler) = world();
    for name in ["a", "b", "c"] {
        fixtures::add_node(&kube, fixtures::node(name, "8", "16Gi")).unwrap();
    }
    let term = |app: &str| json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]);
    let pod = |name: &str, app: &str, kind: &str, wants: &str| {
        let mut pod = fixtures::pod(name, "1", "1Gi");
        pod["metadata"]["labels"] = json!({"app": app});
        pod["spec"]["affinity"] =
            json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": term(wants)}});
        pod
    };
    let names = ["db1", "db2", "db3", "db4"];
    for name in names {
        kube.create("pods", pod(name, "db", "podAntiAffinity", "db"))
            .unwrap();
    }
    pass(&kube, &mut scheduler);
    let nodes = names.map(|pod| node_of(&kube, pod));
    let nodes = nodes.each_ref().map(Option::as_deref);
    assert_eq!(nodes, [Some("a"), Some("b"), Some("c"), None]);
    assert!(message_of(&kube, "db4").contains("3 node(s) didn't match pod anti-affinity rules"));

    kube.create("pods", pod("shy", "shy", "podAntiAffinity", "web"))
        .unwrap();
    pass(&kube, &mut scheduler);
    let shy = node_of(&kube, "shy").unwrap();
    let mut web = fixtures::pod("web", "7", "1Gi");
    web["metadata"]["labels"] = json!({"app": "web"});
    kube.create("pods", web).unwrap();
    kube.create("pods", pod("cache", "cache", "podAffinity", "web"))
        .unwrap();
    kube.create("pods", pod("lonely", "lonely", "podAffinity", "nobody"))
        .unwrap();
    kube.create("pods", pod("first", "group", "podAffinity", "group"))
        .unwrap();
    pass(&kube, &mut scheduler);
    assert!(
        node_of(&kube, "first").is_some(),
        "it is the first of its kind"
    );
    assert_eq!(node_of(&kube, "lonely"), None);
    assert!(message_of(&kube, "lonely").contains("2 node(s) didn't match pod affinity rules"));
    let web = node_of(&kube, "web").unwrap();
    assert_ne!(web, shy);
    // Its Node is full.
    assert_eq!(node_of(&kube, "cache"), None);
    assert!(message_of(&kube, "cache").contains("2 node(s) didn't match pod affinity rules"));
}

#[tokio::test(start_paused = true)]
async fn room_is_kept_for_nominations_of_the_same_priority_or_above() {
    let (kube, mut scheduler) = world();
    for name in ["a", "b"] {
        fixtures::add_node(&kube, fixtures::node(name, "4", "16Gi")).unwrap();
        let mut low = fixtures::pod(&format!("low-{name}"), "2", "1Gi");
        low["spec"]["nodeName"] = json!(name);
        kube.create("pods", low).unwrap();
    }
    let pod = |name: &str, cpu: &str, priority: i32| {
        let mut pod = fixtures::pod(name, cpu, "1Gi");
        pod["spec"]["priority"] = json!(priority);
        kube.create("pods", pod).unwrap();
    };
    pod("urgent", "3", 1000);
    let nominated = json!({"status": {"nominatedNodeName": "a"}});
    kube.patch("pods", "status", "default", "urgent", nominated)
        .unwrap();
    pod("other", "2", 0);
    pod("another", "2", 1000);
    pod("higher", "2", 1001);
    pass(&kube, &mut scheduler);
    assert_eq!(node_of(&kube, "higher").as_deref(), Some("a"));
    assert_eq!(node_of(&kube, "another").as_deref(), Some("b"));
    assert_eq!(node_of(&kube, "other"), None);
    assert_eq!(node_of(&kube, "urgent"), None);
}

#[tokio::test(start_paused = true)]
async fn terms_mean_namespaces_by_name_and_by_labels() {
    let (kube, mut scheduler) = world();
    for (node, namespace, team) in [("a", "one", "red"), ("b", "two", "blue")] {
        fixtures::add_node(&kube, fixtures::node(node, "8", "16Gi")).unwrap();
        let mut space = fixtures::namespace(namespace);
        space["metadata"]["labels"] = json!({ "team": team });
        kube.create("namespaces", space).unwrap();
        let mut web = fixtures::pod("web", "1", "1Gi");
        web["metadata"]["namespace"] = json!(namespace);
        web["metadata"]["labels"] = json!({"app": "web"});
        web["spec"]["nodeName"] = json!(node);
        kube.create("pods", web).unwrap();
    }
    let away = |name: &str, of: Value| {
        let mut pod = fixtures::pod(name, "1", "1Gi");
        let mut term = of;
        term["topologyKey"] = json!("kubernetes.io/hostname");
        term["labelSelector"] = json!({"matchLabels": {"app": "web"}});
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        pod
    };
    let of_team = |team: &str| json!({"matchLabels": {"team": team}});
    for (name, term, expected) in [
        (
            "red",
            json!({"namespaceSelector": of_team("red")}),
            Some("b"),
        ),
        (
            "blue",
            json!({"namespaceSelector": of_team("blue")}),
            Some("a"),
        ),
        (
            "both",
            json!({"namespaceSelector": of_team("blue"), "namespaces": ["one"]}),
            None,
        ),
        ("all", json!({"namespaceSelector": {}}), None),
        ("own", json!({}), Some("a")),
    ] {
        kube.create("pods", away(name, term)).unwrap();
        pass(&kube, &mut scheduler);
        assert_eq!(node_of(&kube, name).as_deref(), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_what_it_has_no_filter_for() {
    let (kube, mut scheduler) = world();
    fixtures::add_node(&kube, fixtures::node("a", "2", "4Gi")).unwrap();
    let mut pod = fixtures::pod("p", "1", "1Gi");
    pod["spec"]["volumes"] = json!([{"name": "v", "rbd": {}}]);
    kube.create("pods", pod).unwrap();
    pass(&kube, &mut scheduler);
    assert_eq!(
        message_of(&kube, "p"),
        "the simulated scheduler has no filter for spec.volumes[*].rbd"
    );
}

/// A claim of a class whose volumes can be reached from `reach`.
fn claim(kube: &Kube, name: &str, reach: &str) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": reach},
        "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"reach": reach},
    });
    let _ = kube.create("storageclasses.storage.k8s.io", class);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageClassName": reach, "accessModes": ["ReadWriteOnce"]},
    });
    kube.create("persistentvolumeclaims", claim).unwrap();
}

fn using(claim: &str, pod: &str, cpu: &str) -> Value {
    let mut pod = fixtures::pod(pod, cpu, "1Gi");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    pod
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_where_its_pod_goes_and_keeps_later_pods_there() {
    let kube = world().0;
    let mut world = JoinSet::new();
    world.spawn(run(kube.clone(), Scoring::LeastAllocated));
    world.spawn(super::super::controllers::run(
        kube.clone(),
        super::super::controllers::Patience::default(),
    ));
    for name in ["a", "b"] {
        fixtures::add_node(&kube, fixtures::node(name, "4", "8Gi")).unwrap();
    }
    claim(&kube, "data", "node");
    claim(&kube, "net", "all");
    kube.create("pods", using("data", "first", "1")).unwrap();
    kube.create("pods", using("net", "other", "1")).unwrap();
    kube.create("pods", using("gone", "waits", "1")).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(node_of(&kube, "first").as_deref(), Some("a"));
    assert_eq!(node_of(&kube, "other").as_deref(), Some("b"));
    assert_eq!(
        message_of(&kube, "waits"),
        "persistentvolumeclaim \"gone\" not found"
    );
    for (claim, pod, cpu) in [("data", "second", "3"), ("net", "third", "1")] {
        kube.create("pods", using(claim, pod, cpu)).unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    // Node b has as much room for the second one.
    assert_eq!(node_of(&kube, "second").as_deref(), Some("a"));
    assert_eq!(node_of(&kube, "third").as_deref(), Some("b"));
    kube.create("pods", using("data", "late", "1")).unwrap();
    sleep(Duration::from_secs(5)).await;
    let message = message_of(&kube, "late");
    assert!(
        message.contains("1 node(s) had volume node affinity conflict"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_comes_and_goes_with_its_pod() {
    let kube = world().0;
    let mut world = JoinSet::new();
    world.spawn(run(kube.clone(), Scoring::LeastAllocated));
    world.spawn(super::super::controllers::run(
        kube.clone(),
        super::super::controllers::Patience::default(),
    ));
    fixtures::add_node(&kube, fixtures::node("a", "4", "8Gi")).unwrap();
    claim(&kube, "other", "node");
    let mut pod = fixtures::pod("p", "1", "1Gi");
    pod["spec"]["volumes"] = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {
        "spec": {"storageClassName": "node", "accessModes": ["ReadWriteOnce"]},
    }}}]);
    kube.create("pods", pod).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(node_of(&kube, "p").as_deref(), Some("a"));
    assert!(
        kube.get("persistentvolumeclaims", "default", "p-v")
            .is_some()
    );
    assert_eq!(kube.list("persistentvolumes").len(), 1);
    let now = crate::kube::request::DeleteOptions {
        grace: Some(0),
        ..Default::default()
    };
    kube.delete_with("pods", "default", "p", &now).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        kube.list("persistentvolumeclaims").len(),
        1,
        "the other one"
    );
    assert_eq!(kube.list("persistentvolumes").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_are_preferred_to_takes_pods_last() {
    let (kube, mut scheduler) = world();
    for (name, cpu) in [("a", "8"), ("b", "1"), ("c", "8")] {
        fixtures::add_node(&kube, fixtures::node(name, cpu, "4Gi")).unwrap();
    }
    let soft = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
    for (name, taints) in [
        ("a", json!([soft("x"), soft("y")])),
        ("c", json!([soft("x")])),
    ] {
        let patch = json!({"spec": {"taints": taints}});
        kube.patch("nodes", "", "", name, patch).unwrap();
    }
    let mut tolerant = fixtures::pod("p0", "500m", "512Mi");
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    kube.create("pods", tolerant).unwrap();
    for name in ["p1", "p2", "p3"] {
        kube.create("pods", fixtures::pod(name, "600m", "512Mi"))
            .unwrap();
    }
    pass(&kube, &mut scheduler);
    let nodes = ["p0", "p1", "p2", "p3"].map(|pod| node_of(&kube, pod).unwrap());
    assert_eq!(nodes, ["a", "b", "c", "c"]);
}
