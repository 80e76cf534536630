//! Commands as processes: `kproxide simulate serve`, and `kproxide plan` and `kproxide run`, which know of it by the files
//! that it writes; `kproxide demo`; and `kproxide doctor`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod doctor;
#[cfg(target_os = "linux")]
mod dumps;
mod endpoints;
mod flood;
#[cfg(target_os = "linux")]
mod hostile;
mod replay;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kproxide_simulator::kube::fixtures;
use kproxide_testkit::{eventually, free_port};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// For what takes seconds on an idle computer, in a program that is not optimized.
const SOON: Duration = Duration::from_secs(180);

/// In an environment that says nothing, and ended with the value that it becomes.
fn kproxide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kproxide"));
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The simulated Kubernetes, by its kubeconfig.
struct Api {
    http: reqwest::Client,
    url: String,
}

impl Api {
    fn of(kubeconfig: &Path) -> Self {
        let config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        let text = |field: &str| cluster[field].as_str().unwrap().to_owned();
        let authority = STANDARD.decode(text("certificate-authority-data")).unwrap();
        Self::trusting(&authority, text("server"))
    }

    fn trusting(authority: &[u8], url: String) -> Self {
        // Another test of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(authority).unwrap()])
            .no_proxy()
            .build()
            .unwrap();
        Self { http, url }
    }

    async fn get(&self, path: &str) -> Value {
        let request = self.http.get(format!("{}{path}", self.url));
        answer(path, request).await
    }

    async fn create(&self, path: &str, object: &Value) {
        let request = self.http.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        answer(path, request.body(object.to_string())).await;
    }
}

async fn answer(path: &str, request: reqwest::RequestBuilder) -> Value {
    let answer = request.send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{path}: {status}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// A simulation whose connection files are in this folder.
async fn served(out: &str) -> tokio::process::Child {
    let mut simulation = kproxide(&["simulate", "serve", "--instant", "--out", out])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(simulation.stdout.take().unwrap()).lines();
    let served = async {
        let mut before = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.starts_with("connection files: ") {
                return before;
            }
            before.push(line);
        }
        panic!("it ended");
    };
    let before = tokio::time::timeout(SOON, served).await.unwrap();
    let kubectl = format!(
        "  kubectl --kubeconfig {out}/kubeconfig apply --server-side --validate=false -f {out}/objects.json"
    );
    let run =
        format!("  kproxide run --kubeconfig {out}/kubeconfig --credentials-dir {out}/credentials");
    assert!(
        before.contains(&kubectl) && before.contains(&run),
        "{before:?}"
    );
    let secret = format!("apply --server-side --validate=false -f {out}/secret.json");
    assert!(
        before.iter().any(|line| line.ends_with(&secret)),
        "{before:?}"
    );
    simulation
}

/// What `simulate serve` prints for a person, and the files that it names, are used as they are.
#[tokio::test]
async fn the_secret_and_the_requests_that_simulate_serve_tells_of_work() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut simulation = served(&out.display().to_string()).await;
    let read = |file: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(out.join(file)).unwrap()).unwrap()
    };

    let api = Api::of(&out.join("kubeconfig"));
    let secret = &read("secret.json")["items"][1];
    let path = "/api/v1/namespaces/kproxide/secrets";
    api.create(path, secret).await;
    let stored = &api.get(&format!("{path}/proxmox")).await["data"];
    for key in ["token-id", "token-secret"] {
        let file = fs::read(out.join("credentials/proxmox").join(key)).unwrap();
        assert_eq!(stored[key], STANDARD.encode(file), "{key}");
    }

    let help = printed(&["simulate", "serve", "--help"]).await;
    let pve = Api::trusting(
        &fs::read(out.join("ca.pem")).unwrap(),
        read("pve.json")["url"].as_str().unwrap().to_owned(),
    );
    let online = async || {
        let snapshot = pve.get("/_sim/snapshot").await;
        let servers = snapshot["hypervisors"].as_array().unwrap().clone();
        servers
            .iter()
            .map(|it| it["online"].as_bool().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(online().await, [true, true, true]);
    let die = "/_sim/hypervisor?name=pve1&online=0";
    assert!(help.contains(die), "{help}");
    pve.create(die, &json!({})).await;
    assert_eq!(online().await, [false, true, true]);
    simulation.kill().await.unwrap();
}

#[tokio::test]
async fn a_host_beside_a_served_simulation_gets_a_machine_for_a_pod() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let _simulation = served(&out).await;

    let kubeconfig = format!("{out}/kubeconfig");
    let api = Api::of(Path::new(&kubeconfig));
    let connection = fs::read_to_string(format!("{out}/pve.json")).unwrap();
    create_objects(&api, &serde_json::from_str(&connection).unwrap()).await;
    // More than any Node of the simulated cluster offers.
    let pod = fixtures::pod("waits", "6", "12Gi");
    api.create("/api/v1/namespaces/default/pods", &pod).await;

    plans_the_same_machine(&kubeconfig, &format!("{out}/credentials")).await;

    let log = folder.path().join("log");
    let admin = format!("127.0.0.1:{}", free_port().unwrap());
    let _host = kproxide(&[
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--credentials-dir",
        &format!("{out}/credentials"),
        "--admin-address",
        &admin,
        "--poll-interval=1s",
        "--inventory-max-age=1s",
    ])
    .stderr(File::create(&log).unwrap())
    .spawn()
    .unwrap();
    eventually(SOON, "the pod running on a machine", async || {
        let pod = api.get("/api/v1/namespaces/default/pods/waits").await;
        if pod["status"]["phase"] == "Running" {
            Ok(())
        } else {
            let log = fs::read_to_string(&log).unwrap();
            Err(format!("{}\n{log}", pod["status"]))
        }
    })
    .await;
    let claims = api.get("/apis/kproxide.dev/v1alpha1/nodeclaims").await;
    assert_eq!(claims["items"].as_array().unwrap().len(), 1, "{claims}");
    let claim = claims["items"][0]["metadata"]["name"].as_str().unwrap();
    explains_the_machine(claim, &format!("http://{admin}")).await;
    replay::asks_another_policy(claim, &format!("http://{admin}"), folder.path()).await;
    // The default of `--namespace`, which nothing here has made.
    api.get("/api/v1/namespaces/kproxide").await;
}

