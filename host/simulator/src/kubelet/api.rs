//! JSON over HTTP over any tower service.

use bytes::Bytes;
use futures::{Stream, stream};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde::Deserialize;
use serde_json::Value;
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

type Body = UnsyncBoxBody<Bytes, BoxError>;

/// An API server, reached through a service that takes requests with relative URIs (`/api/v1/pods`).
#[derive(Clone, Debug)]
pub struct Api {
    service: BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, BoxError>,
}

/// Why a request did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error("the API server answered {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// `message` of the Status object.
        message: String,
    },
    /// There was no whole answer.
    #[error("the API server did not answer")]
    Transport(#[source] BoxError),
}

impl CallError {
    pub(crate) fn is(&self, wanted: u16) -> bool {
        match self {
            Self::Refused { code, .. } => *code == wanted,
            Self::Transport(_) => false,
        }
    }
}

/// What the body of a PATCH is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    StrategicMerge,
}

impl Api {
    /// Wraps a client stack; it must add host and credentials by itself.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service
            .map_response(|response: Response<B>| {
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            })
            .map_err(Into::into);
        Self {
            service: BoxCloneSyncService::new(service),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, CallError> {
        let body = self.call(Method::GET, path, Content::Json, None).await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<(), CallError> {
        let answered = self.call(Method::POST, path, Content::Json, Some(object));
        answered.await.map(drop)
    }

    /// Replaces an object, and notes in it under which version it stands there now.
    pub(crate) async fn replace(&self, path: &str, object: &mut Value) -> Result<(), CallError> {
        let answered = self.call(Method::PUT, path, Content::Json, Some(object));
        // Of the answer nothing else is news, and every kubelet replaces its Lease all the time.
        let Versioned { metadata } = serde_json::from_slice(&answered.await?).unwrap_or_default();
        object["metadata"]["resourceVersion"] = metadata.version.into();
        Ok(())
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<(), CallError> {
        let answered = self.call(Method::PATCH, path, Content::StrategicMerge, Some(patch));
        answered.await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<(), CallError> {
        let answered = self.call(Method::DELETE, path, Content::Json, Some(options));
        answered.await.map(drop)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content: Content,
        body: Option<&Value>,
    ) -> Result<Bytes, CallError> {
        let response = self.send(method, path, content, body).await?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(CallError::Transport)?
            .to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        Err(CallError::Refused {
            code: status.as_u16(),
            message: value["message"].as_str().unwrap_or_default().to_owned(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: Content,
        body: Option<&Value>,
    ) -> Result<Response<Body>, CallError> {
        let content_type = match content {
            Content::Json => "application/json",
            Content::StrategicMerge => "application/strategic-merge-patch+json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "kubelet/v1.36.3")
            .body(body.map(text).unwrap_or_default().into())
            .map_err(|error| CallError::Transport(error.into()))?;
        self.service
            .clone()
            .oneshot(request)
            .await
            .map_err(CallError::Transport)
    }

    /// The events of a watch; the stream ends when the server ends it or the connection breaks.
    pub(crate) async fn watch(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Value> + Send + use<>, CallError> {
        let response = self.send(Method::GET, path, Content::Json, None).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(CallError::Refused {
                code: status.as_u16(),
                message: "the watch was refused".to_owned(),
            });
        }
        let lines = Lines {
            body: response.into_body(),
            buffer: Vec::new(),
        };
        Ok(stream::unfold(lines, async |mut lines| {
            let line = lines.next().await?;
            // A line that is no JSON is the end: what follows it cannot be trusted.
            let event = serde_json::from_slice(&line).ok()?;
            Some((event, lines))
        }))
    }
}

fn text(object: &Value) -> Bytes {
    let text = serde_json::to_vec(object).expect("a JSON value serializes");
    text.into()
}

/// What of an object says which version it is.
#[derive(Default, Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Default, Deserialize)]
struct Version {
    #[serde(rename = "resourceVersion")]
    version: String,
}

struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Some(line);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
