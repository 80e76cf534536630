//! What stands between kproxide and the API server where a case wants to hold a request to it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Request, Response};
use kproxide_simulator::holds::{Hold, Holds, Passed, Phase};
use kproxide_simulator::wire::{Options, Wire};
use kproxide_testkit::ControlPlane;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tower::BoxError;

/// Forwards everything as it comes, with the caller's own credentials. Dropping it ends what is under way.
pub(crate) struct Front {
    wire: Wire,
    holds: Holds,
    passed: watch::Receiver<usize>,
}

impl Front {
    pub(crate) async fn before(cluster: &ControlPlane) -> Self {
        let authority = reqwest::Certificate::from_pem(cluster.ca_pem().as_bytes()).unwrap();
        // No timeout: a watch is one request, and a held one waits for its case.
        let client = reqwest::Client::builder()
            .tls_certs_only([authority])
            .no_proxy()
            .build()
            .unwrap();
        let holds = Holds::default();
        let (count, passed) = watch::channel(0);
        let forward = Forward {
            count,
            client,
            server: cluster.url().into(),
            holds: holds.clone(),
            running: Arc::default(),
        };
        let service = tower::service_fn(move |request| forward.clone().own(request));
        let wire = Wire::serve(service, Options::default()).await.unwrap();
        Self {
            wire,
            holds,
            passed,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.wire.url()
    }

    pub(crate) fn ca_pem(&self) -> &str {
        self.wire.ca_pem()
    }

    /// Waits until so many more requests have come.
    pub(crate) async fn after(&self, requests: usize) {
        let mut passed = self.passed.clone();
        let moment = *passed.borrow_and_update() + requests;
        passed.wait_for(|count| *count >= moment).await.unwrap();
    }

    /// Catches the next request of this name.
    pub(crate) fn hold(&self, request: &str, phase: Phase) -> Hold {
        self.holds.hold(request.parse().unwrap(), phase)
    }
}

#[derive(Clone)]
struct Forward {
    client: reqwest::Client,
    count: watch::Sender<usize>,
    server: Arc<str>,
    holds: Holds,
    running: Arc<Mutex<JoinSet<()>>>,
}

impl Forward {
    /// A request that arrived takes effect even if its sender dies: a task of the front's own carries it.
    async fn own(self, request: Request<Bytes>) -> Result<Response<reqwest::Body>, BoxError> {
        let (sender, receiver) = oneshot::channel();
        let running = self.running.clone();
        {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            while running.try_join_next().is_some() {}
            running.spawn(async move {
                // Nobody may want the answer any more.
                let _ = sender.send(self.pass(request).await);
            });
        }
        receiver.await?
    }

    async fn pass(self, request: Request<Bytes>) -> Result<Response<reqwest::Body>, BoxError> {
        self.count.send_modify(|count| *count += 1);
        let (mut head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let whole = head
            .uri
            .path_and_query()
            .map_or("/", |whole| whole.as_str());
        let url = format!("{}{whole}", self.server);
        let method = head.method;
        self.gate(Phase::Before, &method, &path).await?;
        // What is said of this connection is not said of the next one.
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        let answer = self
            .client
            .request(method.clone(), url)
            .headers(head.headers)
            .body(body)
            .send()
            .await?;
        self.gate(Phase::After, &method, &path).await?;
        let mut answer: Response<reqwest::Body> = answer.into();
        for name in [CONNECTION, TRANSFER_ENCODING] {
            answer.headers_mut().remove(name);
        }
        Ok(answer)
    }

    async fn gate(&self, phase: Phase, method: &http::Method, path: &str) -> Result<(), BoxError> {
        match self.holds.pass(phase, method, path).await {
            Passed::Go => Ok(()),
            Passed::Discarded => Err("the request is discarded".into()),
        }
    }
}
