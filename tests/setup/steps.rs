//! The five steps of the README, from nothing to a pod that runs on a machine: on a real control plane, with the program
//! of the end-to-end cases, real Helm and the packaged chart, against a simulated Proxmox.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::Pace;
use kproxide_simulator::physics::{Guests, Join};
use kproxide_simulator::pve::topology::Version;
use kproxide_simulator::remote;
use kproxide_simulator::serve::{Cluster, Served};
use kproxide_testkit::controlplane::condition;
use kproxide_testkit::{
    ControlPlane, Options, PodLauncher, eventually, free_port, kproxide_binary,
    require_controlplane,
};
use serde_json::json;
use tokio::time::Instant;

use crate::bare;
use crate::init::{init, owned};
use crate::life::{SOON, setting};
use crate::repository;
use crate::world::World;

const NAMESPACE: &str = "kproxide";
const BOOTSTRAP: (&str, &str) = ("abc123", "0123456789abcdef");

/// What a step took, for whoever reads the test's output.
struct Clock {
    begun: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Clock {
    fn start() -> Clock {
        Clock {
            begun: Instant::now(),
            steps: Vec::new(),
        }
    }

    fn done(&mut self, step: &'static str) {
        let before: Duration = self.steps.iter().map(|(_, took)| *took).sum();
        self.steps.push((step, self.begun.elapsed() - before));
    }

    /// Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    fn print(&self) {
        let mut report = std::io::stderr().lock();
        writeln!(report, "from nothing to the first machine:").unwrap();
        for (number, (step, took)) in (1..).zip(&self.steps) {
            writeln!(report, "  {number}. {step}: {:.1} s", took.as_secs_f64()).unwrap();
        }
        let total = self.begun.elapsed().as_secs_f64();
        writeln!(report, "  in all: {total:.1} s").unwrap();
    }
}

/// The commands of the page that `init` has written, as words.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut blocks = page.split("```sh\n").skip(1);
    let lines = blocks.by_ref().filter_map(|block| block.lines().next());
    lines
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect()
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// A machine can join with it.
async fn bootstrap_token(control: &ControlPlane) -> String {
    let (id, secret) = BOOTSTRAP;
    let object = json!({
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id, "token-secret": secret,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        },
    });
    let path = "/api/v1/namespaces/kube-system/secrets";
    control.api().create(path, &object).await.unwrap();
    format!("{id}.{secret}")
}

