//! kproxide's machines that have lost their claim: a user removed the claim's finalizer, or Kubernetes was restored
//! from a backup.
//!
//! Adoption first: a machine whose Node is Ready gets a new claim, and its pods do not notice. Destruction last: any
//! other machine waits for `--orphan-grace`, counted in the Ledger. Then it gets a condemned claim, which is removed
//! like any other, with all its proofs. Nothing is concluded from absence, only from our marker for this very VMID in
//! the VM's configuration, and from the Ledger, which shows that the machine was never removed. A machine whose Node is
//! Ready is never condemned.

use jiff::SignedDuration;

use crate::check::orphans::{acknowledgement, forget_words, is_whole, may_return};
use crate::claim::Condition;
use crate::facts::{
    Adopts, ClaimFacts, ClaimResources, ClaimSpec, ClassFacts, EntryState, Labels, LedgerEntry,
    LedgerFacts, OrphanFacts, OrphanLook, OrphanSeen, PoolFacts, RemovalReason,
};
use crate::ids::{
    ClaimName, ClassName, ClusterName, HypervisorId, NodeName, PoolName, Vmid, is_dns_label,
};
use crate::keys;
use crate::plan::Adoption;
use crate::plan::question::Decoration;
use crate::plan::report::OrphanReport;
use crate::planning::claims::may_remove::{Removal, may_remove};
use crate::planning::machines::shape::claim_labels;
use crate::planning::{Planning, Tick};
use crate::time::later;
use crate::world::{NodeView, World};

/// New claims in one tick, at most. The rest follows in the next ticks.
const MOST_ADOPTIONS: usize = 20;
/// Orphans that wait in the Ledger, at most. Users have to remove further ones by hand.
const MOST_WAITING: usize = 1_000;

/// While its hypervisor is off, the start of an orphan's grace is moved forward this often.
const OFF_FOR: SignedDuration = SignedDuration::from_mins(5);

/// For fields of the lost claim that are unknown.
const UNKNOWN: &str = "unknown";

/// One orphan with everything that is known beside it.
struct Orphan<'w> {
    cluster: &'w ClusterName,
    vmid: Vmid,
    facts: &'w OrphanFacts,
    entry: Option<LedgerEntry>,
    node: Option<NodeView<'w>>,
    /// As the Ledger, its Node, or else its name says.
    pool: Option<PoolName>,
}

/// What is to become of it.
enum Fate {
    /// It has a claim, or is about to have one.
    Claimed,
    Adopted(Box<Adoption>),
    /// kproxide leaves it as it is. Says why, and what users can do.
    Left(String),
    /// As that, until a person says this word.
    AwaitsWord(String, String),
}

