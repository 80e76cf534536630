//! What goes wrong: each fault of the simulated cluster, and what the client makes of it.

use kproxide_simulator::pve::topology::AclSpec;
use tokio::time::advance;

use super::*;
use crate::error::Reaction;
use crate::limits::StorageSlot;
use crate::ownership::NotOurs;
use crate::preflight::{Scope, excess};

#[tokio::test(start_paused = true)]
async fn b23_a_taken_number_is_told_and_a_lost_clone_is_found() {
    let lab = Lab::of(Topology::of(2)).await;
    assert_eq!(lab.clone_local(101, "pve1").await, Outcome::Ok);
    assert!(!lab.client.vmid_is_free(101).await.unwrap());
    let same_hypervisor = lab.request(101, "pve1", Placement::Local, false).await;
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
async fn f107_a_persons_copy_of_our_machine_is_not_ours() {
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
async fn f32_a_revoked_token_stops_everything_with_its_reason() {
    let lab = Lab::of(Topology::of(1)).await;
    assert!(lab.pve.revoke_token("kproxide@pve", "ci"));
    let error = lab.client.inventory().await.unwrap_err();
    assert_eq!(error.reaction(), Reaction::Freeze);
    assert!(error.to_string().contains("check token-id"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn f35_without_quorum_nothing_is_written() {
    let lab = Lab::of(Topology::of(3)).await;
    let request = lab.request(101, "pve1", Placement::Local, false).await;
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
async fn f31_f40_an_unreachable_hypervisor_is_told_from_a_hung_one() {
    let lab = Lab::of(Topology::of(3)).await;
    let request = lab.request(101, "pve2", Placement::Local, false).await;
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
async fn f44_a_full_storage_says_so() {
    let lab = Lab::of(Topology::of(1)).await;
    let request = lab.request(101, "pve1", Placement::Local, true).await;
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
    let current = lab.client.status_current("pve1", 101).await.unwrap();
    assert_eq!(current.running, Some(false));
}

#[tokio::test(start_paused = true)]
async fn f42_a_volume_left_behind_is_a_warning() {
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
async fn f51_a_protected_machine_stays() {
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
async fn f36_many_clones_keep_out_of_each_others_way() {
    let mut topology = Topology::of(2);
    topology.vms = vec![VmSpec::template(9000, "k8s-node", "pve1", "ceph", 10 * GIB)];
    let lab = Lab::of(topology).await;
    let template = lab.request(101, "pve1", Placement::Shared, false).await;
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
                .clone_slot(
                    StorageSlot {
                        storage: "ceph".to_owned(),
                        hypervisor: None,
                    },
                    "pve1",
                )
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

/// The role that is recommended, for a token with privilege separation: a whole launch under it, and nothing to report. Every privilege on `/`: all
/// of them are too many.
#[tokio::test(start_paused = true)]
async fn a_token_that_may_do_too_much_is_recognized() {
    let lab = Lab::of(Topology::of(1)).await;
    let all = excess(&lab.client.permissions(None).await.unwrap());
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].to_string().starts_with("/: "), "{all:?}");
    assert!(all[0].privileges.contains(&"Permissions.Modify".to_owned()));

    let grant = |path: &str, privileges: &str| AclSpec {
        path: path.to_owned(),
        subject: "kproxide@pve".to_owned(),
        privileges: privileges.split(' ').map(str::to_owned).collect(),
        propagate: path != "/",
    };
    let machines = "Pool.Audit VM.Allocate VM.Audit VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.Memory VM.Config.Network \
                    VM.Config.Options VM.PowerMgmt VM.GuestAgent.Audit";
    lab.pve.set_acl(vec![
        grant("/", "Sys.Audit"),
        grant("/nodes", "Sys.Audit"),
        grant("/pool/k8s", machines),
        grant("/vms/9001", "VM.Audit VM.Clone"),
        grant(
            "/storage/local-lvm",
            "Datastore.AllocateSpace Datastore.Audit",
        ),
        grant("/sdn/zones/localnetwork/vmbr0", "SDN.Use"),
    ]);
    assert_eq!(excess(&lab.client.permissions(None).await.unwrap()), []);
    let request = lab.request(101, "pve1", Placement::Local, false).await;
    let cloned = lab.end(lab.client.clone_vm(&request).await).await;
    assert_eq!(cloned, Outcome::Ok);
    assert_eq!(excess(&lab.client.permissions(None).await.unwrap()), []);
}

#[tokio::test(start_paused = true)]
async fn missing_privileges_come_with_their_commands() {
    let scope = Scope {
        pool: Some("k8s".to_owned()),
        templates: vec![9001],
        storages: vec!["local-lvm".to_owned()],
        networks: vec!["localnetwork/vmbr0".to_owned()],
        guest_exec: false,
        memory_hotplug: false,
    };
    let lab = Lab::of(Topology::of(1)).await;
    assert_eq!(lab.client.missing_privileges(&scope).await.unwrap(), []);

    let request = lab.request(101, "pve1", Placement::Local, false).await;
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
    let explained = lab.client.explained(&refused, &scope).await;
    assert!(
        explained.contains("pveum acl modify /storage/local-lvm --roles KproxideStorage"),
        "{explained}"
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

    // A refusal of what the list has: the line all the same, for that privilege alone.
    lab.pve.set_acl(Topology::of(1).acl);
    let scope = Scope {
        guest_exec: true,
        ..scope
    };
    assert_eq!(lab.client.missing_privileges(&scope).await.unwrap(), []);
    let mut refused = refused;
    refused.meaning = Meaning::PermissionDenied {
        path: Some("/vms/101".to_owned()),
        privilege: Some("VM.GuestAgent.Unrestricted".to_owned()),
    };
    let line = lab.client.explained(&refused, &scope).await;
    assert_eq!(line.matches("pveum acl modify").count(), 1, "{line}");
    let step = "/pool/k8s: VM.GuestAgent.Unrestricted is missing";
    assert!(line.contains(step), "{line}");
}
