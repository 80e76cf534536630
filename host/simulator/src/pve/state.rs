//! Everything the simulated cluster consists of at one moment, and how a topology becomes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::rng::Seed;

use super::access::Access;
use super::answer::Refusal;
use super::broadcast::NodeStatus;
use super::observe::{AuditEntry, Birth, MachineEvent};
use super::storage::{Storage, Volume, VolumeKey};
use super::tasks::Task;
use super::topology::{DiskSpec, HypervisorSpec, PoolSpec, Topology, Version, VmSpec};
use super::vm::{Config, Drive, Guest, Running, Vm};

/// Handlers of one server that run at the same time; the rest queue, as behind Proxmox's three worker processes.
const WORKERS: usize = 3;

pub(crate) struct State {
    pub(crate) cluster: Option<String>,
    pub(crate) version: Version,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) storages: BTreeMap<String, Storage>,
    pub(crate) volumes: BTreeMap<VolumeKey, Volume>,
    pub(crate) vms: BTreeMap<u32, Vm>,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) access: Access,
    pub(crate) registered_tags: BTreeSet<String>,
    pub(crate) allowed_tags: Option<BTreeSet<String>>,
    pub(crate) memory_is_hard: bool,
    pub(crate) tasks: BTreeMap<String, Task>,
    /// UPIDs from the oldest to the newest.
    pub(crate) task_order: Vec<String>,
    /// Since when the cluster has no quorum.
    pub(crate) no_quorum_since: Option<Instant>,
    pub(crate) audit: Vec<AuditEntry>,
    /// Entries that were there before the first of these.
    pub(crate) audit_forgotten: usize,
    pub(crate) births: Vec<Birth>,
    pub(crate) listeners: Vec<mpsc::UnboundedSender<MachineEvent>>,
    pub(crate) requests: u64,
    /// Why the agents of all guests run no command.
    pub(crate) agents_refuse: Option<String>,
    /// Set by tests: QEMU ends at each start, with this text.
    pub(crate) starts_fail: Option<String>,
    /// So many of the next machines never boot.
    pub(crate) duds: u32,
    pub(crate) started: Instant,
    /// When a server broadcasts its status next; `None` before the first time.
    pub(crate) next_broadcast: Option<Instant>,
    next_pid: u32,
    rng: SmallRng,
}

/// One server.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) threads: u32,
    pub(crate) cores: u32,
    pub(crate) memory: u64,
    pub(crate) notes: String,
    pub(crate) base_load: f64,
    pub(crate) base_memory: u64,
    pub(crate) bridges: Vec<String>,
    pub(crate) presence: Presence,
    /// Its privileged daemon runs, which serves the protected calls.
    pub(crate) daemon: bool,
    pub(crate) maintenance: bool,
    pub(crate) up_since: Instant,
    pub(crate) workers: Arc<Semaphore>,
    pub(crate) broadcast_offset: Duration,
    pub(crate) broadcasts: u64,
    pub(crate) status: Option<NodeStatus>,
    /// Where it is really served, if it is.
    pub(crate) address: Option<String>,
    /// Of the certificate that it really shows.
    pub(crate) fingerprint: Option<String>,
}

/// How a server behaves towards the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Online,
    /// Down: what is forwarded to it fails at once.
    Offline,
    /// Takes connections and never answers: what is forwarded to it fails after 30 s.
    Hung,
}

pub(crate) struct Pool {
    pub(crate) comment: String,
    pub(crate) vms: BTreeSet<u32>,
    pub(crate) storages: BTreeSet<String>,
}

