//! kproxide's machines without a claim. This reads their configurations, and the planner decides what becomes of them.
//! It changes nothing in Proxmox. A new claim is driven like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kproxide_planner::check::orphans::suspects;
use kproxide_planner::facts::{Delta, OrphanFacts, OrphanLook};
use kproxide_planner::ids::{ClusterName, Vmid};
use kproxide_planner::plan::{Adoption, Verdict};
use kproxide_planner::world::World;
use tokio::time::{Instant, timeout};

use super::drive::Drive;
use super::pause::Driven;
use super::reserve::create_claim;
use super::subject::Surroundings;
use super::{Actor, Claim, Context, Identity, anchors};
use kproxide_common::chain::chain;
use kproxide_kube::claims;
use kproxide_pve::error::Meaning;
use kproxide_pve::ownership::{Marker, NotOurs, SignedMarker};
use kproxide_pve::vm_config::VmConfig;

/// Configurations that are read in one tick, at most.
const LOOKS_MAX: usize = 16;
/// A guest is read again after this long, because people edit descriptions.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// After this long, what an anchor showed is out of date, because the leader has written a new mark. Less than the
/// planner's `MOVE`.
const ANCHOR_OLD: Duration = Duration::from_secs(2 * 60);
/// A hypervisor that does not answer must not hold the loop up.
const DEADLINE: Duration = Duration::from_secs(5);

const MIB: u64 = 1 << 20;

/// What was read of the guests that no claim names. Forgetting it costs the same looks again.
#[derive(Default)]
pub(super) struct OrphanLooks(BTreeMap<(ClusterName, Vmid), Look>);

struct Look {
    /// When it was last asked for.
    asked: Instant,
    /// When it was last read.
    at: Instant,
    /// `None`: it could not be read.
    seen: Option<OrphanLook>,
}

impl Look {
    fn shows_anchor(&self) -> bool {
        matches!(self.seen, Some(OrphanLook::Anchor(_)))
    }
}

/// It did not answer, so nothing new is known.
struct Unread;

impl Actor {
    /// Reads some of the guests without a claim, first those that were not read for longest. Returns what has changed.
    pub async fn look_for_orphans(&mut self, world: &World) -> Vec<Delta> {
        let suspects = suspects(world);
        let OrphanLooks(looks) = &mut self.orphan_looks;
        looks.retain(|key, _| suspects.contains_key(key));
        // Without the key no marker can be checked.
        if !self.context.identity.keys.is_empty() {
            let anchors = world.ledger().map_or(&[][..], |ledger| &ledger.anchors);
            let anchors: BTreeSet<(&ClusterName, Vmid)> =
                anchors.iter().map(|row| (&row.cluster, row.vmid)).collect();
            let mut due: Vec<_> = suspects
                .iter()
                .map(|(key, hypervisor)| {
                    let is_anchor = anchors.contains(&(&key.0, key.1));
                    let asked = looks.get(key).map(|look| look.asked);
                    // Anchors first, however many other guests there are.
                    (!is_anchor, asked, key, hypervisor)
                })
                .filter(|(_, asked, ..)| asked.is_none_or(|asked| asked.elapsed() >= LOOK_AGAIN))
                .collect();
            due.sort();
            due.truncate(LOOKS_MAX);
            let context = &self.context;
            let read = join_all(due.into_iter().map(|(_, _, key, hypervisor)| async move {
                let read = timeout(
                    DEADLINE,
                    look_at(context, &key.0, key.1, hypervisor.as_ref()),
                )
                .await;
                (key.clone(), read.unwrap_or(Err(Unread)))
            }));
            for (key, read) in read.await {
                let asked = Instant::now();
                // One failed read of an anchor does not count as a gap: its last mark counts until it is old.
                let before = looks.get_mut(&key).filter(|look| look.shows_anchor());
                if let (Err(Unread), Some(look)) = (&read, before) {
                    look.asked = asked;
                    continue;
                }
                let look = Look {
                    asked,
                    at: asked,
                    seen: read.unwrap_or_default(),
                };
                looks.insert(key, look);
            }
        }
        let mut seen: BTreeMap<ClusterName, BTreeMap<Vmid, OrphanLook>> = BTreeMap::new();
        for ((cluster, vmid), look) in looks.iter() {
            let is_old = look.at.elapsed() >= ANCHOR_OLD;
            let is_current = !is_old || !look.shows_anchor();
            if let Some(look) = look.seen.as_ref().filter(|_| is_current) {
                let of_cluster = seen.entry(cluster.clone()).or_default();
                of_cluster.insert(*vmid, look.clone());
            }
        }
        let known = world.orphans();
        let clusters: BTreeSet<&ClusterName> = seen.keys().chain(known.keys()).collect();
        clusters
            .into_iter()
            .filter(|cluster| seen.get(*cluster) != known.get(*cluster))
            .map(|cluster| {
                let looks = seen.get(cluster).cloned().unwrap_or_default();
                Delta::Orphans(cluster.clone(), looks)
            })
            .collect()
    }

