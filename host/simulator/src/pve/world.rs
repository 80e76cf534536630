//! The hands of tests, faults, people and physics on the world: everything that happens without an API request.

use std::time::Duration;

use tokio::time::Instant;

use super::observe::MachineEvent;
use super::state::{Pool, Presence, State};
use super::storage::Volume;
use super::topology::{AclSpec, PoolSpec, UserSpec, VmSpec};
use super::vm::{CommandResult, Config, Vm};
use super::{Pve, pause};

/// There is no such machine, or it does not run although it would have to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no machine with VMID {0} that this could happen to")]
pub struct UnknownVm(pub u32);

impl Pve {
    /// Takes a hypervisor down with everything on it, or brings it up again with its machines stopped.
    pub fn set_hypervisor_online(&self, name: &str, online: bool) {
        let time = self.clock().unix_seconds();
        let mut state = self.state();
        let Some(node) = state.nodes.get_mut(name) else {
            return;
        };
        let presence = if online {
            Presence::Online
        } else {
            Presence::Offline
        };
        if std::mem::replace(&mut node.presence, presence) == presence {
            return;
        }
        let hypervisor = name.to_owned();
        if online {
            node.up_since = Instant::now();
            state.emit(MachineEvent::HypervisorUp { hypervisor });
        } else {
            state.crash(name, time);
            state.emit(MachineEvent::HypervisorDown { hypervisor });
        }
    }

