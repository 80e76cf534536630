//! A pod's credentials are files that others replace: its token every few minutes, the CA some day.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kproxide_testkit::eventually;
use kube::config::AuthInfo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use kproxide_kube::client::Client;
use kproxide_kube::ledger;

/// What the server is and takes at the moment.
struct Now {
    acceptor: tokio_rustls::TlsAcceptor,
    token: &'static str,
}

/// A certificate and its PEM.
fn certificate() -> (tokio_rustls::TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    (Arc::new(tls).into(), made.cert.pem())
}

/// Answers each connection's first request: that there is no such object, or that nobody knows this token.
async fn serve(listener: TcpListener, now: Arc<Mutex<Now>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, token) = {
            let now = now.lock().unwrap();
            (now.acceptor.clone(), now.token)
        };
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| async move {
                let known = format!("Bearer {token}");
                let (status, reason) = match &request.headers()["authorization"] {
                    given if *given == *known => (StatusCode::NOT_FOUND, "NotFound"),
                    _ => (StatusCode::UNAUTHORIZED, "Unauthorized"),
                };
                let body = format!(
                    r#"{{"kind":"Status","status":"Failure","reason":"{reason}","code":{},"message":"no"}}"#,
                    status.as_u16()
                );
                let mut response = Response::new(Full::new(Bytes::from(body)));
                *response.status_mut() = status;
                Ok::<_, std::convert::Infallible>(response)
            });
            // A client that goes away is no matter.
            let _ = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

fn config(url: &str, token: &Path, ca: &Path) -> kube::Config {
    let mut config = kube::Config::new(url.parse().unwrap());
    // As `kube::Config::incluster` has it.
    config.root_cert_file = Some(ca.to_owned());
    config.auth_info = AuthInfo {
        token_file: Some(token.display().to_string()),
        ..AuthInfo::default()
    };
    config
}

/// Takes a minute, because kube reads the files only that often. So it stands among the stories, which take longer.
#[tokio::test]
async fn f67_a_new_token_and_a_new_ca_are_taken_without_a_restart() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let (token, ca) = (folder.path().join("token"), folder.path().join("ca.crt"));
    let (acceptor, pem) = certificate();
    std::fs::write(&token, "one").unwrap();
    std::fs::write(&ca, pem).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let now = Arc::new(Mutex::new(Now {
        acceptor,
        token: "one",
    }));
    let mut server = JoinSet::new();
    server.spawn(serve(listener, now.clone()));
    let client = Client::from_config(config(&url, &token, &ca)).unwrap();
    assert_eq!(ledger::get(&client).await.unwrap(), None);

    let (acceptor, pem) = certificate();
    std::fs::write(&token, "two").unwrap();
    std::fs::write(&ca, pem).unwrap();
    *now.lock().unwrap() = Now {
        acceptor,
        token: "two",
    };
    ledger::get(&client).await.unwrap_err();
    let deadline = Duration::from_secs(100);
    let found = eventually(deadline, "the new token and CA in use", async || {
        ledger::get(&client)
            .await
            .map_err(|error| error.to_string())
    });
    assert_eq!(found.await, None);
}
