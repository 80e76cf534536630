//! The client against the simulated Proxmox: whole lives of machines, and what goes wrong in them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kproxide_simulator::clock::Clock;
use kproxide_simulator::pve::topology::{AclSpec, StorageKind, StorageSpec, VmSpec};
use kproxide_simulator::pve::{CommandResult, MachineEvent, Pve, Topology};
use tokio::time::{advance, sleep};

use super::auth::{CredentialSource, Credentials};
use super::client::Client;
use super::cloudinit::{Address, CloudInit, MachineConfig};
use super::error::{Error, Executed, Meaning, Reaction};
use super::inventory::{GuestStatus, Inventory};
use super::limits::Concurrency;
use super::machine::CloneRequest;
use super::ownership::{Key, Marker, NotOurs, prove, with_line};
use super::preflight::Scope;
use super::task::{Outcome, Upid};
use super::template::{CloneKind, CloneWish, Placement, Templates};
use super::transport::Endpoint;

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

    async fn templates(&self, placement: Placement) -> (Inventory, Templates) {
        let inventory = self.client.inventory().await.unwrap();
        let templates = self
            .client
            .templates(&inventory, "k8s-node", placement)
            .await
            .unwrap();
        (inventory, templates)
    }

    async fn request(
        &self,
        vmid: u32,
        hypervisor: &str,
        placement: Placement,
        kind: CloneKind,
    ) -> CloneRequest {
        let (inventory, templates) = self.templates(placement).await;
        let wish = CloneWish {
            kind,
            storage: None,
        };
        let hypervisor = inventory.hypervisor(hypervisor).unwrap();
        CloneRequest {
            route: templates.route(&inventory, hypervisor, &wish).unwrap(),
            newid: vmid,
            name: format!("node-{vmid}"),
            pool: Some("k8s".to_owned()),
            description: marker(vmid).sign(&key()),
            format: None,
        }
    }

    async fn clone_local(&self, vmid: u32, hypervisor: &str) -> Outcome {
        let request = self
            .request(vmid, hypervisor, Placement::Local, CloneKind::Auto)
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

fn machine() -> MachineConfig {
    MachineConfig {
        cores: 4,
        memory_mib: 8192,
        tags: vec!["kproxide".to_owned()],
        cloud_init: CloudInit {
            ssh_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDpUuWdL7yBRmbJ/A+KxwoOBA6qS7tQCKG5QGPn5Jofz ops team".to_owned()],
            address: Some(Address::Dhcp),
            user: Some("ops".to_owned()),
            ..CloudInit::default()
        },
    }
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
    let params = machine().params(&clone, "cluster", 101);
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

    assert_eq!(lab.end(client.start("pve2", 101).await).await, Outcome::Ok);
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
        out: "one\n".to_owned(),
        err: "no token".to_owned(),
    };
    lab.pve
        .complete_exec(101, u32::try_from(pid).unwrap(), done)
        .unwrap();
    let status = client.agent_exec_status("pve2", 101, pid).await.unwrap();
    assert!(status.exited && !status.succeeded());
    assert_eq!(
        (status.exit_code, status.stderr.as_str()),
        (Some(3), "no token")
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
    assert!(!client.ha_managed("pve2", 101).await.unwrap());
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
    let request = lab
        .request(101, "pve2", Placement::Shared, CloneKind::Auto)
        .await;
    assert!(!request.route.full);
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

    let mut full = lab
        .request(102, "pve1", Placement::Shared, CloneKind::Full)
        .await;
    full.route.storage = Some("local-lvm".to_owned());
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
    let request = lab
        .request(101, "pve1", Placement::Shared, CloneKind::Auto)
        .await;
    assert!(request.route.full);
    assert_eq!(
        lab.end(lab.client.clone_vm(&request).await).await,
        Outcome::Ok
    );
}

#[tokio::test(start_paused = true)]
async fn a_taken_number_is_told_and_a_lost_clone_is_found() {
    let lab = Lab::of(Topology::of(2)).await;
    assert_eq!(lab.clone_local(101, "pve1").await, Outcome::Ok);
    assert!(!lab.client.vmid_is_free(101).await.unwrap());
    let same_hypervisor = lab
        .request(101, "pve1", Placement::Local, CloneKind::Auto)
        .await;
    let refused = lab.client.clone_vm(&same_hypervisor).await.unwrap_err();
    assert_eq!(
        (refused.meaning.clone(), refused.executed),
        (Meaning::VmidTaken, Executed::No)
    );

    let Outcome::Failed { meaning, .. } = lab.clone_local(101, "pve2").await else {
        panic!("two machines with one number");
    };
    assert_eq!(meaning, Meaning::VmidTaken);

    let found = lab
        .client
        .find_clone("pve1", 9001, 101, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.kind, "qmclone");
    assert_eq!(
        lab.client
            .find_clone("pve1", 9001, 102, None)
            .await
            .unwrap(),
        None
    );
    let log = lab.client.task_log(&found, 50).await.unwrap();
    assert_eq!(
        log.first().map(String::as_str),
        Some("creating a clone of VM 9001 with ID 101")
    );
    assert_eq!(lab.client.task_log(&found, 1).await.unwrap(), ["TASK OK"]);
}

#[tokio::test(start_paused = true)]
async fn a_persons_copy_of_our_machine_is_not_ours() {
    let lab = Lab::of(Topology::of(1)).await;
    assert_eq!(lab.clone_local(101, "pve1").await, Outcome::Ok);
    lab.pve.human_clones_vm(101, 102, "node-101").unwrap();
    let copy = lab.client.read_config("pve1", 102).await.unwrap();
    assert!(copy.description.contains("kproxide: v1"));
    assert_eq!(
        prove(&copy.description, &[key()], &marker(102)),
        Err(NotOurs::Forged)
    );
}

/// kproximate's B12, on a server whose tickets end after two hours.
#[tokio::test(start_paused = true)]
async fn b12_a_password_works_for_days() {
    let login: CredentialSource = Arc::new(|| Credentials::password("kproxide@pve", "password"));
    let lab = Lab::with(Topology::of(1), login).await;
    for vmid in 101..107 {
        assert_eq!(lab.clone_local(vmid, "pve1").await, Outcome::Ok);
        advance(Duration::from_secs(5 * 60 * 60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_stops_everything_with_its_reason() {
    let lab = Lab::of(Topology::of(1)).await;
    assert!(lab.pve.revoke_token("kproxide@pve", "ci"));
    let error = lab.client.inventory().await.unwrap_err();
    assert_eq!(error.reaction(), Reaction::Freeze);
    assert!(error.to_string().contains("check token-id"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_quorum_nothing_is_written() {
    let lab = Lab::of(Topology::of(3)).await;
    let request = lab
        .request(101, "pve1", Placement::Local, CloneKind::Auto)
        .await;
    lab.pve.set_quorate(false);
    sleep(Duration::from_secs(20)).await;
    assert!(!lab.client.inventory().await.unwrap().quorate);
    let refused = lab.client.clone_vm(&request).await.unwrap_err();
    assert_eq!(
        (refused.meaning.clone(), refused.reaction()),
        (Meaning::NoQuorum, Reaction::Freeze)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_hypervisor_is_told_from_a_hung_one() {
    let lab = Lab::of(Topology::of(3)).await;
    let request = lab
        .request(101, "pve2", Placement::Local, CloneKind::Auto)
        .await;
    lab.pve.set_hypervisor_hung("pve2", true);
    let lost = lab.client.clone_vm(&request).await.unwrap_err();
    assert_eq!(
        (lost.meaning.clone(), lost.executed),
        (Meaning::AnswerLost, Executed::Unknown)
    );
    assert_eq!(lost.status(), Some(596));
    lab.pve.set_hypervisor_hung("pve2", false);
    lab.pve.set_hypervisor_online("pve2", false);
    let refused = lab.client.clone_vm(&request).await.unwrap_err();
    assert_eq!(
        (refused.meaning.clone(), refused.executed),
        (Meaning::HypervisorOffline, Executed::No)
    );
    assert_eq!(refused.reaction(), Reaction::OtherHypervisor);
}

#[tokio::test(start_paused = true)]
async fn a_full_storage_says_so() {
    let lab = Lab::of(Topology::of(1)).await;
    let request = lab
        .request(101, "pve1", Placement::Local, CloneKind::Full)
        .await;
    lab.pve.fill_storage("local-lvm", GIB);
    let Outcome::Failed { meaning, text } = lab.end(lab.client.clone_vm(&request).await).await
    else {
        panic!("cloned onto a full storage");
    };
    assert_eq!(
        (meaning.clone(), meaning.reaction()),
        (Meaning::NoSpace, Reaction::OtherHypervisor),
        "{text}"
    );
    assert!(meaning.to_string().contains("set `template.storage`"));
}

#[tokio::test(start_paused = true)]
async fn a_deaf_guest_is_stopped() {
    let lab = Lab::of(Topology::of(1)).await;
    assert_eq!(lab.clone_local(101, "pve1").await, Outcome::Ok);
    assert_eq!(
        lab.end(lab.client.start("pve1", 101).await).await,
        Outcome::Ok
    );
    let again = lab.end(lab.client.start("pve1", 101).await).await;
    assert!(
        matches!(
            again,
            Outcome::Failed {
                meaning: Meaning::AlreadyRunning,
                ..
            }
        ),
        "{again:?}"
    );
    lab.pve.set_ignores_shutdown(101, true).unwrap();
    let shutdown = lab
        .client
        .shutdown("pve1", 101, Duration::from_secs(20))
        .await;
    let outcome = lab.end(shutdown).await;
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                meaning: Meaning::ShutdownTimeout,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(
        lab.end(lab.client.stop("pve1", 101).await).await,
        Outcome::Ok
    );
    assert!(
        !lab.client
            .status_current("pve1", 101)
            .await
            .unwrap()
            .running
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_left_behind_is_a_warning() {
    let lab = Lab::of(Topology::of(1)).await;
    assert_eq!(lab.clone_local(101, "pve1").await, Outcome::Ok);
    lab.pve.set_disks_stuck(101, true);
    let outcome = lab.end(lab.client.destroy("pve1", 101).await).await;
    assert!(
        matches!(outcome, Outcome::Warnings(count) if count > 0),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_protected_machine_stays() {
    let lab = Lab::of(Topology::of(1)).await;
    assert_eq!(lab.clone_local(101, "pve1").await, Outcome::Ok);
    lab.pve.human_sets(101, "protection", Some("1")).unwrap();
    assert!(
        lab.client
            .read_config("pve1", 101)
            .await
            .unwrap()
            .protection
    );
    assert_eq!(
        lab.client.destroy("pve1", 101).await.unwrap_err().meaning,
        Meaning::Protected
    );
}

/// Twelve at once: without slots, most would lose their wait for the storage's lock.
#[tokio::test(start_paused = true)]
async fn many_clones_keep_out_of_each_others_way() {
    let mut topology = Topology::of(2);
    topology.vms = vec![VmSpec::template(9000, "k8s-node", "pve1", "ceph", 10 * GIB)];
    let lab = Lab::of(topology).await;
    let template = lab
        .request(101, "pve1", Placement::Shared, CloneKind::Auto)
        .await;
    let clones = (101..113).map(|vmid| {
        let request = CloneRequest {
            newid: vmid,
            ..template.clone()
        };
        let lab = &lab;
        async move {
            let slot = lab
                .client
                .limits()
                .clone_slot(request.route.slot.clone(), "pve1")
                .await;
            let outcome = lab.end(lab.client.clone_vm(&request).await).await;
            drop(slot);
            outcome
        }
    });
    let outcomes = futures::future::join_all(clones).await;
    assert!(
        outcomes.iter().all(|outcome| *outcome == Outcome::Ok),
        "{outcomes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_privileges_come_with_their_commands() {
    let scope = Scope {
        pool: Some("k8s".to_owned()),
        templates: vec![9001],
        storages: vec!["local-lvm".to_owned()],
        bridges: vec!["vmbr0".to_owned()],
        guest_exec: false,
    };
    let lab = Lab::of(Topology::of(1)).await;
    assert_eq!(lab.client.missing_privileges(&scope).await.unwrap(), []);

    let request = lab
        .request(101, "pve1", Placement::Local, CloneKind::Auto)
        .await;
    let grant = |path: &str, privileges: &[&str]| AclSpec {
        path: path.to_owned(),
        subject: "kproxide@pve".to_owned(),
        privileges: privileges
            .iter()
            .map(|privilege| (*privilege).to_owned())
            .collect(),
        propagate: true,
    };
    lab.pve.set_acl(vec![
        grant("/", &["Sys.Audit", "VM.Audit"]),
        grant("/vms/9001", &["VM.Clone"]),
    ]);
    let refused = lab.client.clone_vm(&request).await.unwrap_err();
    assert!(
        matches!(refused.meaning, Meaning::PermissionDenied { .. }),
        "{refused}"
    );
    let missing = lab.client.missing_privileges(&scope).await.unwrap();
    let paths: Vec<&str> = missing
        .iter()
        .map(|missing| missing.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "/pool/k8s",
            "/vms/9001",
            "/storage/local-lvm",
            "/sdn/zones/localnetwork/vmbr0"
        ]
    );
    assert!(missing[0].privileges.contains(&"VM.Allocate".to_owned()));
    assert!(missing[0].pveum[1].ends_with("--users 'kproxide@pve' --tokens 'kproxide@pve!ci'"));
}
