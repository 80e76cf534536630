//! One Proxmox cluster as a callable thing: login, deadlines, failover, and answers turned into data or [`Error`]s.
//!
//! ```text
//! call ─► worker permit ─► endpoint (healthy first) ─► login if needed ─► deadline( transport ) ─► data │ Error
//!                              ▲            └ next endpoint: only if nothing was executed ┘
//! ```
//!
//! A write is repeated only when it certainly was not executed (no connection, status 595, or 401 and a new login). Every
//! other loss is returned with [`Executed::Unknown`], for the caller to look. Dropping a call's future is such a loss too.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use secrecy::ExposeSecret as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, timeout, timeout_at};
use tower::ServiceExt as _;

use super::answer::{Envelope, Said};
use super::auth::{Auth, Authorization, CredentialSource, Ticket, Unauthorized};
use super::classify;
use super::error::{Error, Executed, Failure, Meaning};
use super::limits::{Concurrency, Limits, Worker};
use super::request::{Call, Params};
use super::tls::Trust;
use super::transport::{ANSWER_BYTES_MAX, Endpoint, EndpointError, TransportError, https};
use kproxide_common::clock::ServerTime;
use kproxide_common::foreign;
use kproxide_common::metrics::ClusterRequests;

/// How long a connection may take to come about; given to the transport.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Proxmox gives up forwarding to another hypervisor after 30 s; its own verdict is worth more than ours.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(35);

/// For reads that an endpoint answers from what it knows itself, while there is another endpoint to ask: one that hangs
/// must not hold up the tick. Longer than the three seconds by which Proxmox delays a refusal.
const LOCAL_READ_DEADLINE: Duration = Duration::from_secs(5);

/// A write that was not sent within this time is given back, because what was seen of its VM is too old.
const WRITE_LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// For the question whether an endpoint is healthy.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);

/// How long an endpoint that failed is used only if no other is left.
const ENDPOINT_REST: Duration = Duration::from_secs(30);

/// A Proxmox cluster's API. Clones share login, limits and the memory of which endpoint is healthy.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    may_write: Option<MayWrite>,
    /// The endpoint whose word counts, once one has answered.
    pinned: Option<Arc<OnceLock<usize>>>,
    requests: Option<ClusterRequests>,
}

/// Asked just before a write leaves.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

struct Inner {
    endpoints: Vec<Endpoint>,
    health: Mutex<Health>,
    auth: Auth,
    login: tokio::sync::Mutex<()>,
    limits: Limits,
    /// There was an answer of a member of a cluster.
    is_clustered: AtomicBool,
    /// Of whichever endpoint answered last.
    time: ServerTime,
}

impl Client {
    /// A client of the cluster behind `endpoints`, tried in this order. No request is made yet.
    pub fn new(
        endpoints: Vec<Endpoint>,
        credentials: CredentialSource,
        concurrency: Concurrency,
    ) -> Client {
        let health = Health {
            preferred: 0,
            resting_until: vec![None; endpoints.len()],
        };
        Client {
            inner: Arc::new(Inner {
                endpoints,
                health: Mutex::new(health),
                auth: Auth::new(credentials),
                login: tokio::sync::Mutex::default(),
                limits: Limits::new(concurrency),
                is_clustered: AtomicBool::new(false),
                time: ServerTime::default(),
            }),
            may_write: None,
            pinned: None,
            requests: None,
        }
    }

    /// This client, whose writes leave only while `may_write` says so.
    #[must_use]
    pub fn writing_only_while(mut self, may_write: MayWrite) -> Client {
        self.may_write = Some(may_write);
        self
    }

    /// This client, which counts its requests there.
    #[must_use]
    pub fn counting(mut self, requests: Option<ClusterRequests>) -> Client {
        self.requests = requests;
        self
    }

    /// This client, for one look: what an endpoint answers from what it knows itself comes from the one that answered first, or not at all. On the two
    /// sides of a partition one has quorum, and the other lacks VMs.
    #[must_use]
    pub fn at_one_endpoint(&self) -> Client {
        let mut client = self.clone();
        client.pinned.get_or_insert_default();
        client
    }

