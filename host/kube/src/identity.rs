//! Who we are: the cluster's identity and the key that proves which machines are ours.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kproxide_planner::facts::{EntryState, LedgerEntry, LedgerFacts};
use kube::api::{ListParams, ObjectMeta, PostParams};

use super::client::Client;
use super::crd::{NodeClaim, ProxmoxCluster};
use super::error::{Error, Request};
use super::view::CustomView;

/// Field of the Secret that holds the key.
const KEY_FIELD: &str = "key";

/// The key for ownership proofs. Its bytes are never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnershipKey([u8; 32]);

impl OwnershipKey {
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for OwnershipKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnershipKey(..)")
    }
}

/// Identity of the Kubernetes cluster: the UID of its `kube-system` namespace, which lives as long as the cluster.
///
/// # Errors
/// Without it no proof of ownership is possible.
pub async fn cluster_id(client: &Client) -> Result<String, Error> {
    const NAME: &str = "kube-system";
    let namespace = client
        .all::<Namespace>()
        .get(NAME)
        .await
        .map_err(Error::of("get", "namespaces", NAME))?;
    namespace
        .metadata
        .uid
        .filter(|uid| !uid.is_empty())
        .ok_or_else(|| unexpected("namespaces", NAME, "has no UID"))
}

/// The key in the Secret of this name; `None` if there is no such Secret. Writes nothing.
///
/// # Errors
/// [`Error::Unexpected`] if the Secret does not hold a key: it is never replaced, since that would make every machine foreign.
pub async fn ownership_key(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<OwnershipKey>, Error> {
    let secret = client
        .namespaced::<Secret>(namespace)
        .get_opt(name)
        .await
        .map_err(Error::of("get", "secrets", name))?;
    secret.map(|secret| read_key(&secret, name)).transpose()
}

/// The key in the Secret of this name; if there is none, this one, written once.
///
/// # Errors
/// As [`ownership_key`].
pub async fn ownership_key_or_create(
    client: &Client,
    namespace: &str,
    name: &str,
    fresh: [u8; 32],
) -> Result<OwnershipKey, Error> {
    if let Some(key) = ownership_key(client, namespace, name).await? {
        return Ok(key);
    }
    let key = OwnershipKey(fresh);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kproxide.dev/ownership-key".to_owned()),
        immutable: Some(true),
        data: Some(
            [(
                KEY_FIELD.to_owned(),
                k8s_openapi::ByteString(BASE64.encode(key.0).into_bytes()),
            )]
            .into(),
        ),
        ..Secret::default()
    };
    let created = client
        .namespaced::<Secret>(namespace)
        .create(&PostParams::default(), &secret)
        .await
        .map_err(Error::of("create", "secrets", name));
    match created {
        Ok(_) => Ok(key),
        // Another replica was faster: its key counts.
        Err(Error::NotFound { request }) => Err(Error::NamespaceMissing {
            request,
            namespace: namespace.to_owned(),
        }),
        Err(Error::AlreadyExists { .. }) => ownership_key(client, namespace, name)
            .await?
            .ok_or_else(|| unexpected("secrets", name, "was there and is gone again")),
        Err(other) => Err(other),
    }
}

/// What was made under the key, and would be foreign under another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dependents {
    pub claims: bool,
    pub ledger_entries: bool,
    /// The key's fingerprint, as the statuses of ProxmoxClusters have it, by their names.
    pub fingerprints: BTreeMap<String, String>,
}

/// Looks at what has been made under a key so far, with a Ledger that was read just before.
///
/// # Errors
/// Without it no new key may be made.
pub async fn dependents(client: &Client, ledger: &LedgerFacts) -> Result<Dependents, Error> {
    // Undecoded: one that cannot be read was made under a key as well.
    let claims = client
        .all::<CustomView<NodeClaim>>()
        .list(&ListParams::default().limit(1))
        .await
        .map_err(Error::of("list", "nodeclaims", ""))?;
    let clusters = client
        .all::<CustomView<ProxmoxCluster>>()
        .list(&ListParams::default())
        .await
        .map_err(Error::of("list", "proxmoxclusters", ""))?;
    let fingerprint = |cluster: CustomView<ProxmoxCluster>| {
        let fingerprint = cluster.status.get("keyFingerprint")?.as_str()?.to_owned();
        Some((cluster.metadata.name?, fingerprint))
    };
    // What rests in quarantine is a number whose machine is proven gone.
    let has_machine = |entry: &LedgerEntry| match entry.state {
        EntryState::Reserved { .. } | EntryState::Live => true,
        EntryState::Quarantined { .. } => false,
    };
    Ok(Dependents {
        claims: !claims.items.is_empty(),
        ledger_entries: ledger.entries.iter().any(has_machine),
        fingerprints: clusters.into_iter().filter_map(fingerprint).collect(),
    })
}

fn read_key(secret: &Secret, name: &str) -> Result<OwnershipKey, Error> {
    let text = secret.data.as_ref().and_then(|data| data.get(KEY_FIELD));
    text.and_then(|text| BASE64.decode(&text.0).ok()).and_then(|bytes| bytes.try_into().ok()).map(OwnershipKey).ok_or_else(|| {
        unexpected("secrets", name, "holds no 32 bytes in base64 as `key`; restore it from a backup, or every machine stays foreign")
    })
}

fn unexpected(resource: &'static str, name: &str, message: &str) -> Error {
    Error::Unexpected {
        request: Request {
            verb: "get",
            resource,
            name: name.to_owned(),
        },
        code: 200,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_without_a_key_is_no_key() {
        let error = read_key(&Secret::default(), "kproxide-ownership-key")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("kproxide-ownership-key") && error.contains("restore it"),
            "{error}"
        );
    }
}
