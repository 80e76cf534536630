//! What makes machines without end elsewhere: two hours of each. Each cause that kproxide does not know, or learns too late, costs
//! a few machines, and the pods that use theirs get all of them.

use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::physics::Guests;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::conditions::while_told;
use super::degraded::{HOUR, running};
use super::run;
use kproxide_lab::furnished;
use kproxide_lab::{Lab, Setting, config};

/// Machines that were ever made.
fn made(lab: &Lab) -> usize {
    let births = lab.pve.snapshot().births;
    births.iter().filter(|vm| vm.vmid < 9_000).count()
}

/// Everything that is not needed goes within seconds.
fn hasty() -> Value {
    json!({
        "limits": { "minNodes": 0, "maxNodes": 10 },
        "drainTimeout": "60s",
        "scaleDown": {
            "stabilization": "2s", "minNodeAge": "2s", "unneededTime": "3s", "loadHeadroom": 0.0,
        },
    })
}

/// Machines of 2 cores and 4 GiB.
fn small() -> Value {
    json!({ "instanceTypes": [{ "name": "medium", "cores": 2, "memoryMiB": 4096 }] })
}

fn world(guests: Guests, class: Value) -> Lab {
    let setting = Setting {
        guests,
        ..Setting::new(1, 3)
    };
    furnished(setting, class, hasty())
}

fn deployment(lab: &Lab, name: &str, cpu: &str, memory: &str, change: impl FnOnce(&mut Value)) {
    let mut deployment = fixtures::deployment("default", name, 1, cpu, memory);
    change(&mut deployment["spec"]["template"]);
    lab.apply([("deployments.apps", deployment)]);
}

/// What Events say of pods that no machine helps.
fn told(lab: &Lab) -> Vec<String> {
    let events = lab.kube.list("events.events.k8s.io");
    let unhelped = events
        .iter()
        .filter(|event| event["reason"] == "NotTriggerScaleUp");
    unhelped
        .map(|event| event["note"].as_str().unwrap().to_owned())
        .collect()
}

/// The process is another one in the second hour: what was in vain is not only in memory.
/// `others`: machines that are used.
async fn two_hours(lab: &Lab, what: &str, others: usize) {
    run(lab, HOUR).await;
    let first = made(lab) - others;
    run(lab, HOUR).await;
    let made = made(lab) - others;
    assert!((1..=5).contains(&made), "{what}: {first}, then {made}");
    assert_eq!(running(lab, "web"), 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_refuses_for_a_reason_of_its_own_costs_five_machines() {
    let lab = world(Guests::default(), small());
    deployment(&lab, "web", "1", "1Gi", |template| {
        template["metadata"]["annotations"] = json!({ "scheduler.example/refused": "true" });
    });
    // Another workload of equal pods runs all the while.
    deployment(&lab, "api", "1", "1Gi", |_| {});
    two_hours(&lab, "refused", 1).await;
    assert_eq!(running(&lab, "api"), 1);
    let told = told(&lab);
    let has_step = |note: &&String| {
        note.contains("Deployment default/web did not use the last machine of type medium")
            && note.contains("kubectl annotate --overwrite nodepool workers kproxide.dev/retry=")
    };
    assert!(told.iter().any(|note| has_step(&note)), "{told:#?}");

    // A person's word is worth one machine, at once.
    let before = made(&lab);
    let retry = json!({ "metadata": { "annotations": { "kproxide.dev/retry": "1" } } });
    lab.kube
        .patch("nodepools.kproxide.dev", "", "", "workers", retry)
        .unwrap();
    run(&lab, Duration::from_secs(480)).await;
    assert_eq!(made(&lab), before + 1);
}

#[tokio::test(start_paused = true)]
async fn endless_nodes_that_offer_less_than_their_machines_cost_five_machines() {
    let less_memory =
        json!({ "overhead": { "memory": "100Mi" }, "instanceTypes": small()["instanceTypes"] });
    let lab = world(Guests::default(), less_memory);
    deployment(&lab, "web", "1", "3900Mi", |_| {});
    two_hours(&lab, "memory", 0).await;
    let less_cpu = Guests {
        reserved_cpu_milli: 200,
        ..Guests::default()
    };
    let lab = world(less_cpu, small());
    deployment(&lab, "web", "1900m", "128Mi", |_| {});
    two_hours(&lab, "cpu", 0).await;
}

#[tokio::test(start_paused = true)]
async fn endless_a_static_pod_on_every_node_costs_five_machines() {
    let container = json!({
        "name": "kube-proxy", "image": "x", "resources": { "requests": { "cpu": "250m", "memory": "128Mi" } },
    });
    let kube_proxy = json!({
        "metadata": { "name": "kube-proxy", "namespace": "kube-system" }, "spec": { "containers": [container] },
    });
    let guests = Guests {
        static_pods: vec![kube_proxy],
        ..Guests::default()
    };
    let lab = world(guests, small());
    deployment(&lab, "web", "1900m", "128Mi", |_| {});
    two_hours(&lab, "static pod", 0).await;
}

/// Its template asks for nothing. What its pods ask for is the namespace's to say, and shows on the first Node alone.
#[tokio::test(start_paused = true)]
async fn endless_a_daemon_set_that_a_limit_range_fills_costs_five_machines() {
    let lab = world(Guests::default(), small());
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "least", "namespace": "kube-system" },
        "spec": { "limits": [{ "type": "Container", "defaultRequest": { "cpu": "250m" } }] },
    });
    let mut agent = fixtures::daemonset("kube-system", "agent", "1", "1Gi");
    agent["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    lab.apply([("limitranges", range), ("daemonsets.apps", agent)]);
    deployment(&lab, "web", "1900m", "128Mi", |_| {});
    two_hours(&lab, "limit range", 0).await;
}

