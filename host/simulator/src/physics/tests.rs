//! From a clone request to a Ready Node, over both simulated APIs.

use bytes::Bytes;
use http::{Method, Request};
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::{
    clock::Clock,
    kube::{Kube, controllers::Patience, fixtures, object, scheduler::Scoring, world::World},
    kubelet::{Api, Pace},
    pve::Topology,
};

struct Lab {
    pve: Pve,
    kube: Kube,
    physics: Physics,
    _world: World,
}

fn lab(guests: Guests) -> Lab {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let pve = Pve::new(Topology::of(3), clock, 1);
    let kube = Kube::new(clock, 1);
    let mut world = World::start(&kube, Scoring::LeastAllocated, Patience::default());
    let (kubelets, task) = Kubelets::new(Api::new(kube.service()), clock, Pace::REAL, 1);
    world.spawn(task);
    let (physics, task) = Physics::new(pve.clone(), kubelets, guests, 1);
    world.spawn(task);
    Lab {
        pve,
        kube,
        physics,
        _world: world,
    }
}

impl Lab {
    /// Sends a request to Proxmox and waits long enough for its task.
    async fn send(&self, method: Method, path: &str, form: &str) {
        self.ask(method, path, form).await;
        sleep(Duration::from_secs(60)).await;
    }

    async fn ask(&self, method: Method, path: &str, form: &str) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api2/json{path}"))
            .header("authorization", "PVEAPIToken=kproxide@pve!ci=secret")
            .body(Bytes::from(form.to_owned()))
            .unwrap();
        let response = self.pve.handle(request).await;
        assert_eq!(response.status(), 200, "{path}: {:?}", response.body());
        let mut answer: Value = serde_json::from_slice(response.body()).unwrap();
        answer["data"].take()
    }

    async fn start_vm(&self, vmid: u32) {
        let form = format!("newid={vmid}&name=N{vmid}&pool=k8s");
        self.send(Method::POST, "/nodes/pve1/qemu/9001/clone", &form)
            .await;
        let vm = format!("/nodes/pve1/qemu/{vmid}");
        self.send(Method::PUT, &format!("{vm}/config"), "cores=4&memory=8192")
            .await;
        self.send(Method::POST, &format!("{vm}/status/start"), "")
            .await;
    }

    fn ready(&self, node: &str) -> Option<bool> {
        let node = self.kube.get("nodes", "", node)?;
        Some(object::condition_is_true(&node, "Ready"))
    }

    fn agent(&self, vmid: u32) -> bool {
        self.pve
            .snapshot()
            .vms
            .iter()
            .any(|vm| vm.vmid == vmid && vm.agent)
    }
}

