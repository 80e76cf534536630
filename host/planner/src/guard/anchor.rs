//! The anchor tells a Kubernetes cluster from a copy of it. A copy (a backup of etcd restored elsewhere) has our
//! credentials, our key, our cluster id and our claims. It does not have what we wrote after it was made.
//!
//! A small stopped VM without disks in each Proxmox cluster shows a [`Mark`]. The leader writes a new mark every few
//! minutes: first to the Ledger, then to the VM. So the VM always shows one of the two marks that the Ledger knows. If
//! it shows another, a copy of this cluster wrote it, or we are the copy, or our Ledger was restored from a backup.
//! Then kproxide does nothing in that Proxmox cluster until a person confirms the mark.
//!
//! The Ledger also says when a leader last found the mark to be right. While that is recent, nothing waits, so that
//! leaders can change and processes restart. After a gap an unchanged mark proves nothing yet, because the other
//! cluster may have been unable to write. Then kproxide removes nothing until it has watched the anchor for [`WATCH`]
//! without a change. So a copy that is older than [`FRESH`] removes nothing while the original can write. It does not
//! write either, so it never stops the original. An original that cannot write its mark reports that, because after
//! [`WATCH`] a copy may take the anchor.

mod sight;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{
    Anchor, AnchorLook, ClusterFacts, ForeignMark, GuestFacts, LedgerFacts, Mark, OrphanLook,
};
use crate::ids::{ClusterName, Vmid};
use crate::ledger::numbers::used_numbers;
use crate::plan::AnchorStep;
use crate::plan::report::{AnchorReport, AnchorTrouble};
use crate::reasons::on_hold::AnchorHold;
use crate::time::later;
use crate::world::World;
use sight::Sight;

/// A process replaces its own mark this often.
pub const MOVE: SignedDuration = SignedDuration::from_mins(4);
/// A process leaves another process's mark alone for this long. So of two processes the first one writes first.
pub const TAKE: SignedDuration = SignedDuration::from_mins(8);
/// If the Ledger was confirmed within this time, it was by a leader of this cluster.
pub const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// After a gap kproxide watches the anchor this long for changes, without losing sight of it. Longer than [`TAKE`],
/// within which any other process that is alive writes.
pub const WATCH: SignedDuration = SignedDuration::from_mins(12);
/// A watch begins anew when the anchor is out of sight. The Ledger records that at most this often.
const LOST: SignedDuration = SignedDuration::from_mins(1);

/// The VM's name is this and its VMID.
pub const NAME: &str = "kproxide-anchor-";

/// How many of the highest free VMIDs are tried. If our token cannot see the VM that it has made, each try makes one
/// more VM.
const MOST_TRIED: usize = 6;
/// With this many VMs that are named like anchors but carry no line of ours, kproxide makes no more: something rewrites
/// their descriptions.
const MOST_STRIPPED: usize = 4;

/// How many records are kept of Proxmox clusters whose ProxmoxCluster is gone.
const MOST_FORGOTTEN: usize = 50;

/// What this Ledger says about the anchor of a Proxmox cluster. `None`: it is in order, or kproxide keeps no anchors.
pub fn hold(
    world: &World,
    ledger: Option<&LedgerFacts>,
    cluster: &ClusterName,
) -> Option<AnchorHold> {
    keeper(world)?;
    let rows = ledger.map_or(&[][..], |ledger| &ledger.anchors);
    let Some(row) = rows.iter().find(|row| row.cluster == *cluster) else {
        return Some(AnchorHold::Unseen);
    };
    let foreign = row.foreign.as_ref().map(|_| AnchorHold::Foreign);
    foreign.or_else(|| row.watched_since.map(|_| AnchorHold::Watched))
}

/// The value of the annotation with which a person lets kproxide take this very mark as its own.
pub fn acknowledgement(cluster: &ClusterName, mark: &Mark) -> String {
    format!("{cluster}:{mark}")
}

