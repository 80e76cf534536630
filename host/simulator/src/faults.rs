//! Faults between a client and a simulated server.

use bytes::Bytes;
use http::{Response, StatusCode};

/// Marks a response that stands for a connection that broke before an answer: in process it becomes a [`Broken`] error,
/// on the wire the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut;

impl Cut {
    /// A response that stands for a broken connection.
    pub fn response() -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response.extensions_mut().insert(Cut);
        response
    }

    /// Whether a response stands for a broken connection.
    pub fn is<Body>(response: &Response<Body>) -> bool {
        response.extensions().get::<Cut>().is_some()
    }
}
