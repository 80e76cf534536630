//! Faults between a client and a simulated server: delays, refusals, lost answers, and the moment at which the client's
//! process dies. One [`Faults`] stands between one host process and all servers it talks to, so that requests to Proxmox
//! and to Kubernetes are counted together.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use rand::Rng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower::Service;

use crate::matcher::Matcher;
use crate::rng::{Seed, Spread};
use crate::signal::Signal;

/// How long a server that hangs is waited for by the one in front of it.
const HANG: Duration = Duration::from_secs(30);

/// Marks a response that stands for a connection that broke before an answer: in process it becomes a [`Broken`] error,
/// on the wire the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut(pub Broken);

impl Cut {
    /// A response that stands for a broken connection.
    pub fn response(how: Broken) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response.extensions_mut().insert(Cut(how));
        response
    }

    /// How the connection broke that a response stands for, if it stands for one.
    pub fn of<Body>(response: &Response<Body>) -> Option<Broken> {
        response.extensions().get::<Cut>().map(|cut| cut.0)
    }
}

/// There is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The request did not reach the server.
    #[error("connection refused")]
    Refused,
    /// The request may have taken effect.
    #[error("connection closed before the answer was complete")]
    Lost,
}

/// Something that goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The request arrives later, even if its client is dead by then.
    Delay(Duration),
    /// The request does not arrive: [`Broken::Refused`].
    Refuse,
    /// The server answers 500 and does nothing.
    Fail,
    /// The request takes effect and its answer is lost: [`Broken::Lost`].
    LoseAnswer,
    /// After 30 s a server in between answers that it waited too long (596, or 504 from Kubernetes). Whether the request
    /// took effect is part of the fault; the client cannot know.
    Hang { applied: bool },
}

/// How often which fault happens by chance: shares from 0 to 1 of all requests, drawn in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    pub delay: f64,
    pub refuse: f64,
    pub fail: f64,
    pub lose_answer: f64,
    pub hang: f64,
}

/// When the client's process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CrashPoint {
    /// The outgoing request at which it happens; the first is 1.
    pub request: u64,
    pub moment: Moment,
}

/// A moment in the life of a request, as the client's process dies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Moment {
    /// It was not sent.
    Before,
    /// It took effect, and the process did not get the answer.
    Applied,
    /// The process got the answer and did not send another request.
    Answered,
}

/// In whose words a failed request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Proxmox,
    Kubernetes,
}

/// One fault that happened, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Injected {
    /// The number of the request.
    pub request: u64,
    pub method: String,
    pub path: String,
    pub fault: Fault,
}

/// One death of the client's process that happened, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Death {
    pub method: String,
    pub path: String,
    pub moment: Moment,
}

/// All faults of one client process. Clones are the same.
#[derive(Clone)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
    /// True from the crash on.
    crashed: Signal<bool>,
    /// Requests that are on their way. They are not the client's any more: they arrive when it is dead, too.
    late: Arc<Mutex<JoinSet<()>>>,
}

struct Plan {
    rng: SmallRng,
    rates: Rates,
    scripted: Vec<Scripted>,
    crash: Option<CrashPoint>,
    requests: u64,
    happened: Vec<Injected>,
    died: Vec<Death>,
}

struct Scripted {
    matcher: Matcher,
    fault: Fault,
    times: u32,
}

impl Faults {
    /// No faults yet. `seed` decides what happens by chance later.
    pub fn new(seed: u64) -> Faults {
        let plan = Plan {
            rng: Seed(seed).stream("faults", ""),
            rates: Rates::default(),
            scripted: Vec::new(),
            crash: None,
            requests: 0,
            happened: Vec::new(),
            died: Vec::new(),
        };
        Faults {
            plan: Arc::new(Mutex::new(plan)),
            crashed: Signal::new(false),
            late: Arc::default(),
        }
    }

    /// From now on, faults happen by chance this often.
    pub fn set_rates(&self, rates: Rates) {
        self.plan().rates = rates;
    }

