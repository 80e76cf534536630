//! What goes wrong in one plan: with an effect, with what a watch shows, or with two things at once.

use std::time::Duration;

use kproxide_simulator::faults::{Fault, Moment};

use super::{Sound, TAIL, replicas};
use crate::mishaps::{Event, Mishap};
use crate::plan::{Blow, FaultPlan, HostPlan, Life, What};
use crate::run::Outcome;
use crate::shown::{Blind, Noted, Shown};

/// Longer than a host waits for an answer, from Kubernetes or from Proxmox.
const LATE: Duration = Duration::from_secs(60);
/// Until a process that died starts again.
const DOWN: Duration = Duration::from_secs(5);
/// After the first blow of two: the second may come so much later.
const SECOND_BLOW: Duration = Duration::from_secs(30 * 60);
const JUST_AFTER: Duration = Duration::from_millis(1);
const NO_QUORUM: Duration = Duration::from_secs(5 * 60);
/// A watch cache that lags so far behind has been left by every client: longer than cold start and Lease together.
const BEHIND: Duration = Duration::from_secs(5 * 60);
/// Whoever dies lets the other replica finish.
const AWAY: Duration = Duration::from_secs(15 * 60);

/// What happens to one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Struck {
    /// The process dies before the request is sent.
    CrashBefore,
    /// It took effect, and the process dies without its answer.
    CrashAfter,
    /// It took effect, and the connection breaks before the answer.
    AnswerLost,
    /// It took effect, and a server in between answers half a minute later that it waited too long.
    AnswerLate,
    /// It takes effect after its host has given up waiting for the answer.
    RequestLate,
    /// The Lease goes to the other replica, and the host goes on as long as it believes that it leads.
    LeaseLost,
}

/// What goes wrong besides, for whoever carries on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Then {
    /// The first effect of the next process, or of the replica that takes the Lease, is struck as well.
    Struck(Struck),
    /// Of the first request of this kind the answer is lost, whoever sends it.
    Lost(&'static str),
    /// The Proxmox cluster has no quorum for a while.
    NoQuorum,
}

impl Struck {
    pub(super) const ALL: [Struck; 6] = [
        Struck::CrashBefore,
        Struck::CrashAfter,
        Struck::AnswerLost,
        Struck::AnswerLate,
        Struck::RequestLate,
        Struck::LeaseLost,
    ];

    fn name(self) -> &'static str {
        match self {
            Struck::CrashBefore => "crash-before",
            Struck::CrashAfter => "crash-after",
            Struck::AnswerLost => "answer-lost",
            Struck::AnswerLate => "answer-late",
            Struck::RequestLate => "request-late",
            Struck::LeaseLost => "lease-lost",
        }
    }

    /// What is tried after this one. (A crash while a policy traps is the whole of the story `fallback`.)
    pub(super) fn then(self) -> &'static [Then] {
        match self {
            Struck::CrashBefore | Struck::CrashAfter => &[
                Then::Struck(Struck::AnswerLost),
                Then::Struck(Struck::CrashAfter),
                Then::Lost("clone"),
                Then::Lost("destroy"),
                Then::NoQuorum,
            ],
            Struck::LeaseLost => &[
                Then::Struck(Struck::CrashBefore),
                Then::Struck(Struck::CrashAfter),
            ],
            Struck::AnswerLost | Struck::AnswerLate | Struck::RequestLate => &[],
        }
    }

    /// Of so many replicas: somebody must be there to take the Lease.
    pub(super) fn replicas(self) -> usize {
        if self == Struck::LeaseLost { 2 } else { 1 }
    }

    fn add_to(self, host: &mut HostPlan, process: u32, effect: u64) {
        let mut dies = |moment| {
            host.lives.push(Life {
                effect,
                moment,
                down: DOWN,
            });
        };
        let what = match self {
            Struck::CrashBefore => return dies(Moment::Before),
            Struck::CrashAfter => return dies(Moment::Applied),
            Struck::AnswerLost => What::Fault(Fault::LoseAnswer),
            Struck::AnswerLate => What::Fault(Fault::Hang { applied: true }),
            Struck::RequestLate => What::Fault(Fault::Delay(LATE)),
            Struck::LeaseLost => What::LoseLease,
        };
        host.blows.push(Blow {
            process,
            effect,
            what,
        });
    }
}

impl Then {
    fn name(self) -> String {
        match self {
            Then::Struck(struck) => struck.name().to_owned(),
            Then::Lost(kind) => format!("{kind}-lost"),
            Then::NoQuorum => "no-quorum".to_owned(),
        }
    }

    /// Whether a story with these effects can meet it.
    pub(super) fn fits(self, targets: &[Target]) -> bool {
        match self {
            Then::Lost(kind) => targets.iter().any(|target| target.kind == kind),
            Then::Struck(_) | Then::NoQuorum => true,
        }
    }

    fn add_to(self, plan: &mut FaultPlan, at: Duration) {
        plan.until += SECOND_BLOW;
        match (self, &mut plan.hosts[..]) {
            (Then::Struck(struck), [_, other]) => struck.add_to(other, 1, 1),
            (Then::Struck(struck), [only]) => struck.add_to(only, 2, 1),
            (Then::Lost(kind), [first, ..]) => first.lost.push(kind),
            (Then::NoQuorum, _) => plan.mishaps.push(Event {
                mishap: Mishap::NoQuorum,
                at: at + JUST_AFTER,
                length: NO_QUORUM,
                which: 0,
            }),
            (_, _) => {}
        }
    }
}

