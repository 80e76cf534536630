//! `kproxide policy show facts`: what policies are asked about a cluster.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::plan::question::Question;

use super::given::{kind_of, no_settings};
use crate::args::policy::Facts;
use crate::args::{Format, WhatIf};
use crate::commands::exit::Mistake;
use crate::commands::plan::{self, given, print, scene, told};
use crate::commands::{Exit, cage, tell};
use crate::manifest::{BadInput, plain};
use crate::whatif::{self, Input, NoAnswer, Trouble};
use kproxide_common::chain::chain;
use kproxide_common::decisions::{Decision, Shown};
use kproxide_kube::client::Client;
use kproxide_kube::connection::Connection;
use kproxide_policy::{Budget, Execution, Library, self_test};

/// # Errors
/// The world cannot be read, a file cannot be written, or the output is closed.
pub(super) async fn facts(args: &Facts, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let asks = args.from_cluster || args.admin.is_some();
    let mut questions = match args.from.is_empty() && !asks {
        true => samples(),
        false => asked(args, asks).await?,
    };
    if args.from.is_empty() && !asks {
        let pools = questions.iter().map(|question| question.pool().as_str());
        known_pool(args.pool.as_deref(), pools)?;
    }
    let kind = args.kind.map(PolicyKind::from);
    questions.retain(|question| {
        kind.is_none_or(|kind| kind_of(question) == kind)
            && (args.pool.as_ref()).is_none_or(|pool| question.pool().as_str() == pool.as_str())
    });
    if questions.is_empty() {
        tell("no such policy is asked: nothing is to be placed, removed or labelled");
    }
    if let Some(folder) = &args.into {
        return into(folder, &questions, out);
    }
    match args.output {
        Format::Text | Format::Yaml => {
            for (index, question) in questions.iter().enumerate() {
                let separator = match index {
                    0 => "",
                    _ => "---\n",
                };
                write!(out, "{separator}{}", yaml(question)?)?;
            }
        }
        Format::Json => print(out, Format::Json, &questions)?,
    }
    Ok(Exit::Success)
}

