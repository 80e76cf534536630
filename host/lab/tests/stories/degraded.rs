//! One part fails for hours, and the rest goes on: a budget, a hypervisor, a whole Proxmox cluster. What is held up is told on its object.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::{HeaderValue, Method, Response, header};
use jiff::SignedDuration;
use jiff::fmt::rfc2822::DateTimePrinter;
use kproxide_simulator::clock::Clock as WorldClock;
use kproxide_simulator::faults::{Broken, Dialect, Fault, Faults};
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::physics::{Guests, Join, Physics};
use kproxide_simulator::pve::{Pve, Topology, VmView};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::run;
use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client;
use kproxide_lab::{EPOCH, Lab, Setting, config, wide};
use kproxide_lab::{MACHINE, furnished};
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::{Endpoint, TransportError};

pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);

/// Nothing is kept ready, and what is not needed goes soon.
pub(super) fn lively() -> Value {
    json!({
        "limits": { "minNodes": 0, "maxNodes": 5 },
        "scaleDown": {
            "stabilization": "1m", "minNodeAge": "1m", "unneededTime": "30s", "loadHeadroom": 0.0, "budget": 2,
        },
    })
}

pub(super) fn scale(lab: &Lab, name: &str, replicas: u32) {
    let patch = json!({ "spec": { "replicas": replicas } });
    let patched = lab
        .kube
        .patch("deployments.apps", "", "default", name, patch);
    patched.unwrap();
}

/// How many pods of a Deployment run.
pub(super) fn running(lab: &Lab, name: &str) -> usize {
    let is_running = |pod: &&Value| {
        pod["metadata"]["labels"]["app"] == name && pod["status"]["phase"] == "Running"
    };
    lab.kube.list("pods").iter().filter(is_running).count()
}

/// The claims in service, by name.
pub(super) fn claims(lab: &Lab) -> Vec<Value> {
    let mut claims = lab.kube.list("nodeclaims.kproxide.dev");
    claims.retain(|claim| claim["status"]["phase"] == "Initialized");
    claims
}

pub(super) fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut found = conditions.into_iter().flatten();
    let found = found.find(|condition| condition["type"] == kind);
    found.cloned().unwrap_or_default()
}

/// The notes of the Events with this reason.
pub(super) fn told(lab: &Lab, reason: &str) -> Vec<String> {
    let events = lab.kube.list("events.events.k8s.io");
    let with_it = events.iter().filter(|event| event["reason"] == reason);
    with_it
        .map(|event| event["note"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn l10_l11_a_budget_that_never_yields_keeps_one_node_and_holds_up_nothing_else() {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    let budget = fixtures::disruption_budget("default", "stubborn", json!(1));
    lab.apply([("poddisruptionbudgets.policy", budget)]);
    // These may go anywhere, and only the pool's machines are there.
    for name in ["stubborn", "web"] {
        let deployment = fixtures::deployment("default", name, 1, "3", "1Gi");
        lab.apply([("deployments.apps", deployment)]);
    }
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "stubborn"), running(&lab, "web")), (1, 1));
    assert_eq!(claims(&lab).len(), 2);

    // Room for all of them elsewhere.
    let uuid = "a0000000-0000-4000-8000-000000000009";
    lab.kubelets
        .start_node(NodeSpec::new("large", uuid, 32_000, 65_536));
    scale(&lab, "web", 0);
    run(&lab, 2 * HOUR).await;
    let left = claims(&lab);
    let [kept] = &left[..] else {
        panic!("{} machines are left, not the one that is kept", left.len());
    };
    let unneeded = condition(kept, "Unneeded");
    assert_eq!(unneeded["status"], "False", "{unneeded}");
    assert_eq!(unneeded["reason"], "BlockedByPod", "{unneeded}");
    let message = unneeded["message"].as_str().unwrap();
    assert!(
        message.starts_with("pod default/stubborn-")
            && message.ends_with(" is protected by PodDisruptionBudget stubborn"),
        "{message}"
    );
    assert_eq!(
        told(&lab, "ScaleDownBlocked"),
        [format!("kproxide could remove its Node, but {message}")]
    );

    wide(&lab, "more", "workers", 2);
    run(&lab, MACHINE).await;
    assert_eq!((running(&lab, "stubborn"), running(&lab, "more")), (1, 2));

    // Its owner gives way: the Node goes.
    let patch = json!({ "spec": { "minAvailable": 0 } });
    lab.kube
        .patch(
            "poddisruptionbudgets.policy",
            "",
            "default",
            "stubborn",
            patch,
        )
        .unwrap();
    scale(&lab, "more", 0);
    run(&lab, HOUR).await;
    assert_eq!(claims(&lab), [] as [Value; 0]);
    assert_eq!(running(&lab, "stubborn"), 1);
}

