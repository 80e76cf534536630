//! What the program takes of memory: the release binary (as a test the one of the end-to-end cases), while it lists and watches 1000 Nodes, 30,000 pods of 6 KiB each,
//! managed fields and all, and 10,000 PersistentVolumeClaims with their volumes.
//!
//! ```text
//! simulated API server ──HTTPS──▶ kproxide run ──HTTPS──▶ simulated Proxmox VE
//!                                      └── /proc/PID/status: VmHWM, VmRSS
//! ```
//!
//! It fails if the peak is not under [`SHIPPED_MB`], or as a test [`TESTED_MB`], after the lists and after the first policy was compiled, or if the program does not know all of them.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its figures and panics where a set-up fails"
)]

#[path = "../../../tests/e2e/binary.rs"]
mod binary;
mod host;
mod load;

use std::fs;
use std::path::Path;

use kproxide_kube::crd;
use kproxide_simulator::clock::Clock;
use kproxide_simulator::kube::{Kube, fixtures};
use kproxide_simulator::pve::{Pve, Topology};
use kproxide_simulator::wire::{Options, Wire, whole};
use kproxide_testkit::{is_bench, is_shipped};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use host::Host;

/// Decimal megabytes of what is shipped. It takes 84 to 87 of them: 35 are pages of its file, and each claim takes 1.3 kB.
const SHIPPED_MB: u64 = 95;
/// As the tests build it: it takes 123, and the file is larger.
const TESTED_MB: u64 = 132;
/// The folder of the token, as the ProxmoxCluster names it.
const CREDENTIALS: &str = "lab";

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let binary = binary::kproxide();
    Runtime::new().unwrap().block_on(measure(&binary));
}

async fn measure(binary: &Path) {
    let clock = Clock::starting_at(now());
    let kube = Kube::new(clock, 1);
    for crd in crd::crds() {
        let object = serde_json::to_value(crd).unwrap();
        kube.create("customresourcedefinitions.apiextensions.k8s.io", object)
            .unwrap();
    }
    kube.create("namespaces", fixtures::namespace("kproxide"))
        .unwrap();
    let pods = load::fill(&kube);
    let pve = Pve::new(Topology::of(3), clock, 1);
    let pve_wire = serve(whole(pve.service_with_control())).await;
    for (resource, object) in objects(&pve_wire) {
        kube.create(resource, object).unwrap();
    }
    let kube_wire = serve(kube.as_user("kubernetes-admin").whole_requests()).await;
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, credentials) = write_files(folder.path(), &kube_wire);

    println!("{}", binary.display());
    println!(
        "{} Nodes, {} pods of {} bytes, {} PersistentVolumeClaims",
        load::NODES,
        load::PODS,
        pods / load::PODS,
        load::CLAIMS
    );
    let mut host = Host::start(binary, folder.path(), &kubeconfig, &credentials);
    host.ready().await;
    host.until("kproxide_ticks_total", 3.0).await;
    let listed = host.memory();
    println!("after the first lists:       {listed}");

    // No machine can hold it, but which labels a machine would have is asked first: a policy is compiled.
    load::refuse_one(&kube);
    host.until("kproxide_policy_calls_total", 1.0).await;
    let asked = host.memory();
    println!("after the first policy call: {asked}");

    // Only now: to tell its whole world takes memory too.
    let world = &host.debug_plan().await["world"];
    let known = |what: &str| world[what].as_object().map_or(0, |objects| objects.len());
    // The one that was refused came last.
    assert_eq!(
        (known("nodes"), known("pods"), known("volume_claims")),
        (load::NODES, load::PODS + 1, load::CLAIMS)
    );
    let bound = if is_bench() || is_shipped() {
        SHIPPED_MB
    } else {
        TESTED_MB
    };
    assert!(
        asked.peak_mb() < bound,
        "the peak of {} MB is not under {bound} MB",
        asked.peak_mb()
    );
}

async fn serve<S, B>(service: S) -> Wire
where
    S: tower::Service<http::Request<bytes::Bytes>, Response = http::Response<B>>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Wire::serve(service, Options::default()).await.unwrap()
}

/// One cluster, one class, one pool: the program has its whole work to do.
fn objects(pve: &Wire) -> [(&'static str, Value); 3] {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    let cluster = json!({
        "endpoints": [pve.url()],
        "tls": { "fingerprints": [pve.fingerprint()] },
        "credentials": CREDENTIALS,
        "pool": "k8s",
        "vmidRange": { "first": 500, "last": 599 },
    });
    let class = json!({
        "template": { "name": "k8s-node", "placement": "local" },
        "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
        "cloudInit": { "dhcp": true },
        "join": { "template": {} },
    });
    let pool = json!({
        "nodeClass": "standard",
        "clusters": ["lab"],
        "limits": { "maxNodes": 10 },
        "labelTemplates": { "topology.kubernetes.io/zone": "{{ .TargetHost }}" },
    });
    [
        (
            "proxmoxclusters.kproxide.dev",
            object("ProxmoxCluster", "lab", cluster),
        ),
        (
            "nodeclasses.kproxide.dev",
            object("NodeClass", "standard", class),
        ),
        (
            "nodepools.kproxide.dev",
            object("NodePool", "workers", pool),
        ),
    ]
}

/// The kubeconfig's path, and the folder of all credentials.
fn write_files(folder: &Path, kube: &Wire) -> (std::path::PathBuf, std::path::PathBuf) {
    let credentials = folder.join("credentials");
    let token = credentials.join(CREDENTIALS);
    fs::create_dir_all(&token).unwrap();
    fs::write(token.join("token-id"), "kproxide@pve!ci").unwrap();
    fs::write(token.join("token-secret"), "secret").unwrap();
    let authority = folder.join("ca.pem");
    fs::write(&authority, kube.ca_pem()).unwrap();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "simulated", "cluster": { "server": kube.url(), "certificate-authority": authority } }],
        "users": [{ "name": "anybody", "user": { "token": "anybody" } }],
        "contexts": [{ "name": "simulated", "context": { "cluster": "simulated", "user": "anybody" } }],
        "current-context": "simulated",
    });
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, config.to_string()).unwrap();
    (kubeconfig, credentials)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the program under measurement lives in real time"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
