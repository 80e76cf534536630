//! Lists and watches: what a client sees of the store over time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    Kube, State,
    error::ApiError,
    request::{Params, Target},
    resource::Resource,
    selector::Selector,
    store::{Change, ChangeKind, Forgotten, Key, Stored},
};
use crate::signal::Signal;

/// How often an idle watch that allows it gets a bookmark; the real server sends about one per minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// How long a watch lives when its client names no time; the real server draws from 30 to 60 minutes.
const WATCH_DURATION: Duration = Duration::from_secs(30 * 60);

impl State {
    /// The answer to a list: the whole document.
    pub(crate) fn list(&self, target: &Target, params: &Params) -> Result<Bytes, ApiError> {
        let resource = &*target.resource;
        let current = self.store.revision();
        let selector = params.selector(resource)?;
        let limit = match params.limit()? {
            0 => usize::MAX,
            limit => limit,
        };
        // A continued list keeps the revision of its first page, so that a watch from it shows what changed meanwhile.
        let (revision, after) = match params.text("continue") {
            "" => {
                let asked = params.resource_version()?;
                self.check_list_version(target, asked, params.text("resourceVersionMatch"))?;
                (current, None)
            }
            token => {
                let (revision, after) = read_token(token)?;
                self.store
                    .can_watch_from(target.id(), revision)
                    .map_err(|Forgotten(_)| ApiError::continue_expired())?;
                (revision, Some(after))
            }
        };
        let mut matching = self
            .store
            .list(target.id(), target.namespace.as_deref(), after)
            .filter(|stored| {
                target
                    .name
                    .as_ref()
                    .is_none_or(|name| *name == stored.key.name)
            })
            .filter(|stored| selector.matches(stored))
            .peekable();
        let page: Vec<Arc<Stored>> = matching.by_ref().take(limit).cloned().collect();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let (Some(_), Some(last)) = (matching.peek(), page.last()) {
            metadata["continue"] = json!(write_token(revision, &last.key));
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(matching.count());
            }
        }
        let mut text = Vec::with_capacity(
            128 + page
                .iter()
                .map(|stored| stored.bytes.len() + 1)
                .sum::<usize>(),
        );
        let head = format!(
            r#"{{"kind":"{}List","apiVersion":"{}","metadata":{metadata},"items":["#,
            resource.kind,
            resource.api_version(&target.version)
        );
        text.extend_from_slice(head.as_bytes());
        for (index, stored) in page.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            match item_without_type(resource, &stored.bytes) {
                Some(rest) => {
                    text.push(b'{');
                    text.extend_from_slice(rest);
                }
                None => text.extend_from_slice(&present(target, &stored.bytes)),
            }
        }
        text.extend_from_slice(b"]}\n");
        Ok(text.into())
    }

    fn check_list_version(
        &self,
        target: &Target,
        asked: Option<u64>,
        matching: &str,
    ) -> Result<(), ApiError> {
        let current = self.store.revision();
        match asked {
            Some(asked) if asked > current => Err(ApiError::version_too_large(asked, current)),
            // Old versions are not kept; the real server answers so after a compaction.
            Some(asked) if matching == "Exact" && asked < current => {
                let oldest = self.store.can_watch_from(target.id(), asked).err();
                Err(ApiError::gone(
                    asked,
                    oldest.map_or(current, |Forgotten(oldest)| oldest),
                ))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Starts a watch at this instant.
    pub(crate) fn watch(
        &mut self,
        kube: Kube,
        target: &Target,
        params: &Params,
    ) -> Result<Watch, ApiError> {
        let selector = params.selector(&target.resource)?;
        let current = self.store.revision();
        let bookmarks = params.flag("allowWatchBookmarks");
        let initial = params.flag("sendInitialEvents");
        let asked = params.resource_version()?.unwrap_or(0);
        if initial && params.text("resourceVersionMatch") != "NotOlderThan" {
            return Err(ApiError::unprocessable(
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
                 resourceVersionMatch to NotOlderThan",
            ));
        }
        if asked > current {
            return Err(ApiError::version_too_large(asked, current));
        }
        let lists_first = initial || asked == 0 && params.text("sendInitialEvents").is_empty();
        let mut watch = Watch {
            wake: self.store.wake(target.id()),
            target: target.clone(),
            selector,
            kube,
            cursor: current,
            pending: VecDeque::new(),
            deadline: Instant::now() + params.timeout()?.unwrap_or(WATCH_DURATION),
            bookmark_at: bookmarks.then(|| Instant::now() + BOOKMARK_INTERVAL),
            ended: false,
        };
        if lists_first {
            let objects = self
                .store
                .list(target.id(), target.namespace.as_deref(), None);
            let shown = objects.filter(|stored| watch.shows(stored));
            let events: Vec<Bytes> = shown
                .map(|stored| event("ADDED", &present(target, &stored.bytes)))
                .collect();
            watch.pending.extend(events);
            if initial && bookmarks {
                watch.pending.push_back(bookmark(target, current, true));
            }
        } else {
            self.store
                .can_watch_from(target.id(), asked)
                .map_err(|Forgotten(oldest)| ApiError::gone(asked, oldest))?;
            watch.cursor = asked;
        }
        Ok(watch)
    }
}

/// One open watch. It reads the history from its cursor, so a client that does not read costs no memory.
pub(crate) struct Watch {
    kube: Kube,
    target: Target,
    selector: Selector,
    /// Everything up to this revision was sent or did not concern this watch.
    cursor: u64,
    pending: VecDeque<Bytes>,
    wake: Signal<u64>,
    deadline: Instant,
    /// None when the client takes no bookmarks.
    bookmark_at: Option<Instant>,
    ended: bool,
}

impl Watch {
    /// The next line of the stream; None when the watch is over.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            let seen = self.wake.get();
            if self.read_history() {
                continue;
            }
            let bookmark_at = self.bookmark_at.unwrap_or(self.deadline);
            tokio::select! {
                biased;
                _ = self.wake.wait_for(|revision| *revision != seen) => {}
                () = sleep_until(self.deadline) => return None,
                () = sleep_until(bookmark_at), if self.bookmark_at.is_some() => {
                    self.bookmark_at = Some(Instant::now() + BOOKMARK_INTERVAL);
                    return Some(bookmark(&self.target, self.cursor, false));
                }
            }
        }
    }

    /// Moves what happened since the cursor into `pending`; false when nothing did.
    fn read_history(&mut self) -> bool {
        let kube = self.kube.clone();
        let state = kube.lock();
        let lines: Vec<Bytes> = match state.store.changes_after(self.target.id(), self.cursor) {
            Ok(changes) => changes.filter_map(|change| self.line(change)).collect(),
            Err(Forgotten(oldest)) => {
                self.ended = true;
                let status = ApiError::gone(self.cursor, oldest).status().to_string();
                vec![event("ERROR", status.as_bytes())]
            }
        };
        self.cursor = state.store.revision();
        self.pending.extend(lines);
        !self.pending.is_empty()
    }

    /// A change as this watch shows it: an object that starts or stops matching is added or deleted.
    fn line(&self, change: &Change) -> Option<Bytes> {
        let before = change
            .previous
            .as_deref()
            .is_some_and(|stored| self.shows(stored));
        let after = change.kind != ChangeKind::Deleted && self.shows(&change.object);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        Some(event(kind, &present(&self.target, &change.object.bytes)))
    }

    fn shows(&self, stored: &Stored) -> bool {
        let Target {
            namespace, name, ..
        } = &self.target;
        namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == stored.key.namespace)
            && name.as_ref().is_none_or(|name| *name == stored.key.name)
            && self.selector.matches(stored)
    }
}

