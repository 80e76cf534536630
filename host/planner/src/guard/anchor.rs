//! The anchor: what tells a Kubernetes cluster from its copies. A copy (a backup of etcd restored elsewhere) has our credentials, our key, our cluster id
//! and our claims; what it does not have is what we wrote after it was made.
//!
//! A tiny stopped VM without disks in each Proxmox cluster shows a [`Mark`]. Whoever leads moves it on every few minutes, the Ledger first, so that
//! it always shows one of the two marks that the Ledger knows. Anything else was written by somebody who has what we have: a copy of this cluster, or
//! the cluster that we are a copy of; or our Ledger was restored from a backup. Then nothing is done in that Proxmox cluster until a person says
//! that it is meant.
//!
//! The Ledger also says when a leader last found nothing amiss. While that is recent, nothing waits: leaders change, processes restart. After a gap
//! the marks alone prove nothing, for the other one may have been unable to write: nothing is removed before the anchor has stood still, in sight, for
//! [`WATCH`]. So a copy that is older than [`FRESH`] never removes anything while the original can write, and never stops it: it does not write. An
//! original that cannot move its mark on says so, for after [`WATCH`] a copy may take the anchor.

mod sight;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{
    Anchor, AnchorLook, ClusterFacts, ForeignMark, GuestFacts, LedgerFacts, Mark, OrphanLook,
};
use crate::hold::AnchorHold;
use crate::ids::{ClusterName, Vmid};
use crate::numbers::used_numbers;
use crate::plan::AnchorStep;
use crate::report::{AnchorReport, AnchorTrouble};
use crate::time::later;
use crate::world::World;
use sight::Sight;

/// A process moves its own mark on so often.
pub const MOVE: SignedDuration = SignedDuration::from_mins(4);
/// Another process's mark is left alone for so long: of two, the one that was there first moves on first.
pub const TAKE: SignedDuration = SignedDuration::from_mins(8);
/// A leader that spoke within this time was of our own lineage.
pub const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// After a gap the anchor has to stand still for so long, all the while in sight. Longer than [`TAKE`], in which whoever else is alive moves it.
pub const WATCH: SignedDuration = SignedDuration::from_mins(12);
/// A watch out of which it is lost begins anew, in the Ledger so often at most.
const LOST: SignedDuration = SignedDuration::from_mins(1);

/// What the VM's name begins with; its number follows.
pub const NAME: &str = "kproxide-anchor-";

/// Of the range, the highest free numbers that are tried. Where our credentials do not see the VM that they have made, each would be another VM.
const MOST_TRIED: usize = 6;
/// From so many VMs on that are called like anchors and show nothing of ours, no more are made: each would lose its line like those.
const MOST_STRIPPED: usize = 4;

/// Records of Proxmox clusters that no object names any more, at most.
const MOST_FORGOTTEN: usize = 50;

/// What these books say about a Proxmox cluster. `None`: its anchor is in order, or none is kept.
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

/// The annotation's value by which a person says that this very mark is to be taken for ours.
pub fn acknowledgement(cluster: &ClusterName, mark: &Mark) -> String {
    format!("{cluster}:{mark}")
}

/// It is called as an anchor is. That is a reason to look at it, and proves nothing: anybody may give a VM this name.
pub(crate) fn is_named(guest: &GuestFacts) -> bool {
    let name = guest.name.as_deref();
    name.is_some_and(|name| name.starts_with(NAME))
}

/// The random text of this process, if it is to keep anchors. A dry run only looks, and without the key no anchor could be told from any other VM.
fn keeper(world: &World) -> Option<&Arc<str>> {
    let host = world.host();
    let nonce = host.anchor_nonce.as_ref();
    nonce.filter(|_| !host.dry_run && host.key_known)
}

/// What a tick has found about all anchors; the Ledger knows it too.
#[derive(Default)]
pub(crate) struct Review {
    pub(crate) steps: Vec<AnchorStep>,
    pub(crate) reports: Vec<AnchorReport>,
    /// When time alone will change it.
    pub(crate) wake_at: Vec<Timestamp>,
}