impl Planning<'_> {
    /// Step 1, after the claims: decides about machines without a claim.
    pub(in crate::planning) fn see_to_orphans(&mut self) {
        let world = self.tick.world;
        self.forget_orphans();
        for (cluster, looks) in world.orphans() {
            for (vmid, look) in looks {
                let OrphanLook::Ours(facts) = look else {
                    continue;
                };
                let orphan = Orphan::new(world, &self.ledger, cluster, *vmid, facts);
                let mut word = None;
                let (warning, message) = match self.fate(&orphan) {
                    Fate::Claimed => continue,
                    Fate::Left(why) => (true, why),
                    Fate::AwaitsWord(why, needed) => {
                        word = Some(needed);
                        (true, why)
                    }
                    Fate::Adopted(adoption) => {
                        let condemned = adoption.is_condemned();
                        let verb = if condemned {
                            "kproxide removes it"
                        } else {
                            "kproxide takes it over"
                        };
                        let message = format!(
                            "{verb} as NodeClaim {}: {}",
                            adoption.claim, adoption.reason
                        );
                        if orphan.entry.is_none() {
                            // The Ledger was lost or is older than the machine. From this plan on the machine counts.
                            let Adoption { claim, spec, .. } = &*adoption;
                            let entry = LedgerEntry::of(claim, spec, EntryState::Live);
                            self.ledger.entries.push(entry);
                        }
                        self.adoptions.push(*adoption);
                        (condemned, message)
                    }
                };
                let is_proven = word.is_none();
                self.report.orphans.push(OrphanReport {
                    cluster: cluster.clone(),
                    vmid: *vmid,
                    pool: orphan.pool.clone(),
                    node: orphan.node.map(|node| node.name().clone()),
                    warning,
                    word,
                    message: match is_proven {
                        true => format!(
                            "VM {vmid} of Proxmox cluster {cluster} is one of kproxide's machines and has lost its NodeClaim: {message}"
                        ),
                        false => format!(
                            "VM {vmid} of Proxmox cluster {cluster} carries the marker of NodeClaim {}, which there is not: {message}",
                            facts.name.as_deref().unwrap_or_default()
                        ),
                    },
                });
            }
        }
        forget_words(&mut self.ledger);
    }

    /// Forgets orphans that have a claim again, are gone, or no longer carry our marker.
    fn forget_orphans(&mut self) {
        let world = self.tick.world;
        for seen in &mut self.ledger.orphans {
            // A time in the future comes from a clock that has been set back.
            seen.since = seen.since.min(self.tick.now);
            // The grace counts only time in which the Node could have been Ready. It is not written in every tick.
            if later(seen.since, OFF_FOR) <= self.tick.now && is_off(world, seen) {
                seen.since = self.tick.now;
            }
        }
        self.ledger.orphans.retain(|seen| {
            let is_other = match world.orphan(&seen.cluster, seen.vmid) {
                Some(OrphanLook::Ours(facts)) => facts.claim_uid != seen.claim_uid,
                Some(OrphanLook::Anchor(_) | OrphanLook::NotProven(_)) => true,
                // Not looked at yet since the last restart, or while its hypervisor is off.
                None => false,
            };
            let inventory = world.inventories().get(&seen.cluster);
            let is_gone = inventory.is_some_and(|inventory| inventory.lacks(seen.vmid, None));
            let is_known = world.clusters().contains_key(&seen.cluster);
            is_known && !is_other && !is_gone && !world.is_claimed(&seen.cluster, seen.vmid)
        });
    }

    fn fate(&mut self, orphan: &Orphan<'_>) -> Fate {
        let world = self.tick.world;
        let facts = orphan.facts;
        if world.is_claimed(orphan.cluster, orphan.vmid) {
            return Fate::Claimed;
        }
        match orphan.entry.as_ref().map(|entry| &entry.state) {
            Some(EntryState::Reserved { .. }) => return Fate::Claimed,
            Some(EntryState::Quarantined { until, .. }) => {
                return Fate::Left(format!(
                    "kproxide had destroyed it, so a user has restored it. Its VMID is in quarantine until {until:.0}, and kproxide does not touch it. Remove it by hand, or give it another VMID and take the kproxide lines out of its description"
                ));
            }
            Some(EntryState::Live) | None => {}
        }
        // VMs outside of the range are looked at only because they could be an anchor.
        let cluster = world.clusters().get(orphan.cluster);
        let is_in_range = cluster.is_some_and(|it| it.has_in_range(orphan.vmid));
        if !is_in_range {
            return Fate::Left(
                "its VMID is outside of spec.vmidRange of the ProxmoxCluster, so kproxide does not touch it. Widen the range, or remove the VM by hand".to_owned(),
            );
        }
        let name = match self.name_of(orphan) {
            Ok(name) => name,
            Err(why) => return Fate::Left(why),
        };
        if !world.host().key_known {
            return Fate::Left("the ownership key is missing".to_owned());
        }
        // Without its definition no NodeClaim can be made.
        if let Some(problem) = &world.host().definition_problem {
            return Fate::Left(problem.clone());
        }
        if let Some(lock) = &facts.lock {
            return Fate::Left(format!(
                "it is locked ({lock}). kproxide waits until Proxmox has finished with it"
            ));
        }
        if self.adoptions.len() >= MOST_ADOPTIONS {
            return Fate::Left(
                "kproxide sees to others first, and to it in a later tick".to_owned(),
            );
        }
        if let Some(names) = orphan.several_nodes(world) {
            return Fate::Left(format!(
                "several Nodes have its UUID ({names}). Delete those that are not this machine"
            ));
        }
        if let Some(node) = orphan.node.filter(|node| node.facts.ready) {
            // The grace begins anew when it is lost again.
            let is_its =
                |seen: &OrphanSeen| seen.cluster == *orphan.cluster && seen.vmid == orphan.vmid;
            self.ledger.orphans.retain(|seen| !is_its(seen));
            if facts.tombstoned {
                return Fate::Left(format!(
                    "its removal had begun when its NodeClaim disappeared, but its Node {} is Ready. kproxide leaves it as it is. To keep the machine, take the tombstone line out of its description. To remove it, drain the Node and remove the VM by hand",
                    node.name()
                ));
            }
        }
        let obstacle = match (&orphan.pool, orphan.node) {
            _ if facts.tombstoned => {
                "its removal had begun when its NodeClaim disappeared".to_owned()
            }
            (None, _) => "nothing says which NodePool it belonged to".to_owned(),
            (Some(pool), node) => match (pool_and_class(world, pool), node) {
                (Err(why), Some(node)) if node.facts.ready => {
                    return Fate::Left(format!(
                        "{why}, but its Node {} is Ready. kproxide leaves it as it is. Create the missing object again, or drain the Node and remove the VM by hand",
                        node.name()
                    ));
                }
                (Err(why), _) => why,
                (Ok(_), None) => {
                    "it has no Node, so its launch has not finished or it has left the cluster"
                        .to_owned()
                }
                (Ok(_), Some(node)) if node.facts.ready && !self.may_return(orphan, &node) => {
                    let word = acknowledgement(orphan.cluster, orphan.vmid, &facts.nonce);
                    return Fate::AwaitsWord(
                        format!(
                            "the Ledger does not know it, and its Node {} is younger than the Ledger. So kproxide has removed this machine and somebody restored it, or it has the marker of another one, or the Ledger is from a backup. kproxide leaves it alone. If you do not want it, remove it by hand. If it is yours, let kproxide take it over: kubectl annotate --overwrite ledger kproxide {}={word}",
                            node.name(),
                            keys::ACKNOWLEDGE_ORPHAN,
                        ),
                        word,
                    );
                }
                (Ok((facts, class)), Some(node)) if node.facts.ready => {
                    let why = format!("its Node {} is Ready", node.name());
                    let spec = orphan.spec_in_service(&name, pool, facts, class, &node);
                    return Fate::Adopted(Box::new(Adoption {
                        claim: name,
                        spec,
                        reason: why,
                    }));
                }
                (Ok(_), Some(node)) => format!("its Node {} is not Ready", node.name()),
            },
        };
        self.condemn(orphan, name, &obstacle)
    }

    fn may_return(&self, orphan: &Orphan<'_>, node: &NodeView<'_>) -> bool {
        let vm = (orphan.cluster, orphan.vmid);
        let nonce = &orphan.facts.nonce;
        orphan.entry.is_some() || may_return(Some(&self.ledger), node.facts, vm, nonce)
    }

    /// The claim must have the VM's name, because the proof of ownership compares them.
    fn name_of(&self, orphan: &Orphan<'_>) -> Result<ClaimName, String> {
        let found = orphan.facts.name.as_deref().unwrap_or_default();
        if let Some(entry) = &orphan.entry
            && entry.claim.as_str() != found
        {
            return Err(format!(
                "its name is {found:?}, but its NodeClaim was {}. Give it that name again, or remove it by hand",
                entry.claim
            ));
        }
        let name = ClaimName::from(found);
        if found.is_empty() {
            return Err(
                "it has no name. Give it the name of its Node, or remove it by hand".into(),
            );
        }
        if !is_dns_label(found) {
            return Err(format!(
                "a NodeClaim cannot have its name {found:?} (only lower-case letters, digits and dashes). Rename it, or remove it by hand"
            ));
        }
        let is_planned = self.adoptions.iter().any(|other| other.claim == name);
        if is_planned || self.tick.world.claims().contains_key(&name) {
            return Err(format!(
                "there is another NodeClaim of its name, {name}. Remove one of the two machines by hand"
            ));
        }
        Ok(name)
    }

    /// Its Node is not Ready. When its grace is over and nothing forbids it, its removal begins.
    fn condemn(&mut self, orphan: &Orphan<'_>, name: ClaimName, obstacle: &str) -> Fate {
        let world = self.tick.world;
        // A machine that was proven gone has no entry in the Ledger, or one in quarantine. A user may restore a backup
        // of it at any time.
        if orphan.entry.is_none() {
            return Fate::Left(format!(
                "{obstacle}. The Ledger does not know it, so kproxide may have destroyed it and a user restored it. Remove it by hand if you do not want it"
            ));
        }
        let Some(since) = self.seen_since(orphan) else {
            return Fate::Left(format!(
                "{obstacle}. More than {MOST_WAITING} such machines wait already. Remove it by hand if you do not want it"
            ));
        };
        let grace = self.tick.limits.orphan_grace;
        let end = later(since, grace);
        if !self.tick.reached(end) {
            return Fate::Left(format!(
                "{obstacle}. Unless that changes, kproxide removes it after {end:.0} (--orphan-grace). To keep the VM, take the kproxide lines out of its description"
            ));
        }
        // Its Node is repaired like that of any other machine, under the same limits.
        if let (Some(pool), Some(node)) = (&orphan.pool, &orphan.node)
            && !orphan.facts.tombstoned
            && let Ok((facts, class)) = pool_and_class(world, pool)
        {
            let spec = orphan.spec_in_service(&name, pool, facts, class, node);
            return Fate::Adopted(Box::new(Adoption {
                claim: name,
                spec,
                reason: format!("{obstacle}, so kproxide repairs it as any other machine"),
            }));
        }
        if let Some(why) = disarmed(&mut self.tick, &self.ledger, orphan) {
            return Fate::Left(format!(
                "{obstacle}. kproxide does not remove it yet: {why}"
            ));
        }
        let planned = self.adoptions.iter().map(|adoption| &adoption.spec);
        // An orphan that waits for a person must not hold up the others.
        let goes_on = |claim: &&ClaimFacts| {
            let waits = [
                Condition::OwnershipMismatch,
                Condition::ProtectedVM,
                Condition::StuckLocked,
            ];
            let serves = world.node_of(claim).is_some_and(|node| node.facts.ready);
            !serves && waits.iter().all(|kind| claim.status.since(*kind).is_none())
        };
        let claims = world.claims().values().filter(goes_on);
        let mut others = claims.map(|claim| &claim.spec).chain(planned);
        if others.any(ClaimSpec::is_condemned) {
            return Fate::Left(format!(
                "{obstacle}. kproxide removes such machines one at a time, and this one after the others"
            ));
        }
        Fate::Adopted(Box::new(Adoption {
            spec: orphan.spec_condemned(&name),
            claim: name,
            reason: format!("{obstacle}, since {since:.0}"),
        }))
    }

    /// When it was first seen, which the Ledger records. `None`: the Ledger has no room for it.
    fn seen_since(&mut self, orphan: &Orphan<'_>) -> Option<jiff::Timestamp> {
        let rows = &mut self.ledger.orphans;
        let is_it =
            |seen: &&OrphanSeen| seen.cluster == *orphan.cluster && seen.vmid == orphan.vmid;
        if let Some(seen) = rows.iter().find(is_it) {
            return Some(seen.since);
        }
        if rows.len() >= MOST_WAITING {
            return None;
        }
        rows.push(OrphanSeen {
            cluster: orphan.cluster.clone(),
            vmid: orphan.vmid,
            claim_uid: orphan.facts.claim_uid.clone(),
            since: self.tick.now,
        });
        Some(self.tick.now)
    }
}

