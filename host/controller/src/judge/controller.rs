//! What keeps the controller itself from removing machines.

use kproxide_planner::world::World;

use super::{Finding, Group, reasons};

pub(super) fn check(world: &World) -> Vec<Finding> {
    let host = world.host();
    let clock = host
        .clock_problem
        .as_ref()
        .map(|problem| Finding::error(Group::Kubernetes, "Clock", &reasons::CLOCK_OFF, problem));
    let watches = (!host.failing_watches.is_empty()).then(|| {
        let message = format!(
            "the watch of {} fails, so kproxide removes nothing",
            host.failing_watches.join(", ")
        );
        Finding::error(Group::Kubernetes, "Watches", &reasons::WATCH_FAILS, message)
    });
    clock.into_iter().chain(watches).collect()
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{Delta, HostFacts};

    use super::*;
    use crate::judge::Stops;

    #[test]
    fn a_wrong_clock_and_a_watch_that_fails_stop_removals() {
        let said = |clock: Option<&str>, watches: &[&str]| {
            let mut world = World::default();
            world.apply(Delta::Host(HostFacts {
                clock_problem: clock.map(str::to_owned),
                failing_watches: watches.iter().map(|it| (*it).to_owned()).collect(),
                ..HostFacts::default()
            }));
            let found = check(&world).into_iter();
            let found = found.map(|it| (it.reason.word, it.stops, it.after, it.message));
            found.collect::<Vec<_>>()
        };
        assert_eq!(said(None, &[]), []);
        let clock = ("ClockOff", Stops::Removals, 0, "2 minutes".to_owned());
        let text = "the watch of nodes, pods fails, so kproxide removes nothing".to_owned();
        let watches = ("WatchFails", Stops::Removals, 60, text);
        assert_eq!(
            said(Some("2 minutes"), &["nodes", "pods"]),
            [clock, watches]
        );
    }
}
