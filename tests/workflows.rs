//! What GitHub runs: the workflows as GitHub reads them, and the scripts that their steps call. The programs that would publish are stand-ins that write down
//! how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use kproxide_testkit::{RELEASE_ENVIRONMENT, require_packager};
use serde_json::Value;
use tempfile::TempDir;

use crate::repository;

fn workflows() -> Vec<PathBuf> {
    let folder = fs::read_dir(repository().join(".github/workflows")).unwrap();
    let mut workflows: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    workflows.sort();
    assert_eq!(workflows.len(), 4, "{workflows:?}");
    workflows
}

#[test]
fn github_takes_the_workflows() {
    let Some(packager) = require_packager() else {
        return;
    };
    packager.actionlint(&workflows()).unwrap();

    let folder = tempfile::tempdir().unwrap();
    for (right, wrong) in [
        ("runs-on: ubuntu-24.04\n", "runs-on: ubuntu-24.4\n"),
        ("github.ref", "github.reff"),
        ("permissions:\n", "permission:\n"),
    ] {
        for workflow in workflows() {
            let text = fs::read_to_string(&workflow).unwrap();
            assert!(text.contains(right), "{right}");
            let broken = folder.path().join("broken.yml");
            fs::write(&broken, text.replace(right, wrong)).unwrap();
            packager.actionlint(&[broken]).unwrap_err();
        }
    }
}

#[test]
fn steps_call_scripts_of_the_repository_and_actions_of_one_commit() {
    for workflow in workflows() {
        let text = fs::read_to_string(&workflow).unwrap();
        let workflow: Value = serde_saphyr::from_str(&text).unwrap();
        let jobs = workflow["jobs"].as_object().unwrap().values();
        for step in jobs.flat_map(|job| job["steps"].as_array().unwrap()) {
            if let Some(action) = step["uses"].as_str() {
                let (_, commit) = action.split_once('@').unwrap();
                let is_commit =
                    commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(is_commit, "{action} is not pinned");
                continue;
            }
            let run = step["run"].as_str().unwrap();
            if step["name"] == "Log in to the registry" {
                // With the token that GitHub gives, and nothing that a test could show.
                assert!(
                    run.lines().all(|line| line.ends_with("--password-stdin")),
                    "{run}"
                );
                continue;
            }
            let script = repository().join(run.split(' ').next().unwrap());
            let mode = script.metadata().unwrap().permissions().mode();
            assert!(run.starts_with(".ci/") && mode & 0o111 == 0o111, "{run}");
        }
    }
}

#[test]
fn the_bill_of_materials_lists_what_is_linked_and_nothing_else() {
    let mut sbom = Command::new(repository().join(".ci/sbom"));
    let output = sbom.arg("x86_64-unknown-linux-gnu").output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let sbom: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    assert_eq!(sbom["metadata"]["component"]["version"], "0.1.0");
    let components = sbom["components"].as_array().unwrap();
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    for component in components {
        let [name, version, purl] =
            ["name", "version", "purl"].map(|key| component[key].as_str().unwrap());
        if purl.starts_with("pkg:cargo/") {
            let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&locked), "{component}");
            assert!(
                component["licenses"][0]["expression"].is_string(),
                "{component}"
            );
        }
    }
    let find = |name: &str| components.iter().filter(|one| one["name"] == name).count();
    for (name, count) in [
        ("kproxide", 1),
        ("kproxide-planner", 1),
        ("wasmtime", 1),
        ("golang.org/x/crypto/x509roots/fallback", 1),
        ("kproxide-simulator", 0),
        ("ratatui", 0),
    ] {
        assert_eq!(find(name), count, "{name}");
    }
}