/// Its hypervisor does not answer, so its Node cannot be Ready and the VM cannot be read.
fn is_off(world: &World, seen: &OrphanSeen) -> bool {
    let inventory = world.inventories().get(&seen.cluster);
    inventory.is_some_and(|inventory| {
        let guest = inventory.guests.get(&seen.vmid);
        let hypervisor = guest.and_then(|guest| inventory.hypervisors.get(&guest.hypervisor));
        hypervisor.is_some_and(|hypervisor| !hypervisor.online)
    })
}

/// Why no machine may be removed for lack of a claim: not everything that could prove a claim has been read.
fn disarmed(tick: &mut Tick<'_>, ledger: &LedgerFacts, orphan: &Orphan<'_>) -> Option<String> {
    let cluster = orphan.cluster;
    let removal = Removal {
        reason: RemovalReason::Deleted,
        has_replacement: false,
        has_begun: false,
        claim: None,
        cluster,
        pool: orphan.pool.as_ref(),
        node: orphan.node,
    };
    if let Err(hold) = may_remove(tick, ledger, &removal) {
        return Some(hold.to_string());
    }
    if orphan.facts.protected {
        return Some("its protection flag is set; clear it if the VM may go".to_owned());
    }
    if let Some(snapshot) = &orphan.facts.snapshot {
        return Some(format!(
            "it has a snapshot, {snapshot}; delete its snapshots if the VM may go"
        ));
    }
    let inventory = tick.world.inventories().get(cluster);
    if inventory.is_some_and(is_whole) {
        return None;
    }
    let off: Vec<&str> = inventory
        .into_iter()
        .flat_map(|inventory| &inventory.hypervisors)
        .filter(|(_, hypervisor)| !hypervisor.online)
        .map(|(name, _)| &**name)
        .collect();
    Some(match off.is_empty() {
        false => format!(
            "not every hypervisor of Proxmox cluster {cluster} answers: {}",
            off.join(", ")
        ),
        true => format!("Proxmox cluster {cluster} does not answer in full"),
    })
}

