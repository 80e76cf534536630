//! A Proxmox server that dies. Node lifecycle, pod garbage collection and attach/detach are the real control plane's. The
//! test plays what runs on Nodes and beside them: kubelets that report their volumes, the provisioner and the attacher.

use std::time::Duration;

use kproxide_testkit::controlplane::condition;
use kproxide_testkit::eventually;
use serde_json::{Value, json};

use crate::bench::{ATTACHMENTS, on_a_cluster};
use crate::stage::{PODS, SOON, Scene, Stage};
use crate::volumes::{HOST, SHARED, STATEFUL_SETS, stateful_set};

const REPAIR_AFTER: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
const NODES: &str = "/api/v1/nodes";

/// Without it the control plane leaves the attaching to the kubelet.
const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// As the external-attacher has it: its object goes once the volume is detached.
const ATTACHER: &str = "external-attacher/shared-example";

/// One turn of those whom the test plays. What is gone by the time of the write, the next turn does not see.
async fn play(stage: &Stage<'_>) {
    let api = stage.api();
    SHARED.provision(api).await;
    for node in stage.nodes().await {
        if node["metadata"]["annotations"][ATTACHED_BY_CONTROLLER] != "true" {
            let by_controller =
                json!({ "metadata": { "annotations": { ATTACHED_BY_CONTROLLER: "true" } } });
            let path = format!("{NODES}/{}", node["metadata"]["name"].as_str().unwrap());
            let _ = api.merge(&path, &by_controller).await;
        }
    }
    for attachment in api.list(ATTACHMENTS).await.unwrap() {
        let name = attachment["metadata"]["name"].as_str().unwrap();
        let path = format!("{ATTACHMENTS}/{name}");
        if attachment["metadata"]["deletionTimestamp"].is_string() {
            let detached = json!({ "metadata": { "finalizers": null } });
            let _ = api.merge(&path, &detached).await;
        } else if attachment["status"]["attached"] != true {
            let kept = json!({ "metadata": { "finalizers": [ATTACHER] } });
            let _ = api.merge(&path, &kept).await;
            // One volume for each Node here. From now on only its kubelet, or the taint, lets it be detached.
            let volume = &attachment["spec"]["source"]["persistentVolumeName"];
            let volume = volume.as_str().unwrap();
            let name = format!("kubernetes.io/csi/{}^{volume}", SHARED.name);
            let mounted = json!({ "status": { "volumesInUse": [name] } });
            let node = attachment["spec"]["nodeName"].as_str().unwrap();
            let status = format!("{NODES}/{node}/status");
            let _ = api.merge(&status, &mounted).await;
            let attached = json!({ "status": { "attached": true } });
            let status = format!("{path}/status");
            let _ = api.merge(&status, &attached).await;
        }
    }
}

async fn pod(stage: &Stage<'_>, name: &str) -> Option<Value> {
    stage.api().find(&format!("{PODS}/{name}")).await.unwrap()
}

/// The Nodes to which the volume of this pod is attached.
async fn attached_to(stage: &Stage<'_>, pod: &str) -> Vec<Value> {
    let path = format!("{}/data-{pod}", crate::volumes::CLAIMS);
    let volume = stage.api().get(&path).await.unwrap()["spec"]["volumeName"].clone();
    let attachments = stage.api().list(ATTACHMENTS).await.unwrap();
    let mut of_volume = attachments;
    of_volume.retain(|it| {
        it["spec"]["source"]["persistentVolumeName"] == volume && it["status"]["attached"] == true
    });
    let nodes = of_volume.iter().map(|it| it["spec"]["nodeName"].clone());
    nodes.collect()
}

/// Waits until so many pods of the app are Ready, each of them on a Node of its own.
async fn until_serving(stage: &Stage<'_>, app: &str, count: usize, deadline: Duration) {
    let what = format!("{count} pods of {app}");
    eventually(deadline, &what, async || {
        play(stage).await;
        let ready = stage.ready_pods(app).await.len();
        if ready == count {
            Ok(())
        } else {
            Err(format!("{ready} run; {}", stage.describe().await))
        }
    })
    .await;
}

/// Waits until the volume of this pod is attached to the pod's Node and to no other.
async fn until_attached(stage: &Stage<'_>, name: &str) {
    eventually(
        SOON,
        &format!("the volume of {name} attached"),
        async || {
            play(stage).await;
            let pod = pod(stage, name).await.unwrap_or_default();
            let nodes = attached_to(stage, name).await;
            if nodes == [pod["spec"]["nodeName"].clone()] {
                Ok(())
            } else {
                Err(format!("{nodes:?}"))
            }
        },
    )
    .await;
}