/// What the host is going to do, asked without it: hypervisors and templates are those that Proxmox lists.
async fn plans_the_same_machine(kubeconfig: &str, credentials: &str) {
    let answer = printed(&[
        "plan",
        "--from-cluster",
        "--kubeconfig",
        kubeconfig,
        "--proxmox-credentials",
        credentials,
        "-o",
        "json",
    ])
    .await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let launches = answer["launches"].as_array().unwrap();
    assert_eq!(launches.len(), 1, "{answer}");
    assert_eq!(launches[0]["pods"], json!(["default/waits"]), "{answer}");
    let assumed = answer["assumed"].to_string();
    assert!(!assumed.contains("hypervisors"), "{assumed}");
}

/// By what the host has noted: why the machine is where it is, and not on the other hypervisors.
async fn explains_the_machine(claim: &str, admin: &str) {
    let answer = printed(&["explain", "claim", claim, "--admin", admin, "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let rules = answer["rules"].as_array().unwrap();
    let begin = |beginning: &str| -> usize {
        let names = rules.iter().map(|rule| rule["rule"].as_str().unwrap());
        names.filter(|name| name.starts_with(beginning)).count()
    };
    let counts = (begin("placed on "), begin("not on "));
    assert_eq!(counts, (1, 2), "{answer}");
}

/// One of each kind.
async fn create_objects(api: &Api, connection: &Value) {
    for (plural, kind, spec) in [
        (
            "proxmoxclusters",
            "ProxmoxCluster",
            json!({
                "endpoints": [connection["url"]],
                "tls": { "fingerprints": [connection["fingerprint"]] },
                "credentials": "proxmox",
                "vmidRange": { "first": 20_000, "last": 20_099 },
            }),
        ),
        (
            "nodeclasses",
            "NodeClass",
            json!({
                "template": { "name": "k8s-node", "placement": "local" },
                "instanceTypes": [{ "name": "large", "cores": 8, "memoryMiB": 16_384 }],
            }),
        ),
        (
            "nodepools",
            "NodePool",
            json!({ "nodeClass": "default", "limits": { "maxNodes": 3 } }),
        ),
    ] {
        let object = json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": "default" }, "spec": spec,
        });
        let path = format!("/apis/kproxide.dev/v1alpha1/{plural}");
        api.create(&path, &object).await;
    }
}

#[tokio::test]
async fn a_cluster_that_no_machine_could_join_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig").display().to_string();
    let nobody = "
current-context: here
contexts: [{name: here, context: {cluster: lab, user: me}}]
clusters: [{name: lab, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: me, user: {token: mine}}]
";
    fs::write(&kubeconfig, nobody).unwrap();
    let out = folder.path().join("out").display().to_string();
    let mut command = kproxide(&[
        "simulate",
        "serve",
        "--out",
        &out,
        "--kubeconfig",
        &kubeconfig,
    ]);
    let ended = tokio::time::timeout(SOON, command.output());
    let ended = ended.await.unwrap().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success());
    assert!(
        said.contains("its API server https://127.0.0.1:1 must"),
        "{said}"
    );
    assert!(said.contains("the API server did not answer: "), "{said}");
}

