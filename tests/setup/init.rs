//! `kproxide init` as a process, with what `setup.sh` has made and printed, on a simulated Proxmox and Kubernetes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use kproxide_simulator::pve::topology::Version;
use kproxide_testkit::{free_port, require_controlplane};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::books::FINGERPRINT;
use crate::life::{SOON, kproxide};
use crate::world::World;
use crate::{bare, repository};

/// A bootstrap token of kubeadm, whose secret half nobody may show.
const JOIN_TOKEN: &str = "zyxwvu.9876543210zyxwvu";

/// How `init` ended.
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    err: String,
}

impl Told {
    pub(crate) fn all(&self) -> String {
        format!("{}\n{}", self.out, self.err)
    }
}

pub(crate) async fn init(flags: &[String], input: &str) -> Told {
    init_in(flags, input, &[]).await
}

/// The same, with these variables in its environment.
async fn init_in(flags: &[String], input: &str, environment: &[(&str, &str)]) -> Told {
    let arguments: Vec<&str> = ["init", "--non-interactive"]
        .into_iter()
        .chain(flags.iter().map(String::as_str))
        .collect();
    let mut child = kproxide(&arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A run that reads nothing may be over before.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(SOON, child.wait_with_output());
    let ended = ended.await.unwrap().unwrap();
    Told {
        code: ended.status.code().unwrap(),
        out: String::from_utf8(ended.stdout).unwrap(),
        err: String::from_utf8(ended.stderr).unwrap(),
    }
}

pub(crate) fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

fn yaml(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What `--help` lists as printed by `setup.sh`.
async fn flags_that_setup_prints() -> Vec<String> {
    let help = kproxide(&["init", "-h"]).output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, rest) = help.split_once("\nWhat setup.sh prints:\n").unwrap();
    let (part, _) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let lines = part.lines().map(str::trim);
    let flags = lines.filter_map(|line| line.strip_prefix("--"));
    let names = flags.filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// With each printed value as the flag of its name, and nothing else about Proxmox.
#[tokio::test]
async fn what_setup_prints_is_what_init_asks_for_and_the_folder_is_all_that_the_chart_needs() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let mut asked = flags_that_setup_prints().await;
    asked.sort();
    let mut printed: Vec<String> = world.printed.keys().cloned().collect();
    let secret = printed.iter_mut().find(|key| *key == "token-secret");
    secret.unwrap().push_str("-file");
    assert_eq!(asked, printed);

    let out = world.path("out");
    let kubeconfig = world.kubeconfig();
    let more = owned(&["--kubeconfig", &kubeconfig, "--join-token-file", "-"]);
    let flags = [
        world.flags(None),
        more,
        owned(&["--out"]),
        vec![out.display().to_string()],
    ];
    let told = init(&flags.concat(), &format!("{JOIN_TOKEN}\n")).await;
    assert_eq!(told.code, 0, "{}", told.all());

    // The second server is known from the first one.
    let member = &world.served.member_wires[0];
    let values = yaml(&out.join("values.yaml")).remove(0);
    let expected = json!({
        "clusters": {"proxmox": {
            "credentials": {"existingSecret": "proxmox-credentials"},
            "spec": {
                "endpoints": [world.served.pve_wire.url(), member.url()],
                "tls": {"fingerprints": [world.served.pve_wire.fingerprint(), member.fingerprint()]},
            },
        }},
        "nodeClasses": {"default": {
            "joinScript": {"existingSecret": "join"},
            "spec": {"template": {"name": "k8s-node", "placement": "local"}},
        }},
        "nodePools": {"default": {}},
        "image": {"pullPolicy": "Never", "architectures": ["amd64"]},
    });
    assert_eq!(values, expected);

    let secrets = out.join("secrets.yaml");
    let mode = fs::metadata(&secrets).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let objects = yaml(&secrets);
    let named: Vec<String> = objects
        .iter()
        .map(|it| format!("{} {}", it["kind"], it["metadata"]["name"]).replace('"', ""))
        .collect();
    assert_eq!(
        named,
        [
            "Namespace kproxide",
            "Secret proxmox-credentials",
            "Secret join"
        ]
    );
    let secret = &world.printed["token-secret"];
    assert_eq!(objects[1]["stringData"]["token-secret"], json!(secret));
    // The token goes to these servers alone.
    let allowed = objects[1]["stringData"]["endpoints"].as_str().unwrap();
    let spec = &values["clusters"]["proxmox"]["spec"];
    let lines = [&spec["endpoints"], &spec["tls"]["fingerprints"]];
    let lines = lines.iter().flat_map(|of| of.as_array().unwrap());
    let lines: Vec<&str> = lines.map(|line| line.as_str().unwrap()).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    assert_eq!(allowed.lines().collect::<Vec<_>>(), lines);
    let api = world.served.kube.as_ref().unwrap().wire.address();
    let script = objects[2]["stringData"]["command"].as_str().unwrap();
    for line in [
        format!("server='{api}'"),
        format!("token='{JOIN_TOKEN}'"),
        "version='v1.36'".to_owned(),
    ] {
        assert!(script.contains(&format!("\n{line}\n")), "{line}: {script}");
    }

    // No secret is anywhere else.
    let page = fs::read_to_string(out.join("README.md")).unwrap();
    let values = fs::read_to_string(out.join("values.yaml")).unwrap();
    for text in [&told.out, &told.err, &page, &values] {
        for secret in [&**secret, JOIN_TOKEN, "9876543210zyxwvu"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let (_, doctor) = told.out.split_once("What doctor finds:").unwrap();
    assert!(!doctor.contains("kubectl patch secret"), "{doctor}");
    assert!(doctor.contains(", warnings 0, errors 0\n"), "{doctor}");
    assert!(
        doctor.contains("NodeClass/default: join script"),
        "{doctor}"
    );
    for command in [
        format!(
            "kubectl --kubeconfig {kubeconfig} apply -f {}",
            secrets.display()
        ),
        format!("kproxide doctor --kubeconfig {kubeconfig}"),
    ] {
        let line = format!("\n{command}\n");
        assert!(page.contains(&line), "{page}");
        assert!(told.out.contains(&format!("  {command}\n")), "{}", told.out);
    }

    if let Some(programs) = require_controlplane() {
        let chart = repository("charts/kproxide").display().to_string();
        let values = out.join("values.yaml").display().to_string();
        let rendered = programs
            .helm(&[
                "template",
                "kproxide",
                &chart,
                "--namespace",
                "kproxide",
                "--values",
                &values,
            ])
            .await
            .unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
        let cluster = objects.iter().find(|it| it["kind"] == "ProxmoxCluster");
        assert_eq!(
            cluster.unwrap()["spec"]["endpoints"],
            expected["clusters"]["proxmox"]["spec"]["endpoints"]
        );
        assert!(rendered.contains("proxmox-credentials"), "{rendered}");
    }
}

#[tokio::test]
async fn two_proxmox_clusters_are_two_secrets_and_each_keeps_its_own_choices() {
    let home = World::prepared(bare(Version::V9), &["--vmid-range", "500-599"]).await;
    let away = World::prepared(bare(Version::V8), &["--pool", "machines"]).await;
    let (out, kubeconfig) = (home.path("out"), home.kubeconfig());
    // The authority of all servers takes the place of their fingerprints.
    let authority = away.path("ca.pem");
    fs::write(&authority, away.served.pve_wire.ca_pem()).unwrap();
    let mut of_away = away.flags(Some("away"));
    let at = of_away
        .iter()
        .position(|flag| flag == "--fingerprint")
        .unwrap();
    of_away.drain(at..at + 2);
    let at = of_away
        .iter()
        .position(|flag| flag == "--template")
        .unwrap();
    of_away.drain(at..at + 2);
    of_away.extend(owned(&[
        "--ca-file",
        &format!("away={}", authority.display()),
    ]));
    let more = owned(&[
        "--server=home=pve2",
        "--join=itself",
        "--image=registry",
        "--namespace=machines",
        "--kubeconfig",
        &kubeconfig,
        "--out",
        &out.display().to_string(),
    ]);
    let told = init(&[home.flags(Some("home")), of_away, more].concat(), "").await;
    assert_eq!(told.code, 0, "{}", told.all());
    let endpoints = |world: &World| {
        json!([
            world.served.pve_wire.url(),
            world.served.member_wires[0].url()
        ])
    };
    let values = yaml(&out.join("values.yaml")).remove(0);
    let expected = json!({
        "clusters": {
            "away": {
                "credentials": {"existingSecret": "away-credentials"},
                "caConfigMap": {"name": "away-ca", "key": "ca.crt"},
                "spec": {"endpoints": endpoints(&away), "pool": "machines"},
            },
            "home": {
                "credentials": {"existingSecret": "home-credentials"},
                "spec": {
                    "endpoints": endpoints(&home),
                    "tls": {"fingerprints": [
                        home.served.pve_wire.fingerprint(), home.served.member_wires[0].fingerprint(),
                    ]},
                    "vmidRange": {"first": 500, "last": 599},
                    "hypervisors": {"include": ["pve2"]},
                },
            },
        },
        "nodeClasses": {"default": {"spec": {"template": {"name": "k8s-node", "placement": "local"}}}},
        "nodePools": {"default": {}},
    });
    assert_eq!(values, expected);
    let objects = yaml(&out.join("secrets.yaml"));
    let of_kind = |kind: &str| {
        let found = objects.iter().filter(|it| it["kind"] == kind);
        let names = found.map(|it| it["metadata"]["name"].as_str().unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(of_kind("Namespace"), ["machines"]);
    assert_eq!(of_kind("Secret"), ["away-credentials", "home-credentials"]);
    assert_eq!(of_kind("ConfigMap"), ["away-ca"]);
    let (_, doctor) = told.out.split_once("What doctor finds:").unwrap();
    assert!(doctor.contains(", warnings 0, errors 0\n"), "{doctor}");
    if let Some(programs) = require_controlplane() {
        let chart = repository("charts/kproxide").display().to_string();
        let values = out.join("values.yaml").display().to_string();
        let command = [
            "template",
            "kproxide",
            &chart,
            "--namespace",
            "machines",
            "--values",
            &values,
        ];
        let rendered = programs.helm(&command).await.unwrap();
        for name in ["home-credentials", "away-credentials", "away-ca"] {
            assert!(rendered.contains(name), "{name}: {rendered}");
        }
    }
}

/// Without a flag.
fn without(flags: &[String], flag: &str) -> Vec<String> {
    let mut flags = flags.to_vec();
    let at = flags.iter().position(|it| it == flag).unwrap();
    flags.drain(at..at + 2);
    flags
}

/// With another value.
fn with(flags: &[String], flag: &str, value: &str) -> Vec<String> {
    let mut flags = without(flags, flag);
    flags.extend([flag.to_owned(), value.to_owned()]);
    flags
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_nobody_vouches_for_and_what_is_missing_names_its_flag() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let out = world.path("out");
    let kubeconfig = world.kubeconfig();
    let token = world.secret("join-token", JOIN_TOKEN);
    let more = owned(&["--kubeconfig", &kubeconfig, "--join-token-file", &token]);
    let place = vec!["--out".to_owned(), out.display().to_string()];
    let all = [world.flags(None), more, place].concat();
    let fingerprint = world.served.pve_wire.fingerprint();
    let wrong_secret = world.secret("wrong", "5ec4e700-0000-4000-8000-999999999999");
    let elsewhere = format!("https://127.0.0.1:{}", free_port().unwrap());
    let file = world.secret("wrong-token", "two words");
    // Nobody is there.
    let url = world.served.kube.as_ref().unwrap().wire.url();
    let silent = fs::read_to_string(&kubeconfig).unwrap();
    let silent = world.secret("silent", &silent.replace(&url, &elsewhere));
    for (flags, code, says) in [
        (without(&all, "--fingerprint"), 2, "give --fingerprint"),
        (without(&all, "--fingerprint"), 2, fingerprint),
        (with(&all, "--fingerprint", FINGERPRINT), 4, fingerprint),
        (with(&all, "--fingerprint", FINGERPRINT), 4, FINGERPRINT),
        (with(&all, "--fingerprint", "AA:BB"), 2, "--fingerprint"),
        (without(&all, "--endpoint"), 2, "give --endpoint"),
        (
            with(&all, "--endpoint", "http://pve1"),
            2,
            "--endpoint http://pve1",
        ),
        (with(&all, "--endpoint", &elsewhere), 4, &elsewhere),
        (without(&all, "--token-id"), 2, "give --token-id"),
        (with(&all, "--token-id", "root"), 2, "user@realm!name"),
        (
            without(&all, "--token-secret-file"),
            2,
            "give --token-secret-file",
        ),
        (
            with(&all, "--token-secret-file", &wrong_secret),
            4,
            "refused the credentials",
        ),
        (
            with(&all, "--pool", "other"),
            2,
            "--pool other: there is only kproxide",
        ),
        (with(&all, "--vmid-range", "9-1"), 2, "--vmid-range 9-1"),
        (
            with(&all, "--template", "other"),
            2,
            "--template other: there is only k8s-node",
        ),
        (
            without(&all, "--join-token-file"),
            2,
            "give --join-token-file",
        ),
        (with(&all, "--join-token-file", &file), 2, "no token"),
        (
            [&all[..], &owned(&["--join=k3s"])].concat(),
            2,
            "another distribution",
        ),
        (
            [&all[..], &owned(&["--server=pve9"])].concat(),
            2,
            "one of: pve1, pve2",
        ),
        (
            [&all[..], &owned(&["--storage=nfs"])].concat(),
            2,
            "--storage nfs",
        ),
        (
            with(&all, "--kubeconfig", &silent),
            3,
            "Kubernetes does not answer",
        ),
        (
            with(&all, "--kubeconfig", &format!("{kubeconfig}.none")),
            2,
            "kubeconfig",
        ),
    ] {
        let told = init(&flags, "").await;
        assert_eq!(told.code, code, "{says}: {}", told.all());
        assert!(told.err.contains(says), "{says}: {}", told.all());
        assert!(
            !told.all().contains(&world.printed["token-secret"]),
            "{says}"
        );
        assert!(!told.all().contains("two words"), "{says}");
        assert!(!out.exists(), "{says}");
    }
}

#[tokio::test]
async fn o22_a_run_that_may_not_ask_names_all_that_is_missing_at_once() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let out = world.path("out");
    let place = owned(&[
        "--kubeconfig",
        &world.kubeconfig(),
        "--out",
        &out.display().to_string(),
    ]);
    let flags = ["--fingerprint", "--token-id", "--token-secret-file"];
    let told = init(&place, "").await;
    assert_eq!(told.code, 2, "{}", told.all());
    for flag in flags.iter().chain(&["--endpoint", "--join-token-file"]) {
        let line = format!(": give {flag}");
        assert!(told.err.contains(&line), "{flag}: {}", told.err);
    }
    // The certificate is seen before anybody is told what is missing.
    let endpoint = owned(&["--endpoint", world.served.pve_wire.url().as_str()]);
    let told = init(&[place, endpoint].concat(), "").await;
    assert_eq!(told.code, 2, "{}", told.all());
    for flag in flags {
        assert!(told.err.contains(&format!("give {flag}")), "{}", told.err);
    }
    let fingerprint = world.served.pve_wire.fingerprint();
    assert!(told.err.contains(fingerprint), "{}", told.err);
    assert!(!told.err.contains("--endpoint"), "{}", told.err);
    assert!(!out.exists());
}

#[tokio::test]
async fn o19_without_a_kubeconfig_it_names_those_of_k3s_and_rke2() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().display().to_string();
    let told = init_in(&[], "", &[("HOME", &home)]).await;
    assert_eq!(told.code, 2, "{}", told.all());
    for says in [
        format!("there is no kubeconfig {home}/.kube/config: give --kubeconfig FILE").as_str(),
        "/etc/rancher/k3s/k3s.yaml",
        "/etc/rancher/rke2/rke2.yaml",
        "give --endpoint",
    ] {
        assert!(told.err.contains(says), "{says}: {}", told.err);
    }
}

/// Flags for the folder `out`, of a run that ends well.
fn folder(world: &World, kubeconfig: &str) -> Vec<String> {
    let out = world.path("out").display().to_string();
    owned(&["--kubeconfig", kubeconfig, "--join=itself", "--out", &out])
}

#[tokio::test]
async fn where_a_public_authority_vouches_nobody_has_to_confirm() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let more = folder(&world, &world.kubeconfig());
    let flags = [without(&world.flags(None), "--fingerprint"), more].concat();
    // The public authorities of this computer, as far as the program is concerned.
    let authorities = world.path("authorities.pem");
    fs::write(&authorities, world.served.pve_wire.ca_pem()).unwrap();
    let authorities = authorities.display().to_string();
    let told = init_in(&flags, "", &[("SSL_CERT_FILE", &authorities)]).await;
    assert_eq!(told.code, 0, "{}", told.all());
    assert!(
        told.out.contains("a public authority vouches"),
        "{}",
        told.out
    );
    assert!(
        told.out.contains(", warnings 0, errors 0\n"),
        "{}",
        told.out
    );
    let values = yaml(&world.path("out/values.yaml")).remove(0);
    let member = world.served.member_wires[0].url();
    assert_eq!(
        values["clusters"]["proxmox"]["spec"],
        json!({"endpoints": [world.served.pve_wire.url(), member]})
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_with_the_certificate_of_its_cluster_is_no_endpoint() {
    for is_gone in [true, false] {
        let mut world = World::prepared(bare(Version::V9), &[]).await;
        let (pve, other) = (&world.served.pve, FINGERPRINT);
        let why = match is_gone {
            true => {
                world.served.member_wires.clear();
                "cannot connect"
            }
            false => {
                pve.set_served("pve2", Some("127.0.0.2".to_owned()), other);
                other
            }
        };
        let more = folder(&world, &world.kubeconfig());
        let told = init(&[world.flags(None), more].concat(), "").await;
        assert_eq!(told.code, 0, "{}", told.all());
        let mut lines = told.out.lines();
        let note = lines.find(|line| line.starts_with("pve2 is no endpoint"));
        assert!(note.is_some_and(|note| note.contains(why)), "{}", told.out);
        let wire = &world.served.pve_wire;
        let values = yaml(&world.path("out/values.yaml")).remove(0);
        assert_eq!(
            values["clusters"]["proxmox"]["spec"],
            json!({"endpoints": [wire.url()], "tls": {"fingerprints": [wire.fingerprint()]}})
        );
    }
}

#[tokio::test]
async fn files_are_written_over_with_force_alone() {
    let world = World::prepared(bare(Version::V9), &[]).await;
    let out = world.path("out");
    let kubeconfig = world.kubeconfig();
    let place = out.display().to_string();
    let more = owned(&[
        "--kubeconfig",
        &kubeconfig,
        "--join=itself",
        "--out",
        &place,
    ]);
    let all = [world.flags(None), more].concat();
    let first = init(&all, "").await;
    assert_eq!(first.code, 0, "{}", first.all());
    let secrets = out.join("secrets.yaml");
    // As a careless copy would leave it.
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read_to_string(&secrets).unwrap();
    let elsewhere = [&all[..], &owned(&["--namespace=other"])].concat();
    let refused = init(&elsewhere, "").await;
    assert_eq!(refused.code, 2, "{}", refused.all());
    assert!(refused.err.contains("give --force"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&secrets).unwrap(), before);
    fs::write(out.join("notes"), "mine").unwrap();
    let forced = init(&[&elsewhere[..], &owned(&["--force"])].concat(), "").await;
    assert_eq!(forced.code, 0, "{}", forced.all());
    assert!(fs::read_to_string(&secrets).unwrap().contains("other"));
    let mode = fs::metadata(&secrets).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_to_string(out.join("notes")).unwrap(), "mine");
}
