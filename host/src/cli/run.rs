//! `kproxide run`: the autoscaler in production. The operating system's clock, randomness, signals, files and sockets come in here.

use std::error::Error;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::start_log;
use kproxide_common::clock::Clock;
use kproxide_controller::admin;
use kproxide_controller::app::{App, AppError, Host, Random};
use kproxide_controller::args::Run;
use kproxide_controller::autoscaler::clock_off;
use kproxide_controller::config::Config;
use kproxide_controller::connect::connect;
use kproxide_kube::client::Client;
use kproxide_policy::{
    Engine, Execution, Library, LoadError, Workers, memory_bytes, watch_directories,
};
use kproxide_tools::commands::Exit;

/// How often to look at the operating system's clock, in case this process's own clock is wrong.
const CLOCK_LOOK: Duration = Duration::from_secs(30);

/// # Errors
/// The process cannot start, one of its tasks ended, or its clock is wrong and the operating system's is not.
pub(super) fn run(args: &Run) -> Result<Exit, Box<dyn Error>> {
    let config = Config::new(args)?;
    start_log(args.log_format, &args.log)?;
    raise_limit_of_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve(args, config));
    // Not waiting for a loop that hangs.
    runtime.shutdown_background();
    ended
}

/// The soft limit is for old programs that use `select`. 1,024 suffice for kproxide, but not while somebody else takes descriptors away.
fn raise_limit_of_open_files() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
}

/// What a step needs at once: a connection, and a file. Each costs a descriptor and memory.
fn open_both() -> std::io::Result<()> {
    let _socket = TcpSocket::new_v4()?;
    File::open("/dev/null").map(drop)
}

async fn serve(args: &Run, config: Config) -> Result<Exit, Box<dyn Error>> {
    let kube = Client::connect(args.kubeconfig.as_deref()).await?;
    let listener = TcpListener::bind(args.admin_address)
        .await
        .map_err(|error| format!("--admin-address {}: {error}", args.admin_address))?;
    let (files, policy_files) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let connect = connect(config.credentials_dir.clone());
    let policy_dirs = config.policy_dirs.clone();
    let engine = engine(args.policy_memory).map_err(AppError::Policies)?;
    let policies = Library::new(engine).waiting(args.policy_wait);
    let named = policies.named();
    // Read once, so that a change of the system's clock changes no age and no deadline.
    let clock = Clock::starting_at(Clock::System.now());
    let outdated = outdated(clock, Clock::System, kube.clone());
    tokio::pin!(outdated);
    let app = App::new(Host {
        config,
        clock,
        kube,
        connect,
        policies,
        random: os_random(),
        policy_files,
        stop: stop.clone(),
    })?;
    let admin = admin::connections::serve(listener, admin::router(app.vitals(), app.metrics()));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let fitness = app.fitness(Arc::new(open_both));
    // On a thread of its own: while the loop computes, probes are answered, and signals heard.
    let mut loops = JoinSet::new();
    loops.spawn_blocking(move || Handle::current().block_on(app.run()));
    let running = fitness.watch(loops);
    tokio::pin!(running);
    let stopping = stop.clone();
    let watched = async move {
        watch_directories(policy_dirs, named, files).await;
        // It ends with the app, which may still have its Lease to release.
        if stopping.is_cancelled() {
            std::future::pending::<()>().await;
        }
    };
    let aside = async {
        // Neither ends by itself. If the watch does, the process cannot go on.
        tokio::select! {
            biased;
            never = admin => match never {},
            () = watched => "the watch of the policy directories ended",
        }
    };
    tokio::pin!(aside);
    let mut asked = 0;
    let mut failure: Option<String> = None;
    loop {
        tokio::select! {
            biased;
            ended = &mut running => {
                ended?;
                return match failure {
                    None => Ok(Exit::Success),
                    Some(problem) => Err(problem.into()),
                };
            }
            _ = terminate.recv() => asked += 1,
            _ = interrupt.recv() => asked += 1,
            ended = &mut aside => return Err(ended.into()),
            problem = &mut outdated, if asked == 0 && failure.is_none() => {
                tracing::error!(problem, "stopping, to be started anew");
                failure = Some(problem);
                stop.cancel();
                continue;
            }
        }
        // The first signal lets running steps reach a safe point. The second one ends the process at once.
        if asked > 1 {
            return Ok(Exit::Failure);
        }
        tracing::info!("stopping; a second signal ends at once");
        stop.cancel();
    }
}

