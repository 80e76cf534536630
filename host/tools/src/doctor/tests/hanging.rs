//! What does not answer costs its own lines, and not the answer.

use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::time::Instant;

use super::ward::{Ward, ailments};
use crate::doctor::{NoKubernetes, examine};
use kproxide_controller::judge::Level;
use kproxide_kube::client::Client;

/// For the whole answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn a_proxmox_cluster_that_hangs_fails_its_own_lines_within_20_seconds() {
    let ward = Ward::new();
    let away = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": { "name": "away" },
        "spec": { "endpoints": ["https://away:8006"], "tls": { "insecureSkipVerify": true },
            "credentials": "away", "pool": "k8s", "vmidRange": { "first": 600, "last": 699 } },
    });
    ward.lab.apply([("proxmoxclusters.kproxide.dev", away)]);
    ward.wires(|wires| {
        wires.hanging.insert("https://away:8006".to_owned());
    });
    let began = Instant::now();
    let report = ward.examined().await;
    assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
    let found = ailments(&report);
    let expected = [
        (Level::Error, "ProxmoxCluster/away", "Unreachable"),
        (Level::Warning, "NodePool/workers", "ClusterNotReady"),
    ];
    // The pool uses both clusters; what follows from the finding is no finding of its own.
    assert_eq!(found, expected[..1], "{report}");
    assert!(report.to_string().contains("no answer within"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_kubernetes_that_hangs_ends_the_examination_within_20_seconds() {
    let ward = Ward::new();
    let mut sources = ward.sources();
    let kube = Client::from_service(tower::service_fn(async |_: Request<Body>| {
        std::future::pending::<()>().await;
        Ok::<_, tower::BoxError>(Response::new(Body::empty()))
    }));
    sources.kube = Some(kube);
    let began = Instant::now();
    let ended = examine(&sources, Vec::new()).await.unwrap_err();
    assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
    assert!(matches!(ended, NoKubernetes::Unreachable(_)), "{ended}");
}

/// One kind that the cluster does not serve, two that fail, and one that whoever asks may not see. Custom ones and those that are read anyway are told
/// elsewhere, and once.
#[tokio::test(start_paused = true)]
async fn each_kind_that_is_watched_and_cannot_be_listed_is_told_once() {
    let ward = Ward::new();
    ward.wires(|wires| {
        wires.failing = [
            ("/api/v1/pods", 500),
            ("/api/v1/nodes", 500),
            ("/apis/policy/v1/poddisruptionbudgets", 403),
            ("/apis/storage.k8s.io/v1/csinodes", 404),
            ("/apis/storage.k8s.io/v1/csistoragecapacities", 404),
        ]
        .into();
    });
    let report = ward.examined().await;
    let expected = [
        (Level::Error, "Watch/csinodes", "WatchFails"),
        (Level::Error, "Watch/csistoragecapacities", "WatchFails"),
        (Level::Error, "Watch/pods", "WatchFails"),
        (Level::Error, "nodes", "NotListed"),
    ];
    let mut found = ailments(&report);
    found.sort_by_key(|(_, object, _)| *object);
    assert_eq!(found, expected, "{report}");
    let text = report.to_string();
    assert!(
        text.contains("pods cannot be listed") && text.contains("a test"),
        "{text}"
    );
    assert!(
        text.contains("kubectl get --raw '/api/v1/pods?limit=1'"),
        "{text}"
    );
}
