//! What happens between the two APIs: a machine that Proxmox started boots, its agent answers, its kubelet joins; a machine
//! that stopped falls silent.
//!
//! ```text
//! Pve::machine_events ──> Physics ──> Kubelets::start_node, stop_node
//!                            └──────> Pve::set_agent_ready, complete_exec
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use self::command::{JoinScript, Purpose, printed};
use crate::{
    kubelet::{Kubelets, NodeFault, NodeSpec},
    pve::{CommandResult, MachineEvent, Pve},
    rng::{Seed, Spread},
};

mod command;

/// When a machine's kubelet starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// By itself at every boot: the template holds what it needs.
    #[default]
    OnBoot,
    /// When a command that the guest agent was asked to run has ended well, unless it only asks how the guest stands; a machine that joined
    /// once joins at its next boot by itself.
    OnExec,
}

/// The guests of a cluster: what its template does.
#[derive(Clone, Debug)]
pub struct Guests {
    /// How machines join.
    pub join: Join,
    /// From power-on until the guest agent answers.
    pub boot: Spread,
    /// From there, or from the join command, to the creation of the Node.
    pub join_delay: Spread,
    /// From the creation of the Node to Ready.
    pub ready_delay: Spread,
    /// How long a command of the guest agent runs. What only asks how the guest stands ends at once.
    pub exec_delay: Spread,
    /// CPU that is not allocatable, in thousandths of a core.
    pub reserved_cpu_milli: u64,
    /// Memory that is not allocatable, in MiB.
    pub reserved_memory_mib: u64,
    /// Allocatable pods.
    pub max_pods: u32,
    /// Extended resources of every machine.
    pub extended_resources: BTreeMap<String, String>,
    /// From Ready until device plugins have registered these.
    pub devices_after: Duration,
    /// Manifests that every kubelet runs by itself and shows as mirror pods.
    pub static_pods: Vec<Value>,
    /// Labels that the kubelets set.
    pub labels: BTreeMap<String, String>,
    /// Taints with which the kubelets register.
    pub taints: Vec<Value>,
    /// With a region, kubelets set `proxmox://<region>/<vmid>` as their provider ID.
    pub provider_id_region: Option<String>,
}

impl Default for Guests {
    /// A small Debian with k3s: up in half a minute.
    fn default() -> Self {
        Self {
            join: Join::OnBoot,
            boot: Spread::new(15.0, 30.0),
            join_delay: Spread::new(8.0, 20.0),
            ready_delay: Spread::new(4.0, 10.0),
            exec_delay: Spread::new(5.0, 15.0),
            reserved_cpu_milli: 0,
            reserved_memory_mib: 300,
            max_pods: 110,
            extended_resources: BTreeMap::new(),
            devices_after: Duration::ZERO,
            static_pods: Vec::new(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id_region: None,
        }
    }
}

impl Guests {
    /// Everything happens at once; sizes as in [`Guests::default`].
    pub fn instant() -> Self {
        Self {
            boot: Spread::ZERO,
            join_delay: Spread::ZERO,
            ready_delay: Spread::ZERO,
            exec_delay: Spread::ZERO,
            ..Self::default()
        }
    }
}

/// What one machine does otherwise than [`Guests`] says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quirk {
    /// It boots, but no Node appears.
    pub never_joins: bool,
    /// Its Node appears so much later.
    pub joins_later: Duration,
    /// So much less CPU is allocatable, in thousandths of a core.
    pub missing_cpu_milli: u64,
    /// So much less memory is allocatable, in MiB.
    pub missing_memory_mib: u64,
    /// Its guest agent never answers.
    pub silent_agent: bool,
    /// Its guest agent answers, and has no /bin/sh to start.
    pub no_shell: bool,
    /// The join command fails with this on standard error.
    pub exec_fails: Option<String>,
    /// The end of its log of cloud-init.
    pub log: Option<String>,
    /// What goes wrong after it became Ready.
    pub fault: Option<NodeFault>,
}

