//! The flags of `kproxide init`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Connection;

/// The flags that answer what `examples/proxmox/setup.sh` prints, in its order.
const PRINTED: &str = "What setup.sh prints";
const PROXMOX: &str = "More about Proxmox";
const JOINING: &str = "How machines join";

const HELP: &str = "\
Several Proxmox clusters: begin the value with the name that the cluster gets, as in
--endpoint home=https://10.0.0.1:8006 --endpoint away=https://10.1.0.1:8006 --token-id home=…
Without a name it is `proxmox`.

No flag takes a secret: a file that holds it, or - for standard input.

After Ctrl-C or an error, answers.json in the folder keeps your answers, but no secret. The next
run offers them again.

It ends with 0 when the folder is written, whatever doctor finds.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Init {
    /// Folder to write
    #[arg(long, default_value = "kproxide", value_name = "DIR")]
    pub out: PathBuf,
    /// Write over the files of an earlier run
    #[arg(long)]
    pub force: bool,
    /// Never ask. What has no default must be given by a flag; all that is missing is named at once
    #[arg(long)]
    pub non_interactive: bool,
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace that kproxide will be installed in
    #[arg(long, default_value = "kproxide", value_name = "NAME")]
    pub namespace: String,
    /// Where the image comes from: `imported` on the Nodes, as `cargo image` says, or from the chart's `registry`
    #[arg(long, value_enum, default_value_t = Image::Imported, value_name = "FROM")]
    pub image: Image,

    /// Any server of the Proxmox cluster; init learns of the others from it
    #[arg(long, value_name = "[NAME=]URL", help_heading = PRINTED)]
    pub endpoint: Vec<String>,
    /// SHA-256 fingerprint of that server's certificate. Without it, and without --ca-file, a public authority must vouch
    #[arg(long, value_name = "[NAME=]HEX", help_heading = PRINTED)]
    pub fingerprint: Vec<String>,
    /// API token, such as kproxide@pve!autoscaler
    #[arg(long, value_name = "[NAME=]ID", help_heading = PRINTED)]
    pub token_id: Vec<String>,
    /// File with the token's secret
    #[arg(long, value_name = "[NAME=]FILE|-", help_heading = PRINTED)]
    pub token_secret_file: Vec<String>,
    /// Proxmox pool of the machines; default: kproxide
    #[arg(long, value_name = "[NAME=]POOL", help_heading = PRINTED)]
    pub pool: Vec<String>,
    /// VMIDs of the machines; default: 20000-20999
    #[arg(long, value_name = "[NAME=]A-B", help_heading = PRINTED)]
    pub vmid_range: Vec<String>,
    /// VM template that machines are cloned from; default: the only one that there is
    #[arg(long, value_name = "NAME", help_heading = PRINTED)]
    pub template: Option<String>,

    /// File with the authority that signed the servers' certificates, such as a copy of /etc/pve/pve-root-ca.pem
    #[arg(long, value_name = "[NAME=]FILE", help_heading = PROXMOX)]
    pub ca_file: Vec<String>,
    /// Make machines on this server only; may be given several times. Default: on all
    #[arg(long, value_name = "[NAME=]SERVER", help_heading = PROXMOX)]
    pub server: Vec<String>,
    /// Storage of the machines' disks, by full clones; default: that of the template
    #[arg(long, value_name = "NAME", help_heading = PROXMOX)]
    pub storage: Option<String>,

    /// How a machine joins; default: as the cluster's version says
    #[arg(long, value_enum, value_name = "WAY", help_heading = JOINING)]
    pub join: Option<Way>,
    /// Server that machines join at; default: one of the cluster's API servers
    #[arg(long, value_name = "URL", help_heading = JOINING)]
    pub join_server: Option<String>,
    /// File with the cluster's token: of k3s and RKE2 the server's file node-token, of kubeadm what
    /// `kubeadm token create --ttl 0` prints
    #[arg(long, value_name = "FILE|-", help_heading = JOINING)]
    pub join_token_file: Option<PathBuf>,
}

/// How a machine becomes a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    #[value(name = "k3s")]
    K3s,
    Rke2,
    Kubeadm,
    /// At its first boot, as its template was made to (setup.sh --first-boot)
    #[value(name = "itself")]
    Itself,
}

/// Where the Nodes have the image from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Image {
    Imported,
    Registry,
}
