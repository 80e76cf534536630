//! Events: what kproxide did and why not, where people look for it (`kubectl describe`).
//!
//! Written to `events.k8s.io/v1` by a task of its own behind a bounded queue: an Event that cannot be written is counted and forgotten, and never holds up
//! the loop. Repetitions become a series on the first Event; each object may be told only so much, so that a cluster full of pending pods is not a flood.
//! (kube's own recorder reads the system's clock, which simulation must not.)

mod aggregate;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kproxide_planner::ids::{ClaimName, ClassName, ClusterName, NodeName, PodKey, PoolName, Uid};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;

use super::client::Client;
use super::crd::{GROUP, VERSION};
use super::error::Error;
use crate::clock::Clock;
use aggregate::{Aggregate, Write};

/// How many notices may wait. More come only with more actions in one tick than there may be.
const QUEUE: usize = 1024;

/// What an Event is about. UIDs where they are known: `kubectl describe` looks for them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regarding {
    Pod(PodKey, Uid),
    Node(NodeName, Option<Uid>),
    Claim(ClaimName, Option<Uid>),
    Pool(PoolName, Option<Uid>),
    Class(ClassName, Option<Uid>),
    Cluster(ClusterName, Option<Uid>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Normal,
    Warning,
}

/// The reasons that kproxide gives; where Cluster Autoscaler has a word for it, that word, because dashboards and people know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// On a pod: machines are being made for it.
    TriggeredScaleUp,
    /// On a pod: no machine is made for it; the note says why.
    NotTriggerScaleUp,
    /// On a pool: machines are being made.
    ScaledUpGroup,
    /// On a pool or claim: a machine could not be made.
    FailedToScaleUpGroup,
    /// On a Node: it is going to be removed.
    ScaleDown,
    /// On a Node: it is being emptied because nothing needs it.
    ScaleDownEmpty,
    /// On a Node: removing it was given up.
    ScaleDownFailed,
    /// On a pod: it is evicted because its Node goes.
    Evicted,
    /// On a Node: it was recognized as the machine of a claim.
    Registered,
    /// On a Node: it is in service.
    Initialized,
    /// On a claim: it asks for a human.
    NeedsAttention,
    /// On a pool: a policy failed, was refused or was replaced.
    Policy,
    /// On a pool, class or cluster: it cannot be used as it stands.
    InvalidConfiguration,
    /// On a cluster: it cannot be reached, or has no quorum.
    Unreachable,
    /// On a claim: the word of the step of its life, the same as in its conditions.
    Step(&'static str),
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::TriggeredScaleUp => "TriggeredScaleUp",
            Self::NotTriggerScaleUp => "NotTriggerScaleUp",
            Self::ScaledUpGroup => "ScaledUpGroup",
            Self::FailedToScaleUpGroup => "FailedToScaleUpGroup",
            Self::ScaleDown => "ScaleDown",
            Self::ScaleDownEmpty => "ScaleDownEmpty",
            Self::ScaleDownFailed => "ScaleDownFailed",
            Self::Evicted => "Evicted",
            Self::Registered => "Registered",
            Self::Initialized => "Initialized",
            Self::NeedsAttention => "NeedsAttention",
            Self::Policy => "Policy",
            Self::InvalidConfiguration => "InvalidConfiguration",
            Self::Unreachable => "Unreachable",
            Self::Step(word) => word,
        }
    }

    /// What kproxide was about, as `events.k8s.io` wants to know.
    fn action(self) -> &'static str {
        match self {
            Self::TriggeredScaleUp
            | Self::NotTriggerScaleUp
            | Self::ScaledUpGroup
            | Self::FailedToScaleUpGroup => "ScaleUp",
            Self::ScaleDown | Self::ScaleDownEmpty | Self::ScaleDownFailed | Self::Evicted => {
                "ScaleDown"
            }
            Self::Registered | Self::Initialized => "Register",
            Self::NeedsAttention | Self::Step(_) => "Reconcile",
            Self::Policy => "Decide",
            Self::InvalidConfiguration | Self::Unreachable => "Validate",
        }
    }
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    pub regarding: Regarding,
    pub severity: Severity,
    pub reason: Reason,
    /// For people; cut at 1024 bytes.
    pub note: String,
}

/// Where to tell it. Cheap to clone; never waits, never fails.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Notice>);

impl Events {
    /// One that tells nobody: for a dry run, which writes nothing.
    pub fn silent() -> Self {
        Self(mpsc::channel(1).0)
    }

