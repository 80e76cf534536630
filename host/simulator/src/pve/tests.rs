//! The API from outside, as a client meets it.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// A cluster and a client with the token of [`Topology::of`].
struct World {
    pve: Pve,
}

impl World {
    fn new(topology: Topology) -> World {
        let epoch = Timestamp::from_second(1_795_000_000).unwrap();
        World {
            pve: Pve::new(topology, Clock::starting_at(epoch), 1),
        }
    }

    async fn call(&self, method: Method, path: &str, form: &str) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api2/json{path}"))
            .header("authorization", "PVEAPIToken=kproxide@pve!ci=secret")
            .body(Bytes::from(form.to_owned()))
            .unwrap();
        let response = self.pve.handle(request).await;
        let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        (response.status().as_u16(), body)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, "").await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body["data"].clone()
    }

    /// Sends a request that starts a task, waits for the task and returns its exit status.
    async fn task(&self, method: Method, path: &str, form: &str) -> String {
        let (status, body) = self.call(method, path, form).await;
        assert_eq!(status, 200, "{path}: {body}");
        let upid = body["data"].as_str().unwrap();
        let node = upid.split(':').nth(1).unwrap();
        loop {
            let status = self
                .get(&format!("/nodes/{node}/tasks/{upid}/status"))
                .await;
            if status["status"] == "stopped" {
                return status["exitstatus"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn clone(&self, new: u32) -> String {
        let form = format!("newid={new}&name=n{new}&pool=k8s");
        self.task(Method::POST, "/nodes/pve1/qemu/9001/clone", &form)
            .await
    }

    async fn refusal(&self, method: Method, path: &str, form: &str) -> String {
        let (status, body) = self.call(method, path, form).await;
        assert_eq!(status, 500, "{path}: {body}");
        body["message"].as_str().unwrap().trim_end().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn machine_is_cloned_configured_started_and_destroyed() {
    let world = World::new(Topology::of(3));
    let mut events = world.pve.machine_events();
    assert_eq!(world.clone(101).await, "OK");
    let config = world.get("/nodes/pve1/qemu/101/config").await;
    assert_eq!(config["name"], "n101");
    assert!(config.get("lock").is_none() && config.get("template").is_none());
    let (status, _) = world
        .call(
            Method::PUT,
            "/nodes/pve1/qemu/101/config",
            "cores=4&memory=4096&tags=B;a",
        )
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        world
            .task(
                Method::PUT,
                "/nodes/pve1/qemu/101/resize",
                "disk=scsi0&size=20G"
            )
            .await,
        "OK"
    );
    assert_eq!(
        world
            .task(Method::POST, "/nodes/pve1/qemu/101/status/start", "")
            .await,
        "OK"
    );
    let uuid = config["smbios1"]
        .as_str()
        .unwrap()
        .strip_prefix("uuid=")
        .unwrap();
    let started = events.recv().await.unwrap();
    assert!(
        matches!(&started, MachineEvent::Started { vmid: 101, smbios_uuid, .. } if smbios_uuid == uuid),
        "{started:?}"
    );

    let current = world.get("/nodes/pve1/qemu/101/status/current").await;
    assert_eq!(
        (&current["status"], &current["maxmem"]),
        (&json!("running"), &json!(4096u64 << 20))
    );
    assert_eq!(
        world
            .refusal(Method::DELETE, "/nodes/pve1/qemu/101?purge=1", "")
            .await,
        "VM 101 is running - destroy failed"
    );
    assert_eq!(
        world
            .task(Method::POST, "/nodes/pve1/qemu/101/status/stop", "")
            .await,
        "OK"
    );
    assert_eq!(
        world
            .task(Method::DELETE, "/nodes/pve1/qemu/101?purge=1", "")
            .await,
        "OK"
    );
    let after = world.pve.snapshot();
    assert!(after.vms.iter().all(|vm| vm.vmid != 101));
    assert!(after.volumes.iter().all(|volume| volume.vmid != 101));
    let birth = after.births.last().unwrap();
    assert_eq!(
        (birth.vmid, birth.creator.as_str()),
        (101, "kproxide@pve!ci")
    );
    assert!(birth.destroyed.is_some());
}

#[tokio::test(start_paused = true)]
async fn new_machine_has_no_name_until_the_next_broadcast() {
    let world = World::new(Topology::of(1));
    let (_, body) = world
        .call(
            Method::POST,
            "/nodes/pve1/qemu/9001/clone",
            "newid=101&name=late",
        )
        .await;
    assert!(body["data"].is_string());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let entry = |list: Value| {
        list.as_array()
            .unwrap()
            .iter()
            .find(|vm| vm["vmid"] == 101)
            .cloned()
            .unwrap()
    };
    let during = entry(world.get("/cluster/resources?type=vm").await);
    assert_eq!(
        during,
        json!({"id": "qemu/101", "vmid": 101, "node": "pve1", "type": "qemu", "status": "unknown", "lock": "clone"})
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    let later = entry(world.get("/cluster/resources?type=vm").await);
    assert_eq!(
        (&later["name"], &later["status"]),
        (&json!("late"), &json!("stopped"))
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_request_still_takes_effect() {
    let world = World::new(Topology::of(1));
    let call = world.call(Method::POST, "/nodes/pve1/qemu/9001/clone", "newid=101");
    // The client goes away before the answer.
    assert!(
        tokio::time::timeout(Duration::from_millis(1), call)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        world
            .pve
            .snapshot()
            .vms
            .iter()
            .any(|vm| vm.vmid == 101 && vm.lock.is_none())
    );
}
