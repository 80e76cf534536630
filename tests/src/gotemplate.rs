//! Go's own text/template.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::go::GoProgram;

const SOURCES: [(&str, &str); 2] = [
    ("go.mod", include_str!("../gotemplate/go.mod")),
    ("main.go", include_str!("../gotemplate/main.go")),
];

/// The program of `tests/gotemplate`.
#[derive(Clone, Debug)]
pub struct TextTemplate {
    path: PathBuf,
}

/// What it makes of one template.
#[derive(Clone, Debug, Deserialize)]
pub struct Rendered {
    /// `parse` or `render`, whichever failed. Empty if neither did.
    pub failed: String,
    /// The text, or why it failed.
    pub text: String,
}

/// Nothing where a test shall be skipped for lack of Go, which this says on stderr.
///
/// # Panics
///
/// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
pub fn require_text_template() -> Option<TextTemplate> {
    static PROGRAM: LazyLock<GoProgram> = LazyLock::new(|| {
        let called = "Go's text/template";
        GoProgram::new("gotemplate", called, &SOURCES, "-s -w".to_owned())
    });
    PROGRAM.require().map(|path| TextTemplate { path })
}

impl TextTemplate {
    /// What it makes of each question: `Template`, and the `Variables` that it has.
    ///
    /// # Errors
    ///
    /// It cannot be started, or it stops before the last answer.
    pub fn render(&self, questions: &[Value]) -> io::Result<Vec<Rendered>> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("questions.json");
        let mut written = File::create(&file)?;
        for question in questions {
            writeln!(written, "{question}")?;
        }
        let output = Command::new(&self.path)
            .stdin(File::open(&file)?)
            .stderr(Stdio::inherit())
            .output()?;
        let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let answers: Vec<Rendered> = answers.collect::<Result<_, _>>()?;
        match answers.len() == questions.len() {
            true => Ok(answers),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
