//! What can go wrong with a request, in the words of what a caller would do about it.

use jiff::SignedDuration;
use kube::core::Status;

use super::convert::Unreadable;
use kproxide_common::foreign;

/// Before a request is made again that failed for once.
const PAUSE: SignedDuration = SignedDuration::from_secs(2);
/// Before one is made again that was refused for good.
const REFUSED_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// A request that did not do what it should.
///
/// After [`Error::Transport`] a write may or may not have taken effect. Everything that this module writes is safe to repeat after a fresh
/// look: it is a create by name, or carries a resource version or a UID.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{request}: there is no such object")]
    NotFound { request: Request },
    #[error(
        "{request}: there is no namespace {namespace}: make it with `kubectl create namespace {namespace}`, or give --namespace another"
    )]
    NamespaceMissing { request: Request, namespace: String },
    /// Another writer changed the object since it was read, or another object has its name now: read it again.
    #[error("{request}: the object has changed: {message}")]
    Conflict { request: Request, message: String },
    #[error("{request}: it exists already")]
    AlreadyExists { request: Request },
    /// The resource version or the continue token is too old: list again.
    #[error("{request}: too old: {message}")]
    Gone { request: Request, message: String },
    #[error(
        "{request}: not permitted: {message} (the chart's ClusterRole grants what kproxide needs; is it installed, and of the same version?)"
    )]
    Forbidden { request: Request, message: String },
    /// The credentials are not accepted at all.
    #[error("{request}: the credentials are not accepted: {message}")]
    Unauthorized { request: Request, message: String },
    #[error("{request}: too many requests: {message}")]
    TooManyRequests {
        request: Request,
        message: String,
        /// Seconds that the server asks to wait. 0 if it does not say.
        retry_after: u32,
    },
    /// The API server refuses the object: repeating does not help.
    #[error("{request}: refused: {message}")]
    Invalid { request: Request, message: String },
    /// No answer, or half of one.
    #[error("{request}: no answer")]
    Transport {
        request: Request,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server failed or answered what it should not.
    #[error("{request}: unexpected answer {code}: {message}")]
    Unexpected {
        request: Request,
        code: u16,
        message: String,
    },
    /// Our own record cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// What was asked: verb, resource and name as RBAC knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: &'static str,
    pub resource: &'static str,
    /// Empty for lists.
    pub name: String,
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        Ok(())
    }
}

impl Error {
    /// For `map_err`.
    pub(crate) fn of(
        verb: &'static str,
        resource: &'static str,
        name: &str,
    ) -> impl FnOnce(kube::Error) -> Self {
        let request = Request {
            verb,
            resource,
            name: name.to_owned(),
        };
        move |error| Self::classified(request, error)
    }

    fn classified(request: Request, error: kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::from_status(request, *status);
        }
        Self::Transport {
            request,
            source: Box::new(error),
        }
    }

    pub(super) fn from_status(request: Request, status: Status) -> Self {
        // A webhook says what it likes.
        let message = foreign::said(&status.message);
        match (status.code, status.reason.as_str()) {
            (404, _) => Self::NotFound { request },
            (409, "AlreadyExists") => Self::AlreadyExists { request },
            (409, _) => Self::Conflict { request, message },
            (410, _) => Self::Gone { request, message },
            (401, _) => Self::Unauthorized { request, message },
            (403, _) => Self::Forbidden { request, message },
            (429, _) => Self::TooManyRequests {
                request,
                message,
                retry_after: status.details.map_or(0, |it| it.retry_after_seconds),
            },
            (400 | 413 | 415 | 422, _) => Self::Invalid { request, message },
            (code, _) => Self::Unexpected {
                request,
                code,
                message,
            },
        }
    }

    /// For how long to leave the server alone before the request is made again: as long as it says, and longer where only a human can help.
    pub fn pause(&self) -> SignedDuration {
        if !self.is_transient() {
            return REFUSED_PAUSE;
        }
        if let Self::TooManyRequests { retry_after, .. } = self {
            let asked = SignedDuration::from_secs(i64::from(*retry_after));
            return asked.clamp(PAUSE, REFUSED_PAUSE);
        }
        PAUSE
    }

    /// Repeating may help: nothing about the request itself is wrong.
    pub fn is_transient(&self) -> bool {
        let is_unlucky = matches!(self, Self::Transport { .. } | Self::TooManyRequests { .. });
        let is_stale = matches!(self, Self::Gone { .. } | Self::Conflict { .. });
        let is_fault = matches!(self, Self::Unexpected { code, .. } if *code >= 500);
        is_unlucky || is_stale || is_fault
    }
}

/// The outcome of a write that is made only if nothing has changed since the object was read.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a write that did not happen must not be taken for one that did"]
pub enum Cas<T> {
    /// Done; the object as it stands now.
    Written(T),
    /// Another writer was faster: read again and decide again.
    Conflict,
    /// The object is gone, or another one has its name.
    Gone,
}

impl<T> Cas<T> {
    /// Conflict and absence are outcomes, not errors, of a compare-and-set.
    pub(crate) fn of(result: Result<T, Error>) -> Result<Self, Error> {
        match result {
            Ok(written) => Ok(Self::Written(written)),
            Err(Error::Conflict { .. }) => Ok(Self::Conflict),
            Err(Error::NotFound { .. }) => Ok(Self::Gone),
            Err(other) => Err(other),
        }
    }
}

/// The outcome of a deletion by UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an object of another UID was not deleted"]
pub enum Deletion {
    /// Accepted. The object is gone once its finalizers are.
    Accepted,
    /// It was gone already.
    Gone,
    /// Another object has the name: it was left alone, and the one meant is gone.
    Replaced,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(code: u16, reason: &str) -> Error {
        let status = Status::failure("because", reason).with_code(code);
        Error::of("get", "nodeclaims", "a")(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn statuses_become_what_a_caller_would_do() {
        assert!(matches!(classify(404, "NotFound"), Error::NotFound { .. }));
        assert!(matches!(
            classify(409, "AlreadyExists"),
            Error::AlreadyExists { .. }
        ));
        assert!(matches!(classify(409, "Conflict"), Error::Conflict { .. }));
        assert!(matches!(classify(410, "Expired"), Error::Gone { .. }));
        assert!(matches!(classify(422, "Invalid"), Error::Invalid { .. }));
        assert!(classify(503, "ServiceUnavailable").is_transient());
        assert!(!classify(403, "Forbidden").is_transient());
    }

    #[test]
    fn f63_f65_what_is_refused_is_not_asked_for_again_at_once() {
        let pause = |answer: serde_json::Value| {
            let status: Status = serde_json::from_value(answer).unwrap();
            Error::of("update", "nodeclaims/status", "a")(kube::Error::Api(Box::new(status)))
                .pause()
                .as_secs()
        };
        let busy = |seconds: u32| serde_json::json!({"code": 429, "details": {"retryAfterSeconds": seconds}});
        assert_eq!(
            [0, 1, 30, 3600].map(|after| pause(busy(after))),
            [2, 2, 30, 60]
        );
        for (code, expected) in [(429, 2), (503, 2), (403, 60), (401, 60), (422, 60)] {
            assert_eq!(pause(serde_json::json!({"code": code})), expected, "{code}");
        }
    }

    #[test]
    fn f65_a_missing_permission_names_verb_resource_and_fix() {
        let text = classify(403, "Forbidden").to_string();
        assert!(
            text.starts_with("get nodeclaims a: not permitted: because")
                && text.contains("ClusterRole"),
            "{text}"
        );
    }
}
