//! More of what must hold at every moment, by its name in the list of invariants: records before effects, the order in which a machine goes, quarantine, cold
//! start, breaker and freeze, the Lease. As in [`crate::history`], what counts is what both servers saw.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{AuditEntry as KubeEntry, Change, ChangeKind, Verb};
use kproxide_simulator::pve::{AuditEntry, Birth};
use serde_json::Value;

use crate::history::{AT_ONCE, Notice, Notices, OUR_TOKEN, is_machine, is_of_host};
use crate::nodes::{goes_at_our_will, machine_runs, most_are_bad};
use crate::object::{CLAIMS, drain_reason, is_out_of_service, is_tainted, name, text};
use crate::scenario::Scenario;

const NODES: &str = "nodes";
const PODS: &str = "pods";
const LEASES: &str = "leases.coordination.k8s.io";
const LEDGERS: &str = "ledgers.kproxide.dev";

/// S3: a VMID rests for so long, where the scenario says nothing else.
const QUARANTINE: Duration = Duration::from_secs(24 * 60 * 60);
/// S10: a new leader removes nothing for so long. A request of an earlier term may arrive in its first seconds.
const COLD_START: SignedDuration = SignedDuration::from_secs(59);
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(5);
/// S1: a machine without a claim is not condemned before; the default of `--orphan-grace`.
const GRACE: SignedDuration = SignedDuration::from_hours(1);
const FINALIZER: &str = "kproxide.dev/machine";
/// S9: a request that was sent by who led arrives within this time of the end of its Lease.
const LATE: Duration = Duration::from_secs(60);
/// S9: servers tell of a loss of quorum after eight seconds, and a request may be on its way by then.
const TOLD: Duration = Duration::from_secs(15);
/// S11: of so few machines one is repaired in ten minutes. They count from the first time that its removal was to begin; one that begins within a minute of
/// that is the same, after an answer that was lost, say.
const WINDOW: SignedDuration = SignedDuration::from_secs(525);
/// S8: no tick is so fast that it could have looked at a removal again between taint and eviction.
const SECOND_LOOK: SignedDuration = SignedDuration::from_millis(40);

/// Collects what changes while a run goes on.
pub(crate) struct Watch {
    notices: Notices,
    claims: BTreeMap<String, Claim>,
    /// When our taint came to a Node, by its name.
    tainted: BTreeMap<String, Timestamp>,
    /// Nodes of which Kubernetes was told that nothing runs there any more.
    out_of_service: BTreeSet<String>,
    leaving: BTreeSet<String>,
    /// Who held the Lease from when on; nobody is "".
    leases: Vec<(Timestamp, String)>,
    /// Terms of replicas.
    terms: Vec<(Timestamp, String)>,
    transitions: u64,
    repairs: Vec<(Timestamp, String)>,
    /// What would be wrong if a host has done it: resource, name, subresource, moment and what.
    suspicions: Vec<Suspicion>,
    found: Vec<String>,
    /// So much of both servers' audits was reviewed; they may have forgotten it since.
    seen: (usize, usize),
    /// Longer than anybody believes to lead who does not, late requests included.
    fenced: SignedDuration,
    /// How often the clone of each claim was asked for, by its UID.
    clones: BTreeMap<String, u64>,
    /// Machines that got their tombstone.
    condemned: BTreeSet<u64>,
}

struct Suspicion {
    verb: Verb,
    resource: &'static str,
    name: String,
    at: Timestamp,
    what: String,
}

/// What a claim has said.
struct Claim {
    name: String,
    vmid: u64,
    from: Timestamp,
    gone: Option<Timestamp>,
    deleted: bool,
    /// Intents, and the highest attempt of each.
    intents: Vec<(Timestamp, String)>,
    clones: u64,
    begun: bool,
}

