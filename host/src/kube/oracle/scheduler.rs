//! kube-scheduler's own filter plugins, in a process that answers one line for each world.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use kproxide_testkit::Programs;
use serde::Deserialize;
use serde_json::{Value, json};

use super::full_name;

pub(super) struct Scheduler {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// By pod and Node: every plugin that refuses, with its reasons.
pub(super) type Verdicts = BTreeMap<(String, String), Vec<Refusal>>;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Refusal {
    pub(super) plugin: String,
    pub(super) reasons: Vec<String>,
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
    pub(super) fn start(programs: &Programs) -> Self {
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
    pub(super) fn judge(&mut self, objects: &[Value]) -> Result<Verdicts, String> {
        self.ask(objects);
        self.answer()
    }

    pub(super) fn ask(&mut self, objects: &[Value]) {
        let pods = objects.iter().filter(|object| is_waiting(object));
        let pods: Vec<String> = pods.map(full_name).collect();
        let question = json!({"objects": objects, "pods": pods});
        writeln!(self.input, "{question}").expect("the oracle reads");
    }

    pub(super) fn answer(&mut self) -> Result<Verdicts, String> {
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
