//! Cloning: from the request's checks to the last step of the task, which puts the new machine into its pool.

use std::time::Duration;

use super::access::Identity;
use super::answer::{Answer, Refusal};
use super::serve::Call;
use super::state::{State, is_indexed};
use super::storage::{Storage, Volume};
use super::tasks::Worker;
use super::vm::{Config, Drive};
use super::{Pve, pause};

/// A clone waits this long for the locks of its source and of the new VMID.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// What is to be cloned where.
struct Order {
    source: u32,
    new: u32,
    node: String,
    target: String,
    full: bool,
    storage: Option<String>,
    name: Option<String>,
    description: Option<String>,
    pool: Option<String>,
    who: Identity,
}

/// `POST /nodes/{node}/qemu/{vmid}/clone`
pub(crate) async fn clone(call: Call) -> Answer {
    let order = {
        let mut state = call.pve.state();
        let order = Order::read(&call, &state)?;
        order.check(&mut state, &call)?;
        order
    };
    let source = order.source.to_string();
    let who = call.who.clone();
    Ok(call.pve.start_task(
        &call.node,
        "qmclone",
        &source,
        &who,
        |pve, worker| async move { order.carry_out(&pve, &worker).await },
    ))
}

impl Order {
    fn read(call: &Call, state: &State) -> Result<Order, Refusal> {
        let source = call.vmid();
        let params = &call.params;
        let Ok(vm) = state.vm_on(&call.node, source) else {
            return Err(Refusal::Failed(format!(
                "unable to find configuration file for VM {source} on node '{}'",
                call.node
            )));
        };
        let text = |name| params.get(name).map(str::to_owned);
        Ok(Order {
            source,
            new: params
                .integer("newid")
                .and_then(|id| u32::try_from(id).ok())
                .unwrap_or(0),
            node: call.node.clone(),
            target: text("target").unwrap_or_else(|| call.node.clone()),
            full: params.flag("full").unwrap_or(!vm.is_template()),
            storage: text("storage"),
            name: text("name"),
            description: text("description"),
            pool: text("pool"),
            who: call.who.clone(),
        })
    }

    /// What the server checks before it answers.
    fn check(&self, state: &mut State, call: &Call) -> Result<(), Refusal> {
        if let Some(pool) = self
            .pool
            .as_ref()
            .filter(|pool| !state.pools.contains_key(*pool))
        {
            return Err(Refusal::Forbidden(format!("pool '{pool}' does not exist")));
        }
        if !state.nodes.contains_key(&self.target) {
            return Err(Refusal::Failed(format!(
                "no such cluster node '{}'",
                self.target
            )));
        }
        let lag = Duration::from_secs_f64(call.pve.timings().quorum_lag_s);
        if !state.seems_quorate(tokio::time::Instant::now(), lag) {
            return Err(Refusal::failed("cluster not ready - no quorum?"));
        }
        for (given, name) in [
            (self.storage.is_some(), "storage"),
            (call.params.get("format").is_some(), "format"),
        ] {
            if given && !self.full {
                return Err(Refusal::Failed(format!(
                    "parameter '{name}' not allowed for linked clones"
                )));
            }
        }
        let source = state.vm_on(&self.node, self.source)?;
        if let Some(lock) = source.lock() {
            return Err(Refusal::Failed(format!("VM is locked ({lock})")));
        }
        if state
            .vms
            .get(&self.new)
            .is_some_and(|vm| vm.node == self.node)
        {
            return Err(Refusal::Failed(format!(
                "unable to create VM {}: config file already exists",
                self.new
            )));
        }
        // What is attached no more is not looked at: it stays behind.
        for drive in source.drives() {
            if !drive.key.starts_with("unused") {
                self.check_drive(state, &drive)?;
            }
        }
        let interfaces = source.config.iter();
        for (_, interface) in interfaces.filter(|(key, _)| is_indexed(key, "net")) {
            state.require_network(&self.who, interface)?;
        }
        Ok(())
    }

    fn check_drive(&self, state: &State, drive: &Drive) -> Result<(), Refusal> {
        let storage = state
            .check_storage(drive.storage(), &self.node)
            .map_err(Refusal::Failed)?;
        if self.target != self.node && !storage.shared {
            return Err(Refusal::Failed(format!(
                "can't clone VM to node '{}' (VM uses local storage)",
                self.target
            )));
        }
        if drive.is_foreign() {
            return Ok(());
        }
        let volume = state.volume(&self.node, &drive.volid);
        let is_base = volume.is_some_and(|volume| volume.name.contains("base-"));
        if !self.copies(drive) && !is_base {
            return Err(Refusal::Failed(format!(
                "Linked clone feature is not supported for '{}' ({})",
                drive.volid, drive.key
            )));
        }
        let target = state
            .check_storage(self.storage_for(drive), &self.target)
            .map_err(Refusal::Failed)?;
        if self.target != self.node && !target.shared {
            return Err(Refusal::Failed(format!(
                "can't clone to non-shared storage '{}'",
                target.name
            )));
        }
        state.require(
            &self.who,
            &format!("/storage/{}", target.name),
            "Datastore.AllocateSpace",
        )
    }

