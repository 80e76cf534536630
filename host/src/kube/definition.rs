//! Whether the CustomResourceDefinition of claims exists and is not being deleted.
//!
//! If a user deletes it, Kubernetes deletes every claim. Otherwise a deleted claim means that a user wants its machine
//! gone. Kubernetes marks the definition as deleted before it marks the claims. So a read of the definition that begins
//! after a claim is seen as deleted tells the two cases apart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use super::client::Client;
use super::crd::NodeClaim;
use super::error::Error;

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    Stands,
    /// It goes once the last claim has gone.
    BeingDeleted,
    Gone,
}

impl Definition {
    /// Why nothing is launched or removed, and what to do.
    pub fn problem(self) -> Option<String> {
        let name = NodeClaim::crd_name();
        match self {
            Self::Stands => None,
            Self::BeingDeleted => Some(format!(
                "the CustomResourceDefinition {name} is being deleted, and every claim with it: machines and Nodes stay as they are, and nothing is launched or removed; \
                 this cannot be taken back: take the finalizers off the claims, and apply the chart's crds/nodeclaims.yaml again"
            )),
            Self::Gone => Some(format!(
                "there is no CustomResourceDefinition {name}: machines and Nodes stay as they are, and nothing is launched or removed; apply the chart's \
                 crds/nodeclaims.yaml again"
            )),
        }
    }
}

/// By a quorum read.
///
/// # Errors
/// When it cannot be read: nothing follows from that.
pub async fn of_claims(client: &Client) -> Result<Definition, Error> {
    let name = NodeClaim::crd_name();
    let found = client
        .all::<CustomResourceDefinition>()
        .get_metadata_opt(name)
        .await
        .map_err(Error::of("get", "customresourcedefinitions", name))?;
    Ok(match found {
        None => Definition::Gone,
        Some(found) if found.metadata.deletion_timestamp.is_some() => Definition::BeingDeleted,
        Some(_) => Definition::Stands,
    })
}
