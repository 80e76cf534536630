//! Defects of join scripts. In real time, because a shell reads them and a socket is asked.

use serde_json::json;
use tokio::net::TcpListener;

use super::ward::{Ward, ailments};
use crate::doctor::Level;

const TAINT: &str = "--node-taint kproxide.dev/unregistered=:NoExecute";
const DEBIAN: &str = "NodeClass/debian";

/// The script has this defect and no other.
async fn finds(ward: &Ward, script: &str, reason: &str, words: &str) {
    ward.script(script);
    let report = ward.examined().await;
    assert_eq!(
        ailments(&report),
        [(Level::Error, DEBIAN, reason)],
        "{report}"
    );
    assert!(report.to_string().contains(words), "{report}");
}

async fn is_well(ward: &Ward, script: &str) {
    ward.script(script);
    let report = ward.examined().await;
    assert_eq!(ailments(&report), [], "{report}");
}

#[tokio::test]
async fn each_mistake_in_a_join_script_is_found_alone() {
    let ward = Ward::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let k3s = |url: &str, token: &str, version: &str| {
        format!(
            "export K3S_URL={url}\nexport K3S_TOKEN={token}\nexport INSTALL_K3S_VERSION={version}\nsh -s - agent {TAINT}\n"
        )
    };
    let url = format!("https://127.0.0.1:{port}");
    let right = k3s(&url, "K10abc", "v1.33.4+k3s1");
    is_well(&ward, &right).await;
    finds(
        &ward,
        &k3s(&url, "...", "v1.33.4+k3s1"),
        "JoinPlaceholder",
        "line 2",
    )
    .await;
    finds(
        &ward,
        &right.replace(TAINT, ""),
        "JoinTaintMissing",
        "kproxide.dev/unregistered",
    )
    .await;
    finds(
        &ward,
        &format!("if true; then\n{right}"),
        "JoinSyntax",
        "yntax error",
    )
    .await;
    finds(
        &ward,
        &k3s(&url, "K10abc", "v1.99.0+k3s1"),
        "JoinVersionNewer",
        "v1.99.0+k3s1",
    )
    .await;
    is_well(&ward, &right).await;
    drop(listener);
    finds(&ward, &right, "JoinServerSilent", "seen from a test").await;
}

#[tokio::test]
async fn a_bootstrap_token_that_has_expired_is_told() {
    let ward = Ward::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "kubeadm join 127.0.0.1:{port} --token abcdef.0123456789abcdef\n# {TAINT}\necho {TAINT}\n"
    );
    finds(
        &ward,
        &script,
        "JoinTokenExpired",
        "there is no bootstrap token abcdef",
    )
    .await;
    let secret = |until: &str| {
        use base64::Engine as _;
        let until = base64::engine::general_purpose::STANDARD.encode(until);
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": "bootstrap-token-abcdef", "namespace": "kube-system" },
            "data": { "expiration": until },
        })
    };
    let kube = &ward.lab.kube;
    kube.create("secrets", secret("2025-01-05T08:00:00Z"))
        .unwrap();
    finds(&ward, &script, "JoinTokenExpired", "has expired at").await;
    let name = "bootstrap-token-abcdef";
    kube.delete("secrets", "kube-system", name).unwrap();
    kube.create("secrets", secret("2027-01-05T08:00:00Z"))
        .unwrap();
    is_well(&ward, &script).await;
}
