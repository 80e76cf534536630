//! `examples/proxmox/setup.sh` on the servers of a simulated Proxmox cluster, with Proxmox's programs as stand-ins.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod books;
mod cluster;
mod init;
mod life;
mod prompts;
mod removal;
mod steps;
mod table;
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kproxide_simulator::clock::Clock;
use kproxide_simulator::pve::topology::{Version, VmSpec};
use kproxide_simulator::pve::{Pve, Topology};
use serde_json::{Value, json};

use crate::books::{FINGERPRINT, Rights};
use crate::cluster::{Cluster, Ended};

const LOCAL: [&str; 2] = ["--storage", "local-lvm"];
const GIB: u64 = 1 << 30;

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Two servers as Proxmox's installer leaves them, with a shared storage.
fn bare(version: Version) -> Topology {
    Topology {
        vms: Vec::new(),
        pools: Vec::new(),
        users: Vec::new(),
        acl: Vec::new(),
        version,
        ..Topology::of(2).instant()
    }
}

fn cluster(topology: Topology) -> Cluster {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let pve = Pve::new(topology.clone(), clock, 1);
    let cluster = Cluster::new(pve, &topology);
    cluster.books().tell_simulation();
    cluster
}

/// Name and server of each template, by number.
fn templates(cluster: &Cluster) -> BTreeMap<u32, (String, String)> {
    let vms = cluster.pve.snapshot().vms.into_iter();
    vms.filter(|vm| vm.template)
        .map(|vm| (vm.vmid, (vm.name, vm.hypervisor)))
        .collect()
}

fn template_on(server: &str) -> (String, String) {
    ("k8s-node".to_owned(), server.to_owned())
}

/// The token that a run has printed, as Proxmox takes it.
fn token(ended: &Ended) -> String {
    let value = |key: &str| {
        let mut lines = ended.out.lines();
        let value = lines.find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        value
            .unwrap_or_else(|| panic!("{key}: {}", ended.out))
            .to_owned()
    };
    format!("{}={}", value("token-id"), value("token-secret"))
}

fn succeeded(ended: Ended) -> Ended {
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    ended
}

fn refused(ended: &Ended, says: &str) {
    assert_eq!(ended.code, 1, "{}\n{}", ended.out, ended.err);
    assert!(ended.err.contains(says), "{}", ended.err);
    assert_eq!(ended.changes(), Vec::<String>::new());
}

/// What the token of a kproxide needs, by path, with the machines' privileges left out.
fn rights(machines: &Value, templates: &[&str], storage: &str) -> Value {
    let mut rights = json!({
        "/": {"Sys.Audit": 0},
        "/nodes": {"Sys.Audit": 1}, "/nodes/pve1": {"Sys.Audit": 1}, "/nodes/pve2": {"Sys.Audit": 1},
        "/pool/kproxide": machines,
        "/sdn/zones/localnetwork/vmbr0": {"SDN.Use": 1},
    });
    rights[format!("/storage/{storage}")] =
        json!({"Datastore.AllocateSpace": 1, "Datastore.Audit": 1});
    for template in templates {
        rights[format!("/vms/{template}")] = json!({"VM.Audit": 1, "VM.Clone": 1});
    }
    rights
}

fn machines(agent: &[&str]) -> Value {
    let always = [
        "Pool.Audit",
        "VM.Allocate",
        "VM.Audit",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        "VM.Config.HWType",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.PowerMgmt",
    ];
    always
        .iter()
        .chain(agent)
        .map(|name| (*name, 1))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .collect()
}

