//! Load falls: Nodes go one by one, no pod is lost, nothing is left behind.

use kproxide_simulator::kube::fixtures;
use kproxide_testkit::eventually;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{CORES, SOON, Scene, Stage};
use crate::witness::Witness;

const BEFORE: u32 = 60;
const AFTER: u32 = 30;
const POD_CPU_MILLI: u64 = 500;
/// The chart's default.
const LOAD_HEADROOM_PERCENT: u64 = 20;

/// The fewest Nodes that keep their headroom above the load.
fn nodes_needed(pods: u32) -> usize {
    let wanted = u64::from(pods) * POD_CPU_MILLI * (100 + LOAD_HEADROOM_PERCENT) / 100;
    // More must remain than is wanted, not as much.
    (wanted / (CORES * 1_000) + 1).try_into().unwrap()
}

#[test]
fn when_load_falls_nodes_go_one_by_one_and_no_pod_is_lost() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        stage
            .deploy("web", BEFORE, "500m", "512Mi", json!({}))
            .await;
        stage.until_running("web", BEFORE.try_into().unwrap()).await;
        let at_first = stage.born();
        stage.until_nodes(at_first).await;
        // Two that go at one time can be told from two that go one after the other.
        assert!(
            at_first >= nodes_needed(AFTER) + 2,
            "the case shows nothing: {at_first} Nodes at first"
        );

        let least = AFTER - 2;
        stage.budget("web", least).await;
        let witness = Witness::start(stage.api(), "web").await;
        stage.scale("web", AFTER).await;
        eventually(SOON, "the surplus Nodes gone", async || {
            let nodes = stage.nodes().await.len();
            let settled = nodes == nodes_needed(AFTER)
                && stage.machines().len() == nodes
                && stage.claims().await.len() == nodes
                && stage.ready_pods("web").await.len() == usize::try_from(AFTER).unwrap();
            if settled {
                Ok(())
            } else {
                Err(stage.describe().await)
            }
        })
        .await;
        let fewest = witness.fewest_ready().await;
        assert!(
            fewest >= usize::try_from(least).unwrap(),
            "{fewest} pods were left, the budget says {least}"
        );
        assert_eq!(witness.most_leaving().await, 1);

        stage.scale("web", 0).await;
        stage.until_nothing_is_left().await;
        // Empty ones too.
        assert_eq!(witness.most_leaving().await, 1);
        assert_eq!(witness.most_leaving_in_load_balancers().await, 0);
        assert_eq!(stage.born(), at_first, "a removal caused a launch");
        stage.end().await;
    });
}

/// The static Node's free room counts, its lack too.
#[test]
#[ignore = "tier: e2e"]
fn a_small_node_stays_while_static_nodes_are_full_and_goes_once_it_is_empty() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        stage.join_static_node("static-1").await;
        stage.deploy("full", 3, "1200m", "1Gi", json!({})).await;
        stage.until_running("full", 3).await;
        assert_eq!(stage.born(), 0, "{}", stage.describe().await);
        stage.deploy("small", 1, "500m", "512Mi", json!({})).await;
        stage.until_running("small", 1).await;
        stage.until_nodes(1).await;
        // That its pod has no other place says more than that the headroom would be too small.
        stage.until_kept("Stuck").await;
        assert_eq!(stage.ready_pods("small").await.len(), 1);
        // The screen says the same, and the rest of what there is.
        let screen = stage.status(&bench.binary).await;
        assert_eq!(screen["answer"], "All is well.", "{screen:#}");
        assert_eq!(screen["computed"], false, "{screen:#}");
        let pool = &screen["pools"][0];
        assert_eq!((&pool["machines"], &pool["ready"]), (&json!(1), &json!(1)));
        assert_eq!(pool["state"], json!(["Ready"]), "{screen:#}");
        let (node, kept) = (&stage.nodes().await[0], &screen["kept"][0]);
        assert_eq!(kept["node"], node["metadata"]["name"], "{screen:#}");
        let why = kept["reason"].as_str().unwrap();
        assert!(why.contains("pod default/small-"), "{why}");
        let decided = screen["decisions"].as_array().unwrap();
        assert!(!decided.is_empty(), "{screen:#}");

        stage.scale("small", 0).await;
        stage.until_nothing_is_left().await;
        stage.end().await;
    });
}

#[test]
#[ignore = "tier: e2e"]
fn the_add_ons_of_k3s_do_not_keep_a_node() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        for (resource, object) in fixtures::k3s_addons() {
            let resource = resource.trim_end_matches(".apps");
            let mut object = object;
            let pods = &mut object["spec"]["template"]["spec"];
            pods["terminationGracePeriodSeconds"] = json!(1);
            // Off the control plane's Node, where nobody runs pods.
            pods["tolerations"] = json!([]);
            let path = format!("/apis/apps/v1/namespaces/kube-system/{resource}");
            stage.api().create(&path, &object).await.unwrap();
        }
        // They are pending pods like others: a machine comes for them.
        eventually(SOON, "the add-ons on a machine of ours", async || {
            let addons = stage
                .api()
                .list("/api/v1/namespaces/kube-system/pods")
                .await
                .unwrap();
            let running = addons
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Running")
                .count();
            if running == 4 {
                Ok(())
            } else {
                Err(stage.describe().await)
            }
        })
        .await;
        assert_eq!(stage.born(), 1);
        stage.join_static_node("static-1").await;
        stage.until_nothing_is_left().await;
        eventually(SOON, "the three Deployments on static-1", async || {
            let addons = stage
                .api()
                .list("/api/v1/namespaces/kube-system/pods")
                .await
                .unwrap();
            let there: Vec<_> = addons
                .iter()
                .filter(|pod| {
                    pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
                        && pod["metadata"]["deletionTimestamp"].is_null()
                        && pod["status"]["phase"] == "Running"
                })
                .map(|pod| pod["spec"]["nodeName"].to_string())
                .collect();
            if there == ["\"static-1\""; 3] {
                Ok(())
            } else {
                Err(format!("they run on {there:?}"))
            }
        })
        .await;
        stage.end().await;
    });
}
