//! `kproxide plan` and `kproxide explain` as processes: their exit codes, what they say of bad input, and which files they
//! read. What they answer stands in `data/plan`, and is compared beside their code.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kproxide_testkit::{ControlPlane, eventually};
use serde_json::{Value, json};

/// In an environment that says nothing, in the folder of the situations.
fn kproxide(arguments: &[&str]) -> Output {
    program(Path::new(env!("CARGO_BIN_EXE_kproxide")), arguments)
}

fn program(path: &Path, arguments: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/plan");
    let mut command = Command::new(path);
    command.args(arguments).env_clear().current_dir(folder);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn exit_codes_say_what_there_is_to_do() {
    let code = |file: &str| {
        let output = kproxide(&[
            "plan",
            "-f",
            file,
            "--now",
            "2026-01-05T08:00:00Z",
            "--exit-code",
        ]);
        output.status.code().unwrap()
    };
    assert_eq!(code("scale_down.yaml"), 10);
    assert_eq!(code("no_help.yaml"), 20);
    assert_eq!(
        kproxide(&["plan", "-f", "no_help.yaml"]).status.code(),
        Some(0)
    );
    // Everything that is wanted is there.
    let folder = tempfile::tempdir().unwrap();
    let node = "{apiVersion: v1, kind: Node, metadata: {name: a}}";
    fs::write(folder.path().join("node.yaml"), node).unwrap();
    let path = folder.path().display().to_string();
    let idle = kproxide(&["plan", "-f", &path, "--exit-code"]);
    assert_eq!(idle.status.code(), Some(0), "{idle:?}");
}

#[test]
fn bad_input_is_named_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yaml").display().to_string();
    let said = |text_of_it: &str, more: &[&str]| {
        fs::write(&file, text_of_it).unwrap();
        let mut arguments = vec!["plan", "-f", &*file];
        arguments.extend(more);
        let output = kproxide(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr).replace(&file, "FILE")
    };
    let begins = |line: String, expected: &str| {
        assert!(line.starts_with(&format!("kproxide: {expected}")), "{line}");
    };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: none\n";
    let two = format!(
        "{}---\n{pod}",
        pod.replace("none", "[]").replace("name: a", "name: b")
    );
    begins(said(&two, &[]), "FILE:13: spec.containers: invalid type");
    let pool = "apiVersion: kproxide.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p}\nspec:\n  nodeClass: c\n  limits:\n    maxNodes: many\n";
    begins(
        said(pool, &[]),
        "FILE:7: spec.limits.maxNodes: invalid type",
    );
    let inventory = "apiVersion: kproxide.dev/v1alpha1\nkind: Inventory\nmetadata: {name: home}\nhypervisors:\n- name: a\n  cores: 4\n  memory: much\n";
    begins(said(inventory, &[]), "FILE:7: hypervisors[0].memory: ");
    let good = pod.replace("none", "[]");
    let replicas = said(&good, &["--replicas", "deploy/web=3"]);
    begins(replicas, "--replicas: there is no Deployment web");
    let hypervisor = said(&good, &["--without-hypervisor", "pve9"]);
    begins(
        hypervisor,
        "--without-hypervisor: there is no hypervisor pve9; there are pve1, pve2, pve3",
    );
    let missing = kproxide(&["plan", "-f", "nowhere.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("nowhere.yaml"));
    let unknown = kproxide(&["explain", "pod", "nobody", "-f", "limit.yaml"]);
    assert_eq!(unknown.status.code(), Some(2));
    begins(text(&unknown.stderr), "there is no pod default/nobody");
}

#[test]
fn folders_are_read_by_name_and_to_their_depth_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let pod = |name: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"{name}\"}}, \"spec\": {{\"containers\": []}}}}"
        )
    };
    fs::create_dir(folder.path().join("deep")).unwrap();
    for (file, name) in [
        ("a.yaml", "a"),
        ("b.json", "b"),
        ("notes.txt", "c"),
        ("deep/d.yml", "d"),
    ] {
        fs::write(folder.path().join(file), pod(name)).unwrap();
    }
    let path = folder.path().display().to_string();
    let notes = format!("{path}/notes.txt");
    let output = kproxide(&["plan", "-f", &path, "-R", "-f", &notes, "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["summary"]["pendingPods"], 4);
    let output = kproxide(&["plan", "-f", &path, "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["summary"]["pendingPods"], 2);
}

#[test]
fn as_a_plugin_of_kubectl_it_differs_in_its_name_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-kproxide");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kproxide"), &plugin).unwrap();
    for arguments in [&["--help"][..], &["explain", "--help"]] {
        let (plain, plugin) = (kproxide(arguments), program(&plugin, arguments));
        let (plain, plugin) = (text(&plain.stdout), text(&plugin.stdout));
        assert!(plugin.contains("Usage: kubectl kproxide "), "{plugin}");
        let renamed = plugin.replace("Usage: kubectl kproxide ", "Usage: kproxide ");
        assert_eq!(renamed, plain);
    }
    let arguments = ["explain", "pod", "huge", "-f", "no_help.yaml"];
    assert_eq!(
        program(&plugin, &arguments).stdout,
        kproxide(&arguments).stdout
    );
}

