//! `kproxide plan` and `kproxide explain`: what kproxide would do with objects of files or of a cluster that is only read.

use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kproxide_planner::facts::Delta;
use kproxide_planner::kubernetes::selector::selects;
use kproxide_planner::plan::Plan;
use kproxide_planner::world::PodView;
use serde::Serialize;
use serde_json::Value;

use super::exit::NoProxmox;
use super::{Exit, cage, tell};
use crate::args::{ExplainArgs, Format, Leader, PlanArgs, WhatIf};
use crate::manifest::{BadInput, Object, documents, everything};
use crate::whatif::{
    self, Answer, Changes, Controller, Explanation, Input, NoAnswer, Replicas, Scene, Subject,
    Text, Told, Trouble,
};
use kproxide_common::chain::chain;
use kproxide_common::clock::Clock;
use kproxide_common::decisions::Decision;
use kproxide_common::foreign::{self, Out, shown};
use kproxide_controller::connect::connect;
use kproxide_controller::observe::{self, Clusters};
use kproxide_kube::client::{Client, ConnectError};
use kproxide_policy::{Directories, Execution, Library};

/// # Errors
/// The cluster cannot be read, a policy cannot be loaded, or the output is closed.
pub fn run(args: &PlanArgs, out: &mut Out<impl Write>) -> Result<Exit, Box<dyn Error>> {
    let (scene, plan) = done(async |policies| answered(args, policies).await)?;
    let mut answer = Answer::of(&scene, &plan);
    if args.verdicts {
        answer = answer.with_verdicts(&scene.world);
    }
    let namespace = args.question.namespace.as_ref();
    let namespace =
        namespace.filter(|_| args.question.from_cluster && !args.question.all_namespaces);
    if namespace.is_some() || args.selector.is_some() {
        let is_listed = |pod: &PodView<'_>| {
            namespace.is_none_or(|one| **one == **pod.namespace())
                && (args.selector.iter()).all(|selector| selects(selector, pod.labels()))
        };
        answer = answer.only(&scene.world, is_listed);
    }
    match args.output {
        Format::Text => {
            let is_bold = is_bold(&args.question);
            let text = Text(&answer).to_string();
            write!(out.raw(), "{}", set_off(&shown(&text), is_bold))?;
        }
        format @ (Format::Json | Format::Yaml) => print(out, format, &answer)?,
    }
    Ok(match args.exit_code {
        true if answer.summary.pods_without_help > 0 => Exit::Errors,
        true if answer.has_work() => Exit::Warnings,
        true | false => Exit::Success,
    })
}

/// # Errors
/// As of [`run`].
pub fn explain(args: &ExplainArgs, out: &mut Out<impl Write>) -> Result<Exit, Box<dyn Error>> {
    let explanation = done(async |policies| explained(args, policies).await)?;
    match args.output {
        Format::Text => {
            let is_bold = is_bold(&args.question);
            let text = explanation.to_string();
            write!(out.raw(), "{}", set_off(&shown(&text), is_bold))?;
        }
        format @ (Format::Json | Format::Yaml) => print(out, format, &explanation)?,
    }
    Ok(Exit::Success)
}

fn is_bold(question: &WhatIf) -> bool {
    is_coloured(question.no_color)
}

/// Standard output is a terminal, and nobody has said that it should not be used as one.
pub(super) fn is_coloured(no_color: bool) -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    !no_color && !is_refused && io::stdout().is_terminal()
}

/// The first line is the answer.
fn set_off(text: &str, is_bold: bool) -> String {
    match text.split_once('\n') {
        Some((first, rest)) if is_bold => format!("\x1b[1m{first}\x1b[0m\n{rest}"),
        Some(_) | None => text.to_owned(),
    }
}

pub fn print(
    out: &mut impl Write,
    format: Format,
    data: &impl Serialize,
) -> Result<(), Box<dyn Error>> {
    match format {
        Format::Yaml => write!(out, "{}", yaml(data)?)?,
        Format::Json | Format::Text => {
            let text = serde_json::to_string_pretty(data)?;
            writeln!(out, "{}", foreign::json(&text))?;
        }
    }
    Ok(())
}

