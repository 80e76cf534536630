//! A component answers as the same function does natively: nothing is lost or mistaken on the way in or out, and a policy that was tested natively is tested.

use std::sync::Arc;

use futures::FutureExt;
use kproxide_planner::facts::{Taint, TaintEffect};
use kproxide_planner::plan::question::{
    AnswerBody, Attribute, AttributeValue, Candidate, Context, DecorateQuestion, Decoration,
    HypervisorDescription, Machine, OrderQuestion, Question, RankQuestion, Ranking, Rejected,
    RemovableNode, Removals, Scored, Size,
};
use kproxide_policy_balanced::Balanced;
use kproxide_policy_go_template::GoTemplate;
use kproxide_policy_hostile::Hostile;
use kproxide_policy_hostile_labels::HostileLabels;
use kproxide_policy_hostile_scale_down::HostileScaleDown;
use kproxide_policy_least_loaded::LeastLoaded;
use kproxide_policy_max_cpu::MaxCpu;
use kproxide_policy_max_memory::MaxMemory;
use kproxide_policy_pack::Pack;
use kproxide_policy_round_robin::RoundRobin;
use kproxide_policy_sdk as sdk;
use kproxide_policy_sdk::{HostSelection, Labels, PolicyError, ScaleDown, call};
use kproxide_policy_spread::Spread;
use proptest::prelude::*;

use super::CallError;
use crate::fixtures::{ask, candidate, decorate, engine, module, node, order, question, rank};

type Answer = Result<AnswerBody, CallError>;

// === What the function says natively ===

fn native_rank<P: HostSelection>(question: &RankQuestion) -> Answer {
    let request = sdk::Request {
        machine: machine(&question.machine),
        batch_index: question.batch_index,
        batch_size: question.batch_size,
        sequence: question.sequence,
        previous: question.previous.as_ref().map(|id| sdk::HypervisorId {
            cluster: id.cluster.to_string(),
            name: id.name.to_string(),
        }),
    };
    let candidates: Vec<_> = question.candidates.iter().map(sdk_candidate).collect();
    let answer = call::rank::<P>(
        &context(&question.context, &question.policy.settings),
        &request,
        &candidates,
    );
    answered(answer, |ranking| {
        AnswerBody::Ranking(Ranking {
            placements: ranking
                .placements
                .into_iter()
                .map(|p| Scored {
                    index: p.index,
                    score: p.score,
                    reason: p.reason,
                })
                .collect(),
            rejected: ranking
                .rejected
                .into_iter()
                .map(|r| Rejected {
                    index: r.index,
                    reason: r.reason,
                })
                .collect(),
            state: ranking.state,
        })
    })
}

fn native_order<P: ScaleDown>(question: &OrderQuestion) -> Answer {
    let nodes: Vec<_> = question.nodes.iter().map(sdk_node).collect();
    let hypervisors: Vec<_> = question.hypervisors.iter().map(sdk_candidate).collect();
    let context = context(&question.context, &question.policy.settings);
    let answer = call::order::<P>(
        &context,
        question.pool.as_str(),
        &nodes,
        &hypervisors,
        question.max_removals,
    );
    answered(answer, |plan| {
        let removals = plan
            .removals
            .into_iter()
            .map(|r| Scored {
                index: r.index,
                score: r.score,
                reason: r.reason,
            })
            .collect();
        AnswerBody::Removals(Removals {
            removals,
            state: plan.state,
        })
    })
}

fn native_decorate<P: Labels>(question: &DecorateQuestion) -> Answer {
    let hypervisors: Vec<_> = question.hypervisors.iter().map(hypervisor).collect();
    let answer = call::decorate::<P>(
        &question.policy.settings,
        &machine(&question.machine),
        &hypervisors,
    );
    answered(answer, |decorations| {
        AnswerBody::Decorations(decorations.into_iter().map(decoration).collect())
    })
}

fn answered<T>(answer: Result<T, PolicyError>, body: impl FnOnce(T) -> AnswerBody) -> Answer {
    match answer {
        Ok(answer) => Ok(body(answer)),
        Err(PolicyError::NoCandidate(text)) => Ok(AnswerBody::NoCandidate(text)),
        Err(PolicyError::InvalidSettings(text)) => Err(CallError::InvalidSettings(text)),
        Err(PolicyError::Internal(text)) => Err(CallError::Internal(text)),
    }
}

fn context(context: &Context, settings: &str) -> sdk::Context {
    sdk::Context {
        cluster: context.cluster.to_string(),
        now: context.now.unsigned_abs(),
        seed: context.seed,
        dry_run: context.dry_run,
        state: context.state.clone(),
        settings: settings.to_owned(),
    }
}

fn machine(machine: &Machine) -> sdk::Machine {
    sdk::Machine {
        pool: machine.pool.to_string(),
        instance_type: machine.instance_type.to_string(),
        size: resources(machine.size),
        attributes: attributes(&machine.attributes),
    }
}

