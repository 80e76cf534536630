//! A small world in which steps have effects: one VMID, one Node, some pods. Time passes when a step waits.

use jiff::{SignedDuration, Timestamp};

use super::fixture;
use crate::claim::*;
use crate::facts::{ClaimFacts, PoolFacts, Taint, TaintEffect};
use crate::keys::{DRAINING_TAINT, OUT_OF_SERVICE_TAINT, UNREGISTERED_TAINT};
use crate::plan::Verdict;

/// What goes wrong with the n-th effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Killed before the effect.
    CrashBefore,
    /// Killed after it, before its answer came.
    CrashAfter,
    /// The answer is lost; it took effect.
    LostApplied,
    /// The answer is lost; it took no effect.
    LostUnapplied,
}

pub(super) const FAULTS: [Fault; 4] = [
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::LostApplied,
    Fault::LostUnapplied,
];

#[derive(Clone, Debug)]
pub(super) struct World {
    pub now: Timestamp,
    pub claim: Option<ClaimFacts>,
    pub verdict: Verdict,
    pub settings: Settings,
    pub pool: PoolFacts,
    pub vm: Option<Vm>,
    pub node: Option<NodeLook>,
    pub pods: Vec<PodOnNode>,
    pub entry: EntryLook,
    pub epoch: u32,
    /// Requests that reached Proxmox and began a clone.
    pub clones: u32,
    pub destroys: u32,
    pub effects: u32,
    pub trace: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Vm {
    pub machine: Machine,
    /// The clone is finished and in its pool from then on.
    pub visible_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub configured: bool,
    pub stranger: bool,
}

enum Drive {
    Wait(Timestamp),
    Crashed,
    Done,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            now: fixture::t0(),
            claim: Some(fixture::claim(Phase::Pending)),
            verdict: Verdict::Keep,
            settings: fixture::settings(),
            pool: crate::fixtures::pool(),
            vm: None,
            node: None,
            pods: vec![],
            entry: EntryLook::Ours,
            epoch: 1,
            clones: 0,
            destroys: 0,
            effects: 0,
            trace: vec![],
        }
    }

    pub(super) fn phase(&self) -> Option<Phase> {
        self.claim.as_ref().map(|claim| claim.status.phase)
    }

    /// Drives until `until` holds; the n-th effect from now suffers the fault. Panics if that takes too long.
    pub(super) fn run(&mut self, until: impl Fn(&Self) -> bool, fault: Option<(u32, Fault)>) {
        let fault = fault.map(|(nth, fault)| (self.effects + nth, fault));
        for _ in 0..400 {
            if until(self) {
                return;
            }
            match self.drive(fault) {
                Drive::Wait(at) => {
                    self.now = at.max(self.now + SignedDuration::from_secs(1));
                }
                Drive::Crashed => {
                    self.epoch += 1;
                    self.now += SignedDuration::from_secs(30);
                }
                Drive::Done => {}
            }
            self.physics();
        }
        panic!("no end: {:#?}", self.trace);
    }

    fn drive(&mut self, fault: Option<(u32, Fault)>) -> Drive {
        let name = "workers-a".into();
        let mut last = None;
        for _ in 0..40 {
            self.physics();
            let Some(claim) = self.claim.clone() else {
                return Drive::Done;
            };
            let hint = Hint {
                guest: match &self.vm {
                    None => GuestHint::Absent,
                    Some(vm) if vm.machine.power == Power::Off => GuestHint::Stopped,
                    Some(_) => GuestHint::Running,
                },
                hypervisor: None,
                node_changed: false,
                ..Hint::default()
            };
            let subject = Subject {
                name: &name,
                claim: &claim,
                verdict: &self.verdict,
                settings: &self.settings,
                pool: &self.pool,
                hint: &hint,
            };
            let observed = self.observe(&looks(&subject, last.as_ref()), last, &claim);
            let step = next(&subject, &observed, self.now);
            self.trace.push(format!("{}: {step:?}", self.now));
            if let Step::Wait { .. } | Step::BackOff { .. } | Step::Done = step {
                if let Step::BackOff { until, .. } = step {
                    return Drive::Wait(until);
                }
                let Step::Wait { until, .. } = step else {
                    return Drive::Done;
                };
                let soon = self.now + SignedDuration::from_secs(5);
                return Drive::Wait(until.map_or(soon, |at| at.min(soon)));
            }
            if let Step::Follow { upid, op } = step {
                self.now += SignedDuration::from_secs(5);
                self.physics();
                let outcome = self.task(&upid);
                last = fixture::did(op, outcome);
                continue;
            }
            self.effects += 1;
            let fault = fault.filter(|(nth, _)| *nth == self.effects);
            let outcome = match fault.map(|(_, fault)| fault) {
                Some(Fault::CrashBefore) => return Drive::Crashed,
                Some(Fault::CrashAfter) => {
                    let _ = self.perform(&step);
                    return Drive::Crashed;
                }
                Some(Fault::LostApplied) => {
                    let _ = self.perform(&step);
                    Outcome::Unknown("the answer was lost".into())
                }
                Some(Fault::LostUnapplied) => Outcome::Unknown("the answer was lost".into()),
                None => self.perform(&step),
            };
            // A record whose answer is lost ends the drive: the claim is read anew.
            if let Step::Record { then, .. } = &step {
                if outcome != Outcome::Done {
                    return Drive::Wait(self.now);
                }
                if let Then::BackOff { until, .. } = then {
                    return Drive::Wait(*until);
                }
            }
            last = if let Step::Do(effect) = &step {
                fixture::did(effect.op(), outcome)
            } else {
                fixture::wrote(outcome)
            };
        }
        panic!("a drive without end: {:#?}", self.trace);
    }

    fn task(&self, upid: &str) -> Outcome {
        match &self.vm {
            Some(vm) if upid == "clone" && self.now < vm.visible_at => {
                Outcome::Running(upid.into())
            }
            Some(_) | None => Outcome::Done,
        }
    }

    fn observe(&self, looks: &Looks, last: Option<Attempted>, claim: &ClaimFacts) -> Observed {
        let seen = self
            .vm
            .as_ref()
            .filter(|vm| self.now >= vm.visible_at && !vm.stranger);
        let machine = match seen {
            Some(vm) => MachineLook::Visible(Box::new(vm.machine.clone())),
            None => MachineLook::Invisible,
        };
        let presence = match &self.vm {
            Some(_) => Presence::Taken,
            None => Presence::Free,
        };
        Observed {
            claim: ClaimLook::Here,
            own_intent: claim
                .status
                .intent
                .as_ref()
                .is_some_and(|intent| intent.epoch == self.epoch.to_string()),
            quorate: Some(true),
            presence: Some(presence),
            machine: (looks.machine != Need::No).then_some(machine),
            task: looks.task.as_ref().map(|upid| self.task(upid)),
            node: looks
                .node
                .then(|| self.node.clone().unwrap_or(NodeLook::Absent)),
            pods: looks.pods.then(|| self.pods.clone()),
            attachments: looks.attachments.then(Vec::new),
            join: None,
            evidence: None,
            entry: looks.entry.then_some(self.entry),
            last,
            leftovers: Vec::new(),
            unread: vec![],
        }
    }

    /// What happens by itself: Nodes join and become Ready, evicted pods end.
    fn physics(&mut self) {
        let started = self.vm.as_ref().and_then(|vm| vm.started_at);
        if let Some(started) = started
            && self.node.is_none()
            && self.now >= started + SignedDuration::from_secs(15)
        {
            self.node = fixture::node(|node| {
                node.labels.clear();
                node.provider_id = None;
                node.ready = false;
                node.taints.push(fixture::taint(UNREGISTERED_TAINT));
            });
        }
        if let Some(NodeLook::One(_, node)) = &mut self.node
            && started.is_some_and(|at| self.now >= at + SignedDuration::from_secs(25))
        {
            node.ready = true;
        }
        self.pods.retain(|pod| !pod.deleting);
    }

    fn node_mut(&mut self) -> &mut crate::facts::NodeFacts {
        match &mut self.node {
            Some(NodeLook::One(_, node)) => node,
            other => panic!("no Node: {other:?}"),
        }
    }

    fn vm_mut(&mut self) -> &mut Vm {
        let vm = self.vm.as_mut().expect("a VM");
        assert!(!vm.stranger, "a stranger's VM was touched");
        vm
    }

    fn perform(&mut self, step: &Step) -> Outcome {
        let epoch = self.epoch.to_string();
        match step {
            Step::Record { change, .. } => {
                let claim = self.claim.as_mut().expect("a claim");
                change.apply(&mut claim.status, &epoch, "nonce");
            }
            Step::Do(Effect::Clone) => {
                if self.vm.is_some() {
                    return fixture::failure(Failure::VmidTaken);
                }
                self.clones += 1;
                let mut machine = fixture::machine();
                machine.power = Power::Off;
                machine.grow_to = Some(1 << 35);
                self.vm = Some(Vm {
                    machine,
                    visible_at: self.now + SignedDuration::from_secs(12),
                    started_at: None,
                    configured: false,
                    stranger: false,
                });
                return Outcome::Running("clone".into());
            }
            Step::Do(Effect::Configure(_)) => self.vm_mut().configured = true,
            Step::Do(Effect::Resize(..)) => {
                self.vm_mut().machine.grow_to = None;
                return Outcome::Running("resize".into());
            }
            Step::Do(Effect::Start(_)) => {
                let now = self.now;
                let vm = self.vm_mut();
                assert!(vm.configured && vm.machine.grow_to.is_none());
                vm.machine.power = Power::On;
                vm.started_at = Some(now);
                return Outcome::Running("start".into());
            }
            Step::Do(Effect::PatchNode(_, patch)) => {
                let NodePatch {
                    labels,
                    annotations: _,
                    add_taints,
                    remove_unregistered,
                    provider_id,
                } = (**patch).clone();
                let node = self.node_mut();
                node.labels.extend(labels);
                node.taints.extend(add_taints);
                if remove_unregistered {
                    node.taints
                        .retain(|taint| &*taint.key != UNREGISTERED_TAINT);
                }
                if let Some(id) = provider_id {
                    node.provider_id = Some(id.into());
                }
            }
            Step::Do(Effect::Cordon(_)) => fixture::cordon(self.node_mut()),
            Step::Do(Effect::OutOfService(_)) => {
                let node = self.node_mut();
                node.taints.push(Taint {
                    key: OUT_OF_SERVICE_TAINT.into(),
                    value: "nodeshutdown".into(),
                    effect: TaintEffect::NoExecute,
                });
            }
            Step::Do(Effect::Uncordon(_)) => {
                let node = self.node_mut();
                node.unschedulable = false;
                node.taints.retain(|taint| &*taint.key != DRAINING_TAINT);
            }
            Step::Do(Effect::Evict(pods)) => {
                for pod in &mut self.pods {
                    pod.deleting |= pods.iter().any(|evicted| evicted.uid == pod.uid);
                }
                return Outcome::Evicted { refused: vec![] };
            }
            Step::Do(Effect::DeleteClaim) => {
                let now = self.now;
                let claim = self.claim.as_mut().expect("a claim");
                claim.deleting_since.get_or_insert(now);
            }
            Step::Do(Effect::Tombstone(_)) => self.vm_mut().machine.marker = Marker::Tombstoned,
            Step::Do(Effect::Shutdown(..)) | Step::Do(Effect::Stop(_)) => {
                self.vm_mut().machine.power = Power::Off;
                return Outcome::Running("stop".into());
            }
            Step::Do(Effect::Destroy(_)) => {
                assert_eq!(self.vm_mut().machine.power, Power::Off);
                self.vm = None;
                self.destroys += 1;
                return Outcome::Running("destroy".into());
            }
            Step::Do(Effect::DeleteNode(_)) => {
                assert!(self.vm.is_none(), "a Node was deleted before its VM");
                self.node = None;
            }
            Step::Do(Effect::Quarantine { .. }) => self.entry = EntryLook::Quarantined,
            Step::Do(Effect::RemoveFinalizer) => self.claim = None,
            Step::Do(Effect::Join(_))
            | Step::Follow { .. }
            | Step::Wait { .. }
            | Step::BackOff { .. }
            | Step::Done => {
                panic!("not an effect: {step:?}")
            }
        }
        Outcome::Done
    }
}