/// Brings the Ledger's anchors in line with what they show.
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
    // An object that is made again must not find an anchor that nobody knows.
    kept.extend(rows.into_values().take(MOST_FORGOTTEN));
    kept.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    // Used up.
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
                // The Ledger was deleted, or written by a version that knows no anchors; or we are a copy of a time before there was one.
                // Whoever else is at work moves it on.
                Sight::Found(found) => {
                    let newest = |(_, look): &&(Vmid, &AnchorLook)| look.mark.sequence;
                    let is_mine = |look: &AnchorLook| look.mark.nonce == *self.nonce;
                    let mine = found.iter().filter(|(_, look)| is_mine(look));
                    let mine = mine.max_by_key(newest);
                    let (vmid, look) = mine.or_else(|| found.iter().max_by_key(newest))?;
                    let mut row = self.first(*vmid);
                    row.next = look.mark.clone();
                    // This very process is alone with its own.
                    row.watched_since = mine.is_none().then_some(self.now);
                    self.found(&mut row, &found);
                    Some(row)
                }
                Sight::Absent => {
                    let free = self.free_number(None);
                    // Without a number there is nothing that a copy could be told by, and machines go as ever: that frees one.
                    let mut row = self.first(free.unwrap_or(self.cluster.vmid_last));
                    if free.is_some() {
                        // Where there are machines there may be a copy that knows them, and no more of an anchor than we do.
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
                        "whether an anchor of this Kubernetes cluster exists in Proxmox cluster {name} is not known: {why}. Nothing is removed there before it is. kproxide without anchors, and so without this protection: --anchor=false"
                    ));
                    None
                }
            };
        };
        // Moments that are yet to come were written by a clock that has been set back.
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
        // Beside ours an older one stands for nobody who is at work, since whoever wrote it sees ours: it was made while another one was out of sight.
        let is_left_behind = |mark: &Mark| newest.is_some_and(|newest| mark.sequence < newest);
        let mut others = found.iter().filter(|(_, look)| !is_ours(row, &look.mark));
        if let Some((vmid, look)) = others.find(|(_, look)| !is_left_behind(&look.mark)) {
            return self.foreign(row, *vmid, &look.mark);
        }
        // Somebody has put back what we wrote; until then another one was at work.
        if row.foreign.take().is_some() {
            row.watched_since = Some(self.now);
        }
        let rank = |(vmid, look): &&(Vmid, &AnchorLook)| (look.mark.sequence, *vmid == row.vmid);
        let Some((vmid, look)) = found.iter().max_by_key(rank) else {
            return;
        };
        row.vmid = *vmid;
        if !self.is_turn(row, "is taken for ours") {
            return;
        }
        if look.mark == row.next {
            let next = self.mark_after(&row.next);
            row.mark = Some(std::mem::replace(&mut row.next, next));
        } else if row.next.nonce == *self.nonce {
            // A mark of this process, that it was to get the last time.
            self.tell(AnchorTrouble::Stuck, format!(
                "the anchor of this Kubernetes cluster in Proxmox cluster {} (VM {vmid}) could not be moved on: it still shows {}, and was to show {} at {:.0}. As long as that lasts, a copy of this cluster may take it for its own and remove machines. Is VM {vmid} locked? Then, once no backup or migration of it runs: qm unlock {vmid}",
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
        // The other one, if there is one, makes another.
        if row.foreign.take().is_some() {
            row.watched_since = Some(self.now);
        }
        if !self.is_turn(row, "is not there, and is made") {
            return;
        }
        row.at = self.now;
        self.review.wake_at.push(later(row.at, MOVE));
        let stripped = self.stripped();
        if stripped.len() >= MOST_STRIPPED {
            return self.tell(AnchorTrouble::Missing, format!(
                "the anchor of this Kubernetes cluster in Proxmox cluster {} is not there, and no more are made: {} VMs of resource pool {} are called {NAME}* and have no kproxide line of this cluster ({}), so something rewrites descriptions. Stop that, and delete those VMs that no other kproxide uses. Until then a copy of this cluster would not be noticed",
                self.name, stripped.len(), self.cluster.pool, stripped.join(", ")
            ));
        }
        let range = self.cluster.vmid_first..=self.cluster.vmid_last;
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
        // Out of sight the mark may have stood still for long, so that a copy knows it. What was being made before may still show it.
        if row.next.nonce != *self.nonce {
            let next = self.mark_after(&row.next);
            row.mark = Some(std::mem::replace(&mut row.next, next));
        }
        let Some(hypervisor) = self.make(row) else {
            return;
        };
        let why = match is_looked_at && !is_used {
            true => format!(
                "VMID {before} is taken by a VM that kproxide's token does not see. If that is told again and again, either the token lacks VM.Audit on /pool/{} and has made that VM itself (delete it then), or other people's VMs stand at the upper end of spec.vmidRange: choose another one. No more than {MOST_TRIED} numbers are tried",
                self.cluster.pool
            ),
            false => {
                "it was deleted, or Proxmox did not make it, and then says why in its task log"
                    .to_owned()
            }
        };
        self.tell(
            AnchorTrouble::Missing,
            format!(
                "the anchor of this Kubernetes cluster in Proxmox cluster {} is not there: {why}. It is tried now as VM {} on hypervisor {hypervisor}; as long as there is none, a copy of this cluster would not be noticed",
                self.name, row.vmid
            ),
        );
    }

    /// Of our range, what is called like an anchor and shows nothing of ours: made by us, as far as anybody can tell, and then rewritten.
    fn stripped(&self) -> Vec<String> {
        let inventory = self.world.inventories().get(self.name);
        let guests = inventory.into_iter().flat_map(|it| &it.guests);
        let looks = self.world.orphans().get(self.name);
        guests
            .filter(|(vmid, guest)| {
                let is_in_range =
                    (self.cluster.vmid_first..=self.cluster.vmid_last).contains(*vmid);
                let look = looks.and_then(|looks| looks.get(*vmid));
                is_in_range
                    && is_named(guest)
                    && guest.pool.as_deref() == Some(&*self.cluster.pool)
                    && matches!(look, Some(OrphanLook::NotProven(_)))
            })
            .map(|(vmid, _)| vmid.to_string())
            .collect()
    }

    /// What was in order stays so while its hypervisor is off; what was not is not proven by that.
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
            // Nobody can move it now.
            if self.now >= later(since, LOST) {
                row.watched_since = Some(self.now);
            }
            self.tell(AnchorTrouble::Unproven, format!(
                "kproxide was away for a while, and the anchor of this Kubernetes cluster in Proxmox cluster {name} (VM {}) cannot be looked at: {why}. Whether a copy of this cluster is at work is not known, so nothing is removed there before it has stood still for {} minutes. kproxide without anchors, and so without this protection: --anchor=false",
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

    /// Whether the anchor is to be moved or made now. Ends the watch that is over.
    fn is_turn(&mut self, row: &mut Anchor, then: &str) -> bool {
        if let Some(since) = row.watched_since {
            let end = later(since, WATCH);
            if self.now < end {
                // Said anew in the Ledger, or it would look like another gap.
                if self.now >= later(row.at, MOVE) {
                    row.at = self.now;
                }
                self.review.wake_at.extend([end, later(row.at, MOVE)]);
                self.tell(AnchorTrouble::Unproven, format!(
                    "kproxide was away for a while, or its Ledger did not know of an anchor: that of this Kubernetes cluster in Proxmox cluster {} (VM {}) {then} only if nobody else moves or makes one until {end:.0}, for then a copy of this cluster would be at work. Nothing is removed there before; nobody has to do anything",
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

    /// Where it is made: each time on another hypervisor of those that take it, for one of them may refuse. `None`, and told: none takes it.
    fn make(&mut self, row: &Anchor) -> Option<Arc<str>> {
        let inventory = self.world.inventories().get(self.name);
        let hypervisors = inventory.into_iter().flat_map(|it| &it.hypervisors);
        let ClusterFacts {
            include, exclude, ..
        } = self.cluster;
        let fit = hypervisors.filter(|(name, facts)| {
            facts.online
                && !facts.maintenance
                && !exclude.contains(name)
                && (include.is_empty() || include.contains(name))
        });
        let fit: Vec<_> = fit.map(|(name, _)| name.clone()).collect();
        self.review.wake_at.push(later(row.at, MOVE));
        let turn = usize::try_from(row.at.as_second() / MOVE.as_secs()).unwrap_or_default();
        let Some(hypervisor) = turn.checked_rem(fit.len()).and_then(|it| fit.get(it)) else {
            self.tell(AnchorTrouble::Missing, format!(
                "the anchor of this Kubernetes cluster in Proxmox cluster {} cannot be made: no hypervisor takes it, because each is offline, in maintenance or not one of spec.hypervisors of the ProxmoxCluster. Until one does, a copy of this cluster would not be noticed",
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

    /// The highest: machines take the lowest. After one that turned out to be taken, the next below it, and again from the top after the last that is
    /// tried: what is taken out of sight looks free as soon as nobody looks at it.
    fn free_number(&mut self, taken: Option<Vmid>) -> Option<Vmid> {
        let used = used_numbers(self.world, self.ledger, self.name);
        let looks = self.world.orphans().get(self.name);
        let (first, last) = (self.cluster.vmid_first.0, self.cluster.vmid_last.0);
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
                "no number of {first} to {last} is free for the anchor of this Kubernetes cluster in Proxmox cluster {}: widen spec.vmidRange of the ProxmoxCluster, or a copy of this cluster would not be noticed",
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
            0 => format!("has shown {mark} since {since:.0}, which this kproxide did not write"),
            _ => format!(
                "shows {mark}, which this kproxide did not write, and was moved on {moved} times since {since:.0}"
            ),
        };
        let who = match moved {
            0 => {
                "A copy of this cluster is at work with the same credentials, or this is the copy, or the Ledger was restored from a backup, or the anchor VM itself was restored from a backup or rolled back to a snapshot"
            }
            _ => "A copy of this cluster is at work with the same credentials, or this is the copy",
        };
        self.tell(
            AnchorTrouble::Foreign,
            format!(
                "the anchor of this Kubernetes cluster in Proxmox cluster {} (VM {vmid}) {what}. {who}: nothing is launched, changed or removed there. In the copy, delete the ProxmoxCluster or give it a pool, numbers and credentials of its own. If no other kproxide runs for this cluster: kubectl annotate ledger kproxide --overwrite kproxide.dev/acknowledge-anchor={}",
                self.name,
                acknowledgement(self.name, mark)
            ),
        );
    }
}

#[cfg(test)]
mod tests;
