//! What goes wrong with the world and not with a request: servers and storages that fail, an API server that is away or forgets, machines that do not come
//! up, people who stop, destroy and delete what is ours. Each is a row of the fault matrix; everything has an end, after which the world must come to rest as it
//! would have without.

mod restored;

use std::time::Duration;

use kproxide_lab::Lab;
use kproxide_simulator::physics::Quirk;
use kproxide_simulator::pve::{PveSnapshot, VmView};
use kproxide_simulator::rng::Seed;
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use self::restored::{remove_row, restore};
use crate::history::is_ours_in;
use crate::log::Log;
use crate::object::{CLAIMS, LEDGERS, name};
use crate::wire::Wires;

/// What can happen, with its row of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mishap {
    /// F40, F41: a hypervisor goes down with all that runs on it; when it comes back it starts what ran.
    HypervisorDown,
    /// F53: a hypervisor takes connections and answers none; its machines go on.
    HypervisorHung,
    /// F35: the side of the Proxmox cluster that answers has no quorum.
    NoQuorum,
    /// F44: a storage has no space left.
    StorageFull,
    /// F64: no replica reaches the API server; watches that are open stay open.
    ApiServerAway,
    /// F58: the API server forgets all history, as after a compaction.
    Compaction,
    /// F37: a backup or a person holds the lock of a machine of ours.
    MachineLocked,
    /// F100: the next machine boots and never joins.
    NeverJoins,
    /// F30: somebody pulls the plug of a machine of ours.
    MachineStopped,
    /// F29: somebody destroys a machine of ours.
    MachineDestroyed,
    /// F28: somebody deletes the Node of a machine of ours.
    NodeDeleted,
    /// Somebody deletes a claim.
    ClaimDeleted,
    /// S8: somebody runs a VM with the number, the name and the marker of a machine that was removed.
    Impostor,
    /// F112: somebody deletes the Ledger.
    LedgerLost,
    /// F112: the Ledger is restored from a backup.
    LedgerOlder,
    /// Somebody removes the row of a machine from the Ledger.
    RowRemoved,
}

/// So many of [`Mishap::ALL`] are drawn together. Later ones have a stream of their own: what older seeds draw stays.
const DRAWN: usize = 12;

impl Mishap {
    pub(crate) const ALL: [Self; 16] = [
        Self::HypervisorDown,
        Self::HypervisorHung,
        Self::NoQuorum,
        Self::StorageFull,
        Self::ApiServerAway,
        Self::Compaction,
        Self::MachineLocked,
        Self::NeverJoins,
        Self::MachineStopped,
        Self::MachineDestroyed,
        Self::NodeDeleted,
        Self::ClaimDeleted,
        Self::Impostor,
        Self::LedgerLost,
        Self::LedgerOlder,
        Self::RowRemoved,
    ];

    /// The Ledger knows less when it ends.
    pub(crate) fn makes_forget(self) -> bool {
        matches!(
            self,
            Self::Impostor | Self::LedgerLost | Self::LedgerOlder | Self::RowRemoved
        )
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HypervisorDown => "hypervisor down",
            Self::HypervisorHung => "hypervisor hung",
            Self::NoQuorum => "no quorum",
            Self::StorageFull => "storage full",
            Self::ApiServerAway => "API server away",
            Self::Compaction => "compaction",
            Self::MachineLocked => "machine locked",
            Self::NeverJoins => "machine never joins",
            Self::MachineStopped => "machine stopped by hand",
            Self::MachineDestroyed => "machine destroyed by hand",
            Self::NodeDeleted => "Node deleted by hand",
            Self::ClaimDeleted => "claim deleted by hand",
            Self::Impostor => "removed machine restored",
            Self::LedgerLost => "Ledger lost",
            Self::LedgerOlder => "older Ledger restored",
            Self::RowRemoved => "row of the Ledger removed by hand",
        }
    }
}

/// A mishap at its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) mishap: Mishap,
    /// After the start of the hosts.
    pub(crate) at: Duration,
    /// What has a length lasts so long.
    pub(crate) length: Duration,
    /// Chooses among those that it could happen to.
    pub(crate) which: usize,
}

