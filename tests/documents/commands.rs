//! The commands in the fenced `sh` blocks of the pages. Each is run here, with the script `stand-in` for its program, or
//! is in the table [`ELSEWHERE`].

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::Duration;

use kproxide_testkit::{ControlPlane, Options, Programs, require_controlplane};
use kproxide_verify::slice;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{files, lines, pages, read, root};

/// Commands that this test does not run, as they stand in the pages. Behind each the test that does the same, or a file
/// and what stands there.
const ELSEWHERE: [(&str, &str); 3] = [
    ("cargo demo", "the_demo_runs_on_the_policy_that_it_is_given"),
    ("cargo verify", ".ci/run: cargo verify"),
    (
        "cargo image",
        "the_archive_is_an_image_to_oci_and_to_docker_by_the_charts_name",
    ),
];

/// A slice runs one of so many.
const PARTS: u64 = 4;

const HELP: &str = "A command of a page must run: with kubectl and helm on a real API server, with a kproxide that knows \
its flags, or by ssh as one of Proxmox's own (tests/documents/stand-in). Does it need an object, or a file that a command \
before it makes? Place in tests/documents/commands.rs makes these. Does another test run it? Then add it to ELSEWHERE \
there, with the name of that test";

/// What stands in capitals for a name of the reader's.
const NAMES: [(&str, &str); 4] = [
    ("POD", "web"),
    ("NODE", "default-alpha"),
    ("CLAIM", "default-alpha"),
    ("NAME", "default"),
];

/// Proxmox's programs, as they are called on its servers.
const STAND_INS: [&str; 12] = [
    "kubectl",
    "helm",
    "kproxide",
    "ssh",
    "scp",
    "qm",
    "pveum",
    "pvesh",
    "pvecm",
    "pvenode",
    "pvesm",
    "ha-manager",
];

/// The commands of a page, with their places.
fn commands(page: &str, text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for (number, fence, line) in lines(text) {
        let line = line.trim();
        if fence != Some("sh") || line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (part, continued) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, line.ends_with('|') || line.ends_with("&&")),
        };
        match commands.last_mut().filter(|_| goes_on) {
            Some((_, command)) => *command = format!("{command} {part}"),
            None => commands.push((format!("{page}:{number}"), part.to_owned())),
        }
        goes_on = continued;
    }
    commands
}

/// Whose commands are looked at. Those of `policies/README.md` and of the examples of policies build something, each in a
/// folder of its own: `tests/e2e/languages.rs` types them all.
fn is_for_users(page: &str) -> bool {
    let folders = ["examples/", "charts/"];
    let is_of_policies = page.starts_with("examples/policies/");
    page == "README.md"
        || (folders.iter().any(|folder| page.starts_with(folder)) && !is_of_policies)
}

/// What is wrong with the table.
fn table_problems(
    table: &[(&str, &str)],
    commands: &[(String, String)],
    is_there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (command, place) in table {
        if !commands.iter().any(|(_, written)| written == command) {
            problems.push(format!(
                "no page has `{command}` any more: take it out of ELSEWHERE"
            ));
        }
        if !is_there(place) {
            problems.push(format!("`{command}`: there is no {place}"));
        }
    }
    problems
}

/// Whether a test of this name is in the sources, or these words behind the name of a file are in it.
fn is_there(sources: &str, place: &str) -> bool {
    match place.split_once(": ") {
        Some((file, words)) => read(file).contains(words),
        None => sources.contains(&format!("fn {place}()")),
    }
}

fn for_names(command: &str) -> String {
    let letter = |at: char| at.is_ascii_alphanumeric() || at == '_';
    let mut command = command.to_owned();
    for (word, name) in NAMES {
        let mut from = 0;
        while let Some(at) = command[from..].find(word).map(|at| at + from) {
            let is_word =
                !command[..at].ends_with(letter) && !command[at + word.len()..].starts_with(letter);
            let with = if is_word { name } else { word };
            command.replace_range(at..at + word.len(), with);
            from = at + with.len();
        }
    }
    command
}

/// A folder like that of the reader's, and a cluster with what the pages speak of.
struct Place {
    cluster: ControlPlane,
    programs: Programs,
    folder: TempDir,
}

