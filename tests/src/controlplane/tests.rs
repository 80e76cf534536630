use std::time::Duration;

use serde_json::json;

use super::*;
use crate::eventually;

#[tokio::test]
async fn a_control_plane_serves_schedules_and_stops() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cluster = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();

    let version: Value = serde_json::from_str(
        &cluster
            .kubectl(&["version", "--output=json"])
            .await
            .unwrap(),
    )
    .unwrap();
    assert_eq!(version["serverVersion"]["gitVersion"], "v1.36.3");

    // The taint keeps the pod from the only Node, until it is tolerated.
    let pod = |name: &str, tolerations: Value| {
        json!({
            "metadata": { "name": name },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "tolerations": tolerations },
        })
    };
    let pods = "/api/v1/namespaces/default/pods";
    cluster
        .api()
        .create(pods, &pod("stays", json!([])))
        .await
        .unwrap();
    cluster
        .api()
        .create(pods, &pod("goes", json!([{ "operator": "Exists" }])))
        .await
        .unwrap();
    eventually(
        Duration::from_secs(20),
        "the scheduler's two verdicts",
        async || {
            let goes = cluster
                .api()
                .get(&format!("{pods}/goes"))
                .await
                .map_err(|error| error.to_string())?;
            let stays = cluster
                .api()
                .get(&format!("{pods}/stays"))
                .await
                .map_err(|error| error.to_string())?;
            let verdicts = (
                goes["spec"]["nodeName"].as_str(),
                condition(&stays, "PodScheduled"),
            );
            if verdicts == (Some(CONTROL_PLANE_NODE), Some("False")) {
                Ok(())
            } else {
                Err(format!("{verdicts:?}"))
            }
        },
    )
    .await;

    // kwok leaves that Node's pods to whoever plays its kubelet.
    let goes = cluster.api().get(&format!("{pods}/goes")).await.unwrap();
    assert_eq!(goes["status"]["phase"], "Pending");
    cluster.stop().await;
}

#[tokio::test]
async fn kwok_runs_the_pods_of_other_fake_nodes() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cluster = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();
    let node = json!({ "metadata": { "name": "worker", "annotations": { "kwok.x-k8s.io/node": "fake" } } });
    cluster.api().create("/api/v1/nodes", &node).await.unwrap();
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "runs" },
        "spec": { "nodeName": "worker", "containers": [{ "name": "c", "image": "i" }] },
    });
    cluster
        .kubectl_with_input(&["apply", "-f", "-"], &manifest.to_string())
        .await
        .unwrap();
    eventually(Duration::from_secs(20), "the pod to be Ready", async || {
        let pod = cluster
            .api()
            .get("/api/v1/namespaces/default/pods/runs")
            .await
            .map_err(|error| error.to_string())?;
        if condition(&pod, "Ready") == Some("True") {
            Ok(())
        } else {
            Err(pod["status"].to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_is_its_service_account_and_may_what_rbac_says() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    let token = cluster.token_for("default", "default", None).await.unwrap();
    let nobody = cluster.api_as(&token).unwrap();

    let who = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let who = nobody
        .create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &who)
        .await
        .unwrap();
    assert_eq!(
        who["status"]["userInfo"]["username"],
        "system:serviceaccount:default:default"
    );
    let refused = nobody.list("/api/v1/nodes").await.unwrap_err();
    assert_eq!(
        refused.status().map(|status| status.as_u16()),
        Some(403),
        "{refused}"
    );
}

#[tokio::test]
async fn a_flag_that_no_server_knows_is_an_error_with_its_log() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let options = Options {
        api_server_flags: vec!["--colour=blue".to_owned()],
        ..Options::default()
    };
    let error = ControlPlane::start(&programs, options)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kube-apiserver ended") && error.contains("--colour"),
        "{error}"
    );
}
