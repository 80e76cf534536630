use kproxide_policy_sdk::testkit::{
    assert_plan_ignores_order, assert_valid_plan, node, removed_in_order, resources,
};

use super::*;

/// A node of 4 cores and 8 GiB with these requests.
fn requesting(name: &str, milli_cores: u64, memory_mib: u64) -> Node {
    Node {
        requested: Resources {
            milli_cores,
            memory_bytes: memory_mib << 20,
        },
        ..node(name)
    }
}

#[track_caller]
fn check(nodes: &[Node], expected: &[&str]) {
    let plan = order(nodes);
    assert_valid_plan(&plan, nodes);
    assert_eq!(removed_in_order(&plan, nodes), expected);
}

#[test]
fn the_larger_of_both_shares_is_the_load() {
    // CPU 75 %, memory 50 %, both 25 %.
    check(
        &[
            requesting("a", 3000, 0),
            requesting("b", 0, 4096),
            requesting("c", 1000, 2048),
        ],
        &["c", "b", "a"],
    );
}

#[test]
fn a_step_of_5_percent_ends_exactly_there() {
    // 599 of 4000 is in step 2, 600 is 15 % and in step 3; "a" would win by name.
    check(
        &[requesting("a", 600, 0), requesting("b", 599, 0)],
        &["b", "a"],
    );
    check(
        &[requesting("b", 600, 0), requesting("a", 799, 0)],
        &["a", "b"],
    );
}

#[test]
fn within_a_step_the_smaller_memory_goes_first_then_the_fewer_cores() {
    let sized = |name, cores, gib| Node {
        allocatable: resources(cores, gib),
        ..node(name)
    };
    check(
        &[sized("a", 2, 16), sized("b", 8, 8), sized("c", 4, 8)],
        &["c", "b", "a"],
    );
}

#[test]
fn then_the_older_goes_first_then_the_name_decides() {
    let created = |name, created| Node {
        created,
        ..node(name)
    };
    check(
        &[
            created("c", 20),
            created("b", 20),
            created("a", 30),
            created("d", 10),
        ],
        &["d", "b", "c", "a"],
    );
}

#[test]
fn nothing_allocatable_counts_as_full() {
    let unknown = Node {
        allocatable: resources(0, 0),
        ..node("a")
    };
    check(&[unknown, requesting("b", 3700, 0)], &["b", "a"]);
}

#[test]
fn more_requested_than_allocatable_comes_last() {
    let huge = Node {
        requested: Resources {
            milli_cores: u64::MAX,
            memory_bytes: u64::MAX,
        },
        ..node("a")
    };
    check(&[huge, requesting("b", 4000, 0)], &["b", "a"]);
}

#[test]
fn no_nodes_get_an_empty_plan() {
    check(&[], &[]);
}

#[test]
fn the_reason_shows_what_was_compared() {
    let busy = Node {
        movable_pods: 3,
        ..requesting("a", 1000, 4096)
    };
    assert_eq!(
        order(&[busy]).removals[0].reason,
        "25 % of its CPU and 50 % of its memory are requested, 3 pods would move"
    );
}

#[test]
fn the_order_given_does_not_matter() {
    let nodes = [
        requesting("a", 500, 0),
        requesting("b", 500, 0),
        requesting("c", 3000, 0),
        node("d"),
    ];
    assert_plan_ignores_order(&nodes, |nodes| Ok(order(nodes)));
}
