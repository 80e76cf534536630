//! The commands that `examples/proxmox/setup.sh` may call, by `tests/data/setup/commands.txt`.

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use kproxide_simulator::pve::topology::Version;
use serde_json::Value;

use crate::cluster::ROOT;
use crate::{bare, cluster, repository};

/// One line of the table.
pub(crate) struct Row {
    /// The program and its words; `{…}` in a path stands for any text.
    pub(crate) command: Vec<String>,
    operands: usize,
    /// By name, whether it takes a value.
    options: BTreeMap<String, bool>,
    /// `POST /nodes/{node}/qemu`
    pub(crate) method: Option<String>,
}

/// A call as the table reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// `qm create`; of pvesh with the path as it was given.
    pub(crate) command: String,
    pub(crate) operands: Vec<String>,
    /// In their order; a flag has the value `""`.
    pub(crate) options: Vec<(String, String)>,
}

impl Call {
    /// The value of an option; empty if it is not there.
    pub(crate) fn option(&self, name: &str) -> &str {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Row {
    /// Options that the API knows as parameters.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &String> {
        self.options.keys().filter(|name| *name != "output-format")
    }

    fn is_of(&self, words: &[String]) -> bool {
        let alike = |(pattern, word): (&String, &String)| {
            let parts = pattern.split('/').count() == word.split('/').count();
            parts
                && pattern
                    .split('/')
                    .zip(word.split('/'))
                    .all(|(pattern, word)| pattern.starts_with('{') || pattern == word)
        };
        words.len() >= self.command.len() && self.command.iter().zip(words).all(alike)
    }
}

/// The table.
pub(crate) fn rows() -> Vec<Row> {
    let text = fs::read_to_string(repository("tests/data/setup/commands.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(row).collect()
}

fn row(line: &str) -> Row {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [command, operands, options, method] = columns[..] else {
        panic!("four columns: {line}");
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let option = |name: &str| (name.trim_end_matches('=').to_owned(), name.ends_with('='));
    Row {
        command: words(command),
        operands: operands.split_whitespace().count(),
        options: options.split_whitespace().map(option).collect(),
        method: (!method.is_empty()).then(|| method.to_owned()),
    }
}

/// Reads a call.
///
/// # Errors
/// The table does not have it, in words.
pub(crate) fn read(rows: &[Row], words: &[String]) -> Result<Call, String> {
    let row = rows.iter().find(|row| row.is_of(words));
    let row = row.ok_or_else(|| format!("no such command: {words:?}"))?;
    let mut call = Call {
        command: words[..row.command.len()].join(" "),
        operands: Vec::new(),
        options: Vec::new(),
    };
    let mut rest = words[row.command.len()..].iter();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') {
            call.operands.push(word.clone());
            continue;
        }
        let (name, given) = match word.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.trim_start_matches('-'), None),
        };
        let value = match (row.options.get(name), given) {
            (None, _) => return Err(format!("no option {word}: {words:?}")),
            (Some(true), None) => rest.next().cloned(),
            (Some(true), given) => given,
            (Some(false), None) => Some(String::new()),
            (Some(false), Some(_)) => None,
        };
        let value = value.ok_or_else(|| format!("option {word}: {words:?}"))?;
        call.options.push((name.to_owned(), value));
    }
    match call.operands.len() == row.operands {
        true => Ok(call),
        false => Err(format!("{} operands: {words:?}", row.operands)),
    }
}

/// The table has no option that Proxmox's API does not know.
#[tokio::test]
async fn the_table_of_commands_agrees_with_the_simulated_api() {
    const STRANGER: &str = "no-such-option";
    const UNKNOWN: &str =
        "property is not defined in schema and the schema does not allow additional properties";
    let mut compared = 0;
    for version in [Version::V8, Version::V9] {
        let cluster = cluster(bare(version));
        for row in rows() {
            let Some((method, path)) = row
                .method
                .as_ref()
                .and_then(|method| method.split_once(' '))
            else {
                continue;
            };
            let path = path.replace("{node}", "pve1").replace("{vmid}", "100");
            let parameters = row.parameters().map(String::as_str).chain([STRANGER]);
            let form: Vec<String> = parameters.map(|name| format!("{name}=1")).collect();
            let (query, body) = match method {
                "GET" | "DELETE" => (format!("?{}", form.join("&")), String::new()),
                _ => (String::new(), form.join("&")),
            };
            let request = http::Request::builder()
                .method(method)
                .uri(format!("/api2/json{path}{query}"))
                .header("authorization", format!("PVEAPIToken={ROOT}"))
                .header("content-type", "application/x-www-form-urlencoded")
                .body(Bytes::from(body))
                .unwrap();
            let answer = cluster.pve.handle(request).await;
            let answer: Value = serde_json::from_slice(answer.body()).unwrap();
            let errors = answer["errors"]
                .as_object()
                .unwrap_or_else(|| panic!("{:?}: {answer}", row.command));
            let unknown: Vec<&String> = errors
                .iter()
                .filter(|(_, text)| *text == UNKNOWN)
                .map(|(name, _)| name)
                .collect();
            assert_eq!(unknown, [STRANGER], "{:?}", row.command);
            compared += 1;
        }
    }
    assert!(compared >= 16, "{compared}");
}
