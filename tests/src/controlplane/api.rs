use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::kubeconfig::{Access, Identity};

/// An API server that does not answer in this time does not answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// Longer than any test.
const WATCH_DEADLINE: Duration = Duration::from_secs(3600);

/// An answer that is not a success.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server refused, with its `Status` message.
    #[error("{method} {path}: {status}: {message}")]
    Refused {
        /// `GET`, `POST` and so on.
        method: Method,
        /// The path asked for.
        path: String,
        /// The HTTP status.
        status: StatusCode,
        /// The `message` of the Status object, else the body.
        message: String,
    },
    /// No answer at all.
    #[error("{method} {path}: no answer")]
    Transport {
        /// `GET`, `POST` and so on.
        method: Method,
        /// The path asked for.
        path: String,
        /// Why.
        source: reqwest::Error,
    },
    /// An answer that says something else than hoped for.
    #[error("unexpected answer: {0}")]
    Unexpected(String),
}

impl ApiError {
    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            ApiError::Refused { status, .. } => Some(*status),
            ApiError::Transport { .. } | ApiError::Unexpected(_) => None,
        }
    }

    pub(crate) fn unexpected(text: String) -> Self {
        ApiError::Unexpected(text)
    }
}

/// The API server as a test sees it: paths and JSON. A test says what it means in the API's own words, and needs no
/// types of kproxide's to do so.
#[derive(Clone, Debug)]
pub struct Api {
    server: String,
    ca_pem: String,
    client: reqwest::Client,
}

