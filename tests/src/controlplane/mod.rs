//! A real Kubernetes control plane for one test: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and, for
//! Nodes without machines, kwok. All of them, kubectl and Helm too, are one executable, built once from `controlplane/`
//! in this package.
//!
//! - `programs` knows how to build and cache that executable, and what to do without Go.
//! - `pki` makes the certificates, `flags` the command lines, `server` runs one program and keeps its log.
//! - `etcd` asks etcd itself for what no API server offers.
//! - `api` is the API server seen from a test: JSON in, JSON out, as an administrator.
//!
//! Every server listens on loopback alone, on ports of its own, and ends with the test, however that ends.

mod api;
mod etcd;
mod flags;
mod kubeconfig;
mod pki;
mod programs;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

pub use api::{Api, ApiError, Changes};
pub use programs::{CommandError, Programs, require_controlplane};
pub use server::ServerError;

pub(crate) use kubeconfig::kubeconfig;
pub(crate) use server::tail;

use crate::eventually::{eventually, within};

use self::kubeconfig::Access;
use self::pki::Pki;
use self::server::Server;

/// The Node that stands for a control-plane machine: tainted, kept Ready by kwok, and empty until a
/// [`PodLauncher`](crate::PodLauncher) runs a pod there. kwok leaves the pods of this Node alone.
pub const CONTROL_PLANE_NODE: &str = "control-plane";

/// Measured: 3 s on two idle cores. The rest is for machines that build something at the same time.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// A port that was free a moment ago may be taken when a server binds it; three times in a row it is something else.
const START_ATTEMPTS: u32 = 3;

const API_SERVER: &str = "kube-apiserver";