/// YAML escapes what it likes, so each text is cleaned before.
fn clean(value: Value) -> Value {
    match value {
        Value::String(text) => shown(&text).into(),
        Value::Array(values) => values.into_iter().map(clean).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(name, value)| (shown(&name).into_owned(), clean(value)))
                .collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// As JSON, with the names of the fields in one order.
pub(super) fn yaml(data: &impl Serialize) -> Result<String, Box<dyn Error>> {
    Ok(serde_saphyr::to_string(&clean(serde_json::to_value(
        data,
    )?))?)
}

/// What the work gives.
pub(super) fn done<T>(
    work: impl AsyncFnOnce(&Library) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let policies = Library::new(cage::for_a_person(Execution::Blocking)?);
    runtime.block_on(work(&policies))
}

async fn answered(args: &PlanArgs, policies: &Library) -> Result<(Scene, Plan), Box<dyn Error>> {
    let question = &args.question;
    let client = connected(question, question.from_cluster).await?;
    let mut input = given(question, client.as_ref()).await?;
    if client.is_some() && question.proxmox_credentials.is_none() {
        let patience = question.connection.request_timeout;
        let told = told(&args.leader, None, patience, client.as_ref()).await;
        input.controller = Some(told.map_err(|error| error.brief()));
    }
    let (scene, plan, _) = planned(question, input, policies).await?;
    Ok((scene, plan))
}

async fn explained(args: &ExplainArgs, policies: &Library) -> Result<Explanation, Box<dyn Error>> {
    let question = &args.question;
    let asks = question.file.is_empty() && !question.from_cluster;
    let is_read = question.from_cluster || asks && args.admin.is_none();
    let client = connected(question, is_read).await?;
    let namespace = match question.all_namespaces {
        true => "",
        false => namespace(question, client.as_ref()),
    };
    let subject = Subject::read(&args.subject, namespace).map_err(Trouble::Flag)?;
    let told = match asks {
        true => Some(controller_says(args, client.as_ref()).await?),
        false => None,
    };
    let mut decisions = Vec::new();
    let mut no_answer = None;
    let input = match told {
        Some(Ok(told)) => {
            decisions = told.decisions;
            Input {
                saved: Some(told.world),
                ..Input::default()
            }
        }
        Some(Err(error)) => {
            no_answer = Some(error);
            let mut input = given(question, client.as_ref()).await?;
            input.is_as_given = true;
            input
        }
        None => given(question, client.as_ref()).await?,
    };
    let is_told = input.saved.is_some();
    let (scene, plan, latest) = planned(question, input, policies).await?;
    for assumed in scene.assumed.iter().filter(|_| is_told) {
        tell(assumed);
    }
    decisions.extend(latest);
    let explanation = whatif::explain(&scene, &plan, &decisions, &subject);
    let explanation = explanation.map_err(Trouble::Flag)?;
    Ok(match no_answer {
        Some(error) => explanation.without_leader(&error, &args.leader.lease.0),
        None => explanation,
    })
}

/// The controller's own world and decisions. The inner error: it does not answer, and that was said.
async fn controller_says(
    args: &ExplainArgs,
    client: Option<&Client>,
) -> Result<Result<Told, NoAnswer>, Box<dyn Error>> {
    let patience = args.question.connection.request_timeout;
    let admin = args.admin.as_deref();
    match told(&args.leader, admin, patience, client).await {
        Ok(told) => Ok(Ok(told)),
        Err(error @ NoAnswer::Forbidden { .. }) => Err(error.into()),
        Err(error) if admin.is_some() => Err(error.into()),
        Err(error) => {
            let why = chain(&error);
            tell(format_args!(
                "{why}. So the answer is computed here, from what the cluster lists"
            ));
            Ok(Err(error))
        }
    }
}

/// What the controller says at this address, or else the replica that leads in the cluster.
pub(super) async fn told(
    leader: &Leader,
    admin: Option<&str>,
    patience: Duration,
    client: Option<&Client>,
) -> Result<Told, NoAnswer> {
    let (namespace, lease) = &leader.lease;
    let controller = match (admin, client) {
        (Some(url), _) => {
            let http = reqwest::Client::builder().no_proxy().timeout(patience);
            let unusable = |error: reqwest::Error| NoAnswer::Silent(url.to_owned(), error.into());
            Controller::Url {
                http: http.build().map_err(unusable)?,
                url: url.to_owned(),
            }
        }
        (None, Some(client)) => {
            Controller::leading(client.clone(), namespace, lease, leader.admin_port).await?
        }
        (None, None) => return Err(NoAnswer::Nobody(format!("{namespace}/{lease}"), None)),
    };
    controller.tell().await
}

/// The cluster, if it is to be read.
async fn connected(question: &WhatIf, is_read: bool) -> Result<Option<Client>, ConnectError> {
    match is_read {
        true => Client::connect_as_user(&question.connection)
            .await
            .map(Some),
        false => Ok(None),
    }
}

/// The namespace that is meant where none is named.
fn namespace<'a>(question: &'a WhatIf, client: Option<&'a Client>) -> &'a str {
    let of_context = || client.map_or("default", Client::namespace);
    question.namespace.as_deref().unwrap_or_else(of_context)
}

/// What `-f` names, and what the cluster lists.
pub(super) async fn given(
    question: &WhatIf,
    client: Option<&Client>,
) -> Result<Input, Box<dyn Error>> {
    let mut input = Input {
        files: read_files(question, namespace(question, client))?,
        ..Input::default()
    };
    if let Some(client) = client {
        (input.cluster, input.unseen) = everything(client).await?;
    }
    Ok(input)
}

/// The world of the input, its plan, and what policies answered.
async fn planned(
    question: &WhatIf,
    input: Input,
    policies: &Library,
) -> Result<(Scene, Plan, Vec<Decision>), Box<dyn Error>> {
    let scene = scene(question, input, policies).await?;
    let (plan, decisions) = whatif::plan(&scene.world, scene.now, policies).await;
    Ok((scene, plan, decisions))
}

/// The world of the input, with the policies that there are.
pub(super) async fn scene(
    question: &WhatIf,
    input: Input,
    policies: &Library,
) -> Result<Scene, Box<dyn Error>> {
    let changes = changes(question)?;
    let clock = Clock::starting_at(Clock::System.now());
    let mut scene = whatif::build(input, &changes, question.now, clock.now())?;
    if let Some(folder) = &question.proxmox_credentials {
        proxmox_says(&mut scene, folder, &clock).await?;
    }
    scene.finish(&changes)?;
    let pools = scene.world.pools().values();
    let named = pools.flat_map(|pool| pool.policies.each());
    let named = named.map(|(_, used)| used.policy.name).collect();
    let files = Directories::new(&question.policy_dir).read(&named);
    let reloads = policies.sync(files).await;
    for reload in reloads {
        if let kproxide_policy::ReloadOutcome::Refused(refusal) = reload.outcome {
            return Err(Trouble::Flag(refusal.to_string()).into());
        }
    }
    scene.take_policies(policies);
    Ok(scene)
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
///
/// # Errors
/// None of them answers.
async fn proxmox_says(scene: &mut Scene, folder: &Path, clock: &Clock) -> Result<(), NoProxmox> {
    let clusters = Clusters::new(connect(folder.to_owned()));
    for (cluster, connection) in scene.unknown_clusters() {
        clusters.configure(&cluster, Some(connection));
    }
    let wanted = observe::wanted(&scene.world);
    let (mut asked, mut problems) = (0, Vec::new());
    for delta in clusters.refresh(Duration::ZERO, wanted, clock).await {
        asked += 1;
        if let Delta::Inventory(cluster, Some(facts)) = &delta
            && !facts.reachable
        {
            let problem = facts.problem.as_deref().unwrap_or("it does not answer");
            problems.push(format!("ProxmoxCluster {cluster}: {problem}"));
        }
        scene.world.apply(delta);
    }
    // A plan for what is left says which one is missing.
    match !problems.is_empty() && problems.len() == asked {
        true => Err(NoProxmox(problems.join("; "))),
        false => Ok(()),
    }
}

/// Everything that `-f` names, in its order, a layer for each.
fn read_files(question: &WhatIf, namespace: &str) -> Result<Vec<Vec<Object>>, Trouble> {
    let mut layers = Vec::new();
    for path in &question.file {
        let mut objects = Vec::new();
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| unreadable("standard input", &error))?;
            objects.extend(documents("standard input", &text, namespace)?);
        } else {
            for path in files(path, question.recursive, true)? {
                let name = path.display().to_string();
                let text = fs::read_to_string(&path).map_err(|error| unreadable(&name, &error))?;
                objects.extend(documents(&name, &text, namespace)?);
            }
        }
        layers.push(objects);
    }
    let is_empty = layers.iter().all(Vec::is_empty);
    match question.file.last() {
        Some(last) if is_empty && !question.from_cluster => Err(Trouble::Input(BadInput {
            at: last.display().to_string(),
            problem: "no Kubernetes object was read (-R reads the folders in folders too)"
                .to_owned(),
        })),
        _ => Ok(layers),
    }
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
