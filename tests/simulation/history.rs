//! What must hold at every moment of a run, checked over all that was ever asked of both servers: no machine without its claim, never two for
//! one, nothing of anybody else's touched, no limit exceeded. What counts is not what kproxide believes but what the world saw.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{AuditEntry as KubeEntry, Change, ChangeKind, Verb};
use kproxide_simulator::pve::{AuditEntry, Birth, PveSnapshot, VmView, VolumeView};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until};

use crate::mishaps::start_foreign;
use crate::object::{CLAIMS, LEDGERS, name, text};
use crate::scenario::Scenario;

/// Who makes and removes machines of ours, as Proxmox knows it.
pub(crate) const OUR_TOKEN: &str = "kproxide@pve!ci";
/// How often is looked for what ends a run at once.
const LOOK: Duration = Duration::from_secs(10);
/// How often is checked what was asked since. The servers of a run of many days forget what is older than an hour.
const REVIEW: Duration = Duration::from_secs(30 * 60);
/// The answer and the change that it tells of.
pub(crate) const AT_ONCE: SignedDuration = SignedDuration::from_millis(5);

/// The life of a claim as the API server saw it.
#[derive(Debug)]
struct Claim {
    name: String,
    uid: String,
    pool: String,
    vmid: u64,
    from: Timestamp,
    deleted: Option<Timestamp>,
    gone: Option<Timestamp>,
    /// A host let it go, and not somebody who took its finalizer away: only then it outlives its machine.
    let_go: bool,
}

impl Claim {
    fn exists_at(&self, moment: Timestamp) -> bool {
        self.from <= moment && self.gone.is_none_or(|gone| moment <= gone)
    }
}

/// What a checker looks at next.
pub(crate) enum Notice {
    /// In the instant in which it happens.
    Changed(Arc<Change>),
    /// It is time to check what was asked since the last time.
    Review,
}

/// The notices of a checker, for as long as the API server runs.
pub(crate) struct Notices {
    changes: UnboundedReceiver<Arc<Change>>,
    review: Instant,
}

impl Notices {
    /// Of changes of these resources.
    pub(crate) fn new(lab: &Lab, resources: &[&str]) -> Self {
        let (_, changes) = lab.kube.subscribe(resources);
        let review = Instant::now() + REVIEW;
        Self { changes, review }
    }

    pub(crate) async fn next(&mut self) -> Option<Notice> {
        tokio::select! {
            // What has changed by now is noted before it is reviewed.
            biased;
            change = self.changes.recv() => change.map(Notice::Changed),
            () = sleep_until(self.review) => {
                self.review += REVIEW;
                Some(Notice::Review)
            }
        }
    }
}

/// Collects what changes while a run goes on.
pub(crate) struct History {
    notices: Notices,
    claims: Vec<Claim>,
    most: BTreeMap<String, u64>,
    /// What was found in what was asked until the last review.
    found: Vec<String>,
    /// So much of both servers' audits was reviewed.
    seen: (usize, usize),
}

/// Everything of other people, as it was at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Foreign {
    vms: Vec<VmView>,
    volumes: Vec<VolumeView>,
    nodes: Vec<Value>,
}

