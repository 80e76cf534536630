//! Every command of `kproxide --help`: its help, what it prints as text and as JSON, what it says of bad input and of a
//! Kubernetes that is not there, and its exit codes, as `data/verbs/` has them. `KPROXIDE_UPDATE=1 cargo test -p
//! kproxide --test verbs` writes these anew.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Command as Verb;
use serde_json::Value;

#[path = "verbs/policy.rs"]
mod policy;

const DONE: i32 = 0;
const ANYTHING_ELSE: i32 = 1;
const BAD_INPUT: i32 = 2;
const NO_KUBERNETES: i32 = 3;
const WARNINGS: i32 = 10;
const ERRORS: i32 = 20;

/// A command, and lines with the codes that they end with.
type Row = (&'static str, &'static [(&'static str, i32)]);

/// A command, what is asked of it beside `--help`, and with which code each ends. `OUT` is a folder that is not there
/// yet, `FOLDER` an empty one, `VALUES` a file with values that lack a NodeClass, `NOTHING` one without values, `GONE` a kubeconfig of a
/// cluster that takes no connection.
const VERBS: [Row; 13] = [
    (
        "",
        &[
            ("--version", DONE),
            ("-V", DONE),
            ("nosuch", BAD_INPUT),
            ("", BAD_INPUT),
        ],
    ),
    (
        "run",
        &[
            ("run --log blah", BAD_INPUT),
            ("run --poll-interval 10", BAD_INPUT),
            ("run --lease-duration 5s", BAD_INPUT),
            ("run --kubeconfig nowhere", BAD_INPUT),
        ],
    ),
    (
        "demo",
        &[
            ("demo --plain", DONE),
            ("demo --policy nosuch", BAD_INPUT),
            ("demo --speed 0", BAD_INPUT),
        ],
    ),
    (
        "simulate",
        &[("simulate nosuch", BAD_INPUT), ("simulate", BAD_INPUT)],
    ),
    (
        "simulate serve",
        &[
            ("simulate serve", BAD_INPUT),
            ("simulate serve --out OUT --hypervisors pve1", BAD_INPUT),
            (
                "simulate serve --out OUT --kubeconfig nowhere.yaml",
                BAD_INPUT,
            ),
            ("simulate serve --out OUT --kubeconfig GONE", NO_KUBERNETES),
        ],
    ),
    (
        "init",
        &[
            ("init --non-interactive --kubeconfig nowhere", BAD_INPUT),
            ("init --non-interactive --pool a --pool b", BAD_INPUT),
            (
                "init --non-interactive --out OUT --kubeconfig GONE",
                NO_KUBERNETES,
            ),
        ],
    ),
    (
        "plan",
        &[
            ("plan -f plan/limit.yaml --now 2026-01-05T08:00:00Z", DONE),
            (
                "plan -f plan/limit.yaml --now 2026-01-05T08:00:00Z -o json",
                DONE,
            ),
            (
                "plan -f plan/limit.yaml --now 2026-01-05T08:00:00Z --exit-code",
                ERRORS,
            ),
            (
                "plan -f plan/scale_down.yaml --now 2026-01-05T08:00:00Z --exit-code",
                WARNINGS,
            ),
            ("plan", BAD_INPUT),
            ("plan -f nowhere.yaml", BAD_INPUT),
            ("plan --from-cluster --kubeconfig GONE", NO_KUBERNETES),
        ],
    ),
    (
        "explain",
        &[
            (
                "explain pod batch-3 -f plan/limit.yaml --now 2026-01-05T08:00:00Z",
                DONE,
            ),
            (
                "explain pod batch-3 -f plan/limit.yaml --now 2026-01-05T08:00:00Z -o json",
                DONE,
            ),
            ("explain service a -f plan/limit.yaml", BAD_INPUT),
            ("explain pod nobody -f plan/limit.yaml", BAD_INPUT),
            ("explain pod a --kubeconfig GONE", NO_KUBERNETES),
        ],
    ),
    (
        "status",
        &[
            (
                "status -f plan/no_help.yaml --now 2026-01-05T08:00:00Z",
                DONE,
            ),
            (
                "status -f plan/no_help.yaml --now 2026-01-05T08:00:00Z -o json",
                DONE,
            ),
            ("status -w -o json -f plan/no_help.yaml", BAD_INPUT),
            ("status --kubeconfig nowhere.yaml", BAD_INPUT),
            ("status --kubeconfig GONE", NO_KUBERNETES),
        ],
    ),
    (
        "doctor",
        &[
            ("doctor --values VALUES", ERRORS),
            ("doctor --values VALUES -o json", ERRORS),
            ("doctor --values VALUES --fail-on never", DONE),
            ("doctor --values VALUES --kubeconfig GONE", NO_KUBERNETES),
            (
                "doctor --values VALUES --kubeconfig nowhere.yaml",
                BAD_INPUT,
            ),
            ("doctor --values NOTHING", BAD_INPUT),
            ("doctor --values nowhere.yaml", BAD_INPUT),
            ("doctor --kubeconfig nowhere.yaml", BAD_INPUT),
            ("doctor --kubeconfig GONE", NO_KUBERNETES),
        ],
    ),
    (
        "crds",
        &[
            ("crds", DONE),
            ("crds --values-schema", DONE),
            ("crds --apply --values-schema", BAD_INPUT),
            ("crds --apply --kubeconfig nowhere.yaml", BAD_INPUT),
            ("crds --apply --kubeconfig GONE", NO_KUBERNETES),
        ],
    ),
    (
        "completions",
        &[
            ("completions bash", DONE),
            ("completions zsh", DONE),
            ("completions fish", DONE),
            ("completions powershell", BAD_INPUT),
            ("completions", BAD_INPUT),
        ],
    ),
    (
        "version",
        &[
            ("version", DONE),
            ("version -o json", DONE),
            ("version -o xml", BAD_INPUT),
            ("version --licenses", ANYTHING_ELSE),
            ("version --licenses -o json", BAD_INPUT),
        ],
    ),
];

fn rows() -> impl Iterator<Item = Row> {
    VERBS.into_iter().chain(policy::VERBS)
}

/// Commands that do their work only with Proxmox or without an end, and the tests that see them do it.
const ELSEWHERE: [(&str, &str, &str); 3] = [
    (
        "run",
        "commands/main.rs",
        "a_host_beside_a_served_simulation_gets_a_machine_for_a_pod",
    ),
    (
        "simulate serve",
        "commands/main.rs",
        "the_secret_and_the_requests_that_simulate_serve_tells_of_work",
    ),
    (
        "init",
        "setup/init.rs",
        "what_setup_prints_is_what_init_asks_for_and_the_folder_is_all_that_the_chart_needs",
    ),
];

/// Of what is long. Other tests compare the whole of it.
const MOST_LINES: usize = 40;

#[test]
fn each_command_says_what_its_file_says() {
    let scratch = Scratch::new();
    let mut different = Vec::new();
    for (verb, asked) in rows() {
        let mut said = String::new();
        let help = format!("{verb} --help");
        let lines = [(help.trim(), DONE)];
        for (line, expected) in lines.iter().chain(asked) {
            let answer = scratch.answer(line);
            let most = match line.ends_with("--help") {
                true => usize::MAX,
                false => MOST_LINES,
            };
            let shown = answer.shown(most);
            assert_eq!(answer.code, *expected, "kproxide {line}:\n{shown}");
            if line.contains("-o json") && answer.code != BAD_INPUT {
                let json: Result<Value, _> = serde_json::from_str(&answer.out);
                json.unwrap_or_else(|error| panic!("kproxide {line}: {error}:\n{shown}"));
            }
            if answer.code == BAD_INPUT {
                assert_eq!(
                    answer.out, "",
                    "kproxide {line}: bad input is told as an error"
                );
                assert_ne!(answer.told, "", "kproxide {line}: it says nothing");
            }
            let line = format!("kproxide {line}");
            writeln!(said, "$ {}\n{shown}exit code {expected}\n", line.trim()).unwrap();
        }
        let path = file(verb);
        if std::env::var_os("KPROXIDE_UPDATE").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &said).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != said {
            different.push(format!("{}: this is said now:\n{said}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    let expected: BTreeSet<PathBuf> = rows().map(|(verb, _)| file(verb)).collect();
    let files = fs::read_dir(tests().join("data/verbs")).unwrap();
    let files: BTreeSet<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, expected, "a file of data/verbs is of no command");
}

#[test]
fn each_command_has_its_row_with_all_that_it_can_do() {
    let mut root = kproxide::cli::command();
    root.build();
    let mut commands = BTreeMap::new();
    walk("", &root, &mut commands);
    let rows: BTreeMap<&str, _> = rows().collect();
    let names: BTreeSet<&str> = commands.keys().map(String::as_str).collect();
    assert_eq!(
        rows.keys().copied().collect::<BTreeSet<_>>(),
        names,
        "each command of --help needs its row in tests/verbs.rs"
    );
    for (name, command) in &commands {
        let asked = rows[name.as_str()];
        let ends = |code: fn(i32) -> bool, line: fn(&str) -> bool| {
            asked.iter().any(|(it, ends)| code(*ends) && line(it))
        };
        let works = |code| [DONE, ERRORS].contains(&code);
        assert!(
            ends(|code| code == BAD_INPUT, |_| true),
            "{name}: bad input"
        );
        let has = |id: &str| command.get_arguments().any(|it| it.get_id() == id);
        if has("output") {
            assert!(
                ends(works, |line| line.ends_with("-o json")),
                "{name}: JSON"
            );
        }
        // The others only have commands below them.
        let is_seen_elsewhere = ELSEWHERE.iter().any(|(verb, ..)| verb == name);
        if !command.has_subcommands() && !is_seen_elsewhere {
            assert!(ends(works, |line| !line.contains("-o ")), "{name}: text");
        }
        if has("kubeconfig") && name != "run" {
            let is_shown = ends(|code| code == NO_KUBERNETES, |_| true);
            assert!(is_shown, "{name}: without Kubernetes");
        }
    }
    for (verb, file, test) in ELSEWHERE {
        assert!(names.contains(verb), "{verb}");
        let text = fs::read_to_string(tests().join(file)).unwrap();
        assert!(
            text.contains(&format!("fn {test}()")),
            "{file} has no {test}"
        );
    }
}

/// All commands by their words, the program itself by none.
fn walk(words: &str, command: &Verb, found: &mut BTreeMap<String, Verb>) {
    found.insert(words.to_owned(), command.clone());
    for below in command.get_subcommands() {
        walk(format!("{words} {}", below.get_name()).trim(), below, found);
    }
}

/// As a person who presses Tab.
#[test]
fn bash_completes_commands_and_flags() {
    let script = Scratch::new().answer("completions bash").out;
    let completed = |line: &[&str]| {
        let last = line.len() - 1;
        let asked = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}; _kproxide kproxide '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            line.join(" "),
            line[last],
            line[last - 1],
        );
        let mut bash = Command::new("bash");
        let ended = bash.args(["--norc", "-c", &asked]).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    };
    assert_eq!(completed(&["kproxide", "sta"]), "status\n");
    assert_eq!(completed(&["kproxide", "policy", "sh"]), "show\n");
    assert_eq!(completed(&["kproxide", "plan", "--exit"]), "--exit-code\n");
    assert_eq!(completed(&["kproxide", "version", "-o", "j"]), "json\n");
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

fn file(verb: &str) -> PathBuf {
    let name = match verb {
        "" => "kproxide".to_owned(),
        verb => verb.replace(' ', "-"),
    };
    tests().join(format!("data/verbs/{name}.txt"))
}

/// What commands may read and write.
struct Scratch {
    folder: tempfile::TempDir,
    /// Of this build, and the words that stand for it.
    built: Vec<(String, &'static str)>,
}

struct Answer {
    code: i32,
    out: String,
    told: String,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nothing.yaml"), "{}\n").unwrap();
        let values =
            "{clusters: {}, nodeClasses: {}, nodePools: {workers: {spec: {nodeClass: nosuch}}}}\n";
        fs::write(folder.path().join("values.yaml"), values).unwrap();
        // Nobody may listen on port 1 but root, and nobody does.
        let kubeconfig = "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], \
            contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: t}}]}";
        fs::write(folder.path().join("gone.yaml"), kubeconfig).unwrap();
        let mut scratch = Self {
            folder,
            built: Vec::new(),
        };
        let version: Value = serde_json::from_str(&scratch.answer("version -o json").out).unwrap();
        let text = |field: &str| version[field].as_str().unwrap_or("null").to_owned();
        let program = Path::new(env!("CARGO_BIN_EXE_kproxide"));
        // A build that was told no commit says null.
        scratch.built = vec![
            (text("target"), "TARGET"),
            (format!("kproxide {}", text("version")), "kproxide VERSION"),
            (format!("\"{}\"", text("version")), "\"VERSION\""),
            (format!("wasmtime {}", text("wasmtime")), "wasmtime VERSION"),
            (format!("\"{}\"", text("wasmtime")), "\"VERSION\""),
            (format!("commit {}, ", text("commit")), ""),
            (format!("\"{}\"", text("commit")), "null"),
            (program.parent().unwrap().display().to_string(), "PROGRAMS"),
        ];
        scratch
    }

    /// Where a word of the table is.
    fn places(&self) -> [(&'static str, String); 5] {
        [
            ("OUT", "out"),
            ("FOLDER", "folder"),
            ("NOTHING", "nothing.yaml"),
            ("VALUES", "values.yaml"),
            ("GONE", "gone.yaml"),
        ]
        .map(|(word, name)| (word, self.folder.path().join(name).display().to_string()))
    }

    /// In an environment that says nothing, with words for what differs from one build or computer to another.
    fn answer(&self, line: &str) -> Answer {
        let places = self.places();
        // Of the command before, if that made it.
        let _ = fs::remove_dir_all(&places[0].1);
        let _ = fs::remove_dir_all(&places[1].1);
        fs::create_dir(&places[1].1).unwrap();
        let arguments = line.split_whitespace().map(|word| {
            let place = places.iter().find(|(it, _)| *it == word);
            place.map_or(word, |(_, path)| path.as_str())
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_kproxide"));
        command.args(arguments).env_clear().stdin(Stdio::null());
        let ended = command.current_dir(tests().join("data")).output().unwrap();
        let text = |bytes| {
            let mut text = String::from_utf8(bytes).unwrap();
            for (word, path) in &places {
                text = text.replace(path, word);
            }
            for (built, word) in &self.built {
                text = text.replace(built, word);
            }
            policy::steady(&text)
        };
        Answer {
            code: ended.status.code().unwrap(),
            out: text(ended.stdout),
            told: text(ended.stderr),
        }
    }
}

impl Answer {
    fn shown(&self, most: usize) -> String {
        let told = match self.told.is_empty() {
            true => String::new(),
            false => format!("(standard error)\n{}", self.told),
        };
        let text = format!("{}{told}", self.out);
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.len() > most {
            lines.truncate(most);
            lines.push("… more lines");
        }
        lines.into_iter().map(|line| format!("{line}\n")).collect()
    }
}
