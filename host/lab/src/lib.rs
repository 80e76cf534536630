//! A whole world in one process: simulated Proxmox VE, simulated Kubernetes, the physics between them, and this very program on top.
//!
//! Time is tokio's; under a paused clock a day passes in a moment, and one seed is one run, line by line. The demo and the simulation tests are built from this.

mod furnished;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use kproxide_simulator::clock::Clock as WorldClock;
use kproxide_simulator::kube::controllers::{self, Patience};
use kproxide_simulator::kube::scheduler::{self, Scoring};
use kproxide_simulator::kube::{Kube, age};
use kproxide_simulator::kubelet::{Api, Kubelets, Pace};
use kproxide_simulator::physics::{Guests, Physics};
use kproxide_simulator::pve::{Pve, Topology};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use kproxide_common::clock::Clock;
use kproxide_controller::app::{App, AppError, Host, Random};
use kproxide_controller::args::Run;
use kproxide_controller::config::Config;
use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client;
use kproxide_kube::crd;
use kproxide_policy::{Engine, Execution, Library, PolicyFiles};
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::Endpoint;

pub use furnished::{MACHINE, furnished, run_with, wide};

/// When every simulated world begins.
pub const EPOCH: &str = "2026-01-05T08:00:00Z";

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    pub seed: u64,
    pub topology: Topology,
    pub guests: Guests,
    pub pace: Pace,
    pub patience: Patience,
    pub scoring: Scoring,
}

impl Setting {
    /// `hypervisors` servers of 16 threads and 64 GiB, credentials that may do what kproxide needs, machines that boot like a small Debian with k3s.
    pub fn new(seed: u64, hypervisors: u32) -> Self {
        Self {
            seed,
            topology: Topology::of(hypervisors).least_privileged(),
            guests: Guests::default(),
            pace: Pace::REAL,
            patience: Patience::default(),
            scoring: Scoring::default(),
        }
    }
}

/// The running world. Dropping it ends everything in it.
pub struct Lab {
    pub pve: Pve,
    pub kube: Kube,
    pub physics: Physics,
    /// For Nodes that are no machines of ours.
    pub kubelets: Kubelets,
    pub clock: Clock,
    seed: u64,
    _world: JoinSet<()>,
}

/// How to talk to a host that runs in a lab.
pub struct HostHandle {
    /// What lies in its policy directory from now on.
    pub policy_files: mpsc::Sender<PolicyFiles>,
    pub stop: CancellationToken,
}

impl Lab {
    /// Starts the world: its clock begins now. CRDs are installed, no object of ours exists.
    ///
    /// # Panics
    /// The topology contradicts itself, or our CRDs are refused: the schema is wrong.
    pub fn new(setting: Setting) -> Self {
        let Setting {
            seed,
            topology,
            guests,
            pace,
            patience,
            scoring,
        } = setting;
        let epoch: Timestamp = EPOCH.parse().expect("the constant is a timestamp");
        let world_clock = WorldClock::starting_at(epoch);
        let clock = Clock::starting_at(epoch);
        let pve = Pve::new(topology, world_clock, seed);
        let kube = Kube::new(world_clock, seed);
        for crd in definitions() {
            kube.create(
                "customresourcedefinitions.apiextensions.k8s.io",
                crd.clone(),
            )
            .expect("our CRDs are valid");
        }
        let (kubelets, kubelets_run) = Kubelets::new(
            Api::new(kube.as_user("kubelets").service()),
            world_clock,
            pace,
            seed,
        );
        let (physics, physics_run) = Physics::new(pve.clone(), kubelets.clone(), guests, seed);
        let mut world = JoinSet::new();
        world.spawn(scheduler::run(kube.clone(), scoring));
        world.spawn(controllers::run(kube.clone(), patience));
        world.spawn(age::run(kube.clone()));
        world.spawn(kubelets_run);
        world.spawn(physics_run);
        Self {
            pve,
            kube,
            physics,
            kubelets,
            clock,
            seed,
            _world: world,
        }
    }

    /// A copy of the Kubernetes cluster, restored elsewhere from a backup of this moment, over the same Proxmox. Its scheduler and controllers run; no machine
    /// of the original ever speaks to it.
    pub fn restored_elsewhere(&self, seed: u64) -> Self {
        let kube = self.kube.restored_elsewhere(seed);
        let (kubelets, kubelets_run) = Kubelets::new(
            Api::new(kube.as_user("kubelets").service()),
            *kube.clock(),
            Pace::REAL,
            seed,
        );
        let mut world = JoinSet::new();
        world.spawn(scheduler::run(kube.clone(), Scoring::default()));
        world.spawn(controllers::run(kube.clone(), Patience::default()));
        world.spawn(kubelets_run);
        Self {
            pve: self.pve.clone(),
            kube,
            physics: self.physics.clone(),
            kubelets,
            clock: self.clock,
            seed,
            _world: world,
        }
    }

