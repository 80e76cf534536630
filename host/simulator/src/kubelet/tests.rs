//! A whole simulated cluster: API, scheduler, controllers and kubelets on paused time.

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;
use crate::kube::{Kube, controllers::Patience, fixtures, scheduler::Scoring, world::World};

struct Cluster {
    kube: Kube,
    kubelets: Kubelets,
    _world: World,
}

fn cluster(seed: u64) -> Cluster {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let kube = Kube::new(clock, seed);
    let mut world = World::start(&kube, Scoring::LeastAllocated, Patience::default());
    let api = Api::new(kube.as_user("system:nodes").service());
    let (kubelets, task) = Kubelets::new(api, clock, Pace::REAL, seed);
    world.spawn(task);
    Cluster {
        kube,
        kubelets,
        _world: world,
    }
}

impl Cluster {
    fn node(&self, name: &str) -> NodeSpec {
        NodeSpec {
            joins_after: Duration::from_secs(20),
            ready_after: Duration::from_secs(5),
            reserved_memory_mib: 200,
            ..NodeSpec::new(name, "AAAA0000-0000-4000-8000-000000000001", 4_000, 8_192)
        }
    }

    fn count(&self, phase: &str) -> usize {
        let pods = self.kube.objects("pods");
        pods.iter()
            .filter(|pod| pod.phase.as_deref() == Some(phase) && !pod.terminating)
            .count()
    }

    fn ready(&self, node: &str) -> String {
        let node = self.kube.get("nodes", "", node).unwrap();
        let ready = crate::kube::object::condition(&node, "Ready").unwrap();
        ready["status"].as_str().unwrap().to_owned()
    }

    /// Waits in steps of a second, so that the time is known to a second.
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !holds(self) {
            assert!(
                start.elapsed() < Duration::from_secs(3_600),
                "{what} does not happen"
            );
            sleep(Duration::from_secs(1)).await;
        }
        start.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn pods_wait_until_a_node_joins_and_then_run() {
    let cluster = cluster(1);
    let web = fixtures::deployment("default", "web", 6, "1", "512Mi");
    cluster.kube.create("deployments.apps", web).unwrap();
    cluster
        .kube
        .create(
            "daemonsets.apps",
            fixtures::daemonset("kube-system", "agent", "100m", "64Mi"),
        )
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.count("Pending"), 6);

    cluster.kubelets.start_node(cluster.node("n1"));
    let joined = cluster
        .until("the node", |cluster| {
            !cluster.kube.objects("nodes").is_empty()
        })
        .await;
    assert!((20..22).contains(&joined.as_secs()), "{joined:?}");
    let node = cluster.kube.get("nodes", "", "n1").unwrap();
    assert_eq!(
        node["status"]["nodeInfo"]["systemUUID"],
        "aaaa0000-0000-4000-8000-000000000001"
    );
    assert_eq!(node["status"]["allocatable"]["memory"], "7992Mi");

