//! Machines that no pod uses (S23). While one stands of which the pods that wait have seen nothing for four minutes, their workload
//! gets no other, and none for some minutes after that or after one has gone unused. The Ledger says for whom a machine is made; whether it is used, and
//! who waits, is what the world saw.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{Change, ChangeKind};
use serde_json::Value;

use crate::history::{Notice, Notices};
use crate::object::{CLAIMS, name, text};

const PODS: &str = "pods";
const LEDGERS: &str = "ledgers.kproxide.dev";

/// The law gives a machine 3 minutes. A look at it may take a little longer.
const PATIENCE: SignedDuration = SignedDuration::from_secs(4 * 60);
/// The shortest rest is 5 minutes.
const REST: SignedDuration = SignedDuration::from_secs(4 * 60);
const SECOND: SignedDuration = SignedDuration::from_secs(1);

#[derive(Default)]
struct Machine {
    /// In service since.
    served: Option<Timestamp>,
    node: String,
    /// Gone although its pods waited.
    gone_in_vain: Option<Timestamp>,
    is_there: bool,
}

pub(crate) struct Vain {
    notices: Notices,
    /// By the name of the claim.
    machines: BTreeMap<String, Machine>,
    /// Nodes on which an ordinary pod has run.
    used: BTreeSet<String>,
    /// Since when pods without a Node are known to be unschedulable, by name.
    waiting: BTreeMap<String, Timestamp>,
    /// The machines of each row of the Ledger, in the order in which they came.
    rows: BTreeMap<String, Vec<String>>,
    found: Vec<String>,
}

impl Vain {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self {
            notices: Notices::new(lab, &[CLAIMS, PODS, LEDGERS]),
            machines: BTreeMap::new(),
            used: BTreeSet::new(),
            waiting: BTreeMap::new(),
            rows: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    /// Takes notes of every change, for as long as it is polled.
    pub(crate) async fn follow(&mut self, lab: &Lab) {
        while let Some(notice) = self.notices.next().await {
            if let Notice::Changed(change) = notice {
                self.note(&change, lab.clock.now());
            }
        }
    }

    pub(crate) fn violations(self) -> Vec<String> {
        self.found
    }

    fn note(&mut self, change: &Change, now: Timestamp) {
        let object = change.object.value();
        let is_gone = change.kind == ChangeKind::Deleted;
        if change.resource.is(CLAIMS) {
            self.note_claim(&object, is_gone, now);
        } else if change.resource.is(PODS) {
            self.note_pod(&object, is_gone, now);
        } else {
            self.note_ledger(&object, now);
        }
    }

    fn note_claim(&mut self, claim: &Value, is_gone: bool, now: Timestamp) {
        let mut machine = self.machines.remove(name(claim)).unwrap_or_default();
        machine.is_there = !is_gone;
        machine.node = text(&claim["status"]["nodeName"]).to_owned();
        if claim["status"]["phase"] == "Initialized" {
            machine.served.get_or_insert(now);
        }
        let scaled_down = ["Empty", "Underutilized"].contains(&crate::object::drain_reason(claim));
        if is_gone && scaled_down && self.is_unused(&machine) {
            machine.gone_in_vain = Some(now);
        }
        self.machines.insert(name(claim).to_owned(), machine);
    }

    fn note_pod(&mut self, pod: &Value, is_gone: bool, now: Timestamp) {
        if pod["metadata"]["namespace"] != "default" {
            return;
        }
        let node = text(&pod["spec"]["nodeName"]);
        let conditions = pod["status"]["conditions"].as_array();
        let is_refused = conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable"
        });
        if !is_gone && node.is_empty() && is_refused {
            self.waiting.entry(name(pod).to_owned()).or_insert(now);
        } else {
            self.waiting.remove(name(pod));
        }
        if pod["status"]["phase"] == "Running" {
            self.used.insert(node.to_owned());
        }
    }

    fn is_unused(&self, machine: &Machine) -> bool {
        machine.served.is_some() && !self.used.contains(&machine.node)
    }

    /// A machine that is new in a row of the Ledger is about to be made.
    fn note_ledger(&mut self, ledger: &Value, now: Timestamp) {
        let rows = ledger["spec"]["tries"].as_array();
        for row in rows.into_iter().flatten() {
            let [workload, pool] = [&row["workload"], &row["pool"]].map(text);
            let parts = ["workload", "pool", "instanceType", "pods", "settings"];
            let key = parts.map(|part| text(&row[part])).join(" ");
            let machines = row["machines"].as_array();
            for claim in machines
                .into_iter()
                .flatten()
                .map(|one| text(&one["claim"]))
            {
                let known = self.rows.entry(key.clone()).or_default();
                if known.iter().any(|other| other == claim) {
                    continue;
                }
                let before = std::mem::take(known);
                let why = before
                    .iter()
                    .find_map(|other| self.forbids(other, workload, now));
                if let Some(why) = why {
                    self.found.push(format!(
                        "S23: machine {claim} is made in pool {pool} for {workload}, {why}"
                    ));
                }
                let known = self.rows.entry(key.clone()).or_default();
                *known = before;
                known.push(claim.to_owned());
            }
        }
    }

    /// Why this earlier machine of a workload speaks against another one.
    fn forbids(&self, earlier: &str, workload: &str, now: Timestamp) -> Option<String> {
        let machine = self.machines.get(earlier)?;
        let served = machine.served.filter(|_| self.is_unused(machine))?;
        let (_, of) = workload.split_once('/')?;
        let of = format!("{of}-");
        let mut waiting = self.waiting.iter();
        let waits = waiting.any(|(pod, since)| pod.starts_with(&of) && *since <= served);
        if !waits {
            return None;
        }
        // The rest counts from when it was plain that the machine was made in vain. Conditions, from which kproxide counts,
        // have whole seconds.
        let since = |gone: &Timestamp| now.duration_since((*gone).min(served + PATIENCE));
        let rests = |gone: &Timestamp| since(gone) + SECOND <= REST;
        match machine.gone_in_vain {
            None if machine.is_there && now.duration_since(served) >= PATIENCE => {
                Some(format!("while {earlier} stands unused"))
            }
            Some(gone) if rests(&gone) => Some(format!("just after {earlier} has gone unused")),
            None | Some(_) => None,
        }
    }
}