/// One effect of the story without faults.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Counted from 1 over all that the process asks for.
    pub(super) effect: u64,
    pub(super) kind: &'static str,
    pub(super) at: Duration,
}

/// What a watch keeps from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// This event: the host sees the next one of the same object only.
    Skipped,
    /// This event and all that come after it, for longer than any step of a story takes.
    Behind,
    /// The same, in the replica that takes over because the leader dies in that moment: it acts upon what was.
    TakenOver,
}

impl Unseen {
    fn name(self) -> &'static str {
        match self {
            Unseen::Skipped => "skipped",
            Unseen::Behind => "behind",
            Unseen::TakenOver => "taken-over-behind",
        }
    }

    fn faults(self, shown: &Shown) -> FaultPlan {
        let mut plan = FaultPlan::none();
        let blind = match self {
            Unseen::Skipped => Blind::To(shown.clone()),
            Unseen::Behind | Unseen::TakenOver => Blind::From(shown.clone(), BEHIND),
        };
        if self == Unseen::TakenOver {
            plan.hosts = replicas(2);
            plan.hosts[0]
                .lives
                .push(Life::ended_by_something_else(AWAY));
            plan.dies_when_other_is_blind = true;
        }
        if let Some(host) = plan.hosts.last_mut() {
            host.blind = Some(blind);
        }
        plan
    }
}

/// What goes wrong in one run.
#[derive(Clone, Debug)]
pub(super) enum Wrong {
    Effect {
        target: Target,
        struck: Struck,
        then: Option<Then>,
    },
    Sight {
        noted: Noted,
        unseen: Unseen,
    },
}

/// One run with one thing that goes wrong, or two.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// `17-clone/answer-lost`, `nodeclaims-workers-x7f2q-3/skipped`
    pub(super) name: String,
    wrong: Wrong,
}

impl Plan {
    pub(super) fn effect(target: &Target, struck: Struck, then: Option<Then>) -> Self {
        let kind = target.kind.replace(' ', "-");
        let mut name = format!("{:02}-{kind}/{}", target.effect, struck.name());
        if let Some(then) = then {
            name = format!("{name}+{}", then.name());
        }
        let target = target.clone();
        Self {
            name,
            wrong: Wrong::Effect {
                target,
                struck,
                then,
            },
        }
    }

    pub(super) fn sight(noted: &Noted, unseen: Unseen) -> Self {
        let Shown {
            resource,
            object,
            nth,
        } = &noted.shown;
        let object = object.replace('/', "-");
        Self {
            name: format!("{resource}-{object}-{nth}/{}", unseen.name()),
            wrong: Wrong::Sight {
                noted: noted.clone(),
                unseen,
            },
        }
    }

    pub(super) fn faults(&self) -> FaultPlan {
        match &self.wrong {
            Wrong::Effect {
                target,
                struck,
                then,
            } => {
                let mut hosts = replicas(struck.replicas());
                struck.add_to(&mut hosts[0], 1, target.effect);
                let mut plan = FaultPlan {
                    until: target.at + Duration::from_secs(1),
                    hosts,
                    quiet: TAIL,
                    ..FaultPlan::none()
                };
                if let Some(then) = then {
                    then.add_to(&mut plan, target.at);
                }
                plan
            }
            Wrong::Sight { noted, unseen } => FaultPlan {
                until: noted.at + BEHIND,
                quiet: TAIL,
                ..unseen.faults(&noted.shown)
            },
        }
    }

    /// Things that go wrong, each of which may legally cost one machine more.
    fn count(&self) -> usize {
        match &self.wrong {
            Wrong::Effect { then: Some(_), .. } => 2,
            Wrong::Effect { then: None, .. } | Wrong::Sight { .. } => 1,
        }
    }

    /// The run must end as the sound one and make hardly more machines, and its blow must have met its effect.
    pub(super) fn judge(&self, sound: &Sound, outcome: &Outcome) -> Result<(), String> {
        if outcome.end != sound.end {
            return Err(format!(
                "L6: ends differ\n  without faults: {:?}\n  with faults: {:?}",
                sound.end, outcome.end
            ));
        }
        if outcome.machines_made > sound.machines_made + self.count() {
            return Err(format!(
                "L6: {} machines are made, {} without faults",
                outcome.machines_made, sound.machines_made
            ));
        }
        match &self.wrong {
            // An answer that is lost makes other effects of what follows.
            Wrong::Effect {
                then: Some(Then::Lost(_)),
                ..
            } => {}
            Wrong::Effect { target, .. } => {
                let met = &outcome.traffic[0].met;
                if !met.keys().any(|(kind, _)| *kind == target.kind) {
                    return Err(format!(
                        "effect {} was to be struck, and was not: {met:?}",
                        self.name
                    ));
                }
            }
            Wrong::Sight { .. } => {}
        }
        Ok(())
    }

    /// Whether everything came about that was to go wrong.
    pub(super) fn is_met(&self, outcome: &Outcome) -> bool {
        match &self.wrong {
            Wrong::Effect { then, .. } => then.is_none() || outcome.struck() > 1,
            Wrong::Sight { .. } => outcome.traffic.iter().any(|traffic| traffic.was_blind),
        }
    }
}
