use std::sync::Mutex;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::BoxError;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(holder: &str, at: Instant) -> Seen {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    };
    Seen { spec, at }
}

#[tokio::test(start_paused = true)]
async fn the_rule() {
    let start = Instant::now();
    let later = |seconds: u32| start + seconds * SECOND;
    let check = |holder: Option<&str>, leading_until: Option<u32>, now: u32, expected: Step| {
        let seen = holder.map(|holder| seen(holder, start));
        let step = next(seen.as_ref(), "me", leading_until.map(later), later(now));
        assert_eq!(step, expected, "{holder:?} {leading_until:?} {now}");
    };
    check(None, None, 0, Step::Acquire);
    check(Some(""), None, 0, Step::Acquire);
    check(Some("me"), None, 0, Step::Acquire);
    check(Some("other"), None, 0, Step::Wait(later(15)));
    check(Some("other"), None, 14, Step::Wait(later(15)));
    check(Some("other"), None, 15, Step::Acquire);
    check(Some("me"), Some(10), 9, Step::Renew);
    check(Some("me"), Some(10), 10, Step::StepDown);
    check(Some("other"), Some(10), 1, Step::StepDown);
    check(None, Some(10), 1, Step::StepDown);
}

/// The Lease, behind a server that can be told to be silent.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    lease: Option<Value>,
    version: u64,
    silent: bool,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        Client::from_service(tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                if server.0.lock().unwrap().silent {
                    std::future::pending::<()>().await;
                }
                let method = request.method().clone();
                let body = request.into_body().collect().await?.to_bytes();
                let (status, answer) =
                    server.answer(&method, serde_json::from_slice(&body).unwrap_or_default());
                let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, BoxError>(response)
            }
        }))
    }

    fn answer(&self, method: &Method, mut body: Value) -> (StatusCode, Value) {
        let failure = |code: StatusCode, reason: &str| {
            (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": reason}),
            )
        };
        let mut state = self.0.lock().unwrap();
        let present = state.lease.clone();
        match (method.as_str(), present) {
            ("GET", Some(lease)) => return (StatusCode::OK, lease),
            ("GET" | "PUT", None) => return failure(StatusCode::NOT_FOUND, "NotFound"),
            ("POST", Some(_)) => return failure(StatusCode::CONFLICT, "AlreadyExists"),
            ("PUT", Some(lease))
                if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] =>
            {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            _ => {}
        }
        state.version += 1;
        body["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.lease = Some(body.clone());
        (StatusCode::OK, body)
    }

    fn spec(&self, field: &str) -> Value {
        self.0
            .lock()
            .unwrap()
            .lease
            .as_ref()
            .map(|lease| lease["spec"][field].clone())
            .unwrap_or_default()
    }

    fn silence(&self, silent: bool) {
        self.0.lock().unwrap().silent = silent;
    }
}

struct Replica {
    fence: Fence,
    stop: CancellationToken,
    task: JoinSet<()>,
}

fn replica(server: &Server, identity: &str) -> Replica {
    let settings = LeaseSettings {
        namespace: "kproxide".to_owned(),
        name: "kproxide".to_owned(),
        identity: identity.to_owned(),
        duration: 15 * SECOND,
        renew_deadline: 10 * SECOND,
        retry: 2 * SECOND,
    };
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let stop = CancellationToken::new();
    let (fence, run) = elector(
        server.client(),
        settings,
        clock,
        format!("r{identity}"),
        stop.clone(),
    );
    let mut task = JoinSet::new();
    task.spawn(run);
    Replica { fence, stop, task }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_leading() {
    let server = Server::default();
    let a = replica(&server, "a");
    seconds(1).await;
    let b = replica(&server, "b");
    for _ in 0..60 {
        seconds(1).await;
        assert!(a.fence.leads() && !b.fence.leads());
    }
    assert_eq!(&*a.fence.epoch(), "0-ra");
    assert_eq!(server.spec("leaseTransitions"), json!(0));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_at_once() {
    let server = Server::default();
    let mut a = replica(&server, "a");
    seconds(1).await;
    let b = replica(&server, "b");
    seconds(5).await;
    a.stop.cancel();
    while a.task.join_next().await.is_some() {}
    assert!(!a.fence.leads());
    assert_eq!(server.spec("holderIdentity"), json!(""));
    seconds(2).await;
    assert!(b.fence.leads());
    assert_eq!(&*b.fence.epoch(), "1-rb");
}

/// The fence closes before anybody else may acquire.
#[tokio::test(start_paused = true)]
async fn f74_a_leader_that_cannot_renew_stops_before_another_begins() {
    let server = Server::default();
    let a = replica(&server, "a");
    seconds(3).await;
    let until = a.fence.is_leader_until().unwrap();
    server.silence(true);
    tokio::time::sleep_until(until).await;
    assert!(!a.fence.leads());
    // From the server's side the Lease is still held.
    server.silence(false);
    let b = replica(&server, "b");
    seconds(1).await;
    assert!(!(a.fence.leads() && b.fence.leads()));
    seconds(30).await;
    assert!(a.fence.leads() ^ b.fence.leads());
}

/// A leader that is killed does not release; the next one waits for the whole duration from when it last saw a change.
#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_waited_for() {
    let server = Server::default();
    let mut a = replica(&server, "a");
    seconds(1).await;
    let b = replica(&server, "b");
    seconds(20).await;
    a.task.abort_all();
    while a.task.join_next().await.is_some() {}
    seconds(12).await;
    assert!(!b.fence.leads());
    seconds(6).await;
    assert!(b.fence.leads());
}

#[tokio::test(start_paused = true)]
async fn f73_a_leader_whose_lease_was_taken_steps_down() {
    let server = Server::default();
    let a = replica(&server, "a");
    seconds(3).await;
    {
        let mut state = server.0.lock().unwrap();
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!(version);
        lease["spec"]["holderIdentity"] = json!("thief");
    }
    seconds(5).await;
    assert!(!a.fence.leads());
}
