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