const GPU: &str = "nvidia.com/gpu";

/// Machines with a GPU, and a pod that asks for one.
fn with_gpu(setting: Setting) -> Lab {
    let class = json!({ "instanceTypes": [{
        "name": "gpu", "cores": 2, "memoryMiB": 4096, "extendedResources": { GPU: 1 },
    }] });
    let lab = furnished(setting, class, hasty());
    deployment(&lab, "web", "1", "1Gi", |template| {
        template["spec"]["containers"][0]["resources"]["limits"] = json!({ GPU: "1" });
        template["spec"]["containers"][0]["resources"]["requests"][GPU] = json!("1");
    });
    lab
}

/// All in one look at its claim, so that no plan has seen the Node.
#[tokio::test(start_paused = true)]
async fn r9_a_machine_that_joins_at_once_waits_for_its_devices_too() {
    let setting = Setting::new(1, 3);
    let lab = with_gpu(Setting {
        guests: Guests {
            extended_resources: [(GPU.to_owned(), "1".to_owned())].into(),
            devices_after: Duration::from_secs(60),
            ..Guests::instant()
        },
        topology: setting.topology.clone().instant(),
        ..setting
    });
    run(&lab, HOUR).await;
    assert_eq!((running(&lab, "web"), made(&lab)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn endless_a_device_that_never_shows_costs_five_machines() {
    let lab = with_gpu(Setting::new(1, 3));
    run(&lab, HOUR).await;
    run(&lab, HOUR).await;
    assert!((1..=5).contains(&made(&lab)), "{}", made(&lab));
}

/// An operator taints each Node as soon as it sees it, and takes the taint off for so many seconds after it was Ready: never, if `None`.
async fn operator(lab: &Lab, key: &str, lasts: Option<u64>) {
    let mut seen: Vec<(String, u64)> = Vec::new();
    for second in 0..7200 {
        sleep(Duration::from_secs(1)).await;
        for node in lab.kube.list("nodes") {
            let name = node["metadata"]["name"].as_str().unwrap().to_owned();
            let known = seen
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, at)| *at);
            let mut taints = node["spec"]["taints"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            match known {
                None => {
                    seen.push((name.clone(), second));
                    taints.push(json!({ "key": key, "effect": "NoSchedule" }));
                }
                Some(at) if lasts.is_some_and(|lasts| at + lasts == second) => {
                    taints.retain(|taint| taint["key"] != key);
                }
                Some(_) => continue,
            }
            let patch = json!({ "spec": { "taints": taints } });
            lab.kube.patch("nodes", "", "", &name, patch).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn endless_a_taint_that_comes_after_the_join_costs_five_machines() {
    for (key, lasts) in [
        ("node.cilium.io/agent-not-ready", Some(40)),
        ("example.com/theirs", None),
    ] {
        let lab = world(Guests::default(), small());
        deployment(&lab, "web", "1", "64Mi", |_| {});
        let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
        let story = async {
            operator(&lab, key, lasts).await;
            host.stop.cancel();
        };
        let ((), ended) = tokio::join!(story, app.run());
        ended.unwrap();
        let made = made(&lab);
        assert!((1..=5).contains(&made), "{key} {lasts:?}: {made}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_off_and_comes_back_ends_no_rest() {
    let lab = world(Guests::default(), small());
    deployment(&lab, "web", "1", "1Gi", |template| {
        template["metadata"]["annotations"] = json!({ "scheduler.example/refused": "true" });
    });
    while_told(&lab, config("kproxide-0"), async {
        let minute = Duration::from_secs(60);
        sleep(4 * minute).await;
        let before = made(&lab);
        assert!(before > 0);
        for is_online in [false, true] {
            lab.pve.set_hypervisor_online("pve3", is_online);
            sleep(minute).await;
            assert_eq!(made(&lab), before, "pve3 online: {is_online}");
        }
    })
    .await;
}
