//! `kproxide run`: the autoscaler in production. The operating system's clock, randomness, signals, files and sockets come in here.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use rand::TryRngCore;
use rand::rngs::OsRng;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{EX_USAGE, start_log};
use crate::admin;
use crate::app::{App, AppError, Host, Random};
use crate::args::Run;
use crate::clock::Clock;
use crate::config::Config;
use crate::kube::client::Client;
use crate::kube::convert::TrustSettings;
use crate::observe::Connect;
use crate::policy::{Deaths, Engine, Execution, Library, watch_directories};
use crate::pve::auth::mounted;
use crate::pve::client::Client as PveClient;
use crate::pve::tls::Trust;

/// # Errors
/// The process cannot start, or one of its tasks ended.
pub(super) fn run(args: &Run) -> Result<ExitCode, Box<dyn Error>> {
    let config = match Config::new(args) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("kproxide: {error}");
            return Ok(ExitCode::from(EX_USAGE));
        }
    };
    if let Err(error) = start_log(args.log_format, &args.log) {
        eprintln!("kproxide: {error}");
        return Ok(ExitCode::from(EX_USAGE));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(args, config))
}

async fn serve(args: &Run, config: Config) -> Result<ExitCode, Box<dyn Error>> {
    let kube = Client::connect(args.kubeconfig.as_deref()).await?;
    let listener = TcpListener::bind(args.admin_address)
        .await
        .map_err(|error| format!("--admin-address {}: {error}", args.admin_address))?;
    let (files, policy_files) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let connect = connect(&config);
    let policy_dirs = config.policy_dirs.clone();
    let engine = Engine::new(Execution::Blocking).map_err(AppError::Policies)?;
    let app = App::new(Host {
        config,
        // Read once: from here on a wall clock that somebody sets changes no age and no deadline.
        clock: Clock::starting_at(Clock::System.now()),
        kube,
        connect,
        policies: Library::new(engine).remembering(Deaths::open(&args.state_dir)),
        random: os_random(),
        policy_files,
        stop: stop.clone(),
    })?;
    let admin = axum::serve(listener, admin::router(app.vitals(), app.metrics()));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let running = app.run();
    tokio::pin!(running);
    let stopping = stop.clone();
    let watched = async move {
        watch_directories(policy_dirs, files).await;
        // It ends with the app, which may still have its Lease to release.
        if stopping.is_cancelled() {
            std::future::pending::<()>().await;
        }
    };
    let aside = async {
        // Neither ends by itself; whatever made one end, the process cannot do without it.
        tokio::select! {
            biased;
            served = admin.into_future() => served.map(|()| "the admin endpoints ended"),
            () = watched => Ok("the watch of the policy directories ended"),
        }
    };
    tokio::pin!(aside);
    let mut asked = 0;
    loop {
        tokio::select! {
            biased;
            ended = &mut running => {
                ended?;
                return Ok(ExitCode::SUCCESS);
            }
            _ = terminate.recv() => asked += 1,
            _ = interrupt.recv() => asked += 1,
            ended = &mut aside => return Err(ended?.into()),
        }
        // The first signal lets running steps reach a safe point; whoever asks twice cannot wait.
        if asked > 1 {
            return Ok(ExitCode::FAILURE);
        }
        tracing::info!("stopping; a second signal ends at once");
        stop.cancel();
    }
}

fn connect(config: &Config) -> Connect {
    let credentials = config.credentials_dir.clone();
    Arc::new(move |connection, concurrency| {
        let trust = match &connection.trust {
            TrustSettings::System => Trust::System,
            TrustSettings::CaFile(path) => Trust::CaFile(path.clone()),
            TrustSettings::InsecureSkipVerify => {
                tracing::warn!(
                    endpoints = ?connection.endpoints,
                    "tls.insecureSkipVerify: anybody between here and Proxmox can read the token and take the cluster over"
                );
                Trust::InsecureSkipVerify
            }
            TrustSettings::Fingerprints(fingerprints) => Trust::Fingerprints(
                fingerprints
                    .iter()
                    .map(|text| text.parse())
                    .collect::<Result<_, _>>()
                    .map_err(|error| crate::chain::chain(&error))?,
            ),
        };
        PveClient::https(
            &connection.endpoints,
            &trust,
            mounted(credentials.join(&connection.credentials)),
            concurrency,
        )
        .map_err(|error| crate::chain::chain(&error))
    })
}

fn os_random() -> Random {
    Arc::new(|bytes| {
        OsRng
            .try_fill_bytes(bytes)
            .expect("the operating system gives random bytes once it has booted")
    })
}
