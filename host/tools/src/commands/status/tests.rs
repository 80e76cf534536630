//! The situations of `tests/data/status`: each is a file of objects as a cluster stores them, and beside it stands the
//! screen: of 80 columns, of 120, and as JSON. `KPROXIDE_UPDATE=1 cargo test -p kproxide-tools --all-features status::` writes those
//! anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use jiff::Timestamp;

use serde_json::json;

use super::*;
use crate::args::tests::{Cli, Command};
use crate::commands::held::hold;
use kproxide_controller::judge::Level;
use kproxide_lab::{MACHINE, furnished, run_with};
use kproxide_lab::{Setting, config};
use kproxide_policy::{Engine, Execution};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/status")
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
            hold(
                &folder().join(format!("{name}.{columns}.txt")),
                &said,
                &mut different,
            );
        }
        let mut json = Vec::new();
        print(&mut json, Format::Json, &screen).unwrap();
        hold(
            &folder().join(format!("{name}.json")),
            &String::from_utf8(json).unwrap(),
            &mut different,
        );
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[tokio::test]
async fn o9_o10_the_first_line_says_whether_all_is_well_and_what_to_look_at_first() {
    let policies = policies();
    for (situation, level, words) in [
        ("all_is_well", Level::Ok, "All is well."),
        (
            "frozen_pools",
            Level::Error,
            "No machine is removed: NodePool/batch, NodePool/workers (Frozen).",
        ),
        (
            // As somebody wishes: no pod waits.
            "paused_pools",
            Level::Ok,
            "All is well.",
        ),
        (
            "a_hypervisor_is_down",
            Level::Error,
            "Hypervisor/home/pve2 (HypervisorOffline). And 1 more warning.",
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
    let nobody = no_answer(&args, &NoAnswer::Nobody("ops/scaler".to_owned(), None));
    assert_eq!(
        (nobody.level, nobody.reason.word),
        (Level::Error, "NoLeader")
    );
    assert_eq!(nobody.object, "Lease/ops/scaler");
    // The next replica leads some seconds after the last one.
    let at = |second| Timestamp::from_second(second).unwrap();
    let left = NoAnswer::Nobody("ops/scaler".to_owned(), Some(at(100)));
    let left = no_answer(&args, &left);
    assert!(nobody.is_ripe(at(100)) && left.is_ripe(at(130)));
    assert!(!left.is_ripe(at(110)));
    let silent = NoAnswer::Silent("pod ops/scaler-0".to_owned(), "timed out".into());
    let silent = no_answer(&args, &silent);
    assert_eq!(
        (silent.level, silent.reason.word),
        (Level::Warning, "LeaderSilent")
    );
}

/// Two pods wait. The first file has no NodePool, the second one has.
#[tokio::test]
async fn what_was_computed_here_is_said_as_what_would_be() {
    let policies = policies();
    let all = fs::read_to_string(folder().join("all_is_well.yaml")).unwrap();
    let ours: Vec<&str> = all.split("---\n").take(3).collect();
    assert!(ours[2].contains("kind: NodePool"), "{ours:?}");
    let pod = |name: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: a, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n"
        )
    };
    let pods = pod("a") + &pod("b");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.yaml");
    let path = file.display().to_string();
    let screen = async |objects: &str| {
        fs::write(&file, format!("{objects}{pods}")).unwrap();
        let Command::Status(args) = Cli::try_parse_from(["kproxide", "status", "-f", &path])
            .unwrap()
            .command
        else {
            panic!("no status");
        };
        looked(&args, &policies).await.unwrap()
    };
    let without = screen("").await;
    assert_eq!((&*without.pools, &*without.assumed), (&[][..], &[][..]));
    let said = text(&without, None);
    assert!(said.contains("no help: there is no NodePool"), "{said}");

    let with = screen(&ours.join("---\n")).await;
    assert!(with.computed && with.pools.len() == 1, "{with:?}");
    let said = text(&with, None);
    assert!(
        said.contains("1 machine would be made, if kproxide ran"),
        "{said}"
    );
    assert!(!said.contains("LAST DECISIONS"), "{said}");
}

/// What the cluster lists of two machines in service is all well, where nobody asks the controller.
#[tokio::test(start_paused = true)]
async fn n2_machines_in_service_are_no_warning() {
    let limits = json!({ "limits": { "minNodes": 2, "maxNodes": 3 } });
    let lab = furnished(Setting::new(1, 2), json!({}), limits);
    run_with(&lab, config("kproxide-0"), MACHINE).await;
    let kinds = [
        "proxmoxclusters",
        "nodeclasses",
        "nodepools",
        "nodeclaims",
        "ledgers",
    ];
    let kinds = kinds.map(|kind| format!("{kind}.kproxide.dev"));
    let kinds = kinds.iter().map(String::as_str).chain(["nodes", "pods"]);
    let items: Vec<_> = kinds.flat_map(|kind| lab.kube.list(kind)).collect();
    let in_service = |it: &&serde_json::Value| it["status"]["phase"] == "Initialized";
    assert_eq!(items.iter().filter(in_service).count(), 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    fs::write(&file, list.to_string()).unwrap();
    let (path, now) = (file.display().to_string(), lab.clock.now().to_string());
    let words = ["kproxide", "status", "-f", &path, "--now", &now];
    let Command::Status(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("{words:?}");
    };
    let screen = looked(&args, &policies()).await.unwrap();
    assert_eq!(screen.troubles, []);
    assert_eq!(screen.pools[0].ready, 2);
}

/// Pods wait for two paused pools, and the token may do too much. A third pool waits for its class, which is not Ready.
#[tokio::test]
async fn what_keeps_pods_waiting_comes_first_and_a_pool_shows_why_it_is_not_ready() {
    let policies = policies();
    let paused = fs::read_to_string(folder().join("paused_pools.yaml")).unwrap();
    let ready = "  - {type: Ready, status: \"True\", reason: Ready,";
    let token = "  - {type: TokenFits, status: \"False\", reason: TokenOverPrivileged, message: 'it may do more', lastTransitionTime: \"2026-01-05T07:00:00Z\"}\n";
    let at = paused.find(ready).unwrap();
    let all = format!("{}{token}{}", &paused[..at], &paused[at..]);
    let unready = "---\n{apiVersion: kproxide.dev/v1alpha1, kind: NodePool, metadata: {name: unready}, spec: {nodeClass: missing, limits: {maxNodes: 2}}, status: {conditions: [{type: Ready, status: 'False', reason: ClassNotReady, message: 'NodeClass missing', lastTransitionTime: \"2026-01-05T07:00:00Z\"}]}}\n---\n";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: waits}, spec: {containers: [{name: a, resources: {requests: {cpu: 4}}}]}}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.yaml");
    fs::write(&file, format!("{all}{unready}{pod}")).unwrap();
    let path = file.display().to_string();
    let words = [
        "kproxide",
        "status",
        "-f",
        &path,
        "--now",
        "2026-01-05T08:00:00Z",
    ];
    let Command::Status(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("{words:?}");
    };
    let screen = looked(&args, &policies).await.unwrap();
    let unready = screen.pools.iter().find(|it| it.name == "unready").unwrap();
    assert_eq!(unready.state, ["ClassNotReady"]);
    let reasons: Vec<&str> = screen.troubles.iter().map(|it| it.reason.word).collect();
    // That its class is not Ready is said of the class.
    assert_eq!(reasons, ["Paused", "Paused", "TokenOverPrivileged"]);
}
