//! Small worlds for tests and benches: a scene begins with one Proxmox cluster `pve` of three equal hypervisors, one class `standard` with the
//! type `medium` (4 cores, 8 GiB) and one pool `workers`; a test changes what matters to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::claim::{Condition, Phase};
use crate::facts::*;
use crate::ids::*;
use crate::plan::Plan;
use crate::planning::{Limits, Planning};
use crate::question::*;
use crate::resources::Resources;
use crate::world::World;

pub const GIB: u64 = 1 << 30;

/// The moment of a scene, so many seconds after its beginning.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a moment in range")
}

/// The moment at which scenes are planned: a day after their beginning, so that nothing is young by chance.
pub const NOW: i64 = 86_400;

/// Amounts such as `cpu=500m memory=1Gi`.
pub fn amounts(text: &str) -> Resources {
    let pairs = text
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    Resources::requested(pairs).expect("readable amounts")
}

pub fn labels(text: &str) -> Labels {
    text.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint {
        key: key.into(),
        value: "".into(),
        effect,
    }
}

pub fn spec(requests: &str) -> PodSpec {
    PodSpec {
        requests: Resources {
            pods: 1,
            ..amounts(requests)
        },
        ..PodSpec::default()
    }
}

/// A pod of a Deployment, refused by the scheduler.
pub fn pending_pod(spec: PodSpec) -> PodFacts {
    PodFacts {
        uid: "pod".into(),
        created: at(NOW - 60),
        node: None,
        phase: PodPhase::Pending,
        unschedulable_since: Some(at(NOW - 30)),
        ready: false,
        deleting: false,
        owner: Some(owner("ReplicaSet")),
        mirror: false,
        do_not_disrupt: false,
        labels: Labels::new(),
        spec,
    }
}

pub fn running_pod(node: &str, spec: PodSpec) -> PodFacts {
    PodFacts {
        created: at(0),
        node: Some(node.into()),
        phase: PodPhase::Running,
        unschedulable_since: None,
        ready: true,
        ..pending_pod(spec)
    }
}

pub fn owner(kind: &str) -> Owner {
    Owner {
        kind: kind.into(),
        name: "owner".into(),
        uid: "owner".into(),
    }
}

pub fn node(allocatable: &str) -> NodeFacts {
    let mut allocatable = amounts(allocatable);
    if allocatable.pods == 0 {
        allocatable.pods = 110;
    }
    NodeFacts {
        uid: "node".into(),
        created: at(0),
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: vec![],
        unschedulable: false,
        ready: true,
        ready_since: at(60),
        capacity: allocatable.clone(),
        allocatable,
        provider_id: None,
        system_uuid: None,
        deleting: false,
    }
}

pub fn hypervisor(threads: u32, gib: u64) -> HypervisorFacts {
    HypervisorFacts {
        online: true,
        maintenance: false,
        threads,
        memory_bytes: gib * GIB,
        memory_used_bytes: 0,
        cpu_usage: 0.0,
        committed_threads: 0,
        committed_memory_bytes: 0,
        storages: [
            ("shared".into(), storage(true, 10_000)),
            ("local".into(), storage(false, 1_000)),
        ]
        .into(),
    }
}

pub fn storage(shared: bool, gib: u64) -> StorageFacts {
    StorageFacts {
        kind: if shared {
            "rbd".into()
        } else {
            "lvmthin".into()
        },
        shared,
        active: true,
        available_bytes: gib * GIB,
        total_bytes: gib * GIB,
    }
}

pub fn template(vmid: u32, hypervisor: &str, shared: bool) -> TemplateFacts {
    TemplateFacts {
        vmid: Vmid(vmid),
        hypervisor: hypervisor.into(),
        shared,
        storage: Some(if shared { "shared" } else { "local" }.into()),
        disk_bytes: 20 * GIB,
        digest: "template-digest".to_owned(),
        problem: None,
        smbios_uuid: None,
    }
}

pub fn instance_type(name: &str, cores: u32, gib: u64) -> InstanceType {
    InstanceType {
        name: name.into(),
        cores,
        memory_bytes: gib * GIB,
        disk_bytes: None,
        max_pods: 110,
        extended: Resources::default(),
    }
}

pub fn policy(kind: PolicyKind, name: &str) -> PolicyUse {
    PolicyUse {
        policy: PolicyRef {
            kind,
            name: name.into(),
        },
        settings: "{}".into(),
    }
}

pub fn cluster() -> ClusterFacts {
    ClusterFacts {
        vmid_first: Vmid(1000),
        vmid_last: Vmid(2999),
        pool: "kproxide".into(),
        include: vec![],
        exclude: vec![],
        min_available_cpu_cores: 0,
        min_available_memory_bytes: 0,
        overcommit_cpu: 4.0,
        overcommit_memory: 1.0,
        system_reserved_milli_cores: 0,
        system_reserved_memory_bytes: 0,
        max_machines_per_hypervisor: None,
        clones_per_storage: 2,
        clones_per_hypervisor: 2,
        problem: None,
    }
}