fn hypervisor(hypervisor: &HypervisorDescription) -> sdk::Hypervisor {
    sdk::Hypervisor {
        id: sdk::HypervisorId {
            cluster: hypervisor.id.cluster.to_string(),
            name: hypervisor.id.name.to_string(),
        },
        zone: hypervisor.zone.to_string(),
        capacity: resources(hypervisor.capacity),
        attributes: attributes(&hypervisor.attributes),
    }
}

fn sdk_candidate(candidate: &Candidate) -> sdk::Candidate {
    sdk::Candidate {
        hypervisor: hypervisor(&candidate.hypervisor),
        ineligible: candidate.ineligible.clone(),
        used: resources(candidate.used),
        committed: resources(candidate.committed),
        system_reserved: resources(candidate.system_reserved),
        in_flight: resources(candidate.in_flight),
        available: resources(candidate.available),
        cpu_usage: candidate.cpu_usage,
        machines: candidate.machines,
        machines_of_pool: candidate.machines_of_pool,
        storage_free: candidate.storage_free,
    }
}

fn sdk_node(node: &RemovableNode) -> sdk::Node {
    sdk::Node {
        name: node.name.to_string(),
        instance_type: node.instance_type.to_string(),
        on: node.on,
        created: node.created.unsigned_abs(),
        unneeded_seconds: node.unneeded_seconds,
        allocatable: resources(node.allocatable),
        requested: resources(node.requested),
        movable_pods: node.movable_pods,
        labels: node.labels.clone().into_iter().collect(),
        attributes: attributes(&node.attributes),
    }
}

fn resources(size: Size) -> sdk::Resources {
    sdk::Resources {
        milli_cores: size.milli_cores,
        memory_bytes: size.memory_bytes,
    }
}

fn attributes(attributes: &[Attribute]) -> Vec<sdk::Attribute> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => sdk::Value::Text(text.to_string()),
        AttributeValue::Integer(integer) => sdk::Value::Integer(*integer),
        AttributeValue::Number(number) => sdk::Value::Number(*number),
        AttributeValue::Boolean(boolean) => sdk::Value::Boolean(*boolean),
    };
    attributes
        .iter()
        .map(|attribute| sdk::Attribute {
            key: attribute.key.to_string(),
            value: value(&attribute.value),
        })
        .collect()
}

fn decoration(decoration: sdk::Decoration) -> Decoration {
    let taint = |taint: sdk::Taint| Taint {
        key: taint.key.into(),
        value: taint.value.into(),
        effect: match taint.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            other => panic!("{other}"),
        },
    };
    Decoration {
        labels: decoration.labels.into_iter().collect(),
        annotations: decoration.annotations.into_iter().collect(),
        taints: decoration.taints.into_iter().map(taint).collect(),
    }
}

// === That the component says the same ===

fn check_rank<P: HostSelection>(question: RankQuestion) {
    let native = native_rank::<P>(&question);
    assert_eq!(ask(&Question::Rank(question)).result, native);
}

fn check_order<P: ScaleDown>(question: OrderQuestion) {
    let native = native_order::<P>(&question);
    assert_eq!(ask(&Question::Order(question)).result, native);
}

fn check_decorate<P: Labels>(question: DecorateQuestion) {
    let native = native_decorate::<P>(&question);
    assert_eq!(ask(&Question::Decorate(question)).result, native);
}

/// Every fact of the interface, by a policy that gives them all back.
#[test]
fn every_fact_arrives() {
    let echo = r#"{"do": "echo"}"#;
    check_rank::<Hostile>(rank("hostile", echo));
    check_order::<HostileScaleDown>(order("hostile-scale-down", echo));
    check_decorate::<HostileLabels>(decorate("hostile-labels", echo));

    // Nothing was cut off: the last fact is there.
    let last = |bytes: Option<Vec<u8>>, fact: &str| {
        assert!(String::from_utf8(bytes.unwrap()).unwrap().ends_with(fact))
    };
    match ask(&question("hostile", echo)).result.unwrap() {
        AnswerBody::Ranking(ranking) => last(ranking.state, "storage-free: 536870912000 }]"),
        other => panic!("{other:?}"),
    }
    match ask(&question("hostile-scale-down", echo)).result.unwrap() {
        AnswerBody::Removals(removals) => last(removals.state, "storage-free: 536870912000 }] 2"),
        other => panic!("{other:?}"),
    }
}

/// Loading refuses any import but the types and the log.
#[test]
fn every_built_in_loads_and_says_its_name() {
    for builtin in kproxide_builtins::BUILTINS {
        let info = module(builtin.name).info().clone();
        assert_eq!(
            (info.name.as_str(), info.version.as_str()),
            (builtin.name, env!("CARGO_PKG_VERSION"))
        );
        assert!(
            !info.description.is_empty() && info.settings_schema.contains("additionalProperties"),
            "{info:?}"
        );
    }
}