impl History {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self {
            notices: Notices::new(lab, &[CLAIMS, LEDGERS]),
            claims: Vec::new(),
            most: BTreeMap::new(),
            found: Vec::new(),
            seen: (0, 0),
        }
    }

    /// Takes notes of every change, for as long as it is polled.
    pub(crate) async fn follow(&mut self, lab: &Lab) {
        while let Some(notice) = self.notices.next().await {
            match notice {
                Notice::Changed(change) => self.note(lab, &change),
                Notice::Review => self.review(lab, &lab.pve.births()),
            }
        }
    }

    fn note(&mut self, lab: &Lab, change: &Change) {
        let now = lab.clock.now();
        let object = change.object.value();
        if change.resource.to_string() == LEDGERS {
            self.note_ledger(&object);
        } else {
            self.note_claim(change.kind, &object, now);
        }
    }

    /// Checks everything that was asked since the last time.
    fn review(&mut self, lab: &Lab, births: &[Birth]) {
        let mut found = std::mem::take(&mut self.found);
        let (pve, kube) = (
            lab.pve.audit_since(self.seen.0),
            lab.kube.audit_since(self.seen.1),
        );
        self.seen = (self.seen.0 + pve.len(), self.seen.1 + kube.len());
        for entry in pve
            .iter()
            .filter(|entry| entry.user == OUR_TOKEN && entry.status == 200)
        {
            self.check_request(entry, births, &mut found);
        }
        for entry in kube.iter().filter(|entry| is_of_host(entry)) {
            let is_it = |claim: &&mut Claim| {
                let gone = claim.gone.map(|gone| entry.at.duration_since(gone).abs());
                claim.name == entry.name && gone.is_some_and(|between| between < AT_ONCE)
            };
            if entry.resource == CLAIMS && entry.subresource.is_empty() && entry.verb == Verb::Patch
            {
                for claim in self.claims.iter_mut().filter(is_it) {
                    claim.let_go = true;
                }
            }
        }
        check_kubernetes(kube, &mut found);
        self.found = found;
    }

    fn note_claim(&mut self, kind: ChangeKind, object: &Value, now: Timestamp) {
        let uid = text(&object["metadata"]["uid"]).to_owned();
        if kind == ChangeKind::Added {
            self.claims.push(Claim {
                name: name(object).to_owned(),
                uid,
                pool: text(&object["spec"]["pool"]).to_owned(),
                vmid: object["spec"]["vmid"].as_u64().unwrap_or(0),
                from: now,
                deleted: None,
                gone: None,
                let_go: false,
            });
            return;
        }
        let Some(claim) = self.claims.iter_mut().find(|claim| claim.uid == uid) else {
            return;
        };
        if object["metadata"]["deletionTimestamp"].is_string() {
            claim.deleted.get_or_insert(now);
        }
        if kind == ChangeKind::Deleted {
            claim.gone = Some(now);
        }
    }

    /// What is promised or used, by pool, at its highest.
    fn note_ledger(&mut self, object: &Value) {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for entry in object["spec"]["entries"].as_array().into_iter().flatten() {
            if entry["state"] != "quarantined" {
                *counts.entry(text(&entry["pool"]).to_owned()).or_default() += 1;
            }
        }
        for (pool, count) in counts {
            let most = self.most.entry(pool).or_default();
            *most = count.max(*most);
        }
    }

    /// Machines that were made in the whole run.
    pub(crate) fn machines_made(lab: &Lab) -> usize {
        lab.pve
            .snapshot()
            .births
            .iter()
            .filter(|birth| is_machine(birth))
            .count()
    }

    /// Every violation, whatever the run came to; none is as it should be. `cleared` are halves of machines that people removed.
    pub(crate) fn violations(
        &mut self,
        lab: &Lab,
        scenario: &Scenario,
        cleared: &[u64],
    ) -> Vec<String> {
        let snapshot = lab.pve.snapshot();
        self.review(lab, &snapshot.births);
        let mut found = self.found.clone();
        self.check_births(&snapshot, &mut found);
        for pool in &scenario.pools {
            let most = self.most.get(pool.name).copied().unwrap_or(0);
            if most > u64::from(pool.max_nodes) {
                found.push(format!(
                    "pool {} had {most} machines promised or made, its limit is {}",
                    pool.name, pool.max_nodes
                ));
            }
            let alive = self.most_alive(&snapshot, pool.name, cleared);
            if alive > i64::from(pool.max_nodes) {
                found.push(format!(
                    "pool {} had {alive} machines at once, its limit is {}",
                    pool.name, pool.max_nodes
                ));
            }
        }
        found
    }

    /// The most machines of a pool that there were at one moment, whatever the Ledger said. What an interrupted clone left is none, and kproxide has told people so.
    fn most_alive(&self, snapshot: &PveSnapshot, pool: &str, cleared: &[u64]) -> i64 {
        let mut changes = Vec::new();
        let is_whole = |birth: &&Birth| !cleared.contains(&birth.incarnation);
        let machines = snapshot.births.iter().filter(|birth| is_machine(birth));
        for birth in machines.filter(is_whole) {
            let claim = self.claim_of(birth.vmid, birth.at);
            if claim.is_some_and(|claim| claim.pool == pool) {
                changes.push((birth.at, 1));
                changes.extend(birth.destroyed.map(|at| (at, -1)));
            }
        }
        // Of one moment the ends come first.
        changes.sort_unstable();
        let counts = changes.into_iter().scan(0, |count, (_, change)| {
            *count += change;
            Some(*count)
        });
        counts.max().unwrap_or(0)
    }

    /// Each machine of ours has a claim that was there before it and outlives it, and no claim has two machines.
    fn check_births(&self, snapshot: &PveSnapshot, found: &mut Vec<String>) {
        let mut machines: BTreeMap<&str, Vec<&Birth>> = BTreeMap::new();
        for birth in snapshot.births.iter().filter(|birth| is_machine(birth)) {
            match self.claim_of(birth.vmid, birth.at) {
                Some(claim) => {
                    let outlived = |gone| birth.destroyed.is_none_or(|destroyed| gone < destroyed);
                    if claim.let_go && claim.gone.is_some_and(outlived) {
                        found.push(format!(
                            "claim {} was gone before its VM {} was",
                            claim.name, birth.vmid
                        ));
                    }
                    machines.entry(&claim.uid).or_default().push(birth);
                }
                None => found.push(format!(
                    "VM {} was made at {} without a claim",
                    birth.vmid, birth.at
                )),
            }
        }
        for (uid, births) in machines {
            for pair in births.windows(2) {
                if pair[0]
                    .destroyed
                    .is_none_or(|destroyed| pair[1].at < destroyed)
                {
                    found.push(format!("claim {uid} has two machines at once: {pair:?}"));
                }
            }
        }
        for (index, claim) in self.claims.iter().enumerate() {
            let twin = self.claims[..index]
                .iter()
                .find(|other| other.vmid == claim.vmid && other.exists_at(claim.from));
            if let Some(twin) = twin {
                found.push(format!(
                    "claims {} and {} both have VMID {}",
                    twin.name, claim.name, claim.vmid
                ));
            }
        }
    }

    /// A request of ours that was accepted and that is about one machine.
    fn check_request(&self, entry: &AuditEntry, births: &[Birth], found: &mut Vec<String>) {
        let Some((birth, action)) = touched(entry, births) else {
            return;
        };
        let what = format!("{} {} at {}", entry.method, entry.path, entry.at);
        if !is_ours(birth) {
            found.push(not_ours(entry, birth));
            return;
        }
        // Their anchor: it has no claim, and is only written to.
        if birth.bare {
            if entry.method != "PUT" || action != "config" {
                found.push(format!("{what}: it is the anchor"));
            }
            return;
        }
        let Some(claim) = self.claim_of(birth.vmid, entry.at) else {
            found.push(format!("{what}: VM {} has no claim", birth.vmid));
            return;
        };
        let ends_it =
            entry.method == "DELETE" || ["status/shutdown", "status/stop"].contains(&action);
        if ends_it && claim.deleted.is_none_or(|deleted| entry.at < deleted) {
            found.push(format!(
                "{what}: claim {} was not deleted by then",
                claim.name
            ));
        }
    }

    fn claim_of(&self, vmid: u32, moment: Timestamp) -> Option<&Claim> {
        self.claims
            .iter()
            .find(|claim| claim.vmid == u64::from(vmid) && claim.exists_at(moment))
    }
}