pub fn class() -> ClassFacts {
    ClassFacts {
        template: "debian".into(),
        local_template: false,
        storage: None,
        linked: None,
        instance_types: vec![instance_type("medium", 4, 8)],
        arch: "amd64".into(),
        os: "linux".into(),
        overhead_milli_cores: 0,
        overhead_memory_bytes: 0,
        addresses: None,
        timeouts: Timeouts {
            provision: SignedDuration::from_mins(5),
            agent: SignedDuration::from_mins(3),
            join: SignedDuration::from_mins(10),
        },
        join: Join::Template,
        digest: "class-digest".into(),
        problem: None,
    }
}

pub fn pool() -> PoolFacts {
    PoolFacts {
        uid: "pool".into(),
        class: "standard".into(),
        clusters: vec![],
        min_nodes: 0,
        max_nodes: 10,
        max_milli_cores: None,
        max_memory_bytes: None,
        weight: 0,
        labels: Labels::new(),
        taints: vec![],
        startup_taints: vec![],
        policies: PoolPolicies {
            host_selection: policy(PolicyKind::HostSelection, "spread"),
            scale_down: policy(PolicyKind::ScaleDown, "least-loaded"),
            labels: policy(PolicyKind::Labels, "go-template"),
        },
        paused: false,
        scale_up_stabilization: SignedDuration::ZERO,
        scale_down: ScaleDown {
            enabled: true,
            load_headroom: 0.2,
            stabilization: SignedDuration::from_mins(5),
            min_node_age: SignedDuration::from_mins(10),
            unneeded_time: SignedDuration::ZERO,
            budget: 1,
            blocked_by: BlockedBy {
                local_volumes: true,
                bare_pods: true,
                unfinished_jobs: true,
                empty_dir: false,
                kube_system: false,
            },
        },
        drain_timeout: SignedDuration::from_mins(15),
        repair_after: SignedDuration::from_mins(10),
        headroom: Resources::default(),
        problem: None,
    }
}

/// A world under construction.
#[derive(Clone, Debug)]
pub struct Scene {
    pub cluster: ClusterFacts,
    pub class: ClassFacts,
    pub pools: BTreeMap<PoolName, PoolFacts>,
    pub inventory: InventoryFacts,
    pub host: HostFacts,
    pub ledger: LedgerFacts,
    pub claims: BTreeMap<ClaimName, ClaimFacts>,
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    pub pods: BTreeMap<PodKey, PodFacts>,
    pub daemon_sets: BTreeMap<ObjectKey, DaemonSetFacts>,
    pub budgets: BTreeMap<ObjectKey, DisruptionBudgetFacts>,
}

impl Default for Scene {
    fn default() -> Self {
        let hypervisors = ["alpha", "beta", "gamma"].map(|name| (name.into(), hypervisor(32, 128)));
        Self {
            cluster: cluster(),
            class: class(),
            pools: [("workers".into(), pool())].into(),
            inventory: InventoryFacts {
                taken_at: Some(at(NOW)),
                reachable: true,
                problem: None,
                quorate: true,
                complete: true,
                hypervisors: hypervisors.into(),
                guests: BTreeMap::new(),
                templates: [("debian".into(), vec![template(9000, "alpha", true)])].into(),
            },
            host: HostFacts {
                cluster_id: "cluster-id".to_owned(),
                own_node: None,
                armed_at: Some(at(0)),
                dry_run: false,
                key_known: true,
            },
            ledger: LedgerFacts {
                resource_version: "1".into(),
                ..LedgerFacts::default()
            },
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            daemon_sets: BTreeMap::new(),
            budgets: BTreeMap::new(),
        }
    }
}

impl Scene {
    pub fn workers(&mut self) -> &mut PoolFacts {
        self.pools.entry("workers".into()).or_insert_with(pool)
    }

    pub fn hypervisor(&mut self, name: &str) -> &mut HypervisorFacts {
        self.inventory.hypervisors.entry(name.into()).or_default()
    }

    /// `count` pending pods of one Deployment.
    pub fn pending(&mut self, name: &str, count: usize, spec: PodSpec) -> &mut Self {
        for index in 0..count {
            let key = PodKey::new("default", &format!("{name}-{index:05}"));
            self.pods.insert(key, pending_pod(spec.clone()));
        }
        self
    }

    /// `count` running pods of one Deployment.
    pub fn running(&mut self, name: &str, count: usize, node: &str, spec: PodSpec) -> &mut Self {
        for index in 0..count {
            let key = PodKey::new("default", &format!("{name}-{index:05}"));
            self.pods.insert(key, running_pod(node, spec.clone()));
        }
        self
    }

