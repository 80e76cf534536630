//! A VM that a person migrates to another server.

use kproxide_planner::keys::{BETA_ZONE, ZONE};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use kproxide_lab::{MACHINE, furnished};
use kproxide_lab::{Setting, config};

const CLAIMS: &str = "nodeclaims.kproxide.dev";

#[tokio::test(start_paused = true)]
async fn r37_the_zone_of_a_node_follows_its_vm_and_what_keeps_it_is_told() {
    let lab = furnished(Setting::new(1, 2), json!({}), json!({}));
    let (app, handle) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let claim = || lab.kube.list(CLAIMS)[0].clone();
    let node = || {
        let name = claim()["status"]["nodeName"].as_str().unwrap().to_owned();
        lab.kube.get("nodes", "", &name).unwrap()
    };
    let ready = || {
        let conditions = claim()["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().unwrap().iter();
        let ready = conditions.find(|it| it["type"] == "Ready").unwrap().clone();
        (ready["status"].clone(), ready["reason"].clone())
    };
    let is = |word: &str| (Value::from("True"), Value::from(word));
    let migrate = async |to: &str| {
        let vmid = claim()["spec"]["vmid"].as_u64().unwrap();
        lab.pve.human_migrates(vmid as u32, to).unwrap();
        sleep(Duration::from_secs(120)).await;
        assert_eq!(claim()["status"]["hypervisor"], to);
    };
    let look = async {
        sleep(MACHINE).await;
        let (from, to) = match &claim()["spec"]["hypervisor"] {
            one if one == "pve1" => ("pve1", "pve2"),
            _ => ("pve2", "pve1"),
        };
        assert_eq!(node()["metadata"]["labels"][ZONE], from);
        migrate(to).await;
        assert_eq!(node()["metadata"]["labels"][ZONE], to);
        assert_eq!(ready(), is("NodeReady"));

        // A cloud controller writes this one too: then the label is the controller's.
        let labels = json!({ "metadata": { "labels": { BETA_ZONE: to } } });
        let name = node()["metadata"]["name"].as_str().unwrap().to_owned();
        lab.kube.patch("nodes", "", "", &name, labels).unwrap();
        migrate(from).await;
        assert_eq!(node()["metadata"]["labels"][ZONE], to);
        assert_eq!(ready(), is("ZoneOutdated"));
        handle.stop.cancel();
    };
    let ((), ended) = tokio::join!(look, app.run());
    ended.unwrap();
}
