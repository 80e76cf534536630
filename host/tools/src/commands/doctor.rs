//! `kproxide doctor`: the operating system's part of it, and what its exit codes mean.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::exit::Mistake;
use super::plan::print;
use super::{Exit, cage};
use crate::args::{DoctorArgs, FailOn, Format};
#[cfg(feature = "init")]
use crate::doctor::Report;
use crate::doctor::{Files, Installation, Scripts, Sources, Values, check_pod, examine};
use crate::manifest::BadInput;
use kproxide_common::clock::Clock;
use kproxide_common::paths::{CREDENTIALS, JOIN, POLICIES};
use kproxide_controller::connect::{connect, connect_by};
use kproxide_controller::judge::{Finding, Level};
use kproxide_controller::observe::Connect;
use kproxide_kube::access::Account;
use kproxide_kube::client::{Client, ConnectError};
use kproxide_policy::{Directories, Execution, Library, PolicyFiles};
use kproxide_pve::auth::{Credentials, CredentialsError};
use kproxide_pve::tls::Trust;

/// Every pod with a ServiceAccount has it.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// # Errors
/// The input is bad, Kubernetes does not answer, policies cannot run here, or the output is closed.
pub fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(examined(args, out))
}

async fn examined(args: &DoctorArgs, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let policies = Library::new(cage::for_a_person(Execution::Blocking)?);
    let (sources, findings) = match &args.values {
        Some(file) => of_values(args, file, policies).await?,
        None => of_cluster(args, policies).await?,
    };
    let report = examine(&sources, findings).await?;
    match args.output {
        Format::Text => write!(out, "{report}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &report)?,
    }
    Ok(match (report.worst(), args.fail_on) {
        (Level::Error, FailOn::Warning | FailOn::Error) => Exit::Errors,
        (Level::Warning, FailOn::Warning) => Exit::Warnings,
        (Level::Ok | Level::Warning | Level::Error, _) => Exit::Success,
    })
}

/// A cluster in which kproxide is installed, or will be.
async fn of_cluster(
    args: &DoctorArgs,
    policies: Library,
) -> Result<(Sources, Vec<Finding>), ConnectError> {
    let is_pod = is_pod(args);
    let kube = connected(args, is_pod).await?;
    let installation = match is_pod {
        true => Installation::default(),
        false => Installation::read(&kube, &args.namespace, &args.name).await,
    };
    let findings = installation.findings.clone();
    let mut files = match is_pod && args.policy_dir.is_empty() {
        true => policy_files(&[PathBuf::from(POLICIES)]),
        false => policy_files(&args.policy_dir),
    };
    // Those of a folder that is given come first.
    for (name, mounted) in installation.policies() {
        files.entry(name).or_default().extend(mounted);
    }
    policies.sync(files).await;
    let sources = Sources {
        kube: Some(kube),
        objects: Vec::new(),
        connect: match (&args.proxmox_credentials, is_pod) {
            (Some(folder), _) => connect(folder.clone()),
            (None, true) => connect(PathBuf::from(CREDENTIALS)),
            (None, false) => {
                let folder = installation.flag("credentials-dir", CREDENTIALS);
                connect_with(folder.to_owned(), installation.files.clone())
            }
        },
        policies,
        scripts: match (&args.join_dir, is_pod) {
            (Some(folder), _) => Scripts::Folder(folder.clone()),
            (None, true) => Scripts::Folder(PathBuf::from(JOIN)),
            (None, false) if installation.account.is_some() => Scripts::Mounted {
                folder: installation.flag("join-dir", JOIN).to_owned(),
                files: installation.files.clone(),
            },
            (None, false) => Scripts::Unseen,
        },
        namespace: args.namespace.clone(),
        name: args.name.clone(),
        account: match is_pod {
            true => Some(Account::Caller),
            false => installation.account,
        },
        clock: Clock::starting_at(Clock::System.now()),
        place: match is_pod {
            true => "this pod".to_owned(),
            false => "this computer".to_owned(),
        },
    };
    Ok((sources, findings))
}

fn policy_files(folders: &[PathBuf]) -> PolicyFiles {
    let mut folders = folders.to_vec();
    folders.retain(|folder| folder.as_path() != Path::new(POLICIES) || folder.exists());
    Directories::new(&folders).read(&BTreeSet::new())
}

/// The chart's values, before anything is installed. In a cluster that is named, Nodes and pods are looked at too.
async fn of_values(
    args: &DoctorArgs,
    file: &Path,
    policies: Library,
) -> Result<(Sources, Vec<Finding>), Box<dyn Error>> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Mistake(format!("{name}: {error}")))?;
    let values = Values::read(&name, &text).map_err(|bad: BadInput| Mistake(bad.to_string()))?;
    let connect = match &args.proxmox_credentials {
        Some(folder) => connect(folder.clone()),
        None if values.hides_credentials => {
            return Err(Box::new(Mistake(format!(
                "{name}: credentials are in a Secret: give --proxmox-credentials DIR, with a folder of the name of each entry of clusters, and in it the files token-id and token-secret"
            ))));
        }
        None => connect_with(CREDENTIALS.to_owned(), values.files.clone()),
    };
    policies.sync(policy_files(&args.policy_dir)).await;
    let sources = Sources {
        kube: None,
        objects: values.objects,
        connect,
        policies,
        scripts: match &args.join_dir {
            Some(folder) => Scripts::Folder(folder.clone()),
            None if values.hides_scripts => Scripts::Unseen,
            None => Scripts::Mounted {
                folder: JOIN.to_owned(),
                files: values.files,
            },
        },
        namespace: args.namespace.clone(),
        name: args.name.clone(),
        account: None,
        clock: Clock::starting_at(Clock::System.now()),
        place: "this computer".to_owned(),
    };
    let found = match (is_named(args), &values.pod) {
        (true, Some(pod)) => {
            let kube = Client::connect_as_user(&args.connection).await?;
            check_pod(&kube, &args.namespace, &args.name, pod).await?
        }
        (true | false, _) => None,
    };
    Ok((sources, found.into_iter().collect()))
}

