//! `kproxide policy replay`: what another policy would have decided.
//!
//! An answer of `/debug/decisions` has the facts of each decision: each is asked again, as it was. A world is planned
//! twice, so that what the other policy placed before counts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::PolicyKind;
use kproxide_planner::plan::Plan;
use kproxide_planner::plan::question::AnswerBody;
use kproxide_planner::plan::report::NodeOutcome;
use kproxide_planner::world::World;
use serde::Serialize;

use super::answered::Answered;
use super::facts::{known_pool, recorded, what_if};
use super::given::{Given, Tools, asked_of, kind_of, settings};
use crate::args::Format;
use crate::args::policy::Replay;
use crate::commands::Exit;
use crate::commands::exit::Mistake;
use crate::commands::plan::{given, print, scene};
use crate::whatif::{self, counted, table};
use kproxide_common::decisions::Decision;
use kproxide_policy::{Budget, Directories, Library, Module, ReloadOutcome};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replayed {
    /// The policy that is tried, as it is given.
    policy: String,
    /// Decisions that would change.
    changed: usize,
    /// Decisions in which the policy fails.
    failed: usize,
    /// Decisions that cannot be asked again, since no facts of them were kept.
    without_facts: usize,
    decisions: Vec<Compared>,
    hypervisors: Vec<Carried>,
    /// What the numbers of `hypervisors` count.
    counted: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    at: Timestamp,
    kind: String,
    pool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    changed: bool,
    /// It counts in `hypervisors`. Not so: no machine came of it, and kproxide asked again for the same need later.
    counted: bool,
    before: Side,
    after: Side,
}

/// What a policy decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Side {
    policy: String,
    /// The hypervisor, the Nodes, or with `labels` each hypervisor with its labels.
    chosen: Vec<String>,
    /// Of the first.
    why: String,
    /// The policy has failed, for this reason: `chosen` is what kproxide does then.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Machines on a hypervisor.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Carried {
    hypervisor: String,
    before: i64,
    after: i64,
}

/// # Errors
/// The policy, its settings or the input cannot be used, or the output is closed.
pub(super) async fn replay(args: &Replay, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.policy)?;
    let settings = settings(args.settings.as_deref())?;
    let tools = Tools::new()?;
    let module = given.loaded(&tools).await?;
    let mut kinds = module.kinds();
    if let Some(kind) = args.kind.map(PolicyKind::from) {
        if !kinds.contains(&kind) {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
            let (asked, place, kinds) = (kind.as_str(), &given.place, kinds.join(", "));
            return Err(Mistake(format!(
                "--kind {asked}: {place} does not answer that: it answers {kinds}"
            ))
            .into());
        }
        kinds = vec![kind];
    }
    let asked = Asked {
        given: &given,
        module: &module,
        tools: &tools,
        settings: settings.as_ref(),
        kinds: &kinds,
        pool: args.pool.as_deref(),
    };
    let replayed = match recorded(&args.file)? {
        Some(decisions) => {
            let pools = decisions.iter().map(|decision| decision.pool.as_str());
            known_pool(args.pool.as_deref(), pools)?;
            asked.each(&decisions).await
        }
        None => asked.whole(args).await?,
    };
    let exit = match replayed.failed {
        0 => Exit::Success,
        _ => Exit::Failure,
    };
    match args.output {
        Format::Text => write!(out, "{replayed}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &replayed)?,
    }
    Ok(exit)
}

/// Which policy is asked, and what.
struct Asked<'a> {
    given: &'a Given,
    module: &'a Module,
    tools: &'a Tools,
    settings: Option<&'a Arc<str>>,
    kinds: &'a [PolicyKind],
    pool: Option<&'a str>,
}

