//! How long a world may take to come to rest after its last fault and its last change of load: computed from what it is made of, so that a run that takes longer
//! than anything in it explains is a failure (L1, L2, L4).
//!
//! ```text
//! bound = looks + pause + rounds up × (launch + join) + rounds down × (drain + end) + people
//! ```
//!
//! Machines come up side by side, as many at a time as there are hypervisors; of a pool as many go at a time as its budget says, and of all pools one is
//! repaired in ten minutes.

use std::time::Duration;

use crate::scenario::Scenario;

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
/// A Node may go so long after it is not needed any more: stabilization, age and unneeded time of the pools of these worlds.
const UNNEEDED: Duration = Duration::from_secs(120 + 120 + 30);
/// Their `drainTimeout`, a machine that does not shut down, and one destroy.
const DRAIN: Duration = minutes(10);
const END: Duration = minutes(3);
/// Between two repairs.
const REPAIR: Duration = minutes(10);
/// Until somebody answers what is asked of people, or an anchor has been seen for long enough.
const PEOPLE: Duration = minutes(15);

pub(crate) fn bound(scenario: &Scenario) -> Duration {
    let machines: u32 = scenario.pools.iter().map(|pool| pool.max_nodes).sum();
    let up = machines.div_ceil(scenario.hypervisors);
    let of_pool = scenario
        .pools
        .iter()
        .map(|pool| pool.max_nodes.div_ceil(pool.budget));
    let down = of_pool.max().unwrap_or(0);
    let going = ((DRAIN + END) * down).max(REPAIR * machines);
    scenario.flags.poll_interval * LOOKS + PAUSE + (LAUNCH + JOIN) * up + UNNEEDED + going + PEOPLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stories::world;

    #[test]
    fn the_bound_follows_from_the_world() {
        let mut scenario = world(1, "spread", Vec::new());
        scenario.flags.poll_interval = Duration::from_secs(10);
        // Four machines on two hypervisors, one of which goes at a time.
        let two_rounds_up = minutes(30) + Duration::from_secs(30) + minutes(2 * 15);
        let four_rounds_down = Duration::from_secs(270) + minutes(4 * 13);
        assert_eq!(bound(&scenario), two_rounds_up + four_rounds_down + PEOPLE);

        scenario.pools[0].budget = 4;
        scenario.hypervisors = 4;
        let repairs = Duration::from_secs(270) + minutes(4 * 10);
        let one_round_up = two_rounds_up - minutes(15);
        assert_eq!(bound(&scenario), one_round_up + repairs + PEOPLE);
    }
}