/// What is wrong with the chart's values before anything is installed. `files`: what the pod will have mounted, by path.
///
/// # Errors
/// Policies cannot run here, Kubernetes no longer answers, or the text holds no values.
#[cfg(feature = "init")]
pub(super) async fn findings(
    text: &str,
    files: Files,
    kube: &Client,
    namespace: &str,
) -> Result<Report, Box<dyn Error>> {
    let values = Values::read("values.yaml", text).map_err(|bad| bad.to_string())?;
    let sources = Sources {
        kube: None,
        objects: values.objects,
        connect: connect_with(CREDENTIALS.to_owned(), files.clone()),
        policies: Library::new(cage::for_a_person(Execution::Blocking)?),
        scripts: Scripts::Mounted {
            folder: JOIN.to_owned(),
            files,
        },
        namespace: namespace.to_owned(),
        name: "kproxide".to_owned(),
        account: None,
        clock: Clock::starting_at(Clock::System.now()),
        place: "this computer".to_owned(),
    };
    let found = match &values.pod {
        Some(pod) => check_pod(kube, namespace, "kproxide", pod).await?,
        None => None,
    };
    Ok(examine(&sources, found.into_iter().collect()).await?)
}

/// With the credentials and certificates that the controller's pod has at their paths.
fn connect_with(folder: String, files: Files) -> Connect {
    let certificates = files.clone();
    connect_by(
        move |name| {
            let folder = format!("{folder}/{name}");
            let files = files.clone();
            Arc::new(move || {
                Credentials::of_files(&folder, |key| {
                    let path = format!("{folder}/{key}");
                    let text = files.get(&path).cloned().map(String::from_utf8);
                    // A file that is there and cannot be read is not one that is missing.
                    text.transpose()
                        .map_err(|error| CredentialsError::Unreadable {
                            path,
                            problem: error.utf8_error().to_string(),
                        })
                })
            })
        },
        move |path| match certificates.get(&path.display().to_string()) {
            Some(pem) => Trust::Ca(path.to_owned(), pem.clone()),
            None => Trust::CaFile(path.to_owned()),
        },
    )
}

/// Somebody has said which cluster.
fn is_named(args: &DoctorArgs) -> bool {
    let connection = &args.connection;
    connection.kubeconfig.is_some() || connection.context.is_some() || connection.as_user.is_some()
}

/// This is a pod, and nobody has named another cluster.
fn is_pod(args: &DoctorArgs) -> bool {
    !is_named(args)
        && Path::new(TOKEN).exists()
        && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

async fn connected(args: &DoctorArgs, is_pod: bool) -> Result<Client, ConnectError> {
    match is_pod {
        true => Client::connect(None).await,
        false => Client::connect_as_user(&args.connection).await,
    }
}