impl Place {
    async fn new(programs: Programs) -> Self {
        let options = Options {
            kwok: false,
            ..Options::default()
        };
        let cluster = ControlPlane::start(&programs, options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for name in ["charts", "examples", "tests"] {
            symlink(root().join(name), at(name)).unwrap();
        }
        // What the commands before it would have made.
        fs::create_dir(at("kproxide")).unwrap();
        symlink(
            root().join("examples/values/minimal.yaml"),
            at("kproxide/values.yaml"),
        )
        .unwrap();
        let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: kproxide}}";
        fs::write(at("kproxide/secrets.yaml"), namespace).unwrap();
        fs::create_dir(at("bin")).unwrap();
        for name in STAND_INS {
            let stand_in = root().join("tests/documents/stand-in");
            symlink(stand_in, at("bin").join(name)).unwrap();
        }
        symlink("/usr/bin/date", at("bin/date")).unwrap();
        let place = Place {
            cluster,
            programs,
            folder,
        };
        place.fill().await;
        place
    }

    async fn fill(&self) {
        let chart = root().join("charts/kproxide").display().to_string();
        let values = root().join("examples/values/minimal.yaml");
        let values = values.display().to_string();
        let given = [&*chart, "--namespace=kproxide", "--values", &values];
        let first = [
            "install",
            "kproxide",
            "--create-namespace",
            "--set=crds.hook=false",
        ];
        self.cluster
            .helm(&[&first, &given[..]].concat())
            .await
            .unwrap();
        // There is something to roll back.
        let second = ["upgrade", "kproxide", "--set=crds.hook=false"];
        self.cluster
            .helm(&[&second, &given[..]].concat())
            .await
            .unwrap();
        // Helm removes its Job when that has succeeded. Here nobody runs it.
        let job = ["template", "kproxide", "--show-only=templates/crds.yaml"];
        let hook = self
            .programs
            .helm(&[&job, &given[..]].concat())
            .await
            .unwrap();
        let apply = ["apply", "--filename", "-"];
        self.cluster
            .kubectl_with_input(&apply, &hook)
            .await
            .unwrap();
        for object in objects() {
            let text = object.to_string();
            self.cluster
                .kubectl_with_input(&apply, &text)
                .await
                .unwrap();
        }
    }

    /// Runs a command as the reader would.
    ///
    /// # Errors
    /// What it said, if it did not end well.
    async fn run(&self, command: &str) -> Result<(), String> {
        let bin = self.folder.path().join("bin");
        let ended = Command::new("/bin/bash")
            .args(["-euo", "pipefail", "-c", &for_names(command)])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", bin)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.cluster.admin_kubeconfig_path())
            .env("CONTROLPLANE", self.programs.path())
            .env("KPROXIDE", env!("CARGO_BIN_EXE_kproxide"))
            .env("SETUP", root().join("examples/proxmox/setup.sh"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        let output = ended.map_err(|_| "no end within 60 s".to_owned())?.unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// A pod, a Node, a machine and the books: what the chart does not make.
fn objects() -> Vec<Value> {
    let of_ours = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1",
            "kind": kind,
            "metadata": { "name": name },
            "spec": spec,
        })
    };
    let claim = json!({
        "class": "default", "cluster": "proxmox", "hypervisor": "pve1", "instanceType": "medium", "pool": "default",
        "vmName": "default-alpha", "vmid": 20_000, "policyDigest": "0", "templateDigest": "0",
        "resources": { "milliCores": 2_000, "memoryBytes": 4_294_967_296_u64 },
    });
    let secret = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name, "namespace": "kproxide" },
            "stringData": { "key": "0" },
        })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "default-alpha" } }),
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "containers": [{ "name": "web", "image": "web" }] },
        }),
        of_ours("NodeClaim", "default-alpha", claim),
        of_ours("Ledger", "kproxide", json!({})),
        secret("kproxide-ownership-key"),
        secret("proxmox"),
        secret("proxmox-credentials"),
        secret("join"),
    ]
}