/// The NodePool and NodeClass that it would belong to, or which of them is missing.
fn pool_and_class<'w>(
    world: &'w World,
    name: &PoolName,
) -> Result<(&'w PoolFacts, &'w ClassFacts), String> {
    let pool = world
        .pools()
        .get(name)
        .ok_or_else(|| format!("its NodePool {name} does not exist"))?;
    let class = world.classes().get(&pool.node_class).ok_or_else(|| {
        format!(
            "NodeClass {} of its NodePool {name} does not exist",
            pool.node_class
        )
    })?;
    Ok((pool, class))
}

impl<'w> Orphan<'w> {
    fn new(
        world: &'w World,
        ledger: &LedgerFacts,
        cluster: &'w ClusterName,
        vmid: Vmid,
        facts: &'w OrphanFacts,
    ) -> Self {
        let is_its = |entry: &&LedgerEntry| entry.cluster == *cluster && entry.vmid == vmid;
        let entry = ledger.entries.iter().find(is_its).cloned();
        let uuid = facts.smbios_uuid.as_ref();
        let node = uuid.and_then(|uuid| world.node_by_uuid(uuid));
        let labelled = node.and_then(|node| node.facts.labels.get(keys::POOL));
        // A claim's name is its pool's with eight letters more.
        let named = facts.name.as_deref().and_then(|name| name.rsplit_once('-'));
        let pool = match (&entry, labelled, named) {
            (Some(entry), ..) => Some(entry.pool.clone()),
            (None, Some(label), _) => Some(PoolName::from(label.as_str())),
            (None, None, Some((pool, _))) => Some(PoolName::from(pool)),
            (None, None, None) => None,
        };
        Self {
            cluster,
            vmid,
            facts,
            entry,
            node,
            pool,
        }
    }