    /// Whether this drive is made anew rather than linked: always for cloud-init drives.
    fn copies(&self, drive: &Drive) -> bool {
        self.full || drive.is_cloudinit()
    }

    fn storage_for<'a>(&'a self, drive: &'a Drive) -> &'a str {
        match &self.storage {
            Some(storage) if self.full => storage,
            Some(_) | None => drive.storage(),
        }
    }

    async fn carry_out(self, pve: &Pve, worker: &Worker) -> Result<(), String> {
        let locks = pve.locks();
        let log = |line: &str| worker.log(line);
        let _source = locks
            .config_shared(&self.node, self.source, LOCK_TIMEOUT, log)
            .await?;
        let _new = locks
            .config(&self.node, self.new, LOCK_TIMEOUT, log)
            .await?;
        worker.log(&format!(
            "creating a clone of VM {} with ID {}",
            self.source, self.new
        ));
        let source = self.create_file(pve)?;
        let mut config = source.clone();
        let mut made = Vec::new();
        match self
            .clone_drives(pve, worker, &mut config, &mut made)
            .await
            .and_then(|()| self.finish(pve, config))
        {
            Ok(()) => self.join_pool(pve),
            Err(why) => {
                self.undo(pve, &made);
                Err(format!("clone failed: {why}"))
            }
        }
    }

    /// Takes the VMID by making a temporary configuration, and returns the configuration of the source.
    fn create_file(&self, pve: &Pve) -> Result<Config, String> {
        let mut state = pve.state();
        if let Some(other) = state.vms.get(&self.new) {
            return Err(if other.node == self.node {
                format!(
                    "unable to create VM {}: config file already exists",
                    self.new
                )
            } else {
                format!(
                    "close (rename) atomic file '/etc/pve/nodes/{}/qemu-server/{}.conf' failed: File exists",
                    self.node, self.new
                )
            });
        }
        state.write_config(&self.node, self.new)?;
        let source = state
            .vm_on(&self.node, self.source)
            .map_err(|refusal| refusal.text())?
            .config
            .clone();
        let temporary = Config::from([
            (
                "description".to_owned(),
                " qmclone temporary file".to_owned(),
            ),
            ("lock".to_owned(), "clone".to_owned()),
        ]);
        state.add_vm(
            self.new,
            &self.node,
            temporary,
            &self.who.full(),
            &pve.clock(),
        );
        Ok(source)
    }

    async fn clone_drives(
        &self,
        pve: &Pve,
        worker: &Worker,
        config: &mut Config,
        made: &mut Vec<String>,
    ) -> Result<(), String> {
        let drives: Vec<Drive> = pve
            .state()
            .vms
            .get(&self.source)
            .map(|vm| vm.drives())
            .unwrap_or_default();
        for drive in drives {
            if drive.key.starts_with("unused") {
                config.remove(&drive.key);
                continue;
            }
            if drive.is_foreign() {
                continue;
            }
            let (volid, size) = self.clone_drive(pve, worker, &drive, made).await?;
            config.insert(drive.key.clone(), Drive::line(&volid, &drive.options, size));
            pve.state().write_config(&self.node, self.new)?;
        }
        Ok(())
    }

    async fn clone_drive(
        &self,
        pve: &Pve,
        worker: &Worker,
        drive: &Drive,
        made: &mut Vec<String>,
    ) -> Result<(String, u64), String> {
        let copies = self.copies(drive);
        let how = if copies { "full" } else { "linked" };
        worker.log(&format!(
            "create {how} clone of drive {} ({})",
            drive.key, drive.volid
        ));
        let storage = self.storage_for(drive);
        let _lock = pve.lock_storage(&self.node, storage, worker).await?;
        let timings = {
            let state = pve.state();
            pve.timings()
                .storage(state.check_storage(storage, &self.node)?.kind)
                .clone()
        };
        let stream = format!("{}/{}", self.new, drive.key);
        pve.take(timings.lock, "clone-lock", &stream).await;
        let (volid, size, lines) =
            pve.state()
                .allocate_clone(self, drive, pve.clock().unix_seconds())?;
        made.push(volid.clone());
        lines.iter().for_each(|line| worker.log(line));
        drop(_lock);
        if !drive.is_cloudinit() {
            let rest = if copies {
                let gib = size as f64 / (1u64 << 30) as f64;
                timings
                    .copy_per_gib
                    .sample(&mut pve.rng("clone-copy", &stream))
                    .mul_f64(gib)
            } else {
                timings
                    .clone_linked
                    .sample(&mut pve.rng("clone-rest", &stream))
            };
            pause(rest).await;
        }
        if copies && !drive.is_cloudinit() {
            worker.log(&format!(
                "transferred {0} of {0} (100.00%)",
                super::vm::size_text(size)
            ));
        }
        Ok((volid, size))
    }

