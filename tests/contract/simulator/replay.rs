//! Asking the simulated API what the real one was asked, and keeping count.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use kproxide_simulator::pve::Pve;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::compare;

/// One recorded exchange.
#[derive(Clone, Deserialize)]
pub(crate) struct Recording {
    name: String,
    /// Method, path and curl's options.
    request: String,
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Value,
    pub(crate) seconds: Option<f64>,
}

/// How a replayed answer compares with the recorded one.
pub(crate) enum Verdict {
    Equal,
    Differs { fixture: &'static str, why: String },
}

pub(crate) struct Recordings {
    recorded: BTreeMap<String, Recording>,
    verdicts: BTreeMap<String, Verdict>,
}

pub(crate) type Fixture = for<'a> fn(&'a mut Replay<'_>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Recordings {
    pub(crate) fn read() -> Recordings {
        let text = include_str!("../../data/pve/recordings.json");
        let all: Vec<Recording> =
            serde_json::from_str(text).expect("the recordings are valid JSON");
        Recordings {
            recorded: all
                .into_iter()
                .map(|recording| (recording.name.clone(), recording))
                .collect(),
            verdicts: BTreeMap::new(),
        }
    }

    pub(crate) async fn replay(&mut self, fixture: &'static str, run: &Fixture) {
        let mut replay = Replay {
            fixture,
            recordings: self,
            upids: BTreeMap::new(),
            secrets: BTreeMap::new(),
        };
        run(&mut replay).await;
    }

    pub(crate) fn verdicts(&self) -> impl Iterator<Item = (&String, Option<&Verdict>)> {
        self.recorded
            .keys()
            .map(|name| (name, self.verdicts.get(name)))
    }
}

/// One fixture at work.
pub(crate) struct Replay<'a> {
    fixture: &'static str,
    recordings: &'a mut Recordings,
    /// Recorded UPID → ours.
    upids: BTreeMap<String, String>,
    /// `<ticket>` and `<csrf>` in recordings → ours.
    secrets: BTreeMap<&'static str, String>,
}

/// Who asks: a token, or nobody.
#[derive(Clone, Copy)]
pub(crate) struct As(pub(crate) &'static str);

impl Replay<'_> {
    /// Asks what was asked in each of these recordings (names, separated by spaces), one after the other, and compares
    /// the answers.
    pub(crate) async fn check(&mut self, pve: &Pve, who: As, names: &str) {
        for name in names.split(' ') {
            let recording = self.recording(name);
            let request = self.request(&recording.request, who);
            if let Some(upid) = upid_in(request.uri().path()) {
                finish(pve, &upid).await;
            }
            let asked = Instant::now();
            let response = pve.handle(request).await;
            self.judge(&recording, &response, asked.elapsed().as_secs_f64());
        }
    }

    /// Asks something that was not recorded but led to what was: method, path and curl's options.
    pub(crate) async fn act(&self, pve: &Pve, who: As, request: &str) -> Value {
        let response = pve.handle(self.request(request, who)).await;
        accepted(request, &response)
    }

    /// Like [`Replay::act`], while at the same time what the recording `name` asked for is asked.
    pub(crate) async fn race(&mut self, pve: &Pve, who: As, request: &str, name: &str) -> Value {
        let recording = self.recording(name);
        let (ours, recorded) = (
            self.request(request, who),
            self.request(&recording.request, who),
        );
        let asked = Instant::now();
        let (ours, recorded) = tokio::join!(pve.handle(ours), pve.handle(recorded));
        self.judge(&recording, &recorded, asked.elapsed().as_secs_f64());
        accepted(request, &ours)
    }

    fn recording(&self, name: &str) -> Recording {
        let recording = self.recordings.recorded.get(name);
        recording
            .unwrap_or_else(|| panic!("there is no recording '{name}'"))
            .clone()
    }

    fn judge(&mut self, recording: &Recording, response: &Response<Bytes>, seconds: f64) {
        if let (Some(recorded), Some(ours)) = (
            recording.body["data"].as_str(),
            body(response)["data"].as_str(),
        ) {
            self.upids.insert(recorded.to_owned(), ours.to_owned());
        }
        let verdict = match compare::difference(recording, response, seconds) {
            None => Verdict::Equal,
            Some(why) => Verdict::Differs {
                fixture: self.fixture,
                why,
            },
        };
        self.recordings
            .verdicts
            .insert(recording.name.clone(), verdict);
    }

    /// Says that our task `upid` is the one that the recording `name` is about.
    pub(crate) fn alias(&mut self, name: &str, upid: &Value) {
        let recorded = &self.recordings.recorded[name].request;
        let path = recorded.split(' ').nth(1).expect("a request has a path");
        let recorded = upid_in(path).unwrap_or_else(|| panic!("'{name}' is about no task"));
        self.upids.insert(
            recorded,
            upid.as_str().expect("a task has a UPID").to_owned(),
        );
    }

    pub(crate) fn secret(&mut self, placeholder: &'static str, value: &Value) {
        self.secrets.insert(
            placeholder,
            value.as_str().expect("a secret is text").to_owned(),
        );
    }

    /// The request of a recorded curl command.
    fn request(&self, text: &str, who: As) -> Request<Bytes> {
        let mut text = text.to_owned();
        for (placeholder, secret) in &self.secrets {
            text = text.replace(placeholder, secret);
        }
        let (head, options) = split_options(&text);
        let (method, path) = head
            .trim()
            .split_once(' ')
            .expect("a request has a method and a path");
        let mut path = path.to_owned();
        for (recorded, ours) in &self.upids {
            path = path.replace(&escape(recorded), &escape(ours));
        }
        if !path.starts_with("/api2/json") {
            path.insert_str(0, "/api2/json");
        }
        let mut builder = Request::builder()
            .method(method.parse::<Method>().expect("a method"))
            .uri(path);
        let mut form = Vec::new();
        let mut has_credentials = false;
        for (option, value) in options {
            match option {
                "-d" => form.push(value),
                "--data-urlencode" => {
                    let (name, value) = value.split_once('=').expect("a form field has a name");
                    form.push(format!("{name}={}", escape(&value.replace("\\n", "\n"))));
                }
                "-H" => {
                    let (name, value) = value.split_once(": ").expect("a header has a name");
                    builder = builder.header(name, value);
                }
                "-b" => {
                    has_credentials = true;
                    builder = builder.header("cookie", value);
                }
                other => panic!("unknown option {other}"),
            }
        }
        if !has_credentials && !who.0.is_empty() {
            builder = builder.header("authorization", format!("PVEAPIToken={}", who.0));
        }
        builder
            .body(form.join("&").into())
            .expect("the request is well-formed")
    }
}

