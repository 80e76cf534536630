//! `kproxide policy test`: the cases of a folder, and the properties of every policy.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::answered::Answered;
use super::given::{Given, Tools, asked_of, no_settings, questions, settings};
use super::properties::{Property, properties};
use crate::args::Format;
use crate::args::policy::Test;
use crate::commands::Exit;
use crate::commands::exit::Mistake;
use crate::commands::plan::print;
use kproxide_policy::Module;

const FACTS: &str = ".facts.yaml";
const EXPECTED: &str = ".expected.yaml";
/// Of the lines that differ so many are shown.
const LINES_MAX: usize = 20;

#[derive(Debug, Serialize)]
struct Tested {
    ok: bool,
    policy: String,
    cases: Vec<Case>,
    properties: Vec<Property>,
}

#[derive(Debug, Serialize)]
struct Case {
    case: String,
    /// `ok`, `different`, `written` or `missing`.
    verdict: &'static str,
    /// Lines that begin with `-` were expected, those with `+` are there instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    difference: Vec<String>,
}

/// # Errors
/// The policy, its settings or a file of the folder cannot be used, or the output is closed.
pub(super) async fn test(args: &Test, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let names = names(&args.dir)?;
    if !names
        .iter()
        .any(|name| name.ends_with(FACTS) || name.ends_with(EXPECTED))
    {
        let folder = args.dir.display();
        return Err(Mistake(format!(
            "{folder}: no case lies there. A case is a file NAME{FACTS}: `kproxide policy show facts --into {folder}` writes some"
        ))
        .into());
    }
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => only_policy(&args.dir, &names)?,
    };
    let given = Given::read(&policy)?;
    let settings = settings(args.settings.as_deref())?.unwrap_or_else(no_settings);
    let tools = Tools::new()?;
    let module = given.loaded(&tools).await?;
    let mut cases = Vec::new();
    for name in &names {
        if let Some(case) = name.strip_suffix(FACTS) {
            cases.push(tried(args, case, &given, &module, &tools).await?);
        } else if let Some(case) = name.strip_suffix(EXPECTED)
            && !names.contains(&format!("{case}{FACTS}"))
        {
            return Err(Mistake(format!(
                "{}: there is no {case}{FACTS} beside it: remove or rename it",
                args.dir.join(name).display()
            ))
            .into());
        }
    }
    let (verdict, _) = tools.check_settings(&module, &settings).await;
    verdict.map_err(|error| {
        Mistake(format!(
            "the generated questions need settings that {} accepts: give them with --settings FILE: {error}",
            given.place
        ))
    })?;
    let properties = properties(&tools, &module, &given.name, &settings).await;
    let tested = Tested {
        ok: cases
            .iter()
            .all(|case| matches!(case.verdict, "ok" | "written"))
            && properties.iter().all(|it| it.problem.is_none()),
        policy: given.place,
        cases,
        properties,
    };
    match args.output {
        Format::Text => write!(out, "{tested}")?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &tested)?,
    }
    Ok(match tested.ok {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

/// What lies in the folder.
fn names(folder: &Path) -> Result<BTreeSet<String>, Mistake> {
    let entries = fs::read_dir(folder);
    let entries = entries.map_err(|error| Mistake(format!("{}: {error}", folder.display())))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.collect())
}

fn only_policy(folder: &Path, names: &BTreeSet<String>) -> Result<String, Mistake> {
    let endings = [".wasm", ".wasm.gz", ".wasm.zst"];
    let is_policy = |name: &&String| endings.iter().any(|ending| name.ends_with(ending));
    let policies: Vec<&String> = names.iter().filter(is_policy).collect();
    let place = folder.display();
    match &policies[..] {
        [one] => Ok(folder.join(one).display().to_string()),
        [] => Err(Mistake(format!(
            "{place}: no .wasm file lies there: name the policy with --policy FILE"
        ))),
        [_, ..] => Err(Mistake(format!(
            "{place}: several .wasm files lie there: name one with --policy FILE"
        ))),
    }
}

async fn tried(
    args: &Test,
    case: &str,
    given: &Given,
    module: &Module,
    tools: &Tools,
) -> Result<Case, Box<dyn Error>> {
    let mut answers = Vec::new();
    for question in questions(&args.dir.join(format!("{case}{FACTS}")))? {
        let question = asked_of(&question, &given.name, None);
        let (verdict, _) = tools
            .check_settings(module, &question.policy().settings)
            .await;
        let result = match verdict {
            Ok(()) => tools.ask(module, &question).await.called.result,
            Err(error) => Err(error),
        };
        answers.push(Answered::of(&question, &result));
    }
    let now = serde_saphyr::to_string(&serde_json::to_value(&answers)?)?;
    let path = args.dir.join(format!("{case}{EXPECTED}"));
    let told = |verdict, difference| Case {
        case: case.to_owned(),
        verdict,
        difference,
    };
    let expected = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Mistake(format!("{}: {error}", path.display())).into()),
    };
    let is_same = match &expected {
        Some(expected) => value(&path, expected)? == value(&path, &now)?,
        None => false,
    };
    if is_same {
        return Ok(told("ok", Vec::new()));
    }
    if args.update {
        let unwritable = |error| Mistake(format!("{}: {error}", path.display()));
        fs::write(&path, &now).map_err(unwritable)?;
        return Ok(told("written", Vec::new()));
    }
    Ok(match expected {
        Some(expected) => told("different", difference(&expected, &now)),
        None => told("missing", Vec::new()),
    })
}

