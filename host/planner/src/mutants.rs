//! Mistakes that somebody could make, built into the program to see that they are found: each [`Mutant`] is one, and at most one is switched on in a thread, by
//! [`switch`], in a build with the feature `mutants`. Without that feature [`broken`] is the constant `false`, and each
//! place is what it would be without a mistake.
//!
//! The simulation runs every one of them (`cargo broken`) and must catch it. Most of them are made outside of the program, where the simulation connects it to its
//! servers and sets it up (`tests/simulation/broken/edge.rs`). The code asks [`broken`] only where nothing outside can say it: what follows is what must never be.
//!
//! The switch is the only state of this crate outside of its arguments. It is set before a run begins and no decision writes it.

/// Declares the mistakes, each with its name on the command line and in the table.
macro_rules! mutants {
    ($($(#[doc = $what:literal])+ $mutant:ident = $name:literal,)+) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $($(#[doc = $what])+ $mutant,)+
        }

        impl Mutant {
            /// All of them, in the order of the table.
            pub const ALL: &[Mutant] = &[$(Mutant::$mutant,)+];

            /// `destroy-by-vmid`
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$mutant => $name,)+
                }
            }

            /// What is broken, in a sentence.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$mutant => concat!($($what),+),)+
                }
            }
        }
    };
}

mutants! {
    // Ownership.
    /// Any VM of the claim's VMID is the claim's.
    DestroyByVmid = "destroy-by-vmid",
    /// A VM with our tag has our marker.
    TrustTags = "trust-tags",
    /// The marker is not part of the clone request, so that a clone is not ours before it is configured.
    CloneUnmarked = "clone-unmarked",
    /// The proof that was made before the tombstone serves for shutdown, stop and destroy.
    StaleProof = "stale-proof",
    /// A VMID that was found taken is cleaned up like a clone of our own that failed.
    EexistCleanedUp = "eexist-cleaned-up",

    // The order of effects and records.
    /// The clone is asked for first, and the claim created when it has begun.
    ClaimAfterClone = "claim-after-clone",
    /// The intent is written once the effect has happened.
    IntentAfterEffect = "intent-after-effect",
    /// A clone is asked for again on the intent of the last time.
    CloneOnOldIntent = "clone-on-old-intent",
    /// The claim is let go when the destroy has begun.
    FinalizerEarly = "finalizer-early",
    /// The Node is deleted before its machine is stopped.
    NodeBeforeMachine = "node-before-machine",
    /// A machine is destroyed without a tombstone.
    NoTombstone = "no-tombstone",
    /// A machine is destroyed while it runs.
    DestroyRunning = "destroy-running",
    /// The Node of a machine that is gone is left behind.
    NodeLeft = "node-left",

    // What answers mean.
    /// A task that ends with WARNINGS has failed.
    WarningsAreErrors = "warnings-are-errors",
    /// A task that ends with WARNINGS is done, and nobody is told.
    WarningsAreOk = "warnings-are-ok",
    /// A request whose answer is lost, on the way or by a proxy (596), did not happen and is sent again.
    LostIsUndone = "lost-is-undone",
    /// A VMID that is taken while no task of ours is recorded belongs to somebody else.
    OwnCloneDisowned = "own-clone-disowned",
    /// A machine on a hypervisor that does not answer is gone.
    UnreachableIsGone = "unreachable-is-gone",
    /// What a cluster without quorum says is proof.
    QuorumIgnored = "quorum-ignored",
    /// A machine whose kubelet is silent is off.
    SilentIsOff = "silent-is-off",

    // The Ledger.
    /// What is reserved is kept in memory and not written.
    CountsInMemory = "counts-in-memory",
    /// A reservation whose claim was never made is kept.
    ReservationKept = "reservation-kept",
    /// A VMID is free again as soon as its machine is gone.
    NoQuarantine = "no-quarantine",

    // Leadership and time.
    /// Who has led once acts on, whoever leads now.
    NoFence = "no-fence",
    /// The Lease is taken from whoever holds it.
    LeaseStolen = "lease-stolen",
    /// A new leader removes machines at once.
    NoColdStart = "no-cold-start",
    /// What was counted of removals is forgotten when a term begins.
    BreakerInMemory = "breaker-in-memory",
    /// As many machines are repaired at once as are broken.
    RepairsUnlimited = "repairs-unlimited",
    /// Most machines going bad at once is no reason to wait.
    NoFreeze = "no-freeze",
    /// A machine that never joins is waited for without end.
    NoJoinDeadline = "no-join-deadline",

    // Drains.
    /// The pods of a Node are evicted in the moment in which it is tainted, without a second look.
    NoBarrier = "no-barrier",
    /// A Node that seems empty is not tainted before its claim is deleted.
    EmptyNotTainted = "empty-not-tainted",
    /// The claim is deleted without waiting for the Node's pods.
    PodsNotAwaited = "pods-not-awaited",
    /// A pod whose eviction a disruption budget refused (429) counts as evicted.
    RefusalIsSuccess = "refusal-is-success",
    /// Pods are deleted instead of evicted.
    PodsDeleted = "pods-deleted",
    /// Claims and Nodes are deleted by their names, whichever object has it now.
    DeletedByName = "deleted-by-name",
    /// A drain that is given up leaves the taint on its Node.
    TaintLeft = "taint-left",

    // Plans.
    /// A Node is removed although its pods fit nowhere else.
    PodsFitNowhere = "pods-fit-nowhere",
    /// A pool's budget of removals is not looked at.
    BudgetIgnored = "budget-ignored",
    /// A policy's choice of hypervisor is taken as it is.
    PolicyUnchecked = "policy-unchecked",
    /// More machines than a pool's limit.
    LimitIgnored = "limit-ignored",
    /// What a hypervisor has promised and uses is not looked at.
    RoomIgnored = "room-ignored",
    /// A claim is said to have been placed by a policy that was never asked.
    PolicyMisnamed = "policy-misnamed",
    /// A Node that people want kept is removed like any other.
    KeepIgnored = "keep-ignored",
    /// Machines are made without end for pods that do not use them.
    LoopsWithoutEnd = "loops-without-end",

    // What is told.
    /// Conditions count something, and are written each time.
    ConditionsCount = "conditions-count",

    // Orphans.
    /// A machine without a claim is removed without grace.
    GcWithoutGrace = "gc-without-grace",
    /// Machines without a claim are removed while a hypervisor does not answer.
    GcPartialList = "gc-partial-list",
    /// A machine without a claim is removed although its Node serves.
    GcServing = "gc-serving",
    /// What has our marker and no row in the Ledger comes back, however young its Node is.
    AgeIgnored = "age-ignored",
    /// A person's word for one marker counts for each marker at that VMID.
    WordWithoutNonce = "word-without-nonce",
    /// Machines without a claim are nobody's matter.
    OrphansIgnored = "orphans-ignored",
}

