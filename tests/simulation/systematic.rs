//! Every effect of a story without faults, struck by every blow, and every event of its watches that need not be seen at once, skipped or late: plans that are
//! enumerated, none drawn by chance.
//!
//! ```text
//! Story ─► run without faults ─┬► its effects, one by one ──────────► × Struck ─┬► Plan ─► run ─► the same end?
//!                              └► what its watches show, one by one ─► × Unseen ─┘
//! ```

mod blows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kproxide_verify::slice::holds;

use crate::check::{Checked, simulate};
use crate::log;
use crate::plan::{FaultPlan, HostPlan};
use crate::settled::EndState;
use crate::shown::Noted;
use crate::stories::Story;
use crate::summary::Wall;
use crate::sweep;

use self::blows::{Plan, Struck, Target, Unseen};

/// The longest back-off is half an hour: what a plan left undone shows within this.
const TAIL: Duration = Duration::from_secs(33 * 60);
/// Between the starts of replicas.
const FOLLOWS: Duration = Duration::from_secs(3);
/// What kproxide itself writes down.
const RECORDS: [&str; 2] = ["nodeclaims", "ledgers"];

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
    if let Some(kind) = story.has_not.iter().find(|kind| kinds.contains(*kind)) {
        return Err(format!("somebody asks for {kind}, and nothing is to"));
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

/// Runs all plans of one story or of all, those of a slice, or one plan of one story, and prints what they came to.
pub(crate) fn systematic(
    only: Option<&str>,
    plan: Option<&str>,
    slice: Option<(u64, u64)>,
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
        if let Some((number, parts)) = slice {
            plans.retain(|plan| holds(name, &plan.name, number, parts));
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
