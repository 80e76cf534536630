//! What holds of every plan, over random worlds and random answers.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::drawn::{any_answers, any_scene, hostile, racks};
use super::*;
use crate::check;
use crate::claim::Phase;
use crate::facts::*;
use crate::ids::*;
use crate::kubernetes::resources::Resources;
use crate::kubernetes::selector::node_matches;
use crate::kubernetes::taints::untolerated;
use crate::plan::RemovalReason;
use crate::plan::report::Remark;
use crate::planning::{Limits, Planning};
use crate::reasons::kept::Kept;
use crate::world::World;

fn pending_pods(scene: &Scene) -> usize {
    scene.pods.values().filter(|pod| pod.node.is_none()).count()
}

/// An order was left without a place, for want of room that the tick's other placements took: another arrangement may have it.
fn leaves_open(plan: &Plan) -> bool {
    let is_open = |why: &Why| matches!(why, Why::NextTick | Why::NoHypervisor(_));
    let is_put_off = |outcome: &PendingOutcome| matches!(outcome, PendingOutcome::Unhelped(whys) if whys.iter().any(|(_, why)| is_open(why)));
    let is_unmade = |finding: &Remark| {
        [
            "kproxide does not make a machine that the pool wants",
            "no hypervisor can take the machine",
        ]
        .iter()
        .any(|text| finding.message.contains(text))
    };
    plan.report.findings.iter().any(is_unmade)
        || plan
            .report
            .pending
            .iter()
            .any(|row| is_put_off(&row.outcome))
}

/// Such as a repair, whose machine is replaced.
fn begins_a_removal(scene: &Scene, plan: &Plan) -> bool {
    let is_new = |claim: &ClaimName| scene.claims[claim].status.phase == Phase::Initialized;
    let mut advances = plan.advances.iter();
    advances.any(|advance| matches!(advance.verdict, Verdict::Remove(_)) && is_new(&advance.claim))
}

/// A machine that cannot stay goes: only then does kproxide see what lacks.
fn removes_what_cannot_stay(before: &Plan) -> bool {
    let mut advances = before.advances.iter();
    advances.any(|it| matches!(it.verdict, Verdict::Remove(reason) if !reason.is_voluntary()))
}

/// A drain was given up. Its machine, or another that waited for its turn, is replaced now.
fn replaces_after_giving_up(before: &Plan, plan: &Plan) -> bool {
    let mut advances = before.advances.iter();
    let mut launches = plan.launches.iter();
    advances.any(|it| matches!(it.verdict, Verdict::GiveUp(_)))
        && launches.all(|it| it.spec.replaces.is_some())
}

/// A machine on its way is a place more, and a domain. Pods with rules about their neighbours, and those beside them, may then
/// take other places than were planned, and the last of them needs another machine.
fn opens_a_domain(scene: &Scene, plan: &Plan) -> bool {
    let has_rules = |pod: &PodFacts| {
        let PodTemplate {
            spread,
            pod_affinity,
            pod_anti_affinity,
            ..
        } = &*pod.spec.template;
        let is_free = spread.is_empty() && pod_affinity.is_empty() && pod_anti_affinity.is_empty();
        pod.node.is_none() && !is_free
    };
    !plan.launches.is_empty() && scene.pods.values().any(has_rules)
}