#[test]
fn the_assets_of_a_release_are_image_program_and_what_it_is_made_of() {
    let stage = Stage::set();
    stage.stand_in(
        "cargo",
        r#"
        case "$1" in
          image) mkdir -p target; echo image >target/kproxide-0.1.0-amd64.tar ;;
          licenses) echo "texts for the $2" ;;
          tree) printf 'kproxide v0.1.0 (/source)|Apache-2.0\nbitflags v2.0.0|MIT/Apache-2.0\n' ;;
          build) mkdir -p target/x86_64-unknown-linux-gnu/release; echo "$RUSTFLAGS" >target/x86_64-unknown-linux-gnu/release/kproxide ;;
        esac"#,
    );
    stage.stand_in("uname", "echo x86_64");
    let done = stage.run(&[".ci/assets", "assets"]);
    assert!(done.status.success(), "{}", words(&done));
    assert_eq!(
        stage.below("assets"),
        [
            "kproxide-0.1.0-amd64.cdx.json",
            "kproxide-0.1.0-amd64.tar",
            "kproxide-0.1.0-linux-amd64.tar.gz"
        ]
    );
    let read = |path: &str| fs::read(stage.at(path)).unwrap();
    assert_eq!(read("assets/kproxide-0.1.0-amd64.tar"), b"image\n");
    let sbom: Value =
        serde_json::from_slice(&read("assets/kproxide-0.1.0-amd64.cdx.json")).unwrap();
    assert_eq!(
        sbom["components"][0]["licenses"][0]["expression"],
        "MIT OR Apache-2.0"
    );
    // Static, with the demo; twice the same.
    let built = stage
        .calls()
        .into_iter()
        .find(|call| call.starts_with("cargo build"))
        .unwrap();
    assert!(!built.contains("--no-default-features"), "{built}");
    let program = read("target/x86_64-unknown-linux-gnu/release/kproxide");
    let script = fs::read_to_string(stage.at(".ci/assets")).unwrap();
    assert!(!script.contains("CARGO_PROFILE_"), "{script}");
    let [(_, flags)] = RELEASE_ENVIRONMENT;
    assert_eq!(String::from_utf8(program).unwrap().trim_end(), flags);
    let mut tar = Command::new("tar");
    let listed = tar.args(["--list", "--verbose", "--gzip", "--file"]);
    let listed = listed.arg(stage.at("assets/kproxide-0.1.0-linux-amd64.tar.gz"));
    let listed = words(&listed.output().unwrap());
    let entry = |line: &str| format!("{} {}", &line[..10], line.rsplit(' ').next().unwrap());
    let entries: Vec<String> = listed.lines().map(entry).collect();
    let expected = [
        "-rw-r--r-- kproxide",
        "drwxr-xr-x licenses/",
        "-rw-r--r-- licenses/THIRD-PARTY.txt",
    ];
    assert_eq!(entries, expected, "{listed}");
    let texts = read("target/x86_64-unknown-linux-gnu/release/licenses/THIRD-PARTY.txt");
    assert_eq!(texts, b"texts for the archive\n");
    let archive = read("assets/kproxide-0.1.0-linux-amd64.tar.gz");
    stage.run(&[".ci/assets", "assets"]);
    assert!(read("assets/kproxide-0.1.0-linux-amd64.tar.gz") == archive);

    stage.stand_in("uname", "echo riscv64");
    let refused = stage.run(&[".ci/assets", "assets"]);
    assert!(!refused.status.success());
    assert!(
        words(&refused).contains("no release for riscv64"),
        "{}",
        words(&refused)
    );
}