    /// The next `times` requests that `matcher` covers have this fault. Scripted faults come before those by chance.
    pub fn inject(&self, matcher: Matcher, fault: Fault, times: u32) {
        self.plan().scripted.push(Scripted {
            matcher,
            fault,
            times,
        });
    }

    /// From now on nothing goes wrong, neither by chance nor by script. A crash point stays.
    pub fn calm(&self) {
        let mut plan = self.plan();
        plan.rates = Rates::default();
        plan.scripted.clear();
    }

    /// The client's process dies at this point: no further request leaves it, and those under way never return.
    pub fn crash_at(&self, point: CrashPoint) {
        self.plan().crash = Some(point);
    }

    /// Returns once the crash point is reached. Whoever runs the client then drops it.
    pub async fn crashed(&self) {
        self.crashed.wait_for(|crashed| *crashed).await;
    }

    /// Lets the next process of the same client send requests: counting starts anew and there is no crash point.
    pub fn revive(&self) {
        let mut plan = self.plan();
        plan.crash = None;
        plan.requests = 0;
        self.crashed.set(false);
    }

    /// Requests that the client sent, or tried to.
    pub fn requests(&self) -> u64 {
        self.plan().requests
    }

    /// Every fault so far.
    pub fn happened(&self) -> Vec<Injected> {
        self.plan().happened.clone()
    }

    /// Every crash point that was reached so far.
    pub fn died(&self) -> Vec<Death> {
        self.plan().died.clone()
    }

    /// The service as this client sees it.
    pub fn around<S>(&self, service: S, dialect: Dialect) -> Faulty<S> {
        Faulty {
            service,
            dialect,
            faults: self.clone(),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dead(&self) -> bool {
        self.crashed.get()
    }

    /// Decides what happens to the next request: either a fault or the process's death, so that no fault keeps the process from dying where it shall.
    fn next(&self, method: &Method, path: &str) -> (Option<Fault>, Option<Moment>) {
        let mut plan = self.plan();
        plan.requests += 1;
        let number = plan.requests;
        let crash = plan.crash.filter(|point| point.request == number);
        if let Some(CrashPoint { moment, .. }) = crash {
            return (None, Some(moment));
        }
        let fault = plan.draw(method, path);
        if let Some(fault) = fault {
            plan.happened.push(Injected {
                request: number,
                method: method.to_string(),
                path: path.to_owned(),
                fault,
            });
        }
        (fault, None)
    }

    /// The process dies.
    fn kill(&self, (method, path): (Method, String), moment: Moment) {
        self.plan().died.push(Death {
            method: method.to_string(),
            path,
            moment,
        });
        self.crashed.set(true);
    }

    /// Sends a request so much later, whatever becomes of its client. An answer comes only to a client that still waits.
    async fn later<S, Body>(
        &self,
        length: Duration,
        mut service: S,
        request: Request<Bytes>,
    ) -> Option<Response<Body>>
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible> + Send + 'static,
        S::Future: Send,
        Body: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            while late.try_join_next().is_some() {}
            late.spawn(async move {
                tokio::time::sleep(length).await;
                let Ok(response) = service.call(request).await;
                // A client that is dead does not want the answer any more.
                let _ = sender.send(response);
            });
        }
        receiver.await.ok()
    }
}

impl Plan {
    fn draw(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let scripted = self
            .scripted
            .iter_mut()
            .find(|rule| rule.times > 0 && rule.matcher.covers(method, path));
        if let Some(rule) = scripted {
            rule.times -= 1;
            return Some(rule.fault);
        }
        let Rates {
            delay,
            refuse,
            fail,
            lose_answer,
            hang,
        } = self.rates;
        let mut left: f64 = self.rng.random();
        let mut chosen = |share: f64| {
            let hit = left >= 0.0 && left < share;
            left -= share;
            hit
        };
        if chosen(delay) {
            let length = Spread::new(0.5, 3.0).sample(&mut self.rng);
            return Some(Fault::Delay(length));
        }
        if chosen(refuse) {
            return Some(Fault::Refuse);
        }
        if chosen(fail) {
            return Some(Fault::Fail);
        }
        if chosen(lose_answer) {
            return Some(Fault::LoseAnswer);
        }
        if chosen(hang) {
            let applied = self.rng.random();
            return Some(Fault::Hang { applied });
        }
        None
    }
}

