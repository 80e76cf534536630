//! `kproxide run` with a folder of files that end, fill or hold up a process that reads them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_testkit::{eventually, free_port};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Api, SOON, create_objects, kproxide, served};

#[path = "../cage/hostile.rs"]
mod files;

/// What the chart's container may use.
const MEMORY_BYTES: u64 = 512 << 20;

/// A process and its children, and theirs.
fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        found.extend(children.flat_map(tree));
    }
    found
}

/// What memory a process and its children use together. They run the same program, whose file counts once.
fn bytes_used(pid: u32) -> u64 {
    let all: Vec<[u64; 3]> = tree(pid).into_iter().filter_map(bytes_of).collect();
    let own = all.iter().map(|[anonymous, shared, _]| anonymous + shared);
    let files = all.iter().map(|[_, _, file]| *file);
    own.sum::<u64>() + files.max().unwrap_or_default()
}

/// Of its own, shared, and of files. A process that is not dumpable shows this to anybody, and its maps to nobody.
fn bytes_of(pid: u32) -> Option<[u64; 3]> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    };
    Some([bytes("RssAnon:")?, bytes("RssShmem:")?, bytes("RssFile:")?])
}

/// The most that a process and its children use until the sender goes.
fn sampled(pid: u32) -> (mpsc::Sender<()>, JoinHandle<u64>) {
    let (stop, stopped) = mpsc::channel::<()>();
    let sampling = std::thread::spawn(move || {
        let mut most = 0;
        while stopped.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
            most = most.max(bytes_used(pid));
        }
        most
    });
    (stop, sampling)
}

/// A command to its end: exit code, all that it says, and the most memory that it and its children have used.
async fn measured(arguments: &[&str]) -> (Option<i32>, String, u64) {
    let mut command = kproxide(arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let (stop, sampling) = sampled(child.id().unwrap());
    let ended = child.wait_with_output();
    let ended = tokio::time::timeout(SOON, ended).await.unwrap().unwrap();
    drop(stop);
    let all = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    (ended.status.code(), all, sampling.join().unwrap())
}

/// A file of 2 KB took 24 GB, one of 60 KB ended the process, one of 53 KB had no answer in 90 s.
#[tokio::test]
async fn w21_the_tools_of_authors_refuse_hostile_files_in_the_memory_of_run() {
    let folder = tempfile::tempdir().unwrap();
    let good = kproxide_builtins::builtin("pack").unwrap().wasm;
    let hostile: BTreeMap<String, Vec<u8>> = files::files(good).into_iter().collect();
    let path = |name: &str| folder.path().join(format!("{name}.wasm"));
    let decisions = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/policy/decisions.json"
    );
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/policy/cases");
    let bomb = "instantiated-twice-30";
    let mut said = Vec::new();
    for (name, why) in [
        (bomb, "its process needed more memory"),
        ("nested-component-types-20000", "its process"),
        ("loops-and-locals", "its process"),
    ] {
        put(folder.path(), name, &hostile[name]);
        let file = path(name).display().to_string();
        let mut lines = vec![vec!["policy", "check", &file]];
        // All others load it in the same way.
        if name == bomb {
            lines.extend([
                vec!["policy", "run", &file],
                vec!["policy", "bench", &file],
                vec!["policy", "show", "settings", &file],
                vec!["policy", "pack", &file],
                vec!["policy", "test", cases, "--policy", &file],
                vec!["policy", "replay", "--policy", &file, decisions],
                vec!["demo", "--plain", "--policy", &file],
            ]);
        }
        for line in lines {
            let (code, all, most) = measured(&line).await;
            assert_eq!(code, Some(1), "{line:?}: {all}");
            assert!(all.contains(why), "{line:?}: {all}");
            said.push((most >> 20, line[1].to_owned(), all));
        }
    }
    for (mib, ..) in &said {
        assert!(*mib < 600, "{said:#?}");
    }
    // What plans with a folder of policies says that one cannot be used.
    fs::remove_file(path("nested-component-types-20000")).unwrap();
    fs::remove_file(path("loops-and-locals")).unwrap();
    let folder = folder.path().display().to_string();
    let world = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/plan/limit.yaml");
    let (code, all, most) = measured(&["plan", "-f", world, "--policy-dir", &folder]).await;
    assert_eq!(code, Some(2), "{all}");
    assert!(all.contains("its process needed more memory"), "{all}");
    assert!(most < 600 << 20, "{} MiB: {all}", most >> 20);
}

/// Its parent is killed while it compiles, and nobody else would end it.
#[tokio::test]
async fn w21_a_process_of_a_policy_ends_with_the_tool_that_started_it() {
    let folder = tempfile::tempdir().unwrap();
    let good = kproxide_builtins::builtin("pack").unwrap().wasm;
    let hostile = files::files(good).into_iter();
    let slow = hostile
        .into_iter()
        .find(|(name, _)| name == "loops-and-locals");
    put(folder.path(), "slow", &slow.unwrap().1);
    let file = folder.path().join("slow.wasm").display().to_string();
    let mut tool = kproxide(&["policy", "check", &file]);
    let mut tool = tool.stdout(Stdio::null()).spawn().unwrap();
    let pid = tool.id().unwrap();
    let child = eventually(SOON, "a process for the policy", async || {
        tree(pid).get(1).copied()
    })
    .await;
    tool.kill().await.unwrap();
    eventually(SOON, "its end", async || {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // Dead, even where nobody has taken note of it yet.
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    })
    .await;
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let hidden = folder.join(".new");
    fs::write(&hidden, bytes).unwrap();
    fs::rename(hidden, folder.join(format!("{name}.wasm"))).unwrap();
}