/// The part before curl's options, and the options with their values, which may contain spaces.
fn split_options(text: &str) -> (&str, Vec<(&str, String)>) {
    const OPTIONS: [&str; 5] = ["--data-urlencode", "-d", "-H", "-b", "-F"];
    let mut starts: Vec<(usize, &str)> = Vec::new();
    for option in OPTIONS {
        starts.extend(
            text.match_indices(&format!(" {option} "))
                .map(|(at, _)| (at, option)),
        );
    }
    starts.sort_unstable();
    let end_of = |at: usize| {
        starts
            .iter()
            .map(|(start, _)| *start)
            .find(|start| *start > at)
            .unwrap_or(text.len())
    };
    let options = starts.iter().map(|(at, option)| {
        let value = &text[at + option.len() + 2..end_of(*at)];
        (*option, value.trim_end().to_owned())
    });
    let head = starts.first().map_or(text, |(at, _)| &text[..*at]);
    (head, options.collect())
}

/// The UPID in a path, decoded.
fn upid_in(path: &str) -> Option<String> {
    let part = path.split('/').find(|part| part.starts_with("UPID"))?;
    Some(
        part.replace("%3A", ":")
            .replace("%40", "@")
            .replace("%21", "!"),
    )
}

/// Everything but unreserved characters as `%XX`.
fn escape(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}

/// The data of an answer that must not be a refusal.
fn accepted(request: &str, response: &Response<Bytes>) -> Value {
    let body = body(response);
    assert!(response.status().is_success(), "{request}: {body}");
    body["data"].clone()
}

/// Lets so much of the simulated servers' time go by. The clock is paused: it costs none of ours, and every task due until then has run.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits for the end of a task.
pub(crate) async fn finish(pve: &Pve, upid: &str) {
    for _ in 0..10_000 {
        let tasks = pve.snapshot().tasks;
        let running = tasks
            .iter()
            .any(|task| task.upid == upid && task.exit.is_none());
        if !running {
            return;
        }
        pass(Duration::from_millis(50)).await;
    }
    panic!("task {upid} does not end");
}

pub(crate) fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body())
        .unwrap_or_else(|_| String::from_utf8_lossy(response.body()).into_owned().into())
}