    /// Creates objects: resource (`nodepools.kproxide.dev`) and JSON.
    ///
    /// # Panics
    /// The simulated API server refuses one; says why.
    pub fn apply(&self, objects: impl IntoIterator<Item = (&'static str, Value)>) {
        for (resource, object) in objects {
            if let Err(error) = self.kube.create(resource, object.clone()) {
                panic!("{resource} is refused: {error}: {object}");
            }
        }
    }

    /// A host over in-process connections. `run` of the result runs it; `name` is its identity among replicas and the beginning of its randomness.
    ///
    /// # Errors
    /// The platform cannot run policies.
    pub fn host(&self, name: &str, config: Config) -> Result<(App, HostHandle), AppError> {
        self.host_with(name, config, policies()?)
    }

    /// As [`Self::host`], with what asks policies.
    ///
    /// # Errors
    /// As of [`Self::host`].
    pub fn host_with(
        &self,
        name: &str,
        config: Config,
        policies: Library,
    ) -> Result<(App, HostHandle), AppError> {
        let kube = Client::from_service(self.kube.as_user(name).service());
        self.build(name, config, kube, self.connect(), policies)
    }

    /// As [`Self::host`], over connections that the caller has put something into: faults, a log.
    ///
    /// # Errors
    /// The platform cannot run policies.
    pub fn host_over(
        &self,
        name: &str,
        config: Config,
        kube: Client,
        connect: Connect,
    ) -> Result<(App, HostHandle), AppError> {
        self.build(name, config, kube, connect, policies()?)
    }

    fn build(
        &self,
        name: &str,
        config: Config,
        kube: Client,
        connect: Connect,
        policies: Library,
    ) -> Result<(App, HostHandle), AppError> {
        let (policy_files, files) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let app = App::new(Host {
            config,
            clock: self.clock,
            kube,
            connect,
            policies,
            random: seeded(self.seed, name),
            policy_files: files,
            stop: stop.clone(),
        })?;
        Ok((app, HostHandle { policy_files, stop }))
    }

    /// Connects to the simulated Proxmox cluster, whatever the settings' addresses say.
    pub fn connect(&self) -> Connect {
        let pve = self.pve.clone();
        Arc::new(move |_, concurrency| {
            let endpoint = Endpoint::new("lab", pve.service());
            let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            Ok(PveClient::new(vec![endpoint], credentials, concurrency))
        })
    }
}

/// How `kproxide run` is set up when no flag says otherwise, in the pod `name` on the Node `server-1`, but without an anchor: worlds that are about it
/// ask for it, so that all others hold machines alone.
///
/// # Panics
/// The command line's own defaults contradict each other.
pub fn config(name: &str) -> Config {
    let run = Run::from_flags(&[] as &[&str]).expect("`kproxide run` needs no flag");
    let usual = Config::new(&run).expect("the defaults agree with each other");
    // What a pod's environment says is said here, so that the environment of this process has no part in it.
    Config {
        namespace: "kube-system".to_owned(),
        identity: name.to_owned(),
        own_node: Some("server-1".to_owned()),
        credentials_dir: "/nowhere".into(),
        anchor: false,
        ..usual
    }
}

/// Our CRDs. They are made once in a process: simulations make many worlds.
fn definitions() -> &'static [Value] {
    static MADE: OnceLock<Vec<Value>> = OnceLock::new();
    MADE.get_or_init(|| {
        let crds = crd::crds().iter();
        crds.map(|crd| serde_json::to_value(crd).expect("a CRD is plain data"))
            .collect()
    })
}

/// A library of its own for each host, on one engine, which compiles each policy once.
///
/// # Errors
/// The platform cannot run policies.
pub fn policies() -> Result<Library, AppError> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(Library::new(engine.clone()));
    }
    let engine = Engine::new(Execution::Inline).map_err(AppError::Policies)?;
    let engine = ENGINE.get_or_init(|| engine.keeping_modules());
    Ok(Library::new(engine.clone()))
}

/// Random bytes that follow from the seed and the host's name.
fn seeded(seed: u64, name: &str) -> Random {
    let mixed = name
        .bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let rng = Mutex::new(SmallRng::seed_from_u64(mixed));
    Arc::new(move |bytes| {
        rng.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(bytes)
    })
}
