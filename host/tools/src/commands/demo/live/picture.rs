//! What the picture shows at one moment: plain values, taken from the world without changing it.

use std::collections::BTreeMap;
use std::time::Duration;

use kproxide_planner::claim::Phase;
use kproxide_planner::kubernetes::quantity::Quantity;
use kproxide_simulator::pve::{HypervisorView, VmView};
use serde_json::Value;

use super::super::story::{Summary, is_ours, text};
use super::super::world::{Load, is_ready};
use kproxide_lab::Lab;

const GIB: u64 = 1 << 30;

/// Everything that is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// Which run it is: `seed 1, policy spread`.
    pub(super) run: String,
    pub(super) at: Duration,
    pub(super) paused: bool,
    pub(super) scene: String,
    pub(super) world: World,
    /// What was told, the newest last.
    pub(super) told: Vec<Told>,
    pub(super) summary: Option<Summary>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) scene: bool,
    pub(super) text: String,
}

/// The two clusters, as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct World {
    pub(super) pods: Load,
    pub(super) hypervisors: Vec<Hypervisor>,
    /// Nodes that are no machines of ours.
    pub(super) others: Vec<Machine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hypervisor {
    pub(super) name: String,
    pub(super) presence: Presence,
    /// Cores of its VMs, of its threads.
    pub(super) cores: Share,
    /// GiB of its VMs, of its own.
    pub(super) memory: Share,
    pub(super) machines: Vec<Machine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Online,
    Offline,
    Maintenance,
}

/// A Node, or the VM that is to become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// The VMID, or the Node's name where the VM is none of ours.
    pub(super) name: String,
    pub(super) state: MachineState,
    /// Thousandths of a core that its pods request, of those that it has.
    pub(super) requested: Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineState {
    /// Cloned and configured, not started yet.
    Cloning,
    /// Started; its Node is awaited.
    Booting,
    Ready,
    /// In service, and its Node is not Ready.
    Lost,
    /// Its server is down, and the machine with it.
    Dead,
    Draining,
    /// Its VM is being destroyed.
    Going,
}

/// A part of something. The part can be larger: memory may be overcommitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) used: u64,
    pub(super) of: u64,
}

impl World {
    pub(super) fn of(lab: &Lab) -> Self {
        let pods = lab.kube.list("pods");
        let nodes = lab.kube.list("nodes");
        let claims = lab.kube.list("nodeclaims.kproxide.dev");
        let proxmox = lab.pve.snapshot();
        let kubernetes = Kubernetes {
            requested: requested(&pods),
            nodes: by(&nodes, |node| text(&node["metadata"]["name"]).to_owned()),
            claims: by(&claims, |claim| claim["spec"]["vmid"].as_u64()),
        };
        let vms: Vec<&VmView> = proxmox.vms.iter().filter(|vm| !vm.template).collect();
        let ours = |vm: &&VmView| is_ours(vm.vmid);
        Self {
            pods: Load::of(&pods),
            hypervisors: proxmox
                .hypervisors
                .iter()
                .map(|hypervisor| {
                    let on_it = vms.iter().filter(|vm| vm.hypervisor == hypervisor.name);
                    Hypervisor {
                        name: hypervisor.name.clone(),
                        presence: presence(hypervisor),
                        cores: Share {
                            used: on_it.clone().map(|vm| vm.cores).sum(),
                            of: hypervisor.threads.into(),
                        },
                        memory: Share {
                            used: on_it.clone().map(|vm| vm.memory).sum::<u64>() / GIB,
                            of: hypervisor.memory / GIB,
                        },
                        machines: on_it
                            .copied()
                            .filter(ours)
                            .map(|vm| kubernetes.machine(vm, hypervisor.online))
                            .collect(),
                    }
                })
                .collect(),
            others: nodes
                .iter()
                .filter(|node| {
                    let name = &node["metadata"]["name"];
                    !claims.iter().any(|claim| claim["spec"]["vmName"] == *name)
                })
                .map(|node| kubernetes.other(node))
                .collect(),
        }
    }
}

/// What Kubernetes knows, by what it is looked up with.
struct Kubernetes<'a> {
    /// Thousandths of a core, by the Node's name.
    requested: BTreeMap<&'a str, u64>,
    nodes: BTreeMap<String, &'a Value>,
    claims: BTreeMap<Option<u64>, &'a Value>,
}

impl Kubernetes<'_> {
    fn machine(&self, vm: &VmView, online: bool) -> Machine {
        let claim = self.claims.get(&Some(vm.vmid.into()));
        let phase = claim.and_then(|claim| phase(claim));
        let ready = self.nodes.get(&vm.name).is_some_and(|node| is_ready(node));
        let state = match phase {
            _ if !online => MachineState::Dead,
            // No claim is left that could want it.
            None | Some(Phase::Terminating) => MachineState::Going,
            Some(Phase::Draining) => MachineState::Draining,
            Some(Phase::Initialized) if ready => MachineState::Ready,
            Some(Phase::Initialized) => MachineState::Lost,
            Some(Phase::Pending | Phase::Launching) if !vm.running => MachineState::Cloning,
            Some(Phase::Pending | Phase::Launching | Phase::Launched | Phase::Registered) => {
                MachineState::Booting
            }
        };
        Machine {
            name: vm.vmid.to_string(),
            state,
            requested: self.requested(&vm.name, vm.cores * 1000),
        }
    }

    fn other(&self, node: &Value) -> Machine {
        let name = text(&node["metadata"]["name"]);
        Machine {
            name: name.to_owned(),
            state: if is_ready(node) {
                MachineState::Ready
            } else {
                MachineState::Lost
            },
            requested: self.requested(name, milli(&node["status"]["capacity"]["cpu"])),
        }
    }

    fn requested(&self, node: &str, of: u64) -> Share {
        Share {
            used: self.requested.get(node).copied().unwrap_or_default(),
            of,
        }
    }
}

fn presence(hypervisor: &HypervisorView) -> Presence {
    if !hypervisor.online {
        Presence::Offline
    } else if hypervisor.maintenance {
        Presence::Maintenance
    } else {
        Presence::Online
    }
}

/// A claim that is deleted is one that ends, whatever its status still says. `None`: a phase that this program does not know.
fn phase(claim: &Value) -> Option<Phase> {
    if !claim["metadata"]["deletionTimestamp"].is_null() {
        return Some(Phase::Terminating);
    }
    let phase = &claim["status"]["phase"];
    if phase.is_null() {
        return Some(Phase::Pending);
    }
    serde_json::from_value(phase.clone()).ok()
}

/// What the pods on each Node request, in thousandths of a core.
fn requested(pods: &[Value]) -> BTreeMap<&str, u64> {
    let mut requested = BTreeMap::new();
    for pod in pods {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            let containers = pod["spec"]["containers"].as_array();
            *requested.entry(node).or_default() += containers
                .into_iter()
                .flatten()
                .map(|container| milli(&container["resources"]["requests"]["cpu"]))
                .sum::<u64>();
        }
    }
    requested
}

fn milli(quantity: &Value) -> u64 {
    let parsed: Option<Quantity> = text(quantity).parse().ok();
    parsed.map_or(0, |quantity| {
        u64::try_from(quantity.milli_up()).unwrap_or_default()
    })
}

fn by<K: Ord>(objects: &[Value], key: impl Fn(&Value) -> K) -> BTreeMap<K, &Value> {
    objects.iter().map(|object| (key(object), object)).collect()
}
