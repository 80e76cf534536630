//! One truth: a defect is put into a running system, and what the controller says of it is the same in conditions, `status`, `explain`,
//! `doctor` and metrics, in time. Then it is mended, and all of them fall silent. Nothing here repeats a text: the places are compared.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::defects::{DEFECTS, Mend};
use super::places::{Running, Said, examined, told, told_with};
use super::ward::{Ward, ailments, topology};
use kproxide_controller::config::Config;
use kproxide_controller::judge::reasons;
use kproxide_kube::client::Client;
use kproxide_lab::MACHINE;
use kproxide_lab::config;

/// At the default intervals kproxide looks at least every 10 s, so the second look after a change is over by then.
const SECOND_LOOK: u64 = 15;
/// Proxmox's servers tell each other every 10 s how full their storages are.
const BROADCAST: Duration = Duration::from_secs(10);
/// For what is only silence.
const SILENCE: u64 = 80;
/// Enough for everything to be said that is said, and taken back.
const MENDED: Duration = Duration::from_secs(150);

/// What is put into a system with one machine.
struct Row {
    name: &'static str,
    inject: fn(&Ward),
    mend: fn(&Ward),
    /// Line 1 names this, and this reason of it.
    object: fn(&Ward) -> String,
    reason: &'static str,
    seconds: u64,
    /// Doctor sees neither pods nor times, so it does not say this.
    is_of_doctor: bool,
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "the server of a machine goes off", inject: |w| w.lab.pve.set_hypervisor_online(&server(w), false),
        mend: |w| w.lab.pve.set_hypervisor_online(&server(w), true), object: |w| format!("Hypervisor/home/{}", server(w)),
        reason: "HypervisorOffline", seconds: 25, is_of_doctor: true },
    Row { name: "a server without machines goes off", inject: |w| w.lab.pve.set_hypervisor_online(other(w), false),
        mend: |w| w.lab.pve.set_hypervisor_online(other(w), true), object: |w| format!("Hypervisor/home/{}", other(w)),
        reason: "HypervisorOffline", seconds: 25, is_of_doctor: true },
    Row { name: "the daemons of a server hang", inject: |w| w.lab.pve.set_hypervisor_hung(other(w), true),
        mend: |w| w.lab.pve.set_hypervisor_hung(other(w), false), object: |w| format!("Hypervisor/home/{}", other(w)),
        reason: "HypervisorSilent", seconds: SILENCE, is_of_doctor: true },
    Row { name: "a kubelet falls silent", inject: |w| { w.lab.kubelets.stop_node(&machine(w)); },
        mend: |w| restart(w), object: |w| format!("NodeClaim/{}", machine(w)),
        reason: "NodeNotReady", seconds: 40 + SECOND_LOOK, is_of_doctor: true },
    Row { name: "somebody cordons the Node of a machine", inject: |w| cordon(w, true), mend: |w| cordon(w, false),
        object: |w| format!("Node/{}", machine(w)), reason: "NodeSetAside", seconds: 620, is_of_doctor: true },
    Row { name: "a Node gets a taint that nobody named", inject: |w| taint(w, json!([{ "key": "gpu", "effect": "NoSchedule" }])),
        mend: |w| taint(w, json!([])), object: |w| format!("Node/{}", machine(w)), reason: "NodeSetAside", seconds: 620,
        is_of_doctor: true },
    Row { name: "another Node shows the UUID of a machine", inject: copy_uuid,
        mend: |w| w.lab.kube.delete("nodes", "", "copy").unwrap(), object: |_| "Node/copy".to_owned(),
        reason: "NodeUUIDCopied", seconds: SECOND_LOOK, is_of_doctor: true },
    Row { name: "no endpoint takes a connection", inject: |w| w.wires(|wires| { wires.dead = endpoints(); }),
        mend: |w| w.wires(|wires| wires.dead.clear()), object: |_| "ProxmoxCluster/home".to_owned(),
        reason: "Unreachable", seconds: SILENCE, is_of_doctor: false },
    Row { name: "every endpoint takes connections and never answers", inject: |w| w.wires(|wires| { wires.hanging = endpoints(); }),
        mend: |w| w.wires(|wires| wires.hanging.clear()), object: |_| "ProxmoxCluster/home".to_owned(),
        reason: "Unreachable", seconds: SILENCE, is_of_doctor: false },
    Row { name: "the token is revoked", inject: |w| assert!(w.lab.pve.revoke_token("kproxide@pve", "ci")),
        mend: |w| w.lab.pve.set_users(topology().users), object: |_| "ProxmoxCluster/home".to_owned(),
        reason: "CredentialsRefused", seconds: SECOND_LOOK, is_of_doctor: true },
    Row { name: "pods wait for a pool that is paused", inject: |w| { w.edit("nodepools/workers", json!({"paused": true})); wide(w, 3); },
        mend: |w| w.edit("nodepools/workers", json!({"paused": false})), object: |_| "NodePool/workers".to_owned(),
        reason: "Paused", seconds: SECOND_LOOK, is_of_doctor: false },
    Row { name: "pods wait for a pool that is full", inject: |w| { w.edit("nodepools/workers", json!({"limits": {"maxNodes": 1}})); wide(w, 3); },
        mend: |w| w.edit("nodepools/workers", json!({"limits": {"maxNodes": 3}})), object: |_| "NodePool/workers".to_owned(),
        reason: "MaxNodes", seconds: SECOND_LOOK, is_of_doctor: false },
    Row { name: "the storage of every server is full, and pods wait", inject: |w| { w.lab.pve.fill_storage("local-lvm", 1 << 30); wide(w, 3); },
        mend: |w| w.lab.pve.fill_storage("local-lvm", 300 << 30), object: |_| "NodeClass/debian".to_owned(),
        reason: "StorageFull", seconds: SECOND_LOOK + 10, is_of_doctor: true },
    Row { name: "somebody protects a VM that is to go", inject: |w| {
            w.lab.pve.human_sets(vmid(w), "protection", Some("1")).unwrap();
            w.lab.kube.delete("nodeclaims.kproxide.dev", "", &machine(w)).unwrap();
        },
        mend: |w| w.lab.pve.human_sets(vmid(w), "protection", None).unwrap(), object: |w| format!("NodeClaim/{}", machine(w)),
        reason: "ProtectedVM", seconds: 120, is_of_doctor: true },
    Row { name: "a backup locks a VM that is to go", inject: |w| {
            w.lab.pve.human_holds_lock(vmid(w), MACHINE).unwrap();
            w.lab.kube.delete("nodeclaims.kproxide.dev", "", &machine(w)).unwrap();
        },
        // The backup ends.
        mend: |w| { let _ = w; }, object: |w| format!("NodeClaim/{}", machine(w)),
        reason: "Stalled", seconds: 150, is_of_doctor: true },
    Row { name: "a NodeClass in use is deleted", inject: |w| w.lab.kube.delete("nodeclasses.kproxide.dev", "", "debian").unwrap(),
        // Its finalizer holds it as long as a machine is made from it. What mends it is that the machine goes.
        mend: |w| { let _ = w; }, object: |_| "NodeClass/debian".to_owned(),
        reason: "BeingDeleted", seconds: SECOND_LOOK, is_of_doctor: true },
];

