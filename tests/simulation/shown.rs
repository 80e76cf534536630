//! What the watches of one replica show it, event by event, and what they keep from it.
//!
//! No server promises that a client sees every state of an object, nor that it sees the newest soon: a watch that broke goes on with what an object is
//! by then, and a server whose cache lags behind tells of a deletion minutes later. So single events are skipped or held back here, above everything
//! else on the wire; reads and writes are as fresh as ever.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::OptionFuture;
use futures::stream::{self, Stream, StreamExt};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tower::Service;

/// What is skipped is shown after so long all the same, if nothing took its place: a client begins a watch anew by then.
const SKIPPED_AT_MOST: Duration = Duration::from_secs(5 * 60);

/// One event of a replica's watches: the nth that it was shown of an object, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shown {
    /// The plural, as in paths.
    pub(crate) resource: String,
    /// `name`, or `namespace/name`.
    pub(crate) object: String,
    pub(crate) nth: u32,
}

/// An event as it was shown in a run without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) shown: Shown,
    /// It tells that the object is gone.
    pub(crate) is_end: bool,
    /// Since the replica's first watch.
    pub(crate) at: Duration,
}

/// What a replica does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blind {
    /// This event, if another one of the same object comes to take its place.
    To(Shown),
    /// Everything from this event on, for so long; then it sees all of it at once.
    From(Shown, Duration),
}

/// What all watches of a replica have in common. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Sight {
    state: Arc<Mutex<State>>,
    begun: Arc<Notify>,
}

#[derive(Default)]
struct State {
    blind: Option<Blind>,
    /// Events are noted.
    notes: bool,
    noted: Vec<Noted>,
    since: Option<Instant>,
    counts: BTreeMap<(String, String), u32>,
    /// Nothing is shown before.
    until: Option<Instant>,
    met: bool,
}

impl Sight {
    /// Notes what is shown from now on.
    pub(crate) fn take_notes(&self) {
        self.lock().notes = true;
    }

    pub(crate) fn noted(&self) -> Vec<Noted> {
        self.lock().noted.clone()
    }

    pub(crate) fn lose(&self, blind: Blind) {
        self.lock().blind = Some(blind);
    }

    /// Whether something was kept from this replica as it was to be.
    pub(crate) fn is_met(&self) -> bool {
        self.lock().met
    }

    /// Returns when this replica has begun to see nothing.
    pub(crate) async fn is_behind(&self) {
        self.begun.notified().await;
    }

    /// Counts an event. Returns whether it is skipped until another one takes its place.
    fn is_skipped(&self, resource: &str, line: &Line) -> bool {
        let mut state = self.lock();
        let object = line.object();
        let count = state
            .counts
            .entry((resource.to_owned(), object.clone()))
            .or_default();
        *count += 1;
        let shown = Shown {
            resource: resource.to_owned(),
            object,
            nth: *count,
        };
        if state.notes {
            let at = state.since.get_or_insert_with(Instant::now).elapsed();
            state.noted.push(Noted {
                shown,
                is_end: line.kind == "DELETED",
                at,
            });
            return false;
        }
        match &state.blind {
            Some(Blind::To(it)) => *it == shown,
            Some(Blind::From(it, length)) if *it == shown => {
                state.until = Some(Instant::now() + *length);
                state.met = true;
                self.begun.notify_one();
                false
            }
            Some(Blind::From(..)) | None => false,
        }
    }

    fn is_plain(&self) -> bool {
        let mut state = self.lock();
        state.since.get_or_insert_with(Instant::now);
        state.blind.is_none() && !state.notes
    }

    /// Waits until something may be shown.
    async fn opens(&self) {
        loop {
            let until = self.lock().until;
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of a watch, as far as it matters here.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    object: Named,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

impl Line {
    fn object(&self) -> String {
        let Metadata { namespace, name } = &self.object.metadata;
        let name = name.as_deref().unwrap_or_default();
        match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    }

    fn is_of_object(&self) -> bool {
        ["ADDED", "MODIFIED", "DELETED"].contains(&self.kind.as_str())
    }
}

/// One watch, as its replica sees it.
struct Watched<S> {
    lines: S,
    resource: String,
    sight: Sight,
    /// What is skipped, the object that it is of, and until when.
    skipped: Option<(Bytes, String, Instant)>,
    /// The server has ended the watch.
    ended: bool,
}

impl<S: Stream<Item = Bytes> + Unpin> Watched<S> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            let until = self.skipped.as_ref().map(|(_, _, until)| *until);
            let patience: OptionFuture<_> = until.map(sleep_until).into();
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                Some(()) = patience => {
                    let (line, ..) = self.skipped.take()?;
                    return Some(line);
                }
            };
            let Some(line) = line else {
                self.ended = true;
                // A client that goes on from the last version that it was shown would never learn of it.
                return self.skipped.take().map(|(line, ..)| line);
            };
            let read: Option<Line> = serde_json::from_slice(&line).ok();
            let Some(read) = read.filter(Line::is_of_object) else {
                // As above: a bookmark says that everything before it was shown.
                if self.skipped.is_none() {
                    self.sight.opens().await;
                    return Some(line);
                }
                continue;
            };
            if self.sight.is_skipped(&self.resource, &read) {
                let until = Instant::now() + SKIPPED_AT_MOST;
                self.skipped = Some((line, read.object(), until));
                continue;
            }
            let replaced = self
                .skipped
                .take_if(|(_, object, _)| *object == read.object());
            if replaced.is_some() {
                self.sight.lock().met = true;
            }
            self.sight.opens().await;
            return Some(line);
        }
    }
}

