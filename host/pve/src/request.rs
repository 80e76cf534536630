//! What a request to Proxmox is made of: method, path, parameters. Percent-encoding lives here, once.
//!
//! Proxmox: bodies are form-encoded (booleans `1`/`0`, arrays repeat the key); GET and DELETE must not have a body, so
//! their parameters go into the query; an unknown parameter is refused, a UPID in a path needs every `:` encoded.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{Method, Request, header};

/// The prefix of every path of the API.
const API: &str = "/api2/json";

/// Parameters in the order they were added. Debug shows their names only: a value can be a password or a join script.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl std::fmt::Debug for Params {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list()
            .entries(self.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Params {
    /// No parameters.
    pub fn new() -> Params {
        Params::default()
    }

    /// Adds a parameter; the same name again makes an array.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Params {
        self.push(name, value);
        self
    }

    /// Adds a parameter if there is a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl ToString>) -> Params {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a boolean in Proxmox's form.
    #[must_use]
    pub fn with_flag(self, name: &str, value: bool) -> Params {
        self.with(name, u8::from(value))
    }

    /// Adds a parameter in place.
    pub fn push(&mut self, name: impl Into<String>, value: impl ToString) {
        self.0.push((name.into(), value.to_string()));
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(candidate, _)| *candidate == name)
            .map(|(_, value)| value)
    }

    /// Name and value of each parameter, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True without parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn encoded(&self) -> String {
        let mut form = String::new();
        for (name, value) in self.iter() {
            if !form.is_empty() {
                form.push('&');
            }
            percent_encode_into(&mut form, name);
            form.push('=');
            percent_encode_into(&mut form, value);
        }
        form
    }
}

/// One request, before authentication and endpoint are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// GET, POST, PUT or DELETE.
    pub method: Method,
    /// The path below the API's root, each part percent-encoded: `/nodes/pve1/qemu/101/config`.
    pub path: String,
    /// Query or body, by method.
    pub params: Params,
    /// The hypervisor that serves it, unless any can.
    pub hypervisor: Option<String>,
    /// Proxmox: such calls run in `pvedaemon`, which has three workers per hypervisor, so we never have more than two in flight.
    pub protected: bool,
    /// True where a repetition has no effect that a single execution has not (reads, and the login).
    pub repeatable: bool,
}

impl Call {
    /// A read. `parts` are the segments of the path, not yet encoded.
    pub fn get(parts: &[&str]) -> Call {
        Call::new(Method::GET, parts)
    }

    /// A write by POST.
    pub fn post(parts: &[&str]) -> Call {
        Call::new(Method::POST, parts)
    }

    /// A write by PUT.
    pub fn put(parts: &[&str]) -> Call {
        Call::new(Method::PUT, parts)
    }

    /// A removal.
    pub fn delete(parts: &[&str]) -> Call {
        Call::new(Method::DELETE, parts)
    }

    fn new(method: Method, parts: &[&str]) -> Call {
        let mut path = String::new();
        for part in parts {
            path.push('/');
            percent_encode_into(&mut path, part);
        }
        let hypervisor = match parts {
            ["nodes", hypervisor, _, ..] => Some((*hypervisor).to_owned()),
            _ => None,
        };
        Call {
            // Every write runs as root in pvedaemon; of the reads, only those marked by `protected()`.
            protected: method != Method::GET,
            repeatable: method == Method::GET,
            method,
            path,
            params: Params::new(),
            hypervisor,
        }
    }

    /// Sets the parameters.
    #[must_use]
    pub fn params(mut self, params: Params) -> Call {
        self.params = params;
        self
    }

    /// Marks a read that `pvedaemon` serves.
    #[must_use]
    pub fn protected(mut self) -> Call {
        self.protected = true;
        self
    }