/// Those of all pages, with their places.
fn all_commands() -> Vec<(String, String)> {
    let mut pages = pages();
    pages.retain(|page| is_for_users(page));
    let commands: Vec<(String, String)> = pages
        .iter()
        .flat_map(|page| commands(page, &read(page)))
        .collect();
    assert!(pages.len() >= 10 && commands.len() >= 60, "{commands:?}");
    commands
}

#[test]
fn each_command_that_does_not_run_here_names_the_test_that_runs_it() {
    let sources: String = files("tests")
        .into_iter()
        .chain(files("host"))
        .filter(|file| file.ends_with(".rs"))
        .map(|file| read(&file))
        .collect();
    let problems = table_problems(&ELSEWHERE, &all_commands(), |place| {
        is_there(&sources, place)
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// All of them, or a quarter in a slice.
#[tokio::test]
#[ignore = "tier: documents"]
async fn each_command_of_the_pages_runs() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let place = Place::new(programs).await;
    // A command that stands in several places runs once.
    let commands = all_commands();
    let mut run: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, command) in &commands {
        if !ELSEWHERE.iter().any(|(elsewhere, _)| elsewhere == command) {
            run.entry(command).or_insert(at);
        }
    }
    if let Some(number) = slice::number() {
        run.retain(|command, _| slice::holds("", command, number, PARTS));
    }
    let mut problems = Vec::new();
    for (command, at) in run {
        if let Err(said) = place.run(command).await {
            problems.push(format!("{at}: `{command}`: {}", said.trim()));
        }
    }
    // The same way finds what does not work.
    for wrong in [
        "kubectl get nosuchthing",
        "kubectl annotate nodepool nosuch kproxide.dev/pause=true",
        "kubectl create namespace a b",
        "kubectl logs --namespace kproxide job/nosuch",
        "kubectl exec --namespace kproxide deployment/kproxide -- /bin/sh",
        "kubectl exec --namespace kproxide deployment/kproxide -- /kproxide nosuch",
        "helm history nosuch --namespace kproxide",
        "helm upgrade kproxide charts/kproxide --namespace kproxide --set nosuch=1",
        "kproxide doctor --nosuch",
        "kproxide plan --add-type",
        "ssh root@pve1 ./setup.sh --nosuch",
        "ssh root@pve1 reboot",
        "ssh pve1 qm list",
        "scp nosuch root@pve1:",
        "kubectl get nodes | nosuch",
        "nosuch && kubectl get nodes",
    ] {
        assert!(place.run(wrong).await.is_err(), "{wrong}");
    }
    assert!(problems.is_empty(), "{}\n\n{HELP}", problems.join("\n"));
    place.cluster.stop().await;
}

#[test]
fn a_row_too_many_and_a_test_that_is_gone_are_found() {
    let page = "\
```sh
# A comment.
cargo one \\
  --two
kubectl get nodes |
  sort
```
1. In a list:

   ```sh
   cargo two && cargo three
   ```
```text
cargo four
```
";
    let written = commands("a.md", page);
    let of = |at: &str, command: &str| (format!("a.md:{at}"), command.to_owned());
    assert_eq!(
        written,
        [
            of("3", "cargo one  --two"),
            of("5", "kubectl get nodes | sort"),
            of("11", "cargo two && cargo three"),
        ]
    );
    let is_there = |place: &str| is_there("fn works() {}\nfn walks(a: u8) {}", place);
    let table = |rows: &[(&str, &str)]| table_problems(rows, &written, is_there);
    assert_eq!(
        table(&[
            ("cargo one  --two", "works"),
            ("cargo two && cargo three", ".ci/run: cargo verify"),
        ]),
        Vec::<String>::new()
    );
    assert_eq!(
        table(&[
            ("cargo four", "works"),
            ("cargo one  --two", "walks"),
            ("cargo two && cargo three", ".ci/run: cargo nothing"),
        ]),
        [
            "no page has `cargo four` any more: take it out of ELSEWHERE",
            "`cargo one  --two`: there is no walks",
            "`cargo two && cargo three`: there is no .ci/run: cargo nothing",
        ]
    );
    assert_eq!(
        for_names("kubectl annotate nodepool NAME key=NODE,NODES POD"),
        "kubectl annotate nodepool default key=default-alpha,NODES web"
    );
}
