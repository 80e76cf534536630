//! Events: what kproxide did, or why not, where people look for it (`kubectl describe`).
//!
//! Written to `events.k8s.io/v1` by a task of its own behind a bounded queue: an Event that cannot be written is
//! told later, and never holds up the loop. Repetitions become a series on the first Event. The number of Events per
//! object and reason is limited, so that a cluster full of pending pods does not cause a flood. (kube's own recorder
//! reads the system's clock, which simulation must not.)

mod aggregate;

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as EventObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kproxide_planner::ids::{
    ClaimName, ClassName, ClusterName, Digest, NodeName, PodKey, PoolName, Uid,
};
use kproxide_planner::keys::{DECISION, GROUP};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::Client;
use super::crd::VERSION;
use super::error::Error;
use aggregate::{Aggregate, Write};
use kproxide_common::clock::Clock;
use kproxide_common::foreign;

/// How many Events may wait. More come only with more actions in one tick than there may be.
const QUEUE: usize = 1024;
/// How long what could not be told waits for the next attempt: about as long as a bucket takes to have room again.
const LATER: Duration = Duration::from_secs(30);

/// What an Event is about. UIDs where they are known: `kubectl describe` looks for them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    Pod(PodKey, Option<Uid>),
    Node(NodeName),
    Claim(ClaimName, Uid),
    Pool(PoolName, Uid),
    Class(ClassName, Uid),
    Cluster(ClusterName, Uid),
}

impl About {
    /// One pod, whose UID is known.
    pub fn pod(pod: &PodKey, uid: &Uid) -> Self {
        Self::Pod(pod.clone(), Some(uid.clone()))
    }

    /// All pods of a shape, by an example: good for remembering what was said of them.
    pub fn shape(example: &PodKey) -> Self {
        Self::Pod(example.clone(), None)
    }

    pub fn node(node: &NodeName) -> Self {
        Self::Node(node.clone())
    }

    pub fn claim(claim: &ClaimName, uid: &Uid) -> Self {
        Self::Claim(claim.clone(), uid.clone())
    }

    pub fn pool(pool: &PoolName, uid: &Uid) -> Self {
        Self::Pool(pool.clone(), uid.clone())
    }

    pub fn class(class: &ClassName, uid: &Uid) -> Self {
        Self::Class(class.clone(), uid.clone())
    }

    pub fn cluster(cluster: &ClusterName, uid: &Uid) -> Self {
        Self::Cluster(cluster.clone(), uid.clone())
    }

    /// Kind and name of the object.
    pub fn object(&self) -> (&'static str, &str) {
        match self {
            Self::Pod(key, _) => ("Pod", &key.name),
            Self::Node(name) => ("Node", name.as_str()),
            Self::Claim(name, _) => ("NodeClaim", name.as_str()),
            Self::Pool(name, _) => ("NodePool", name.as_str()),
            Self::Class(name, _) => ("NodeClass", name.as_str()),
            Self::Cluster(name, _) => ("ProxmoxCluster", name.as_str()),
        }
    }

    fn is_ours(&self) -> bool {
        match self {
            Self::Pod(..) | Self::Node(_) => false,
            Self::Claim(..) | Self::Pool(..) | Self::Class(..) | Self::Cluster(..) => true,
        }
    }

    /// By custom a Node's Events carry its name as UID; `kubectl describe node` looks for that.
    fn uid(&self) -> Option<String> {
        match self {
            Self::Pod(_, uid) => uid.as_ref().map(ToString::to_string),
            Self::Node(name) => Some(name.to_string()),
            Self::Claim(_, uid)
            | Self::Pool(_, uid)
            | Self::Class(_, uid)
            | Self::Cluster(_, uid) => Some(uid.to_string()),
        }
    }
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    about: About,
    warning: bool,
    reason: &'static str,
    note: String,
    decision: Option<Digest>,
}

impl Event {
    /// `reason` is one CamelCase word, Cluster Autoscaler's where it has one; `note` is for people and cut at 1024 bytes.
    pub fn normal(about: About, reason: &'static str, note: String) -> Self {
        Self::new(false, about, reason, note)
    }

    /// As [`Event::normal`], for what a user should look at.
    pub fn warning(about: About, reason: &'static str, note: String) -> Self {
        Self::new(true, about, reason, note)
    }

    pub fn new(warning: bool, about: About, reason: &'static str, note: String) -> Self {
        Self {
            about,
            warning,
            reason,
            note,
            decision: None,
        }
    }

    /// It follows from this decision: the id stands on the Event ([`DECISION`]).
    pub fn decided(self, decision: Option<Digest>) -> Self {
        Self { decision, ..self }
    }
}

/// Where to tell it. Cheap to clone; never waits, never fails.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Event>);

impl Events {
    /// Queues the Event; if the queue is full it is dropped.
    pub fn say(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.0.try_send(event) {
            tracing::debug!(?event, "event dropped: too many are waiting");
        }
    }
}

