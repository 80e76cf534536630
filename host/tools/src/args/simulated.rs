//! The flags of `kproxide demo` and `kproxide simulate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::policy::Kind;

#[derive(Debug, Args)]
pub struct Demo {
    /// The same seed gives the same run, line by line; another seed gives another run
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// A policy: a built-in's name (`kproxide policy show list`), or a file NAME.wasm, NAME.wasm.gz or NAME.wasm.zst, whose log
    /// lines are shown too. Default: spread, least-loaded or go-template
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<String>,
    /// What the policy decides
    #[arg(long, value_enum, default_value_t = Kind::HostSelection, value_name = "KIND")]
    pub kind: Kind,
    /// File with the settings of the policy in YAML or JSON; default: none
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Print lines, even in a terminal
    #[arg(long)]
    pub plain: bool,
    /// How fast the picture in a terminal goes, from 0.1 to 100: 2 is twice as fast. Lines always come at once
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = speed)]
    pub speed: f64,
    /// Show nothing, and write one picture of the run to this file, as SVG: a machine is dead, and another one boots
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plain", "speed"])]
    pub svg: Option<PathBuf>,
}

impl Demo {
    /// The policy that is meant.
    pub fn policy(&self) -> &str {
        let built_in = match self.kind {
            Kind::HostSelection => "spread",
            Kind::ScaleDown => "least-loaded",
            Kind::Labels => "go-template",
        };
        self.policy.as_deref().unwrap_or(built_in)
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok();
    let speed = speed.filter(|speed| (0.1..=100.0).contains(speed));
    speed.ok_or_else(|| "give a number from 0.1 to 100, such as 2 for twice as fast".to_owned())
}

#[derive(Debug, Subcommand)]
pub enum Simulate {
    /// Serve a simulated Proxmox VE over HTTPS on loopback, and a simulated Kubernetes unless --kubeconfig names a real
    /// one
    Serve(Serve),
}

#[derive(Debug, Args)]
#[command(after_long_help = what_can_happen())]
pub struct Serve {
    /// Folder for the files that a client needs: pve.json, ca.pem, credentials/, objects.json (a ProxmoxCluster,
    /// NodeClass and NodePool), secret.json and, for the simulated Kubernetes, kubeconfig
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Let the machines join the cluster of this kubeconfig, and simulate no Kubernetes
    #[arg(long, value_name = "FILE", conflicts_with = "kube_port")]
    pub kubeconfig: Option<PathBuf>,
    /// The Proxmox servers, as name:threads:GiB. Each has a template k8s-node
    #[arg(
        long,
        default_value = "pve1:16:64,pve2:16:64,pve3:16:64",
        value_name = "LIST"
    )]
    pub hypervisors: String,
    /// Seed for what is random, such as how long a machine boots
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Port of Proxmox VE's API on loopback; 0 takes any free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    pub pve_port: u16,
    /// Port of the simulated Kubernetes API on loopback; 0 takes any free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    pub kube_port: u16,
    /// Let nothing take time: clones, boots and pods are done at once
    #[arg(long)]
    pub instant: bool,
    /// What to log on standard error: a level, or directives
    #[arg(
        long,
        env = "KPROXIDE_LOG",
        default_value = "warn",
        value_name = "FILTER"
    )]
    pub log: String,
}

fn what_can_happen() -> String {
    format!(
        "To change the simulated Proxmox, send one of the requests below to its API, without a login. [x] may be left
out, a|b is a choice. DIR is the folder of --out, and DIR/pve.json has the URL:

  curl --cacert DIR/ca.pem --request POST 'URL/_sim/hypervisor?name=pve1&online=0'

{}",
        kproxide_simulator::pve::REQUESTS
    )
}
