//! Each condition of pools, classes and Proxmox clusters becomes False and True again, with a reason, a message that says
//! what to do, and an Event on that object.

use std::time::Duration;

use kproxide_simulator::pve::Topology;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::degraded::{condition, lively};
use kproxide_controller::config::Config;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished, run_with};

/// Longer than what may pass by itself is waited for, and than two pauses between Events about one condition: so long that the
/// next change is told at once.
pub(super) const LONG: Duration = Duration::from_secs(21 * 60);
/// Enough for some looks, and less than what may pass by itself is waited for.
pub(super) const SOON: Duration = Duration::from_secs(40);

pub(super) const POOL: (&str, &str, &str) = ("nodepools", "NodePool", "workers");
const CLASS: (&str, &str, &str) = ("nodeclasses", "NodeClass", "debian");
pub(super) const CLUSTER: (&str, &str, &str) = ("proxmoxclusters", "ProxmoxCluster", "home");

pub(super) type Object = (&'static str, &'static str, &'static str);

fn object(lab: &Lab, (resource, _, name): Object) -> Value {
    let object = lab.kube.get(&format!("{resource}.kproxide.dev"), "", name);
    object.unwrap()
}

fn edit(lab: &Lab, (resource, _, name): Object, spec: Value) {
    let patch = json!({ "spec": spec });
    let resource = format!("{resource}.kproxide.dev");
    lab.kube.patch(&resource, "", "", name, patch).unwrap();
}

/// Types and notes of the Events about the object with this reason.
pub(super) fn told(lab: &Lab, (_, kind, name): Object, reason: &str) -> Vec<(String, String)> {
    let events = lab.kube.list("events.events.k8s.io").into_iter();
    let about_it = events.filter(|event| {
        let of = &event["regarding"];
        of["kind"] == kind && of["name"] == name && event["reason"] == reason
    });
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    about_it
        .map(|event| (text(&event["type"]), text(&event["note"])))
        .collect()
}

/// The condition stands so, of the spec that stands there, and the object was told once.
#[track_caller]
pub(super) fn says(lab: &Lab, of: Object, kind: &str, status: &str, reason: &str, words: &str) {
    let object = object(lab, of);
    let found = condition(&object, kind);
    let stands = (&found["status"], &found["reason"]);
    assert_eq!(stands, (&json!(status), &json!(reason)), "{of:?}: {found}");
    let message = found["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{of:?}: {found}");
    assert_eq!(
        found["observedGeneration"],
        object["metadata"]["generation"]
    );
    let told = told(lab, of, reason);
    let [(_, note)] = &told[..] else {
        panic!("{of:?} {reason}: {told:?}");
    };
    assert!(note.contains(words), "{note}");
}

#[track_caller]
pub(super) fn is(lab: &Lab, of: Object, kind: &str, status: &str) {
    let found = condition(&object(lab, of), kind);
    assert_eq!(found["status"], status, "{of:?}: {found}");
}

/// A host that runs while the story is told.
pub(super) async fn while_told(lab: &Lab, config: Config, story: impl Future<Output = ()>) {
    let (app, host) = lab.host("kproxide-0", config).unwrap();
    let story = async {
        story.await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pool_says_what_keeps_it_from_making_machines_and_that_it_is_over() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    while_told(&lab, config("kproxide-0"), async {
        sleep(SOON).await;
        for kind in ["Degraded", "LimitReached", "Paused"] {
            is(&lab, POOL, kind, "False");
        }
        is(&lab, POOL, "Ready", "True");
        // That all is well from the beginning is no news.
        assert_eq!(told(&lab, POOL, "Ready"), []);

        for (field, wrong, right, reason, words) in [
            (
                "nodeClass",
                json!("typo"),
                json!("debian"),
                "ClassMissing",
                "create it or correct",
            ),
            (
                "clusters",
                json!(["typo"]),
                json!(null),
                "ClusterMissing",
                "create it or correct",
            ),
            (
                "policies",
                json!({ "hostSelection": { "use": "mine" } }),
                json!(null),
                "PolicyMissing",
                "mount mine.wasm",
            ),
        ] {
            edit(&lab, POOL, json!({ field: wrong }));
            sleep(SOON).await;
            says(&lab, POOL, "Ready", "False", reason, words);
            edit(&lab, POOL, json!({ field: right }));
            sleep(LONG).await;
            is(&lab, POOL, "Ready", "True");
        }
        // One Event for each time.
        let again = told(&lab, POOL, "Ready");
        assert_eq!(again.len(), 3, "{again:?}");
        assert_eq!(
            again[0],
            ("Normal".to_owned(), "Ready is True again".to_owned())
        );

        edit(&lab, POOL, json!({ "paused": true }));
        sleep(SOON).await;
        says(
            &lab,
            POOL,
            "Paused",
            "True",
            "Paused",
            "set spec.paused to false",
        );
        is(&lab, POOL, "Ready", "True");
        edit(&lab, POOL, json!({ "paused": false }));
        sleep(LONG).await;
        is(&lab, POOL, "Paused", "False");
        assert_eq!(told(&lab, POOL, "NotPaused").len(), 1);

        wide(&lab, "web", "workers", 2);
        edit(&lab, POOL, json!({ "limits": { "maxNodes": 1 } }));
        sleep(MACHINE).await;
        says(
            &lab,
            POOL,
            "LimitReached",
            "True",
            "MaxNodes",
            "set it higher",
        );
        is(&lab, POOL, "Ready", "True");
        edit(&lab, POOL, json!({ "limits": { "maxNodes": 5 } }));
        sleep(LONG).await;
        is(&lab, POOL, "LimitReached", "False");
        assert_eq!(told(&lab, POOL, "BelowLimits").len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_last_three_launches_failed_is_not_ready_until_one_succeeds() {
    let lab = furnished(
        Setting::new(1, 3),
        json!({ "timeouts": { "provision": "1m" } }),
        lively(),
    );
    lab.pve
        .set_starts_fail(Some("start failed: no such machine type"));
    while_told(&lab, config("kproxide-0"), async {
        wide(&lab, "web", "workers", 1);
        sleep(MACHINE).await;
        says(
            &lab,
            POOL,
            "Ready",
            "False",
            "LaunchesFail",
            "no such machine type",
        );
        lab.pve.set_starts_fail(None);
        sleep(4 * MACHINE).await;
        is(&lab, POOL, "Ready", "True");
        assert_eq!(told(&lab, POOL, "Ready").len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_class_says_whether_its_template_and_its_join_file_are_there() {
    let secret = tempfile::tempdir().unwrap();
    let lab = furnished(
        Setting::new(1, 2),
        json!({ "join": { "guestExec": { "commandSecretFile": "debian" } } }),
        lively(),
    );
    let config = Config {
        join_dir: secret.path().to_owned(),
        ..config("kproxide-0")
    };
    while_told(&lab, config, async {
        sleep(SOON).await;
        says(
            &lab,
            CLASS,
            "Ready",
            "False",
            "JoinFileMissing",
            "mount the Secret",
        );
        std::fs::write(secret.path().join("debian"), "join\n").unwrap();
        sleep(LONG).await;
        is(&lab, CLASS, "Ready", "True");
        // On which servers it is.
        let ready = condition(&object(&lab, CLASS), "Ready");
        assert_eq!(ready["message"], "template k8s-node is on pve1, pve2");
        assert_eq!(told(&lab, CLASS, "Ready").len(), 1);

        edit(&lab, CLASS, json!({ "template": { "name": "k8s-typo" } }));
        sleep(SOON).await;
        says(
            &lab,
            CLASS,
            "Ready",
            "False",
            "TemplateMissing",
            "examples/proxmox/setup.sh",
        );
        let ready = condition(&object(&lab, POOL), "Ready");
        let expected = "NodeClass debian: there is no template k8s-typo";
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!("ClassNotReady"))
        );
        assert!(
            ready["message"].as_str().unwrap().contains(expected),
            "{ready}"
        );
        let notes = told(&lab, POOL, "ClassNotReady");
        assert!(
            notes.iter().any(|(_, note)| note.contains(expected)),
            "{notes:?}"
        );
        edit(&lab, CLASS, json!({ "template": { "name": "k8s-node" } }));
        sleep(LONG).await;
        is(&lab, CLASS, "Ready", "True");
        is(&lab, POOL, "Ready", "True");

        // No server has it.
        edit(&lab, CLASS, json!({ "template": { "storage": "nowhere" } }));
        sleep(SOON).await;
        says(
            &lab,
            CLUSTER,
            "Ready",
            "False",
            "StorageMissing",
            "NodeClass debian asks for storage nowhere",
        );
        says(
            &lab,
            CLASS,
            "Ready",
            "False",
            "CloneImpossible",
            "storage nowhere does not exist there",
        );
        edit(&lab, CLASS, json!({ "template": { "storage": null } }));
        sleep(LONG).await;
        for of in [CLASS, CLUSTER, POOL] {
            is(&lab, of, "Ready", "True");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_says_what_of_its_settings_proxmox_does_not_have() {
    let setting = Setting::new(1, 2);
    let granted = setting.topology.acl.clone();
    let mut poor = granted.clone();
    for entry in poor.iter_mut().filter(|entry| entry.path == "/pool/k8s") {
        let privileges = &mut entry.privileges;
        privileges.retain(|privilege| privilege != "VM.Config.CPU");
    }
    let lab = furnished(setting, json!({}), lively());
    lab.pve.set_acl(poor.clone());
    edit(&lab, CLUSTER, json!({ "pool": "typo" }));
    while_told(&lab, config("kproxide-0"), async {
        // Before the first launch.
        sleep(SOON).await;
        wide(&lab, "web", "workers", 1);
        sleep(SOON).await;
        says(
            &lab,
            CLUSTER,
            "Ready",
            "False",
            "PoolMissing",
            "pveum pool add typo",
        );
        says(
            &lab,
            POOL,
            "Ready",
            "False",
            "NoUsableCluster",
            "pveum pool add typo",
        );
        assert_eq!(lab.kube.list("nodeclaims.kproxide.dev"), [] as [Value; 0]);

        // Credentials that may see every pool get another answer.
        let mut all_seeing = poor.clone();
        let mut sees = poor[0].clone();
        (sees.path, sees.privileges) = ("/pool".into(), vec!["Pool.Audit".into()]);
        all_seeing.push(sees);
        lab.pve.set_acl(all_seeing);
        sleep(LONG).await;
        let ready = condition(&object(&lab, CLUSTER), "Ready");
        assert_eq!(ready["reason"], "PoolMissing", "{ready}");
        assert_eq!(lab.kube.list("nodeclaims.kproxide.dev"), [] as [Value; 0]);
        lab.pve.set_acl(poor);

        lab.kube
            .delete("deployments.apps", "default", "web")
            .unwrap();
        edit(&lab, CLUSTER, json!({ "pool": "k8s" }));
        sleep(LONG).await;
        let words = "/pool/k8s: VM.Config.CPU is missing";
        is(&lab, CLUSTER, "Ready", "False");
        let ready = condition(&object(&lab, CLUSTER), "Ready");
        assert_eq!(ready["reason"], "PrivilegesMissing");
        let message = ready["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        assert!(message.contains("pveum acl modify /pool/k8s"), "{message}");
        lab.pve.set_acl(granted);
        sleep(LONG).await;
        is(&lab, CLUSTER, "Ready", "True");
        is(&lab, POOL, "Ready", "True");

        edit(
            &lab,
            CLUSTER,
            json!({ "hypervisors": { "include": ["pve9"] } }),
        );
        sleep(SOON).await;
        says(
            &lab,
            CLUSTER,
            "Ready",
            "False",
            "UnknownHypervisor",
            "correct the name",
        );
        edit(&lab, CLUSTER, json!({ "hypervisors": { "include": [] } }));
        sleep(LONG).await;
        is(&lab, CLUSTER, "Ready", "True");

        wide(&lab, "web", "workers", 1);
        sleep(MACHINE).await;
        let claims = lab.kube.list("nodeclaims.kproxide.dev");
        let vmid = claims[0]["spec"]["vmid"].clone();
        edit(
            &lab,
            CLUSTER,
            json!({ "vmidRange": { "first": vmid, "last": vmid } }),
        );
        sleep(SOON).await;
        says(
            &lab,
            CLUSTER,
            "Ready",
            "False",
            "VmidsUsedUp",
            "Make the range larger",
        );
        edit(
            &lab,
            CLUSTER,
            json!({ "vmidRange": { "first": 500, "last": 599 } }),
        );
        sleep(LONG).await;
        is(&lab, CLUSTER, "Ready", "True");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_judged_yet_is_unknown() {
    let mut setting = Setting::new(1, 2);
    // It may see every template.
    setting.topology = Topology::of(2);
    let lab = furnished(setting, json!({}), lively());
    lab.pve.human_clones_vm(9001, 9100, "k8s-spare").unwrap();
    lab.pve.human_sets(9100, "template", Some("1")).unwrap();
    let spare = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodeClass", "metadata": { "name": "spare" },
        "spec": {
            "template": { "name": "k8s-spare" }, "join": { "template": {} },
            "instanceTypes": [{ "name": "small", "cores": 1, "memoryMiB": 1024 }],
        },
    });
    let mut typo = spare.clone();
    typo["metadata"]["name"] = json!("typo");
    typo["spec"]["template"]["name"] = json!("k8s-typo");
    lab.apply([
        ("nodeclasses.kproxide.dev", spare),
        ("nodeclasses.kproxide.dev", typo),
    ]);
    run_with(&lab, config("kproxide-0"), SOON).await;
    let ready = |name: &'static str| {
        let class = object(&lab, ("nodeclasses", "NodeClass", name));
        condition(&class, "Ready")
    };
    let spare = ready("spare");
    assert_eq!(
        (&spare["status"], &spare["reason"]),
        (&json!("Unknown"), &json!("NotJudgedYet"))
    );
    assert!(
        spare["message"]
            .as_str()
            .unwrap()
            .contains("no NodePool uses this NodeClass")
    );
    assert_eq!(ready("typo")["reason"], "TemplateMissing");
    assert_eq!(ready("debian")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn r39_a_class_that_is_deleted_while_machines_use_it_names_their_pools() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    while_told(&lab, config("kproxide-0"), async {
        wide(&lab, "web", "workers", 1);
        sleep(MACHINE).await;
        is(&lab, CLASS, "Ready", "True");
        lab.kube
            .delete("nodeclasses.kproxide.dev", "", "debian")
            .unwrap();
        sleep(SOON).await;
        let words = "machines of these NodePools are made from it: workers";
        says(&lab, CLASS, "Ready", "False", "BeingDeleted", words);
        let because = "NodeClass debian: somebody deletes this NodeClass";
        says(&lab, POOL, "Ready", "False", "ClassNotReady", because);
        // No machine is made from it.
        let before = lab.kube.list("nodeclaims.kproxide.dev").len();
        wide(&lab, "more", "workers", 1);
        sleep(MACHINE).await;
        assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), before);
    })
    .await;
}
