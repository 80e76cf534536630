//! Pieces that several kinds share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Kubernetes quantity of an object that is not ours, unread: a pod with one that is none is still a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Amount(pub String);

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(serde_json::Number),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        }))
    }
}

/// One condition of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Type of the condition, such as `Ready`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// The object's generation that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// One word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}
