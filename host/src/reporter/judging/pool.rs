//! NodePool: its class, policies and Proxmox clusters, its last launches, and its limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::facts::{
    ClaimStatus, Condition, Phase, PolicyKind, PolicyRef, PolicyUse, PoolFacts,
};
use kproxide_planner::ids::{ClassName, ClusterName, PoolName};
use kproxide_planner::planning::{addresses_used_up, limit_reached};
use kproxide_planner::report::{AnchorReport, AnchorTrouble, Limit};
use kproxide_planner::world::World;

use super::super::policies::Failures;
use super::super::reasons::{self, Reason};
use super::{
    DEGRADED, LIMIT_REACHED, PAUSED, holds, is_down, is_ready, not_ready, ready, together, unknown,
    uses,
};
use crate::kube::status::Judgement;
use crate::policy::{Instead, Refusal, Unfit};

/// What is known of everything that pools use.
pub(in crate::reporter) struct Around<'a> {
    pub(in crate::reporter) world: &'a World,
    pub(in crate::reporter) classes: &'a BTreeMap<ClassName, Judgement>,
    pub(in crate::reporter) clusters: &'a BTreeMap<ClusterName, Judgement>,
    pub(in crate::reporter) refusals: &'a BTreeMap<Arc<str>, Refusal>,
    pub(in crate::reporter) unfit: &'a Unfit,
    pub(in crate::reporter) failures: &'a Failures,
    /// Pools whose last launches failed, each with the last failure.
    pub(in crate::reporter) failing: &'a BTreeMap<PoolName, String>,
    pub(in crate::reporter) frozen: Option<&'a str>,
    pub(in crate::reporter) anchors: &'a [&'a AnchorReport],
}

/// All conditions of a pool.
pub(in crate::reporter) fn conditions_of(
    name: &PoolName,
    pool: &PoolFacts,
    around: &Around<'_>,
) -> Vec<Judgement> {
    vec![
        ready_of(name, pool, around),
        paused(pool),
        limit(name, pool, around.world),
        degraded(pool, around),
    ]
}