    // The DaemonSet's pod takes 100m, so that three of the six fit beside it.
    cluster
        .until("three pods", |cluster| cluster.count("Running") == 4)
        .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((cluster.count("Running"), cluster.count("Pending")), (4, 3));
    cluster.kubelets.start_node(cluster.node("n2"));
    cluster
        .until("all pods", |cluster| cluster.count("Running") == 8)
        .await;
    let deployment = cluster
        .kube
        .get("deployments.apps", "default", "web")
        .unwrap();
    assert_eq!(deployment["status"]["readyReplicas"], 6);
    let lease = cluster
        .kube
        .get("leases.coordination.k8s.io", "kube-node-lease", "n1")
        .unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "n1");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_is_made_anew_elsewhere() {
    let cluster = cluster(2);
    cluster.kubelets.start_node(cluster.node("n1"));
    cluster.kubelets.start_node(cluster.node("n2"));
    cluster
        .kube
        .create(
            "deployments.apps",
            fixtures::deployment("default", "web", 2, "1", "1Gi"),
        )
        .unwrap();
    let budget = fixtures::disruption_budget("default", "web", json!("50%"));
    cluster
        .kube
        .create("poddisruptionbudgets.policy", budget)
        .unwrap();
    cluster
        .until("both pods", |cluster| cluster.count("Running") == 2)
        .await;
    sleep(Duration::from_secs(1)).await;
    let budget = || {
        cluster
            .kube
            .get("poddisruptionbudgets.policy", "default", "web")
            .unwrap()["status"]
            .clone()
    };
    assert_eq!(
        (&budget()["disruptionsAllowed"], &budget()["desiredHealthy"]),
        (&json!(1), &json!(1))
    );

    let names: Vec<String> = cluster
        .kube
        .objects("pods")
        .iter()
        .map(|pod| pod.key.name.clone())
        .collect();
    let evict = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        let request =
            http::Request::post(path).body(json!({"metadata": {"name": name}}).to_string().into());
        cluster
            .kube
            .handle(request.unwrap())
            .await
            .status()
            .as_u16()
    };
    assert_eq!(evict(&names[0]).await, 201);
    assert_eq!(evict(&names[1]).await, 429);
    cluster
        .until("the replacement", |cluster| cluster.count("Running") == 2)
        .await;
    cluster
        .until("the end of the evicted pod", |cluster| {
            cluster.kube.objects("pods").len() == 2
        })
        .await;
    assert!(cluster.kube.get("pods", "default", &names[0]).is_none());
    assert_eq!(evict(&names[1]).await, 201);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_turns_unknown_and_loses_its_pods() {
    let cluster = cluster(3);
    cluster.kubelets.start_node(cluster.node("n1"));
    cluster
        .kube
        .create(
            "deployments.apps",
            fixtures::deployment("default", "web", 1, "1", "1Gi"),
        )
        .unwrap();
    cluster
        .until("the pod", |cluster| cluster.count("Running") == 1)
        .await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.ready("n1"), "True");

    cluster.kubelets.stop_node("n1");
    let silent = cluster
        .until("Unknown", |cluster| cluster.ready("n1") == "Unknown")
        .await;
    assert!((30..=41).contains(&silent.as_secs()), "{silent:?}");
    let node = cluster.kube.get("nodes", "", "n1").unwrap();
    assert_eq!(
        node["spec"]["taints"][1]["key"],
        "node.kubernetes.io/unreachable"
    );
    // Five minutes of toleration, then a replacement that has no node; the old pod cannot end without its kubelet.
    let evicted = cluster
        .until("the eviction", |cluster| cluster.count("Pending") == 1)
        .await;
    assert!((298..=302).contains(&evicted.as_secs()), "{evicted:?}");
    assert_eq!(cluster.kube.objects("pods").len(), 2);

    // When the Node is deleted its pods are collected, and its Lease with it.
    cluster.kube.delete("nodes", "", "n1").unwrap();
    let collected = cluster
        .until("the collection", |cluster| {
            cluster.kube.objects("pods").len() == 1
        })
        .await;
    assert!((49..=51).contains(&collected.as_secs()), "{collected:?}");
    assert!(
        cluster
            .kube
            .objects("leases.coordination.k8s.io")
            .is_empty()
    );
}

