//! The wires of one replica: everything between it and both servers. They log, count effects, kill the process at the effect where its plan
//! says so, and cut it off; what else goes wrong is done by [`Faults`] below them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client as KubeClient;
use kproxide_lab::Lab;
use kproxide_pve::auth::{CredentialSource, Credentials};
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::{Endpoint, TransportError};
use kproxide_simulator::faults::{Broken, CrashPoint, Dialect, Fault, Faults, Faulty, Moment};
use kproxide_simulator::kube::{Collecting, Kube};
use kproxide_simulator::matcher::Matcher;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use crate::broken::edge::{self, Edge, SharedMemory};
use crate::log::Log;
use crate::plan::{Blow, CutOff, Life, What};
use crate::shown::{Noted, Seeing, Sight};

/// Clones are the same wires.
#[derive(Clone)]
pub(crate) struct Wires {
    pub(crate) name: &'static str,
    pub(crate) faults: Faults,
    /// What its watches show it.
    pub(crate) sight: Sight,
    log: Log,
    since: Instant,
    state: Arc<Mutex<State>>,
    lease_lost: Arc<Notify>,
    mistakes: SharedMemory,
}

/// One effect that a process asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) kind: &'static str,
    /// Since the wires were made, which is when the first process starts.
    pub(crate) at: Duration,
}

#[derive(Default)]
struct State {
    /// Which process it is, counted from 1.
    process: u32,
    /// Of the present process.
    effects: u64,
    /// Of the first process, in order.
    asked_first: Vec<Asked>,
    blows: Vec<Blow>,
    lost_leases: BTreeMap<&'static str, u64>,
    life: Option<Life>,
    /// Nobody dies any more.
    spared: bool,
    cut: Option<CutOff>,
    /// Of all processes, by kind.
    counted: BTreeMap<&'static str, u64>,
    /// Of all processes: what did nothing but make an anchor or move it on, which never ends. Not in `counted`.
    anchor_moves: u64,
    refused: u64,
    /// What is wrong with the world now, and how often at one time.
    mishaps: BTreeMap<&'static str, u32>,
    /// The API server is away.
    away: bool,
    /// Effects that were asked for while cut off, or while something was wrong with the world.
    met: BTreeMap<(&'static str, &'static str), u64>,
}

/// What happened on the wires of one replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) effects: u64,
    pub(crate) crashes: u64,
    /// Requests that were refused because their host was cut off.
    pub(crate) refused: u64,
    /// Faults by chance, by kind.
    pub(crate) by_chance: BTreeMap<&'static str, u64>,
    /// Which kind of effect met which fault or death, and how often.
    pub(crate) met: BTreeMap<(&'static str, &'static str), u64>,
    /// What the first process asked to be changed.
    pub(crate) asked_first: Vec<Asked>,
    /// What its watches showed it, if notes were taken.
    pub(crate) shown: Vec<Noted>,
    /// Something was kept from it as its plan says.
    pub(crate) was_blind: bool,
}

impl Wires {
    pub(crate) fn new(name: &'static str, seed: u64, log: &Log) -> Self {
        Self {
            name,
            faults: Faults::new(seed),
            sight: Sight::default(),
            log: log.clone(),
            since: Instant::now(),
            state: Arc::default(),
            lease_lost: Arc::default(),
            mistakes: SharedMemory::default(),
        }
    }

    /// A new process begins to use them.
    pub(crate) fn begin(&self, life: Option<Life>) {
        self.faults.revive();
        self.mistakes.forget();
        let mut state = self.lock();
        state.process += 1;
        (state.effects, state.life) = (0, life.filter(|_| !state.spared));
    }

    /// What its processes live through.
    pub(crate) fn strike(&self, blows: &[Blow]) {
        self.lock().blows = blows.to_vec();
    }

    /// Returns when a blow has cut this host off from its Lease.
    pub(crate) async fn lease_lost(&self) {
        self.lease_lost.notified().await;
    }

    /// The process dies as soon as it asks for anything.
    pub(crate) fn die(&self) {
        self.faults.crash_at(CrashPoint {
            request: self.faults.requests() + 1,
            moment: Moment::Before,
        });
    }

    /// From now on no process dies any more.
    pub(crate) fn spare(&self) {
        let mut state = self.lock();
        (state.life, state.spared) = (None, true);
        state.blows.clear();
    }

    pub(crate) fn cut(&self, from: Option<CutOff>) {
        self.lock().cut = from;
    }

    /// From now on the API server cannot be reached, or can be again.
    pub(crate) fn away(&self, away: bool) {
        self.lock().away = away;
    }

    /// From now on effects meet this mishap.
    pub(crate) fn begin_mishap(&self, what: &'static str) {
        *self.lock().mishaps.entry(what).or_default() += 1;
    }