impl Mutant {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|mutant| mutant.name() == name)
    }
}

#[cfg(feature = "mutants")]
mod switched {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        /// A world and its hosts live on one thread: several of them, each with a mistake of its own, run side by side.
        static SWITCHED_ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches one mistake on, and whatever was on before off, in this thread. False: this build has none.
    pub fn switch(mutant: Option<Mutant>) -> bool {
        SWITCHED_ON.set(mutant);
        true
    }

    /// The mistake of this thread.
    pub fn switched_on() -> Option<Mutant> {
        SWITCHED_ON.get()
    }

    /// This mistake is switched on.
    pub fn broken(mutant: Mutant) -> bool {
        SWITCHED_ON.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use switched::{broken, switch, switched_on};

/// No mistake can be switched on in this build: false.
#[cfg(not(feature = "mutants"))]
pub const fn switch(_: Option<Mutant>) -> bool {
    false
}

/// No mistake can be switched on in this build.
#[cfg(not(feature = "mutants"))]
pub const fn switched_on() -> Option<Mutant> {
    None
}

/// No mistake is in this build.
#[cfg(not(feature = "mutants"))]
pub const fn broken(_: Mutant) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::named(mutant.name()), Some(*mutant));
        }
        assert_eq!(Mutant::named("none"), None);
    }

    /// Tests are built without the feature, as what is shipped.
    #[test]
    fn nothing_is_broken_unless_it_is_asked_for() {
        assert!(!Mutant::ALL.iter().any(|mutant| broken(*mutant)));
    }
}
