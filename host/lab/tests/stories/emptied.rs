//! Servers that are emptied: by a person, or by Proxmox's maintenance mode.

use serde_json::{Value, json};

use super::degraded::{claims, lively, running, told};
use super::{cluster_status, run};
use kproxide_lab::{Lab, MACHINE, Setting, furnished, wide};

/// The servers on which machines in service are, sorted.
fn places(lab: &Lab) -> Vec<String> {
    let claims = claims(lab);
    let place = |claim: &Value| claim["spec"]["hypervisor"].as_str().unwrap().to_owned();
    let mut places: Vec<String> = claims.iter().map(place).collect();
    places.sort();
    places
}

fn wish(lab: &Lab, hypervisors: Value) {
    let patch = json!({ "spec": { "hypervisors": hypervisors } });
    let patched = lab
        .kube
        .patch("proxmoxclusters.kproxide.dev", "", "", "home", patch);
    patched.unwrap();
}

/// What the status says of a server.
fn said(lab: &Lab, server: &str) -> Value {
    let status = cluster_status(lab);
    let mut servers = status["hypervisors"].as_array().unwrap().iter();
    servers.find(|it| it["name"] == server).unwrap().clone()
}

fn full() -> Lab {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    wide(&lab, "web", "workers", 3);
    lab
}

#[tokio::test(start_paused = true)]
async fn three_servers_are_emptied_one_after_the_other() {
    let lab = full();
    run(&lab, 2 * MACHINE).await;
    assert_eq!(running(&lab, "web"), 3);
    for server in ["pve1", "pve2", "pve3"] {
        assert_eq!(said(&lab, server)["drained"], Value::Null);
        wish(&lab, json!({ "drain": [server] }));
        run(&lab, 6 * MACHINE).await;
        assert_eq!(running(&lab, "web"), 3, "{server}");
        let places = places(&lab);
        assert_eq!(places.len(), 3, "{places:?}");
        assert!(!places.iter().any(|place| place == server), "{places:?}");
        assert_eq!(said(&lab, server)["drained"], true, "{server}");
    }
    // It says nothing of servers that nobody wants empty.
    wish(&lab, json!({ "drain": null }));
    run(&lab, MACHINE).await;
    assert_eq!(said(&lab, "pve3")["drained"], Value::Null);
    let reasons = told(&lab, "Maintenance");
    assert!(
        reasons
            .iter()
            .all(|it| it.contains("its server is to be emptied"))
    );
    assert!(!reasons.is_empty());
}

#[tokio::test(start_paused = true)]
async fn machines_without_room_elsewhere_stay_and_the_status_names_them() {
    let lab = full();
    run(&lab, 2 * MACHINE).await;
    let on_pve1 = places(&lab).iter().filter(|it| *it == "pve1").count();
    assert!(on_pve1 > 0);
    for server in ["pve2", "pve3"] {
        lab.pve.set_maintenance(server, true);
    }
    wish(&lab, json!({ "drain": ["pve1"] }));
    run(&lab, 3 * MACHINE).await;
    assert_eq!(running(&lab, "web"), 3);
    let pve1 = said(&lab, "pve1");
    assert_eq!(pve1["drained"], false);
    let held: Vec<&str> = pve1["heldBy"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["reason"].as_str().unwrap())
        .collect();
    assert_eq!(held, vec!["ReplacementNotMade"; on_pve1]);
}

#[tokio::test(start_paused = true)]
async fn the_maintenance_mode_of_proxmox_keeps_machines_or_replaces_them() {
    let lab = full();
    run(&lab, 2 * MACHINE).await;
    let before = places(&lab);
    assert!(before.iter().any(|place| place == "pve1"));
    lab.pve.set_maintenance("pve1", true);
    run(&lab, 3 * MACHINE).await;
    assert_eq!(places(&lab), before, "they are kept");
    wish(&lab, json!({ "onMaintenance": "replace" }));
    run(&lab, 6 * MACHINE).await;
    let after = places(&lab);
    assert_eq!((after.len(), running(&lab, "web")), (3, 3));
    assert!(!after.iter().any(|place| place == "pve1"), "{after:?}");
}
