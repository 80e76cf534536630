//! The control plane fails under kproxide, or another replica comes in between: what was under way goes on by itself.

use std::collections::BTreeMap;

use kproxide_simulator::holds::Phase;
use kproxide_testkit::controlplane::condition;
use kproxide_testkit::eventually;
use serde_json::json;

use crate::bench::{DEFINITION, on_a_cluster};
use crate::binary::repository;
use crate::stage::{BUDGETS, CLAIMS, NAMESPACE, POOL, RELEASE, Replica, SOON, Scene, Stage};

/// Waits until this pod holds the Lease.
async fn until_leads(stage: &Stage<'_>, pod: &str) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}");
    eventually(SOON, &format!("{pod} leading"), async || {
        let lease = stage.api().find(&path).await.unwrap().unwrap_or_default();
        match lease["spec"]["holderIdentity"].as_str() {
            Some(holder) if holder.starts_with(pod) => Ok(()),
            other => Err(format!("{other:?} leads")),
        }
    })
    .await;
}

/// The leader hangs in the middle of a launch, its clone still on the way. The other replica finishes the launch; the old one wakes up, and acts no more.
#[test]
fn f72_f73_a_leader_that_hangs_past_its_lease_is_replaced_and_acts_no_more() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        let foreign = stage.put_up_a_foreign_vm();
        // A replica is ready before it leads.
        until_leads(&stage, stage.pod.name()).await;
        let second = stage.second_replica().await;
        // And leads still: one that does not would show nothing by hanging.
        until_leads(&stage, stage.pod.name()).await;

        let hold = stage
            .served
            .pve
            .hold("clone".parse().unwrap(), Phase::Before);
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        tokio::time::timeout(SOON, hold.caught())
            .await
            .expect("no clone");
        stage.pod.pause().await.unwrap();
        until_leads(&stage, second.name()).await;
        // It arrives in the term of the other.
        hold.release();
        stage.until_running("web", 1).await;
        stage.until_in_step(1).await;

        stage.pod.resume().await.unwrap();
        eventually(SOON, "the first replica standing by", async || match stage
            .metric(Replica::First, "kproxide_leader")
            .await?
        {
            0.0 => Ok(()),
            leads => Err(format!("kproxide_leader {leads}")),
        })
        .await;
        let begun = async |replica| stage.metric(replica, "kproxide_steps_total").await.unwrap();
        let before = (begun(Replica::First).await, begun(Replica::Second).await);
        stage.scale("web", 2).await;
        stage.until_running("web", 2).await;
        stage.until_in_step(2).await;
        stage.scale("web", 0).await;
        stage.until_nothing_is_left().await;
        let after = (begun(Replica::First).await, begun(Replica::Second).await);
        assert_eq!(after.0, before.0, "the old leader acted");
        assert!(after.1 > before.1, "{before:?} {after:?}");
        // One machine for each pod, whoever asked for it.
        assert_eq!(stage.born(), 2, "{:?}", stage.births());
        stage.assert_untouched(&foreign);
        assert!(second.remove().await.unwrap().success());
        stage.end().await;
    });
}