    pub(crate) fn end_mishap(&self, what: &'static str) {
        let mut state = self.lock();
        if let Some(count) = state.mishaps.get_mut(what) {
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn kube(&self, lab: &Lab) -> KubeClient {
        let service = self.faults.around(
            lab.kube.as_user(self.name).whole_requests(),
            Dialect::Kubernetes,
        );
        let service = Wire {
            service,
            dialect: Dialect::Kubernetes,
            wires: self.clone(),
            kube: lab.kube.clone(),
        };
        let edge = Edge::new(lab, self.name, &self.mistakes);
        let service = Collecting(edge::Kubernetes { service, edge });
        let sight = self.sight.clone();
        KubeClient::from_service(Seeing { service, sight })
    }

    pub(crate) fn proxmox(&self, lab: &Lab) -> Connect {
        let (pve, kube, wires) = (lab.pve.clone(), lab.kube.clone(), self.clone());
        let edge = Edge::new(lab, self.name, &self.mistakes);
        Arc::new(move |_, concurrency| {
            let credentials: CredentialSource =
                Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            let endpoint = |name: &str| {
                let service = wires.faults.around(pve.service(), Dialect::Proxmox);
                let service = Wire {
                    service,
                    dialect: Dialect::Proxmox,
                    wires: wires.clone(),
                    kube: kube.clone(),
                };
                let edge = edge.clone();
                let wire = edge::Proxmox { service, edge };
                Endpoint::new(
                    name,
                    wire.map_err(|broken| match broken {
                        Broken::Refused => TransportError::Connect(broken.into()),
                        Broken::Lost => TransportError::Broken(broken.into()),
                    }),
                )
            };
            Ok(PveClient::new(
                vec![endpoint("pve1"), endpoint("pve2")],
                credentials,
                concurrency,
            ))
        })
    }

    /// What was asked to be changed by all processes so far, but for what merely keeps an anchor: that goes on at rest too.
    pub(crate) fn effects(&self) -> u64 {
        self.lock().counted.values().sum()
    }

    /// What is not in [`Self::effects`].
    pub(crate) fn anchor_moves(&self) -> u64 {
        self.lock().anchor_moves
    }

    /// Of [`Self::effects`], those of the Ledger.
    pub(crate) fn ledger_writes(&self) -> u64 {
        self.lock()
            .counted
            .get("write ledger")
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let state = self.lock();
        let (mut met, mut by_chance) = (state.met.clone(), BTreeMap::new());
        let mut meet = |method: &str, path: &str, kind| {
            let method: Method = method.parse().unwrap_or_default();
            if let Some(effect) = effect(&method, path) {
                *met.entry((effect, kind)).or_default() += 1;
            }
        };
        for injected in self.faults.happened() {
            let kind = fault_name(injected.fault);
            *by_chance.entry(kind).or_default() += 1;
            meet(&injected.method, &injected.path, kind);
        }
        let died = self.faults.died();
        for death in &died {
            meet(&death.method, &death.path, moment_name(death.moment));
        }
        for (effect, count) in &state.lost_leases {
            met.insert((*effect, "lease lost"), *count);
        }
        Traffic {
            effects: state.counted.values().sum::<u64>() + state.anchor_moves,
            crashes: died.len() as u64,
            refused: state.refused,
            by_chance,
            met,
            asked_first: state.asked_first.clone(),
            shown: self.sight.noted(),
            was_blind: self.sight.is_met(),
        }
    }

    /// Notes a request that is about to leave. `Err`: it does not, because its host is cut off.
    fn leaves(
        &self,
        dialect: Dialect,
        method: &Method,
        path: &str,
        moves_anchor: bool,
    ) -> Result<(), Broken> {
        let mut state = self.lock();
        let kind = effect(method, path);
        let is_cut = match (state.cut, dialect) {
            (_, Dialect::Kubernetes) if state.away => true,
            (None, _) => false,
            (Some(CutOff::Lease), _) => path.contains("/leases"),
            (Some(CutOff::Kubernetes), dialect) => dialect == Dialect::Kubernetes,
            (Some(CutOff::Proxmox), dialect) => dialect == Dialect::Proxmox,
        };
        if is_cut {
            state.refused += 1;
            if let Some(kind) = kind {
                *state.met.entry((kind, "cut off")).or_default() += 1;
            }
            return Err(Broken::Refused);
        }
        let Some(kind) = kind else {
            return Ok(());
        };
        let now: Vec<_> = state
            .mishaps
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(what, _)| *what)
            .collect();
        for what in now {
            *state.met.entry((kind, what)).or_default() += 1;
        }
        state.effects += 1;
        match moves_anchor {
            true => state.anchor_moves += 1,
            false => *state.counted.entry(kind).or_default() += 1,
        }
        if state.process == 1 {
            let at = self.since.elapsed();
            state.asked_first.push(Asked { kind, at });
        }
        let now = (state.process, state.effects);
        let struck = state.blows.iter().copied();
        for blow in struck
            .filter(|blow| (blow.process, blow.effect) == now)
            .collect::<Vec<_>>()
        {
            match blow.what {
                // The very next request that the faults below see is this one.
                What::Fault(fault) => self.faults.inject(Matcher::any(), fault, 1),
                What::LoseLease => {
                    state.cut = Some(CutOff::Lease);
                    *state.lost_leases.entry(kind).or_default() += 1;
                    self.lease_lost.notify_one();
                }
            }
        }
        if let Some(Life { effect, moment, .. }) = state.life
            && effect == state.effects
        {
            // The very next request that the faults below see is this one.
            self.faults.crash_at(CrashPoint {
                request: self.faults.requests() + 1,
                moment,
            });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Wire<S> {
    service: Faulty<S>,
    dialect: Dialect,
    wires: Wires,
    /// To compare what is written with what is there.
    kube: Kube,
}

impl<S, Body> Service<Request<Bytes>> for Wire<S>
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
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        // The clone takes the place of the service that was found ready.
        let ready = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, ready);
        let (dialect, wires, kube) = (self.dialect, self.wires.clone(), self.kube.clone());
        Box::pin(async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let moves_anchor = match dialect {
                Dialect::Kubernetes => moves_in_ledger(&request, &kube),
                Dialect::Proxmox => is_about_anchor(&request),
            };
            wires.leaves(dialect, &method, uri.path(), moves_anchor)?;
            let answer = service.call(request).await;
            let told = match &answer {
                Ok(response) => response.status().as_u16().to_string(),
                Err(broken) => broken.to_string(),
            };
            wires
                .log
                .line(wires.name, &format!("{method} {uri} -> {told}"));
            answer
        })
    }
}