/// The queue and the task that writes from it. The task ends when every [`Events`] is dropped and the rest is written; in a dry run it
/// writes nothing. `name` is kproxide's, `instance` this replica's.
pub fn writer(
    client: Client,
    clock: Clock,
    name: &str,
    instance: &str,
    dry_run: bool,
) -> (Events, impl Future<Output = ()> + Send + use<>) {
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let reporter = Reporter {
        controller: format!("{GROUP}/{}", first(name, 63)),
        instance: first(instance, 128).to_owned(),
    };
    let task = async move {
        let mut aggregate = Aggregate::default();
        let mut later = Instant::now() + LATER;
        loop {
            let event = tokio::select! {
                biased;
                event = receiver.recv() => Some(event),
                () = tokio::time::sleep_until(later), if aggregate.is_waiting() => None,
            };
            let writes = match event {
                Some(None) => break,
                Some(Some(_)) if dry_run => continue,
                Some(Some(event)) => aggregate.admit(event, clock.now()).into_iter().collect(),
                None => {
                    later = Instant::now() + LATER;
                    aggregate.due(clock.now())
                }
            };
            for write in writes {
                if let Err(error) = send(&client, &reporter, &write).await {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "event not written"
                    );
                    aggregate.forget(write);
                }
            }
        }
    };
    (Events(sender), task)
}

/// Who speaks.
struct Reporter {
    controller: String,
    instance: String,
}

async fn send(client: &Client, reporter: &Reporter, write: &Write) -> Result<(), Error> {
    match write {
        Write::First { name, event, at } => {
            let namespace = namespace(&event.about);
            let created = client
                .namespaced::<EventObject>(namespace)
                .create(
                    &PostParams::default(),
                    &object(reporter, name, event, MicroTime(*at)),
                )
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
            event,
            count,
            at,
        } => {
            let patch = json!({ "series": { "count": count, "lastObservedTime": MicroTime(*at) } });
            client
                .namespaced::<EventObject>(namespace(&event.about))
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map(|_| ())
                .map_err(Error::of("patch", "events", name))
        }
    }
}

fn object(reporter: &Reporter, name: &str, event: &Event, at: MicroTime) -> EventObject {
    let (about, reason) = (&event.about, event.reason);
    EventObject {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace(about).to_owned()),
            annotations: event
                .decision
                .as_ref()
                .map(|decision| [(DECISION.to_owned(), decision.to_string())].into()),
            ..ObjectMeta::default()
        },
        event_time: Some(at),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(reporter.instance.clone()),
        action: Some(action(reason).to_owned()),
        reason: Some(reason.to_owned()),
        regarding: Some(reference(about)),
        note: Some(cut(&foreign::shown(&event.note), 1024).into_owned()),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        ..EventObject::default()
    }
}

/// Reasons that are Cluster Autoscaler's words, each with the action it belongs to.
const ACTIONS: [(&str, &str); 8] = [
    ("TriggeredScaleUp", "ScaleUp"),
    ("NotTriggerScaleUp", "ScaleUp"),
    ("ScaledUpGroup", "ScaleUp"),
    ("FailedToScaleUpGroup", "ScaleUp"),
    ("ScaleDown", "ScaleDown"),
    ("ScaleDownEmpty", "ScaleDown"),
    ("ScaleDownHeldUp", "ScaleDown"),
    ("ScaleDownFailed", "ScaleDown"),
];

/// What kproxide was about, as `events.k8s.io` wants to know; the reason itself where there is nothing more general.
fn action(reason: &'static str) -> &'static str {
    let known = ACTIONS.iter().find(|(word, _)| *word == reason);
    known.map_or(reason, |(_, action)| action)
}

/// Events about objects without a namespace belong into `default`.
fn namespace(about: &About) -> &str {
    match about {
        About::Pod(key, _) => &key.namespace,
        About::Node(_)
        | About::Claim(..)
        | About::Pool(..)
        | About::Class(..)
        | About::Cluster(..) => "default",
    }
}

fn reference(about: &About) -> ObjectReference {
    let (kind, name) = about.object();
    let namespace = match about {
        About::Pod(key, _) => Some(key.namespace.to_string()),
        About::Node(_)
        | About::Claim(..)
        | About::Pool(..)
        | About::Class(..)
        | About::Cluster(..) => None,
    };
    ObjectReference {
        api_version: Some(match about.is_ours() {
            true => format!("{GROUP}/{VERSION}"),
            false => "v1".to_owned(),
        }),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace,
        uid: about.uid(),
        ..ObjectReference::default()
    }
}

/// The first so many bytes of a name.
fn first(name: &str, bytes_max: usize) -> &str {
    let mut end = name.len().min(bytes_max);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// At most this many bytes. What is left out, up to a whole word, is shown as "…".
fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const LEFT_OUT: &str = "…";
    if text.len() <= bytes_max {
        return text.into();
    }
    let mut end = bytes_max.saturating_sub(LEFT_OUT.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let whole = text[..end].rfind(char::is_whitespace).unwrap_or(end);
    format!("{}{LEFT_OUT}", text[..whole].trim_end()).into()
}

#[cfg(test)]
mod tests;