    /// Creates the new claims and drives them. But if a list that is newer than the plan has a claim of the machine,
    /// that one stays alone.
    pub(super) async fn adopt(&mut self, adoptions: &[Adoption], world: &World, term: &str) {
        if adoptions.is_empty() {
            return;
        }
        let stand = match claims::list(&self.context.kube).await {
            Ok(claims) => claims,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "claims are not made anew: the list of claims cannot be read"
                );
                return;
            }
        };
        for adoption in adoptions {
            let Adoption {
                claim,
                spec,
                reason,
            } = adoption;
            let is_its = |other: &claims::StoredClaim| {
                let other = &other.facts;
                let made_for = spec.adopts.as_ref().map(|adopts| &adopts.claim_uid);
                made_for == Some(&other.uid)
                    || (other.spec.vmid == spec.vmid && other.spec.cluster == spec.cluster)
            };
            if stand.iter().any(is_its) {
                tracing::debug!(%claim, "not made anew: it is there");
                continue;
            }
            let Some(surroundings) = Surroundings::of_adoption(spec, world, &self.context) else {
                continue;
            };
            if let Some(Claim::UnderWay(..)) = self.claims.get(claim) {
                continue;
            }
            tracing::warn!(%claim, vmid = spec.vmid.0, cluster = %spec.cluster, reason, condemned = adoption.is_condemned(), "a claim is made anew for a machine of ours that had none");
            let (context, stopping) = (self.context.clone(), self.stopping.child_token());
            let under_way = Claim::UnderWay(Verdict::Keep, stopping.clone());
            self.claims.insert(claim.clone(), under_way);
            let (name, spec) = (claim.clone(), spec.clone());
            let term: Arc<str> = term.into();
            self.spawn(name.clone(), Verdict::Keep, async move {
                match create_claim(&context, &name, &spec, &term).await {
                    Ok(claim) => {
                        Drive::new(context, claim, surroundings, Verdict::Keep, stopping, term)
                            .run()
                            .await
                    }
                    Err(pause) => Driven::idle(pause),
                }
            });
        }
    }
}

/// `None`: it does not exist, or is not kproxide's.
async fn look_at(
    context: &Arc<Context>,
    cluster: &ClusterName,
    vmid: Vmid,
    hypervisor: Option<&Arc<str>>,
) -> Result<Option<OrphanLook>, Unread> {
    let Some(client) = context.clusters.client(cluster) else {
        return Err(Unread);
    };
    let Some(hypervisor) = hypervisor else {
        // kproxide's token does not see other users' VMs, but Proxmox tells whether a VMID is taken.
        let is_taken = matches!(client.vmid_is_free(vmid.0).await, Ok(false));
        let why = || OrphanLook::NotProven("the number is somebody else's".to_owned());
        return Ok(is_taken.then(why));
    };
    match client.read_config(hypervisor, vmid.0).await {
        Ok(config) => {
            let identity = &context.identity;
            let anchor = anchors::look(identity, &config, cluster, vmid, hypervisor);
            let machine = || judge(identity, &config, vmid, hypervisor);
            Ok(Some(anchor.map_or_else(machine, OrphanLook::Anchor)))
        }
        // A container has no VM configuration, so it is not kproxide's.
        Err(error) if error.meaning == Meaning::NotFound => Ok(None),
        Err(error) => {
            tracing::debug!(%cluster, vmid = vmid.0, error = error.chain(), "a guest without a claim could not be read");
            Err(Unread)
        }
    }
}

