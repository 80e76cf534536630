//! Starting, stopping, shutting down and resetting machines.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::answer::{Answer, Refusal};
use super::network::Bridge;
use super::observe::MachineEvent;
use super::resize::{CONFIG_LOCK_TIMEOUT, root_only_skiplock};
use super::serve::Call;
use super::state::{State, is_indexed};
use super::tasks::Worker;
use super::vm::option_of;
use super::{Pve, pause};

/// How long the guest agent is waited for before the power button is pressed instead.
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the HA manager takes to do what it was asked.
const HA_ROUND: Duration = Duration::from_secs(10);

/// `POST /nodes/{node}/qemu/{vmid}/status/start`
pub(crate) async fn start(call: Call) -> Answer {
    let vmid = call.vmid();
    root_only_skiplock(&call)?;
    {
        let state = call.pve.state();
        let lag = Duration::from_secs_f64(call.pve.timings().quorum_lag_s);
        if !state.seems_quorate(Instant::now(), lag) {
            return Err(Refusal::failed("cluster not ready - no quorum?"));
        }
        state.vm_on(&call.node, vmid)?;
    }
    let node = call.node.clone();
    let number = call.number;
    by_ha_or(call, "hastart", "qmstart", move |pve, worker| async move {
        let locks = pve.locks();
        let _lock = locks
            .config(&node, vmid, CONFIG_LOCK_TIMEOUT, |line| worker.log(line))
            .await?;
        let length = {
            let state = pve.state();
            let kind = state.check_start(&node, vmid)?;
            kind.map_or(pve.timings().local.start, |kind| {
                pve.timings().storage(kind).start
            })
        };
        if pve
            .state()
            .vms
            .get(&vmid)
            .is_some_and(|vm| vm.drives().iter().any(|drive| drive.is_cloudinit()))
        {
            worker.log("generating cloud-init ISO");
        }
        pve.take(length, "start", &number.to_string()).await;
        if let Some(why) = pve.state().starts_fail.clone() {
            return Err(why);
        }
        pve.state().power_on(vmid, Instant::now());
        Ok(())
    })
}

/// `POST /nodes/{node}/qemu/{vmid}/status/stop`: pulls the plug.
pub(crate) async fn stop(call: Call) -> Answer {
    let vmid = call.vmid();
    root_only_skiplock(&call)?;
    call.pve.state().vm_on(&call.node, vmid)?;
    if call.params.flag("overrule-shutdown") == Some(true) {
        let time = call.pve.clock().unix_seconds();
        let id = vmid.to_string();
        let mut state = call.pve.state();
        let shutdowns = state
            .tasks
            .values_mut()
            .filter(|task| task.kind == "qmshutdown" && task.id == id);
        shutdowns
            .filter(|task| task.is_running())
            .for_each(|task| task.kill(time, "unexpected status"));
    }
    let node = call.node.clone();
    by_ha_or(call, "hastop", "qmstop", move |pve, worker| async move {
        let locks = pve.locks();
        let _lock = locks
            .config(&node, vmid, CONFIG_LOCK_TIMEOUT, |line| worker.log(line))
            .await?;
        let mut state = pve.state();
        state.check_unlocked(&node, vmid)?;
        state.power_off(vmid);
        Ok(())
    })
}

/// `POST /nodes/{node}/qemu/{vmid}/status/shutdown`: asks the guest, and holds the machine's lock all the while.
pub(crate) async fn shutdown(call: Call) -> Answer {
    let vmid = call.vmid();
    root_only_skiplock(&call)?;
    call.pve.state().vm_on(&call.node, vmid)?;
    let node = call.node.clone();
    let number = call.number;
    let timeout = call
        .params
        .integer("timeout")
        .map_or(60, |seconds| seconds.max(0) as u64);
    let force = call.params.flag("forceStop") == Some(true);
    by_ha_or(
        call,
        "hastop",
        "qmshutdown",
        move |pve, worker| async move {
            let locks = pve.locks();
            let _lock = locks
                .config(&node, vmid, CONFIG_LOCK_TIMEOUT, |line| worker.log(line))
                .await?;
            pve.state().check_unlocked(&node, vmid)?;
            press_power_button(
                &pve,
                &worker,
                vmid,
                Duration::from_secs(timeout),
                force,
                number,
            )
            .await
        },
    )
}

async fn press_power_button(
    pve: &Pve,
    worker: &Worker,
    vmid: u32,
    timeout: Duration,
    force: bool,
    number: u64,
) -> Result<(), String> {
    let (asks_agent, agent, deaf) = {
        let state = pve.state();
        let Some(vm) = state.vms.get(&vmid) else {
            return Ok(());
        };
        let Some(running) = &vm.running else {
            return Ok(());
        };
        (
            vm.agent_enabled(),
            running.guest.agent,
            vm.ignores_shutdown || vm.never_boots,
        )
    };
    if asks_agent && !agent {
        pause(AGENT_TIMEOUT).await;
        let command = pve.state().version.agent_command();
        worker.log(&format!("QEMU Guest Agent is not running - VM {vmid} {command} 'guest-ping' failed - got timeout"));
    }
    let mut rng = pve.rng("shutdown", &number.to_string());
    let hangs = deaf || rng.random::<f64>() < pve.timings().shutdown_hangs;
    let length = pve.timings().shutdown.sample(&mut rng);
    if !hangs && length <= timeout {
        pause(length).await;
        pve.state().power_off(vmid);
        return Ok(());
    }
    pause(timeout).await;
    if force {
        worker.log("VM still running - terminating now with SIGTERM");
        pve.state().power_off(vmid);
        return Ok(());
    }
    Err("VM quit/powerdown failed - got timeout".into())
}

