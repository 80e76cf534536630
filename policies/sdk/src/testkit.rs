//! For testing a policy natively: facts to start from, and the rules that kproxide holds an answer to.
//!
//! Facts are plain structs; a test changes what matters to it:
//!
//! ```
//! use kproxide_policy_sdk::{Candidate, testkit::candidate};
//!
//! let busy = Candidate { cpu_usage: 0.9, ..candidate("pve1") };
//! assert!(busy.is_eligible());
//! ```

use std::collections::BTreeMap;

use crate::{
    Candidate, Context, Hypervisor, HypervisorId, Machine, Node, Plan, PolicyError, Ranking,
    Request, Resources,
};

pub const GIB: u64 = 1 << 30;

/// Whole cores and GiB.
pub fn resources(cores: u64, memory_gib: u64) -> Resources {
    Resources {
        milli_cores: cores * 1000,
        memory_bytes: memory_gib * GIB,
    }
}

/// A hypervisor with 16 threads and 64 GiB in the Proxmox cluster `home`; its zone is its name.
pub fn hypervisor(name: &str) -> Hypervisor {
    Hypervisor {
        id: HypervisorId {
            cluster: "home".to_owned(),
            name: name.to_owned(),
        },
        zone: name.to_owned(),
        capacity: resources(16, 64),
        attributes: Vec::new(),
    }
}

/// That hypervisor with nothing on it and nothing to do.
pub fn candidate(name: &str) -> Candidate {
    candidate_with(name, 0)
}

/// That hypervisor with so much of its memory committed to running guests, at an overcommit of 4 for CPU and 1 for
/// memory, and nothing to do.
pub fn candidate_with(name: &str, committed_memory_gib: u64) -> Candidate {
    let hypervisor = hypervisor(name);
    let capacity = hypervisor.capacity;
    let committed = resources(0, committed_memory_gib);
    Candidate {
        hypervisor,
        ineligible: None,
        used: resources(0, 0),
        committed,
        system_reserved: resources(0, 0),
        in_flight: resources(0, 0),
        available: Resources {
            milli_cores: capacity.milli_cores * 4,
            memory_bytes: capacity.memory_bytes.saturating_sub(committed.memory_bytes),
        },
        cpu_usage: 0.0,
        machines: 0,
        machines_of_pool: 0,
        storage_free: 500 * GIB,
    }
}

/// A candidate that kproxide will not place anything on.
pub fn ineligible(name: &str, reason: &str) -> Candidate {
    Candidate {
        ineligible: Some(reason.to_owned()),
        ..candidate(name)
    }
}

/// A machine of the pool `default` with 4 cores and 8 GiB.
pub fn machine() -> Machine {
    Machine {
        pool: "default".to_owned(),
        instance_type: "medium".to_owned(),
        size: resources(4, 8),
        attributes: Vec::new(),
    }
}

/// The first machine of a pool, alone in its batch.
pub fn request() -> Request {
    Request {
        machine: machine(),
        batch_index: 0,
        batch_size: 1,
        sequence: 0,
        previous: None,
    }
}

/// A decision at a fixed time, with these settings and no state.
pub fn context(settings: &str) -> Context {
    Context {
        cluster: "test".to_owned(),
        now: 1_750_000_000,
        seed: 7,
        dry_run: false,
        state: Vec::new(),
        settings: settings.to_owned(),
    }
}

/// A node of 4 cores and 8 GiB, an hour old at the time of [`context`], with nothing on it.
pub fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        instance_type: "medium".to_owned(),
        on: None,
        created: 1_750_000_000 - 3600,
        unneeded_seconds: 600,
        allocatable: resources(4, 8),
        requested: resources(0, 0),
        movable_pods: 0,
        labels: Vec::new(),
        attributes: Vec::new(),
    }
}

/// The lines logged on this thread since the last call.
#[cfg(not(target_arch = "wasm32"))]
pub fn take_log() -> Vec<(crate::log::Level, String)> {
    crate::log::native::take()
}

/// The names of the ranked hypervisors as kproxide would try them: by score, then by cluster and name.
pub fn tried_in_order<'a>(ranking: &Ranking, candidates: &'a [Candidate]) -> Vec<&'a str> {
    let mut placements: Vec<_> = ranking
        .placements
        .iter()
        .map(|p| (p.score, &candidates[p.index as usize].hypervisor.id))
        .collect();
    placements.sort_by(|(a, x), (b, y)| {
        b.total_cmp(a)
            .then_with(|| (&x.cluster, &x.name).cmp(&(&y.cluster, &y.name)))
    });
    placements
        .into_iter()
        .map(|(_, id)| id.name.as_str())
        .collect()
}

/// The names of the nodes as kproxide would remove them: by score, then by name.
pub fn removed_in_order<'a>(plan: &Plan, nodes: &'a [Node]) -> Vec<&'a str> {
    let mut removals: Vec<_> = plan
        .removals
        .iter()
        .map(|r| (r.score, nodes[r.index as usize].name.as_str()))
        .collect();
    removals.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    removals.into_iter().map(|(_, name)| name).collect()
}

