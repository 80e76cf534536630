//! The admin endpoints: `/healthz /readyz /metrics /debug/plan`.
//!
//! Alive means that the loop turns, not that it succeeds: restarting cannot mend a Proxmox server that is down. Ready means that the watches are
//! synced. Nothing here changes anything, and nothing secret is known to what is shown.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// A turn of the loop that lasts longer than this means that it hangs. A turn waits for Proxmox and for policies, whose own deadlines add up to less.
pub const TURN_MAX: Duration = Duration::from_secs(300);

/// How long `/debug/plan` waits for the loop.
const DEBUG_DEADLINE: Duration = Duration::from_secs(10);

/// The endpoints' view of the loop.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// When the loop last came round.
    pub turned: watch::Receiver<Instant>,
    /// Every watch has delivered its first list.
    pub synced: watch::Receiver<bool>,
    /// Asks the loop for its world, its last plan and its report as JSON: a file that can be replayed.
    pub debug_plan: mpsc::Sender<oneshot::Sender<Vec<u8>>>,
}

#[derive(Clone)]
struct Admin {
    vitals: Vitals,
    metrics: Metrics,
}

pub fn router(vitals: Vitals, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .route("/debug/plan", get(debug_plan))
        .with_state(Admin { vitals, metrics })
}

async fn healthz(State(admin): State<Admin>) -> Response {
    let since = admin.vitals.turned.borrow().elapsed();
    if since < TURN_MAX {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the loop has not turned for {} s\n", since.as_secs()),
        )
            .into_response()
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    if *admin.vitals.synced.borrow() {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the first lists from Kubernetes\n",
        )
            .into_response()
    }
}

async fn render(State(admin): State<Admin>) -> Response {
    match admin.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn debug_plan(State(admin): State<Admin>) -> Response {
    let (answer, answered) = oneshot::channel();
    if admin.vitals.debug_plan.try_send(answer).is_err() {
        return (
            StatusCode::TOO_MANY_REQUESTS,
            "others are waiting for the plan; try again\n",
        )
            .into_response();
    }
    match tokio::time::timeout(DEBUG_DEADLINE, answered).await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(_)) | Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the loop is busy; try again\n",
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
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
        };
        Loop {
            turned,
            synced,
            debug_plan,
            router: router(vitals, Metrics::new().unwrap()),
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
        assert_eq!(
            get(&host.router, "/debug/plan").await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_served_as_text() {
        let host = start();
        let (status, text) = get(&host.router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("kproxide_build_info"), "{text}");
    }
}
