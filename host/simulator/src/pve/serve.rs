//! The way of one request: the checks in the order in which the real daemons make them, then the handler.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use tokio::sync::oneshot;

use crate::faults::{Broken, Cut};
use crate::holds::{Hold, Holds, Passed, Phase};
use crate::matcher::Matcher;

use super::access::Identity;
use super::answer::{Answer, Params, Refusal, Reply, respond, takes_body};
use super::observe::AuditEntry;
use super::routes::{self, Endpoint, Route, Vars};
use super::state::Presence;
use super::{
    Pve, agent, clone, cluster, config, control, create, destroy, nodes, params, pause, permission,
    pools, power, qemu, resize, tasks,
};

/// How long a server waits for another one that takes connections and does not answer.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);

/// For so long a server that has hung keeps a connection. No client waits for it.
const SILENCE: Duration = Duration::from_secs(60 * 60);

/// What a handler gets.
pub(crate) struct Call {
    pub(crate) pve: Pve,
    pub(crate) who: Identity,
    /// The server that runs the handler.
    pub(crate) node: String,
    vars: Vars,
    pub(crate) params: Params,
    /// Distinguishes the random draws of this request from those of all others.
    pub(crate) number: u64,
}

impl Call {
    /// A variable part of the path; the route has it.
    pub(crate) fn var(&self, name: &str) -> &str {
        self.vars.get(name).map_or("", String::as_str)
    }

    /// The `vmid` of the path; the parameter check made sure that it is one.
    pub(crate) fn vmid(&self) -> u32 {
        self.var("vmid").parse().unwrap_or(0)
    }
}

