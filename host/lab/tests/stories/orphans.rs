//! Machines whose claims somebody has torn off.

use std::time::Duration;

use jiff::SignedDuration;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::pve::VmView;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::run;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished, run_with};

const CLAIMS: &str = "nodeclaims.kproxide.dev";
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Three hypervisors, and a pool that wants so many machines, which serve.
async fn served(machines: u32) -> Lab {
    let limits = json!({ "limits": { "minNodes": machines, "maxNodes": 3 } });
    let lab = furnished(Setting::new(1, 3), json!({}), limits);
    lab.apply([(
        "deployments.apps",
        fixtures::deployment("default", "web", 4, "500m", "512Mi"),
    )]);
    run(&lab, MACHINE).await;
    assert_eq!(machines_of(&lab).len(), machines as usize);
    assert_eq!(running(&lab).len(), 4);
    lab
}

/// As a person does it who wants to be rid of an object; or as a restored etcd has it.
fn tear_off_claims(lab: &Lab) -> Vec<String> {
    let claims = lab.kube.list(CLAIMS);
    for claim in &claims {
        let name = claim["metadata"]["name"].as_str().unwrap();
        lab.kube.delete(CLAIMS, "", name).unwrap();
        let none = json!({ "metadata": { "finalizers": null } });
        lab.kube.patch(CLAIMS, "", "", name, none).unwrap();
    }
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);
    claims.iter().map(uid).collect()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn machines_of(lab: &Lab) -> Vec<VmView> {
    let vms = lab.pve.snapshot().vms.into_iter();
    vms.filter(|vm| !vm.template).collect()
}

/// Pods by UID, each with its Node.
fn running(lab: &Lab) -> Vec<(String, String)> {
    let pods = lab.kube.list("pods").into_iter();
    let pods = pods.filter(|pod| pod["status"]["phase"] == "Running");
    pods.map(|pod| (uid(&pod), pod["spec"]["nodeName"].to_string()))
        .collect()
}

/// Writes to this VM, by path.
fn writes(lab: &Lab, vmid: u32) -> Vec<String> {
    let part = format!("/qemu/{vmid}");
    let audit = lab.pve.audit().into_iter();
    audit
        .filter(|entry| entry.method != "GET" && entry.path.contains(&part))
        .map(|entry| format!("{} {}", entry.method, entry.path))
        .collect()
}

/// Its kubelet is silent for good, and somebody deletes it: nothing speaks for the machine any more.
fn lose_node(lab: &Lab, name: &str) {
    lab.kubelets.stop_node(name);
    lab.kube.delete("nodes", "", name).unwrap();
}

