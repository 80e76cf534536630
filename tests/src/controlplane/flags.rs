//! The command lines of the servers. They are those of a usual cluster, except where a test on loopback needs less:
//! no fsync, no leader election among one, no second listener, short periods.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::StartError;
use super::kubeconfig::Access;
use super::pki::Pki;

/// Where the servers' files are.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    pki: PathBuf,
    controller_manager_kubeconfig: PathBuf,
    scheduler_config: PathBuf,
    pub(super) kwok_stages: PathBuf,
}

impl Files {
    /// Writes the kubeconfigs of the servers and the scheduler's configuration into `root`.
    pub(super) fn write(root: &Path, admin: &Access, pki: &Pki) -> Result<Self, StartError> {
        let files = Files {
            root: root.to_owned(),
            pki: pki.folder.clone(),
            controller_manager_kubeconfig: root.join("controller-manager.kubeconfig"),
            scheduler_config: root.join("scheduler.json"),
            kwok_stages: root.join("kwok-stages.yaml"),
        };
        let kubeconfig = |certificate| {
            Access::certificate(admin.server.clone(), admin.ca_pem.clone(), certificate)
                .kubeconfig()
        };
        std::fs::write(
            &files.controller_manager_kubeconfig,
            kubeconfig(pki.controller_manager.clone()),
        )?;
        let scheduler_kubeconfig = root.join("scheduler.kubeconfig");
        std::fs::write(&scheduler_kubeconfig, kubeconfig(pki.scheduler.clone()))?;
        let scheduler = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": { "kubeconfig": scheduler_kubeconfig, "qps": 200, "burst": 400 },
            "leaderElection": { "leaderElect": false },
            // A pod that found no Node is tried again after at most this long once a Node came; usual is up to 10 s.
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
        });
        std::fs::write(&files.scheduler_config, scheduler.to_string())?;
        Ok(files)
    }

    fn pki(&self, name: &str) -> String {
        text(&self.pki.join(name))
    }
}

pub(super) fn etcd(files: &Files, client_port: u16, peer_port: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", text(&files.root.join("etcd"))),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_owned(),
        // The data does not outlive the test, and a lone member need not wait long for others to vote.
        "--unsafe-no-fsync".to_owned(),
        "--heartbeat-interval=50".to_owned(),
        "--election-timeout=250".to_owned(),
    ]
}

pub(super) fn api_server(files: &Files, etcd_port: u16, port: u16, more: &[String]) -> Vec<String> {
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        // An endpoint on loopback would be refused as the address of the `kubernetes` Service.
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        format!("--cert-dir={}", text(&files.root.join("apiserver"))),
        format!("--tls-cert-file={}", files.pki("apiserver.crt")),
        format!("--tls-private-key-file={}", files.pki("apiserver.key")),
        format!("--client-ca-file={}", files.pki("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", files.pki("sa.pub")),
        format!("--service-account-signing-key-file={}", files.pki("sa.key")),
        "--enable-bootstrap-token-auth".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged".to_owned(),
        "--shutdown-delay-duration=0s".to_owned(),
    ];
    flags.extend_from_slice(more);
    flags
}

pub(super) fn controller_manager(files: &Files, node_grace: Duration) -> Vec<String> {
    vec![
        format!(
            "--kubeconfig={}",
            text(&files.controller_manager_kubeconfig)
        ),
        "--leader-elect=false".to_owned(),
        // Serves nothing, and so needs no way to authenticate its own callers.
        "--secure-port=0".to_owned(),
        "--use-service-account-credentials".to_owned(),
        "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
        format!("--root-ca-file={}", files.pki("ca.crt")),
        format!("--service-account-private-key-file={}", files.pki("sa.key")),
        format!("--cluster-signing-cert-file={}", files.pki("ca.crt")),
        format!("--cluster-signing-key-file={}", files.pki("ca.key")),
        "--node-monitor-period=1s".to_owned(),
        format!("--node-monitor-grace-period={}s", node_grace.as_secs()),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
    ]
}

pub(super) fn scheduler(files: &Files) -> Vec<String> {
    vec![
        format!("--config={}", text(&files.scheduler_config)),
        "--secure-port=0".to_owned(),
    ]
}

pub(super) fn kwok(files: &Files, admin_kubeconfig: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", text(admin_kubeconfig)),
        format!("--config={}", text(&files.kwok_stages)),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
        "--node-lease-duration-seconds=40".to_owned(),
        "--cidr=10.244.0.0/16".to_owned(),
    ]
}

/// Temporary folders have names of ASCII letters unless someone's `TMPDIR` does not; then the server says so.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
