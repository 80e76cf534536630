//! What is so with an object, as people and programs read it. Conditions, Events, metrics, `status`, `explain` and `doctor` show it.

use std::fmt;

use jiff::Timestamp;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::reasons::{self, Reason, Stops};
use kproxide_kube::crd::ConditionStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// All is well, or as somebody wishes.
    Ok,
    /// kproxide works, but not as somebody wishes.
    Warning,
    /// kproxide cannot make or remove machines there.
    Error,
}

/// Findings stand together by what a person has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Group {
    Kubernetes,
    Proxmox,
    Configuration,
    Joining,
    Nodes,
}

/// One thing that is so with one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub group: Group,
    /// Kind and name, such as `NodePool/default`.
    pub object: String,
    pub level: Level,
    pub reason: &'static Reason,
    /// What does not go on because of it: mostly what the reason says.
    pub stops: Stops,
    /// It is said only after it was so for this many seconds: mostly what the reason says.
    pub after: u32,
    /// What is so, about this very object. Without counters where it stands in a condition: each other text is another write.
    pub message: String,
    /// Lines that can be pasted.
    pub commands: Vec<String>,
    /// Since when it is so. `None`: nobody has counted.
    pub since: Option<Timestamp>,
    /// From where something in the network was seen.
    pub seen_from: Option<String>,
}

impl Finding {
    /// At this level. Where a level says nothing: [`Self::ok`], [`Self::warning`], [`Self::error`].
    pub fn new(
        level: Level,
        group: Group,
        object: impl Into<String>,
        reason: &'static Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            group,
            object: object.into(),
            level,
            reason,
            stops: reason.stops,
            after: reason.after,
            message: message.into(),
            commands: Vec::new(),
            since: None,
            seen_from: None,
        }
    }

    /// All is well.
    pub fn ok(group: Group, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Level::Ok, group, object, &reasons::READY, message)
    }

    pub fn error(
        group: Group,
        object: impl Into<String>,
        reason: &'static Reason,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Level::Error, group, object, reason, message)
    }

    pub fn warning(
        group: Group,
        object: impl Into<String>,
        reason: &'static Reason,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Level::Warning, group, object, reason, message)
    }

    /// With what a person can type.
    #[must_use]
    pub fn typing(self, commands: impl IntoIterator<Item = String>) -> Self {
        Self {
            commands: commands.into_iter().collect(),
            ..self
        }
    }

    #[must_use]
    pub fn seen_from(self, place: &str) -> Self {
        Self {
            seen_from: Some(place.to_owned()),
            ..self
        }
    }

    #[must_use]
    pub(crate) fn since(self, since: Timestamp) -> Self {
        Self {
            since: Some(since),
            ..self
        }
    }

    /// Something is wrong that is not said of another object.
    pub fn is_trouble(&self) -> bool {
        self.level != Level::Ok && self.stops != Stops::Follows
    }

    /// It was so for as long as its reason asks.
    pub fn is_ripe(&self, now: Timestamp) -> bool {
        let after = i64::from(self.after);
        self.since
            .is_none_or(|since| now.duration_since(since).as_secs() >= after)
    }

    /// It follows from these, and is said once one of them is.
    #[must_use]
    pub(super) fn following<'f>(self, causes: impl IntoIterator<Item = &'f Self>) -> Self {
        let after = causes.into_iter().map(|cause| cause.after).min();
        Self {
            after: after.unwrap_or(self.after),
            ..self
        }
    }

    /// It is so because all of these are, and is said once each of them is.
    #[must_use]
    pub(super) fn following_all<'f>(self, causes: impl IntoIterator<Item = &'f Self>) -> Self {
        let causes = causes.into_iter().filter(|it| it.level != Level::Ok);
        let after = causes.map(|cause| cause.after).max();
        Self {
            after: after.unwrap_or(self.after),
            ..self
        }
    }

    /// What to do where the message has no command.
    pub fn remedy(&self) -> &'static str {
        match self.level {
            Level::Ok => "",
            Level::Warning | Level::Error => self.reason.remedy,
        }
    }

    /// The condition that it stands in.
    pub fn condition(&self) -> Option<(&'static str, ConditionStatus)> {
        Some((self.reason.of.condition?, self.reason.status))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubernetes => "Kubernetes",
            Self::Proxmox => "Proxmox",
            Self::Configuration => "Configuration",
            Self::Joining => "Joining",
            Self::Nodes => "Nodes",
        })
    }
}

/// Fields may be added, and none changes its meaning.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Finding", 11)?;
        out.serialize_field("group", &self.group)?;
        out.serialize_field("object", &self.object)?;
        out.serialize_field("level", &self.level)?;
        out.serialize_field("reason", self.reason.word)?;
        out.serialize_field("stops", &self.stops)?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("remedy", self.remedy())?;
        out.serialize_field("commands", &self.commands)?;
        match self.after {
            0 => out.skip_field("saidAfterSeconds")?,
            after => out.serialize_field("saidAfterSeconds", &after)?,
        }
        match &self.since {
            Some(since) => out.serialize_field("since", &format!("{since:.0}"))?,
            None => out.skip_field("since")?,
        }
        match &self.seen_from {
            Some(place) => out.serialize_field("seenFrom", place)?,
            None => out.skip_field("seenFrom")?,
        }
        out.end()
    }
}

/// As another kproxide wrote it.
impl<'de> Deserialize<'de> for Finding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Written {
            group: Group,
            object: String,
            level: Level,
            reason: String,
            stops: Stops,
            message: String,
            #[serde(default)]
            commands: Vec<String>,
            #[serde(default)]
            said_after_seconds: u32,
            since: Option<Timestamp>,
            seen_from: Option<String>,
        }
        let written = Written::deserialize(deserializer)?;
        // A newer controller may know more. Its words are shown all the same.
        let (reason, message) = match reasons::of(&written.reason) {
            Some(reason) => (reason, written.message),
            None => {
                let message = format!("{}: {}", written.reason, written.message);
                (&reasons::OTHER, message)
            }
        };
        Ok(Self {
            stops: written.stops,
            commands: written.commands,
            after: written.said_after_seconds,
            since: written.since,
            seen_from: written.seen_from,
            ..Self::new(
                written.level,
                written.group,
                written.object,
                reason,
                message,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_newer_controller_is_shown_with_its_words() {
        let finding = Finding::error(Group::Proxmox, "VM/home/201", &reasons::ORPHAN, "words");
        let written = serde_json::to_string(&finding).unwrap();
        let read: Finding = serde_json::from_str(&written).unwrap();
        assert_eq!((read.reason.word, &*read.message), ("Orphan", "words"));
        let newer = written.replace("\"Orphan\"", "\"Haunted\"");
        let read: Finding = serde_json::from_str(&newer).unwrap();
        assert_eq!(
            (read.reason.word, &*read.message, read.level, read.stops),
            ("Other", "Haunted: words", finding.level, finding.stops)
        );
    }
}