/// What such a process prints, if it succeeds.
async fn printed(arguments: &[&str]) -> String {
    let ended = kproxide(arguments).output();
    let ended = tokio::time::timeout(SOON, ended).await.unwrap().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// Code and both outputs of a demo that does not come to its end.
async fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let ended = kproxide(arguments).output();
    let ended = tokio::time::timeout(SOON, ended).await.unwrap().unwrap();
    let all = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(all).unwrap())
}

#[tokio::test]
async fn the_demo_runs_on_the_policy_that_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let exported = folder.path().display().to_string();
    printed(&["policy", "show", "files", &exported]).await;
    let file = format!("{exported}/pack.wasm");
    let by_name = printed(&["demo", "--policy", "pack"]).await;
    let by_file = printed(&["demo", "--policy", &file]).await;
    let taken: Vec<&str> = by_file
        .lines()
        .filter(|line| line.contains("was taken"))
        .collect();
    let [taken] = taken[..] else {
        panic!("{by_file}");
    };
    assert!(
        taken.contains(&file) && taken.contains("decides host-selection"),
        "{taken}"
    );
    // A file decides until the end. What is built in is replaced in the last third.
    let swap = by_name.find("The policy becomes max-memory").unwrap();
    let same = by_file.replace(&format!("{taken}\n"), "");
    let before = by_name[..swap].rsplit_once('\n').unwrap().0;
    assert!(same.starts_with(before), "{same}");
    assert!(same.contains("20 more pods arrive.") && !same.contains("The policy becomes"));
    assert_ne!(by_name, printed(&["demo"]).await);

    let unknown = kproxide(&["demo", "--policy", "nosuch"]).output();
    let unknown = unknown.await.unwrap();
    let told = String::from_utf8(unknown.stderr).unwrap();
    assert!(!unknown.status.success());
    assert!(
        told.contains("--policy nosuch") && told.contains("spread"),
        "{told}"
    );
}

#[tokio::test]
async fn the_demo_shows_what_a_policy_says_and_why_it_wants_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let hostile = kproxide_builtins::HOSTILE.iter();
    let hostile = hostile.clone().find(|it| it.name == "hostile").unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(hostile.wasm).unwrap();
    let (file, settings) = (at("mine.wasm.gz"), at("settings.yaml"));
    fs::write(&file, packed.finish().unwrap()).unwrap();
    let demo = ["demo", "--policy", &file, "--settings", &settings];

    fs::write(&settings, "do: say\n").unwrap();
    let (code, said) = ended(&demo).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("mine says: placing 0 of 3"), "{said}");

    fs::write(&settings, "do: no-candidate\n").unwrap();
    let (code, said) = ended(&demo).await;
    let last = said.lines().last().unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        last.contains("waited 60 minutes in vain until every pod runs"),
        "{last}"
    );
    assert!(last.contains("not before noon"), "{last}");

    // It is refused before anything begins.
    fs::write(&settings, "do: nothing-good\n").unwrap();
    let (code, said) = ended(&demo).await;
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(
        said.contains("kproxide refuses it: its settings are wrong"),
        "{said}"
    );
    fs::write(&file, "no wasm").unwrap();
    let (code, said) = ended(&demo).await;
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    let wrong_kind = ["demo", "--policy", "pack", "--kind", "scale-down"];
    let (code, said) = ended(&wrong_kind).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("--policy pack makes no scale-down decisions"),
        "{said}"
    );
}

#[tokio::test]
async fn the_demo_lets_a_policy_of_each_kind_decide() {
    let folder = tempfile::tempdir().unwrap();
    let exported = folder.path().display().to_string();
    printed(&["policy", "show", "files", &exported]).await;
    for (kind, name) in [("scale-down", "least-loaded"), ("labels", "go-template")] {
        let file = format!("{exported}/{name}.wasm");
        let said = printed(&["demo", "--kind", kind, "--policy", &file]).await;
        assert!(
            said.contains(&format!("It decides {kind} from now on")),
            "{said}"
        );
        assert!(said.contains("machines removed"), "{said}");
    }
}

/// The chart refuses other flags, by a list that the program makes.
#[tokio::test]
async fn the_chart_knows_the_flags_that_run_shows_in_its_help() {
    let output = kproxide(&["run", "--help"]).output().await.unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let flags = help.lines().filter_map(|line| {
        let words = line.trim_start();
        let words = words.strip_prefix("-h, ").unwrap_or(words);
        let flag = words.split([' ', '=']).next()?;
        flag.starts_with("--").then(|| flag.to_owned())
    });
    let mut flags: Vec<String> = flags.filter(|flag| flag != "--help").collect();
    flags.sort();
    let known = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../charts/kproxide/program.yaml"
    );
    let known: Value = serde_saphyr::from_str(&fs::read_to_string(known).unwrap()).unwrap();
    assert_eq!(json!(flags), known["flags"]);
    assert!(flags.len() > 20, "{flags:?}");
}

