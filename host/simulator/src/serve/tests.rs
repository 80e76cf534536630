//! The whole world over real sockets and TLS, as a program in another process sees it: by the files alone.

use http::{Method, header::AUTHORIZATION};
use serde_json::Value;

use super::*;
use crate::kube::fixtures;

const LIMIT: Duration = Duration::from_secs(60);

async fn served() -> Served {
    let setting = Setting {
        seed: 1,
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        topology: Topology::of(1).instant(),
        guests: Guests::instant(),
        pace: Pace::INSTANT,
        pve_port: 0,
        cluster: Cluster::Simulated { port: 0 },
    };
    Served::start(setting).await.unwrap()
}

/// A client of Proxmox VE that knows what lies in the folder.
struct Client {
    http: reqwest::Client,
    url: String,
    authorization: String,
}

impl Client {
    fn new(folder: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        let connection: Value = serde_json::from_str(&read("pve.json")).unwrap();
        let authority = fs::read(connection["caFile"].as_str().unwrap()).unwrap();
        // Somebody else in this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&authority).unwrap()])
            .no_proxy()
            .build()
            .unwrap();
        let (id, secret) = (
            read("credentials/proxmox/token-id"),
            read("credentials/proxmox/token-secret"),
        );
        Self {
            http,
            url: format!("{}/api2/json", connection["url"].as_str().unwrap()),
            authorization: format!("PVEAPIToken={id}={secret}"),
        }
    }

    async fn call(&self, method: Method, path: &str, form: &[(&str, &str)]) -> Value {
        let request = self
            .http
            .request(method, format!("{}{path}", self.url))
            .header(AUTHORIZATION, &self.authorization);
        let request = if form.is_empty() {
            request
        } else {
            request.form(form)
        };
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status}: {text}");
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        answer["data"].take()
    }

    async fn done(&self, upid: &Value) {
        let path = format!("/nodes/pve1/tasks/{}/status", upid.as_str().unwrap());
        let wait = async {
            loop {
                let task = self.call(Method::GET, &path, &[]).await;
                if task["status"] == "stopped" {
                    return task;
                }
            }
        };
        let task = tokio::time::timeout(LIMIT, wait).await.unwrap();
        assert_eq!(task["exitstatus"], "OK");
    }
}

#[tokio::test]
async fn a_machine_that_is_started_over_the_wire_becomes_a_node_and_runs_a_pod() {
    let served = served().await;
    let folder = tempfile::tempdir().unwrap();
    served.write_files(folder.path(), "proxmox").unwrap();
    let kube = served.kube.as_ref().unwrap().kube.clone();
    kube.create("pods", fixtures::pod("waits", "1", "1Gi"))
        .unwrap();
    let (_, mut changes) = kube.subscribe(&["pods"]);

    let client = Client::new(folder.path());
    let clone = [("newid", "700"), ("name", "machine")];
    let upid = client
        .call(Method::POST, "/nodes/pve1/qemu/9001/clone", &clone)
        .await;
    client.done(&upid).await;
    let upid = client
        .call(
            Method::POST,
            "/nodes/pve1/qemu/700/status/start",
            &[("timeout", "30")],
        )
        .await;
    client.done(&upid).await;

    let runs = async {
        while kube.get("pods", "default", "waits").unwrap()["status"]["phase"] != "Running" {
            changes.recv().await;
        }
    };
    tokio::time::timeout(LIMIT, runs).await.unwrap();
    let pod = kube.get("pods", "default", "waits").unwrap();
    assert_eq!(pod["spec"]["nodeName"], "machine");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let first = served().await;
    let taken = first.pve_wire.address();
    let setting = Setting {
        seed: 1,
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        topology: Topology::of(1),
        guests: Guests::default(),
        pace: Pace::REAL,
        pve_port: taken.port(),
        cluster: Cluster::Simulated { port: 0 },
    };
    let refusal = Served::start(setting).await.err().unwrap();
    assert_eq!(refusal.to_string(), format!("cannot listen on {taken}"));
}