    pub fn pod(&mut self, name: &str) -> &mut PodFacts {
        let key = PodKey::new("default", name);
        self.pods.get_mut(&key).expect("a pod of that name")
    }

    pub fn node(&mut self, name: &str, facts: NodeFacts) -> &mut NodeFacts {
        self.nodes.insert(name.into(), facts);
        self.nodes.get_mut(name).expect("just set")
    }

    pub fn claim(&mut self, name: &str) -> &mut ClaimFacts {
        self.claims.get_mut(name).expect("a claim of that name")
    }

    /// A machine of the pool `workers` of the class's first type in service since the beginning, on a hypervisor: claim, Ledger entry, VM and Node.
    pub fn machine(&mut self, name: &str, on: &str) -> &mut Self {
        self.coming_machine(name, on, Phase::Initialized);
        let spec = self.claims[name].spec.clone();
        let uuid: Uid = format!("uuid-{name}").into();
        let mut facts = node(&format!(
            "cpu={}m memory={}",
            spec.milli_cores, spec.memory_bytes
        ));
        facts.uid = format!("node-{name}").into();
        facts.system_uuid = Some(uuid.clone());
        facts.labels = spec.labels.clone();
        facts
            .labels
            .insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        self.nodes.insert(name.into(), facts);
        let claim = self.claim(name);
        claim.status.node_name = Some(name.into());
        claim.status.node_uid = Some(format!("node-{name}").into());
        claim.status.smbios_uuid = Some(uuid);
        claim.status.started_at = Some(at(30));
        claim.status.conditions = vec![condition(Condition::Initialized, at(60))];
        let guest = GuestFacts {
            hypervisor: on.into(),
            name: Some(name.into()),
            status: GuestStatus::Running,
            template: false,
            lock: None,
            pool: Some("kproxide".into()),
            max_threads: (spec.milli_cores / 1000) as u32,
            max_memory_bytes: spec.memory_bytes,
        };
        self.inventory.guests.insert(spec.vmid, guest);
        let hypervisor = self.hypervisor(on);
        hypervisor.committed_threads += spec.milli_cores / 1000;
        hypervisor.committed_memory_bytes += spec.memory_bytes;
        self
    }

    /// A machine on its way: claim and Ledger entry, created a minute ago.
    pub fn coming_machine(&mut self, name: &str, on: &str, phase: Phase) -> &mut Self {
        let size = self.class.instance_types[0].clone();
        let vmid = Vmid(1000 + self.ledger.entries.len() as u32);
        let milli_cores = u64::from(size.cores) * 1000;
        self.claims.insert(
            name.into(),
            ClaimFacts {
                uid: format!("claim-{name}").into(),
                created: if phase == Phase::Initialized {
                    at(0)
                } else {
                    at(NOW - 60)
                },
                deleting_since: None,
                has_finalizer: true,
                spec: ClaimSpec {
                    pool: "workers".into(),
                    class: "standard".into(),
                    cluster: "pve".into(),
                    vmid,
                    vm_name: name.into(),
                    hypervisor: on.into(),
                    storage: Some("shared".into()),
                    instance_type: size.name.clone(),
                    milli_cores,
                    memory_bytes: size.memory_bytes,
                    disk_bytes: None,
                    address: None,
                    labels: Labels::new(),
                    annotations: Labels::new(),
                    taints: vec![],
                    template_digest: "template-digest".into(),
                    policy_digest: "spread-digest".into(),
                },
                status: ClaimStatus {
                    phase,
                    ..ClaimStatus::default()
                },
                replace: false,
                do_not_disrupt: false,
                paused: false,
            },
        );
        self.ledger.entries.push(LedgerEntry {
            claim: name.into(),
            pool: "workers".into(),
            cluster: "pve".into(),
            vmid,
            hypervisor: on.into(),
            storage: Some("shared".into()),
            milli_cores,
            memory_bytes: size.memory_bytes,
            disk_bytes: 0,
            address: None,
            state: EntryState::Live,
        });
        self
    }

