//! A VM of somebody else that looks exactly like one of ours.

use kproxide_simulator::pve::VmView;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{SOON, Scene, Stage};

#[test]
fn a_copy_of_our_vm_is_never_touched() {
    on_a_cluster(async |bench| {
        let tagged =
            json!({ "nodeClasses": { "default": { "spec": { "tags": ["kproxide", "burst"] } } } });
        let mut stage = Stage::set(bench, Scene::with(tagged)).await;
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;

        // A person clones it in the web interface: name, tags, description and pool are ours, inside our range.
        let ours = stage.machines().remove(0);
        let copy = ours.vmid + 100;
        let pve = &stage.served.pve;
        pve.human_clones_vm(ours.vmid, copy, &ours.name).unwrap();
        pve.human_sets_pool(copy, ours.pool.as_deref()).unwrap();
        let seen = || pve.snapshot().vms.into_iter().find(|vm| vm.vmid == copy);
        let before = seen().unwrap();
        assert_eq!(
            (&before.name, &before.description),
            (&ours.name, &ours.description)
        );
        let tags = |vm: &VmView| vm.config.get("tags").cloned();
        assert_eq!(tags(&before), tags(&ours));
        assert!(tags(&ours).is_some_and(|tags| tags.contains("burst")));
        assert!(ours.description.is_some() && before.pool.as_deref() == Some("k8s"));

        // Through a whole life of the original, a restart, and another machine.
        stage.scale("web", 0).await;
        stage.until_machines(0).await;
        stage.pod.kill9().await.unwrap();
        stage.pod.restart().await.unwrap();
        stage.pod.ready(SOON).await.unwrap();
        stage.scale("web", 1).await;
        stage.until_running("web", 1).await;
        stage.scale("web", 0).await;
        stage.until_machines(0).await;

        let pve = &stage.served.pve;
        let after = pve
            .snapshot()
            .vms
            .into_iter()
            .find(|vm| vm.vmid == copy)
            .unwrap();
        assert_eq!(
            (&after.config, after.running),
            (&before.config, before.running)
        );
        let path = format!("/qemu/{copy}");
        let touched: Vec<_> = pve
            .audit()
            .into_iter()
            .filter(|entry| entry.path.contains(&path))
            .collect();
        assert!(touched.is_empty(), "{touched:?}");
        stage.end().await;
    });
}
