//! The situations of `tests/data/plan`: each is a file of objects, and beside it stands what is said of it, as text and as
//! JSON. `KPROXIDE_UPDATE=1 cargo test -p kproxide-tools --all-features plan::` writes those anew.

mod fidelity;

use std::collections::BTreeSet;

use clap::Parser as _;

use super::*;
use crate::args::tests::{Cli, Command};
use crate::commands::held::hold;

const NOW: &str = "2026-01-05T08:00:00Z";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/plan")
}

fn policies() -> Library {
    Library::new(cage::for_a_person(Execution::Blocking).unwrap())
}

/// A command line on a file of the folder, with the flags that its first line gives: `# flags: …`.
fn parsed(command: &[&str], file: &str) -> Command {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let first = text.lines().next().unwrap_or_default();
    let flags = first.strip_prefix("# flags: ").unwrap_or_default();
    let path = path.display().to_string();
    let words = ["kproxide"].into_iter().chain(command.iter().copied());
    let words = words.chain(["-f", &path, "--now", NOW]);
    let wanted = command.first() == Some(&"plan");
    let flags = flags.split_whitespace().filter(|_| wanted);
    Cli::try_parse_from(words.chain(flags)).unwrap().command
}

#[tokio::test]
async fn each_situation_is_answered_as_its_files_say() {
    let policies = policies();
    let files = fs::read_dir(folder()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let situations: BTreeSet<String> = files.filter(|name| name.ends_with(".yaml")).collect();
    assert!(situations.len() >= 10, "{situations:?}");
    let mut different = Vec::new();
    for file in situations {
        let Command::Plan(args) = parsed(&["plan"], &file) else {
            panic!("{file}");
        };
        let (scene, plan) = answered(&args, &policies).await.unwrap();
        let mut answer = Answer::of(&scene, &plan);
        if args.verdicts {
            answer = answer.with_verdicts(&scene.world);
        }
        let name = file.strip_suffix(".yaml").unwrap();
        hold(
            &folder().join(format!("{name}.txt")),
            &Text(&answer).to_string(),
            &mut different,
        );
        let mut json = Vec::new();
        print(&mut json, Format::Json, &answer).unwrap();
        let json = String::from_utf8(json).unwrap();
        hold(
            &folder().join(format!("{name}.json")),
            &json,
            &mut different,
        );
        let mut yaml = Vec::new();
        print(&mut yaml, Format::Yaml, &answer).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&String::from_utf8(yaml).unwrap()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(yaml, json, "{file}");
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Of each kind of subject, in situations where the answers differ.
#[tokio::test]
async fn explain_answers_in_its_first_line() {
    let asked = [
        ("no_help.yaml", "pod huge"),
        ("no_help.yaml", "pod/intolerant"),
        ("no_help.yaml", "pod fine"),
        ("limit.yaml", "pod batch-1"),
        ("limit.yaml", "pod batch-3"),
        ("limit.yaml", "pool workers"),
        ("scale_down.yaml", "node workers-a"),
        ("scale_down.yaml", "node workers-b"),
        ("scale_down.yaml", "claim workers-c"),
        ("scale_down.yaml", "pod db-0"),
        ("refused_hypervisors.yaml", "hypervisor pve1"),
        ("refused_hypervisors.yaml", "hypervisor home/pve4"),
        ("verdicts.yaml", "pod wants-port"),
        ("verdicts.yaml", "node full"),
        ("waiting.yaml", "pod share"),
        ("waiting.yaml", "pod gpu"),
        ("waiting.yaml", "pod usual"),
        ("waiting.yaml", "pod gated"),
        ("waiting.yaml", "pod finished"),
        ("unusable.yaml", "pool broken"),
        ("unusable.yaml", "pool workers"),
        ("together.yaml", "pool workers"),
        ("../status/a_pool_is_deleted.yaml", "pool workers"),
        ("../status/a_pool_is_deleted.yaml", "pod web-3"),
        ("../status/a_pool_is_deleted.yaml", "node workers-b"),
    ];
    let policies = policies();
    let explained = async |file: &str, subject: &str| {
        let mut words = vec!["explain"];
        words.extend(subject.split(' '));
        let Command::Explain(args) = parsed(&words, file) else {
            panic!("{subject}");
        };
        let subject = Subject::read(&args.subject, "default").unwrap();
        let input = given(&args.question, None).await.unwrap();
        let planned = planned(&args.question, input, &policies).await;
        let (scene, plan, decisions) = planned.unwrap();
        whatif::explain(&scene, &plan, &decisions, &subject)
    };
    let mut said = String::new();
    for (file, subject) in asked {
        let answer = explained(file, subject).await.unwrap().to_string();
        assert!(answer.lines().count() < 40, "{answer}");
        said += &format!("$ kproxide explain {subject} -f {file}\n{answer}\n");
    }
    let mut different = Vec::new();
    hold(&folder().join("explain.txt"), &said, &mut different);
    assert!(different.is_empty(), "{}", different.join("\n"));
    let claim = explained("waiting.yaml", "claim share").await.unwrap_err();
    assert_eq!(
        claim,
        "there is no NodeClaim share, and explain means NodeClaims by claim. Pod default/share uses PersistentVolumeClaim share: ask kproxide explain pod default/share"
    );
    for kind in ["pod", "node", "hypervisor", "claim", "pool"] {
        let unknown = explained("limit.yaml", &format!("{kind} nobody")).await;
        assert!(unknown.unwrap_err().starts_with("there is no "), "{kind}");
    }
}

#[test]
fn the_first_line_is_set_off_in_a_terminal() {
    let text = "answer\n\n  rule  value\n";
    assert_eq!(set_off(text, false), text);
    assert_eq!(
        set_off(text, true),
        "\x1b[1manswer\x1b[0m\n\n  rule  value\n"
    );
}

#[tokio::test]
async fn a_saved_world_is_planned_again_with_objects_on_top() {
    let policies = policies();
    let Command::Plan(args) = parsed(&["plan"], "limit.yaml") else {
        panic!("no plan");
    };
    let (scene, plan) = answered(&args, &policies).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let saved = serde_json::json!({"now": scene.now, "plan": plan, "world": scene.world});
    let saved = file("saved.json", &saved.to_string());
    let replanned = async |more: &[&str]| {
        let words = ["kproxide", "plan", "-f", &saved]
            .into_iter()
            .chain(more.iter().copied());
        let Command::Plan(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("no plan");
        };
        answered(&args, &policies).await.unwrap()
    };
    let (again, same) = replanned(&[]).await;
    assert_eq!((again.now, &same), (scene.now, &plan));

    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: more}, spec: {containers: []}}";
    let (_, more) = replanned(&["-f", &file("pod.yaml", pod)]).await;
    let count = |plan: &Plan| plan.report.pending.iter().map(|row| row.count).sum::<u32>();
    assert_eq!((count(&plan), count(&more)), (3, 4));

    // Without the hypervisor of the one machine its Node is gone, and the pool may have two others.
    let (_, without) = replanned(&["--without-hypervisor", "pve1"]).await;
    let hypervisors: BTreeSet<_> = without
        .launches
        .iter()
        .map(|one| &*one.spec.hypervisor)
        .collect();
    assert_eq!(hypervisors, BTreeSet::from(["pve2", "pve3"]));
}

/// A Deployment and a StatefulSet whose pods stand on a Node, and both again with a template that asks for more.
#[tokio::test]
async fn a_changed_template_is_planned_as_the_rollout_ends() {
    let folder = tempfile::tempdir().unwrap();
    let workload = |kind: &str, name: &str, spec: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n---\n"
        )
    };
    let template = |cpu: u32| {
        format!(
            "template: {{spec: {{containers: [{{name: a, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}"
        )
    };
    let pod = |name: &str, kind: &str, owner: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, ownerReferences: [{{kind: {kind}, name: {owner}, controller: true}}]}}, spec: {{nodeName: here, containers: [{{name: a, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n---\n"
        )
    };
    let cluster = [
        workload("Deployment", "web", &format!("replicas: 2, {}", template(1))),
        workload("StatefulSet", "db", &format!("replicas: 2, {}", template(1))),
        pod("web-abc-1", "ReplicaSet", "web-abc"),
        pod("web-abc-2", "ReplicaSet", "web-abc"),
        pod("db-0", "StatefulSet", "db"),
        pod("db-1", "StatefulSet", "db"),
        "{apiVersion: v1, kind: Node, metadata: {name: here}, status: {capacity: {cpu: 4, memory: 8Gi, pods: 9}}}\n".to_owned(),
    ];
    let policies = policies();
    let planned = async |web: u32, db: u32| {
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let old = file("old.yaml", &cluster.concat());
        let new = workload("Deployment", "web", &template(web))
            + &workload("StatefulSet", "db", &template(db));
        let new = file("new.yaml", &new);
        let words = ["kproxide", "plan", "-f", &old, "-f", &new];
        let Command::Plan(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("no plan");
        };
        let (scene, plan) = answered(&args, &policies).await.unwrap();
        let pods = plan.report.pending.iter().flat_map(|row| &row.pods);
        let pending: BTreeSet<String> = pods.map(|pod| pod.name.to_string()).collect();
        let running = scene.world.pods().filter(|pod| pod.node().is_some());
        let running: BTreeSet<String> = running.map(|pod| pod.name().to_string()).collect();
        (pending, running)
    };
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let (none, all) = (set(&[]), set(&["db-0", "db-1", "web-abc-1", "web-abc-2"]));
    assert_eq!(planned(1, 1).await, (none, all));
    let (pending, running) = (set(&["web-1", "web-2"]), set(&["db-0", "db-1"]));
    assert_eq!(planned(2, 1).await, (pending, running));
    let (pending, running) = (set(&["db-0", "db-1"]), set(&["web-abc-1", "web-abc-2"]));
    assert_eq!(planned(1, 2).await, (pending, running));
}

/// A file as a rule has no condition `Unneeded`, which `kproxide run` writes.
#[tokio::test]
async fn a_node_that_no_pod_needs_goes_after_the_unneeded_time() {
    let text = fs::read_to_string(folder().join("scale_down.yaml")).unwrap();
    let lines = text.lines().filter(|line| !line.contains("type: Unneeded"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.yaml");
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let words = ["kproxide", "plan", "-f", &file, "--now", NOW];
    let Command::Plan(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("no plan");
    };
    let (scene, plan) = answered(&args, &policies()).await.unwrap();
    let kept = Answer::of(&scene, &plan).kept;
    let reason =
        "no pod needs it now. kproxide removes it when that has been so for 60 s (unneededTime)";
    assert_eq!(kept[0].reason, reason);
    let said = |node: &str| {
        let subject = Subject::Node(node.into());
        let said = whatif::explain(&scene, &plan, &[], &subject).unwrap();
        let mut rules = said.rules.into_iter();
        let rule = rules.find(|rule| rule.rule == "unneeded for").unwrap();
        (said.answer, rule.value)
    };
    assert_eq!(
        said("workers-a"),
        (
            format!("Node workers-a stays: {reason}."),
            "0 s: unneeded now, as far as the input says".to_owned()
        )
    );
    assert_eq!(said("workers-b").1, "not unneeded");
}
