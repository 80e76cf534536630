//! What tests, checkers and the physics see of the world without asking its API.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc;

use super::Pve;
use super::state::Presence;
use super::vm::Config;

/// Something happened to a machine or a hypervisor that the physics of the simulation reacts to.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineEvent {
    /// A machine's process started: its guest begins to boot.
    Started {
        vmid: u32,
        hypervisor: String,
        incarnation: u64,
        /// What the guest reads as its system UUID.
        smbios_uuid: String,
        name: String,
        /// MAC address of `net0`.
        mac: Option<String>,
        /// The configuration that it started with.
        config: Config,
        /// False for a machine whose guest never comes up.
        boots: bool,
    },
    /// A machine's process ended, for whatever reason.
    Stopped {
        vmid: u32,
        hypervisor: String,
        incarnation: u64,
    },
    /// The guest was reset: it boots again, in the same process.
    Rebooted {
        vmid: u32,
        hypervisor: String,
        incarnation: u64,
    },
    /// A machine is gone. It was stopped before.
    Destroyed {
        vmid: u32,
        hypervisor: String,
        incarnation: u64,
    },
    /// The guest agent was asked to run a command; the physics answers with [`Pve::complete_exec`].
    AgentExec {
        vmid: u32,
        hypervisor: String,
        pid: u32,
        command: Vec<String>,
        /// As the guest gets it.
        input: Vec<u8>,
    },
    HypervisorDown {
        hypervisor: String,
    },
    HypervisorUp {
        hypervisor: String,
    },
}

/// One request that could change something, in the order in which they were decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// `user@realm` or `user@realm!token`; empty when nobody was authenticated.
    pub user: String,
    pub method: String,
    /// Without `/api2/json`.
    pub path: String,
    /// Name and value of every parameter, sorted by name.
    pub params: Vec<(String, String)>,
    pub status: u16,
    /// The UPID of the task it started, or the text of the refusal.
    pub outcome: String,
}

/// One machine that came to be, and when it ceased to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Birth {
    /// 1, 2, 3 … in the order of births.
    pub incarnation: u64,
    pub vmid: u32,
    pub hypervisor: String,
    /// Who cloned or created it; `world` for what was there from the start, `human:…` for a person's doing.
    pub creator: String,
    /// Made from nothing, without disks: no clone.
    pub bare: bool,
    pub at: Timestamp,
    pub destroyed: Option<Timestamp>,
}

/// The whole world at one moment, as it is and not as the API would tell it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PveSnapshot {
    pub at: Timestamp,
    pub hypervisors: Vec<HypervisorView>,
    pub vms: Vec<VmView>,
    pub volumes: Vec<VolumeView>,
    pub tasks: Vec<TaskView>,
    /// Every machine that ever was.
    pub births: Vec<Birth>,
    /// How long ago quorum was lost; none while there is quorum.
    pub no_quorum_for: Option<Duration>,
}

/// One server, see [`PveSnapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HypervisorView {
    pub name: String,
    /// False while it is down, and while it answers nobody.
    pub online: bool,
    /// In HA maintenance mode.
    pub maintenance: bool,
    pub threads: u32,
    /// Bytes.
    pub memory: u64,
}

/// One machine, see [`PveSnapshot`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmView {
    pub vmid: u32,
    pub incarnation: u64,
    pub creator: String,
    pub hypervisor: String,
    pub name: String,
    pub template: bool,
    pub running: bool,
    /// Whether the guest agent answers.
    pub agent: bool,
    pub lock: Option<String>,
    pub pool: Option<String>,
    pub description: Option<String>,
    pub smbios_uuid: Option<String>,
    pub cores: u64,
    /// Bytes.
    pub memory: u64,
    pub config: Config,
}

/// One volume, see [`PveSnapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeView {
    pub volid: String,
    /// Empty on shared storage.
    pub hypervisor: String,
    /// The machine it was made for, which need not exist any more.
    pub vmid: u32,
    /// Bytes.
    pub size: u64,
}

/// One task, see [`PveSnapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    pub upid: String,
    pub kind: String,
    pub id: String,
    /// Absent while it runs.
    pub exit: Option<String>,
}

impl Pve {
    /// All events from now on. Several listeners may listen; each gets all events in the order in which they happened.
    pub fn machine_events(&self) -> mpsc::UnboundedReceiver<MachineEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().listeners.push(sender);
        receiver
    }

    /// The world as it is.
    pub fn snapshot(&self) -> PveSnapshot {
        let at = self.clock().now();
        let state = self.look();
        let hypervisors = state.nodes.values().map(|node| HypervisorView {
            name: node.name.clone(),
            online: node.presence == Presence::Online,
            maintenance: node.maintenance,
            threads: node.threads,
            memory: node.memory,
        });
        let vms = state.vms.values().map(|vm| VmView {
            vmid: vm.vmid,
            incarnation: vm.incarnation,
            creator: vm.creator.clone(),
            hypervisor: vm.node.clone(),
            name: vm.name(),
            template: vm.is_template(),
            running: vm.running.is_some(),
            agent: vm
                .running
                .as_ref()
                .is_some_and(|running| running.guest.agent),
            lock: vm.lock().map(str::to_owned),
            pool: state.pool_of(vm.vmid).map(str::to_owned),
            description: vm.get("description").map(str::to_owned),
            smbios_uuid: vm.smbios_uuid(),
            cores: vm.cpus(),
            memory: vm.memory(),
            config: vm.config.clone(),
        });
        let volumes = state.volumes.values().map(|volume| VolumeView {
            volid: volume.volid(state.storages[&volume.storage].kind),
            hypervisor: volume.node.clone(),
            vmid: volume.vmid,
            size: volume.size,
        });
        let tasks = state
            .task_order
            .iter()
            .filter_map(|upid| state.tasks.get(upid))
            .map(|task| TaskView {
                upid: task.upid.clone(),
                kind: task.kind.clone(),
                id: task.id.clone(),
                exit: task.end.as_ref().map(|end| end.status.clone()),
            });
        PveSnapshot {
            at,
            hypervisors: hypervisors.collect(),
            vms: vms.collect(),
            volumes: volumes.collect(),
            tasks: tasks.collect(),
            births: state.births.clone(),
            no_quorum_for: state.no_quorum_since.map(|since| since.elapsed()),
        }
    }

    /// Every machine that ever was, as in [`PveSnapshot`].
    pub fn births(&self) -> Vec<Birth> {
        self.look().births.clone()
    }

    /// Every writing request so far, refused ones included.
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.look().audit.clone()
    }

    /// The writing requests from the `seen`-th on, for checkers that read the audit bit by bit. What was forgotten is left out.
    pub fn audit_since(&self, seen: usize) -> Vec<AuditEntry> {
        let state = self.look();
        let seen = seen.saturating_sub(state.audit_forgotten);
        state.audit.get(seen..).unwrap_or_default().to_vec()
    }
}