    /// Names of the Nodes with its UUID, if there is more than one.
    fn several_nodes(&self, world: &World) -> Option<String> {
        let uuid = self.facts.smbios_uuid.as_ref()?;
        let names: Vec<&str> = world.nodes_with_uuid(uuid).map(NodeName::as_str).collect();
        (names.len() > 1).then(|| names.join(", "))
    }

    /// A claim for a machine in service. Its Node must not change, so the Node's own labels and taints win over those
    /// of the pool.
    fn spec_in_service(
        &self,
        name: &ClaimName,
        pool_name: &PoolName,
        pool: &PoolFacts,
        class: &ClassFacts,
        node: &NodeView<'_>,
    ) -> ClaimSpec {
        let of_node = &node.facts.labels;
        let mut spec = self.spec(name, pool_name, &pool.node_class, false);
        let named = of_node.get(keys::INSTANCE_TYPE).map(String::as_str);
        let mut sizes = class.instance_types.iter();
        let size = sizes.find(|size| {
            named.map_or(
                u64::from(size.cores) * 1000 == spec.resources.milli_cores
                    && size.memory_bytes() == spec.resources.memory_bytes,
                |named| size.name.as_str() == named,
            )
        });
        if let Some(named) = named {
            spec.instance_type = named.into();
        }
        if let Some(size) = size {
            spec.instance_type = size.name.clone();
            let hypervisor = HypervisorId {
                cluster: self.cluster.clone(),
                name: self.facts.hypervisor.clone(),
            };
            let none = Decoration::default();
            spec.labels = claim_labels(
                name.as_str(),
                pool_name,
                pool,
                class,
                size,
                &hypervisor,
                &none,
            );
        }
        for (key, value) in &mut spec.labels {
            if let Some(found) = of_node.get(key) {
                value.clone_from(found);
            }
        }
        spec
    }

