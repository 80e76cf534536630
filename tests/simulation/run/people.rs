//! What people do, as the scenario says.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{LOOK, Stage};
use crate::history::Foreign;
use crate::object::{CLAIMS, name};
use crate::plan::FaultPlan;
use crate::scenario::{Act, Onto, RANGE, TRAP};
use crate::settled::ledger_entries;

/// Somebody who wants a promised VMID looks for one for so long.
const LOOK_FOR_PROMISES: Duration = Duration::from_secs(60);

impl Stage<'_> {
    /// What the scenario says, at its times. Returns what belongs to other people, with what they made meanwhile.
    pub(super) async fn people(&self) -> Foreign {
        let started = Instant::now();
        let mut foreign = Foreign::of(self.lab);
        for step in &self.scenario.steps {
            sleep_until(started + step.at).await;
            match &step.act {
                Act::Load(load) => self.load(load),
                Act::Copy(onto) => self.copy(*onto, &mut foreign).await,
                Act::Keep(keep) => self.keep(*keep),
                Act::Silence => self.silence().await,
                Act::Mend => self.mend(),
                Act::Incident(incident) => {
                    self.log.line("world", &format!("{incident:?}"));
                    incident.happen(self.lab, &mut foreign).await;
                }
            }
        }
        foreign
    }

    /// Once all is at rest and nothing goes wrong any more: pods come and go again.
    pub(super) async fn encore(&self, plan: &FaultPlan) -> Result<(), String> {
        let started = Instant::now();
        self.calm.set(true);
        for step in &self.scenario.encore {
            sleep_until(started + step.at).await;
            if let Act::Load(load) = &step.act {
                self.load(load);
            }
        }
        if !self.scenario.encore.is_empty() {
            self.come_to_rest(plan).await?;
        }
        self.calm.set(false);
        Ok(())
    }

    fn load(&self, load: &[u32]) {
        self.log.line("people", &format!("load {load:?}"));
        for (app, replicas) in self.scenario.apps.iter().zip(load) {
            let patch = json!({"spec": {"replicas": replicas}});
            let kube = &self.lab.kube;
            let scaled = kube.patch("deployments.apps", "", "default", &app.name, patch);
            scaled.expect("the Deployment was made at the beginning");
        }
    }

    /// Somebody wants a Node of ours kept, or none any more.
    fn keep(&self, keep: bool) {
        let nodes = self.lab.kube.list("nodes");
        let ours = nodes
            .iter()
            .filter(|node| node["metadata"]["labels"]["kproxide.dev/claim"].is_string());
        let (value, most) = match keep {
            true => (json!("true"), 1),
            false => (Value::Null, usize::MAX),
        };
        for node in ours.take(most) {
            let node = name(node);
            self.log
                .line("people", &format!("Node {node} is to be kept: {keep}"));
            let patch =
                json!({"metadata": {"annotations": {"kproxide.dev/do-not-disrupt": value}}});
            let patched = self.lab.kube.patch("nodes", "", "", node, patch);
            patched.expect("the Node was there a moment ago");
            self.happened.borrow_mut().kept += u64::from(keep);
        }
    }

    /// Copies the first machine of ours that stands, if there is one now.
    async fn copy(&self, onto: Onto, foreign: &mut Foreign) {
        let vmid = match onto {
            Onto::Promised => self.promised().await,
            Onto::Last => Some(*RANGE.end()),
        };
        let snapshot = self.lab.pve.snapshot();
        let ours = snapshot
            .vms
            .iter()
            .filter(|vm| vm.creator.starts_with("kproxide") && vm.lock.is_none())
            .find(|vm| !vm.name.starts_with("kproxide-anchor-"));
        if let (Some(ours), Some(vmid)) = (ours, vmid)
            && self
                .lab
                .pve
                .human_clones_vm(ours.vmid, vmid, &ours.name)
                .is_ok()
        {
            let moved = self.lab.pve.human_sets_pool(vmid, ours.pool.as_deref());
            moved.expect("the copy was made just now");
            self.log
                .line("people", &format!("copy VM {} to {vmid}", ours.vmid));
            foreign.add(self.lab, vmid);
            let mut happened = self.happened.borrow_mut();
            happened.copies += 1;
            happened.promised += u64::from(onto == Onto::Promised);
        }
    }

    /// The kubelet of the first Node of ours that is in service falls silent for good.
    async fn silence(&self) {
        let name = loop {
            let claims = self.lab.kube.list(CLAIMS);
            let in_service = |claim: &&Value| claim["status"]["phase"] == "Initialized";
            let node = claims
                .iter()
                .find(in_service)
                .and_then(|claim| claim["status"]["nodeName"].as_str());
            if let Some(node) = node {
                break node.to_owned();
            }
            sleep(LOOK).await;
        };
        self.log.line("world", &format!("{name} falls silent"));
        self.lab.kubelets.stop_node(&name);
    }

    /// The policies that trap get settings with which they answer.
    fn mend(&self) {
        self.log.line("people", "mend the policy");
        let policy = json!({"use": TRAP, "settings": {"do": "behave"}});
        let patch = json!({"spec": {"policies": {"hostSelection": policy}}});
        for pool in &self.scenario.pools {
            let mended =
                self.lab
                    .kube
                    .patch("nodepools.kproxide.dev", "", "", pool.name, patch.clone());
            mended.expect("the pool was made at the beginning");
        }
    }

    /// Waits a little for a VMID that is promised to a claim whose machine is not made yet.
    async fn promised(&self) -> Option<u32> {
        let end = Instant::now() + LOOK_FOR_PROMISES;
        let mut seen = None;
        let mut look = 0_u32;
        while Instant::now() < end {
            look += 1;
            let ledgers = self.lab.kube.objects("ledgers.kproxide.dev");
            let revision = ledgers.iter().map(|ledger| ledger.revision).max();
            // With a new version of it more may be promised, and a machine may go before its Ledger knows.
            if revision != seen || look.is_multiple_of(10) {
                seen = revision;
                let made = self.lab.pve.snapshot().vms;
                let promised = ledger_entries(self.lab)
                    .iter()
                    .filter(|entry| entry["state"] != "quarantined")
                    .filter_map(|entry| u32::try_from(entry["vmid"].as_u64()?).ok())
                    .find(|vmid| made.iter().all(|vm| vm.vmid != *vmid));
                if promised.is_some() {
                    return promised;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }
}
