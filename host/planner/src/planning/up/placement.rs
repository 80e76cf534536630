//! Where each wanted machine is made: the pool's policy ranks the hypervisors, the planner takes the best that leaves room for the orders after
//! it, and gives the machine a number, an address and a name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::pools;
use super::scale_up::{Purpose, Wanted, put_back};
use crate::facts::limits::MOST_ENTRIES;
use crate::facts::{ClaimResources, ClaimSpec, ClassFacts, EntryState, LedgerEntry, PolicyKind};
use crate::guard::loops;
use crate::ids::{ClaimName, ClusterName, Digest, HypervisorId, PodKey, PoolName, Vmid};
use crate::ledger::numbers::used_numbers;
use crate::ledger::{policy_state, rested, set_policy_state};
use crate::plan::Launch;
use crate::plan::question::{
    Answer, AnswerBody, Candidate, Context, RankQuestion, Ranking, Scored, States,
};
use crate::plan::report::{Limit, NoAnswer, PlacementReport, RejectedHypervisor, Severity, Why};
use crate::planning::Planning;
use crate::planning::claims::stages::ClaimState;
use crate::planning::hypervisors::addresses::{address, number, used_addresses};
use crate::planning::hypervisors::room::Room;
use crate::planning::hypervisors::sites::Site;
use crate::planning::machines::shape;
use crate::reasons::kept::Replacing;
use crate::reasons::no_hypervisor::{Refusal, Refused};

/// When a choice could take the room of later orders, this many of them are considered.
const LOOK_AHEAD: usize = 64;
/// Hypervisors that are named as rejected for one machine.
pub(in crate::planning) const REJECTED_NAMED_MAX: usize = 5;

#[derive(Default)]
pub(in crate::planning) struct Placing {
    pub(in crate::planning) room: Room,
    pub(in crate::planning) wanted: Vec<Wanted>,
    is_sorted: bool,
    /// The order that is being placed.
    pub(in crate::planning) next: usize,
    /// Orders of this tick; those after it wait.
    batch: usize,
    /// With the hypervisors that cannot take its machine.
    asked: Option<(RankQuestion, Vec<Refused>)>,
    /// The tick's budget for policy calls is used up.
    is_deferred: bool,
    /// Numbers in use, and the first that has not been looked at.
    numbers: BTreeMap<ClusterName, (BTreeSet<u32>, u32)>,
    /// Since when the longest of the pods of each need has waited.
    pub(in crate::planning) waiting_since: BTreeMap<usize, Option<jiff::Timestamp>>,
    /// Names of claims and Ledger entries.
    names: BTreeSet<ClaimName>,
    addresses: Option<BTreeSet<IpAddr>>,
    /// Why machines that are wanted cannot be made.
    pub(in crate::planning) lacking: Vec<(PoolName, Why)>,
    /// First reason per pool and hypervisor.
    pub(in crate::planning) rejected: BTreeMap<(PoolName, HypervisorId), Refusal>,
}

impl<'w> Planning<'w> {
    /// Step 5: the question for the next order that some hypervisor can take.
    pub(in crate::planning) fn rank_question(&mut self) -> Option<RankQuestion> {
        if let Some((question, _)) = &self.placing.asked {
            return Some(question.clone());
        }
        self.start_batch();
        while self.placing.next < self.placing.batch {
            if self.placing.is_deferred {
                self.drop_order(Why::PoliciesNextTick);
                continue;
            }
            let (candidates, refused) = self.candidates(self.placing.next);
            let wanted = &self.placing.wanted[self.placing.next];
            let pool = &self.pools[wanted.pool];
            for (hypervisor, refusal) in &refused {
                let key = (pool.name.clone(), hypervisor.clone());
                self.placing
                    .rejected
                    .entry(key)
                    .or_insert_with(|| refusal.clone());
            }
            if refused.len() == candidates.len() {
                self.drop_order(Why::NoHypervisor(refused));
                continue;
            }
            let mut question = self.rank(wanted, candidates);
            question.machine.attributes = self.pods_waiting(self.placing.next);
            self.placing.asked = Some((question.clone(), refused));
            return Some(question);
        }
        None
    }