/// Returns once this process's clock is off what the API server says, and the operating system's is not; says by how much. The process's clock stands
/// still while its machine is paused (suspended, or a snapshot is taken with its memory), and it was wrong from the start if the machine's was. All ages
/// come from it, so a new process takes the right time rather than this one that jumps.
async fn outdated(clock: Clock, system: Clock, kube: Client) -> String {
    loop {
        tokio::time::sleep(CLOCK_LOOK).await;
        let Some(server) = kube.server_time() else {
            continue;
        };
        let off = clock_off(clock.now().duration_since(server));
        let system_is_off = clock_off(system.now().duration_since(server)).is_some();
        if let Some(off) = off
            && !system_is_off
        {
            return format!(
                "{off}, and its machine's is not: the machine was paused, or its clock has been set since the start"
            );
        }
    }
}

/// Files of policies are unpacked, compiled and called in processes of their own, with so much memory for all of them; without a number with what the
/// container leaves.
fn engine(memory: Option<u64>) -> Result<Engine, LoadError> {
    let workers = Workers::of_this_program(memory_bytes(memory))
        .map_err(|error| LoadError::Platform(error.to_string()))?;
    Ok(Engine::new(Execution::Blocking)?.caging(workers))
}

fn os_random() -> Random {
    Arc::new(|bytes| {
        OsRng
            .try_fill_bytes(bytes)
            .expect("the operating system gives random bytes once it has booted")
    })
}

#[cfg(test)]
mod tests {
    use ::kube::client::Body;
    use http::{Request, Response, header};
    use jiff::fmt::rfc2822::DateTimePrinter;
    use tower::BoxError;

    use super::*;
    use kproxide_kube::ledger;

    /// A connection to an API server that has just said what time it is there.
    async fn dated(server: Clock) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&server.now())?;
            let response = Response::builder().header(header::DATE, date);
            Ok::<_, BoxError>(response.body(Body::empty())?)
        });
        let kube = Client::from_service(service);
        // The Ledger is not what this is about.
        let _ = ledger::get(&kube).await;
        assert!(kube.server_time().is_some());
        kube
    }

    #[tokio::test(start_paused = true)]
    async fn f76_a_process_whose_clock_stood_still_ends_once_its_machines_is_right() {
        let at = |time: &str| Clock::starting_at(time.parse().unwrap());
        let (early, right) = (at("2026-01-05T08:00:00Z"), at("2026-01-05T10:00:30Z"));
        let ends = async |clock: Clock, system: Clock| {
            let outdated = outdated(clock, system, dated(right).await);
            tokio::time::timeout(4 * CLOCK_LOOK, outdated).await.ok()
        };
        let problem = ends(early, right).await.unwrap();
        assert!(problem.contains("120 minutes behind"), "{problem}");
        // The machine's clock has not been set yet, or is the one that is wrong; nothing is wrong.
        assert_eq!(ends(early, early).await, None);
        assert_eq!(ends(right, early).await, None);
        assert_eq!(ends(right, right).await, None);
    }

    /// In a process of its own, because the limit holds for all of a process.
    #[cfg(target_os = "linux")]
    #[test]
    fn s2_a_process_with_one_descriptor_left_cannot_open_both() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use std::os::fd::AsRawFd as _;

        const CHILD: &str = "KPROXIDE_TEST_OF_DESCRIPTORS";
        if std::env::var_os(CHILD).is_none() {
            let name = "cli::run::tests::s2_a_process_with_one_descriptor_left_cannot_open_both";
            let this = std::env::current_exe().unwrap();
            let child = std::process::Command::new(this)
                .args(["--exact", name])
                .env(CHILD, "1")
                .output();
            let child = child.unwrap();
            assert!(child.status.success(), "{child:?}");
            assert!(
                String::from_utf8_lossy(&child.stdout).contains("1 passed"),
                "{child:?}"
            );
            return;
        }
        // They fill the gaps: what is free begins after the last of them.
        let held: Vec<File> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
        let first_free = held[63].as_raw_fd().unsigned_abs() + 1;
        let maximum = getrlimit(Resource::Nofile).maximum;
        for (free, is_enough) in [(0, false), (1, false), (2, true), (0, false)] {
            let current = Some(u64::from(first_free + free));
            setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
            let opened = open_both().map_err(|error| error.raw_os_error());
            let full = rustix::io::Errno::MFILE.raw_os_error();
            let expected = if is_enough { Ok(()) } else { Err(Some(full)) };
            assert_eq!(opened, expected, "{free}");
        }
    }
}
