//! Where an answer comes from: a flag, a question to a person, or a default. In a run that may not ask, a missing answer
//! names its flag. What a person answers is kept, but for secrets.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use dialoguer::{Confirm, Input, MultiSelect, Password, Select};
use secrecy::SecretString;

use super::super::exit::Exit;
use super::super::tell;
use super::Problem;
use super::kept::Kept;
use kproxide_common::foreign::shown;

/// What is wrong with an answer, in words.
pub(super) type Check<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// A question.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// For people.
    pub(super) text: &'a str,
    /// `--endpoint`, for a run that may not ask, and for answers that cannot be used.
    pub(super) flag: &'a str,
}

impl Question<'_> {
    pub(super) fn missing(self) -> Problem {
        let Self { text, flag } = self;
        Problem::input(format!("{text}: give {flag}"))
    }

    fn wrong(self, given: &str, why: &str) -> Problem {
        Problem::input(format!("{} {given}: {why}", self.flag))
    }
}

/// Who answers.
pub(super) enum Asker {
    /// The person at the terminal.
    Person(Kept),
    Nobody,
}

impl Asker {
    /// The folder may hold the answers of a run that was interrupted.
    ///
    /// # Errors
    /// There is no terminal to ask at.
    pub(super) fn new(non_interactive: bool, folder: &Path) -> Result<Self, Problem> {
        if non_interactive {
            return Ok(Self::Nobody);
        }
        match io::stdin().is_terminal() && io::stderr().is_terminal() {
            true => Ok(Self::Person(Kept::read(folder))),
            false => Err(Problem::input(
                "there is no terminal to ask at: run it in one, or give --non-interactive and the answers as flags",
            )),
        }
    }

    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    /// # Errors
    /// As all of them: there is no answer, or none that can be used, or the terminal is gone.
    pub(super) fn text(
        &self,
        question: Question<'_>,
        given: Option<&str>,
        default: Option<&str>,
        check: Check<'_>,
    ) -> Result<String, Problem> {
        if let Some(given) = given {
            return match check(given) {
                Ok(()) => Ok(given.to_owned()),
                Err(why) => Err(question.wrong(given, &why)),
            };
        }
        match (self, default) {
            (Self::Nobody, Some(default)) => Ok(default.to_owned()),
            (Self::Nobody, None) => Err(question.missing()),
            (Self::Person(kept), default) => {
                let before = kept.one(question.flag).filter(|it| check(it).is_ok());
                let offered = before.as_deref().or(default);
                let answer = typed(question.text, offered, check)?;
                kept.keep(question.flag, std::slice::from_ref(&answer))?;
                Ok(answer)
            }
        }
    }

    /// One of several. What is the only one is not asked for.
    pub(super) fn one(
        &self,
        question: Question<'_>,
        given: Option<&str>,
        options: &[String],
        default: Option<usize>,
    ) -> Result<usize, Problem> {
        if let Some(given) = given {
            let found = options.iter().position(|option| option == given);
            return found.ok_or_else(|| question.wrong(given, &there_is(options)));
        }
        match (self, options, default) {
            (_, [_], _) => Ok(0),
            (Self::Nobody, _, Some(default)) => Ok(default),
            (Self::Nobody, _, None) => {
                let Problem { text, .. } = question.missing();
                Err(Problem::input(format!("{text}, {}", there_is(options))))
            }
            (Self::Person(kept), _, default) => {
                let before = kept.one(question.flag);
                let before = before.and_then(|it| options.iter().position(|option| *option == it));
                let chosen = Select::new()
                    .with_prompt(question.text)
                    .items(options.iter().map(|option| shown(option)))
                    .default(before.or(default).unwrap_or_default())
                    .interact()?;
                kept.keep(question.flag, &options[chosen..=chosen])?;
                Ok(chosen)
            }
        }
    }

    /// Some of several; all, if nothing else is said.
    pub(super) fn some(
        &self,
        question: Question<'_>,
        given: &[String],
        options: &[String],
    ) -> Result<Vec<String>, Problem> {
        for given in given {
            if !options.contains(given) {
                return Err(question.wrong(given, &there_is(options)));
            }
        }
        let kept = match self {
            Self::Person(kept) if given.is_empty() && options.len() > 1 => kept,
            Self::Person(_) | Self::Nobody => {
                let is_wanted = |option: &&String| given.is_empty() || given.contains(option);
                return Ok(options.iter().filter(is_wanted).cloned().collect());
            }
        };
        let before = kept.all(question.flag);
        let is_marked = |option: &String| before.is_empty() || before.contains(option);
        let marked: Vec<bool> = options.iter().map(is_marked).collect();
        loop {
            let chosen = MultiSelect::new()
                .with_prompt(format!("{} (space changes, enter ends)", question.text))
                .items(options.iter().map(|option| shown(option)))
                .defaults(&marked)
                .interact()?;
            if !chosen.is_empty() {
                let chosen: Vec<String> =
                    chosen.into_iter().map(|at| options[at].clone()).collect();
                kept.keep(question.flag, &chosen)?;
                return Ok(chosen);
            }
            tell("at least one");
        }
    }

    /// Yes or no. Nobody says no.
    pub(super) fn confirms(&self, text: &str, default: Option<bool>) -> Result<bool, Problem> {
        match self {
            Self::Nobody => Ok(false),
            Self::Person(_) => {
                let mut confirm = Confirm::new().with_prompt(shown(text));
                if let Some(default) = default {
                    confirm = confirm.default(default);
                }
                Ok(confirm.interact()?)
            }
        }
    }

