//! Small worlds for mistakes ([`crate::broken`]): each brings about the one moment in which a certain mistake would show, and passes without one.

use std::time::Duration;

use kproxide_simulator::faults::Moment;

use crate::check::{Checked, check};
use crate::incidents::{Incident, Vanishing};
use crate::plan::{CutOff, FaultPlan, HostPlan, Life, Split};
use crate::scenario::{Act, MEMORY_MIB, Scenario, Step, TRAP};
use crate::stories::{FULL, world};

/// A world, and what happens in it.
pub(crate) struct Scene {
    scenario: Scenario,
    plan: FaultPlan,
    /// Machines that are made, at most.
    most: usize,
    /// Without it, the scene is about nothing.
    meets: Option<(&'static str, &'static str)>,
}

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// The machine that a load no longer needs has its taint by then, so long after the minute of the load, and is not drained yet.
const TAINTED: Duration = Duration::from_millis(52_000);
/// Loads come so long after their minute.
const LOAD: Duration = Duration::from_secs(20);
/// Of the effects of a process that makes its first machine.
const CLONE: u64 = 12;
/// By then what was asked for first is in service.
const READY: Duration = minutes(10);

impl Scene {
    pub(crate) const NAMES: [&'static str; 17] = [
        "slow-clone",
        "cleared-clone",
        "drain-given-up",
        "leftover-volumes",
        "two-silent-nodes",
        "all-silent",
        "swapped-machine",
        "impostor",
        "vanished-in-service",
        "vanished-young",
        "vanished-dying",
        "vanished-off",
        "hypervisor-down",
        "no-quorum",
        "kept",
        "refused",
        "misplaced",
    ];