impl Watch {
    /// A Lease lasts so long.
    pub(crate) fn new(lab: &Lab, lease: Duration) -> Self {
        Self {
            fenced: (lease + LATE).try_into().unwrap_or(SignedDuration::MAX),
            notices: Notices::new(lab, &[CLAIMS, NODES, PODS, LEASES]),
            claims: BTreeMap::new(),
            tainted: BTreeMap::new(),
            out_of_service: BTreeSet::new(),
            leaving: BTreeSet::new(),
            leases: Vec::new(),
            terms: Vec::new(),
            transitions: 0,
            repairs: Vec::new(),
            suspicions: Vec::new(),
            found: Vec::new(),
            seen: (0, 0),
            clones: BTreeMap::new(),
            condemned: BTreeSet::new(),
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

    fn note(&mut self, lab: &Lab, change: &Change) {
        let now = lab.clock.now();
        let (resource, object) = (&change.resource, &change.object);
        if resource.is(CLAIMS) {
            self.note_claim(lab, change.kind, &object.value(), now);
        } else if resource.is(NODES) {
            self.note_node(lab, change.kind, &object.value(), now);
        } else if resource.is(PODS) && object.terminating {
            self.note_pod(lab, &object.value(), now);
        } else if resource.is(LEASES) && object.key.name == "kproxide" {
            self.note_lease(&object.value(), now);
        }
    }

    fn note_claim(&mut self, lab: &Lab, kind: ChangeKind, object: &Value, now: Timestamp) {
        let (uid, name) = (text(&object["metadata"]["uid"]), name(object));
        if !self.claims.contains_key(uid) {
            self.check_new(lab, object, now);
        }
        let claim = self.claims.entry(uid.to_owned()).or_insert_with(|| Claim {
            name: name.to_owned(),
            vmid: object["spec"]["vmid"].as_u64().unwrap_or(0),
            from: now,
            gone: None,
            deleted: false,
            intents: Vec::new(),
            clones: 0,
            begun: false,
        });
        let status = &object["status"];
        let intent = &status["intent"];
        if let Some(op) = intent["op"].as_str() {
            claim.intents.push((now, op.to_owned()));
            if op == "Clone" {
                claim.clones = claim.clones.max(intent["attempt"].as_u64().unwrap_or(0));
            }
        }
        if kind == ChangeKind::Deleted {
            claim.gone = Some(now);
            let snapshot = lab.pve.snapshot();
            let had_machine = snapshot.births.iter().any(|birth| {
                is_machine(birth) && u64::from(birth.vmid) == claim.vmid && claim.from <= birth.at
            });
            // What never had a machine needs no proof that it has none.
            if had_machine && snapshot.no_quorum_for.is_some_and(|time| time > TOLD) {
                self.found.push(format!(
                    "S9: claim {name} was let go while the Proxmox cluster had no quorum"
                ));
            }
            return;
        }
        let reason = drain_reason(object);
        if status["phase"] == "Draining" && !claim.begun {
            claim.begun = true;
            if reason == "Repair" {
                self.repairs.push((now, name.to_owned()));
            }
            if reason != "LaunchFailed" && most_are_bad(lab, now) {
                self.found.push(format!(
                    "S11: the removal of {name} ({reason}) begins while most Nodes of ours are not Ready"
                ));
            }
        }
        if !object["metadata"]["deletionTimestamp"].is_string() || claim.deleted {
            return;
        }
        claim.deleted = true;
        self.check_drained(lab, object, reason, now);
    }

    /// S2: a claim is held from its first moment on. S18: none takes over what others made. S1: one that condemns a machine without a claim comes after a grace, and while every server answers. (A
    /// server that fell silent after the plan was made would be found, too: no world has that.)
    fn check_new(&mut self, lab: &Lab, claim: &Value, now: Timestamp) {
        let finalizers = claim["metadata"]["finalizers"].as_array();
        if !finalizers.is_some_and(|them| them.iter().any(|one| one == FINALIZER)) {
            self.found.push(format!(
                "S2: claim {} comes without its finalizer",
                name(claim)
            ));
        }
        let adopts = &claim["spec"]["adopts"];
        if adopts.is_null() {
            return;
        }
        let snapshot = lab.pve.snapshot();
        let mut births = snapshot.births.iter();
        let taken = births.find(|it| claim["spec"]["vmid"] == it.vmid && it.destroyed.is_none());
        if let Some(taken) = taken.filter(|birth| !is_machine(birth)) {
            self.found.push(format!(
                "S18: claim {} takes over VM {}, which is not ours, it was made by {}",
                name(claim),
                taken.vmid,
                taken.creator
            ));
        }
        if adopts["condemned"] != true {
            return;
        }
        let lost = self.claims.get(text(&adopts["claimUID"]));
        if let Some(gone) = lost.and_then(|lost| lost.gone)
            && now.duration_since(gone) < GRACE
        {
            self.found.push(format!(
                "S1: claim {} condemns a machine {} s after it lost its claim",
                name(claim),
                now.duration_since(gone).as_secs()
            ));
        }
        let silent = snapshot.hypervisors.iter().find(|it| !it.online);
        if let Some(silent) = silent {
            self.found.push(format!(
                "S1: claim {} condemns a machine while {} does not answer",
                name(claim),
                silent.name
            ));
        }
        if snapshot.no_quorum_for.is_some_and(|time| time > TOLD) {
            self.found.push(format!(
                "S1: claim {} condemns a machine while the Proxmox cluster has no quorum",
                name(claim)
            ));
        }
    }

    /// A claim is deleted: if a host did it, its Node must be tainted and empty.
    fn check_drained(&mut self, lab: &Lab, claim: &Value, reason: &str, now: Timestamp) {
        let node = text(&claim["status"]["nodeName"]);
        if reason == "Lost" || node.is_empty() {
            return;
        }
        let mut suspect = |what: String| {
            self.suspicions.push(Suspicion {
                verb: Verb::Delete,
                resource: CLAIMS,
                name: name(claim).to_owned(),
                at: now,
                what,
            });
        };
        let pods = lab.kube.list("pods");
        let stays = pods.iter().find(|pod| {
            pod["spec"]["nodeName"] == node
                && pod["metadata"]["namespace"] == "default"
                && !pod["metadata"]["deletionTimestamp"].is_string()
                && ["Pending", "Running"].contains(&text(&pod["status"]["phase"]))
        });
        if let Some(pod) = stays {
            let (claim, pod) = (name(claim), name(pod));
            suspect(format!(
                "S8: claim {claim} ({reason}) is deleted while pod {pod} is on its Node"
            ));
        }
        let is_open = lab
            .kube
            .get("nodes", "", node)
            .is_some_and(|node| !is_tainted(&node));
        if is_open {
            suspect(format!(
                "S8: claim {} ({reason}) is deleted while its Node is not tainted",
                name(claim)
            ));
        }
    }

    fn note_node(&mut self, lab: &Lab, kind: ChangeKind, object: &Value, now: Timestamp) {
        let name = name(object).to_owned();
        if kind == ChangeKind::Deleted {
            self.tainted.remove(&name);
            self.out_of_service.remove(&name);
            self.suspect_if_it_runs(lab, object, Verb::Delete, "S8", "deleted");
            return;
        }
        if is_out_of_service(object) && self.out_of_service.insert(name.clone()) {
            self.suspect_if_it_runs(lab, object, Verb::Patch, "S25", "tainted out-of-service");
        } else if !is_out_of_service(object) {
            self.out_of_service.remove(&name);
        }
        if is_tainted(object) {
            self.tainted.entry(name).or_insert(now);
        } else {
            self.tainted.remove(&name);
        }
    }

    fn suspect_if_it_runs(&mut self, lab: &Lab, node: &Value, verb: Verb, law: &str, done: &str) {
        let name = name(node);
        if machine_runs(lab, node) {
            self.suspicions.push(Suspicion {
                verb,
                resource: NODES,
                name: name.to_owned(),
                at: lab.clock.now(),
                what: format!("{law}: Node {name} is {done} while its machine runs"),
            });
        }
    }

    fn note_pod(&mut self, lab: &Lab, object: &Value, now: Timestamp) {
        let node = text(&object["spec"]["nodeName"]);
        let is_new = self
            .leaving
            .insert(text(&object["metadata"]["uid"]).to_owned());
        let Some(tainted) = self.tainted.get(node).filter(|_| is_new) else {
            return;
        };
        if now.duration_since(*tainted) < SECOND_LOOK && goes_at_our_will(lab, node) {
            self.suspicions.push(Suspicion {
                verb: Verb::Create,
                resource: PODS,
                name: name(object).to_owned(),
                at: now,
                what: format!(
                    "S8: pod {} is evicted from {node} in the moment in which it is tainted",
                    name(object)
                ),
            });
        }
    }

    fn note_lease(&mut self, object: &Value, now: Timestamp) {
        let holder = text(&object["spec"]["holderIdentity"]).to_owned();
        let transitions = object["spec"]["leaseTransitions"].as_u64().unwrap_or(0);
        let before = self.leases.last().map_or("", |(_, holder)| holder);
        if !holder.is_empty() && (before != holder || transitions != self.transitions) {
            self.terms.push((now, holder.clone()));
        }
        self.transitions = transitions;
        if before != holder {
            self.leases.push((now, holder));
        }
    }

    /// Checks everything that was asked since the last time.
    fn review(&mut self, lab: &Lab) {
        let (pve, kube) = (
            lab.pve.audit_since(self.seen.0),
            lab.kube.audit_since(self.seen.1),
        );
        self.seen = (self.seen.0 + pve.len(), self.seen.1 + kube.len());
        let by_hosts: Vec<KubeEntry> = kube.into_iter().filter(is_of_host).collect();
        let ours = |entry: &AuditEntry| entry.user == OUR_TOKEN;
        let entries: Vec<AuditEntry> = pve.into_iter().filter(ours).collect();
        let births = lab.pve.births();
        let births: Vec<&Birth> = births.iter().filter(|birth| is_machine(birth)).collect();
        let mut found = std::mem::take(&mut self.found);
        self.check_suspicions(&by_hosts, &mut found);
        self.check_terms(&by_hosts, &mut found);
        self.check_records(&entries, &births, &mut found);
        self.found = found;
    }

    /// Every violation; none is as it should be. What the Ledger was made to forget at some moment, nobody is held to from then on.
    pub(crate) fn violations(
        &mut self,
        lab: &Lab,
        scenario: &Scenario,
        forgot: Option<Timestamp>,
    ) -> Vec<String> {
        self.review(lab);
        let mut found = self.found.clone();
        let births = lab.pve.births();
        let births: Vec<&Birth> = births.iter().filter(|birth| is_machine(birth)).collect();
        let rest = scenario.quarantine.unwrap_or(QUARANTINE);
        let is_known =
            |from: Timestamp, to: Timestamp| forgot.is_none_or(|at| at < from || to < at);
        self.check_quarantine(&births, rest, is_known, &mut found);
        check_leftovers(lab, &mut found);
        for (uid, asked) in &self.clones {
            let claim = &self.claims[uid];
            if *asked > claim.clones {
                found.push(format!(
                    "S2: the clone of claim {} was asked for {asked} times with {} intents",
                    claim.name, claim.clones
                ));
            }
        }
        for pair in self.repairs.windows(2) {
            if pair[1].0.duration_since(pair[0].0) < WINDOW
                && pair[0].1 != pair[1].1
                && is_known(pair[0].0, pair[1].0)
            {
                found.push(format!(
                    "S11: the repairs of {} and {} begin within ten minutes",
                    pair[0].1, pair[1].1
                ));
            }
        }
        found
    }

    fn check_suspicions(&mut self, by_hosts: &[KubeEntry], found: &mut Vec<String>) {
        for suspicion in std::mem::take(&mut self.suspicions) {
            let is_it = |entry: &&KubeEntry| {
                entry.resource == suspicion.resource
                    && entry.name == suspicion.name
                    && entry.verb == suspicion.verb
                    && entry.at.duration_since(suspicion.at).abs() < AT_ONCE
            };
            if by_hosts.iter().any(|entry| is_it(&entry)) {
                found.push(suspicion.what);
            }
        }
    }

    /// Who acts holds the Lease, and has held it for long enough where something goes for good.
    fn check_terms(&self, by_hosts: &[KubeEntry], found: &mut Vec<String>) {
        let work = [CLAIMS, NODES, PODS, LEDGERS];
        for entry in by_hosts {
            // An empty Ledger is made by whoever comes first.
            let is_beginning = entry.resource == LEDGERS && entry.verb == Verb::Create;
            if !work.contains(&entry.resource.as_str()) || is_beginning {
                continue;
            }
            let is_of = |holder: &str| holder.starts_with(&*entry.user);
            let mut until = None;
            let held = self.leases.iter().rev().any(|(from, holder)| {
                let ended_lately = until
                    .replace(*from)
                    .is_none_or(|end: Timestamp| entry.at.duration_since(end) < self.fenced);
                *from <= entry.at && ended_lately && is_of(holder)
            });
            if !held {
                found.push(format!(
                    "S9: {} acts without the Lease: {entry}",
                    entry.user
                ));
            }
            let is_final = entry.subresource == "eviction"
                || entry.verb == Verb::Delete && [CLAIMS, NODES].contains(&&*entry.resource);
            let mut terms = self.terms.iter().rev();
            let term = terms.find(|(from, holder)| *from <= entry.at && is_of(holder));
            if let Some((from, _)) = term.filter(|_| is_final) {
                let age = entry.at.duration_since(*from);
                if (ON_ITS_WAY..COLD_START).contains(&age) {
                    found.push(format!(
                        "S10: {} s after it began to lead, {entry}",
                        age.as_secs()
                    ));
                }
            }
        }
    }

    /// Nothing is asked of Proxmox that the claim does not say first, and nothing is destroyed that was not condemned.
    fn check_records(
        &mut self,
        entries: &[AuditEntry],
        births: &[&Birth],
        found: &mut Vec<String>,
    ) {
        for entry in entries {
            let Some((vmid, op)) = op(entry) else {
                continue;
            };
            let claim = self.claims.iter().find(|(_, claim)| {
                claim.vmid == u64::from(vmid)
                    && claim.from <= entry.at
                    && claim.gone.is_none_or(|gone| entry.at <= gone)
            });
            let Some((uid, claim)) = claim else {
                continue;
            };
            if op == "Clone" {
                *self.clones.entry(uid.clone()).or_default() += 1;
            }
            if entry.status != 200 {
                continue;
            }
            let what = format!("{} {} at {}", entry.method, entry.path, entry.at);
            if ["Tombstone", "Shutdown", "Stop", "Destroy"].contains(&op)
                && let Some(age) = self.age_of_only_term(entry.at)
                && (ON_ITS_WAY..COLD_START).contains(&age)
            {
                found.push(format!(
                    "S10: {} s after the process began to lead: {what}",
                    age.as_secs()
                ));
            }
            let mut intents = claim.intents.iter();
            if !intents.any(|(at, intended)| intended == op && *at <= entry.at) {
                found.push(format!(
                    "S2: {what}: claim {} did not say so before ({op})",
                    claim.name
                ));
            }
            let mut lives = births.iter().rev();
            let birth = lives.find(|birth| birth.vmid == vmid && birth.at <= entry.at);
            match birth {
                Some(birth) if op == "Tombstone" => {
                    self.condemned.insert(birth.incarnation);
                }
                Some(birth) if op == "Destroy" && !self.condemned.contains(&birth.incarnation) => {
                    found.push(format!("S1: {what}: VM {vmid} has no tombstone"));
                }
                Some(_) | None => {}
            }
        }
    }

    /// How long the present term has lasted, if there is one replica: of two, the one that has lost its Lease may go on for a moment.
    fn age_of_only_term(&self, now: Timestamp) -> Option<SignedDuration> {
        let mut terms = self.terms.iter();
        let is_only = terms.all(|(_, holder)| holder.starts_with("kproxide-0"));
        let began = self.terms.iter().rev().find(|(from, _)| *from <= now);
        is_only.then_some(now.duration_since(began?.0))
    }

    fn check_quarantine(
        &self,
        births: &[&Birth],
        rest: Duration,
        is_known: impl Fn(Timestamp, Timestamp) -> bool,
        found: &mut Vec<String>,
    ) {
        let claim_of = |birth: &Birth| {
            let mut claims = self.claims.iter();
            claims
                .find(|(_, claim)| {
                    claim.vmid == u64::from(birth.vmid)
                        && claim.from <= birth.at
                        && claim.gone.is_none_or(|gone| birth.at <= gone)
                })
                .map(|(uid, _)| uid)
        };
        for (index, birth) in births.iter().enumerate() {
            let before = births[..index]
                .iter()
                .rev()
                .find(|it| it.vmid == birth.vmid);
            let Some(before) = before.filter(|before| claim_of(before) != claim_of(birth)) else {
                continue;
            };
            let rested = before.destroyed.map(|end| birth.at.duration_since(end));
            let is_rested = rested.is_some_and(|rested| rested.unsigned_abs() >= rest);
            if !is_rested && before.destroyed.is_none_or(|end| is_known(end, birth.at)) {
                found.push(format!(
                    "S3: VMID {} is used again {} s after its machine was gone",
                    birth.vmid,
                    rested.unwrap_or_default().as_secs()
                ));
            }
        }
    }
}

/// What a destroy could not remove is told as that, when it is known.
fn check_leftovers(lab: &Lab, found: &mut Vec<String>) {
    let events = lab.kube.list("events.events.k8s.io");
    for task in lab.pve.snapshot().tasks {
        let is_warned = task.kind == "qmdestroy"
            && task
                .exit
                .as_deref()
                .is_some_and(|exit| exit.starts_with("WARNINGS"));
        let told = format!("VM {} is destroyed, but", task.id);
        let is_told = events
            .iter()
            .any(|event| event["reason"] == "LeakedVolume" && text(&event["note"]).contains(&told));
        if is_warned && !is_told {
            found.push(format!(
                "S20: nobody is told of the volumes that VM {} left behind when it was destroyed",
                task.id
            ));
        }
    }
}

/// The machine that a request is about, and the intent that must stand before it.
fn op(entry: &AuditEntry) -> Option<(u32, &'static str)> {
    let param = |name: &str| {
        let mut params = entry.params.iter();
        params
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let (_, rest) = entry.path.split_once("/qemu/")?;
    let (vmid, action) = rest.split_once('/').unwrap_or((rest, ""));
    let op = match (entry.method.as_str(), action) {
        ("POST", "clone") => return Some((param("newid")?.parse().ok()?, "Clone")),
        ("DELETE", "") => "Destroy",
        ("POST", "status/shutdown") => "Shutdown",
        ("POST", "status/stop") => "Stop",
        ("POST", "status/start") => "Start",
        ("PUT", "resize") => "Resize",
        ("PUT" | "POST", "config") => match param("description") {
            Some(text) if text.contains("kproxide-tombstone:") => "Tombstone",
            Some(_) | None => "Configure",
        },
        (_, _) => return None,
    };
    Some((vmid.parse().ok()?, op))
}
