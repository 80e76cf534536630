//! Which module may import which. The modules of a crate stand in rows, from the ground to the roof, and each imports only from the rows below its
//! own: so there is no circle, and a reader can begin at the ground.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Rows = &'static [&'static [&'static str]];

const PLANNER: Rows = &[
    &["ids", "keys", "mutants", "time"],
    &["facts"],
    &["kubernetes"],
    &["reasons"],
    &["plan"],
    &["world"],
    &["ledger"],
    &["claim"],
    &["guard"],
    &["check"],
    &["planning"],
    &["fixtures"],
];

/// Amounts are facts, and selectors read them: the one import of the planner that runs up.
const PLANNER_UP: &[(&str, &str)] = &[("facts", "kubernetes")];

const PLANNING: Rows = &[
    &["pods"],
    &["machines"],
    &["hypervisors"],
    &["claims"],
    &["up"],
    &["down"],
];

/// What a claim's machine shows is learned from machines that serve, and orders take their turns as their pods do.
const PLANNING_UP: &[(&str, &str)] = &[
    ("machines/csi.rs", "claims"),
    ("machines/learned.rs", "claims"),
    ("pods/topology/turns.rs", "up"),
];

const CONTROLLER: Rows = &[
    &["args", "metrics"],
    &["admin"],
    &["observe"],
    &["act", "connect"],
    &["judge"],
    &["reporter"],
    &["autoscaler"],
    &["config"],
    &["app"],
    &["fuzz"],
];

const TOOLS: Rows = &[
    &["args", "manifest"],
    &["stored", "whatif"],
    &["doctor"],
    &["status"],
    &["commands"],
];

/// The crates below `host/`, and which of these each may use in what ships. That there is no circle Cargo sees to.
const CRATES: [(&str, &[&str]); 9] = [
    ("planner", &[]),
    ("common", &["planner"]),
    ("kube", &["common", "planner"]),
    ("pve", &["common", "planner"]),
    ("policy", &["common", "planner"]),
    (
        "controller",
        &["common", "kube", "planner", "policy", "pve"],
    ),
    ("simulator", &[]),
    (
        "lab",
        &[
            "common",
            "controller",
            "kube",
            "planner",
            "policy",
            "pve",
            "simulator",
        ],
    ),
    (
        "tools",
        &[
            "common",
            "controller",
            "kube",
            "lab",
            "planner",
            "policy",
            "pve",
            "simulator",
        ],
    ),
];

#[test]
fn the_planner_imports_from_below_only() {
    let wrong = wrong_imports("host/planner/src", PLANNER, PLANNER_UP);
    assert_eq!(wrong.join("\n"), "");
}

#[test]
fn the_rooms_of_planning_import_from_below_only() {
    let wrong = wrong_imports("host/planner/src/planning", PLANNING, PLANNING_UP);
    assert_eq!(wrong.join("\n"), "");
}

/// Who reads one file of a claim's life need not go back to one that began with it.
#[test]
fn the_files_of_a_claim_import_each_other_in_no_circle() {
    let root = "host/planner/src/claim";
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources(root) {
        let file = path[root.len() + 1..].trim_end_matches(".rs").to_owned();
        let found = imported(&shipped(&read(&path)), "super::");
        let found = found.into_iter().map(|(_, name)| name);
        imports.insert(file, found.collect());
    }
    let folder = imports.remove("mod").unwrap();
    assert!(folder.is_empty() && imports.len() > 30, "{imports:?}");
    for found in imports.values() {
        let unknown: Vec<_> = found
            .iter()
            .filter(|name| !imports.contains_key(*name))
            .collect();
        assert!(
            unknown.is_empty(),
            "{unknown:?} of mod.rs: import it from where it stands"
        );
    }
    // Whoever imports nothing that is left is taken away, until nobody is.
    loop {
        let left = imports.clone();
        imports.retain(|_, found| found.iter().any(|name| left.contains_key(name)));
        if imports.len() == left.len() {
            break;
        }
    }
    assert!(imports.is_empty(), "a circle: {imports:?}");
}

#[test]
fn the_controller_imports_from_below_only() {
    assert_eq!(
        wrong_imports("host/controller/src", CONTROLLER, &[]).join("\n"),
        ""
    );
}

#[test]
fn the_tools_import_from_below_only() {
    assert_eq!(wrong_imports("host/tools/src", TOOLS, &[]).join("\n"), "");
}

