//! Reading and writing NodeClaims. Every write but the first is a compare-and-set.

use std::sync::Arc;

use kproxide_planner::facts::{ClaimFacts, ClaimSpec, ClaimStatus};
use kproxide_planner::ids::{ClaimName, Uid};
use kproxide_planner::keys;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::client::Client;
use super::convert::{Unreadable, claim_facts, claim_object, status_object};
use super::crd::NodeClaim;
use super::error::{Cas, Deletion, Error};
use super::view::CustomView;

const RESOURCE: &str = "nodeclaims";

/// A claim as one answer of the API server had it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredClaim {
    pub name: ClaimName,
    /// What the next write is conditional on.
    pub resource_version: Arc<str>,
    pub generation: Option<i64>,
    pub facts: ClaimFacts,
}

impl StoredClaim {
    fn read(claim: &CustomView<NodeClaim>) -> Result<Self, Unreadable> {
        Ok(Self {
            name: ClaimName::from(claim.metadata.name.as_deref().unwrap_or_default()),
            resource_version: claim
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default()
                .into(),
            generation: claim.metadata.generation,
            facts: claim_facts(claim)?,
        })
    }
}

/// What became of a claim that was to be created.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a claim of that name that was there before may be another one"]
pub enum Creation {
    Created(Box<StoredClaim>),
    /// There is one of that name: an earlier try took effect, or it is another's. Get it and compare its specification.
    AlreadyExists,
}

/// Creates the claim with its finalizer in the same request. Repeatable: the name is the key.
///
/// # Errors
/// [`Error::Invalid`] if the schema refuses it: the launch must be given up. After [`Error::Transport`] it may exist.
pub async fn create(
    client: &Client,
    claim: &ClaimName,
    spec: &ClaimSpec,
) -> Result<Creation, Error> {
    let created = client
        .all::<CustomView<NodeClaim>>()
        .create(&PostParams::default(), &claim_object(claim, spec))
        .await
        .map_err(Error::of("create", RESOURCE, claim.as_str()));
    match created {
        Ok(created) => Ok(Creation::Created(Box::new(StoredClaim::read(&created)?))),
        Err(Error::AlreadyExists { .. }) => Ok(Creation::AlreadyExists),
        Err(other) => Err(other),
    }
}

/// The claim as it stands, by a quorum read; `None` if it is gone.
///
/// # Errors
/// [`Error::Unreadable`] if it is there but cannot be read: it is not gone.
pub async fn get(client: &Client, claim: &ClaimName) -> Result<Option<StoredClaim>, Error> {
    let found = client
        .all::<CustomView<NodeClaim>>()
        .get_opt(claim.as_str())
        .await
        .map_err(Error::of("get", RESOURCE, claim.as_str()))?;
    Ok(found.as_ref().map(StoredClaim::read).transpose()?)
}

/// All claims as they stand, by a quorum read, by name.
///
/// # Errors
/// [`Error::Unreadable`] if any of them cannot be read: the list would not be whole.
pub async fn list(client: &Client) -> Result<Vec<StoredClaim>, Error> {
    let found = client
        .all::<CustomView<NodeClaim>>()
        .list(&kube::api::ListParams::default())
        .await
        .map_err(Error::of("list", RESOURCE, ""))?;
    let mut claims = found
        .iter()
        .map(StoredClaim::read)
        .collect::<Result<Vec<_>, _>>()?;
    claims.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(claims)
}