/// Both sides are read from text, so that a number is the same number.
fn value(path: &Path, text: &str) -> Result<Value, Mistake> {
    serde_saphyr::from_str(text)
        .map_err(|error| Mistake(format!("{}: {}", path.display(), error.without_snippet())))
}

/// The lines between the first and the last that differ.
fn difference(expected: &str, now: &str) -> Vec<String> {
    let (expected, now): (Vec<&str>, Vec<&str>) =
        (expected.lines().collect(), now.lines().collect());
    let same = |a: &mut dyn Iterator<Item = (&&str, &&str)>| a.take_while(|(a, b)| a == b).count();
    let first = same(&mut expected.iter().zip(&now));
    let (expected, now) = (&expected[first..], &now[first..]);
    let last = same(&mut expected.iter().rev().zip(now.iter().rev()));
    let line = |sign: &'static str| move |line: &&str| format!("{sign} {line}");
    let removed = expected[..expected.len() - last].iter().map(line("-"));
    let added = now[..now.len() - last].iter().map(line("+"));
    removed
        .take(LINES_MAX)
        .chain(added.take(LINES_MAX))
        .collect()
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ok,
            policy,
            cases,
            properties,
        } = self;
        let mut wrong = 0;
        let mut text = String::new();
        for case in cases {
            let said = match case.verdict {
                "ok" => "ok".to_owned(),
                "written" => "its expected answer was written".to_owned(),
                "missing" => format!(
                    "WRONG: there is no {}{EXPECTED}: --update writes it",
                    case.case
                ),
                _ => "WRONG: it answers something else".to_owned(),
            };
            wrong += usize::from(said.starts_with("WRONG"));
            writeln!(text, "  case {}: {said}", case.case)?;
            for line in &case.difference {
                writeln!(text, "    {line}")?;
            }
        }
        for Property {
            kind,
            property,
            problem,
        } in properties
        {
            match problem {
                None => writeln!(text, "  {kind}: {property}: ok")?,
                Some(problem) => {
                    wrong += 1;
                    writeln!(text, "  {kind}: {property}: WRONG: {problem}")?;
                }
            }
        }
        match ok {
            true => writeln!(f, "{policy}: all is as it should be.")?,
            false => writeln!(f, "{policy}: {wrong} wrong.")?,
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::policy::Test;

    fn args(folder: &Path, policy: &str, update: bool) -> Test {
        Test {
            dir: folder.to_owned(),
            policy: Some(policy.to_owned()),
            settings: None,
            update,
            output: Format::Text,
        }
    }

    async fn tested(args: &Test) -> (Exit, String) {
        let mut out = Vec::new();
        let exit = test(args, &mut out).await.unwrap();
        (exit, String::from_utf8(out).unwrap())
    }

    #[tokio::test]
    async fn a_case_is_written_once_and_held_to_from_then_on() {
        use crate::commands::policy::facts::yaml;
        use kproxide_planner::facts::PolicyKind;
        let folder = tempfile::tempdir().unwrap();
        let question = kproxide_policy::self_test::question(
            PolicyKind::HostSelection,
            "any".into(),
            no_settings(),
        );
        let text = yaml(&question).unwrap();
        let facts = folder.path().join("two.facts.yaml");
        fs::write(&facts, format!("{text}---\n{text}")).unwrap();

        let (exit, said) = tested(&args(folder.path(), "pack", false)).await;
        assert_eq!(exit, Exit::Failure);
        assert!(said.contains("there is no two.expected.yaml"), "{said}");
        let (exit, said) = tested(&args(folder.path(), "pack", true)).await;
        assert_eq!(exit, Exit::Success, "{said}");
        let (exit, said) = tested(&args(folder.path(), "pack", false)).await;
        assert_eq!(exit, Exit::Success, "{said}");
        assert!(said.contains("case two: ok"), "{said}");
        // Another policy prefers the other hypervisor.
        let (exit, said) = tested(&args(folder.path(), "spread", false)).await;
        assert_eq!(exit, Exit::Failure, "{said}");
        assert!(
            said.contains("case two: WRONG") && said.contains("\n    - "),
            "{said}"
        );
    }

    #[test]
    fn a_difference_shows_what_was_expected_and_what_is_there() {
        let expected = "a\nb\nc\nd\n";
        assert_eq!(
            difference(expected, "a\nx\ny\nd\n"),
            ["- b", "- c", "+ x", "+ y"]
        );
        assert_eq!(difference(expected, "a\nb\nc\nd\ne\n"), ["+ e"]);
        assert_eq!(difference(expected, expected), [""; 0]);
    }
}
