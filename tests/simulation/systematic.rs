//! Every effect of a story without faults, struck by every blow, and every event of its watches, unseen in every way: plans that are enumerated, none
//! drawn by chance.
//!
//! ```text
//! Story ─► run without faults ─┬► its effects, one by one ──────────► × Struck ─┬► Plan ─► run ─► the same end?
//!                              └► what its watches show, one by one ─► × Unseen ─┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kproxide_simulator::faults::{Fault, Moment};

use crate::check::{Checked, simulate};
use crate::log;
use crate::mishaps::{Event, Mishap};
use crate::plan::{Blow, FaultPlan, HostPlan, Life, What};
use crate::run::Outcome;
use crate::settled::EndState;
use crate::shown::{Blind, Noted, Shown};
use crate::stories::Story;
use crate::summary::Wall;
use crate::sweep;

/// Longer than a host waits for an answer, from Kubernetes or from Proxmox.
const LATE: Duration = Duration::from_secs(60);
/// Until a process that died starts again.
const DOWN: Duration = Duration::from_secs(5);
/// The longest back-off is half an hour: what a plan left undone shows within this.
const TAIL: Duration = Duration::from_secs(45 * 60);
/// Between the starts of replicas.
const FOLLOWS: Duration = Duration::from_secs(3);
/// After the first blow of two: the second may come so much later.
const SECOND_BLOW: Duration = Duration::from_secs(30 * 60);
const JUST_AFTER: Duration = Duration::from_millis(1);
const NO_QUORUM: Duration = Duration::from_secs(5 * 60);
/// A watch cache that lags so far behind has been left by every client: longer than cold start and Lease together.
const BEHIND: Duration = Duration::from_secs(5 * 60);
/// Whoever dies lets the other replica finish.
const AWAY: Duration = Duration::from_secs(15 * 60);
/// What kproxide itself writes down.
const RECORDS: [&str; 2] = ["nodeclaims", "ledgers"];

