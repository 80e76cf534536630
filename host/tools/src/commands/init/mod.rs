//! `kproxide init`: what an installation needs, from questions or flags, and from what Proxmox and Kubernetes say.
//!
//! ```text
//! folder free? ─► Kubernetes: version, server ─► each Proxmox: certificate, token, pool, servers ─► template, storage
//!                                                                          └─► way to join ─► files ─► doctor
//! ```

mod ask;
mod files;
mod given;
mod join;
mod kept;
mod kubernetes;
mod offers;
mod proxmox;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::Write;

use super::doctor::findings;
use super::exit::Exit;
use crate::args::Init;
use kproxide_common::chain::chain;
use kproxide_kube::client::Client;

use ask::{Asker, typed};
use files::{Folder, Written};
use given::by_cluster;
use join::Joining;
use kubernetes::Kubernetes;
use proxmox::Cluster;

/// Why there is no folder at the end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct Problem {
    pub(super) exit: Exit,
    text: String,
}

impl Problem {
    fn new(exit: Exit, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { exit, text }
    }

    /// An answer is missing or cannot be used.
    fn input(text: impl Into<String>) -> Self {
        Self::new(Exit::BadInput, text)
    }

    /// Kubernetes cannot be reached, or refuses.
    fn kubernetes(text: impl Into<String>) -> Self {
        Self::new(Exit::Kubernetes, text)
    }

    /// Proxmox cannot be reached, or refuses, or is not the one that is meant.
    fn proxmox(text: impl Into<String>) -> Self {
        Self::new(Exit::Proxmox, text)
    }

    fn other(text: impl Into<String>) -> Self {
        Self::new(Exit::Failure, text)
    }

    /// One for all answers that are missing or cannot be used. `None`: there is none of these.
    fn of_answers(mut problems: Vec<Self>) -> Option<Self> {
        problems.retain(|it| it.exit == Exit::BadInput);
        if problems.len() < 2 {
            return problems.pop();
        }
        let lines = problems.iter().map(|it| format!("\n  {}", it.text));
        let lines: String = lines.collect();
        Some(Self::input(format!(
            "answers are missing, or cannot be used:{lines}"
        )))
    }
}

impl From<dialoguer::Error> for Problem {
    fn from(error: dialoguer::Error) -> Self {
        Self::other(format!("the terminal: {error}"))
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::other(error.to_string())
    }
}

/// # Errors
/// There is no folder, or policies cannot run here, or Kubernetes no longer answers.
pub fn run(args: &Init, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let asker = Asker::new(args.non_interactive, &args.out)?;
    let written = runtime.block_on(write_folder(&asker, args, out));
    if let (Err(_), Asker::Person(kept)) = (&written, &asker)
        && !kept.is_empty()
    {
        let file = kept.file.display();
        writeln!(
            out,
            "\n{file} keeps your answers, but no secret. The next run offers them again."
        )?;
    }
    let (folder, kube) = written?;
    writeln!(out, "\nWhat doctor finds:")?;
    let found = findings(&folder.values, folder.mounted, &kube, &args.namespace);
    let report = runtime.block_on(found)?;
    write!(out, "{report}")?;
    let page = folder.page.display();
    writeln!(out, "\nThe commands that come next are in {page}:")?;
    for command in folder.commands {
        writeln!(out, "  {command}")?;
    }
    Ok(Exit::Success)
}

/// Everything but doctor, which looks at the same cluster.
async fn write_folder(
    asker: &Asker,
    args: &Init,
    out: &mut impl Write,
) -> Result<(Written, Client), Problem> {
    let given = by_cluster(args)?;
    let folder = Folder::claim(&args.out, args.force)?;
    let connected = match connect(args).await {
        // No answer mends it.
        Err(problem) if problem.exit != Exit::BadInput => return Err(problem),
        connected => connected,
    };
    if asker.is_nobody() {
        let mut lacking: Vec<Problem> = connected.as_ref().err().cloned().into_iter().collect();
        for (name, given) in &given {
            lacking.extend(Cluster::lacking(name, given).await);
        }
        let kubernetes = connected.as_ref().ok().map(|(_, kubernetes)| kubernetes);
        lacking.extend(Joining::lacking(args, kubernetes));
        if let Some(problem) = Problem::of_answers(lacking) {
            return Err(problem);
        }
    }
    let (kube, kubernetes) = connected?;
    writeln!(out, "Kubernetes {}", kubernetes.version)?;
    let before = match asker {
        Asker::Person(kept) if !kept.is_empty() => {
            let file = kept.file.display();
            writeln!(
                out,
                "Your answers of an earlier run ({file}) are offered again."
            )?;
            kept.clusters()
        }
        Asker::Person(_) | Asker::Nobody => Vec::new(),
    };

    let mut clusters = Vec::new();
    for (name, given) in &given {
        clusters.push(Cluster::ask(asker, out, name, given).await?);
    }
    loop {
        let is_asked = |name: &&String| clusters.iter().any(|it: &Cluster| it.name == **name);
        let next = before.iter().find(|name| !is_asked(name));
        if !asker.confirms("Another Proxmox cluster?", Some(next.is_some()))? {
            break;
        }
        let is_new = |name: &str| match clusters.iter().any(|it: &Cluster| it.name == name) {
            true => Err("there is one of that name already".to_owned()),
            false => given::check_name(name),
        };
        let name = typed("Its name", next.map(String::as_str), &is_new)?;
        clusters.push(Cluster::ask(asker, out, &name, &given::Given::default()).await?);
    }
    let class = offers::ask(asker, args, &mut clusters).await?;
    let joining = Joining::ask(asker, args, &kubernetes)?;
    let written = folder.write(args, &clusters, &class, joining.as_ref())?;
    if let Asker::Person(kept) = asker {
        kept.forget();
    }
    Ok((written, kube))
}

/// The cluster, and what it says of itself.
async fn connect(args: &Init) -> Result<(Client, Kubernetes), Problem> {
    let kube = Client::connect_as_user(&args.connection).await;
    let kube = kube.map_err(|error| Problem::input(chain(&error)))?;
    let kubernetes = Kubernetes::read(&kube).await?;
    Ok((kube, kubernetes))
}
