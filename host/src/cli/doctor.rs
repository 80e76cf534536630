//! `kproxide doctor`: the operating system's part of it, and what its exit codes mean.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::plan::{BAD_INPUT, print};
use super::run::{connect, connect_by};
use crate::args::{DoctorArgs, FailOn, Format};
use crate::chain::chain;
use crate::clock::Clock;
use crate::doctor::{Installation, Level, Scripts, Sources, examine};
use crate::kube::access::Account;
use crate::kube::client::{Client, ConnectError};
use crate::observe::Connect;
use crate::policy::{Directories, Engine, Execution, Library};
use crate::pve::auth::Credentials;
use crate::pve::tls::Trust;

/// Kubernetes is not reachable, or refuses the caller.
const NO_KUBERNETES: u8 = 3;
const WARNINGS: u8 = 10;
const ERRORS: u8 = 20;

/// Where a pod has its mounts, as the chart makes them.
const CREDENTIALS: &str = "/etc/kproxide/credentials";
const JOIN: &str = "/etc/kproxide/join";
/// Every pod with a ServiceAccount has it.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// # Errors
/// Policies cannot run here, or the output is closed.
pub(super) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(examined(args, out))
}

async fn examined(args: &DoctorArgs, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let is_pod = is_pod(args);
    let kube = match connected(args, is_pod).await {
        Ok(kube) => kube,
        Err(error) => {
            eprintln!("kproxide: {}", chain(&error));
            return Ok(ExitCode::from(BAD_INPUT));
        }
    };
    let mut findings = Vec::new();
    let installation = match is_pod {
        true => Installation::default(),
        false => Installation::read(&kube, &args.namespace, &args.name).await,
    };
    findings.extend(installation.findings.iter().cloned());
    let policies = Library::new(Engine::new(Execution::Blocking)?);
    policies
        .sync(Directories::new(&args.policy_dir).read())
        .await;
    let sources = Sources {
        kube,
        connect: match (&args.proxmox_credentials, is_pod) {
            (Some(folder), _) => connect(folder.clone()),
            (None, true) => connect(PathBuf::from(CREDENTIALS)),
            (None, false) => connect_as(&installation),
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
    let report = match examine(&sources, findings).await {
        Ok(report) => report,
        Err(error) => {
            eprintln!("kproxide: {}", chain(&error));
            return Ok(ExitCode::from(NO_KUBERNETES));
        }
    };
    match args.output {
        Format::Text => write!(out, "{report}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &report)?,
    }
    Ok(match (report.worst(), args.fail_on) {
        (Level::Error, FailOn::Warning | FailOn::Error) => ExitCode::from(ERRORS),
        (Level::Warning, FailOn::Warning) => ExitCode::from(WARNINGS),
        (Level::Ok | Level::Warning | Level::Error, _) => ExitCode::SUCCESS,
    })
}

/// With the credentials that the controller's pod has.
fn connect_as(installation: &Installation) -> Connect {
    let folder = installation.flag("credentials-dir", CREDENTIALS).to_owned();
    let (files, certificates) = (installation.files.clone(), installation.files.clone());
    connect_by(
        move |name| {
            let folder = format!("{folder}/{name}");
            let files = files.clone();
            Arc::new(move || {
                Credentials::of_files(&folder, |key| {
                    let bytes = files.get(&format!("{folder}/{key}")).cloned();
                    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
                })
            })
        },
        move |path| match certificates.get(&path.display().to_string()) {
            Some(pem) => Trust::Ca(path.to_owned(), pem.clone()),
            None => Trust::CaFile(path.to_owned()),
        },
    )
}

/// This is a pod, and nobody has named another cluster.
fn is_pod(args: &DoctorArgs) -> bool {
    let connection = &args.connection;
    let is_named = connection.kubeconfig.is_some()
        || connection.context.is_some()
        || connection.as_user.is_some();
    !is_named && Path::new(TOKEN).exists() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

async fn connected(args: &DoctorArgs, is_pod: bool) -> Result<Client, ConnectError> {
    match is_pod {
        true => Client::connect(None).await,
        false => Client::connect_as_user(&args.connection).await,
    }
}
