//! Secrets that nobody else has go through a whole life, with everything logged that can be. Nothing that can be seen afterwards holds one.

use std::fs;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use kproxide_simulator::physics::Join;
use kproxide_testkit::eventually;
use serde_json::json;

use crate::bench::on_a_cluster;
use crate::install::merge;
use crate::stage::{NAMESPACE, POOL, SOON, Scene, Stage};

const CLUSTER: &str = "/apis/kproxide.dev/v1alpha1/proxmoxclusters/lab";
const CREDENTIALS: &str = "/api/v1/namespaces/kproxide/secrets/kproxide-credentials";
const LEDGER: &str = "/apis/kproxide.dev/v1alpha1/ledgers/kproxide";
const KEY: &str = "/api/v1/namespaces/kproxide/secrets/kproxide-ownership-key";
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Characters that every encoding of a URL, JSON or a form changes.
const GOOD: &str = "canary-good/7f3b9c%20+=&d1";
const BAD: &str = "canary-bad/2e8d4a%20+=&c6";
const JOIN: &str = "canary-join-5a1f0e9b7c";

#[test]
#[ignore = "tier: e2e"]
fn no_secret_of_a_token_leaves_the_process() {
    on_a_cluster(async |bench| {
        let mut scene = scene();
        scene.topology.users[0].tokens[0].secret = GOOD.to_owned();
        let stage = Stage::set(bench, scene).await;
        live(stage, "token-secret").await;
    });
}

#[test]
#[ignore = "tier: e2e"]
fn no_password_or_ticket_leaves_the_process() {
    on_a_cluster(async |bench| {
        let mut scene = scene();
        scene.topology.users[0].password = Some(GOOD.to_owned());
        let login = json!({
            "tokenId": "", "tokenSecret": "", "username": "kproxide@pve", "password": GOOD,
        });
        let values = json!({ "clusters": { "lab": { "credentials": login } } });
        merge(&mut scene.values, values);
        let stage = Stage::set(bench, scene).await;
        live(stage, "password").await;
    });
}

/// Everything is logged, and machines join by a script that holds a token.
fn scene() -> Scene {
    let mut scene = Scene::with(json!({
        "log": "trace",
        "policies": { "configMaps": [{ "name": "mine" }] },
        "nodeClasses": { "default": { "joinScript": { "command": format!("k3s agent --token {JOIN}\n") } } },
    }));
    scene.guests.join = Join::OnExec;
    scene
}