    /// One of [`Self::NAMES`]; any other name is the last.
    pub(crate) fn named(name: &str) -> Self {
        let (one, two) = (FULL, 2 * FULL);
        // Of two machines that were full one is enough for this.
        let less = FULL - 2;
        match name {
            // The next process sees the clone by its VMID alone: its token does not see the machine yet.
            "slow-clone" => {
                let mut scene = Self::new(vec![load(0, one)], 1);
                scene.scenario.slow_clones = Some(minutes(1));
                scene.dies_at_its_clone()
            }
            // The next process finds the intent, and nothing of the clone.
            "cleared-clone" => {
                let steps = vec![load(0, one), after(LOAD, Incident::CloneCleared)];
                let mut scene = Self::new(steps, 2);
                scene.scenario.slow_clones = Some(minutes(1));
                scene.dies_at_its_clone()
            }
            "drain-given-up" => {
                let needed_again = Step {
                    at: minutes(10) + TAINTED,
                    act: Act::Load(vec![two]),
                };
                Self::new(vec![load(0, two), load(10, less), needed_again], 2)
            }
            "leftover-volumes" => Self::new(
                vec![
                    load(0, two),
                    after(READY, Incident::DisksStick),
                    load(10, less),
                    after(minutes(40), Incident::VolumesFreed),
                ],
                2,
            ),
            "two-silent-nodes" => {
                let mut scene = Self::new(vec![load(0, two), after(READY, Incident::Silent(2))], 4);
                scene.scenario.pools[0].budget = 2;
                scene.plan.hosts.push(HostPlan {
                    starts: Duration::from_secs(3),
                    ..HostPlan::default()
                });
                // The first repair has begun by then, ten minutes after the Nodes ceased to be Ready, two minutes at most after they fell silent.
                let at = READY + minutes(14);
                scene.plan.splits.push(Split {
                    at,
                    length: Duration::from_secs(40),
                    from: CutOff::Lease,
                    lease_moves: true,
                });
                scene.plan.until = at + minutes(1);
                scene
            }
            "all-silent" => {
                let steps = vec![
                    load(0, 5 * FULL),
                    after(READY, Incident::Silent(5)),
                    after(minutes(40), Incident::PowerCycle),
                ];
                // As soon as most are Ready again those that are not yet may be repaired.
                let mut scene = Self::new(steps, 10);
                // Pods that wait must not get machines: then it would not be most of them that are bad.
                scene.scenario.pools[0].max_nodes = 5;
                scene
            }
            "swapped-machine" => Self::new(
                vec![load(0, two), load(10, less), after(READY, Incident::Swap)],
                2,
            ),
            "impostor" => {
                let steps = vec![
                    load(0, two),
                    load(10, less),
                    after(READY, Incident::Impostor(true)),
                ];
                let mut scene = Self::new(steps, 2);
                scene.scenario.quarantine = Some(minutes(5));
                scene
            }
            "vanished-in-service" => Self::new(
                vec![
                    load(0, one),
                    after(READY, Incident::Vanish(Vanishing::Serving)),
                ],
                1,
            ),
            // After the cold start.
            "vanished-young" => Self::new(
                vec![
                    load(2, one),
                    after(minutes(2), Incident::Vanish(Vanishing::Started)),
                ],
                // Until its Node is Ready nobody knows whether the machine will serve: its pods get another one.
                2,
            ),
            "vanished-dying" => {
                let steps = vec![
                    load(0, two),
                    after(READY, Incident::EmptyHypervisorDown),
                    load(10, less),
                    after(READY, Incident::Vanish(Vanishing::Dying)),
                    // Longer than an orphan's grace.
                    after(minutes(110), Incident::HypervisorsUp),
                ];
                let mut scene = Self::new(steps, 2);
                scene.scenario.hypervisors = 3;
                scene
            }
            "vanished-off" => Self::new(
                vec![
                    load(0, two),
                    load(10, less),
                    after(READY, Incident::Vanish(Vanishing::Dying)),
                ],
                2,
            ),
            "hypervisor-down" => Self::new(
                vec![
                    load(0, one),
                    after(READY, Incident::DownAndDeleted),
                    after(READY + minutes(25), Incident::HypervisorsUp),
                ],
                2,
            ),
            "no-quorum" => Self::new(
                vec![
                    load(0, one),
                    after(READY, Incident::DestroyedWithoutQuorum),
                    after(READY + minutes(25), Incident::QuorumBack),
                ],
                2,
            ),
            "kept" => {
                let keep = |at: Duration, keep| Step {
                    at,
                    act: Act::Keep(keep),
                };
                let steps = vec![
                    load(0, two),
                    keep(READY, true),
                    load(11, 0),
                    keep(minutes(30), false),
                ];
                Self::new(steps, 2)
            }
            "refused" => {
                let refuses = |yes| Incident::SchedulerRefuses(yes);
                let steps = vec![
                    load(0, one),
                    after(Duration::ZERO, refuses(true)),
                    after(minutes(100), refuses(false)),
                ];
                // Tries after 0, 8, 21 and 44 minutes, and one when it is over.
                Self::new(steps, 7)
            }
            _ => {
                let mend = Step {
                    at: READY,
                    act: Act::Mend,
                };
                let steps = vec![
                    after(Duration::ZERO, Incident::PolicyMisplaces),
                    load(0, two),
                    mend,
                    // With room for one machine again, all is Ready at the end.
                    load(20, one),
                ];
                let mut scene = Self::new(steps, 2);
                scene.scenario.pools[0].host_selection = TRAP;
                // One machine of ours fits beside other people's, two do not fit at all.
                scene.scenario.memory_gib = 2 * MEMORY_MIB / 1024 - 2;
                scene
            }
        }
    }

    fn new(steps: Vec<Step>, most: usize) -> Self {
        Self {
            scenario: world(7, "spread", steps),
            plan: FaultPlan::none(),
            most,
            meets: None,
        }
    }

    /// The clone is asked for, and its answer lost with the process.
    fn dies_at_its_clone(mut self) -> Self {
        for host in &mut self.plan.hosts {
            host.lives.push(Life {
                effect: CLONE,
                moment: Moment::Applied,
                down: Duration::from_secs(1),
            });
        }
        self.plan.until = minutes(2);
        self.meets = Some(("clone", "died before the answer"));
        self
    }

    pub(crate) fn run(&self) -> Checked {
        let mut checked = check(&self.scenario, &self.plan);
        checked.came = checked.came.and_then(|outcome| {
            let made = outcome.machines_made;
            if made > self.most {
                return Err(format!(
                    "it made {made} machines, expected at most {}",
                    self.most
                ));
            }
            let met = |pair| outcome.traffic.iter().any(|of| of.met.contains_key(&pair));
            match self.meets {
                Some(pair) if !met(pair) => Err(format!("{pair:?} did not come about: see CLONE")),
                Some(_) | None => Ok(outcome),
            }
        });
        checked
    }
}

fn load(after_minutes: u64, pods: u32) -> Step {
    Step {
        at: minutes(after_minutes) + LOAD,
        act: Act::Load(vec![pods]),
    }
}

/// A little later than loads of the same minute.
fn after(at: Duration, incident: Incident) -> Step {
    Step {
        at: at + Duration::from_secs(if at.is_zero() { 5 } else { 21 }),
        act: Act::Incident(incident),
    }
}
