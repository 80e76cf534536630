//! A world to put defects into, and the programs by which a person mends them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use kproxide_simulator::pve::topology::{AclSpec, StorageKind, StorageSpec, Topology, VmSpec};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::doctor::{Report, Scripts, Sources, examine};
use kproxide_common::clock::Clock;
use kproxide_controller::judge::Level;
use kproxide_controller::observe::Connect;
use kproxide_kube::access::Account;
use kproxide_kube::client::Client;
use kproxide_lab::furnished;
use kproxide_lab::{EPOCH, Lab, Setting};
use kproxide_policy::Library;
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::tls::{Fingerprint, TrustFailure};
use kproxide_pve::transport::{Endpoint, TransportError};

const GIB: u64 = 1 << 30;

/// What is between doctor and Proxmox, and doctor and Kubernetes.
#[derive(Default)]
pub(super) struct Wires {
    /// What the API server's authorizer refuses, as `verb resource`.
    pub(super) denied: BTreeSet<String>,
    /// Paths at which the API server answers with this code.
    pub(super) failing: BTreeMap<&'static str, u16>,
    /// Endpoints without a listener, with another certificate, and that never answer.
    pub(super) dead: BTreeSet<String>,
    pub(super) renewed: BTreeSet<String>,
    pub(super) hanging: BTreeSet<String>,
    /// The token's secret, if it is not the right one.
    pub(super) secret: Option<String>,
    /// What Proxmox's clock says, with this URL. (Nothing says what time it is there before.)
    pub(super) time: Option<(String, Timestamp)>,
    /// The version that Proxmox says, if it is not its own.
    pub(super) version: Option<String>,
}

pub(super) struct Ward {
    pub(super) lab: Lab,
    pub(super) wires: Arc<Mutex<Wires>>,
    pub(super) acl: Mutex<Vec<AclSpec>>,
    roles: Mutex<BTreeMap<String, Vec<String>>>,
    /// The mounted join scripts.
    pub(super) join: tempfile::TempDir,
    pub(super) policies: Library,
    pub(super) clock: Mutex<Clock>,
}

/// Two servers with a template each, a VM that is none, and a template on a storage that cannot be linked from.
pub(super) fn topology() -> Topology {
    let mut topology = Topology::of(2);
    let thick = StorageSpec::new("thick", StorageKind::Lvm, 400 * GIB, &["images"]);
    topology.storages.push(thick);
    let plain = VmSpec::machine(9100, "plain", "pve1", "local-lvm", 10 * GIB);
    let fat = VmSpec::template(9200, "fat", "pve1", "thick", 10 * GIB);
    let only = VmSpec::template(9300, "only-one", "pve1", "local-lvm", 10 * GIB);
    topology.vms.extend([plain, fat, only]);
    let mut topology = topology.least_privileged();
    topology.acl.push(AclSpec {
        path: "/vms/9100".to_owned(),
        subject: "kproxide@pve".to_owned(),
        privileges: vec!["VM.Audit".to_owned()],
        propagate: true,
    });
    topology
}

impl Ward {
    pub(super) fn new() -> Self {
        Self::of(topology())
    }

    pub(super) fn of(topology: Topology) -> Self {
        let acl = topology.acl.clone();
        let setting = Setting {
            topology,
            ..Setting::new(1, 2)
        };
        let class = json!({ "join": { "guestExec": { "commandSecretFile": "debian" } } });
        let lab = furnished(setting, class, json!({}));
        let endpoints = json!(["https://pve1:8006", "https://pve2:8006"]);
        let ward = Self {
            lab,
            wires: Arc::default(),
            acl: Mutex::new(acl),
            roles: Mutex::default(),
            join: tempfile::tempdir().unwrap(),
            policies: kproxide_lab::policies().unwrap(),
            clock: Mutex::new(Clock::starting_at(EPOCH.parse().unwrap())),
        };
        ward.edit("proxmoxclusters/home", json!({ "endpoints": endpoints }));
        ward.script("curl -sfL --node-taint kproxide.dev/unregistered=:NoExecute\n");
        ward
    }

