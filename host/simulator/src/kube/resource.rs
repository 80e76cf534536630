//! Which resources the API serves: the built-in table, and what CustomResourceDefinitions add.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use super::object::items;

/// A resource across its versions, e.g. `deployments` of the group `apps`; the core group is the empty string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId {
    /// The API group.
    pub group: Arc<str>,
    /// The plural name in lower case.
    pub plural: Arc<str>,
}

impl ResourceId {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }

    /// Reads `pods` or `deployments.apps`, the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Self {
        let (plural, group) = text.split_once('.').unwrap_or((text, ""));
        Self::new(group, plural)
    }

    /// Whether `text` names it: `nodes`, or `leases.coordination.k8s.io` outside of the core group.
    pub fn is(&self, text: &str) -> bool {
        let (plural, group) = text.split_once('.').unwrap_or((text, ""));
        *self.plural == *plural && *self.group == *group
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// What the server knows about one resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) id: ResourceId,
    pub(crate) kind: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub(crate) counts_generations: bool,
    /// Whether a replace needs `metadata.resourceVersion`.
    pub(crate) needs_version: bool,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<Version>,
    /// The version in which objects are stored.
    pub(crate) storage_version: String,
    /// Whether a CustomResourceDefinition brought it.
    pub(crate) custom: bool,
}

/// One served version of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// The structural schema of a custom resource; null for built-in ones, which are taken as they come.
    pub(crate) schema: Value,
}

/// Where a resource keeps the three values of its scale subresource, as dotted JSON paths without the leading dot.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

impl Resource {
    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// `apiVersion` of objects served in a version.
    pub(crate) fn api_version(&self, version: &str) -> String {
        match &*self.id.group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// The resource that an Established CustomResourceDefinition describes.
    pub(crate) fn from_definition(definition: &Value) -> Self {
        let spec = &definition["spec"];
        let names = &spec["names"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&names["kind"]);
        let versions = items(spec, "versions");
        let storage = versions.iter().find(|version| version["storage"] == true);
        Self {
            id: ResourceId::new(&text(&spec["group"]), &text(&names["plural"])),
            singular: names["singular"]
                .as_str()
                .map_or_else(|| kind.to_lowercase(), str::to_owned),
            kind,
            short_names: items(names, "shortNames").iter().map(text).collect(),
            namespaced: spec["scope"] == "Namespaced",
            counts_generations: true,
            needs_version: true,
            versions: versions
                .iter()
                .filter(|version| version["served"] == true)
                .map(|version| Version {
                    name: text(&version["name"]),
                    status: version["subresources"]["status"].is_object(),
                    scale: Scale::from_definition(&version["subresources"]["scale"]),
                    schema: version["schema"]["openAPIV3Schema"].clone(),
                })
                .collect(),
            storage_version: storage
                .map(|version| text(&version["name"]))
                .unwrap_or_default(),
            custom: true,
        }
    }
}

impl Scale {
    fn from_definition(scale: &Value) -> Option<Self> {
        let path = |field: &str| Some(scale[field].as_str()?.trim_start_matches('.').to_owned());
        Some(Self {
            spec_replicas: path("specReplicasPath")?,
            status_replicas: path("statusReplicasPath")?,
            selector: path("labelSelectorPath"),
        })
    }

