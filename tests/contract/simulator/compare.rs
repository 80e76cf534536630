//! When two answers count as equal.
//!
//! Masked are: UPIDs, digests, process ids, times, random identifiers (UUIDs, MAC addresses, fingerprints), the order of
//! lists, measured numbers (their type counts), what hardware calls itself, and how often a lock was polled for, which
//! depends on the load of the machine that recorded.

use bytes::Bytes;
use http::Response;
use hyper::ext::ReasonPhrase;
use serde_json::{Map, Value};

use super::replay::{Recording, body};

/// Numbers that are measured: only that they are numbers counts.
const MEASURED: [&str; 23] = [
    "cgroup-mode",
    "free_mem",
    "avail",
    "cpu",
    "ctime",
    "disk",
    "endtime",
    "free",
    "freemem",
    "idle",
    "maxdisk",
    "mem",
    "memhost",
    "pid",
    "pstart",
    "starttime",
    "total",
    "total_mem",
    "uptime",
    "used",
    "used_fraction",
    "version",
    "wait",
];

/// Texts that are made up on the spot or describe hardware.
const INCIDENTAL: [&str; 13] = [
    "digest",
    "family",
    "flags",
    "hvm",
    "kversion",
    "mhz",
    "mode",
    "model",
    "machine",
    "release",
    "ssl_fingerprint",
    "upid",
    "vendor",
];

/// The first difference between a recorded answer and ours, if there is one.
pub(crate) fn difference(
    recorded: &Recording,
    ours: &Response<Bytes>,
    seconds: f64,
) -> Option<String> {
    let status = ours.status().as_u16();
    if status != recorded.status {
        return Some(format!(
            "status {status} {} instead of {} {}",
            body(ours),
            recorded.status,
            recorded.body
        ));
    }
    let reason = ours.extensions().get::<ReasonPhrase>();
    let reason = reason.map_or_else(String::new, |reason| {
        String::from_utf8_lossy(reason.as_bytes()).into_owned()
    });
    if masked_text(&reason) != masked_text(&recorded.reason) {
        return Some(format!(
            "reason '{reason}' instead of '{}'",
            recorded.reason
        ));
    }
    let kind = recorded
        .headers
        .iter()
        .find_map(|header| header.strip_prefix("Content-Type: "));
    let our_kind = ours
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    if kind != our_kind {
        return Some(format!("content type {our_kind:?} instead of {kind:?}"));
    }
    if let Some(recorded) = recorded
        .seconds
        .filter(|recorded| (recorded - seconds).abs() > 1.0)
    {
        return Some(format!("after {seconds} s instead of {recorded} s"));
    }
    let [expected, found] = [&recorded.body, &body(ours)].map(|value| masked("", value));
    first_difference("body", &expected, &found)
}

fn first_difference(at: &str, expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let missing = expected.keys().find(|key| !found.contains_key(*key));
            let extra = found.keys().find(|key| !expected.contains_key(*key));
            if let Some(key) = missing {
                return Some(format!(
                    "{at}.{key} is missing (recorded: {})",
                    expected[key]
                ));
            }
            if let Some(key) = extra {
                return Some(format!("{at}.{key} was not recorded: {}", found[key]));
            }
            expected.iter().find_map(|(key, value)| {
                first_difference(&format!("{at}.{key}"), value, &found[key])
            })
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(n, (expected, found))| {
                first_difference(&format!("{at}[{n}]"), expected, found)
            })
        }
        _ => (expected != found).then(|| format!("{at} is {found} instead of {expected}")),
    }
}

fn masked(key: &str, value: &Value) -> Value {
    match value {
        Value::Number(_) if MEASURED.contains(&key) => "<number>".into(),
        Value::String(_) if INCIDENTAL.contains(&key) => format!("<{key}>").into(),
        // A task list writes a flag sometimes as a number and sometimes as text.
        _ if key == "saved" => "<saved>".into(),
        Value::String(text) if key == "content" => {
            let mut kinds: Vec<&str> = text.split(',').collect();
            kinds.sort_unstable();
            kinds.join(",").into()
        }
        Value::String(text) => masked_text(text).into(),
        Value::Object(object) if key == "current-kernel" => object
            .keys()
            .map(|key| (key.clone(), Value::from("<text>")))
            .collect(),
        Value::Array(items) if key == "loadavg" => {
            items.iter().map(|_| Value::from("<load>")).collect()
        }
        Value::Array(items) if items.first().is_some_and(|item| item.get("t").is_some()) => {
            masked_log(items)
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| masked("", item)).collect();
            items.sort_by_key(ToString::to_string);
            items.into()
        }
        Value::Object(object) => {
            let mut masked_object = Map::new();
            for (key, value) in object {
                // `{"key": "digest", "value": …}` in a list of pending changes.
                let is_digest =
                    key == "value" && object.get("key").is_some_and(|name| name == "digest");
                masked_object.insert(
                    key.clone(),
                    masked(if is_digest { "digest" } else { key }, value),
                );
            }
            masked_object.into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The lines of a task log. Polls for a lock count once in a row; before a success they do not count.
fn masked_log(lines: &[Value]) -> Value {
    let texts = lines
        .iter()
        .map(|line| masked_text(line["t"].as_str().unwrap_or_default()));
    let mut texts: Vec<String> = texts.collect();
    let is_poll = |text: &String| text.starts_with("trying to acquire cfs lock");
    if texts.last().is_some_and(|last| last == "TASK OK") {
        texts.retain(|text| !is_poll(text));
    }
    texts.dedup_by(|a, b| is_poll(a) && a == b);
    texts.into_iter().map(Value::from).collect()
}

/// A text without what differs from run to run.
fn masked_text(text: &str) -> String {
    let words = text.split_inclusive([' ', ',', '\'', '=', '\n']);
    words.map(masked_word).collect()
}

fn masked_word(word: &str) -> String {
    let end = word.len() - usize::from(word.ends_with([' ', ',', '\'', '=', '\n']));
    let (core, rest) = word.split_at(end);
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = |separator: char| core.split(separator).map(str::len).collect::<Vec<_>>();
    let is_uuid = parts('-') == [8, 4, 4, 4, 12] && core.split('-').all(hex);
    let is_mac = parts(':') == [2; 6] && core.split(':').all(hex);
    let masked = if core.starts_with("UPID:") {
        let fields: Vec<&str> = core.split(':').collect();
        format!(
            "UPID:{}:<pid>:<pstart>:<starttime>:{}",
            fields[1],
            fields[5..].join(":")
        )
    } else if is_uuid {
        "<uuid>".into()
    } else if is_mac {
        "<mac>".into()
    } else if digits(core) && core.len() == 10 {
        "<time>".into()
    } else if let Some((file, _)) = core.split_once(".tmp.").filter(|(_, pid)| digits(pid)) {
        format!("{file}.tmp.<pid>")
    } else {
        core.to_owned()
    };
    format!("{masked}{rest}")
}