/// What hosts ask to be changed, as [`effect`] names it.
pub(crate) const EFFECTS: [&str; 17] = [
    "write ledger",
    "create claim",
    "write intent",
    "clone",
    "config",
    "resize",
    "start",
    "patch node",
    "write status",
    "evict",
    "delete claim",
    "shutdown",
    "stop",
    "destroy",
    "delete node",
    "remove finalizer",
    "other",
];

/// What a request asks to be changed; `None` for reads, and for the Lease and Events, which are not of the work.
fn effect(method: &Method, path: &str) -> Option<&'static str> {
    if method == Method::GET
        || ["/leases", "/events", "/access/"]
            .iter()
            .any(|part| path.contains(part))
    {
        return None;
    }
    let is_status = path.ends_with("/status");
    let of = |part: &str| path.contains(part);
    Some(match method.as_str() {
        "POST" if path.ends_with("/clone") => "clone",
        "POST" if path.ends_with("/status/start") => "start",
        "POST" if path.ends_with("/status/shutdown") => "shutdown",
        "POST" if path.ends_with("/status/stop") => "stop",
        "PUT" if path.ends_with("/resize") => "resize",
        "POST" | "PUT" if path.ends_with("/config") => "config",
        "DELETE" if of("/qemu/") => "destroy",
        "POST" if path.ends_with("/eviction") => "evict",
        "POST" if of("/nodeclaims") => "create claim",
        "DELETE" if of("/nodeclaims") => "delete claim",
        _ if of("/nodeclaims") && is_status => "write intent",
        _ if of("/nodeclaims") => "remove finalizer",
        _ if of("/ledgers") => "write ledger",
        "DELETE" if of("/nodes/") => "delete node",
        _ if of("/api/v1/nodes/") => "patch node",
        _ if is_status => "write status",
        _ => "other",
    })
}

/// An anchor's name, when it is made, and its signed line begin alike.
fn is_about_anchor(request: &Request<Bytes>) -> bool {
    let of_anchor = b"kproxide-anchor";
    let mut windows = request.body().windows(of_anchor.len());
    windows.any(|window| window == of_anchor)
}

/// A write of the Ledger that changes its anchors and nothing else.
fn moves_in_ledger(request: &Request<Bytes>, kube: &Kube) -> bool {
    if request.method() != Method::PUT || !request.uri().path().contains("/ledgers/") {
        return false;
    }
    let wanted: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let stands = kube.get("ledgers.kproxide.dev", "", "kproxide");
    let stands = stands.unwrap_or_default();
    anchors_differ(&wanted["spec"], &stands["spec"])
}

/// Whether two Ledgers differ in nothing but their anchors.
fn anchors_differ(one: &Value, other: &Value) -> bool {
    let rest = |spec: &Value| {
        let mut rest = spec.as_object().cloned().unwrap_or_default();
        rest.remove("anchors");
        // What is empty may as well be left out.
        rest.retain(|_, value| {
            !value.is_null() && value.as_array().is_none_or(|it| !it.is_empty())
        });
        rest
    };
    one["anchors"] != other["anchors"] && rest(one) == rest(other)
}

fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Delay(_) => "delayed",
        Fault::Refuse => "refused",
        Fault::Fail => "failed",
        Fault::LoseAnswer => "answer lost",
        Fault::Hang { applied: true } => "answered after the deadline",
        Fault::Hang { applied: false } => "hung",
    }
}

fn moment_name(moment: Moment) -> &'static str {
    match moment {
        Moment::Before => "died before",
        Moment::Applied => "died before the answer",
        Moment::Answered => "died after the answer",
    }
}