/// A handle on the physics, to make single machines misbehave. Clones are the same.
#[derive(Clone)]
pub struct Physics {
    quirks: Arc<Mutex<Quirks>>,
}

#[derive(Default)]
struct Quirks {
    of_next: VecDeque<Quirk>,
    by_vmid: BTreeMap<u32, Quirk>,
}

impl Physics {
    /// A handle, and the task that does the work until the events end. Every machine that is started from now on joins.
    pub fn new(
        pve: Pve,
        kubelets: Kubelets,
        guests: Guests,
        seed: u64,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let events = pve.machine_events();
        let physics = Self {
            quirks: Arc::default(),
        };
        let worker = Worker {
            pve,
            kubelets,
            guests,
            seed: Seed(seed),
            physics: physics.clone(),
            machines: BTreeMap::new(),
            timers: BTreeSet::new(),
        };
        (physics, worker.run(events))
    }

    /// The next machine that starts for the first time has this quirk; called twice, the second quirk is the next but one's.
    pub fn quirk_of_next(&self, quirk: Quirk) {
        self.lock().of_next.push_back(quirk);
    }

    /// The machine with this VMID has this quirk from its next start on.
    pub fn quirk_of(&self, vmid: u32, quirk: Quirk) {
        self.lock().by_vmid.insert(vmid, quirk);
    }

    fn lock(&self) -> MutexGuard<'_, Quirks> {
        self.quirks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, vmid: u32) -> Quirk {
        let mut quirks = self.lock();
        if let Some(quirk) = quirks.by_vmid.get(&vmid) {
            return quirk.clone();
        }
        let quirk = quirks.of_next.pop_front().unwrap_or_default();
        quirks.by_vmid.insert(vmid, quirk.clone());
        quirk
    }

    fn forget(&self, vmid: u32) {
        self.lock().by_vmid.remove(&vmid);
    }
}

struct Worker {
    pve: Pve,
    kubelets: Kubelets,
    guests: Guests,
    seed: Seed,
    physics: Physics,
    machines: BTreeMap<u32, Machine>,
    timers: BTreeSet<(Instant, u32, Moment)>,
}

struct Machine {
    incarnation: u64,
    hypervisor: String,
    boots: bool,
    quirk: Quirk,
    spec: NodeSpec,
    /// A command has made it a member before.
    joined: bool,
    join_script: JoinScript,
    /// Its kubelet was started.
    runs: bool,
}

/// Something that is about to happen inside a guest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Up,
    JoinScriptEnds(u32),
    CommandEnds(u32),
}

