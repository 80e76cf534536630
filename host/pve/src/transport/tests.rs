use std::sync::Arc;

use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::error::{Executed, Meaning};
use crate::fixtures;
use crate::tls::Fingerprint;

/// A TLS server on loopback that answers everything with 500 and a reason phrase of its own.
struct Server {
    url: String,
    fingerprint: Fingerprint,
    ca: tempfile::NamedTempFile,
    _running: JoinSet<()>,
}

async fn server(names: &[&str]) -> Server {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), made.cert.pem()).unwrap();
    let mut running = JoinSet::new();
    running.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let serve = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let mut response =
                        Response::new(Full::new(Bytes::from(request.uri().to_string())));
                    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                    response
                        .extensions_mut()
                        .insert(ReasonPhrase::from_static(b"VM is locked (clone)"));
                    Ok::<_, std::convert::Infallible>(response)
                });
                // A client that goes away is no matter.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), serve)
                    .await;
            });
        }
    });
    Server {
        url: format!("https://localhost:{port}"),
        fingerprint: Fingerprint::of(&certificate),
        ca,
        _running: running,
    }
}

async fn ask(server: &Server, trust: Trust) -> crate::error::Error {
    let endpoint = https(&server.url, &trust, Duration::from_secs(3)).unwrap();
    fixtures::client(vec![endpoint])
        .version()
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_pinned_certificate_is_enough_and_the_reason_phrase_survives() {
    // Not even the name fits: Proxmox's certificates do not name every address they are reached by.
    let server = server(&["pve1.example"]).await;
    let error = ask(&server, Trust::Fingerprints(vec![server.fingerprint])).await;
    assert_eq!(error.text(), "VM is locked (clone)");
}

#[tokio::test]
async fn f54_a_wrong_fingerprint_names_both() {
    let server = server(&["localhost"]).await;
    let expected: Fingerprint = "AB".repeat(32).parse().unwrap();
    let error = ask(&server, Trust::Fingerprints(vec![expected])).await;
    assert_eq!(
        (error.meaning.clone(), error.executed),
        (Meaning::Untrusted, Executed::No)
    );
    let words = error.chain();
    assert!(
        words.contains(&format!("has the fingerprint {}", server.fingerprint)),
        "{words}"
    );
    assert!(
        words.contains(&format!("tls.fingerprints allows {expected}")),
        "{words}"
    );
}

#[tokio::test]
async fn f54_a_ca_file_is_enough_for_the_right_name() {
    let server = server(&["localhost"]).await;
    let error = ask(&server, Trust::CaFile(server.ca.path().to_owned())).await;
    assert_eq!(error.text(), "VM is locked (clone)");

    let other = self::server(&["pve1.example"]).await;
    let error = ask(&other, Trust::CaFile(other.ca.path().to_owned())).await;
    assert_eq!(error.meaning, Meaning::Untrusted);
    assert!(
        error.chain().contains("or tls.fingerprints"),
        "{}",
        error.chain()
    );
}

#[tokio::test]
async fn insecure_takes_anything() {
    let server = server(&["pve1.example"]).await;
    let error = ask(&server, Trust::InsecureSkipVerify).await;
    assert_eq!(error.text(), "VM is locked (clone)");
}

#[tokio::test]
async fn no_connection_means_nothing_was_sent() {
    // Bound and dropped: nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let endpoint = https(
        &format!("127.0.0.1:{port}"),
        &Trust::InsecureSkipVerify,
        Duration::from_secs(3),
    )
    .unwrap();
    let error = fixtures::client(vec![endpoint])
        .start("pve1", 101)
        .await
        .unwrap_err();
    assert_eq!(
        (error.meaning.clone(), error.executed),
        (Meaning::Unreachable, Executed::No)
    );
}

#[tokio::test]
async fn a_closed_connection_means_nobody_knows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![certificate.cert.der().clone()], key.into())
    .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Takes the connection, reads the request's first byte, and hangs up.
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = tokio::io::AsyncReadExt::read_u8(&mut stream).await;
            }
        }
    });
    let endpoint = https(
        &format!("127.0.0.1:{port}"),
        &Trust::InsecureSkipVerify,
        Duration::from_secs(3),
    )
    .unwrap();
    let error = fixtures::client(vec![endpoint])
        .start("pve1", 101)
        .await
        .unwrap_err();
    assert_eq!(
        (error.meaning.clone(), error.executed),
        (Meaning::AnswerLost, Executed::Unknown)
    );
}

#[tokio::test]
async fn the_systems_certificates_are_there_or_the_way_out_is_named() {
    // An image without CA certificates is as usual as a machine with them.
    match https("pve1", &Trust::System, Duration::from_secs(3)) {
        Ok(endpoint) => assert_eq!(endpoint.name, "pve1:8006"),
        Err(error) => assert!(
            error
                .to_string()
                .contains("`tls.caFile` or `tls.fingerprints`")
        ),
    }
}

#[test]
fn endpoints_are_read_as_people_write_them() {
    for (written, url) in [
        ("pve1", "https://pve1:8006"),
        ("pve1.lan:443", "https://pve1.lan:443"),
        ("https://10.0.0.1", "https://10.0.0.1:8006"),
        ("https://10.0.0.1:8006/api2/json", "https://10.0.0.1:8006"),
        ("https://[fd00::1]:8006/", "https://[fd00::1]:8006"),
    ] {
        assert_eq!(base_url(written).unwrap(), url, "{written}");
    }
    for (written, problem) in [
        ("http://pve1:8006", "over TLS only"),
        ("ftp://pve1", "not https"),
        ("https://root:x@pve1", "credentials do not belong"),
        ("", "empty host"),
    ] {
        let error = base_url(written).unwrap_err().to_string();
        assert!(
            error.contains(problem) && error.contains("https://HOST:8006"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_in_process_server_fits() {
    let service = tower::service_fn(|_: Request<Bytes>| async {
        let body = json!({"data": {"version": "8.4.1"}}).to_string();
        Ok::<_, std::convert::Infallible>(Response::new(Bytes::from(body)))
    });
    let client = fixtures::client(vec![Endpoint::new("simulated", service)]);
    assert_eq!(client.version().await.unwrap().major(), 8);
}
