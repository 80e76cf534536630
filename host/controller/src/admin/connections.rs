//! Who is connected to the admin port. Any pod may reach it, so what one of them can hold there is bounded: connections, the time of each, and the
//! memory of their headers. A newcomer always gets in, because it may be the kubelet's probe.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

/// So many at once: probes, Prometheus and a few people are far fewer.
const CONNECTIONS_MAX: usize = 64;
/// From the connection to the end of its request's headers.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// From the connection to the end of its answer: a reader that is slower holds the memory of the answer for nothing.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(60);
const HEADERS_MAX: usize = 16 << 10;
/// After a connection that could not be taken, for want of descriptors for example: so the loop below does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Connection {
    task: AbortHandle,
    /// Its request is complete.
    asked: Arc<AtomicBool>,
}

/// Serves for ever.
pub async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let mut tasks = JoinSet::new();
    // In the order in which they came.
    let mut open: Vec<Connection> = Vec::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        open.retain(|connection| !connection.task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            let silent = |it: &Connection| !it.asked.load(Ordering::Relaxed);
            let loser = open.remove(open.iter().position(silent).unwrap_or(0));
            loser.task.abort();
            // Its place is free once it has ended.
            tasks.join_next().await;
        }
        let asked = Arc::new(AtomicBool::new(false));
        let task = tasks.spawn(answer(stream, router.clone(), asked.clone()));
        open.push(Connection { task, asked });
    }
}

/// One request: a connection that stays would hold a place for nothing.
async fn answer(stream: TcpStream, router: Router, asked: Arc<AtomicBool>) {
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        router.clone().oneshot(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .max_buf_size(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // However it ends, nobody here can do anything about it.
    let _ = timeout(CONNECTION_DEADLINE, served).await;
}

#[cfg(test)]
mod tests;
