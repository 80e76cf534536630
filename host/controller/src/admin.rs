//! The admin endpoints: `/healthz /readyz /metrics /debug/plan /debug/decisions`.
//!
//! Alive means that the loop turns, not that it succeeds: restarting cannot mend a Proxmox server that is down. Ready means that the watches are
//! synced, and that the loop has turned within a minute. Nothing here changes anything, and nothing secret is known to what is shown.

pub mod connections;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::{StreamExt, stream};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::metrics::Metrics;
use kproxide_common::decisions::Decisions;
use kproxide_common::foreign;

/// A turn of the loop that lasts longer than this means that it hangs. A turn waits for Proxmox and for policies, whose own deadlines add up to less.
pub const TURN_MAX: Duration = Duration::from_secs(300);

/// After so long without a turn the replica is not ready: it looks after nothing.
const READY_MAX: Duration = Duration::from_secs(60);

/// How long `/debug/plan` waits for the loop.
const DEBUG_DEADLINE: Duration = Duration::from_secs(10);
/// The loop writes the whole world down for each answer: not more often than this.
const DEBUG_PAUSE: Duration = Duration::from_secs(1);

/// The endpoints' view of the loop.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// When the loop last came round.
    pub turned: watch::Receiver<Instant>,
    /// Every watch has delivered its first list.
    pub synced: watch::Receiver<bool>,
    /// Asks the loop for its world, its last plan and its report as JSON: a file that can be replayed.
    pub debug_plan: mpsc::Sender<oneshot::Sender<Vec<u8>>>,
    pub decisions: Decisions,
}

#[derive(Clone)]
struct Admin {
    vitals: Vitals,
    metrics: Metrics,
    /// When `/debug/plan` was answered last. Held until the answer is sent: there is one in memory at a time, however slowly it is read.
    shown: Arc<Mutex<Option<Instant>>>,
    /// Held in the same way while `/debug/decisions` is read.
    reading: Arc<Mutex<()>>,
}

pub fn router(vitals: Vitals, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .route("/debug/plan", get(debug_plan))
        .route("/debug/decisions", get(debug_decisions))
        .with_state(Admin {
            vitals,
            metrics,
            shown: Arc::default(),
            reading: Arc::default(),
        })
}

async fn healthz(State(admin): State<Admin>) -> Response {
    let since = admin.vitals.turned.borrow().elapsed();
    let late = format!("the loop has not turned for {} s\n", since.as_secs());
    match since < TURN_MAX {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, late).into_response(),
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let early = "waiting for the first lists from Kubernetes\n";
    let since = admin.vitals.turned.borrow().elapsed();
    let late = format!("the loop has not turned for {} s\n", since.as_secs());
    match (*admin.vitals.synced.borrow(), since < READY_MAX) {
        (true, true) => "ok\n".into_response(),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, late).into_response(),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, early).into_response(),
    }
}

