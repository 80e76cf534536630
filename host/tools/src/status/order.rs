//! Which trouble comes first: what stops work, by what it stops, and whether pods wait for it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kproxide_planner::plan::report::Report;
use kproxide_planner::world::World;

use crate::manifest::Object;
use kproxide_controller::judge::reasons::READY_CONDITION;
use kproxide_controller::judge::{
    Finding, Level, Reason, Stops, kept_waiting, named, reasons, uses,
};

/// What is said by now: what was so for long enough, and what the object says of itself already. A new leader counts anew, and
/// an outage of yesterday is no news to anybody.
pub(super) struct Said {
    now: Timestamp,
    /// Of each object, whether its condition Ready is True.
    ready: BTreeMap<String, bool>,
}

impl Said {
    pub(super) fn of(objects: &[Object], now: Timestamp) -> Self {
        let ready = objects.iter().filter_map(|object| {
            let conditions = object.value["status"]["conditions"].as_array()?;
            let ready = conditions.iter().find(|it| it["type"] == READY_CONDITION)?;
            let is_ready = match ready["status"].as_str()? {
                "True" => true,
                "False" => false,
                _ => return None,
            };
            Some((named(object.kind(), object.name()), is_ready))
        });
        Self {
            now,
            ready: ready.collect(),
        }
    }

    pub(super) fn is_said(&self, finding: &Finding) -> bool {
        let is_of_ready = finding
            .condition()
            .is_some_and(|(kind, _)| kind == READY_CONDITION);
        let stands = is_of_ready && self.ready.get(&finding.object) == Some(&false);
        stands || finding.is_ripe(self.now)
    }

    pub(super) fn is_ready(&self, object: &str) -> bool {
        self.ready.get(object) == Some(&true)
    }
}

/// Those that are said now, the first one to mend first, and those that may end by themselves before they are said.
pub(super) fn ordered(
    findings: &[Finding],
    world: &World,
    report: &Report,
    by_now: &Said,
) -> (Vec<Finding>, Vec<Finding>) {
    let bad = findings.iter().filter(|it| it.is_trouble()).cloned();
    let (mut said, mut soon): (Vec<_>, Vec<_>) = bad.partition(|it| by_now.is_said(it));
    // What else is waited for is no silence, and mostly somebody is at work.
    let is_silence =
        |reason: &Reason| [&reasons::UNREACHABLE, &reasons::HYPERVISOR_SILENT].contains(&reason);
    soon.retain(|it| is_silence(it.reason));
    let keeping = keeping(world, report);
    said.sort_by(|a, b| {
        let by_rank = rank(a, &keeping).cmp(&rank(b, &keeping));
        let by_level = by_rank.then(b.level.cmp(&a.level));
        // The newest first: what stands there for weeks must not hide what has just happened.
        by_level
            .then(b.since.cmp(&a.since))
            .then(a.group.cmp(&b.group))
            .then_with(|| a.object.cmp(&b.object))
    });
    said.dedup();
    (said, soon)
}

/// What keeps pods waiting comes before all that only stops work.
pub(super) fn rank(finding: &Finding, keeping: &BTreeSet<String>) -> (bool, Stops) {
    (!keeps_pods(finding, keeping), finding.stops)
}

pub(super) fn keeps_pods(finding: &Finding, keeping: &BTreeSet<String>) -> bool {
    matches!(finding.stops, Stops::All | Stops::Launches) && keeping.contains(&finding.object)
}

/// The objects that stand between pods and a machine.
pub(super) fn keeping(world: &World, report: &Report) -> BTreeSet<String> {
    let mut keeping = BTreeSet::new();
    for name in kept_waiting(report) {
        if let Some(pool) = world.pools().get(&name) {
            keeping.insert(named("NodeClass", &pool.node_class));
            let clusters = world.clusters().keys().filter(|it| uses(pool, it));
            keeping.extend(clusters.map(|it| named("ProxmoxCluster", it)));
        }
        keeping.insert(named("NodePool", name));
    }
    keeping
}

/// What is said of several objects in the same words is one thing to mend.
pub(super) fn alike(troubles: &[Finding]) -> Vec<(Vec<&str>, &Finding)> {
    let mut all: Vec<(Vec<&str>, &Finding)> = Vec::new();
    for trouble in troubles {
        let same = all.iter_mut().find(|(_, other)| {
            (other.reason, &other.message, other.level)
                == (trouble.reason, &trouble.message, trouble.level)
        });
        match same {
            Some((objects, _)) => objects.push(&trouble.object),
            None => all.push((vec![&trouble.object], trouble)),
        }
    }
    all
}

/// All is well, or what stops most.
pub(super) fn answer(
    troubles: &[Finding],
    soon: &[Finding],
    keeping: &BTreeSet<String>,
    (unhelped, example): (u32, Option<&str>),
    now: Timestamp,
) -> String {
    let help = match unhelped {
        0 => None,
        1 => Some("1 pod gets no help".to_owned()),
        count => Some(format!("{count} pods get no help")),
    };
    let alike = alike(troubles);
    let silent = soon.first().map(|it| {
        let seconds = it
            .since
            .map_or(0, |since| now.duration_since(since).as_secs());
        format!("{} has not answered for {seconds} s", it.object)
    });
    let Some((objects, first)) = alike.first() else {
        return match (help, silent) {
            (Some(help), Some(silent)) => format!("{help}, and {silent}.{}", explained(example)),
            (Some(help), None) => format!("kproxide works, but {help}.{}", explained(example)),
            (None, Some(silent)) => format!("All is well, but {silent}."),
            (None, None) => "All is well.".to_owned(),
        };
    };
    let of_pool = first.object.starts_with("NodePool/");
    let what = match first.stops {
        Stops::All | Stops::Launches if of_pool => "A NodePool gets no machines",
        Stops::All => "Nothing is made or removed",
        Stops::Launches => "No machine is made",
        Stops::Removals => "No machine is removed",
        Stops::Machine => "Something is wrong with machines",
        Stops::Nothing | Stops::Follows => "kproxide works, but not all is well",
    };
    let first = format!("{} ({})", short(objects), first.reason.word);
    let mut rest = Vec::new();
    let more = &alike[1..];
    for (level, word) in [(Level::Error, "error"), (Level::Warning, "warning")] {
        match more.iter().filter(|(_, it)| it.level == level).count() {
            0 => {}
            1 => rest.push(format!("1 more {word}")),
            count => rest.push(format!("{count} more {word}s")),
        }
    }
    let rest = match rest.is_empty() {
        true => String::new(),
        false => format!(" And {}.", rest.join(", ")),
    };
    match help {
        Some(help) if keeps_pods(alike[0].1, keeping) => format!("{help}: {first}.{rest}"),
        Some(help) => format!("{help}.{} {what}: {first}.{rest}", explained(example)),
        None => format!("{what}: {first}.{rest}"),
    }
}

fn explained(example: Option<&str>) -> String {
    example.map_or(String::new(), |pod| {
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        format!(" `kproxide explain pod {name} --namespace {namespace}` says what helps.")
    })
}

/// The first few, and how many more.
pub(super) fn short(objects: &[&str]) -> String {
    match objects {
        [first, _, _, _, ..] => format!("{first} and {} more objects", objects.len() - 1),
        few => few.join(", "),
    }
}
