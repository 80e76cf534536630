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
use crate::chain::chain;
use crate::kube::client::Client;

use ask::{Asker, Question};
use files::{Folder, Written};
use given::by_cluster;
use join::Joining;
use kubernetes::Kubernetes;
use proxmox::Cluster;

/// Why there is no folder at the end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
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
pub(super) fn run(args: &Init, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (folder, kube) = runtime.block_on(write_folder(args, out))?;
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
async fn write_folder(args: &Init, out: &mut impl Write) -> Result<(Written, Client), Problem> {
    let given = by_cluster(args)?;
    let asker = Asker::new(args.non_interactive)?;
    let folder = Folder::claim(&args.out, args.force)?;
    let kube = Client::connect_as_user(&args.connection).await;
    let kube = kube.map_err(|error| Problem::input(chain(&error)))?;
    let kubernetes = Kubernetes::read(&kube).await?;
    writeln!(out, "Kubernetes {}", kubernetes.version)?;

    let mut clusters = Vec::new();
    for (name, given) in &given {
        clusters.push(Cluster::ask(asker, out, name, given).await?);
    }
    while asker.confirms("Another Proxmox cluster?", Some(false))? {
        let is_new = |name: &str| match clusters.iter().any(|it: &Cluster| it.name == name) {
            true => Err("there is one of that name already".to_owned()),
            false => given::check_name(name),
        };
        let question = Question {
            text: "Its name",
            flag: "--endpoint",
        };
        let name = asker.text(question, None, None, &is_new)?;
        clusters.push(Cluster::ask(asker, out, &name, &given::Given::default()).await?);
    }
    let class = offers::ask(asker, args, &mut clusters).await?;
    let joining = Joining::ask(asker, args, &kubernetes)?;
    let written = folder.write(args, &clusters, &class, joining.as_ref())?;
    Ok((written, kube))
}