async fn render(State(admin): State<Admin>) -> Response {
    match admin.metrics.render() {
        Ok(text) => {
            let text = foreign::shown(&text).into_owned();
            ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn busy(text: &'static str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, text).into_response()
}

/// Holds the guard until the answer is sent. A program reads what there is, and on a terminal nothing of it acts.
fn json<T: Send + 'static>(json: Vec<u8>, held: OwnedMutexGuard<T>) -> Response {
    let json = String::from_utf8(json).unwrap_or_default();
    let json = match foreign::escaped_json(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(escaped) => escaped,
    };
    let body = stream::iter([Ok::<_, Infallible>(json)]).map(move |json| {
        let _held = &held;
        json
    });
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, Body::from_stream(body)).into_response()
}

async fn debug_decisions(State(admin): State<Admin>) -> Response {
    match admin.reading.try_lock_owned() {
        Ok(held) => json(admin.vitals.decisions.json(), held),
        Err(_) => busy("somebody else is being shown the decisions; try again\n"),
    }
}

async fn debug_plan(State(admin): State<Admin>) -> Response {
    let Ok(mut shown) = admin.shown.try_lock_owned() else {
        return busy("somebody else is being shown the plan; try again\n");
    };
    if shown.is_some_and(|at| at.elapsed() < DEBUG_PAUSE) {
        return busy("the plan was shown less than a second ago; try again\n");
    }
    let (answer, answered) = oneshot::channel();
    if admin.vitals.debug_plan.try_send(answer).is_err() {
        return busy("the loop has not answered the last one who asked; try again\n");
    }
    match tokio::time::timeout(DEBUG_DEADLINE, answered).await {
        Ok(Ok(plan)) => {
            *shown = Some(Instant::now());
            json(plan, shown)
        }
        Ok(Err(_)) | Err(_) => {
            let busy = "the loop is busy; try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, busy).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use axum::http::Request;
    use tower::ServiceExt;

    struct Loop {
        turned: watch::Sender<Instant>,
        synced: watch::Sender<bool>,
        debug_plan: mpsc::Receiver<oneshot::Sender<Vec<u8>>>,
        router: Router,
    }

    fn start() -> Loop {
        let (turned, turned_seen) = watch::channel(Instant::now());
        let (synced, synced_seen) = watch::channel(false);
        let (ask, debug_plan) = mpsc::channel(1);
        let vitals = Vitals {
            turned: turned_seen,
            synced: synced_seen,
            debug_plan: ask,
            decisions: Decisions::default(),
        };
        Loop {
            turned,
            synced,
            debug_plan,
            router: router(vitals, Metrics::new(true).unwrap()),
        }
    }

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let answer = router
            .clone()
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap();
        let status = answer.status();
        (
            status,
            String::from_utf8(
                to_bytes(answer.into_body(), 1 << 20)
                    .await
                    .unwrap()
                    .to_vec(),
            )
            .unwrap(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn alive_while_the_loop_turns_and_dead_when_it_hangs() {
        let host = start();
        assert_eq!(get(&host.router, "/healthz").await.0, StatusCode::OK);
        tokio::time::advance(TURN_MAX).await;
        let (status, text) = get(&host.router, "/healthz").await;
        assert_eq!(
            (status, text.as_str()),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the loop has not turned for 300 s\n"
            )
        );
        host.turned.send_replace(Instant::now());
        assert_eq!(get(&host.router, "/healthz").await.0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn ready_once_synced() {
        let host = start();
        assert_eq!(
            get(&host.router, "/readyz").await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        host.synced.send_replace(true);
        assert_eq!(get(&host.router, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn the_plan_comes_from_the_loop_or_says_that_it_is_busy() {
        let mut host = start();
        let (answered, ()) = tokio::join!(get(&host.router, "/debug/plan"), async {
            host.debug_plan
                .recv()
                .await
                .unwrap()
                .send(b"{}".to_vec())
                .unwrap();
        });
        assert_eq!(answered, (StatusCode::OK, "{}".to_owned()));
        tokio::time::advance(DEBUG_PAUSE).await;
        assert_eq!(
            get(&host.router, "/debug/plan").await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_plan_is_shown_to_one_at_a_time_and_once_a_second() {
        let mut host = start();
        let ask = || {
            let request = Request::get("/debug/plan").body(Body::empty()).unwrap();
            host.router.clone().oneshot(request)
        };
        let (unread, ()) = tokio::join!(ask(), async {
            let asked = host.debug_plan.recv().await.unwrap();
            asked.send(b"{}".to_vec()).unwrap();
        });
        tokio::time::advance(DEBUG_PAUSE).await;
        let (status, text) = get(&host.router, "/debug/plan").await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert!(text.contains("somebody else"), "{text}");

        to_bytes(unread.unwrap().into_body(), 100).await.unwrap();
        let asked = async {
            let asked = host.debug_plan.recv().await.unwrap();
            asked.send(b"{}".to_vec()).unwrap();
        };
        let (again, ()) = tokio::join!(get(&host.router, "/debug/plan"), asked);
        assert_eq!(again.0, StatusCode::OK);
        assert_eq!(
            get(&host.router, "/debug/plan").await.0,
            StatusCode::TOO_MANY_REQUESTS
        );
    }

    #[tokio::test]
    async fn decisions_are_shown_to_one_at_a_time() {
        let host = start();
        let (status, text) = get(&host.router, "/debug/decisions").await;
        assert_eq!((status, &*text), (StatusCode::OK, "{\"decisions\":[]}"));
        let request = Request::get("/debug/decisions")
            .body(Body::empty())
            .unwrap();
        let unread = host.router.clone().oneshot(request).await.unwrap();
        let (status, text) = get(&host.router, "/debug/decisions").await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert!(text.contains("somebody else"), "{text}");
        drop(unread);
        let (status, _) = get(&host.router, "/debug/decisions").await;
        assert_eq!(status, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_served_as_text() {
        let host = start();
        let (status, text) = get(&host.router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("kproxide_build_info"), "{text}");
    }
}