impl Pve {
    /// Answers one request. It is worked on by a task of this world, so that dropping the returned future does not undo
    /// what the request causes.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        let (sender, receiver) = oneshot::channel();
        let pve = self.clone();
        self.spawn(async move {
            let response = pve.serve(request).await;
            // A client that went away does not want the answer any more.
            let _ = sender.send(response);
        });
        // Without an answer the world ended, or a handler panicked (which was reported): the connection breaks.
        let broken = |_| Cut::response(Broken::Lost);
        receiver.await.unwrap_or_else(broken)
    }

    /// The API as a [`tower::Service`].
    pub fn service(&self) -> PveService {
        PveService {
            pve: self.clone(),
            controlled: false,
        }
    }

    /// The API with the control endpoint `/_sim/…` beside it, through which a test that runs in another process moves
    /// the world. It asks for no credentials: serve it on loopback only.
    pub fn service_with_control(&self) -> PveService {
        PveService {
            pve: self.clone(),
            controlled: true,
        }
    }

    /// Catches the next request that `matcher` covers.
    pub fn hold(&self, matcher: Matcher, phase: Phase) -> Hold {
        self.holds().hold(matcher, phase)
    }

    /// All holds of this server.
    pub fn holds(&self) -> &Holds {
        &self.inner.holds
    }

    async fn serve(&self, request: Request<Bytes>) -> Response<Bytes> {
        let Some(entry) = self.entry(&request) else {
            return Cut::response(Broken::Refused);
        };
        if self.presence(&entry) == Some(Presence::Hung) {
            pause(SILENCE).await;
            return Cut::response(Broken::Lost);
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if self.holds().pass(Phase::Before, &method, &path).await == Passed::Discarded {
            return Cut::response(Broken::Lost);
        }
        let (who, answer, params) = self.decide(&entry, &request).await;
        if matches!(answer, Err(Refusal::Unauthorized(_))) {
            pause(Duration::from_secs_f64(self.timings().unauthorized_s)).await;
        }
        if method != Method::GET {
            self.record(&request, who, &answer, &params);
        }
        if self.holds().pass(Phase::After, &method, &path).await == Passed::Discarded {
            return Cut::response(Broken::Lost);
        }
        respond(answer)
    }

    /// The server that takes the request: the one that the URI or the `Host` header names, by name or address, otherwise
    /// the first that is up. Nobody answers for a server that is down.
    fn entry(&self, request: &Request<Bytes>) -> Option<String> {
        let header = request
            .headers()
            .get(http::header::HOST)
            .and_then(|value| value.to_str().ok());
        let header = header.map(|host| host.rsplit_once(':').map_or(host, |(host, _)| host));
        let state = self.state();
        let named = request.uri().host().or(header).and_then(|host| {
            let by_address = || state.nodes.values().find(|node| node.ip() == host);
            state.nodes.get(host).or_else(by_address)
        });
        match named {
            Some(node) => (node.presence != Presence::Offline).then(|| node.name.clone()),
            None => state
                .nodes
                .values()
                .find(|node| node.is_online())
                .map(|node| node.name.clone()),
        }
    }

    /// Everything between reading a request and answering it. Also returns who asked and the parameters, as far as they
    /// became known.
    async fn decide(
        &self,
        entry: &str,
        request: &Request<Bytes>,
    ) -> (Option<Identity>, Answer, Params) {
        if let Err(refusal) = check_framing(request) {
            return (None, Err(refusal), Params::default());
        }
        let path = request.uri().path();
        let path = path.strip_prefix("/api2/json").unwrap_or(path);
        let found = routes::find(request.method(), path);
        let who = match &found {
            Some((route, _)) if route.endpoint == Endpoint::Ticket => nobody(),
            Some(_) | None => {
                let now = self.clock().unix_seconds();
                match self
                    .state()
                    .access
                    .authenticate(request.method(), request.headers(), now)
                {
                    Ok(who) => who,
                    Err(reason) => {
                        return (None, Err(Refusal::Unauthorized(reason)), Params::default());
                    }
                }
            }
        };
        let params = match Params::of(request) {
            Ok(params) => params,
            Err(refusal) => return (Some(who), Err(refusal), Params::default()),
        };
        let Some((route, vars)) = found else {
            let text = format!("Method '{} {path}' not implemented", request.method());
            return (Some(who), Err(Refusal::NoSuchMethod(text)), params);
        };
        let answer = self
            .run(entry, route, vars, who.clone(), params.clone())
            .await;
        (Some(who), answer, params)
    }

    async fn run(
        &self,
        entry: &str,
        route: &'static Route,
        vars: Vars,
        who: Identity,
        params: Params,
    ) -> Answer {
        let node = vars.get("node").map_or(entry, String::as_str).to_owned();
        self.forward(entry, &node).await?;
        let number = {
            let mut state = self.state();
            state.requests += 1;
            state.requests
        };
        let permit = if route.protected {
            let daemon = self.state().nodes.get(&node).map(|node| node.daemon);
            if daemon == Some(false) {
                return Err(Refusal::Forwarding(595, "Connection refused"));
            }
            self.worker(&node).await
        } else {
            None
        };
        self.take(self.length(route), "request", &number.to_string())
            .await;
        let call = Call {
            pve: self.clone(),
            who,
            node,
            vars,
            params,
            number,
        };
        let version = {
            let state = self.state();
            permission::check(&state, &call, route.endpoint)?;
            state.version
        };
        params::check(&call.params, &call.vars, route, version)?;
        let answer = dispatch(call, route.endpoint).await;
        drop(permit);
        answer
    }

    /// Passes a request on to the server it is about.
    async fn forward(&self, entry: &str, node: &str) -> Result<(), Refusal> {
        match self.presence(node) {
            None => Err(Refusal::Failed(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: Temporary failure in name resolution"
            ))),
            Some(_) if node == entry => Ok(()),
            Some(Presence::Online) => Ok(()),
            Some(Presence::Offline) => {
                pause(Duration::from_secs(1)).await;
                Err(Refusal::Forwarding(595, "No route to host"))
            }
            Some(Presence::Hung) => {
                pause(FORWARD_TIMEOUT).await;
                Err(Refusal::Forwarding(596, "Connection timed out"))
            }
        }
    }

    fn presence(&self, node: &str) -> Option<Presence> {
        self.state().nodes.get(node).map(|node| node.presence)
    }

    /// Waits for one of the server's workers.
    async fn worker(&self, node: &str) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let workers = self
            .state()
            .nodes
            .get(node)
            .map(|node| node.workers.clone())?;
        workers.acquire_owned().await.ok()
    }

    fn length(&self, route: &Route) -> crate::rng::Spread {
        if route.endpoint == Endpoint::ConfigPut {
            self.timings().config
        } else if route.method == Method::GET {
            self.timings().answer
        } else {
            self.timings().fork
        }
    }

    fn record(
        &self,
        request: &Request<Bytes>,
        who: Option<Identity>,
        answer: &Answer,
        params: &Params,
    ) {
        let path = request.uri().path();
        let (status, outcome) = match answer {
            Ok(reply) => (200, reply.upid().unwrap_or_default().to_owned()),
            Err(refusal) => (refusal.status(), refusal.text()),
        };
        // The password of a login is nobody's business.
        let shown = |name: &str, values: &[String]| {
            if name == "password" {
                "***".into()
            } else {
                values.join("\n")
            }
        };
        let entry = AuditEntry {
            at: self.clock().now(),
            user: who.map(|who| who.full()).unwrap_or_default(),
            method: request.method().to_string(),
            path: path.strip_prefix("/api2/json").unwrap_or(path).to_owned(),
            params: params
                .iter()
                .map(|(name, values)| (name.to_owned(), shown(name, values)))
                .collect(),
            status,
            outcome,
        };
        self.state().audit.push(entry);
    }
}

