//! Reading and changing a machine's configuration.

mod keys;

pub(crate) use keys::{normalize as normalized, privileges_of};

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::Pve;
use super::access::Identity;
use super::answer::{Answer, Refusal, Reply};
use super::locks::Killed;
use super::resize::{CONFIG_LOCK_TIMEOUT, root_only_skiplock};
use super::serve::Call;
use super::state::{State, is_indexed};
use super::storage::Volume;
use super::tasks::Worker;
use super::vm::{Drive, Vm, is_drive_key, parse_size, value_json};

/// Parameters that steer a change and are no keys of the configuration.
const STEERING: [&str; 7] = [
    "background_delay",
    "delete",
    "digest",
    "force",
    "import-working-storage",
    "revert",
    "skiplock",
];

/// `GET /nodes/{node}/qemu/{vmid}/config`
pub(crate) async fn get(call: Call) -> Answer {
    let state = call.pve.state();
    let vm = state.vm_on(&call.node, call.vmid())?;
    if let Some(snapshot) = call.params.get("snapshot") {
        return Err(Refusal::Failed(format!(
            "snapshot '{snapshot}' does not exist"
        )));
    }
    Ok(vm
        .config_json(call.params.flag("current") == Some(true))
        .into())
}

/// `GET /nodes/{node}/qemu/{vmid}/pending`
pub(crate) async fn pending(call: Call) -> Answer {
    let state = call.pve.state();
    let vm = state.vm_on(&call.node, call.vmid())?;
    let keys: BTreeSet<&String> = vm.config.keys().chain(vm.pending.keys()).collect();
    let mut entries: Vec<Value> = Vec::new();
    for key in keys {
        let mut entry = json!({"key": key});
        if let Some(value) = vm.get(key) {
            entry["value"] = value_json(key, value);
        }
        match vm.pending.get(key) {
            Some(Some(value)) => entry["pending"] = value_json(key, value),
            Some(None) => entry["delete"] = 1.into(),
            None => {}
        }
        entries.push(entry);
    }
    entries.push(json!({"key": "digest", "value": vm.digest()}));
    Ok(Value::from(entries).into())
}

/// `PUT /nodes/{node}/qemu/{vmid}/cloudinit`: writes the cloud-init drive anew.
pub(crate) async fn cloudinit(call: Call) -> Answer {
    let vmid = call.vmid();
    let locks = call.pve.locks();
    let lock = locks
        .config(&call.node, vmid, CONFIG_LOCK_TIMEOUT, |_| ())
        .await;
    let _lock = lock.map_err(Refusal::Failed)?;
    let mut state = call.pve.state();
    let vm = state.vm_on(&call.node, vmid)?;
    if let Some(lock) = vm.lock() {
        return Err(Refusal::Failed(format!("VM is locked ({lock})")));
    }
    state
        .write_config(&call.node, vmid)
        .map_err(Refusal::Failed)?;
    Ok(Reply::null())
}

/// `PUT /nodes/{node}/qemu/{vmid}/config`: answers when it is done.
pub(crate) async fn put(call: Call) -> Answer {
    let change = Change::read(&call)?;
    change.check_drives(&call.pve.state())?;
    let applied = change.apply(&call.pve, None).await;
    applied.map_err(Refusal::Failed)?;
    Ok(Reply::null())
}

/// `POST /nodes/{node}/qemu/{vmid}/config`: the same as a task. The privileges that drives need are asked for in the task alone.
pub(crate) async fn post(call: Call) -> Answer {
    let change = Change::read(&call)?;
    change
        .check_digest(&call.pve.state())
        .map_err(Refusal::Failed)?;
    let delay = call
        .params
        .integer("background_delay")
        .map(|seconds| seconds.max(0) as u64);
    let length = call.pve.timings().config;
    let number = call.number.to_string();
    let id = call.vmid().to_string();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let reply = call.pve.start_task(
        &call.node,
        "qmconfig",
        &id,
        &call.who,
        move |pve, worker| async move {
            worker.log(&format!("update VM {}: {}", change.vmid, change.options()));
            pve.take(length, "config", &number).await;
            let may = change.check_drives(&pve.state());
            let result = match may {
                Ok(()) => change.apply(&pve, Some(&worker)).await,
                Err(refusal) => Err(refusal.of_task()),
            };
            // Nobody waits when no delay was asked for.
            let _ = sender.send(result.clone());
            result
        },
    );
    let Some(delay) = delay else { return Ok(reply) };
    match tokio::time::timeout(Duration::from_secs(delay), receiver).await {
        Ok(Ok(Ok(()))) => Ok(Reply::null()),
        Ok(Ok(Err(text))) => Err(Refusal::Failed(text)),
        Ok(Err(_)) | Err(_) => Ok(reply),
    }
}

