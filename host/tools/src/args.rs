//! The options of the tools and their help.

mod doctor;
#[cfg(feature = "init")]
mod init;
pub mod policy;
#[cfg(feature = "simulator")]
mod simulated;
mod status;

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use kproxide_kube::connection::Connection;
use kproxide_planner::facts::LabelSelector;

pub use doctor::{DoctorArgs, FailOn};
#[cfg(feature = "init")]
pub use init::{Image, Init, Way};
pub use policy::Policy;
#[cfg(feature = "simulator")]
pub use simulated::{Demo, Serve, Simulate};
pub use status::{Leader, StatusArgs};

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
    #[arg(short = 'l', long, value_parser = kproxide_common::labels::selector, value_name = "SELECTOR")]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Yaml,
}

/// What tests type at a command line. The program's own has more, and is above this crate.
#[cfg(test)]
pub(crate) mod tests {
    use clap::{Parser, Subcommand};

    use super::*;

    #[derive(Debug, Parser)]
    pub(crate) struct Cli {
        #[command(subcommand)]
        pub(crate) command: Command,
    }

    #[derive(Debug, Subcommand)]
    pub(crate) enum Command {
        Demo(Demo),
        Init(Box<Init>),
        Plan(Box<PlanArgs>),
        Explain(Box<ExplainArgs>),
        Status(Box<StatusArgs>),
    }
}