#[test]
fn the_pods_that_are_listed_are_chosen_by_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pods.yaml").display().to_string();
    let pod = |name: &str, labels: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{{labels}}}}}, spec: {{containers: []}}}}\n"
        )
    };
    let pods = [
        pod("a", "app: web"),
        pod("b", "app: web, old: x"),
        pod("c", "app: db"),
    ];
    fs::write(&file, pods.join("---\n")).unwrap();
    let listed = |more: &[&str]| -> Value {
        let mut arguments = vec!["plan", "-f", &*file, "-o", "json"];
        arguments.extend(more);
        let answer: Value = serde_json::from_slice(&kproxide(&arguments).stdout).unwrap();
        assert_eq!(answer["summary"]["pendingPods"], 3, "{answer}");
        let rows = answer["pending"].as_array().unwrap().iter();
        let mut pods: Vec<Value> = rows
            .flat_map(|row| row["pods"].as_array().unwrap().clone())
            .collect();
        pods.sort_by_key(ToString::to_string);
        json!(pods)
    };
    assert_eq!(listed(&[]), json!(["default/a", "default/b", "default/c"]));
    assert_eq!(
        listed(&["-l", "app=web"]),
        json!(["default/a", "default/b"])
    );
    assert_eq!(
        listed(&["-l", "app in (web, db),!old"]),
        json!(["default/a", "default/c"])
    );
    let wrong = kproxide(&["plan", "-f", &file, "-l", "app is web"]);
    assert!(
        text(&wrong.stderr).contains("is no part of a selector"),
        "{wrong:?}"
    );
}

#[test]
fn a_pod_is_looked_for_in_all_namespaces_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pods.yaml").display().to_string();
    let pod = |namespace: &str, name: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{namespace: {namespace}, name: {name}}}, spec: {{containers: []}}}}\n"
        )
    };
    let pods = [pod("shop", "web"), pod("shop", "db"), pod("blog", "db")];
    fs::write(&file, pods.join("---\n")).unwrap();
    let explained = |more: &[&str]| {
        let mut arguments = vec!["explain", "-f", &*file];
        arguments.extend(more);
        let output = kproxide(&arguments);
        text(&output.stdout) + &text(&output.stderr)
    };
    assert!(explained(&["pod", "web"]).contains("there is no pod default/web"));
    assert!(explained(&["pod", "web", "-n", "shop"]).contains("pod shop/web"));
    assert!(explained(&["pod", "web", "-A"]).contains("pod shop/web"));
    let both = explained(&["pod", "db", "-A"]);
    assert!(
        both.contains("blog/db, shop/db: name one of them"),
        "{both}"
    );
    assert!(explained(&["pod", "blog/db", "-A"]).contains("pod blog/db"));
    assert!(explained(&["pod", "none", "-A"]).contains("there is no pod none in any namespace"));
}

#[test]
fn an_api_server_that_does_not_answer_is_given_up_after_the_request_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig").display().to_string();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", silent.local_addr().unwrap())}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    fs::write(&file, kubeconfig.to_string()).unwrap();
    let read = ["--kubeconfig", &*file, "--request-timeout", "1s"];
    for verb in [
        &["plan", "--from-cluster"][..],
        &["explain", "pool", "workers"],
    ] {
        let output = kproxide(&[verb, &read].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("no complete answer within 1 s"), "{said}");
    }
}

/// Objects of kproxide, pods that find no Node, and a user who may list everything and write nothing.
const CLUSTER: &str = "
apiVersion: kproxide.dev/v1alpha1
kind: ProxmoxCluster
metadata: {name: home}
spec: {endpoints: ['https://pve1.example:8006'], credentials: home, vmidRange: {first: 20000, last: 20999}}
---
apiVersion: kproxide.dev/v1alpha1
kind: NodeClass
metadata: {name: default}
spec: {template: {name: debian}, instanceTypes: [{name: medium, cores: 4, memoryMiB: 8192}]}
---
apiVersion: kproxide.dev/v1alpha1
kind: NodePool
metadata: {name: workers}
spec: {nodeClass: default, limits: {maxNodes: 9}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: a, image: web, resources: {requests: {cpu: 3}}}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lists}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lists}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lists}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";

