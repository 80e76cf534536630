//! S8: what people bring back that kproxide has let go of, or take out of its memory: machines from backups, the Ledger and its rows.
//!
//! None of it is drawn where another comes before it ends. A VM of other people whose Node is older than a Ledger that was lost, or that an older Ledger lists,
//! is a machine of ours for all that anybody can tell.

use std::time::Duration;

use kproxide_lab::Lab;
use kproxide_simulator::pve::PveSnapshot;
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Event, Mishap, World};
use crate::history::OUR_TOKEN;
use crate::object::{LEDGERS, text};
use crate::scenario::RESOURCE_POOL;
use crate::settled::ledger_entries;

/// Of the first server.
const TEMPLATE: u32 = 9001;
/// A VM of other people that stands for less has no Ready Node, or none for long.
const STANDS: std::ops::RangeInclusive<u64> = 10 * 60..=40 * 60;

/// At most one, in some worlds. The anchor of a Ledger that was lost, or of an older one, is a matter of its own.
pub(super) fn draw(rng: &mut SmallRng, until: Duration, has_anchor: bool) -> Option<Event> {
    let length = Duration::from_secs(rng.random_range(STANDS)).min(until);
    let mishap = match rng.random_range(0..12) {
        0..3 => Mishap::Impostor,
        _ if has_anchor => return None,
        3 => Mishap::LedgerLost,
        4 => Mishap::LedgerOlder,
        5 => Mishap::RowRemoved,
        _ => return None,
    };
    // Machines have gone by then.
    let last = until.saturating_sub(length).as_secs();
    Some(Event {
        mishap,
        at: Duration::from_secs(rng.random_range(last / 2..=last)),
        length,
        which: rng.random_range(0..1000),
    })
}

/// A person makes a VM with the number, the name and the marker of another, as from a backup, whose Node joins. His word is for another marker.
pub(crate) fn restore(lab: &Lab, vmid: u32, name: &str, marker: &str) {
    let made = [
        lab.pve.human_clones_vm(TEMPLATE, vmid, name),
        lab.pve.human_sets_pool(vmid, Some(RESOURCE_POOL)),
        lab.pve.human_edits_description(vmid, marker),
        lab.pve.human_starts(vmid),
    ];
    for made in made {
        made.expect("its number is free");
    }
    let word = format!("homelab:{vmid}:another");
    let word = json!({"metadata": {"annotations": {"kproxide.dev/acknowledge-orphan": word}}});
    let said = lab.kube.patch(LEDGERS, "", "", "kproxide", word);
    said.expect("the Ledger is there");
}

/// Numbers of machines that kproxide has removed, and that nobody uses now.
pub(super) fn removed(lab: &Lab, snapshot: &PveSnapshot) -> Vec<String> {
    let entries = ledger_entries(lab);
    let is_free = |vmid: u32| {
        let in_use = |entry: &Value| entry["vmid"] == vmid && entry["state"] != "quarantined";
        snapshot.vms.iter().all(|vm| vm.vmid != vmid) && !entries.iter().any(in_use)
    };
    let births = snapshot.births.iter().rev();
    let made = births.filter(|birth| birth.creator == OUR_TOKEN && !birth.bare);
    let mut numbers: Vec<u32> = made.map(|birth| birth.vmid).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.retain(|vmid| is_free(*vmid));
    numbers.iter().map(u32::to_string).collect()
}

impl World<'_> {
    /// Somebody restores a machine of this number and runs it for a while. In every other world he has removed its row first.
    pub(super) async fn impostor(&self, event: &Event, vmid: u32) {
        let pve = &self.lab.pve;
        let audit = pve.audit();
        let clones = audit.iter().rev().filter(|it| it.user == OUR_TOKEN);
        let param = |params: &[(String, String)], name: &str| {
            let mut params = params.iter();
            let found = params.find(|(key, _)| key == name);
            found.map_or(String::new(), |(_, value)| value.clone())
        };
        let mut clones = clones.filter(|it| it.status == 200 && it.path.ends_with("/clone"));
        let number = vmid.to_string();
        let Some(clone) = clones.find(|it| param(&it.params, "newid") == number) else {
            return;
        };
        if event.which.is_multiple_of(2) {
            remove_row(self.lab, vmid);
        }
        let (name, marker) = (
            param(&clone.params, "name"),
            param(&clone.params, "description"),
        );
        restore(self.lab, vmid, &name, &marker);
        sleep(event.length).await;
        // Where it was touched, the run has ended.
        let gone = pve.human_destroys(vmid);
        gone.expect("nobody else destroys it");
        let _ = self.lab.kube.delete("nodes", "", &name);
    }

    /// The Ledger is as it was so long ago.
    pub(super) async fn older_ledger(&self, event: &Event) {
        let kube = &self.lab.kube;
        let spec = |ledger: Value| ledger["spec"].as_object().cloned().unwrap_or_default();
        let Some(mut older) = kube.get(LEDGERS, "", "kproxide").map(spec) else {
            return;
        };
        sleep(event.length).await;
        // What it did not have goes.
        let now = kube.get(LEDGERS, "", "kproxide").map(spec);
        for (field, _) in now.unwrap_or_default() {
            older.entry(field).or_insert(Value::Null);
        }
        let _ = kube.patch(LEDGERS, "", "", "kproxide", json!({ "spec": older }));
    }
}

/// A person removes the row of this number, if there is one.
pub(crate) fn remove_row(lab: &Lab, vmid: u32) {
    let mut entries = ledger_entries(lab);
    entries.retain(|entry| entry["vmid"] != vmid);
    let spec = json!({"spec": {"entries": entries}});
    let removed = lab.kube.patch(LEDGERS, "", "", "kproxide", spec);
    removed.expect("the Ledger is there");
}

/// Numbers of rows that are in use.
pub(super) fn rows_in_use(lab: &Lab) -> Vec<String> {
    let entries = ledger_entries(lab);
    let in_use = entries
        .iter()
        .filter(|entry| text(&entry["state"]) != "quarantined");
    in_use.map(|entry| entry["vmid"].to_string()).collect()
}
