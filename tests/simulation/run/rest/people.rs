//! What people do that kproxide asks for, and only where they or the world caused it: somebody who said yes to everything would hide what should never have been
//! asked.

use jiff::{SignedDuration, Timestamp};
use kproxide_simulator::pve::VmView;
use serde_json::{Value, json};

use crate::history::OUR_TOKEN;
use crate::mishaps::Mishap;
use crate::object::{CLAIMS, condition, condition_is_true, name, text};
use crate::run::Stage;

/// Who deletes machines reads of the freeze so much later. What went just before it is not counted by then any more, so that all of it can be seen.
const READ: SignedDuration = SignedDuration::from_mins(15);
/// The annotation by which a freeze is said to be meant. What asks for it gives its value.
const ACKNOWLEDGE: &str = "kproxide.dev/acknowledge-removal";

/// A freeze as its message tells it.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    word: &'a str,
    machines: usize,
    since: Timestamp,
}

impl<'a> Asked<'a> {
    /// Reads the end of the condition of a pool: `kproxide.dev/acknowledge-removal=4@2026-01-01T00:00:00Z`.
    fn of(message: &'a str) -> Option<Self> {
        let (_, rest) = message.split_once(ACKNOWLEDGE)?;
        let word = rest.strip_prefix('=')?.split_whitespace().next()?;
        let (machines, since) = word.split_once('@')?;
        Some(Self {
            word,
            machines: machines.parse().ok()?,
            since: since.parse().ok()?,
        })
    }
}

impl Stage<'_> {
    pub(super) fn people_answer(&self) {
        self.acknowledge_freeze();
        self.clear_interrupted_clones();
    }

    /// Says that a freeze is meant, when it is: people took so many machines out of service by hand, and as many are.
    fn acknowledge_freeze(&self) {
        let kube = &self.lab.kube;
        let by_hand = self.count_mishaps(|mishap| {
            matches!(
                mishap,
                Mishap::MachineStopped
                    | Mishap::MachineDestroyed
                    | Mishap::NodeDeleted
                    | Mishap::ClaimDeleted
            )
        });
        // A freeze is of more than three.
        if by_hand <= 3 {
            return;
        }
        let pools = kube.list("nodepools.kproxide.dev");
        let Some(asked) = pools.iter().find_map(|pool| Asked::of(ready_message(pool))) else {
            return;
        };
        let read = self.lab.clock.now().duration_since(asked.since) >= READ;
        if !read || asked.machines > by_hand || asked.machines != self.out_of_service() {
            return;
        }
        let ledger = kube.list("ledgers.kproxide.dev");
        let is_said = |ledger: &Value| ledger["metadata"]["annotations"][ACKNOWLEDGE] == asked.word;
        for ledger in ledger.iter().filter(|ledger| !is_said(ledger)) {
            let patch = json!({"metadata": {"annotations": {ACKNOWLEDGE: asked.word}}});
            let said = kube.patch("ledgers.kproxide.dev", "", "", name(ledger), patch);
            said.expect("the Ledger was there just now");
            let line = format!("say of the freeze {} that it is meant", asked.word);
            self.log.line("people", &line);
            self.happened.borrow_mut().acknowledged += 1;
        }
    }

    /// Claims that were in service and have no running machine any more, no Ready Node, or are being deleted.
    fn out_of_service(&self) -> usize {
        let snapshot = self.lab.pve.snapshot();
        let nodes = self.lab.kube.list("nodes");
        let claims = self.lab.kube.list(CLAIMS);
        let serves = |claim: &Value| {
            let runs = |vm: &VmView| claim["spec"]["vmid"] == vm.vmid && vm.running;
            let is_its = |node: &Value| {
                node["metadata"]["labels"]["kproxide.dev/claim"] == claim["metadata"]["name"]
                    && condition_is_true(node, "Ready")
            };
            claim["metadata"]["deletionTimestamp"].is_null()
                && snapshot.vms.iter().any(runs)
                && nodes.iter().any(is_its)
        };
        let out = claims
            .iter()
            .filter(|claim| claim["status"]["phase"] == "Initialized" && !serves(claim));
        out.count()
    }

    /// Removes what a claim says that its interrupted clone left, locked and in no pool: nobody else may touch it. Only a server or a quorum that was lost
    /// interrupts one, and nothing works on it any more.
    fn clear_interrupted_clones(&self) {
        let interrupted = self
            .count_mishaps(|mishap| matches!(mishap, Mishap::HypervisorDown | Mishap::NoQuorum));
        if interrupted == 0 {
            return;
        }
        let pve = &self.lab.pve;
        for claim in self.lab.kube.list(CLAIMS) {
            if !condition_is_true(&claim, "StuckLocked") {
                continue;
            }
            let snapshot = pve.snapshot();
            let is_at_work = snapshot
                .tasks
                .iter()
                .any(|task| task.kind == "qmclone" && task.exit.is_none());
            let is_left = |vm: &&VmView| {
                claim["spec"]["vmid"] == vm.vmid
                    && vm.lock.as_deref() == Some("clone")
                    && vm.pool.is_none()
                    && vm.creator == OUR_TOKEN
            };
            if let Some(left) = snapshot.vms.iter().find(is_left).filter(|_| !is_at_work)
                && pve.human_clears_clone(left.vmid).is_ok()
            {
                let line = format!("remove VM {}, an interrupted clone", left.vmid);
                self.log.line("people", &line);
                self.happened.borrow_mut().cleared.push(left.incarnation);
            }
        }
    }

    fn count_mishaps(&self, is_one: fn(&Mishap) -> bool) -> usize {
        let happened = self.happened.borrow();
        happened.mishaps.iter().filter(|one| is_one(one)).count()
    }
}

fn ready_message(pool: &Value) -> &str {
    condition(pool, "Ready").map_or("", |ready| text(&ready["message"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_is_read_from_what_the_pool_says() {
        let message = "frozen: 4 of 7 managed machines went bad at once. If it is meant: kubectl annotate ledger kproxide --overwrite kproxide.dev/acknowledge-removal=4@2026-01-01T10:00:00Z";
        let asked = Asked::of(message).unwrap();
        assert_eq!((asked.word, asked.machines), ("4@2026-01-01T10:00:00Z", 4));
        assert_eq!(asked.since, "2026-01-01T10:00:00Z".parse().unwrap());
        assert_eq!(Asked::of("all is well"), None);
    }
}