fn endpoints() -> BTreeSet<String> {
    ["https://pve1:8006", "https://pve2:8006"]
        .map(str::to_owned)
        .into()
}

/// The one machine.
fn claim(ward: &Ward) -> Value {
    let mut claims = ward.lab.kube.list("nodeclaims.kproxide.dev");
    claims.sort_by_key(|it| it["metadata"]["creationTimestamp"].to_string());
    claims.remove(0)
}

pub(super) fn machine(ward: &Ward) -> String {
    claim(ward)["metadata"]["name"].as_str().unwrap().to_owned()
}

pub(super) fn server(ward: &Ward) -> String {
    claim(ward)["spec"]["hypervisor"]
        .as_str()
        .unwrap()
        .to_owned()
}

pub(super) fn other(ward: &Ward) -> &'static str {
    match &*server(ward) {
        "pve1" => "pve2",
        _ => "pve1",
    }
}

fn vmid(ward: &Ward) -> u32 {
    u32::try_from(claim(ward)["spec"]["vmid"].as_u64().unwrap()).unwrap()
}

fn cordon(ward: &Ward, is_cordoned: bool) {
    edit_node(ward, json!({ "unschedulable": is_cordoned }));
}

fn taint(ward: &Ward, taints: Value) {
    edit_node(ward, json!({ "taints": taints }));
}

