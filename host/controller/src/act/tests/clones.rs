//! The clone that is asked for is the one that was planned, and what was planned is what Proxmox takes.

use std::collections::BTreeMap;
use std::time::Duration;

use kproxide_planner::facts::CloneSpec;
use kproxide_planner::ids::{StorageName, Vmid};
use kproxide_planner::plan::{Launch, Plan, Verdict};
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::{DiskSpec, StorageKind, StorageSpec, VmSpec};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use tokio::time::sleep;

use super::lab::{Host, Lab, turn};
use kproxide_kube::{claims, ledger};
use kproxide_pve::machine::CloneRequest;

const GIB: u64 = 1 << 30;
const HYPERVISORS: [&str; 2] = ["pve1", "pve2"];
const STORAGES: [(&str, StorageKind, bool); 5] = [
    ("ceph", StorageKind::Rbd, true),
    ("nfs", StorageKind::Nfs, true),
    ("thin", StorageKind::LvmThin, false),
    ("thick", StorageKind::Lvm, false),
    ("local", StorageKind::Dir, false),
];

/// What a clone depends on.
#[derive(Clone, Debug)]
struct Drawn {
    mode: &'static str,
    storage: Option<&'static str>,
    /// One on each hypervisor, or one for both, on either.
    templates: BTreeMap<&'static str, Drives>,
    is_local: bool,
}

#[derive(Clone, Debug)]
struct Drives {
    /// The storages of `scsi0`, `scsi1`, ….
    disks: Vec<&'static str>,
    cloud_init: Option<&'static str>,
    unused: Option<&'static str>,
    cd: Option<&'static str>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let storage = || prop::sample::select(STORAGES.map(|(name, ..)| name).to_vec());
    let drives = move || {
        let disks = prop::collection::vec(storage(), 1..3);
        let of = move || prop::option::of(storage());
        let cd = prop::option::of(prop::sample::select(vec!["nfs", "local"]));
        (disks, of(), of(), cd).prop_map(|(disks, cloud_init, unused, cd)| Drives {
            disks,
            cloud_init,
            unused,
            cd,
        })
    };
    let mode = prop::sample::select(vec!["auto", "linked", "full"]);
    let on = prop::sample::select(HYPERVISORS.to_vec());
    (
        mode,
        prop::option::of(storage()),
        any::<bool>(),
        on,
        drives(),
        drives(),
    )
        .prop_map(|(mode, storage, is_local, on, one, other)| Drawn {
            mode,
            storage: storage.filter(|_| mode != "linked"),
            templates: match is_local {
                true => HYPERVISORS.into_iter().zip([one, other]).collect(),
                false => [(on, one)].into(),
            },
            is_local,
        })
}

fn topology(drawn: &Drawn) -> Topology {
    let mut topology = Topology::of(2);
    topology.storages = STORAGES
        .map(|(name, kind, shared)| StorageSpec {
            shared,
            files: [("iso/tools.iso".to_owned(), 1 << 20)].into(),
            ..StorageSpec::new(name, kind, 500 * GIB, &["images", "iso"])
        })
        .into();
    let templates = drawn.templates.iter().zip(9001..);
    topology.vms = templates
        .map(|((on, drives), vmid)| {
            let mut vm = VmSpec::template(vmid, "k8s-node", on, "ceph", 10 * GIB);
            let disk = |storage: &str, cloudinit| DiskSpec {
                storage: storage.to_owned(),
                size: 10 * GIB,
                cloudinit,
            };
            let disks = drives.disks.iter().enumerate();
            vm.disks = disks
                .map(|(index, storage)| (format!("scsi{index}"), disk(storage, false)))
                .collect();
            let others = [
                ("ide2", drives.cloud_init, true),
                ("unused0", drives.unused, false),
            ];
            for (key, storage, cloudinit) in others {
                if let Some(storage) = storage {
                    vm.disks.insert(key.to_owned(), disk(storage, cloudinit));
                }
            }
            if let Some(storage) = drives.cd {
                let iso = format!("{storage}:iso/tools.iso,media=cdrom");
                vm.config.insert("ide3".to_owned(), iso);
            }
            vm
        })
        .collect();
    topology
}

fn template(drawn: &Drawn) -> serde_json::Value {
    let placement = if drawn.is_local { "local" } else { "shared" };
    let mut template = json!({"name": "k8s-node", "clone": drawn.mode, "placement": placement});
    if let Some(storage) = drawn.storage {
        template["storage"] = json!(storage);
    }
    template
}

/// The request that a launch says, without the description.
fn said(launch: &Launch) -> (String, BTreeMap<String, String>) {
    let spec = &launch.spec;
    let clone = spec.clone.as_ref().expect("what is planned says its clone");
    let mut params = BTreeMap::from([
        ("newid", spec.vmid.to_string()),
        ("name", spec.vm_name.to_string()),
        ("pool", "k8s".to_owned()),
        ("full", u32::from(clone.full).to_string()),
    ]);
    if let Some(storage) = &clone.storage {
        params.insert("storage", storage.to_string());
    }
    if clone.hypervisor != spec.hypervisor {
        params.insert("target", spec.hypervisor.to_string());
    }
    let params = params
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    (
        format!("/nodes/{}/qemu/{}/clone", clone.hypervisor, clone.vmid),
        params.collect(),
    )
}