/// What the claim of the machine says that keeps its pods from running elsewhere.
async fn until_not_proven_off(stage: &Stage<'_>, node: &Value) -> String {
    eventually(SOON, "a claim that is NotProvenOff", async || {
        play(stage).await;
        let claims = stage.claims().await;
        let mut claims = claims.iter();
        let claim = claims
            .find(|it| it["status"]["nodeName"] == *node)
            .ok_or("no claim")?;
        let mut conditions = claim["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let told = conditions.find(|it| it["type"] == "NotProvenOff" && it["status"] == "True");
        let told = told.ok_or_else(|| claim["status"].to_string())?;
        Ok::<_, String>(told["message"].as_str().unwrap().to_owned())
    })
    .await
}

/// Two servers with a machine each, on each a pod of a Deployment and one of a StatefulSet; one server dies.
#[test]
#[ignore = "tier: e2e"]
fn r24_pods_of_a_dead_server_run_elsewhere_and_a_volume_after_the_proof() {
    on_a_cluster(async |bench| {
        let repair = json!({ "nodePools": { "default": { "spec": { "repairAfter": "10s" } } } });
        let stage = Stage::set(bench, Scene::with(repair)).await;
        SHARED.install(stage.api()).await;
        let set = stateful_set("db", 2, SHARED.class);
        stage.api().create(STATEFUL_SETS, &set).await.unwrap();
        let apart = json!({ "affinity": { "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": HOST, "labelSelector": { "matchLabels": { "app": "web" } },
            }],
        } } });
        stage.deploy("web", 2, "500m", "256Mi", apart).await;
        for app in ["web", "db"] {
            until_serving(&stage, app, 2, SOON).await;
        }
        for name in ["db-0", "db-1"] {
            until_attached(&stage, name).await;
        }
        stage.until_in_step(2).await;
        let old = pod(&stage, "db-0").await.unwrap();
        let node = &old["spec"]["nodeName"];
        let claims = stage.claims().await;
        let claim = claims.iter().find(|it| it["status"]["nodeName"] == *node);
        let server = claim.unwrap()["status"]["hypervisor"].as_str().unwrap();
        assert_eq!(stage.placed()[server], 1, "{}", stage.describe().await);

        stage.served.pve.set_hypervisor_online(server, false);
        until_gone_silent(&stage, node).await;
        until_serving(&stage, "web", 2, REPAIR_AFTER + 2 * MINUTE).await;
        let told = until_not_proven_off(&stage, node).await;
        let line =
            format!("kubectl annotate proxmoxcluster lab kproxide.dev/hypervisor-off={server}");
        assert!(told.contains(&line), "{told}");
        stage.until_more_ticks(5).await;
        play(&stage).await;
        let still = pod(&stage, "db-0").await.unwrap();
        assert_eq!(still["metadata"]["uid"], old["metadata"]["uid"]);
        let attached = attached_to(&stage, "db-0").await;
        assert_eq!(attached, std::slice::from_ref(node));

        // The server is back, and its machines are stopped: that is the proof.
        stage.served.pve.set_hypervisor_online(server, true);
        eventually(MINUTE, "the pod of the volume elsewhere", async || {
            play(&stage).await;
            let now = pod(&stage, "db-0").await.unwrap_or_default();
            let moved = now["spec"]["nodeName"].is_string() && now["spec"]["nodeName"] != *node;
            if moved && condition(&now, "Ready") == Some("True") {
                Ok(())
            } else {
                Err(format!("{}; {}", now["status"], stage.describe().await))
            }
        })
        .await;
        until_attached(&stage, "db-0").await;
        stage.until_in_step(2).await;
        until_serving(&stage, "web", 2, SOON).await;
        until_serving(&stage, "db", 2, SOON).await;
        stage.end().await;
    });
}

/// Waits until the control plane notices that nobody renews the Node's Lease.
async fn until_gone_silent(stage: &Stage<'_>, node: &Value) {
    let path = format!("{NODES}/{}", node.as_str().unwrap());
    eventually(SOON, "a Node that is not Ready", async || {
        play(stage).await;
        let node = stage.api().get(&path).await.unwrap();
        match condition(&node, "Ready") {
            Some("Unknown") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