#[test]
fn a_release_publishes_one_image_for_both_architectures_the_chart_and_signatures() {
    let stage = Stage::set();
    for name in ["skopeo", "cosign", "gh"] {
        stage.stand_in(name, "");
    }
    stage.stand_in("docker", r#"[ "$3" != inspect ] || echo sha256:1111"#);
    stage.stand_in("helm", r#"[ "$1" = package ] && echo chart >"$4/kproxide-0.1.0.tgz" || echo 'Digest: sha256:2222' >&2"#);
    for architecture in ["amd64", "arm64"] {
        fs::create_dir_all(stage.at("assets")).unwrap();
        fs::write(
            stage.at(&format!("assets/kproxide-0.1.0-{architecture}.tar")),
            "image",
        )
        .unwrap();
    }
    let refused = stage.run(&[".ci/publish", "assets", "v0.2.0"]);
    assert!(!refused.status.success());
    assert!(
        words(&refused).contains("the tag is v0.2.0, and appVersion"),
        "{}",
        words(&refused)
    );
    assert_eq!(stage.calls(), [""; 0], "nothing is published");

    let done = stage.run(&[".ci/publish", "assets", "v0.1.0"]);
    assert!(done.status.success(), "{}", words(&done));
    let assets = stage.at("assets").display().to_string();
    let calls: Vec<_> = stage
        .calls()
        .iter()
        .map(|call| call.replace(&assets, "ASSETS"))
        .collect();
    let image = "ghcr.io/kproxide/kproxide";
    assert_eq!(
        calls,
        [
            format!("skopeo copy --preserve-digests oci-archive:ASSETS/kproxide-0.1.0-amd64.tar docker://{image}:0.1.0-amd64"),
            format!("skopeo copy --preserve-digests oci-archive:ASSETS/kproxide-0.1.0-arm64.tar docker://{image}:0.1.0-arm64"),
            format!("docker buildx imagetools create --tag {image}:0.1.0 {image}:0.1.0-amd64 {image}:0.1.0-arm64"),
            format!("docker buildx imagetools inspect {image}:0.1.0 --format {{{{.Manifest.Digest}}}}"),
            format!("cosign sign --yes --recursive {image}@sha256:1111"),
            "helm package charts/kproxide --destination ASSETS".to_owned(),
            "helm push ASSETS/kproxide-0.1.0.tgz oci://ghcr.io/kproxide/charts".to_owned(),
            "cosign sign --yes ghcr.io/kproxide/charts/kproxide@sha256:2222".to_owned(),
            "cosign sign-blob --yes --bundle ASSETS/SHA256SUMS.sigstore.json ASSETS/SHA256SUMS".to_owned(),
            "gh release create v0.1.0 --verify-tag --title kproxide 0.1.0 --notes-file .github/CHANGELOG.md \
             ASSETS/SHA256SUMS ASSETS/kproxide-0.1.0-amd64.tar ASSETS/kproxide-0.1.0-arm64.tar ASSETS/kproxide-0.1.0.tgz"
                .to_owned(),
        ]
    );
    let output = fs::read_to_string(stage.at("output")).unwrap();
    assert_eq!(output, format!("image={image}\ndigest=sha256:1111\n"));
    let sums = fs::read_to_string(stage.at("assets/SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 3, "{sums}");
}

#[test]
fn advisories_are_looked_for_each_night_and_before_a_release_over_all_lock_files() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let parsed = |name: &str| -> Value {
        serde_saphyr::from_str(&read(&format!(".github/workflows/{name}.yml"))).unwrap()
    };
    let looks = |job: &Value| {
        let steps = job["steps"].as_array().unwrap();
        steps.iter().any(|step| step["run"] == ".ci/deny")
    };
    let nightly = parsed("advisories");
    let cron = nightly["on"]["schedule"][0]["cron"].as_str().unwrap();
    assert!(cron.ends_with(" * * *"), "{cron}");
    assert!(nightly["jobs"].as_object().unwrap().values().any(looks));
    let release = parsed("release");
    let needed = release["jobs"]["publish"]["needs"].as_array().unwrap();
    assert!(
        needed
            .iter()
            .any(|job| looks(&release["jobs"][job.as_str().unwrap()]))
    );
    // It has no network.
    assert!(!read(".ci/run").contains("deny"));

    let stage = Stage::set();
    let cargo = |does: &str| stage.stand_in("cargo", does);
    cargo("case \"$*\" in *' --version') echo cargo-deny 0.20.2 ;; *a/Cargo.toml*) exit 1 ;; esac");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        let done = git
            .args(arguments)
            .current_dir(stage.folder.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", words(&done));
    };
    git(&["init", "--quiet"]);
    let refused = stage.run(&[".ci/deny"]);
    assert!(
        words(&refused).contains("git tracks no Cargo.lock"),
        "{}",
        words(&refused)
    );
    for lock in [
        "Cargo.lock",
        "a/Cargo.lock",
        "b/c/Cargo.lock",
        "b/d/Cargo.lock",
    ] {
        fs::create_dir_all(stage.at(lock).parent().unwrap()).unwrap();
        fs::write(stage.at(lock), "").unwrap();
    }
    git(&["add", "Cargo.lock", "a/Cargo.lock", "b/c/Cargo.lock"]);
    // One that fails hides no other.
    let done = stage.run(&[".ci/deny"]);
    let asked: Vec<_> = stage
        .calls()
        .into_iter()
        .filter(|call| call.contains("check"))
        .collect();
    assert_eq!(
        asked,
        ["Cargo.toml", "a/Cargo.toml", "b/c/Cargo.toml"].map(|manifest| {
            format!(
                "cargo deny --locked --manifest-path {manifest} --config .cargo/deny.toml check"
            )
        })
    );
    assert!(!done.status.success(), "a/Cargo.lock has failed");
    cargo("echo cargo-deny 0.20.2");
    let done = stage.run(&[".ci/deny"]);
    assert!(done.status.success(), "{}", words(&done));
    // Another version may know another deny.toml.
    cargo("echo cargo-deny 0.1.0");
    stage.run(&[".ci/deny"]);
    let calls = stage.calls();
    assert!(
        calls.contains(&"cargo install --locked cargo-deny@0.20.2".to_owned()),
        "{calls:?}"
    );
}

#[test]
fn a_night_runs_every_test_and_seeds_that_no_other_night_runs() {
    let workflow = fs::read_to_string(repository().join(".github/workflows/nightly.yml")).unwrap();
    assert!(workflow.contains("schedule:") && workflow.contains("run: .ci/nightly"));

    let stage = Stage::set();
    stage.stand_in("cargo", "");
    let first_of = |now: &str| -> u64 {
        stage.stand_in("date", &format!("echo {now}"));
        let done = stage.run(&[".ci/nightly"]);
        assert!(done.status.success(), "{}", words(&done));
        let calls = stage.calls();
        assert!(calls.contains(&"cargo verify-all".to_owned()), "{calls:?}");
        let seeds = calls.last().unwrap();
        let first = seeds.strip_prefix("cargo sim --seeds 1000 --first ");
        first.unwrap_or_else(|| panic!("{seeds}")).parse().unwrap()
    };
    let [night, next] = ["1796000000", "1796086400"].map(first_of);
    assert_eq!(next, night + 1000);
    // Slices have seeds of their own: `tests/simulation.rs`.
    assert!(night > 100_000 + 1_000_000 * 60);
}

/// A copy of what the scripts read, and a folder of stand-ins that is searched first.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            ".ci/assets",
            ".ci/deny",
            ".ci/nightly",
            ".ci/publish",
            ".ci/sbom",
            "charts/kproxide/Chart.yaml",
            "charts/kproxide/values.yaml",
            "tests/packaging/go.mod",
        ] {
            let copy = folder.path().join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(repository().join(file), copy).unwrap();
        }
        fs::create_dir(folder.path().join("programs")).unwrap();
        Self { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A program that writes down how it was called, and then does what a line of shell says.
    fn stand_in(&self, name: &str, does: &str) {
        let calls = self.at("calls");
        let program = self.at("programs").join(name);
        let calls = calls.display();
        let text = format!("#!/bin/sh\necho \"{name} $*\" >>{calls}\n{does}\n");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, command: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap();
        Command::new(self.at(command[0]))
            .args(&command[1..])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.at("programs").display()))
            .env("GITHUB_OUTPUT", self.at("output"))
            .output()
            .unwrap()
    }

    /// But those of `uname`, which asks and does nothing.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let calls = calls.lines().filter(|call| !call.starts_with("uname"));
        calls.map(str::to_owned).collect()
    }

    fn below(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// `.ci/publish` shows it on the page of the release.
#[test]
fn the_changelog_begins_with_the_version_that_comes() {
    let changelog = fs::read_to_string(repository().join(".github/CHANGELOG.md")).unwrap();
    let headings: Vec<_> = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert!(headings[0].starts_with("0.1.0"), "{headings:?}");
}