#[test]
fn each_crate_uses_only_those_below_it() {
    for (name, allowed) in CRATES {
        let manifest = read(&format!("host/{name}/Cargo.toml"));
        let shipped = manifest.split("[dev-dependencies]").next().unwrap();
        let used = shipped
            .lines()
            .filter_map(|line| line.strip_prefix("kproxide-"));
        let used: BTreeSet<&str> = used
            .map(|rest| rest.split(['.', ' ']).next().unwrap())
            .collect();
        let crates: BTreeSet<&str> = CRATES.iter().map(|(name, _)| *name).collect();
        let used: Vec<&str> = used.intersection(&crates).copied().collect();
        assert_eq!(used, allowed, "{name}");
    }
}

/// A key that two files spell out can be spelt differently in each. Texts for people may name one, and what tests and `simulate` give to kproxide is
/// written as an operator writes it.
#[test]
fn the_keys_of_labels_stand_in_one_file() {
    let all = read("host/planner/src/keys.rs");
    let is_key = |text: &&str| text.contains(".io/") || text.starts_with("kproxide.dev/");
    let keys: Vec<&str> = all.split('"').filter(is_key).collect();
    assert!(keys.len() > 20, "{keys:?}");
    let mut found = Vec::new();
    let others = [
        "/keys.rs",
        "/commands/demo/",
        "/fixtures/",
        "/simulated.rs",
        "/oracle/",
    ];
    for path in shipping() {
        if others.iter().any(|other| path.contains(other)) {
            continue;
        }
        let text = shipped(&read(&path));
        let spelt = keys
            .iter()
            .filter(|key| text.contains(&format!("\"{key}\"")));
        found.extend(spelt.map(|key| format!("{path}: {key}: use its name in keys.rs")));
    }
    assert_eq!(found.join("\n"), "");
}

/// What kproxide says goes out in few places, each of which cleans it (`host/common/src/foreign.rs`): a text that a tenant wrote must not reach a terminal by
/// another. In a file that writes there, the line says how.
#[test]
fn what_is_said_goes_out_clean() {
    const WAYS: [(&str, &[(&str, &str)]); 9] = [
        ("print!(", &[]),
        ("println!(", &[]),
        (
            "stdout()",
            &[
                ("cli/mod.rs", "Out::new(io::stdout().lock())"),
                // Frames to the parent process.
                ("worker/child.rs", "stdout().lock()"),
            ],
        ),
        ("stderr()", &[("commands/mod.rs", "Out::new(io::stderr())")]),
        (
            ".raw()",
            &[
                ("cli/mod.rs", "completions::print("),
                ("cli/mod.rs", "version::print_licenses("),
                ("commands/plan.rs", "set_off(&shown(&text)"),
                ("commands/status.rs", "Text(&screen, look(args))"),
                ("commands/status.rs", "redraw(&text, out.raw())"),
            ],
        ),
        (
            "note: Some(",
            &[("kube/src/events/mod.rs", "foreign::shown(")],
        ),
        (
            "StatusCondition {",
            &[
                ("kube/src/status.rs", "let new = StatusCondition {"),
                ("kube/src/crd/common.rs", "pub struct"),
            ],
        ),
        (
            "tracing_subscriber::fmt()",
            &[("telemetry.rs", "let builder = tracing_subscriber::fmt()")],
        ),
        ("CrosstermBackend", &[("demo/live.rs", "")]),
    ];
    // Of tests, or of the builds that tests and recordings make.
    const OF_TESTS: [&str; 6] = [
        "/captured.rs",
        "/fixtures.rs",
        "/cases.rs",
        "/conformance.rs",
        "/parameters.rs",
        "/oracle/",
    ];
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for path in shipping() {
        if OF_TESTS.iter().any(|part| path.contains(part)) {
            continue;
        }
        for (number, line) in shipped(&read(&path)).lines().enumerate() {
            for (way, places) in WAYS {
                if !line.contains(way) || line.contains("is_terminal()") {
                    continue;
                }
                let place = places
                    .iter()
                    .find(|(file, by)| path.ends_with(file) && line.contains(by));
                match place {
                    Some(place) => _ = used.insert((way, *place)),
                    None => wrong.push(format!("{path}:{}: {}", number + 1, line.trim())),
                }
            }
        }
    }
    assert_eq!(wrong.join("\n"), "", "let it go out by foreign.rs");
    let all = WAYS
        .iter()
        .flat_map(|(way, places)| places.iter().map(|place| (*way, *place)));
    assert_eq!(used, all.collect(), "a place that is no more");
    for (file, by) in [
        ("host/kube/src/status.rs", "truncated(message, 4000)"),
        (
            "host/kube/src/convert/claim.rs",
            "condition.message = truncated(&condition.message, 4000)",
        ),
        ("host/kube/src/convert/claim.rs", "foreign::shown(text)"),
        ("host/src/telemetry.rs", "Clean::new(lines, form, &LINES)"),
        (
            "host/controller/src/admin.rs",
            "foreign::escaped_json(&json)",
        ),
        ("host/tools/src/commands/plan.rs", "foreign::json(&text)"),
    ] {
        assert!(shipped(&read(file)).contains(by), "{file} without {by}");
    }
}

