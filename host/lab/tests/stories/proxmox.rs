//! What Proxmox VE does on bad days, seen from one pod that needs a machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use kproxide_simulator::physics::Join;
use kproxide_simulator::pve::topology::AclSpec;
use serde_json::json;
use tokio::time::sleep;

use super::degraded::{HOUR, claims, condition, lively, running, scale, told};
use super::{cluster_status, run};
use kproxide_controller::config::Config;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished, run_with};

/// How many machines stand on a hypervisor.
fn machines_on(lab: &Lab, hypervisor: &str) -> usize {
    let vms = lab.pve.snapshot().vms;
    let on_it = vms
        .iter()
        .filter(|vm| vm.vmid < 9_000 && vm.hypervisor == hypervisor);
    on_it.count()
}

#[tokio::test(start_paused = true)]
async fn p1_a_server_that_hangs_stops_neither_launches_nor_removals_elsewhere() {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        wide(&lab, "web", "workers", 3);
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 3);
        let before: Vec<_> = ["pve1", "pve2", "pve3"]
            .map(|name| machines_on(&lab, name))
            .into();
        assert_eq!(before, [1, 1, 1]);

        lab.pve.set_hypervisor_hung("pve2", true);
        sleep(Duration::from_secs(60)).await;
        scale(&lab, "web", 5);
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 5);
        assert_eq!(machines_on(&lab, "pve2"), 1, "it is no candidate");
        let status = cluster_status(&lab);
        assert_eq!(status["reachable"], true, "{status}");

        scale(&lab, "web", 0);
        sleep(HOUR).await;
        assert_eq!(
            (machines_on(&lab, "pve1"), machines_on(&lab, "pve3")),
            (0, 0)
        );
        assert_eq!(machines_on(&lab, "pve2"), 1, "nothing can be proven there");

        let only = json!({ "spec": { "hypervisors": { "include": ["pve2"] } } });
        lab.kube
            .patch("proxmoxclusters.kproxide.dev", "", "", "home", only)
            .unwrap();
        wide(&lab, "more", "workers", 2);
        sleep(MACHINE).await;
        let notes = told(&lab, "NotTriggerScaleUp");
        assert!(
            notes
                .iter()
                .any(|note| note.contains("its Proxmox daemons do not answer")),
            "{notes:?}"
        );

        lab.pve.set_hypervisor_hung("pve2", false);
        sleep(2 * MACHINE).await;
        assert_eq!(running(&lab, "more"), 2, "it is used again");
        scale(&lab, "more", 0);
        sleep(HOUR).await;
        assert!(claims(&lab).is_empty());
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// Also if kproxide is to look at Proxmox more often than one look takes.
#[tokio::test(start_paused = true)]
async fn r31_a_server_that_hangs_holds_up_neither_the_loop_nor_removals_elsewhere() {
    for max_age in [1, 5] {
        let lab = furnished(Setting::new(1, 3), json!({}), lively());
        let mut config = config("kproxide-0");
        config.timing.inventory_max_age = Duration::from_secs(max_age);
        let (app, host) = lab.host("kproxide-0", config).unwrap();
        let metrics = app.metrics();
        let story = async {
            wide(&lab, "web", "workers", 3);
            sleep(MACHINE).await;
            assert_eq!(running(&lab, "web"), 3);
            lab.pve.set_hypervisor_hung("pve2", true);
            for _ in 0..10 {
                let before = metrics.ticks.get();
                sleep(Duration::from_secs(60)).await;
                let ticks = metrics.ticks.get() - before;
                assert!(
                    ticks >= 4,
                    "{ticks} ticks in a minute, looks after {max_age} s"
                );
            }
            scale(&lab, "web", 0);
            sleep(HOUR).await;
            let left = ["pve1", "pve2", "pve3"].map(|name| machines_on(&lab, name));
            assert_eq!(left, [0, 1, 0], "looks after {max_age} s");
            host.stop.cancel();
        };
        let ((), ended) = tokio::join!(story, app.run());
        ended.unwrap();
    }
}