    /// Says where a hypervisor is served, and the fingerprint of the certificate that it shows there. Without an address the
    /// made-up one stays.
    pub fn set_served(&self, name: &str, address: Option<String>, fingerprint: &str) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.address = address;
            node.fingerprint = Some(fingerprint.to_owned());
        }
    }

    /// Makes a hypervisor take connections without ever answering them, or answer again. Its machines go on.
    pub fn set_hypervisor_hung(&self, name: &str, hung: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.presence = if hung {
                Presence::Hung
            } else {
                Presence::Online
            };
        }
    }

    /// Ends a hypervisor's privileged daemon, or starts it. Everything else on the hypervisor goes on.
    pub fn set_daemon_running(&self, name: &str, running: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.daemon = running;
        }
    }

    /// Makes the guest agents refuse every command with this text, or run commands again.
    pub fn set_agents_refuse(&self, why: Option<&str>) {
        self.state().agents_refuse = why.map(str::to_owned);
    }

    /// Lets every start task fail with this text, or succeed again.
    pub fn set_starts_fail(&self, why: Option<&str>) {
        self.state().starts_fail = why.map(str::to_owned);
    }

    /// Puts a hypervisor into HA maintenance mode, or takes it out.
    pub fn set_maintenance(&self, name: &str, maintenance: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.maintenance = maintenance;
        }
    }

    /// Takes the quorum away from the side of the cluster that answers, or gives it back.
    pub fn set_quorate(&self, quorate: bool) {
        let mut state = self.state();
        state.no_quorum_since = match (quorate, state.no_quorum_since) {
            (true, _) => None,
            (false, since) => since.or_else(|| Some(Instant::now())),
        };
    }

    /// Makes a storage unreachable everywhere, or reachable again.
    pub fn set_storage_online(&self, name: &str, online: bool) {
        if let Some(storage) = self.state().storages.get_mut(name) {
            storage.online = online;
        }
    }

    /// Fills a storage with other people's data so that only `free` bytes are left (on each hypervisor, if it is local).
    pub fn fill_storage(&self, name: &str, free: u64) {
        let mut state = self.state();
        let Some(storage) = state.storages.get(name) else {
            return;
        };
        let fullest = state
            .nodes
            .keys()
            .map(|node| state.used_bytes(storage, node) - storage.base_used)
            .max()
            .unwrap_or(0);
        let base = storage
            .capacity
            .saturating_sub(free)
            .saturating_sub(fullest);
        if let Some(storage) = state.storages.get_mut(name) {
            storage.base_used = base;
        }
    }

    /// Changes the load that a hypervisor has without its machines, in threads and bytes.
    pub fn set_base_load(&self, name: &str, threads: f64, memory: u64) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.base_load = threads;
            node.base_memory = memory;
        }
    }

    /// Takes an API token away. Returns whether it existed.
    pub fn revoke_token(&self, user: &str, token: &str) -> bool {
        self.state().access.revoke(user, token)
    }

    /// Replaces the whole access control list.
    pub fn set_acl(&self, acl: Vec<AclSpec>) {
        self.state().access.set_acl(acl);
    }

    /// Replaces all users, and with them the API tokens.
    pub fn set_users(&self, users: Vec<UserSpec>) {
        self.state().access.set_users(users);
    }

    /// Replaces the pools. Those of the same name keep their members.
    pub fn set_pools(&self, pools: Vec<PoolSpec>) {
        let mut state = self.state();
        let mut before = std::mem::take(&mut state.pools);
        let pools = pools.into_iter().map(|spec| {
            let name = spec.name.clone();
            let kept = before.remove(&name);
            (name, kept.unwrap_or_else(|| Pool::new(spec)))
        });
        state.pools = pools.collect();
    }

    /// A person makes a machine or a template, with its disks.
    ///
    /// # Panics
    /// The description contradicts the cluster, as in [`Pve::new`].
    pub fn human_makes(&self, spec: VmSpec) {
        let clock = self.clock();
        self.state().install(spec, &clock);
    }

    /// A person clones a machine in the web interface: all configuration keys are copied, the description too.
    pub fn human_clones_vm(&self, source: u32, new: u32, name: &str) -> Result<(), UnknownVm> {
        let clock = self.clock();
        let mut state = self.state();
        if state.vms.contains_key(&new) {
            return Err(UnknownVm(new));
        }
        let vm = state.vms.get(&source).ok_or(UnknownVm(source))?;
        let node = vm.node.clone();
        let drives = vm.drives();
        let mut config: Config = vm.config.clone();
        config.retain(|key, _| {
            !matches!(key.as_str(), "template" | "lock")
                && drives.iter().all(|drive| drive.key != *key)
        });
        config.insert("name".into(), name.into());
        for drive in drives.into_iter().filter(|drive| !drive.is_foreign()) {
            let Some(mut volume) = state.volume(&node, &drive.volid).cloned() else {
                continue;
            };
            let size = volume.size;
            volume.vmid = new;
            volume.parent = None;
            let volid = state.add_volume(volume, drive.is_cloudinit(), false);
            config.insert(
                drive.key.clone(),
                super::vm::Drive::line(&volid, &drive.options, size),
            );
        }
        state.complete_hardware(&mut config, &clock);
        state.add_vm(new, &node, config, "human:root@pam", &clock);
        Ok(())
    }

    /// A person stops and destroys a machine with its disks.
    pub fn human_destroys(&self, vmid: u32) -> Result<(), UnknownVm> {
        let clock = self.clock();
        let mut state = self.state();
        let vm = state.vms.get(&vmid).ok_or(UnknownVm(vmid))?;
        let node = vm.node.clone();
        let drives = vm.drives();
        state.power_off(vmid);
        for drive in drives.into_iter().filter(|drive| !drive.is_foreign()) {
            if let Some(key) = state.volume_key(&node, &drive.volid) {
                state.volumes.remove(&key);
            }
        }
        state.remove_vm(vmid, &clock);
        Ok(())
    }

    /// A person removes what an interrupted clone left, by `qm unlock`, `qm destroy` and `pvesm free`: the configuration, which does not name the disks that
    /// were made for it yet, and on that server each disk of its number.
    pub fn human_clears_clone(&self, vmid: u32) -> Result<(), UnknownVm> {
        let clock = self.clock();
        let mut state = self.state();
        let node = state.vms.get(&vmid).ok_or(UnknownVm(vmid))?.node.clone();
        let is_here = |volume: &Volume| volume.node.is_empty() || volume.node == node;
        state
            .volumes
            .retain(|_, volume| volume.vmid != vmid || !is_here(volume));
        state.remove_vm(vmid, &clock);
        Ok(())
    }

    /// A person edits the notes of a machine.
    pub fn human_edits_description(&self, vmid: u32, text: &str) -> Result<(), UnknownVm> {
        self.human_sets(vmid, "description", Some(text))
    }

    /// A person changes any key of a machine's configuration; `None` deletes it.
    pub fn human_sets(&self, vmid: u32, key: &str, value: Option<&str>) -> Result<(), UnknownVm> {
        self.with_vm(vmid, |vm| {
            match value {
                Some(value) => vm.config.insert(key.to_owned(), value.to_owned()),
                None => vm.config.remove(key),
            };
        })
    }

    /// A person pulls a machine's plug.
    pub fn human_stops(&self, vmid: u32) -> Result<(), UnknownVm> {
        let mut state = self.state();
        state
            .vms
            .get(&vmid)
            .filter(|vm| vm.running.is_some())
            .ok_or(UnknownVm(vmid))?;
        state.power_off(vmid);
        Ok(())
    }

    /// A person starts a machine.
    pub fn human_starts(&self, vmid: u32) -> Result<(), UnknownVm> {
        let mut state = self.state();
        state
            .vms
            .get(&vmid)
            .filter(|vm| vm.running.is_none())
            .ok_or(UnknownVm(vmid))?;
        state.power_on(vmid, Instant::now());
        Ok(())
    }

    /// A person migrates a machine, with its local disks.
    pub fn human_migrates(&self, vmid: u32, hypervisor: &str) -> Result<(), UnknownVm> {
        self.with_vm(vmid, |vm| vm.node = hypervisor.to_owned())?;
        let mut state = self.state();
        let volumes = std::mem::take(&mut state.volumes).into_values();
        let moved = volumes.map(|mut volume| {
            if volume.vmid == vmid && !volume.node.is_empty() {
                volume.node = hypervisor.to_owned();
            }
            (volume.key(), volume)
        });
        state.volumes = moved.collect();
        Ok(())
    }

    /// A person moves a machine into a pool, or out of all.
    pub fn human_sets_pool(&self, vmid: u32, pool: Option<&str>) -> Result<(), UnknownVm> {
        let mut state = self.state();
        state.vms.get(&vmid).ok_or(UnknownVm(vmid))?;
        for (name, members) in &mut state.pools {
            members.vms.remove(&vmid);
            if Some(name.as_str()) == pool {
                members.vms.insert(vmid);
            }
        }
        Ok(())
    }

    /// Something on a hypervisor (a backup, a person's `qm`) holds the lock of a machine's configuration for a while.
    pub fn human_holds_lock(&self, vmid: u32, length: Duration) -> Result<(), UnknownVm> {
        let node = self
            .state()
            .vms
            .get(&vmid)
            .ok_or(UnknownVm(vmid))?
            .node
            .clone();
        let pve = self.clone();
        self.spawn(async move {
            if let Ok(_held) = pve.locks().config(&node, vmid, length, |_| ()).await {
                pause(length).await;
            }
        });
        Ok(())
    }

    /// Puts a machine under the HA manager, or takes it out.
    pub fn set_ha_managed(&self, vmid: u32, managed: bool) -> Result<(), UnknownVm> {
        self.with_vm(vmid, |vm| vm.ha_managed = managed)
    }

    /// Makes a machine's guest never come up, from its next start on.
    pub fn set_never_boots(&self, vmid: u32, never: bool) -> Result<(), UnknownVm> {
        self.with_vm(vmid, |vm| vm.never_boots = never)
    }

    /// Makes the guests of the next `count` machines that come to be never come up.
    pub fn set_next_never_boot(&self, count: u32) {
        self.state().duds = count;
    }

    /// Makes a machine's guest ignore orderly shutdowns.
    pub fn set_ignores_shutdown(&self, vmid: u32, ignores: bool) -> Result<(), UnknownVm> {
        self.with_vm(vmid, |vm| vm.ignores_shutdown = ignores)
    }

    /// A cloud-init volume of this number stays behind, as after a removal with warnings.
    pub fn leave_cloudinit(&self, vmid: u32, storage: &str, hypervisor: &str) {
        let mut state = self.state();
        let now = self.clock().now().as_second();
        let volume = Volume::new(&state.storages[storage], hypervisor, vmid, 4 << 20, now);
        state.add_volume(volume, true, false);
    }

    /// A task of somebody else dies that has just taken the lock of this shared storage.
    pub fn lose_lock(&self, storage: &str) {
        self.locks().lose(storage);
    }

    /// A person removes every volume that bears this number.
    pub fn human_frees_volumes(&self, vmid: u32) {
        let mut state = self.state();
        state.volumes.retain(|_, volume| volume.vmid != vmid);
    }

    /// Makes every disk of a machine impossible to remove, so that destroying it ends with warnings.
    pub fn set_disks_stuck(&self, vmid: u32, stuck: bool) {
        let mut state = self.state();
        state
            .volumes
            .values_mut()
            .filter(|volume| volume.vmid == vmid)
            .for_each(|volume| volume.stuck = stuck);
    }

    /// The physics says that the guest agent of a running machine answers, or does not any more.
    pub fn set_agent_ready(&self, vmid: u32, ready: bool) -> Result<(), UnknownVm> {
        self.with_guest(vmid, |guest| guest.agent = ready)
    }

    /// The physics says what the guest calls itself and which addresses it has.
    pub fn set_guest(
        &self,
        vmid: u32,
        hostname: &str,
        addresses: &[String],
    ) -> Result<(), UnknownVm> {
        self.with_guest(vmid, |guest| {
            guest.hostname = Some(hostname.to_owned());
            guest.addresses = addresses.to_vec();
        })
    }

    /// The physics says that the guest has no program that its agent could start.
    pub fn take_shell(&self, vmid: u32) -> Result<(), UnknownVm> {
        self.with_guest(vmid, |guest| guest.has_no_shell = true)
    }

    /// The physics says how a command ended that the guest agent was asked to run.
    pub fn complete_exec(
        &self,
        vmid: u32,
        pid: u32,
        result: CommandResult,
    ) -> Result<(), UnknownVm> {
        self.with_guest(vmid, |guest| {
            if let Some(command) = guest.commands.get_mut(&pid) {
                command.result = Some(result);
            }
        })
    }

    /// A file that was written into a running guest.
    pub fn guest_file(&self, vmid: u32, path: &str) -> Option<String> {
        let state = self.state();
        state
            .vms
            .get(&vmid)?
            .running
            .as_ref()?
            .guest
            .files
            .get(path)
            .cloned()
    }

    fn with_vm(&self, vmid: u32, change: impl FnOnce(&mut Vm)) -> Result<(), UnknownVm> {
        let mut state = self.state();
        change(state.vms.get_mut(&vmid).ok_or(UnknownVm(vmid))?);
        Ok(())
    }

    fn with_guest(
        &self,
        vmid: u32,
        change: impl FnOnce(&mut super::vm::Guest),
    ) -> Result<(), UnknownVm> {
        let mut state = self.state();
        let running = state
            .vms
            .get_mut(&vmid)
            .and_then(|vm| vm.running.as_mut())
            .ok_or(UnknownVm(vmid))?;
        change(&mut running.guest);
        Ok(())
    }
}

impl State {
    /// A server stops at once: its tasks die where they are, its machines stop.
    fn crash(&mut self, name: &str, time: i64) {
        let tasks = self
            .tasks
            .values_mut()
            .filter(|task| task.node == name && task.is_running());
        tasks.for_each(|task| task.kill(time, "unexpected status"));
        let on_it = self
            .vms
            .values()
            .filter(|vm| vm.node == name && vm.running.is_some());
        let running: Vec<u32> = on_it.map(|vm| vm.vmid).collect();
        for vmid in running {
            self.power_off(vmid);
        }
    }
}