/// Replaces the status if the claim is still the one that was read. Where the claim has no hypervisor yet, that of the specification is
/// written: until a migration is seen, it stands where it was made.
pub async fn write_status(
    client: &Client,
    claim: &StoredClaim,
    status: &ClaimStatus,
) -> Result<Cas<StoredClaim>, Error> {
    let mut status = status.clone();
    status
        .hypervisor
        .get_or_insert_with(|| claim.facts.spec.hypervisor.clone());
    let patch = conditional(
        claim,
        json!({ "status": whole_status(&status, claim.generation) }),
    );
    let written = client
        .all::<CustomView<NodeClaim>>()
        .patch_status(
            claim.name.as_str(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
        .map_err(Error::of("patch", "nodeclaims/status", claim.name.as_str()));
    Cas::of(written.and_then(|claim| Ok(StoredClaim::read(&claim)?)))
}

/// Asks for the claim's deletion: the point from which its machine is torn down.
pub async fn delete(client: &Client, claim: &ClaimName, uid: &Uid) -> Result<Deletion, Error> {
    let deleted = client
        .all::<CustomView<NodeClaim>>()
        .delete(claim.as_str(), &only_uid(uid))
        .await
        .map_err(Error::of("delete", RESOURCE, claim.as_str()));
    deletion(deleted.map(|_| ()))
}

/// Lets the claim go. Only after the absence of its machine is proven and written to the Ledger.
pub async fn remove_finalizer(client: &Client, claim: &StoredClaim) -> Result<Cas<()>, Error> {
    let api = client.all::<CustomView<NodeClaim>>();
    let failed = |verb| Error::of(verb, RESOURCE, claim.name.as_str());
    // Other finalizers belong to those who added them, and stay.
    let Some(current) = api
        .get_opt(claim.name.as_str())
        .await
        .map_err(failed("get"))?
    else {
        return Ok(Cas::Gone);
    };
    if current.metadata.uid.as_deref() != Some(claim.facts.uid.as_str()) {
        return Ok(Cas::Gone);
    }
    if current.metadata.resource_version.as_deref() != Some(&*claim.resource_version) {
        return Ok(Cas::Conflict);
    }
    let others: Vec<&String> = current
        .metadata
        .finalizers
        .iter()
        .flatten()
        .filter(|name| *name != keys::FINALIZER)
        .collect();
    let patch = conditional(claim, json!({ "metadata": { "finalizers": others } }));
    let written = api
        .patch(
            claim.name.as_str(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
        .map(|_| ())
        .map_err(failed("patch"));
    Cas::of(written)
}

/// Adds the conditions of a compare-and-set to a merge patch: with another resource version or UID the API server answers 409.
fn conditional(claim: &StoredClaim, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = json!(&*claim.resource_version);
    patch["metadata"]["uid"] = json!(claim.facts.uid.as_str());
    patch
}

/// The status with a null for every field that is not set, so that a merge patch leaves nothing of the one before.
fn whole_status(status: &ClaimStatus, generation: Option<i64>) -> Value {
    let mut whole = status_object(status, generation);
    for field in STATUS_FIELDS {
        whole.entry(field).or_insert(Value::Null);
    }
    whole.into()
}

const STATUS_FIELDS: [&str; 15] = [
    "phase",
    "intent",
    "upid",
    "nonce",
    "smbiosUUID",
    "disks",
    "nodeName",
    "nodeUID",
    "hypervisor",
    "address",
    "startedAt",
    "drainingSince",
    "removalDecision",
    "blockedDrains",
    "conditions",
];

pub(super) fn only_uid(uid: &Uid) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

pub(super) fn deletion(result: Result<(), Error>) -> Result<Deletion, Error> {
    match result {
        Ok(()) => Ok(Deletion::Accepted),
        Err(Error::NotFound { .. }) => Ok(Deletion::Gone),
        Err(Error::Conflict { .. }) => Ok(Deletion::Replaced),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;

    use super::*;

    #[test]
    fn a_whole_status_names_every_field_of_the_schema() {
        let crd = serde_json::to_value(NodeClaim::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
            ["properties"];
        let mut of_schema: Vec<&str> = schema
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut ours = STATUS_FIELDS.to_vec();
        of_schema.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, of_schema);
        let whole = whole_status(&ClaimStatus::default(), None);
        assert!(of_schema.iter().all(|field| whole.get(field).is_some()));
    }
}
