//! Simulated APIs on the wire: HTTPS on loopback with a certificate made for the occasion.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt};

use crate::faults::Cut;

/// For a client that connects and then says nothing.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why an API could not be served.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 takes any free one.
    pub address: SocketAddr,
    /// Names in the certificate besides `localhost` and `127.0.0.1`.
    pub names: Vec<String>,
    /// Connections without a request for this long are closed; pveproxy does so after 5 s.
    pub idle: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            names: Vec::new(),
            idle: None,
        }
    }
}

/// An API that is being served. Dropping it cuts all connections.
pub struct Wire {
    address: SocketAddr,
    authority: Arc<Authority>,
    fingerprint: String,
    _connections: JoinSet<()>,
}

impl Wire {
    /// Serves `service` over HTTPS. A response with [`Cut`] in it closes its connection without an answer.
    ///
    /// Requests are read whole; answers may stream. When a client goes away its request is dropped: a service whose
    /// effects must not depend on that owns its work, as [`Pve`](crate::pve::Pve) does.
    pub async fn serve<S, B>(service: S, options: Options) -> Result<Wire, WireError>
    where
        S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let authority = Arc::new(Authority::make()?);
        Wire::of(authority, service, options).await
    }

    /// As [`Self::serve`], with another certificate of the same authority: another server of the same cluster.
    pub async fn beside<S, B>(&self, service: S, options: Options) -> Result<Wire, WireError>
    where
        S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        Wire::of(self.authority.clone(), service, options).await
    }

    async fn of<S, B>(
        authority: Arc<Authority>,
        service: S,
        options: Options,
    ) -> Result<Wire, WireError>
    where
        S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Options {
            address,
            mut names,
            idle,
        } = options;
        names.push(address.ip().to_string());
        let listen = |source| WireError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let certificate = authority.certificate(names)?;
        let acceptor = certificate.acceptor()?;
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, acceptor, service, idle));
        Ok(Wire {
            address,
            authority,
            fingerprint: certificate.fingerprint,
            _connections: connections,
        })
    }

    /// Where it is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://127.0.0.1:port`
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the authority that signed the server's, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    /// The SHA-256 fingerprint of the server's certificate, as `AA:BB:…`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// An API whose answers are whole, as one whose answers could stream.
pub fn whole<S>(
    service: S,
) -> impl Service<Request<Bytes>, Response = Response<Full<Bytes>>, Error = S::Error, Future: Send>
+ Clone
+ Send
+ 'static
where
    S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + 'static,
    S::Future: Send,
{
    service.map_response(|response: Response<Bytes>| response.map(Full::new))
}

async fn accept<S, B>(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    service: S,
    idle: Option<Duration>,
) where
    S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, most likely: the next attempt may succeed.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        connections.spawn(connection(stream, acceptor.clone(), service.clone(), idle));
    }
}

async fn connection<S, B>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: S,
    idle: Option<Duration>,
) where
    S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Small answers must not wait for more.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        // The client does not trust the certificate, or does not speak TLS: its business.
        return;
    };
    let activity = Arc::new(Activity::default());
    let watched = activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        let busy = watched.clone().begin();
        async move {
            let response = answer(service, request).await;
            drop(busy);
            response
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let closing = activity.idle_for(idle);
    let closing = std::pin::pin!(closing);
    tokio::select! {
        biased;
        // A broken connection is the client's doing or a wanted fault; there is nobody to tell.
        _ = connection.as_mut() => return,
        () = closing => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A request that gets no answer: hyper closes the connection for it.
#[derive(Debug, thiserror::Error)]
#[error("the request is not answered")]
struct Unanswered;

async fn answer<S, B>(mut service: S, request: Request<Incoming>) -> Result<Response<B>, Unanswered>
where
    S: Service<Request<Bytes>, Response = Response<B>> + Send,
{
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Unanswered)?.to_bytes();
    poll_fn(|context| service.poll_ready(context))
        .await
        .map_err(|_| Unanswered)?;
    let response = service
        .call(Request::from_parts(head, body))
        .await
        .map_err(|_| Unanswered)?;
    if Cut::of(&response).is_some() {
        Err(Unanswered)
    } else {
        Ok(response)
    }
}

/// When a connection was last used.
#[derive(Default)]
struct Activity {
    /// Requests under way.
    busy: AtomicU64,
    /// Requests begun, to notice those that came and went.
    begun: AtomicU64,
}

struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    fn begin(self: Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    /// Returns when there was no request for `limit`; never without a limit.
    async fn idle_for(&self, limit: Option<Duration>) {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        let step = limit / 20;
        let mut seen = self.begun.load(Ordering::Relaxed);
        let mut since = Instant::now();
        loop {
            tokio::time::sleep(step).await;
            let begun = self.begun.load(Ordering::Relaxed);
            if begun != seen || self.busy.load(Ordering::Relaxed) > 0 {
                seen = begun;
                since = Instant::now();
            } else if since.elapsed() >= limit {
                return;
            }
        }
    }
}

/// What signs the servers' certificates, like the one that a Proxmox installation makes for itself.
struct Authority {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A server's certificate with the authority that signed it.
struct Certificate {
    fingerprint: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn make() -> Result<Authority, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "Simulated cluster CA");
        let certificate = params.self_signed(&key)?;
        Ok(Authority {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    fn certificate(&self, names: Vec<String>) -> Result<Certificate, rcgen::Error> {
        let mut all = vec!["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
        all.extend(names);
        all.sort();
        all.dedup();
        let mut server = CertificateParams::new(all)?;
        server
            .distinguished_name
            .push(DnType::CommonName, "Simulated server");
        let key = KeyPair::generate()?;
        let leaf = server.signed_by(&key, &self.issuer)?;
        let hash: [u8; 32] = Sha256::digest(leaf.der()).into();
        Ok(Certificate {
            fingerprint: hash
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect::<Vec<_>>()
                .join(":"),
            chain: vec![leaf.der().clone(), self.der.clone()],
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        })
    }
}

impl Certificate {
    fn acceptor(&self) -> Result<TlsAcceptor, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests;
