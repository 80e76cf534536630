//! What a decision of a policy costs: one call of `spread` with 10, 100 and 1000 hypervisors, in this process and in a child, beside the same function
//! called natively; and compiling a component. The answers are checked before anything is measured.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use kproxide_planner::facts::{PolicyKind, PolicyRef, PolicyUse};
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::plan::question::{
    AnswerBody, Attribute, AttributeValue, Candidate, Context, HypervisorDescription, Machine,
    Question, RankQuestion, Size,
};
use kproxide_policy::{CallError, Engine, Execution, Module, Workers};
use kproxide_policy_sdk::{self as sdk, call, testkit};
use kproxide_policy_spread::Spread;

const GIB: u64 = 1 << 30;

criterion_group!(benches, calls, loads);
criterion_main!(benches);

/// What the children of all files may take.
const CHILDREN_BYTES: u64 = 512 << 20;

fn calls(criterion: &mut Criterion) {
    let engine = Engine::new(Execution::Inline).expect("this platform is supported");
    let module = load(&engine, "spread");
    let runtime = tokio::runtime::Runtime::new().expect("threads can be had");
    let workers = Workers::new(env!("CARGO_BIN_EXE_kproxide").into(), CHILDREN_BYTES);
    let caging = engine.clone().caging(workers);
    let spread: Arc<[u8]> = bytes("spread").into();
    let caged = runtime.block_on(caging.load_file(spread));
    let caged = caged.expect("a child loads a built-in");
    let mut group = criterion.benchmark_group("policy call");
    for count in [10, 100, 1000] {
        let question = question(count);
        let candidates: Vec<sdk::Candidate> = (0..count).map(native_candidate).collect();
        let (context, request) = (testkit::context(""), testkit::request());
        assert_eq!(
            ranked(&engine, &module, &question),
            natively_ranked(&context, &request, &candidates)
        );

        group.bench_with_input(
            BenchmarkId::new("wasm", count),
            &question,
            |bencher, question| {
                bencher.iter(|| engine.ask(&module, black_box(question)).now_or_never());
            },
        );
        let asked = runtime.block_on(caging.ask(&caged, &question));
        assert_eq!(
            placements(asked.result),
            ranked(&engine, &module, &question)
        );
        group.bench_with_input(
            BenchmarkId::new("in a child", count),
            &question,
            |bencher, question| {
                bencher.iter(|| runtime.block_on(caging.ask(&caged, black_box(question))));
            },
        );
        let described = with_attributes(question);
        group.bench_with_input(
            BenchmarkId::new("in a child with attributes", count),
            &described,
            |bencher, question| {
                bencher.iter(|| runtime.block_on(caging.ask(&caged, black_box(question))));
            },
        );
        assert_eq!(
            ranked(&engine, &module, &described),
            natively_ranked(&context, &request, &candidates)
        );
        group.bench_with_input(
            BenchmarkId::new("wasm with attributes", count),
            &described,
            |bencher, question| {
                bencher.iter(|| engine.ask(&module, black_box(question)).now_or_never());
            },
        );
        group.bench_with_input(
            BenchmarkId::new("native", count),
            &candidates,
            |bencher, candidates| {
                bencher.iter(|| {
                    call::rank::<Spread>(black_box(&context), &request, black_box(candidates))
                });
            },
        );
    }
    group.finish();
}

fn loads(criterion: &mut Criterion) {
    let engine = Engine::new(Execution::Inline).expect("this platform is supported");
    let mut group = criterion.benchmark_group("component load");
    group.sample_size(10);
    for name in ["spread", "go-template"] {
        assert_eq!(load(&engine, name).info().name, name);
        group.bench_function(name, |bencher| bencher.iter(|| load(&engine, name)));
    }
    group.finish();
}

fn load(engine: &Engine, name: &str) -> Module {
    engine
        .load(bytes(name).into())
        .now_or_never()
        .expect("inline calls do not wait")
        .expect("a built-in loads")
}

fn bytes(name: &str) -> &'static [u8] {
    let builtin = kproxide_builtins::builtin(name);
    builtin.expect("it is a built-in").wasm
}

/// Index, score and reason of each placement.
fn ranked(engine: &Engine, module: &Module, question: &Question) -> Vec<(u32, f64, String)> {
    let called = engine
        .ask(module, question)
        .now_or_never()
        .expect("inline calls do not wait");
    placements(called.result)
}