#[tokio::test]
async fn a_first_run_makes_a_template_on_each_server_and_a_token_with_exactly_its_rights() {
    for (version, more, agent) in [
        (
            Version::V9,
            None,
            &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"][..],
        ),
        (Version::V8, None, &["VM.Monitor"]),
        (Version::V9, Some("first-boot"), &["VM.GuestAgent.Audit"]),
    ] {
        let cluster = cluster(bare(version));
        let script = cluster.folder.path().join("join.sh");
        std::fs::write(&script, "").unwrap();
        let script = script.display().to_string();
        let first_boot = ["--first-boot", &script];
        let arguments: Vec<&str> = LOCAL
            .into_iter()
            .chain(first_boot.into_iter().filter(|_| more.is_some()))
            .collect();
        let ended = succeeded(cluster.setup("pve1", &arguments).await);
        let made = [(9001, template_on("pve1")), (9002, template_on("pve2"))];
        assert_eq!(templates(&cluster), made.into());
        // Where the token may go, for a Secret that somebody makes by hand.
        let (_, allowed) = ended
            .out
            .split_once("these are the lines of that key:\n")
            .unwrap();
        let allowed: Vec<&str> = allowed.lines().take(2).map(str::trim).collect();
        let servers = ["10.99.0.1", "10.99.0.2"];
        assert_eq!(
            allowed,
            servers.map(|it| format!("{it}:8006 {}", FINGERPRINT))
        );
        // The image is prepared once and sent on.
        assert_eq!(
            (ended.count("virt-customize"), ended.count("scp")),
            (1, 1),
            "{:?}",
            ended.calls
        );
        let customized = ended
            .calls
            .iter()
            .find(|(_, call)| call.command == "virt-customize")
            .unwrap();
        assert_eq!(customized.1.option("install"), "qemu-guest-agent,curl");
        assert_eq!(
            customized.1.option("firstboot"),
            more.map_or("", |_| &script)
        );
        // Such a token has what both it and its user were granted.
        let separated = |line: &String| {
            line.starts_with("pveum user token add") && line.contains("--privsep 1")
        };
        assert!(ended.changes().iter().any(separated));
        let held = cluster
            .ask(&token(&ended), "/access/permissions")
            .await
            .unwrap();
        assert_eq!(
            held,
            rights(&machines(agent), &["9001", "9002"], "local-lvm")
        );
        for line in [
            "endpoint: https://10.99.0.1:8006".to_owned(),
            format!("fingerprint: {FINGERPRINT}"),
            "pool: kproxide".to_owned(),
            "vmid-range: 20000-20999".to_owned(),
            "template: k8s-node".to_owned(),
        ] {
            assert!(
                ended.out.contains(&format!("\n  {line}\n")),
                "{line}: {}",
                ended.out
            );
        }
    }
}

#[tokio::test]
async fn a_second_run_changes_nothing_and_a_new_server_gets_its_template() {
    let cluster = cluster(bare(Version::V9));
    let first = succeeded(
        cluster
            .setup("pve1", &[&LOCAL[..], &["--server", "pve1"]].concat())
            .await,
    );
    assert_eq!(templates(&cluster), [(9001, template_on("pve1"))].into());
    let second = succeeded(cluster.setup("pve2", &LOCAL).await);
    assert_eq!(templates(&cluster).get(&9002), Some(&template_on("pve2")));
    let made: Vec<String> = second
        .changes()
        .iter()
        .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        made,
        [
            "qm create 9002",
            "qm set 9002",
            "qm set 9002",
            "qm template 9002",
            "pveum acl modify",
            "pveum acl modify"
        ]
    );
    let (rights, world) = (cluster.books().rights.clone(), cluster.pve.snapshot().vms);
    for server in ["pve1", "pve2"] {
        let again = succeeded(cluster.setup(server, &LOCAL).await);
        assert_eq!(again.changes(), Vec::<String>::new());
        assert_eq!(
            (
                again.count("wget"),
                again.count("scp"),
                again.count("virt-customize")
            ),
            (0, 0, 0)
        );
        assert!(again.out.contains("setup.sh --new-token"), "{}", again.out);
        assert!(!again.out.contains(token(&first).split('=').nth(1).unwrap()));
    }
    assert_eq!(
        (cluster.books().rights.clone(), cluster.pve.snapshot().vms),
        (rights, world)
    );
}

