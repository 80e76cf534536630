//! Which pods are bound to which node: one list and watch for all nodes.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};

use super::{
    api::{Api, CallError},
    complaints::Complaints,
};

/// After a failure the list is tried again so much later.
const RETRY: Duration = Duration::from_secs(1);

/// A bound pod has a new version, or is gone.
#[derive(Clone, Debug)]
pub(crate) enum PodEvent {
    Present(Value),
    Gone(Value),
}

impl PodEvent {
    pub(crate) fn node(&self) -> &str {
        let (Self::Present(pod) | Self::Gone(pod)) = self;
        pod["spec"]["nodeName"].as_str().unwrap_or_default()
    }
}

/// Sends every bound pod and all its changes, until nobody listens. After a gap every pod is sent again; a deletion inside a
/// gap is noticed by the node when the pod refuses its next write.
pub(crate) async fn watch(api: Api, events: mpsc::UnboundedSender<PodEvent>) {
    let complaints = Complaints::default();
    while !events.is_closed() {
        if let Err(error) = follow(&api, &events).await {
            complaints.say(None, "the watch of pods failed", &error);
            sleep(RETRY).await;
        }
    }
}

async fn follow(api: &Api, events: &mpsc::UnboundedSender<PodEvent>) -> Result<(), CallError> {
    let mut version = list(api, "spec.nodeName!%3D", events).await?;
    loop {
        let path = format!(
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&fieldSelector=spec.nodeName!%3D&resourceVersion={version}"
        );
        let mut changes = pin!(api.watch(&path).await?);
        while let Some(mut change) = changes.next().await {
            let object = change["object"].take();
            let event = match change["type"].as_str() {
                Some("ADDED" | "MODIFIED") => PodEvent::Present(object),
                Some("DELETED") => PodEvent::Gone(object),
                Some("BOOKMARK") => {
                    version = version_of(&object["metadata"]);
                    continue;
                }
                // Compacted, or something unknown: list anew.
                Some(_) | None => return Ok(()),
            };
            let (PodEvent::Present(pod) | PodEvent::Gone(pod)) = &event;
            version = version_of(&pod["metadata"]);
            if events.send(event).is_err() {
                return Ok(());
            }
        }
    }
}

/// Sends the pods that the field selector finds and returns the version of the list.
pub(crate) async fn list(
    api: &Api,
    selector: &str,
    events: &mpsc::UnboundedSender<PodEvent>,
) -> Result<String, CallError> {
    let mut token = String::new();
    loop {
        let path = format!("/api/v1/pods?limit=500&fieldSelector={selector}&continue={token}");
        let mut page = api.get(&path).await?;
        if let Value::Array(pods) = page["items"].take() {
            for pod in pods {
                // A closed channel is noticed by the caller.
                let _ = events.send(PodEvent::Present(pod));
            }
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            Some(_) | None => return Ok(version_of(&page["metadata"])),
        }
    }
}

fn version_of(metadata: &Value) -> String {
    metadata["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
