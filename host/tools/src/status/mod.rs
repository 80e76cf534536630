//! `kproxide status`: one screen of what there is, what is on its way, and what a person has to do first.
//!
//! [`Screen::of`] makes it of what was seen, without I/O. [`Text`] draws it. What is wrong is not judged here: it is what
//! the one judge says ([`kproxide_controller::judge`]).

mod order;
mod rows;
mod text;

use jiff::Timestamp;
use kproxide_planner::plan::Plan;
use serde::Serialize;

use crate::manifest::Object;
use crate::whatif::{Answer, NodeLine, Outcome, Pending, Scene};
use kproxide_common::decisions::Decision;
use kproxide_controller::judge::{Finding, Level};

pub use text::{Look, Text};

/// What the screen is made of.
pub struct Seen<'a> {
    pub scene: &'a Scene,
    pub plan: &'a Plan,
    /// The last answer of a policy last.
    pub decisions: &'a [Decision],
    /// ProxmoxClusters, NodeClasses and NodePools as the API server stores them, with their conditions.
    pub objects: &'a [Object],
    /// What is so, as the controller says, or as far as somebody else can see it. And why something is not seen: no replica leads, say.
    pub findings: Vec<Finding>,
    /// Who said it, such as `pod kproxide/kproxide-0`.
    pub source: String,
    /// The plan is not the controller's: it says what the controller would do.
    pub is_computed: bool,
}

/// Stable: fields may be added, and none changes its meaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Screen {
    /// `kproxide.dev/v1alpha1`.
    pub api_version: &'static str,
    /// `Status`.
    pub kind: &'static str,
    /// What stops most, or that all is well.
    pub answer: String,
    /// The worst of `troubles`. Pods without help are a warning.
    pub level: Level,
    /// The moment of the plan.
    pub at: Timestamp,
    pub source: String,
    /// The controller did not say it: launches and removals are what it would do, if it ran.
    pub computed: bool,
    /// What is wrong. The first one is what to mend first.
    pub troubles: Vec<Finding>,
    /// What may end by itself, and is a trouble if it lasts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub soon: Vec<Finding>,
    pub pools: Vec<Pool>,
    /// What decides for the pools, as the controller has said.
    pub policies: Vec<Policy>,
    pub hypervisors: Vec<Hypervisor>,
    /// Machines that come or go.
    pub machines: Vec<Machine>,
    pub pending: Vec<Pending>,
    /// Nodes that kproxide removes.
    pub removals: Vec<NodeLine>,
    /// Nodes of kproxide that stay, each with the reason.
    pub kept: Vec<NodeLine>,
    /// The last answers of policies about machines, the last first.
    pub decisions: Vec<Decided>,
    /// What the input does not say, and what was taken for it.
    pub assumed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub name: String,
    pub machines: usize,
    /// In service, with a Ready Node.
    pub ready: usize,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub cpu_cores: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_cores: Option<u64>,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    #[serde(rename = "maxMemoryMiB", skip_serializing_if = "Option::is_none")]
    pub max_memory_mib: Option<u64>,
    /// `Ready`, or the reasons why not all goes on, such as `Paused` or `Frozen`. `NotJudgedYet`: the controller has not
    /// said.
    pub state: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    pub pool: String,
    /// `hostSelection`, `scaleDown` or `labels`.
    pub kind: String,
    pub name: String,
    /// Not given: nothing of that name answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where its file lies. Not given: it is built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What went wrong with it last, and when that was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_time: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hypervisor {
    pub cluster: String,
    pub name: String,
    /// `online`, `offline`, `maintenance`, `draining` or `drained` if it is to be emptied, or `unknown`: its cluster does not answer.
    pub state: &'static str,
    /// Machines of kproxide, those that come or go included.
    pub machines: usize,
    /// For so long its cluster gives no answer. Not given: it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<i64>,
    /// No machine of any size fits, although cores and memory may be free: `storage full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<&'static str>,
    /// Not given: Proxmox was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<HypervisorSize>,
}

/// Given is what the guests of the hypervisor may use, free what kproxide may still give to machines: overcommit,
/// reserves and machines on their way are reckoned in.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorSize {
    pub cpu_cores: u64,
    pub cpu_cores_given: u64,
    pub cpu_cores_free: u64,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    #[serde(rename = "memoryGivenMiB")]
    pub memory_given_mib: u64,
    #[serde(rename = "memoryFreeMiB")]
    pub memory_free_mib: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    pub claim: String,
    pub pool: String,
    pub cluster: String,
    pub hypervisor: String,
    pub phase: String,
    /// When its launch or its removal began.
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    pub at: Timestamp,
    pub pool: String,
    pub what: String,
}

impl Screen {
    pub fn of(seen: Seen<'_>) -> Self {
        let Seen {
            scene,
            plan,
            decisions,
            objects,
            findings,
            source,
            is_computed,
        } = seen;
        let world = &scene.world;
        let Answer {
            summary,
            pending,
            removals,
            kept,
            ..
        } = Answer::of(scene, plan);
        let said = order::Said::of(objects, scene.now);
        let (troubles, soon) = order::ordered(&findings, world, &plan.report, &said);
        let keeping = order::keeping(world, &plan.report);
        let pods = pending.iter().filter(|row| row.outcome == Outcome::NoHelp);
        let example = pods.flat_map(|row| row.pods.first()).next();
        let unhelped = (summary.pods_without_help, example.map(String::as_str));
        let answer = order::answer(&troubles, &soon, &keeping, unhelped, scene.now);
        let level = troubles
            .iter()
            .map(|it| it.level)
            .max()
            .unwrap_or(Level::Ok);
        let level = match summary.pods_without_help {
            0 => level,
            _ => level.max(Level::Warning),
        };
        Self {
            api_version: "kproxide.dev/v1alpha1",
            kind: "Status",
            answer,
            level,
            at: scene.now,
            source,
            computed: is_computed,
            pools: rows::pools(world, &findings, &said),
            policies: rows::policies(objects),
            hypervisors: match scene.assumes_hypervisors {
                false => rows::hypervisors(world, &findings, scene.now),
                true => rows::hypervisors_named(world, objects),
            },
            machines: rows::machines(world),
            decisions: rows::decided(decisions),
            troubles,
            soon,
            pending,
            removals,
            kept,
            assumed: scene.assumed.clone(),
        }
    }
}
