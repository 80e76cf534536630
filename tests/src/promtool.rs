//! Prometheus' own tool for metrics and rules.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use crate::go::GoProgram;

const SOURCES: [(&str, &str); 2] = [
    ("go.mod", include_str!("../prometheus/go.mod")),
    ("go.sum", include_str!("../prometheus/go.sum")),
];

/// `promtool`, of the release that `tests/prometheus/go.mod` pins.
#[derive(Clone, Debug)]
pub struct Promtool {
    path: PathBuf,
}

/// Nothing where a test shall be skipped for lack of Go, which this says on stderr.
///
/// # Panics
///
/// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
pub fn require_promtool() -> Option<Promtool> {
    static PROMTOOL: LazyLock<GoProgram> = LazyLock::new(|| {
        let package = "github.com/prometheus/prometheus/cmd/promtool";
        // Without it, the clients of all clouds are linked in.
        let program = GoProgram::new("prometheus", "promtool", &SOURCES, "-s -w".to_owned());
        program.of(package, "remove_all_sd")
    });
    PROMTOOL.require().map(|path| Promtool { path })
}

impl Promtool {
    /// What is wrong with an exposition, by the rules of client_golang's linter; empty if nothing is.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn check_metrics(&self, exposition: &str) -> io::Result<String> {
        let mut child = Command::new(&self.path)
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(exposition.as_bytes())?;
        }
        Ok(said(&child.wait_with_output()?))
    }

    /// What is wrong with files of rules; empty if nothing is.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn check_rules(&self, file: &Path) -> io::Result<String> {
        let checked = self.run(&["check", "rules", "--lint-fatal"], file)?;
        Ok(match checked.status.success() {
            true => String::new(),
            false => said(&checked),
        })
    }

    /// Where tests of rules fail; empty if they pass. `tests`: a file as `promtool test rules` takes it.
    ///
    /// # Errors
    ///
    /// It cannot be started, or the file cannot be written.
    pub fn test_rules(&self, tests: &str) -> io::Result<String> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tests.yaml");
        fs::write(&file, tests)?;
        let tested = self.run(&["test", "rules"], &file)?;
        Ok(match tested.status.success() {
            true => String::new(),
            false => said(&tested),
        })
    }

    fn run(&self, arguments: &[&str], file: &Path) -> io::Result<Output> {
        Command::new(&self.path).args(arguments).arg(file).output()
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    let said = [out, err].map(|text| String::from_utf8_lossy(text).into_owned());
    said.concat()
}