    /// Writes the final configuration, on the target server.
    fn finish(&self, pve: &Pve, mut config: Config) -> Result<(), String> {
        let mut state = pve.state();
        state.write_config(&self.node, self.new)?;
        for dropped in ["template", "lock", "parent", "snaptime"] {
            config.remove(dropped);
        }
        let template_name = config
            .get("name")
            .cloned()
            .unwrap_or_else(|| format!("VM{}", self.source));
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| format!("Copy-of-VM-{template_name}"));
        config.insert("name".into(), name);
        if let Some(description) = &self.description {
            config.insert("description".into(), description.clone());
        }
        state.complete_hardware(&mut config, &pve.clock());
        let Some(vm) = state.vms.get_mut(&self.new) else {
            return Err(format!(
                "Configuration file 'nodes/{}/qemu-server/{}.conf' does not exist",
                self.node, self.new
            ));
        };
        vm.config = config;
        vm.node.clone_from(&self.target);
        let incarnation = vm.incarnation;
        if let Some(birth) = state.births.get_mut(incarnation as usize - 1) {
            birth.hypervisor.clone_from(&self.target);
        }
        Ok(())
    }

    fn join_pool(&self, pve: &Pve) -> Result<(), String> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let mut state = pve.state();
        if !state.has_quorum() {
            return Err("cfs-lock 'file-user_cfg' error: no quorum!".into());
        }
        if let Some(pool) = state.pools.get_mut(pool) {
            pool.vms.insert(self.new);
        }
        Ok(())
    }

    /// Frees what the failed clone made. Without quorum the configuration cannot be removed and stays, locked.
    fn undo(&self, pve: &Pve, made: &[String]) {
        let mut state = pve.state();
        for volid in made {
            if let Some(key) = state.volume_key(&self.node, volid) {
                state.volumes.remove(&key);
            }
        }
        if state.has_quorum() {
            state.remove_vm(self.new, &pve.clock());
        }
    }
}

impl State {
    /// Makes the volume of one cloned drive; returns its volume id, its size and what the task log says.
    fn allocate_clone(
        &mut self,
        order: &Order,
        drive: &Drive,
        now: i64,
    ) -> Result<(String, u64, Vec<String>), String> {
        let missing = || format!("volume '{}' does not exist", drive.volid);
        let source = self
            .volume(&order.node, &drive.volid)
            .cloned()
            .ok_or_else(missing)?;
        let storage = self.check_storage(order.storage_for(drive), &order.node)?;
        let mut volume = Volume::new(storage, &order.node, order.new, source.size, now);
        let copies = order.copies(drive);
        if copies && !drive.is_cloudinit() {
            volume.used = volume.used.max(source.used);
        }
        if !copies {
            volume.parent = Some(source.name.clone());
        }
        self.check_space(
            storage,
            &order.node,
            volume.used,
            &format!("vm-{}-disk-0", order.new),
        )?;
        if drive.is_cloudinit() {
            self.refuse_second_cloudinit(&volume)?;
        }
        let volid = self.add_volume(volume, drive.is_cloudinit(), false);
        let storage = &self.storages[order.storage_for(drive)];
        let lines = log_lines(storage, &source, &volid, order.new, copies);
        Ok((volid, source.size, lines))
    }
}

/// What the storage's tools print.
fn log_lines(
    storage: &Storage,
    source: &Volume,
    volid: &str,
    new: u32,
    copies: bool,
) -> Vec<String> {
    let leaf = volid.rsplit('/').next().unwrap_or(volid);
    let leaf = leaf.rsplit(':').next().unwrap_or(leaf);
    let size = source.size;
    match (storage.is_files(), copies) {
        (true, true) => vec![
            format!(
                "Formatting '{}/images/{new}/{leaf}', fmt=qcow2 cluster_size=65536 extended_l2=off \
                 preallocation=metadata compression_type=zlib size={size} lazy_refcounts=off refcount_bits=16",
                storage.path()
            ),
            format!("allocated target volume '{volid}'"),
        ],
        (true, false) => {
            let base = &source.name;
            vec![
                format!("clone {base}: images, {leaf}, {new} to {leaf} (base=../{base})"),
                format!(
                    "Formatting '{}/images/{new}/{leaf}', fmt=qcow2 cluster_size=131072 extended_l2=on \
                     preallocation=metadata compression_type=zlib size={size} backing_file=../{base} \
                     backing_fmt=qcow2 lazy_refcounts=off refcount_bits=16",
                    storage.path()
                ),
            ]
        }
        (false, true) => vec![format!("  Logical volume \"{leaf}\" created.")],
        (false, false) => vec![format!(
            "clone {}: images, {leaf}, {new} to {leaf}",
            source.name
        )],
    }
}
