//! Growing a disk.

use std::time::Duration;

use super::Pve;
use super::answer::{Answer, Refusal};
use super::serve::Call;
use super::tasks::Worker;
use super::vm::{Drive, parse_size};

/// How long a change of a machine waits for the machine's lock.
pub(crate) const CONFIG_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// `PUT /nodes/{node}/qemu/{vmid}/resize`
pub(crate) async fn resize(call: Call) -> Answer {
    let vmid = call.vmid();
    root_only_skiplock(&call)?;
    call.pve.state().vm_on(&call.node, vmid)?;
    let node = call.node.clone();
    let disk = call.params.get("disk").unwrap_or_default().to_owned();
    let size = call.params.get("size").unwrap_or_default().to_owned();
    let digest = call.params.get("digest").map(str::to_owned);
    let who = call.who.clone();
    Ok(call.pve.start_task(
        &call.node,
        "resize",
        &vmid.to_string(),
        &call.who,
        move |pve, worker| async move {
            let locks = pve.locks();
            let _lock = locks
                .config(&node, vmid, CONFIG_LOCK_TIMEOUT, |line| worker.log(line))
                .await?;
            let drive = find_drive(&pve, &node, vmid, &disk, digest.as_deref())?;
            let storage = format!("/storage/{}", drive.storage());
            let may = pve
                .state()
                .require(&who, &storage, "Datastore.AllocateSpace");
            may.map_err(|refusal| refusal.of_task())?;
            grow(&pve, &worker, &node, vmid, &drive, &size).await
        },
    ))
}

/// Refuses `skiplock` to everybody but root, literally.
pub(crate) fn root_only_skiplock(call: &Call) -> Result<(), Refusal> {
    if call.params.flag("skiplock") == Some(true) && !call.who.is_root() {
        return Err(Refusal::parameter(
            "skiplock",
            "Only root may use this option.",
        ));
    }
    Ok(())
}

fn find_drive(
    pve: &Pve,
    node: &str,
    vmid: u32,
    disk: &str,
    digest: Option<&str>,
) -> Result<Drive, String> {
    let state = pve.state();
    let vm = state.vm_on(node, vmid).map_err(|refusal| refusal.text())?;
    if digest.is_some_and(|digest| digest != vm.digest()) {
        return Err("checksum mismatch (file change by other user?)".into());
    }
    if let Some(lock) = vm.lock() {
        return Err(format!("VM is locked ({lock})"));
    }
    let drive = vm.drives().into_iter().find(|drive| drive.key == disk);
    let drive = drive.ok_or_else(|| format!("disk '{disk}' does not exist"))?;
    if drive.is_cdrom() {
        return Err("you can't resize a cdrom".into());
    }
    Ok(drive)
}

async fn grow(
    pve: &Pve,
    worker: &Worker,
    node: &str,
    vmid: u32,
    drive: &Drive,
    size: &str,
) -> Result<(), String> {
    let (key, kind, grown) = {
        let state = pve.state();
        let storage = state.check_storage(drive.storage(), node)?;
        let missing = || format!("volume '{}' does not exist", drive.volid);
        let key = state.volume_key(node, &drive.volid).ok_or_else(missing)?;
        let old = state.volumes.get(&key).ok_or_else(missing)?.size;
        let grown = match size.strip_prefix('+') {
            Some(more) => old + parse_size(more).unwrap_or(0),
            None => parse_size(size).unwrap_or(0),
        };
        if grown < old {
            return Err("shrinking disks is not supported".into());
        }
        if grown == old {
            return Ok(());
        }
        (key, storage.kind, grown)
    };
    pve.take(
        pve.timings().storage(kind).resize,
        "resize",
        &format!("{vmid}/{}", drive.key),
    )
    .await;
    let mut state = pve.state();
    state.grow_volume(&key, node, grown)?;
    drop(state);
    worker.log("Image resized.");
    // The disk has grown by now; without quorum its configuration does not learn of it.
    let mut state = pve.state();
    state.write_config(node, vmid)?;
    if let Some(vm) = state.vms.get_mut(&vmid) {
        vm.config.insert(
            drive.key.clone(),
            Drive::line(&drive.volid, &drive.options, grown),
        );
    }
    Ok(())
}
