//! What the API server's answers say beside their objects: what time it is there, and how new the state is that it answers from.
//!
//! A list that is older than what lists and watches have shown before comes from a server that lags behind the others, or from an etcd that was
//! restored. What it lacks has not gone, so such a list is an error, and its watch fails until a newer one comes. If none comes for long, the older
//! state is the state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use tokio::time::Instant;

use kproxide_common::clock::ServerTime;

/// After this long with only older lists, kproxide believes them.
const BELIEVED_AFTER: Duration = Duration::from_secs(10 * 60);
/// Where the version of a list stands, if it stands where API servers write it: before the items.
const VERSION: &str = r#""metadata":{"resourceVersion":""#;
const VERSION_WITHIN: usize = 512;

/// Shared by all requests of one client.
#[derive(Default)]
pub(super) struct Freshness {
    pub(super) time: ServerTime,
    /// By path: versions of different resources are not comparable.
    lists: Mutex<BTreeMap<Box<str>, Newest>>,
}

struct Newest {
    version: u64,
    /// Since when only older lists came.
    behind_since: Option<Instant>,
}

impl Newest {
    fn raise(&mut self, version: u64) {
        if version >= self.version {
            self.version = version;
            self.behind_since = None;
        }
    }
}

/// A list that was asked for, and what was the newest version before that.
pub(super) struct ListAsked {
    freshness: Arc<Freshness>,
    path: Box<str>,
    newest: Option<u64>,
}

impl Freshness {
    /// To be asked before the request is sent: of two lists under way, the one that was asked for first may be the older one. The later pages of a list
    /// are as old as its first.
    pub(super) fn asked<B>(self: &Arc<Self>, request: &Request<B>) -> Option<ListAsked> {
        let query = request.uri().query().unwrap_or_default();
        if request.method() != Method::GET || query.contains("continue=") {
            return None;
        }
        let path = request.uri().path();
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ListAsked {
            freshness: self.clone(),
            path: path.into(),
            newest: lists.get(path).map(|newest| newest.version),
        })
    }

    /// Takes note of the version of an object that a watch of `path` has shown. Where no list had a version that can be compared, there is nothing to
    /// take note for.
    pub(super) fn shown(&self, path: &str, version: &str) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = lists.get_mut(path)
            && let Ok(version) = version.parse()
        {
            newest.raise(version);
        }
    }
}

impl ListAsked {
    /// Takes note of an answer by its beginning. An answer that is no list says nothing.
    ///
    /// # Errors
    /// It is a list that is older than what was seen before it was asked for; says so.
    pub(super) fn answered(self, beginning: &[u8]) -> Result<(), String> {
        let Some(version) = version_of(beginning) else {
            return Ok(());
        };
        let lists = &self.freshness.lists;
        let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lists.entry(self.path.clone()).or_insert(Newest {
            version,
            behind_since: None,
        });
        let Some(newest) = self.newest.filter(|newest| version < *newest) else {
            known.raise(version);
            return Ok(());
        };
        let since = *known.behind_since.get_or_insert_with(Instant::now);
        let path = &self.path;
        if since.elapsed() < BELIEVED_AFTER {
            return Err(format!(
                "the list of {path} is older than what was seen before (resourceVersion {version}, was {newest}): this API server lags behind, or etcd was restored; \
                 if nothing newer comes within {} minutes, it is believed",
                BELIEVED_AFTER.as_secs() / 60
            ));
        }
        tracing::warn!(%path, version, newest, "only older lists come: etcd was restored, it seems; what they say is believed from now on");
        *known = Newest {
            version,
            behind_since: None,
        };
        Ok(())
    }
}

fn version_of(beginning: &[u8]) -> Option<u64> {
    let beginning = &beginning[..beginning.len().min(VERSION_WITHIN)];
    let text = String::from_utf8_lossy(beginning);
    let (before, rest) = text.split_once(VERSION)?;
    // Of an item.
    if before.contains(r#""items""#) {
        return None;
    }
    rest.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(freshness: &Arc<Freshness>, path: &str, version: u64) -> Result<(), String> {
        let request = Request::get(path).body(()).unwrap();
        answer(freshness.asked(&request).unwrap(), version)
    }

    fn answer(asked: ListAsked, version: u64) -> Result<(), String> {
        let body = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#
        );
        asked.answered(body.as_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn f60_an_older_list_is_an_error_until_nothing_newer_comes_for_long() {
        let freshness = Arc::new(Freshness::default());
        assert_eq!(list(&freshness, "/api/v1/pods", 9), Ok(()));
        assert_eq!(list(&freshness, "/api/v1/pods?limit=500", 9), Ok(()));
        assert_eq!(
            list(&freshness, "/api/v1/nodes", 5),
            Ok(()),
            "another resource"
        );
        let error = list(&freshness, "/api/v1/pods", 5).unwrap_err();
        assert!(error.contains("resourceVersion 5, was 9"), "{error}");

        // A moment later by the server that is up to date; and again by the other one.
        tokio::time::advance(BELIEVED_AFTER / 2).await;
        assert_eq!(list(&freshness, "/api/v1/pods", 10), Ok(()));
        tokio::time::advance(BELIEVED_AFTER / 2).await;
        list(&freshness, "/api/v1/pods", 6).unwrap_err();

        // F112: etcd was restored, and nothing newer will come.
        tokio::time::advance(BELIEVED_AFTER).await;
        assert_eq!(list(&freshness, "/api/v1/pods", 6), Ok(()));
        assert_eq!(list(&freshness, "/api/v1/pods", 7), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn f60_f112_a_list_older_than_what_its_watch_has_shown_is_an_error() {
        let freshness = Arc::new(Freshness::default());
        assert_eq!(list(&freshness, "/api/v1/pods", 5), Ok(()));
        freshness.shown("/api/v1/pods", "9");
        // What comes late, and what is no number, lowers nothing.
        freshness.shown("/api/v1/pods", "6");
        freshness.shown("/api/v1/pods", "");
        let error = list(&freshness, "/api/v1/pods", 7).unwrap_err();
        assert!(error.contains("resourceVersion 7, was 9"), "{error}");
        assert_eq!(list(&freshness, "/api/v1/pods", 9), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_overtake_each_other_and_later_pages_are_not_old() {
        let freshness = Arc::new(Freshness::default());
        let request = Request::get("/api/v1/pods").body(()).unwrap();
        let slow = freshness.asked(&request).unwrap();
        assert_eq!(list(&freshness, "/api/v1/pods", 9), Ok(()));
        assert_eq!(answer(slow, 8), Ok(()));
        list(&freshness, "/api/v1/pods", 8).unwrap_err();
        for (method, uri) in [
            (Method::GET, "/api/v1/pods?limit=500&continue=abc"),
            (Method::POST, "/api/v1/pods"),
        ] {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            assert!(freshness.asked(&request).is_none(), "{uri}");
        }
    }

    #[test]
    fn an_object_has_no_version_of_a_list() {
        for text in [
            r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"7"}}"#,
            r#"{"items":[{"metadata":{"resourceVersion":"7"}}]}"#,
            r#"{"metadata":{"resourceVersion":""}}"#,
            "",
        ] {
            assert_eq!(version_of(text.as_bytes()), None, "{text}");
        }
        let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}"#;
        assert_eq!(version_of(list.as_bytes()), Some(7));
    }
}
