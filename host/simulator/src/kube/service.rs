//! The HTTP face: tower services for clients in process, for faults in between, and for a listener.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tower::{BoxError, Service};

use super::{Kube, watch::Watch};

/// The body of an answer; it streams for watches and is whole otherwise.
pub struct Body(Kind);

enum Kind {
    Whole(Full<Bytes>),
    Lines(BoxStream<'static, Bytes>),
}

impl Body {
    pub(crate) fn watch(watch: Watch) -> Self {
        let lines = stream::unfold(watch, async |mut watch| {
            let line = watch.next().await?;
            Some((line, watch))
        });
        Self(Kind::Lines(lines.boxed()))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(Full::new(bytes)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(body) => Pin::new(body).poll_frame(context),
            Kind::Lines(lines) => lines
                .poll_next_unpin(context)
                .map(|line| Some(Ok(Frame::data(line?)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(body) => body.is_end_stream(),
            Kind::Lines(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(body) => body.size_hint(),
            Kind::Lines(_) => SizeHint::default(),
        }
    }
}

/// [`Kube`] as a service for whole requests: what [`crate::wire::Wire`] serves and [`crate::faults::Faults`] wraps.
#[derive(Clone)]
pub struct KubeService {
    kube: Kube,
}

impl KubeService {
    pub(crate) fn new(kube: Kube) -> Self {
        Self { kube }
    }
}

impl Service<Request<Bytes>> for KubeService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let kube = self.kube.clone();
        Box::pin(async move { Ok(kube.handle(request).await) })
    }
}

/// A service for whole requests as one for requests with any body; `kube::Client::new` takes it.
///
/// ```text
/// kube::Client::new(Collecting(faults.around(kube.whole_requests(), Dialect::Kubernetes)), "default")
/// ```
#[derive(Clone, Debug)]
pub struct Collecting<S>(pub S);

impl<S, B> Service<Request<B>> for Collecting<S>
where
    S: Service<Request<Bytes>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone takes the place of the service that was found ready.
        let clone = self.0.clone();
        let mut service = std::mem::replace(&mut self.0, clone);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            service
                .call(Request::from_parts(parts, body))
                .await
                .map_err(Into::into)
        })
    }
}
