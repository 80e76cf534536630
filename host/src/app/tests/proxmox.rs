//! What Proxmox VE does on bad days, seen from one pod that needs a machine.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::degraded::{HOUR, claims, lively, running, scale, told, wide};
use super::{MACHINE, cluster_status, furnished};
use crate::lab::{Lab, Setting, config};

/// How many machines stand on a hypervisor.
fn machines_on(lab: &Lab, hypervisor: &str) -> usize {
    let vms = lab.pve.snapshot().vms;
    let on_it = vms
        .iter()
        .filter(|vm| vm.vmid < 9_000 && vm.hypervisor == hypervisor);
    on_it.count()
}

#[tokio::test(start_paused = true)]
async fn p1_a_server_that_hangs_stops_neither_launches_nor_removals_elsewhere() {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        wide(&lab, "web", "workers", 3);
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 3);
        let before: Vec<_> = ["pve1", "pve2", "pve3"]
            .map(|name| machines_on(&lab, name))
            .into();
        assert_eq!(before, [1, 1, 1]);

        lab.pve.set_hypervisor_hung("pve2", true);
        sleep(Duration::from_secs(60)).await;
        scale(&lab, "web", 5);
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 5);
        assert_eq!(machines_on(&lab, "pve2"), 1, "it is no candidate");
        let status = cluster_status(&lab);
        assert_eq!(status["reachable"], true, "{status}");

        scale(&lab, "web", 0);
        sleep(HOUR).await;
        assert_eq!(
            (machines_on(&lab, "pve1"), machines_on(&lab, "pve3")),
            (0, 0)
        );
        assert_eq!(machines_on(&lab, "pve2"), 1, "nothing can be proven there");

        let only = json!({ "spec": { "hypervisors": { "include": ["pve2"] } } });
        lab.kube
            .patch("proxmoxclusters.kproxide.dev", "", "", "home", only)
            .unwrap();
        wide(&lab, "more", "workers", 2);
        sleep(MACHINE).await;
        let notes = told(&lab, "NotTriggerScaleUp");
        assert!(
            notes
                .iter()
                .any(|note| note.contains("its Proxmox daemons do not answer")),
            "{notes:?}"
        );

        lab.pve.set_hypervisor_hung("pve2", false);
        sleep(2 * MACHINE).await;
        assert_eq!(running(&lab, "more"), 2, "it is used again");
        scale(&lab, "more", 0);
        sleep(HOUR).await;
        assert!(claims(&lab).is_empty());
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
