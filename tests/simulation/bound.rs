//! How long a world may take to come to rest after its last fault and its last change of load: computed from what it is made of, so that a run that takes longer
//! than anything in it explains is a failure (L1, L2, L4).
//!
//! ```text
//! bound = looks + pause + rounds up × (launch + join) + rounds down × (drain + end) + people
//! ```
//!
//! Those that the last load needs come up side by side, as many at a time as there are hypervisors; of a pool as many go at a time as its budget says, and of
//! all pools one is repaired in ten minutes. Pauses, repairs and people take time only where something is planned that leads to them.

use std::time::Duration;

use crate::plan::FaultPlan;
use crate::scenario::{Act, Scenario};

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Ticks until something that only needs to be seen is seen.
const LOOKS: u32 = 3;
/// The longest pause of a hypervisor after failures.
const PAUSE: Duration = minutes(30);
/// A launch is given up after so long (`timeouts.provision` and `timeouts.join` of a class, by default).
const LAUNCH: Duration = minutes(5);
const JOIN: Duration = minutes(10);
/// Their `drainTimeout`, a machine that does not shut down, and one destroy.
const DRAIN: Duration = minutes(10);
const END: Duration = minutes(3);
/// Between two repairs.
const REPAIR: Duration = minutes(10);
/// Until somebody answers what is asked of people, or an anchor has been seen for long enough.
const PEOPLE: Duration = minutes(15);

pub(crate) fn bound(scenario: &Scenario, plan: &FaultPlan) -> Duration {
    let pools = 0..scenario.pools.len();
    let needed: u32 = pools.map(|pool| scenario.machines_needed(pool)).sum();
    let up = needed.div_ceil(scenario.hypervisors);
    let machines: u32 = scenario.pools.iter().map(|pool| pool.max_nodes).sum();
    let happens = |act: &Act| matches!(act, Act::Silence | Act::Incident(_));
    let breaks = !plan.mishaps.is_empty() || scenario.steps.iter().any(|step| happens(&step.act));
    let of_pool = scenario
        .pools
        .iter()
        .map(|pool| pool.max_nodes.div_ceil(pool.budget));
    let down = of_pool.max().unwrap_or(0);
    let repairs = if breaks {
        REPAIR * machines
    } else {
        Duration::ZERO
    };
    let going = ((DRAIN + END) * down).max(repairs);
    let asks_people = breaks || scenario.flags.anchor;
    let people = if asks_people { PEOPLE } else { Duration::ZERO };
    let goes_wrong = breaks || !plan.until.is_zero() || !plan.splits.is_empty();
    let pause = if goes_wrong { PAUSE } else { Duration::ZERO };
    // A Node may go so long after it is not needed any more.
    let rules = scenario.pools.iter().map(|pool| pool.rules);
    let unneeded = rules
        .clone()
        .map(|it| it.stabilization + it.min_node_age + it.unneeded_time);
    let waits = unneeded.max().unwrap_or(0) + rules.map(|it| it.window).max().unwrap_or(0);
    let waits = Duration::from_secs(waits.into());
    scenario.flags.poll_interval * LOOKS + pause + (LAUNCH + JOIN) * up + waits + going + people
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Step;
    use crate::stories::{FULL, world};

    #[test]
    fn the_bound_follows_from_the_world() {
        let load = Step {
            at: Duration::ZERO,
            act: Act::Load(vec![3 * FULL]),
        };
        let mut scenario = world(1, "spread", vec![load]);
        scenario.flags.poll_interval = Duration::from_secs(10);
        let mut plan = FaultPlan::none();
        // Three machines on two hypervisors; of four one goes at a time.
        let two_rounds_up = Duration::from_secs(30) + minutes(2 * 15);
        let four_rounds_down = Duration::from_secs(270) + minutes(4 * 13);
        assert_eq!(bound(&scenario, &plan), two_rounds_up + four_rounds_down);

        plan.until = minutes(1);
        scenario.hypervisors = 3;
        let one_round_up = two_rounds_up - minutes(15) + PAUSE;
        assert_eq!(bound(&scenario, &plan), one_round_up + four_rounds_down);

        scenario.pools[0].budget = 4;
        scenario.steps.push(Step {
            at: Duration::ZERO,
            act: Act::Silence,
        });
        let repairs = Duration::from_secs(270) + minutes(4 * 10);
        assert_eq!(bound(&scenario, &plan), one_round_up + repairs + PEOPLE);
    }
}
