//! `kproxide doctor`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Connection, Format};

const DOCTOR_HELP: &str = "\
Exit codes: 0 all is well; 10 there are warnings; 20 there are errors. With --fail-on error warnings give 0, with
--fail-on never errors too. `kproxide --help` lists all exit codes.";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace of the controller
    #[arg(
        short,
        long,
        env = "POD_NAMESPACE",
        default_value = "kproxide",
        value_name = "NAME"
    )]
    pub namespace: String,
    /// Name of the controller's Deployment, as `--name` of `kproxide run`
    #[arg(long, default_value = "kproxide", value_name = "NAME")]
    pub name: String,
    /// Folder with the credentials of Proxmox, as --credentials-dir of `kproxide run`; default: in the pod
    /// /etc/kproxide/credentials
    #[arg(long, value_name = "DIR")]
    pub proxmox_credentials: Option<PathBuf>,
    /// Folder with join scripts, as of `kproxide run`; default: in the pod /etc/kproxide/join
    #[arg(long, value_name = "DIR")]
    pub join_dir: Option<PathBuf>,
    /// Folder with your policies, as of `kproxide run`. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// Look at the chart's values in this file instead of a cluster, before anything is installed. Takes --proxmox-credentials
    /// for credentials that are in Secrets, and --join-dir for scripts that are. With --kubeconfig, --context or --as it
    /// also asks that cluster whether a Node takes kproxide's pod
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,
    /// Exit with 10 or 20 from this on
    #[arg(long, value_enum, default_value_t = FailOn::Warning, value_name = "LEVEL")]
    pub fail_on: FailOn,
    /// Format of the output: JSON and YAML have `summary` and `findings`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Warning,
    Error,
    Never,
}
