//! Names of things, one type each, so that a pool can never be passed where a hypervisor is meant.
//!
//! All order by their text: ties in decisions are broken by name, never by creation order or by hash.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name(pub Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl From<&str> for $name { fn from(text: &str) -> Self { Self(text.into()) } }
        impl From<String> for $name { fn from(text: String) -> Self { Self(text.into()) } }
        impl fmt::Display for $name { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) } }
        impl fmt::Debug for $name { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Debug::fmt(&self.0, f) } }
        impl std::borrow::Borrow<str> for $name { fn borrow(&self) -> &str { &self.0 } }
    )*};
}

/// What was hashed, as text.
pub(crate) fn digest(hasher: &DefaultHasher) -> Digest {
    format!("{:016x}", hasher.finish()).into()
}

names! {
    /// A Kubernetes Node's name.
    NodeName
    /// A NodeClaim's name; also the name of its VM.
    ClaimName
    /// A NodePool's name.
    PoolName
    /// A NodeClass's name.
    ClassName
    /// A ProxmoxCluster's name: the region.
    ClusterName
    /// The name of one of a class's instance types.
    InstanceTypeName
    /// The name of a Proxmox storage.
    StorageName
    /// A Kubernetes object's UID, or a VM's SMBIOS UUID in lower case.
    Uid
    /// The SHA-256 of a policy's bytes or of a template's facts, as hex.
    Digest
}

impl Digest {
    /// So much of it as people compare.
    pub fn start(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl Uid {
    /// An SMBIOS UUID with its first three fields in the other byte order, as some firmware reports it; `None` if it is no UUID.
    pub fn swapped(&self) -> Option<Self> {
        let [a, b, c, d, e] = self.as_str().split('-').collect::<Vec<_>>()[..] else {
            return None;
        };
        if [a, b, c, d, e].map(str::len) != [8, 4, 4, 4, 12] {
            return None;
        }
        let reversed = |field: &str| -> Option<String> {
            let pairs: Option<Vec<&str>> = (0..field.len())
                .step_by(2)
                .map(|at| field.get(at..at + 2))
                .collect();
            Some(pairs?.into_iter().rev().collect())
        };
        Some(format!("{}-{}-{}-{d}-{e}", reversed(a)?, reversed(b)?, reversed(c)?).into())
    }
}

/// A namespaced object.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ObjectKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<ObjectKey> for String {
    fn from(key: ObjectKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for ObjectKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not namespace/name"))?;
        Ok(Self::new(namespace, name))
    }
}

/// A pod, by namespace and name.
pub type PodKey = ObjectKey;

/// A Proxmox server. Its name is unique within its cluster only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HypervisorId {
    pub cluster: ClusterName,
    pub name: Arc<str>,
}

impl HypervisorId {
    pub fn new(cluster: &str, name: &str) -> Self {
        Self {
            cluster: cluster.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for HypervisorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}

impl From<HypervisorId> for String {
    fn from(id: HypervisorId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for HypervisorId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (cluster, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not cluster/hypervisor"))?;
        Ok(Self::new(cluster, name))
    }
}

/// The number of a VM: unique within a Proxmox cluster, and Proxmox's own lock against a second VM of that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vmid(pub u32);

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What may stand between the dots of a DNS name: the only form of a claim's name.
pub fn is_dns_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
