//! A claim in any phase, and observations around it.

use jiff::{SignedDuration, Timestamp};

use crate::claim::*;
use crate::facts::*;
use crate::ids::*;
use crate::keys::DRAINING_TAINT;
use crate::plan::Verdict;

pub(in crate::claim) const UUID: &str = "0dc58eea-1b04-4b04-ba4f-c09d2b1c5a16";
pub(in crate::claim) const DISK: &str = "local-lvm:vm-201-disk-0";

pub(in crate::claim) const PHASES: [Phase; 7] = [
    Phase::Pending,
    Phase::Launching,
    Phase::Launched,
    Phase::Registered,
    Phase::Initialized,
    Phase::Draining,
    Phase::Terminating,
];

pub(in crate::claim) fn t0() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a moment")
}

pub(in crate::claim) fn at(seconds: i64) -> Timestamp {
    t0() + SignedDuration::from_secs(seconds)
}

/// Everything that [`next`] is asked with.
#[derive(Clone, Debug)]
pub(in crate::claim) struct Case {
    pub name: ClaimName,
    pub claim: ClaimFacts,
    pub verdict: Verdict,
    pub settings: Settings,
    pub pool: PoolFacts,
    pub hint: Hint,
    pub observed: Observed,
    pub now: Timestamp,
}

impl Case {
    pub(in crate::claim) fn new(phase: Phase) -> Self {
        Self {
            name: "workers-a".into(),
            claim: claim(phase),
            verdict: Verdict::Keep,
            settings: settings(),
            pool: crate::fixtures::pool(),
            hint: Hint::default(),
            observed: Observed {
                own_intent: true,
                quorate: Some(true),
                ..Observed::default()
            },
            now: at(60),
        }
    }

    pub(in crate::claim) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(in crate::claim) fn intent(mut self, op: Op) -> Self {
        self.claim.status.intent = Some(Intent {
            op,
            attempt: 1,
            epoch: "1".to_owned(),
        });
        self
    }

    pub(in crate::claim) fn subject(&self) -> Subject<'_> {
        Subject {
            name: &self.name,
            claim: &self.claim,
            verdict: &self.verdict,
            settings: &self.settings,
            pool: &self.pool,
            hint: &self.hint,
        }
    }

    pub(in crate::claim) fn next(&self) -> Step {
        next(&self.subject(), &self.observed, self.now)
    }

    /// The claim says that its Node is late: from now on its guest is asked.
    pub(in crate::claim) fn late(mut self) -> Self {
        self.claim.status = self.recorded();
        assert_eq!(self.claim.status.phase, Phase::Launched);
        self
    }

    /// The status after the step, if it is a record.
    pub(in crate::claim) fn recorded(&self) -> ClaimStatus {
        let Step::Record { change, .. } = self.next() else {
            panic!("{:?} is no record", self.next());
        };
        let mut status = self.claim.status.clone();
        change.apply(&mut status, "1", "nonce");
        status
    }
}

pub(in crate::claim) fn settings() -> Settings {
    Settings {
        vmid_first: Vmid(200),
        vmid_last: Vmid(299),
        pool: "kproxide".into(),
        timeouts: Timeouts::default(),
        join: Join::Template,
        keep_failed: SignedDuration::ZERO,
        provider_id: ProviderId::Auto,
        shutdown_timeout: SignedDuration::from_secs(60),
        quarantine: SignedDuration::from_hours(24),
        least_priority: -10,
        armed_at: Some(t0()),
    }
}

