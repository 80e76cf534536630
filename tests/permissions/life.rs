//! One life: a pod gets a machine, has to leave it again, and the machine goes. The next one goes with its NodePool. Each stage has a name and a deadline in virtual time.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kproxide_kube::client::Client;
use kproxide_lab::{Lab, Setting, config};
use kproxide_simulator::kube::{Collecting, fixtures};
use kproxide_simulator::kubelet::NodeSpec;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;

use crate::guard::{Guard, Seen};
use crate::rules::{Asked, Permission};

/// Of virtual time, for each stage: a launch takes two minutes, a drain and a removal less than ten.
const PATIENCE: Duration = Duration::from_secs(20 * 60);
const LOOK: Duration = Duration::from_secs(5);

/// What became of it.
pub(crate) struct Life {
    /// The first stage that was not reached, or how the program ended before.
    pub(crate) end: Result<(), String>,
    pub(crate) used: BTreeSet<Permission>,
    pub(crate) denied: BTreeSet<Asked>,
    pub(crate) log: String,
}

/// Lives it under these permissions.
pub(crate) async fn live(permissions: &BTreeSet<Permission>) -> Life {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("warn,kproxide=debug"))
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let quiet = tracing::subscriber::set_default(subscriber);
    let lab = world();
    let guard = Guard::before(lab.kube.as_user("kproxide-0").whole_requests(), permissions);
    let client = Client::from_service(Collecting(guard.clone()));
    let (app, _host) = lab
        .host_over("kproxide-0", config("kproxide-0"), client, lab.connect())
        .unwrap();
    let end = tokio::select! {
        biased;
        ended = app.run() => Err(match ended {
            Ok(()) => "the program ends".to_owned(),
            Err(error) => format!("the program ends: {error}"),
        }),
        end = story(&lab) => end,
    };
    drop(quiet);
    let Seen { used, denied } = guard.seen();
    Life {
        end,
        used,
        denied,
        log: log.text(),
    }
}

/// A control plane, a worker that is full, a pool without machines.
fn world() -> Lab {
    let lab = Lab::new(Setting::new(1, 2));
    let uuid = |number: u32| format!("a0000000-0000-4000-8000-{number:012}");
    lab.kubelets
        .start_node(NodeSpec::new("server-1", &uuid(1), 2000, 4096).control_plane());
    lab.kubelets
        .start_node(NodeSpec::new("agent-1", &uuid(2), 4000, 8192));
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    let cluster = json!({
        "endpoints": ["https://pve1:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "home",
        "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
    });
    let class = json!({
        "template": { "name": "k8s-node", "placement": "local" },
        "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
        "cloudInit": { "dhcp": true },
        "join": { "template": {} },
    });
    let pool = json!({
        "nodeClass": "debian", "limits": { "maxNodes": 3 },
        "scaleDown": { "stabilization": "1m", "minNodeAge": "1m", "unneededTime": "1m" },
    });
    lab.apply([
        (
            "proxmoxclusters.kproxide.dev",
            object("ProxmoxCluster", "home", cluster),
        ),
        (
            "nodeclasses.kproxide.dev",
            object("NodeClass", "debian", class),
        ),
        (
            "nodepools.kproxide.dev",
            object("NodePool", "workers", pool),
        ),
    ]);
    lab
}

async fn story(lab: &Lab) -> Result<(), String> {
    let deploy = |name: &str, replicas: u32, cpu: &str| {
        let deployment = fixtures::deployment("default", name, replicas, cpu, "512Mi");
        lab.kube.create("deployments.apps", deployment).unwrap();
    };
    deploy("full", 3, "1200m");
    until("the worker is full", || running(lab, "full") == 3).await?;
    deploy("giant", 1, "8");
    deploy("web", 1, "500m");
    until("a machine for the pod that does not fit", || {
        running(lab, "web") == 1
    })
    .await?;
    until("its claim initialized", || {
        let claims = lab.kube.list("nodeclaims.kproxide.dev");
        claims.len() == 1 && claims[0]["status"]["phase"] == "Initialized"
    })
    .await?;
    for resource in ["proxmoxclusters", "nodeclasses", "nodepools"] {
        until(&format!("conditions of {resource}"), || {
            let objects = lab.kube.list(&format!("{resource}.kproxide.dev"));
            objects[0]["status"]["conditions"].is_array()
        })
        .await?;
        until(&format!("a finalizer of {resource}"), || {
            in_use(lab, resource)
        })
        .await?;
    }
    let told = |so: &dyn Fn(&Value) -> bool| lab.kube.list("events.events.k8s.io").iter().any(so);
    until("an Event of the launch", || {
        told(&|event: &Value| event["reason"] == "TriggeredScaleUp")
    })
    .await?;
    until("a repeated Event counted on the first", || {
        told(&|event: &Value| {
            event["reason"] == "NotTriggerScaleUp" && event["series"]["count"].is_number()
        })
    })
    .await?;

    // Now there is room for the pod on the worker.
    let scaled = json!({ "spec": { "replicas": 0 } });
    lab.kube
        .patch("deployments.apps", "", "default", "full", scaled)
        .unwrap();
    until("the machine emptied by an eviction", || {
        let pods = lab.kube.list("pods");
        let mut web = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["app"] == "web");
        web.any(|pod| pod["spec"]["nodeName"] == "agent-1")
    })
    .await?;
    until("the machine destroyed", || {
        let vms = lab.pve.snapshot().vms;
        !vms.iter().any(|vm| (500..600).contains(&vm.vmid))
    })
    .await?;
    until("its Node deleted", || lab.kube.list("nodes").len() == 2).await?;
    let all_closed = || lab.kube.list("nodeclaims.kproxide.dev").is_empty();
    until("its claim closed", all_closed).await?;
    until("the finalizer taken off again", || {
        !in_use(lab, "nodepools")
    })
    .await?;

    deploy("large", 1, "3900m");
    until("a second machine", || running(lab, "large") == 1).await?;
    lab.kube
        .delete("nodepools.kproxide.dev", "", "workers")
        .unwrap();
    until("the second machine gone with its NodePool", || {
        let pools = lab.kube.list("nodepools.kproxide.dev");
        all_closed() && pools.is_empty()
    })
    .await
}

/// The only object of the resource carries kproxide's finalizer.
fn in_use(lab: &Lab, resource: &str) -> bool {
    let objects = lab.kube.list(&format!("{resource}.kproxide.dev"));
    objects[0]["metadata"]["finalizers"] == json!(["kproxide.dev/in-use"])
}

/// The pods of an app that run.
fn running(lab: &Lab, app: &str) -> usize {
    let pods = lab.kube.list("pods");
    let of_app = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["app"] == app);
    of_app
        .filter(|pod| pod["status"]["phase"] == "Running")
        .count()
}

async fn until(stage: &str, reached: impl Fn() -> bool) -> Result<(), String> {
    let waited = async {
        while !reached() {
            sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited)
        .await
        .map_err(|_| format!("not reached: {stage}"))
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The quotes of a quoted text are escaped.
        String::from_utf8_lossy(&bytes).replace("\\\"", "\"")
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