    /// Writes the join script.
    pub(super) fn script(&self, text: &str) {
        std::fs::write(self.join.path().join("debian"), text).unwrap();
    }

    /// Changes the spec of an object of ours, such as `nodepools/workers`.
    pub(super) fn edit(&self, object: &str, spec: Value) {
        let (resource, name) = object.split_once('/').unwrap();
        let resource = format!("{resource}.kproxide.dev");
        let patch = json!({ "spec": spec });
        self.lab.kube.patch(&resource, "", "", name, patch).unwrap();
    }

    pub(super) fn wires(&self, change: impl FnOnce(&mut Wires)) {
        change(&mut self.wires.lock().unwrap());
    }

    /// Takes privileges away on this path, or gives more.
    pub(super) fn grant(&self, path: &str, privileges: &[&str]) {
        let mut acl = self.acl.lock().unwrap();
        acl.retain(|row| row.path != path);
        if !privileges.is_empty() {
            acl.push(AclSpec {
                path: path.to_owned(),
                subject: "kproxide@pve".to_owned(),
                privileges: privileges.iter().map(|it| (*it).to_owned()).collect(),
                propagate: true,
            });
        }
        self.lab.pve.set_acl(acl.clone());
    }

    /// Runs a line of doctor's in the world's stand-in for that program.
    pub(super) fn run(&self, command: &str) {
        // `a || b`: the second is for a role that is there.
        let command = command.split(" || ").next().unwrap();
        let words: Vec<String> = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["pveum", "role", "add", role, "--privs", privileges] => {
                let privileges = privileges.split(' ').map(str::to_owned).collect();
                self.roles
                    .lock()
                    .unwrap()
                    .insert(role.to_owned(), privileges);
            }
            [
                "pveum",
                "acl",
                "modify",
                path,
                "--roles",
                role,
                "--users",
                user,
                ..,
            ] => {
                let row = AclSpec {
                    path: path.to_owned(),
                    subject: user.to_owned(),
                    privileges: self.roles.lock().unwrap()[role].clone(),
                    propagate: !command.contains("--propagate 0"),
                };
                let mut acl = self.acl.lock().unwrap();
                acl.push(row);
                self.lab.pve.set_acl(acl.clone());
            }
            ["qm", "set", vmid, option, value] => {
                let key = option.trim_start_matches("--");
                let vmid = vmid.parse().unwrap();
                let value = value.replace(":cloudinit", ":cloudinit,media=cdrom");
                self.lab.pve.human_sets(vmid, key, Some(&value)).unwrap();
            }
            ["kubectl", "delete", "node", name] => {
                self.lab.kube.delete("nodes", "", name).unwrap();
            }
            ["kubectl", "delete", "nodepool", name] => {
                self.lab
                    .kube
                    .delete("nodepools.kproxide.dev", "", name)
                    .unwrap();
            }
            _ => panic!("nobody knows {command}"),
        }
    }

    pub(super) fn sources(&self) -> Sources {
        Sources {
            kube: Some(self.kube()),
            objects: Vec::new(),
            connect: self.connect(),
            policies: self.policies.clone(),
            scripts: Scripts::Folder(self.join.path().to_owned()),
            namespace: "kproxide".to_owned(),
            name: "kproxide".to_owned(),
            account: Some(Account::Caller),
            clock: *self.clock.lock().unwrap(),
            place: "a test".to_owned(),
        }
    }

    pub(super) async fn examined(&self) -> Report {
        examine(&self.sources(), Vec::new()).await.unwrap()
    }

    /// The simulated API server, with an authorizer that answers access reviews.
    pub(super) fn kube(&self) -> Client {
        let (kube, wires) = (self.lab.kube.as_user("doctor"), self.wires.clone());
        let clock = self.lab.clock;
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (kube, wires) = (kube.clone(), wires.clone());
            async move {
                if !request.uri().path().ends_with("accessreviews") {
                    // Doctor writes nothing.
                    assert_eq!(request.method(), http::Method::GET, "{}", request.uri());
                    let failing = wires
                        .lock()
                        .unwrap()
                        .failing
                        .get(request.uri().path())
                        .copied();
                    if let Some(code) = failing {
                        let status = json!({ "kind": "Status", "status": "Failure", "code": code, "reason": "Test", "message": "a test" });
                        let body = Full::new(Bytes::from(status.to_string()));
                        return Ok(Response::builder().status(code).body(body)?);
                    }
                    let answer = kube.service().oneshot(request).await?;
                    let (mut parts, body) = answer.into_parts();
                    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&clock.now())?;
                    parts.headers.insert(header::DATE, date.parse()?);
                    let body = Full::new(body.collect().await?.to_bytes());
                    return Ok::<_, tower::BoxError>(Response::from_parts(parts, body));
                }
                let body = request.into_body().collect().await?.to_bytes();
                let mut review: Value = serde_json::from_slice(&body)?;
                let asked = &review["spec"]["resourceAttributes"];
                let asked = format!(
                    "{} {}",
                    asked["verb"].as_str().unwrap(),
                    asked["resource"].as_str().unwrap()
                );
                let is_denied = wires.lock().unwrap().denied.contains(&asked);
                review["status"] = json!({ "allowed": !is_denied });
                let body = Full::new(Bytes::from(review.to_string()));
                Ok(Response::builder().status(201).body(body)?)
            }
        });
        Client::from_service(service)
    }

    pub(super) fn connect(&self) -> Connect {
        let (pve, wires) = (self.lab.pve.clone(), self.wires.clone());
        Arc::new(move |connection, concurrency| {
            let endpoints = connection.endpoints.iter().map(|url| {
                let (pve, wires, url) = (pve.clone(), wires.clone(), url.clone());
                let name = url.trim_start_matches("https://").to_owned();
                let service = tower::service_fn(move |request| {
                    exchange(pve.service(), wires.clone(), url.clone(), request)
                });
                Endpoint::new(name, service)
            });
            let secret = wires.clone();
            let credentials = Arc::new(move || {
                let secret = secret.lock().unwrap().secret.clone();
                Credentials::token("kproxide@pve!ci", secret.as_deref().unwrap_or("secret"))
            });
            Ok(PveClient::new(
                endpoints.collect(),
                credentials,
                concurrency,
            ))
        })
    }
}