    /// Some endpoint has answered, so that the others may not.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.as_ref().is_some_and(|at| at.get().is_some())
    }

    /// A member of a cluster has answered, now or at any time before.
    pub(super) fn is_or_was_clustered(&self, is_clustered: bool) -> bool {
        let before = self.inner.is_clustered.fetch_or(is_clustered, Relaxed);
        before || is_clustered
    }

    /// A client of the cluster behind `urls`, over HTTPS.
    ///
    /// # Errors
    /// An address or the trust settings cannot be used; says which and how to write it.
    pub fn https(
        urls: &[String],
        trust: &Trust,
        credentials: CredentialSource,
        concurrency: Concurrency,
    ) -> Result<Client, EndpointError> {
        let endpoints = urls
            .iter()
            .map(|url| https(url, trust, CONNECT_TIMEOUT))
            .collect::<Result<_, _>>()?;
        Ok(Client::new(endpoints, credentials, concurrency))
    }

    /// The cluster's semaphores; take a clone slot before cloning.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The user or token in use, once there was a request.
    pub async fn login_name(&self) -> Option<String> {
        self.inner.auth.name().await
    }

    /// Why those in use are not the ones that the Secret has now. `None`: they are, as far as is known.
    pub async fn unused_credentials(&self) -> Option<String> {
        self.inner.auth.unused().await
    }

    /// Whether the credentials go to whatever server `spec.endpoints` names, once there was a request.
    pub async fn sends_credentials_anywhere(&self) -> Option<bool> {
        self.inner.auth.is_anywhere().await
    }

    /// What time it is at the endpoint that answered last; `None`: it has not said so lately.
    pub fn server_time(&self) -> Option<jiff::Timestamp> {
        self.inner.time.now()
    }

    /// Makes a call and decodes the `data` of its answer.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        Ok(self.fetch_counted(call).await?.0)
    }

    /// As [`Self::fetch`], with the `total` that lists carry beside `data`.
    pub(super) async fn fetch_counted<T: DeserializeOwned>(
        &self,
        call: Call,
    ) -> Result<(T, Option<u64>), Error> {
        let (endpoint, body) = self.send(&call).await?;
        let envelope: Envelope<T> = serde_json::from_slice(&body).map_err(|error| {
            let (meaning, text) = (Meaning::Undecodable, error.to_string());
            let failure = Failure::new(meaning, Executed::Yes, Some(200), text);
            self.fail(endpoint, &call, failure)
        })?;
        Ok((envelope.data, envelope.total))
    }

    /// Makes a call whose answer carries nothing.
    pub(super) async fn perform(&self, call: Call) -> Result<(), Error> {
        let IgnoredAny = self.fetch(call).await?;
        Ok(())
    }

    /// The body of a successful answer, and the endpoint that gave it.
    async fn send(&self, call: &Call) -> Result<(usize, Bytes), Error> {
        let leave_by = self.leave_by(call);
        let _worker = self.worker(call, leave_by).await?;
        let mut last = None;
        let local = call.repeatable && call.hypervisor.is_none();
        let pinned = self.pinned.as_ref().filter(|_| local);
        let at = pinned.and_then(|at| at.get());
        let order = at.map_or_else(|| self.order(), |endpoint| vec![*endpoint]);
        let others = self.inner.endpoints.len() > 1;
        for (position, &endpoint) in order.iter().enumerate() {
            let is_last = position + 1 == order.len() && at.is_none();
            let deadline = if local && others && !is_last {
                LOCAL_READ_DEADLINE
            } else {
                REQUEST_DEADLINE
            };
            let answer = self.attempt(endpoint, call, deadline, leave_by).await;
            let error = match answer {
                Ok(body) => {
                    self.prefer(endpoint);
                    pin(pinned, endpoint);
                    return Ok((endpoint, body));
                }
                Err(error) => error,
            };
            match self.verdict(endpoint, call, error).await {
                Verdict::Final(error) => {
                    pin(pinned, endpoint);
                    return Err(error);
                }
                Verdict::NextEndpoint(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            let text = "no endpoint is configured: `endpoints` is empty";
            let failure = Failure::new(Meaning::Unreachable, Executed::No, None, text);
            Error::new(call, "Proxmox", failure)
        }))
    }

    /// `None`: a read, which does no harm however late it is.
    fn leave_by(&self, call: &Call) -> Option<Instant> {
        (!call.repeatable).then(|| Instant::now() + WRITE_LEAVES_WITHIN)
    }

    async fn worker(
        &self,
        call: &Call,
        leave_by: Option<Instant>,
    ) -> Result<Option<Worker>, Error> {
        if !call.protected {
            return Ok(None);
        }
        // Without a hypervisor it is served by the endpoint's own daemon, whichever that is.
        let hypervisor = call.hypervisor.as_deref().unwrap_or_default();
        let limits = &self.inner.limits;
        let Some(leave_by) = leave_by else {
            return Ok(Some(limits.to_read(hypervisor).await));
        };
        match timeout_at(leave_by, limits.to_write(hypervisor)).await {
            Ok(worker) => Ok(Some(worker)),
            Err(_) => Err(withheld(call, "its turn did not come in time")),
        }
    }

    /// As late as possible: turn, login and other endpoints may have taken a while.
    fn check_leave(&self, call: &Call, leave_by: Option<Instant>) -> Result<(), Error> {
        if leave_by.is_some_and(|by| Instant::now() > by) {
            return Err(withheld(call, "it could not leave in time"));
        }
        match &self.may_write {
            Some(may_write) if leave_by.is_some() && !may_write() => {
                Err(withheld(call, "somebody else leads, or did in between"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The call at one endpoint, with one more login if the first is refused.
    async fn attempt(
        &self,
        endpoint: usize,
        call: &Call,
        deadline: Duration,
        leave_by: Option<Instant>,
    ) -> Result<Bytes, Error> {
        let mut logins_left = 2;
        loop {
            let mut request = call.request();
            let generation = match self.authorize(endpoint, call, &mut request).await? {
                Some(generation) => generation,
                None if logins_left > 0 => {
                    logins_left -= 1;
                    self.log_in(endpoint, call, deadline).await?;
                    continue;
                }
                None => return Err(self.unauthorized(endpoint, call, String::new())),
            };
            self.check_leave(call, leave_by)?;
            let answer = self.exchange(endpoint, call, request, deadline).await?;
            if answer.status() == StatusCode::UNAUTHORIZED && logins_left > 0 {
                logins_left -= 1;
                if self.inner.auth.refused(generation).await {
                    continue;
                }
            } else if answer.status().is_success() {
                self.inner.auth.accepted(generation).await;
            }
            return self.interpret(endpoint, call, answer);
        }
    }

    /// Adds credentials to a request; none means that a login must come first.
    async fn authorize(
        &self,
        endpoint: usize,
        call: &Call,
        request: &mut http::Request<Bytes>,
    ) -> Result<Option<u64>, Error> {
        let write = request.method() != http::Method::GET;
        let endpoints = &self.inner.endpoints;
        match self.inner.auth.authorize(endpoints, write).await {
            Ok(Authorization::Headers {
                headers,
                generation,
            }) => {
                request.headers_mut().extend(headers);
                Ok(Some(generation))
            }
            Ok(Authorization::Login { .. }) => Ok(None),
            Err(Unauthorized::Unusable(problem)) => {
                let (meaning, text) = (Meaning::CredentialsUnusable, problem.to_string());
                let failure = Failure::new(meaning, Executed::No, None, text);
                Err(self.fail(endpoint, call, failure))
            }
            Err(Unauthorized::NotAllowed(problem)) => {
                let failure =
                    Failure::new(Meaning::EndpointNotAllowed, Executed::No, None, problem);
                Err(self.fail(endpoint, call, failure))
            }
            // The text has no time in it, so that it is reported once and not with each tick.
            Err(Unauthorized::Refused) => {
                let text =
                    "refused a moment ago; tried again before long, or when the credentials change";
                Err(self.unauthorized(endpoint, call, text.to_owned()))
            }
        }
    }

    /// Proxmox: `POST /access/ticket` needs no permission and no CSRF token, and repeating it does no harm.
    async fn log_in(&self, endpoint: usize, call: &Call, deadline: Duration) -> Result<(), Error> {
        let _one_at_a_time = self.inner.login.lock().await;
        let endpoints = &self.inner.endpoints;
        let (username, password) = match self.inner.auth.authorize(endpoints, false).await {
            Ok(Authorization::Login { username, password }) => (username, password),
            // Another call has logged in while this one waited for its turn.
            Ok(Authorization::Headers { .. }) => return Ok(()),
            Err(
                Unauthorized::Unusable(_) | Unauthorized::NotAllowed(_) | Unauthorized::Refused,
            ) => {
                return Err(self.unauthorized(endpoint, call, String::new()));
            }
        };
        let mut login = Call::post(&["access", "ticket"]).params(
            Params::new()
                .with("username", username)
                .with("password", password.expose_secret()),
        );
        login.repeatable = true;
        let answer = self
            .exchange(endpoint, &login, login.request(), deadline)
            .await?;
        let body = match self.interpret(endpoint, &login, answer) {
            Ok(body) => body,
            Err(error) => {
                if error.meaning == Meaning::Unauthorized {
                    self.inner.auth.login_refused().await;
                }
                return Err(error);
            }
        };
        let ticket = serde_json::from_slice::<Envelope<Ticket>>(&body).map_err(|_| {
            // The decoder's words could show the ticket.
            let text = "the answer to the login holds no ticket";
            let failure = Failure::new(Meaning::Undecodable, Executed::No, Some(200), text);
            self.fail(endpoint, &login, failure)
        })?;
        if ticket.data.needs_second_factor {
            let meaning = Meaning::CredentialsUnusable;
            let text = "the user needs a second factor at login: use an API token";
            let failure = Failure::new(meaning, Executed::No, Some(200), text);
            return Err(self.fail(endpoint, &login, failure));
        }
        self.inner.auth.logged_in(ticket.data).await;
        Ok(())
    }

    /// One request, one answer, within the deadline.
    async fn exchange(
        &self,
        endpoint: usize,
        call: &Call,
        request: http::Request<Bytes>,
        deadline: Duration,
    ) -> Result<Response<Bytes>, Error> {
        let transport = self.inner.endpoints[endpoint].transport.clone();
        let asked = Instant::now();
        let answer = match timeout(deadline, transport.oneshot(request)).await {
            Ok(Ok(answer)) if answer.body().len() > ANSWER_BYTES_MAX => {
                Err(TransportError::TooLarge)
            }
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(TransportError::Deadline(deadline)),
        };
        if let Ok(answer) = &answer {
            self.inner.time.note(answer.headers());
        }
        if let Some(requests) = &self.requests {
            requests.count(&call.template(), result(&answer), asked.elapsed());
        }
        answer.map_err(|cause| {
            let (meaning, executed) = match &cause {
                TransportError::Connect(_) => (Meaning::Unreachable, Executed::No),
                TransportError::Untrusted(_) => (Meaning::Untrusted, Executed::No),
                TransportError::TooLarge => (Meaning::Undecodable, Executed::Yes),
                TransportError::Broken(_) | TransportError::Deadline(_) => {
                    (Meaning::AnswerLost, Executed::Unknown)
                }
            };
            let failure = Failure {
                meaning,
                executed,
                status: None,
                text: String::new(),
                cause: Some(cause),
            };
            self.fail(endpoint, call, failure)
        })
    }

    fn interpret(
        &self,
        endpoint: usize,
        call: &Call,
        answer: Response<Bytes>,
    ) -> Result<Bytes, Error> {
        let status = answer.status();
        tracing::trace!(%call, endpoint = %self.inner.endpoints[endpoint].name, status = status.as_u16(), "answered");
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let said = Said::by(&answer);
        let (meaning, executed) = if status.is_redirection() {
            (Meaning::Undecodable, Executed::No)
        } else {
            classify::answer(status.as_u16(), &said.text, &said.parameters)
        };
        let failure = Failure::new(
            meaning,
            executed,
            Some(status.as_u16()),
            foreign::said(&said.text),
        );
        Err(self.fail(endpoint, call, failure))
    }

    /// What a failure says about the endpoint, and whether the next one may be asked.
    async fn verdict(&self, endpoint: usize, call: &Call, error: Error) -> Verdict {
        let answered = error.status().is_some();
        if matches!(error.meaning, Meaning::Unreachable | Meaning::Untrusted) {
            self.rest(endpoint);
            return Verdict::NextEndpoint(error);
        }
        // Status 595 has two readings, and only one of them is the endpoint's fault.
        if error.status() == Some(595) && !self.answers(endpoint).await {
            self.rest(endpoint);
            return Verdict::NextEndpoint(error.mean(Meaning::EndpointDown));
        }
        if error.meaning == Meaning::AnswerLost && !answered {
            self.rest(endpoint);
            // A hypervisor that hangs would hang behind the next endpoint too.
            let may_answer_elsewhere = call.hypervisor.is_none() || !timed_out(&error);
            if call.repeatable && may_answer_elsewhere {
                return Verdict::NextEndpoint(error);
            }
        } else if answered {
            self.prefer(endpoint);
        }
        Verdict::Final(error)
    }

    /// Does the endpoint's own daemon answer? Asked by a protected call of little cost; a refusal is an answer.
    async fn answers(&self, endpoint: usize) -> bool {
        let probe = Call::get(&["cluster", "status"]).protected();
        let mut request = probe.request();
        if !matches!(
            self.authorize(endpoint, &probe, &mut request).await,
            Ok(Some(_))
        ) {
            return false;
        }
        self.exchange(endpoint, &probe, request, PROBE_DEADLINE)
            .await
            .is_ok_and(|answer| answer.status().as_u16() < 595)
    }

    fn fail(&self, endpoint: usize, call: &Call, failure: Failure) -> Error {
        Error::new(call, &self.inner.endpoints[endpoint].name, failure)
    }

    fn unauthorized(&self, endpoint: usize, call: &Call, text: String) -> Error {
        let failure = Failure::new(Meaning::Unauthorized, Executed::No, Some(401), text);
        self.fail(endpoint, call, failure)
    }

    fn order(&self) -> Vec<usize> {
        self.health(|health| health.order(Instant::now()))
    }

    fn prefer(&self, endpoint: usize) {
        self.health(|health| {
            health.preferred = endpoint;
            health.resting_until[endpoint] = None;
        });
    }

    fn rest(&self, endpoint: usize) {
        let until = Instant::now() + ENDPOINT_REST;
        self.health(|health| health.resting_until[endpoint] = Some(until));
    }

    fn health<T>(&self, use_it: impl FnOnce(&mut Health) -> T) -> T {
        let mut health = self
            .inner
            .health
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        use_it(&mut health)
    }
}

/// What became of a request, in one of few words.
fn result(answer: &Result<Response<Bytes>, TransportError>) -> &'static str {
    let answer = match answer {
        Ok(answer) => answer,
        Err(TransportError::Connect(_)) => return "unreachable",
        Err(TransportError::Untrusted(_)) => return "untrusted",
        Err(TransportError::TooLarge) => return "too-large",
        Err(TransportError::Broken(_)) => return "broken",
        Err(TransportError::Deadline(_)) => return "deadline",
    };
    match answer.status().as_u16() {
        200..=299 => "ok",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        500 => "500",
        501 => "501",
        503 => "503",
        595 => "595",
        596 => "596",
        599 => "599",
        _ => "other",
    }
}

enum Verdict {
    Final(Error),
    NextEndpoint(Error),
}

fn pin(pinned: Option<&Arc<OnceLock<usize>>>, endpoint: usize) {
    if let Some(at) = pinned {
        at.get_or_init(|| endpoint);
    }
}

fn withheld(call: &Call, why: &str) -> Error {
    let failure = Failure::new(Meaning::Withheld, Executed::No, None, why);
    Error::new(call, "Proxmox", failure)
}

fn timed_out(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(TransportError::Deadline(_)) = error.downcast_ref() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Which endpoints to ask first. The one that answered last stays the first, so that a healed one causes no flapping.
struct Health {
    preferred: usize,
    resting_until: Vec<Option<Instant>>,
}

impl Health {
    fn order(&self, now: Instant) -> Vec<usize> {
        let count = self.resting_until.len();
        let (healthy, resting): (Vec<_>, Vec<_>) = (0..count)
            .map(|step| (self.preferred + step) % count)
            .partition(|&endpoint| self.resting_until[endpoint].is_none_or(|until| until <= now));
        [healthy, resting].concat()
    }
}

#[cfg(test)]
mod tests;