#[tokio::test(start_paused = true)]
async fn a_started_machine_joins_and_runs_pods() {
    let lab = lab(Guests {
        provider_id_region: Some("lab".to_owned()),
        ..Guests::default()
    });
    lab.kube
        .create("pods", fixtures::pod("p", "1", "1Gi"))
        .unwrap();
    lab.start_vm(101).await;
    sleep(Duration::from_secs(60)).await;
    assert!(lab.agent(101));
    let node = lab.kube.get("nodes", "", "n101").unwrap();
    let vms = lab.pve.snapshot().vms;
    let uuid = vms
        .iter()
        .find(|vm| vm.vmid == 101)
        .unwrap()
        .smbios_uuid
        .clone()
        .unwrap();
    assert_eq!(node["status"]["nodeInfo"]["systemUUID"], uuid);
    assert_eq!(node["spec"]["providerID"], "proxmox://lab/101");
    assert_eq!(node["status"]["allocatable"]["memory"], "7892Mi");
    let pod = lab.kube.get("pods", "default", "p").unwrap();
    assert_eq!(
        (&pod["spec"]["nodeName"], &pod["status"]["phase"]),
        (&json!("n101"), &json!("Running"))
    );

    lab.send(Method::POST, "/nodes/pve1/qemu/101/status/stop", "")
        .await;
    assert_eq!(lab.ready("n101"), Some(false));
    lab.pve.human_starts(101).unwrap();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(lab.ready("n101"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn quirks_of_single_machines() {
    let lab = lab(Guests::default());
    lab.physics.quirk_of_next(Quirk {
        never_joins: true,
        ..Quirk::default()
    });
    lab.physics.quirk_of_next(Quirk {
        silent_agent: true,
        missing_cpu_milli: 200,
        ..Quirk::default()
    });
    lab.start_vm(101).await;
    lab.start_vm(102).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!((lab.ready("n101"), lab.agent(101)), (None, true));
    assert_eq!((lab.ready("n102"), lab.agent(102)), (Some(true), false));
    let node = lab.kube.get("nodes", "", "n102").unwrap();
    assert_eq!(node["status"]["allocatable"]["cpu"], "3800m");
}

#[tokio::test(start_paused = true)]
async fn a_command_makes_a_machine_a_member() {
    let lab = lab(Guests {
        join: Join::OnExec,
        ..Guests::default()
    });
    lab.start_vm(101).await;
    assert_eq!((lab.ready("n101"), lab.agent(101)), (None, true));
    lab.send(
        Method::POST,
        "/nodes/pve1/qemu/101/agent/exec",
        "command=join",
    )
    .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.ready("n101"), Some(true));
}

impl Lab {
    /// Runs a command whose `$0` is this, and returns what it printed.
    async fn exec(&self, vmid: u32, name: &str) -> Value {
        let vm = format!("/nodes/pve1/qemu/{vmid}/agent");
        let form = format!("command=sh&command=-c&command=true&command={name}&command=uid");
        let answer = self.ask(Method::POST, &format!("{vm}/exec"), &form).await;
        sleep(Duration::from_secs(1)).await;
        let path = format!("{vm}/exec-status?pid={}", answer["pid"]);
        self.ask(Method::GET, &path, "").await["out-data"].take()
    }
}

/// The questions of `host/controller/src/act/join.rs`, which a real shell answers in its tests.
#[tokio::test(start_paused = true)]
async fn a_join_script_runs_once_and_its_state_can_be_asked_for() {
    let lab = lab(Guests {
        join: Join::OnExec,
        ..Guests::default()
    });
    lab.start_vm(101).await;
    assert_eq!(lab.exec(101, "kproxide-join-status").await, "none\n");
    lab.exec(101, "kproxide-join").await;
    assert_eq!(lab.exec(101, "kproxide-join-status").await, "running\n");
    // A second one finds the first one's lock.
    lab.exec(101, "kproxide-join").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        lab.exec(101, "kproxide-join-status").await,
        "done 0\njoined\n"
    );
    assert_eq!(lab.ready("n101"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_join_script_that_failed_or_was_cut_off_says_so() {
    let lab = lab(Guests {
        join: Join::OnExec,
        exec_delay: Spread::new(30.0, 30.0),
        ..Guests::default()
    });
    lab.physics.quirk_of_next(Quirk {
        exec_fails: Some("no route".to_owned()),
        ..Quirk::default()
    });
    lab.start_vm(101).await;
    lab.start_vm(102).await;
    for vmid in [101, 102] {
        lab.exec(vmid, "kproxide-join").await;
    }
    lab.send(Method::POST, "/nodes/pve1/qemu/102/status/stop", "")
        .await;
    lab.send(Method::POST, "/nodes/pve1/qemu/102/status/start", "")
        .await;
    assert_eq!(
        lab.exec(101, "kproxide-join-status").await,
        "done 1\nno route"
    );
    assert_eq!(
        lab.exec(102, "kproxide-join-status").await,
        "done 255\nthe command was cut off\n"
    );
    assert_eq!((lab.ready("n101"), lab.ready("n102")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_takes_its_nodes_along() {
    let lab = lab(Guests::default());
    lab.start_vm(101).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.ready("n101"), Some(true));
    lab.pve.set_hypervisor_online("pve1", false);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.ready("n101"), Some(false));
}
