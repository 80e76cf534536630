//! A real cluster that simulated machines join: its API server as the kubelets' [`Api`], by what a kubeconfig says.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response,
    header::{AUTHORIZATION, InvalidHeaderValue},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Full};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use serde::Deserialize;
use tower::{BoxError, service_fn};

use crate::kubelet::{Api, api::CallError};

/// An API server that accepts no connection in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// And one that lists a single Node for so long does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a cluster cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("cannot read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path} is no kubeconfig: {problem}")]
    Format { path: PathBuf, problem: String },
    #[error("{path} has no {what}, which its current context names")]
    Missing { path: PathBuf, what: String },
    #[error(
        "{path}: the user {user} has neither a client certificate with its key nor a token; users who log in by a command are not supported"
    )]
    NoCredentials { path: PathBuf, user: String },
    #[error("{field} in the kubeconfig is not base64")]
    Encoding {
        field: &'static str,
        source: base64::DecodeError,
    },
    #[error("{field} in the kubeconfig is not PEM")]
    Pem {
        field: &'static str,
        source: pem::Error,
    },
    #[error("the kubeconfig's token holds characters that no header takes")]
    Token(#[from] InvalidHeaderValue),
    #[error(
        "no machine can join by {path}: its API server {server} must have a certificate of the authority that the file names, and let the user read and write Nodes, their Leases and pods' status"
    )]
    Unusable {
        path: PathBuf,
        server: String,
        source: CallError,
    },
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    #[error("cannot set up an HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Connects to the cluster of a kubeconfig's current context. Nothing is sent yet.
///
/// Client certificates and tokens are understood, inline or as files. Kubelets of machines that really exist identify
/// as `system:node:NAME` each; these all share the one identity, which must be allowed to write Nodes, pods' status and
/// Leases.
///
/// # Errors
/// The file is missing, no kubeconfig, or says how to log in by other means.
pub fn connect(kubeconfig: &Path) -> Result<Api, RemoteError> {
    Access::read(kubeconfig)?.api()
}

/// As [`connect`], and asks the API server for a Node: what is wrong with the file is told now, not by Nodes that never appear.
///
/// # Errors
/// As [`connect`]; or the server does not answer, or refuses.
pub async fn reach(kubeconfig: &Path) -> Result<Api, RemoteError> {
    let access = Access::read(kubeconfig)?;
    let api = access.api()?;
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, api.get("/api/v1/nodes?limit=1")).await;
    match answer.unwrap_or_else(|late| Err(CallError::Transport(late.into()))) {
        Ok(_) => Ok(api),
        Err(source) => Err(RemoteError::Unusable {
            path: kubeconfig.to_owned(),
            server: access.server,
            source,
        }),
    }
}

struct Access {
    server: String,
    /// None: the system's authorities are not consulted either, so that only a plain-HTTP server can be reached.
    authority: Option<Vec<u8>>,
    identity: Identity,
}

enum Identity {
    Certificate { chain: Vec<u8>, key: Vec<u8> },
    Token(String),
}

impl Access {
    fn read(path: &Path) -> Result<Self, RemoteError> {
        let text = fs::read_to_string(path).map_err(|source| RemoteError::File {
            path: path.to_owned(),
            source,
        })?;
        let config: Kubeconfig =
            serde_saphyr::from_str(&text).map_err(|problem| RemoteError::Format {
                path: path.to_owned(),
                problem: problem.to_string(),
            })?;
        let missing = |what: String| RemoteError::Missing {
            path: path.to_owned(),
            what,
        };
        let current = config.current_context;
        let context = named(config.contexts, |item| item.name == current)
            .ok_or_else(|| missing(format!("context {current:?}")))?
            .context;
        let cluster = named(config.clusters, |item| item.name == context.cluster)
            .ok_or_else(|| missing(format!("cluster {:?}", context.cluster)))?
            .cluster;
        let user = named(config.users, |item| item.name == context.user)
            .ok_or_else(|| missing(format!("user {:?}", context.user)))?
            .user;
        let folder = path.parent().unwrap_or(Path::new(""));
        let contents = |field, inline: Option<String>, file: Option<PathBuf>| match (inline, file) {
            (Some(inline), _) => STANDARD
                .decode(inline)
                .map(Some)
                .map_err(|source| RemoteError::Encoding { field, source }),
            (None, Some(file)) => {
                let path = folder.join(file);
                let read = fs::read(&path);
                read.map(Some)
                    .map_err(|source| RemoteError::File { path, source })
            }
            (None, None) => Ok(None),
        };
        let authority = contents(
            "certificate-authority-data",
            cluster.certificate_authority_data,
            cluster.certificate_authority,
        )?;
        let chain = contents(
            "client-certificate-data",
            user.client_certificate_data,
            user.client_certificate,
        )?;
        let key = contents("client-key-data", user.client_key_data, user.client_key)?;
        let identity = match (chain, key, user.token) {
            (Some(chain), Some(key), _) => Identity::Certificate { chain, key },
            (_, _, Some(token)) => Identity::Token(token),
            (_, _, None) => {
                return Err(RemoteError::NoCredentials {
                    path: path.to_owned(),
                    user: context.user,
                });
            }
        };
        Ok(Self {
            server: cluster.server.trim_end_matches('/').to_owned(),
            authority,
            identity,
        })
    }

    fn api(&self) -> Result<Api, RemoteError> {
        let mut roots = RootCertStore::empty();
        if let Some(authority) = &self.authority {
            for certificate in certificates("certificate-authority-data", authority)? {
                roots.add(certificate)?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut headers = HeaderMap::new();
        let tls = match &self.identity {
            Identity::Certificate { chain, key } => {
                let field = "client-key-data";
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|source| RemoteError::Pem { field, source })?;
                tls.with_client_auth_cert(certificates("client-certificate-data", chain)?, key)?
            }
            Identity::Token(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
                tls.with_no_client_auth()
            }
        };
        // No timeout over a whole request: a watch is one.
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()?;
        let server: Arc<str> = self.server.as_str().into();
        Ok(Api::new(service_fn(
            move |request: Request<Full<Bytes>>| send(client.clone(), server.clone(), request),
        )))
    }
}

/// Sends a request with a relative URI.
async fn send(
    client: reqwest::Client,
    server: Arc<str>,
    request: Request<Full<Bytes>>,
) -> Result<Response<reqwest::Body>, BoxError> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let response = client
        .request(head.method, format!("{server}{path}"))
        .headers(head.headers)
        .body(body)
        .send()
        .await?;
    Ok(response.into())
}

fn certificates(
    field: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, RemoteError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| RemoteError::Pem { field, source })
}

fn named<T>(list: Vec<T>, is: impl Fn(&T) -> bool) -> Option<T> {
    list.into_iter().find(is)
}

/// What is read of a kubeconfig. It may hold anything else: it is somebody else's file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: String,
    contexts: Vec<NamedContext>,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: Option<String>,
    certificate_authority: Option<PathBuf>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: Option<String>,
    client_certificate: Option<PathBuf>,
    client_key_data: Option<String>,
    client_key: Option<PathBuf>,
    token: Option<String>,
}

#[cfg(test)]
mod tests;
