//! `kproxide policy run`: what a policy answers to facts.

use std::error::Error;
use std::io::Write;

use super::answered::Measured;
use super::given::{Given, Tools, asked_of, kind_of, no_settings, questions, settings};
use crate::args::Format;
use crate::args::policy::Run;
use crate::commands::Exit;
use crate::commands::exit::Mistake;
use crate::commands::plan::print;
use kproxide_policy::self_test;

/// # Errors
/// The policy, its settings or the facts cannot be used, or the output is closed.
pub(super) async fn run(args: &Run, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.subject.policy)?;
    let settings = settings(args.subject.settings.as_deref())?;
    let facts = args.facts.as_deref().map(questions).transpose()?;
    let tools = Tools::new()?;
    let module = given.loaded(&tools).await?;
    let kinds = module.kinds();
    let facts = match facts {
        Some(mut facts) => {
            facts.retain(|question| kinds.contains(&kind_of(question)));
            facts
        }
        None => kinds
            .iter()
            .map(|kind| self_test::question(*kind, given.name.clone(), no_settings()))
            .collect(),
    };
    if facts.is_empty() {
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        let kinds = kinds.join(" and ");
        return Err(Mistake(format!(
            "--facts: the file has no question that {} answers, which are those of {kinds}",
            given.place
        ))
        .into());
    }
    let mut answers = Vec::new();
    for question in &facts {
        let question = asked_of(question, &given.name, settings.as_ref());
        let (verdict, mut log) = tools
            .check_settings(&module, &question.policy().settings)
            .await;
        let mut measured = match verdict {
            Ok(()) => Measured::of(&question, tools.ask(&module, &question).await),
            // As the controller: with these settings it is not asked.
            Err(error) => Measured::refused(&question, error),
        };
        log.append(&mut measured.log);
        measured.log = log;
        answers.push(measured);
    }
    match args.output {
        Format::Text => {
            for (index, answer) in answers.iter().enumerate() {
                if index > 0 {
                    writeln!(out)?;
                }
                write!(out, "{answer}")?;
            }
        }
        format @ (Format::Json | Format::Yaml) => print(out, format, &answers)?,
    }
    let mut failures = answers.iter().map(|it| it.answered.failure.is_some());
    Ok(match failures.any(|is_failure| is_failure) {
        true => Exit::Failure,
        false => Exit::Success,
    })
}
