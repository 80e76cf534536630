//! kube-scheduler's own filter plugins, in a process that answers one line for each world.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::controlplane::Programs;

/// The process. It ends with this.
#[derive(Debug)]
pub struct Scheduler {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// By pod and Node: every plugin that refuses, with its reasons.
pub type Verdicts = BTreeMap<(String, String), Vec<Refusal>>;

/// A plugin that refuses.
#[derive(Clone, Debug, Deserialize)]
pub struct Refusal {
    /// Its name.
    pub plugin: String,
    /// What it says.
    pub reasons: Vec<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.plugin, self.reasons.join(", "))
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    verdicts: Vec<Verdict>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Verdict {
    pod: String,
    node: String,
    refused: Vec<Refusal>,
}

impl Scheduler {
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn start(programs: &Programs) -> Self {
        let mut child = Command::new(programs.path())
            .arg("oracle")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        Self {
            child,
            input: BufWriter::new(input),
            output: BufReader::new(output),
        }
    }

    /// What it says of each pod that waits and each Node, or what is wrong with the world.
    ///
    /// # Errors
    ///
    /// The world holds what an API server would not take.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn judge(&mut self, objects: &[Value]) -> Result<Verdicts, String> {
        self.ask(objects);
        self.answer()
    }

    /// Asks without waiting for the answer.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn ask(&mut self, objects: &[Value]) {
        let pods = objects.iter().filter(|object| is_waiting(object));
        let pods: Vec<String> = pods.map(full_name).collect();
        let question = json!({"objects": objects, "pods": pods});
        writeln!(self.input, "{question}").expect("the oracle reads");
    }

    /// The answer to the first question that has none.
    ///
    /// # Errors
    ///
    /// The world holds what an API server would not take.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn answer(&mut self) -> Result<Verdicts, String> {
        self.input.flush().expect("the oracle reads");
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("the oracle answers");
        let answer: Answer = serde_json::from_str(&line).expect("an answer");
        if let Some(error) = answer.error {
            return Err(error);
        }
        let verdicts = answer.verdicts.into_iter();
        Ok(verdicts
            .map(|verdict| ((verdict.pod, verdict.node), verdict.refused))
            .collect())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // It may have ended on its own; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_waiting(object: &Value) -> bool {
    object["kind"] == "Pod" && object["spec"]["nodeName"].is_null()
}

/// `namespace/name`, or the name of what has no namespace.
pub fn full_name(object: &Value) -> String {
    let meta = &object["metadata"];
    match (meta["namespace"].as_str(), meta["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (_, name) => name.unwrap_or_default().to_owned(),
    }
}
