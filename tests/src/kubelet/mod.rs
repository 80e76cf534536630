//! A stand-in for the kubelet of kproxide's own pod. The chart's Deployment makes a pod, the real scheduler binds it to
//! [`CONTROL_PLANE_NODE`], and from there on this module does what the kubelet
//! of that machine would: it resolves the environment, mounts the volumes in the kubelet's own layout, gets a token of
//! the pod's ServiceAccount, starts the binary, probes it and writes the pod's status.
//!
//! Three things differ from a container, because there is none: mount paths and `/dev/shm` lie under a temporary folder
//! (arguments and variables that name them are rewritten), `KUBECONFIG` names a file that points to the mounted token and
//! CA, since the paths of in-cluster configuration are fixed, and what would listen on every address of the pod
//! (`0.0.0.0`) listens on the one of loopback that stands for the pod's. Images, user ids and limits are not looked at.

mod environment;
mod process;
mod running;
mod volumes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::controlplane::{Api, ApiError, CONTROL_PLANE_NODE, ControlPlane};

use self::environment::Mounts;
use self::process::Process;

pub(crate) use process::signal;
pub use running::RunningPod;
pub(crate) use running::plain_client;

/// Where Kubernetes mounts the ServiceAccount's token, its namespace and the API server's CA.
const SERVICE_ACCOUNT_MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How often something outside this process is looked at again.
const INTERVAL: Duration = Duration::from_millis(25);

/// Why a pod does not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The scheduler bound no pod of that description to the control-plane Node in time.
    #[error(
        "no pod in {namespace} with {selector} on Node {CONTROL_PLANE_NODE} within {deadline:?}; there are: {seen}"
    )]
    NoPod {
        /// Where it was looked for.
        namespace: String,
        /// The label selector.
        selector: String,
        /// For how long.
        deadline: Duration,
        /// The pods that match, with Node and phase.
        seen: String,
    },
    /// The pod asks for something that this stand-in does not do. A test must not pass because it was ignored.
    #[error("the pod uses what the tests' kubelet does not support: {0}")]
    Unsupported(String),
    /// A ConfigMap, Secret or key that the pod refers to does not exist and is not optional.
    #[error("the pod refers to {0}, which does not exist")]
    Missing(String),
    /// The API server refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A file could not be written or the binary not be started.
    #[error("cannot run the pod: {doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The binary ended although it shall run.
    #[error("the pod's process ended with {status}; the end of its log:\n{log}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// Its last lines.
        log: String,
    },
    /// The binary runs, but its readiness probe fails.
    #[error("the pod is not ready within {deadline:?}: {probe}; the end of its log:\n{log}")]
    NotReady {
        /// For how long it was probed.
        deadline: Duration,
        /// The last answer.
        probe: String,
        /// Its last lines.
        log: String,
    },
}

impl LaunchError {
    fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        |source| LaunchError::Io {
            doing: doing.into(),
            source,
        }
    }
}

/// Runs pods of one binary.
#[derive(Clone, Debug)]
pub struct PodLauncher {
    api: Api,
    binary: PathBuf,
    more_env: BTreeMap<String, String>,
    root: Option<PathBuf>,
    /// The pod's own.
    address: String,
    /// Another address of the API server, and the authority that vouches for it.
    through: Option<(String, String)>,
    deadline: Duration,
}

impl PodLauncher {
    /// `binary` stands for the image: it is what runs, whatever image the pod names.
    pub fn new(cluster: &ControlPlane, binary: impl Into<PathBuf>) -> Self {
        PodLauncher {
            api: cluster.api().clone(),
            binary: binary.into(),
            more_env: BTreeMap::new(),
            root: None,
            address: "127.0.0.1".to_owned(),
            through: None,
            deadline: Duration::from_secs(60),
        }
    }

    /// Sets a variable that the pod's spec does not have, for example `RUST_LOG`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.more_env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Puts the mounts below `folder` instead of a temporary one: `/etc/kproxide/ca` becomes `folder/etc/kproxide/ca`.
    /// For paths that are in objects, where nobody rewrites them. One pod at a time can use a folder.
    #[must_use]
    pub fn mounts_below(mut self, folder: impl Into<PathBuf>) -> Self {
        self.root = Some(folder.into());
        self
    }