/// A server that says it is ready may still refuse custom resources for a moment.
async fn start_api_server(stage: &Stage<'_>) {
    stage.cluster.start_api_server().await.unwrap();
    eventually(SOON, "claims served", async || {
        let listed = stage.api().list(CLAIMS).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// The name of the only claim of this phase.
async fn claim_in(stage: &Stage<'_>, phase: &str) -> Option<String> {
    let mut claims = stage.claims().await;
    claims.retain(|claim| claim["status"]["phase"] == phase);
    match &claims[..] {
        [claim] => claim["metadata"]["name"].as_str().map(str::to_owned),
        _ => None,
    }
}

/// One machine is asked for and another one is being drained when the API server dies; the clone is made while it is away.
#[test]
#[ignore = "tier: e2e"]
fn f64_an_api_server_that_dies_and_comes_back_stops_neither_a_launch_nor_a_drain() {
    on_a_cluster(async |bench| {
        let mut stage = Stage::set(bench, Scene::default()).await;
        let foreign = stage.put_up_a_foreign_vm();
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;
        stage.until_in_step(1).await;
        // Nothing may leave that Node while its budget stands.
        stage.budget("web", 1).await;
        let hold = stage
            .served
            .pve
            .hold("clone".parse().unwrap(), Phase::Before);
        let drained = claim_in(&stage, "Initialized").await.unwrap();
        let path = format!("{CLAIMS}/{drained}");
        stage.api().delete(&path).await.unwrap();
        eventually(SOON, "the drain begun", async || {
            claim_in(&stage, "Draining").await
        })
        .await;
        stage.deploy("more", 1, "3", "1Gi", json!({})).await;
        tokio::time::timeout(SOON, hold.caught())
            .await
            .expect("no clone");

        stage.cluster.kill_api_server().await;
        let born = stage.born();
        hold.release();
        eventually(SOON, "the machine made meanwhile", async || {
            (stage.born() > born).then_some(()).ok_or("it is not there")
        })
        .await;
        start_api_server(&stage).await;

        stage.until_running("more", 1).await;
        assert_eq!(
            claim_in(&stage, "Draining").await.as_ref(),
            Some(&drained),
            "{}",
            stage.describe().await
        );
        stage.api().delete(&format!("{BUDGETS}/web")).await.unwrap();
        eventually(SOON, "the drained machine gone", async || {
            match stage.api().find(&path).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        stage.until_running("web", 1).await;
        stage.until_in_step(2).await;
        assert!(stage.pod.ended().is_none() && stage.pod.restarts() == 0);
        stage.scale("web", 0).await;
        stage.scale("more", 0).await;
        stage.until_nothing_is_left().await;
        stage.assert_untouched(&foreign);
        stage.end().await;
    });
}

/// The API server goes for maintenance while kproxide hangs, and etcd forgets: no watch can go on where it was.
#[test]
#[ignore = "tier: e2e"]
fn f58_watches_whose_past_was_compacted_begin_anew() {
    on_a_cluster(async |bench| {
        let mut stage = Stage::set(bench, Scene::default()).await;
        let foreign = stage.put_up_a_foreign_vm();
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;
        stage.until_in_step(1).await;
        stage.pod.pause().await.unwrap();
        stage.cluster.stop_api_server().await.unwrap();
        start_api_server(&stage).await;
        // The new server knows nothing older than its own start, and soon nobody does. What ends and what comes is only in the lists.
        stage
            .api()
            .delete("/apis/apps/v1/namespaces/default/deployments/web")
            .await
            .unwrap();
        stage.deploy("more", 2, "3", "1Gi", json!({})).await;
        stage.until_unschedulable("more", 1).await;
        stage.cluster.compact().await.unwrap();
        stage.pod.resume().await.unwrap();

        stage.until_running("more", 2).await;
        stage.until_in_step(2).await;
        let log = std::fs::read_to_string(stage.pod.log_path()).unwrap();
        for resource in ["nodeclaims", "nodes", "pods"] {
            let expired = log.lines().any(|line| {
                line.contains("watch expired") && line.contains(&format!("{resource:?}"))
            });
            assert!(expired, "the watch of {resource} did not expire:\n{log}");
        }
        assert!(stage.pod.ended().is_none() && stage.pod.restarts() == 0);
        stage.scale("more", 0).await;
        stage.until_nothing_is_left().await;
        assert_eq!(stage.born(), 2, "{:?}", stage.births());
        stage.assert_untouched(&foreign);
        stage.end().await;
    });
}

/// What the machines of a cluster do for its pods: everything here stays the same while nothing is destroyed.
#[derive(Debug, PartialEq, Eq)]
struct Service {
    /// Whether each VM runs, by number.
    vms: BTreeMap<u32, bool>,
    /// UIDs and taints, by name.
    nodes: BTreeMap<String, String>,
    /// Nodes of running pods, by UID.
    pods: BTreeMap<String, String>,
}

async fn service(stage: &Stage<'_>) -> Service {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = stage.nodes().await;
    let pods = stage.ready_pods("web").await;
    let shown = |node: &serde_json::Value| format!("{} {}", node["metadata"]["uid"], node["spec"]);
    Service {
        vms: stage
            .machines()
            .iter()
            .map(|vm| (vm.vmid, vm.running))
            .collect(),
        nodes: nodes
            .iter()
            .map(|node| (text(&node["metadata"]["name"]), shown(node)))
            .collect(),
        pods: pods
            .iter()
            .map(|pod| {
                (
                    text(&pod["metadata"]["uid"]),
                    text(&pod["spec"]["nodeName"]),
                )
            })
            .collect(),
    }
}

/// Enough for two full plans and whatever they lead to.
const TICKS: u32 = 4;

/// Somebody deletes the definition of claims, by mistake. Kubernetes then deletes every claim; nobody wished any machine gone.
#[test]
#[ignore = "tier: e2e"]
fn f111_a_deleted_definition_of_claims_freezes_everything_and_destroys_nothing() {
    on_a_cluster(async |bench| {
        let mut stage = Stage::set(bench, Scene::default()).await;
        let foreign = stage.put_up_a_foreign_vm();
        stage.deploy("web", 2, "3", "1Gi", json!({})).await;
        stage.until_running("web", 2).await;
        stage.until_in_step(2).await;
        let before = service(&stage).await;

        stage.api().delete(DEFINITION).await.unwrap();
        eventually(SOON, "every claim deleted by Kubernetes", async || {
            let mut claims = stage.claims().await;
            claims.retain(|claim| claim["metadata"]["deletionTimestamp"].is_null());
            claims.is_empty().then_some(()).ok_or(claims.len())
        })
        .await;
        stage
            .until_pool_unusable("nodeclaims.kproxide.dev is being deleted")
            .await;
        stage.until_more_ticks(TICKS).await;
        assert_eq!(service(&stage).await, before);
        // Nor after a restart, which remembers nothing.
        stage.pod.kill9().await.unwrap();
        stage.pod.restart().await.unwrap();
        stage.pod.ready(SOON).await.unwrap();
        stage.until_more_ticks(TICKS).await;
        assert_eq!(service(&stage).await, before);
        assert_eq!(stage.claims().await.len(), 2);

        // The only way on: the claims go, and the definition with the last of them. A pod that waits must not make kproxide try in vain.
        stage.deploy("waits", 1, "3", "1Gi", json!({})).await;
        for claim in stage.claims().await {
            let path = format!("{CLAIMS}/{}", claim["metadata"]["name"].as_str().unwrap());
            let free = json!({ "metadata": { "finalizers": null } });
            stage.api().merge(&path, &free).await.unwrap();
        }
        eventually(SOON, "no definition", async || {
            match stage.api().find(DEFINITION).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        stage
            .until_pool_unusable("there is no CustomResourceDefinition nodeclaims.kproxide.dev")
            .await;
        let log = || std::fs::read_to_string(stage.pod.log_path()).unwrap();
        let said = log().len();
        stage.until_more_ticks(TICKS).await;
        assert_eq!(service(&stage).await, before);
        let complaints =
            log()[said..].matches(" WARN ").count() + log()[said..].matches("ERROR").count();
        assert!(
            complaints <= 3,
            "{complaints} complaints:\n{}",
            &log()[said..]
        );

        stage
            .api()
            .delete("/apis/apps/v1/namespaces/default/deployments/waits")
            .await
            .unwrap();
        let definition = repository("charts/kproxide/crds/nodeclaims.yaml");
        let definition = definition.display().to_string();
        let apply = ["apply", "--server-side", "--filename", &definition];
        stage.cluster.kubectl(&apply).await.unwrap();
        eventually(SOON, "a pool that can be used again", async || {
            let pool = stage.api().get(POOL).await.unwrap();
            match condition(&pool, "Ready") {
                Some("True") => Ok(()),
                _ => Err(pool["status"].to_string()),
            }
        })
        .await;
        stage.until_more_ticks(TICKS).await;
        assert_eq!(service(&stage).await, before);
        stage.assert_untouched(&foreign);
        stage.end().await;
    });
}