impl Reply {
    /// The UPID, when the answer is one.
    pub(crate) fn upid(&self) -> Option<&str> {
        self.data()
            .as_str()
            .filter(|text| text.starts_with("UPID:"))
    }
}

/// What the HTTP server refuses before anything is looked up.
fn check_framing(request: &Request<Bytes>) -> Result<(), Refusal> {
    let method = request.method();
    if ![Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(method) {
        return Err(Refusal::UnknownVerb(format!(
            "method '{method}' not available"
        )));
    }
    let encoding = request.headers().get(http::header::TRANSFER_ENCODING);
    if encoding.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(Refusal::NotAccepted(
            "chunked transfer encoding not supported".into(),
        ));
    }
    if !takes_body(method) && !request.body().is_empty() {
        return Err(Refusal::NotAccepted(format!(
            "Unexpected content for method '{method}'"
        )));
    }
    if request.body().len() > 512 << 10 {
        return Err(Refusal::NotAccepted("for data too large".into()));
    }
    Ok(())
}

/// Logging in needs no identity.
fn nobody() -> Identity {
    Identity {
        user: String::new(),
        token: None,
    }
}

async fn dispatch(call: Call, endpoint: Endpoint) -> Answer {
    match endpoint {
        Endpoint::Version | Endpoint::NodeVersion => cluster::version(call).await,
        Endpoint::Permissions => cluster::permissions(call).await,
        Endpoint::Ticket => cluster::ticket(call).await,
        Endpoint::Resources => cluster::resources(call).await,
        Endpoint::ClusterStatus => cluster::status(call).await,
        Endpoint::NextId => cluster::next_id(call).await,
        Endpoint::ClusterTasks => tasks::cluster(call).await,
        Endpoint::HaResources => cluster::ha_resources(call).await,
        Endpoint::Nodes => nodes::list(call).await,
        Endpoint::NodeStatus => nodes::status(call).await,
        Endpoint::NodeConfig => nodes::config(call).await,
        Endpoint::NodeNetwork => nodes::network(call).await,
        Endpoint::StorageList => nodes::storages(call).await,
        Endpoint::StorageContent => nodes::content(call).await,
        Endpoint::VolumeDelete => nodes::delete_volume(call).await,
        Endpoint::QemuList => qemu::list(call).await,
        Endpoint::Create => create::create(call).await,
        Endpoint::Current => qemu::current(call).await,
        Endpoint::Template => qemu::template(call).await,
        Endpoint::Clone => clone::clone(call).await,
        Endpoint::ConfigGet => config::get(call).await,
        Endpoint::ConfigPut => config::put(call).await,
        Endpoint::ConfigPost => config::post(call).await,
        Endpoint::Pending => config::pending(call).await,
        Endpoint::CloudinitPut => config::cloudinit(call).await,
        Endpoint::Resize => resize::resize(call).await,
        Endpoint::Start => power::start(call).await,
        Endpoint::Stop => power::stop(call).await,
        Endpoint::Shutdown => power::shutdown(call).await,
        Endpoint::Reset => power::reset(call).await,
        Endpoint::Destroy => destroy::destroy(call).await,
        Endpoint::AgentPing => agent::ping(call).await,
        Endpoint::AgentExec => agent::exec(call).await,
        Endpoint::AgentExecStatus => agent::exec_status(call).await,
        Endpoint::AgentFileWrite => agent::file_write(call).await,
        Endpoint::AgentHostName => agent::host_name(call).await,
        Endpoint::AgentInterfaces => agent::interfaces(call).await,
        Endpoint::TaskList => tasks::list(call).await,
        Endpoint::TaskStatus => tasks::status(call).await,
        Endpoint::TaskLog => tasks::log(call).await,
        Endpoint::TaskStop => tasks::stop(call).await,
        Endpoint::PoolList => pools::list(call).await,
        Endpoint::PoolUpdate => pools::update(call).await,
    }
}

/// The API as a service. It is always ready and never fails; a connection that breaks is a response with
/// [`Cut`](crate::faults::Cut) among its extensions.
#[derive(Clone)]
pub struct PveService {
    pve: Pve,
    controlled: bool,
}

impl tower::Service<Request<Bytes>> for PveService {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let pve = self.pve.clone();
        if self.controlled && request.uri().path().starts_with("/_sim/") {
            let response = control::control(&pve, &request);
            return Box::pin(std::future::ready(Ok(response)));
        }
        Box::pin(async move { Ok(pve.handle(request).await) })
    }
}