fn ready_of(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Judgement {
    // Above all else: it wants a person.
    if let Some(message) = around.frozen {
        return not_ready(&reasons::FROZEN, message);
    }
    let of_pool = around.anchors.iter().filter(|it| uses(pool, &it.cluster));
    let worst = of_pool.max_by_key(|anchor| anchor.trouble);
    if let Some(anchor) = worst.filter(|it| it.trouble == AnchorTrouble::Foreign) {
        return not_ready(&reasons::ANCHOR_FOREIGN, &anchor.message);
    }
    if let Some(judged) = settings(name, pool, around) {
        return judged;
    }
    if let Some(judged) = clusters(pool, around) {
        return judged;
    }
    if let Some(last) = around.failing.get(name) {
        return not_ready(
            &reasons::LAUNCHES_FAIL,
            format!(
                "the last 3 launches of this NodePool failed. kproxide tries again, ever more slowly, and the first machine that comes into service ends this. See `kubectl get events` for what failed. The last failure: {last}"
            ),
        );
    }
    if let Some(failure) = around.failures.get(name) {
        return not_ready(&reasons::POLICY_FAILED, failure);
    }
    // While an anchor is only watched, the pool still makes machines. So this comes after the pool's own problems.
    match worst.filter(|it| it.trouble == AnchorTrouble::Unproven) {
        Some(anchor) => not_ready(&reasons::ANCHOR_UNPROVEN, &anchor.message),
        None => ready(""),
    }
}

/// What is wrong with the pool, or with what it names.
fn settings(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Option<Judgement> {
    let world = around.world;
    if let Some(problem) = &world.host().definition_problem {
        return Some(not_ready(&reasons::CLAIMS_UNDEFINED, problem));
    }
    if pool.existence.deleting_since.is_some() {
        return Some(not_ready(&reasons::BEING_DELETED, going(name, pool, world)));
    }
    if !world.classes().contains_key(&pool.class) {
        return Some(not_ready(
            &reasons::CLASS_MISSING,
            format!(
                "spec.nodeClass: there is no NodeClass {}; create it or correct the name in NodePool {name}",
                pool.class
            ),
        ));
    }
    if let Some(problem) = &pool.problem {
        return Some(not_ready(&reasons::INVALID_SETTINGS, problem));
    }
    let class = around.classes.get(&pool.class);
    if let Some(class) = class.filter(|class| is_down(class)) {
        return Some(Judgement {
            passes: class.passes,
            ..not_ready(
                &reasons::CLASS_NOT_READY,
                format!("NodeClass {}: {}", pool.class, class.message),
            )
        });
    }
    let clusters = &mut pool.clusters.iter();
    if let Some(gone) = clusters.find(|cluster| !world.clusters().contains_key(*cluster)) {
        return Some(not_ready(
            &reasons::CLUSTER_MISSING,
            format!(
                "spec.clusters: there is no ProxmoxCluster {gone}; create it or correct the name in NodePool {name}"
            ),
        ));
    }
    let wrong = pool.policies.each().into_iter();
    let wrong: Vec<_> = wrong
        .filter_map(|(field, used)| {
            let (reason, text) = policy(name, &used, around)?;
            let meanwhile = meanwhile(reason, &used.policy, around);
            Some((reason, format!("spec.policies.{field}{text}"), meanwhile))
        })
        .collect();
    let (reason, ..) = wrong.first()?;
    let texts = wrong.iter().map(|(_, text, _)| text.clone());
    let meanwhile = wrong.iter().filter_map(|(.., meanwhile)| *meanwhile);
    let meanwhile = together(meanwhile.map(str::to_owned));
    Some(not_ready(
        reason,
        match meanwhile.is_empty() {
            true => together(texts),
            false => format!("{}. Meanwhile {meanwhile}", together(texts)),
        },
    ))
}

/// What kproxide does as long as a policy decides nothing, where no text about the policy says it. One that fails among several fails all of them.
fn meanwhile(reason: &Reason, policy: &PolicyRef, around: &Around<'_>) -> Option<&'static str> {
    let refusal = around.refusals.get(&policy.name);
    let has_builtin = refusal.is_some_and(|it| it.instead == Instead::Builtin);
    if *reason == reasons::POLICY_LOADING || *reason == reasons::POLICY_REFUSED && has_builtin {
        return None;
    }
    Some(match policy.kind {
        PolicyKind::HostSelection => "the built-in spread chooses the hypervisors",
        PolicyKind::ScaleDown => "scale-down removes nothing",
        PolicyKind::Labels => "kproxide makes no machine in this NodePool",
    })
}

/// What is wrong with a policy of the pool. That may not stop the pool, but its owner wanted that policy.
fn policy(
    pool: &PoolName,
    used: &PolicyUse,
    around: &Around<'_>,
) -> Option<(&'static Reason, String)> {
    let PolicyRef { kind, name } = &used.policy;
    if let Some(loading) = around.unfit.loading.get(name) {
        return Some((
            &reasons::POLICY_LOADING,
            format!(": policy {name}: {loading}"),
        ));
    }
    let refusal = around.refusals.get(name);
    let is_replaced = |it: &&Refusal| matches!(it.instead, Instead::Nothing | Instead::Builtin);
    if let Some(refusal) = refusal.filter(is_replaced) {
        return Some((&reasons::POLICY_REFUSED, format!(": {refusal}")));
    }
    let known = around.world.policies();
    if !known.contains_key(&used.policy) {
        let kind = kind.as_str();
        let others = known.keys().filter(|it| it.name == *name);
        let others: Vec<&str> = others.map(|it| it.kind.as_str()).collect();
        let text = match others.is_empty() {
            true => format!(
                ": there is no {kind} policy {name}; mount {name}.wasm or correct the name in NodePool {pool}"
            ),
            false => format!(
                ": {name} is a {} policy; name a {kind} policy in NodePool {pool}",
                others.join(" and ")
            ),
        };
        return Some((&reasons::POLICY_MISSING, text));
    }
    let key = (pool.clone(), used.policy.clone());
    if let Some(wrong) = around.unfit.settings.get(&key) {
        // Templates become settings of this policy.
        let or_templates = match kind {
            PolicyKind::Labels => " or spec.labelTemplates",
            PolicyKind::HostSelection | PolicyKind::ScaleDown => "",
        };
        let text = format!(".settings{or_templates}: policy {name}: {wrong}");
        return Some((&reasons::INVALID_SETTINGS, text));
    }
    let given_up = around.unfit.given_up.get(&key)?;
    Some((
        &reasons::POLICY_FAILED,
        format!(": policy {name}: {given_up}"),
    ))
}

/// The Proxmox clusters of the pool, each with what is known of it.
fn of_pool<'a>(
    pool: &'a PoolFacts,
    around: &'a Around<'_>,
) -> impl Iterator<Item = (&'a ClusterName, &'a Judgement)> {
    around.clusters.iter().filter(|(name, _)| uses(pool, name))
}

/// No Proxmox cluster of the pool can be used.
fn clusters(pool: &PoolFacts, around: &Around<'_>) -> Option<Judgement> {
    let mut all = of_pool(pool, around);
    if all.any(|(_, judged)| is_ready(judged)) {
        return None;
    }
    let down: Vec<_> = of_pool(pool, around)
        .filter(|(_, it)| is_down(it))
        .collect();
    if down.len() < of_pool(pool, around).count() {
        return Some(unknown("kproxide has not asked its Proxmox clusters yet"));
    }
    if down.is_empty() {
        return Some(not_ready(
            &reasons::CLUSTER_MISSING,
            "there is no ProxmoxCluster: create one",
        ));
    }
    Some(Judgement {
        passes: down.iter().any(|(_, judged)| judged.passes),
        ..not_ready(&reasons::NO_USABLE_CLUSTER, in_words(&down))
    })
}

fn in_words(down: &[(&ClusterName, &Judgement)]) -> String {
    let texts = down.iter();
    together(texts.map(|(name, judged)| {
        let Judgement {
            reason, message, ..
        } = judged;
        format!("ProxmoxCluster {name} ({reason}): {message}")
    }))
}

/// One of several Proxmox clusters cannot be used, or an older file of a policy decides than the one that lies there.
fn degraded(pool: &PoolFacts, around: &Around<'_>) -> Judgement {
    let used = pool.policies.each().into_iter();
    let older = used.filter_map(|(field, used)| {
        let refusal = around.refusals.get(&used.policy.name)?;
        let is_older = matches!(refusal.instead, Instead::LastGood | Instead::Earlier);
        is_older.then(|| format!("spec.policies.{field}: {refusal}"))
    });
    let older: Vec<String> = older.collect();
    if !older.is_empty() {
        return holds(DEGRADED, true, &reasons::POLICY_REFUSED, together(older));
    }
    let all: Vec<_> = of_pool(pool, around).collect();
    let down = all.iter().filter(|(_, judged)| is_down(judged));
    let down: Vec<_> = down.copied().collect();
    if down.is_empty() {
        return holds(DEGRADED, false, &reasons::CLUSTERS_READY, "");
    }
    if all.len() < 2 {
        return holds(DEGRADED, false, &reasons::ONLY_CLUSTER_NOT_READY, "");
    }
    Judgement {
        passes: down.iter().all(|(_, judged)| judged.passes),
        ..holds(DEGRADED, true, &reasons::CLUSTER_NOT_READY, in_words(&down))
    }
}

fn paused(pool: &PoolFacts) -> Judgement {
    match pool.paused {
        true => holds(
            PAUSED,
            true,
            &reasons::PAUSED,
            "kproxide starts no launch and no removal in this NodePool. To go on, set spec.paused to false and take the annotation kproxide.dev/pause off",
        ),
        false => holds(PAUSED, false, &reasons::NOT_PAUSED, ""),
    }
}

fn limit(name: &PoolName, pool: &PoolFacts, world: &World) -> Judgement {
    let reached = |reason: &Reason, field: &str| {
        let message = format!(
            "kproxide makes no more machines, because {field} of this NodePool is reached. If pods wait, set it higher"
        );
        holds(LIMIT_REACHED, true, reason, message)
    };
    match limit_reached(world, name) {
        Some(Limit::Machines { .. }) => reached(&reasons::MAX_NODES, "limits.maxNodes"),
        Some(Limit::MilliCores { .. }) => reached(&reasons::CPU_CORES, "limits.cpuCores"),
        Some(Limit::MemoryBytes { .. }) => reached(&reasons::MEMORY, "limits.memoryMiB"),
        Some(Limit::Vmids(_) | Limit::Addresses) | None
            if addresses_used_up(world, &pool.class) =>
        {
            holds(
                LIMIT_REACHED,
                true,
                &reasons::ADDRESSES,
                format!(
                    "the ipPool of NodeClass {} has no free address. Add a range, or wait: an address rests as long as the VMID of its machine",
                    pool.class
                ),
            )
        }
        Some(Limit::Vmids(_) | Limit::Addresses) | None => {
            holds(LIMIT_REACHED, false, &reasons::BELOW_LIMITS, "")
        }
    }
}

/// What a pool in deletion waits for. The machines that are left are not named: each that goes would change the text, and a condition changes its words only a
/// few times in an hour.
fn going(name: &PoolName, pool: &PoolFacts, world: &World) -> String {
    let deletes = "somebody deletes this NodePool";
    let shown = "`kubectl get nodeclaims` shows what is left";
    if pool.keep_machines {
        return format!(
            "{deletes}. Its machines stay, as its annotation kproxide.dev/keep-machines says"
        );
    }
    let of_pool = world.claims().iter();
    let of_pool: Vec<_> = of_pool
        .filter(|(_, claim)| claim.spec.pool == *name)
        .collect();
    if of_pool.is_empty() {
        return format!("{deletes}, and none of its machines is left");
    }
    if pool.paused {
        return format!(
            "{deletes}, but it is paused, so its machines stay. To go on, set spec.paused to false and take the annotation kproxide.dev/pause off. {shown}"
        );
    }
    let blocked = of_pool.into_iter();
    let blocked = blocked.filter_map(|(name, claim)| Some((name, blocker(&claim.status)?)));
    let blocked: Vec<String> = blocked
        .map(|(name, why)| format!("{name} ({why})"))
        .collect();
    let waits = match blocked.len() {
        0 => ": the condition Removable of a NodeClaim says why its machine stays".to_owned(),
        count @ 1..=MOST_BLOCKED => format!(". These wait: {}", blocked[..count].join("; ")),
        _ => format!(
            ". Among those that wait: {}",
            blocked[..MOST_BLOCKED].join("; ")
        ),
    };
    format!(
        "{deletes}, so kproxide removes its machines, at most {} at a time (scaleDown.budget). It forces none of them{waits}. If you delete the NodeClaim, it goes at once. {shown}",
        pool.scale_down.budget
    )
}

/// So many machines are named with what keeps them.
const MOST_BLOCKED: usize = 3;

/// What keeps a machine whose pool is deleted: what its drain waits for or was given up for, or why none begins. The pool's own rules and its budget are no
/// such thing.
fn blocker(status: &ClaimStatus) -> Option<&str> {
    const KEEP: [&str; 3] = ["OnHold", "ScaleDownDisabledAnnotation", "NeedsAPerson"];
    /// Their own texts have the time of the next try.
    const GAVE_UP: [&str; 2] = ["DrainGivenUp", "RecentlyUnremovable"];
    let of = |kind| {
        let mut conditions = status.conditions.iter();
        conditions.find(|it| it.kind == kind && !it.status && !it.message.is_empty())
    };
    let (drained, removable) = (of(Condition::Drained), of(Condition::Removable));
    let is_draining = status.phase == Phase::Draining;
    let gave_up = removable.is_some_and(|it| GAVE_UP.contains(&&*it.reason));
    let kept = removable.filter(|it| KEEP.contains(&&*it.reason));
    let found = drained.filter(|_| is_draining || gave_up).or(kept);
    found.map(|it| &*it.message)
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{ClaimCondition, Delta};
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::convert::{class_facts, cluster_facts, pool_facts};

    /// What is wrong with a pool that names these things.
    fn said(change: &Value) -> String {
        let refusal = |policy: &str, instead| Refusal {
            policy: policy.into(),
            reason: "it is not WebAssembly".to_owned(),
            instead,
        };
        let refusals: BTreeMap<Arc<str>, Refusal> = [
            refusal("broken", Instead::Nothing),
            refusal("balanced", Instead::Builtin),
            refusal("spread", Instead::LastGood),
        ]
        .map(|refusal| (refusal.policy.clone(), refusal))
        .into();
        let mut world = World::default();
        let class = json!({"template": {"name": "t"}, "instanceTypes": [{"name": "m", "cores": 1, "memoryMiB": 1024}]});
        let class = class_facts(&serde_json::from_value(class).unwrap());
        world.apply(Delta::Class("standard".into(), Some(Box::new(class))));
        let cluster = json!({"endpoints": ["https://pve1"], "credentials": "c", "pool": "p", "vmidRange": {"first": 200, "last": 299}});
        let (cluster, _) = cluster_facts(&serde_json::from_value(cluster).unwrap());
        world.apply(Delta::Cluster("home".into(), Some(Box::new(cluster))));
        let engine = crate::policy::Engine::new(crate::policy::Execution::Inline).unwrap();
        for (policy, facts) in crate::policy::Library::new(engine).facts() {
            world.apply(Delta::Policy(policy, Some(facts)));
        }
        let mut spec = json!({"nodeClass": "standard", "clusters": ["home"]});
        let of = |kind| {
            let text = change.get("wrong").map(Value::to_string);
            let name = match kind {
                PolicyKind::Labels => "go-template",
                PolicyKind::HostSelection | PolicyKind::ScaleDown => "least-loaded",
            };
            let policy = PolicyRef {
                kind,
                name: name.into(),
            };
            text.map(|text| (("workers".into(), policy), text))
        };
        let unfit = Unfit {
            settings: of(PolicyKind::Labels).into_iter().collect(),
            given_up: of(PolicyKind::ScaleDown).into_iter().collect(),
            loading: [("slow".into(), "its file is being compiled".to_owned())].into(),
        };
        for (field, value) in change
            .as_object()
            .unwrap()
            .iter()
            .filter(|it| it.0 != "wrong")
        {
            spec[field] = value.clone();
        }
        let meta = kube::api::ObjectMeta::default();
        let pool = pool_facts(&meta, &serde_json::from_value(spec).unwrap());
        let around = Around {
            world: &world,
            classes: &BTreeMap::new(),
            clusters: &BTreeMap::new(),
            refusals: &refusals,
            unfit: &unfit,
            failures: &Failures::new(),
            failing: &BTreeMap::new(),
            frozen: None,
            anchors: &[],
        };
        let judged = settings(&"workers".into(), &pool, &around);
        judged.map_or_else(String::new, |it| format!("{}: {}", it.reason, it.message))
    }

    #[test]
    fn f97_a_pool_that_names_what_nobody_has_is_not_ready() {
        assert_eq!(said(&json!({})), "");
        for (change, expected) in [
            (json!({"nodeClass": "other"}), "there is no NodeClass other"),
            (
                json!({"clusters": ["typo"]}),
                "there is no ProxmoxCluster typo",
            ),
            (
                json!({"policies": {"hostSelection": {"use": "mine"}}}),
                "there is no host-selection policy mine; mount mine.wasm",
            ),
            (
                json!({"policies": {"scaleDown": {"use": "broken"}}}),
                "PolicyRefused: spec.policies.scaleDown: the file of policy broken is refused",
            ),
            (
                json!({"policies": {"hostSelection": {"use": "balanced"}}}),
                "PolicyRefused: spec.policies.hostSelection: the file of policy balanced is refused and the built-in of that name answers: it is not",
            ),
        ] {
            let text = said(&change);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn r41_a_pool_whose_only_cluster_is_not_ready_does_not_say_that_its_clusters_are() {
        let reason = |clusters: &[(&str, Judgement)]| {
            let clusters = clusters.iter().cloned();
            let clusters = clusters.map(|(name, judged)| (name.into(), judged));
            let around = Around {
                world: &World::default(),
                classes: &BTreeMap::new(),
                clusters: &clusters.collect(),
                refusals: &BTreeMap::new(),
                unfit: &Unfit::default(),
                failures: &Failures::new(),
                failing: &BTreeMap::new(),
                frozen: None,
                anchors: &[],
            };
            let judged = degraded(&kproxide_planner::fixtures::pool(), &around);
            (is_down(&judged), judged.reason)
        };
        let down = || not_ready(&reasons::NO_QUORUM, "no quorum");
        assert_eq!(reason(&[("a", down())]), (true, "OnlyClusterNotReady"));
        assert_eq!(reason(&[("a", ready(""))]), (true, "ClustersReady"));
        let several = [("a", down()), ("b", ready(""))];
        assert_eq!(reason(&several), (false, "ClusterNotReady"));
    }

    #[test]
    fn a_pool_whose_policy_is_being_loaded_says_so_and_no_other_does() {
        assert_eq!(
            said(&json!({"policies": {"hostSelection": {"use": "slow"}}})),
            "PolicyLoading: spec.policies.hostSelection: policy slow: its file is being compiled"
        );
        assert_eq!(
            said(&json!({"policies": {"hostSelection": {"use": "pack"}}})),
            ""
        );
    }

    #[test]
    fn what_is_wrong_with_one_of_several_policies_is_told_with_its_place() {
        let together = json!({"policies": {"hostSelection": {
            "filters": [{"use": "mine"}, {"use": "broken"}],
            "scores": [{"use": "pack", "weight": 2}, {"use": "least-loaded"}],
        }}});
        assert_eq!(
            said(&together),
            "PolicyMissing: spec.policies.hostSelection.filters[mine]: there is no host-selection policy mine; mount mine.wasm or correct the name in NodePool workers; \
             spec.policies.hostSelection.filters[broken]: the file of policy broken is refused and nothing else has that name: it is not WebAssembly; \
             spec.policies.hostSelection.scores[least-loaded]: least-loaded is a scale-down policy; name a host-selection policy in NodePool workers. \
             Meanwhile the built-in spread chooses the hypervisors"
        );
    }

    #[test]
    fn w11_the_kind_of_a_policy_is_told_and_all_that_is_wrong_at_once() {
        let both = json!({"policies": {"hostSelection": {"use": "least-loaded"}, "scaleDown": {"use": "mine"}}});
        assert_eq!(
            said(&both),
            "PolicyMissing: spec.policies.hostSelection: least-loaded is a scale-down policy; name a host-selection policy in NodePool workers; \
             spec.policies.scaleDown: there is no scale-down policy mine; mount mine.wasm or correct the name in NodePool workers. \
             Meanwhile the built-in spread chooses the hypervisors; scale-down removes nothing"
        );
    }

    #[test]
    fn w18_a_pool_whose_policy_decides_nothing_says_what_decides_instead() {
        for (place, policy, expected) in [
            (
                "hostSelection",
                "mine",
                ". Meanwhile the built-in spread chooses the hypervisors",
            ),
            (
                "hostSelection",
                "broken",
                ". Meanwhile the built-in spread chooses the hypervisors",
            ),
            (
                "scaleDown",
                "mine",
                ". Meanwhile scale-down removes nothing",
            ),
            (
                "labels",
                "mine",
                ". Meanwhile kproxide makes no machine in this NodePool",
            ),
            // It answers, and says so.
            ("hostSelection", "balanced", "it is not WebAssembly"),
            // The pool waits for it.
            ("hostSelection", "slow", "its file is being compiled"),
        ] {
            let text = said(&json!({"policies": {place: {"use": policy}}}));
            assert!(text.ends_with(expected), "{text}");
        }
    }

    #[test]
    fn a_pool_that_is_deleted_names_what_keeps_its_machines() {
        use kproxide_planner::fixtures::{Scene, at, condition};
        let mut scene = Scene::default();
        let mut blocked = |name: &str, phase, kind, reason: &str, message: &str| {
            scene.machine(name, "alpha");
            let status = &mut scene.claim(name).status;
            status.phase = phase;
            status.conditions.push(ClaimCondition {
                status: false,
                reason: reason.to_owned(),
                message: message.to_owned(),
                ..condition(kind, at(0))
            });
        };
        let (drains, serves) = (Phase::Draining, Phase::Initialized);
        let removable = Condition::Removable;
        let budget = "pod default/web-1 cannot be evicted: PodDisruptionBudget web";
        blocked("a", drains, Condition::Drained, "PoolDeleted", budget);
        let hold = "PersistentVolume data can be reached only from its Node";
        blocked("b", serves, removable, "OnHold", hold);
        // These are no reasons to stay for ever.
        let turn = "as many removals of its pool are under way as its budget allows";
        blocked("c", serves, removable, "MaxDeletionCountReached", turn);
        blocked(
            "d",
            serves,
            Condition::Drained,
            "GivenUp",
            "an earlier drain",
        );
        let said = |scene: &Scene| {
            let pool = &scene.pools[&PoolName::from("workers")];
            going(&"workers".into(), pool, &scene.world())
        };
        let expected = format!(". These wait: a ({budget}); b ({hold}). If you delete");
        let text = said(&scene);
        assert!(text.contains(&expected), "{text}");
        // One that goes changes no word.
        assert!(!text.contains("workers-"), "{text}");

        let mut annotated = |name: &str| {
            let why = "ScaleDownDisabledAnnotation";
            let (reason, message) = (why.to_owned(), format!("the annotation of {name}"));
            let conditions = &mut scene.claim(name).status.conditions;
            conditions.push(ClaimCondition {
                status: false,
                reason,
                message,
                ..condition(removable, at(0))
            });
        };
        annotated("d");
        annotated("c");
        // Of a kind each claim has one condition.
        scene
            .claim("c")
            .status
            .conditions
            .retain(|it| it.message != turn);
        let text = said(&scene);
        assert!(
            text.contains(". Among those that wait: a (")
                && text.contains("; c (the annotation of c). If"),
            "{text}"
        );
    }

    #[test]
    fn w12_settings_that_a_policy_does_not_accept_are_named_with_their_field() {
        assert_eq!(
            said(&json!({"wrong": 5})),
            "PolicyFailed: spec.policies.scaleDown: policy least-loaded: 5; spec.policies.labels.settings or spec.labelTemplates: policy go-template: 5. \
             Meanwhile scale-down removes nothing; kproxide makes no machine in this NodePool"
        );
    }
}
