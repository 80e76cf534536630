//! Destroying a machine: its disks first, its configuration last.

use std::collections::BTreeSet;

use super::Pve;
use super::answer::{Answer, Refusal};
use super::resize::{CONFIG_LOCK_TIMEOUT, root_only_skiplock};
use super::serve::Call;
use super::tasks::Worker;
use super::vm::Drive;

/// `DELETE /nodes/{node}/qemu/{vmid}`. There is no quorum check before disks are freed.
pub(crate) async fn destroy(call: Call) -> Answer {
    let vmid = call.vmid();
    root_only_skiplock(&call)?;
    let purge = call.params.flag("purge") == Some(true);
    let unreferenced = call.params.flag("destroy-unreferenced-disks") == Some(true);
    {
        let state = call.pve.state();
        let vm = state.vm_on(&call.node, vmid)?;
        if vm.is_protected() {
            return Err(Refusal::Failed(format!(
                "can't remove VM {vmid} - protection mode enabled"
            )));
        }
        if vm.ha_managed && !purge {
            let text = format!(
                "unable to remove VM {vmid} - used in HA resources and purge parameter not set."
            );
            return Err(Refusal::Failed(text));
        }
        if vm.running.is_some() {
            return Err(Refusal::Failed(format!(
                "VM {vmid} is running - destroy failed"
            )));
        }
    }
    let node = call.node.clone();
    let number = call.number;
    Ok(call.pve.start_task(
        &call.node,
        "qmdestroy",
        &vmid.to_string(),
        &call.who,
        move |pve, worker| async move {
            let locks = pve.locks();
            let _lock = locks
                .config(&node, vmid, CONFIG_LOCK_TIMEOUT, |line| worker.log(line))
                .await?;
            let drives = check(&pve, &node, vmid)?;
            let kind = {
                let state = pve.state();
                drives
                    .first()
                    .and_then(|drive| Some(state.storages.get(drive.storage())?.kind))
            };
            let length = kind.map_or(pve.timings().local.destroy, |kind| {
                pve.timings().storage(kind).destroy
            });
            pve.take(length, "destroy", &number.to_string()).await;
            free_disks(&pve, &worker, &node, vmid, drives, unreferenced).await;
            pve.state().write_config(&node, vmid)?;
            if purge {
                worker.log(&format!("purging VM {vmid} from related configurations.."));
            }
            pve.state().remove_vm(vmid, &pve.clock());
            Ok(())
        },
    ))
}

/// What the task checks again; returns the machine's own drives.
fn check(pve: &Pve, node: &str, vmid: u32) -> Result<Vec<Drive>, String> {
    let state = pve.state();
    let vm = state.vm_on(node, vmid).map_err(|refusal| refusal.text())?;
    if vm.running.is_some() {
        return Err(format!("VM {vmid} is running - destroy failed"));
    }
    if let Some(lock) = vm.lock() {
        return Err(format!("VM is locked ({lock})"));
    }
    let drives: Vec<Drive> = vm
        .drives()
        .into_iter()
        .filter(|drive| !drive.is_foreign())
        .collect();
    for drive in &drives {
        if state
            .volume(node, &drive.volid)
            .is_some_and(|volume| state.has_clones(volume))
        {
            return Err(format!(
                "base volume '{}' is still in use by linked cloned",
                drive.volid
            ));
        }
    }
    Ok(drives)
}

/// Frees the disks. One that cannot be freed is only worth a warning, and stays behind without an owner.
async fn free_disks(
    pve: &Pve,
    worker: &Worker,
    node: &str,
    vmid: u32,
    drives: Vec<Drive>,
    unreferenced: bool,
) {
    let mut volids: Vec<String> = drives.into_iter().map(|drive| drive.volid).collect();
    if unreferenced {
        let state = pve.state();
        let seen: BTreeSet<String> = volids.iter().cloned().collect();
        // Every volume that bears the VMID, whoever made it: on shared storage it may be another cluster's.
        let others = state.volumes.values().filter(|volume| volume.vmid == vmid);
        let here = others.filter(|volume| volume.node.is_empty() || volume.node == node);
        let ids = here.map(|volume| volume.volid(state.storages[&volume.storage].kind));
        volids.extend(ids.filter(|volid| !seen.contains(volid)));
    }
    for volid in volids {
        // A volume of another machine in a drive of this one is not this machine's to free.
        let owner = pve.state().volume(node, &volid).map(|volume| volume.vmid);
        if owner.is_some_and(|owner| owner != vmid) {
            continue;
        }
        if let Err(why) = pve.free_volume(node, &volid, worker).await {
            worker.warn(&format!(
                "Could not remove disk '{volid}', check manually: {why}"
            ));
        }
    }
}
