//! The command line: raw flags and their help. [`crate::config`] gives them meaning.

mod doctor;
#[cfg(feature = "init")]
mod init;
pub mod policy;
#[cfg(feature = "simulator")]
mod simulated;
mod status;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use kproxide_planner::facts::LabelSelector;
use kproxide_planner::quantity::{Quantity, QuantityError};

use crate::period::parse_period;

pub use doctor::{DoctorArgs, FailOn};
#[cfg(feature = "init")]
pub use init::{Image, Init, Way};
pub use policy::Policy;
#[cfg(feature = "simulator")]
pub use simulated::{Demo, Serve, Simulate};
pub use status::{Leader, StatusArgs};

/// Scales a Kubernetes cluster across Proxmox VE, by policies that you can replace.
#[derive(Debug, Parser)]
#[command(
    name = "kproxide",
    version,
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the autoscaler against the cluster that this pod or kubeconfig belongs to
    Run(Box<Run>),
    /// Show the autoscaler at work on a simulated Kubernetes and Proxmox: nothing to install or configure
    ///
    /// Load comes and goes, a server dies, a built-in policy is replaced. It shows about ten minutes in one minute.
    /// Kubernetes and Proxmox are simulated; the autoscaler and its policies are the real ones. In a terminal it draws a
    /// picture: space pauses, → goes to the next thing that happens, q ends. Elsewhere it prints lines. Both end with a
    /// summary.
    #[cfg(feature = "simulator")]
    Demo(Demo),
    /// Serve a simulated Proxmox VE, and a simulated Kubernetes, to other programs
    #[cfg(feature = "simulator")]
    #[command(subcommand)]
    Simulate(Simulate),
    /// Write what an installation needs: values for the chart, Secrets, and a page with the commands that come next
    ///
    /// It asks, shows each certificate before it sends anything to a server, and offers what Proxmox has. It reads Proxmox
    /// and Kubernetes, and writes one folder. It ends with what `kproxide doctor` finds.
    #[cfg(feature = "init")]
    Init(Box<Init>),
    /// Show what kproxide would do with the objects of files or of a cluster; it writes nothing
    ///
    /// It asks the controller's own planner and policies, once: a limit such as scaleDown.budget of a NodePool holds as
    /// in one tick. Pods without a Node count as pending. Deployments, StatefulSets, ReplicaSets,
    /// ReplicationControllers, Jobs and CronJobs make the pods that the input lacks. Without a NodePool, NodeClass or
    /// ProxmoxCluster one is assumed, and without an Inventory three large hypervisors: the output says so.
    Plan(Box<PlanArgs>),
    /// Say what becomes of one pod, Node, hypervisor, claim or pool, why, and what you can do
    ///
    /// Without -f and --from-cluster it asks the controller: it finds the replica that leads by its Lease, and asks it
    /// through the API server with your rights. If none leads or none answers, it computes the answer as
    /// `kproxide plan --from-cluster` does, and says so. The answer is in the first line.
    Explain(Box<ExplainArgs>),
    /// Show on one screen whether all is well, what there is, and what is on its way; it writes nothing
    ///
    /// It asks the controller as `kproxide explain` does, and lists the conditions of your objects. The first line says
    /// whether all is well, and if not, what to look at first.
    Status(Box<StatusArgs>),
    /// Say what keeps kproxide from making machines, with the line that mends it; it writes nothing
    ///
    /// It looks at your objects, at Proxmox, at the join scripts and at the Nodes, with your rights. In the pod of the
    /// controller it looks with those of the controller.
    Doctor(Box<DoctorArgs>),
    /// Print the CustomResourceDefinitions as YAML, or apply them to a cluster
    Crds(Crds),
    /// Tools for the authors of policies: list, check, run, test and pack them
    ///
    /// They run the policy of a file as the controller does: in a process of its own, with the same limits.
    #[command(subcommand)]
    Policy(Policy),
    /// Print a script that lets your shell complete commands and flags
    #[cfg(feature = "init")]
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell that runs the script
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Say which kproxide this is, for bug reports and scripts
    Version {
        /// Format of the output: JSON and YAML have `version`, `commit`, `target` and `wasmtime`
        #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
        output: Format,
        /// Print the licences of what this program is made of instead
        #[arg(long, conflicts_with = "output")]
        licenses: bool,
    },
}

