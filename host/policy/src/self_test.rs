//! A new module answers a small question before it answers real ones: it must not crash, must answer in the right form, and must say the same twice.

use std::sync::Arc;

use kproxide_planner::facts::{PolicyKind, PolicyRef, PolicyUse};
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::plan::question::{
    Candidate, Context, DecorateQuestion, HypervisorDescription, Machine, OrderQuestion, Question,
    RankQuestion, RemovableNode, Size,
};

use super::engine::{Engine, Module, tested};

const GIB: u64 = 1 << 30;

/// Asks the module one small question of this kind, twice. `name`: the file's, whatever the policy calls itself.
///
/// # Errors
/// Says what is wrong with its answer.
pub async fn run(
    engine: &Engine,
    module: &Module,
    name: &str,
    kind: PolicyKind,
    settings: &Arc<str>,
) -> Result<(), String> {
    let question = question(kind, tested(name), settings.clone());
    let first = engine.ask(module, &question).await;
    if let Err(error) = &first.result {
        return Err(format!("it fails its self-test: {error}"));
    }
    if engine.ask(module, &question).await != first {
        return Err(
            "it gives two answers to one question: a policy must depend on its arguments alone"
                .to_owned(),
        );
    }
    Ok(())
}

/// The small question: three hypervisors, of which one is offline, and two Nodes.
pub fn question(kind: PolicyKind, name: Arc<str>, settings: Arc<str>) -> Question {
    let policy = PolicyUse::alone(PolicyRef { kind, name }, settings);
    let context = Context {
        cluster: "self-test".into(),
        now: 1_767_225_600,
        seed: 1,
        dry_run: true,
        state: Vec::new(),
    };
    let machine = Machine {
        pool: "self-test".into(),
        instance_type: "small".into(),
        size: Size {
            milli_cores: 2000,
            memory_bytes: 2 * GIB,
        },
        attributes: Vec::new(),
    };
    let candidates = candidates();
    match kind {
        PolicyKind::HostSelection => Question::Rank(RankQuestion {
            policy,
            context,
            machine,
            batch_index: 0,
            batch_size: 1,
            sequence: 0,
            previous: None,
            candidates: candidates.into(),
        }),
        PolicyKind::ScaleDown => Question::Order(OrderQuestion {
            policy,
            context,
            pool: "self-test".into(),
            nodes: ["a", "b"].map(|name| node(name, &machine)).into(),
            hypervisors: candidates,
            max_removals: 1,
        }),
        PolicyKind::Labels => Question::Decorate(DecorateQuestion {
            policy,
            machine,
            hypervisors: candidates
                .into_iter()
                .map(|candidate| candidate.hypervisor)
                .collect(),
        }),
    }
}

fn candidates() -> Vec<Candidate> {
    let candidate = |name: &str, used: u64, ineligible: Option<&str>| Candidate {
        hypervisor: HypervisorDescription {
            id: HypervisorId::new("self-test", name),
            zone: name.into(),
            capacity: Size {
                milli_cores: 16_000,
                memory_bytes: 64 * GIB,
            },
            attributes: Arc::default(),
        },
        ineligible: ineligible.map(str::to_owned),
        used: Size {
            milli_cores: used * 200,
            memory_bytes: used * GIB,
        },
        committed: Size {
            milli_cores: 4000,
            memory_bytes: 8 * GIB,
        },
        system_reserved: Size::default(),
        in_flight: Size::default(),
        available: Size {
            milli_cores: 60_000,
            memory_bytes: (64 - used) * GIB,
        },
        cpu_usage: 0.1,
        machines: 0,
        machines_of_pool: 0,
        storage_free: 100 * GIB,
    };
    vec![
        candidate("pve1", 8, None),
        candidate("pve2", 16, None),
        candidate("pve3", 0, Some("offline")),
    ]
}

fn node(name: &str, machine: &Machine) -> RemovableNode {
    RemovableNode {
        name: name.into(),
        instance_type: machine.instance_type.clone(),
        on: Some(0),
        created: 1_767_000_000,
        unneeded_seconds: 600,
        allocatable: machine.size,
        requested: Size {
            milli_cores: 100,
            memory_bytes: GIB / 8,
        },
        movable_pods: 1,
        labels: std::collections::BTreeMap::new(),
        attributes: Vec::new(),
    }
}
