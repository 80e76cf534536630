//! How a person reaches a cluster.

use std::path::PathBuf;

use clap::Args;
use kproxide_common::period::duration;

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