proptest! {
    // 13 properties: more than 10,000 worlds.
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn the_same_world_gives_the_same_plan(scene in any_scene(), keys in prop::collection::vec(any::<u32>(), 200)) {
        let mut deltas: Vec<(u32, Delta)> = scene.deltas().into_iter().enumerate().map(|(index, delta)| (keys[index % 200], delta)).collect();
        deltas.sort_by_key(|(key, _)| *key);
        let mut shuffled = World::default();
        for (_, delta) in deltas {
            shuffled.apply(delta);
        }
        let expected = scene.plan_with(racks);
        prop_assert_eq!(&plan(&shuffled, at(NOW), Limits::default(), racks), &expected);
        let snapshot = serde_json::to_string(&scene.world()).unwrap();
        let replayed: World = serde_json::from_str(&snapshot).unwrap();
        prop_assert_eq!(&plan(&replayed, at(NOW), Limits::default(), racks), &expected);
    }

    #[test]
    fn with_benign_policies_the_check_has_nothing_to_drop(scene in any_scene()) {
        check_sound(&scene.plan_with(racks));
    }

    #[test]
    fn no_policy_gets_a_violation_past_the_check(scene in any_scene(), bodies in any_answers()) {
        let world = scene.world();
        let mut turn = 0;
        let plan = plan(&world, at(NOW), Limits::default(), |question| {
            turn += 1;
            hostile(question, &bodies, turn)
        });
        prop_assert_eq!(check::violations(&world, at(NOW), &Limits::default(), &plan), vec![]);
        // The planner itself passes over what is not possible, so that the check is a second line and not the first.
        check_sound(&plan);
        if let Some(ledger) = &plan.ledger {
            prop_assert!(ledger.policy_state.iter().all(|row| row.state.len() <= 4096));
        }
    }

    #[test]
    fn a_plan_that_was_acted_on_leads_to_no_new_launches(scene in any_scene()) {
        let first = scene.plan_with(racks);
        let (mut current, mut before) = (acted(&scene, &first), first);
        // Every tick that launches takes a number from a range of twenty at most.
        for _ in 0..=20 {
            let plan = current.plan_with(racks);
            if plan.launches.is_empty() {
                return Ok(());
            }
            let has_cause = leaves_open(&before)
                || begins_a_removal(&current, &plan)
                || removes_what_cannot_stay(&before)
                || replaces_after_giving_up(&before, &plan)
                || opens_a_domain(&scene, &before);
            prop_assert!(has_cause, "{:#?} {:#?} after {:#?}", plan.launches, plan.report, before.report);
            (current, before) = (acted(&current, &plan), plan);
        }
        prop_assert!(false, "every tick launches");
    }

    #[test]
    fn every_pending_pod_has_a_place_a_claim_or_a_reason(scene in any_scene(), bodies in any_answers()) {
        let world = scene.world();
        let mut turn = 0;
        let plan = plan(&world, at(NOW), Limits::default(), |question| {
            turn += 1;
            if turn % 2 == 0 { racks(question) } else { hostile(question, &bodies, turn) }
        });
        let mut seen: Vec<PodKey> = plan.report.pending.iter().flat_map(|row| row.pods.clone()).collect();
        let counted: usize = plan.report.pending.iter().map(|row| row.count as usize).sum();
        seen.sort();
        seen.dedup();
        prop_assert_eq!((seen.len(), counted), (pending_pods(&scene), pending_pods(&scene)));
        for row in &plan.report.pending {
            if let PendingOutcome::Unhelped(whys) = &row.outcome {
                let is_said = !whys.is_empty() && whys.iter().all(|(_, why)| !why.to_string().is_empty());
                prop_assert!(is_said, "{:#?}", plan.report);
            }
        }
        for claim in plan.report.nodes {
            let phase = scene.claims[&claim.claim].status.phase;
            if claim.outcome == NodeOutcome::Kept(Kept::NotInService) {
                prop_assert!(phase < Phase::Initialized, "{} stays without a reason", claim.node);
            }
        }
    }

    #[test]
    fn at_most_one_new_claim_per_pod_without_a_place(mut scene in any_scene()) {
        for pool in scene.pools.values_mut() {
            pool.limits.min_nodes = 0;
            pool.headroom = Default::default();
        }
        let plan = scene.plan_with(racks);
        let launching: usize = plan.report.pending.iter().filter(|row| matches!(row.outcome, PendingOutcome::Launching(_))).map(|row| row.count as usize).sum();
        // Running pods of a broken machine get theirs before it goes.
        let launches = plan.launches.iter().filter(|launch| launch.spec.replaces.is_none()).count();
        prop_assert!(launches <= launching, "{launches} machines for {launching} pods");
    }

    #[test]
    fn no_limit_of_a_pool_is_passed(scene in any_scene()) {
        let plan = scene.plan_with(racks);
        let ledger = plan.ledger.unwrap_or(scene.ledger);
        let before: BTreeMap<PoolName, u32> = scene.pools.keys().map(|name| {
            let count = scene.claims.values().filter(|claim| claim.spec.pool == *name).count();
            (name.clone(), count as u32)
        }).collect();
        for (name, pool) in &scene.pools {
            let count = ledger.entries.iter().filter(|entry| entry.pool == *name && entry.counts()).count() as u32;
            prop_assert!(count <= pool.limits.max_nodes.max(before[name]));
        }
    }

    #[test]
    fn no_node_goes_that_the_plan_counts_on(scene in any_scene()) {
        let plan = scene.plan_with(racks);
        let going = removed(&plan);
        for row in &plan.report.pending {
            if let PendingOutcome::FitsNode(node) = &row.outcome {
                prop_assert!(!going.contains(&node.as_str()));
            }
        }
    }

    #[test]
    fn pods_of_removed_nodes_all_fit_on_the_nodes_that_stay(scene in any_scene()) {
        let plan = scene.plan_with(racks);
        let (pods, mut free) = moving(&scene, &plan);
        prop_assert!(all_fit(&pods, &mut free, &mut 0), "{pods:#?} on {free:#?}");
    }

    #[test]
    fn a_full_or_tainted_node_more_does_not_change_what_is_launched(scene in any_scene(), full in any::<bool>()) {
        let mut more = scene.clone();
        let node = more.node("zz-useless", node("cpu=4 memory=8Gi"));
        if full {
            more.running("full", 1, "zz-useless", spec("cpu=4 memory=8Gi"));
        } else {
            node.taints = vec![taint("nobody", TaintEffect::NoSchedule)];
        }
        prop_assert_eq!(more.plan_with(racks).launches, scene.plan_with(racks).launches);
    }

    #[test]
    fn a_remembered_plan_is_the_plan_until_it_ends(scene in any_scene(), later in 0..2_000i64) {
        let mut world = scene.world();
        let first = plan(&world, at(NOW), Limits::default(), racks);
        world.remember(&first);
        // A world that knows since when pods are expected on Nodes, and no plan.
        let mut unplanned = scene.world();
        unplanned.remember(&Plan { awaited: first.awaited.clone(), ..Plan::default() });
        let mut expected = plan(&unplanned, at(NOW + later), Limits::default(), racks);
        let mut actual = plan(&world, at(NOW + later), Limits::default(), racks);
        // When it was made, and which answers are worth keeping, may differ.
        for plan in [&mut expected, &mut actual] {
            plan.settled_at = None;
            plan.decorations.clear();
        }
        prop_assert_eq!(actual, expected);
    }

    #[test]
    fn a_question_asked_twice_is_the_same_question(scene in any_scene()) {
        let world = scene.world();
        let mut planning = Planning::new(&world, at(NOW), Limits::default());
        while let Some(question) = planning.question() {
            prop_assert_eq!(planning.question(), Some(question.clone()));
            planning.answer(racks(&question));
        }
        prop_assert_eq!(planning.finish(), scene.plan_with(racks));
    }
}