impl Api {
    /// # Errors
    ///
    /// A sentence, when the certificates are not usable.
    pub(super) fn new(access: &Access) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(access.ca_pem.as_bytes()) {
            let certificate = certificate.map_err(|error| format!("the CA is not PEM: {error}"))?;
            roots
                .add(certificate)
                .map_err(|error| format!("the CA is not usable: {error}"))?;
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut headers = HeaderMap::new();
        let tls = match &access.identity {
            Identity::Certificate(pair) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
                let chain =
                    chain.map_err(|error| format!("the client certificate is not PEM: {error}"))?;
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
                    .map_err(|error| format!("the client key is not PEM: {error}"))?;
                tls.with_client_auth_cert(chain, key)
                    .map_err(|error| format!("the client certificate is not usable: {error}"))?
            }
            Identity::Token(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| "the token holds characters that no header takes".to_owned())?;
                headers.insert(AUTHORIZATION, value);
                tls.with_no_client_auth()
            }
        };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .default_headers(headers)
            .timeout(DEADLINE)
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Api {
            server: access.server.clone(),
            ca_pem: access.ca_pem.clone(),
            client,
        })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.server
    }

    /// The authority that signed its certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    ///
    /// [`ApiError::Refused`] with status 404 when it does not exist.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.json(Method::GET, path, None, "").await
    }

    /// Reads an object that may not exist.
    ///
    /// # Errors
    ///
    /// Any refusal but 404.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The items of a list.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        let list = self.get(path).await?;
        let items = list["items"].as_array().cloned();
        items.ok_or_else(|| ApiError::unexpected(format!("GET {path}: no items in {list}")))
    }

    /// Every change of the list at `path` from `version`, its `metadata.resourceVersion`, on.
    ///
    /// # Errors
    ///
    /// When refused, for example with status 410 for a version that is too old.
    pub async fn changes(&self, path: &str, version: &str) -> Result<Changes, ApiError> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{joint}watch=true&resourceVersion={version}");
        let response = self
            .client
            .get(format!("{}{path}", self.server))
            // A watch ends when its reader has seen enough.
            .timeout(WATCH_DEADLINE)
            .send()
            .await
            .map_err(|source| ApiError::Transport {
                method: Method::GET,
                path: path.clone(),
                source,
            })?;
        if response.status().is_success() {
            return Ok(Changes {
                response,
                buffer: Vec::new(),
            });
        }
        Err(ApiError::Refused {
            method: Method::GET,
            path,
            status: response.status(),
            message: response.text().await.unwrap_or_default(),
        })
    }

    /// Reads what is not JSON, such as `/readyz` and `/metrics`.
    ///
    /// # Errors
    ///
    /// When refused.
    pub async fn get_text(&self, path: &str) -> Result<String, ApiError> {
        self.text(Method::GET, path, None, "").await
    }

    /// Creates an object in the collection at `path`.
    ///
    /// # Errors
    ///
    /// When refused, for example with status 409 if it exists.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.json(Method::POST, path, Some(object), "application/json")
            .await
    }

    /// Merges `patch` into the object at `path` (RFC 7386: null removes, lists are replaced).
    ///
    /// # Errors
    ///
    /// When refused.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.json(
            Method::PATCH,
            path,
            Some(patch),
            "application/merge-patch+json",
        )
        .await
    }

    /// Applies `object` on the server side as the field manager `kproxide-tests`, taking fields over from others.
    ///
    /// # Errors
    ///
    /// When refused.
    pub async fn apply(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager=kproxide-tests&force=true");
        self.json(
            Method::PATCH,
            &path,
            Some(object),
            "application/apply-patch+yaml",
        )
        .await
    }

    /// Deletes the object at `path`. What the server then does depends on finalizers and grace periods.
    ///
    /// # Errors
    ///
    /// When refused, for example with status 404.
    pub async fn delete(&self, path: &str) -> Result<Value, ApiError> {
        self.json(Method::DELETE, path, None, "").await
    }

    /// Deletes the pod at `path` at once, as its kubelet does when the containers have ended.
    ///
    /// # Errors
    ///
    /// When refused.
    pub async fn delete_now(&self, path: &str) -> Result<Value, ApiError> {
        let options =
            json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.json(Method::DELETE, path, Some(&options), "application/json")
            .await
    }

    /// A token of a ServiceAccount by the TokenRequest API.
    ///
    /// # Errors
    ///
    /// When the ServiceAccount does not exist, or the time is below ten minutes.
    pub async fn token_for(
        &self,
        namespace: &str,
        service_account: &str,
        audience: Option<&str>,
        valid: Duration,
    ) -> Result<String, ApiError> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "audiences": audience.map(|audience| [audience]), "expirationSeconds": valid.as_secs() },
        });
        let path =
            format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
        let answer = self.create(&path, &request).await?;
        match answer["status"]["token"].as_str() {
            Some(token) => Ok(token.to_owned()),
            None => Err(ApiError::unexpected(format!(
                "POST {path}: no status.token"
            ))),
        }
    }

    async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        kind: &str,
    ) -> Result<Value, ApiError> {
        let text = self.text(method.clone(), path, body, kind).await?;
        serde_json::from_str(&text).map_err(|error| {
            ApiError::unexpected(format!("{method} {path}: not JSON ({error}): {text}"))
        })
    }

    async fn text(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        kind: &str,
    ) -> Result<String, ApiError> {
        let transport = |source| ApiError::Transport {
            method: method.clone(),
            path: path.to_owned(),
            source,
        };
        let mut request = self
            .client
            .request(method.clone(), format!("{}{path}", self.server));
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, kind).body(body.to_string());
        }
        let response = request.send().await.map_err(transport)?;
        let status = response.status();
        let text = response.text().await.map_err(transport)?;
        if status.is_success() {
            return Ok(text);
        }
        let message = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|status| status["message"].as_str().map(str::to_owned))
            .unwrap_or(text);
        Err(ApiError::Refused {
            method,
            path: path.to_owned(),
            status,
            message,
        })
    }
}

/// A watch that is being read.
#[derive(Debug)]
pub struct Changes {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Changes {
    /// The next change: `type` and `object`. None when the server ended the watch.
    ///
    /// # Errors
    ///
    /// When the connection breaks, or what comes is not JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, ApiError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let change = serde_json::from_slice(&line);
                return change
                    .map(Some)
                    .map_err(|error| ApiError::unexpected(format!("a watch: {error}")));
            }
            let chunk = self.response.chunk().await;
            match chunk.map_err(|error| ApiError::unexpected(format!("a watch: {error}")))? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}