fn event(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 32);
    line.extend_from_slice(format!(r#"{{"type":"{kind}","object":"#).as_bytes());
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

fn bookmark(target: &Target, revision: u64, initial_events_end: bool) -> Bytes {
    let resource = &*target.resource;
    let mut object = json!({
        "kind": resource.kind,
        "apiVersion": resource.api_version(&target.version),
        "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
    });
    if initial_events_end {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    event("BOOKMARK", object.to_string().as_bytes())
}

/// An object as the target's version shows it.
pub(crate) fn present(target: &Target, bytes: &Bytes) -> Bytes {
    if target.version == target.resource.storage_version {
        return bytes.clone();
    }
    let mut object: Value =
        serde_json::from_slice(bytes).expect("the store holds what it serialized itself");
    object["apiVersion"] = json!(target.resource.api_version(&target.version));
    object.to_string().into()
}

/// The text of a built-in object after its type: the items of a typed list carry neither `apiVersion` nor `kind`.
fn item_without_type<'b>(resource: &Resource, bytes: &'b Bytes) -> Option<&'b [u8]> {
    if resource.custom {
        return None;
    }
    let prefix = format!(
        r#"{{"apiVersion":"{}","kind":"{}","#,
        resource.api_version(&resource.storage_version),
        resource.kind
    );
    bytes.strip_prefix(prefix.as_bytes())
}

fn write_token(revision: u64, last: &Key) -> String {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.encode(json!([revision, last.namespace, last.name]).to_string())
}

fn read_token(token: &str) -> Result<(u64, Key), ApiError> {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let invalid = || ApiError::bad_request(format!("continue key is not valid: {token:?}"));
    let bytes = BASE64_URL_SAFE_NO_PAD
        .decode(token)
        .map_err(|_| invalid())?;
    let (revision, namespace, name): (u64, String, String) =
        serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    Ok((revision, Key { namespace, name }))
}
