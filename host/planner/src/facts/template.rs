//! From which VM template the machines of a class are cloned, in all Proxmox clusters or in one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{StorageName, Vmid};

/// The VM template to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.name) != has(self.tags)", "message": "set exactly one of template.name and template.tags" },
    { "rule": "!(self.clone == 'linked' && has(self.storage))",
      "message": "template.storage cannot be used with clone: linked, which stays on the template's storage. Use clone: full, or leave storage out" }
])))]
pub struct Template {
    /// Name of the template in Proxmox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Option<Arc<str>>,
    /// Tags of the template in Proxmox, in place of its name. It has all of them. Only one template that the token can see
    /// may have them: one in the cluster (`shared`), or one on each hypervisor (`local`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            with = "Vec<String>",
            length(min = 1, max = 16),
            inner(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9_+.-]*$"), length(max = 64))
        )
    )]
    pub tags: BTreeSet<Arc<str>>,
    /// `shared`: there is one template, on storage that all hypervisors share. `local`: each hypervisor has a template of
    /// its own that matches, and a machine is made where its template is.
    #[serde(default)]
    pub placement: TemplatePlacement,
    /// `linked`: the clone builds on the template's disks. `full`: the clone has a copy of them. `auto`: linked where
    /// storage and template allow it.
    #[serde(default)]
    pub clone: CloneMode,
    /// Storage for the disks of full clones, such as `ceph`. Not given: each disk goes where the template's is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub storage: Option<StorageName>,
}

impl Template {
    /// A clone stays where its template is.
    pub fn is_local(&self) -> bool {
        self.placement == TemplatePlacement::Local
    }

    /// In Proxmox clusters of which nothing else is said.
    pub(super) fn choice(&self) -> TemplateChoice {
        TemplateChoice::of(self.name.as_ref(), &self.tags, None)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TemplatePlacement {
    #[default]
    Shared,
    Local,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CloneMode {
    #[default]
    Auto,
    Linked,
    Full,
}

/// What is otherwise in one Proxmox cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassInCluster {
    /// The VM template to clone there. Placement, clone mode and storage are those of `spec.template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateInCluster>,
}

/// The VM template of one Proxmox cluster: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.name) ? 1 : 0) + (has(self.tags) ? 1 : 0) + (has(self.vmid) ? 1 : 0) == 1",
    "message": "set exactly one of name, tags and vmid"
}])))]
pub struct TemplateInCluster {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Option<Arc<str>>,
    /// Its tags, all of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            with = "Vec<String>",
            length(min = 1, max = 16),
            inner(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9_+.-]*$"), length(max = 64))
        )
    )]
    pub tags: BTreeSet<Arc<str>>,
    /// Its VMID. With `placement: local` machines are made on its hypervisor alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 100, max = 999999999)))]
    pub vmid: Option<Vmid>,
}

impl TemplateInCluster {
    pub(super) fn choice(&self) -> TemplateChoice {
        TemplateChoice::of(self.name.as_ref(), &self.tags, self.vmid)
    }
}

/// What tells a template from other VMs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum TemplateChoice {
    Name(Arc<str>),
    /// All of them.
    Tags(BTreeSet<Arc<str>>),
    Vmid(Vmid),
}

const WITH_TAGS: &str = "with the tags ";
const WITH_VMID: &str = "with VMID ";

impl TemplateChoice {
    fn of(name: Option<&Arc<str>>, tags: &BTreeSet<Arc<str>>, vmid: Option<Vmid>) -> Self {
        match (vmid, name) {
            (Some(vmid), _) => Self::Vmid(vmid),
            (None, None) if !tags.is_empty() => Self::Tags(tags.clone()),
            (None, name) => Self::Name(name.cloned().unwrap_or_default()),
        }
    }

    /// If it is told by its name.
    pub fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Name(name) => Some(name),
            Self::Tags(_) | Self::Vmid(_) => None,
        }
    }

    /// The field of a NodeClass that says it.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Name(_) => "template.name",
            Self::Tags(_) => "template.tags",
            Self::Vmid(_) => "template.vmid",
        }
    }
}

/// As it follows on the word "template". No name has a blank.
impl fmt::Display for TemplateChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Tags(tags) => {
                let tags: Vec<&str> = tags.iter().map(|tag| &**tag).collect();
                write!(f, "{WITH_TAGS}{}", tags.join(", "))
            }
            Self::Vmid(vmid) => write!(f, "{WITH_VMID}{vmid}"),
        }
    }
}

impl From<TemplateChoice> for String {
    fn from(choice: TemplateChoice) -> Self {
        choice.to_string()
    }
}

impl From<String> for TemplateChoice {
    fn from(text: String) -> Self {
        if let Some(tags) = text.strip_prefix(WITH_TAGS) {
            return Self::Tags(tags.split(", ").map(Arc::from).collect());
        }
        let vmid = text.strip_prefix(WITH_VMID);
        match vmid.and_then(|vmid| vmid.parse().ok()) {
            Some(vmid) => Self::Vmid(Vmid(vmid)),
            None => Self::Name(text.into()),
        }
    }
}

impl From<&str> for TemplateChoice {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_what_its_text_says() {
        let tags = ["k8s", "prod"].map(Arc::from);
        for choice in [
            TemplateChoice::Name("debian-13".into()),
            TemplateChoice::Tags(tags.into()),
            TemplateChoice::Vmid(Vmid(9000)),
        ] {
            assert_eq!(TemplateChoice::from(choice.to_string()), choice);
        }
    }
}