    fn of_workload() -> Self {
        Self {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            selector: None,
        }
    }
}

/// The resources of Kubernetes itself that are served from the start.
pub(crate) fn built_in() -> BTreeMap<ResourceId, Arc<Resource>> {
    const CLUSTER: bool = false;
    const NAMESPACED: bool = true;
    // (group, version, plural, kind, namespaced, short names, traits): s = status subresource, r = scale subresource,
    // g = counts generations, v = a replace needs the resourceVersion. From each type's strategy in Kubernetes 1.36.
    type Row = (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        bool,
        &'static [&'static str],
        &'static str,
    );
    const TABLE: &[Row] = &[
        ("", "v1", "configmaps", "ConfigMap", NAMESPACED, &["cm"], ""),
        ("", "v1", "events", "Event", NAMESPACED, &["ev"], ""),
        (
            "",
            "v1",
            "limitranges",
            "LimitRange",
            NAMESPACED,
            &["limits"],
            "",
        ),
        ("", "v1", "namespaces", "Namespace", CLUSTER, &["ns"], "s"),
        ("", "v1", "nodes", "Node", CLUSTER, &["no"], "s"),
        (
            "",
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            NAMESPACED,
            &["pvc"],
            "s",
        ),
        (
            "",
            "v1",
            "persistentvolumes",
            "PersistentVolume",
            CLUSTER,
            &["pv"],
            "s",
        ),
        ("", "v1", "pods", "Pod", NAMESPACED, &["po"], "sg"),
        ("", "v1", "secrets", "Secret", NAMESPACED, &[], ""),
        (
            "",
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            NAMESPACED,
            &["sa"],
            "",
        ),
        ("", "v1", "services", "Service", NAMESPACED, &["svc"], "s"),
        (
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            CLUSTER,
            &["crd", "crds"],
            "sgv",
        ),
        (
            "apps",
            "v1",
            "daemonsets",
            "DaemonSet",
            NAMESPACED,
            &["ds"],
            "sg",
        ),
        (
            "apps",
            "v1",
            "deployments",
            "Deployment",
            NAMESPACED,
            &["deploy"],
            "srg",
        ),
        (
            "apps",
            "v1",
            "replicasets",
            "ReplicaSet",
            NAMESPACED,
            &["rs"],
            "srg",
        ),
        (
            "apps",
            "v1",
            "statefulsets",
            "StatefulSet",
            NAMESPACED,
            &["sts"],
            "srg",
        ),
        ("batch", "v1", "jobs", "Job", NAMESPACED, &[], "sg"),
        (
            "coordination.k8s.io",
            "v1",
            "leases",
            "Lease",
            NAMESPACED,
            &[],
            "v",
        ),
        (
            "events.k8s.io",
            "v1",
            "events",
            "Event",
            NAMESPACED,
            &["ev"],
            "",
        ),
        (
            "policy",
            "v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            NAMESPACED,
            &["pdb"],
            "sgv",
        ),
        (
            "storage.k8s.io",
            "v1",
            "csidrivers",
            "CSIDriver",
            CLUSTER,
            &[],
            "",
        ),
        (
            "storage.k8s.io",
            "v1",
            "csistoragecapacities",
            "CSIStorageCapacity",
            NAMESPACED,
            &[],
            "",
        ),
        (
            "storage.k8s.io",
            "v1",
            "csinodes",
            "CSINode",
            CLUSTER,
            &[],
            "",
        ),
        (
            "storage.k8s.io",
            "v1",
            "storageclasses",
            "StorageClass",
            CLUSTER,
            &["sc"],
            "",
        ),
        (
            "storage.k8s.io",
            "v1",
            "volumeattachments",
            "VolumeAttachment",
            CLUSTER,
            &[],
            "s",
        ),
    ];
    TABLE
        .iter()
        .map(
            |&(group, version, plural, kind, namespaced, short_names, traits)| {
                let id = ResourceId::new(group, plural);
                let resource = Resource {
                    id: id.clone(),
                    kind: kind.to_owned(),
                    singular: kind.to_lowercase(),
                    short_names: short_names.iter().map(|&name| name.to_owned()).collect(),
                    namespaced,
                    counts_generations: traits.contains('g'),
                    needs_version: traits.contains('v'),
                    versions: vec![Version {
                        name: version.to_owned(),
                        status: traits.contains('s'),
                        scale: traits.contains('r').then(Scale::of_workload),
                        schema: Value::Null,
                    }],
                    storage_version: version.to_owned(),
                    custom: false,
                };
                (id, Arc::new(resource))
            },
        )
        .collect()
}