/// A dry run prints, in the order of the real one, each of its commands that changes something.
#[tokio::test]
async fn a_dry_run_changes_nothing_and_prints_what_the_real_run_does() {
    let cluster = cluster(bare(Version::V9));
    let dry = succeeded(
        cluster
            .setup("pve1", &[&LOCAL[..], &["--dry-run"]].concat())
            .await,
    );
    assert_eq!(dry.changes(), Vec::<String>::new());
    assert_eq!((dry.count("wget"), dry.count("scp")), (0, 0));
    assert_eq!(cluster.books().rights, Rights::default());
    assert_eq!(templates(&cluster), BTreeMap::new());
    let real = succeeded(cluster.setup("pve1", &LOCAL).await);
    assert_eq!(printed(&dry), real.changes());
    for command in ["wget", "virt-customize", "qemu-img", "scp"] {
        assert!(
            dry.out.contains(&format!("\nwould run: {command} ")),
            "{command}: {}",
            dry.out
        );
    }
    let dry = succeeded(cluster.setup("pve1", &["--dry-run", "--remove"]).await);
    assert_eq!(dry.changes(), Vec::<String>::new());
    let real = succeeded(cluster.setup("pve1", &["--remove"]).await);
    assert_eq!(printed(&dry), real.changes());
}

#[tokio::test]
async fn o18_a_dry_run_says_of_a_secret_that_it_will_be_shown() {
    let cluster = cluster(bare(Version::V9));
    let says = async |more: &[&str], word: &str| {
        let arguments = [&LOCAL[..], &["--dry-run"], more].concat();
        let dry = succeeded(cluster.setup("pve1", &arguments).await);
        let line = format!("\n  token-secret: {word} shown when ");
        assert!(dry.out.contains(&line), "{}", dry.out);
    };
    says(&[], "will be").await;
    succeeded(cluster.setup("pve1", &LOCAL).await);
    says(&[], "was").await;
    says(&["--new-token"], "will be").await;
}

/// The commands of `pveum` and `qm` that a dry run prints, as a call is written.
fn printed(dry: &Ended) -> Vec<String> {
    let lines = dry
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("would run"));
    let commands = lines.map(|line| words_of(line.split_once(": ").unwrap().1));
    let rows = table::rows();
    commands
        .filter(|words| ["pveum", "qm"].contains(&&*words[0]))
        .map(|words| cluster::words(&table::read(&rows, &words).unwrap()))
        .collect()
}

/// The words of a command line, of which some stand in quotes.
fn words_of(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for sign in line.chars() {
        match sign {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            sign => words.last_mut().unwrap().push(sign),
        }
    }
    words
}