/// Whose VM it is, by its marker alone. The rest of the proof is checked before anything is done to it.
fn judge(identity: &Identity, config: &VmConfig, vmid: Vmid, hypervisor: &Arc<str>) -> OrphanLook {
    let verified = |found: Result<SignedMarker, NotOurs>| -> Result<Marker, NotOurs> {
        let marker = found?.verify(&identity.keys, vmid.0).cloned()?;
        if marker.cluster_id == identity.cluster_id {
            Ok(marker)
        } else {
            Err(NotOurs::Forged)
        }
    };
    let marker = match verified(Marker::find(&config.description)) {
        Ok(marker) => marker,
        Err(why) => return OrphanLook::NotProven(why.to_string()),
    };
    if config.template {
        return OrphanLook::NotProven("it is a template".to_owned());
    }
    let tombstone = verified(Marker::find_tombstone(&config.description));
    OrphanLook::Ours(Box::new(OrphanFacts {
        tombstoned: tombstone.is_ok_and(|tombstone| tombstone == marker),
        claim_uid: marker.claim_uid.into(),
        nonce: marker.nonce.into(),
        name: config.name.as_deref().map(Into::into),
        hypervisor: hypervisor.clone(),
        smbios_uuid: config.smbios_uuid.as_deref().map(Into::into),
        milli_cores: config.cores.unwrap_or(1) * config.sockets * 1000,
        memory_bytes: config.memory_mib.unwrap_or(0) * MIB,
        lock: config.lock.as_deref().map(Into::into),
        protected: config.protection,
        snapshot: config.snapshot.as_deref().map(Into::into),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kproxide_pve::ownership::Key;

    fn key(byte: u8) -> Key {
        Key::new(vec![byte; 32]).unwrap()
    }

    fn marker() -> Marker {
        Marker {
            cluster_id: "us".to_owned(),
            claim_uid: "claim-1".to_owned(),
            vmid: 501,
            nonce: "abc".to_owned(),
        }
    }

    fn seen(vmid: u32, description: String) -> OrphanLook {
        let identity = Identity {
            cluster_id: "us".to_owned(),
            keys: vec![key(1)],
        };
        let config = VmConfig {
            name: Some("workers-a".to_owned()),
            description,
            sockets: 1,
            ..VmConfig::default()
        };
        judge(&identity, &config, Vmid(vmid), &"pve1".into())
    }

    #[test]
    fn f107_f75_only_a_marker_that_we_signed_for_this_number_in_this_cluster_is_ours() {
        let OrphanLook::Ours(ours) = seen(501, marker().sign(&key(1))) else {
            panic!("it is ours");
        };
        assert_eq!(
            (ours.claim_uid.as_str(), &*ours.nonce, ours.tombstoned),
            ("claim-1", "abc", false)
        );
        let elsewhere = Marker {
            cluster_id: "them".to_owned(),
            ..marker()
        };
        let renumbered = marker().sign(&key(1)).replace("vmid=501", "vmid=502");
        for (vmid, description) in [
            (502, marker().sign(&key(1))),
            (502, renumbered),
            (501, elsewhere.sign(&key(1))),
            (501, marker().sign(&key(2))),
            (501, marker().sign(&key(1)).replace("claim-1", "claim-2")),
            (501, marker().tombstone(&key(1))),
            (501, String::new()),
        ] {
            let look = seen(vmid, description.clone());
            assert!(matches!(look, OrphanLook::NotProven(_)), "{description}");
        }
    }

    #[test]
    fn a_tombstone_counts_only_beside_its_own_marker() {
        let both = |tombstone: &Marker| {
            format!(
                "{}\n{}",
                marker().sign(&key(1)),
                tombstone.tombstone(&key(1))
            )
        };
        let of_another_try = Marker {
            nonce: "def".to_owned(),
            ..marker()
        };
        for (description, expected) in [(both(&marker()), true), (both(&of_another_try), false)] {
            let OrphanLook::Ours(ours) = seen(501, description) else {
                panic!("it is ours");
            };
            assert_eq!(ours.tombstoned, expected);
        }
    }
}