/// # Errors
/// `--pool` names one that is not there.
pub(super) fn known_pool<'a>(
    asked: Option<&str>,
    known: impl Iterator<Item = &'a str>,
) -> Result<(), Mistake> {
    let known: BTreeSet<&str> = known.collect();
    match asked {
        Some(pool) if !known.contains(pool) => {
            let known: Vec<&str> = known.into_iter().collect();
            let there = match &known[..] {
                [] => "there is none".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            Err(Mistake(format!(
                "--pool {pool}: there is no pool {pool}; {there}"
            )))
        }
        _ => Ok(()),
    }
}

/// As `run` and `test` read it.
pub(super) fn yaml(question: &Question) -> Result<String, Box<dyn Error>> {
    plan::yaml(question)
}

fn samples() -> Vec<Question> {
    let kinds = [
        PolicyKind::HostSelection,
        PolicyKind::ScaleDown,
        PolicyKind::Labels,
    ];
    kinds
        .map(|kind| self_test::question(kind, "mine".into(), no_settings()))
        .into()
}

fn into(
    folder: &Path,
    questions: &[Question],
    out: &mut impl Write,
) -> Result<Exit, Box<dyn Error>> {
    let unwritable = |path: &Path| {
        let path = path.display().to_string();
        move |error| Mistake(format!("--into {path}: {error}"))
    };
    fs::create_dir_all(folder).map_err(unwritable(folder))?;
    for (question, number) in questions.iter().zip(1..) {
        let kind = kind_of(question).as_str();
        let name = format!("{number:03}-{kind}-{}.facts.yaml", question.pool());
        let path = folder.join(name);
        fs::write(&path, yaml(question)?).map_err(unwritable(&path))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(Exit::Success)
}

async fn asked(args: &Facts, asks: bool) -> Result<Vec<Question>, Box<dyn Error>> {
    if let Some(decisions) = recorded(&args.from)? {
        let pools = decisions.iter().map(|decision| decision.pool.as_str());
        known_pool(args.pool.as_deref(), pools)?;
        let recorded = decisions.into_iter().filter_map(|decision| decision.facts);
        return Ok(recorded.map(|question| *question).collect());
    }
    let mut question = WhatIf {
        connection: args.connection.clone(),
        ..what_if(&args.from, &args.policy_dir, args.now)
    };
    let input = match asks {
        true => of_controller(args, &mut question).await?,
        false => given(&question, None).await?,
    };
    let policies = Library::new(cage::for_a_person(Execution::Inline)?);
    let scene = scene(&question, input, &policies).await?;
    let pools = scene.world.pools().keys();
    known_pool(args.pool.as_deref(), pools.map(|pool| pool.as_str()))?;
    for assumed in &scene.assumed {
        tell(assumed);
    }
    let mut questions = Vec::new();
    let mut budget = Budget::unlimited();
    let planned = whatif::plan_with(&scene.world, scene.now, async |question| {
        questions.push(question.clone());
        policies.ask(question, &mut budget).await
    });
    drop(planned.await);
    Ok(questions)
}

/// The world of the replica that leads, or what the cluster lists.
async fn of_controller(args: &Facts, question: &mut WhatIf) -> Result<Input, Box<dyn Error>> {
    let client = match args.admin {
        Some(_) => None,
        None => Some(Client::connect_as_user(&args.connection).await?),
    };
    let patience = args.connection.request_timeout;
    let admin = args.admin.as_deref();
    match told(&args.leader, admin, patience, client.as_ref()).await {
        Ok(told) => Ok(Input {
            saved: Some(told.world),
            ..Input::default()
        }),
        Err(error @ NoAnswer::Forbidden { .. }) => Err(error.into()),
        Err(error) if admin.is_some() => Err(error.into()),
        Err(error) => {
            let why = chain(&error);
            tell(format_args!(
                "{why}. So the facts are worked out here, from what the cluster lists"
            ));
            question.from_cluster = true;
            let mut input = given(question, client.as_ref()).await?;
            input.is_as_given = true;
            Ok(input)
        }
    }
}

/// A plan of these files.
pub(super) fn what_if(
    files: &[PathBuf],
    policy_dir: &[PathBuf],
    now: Option<jiff::Timestamp>,
) -> WhatIf {
    WhatIf {
        file: files.to_vec(),
        recursive: false,
        namespace: None,
        all_namespaces: true,
        from_cluster: false,
        connection: Connection {
            kubeconfig: None,
            context: None,
            as_user: None,
            request_timeout: std::time::Duration::from_secs(30),
        },
        proxmox_credentials: None,
        policy_dir: policy_dir.to_vec(),
        replicas: Vec::new(),
        add_type: Vec::new(),
        without_hypervisor: Vec::new(),
        now,
        no_color: true,
    }
}

/// The decisions of an answer of `/debug/decisions`. `None`: the files are no such answer.
///
/// # Errors
/// It is one, and cannot be read.
pub(super) fn recorded(files: &[PathBuf]) -> Result<Option<Vec<Decision>>, Trouble> {
    let [path] = files else {
        return Ok(None);
    };
    // Standard input is read once, and what else is wrong says who reads it next.
    let Some(text) = Some(path)
        .filter(|path| path.is_file())
        .and_then(|path| fs::read_to_string(path).ok())
    else {
        return Ok(None);
    };
    let at = path.display().to_string();
    let Ok([document]) = <[_; 1]>::try_from(plain(&at, &text).unwrap_or_default()) else {
        return Ok(None);
    };
    if !document.value["decisions"].is_array() {
        return Ok(None);
    }
    let shown: Shown = serde_path_to_error::deserialize(&document.value).map_err(|error| {
        let field = error.path().to_string();
        let problem = format!(
            "this is no answer of /debug/decisions of this version: {}",
            error.into_inner()
        );
        document.bad(&field, problem)
    })?;
    match shown.decisions.iter().any(|it| it.facts.is_some()) {
        true => Ok(Some(shown.decisions)),
        false => Err(Trouble::Input(BadInput {
            at,
            problem: "no decision in it has facts: it is empty, or of an older kproxide".to_owned(),
        })),
    }
}
