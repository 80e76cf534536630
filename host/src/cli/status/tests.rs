//! The situations of `tests/data/status`: each is a file of objects as a cluster stores them, and beside it stands the
//! screen: of 80 columns, of 120, and as JSON. `KPROXIDE_UPDATE=1 cargo test -p kproxide --lib cli::status` writes those
//! anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::*;
use crate::args::{Cli, Command};
use crate::doctor::Level;
use crate::policy::{Engine, Execution};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/status")
}

async fn screen(situation: &str, policies: &Library) -> Screen {
    let file = folder().join(format!("{situation}.yaml"));
    let file = file.display().to_string();
    let words = [
        "kproxide",
        "status",
        "-f",
        &file,
        "--now",
        "2026-01-05T08:00:00Z",
    ];
    let Command::Status(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("{situation}");
    };
    looked(&args, policies).await.unwrap()
}

fn policies() -> Library {
    Library::new(Engine::new(Execution::Blocking).unwrap())
}

fn text(screen: &Screen, columns: Option<usize>) -> String {
    let look = Look {
        columns,
        is_coloured: false,
    };
    Text(screen, look).to_string()
}

/// Compares with the file, or writes it.
fn hold(file: &str, said: &str, different: &mut Vec<String>) {
    let path = folder().join(file);
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        fs::write(&path, said).unwrap();
    }
    if fs::read_to_string(&path).unwrap_or_default() != said {
        different.push(format!("{file}: this is said now:\n{said}"));
    }
}

#[tokio::test]
async fn each_situation_has_the_screens_of_its_files() {
    let policies = policies();
    let files = fs::read_dir(folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let situations: BTreeSet<String> = names
        .filter_map(|name| Some(name.strip_suffix(".yaml")?.to_owned()))
        .collect();
    assert!(situations.len() >= 5, "{situations:?}");
    let mut different = Vec::new();
    for name in situations {
        let screen = screen(&name, &policies).await;
        for columns in [80, 120] {
            let said = text(&screen, Some(columns));
            let is_pasted = |line: &&str| line.starts_with("    $ ");
            let longest = said.lines().filter(|line| !is_pasted(line));
            let longest = longest.map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= columns, "{name}: {longest} columns:\n{said}");
            hold(&format!("{name}.{columns}.txt"), &said, &mut different);
        }
        let mut json = Vec::new();
        print(&mut json, Format::Json, &screen).unwrap();
        hold(
            &format!("{name}.json"),
            &String::from_utf8(json).unwrap(),
            &mut different,
        );
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[tokio::test]
async fn the_first_line_says_whether_all_is_well_and_what_to_look_at_first() {
    let policies = policies();
    for (situation, level, words) in [
        ("all_is_well", Level::Ok, "All is well."),
        (
            "frozen_pools",
            Level::Error,
            "First look at NodePool/batch, NodePool/workers (Frozen).",
        ),
        (
            "paused_pools",
            Level::Warning,
            "First look at NodePool/batch",
        ),
        (
            "a_hypervisor_is_down",
            Level::Warning,
            "First look at NodeClaim/workers-b (NotProvenOff).",
        ),
        (
            "no_help",
            Level::Warning,
            "`kproxide explain pod huge --namespace default`",
        ),
    ] {
        let screen = screen(situation, &policies).await;
        let said = text(&screen, None);
        let first = said.lines().next().unwrap();
        assert!(
            first.contains(words) && first == screen.answer,
            "{situation}: {first}"
        );
        assert_eq!(screen.level, level, "{situation}");
    }
}

#[tokio::test]
async fn colour_is_added_to_the_text_and_changes_none_of_it() {
    let policies = policies();
    for (situation, colour) in [
        ("all_is_well", "\x1b[1;32m"),
        ("frozen_pools", "\x1b[1;31m"),
    ] {
        let screen = screen(situation, &policies).await;
        let look = Look {
            columns: Some(80),
            is_coloured: true,
        };
        let coloured = Text(&screen, look).to_string();
        assert!(coloured.starts_with(colour), "{coloured:?}");
        let mut plain = coloured;
        for code in ["\x1b[1;31m", "\x1b[1;32m", "\x1b[1m", "\x1b[0m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, text(&screen, Some(80)), "{situation}");
    }
}

#[test]
fn no_answer_of_the_controller_is_what_to_look_at_first() {
    let words = ["kproxide", "status", "--lease", "ops/scaler"];
    let Command::Status(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("{words:?}");
    };
    let nobody = no_answer(&args, &NoAnswer::Nobody("ops/scaler".to_owned()));
    assert_eq!((nobody.level, nobody.reason), (Level::Error, "NoLeader"));
    assert_eq!(nobody.object, "Lease/ops/scaler");
    let silent = NoAnswer::Silent("pod ops/scaler-0".to_owned(), "timed out".into());
    let silent = no_answer(&args, &silent);
    assert_eq!(
        (silent.level, silent.reason),
        (Level::Warning, "LeaderSilent")
    );
}
