//! The seam between the client and the network: a tower service per endpoint.
//!
//! Production puts [`https`] behind it, simulation an in-process server. A transport only connects, sends and receives;
//! deadlines for the whole request, login, failover and the meaning of answers are the client's, so that they are the
//! same in simulation.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::ext::ReasonPhrase;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt as _};

use super::tls::{Fingerprint, TlsError, Trust, TrustFailure};

/// What every transport is to the client.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, TransportError>;

/// The largest answer that we read: `cluster/resources` of 10,000 guests has 5 MiB.
pub const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Proxmox: an idle connection is closed after five seconds, so we forget it before.
const IDLE: Duration = Duration::from_secs(4);

/// The port of Proxmox's API.
const PORT: u16 = 8006;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection; nothing was sent.
    #[error("cannot connect")]
    Connect(#[source] Box<dyn StdError + Send + Sync>),
    /// The endpoint showed a certificate that we do not trust; nothing was sent.
    #[error(transparent)]
    Untrusted(TrustFailure),
    /// The connection broke after the request may have been sent.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
    /// More than [`ANSWER_BYTES_MAX`].
    #[error("the answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// No answer within the client's deadline.
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
}

impl From<std::convert::Infallible> for TransportError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// One address of the cluster's API. Any of them can serve any call.
#[derive(Clone)]
pub struct Endpoint {
    /// How logs and errors call it.
    pub name: String,
    /// Takes requests whose URI is a path.
    pub transport: Transport,
    /// Only certificates with one of these are trusted. `None`: something else decides.
    pub(super) pins: Option<Vec<Fingerprint>>,
}

impl Endpoint {
    /// An endpoint served by `service`, such as a simulated Proxmox or a layer around [`https`].
    pub fn new<S>(name: impl Into<String>, service: S) -> Endpoint
    where
        S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + Sync + 'static,
        S::Error: Into<TransportError> + 'static,
        S::Future: Send + 'static,
    {
        Endpoint {
            name: name.into(),
            transport: BoxCloneSyncService::new(service.map_err(Into::into)),
            pins: None,
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Endpoint").field(&self.name).finish()
    }
}

/// Why an endpoint cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not an address.
    #[error("endpoint {url:?}: {problem}; write it as https://HOST:8006")]
    Url {
        /// As configured.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The trust settings are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP client could not be built.
    #[error(
        "the HTTPS client cannot be set up (without `tls.caFile` or `tls.fingerprints` the system's CA certificates are needed)"
    )]
    Client(#[source] reqwest::Error),
}

/// An endpoint over HTTPS. `connect_timeout` bounds name lookup, TCP and TLS together.
///
/// `url` may be a bare host name; a path, as kproximate's `pmUrl` has it, is ignored.
pub fn https(
    url: &str,
    trust: &Trust,
    connect_timeout: Duration,
) -> Result<Endpoint, EndpointError> {
    let base = base_url(url)?;
    let name = base.trim_start_matches("https://").to_owned();
    let mut builder = reqwest::Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // reqwest would repeat what it believes safe; whether to repeat is the client's decision alone.
        .retry(reqwest::retry::never())
        .pool_idle_timeout(IDLE)
        .connect_timeout(connect_timeout)
        .user_agent(concat!("kproxide/", env!("CARGO_PKG_VERSION")));
    if let Some(tls) = trust.client_config()? {
        builder = builder.tls_backend_preconfigured(tls);
    }
    let client = builder.build().map_err(EndpointError::Client)?;
    let service = tower::service_fn(move |request: Request<Bytes>| {
        let client = client.clone();
        let url = format!("{base}{}", request.uri());
        async move { exchange(client, url, request).await }
    });
    let pins = match trust {
        Trust::Fingerprints(pins) => Some(pins.clone()),
        Trust::System | Trust::CaFile(_) | Trust::Ca(..) | Trust::InsecureSkipVerify => None,
    };
    Ok(Endpoint {
        pins,
        ..Endpoint::new(name, service)
    })
}

async fn exchange(
    client: reqwest::Client,
    url: String,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, TransportError> {
    let (parts, body) = request.into_parts();
    let mut outgoing = client.request(parts.method, url).headers(parts.headers);
    if !body.is_empty() {
        outgoing = outgoing.body(body);
    }
    let mut incoming = outgoing.send().await.map_err(transport_error)?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = incoming.status();
    *response.headers_mut() = incoming.headers().clone();
    if let Some(reason) = incoming.extensions().get::<ReasonPhrase>() {
        response.extensions_mut().insert(reason.clone());
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = incoming.chunk().await.map_err(transport_error)? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(TransportError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    *response.body_mut() = body.freeze();
    Ok(response)
}

/// Only a failed connection proves that nothing was sent.
fn transport_error(error: reqwest::Error) -> TransportError {
    if let Some(failure) = TrustFailure::find(&error) {
        return TransportError::Untrusted(failure);
    }
    let connecting = error.is_connect();
    // The URL holds parameters, and some of them are confidential.
    let cause = error.without_url().into();
    if connecting {
        TransportError::Connect(cause)
    } else {
        TransportError::Broken(cause)
    }
}

/// `https://host:port` of what people write as an endpoint.
pub(super) fn base_url(written: &str) -> Result<String, EndpointError> {
    let problem = |problem: &str| EndpointError::Url {
        url: written.to_owned(),
        problem: problem.to_owned(),
    };
    let written = written.trim();
    if written.starts_with("http://") {
        return Err(problem("Proxmox serves its API over TLS only"));
    }
    let with_scheme = if written.contains("://") {
        written.to_owned()
    } else {
        format!("https://{written}")
    };
    let url = reqwest::Url::parse(&with_scheme).map_err(|error| problem(&error.to_string()))?;
    if url.scheme() != "https" {
        return Err(problem("the scheme is not https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(problem("credentials do not belong into the address"));
    }
    let host = url.host_str().ok_or_else(|| problem("there is no host"))?;
    // `Url` hides an explicit 443, which is also what a reverse proxy listens on.
    let explicit_443 = with_scheme
        .trim_start_matches("https://")
        .split('/')
        .next()
        .is_some_and(|authority| authority.ends_with(":443"));
    let port = url.port().unwrap_or(if explicit_443 { 443 } else { PORT });
    Ok(format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests;
