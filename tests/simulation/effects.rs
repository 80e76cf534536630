//! What must hold of each effect by itself, whatever came before: room on the hypervisor that is chosen, what people want kept, UIDs, refusals that are heeded,
//! a policy that there is. As in [`crate::history`], what counts is what both servers saw.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{AuditEntry, Change, ChangeKind, Verb};
use serde_json::Value;

use crate::history::{Notice, Notices, is_by_host};
use crate::object::{CLAIMS, condition_is_true, drain_reason, is_voluntary, name, text};
use crate::pace::Pace;
use crate::scenario::{RESOURCE_POOL, TRAP};

const NODES: &str = "nodes";
const POOLS: &str = "nodepools.kproxide.dev";
/// The default of host selection.
const STAND_IN: &str = "spread";
/// What [`TRAP`] is, once it answers.
const MENDED: &str = "hostile";
const KEEP: &str = "kproxide.dev/do-not-disrupt";
/// S7: a plan may be so old when what it plans begins.
const PLANNED: SignedDuration = SignedDuration::from_secs(30);
/// S6: whoever was refused for a budget's sake asks again after so long at the earliest.
const ASKS_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// Collects what each effect was like.
pub(crate) struct Effects {
    notices: Notices,
    /// Nodes that people want kept, and since when.
    kept: BTreeMap<String, Timestamp>,
    /// The phase of each claim, by its UID.
    phases: BTreeMap<String, String>,
    /// When a pod's eviction was refused the last time.
    refused: BTreeMap<String, Timestamp>,
    pace: Pace,
    /// So much of what was asked of the API server was reviewed.
    seen: usize,
    found: Vec<String>,
}

