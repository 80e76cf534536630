//! Answers that Proxmox's own daemons give, and the simulator once did not.

use super::*;
use crate::pve::topology::{StorageKind, StorageSpec};

#[tokio::test(start_paused = true)]
async fn p7_calls_of_a_dead_daemon_are_refused_and_the_others_answered() {
    let world = World::new(Topology::of(2));
    world.pve.set_daemon_running("pve2", false);
    let dead = (595, Value::Null);
    let listed = world.call(Method::GET, "/nodes/pve2/qemu", "").await;
    assert_eq!(listed, dead);
    for (path, status) in [
        ("/nodes/pve1/qemu", 200),
        ("/nodes/pve2/version", 200),
        ("/nodes/pve2/qemu/9002/config", 200),
        ("/nodes/pve2/qemu/9002/status/current", 595),
    ] {
        assert_eq!(world.call(Method::GET, path, "").await.0, status, "{path}");
    }
    world.pve.set_daemon_running("pve2", true);
    assert_eq!(world.call(Method::GET, "/nodes/pve2/qemu", "").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn p7_a_clone_that_waited_for_a_lock_says_so_first() {
    let world = World::new(Topology::of(1));
    let held = world
        .pve
        .locks()
        .config("pve1", 9001, Duration::from_secs(1), |_| ())
        .await;
    let upid = world
        .begin(Method::POST, "/nodes/pve1/qemu/9001/clone", "newid=101")
        .await;
    let path = format!("/nodes/pve1/tasks/{upid}/log");
    let lines = async || -> Vec<String> {
        let log = world.get(&path).await;
        let lines = log.as_array().unwrap().iter();
        lines
            .map(|line| line["t"].as_str().unwrap().to_owned())
            .collect()
    };
    let waits = async {
        while !lines()
            .await
            .iter()
            .any(|line| line == "trying to acquire lock...")
        {}
    };
    let within = Duration::from_secs(10);
    tokio::time::timeout(within, waits).await.expect("it waits");
    drop(held);
    let end = tokio::time::timeout(Duration::from_secs(60), world.ended(&upid)).await;
    assert_eq!(end.expect("it ends"), "OK");
    assert_eq!(
        lines().await[..3],
        [
            "trying to acquire lock...",
            " OK",
            "creating a clone of VM 9001 with ID 101"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn p7_a_bad_number_and_a_badly_encoded_key_are_told_as_the_daemons_tell_them() {
    let world = World::new(Topology::of(1));
    let told = async |method, path: &str, body: &str| {
        world.call(method, path, body).await.1["errors"].to_string()
    };
    for vmid in ["99", "12a"] {
        let body = format!("vmid={vmid}");
        let errors = told(Method::POST, "/nodes/pve1/qemu", &body).await;
        let text = "invalid format - value does not look like a valid VM ID";
        assert!(errors.contains(text), "{errors}");
    }
    for key in ["a b", "x%zz"] {
        let body = format!("sshkeys={}", key.replace('%', "%25").replace(' ', "%20"));
        let errors = told(Method::PUT, "/nodes/pve1/qemu/9001/config", &body).await;
        assert!(
            errors.contains(&format!("invalid urlencoded string: {key}")),
            "{errors}"
        );
    }
}

/// As recorded: `r2-cd-attach`, `r2-cd-running-replace-cloudinit`.
#[tokio::test(start_paused = true)]
async fn n4_another_cd_in_place_of_the_cloud_init_drive_frees_its_volume_unless_the_machine_runs() {
    let world = World::new(Topology::of(1));
    for (vmid, is_running) in [(101, false), (102, true)] {
        assert_eq!(world.clone(vmid).await, "OK");
        let machine = format!("/nodes/pve1/qemu/{vmid}");
        if is_running {
            let start = format!("{machine}/status/start");
            assert_eq!(world.task(Method::POST, &start, "").await, "OK");
        }
        let config = format!("{machine}/config");
        let empty = "ide2=none,media=cdrom";
        assert_eq!(world.call(Method::PUT, &config, empty).await.0, 200);
        let content = format!("/nodes/pve1/storage/local-lvm/content?vmid={vmid}");
        let volumes = world.get(&content).await;
        let volid = format!("local-lvm:vm-{vmid}-cloudinit");
        let mut volumes = volumes.as_array().unwrap().iter();
        assert_eq!(volumes.any(|it| it["volid"] == volid), is_running, "{vmid}");
    }
}

#[tokio::test(start_paused = true)]
async fn n4_a_left_cloud_init_volume_is_named_by_the_folder_of_its_storage() {
    let mut topology = Topology::of(1);
    let nas = StorageSpec::new("nas", StorageKind::Nfs, 1 << 40, &["images"]).shared();
    topology.storages.push(nas);
    topology.vms[0].disks.get_mut("ide2").unwrap().storage = "nas".into();
    let world = World::new(topology);
    world.pve.leave_cloudinit(171, "nas", "pve1");
    let path = "/mnt/pve/nas/images/171/vm-171-cloudinit.qcow2";
    assert_eq!(
        world.clone(171).await,
        format!("clone failed: disk image '{path}' already exists")
    );
}
