//! Whether the CustomResourceDefinitions of our objects exist and are not being deleted.
//!
//! If a user deletes one, Kubernetes deletes every object of that kind. Otherwise a deleted claim means that a user
//! wants its machine gone, and a deleted NodePool all of its machines. Kubernetes marks the definition as deleted before
//! it marks the objects. So a read of the definition that begins after an object is seen as deleted tells the two cases
//! apart.

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use super::client::Client;
use super::crd::{Ledger, NodeClaim, NodeClass, NodePool, ProxmoxCluster};
use super::error::Error;

/// How one of them stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    Stands,
    /// It goes once the last object of the kind has gone.
    BeingDeleted,
    Gone,
}

impl Definition {
    /// Why nothing is launched or removed, and what to do.
    fn problem(self, name: &str) -> Option<String> {
        let kind = name.split('.').next().unwrap_or(name);
        match self {
            Self::Stands => None,
            Self::BeingDeleted => Some(format!(
                "the CustomResourceDefinition {name} is being deleted, and all {kind} with it: machines and Nodes stay as they are, and nothing is launched or removed; \
                 this cannot be taken back: take the finalizers off the {kind}, and run `kproxide crds --apply`"
            )),
            Self::Gone => Some(format!(
                "there is no CustomResourceDefinition {name}: machines and Nodes stay as they are, and nothing is launched or removed; run \
                 `kproxide crds --apply`"
            )),
        }
    }
}

/// What is wrong with the definitions, by a fresh look at each; that of claims comes first.
///
/// # Errors
/// When one cannot be read: nothing follows from that.
pub async fn problem(client: &Client) -> Result<Option<String>, Error> {
    let names = [
        NodeClaim::crd_name(),
        NodePool::crd_name(),
        NodeClass::crd_name(),
        ProxmoxCluster::crd_name(),
        Ledger::crd_name(),
    ];
    let looks = try_join_all(names.map(|name| look(client, name))).await?;
    let mut problems = names.iter().zip(looks);
    Ok(problems.find_map(|(name, look)| look.problem(name)))
}

/// By a quorum read.
///
/// # Errors
/// When it cannot be read: nothing follows from that.
pub async fn of_claims(client: &Client) -> Result<Definition, Error> {
    look(client, NodeClaim::crd_name()).await
}

async fn look(client: &Client, name: &str) -> Result<Definition, Error> {
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