impl State {
    pub(crate) fn build(topology: Topology, clock: &Clock, seed: Seed) -> State {
        let Topology {
            cluster,
            hypervisors,
            storages,
            vms,
            pools,
            users,
            acl,
            registered_tags,
            allowed_tags,
            memory_is_hard,
            timings,
            version,
        } = topology;
        let mut state = State {
            cluster,
            version,
            nodes: BTreeMap::new(),
            storages: storages
                .into_iter()
                .map(|spec| (spec.name.clone(), Storage::new(spec)))
                .collect(),
            volumes: BTreeMap::new(),
            vms: BTreeMap::new(),
            pools: pools
                .into_iter()
                .map(|pool| (pool.name.clone(), Pool::new(pool)))
                .collect(),
            access: Access::new(users, acl),
            registered_tags: registered_tags.into_iter().collect(),
            allowed_tags: allowed_tags.map(|tags| tags.into_iter().collect()),
            memory_is_hard,
            tasks: BTreeMap::new(),
            task_order: Vec::new(),
            no_quorum_since: None,
            audit: Vec::new(),
            audit_forgotten: 0,
            births: Vec::new(),
            listeners: Vec::new(),
            requests: 0,
            agents_refuse: None,
            starts_fail: None,
            duds: 0,
            started: clock.start(),
            next_broadcast: None,
            next_pid: 1_000,
            rng: seed.stream("state", ""),
        };
        for (id, spec) in (1..).zip(hypervisors) {
            let period = if timings.broadcast_s > 0.0 {
                timings.broadcast_s
            } else {
                1.0
            };
            let drawn = seed
                .stream("broadcast", &spec.name)
                .random_range(0.0..period);
            state
                .nodes
                .insert(spec.name.clone(), Node::new(id, spec, drawn, clock.start()));
        }
        for spec in vms {
            state.install(spec, clock);
        }
        if timings.broadcast_s > 0.0 {
            state.broadcast_all(clock.start());
        }
        state
    }

    /// A machine that nobody asked for by the API.
    pub(crate) fn install(&mut self, spec: VmSpec, clock: &Clock) {
        let VmSpec {
            vmid,
            name,
            node,
            template,
            running,
            pool,
            disks,
            config,
        } = spec;
        assert!(
            self.nodes.contains_key(&node),
            "machine {vmid} is on hypervisor '{node}', which does not exist"
        );
        assert!(
            !self.vms.contains_key(&vmid),
            "machine {vmid} is described twice"
        );
        let mut full = Config::from([("name".into(), name)]);
        full.extend(config);
        self.complete_hardware(&mut full, clock);
        for (key, disk) in disks {
            let line = self.install_disk(vmid, &node, template, &disk, clock);
            full.insert(key, line);
        }
        if template {
            full.insert("template".into(), "1".into());
        }
        self.add_vm(vmid, &node, full, "world", clock);
        if let Some(pool) = pool {
            let members = self
                .pools
                .get_mut(&pool)
                .expect("the pool of a machine is in the topology");
            members.vms.insert(vmid);
        }
        if running {
            self.power_on(vmid, clock.start());
        }
    }

    fn install_disk(
        &mut self,
        vmid: u32,
        node: &str,
        template: bool,
        disk: &DiskSpec,
        clock: &Clock,
    ) -> String {
        let storage = self
            .storages
            .get(&disk.storage)
            .expect("the storage of a disk is in the topology");
        let size = if disk.cloudinit { 4 << 20 } else { disk.size };
        let base = template && !disk.cloudinit && storage.has_base_images();
        let mut volume = Volume::new(storage, node, vmid, size, clock.unix_seconds());
        volume.used = if disk.cloudinit { size } else { size / 4 };
        let volid = self.add_volume(volume, disk.cloudinit, base);
        if disk.cloudinit {
            // The drive of a machine made by `qm create` has no size in its line; that of a clone has.
            return format!("{volid},media=cdrom");
        }
        Drive::line(&volid, &[], size)
    }

