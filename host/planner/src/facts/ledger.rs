//! kproxide's records of what it promised. These types are the API's `spec` of a Ledger.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::claim::ClaimSpec;
use super::policies::PolicyKind;
use super::record::RemovalReason;
use super::tries::{InVain, Offered, Tries};
use crate::ids::{
    ClaimName, ClassName, ClusterName, HypervisorId, PoolName, StorageName, Uid, Vmid,
};

/// All limits are computed from this one object, so that they hold even if several copies of kproxide run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerFacts {
    // The first five fields come from the object's metadata. They are never written into its spec.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub resource_version: Arc<str>,
    /// Since when there is this Ledger. A machine with an older Node was made while there was another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub created: Option<Timestamp>,
    /// The annotation `kproxide.dev/acknowledge-orphan`: markers whose VMs a person wants kproxide to take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub orphans_acknowledged: Option<Arc<str>>,
    /// The annotation `kproxide.dev/acknowledge-removal`: a person confirms that the removals in a freeze are intended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub acknowledged: Option<Arc<str>>,
    /// The annotation `kproxide.dev/acknowledge-anchor`: a person lets kproxide take a foreign mark as its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub anchor_acknowledged: Option<Arc<str>>,
    /// VMIDs that are promised, in use or in quarantine. At most 5,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub entries: Vec<LedgerEntry>,
    /// State that policies keep between their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub policy_state: Vec<PolicyState>,
    /// Hypervisors and storages where launches failed, and how long kproxide makes no machine there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub backoff: Vec<Backoff>,
    /// NodePools whose launches failed one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub failed_launches: Vec<FailedLaunches>,
    /// Removals of the last minutes. kproxide computes its rate limit from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5000)))]
    pub removals: Vec<Removal>,
    /// Machines that no pod has used yet, and workloads whose machines no pod used. The oldest row goes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub tries: Vec<Tries>,
    /// Machines of the last hour that no pod used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub in_vain: Vec<InVain>,
    /// NodeClasses whose machines are made in vain, and what their Nodes offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub offered: Vec<Offered>,
    /// Set while kproxide removes nothing because too many machines went bad at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// NodePools whose deletion kproxide saw begin, or that you confirmed: their machines may go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub deletions: Vec<PoolDeletion>,
    /// kproxide's machines without a NodeClaim, and since when.
    // kproxide waits until their Nodes are Ready, or until `--orphan-grace` is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub orphans: Vec<OrphanSeen>,
    /// The VMs `kproxide-anchor-NUMBER`, one in each Proxmox cluster. They tell this Kubernetes cluster from a copy of
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub anchors: Vec<Anchor>,
}

/// The VM `kproxide-anchor-NUMBER` of one Proxmox cluster. It must show `mark` or `next`: if not, a copy has written to
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Anchor {
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    pub vmid: Vmid,
    /// The mark before `next`.
    // `None`: it has not carried a mark of ours yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The mark that kproxide is writing to it.
    // This is an intent: the VM may show `mark` or `next`.
    pub next: Mark,
    /// When kproxide last found the mark to be right.
    pub at: Timestamp,
    /// Since when kproxide watches the VM, because it did not look at it for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_since: Option<Timestamp>,
    /// The mark that it shows instead. With the annotation `kproxide.dev/acknowledge-anchor` kproxide accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<ForeignMark>,
}

/// A mark that was not written from this Ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignMark {
    /// VMID of the VM that shows it.
    pub vmid: Vmid,
    /// The mark.
    pub mark: Mark,
    /// When kproxide first saw such a mark.
    pub since: Timestamp,
    /// How often it changed since then.
    pub moved: u32,
}

/// What an anchor shows: how often it was written, and a random word of the process that wrote it. As text: `7-x4f9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    pub sequence: u64,
    pub nonce: Arc<str>,
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.sequence, self.nonce)
    }
}

impl From<Mark> for String {
    fn from(mark: Mark) -> Self {
        mark.to_string()
    }
}

impl TryFrom<String> for Mark {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let parts = text.split_once('-').and_then(|(sequence, nonce)| {
            let sequence = sequence.parse().ok()?;
            (!nonce.is_empty()).then(|| Self {
                sequence,
                nonce: nonce.into(),
            })
        });
        parts.ok_or_else(|| format!("{text:?} is no mark of an anchor such as 7-x4f9"))
    }
}

/// One of kproxide's machines, without a NodeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OrphanSeen {
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// Number of the VM.
    pub vmid: Vmid,
    /// UID of the NodeClaim that it was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: Uid,
    /// When kproxide first saw it without a NodeClaim.
    // `--orphan-grace` counts from here, also after a restart.
    pub since: Timestamp,
}

