//! What is between the program and the two simulators: each answer is changed on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt as _};

use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client;
use kproxide_lab::Lab;
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::{Endpoint, TransportError};

/// Of the class's script. Guests alone know it.
pub(super) const SECRET: &str = "K10abcdef0123456789::server:4711";
pub(super) const STRINGS: usize = 200;
/// Of so many requests that change something, one is refused in hostile words.
const REFUSED: u64 = 12;

/// What servers check, by the names of fields: identities, times, amounts and words of a fixed set. Nobody can write anything else there.
const CHECKED: [&str; 57] = [
    "apiVersion",
    "kind",
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generateName",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "nodeName",
    "phase",
    "type",
    "status",
    "lastTransitionTime",
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastUpdateTime",
    "startTime",
    "startedAt",
    "finishedAt",
    "operator",
    "effect",
    "key",
    "topologyKey",
    "cpu",
    "memory",
    "pods",
    "storage",
    "ephemeral-storage",
    "operation",
    "fieldsType",
    "protocol",
    "restartPolicy",
    "dnsPolicy",
    "whenUnsatisfiable",
    "qosClass",
    "timeAdded",
    "policy",
    "finalizers[]",
    "address",
    "hostIP",
    "podIP",
    "ip",
    "preemptionPolicy",
    "serviceAccountName",
    "serviceAccount",
    "namespaces[]",
    "clusterIP",
    "volumeBindingMode",
    "reclaimPolicy",
    "nominatedNodeName",
    "claimName",
    "driverName",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "podManagementPolicy",
];
/// Below these all is checked.
const CHECKED_MAPS: [&str; 9] = [
    ".labels.",
    ".matchLabels.",
    ".nodeSelector.",
    ".requests.",
    ".limits.",
    ".allocatable.",
    ".capacity.",
    ".fieldsV1.",
    ".drivers[].",
];
/// Proxmox's own words and identities.
const OF_PROXMOX: [&str; 13] = [
    "node",
    "vmid",
    "type",
    "id",
    "status",
    "upid",
    "storage",
    "content[]",
    "digest",
    "pid",
    "ticket",
    "CSRFPreventionToken",
    "username",
];

#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Texts in answers, by where they stood.
    pub(super) places: BTreeSet<String>,
    pub(super) hostile: BTreeSet<String>,
    /// Each such text, with how many others were before it.
    pub(super) drawn: BTreeMap<(String, String), usize>,
    /// What the program wrote of itself.
    pub(super) sent: Vec<(String, String)>,
}

#[derive(Clone)]
pub(super) struct Walker(Arc<Inner>);

struct Inner {
    run: u64,
    runs: u64,
    strings: Vec<String>,
    /// The string of this number comes first.
    first: usize,
    seen: Mutex<Seen>,
    changes: AtomicU64,
    is_begun: AtomicBool,
}

/// Always the same.
fn drawn() -> Vec<String> {
    const PIECES: [&str; 24] = [
        "\u{1b}[2J",
        "\u{1b}]52;c;aGk=\u{7}",
        "\u{1b}]0;owned\u{1b}\\",
        "\u{9b}31m",
        "\u{9d}52;c;aGk=\u{9c}",
        "\u{85}",
        "\u{7f}",
        "\0",
        "\r",
        "\n",
        "\t",
        "\u{8}",
        "\u{202e}",
        "\u{2066}",
        "\u{2069}",
        "\u{200f}",
        "\u{61c}",
        "\u{fffe}",
        "\\u001b[31m",
        "\"}{",
        "{{ x }}",
        "%s%n",
        "漢ä🐧",
        "word ",
    ];
    let mut rng = SmallRng::seed_from_u64(51);
    let mut draw = |_| {
        let pieces = rng.random_range(1..8);
        let pieces = (0..pieces).map(|_| PIECES[rng.random_range(0..PIECES.len())]);
        format!("x{}", pieces.collect::<String>())
    };
    let mut strings: Vec<String> = (0..STRINGS).map(&mut draw).collect();
    strings[0] = "\u{1b}[2J\u{202e}ab".repeat((1 << 20) / 9);
    strings
}

fn mixed(parts: &[&str], number: u64) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325 ^ number, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }) >> 16
}

impl Walker {
    /// `first`: the number of the first string. `is_begun`: else it changes nothing before [`Self::begin`].
    pub(super) fn new(run: u64, runs: u64, is_begun: bool, first: usize) -> Self {
        Self(Arc::new(Inner {
            run,
            runs,
            strings: drawn(),
            first,
            seen: Mutex::default(),
            changes: AtomicU64::new(0),
            is_begun: is_begun.into(),
        }))
    }

    pub(super) fn begin(&self) {
        self.0.is_begun.store(true, Ordering::Relaxed);
    }

    fn is_begun(&self) -> bool {
        self.0.is_begun.load(Ordering::Relaxed)
    }