/// Its name is that of an anchor. That is a reason to look at it, but no proof: any user can give a VM this name.
pub(crate) fn is_named(guest: &GuestFacts) -> bool {
    let name = guest.name.as_deref();
    name.is_some_and(|name| name.starts_with(NAME))
}

/// The random text of this process, if it keeps anchors. A dry run does not, and without the key an anchor looks like
/// any other VM.
fn keeper(world: &World) -> Option<&Arc<str>> {
    let host = world.host();
    let nonce = host.anchor_nonce.as_ref();
    nonce.filter(|_| !host.dry_run && host.key_known)
}

/// What a tick has found out about all anchors.
#[derive(Default)]
pub(crate) struct Review {
    pub(crate) steps: Vec<AnchorStep>,
    pub(crate) reports: Vec<AnchorReport>,
    /// When it changes without an event.
    pub(crate) wake_at: Vec<Timestamp>,
}

/// Brings the Ledger's records of anchors up to date.
pub(crate) fn review(world: &World, ledger: &mut LedgerFacts, now: Timestamp) -> Review {
    let mut review = Review::default();
    let Some(nonce) = keeper(world) else {
        return review;
    };
    let rows = std::mem::take(&mut ledger.anchors);
    let mut rows: BTreeMap<ClusterName, Anchor> = rows
        .into_iter()
        .map(|row| (row.cluster.clone(), row))
        .collect();
    let mut kept: Vec<Anchor> = Vec::new();
    for (name, cluster) in world.clusters() {
        let row = rows.remove(name);
        let sight = Sight::of(world, name, cluster, row.as_ref());
        let mut turn = Turn {
            world,
            ledger,
            name,
            cluster,
            nonce,
            now,
            review: &mut review,
        };
        kept.extend(turn.take(row, sight));
    }
    // Keep the record of a deleted ProxmoxCluster. If it is created again, its anchor must still be known.
    kept.extend(rows.into_values().take(MOST_FORGOTTEN));
    kept.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    // The annotation has done its work.
    if kept.iter().all(|row| row.foreign.is_none()) {
        ledger.anchor_acknowledged = None;
    }
    ledger.anchors = kept;
    review
}

/// One tick of one anchor.
struct Turn<'a> {
    world: &'a World,
    ledger: &'a mut LedgerFacts,
    name: &'a ClusterName,
    cluster: &'a ClusterFacts,
    nonce: &'a Arc<str>,
    now: Timestamp,
    review: &'a mut Review,
}

