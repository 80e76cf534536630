//! The flags of `kproxide run` and their help. [`crate::config`] gives them meaning.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, FromArgMatches as _, ValueEnum};
use kproxide_common::paths;
use kproxide_common::period::{duration, signed_duration};
use kproxide_planner::facts::LEAST_PRIORITY;
use kproxide_planner::kubernetes::quantity::{Quantity, QuantityError};

#[derive(Debug, Args)]
#[command(after_help = "A DURATION is written like 10s, 5m, 24h, 7d or 250ms.")]
pub struct Run {
    /// File with the address of Kubernetes and credentials; default: those of the pod, or else ~/.kube/config
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Plan and report, but write nothing to Kubernetes or Proxmox
    #[arg(long)]
    pub dry_run: bool,
    /// Namespace of the Lease, and of the Secret with the key that proves which VMs are kproxide's
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "kproxide",
        value_name = "NAME"
    )]
    pub namespace: String,
    /// Name of this replica in the Lease and in Events
    #[arg(
        long,
        env = "POD_NAME",
        default_value = "kproxide",
        value_name = "NAME"
    )]
    pub pod_name: String,
    /// The Node that kproxide runs on; kproxide never drains it
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Name of the Lease, of the Secret (NAME-ownership-key), and of the controller in Events
    #[arg(long, default_value = "kproxide", value_name = "NAME")]
    pub name: String,
    /// Folder with your policies, as NAME.wasm (or .wasm.gz, .wasm.zst). A file replaces the built-in policy of its
    /// name. kproxide picks up changes. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// Folder with the credentials of Proxmox: one sub-folder for each ProxmoxCluster, named by its `spec.credentials`
    #[arg(long, default_value = paths::CREDENTIALS, value_name = "DIR")]
    pub credentials_dir: PathBuf,
    /// Folder with the scripts that NodeClasses name in `spec.join.guestExec.commandSecretFile`. kproxide reads scripts
    /// from nowhere else
    #[arg(long, default_value = paths::JOIN, value_name = "DIR")]
    pub join_dir: PathBuf,
    /// Memory for the processes in which kproxide compiles and calls your policies, all of them together, such as 512Mi;
    /// at least 128Mi. Default: what the container may use less 160Mi, but no more than 512Mi
    #[arg(long, value_parser = memory, value_name = "BYTES")]
    pub policy_memory: Option<u64>,
    /// A pool waits at most so long for the first load of the policy file that it names. Then another policy answers for it
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub policy_wait: std::time::Duration,
    /// Make machines for pods of these schedulers alone
    #[arg(
        long,
        default_value = "default-scheduler",
        value_delimiter = ',',
        value_name = "LIST"
    )]
    pub scheduler_names: Vec<String>,
    /// Pods of a lower priority are expendable: kproxide makes no machines for them, and they keep no Node from going.
    /// They are evicted like others, and PodDisruptionBudgets hold for them
    #[arg(
        long,
        default_value_t = LEAST_PRIORITY,
        allow_negative_numbers = true,
        value_name = "N"
    )]
    pub least_priority: i32,
    /// Address of /healthz, /readyz, /metrics, /debug/plan and /debug/decisions
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub admin_address: SocketAddr,
    /// Show kproximate's eight gauges too, such as kpnodes_total
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub kproximate_metrics: bool,
    #[command(flatten)]
    pub timing: Timing,
    /// Format of the logs on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Json, value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// What to log: a level such as `debug`, or directives such as `info,kproxide_controller::act=debug`
    #[arg(
        long,
        env = "KPROXIDE_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log: String,
}

impl Run {
    /// What `kproxide run` with these flags is asked for.
    ///
    /// # Errors
    /// A flag that there is not, or a value that it does not take.
    pub fn from_flags(flags: &[impl AsRef<str>]) -> Result<Self, clap::Error> {
        let words = ["run"].into_iter().chain(flags.iter().map(AsRef::as_ref));
        let matches = Self::augment_args(clap::Command::new("run")).try_get_matches_from(words)?;
        Self::from_arg_matches(&matches)
    }
}

/// How often, how soon, and how much at once.
#[derive(Clone, Debug, Args)]
pub struct Timing {
    /// Plan at least this often
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub poll_interval: std::time::Duration,
    /// Plan once nothing has changed for this long
    #[arg(long, default_value = "50ms", value_parser = duration, value_name = "DURATION")]
    pub batch_idle: std::time::Duration,
    /// Plan this long after the first change at the latest
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub batch_max: std::time::Duration,
    /// Read Proxmox's inventory again when it is older than this
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub inventory_max_age: std::time::Duration,
    /// Remove no machine for this long after becoming leader, and for at least two ticks
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub cold_start: std::time::Duration,
    /// Do not use the VMID and the address of a destroyed machine again for this long. If no other is free, one
    /// hour is enough
    #[arg(long, default_value = "24h", value_parser = signed_duration, value_name = "DURATION")]
    pub quarantine: jiff::SignedDuration,
    /// Remove a machine that has lost its NodeClaim after this long, unless its Node is Ready. A machine with a Ready
    /// Node gets a new NodeClaim at once
    #[arg(long, default_value = "1h", value_parser = signed_duration, value_name = "DURATION")]
    pub orphan_grace: jiff::SignedDuration,
    /// Launch nothing for a pod that fits where another pod ends within this time. 0s: do not wait for such room
    #[arg(long, default_value = "60s", value_parser = signed_duration, value_name = "DURATION")]
    pub coming_room: jiff::SignedDuration,
    /// Keep a small stopped VM `kproxide-anchor-NUMBER` in each Proxmox cluster. With it kproxide notices a second copy
    /// of this Kubernetes cluster (an etcd backup restored elsewhere) before it removes machines
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub anchor: bool,
    /// Another replica may take the Lease when it was not renewed for this long
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub lease_duration: std::time::Duration,
    /// Stop being leader when the Lease could not be renewed for this long
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub lease_renew_deadline: std::time::Duration,
    /// Try this often to get or renew the Lease
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    pub lease_retry: std::time::Duration,
    /// Launch at most this many machines in one tick, 1 to 1000; more follow in the next ticks
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_launches_per_tick: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

/// The smallest in which one small policy is compiled and called.
const POLICY_MEMORY_MIN: u64 = 128 << 20;

fn memory(text: &str) -> Result<u64, String> {
    let bytes = text
        .parse()
        .map_err(|error: QuantityError| error.to_string())?;
    match u64::try_from(Quantity::units_down(bytes)) {
        Ok(bytes) if bytes >= POLICY_MEMORY_MIN => Ok(bytes),
        _ => Err("it is less than 128Mi, in which no policy can be compiled".to_owned()),
    }
}