#[tokio::test(start_paused = true)]
async fn l11_a_hypervisor_on_which_nothing_ever_starts_leaves_the_others_at_work() {
    let lab = furnished(Setting::new(1, 3), json!({}), lively());
    let faults = Faults::new(1);
    let starts = Matcher::new(Method::POST, "/nodes/pve1/qemu/*/status/start");
    faults.inject(starts, Fault::Fail, u32::MAX);
    let connect: Connect = {
        let (pve, faults) = (lab.pve.clone(), faults.clone());
        Arc::new(move |_, concurrency| {
            let service = faults.around(pve.service(), Dialect::Proxmox);
            let service = tower::ServiceExt::map_err(service, |broken: Broken| {
                TransportError::Broken(broken.into())
            });
            let endpoint = Endpoint::new("lab", service);
            let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            Ok(PveClient::new(vec![endpoint], credentials, concurrency))
        })
    };
    let kube = Client::from_service(lab.kube.as_user("kproxide-0").service());
    let (app, host) = lab
        .host_over("kproxide-0", config("kproxide-0"), kube, connect)
        .unwrap();
    let story = async {
        wide(&lab, "web", "workers", 1);
        // Each further pod asks for another machine, and so for the hypervisor again that holds none.
        for replicas in 2..=4 {
            sleep(HOUR).await;
            assert_eq!(running(&lab, "web"), replicas as usize - 1);
            scale(&lab, "web", replicas);
        }
        sleep(HOUR).await;
        assert_eq!(running(&lab, "web"), 4);
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();

    let machines = lab.pve.snapshot().vms;
    let on = |hypervisor: &str| {
        let is_machine = |vm: &&VmView| vm.vmid < 9_000 && vm.hypervisor == hypervisor;
        machines.iter().filter(is_machine).count()
    };
    assert_eq!(on("pve1"), 0, "what never started is gone");
    assert_eq!(on("pve2") + on("pve3"), 4);
    let failures = told(&lab, "FailedToScaleUpGroup");
    assert!(
        failures.iter().any(|note| note.contains("pve1")),
        "{failures:?}"
    );
    let tried = faults.happened().len();
    assert!(tried > 0, "it was never tried");
    // At most one launch an hour, each of five minutes with a try every few seconds.
    assert!(tried < 400, "{tried} tries in four hours");
}

#[tokio::test(start_paused = true)]
async fn l11_f35_a_cluster_without_quorum_for_hours_holds_up_nothing_of_another() {
    let lab = furnished(Setting::new(1, 2), json!({}), {
        let mut pool = lively();
        pool["clusters"] = json!(["home"]);
        pool
    });
    // A second Proxmox cluster, whose machines join the same Kubernetes.
    let away = Pve::new(
        Topology::of(2),
        WorldClock::starting_at(EPOCH.parse().unwrap()),
        2,
    );
    let mut world = JoinSet::new();
    let (_physics, joins) = Physics::new(away.clone(), lab.kubelets.clone(), Guests::default(), 2);
    world.spawn(joins);
    let cluster = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": { "name": "away" },
        "spec": { "endpoints": ["https://away:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "away",
            "pool": "k8s", "vmidRange": { "first": 500, "last": 599 } },
    });
    let mut pool = lively();
    pool["nodeClass"] = json!("debian");
    pool["clusters"] = json!(["away"]);
    let pool = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": "spare" }, "spec": pool,
    });
    lab.apply([
        ("proxmoxclusters.kproxide.dev", cluster),
        ("nodepools.kproxide.dev", pool),
    ]);
    let connect: Connect = {
        let (home, away) = (lab.pve.clone(), away.clone());
        Arc::new(move |connection, concurrency| {
            let pve = if connection.credentials == "away" {
                &away
            } else {
                &home
            };
            let endpoint = Endpoint::new("lab", pve.service());
            let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            Ok(PveClient::new(vec![endpoint], credentials, concurrency))
        })
    };
    let kube = Client::from_service(lab.kube.as_user("kproxide-0").service());
    let (app, host) = lab
        .host_over("kproxide-0", config("kproxide-0"), kube, connect)
        .unwrap();
    let story = async {
        wide(&lab, "here", "workers", 1);
        wide(&lab, "there", "spare", 1);
        sleep(MACHINE).await;
        assert_eq!((running(&lab, "here"), running(&lab, "there")), (1, 1));

        lab.pve.set_quorate(false);
        // What was seen before may be acted on for a moment.
        sleep(Duration::from_secs(60)).await;
        let asked = lab.pve.audit().len();
        scale(&lab, "here", 2);
        scale(&lab, "there", 3);
        sleep(3 * HOUR).await;
        scale(&lab, "here", 0);
        scale(&lab, "there", 2);
        sleep(3 * HOUR).await;
        assert_eq!(running(&lab, "there"), 2);
        let spare = |claim: &Value| claim["spec"]["pool"] == "spare";
        let of_spare = claims(&lab).into_iter().filter(spare).count();
        assert_eq!(of_spare, 2, "what is not needed goes there all the same");
        // Nothing was even asked for without quorum, though a machine was wanted, and then none.
        assert_eq!(lab.pve.audit_since(asked), []);
        let home = lab.kube.get("proxmoxclusters.kproxide.dev", "", "home");
        let ready = condition(&home.unwrap(), "Ready");
        assert_eq!(ready["reason"], "NoQuorum", "{ready}");

        lab.pve.set_quorate(true);
        sleep(HOUR).await;
        let of_home = claims(&lab).into_iter().filter(|claim| !spare(claim));
        assert_eq!(of_home.count(), 0, "nobody needs it any more");
        let home = lab.kube.get("proxmoxclusters.kproxide.dev", "", "home");
        assert_eq!(condition(&home.unwrap(), "Ready")["status"], "True");
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f100_machines_that_never_join_go_one_after_the_other_with_the_reason() {
    let mut setting = Setting::new(1, 2);
    // Nobody runs a command in them.
    setting.guests.join = Join::OnExec;
    let lab = furnished(setting, json!({}), lively());
    wide(&lab, "web", "workers", 1);
    run(&lab, 6 * HOUR).await;
    let snapshot = lab.pve.snapshot();
    let left = snapshot.vms.iter().filter(|vm| !vm.template).count();
    assert!(left <= 1, "{left} machines are left");
    let made = snapshot.births.iter().filter(|vm| vm.vmid < 9_000).count();
    // One after the other, each for its ten minutes.
    assert!((4..=34).contains(&made), "{made} machines in six hours");
    let failures = told(&lab, "FailedToScaleUpGroup");
    assert!(
        failures.iter().any(|note| note.contains("no Node joined")),
        "{failures:?}"
    );
}

/// A connection to an API server that says, as real ones do, what time it is there: so many seconds after the lab's.
fn dated(lab: &Lab, skew: &Arc<AtomicI64>) -> Client {
    let (clock, skew) = (lab.clock, skew.clone());
    let service = lab.kube.as_user("kproxide-0").service();
    type Asked = http::Request<kube::client::Body>;
    let dated = tower::ServiceExt::<Asked>::map_response(service, move |response| {
        let mut response: Response<_> = response;
        let skew = SignedDuration::from_secs(skew.load(Ordering::SeqCst));
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&(clock.now() + skew));
        let date = HeaderValue::from_str(&date.unwrap()).unwrap();
        response.headers_mut().insert(header::DATE, date);
        response
    });
    Client::from_service(dated)
}