    /// Gives a new machine what Proxmox adds by itself: MAC addresses, SMBIOS UUID, generation id, creation time.
    pub(crate) fn complete_hardware(&mut self, config: &mut Config, clock: &Clock) {
        let nets: Vec<String> = config
            .keys()
            .filter(|key| is_indexed(key, "net"))
            .cloned()
            .collect();
        for key in nets {
            let with_mac = self.with_new_mac(&config[&key]);
            config.insert(key, with_mac);
        }
        let uuid = self.uuid();
        let smbios = match config.get("smbios1") {
            Some(old) => std::iter::once(format!("uuid={uuid}"))
                .chain(
                    old.split(',')
                        .filter(|part| !part.starts_with("uuid="))
                        .map(str::to_owned),
                )
                .collect::<Vec<_>>()
                .join(","),
            None => format!("uuid={uuid}"),
        };
        config.insert("smbios1".into(), smbios);
        let generation = self.uuid();
        config.insert("vmgenid".into(), generation);
        let meta = format!("creation-qemu=10.1.2,ctime={}", clock.unix_seconds());
        config.entry("meta".into()).or_insert(meta);
    }

    /// `virtio,bridge=vmbr0` → `virtio=BC:24:11:…,bridge=vmbr0`.
    pub(crate) fn with_new_mac(&mut self, net: &str) -> String {
        let (model, rest) = net
            .split_once(',')
            .map_or((net, None), |(model, rest)| (model, Some(rest)));
        let model = model.split('=').next().unwrap_or(model);
        let tail: [u8; 3] = self.rng.random();
        let mac = format!("BC:24:11:{:02X}:{:02X}:{:02X}", tail[0], tail[1], tail[2]);
        rest.map_or_else(
            || format!("{model}={mac}"),
            |rest| format!("{model}={mac},{rest}"),
        )
    }