/// Panics unless the answer is one that kproxide accepts: known indices, none twice, none of an ineligible candidate
/// ranked, scores from 0 to 1, a reason for each.
#[track_caller]
pub fn assert_valid_ranking(ranking: &Ranking, candidates: &[Candidate]) {
    let mut seen = vec![false; candidates.len()];
    let mut see = |index: u32| {
        let seen = seen
            .get_mut(index as usize)
            .unwrap_or_else(|| panic!("no candidate has the index {index}"));
        assert!(
            !std::mem::replace(seen, true),
            "index {index} is answered twice"
        );
    };
    for placement in &ranking.placements {
        see(placement.index);
        assert_valid_score(placement.score);
        assert!(
            !placement.reason.is_empty(),
            "placement {} has no reason",
            placement.index
        );
        let candidate = &candidates[placement.index as usize];
        assert!(
            candidate.is_eligible(),
            "{} is ineligible and ranked",
            candidate.hypervisor.id.name
        );
    }
    for rejection in &ranking.rejected {
        see(rejection.index);
        assert!(
            !rejection.reason.is_empty(),
            "rejection {} has no reason",
            rejection.index
        );
    }
}

/// Panics unless the answer is one that kproxide accepts: known indices, none twice, scores from 0 to 1, a reason for
/// each.
#[track_caller]
pub fn assert_valid_plan(plan: &Plan, nodes: &[Node]) {
    let mut seen = vec![false; nodes.len()];
    for removal in &plan.removals {
        let seen = seen
            .get_mut(removal.index as usize)
            .unwrap_or_else(|| panic!("no node has the index {}", removal.index));
        assert!(
            !std::mem::replace(seen, true),
            "index {} is answered twice",
            removal.index
        );
        assert_valid_score(removal.score);
        assert!(
            !removal.reason.is_empty(),
            "removal {} has no reason",
            removal.index
        );
    }
}

#[track_caller]
fn assert_valid_score(score: f64) {
    assert!(
        (0.0..=1.0).contains(&score),
        "score {score} is outside 0 to 1"
    );
}

/// Panics unless every order of the same candidates gets the same answer: the order is no fact.
#[track_caller]
pub fn assert_ranking_ignores_order(
    candidates: &[Candidate],
    rank: impl Fn(&[Candidate]) -> Result<Ranking, PolicyError>,
) {
    assert_same_for_all_orders(candidates, |candidates| {
        rank(candidates).map(|ranking| {
            let id = |index: u32| {
                let id = &candidates[index as usize].hypervisor.id;
                (id.cluster.clone(), id.name.clone())
            };
            let placed = ranking
                .placements
                .iter()
                .map(|p| (id(p.index), format!("{} {}", p.score, p.reason)));
            let rejected = ranking
                .rejected
                .iter()
                .map(|r| (id(r.index), r.reason.clone()));
            (
                placed.collect::<BTreeMap<_, _>>(),
                rejected.collect::<BTreeMap<_, _>>(),
                ranking.state,
            )
        })
    });
}

/// Panics unless every order of the same nodes gets the same answer.
#[track_caller]
pub fn assert_plan_ignores_order(
    nodes: &[Node],
    order: impl Fn(&[Node]) -> Result<Plan, PolicyError>,
) {
    assert_same_for_all_orders(nodes, |nodes| {
        order(nodes).map(|plan| {
            let name = |index: u32| nodes[index as usize].name.clone();
            let removed = plan
                .removals
                .iter()
                .map(|r| (name(r.index), format!("{} {}", r.score, r.reason)));
            (removed.collect::<BTreeMap<_, _>>(), plan.state)
        })
    });
}

/// All orders of up to five items; of more, every rotation, forwards and backwards.
#[track_caller]
fn assert_same_for_all_orders<T: Clone, A: PartialEq + std::fmt::Debug>(
    items: &[T],
    answer: impl Fn(&[T]) -> A,
) {
    let expected = answer(items);
    let mut orders = Vec::new();
    if items.len() <= 5 {
        permutations(items, &mut Vec::new(), &mut orders);
    } else {
        for start in 0..items.len() {
            let mut order = items.to_vec();
            order.rotate_left(start);
            orders.push(order.clone());
            order.reverse();
            orders.push(order);
        }
    }
    for order in orders {
        assert_eq!(
            answer(&order),
            expected,
            "the answer depends on the order of the items"
        );
    }
}

fn permutations<T: Clone>(rest: &[T], taken: &mut Vec<T>, orders: &mut Vec<Vec<T>>) {
    if rest.is_empty() {
        orders.push(taken.clone());
    }
    for index in 0..rest.len() {
        let mut rest = rest.to_vec();
        taken.push(rest.remove(index));
        permutations(&rest, taken, orders);
        taken.pop();
    }
}

#[cfg(test)]
mod tests;