fn edit_node(ward: &Ward, spec: Value) {
    let patch = json!({ "spec": spec });
    let patched = ward.lab.kube.patch("nodes", "", "", &machine(ward), patch);
    patched.unwrap();
}

fn copy_uuid(ward: &Ward) {
    let node = ward.lab.kube.get("nodes", "", &machine(ward)).unwrap();
    let copy = json!({ "metadata": { "name": "copy" } });
    ward.lab.kube.create("nodes", copy).unwrap();
    let status = json!({ "status": { "nodeInfo": node["status"]["nodeInfo"] } });
    let patched = ward.lab.kube.patch("nodes", "status", "", "copy", status);
    patched.unwrap();
}

/// As if the machine had been restarted.
fn restart(ward: &Ward) {
    ward.lab.pve.human_stops(vmid(ward)).unwrap();
}

/// Pods of which each takes most of a machine.
fn wide(ward: &Ward, replicas: u32) {
    kproxide_lab::wide(&ward.lab, "web", "workers", replicas);
}

async fn is_silent(ward: &Ward, running: &Running, when: &str) {
    let said = running.said(ward).await;
    assert_eq!(said.troubles(), BTreeSet::new(), "{when}");
    said.check(when);
    assert_eq!(said.screen.answer, "All is well.", "{when}");
    let report = examined(ward).await;
    assert_eq!(ailments(&report), [], "{when}:\n{report}");
}

/// Line 1 is about this, and all places agree.
fn names(said: &Said, name: &str, object: &str, reason: &str) {
    said.check(name);
    let answer = &said.screen.answer;
    assert!(
        answer.contains(object) && answer.contains(reason),
        "{name}: {answer}\n{:#?}",
        said.troubles()
    );
}

/// Those defects of the table of doctor that the controller can know.
#[tokio::test(start_paused = true)]
async fn o1_o3_each_defect_of_doctors_table_is_said_everywhere_and_taken_back_everywhere() {
    let of_doctor = |reason: &str| reasons::of(reason).is_none_or(|it| it.of.text == "doctor");
    let mut seen = 0;
    for defect in DEFECTS.iter().filter(|it| !of_doctor(it.reason)) {
        // These say something else of a system that has a machine already, or nothing.
        const ALONE: [&str; 10] = [
            // Only doctor looks at the bridges of templates.
            "machines may not be connected",
            "the token's secret is wrong",
            "there is no pool",
            "one of two endpoints has another certificate",
            "every number is taken",
            "the key that marks machines is gone",
            "all addresses of a class rest",
            "a class has fewer addresses than its pool may make machines",
            "a Node has the label of a claim that is gone",
            "the Proxmox pool is not there",
        ];
        if ALONE.contains(&defect.name) {
            continue;
        }
        seen += 1;
        let ward = Ward::new();
        told(&ward, async |running| {
            is_silent(&ward, running, &format!("before: {}", defect.name)).await;
            (defect.inject)(&ward);
            sleep(Duration::from_secs(SECOND_LOOK)).await;
            let reason = reasons::of(defect.reason).unwrap();
            sleep(Duration::from_secs(reason.after.into())).await;
            if defect.name.contains("storage") {
                sleep(BROADCAST).await;
            }
            // What the credentials may do is asked more rarely: see observe.
            if reason.word == "PrivilegesMissing" || reason.word == "TokenOverPrivileged" {
                sleep(Duration::from_secs(61 * 60)).await;
            }
            let said = running.said(&ward).await;
            names(&said, defect.name, defect.object, defect.reason);
            let report = examined(&ward).await;
            let doctor = ailments(&report).into_iter();
            let doctor: BTreeSet<_> = doctor
                .map(|(_, object, reason)| (object.to_owned(), reason.to_owned()))
                .collect();
            assert_eq!(
                doctor,
                said.troubles(),
                "{}: doctor and status\n{report}",
                defect.name
            );
            match defect.mend {
                Mend::ByHand(mend) => mend(&ward),
                Mend::Commands => {
                    let found = report
                        .findings
                        .iter()
                        .find(|it| it.reason.word == defect.reason);
                    found
                        .unwrap()
                        .commands
                        .iter()
                        .for_each(|line| ward.run(line));
                }
            }
            sleep(MENDED).await;
            if reason.word == "TokenOverPrivileged" {
                sleep(Duration::from_secs(61 * 60)).await;
            }
            is_silent(&ward, running, &format!("mended: {}", defect.name)).await;
        })
        .await;
    }
    assert!(
        seen + ROWS.len() >= 40,
        "{seen} of doctor's table, {} more",
        ROWS.len()
    );
}

