//! The connection to the API server: one constructor path for production and simulation, with the same deadlines and bounds above it.
//!
//! kube's own retries are off: they repeat POSTs, and hide the 429 by which a PodDisruptionBudget speaks.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tokio::time::Sleep;
use tower::{BoxError, Layer, Service};

use super::error::Error;
use super::freshness::{Freshness, ListAsked};
use crate::connection::Connection;

/// A whole answer, a watch's first byte excepted, arrives within this time.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// Read, an answer takes several times as much memory, and at the start one of each kind is read at once. The largest
/// object that etcd takes has 9 MB as JSON: 1.5 MB of `<`. Where etcd is set to its most, 8 MiB, an ordinary one fits too.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// Objects per page of a list, as long as none is too large.
pub const PAGE: u32 = 500;

/// The answer has more bytes than are read.
#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {BODY_BYTES_MAX} bytes")]
struct TooLarge;

/// With how many objects per page a list is to be asked for again that has failed so. `None`: fewer would not help.
/// Whoever may make pods may make a page of pods as large as they like.
pub fn smaller_page(page: u32, error: &(dyn std::error::Error + 'static)) -> Option<u32> {
    let mut sources = std::iter::successors(Some(error), |error| error.source());
    (page > 1 && sources.any(|error| error.is::<TooLarge>())).then_some((page / 8).max(1))
}

/// With how many the next list begins after one that ended well: what was large may be gone, and one object per page makes
/// thousands of requests.
pub(crate) fn larger_page(page: u32) -> u32 {
    PAGE.min(page * 8)
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    freshness: Arc<Freshness>,
}

/// Why there is no connection to be had.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("kubeconfig {path}: cannot be used")]
    Kubeconfig {
        path: String,
        #[source]
        source: KubeconfigError,
    },
    /// Nobody has said which, and the usual one is not there.
    #[error(
        "there is no kubeconfig {path}: give --kubeconfig FILE, or set KUBECONFIG. On a server of k3s it is /etc/rancher/k3s/k3s.yaml, of RKE2 /etc/rancher/rke2/rke2.yaml, of kubeadm /etc/kubernetes/admin.conf. (Elsewhere, give a copy of it the server's address in place of 127.0.0.1)"
    )]
    NoKubeconfig { path: String },
    #[error(
        "no Kubernetes credentials: this is not a pod with a service account, and there is no usable kubeconfig; give --kubeconfig FILE"
    )]
    NoCredentials(#[source] kube::config::InferConfigError),
    #[error("the Kubernetes credentials cannot be used")]
    Unusable(#[source] kube::Error),
}

/// There is no such file, which has this path, as far as that is known.
fn missing(error: &KubeconfigError) -> Option<Option<&Path>> {
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    if let KubeconfigError::ReadConfig(error, file) = error
        && is_gone(error)
    {
        return Some(Some(file.as_path()));
    }
    matches!(error, KubeconfigError::FindPath).then_some(None)
}

impl Client {
    /// With this kubeconfig; without one as the pod's service account, else with the default kubeconfig.
    ///
    /// # Errors
    /// Unreadable or missing credentials. The server is not asked.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        let config = match kubeconfig {
            Some(path) => {
                let failed = |source| ConnectError::Kubeconfig {
                    path: path.display().to_string(),
                    source,
                };
                let read = Kubeconfig::read_from(path).map_err(failed)?;
                kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                    .await
                    .map_err(failed)?
            }
            None => match kube::Config::incluster() {
                Ok(config) => config,
                Err(_) => kube::Config::infer()
                    .await
                    .map_err(ConnectError::NoCredentials)?,
            },
        };
        Self::from_config(config)
    }

    /// As a person: with the default kubeconfig and its current context, where nothing else is said.
    ///
    /// # Errors
    /// Unreadable or missing credentials. The server is not asked.
    pub async fn connect_as_user(person: &Connection) -> Result<Self, ConnectError> {
        let kubeconfig = person.kubeconfig.as_deref();
        let path = kubeconfig.map_or("~/.kube/config".into(), |path| path.display().to_string());
        let failed = |source: KubeconfigError| match (kubeconfig, missing(&source)) {
            (None, Some(file)) => ConnectError::NoKubeconfig {
                path: file.map_or(path, |file| file.display().to_string()),
            },
            (Some(_), _) | (None, None) => ConnectError::Kubeconfig { path, source },
        };
        let read = match kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let options = KubeConfigOptions {
            context: person.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match read {
            Ok(read) => kube::Config::from_custom_kubeconfig(read, &options).await,
            Err(error) => Err(error),
        };
        let mut config = config.map_err(failed)?;
        if let Some(user) = &person.as_user {
            config.auth_info.impersonate = Some(user.clone());
        }
        Self::with_deadline(config, person.request_timeout)
    }

    /// # Errors
    /// Certificates or credentials that cannot be used.
    pub fn from_config(config: kube::Config) -> Result<Self, ConnectError> {
        Self::with_deadline(config, REQUEST_DEADLINE)
    }

    fn with_deadline(config: kube::Config, deadline: Duration) -> Result<Self, ConnectError> {
        let mut config = config;
        config.default_retry = false;
        let freshness = Arc::new(Freshness::default());
        let inner = ClientBuilder::try_from(config)
            .map_err(ConnectError::Unusable)?
            .with_layer(&Bounds(freshness.clone(), deadline))
            .build();
        Ok(Self { inner, freshness })
    }

    /// On a service in this process that answers as an API server would.
    pub fn from_service<S, B>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let freshness = Arc::new(Freshness::default());
        let service = Bounds(freshness.clone(), REQUEST_DEADLINE).layer(service);
        Self {
            inner: ClientBuilder::new(service, "default").build(),
            freshness,
        }
    }

    /// That of the context, or `default`.
    pub fn namespace(&self) -> &str {
        self.inner.default_namespace()
    }

    /// What time it is at the API server; `None`: it has not said so lately.
    pub fn server_time(&self) -> Option<jiff::Timestamp> {
        self.freshness.time.now()
    }

    /// Takes note of the `resourceVersion` of an object that a watch has shown; `path` is the watch's. A list that comes later must not be older.
    pub(super) fn shown(&self, path: &str, version: &str) {
        self.freshness.shown(path, version);
    }

    /// As [`Self::get`]. A refusal is an answer too: its status, and its message as text.
    ///
    /// # Errors
    /// The server does not answer, or not in JSON.
    pub async fn ask(&self, uri: &str) -> Result<(u16, serde_json::Value), Error> {
        match self.get(uri).await {
            Ok(answer) => Ok((200, answer)),
            Err(kube::Error::Api(status)) => Ok((status.code, status.message.into())),
            Err(error) => Err(Error::of("get", "path", uri)(error)),
        }
    }

    /// What the API server answers at this path and query.
    pub async fn get(&self, uri: &str) -> Result<serde_json::Value, kube::Error> {
        let request = Request::get(uri).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        self.inner.request(request).await
    }

    #[cfg(test)]
    pub(super) fn raw(&self) -> &kube::Client {
        &self.inner
    }

    /// All objects of a kind: of the cluster, or of every namespace.
    pub(crate) fn all<K: kube::Resource<DynamicType = ()>>(&self) -> kube::Api<K> {
        kube::Api::all(self.inner.clone())
    }

    pub(super) fn namespaced<K>(&self, namespace: &str) -> kube::Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        kube::Api::namespaced(self.inner.clone(), namespace)
    }
}

