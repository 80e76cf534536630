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
use kproxide_planner::report::NodeOutcome;
use kproxide_planner::world::World;
use serde::Serialize;

use super::answered::Answered;
use super::facts::{recorded, what_if};
use super::given::{Given, Tools, asked_of, kind_of, settings};
use crate::args::Format;
use crate::args::policy::Replay;
use crate::cli::Exit;
use crate::cli::exit::Mistake;
use crate::cli::plan::{given, print, scene};
use crate::decisions::Decision;
use crate::policy::{Budget, Directories, Library, Module, ReloadOutcome};
use crate::whatif::{self, counted, table};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replayed {
    /// Decisions that would change.
    changed: usize,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    kind: String,
    pool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    changed: bool,
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
        Some(decisions) => asked.each(&decisions).await,
        None => asked.whole(args).await?,
    };
    match args.output {
        Format::Text => write!(out, "{replayed}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &replayed)?,
    }
    Ok(Exit::Success)
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
        for decision in decisions {
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
            let answered = Answered::of(&question, &result);
            let after = Side::would(&answered, &self.given.name, before.chosen.len());
            compared.push(Compared::new(Some(decision), before, after));
        }
        let mut hypervisors = BTreeMap::new();
        let placed = compared.iter().filter(|it| it.kind == "host-selection");
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
        Replayed::new(
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
        let others = Library::new(self.tools.engine.clone());
        let mut after_scene = scene(&question, given(&question, None).await?, &others).await?;
        self.add(args, &others).await?;
        after_scene.take_policies(&others);
        let mut budget = Budget::unlimited();
        let planned = whatif::plan_with(&after_scene.world, before_scene.now, async |question| {
            let is_tried = self.is_about(kind_of(question).as_str(), question.pool().as_str());
            let tried = is_tried.then(|| asked_of(question, &self.given.name, self.settings));
            let answered = others.ask(tried.as_ref().unwrap_or(question), &mut budget);
            answered.await
        });
        let (after_plan, after) = planned.await;
        let mut hypervisors = BTreeMap::new();
        carried(&before_scene.world, &before_plan, &mut |name, n| {
            count(&mut hypervisors, name, (n, 0));
        });
        carried(&after_scene.world, &after_plan, &mut |name, n| {
            count(&mut hypervisors, name, (0, n));
        });
        let compared = self.paired(&before, &after);
        Ok(Replayed::new(
            compared,
            hypervisors,
            0,
            "with what the plan makes and removes",
        ))
    }

    /// The policy that is tried, beside those of today.
    async fn add(&self, args: &Replay, library: &Library) -> Result<(), Box<dyn Error>> {
        let mut files = Directories::new(&args.policy_dir).read();
        files.insert(self.given.name.clone(), vec![self.given.file()]);
        for reload in library.sync(files).await {
            if let ReloadOutcome::Refused(reason) = reload.outcome {
                return Err(format!("{}: {reason}", reload.policy).into());
            }
        }
        Ok(())
    }

    /// The decisions of both plans side by side: the n-th of a kind and a pool with the n-th.
    fn paired(&self, before: &[Decision], after: &[Decision]) -> Vec<Compared> {
        let mut rest: BTreeMap<(&str, &str), Vec<&Decision>> = BTreeMap::new();
        for decision in after.iter().rev() {
            let key = (decision.kind.as_str(), decision.pool.as_str());
            rest.entry(key).or_default().push(decision);
        }
        let mut compared = Vec::new();
        for decision in before {
            let key = (decision.kind.as_str(), decision.pool.as_str());
            let other = rest.get_mut(&key).and_then(Vec::pop);
            if self.is_about(key.0, key.1) {
                let after = other.map(Side::of).unwrap_or_default();
                compared.push(Compared::new(Some(decision), Side::of(decision), after));
            }
        }
        let more = rest.into_values().flat_map(|mut left| {
            left.reverse();
            left
        });
        let more = more.filter(|decision| self.is_about(&decision.kind, &decision.pool));
        compared.extend(more.map(|decision| {
            let after = Side::of(decision);
            Compared::new(Some(decision), Side::default(), after)
        }));
        compared
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
        let why = match (&answered.failure, &answered.no_answer) {
            (Some(failure), _) => format!("it fails: {failure}"),
            (None, Some(reason)) => reason.clone(),
            (None, None) => {
                let first = answered.candidates.first();
                first.map(|row| row.reason.clone()).unwrap_or_default()
            }
        };
        Self {
            policy: policy.to_owned(),
            chosen,
            why,
        }
    }
}

fn labelled(name: &str, labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!(" {key}={value}"));
    format!("{name}{}", pairs.collect::<String>())
}

impl Compared {
    fn new(decision: Option<&Decision>, before: Side, after: Side) -> Self {
        let sorted = |side: &Side| {
            let mut chosen = side.chosen.clone();
            chosen.sort();
            chosen
        };
        Self {
            at: decision.map(|it| it.at),
            kind: decision.map(|it| it.kind.clone()).unwrap_or_default(),
            pool: decision.map(|it| it.pool.clone()).unwrap_or_default(),
            instance_type: decision.and_then(|it| it.instance_type.clone()),
            changed: sorted(&before) != sorted(&after),
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

impl Replayed {
    fn new(
        decisions: Vec<Compared>,
        hypervisors: BTreeMap<String, (i64, i64)>,
        without_facts: usize,
        counted: &'static str,
    ) -> Self {
        let carried = hypervisors
            .into_iter()
            .map(|(hypervisor, (before, after))| Carried {
                hypervisor,
                before,
                after,
            });
        Self {
            changed: decisions.iter().filter(|it| it.changed).count(),
            without_facts,
            decisions,
            hypervisors: carried.collect(),
            counted,
        }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            changed,
            without_facts,
            decisions,
            hypervisors,
            counted: what,
        } = self;
        let all = counted(decisions.len(), "decision");
        writeln!(f, "{changed} of {all} would change.")?;
        if *without_facts > 0 {
            let these = counted(*without_facts, "decision");
            writeln!(f, "Of {these} no facts were kept.")?;
        }
        let chosen = |side: &Side| match side.chosen.is_empty() {
            true => "nothing".to_owned(),
            false => side.chosen.join(", "),
        };
        let rows = decisions.iter().map(|it| {
            let subject = it.instance_type.as_ref();
            let subject = subject.map_or(it.pool.clone(), |name| format!("{} {name}", it.pool));
            let after = match it.changed {
                true => chosen(&it.after),
                false => "the same".to_owned(),
            };
            let why = match it.changed {
                true => it.after.why.clone(),
                false => String::new(),
            };
            vec![it.kind.clone(), subject, chosen(&it.before), after, why]
        });
        let heads = ["KIND", "POOL", "BEFORE", "AFTER", "WHY"];
        let mut text = String::new();
        table(&mut text, "Decisions", &heads, rows.collect(), 200, 160)?;
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