fn placements(answer: Result<AnswerBody, CallError>) -> Vec<(u32, f64, String)> {
    let AnswerBody::Ranking(ranking) = answer.expect("spread always answers") else {
        panic!("a rank question is answered by a ranking");
    };
    ranking
        .placements
        .into_iter()
        .map(|placement| (placement.index, placement.score, placement.reason))
        .collect()
}

fn natively_ranked(
    context: &sdk::Context,
    request: &sdk::Request,
    candidates: &[sdk::Candidate],
) -> Vec<(u32, f64, String)> {
    let ranking =
        call::rank::<Spread>(context, request, candidates).expect("spread always answers");
    ranking
        .placements
        .into_iter()
        .map(|placement| (placement.index, placement.score, placement.reason))
        .collect()
}

fn committed_gib(n: u32) -> u64 {
    u64::from(n % 60)
}

fn native_candidate(n: u32) -> sdk::Candidate {
    sdk::Candidate {
        machines: n % 4,
        ..testkit::candidate_with(&format!("pve{n}"), committed_gib(n))
    }
}

/// As many as a server has of which Proxmox tells everything, with 2 storages, a rack and its power.
fn with_attributes(mut question: Question) -> Question {
    let text = |key: &str, text: &str| (key.into(), AttributeValue::Text(text.into()));
    let integer = |key: &str, integer| (key.into(), AttributeValue::Integer(integer));
    let number = |key: &str, number| (key.into(), AttributeValue::Number(number));
    let all: [(Arc<str>, AttributeValue); 19] = [
        integer("power", 300),
        number("pve.committed-cores-per-thread", 0.5),
        text("pve.cpu-model", "AMD EPYC 7313P 16-Core Processor"),
        integer("pve.guests", 12),
        text("pve.ha-state", "online"),
        text("pve.kernel", "6.14.8-2-pve"),
        number("pve.load-15m", 1.25),
        number("pve.load-1m", 0.75),
        number("pve.load-5m", 1.0),
        integer("pve.sockets", 1),
        integer("pve.storage.local.free-bytes", 80 << 30),
        text("pve.storage.local.type", "lvmthin"),
        integer("pve.storage.shared.free-bytes", 800 << 30),
        text("pve.storage.shared.type", "rbd"),
        text("pve.tags", "gpu;ssd"),
        integer("pve.threads", 16),
        integer("pve.uptime-seconds", 86_400),
        text("pve.version", "9.2.11"),
        text("rack", "a"),
    ];
    let all = all.map(|(key, value)| Attribute { key, value });
    if let Question::Rank(rank) = &mut question {
        for candidate in Arc::make_mut(&mut rank.candidates) {
            candidate.hypervisor.attributes = all.clone().into();
        }
    }
    question
}

fn question(count: u32) -> Question {
    let capacity = Size {
        milli_cores: 16_000,
        memory_bytes: 64 * GIB,
    };
    let candidate = |n: u32| Candidate {
        hypervisor: HypervisorDescription {
            id: HypervisorId::new("home", &format!("pve{n}")),
            zone: format!("pve{n}").into(),
            capacity,
            attributes: Arc::default(),
        },
        ineligible: None,
        used: Size::default(),
        committed: Size {
            milli_cores: 0,
            memory_bytes: committed_gib(n) * GIB,
        },
        system_reserved: Size::default(),
        in_flight: Size::default(),
        available: Size {
            milli_cores: 64_000,
            memory_bytes: (64 - committed_gib(n)) * GIB,
        },
        cpu_usage: 0.0,
        machines: n % 4,
        machines_of_pool: 0,
        storage_free: 500 * GIB,
    };
    Question::Rank(RankQuestion {
        policy: PolicyUse::alone(
            PolicyRef {
                kind: PolicyKind::HostSelection,
                name: "spread".into(),
            },
            "".into(),
        ),
        context: Context {
            cluster: "bench".into(),
            now: 1_750_000_000,
            seed: 7,
            dry_run: false,
            state: Vec::new(),
        },
        machine: Machine {
            pool: "default".into(),
            instance_type: "medium".into(),
            size: Size {
                milli_cores: 4000,
                memory_bytes: 8 * GIB,
            },
            attributes: Vec::new(),
        },
        batch_index: 0,
        batch_size: 1,
        sequence: 0,
        previous: None,
        candidates: (0..count).map(candidate).collect(),
    })
}