/// Deadlines and size limits around any service, and a look at what its answers say of the server.
struct Bounds(Arc<Freshness>, Duration);

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded {
            inner,
            freshness: self.0.clone(),
            patience: self.1,
        }
    }
}

struct Bounded<S> {
    inner: S,
    freshness: Arc<Freshness>,
    patience: Duration,
}

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watch = is_watch(request.uri());
        let patience = self.patience;
        let deadline = tokio::time::Instant::now() + patience;
        let freshness = self.freshness.clone();
        // The watches report the objects that they see, by [`Client::shown`].
        let list = if watch {
            None
        } else {
            freshness.asked(&request)
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = tokio::time::timeout_at(deadline, answer)
                .await
                .map_err(|_| too_late(patience))?
                .map_err(Into::into)?;
            freshness.time.note(response.headers());
            let list = list.filter(|_| response.status().is_success());
            Ok(response.map(|body| BoundedBody {
                inner: Box::pin(http_body_util::BodyExt::map_err(body, Into::into)),
                // A watch lasts; its own timeout, and the watcher's, end it.
                bounds: (!watch)
                    .then(|| (Box::pin(tokio::time::sleep_until(deadline)), BODY_BYTES_MAX)),
                list,
                patience,
            }))
        })
    }
}

fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "watch=true" | "watch=1"))
    })
}

