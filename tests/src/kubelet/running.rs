use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::controlplane::Api;

use super::environment::Mounts;
use super::process::Process;
use super::{INTERVAL, LaunchError, volumes};

/// As long as a probe may take.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);

/// A pod whose process runs, or ran. Dropping it kills the process and removes its files; if the test is failing at that
/// moment, the end of the log goes to stderr first and the files stay.
#[derive(Debug)]
pub struct RunningPod {
    pub(super) api: Api,
    pub(super) path: String,
    /// The pod's, on loopback.
    pub(super) address: String,
    pub(super) pod: Value,
    pub(super) container: Value,
    pub(super) mounts: Mounts,
    pub(super) binary: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) log: PathBuf,
    pub(super) process: Process,
    pub(super) restarts: u32,
    pub(super) folder: TempDir,
}

impl RunningPod {
    /// The pod's name.
    pub fn name(&self) -> &str {
        self.pod["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The arguments that the process got, mount paths rewritten.
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// Where a path of the container is on this machine, if it lies in a mount.
    pub fn path_of(&self, path_in_container: &str) -> Option<PathBuf> {
        self.mounts.translate(path_in_container)
    }

    /// Both outputs of the process, over all restarts.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What Linux says of the process: its `/proc/PID/file`. A process that has ended has none.
    ///
    /// # Errors
    ///
    /// Those of reading the file.
    pub fn process_file(&self, file: &str) -> std::io::Result<String> {
        let pid = self.process.pid().ok_or(std::io::ErrorKind::NotFound)?;
        std::fs::read_to_string(format!("/proc/{pid}/{file}"))
    }

    /// The last lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        crate::controlplane::tail(&self.log, lines)
    }

    /// Probes the container's `readinessProbe` until it succeeds, and writes that into the pod's status. A container
    /// without one is ready at once, as in Kubernetes.
    ///
    /// # Errors
    ///
    /// When the process ends or the deadline passes, with the end of the log.
    pub async fn ready(&mut self, deadline: Duration) -> Result<(), LaunchError> {
        let end = Instant::now() + deadline;
        if let Some(url) = self.readiness_url()? {
            let client = plain_client(PROBE_DEADLINE).map_err(LaunchError::Unsupported)?;
            loop {
                if let Some(status) = self.process.ended() {
                    return Err(LaunchError::Ended {
                        status,
                        log: self.log_tail(40),
                    });
                }
                let probe = match client.get(&url).send().await {
                    // What the kubelet counts as success.
                    Ok(answer) if (200..400).contains(&answer.status().as_u16()) => break,
                    Ok(answer) => format!("{url} answers {}", answer.status()),
                    Err(error) => format!("{url} does not answer: {error}"),
                };
                if Instant::now() >= end {
                    return Err(LaunchError::NotReady {
                        deadline,
                        probe,
                        log: self.log_tail(40),
                    });
                }
                tokio::time::sleep(INTERVAL).await;
            }
        }
        self.write_status(true).await
    }

    /// Waits until the process has ended, and writes into the pod's status whether it succeeded: for a pod of a Job.
    ///
    /// # Errors
    ///
    /// When the deadline passes, or the process fails, with the end of the log.
    pub async fn finish(&mut self, deadline: Duration) -> Result<(), LaunchError> {
        let end = Instant::now() + deadline;
        let status = loop {
            if let Some(status) = self.process.ended() {
                break status;
            }
            if Instant::now() >= end {
                return Err(LaunchError::NotReady {
                    deadline,
                    probe: "it runs on".to_owned(),
                    log: self.log_tail(40),
                });
            }
            tokio::time::sleep(INTERVAL).await;
        };
        let phase = if status.success() {
            "Succeeded"
        } else {
            "Failed"
        };
        let ended = json!({ "status": { "phase": phase, "containerStatuses": [{
            "name": self.container["name"],
            "image": self.container["image"],
            "imageID": "",
            "ready": false,
            "restartCount": self.restarts,
            "state": { "terminated": { "exitCode": status.code().unwrap_or(137) } },
        }] } });
        let path = format!("{}/status", self.path);
        self.api.merge(&path, &ended).await?;
        if status.success() {
            return Ok(());
        }
        let log = self.log_tail(40);
        Err(LaunchError::Ended { status, log })
    }

    /// How the process ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// SIGKILL, as the kernel's when memory runs out: the process has no say. Returns when it is gone.
    ///
    /// # Errors
    ///
    /// When the pod's status cannot be written.
    pub async fn kill9(&mut self) -> Result<(), LaunchError> {
        self.process.kill().await;
        self.write_status(false).await
    }

    /// SIGTERM, as when the pod was deleted; the process ends when it has come to an end ([`ended`](Self::ended)).
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub async fn tell_to_stop(&self) -> Result<(), LaunchError> {
        let sent = self.process.signal("TERM").await;
        sent.map_err(LaunchError::io("telling the process to stop"))
    }

    /// SIGSTOP: the process stays, and does nothing until [`resume`](Self::resume), as on a machine that hangs.
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub async fn pause(&self) -> Result<(), LaunchError> {
        let sent = self.process.signal("STOP").await;
        sent.map_err(LaunchError::io("stopping the process"))
    }

    /// SIGCONT, after [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub async fn resume(&self) -> Result<(), LaunchError> {
        let sent = self.process.signal("CONT").await;
        sent.map_err(LaunchError::io("resuming the process"))
    }