/// Two replicas of which the second one leads, and the reader, who may now look who leads.
const LEADER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: kproxide}
---
apiVersion: v1
kind: Pod
metadata: {name: kproxide-0, namespace: kproxide}
spec: {containers: [{name: kproxide, image: kproxide, ports: [{containerPort: 8080}]}], automountServiceAccountToken: false}
---
apiVersion: v1
kind: Pod
metadata: {name: kproxide-1, namespace: kproxide}
spec: {containers: [{name: kproxide, image: kproxide, ports: [{containerPort: 8080}]}], automountServiceAccountToken: false}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kproxide, namespace: kproxide}
spec: {holderIdentity: kproxide-1_0a1b2c3d, leaseDurationSeconds: 15}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leases, namespace: kproxide}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leases, namespace: kproxide}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";

#[tokio::test]
async fn a_running_cluster_is_only_listed() {
    let Some(cluster) = ControlPlane::without_kwok().await else {
        return;
    };
    cluster.define(&text(&kproxide(&["crds"]).stdout)).await;
    let apply = ["apply", "--server-side", "-f", "-"];
    cluster.kubectl_with_input(&apply, CLUSTER).await.unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    eventually(
        Duration::from_secs(120),
        "two pods that find no Node",
        async || {
            let pods = cluster.api().list(pods).await.unwrap();
            let waits = |pod: &&Value| {
                let conditions = pod["status"]["conditions"].as_array();
                conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one["reason"] == "Unschedulable")
            };
            let waiting = pods.iter().filter(waits).count();
            if waiting == 2 {
                Ok(())
            } else {
                Err(format!("{waiting} pods wait: {pods:?}"))
            }
        },
    )
    .await;
    let versions = async || {
        let mut versions = Vec::new();
        for path in [
            pods,
            "/apis/apps/v1/namespaces/default/deployments",
            "/apis/kproxide.dev/v1alpha1/nodepools",
            "/apis/kproxide.dev/v1alpha1/nodeclasses",
            "/apis/kproxide.dev/v1alpha1/proxmoxclusters",
            "/apis/kproxide.dev/v1alpha1/nodeclaims",
            "/apis/kproxide.dev/v1alpha1/ledgers",
        ] {
            let objects = eventually(Duration::from_secs(60), path, async || {
                let listed = cluster.api().list(path).await;
                listed.map_err(|error| error.to_string())
            })
            .await;
            let of_path = objects
                .iter()
                .map(|object| object["metadata"]["resourceVersion"].to_string());
            versions.push((path, of_path.collect::<Vec<_>>()));
        }
        versions
    };
    let before = versions().await;

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let token = cluster.token_for("default", "reader", None).await.unwrap();
    let kubeconfig = file("kubeconfig", &json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": cluster.url(), "certificate-authority-data": STANDARD.encode(cluster.ca_pem()),
        }}],
        "users": [{"name": "u", "user": {"token": token}}],
    }).to_string());
    let plan = |more: &[&str]| -> Value {
        let mut arguments = vec![
            "plan",
            "--from-cluster",
            "--kubeconfig",
            &*kubeconfig,
            "-o",
            "json",
        ];
        arguments.extend(more);
        let output = kproxide(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let counts = |answer: &Value| {
        let summary = &answer["summary"];
        (summary["pendingPods"].clone(), summary["launches"].clone())
    };
    assert_eq!(counts(&plan(&[])), (json!(2), json!(2)));
    assert_eq!(
        counts(&plan(&["--replicas", "deploy/web=3"])),
        (json!(3), json!(3))
    );
    let listed = |more: &[&str]| plan(more)["pending"].as_array().map(Vec::len);
    assert_eq!(listed(&["-n", "default"]), Some(1));
    assert_eq!(listed(&["-n", "shop"]), Some(0));
    assert_eq!(listed(&["-n", "shop", "-A"]), Some(1));
    // The same Deployment with more replicas, and another one.
    let changed = CLUSTER
        .split("---\n")
        .find(|part| part.contains("kind: Deployment"))
        .unwrap();
    let more = changed.replace("replicas: 2", "replicas: 4");
    let other = changed
        .replace("name: web,", "name: other,")
        .replace("app: web", "app: other");
    let new = file("new.yaml", &format!("{more}---\n{other}"));
    assert_eq!(counts(&plan(&["-f", &new])), (json!(6), json!(6)));
    // Another template replaces the pods that are there.
    let smaller = file("smaller.yaml", &changed.replace("cpu: 3", "cpu: 1"));
    assert_eq!(counts(&plan(&["-f", &smaller])), (json!(2), json!(1)));
    assert_eq!(versions().await, before);

    // Status: nobody leads, which is what to look at first. It writes nothing either.
    let admin = cluster.admin_kubeconfig_path().display().to_string();
    let status = |kubeconfig: &str, more: &[&str]| {
        let asked = ["status", "--kubeconfig", kubeconfig];
        let output = kproxide(&[&asked[..], more].concat());
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, said, told) = status(&admin, &[]);
    assert_eq!((code, &*told), (Some(0), ""));
    let first = said.lines().next().unwrap();
    assert!(
        first.contains("Lease/kproxide/kproxide (NoLeader)"),
        "{said}"
    );
    assert!(said.contains("  workers  0 of 9 "), "{said}");
    assert!(said.contains("would be made, if kproxide ran"), "{said}");
    assert!(!said.contains("LAST DECISIONS"), "{said}");
    let (code, _, told) = status(&kubeconfig, &[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("resources: [pods/proxy]"), "{told}");
    let (code, said, told) = status(&kubeconfig, &["--compute", "-o", "json"]);
    assert_eq!((code, &*told), (Some(0), ""));
    let screen: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(screen["pools"][0]["state"], json!(["NotJudgedYet"]));
    assert_eq!(screen["pending"][0]["count"], 2);
    assert_eq!(versions().await, before);

    let reader = ["--as", "system:serviceaccount:default:reader"];
    let explained = |kubeconfig: &str, more: &[&str]| {
        let asked = ["explain", "pool", "workers", "--kubeconfig", kubeconfig];
        let output = kproxide(&[&asked[..], more].concat());
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    // Nobody leads. The reader may not know.
    let (code, said, told) = explained(&admin, &[]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("nobody holds the Lease kproxide/kproxide"),
        "{told}"
    );
    let lines = [
        "No replica of kproxide leads, so nothing is done. If one led: NodePool workers has 0 of at most 9 machines",
        "\nNext:\n  start kproxide: kubectl get pods,leases --namespace kproxide\n",
    ];
    assert!(
        said.starts_with(lines[0]) && said.contains(lines[1]),
        "{said}"
    );
    let may_not = |(code, _, told): (Option<i32>, String, String), what: &str| {
        assert_eq!(code, Some(3), "{told}");
        for part in ["reader", what, "resources: [pods/proxy]", "--compute"] {
            assert!(told.contains(part), "{told}");
        }
    };
    may_not(explained(&kubeconfig, &[]), "leases");
    may_not(explained(&admin, &reader), "leases");
    let (code, said, told) = explained(&kubeconfig, &["--compute"]);
    assert_eq!((code, &*told), (Some(0), ""));
    assert!(
        said.starts_with("NodePool workers has 0 of at most 9 machines"),
        "{said}"
    );

    cluster.kubectl_with_input(&apply, LEADER).await.unwrap();
    may_not(explained(&kubeconfig, &[]), "pods/proxy");
    // The second pod of two leads, and nothing runs it.
    let (code, said, told) = explained(&admin, &[]);
    assert_eq!(code, Some(0), "{told}");
    let silent = "The replica of kproxide that leads does not answer. If it worked: NodePool";
    assert!(said.starts_with(silent), "{said}");
    assert!(told.contains("pod kproxide/kproxide-1 answers "), "{told}");
    assert!(told.contains("computed here"), "{told}");
    let (_, said, _) = status(&admin, &[]);
    assert!(
        said.contains("Lease/kproxide/kproxide (LeaderSilent)"),
        "{said}"
    );
    // The namespace of the context is meant where none is named.
    let context = [
        "config",
        "set-context",
        "shop",
        "--cluster=c",
        "--user=u",
        "--namespace=shop",
    ];
    cluster
        .kubectl(&[&["--kubeconfig", &*kubeconfig], &context[..]].concat())
        .await
        .unwrap();
    let shop = [
        "explain",
        "pod",
        "web",
        "--compute",
        "--kubeconfig",
        &*kubeconfig,
        "--context",
        "shop",
    ];
    let said = text(&kproxide(&shop).stderr);
    assert!(said.contains("there is no pod shop/web"), "{said}");
    cluster.stop().await;
}