/// Pods that must find a place when a plan has been carried out (those of Nodes that nobody had to remove, and pending ones that it counts on Nodes
/// for), and the Nodes that stay, with what is free on each.
fn moving<'s>(scene: &'s Scene, plan: &Plan) -> (Vec<&'s PodSpec>, Vec<Staying<'s>>) {
    let going = |wanted: fn(&RemovalReason) -> bool| -> Vec<&NodeName> {
        let advances = plan.advances.iter();
        advances
            .filter(|advance| matches!(&advance.verdict, Verdict::Remove(reason) if wanted(reason)))
            .filter_map(|advance| scene.claims[&advance.claim].status.node_name.as_ref())
            .collect()
    };
    let (by_choice, all) = (going(|reason| reason.is_voluntary()), going(|_| true));
    let fitting: Vec<&PodKey> = plan
        .report
        .pending
        .iter()
        .filter(|row| matches!(row.outcome, PendingOutcome::FitsNode(_)))
        .flat_map(|row| &row.pods)
        .collect();
    let mut pods: Vec<&PodSpec> = scene
        .pods
        .iter()
        .filter(|(key, pod)| match &pod.node {
            Some(node) => by_choice.contains(&node),
            None => fitting.contains(key),
        })
        .map(|(_, pod)| &pod.spec)
        .collect();
    pods.sort_by_key(|spec| {
        std::cmp::Reverse((spec.requests.memory_bytes, spec.requests.milli_cores))
    });
    let serves = |name: &&NodeName| {
        let claim = scene.claims.get(name.as_str());
        claim.is_none_or(|claim| claim.status.phase == Phase::Initialized)
    };
    let nodes = scene
        .nodes
        .keys()
        .filter(serves)
        .filter(|name| !all.contains(name));
    let free = nodes.map(|name| {
        let mut free = scene.nodes[name].allocatable.clone();
        let mut ports = Vec::new();
        for pod in scene
            .pods
            .values()
            .filter(|pod| pod.node.as_ref() == Some(name))
        {
            free.subtract(&pod.spec.requests);
            ports.extend(&pod.spec.host_ports);
        }
        (&scene.nodes[name], free, ports)
    });
    (
        pods,
        free.filter(|(node, ..)| node.ready && !node.unschedulable)
            .collect(),
    )
}