/// `POST /nodes/{node}/qemu/{vmid}/status/reset`
pub(crate) async fn reset(call: Call) -> Answer {
    let vmid = call.vmid();
    root_only_skiplock(&call)?;
    if call.pve.state().vm_on(&call.node, vmid)?.running.is_none() {
        return Err(Refusal::Failed(format!("VM {vmid} not running")));
    }
    Ok(call.pve.start_task(
        &call.node,
        "qmreset",
        &vmid.to_string(),
        &call.who,
        move |pve, _| async move {
            let mut state = pve.state();
            let event = {
                let Some(vm) = state.vms.get_mut(&vmid) else {
                    return Ok(());
                };
                let Some(running) = &mut vm.running else {
                    return Err(format!("VM {vmid} not running"));
                };
                running.guest = super::vm::Guest::default();
                MachineEvent::Rebooted {
                    vmid,
                    hypervisor: vm.node.clone(),
                    incarnation: vm.incarnation,
                }
            };
            state.emit(event);
            Ok(())
        },
    ))
}

/// Starts the task, or for a machine that HA manages a task that only leaves a note for the HA manager.
fn by_ha_or<Work, Running>(call: Call, ha: &str, direct: &str, work: Work) -> Answer
where
    Work: FnOnce(Pve, Worker) -> Running + Send + 'static,
    Running: Future<Output = Result<(), String>> + Send + 'static,
{
    let id = call.vmid().to_string();
    let managed = call
        .pve
        .state()
        .vms
        .get(&call.vmid())
        .is_some_and(|vm| vm.ha_managed);
    if !managed {
        return Ok(call
            .pve
            .start_task(&call.node, direct, &id, &call.who, work));
    }
    Ok(call.pve.start_task(
        &call.node,
        ha,
        &id,
        &call.who,
        move |pve, worker| async move {
            let later = work(pve.clone(), worker);
            pve.spawn(async move {
                pause(HA_ROUND).await;
                // The HA manager keeps its own log; nobody waits for this result.
                let _ = later.await;
            });
            Ok(())
        },
    ))
}

impl State {
    fn check_unlocked(&self, node: &str, vmid: u32) -> Result<(), String> {
        let vm = self.vm_on(node, vmid).map_err(|refusal| refusal.text())?;
        vm.lock()
            .map_or(Ok(()), |lock| Err(format!("VM is locked ({lock})")))
    }

    /// What a start checks; returns the kind of storage that the machine boots from.
    fn check_start(
        &self,
        node: &str,
        vmid: u32,
    ) -> Result<Option<super::topology::StorageKind>, String> {
        let vm = self.vm_on(node, vmid).map_err(|refusal| refusal.text())?;
        let host = self
            .nodes
            .get(node)
            .ok_or_else(|| format!("no such cluster node '{node}'"))?;
        if vm.is_template() {
            return Err("you can't start a vm if it's a template".into());
        }
        self.check_unlocked(node, vmid)?;
        if vm.running.is_some() {
            return Err(format!("VM {vmid} already running"));
        }
        if vm.cpus() > u64::from(host.threads) {
            return Err(format!(
                "MAX {} vcpus allowed per VM on this node",
                host.threads
            ));
        }
        let mut kind = None;
        for drive in vm
            .drives()
            .into_iter()
            .filter(|drive| !drive.key.starts_with("unused"))
        {
            let storage = self.check_storage(drive.storage(), node)?;
            if !drive.is_foreign() && self.volume(node, &drive.volid).is_none() {
                return Err(format!("volume '{}' does not exist", drive.volid));
            }
            if !drive.is_cdrom() {
                kind = Some(storage.kind);
            }
        }
        let nets = vm.config.iter().filter(|(key, _)| is_indexed(key, "net"));
        for bridge in nets.filter_map(|(_, net)| option_of(net, "bridge")) {
            if !host
                .bridges
                .iter()
                .any(|known| Bridge::read(known).name == bridge)
            {
                return Err(format!("bridge '{bridge}' does not exist"));
            }
        }
        let taken: u64 = self
            .vms
            .values()
            .filter(|vm| vm.node == node && vm.running.is_some())
            .map(|vm| vm.memory())
            .sum();
        if self.memory_is_hard && host.base_memory + taken + vm.memory() > host.memory {
            return Err("start failed: QEMU exited with code 1".into());
        }
        Ok(kind)
    }
}
