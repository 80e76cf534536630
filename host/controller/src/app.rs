//! Builds everything, owns every task, and stops in order.
//!
//! `main` injects what comes from the operating system: certificates, randomness, signals, sockets, files. The demo and
//! the simulation inject their own, and run the same program.

mod fit;
pub mod ownership;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::facts::{Delta, HostFacts};
use kproxide_planner::world::World;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::act::{Actor, Context, Fence as ActFence, Identity, Rules};
use crate::admin::Vitals;
use crate::autoscaler::{Autoscaler, Inputs, Term};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::observe::{Clusters, Connect};
use crate::reporter::Reporter;
pub use fit::{Fitness, Opens};
use kproxide_common::clock::Clock;
use kproxide_common::decisions::Decisions;
use kproxide_common::hex::hex;
use kproxide_kube::client::Client;
use kproxide_kube::events;
use kproxide_kube::lease::{self, Fence, LeaseSettings};
use kproxide_kube::watch as kube_watch;
use kproxide_policy::{Library, LoadError, PolicyFiles, Reloading};
use kproxide_pve::ownership::Key;
use ownership::{Identified, Ownership};

/// Batches of watch events that wait for the loop. If they are full, the watches slow down.
const WATCH_BATCHES_MAX: usize = 64;
/// Notes of drives that wait for the loop. Further ones are dropped, because the claims' conditions say the same.
const NOTES_MAX: usize = 256;
/// Pause between two tries to read something that kproxide cannot work without.
const RETRY: Duration = Duration::from_secs(5);

/// Fills a buffer with random bytes: the operating system's in production, the seed's in simulation.
pub type Random = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Everything that one host is made of.
pub struct Host {
    pub config: Config,
    pub clock: Clock,
    pub kube: Client,
    pub connect: Connect,
    pub policies: Library,
    pub random: Random,
    /// The files in the policy folders, whenever they change.
    pub policy_files: mpsc::Receiver<PolicyFiles>,
    pub stop: CancellationToken,
}

