//! Which law a mistake must be caught by, and which laws a world broke: it says so itself, or its words tell.

use std::collections::BTreeSet;

use kproxide_planner::mutants::Mutant;

/// A violation that a world ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) law: &'static str,
    pub(super) line: String,
}

/// The laws that each mistake is about; any of them must catch it. A world that breaks others only has not shown the mistake.
pub(super) const fn laws(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::NoTombstone | Mutant::GcWithoutGrace | Mutant::GcPartialList => &["S1"],
        Mutant::ClaimAfterClone
        | Mutant::IntentAfterEffect
        | Mutant::CloneOnOldIntent
        | Mutant::LostIsUndone => &["S2"],
        Mutant::NoQuarantine => &["S3"],
        Mutant::CountsInMemory | Mutant::LimitIgnored => &["S4"],
        // What a policy may not do (S12) is to pass a limit: here the room of a hypervisor.
        Mutant::RoomIgnored | Mutant::PolicyUnchecked => &["S5"],
        Mutant::RefusalIsSuccess | Mutant::PodsDeleted => &["S6"],
        Mutant::KeepIgnored => &["S7"],
        Mutant::FinalizerEarly
        | Mutant::NodeBeforeMachine
        | Mutant::NoBarrier
        | Mutant::EmptyNotTainted
        | Mutant::PodsNotAwaited => &["S8"],
        Mutant::QuorumIgnored | Mutant::NoFence | Mutant::DeletedByName => &["S9"],
        Mutant::NoColdStart => &["S10"],
        Mutant::BreakerInMemory
        | Mutant::RepairsUnlimited
        | Mutant::NoFreeze
        | Mutant::BudgetIgnored => &["S11"],
        Mutant::PolicyMisnamed => &["S13"],
        // The Node's pods get another machine, and so on.
        Mutant::PodsFitNowhere => &["S15", "L5"],
        Mutant::LoopsWithoutEnd => &["S23"],
        Mutant::ConditionsCount => &["S24"],
        Mutant::SilentIsOff => &["S25"],
        Mutant::DestroyByVmid
        | Mutant::TrustTags
        | Mutant::StaleProof
        | Mutant::EexistCleanedUp
        | Mutant::AgeIgnored
        | Mutant::WordWithoutNonce => &["S18"],
        Mutant::WarningsAreErrors | Mutant::WarningsAreOk => &["S20"],
        // Pods wait for machines that nobody makes.
        Mutant::LeaseStolen => &["L1"],
        // Something is left that has no claim, or a claim that nobody needs.
        Mutant::CloneUnmarked
        | Mutant::NodeLeft
        | Mutant::UnreachableIsGone
        | Mutant::ReservationKept
        | Mutant::GcServing
        | Mutant::OrphansIgnored => &["L3"],
        // Proxmox refuses to destroy what runs, a Node stays closed, a machine is waited for.
        Mutant::DestroyRunning | Mutant::NoJoinDeadline | Mutant::TaintLeft => &["L4"],
        Mutant::OwnCloneDisowned => &["L5"],
    }
}

/// How violations that do name their law begin.
const NAMED: [&str; 22] = [
    "S1", "S2", "S3", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S13", "S16", "S20", "S21",
    "S22", "S23", "S24", "S25", "L4", "L6", "L8", "L13",
];

/// Words of violations that do not.
const WORDS: [(&str, &str); 20] = [
    ("is not ours, it was made by", "S18"),
    ("something of other people changed", "S18"),
    ("was gone before its VM", "S8"),
    ("was not deleted by then", "S8"),
    ("without a claim", "S2"),
    ("two machines at once", "S3"),
    ("both have VMID", "S3"),
    ("its limit is", "S4"),
    ("delete pods", "S6"),
    ("machines, expected at most", "L5"),
    ("a restart at rest made", "S15"),
    ("did not stay so", "S15"),
    ("the plan at rest is not empty", "S15"),
    ("has no claim", "L3"),
    ("has no machine", "L3"),
    ("in the Ledger", "L3"),
    ("in use or promised for", "L3"),
    ("pods run", "L1"),
    ("panic", "panic"),
    ("a host ended by itself", "panic"),
];

/// What the program logs as an error is mostly that its own check of its plans found the mistake first. What follows is not in our words.
const LOGGED: (&str, &str) = ("a host logged errors", "check");

/// Every law that a world broke. What it says of itself and not of kproxide, that none of its faults happened or that its moment did not come about, breaks none.
pub(super) fn broken_in(error: &str) -> Vec<Broken> {
    let mut found = Vec::new();
    let mut lines = error.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_matches([' ', '"', ',']);
        let line = line.trim_start_matches("without faults: ");
        let (words, check) = LOGGED;
        let is_logged = line.starts_with(words);
        let before = line.split_once(": ").map_or("", |(before, _)| before);
        let named = NAMED.into_iter().find(|name| *name == before);
        let told = || WORDS.into_iter().find(|(words, _)| line.contains(words));
        let law = match is_logged {
            true => Some(check),
            false => named.or_else(|| told().map(|(_, law)| law)),
        };
        // A list says more by its first line.
        let line = match lines.peek() {
            Some(first) if line.ends_with(['[', ':']) => format!("{line} {}", first.trim()),
            Some(_) | None => line.to_owned(),
        };
        found.extend(law.map(|law| Broken { law, line }));
        if is_logged {
            break;
        }
    }
    found
}

/// The violation by which a mistake is caught, or else the laws that the world broke instead.
pub(super) fn caught(mutant: Mutant, error: &str) -> Result<Broken, BTreeSet<&'static str>> {
    let all = broken_in(error);
    let by_law = |law: &&str| all.iter().find(|broken| broken.law == *law);
    match laws(mutant).iter().find_map(by_law) {
        Some(broken) => Ok(broken.clone()),
        None => Err(all.iter().map(|broken| broken.law).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &str, expected: &[&str]) {
        let laws: Vec<&str> = broken_in(error).iter().map(|it| it.law).collect();
        assert_eq!(laws, expected, "{error}");
    }

    #[test]
    fn a_world_breaks_every_law_that_it_tells_of() {
        check(
            "S16: asked 101 times\nL4: no rest after 97 minutes: [\n    \"VM 500 has no claim\",\n]",
            &["S16", "L4", "L3"],
        );
        check("without faults: S1: VM 500 has no tombstone", &["S1"]);
        check(
            "pool workers had 6 machines at once, its limit is 5",
            &["S4"],
        );
    }

    #[test]
    fn what_the_simulation_says_of_itself_breaks_no_law() {
        check("none of its faults happened", &[]);
        check("(\"clone\", \"died\") did not come about: see CLONE", &[]);
        check("no end after 90000s", &[]);
        check("the API server stopped", &[]);
    }

    #[test]
    fn what_a_host_logs_is_not_in_our_words() {
        check(
            "a host logged errors:\nERROR VM 500 was made without a claim",
            &["check"],
        );
        let caught = caught(
            Mutant::ClaimAfterClone,
            "a host logged errors:\nwithout a claim",
        );
        assert_eq!(caught, Err(BTreeSet::from(["check"])));
    }
}