/// Every request that the class allows, whoever decides.
fn allowed(drawn: &Drawn) -> Vec<CloneRequest> {
    let mut allowed = Vec::new();
    for on in HYPERVISORS {
        for ((source, drives), vmid) in drawn.templates.iter().zip(9001..) {
            for full in [true, false] {
                let lies_there = |storage| drives.disks.iter().all(|disk| *disk == storage);
                let may_be = match full {
                    true => drawn.mode != "linked",
                    false => drawn.mode != "full" && drawn.storage.is_none_or(lies_there),
                };
                if may_be && (*source == on || !drawn.is_local) {
                    allowed.push(CloneRequest {
                        clone: CloneSpec {
                            hypervisor: (*source).into(),
                            vmid: Vmid(vmid),
                            full,
                            storage: drawn.storage.filter(|_| full).map(StorageName::from),
                        },
                        hypervisor: on.to_owned(),
                        newid: 998,
                        name: "other".to_owned(),
                        pool: Some("k8s".to_owned()),
                        description: String::new(),
                    });
                }
            }
        }
    }
    allowed
}

async fn what_is_asked_is_what_was_planned(drawn: &Drawn) {
    let lab = Lab::with(topology(drawn)).await;
    let mut host = lab.host(1).await;
    let plan = host.plan(&template(drawn), 3).await;
    let client = host.proxmox();
    if plan.launches.is_empty() {
        for request in allowed(drawn) {
            let answer = client.clone_vm(&request).await;
            assert!(
                answer.is_err(),
                "{request:?} was possible: {:?}",
                plan.report.rejected
            );
        }
        return;
    }
    assert_eq!(plan.launches.len(), 3);
    host.actor.start(&plan, &host.world, &host.term).await;
    let mut waited = 0;
    while lab.asked("POST", "/clone") < plan.launches.len() {
        waited += 1;
        assert!(waited < 1000, "{:?}", lab.pve.audit());
        sleep(Duration::from_secs(1)).await;
    }
    let mut asked: Vec<_> = lab.pve.audit();
    asked.retain(|entry| entry.path.ends_with("/clone"));
    let mut asked: Vec<_> = asked
        .into_iter()
        .map(|entry| {
            assert_eq!(entry.status, 200, "{entry:?}");
            let params = entry.params.into_iter();
            let params = params.filter(|(name, _)| name != "description").collect();
            (entry.path, params)
        })
        .collect();
    asked.sort();
    let mut expected: Vec<_> = plan.launches.iter().map(said).collect();
    expected.sort();
    assert_eq!(asked, expected);

    sleep(Duration::from_secs(600)).await;
    for launch in &plan.launches {
        let spec = &launch.spec;
        let clone = spec.clone.as_ref().unwrap();
        let vms = lab.pve.snapshot().vms;
        let vm = vms.iter().find(|vm| vm.vmid == spec.vmid.0);
        let config = &vm.expect("its task went well").config;
        let drives = &drawn.templates[&*clone.hypervisor];
        for (index, storage) in drives.disks.iter().enumerate() {
            let storage = clone.storage.as_ref().map_or(*storage, |it| it.as_str());
            let line = &config[&format!("scsi{index}")];
            assert!(line.starts_with(&format!("{storage}:")), "{line}");
            let is_main = spec
                .storage
                .as_ref()
                .is_some_and(|it| it.as_str() == storage);
            assert!(index > 0 || is_main, "{spec:?}");
        }
    }
}

#[test]
fn every_clone_is_asked_for_as_planned_and_taken_by_proxmox() {
    let config = ProptestConfig {
        cases: 100,
        ..ProptestConfig::default()
    };
    TestRunner::new(config)
        .run(&drawn(), |drawn| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(what_is_asked_is_what_was_planned(&drawn));
            Ok(())
        })
        .unwrap();
}

/// Starts what was planned after `change`, and turns until every claim is closed.
async fn closes(lab: &mut Lab, host: &mut Host, change: impl FnOnce(&Lab, &mut Plan)) {
    let template = json!({"name": "k8s-node", "placement": "local"});
    let mut plan = host.plan(&template, 1).await;
    assert_eq!(plan.launches.len(), 1);
    change(lab, &mut plan);
    host.launched = true;
    host.actor.start(&plan, &host.world, &host.term).await;
    let none_is_left = async |lab: &Lab| claims::list(&lab.client).await.unwrap().is_empty();
    assert!(turn(lab, host, &Verdict::Keep, none_is_left).await);
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_since_the_plan_is_not_cloned_and_no_hypervisor_is_blamed() {
    let changes: [fn(&Lab, &mut Plan); 4] = [
        |lab, plan| {
            lab.pve
                .human_sets(source(plan), "cores", Some("3"))
                .unwrap()
        },
        |lab, plan| lab.pve.human_sets(source(plan), "template", None).unwrap(),
        |lab, plan| lab.pve.human_destroys(source(plan)).unwrap(),
        // As a version before wrote it.
        |_, plan| plan.launches[0].spec.clone = None,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut lab = Lab::new().await;
        let mut host = lab.host(1).await;
        closes(&mut lab, &mut host, change).await;
        assert_eq!(lab.asked("POST", "/clone"), 0, "change {index}");
        let ledger = ledger::get(&lab.client).await.unwrap().unwrap();
        assert_eq!(ledger.backoff, [], "change {index}");
        // What is there now is known by now, and is cloned.
        let template = json!({"name": "k8s-node", "placement": "local"});
        let again = host.plan(&template, 0).await;
        assert_eq!(again.launches.len(), 1, "change {index}: {again:?}");
    }
}

/// The template that is to be cloned.
fn source(plan: &Plan) -> u32 {
    plan.launches[0].spec.clone.as_ref().unwrap().vmid.0
}