    /// Method and path with a name in place of each value, such as `GET /nodes/{node}/qemu/{vmid}/config`.
    pub fn template(&self) -> String {
        let mut template = self.method.to_string();
        let (mut before, mut separator) = ("", " /");
        for part in self.path.split('/').skip(1) {
            let value = match before {
                "nodes" => Some("{node}"),
                "qemu" => Some("{vmid}"),
                "tasks" => Some("{upid}"),
                "storage" => Some("{storage}"),
                _ => None,
            };
            template.push_str(separator);
            template.push_str(value.unwrap_or(part));
            // A value may be the word that comes before another one.
            before = value.map_or(part, |_| "");
            separator = "/";
        }
        template
    }

    /// The request on the wire, without credentials. The URI has no authority: the transport knows its endpoint.
    pub fn request(&self) -> Request<Bytes> {
        let form = self.params.encoded();
        let in_query = matches!(self.method, Method::GET | Method::DELETE);
        let uri = if in_query && !form.is_empty() {
            format!("{API}{}?{form}", self.path)
        } else {
            format!("{API}{}", self.path)
        };
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(uri)
            .header(header::ACCEPT, "application/json");
        let body = if in_query {
            Bytes::new()
        } else {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            Bytes::from(form)
        };
        request
            .body(body)
            .expect("an encoded path and a form are valid parts of a request")
    }
}

impl std::fmt::Display for Call {
    /// Method and path, never parameters: those can be secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.method, self.path)
    }
}

/// Percent-encodes everything but letters, digits and `-._~`, a blank as `%20` and never as `+`.
///
/// Proxmox's decoder of `sshkeys` does not know `+`, and no other reader minds.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    percent_encode_into(&mut encoded, text);
    encoded
}

fn percent_encode_into(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_upid_in_a_path_is_encoded() {
        let call = Call::get(&[
            "nodes",
            "pve1",
            "tasks",
            "UPID:pve1:00:aut@pve!full:",
            "status",
        ]);
        assert_eq!(
            call.request().uri(),
            "/api2/json/nodes/pve1/tasks/UPID%3Apve1%3A00%3Aaut%40pve%21full%3A/status"
        );
        assert_eq!(call.hypervisor.as_deref(), Some("pve1"));
    }

    #[test]
    fn deletes_put_their_parameters_in_the_query() {
        let request = Call::delete(&["nodes", "pve1", "qemu", "101"])
            .params(Params::new().with_flag("purge", true))
            .request();
        assert_eq!(request.uri(), "/api2/json/nodes/pve1/qemu/101?purge=1");
        assert!(request.body().is_empty());
        assert!(request.headers().get(header::CONTENT_TYPE).is_none());
    }

    #[test]
    fn arrays_repeat_their_key() {
        let request = Call::post(&["nodes", "pve1", "qemu", "101", "agent", "exec"])
            .params(
                Params::new()
                    .with("command", "sh")
                    .with("command", "-c a+b"),
            )
            .request();
        assert_eq!(request.body().as_ref(), b"command=sh&command=-c%20a%2Bb");
    }

    #[test]
    fn a_template_names_no_value() {
        for (parts, expected) in [
            (&["nodes"] as &[&str], "GET /nodes"),
            (&["nodes", "pve1", "qemu"], "GET /nodes/{node}/qemu"),
            (
                &["nodes", "qemu", "qemu", "101", "agent", "exec-status"],
                "GET /nodes/{node}/qemu/{vmid}/agent/exec-status",
            ),
            (
                &["nodes", "pve1", "tasks", "UPID:pve1:0/0:", "status"],
                "GET /nodes/{node}/tasks/{upid}/status",
            ),
            (
                &["nodes", "pve2", "storage", "local", "content"],
                "GET /nodes/{node}/storage/{storage}/content",
            ),
            (&["access", "permissions"], "GET /access/permissions"),
        ] {
            assert_eq!(Call::get(parts).template(), expected);
        }
        assert_eq!(
            Call::delete(&["nodes", "a", "qemu", "7"]).template(),
            "DELETE /nodes/{node}/qemu/{vmid}"
        );
    }

    #[test]
    fn the_list_of_hypervisors_belongs_to_none() {
        assert_eq!(Call::get(&["nodes"]).hypervisor, None);
    }
}
