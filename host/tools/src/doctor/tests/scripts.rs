//! Defects of join scripts. In real time, because a shell reads them and a socket is asked.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::Digest as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::ward::{Ward, ailments};
use kproxide_controller::judge::Level;

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

/// A server that shows its authorities to everybody, as k3s does. The port, and their text.
async fn k3s() -> (u16, &'static str, JoinSet<()>) {
    // reqwest asks the process for its provider. Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    const AUTHORITIES: &str = "-----BEGIN CERTIFICATE-----";
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut running = JoinSet::new();
    running.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Whoever only connects is no client of TLS.
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let serve = service_fn(|request: Request<hyper::body::Incoming>| async move {
                assert_eq!(request.uri().path(), "/cacerts");
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(AUTHORITIES))))
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), serve)
                .await;
        }
    });
    (port, AUTHORITIES, running)
}

#[tokio::test]
async fn a_token_of_another_k3s_cluster_is_told() {
    let ward = Ward::new();
    let (port, authorities, _running) = k3s().await;
    let hash = kproxide_common::hex::hex(&sha2::Sha256::digest(authorities));
    let script = |hash: &str| {
        format!("server=https://127.0.0.1:{port}\ntoken=K10{hash}::server:x\necho {TAINT}\n")
    };
    is_well(&ward, &script(&hash)).await;
    let other = kproxide_common::hex::hex(&sha2::Sha256::digest("another"));
    finds(
        &ward,
        &script(&other),
        "JoinTokenForeign",
        "has other certificates",
    )
    .await;
    // The short form of a token names no authorities.
    is_well(&ward, &script("").replace("K10::server:", "")).await;
}

#[tokio::test]
async fn a_bootstrap_token_that_has_expired_or_will_is_told_with_the_command_that_makes_another() {
    let ward = Ward::new();
    let (port, authorities, _serving) = k3s().await;
    let hash = kproxide_common::hex::hex(&sha2::Sha256::digest(authorities));
    let secret = |until: Option<&str>| {
        use base64::Engine as _;
        let encoded = |text| base64::engine::general_purpose::STANDARD.encode(text);
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": "bootstrap-token-abcdef", "namespace": "kube-system" },
            "data": { "expiration": until.map(encoded) },
        })
    };
    let kube = &ward.lab.kube;
    let name = "bootstrap-token-abcdef";
    for (script, make) in [
        (
            format!("kubeadm join 127.0.0.1:{port} --token abcdef.0123456789abcdef\n"),
            "kubeadm token create --ttl 0",
        ),
        (
            format!(
                "export K3S_URL=https://127.0.0.1:{port}\nexport K3S_TOKEN='K10{hash}::abcdef.0123456789abcdef'\n"
            ),
            "k3s token create --ttl 0",
        ),
    ] {
        let script = format!("{script}echo {TAINT}\n");
        let finds = async |reason, words| {
            finds(&ward, &script, reason, words).await;
            let report = ward.examined().await;
            let found = report.findings.iter().find(|it| it.reason.word == reason);
            assert_eq!(found.unwrap().commands, [make]);
        };
        finds("JoinTokenExpired", "there is no bootstrap token abcdef").await;
        let past = secret(Some("2025-01-05T08:00:00Z"));
        kube.create("secrets", past).unwrap();
        finds("JoinTokenExpired", "has expired at").await;
        kube.delete("secrets", "kube-system", name).unwrap();
        let future = secret(Some("2027-01-05T08:00:00Z"));
        kube.create("secrets", future).unwrap();
        ward.script(&script);
        let report = ward.examined().await;
        let expected = [(Level::Warning, DEBIAN, "JoinTokenExpires")];
        assert_eq!(ailments(&report), expected, "{report}");
        assert!(report.to_string().contains(make), "{report}");
        kube.delete("secrets", "kube-system", name).unwrap();
        kube.create("secrets", secret(None)).unwrap();
        is_well(&ward, &script).await;
        kube.delete("secrets", "kube-system", name).unwrap();
    }
}