/// What happens to one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Struck {
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
enum Then {
    /// The first effect of the next process, or of the replica that takes the Lease, is struck as well.
    Struck(Struck),
    /// Of the first request of this kind the answer is lost, whoever sends it.
    Lost(&'static str),
    /// The Proxmox cluster has no quorum for a while.
    NoQuorum,
}

impl Struck {
    const ALL: [Struck; 6] = [
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
    fn then(self) -> &'static [Then] {
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
    fn replicas(self) -> usize {
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
    fn fits(self, targets: &[Target]) -> bool {
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
struct Target {
    /// Counted from 1 over all that the process asks for.
    effect: u64,
    kind: &'static str,
    at: Duration,
}

/// What a watch keeps from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unseen {
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
enum Wrong {
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
struct Plan {
    /// `17-clone/answer-lost`, `nodeclaims-workers-x7f2q-3/skipped`
    name: String,
    wrong: Wrong,
}

impl Plan {
    fn effect(target: &Target, struck: Struck, then: Option<Then>) -> Self {
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

    fn sight(noted: &Noted, unseen: Unseen) -> Self {
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

    fn faults(&self) -> FaultPlan {
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
    fn judge(&self, sound: &Sound, outcome: &Outcome) -> Result<(), String> {
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
    fn is_met(&self, outcome: &Outcome) -> bool {
        match &self.wrong {
            Wrong::Effect { then, .. } => then.is_none() || outcome.struck() > 1,
            Wrong::Sight { .. } => outcome.traffic.iter().any(|traffic| traffic.was_blind),
        }
    }
}

/// What a story comes to without faults.
#[derive(Debug, PartialEq)]
struct Sound {
    end: EndState,
    machines_made: usize,
}

/// A story with what it is without faults.
struct Prepared {
    story: Story,
    /// What one replica asks for, and what the first of two does.
    targets: [Vec<Target>; 2],
    /// What the watches of the one replica show.
    noted: Vec<Noted>,
    sound: Sound,
}

impl Prepared {
    fn of(story: Story) -> Result<Self, String> {
        let traced = |replicas: usize| {
            trace(&story, replicas)
                .map_err(|error| format!("story {} without faults: {error}", story.name))
        };
        let (alone, of_two) = (traced(1)?, traced(2)?);
        if alone.sound != of_two.sound {
            return Err(format!(
                "story {} ends otherwise with two replicas: {:?}, {:?}",
                story.name, alone.sound, of_two.sound
            ));
        }
        Ok(Self {
            story,
            targets: [alone.targets, of_two.targets],
            noted: alone.noted,
            sound: alone.sound,
        })
    }

    /// Every effect and every blow, and every event of a watch that need not be seen; of some stories two things at once too.
    fn plans(&self) -> Vec<Plan> {
        let [alone, first_of_two] = &self.targets;
        let mut plans = Vec::new();
        for struck in Struck::ALL {
            let targets = if struck.replicas() == 1 {
                alone
            } else {
                first_of_two
            };
            for target in targets {
                plans.push(Plan::effect(target, struck, None));
                if self.story.in_pairs {
                    let then = struck.then().iter().filter(|then| then.fits(targets));
                    plans.extend(then.map(|then| Plan::effect(target, struck, Some(*then))));
                }
            }
        }
        for (index, noted) in self.noted.iter().enumerate() {
            let is_next = |later: &Noted| {
                let (one, other) = (&later.shown, &noted.shown);
                (&one.resource, &one.object) == (&other.resource, &other.object)
            };
            if self.noted[index + 1..].iter().any(is_next) {
                plans.push(Plan::sight(noted, Unseen::Skipped));
            }
            // What people see of the past: that something is still there, or that a claim or the Ledger has not come so far.
            if noted.is_end || RECORDS.contains(&noted.shown.resource.as_str()) {
                plans.push(Plan::sight(noted, Unseen::Behind));
                plans.push(Plan::sight(noted, Unseen::TakenOver));
            }
        }
        plans
    }

    /// `1-write-ledger, 2-create-claim, …`
    fn effects(&self) -> String {
        let names: BTreeMap<u64, &str> = self.targets[0]
            .iter()
            .map(|target| (target.effect, target.kind))
            .collect();
        let names: Vec<String> = names
            .iter()
            .map(|(effect, kind)| format!("{effect:02}-{}", kind.replace(' ', "-")))
            .collect();
        names.join(", ")
    }

    fn run(&self, plan: &Plan) -> Checked {
        let mut checked = simulate(&self.story.scenario, &plan.faults());
        checked.came = checked.came.and_then(|outcome| {
            plan.judge(&self.sound, &outcome)?;
            Ok(outcome)
        });
        checked
    }
}

/// So many without faults, of which the first leads.
fn replicas(count: usize) -> Vec<HostPlan> {
    let starts = (0..).map(|index| FOLLOWS * index);
    let host = |starts| HostPlan {
        starts,
        ..HostPlan::default()
    };
    starts.take(count).map(host).collect()
}

/// A run without faults.
struct Trace {
    /// What the first replica asks for from the beginning of the story on.
    targets: Vec<Target>,
    /// What its watches show it from then on.
    noted: Vec<Noted>,
    sound: Sound,
}

fn trace(story: &Story, count: usize) -> Result<Trace, String> {
    let mut hosts = replicas(count);
    hosts[0].takes_notes = true;
    let faults = FaultPlan {
        hosts,
        quiet: TAIL,
        ..FaultPlan::none()
    };
    let outcome = simulate(&story.scenario, &faults).came?;
    if outcome
        .traffic
        .iter()
        .skip(1)
        .any(|traffic| traffic.effects > 0)
    {
        return Err("the first replica is not the one that leads".to_owned());
    }
    let asked = outcome.traffic[0].asked_first.iter().zip(1..);
    let targets: Vec<Target> = asked
        .filter(|(asked, _)| asked.at >= story.begins)
        .map(|(asked, effect)| Target {
            effect,
            kind: asked.kind,
            at: asked.at,
        })
        .collect();
    let kinds: BTreeSet<&str> = targets.iter().map(|target| target.kind).collect();
    let missing: Vec<_> = story
        .has
        .iter()
        .filter(|kind| !kinds.contains(*kind))
        .collect();
    if !missing.is_empty() {
        return Err(format!("nobody asks for {missing:?}, only for {kinds:?}"));
    }
    let mut noted = outcome.traffic[0].shown.clone();
    noted.retain(|noted| noted.at >= story.begins);
    Ok(Trace {
        targets,
        noted,
        sound: Sound {
            end: outcome.end,
            machines_made: outcome.machines_made,
        },
    })
}

/// What failed, with what is needed to see why.
struct Failure {
    story: &'static str,
    plan: String,
    error: String,
    log: Vec<u8>,
}

/// Runs all plans of one story or of all, or one plan of one story, and prints what they came to.
pub(crate) fn systematic(
    only: Option<&str>,
    plan: Option<&str>,
    threads: usize,
    lines: usize,
    directory: Option<&Path>,
) -> io::Result<ExitCode> {
    let started = Wall::now();
    let names: Vec<&str> = Story::all().iter().map(|story| story.name).collect();
    let stories: Vec<Story> = Story::all()
        .into_iter()
        .filter(|story| only.is_none_or(|only| only == story.name))
        .collect();
    if stories.is_empty() {
        return Err(io::Error::other(format!(
            "no story has the name {}: use one of {}",
            only.unwrap_or_default(),
            names.join(", ")
        )));
    }
    let mut out = io::stdout().lock();
    let mut failures = Vec::new();
    let (mut count, mut virtual_time) = (0, Duration::ZERO);
    // Whoever carried on had nothing to do any more, or nothing came that could not be seen: such plans say what others say.
    let mut not_met = 0;
    let mut more = 0;
    for story in stories {
        let prepared = Prepared::of(story).map_err(io::Error::other)?;
        let name = prepared.story.name;
        let mut plans = prepared.plans();
        if let Some(wanted) = plan {
            plans.retain(|plan| plan.name == wanted);
            if plans.is_empty() {
                return Err(io::Error::other(format!(
                    "story {name} has no plan {wanted}: use EFFECT/BLOW or RESOURCE-OBJECT-N/UNSEEN; the names of its effects are {}",
                    prepared.effects()
                )));
            }
        }
        let failed_before = failures.len();
        let mut written = Ok(());
        sweep::each(
            0..plans.len(),
            threads,
            |index| prepared.run(&plans[index]),
            |index, checked| {
                let plan = plans[index].name.clone();
                if let Some(directory) = directory {
                    let file = directory.join(format!("{name}-{}.log", plan.replace('/', "-")));
                    if written.is_ok() {
                        written = fs::write(file, &checked.log);
                    }
                }
                match checked.came {
                    Ok(outcome) => {
                        virtual_time += outcome.virtual_time;
                        not_met += usize::from(!plans[index].is_met(&outcome));
                        more += outcome
                            .machines_made
                            .saturating_sub(prepared.sound.machines_made);
                    }
                    Err(error) => failures.push(Failure {
                        story: name,
                        plan,
                        error,
                        log: checked.log,
                    }),
                }
            },
        );
        written?;
        writeln!(
            out,
            "story {name}: {} effects, {} events of watches, {} plans, {} failed",
            prepared.targets[0].len(),
            prepared.noted.len(),
            plans.len(),
            failures.len() - failed_before
        )?;
        out.flush()?;
        count += plans.len();
    }
    writeln!(
        out,
        "systematic: {} plans, {} failed, {not_met} more of which a part met nothing; {more} machines more than without faults; {:.1} virtual hours in {:.1} s",
        count - not_met,
        failures.len(),
        virtual_time.as_secs_f64() / 3600.0,
        started.elapsed().as_secs_f64()
    )?;
    failures.sort_by(|one, other| (one.story, &one.plan).cmp(&(other.story, &other.plan)));
    for failure in &failures {
        let Failure {
            story,
            plan,
            error,
            log,
        } = failure;
        writeln!(
            out,
            "\n{story}: cargo sim --systematic {story} --plan {plan}\n{error}\nthe last {lines} lines of its log, with virtual time\n{}",
            log::tail(log, lines)
        )?;
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