async fn exchange(
    pve: kproxide_simulator::pve::PveService,
    wires: Arc<Mutex<Wires>>,
    url: String,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, TransportError> {
    let (is_dead, is_renewed, is_hanging, version, time) = {
        let wires = wires.lock().unwrap();
        let is_in = |set: &BTreeSet<String>| set.contains(&url);
        let version = wires.version.clone();
        (
            is_in(&wires.dead),
            is_in(&wires.renewed),
            is_in(&wires.hanging),
            version,
            wires.time.clone().filter(|(of, _)| *of == url),
        )
    };
    if is_dead {
        return Err(TransportError::Connect("connection refused".into()));
    }
    if is_renewed {
        return Err(TransportError::Untrusted(TrustFailure::Fingerprint {
            expected: vec![Fingerprint::of(b"old")],
            seen: Fingerprint::of(b"new"),
        }));
    }
    if is_hanging {
        std::future::pending::<()>().await;
    }
    let is_version = request.uri().path().ends_with("/api2/json/version");
    let answer = pve.oneshot(request).await;
    let mut answer = answer.map_err(|broken| TransportError::Broken(broken.into()))?;
    if let Some((_, time)) = time {
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
        let date = date.unwrap().parse().unwrap();
        answer.headers_mut().insert(header::DATE, date);
    }
    if let (true, Some(version)) = (is_version, version) {
        let data = json!({ "data": { "version": version, "release": version, "repoid": "0" } });
        *answer.body_mut() = data.to_string().into();
    }
    Ok(answer)
}

/// As a shell splits a line, with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What is not well: level, object, reason.
pub(super) fn ailments(report: &Report) -> Vec<(Level, &str, &str)> {
    let ill = report.findings.iter().filter(|it| it.level != Level::Ok);
    ill.map(|it| (it.level, it.object.as_str(), it.reason.word))
        .collect()
}
