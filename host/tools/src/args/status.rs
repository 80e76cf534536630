//! `kproxide status`, and by which Lease the controller is found.

use std::path::PathBuf;

use clap::Args;

use super::{Connection, Format};
use kproxide_common::labels::is_path_part;

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub leader: Leader,
    /// Ask the controller at this address, such as that of a `kubectl port-forward`, and not through the API server
    #[arg(long, value_name = "URL", conflicts_with_all = ["file", "from_cluster"])]
    pub admin: Option<String>,
    /// Ask no controller: plan here, from what the cluster lists
    #[arg(long, visible_alias = "compute")]
    pub from_cluster: bool,
    /// Look at files instead of a cluster: a saved answer of /debug/plan, or what `kproxide plan -f` takes. May be given
    /// several times
    #[arg(
        short,
        long,
        value_name = "FILE|DIR|-",
        conflicts_with = "from_cluster"
    )]
    pub file: Vec<PathBuf>,
    /// Without a controller: ask Proxmox for the hypervisors. A folder with the credentials, as --credentials-dir of
    /// `kproxide run`
    #[arg(long, value_name = "DIR")]
    pub proxmox_credentials: Option<PathBuf>,
    /// Folder with your policies, as of `kproxide run`. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// With -f: the moment that is looked at, such as 2026-01-05T08:00:00Z; default: now, or that of the saved answer
    #[arg(long, value_name = "TIME", requires = "file")]
    pub now: Option<jiff::Timestamp>,
    /// Look again every 2 seconds, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Use no colour. It is used in a terminal alone, and not if $NO_COLOR is set
    #[arg(long)]
    pub no_color: bool,
    /// Format of the output. JSON and YAML have the same fields: `answer`, `level`, `troubles`, `pools`, `hypervisors`,
    /// `machines`, `pending`, `removals`, `kept` and `decisions`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

/// Which controller is asked.
#[derive(Debug, Args)]
pub struct Leader {
    /// The Lease by which the replica that leads is found: its namespace, and the `--name` of `kproxide run`
    #[arg(long, default_value = "kproxide/kproxide", value_parser = lease, value_name = "NAMESPACE/NAME")]
    pub lease: (String, String),
    /// Port of the admin endpoints; default: the first one that the pod declares
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,
}

/// Both become parts of a path.
fn lease(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('/');
    let named = parts.filter(|(namespace, name)| is_path_part(namespace) && is_path_part(name));
    let (namespace, name) = named
        .ok_or_else(|| format!("{text:?} is not NAMESPACE/NAME, such as kproxide/kproxide"))?;
    Ok((namespace.to_owned(), name.to_owned()))
}
