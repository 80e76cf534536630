//! Answers that Proxmox's own daemons give, and the simulator once did not.

use super::*;

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
    let (_, body) = world
        .call(Method::POST, "/nodes/pve1/qemu/9001/clone", "newid=101")
        .await;
    let upid = body["data"].as_str().unwrap().to_owned();
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(held);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let log = world.get(&format!("/nodes/pve1/tasks/{upid}/log")).await;
    let lines: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["t"])
        .collect();
    assert_eq!(
        lines[..3],
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