/// What a test wants of its control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run kwok: Nodes with the annotation `kwok.x-k8s.io/node: fake` stay Ready, pods bound to them run, and
    /// [`CONTROL_PLANE_NODE`] exists.
    pub kwok: bool,
    /// How long a Node may be silent before the controller manager calls it NotReady.
    pub node_grace: Duration,
    /// More flags for kube-apiserver, such as `--feature-gates=…`.
    pub api_server_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kwok: true,
            node_grace: Duration::from_secs(15),
            api_server_flags: Vec::new(),
        }
    }
}

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine refused a folder, a file or a port.
    #[error("cannot prepare the control plane's files")]
    Files(#[from] std::io::Error),
    /// Certificates could not be made.
    #[error("cannot make the control plane's certificates")]
    Pki(#[from] rcgen::Error),
    /// No client can be made for the new API server.
    #[error("cannot make a client for {whom}: {reason}")]
    Client {
        /// As whom.
        whom: &'static str,
        /// Why.
        reason: String,
    },
    /// A server could not be started or ended at once.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A helper command of the executable failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The API server refused one of the objects that every test starts with.
    #[error("cannot set the cluster up")]
    Api(#[from] ApiError),
    /// etcd did not do what a test asked of it.
    #[error("etcd: {0}")]
    Etcd(String),
    /// All servers run, but one of them does not get ready.
    #[error("{what} was not ready within {deadline:?}; last answer: {last}")]
    NotReady {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        deadline: Duration,
        /// What it answered last.
        last: String,
    },
}

/// A running control plane. Dropping it ends all of its servers and removes their files; if the test
/// is failing at that moment, the ends of the logs go to stderr first and the files stay.
#[derive(Debug)]
pub struct ControlPlane {
    programs: Programs,
    api: Api,
    access: Access,
    admin_kubeconfig: PathBuf,
    etcd_client: u16,
    servers: Mutex<Vec<Server>>,
    /// Last, so that the servers are killed before their folder goes.
    root: TempDir,
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves, has a default ServiceAccount (before which no pod can be
    /// made) and, with kwok, a Ready [`CONTROL_PLANE_NODE`].
    ///
    /// # Errors
    ///
    /// [`StartError`], with the end of the log of the server that is to blame.
    pub async fn start(programs: &Programs, options: Options) -> Result<Self, StartError> {
        let mut attempt = 1;
        loop {
            match Self::start_once(programs, &options).await {
                Err(StartError::Server(error))
                    if error.is_taken_port() && attempt < START_ATTEMPTS =>
                {
                    attempt += 1
                }
                outcome => return outcome,
            }
        }
    }

    /// For a test: a control plane whose Nodes are those that the test makes. `None`: Go is missing, and that was said.
    ///
    /// # Panics
    ///
    /// It does not start.
    #[expect(clippy::unwrap_used, reason = "a test ends where its set-up fails")]
    pub async fn without_kwok() -> Option<Self> {
        let programs = require_controlplane()?;
        let options = Options {
            kwok: false,
            ..Options::default()
        };
        Some(Self::start(&programs, options).await.unwrap())
    }

    async fn start_once(programs: &Programs, options: &Options) -> Result<Self, StartError> {
        let root = tempfile::Builder::new()
            .prefix("kproxide-controlplane-")
            .tempdir()?;
        let pki = Pki::generate(&root.path().join("pki"))?;
        let (etcd_client, etcd_peer) = (crate::free_port()?, crate::free_port()?);
        let api_port = crate::free_port()?;
        let access = Access::certificate(
            format!("https://127.0.0.1:{api_port}"),
            pki.ca_pem.clone(),
            pki.admin.clone(),
        );
        let api = Api::new(&access).map_err(|reason| StartError::Client {
            whom: "the administrator",
            reason,
        })?;
        let admin_kubeconfig = root.path().join("admin.kubeconfig");
        std::fs::write(&admin_kubeconfig, access.kubeconfig())?;

        let this = ControlPlane {
            programs: programs.clone(),
            api,
            access,
            admin_kubeconfig,
            etcd_client,
            servers: Mutex::default(),
            root,
        };
        let files = flags::Files::write(this.root.path(), &this.access, &pki)?;

        // The API server retries etcd by itself, so both start at once.
        this.serve("etcd", flags::etcd(&files, etcd_client, etcd_peer))
            .await?;
        this.serve(
            API_SERVER,
            flags::api_server(&files, etcd_client, api_port, &options.api_server_flags),
        )
        .await?;
        this.until_served().await?;
        this.serve(
            "kube-controller-manager",
            flags::controller_manager(&files, options.node_grace),
        )
        .await?;
        this.serve("kube-scheduler", flags::scheduler(&files))
            .await?;
        if options.kwok {
            let stages = this
                .programs
                .run(&["kwok-stages", CONTROL_PLANE_NODE])
                .await?;
            std::fs::write(&files.kwok_stages, stages)?;
            this.serve("kwok", flags::kwok(&files, &this.admin_kubeconfig))
                .await?;
            this.api
                .create("/api/v1/nodes", &control_plane_node())
                .await?;
            this.until("the control-plane Node", async |api| {
                let node = api
                    .get(&format!("/api/v1/nodes/{CONTROL_PLANE_NODE}"))
                    .await?;
                if condition(&node, "Ready") == Some("True") {
                    Ok(())
                } else {
                    Err(ApiError::unexpected(format!(
                        "conditions {}",
                        node["status"]["conditions"]
                    )))
                }
            })
            .await?;
        }
        this.until("the default ServiceAccount", async |api| {
            api.get("/api/v1/namespaces/default/serviceaccounts/default")
                .await
                .map(drop)
        })
        .await?;
        Ok(this)
    }

    async fn serve(&self, program: &'static str, flags: Vec<String>) -> Result<(), ServerError> {
        let server = Server::start(self.programs.path(), program, flags, self.root.path())?;
        self.servers.lock().await.push(server);
        Ok(())
    }

    async fn until_served(&self) -> Result<(), StartError> {
        self.until("the API server", async |api| {
            api.get_text("/readyz").await.map(drop)
        })
        .await
    }

    async fn until(
        &self,
        what: &'static str,
        ready: impl AsyncFn(&Api) -> Result<(), ApiError>,
    ) -> Result<(), StartError> {
        let Self { servers, api, .. } = self;
        let mut servers = servers.lock().await;
        let looked = within(START_DEADLINE, async || {
            // A server that has ended does not get ready.
            let ended = servers
                .iter_mut()
                .find_map(|server| server.check_alive().err());
            match ended {
                Some(ended) => Ok(Err(ended)),
                None => ready(api).await.map(Ok),
            }
        });
        let alive = looked.await.map_err(|last| StartError::NotReady {
            what,
            deadline: START_DEADLINE,
            last,
        })?;
        Ok(alive?)
    }

    /// The API server, asked as administrator.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Where the API server listens: `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.access.server
    }

    /// The certificate authority that signed the API server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.access.ca_pem
    }

    /// The administrator's kubeconfig as a file.
    pub fn admin_kubeconfig_path(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// The API server, asked as the holder of `token`: for tests of what an identity may do.
    ///
    /// # Errors
    ///
    /// When the certificate authority cannot be read as PEM.
    pub fn api_as(&self, token: &str) -> Result<Api, StartError> {
        let access = Access::token(
            self.access.server.clone(),
            self.access.ca_pem.clone(),
            token.to_owned(),
        );
        Api::new(&access).map_err(|reason| StartError::Client {
            whom: "the holder of a token",
            reason,
        })
    }

    /// A fresh token of a ServiceAccount by the TokenRequest API, valid for an hour. Without an audience it is meant
    /// for the API server.
    ///
    /// # Errors
    ///
    /// When the ServiceAccount does not exist.
    pub async fn token_for(
        &self,
        namespace: &str,
        service_account: &str,
        audience: Option<&str>,
    ) -> Result<String, ApiError> {
        self.api
            .token_for(
                namespace,
                service_account,
                audience,
                Duration::from_secs(3600),
            )
            .await
    }

    /// Runs kubectl against this cluster and returns its standard output.
    ///
    /// # Errors
    ///
    /// When it fails, with what it wrote to both outputs.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String, CommandError> {
        self.programs
            .run_with(&[&["kubectl"], args].concat(), &self.command_env(), None)
            .await
    }

    /// Runs kubectl with `input` on its standard input, as in `kubectl apply -f -`.
    ///
    /// # Errors
    ///
    /// When it fails, with what it wrote to both outputs.
    pub async fn kubectl_with_input(
        &self,
        args: &[&str],
        input: &str,
    ) -> Result<String, CommandError> {
        self.programs
            .run_with(
                &[&["kubectl"], args].concat(),
                &self.command_env(),
                Some(input),
            )
            .await
    }

    /// Applies custom resource definitions, as YAML, and waits until the API server serves them.
    ///
    /// # Panics
    ///
    /// When kubectl fails, or after a minute, with what it wrote to both outputs.
    pub async fn define(&self, definitions: &str) {
        let apply = ["apply", "--server-side", "-f", "-"];
        let wait = "wait crd --all --for=condition=Established --timeout=60s";
        let wait: Vec<&str> = wait.split(' ').collect();
        let applied = self.kubectl_with_input(&apply, definitions).await;
        applied.expect("the definitions are legal");
        // kubectl fails over a definition that has no conditions yet.
        eventually(Duration::from_secs(60), "the definitions", async || {
            self.kubectl(&wait).await
        })
        .await;
    }

    /// Runs Helm against this cluster and returns its standard output.
    ///
    /// # Errors
    ///
    /// When it fails, with what it wrote to both outputs.
    pub async fn helm(&self, args: &[&str]) -> Result<String, CommandError> {
        self.programs
            .run_with(&[&["helm"], args].concat(), &self.command_env(), None)
            .await
    }

    /// SIGKILL to the API server: what is under way breaks off. Nothing else of the control plane ends.
    pub async fn kill_api_server(&self) {
        for server in self.servers.lock().await.iter_mut() {
            if server.program() == API_SERVER {
                server.kill().await;
            }
        }
    }

    /// SIGTERM to the API server, as when its machine is maintained: it ends every watch in an orderly way first, so that a client tries to go on where it was.
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub async fn stop_api_server(&self) -> Result<(), StartError> {
        for server in self.servers.lock().await.iter_mut() {
            if server.program() == API_SERVER {
                server.terminate().await?;
            }
        }
        Ok(())
    }

    /// Starts the API server again after [`kill_api_server`](Self::kill_api_server) or [`stop_api_server`](Self::stop_api_server), and waits until it serves.
    ///
    /// # Errors
    ///
    /// [`StartError`], with the end of its log.
    pub async fn start_api_server(&self) -> Result<(), StartError> {
        for server in self.servers.lock().await.iter_mut() {
            if server.program() == API_SERVER {
                server.start_again()?;
            }
        }
        self.until_served().await
    }

    /// Makes etcd forget every version but the present one, as the API server has it do every five minutes. Returns that version.
    ///
    /// # Errors
    ///
    /// When etcd does not answer, or refuses.
    pub async fn compact(&self) -> Result<u64, StartError> {
        etcd::compact(self.etcd_client).await
    }

    /// Ends all servers and waits for it. Dropping does the same without waiting.
    pub async fn stop(mut self) {
        for server in self.servers.get_mut().iter_mut().rev() {
            server.kill().await;
        }
    }

    /// Prints the ends of the servers' logs to stderr, and keeps their files: for whoever looks into a test that failed.
    pub fn keep_for_inspection(&mut self) {
        for server in self.servers.get_mut() {
            eprintln!("{}", server.log_tail());
        }
        self.root.disable_cleanup(true);
        eprintln!(
            "the control plane's files are in {}",
            self.root.path().display()
        );
    }

    fn command_env(&self) -> Vec<(&'static str, &Path)> {
        // Helm and kubectl keep caches; tests must not share them with each other or with a person.
        vec![
            ("KUBECONFIG", &self.admin_kubeconfig),
            ("HOME", self.root.path()),
        ]
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_for_inspection();
        }
    }
}

/// The status of an object's condition, if it has that condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)?["status"]
        .as_str()
}

fn control_plane_node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": CONTROL_PLANE_NODE,
            "annotations": { "kwok.x-k8s.io/node": "fake" },
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": CONTROL_PLANE_NODE,
                "node-role.kubernetes.io/control-plane": "",
            },
        },
        "spec": {
            "taints": [{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }],
        },
        "status": {
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
            "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" },
        },
    })
}

#[cfg(test)]
mod tests;
