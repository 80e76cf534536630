//! The executables that `cargo test` would run, and what one of them says when it runs.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kproxide_verify::nested::forget_the_package;
use serde_json::Value;

/// Of the environment of a test executable.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// One test executable.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    /// `kproxide e2e`, `kproxide-planner lib`: package and target.
    pub(crate) name: String,
    path: PathBuf,
    /// Where Cargo runs it.
    folder: PathBuf,
    /// Criterion's, which know no `--ignored`.
    pub(crate) is_bench: bool,
}

/// What one run came to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) ignored: usize,
    /// It ended without saying how it went, or how all tests went.
    pub(crate) died: bool,
    /// How many tests have failed by its last word.
    counted: usize,
}

/// Builds all test executables.
///
/// # Errors
///
/// If they cannot be built: Cargo has said why.
pub(crate) fn build() -> io::Result<Vec<Executable>> {
    let mut cargo = cargo();
    cargo.args([
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let mut found = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let message: Value = serde_json::from_str(&line?)?;
        found.extend(executable(&message));
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "the tests cannot be built: {status}"
        )));
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Cargo as this program was started by it.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_the_package(&mut cargo);
    cargo
}

/// The executable of a message of Cargo's, if it is one of a test.
fn executable(message: &Value) -> Option<Executable> {
    let path = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let target = &message["target"];
    let kind = target["kind"][0].as_str()?;
    let (_, package) = message["package_id"].as_str()?.rsplit_once('/')?;
    // `…/tests#kproxide-testkit@0.1.0`, `…/planner#0.1.0`
    let (folder, id) = package.split_once('#')?;
    let package = id.split_once('@').map_or(folder, |(name, _)| name);
    let target = match kind {
        "lib" | "cdylib" => "lib",
        _ => target["name"].as_str()?,
    };
    Some(Executable {
        name: format!("{package} {target}"),
        path: path.into(),
        folder: manifest.parent()?.to_owned(),
        is_bench: kind == "bench",
    })
}

impl Executable {
    /// Its tests that are ignored, as the runner names them.
    pub(crate) fn ignored(&self) -> io::Result<Vec<String>> {
        if self.is_bench {
            return Ok(Vec::new());
        }
        let output = self
            .command()
            .args(["--list", "--ignored", "--format=terse"])
            .output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text = format!("{} lists no tests: {}: {text}", self.name, output.status);
            return Err(io::Error::other(text));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(tests.map(str::to_owned).collect())
    }

    /// Runs it with these arguments and variables, and shows what it prints.
    pub(crate) fn run(&self, arguments: &[&str], variables: &Variables) -> io::Result<Told> {
        let mut command = self.command();
        command.args(arguments);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        told(&mut command)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Runs a command, shows what it prints, and reads what Rust's test runner says in it.
pub(crate) fn told(command: &mut Command) -> io::Result<Told> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut told = Told::default();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(io::stdout().lock(), "{line}")?;
        told.read(&line);
    }
    let status = child.wait()?;
    told.end(status.success());
    Ok(told)
}

impl Told {
    /// The process has ended.
    fn end(&mut self, succeeds: bool) {
        let has_said_all = !self.failed.is_empty() && self.counted == self.failed.len();
        self.died = !succeeds && !has_said_all;
    }

    /// Takes in a line.
    fn read(&mut self, line: &str) {
        if let Some(test) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            let name = test.split(" - should panic").next().unwrap_or(test);
            self.failed.push(name.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| -> usize {
            let part = result.split("; ").find(|part| part.ends_with(what));
            let digits =
                part.and_then(|part| part.trim_end_matches(what).trim().rsplit(' ').next());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        self.passed += count(" passed");
        self.counted += count(" failed");
        self.ignored += count(" ignored");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_runner_says_is_counted() {
        let mut told = Told::default();
        for line in [
            "running 4 tests",
            "test a::b ... ok",
            "test a::c - should panic ... FAILED",
            "test slow ... ignored, tier: e2e",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 7 filtered out; finished in 9.10s",
        ] {
            told.read(line);
        }
        assert_eq!((told.passed, told.ignored), (14, 4));
        assert_eq!(told.failed, ["a::c"]);
    }

    #[test]
    fn whoever_ends_before_the_result_of_all_tests_has_died() {
        let dies = |lines: &[&str], succeeds: bool| {
            let mut told = Told::default();
            lines.iter().for_each(|line| told.read(line));
            told.end(succeeds);
            told.died
        };
        let failed = "test a ... FAILED";
        let result = "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured";
        assert!(!dies(&[failed, result], false));
        assert!(dies(&[failed], false));
        assert!(dies(&[], false));
        assert!(!dies(&[], true));
    }

    #[test]
    fn executables_are_named_by_package_and_target() {
        let message = |id: &str, kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": id,
                "manifest_path": "/here/host/Cargo.toml",
                "target": { "name": "e2e", "kind": [kind] },
                "profile": { "test": test },
                "executable": "/there/e2e-1f",
            })
        };
        let of = |id: &str, kind: &str| executable(&message(id, kind, true)).unwrap().name;
        assert_eq!(
            of("path+file:///here/host#kproxide@0.1.0", "test"),
            "kproxide e2e"
        );
        assert_eq!(of("path+file:///here/spread#0.1.0", "lib"), "spread lib");
        assert!(
            executable(&message(
                "path+file:///here/host#kproxide@0.1.0",
                "bin",
                false
            ))
            .is_none()
        );
        assert!(executable(&serde_json::json!({ "reason": "build-finished" })).is_none());
    }
}