    /// Orders that fewest hypervisors can take come first, so that others do not take their room.
    fn start_batch(&mut self) {
        if self.placing.is_sorted {
            return;
        }
        self.placing.is_sorted = true;
        self.placing.wanted.sort_by_key(|wanted| {
            let is_replacement = matches!(wanted.purpose, Purpose::Replacement(_));
            (is_replacement, wanted.order.sites.len(), wanted.pool)
        });
        let most = self.tick.limits.max_launches_per_tick as usize;
        self.placing.batch = self.placing.wanted.len().min(most);
        if self.placing.batch < self.placing.wanted.len() {
            self.take_turns();
        }
        for index in self.placing.batch..self.placing.wanted.len() {
            let wanted = &self.placing.wanted[index];
            let pool = &self.pools[wanted.pool];
            put_back(&mut self.needs, pool.name, &wanted.order, &Why::NextTick);
            if let Purpose::Replacement(row) = wanted.purpose {
                self.rows[row].replacing = Some(Replacing::NotMade(Box::new(Why::NextTick)));
            }
        }
    }

    /// Not all get their machine in this tick: the first of each namespace, then the second, so that no namespace takes all
    /// launches for itself.
    fn take_turns(&mut self) {
        let mut before: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let needs = &self.needs;
        self.placing.wanted.sort_by_cached_key(|wanted| {
            let is_replacement = matches!(wanted.purpose, Purpose::Replacement(_));
            let pods = match wanted.purpose {
                Purpose::Pods => &wanted.order.pods[..],
                Purpose::MinNodes | Purpose::Headroom | Purpose::Replacement(_) => &[],
            };
            let namespaces = pods.iter().map(|(need, _)| &needs[*need].content.namespace);
            let namespaces: BTreeSet<_> = namespaces.cloned().collect();
            let mut turn = if namespaces.is_empty() { 0 } else { usize::MAX };
            for namespace in namespaces {
                let before = before.entry(namespace).or_default();
                turn = turn.min(*before);
                *before += 1;
            }
            (is_replacement, turn)
        });
    }

    fn rank(&self, wanted: &Wanted, candidates: Arc<[Candidate]>) -> RankQuestion {
        let pool = &self.pools[wanted.pool];
        let policy = self.with_states(pool.name, &pool.facts.policies.host_selection);
        let state = policy_state(
            &self.ledger,
            pool.name,
            PolicyKind::HostSelection,
            &policy.policy.name,
        );
        RankQuestion {
            context: self.context(pool.name, state.sequence, state.state),
            machine: pools::machine(pool.name, pool.offers[wanted.order.offer].instance_type),
            batch_index: u32::try_from(self.placing.next).unwrap_or(u32::MAX),
            batch_size: u32::try_from(self.placing.batch).unwrap_or(u32::MAX),
            sequence: state.sequence,
            previous: state.previous,
            policy,
            candidates,
        }
    }

    pub(in crate::planning) fn context(
        &self,
        pool: &PoolName,
        sequence: u64,
        state: Vec<u8>,
    ) -> Context {
        let host = self.tick.world.host();
        Context {
            cluster: host.cluster_id.as_str().into(),
            now: self.tick.now.as_second(),
            seed: stable_hash(&[
                &host.cluster_id,
                pool.as_str(),
                &sequence.to_string(),
                "seed",
            ]),
            dry_run: host.dry_run,
            state,
        }
    }

    /// Every hypervisor of the pool's clusters, and those of them that cannot take this order, with why.
    fn candidates(&self, index: usize) -> (Arc<[Candidate]>, Vec<Refused>) {
        let wanted = &self.placing.wanted[index];
        let pool = &self.pools[wanted.pool];
        let offer = &pool.offers[wanted.order.offer];
        let mut refused = Vec::new();
        let candidate = |(place, hypervisor): (usize, &usize)| {
            let (refusal, storage_free) = match &offer.sites[place] {
                Err(refusal) => (Some(refusal.clone()), 0),
                Ok(site) => {
                    let refusal = self
                        .placing
                        .room
                        .refusal(&self.hypervisors, site, offer.size);
                    let refusal = match wanted.order.sites.contains(place) {
                        false => Some(Refusal::NotWhatPodsNeed),
                        true => refusal,
                    };
                    (refusal, self.placing.room.storage_free(site))
                }
            };
            let candidate = self.hypervisors.candidate(
                *hypervisor,
                pool.name,
                refusal.as_ref(),
                storage_free,
                self.tick.now,
            );
            refused.extend(refusal.map(|refusal| (candidate.hypervisor.id.clone(), refusal)));
            candidate
        };
        let candidates = pool.hypervisors.iter().enumerate().map(candidate).collect();
        (candidates, refused)
    }