    /// A random version 4 UUID.
    pub(crate) fn uuid(&mut self) -> String {
        let mut bytes: [u8; 16] = self.rng.random();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// A machine comes to be: every one gets its own incarnation number.
    pub(crate) fn add_vm(
        &mut self,
        vmid: u32,
        node: &str,
        config: Config,
        creator: &str,
        clock: &Clock,
    ) {
        let incarnation = self.births.len() as u64 + 1;
        self.births.push(Birth {
            incarnation,
            vmid,
            hypervisor: node.to_owned(),
            creator: creator.to_owned(),
            bare: false,
            at: clock.now(),
            destroyed: None,
        });
        let never_boots = self.duds > 0;
        self.duds = self.duds.saturating_sub(1);
        let vm = Vm {
            vmid,
            node: node.to_owned(),
            incarnation,
            creator: creator.to_owned(),
            config,
            pending: BTreeMap::new(),
            running: None,
            status: None,
            ha_managed: false,
            never_boots,
            ignores_shutdown: false,
        };
        self.vms.insert(vmid, vm);
    }

    /// A machine ceases to be, with its pool membership.
    pub(crate) fn remove_vm(&mut self, vmid: u32, clock: &Clock) {
        let Some(vm) = self.vms.remove(&vmid) else {
            return;
        };
        for pool in self.pools.values_mut() {
            pool.vms.remove(&vmid);
        }
        if let Some(birth) = self.births.get_mut(vm.incarnation as usize - 1) {
            birth.destroyed = Some(clock.now());
        }
        self.emit(MachineEvent::Destroyed {
            vmid,
            hypervisor: vm.node,
            incarnation: vm.incarnation,
        });
    }

    /// Starts the process of a machine; its guest begins to boot.
    pub(crate) fn power_on(&mut self, vmid: u32, at: Instant) {
        let pid = self.next_pid();
        let Some(vm) = self.vms.get_mut(&vmid) else {
            return;
        };
        vm.apply_pending();
        vm.running = Some(Running {
            since: at,
            pid,
            guest: Guest::default(),
        });
        let event = MachineEvent::Started {
            vmid,
            hypervisor: vm.node.clone(),
            incarnation: vm.incarnation,
            smbios_uuid: vm.smbios_uuid().unwrap_or_default(),
            name: vm.name(),
            mac: vm.mac(),
            config: vm.config.clone(),
            boots: !vm.never_boots,
        };
        self.emit(event);
    }

    /// Ends the process of a machine, if it runs.
    pub(crate) fn power_off(&mut self, vmid: u32) {
        let Some(vm) = self.vms.get_mut(&vmid) else {
            return;
        };
        if vm.running.take().is_none() {
            return;
        }
        vm.apply_pending();
        let event = MachineEvent::Stopped {
            vmid,
            hypervisor: vm.node.clone(),
            incarnation: vm.incarnation,
        };
        self.emit(event);
    }

    pub(crate) fn emit(&mut self, event: MachineEvent) {
        self.listeners
            .retain(|listener| listener.send(event.clone()).is_ok());
    }

    pub(crate) fn next_pid(&mut self) -> u32 {
        self.next_pid += self.rng.random_range(1..20);
        self.next_pid
    }

    /// The machine `vmid`, if its configuration file is on `node`.
    pub(crate) fn vm_on(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        let vm = self.vms.get(&vmid).filter(|vm| vm.node == node);
        vm.ok_or_else(|| Refusal::Failed(no_config_file(node, vmid)))
    }

    /// Like [`State::vm_on`], to change it.
    pub(crate) fn vm_on_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Vm, Refusal> {
        let vm = self.vms.get_mut(&vmid).filter(|vm| vm.node == node);
        vm.ok_or_else(|| Refusal::Failed(no_config_file(node, vmid)))
    }

    /// The pool of a machine.
    pub(crate) fn pool_of(&self, vmid: u32) -> Option<&str> {
        let mut pools = self.pools.iter();
        pools.find_map(|(name, pool)| pool.vms.contains(&vmid).then_some(name.as_str()))
    }

    pub(crate) fn has_quorum(&self) -> bool {
        self.no_quorum_since.is_none()
    }

    /// Whether the services that learn of a loss of quorum late still believe in it.
    pub(crate) fn seems_quorate(&self, now: Instant, lag: Duration) -> bool {
        self.no_quorum_since.is_none_or(|since| now < since + lag)
    }

    /// Writing a file of the cluster file system: fails without quorum, at once and always.
    pub(crate) fn write_config(&mut self, node: &str, vmid: u32) -> Result<(), String> {
        if self.has_quorum() {
            return Ok(());
        }
        let pid = self.next_pid();
        Err(format!(
            "unable to open file '/etc/pve/nodes/{node}/qemu-server/{vmid}.conf.tmp.{pid}' - Permission denied"
        ))
    }
}

/// One of two texts with which Proxmox says that there is no such machine.
pub(crate) fn no_config_file(node: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
}

/// Whether `key` is `prefix` and a number, like `net0`.
pub(crate) fn is_indexed(key: &str, prefix: &str) -> bool {
    let digits = key.strip_prefix(prefix);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

impl Node {
    fn new(id: u32, spec: HypervisorSpec, drawn_offset_s: f64, start: Instant) -> Node {
        let HypervisorSpec {
            name,
            threads,
            cores,
            memory,
            online,
            maintenance,
            bridges,
            notes,
            base_load,
            base_memory,
            broadcast_offset_s,
        } = spec;
        Node {
            name,
            id,
            threads,
            cores: cores.unwrap_or((threads / 2).max(1)),
            memory,
            notes,
            base_load,
            base_memory,
            bridges,
            presence: if online {
                Presence::Online
            } else {
                Presence::Offline
            },
            daemon: true,
            maintenance,
            up_since: start,
            workers: Arc::new(Semaphore::new(WORKERS)),
            broadcast_offset: Duration::from_secs_f64(broadcast_offset_s.unwrap_or(drawn_offset_s)),
            broadcasts: 0,
            status: None,
            address: None,
            fingerprint: None,
        }
    }

    pub(crate) fn is_online(&self) -> bool {
        self.presence == Presence::Online
    }

    /// The address that other servers and clients reach it at.
    pub(crate) fn ip(&self) -> String {
        let made_up = || format!("10.99.0.{}", self.id);
        self.address.clone().unwrap_or_else(made_up)
    }
}

impl Pool {
    pub(crate) fn new(spec: PoolSpec) -> Pool {
        Pool {
            comment: spec.comment,
            vms: BTreeSet::new(),
            storages: spec.storages.into_iter().collect(),
        }
    }
}