fn too_late(patience: Duration) -> BoxError {
    format!("no complete answer within {} s", patience.as_secs()).into()
}

/// A body that fails instead of going on for too long.
struct BoundedBody {
    inner: Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>,
    /// The moment and the bytes left.
    bounds: Option<(Pin<Box<Sleep>>, u64)>,
    /// Until its beginning has been seen.
    list: Option<ListAsked>,
    patience: Duration,
}

impl http_body::Body for BoundedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = this.inner.as_mut().poll_frame(cx) else {
            if let Some((deadline, _)) = &mut this.bounds {
                ready!(deadline.as_mut().poll(cx));
                return Poll::Ready(Some(Err(too_late(this.patience))));
            }
            return Poll::Pending;
        };
        if let (Some((_, left)), Some(Ok(frame))) = (&mut this.bounds, &frame) {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(length) {
                Some(rest) => *left = rest,
                None => {
                    return Poll::Ready(Some(Err(TooLarge.into())));
                }
            }
        }
        if let Some(Ok(frame)) = &frame
            && let Some(beginning) = frame.data_ref()
            && let Some(list) = this.list.take()
            && let Err(older) = list.answered(beginning)
        {
            return Poll::Ready(Some(Err(older.into())));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::{claims, ledger};

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up_after_the_deadline() {
        let started = tokio::time::Instant::now();
        let silent = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, BoxError>(Response::new(Body::empty()))
        });
        let error = claims::get(&Client::from_service(silent), &"a".into())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
        assert_eq!(started.elapsed(), REQUEST_DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up_after_the_deadline() {
        let started = tokio::time::Instant::now();
        let endless = tower::service_fn(|_: Request<Body>| async {
            let chunks = futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, BoxError>(Frame::data(Bytes::from_static(b" "))), ()))
            });
            Ok::<_, BoxError>(Response::new(http_body_util::StreamBody::new(Box::pin(
                chunks,
            ))))
        });
        let error = ledger::get_or_create(&Client::from_service(endless))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
        assert_eq!(started.elapsed(), REQUEST_DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_503_is_not_repeated() {
        let requests = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let seen = requests.clone();
        let failing = tower::service_fn(move |_: Request<Body>| {
            seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async {
                let status = r#"{"kind":"Status","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"no"}"#;
                let mut response = Response::new(Body::from(status.as_bytes().to_vec()));
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                Ok::<_, BoxError>(response)
            }
        });
        let error = claims::get(&Client::from_service(failing), &"a".into())
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Unexpected { code: 503, .. }),
            "{error:?}"
        );
        assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 1);
    }

    #[test]
    fn only_watches_last() {
        assert!(is_watch(
            &"/api/v1/pods?&watch=true&timeoutSeconds=290"
                .parse()
                .unwrap()
        ));
        assert!(!is_watch(&"/api/v1/pods?&limit=500".parse().unwrap()));
    }
}