/// A policy that cannot be used, a launch, a refused login and a removal; then a look at all that is left of it.
async fn live(stage: Stage<'_>, field: &str) {
    let api = stage.api();
    let mut files = json!({ "spread.wasm": STANDARD.encode("not wasm") });
    for policy in kproxide_builtins::HOSTILE {
        files[format!("{}.wasm", policy.name)] = STANDARD.encode(policy.wasm).into();
    }
    let mine = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "mine" }, "binaryData": files,
    });
    let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    api.create(&config_maps, &mine).await.unwrap();
    stage.pod.refresh_volumes().await.unwrap();
    stage
        .until_event(
            "default",
            "PolicyRefused",
            "the file of policy spread is refused",
        )
        .await;

    // From here on policies keep what they are told.
    let echoes = json!({ "spec": { "policies": {
        "hostSelection": { "use": "hostile", "settings": { "do": "echo" } },
        "scaleDown": { "use": "hostile-scale-down", "settings": { "do": "echo" } },
        "labels": { "use": "hostile-labels", "settings": { "do": "echo" } },
    } } });
    api.merge(POOL, &echoes).await.unwrap();
    stage.until_more_ticks(2).await;

    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    stage.until_running("web", 1).await;
    stage.until_nodes(1).await;
    let mut seen = vec![("Proxmox while the machine runs", snapshot(&stage))];
    seen.push((
        "/debug/plan while it runs",
        admin(&stage, "/debug/plan").await,
    ));
    seen.push(("what the label policy was told", decorated(&stage).await));

    give(&stage, field, BAD).await;
    until_refused(&stage).await;
    seen.push((
        "the cluster that refuses",
        api.get(CLUSTER).await.unwrap().to_string(),
    ));
    give(&stage, field, GOOD).await;
    until_reachable(&stage).await;

    stage.scale("web", 0).await;
    stage.until_nothing_is_left().await;

    seen.push(("/debug/plan", admin(&stage, "/debug/plan").await));
    seen.push(("/debug/decisions", admin(&stage, "/debug/decisions").await));
    seen.push(("/metrics", admin(&stage, "/metrics").await));
    seen.push(("Proxmox", snapshot(&stage)));
    seen.push(("what Proxmox was asked", requests(&stage)));
    let sent = format!("{:?}", stage.served.pve.audit());
    seen.push(("the objects", objects(&stage).await));
    seen.push(("what the other policies were told", told(&stage).await));
    let key = api.get(KEY).await.unwrap();
    let key = STANDARD
        .decode(key["data"]["key"].as_str().unwrap())
        .unwrap();
    let bare_key = STANDARD.decode(&key).unwrap();
    let account = fs::read_to_string(stage.pod.path_of(SERVICE_ACCOUNT).unwrap()).unwrap();
    // The last lines of the process are looked at too.
    let mut kept = fs::File::open(stage.pod.log_path()).unwrap();
    stage.end().await;
    let mut bytes = Vec::new();
    kept.read_to_end(&mut bytes).unwrap();
    let log = String::from_utf8_lossy(&bytes).into_owned();
    assert!(log.contains("TRACE"), "nothing was traced");
    // The beginning of every ticket of Proxmox VE.
    assert!(!log.contains("PVE:kproxide@pve:"), "a ticket is in the log");
    seen.push(("the log", log));

    let canaries: [(&str, &[u8]); 6] = [
        ("the good credentials", GOOD.as_bytes()),
        ("the refused credentials", BAD.as_bytes()),
        ("the join script's token", JOIN.as_bytes()),
        // As it lies in the Secret, and the 32 bytes themselves.
        ("the ownership key", &key),
        ("the ownership key", &bare_key),
        ("the ServiceAccount's token", account.trim().as_bytes()),
    ];
    // What has to hold it does, and is found there.
    assert!(
        forms(JOIN.as_bytes())
            .iter()
            .any(|form| sent.contains(form)),
        "no machine got the join script"
    );
    let mut leaks = Vec::new();
    for (name, canary) in canaries {
        for form in forms(canary) {
            for (place, text) in &seen {
                if let Some(at) = text.find(&form) {
                    let around: String = text[..at].chars().rev().take(200).collect();
                    let around: String = around.chars().rev().collect();
                    leaks.push(format!("{name} in {place}, after: {around}"));
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// How a secret may look: itself, in a URL, in JSON, in hex, as bytes, and in base64 wherever in a longer text it begins.
fn forms(secret: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    if let Ok(text) = std::str::from_utf8(secret) {
        forms.push(text.to_owned());
        forms.push(json!(text).to_string().trim_matches('"').to_owned());
        forms.push(format!("{text:?}").trim_matches('"').to_owned());
    }
    let encoded = |keep: &[u8]| -> String {
        secret
            .iter()
            .map(|byte| match byte {
                b if b.is_ascii_alphanumeric() || keep.contains(b) => char::from(*b).to_string(),
                b => format!("%{b:02X}"),
            })
            .collect()
    };
    forms.push(encoded(b"-_.~"));
    forms.push(encoded(b"-_.*").replace("%20", "+"));
    forms.push(secret.iter().map(|byte| format!("{byte:02x}")).collect());
    forms.push(format!("{secret:?}"));
    for before in 0..3 {
        let padded = [vec![0; before].as_slice(), secret].concat();
        // Whole groups of three bytes that are the secret's alone.
        let (first, last) = (before.div_ceil(3) * 3, padded.len() / 3 * 3);
        forms.push(STANDARD_NO_PAD.encode(&padded[first..last]));
        forms.push(URL_SAFE_NO_PAD.encode(&padded[first..last]));
    }
    forms.sort();
    forms.dedup();
    forms
}

#[test]
fn a_secret_is_found_in_every_encoding() {
    let text = format!("agent {GOOD} and more");
    for text in [
        STANDARD.encode(&text),
        STANDARD.encode(format!("x{text}")),
        URL_SAFE_NO_PAD.encode(format!("xx{text}")),
        text.replace('%', "%25")
            .replace('/', "%2F")
            .replace('+', "%2B")
            .replace('=', "%3D")
            .replace('&', "%26"),
        json!({ "a": text }).to_string(),
    ] {
        let found = forms(GOOD.as_bytes())
            .iter()
            .any(|form| text.contains(form));
        assert!(found, "{text}");
    }
}

/// What the label policy made of its question: an annotation of the machine, which its claim and its Node carry.
async fn decorated(stage: &Stage<'_>) -> String {
    let claims = stage.claims().await;
    let told = &claims[0]["spec"]["annotations"]["facts"];
    assert!(told.as_str().unwrap().contains("pve1"), "{told}");
    // The first write to a Node gives it the claim's label alone.
    eventually(SOON, "what it was told, on the Node", async || {
        let nodes = stage.nodes().await;
        if nodes[0]["metadata"]["annotations"]["facts"] == *told {
            Ok(())
        } else {
            Err(stage.describe().await)
        }
    })
    .await;
    json!([claims, stage.nodes().await]).to_string()
}

/// What the other policies kept of their questions in the Ledger.
async fn told(stage: &Stage<'_>) -> String {
    let ledger = stage.api().get(LEDGER).await.unwrap();
    let rows = ledger["spec"]["policyState"].as_array().unwrap();
    let states = rows.iter().map(|row| {
        let state = STANDARD.decode(row["state"].as_str().unwrap_or_default());
        String::from_utf8(state.unwrap()).unwrap()
    });
    let told: Vec<String> = states.collect();
    let facts = told.iter().filter(|told| told.contains("pve1"));
    assert_eq!(facts.count(), 2, "{told:#?}");
    told.join("\n")
}

/// Writes a credential into the Secret of the chart and lets it reach the mount.
async fn give(stage: &Stage<'_>, field: &str, secret: &str) {
    let patch = json!({ "stringData": { format!("lab.{field}"): secret } });
    stage.api().merge(CREDENTIALS, &patch).await.unwrap();
    stage.pod.refresh_volumes().await.unwrap();
}

async fn until_reachable(stage: &Stage<'_>) {
    eventually(SOON, "status.reachable", async || {
        let status = stage.api().get(CLUSTER).await.unwrap()["status"].take();
        if status["reachable"] == true {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
}

/// A token that worked stays in use instead of one that is refused; a password cannot, once its ticket has ended.
async fn until_refused(stage: &Stage<'_>) {
    eventually(SOON, "a refused login", async || {
        let status = stage.api().get(CLUSTER).await.unwrap()["status"].take();
        let log = fs::read(stage.pod.log_path()).unwrap();
        let told = String::from_utf8_lossy(&log).contains("Proxmox refuses the new credentials");
        if told || status["reachable"] == false {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
}

fn snapshot(stage: &Stage<'_>) -> String {
    format!("{:?}", stage.served.pve.snapshot())
}

/// A login has to hold the password, and a script has to reach its machine.
fn requests(stage: &Stage<'_>) -> String {
    let mut requests = stage.served.pve.audit();
    for request in &mut requests {
        let login = request.path == "/access/ticket";
        let exec = request.path.ends_with("/agent/exec");
        request
            .params
            .retain(|(name, _)| !(login && name == "password" || exec && name == "input-data"));
    }
    format!("{requests:?}")
}

/// An answer of kproxide's own port.
async fn admin(stage: &Stage<'_>, path: &str) -> String {
    let mut args = stage.pod.args().iter();
    let address = args
        .find_map(|arg| arg.strip_prefix("--admin-address="))
        .unwrap();
    let port = address.rsplit(':').next().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .get(format!("http://127.0.0.1:{port}{path}"))
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.text().await.unwrap()
}

/// Every object of the API server but Secrets: Helm keeps its values there too.
async fn objects(stage: &Stage<'_>) -> String {
    let api = stage.api();
    let groups = api.get("/apis").await.unwrap();
    let mut roots = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        roots.push(format!("/apis/{version}"));
    }
    let (mut all, mut kinds) = (String::new(), 0);
    for root in roots {
        let resources = api.get(&root).await.unwrap();
        for resource in resources["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let listed = resource["verbs"]
                .as_array()
                .unwrap()
                .contains(&json!("list"));
            if !listed || name == "secrets" {
                continue;
            }
            // A kind may have been taken away since.
            if let Some(list) = api.find(&format!("{root}/{name}")).await.unwrap() {
                all.push_str(&list.to_string());
                kinds += 1;
            }
        }
    }
    assert!(kinds > 40, "{kinds} kinds of objects");
    assert!(all.contains("PolicyRefused"), "no Event is among them");
    all
}