/// A service behind the faults of one client.
#[derive(Clone)]
pub struct Faulty<S> {
    service: S,
    dialect: Dialect,
    faults: Faults,
}

impl<S, Body> Service<Request<Bytes>> for Faulty<S>
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    Body: From<Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Broken>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        // The wrapped service cannot fail.
        self.service.poll_ready(context).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        // The clone takes the place of the service that was found ready.
        let ready = self.service.clone();
        let service = std::mem::replace(&mut self.service, ready);
        Box::pin(send(service, request, self.dialect, self.faults.clone()))
    }
}

async fn send<S, Body>(
    mut service: S,
    request: Request<Bytes>,
    dialect: Dialect,
    faults: Faults,
) -> Result<Response<Body>, Broken>
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
    Body: From<Bytes> + Send + 'static,
{
    if faults.is_dead() {
        return pending().await;
    }
    let (fault, crash) = faults.next(request.method(), request.uri().path());
    let named = (request.method().clone(), request.uri().path().to_owned());
    if crash == Some(Moment::Before) {
        faults.kill(named, Moment::Before);
        return pending().await;
    }
    let response = match fault {
        // Where the world ended meanwhile the connection breaks.
        Some(Fault::Delay(length)) => faults
            .later(length, service, request)
            .await
            .ok_or(Broken::Lost)?,
        Some(Fault::Refuse) => return Err(Broken::Refused),
        Some(Fault::Fail) => return Ok(dialect.failed().map(Body::from)),
        Some(Fault::Hang { applied: false }) => {
            tokio::time::sleep(HANG).await;
            return Ok(dialect.timed_out().map(Body::from));
        }
        Some(Fault::LoseAnswer | Fault::Hang { applied: true }) | None => {
            let Ok(response) = service.call(request).await;
            response
        }
    };
    if faults.is_dead() {
        return pending().await;
    }
    match crash {
        Some(Moment::Applied) => {
            faults.kill(named, Moment::Applied);
            return pending().await;
        }
        Some(Moment::Answered) => faults.kill(named, Moment::Answered),
        Some(Moment::Before) | None => {}
    }
    match fault {
        Some(Fault::LoseAnswer) => Err(Broken::Lost),
        Some(Fault::Hang { .. }) => {
            tokio::time::sleep(HANG).await;
            Ok(dialect.timed_out().map(Body::from))
        }
        Some(Fault::Delay(_) | Fault::Refuse | Fault::Fail) | None => {
            Cut::of(&response).map_or(Ok(response), Err)
        }
    }
}

impl Dialect {
    /// A server's error that says that nothing was done.
    fn failed(self) -> Response<Bytes> {
        match self {
            // The one text with which Proxmox says for certain that it did nothing.
            Dialect::Proxmox => {
                let text = "got no worker upid - start worker failed";
                respond(
                    500,
                    text,
                    json!({"data": null, "message": format!("{text}\n")}).to_string(),
                )
            }
            Dialect::Kubernetes => status(
                500,
                "InternalError",
                "an error on the server has prevented the request from succeeding",
            ),
        }
    }

    fn timed_out(self) -> Response<Bytes> {
        match self {
            Dialect::Proxmox => respond(596, "Connection timed out", String::new()),
            Dialect::Kubernetes => status(
                504,
                "Timeout",
                "request did not complete within the allotted timeout",
            ),
        }
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response<Bytes> {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    });
    let mut response = respond(code, "", body.to_string());
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    response
}

fn respond(code: u16, reason: &str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() =
        StatusCode::from_u16(code).expect("the codes of faults have three digits");
    if let Ok(reason) = hyper::ext::ReasonPhrase::try_from(reason.as_bytes().to_vec()) {
        response.extensions_mut().insert(reason);
    }
    response
}

#[cfg(test)]
mod tests;
