//! What the controller has written into the conditions of our objects, as findings again: for whoever cannot ask the controller.

use kproxide_planner::ids::PoolName;
use kproxide_planner::plan::report::Report;

use crate::manifest::Object;
use kproxide_controller::judge::reasons::{READY_CONDITION, TOKEN_FITS_CONDITION};
use kproxide_controller::judge::{
    Finding, Group, Level, Stops, kept_waiting, named, reasons, unpause,
};
use kproxide_kube::crd::{ConditionStatus, StatusCondition};

/// `report`: of a plan that was made from what is seen.
pub(crate) fn of_conditions(object: &Object, report: &Report) -> Vec<Finding> {
    let group = match object.kind() {
        "ProxmoxCluster" => Group::Proxmox,
        _ => Group::Configuration,
    };
    let conditions = object.value["status"]["conditions"].clone();
    let conditions: Vec<StatusCondition> = serde_json::from_value(conditions).unwrap_or_default();
    let waits = kept_waiting(report).contains(&PoolName::from(object.name()));
    let condition_of = object.name();
    let found = conditions.iter().filter_map(|condition| {
        // One of another release may be unknown here.
        let reason = reasons::of(&condition.reason)?;
        let level = level(condition, reason.stops, waits);
        let object = named(object.kind(), object.name());
        let finding = Finding::new(level, group, object, reason, &*condition.message);
        // A condition has no commands. Those of a pause and of a freeze are known all the same.
        let commands = if *reason == reasons::PAUSED {
            unpause(&PoolName::from(condition_of))
        } else if *reason == reasons::FROZEN {
            let frozen = report.frozen.as_ref();
            frozen.map_or_else(Vec::new, |it| it.commands.clone())
        } else {
            Vec::new()
        };
        let since = condition.last_transition_time.parse().ok();
        Some(Finding {
            since,
            ..finding.typing(commands)
        })
    });
    found.collect()
}

fn level(condition: &StatusCondition, stops: Stops, waits: bool) -> Level {
    // Of these, False is the bad news.
    let is_positive = [READY_CONDITION, TOKEN_FITS_CONDITION].contains(&&*condition.kind);
    let is_bad = match condition.status {
        ConditionStatus::True => !is_positive,
        ConditionStatus::False => is_positive,
        ConditionStatus::Unknown => false,
    };
    match (is_bad, &*condition.kind == READY_CONDITION, stops) {
        (false, ..) => Level::Ok,
        // As somebody wishes: it is deleted.
        (true, true, Stops::Nothing) => Level::Warning,
        (true, true, _) => Level::Error,
        // A pool that is paused or full, which matters once pods wait.
        (true, false, Stops::All | Stops::Launches) if !waits => Level::Ok,
        (true, false, _) => Level::Warning,
    }
}