#[cfg(feature = "init")]
const COMPLETIONS: &str = "\
For this shell session, in bash and in zsh:
  source <(kproxide completions bash)
  source <(kproxide completions zsh)
For all sessions of fish:
  kproxide completions fish > ~/.config/fish/completions/kproxide.fish";

/// Those that `kproxide completions` writes scripts for.
#[cfg(feature = "init")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

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
    #[arg(long, default_value = "/etc/kproxide/credentials", value_name = "DIR")]
    pub credentials_dir: PathBuf,
    /// Folder with the scripts that NodeClasses name in `spec.join.guestExec.commandSecretFile`. kproxide reads scripts
    /// from nowhere else
    #[arg(long, default_value = "/etc/kproxide/join", value_name = "DIR")]
    pub join_dir: PathBuf,
    /// Memory for the processes in which kproxide compiles and calls your policies, all of them together, such as 512Mi;
    /// at least 128Mi. Default: what the container may use less 160Mi, but no more than 512Mi
    #[arg(long, value_parser = memory, value_name = "BYTES")]
    pub policy_memory: Option<u64>,
    /// A pool waits at most so long for the first load of the policy file that it names. Then another policy answers for it
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub policy_wait: std::time::Duration,
    /// No longer used: kproxide ignores it
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
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
        default_value_t = -10,
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
    /// What to log: a level such as `debug`, or directives such as `info,kproxide::act=debug`
    #[arg(
        long,
        env = "KPROXIDE_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log: String,
}

/// Answer for one policy of a file. `kproxide run` and the tools for authors start this for each of them; it is no command for people, and no list shows it
#[derive(Debug, Parser)]
#[command(name = "kproxide policy-worker")]
pub struct PolicyWorker {
    /// Use at most so much memory
    #[arg(long, value_name = "BYTES")]
    pub memory_bytes: u64,
    /// Try this from within the cage, to show that it holds
    #[arg(long = "try", value_enum, value_name = "WHAT")]
    pub escape: Option<Escape>,
}

/// What a worker tries once its cage is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Escape {
    OpenFile,
    ParentEnvironment,
    Socket,
    Thread,
    Process,
}

#[derive(Debug, Args)]
pub struct Crds {
    /// Print the JSON Schema of the Helm chart's values instead
    #[arg(long)]
    pub values_schema: bool,
    /// Apply them to the cluster, by server-side apply with force as field manager helm
    ///
    /// kproxide deletes none. It changes nothing if the API server refuses one of them, or if one is of a later kproxide.
    #[arg(long, conflicts_with = "values_schema")]
    pub apply: bool,
    /// With --apply: file with the address of Kubernetes and credentials; default: those of the pod, or else
    /// ~/.kube/config
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
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
    #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
    pub quarantine: std::time::Duration,
    /// Remove a machine that has lost its NodeClaim after this long, unless its Node is Ready. A machine with a Ready
    /// Node gets a new NodeClaim at once
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub orphan_grace: std::time::Duration,
    /// Launch nothing for a pod that fits where another pod ends within this time. 0s: do not wait for such room
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub coming_room: std::time::Duration,
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

#[derive(Debug, Args)]
#[command(
    after_help = PLAN_HELP,
    group = ArgGroup::new("input").args(["file", "from_cluster"]).required(true).multiple(true)
)]
pub struct PlanArgs {
    #[command(flatten)]
    pub question: WhatIf,
    #[command(flatten)]
    pub leader: Leader,
    /// Format of the output. JSON and YAML have the same fields
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
    /// List each pending pod on each Node as they stand now, with the plugin of kube-scheduler that keeps the pod away
    #[arg(long)]
    pub verdicts: bool,
    /// Of pending pods and verdicts list those with these labels, such as `app=web,tier in (a,b),!old`. The plan and its
    /// first line are about all pods
    #[arg(short = 'l', long, value_parser = crate::labels::selector, value_name = "SELECTOR")]
    pub selector: Option<LabelSelector>,
    /// Exit with 10 if there is something to do, and with 20 if a pod gets no help
    #[arg(long)]
    pub exit_code: bool,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// `pod`, `node`, `hypervisor`, `claim` or `pool` and a name, such as `pod web-1` or `node/worker-3`
    #[arg(value_name = "KIND NAME", required = true, num_args = 1..=2)]
    pub subject: Vec<String>,
    #[command(flatten)]
    pub question: WhatIf,
    #[command(flatten)]
    pub leader: Leader,
    /// Ask the controller at this address, such as that of a `kubectl port-forward`, and not through the API server
    #[arg(long, value_name = "URL", conflicts_with_all = ["file", "from_cluster"])]
    pub admin: Option<String>,
    /// Format of the output: JSON and YAML have `answer`, `rules` and `next`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

const PLAN_HELP: &str = "\
An Inventory names the hypervisors of a ProxmoxCluster (`metadata.name`):

