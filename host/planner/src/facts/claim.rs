//! The record of one machine. These types are the API's `spec` and `status` of a NodeClaim.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::kubernetes::{Labels, NodeFacts, Taint};
use super::machine::MachineSpec;
use super::record::{Condition, Intent, Phase};
use super::written::Period;
use crate::ids::{
    ClaimName, ClassName, ClusterName, Digest, HypervisorId, InstanceTypeName, NodeName, PoolName,
    StorageName, Uid, Vmid,
};
use crate::time::later;

/// A new machine in service has taken over by then, or the old one was kept.
const SUCCEEDS_FOR: SignedDuration = SignedDuration::from_hours(1);

/// NodeClaim: the durable record of one wanted machine. The specification never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimFacts {
    pub uid: Uid,
    pub created: Timestamp,
    /// A user or kproxide has deleted the claim: kproxide drains the Node and destroys the machine.
    pub deleting_since: Option<Timestamp>,
    pub has_finalizer: bool,
    /// Finalizers that are not ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_finalizers: Vec<Arc<str>>,
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
    /// The annotation `kproxide.dev/replace: "true"`: kproxide replaces the machine as soon as the budget allows.
    pub replace: bool,
    pub do_not_disrupt: bool,
    /// The annotation `kproxide.dev/discard-local-volumes: "true"`: volumes that only its Node reaches may be lost.
    pub discard_local_volumes: bool,
    pub paused: bool,
}

/// One wanted machine. It never changes. When a launch fails, kproxide closes the claim and makes a new one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimSpec {
    /// Name of the NodePool.
    pub pool: PoolName,
    /// Name of the NodeClass.
    pub class: ClassName,
    /// Name of the ProxmoxCluster.
    pub cluster: ClusterName,
    /// VMID of the machine.
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 999999999)))]
    pub vmid: Vmid,
    /// Name of the VM.
    pub vm_name: Arc<str>,
    /// The hypervisor on which kproxide makes it. If Proxmox migrates it later, the status says where to.
    pub hypervisor: Arc<str>,
    /// Storage for its disks. Not given: each disk goes where the template's is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
    /// How kproxide clones it. Not given: the VM existed before the NodeClaim, or an earlier version made the
    /// NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<CloneSpec>,
    /// Name of its instance type.
    pub instance_type: InstanceTypeName,
    /// Its size.
    pub resources: ClaimResources,
    /// Its address, if it got one from the class's `ipPool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<std::net::IpAddr>,
    /// Settings of its VM, as the class had them when kproxide planned it. Not given: for the same reasons as `clone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<MachineSpec>>,
    /// Labels that its Node gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Annotations that its Node gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Labels,
    /// Taints that its Node gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub taints: Vec<Taint>,
    /// Digest of the template and the NodeClass that it is made from.
    pub template_digest: Digest,
    /// Digest of the host-selection policy that chose the hypervisor.
    pub policy_digest: Digest,
    /// Its name and the start of that digest, such as `spread@1a2b3c4d`. Not given: for the same reasons as `clone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// Set if kproxide made it for a machine whose own NodeClaim was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<Adopts>,
    /// Name of the NodeClaim whose machine it replaces. While that one stands, kproxide keeps this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ClaimName>,
}

/// The clone that kproxide asks Proxmox for. The planner decides it together with the machine's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloneSpec {
    /// The hypervisor that the template is on.
    pub hypervisor: Arc<str>,
    /// VMID of the template.
    pub vmid: Vmid,
    /// true: a full clone, with a copy of each disk. false: a linked clone, which builds on the template's disks.
    #[serde(default)]
    pub full: bool,
    /// Storage for the copies. Not given: each goes where the template's disk is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageName>,
}

/// Size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimResources {
    /// Thousandths of a core.
    pub milli_cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the boot disk, if it is resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// What kproxide expects in the ownership marker of a machine that existed before this NodeClaim.
//
// This does not weaken the proof of ownership. The marker's signature still covers our cluster, the machine's first
// claim, its VMID and the nonce, and only our key can make it. The new claim only says which of our signed markers it
// expects, in its specification, which never changes. If the VM carries another marker or none (a copy, another VMID,
// another cluster's), nothing is proven and the VM is left alone. While a machine's first claim still exists, a second
// claim for it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Adopts {
    /// UID of the NodeClaim that the machine was made for.
    #[serde(rename = "claimUID")]
    pub claim_uid: Uid,
    /// Random part of its ownership marker.
    pub nonce: Arc<str>,
    /// The machine's Node was not Ready for too long: kproxide takes the machine over in order to remove it.
    #[serde(default)]
    pub condemned: bool,
}

impl ClaimSpec {
    /// It was made for a machine without a claim whose Node is not Ready, in order to remove it as any other machine.
    pub fn is_condemned(&self) -> bool {
        self.adopts.as_ref().is_some_and(|adopts| adopts.condemned)
    }

    pub fn hypervisor_id(&self) -> HypervisorId {
        HypervisorId {
            cluster: self.cluster.clone(),
            name: self.hypervisor.clone(),
        }
    }
}

