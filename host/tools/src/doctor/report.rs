//! All findings, as text and with their counts.

use std::fmt;

use serde::Serialize;

use kproxide_controller::judge::{Finding, Level};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub ok: usize,
    pub warnings: usize,
    pub errors: usize,
}

/// What doctor answers. `Display` is the text for people.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub summary: Summary,
    pub findings: Vec<Finding>,
}

impl Report {
    /// By group, the worst of each group first. What was found twice is said once.
    pub(super) fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by(|a, b| {
            let by_group = a.group.cmp(&b.group);
            let by_level = by_group.then(b.level.cmp(&a.level));
            by_level
                .then_with(|| a.object.cmp(&b.object))
                .then_with(|| a.message.cmp(&b.message))
        });
        findings.dedup();
        let count = |level| findings.iter().filter(|it| it.level == level).count();
        let summary = Summary {
            ok: count(Level::Ok),
            warnings: count(Level::Warning),
            errors: count(Level::Error),
        };
        Self { summary, findings }
    }

    /// The worst that was found.
    pub fn worst(&self) -> Level {
        let levels = self.findings.iter().map(|finding| finding.level);
        levels.max().unwrap_or(Level::Ok)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut group = None;
        for finding in &self.findings {
            if group != Some(finding.group) {
                group = Some(finding.group);
                writeln!(f, "{}", finding.group)?;
            }
            let Finding {
                object,
                level,
                reason,
                message,
                ..
            } = finding;
            write!(f, "  {level:<8} {object}")?;
            let reason = reason.word;
            match (level, message.is_empty()) {
                (Level::Ok, true) => {}
                (Level::Ok, false) => write!(f, ": {message}")?,
                (Level::Warning | Level::Error, _) => write!(f, ": {message} ({reason})")?,
            }
            if let (Some(place), true) = (&finding.seen_from, *level != Level::Ok) {
                write!(f, " [seen from {place}]")?;
            }
            writeln!(f)?;
            for command in &finding.commands {
                writeln!(f, "           $ {command}")?;
            }
            if finding.commands.is_empty() && !finding.remedy().is_empty() {
                writeln!(f, "           {}", finding.remedy())?;
            }
        }
        let Summary {
            ok,
            warnings,
            errors,
        } = self.summary;
        writeln!(f, "ok {ok}, warnings {warnings}, errors {errors}")
    }
}