    /// Gives the pod another address of loopback, such as `127.0.0.2`: for two pods that listen on the same port.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        self.address = address.to_owned();
        self
    }

    /// Lets the process reach the API server at `url` only, whose certificate the authority `ca_pem` signed: for something
    /// that stands in between. The process still presents the token of its ServiceAccount.
    #[must_use]
    pub fn through(mut self, url: &str, ca_pem: &str) -> Self {
        self.through = Some((url.to_owned(), ca_pem.to_owned()));
        self
    }

    /// Waits for a pod that `selector` (`key=value,…`) describes to be bound to the control-plane Node, starts it and
    /// writes `Running` into its status. It counts as ready only after [`RunningPod::ready`].
    ///
    /// # Errors
    ///
    /// [`LaunchError`]; nothing keeps running then.
    pub async fn launch(&self, namespace: &str, selector: &str) -> Result<RunningPod, LaunchError> {
        let pod = self.bound_pod(namespace, selector).await?;
        let folder = tempfile::Builder::new()
            .prefix("kproxide-pod-")
            .tempdir()
            .map_err(LaunchError::io("making its folder"))?;
        let container = only_container(&pod)?.clone();
        let root = self
            .root
            .clone()
            .unwrap_or_else(|| folder.path().join("root"));
        let mounts = Mounts::of(&container, root)?;
        volumes::mount_all(&self.api, &pod, &mounts).await?;

        let mut env = environment::base(&pod);
        if let Some(secrets) = mounts.find(SERVICE_ACCOUNT_MOUNT) {
            let kubeconfig = folder.path().join("kubeconfig");
            let writing = || LaunchError::io("writing its kubeconfig");
            let (url, authority) = match &self.through {
                None => (self.api.url(), secrets.join("ca.crt")),
                Some((url, ca_pem)) => {
                    let authority = folder.path().join("through.pem");
                    std::fs::write(&authority, ca_pem).map_err(writing())?;
                    (url.as_str(), authority)
                }
            };
            let text = in_cluster_kubeconfig(url, &authority, &secrets.join("token"));
            std::fs::write(&kubeconfig, text).map_err(writing())?;
            env.insert("KUBECONFIG".to_owned(), kubeconfig.display().to_string());
        }
        env.extend(environment::resolve(&self.api, &pod, &container, &mounts).await?);
        env.extend(self.more_env.clone());
        let args = environment::arguments(&container, &env, &mounts)?;
        let own = format!("{}:", self.address);
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| arg.replace("0.0.0.0:", &own))
            .collect();

        let log = folder.path().join("log");
        let process = Process::start(&self.binary, &args, &env, &log)
            .map_err(LaunchError::io("starting the binary"))?;
        let running = RunningPod {
            api: self.api.clone(),
            path: pod_path(&pod),
            address: self.address.clone(),
            pod,
            container,
            mounts,
            binary: self.binary.clone(),
            args,
            env,
            log,
            process,
            restarts: 0,
            folder,
        };
        running.write_status(false).await?;
        Ok(running)
    }

    async fn bound_pod(&self, namespace: &str, selector: &str) -> Result<Value, LaunchError> {
        let end = Instant::now() + self.deadline;
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector={}",
            selector.replace('=', "%3D")
        );
        loop {
            let pods = self.api.list(&path).await?;
            let waits = |pod: &&Value| {
                pod["spec"]["nodeName"] == CONTROL_PLANE_NODE
                    && pod["status"]["phase"] == "Pending"
                    && pod["metadata"]["deletionTimestamp"].is_null()
            };
            if let Some(pod) = pods.iter().find(waits) {
                return Ok(pod.clone());
            }
            if Instant::now() >= end {
                let seen: Vec<String> = pods.iter().map(describe).collect();
                return Err(LaunchError::NoPod {
                    namespace: namespace.to_owned(),
                    selector: selector.to_owned(),
                    deadline: self.deadline,
                    seen: if seen.is_empty() {
                        "none".to_owned()
                    } else {
                        seen.join("; ")
                    },
                });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

fn only_container(pod: &Value) -> Result<&Value, LaunchError> {
    let unsupported = |what: &str| Err(LaunchError::Unsupported(what.to_owned()));
    if pod["spec"]["initContainers"]
        .as_array()
        .is_some_and(|list| !list.is_empty())
    {
        return unsupported("initContainers");
    }
    match pod["spec"]["containers"].as_array().map(Vec::as_slice) {
        Some([container]) => Ok(container),
        _ => unsupported("more than one container"),
    }
}

fn pod_path(pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    format!(
        "/api/v1/namespaces/{}/pods/{}",
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

fn describe(pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let unschedulable = pod["status"]["conditions"]
        .as_array()
        .and_then(|conditions| {
            conditions
                .iter()
                .find(|condition| condition["status"] == "False")
        })
        .map(|condition| format!(", {}", text(&condition["message"])))
        .unwrap_or_default();
    format!(
        "{} on {} ({}{unschedulable})",
        text(&pod["metadata"]["name"]),
        text(&pod["spec"]["nodeName"]),
        text(&pod["status"]["phase"]),
    )
}

/// What in-cluster configuration would say, with the mounts where they are on this machine.
fn in_cluster_kubeconfig(url: &str, authority: &Path, token: &Path) -> String {
    crate::controlplane::kubeconfig(
        &json!({ "server": url, "certificate-authority": authority }),
        &json!({ "tokenFile": token }),
    )
}

#[cfg(test)]
mod tests;
