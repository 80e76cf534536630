//! Connections to Proxmox clusters, with the credentials that are mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kproxide_kube::convert::TrustSettings;
use kproxide_pve::auth::{CredentialSource, mounted};
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::tls::Trust;

use crate::observe::Connect;

/// With the credentials in this folder: a sub-folder for each ProxmoxCluster.
pub fn connect(credentials: PathBuf) -> Connect {
    connect_by(
        move |folder| mounted(credentials.join(folder)),
        |path| Trust::CaFile(path.to_owned()),
    )
}

/// With credentials by the name of their folder, and CA certificates by the path of their file.
pub fn connect_by(
    credentials: impl Fn(&str) -> CredentialSource + Send + Sync + 'static,
    ca: impl Fn(&Path) -> Trust + Send + Sync + 'static,
) -> Connect {
    Arc::new(move |connection, concurrency| {
        let trust = match &connection.trust {
            TrustSettings::System => Trust::System,
            TrustSettings::CaFile(path) => ca(path),
            TrustSettings::InsecureSkipVerify => {
                tracing::warn!(
                    endpoints = ?connection.endpoints,
                    "tls.insecureSkipVerify: anybody between here and Proxmox can read the token and take the cluster over"
                );
                Trust::InsecureSkipVerify
            }
            TrustSettings::Fingerprints(fingerprints) => Trust::Fingerprints(
                fingerprints
                    .iter()
                    .map(|text| text.parse())
                    .collect::<Result<_, _>>()
                    .map_err(|error| kproxide_common::chain::chain(&error))?,
            ),
        };
        PveClient::https(
            &connection.endpoints,
            &trust,
            credentials(&connection.credentials),
            concurrency,
        )
        .map_err(|error| kproxide_common::chain::chain(&error))
    })
}
