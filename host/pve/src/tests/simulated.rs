//! The client against the simulated Proxmox: whole lives of machines, and in [`faults`] what goes wrong in them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kproxide_planner::facts::{CloneSpec, CloudInit, MachineSpec};
use kproxide_planner::ids::Vmid;
use kproxide_simulator::clock::Clock;
use kproxide_simulator::pve::topology::{StorageKind, StorageSpec, VmSpec};
use kproxide_simulator::pve::{CommandResult, MachineEvent, Pve, Topology};
use tokio::time::sleep;

use crate::auth::{CredentialSource, Credentials};
use crate::client::Client;
use crate::cloudinit::MachineConfig;
use crate::error::{Error, Executed, Meaning};
use crate::inventory::GuestStatus;
use crate::limits::Concurrency;
use crate::machine::CloneRequest;
use crate::ownership::{Key, Marker, prove, with_line};
use crate::request::Params;
use crate::task::{Outcome, Upid};
use crate::template::{Placement, Templates};
use crate::transport::Endpoint;
use crate::vm_config::VmConfig;

mod faults;

const GIB: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(300);

struct Lab {
    pve: Pve,
    client: Client,
}

fn token() -> CredentialSource {
    Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"))
}

impl Lab {
    async fn of(topology: Topology) -> Lab {
        Lab::with(topology, token()).await
    }

    async fn with(topology: Topology, credentials: CredentialSource) -> Lab {
        let epoch = Timestamp::from_second(1_795_000_000).unwrap();
        let pve = Pve::new(topology, Clock::starting_at(epoch), 7);
        let endpoint = Endpoint::new("simulated", pve.service());
        let client = Client::new(vec![endpoint], credentials, Concurrency::default());
        // Names and numbers are broadcast every ten seconds.
        sleep(Duration::from_secs(15)).await;
        Lab { pve, client }
    }

    async fn templates(&self, placement: Placement) -> Templates {
        let inventory = self.client.inventory().await.unwrap();
        let choice = "k8s-node".into();
        let templates = self.client.templates(&inventory, &choice, placement);
        templates.await.unwrap()
    }

    async fn request(
        &self,
        vmid: u32,
        hypervisor: &str,
        placement: Placement,
        full: bool,
    ) -> CloneRequest {
        let Templates { templates, .. } = self.templates(placement).await;
        let own = templates
            .iter()
            .find(|template| template.hypervisor == hypervisor);
        let template = own.or(templates.first()).unwrap();
        CloneRequest {
            clone: CloneSpec {
                hypervisor: template.hypervisor.as_str().into(),
                vmid: Vmid(template.vmid),
                full,
                storage: None,
            },
            hypervisor: hypervisor.to_owned(),
            newid: vmid,
            name: format!("node-{vmid}"),
            pool: Some("k8s".to_owned()),
            description: marker(vmid).sign(&key()),
        }
    }

    async fn clone_local(&self, vmid: u32, hypervisor: &str) -> Outcome {
        let request = self
            .request(vmid, hypervisor, Placement::Local, false)
            .await;
        self.end(self.client.clone_vm(&request).await).await
    }

    async fn end(&self, started: Result<Upid, Error>) -> Outcome {
        self.client
            .follow(&started.unwrap(), PATIENCE)
            .await
            .unwrap()
    }
}

fn key() -> Key {
    Key::new(vec![7; 32]).unwrap()
}

fn marker(vmid: u32) -> Marker {
    Marker {
        cluster_id: "cluster".to_owned(),
        claim_uid: format!("claim-{vmid}"),
        vmid,
        nonce: "n1".to_owned(),
    }
}

