//! A whole world on loopback: simulated Proxmox VE over HTTPS, and either a simulated Kubernetes beside it or a real
//! cluster that its machines join. `kproxide simulate serve` is this, and the end-to-end tests are built on it.
//!
//! ```text
//! client ──https──▶ Wire ──▶ Pve ──machine events──▶ Physics ──▶ Kubelets ──▶ API server: simulated, or a real one
//! ```

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    clock::Clock,
    kube::{Kube, controllers::Patience, scheduler::Scoring, world::World},
    kubelet::{Api, Kubelets, Pace},
    physics::{Guests, Physics},
    pve::{Pve, Topology},
    wire::{Options, Wire, WireError, whole},
};

/// pveproxy closes connections that are idle for so long.
const PVE_IDLE: Duration = Duration::from_secs(5);

/// What to serve.
#[derive(Clone, Debug)]
pub struct Setting {
    pub seed: u64,
    /// What the clock says when it begins; time then runs as it does outside.
    pub now: Timestamp,
    pub topology: Topology,
    pub guests: Guests,
    pub pace: Pace,
    /// Port of Proxmox VE's API on loopback; 0 takes any free one.
    pub pve_port: u16,
    pub cluster: Cluster,
}

/// Which Kubernetes the machines join.
#[derive(Clone, Debug)]
pub enum Cluster {
    /// A simulated one, served on this port of loopback; 0 takes any free one.
    Simulated { port: u16 },
    /// The one behind this API server.
    Real(Api),
}

/// The running world. Dropping it ends everything in it; Nodes in a real cluster stay as they are and fall silent.
pub struct Served {
    pub pve: Pve,
    /// Reaches the first server that is up.
    pub pve_wire: Wire,
    /// The second and all further servers by themselves: at 127.0.0.2, 127.0.0.3 and so on, with the port of `pve_wire`. None
    /// where the operating system has no such addresses, or the port is taken.
    pub member_wires: Vec<Wire>,
    /// None where the machines join a real cluster.
    pub kube: Option<SimulatedKube>,
    /// The topology's first API token.
    pub token: Option<Token>,
    pub physics: Physics,
    pub kubelets: Kubelets,
    _tasks: JoinSet<()>,
}

/// An API token of Proxmox VE.
#[derive(Clone, Debug)]
pub struct Token {
    /// `user@realm!name`
    pub id: String,
    pub secret: String,
}

/// The simulated Kubernetes of a served world.
pub struct SimulatedKube {
    pub kube: Kube,
    pub wire: Wire,
    _world: World,
}

/// Why the connection files could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct FilesError {
    path: PathBuf,
    source: io::Error,
}

impl Served {
    /// Starts the world and serves it until it is dropped.
    ///
    /// # Errors
    /// A port is taken.
    ///
    /// # Panics
    /// The topology contradicts itself.
    pub async fn start(setting: Setting) -> Result<Self, WireError> {
        let Setting {
            seed,
            now,
            topology,
            guests,
            pace,
            pve_port,
            cluster,
        } = setting;
        let clock = Clock::starting_at(now);
        let token = topology.users.iter().find_map(|user| {
            let token = user.tokens.first()?;
            Some(Token {
                id: format!("{}!{}", user.name, token.id),
                secret: token.secret.clone(),
            })
        });
        let servers = topology.hypervisors.iter().map(|it| it.name.clone());
        let servers: Vec<String> = servers.collect();
        let pve = Pve::new(topology, clock, seed);
        let options = Options {
            idle: Some(PVE_IDLE),
            ..loopback(pve_port)
        };
        let pve_wire = Wire::serve(whole(pve.service_with_control()), options).await?;
        let member_wires = serve_members(&pve, &pve_wire, servers).await;
        let (api, kube) = match cluster {
            Cluster::Real(api) => (api, None),
            Cluster::Simulated { port } => {
                let kube = Kube::new(clock, seed);
                let world = World::start(&kube, Scoring::default(), Patience::default());
                let users = kube.as_user("kubernetes-admin").whole_requests();
                let wire = Wire::serve(users, loopback(port)).await?;
                let api = Api::new(kube.as_user("system:nodes").service());
                let simulated = SimulatedKube {
                    kube,
                    wire,
                    _world: world,
                };
                (api, Some(simulated))
            }
        };
        let (kubelets, kubelets_run) = Kubelets::new(api, clock, pace, seed);
        let (physics, physics_run) = Physics::new(pve.clone(), kubelets.clone(), guests, seed);
        let mut tasks = JoinSet::new();
        tasks.spawn(kubelets_run);
        tasks.spawn(physics_run);
        Ok(Self {
            pve,
            pve_wire,
            member_wires,
            kube,
            token,
            physics,
            kubelets,
            _tasks: tasks,
        })
    }

    /// Writes what a client needs into `folder`, which is created:
    ///
    /// - `pve.json`: `url`, `fingerprint` and the path `caFile`
    /// - `ca.pem`: the authority of Proxmox VE's certificate
    /// - `credentials/<credentials>/token-id` and `token-secret`: as `kproxide run --credentials-dir` wants them
    /// - `kubeconfig`, for a simulated cluster
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn write_files(&self, folder: &Path, credentials: &str) -> Result<(), FilesError> {
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            let written = fs::create_dir_all(path.parent().unwrap_or(folder))
                .and_then(|()| fs::write(&path, text));
            written.map_err(|source| FilesError { path, source })
        };
        write("ca.pem", self.pve_wire.ca_pem())?;
        let connection = json!({
            "url": self.pve_wire.url(),
            "fingerprint": self.pve_wire.fingerprint(),
            "caFile": folder.join("ca.pem"),
        });
        write("pve.json", &format!("{connection:#}\n"))?;
        if let Some(token) = &self.token {
            write(&format!("credentials/{credentials}/token-id"), &token.id)?;
            write(
                &format!("credentials/{credentials}/token-secret"),
                &token.secret,
            )?;
        }
        if let Some(kube) = &self.kube {
            write("kubeconfig", &kube.kubeconfig())?;
        }
        Ok(())
    }
}

impl SimulatedKube {
    /// A kubeconfig for it, as JSON, which is YAML too. Whoever comes may do anything: the user has no credentials.
    pub fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "simulated", "cluster": {
                "server": self.wire.url(),
                "certificate-authority-data": STANDARD.encode(self.wire.ca_pem()),
            }}],
            "users": [{ "name": "anybody", "user": { "token": "anybody" } }],
            "contexts": [{ "name": "simulated", "context": { "cluster": "simulated", "user": "anybody" } }],
            "current-context": "simulated",
        });
        format!("{config:#}\n")
    }
}

/// Each server but the first at an address of its own, with the port that all have, as Proxmox's have 8006.
async fn serve_members(pve: &Pve, first: &Wire, servers: Vec<String>) -> Vec<Wire> {
    let mut wires = Vec::new();
    for (number, server) in (1u8..=250).zip(&servers) {
        if number == 1 {
            pve.set_served(server, None, first.fingerprint());
            continue;
        }
        let options = Options {
            address: SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), first.address().port())),
            idle: Some(PVE_IDLE),
            ..Options::default()
        };
        let service = whole(pve.service_with_control());
        if let Ok(wire) = first.beside(service, options).await {
            let address = wire.address().ip().to_string();
            pve.set_served(server, Some(address), wire.fingerprint());
            wires.push(wire);
        }
    }
    wires
}

fn loopback(port: u16) -> Options {
    Options {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        ..Options::default()
    }
}

#[cfg(test)]
mod tests;
