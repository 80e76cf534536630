//! NodePool: its class, policies and Proxmox clusters, its last launches, and its limits.

use std::collections::{BTreeMap, BTreeSet};

use kproxide_planner::facts::{
    ClaimStatus, Condition, Phase, PolicyKind, PolicyRef, PolicyUse, PoolFacts,
};
use kproxide_planner::ids::{ClassName, ClusterName, PoolName};
use kproxide_planner::keys;
use kproxide_planner::plan::report::{AnchorReport, AnchorTrouble, Limit, Unusable};
use kproxide_planner::planning::{
    Offer, Outdated, addresses_rested, addresses_used_up, limit_reached, outdated,
};
use kproxide_planner::world::World;

use super::room::nowhere;
use super::{
    Failures, Finding, Group, Known, Level, Reason, Stops, in_words, is_down, is_ready, named,
    reasons, together, uses,
};
use kproxide_policy::{Instead, Refusal};

/// What is known of everything that pools use.
pub(super) struct Around<'a> {
    pub(super) world: &'a World,
    pub(super) known: &'a Known<'a>,
    pub(super) classes: &'a BTreeMap<ClassName, Finding>,
    pub(super) clusters: &'a BTreeMap<ClusterName, Finding>,
    pub(super) offers: &'a [Offer<'a>],
    /// Pools whose last launches failed, each with the last failure.
    pub(super) failing: &'a BTreeMap<PoolName, String>,
    /// What failed the policies of pools in this tick.
    pub(super) failures: &'a Failures,
    /// Pools by which pods would be helped, if something did not keep them from it.
    pub(super) kept_waiting: &'a BTreeSet<PoolName>,
}

/// All conditions of a pool.
pub(super) fn conditions_of(
    name: &PoolName,
    pool: &PoolFacts,
    around: &Around<'_>,
) -> Vec<Finding> {
    let mut found = vec![
        ready_of(name, pool, around),
        paused(name, pool, around),
        limit(name, pool, around),
        degraded(name, pool, around),
    ];
    found.extend(waiting(name, around));
    found
}

fn finding(name: &PoolName, level: Level, reason: &'static Reason, message: String) -> Finding {
    let (group, object) = (Group::Configuration, named("NodePool", name));
    Finding::new(level, group, object, reason, message)
}

fn not_ready(name: &PoolName, reason: &'static Reason, message: impl Into<String>) -> Finding {
    finding(name, Level::Error, reason, message.into())
}

/// What keeps launches or removals for a while, and stands in no condition.
fn waiting(name: &PoolName, around: &Around<'_>) -> Vec<Finding> {
    let report = around.known.report;
    let launches = report.unusable.iter().filter_map(|(pool, why)| {
        let is_it = pool == name && matches!(why, Unusable::LaunchesPaused { .. });
        let text = is_it.then(|| format!("it gets no machines: {why}"))?;
        Some(finding(
            name,
            Level::Warning,
            &reasons::LAUNCHES_PAUSED,
            text,
        ))
    });
    let removals = report.waiting.iter().filter(|(pool, _)| pool == name);
    let removals = removals
        .map(|(_, wait)| finding(name, Level::Warning, &reasons::REMOVALS_WAIT, wait.clone()));
    launches
        .chain(removals)
        .chain(left_behind(name, around.world))
        .collect()
}