    pub(super) fn seen(&self) -> Seen {
        self.0.seen.lock().unwrap().clone()
    }

    /// One of the strings; the same for the same text at the same place, as words stay that somebody wrote once.
    fn hostile(&self, place: &str, text: &str) -> String {
        let mut seen = self.0.seen.lock().unwrap();
        let next = seen.drawn.len();
        let drawn = seen.drawn.entry((place.to_owned(), text.to_owned()));
        let number = *drawn.or_insert(next);
        self.0.strings[(self.0.first + number) % STRINGS].clone()
    }

    fn walk(&self, place: &str, value: &mut Value, is_free: &dyn Fn(&str) -> bool) {
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    let key = match key.contains(['/', '.']) {
                        true => "*",
                        false => key.as_str(),
                    };
                    self.walk(&format!("{place}.{key}"), inner, is_free);
                }
            }
            Value::Array(values) => {
                for inner in values {
                    self.walk(&format!("{place}[]"), inner, is_free);
                }
            }
            Value::String(text) if is_free(place) => {
                let part = match place.contains("/agent/") {
                    true => self.0.runs,
                    false => mixed(&[place], 0) % self.0.runs,
                };
                let is_hostile = self.is_begun() && part == self.0.run;
                let mut seen = self.0.seen.lock().unwrap();
                seen.places.insert(place.to_owned());
                if is_hostile {
                    seen.hostile.insert(place.to_owned());
                    drop(seen);
                    *text = self.spoilt(place, text);
                }
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn spoilt(&self, place: &str, text: &str) -> String {
        let hostile = self.hostile(place, text);
        if place.ends_with("out-data") || place.ends_with("err-data") {
            // Each byte is a letter. The script has failed, and says why.
            let words = format!(
                "done 7\n\u{ff}\u{c2}{hostile}\n+ K3S_TOKEN={SECRET}\njoining with {SECRET} now\n"
            );
            return words
                .chars()
                .map(|c| u8::try_from(c).map_or('?', char::from))
                .collect();
        }
        match mixed(&[text], 1) % 2 {
            0 => hostile,
            _ => format!("{text}{hostile}"),
        }
    }

    /// Hostile words of a refusal, now and then.
    fn refusal(&self, method: &Method, path: &str) -> Option<String> {
        let is_of_guests = self.0.run == self.0.runs;
        if !self.is_begun()
            || is_of_guests
            || *method == Method::GET
            || path.contains("/leases")
            || path.contains("/access")
        {
            return None;
        }
        let change = self.0.changes.fetch_add(1, Ordering::Relaxed);
        let drawn = mixed(&["refused"], change ^ (self.0.run << 32));
        let is_refused = drawn.is_multiple_of(REFUSED);
        is_refused.then(|| self.hostile("refusal", &change.to_string()))
    }

    // === Kubernetes ===

    pub(super) fn kube(&self, lab: &Lab) -> Client {
        let (walker, kube) = (self.clone(), lab.kube.as_user("kproxide-0"));
        Client::from_service(tower::service_fn(
            move |request: Request<::kube::client::Body>| {
                let (walker, service) = (walker.clone(), kube.service());
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let path = parts.uri.path().to_owned();
                    walker.note(&path, &body);
                    if let Some(words) = walker.refusal(&parts.method, &path) {
                        let code = [403, 422, 500][words.len() % 3];
                        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                        "reason": "Denied", "message": format!("admission webhook denied the request: {words}") });
                        let body = Full::new(Bytes::from(status.to_string()));
                        let response = Response::builder().status(code);
                        return Ok::<_, BoxError>(response.body(UnsyncBoxBody::new(body))?);
                    }
                    let request =
                        Request::from_parts(parts, ::kube::client::Body::from(body.to_vec()));
                    let answer = service.oneshot(request).await?;
                    let resource = resource(&path);
                    let (parts, body) = answer.into_parts();
                    // A frame is a whole answer, or a line of a watch.
                    let body = body.map_frame(move |frame| {
                        frame.map_data(|bytes| {
                            walker.spoilt_object(&resource, &bytes).unwrap_or(bytes)
                        })
                    });
                    Ok(Response::from_parts(parts, UnsyncBoxBody::new(body)))
                }
            },
        ))
    }

    fn spoilt_object(&self, resource: &str, bytes: &[u8]) -> Option<Bytes> {
        // They hold keys and words of our own, each proven in its own way.
        const OURS: [&str; 5] = [
            "secrets",
            "leases",
            "configmaps",
            "customresourcedefinitions",
            "namespaces",
        ];
        if OURS.contains(&resource) {
            return None;
        }
        let mut value: Value = serde_json::from_slice(bytes).ok()?;
        let is_status = value["kind"] == "Status";
        let is_custom = resource.ends_with("kproxide.dev");
        let is_free = |place: &str| {
            let last = place.rsplit('.').next().unwrap_or_default();
            let is_checked =
                CHECKED.contains(&last) || CHECKED_MAPS.iter().any(|map| place.contains(map));
            // Of an owner, only that it is there.
            let is_of_owner = place.contains(".ownerReferences[].") && last != "uid";
            let is_checked = is_checked && !is_of_owner;
            let is_word = ["message", "reason"].contains(&last) || place.contains(".annotations.");
            match (is_status, is_custom) {
                (true, _) => last == "message",
                // The schema's patterns and kproxide's own words; conditions anybody may write.
                (false, true) => is_word && !is_checked && !place.ends_with(".reason"),
                // By this word pods wait.
                (false, false) => !(is_checked || resource == "pods" && last == "reason"),
            }
        };
        // A watch says what happened to an object; a list has items. It is the same object.
        let place = resource.to_owned();
        match (value.get("items").is_some(), value.get("object").is_some()) {
            (true, _) => {
                let items = value["items"].as_array_mut()?;
                items
                    .iter_mut()
                    .for_each(|item| self.walk(&place, item, &is_free));
            }
            (_, true) => self.walk(&place, &mut value["object"], &is_free),
            (false, false) => self.walk(&place, &mut value, &is_free),
        }
        let mut text = value.to_string();
        if bytes.ends_with(b"\n") {
            text.push('\n');
        }
        Some(text.into())
    }

    /// Events and statuses are what the program says.
    fn note(&self, path: &str, body: &[u8]) {
        let is_event = path.contains("/events");
        let is_status = path.contains("/kproxide.dev/") && path.ends_with("/status");
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return;
        };
        if is_event || is_status {
            let mut seen = self.0.seen.lock().unwrap();
            texts(path, &body, &mut seen.sent);
        }
    }

    // === Proxmox ===

    pub(super) fn proxmox(&self, lab: &Lab) -> Connect {
        let (walker, pve) = (self.clone(), lab.pve.clone());
        Arc::new(move |_, concurrency| {
            let (walker, pve) = (walker.clone(), pve.clone());
            let service = tower::service_fn(move |request: Request<Bytes>| {
                let (walker, service) = (walker.clone(), pve.service());
                async move {
                    let path = request.uri().path().to_owned();
                    if let Some(words) = walker.refusal(request.method(), &path) {
                        let status = [400, 403, 500][words.len() % 3];
                        let errors = json!({ "param": words, &words: words });
                        let body = json!({ "data": null, "message": words, "errors": errors });
                        let response = Response::builder().status(status);
                        return Ok::<_, TransportError>(
                            response.body(Bytes::from(body.to_string())).unwrap(),
                        );
                    }
                    let answer = service.oneshot(request).await;
                    let mut answer =
                        answer.map_err(|broken| TransportError::Broken(broken.into()))?;
                    let spoilt = walker.spoilt_answer(&path, answer.body());
                    *answer.body_mut() = spoilt.unwrap_or_else(|| answer.body().clone());
                    Ok(answer)
                }
            });
            let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            let endpoint = Endpoint::new("lab", service);
            Ok(PveClient::new(vec![endpoint], credentials, concurrency))
        })
    }

    fn spoilt_answer(&self, path: &str, bytes: &[u8]) -> Option<Bytes> {
        let mut value: Value = serde_json::from_slice(bytes).ok()?;
        let parts = path.trim_start_matches("/api2/json/").split('/');
        let is_name = |part: &str| {
            part.starts_with("pve")
                || part.starts_with("UPID")
                || part.starts_with(|c: char| c.is_ascii_digit())
        };
        let parts: Vec<&str> = parts
            .map(|part| if is_name(part) { "*" } else { part })
            .collect();
        let is_free = |place: &str| {
            let last = place.rsplit('.').next().unwrap_or_default();
            // A task's name is all that a write answers.
            !OF_PROXMOX.contains(&last) && !place.ends_with(".data")
        };
        self.walk(&parts.join("/"), &mut value, &is_free);
        Some(value.to_string().into())
    }
}

/// Each text, with its place.
fn texts(place: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                texts(&format!("{place}.{key}"), inner, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|inner| texts(place, inner, found)),
        Value::String(text) => found.push((place.to_owned(), text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `pods`, `nodeclaims.kproxide.dev`.
fn resource(path: &str) -> String {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["apis", group, _, rest @ ..] => (Some(*group), rest),
        ["api", _, rest @ ..] => (None, rest),
        _ => return path.to_owned(),
    };
    let name = match rest {
        ["namespaces", _, name, ..] | [name, ..] => *name,
        [] => "",
    };
    match group {
        Some(group) if group == "kproxide.dev" => format!("{name}.{group}"),
        Some(_) | None => name.to_owned(),
    }
}
