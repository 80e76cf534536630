//! What Helm needs of a chart: kinds that each Kubernetes knows, and a test of what it has installed.

use std::collections::BTreeMap;
use std::fs;

use kproxide_testkit::{Programs, require_controlplane};
use serde_json::{Value, json};

use crate::render::{chart, repository, required_values, values, values_file};

/// From the oldest that Chart.yaml allows to the one that the tests run.
const KUBERNETES: [&str; 7] = [
    "1.30.0", "1.31.0", "1.32.0", "1.33.0", "1.34.0", "1.35.0", "1.36.0",
];

/// Each kind, with what brings it.
fn kinds() -> BTreeMap<String, String> {
    let text = fs::read_to_string(repository("tests/data/chart/kinds.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let kinds = lines.map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap().to_owned();
        (format!("{} {}", word(), word()), word())
    });
    kinds.collect()
}

/// Values with which the chart makes each object that it can make.
fn everything() -> Value {
    values(json!({
        "clusters": { "proxmox": { "credentials": {
            "existingSecret": "", "tokenId": "a@pve!t", "tokenSecret": "s",
        } } },
        "nodeClasses": { "default": { "joinScript": { "command": "true" } } },
        "replicas": 2,
        "networkPolicy": { "enabled": true, "egress": { "enabled": true } },
        "serviceMonitor": { "enabled": true },
        "podMonitor": { "enabled": true },
        "prometheusRule": { "enabled": true },
        "dashboard": { "enabled": true },
    }))
}

/// With hooks, as that version of Kubernetes gets it.
async fn rendered(programs: &Programs, values: &Value, kubernetes: &str) -> Vec<Value> {
    let file = values_file(values);
    let path = file.path().display().to_string();
    let version = format!("--kube-version={kubernetes}");
    let chart = chart();
    let arguments = [
        "template",
        "kproxide",
        &chart,
        "--namespace",
        "autoscaling",
        &version,
        "--values",
        &path,
    ];
    let rendered = programs.helm(&arguments).await.unwrap();
    serde_saphyr::from_multiple(&rendered).unwrap()
}

fn kind(object: &Value) -> String {
    let word = |key: &str| object[key].as_str().unwrap();
    format!("{} {}", word("apiVersion"), word("kind"))
}

#[tokio::test]
async fn the_chart_renders_the_kinds_of_the_release_before_and_no_other() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = rendered(&programs, &everything(), KUBERNETES[0]).await;
    let known = kinds();
    for object in &objects {
        let kind = kind(object);
        assert!(
            known.contains_key(&kind),
            "{kind}: an upgrade would find no definition of it. See tests/data/chart/kinds.txt"
        );
    }
    for kind_of_list in known.keys() {
        let is_rendered = objects.iter().any(|object| kind(object) == *kind_of_list);
        assert!(is_rendered, "{kind_of_list} is never rendered");
    }
}

/// The API server of the newest accepts them: see `install.rs`.
#[tokio::test]
async fn each_kubernetes_that_the_chart_allows_knows_what_it_gets() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let minor = |version: &str| -> u32 { version.split('.').nth(1).unwrap().parse().unwrap() };
    let known = kinds();
    let first = rendered(&programs, &everything(), KUBERNETES[0]).await;
    for kubernetes in KUBERNETES {
        let objects = rendered(&programs, &everything(), kubernetes).await;
        assert_eq!(objects, first, "{kubernetes}");
        for object in &objects {
            let kind = kind(object);
            let since = &known[&kind];
            if since.starts_with(|first: char| first.is_ascii_digit()) {
                let is_there = minor(&format!("{since}.0")) <= minor(kubernetes);
                assert!(is_there, "{kind} comes with {since}, not {kubernetes}");
            }
        }
    }
    let file = values_file(&required_values());
    let path = file.path().display().to_string();
    let chart = chart();
    let old = [
        "template",
        "kproxide",
        &chart,
        "--kube-version=1.29.9",
        "--values",
        &path,
    ];
    let refused = programs.helm(&old).await.unwrap_err().reason;
    assert!(
        refused.contains("incompatible with Kubernetes"),
        "{refused}"
    );
}

#[tokio::test]
async fn helms_test_is_doctor_with_kproxides_files_and_rights() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut given = everything();
    given["policies"] = json!({ "configMaps": [{ "name": "mine" }] });
    given["fullnameOverride"] = json!("scaler");
    let objects = rendered(&programs, &given, KUBERNETES[0]).await;
    let of_kind = |kind: &str| {
        let mut found = objects.iter().filter(|object| object["kind"] == kind);
        found.next().unwrap()
    };
    let pod = of_kind("Pod");
    assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
    let kproxide = &of_kind("Deployment")["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "doctor",
            "--namespace=autoscaling",
            "--name=scaler",
            "--policy-dir=/etc/kproxide/policies",
            "--fail-on=error"
        ])
    );
    let of_kproxide = &kproxide["spec"]["containers"][0];
    for same in [
        "image",
        "imagePullPolicy",
        "securityContext",
        "resources",
        "volumeMounts",
    ] {
        assert_eq!(container[same], of_kproxide[same], "{same}");
        assert!(!container[same].is_null(), "{same}");
    }
    for same in [
        "serviceAccountName",
        "affinity",
        "tolerations",
        "securityContext",
        "volumes",
    ] {
        assert_eq!(pod["spec"][same], kproxide["spec"][same], "{same}");
        assert!(!pod["spec"][same].is_null(), "{same}");
    }
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    // Nobody who looks for kproxide's pod finds it.
    let selector = &of_kind("Service")["spec"]["selector"];
    let selector = selector.as_object().unwrap();
    let labels = &pod["metadata"]["labels"];
    assert!(!selector.iter().all(|(key, value)| labels[key] == *value));
}

#[test]
fn the_chart_says_what_artifact_hub_shows() {
    let text = fs::read_to_string(repository("charts/kproxide/Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text).unwrap();
    let shown = |key: &str| chart["annotations"][format!("artifacthub.io/{key}")].as_str();
    assert_eq!(shown("license"), Some("Apache-2.0"));
    for list in ["changes", "images", "links"] {
        let list: Value = serde_saphyr::from_str(shown(list).unwrap()).unwrap();
        assert!(!list.as_array().unwrap().is_empty(), "{list}");
    }
    let images: Value = serde_saphyr::from_str(shown("images").unwrap()).unwrap();
    let version = chart["appVersion"].as_str().unwrap();
    let image = format!("ghcr.io/kproxide/kproxide:{version}");
    assert_eq!(images[0]["image"], json!(image));
    // Nothing that another chart brings.
    assert_eq!(chart["dependencies"], Value::Null);
}