/// Why the process ends with an error.
#[derive(Debug, Error)]
pub enum AppError {
    #[error("policies cannot be run")]
    Policies(#[source] LoadError),
    #[error("metrics cannot be registered")]
    Metrics(#[source] prometheus::Error),
    #[error("the task {0} ended, though nobody stopped it")]
    TaskEnded(String),
    #[error("a task failed")]
    TaskFailed(#[source] tokio::task::JoinError),
    #[error("{0}: this process can do nothing more, so it ends")]
    Unfit(String),
}

/// A host that is ready to run.
pub struct App {
    host: Host,
    metrics: Metrics,
    vitals: Vitals,
    /// Set when the process gives the Lease away.
    resign: CancellationToken,
    // The loop's side of the vitals.
    turned: watch::Sender<Instant>,
    synced: watch::Sender<bool>,
    debug_plan: mpsc::Receiver<tokio::sync::oneshot::Sender<Vec<u8>>>,
}

impl App {
    /// Sends no request yet.
    ///
    /// # Errors
    /// See [`AppError`].
    pub fn new(host: Host) -> Result<Self, AppError> {
        let metrics = Metrics::new(host.config.kproximate_metrics).map_err(AppError::Metrics)?;
        let (turned, turned_seen) = watch::channel(Instant::now());
        let (synced, synced_seen) = watch::channel(false);
        let (ask, debug_plan) = mpsc::channel(1);
        let vitals = Vitals {
            turned: turned_seen,
            synced: synced_seen,
            debug_plan: ask,
            decisions: Decisions::default(),
        };
        Ok(Self {
            host,
            metrics,
            vitals,
            resign: CancellationToken::new(),
            turned,
            synced,
            debug_plan,
        })
    }

    pub fn vitals(&self) -> Vitals {
        self.vitals.clone()
    }

    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Watches over [`Self::run`], from another thread or task than the one that it hangs in if it hangs.
    pub fn fitness(&self, opens: Opens) -> Fitness {
        Fitness {
            turned: self.vitals.turned.clone(),
            resign: self.resign.clone(),
            stop: self.host.stop.clone(),
            opens,
        }
    }

    /// Runs until stopped. Every task is owned here: if one ends by itself, so does the process, and Kubernetes starts it again.
    ///
    /// # Errors
    /// See [`AppError`].
    pub async fn run(self) -> Result<(), AppError> {
        let Host {
            config,
            clock,
            kube,
            connect,
            policies,
            random,
            policy_files,
            stop,
        } = self.host;
        let metrics = self.metrics;
        let turned = || {
            self.turned.send_replace(Instant::now());
        };
        let identified = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            identified = ownership::identify(&kube, &config, &random, turned) => identified,
        };
        let Identified {
            cluster_id,
            ownership,
        } = identified;
        let (key, key_problem) = match ownership {
            Ownership::Known(key) => (Some(key), None),
            Ownership::Unknown => {
                tracing::info!(
                    "there is no key for ownership proofs yet: which machines are ours is unknown"
                );
                (None, None)
            }
            Ownership::ReadOnly(problem) => {
                tracing::error!(problem, "nothing is launched or destroyed");
                (None, Some(problem))
            }
        };

        // The other tasks end after the loop, because drives need the Lease until then.
        let ended = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (reports, watches) = mpsc::channel(WATCH_BATCHES_MAX);
        for (kind, task) in kube_watch::tasks(&kube, &reports) {
            tasks.spawn(async move {
                task.await;
                format!("watch of {kind}")
            });
        }
        drop(reports);
        let fence = if config.dry_run {
            Fence::open("dry-run")
        } else {
            let settings = LeaseSettings {
                namespace: config.namespace.clone(),
                name: config.name.clone(),
                identity: format!("{}_{}", config.identity, text(&random, 4)),
                duration: config.lease.duration,
                renew_deadline: config.lease.renew_deadline,
                retry: config.lease.retry,
            };
            let (fence, elector) = lease::elector(
                kube.clone(),
                settings,
                clock,
                text(&random, 4),
                self.resign,
                ended.clone(),
            );
            tasks.spawn(async move {
                elector.await;
                "leader election".to_owned()
            });
            fence
        };
        let (events, writer) = events::writer(
            kube.clone(),
            clock,
            &config.name,
            &config.identity,
            config.dry_run,
        );
        tasks.spawn(async move {
            writer.await;
            "event writer".to_owned()
        });

        let (notes, notes_taken) = mpsc::channel(NOTES_MAX);
        let clusters = Clusters::new(connect).counting(metrics.requests.clone());
        let key_fingerprint = key.as_ref().map(Key::fingerprint);
        let host_facts = HostFacts {
            cluster_id: cluster_id.clone(),
            own_node: config.own_node.as_deref().map(Into::into),
            armed_at: None,
            dry_run: config.dry_run,
            served: config.served.clone(),
            // A dry run changes nothing, so it plans as if it had the key.
            key_known: key.is_some() || config.dry_run,
            anchor_nonce: config.anchor.then(|| text(&random, 4).into()),
            leads_since: None,
            definition_problem: None,
            clock_problem: None,
            failing_watches: Vec::new(),
            removing: BTreeMap::new(),
            unclaimed: BTreeSet::new(),
        };
        let actor = Actor::new(Context {
            kube: kube.clone(),
            clusters: clusters.clone(),
            clock,
            identity: Identity {
                cluster_id,
                keys: key.into_iter().collect(),
            },
            fence: act_fence(&fence),
            nonces: nonces(&random),
            rules: Rules {
                quarantine: config.limits.quarantine,
                ..Rules::default()
            },
            notes,
            join_dir: config.join_dir.clone(),
            metrics: metrics.clone(),
        });
        let reporter = Reporter::new(
            events,
            (!config.dry_run).then_some(kube),
            metrics.clone(),
            key_fingerprint,
            key_problem,
        );
        let mut autoscaler = Autoscaler {
            clock,
            timing: config.timing,
            limits: config.limits,
            world: World::default(),
            clusters,
            policies,
            actor,
            reporter,
            metrics,
            turned: self.turned,
            synced: self.synced,
            term: Term::default(),
            reloading: Reloading::new(!config.policy_dirs.is_empty()),
            decisions: self.vitals.decisions,
        };
        autoscaler.world.apply(Delta::Host(host_facts));
        autoscaler.apply_policies();
        let inputs = Inputs {
            watches,
            fence,
            policy_files,
            notes: notes_taken,
            debug_plan: self.debug_plan,
            stop: stop.clone(),
        };
        let running = autoscaler.run(inputs);
        tokio::pin!(running);
        tokio::select! {
            biased;
            () = &mut running => {}
            Some(task) = tasks.join_next() => {
                // The loop still gets to its safe point.
                stop.cancel();
                running.await;
                return Err(match task {
                    Ok(name) => AppError::TaskEnded(name),
                    Err(error) => AppError::TaskFailed(error),
                });
            }
        }
        // Releases the Lease, so that the next replica need not wait for it to lapse.
        ended.cancel();
        let _ = tokio::time::timeout(Duration::from_secs(5), async {
            while let Some(Ok(name)) = tasks.join_next().await {
                if name == "leader election" {
                    break;
                }
            }
        })
        .await;
        tasks.shutdown().await;
        Ok(())
    }
}

fn act_fence(fence: &Fence) -> ActFence {
    let fence = fence.clone();
    ActFence::new(move || fence.leads().then(|| fence.epoch()))
}

fn nonces(random: &Random) -> crate::act::Nonces {
    let random = random.clone();
    Arc::new(move || text(&random, 12))
}

/// Random hexadecimal digits, two for each byte.
fn text(random: &Random, bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    random(&mut buffer);
    hex(&buffer)
}
