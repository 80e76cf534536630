use std::convert::Infallible;

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

async fn connect(wire: &Wire) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = rustls::pki_types::CertificateDer::from_pem_slice(wire.ca_pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(wire.address()).await.unwrap();
    let name = ServerName::try_from("pve1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

async fn exchange(wire: &Wire, path: &str) -> String {
    let mut stream = connect(wire).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: pve1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that breaks without a TLS goodbye still delivered what it delivered.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn serve(idle: Option<Duration>) -> Wire {
    let service = tower::service_fn(|request: Request<Bytes>| async move {
        let mut response = match request.uri().path() {
            "/cut" => Cut::response(crate::faults::Broken::Lost),
            _ => Response::new(Bytes::from_static(b"hello")),
        };
        let reason = hyper::ext::ReasonPhrase::from_static(b"Quite so");
        response.extensions_mut().insert(reason);
        Ok::<_, Infallible>(response)
    });
    let options = Options {
        names: vec!["pve1".into()],
        idle,
        ..Options::default()
    };
    Wire::serve(whole(service), options).await.unwrap()
}

#[tokio::test]
async fn trusted_client_gets_answer_and_reason_phrase() {
    let wire = serve(None).await;
    let answer = exchange(&wire, "/").await;
    assert!(answer.starts_with("HTTP/1.1 200 Quite so\r\n"), "{answer}");
    assert!(answer.ends_with("hello"));
    assert_eq!(wire.fingerprint().len(), 95);
}

#[tokio::test]
async fn cut_connection_has_no_answer() {
    let wire = serve(None).await;
    assert_eq!(exchange(&wire, "/cut").await, "");
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let wire = serve(Some(Duration::from_millis(100))).await;
    let mut stream = connect(&wire).await;
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the server still keeps the connection");
}