impl Asked<'_> {
    fn is_about(&self, kind: &str, pool: &str) -> bool {
        self.kinds.iter().any(|it| it.as_str() == kind) && self.pool.is_none_or(|it| it == pool)
    }

    /// Each decision with the facts that it was made with.
    async fn each(&self, decisions: &[Decision]) -> Replayed {
        let (mut compared, mut without_facts) = (Vec::new(), 0);
        let stand_ins = Library::new(self.tools.engine.clone());
        for (index, decision) in decisions.iter().enumerate() {
            if !self.is_about(&decision.kind, &decision.pool) {
                continue;
            }
            let Some(facts) = &decision.facts else {
                without_facts += 1;
                continue;
            };
            let question = asked_of(facts, &self.given.name, self.settings);
            let settings = &question.policy().settings;
            let (verdict, _) = self.tools.check_settings(self.module, settings).await;
            let result = match verdict {
                Ok(()) => self.tools.ask(self.module, &question).await.called.result,
                Err(error) => Err(error),
            };
            let before = Side::of(decision);
            let name = &self.given.name;
            let (result, failure) = match result {
                Ok(body) => (Ok(body), None),
                Err(error) => {
                    let failure = format!("policy {name}: {error}");
                    let instead = stand_ins.stand_in(&question, failure.clone()).await;
                    let body = instead.map(|instead| instead.body).ok_or(error);
                    (body, Some(failure))
                }
            };
            let answered = Answered::of(&question, &result);
            let after = Side::would(&answered, name, before.chosen.len()).failed(failure);
            compared.push(Compared {
                counted: is_last_of_its_machine(decision, &decisions[index + 1..]),
                ..Compared::new(decision, before, after)
            });
        }
        let mut hypervisors = BTreeMap::new();
        let placed = compared
            .iter()
            .filter(|it| it.kind == "host-selection" && it.counted);
        for one in placed {
            one.before
                .chosen
                .iter()
                .for_each(|name| count(&mut hypervisors, name, (1, 0)));
            one.after
                .chosen
                .iter()
                .for_each(|name| count(&mut hypervisors, name, (0, 1)));
        }
        self.sum(
            compared,
            hypervisors,
            without_facts,
            "placed by these decisions",
        )
    }

    /// The world of files, planned with the policies of today and with this one.
    async fn whole(&self, args: &Replay) -> Result<Replayed, Box<dyn Error>> {
        let question = what_if(&args.file, &args.policy_dir, args.now);
        let today = Library::new(self.tools.engine.clone());
        let input = given(&question, None).await?;
        let before_scene = scene(&question, input, &today).await?;
        let (before_plan, before) =
            whatif::plan(&before_scene.world, before_scene.now, &today).await;
        let pools = before_scene.world.pools().keys();
        known_pool(self.pool, pools.map(|pool| pool.as_str()))?;
        let others = Library::new(self.tools.engine.clone());
        let mut after_scene = scene(&question, given(&question, None).await?, &others).await?;
        self.add(args, &others).await?;
        after_scene.take_policies(&others);
        let mut budget = Budget::unlimited();
        // As many as there are decisions: with such a budget no answer is put off.
        let mut failures = Vec::new();
        let planned = whatif::plan_with(&after_scene.world, before_scene.now, async |question| {
            let is_tried = self.is_about(kind_of(question).as_str(), question.pool().as_str());
            let tried = is_tried.then(|| asked_of(question, &self.given.name, self.settings));
            let answered = others.ask(tried.as_ref().unwrap_or(question), &mut budget);
            let answer = answered.await;
            let failed = match &answer.body {
                AnswerBody::Failed(reason) => Some(reason),
                AnswerBody::Ranking(_)
                | AnswerBody::Removals(_)
                | AnswerBody::Decorations(_)
                | AnswerBody::NoCandidate(_)
                | AnswerBody::Deferred => answer.fallback.as_ref(),
            };
            failures.push(failed.cloned());
            answer
        });
        let (after_plan, after) = planned.await;
        let mut hypervisors = BTreeMap::new();
        carried(&before_scene.world, &before_plan, &mut |name, n| {
            count(&mut hypervisors, name, (n, 0));
        });
        carried(&after_scene.world, &after_plan, &mut |name, n| {
            count(&mut hypervisors, name, (0, n));
        });
        let after: Vec<_> = after.iter().zip(failures).collect();
        let compared = self.paired(&before, &after);
        Ok(self.sum(
            compared,
            hypervisors,
            0,
            "with what the plan makes and removes",
        ))
    }

    /// The policy that is tried, beside those of today.
    async fn add(&self, args: &Replay, library: &Library) -> Result<(), Box<dyn Error>> {
        let named = [self.given.name.clone()].into();
        let mut files = Directories::new(&args.policy_dir).read(&named);
        files.insert(self.given.name.clone(), vec![self.given.file()]);
        for reload in library.sync(files).await {
            if let ReloadOutcome::Refused(reason) = reload.outcome {
                return Err(format!("{}: {reason}", reload.policy).into());
            }
        }
        Ok(())
    }

    /// The decisions of both plans side by side: the n-th of a kind and a pool with the n-th.
    fn paired(&self, before: &[Decision], after: &[(&Decision, Option<String>)]) -> Vec<Compared> {
        let mut rest: BTreeMap<(&str, &str), Vec<(&Decision, Side)>> = BTreeMap::new();
        for (decision, failure) in after.iter().rev() {
            let key = (decision.kind.as_str(), decision.pool.as_str());
            let side = Side::of(decision).failed(failure.clone());
            rest.entry(key).or_default().push((decision, side));
        }
        let mut compared = Vec::new();
        for decision in before {
            let key = (decision.kind.as_str(), decision.pool.as_str());
            let other = rest.get_mut(&key).and_then(Vec::pop);
            if self.is_about(key.0, key.1) {
                let after = other.map(|(_, side)| side).unwrap_or_default();
                compared.push(Compared::new(decision, Side::of(decision), after));
            }
        }
        let more = rest.into_values().flat_map(|mut left| {
            left.reverse();
            left
        });
        let more = more.filter(|(decision, _)| self.is_about(&decision.kind, &decision.pool));
        compared
            .extend(more.map(|(decision, after)| Compared::new(decision, Side::default(), after)));
        compared
    }

    fn sum(
        &self,
        decisions: Vec<Compared>,
        hypervisors: BTreeMap<String, (i64, i64)>,
        without_facts: usize,
        counted: &'static str,
    ) -> Replayed {
        let carried = hypervisors
            .into_iter()
            .map(|(hypervisor, (before, after))| Carried {
                hypervisor,
                before,
                after,
            });
        let failed = decisions.iter().filter(|it| it.after.failure.is_some());
        Replayed {
            policy: self.given.place.clone(),
            changed: decisions.iter().filter(|it| it.changed).count(),
            failed: failed.count(),
            without_facts,
            decisions,
            hypervisors: carried.collect(),
            counted,
        }
    }
}