#[tokio::test(start_paused = true)]
async fn f76_nothing_is_removed_while_our_clock_and_the_api_servers_disagree() {
    for day in [24, -24] {
        let lab = furnished(Setting::new(1, 2), json!({}), lively());
        let skew = Arc::new(AtomicI64::new(0));
        let (app, host) = lab
            .host_over(
                "kproxide-0",
                config("kproxide-0"),
                dated(&lab, &skew),
                lab.connect(),
            )
            .unwrap();
        let story = async {
            wide(&lab, "web", "workers", 1);
            sleep(MACHINE).await;
            assert_eq!(running(&lab, "web"), 1);

            skew.store(day * 3600, Ordering::SeqCst);
            sleep(Duration::from_secs(30)).await;
            scale(&lab, "web", 0);
            sleep(HOUR).await;
            assert_eq!(claims(&lab).len(), 1, "it is not needed, and stays");
            wide(&lab, "more", "workers", 2);
            sleep(MACHINE).await;
            assert_eq!(running(&lab, "more"), 2, "what is needed is made");

            skew.store(0, Ordering::SeqCst);
            scale(&lab, "more", 0);
            sleep(HOUR).await;
            assert_eq!(claims(&lab), [] as [Value; 0]);
            host.stop.cancel();
        };
        let ((), ended) = tokio::join!(story, app.run());
        ended.unwrap();
    }
}

/// The hypervisor is withdrawn while most of its machines wait for their turn to be cloned.
#[tokio::test(start_paused = true)]
async fn f48_what_waits_for_its_clone_on_a_withdrawn_hypervisor_is_made_elsewhere() {
    let mut pool = lively();
    pool["limits"] = json!({ "minNodes": 0, "maxNodes": 6 });
    let lab = furnished(Setting::new(1, 2), json!({}), pool);
    let one =
        json!({ "spec": { "concurrency": { "clonesPerStorage": 1, "clonesPerHypervisor": 1 } } });
    let cluster = "proxmoxclusters.kproxide.dev";
    lab.kube.patch(cluster, "", "", "home", one).unwrap();
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let on_first = || {
        let births = lab.pve.snapshot().births;
        births
            .iter()
            .filter(|vm| vm.vmid < 9_000 && vm.hypervisor == "pve1")
            .count()
    };
    let story = async {
        // Past the cold start.
        sleep(Duration::from_secs(2 * 60)).await;
        wide(&lab, "web", "workers", 6);
        while on_first() == 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let exclude = json!({ "spec": { "hypervisors": { "exclude": ["pve1"] } } });
        lab.kube.patch(cluster, "", "", "home", exclude).unwrap();
        // Until it is known, another one may have its turn.
        sleep(Duration::from_secs(5)).await;
        let begun = on_first();
        assert!(begun < 3, "three were planned there");
        sleep(2 * MACHINE).await;
        assert_eq!(running(&lab, "web"), 6);
        assert_eq!(on_first(), begun, "those that were cloned stay");
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
