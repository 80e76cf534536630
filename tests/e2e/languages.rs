//! A first policy in each language, by the commands of the pages and with the tools of that language from its own
//! registry: from an empty folder to a launch that the policy decides.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kproxide_testkit::require_controlplane;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::bench::{Bench, on_a_cluster};
use crate::binary::repository;
use crate::policies::eventually_taken;
use crate::stage::{NAMESPACE, Scene, Stage};

const PAGE: &str = "policies/README.md";
const TRY: &str = "Try it";
const MOUNT: &str = "Mount it";

/// Titles of the page, and what the commands below them need.
const LANGUAGES: [(&str, &str); 4] = [
    ("Rust", "rustup"),
    ("JavaScript", "npm"),
    ("Go", "go"),
    ("C", "python3"),
];

const EXAMPLES: [(&str, &str); 5] = [
    ("racks", "rustup"),
    ("electricity-hours", "npm"),
    ("newest-kernel", "go"),
    ("drain-the-fullest", "python3"),
    ("labels-from-attributes", "rustup"),
];

/// For the commands of one policy: a registry may be slow, and the first build of a language's library is long.
const LONG: Duration = Duration::from_secs(600);

/// Whether this machine has the tool. In CI one that lacks it is a failure.
fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    if !found {
        let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!must_run, "CI=true forbids to skip: there is no {tool}");
        writeln!(io::stderr().lock(), "skipped: there is no {tool} on PATH")
            .expect("standard error takes text");
    }
    found
}

/// The fenced `sh` blocks of a page, each with the title above it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let (mut title, mut fence) = (String::new(), None);
    for line in page.lines() {
        match (fence, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                fence = Some(kind);
                if kind == "sh" {
                    blocks.push((title.clone(), String::new()));
                }
            }
            (Some(_), Some(_)) => fence = None,
            (Some("sh"), None) => {
                let (_, block) = blocks.last_mut().unwrap();
                block.push_str(line);
                block.push('\n');
            }
            (Some(_), None) => {}
            (None, None) => {
                if let Some(text) = line.trim_start_matches('#').strip_prefix(' ')
                    && line.starts_with('#')
                {
                    text.clone_into(&mut title);
                }
            }
        }
    }
    blocks
}

/// A person's computer: an empty folder, the tools of the languages, and `kproxide` and `kubectl` on PATH.
struct Desk {
    folder: TempDir,
    bin: TempDir,
    kubeconfig: Option<PathBuf>,
}

impl Desk {
    fn new() -> Self {
        let bin = tempfile::tempdir().unwrap();
        let kproxide = Path::new(env!("CARGO_BIN_EXE_kproxide"));
        symlink(kproxide, bin.path().join("kproxide")).unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            bin,
            kubeconfig: None,
        }
    }

    /// With a cluster that kubectl asks.
    fn at(bench: &Bench) -> Self {
        let mut desk = Self::new();
        let programs = require_controlplane().expect("there is a cluster");
        let kubectl = desk.bin.path().join("kubectl");
        let script = format!(
            "#!/bin/sh\nexec '{}' kubectl \"$@\"\n",
            programs.path().display()
        );
        fs::write(&kubectl, script).unwrap();
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
        desk.kubeconfig = Some(bench.cluster.admin_kubeconfig_path().to_owned());
        desk
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Types the commands of a page, one after the other into one shell.
    async fn types(&self, commands: &str) {
        // Cargo builds one thing at a time in what is kept, but runs tests of documents when another build may go on.
        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _alone = ALONE.lock().await;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.bin.path().to_owned());
        let folders = folders.chain(std::env::split_paths(&path));
        // What registries gave and libraries became is kept, as on a person's computer.
        let kept = kept();
        let mut shell = Command::new("/bin/bash");
        for (name, _) in std::env::vars_os() {
            // Of the build that this test is part of.
            if name.to_str().is_some_and(steers_cargo) {
                shell.env_remove(name);
            }
        }
        shell
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(self.path())
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("CARGO_BUILD_BUILD_DIR", kept.join("cargo"))
            .env("npm_config_cache", kept.join("npm"))
            .env("PIP_CACHE_DIR", kept.join("pip"))
            .env("ZIG_GLOBAL_CACHE_DIR", kept.join("zig"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some(kubeconfig) = &self.kubeconfig {
            shell.env("KUBECONFIG", kubeconfig);
        }
        let ended = tokio::time::timeout(LONG, shell.output()).await;
        let output = ended.unwrap_or_else(|_| panic!("no end within {LONG:?}:\n{commands}"));
        let output = output.unwrap();
        let [out, said] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(output.status.success(), "{commands}\n{out}\n{said}");
    }
}

fn steers_cargo(name: &str) -> bool {
    name.starts_with("CARGO") && name != "CARGO_HOME" || name.starts_with("RUSTFLAGS")
}

/// Below the target folder, so that nothing is left elsewhere.
fn kept() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_kproxide")).ancestors().nth(2);
    let kept = target
        .expect("<target>/<profile>/kproxide")
        .join("languages");
    for folder in ["cargo", "npm", "pip", "zig"] {
        fs::create_dir_all(kept.join(folder)).unwrap();
    }
    kept
}

