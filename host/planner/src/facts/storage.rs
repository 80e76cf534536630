//! Storage as Kubernetes knows it: PersistentVolumeClaims, PersistentVolumes, StorageClasses, and what CSI drivers say of
//! Nodes; and what follows from these for a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kubernetes::{LabelSelector, Labels, NodeSelectorTerm};
use crate::ids::{NodeName, ObjectKey, PodKey, Uid};

/// The provisioner of StorageClasses whose volumes people make by hand.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
pub const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

/// A PersistentVolumeClaim that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodClaim {
    pub name: Arc<str>,
    /// Kubernetes makes it for this pod (a generic ephemeral volume). A claim of this name that another object owns is not it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ephemeral: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeClaimFacts {
    /// `status.phase: Lost`: its PersistentVolume is gone.
    pub is_lost: bool,
    pub deleting: bool,
    /// Its UID, until it is bound.
    pub uid: Option<Uid>,
    /// `spec.volumeName`.
    pub volume: Option<Arc<str>>,
    /// Claim and volume know each other (`pv.kubernetes.io/bind-completed`).
    pub is_bound: bool,
    /// Empty or `None`: no class.
    pub class: Option<Arc<str>>,
    /// `volume.kubernetes.io/selected-node`: the scheduler has asked for a volume there.
    pub selected_node: Option<NodeName>,
    pub wants: VolumeTraits,
    /// Of the volumes that it may be bound to.
    pub selector: Option<LabelSelector>,
    /// The object that controls it.
    pub owner: Option<Uid>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// The kind of source, such as `csi`, `nfs` or `local`.
    pub source: Arc<str>,
    /// The CSI driver.
    pub driver: Option<Arc<str>>,
    /// Driver and handle of a volume that no provisioner has made: another PersistentVolume may be the same one.
    pub handle: Option<Arc<str>>,
    pub class: Arc<str>,
    pub offers: VolumeTraits,
    pub labels: Labels,
    /// `spec.nodeAffinity`: terms are alternatives.
    pub nodes: Option<Arc<[NodeSelectorTerm]>>,
    /// `spec.claimRef`.
    pub claim: Option<ObjectKey>,
    /// `spec.claimRef.uid`, unless the volume is bound. A claim of that name with another UID is a later one.
    pub claim_uid: Option<Uid>,
    /// `status.phase: Available`.
    pub is_available: bool,
    pub deleting: bool,
}

/// What a claim asks of a volume, or a volume offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeTraits {
    pub bytes: u64,
    pub access_modes: BTreeSet<Arc<str>>,
    /// `volumeMode: Block`.
    pub is_block: bool,
    /// `volumeAttributesClassName`.
    pub attributes: Option<Arc<str>>,
}