/// Returns as soon as a machine of other people is touched: what follows from there on is of no use to anybody.
pub(crate) async fn until_foreign_is_touched(lab: &Lab) -> String {
    let mut seen = 0;
    loop {
        let entries = lab.pve.audit_since(seen);
        seen += entries.len();
        let mut by_us = entries
            .iter()
            .filter(|entry| entry.user == OUR_TOKEN && entry.status == 200)
            .peekable();
        // Most of the time nothing was asked for.
        let births = match by_us.peek() {
            Some(_) => lab.pve.births(),
            None => Vec::new(),
        };
        for entry in by_us {
            if let Some((birth, _)) = touched(entry, &births).filter(|(birth, _)| !is_ours(birth)) {
                return not_ours(entry, birth);
            }
        }
        sleep(LOOK).await;
    }
}

/// The machine that a request is about, if it was there then, and what was asked of it. A template that is cloned is not touched; the new
/// machine is checked by its birth.
fn touched<'a>(entry: &'a AuditEntry, births: &'a [Birth]) -> Option<(&'a Birth, &'a str)> {
    let (vmid, action) = machine_in(&entry.path)?;
    let was_there = |birth: &&Birth| {
        birth.vmid == vmid
            && birth.at <= entry.at
            && birth
                .destroyed
                .is_none_or(|destroyed| entry.at <= destroyed)
    };
    let birth = births.iter().rfind(was_there)?;
    (action != "clone").then_some((birth, action))
}

fn not_ours(entry: &AuditEntry, birth: &Birth) -> String {
    format!(
        "{} {} at {}: VM {} is not ours, it was made by {}",
        entry.method, entry.path, entry.at, birth.vmid, birth.creator
    )
}