#[test]
fn settings_are_judged_the_same() {
    fn check<P: sdk::Policy>(name: &str, settings: &str) {
        let native = answered(call::check_settings::<P>(settings), |()| {
            AnswerBody::Deferred
        })
        .map(|_| ());
        let checked = engine()
            .check_settings(&module(name), name, settings.into())
            .now_or_never()
            .unwrap();
        assert_eq!(checked, native, "{name} {settings}");
    }
    for settings in [
        "",
        "null",
        "{}",
        r#"{"a": 1}"#,
        "[",
        r#"{"measure": "cores"}"#,
        r#"{"measure": "watts"}"#,
        "7",
    ] {
        check::<Spread>("spread", settings);
        check::<MaxMemory>("max-memory", settings);
        check::<MaxCpu>("max-cpu", settings);
        check::<Balanced>("balanced", settings);
        check::<RoundRobin>("round-robin", settings);
        check::<Pack>("pack", settings);
        check::<LeastLoaded>("least-loaded", settings);
        check::<GoTemplate>("go-template", settings);
    }
    for template in TEMPLATES {
        check::<GoTemplate>("go-template", &labels_of(template));
    }
}

/// Good ones, and some that fail when they run or do not parse.
const TEMPLATES: [&str; 10] = [
    "{{ .TargetHost }}",
    "{{ targetHost }}",
    "{{ .Pool }}-{{ .InstanceType }}.{{ .Cores }}_{{ .MemoryMiB }}",
    r#"{{ if eq .Zone "z1" }}first{{ else }}{{ printf "%s-%d" .Cluster .Cores }}{{ end }}"#,
    "{{ .Attributes.rack }}-{{ .Attributes.age }}-{{ .Attributes.load }}",
    r#"{{ with index .Attributes "pve.kernel" }}{{ . }}{{ else }}none{{ end }}"#,
    "{{ .Attributes.missing }}",
    "{{ index .TargetHost 99 }}",
    "{{ .TargetHost",
    "{{ .NoSuchFact }}",
];

fn labels_of(template: &str) -> String {
    serde_json::json!({"labels": {"rack": template}}).to_string()
}

proptest! {
    // Of 256 cases each: 2,304 questions. For more set PROPTEST_CASES.

    #[test]
    fn host_selection(candidates in prop::collection::vec(any_candidate(), 0..5), previous in prop::option::of(0..5_usize)) {
        let previous = previous.and_then(|index| candidates.get(index)).map(|candidate| candidate.hypervisor.id.clone());
        let question = |name: &str, settings: &str| RankQuestion { previous: previous.clone(), candidates: candidates.as_slice().into(), ..rank(name, settings) };
        check_rank::<Spread>(question("spread", ""));
        check_rank::<MaxMemory>(question("max-memory", ""));
        check_rank::<MaxCpu>(question("max-cpu", ""));
        check_rank::<MaxCpu>(question("max-cpu", r#"{"measure": "cores"}"#));
        check_rank::<Balanced>(question("balanced", ""));
        check_rank::<RoundRobin>(question("round-robin", ""));
        check_rank::<Pack>(question("pack", ""));
    }

    #[test]
    fn scale_down(nodes in prop::collection::vec(any_node(), 0..5)) {
        check_order::<LeastLoaded>(OrderQuestion { nodes, ..order("least-loaded", "") });
    }

    #[test]
    fn labels(names in prop::collection::vec("[a-z]{1,8}", 0..4), template in prop::sample::select(&TEMPLATES[..])) {
        let hypervisors: Vec<HypervisorDescription> = names
            .iter()
            .map(|name| HypervisorDescription { zone: Arc::from("z1"), ..candidate(name, 0).hypervisor })
            .collect();
        check_decorate::<GoTemplate>(DecorateQuestion { hypervisors, ..decorate("go-template", &labels_of(template)) });
    }
}

/// Mostly sensible, with the odd values that a broken or dead hypervisor can report.
fn any_candidate() -> impl Strategy<Value = Candidate> {
    let cpu_usage = prop_oneof![4 => 0.0..=1.0, 1 => any::<f64>()];
    let ineligible = prop_oneof![3 => Just(None), 1 => Just(Some("offline".to_owned()))];
    let sizes = (any_size(), any_size(), any_size(), any_size());
    ("h[0-9]", ineligible, sizes, cpu_usage, 0..3_u32).prop_map(
        |(name, ineligible, sizes, cpu_usage, machines)| {
            let (used, committed, in_flight, available) = sizes;
            Candidate {
                ineligible,
                used,
                committed,
                in_flight,
                available,
                cpu_usage,
                machines,
                ..candidate(&name, 0)
            }
        },
    )
}

fn any_node() -> impl Strategy<Value = RemovableNode> {
    ("n[0-9]", any_size(), any_size(), 0..3_i64).prop_map(
        |(name, allocatable, requested, created)| RemovableNode {
            allocatable,
            requested,
            created,
            ..node(&name, None)
        },
    )
}

fn any_size() -> impl Strategy<Value = Size> {
    let amount = || prop_oneof![1 => Just(0), 4 => 0..1_u64 << 40, 1 => any::<u64>()];
    (amount(), amount()).prop_map(|(milli_cores, memory_bytes)| Size {
        milli_cores,
        memory_bytes,
    })
}