async fn pool(api: &Api, name: &str) {
    let object = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": name },
        "spec": {
            "nodeClass": "default",
            "limits": { "maxNodes": 3 },
            // No pod tolerates it.
            "taints": [{ "key": "example.com/nobody", "effect": "NoSchedule" }],
            "policies": { "hostSelection": { "use": name } },
        },
    });
    api.create("/apis/kproxide.dev/v1alpha1/nodepools", &object)
        .await;
}

/// A pod that needs a machine of its own; returns once it has one, how long that took, and the claim.
async fn decided(api: &Api, name: &str, claims: usize, log: &Path) -> Duration {
    let began = Instant::now();
    let pod = fixtures::pod(name, "6", "12Gi");
    api.create("/api/v1/namespaces/default/pods", &pod).await;
    eventually(SOON, "a machine for the pod", async || {
        let found = api.get("/apis/kproxide.dev/v1alpha1/nodeclaims").await;
        match found["items"].as_array().unwrap().len() == claims {
            true => Ok(()),
            false => Err(format!("{found}\n{}", fs::read_to_string(log).unwrap())),
        }
    })
    .await;
    began.elapsed()
}

#[tokio::test]
async fn f83_f93_hostile_files_end_no_run_and_change_no_decision_and_each_pool_says_what_is_wrong()
{
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let _simulation = served(&out).await;
    let api = Api::of(Path::new(&format!("{out}/kubeconfig")));
    let connection = fs::read_to_string(format!("{out}/pve.json")).unwrap();
    create_objects(&api, &serde_json::from_str(&connection).unwrap()).await;

    let pack = kproxide_builtins::builtin("pack").unwrap();
    let good = pack.wasm;
    let policies = folder.path().join("policies");
    fs::create_dir(&policies).unwrap();
    // It takes the name of the built-in that the pool `default` uses, and is another: it fills one server before the next.
    put(&policies, "spread", good);

    let log = folder.path().join("log");
    let admin = format!("127.0.0.1:{}", free_port().unwrap());
    let mut host = kproxide(&[
        "run",
        "--kubeconfig",
        &format!("{out}/kubeconfig"),
        "--credentials-dir",
        &format!("{out}/credentials"),
        "--policy-dir",
        &policies.display().to_string(),
        "--policy-memory=352Mi",
        "--admin-address",
        &admin,
        "--poll-interval=1s",
        "--inventory-max-age=1s",
    ])
    .stderr(File::create(&log).unwrap())
    .spawn()
    .unwrap();
    let pid = host.id().unwrap();
    decided(&api, "first", 1, &log).await;
    let before = bytes_used(pid);

    let (stop, sampling) = sampled(pid);
    let mut hostile = files::files(good);
    // Each of these takes its whole minute. Another that does is among the others.
    hostile
        .retain(|(name, _)| !["instantiated-twice-20", "many-functions"].contains(&name.as_str()));
    assert!(hostile.len() >= 60, "{}", hostile.len());
    let began = Instant::now();
    for (name, bytes) in &hostile {
        put(&policies, name, bytes);
    }
    for (name, _) in &hostile {
        pool(&api, name).await;
    }
    // While they are read.
    let during = decided(&api, "second", 2, &log).await;
    eventually(SOON, "each pool to say what is wrong", async || {
        let pools = api.get("/apis/kproxide.dev/v1alpha1/nodepools").await;
        let said: BTreeMap<String, Value> = pools["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pool| {
                let name = pool["metadata"]["name"].as_str().unwrap().to_owned();
                let conditions = pool["status"]["conditions"].as_array().cloned();
                let ready = conditions
                    .unwrap_or_default()
                    .into_iter()
                    .find(|it| it["type"] == "Ready");
                (name, ready.unwrap_or_default())
            })
            .collect();
        let silent: Vec<_> = hostile
            .iter()
            .filter(|(name, _)| said[name.as_str()]["reason"] != "PolicyRefused")
            .map(|(name, _)| (name, &said[name.as_str()]))
            .collect();
        match silent.is_empty() {
            true => Ok(()),
            false => Err(format!("{silent:?}")),
        }
    })
    .await;
    let took = began.elapsed();
    let after = decided(&api, "third", 3, &log).await;
    drop(stop);
    let most = sampling.join().unwrap();
    // The files lie there and are known, and 60 pools are: their processes are gone.
    eventually(SOON, "the memory to be free again", async || {
        let now = bytes_used(pid);
        match now < before + (128 << 20) {
            true => Ok(()),
            false => {
                let each = tree(pid).into_iter().filter_map(bytes_of);
                let each: Vec<_> = each.map(|bytes| bytes.map(|it| it >> 20)).collect();
                Err(format!("{each:?} MiB, and before {} MiB", before >> 20))
            }
        }
    })
    .await;
    eprintln!(
        "{} files in {took:?}; memory {} MiB before, {} MiB at most; decisions in {during:?} and {after:?}",
        hostile.len(),
        before >> 20,
        most >> 20
    );
    assert!(most < MEMORY_BYTES, "{} MiB", most >> 20);
    assert!(host.try_wait().unwrap().is_none(), "it has ended");
    // All by the file that overrides the built-in.
    let claims = api.get("/apis/kproxide.dev/v1alpha1/nodeclaims").await;
    for claim in claims["items"].as_array().unwrap() {
        assert_eq!(claim["spec"]["policyDigest"], pack.sha256, "{claim}");
    }
    // Written once each, on the pool's own Events.
    let events = api.get("/apis/events.k8s.io/v1/events").await;
    for (name, _) in &hostile {
        let is_told = events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "PolicyRefused" && event["regarding"]["name"] == name.as_str()
        });
        assert!(is_told, "{name}: {events}");
    }
}
