//! What people and the world do in the stories for mistakes ([`crate::broken`]): each brings about the one moment in which a mistake would show, which chance
//! meets too seldom.

use std::time::Duration;

use kproxide_lab::Lab;
use kproxide_simulator::pve::{PveSnapshot, VmView};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::history::{Foreign, is_ours_in};
use crate::mishaps::{remove_row, restore};
use crate::object::{CLAIMS, LEDGERS, name};
use crate::scenario::TRAP;
use crate::settled::ledger_entries;

/// Something that is waited for comes within this time, or not at all.
const AWAITED: Duration = Duration::from_secs(30 * 60);
/// How often is looked for it: as fast as a person with a script.
const LOOK: Duration = Duration::from_millis(20);
/// How often is looked whether a number rests no longer: that takes minutes.
const RESTS: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    /// F68: the kubelets of so many machines fall silent.
    Silent(usize),
    /// Somebody pulls the plug of every machine of ours, and switches it on again.
    PowerCycle,
    /// F106: while a machine is being shut down to be destroyed, somebody destroys it and gives its VMID to another one.
    Swap,
    /// S8: a machine of ours is removed, and its number has rested; `false`: somebody removes its row. Then somebody has a VM of his own with that number, name
    /// and marker, whose Node is Ready, and somebody's word stands for another marker at that number.
    Impostor(bool),
    /// F112: the Ledger is deleted.
    LedgerLost,
    /// F42: what machines have on disk cannot be removed.
    DisksStick,
    /// F37: a clone is cut off, and somebody removes what there is of it.
    CloneCleared,
    /// A person removes the volumes that stayed behind.
    VolumesFreed,
    /// F111, F112: a claim vanishes, finalizer and all, when its machine is so far.
    Vanish(Vanishing),
    /// F40: a hypervisor that holds no machine of ours goes down.
    EmptyHypervisorDown,
    /// F40: the hypervisor of a machine goes down, and somebody deletes its claim.
    DownAndDeleted,
    HypervisorsUp,
    /// F35, F29: without quorum somebody destroys a machine, and deletes its claim.
    DestroyedWithoutQuorum,
    QuorumBack,
    /// A plugin of the scheduler refuses all pods, and does so no more. A person then lets kproxide try again.
    SchedulerRefuses(bool),
    /// F85: the policy answers with a hypervisor that cannot take the machine, if there is one.
    PolicyMisplaces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vanishing {
    /// Its Node is in service.
    Serving,
    /// It was started, and its Node is not there yet.
    Started,
    /// It carries its tombstone and is off: its Node is not Ready any more, or soon.
    Dying,
}

impl Incident {
    pub(crate) async fn happen(self, lab: &Lab, foreign: &mut Foreign) {
        match self {
            Self::Silent(count) => {
                for claim in in_service(lab).iter().take(count) {
                    lab.kubelets
                        .stop_node(claim["status"]["nodeName"].as_str().unwrap_or_default());
                }
            }
            Self::PowerCycle => {
                for vm in ours(&lab.pve.snapshot()) {
                    let _ = lab.pve.human_stops(vm.vmid);
                    let _ = lab.pve.human_starts(vm.vmid);
                }
            }
            Self::Swap => {
                let Some(vmid) = until(|| being_shut_down(lab)).await else {
                    return;
                };
                sleep(LOOK).await;
                if lab.pve.human_destroys(vmid).is_ok()
                    && lab.pve.human_clones_vm(101, vmid, "nas-copy").is_ok()
                {
                    let moved = lab
                        .pve
                        .human_sets_pool(vmid, Some(crate::scenario::RESOURCE_POOL));
                    moved.expect("the copy was made just now");
                    foreign.add(lab, vmid);
                }
            }
            Self::Impostor(rests) => {
                let before: Vec<VmView> = ours(&lab.pve.snapshot()).cloned().collect();
                let gone = until_every(RESTS, || gone(lab, &before, rests)).await;
                let old = gone.expect("a machine goes");
                remove_row(lab, old.vmid);
                let marker = old.description.as_deref().unwrap_or_default();
                restore(lab, old.vmid, &old.name, marker);
                foreign.add(lab, old.vmid);
            }
            Self::LedgerLost => {
                let lost = lab.kube.delete(LEDGERS, "", "kproxide");
                lost.expect("the Ledger is there");
            }
            Self::DisksStick => {
                for vm in ours(&lab.pve.snapshot()) {
                    lab.pve.set_disks_stuck(vm.vmid, true);
                }
            }
            Self::CloneCleared => {
                let cloning = || {
                    let snapshot = lab.pve.snapshot();
                    let mut locked = ours(&snapshot).filter(|vm| vm.lock.is_some());
                    locked.next().map(|vm| vm.vmid)
                };
                if let Some(vmid) = until(cloning).await {
                    let cleared = lab.pve.human_clears_clone(vmid);
                    cleared.expect("it was there a moment ago");
                }
            }
            Self::VolumesFreed => {
                let snapshot = lab.pve.snapshot();
                for volume in &snapshot.volumes {
                    if snapshot.vms.iter().all(|vm| vm.vmid != volume.vmid) {
                        lab.pve.human_frees_volumes(volume.vmid);
                    }
                }
            }
            Self::Vanish(when) => {
                if let Some(claim) = until(|| vanishing(lab, when)).await {
                    let name = name(&claim);
                    let patch = json!({"metadata": {"finalizers": null}});
                    let freed = lab.kube.patch(CLAIMS, "", "", name, patch);
                    freed.expect("the claim was there a moment ago");
                    let _ = lab.kube.delete(CLAIMS, "", name);
                }
            }
            Self::EmptyHypervisorDown => {
                let snapshot = lab.pve.snapshot();
                let holds = |name: &str| ours(&snapshot).any(|vm| vm.hypervisor == name);
                let mut empty = snapshot.hypervisors.iter().filter(|it| !holds(&it.name));
                if let Some(hypervisor) = empty.next() {
                    lab.pve.set_hypervisor_online(&hypervisor.name, false);
                }
            }
            Self::DownAndDeleted => {
                let claims = in_service(lab);
                if let Some(claim) = claims.first() {
                    let hypervisor = claim["spec"]["hypervisor"].as_str().unwrap_or_default();
                    lab.pve.set_hypervisor_online(hypervisor, false);
                    let _ = lab.kube.delete(CLAIMS, "", name(claim));
                }
            }
            Self::HypervisorsUp => {
                for hypervisor in &lab.pve.snapshot().hypervisors {
                    lab.pve.set_hypervisor_online(&hypervisor.name, true);
                }
                foreign.start(lab);
            }
            Self::DestroyedWithoutQuorum => {
                let claims = in_service(lab);
                if let Some(claim) = claims.first() {
                    lab.pve.set_quorate(false);
                    // Servers do not tell of it at once.
                    sleep(Duration::from_secs(30)).await;
                    let vmid = claim["spec"]["vmid"].as_u64().unwrap_or_default();
                    let _ = lab.pve.human_destroys(vmid.try_into().unwrap_or_default());
                    let _ = lab.kube.delete(CLAIMS, "", name(claim));
                }
            }
            Self::QuorumBack => lab.pve.set_quorate(true),
            Self::SchedulerRefuses(yes) => {
                let refused = yes.then_some("true");
                let annotations = json!({"annotations": {"scheduler.example/refused": refused}});
                let template = json!({"spec": {"template": {"metadata": annotations}}});
                for app in lab.kube.list("deployments.apps") {
                    if app["metadata"]["namespace"] == "default" {
                        let changed = lab.kube.patch(
                            "deployments.apps",
                            "",
                            "default",
                            name(&app),
                            template.clone(),
                        );
                        changed.expect("the Deployment is there");
                    }
                }
                let retry =
                    json!({"metadata": {"annotations": {"kproxide.dev/retry": yes.to_string()}}});
                for pool in lab.kube.list("nodepools.kproxide.dev") {
                    let (pools, name) = ("nodepools.kproxide.dev", name(&pool));
                    let changed = lab.kube.patch(pools, "", "", name, retry.clone());
                    changed.expect("the pool is there");
                }
            }
            Self::PolicyMisplaces => {
                let policy = json!({"use": TRAP, "settings": {"do": "ineligible-placed"}});
                let patch = json!({"spec": {"policies": {"hostSelection": policy}}});
                for pool in lab.kube.list("nodepools.kproxide.dev") {
                    let changed = lab.kube.patch(
                        "nodepools.kproxide.dev",
                        "",
                        "",
                        name(&pool),
                        patch.clone(),
                    );
                    changed.expect("the pool is there");
                }
            }
        }
    }
}