    /// How often the container was started again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Starts the container again, as the kubelet does after it ended: same pod, same arguments, same mounts.
    ///
    /// # Errors
    ///
    /// When the binary cannot be started or the status not be written.
    pub async fn restart(&mut self) -> Result<(), LaunchError> {
        self.process.kill().await;
        self.process = Process::start(&self.binary, &self.args, &self.env, &self.log)
            .map_err(LaunchError::io("starting the binary"))?;
        self.restarts += 1;
        self.write_status(false).await
    }

    /// Brings ConfigMaps, Secrets and the token up to date in the mounts, as the kubelet does from time to time: a new
    /// folder beside the old one, and one atomic rename of `..data`. A volume whose contents did not change stays.
    ///
    /// # Errors
    ///
    /// As [`PodLauncher::launch`](super::PodLauncher::launch).
    pub async fn refresh_volumes(&self) -> Result<(), LaunchError> {
        volumes::mount_all(&self.api, &self.pod, &self.mounts).await
    }

    /// Terminates the process and removes the pod, as the kubelet does once somebody deleted it. Its Deployment makes
    /// another, unless it is gone too.
    ///
    /// # Errors
    ///
    /// When the API server refuses; a pod that is gone already is fine.
    pub async fn remove(mut self) -> Result<ExitStatus, LaunchError> {
        let grace = self.pod["spec"]["terminationGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(30);
        let status = self
            .process
            .terminate(Duration::from_secs(grace))
            .await
            .map_err(LaunchError::io("terminating the process"))?;
        match self.api.delete_now(&self.path).await {
            Err(error) if error.status().is_none_or(|status| status.as_u16() != 404) => {
                Err(error.into())
            }
            Ok(_) | Err(_) => Ok(status),
        }
    }

    fn readiness_url(&self) -> Result<Option<String>, LaunchError> {
        let probe = &self.container["readinessProbe"];
        if probe.is_null() {
            return Ok(None);
        }
        let http = &probe["httpGet"];
        let named = |name: &str| {
            self.container["ports"]
                .as_array()?
                .iter()
                .find(|port| port["name"] == name)?["containerPort"]
                .as_u64()
        };
        let port = http["port"]
            .as_u64()
            .or_else(|| named(http["port"].as_str()?));
        match (port, http["path"].as_str()) {
            (Some(port), Some(path)) => Ok(Some(format!("http://{}:{port}{path}", self.address))),
            _ => Err(LaunchError::Unsupported(format!("readinessProbe {probe}"))),
        }
    }

    pub(super) async fn write_status(&self, ready: bool) -> Result<(), LaunchError> {
        let truth = if ready { "True" } else { "False" };
        let status = json!({ "status": {
            "phase": "Running",
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{ "ip": self.address }],
            "conditions": [
                { "type": "PodScheduled", "status": "True" },
                { "type": "Initialized", "status": "True" },
                { "type": "ContainersReady", "status": truth },
                { "type": "Ready", "status": truth },
            ],
            "containerStatuses": [{
                "name": self.container["name"],
                "image": self.container["image"],
                "imageID": "",
                "ready": ready,
                "started": true,
                "restartCount": self.restarts,
                "state": { "running": {} },
            }],
        }});
        self.api
            .merge(&format!("{}/status", self.path), &status)
            .await?;
        Ok(())
    }
}

impl Drop for RunningPod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- {} ({})\n{}",
                self.name(),
                self.log.display(),
                self.log_tail(80)
            );
            self.folder.disable_cleanup(true);
        }
    }
}

/// For servers on loopback that speak plain HTTP and answer within `deadline`.
pub(crate) fn plain_client(deadline: Duration) -> Result<reqwest::Client, String> {
    // The client wants to know its TLS library all the same.
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(deadline)
        .no_proxy()
        .build()
        .map_err(|error| error.to_string())
}