/// An API server as one replica sees it.
#[derive(Clone)]
pub(crate) struct Seeing<S> {
    pub(crate) service: S,
    pub(crate) sight: Sight,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl<S, Asked, Answered> Service<Request<Asked>> for Seeing<S>
where
    S: Service<Request<Asked>, Response = Response<Answered>>,
    S::Future: Send + 'static,
    Answered: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    type Response = Answer;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|pair| pair == "watch=true");
        let watched = (is_watch && !self.sight.is_plain()).then(|| {
            let (_, resource) = request.uri().path().rsplit_once('/').unwrap_or_default();
            resource.to_owned()
        });
        let (sight, answered) = (self.sight.clone(), self.service.call(request));
        Box::pin(async move {
            let answer = answered.await?;
            let Some(resource) = watched.filter(|_| answer.status().is_success()) else {
                return Ok(answer.map(BodyExt::boxed_unsync));
            };
            Ok(answer.map(|body| through(body, resource, sight)))
        })
    }
}

/// Each line of a watch is one frame, as the simulated API server sends it.
fn through<B>(body: B, resource: String, sight: Sight) -> UnsyncBoxBody<Bytes, Infallible>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let frames = body.into_data_stream().boxed();
    let lines = frames.filter_map(async |line| line.ok()).boxed();
    let watched = Watched {
        lines,
        resource,
        sight,
        skipped: None,
        ended: false,
    };
    let shown = stream::unfold(watched, async |mut watched| {
        let line = watched.next().await?;
        Some((Ok(Frame::data(line)), watched))
    });
    StreamBody::new(shown).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, name: &str, version: u32) -> Bytes {
        let object = format!(
            r#"{{"metadata":{{"namespace":"default","name":"{name}","resourceVersion":"{version}"}}}}"#
        );
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
    }

    fn nth(nth: u32) -> Shown {
        Shown {
            resource: "pods".to_owned(),
            object: "default/web".to_owned(),
            nth,
        }
    }

    /// What a replica sees of these lines, each with the second in which it does.
    async fn seen(blind: Blind, lines: Vec<Bytes>) -> Vec<(u64, Bytes)> {
        let (sight, began) = (Sight::default(), Instant::now());
        sight.lose(blind);
        let lines = stream::iter(lines).chain(stream::pending());
        let mut watched = Watched {
            lines: lines.boxed(),
            resource: "pods".to_owned(),
            sight,
            skipped: None,
            ended: false,
        };
        let mut seen = Vec::new();
        let wait = Duration::from_secs(3600);
        while let Ok(Some(line)) = tokio::time::timeout(wait, watched.next()).await {
            seen.push((began.elapsed().as_secs(), line));
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_skipped_when_another_of_its_object_takes_its_place() {
        let (added, changed) = (line("ADDED", "web", 1), line("MODIFIED", "web", 3));
        let other = line("ADDED", "db", 2);
        let lines = vec![added, other.clone(), changed.clone()];
        assert_eq!(
            seen(Blind::To(nth(1)), lines).await,
            [(0, other), (0, changed)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_nothing_replaces_is_shown_late_and_no_bookmark_before_it() {
        let (added, bookmark) = (line("ADDED", "web", 1), line("BOOKMARK", "", 2));
        let lines = vec![added.clone(), bookmark];
        assert_eq!(seen(Blind::To(nth(1)), lines).await, [(300, added)]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_behind_sees_everything_later_and_in_order() {
        let lines = vec![
            line("ADDED", "web", 1),
            line("DELETED", "web", 2),
            line("ADDED", "db", 3),
        ];
        let seen = seen(Blind::From(nth(2), Duration::from_secs(90)), lines.clone()).await;
        let times: Vec<u64> = seen.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 90, 90]);
        assert!(seen.into_iter().map(|(_, line)| line).eq(lines));
    }
}
