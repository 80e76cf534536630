//! Credentials of Proxmox that may do more than kproxide does.

mod rotation;

use kproxide_simulator::pve::Topology;
use serde_json::{Value, json};

use super::{cluster_status, run};
use kproxide_lab::{Lab, Setting};
use kproxide_lab::{MACHINE, furnished};

/// The condition `TokenFits` of the cluster.
fn fits(lab: &Lab) -> Value {
    let status = cluster_status(lab);
    let mut conditions = status["conditions"].as_array().unwrap().iter();
    let found = conditions.find(|condition| condition["type"] == "TokenFits");
    found.expect("it is known by now").clone()
}

/// The Events that say so of the pool.
fn told(lab: &Lab) -> Vec<Value> {
    let mut events = lab.kube.list("events.events.k8s.io");
    events.retain(|event| event["reason"] == "TokenOverPrivileged");
    events
}

#[tokio::test(start_paused = true)]
async fn a_token_of_the_role_that_is_recommended_fits() {
    let lab = furnished(Setting::new(1, 2), json!({}), json!({}));
    run(&lab, MACHINE).await;
    let fits = fits(&lab);
    assert_eq!(
        (&fits["status"], &fits["reason"]),
        (&json!("True"), &json!("Fits"))
    );
    assert_eq!(told(&lab), [] as [Value; 0]);
}

/// Nothing stops for it: whoever steals it could do more.
#[tokio::test(start_paused = true)]
async fn an_administrators_token_is_reported_once_with_what_is_too_much_and_the_remedy() {
    let mut setting = Setting::new(1, 2);
    setting.topology = Topology::of(2);
    let lab = furnished(setting, json!({}), json!({}));
    run(&lab, MACHINE).await;
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 1);

    let fits = fits(&lab);
    assert_eq!(
        (&fits["status"], &fits["reason"]),
        (&json!("False"), &json!("TokenOverPrivileged"))
    );
    let message = fits["message"].as_str().unwrap();
    for part in ["(/: Datastore.Allocate, ", "examples/proxmox/setup.sh"] {
        assert!(message.contains(part), "{message}");
    }
    let told = told(&lab);
    assert_eq!(told.len(), 1, "{told:?}");
    // Told again, it would be a series.
    assert_eq!(told[0]["series"], Value::Null);
    assert_eq!(told[0]["regarding"]["name"], "workers");
    let note = told[0]["note"].as_str().unwrap();
    assert_eq!(note, format!("ProxmoxCluster home: {message}"));
}