#[tokio::test]
async fn where_ssh_fails_it_says_what_to_run_there_and_does_the_rest() {
    for off in [false, true] {
        let cluster = cluster(bare(Version::V9));
        let hold = |there: bool| {
            let mut books = cluster.books();
            let set = if off {
                &mut books.off
            } else {
                &mut books.unreachable
            };
            if there {
                set.insert("pve2".to_owned());
            } else {
                set.clear();
            }
        };
        hold(true);
        let ended = cluster
            .setup("pve1", &[&LOCAL[..], &["--vmid", "300"]].concat())
            .await;
        assert_eq!(ended.code, 1, "{}", ended.out);
        assert_eq!(templates(&cluster), [(300, template_on("pve1"))].into());
        cluster.ask(&token(&ended), "/version").await.unwrap();
        let mut lines = ended.err.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix("./setup.sh "));
        let line = line.unwrap_or_else(|| panic!("{}", ended.err));
        assert_eq!(line, "--local-only --vmid 301 --storage local-lvm");
        let there: Vec<&str> = line.split(' ').collect();
        hold(false);
        succeeded(cluster.setup("pve2", &there).await);
        assert_eq!(templates(&cluster).get(&301), Some(&template_on("pve2")));
        let held = cluster
            .ask(&token(&ended), "/access/permissions?path=/vms/301")
            .await
            .unwrap();
        assert_eq!(held["/vms/301"], json!({"VM.Audit": 1, "VM.Clone": 1}));
        let again = succeeded(cluster.setup("pve1", &LOCAL).await);
        assert_eq!(again.changes(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_shared_storage_holds_one_template_for_all_servers() {
    let cluster = cluster(bare(Version::V9));
    for server in ["pve2", "pve1"] {
        let ended = succeeded(cluster.setup(server, &["--storage", "ceph"]).await);
        assert_eq!(templates(&cluster), [(9001, template_on("pve2"))].into());
        assert_eq!(ended.count("ssh"), 0);
    }
}

#[tokio::test]
async fn a_server_alone_needs_no_ssh_and_its_only_storage_is_taken() {
    let mut topology = bare(Version::V8);
    topology.cluster = None;
    topology.hypervisors.truncate(1);
    topology.storages.retain(|storage| !storage.shared);
    let cluster = cluster(topology);
    let ended = succeeded(cluster.setup("pve1", &[]).await);
    assert_eq!(templates(&cluster), [(9001, template_on("pve1"))].into());
    assert!(
        ended.out.contains("\n  endpoint: https://10.99.0.1:8006\n"),
        "{}",
        ended.out
    );
    assert_eq!(ended.count("ssh"), 0);
}

#[tokio::test]
async fn templates_get_numbers_that_are_free_and_not_of_kproxide() {
    let mut topology = bare(Version::V9);
    topology.vms = [20_000, 20_003]
        .map(|vmid| VmSpec::machine(vmid, "db", "pve2", "local-lvm", GIB))
        .into();
    let cluster = cluster(topology);
    let arguments = ["--vmid", "20000", "--vmid-range", "20001-20002"];
    succeeded(
        cluster
            .setup("pve1", &[&LOCAL[..], &arguments].concat())
            .await,
    );
    let made = [(20_004, template_on("pve1")), (20_005, template_on("pve2"))];
    assert_eq!(templates(&cluster), made.into());
}

#[tokio::test]
async fn a_new_token_takes_the_place_of_the_old_one() {
    let cluster = cluster(bare(Version::V9));
    let first = succeeded(cluster.setup("pve1", &LOCAL).await);
    let second = succeeded(
        cluster
            .setup("pve1", &[&LOCAL[..], &["--new-token"]].concat())
            .await,
    );
    let (old, new) = (token(&first), token(&second));
    assert_ne!(old, new);
    assert_eq!(cluster.ask(&old, "/version").await, Err(401));
    let held = cluster.ask(&new, "/access/permissions").await.unwrap();
    let agent = ["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"];
    assert_eq!(
        held,
        rights(&machines(&agent), &["9001", "9002"], "local-lvm")
    );
}

#[tokio::test]
async fn a_template_that_fails_half_way_is_gone_and_the_secret_is_told() {
    for command in ["qm set", "qm template"] {
        let cluster = cluster(bare(Version::V9));
        cluster.books().fails = Some(command.to_owned());
        let ended = cluster.setup("pve1", &LOCAL).await;
        assert_eq!(ended.code, 1);
        assert_eq!(ended.count("qm create"), 2, "each server is tried");
        assert_eq!(ended.count("qm destroy"), 2);
        cluster.ask(&token(&ended), "/version").await.unwrap();
        cluster.books().fails = None;
        succeeded(cluster.setup("pve1", &LOCAL).await);
        assert_eq!(templates(&cluster).len(), 2);
    }
    // What stops it before it can tell the values.
    let cluster = cluster(bare(Version::V9));
    cluster.books().fails = Some("virt-customize".to_owned());
    let ended = cluster.setup("pve1", &LOCAL).await;
    assert_ne!(ended.code, 0);
    let secret = &cluster.books().rights.users["kproxide@pve"].tokens["autoscaler"]
        .1
        .clone();
    assert!(ended.out.contains(secret), "{}", ended.out);
}

#[tokio::test]
async fn an_image_with_another_checksum_is_not_used() {
    let wrong = "0".repeat(64);
    let other = ["--image", "https://images.example/other.img"];
    for (arguments, says) in [
        (
            vec!["--checksum", &wrong],
            "does not have the checksum 0000",
        ),
        (other.to_vec(), "give --checksum"),
    ] {
        let cluster = cluster(bare(Version::V9));
        let ended = cluster
            .setup("pve1", &[&LOCAL[..], &arguments].concat())
            .await;
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains(says), "{}", ended.err);
        assert_eq!(
            (ended.count("virt-customize"), ended.count("qm create")),
            (0, 0)
        );
    }
}

#[tokio::test]
async fn it_says_what_is_wrong_before_it_changes_anything() {
    let cluster = cluster(bare(Version::V9));
    for (arguments, says) in [
        (&["--no-such", "x"][..], "--no-such is no option"),
        (&["--storage"], "--storage needs a value"),
        (&["pve1"], "pve1 needs a value, or is no option"),
        (&["--vmid", "99"], "--vmid 99: a number from 100"),
        (
            &["--vmid-range", "300-200"],
            "--vmid-range 300-200: the first number",
        ),
        (&["--checksum", "abc"], "--checksum: 64"),
        (
            &["--first-boot", "/no/such"],
            "--first-boot: there is no file /no/such",
        ),
        (
            &["--server", "pve9"],
            "--server pve9: this cluster has pve1 pve2",
        ),
        (&[], "give --storage, one of: ceph local-lvm"),
        (
            &["--storage", "none"],
            "pve1 has no storage none for disk images. It has: ceph local-lvm",
        ),
        (
            &["--storage", "local-lvm", "--bridge", "vmbr9"],
            "pve1 has no bridge vmbr9: give --bridge, one of: vmbr0",
        ),
        (
            &["--local-only", "--storage", "local-lvm"],
            "there is no user kproxide@pve yet",
        ),
    ] {
        refused(&cluster.setup("pve1", arguments).await, says);
    }
    removal::machine(&cluster, 700, "", None);
    cluster
        .pve
        .human_sets(700, "name", Some("k8s-node"))
        .unwrap();
    let ended = cluster.setup("pve2", &LOCAL).await;
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .err
            .contains("VM 700 on pve2 is named k8s-node and is no template"),
        "{}",
        ended.err
    );
    let help = succeeded(cluster.setup("pve1", &["--help"]).await);
    assert!(help.out.starts_with("usage: setup.sh"), "{}", help.out);
}

#[tokio::test]
async fn a_computer_that_is_no_proxmox_server_is_told_so() {
    let cluster = cluster(bare(Version::V9));
    let ended = cluster
        .run("pve1", &LOCAL, &["pveversion", "qm", "pvesh", "pveum"])
        .await;
    refused(&ended, "this is no Proxmox server");
    assert!(
        ended.err.contains("ssh -t root@SERVER ./setup.sh"),
        "{}",
        ended.err
    );
}

/// The commands that people are told to run, in the order in which they stand there.
#[tokio::test]
async fn each_command_of_the_documents_works() {
    let cluster = cluster(bare(Version::V9));
    let mut run = 0;
    // The last one takes everything back.
    for file in [
        "README.md",
        "examples/README.md",
        "examples/manual/troubleshooting.md",
        "examples/manual/permissions.md",
        "examples/manual/operations.md",
    ] {
        let text = std::fs::read_to_string(repository(file)).unwrap();
        for (at, _) in text.match_indices("./setup.sh --") {
            let rest = &text[at + "./setup.sh ".len()..];
            let end = rest.find(['`', '\n']).unwrap();
            let arguments: Vec<&str> = rest[..end].split(' ').collect();
            // Without a storage there is only what removes or shows.
            let arguments = match arguments[..] {
                ["--dry-run"] => [&LOCAL[..], &arguments].concat(),
                _ => arguments,
            };
            succeeded(cluster.setup("pve1", &arguments).await);
            run += 1;
        }
    }
    assert!(run >= 9, "{run}");
    assert_eq!(cluster.books().rights, Rights::default());
}
