//! A Kubernetes cluster and its copy, each with a kproxide of its own, over one Proxmox.

use std::time::Duration;

use http::Method;
use kproxide_simulator::holds::Phase;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::VmView;
use kproxide_simulator::pve::topology::VmSpec;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use kproxide_controller::config::Config;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

const HOUR: Duration = Duration::from_secs(60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "kproxide-anchor-599";
const LEASES: &str = "leases.coordination.k8s.io";

fn with_anchor(name: &str) -> Config {
    Config {
        anchor: true,
        ..config(name)
    }
}

async fn run(lab: &Lab, name: &str, time: Duration) {
    super::run_with(lab, with_anchor(name), time).await;
}

/// A pool that shrinks as soon as it may, with one Deployment that needs so many machines.
async fn original(machines: u32) -> Lab {
    let pool = json!({
        "limits": { "minNodes": 0, "maxNodes": 8 },
        "scaleDown": { "minNodeAge": "0s", "unneededTime": "60s", "stabilization": "60s", "budget": 4 },
    });
    let lab = furnished(Setting::new(1, 3), json!({}), pool);
    lab.apply([(
        "deployments.apps",
        fixtures::deployment("default", "web", machines, "2500m", "512Mi"),
    )]);
    run(&lab, "kproxide-0", 2 * MACHINE).await;
    assert_eq!(machines_of(&lab).len(), machines as usize);
    lab
}

fn scale(lab: &Lab, replicas: u32) {
    let patch = json!({ "spec": { "replicas": replicas } });
    lab.kube
        .patch("deployments.apps", "", "default", "web", patch)
        .unwrap();
}

fn vms(lab: &Lab) -> Vec<VmView> {
    let vms = lab.pve.snapshot().vms.into_iter();
    vms.filter(|vm| !vm.template).collect()
}

fn machines_of(lab: &Lab) -> Vec<u32> {
    let machines = vms(lab).into_iter().filter(|vm| !is_anchor(vm));
    machines.map(|vm| vm.vmid).collect()
}

fn is_anchor(vm: &VmView) -> bool {
    vm.name.starts_with("kproxide-anchor-")
}

fn anchors(lab: &Lab) -> Vec<VmView> {
    vms(lab).into_iter().filter(is_anchor).collect()
}

fn events(lab: &Lab, reason: &str) -> Vec<String> {
    let events = lab.kube.list("events.events.k8s.io").into_iter();
    events
        .filter(|event| event["reason"] == reason)
        .map(|event| event["note"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn ready(lab: &Lab) -> Value {
    let pool = lab.kube.get("nodepools.kproxide.dev", "", "workers");
    pool.unwrap()["status"]["conditions"][0].clone()
}

fn description(lab: &Lab) -> String {
    let [anchor] = &anchors(lab)[..] else {
        panic!("{:?}", anchors(lab));
    };
    anchor.config["description"].clone()
}

/// Both run; the original's story is told meanwhile.
async fn both(original: &Lab, copy: &Lab, story: impl Future<Output = ()>) {
    let (first, first_host) = original
        .host("kproxide-0", with_anchor("kproxide-0"))
        .unwrap();
    let (second, second_host) = copy
        .host("kproxide-copy", with_anchor("kproxide-copy"))
        .unwrap();
    let story = async {
        story.await;
        first_host.stop.cancel();
        second_host.stop.cancel();
    };
    let ((), first, second) = tokio::join!(story, first.run(), second.run());
    first.unwrap();
    second.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f113_a_copy_of_the_cluster_destroys_nothing_and_says_so_while_the_original_goes_on() {
    let original = original(3).await;
    assert_eq!(anchors(&original)[0].name, NAME);
    // The backup is half an hour old when it comes to life.
    let copy = original.restored_elsewhere(7);
    run(&original, "kproxide-0", HOUR / 2).await;
    let (before, asked) = (machines_of(&original), original.pve.audit().len());

    both(&original, &copy, async {
        sleep(HOUR).await;
        scale(&original, 1);
        sleep(HOUR).await;
        assert_eq!(machines_of(&original).len(), 1, "idle machines go");
        scale(&original, 4);
        sleep(HOUR).await;
        assert_eq!(machines_of(&original).len(), 4, "and others come");
    })
    .await;

    // Everything that was made and removed is the original's.
    let claims = original.kube.list("nodeclaims.kproxide.dev");
    let mut wanted: Vec<u64> = claims
        .iter()
        .map(|claim| claim["spec"]["vmid"].as_u64().unwrap())
        .collect();
    wanted.sort_unstable();
    let stand: Vec<u64> = machines_of(&original).into_iter().map(u64::from).collect();
    assert_eq!(stand, wanted);
    assert_eq!(events(&original, "AnchorForeign"), [] as [&str; 0]);
    assert_eq!(ready(&original)["status"], "True");

    // The copy saw three Nodes that nobody speaks for, and machines that it does not know.
    let told = events(&copy, "AnchorForeign");
    let note = told.last().expect("the copy says what it is");
    assert!(
        note.contains("kproxide launches, changes and removes nothing there"),
        "{note}"
    );
    assert_eq!(ready(&copy)["reason"], "AnchorForeign");
    let intact = copy.kube.list("nodeclaims.kproxide.dev");
    assert_eq!(intact.len(), before.len());
    for claim in intact {
        assert_eq!(claim["status"]["phase"], "Initialized");
        assert_eq!(claim["metadata"]["deletionTimestamp"], Value::Null);
    }
    assert_eq!(anchors(&original).len(), 1);
    assert!(original.pve.audit().len() > asked);
}

#[tokio::test(start_paused = true)]
async fn f113_f112_a_ledger_from_a_backup_waits_for_a_persons_word() {
    let lab = original(2).await;
    let backup = ledger(&lab);
    run(&lab, "kproxide-0", HOUR).await;
    let mut restored = ledger(&lab);
    restored["spec"] = backup["spec"].clone();
    lab.kube
        .update("ledgers.kproxide.dev", "", restored)
        .unwrap();
    scale(&lab, 0);
    run(&lab, "kproxide-1", 2 * HOUR).await;
    assert_eq!(machines_of(&lab).len(), 2);
    let note = events(&lab, "AnchorForeign").pop().unwrap();
    let (_, word) = note.rsplit_once("acknowledge-anchor=").unwrap();

    let meant =
        json!({ "metadata": { "annotations": { "kproxide.dev/acknowledge-anchor": word } } });
    lab.kube
        .patch("ledgers.kproxide.dev", "", "", "kproxide", meant)
        .unwrap();
    run(&lab, "kproxide-1", HOUR).await;
    assert_eq!(machines_of(&lab), [] as [u32; 0]);
    assert_eq!(ready(&lab)["status"], "True");
    assert_eq!(ledger(&lab)["metadata"]["annotations"], Value::Null);
}

fn ledger(lab: &Lab) -> Value {
    let ledger = lab.kube.get("ledgers.kproxide.dev", "", "kproxide");
    ledger.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_anchor_that_is_deleted_or_off_holds_up_nobody_who_was_there() {
    let lab = original(2).await;
    let (app, host) = lab.host("kproxide-1", with_anchor("kproxide-1")).unwrap();
    let story = async {
        // It moves on.
        sleep(HOUR / 2).await;
        let shown = description(&lab);
        sleep(HOUR / 2).await;
        assert_ne!(description(&lab), shown);
        lab.pve.human_destroys(599).unwrap();
        sleep(10 * MINUTE).await;
        assert!(description(&lab).contains("kproxide-anchor: v1"));
        // What people write beside it stays.
        let text = format!("mine\n{}", description(&lab));
        lab.pve.human_edits_description(599, &text).unwrap();
        sleep(10 * MINUTE).await;
        assert!(description(&lab).starts_with("mine\n"));
        assert_ne!(description(&lab), text);

        let hypervisor = anchors(&lab)[0].hypervisor.clone();
        lab.pve.set_hypervisor_online(&hypervisor, false);
        sleep(HOUR / 2).await;
        scale(&lab, 0);
        sleep(HOUR).await;
        let there = vms(&lab)
            .into_iter()
            .filter(|vm| vm.hypervisor != hypervisor);
        assert_eq!(there.count(), 0, "machines on other hypervisors go");
        lab.pve.set_hypervisor_online(&hypervisor, true);
        sleep(HOUR / 2).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    assert_eq!(events(&lab, "AnchorForeign"), [] as [&str; 0]);
    assert_eq!(events(&lab, "AnchorUnproven"), [] as [&str; 0]);

    // Away for an hour: it is watched first, and that is told.
    sleep(HOUR).await;
    run(&lab, "kproxide-2", 5 * MINUTE).await;
    assert_eq!(ready(&lab)["reason"], "AnchorUnproven");
    run(&lab, "kproxide-2", HOUR / 2).await;
    assert_eq!(ready(&lab)["status"], "True");
}

/// A version that knows no anchors led for a while, and wrote the Ledger without them: nobody has to do anything.
#[tokio::test(start_paused = true)]
async fn f113_a_ledger_without_its_anchor_is_watched_and_goes_on_by_itself() {
    let lab = original(2).await;
    let forgotten = json!({ "spec": { "anchors": null } });
    lab.kube
        .patch("ledgers.kproxide.dev", "", "", "kproxide", forgotten)
        .unwrap();
    scale(&lab, 3);
    run(&lab, "kproxide-1", MACHINE).await;
    assert_eq!(machines_of(&lab).len(), 3, "pods wait for them");
    assert_eq!(ready(&lab)["reason"], "AnchorUnproven");
    scale(&lab, 0);
    run(&lab, "kproxide-1", 2 * MACHINE).await;
    assert_eq!(machines_of(&lab), [] as [u32; 0]);
    assert_eq!(ready(&lab)["status"], "True");
    assert_eq!(anchors(&lab)[0].name, NAME);
    assert_eq!(events(&lab, "AnchorForeign"), [] as [&str; 0]);
}

/// A request out of many is not answered while it is watched.
#[tokio::test(start_paused = true)]
async fn f113_one_look_that_fails_does_not_begin_the_watch_anew() {
    let lab = original(1).await;
    sleep(HOUR).await;
    let (app, host) = lab.host("kproxide-1", with_anchor("kproxide-1")).unwrap();
    let story = async {
        sleep(6 * MINUTE).await;
        assert_eq!(ready(&lab)["reason"], "AnchorUnproven");
        let look = Matcher::new(Method::GET, "qemu/599/config");
        let hold = lab.pve.hold(look, Phase::Before);
        timeout(MINUTE, hold.caught()).await.unwrap();
        // Longer than anybody waits for it.
        sleep(MINUTE / 4).await;
        hold.release();
        sleep(8 * MINUTE).await;
        assert_eq!(ready(&lab)["status"], "True");
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// Its next mark is due while somebody deletes it.
#[tokio::test(start_paused = true)]
async fn p6_an_anchor_that_is_being_deleted_is_made_anew_and_told_to_nobody() {
    let lab = original(2).await;
    let (app, host) = lab.host("kproxide-1", with_anchor("kproxide-1")).unwrap();
    let story = async {
        for _ in 0..12 {
            // Each time at another moment between two looks.
            sleep(7 * MINUTE + Duration::from_millis(900)).await;
            lab.pve.human_destroys(599).unwrap();
        }
        sleep(20 * MINUTE).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    assert_eq!(events(&lab, "AnchorRefused"), [] as [&str; 0]);
    assert_eq!(anchors(&lab).len(), 1);
}

/// What a backup that was cut off leaves behind.
#[tokio::test(start_paused = true)]
async fn f113_an_anchor_that_is_locked_is_told_on_the_pool() {
    let lab = original(1).await;
    let (app, host) = lab.host("kproxide-1", with_anchor("kproxide-1")).unwrap();
    let story = async {
        sleep(HOUR / 2).await;
        lab.pve.human_sets(599, "lock", Some("backup")).unwrap();
        sleep(HOUR / 2).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    let note = events(&lab, "AnchorStuck").pop().unwrap();
    assert!(note.contains("qm unlock 599"), "{note}");
    assert_eq!(ready(&lab)["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn an_anchor_that_proxmox_refuses_is_told_on_the_pool() {
    let mut setting = Setting::new(1, 2);
    let whole = setting.topology.acl.clone();
    for grant in &mut setting.topology.acl {
        let privileges = &mut grant.privileges;
        privileges.retain(|privilege| privilege != "VM.Allocate");
    }
    let lab = furnished(setting, json!({}), json!({}));
    run(&lab, "kproxide-0", 5 * MINUTE).await;
    let note = events(&lab, "AnchorRefused").pop().unwrap();
    assert!(note.contains("VM.Allocate"), "{note}");
    let note = events(&lab, "AnchorMissing").pop().unwrap();
    assert!(
        note.contains("kproxide would not notice a copy of this cluster"),
        "{note}"
    );
    assert!(anchors(&lab).is_empty());

    lab.pve.set_acl(whole);
    run(&lab, "kproxide-1", 2 * MACHINE).await;
    assert_eq!(anchors(&lab).len(), 1);
}

/// Others have moved the anchor on since its first term, and there are more guests in the pool than are looked at in one tick.
#[tokio::test(start_paused = true)]
async fn a_leader_that_returns_does_not_believe_what_it_saw_before() {
    let mut setting = Setting::new(1, 2);
    setting.topology.vms.extend((501..561).map(|vmid| VmSpec {
        pool: Some("k8s".to_owned()),
        ..VmSpec::machine(vmid, "other", "pve1", "local-lvm", 1 << 30)
    }));
    let lab = furnished(setting, json!({}), json!({}));
    let (first, first_host) = lab.host("kproxide-0", with_anchor("kproxide-0")).unwrap();
    let (second, second_host) = lab.host("kproxide-1", with_anchor("kproxide-1")).unwrap();
    let holder = || {
        let lease = lab.kube.get(LEASES, "kube-system", "kproxide");
        lease.unwrap()["spec"]["holderIdentity"].clone()
    };
    let story = async {
        sleep(HOUR / 2).await;
        let (one, shown) = (holder(), description(&lab));
        // Somebody takes the Lease and does not renew it, until the other one has it.
        for _ in 0..20 {
            let taken = json!({ "spec": { "holderIdentity": "nobody" } });
            lab.kube
                .patch(LEASES, "", "kube-system", "kproxide", taken)
                .unwrap();
            sleep(MINUTE).await;
            if holder() != one {
                break;
            }
        }
        sleep(HOUR / 2).await;
        assert_ne!(holder(), one);
        assert_ne!(description(&lab), shown);
        second_host.stop.cancel();
        sleep(HOUR / 2).await;
        assert_eq!(holder(), one);
        first_host.stop.cancel();
    };
    let second = async {
        sleep(MINUTE).await;
        second.run().await
    };
    let ((), first, second) = tokio::join!(story, first.run(), second);
    first.unwrap();
    second.unwrap();
    assert_eq!(events(&lab, "AnchorForeign"), [] as [&str; 0]);
    assert_eq!(events(&lab, "AnchorUnproven"), [] as [&str; 0]);
}
