//! What an operator met on a first day, row by row.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::one_truth::{machine, other, server};
use super::places::{examined, told};
use super::ward::Ward;
use kproxide_controller::judge::{Level, reasons};

/// Enough for what Proxmox states to be told on and to be seen twice.
const LOOKS: Duration = Duration::from_secs(25);

#[tokio::test(start_paused = true)]
async fn o5_explain_says_first_why_a_server_gets_no_machine_and_which_machines_are_on_it() {
    let ward = Ward::new();
    told(&ward, async |running| {
        let (busy, idle) = (server(&ward), other(&ward));
        let first = async |server: &str| {
            let said = running.said(&ward).await;
            let explained = said.explained(&format!("Hypervisor/home/{server}"));
            explained.lines().next().unwrap().to_owned()
        };
        ward.lab.pve.set_hypervisor_online(&busy, false);
        sleep(LOOKS).await;
        let expected = format!(
            "Hypervisor home/{busy} gets no machine: it is offline, as Proxmox says; 1 machine is on it: {}.",
            machine(&ward)
        );
        assert_eq!(first(&busy).await, expected);
        ward.lab.pve.set_hypervisor_online(&busy, true);

        ward.edit("proxmoxclusters/home", json!({ "hypervisors": { "exclude": [idle] } }));
        sleep(LOOKS).await;
        let expected = format!(
            "Hypervisor home/{idle} gets no machine: spec.hypervisors of the ProxmoxCluster excludes it; no machine is on it."
        );
        assert_eq!(first(idle).await, expected);
        ward.edit("proxmoxclusters/home", json!({ "hypervisors": null }));

        ward.lab.pve.fill_storage("local-lvm", 1 << 30);
        sleep(LOOKS).await;
        let full = first(idle).await;
        assert!(full.contains("gets no machine: storage local-lvm is nearly full"), "{full}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o8_a_server_whose_storage_is_full_has_nothing_free() {
    let ward = Ward::new();
    told(&ward, async |running| {
        let full = async || {
            let said = running.said(&ward).await;
            said.screen
                .hypervisors
                .iter()
                .map(|it| it.full)
                .collect::<Vec<_>>()
        };
        assert_eq!(full().await, [None, None]);
        ward.lab.pve.fill_storage("local-lvm", 1 << 30);
        sleep(LOOKS).await;
        assert_eq!(full().await, [Some("storage full"); 2]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o11_doctor_says_of_a_dead_server_that_it_is_offline_and_what_is_on_it() {
    let ward = Ward::new();
    told(&ward, async |_| {
        let dead = server(&ward);
        ward.lab.pve.set_hypervisor_online(&dead, false);
        ward.wires(|wires| {
            wires.dead.insert(format!("https://{dead}:8006"));
        });
        sleep(LOOKS).await;
        let report = examined(&ward).await;
        let mut findings = report.findings.iter();
        let found = findings
            .find(|it| *it.reason == reasons::HYPERVISOR_OFFLINE)
            .unwrap();
        let expected = format!(
            "server {dead} is offline, as Proxmox says; 1 machine is on it: {}",
            machine(&ward)
        );
        assert!(found.message.starts_with(&expected), "{report}");
        assert_eq!(found.level, Level::Error);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o15_where_the_pool_is_mistyped_our_machines_are_nobody_elses() {
    let ward = Ward::new();
    told(&ward, async |_| {
        ward.edit("proxmoxclusters/home", json!({ "pool": "nopool" }));
        sleep(LOOKS).await;
        let report = examined(&ward).await;
        let words: Vec<&str> = report.findings.iter().map(|it| it.reason.word).collect();
        assert!(words.contains(&"PoolMissing"), "{report}");
        assert!(!words.contains(&"VmidsTaken"), "{report}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o16_a_pool_in_deletion_says_what_is_left_although_proxmox_refuses_the_token() {
    let ward = Ward::new();
    told(&ward, async |running| {
        assert!(ward.lab.pve.revoke_token("kproxide@pve", "ci"));
        ward.lab
            .kube
            .delete("nodepools.kproxide.dev", "", "workers")
            .unwrap();
        sleep(LOOKS).await;
        let said = running.said(&ward).await;
        let reason = said
            .troubles()
            .into_iter()
            .find(|(object, _)| object == "NodePool/workers");
        assert_eq!(reason.unwrap().1, "BeingDeleted");
    })
    .await;
}