fn orphan_events(lab: &Lab) -> Vec<String> {
    let events = lab.kube.list("events.events.k8s.io").into_iter();
    events
        .filter(|event| event["reason"] == "Orphan")
        .map(|event| event["note"].to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn f27_a_claim_torn_off_is_made_anew_and_the_pods_never_move() {
    let lab = served(1).await;
    let (pods, before) = (running(&lab), machines_of(&lab));
    let written = writes(&lab, before[0].vmid);
    let old = tear_off_claims(&lab);
    run(&lab, MACHINE).await;

    let claims = lab.kube.list(CLAIMS);
    let [claim] = &claims[..] else {
        panic!("{} claims", claims.len());
    };
    assert_ne!(uid(claim), old[0]);
    assert_eq!(claim["spec"]["adopts"]["claimUID"], old[0]);
    assert_eq!(claim["spec"]["adopts"]["condemned"], false);
    assert_eq!(claim["status"]["phase"], "Initialized");
    assert_eq!(claim["metadata"]["finalizers"][0], "kproxide.dev/machine");
    assert_eq!(running(&lab), pods);
    assert_eq!(machines_of(&lab), before);
    assert_eq!(writes(&lab, before[0].vmid), written);
    let told = orphan_events(&lab);
    assert!(
        told.iter()
            .any(|note| note.contains("kproxide takes it over")),
        "{told:?}"
    );

    // From then on it is a claim as any other: whoever deletes it has its machine removed, with the proof that its marker still gives.
    lab.kube
        .delete("deployments.apps", "default", "web")
        .unwrap();
    let limits = json!({ "spec": { "limits": { "minNodes": 0 } } });
    let pools = "nodepools.kproxide.dev";
    lab.kube.patch(pools, "", "", "workers", limits).unwrap();
    let name = claim["metadata"]["name"].as_str().unwrap();
    lab.kube.delete(CLAIMS, "", name).unwrap();
    run(&lab, 2 * MACHINE).await;
    assert_eq!(machines_of(&lab), []);
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);
}

/// The Ledger is gone too: the Nodes say what they belong to.
#[tokio::test(start_paused = true)]
async fn f112_all_machines_are_adopted_after_a_restore_that_knows_none_of_them() {
    let lab = served(3).await;
    let (pods, before) = (running(&lab), machines_of(&lab));
    let mut old = tear_off_claims(&lab);
    lab.kube
        .delete("ledgers.kproxide.dev", "", "kproxide")
        .unwrap();
    run(&lab, 2 * HOUR).await;

    let claims = lab.kube.list(CLAIMS);
    let mut adopted: Vec<String> = claims
        .iter()
        .map(|claim| {
            claim["spec"]["adopts"]["claimUID"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    adopted.sort();
    old.sort();
    assert_eq!(adopted, old);
    assert_eq!(machines_of(&lab), before);
    assert_eq!(running(&lab), pods);
    let ledger = lab
        .kube
        .get("ledgers.kproxide.dev", "", "kproxide")
        .unwrap();
    assert_eq!(ledger["spec"]["entries"].as_array().unwrap().len(), 3);
}

/// Somebody puts the marker that a machine had onto a VM of his own, which has the machine's number, and a Node of this cluster.
#[tokio::test(start_paused = true)]
async fn s8_a_vm_with_the_marker_of_a_removed_machine_is_left_alone_without_a_persons_word() {
    let lab = served(1).await;
    let old = machines_of(&lab).remove(0);
    let pools = "nodepools.kproxide.dev";
    let none = json!({ "spec": { "limits": { "minNodes": 0 } } });
    lab.kube.patch(pools, "", "", "workers", none).unwrap();
    lab.kube
        .delete("deployments.apps", "default", "web")
        .unwrap();
    let mut config = config("kproxide-0");
    config.limits.quarantine = SignedDuration::from_mins(15);
    run_with(&lab, config, HOUR).await;
    // Its number has rested.
    assert_eq!(machines_of(&lab), []);
    lab.pve.human_clones_vm(9001, old.vmid, &old.name).unwrap();
    lab.pve.human_sets_pool(old.vmid, Some("k8s")).unwrap();
    lab.pve
        .human_edits_description(old.vmid, old.description.as_deref().unwrap())
        .unwrap();
    lab.pve.human_starts(old.vmid).unwrap();
    let written = writes(&lab, old.vmid);
    run(&lab, HOUR).await;
    let stands = machines_of(&lab).remove(0);
    assert!(lab.kube.get("nodes", "", &old.name).is_some());
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);
    assert_eq!(writes(&lab, old.vmid), written);
    assert!(stands.running);
    let told = orphan_events(&lab);
    let mut words = told
        .iter()
        .filter_map(|note| note.split_once("kproxide.dev/acknowledge-orphan="));
    let (_, word) = words.next().expect("an Event has the line to type");
    let word = word.trim_end_matches('"');

    let says = |word: Option<&str>| {
        let word =
            json!({ "metadata": { "annotations": { "kproxide.dev/acknowledge-orphan": word } } });
        let ledger = "ledgers.kproxide.dev";
        lab.kube.patch(ledger, "", "", "kproxide", word).unwrap();
    };
    says(Some(&format!("{word}x")));
    run(&lab, HOUR).await;
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);
    // A replica of an older version writes the Ledger without the word before anybody has read it.
    says(Some(word));
    says(None);
    run(&lab, HOUR).await;
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);
    assert_eq!(writes(&lab, old.vmid), written);
    says(Some(word));
    let one = json!({ "spec": { "limits": { "minNodes": 1 } } });
    lab.kube.patch(pools, "", "", "workers", one).unwrap();
    run(&lab, MACHINE).await;
    assert_eq!(machines_of(&lab)[0].incarnation, stands.incarnation);
    let claims = lab.kube.list(CLAIMS);
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0]["spec"]["adopts"]["condemned"], false);
    let ledger = lab.kube.get("ledgers.kproxide.dev", "", "kproxide");
    let ledger = ledger.unwrap();
    assert_eq!(ledger["metadata"]["annotations"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn f27_f107_a_machine_without_pool_goes_after_its_grace_and_its_copy_stays() {
    let lab = served(1).await;
    let machine = machines_of(&lab).remove(0);
    tear_off_claims(&lab);
    lab.kube
        .delete("nodepools.kproxide.dev", "", "workers")
        .unwrap();
    lose_node(&lab, &machine.name);
    // Everything is copied, the marker too; only the number is another.
    lab.pve
        .human_clones_vm(machine.vmid, 555, &machine.name)
        .unwrap();
    lab.pve.human_sets_pool(555, Some("k8s")).unwrap();

    // Restarted twice within its grace.
    for _ in 0..3 {
        run(&lab, HOUR / 4).await;
        let stays = machines_of(&lab);
        assert!(stays.iter().any(|vm| vm.vmid == machine.vmid && vm.running));
        assert_eq!(lab.kube.list(CLAIMS).len(), 0);
    }
    run(&lab, HOUR).await;
    let left: Vec<u32> = machines_of(&lab).iter().map(|vm| vm.vmid).collect();
    assert_eq!(left, [555]);
    assert_eq!(writes(&lab, 555), [] as [String; 0]);
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);
    let ledger = lab
        .kube
        .get("ledgers.kproxide.dev", "", "kproxide")
        .unwrap();
    assert_eq!(ledger["spec"]["entries"][0]["state"], "quarantined");
    assert_eq!(ledger["spec"]["orphans"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn f50_nothing_is_destroyed_while_a_hypervisor_is_silent() {
    let lab = served(1).await;
    let machine = machines_of(&lab).remove(0);
    tear_off_claims(&lab);
    lab.kube
        .delete("nodepools.kproxide.dev", "", "workers")
        .unwrap();
    lose_node(&lab, &machine.name);
    let others = ["pve1", "pve2", "pve3"];
    let other = others.iter().find(|name| **name != machine.hypervisor);
    lab.pve.set_hypervisor_online(other.unwrap(), false);
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let metrics = app.metrics();
    let story = async {
        sleep(3 * HOUR).await;
        assert_eq!(
            (metrics.found.orphans.get(), metrics.found.frozen.get()),
            (1, 0)
        );
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    assert!(machines_of(&lab)[0].running);
    assert_eq!(lab.kube.list(CLAIMS).len(), 0);

    lab.pve.set_hypervisor_online(other.unwrap(), true);
    run(&lab, HOUR).await;
    assert_eq!(machines_of(&lab), []);
}
