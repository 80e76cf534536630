//! One case's world: simulated hypervisors, kproxide installed and running, and the questions that cases ask.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::{NodeSpec, Pace};
use kproxide_simulator::physics::Guests;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::remote;
use kproxide_simulator::serve::{Cluster, Served, Setting};
use kproxide_testkit::controlplane::{Api, condition};
use kproxide_testkit::{ControlPlane, PodLauncher, RunningPod, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bench::Bench;
use crate::front::Front;
use crate::install::{install, merge, values};

mod machines;

mod told;

pub(crate) const NAMESPACE: &str = "kproxide";
pub(crate) const RELEASE: &str = "kproxide";
pub(crate) const CLAIMS: &str = "/apis/kproxide.dev/v1alpha1/nodeclaims";
pub(crate) const POOL: &str = "/apis/kproxide.dev/v1alpha1/nodepools/default";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const SELECTOR: &str = "app.kubernetes.io/name=kproxide";
const FIRST_ADDRESS: &str = "127.0.0.1";
const SECOND_ADDRESS: &str = "127.0.0.2";

/// For what takes seconds on an idle computer.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// The machines of all cases: 4 cores and 8 GiB, of which the kubelet keeps 512 MiB.
pub(crate) const CORES: u64 = 4;
pub(crate) const MEMORY_MIB: u64 = 8_192;
pub(crate) const OVERHEAD_MIB: u64 = 512;

/// What a case wants otherwise.
pub(crate) struct Scene {
    pub(crate) topology: Topology,
    pub(crate) guests: Guests,
    /// Merged into the chart's values.
    pub(crate) values: Value,
    /// Whether kproxide reaches the API server through a [`Front`].
    pub(crate) fronted: bool,
    /// What runs in place of the binary.
    pub(crate) program: Option<PathBuf>,
    /// Where Proxmox serves; 0 is any free port.
    pub(crate) pve_port: u16,
}

impl Default for Scene {
    /// Three equal hypervisors where nothing takes time, and kproxide may do what its role allows.
    fn default() -> Self {
        Self {
            topology: Topology::of(3).least_privileged().instant(),
            guests: Guests {
                reserved_memory_mib: OVERHEAD_MIB,
                ..Guests::instant()
            },
            values: json!({}),
            fronted: false,
            program: None,
            pve_port: 0,
        }
    }
}

impl Scene {
    pub(crate) fn with(values: Value) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// One of the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replica {
    First,
    Second,
}

pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a ControlPlane,
    pub(crate) served: Served,
    pub(crate) pod: RunningPod,
    pub(crate) front: Option<Front>,
    /// From the moment when the pod was to be started, its volumes included.
    pub(crate) ready_after: Duration,
    admin_port: u64,
    launcher: PodLauncher,
}

impl<'a> Stage<'a> {
    /// Serves the hypervisors, installs the chart and waits until kproxide is ready.
    pub(crate) async fn set(bench: &'a Bench, scene: Scene) -> Self {
        let served = Self::serve(bench, scene.topology, scene.guests, scene.pve_port).await;
        let mut values = values(&served);
        merge(&mut values, scene.values);
        install(&bench.cluster, &values).await;
        let program = scene.program.as_ref().unwrap_or(&bench.binary);
        Self::run(bench, served, &values, program, scene.fronted).await
    }

    /// Hypervisors whose machines join the cluster.
    pub(crate) async fn serve(
        bench: &Bench,
        topology: Topology,
        guests: Guests,
        pve_port: u16,
    ) -> Served {
        Served::start(Setting {
            seed: 1,
            now: now(),
            topology,
            guests,
            pace: Pace {
                // A share of the control plane's patience, however busy the computer is.
                lease_interval: Duration::from_secs(3),
                ..Pace::INSTANT
            },
            pve_port,
            cluster: Cluster::Real(remote::connect(bench.cluster.admin_kubeconfig_path()).unwrap()),
        })
        .await
        .unwrap()
    }

    /// Runs the pod of a chart that is installed with these values, until it is ready.
    pub(crate) async fn run(
        bench: &'a Bench,
        served: Served,
        values: &Value,
        program: &Path,
        fronted: bool,
    ) -> Self {
        let cluster = &bench.cluster;
        let mut launcher = PodLauncher::new(cluster, program);
        let mut front = None;
        if fronted {
            let between = front.insert(Front::before(cluster).await);
            launcher = launcher.through(&between.url(), between.ca_pem());
        }
        let begun = Instant::now();
        let mut pod = launcher.launch(NAMESPACE, SELECTOR).await.unwrap();
        pod.ready(SOON).await.unwrap();
        Self {
            cluster,
            served,
            pod,
            front,
            ready_after: begun.elapsed(),
            admin_port: values["admin"]["port"].as_u64().unwrap(),
            launcher,
        }
    }

    /// The release is uninstalled and installed again, by the same values but for this change.
    pub(crate) async fn reinstall(self, change: impl FnOnce(&mut Value)) -> Self {
        let Self {
            cluster,
            served,
            pod,
            front,
            launcher,
            ..
        } = self;
        let status = pod.remove().await.unwrap();
        assert!(status.success(), "kproxide ended with {status} on SIGTERM");
        let uninstall = ["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"];
        cluster.helm(&uninstall).await.unwrap();
        let mut values = values(&served);
        change(&mut values);
        install(cluster, &values).await;
        let begun = Instant::now();
        let mut pod = launcher.launch(NAMESPACE, SELECTOR).await.unwrap();
        pod.ready(SOON).await.unwrap();
        Self {
            cluster,
            served,
            pod,
            front,
            ready_after: begun.elapsed(),
            admin_port: values["admin"]["port"].as_u64().unwrap(),
            launcher,
        }
    }

