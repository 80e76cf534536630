//! Every effect of a story without faults, struck by every blow: plans that are enumerated, none drawn by chance.
//!
//! ```text
//! Story ─► run without faults ─► its effects, one by one ─► × Struck ─► Plan ─► run ─► the same end?
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
use crate::plan::{Blow, FaultPlan, HostPlan, Life, What};
use crate::run::Outcome;
use crate::settled::EndState;
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

    /// The second blows that are tried after this one.
    fn then(self) -> &'static [Struck] {
        match self {
            Struck::CrashBefore | Struck::CrashAfter => &[Struck::AnswerLost, Struck::CrashAfter],
            Struck::LeaseLost => &[Struck::CrashBefore, Struck::CrashAfter],
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

/// One effect of the story without faults.
#[derive(Clone, Debug)]
struct Target {
    /// Counted from 1 over all that the process asks for.
    effect: u64,
    kind: &'static str,
    at: Duration,
}

/// One run with one blow or two.
#[derive(Clone, Debug)]
struct Plan {
    /// `17-clone/answer-lost`
    name: String,
    target: Target,
    struck: Struck,
    /// Meets the first effect of whoever carries on: the next process, or the replica that takes the Lease.
    then: Option<Struck>,
}

impl Plan {
    fn new(target: &Target, struck: Struck, then: Option<Struck>) -> Self {
        let kind = target.kind.replace(' ', "-");
        let mut name = format!("{:02}-{kind}/{}", target.effect, struck.name());
        if let Some(then) = then {
            name = format!("{name}+{}", then.name());
        }
        Self {
            name,
            target: target.clone(),
            struck,
            then,
        }
    }

    fn faults(&self) -> FaultPlan {
        let mut hosts = replicas(self.struck.replicas());
        self.struck.add_to(&mut hosts[0], 1, self.target.effect);
        let mut until = self.target.at + Duration::from_secs(1);
        if let Some(then) = self.then {
            until += SECOND_BLOW;
            match &mut hosts[..] {
                [_, other] => then.add_to(other, 1, 1),
                [only] => then.add_to(only, 2, 1),
                _ => {}
            }
        }
        FaultPlan {
            until,
            hosts,
            splits: Vec::new(),
            mishaps: Vec::new(),
            quiet: TAIL,
        }
    }

    /// The run must end as the sound one, and its blow must have met its effect.
    fn judge(&self, sound: &EndState, outcome: &Outcome) -> Result<(), String> {
        if outcome.end != *sound {
            return Err(format!(
                "ends differ\n  without faults: {sound:?}\n  with faults: {:?}",
                outcome.end
            ));
        }
        let met = &outcome.traffic[0].met;
        if !met.keys().any(|(kind, _)| *kind == self.target.kind) {
            return Err(format!(
                "effect {} was to be struck, and was not: {met:?}",
                self.name
            ));
        }
        Ok(())
    }
}

/// A story with what it is without faults.
struct Prepared {
    story: Story,
    /// What one replica asks for, and what the first of two does.
    targets: [Vec<Target>; 2],
    end: EndState,
}

impl Prepared {
    fn of(story: Story) -> Result<Self, String> {
        let mut ends = Vec::new();
        let mut traced = |replicas: usize| -> Result<Vec<Target>, String> {
            let (targets, end) = trace(&story, replicas)
                .map_err(|error| format!("story {} without faults: {error}", story.name))?;
            ends.push(end);
            Ok(targets)
        };
        let targets = [traced(1)?, traced(2)?];
        match (ends.pop(), ends.pop()) {
            (Some(one), Some(other)) if one == other => Ok(Self {
                story,
                targets,
                end: one,
            }),
            ends => Err(format!(
                "story {} ends otherwise with two replicas: {ends:?}",
                story.name
            )),
        }
    }

    /// Every effect and every blow; of the first story pairs too.
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
                plans.push(Plan::new(target, struck, None));
                if self.story.in_pairs {
                    let then = struck.then().iter();
                    plans.extend(then.map(|then| Plan::new(target, struck, Some(*then))));
                }
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
            plan.judge(&self.end, &outcome)?;
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

/// A run without faults: what the first replica asks for from the beginning of the story on, and the end.
fn trace(story: &Story, count: usize) -> Result<(Vec<Target>, EndState), String> {
    let faults = FaultPlan {
        hosts: replicas(count),
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
    if missing.is_empty() {
        Ok((targets, outcome.end))
    } else {
        Err(format!("nobody asks for {missing:?}, only for {kinds:?}"))
    }
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
    // Whoever carried on had nothing to do any more: such plans say what those of one blow say.
    let mut not_met = 0;
    for story in stories {
        let prepared = Prepared::of(story).map_err(io::Error::other)?;
        let name = prepared.story.name;
        let mut plans = prepared.plans();
        if let Some(wanted) = plan {
            plans.retain(|plan| plan.name == wanted);
            if plans.is_empty() {
                return Err(io::Error::other(format!(
                    "story {name} has no plan {wanted}: use EFFECT/BLOW, as the names of its effects are: {}",
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
                        not_met += usize::from(plans[index].then.is_some() && outcome.struck() < 2);
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
            "story {name}: {} effects, {} plans, {} failed",
            prepared.targets[0].len(),
            plans.len(),
            failures.len() - failed_before
        )?;
        out.flush()?;
        count += plans.len();
    }
    writeln!(
        out,
        "systematic: {} plans, {} failed, {not_met} more whose second blow met nothing, {:.1} virtual hours in {:.1} s",
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