impl Side {
    fn of(decision: &Decision) -> Self {
        let is_labels = decision.kind == "labels";
        let labels = decision.candidates.iter().filter(|_| is_labels);
        let labels = labels.map(|it| labelled(&it.name, &it.labels));
        let chosen: Vec<String> = decision.chosen.iter().cloned().chain(labels).collect();
        let first = decision.candidates.iter();
        let first = first.filter(|it| chosen.first() == Some(&it.name));
        let why = first.map(|it| it.reason.clone()).next();
        let why = match (&decision.fallback, &decision.no_answer) {
            (Some(fallback), _) => format!("spread answers instead: {fallback}"),
            (None, Some(reason)) => reason.clone(),
            (None, None) => why.unwrap_or_default(),
        };
        Self {
            policy: decision.policy.clone(),
            chosen,
            why,
            failure: None,
        }
    }

    /// `most`: so many Nodes went then.
    fn would(answered: &Answered, policy: &str, most: usize) -> Self {
        let rows = answered.candidates.iter();
        let chosen: Vec<String> = match answered.kind {
            "labels" => rows.map(|row| labelled(&row.name, &row.labels)).collect(),
            kind => {
                let most = match kind {
                    "scale-down" => most,
                    _ => 1,
                };
                let ranked = rows.filter(|row| row.score.is_some()).take(most);
                ranked.map(|row| row.name.clone()).collect()
            }
        };
        let first = answered.candidates.first();
        let why = answered.no_answer.clone();
        Self {
            policy: policy.to_owned(),
            chosen,
            why: why.unwrap_or_else(|| first.map(|row| row.reason.clone()).unwrap_or_default()),
            failure: None,
        }
    }

    /// Where the policy has failed, that is why: `chosen` is of `spread`, or empty where nothing stands in.
    fn failed(self, failure: Option<String>) -> Self {
        let Some(reason) = &failure else {
            return self;
        };
        let why = match self.chosen.is_empty() {
            true => format!("it fails: {reason}"),
            false => format!("it fails, and spread answers instead: {reason}"),
        };
        Self {
            why,
            failure,
            ..self
        }
    }
}