/// Requests of this method and end of a path that the host has made, by the VM's number.
fn asked(lab: &Lab, method: &str, end: &str) -> BTreeMap<u32, usize> {
    let mut asked = BTreeMap::new();
    for entry in lab.pve.audit() {
        let vmid = entry.path.split('/').nth(4).and_then(|it| it.parse().ok());
        if entry.method == method && entry.path.ends_with(end) {
            *asked.entry(vmid.unwrap_or(0)).or_default() += 1;
        }
    }
    asked
}

/// Machines that came to be, those that are gone included.
fn made(lab: &Lab) -> usize {
    let births = lab.pve.snapshot().births;
    births.iter().filter(|vm| vm.vmid < 9_000).count()
}

fn notes_with<'n>(notes: &'n [String], text: &str) -> Vec<&'n String> {
    notes.iter().filter(|note| note.contains(text)).collect()
}

#[tokio::test(start_paused = true)]
async fn r10_templates_with_vcpus_and_cpulimit_make_machines_of_their_types_size() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    lab.pve.human_sets(9001, "vcpus", Some("1")).unwrap();
    lab.pve.human_sets(9002, "vcpus", Some("2")).unwrap();
    lab.pve.human_sets(9002, "cpulimit", Some("1")).unwrap();
    wide(&lab, "web", "workers", 2);
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "web"), made(&lab)), (2, 2));
    for vm in lab.pve.snapshot().vms.iter().filter(|vm| vm.vmid < 9_000) {
        for key in ["vcpus", "cpulimit"] {
            assert_eq!(vm.config.get(key), None, "{key} of {}", vm.vmid);
        }
        assert_eq!(vm.cores, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn r11_a_clone_that_is_slower_than_timeouts_provision_is_waited_for_and_used() {
    let class = json!({
        "template": { "name": "k8s-node", "placement": "local", "clone": "full" },
        "timeouts": { "provision": "10s" },
    });
    let lab = furnished(Setting::new(1, 1), class, lively());
    wide(&lab, "web", "workers", 1);
    wide(&lab, "more", "workers", 1);
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "web"), running(&lab, "more")), (1, 1));
    assert_eq!(
        made(&lab),
        2,
        "nothing is copied beside a copy for the same pod"
    );
    assert_eq!(told(&lab, "FailedToScaleUpGroup"), [] as [String; 0]);

    let lab = furnished(
        Setting::new(1, 1),
        json!({
            "template": { "name": "k8s-node", "placement": "local", "clone": "full" },
            "timeouts": { "provision": "5s", "clone": "12s" },
        }),
        lively(),
    );
    wide(&lab, "web", "workers", 1);
    run(&lab, MACHINE).await;
    let notes = told(&lab, "FailedToScaleUpGroup");
    assert!(
        notes_with(
            &notes,
            "did not end within 12s (timeouts.clone of the NodeClass)"
        )
        .len()
            == notes.len()
            && !notes.is_empty(),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn r12_auto_copies_a_template_whose_disks_are_no_base_volumes() {
    let class = json!({ "template": { "name": "k8s-raw", "placement": "local" } });
    let mut setting = Setting::new(1, 2);
    let acl = &mut setting.topology.acl;
    let of_first = acl.iter().filter(|entry| entry.path == "/vms/9001");
    for entry in of_first.cloned().collect::<Vec<_>>() {
        for path in ["/vms/9100", "/vms/9101"] {
            let path = path.to_owned();
            acl.push(AclSpec {
                path,
                ..entry.clone()
            });
        }
    }
    let lab = furnished(setting, class, lively());
    for (source, raw) in [(9001, 9100), (9002, 9101)] {
        lab.pve.human_clones_vm(source, raw, "k8s-raw").unwrap();
        lab.pve.human_sets(raw, "template", Some("1")).unwrap();
    }
    wide(&lab, "web", "workers", 2);
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "web"), made(&lab)), (2, 2));
    assert_eq!(told(&lab, "FailedToScaleUpGroup"), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn r12_a_launch_that_fails_for_good_rests_in_the_cold_start_too() {
    let setting = Setting::new(1, 2);
    let mut acl = setting.topology.acl.clone();
    for entry in &mut acl {
        entry.privileges.retain(|privilege| privilege != "VM.Clone");
    }
    let lab = furnished(setting, json!({}), lively());
    lab.pve.set_acl(acl);
    wide(&lab, "web", "workers", 1);
    run(&lab, Duration::from_secs(60)).await;
    let tries: usize = asked(&lab, "POST", "/clone").values().sum();
    // Two servers, at 0 s and at 30 s.
    assert!((1..=4).contains(&tries), "{tries} clones in the cold start");
}

#[tokio::test(start_paused = true)]
async fn a_template_that_changed_since_the_last_look_costs_one_launch() {
    let lab = furnished(Setting::new(1, 1), json!({}), lively());
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        // Between two looks, whatever second that is.
        for second in 0..10 {
            sleep(Duration::from_secs(30 + second)).await;
            let cores = (second + 2).to_string();
            lab.pve.human_sets(9001, "cores", Some(&cores)).unwrap();
            wide(&lab, &format!("web-{second}"), "workers", 1);
            sleep(MACHINE).await;
            assert_eq!(running(&lab, &format!("web-{second}")), 1);
            let failed = told(&lab, "FailedToScaleUpGroup").len() as u64;
            assert!(failed <= second + 1, "{failed} after {second} changes");
            scale(&lab, &format!("web-{second}"), 0);
            sleep(HOUR).await;
        }
        assert!(told(&lab, "FailedToScaleUpGroup").len() > 1);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// Pods that are gone before a clone was asked for: somebody makes and deletes them in a loop, or an HPA flaps. One clone at a time keeps each storage busy.
#[tokio::test(start_paused = true)]
async fn s3_pods_that_come_and_go_use_up_no_numbers() {
    let class =
        json!({ "template": { "name": "k8s-node", "placement": "local", "clone": "full" } });
    let lab = furnished(Setting::new(1, 3), class, lively());
    let few = json!({ "spec": {
        "vmidRange": { "first": 500, "last": 505 },
        "concurrency": { "perStorage": 1, "perHypervisor": 1 },
    } });
    lab.kube
        .patch("proxmoxclusters.kproxide.dev", "", "", "home", few)
        .unwrap();
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        // After the cold start, so that claims may be given up.
        sleep(MACHINE).await;
        wide(&lab, "gone", "workers", 5);
        sleep(Duration::from_secs(4)).await;
        let claims = lab.kube.list("nodeclaims.kproxide.dev");
        let never = claims.iter().filter(|it| it["status"]["nonce"].is_null());
        assert_eq!((claims.len(), never.count()), (5, 2));
        scale(&lab, "gone", 0);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 3);
        wide(&lab, "web", "workers", 5);
        sleep(2 * MACHINE).await;
        assert_eq!(running(&lab, "web"), 5);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// A removal with warnings has left the cloud-init volumes of the first two numbers. On each kind of storage Proxmox's tools say so in other words.
#[tokio::test(start_paused = true)]
async fn n4_a_number_with_a_cloud_init_volume_rests_and_the_next_machine_has_another() {
    let lab = furnished(Setting::new(1, 1), json!({}), lively());
    let storage = |lab: &Lab| {
        let template = lab.pve.snapshot().vms.into_iter().find(|vm| vm.template);
        let config = template.unwrap().config;
        let drive = config
            .iter()
            .find(|(_, drive)| drive.contains("cloudinit"))
            .map(|(_, drive)| drive.to_owned());
        drive.unwrap().split(':').next().unwrap().to_owned()
    };
    let storage = storage(&lab);
    for vmid in [500, 501] {
        lab.pve.leave_cloudinit(vmid, &storage, "pve1");
    }
    wide(&lab, "web", "workers", 1);
    run(&lab, MACHINE).await;
    assert_eq!(running(&lab, "web"), 1);
    // One try for each of the two, and then the machine.
    assert_eq!(asked(&lab, "POST", "/clone").values().sum::<usize>(), 3);
    let notes = told(&lab, "FailedToScaleUpGroup");
    for vmid in [500, 501] {
        let text = format!("vm-{vmid}-cloudinit");
        let notes = notes_with(&notes, &text);
        assert_eq!(notes.len(), 1, "{notes:?}");
        let line = format!("`pvesm free {storage}:{text}`");
        assert!(notes[0].contains(&line), "{notes:?}");
    }
    let ledger = lab.kube.get("ledgers.kproxide.dev", "", "kproxide");
    let ledger = ledger.unwrap();
    assert_eq!(ledger["spec"]["backoff"], serde_json::Value::Null);
    let entries = ledger["spec"]["entries"].as_array().unwrap();
    let resting = entries.iter().filter(|it| it["state"] == "quarantined");
    let resting: Vec<_> = resting.map(|it| it["vmid"].as_u64().unwrap()).collect();
    assert_eq!(resting, [500, 501]);
}

/// Machines that join by a script, in this world.
async fn joining(setting: Setting, time: Duration, prepare: impl FnOnce(&Lab)) -> Lab {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("debian"), "join\n").unwrap();
    let mut setting = setting;
    setting.guests.join = Join::OnExec;
    let class = json!({ "join": { "guestExec": { "commandSecretFile": "debian" } } });
    let lab = furnished(setting, class, lively());
    prepare(&lab);
    wide(&lab, "web", "workers", 1);
    let config = Config {
        join_dir: secret.path().to_owned(),
        ..config("kproxide-0")
    };
    run_with(&lab, config, time).await;
    lab
}

#[tokio::test(start_paused = true)]
async fn r26_a_refused_guest_agent_call_ends_the_launch_with_its_text() {
    const AGENT: &str = "VM.GuestAgent.Unrestricted";
    let setting = Setting::new(1, 2);
    let mut acl = setting.topology.acl.clone();
    for entry in &mut acl {
        entry.privileges.retain(|privilege| privilege != AGENT);
    }
    let lab = joining(setting, Duration::from_secs(3 * 60), |lab| {
        lab.pve.set_acl(acl)
    })
    .await;
    let notes = told(&lab, "FailedToScaleUpGroup");
    let refused = notes_with(&notes, AGENT);
    assert!(
        !refused.is_empty() && refused.len() == notes.len(),
        "{notes:?}"
    );
    assert!(
        refused
            .iter()
            .all(|note| note.contains("pveum acl modify /pool/k8s")),
        "{notes:?}"
    );

    let why = "Command guest-exec has been disabled";
    let lab = joining(Setting::new(1, 2), Duration::from_secs(3 * 60), |lab| {
        lab.pve.set_agents_refuse(Some(why));
    });
    let lab = lab.await;
    let notes = told(&lab, "FailedToScaleUpGroup");
    assert!(!notes_with(&notes, why).is_empty(), "{notes:?}");

    // What may pass is asked for until the deadline.
    let why = "Guest agent command failed, error was 'child process has failed to set user id'";
    let lab = joining(Setting::new(1, 2), Duration::from_secs(2 * 60), |lab| {
        lab.pve.set_agents_refuse(Some(why));
    });
    let lab = lab.await;
    assert_eq!(told(&lab, "FailedToScaleUpGroup"), [] as [String; 0]);
    let lab = joining(Setting::new(1, 2), 2 * MACHINE, |lab| {
        lab.pve.set_agents_refuse(Some(why));
    });
    let lab = lab.await;
    let notes = told(&lab, "FailedToScaleUpGroup");
    assert!(!notes_with(&notes, why).is_empty(), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn p2_a_vm_that_cannot_start_is_started_a_handful_of_times_ever_more_slowly() {
    let why = "start failed: qmp command 'query-version' failed - client closed connection";
    for (text, most) in [(&why["start failed: ".len()..], 5), (why, 1)] {
        let lab = furnished(Setting::new(1, 2), json!({}), lively());
        lab.pve.set_starts_fail(Some(text));
        wide(&lab, "web", "workers", 1);
        wide(&lab, "more", "workers", 1);
        run(&lab, MACHINE).await;
        let starts = asked(&lab, "POST", "/status/start");
        assert!(
            starts.values().all(|count| *count <= most) && starts.len() >= 2,
            "{starts:?}"
        );
        let notes = told(&lab, "FailedToScaleUpGroup");
        assert!(!notes.is_empty(), "no launch has ended");
        assert_eq!(notes_with(&notes, text).len(), notes.len(), "{notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn p4_credentials_that_may_not_see_the_machines_are_told_and_nothing_counts_as_gone() {
    let setting = Setting::new(1, 2);
    let granted = setting.topology.acl.clone();
    let mut blind = granted.clone();
    for entry in blind.iter_mut().filter(|entry| entry.path == "/pool/k8s") {
        entry.privileges.retain(|privilege| privilege != "VM.Audit");
    }
    let lab = furnished(setting, json!({}), lively());
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let story = async {
        wide(&lab, "web", "workers", 2);
        sleep(MACHINE).await;
        assert_eq!(running(&lab, "web"), 2);

        lab.pve.set_acl(blind);
        sleep(MACHINE).await;
        let home = lab.kube.get("proxmoxclusters.kproxide.dev", "", "home");
        let ready = condition(&home.unwrap(), "Ready");
        let message = ready["message"].as_str().unwrap();
        assert!(
            message.contains("VM.Audit") && message.contains("pveum acl modify /pool/k8s"),
            "{message}"
        );
        for event in lab.kube.list("events.events.k8s.io") {
            let note = event["note"].as_str().unwrap_or_default();
            assert!(
                event["reason"] != "Frozen" && !note.contains("remove the VM"),
                "{event}"
            );
        }
        assert_eq!((claims(&lab).len(), made(&lab)), (2, 2));

        lab.pve.set_acl(granted);
        sleep(MACHINE).await;
        let home = lab.kube.get("proxmoxclusters.kproxide.dev", "", "home");
        assert_eq!(condition(&home.unwrap(), "Ready")["status"], "True");
        scale(&lab, "web", 0);
        sleep(HOUR).await;
        assert!(claims(&lab).is_empty());
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn p5_a_refusal_that_is_the_same_everywhere_rests_the_class_and_not_one_server() {
    let mut setting = Setting::new(1, 3);
    setting.topology.registered_tags = vec!["owned".to_owned()];
    let lab = furnished(setting, json!({ "tags": ["owned"] }), lively());
    wide(&lab, "web", "workers", 1);
    let mut setting = Setting::new(1, 3);
    for entry in &mut setting.topology.acl {
        entry
            .privileges
            .retain(|privilege| privilege != "VM.Config.CPU");
    }
    let other = furnished(setting, json!({}), lively());
    wide(&other, "web", "workers", 1);
    for (lab, text) in [(lab, "tag owned is reserved"), (other, "VM.Config.CPU")] {
        run(&lab, Duration::from_secs(3 * 60)).await;
        // After 30 s, 60 s and 120 s.
        assert!((1..=4).contains(&made(&lab)), "{} machines", made(&lab));
        let notes = told(&lab, "FailedToScaleUpGroup");
        assert_eq!(notes_with(&notes, text).len(), notes.len(), "{notes:?}");
        assert!(!notes.is_empty());
    }
}
