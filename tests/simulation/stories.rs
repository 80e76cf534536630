//! The eight stories whose every effect is struck by every blow ([`crate::systematic`]): small worlds in which one thing is done.

use std::time::Duration;

use kproxide_simulator::rng::Seed;

use crate::incidents::{Incident, Vanishing};
use crate::scenario::{Act, App, Flags, MEMORY_GIB, Pool, Rules, Scenario, Step, TRAP, foreign};

/// A world, and what is done in it.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) scenario: Scenario,
    /// What is asked for before is preparation, and is not struck.
    pub(crate) begins: Duration,
    /// Kinds of effects that there must be: without them it is another story.
    pub(crate) has: &'static [&'static str],
    /// And kinds of effects that there must not be.
    pub(crate) has_not: &'static [&'static str],
    /// Whether in some of its plans a second thing goes wrong.
    pub(crate) in_pairs: bool,
}

/// Pods that fill one machine.
pub(crate) const FULL: u32 = 8;
const POD_MILLI_CORES: u32 = 500;
const HYPERVISORS: u32 = 2;
const LOAD: Duration = Duration::from_secs(20);
/// Mostly nothing happens in a story. With kproxide's default of ten seconds all stories together take nearly twice as long to compute.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// By then what was asked for at [`LOAD`] is in service.
const PREPARED: Duration = Duration::from_secs(10 * 60);

/// A machine is drained and shut down in less.
const DYING: Duration = Duration::from_secs(5 * 60);

const UP: &[&str] = &[
    "write ledger",
    "create claim",
    "write intent",
    "clone",
    "config",
    "resize",
    "start",
    "patch node",
];
const DOWN: &[&str] = &[
    "patch node",
    "evict",
    "delete claim",
    "config",
    "shutdown",
    "destroy",
    "delete node",
    "write ledger",
    "remove finalizer",
];
const UP_AND_DOWN: &[&str] = &[
    "create claim",
    "clone",
    "start",
    "delete claim",
    "destroy",
    "delete node",
    "remove finalizer",
];

const ADOPTION: &[&str] = &["create claim", "write intent", "write status"];
const CONDEMNATION: &[&str] = &["write ledger", "create claim", "destroy"];

impl Story {
    pub(crate) fn all() -> [Story; 8] {
        let mut all = [
            Story::scale_up(),
            Story::removal(),
            Story::repair(),
            Story::fallback(),
            Story::adoption(),
            Story::condemnation(),
            Story::loss(),
            Story::impostor(),
        ];
        for story in &mut all {
            story.scenario.flags.poll_interval = POLL_INTERVAL;
        }
        all
    }

    /// Pods come, and a machine for them.
    fn scale_up() -> Self {
        Self {
            name: "scale-up",
            scenario: world(1, "spread", vec![load(LOAD, FULL)]),
            begins: Duration::ZERO,
            has: UP,
            has_not: &[],
            in_pairs: true,
        }
    }

    /// Of two machines that were full each keeps a few pods; those of one fit on the other.
    fn removal() -> Self {
        let left = FULL - 2;
        let steps = vec![load(LOAD, 2 * FULL), load(PREPARED, left)];
        Self {
            name: "removal",
            scenario: world(2, "spread", steps),
            begins: PREPARED,
            has: DOWN,
            has_not: &[],
            in_pairs: true,
        }
    }

    /// A Node falls silent for good and is replaced.
    fn repair() -> Self {
        let silence = Step {
            at: PREPARED,
            act: Act::Silence,
        };
        Self {
            name: "repair",
            scenario: world(3, "spread", vec![load(LOAD, FULL), silence]),
            begins: PREPARED,
            has: UP_AND_DOWN,
            has_not: &[],
            in_pairs: false,
        }
    }

    /// The host-selection policy traps, the built-in one stands in, a machine is made; later the policy is mended.
    fn fallback() -> Self {
        let mend = Step {
            at: PREPARED,
            act: Act::Mend,
        };
        Self {
            name: "fallback",
            scenario: world(4, TRAP, vec![load(LOAD, FULL), mend]),
            begins: Duration::ZERO,
            has: UP,
            has_not: &[],
            in_pairs: false,
        }
    }

    /// The claim of a machine in service vanishes, finalizer and all; the machine gets another one.
    fn adoption() -> Self {
        let vanishes = vanishes(Vanishing::Serving);
        Self {
            name: "adoption",
            scenario: world(5, "spread", vec![load(LOAD, FULL), vanishes]),
            begins: PREPARED,
            has: ADOPTION,
            has_not: &["clone", "destroy"],
            in_pairs: false,
        }
    }

    /// The claim of a machine that is being removed, and off, vanishes; what is left is destroyed after its grace. (Until it vanishes this is `removal`.)
    fn condemnation() -> Self {
        let left = FULL - 2;
        let steps = vec![
            load(LOAD, 2 * FULL),
            load(PREPARED, left),
            vanishes(Vanishing::Dying),
        ];
        Self {
            name: "condemnation",
            scenario: world(6, "spread", steps),
            begins: PREPARED + DYING,
            has: CONDEMNATION,
            has_not: &[],
            in_pairs: false,
        }
    }

    /// As in `adoption`, and the Ledger is lost too.
    fn loss() -> Self {
        let lost = incident(PREPARED, Incident::LedgerLost);
        let vanishes = vanishes(Vanishing::Serving);
        Self {
            name: "loss",
            scenario: world(8, "spread", vec![load(LOAD, FULL), lost, vanishes]),
            begins: PREPARED,
            has: ADOPTION,
            has_not: &["clone", "destroy"],
            in_pairs: false,
        }
    }

    /// A machine is removed, and its row by hand; somebody runs a VM with its marker. Then the claim of another machine vanishes, and that one is taken back.
    fn impostor() -> Self {
        let begins = PREPARED + 2 * DYING;
        let steps = vec![
            load(LOAD, 2 * FULL),
            load(PREPARED, FULL - 2),
            incident(PREPARED, Incident::Impostor(false)),
            incident(begins, Incident::Vanish(Vanishing::Serving)),
        ];
        Self {
            name: "impostor",
            scenario: world(9, "spread", steps),
            begins,
            has: ADOPTION,
            has_not: &["clone", "destroy"],
            in_pairs: false,
        }
    }
}

pub(crate) fn world(seed: u64, host_selection: &'static str, steps: Vec<Step>) -> Scenario {
    let mut rng = Seed(seed).stream("simulation", "story");
    Scenario {
        seed,
        hypervisors: HYPERVISORS,
        memory_gib: MEMORY_GIB,
        roomy: true,
        pools: vec![Pool {
            name: "workers",
            max_nodes: 4,
            budget: 1,
            host_selection,
            selected: true,
            rules: Rules::PLAIN,
        }],
        apps: vec![App {
            name: "web".to_owned(),
            pool: 0,
            milli_cores: POD_MILLI_CORES,
            budgeted: true,
            alone: None,
            volume: false,
        }],
        steps,
        foreign: foreign(HYPERVISORS, &mut rng),
        flags: Flags::default(),
        quarantine: None,
        slow_clones: None,
        encore: Vec::new(),
        per_hypervisor: None,
        clones: [2, 2],
    }
}

fn load(at: Duration, pods: u32) -> Step {
    Step {
        at,
        act: Act::Load(vec![pods]),
    }
}

fn vanishes(when: Vanishing) -> Step {
    incident(PREPARED, Incident::Vanish(when))
}

fn incident(at: Duration, what: Incident) -> Step {
    Step {
        at,
        act: Act::Incident(what),
    }
}
