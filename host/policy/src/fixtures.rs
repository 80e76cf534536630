//! What the tests of this folder start from: questions, the policies that misbehave, and components made by hand.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use futures::FutureExt;
use kproxide_builtins::{BUILTINS, Builtin, HOSTILE};
use kproxide_planner::facts::{PolicyKind, PolicyRef, PolicyUse};
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::plan::question::{
    Attribute, AttributeValue, Candidate, Context, DecorateQuestion, HypervisorDescription,
    Machine, OrderQuestion, Question, RankQuestion, RemovableNode, Size,
};

use super::engine::{Called, Engine, Execution, Module};

const GIB: u64 = 1 << 30;

/// One for all tests: what is compiled on it stays compiled.
pub(super) fn engine() -> &'static Engine {
    static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(Execution::Inline).unwrap());
    &ENGINE
}

pub(super) fn embedded(name: &str) -> &'static Builtin {
    BUILTINS
        .iter()
        .chain(HOSTILE)
        .find(|policy| policy.name == name)
        .unwrap_or_else(|| panic!("{name} is not embedded"))
}

pub(super) fn wasm(name: &str) -> Arc<[u8]> {
    embedded(name).wasm.into()
}

/// Compiled once for all tests.
pub(super) fn module(name: &str) -> Module {
    static MODULES: Mutex<BTreeMap<String, Module>> = Mutex::new(BTreeMap::new());
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    modules
        .entry(name.to_owned())
        .or_insert_with(|| engine().load(wasm(name)).now_or_never().unwrap().unwrap())
        .clone()
}

/// What an embedded policy answers, on the engine of all tests.
pub(super) fn ask(question: &Question) -> Called {
    engine()
        .ask(&module(&question.policy().policy.name), question)
        .now_or_never()
        .unwrap()
}

/// A question of the policy's own kind about three hypervisors, of which the last is offline, and two nodes.
pub(crate) fn question(name: &str, settings: &str) -> Question {
    use kproxide_builtins::Kind;
    match embedded(name).kind {
        Kind::HostSelection => Question::Rank(rank(name, settings)),
        Kind::ScaleDown => Question::Order(order(name, settings)),
        Kind::Labels => Question::Decorate(decorate(name, settings)),
    }
}

pub(super) fn rank(name: &str, settings: &str) -> RankQuestion {
    RankQuestion {
        policy: policy(PolicyKind::HostSelection, name, settings),
        context: context(),
        machine: machine(),
        batch_index: 3,
        batch_size: 7,
        sequence: 41,
        previous: Some(HypervisorId::new("home", "pve2")),
        candidates: candidates().into(),
    }
}

pub(super) fn order(name: &str, settings: &str) -> OrderQuestion {
    OrderQuestion {
        policy: policy(PolicyKind::ScaleDown, name, settings),
        context: context(),
        pool: "blue".into(),
        nodes: vec![node("n1", Some(0)), node("n2", None)],
        hypervisors: candidates(),
        max_removals: 2,
    }
}

pub(super) fn decorate(name: &str, settings: &str) -> DecorateQuestion {
    DecorateQuestion {
        policy: policy(PolicyKind::Labels, name, settings),
        machine: machine(),
        hypervisors: candidates()
            .into_iter()
            .map(|candidate| candidate.hypervisor)
            .collect(),
    }
}

pub(super) fn policy(kind: PolicyKind, name: &str, settings: &str) -> PolicyUse {
    let name = name.into();
    PolicyUse::alone(PolicyRef { kind, name }, settings.into())
}

fn context() -> Context {
    Context {
        cluster: "c1".into(),
        now: 1_767_225_600,
        seed: 11,
        dry_run: true,
        state: vec![1, 2, 3],
    }
}

fn machine() -> Machine {
    Machine {
        pool: "blue".into(),
        instance_type: "medium".into(),
        size: Size {
            milli_cores: 4000,
            memory_bytes: 8 * GIB,
        },
        attributes: vec![attribute("gpu", AttributeValue::Boolean(true))],
    }
}

fn attribute(key: &str, value: AttributeValue) -> Attribute {
    Attribute {
        key: key.into(),
        value,
    }
}

fn candidates() -> Vec<Candidate> {
    let offline = Candidate {
        ineligible: Some("offline".to_owned()),
        ..candidate("pve3", 0)
    };
    vec![candidate("pve1", 16), candidate("pve2", 8), offline]
}

/// Every fact has a value of its own, so that one in the place of another would show.
pub(super) fn candidate(name: &str, committed_gib: u64) -> Candidate {
    Candidate {
        hypervisor: HypervisorDescription {
            id: HypervisorId::new("home", name),
            zone: format!("zone-of-{name}").as_str().into(),
            capacity: Size {
                milli_cores: 16_000,
                memory_bytes: 64 * GIB,
            },
            attributes: [
                attribute("rack", AttributeValue::Text("r7".into())),
                attribute("age", AttributeValue::Integer(-3)),
                attribute("load", AttributeValue::Number(0.25)),
            ]
            .into(),
        },
        ineligible: None,
        used: Size {
            milli_cores: 1600,
            memory_bytes: 2 * GIB,
        },
        committed: Size {
            milli_cores: 8000,
            memory_bytes: committed_gib * GIB,
        },
        system_reserved: Size {
            milli_cores: 500,
            memory_bytes: GIB,
        },
        in_flight: Size {
            milli_cores: 2000,
            memory_bytes: 4 * GIB,
        },
        available: Size {
            milli_cores: 53_500,
            memory_bytes: (59 - committed_gib) * GIB,
        },
        cpu_usage: 0.1,
        machines: 5,
        machines_of_pool: 6,
        storage_free: 500 * GIB,
    }
}

pub(super) fn node(name: &str, on: Option<u32>) -> RemovableNode {
    RemovableNode {
        name: name.into(),
        instance_type: "medium".into(),
        on,
        created: 1_767_000_000,
        unneeded_seconds: 600,
        allocatable: Size {
            milli_cores: 3900,
            memory_bytes: 7 * GIB,
        },
        requested: Size {
            milli_cores: 100,
            memory_bytes: GIB,
        },
        movable_pods: 9,
        labels: BTreeMap::from([("rack".to_owned(), "r7".to_owned())]),
        attributes: vec![attribute("spot", AttributeValue::Boolean(false))],
    }
}

/// A component that imports an interface without any functions, and does nothing with it.
pub(super) fn component_importing(interface: &str) -> Arc<[u8]> {
    // Type section: one instance type, empty. Import section: one name, an instance of type 0.
    let import = [&[1, 0x00], &*name(interface), &[0x05, 0]].concat();
    component(&[(7, &[1, 0x42, 0]), (10, &import)])
}

/// A component that exports an interface without any functions.
pub(super) fn component_exporting(interface: &str) -> Arc<[u8]> {
    // Instance section: one instance made of no exports. Export section: one name, instance 0, no type given.
    let export = [&[1, 0x00], &*name(interface), &[0x05, 0, 0]].concat();
    component(&[(5, &[1, 0x01, 0]), (11, &export)])
}

fn component(sections: &[(u8, &[u8])]) -> Arc<[u8]> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    for (id, content) in sections {
        bytes.extend([*id, u8::try_from(content.len()).unwrap()]);
        bytes.extend(*content);
    }
    bytes.into()
}

fn name(text: &str) -> Vec<u8> {
    // Lengths below 128 are one byte.
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}
