//! The shape of Proxmox's answers: the envelope of successes, and where an error's words are.

use bytes::Bytes;
use http::Response;
use hyper::ext::ReasonPhrase;
use serde::Deserialize;
use serde_json::Value;

use kproxide_common::foreign;

/// How much of an error's text is read; a task's or storage driver's text can be pages.
const TEXT_CHARS_MAX: usize = 2048;

/// Every successful answer: `{"data": …}`, with `total` beside lists that can be paged.
#[derive(Deserialize)]
pub(super) struct Envelope<T> {
    pub(super) data: T,
    #[serde(default, deserialize_with = "super::types::count")]
    pub(super) total: Option<u64>,
}

/// What an error answer says.
pub(super) struct Said {
    pub(super) text: String,
    /// Complaints by parameter, sorted.
    pub(super) parameters: Vec<(String, String)>,
}

impl Said {
    /// Proxmox: since early 2025 the text is the body's `message`; before, and with an empty body, it is the reason phrase alone.
    pub(super) fn by(answer: &Response<Bytes>) -> Said {
        let body: Value = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
        let message = body["message"].as_str().map(str::trim).unwrap_or_default();
        let reason = answer
            .extensions()
            .get::<ReasonPhrase>()
            .map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        let text = if !message.is_empty() {
            message.to_owned()
        } else if let Some(reason) = reason {
            reason.trim().to_owned()
        } else if body.is_null() && !answer.body().is_empty() {
            String::from_utf8_lossy(answer.body()).trim().to_owned()
        } else {
            answer
                .status()
                .canonical_reason()
                .unwrap_or_default()
                .to_owned()
        };
        let mut parameters: Vec<(String, String)> = body["errors"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, complaint)| {
                let complaint = complaint
                    .as_str()
                    .map_or_else(|| complaint.to_string(), str::to_owned);
                (foreign::said(name), shortened(complaint.trim()))
            })
            .collect();
        parameters.sort();
        Said {
            text: shortened(&text),
            parameters,
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", foreign::visible(&text[..end])),
        None => foreign::visible(text).into_owned(),
    }
}