    pub fn deltas(&self) -> Vec<Delta> {
        let Self {
            cluster,
            class,
            pools,
            inventory,
            host,
            ledger,
            claims,
            nodes,
            pods,
            daemon_sets,
            budgets,
        } = self.clone();
        let mut deltas = vec![
            Delta::Host(host),
            Delta::Cluster("pve".into(), Some(Box::new(cluster))),
            Delta::Class("standard".into(), Some(Box::new(class))),
            Delta::Inventory("pve".into(), Some(Box::new(inventory))),
            Delta::Ledger(Some(Box::new(ledger))),
        ];
        for (kind, name) in [
            (PolicyKind::HostSelection, "spread"),
            (PolicyKind::ScaleDown, "least-loaded"),
            (PolicyKind::Labels, "go-template"),
        ] {
            let digest = format!("{name}-digest").into();
            deltas.push(Delta::Policy(
                policy(kind, name).policy,
                Some(PolicyFacts { digest }),
            ));
        }
        deltas.extend(
            pools
                .into_iter()
                .map(|(name, facts)| Delta::Pool(name, Some(Box::new(facts)))),
        );
        deltas.extend(
            claims
                .into_iter()
                .map(|(name, facts)| Delta::Claim(name, Some(Box::new(facts)))),
        );
        deltas.extend(
            nodes
                .into_iter()
                .map(|(name, facts)| Delta::Node(name, Some(Box::new(facts)))),
        );
        deltas.extend(
            daemon_sets
                .into_iter()
                .map(|(key, facts)| Delta::DaemonSet(key, Some(Box::new(facts)))),
        );
        deltas.extend(
            budgets
                .into_iter()
                .map(|(key, facts)| Delta::DisruptionBudget(key, Some(Box::new(facts)))),
        );
        deltas.extend(
            pods.into_iter()
                .map(|(key, facts)| Delta::Pod(key, Some(Box::new(facts)))),
        );
        deltas
    }

    pub fn world(&self) -> World {
        let mut world = World::default();
        for delta in self.deltas() {
            world.apply(delta);
        }
        world
    }

    /// The plan of this scene at [`NOW`] under well-behaved policies.
    pub fn plan(&self) -> Plan {
        plan(&self.world(), at(NOW), Limits::default(), reasonable)
    }

    /// The plan of this scene with policies of the test's own.
    pub fn plan_with(&self, answer: impl FnMut(&Question) -> Answer) -> Plan {
        plan(&self.world(), at(NOW), Limits::default(), answer)
    }
}

pub fn condition(kind: Condition, since: Timestamp) -> ClaimCondition {
    ClaimCondition {
        kind,
        status: true,
        since,
        reason: String::new(),
        message: String::new(),
    }
}

/// Plans to the end, with `answer` in the place of the policies.
pub fn plan(
    world: &World,
    now: Timestamp,
    limits: Limits,
    mut answer: impl FnMut(&Question) -> Answer,
) -> Plan {
    let mut planning = Planning::new(world, now, limits);
    while let Some(question) = planning.question() {
        planning.answer(answer(&question));
    }
    planning.finish()
}

/// An answer as the policy asked for gives it.
pub fn answered(question: &Question, body: AnswerBody) -> Answer {
    Answer {
        digest: format!("{}-digest", question.policy().policy.name).into(),
        fallback: None,
        body,
    }
}

/// What sensible policies answer: the emptiest hypervisor, the least requested Node, no labels.
pub fn reasonable(question: &Question) -> Answer {
    let body = match question {
        Question::Rank(rank) => AnswerBody::Ranking(Ranking {
            placements: scores(rank.candidates.iter().map(|candidate| {
                candidate
                    .ineligible
                    .is_none()
                    .then_some(candidate.available.memory_bytes as f64)
            })),
            rejected: vec![],
            state: None,
        }),
        Question::Order(order) => AnswerBody::Removals(Removals {
            removals: scores(order.nodes.iter().map(|node| {
                let (requested, all) = (node.requested.memory_bytes, node.allocatable.memory_bytes);
                Some(all.saturating_sub(requested) as f64)
            })),
            state: None,
        }),
        Question::Decorate(decorate) => {
            AnswerBody::Decorations(vec![Decoration::default(); decorate.hypervisors.len()])
        }
    };
    answered(question, body)
}

fn scores(values: impl Iterator<Item = Option<f64>>) -> Vec<Scored> {
    let values: Vec<Option<f64>> = values.collect();
    let largest = values.iter().flatten().fold(1.0, |a: f64, b| a.max(*b));
    (0..)
        .zip(values)
        .filter_map(|(index, value)| {
            Some(Scored {
                index,
                score: value? / largest,
                reason: "free".to_owned(),
            })
        })
        .collect()
}

/// Decorations by hypervisor, for a label policy of a test.
pub fn decorate(question: &Question, labels_on: impl Fn(&HypervisorId) -> Labels) -> Answer {
    match question {
        Question::Decorate(decorate) => {
            let decorations = decorate.hypervisors.iter().map(|hypervisor| Decoration {
                labels: labels_on(&hypervisor.id),
                ..Decoration::default()
            });
            answered(question, AnswerBody::Decorations(decorations.collect()))
        }
        Question::Rank(_) | Question::Order(_) => reasonable(question),
    }
}

pub fn text(text: &str) -> Arc<str> {
    text.into()
}