fn configuration(clone: &VmConfig, vmid: u32) -> Params {
    let machine = MachineSpec {
        cloud_init: Some(CloudInit {
            ssh_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDpUuWdL7yBRmbJ/A+KxwoOBA6qS7tQCKG5QGPn5Jofz ops team".to_owned()],
            dhcp: true,
            user: Some("ops".to_owned()),
            ..CloudInit::default()
        }),
        ..MachineSpec::default()
    };
    let config = MachineConfig {
        cores: 4,
        memory_mib: 8192,
        address: None,
        tags: &["kproxide".to_owned()],
        machine: &machine,
    };
    config.params(clone, "cluster", vmid).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_machine_lives_and_dies() {
    let lab = Lab::of(Topology::of(3)).await;
    let mut events = lab.pve.machine_events();
    let client = &lab.client;
    assert!(client.vmid_is_free(101).await.unwrap());
    assert_eq!(lab.clone_local(101, "pve2").await, Outcome::Ok);

    let clone = client.read_config("pve2", 101).await.unwrap();
    assert_eq!(prove(&clone.description, &[key()], &marker(101)), Ok(()));
    assert_eq!(clone.name.as_deref(), Some("node-101"));
    let params = configuration(&clone, 101);
    client
        .configure("pve2", 101, params.clone(), clone.digest.as_deref())
        .await
        .unwrap();
    let late = client
        .configure("pve2", 101, params, clone.digest.as_deref())
        .await
        .unwrap_err();
    assert_eq!(late.meaning, Meaning::DigestMismatch);

    let boot = clone.boot_disk().unwrap().key.clone();
    let resize = client
        .resize_disk("pve2", 101, &boot, 20)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(client.follow(&resize, PATIENCE).await.unwrap(), Outcome::Ok);
    let configured = client.read_config("pve2", 101).await.unwrap();
    assert_eq!(
        (configured.cores, configured.memory_mib),
        (Some(4), Some(8192))
    );
    assert_eq!(configured.boot_disk().unwrap().size_bytes(), Some(20 * GIB));
    assert_eq!(configured.boot_disk().unwrap().option("backup"), Some("0"));
    assert!(!configured.protection && configured.agent_enabled());

    let started = client.start("pve2", 101).await;
    let running = async || client.running_task("pve2", 101).await.unwrap();
    assert_eq!(running().await.as_deref(), Some("qmstart"));
    let current = client.status_current("pve2", 101).await.unwrap();
    assert_eq!(current.running, Some(false), "not yet");
    assert_eq!(client.running_task("pve2", 102).await.unwrap(), None);
    assert_eq!(lab.end(started).await, Outcome::Ok);
    assert_eq!(running().await, None);
    // A hypervisor that has booted starts one VM after the other: any of them may be next.
    lab.pve.startall("pve2", std::future::pending());
    assert_eq!(running().await.as_deref(), Some("startall"));
    assert_eq!(client.running_task("pve1", 101).await.unwrap(), None);
    let Some(MachineEvent::Started { smbios_uuid, .. }) = events.recv().await else {
        panic!("the machine did not start");
    };
    assert_eq!(configured.smbios_uuid, Some(smbios_uuid));
    assert!(!client.agent_ping("pve2", 101).await.unwrap());
    lab.pve.set_agent_ready(101, true).unwrap();
    assert!(client.agent_ping("pve2", 101).await.unwrap());

    let pid = client
        .agent_exec("pve2", 101, &["sh", "-s"], Some("join"))
        .await
        .unwrap();
    assert!(
        !client
            .agent_exec_status("pve2", 101, pid)
            .await
            .unwrap()
            .exited
    );
    let done = CommandResult {
        exitcode: 3,
        out: "größer ✓\n".into(),
        err: "no token".into(),
        ..CommandResult::default()
    };
    lab.pve
        .complete_exec(101, u32::try_from(pid).unwrap(), done)
        .unwrap();
    let status = client.agent_exec_status("pve2", 101, pid).await.unwrap();
    assert!(status.exited);
    assert_eq!(
        (status.exit_code, &*status.stdout, &*status.stderr),
        (Some(3), "größer ✓\n", "no token")
    );
    lab.pve.take_shell(101).unwrap();
    let command = client.agent_exec("pve2", 101, &["sh", "-s"], None);
    let no_shell = command.await.unwrap_err();
    assert_eq!(
        (&no_shell.meaning, no_shell.executed),
        (&Meaning::NoShell, Executed::No)
    );

    let fresh = client.read_config("pve2", 101).await.unwrap();
    let tombstone = with_line(&fresh.description, &marker(101).tombstone(&key()));
    client
        .set_description("pve2", 101, &tombstone, fresh.digest.as_deref())
        .await
        .unwrap();
    let running = client.destroy("pve2", 101).await.unwrap_err();
    assert_eq!(
        (running.meaning.clone(), running.executed),
        (Meaning::Running, Executed::No)
    );
    let current = client.status_current("pve2", 101).await.unwrap();
    assert!(!current.ha_managed);
    assert_eq!(lab.end(client.stop("pve2", 101).await).await, Outcome::Ok);
    assert_eq!(
        lab.end(client.destroy("pve2", 101).await).await,
        Outcome::Ok
    );

    assert!(client.vmid_is_free(101).await.unwrap());
    assert_eq!(
        client.read_config("pve2", 101).await.unwrap_err().meaning,
        Meaning::NotFound
    );
    let left = lab.pve.snapshot();
    assert!(left.volumes.iter().all(|volume| volume.vmid != 101));
}

#[tokio::test(start_paused = true)]
async fn the_inventory_shows_the_cluster() {
    let lab = Lab::of(Topology::of(3)).await;
    lab.pve.set_maintenance("pve2", true);
    lab.pve.set_hypervisor_online("pve3", false);
    sleep(Duration::from_secs(15)).await;
    let inventory = lab.client.inventory().await.unwrap();
    assert!(inventory.quorate && inventory.complete);
    let states: Vec<(&str, bool, bool)> = inventory
        .hypervisors
        .iter()
        .map(|hypervisor| {
            (
                hypervisor.name.as_str(),
                hypervisor.online,
                hypervisor.maintenance,
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            ("pve1", true, false),
            ("pve2", true, true),
            ("pve3", false, false)
        ]
    );
    let hypervisor = inventory.hypervisor("pve1").unwrap();
    assert_eq!(
        (hypervisor.threads, hypervisor.memory_total),
        (16, 64 * GIB)
    );
    assert!(hypervisor.storage("ceph").unwrap().shared);
    assert_eq!(inventory.guest(9003).unwrap().status, GuestStatus::Unknown);
    assert_eq!(inventory.guest(9001).unwrap().status, GuestStatus::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_shared_template_serves_every_hypervisor() {
    let mut topology = Topology::of(2);
    topology.vms = vec![VmSpec::template(9000, "k8s-node", "pve1", "ceph", 10 * GIB)];
    let lab = Lab::of(topology).await;
    let request = lab.request(101, "pve2", Placement::Shared, false).await;
    assert_eq!(
        lab.end(lab.client.clone_vm(&request).await).await,
        Outcome::Ok
    );
    assert_eq!(
        lab.client
            .read_config("pve2", 101)
            .await
            .unwrap()
            .name
            .as_deref(),
        Some("node-101")
    );

    let mut full = lab.request(102, "pve1", Placement::Shared, true).await;
    full.clone.storage = Some("local-lvm".into());
    assert_eq!(lab.end(lab.client.clone_vm(&full).await).await, Outcome::Ok);
    let disk = lab.client.read_config("pve1", 102).await.unwrap();
    assert_eq!(disk.boot_disk().unwrap().storage(), Some("local-lvm"));
}

#[tokio::test(start_paused = true)]
async fn a_thick_storage_is_copied_in_full() {
    let mut topology = Topology::of(1);
    topology.storages.push(StorageSpec::new(
        "thick",
        StorageKind::Lvm,
        100 * GIB,
        &["images"],
    ));
    topology.vms = vec![VmSpec::template(9000, "k8s-node", "pve1", "thick", 4 * GIB)];
    let lab = Lab::of(topology).await;
    let request = lab.request(101, "pve1", Placement::Shared, true).await;
    assert_eq!(
        lab.end(lab.client.clone_vm(&request).await).await,
        Outcome::Ok
    );
}