/// The first answer, if there is one in time.
async fn until<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    until_every(LOOK, look).await
}

async fn until_every<T>(pause: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
    let end = Instant::now() + AWAITED;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        sleep(pause).await;
    }
}

fn in_service(lab: &Lab) -> Vec<Value> {
    let mut claims = lab.kube.list(CLAIMS);
    claims.retain(|claim| claim["status"]["phase"] == "Initialized");
    claims
}

fn ours(snapshot: &PveSnapshot) -> impl Iterator<Item = &VmView> {
    snapshot
        .vms
        .iter()
        .filter(move |vm| is_ours_in(snapshot, vm.incarnation))
}

/// A machine of ours whose shutdown was asked for, and that still runs.
fn being_shut_down(lab: &Lab) -> Option<u32> {
    let audit = lab.pve.audit();
    let was_asked = |vm: &VmView| {
        let path = format!("/qemu/{}/status/shutdown", vm.vmid);
        audit
            .iter()
            .any(|entry| entry.status == 200 && entry.path.ends_with(&path))
    };
    let snapshot = lab.pve.snapshot();
    let mut dying = ours(&snapshot).filter(|vm| is_condemned(vm) && vm.running);
    dying.find(|vm| was_asked(vm)).map(|vm| vm.vmid)
}

/// One of these machines that is gone, and whose number rests: no longer, or if it need not end, at least.
fn gone(lab: &Lab, before: &[VmView], rests: bool) -> Option<VmView> {
    let snapshot = lab.pve.snapshot();
    let entries = ledger_entries(lab);
    let is_free = |vm: &&VmView| {
        let mut rows = entries.iter().filter(|entry| entry["vmid"] == vm.vmid);
        snapshot.vms.iter().all(|other| other.vmid != vm.vmid)
            && rows.all(|row| !rests && row["state"] == "quarantined")
    };
    before.iter().find(is_free).cloned()
}

fn is_condemned(vm: &VmView) -> bool {
    let description = vm.description.as_deref().unwrap_or_default();
    description.contains("kproxide-tombstone:")
}

fn vanishing(lab: &Lab, when: Vanishing) -> Option<Value> {
    let snapshot = lab.pve.snapshot();
    let claims = lab.kube.list(CLAIMS);
    claims.into_iter().find(|claim| match when {
        Vanishing::Serving => claim["status"]["phase"] == "Initialized",
        Vanishing::Started => claim["status"]["phase"] == "Launched",
        Vanishing::Dying => ours(&snapshot).any(|vm| {
            u64::from(vm.vmid) == claim["spec"]["vmid"] && is_condemned(vm) && !vm.running
        }),
    })
}