/// A change that passed every check that does not need the configuration itself.
struct Change {
    node: String,
    vmid: u32,
    who: Identity,
    set: Vec<(String, String)>,
    delete: Vec<String>,
    digest: Option<String>,
}

impl Change {
    fn read(call: &Call) -> Result<Change, Refusal> {
        root_only_skiplock(call)?;
        let params = &call.params;
        let given = params.iter().filter(|(name, _)| !STEERING.contains(name));
        let mut set: Vec<(String, String)> = given
            .filter_map(|(name, values)| Some((name.to_owned(), values.last()?.clone())))
            .collect();
        let list = params
            .get("delete")
            .unwrap_or_default()
            .split([',', ';', ' '])
            .filter(|key| !key.is_empty());
        let delete: Vec<String> = list.map(str::to_owned).collect();
        if set.is_empty() && delete.is_empty() && params.get("revert").is_none() {
            return Err(Refusal::failed("no options specified"));
        }
        for (key, value) in &mut set {
            *value = keys::normalize(key, value)?;
        }
        let change = Change {
            node: call.node.clone(),
            vmid: call.vmid(),
            who: call.who.clone(),
            set,
            delete,
            digest: params.get("digest").map(str::to_owned),
        };
        keys::check_privileges(call, change.keys())?;
        call.pve.state().vm_on(&change.node, change.vmid)?;
        Ok(change)
    }

    /// What is set, and, without a value, what is deleted.
    fn keys(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let set = self.set.iter();
        let set = set.map(|(key, value)| (key.as_str(), Some(value.as_str())));
        set.chain(self.delete.iter().map(|key| (key.as_str(), None)))
    }

    /// What the drives need, which depends on their values.
    fn check_drives(&self, state: &State) -> Result<(), Refusal> {
        if self.who.is_root() {
            return Ok(());
        }
        let vm = format!("/vms/{}", self.vmid);
        let mut drives = self.keys().filter(|(key, _)| is_drive_key(key));
        drives.try_for_each(|(key, value)| {
            state.require_any(&self.who, &vm, privileges_of(key, value))
        })
    }

    /// The change as the task log shows it.
    fn options(&self) -> String {
        let set = self
            .set
            .iter()
            .map(|(key, value)| format!("-{key} {value}"));
        let delete =
            (!self.delete.is_empty()).then(|| format!("-delete {}", self.delete.join(",")));
        set.chain(delete).collect::<Vec<_>>().join(" ")
    }

    /// `worker`: of the task, if there is one.
    async fn apply(&self, pve: &Pve, worker: Option<&Worker>) -> Result<(), String> {
        let _lock = pve
            .locks()
            .config(&self.node, self.vmid, CONFIG_LOCK_TIMEOUT, |_| ())
            .await?;
        self.check(&pve.state())?;
        let mut set = self.set.clone();
        for (key, value) in set.iter_mut().filter(|(key, _)| is_drive_key(key)) {
            *value = self.allocate(pve, worker, key, value).await?;
        }
        let mut state = pve.state();
        // Allocating waits for a storage, and meanwhile the quorum can go.
        state.write_config(&self.node, self.vmid)?;
        for (_, value) in set
            .iter_mut()
            .filter(|(key, value)| is_indexed(key, "net") && !value.contains(':'))
        {
            *value = state.with_new_mac(value);
        }
        let Some(vm) = state.vms.get_mut(&self.vmid) else {
            return Ok(());
        };
        let mut freed = Vec::new();
        for key in &self.delete {
            if vm.running.is_some() && !keys::hot_plugs(key) {
                vm.pending.insert(key.clone(), None);
            } else {
                let old = vm.config.remove(key);
                vm.pending.remove(key);
                freed.extend(taken_out(vm, key, old));
            }
        }
        for (key, value) in set {
            if vm.running.is_some() && !keys::hot_plugs(&key) && vm.get(&key) != Some(&value) {
                vm.pending.insert(key, Some(value));
            } else {
                vm.pending.remove(&key);
                let old = vm
                    .config
                    .insert(key.clone(), value)
                    .filter(|old| vm.config.get(&key) != Some(old));
                freed.extend(taken_out(vm, &key, old));
            }
        }
        for volid in freed {
            if let Some(key) = state.volume_key(&self.node, &volid) {
                state.volumes.remove(&key);
            }
        }
        Ok(())
    }