    /// The machines placed so far: an answer about a hypervisor adds at most one.
    pub fn placements(&self) -> &[PlacementReport] {
        &self.report.placements
    }

    pub(in crate::planning) fn take_ranking(&mut self, answer: Answer) {
        let Some((question, refused_by_us)) = self.placing.asked.take() else {
            return;
        };
        let policy = &question.policy.policy;
        let refused = |answer: NoAnswer| Why::Policy {
            policy: policy.clone(),
            answer,
        };
        let Answer {
            digest,
            fallback,
            body,
            states,
        } = answer;
        let failure = match body {
            AnswerBody::Ranking(ranking) => {
                let rejected = self.rejections(&question, &ranking, refused_by_us);
                return match self.choose(&question, &ranking) {
                    Some(chosen) => {
                        let rejected = self.less_preferred(&question, &ranking, &chosen, rejected);
                        let answer = (ranking, digest, fallback, states);
                        self.launch(&question, chosen, answer, rejected);
                    }
                    None => self.drop_order(refused(NoAnswer::ChoseNone)),
                };
            }
            AnswerBody::NoCandidate(reason) => {
                return self.drop_order(refused(NoAnswer::Refused(reason)));
            }
            AnswerBody::Deferred => {
                self.placing.is_deferred = true;
                return;
            }
            AnswerBody::Failed(reason) => NoAnswer::Failed(reason),
            AnswerBody::Removals(_) | AnswerBody::Decorations(_) => {
                NoAnswer::AnsweredAnotherQuestion
            }
        };
        self.policy_failed(&question.machine.pool, policy, failure.to_string());
        self.drop_order(refused(failure));
    }

