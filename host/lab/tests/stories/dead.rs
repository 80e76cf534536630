//! A Proxmox server that dies: what runs elsewhere at once, and what waits for the proof that its machine is off.

use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::degraded::{claims, condition, lively};
use super::run;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

const MINUTE: Duration = Duration::from_secs(60);
/// Until a Node whose kubelet is silent is not Ready.
const SILENCE: Duration = Duration::from_secs(40);

fn pods(lab: &Lab, app: &str) -> Vec<Value> {
    let mut pods = lab.kube.list("pods");
    pods.retain(|pod| pod["metadata"]["labels"]["app"] == app);
    pods
}

/// How many of these pods are Ready, and not about to end.
fn serving(lab: &Lab, app: &str) -> usize {
    let serves = |pod: &&Value| {
        pod["metadata"]["deletionTimestamp"].is_null()
            && condition(pod, "Ready")["status"] == "True"
    };
    pods(lab, app).iter().filter(serves).count()
}

/// Two machines, each with a pod of a Deployment and one of a StatefulSet, whose volume is attached to its Node. Returns
/// the first of the StatefulSet's pods, and the server of its machine.
async fn two_servers(lab: &Lab) -> (Value, String) {
    wide(lab, "web", "workers", 2);
    let mut set = fixtures::deployment("default", "db", 2, "200m", "64Mi");
    set["kind"] = json!("StatefulSet");
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kproxide.dev/pool": "workers" });
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "db" } },
    }] } });
    set["spec"]["template"]["spec"]["affinity"] = apart;
    lab.apply([("statefulsets.apps", set)]);
    run(lab, MACHINE).await;
    assert_eq!((serving(lab, "web"), serving(lab, "db")), (2, 2));
    for (index, pod) in pods(lab, "db").iter().enumerate() {
        let volume = format!("pvc-{index}");
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": volume },
            "spec": {
                "attacher": "csi.example", "nodeName": pod["spec"]["nodeName"],
                "source": { "persistentVolumeName": volume },
            },
        });
        lab.apply([("volumeattachments.storage.k8s.io", attachment)]);
    }
    let first = pods(lab, "db").remove(0);
    let of_first = |claim: &&Value| claim["status"]["nodeName"] == first["spec"]["nodeName"];
    let claims = claims(lab);
    let server = claims.iter().find(of_first).unwrap()["status"]["hypervisor"].clone();
    (first, server.as_str().unwrap().to_owned())
}

fn pool() -> Value {
    let mut pool = lively();
    pool["repairAfter"] = json!("2m");
    pool
}

/// The pod of that name is still the same one.
fn is_there(lab: &Lab, pod: &Value) -> bool {
    let pods = lab.kube.list("pods");
    pods.iter()
        .any(|other| other["metadata"]["uid"] == pod["metadata"]["uid"])
}

fn unproven(lab: &Lab) -> Vec<Value> {
    let claims = lab.kube.list("nodeclaims.kproxide.dev");
    let conditions = claims.iter().map(|claim| condition(claim, "NotProvenOff"));
    conditions.filter(|it| it["status"] == "True").collect()
}

#[tokio::test(start_paused = true)]
async fn r24_pods_of_a_dead_server_run_elsewhere_and_a_volume_waits_for_the_proof() {
    let lab = furnished(Setting::new(1, 3), json!({}), pool());
    let (pod, server) = two_servers(&lab).await;
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        sleep(2 * MINUTE).await;
        lab.pve.set_hypervisor_online(&server, false);
        sleep(SILENCE + 2 * MINUTE + 2 * MINUTE).await;
        assert_eq!(
            serving(&lab, "web"),
            2,
            "within repairAfter and two minutes"
        );
        sleep(5 * MINUTE).await;
        assert!(
            is_there(&lab, &pod),
            "nothing proves that its machine is off"
        );
        let told = unproven(&lab);
        assert_eq!(told.len(), 1, "{told:?}");
        let message = told[0]["message"].as_str().unwrap();
        let line =
            format!("kubectl annotate proxmoxcluster home kproxide.dev/hypervisor-off={server}");
        assert!(message.contains(&line), "{message}");

        // The server is back, and its machines are stopped: that is the proof.
        lab.pve.set_hypervisor_online(&server, true);
        sleep(MINUTE).await;
        assert!(!is_there(&lab, &pod), "within a minute after the proof");
        sleep(3 * MINUTE).await;
        assert_eq!((serving(&lab, "web"), serving(&lab, "db")), (2, 2));
        let attachments = lab.kube.list("volumeattachments.storage.k8s.io");
        assert_eq!(attachments.len(), 1, "the other server's");
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r24_a_server_that_a_person_calls_off_is_off_until_it_answers() {
    let lab = furnished(Setting::new(2, 3), json!({}), pool());
    let (pod, server) = two_servers(&lab).await;
    let annotation = |lab: &Lab| {
        let clusters = lab.kube.list("proxmoxclusters.kproxide.dev");
        clusters[0]["metadata"]["annotations"]["kproxide.dev/hypervisor-off"].clone()
    };
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        sleep(2 * MINUTE).await;
        lab.pve.set_hypervisor_online(&server, false);
        sleep(SILENCE + 5 * MINUTE).await;
        assert!(is_there(&lab, &pod));
        let off = format!("{server},pve-of-old");
        let patch =
            json!({ "metadata": { "annotations": { "kproxide.dev/hypervisor-off": off } } });
        let patched = lab
            .kube
            .patch("proxmoxclusters.kproxide.dev", "", "", "home", patch);
        patched.unwrap();
        sleep(MINUTE).await;
        assert!(!is_there(&lab, &pod), "within a minute after the word");
        assert_eq!(annotation(&lab), off);

        lab.pve.set_hypervisor_online(&server, true);
        sleep(2 * MINUTE).await;
        assert_eq!(annotation(&lab), "pve-of-old", "it answers again");
        sleep(5 * MINUTE).await;
        assert_eq!((serving(&lab, "web"), serving(&lab, "db")), (2, 2));
        assert_eq!(unproven(&lab), [] as [Value; 0]);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
