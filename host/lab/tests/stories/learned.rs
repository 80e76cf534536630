//! What Nodes have shown is in the NodeClass's status, and outlives them and the process.

use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::pve::Topology;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::degraded::{HOUR, lively, running, scale};
use super::explained::{Pods, person, told};
use super::run;
use kproxide_controller::admin;
use kproxide_lab::{Lab, MACHINE, Setting, config, furnished, wide};

fn learned(lab: &Lab) -> Vec<Value> {
    let class = lab.kube.get("nodeclasses.kproxide.dev", "", "debian");
    let rows = class.unwrap()["status"]["learned"].clone();
    rows.as_array().cloned().unwrap_or_default()
}

fn claims(lab: &Lab) -> usize {
    lab.kube.list("nodeclaims.kproxide.dev").len()
}

#[tokio::test(start_paused = true)]
async fn r1_what_a_node_offered_is_known_after_it_is_gone_and_after_a_restart() {
    let setting = Setting {
        topology: Topology::of(2),
        ..Setting::new(1, 2)
    };
    // A Node offers less than the class says that it will.
    let class = json!({"overhead": {"cpu": "0", "memory": "0"}});
    let lab = furnished(setting, class, lively());
    wide(&lab, "web", "workers", 2);
    run(&lab, MACHINE).await;
    assert_eq!(claims(&lab), 2);
    let nodes = lab.kube.list("nodes");
    let ours = |node: &&Value| !node["metadata"]["labels"]["kproxide.dev/claim"].is_null();
    let node = nodes.iter().find(ours).unwrap();
    let rows = learned(&lab);
    let names: Vec<&Value> = rows.iter().map(|row| &row["instanceType"]).collect();
    assert_eq!(names, ["medium", "medium"]);
    let memory = |amounts: &Value| {
        let text = amounts["memory"].as_str().unwrap().to_owned();
        let quantity: kproxide_planner::kubernetes::quantity::Quantity = text.parse().unwrap();
        quantity.units_down()
    };
    let offered = memory(&node["status"]["allocatable"]);
    assert_eq!(memory(&rows[0]["allocatable"]), offered);
    scale(&lab, "web", 0);
    run(&lab, HOUR).await;
    assert_eq!(claims(&lab), 0);
    assert_eq!(learned(&lab), rows, "nothing is written again");
    // More than a Node offers, and not more than its VM has.
    let asked = format!("{}", offered + (1 << 20));
    assert!(offered + (1 << 20) <= 8 << 30, "{offered}");
    lab.apply([("pods", fixtures::pod("large", "1", &asked))]);
    run(&lab, MACHINE).await;
    assert_eq!(claims(&lab), 0, "no machine is tried");
}

/// Whoever is root on a machine writes into its Node what it offers. Another tenant's pod still gets a machine, and the NodeClass names the Node.
#[tokio::test(start_paused = true)]
async fn s1_one_node_that_says_it_is_small_keeps_no_machine_from_others() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    let pods = Pods::default();
    let client = person(&lab, &pods, true);
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let router = admin::router(app.vitals(), app.metrics());
    pods.lock().unwrap().insert("kproxide-0", router);
    let names = || -> Vec<String> {
        let nodes = lab.kube.list("nodes").into_iter();
        nodes
            .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let lie = |name: &str| {
        let patch = json!({ "status": { "allocatable": { "cpu": "100m" } } });
        lab.kube.patch("nodes", "status", "", name, patch).unwrap();
    };
    let story = async {
        wide(&lab, "web", "workers", 1);
        sleep(MACHINE).await;
        let liar = names().remove(0);
        for (name, machines) in [("other", 2), ("more", 3)] {
            lie(&liar);
            sleep(Duration::from_secs(60)).await;
            wide(&lab, name, "workers", 1);
            sleep(MACHINE).await;
            assert_eq!((running(&lab, name), claims(&lab)), (1, machines));
        }
        let (_, told) = told(&client).await.unwrap();
        let findings = told.world.findings.unwrap();
        let doubts = findings.iter().filter(|it| it.reason.word == "NodeDoubted");
        let doubts: Vec<_> = doubts.map(|it| (&*it.object, &*it.message)).collect();
        let [(object, message)] = doubts[..] else {
            panic!("{doubts:?}");
        };
        assert_eq!(object, "NodeClass/debian");
        assert!(message.contains("offers 100m of cpu"), "{message}");
        // If two say so, it is so.
        let second = names().into_iter().find(|name| *name != liar);
        lie(&second.unwrap());
        sleep(Duration::from_secs(60)).await;
        wide(&lab, "last", "workers", 1);
        sleep(MACHINE).await;
        assert_eq!((running(&lab, "last"), claims(&lab)), (0, 3));
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// The same with a mirror pod that asks for most of the machine. The other tenant's pods ask for more than half of one.
#[tokio::test(start_paused = true)]
async fn s1_a_mirror_pod_on_one_node_keeps_no_machine_from_others() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        wide(&lab, "web", "workers", 1);
        sleep(MACHINE).await;
        let node = lab.kube.list("nodes").remove(0);
        let mut pod = fixtures::pod("mirror", "3500m", "1Gi");
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "1" });
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Node", "controller": true,
            "name": node["metadata"]["name"], "uid": node["metadata"]["uid"],
        }]);
        pod["spec"]["nodeName"] = node["metadata"]["name"].clone();
        lab.apply([("pods", pod)]);
        sleep(Duration::from_secs(60)).await;
        for (name, machines) in [("other", 2), ("more", 3)] {
            let mut deployment = fixtures::deployment("default", name, 1, "2500m", "1Gi");
            let selector = json!({ "kproxide.dev/pool": "workers" });
            deployment["spec"]["template"]["spec"]["nodeSelector"] = selector;
            lab.apply([("deployments.apps", deployment)]);
            sleep(MACHINE).await;
            // Two of these pods do not fit on one machine.
            assert_eq!((running(&lab, name), claims(&lab)), (1, machines), "{name}");
        }
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