/// Between the silence that makes a Node unknown and the eviction of its pods.
#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_comes_back_are_ready_again() {
    let cluster = cluster(3);
    cluster.kubelets.start_node(cluster.node("n1"));
    let web = fixtures::deployment("default", "web", 2, "1", "512Mi");
    cluster.kube.create("deployments.apps", web).unwrap();
    let ready = |cluster: &Cluster| {
        let pods = cluster.kube.objects("pods");
        pods.iter().filter(|pod| pod.ready).count()
    };
    cluster.until("both", |cluster| ready(cluster) == 2).await;
    cluster.kubelets.stop_node("n1");
    cluster
        .until("the silence", |cluster| cluster.ready("n1") == "Unknown")
        .await;
    assert_eq!(ready(&cluster), 0);

    cluster.kubelets.start_node(cluster.node("n1"));
    let again = cluster.until("both again", |cluster| ready(cluster) == 2);
    assert!(again.await < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn faults_of_nodes() {
    let cluster = cluster(4);
    let minute = Duration::from_secs(60);
    cluster.kubelets.start_node(NodeSpec {
        fault: Some(NodeFault::SilentAfter(minute)),
        ..cluster.node("silent")
    });
    cluster.kubelets.start_node(NodeSpec {
        fault: Some(NodeFault::NotReadyAfter(minute)),
        ..cluster.node("unready")
    });
    sleep(minute).await;
    assert_eq!(
        (cluster.ready("silent"), cluster.ready("unready")),
        ("True".into(), "True".into())
    );
    sleep(2 * minute).await;
    assert_eq!(
        (cluster.ready("silent"), cluster.ready("unready")),
        ("Unknown".into(), "False".into())
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_end_and_mirror_pods_come_back() {
    let cluster = cluster(5);
    let mut proxy = fixtures::pod("proxy", "50m", "64Mi");
    proxy["metadata"]["namespace"] = json!("kube-system");
    cluster.kubelets.start_node(NodeSpec {
        static_pods: vec![proxy],
        ..cluster.node("n1")
    });
    let mut template = fixtures::pod("", "100m", "64Mi");
    template["metadata"] = json!({"annotations": {RUN_SECONDS: "30"}});
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "sum"}, "spec": {"completions": 3, "parallelism": 2, "template": template}});
    cluster.kube.create("jobs.batch", job).unwrap();
    let done = |cluster: &Cluster| {
        let job = cluster.kube.get("jobs.batch", "default", "sum").unwrap();
        crate::kube::object::condition_is_true(&job, "Complete")
    };
    cluster.until("the job's end", done).await;
    assert_eq!(cluster.count("Succeeded"), 3);

    let mirror = || cluster.kube.get("pods", "kube-system", "proxy-n1");
    let uid = mirror().unwrap()["metadata"]["uid"].clone();
    cluster
        .kube
        .delete("pods", "kube-system", "proxy-n1")
        .unwrap();
    sleep(Duration::from_secs(60)).await;
    let again = mirror().unwrap();
    assert_ne!(again["metadata"]["uid"], uid);
    assert_eq!(again["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn a_scaled_down_deployment_and_a_deleted_namespace_leave_nothing() {
    let cluster = cluster(6);
    cluster.kubelets.start_node(cluster.node("n1"));
    cluster
        .kube
        .create("namespaces", fixtures::namespace("team"))
        .unwrap();
    cluster
        .kube
        .create(
            "deployments.apps",
            fixtures::deployment("team", "web", 3, "100m", "64Mi"),
        )
        .unwrap();
    cluster
        .until("the pods", |cluster| cluster.count("Running") == 3)
        .await;
    cluster
        .kube
        .patch(
            "deployments.apps",
            "",
            "team",
            "web",
            json!({"spec": {"replicas": 1}}),
        )
        .unwrap();
    cluster
        .until("one pod", |cluster| cluster.kube.objects("pods").len() == 1)
        .await;
    cluster.kube.delete("namespaces", "", "team").unwrap();
    cluster
        .until("the end", |cluster| {
            cluster.kube.get("namespaces", "", "team").is_none()
        })
        .await;
    assert!(cluster.kube.objects("pods").is_empty());
    assert!(cluster.kube.objects("replicasets.apps").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_addons_of_k3s_run_on_one_node() {
    let cluster = cluster(7);
    cluster.kubelets.start_node(cluster.node("n1"));
    for (resource, addon) in fixtures::k3s_addons() {
        cluster.kube.create(resource, addon).unwrap();
    }
    cluster
        .until("the add-ons", |cluster| cluster.count("Running") == 4)
        .await;
}

/// One eventful hour.
async fn story(seed: u64) -> Vec<String> {
    let cluster = cluster(seed);
    cluster
        .kube
        .create(
            "deployments.apps",
            fixtures::deployment("default", "web", 5, "1", "1Gi"),
        )
        .unwrap();
    for name in ["n1", "n2", "n3"] {
        cluster.kubelets.start_node(cluster.node(name));
    }
    sleep(Duration::from_secs(600)).await;
    cluster.kubelets.stop_node("n2");
    sleep(Duration::from_secs(3_000)).await;
    cluster
        .kube
        .audit()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn one_seed_tells_one_story() {
    let tell = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(story(seed))
    };
    let first = tell(1);
    assert!(first.len() > 50, "{} entries", first.len());
    assert_eq!(first, tell(1));
    assert_ne!(first, tell(2));
}
