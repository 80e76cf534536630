//! What holds for every built-in policy on any facts, run natively.

use kproxide_policy_balanced::Balanced;
use kproxide_policy_least_loaded::LeastLoaded;
use kproxide_policy_max_cpu::MaxCpu;
use kproxide_policy_max_memory::MaxMemory;
use kproxide_policy_pack::Pack;
use kproxide_policy_round_robin::RoundRobin;
use kproxide_policy_sdk::testkit::{
    assert_plan_ignores_order, assert_ranking_ignores_order, assert_valid_plan,
    assert_valid_ranking, candidate, context, node, request,
};
use kproxide_policy_sdk::{Candidate, HostSelection, Node, Request, Resources, call};
use kproxide_policy_spread::Spread;
use proptest::prelude::*;

fn check_host_selection<P: HostSelection>(
    settings: &str,
    request: &Request,
    candidates: &[Candidate],
) {
    let rank = |candidates: &[Candidate]| call::rank::<P>(&context(settings), request, candidates);
    let ranking = rank(candidates).expect("a built-in always has an answer");
    assert_valid_ranking(&ranking, candidates);
    assert_eq!(
        ranking.placements.len() + ranking.rejected.len(),
        candidates.len(),
        "each is placed or rejected"
    );
    assert_eq!(ranking.state, None);
    assert_ranking_ignores_order(candidates, rank);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn host_selection(
        candidates in prop::collection::vec(any_candidate(), 0..5).prop_map(with_names),
        previous in prop::option::of("h[0-9]"),
    ) {
        let previous = previous.map(|name| candidate(&name).hypervisor.id);
        let request = Request { previous, ..request() };
        check_host_selection::<Spread>("", &request, &candidates);
        check_host_selection::<MaxMemory>("", &request, &candidates);
        check_host_selection::<MaxCpu>("", &request, &candidates);
        check_host_selection::<MaxCpu>(r#"{"measure": "cores"}"#, &request, &candidates);
        check_host_selection::<Balanced>("", &request, &candidates);
        check_host_selection::<Pack>("", &request, &candidates);
        check_host_selection::<RoundRobin>("", &request, &candidates);
    }

    #[test]
    fn scale_down(nodes in prop::collection::vec(any_node(), 0..5).prop_map(with_node_names)) {
        let order = |nodes: &[Node]| call::order::<LeastLoaded>(&context(""), "default", nodes, &[], 1);
        let plan = order(&nodes).expect("a built-in always has an answer");
        assert_valid_plan(&plan, &nodes);
        prop_assert_eq!(plan.removals.len(), nodes.len());
        assert_plan_ignores_order(&nodes, order);
    }
}

/// Mostly sensible, with the odd values that a broken or dead hypervisor can report.
fn any_candidate() -> impl Strategy<Value = Candidate> {
    let cpu_usage = prop_oneof![4 => 0.0..=1.0, 1 => any::<f64>()];
    let ineligible = prop_oneof![3 => Just(None), 1 => Just(Some("offline".to_owned()))];
    (
        ineligible,
        any_resources(),
        any_resources(),
        any_resources(),
        any_resources(),
        cpu_usage,
        0..3_u32,
    )
        .prop_map(
            |(ineligible, used, committed, in_flight, available, cpu_usage, machines)| Candidate {
                ineligible,
                used,
                committed,
                in_flight,
                available,
                cpu_usage,
                machines,
                ..candidate("")
            },
        )
}

fn any_node() -> impl Strategy<Value = Node> {
    (any_resources(), any_resources(), 0..3_u64).prop_map(|(allocatable, requested, created)| {
        Node {
            allocatable,
            requested,
            created,
            ..node("")
        }
    })
}

fn any_resources() -> impl Strategy<Value = Resources> {
    let amount = || prop_oneof![1 => Just(0), 4 => 0..1_u64 << 40, 1 => any::<u64>()];
    (amount(), amount()).prop_map(|(milli_cores, memory_bytes)| Resources {
        milli_cores,
        memory_bytes,
    })
}

/// Names are unique within a cluster.
fn with_names(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    for (index, candidate) in candidates.iter_mut().enumerate() {
        candidate.hypervisor.id.name = format!("h{}", index * 2);
    }
    candidates
}

fn with_node_names(mut nodes: Vec<Node>) -> Vec<Node> {
    for (index, node) in nodes.iter_mut().enumerate() {
        node.name = format!("n{index}");
    }
    nodes
}
