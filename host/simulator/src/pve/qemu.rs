//! Lists and status of machines, and making templates.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::answer::{Answer, Refusal};
use super::broadcast::status_of;
use super::cluster::listed;
use super::serve::Call;
use super::state::State;
use super::topology::Version;
use super::vm::{Drive, Vm};

/// `GET /nodes/{node}/qemu`
pub(crate) async fn list(call: Call) -> Answer {
    let state = call.pve.state();
    let visible = |vm: &&Vm| {
        vm.node == call.node && state.may(&call.who, &format!("/vms/{}", vm.vmid), "VM.Audit")
    };
    listed(
        state
            .vms
            .values()
            .filter(visible)
            .map(|vm| live_json(&state, vm)),
    )
}

/// `GET /nodes/{node}/qemu/{vmid}/status/current`
pub(crate) async fn current(call: Call) -> Answer {
    let state = call.pve.state();
    let vm = state.vm_on(&call.node, call.vmid())?;
    let mut json = live_json(&state, vm);
    json["qmpstatus"] = json["status"].clone();
    json["ha"] = json!({"managed": u8::from(vm.ha_managed)});
    if vm.agent_enabled() {
        json["agent"] = 1.into();
    }
    if state.version == Version::V9 {
        for resource in ["cpu", "io", "memory"] {
            for degree in ["some", "full"] {
                json[format!("pressure{resource}{degree}")] = 0.into();
            }
        }
    }
    if vm.running.is_some() {
        let memory = vm.memory();
        let used = memory / 4;
        json["balloon"] = memory.into();
        json["freemem"] = (memory - used).into();
        json["ballooninfo"] = json!({"actual": memory, "max_mem": memory, "total_mem": memory, "free_mem": memory - used});
        json["running-qemu"] = "10.1.2".into();
        json["running-machine"] = "pc-i440fx-10.1+pve0".into();
        json["proxmox-support"] = json!({"pbs-dirty-bitmap": true});
    }
    Ok(json.into())
}

/// What the server that has the machine sees at this moment.
fn live_json(state: &State, vm: &Vm) -> Value {
    let status = status_of(vm, state, Instant::now());
    let mut json = json!({
        "vmid": vm.vmid,
        "name": status.name,
        "status": if status.running { "running" } else { "stopped" },
        "uptime": status.uptime_s,
        "cpu": status.cpu,
        "cpus": status.cpus,
        "mem": status.memory_used,
        "maxmem": status.memory,
        "disk": 0,
        "maxdisk": status.disk,
        "netin": 0,
        "netout": 0,
    });
    if state.version == Version::V9 {
        json["memhost"] = status.memory_used.into();
    }
    if let Some(running) = &vm.running {
        json["pid"] = running.pid.into();
        json["diskread"] = 0.into();
        json["diskwrite"] = 0.into();
    }
    if vm.is_template() {
        json["template"] = 1.into();
    }
    for key in ["tags", "lock"] {
        if let Some(value) = vm.get(key) {
            json[key] = value.into();
        }
    }
    json
}

/// `POST /nodes/{node}/qemu/{vmid}/template`: disks become base images.
pub(crate) async fn template(call: Call) -> Answer {
    let vmid = call.vmid();
    {
        let state = call.pve.state();
        let vm = state.vm_on(&call.node, vmid)?;
        if let Some(lock) = vm.lock() {
            return Err(Refusal::Failed(format!("VM is locked ({lock})")));
        }
        if vm.is_template() {
            return Err(Refusal::failed(
                "you can't convert a template to a template",
            ));
        }
        if vm.running.is_some() {
            return Err(Refusal::failed(
                "you can't convert a VM to template if VM is running",
            ));
        }
    }
    let node = call.node.clone();
    Ok(call.pve.start_task(
        &call.node,
        "qmtemplate",
        &vmid.to_string(),
        &call.who,
        move |pve, _| async move {
            let mut state = pve.state();
            state.write_config(&node, vmid)?;
            state.make_template(&node, vmid)
        },
    ))
}

impl State {
    fn make_template(&mut self, node: &str, vmid: u32) -> Result<(), String> {
        let drives = self
            .vm_on(node, vmid)
            .map_err(|refusal| refusal.text())?
            .drives();
        for drive in drives.into_iter().filter(|drive| !drive.is_cdrom()) {
            let Some(mut volume) = self
                .volume_key(node, &drive.volid)
                .and_then(|key| self.volumes.remove(&key))
            else {
                return Err(format!("volume '{}' does not exist", drive.volid));
            };
            volume.name = volume.name.replacen("vm-", "base-", 1);
            let volid = volume.volid(self.storages[&volume.storage].kind);
            let size = volume.size;
            self.volumes.insert(volume.key(), volume);
            if let Some(vm) = self.vms.get_mut(&vmid) {
                vm.config
                    .insert(drive.key, Drive::line(&volid, &drive.options, size));
            }
        }
        if let Some(vm) = self.vms.get_mut(&vmid) {
            vm.config.insert("template".into(), "1".into());
        }
        Ok(())
    }
}
