//! Narrow views of Kubernetes' objects: only the fields that decide something are ever kept.
//!
//! A full Pod of k8s-openapi costs several KiB, and 30,000 of them a few hundred MB; a view is dropped as soon as it is converted.
//! Nothing in a view fails to decode because of a value: what must be judged is kept as text and judged in [`super::convert`], so that one odd object
//! never stops a watch.

mod custom;
mod node;
mod pod;
mod policy;
mod storage;

pub use custom::CustomView;
pub use custom::fields;
pub(crate) use custom::is_too_deep;
pub use node::{NodeView, TaintView};
pub use pod::{
    AffinityView, ContainerView, PodAffinityView, PodSpecView, PodStatusView, PodTermView, PodView,
    PodVolumeView, PreferredView, RequirementView, ResourcesView, SpreadView, TermView,
    TolerationView,
};
pub use policy::{
    DaemonSetView, DisruptionBudgetView, NamespaceView, SelectorView, VolumeAttachmentView,
};
pub use storage::{
    CsiDriverView, CsiNodeView, LabelValuesView, StorageCapacityView, StorageClassView,
    VolumeClaimView, VolumeView,
};

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kproxide_planner::keys;
use serde::{Deserialize, Deserializer};

/// The metadata that matters, in the type that kube's watcher works with. Managed fields, often the largest part of an object, are skipped.
pub(super) fn narrow_meta<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    narrow::<D, OurAnnotations>(deserializer)
}

/// With every annotation: a label policy may give a Node any, and whether it has them must be seen.
pub(super) fn node_meta<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    narrow::<D, BTreeMap<String, String>>(deserializer)
}

fn narrow<'de, D, A>(deserializer: D) -> Result<ObjectMeta, D::Error>
where
    D: Deserializer<'de>,
    A: Deserialize<'de> + Into<BTreeMap<String, String>>,
{
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Narrow<A> {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Timestamp>,
        deletion_timestamp: Option<Timestamp>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<A>,
        owner_references: Option<Vec<OwnerReference>>,
        finalizers: Option<Vec<String>>,
    }
    let Narrow {
        name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
        owner_references,
        finalizers,
    } = Narrow::<A>::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp: creation_timestamp.map(Time),
        deletion_timestamp: deletion_timestamp.map(Time),
        labels,
        annotations: annotations.map(Into::into),
        owner_references,
        finalizers,
        ..ObjectMeta::default()
    })
}

/// Annotations that mean something to us; the others (a whole applied manifest, say) are not kept.
struct OurAnnotations(BTreeMap<String, String>);

const KEPT_ANNOTATIONS: [&str; 8] = [
    "kproxide.dev/",
    "cluster-autoscaler.kubernetes.io/",
    keys::KARPENTER_DO_NOT_DISRUPT,
    keys::MIRROR,
    keys::BIND_COMPLETED,
    keys::SELECTED_NODE,
    keys::BETA_STORAGE_CLASS,
    keys::PROVISIONED_BY,
];

impl From<OurAnnotations> for BTreeMap<String, String> {
    fn from(OurAnnotations(kept): OurAnnotations) -> Self {
        kept
    }
}

impl<'de> Deserialize<'de> for OurAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = BTreeMap::<String, String>::deserialize(deserializer)?;
        all.retain(|key, _| {
            KEPT_ANNOTATIONS
                .iter()
                .any(|prefix| key.starts_with(prefix))
        });
        Ok(Self(all))
    }
}

/// A null means the same as a missing field.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A moment that cannot be read is one that nobody has told. A kubelet may write one that the API server gives back with a year of five digits.
pub(super) fn moment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Makes a view usable with kube's `Api` and watcher.
macro_rules! view_of {
    ($view:ty, $scope:ty, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use view_of;