#[tokio::test(start_paused = true)]
async fn o1_o25_each_defect_of_a_machine_is_said_everywhere_and_taken_back_everywhere() {
    for row in ROWS {
        let ward = Ward::new();
        told(&ward, async |running| {
            let object = (row.object)(&ward);
            (row.inject)(&ward);
            sleep(Duration::from_secs(row.seconds)).await;
            let said = running.said(&ward).await;
            names(&said, row.name, &object, row.reason);
            if row.is_of_doctor {
                let report = examined(&ward).await;
                let is_it =
                    |(_, of, reason): &(_, &str, &str)| *of == object && *reason == row.reason;
                assert!(
                    ailments(&report).iter().any(is_it),
                    "{}:\n{report}",
                    row.name
                );
            }
            if row.reason == "BeingDeleted" {
                return;
            }
            (row.mend)(&ward);
            sleep(MENDED + 2 * MACHINE).await;
            let said = running.said(&ward).await;
            said.check(row.name);
            assert_eq!(said.troubles(), BTreeSet::new(), "mended: {}", row.name);
        })
        .await;
    }
}

/// Silence may end by itself. Until it is said, `status` shows for how long it lasts.
#[tokio::test(start_paused = true)]
async fn o6_silence_is_shown_at_once_and_said_after_a_minute() {
    let ward = Ward::new();
    told(&ward, async |running| {
        ward.wires(|wires| wires.dead = endpoints());
        sleep(Duration::from_secs(30)).await;
        let said = running.said(&ward).await;
        said.check("after 30 s");
        assert_eq!(said.troubles(), BTreeSet::new());
        let answer = &said.screen.answer;
        assert!(
            answer.starts_with("All is well, but ProxmoxCluster/home has not answered for "),
            "{answer}"
        );
        assert!(
            said.screen
                .hypervisors
                .iter()
                .all(|it| it.silent_seconds.is_some())
        );
        sleep(Duration::from_secs(45)).await;
        let said = running.said(&ward).await;
        names(&said, "after 75 s", "ProxmoxCluster/home", "Unreachable");
    })
    .await;
}

/// Of any two of these, line 1 names the one that stops most. The third thing is a token that may do too much, which stops nothing.
#[tokio::test(start_paused = true)]
async fn o6_of_several_defects_line_1_names_the_one_that_stops_most() {
    let grave = [
        "there is no quorum",
        "a pool wants more machines than it may have",
        "a pool may have no machine",
        "no template has a guest agent",
        "there is no template of that name",
        "the storage is full",
        "a range of numbers is empty",
        "a storage is not there",
        "a server is named that is not there",
        "the join script is not mounted",
        "a pool names a class that is not there",
        "a Node has the label of a claim that is gone",
        "no server has the memory of a size",
        "the template's disk is larger than asked",
        "another installation uses the Proxmox pool",
    ];
    let rows: Vec<_> = DEFECTS
        .iter()
        .filter(|it| grave.contains(&it.name))
        .collect();
    assert_eq!(rows.len(), 15);
    for (index, first) in rows.iter().enumerate() {
        for second in &rows[index + 1..] {
            let ward = Ward::new();
            told(&ward, async |running| {
                let name = format!("{} and {}", first.name, second.name);
                ward.grant("/access", &["Permissions.Modify"]);
                (first.inject)(&ward);
                (second.inject)(&ward);
                sleep(Duration::from_secs(SECOND_LOOK) + BROADCAST).await;
                // One may hide the other; the one that stops most is never hidden.
                let said = running.said(&ward).await;
                said.check(&name);
                let most = |name: &str| reasons::of(name).map(|it| it.stops).unwrap();
                let most = most(first.reason).min(most(second.reason));
                let line_1 = said.screen.troubles.first().map(|it| it.stops);
                assert!(
                    line_1.is_some_and(|it| it <= most),
                    "{name}: {}",
                    said.screen.answer
                );
                let later = said.screen.troubles.iter().map(|it| it.stops);
                assert!(later.is_sorted(), "{name}: {:#?}", said.troubles());
            })
            .await;
        }
    }
}