    /// The best placement that leaves room for as many later orders as there was before; the best of all if none does. Then
    /// the one that the pods prefer more, if every later order finds room beside it.
    fn choose(&mut self, question: &RankQuestion, ranking: &Ranking) -> Option<Scored> {
        let id = |scored: &Scored| &question.candidates[scored.index as usize].hypervisor.id;
        let is_possible = |scored: &&Scored| {
            let candidate = question.candidates.get(scored.index as usize);
            scored.score.is_finite()
                && candidate.is_some_and(|candidate| candidate.ineligible.is_none())
        };
        let mut placements: Vec<&Scored> = ranking.placements.iter().filter(is_possible).collect();
        placements.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| id(a).cmp(id(b))));
        let later = self.later_orders();
        let in_batch = self.placing.batch.saturating_sub(self.placing.next + 1);
        let next = &later[..later.len().min(in_batch).min(LOOK_AHEAD)];
        let before = self.placeable(self.placing.room.clone(), next);
        let leaves_room = |scored: &&&Scored| {
            let room = self.room_beside(scored.index);
            room.is_some_and(|room| self.placeable(room, next) >= before)
        };
        let chosen = match before {
            0 => placements.first(),
            _ => placements.iter().find(leaves_room).or(placements.first()),
        };
        let chosen = *chosen?;
        Some(self.preferred(&placements, chosen).clone())
    }

    fn launch(
        &mut self,
        question: &RankQuestion,
        chosen: Scored,
        (ranking, digest, fallback, mut states): (Ranking, Digest, Option<String>, States),
        rejected: Vec<Refused>,
    ) {
        let index = self.placing.next;
        let wanted = &self.placing.wanted[index];
        let pool = &self.pools[wanted.pool];
        let offer = &pool.offers[wanted.order.offer];
        let place = chosen.index as usize;
        let (Ok(site), Ok(class)) = (&offer.sites[place], &pool.class) else {
            return self.drop_order(Why::Policy {
                policy: question.policy.policy.clone(),
                answer: NoAnswer::ChoseImpossible,
            });
        };
        let (site, class): (Site<'w>, &'w ClassFacts) = (site.clone(), class);
        let cluster = self.hypervisors.all[site.hypervisor].id.cluster.clone();
        let Some(vmid) = self.free_number(&cluster) else {
            return self.drop_order(Why::Limit(Limit::Vmids(cluster)));
        };
        let address = match self.free_address(class) {
            Ok(address) => address,
            Err(limit) => return self.drop_order(Why::Limit(limit)),
        };
        if self.ledger.entries.len() >= MOST_ENTRIES {
            self.end_rest(|_| true);
        }
        let policy = &question.policy.policy.name;
        let pool_name = self.pools[self.placing.wanted[index].pool].name;
        let mut state = policy_state(&self.ledger, pool_name, PolicyKind::HostSelection, policy);
        let claim = self.claim_name(pool_name, vmid, state.sequence);
        let wanted = &self.placing.wanted[index];
        let pool = &self.pools[wanted.pool];
        let offer = &pool.offers[wanted.order.offer];
        let hypervisor = self.hypervisors.all[site.hypervisor].id.clone();
        let decoration = match self.decorating.of(pool.name, &offer.instance_type.name) {
            Some(Ok(decorations)) => decorations.get(place).cloned().unwrap_or_default(),
            Some(Err(_)) | None => Default::default(),
        };
        let labels = shape::claim_labels(
            claim.as_str(),
            pool.name,
            pool.facts,
            class,
            offer.instance_type,
            &hypervisor,
            &decoration,
        );
        let spec = ClaimSpec {
            pool: pool.name.clone(),
            class: pool.facts.node_class.clone(),
            cluster: cluster.clone(),
            vmid,
            vm_name: claim.as_str().into(),
            hypervisor: hypervisor.name.clone(),
            storage: site.disks.first().map(|disk| disk.name.clone()),
            clone: Some(site.clone.spec()),
            instance_type: offer.instance_type.name.clone(),
            resources: ClaimResources {
                milli_cores: offer.size.milli_cores,
                memory_bytes: offer.size.memory_bytes,
                disk_bytes: offer.instance_type.disk_bytes(),
            },
            address,
            machine: Some(Box::new(class.machine.clone())),
            labels,
            annotations: decoration.annotations.clone(),
            taints: shape::claim_taints(pool.facts, &decoration),
            template_digest: site.clone.template.digest.as_str().into(),
            policy: Some(format!("{policy}@{}", digest.start()).into()),
            policy_digest: digest,
            adopts: None,
            replaces: self.replaced_by(wanted).cloned(),
        };
        for (workload, pods) in &wanted.made_for {
            let key = pool.key(workload, pods, &offer.instance_type.name);
            loops::made(&mut self.ledger, &key, &claim);
        }
        let since = self.tick.now;
        self.ledger.entries.push(LedgerEntry {
            disk_bytes: site.disks.first().map_or(0, |disk| disk.bytes),
            ..LedgerEntry::of(&claim, &spec, EntryState::Reserved { since })
        });
        let reason = self.launch_reason(wanted);
        let for_pods = wanted.purpose == Purpose::Pods;
        self.report.placements.push(PlacementReport {
            claim: claim.clone(),
            pool: pool.name.clone(),
            hypervisor: hypervisor.clone(),
            score: chosen.score,
            reason: chosen.reason.clone(),
            fallback: fallback.clone(),
            rejected,
            pods: self.example_pods(&self.placing.wanted[index].order.pods),
        });
        self.launches.push(Launch {
            claim: claim.clone(),
            spec,
            reason,
            for_pods,
        });
        state.sequence += 1;
        state.previous = Some(hypervisor);
        set_policy_state(&mut self.ledger, state);
        let (name, size) = (pool.name, offer.size);
        // A fallback's state is not the policy's own.
        let state = ranking.state.filter(|_| fallback.is_none());
        states.extend(state.map(|state| (policy.clone(), state)));
        self.keep_states(name, PolicyKind::HostSelection, states);
        self.hypervisors.add_machine(site.hypervisor, name, size);
        self.placing.room.take(&site, size);
        self.note_neighbours(place);
        for (need, count) in &self.placing.wanted[index].order.pods {
            let launched = &mut self.needs[*need].launched;
            match launched.last_mut().filter(|(last, _)| *last == claim) {
                Some((_, pods)) => *pods += count,
                None => launched.push((claim.clone(), *count)),
            }
        }
        self.placing.next += 1;
    }

    /// Of each shape the first pod that no Node and no machine on its way takes: by it the shape is known.
    fn example_pods(&self, pods: &[(usize, u32)]) -> Vec<(PodKey, u32)> {
        let example = |(need, count): &(usize, u32)| {
            let pod = self.needs[*need].unplaced().next();
            pod.map(|pod| (pod.key(), *count))
        };
        pods.iter().filter_map(example).collect()
    }

    fn launch_reason(&self, wanted: &Wanted) -> String {
        let pool = &self.pools[wanted.pool];
        match wanted.purpose {
            Purpose::Pods => {
                let count: u64 = wanted
                    .order
                    .pods
                    .iter()
                    .map(|(_, count)| u64::from(*count))
                    .sum();
                let example = wanted.order.pods.first().and_then(|(need, _)| {
                    let need = &self.needs[*need];
                    let launched: u32 = need.launched.iter().map(|(_, count)| count).sum();
                    need.unplaced().nth(launched as usize)
                });
                match example {
                    Some(pod) if count == 1 => format!("for the pending pod {}", pod.key()),
                    Some(pod) => format!("for {count} pending pods such as {}", pod.key()),
                    None => format!("for {count} pending pods"),
                }
            }
            Purpose::MinNodes => {
                let least = self.least(pool.name);
                let field = match least > pool.facts.limits.min_nodes {
                    true => "schedules",
                    false => "minNodes",
                };
                format!(
                    "NodePool {} has fewer than {least} machines ({field})",
                    pool.name
                )
            }
            Purpose::Headroom => format!("NodePool {} keeps room free (headroom)", pool.name),
            Purpose::Replacement(row) => {
                let ClaimState { name, outgoing, .. } = &self.rows[row];
                match outgoing {
                    Some(reason) => format!("it replaces NodeClaim {name}: {reason}"),
                    None => format!("it replaces NodeClaim {name}"),
                }
            }
        }
    }

    /// Leaves the order unplaced; its pods learn why.
    fn drop_order(&mut self, why: Why) {
        let wanted = &self.placing.wanted[self.placing.next];
        let pool = &self.pools[wanted.pool];
        put_back(&mut self.needs, pool.name, &wanted.order, &why);
        if let Purpose::Replacement(row) = wanted.purpose {
            self.rows[row].replacing = Some(Replacing::NotMade(Box::new(why)));
        } else if wanted.order.pods.is_empty() {
            let about = format!("NodePool/{}", pool.name);
            self.tick.found(
                Severity::Warning,
                about,
                format!("kproxide does not make a machine that the pool wants: {why}"),
            );
        }
        self.placing.next += 1;
    }

    /// The hypervisors that this machine cannot be made on: first those that kproxide refuses, then those that the policy rejects, which are noted.
    fn rejections(
        &mut self,
        question: &RankQuestion,
        ranking: &Ranking,
        mut refused: Vec<Refused>,
    ) -> Vec<Refused> {
        for rejected in &ranking.rejected {
            if let Some(candidate) = question.candidates.get(rejected.index as usize) {
                let hypervisor = candidate.hypervisor.id.clone();
                let refusal = Refusal::Policy {
                    policy: question.policy.policy.name.to_string(),
                    reason: rejected.reason.clone(),
                };
                let key = (question.machine.pool.clone(), hypervisor.clone());
                let noted = self.placing.rejected.entry(key);
                noted.or_insert_with(|| refusal.clone());
                // It may give a reason to one that kproxide has refused already.
                if refused.iter().all(|(refused, _)| *refused != hypervisor) {
                    refused.push((hypervisor, refusal));
                }
            }
        }
        refused.truncate(REJECTED_NAMED_MAX);
        refused
    }

    pub(in crate::planning) fn report_rejected(&mut self) {
        let rejected = std::mem::take(&mut self.placing.rejected);
        self.report.rejected = rejected
            .into_iter()
            .map(|((pool, hypervisor), reason)| RejectedHypervisor {
                pool,
                hypervisor,
                reason,
            })
            .collect();
    }

    /// The lowest number of the cluster's range that nothing uses; else the one that rests longest.
    fn free_number(&mut self, name: &ClusterName) -> Option<Vmid> {
        let world = self.tick.world;
        let cluster = world.clusters().get(name)?;
        let ledger = &self.ledger;
        let (used, next) = self.placing.numbers.entry(name.clone()).or_insert_with(|| {
            (
                used_numbers(world, ledger, name),
                cluster.vmid_range.first.0,
            )
        });
        if let Some(number) =
            (*next..=cluster.vmid_range.last.0).find(|number| !used.contains(number))
        {
            *next = number.saturating_add(1);
            return Some(Vmid(number));
        }
        let is_wanted =
            |entry: &LedgerEntry| entry.cluster == *name && cluster.has_in_range(entry.vmid);
        let ends = self.end_rest(is_wanted)?;
        Some(ends.vmid)
    }

    /// No other number, address or row of the Ledger is free: the entry goes that rests longest of these.
    fn end_rest(&mut self, is_wanted: impl Fn(&LedgerEntry) -> bool) -> Option<LedgerEntry> {
        let rested = rested(self.tick.world, &self.ledger, self.tick.now);
        let ends = rested.into_iter().find(|entry| is_wanted(entry))?.clone();
        self.ledger.entries.retain(|entry| *entry != ends);
        Some(ends)
    }

    /// The first address of the class's ranges that nothing uses; none at all where machines use DHCP.
    fn free_address(&mut self, class: &ClassFacts) -> Result<Option<IpAddr>, Limit> {
        let Some(ranges) = &class.addresses else {
            return Ok(None);
        };
        let (world, ledger) = (self.tick.world, &self.ledger);
        let used = self
            .placing
            .addresses
            .get_or_insert_with(|| used_addresses(world, ledger));
        let mut all = ranges.iter().flat_map(|range| {
            let (first, last) = (number(range.first), number(range.last));
            let is_ipv4 = range.first.is_ipv4();
            (first..=last).map(move |number| address(number, is_ipv4))
        });
        if let Some(free) = all.find(|address| !used.contains(address)) {
            used.insert(free);
            return Ok(Some(free));
        }
        let is_wanted = |entry: &LedgerEntry| entry.address.is_some_and(|it| class.hands_out(it));
        let ends = self.end_rest(is_wanted).ok_or(Limit::Addresses)?;
        Ok(ends.address)
    }

    /// A name that says the pool and is never given twice: it serves as the VM's and the Node's name too, so it is a DNS label.
    fn claim_name(&mut self, pool: &PoolName, vmid: Vmid, sequence: u64) -> ClaimName {
        let is_kept = |c: &char| c.is_ascii_alphanumeric();
        let kept = pool.as_str().chars().take(63 - 9);
        let base: String = kept
            .map(|c| Some(c).filter(is_kept).unwrap_or('-').to_ascii_lowercase())
            .collect();
        let base = base.trim_end_matches('-');
        let cluster_id = &self.tick.world.host().cluster_id;
        if self.placing.names.is_empty() {
            let claims = self.tick.world.claims().keys();
            let entries = self.ledger.entries.iter().map(|entry| &entry.claim);
            self.placing.names = claims.chain(entries).cloned().collect();
        }
        let names = &mut self.placing.names;
        (0u64..)
            .map(|attempt| {
                let parts = [vmid.to_string(), sequence.to_string(), attempt.to_string()];
                let hash =
                    stable_hash(&[cluster_id, pool.as_str(), &parts[0], &parts[1], &parts[2]]);
                ClaimName::from(format!("{base}-{}", base32(hash)))
            })
            .find(|name| names.insert(name.clone()))
            .expect("some attempt's name is free")
    }
}

/// FNV-1a: the same on every machine and in every version.
pub(in crate::planning) fn stable_hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Eight digits of 5 bits, without letters that read like others.
fn base32(hash: u64) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    (0..8)
        .map(|digit| char::from(DIGITS[(hash >> (5 * digit)) as usize & 31]))
        .collect()
}