/// A machine that is not launched at once is placed again, which is another decision about it.
fn is_last_of_its_machine(decision: &Decision, later: &[Decision]) -> bool {
    if decision.kind != "host-selection" {
        return true;
    }
    let claim = decision.claim.as_ref();
    let is_placed_again = || later.iter().any(|it| it.claim.as_ref() == claim);
    claim.is_some() && decision.decision_id.is_some() && !is_placed_again()
}

fn labelled(name: &str, labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!(" {key}={value}"));
    format!("{name}{}", pairs.collect::<String>())
}

impl Compared {
    fn new(decision: &Decision, before: Side, after: Side) -> Self {
        let sorted = |side: &Side| {
            let mut chosen = side.chosen.clone();
            chosen.sort();
            chosen
        };
        Self {
            at: decision.at,
            kind: decision.kind.clone(),
            pool: decision.pool.clone(),
            instance_type: decision.instance_type.clone(),
            changed: sorted(&before) != sorted(&after),
            counted: true,
            before,
            after,
        }
    }
}

fn count(all: &mut BTreeMap<String, (i64, i64)>, name: &str, (before, after): (i64, i64)) {
    let both = all.entry(name.to_owned()).or_default();
    both.0 += before;
    both.1 += after;
}

/// Machines of each hypervisor once the plan is carried out.
fn carried(world: &World, plan: &Plan, count: &mut impl FnMut(&str, i64)) {
    let goes = |claim: &str| {
        plan.report.nodes.iter().any(|node| {
            node.claim.as_str() == claim && matches!(node.outcome, NodeOutcome::Removing(_))
        })
    };
    for (name, claim) in world.claims() {
        if !goes(name.as_str()) {
            count(&format!("{}/{}", claim.spec.cluster, claim.hypervisor()), 1);
        }
    }
    for launch in &plan.launches {
        let spec = &launch.spec;
        count(&format!("{}/{}", spec.cluster, spec.hypervisor), 1);
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy: _,
            changed,
            failed,
            without_facts,
            decisions,
            hypervisors,
            counted: what,
        } = self;
        let all = counted(decisions.len(), "decision");
        match failed {
            0 => writeln!(f, "{changed} of {all} would change.")?,
            _ => writeln!(
                f,
                "{changed} of {all} would change. The policy fails in {failed} of them."
            )?,
        }
        if *without_facts > 0 {
            let these = counted(*without_facts, "decision");
            writeln!(f, "Of {these} no facts were kept.")?;
        }
        let chosen = |side: &Side| match side.chosen.is_empty() {
            true => "nothing".to_owned(),
            false => side.chosen.join(", "),
        };
        let row = |it: &Compared| {
            let subject = it.instance_type.as_ref();
            let subject = subject.map_or(it.pool.clone(), |name| format!("{} {name}", it.pool));
            let has_failed = it.after.failure.is_some();
            let after = match it.changed || has_failed && it.after.chosen.is_empty() {
                true => chosen(&it.after),
                false => "the same".to_owned(),
            };
            let why = match it.changed || has_failed {
                true => it.after.why.clone(),
                false => String::new(),
            };
            vec![it.kind.clone(), subject, chosen(&it.before), after, why]
        };
        let (of_machines, others): (Vec<_>, Vec<_>) = decisions.iter().partition(|it| it.counted);
        let heads = ["KIND", "POOL", "BEFORE", "AFTER", "WHY"];
        let mut text = String::new();
        for (title, these) in [
            ("Decisions", of_machines),
            ("Decisions that led to no machine", others),
        ] {
            let rows = these.into_iter().map(row).collect();
            table(&mut text, title, &heads, rows, 200, 160)?;
        }
        let rows = hypervisors.iter().map(|it| {
            vec![
                it.hypervisor.clone(),
                it.before.to_string(),
                it.after.to_string(),
            ]
        });
        let title = format!("Machines of each hypervisor, {what}");
        let heads = ["HYPERVISOR", "BEFORE", "AFTER"];
        table(&mut text, &title, &heads, rows.collect(), 200, usize::MAX)?;
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests;