/// A Node, with what is free on it and the ports that are not.
type Staying<'s> = (&'s NodeFacts, Resources, Vec<&'s HostPort>);

fn conflict(a: &HostPort, b: &HostPort) -> bool {
    let addresses = [&*a.address, &*b.address];
    (a.port, &a.protocol) == (b.port, &b.protocol)
        && (a.address == b.address || addresses.contains(&"0.0.0.0"))
}

/// Whether some arrangement holds all pods; where the search takes too long, the answer is yes.
fn all_fit<'s>(pods: &[&'s PodSpec], free: &mut [Staying<'s>], steps: &mut u32) -> bool {
    let Some((first, rest)) = pods.split_first() else {
        return true;
    };
    *steps += 1;
    for index in 0..free.len() {
        let (node, left, ports) = &mut free[index];
        let is_taken = |port: &HostPort| ports.iter().any(|taken| conflict(port, taken));
        if first.host_ports.iter().any(is_taken)
            || !first.requests.fits(left)
            || !node_matches(first, "", &node.labels)
            || untolerated(&first.tolerations, &node.taints).is_some()
        {
            continue;
        }
        left.subtract(&first.requests);
        ports.extend(&first.host_ports);
        if all_fit(rest, free, steps) {
            return true;
        }
        let (_, left, ports) = &mut free[index];
        left.add(&first.requests);
        ports.truncate(ports.len() - first.host_ports.len());
    }
    *steps > 100_000
}

/// The fewest machines of six cores for these pods.
fn fewest(pods: &[i64], machines: &mut Vec<i64>) -> usize {
    let Some((first, rest)) = pods.split_first() else {
        return machines.len();
    };
    let mut best = usize::MAX;
    for index in 0..machines.len() {
        if machines[index] >= *first {
            machines[index] -= first;
            best = best.min(fewest(rest, machines));
            machines[index] += first;
        }
    }
    machines.push(6 - first);
    best = best.min(fewest(rest, machines));
    machines.pop();
    best
}

#[test]
fn packing_is_the_optimum_for_every_handful_of_pods() {
    let mut gaps: BTreeMap<usize, usize> = BTreeMap::new();
    for case in 0..6usize.pow(5) {
        let cores: Vec<i64> = (0..5)
            .map(|digit| (case / 6usize.pow(digit) % 6) as i64 + 1)
            .collect();
        if !cores.is_sorted() {
            continue;
        }
        let mut scene = Scene::default();
        scene.class.instance_types = vec![instance_type("six", 6, 100)];
        scene.workers().limits.max_nodes = 100;
        for (index, cores) in cores.iter().enumerate() {
            scene.pending(&format!("p{index}"), 1, spec(&format!("cpu={cores}")));
        }
        *scene.hypervisor("alpha") = hypervisor(1000, 10_000);
        let launched = scene.plan().launches.len();
        *gaps
            .entry(launched - fewest(&cores, &mut Vec::new()))
            .or_default() += 1;
    }
    assert_eq!(
        gaps,
        [(0, 252)].into(),
        "machines more than needed, and in how many of all cases"
    );
}