impl VolumeTraits {
    /// A volume that offers this is large enough and of the right kind. Whether its access modes will do is asked only
    /// where the volume does not name the claim.
    pub fn serve(&self, wants: &Self) -> bool {
        self.bytes >= wants.bytes
            && self.is_block == wants.is_block
            && self.attributes == wants.attributes
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageClassFacts {
    pub provisioner: Arc<str>,
    /// `volumeBindingMode: WaitForFirstConsumer`.
    pub waits_for_pod: bool,
    /// Alternatives; `None`: everywhere.
    pub topologies: Option<Arc<[NodeSelectorTerm]>>,
}

impl StorageClassFacts {
    /// Something makes its volumes, not a person.
    pub fn is_provisioned(&self) -> bool {
        *self.provisioner != *NO_PROVISIONER
    }
}

/// What the CSI drivers on a Node say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNodeFacts {
    pub drivers: BTreeMap<Arc<str>, CsiNodeDriver>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNodeDriver {
    /// How many of its volumes the Node can hold; `None`: it names no limit.
    pub limit: Option<u32>,
    /// Labels of the Node by which its volumes say where they can be reached.
    pub topology_keys: Vec<Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiDriverFacts {
    /// `spec.storageCapacity`: it publishes CSIStorageCapacity objects, and the scheduler goes by them.
    pub storage_capacity: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageCapacityFacts {
    pub class: Arc<str>,
    /// The Nodes that this is about; `None`: none.
    pub nodes: Option<LabelSelector>,
    /// The largest volume that can be made there.
    pub largest_bytes: u64,
}

/// What one volume of a pod asks of the pod's Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeNeed {
    pub volume: VolumeName,
    /// The CSI driver that attaches it. Nodes hold a limited number of its volumes.
    pub driver: Option<Arc<str>>,
    /// What is attached, if that is not the PersistentVolume's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<Arc<str>>,
    /// `None`: every Node reaches it.
    pub reach: Option<Reach>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeName {
    /// A PersistentVolume.
    Of(Arc<str>),
    /// One of this StorageClass, to be made or chosen when the pod has its Node.
    New(Arc<str>),
}

/// Which Nodes reach a volume. Terms are alternatives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// By the volume's node affinity, or by that of the volumes that could be chosen.
    Affinity(Arc<[NodeSelectorTerm]>),
    /// By the volume's zone and region labels.
    Zone(Arc<[NodeSelectorTerm]>),
    /// By the class's `allowedTopologies`.
    Class(Arc<[NodeSelectorTerm]>),
    /// The scheduler has chosen this Node, and the volume is being made there.
    Chosen(NodeName),
    /// By the room for a new volume. `known`: the Nodes of which the driver has said how much there is.
    Room {
        bytes: u64,
        enough: Vec<LabelSelector>,
        known: Vec<LabelSelector>,
    },
    /// By one of these PersistentVolumes, the smallest first. Each is for one claim of the pod.
    Free {
        volumes: Arc<[FreeVolume]>,
        /// Without one of them: what a new volume asks. `None`: nobody makes one.
        made: Option<Arc<[Reach]>>,
    },
}

/// A PersistentVolume that a claim could be bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FreeVolume {
    pub name: Arc<str>,
    /// `None`: every Node reaches it.
    pub nodes: Option<Arc<[NodeSelectorTerm]>>,
}

/// No Node helps a pod until this has changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeWait {
    pub claim: Arc<str>,
    pub why: VolumeProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeProblem {
    ClaimMissing,
    ClaimDeleting,
    ClaimLost,
    /// A generic ephemeral volume's claim, which something else owns.
    OfAnother,
    /// It has no StorageClass, or a volume that it is not bound to yet.
    NotBound,
    /// Its StorageClass binds at once, and the provisioner has not made its volume yet.
    NotProvisioned {
        class: Arc<str>,
        provisioner: Arc<str>,
    },
    ClassMissing(Arc<str>),
    VolumeMissing(Arc<str>),
    /// The claim names it before it is there.
    VolumeAwaited(Arc<str>),
    /// Nobody makes volumes of this class, and none that is there will do.
    NoVolume(Arc<str>),
    /// It is ReadWriteOncePod, and this pod has it.
    InUse(PodKey),
    /// A kind of volume that kproxide does not understand.
    Unknown(Arc<str>),
}

impl VolumeNeed {
    /// What is attached, by its name for this. PersistentVolumes of one handle are one. `None`: it is a new one.
    pub fn attached(&self) -> Option<&Arc<str>> {
        match &self.volume {
            VolumeName::Of(volume) => Some(self.handle.as_ref().unwrap_or(volume)),
            VolumeName::New(_) => None,
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(name) => write!(f, "PersistentVolume {name}"),
            Self::New(class) => write!(f, "a new volume of StorageClass {class}"),
        }
    }
}

impl fmt::Display for VolumeWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PersistentVolumeClaim {} ", self.claim)?;
        match &self.why {
            VolumeProblem::ClaimMissing => f.write_str("does not exist"),
            VolumeProblem::ClaimDeleting => f.write_str("is being deleted"),
            VolumeProblem::ClaimLost => f.write_str("has lost its PersistentVolume"),
            VolumeProblem::OfAnother => f.write_str("was not made for this pod"),
            VolumeProblem::NotBound => f.write_str(
                "is not bound to a PersistentVolume yet. A new Node does not change that",
            ),
            VolumeProblem::NotProvisioned { class, provisioner } => write!(
                f,
                "is not bound yet: it waits for its provisioner {provisioner} (StorageClass {class} binds at once, not when a pod has a Node). A new Node does not change that"
            ),
            VolumeProblem::ClassMissing(class) => {
                write!(f, "names StorageClass {class}, which does not exist")
            }
            VolumeProblem::VolumeMissing(volume) => {
                write!(
                    f,
                    "is bound to PersistentVolume {volume}, which does not exist"
                )
            }
            VolumeProblem::VolumeAwaited(volume) => write!(
                f,
                "names PersistentVolume {volume}, which does not exist. A new Node does not change that"
            ),
            VolumeProblem::NoVolume(class) => write!(
                f,
                "needs a PersistentVolume of StorageClass {class} that you make, and none that is available fits"
            ),
            VolumeProblem::InUse(pod) => {
                write!(f, "is ReadWriteOncePod, and pod {pod} uses it")
            }
            VolumeProblem::Unknown(kind) => {
                write!(
                    f,
                    "is bound to a volume of kind {kind}, which kproxide does not support"
                )
            }
        }
    }
}