/// What ships, but the simulator, which only the demo has.
fn shipping() -> impl Iterator<Item = String> {
    let crates = CRATES.iter().map(|(name, _)| format!("host/{name}/src"));
    let crates = crates.filter(|path| !path.contains("simulator") && !path.contains("lab"));
    crates
        .chain(["host/src".to_owned()])
        .flat_map(|path| sources(&path).collect::<Vec<_>>())
}

/// Each import from a row that is not below the importer's: file and line, and what is allowed there. `up` may import so all the same (a file, or all of a
/// module); one that does not is as wrong.
fn wrong_imports(root: &str, rows: Rows, up: &[(&str, &str)]) -> Vec<String> {
    let row_of = |module: &str| rows.iter().position(|row| row.contains(&module));
    // `crate::planning::…` below the folder of planning.
    let inside = root.split_once("/src").map_or("", |(_, folder)| folder);
    let prefix = format!("crate{}::", inside.replace('/', "::"));
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    let mut imports = 0;
    for path in sources(root) {
        let inner = &path[root.len() + 1..];
        let module = inner.split(['/', '.']).next().unwrap_or_default();
        if ["lib", "mod", "expected"].contains(&module) {
            continue;
        }
        let Some(row) = row_of(module) else {
            wrong.push(format!("{path}: {module} is in no row of tests/layers.rs"));
            continue;
        };
        for (line, imported) in imported(&shipped(&read(&path)), &prefix) {
            imports += 1;
            let below = match row_of(&imported) {
                Some(of_it) => of_it < row,
                // What the folder's own file has for all of them.
                None => !inside.is_empty(),
            };
            if below || imported == module {
                continue;
            }
            let may =
                |(from, to): &&(&str, &str)| (*from == inner || *from == module) && *to == imported;
            if let Some(may) = up.iter().find(may) {
                used.insert(*may);
                continue;
            }
            let allowed = rows[..row].concat().join(", ");
            wrong.push(format!(
                "{path}:{line}: {module} imports {imported}; it may import only {allowed}"
            ));
        }
    }
    assert!(imports > 30, "{imports} imports in {root}");
    let unused = up.iter().filter(|may| !used.contains(*may));
    wrong.extend(unused.map(|(from, to)| format!("{from} does not import {to} any more")));
    wrong
}

/// Line and first name of each import below `prefix`, such as `crate::`. A group after it, as in `crate::{chain, hex}`, names modules alone.
fn imported(text: &str, prefix: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, root) in text.match_indices(prefix) {
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + root.len()..];
        let group = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        let names = group.map_or(vec![rest], |group| group.split(',').collect());
        let names = names.into_iter().map(first_name);
        found.extend(
            names
                .filter(|name| !name.is_empty())
                .map(|name| (line, name)),
        );
    }
    found
}

fn first_name(path: &str) -> String {
    let is_part = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    path.trim_start().chars().take_while(is_part).collect()
}

/// A file without its comments and its tests, each line at its place.
fn shipped(text: &str) -> String {
    let (text, _) = text.split_once("mod tests {").unwrap_or((text, ""));
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let lines = text
        .lines()
        .map(|line| if is_comment(line) { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// The Rust files below a directory, without those of tests and fuzzing.
fn sources(directory: &str) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let mut left = vec![at_root(directory)];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path
                .file_stem()
                .is_some_and(|name| name == "tests" || name == "fuzz")
            {
                continue;
            }
            match path.is_dir() {
                true => left.push(path),
                false => found.push(
                    path.strip_prefix(at_root(""))
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                ),
            }
        }
    }
    found.sort();
    found.into_iter()
}

fn read(path: &str) -> String {
    fs::read_to_string(at_root(path)).unwrap()
}

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