/// What a host asked for.
pub(crate) fn is_by_host(entry: &KubeEntry) -> bool {
    entry.user.starts_with("kproxide-")
}

/// What a host asked for and got.
pub(crate) fn is_of_host(entry: &KubeEntry) -> bool {
    is_by_host(entry) && entry.code < 300 && !entry.dry_run
}

/// Hosts leave Nodes alone that are not of their machines, and pods to the Eviction API.
fn check_kubernetes(asked: Vec<KubeEntry>, found: &mut Vec<String>) {
    for entry in asked.into_iter().filter(is_of_host) {
        let touches_node = entry.resource == "nodes" && STATIC.contains(&entry.name.as_str());
        let removes_pod =
            entry.resource == "pods" && matches!(entry.verb, Verb::Delete | Verb::DeleteCollection);
        if touches_node || removes_pod {
            found.push(entry.to_string());
        }
    }
}

/// Nodes that are no machines of ours.
const STATIC: [&str; 3] = ["agent-1", "server-1", "storage-1"];

impl Foreign {
    /// Takes in a machine that somebody made just now.
    pub(crate) fn add(&mut self, lab: &Lab, vmid: u32) {
        let snapshot = lab.pve.snapshot();
        let made = snapshot.vms.into_iter().filter(|vm| vm.vmid == vmid);
        self.vms
            .extend(made.map(|vm| VmView { agent: false, ..vm }));
        self.vms.sort_by_key(|vm| vm.vmid);
        self.volumes.extend(
            snapshot
                .volumes
                .into_iter()
                .filter(|volume| volume.vmid == vmid),
        );
        self.volumes
            .sort_by(|a, b| (&a.hypervisor, &a.volid).cmp(&(&b.hypervisor, &b.volid)));
    }

    /// People start what of theirs ran before it went down.
    pub(crate) fn start(&self, lab: &Lab) {
        for vm in self.vms.iter().filter(|vm| vm.running) {
            start_foreign(lab, vm.vmid);
        }
    }

    /// What of other people's is not as they left it: this is how they did.
    pub(crate) fn changed(&self, lab: &Lab) -> Option<String> {
        let now = Self::of(lab);
        (now != *self).then(|| {
            format!("something of other people changed:\n  before: {self:?}\n  after: {now:?}")
        })
    }

    pub(crate) fn of(lab: &Lab) -> Self {
        let snapshot = lab.pve.snapshot();
        let ours: Vec<u64> = snapshot
            .births
            .iter()
            .filter(|birth| is_ours(birth))
            .map(|birth| birth.incarnation)
            .collect();
        let vms: Vec<VmView> = snapshot
            .vms
            .into_iter()
            .filter(|vm| !ours.contains(&vm.incarnation))
            // Its guest's own: it answers once it has booted.
            .map(|vm| VmView { agent: false, ..vm })
            .collect();
        let is_theirs = |volume: &VolumeView| vms.iter().any(|vm| vm.vmid == volume.vmid);
        let mut volumes: Vec<VolumeView> = snapshot.volumes.into_iter().filter(is_theirs).collect();
        volumes.sort_by(|a, b| (&a.hypervisor, &a.volid).cmp(&(&b.hypervisor, &b.volid)));
        let nodes = STATIC
            .iter()
            .filter_map(|name| lab.kube.get("nodes", "", name))
            .map(|mut node| {
                // The kubelet's and the server's own: they change by themselves.
                node["status"] = Value::Null;
                for field in ["resourceVersion", "managedFields"] {
                    node["metadata"][field] = Value::Null;
                }
                node
            });
        Self {
            volumes,
            nodes: nodes.collect(),
            vms,
        }
    }
}

/// Whether hosts made a machine that there is or was.
pub(crate) fn is_ours_in(snapshot: &PveSnapshot, incarnation: u64) -> bool {
    let births = snapshot.births.iter();
    births
        .filter(|birth| birth.incarnation == incarnation)
        .any(is_machine)
}

/// A machine that a host made, and not its anchor.
pub(crate) fn is_machine(birth: &Birth) -> bool {
    is_ours(birth) && !birth.bare
}

fn is_ours(birth: &Birth) -> bool {
    birth.creator == OUR_TOKEN
}

/// `/nodes/pve1/qemu/501/status/stop` → 501, `status/stop`.
fn machine_in(path: &str) -> Option<(u32, &str)> {
    let (_, rest) = path.split_once("/qemu/")?;
    let (vmid, action) = rest.split_once('/').unwrap_or((rest, ""));
    Some((vmid.parse().ok()?, action))
}