  apiVersion: kproxide.dev/v1alpha1
  kind: Inventory
  metadata: {name: proxmox}
  hypervisors:
  - name: pve1
    cores: 16
    memory: 64Gi
    used: {cores: 4, memory: 8Gi}      # by other VMs; default: nothing
    online: true                       # default
    maintenance: false                 # default
    storages:                          # default: one that is large enough
    - {name: local-lvm, type: lvmthin, size: 1Ti, free: 500Gi, shared: false}
    templates: [k8s-node]              # if no hypervisor gives any: those of all NodeClasses

JSON and YAML have `summary`, `launches`, `removals`, `pending` (outcome: fitsNode, fitsClaim, launching or noHelp),
`kept`, `hypervisors`, `findings`, `assumed`, `ignored` and, with --verdicts, `verdicts`. Fields may be added.

Exit codes: 0 there is a plan; with --exit-code 10 and 20. `kproxide --help` lists all exit codes.";

/// What a plan is asked about.
#[derive(Debug, Args)]
pub struct WhatIf {
    /// File or folder with Kubernetes objects in YAML or JSON, an Inventory, or an answer of /debug/plan; `-` is standard
    /// input. May be given several times; of two objects of one name the later one counts, as if it was applied
    #[arg(short, long, value_name = "FILE|DIR|-")]
    pub file: Vec<PathBuf>,
    /// Read the folders in folders too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Namespace of objects that name none, and of the pod that `explain` is asked about; default: that of the context,
    /// or without a cluster `default`. With --from-cluster `plan` lists the pods of this namespace alone
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// `plan`: list the pods of all namespaces, in spite of -n. `explain`: look for the pod in all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Read the objects of a running cluster. It only lists. What its Proxmox servers have `plan` asks of the replica of
    /// kproxide that leads. The objects of -f lie on top: what if you applied them?
    /// Where a pod template says something else than before, all pods of that Deployment, StatefulSet, ReplicaSet, Job
    /// or CronJob count as gone and its new ones as pending: the plan is for the end of the rollout
    #[arg(long, visible_alias = "compute")]
    pub from_cluster: bool,
    #[command(flatten)]
    pub connection: Connection,
    /// Ask Proxmox for the hypervisors that no Inventory names. A folder with the credentials, as --credentials-dir of
    /// `kproxide run`
    #[arg(long, value_name = "DIR")]
    pub proxmox_credentials: Option<PathBuf>,
    /// Folder with your policies, as of `kproxide run`. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// Plan as if a workload had N replicas, such as deploy/web=10 or shop/sts/db=3. May be given several times
    #[arg(long, value_name = "KIND/NAME=N")]
    pub replicas: Vec<String>,
    /// Plan as if each NodeClass had one more size, such as big=8x32 for 8 cores and 32 GiB. May be given several times
    #[arg(long, value_name = "NAME=CORESxGIB")]
    pub add_type: Vec<String>,
    /// Plan as if a hypervisor was gone, with its machines and Nodes: their pods are pending. May be given several times
    #[arg(long, value_name = "NAME")]
    pub without_hypervisor: Vec<String>,
    /// Plan for this moment, such as 2026-01-05T08:00:00Z; default: now, or the moment of the /debug/plan file
    #[arg(long, value_name = "TIME")]
    pub now: Option<jiff::Timestamp>,
    /// Do not set off the first line. It is set off in a terminal alone, and not if $NO_COLOR is set
    #[arg(long)]
    pub no_color: bool,
}

/// How a person reaches a cluster.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// File with the address of Kubernetes and your credentials; default: the files of $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Ask the API server as this user. Yours must have the right to impersonate it
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// Wait so long for each answer
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub request_timeout: std::time::Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Yaml,
}

