//! Drains that something on the Node keeps from ending.

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use serde_json::{Value, json};

use super::degraded::{HOUR, claims, condition, lively, running, scale};
use super::run;
use kproxide_lab::{Lab, Setting};
use kproxide_lab::{MACHINE, furnished};

/// How many drains in a row were given up, for each machine in service.
fn in_a_row(lab: &Lab) -> Vec<u64> {
    let rows = claims(lab);
    let rows = rows.iter().map(|claim| &claim["status"]["blockedDrains"]);
    rows.map(|drains| drains["inARow"].as_u64().unwrap_or(0))
        .collect()
}

/// Pods that kproxide waits for and that do not end, each on a machine of its own. Each drain lasts for a minute. In two
/// hours there are four of each Node, whether or not the process is another one in the second hour.
#[tokio::test(start_paused = true)]
async fn a_node_that_its_pod_keeps_is_drained_ever_less_often_also_after_a_restart() {
    let mut pool = lively();
    pool["drainTimeout"] = json!("60s");
    let lab = furnished(Setting::new(1, 3), json!({}), pool);
    for name in ["batch", "report"] {
        let mut deployment = fixtures::deployment("default", name, 1, "3", "1Gi");
        deployment["spec"]["template"]["metadata"]["annotations"] = json!({
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion",
        });
        lab.apply([("deployments.apps", deployment)]);
    }
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "batch"), running(&lab, "report")), (1, 1));
    assert_eq!(in_a_row(&lab), [0, 0]);

    // Room for both elsewhere.
    let uuid = "a0000000-0000-4000-8000-000000000009";
    lab.kubelets
        .start_node(NodeSpec::new("large", uuid, 32_000, 65_536));
    run(&lab, HOUR).await;
    assert_eq!(in_a_row(&lab), [3, 3]);
    run(&lab, HOUR).await;
    assert_eq!(in_a_row(&lab), [4, 4]);
    assert_eq!((running(&lab, "batch"), running(&lab, "report")), (1, 1));
    for claim in claims(&lab) {
        let kept: Value = condition(&claim, "Removable");
        assert_eq!(kept["status"], "False", "{kept}");
        assert_eq!(kept["reason"], "RecentlyUnremovable", "{kept}");
        let message = kept["message"].as_str().unwrap();
        assert!(
            message.contains("drainTimeout") && message.contains("It tries again at 2"),
            "{message}"
        );
    }

    // The pods of one are gone: its Node goes at once. A person wants another try for the other.
    scale(&lab, "batch", 0);
    run(&lab, MACHINE).await;
    assert_eq!(in_a_row(&lab), [4]);
    let retry = json!({ "metadata": { "annotations": { "kproxide.dev/retry": "1" } } });
    lab.kube
        .patch("nodepools.kproxide.dev", "", "", "workers", retry)
        .unwrap();
    run(&lab, MACHINE).await;
    assert_eq!(in_a_row(&lab), [1]);
    assert_eq!(running(&lab, "report"), 1);
}
