//! S7: a kubelet that writes kproxide's labels on its own Node, which nothing in Kubernetes forbids.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

const POOL: &str = "kproxide.dev/pool";
const CLASS: &str = "kproxide.dev/class";
const CLAIM: &str = "kproxide.dev/claim";
/// The prefix that kubelets may not write, so that a pool can keep tenants apart by it.
const TENANT: &str = "node-restriction.kubernetes.io/tenant";

fn label(lab: &Lab, node: &str, key: &str) -> Value {
    lab.kube.get("nodes", "", node).unwrap()["metadata"]["labels"][key].clone()
}

fn write(lab: &Lab, node: &str, labels: Value) {
    let patch = json!({ "metadata": { "labels": labels } });
    lab.kube.patch("nodes", "", "", node, patch).unwrap();
}

/// The Events about the claim of this Node.
fn told(lab: &Lab, claim: &str) -> Vec<Value> {
    let mut events = lab.kube.list("events.events.k8s.io");
    events.retain(|event| {
        event["reason"] == "NodeLabelsRestored" && event["regarding"]["name"] == claim
    });
    events
}

#[tokio::test(start_paused = true)]
async fn s7_a_kubelet_that_writes_another_pools_label_on_its_node_has_it_for_a_minute() {
    let pool = json!({ "limits": { "minNodes": 2, "maxNodes": 2 }, "labels": { TENANT: "red" } });
    let lab = furnished(Setting::new(1, 2), json!({}), pool);
    let (app, handle) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        sleep(MACHINE).await;
        let nodes = lab.kube.list("nodes").into_iter();
        let ours = nodes.filter_map(|node| {
            let claim = node["metadata"]["labels"][CLAIM].as_str()?.to_owned();
            Some((node["metadata"]["name"].as_str()?.to_owned(), claim))
        });
        let ours: Vec<(String, String)> = ours.collect();
        let [(evil, of_evil), (other, of_other)] = &ours[..] else {
            panic!("{ours:?}");
        };
        for (node, _) in &ours {
            assert_eq!(label(&lab, node, TENANT), "red");
        }

        // Every two seconds for two hours, beside a label of its user's own. On the other Node a person takes two off, once.
        write(&lab, evil, json!({ "team": "blue" }));
        write(
            &lab,
            other,
            json!({ CLASS: null, CLAIM: null, "team": "green" }),
        );
        let mut put_right = 0;
        for _ in 0..3600 {
            if label(&lab, evil, POOL) == "workers" {
                put_right += 1;
                write(&lab, evil, json!({ POOL: "other" }));
            }
            sleep(Duration::from_secs(2)).await;
        }
        assert!((100..=122).contains(&put_right), "{put_right}");
        sleep(Duration::from_secs(70)).await;
        let stands = |node: &str| [POOL, CLASS, CLAIM, "team"].map(|key| label(&lab, node, key));
        assert_eq!(stands(evil), ["workers", "debian", of_evil, "blue"]);
        assert_eq!(stands(other), ["workers", "debian", of_other, "green"]);

        let of_evil = told(&lab, of_evil);
        assert!((1..=3).contains(&of_evil.len()), "{of_evil:?}");
        for event in &of_evil {
            // Told again, it would be a series.
            assert_eq!(event["series"], Value::Null);
            let note = event["note"].as_str().unwrap();
            assert!(
                note.contains("kproxide.dev/pool is other and not workers"),
                "{note}"
            );
        }
        let of_other = told(&lab, of_other);
        assert!(of_other.len() <= 1, "{of_other:?}");
        handle.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