#[tokio::test]
async fn definitions_are_applied_to_a_cluster_that_answers_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let path = path.to_str().unwrap();
    // Nobody listens on a port that was free a moment ago.
    let server = format!("https://127.0.0.1:{}", free_port().unwrap());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": server } }],
        "users": [{ "name": "a", "user": {} }],
    });
    for (text, code, said) in [
        (
            config.to_string(),
            3,
            "nothing was changed: get customresourcedefinitions",
        ),
        ("clusters: 3".to_owned(), 2, "kubeconfig"),
    ] {
        fs::write(path, text).unwrap();
        let mut command = kproxide(&["crds", "--apply", "--kubeconfig", path]);
        let output = command.output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said), "{error}");
        assert!(output.stdout.is_empty());
    }
    let output = kproxide(&["crds", "--apply", "--values-schema"]).output();
    assert_eq!(output.await.unwrap().status.code(), Some(2));
}

/// A kubeconfig of a server on a port where nobody listens.
fn kubeconfig_of_nobody() -> String {
    kubeconfig_of(&format!("127.0.0.1:{}", free_port().unwrap()))
}

fn kubeconfig_of(address: &str) -> String {
    let server = format!("https://{address}");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": server } }],
        "users": [{ "name": "a", "user": { "token": "t" } }],
    });
    config.to_string()
}

#[tokio::test]
async fn exit_codes_are_those_of_the_table_whatever_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (nobody, broken) = (path("nobody"), path("broken"));
    fs::write(&nobody, kubeconfig_of_nobody()).unwrap();
    fs::write(&broken, "clusters: 3").unwrap();
    let port = free_port().unwrap();
    let cluster = |name: &str| {
        format!(
            "apiVersion: kproxide.dev/v1alpha1
kind: ProxmoxCluster
metadata: {{name: {name}}}
spec: {{endpoints: ['https://127.0.0.1:{port}'], credentials: home, vmidRange: {{first: 20000, last: 20999}}, \
             tls: {{insecureSkipVerify: true}}}}\n"
        )
    };
    let (one, two) = (path("one.yaml"), path("two.yaml"));
    fs::write(&one, cluster("home")).unwrap();
    fs::write(&two, format!("{}---\n{}", cluster("home"), cluster("away"))).unwrap();
    let credentials = path("credentials");
    fs::create_dir_all(format!("{credentials}/home")).unwrap();
    for (key, text) in [("token-id", "a@pve!b"), ("token-secret", "c")] {
        fs::write(format!("{credentials}/home/{key}"), text).unwrap();
    }
    for (code, command) in [
        (2, "run --log blah".to_owned()),
        (2, "run --log info,nonsense".to_owned()),
        (2, "run --lease-retry 0s".to_owned()),
        (2, format!("run --kubeconfig {broken}")),
        (
            2,
            format!(
                "simulate serve --out {folder} --log blah",
                folder = path("out")
            ),
        ),
        (
            2,
            format!(
                "simulate serve --out {folder} --hypervisors a",
                folder = path("out")
            ),
        ),
        (
            2,
            format!(
                "simulate serve --out {folder} --kubeconfig {broken}",
                folder = path("out")
            ),
        ),
        (
            3,
            format!(
                "simulate serve --out {folder} --kubeconfig {nobody}",
                folder = path("out")
            ),
        ),
        (2, "demo --policy nosuch".to_owned()),
        (2, "plan".to_owned()),
        (2, format!("plan --from-cluster --kubeconfig {broken}")),
        (3, format!("plan --from-cluster --kubeconfig {nobody}")),
        (
            4,
            format!("plan -f {one} --proxmox-credentials {credentials}"),
        ),
        (
            4,
            format!("explain pool default -f {two} --proxmox-credentials {credentials}"),
        ),
        (2, format!("explain pool a --kubeconfig {broken}")),
        (3, format!("explain pool a --kubeconfig {nobody}")),
        (2, format!("doctor --kubeconfig {broken}")),
        (3, format!("doctor --kubeconfig {nobody}")),
        (2, format!("doctor --values {broken}")),
        (2, format!("crds --apply --kubeconfig {broken}")),
        (3, format!("crds --apply --kubeconfig {nobody}")),
        (1, format!("policy show files {broken}")),
        (0, "policy show list".to_owned()),
        (2, "version -o xml".to_owned()),
        (0, "version".to_owned()),
    ] {
        let arguments: Vec<&str> = command.split(' ').collect();
        let ended = tokio::time::timeout(SOON, kproxide(&arguments).output()).await;
        let ended = ended.unwrap_or_else(|_| panic!("{command} does not end"));
        let ended = ended.unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{command}: {said}");
        assert_eq!(said.is_empty(), code == 0, "{command}: {said}");
        let panicked = said.contains("panicked") || ended.status.code().is_none();
        assert!(!panicked, "{command}: {said}");
    }
}