impl Worker {
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<MachineEvent>) {
        loop {
            let next = self.timers.first().map(|(at, ..)| *at);
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(event) => self.note(event),
                    None => return,
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    if let Some((_, vmid, moment)) = self.timers.pop_first() {
                        self.happen(vmid, &moment);
                    }
                }
            }
        }
    }

    fn note(&mut self, event: MachineEvent) {
        match event {
            MachineEvent::Started {
                vmid,
                hypervisor,
                incarnation,
                smbios_uuid,
                name,
                mac: _,
                config,
                boots,
            } => {
                let quirk = self.physics.of(vmid);
                let spec = self.spec(vmid, &name, &smbios_uuid, &config, &quirk);
                let before = self
                    .machines
                    .get(&vmid)
                    .filter(|before| before.incarnation == incarnation);
                let machine = Machine {
                    incarnation,
                    hypervisor,
                    boots,
                    quirk,
                    spec,
                    joined: before.is_some_and(|before| before.joined),
                    join_script: before
                        .map(|before| before.join_script.clone())
                        .unwrap_or_default(),
                    runs: false,
                };
                self.machines.insert(vmid, machine);
                self.boot(vmid);
            }
            MachineEvent::Rebooted { vmid, .. } => {
                self.halt(vmid);
                self.boot(vmid);
            }
            MachineEvent::Stopped { vmid, .. } => self.halt(vmid),
            MachineEvent::Destroyed { vmid, .. } => {
                self.halt(vmid);
                self.machines.remove(&vmid);
                self.physics.forget(vmid);
            }
            MachineEvent::AgentExec {
                vmid, pid, command, ..
            } => self.exec(vmid, pid, Purpose::of(&command)),
            MachineEvent::HypervisorDown { hypervisor } => {
                let on_it = self
                    .machines
                    .iter()
                    .filter(|(_, machine)| machine.hypervisor == hypervisor);
                let vmids: Vec<u32> = on_it.map(|(vmid, _)| *vmid).collect();
                for vmid in vmids {
                    self.halt(vmid);
                }
            }
            MachineEvent::HypervisorUp { .. } => {}
        }
    }

    fn spec(
        &self,
        vmid: u32,
        name: &str,
        smbios_uuid: &str,
        config: &BTreeMap<String, String>,
        quirk: &Quirk,
    ) -> NodeSpec {
        let number = |key: &str| config.get(key).and_then(|value| value.parse::<u64>().ok());
        let cores = number("vcpus")
            .unwrap_or_else(|| number("sockets").unwrap_or(1) * number("cores").unwrap_or(1));
        let guests = &self.guests;
        NodeSpec {
            reserved_cpu_milli: guests.reserved_cpu_milli + quirk.missing_cpu_milli,
            reserved_memory_mib: guests.reserved_memory_mib + quirk.missing_memory_mib,
            max_pods: guests.max_pods,
            extended_resources: guests.extended_resources.clone(),
            devices_after: guests.devices_after,
            static_pods: guests.static_pods.clone(),
            labels: guests.labels.clone(),
            taints: guests.taints.clone(),
            provider_id: guests
                .provider_id_region
                .as_ref()
                .map(|region| format!("proxmox://{region}/{vmid}")),
            address: Some(address(vmid, config)),
            fault: quirk.fault,
            // A hostname is lower case, whatever the machine is called.
            ..NodeSpec::new(
                &name.to_lowercase(),
                smbios_uuid,
                cores * 1_000,
                number("memory").unwrap_or(512),
            )
        }
    }

    fn boot(&mut self, vmid: u32) {
        let Some(machine) = self.machines.get(&vmid).filter(|machine| machine.boots) else {
            return;
        };
        let id = format!("{vmid}/{}", machine.incarnation);
        let delay = self
            .guests
            .boot
            .sample(&mut self.seed.stream("guest-boot", &id));
        self.timers
            .insert((Instant::now() + delay, vmid, Moment::Up));
    }

    fn exec(&mut self, vmid: u32, pid: u32, purpose: Purpose) {
        let Some(machine) = self.machines.get_mut(&vmid) else {
            return;
        };
        let (at_once, end) = match purpose {
            Purpose::JoinStatus => (Some(machine.join_script.status()), Moment::CommandEnds(pid)),
            Purpose::Evidence => {
                let log = machine.quirk.log.as_deref();
                let log = log.unwrap_or("Cloud-init finished\n");
                let said = format!("status: done\n\n--log\n/var/log/cloud-init-output.log\n{log}");
                (Some(said), Moment::CommandEnds(pid))
            }
            Purpose::Join => {
                let repeated = !machine.join_script.begin();
                (repeated.then(String::new), Moment::JoinScriptEnds(pid))
            }
            Purpose::Other => (None, Moment::CommandEnds(pid)),
        };
        if let Some(out) = at_once {
            // A machine that stopped in this very instant has nobody who waits for the answer.
            let _ = self.pve.complete_exec(vmid, pid, printed(out));
            return;
        }
        let id = format!("{vmid}/{pid}");
        let delay = self
            .guests
            .exec_delay
            .sample(&mut self.seed.stream("guest-exec", &id));
        self.timers.insert((Instant::now() + delay, vmid, end));
    }

    fn happen(&mut self, vmid: u32, moment: &Moment) {
        let Some(machine) = self.machines.get(&vmid) else {
            return;
        };
        match moment {
            Moment::Up => {
                let NodeSpec { name, address, .. } = &machine.spec;
                let addresses: Vec<String> = address.iter().cloned().collect();
                // A machine that stopped in this very instant has no guest any more.
                let _ = self.pve.set_guest(vmid, name, &addresses);
                if machine.quirk.no_shell {
                    let _ = self.pve.take_shell(vmid);
                }
                if !machine.quirk.silent_agent {
                    let _ = self.pve.set_agent_ready(vmid, true);
                }
                if machine.joined || self.guests.join == Join::OnBoot {
                    self.join(vmid);
                }
            }
            Moment::JoinScriptEnds(pid) => {
                let problem = machine.quirk.exec_fails.clone();
                let failed = problem.is_some();
                if let Some(machine) = self.machines.get_mut(&vmid) {
                    machine.join_script = JoinScript::Done {
                        code: i32::from(failed),
                        output: problem.unwrap_or_else(|| "joined\n".to_owned()),
                    };
                }
                // The script's own end is in the guest: the command that ran it always ends well.
                let _ = self.pve.complete_exec(vmid, *pid, printed(String::new()));
                self.join_by_command(vmid, failed);
            }
            Moment::CommandEnds(pid) => {
                let result = match &machine.quirk.exec_fails {
                    Some(text) => CommandResult {
                        exitcode: 1,
                        err: text.clone().into_bytes(),
                        ..CommandResult::default()
                    },
                    None => printed("joined\n".to_owned()),
                };
                let failed = result.exitcode != 0;
                let _ = self.pve.complete_exec(vmid, *pid, result);
                self.join_by_command(vmid, failed);
            }
        }
    }

    fn join_by_command(&mut self, vmid: u32, failed: bool) {
        if !failed && self.guests.join == Join::OnExec {
            self.join(vmid);
        }
    }

    /// Starts the kubelet. Two machines of one name cannot both be members: the first one keeps the name, as k3s's node
    /// passwords see to.
    fn join(&mut self, vmid: u32) {
        let Some(machine) = self.machines.get(&vmid) else {
            return;
        };
        let name = machine.spec.name.clone();
        let taken = self
            .machines
            .values()
            .any(|other| other.runs && other.spec.name == name);
        let id = format!("{vmid}/{}", machine.incarnation);
        let draw = |spread: Spread, kind: &str| spread.sample(&mut self.seed.stream(kind, &id));
        let joins_after = draw(self.guests.join_delay, "guest-join") + machine.quirk.joins_later;
        let ready_after = draw(self.guests.ready_delay, "guest-ready");
        if let Some(machine) = self.machines.get_mut(&vmid) {
            machine.joined = true;
            if taken || machine.quirk.never_joins {
                return;
            }
            machine.runs = true;
            self.kubelets.start_node(NodeSpec {
                joins_after,
                ready_after,
                ..machine.spec.clone()
            });
        }
    }

    /// The guest is off: what it was about to do does not happen.
    fn halt(&mut self, vmid: u32) {
        self.timers.retain(|(_, of, _)| *of != vmid);
        let Some(machine) = self.machines.get_mut(&vmid) else {
            return;
        };
        machine.join_script.cut_off();
        if std::mem::take(&mut machine.runs) {
            self.kubelets.stop_node(&machine.spec.name);
        }
    }
}

/// The address in `ipconfig0`, or one that DHCP gives by the VMID.
fn address(vmid: u32, config: &BTreeMap<String, String>) -> String {
    let fixed = config
        .get("ipconfig0")
        .and_then(|line| line.split(',').find_map(|part| part.strip_prefix("ip=")))
        .and_then(|address| address.split('/').next())
        .filter(|address| *address != "dhcp");
    let leased = || format!("10.0.{}.{}", (vmid >> 8) & 0xff, vmid & 0xff);
    fixed.map_or_else(leased, str::to_owned)
}

#[cfg(test)]
mod tests;