    /// Queues the notice; if the queue is full it is dropped.
    pub fn publish(&self, notice: Notice) {
        if let Err(mpsc::error::TrySendError::Full(notice)) = self.0.try_send(notice) {
            tracing::debug!(?notice, "event dropped: too many are waiting");
        }
    }
}

/// Who speaks.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Name of this replica.
    pub instance: String,
}

/// The queue and the task that writes from it. The task ends when every [`Events`] is dropped and the rest is written.
pub fn writer(
    client: Client,
    reporter: Reporter,
    clock: Clock,
) -> (Events, impl Future<Output = ()> + Send + 'static) {
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let task = async move {
        let mut aggregate = Aggregate::default();
        while let Some(notice) = receiver.recv().await {
            let now = clock.now();
            let Some(write) = aggregate.admit(notice, now) else {
                continue;
            };
            if let Err(error) = send(&client, &reporter, &write).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "event not written"
                );
                aggregate.forget(&write);
            }
        }
    };
    (Events(sender), task)
}

async fn send(client: &Client, reporter: &Reporter, write: &Write) -> Result<(), Error> {
    match write {
        Write::First { name, notice, at } => {
            let event = event(reporter, name, notice, MicroTime(*at));
            let namespace = event.metadata.namespace.clone().unwrap_or_default();
            let created = client
                .namespaced::<Event>(&namespace)
                .create(&PostParams::default(), &event)
                .await
                .map_err(Error::of("create", "events", name));
            match created {
                // The same Event of the run before.
                Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
                Err(other) => Err(other),
            }
        }
        Write::Again {
            name,
            notice,
            count,
            at,
        } => {
            let patch = json!({ "series": { "count": count, "lastObservedTime": MicroTime(*at) } });
            client
                .namespaced::<Event>(&namespace(&notice.regarding))
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map(|_| ())
                .map_err(Error::of("patch", "events", name))
        }
    }
}

fn event(reporter: &Reporter, name: &str, notice: &Notice, at: MicroTime) -> Event {
    let Notice {
        regarding,
        severity,
        reason,
        note,
    } = notice;
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace(regarding)),
            ..ObjectMeta::default()
        },
        event_time: Some(at),
        reporting_controller: Some("kproxide.dev/kproxide".to_owned()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        action: Some(reason.action().to_owned()),
        reason: Some(reason.word().to_owned()),
        regarding: Some(reference(regarding)),
        note: Some(cut(note, 1024).to_owned()),
        type_: Some(
            match severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            }
            .to_owned(),
        ),
        ..Event::default()
    }
}

/// Events about objects without a namespace belong into `default`.
fn namespace(regarding: &Regarding) -> String {
    match regarding {
        Regarding::Pod(key, _) => key.namespace.to_string(),
        Regarding::Node(..)
        | Regarding::Claim(..)
        | Regarding::Pool(..)
        | Regarding::Class(..)
        | Regarding::Cluster(..) => "default".to_owned(),
    }
}

fn reference(regarding: &Regarding) -> ObjectReference {
    let ours = format!("{GROUP}/{VERSION}");
    let (api_version, kind, name, uid) = match regarding {
        Regarding::Pod(key, uid) => ("v1", "Pod", &*key.name, Some(uid)),
        Regarding::Node(name, uid) => ("v1", "Node", name.as_str(), uid.as_ref()),
        Regarding::Claim(name, uid) => (ours.as_str(), "NodeClaim", name.as_str(), uid.as_ref()),
        Regarding::Pool(name, uid) => (ours.as_str(), "NodePool", name.as_str(), uid.as_ref()),
        Regarding::Class(name, uid) => (ours.as_str(), "NodeClass", name.as_str(), uid.as_ref()),
        Regarding::Cluster(name, uid) => {
            (ours.as_str(), "ProxmoxCluster", name.as_str(), uid.as_ref())
        }
    };
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace: match regarding {
            Regarding::Pod(key, _) => Some(key.namespace.to_string()),
            Regarding::Node(..)
            | Regarding::Claim(..)
            | Regarding::Pool(..)
            | Regarding::Class(..)
            | Regarding::Cluster(..) => None,
        },
        // A kubelet writes its Node's name where the UID belongs; `kubectl describe node` looks for both.
        uid: match regarding {
            Regarding::Node(name, None) => Some(name.to_string()),
            Regarding::Pod(..)
            | Regarding::Node(_, Some(_))
            | Regarding::Claim(..)
            | Regarding::Pool(..)
            | Regarding::Class(..)
            | Regarding::Cluster(..) => uid.map(ToString::to_string),
        },
        ..ObjectReference::default()
    }
}

/// At most so many bytes, at a boundary of a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
