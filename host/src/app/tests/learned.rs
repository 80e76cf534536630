//! What Nodes have shown is in the NodeClass's status, and outlives them and the process.

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::pve::Topology;
use serde_json::{Value, json};

use super::degraded::{HOUR, lively, scale, wide};
use super::{MACHINE, furnished, run};
use crate::lab::{Lab, Setting};

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
        let quantity: kproxide_planner::quantity::Quantity = text.parse().unwrap();
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