/// How far the machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimStatus {
    /// How far the launch or the removal is.
    pub phase: Phase,
    /// The operation that kproxide was about to do when it wrote this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The Proxmox task that runs (its UPID).
    // Not set while the UPID is unknown: the answer to the request was lost, say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upid: Option<Arc<str>>,
    /// Random part of the ownership marker.
    // Recorded with the first intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Arc<str>>,
    /// SMBIOS UUID of the VM. kproxide recognizes the Node by it.
    #[serde(rename = "smbiosUUID", skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<Uid>,
    /// Volumes of the VM.
    // As read back after the clone and the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub disks: Vec<Arc<str>>,
    /// Name of its Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<NodeName>,
    /// UID of its Node.
    #[serde(rename = "nodeUID", skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<Uid>,
    /// Its address: the `InternalIP` of its Node when that registered, or else the one from the class's `ipPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<std::net::IpAddr>,
    /// The hypervisor that the VM is on now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<Arc<str>>,
    /// When the VM was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the present drain began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<Timestamp>,
    /// Id of the decision to remove it, as in the log and on Events. After a drain that was given up: of that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal_decision: Option<Digest>,
    /// Drains of its Node that something there kept from ending. It rests after them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_drains: Option<BlockedDrains>,
    /// What is true of the machine, and since when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))
    )]
    pub conditions: Vec<ClaimCondition>,
}

/// Drains of one Node that kproxide gave up one after the other, because the same pods or volumes kept it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockedDrains {
    /// How many in a row. The Node rests for 10 minutes after the first. Each further one doubles that, up to 24 hours.
    pub in_a_row: u32,
    /// When kproxide gave the last one up.
    pub at: Timestamp,
    /// Digests of the pods that kept it, at most 16. Once none of them stands there, the rest is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub pods: Vec<Digest>,
    /// Digest of the NodePool's annotation `kproxide.dev/retry`. With another value the rest is over.
    pub retry: Digest,
}

impl ClaimFacts {
    /// The hypervisor on which its VM was last seen.
    pub fn hypervisor(&self) -> &Arc<str> {
        let followed = self.status.hypervisor.as_ref();
        followed.unwrap_or(&self.spec.hypervisor)
    }

    /// Its machine takes the place of this older one: while it is coming, and for an hour of service. If the older one still stands
    /// then, it was kept, and its removal has to begin anew: unless it was to go by its age anyway.
    pub fn succeeds(
        &self,
        old: &Self,
        expire_after: Option<Period>,
        mut is_over: impl FnMut(Timestamp) -> bool,
    ) -> bool {
        if self.deleting_since.is_some() || self.status.phase > Phase::Initialized {
            return false;
        }
        let had_expired = |after: Period| self.created >= later(old.created, after.0);
        let since = self.status.since(Condition::Initialized);
        expire_after.is_some_and(had_expired)
            || since.is_none_or(|since| !is_over(later(since, SUCCEEDS_FOR)))
    }

    /// The Node is the recorded one, or no older than the claim. A machine joins after its claim was made, so an older
    /// Node shows a UUID that is not its own: a kubelet writes there what it likes. Only what was adopted has joined before.
    pub fn may_become(&self, node: &NodeFacts) -> bool {
        self.status.node_uid.as_ref() == Some(&node.uid)
            || self.spec.adopts.is_some()
            || node.created >= self.created
    }
}

impl ClaimStatus {
    /// Since when the condition is true. `None`: it is not.
    pub fn since(&self, condition: Condition) -> Option<Timestamp> {
        self.conditions
            .iter()
            .find(|c| c.kind == condition && c.status)
            .map(|c| c.since)
    }
}

/// One condition of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(transform = with_generation)
)]
pub struct ClaimCondition {
    /// Type of the condition, such as `Initialized`.
    // The schema lists no types, as it lists no reasons of removals (see there).
    #[serde(rename = "type")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", length(min = 1, max = 63))
    )]
    pub kind: Condition,
    /// True, False or Unknown.
    #[serde(with = "truth")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["True", "False", "Unknown"]))
    )]
    pub status: bool,
    /// When the status last changed.
    #[serde(rename = "lastTransitionTime")]
    pub since: Timestamp,
    /// One word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 63)))]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub message: String,
}

/// The host adds it when it writes a condition: nothing is decided by it.
#[cfg(feature = "schema")]
fn with_generation(schema: &mut schemars::Schema) {
    let field = schemars::json_schema!({
        "description": "The object's generation that this was found for.",
        "type": "integer",
        "format": "int64",
    });
    let fields = schema.ensure_object().get_mut("properties");
    if let Some(fields) = fields.and_then(|it| it.as_object_mut()) {
        fields.insert("observedGeneration".to_owned(), field.to_value());
    }
}

/// The status of a condition in Kubernetes' words.
mod truth {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(holds: &bool, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(if *holds { "True" } else { "False" })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        #[derive(Deserialize)]
        enum Word {
            True,
            False,
            Unknown,
        }
        Ok(match Word::deserialize(from)? {
            Word::True => true,
            Word::False | Word::Unknown => false,
        })
    }
}
