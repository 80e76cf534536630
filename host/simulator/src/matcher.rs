//! Which requests a fault or a hold is about.

use std::fmt;
use std::str::FromStr;

use http::Method;

/// The names under which tests and the command line know the requests that change the world: name, method, end of the
/// path. `*` stands for one part of it.
const NAMED: [(&str, Method, &str); 12] = [
    ("clone", Method::POST, "/qemu/*/clone"),
    ("config", Method::PUT, "/qemu/*/config"),
    ("configure", Method::POST, "/qemu/*/config"),
    ("resize", Method::PUT, "/qemu/*/resize"),
    ("start", Method::POST, "/qemu/*/status/start"),
    ("shutdown", Method::POST, "/qemu/*/status/shutdown"),
    ("stop", Method::POST, "/qemu/*/status/stop"),
    ("destroy", Method::DELETE, "/qemu/*"),
    ("exec", Method::POST, "/qemu/*/agent/exec"),
    ("login", Method::POST, "/access/ticket"),
    ("evict", Method::POST, "/pods/*/eviction"),
    ("delete-node", Method::DELETE, "/nodes/*"),
];

/// A pattern over method and path (without query).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    method: Option<Method>,
    /// The end of the path, in parts; empty matches all paths.
    end: Vec<String>,
}

impl Matcher {
    /// Every request.
    pub fn any() -> Matcher {
        Matcher {
            method: None,
            end: Vec::new(),
        }
    }

    /// Requests whose method is `method` and whose path ends like `end`, where `*` stands for any one part.
    pub fn new(method: Method, end: &str) -> Matcher {
        Matcher {
            method: Some(method),
            end: parts(end).map(str::to_owned).collect(),
        }
    }

    /// Whether the pattern covers a request.
    pub fn covers(&self, method: &Method, path: &str) -> bool {
        if self.method.as_ref().is_some_and(|wanted| wanted != method) {
            return false;
        }
        let path: Vec<&str> = parts(path).collect();
        let Some(skipped) = path.len().checked_sub(self.end.len()) else {
            return false;
        };
        self.end
            .iter()
            .zip(&path[skipped..])
            .all(|(wanted, part)| wanted == "*" || wanted == part)
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// No such request name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown request '{0}': use one of {known}, or METHOD /end/of/path with * for one part", known = names())]
pub struct UnknownRequest(String);

fn names() -> String {
    NAMED.map(|(name, ..)| name).join(", ")
}

impl FromStr for Matcher {
    type Err = UnknownRequest;

    /// A name (`clone`) or a method and the end of a path (`POST /qemu/*/clone`).
    fn from_str(text: &str) -> Result<Matcher, UnknownRequest> {
        if let Some((_, method, end)) = NAMED.iter().find(|(name, ..)| *name == text) {
            return Ok(Matcher::new(method.clone(), end));
        }
        let (method, end) = text
            .split_once(' ')
            .ok_or_else(|| UnknownRequest(text.to_owned()))?;
        let method = method
            .parse()
            .map_err(|_| UnknownRequest(text.to_owned()))?;
        Ok(Matcher::new(method, end))
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.as_ref().map_or("*", Method::as_str);
        write!(f, "{method} …/{}", self.end.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, method: Method, path: &str) -> bool {
        pattern.parse::<Matcher>().unwrap().covers(&method, path)
    }

    #[test]
    fn names_cover_their_requests_only() {
        assert!(covers(
            "clone",
            Method::POST,
            "/api2/json/nodes/pve1/qemu/9000/clone"
        ));
        assert!(!covers(
            "clone",
            Method::GET,
            "/api2/json/nodes/pve1/qemu/9000/clone"
        ));
        assert!(covers(
            "destroy",
            Method::DELETE,
            "/api2/json/nodes/pve1/qemu/101"
        ));
        assert!(!covers(
            "destroy",
            Method::DELETE,
            "/api2/json/nodes/pve1/tasks/UPID:x"
        ));
        assert!(covers(
            "evict",
            Method::POST,
            "/api/v1/namespaces/a/pods/b/eviction"
        ));
        assert!(covers(
            "PUT /ledgers/*/status",
            Method::PUT,
            "/apis/kproxide.dev/v1/ledgers/x/status"
        ));
    }

    #[test]
    fn unknown_name_lists_the_known_ones() {
        let text = "clonk".parse::<Matcher>().unwrap_err().to_string();
        assert!(
            text.contains("'clonk'") && text.contains("clone, config"),
            "{text}"
        );
    }
}