impl Effects {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self {
            notices: Notices::new(lab, &[CLAIMS, NODES]),
            kept: BTreeMap::new(),
            phases: BTreeMap::new(),
            refused: BTreeMap::new(),
            pace: Pace::default(),
            seen: 0,
            found: Vec::new(),
        }
    }

    /// Takes notes of every change, for as long as it is polled.
    pub(crate) async fn follow(&mut self, lab: &Lab) {
        while let Some(notice) = self.notices.next().await {
            match notice {
                Notice::Changed(change) => self.note(lab, &change),
                Notice::Review => self.review(lab),
            }
        }
    }

    /// Every violation; none is as it should be.
    pub(crate) fn violations(&mut self, lab: &Lab) -> Vec<String> {
        self.review(lab);
        let mut found = self.found.clone();
        found.extend_from_slice(self.pace.found());
        found
    }

    fn note(&mut self, lab: &Lab, change: &Change) {
        let (object, now) = (change.object.value(), lab.clock.now());
        if change.resource.is(NODES) {
            let is_kept = object["metadata"]["annotations"][KEEP] == "true";
            if change.kind == ChangeKind::Deleted || !is_kept {
                self.kept.remove(name(&object));
            } else {
                let kept = self.kept.entry(name(&object).to_owned());
                kept.or_insert(now);
            }
            return;
        }
        // Who takes over a machine that stands chooses nothing.
        if change.kind == ChangeKind::Added && object["spec"]["adopts"].is_null() {
            self.check_room(lab, &object);
            self.check_policy(lab, &object);
        }
        let phase = text(&object["status"]["phase"]).to_owned();
        let uid = text(&object["metadata"]["uid"]).to_owned();
        if change.kind == ChangeKind::Deleted {
            self.phases.remove(&uid);
            return;
        }
        let begins =
            phase == "Draining" && self.phases.get(&uid).is_none_or(|before| *before != phase);
        self.phases.insert(uid, phase);
        if begins {
            self.check_kept(&object, now);
            self.check_budget(lab, &object);
        }
    }

    /// S5: what runs of our resource pool on a hypervisor and what is promised there have no more memory than it has.
    fn check_room(&mut self, lab: &Lab, claim: &Value) {
        let hypervisor = text(&claim["spec"]["hypervisor"]);
        let snapshot = lab.pve.snapshot();
        let Some(it) = snapshot.hypervisors.iter().find(|it| it.name == hypervisor) else {
            self.found.push(format!(
                "S5: claim {} is for {hypervisor}, which there is not",
                name(claim)
            ));
            return;
        };
        let runs = snapshot
            .vms
            .iter()
            .filter(|vm| vm.hypervisor == hypervisor && vm.running)
            // Our token sees no others: of them, hosts know what memory they use at the time.
            .filter(|vm| vm.pool.as_deref() == Some(RESOURCE_POOL));
        let claims = lab.kube.list(CLAIMS);
        // What is being given up or has been shut down runs no more.
        let promised = claims.iter().filter(|claim| {
            let (vmid, phase) = (&claim["spec"]["vmid"], text(&claim["status"]["phase"]));
            claim["spec"]["hypervisor"] == hypervisor
                && !["Draining", "Terminating"].contains(&phase)
                && !runs.clone().any(|vm| u64::from(vm.vmid) == *vmid)
        });
        let promised =
            promised.filter_map(|claim| claim["spec"]["resources"]["memoryBytes"].as_u64());
        let committed = runs.clone().map(|vm| vm.memory).sum::<u64>() + promised.sum::<u64>();
        if committed > it.memory {
            let runs: Vec<String> = runs
                .map(|vm| format!("VM {} of {} MiB", vm.vmid, vm.memory >> 20))
                .collect();
            self.found.push(format!(
                "S5: with claim {} {hypervisor} has {} MiB promised or in use of {}; there run {}",
                name(claim),
                committed >> 20,
                it.memory >> 20,
                runs.join(", ")
            ));
        }
    }

    /// S13: a claim names the very module that chose: its pool's, or the default that stands in for one that fails. (Of what
    /// was mended either is right for the rest of the run: a plan may be older.)
    fn check_policy(&mut self, lab: &Lab, claim: &Value) {
        let digest = text(&claim["spec"]["policyDigest"]);
        let pool = lab.kube.get(POOLS, "", text(&claim["spec"]["pool"]));
        let pool = pool.unwrap_or_default();
        let policy = &pool["spec"]["policies"]["hostSelection"];
        let wanted = match (text(&policy["use"]), text(&policy["settings"]["do"])) {
            (TRAP, "behave") => [MENDED, STAND_IN],
            (TRAP, _) => [STAND_IN; 2],
            (builtin, _) => [builtin; 2],
        };
        let builtins = kproxide_builtins::BUILTINS.iter();
        let named = builtins
            .chain(kproxide_builtins::HOSTILE)
            .find(|policy| policy.sha256 == digest)
            .map_or("", |policy| policy.name);
        if !wanted.contains(&named) {
            self.found.push(format!(
                "S13: claim {} was placed by {named:?} ({digest}), its pool's policy is {wanted:?}",
                name(claim)
            ));
        }
    }

    /// S11: no more Nodes of a pool are being removed at one time than its budget lets begin. What is lost, never came or was deleted by people asks for none.
    fn check_budget(&mut self, lab: &Lab, claim: &Value) {
        if !is_voluntary(claim) && drain_reason(claim) != "Repair" {
            return;
        }
        let pool = text(&claim["spec"]["pool"]);
        let budget = lab.kube.get(POOLS, "", pool).unwrap_or_default();
        let budget = budget["spec"]["scaleDown"]["budget"].as_u64().unwrap_or(1);
        let claims = lab.kube.list(CLAIMS);
        let under_way = claims.iter().filter(|other| {
            other["spec"]["pool"] == pool
                && ["Draining", "Terminating"].contains(&text(&other["status"]["phase"]))
                && other["status"]["nodeName"].is_string()
                && !(drain_reason(other) == "Empty" && condition_is_true(other, "Stalled"))
                && (is_voluntary(other) || drain_reason(other) == "Repair")
        });
        let under_way = under_way.count() as u64;
        if under_way > budget {
            self.found.push(format!(
                "S11: the removal of {} makes {under_way} at once in pool {pool}, its budget is {budget}",
                name(claim)
            ));
        }
    }

    /// S7: what people want kept is not drained for our own sake.
    fn check_kept(&mut self, claim: &Value, now: Timestamp) {
        let reason = drain_reason(claim);
        let node = text(&claim["status"]["nodeName"]);
        let kept = self.kept.get(node);
        if is_voluntary(claim) && kept.is_some_and(|since| now.duration_since(*since) > PLANNED) {
            self.found.push(format!(
                "S7: claim {} is drained ({reason}), and its Node is to be kept",
                name(claim)
            ));
        }
    }

    /// Checks everything that was asked since the last time.
    fn review(&mut self, lab: &Lab) {
        self.pace.review(lab);
        let asked = lab.kube.audit_since(self.seen);
        self.seen += asked.len();
        for entry in asked.iter().filter(|entry| is_by_host(entry)) {
            self.check_uid(entry);
            self.check_patience(entry);
        }
    }

    /// S9: what is deleted or evicted is the very object that was looked at.
    fn check_uid(&mut self, entry: &AuditEntry) {
        let deletes = entry.verb == Verb::Delete && [CLAIMS, NODES].contains(&&*entry.resource);
        if (deletes || entry.subresource == "eviction") && !entry.names_uid {
            self.found.push(format!("S9: no UID is named: {entry}"));
        }
    }

    /// S6: a budget that says no is not asked again at once.
    fn check_patience(&mut self, entry: &AuditEntry) {
        if entry.subresource != "eviction" {
            return;
        }
        let pod = format!("{}/{} by {}", entry.namespace, entry.name, entry.user);
        let refused = self.refused.get(&pod);
        if refused.is_some_and(|at| entry.at.duration_since(*at) < ASKS_AGAIN) {
            self.found
                .push(format!("S6: refused a moment before: {entry}"));
        }
        if entry.code == 429 {
            self.refused.insert(pod, entry.at);
        }
    }
}
