//! The kubelets of the machines that joined: they register Nodes, renew Leases and run the pods bound to them.
//!
//! ```text
//! physics ── start_node, stop_node ──> Kubelets ──> one task per node ── HTTP ──> an API server
//!                    one watch of bound pods ──────────┘
//! ```
//!
//! They speak HTTP and JSON through any tower service, so that the same code lives in the simulated cluster and joins a real
//! one. Nothing here knows that its machines are simulated VMs.

pub mod api;

mod complaints;
mod node;
mod pods;
mod report;

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

pub use self::api::Api;
use self::{node::NodeTask, pods::PodEvent};
use crate::{
    clock::Clock,
    rng::{Seed, Spread},
};

/// A pod with this annotation ends with success after so many seconds, whatever its restart policy.
pub const RUN_SECONDS: &str = "simulator.kproxide.dev/run-seconds";

/// How fast kubelets are. Everything drawn comes from the seed and the UID of what it is about.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From binding to Running and Ready.
    pub pod_start: Spread,
    /// From the deletion of a running pod to its end; never longer than its grace.
    pub pod_stop: Spread,
    /// Between two renewals of a Lease.
    pub lease_interval: Duration,
    /// Between two reports of an unchanged status.
    pub status_interval: Duration,
}

impl Pace {
    /// A kubelet's defaults, and pods whose images are on the node.
    pub const REAL: Self = Self {
        pod_start: Spread::new(2.0, 6.0),
        pod_stop: Spread::new(1.0, 5.0),
        lease_interval: Duration::from_secs(10),
        status_interval: Duration::from_secs(300),
    };

    /// Pods start and stop at once: for tests on the wire, where time is real.
    pub const INSTANT: Self = Self {
        pod_start: Spread::ZERO,
        pod_stop: Spread::ZERO,
        ..Self::REAL
    };
}

/// A machine as its kubelet reports it.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// The Node's name.
    pub name: String,
    /// `status.nodeInfo.systemUUID`.
    pub system_uuid: String,
    /// CPU capacity in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory capacity in MiB.
    pub memory_mib: u64,
    /// CPU that is not allocatable, in thousandths of a core.
    pub reserved_cpu_milli: u64,
    /// Memory that is not allocatable, in MiB.
    pub reserved_memory_mib: u64,
    /// Allocatable pods.
    pub max_pods: u32,
    /// Extended resources, e.g. `nvidia.com/gpu`: `1`.
    pub extended_resources: BTreeMap<String, String>,
    /// From Ready until device plugins have registered these.
    pub devices_after: Duration,
    /// Labels besides arch, os and hostname.
    pub labels: BTreeMap<String, String>,
    /// Taints as in `spec.taints`, e.g. the startup taint that a pool configures.
    pub taints: Vec<Value>,
    /// `spec.providerID`, when the kubelet is started with one.
    pub provider_id: Option<String>,
    /// The internal IP address; one made from the name when None.
    pub address: Option<String>,
    /// Manifests that the kubelet runs by itself and shows as mirror pods.
    pub static_pods: Vec<Value>,
    /// From the start of the machine to the creation of the Node.
    pub joins_after: Duration,
    /// From there to Ready.
    pub ready_after: Duration,
    /// What goes wrong with this node later.
    pub fault: Option<NodeFault>,
}

/// A fault of a node some time after it became Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// The kubelet falls silent: no more leases, no more reports.
    SilentAfter(Duration),
    /// The kubelet reports that the node is not ready.
    NotReadyAfter(Duration),
}

impl NodeSpec {
    /// A healthy machine that joins and is Ready at once, with 110 pods and nothing reserved.
    pub fn new(name: &str, system_uuid: &str, cpu_milli: u64, memory_mib: u64) -> Self {
        Self {
            name: name.to_owned(),
            system_uuid: system_uuid.to_owned(),
            cpu_milli,
            memory_mib,
            reserved_cpu_milli: 0,
            reserved_memory_mib: 0,
            max_pods: 110,
            extended_resources: BTreeMap::new(),
            devices_after: Duration::ZERO,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: None,
            address: None,
            static_pods: Vec::new(),
            joins_after: Duration::ZERO,
            ready_after: Duration::ZERO,
            fault: None,
        }
    }

    /// The same machine as a member of the control plane: with its label and its taint.
    pub fn control_plane(mut self) -> Self {
        let key = "node-role.kubernetes.io/control-plane";
        self.labels.insert(key.to_owned(), "true".to_owned());
        self.taints
            .push(json!({"key": key, "effect": "NoSchedule"}));
        self
    }
}

/// A handle to switch machines on and off.
#[derive(Clone, Debug)]
pub struct Kubelets {
    commands: mpsc::UnboundedSender<Command>,
}

#[derive(Debug)]
enum Command {
    Start(Box<NodeSpec>),
    Stop(String),
}

impl Kubelets {
    /// A handle, and the task that does the work: it ends when the last handle is dropped, and all kubelets with it.
    pub fn new(
        api: Api,
        clock: Clock,
        pace: Pace,
        seed: u64,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (commands, received) = mpsc::unbounded_channel();
        (
            Self { commands },
            supervise(api, clock, pace, Seed(seed), received),
        )
    }

    /// Switches a machine on. A machine of this name that runs is switched off first.
    pub fn start_node(&self, spec: NodeSpec) {
        // Without a supervisor the world has ended, and nobody is left to notice.
        let _ = self.commands.send(Command::Start(Box::new(spec)));
    }

    /// Cuts a machine's power: its Node and its pods stay in the API as they were.
    pub fn stop_node(&self, name: &str) {
        let _ = self.commands.send(Command::Stop(name.to_owned()));
    }
}

struct Running {
    task: AbortHandle,
    pods: mpsc::UnboundedSender<PodEvent>,
}

async fn supervise(
    api: Api,
    clock: Clock,
    pace: Pace,
    seed: Seed,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut tasks = JoinSet::new();
    let mut nodes = BTreeMap::<String, Running>::new();
    let (sender, mut events) = mpsc::unbounded_channel();
    tasks.spawn(pods::watch(api.clone(), sender));
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                None => return,
                Some(Command::Stop(name)) => {
                    if let Some(node) = nodes.remove(&name) {
                        node.task.abort();
                    }
                }
                Some(Command::Start(spec)) => {
                    let name = spec.name.clone();
                    let (pods, received) = mpsc::unbounded_channel();
                    let node = NodeTask::new(api.clone(), clock, pace, seed, *spec);
                    let task = tasks.spawn(node.run(received));
                    if let Some(before) = nodes.insert(name, Running { task, pods }) {
                        before.task.abort();
                    }
                }
            },
            Some(event) = events.recv() => {
                if let Some(node) = nodes.get(event.node()) {
                    // A node task that ended takes no more pods.
                    let _ = node.pods.send(event);
                }
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

#[cfg(test)]
mod tests;