/// A few kinds for one seed, spread over the time until `until`: what is chosen from is small, so that kinds meet each other and themselves.
pub(crate) fn draw(seed: u64, until: Duration, has_anchor: bool) -> Vec<Event> {
    let rng: &mut SmallRng = &mut Seed(seed).stream("simulation", "mishaps");
    let mut events = Vec::new();
    let kinds: Vec<Mishap> = (0..3)
        .map(|_| Mishap::ALL[rng.random_range(0..DRAWN)])
        .collect();
    for _ in 0..rng.random_range(1..=5) {
        let length = Duration::from_secs(rng.random_range(20..=600));
        let last = until.saturating_sub(length).as_secs().max(61);
        events.push(Event {
            mishap: kinds[rng.random_range(0..kinds.len())],
            at: Duration::from_secs(rng.random_range(60..last)),
            length: length.min(until),
            which: rng.random_range(0..1000),
        });
    }
    let mut restored = Seed(seed).stream("simulation", "restored");
    events.extend(restored::draw(&mut restored, until, has_anchor));
    events.sort_by_key(|event| event.at);
    events
}

/// The world that mishaps happen to.
pub(crate) struct World<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) log: &'a Log,
    pub(crate) wires: &'a [Wires],
}

impl World<'_> {
    /// Waits for its time, lets it happen and ends it. Returns whether there was anything that it could happen to.
    pub(crate) async fn happen(&self, started: Instant, event: &Event) -> bool {
        sleep_until(started + event.at).await;
        let pve = &self.lab.pve;
        let snapshot = pve.snapshot();
        let Some(victim) = self.victim(event, &snapshot) else {
            return false;
        };
        let what = event.mishap.name();
        self.log.line("world", &format!("{what}: {victim}"));
        for wires in self.wires {
            wires.begin_mishap(what);
        }
        match event.mishap {
            Mishap::HypervisorDown => {
                pve.set_hypervisor_online(&victim, false);
                sleep(event.length).await;
                pve.set_hypervisor_online(&victim, true);
                start_again(self.lab, &snapshot, &victim);
            }
            Mishap::HypervisorHung => {
                pve.set_hypervisor_hung(&victim, true);
                sleep(event.length).await;
                pve.set_hypervisor_hung(&victim, false);
            }
            Mishap::NoQuorum => {
                pve.set_quorate(false);
                sleep(event.length).await;
                pve.set_quorate(true);
            }
            Mishap::StorageFull => {
                pve.fill_storage(&victim, 0);
                sleep(event.length).await;
                pve.fill_storage(&victim, FREE);
            }
            Mishap::ApiServerAway => {
                for wires in self.wires {
                    wires.away(true);
                }
                sleep(event.length).await;
                for wires in self.wires {
                    wires.away(false);
                }
            }
            Mishap::Compaction => self.lab.kube.compact(),
            Mishap::NeverJoins => self.lab.physics.quirk_of_next(Quirk {
                never_joins: true,
                ..Quirk::default()
            }),
            Mishap::MachineLocked
            | Mishap::MachineStopped
            | Mishap::MachineDestroyed
            | Mishap::NodeDeleted
            | Mishap::ClaimDeleted
            | Mishap::Impostor
            | Mishap::LedgerLost
            | Mishap::LedgerOlder
            | Mishap::RowRemoved => self.by_hand(event, &victim).await,
        }
        for wires in self.wires {
            wires.end_mishap(what);
        }
        self.log.line("world", &format!("{what} ends: {victim}"));
        true
    }

    /// What it happens to: a hypervisor, a storage, a VMID, a Node or a claim, by the kind of mishap. `None`: there is none now.
    fn victim(&self, event: &Event, snapshot: &PveSnapshot) -> Option<String> {
        let of = |names: Vec<String>| {
            let count = names.len().max(1);
            names.into_iter().nth(event.which % count)
        };
        let name = |object: &Value| name(object).to_owned();
        let claims = || self.lab.kube.list(CLAIMS);
        match event.mishap {
            Mishap::HypervisorDown | Mishap::HypervisorHung => {
                let names = snapshot.hypervisors.iter();
                of(names
                    .filter(|hypervisor| hypervisor.online)
                    .map(|hypervisor| hypervisor.name.clone())
                    .collect())
            }
            Mishap::StorageFull => Some("local-lvm".to_owned()),
            Mishap::NoQuorum | Mishap::ApiServerAway | Mishap::Compaction | Mishap::NeverJoins => {
                Some("all".to_owned())
            }
            Mishap::MachineLocked | Mishap::MachineStopped | Mishap::MachineDestroyed => {
                let ours = snapshot.vms.iter().filter(|vm| {
                    vm.running && vm.lock.is_none() && is_ours_in(snapshot, vm.incarnation)
                });
                of(ours.map(|vm| vm.vmid.to_string()).collect())
            }
            Mishap::NodeDeleted => {
                let nodes = self.lab.kube.list("nodes");
                let ours = nodes
                    .iter()
                    .filter(|node| node["metadata"]["labels"]["kproxide.dev/claim"].is_string());
                of(ours.map(name).collect())
            }
            Mishap::ClaimDeleted => of(claims().iter().map(name).collect()),
            Mishap::Impostor => of(restored::removed(self.lab, snapshot)),
            Mishap::LedgerLost | Mishap::LedgerOlder => {
                of(self.lab.kube.list(LEDGERS).iter().map(name).collect())
            }
            Mishap::RowRemoved => of(restored::rows_in_use(self.lab)),
        }
    }

    /// What people do. What is gone already they leave alone.
    async fn by_hand(&self, event: &Event, victim: &str) {
        let (pve, kube) = (&self.lab.pve, &self.lab.kube);
        let vmid = victim.parse().unwrap_or_default();
        match event.mishap {
            Mishap::MachineLocked => {
                let _ = pve.human_holds_lock(vmid, event.length);
                sleep(event.length).await;
            }
            Mishap::MachineStopped => {
                let _ = pve.human_stops(vmid);
            }
            Mishap::MachineDestroyed => {
                let _ = pve.human_destroys(vmid);
            }
            Mishap::NodeDeleted => {
                let _ = kube.delete("nodes", "", victim);
            }
            Mishap::ClaimDeleted => {
                let _ = kube.delete(CLAIMS, "", victim);
            }
            Mishap::Impostor => self.impostor(event, vmid).await,
            Mishap::LedgerLost => {
                let _ = kube.delete(LEDGERS, "", victim);
            }
            Mishap::LedgerOlder => self.older_ledger(event).await,
            Mishap::RowRemoved => remove_row(self.lab, vmid),
            Mishap::HypervisorDown
            | Mishap::HypervisorHung
            | Mishap::NoQuorum
            | Mishap::StorageFull
            | Mishap::ApiServerAway
            | Mishap::Compaction
            | Mishap::NeverJoins => {}
        }
    }
}

/// Left free when a storage is not full any more: more than all machines of a world need.
const FREE: u64 = 4 << 40;

/// What ran on a hypervisor when it went down is started with it.
fn start_again(lab: &Lab, before: &PveSnapshot, hypervisor: &str) {
    let stood = |vm: &&VmView| vm.hypervisor == hypervisor && vm.running;
    for vm in before.vms.iter().filter(stood) {
        // Another machine may have its VMID by now, and somebody else may have started it.
        let now = lab.pve.snapshot().vms;
        if now.iter().any(|other| other.incarnation == vm.incarnation) {
            if is_ours_in(before, vm.incarnation) {
                let _ = lab.pve.human_starts(vm.vmid);
            } else {
                start_foreign(lab, vm.vmid);
            }
        }
    }
}

/// Starts a machine of other people, unless it runs: whatever it is, it is no Node.
pub(crate) fn start_foreign(lab: &Lab, vmid: u32) {
    let quirk = Quirk {
        never_joins: true,
        ..Quirk::default()
    };
    lab.physics.quirk_of(vmid, quirk);
    let _ = lab.pve.human_starts(vmid);
}