#[test]
fn the_page_of_policies_has_commands_for_these_languages_and_no_others() {
    let page = fs::read_to_string(repository(PAGE)).unwrap();
    for (title, block) in blocks(&page) {
        let is_language = LANGUAGES.iter().any(|(language, _)| *language == title);
        assert!(
            is_language || [TRY, MOUNT].contains(&&*title),
            "{title}: {block}"
        );
    }
}

#[test]
#[ignore = "tier: languages"]
fn a_first_policy_in_rust_decides_a_launch() {
    a_first_policy_decides_a_launch("Rust");
}

#[test]
#[ignore = "tier: languages"]
fn a_first_policy_in_javascript_decides_a_launch() {
    a_first_policy_decides_a_launch("JavaScript");
}

#[test]
#[ignore = "tier: languages"]
fn a_first_policy_in_go_decides_a_launch() {
    a_first_policy_decides_a_launch("Go");
}

#[test]
#[ignore = "tier: languages"]
fn a_first_policy_in_c_decides_a_launch() {
    a_first_policy_decides_a_launch("C");
}

fn a_first_policy_decides_a_launch(language: &str) {
    if !has(tool(&LANGUAGES, language)) {
        return;
    }
    on_a_cluster(async |bench| {
        let page = fs::read_to_string(repository(PAGE)).unwrap();
        let blocks = blocks(&page);
        let of = |title: &str| -> String {
            let blocks = blocks.iter().filter(|(above, _)| above == title);
            let text: String = blocks.map(|(_, block)| &**block).collect();
            assert_ne!(text, "", "{PAGE} has no commands below {title}");
            text
        };
        let stage = Stage::set(
            bench,
            Scene::with(json!({
                "policies": { "configMaps": [{ "name": "first" }] },
                "nodePools": { "default": { "spec": {
                    "policies": { "hostSelection": { "use": "first", "settings": { "prefix": "pve3" } } },
                    "scaleDown": { "enabled": false },
                }}},
            })),
        )
        .await;
        let desk = Desk::at(bench);
        desk.types(&[of(language), of(TRY), of(MOUNT)].concat())
            .await;
        stage.pod.refresh_volumes().await.unwrap();
        eventually_taken(&stage, 1).await;

        // `spread` would take another hypervisor for the second.
        for app in ["one", "two"] {
            stage.deploy(app, 1, "3", "1Gi", json!({})).await;
            stage.until_running(app, 1).await;
        }
        assert_eq!(stage.placed(), [("pve3".to_owned(), 2)].into());
        let wasm = fs::read(desk.path().join("first/first.wasm")).unwrap();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/first");
        let mounted = stage.api().get(&path).await.unwrap();
        let mounted = mounted["binaryData"]
            .as_object()
            .unwrap()
            .values()
            .next()
            .unwrap();
        let mounted = STANDARD.decode(mounted.as_str().unwrap()).unwrap();
        let digests = [digest(&wasm), digest(&mounted)];
        let claims = stage.claims().await;
        let decided = claims.iter().any(|claim| {
            let by = claim["spec"]["policyDigest"].as_str().unwrap();
            digests.iter().any(|digest| by.ends_with(&**digest))
        });
        assert!(decided, "{digests:?}: {claims:?}");
        stage.end().await;
    });
}

fn tool(of: &[(&str, &'static str)], name: &str) -> &'static str {
    let (_, tool) = of.iter().find(|(other, _)| *other == name).unwrap();
    tool
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn each_example_has_a_test() {
    let folders = fs::read_dir(repository("examples/policies")).unwrap();
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(folders, EXAMPLES.map(|(name, _)| name.to_owned()).into());
}

#[tokio::test]
#[ignore = "tier: languages"]
async fn the_commands_of_racks_build_and_run_it() {
    the_commands_build_and_run("racks").await;
}

#[tokio::test]
#[ignore = "tier: languages"]
async fn the_commands_of_electricity_hours_build_and_run_it() {
    the_commands_build_and_run("electricity-hours").await;
}

#[tokio::test]
#[ignore = "tier: languages"]
async fn the_commands_of_newest_kernel_build_and_run_it() {
    the_commands_build_and_run("newest-kernel").await;
}

#[tokio::test]
#[ignore = "tier: languages"]
async fn the_commands_of_drain_the_fullest_build_and_run_it() {
    the_commands_build_and_run("drain-the-fullest").await;
}

#[tokio::test]
#[ignore = "tier: languages"]
async fn the_commands_of_labels_from_attributes_build_and_run_it() {
    the_commands_build_and_run("labels-from-attributes").await;
}

async fn the_commands_build_and_run(example: &str) {
    if !has(tool(&EXAMPLES, example)) {
        return;
    }
    let desk = Desk::new();
    for file in fs::read_dir(repository("examples/policies").join(example)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), desk.path().join(file.file_name())).unwrap();
    }
    let page = fs::read_to_string(desk.path().join("README.md")).unwrap();
    let commands: String = blocks(&page).into_iter().map(|(_, block)| block).collect();
    desk.types(&commands).await;
    let policy = desk.path().join(example).join(format!("{example}.wasm"));
    assert!(policy.is_file(), "{example}");
}
