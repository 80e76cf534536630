//! The API from outside, as a client meets it.

mod bare;
mod daemons;
mod guests;
mod past;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
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

    async fn send(&self, method: Method, path: &str, form: &str) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api2/json{path}"))
            .header("authorization", "PVEAPIToken=kproxide@pve!ci=secret")
            .body(Bytes::from(form.to_owned()))
            .unwrap();
        self.pve.handle(request).await
    }

    async fn call(&self, method: Method, path: &str, form: &str) -> (u16, Value) {
        let response = self.send(method, path, form).await;
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
        let upid = self.begin(method, path, form).await;
        self.ended(&upid).await
    }

    /// Sends a request that starts a task, and returns its UPID.
    async fn begin(&self, method: Method, path: &str, form: &str) -> String {
        let (status, body) = self.call(method, path, form).await;
        assert_eq!(status, 200, "{path}: {body}");
        body["data"].as_str().unwrap().to_owned()
    }

    /// Waits for the end of a task and returns its exit status.
    async fn ended(&self, upid: &str) -> String {
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
async fn disk_that_gets_other_options_is_not_left_behind_as_unused() {
    let world = World::new(Topology::of(1));
    assert_eq!(world.clone(101).await, "OK");
    let path = "/nodes/pve1/qemu/101/config";
    let disk = world.get(path).await["scsi0"].as_str().unwrap().to_owned();
    let (volume, _) = disk.split_once(',').unwrap();
    let form = format!("scsi0={volume},backup=0").replace(',', "%2C");
    let (status, body) = world.call(Method::PUT, path, &form).await;
    assert_eq!(status, 200, "{body}");
    let config = world.get(path).await;
    assert!(
        config["scsi0"].as_str().unwrap().contains("backup=0"),
        "{config}"
    );
    assert_eq!(config.get("unused0"), None, "{config}");
    let (status, body) = world.call(Method::PUT, path, "delete=scsi0").await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(world.get(path).await["unused0"], volume);
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
    tokio::time::sleep(Duration::from_millis(200)).await;
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

#[tokio::test(start_paused = true)]
async fn two_runs_with_one_seed_are_the_same() {
    let run = async || {
        let world = World::new(Topology::of(3));
        let clones = (101..109).map(|new| world.clone(new));
        let exits = futures::future::join_all(clones).await;
        (
            exits,
            serde_json::to_string(&world.pve.snapshot()).unwrap(),
            world.pve.audit(),
        )
    };
    let (first, second) = (run().await, run().await);
    assert_eq!(first, second);
    assert!(first.0.iter().any(|exit| exit == "OK"), "{:?}", first.0);
}

#[tokio::test(start_paused = true)]
async fn requests_for_a_server_that_is_down_fail_in_their_own_way() {
    let world = World::new(Topology::of(2));
    world.pve.set_hypervisor_online("pve2", false);
    let asked = Instant::now();
    assert_eq!(
        world.call(Method::GET, "/nodes/pve2/qemu", "").await,
        (595, Value::Null)
    );
    assert!(asked.elapsed() < Duration::from_secs(5));
    world.pve.set_hypervisor_online("pve2", true);
    world.pve.set_hypervisor_hung("pve2", true);
    let asked = Instant::now();
    assert_eq!(
        world.call(Method::GET, "/nodes/pve2/qemu", "").await,
        (596, Value::Null)
    );
    assert_eq!(asked.elapsed().as_secs(), 30);
    let asked = Instant::now();
    let request = http::Request::get("https://pve2:8006/api2/json/version");
    let request = request.body(bytes::Bytes::new()).unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(60), world.pve.handle(request));
    assert!(waited.await.is_err(), "what has hung answers nobody itself");
    assert_eq!(asked.elapsed().as_secs(), 60);
    // What the cluster file system knows is still there.
    let vms = world.get("/cluster/resources?type=vm").await;
    assert_eq!(vms.as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn crash_of_a_server_leaves_a_locked_clone_behind() {
    let world = World::new(Topology::of(2));
    let (_, body) = world
        .call(Method::POST, "/nodes/pve1/qemu/9001/clone", "newid=101")
        .await;
    let upid = body["data"].as_str().unwrap().to_owned();
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.pve.set_hypervisor_online("pve1", false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.pve.set_hypervisor_online("pve1", true);
    let config = world.get("/nodes/pve1/qemu/101/config").await;
    assert_eq!(
        (&config["lock"], &config["description"]),
        (&json!("clone"), &json!(" qmclone temporary file"))
    );
    let task = world.get(&format!("/nodes/pve1/tasks/{upid}/status")).await;
    assert_eq!(task["exitstatus"], "unexpected status");
    let refused = world
        .refusal(Method::PUT, "/nodes/pve1/qemu/101/config", "cores=2")
        .await;
    assert_eq!(refused, "VM is locked (clone)");
    let left = || {
        let snapshot = world.pve.snapshot();
        let volumes = snapshot.volumes.iter();
        volumes.filter(|volume| volume.vmid == 101).count()
    };
    assert_eq!(left(), 1);
    world.pve.human_clears_clone(101).unwrap();
    assert_eq!(left(), 0);
    assert!(world.pve.snapshot().vms.iter().all(|vm| vm.vmid != 101));
    assert!(world.pve.human_clears_clone(101).is_err());
}

#[tokio::test(start_paused = true)]
async fn status_of_a_dead_server_is_believed_for_five_minutes() {
    let mut topology = Topology::of(2);
    topology.vms[1].template = false;
    topology.vms[1].running = true;
    let world = World::new(topology);
    world.pve.set_hypervisor_online("pve2", false);
    let status = async || {
        let all = world.get("/cluster/resources").await;
        let find = |id: &str| {
            all.as_array()
                .unwrap()
                .iter()
                .find(|entry| entry["id"] == id)
                .unwrap()["status"]
                .clone()
        };
        (find("node/pve2"), find("qemu/9002"))
    };
    assert_eq!(status().await, (json!("offline"), json!("running")));
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(status().await, (json!("offline"), json!("unknown")));
}

#[tokio::test(start_paused = true)]
async fn three_silent_agents_occupy_a_server() {
    let mut topology = Topology::of(1);
    topology.vms[0].template = false;
    topology.vms[0].running = true;
    let world = World::new(topology);
    let ping = || world.call(Method::POST, "/nodes/pve1/qemu/9001/agent/ping", "");
    let asked = Instant::now();
    let pings = async { tokio::join!(ping(), ping(), ping()) };
    let list = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.get("/cluster/resources").await;
        let unprotected = asked.elapsed();
        world.get("/nodes/pve1/qemu").await;
        (unprotected, asked.elapsed())
    };
    let (_, (unprotected, protected)) = tokio::join!(pings, list);
    assert!(unprotected < Duration::from_secs(1), "{unprotected:?}");
    assert!(protected > Duration::from_secs(3), "{protected:?}");
}

#[tokio::test(start_paused = true)]
async fn full_storage_refuses_the_clone_and_leaves_nothing() {
    let mut topology = Topology::of(1);
    topology.storages[0].kind = topology::StorageKind::LvmThin;
    let world = World::new(topology);
    world.pve.fill_storage("local-lvm", 0);
    let exit = world.clone(101).await;
    assert!(
        exit.starts_with("clone failed: lvcreate") && exit.contains("insufficient free space"),
        "{exit}"
    );
    let after = world.pve.snapshot();
    assert!(
        after.vms.iter().all(|vm| vm.vmid != 101)
            && after.volumes.iter().all(|volume| volume.vmid != 101)
    );
}

#[tokio::test(start_paused = true)]
async fn full_clone_goes_to_another_server_through_shared_storage_only() {
    let mut topology = Topology::of(2);
    for disk in topology.vms[0].disks.values_mut() {
        disk.storage = "ceph".into();
    }
    let world = World::new(topology);
    let local = world
        .refusal(
            Method::POST,
            "/nodes/pve2/qemu/9002/clone",
            "newid=150&target=pve1",
        )
        .await;
    assert_eq!(
        local,
        "can't clone VM to node 'pve1' (VM uses local storage)"
    );
    let linked = world
        .refusal(
            Method::POST,
            "/nodes/pve1/qemu/9001/clone",
            "newid=150&storage=ceph",
        )
        .await;
    assert_eq!(linked, "parameter 'storage' not allowed for linked clones");
    let form = "newid=150&target=pve2&full=1&storage=ceph&name=far";
    assert_eq!(
        world
            .task(Method::POST, "/nodes/pve1/qemu/9001/clone", form)
            .await,
        "OK"
    );
    let config = world.get("/nodes/pve2/qemu/150/config").await;
    assert!(
        config["scsi0"]
            .as_str()
            .unwrap()
            .starts_with("ceph:vm-150-disk-0"),
        "{config}"
    );
}

#[tokio::test(start_paused = true)]
async fn deaf_guest_holds_its_lock_until_it_is_stopped() {
    let mut topology = Topology::of(1);
    topology.vms[0].template = false;
    topology.vms[0].running = true;
    let world = World::new(topology);
    world.pve.set_ignores_shutdown(9001, true).unwrap();
    let vm = "/nodes/pve1/qemu/9001";
    let path = format!("{vm}/status/shutdown");
    let shutdown = world.task(Method::POST, &path, "timeout=40");
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world
            .refusal(Method::PUT, &format!("{vm}/config"), "cores=3")
            .await
    };
    let (shutdown, other) = tokio::join!(shutdown, other);
    assert_eq!(shutdown, "VM quit/powerdown failed - got timeout");
    assert_eq!(
        other,
        "can't lock file '/var/lock/qemu-server/lock-9001.conf' - got timeout"
    );

    let again = world.task(Method::POST, &path, "timeout=40");
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world
            .task(
                Method::POST,
                &format!("{vm}/status/stop"),
                "overrule-shutdown=1",
            )
            .await
    };
    let (again, stop) = tokio::join!(again, stop);
    assert_eq!((again.as_str(), stop.as_str()), ("unexpected status", "OK"));
}

#[tokio::test(start_paused = true)]
async fn human_copy_carries_description_and_tags() {
    let mut topology = Topology::of(1);
    topology.vms[0].config.extend([
        ("description".into(), "ours".into()),
        ("tags".into(), "kproxide".into()),
    ]);
    let world = World::new(topology);
    world.pve.human_clones_vm(9001, 150, "copy").unwrap();
    let vms = world.pve.snapshot().vms;
    let copy = vms.iter().find(|vm| vm.vmid == 150).unwrap();
    assert_eq!(
        (copy.description.as_deref(), copy.creator.as_str()),
        (Some("ours"), "human:root@pam")
    );
    assert_ne!(
        copy.smbios_uuid,
        vms.iter().find(|vm| vm.vmid == 9001).unwrap().smbios_uuid
    );
}

#[tokio::test(start_paused = true)]
async fn held_request_waits_and_is_recorded_once_it_acts() {
    let world = World::new(Topology::of(1).instant());
    let hold = world
        .pve
        .hold("clone".parse().unwrap(), crate::holds::Phase::Before);
    let clone = world.call(Method::POST, "/nodes/pve1/qemu/9001/clone", "newid=101");
    let check = async {
        hold.caught().await;
        assert!(world.pve.audit().is_empty() && world.pve.snapshot().tasks.is_empty());
        hold.release();
    };
    let ((status, _), ()) = tokio::join!(clone, check);
    assert_eq!(status, 200);
    let audit = world.pve.audit();
    assert_eq!(
        (audit[0].user.as_str(), audit[0].path.as_str()),
        ("kproxide@pve!ci", "/nodes/pve1/qemu/9001/clone")
    );
    assert!(audit[0].outcome.starts_with("UPID:pve1:"), "{:?}", audit[0]);
}

#[tokio::test(start_paused = true)]
async fn control_endpoint_moves_the_world_only_when_enabled() {
    use tower::ServiceExt;

    let world = World::new(Topology::of(1).instant());
    let send = async |service: PveService, method: Method, path: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Bytes::new())
            .unwrap();
        let response = service.oneshot(request).await.unwrap();
        let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        (response.status().as_u16(), body)
    };
    let (status, _) = send(world.pve.service(), Method::POST, "/_sim/quorum?quorate=0").await;
    assert_eq!((status, world.pve.snapshot().no_quorum_for), (401, None));
    let controlled = || world.pve.service_with_control();
    assert_eq!(
        send(controlled(), Method::POST, "/_sim/quorum?quorate=0")
            .await
            .0,
        200
    );
    assert!(world.pve.snapshot().no_quorum_for.is_some());
    let (_, hold) = send(
        controlled(),
        Method::POST,
        "/_sim/hold?request=start&phase=after",
    )
    .await;
    assert_eq!(hold, json!({"hold": 1}));
    let (status, body) = send(controlled(), Method::POST, "/_sim/vm/4711/stop").await;
    assert_eq!(
        (status, body["error"].as_str().unwrap().contains("4711")),
        (400, true)
    );
    let (_, snapshot) = send(controlled(), Method::GET, "/_sim/snapshot").await;
    assert_eq!(snapshot["vms"][0]["vmid"], 9001);
}
