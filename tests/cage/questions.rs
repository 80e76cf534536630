//! Questions of each kind about a world drawn from a seed.

use fastrand::Rng;
use kproxide_builtins::Kind;
use kproxide_planner::facts::{PolicyKind, PolicyRef, PolicyUse};
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::plan::question::{
    Attribute, AttributeValue, Candidate, Context, DecorateQuestion, HypervisorDescription,
    Machine, OrderQuestion, Question, RankQuestion, RemovableNode, Size,
};

pub(crate) fn question(kind: Kind, name: &str, settings: &str, rng: &mut Rng) -> Question {
    let policy = |kind| {
        let name = name.into();
        PolicyUse::alone(PolicyRef { kind, name }, settings.into())
    };
    let candidates: Vec<Candidate> = (0..rng.usize(..12)).map(|n| candidate(n, rng)).collect();
    match kind {
        Kind::HostSelection => Question::Rank(RankQuestion {
            policy: policy(PolicyKind::HostSelection),
            context: context(rng),
            machine: machine(rng),
            batch_index: rng.u32(..4),
            batch_size: 4,
            sequence: rng.u64(..100),
            previous: rng.bool().then(|| HypervisorId::new("home", "pve2")),
            candidates: candidates.into(),
        }),
        Kind::ScaleDown => Question::Order(OrderQuestion {
            policy: policy(PolicyKind::ScaleDown),
            context: context(rng),
            pool: "blue".into(),
            nodes: (0..rng.usize(..12)).map(|n| node(n, rng)).collect(),
            hypervisors: candidates,
            max_removals: rng.u32(..5),
        }),
        Kind::Labels => Question::Decorate(DecorateQuestion {
            policy: policy(PolicyKind::Labels),
            machine: machine(rng),
            hypervisors: candidates.into_iter().map(|it| it.hypervisor).collect(),
        }),
    }
}

fn context(rng: &mut Rng) -> Context {
    Context {
        cluster: "c1".into(),
        now: rng.i64(..),
        seed: rng.u64(..),
        dry_run: rng.bool(),
        state: (0..rng.usize(..9)).map(|_| rng.u8(..)).collect(),
    }
}

fn machine(rng: &mut Rng) -> Machine {
    Machine {
        pool: "blue".into(),
        instance_type: "medium".into(),
        size: size(rng),
        attributes: attributes(rng),
    }
}

fn candidate(n: usize, rng: &mut Rng) -> Candidate {
    Candidate {
        hypervisor: HypervisorDescription {
            id: HypervisorId::new("home", &format!("pve{n}")),
            zone: format!("zone-{}", rng.u8(..3)).as_str().into(),
            capacity: size(rng),
            attributes: attributes(rng).into(),
        },
        ineligible: (rng.u8(..4) == 0).then(|| "offline".to_owned()),
        used: size(rng),
        committed: size(rng),
        system_reserved: size(rng),
        in_flight: size(rng),
        available: size(rng),
        cpu_usage: rng.f64(),
        machines: rng.u32(..9),
        machines_of_pool: rng.u32(..9),
        storage_free: rng.u64(..),
    }
}

fn node(n: usize, rng: &mut Rng) -> RemovableNode {
    RemovableNode {
        name: format!("n{n}").as_str().into(),
        instance_type: "medium".into(),
        on: None,
        created: rng.i64(..),
        unneeded_seconds: rng.u64(..1000),
        allocatable: size(rng),
        requested: size(rng),
        movable_pods: rng.u32(..20),
        labels: [("rack".to_owned(), format!("r{}", rng.u8(..4)))].into(),
        attributes: attributes(rng),
    }
}

fn size(rng: &mut Rng) -> Size {
    Size {
        milli_cores: rng.u64(..64_000),
        memory_bytes: rng.u64(..1 << 40),
    }
}

fn attributes(rng: &mut Rng) -> Vec<Attribute> {
    let mut attribute = |n: usize| Attribute {
        key: format!("key{n}").as_str().into(),
        value: match n % 4 {
            0 => AttributeValue::Text("é\u{1f600}".into()),
            1 => AttributeValue::Integer(rng.i64(..)),
            2 => AttributeValue::Number(rng.f64()),
            _ => AttributeValue::Boolean(rng.bool()),
        },
    };
    (0..4).map(&mut attribute).collect()
}
