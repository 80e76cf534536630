//! The condition Ready of a NodeClaim.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::conditions::{LONG, while_told};
use super::degraded::{condition, lively};
use kproxide_lab::wide;
use kproxide_lab::{MACHINE, furnished};
use kproxide_lab::{Setting, config};

#[tokio::test(start_paused = true)]
async fn a_claim_is_ready_while_its_node_is() {
    let lab = furnished(Setting::new(1, 2), serde_json::json!({}), lively());
    while_told(&lab, config("kproxide-0"), async {
        wide(&lab, "web", "workers", 1);
        sleep(Duration::from_secs(10)).await;
        let claim = || lab.kube.list("nodeclaims.kproxide.dev").remove(0);
        let ready = || condition(&claim(), "Ready");
        let first = ready();
        assert_eq!(first["status"], "Unknown", "{first}");
        assert_eq!(first["reason"], "NotInService", "{first}");
        sleep(MACHINE).await;
        assert_eq!(ready()["status"], "True");
        let claim_now = claim();
        for each in claim_now["status"]["conditions"].as_array().unwrap() {
            let generation = &claim_now["metadata"]["generation"];
            assert_eq!(&each["observedGeneration"], generation, "{each}");
        }
        let name = claim()["metadata"]["name"].as_str().unwrap().to_owned();
        let told = |reason: &str| {
            let events = lab.kube.list("events.events.k8s.io").into_iter();
            let about =
                |event: &Value| event["regarding"]["name"] == *name && event["reason"] == reason;
            events.filter(about).collect::<Vec<_>>()
        };
        assert_eq!(told("NodeReady"), [] as [Value; 0]);

        // Kubernetes sees after 40 s that the kubelet is silent.
        lab.kubelets.stop_node(&name);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(ready()["status"], "True");
        sleep(Duration::from_secs(35)).await;
        let silent = ready();
        assert_eq!(silent["status"], "False", "{silent}");
        assert_eq!(silent["reason"], "NodeNotReady", "{silent}");
        let message = silent["message"].as_str().unwrap();
        assert!(message.contains("look at the kubelet"), "{message}");
        let [event] = &told("NodeNotReady")[..] else {
            panic!("{:?}", told("NodeNotReady"));
        };
        assert_eq!(event["type"], "Warning");

        // kproxide starts the VM again, and the kubelet with it.
        let vmid = claim()["spec"]["vmid"].as_u64().unwrap();
        lab.pve.human_stops(u32::try_from(vmid).unwrap()).unwrap();
        sleep(LONG).await;
        assert_eq!(ready()["status"], "True");
        assert_eq!(told("NodeReady").len(), 1);

        lab.kube
            .delete("nodeclaims.kproxide.dev", "", &name)
            .unwrap();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(ready()["status"], "False");
    })
    .await;
}