#[tokio::test(flavor = "multi_thread")]
async fn five_steps_lead_from_nothing_to_a_pod_that_runs_on_a_machine() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    // For the clients of the control plane; another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let binary = binary();
    let control = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();
    let topology = bare(Version::V9);
    let kubeconfig = control.admin_kubeconfig_path().to_owned();
    let served = Served::start(kproxide_simulator::serve::Setting {
        guests: Guests {
            join: Join::OnExec,
            taints: vec![json!({"key": "kproxide.dev/unregistered", "effect": "NoExecute"})],
            reserved_memory_mib: 512,
            ..Guests::instant()
        },
        pace: Pace {
            // A share of the control plane's patience, however busy the computer is.
            lease_interval: Duration::from_secs(3),
            ..Pace::INSTANT
        },
        cluster: Cluster::Real(remote::connect(&kubeconfig).unwrap()),
        ..setting(topology.clone())
    })
    .await
    .unwrap();
    let token = bootstrap_token(&control).await;
    let mut clock = Clock::start();

    // The image stands for what `cargo image` makes: it is the program that the pod runs.
    let world = World::prepare(served, &topology, &[]).await;
    clock.done("setup.sh on a Proxmox server");

    let out = world.path("out");
    let api = control.url().strip_prefix("https://").unwrap().to_owned();
    let more = owned(&[
        "--kubeconfig",
        &kubeconfig.display().to_string(),
        "--join=kubeadm",
        "--join-server",
        &api,
        "--join-token-file=-",
        "--out",
        &out.display().to_string(),
    ]);
    let told = init(&[world.flags(None), more].concat(), &token).await;
    assert_eq!(told.code, 0, "{}", told.all());
    assert!(
        told.out.contains(", warnings 0, errors 0\n"),
        "{}",
        told.all()
    );
    clock.done("kproxide init --non-interactive");

    let page = fs::read_to_string(out.join("README.md")).unwrap();
    let commands = commands(&page);
    let [apply, install, doctor, scale] = &commands[..] else {
        panic!("{commands:?}");
    };
    assert_eq!((&*apply[0], &*install[0]), ("kubectl", "helm"));
    control.kubectl(&words(&apply[1..])).await.unwrap();
    clock.done("kubectl apply");

    let chart = package(&control, &world).await;
    let mut install = words(&install[1..]);
    let at = install.iter().position(|word| *word == "charts/kproxide");
    install[at.unwrap()] = &chart;
    // All pods of the tests are on one computer.
    let port = format!("--set=admin.port={}", free_port().unwrap());
    install.push(&port);
    let launcher = PodLauncher::new(&control, &binary);
    let job = async {
        let selector = "app.kubernetes.io/name=kproxide-crds";
        let mut pod = launcher.launch(NAMESPACE, selector).await.unwrap();
        pod.finish(SOON).await.unwrap();
    };
    let (installed, ()) = tokio::join!(control.helm(&install), job);
    installed.unwrap();
    let selector = "app.kubernetes.io/name=kproxide";
    let mut pod = launcher.launch(NAMESPACE, selector).await.unwrap();
    pod.ready(SOON).await.unwrap();
    clock.done("helm install of the packaged chart");

    let deployment = fixtures::deployment("default", "web", 1, "1", "1Gi");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    control
        .api()
        .create(deployments, &deployment)
        .await
        .unwrap();
    let node = eventually(SOON, "the pod running on a machine", async || {
        let pods = "/api/v1/namespaces/default/pods";
        let pods = control.api().list(pods).await.unwrap();
        let mut running = pods
            .iter()
            .filter(|it| condition(it, "Ready") == Some("True"));
        let node = running.find_map(|it| it["spec"]["nodeName"].as_str());
        node.map(str::to_owned).ok_or_else(|| {
            let vms = world.served.pve.snapshot().vms;
            let vms: Vec<String> = vms.into_iter().map(|vm| vm.name).collect();
            format!("{vms:?}\n{}", pod.log_tail(40))
        })
    })
    .await;
    clock.done("a Deployment that needs a machine, until its pod runs");
    clock.print();
    let vms = world.served.pve.snapshot().vms;
    let machine = vms.iter().find(|vm| vm.name == node).unwrap();
    assert!(machine.running && (20_000..21_000).contains(&machine.vmid));

    // The commands that are left: one says that all is well, the other asks for a second machine.
    assert_eq!((&*doctor[0], &*scale[0]), ("kproxide", "kubectl"));
    let ended = crate::life::kproxide(&words(&doctor[1..]))
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(said.contains(", errors 0\n"), "{said}");
    let scale: Vec<&str> = words(&scale[1..]);
    assert!(scale.contains(&"--replicas=1"), "{scale:?}");
    control.kubectl(&scale).await.unwrap();
    let pool = control
        .api()
        .get("/apis/kproxide.dev/v1alpha1/nodepools/default");
    assert_eq!(pool.await.unwrap()["spec"]["limits"]["minNodes"], json!(1));
    let status = pod.remove().await.unwrap();
    assert!(status.success(), "{status}");
}

/// The chart as a release has it.
async fn package(control: &ControlPlane, world: &World) -> String {
    let chart = repository("charts/kproxide").display().to_string();
    let folder = world.path("chart").display().to_string();
    let package = ["package", &chart, "--destination", &folder];
    control.helm(&package).await.unwrap();
    let packed = fs::read_dir(world.path("chart")).unwrap();
    let packed: Vec<_> = packed.map(|it| it.unwrap().path()).collect();
    let [file] = &packed[..] else {
        panic!("{packed:?}");
    };
    file.display().to_string()
}

/// As the end-to-end cases run it.
fn binary() -> std::path::PathBuf {
    // <target>/<profile>/kproxide
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_kproxide"));
    kproxide_binary(program.ancestors().nth(2).unwrap())
}
