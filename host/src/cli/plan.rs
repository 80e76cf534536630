//! `kproxide plan` and `kproxide explain`: what kproxide would do with objects of files or of a cluster that is only read.

use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kproxide_planner::plan::Plan;
use serde::Serialize;

use super::run::connect;
use crate::args::{ExplainArgs, Format, PlanArgs, WhatIf};
use crate::chain::chain;
use crate::clock::Clock;
use crate::kube::client::Client;
use crate::kube::manifest::{BadInput, Object, documents, everything};
use crate::observe::{Clusters, wanted_templates};
use crate::policy::{Directories, Engine, Execution, Library};
use crate::whatif::{self, Answer, Changes, Input, Replicas, Scene, Subject, Text, Trouble};

/// The input cannot be read, or a flag names what it does not have.
const BAD_INPUT: u8 = 2;
/// With `--exit-code`.
const SOMETHING_TO_DO: u8 = 10;
const NO_HELP: u8 = 20;

/// # Errors
/// The cluster cannot be read, a policy cannot be loaded, or the output is closed.
pub(super) fn run(args: &PlanArgs, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let Some((scene, plan)) = asked(&args.question)? else {
        return Ok(ExitCode::from(BAD_INPUT));
    };
    let mut answer = Answer::of(&scene, &plan);
    if args.verdicts {
        answer = answer.with_verdicts(&scene.world);
    }
    match args.output {
        Format::Text => write!(out, "{}", Text(&answer))?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &answer)?,
    }
    Ok(match args.exit_code {
        true if answer.summary.pods_without_help > 0 => ExitCode::from(NO_HELP),
        true if answer.has_work() => ExitCode::from(SOMETHING_TO_DO),
        true | false => ExitCode::SUCCESS,
    })
}

/// # Errors
/// As of [`run`].
pub(super) fn explain(
    args: &ExplainArgs,
    out: &mut impl Write,
) -> Result<ExitCode, Box<dyn Error>> {
    let bad = |problem: String| {
        eprintln!("kproxide: {problem}");
        Ok(ExitCode::from(BAD_INPUT))
    };
    let subject = match Subject::read(&args.subject, &args.question.namespace) {
        Ok(subject) => subject,
        Err(problem) => return bad(problem),
    };
    let Some((scene, plan)) = asked(&args.question)? else {
        return Ok(ExitCode::from(BAD_INPUT));
    };
    let explanation = match whatif::explain(&scene, &plan, &subject) {
        Ok(explanation) => explanation,
        Err(problem) => return bad(problem),
    };
    match args.output {
        Format::Text => write!(out, "{explanation}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &explanation)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(
    out: &mut impl Write,
    format: Format,
    data: &impl Serialize,
) -> Result<(), Box<dyn Error>> {
    match format {
        // With the names of the fields in one order, whatever the format.
        Format::Yaml => {
            let value = serde_json::to_value(data)?;
            write!(out, "{}", serde_saphyr::to_string(&value)?)?;
        }
        Format::Json | Format::Text => writeln!(out, "{}", serde_json::to_string_pretty(data)?)?,
    }
    Ok(())
}

/// The world and the plan of it. `None`: the input is bad, and that was said.
fn asked(question: &WhatIf) -> Result<Option<(Scene, Plan)>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let policies = Library::new(Engine::new(Execution::Blocking)?);
    match runtime.block_on(answered(question, &policies)) {
        Ok(answered) => Ok(Some(answered)),
        Err(error) => match error.downcast::<Trouble>() {
            Ok(trouble) => {
                eprintln!("kproxide: {}", chain(&*trouble));
                Ok(None)
            }
            Err(error) => Err(error),
        },
    }
}

async fn answered(question: &WhatIf, policies: &Library) -> Result<(Scene, Plan), Box<dyn Error>> {
    let changes = changes(question)?;
    let mut input = Input {
        cluster: Vec::new(),
        files: read_files(question)?,
    };
    let mut unseen = Vec::new();
    if question.from_cluster {
        let client =
            Client::connect_as_user(question.kubeconfig.as_deref(), question.context.as_deref())
                .await?;
        (input.cluster, unseen) = everything(&client).await?;
    }
    let clock = Clock::starting_at(Clock::System.now());
    let mut scene = whatif::build(input, &changes, question.now, clock.now())?;
    scene.assumed.extend(
        unseen
            .iter()
            .map(|path| format!("the cluster has none of {path}")),
    );
    if let Some(folder) = &question.proxmox_credentials {
        ask_proxmox(&mut scene, folder, &clock).await;
    }
    scene.finish(&changes)?;
    let reloads = policies
        .sync(Directories::new(&question.policy_dir).read())
        .await;
    for reload in reloads {
        if let crate::policy::ReloadOutcome::Refused(refusal) = reload.outcome {
            return Err(Trouble::Flag(refusal.to_string()).into());
        }
    }
    scene.take_policies(policies);
    let plan = whatif::plan(&scene.world, scene.now, policies).await;
    Ok((scene, plan))
}

fn changes(question: &WhatIf) -> Result<Changes, Trouble> {
    let replicas = question.replicas.iter().map(|text| {
        Replicas::read(text).map_err(|problem| Trouble::Flag(format!("--replicas: {problem}")))
    });
    let types = question.add_type.iter().map(|text| {
        text.parse()
            .map_err(|problem| Trouble::Flag(format!("--add-type: {problem}")))
    });
    Ok(Changes {
        replicas: replicas.collect::<Result<_, _>>()?,
        types: types.collect::<Result<_, _>>()?,
        without: question.without_hypervisor.clone(),
    })
}

/// The hypervisors of the clusters that no Inventory describes, by their credentials.
async fn ask_proxmox(scene: &mut Scene, folder: &Path, clock: &Clock) {
    let clusters = Clusters::new(connect(folder.to_owned()));
    for (cluster, connection) in scene.unknown_clusters() {
        clusters.configure(&cluster, Some(connection));
    }
    let wanted = wanted_templates(&scene.world);
    for delta in clusters
        .refresh(std::time::Duration::ZERO, wanted, clock)
        .await
    {
        scene.world.apply(delta);
    }
}

/// Everything that `-f` names, in its order.
fn read_files(question: &WhatIf) -> Result<Vec<Object>, Trouble> {
    let mut objects = Vec::new();
    for path in &question.file {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| unreadable("standard input", &error))?;
            objects.extend(documents("standard input", &text, &question.namespace)?);
            continue;
        }
        for path in files(path, question.recursive, true)? {
            let name = path.display().to_string();
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&name, &error))?;
            objects.extend(documents(&name, &text, &question.namespace)?);
        }
    }
    Ok(objects)
}

/// The file itself, or the files of a folder that hold objects by their names, in the order of their names.
fn files(path: &Path, recursive: bool, is_given: bool) -> Result<Vec<PathBuf>, Trouble> {
    let name = path.display().to_string();
    if !path.is_dir() {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_read = is_given || matches!(ending, Some("yaml" | "yml" | "json"));
        return Ok(if is_read {
            vec![path.to_owned()]
        } else {
            vec![]
        });
    }
    if !is_given && !recursive {
        return Ok(vec![]);
    }
    let entries = fs::read_dir(path).map_err(|error| unreadable(&name, &error))?;
    let entries = entries.collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| unreadable(&name, &error))?;
    let mut entries: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        found.extend(files(&entry, recursive, false)?);
    }
    Ok(found)
}

fn unreadable(name: &str, error: &io::Error) -> Trouble {
    Trouble::Input(BadInput {
        at: name.to_owned(),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