/// Shapes in which nothing is wrong.
#[tokio::test(start_paused = true)]
async fn o9_a_healthy_system_of_each_shape_has_no_finding() {
    for (shape, change) in [
        ("one machine, no pods", json!({})),
        (
            "at its maximum",
            json!({ "limits": { "minNodes": 1, "maxNodes": 1 } }),
        ),
        (
            "min = max",
            json!({ "limits": { "minNodes": 2, "maxNodes": 2 } }),
        ),
        (
            "nothing",
            json!({ "limits": { "minNodes": 0, "maxNodes": 3 } }),
        ),
        ("paused", json!({ "paused": true })),
    ] {
        let ward = Ward::new();
        ward.edit("nodepools/workers", change);
        told(&ward, async |running| {
            is_silent(&ward, running, shape).await
        })
        .await;
    }
}

/// Two replicas, of which the one that leads goes. The Lease is free after 15 s, and nobody says that anything is wrong with a machine.
#[tokio::test(start_paused = true)]
async fn o10_after_a_change_of_leader_there_is_no_finding() {
    let ward = Ward::new();
    let second = async {
        sleep(MACHINE / 2).await;
        told(&ward, async |running| {
            is_silent(&ward, running, "the second one leads").await
        })
        .await;
    };
    let first = async {
        let config = Config {
            join_dir: ward.join.path().to_owned(),
            ..config("kproxide-1")
        };
        let kube = Client::from_service(ward.lab.kube.as_user("kproxide-1").service());
        let (app, host) = ward
            .lab
            .host_over("kproxide-1", config, kube, ward.connect())
            .unwrap();
        let stop = async {
            sleep(MACHINE).await;
            host.stop.cancel();
        };
        let ((), ended) = tokio::join!(stop, app.run());
        ended.unwrap();
    };
    tokio::join!(first, second);
}

/// In a dry run nothing is written, so only what the controller found is looked at.
#[tokio::test(start_paused = true)]
async fn o9_a_dry_run_has_no_finding() {
    let ward = Ward::new();
    let mut config = Config {
        join_dir: ward.join.path().to_owned(),
        ..config("kproxide-0")
    };
    config.dry_run = true;
    told_with(&ward, config, async |running| {
        assert_eq!(running.said(&ward).await.troubles(), BTreeSet::new());
    })
    .await;
}

/// Somebody's task holds a VM that kproxide has just cloned, so it cannot be configured for a while.
#[tokio::test(start_paused = true)]
async fn i6_what_a_launch_waits_for_is_said_after_a_minute_with_since_when() {
    let ward = Ward::new();
    told(&ward, async |running| {
        let first = vmid(&ward);
        wide(&ward, 2);
        let new = loop {
            sleep(Duration::from_millis(50)).await;
            let vms = ward.lab.pve.snapshot().vms;
            let mut made = vms.iter().filter(|vm| (500..600).contains(&vm.vmid));
            if let Some(made) = made.find(|vm| vm.vmid != first && vm.lock.is_none()) {
                break made.vmid;
            }
        };
        ward.lab
            .pve
            .human_sets(new, "lock", Some("backup"))
            .unwrap();
        sleep(Duration::from_secs(150)).await;
        let said = running.said(&ward).await;
        let waits = said
            .screen
            .troubles
            .iter()
            .find(|it| it.reason.word == "Waits");
        let waits = waits.unwrap_or_else(|| panic!("{:#?}", said.troubles()));
        assert!(
            waits.object.starts_with("NodeClaim/") && waits.since.is_some(),
            "{waits:?}"
        );
        let told = ward.lab.kube.list("events.events.k8s.io").into_iter();
        let told = told.filter(|event| event["reason"] == "Waits").count();
        assert_eq!(told, 1);
        ward.lab.pve.human_sets(new, "lock", None).unwrap();
        sleep(3 * MACHINE).await;
        assert_eq!(running.said(&ward).await.troubles(), BTreeSet::new());
    })
    .await;
}