    fn spec_condemned(&self, name: &ClaimName) -> ClaimSpec {
        let unknown = PoolName::from(UNKNOWN);
        self.spec(
            name,
            self.pool.as_ref().unwrap_or(&unknown),
            &ClassName::from(UNKNOWN),
            true,
        )
    }

    /// A claim from what is certain: the Ledger first, then the VM's configuration.
    fn spec(
        &self,
        name: &ClaimName,
        pool: &PoolName,
        class: &ClassName,
        condemned: bool,
    ) -> ClaimSpec {
        let facts = self.facts;
        let entry = self.entry.as_ref();
        ClaimSpec {
            pool: pool.clone(),
            class: class.clone(),
            cluster: self.cluster.clone(),
            vmid: self.vmid,
            vm_name: name.as_str().into(),
            hypervisor: facts.hypervisor.clone(),
            storage: entry.and_then(|entry| entry.storage.clone()),
            clone: None,
            instance_type: UNKNOWN.into(),
            resources: ClaimResources {
                milli_cores: entry.map_or(facts.milli_cores, |entry| entry.milli_cores),
                memory_bytes: entry.map_or(facts.memory_bytes, |entry| entry.memory_bytes),
                disk_bytes: entry
                    .map(|entry| entry.disk_bytes)
                    .filter(|bytes| *bytes > 0),
            },
            address: entry.and_then(|entry| entry.address),
            machine: None,
            labels: Labels::new(),
            annotations: Labels::new(),
            taints: Vec::new(),
            template_digest: UNKNOWN.into(),
            policy_digest: UNKNOWN.into(),
            policy: None,
            adopts: Some(Adopts {
                claim_uid: facts.claim_uid.clone(),
                nonce: facts.nonce.clone(),
                condemned,
            }),
            replaces: None,
        }
    }
}