pub(in crate::claim) fn claim(phase: Phase) -> ClaimFacts {
    let mut status = ClaimStatus {
        phase,
        ..ClaimStatus::default()
    };
    let condition = |kind, status| ClaimCondition {
        kind,
        status,
        since: t0(),
        reason: "Test".to_owned(),
        message: String::new(),
    };
    if phase >= Phase::Launching {
        status.nonce = Some("nonce".into());
        status.conditions.push(condition(Condition::Reserved, true));
    }
    if phase >= Phase::Launched {
        status.smbios_uuid = Some(UUID.into());
        status.disks = vec![DISK.into()];
        status.hypervisor = Some("pve1".into());
        status.started_at = Some(t0());
        status.conditions.push(condition(Condition::Launched, true));
    }
    if phase >= Phase::Registered {
        status.node_name = Some("workers-a".into());
        status.node_uid = Some("node-uid".into());
        status
            .conditions
            .push(condition(Condition::Registered, true));
    }
    if phase >= Phase::Initialized {
        status
            .conditions
            .push(condition(Condition::Initialized, true));
    }
    if phase >= Phase::Draining {
        status.draining_since = Some(t0());
        status.conditions.push(condition(Condition::Drained, false));
    }
    let mut deleting_since = None;
    if phase >= Phase::Terminating {
        deleting_since = Some(t0());
        status
            .conditions
            .push(condition(Condition::InstanceTerminating, true));
    }
    ClaimFacts {
        uid: "claim-uid".into(),
        created: t0(),
        deleting_since,
        has_finalizer: true,
        other_finalizers: vec![],
        spec: ClaimSpec {
            pool: "workers".into(),
            class: "k3s".into(),
            cluster: "home".into(),
            vmid: Vmid(201),
            vm_name: "workers-a".into(),
            hypervisor: "pve1".into(),
            storage: None,
            clone: Some(CloneSpec {
                hypervisor: "pve1".into(),
                vmid: Vmid(9001),
                full: false,
                storage: None,
            }),
            instance_type: "medium".into(),
            resources: ClaimResources {
                milli_cores: 4000,
                memory_bytes: 8 << 30,
                disk_bytes: None,
            },
            address: None,
            machine: None,
            labels: Labels::new(),
            annotations: Labels::new(),
            taints: vec![],
            template_digest: "t".into(),
            policy_digest: "p".into(),
            policy: None,
            adopts: None,
            replaces: None,
        },
        status,
        replace: false,
        discard_local_volumes: false,
        do_not_disrupt: false,
        paused: false,
    }
}

pub(in crate::claim) fn machine() -> Machine {
    Machine {
        hypervisor: "pve1".into(),
        name: Some("workers-a".into()),
        pool: Some("kproxide".into()),
        marker: Marker::Ours,
        smbios_uuid: Some(UUID.into()),
        lock: None,
        power: Power::On,
        task: None,
        protected: false,
        snapshot: None,
        template: false,
        ha_managed: false,
        disks: vec![DISK.into()],
        persistent: vec![],
        digest: "d".into(),
        grow_to: None,
    }
}

pub(in crate::claim) fn visible(change: impl FnOnce(&mut Machine)) -> Option<MachineLook> {
    let mut machine = machine();
    change(&mut machine);
    Some(MachineLook::Visible(Box::new(machine)))
}

pub(in crate::claim) fn did(op: Op, outcome: Outcome) -> Option<Attempted> {
    let op = Some(op);
    Some(Attempted { op, outcome })
}

/// The status was written.
pub(in crate::claim) fn wrote(outcome: Outcome) -> Option<Attempted> {
    Some(Attempted { op: None, outcome })
}

pub(in crate::claim) fn failure(failure: Failure) -> Outcome {
    Outcome::Failed {
        failure,
        text: "says why".to_owned(),
    }
}

pub(in crate::claim) fn node(change: impl FnOnce(&mut NodeFacts)) -> Option<NodeLook> {
    let mut node = NodeFacts {
        uid: "node-uid".into(),
        created: t0(),
        labels: [
            ("topology.kubernetes.io/region", "home"),
            ("topology.kubernetes.io/zone", "pve1"),
            ("node.kubernetes.io/instance-type", "medium"),
            ("kproxide.dev/pool", "workers"),
            ("kproxide.dev/class", "k3s"),
            ("kproxide.dev/claim", "workers-a"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        annotations: Labels::new(),
        taints: vec![],
        unschedulable: false,
        ready: true,
        ready_since: t0(),
        allocatable: Default::default(),
        capacity: Default::default(),
        provider_id: Some("proxmox://home/201".into()),
        system_uuid: Some(UUID.into()),
        address: None,
        deleting: false,
    };
    change(&mut node);
    Some(NodeLook::One("workers-a".into(), Box::new(node)))
}

pub(in crate::claim) fn cordoned() -> Option<NodeLook> {
    node(cordon)
}

pub(in crate::claim) fn cordon(node: &mut NodeFacts) {
    node.unschedulable = true;
    node.taints.push(taint(DRAINING_TAINT));
}

pub(in crate::claim) fn taint(key: &str) -> Taint {
    Taint {
        key: key.into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    }
}

pub(in crate::claim) fn pod(name: &str) -> PodOnNode {
    PodOnNode {
        key: ObjectKey::new("default", name),
        uid: name.into(),
        created: t0(),
        deleting: false,
        grace_ends: None,
        finished: false,
        mirror: false,
        daemon_set: false,
        bare: false,
        unfinished_job: false,
        do_not_disrupt: false,
        protected_until: None,
        safe_to_evict: false,
        on_completion: false,
        tolerates_drain: false,
        local_volumes: false,
        empty_dir: false,
        priority: 0,
    }
}
