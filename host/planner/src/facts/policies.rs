//! Which policies decide for a pool: what follows from `spec.policies` and `spec.labelTemplates` of a NodePool, with their settings as text.

use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::ids::Digest;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPolicies {
    pub host_selection: PolicyUse,
    pub scale_down: PolicyUse,
    pub labels: PolicyUse,
}

impl PoolPolicies {
    /// With their fields in `spec.policies` of the NodePool.
    pub fn by_field(&self) -> [(&'static str, &PolicyUse); 3] {
        let Self {
            host_selection,
            scale_down,
            labels,
        } = self;
        [
            ("hostSelection", host_selection),
            ("scaleDown", scale_down),
            ("labels", labels),
        ]
    }

    /// Those that decide together one by one.
    pub fn each(&self) -> Vec<(String, PolicyUse)> {
        let fields = self.by_field().into_iter();
        let each = fields.flat_map(|(field, used)| {
            let members = used.members.iter().map(Some).chain([None]);
            members.zip(used.each()).map(move |(member, used)| {
                let field = match member {
                    None => field.to_owned(),
                    Some(member) => {
                        let list = if member.weight == 0 {
                            "filters"
                        } else {
                            "scores"
                        };
                        format!("{field}.{list}[{}]", member.policy.name)
                    }
                };
                (field, used)
            })
        });
        each.collect()
    }
}

/// What decides: a policy by name, with the operator's settings as JSON text (`labelTemplates` already merged in), or several policies together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct PolicyUse {
    /// Of several: the names of all, with `+` between them.
    pub policy: PolicyRef,
    pub settings: Arc<str>,
    /// Those that decide together, in the order in which they are asked. Empty: the policy decides alone.
    #[serde(default)]
    pub members: Vec<PolicyMember>,
}

/// One of several policies that decide together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyMember {
    pub policy: PolicyRef,
    pub settings: Arc<str>,
    /// How much its score counts. 0: it only refuses.
    pub weight: u32,
    /// In a question: what it returned last, at most 4096 bytes.
    #[serde(default)]
    pub state: Vec<u8>,
}

impl PolicyUse {
    pub fn alone(policy: PolicyRef, settings: Arc<str>) -> Self {
        Self {
            policy,
            settings,
            members: Vec::new(),
        }
    }

    pub fn together(kind: PolicyKind, members: Vec<PolicyMember>) -> Self {
        let names: Vec<&str> = members.iter().map(|it| &*it.policy.name).collect();
        let name = names.join("+").into();
        Self {
            members,
            ..Self::alone(PolicyRef { kind, name }, "".into())
        }
    }

    /// Each policy that is asked: in the ordinary case itself alone.
    pub fn each(&self) -> Vec<Self> {
        let alone = |it: &PolicyMember| Self::alone(it.policy.clone(), it.settings.clone());
        match &self.members[..] {
            [] => vec![self.clone()],
            members => members.iter().map(alone).collect(),
        }
    }
}

/// People do not see the empty list of one that decides alone. A format without names of fields needs it.
impl Serialize for PolicyUse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            policy,
            settings,
            members,
        } = self;
        let is_shown = !members.is_empty() || !serializer.is_human_readable();
        let mut fields = serializer.serialize_struct("PolicyUse", 2 + usize::from(is_shown))?;
        fields.serialize_field("policy", policy)?;
        fields.serialize_field("settings", settings)?;
        if is_shown {
            fields.serialize_field("members", members)?;
        }
        fields.end()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PolicyRef {
    pub kind: PolicyKind,
    pub name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PolicyKind {
    HostSelection,
    ScaleDown,
    Labels,
}

impl PolicyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostSelection => "host-selection",
            Self::ScaleDown => "scale-down",
            Self::Labels => "labels",
        }
    }
}

impl From<PolicyRef> for String {
    fn from(policy: PolicyRef) -> Self {
        format!("{}/{}", policy.kind.as_str(), policy.name)
    }
}

impl TryFrom<String> for PolicyRef {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not kind/name"))?;
        let kind = match kind {
            "host-selection" => PolicyKind::HostSelection,
            "scale-down" => PolicyKind::ScaleDown,
            "labels" => PolicyKind::Labels,
            other => return Err(format!("{other:?} is not a kind of policy")),
        };
        Ok(Self {
            kind,
            name: name.into(),
        })
    }
}

/// Which version of a policy answers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFacts {
    pub digest: Digest,
}