/// Machines that were made before labels or sizes changed.
fn left_behind(name: &PoolName, world: &World) -> Option<Finding> {
    let Outdated {
        machines,
        labels,
        sizes,
        either,
    } = outdated(world, name);
    if either == 0 {
        return None;
    }
    let of = |count: usize, what: &str| (count > 0).then(|| format!("{count} with other {what}"));
    let parts = [of(labels, "labels"), of(sizes, "sizes")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let text = format!(
        "{either} of {machines} machines are as they were made before a change: {}. kproxide leaves them so",
        parts.join(", ")
    );
    Some(finding(
        name,
        Level::Warning,
        &reasons::MACHINES_OUTDATED,
        text,
    ))
}

/// Of all that is wrong what stops most, and of those that stop alike the first.
fn ready_of(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Finding {
    let report = around.known.report;
    let frozen = report.frozen.as_ref().map(|frozen| {
        let finding = not_ready(name, &reasons::FROZEN, &*frozen.message);
        finding.typing(frozen.commands.clone())
    });
    let of_pool = report.anchors.iter();
    let of_pool = of_pool.filter(|it| uses(pool, &it.cluster) && is_known(it, around.world));
    let worst = of_pool.max_by_key(|anchor| anchor.trouble);
    let foreign = worst.filter(|it| it.trouble == AnchorTrouble::Foreign);
    let foreign = foreign.map(|anchor| {
        let finding = not_ready(name, &reasons::ANCHOR_FOREIGN, &*anchor.message);
        finding.typing(anchor.commands.clone())
    });
    let unproven = worst.filter(|it| it.trouble == AnchorTrouble::Unproven);
    let unproven =
        unproven.map(|anchor| not_ready(name, &reasons::ANCHOR_UNPROVEN, &*anchor.message));
    let settings = settings(name, pool, around);
    let found = match pool.existence.deleting_since {
        // What else keeps it from making machines matters no more.
        Some(_) => vec![frozen, foreign, settings],
        None => vec![
            frozen,
            foreign,
            settings,
            clusters(name, pool, around),
            nowhere_of(name, pool, around),
            failing(name, around),
            failed_policies(name, around),
            unproven,
        ],
    };
    // What a finding follows from stops launches.
    let rank = |finding: &Finding| match finding.stops == Stops::Follows {
        true => Stops::Launches,
        false => finding.stops,
    };
    let all = found.iter().flatten();
    let worst = all.min_by_key(|finding| rank(finding)).cloned();
    let worst = worst.unwrap_or_else(|| finding(name, Level::Ok, &reasons::READY, String::new()));
    match found.into_iter().next().flatten() {
        // It wants a person, so nothing hides it.
        Some(frozen) if *worst.reason != reasons::FROZEN => Finding {
            message: format!("{}. And: {}", worst.message, frozen.message),
            commands: [worst.commands, frozen.commands].concat(),
            ..worst
        },
        Some(_) | None => worst,
    }
}

fn nowhere_of(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Option<Finding> {
    let here = around.offers.iter();
    let here = here.filter(|it| *it.class == pool.node_class && uses(pool, &it.hypervisor.cluster));
    let it = nowhere(here)?;
    Some(Finding {
        after: it.after,
        ..not_ready(name, it.reason, it.message)
    })
}

fn failing(name: &PoolName, around: &Around<'_>) -> Option<Finding> {
    let last = around.failing.get(name)?;
    let text = format!(
        "the last 3 launches of this NodePool failed. kproxide tries again, ever more slowly, and the first machine that comes into service ends this. The last failure: {last}"
    );
    let events = "kubectl get events --all-namespaces --field-selector reason=FailedToScaleUpGroup";
    Some(not_ready(name, &reasons::LAUNCHES_FAIL, text).typing([events.to_owned()]))
}

fn failed_policies(name: &PoolName, around: &Around<'_>) -> Option<Finding> {
    let failure = around.failures.get(name)?;
    Some(Finding {
        stops: Stops::Nothing,
        ..not_ready(name, &reasons::POLICY_FAILED, failure)
    })
}

/// What is wrong with the pool, or with what it names.
fn settings(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Option<Finding> {
    let world = around.world;
    if let Some(problem) = &world.host().definition_problem {
        return Some(not_ready(name, &reasons::CLAIMS_UNDEFINED, problem));
    }
    if pool.existence.deleting_since.is_some() {
        let reason = &reasons::BEING_DELETED;
        return Some(finding(
            name,
            Level::Warning,
            reason,
            going(name, pool, world),
        ));
    }
    if !world.classes().contains_key(&pool.node_class) {
        return Some(not_ready(
            name,
            &reasons::CLASS_MISSING,
            format!(
                "spec.nodeClass: there is no NodeClass {}; create it or correct the name in NodePool {name}",
                pool.node_class
            ),
        ));
    }
    if let Some(problem) = &pool.problem {
        return Some(not_ready(name, &reasons::INVALID_SETTINGS, problem));
    }
    let class = around.classes.get(&pool.node_class);
    if let Some(class) = class.filter(|class| is_down(class)) {
        let text = format!("NodeClass {}: {}", pool.node_class, class.message);
        let finding = not_ready(name, &reasons::CLASS_NOT_READY, text);
        return Some(finding.following([class]));
    }
    let clusters = &mut pool.clusters.iter();
    if let Some(gone) = clusters.find(|cluster| !world.clusters().contains_key(*cluster)) {
        return Some(not_ready(
            name,
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
            let stops = stops(reason, &used.policy, meanwhile);
            let text = format!("spec.policies.{field}{text}");
            Some((reason, text, meanwhile, stops))
        })
        .collect();
    let (reason, ..) = *wrong.first()?;
    let texts = wrong.iter().map(|(_, text, ..)| text.clone());
    let meanwhile = wrong.iter().filter_map(|(_, _, meanwhile, _)| *meanwhile);
    let meanwhile = together(meanwhile.map(str::to_owned));
    let stopped = wrong.iter().map(|(.., stops)| *stops).min();
    let finding = not_ready(
        name,
        reason,
        match meanwhile.is_empty() {
            true => together(texts),
            false => format!("{}. Meanwhile {meanwhile}", together(texts)),
        },
    );
    Some(Finding {
        stops: stopped.unwrap_or(finding.stops),
        ..finding
    })
}

/// What kproxide does as long as a policy decides nothing, where no text about the policy says it. One that fails among several fails all of them.
fn meanwhile(reason: &Reason, policy: &PolicyRef, around: &Around<'_>) -> Option<&'static str> {
    let refusal = around.known.refusals.get(&policy.name);
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

/// What does not go on as long as a policy decides nothing.
fn stops(reason: &Reason, policy: &PolicyRef, meanwhile: Option<&'static str>) -> Stops {
    if *reason == reasons::POLICY_LOADING {
        return Stops::Launches;
    }
    match (policy.kind, meanwhile) {
        (_, None) | (PolicyKind::HostSelection, _) => Stops::Nothing,
        (PolicyKind::ScaleDown, Some(_)) => Stops::Removals,
        (PolicyKind::Labels, Some(_)) => Stops::Launches,
    }
}

/// What is wrong with a policy of the pool. That may not stop the pool, but its owner wanted that policy.
fn policy(
    pool: &PoolName,
    used: &PolicyUse,
    around: &Around<'_>,
) -> Option<(&'static Reason, String)> {
    let PolicyRef { kind, name } = &used.policy;
    if let Some(loading) = around.known.unfit.loading.get(name) {
        return Some((
            &reasons::POLICY_LOADING,
            format!(": policy {name}: {loading}"),
        ));
    }
    let refusal = around.known.refusals.get(name);
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
    if let Some(wrong) = around.known.unfit.settings.get(&key) {
        // Templates become settings of this policy.
        let or_templates = match kind {
            PolicyKind::Labels => " or spec.labelTemplates",
            PolicyKind::HostSelection | PolicyKind::ScaleDown => "",
        };
        let text = format!(".settings{or_templates}: policy {name}: {wrong}");
        return Some((&reasons::INVALID_SETTINGS, text));
    }
    let given_up = around.known.unfit.given_up.get(&key)?;
    Some((
        &reasons::POLICY_FAILED,
        format!(": policy {name}: {given_up}"),
    ))
}

/// The Proxmox clusters of the pool, each with what is known of it.
fn of_pool<'a>(
    pool: &'a PoolFacts,
    around: &'a Around<'_>,
) -> impl Iterator<Item = (&'a ClusterName, &'a Finding)> {
    around.clusters.iter().filter(|(name, _)| uses(pool, name))
}

/// No Proxmox cluster of the pool can be used.
fn clusters(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Option<Finding> {
    let mut all = of_pool(pool, around);
    if all.any(|(_, judged)| is_ready(judged)) {
        return None;
    }
    let down: Vec<_> = of_pool(pool, around)
        .filter(|(_, it)| is_down(it))
        .collect();
    if down.len() < of_pool(pool, around).count() {
        let text = "kproxide has not asked its Proxmox clusters yet".to_owned();
        return Some(finding(name, Level::Ok, &reasons::UNKNOWN, text));
    }
    if down.is_empty() {
        return Some(not_ready(
            name,
            &reasons::CLUSTER_MISSING,
            "there is no ProxmoxCluster: create one",
        ));
    }
    let reason = &reasons::NO_USABLE_CLUSTER;
    let finding = not_ready(name, reason, in_words(&down));
    Some(finding.following_all(down.iter().map(|(_, it)| *it)))
}

/// One of several Proxmox clusters cannot be used, or an older file of a policy decides than the one that lies there.
fn degraded(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Finding {
    let well = |reason: &'static Reason| finding(name, Level::Ok, reason, String::new());
    let bad = |reason: &'static Reason, text: String| Finding {
        stops: reason.stops.max(Stops::Nothing),
        ..finding(name, Level::Warning, reason, text)
    };
    let used = pool.policies.each().into_iter();
    let older = used.filter_map(|(field, used)| {
        let refusal = around.known.refusals.get(&used.policy.name)?;
        let is_older = matches!(refusal.instead, Instead::LastGood | Instead::Earlier);
        is_older.then(|| format!("spec.policies.{field}: {refusal}"))
    });
    let older: Vec<String> = older.collect();
    if !older.is_empty() {
        return bad(&reasons::POLICY_OUTDATED, together(older));
    }
    let all: Vec<_> = of_pool(pool, around).collect();
    let down = all.iter().filter(|(_, judged)| is_down(judged));
    let down: Vec<_> = down.copied().collect();
    // Of the only one, the condition Ready speaks.
    if down.is_empty() || all.len() < 2 {
        return well(&reasons::NOT_DEGRADED);
    }
    let finding = bad(&reasons::CLUSTER_NOT_READY, in_words(&down));
    finding.following(down.iter().map(|(_, it)| *it))
}

/// A pause is as somebody wishes, unless pods wait for it.
fn paused(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Finding {
    if !pool.paused {
        return finding(name, Level::Ok, &reasons::NOT_PAUSED, String::new());
    }
    let text = "kproxide starts no launch and no removal in this NodePool. To go on, set spec.paused to false and take the annotation kproxide.dev/pause off";
    let finding = finding(name, level(name, around), &reasons::PAUSED, text.to_owned());
    finding.typing(unpause(name))
}

/// Spec or annotation may have paused it, and each command does nothing where the other one has.
pub fn unpause(name: &PoolName) -> Vec<String> {
    vec![
        format!("kubectl annotate nodepool {name} {}-", keys::PAUSE),
        format!(
            "kubectl patch nodepool {name} --type merge --patch '{{\"spec\":{{\"paused\":false}}}}'"
        ),
    ]
}

/// It matters once pods wait for machines of the pool.
fn level(name: &PoolName, around: &Around<'_>) -> Level {
    match around.kept_waiting.contains(name) {
        true => Level::Warning,
        false => Level::Ok,
    }
}

fn limit(name: &PoolName, pool: &PoolFacts, around: &Around<'_>) -> Finding {
    let world = around.world;
    let reached = |reason: &'static Reason, field: &str| {
        let message = format!(
            "kproxide makes no more machines, because {field} of this NodePool is reached. If pods wait, set it higher"
        );
        // One that may have no machine at all helps no pod.
        let level = match pool.limits.max_nodes {
            0 => Level::Warning,
            _ => level(name, around),
        };
        finding(name, level, reason, message)
    };
    match limit_reached(world, name) {
        Some(Limit::Machines { .. }) => reached(&reasons::MAX_NODES, "limits.maxNodes"),
        Some(Limit::MilliCores { .. }) => reached(&reasons::CPU_CORES, "limits.cpuCores"),
        Some(Limit::MemoryBytes { .. }) => reached(&reasons::MEMORY, "limits.memoryMiB"),
        Some(Limit::Vmids(_) | Limit::Addresses) | None
            if addresses_used_up(world, &pool.node_class) =>
        {
            let class = &pool.node_class;
            let rested = addresses_rested(world, class, around.known.now);
            if rested > 0 {
                let text = format!(
                    "no address of the ipPool of NodeClass {class} is free. kproxide takes those again that have rested longest, at least an hour: {rested} of them now. Add a range"
                );
                return finding(name, Level::Warning, &reasons::ADDRESSES_REUSED, text);
            }
            let text = format!(
                "the ipPool of NodeClass {class} has no free address. Add a range, or wait: an hour after its machine is gone kproxide takes an address again, if no other is free"
            );
            finding(name, level(name, around), &reasons::ADDRESSES, text)
        }
        Some(Limit::Vmids(_) | Limit::Addresses) | None => {
            finding(name, Level::Ok, &reasons::BELOW_LIMITS, String::new())
        }
    }
}

/// A plan on an outdated Ledger may call a mark foreign that another leader has written. So only what the present
/// Ledger says counts.
pub fn is_known(anchor: &AnchorReport, world: &World) -> bool {
    let mut rows = world.ledger().into_iter().flat_map(|it| &it.anchors);
    anchor.trouble != AnchorTrouble::Foreign
        || rows.any(|row| row.cluster == anchor.cluster && row.foreign.is_some())
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
mod tests;
