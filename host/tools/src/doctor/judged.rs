//! What the controller would say of what doctor has read.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::ids::ClusterName;
use kproxide_planner::planning::{Limits, Planning};
use kproxide_planner::world::World;

use super::Sources;
use super::proxmox::Look;
use kproxide_controller::judge::{self, Finding, Known, Level, Reason, named, reasons};
use kproxide_controller::reporter::policies;
use kproxide_policy::Budget;

pub(super) async fn judge(
    sources: &Sources,
    world: &World,
    looks: &[Look],
    key_problem: Option<&String>,
    sees_books: bool,
) -> Vec<Finding> {
    // No policy is asked but for its settings: what they would answer keeps nobody from making machines.
    let used = policies::used(world);
    let mut budget = Budget::default();
    let unfit = sources.policies.judge(used, &mut budget).await;
    let now = sources.clock.now();
    let plan = Planning::new(world, now, Limits::default()).finish();
    let lacking = looks.iter();
    let lacking = lacking.filter_map(|look| Some((look.name.clone(), look.lacking.clone()?)));
    let excess = looks.iter();
    let excess = excess.filter_map(|look| Some((look.name.clone(), look.excess.clone()?)));
    let known = Known {
        report: &plan.report,
        key_problem,
        lacking: &lacking.collect(),
        excess: &excess.collect(),
        unused: &BTreeMap::new(),
        join_problems: &join_problems(sources, world),
        refusals: &sources.policies.refusals(),
        unfit: &unfit,
        held_up: &BTreeMap::new(),
        sees_books,
        now,
    };
    let mut findings = judge::judge(world, &known);
    findings.retain(|it| {
        let is_said = |reason: &Reason| *it.reason == *reason;
        // What an endpoint's own finding says already.
        let of_endpoints =
            is_said(&reasons::UNREACHABLE) || is_said(&reasons::CERTIFICATE_UNTRUSTED);
        let by_endpoint = of_endpoints && endpoints_fail(looks, &it.object);
        is_shown(it) && !by_endpoint
    });
    findings
}

fn endpoints_fail(looks: &[Look], object: &str) -> bool {
    let is_it = |name: &ClusterName| named("ProxmoxCluster", name) == object;
    looks
        .iter()
        .any(|look| look.endpoints_fail && is_it(&look.name))
}

/// What is wrong, and that an object is well.
fn is_shown(finding: &Finding) -> bool {
    match finding.level {
        Level::Ok => *finding.reason == reasons::READY,
        Level::Warning | Level::Error => finding.is_trouble(),
    }
}

/// Why join scripts cannot be read, if they can be looked for here.
fn join_problems(sources: &Sources, world: &World) -> BTreeMap<Arc<str>, String> {
    let files = world.classes().values();
    let files = files.filter_map(|class| class.join.script().cloned());
    let problem = |file: Arc<str>| {
        let read = sources.scripts.read(&file)?;
        Some((file, read.err()?))
    };
    files.filter_map(problem).collect()
}