    /// Goes on if the question can be asked again: it says what is wrong, so that a person loses no other answer. `was_asked`:
    /// the answer came from that person, not from a flag.
    ///
    /// # Errors
    /// The problem, which another answer would not mend, or which nobody is there to mend.
    pub(super) fn asks_again(&self, problem: Problem, was_asked: bool) -> Result<(), Problem> {
        match !self.is_nobody() && was_asked && problem.exit == Exit::Proxmox {
            true => {
                tell(problem);
                Ok(())
            }
            false => Err(problem),
        }
    }

    /// A secret, from a file, from standard input (`-`), or typed without being shown. `check` is given it; no problem shows
    /// it.
    pub(super) fn secret(
        &self,
        question: Question<'_>,
        file: Option<&Path>,
        check: Check<'_>,
    ) -> Result<SecretString, Problem> {
        let text = match (self, file) {
            (_, Some(file)) => {
                let text = read(question, file)?;
                check(text.trim())
                    .map_err(|why| question.wrong(&file.display().to_string(), &why))?;
                text
            }
            (Self::Nobody, None) => return Err(question.missing()),
            (Self::Person(_), None) => Password::new()
                .with_prompt(format!("{} (it is not shown)", question.text))
                .validate_with(|text: &String| check(text.trim()))
                .interact()?,
        };
        Ok(text.trim().to_owned().into())
    }
}

/// What a person types, or takes of what is offered. It is not kept.
///
/// # Errors
/// The terminal is gone.
pub(super) fn typed(
    prompt: &str,
    offered: Option<&str>,
    check: Check<'_>,
) -> Result<String, Problem> {
    let mut input = Input::<String>::new()
        .with_prompt(shown(prompt))
        .validate_with(|text: &String| check(text.trim()));
    if let Some(offered) = offered {
        input = input.default(shown(offered).into_owned());
    }
    Ok(input.interact_text()?.trim().to_owned())
}

fn read(question: Question<'_>, file: &Path) -> Result<String, Problem> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => io::stdin().read_to_string(&mut text).map(|_| ()),
        Some(_) | None => fs::read_to_string(file).map(|read| text = read),
    };
    match read {
        Ok(()) => Ok(text),
        Err(error) => Err(question.wrong(&file.display().to_string(), &error.to_string())),
    }
}

fn there_is(options: &[String]) -> String {
    match options {
        [] => "there is none".to_owned(),
        [option] => format!("there is only {option}"),
        options => format!("one of: {}", options.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORAGE: Question<'static> = Question {
        text: "Storage",
        flag: "--storage",
    };

    fn said<T: std::fmt::Debug>(answer: Result<T, Problem>) -> String {
        answer.unwrap_err().text
    }

    fn options(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn who_asks_nobody_takes_flags_and_defaults_and_names_the_flag_that_is_missing() {
        let is_short = |text: &str| match text.len() < 5 {
            true => Ok(()),
            false => Err("it is too long".to_owned()),
        };
        let text = |given, default| Asker::Nobody.text(STORAGE, given, default, &is_short);
        assert_eq!(text(Some("ceph"), None).unwrap(), "ceph");
        assert_eq!(text(None, Some("nfs")).unwrap(), "nfs");
        assert_eq!(said(text(None, None)), "Storage: give --storage");
        assert_eq!(
            said(text(Some("local-lvm"), None)),
            "--storage local-lvm: it is too long"
        );
    }

    #[test]
    fn a_choice_is_made_of_what_there_is() {
        let two = options(&["ceph", "nfs"]);
        let one = |given, options: &[String]| Asker::Nobody.one(STORAGE, given, options, None);
        assert_eq!(one(Some("nfs"), &two).unwrap(), 1);
        assert_eq!(one(None, &two[..1]).unwrap(), 0);
        assert_eq!(
            said(one(None, &two)),
            "Storage: give --storage, one of: ceph, nfs"
        );
        assert_eq!(
            said(one(Some("zfs"), &two)),
            "--storage zfs: one of: ceph, nfs"
        );
        assert_eq!(
            said(one(Some("zfs"), &two[..1])),
            "--storage zfs: there is only ceph"
        );
        let some = |given: &[&str]| Asker::Nobody.some(STORAGE, &options(given), &two);
        assert_eq!(some(&[]).unwrap(), two);
        assert_eq!(some(&["nfs"]).unwrap(), two[1..]);
        assert_eq!(
            said(some(&["nfs", "zfs"])),
            "--storage zfs: one of: ceph, nfs"
        );
    }

    #[test]
    fn no_problem_shows_a_secret() {
        use secrecy::ExposeSecret as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "  hush hush\n").unwrap();
        let secret = |file, check: Check<'_>| Asker::Nobody.secret(STORAGE, file, check);
        let read = secret(Some(&file), &|_| Ok(())).unwrap();
        assert_eq!(read.expose_secret(), "hush hush");
        let refused = said(secret(Some(&file), &|_| Err("it holds a blank".to_owned())));
        assert!(
            refused.ends_with("it holds a blank") && !refused.contains("hush"),
            "{refused}"
        );
        assert_eq!(said(secret(None, &|_| Ok(()))), "Storage: give --storage");
        let missing = said(secret(Some(&folder.path().join("none")), &|_| Ok(())));
        assert!(missing.contains("No such file"), "{missing}");
    }
}