impl Turn<'_> {
    fn take(&mut self, row: Option<Anchor>, sight: Sight<'_>) -> Option<Anchor> {
        let name = self.name;
        let Some(mut row) = row else {
            return match sight {
                // The Ledger was deleted, or written by a version without anchors, or we are a copy from before there
                // was one. Watch the anchor: if another process is at work, it will write.
                Sight::Found(found) => {
                    let newest = |(_, look): &&(Vmid, &AnchorLook)| look.mark.sequence;
                    let is_mine = |look: &AnchorLook| look.mark.nonce == *self.nonce;
                    let mine = found.iter().filter(|(_, look)| is_mine(look));
                    let mine = mine.max_by_key(newest);
                    let (vmid, look) = mine.or_else(|| found.iter().max_by_key(newest))?;
                    let mut row = self.first(*vmid);
                    row.next = look.mark.clone();
                    // A mark of this very process needs no watch.
                    row.watched_since = mine.is_none().then_some(self.now);
                    self.found(&mut row, &found);
                    Some(row)
                }
                Sight::Absent => {
                    let free = self.free_number(None);
                    // Without a free VMID there can be no anchor. Removals go on as usual, and free a VMID.
                    let mut row = self.first(free.unwrap_or(self.cluster.vmid_range.last));
                    if free.is_some() {
                        // If there are machines already, there may be a copy that knows them and has no anchor either.
                        // So watch first.
                        if self.ledger.entries.is_empty() && self.world.claims().is_empty() {
                            let _ = self.make(&row);
                        } else {
                            row.watched_since = Some(self.now);
                            self.absent(&mut row);
                        }
                    }
                    Some(row)
                }
                Sight::Unknown(why) => {
                    self.tell(AnchorTrouble::Unproven, format!(
                        "kproxide does not know whether Proxmox cluster {name} has an anchor VM of this Kubernetes cluster: {why}. Until it knows, it removes nothing there. To run without this protection: --anchor=false"
                    ));
                    None
                }
            };
        };
        // Times in the future come from a clock that has been set back.
        row.at = row.at.min(self.now);
        row.watched_since = row.watched_since.map(|since| since.min(self.now));
        if self.now >= later(row.at, FRESH) {
            row.watched_since = Some(self.now);
            row.at = self.now;
        }
        match sight {
            Sight::Found(found) => self.found(&mut row, &found),
            Sight::Absent => self.absent(&mut row),
            Sight::Unknown(why) => self.unknown(&mut row, &why),
        }
        Some(row)
    }

    fn found(&mut self, row: &mut Anchor, found: &[(Vmid, &AnchorLook)]) {
        let is_ours =
            |row: &Anchor, mark: &Mark| *mark == row.next || row.mark.as_ref() == Some(mark);
        let word = self.ledger.anchor_acknowledged.clone();
        let is_meant = |mark: &Mark| word.as_deref() == Some(&*acknowledgement(self.name, mark));
        let mut meant = found.iter().filter(|(_, look)| is_meant(&look.mark));
        if let Some((vmid, look)) = meant.find(|(_, look)| !is_ours(row, &look.mark)) {
            row.vmid = *vmid;
            (row.mark, row.next) = (None, look.mark.clone());
            (row.at, row.watched_since, row.foreign) = (self.now, None, None);
        }
        let ours = found.iter().filter(|(_, look)| is_ours(row, &look.mark));
        let newest = ours.map(|(_, look)| look.mark.sequence).max();
        // A VM with an older mark beside ours is left over from a time when another anchor was out of sight. No other
        // process is at work, because that process would see our newer mark.
        let is_left_behind = |mark: &Mark| newest.is_some_and(|newest| mark.sequence < newest);
        let mut others = found.iter().filter(|(_, look)| !is_ours(row, &look.mark));
        if let Some((vmid, look)) = others.find(|(_, look)| !is_left_behind(&look.mark)) {
            return self.foreign(row, *vmid, &look.mark);
        }
        // Our mark is back. Until now another process may have been at work, so watch first.
        if row.foreign.take().is_some() {
            row.watched_since = Some(self.now);
        }
        let rank = |(vmid, look): &&(Vmid, &AnchorLook)| (look.mark.sequence, *vmid == row.vmid);
        let Some((vmid, look)) = found.iter().max_by_key(rank) else {
            return;
        };
        row.vmid = *vmid;
        if !self.is_turn(row, "kproxide takes it as its own") {
            return;
        }
        if look.mark == row.next {
            let next = self.mark_after(&row.next);
            row.mark = Some(std::mem::replace(&mut row.next, next));
        } else if row.next.nonce == *self.nonce {
            // The last write of this process has not reached the VM.
            self.tell(AnchorTrouble::Stuck, format!(
                "kproxide cannot write to its anchor in Proxmox cluster {} (VM {vmid}): it still shows {}, and should show {} since {:.0}. As long as this lasts, a copy of this Kubernetes cluster could take the anchor and remove machines. Is VM {vmid} locked? Then, once no backup or migration of it runs: qm unlock {vmid}",
                self.name, look.mark, row.next, row.at
            ));
        }
        row.at = self.now;
        let steps = found.iter().map(|(vmid, look)| AnchorStep {
            cluster: self.name.clone(),
            vmid: *vmid,
            hypervisor: look.hypervisor.clone(),
            pool: self.cluster.pool.clone(),
            from: Some(look.mark.clone()),
            to: row.next.clone(),
        });
        self.review.steps.extend(steps);
    }

    fn absent(&mut self, row: &mut Anchor) {
        // Another process, if there is one, makes a new anchor. So watch first.
        if row.foreign.take().is_some() {
            row.watched_since = Some(self.now);
        }
        if !self.is_turn(row, "kproxide makes the anchor") {
            return;
        }
        row.at = self.now;
        self.review.wake_at.push(later(row.at, MOVE));
        let stripped = self.stripped();
        if stripped.len() >= MOST_STRIPPED {
            return self.tell(AnchorTrouble::Missing, format!(
                "the anchor VM of this Kubernetes cluster in Proxmox cluster {} is missing, and kproxide makes no more: {} VMs of resource pool {} are named {NAME}* but have no kproxide line of this cluster ({}). Something rewrites their descriptions. Stop that, and delete those VMs that no other kproxide uses. Until then kproxide would not notice a copy of this cluster",
                self.name, stripped.len(), self.cluster.pool, stripped.join(", ")
            ));
        }
        let range = self.cluster.vmid_range.first..=self.cluster.vmid_range.last;
        let is_used = used_numbers(self.world, self.ledger, self.name).contains(&row.vmid.0);
        let looks = self.world.orphans().get(self.name);
        let is_looked_at = looks.is_some_and(|looks| looks.contains_key(&row.vmid));
        let before = row.vmid;
        if is_used || is_looked_at || !range.contains(&before) {
            let Some(vmid) = self.free_number(Some(before)) else {
                return;
            };
            row.vmid = vmid;
        }
        // A new anchor needs a new mark: the last one may be old enough that a copy knows it. A VM that was being made
        // may still show it.
        if row.next.nonce != *self.nonce {
            let next = self.mark_after(&row.next);
            row.mark = Some(std::mem::replace(&mut row.next, next));
        }
        let Some(hypervisor) = self.make(row) else {
            return;
        };
        let why = match is_looked_at && !is_used {
            true => format!(
                "a VM that kproxide's token cannot see has VMID {before}. If you see this again and again: either the token lacks VM.Audit on /pool/{} and made that VM itself (then delete it), or other users have VMs at the upper end of spec.vmidRange (then choose another range). kproxide tries at most {MOST_TRIED} VMIDs",
                self.cluster.pool
            ),
            false => "it was deleted, or Proxmox failed to make it (see its task log)".to_owned(),
        };
        self.tell(
            AnchorTrouble::Missing,
            format!(
                "the anchor VM of this Kubernetes cluster in Proxmox cluster {} is missing: {why}. kproxide now tries VM {} on hypervisor {hypervisor}. Without an anchor kproxide would not notice a copy of this cluster",
                self.name, row.vmid
            ),
        );
    }

    /// VMs in our range that are named like an anchor but carry no line of ours. Probably kproxide made them, and
    /// something rewrote their descriptions.
    fn stripped(&self) -> Vec<String> {
        let inventory = self.world.inventories().get(self.name);
        let guests = inventory.into_iter().flat_map(|it| &it.guests);
        let looks = self.world.orphans().get(self.name);
        guests
            .filter(|(vmid, guest)| {
                let is_in_range =
                    (self.cluster.vmid_range.first..=self.cluster.vmid_range.last).contains(*vmid);
                let look = looks.and_then(|looks| looks.get(*vmid));
                is_in_range
                    && is_named(guest)
                    && guest.pool.as_deref() == Some(&*self.cluster.pool)
                    && matches!(look, Some(OrphanLook::NotProven(_)))
            })
            .map(|(vmid, _)| vmid.to_string())
            .collect()
    }

    /// The anchor cannot be read. If it was in order, it stays so. If not, this proves nothing.
    fn unknown(&mut self, row: &mut Anchor, why: &str) {
        let name = self.name;
        let is_due = self.now >= later(row.at, MOVE);
        if is_due {
            row.at = self.now;
        }
        self.review.wake_at.push(later(row.at, MOVE));
        if let Some(foreign) = row.foreign.clone() {
            self.tell_foreign(&foreign);
        } else if let Some(since) = row.watched_since {
            // Out of sight, no change could be noticed, so the watch begins anew.
            if self.now >= later(since, LOST) {
                row.watched_since = Some(self.now);
            }
            self.tell(AnchorTrouble::Unproven, format!(
                "kproxide was away for a while and cannot read its anchor in Proxmox cluster {name} (VM {}): {why}. A copy of this Kubernetes cluster may be at work, so kproxide removes nothing there until the anchor has not changed for {} minutes. To run without this protection: --anchor=false",
                row.vmid,
                WATCH.as_mins()
            ));
        }
    }

    fn foreign(&mut self, row: &mut Anchor, vmid: Vmid, mark: &Mark) {
        let foreign = match row.foreign.take() {
            Some(known) if known.mark == *mark && known.vmid == vmid => known,
            known => ForeignMark {
                vmid,
                mark: mark.clone(),
                since: known.as_ref().map_or(self.now, |known| known.since),
                moved: known.map_or(0, |known| known.moved.saturating_add(1)),
            },
        };
        self.tell_foreign(&foreign);
        row.foreign = Some(foreign);
    }

    /// Whether to write or make the anchor now. Ends the watch when its time is over.
    fn is_turn(&mut self, row: &mut Anchor, then: &str) -> bool {
        if let Some(since) = row.watched_since {
            let end = later(since, WATCH);
            if self.now < end {
                // Confirm the time in the Ledger, or it would look like another gap.
                if self.now >= later(row.at, MOVE) {
                    row.at = self.now;
                }
                self.review.wake_at.extend([end, later(row.at, MOVE)]);
                self.tell(AnchorTrouble::Unproven, format!(
                    "kproxide was away for a while, or its Ledger knew no anchor. It now watches the anchor in Proxmox cluster {} (VM {}). If another kproxide writes to it or makes one before {end:.0}, a copy of this cluster is at work. If not, {then}. Until then kproxide removes nothing there. You need not do anything",
                    self.name, row.vmid
                ));
                return false;
            }
            row.watched_since = None;
            return true;
        }
        let pause = match row.next.nonce == *self.nonce {
            true => MOVE,
            false => TAKE,
        };
        let due = later(row.at, pause);
        self.review.wake_at.push(due);
        self.now >= due
    }

    /// Makes the anchor, each time on another available hypervisor, because one of them may refuse. `None`: no
    /// hypervisor is available, which is reported.
    fn make(&mut self, row: &Anchor) -> Option<Arc<str>> {
        let inventory = self.world.inventories().get(self.name);
        let hypervisors = inventory.into_iter().flat_map(|it| &it.hypervisors);
        let fit = hypervisors.filter(|(name, facts)| {
            facts.online
                && !facts.maintenance
                && !self.cluster.drains(name)
                && !self.cluster.excludes(name)
        });
        let fit: Vec<_> = fit.map(|(name, _)| name.clone()).collect();
        self.review.wake_at.push(later(row.at, MOVE));
        let turn = usize::try_from(row.at.as_second() / MOVE.as_secs()).unwrap_or_default();
        let Some(hypervisor) = turn.checked_rem(fit.len()).and_then(|it| fit.get(it)) else {
            self.tell(AnchorTrouble::Missing, format!(
                "kproxide cannot make the anchor VM of this Kubernetes cluster in Proxmox cluster {}: each hypervisor is offline, in maintenance, or excluded or to be emptied by spec.hypervisors of the ProxmoxCluster. Until one is available, kproxide would not notice a copy of this cluster",
                self.name
            ));
            return None;
        };
        self.review.steps.push(AnchorStep {
            cluster: self.name.clone(),
            vmid: row.vmid,
            hypervisor: hypervisor.clone(),
            pool: self.cluster.pool.clone(),
            from: None,
            to: row.next.clone(),
        });
        Some(hypervisor.clone())
    }

    fn first(&self, vmid: Vmid) -> Anchor {
        Anchor {
            cluster: self.name.clone(),
            vmid,
            mark: None,
            next: Mark {
                sequence: 1,
                nonce: self.nonce.clone(),
            },
            at: self.now,
            watched_since: None,
            foreign: None,
        }
    }

    fn mark_after(&self, mark: &Mark) -> Mark {
        Mark {
            sequence: mark.sequence.saturating_add(1),
            nonce: self.nonce.clone(),
        }
    }

    /// The highest free VMID, because machines take the lowest. If that turns out to be taken, the next below it, and
    /// after the last one from the top again. (A VMID that a VM out of sight has taken looks free.)
    fn free_number(&mut self, taken: Option<Vmid>) -> Option<Vmid> {
        let used = used_numbers(self.world, self.ledger, self.name);
        let looks = self.world.orphans().get(self.name);
        let (first, last) = (
            self.cluster.vmid_range.first.0,
            self.cluster.vmid_range.last.0,
        );
        let free = (first..=last).rev().map(Vmid).filter(|vmid| {
            let is_seen = looks.is_some_and(|looks| looks.contains_key(vmid));
            !used.contains(&vmid.0) && (Some(*vmid) == taken || !is_seen)
        });
        let free: Vec<Vmid> = free.take(MOST_TRIED).collect();
        let below = free.iter().find(|vmid| Some(**vmid) < taken);
        let other = || free.iter().find(|vmid| Some(**vmid) != taken);
        let free = below.or_else(other).copied();
        if free.is_none() {
            self.tell(AnchorTrouble::Missing, format!(
                "no VMID from {first} to {last} is free for the anchor VM of this Kubernetes cluster in Proxmox cluster {}. Widen spec.vmidRange of the ProxmoxCluster: without an anchor kproxide would not notice a copy of this cluster",
                self.name
            ));
        }
        free
    }

    fn tell(&mut self, trouble: AnchorTrouble, message: String) {
        self.review.reports.push(AnchorReport {
            cluster: self.name.clone(),
            trouble,
            message,
            commands: Vec::new(),
        });
    }

    fn tell_foreign(&mut self, foreign: &ForeignMark) {
        let ForeignMark {
            vmid,
            mark,
            since,
            moved,
        } = foreign;
        let what = match moved {
            0 => format!("has shown {mark} since {since:.0}. This kproxide did not write that"),
            _ => format!(
                "shows {mark}. This kproxide did not write that. It has changed {moved} times since {since:.0}"
            ),
        };
        let who = match moved {
            0 => {
                "A copy of this cluster is at work with the same credentials, or this is the copy, or the Ledger was restored from a backup, or the anchor VM itself was restored from a backup or rolled back to a snapshot"
            }
            _ => "A copy of this cluster is at work with the same credentials, or this is the copy",
        };
        let command = format!(
            "kubectl annotate ledger kproxide --overwrite kproxide.dev/acknowledge-anchor={}",
            acknowledgement(self.name, mark)
        );
        self.review.reports.push(AnchorReport {
            cluster: self.name.clone(),
            trouble: AnchorTrouble::Foreign,
            message: format!(
                "the anchor of this Kubernetes cluster in Proxmox cluster {} (VM {vmid}) {what}. {who}. So kproxide launches, changes and removes nothing there. In the copy, delete the ProxmoxCluster, or give it a pool, VMIDs and credentials of its own. If no other kproxide runs for this cluster: {command}",
                self.name,
            ),
            commands: vec![command],
        });
    }
}

#[cfg(test)]
mod tests;