    /// A second replica, on an address of its own. It is ready, and the first one leads.
    pub(crate) async fn second_replica(&self) -> RunningPod {
        let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}");
        let two = json!({ "spec": { "replicas": 2 } });
        self.api().merge(&deployment, &two).await.unwrap();
        let launcher = self.launcher.clone().address(SECOND_ADDRESS);
        let mut pod = launcher.launch(NAMESPACE, SELECTOR).await.unwrap();
        pod.ready(SOON).await.unwrap();
        pod
    }

    pub(crate) fn api(&self) -> &Api {
        self.cluster.api()
    }

    /// A Deployment in `default`, with `template` merged into its pods' spec.
    pub(crate) async fn deploy(
        &self,
        name: &str,
        replicas: u32,
        cpu: &str,
        memory: &str,
        spec: Value,
    ) {
        let mut deployment = fixtures::deployment("default", name, replicas, cpu, memory);
        let pods = &mut deployment["spec"]["template"]["spec"];
        // Nobody waits for a container that there is not.
        pods["terminationGracePeriodSeconds"] = json!(1);
        merge(pods, spec);
        self.api().create(DEPLOYMENTS, &deployment).await.unwrap();
    }

    pub(crate) async fn scale(&self, name: &str, replicas: u32) {
        let patch = json!({ "spec": { "replicas": replicas } });
        let path = format!("{DEPLOYMENTS}/{name}");
        self.api().merge(&path, &patch).await.unwrap();
    }

    pub(crate) async fn budget(&self, app: &str, min_available: u32) {
        let budget = fixtures::disruption_budget("default", app, json!(min_available));
        self.api().create(BUDGETS, &budget).await.unwrap();
    }

    /// The pods of an app that run and are Ready.
    pub(crate) async fn ready_pods(&self, app: &str) -> Vec<Value> {
        let path = format!("{PODS}?labelSelector=app%3D{app}");
        let mut pods = self.api().list(&path).await.unwrap();
        pods.retain(|pod| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && condition(pod, "Ready") == Some("True")
        });
        pods
    }

    pub(crate) async fn until_running(&self, app: &str, count: usize) {
        eventually(
            SOON,
            &format!("{count} pods of {app} running"),
            async || {
                let ready = self.ready_pods(app).await.len();
                if ready == count {
                    Ok(())
                } else {
                    Err(format!("{ready} run; {}", self.describe().await))
                }
            },
        )
        .await;
    }

    /// So many pods of an app are there, and the scheduler has found no place for any of them.
    pub(crate) async fn until_unschedulable(&self, app: &str, count: usize) {
        let path = format!("{PODS}?labelSelector=app%3D{app}");
        eventually(
            SOON,
            &format!("{count} pods of {app} without a place"),
            async || {
                let mut pods = self.api().list(&path).await.unwrap();
                pods.retain(|pod| condition(pod, "PodScheduled") == Some("False"));
                if pods.len() == count {
                    Ok(())
                } else {
                    Err(format!("{} pods", pods.len()))
                }
            },
        )
        .await;
    }

    /// A machine that is in the cluster without kproxide, once pods can run on it.
    pub(crate) async fn join_static_node(&self, name: &str) {
        let spec = NodeSpec {
            reserved_memory_mib: OVERHEAD_MIB,
            ..NodeSpec::new(
                name,
                "00000000-0000-4000-8000-000000000001",
                CORES * 1_000,
                MEMORY_MIB,
            )
        };
        self.served.kubelets.start_node(spec);
        let path = format!("/api/v1/nodes/{name}");
        eventually(SOON, &format!("Node {name} open for pods"), async || {
            let node = self.api().find(&path).await.unwrap().unwrap_or_default();
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            if condition(&node, "Ready") == Some("True") && taints == 0 {
                Ok(())
            } else {
                Err(format!("{} {}", node["spec"], node["status"]["conditions"]))
            }
        })
        .await;
    }

    /// The state in a line, for failed waits.
    pub(crate) async fn describe(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let claims: Vec<_> = self
            .claims()
            .await
            .iter()
            .map(|claim| {
                format!(
                    "{}:{}",
                    text(&claim["metadata"]["name"]),
                    text(&claim["status"]["phase"])
                )
            })
            .collect();
        let nodes: Vec<_> = self
            .nodes()
            .await
            .iter()
            .map(|node| {
                format!(
                    "{}:{}",
                    text(&node["metadata"]["name"]),
                    condition(node, "Ready").unwrap_or("-")
                )
            })
            .collect();
        format!(
            "claims {claims:?}; Nodes {nodes:?}; VMs {:?}",
            self.placed()
        )
    }

    /// Takes the pod away as an uninstallation would. A case that does not come here has failed.
    pub(crate) async fn end(self) {
        let status = self.pod.remove().await.unwrap();
        assert!(status.success(), "kproxide ended with {status} on SIGTERM");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the control plane lives in real time"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