/// A longer duration is a mistake. The limit also keeps sums of a clock and a duration from overflowing.
const DURATION_MAX: std::time::Duration = std::time::Duration::from_hours(365 * 24);

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

fn duration(text: &str) -> Result<std::time::Duration, String> {
    parse_period(text)
        .ok()
        .and_then(|period| std::time::Duration::try_from(period).ok())
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| {
            format!("{text:?} is not a duration: write it like 10s, 5m, 250ms or 7d, and not more than a year (8760h)")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn plan_needs_something_to_read_and_explain_asks_the_controller() {
        let parse =
            |text: &str| Cli::try_parse_from(["kproxide"].into_iter().chain(text.split(' ')));
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused("plan").contains("--from-cluster"));
        parse("plan -f a --from-cluster").unwrap();
        let lease = |text: &str| match parse(text).unwrap().command {
            Command::Explain(args) => args.leader.lease,
            other => panic!("{other:?}"),
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(lease("explain pod a"), pair("kproxide", "kproxide"));
        assert_eq!(
            lease("explain pod a --lease ops/scaler"),
            pair("ops", "scaler")
        );
        for wrong in ["ops", "ops/..", "ops/a/b", "/a"] {
            let said = refused(&format!("explain pod a --lease {wrong}"));
            assert!(said.contains("NAMESPACE/NAME"), "{said}");
        }
        assert!(refused("explain pod a --admin http://a -f b").contains("--admin"));
        assert!(refused("explain pod a --admin http://a --compute").contains("--admin"));
    }

    #[test]
    fn an_unknown_flag_is_refused_by_name() {
        let error = Cli::try_parse_from(["kproxide", "run", "--min-nodes", "3"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--min-nodes"), "{error}");
    }

    #[test]
    fn a_bad_duration_names_flag_value_and_fix() {
        let error = Cli::try_parse_from(["kproxide", "run", "--poll-interval", "10"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--poll-interval") && error.contains("write it like 10s"),
            "{error}"
        );
    }

    #[test]
    fn a_duration_may_be_in_days_as_in_objects() {
        let cli = Cli::try_parse_from(["kproxide", "run", "--quarantine", "7d"]).unwrap();
        let Command::Run(run) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(run.timing.quarantine.as_secs(), 7 * 24 * 60 * 60);
    }

    #[test]
    fn an_absurd_duration_is_refused_before_it_is_added_to_a_clock() {
        let error = Cli::try_parse_from(["kproxide", "run", "--poll-interval", "99999999999999h"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than a year"), "{error}");
    }

    #[test]
    fn the_service_of_systemd_starts_kproxide_with_flags_that_there_are() {
        let unit = include_str!("../../examples/systemd/kproxide.service");
        let command = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let words = command.unwrap().split(' ');
        let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else {
            panic!("{command:?}");
        };
        assert_eq!(run.admin_address.to_string(), "127.0.0.1:8080");
    }
}
