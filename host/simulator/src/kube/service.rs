//! The HTTP face: a tower service, usable in process and behind a listener.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

use super::{Kube, watch::Watch};

/// The body of an answer; it streams for watches and is whole otherwise.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

pub(crate) fn streaming(watch: Watch) -> Body {
    StreamBody::new(lines(watch)).boxed_unsync()
}

fn lines(watch: Watch) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::unfold(watch, async |mut watch| {
        let line = watch.next().await?;
        Some((Ok(Frame::data(line)), watch))
    })
}

/// [`Kube`] as a `tower::Service` for requests with any body.
#[derive(Clone)]
pub struct KubeService {
    kube: Kube,
}

impl KubeService {
    pub(crate) fn new(kube: Kube) -> Self {
        Self { kube }
    }
}

impl<B> tower::Service<Request<B>> for KubeService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display + Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let kube = self.kube.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            Ok(match body.collect().await {
                Ok(body) => {
                    kube.handle(Request::from_parts(parts, body.to_bytes()))
                        .await
                }
                Err(error) => super::serve::broken_body(&error.to_string()),
            })
        })
    }
}
