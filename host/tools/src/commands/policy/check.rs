//! `kproxide policy check`: what a policy is, and whether kproxide would take it.

use std::error::Error;
use std::fmt;
use std::io::Write;

use serde::Serialize;

use super::given::{Given, Tools, no_settings, settings};
use crate::args::Format;
use crate::args::policy::Check;
use crate::commands::Exit;
use crate::commands::plan::print;
use kproxide_policy::heard::Line;
use kproxide_policy::{Module, UNPACKED_BYTES_MAX, self_test};

use super::answered::share;

/// Fields may be added.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    ok: bool,
    file: String,
    /// The name by which a NodePool uses it.
    #[serde(rename = "use")]
    used_as: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<About>,
    digest: String,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    unpacked_bytes: Option<usize>,
    /// `accepted`, or why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<String>,
    self_tests: Vec<SelfTest>,
    log: Vec<Line>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct About {
    name: String,
    version: String,
    description: String,
    kinds: Vec<&'static str>,
    imports: Vec<String>,
    /// It has a schema of its settings.
    has_schema: bool,
}

#[derive(Debug, Serialize)]
struct SelfTest {
    kind: &'static str,
    /// `passed`, or why not.
    verdict: String,
    instructions: u64,
}

/// # Errors
/// There is no such file, the settings cannot be read, or the output is closed.
pub(super) async fn check(args: &Check, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.subject.policy)?;
    let settings = settings(args.subject.settings.as_deref())?.unwrap_or_else(no_settings);
    let tools = Tools::new()?;
    let mut checked = Checked {
        file: given.place.clone(),
        used_as: given.name.to_string(),
        digest: given.digest(),
        bytes: given.packed.len(),
        ..Checked::default()
    };
    match given.load(&tools).await {
        Err(problem) => checked.problems.push(problem),
        Ok(module) => {
            checked.about = Some(About::of(&module));
            checked.unpacked_bytes = Some(module.unpacked_bytes());
            let (verdict, log) = tools.check_settings(&module, &settings).await;
            checked.log.extend(log);
            checked.settings = Some(match &verdict {
                Ok(()) => "accepted".to_owned(),
                Err(error) => error.to_string(),
            });
            checked
                .problems
                .extend(verdict.err().map(|it| it.to_string()));
            // As the controller: with wrong settings it asks nothing.
            if checked.problems.is_empty() {
                for kind in module.kinds() {
                    let question = self_test::question(kind, given.name.clone(), settings.clone());
                    let asked = tools.ask(&module, &question).await;
                    let verdict =
                        self_test::run(&tools.engine, &module, &given.name, kind, &settings).await;
                    checked.log.extend(asked.log);
                    checked.self_tests.push(SelfTest {
                        kind: kind.as_str(),
                        instructions: asked.called.fuel,
                        verdict: match &verdict {
                            Ok(()) => "passed".to_owned(),
                            Err(problem) => problem.clone(),
                        },
                    });
                    let named = |problem| format!("{}: {problem}", kind.as_str());
                    checked.problems.extend(verdict.err().map(named));
                }
            }
        }
    }
    checked
        .problems
        .extend(given.misnamed().map(|error| error.to_string()));
    checked.ok = checked.problems.is_empty();
    match args.output {
        Format::Text => write!(out, "{checked}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &checked)?,
    }
    Ok(match checked.ok {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

impl About {
    fn of(module: &Module) -> Self {
        let info = module.info();
        Self {
            name: info.name.clone(),
            version: info.version.clone(),
            description: info.description.clone(),
            kinds: module.kinds().iter().map(|kind| kind.as_str()).collect(),
            imports: module.imports().to_vec(),
            has_schema: !info.settings_schema.is_empty(),
        }
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ok,
            file,
            used_as,
            about,
            digest,
            bytes,
            unpacked_bytes,
            settings,
            self_tests,
            log,
            problems,
        } = self;
        match ok {
            true => writeln!(f, "kproxide would take {file}.")?,
            false => writeln!(f, "kproxide would not take {file}.")?,
        }
        for problem in problems {
            writeln!(f, "  {:<12} {problem}", "problem")?;
        }
        writeln!(
            f,
            "  {:<12} {used_as}: by this name a NodePool uses it",
            "use"
        )?;
        if let Some(about) = about {
            let About {
                name,
                version,
                description,
                kinds,
                imports,
                has_schema,
            } = about;
            writeln!(f, "  {:<12} {name} {version}: {description}", "policy")?;
            writeln!(f, "  {:<12} {}", "kinds", kinds.join(", "))?;
            let imports = match imports.is_empty() {
                true => "none".to_owned(),
                false => imports.join(", "),
            };
            writeln!(f, "  {:<12} {imports}", "imports")?;
            let schema = match has_schema {
                true => "there is one: kproxide policy show settings shows it",
                false => "none",
            };
            writeln!(f, "  {:<12} {schema}", "schema")?;
        }
        let unpacked = match unpacked_bytes {
            Some(unpacked) if unpacked != bytes => format!(", {unpacked} unpacked"),
            Some(_) | None => String::new(),
        };
        let most = UNPACKED_BYTES_MAX >> 20;
        writeln!(
            f,
            "  {:<12} {bytes} bytes{unpacked} (at most {most} MiB unpacked)",
            "size"
        )?;
        writeln!(f, "  {:<12} sha256:{digest}", "digest")?;
        if let Some(settings) = settings {
            writeln!(f, "  {:<12} {settings}", "settings")?;
        }
        for test in self_tests {
            let SelfTest {
                kind,
                verdict,
                instructions,
            } = test;
            let share = share(*instructions);
            writeln!(
                f,
                "  {:<12} {kind}: {verdict}; {instructions} instructions ({share})",
                "self-test"
            )?;
        }
        for line in log {
            writeln!(f, "  {:<12} ({}) {}", "it says", line.level, line.text)?;
        }
        Ok(())
    }
}