/// One VMID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerEntry {
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// Name of its NodePool.
    pub pool: PoolName,
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// The VMID.
    pub vmid: Vmid,
    /// The hypervisor on which kproxide makes it.
    pub hypervisor: Arc<str>,
    /// Storage for its disks, if not the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// Thousandths of a core.
    pub milli_cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of disk.
    #[serde(default)]
    pub disk_bytes: u64,
    /// Its address, if it got one from an `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<std::net::IpAddr>,
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "EntryStateSchema"))]
    pub state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum EntryState {
    /// Promised; its claim may not exist yet.
    Reserved { since: Timestamp },
    /// Its claim exists.
    Live,
    /// Its machine is gone, and kproxide does not use the VMID and the address again before `until`, if others are free. Counts for no limit.
    Quarantined {
        /// `None`: an earlier version of kproxide wrote it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        until: Timestamp,
    },
}

/// [`EntryState`] for the API server. Its schemas cannot say which state goes with which time.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is asked for")]
struct EntryStateSchema {
    /// reserved: promised. live: in use. quarantined: not to be used again before `until`, as long as others are free.
    #[schemars(extend("enum" = ["reserved", "live", "quarantined"]))]
    state: String,
    /// When it was reserved, or when its quarantine began.
    since: Option<Timestamp>,
    /// When the quarantine ends.
    until: Option<Timestamp>,
}

impl LedgerEntry {
    /// The entry of a claim. A disk without a size of its own counts as 0: only the placement knows how large the
    /// template's is.
    pub fn of(claim: &ClaimName, spec: &ClaimSpec, state: EntryState) -> Self {
        Self {
            claim: claim.clone(),
            pool: spec.pool.clone(),
            cluster: spec.cluster.clone(),
            vmid: spec.vmid,
            hypervisor: spec.hypervisor.clone(),
            storage: spec.storage.clone(),
            milli_cores: spec.resources.milli_cores,
            memory_bytes: spec.resources.memory_bytes,
            disk_bytes: spec.resources.disk_bytes.unwrap_or(0),
            address: spec.address,
            state,
        }
    }

    pub fn hypervisor_id(&self) -> HypervisorId {
        HypervisorId {
            cluster: self.cluster.clone(),
            name: self.hypervisor.clone(),
        }
    }

    pub fn counts(&self) -> bool {
        match self.state {
            EntryState::Reserved { .. } | EntryState::Live => true,
            EntryState::Quarantined { .. } => false,
        }
    }
}

/// State that a policy keeps for a NodePool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyState {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// Kind of policy.
    pub kind: PolicyKind,
    /// Name of the policy.
    // kproxide drops the state when the pool uses another policy.
    pub policy: Arc<str>,
    /// How many machines were placed for this pool so far.
    pub sequence: u64,
    /// The last placement, as `cluster/hypervisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<HypervisorId>,
    /// The policy's own state, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "in_base64")]
    #[cfg_attr(feature = "schema", schemars(with = "String", length(max = 5464)))]
    pub state: Vec<u8>,
}

/// A hypervisor, or a storage of it, where launches failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Backoff {
    /// The hypervisor, as `cluster/hypervisor`.
    pub hypervisor: HypervisorId,
    /// The storage, if it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// The NodeClass whose launches fail alike on every hypervisor of the Proxmox cluster. All of its launches there rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class: Option<ClassName>,
    /// Kind of error, in one word.
    pub class: Arc<str>,
    /// Text of the last failure.
    // Empty if an earlier version of kproxide wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub message: String,
    /// Failures in a row.
    pub failures: u32,
    /// kproxide makes no machine there until then.
    pub until: Timestamp,
}

/// Launches of one NodePool that failed one after the other. A machine of the pool that comes into service ends the row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedLaunches {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// How many, at most 3.
    pub in_a_row: u32,
    /// Text of the last failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub message: String,
    /// When the last one failed.
    pub at: Timestamp,
}

/// The removal of a machine that was in service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Removal {
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// When it began. If it began several times, the last time.
    pub at: Timestamp,
    /// Reason of the removal, in one word.
    // The schema does not list the words. Helm does not upgrade CRDs, and a later version must be able to write new
    // words.
    #[serde(deserialize_with = "known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reason: RemovalReason,
}

/// A word that this program does not know counts as one of a choice, as all voluntary reasons do here. (Programs up to 92f4022 call
/// a Ledger with such a word unreadable, and stand still.)
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RemovalReason, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(RemovalReason::from_word(&word).unwrap_or(RemovalReason::Replace))
}

/// kproxide removes nothing because too many machines went bad at once. `kproxide.dev/acknowledge-removal` ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Freeze {
    /// When it began or last grew.
    pub since: Timestamp,
    /// How many machines were bad then.
    pub machines: u32,
}

/// The machines of this NodePool may be removed, because somebody deletes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolDeletion {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// UID of the NodePool.
    #[serde(rename = "poolUID")]
    pub uid: Uid,
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    /// As in [`Backoff`].
    pub class: Arc<str>,
    pub message: String,
}

/// Bytes in JSON as base64 with its padding (RFC 4648, section 4). Anything else is an error.
mod in_base64 {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        BASE64_STANDARD.decode(text).map_err(de::Error::custom)
    }
}