    fn check_digest(&self, state: &State) -> Result<(), String> {
        let vm = state
            .vm_on(&self.node, self.vmid)
            .map_err(|refusal| refusal.text())?;
        let given = self.digest.as_ref();
        if given.is_some_and(|digest| *digest != vm.digest()) {
            return Err("checksum mismatch (file change by other user?)".into());
        }
        Ok(())
    }

    fn check(&self, state: &State) -> Result<(), String> {
        self.check_digest(state)?;
        let vm = state
            .vm_on(&self.node, self.vmid)
            .map_err(|refusal| refusal.text())?;
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        let value = |key: &str| {
            let set = self
                .set
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.as_str());
            set.or_else(|| vm.get_pending(key))
                .and_then(|value| value.parse::<u64>().ok())
        };
        if let (Some(balloon), Some(memory)) = (value("balloon"), value("memory"))
            && balloon > memory
        {
            return Err("balloon value too large (must be smaller than assigned memory)".into());
        }
        Ok(())
    }

    /// Makes the volume that `storage:size` or `storage:cloudinit` asks for, and returns the line for it. Any other value
    /// names a volume that exists.
    async fn allocate(
        &self,
        pve: &Pve,
        worker: Option<&Worker>,
        key: &str,
        value: &str,
    ) -> Result<String, String> {
        let Some(drive) = Drive::parse(key, value) else {
            return Ok(value.to_owned());
        };
        let (storage, name) = drive.volid.split_once(':').unwrap_or((&drive.volid, ""));
        let cloudinit = name == "cloudinit";
        // A bare number is a size in GiB.
        let size = if cloudinit {
            Some(4 << 20)
        } else {
            name.parse::<f64>()
                .ok()
                .and_then(|_| parse_size(&format!("{name}G")))
        };
        let Some(size) = size else {
            let state = pve.state();
            let exists = drive.is_foreign() || state.volume(&self.node, &drive.volid).is_some();
            return if exists {
                Ok(value.to_owned())
            } else {
                Err(format!("volume '{}' does not exist", drive.volid))
            };
        };
        let held = pve.locks();
        let log = |line: &str| {
            if let Some(worker) = worker {
                worker.log(line);
            }
        };
        let shared = pve.state().check_storage(storage, &self.node)?.shared;
        let _lock = if shared {
            let killed = worker.map_or_else(Killed::default, |worker| worker.killed.clone());
            held.shared_storage(storage, &killed, || pve.state().has_quorum(), log)
                .await?
        } else {
            held.local_storage(&self.node, storage, log).await?
        };
        let now = pve.clock().unix_seconds();
        let mut state = pve.state();
        let storage = state.check_storage(storage, &self.node)?;
        let volume = Volume::new(storage, &self.node, self.vmid, size, now);
        state.check_space(
            storage,
            &self.node,
            volume.used,
            &format!("vm-{}-disk-0", self.vmid),
        )?;
        let volid = state.add_volume(volume, cloudinit, false);
        let mut options: Vec<String> = drive
            .options
            .iter()
            .filter(|option| !option.starts_with("format="))
            .cloned()
            .collect();
        if cloudinit {
            options.retain(|option| option != "media=cdrom");
            options.push("media=cdrom".into());
        }
        Ok(Drive::line(&volid, &options, size))
    }
}

/// A disk that is taken out of a machine stays as `unusedN`. An ISO image does not. Nor does the cloud-init drive: its volume, which this returns, is
/// freed, unless the machine runs.
fn taken_out(vm: &mut Vm, key: &str, old: Option<String>) -> Option<String> {
    let drive = Drive::parse(key, &old?)?;
    // Other options of the same volume: nothing was taken out.
    let now = vm.get(key).and_then(|line| Drive::parse(key, line));
    if now.is_some_and(|now| now.volid == drive.volid) {
        return None;
    }
    if drive.is_cloudinit() {
        return vm.running.is_none().then_some(drive.volid);
    }
    if drive.is_cdrom() || key.starts_with("unused") {
        return None;
    }
    let mut slots = (0..256).map(|n| format!("unused{n}"));
    let slot = slots.find(|slot| !vm.config.contains_key(slot))?;
    vm.config.insert(slot, drive.volid);
    None
}
