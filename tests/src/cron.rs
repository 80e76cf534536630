//! The parser that Kubernetes reads the schedules of CronJobs with.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::go::GoProgram;

const SOURCES: [(&str, &str); 3] = [
    ("go.mod", include_str!("../gocron/go.mod")),
    ("go.sum", include_str!("../gocron/go.sum")),
    ("main.go", include_str!("../gocron/main.go")),
];

/// The program of `tests/gocron`.
#[derive(Clone, Debug)]
pub struct CronTable {
    path: PathBuf,
}

/// Nothing where a test shall be skipped for lack of Go, which this says on stderr.
///
/// # Panics
///
/// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
pub fn require_cron_table() -> Option<CronTable> {
    static PROGRAM: LazyLock<GoProgram> = LazyLock::new(|| {
        let called = "Kubernetes' parser of schedules";
        GoProgram::new("gocron", called, &SOURCES, "-s -w".to_owned())
    });
    PROGRAM.require().map(|path| CronTable { path })
}

impl CronTable {
    /// Drawn schedules, always the same: a line with schedule, moment and next start (`-`: none) for each.
    ///
    /// # Errors
    ///
    /// It cannot be started, or it fails.
    pub fn draw(&self) -> io::Result<String> {
        let output = Command::new(&self.path)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        match output.status.success() {
            true => String::from_utf8(output.stdout).map_err(io::Error::other),
            false => Err(io::Error::other(output.status.to_string())),
        }
    }
}
