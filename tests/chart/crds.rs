//! The Job that brings the CustomResourceDefinitions to the chart's version: what it is, and how far its rights reach.

use std::collections::BTreeSet;

use kproxide_testkit::controlplane::ApiError;
use kproxide_testkit::{ControlPlane, Options, require_controlplane};
use serde_json::{Value, json};

use crate::render::{hooks, named, names, render, repository, required_values, the, values};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FIVE: [&str; 5] = [
    "ledgers",
    "nodeclaims",
    "nodeclasses",
    "nodepools",
    "proxmoxclusters",
];

#[tokio::test]
async fn the_job_runs_the_charts_image_where_kproxide_runs_and_goes_with_its_rights() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let given = values(json!({
        "image": { "repository": "mine/it", "tag": "x", "pullPolicy": "Never" },
        "imagePullSecrets": [{ "name": "registry" }],
        "tolerations": [{ "key": "mine", "operator": "Exists" }],
        "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["a"] }],
    }));
    let made = hooks(&programs, &given).await;
    let kinds: Vec<&str> = made
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"]
    );
    for object in &made {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "pre-install,pre-upgrade");
        assert_eq!(
            annotations["helm.sh/hook-delete-policy"],
            "before-hook-creation,hook-succeeded"
        );
        let first = object["kind"] != "Job";
        let weight = annotations["helm.sh/hook-weight"].as_str().unwrap();
        assert_eq!(weight, if first { "-1" } else { "0" });
    }
    let job = &the(&made, "Job")["spec"]["template"];
    let objects = render(&programs, &given).await.unwrap();
    let deployment = &the(&objects, "Deployment")["spec"];
    let (ours, theirs) = (&job["spec"], &deployment["template"]["spec"]);
    for same in [
        "imagePullSecrets",
        "tolerations",
        "affinity",
        "hostAliases",
        "securityContext",
        "priorityClassName",
        "dnsPolicy",
    ] {
        assert_eq!(ours[same], theirs[same], "{same}");
    }
    for same in ["image", "imagePullPolicy", "securityContext"] {
        assert_eq!(
            ours["containers"][0][same], theirs["containers"][0][same],
            "{same}"
        );
    }
    assert_eq!(ours["containers"][0]["args"], json!(["crds", "--apply"]));
    assert_eq!(ours["serviceAccountName"], "kproxide-crds");
    // No Deployment, Service or budget takes the Job's pod for one of kproxide.
    let wanted = &deployment["selector"]["matchLabels"]["app.kubernetes.io/name"];
    assert_ne!(job["metadata"]["labels"]["app.kubernetes.io/name"], *wanted);

    let without = values(json!({ "crds": { "hook": false } }));
    assert!(hooks(&programs, &without).await.is_empty());
}

/// On a real API server, as the Job's ServiceAccount: of five definitions it may make and change each, and read no sixth.
#[tokio::test]
async fn the_jobs_service_account_can_touch_no_sixth_definition() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let options = Options {
        kwok: false,
        ..Options::default()
    };
    let cluster = ControlPlane::start(&programs, options).await.unwrap();
    let made = hooks(&programs, &required_values()).await;
    let role = named(&made, "ClusterRole", "kproxide-crds");
    assert_eq!(role["rules"].as_array().unwrap().len(), 1);
    assert_eq!(role["rules"][0]["verbs"], json!(["get", "patch", "create"]));
    assert_eq!(names(&made, "ClusterRoleBinding"), ["kproxide-crds"]);
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "autoscaling" } });
    cluster
        .api()
        .create("/api/v1/namespaces", &namespace)
        .await
        .unwrap();
    for object in made.iter().filter(|object| object["kind"] != "Job") {
        cluster
            .kubectl_with_input(&["create", "-f", "-"], &object.to_string())
            .await
            .unwrap();
    }
    let token = cluster
        .token_for("autoscaling", "kproxide-crds", None)
        .await
        .unwrap();
    let job = cluster.api_as(&token).unwrap();
    let path = |name: &str| format!("{DEFINITIONS}/{name}");
    let apply = async |name: &str, definition: &Value| job.apply(&path(name), definition).await;
    for plural in FIVE {
        let file = repository(&format!("charts/kproxide/crds/{plural}.yaml"));
        let definition: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let name = format!("{plural}.kproxide.dev");
        // Made, and made again.
        for _ in 0..2 {
            apply(&name, &definition).await.unwrap();
        }
        job.get(&path(&name)).await.unwrap();
        assert!(is_forbidden(&job.delete(&path(&name)).await), "{name}");
        // Without a name in the request nothing is made.
        assert!(is_forbidden(&job.create(DEFINITIONS, &definition).await));
    }
    let sixth = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "sixths.kproxide.dev" },
        "spec": {
            "group": "kproxide.dev", "scope": "Cluster",
            "names": { "kind": "Sixth", "plural": "sixths" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    });
    for _ in 0..2 {
        assert!(is_forbidden(&apply("sixths.kproxide.dev", &sixth).await));
        assert!(is_forbidden(&job.get(&path("sixths.kproxide.dev")).await));
        // The second time it is there.
        let _ = cluster.api().create(DEFINITIONS, &sixth).await;
    }
    assert!(is_forbidden(&job.list(DEFINITIONS).await));
    assert!(is_forbidden(
        &job.get("/api/v1/namespaces/autoscaling").await
    ));
}

fn is_forbidden<T>(answer: &Result<T, ApiError>) -> bool {
    answer
        .as_ref()
        .is_err_and(|error| error.status().is_some_and(|status| status.as_u16() == 403))
}

/// The fields that objects of a kind may have, as lines: path, type, and whether it must be given.
fn fields(plural: &str) -> BTreeSet<String> {
    let file = repository(&format!("charts/kproxide/crds/{plural}.yaml"));
    let definition: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut lines = BTreeSet::new();
    let mut parts = vec![(plural.to_owned(), schema)];
    while let Some((path, part)) = parts.pop() {
        for (name, field) in part["properties"].as_object().into_iter().flatten() {
            let given = part["required"].as_array().into_iter().flatten();
            let must = given.clone().any(|required| required == name.as_str());
            let kind = field["type"].as_str().unwrap_or("amount");
            let must = if must { " required" } else { "" };
            let path = format!("{path}.{name}");
            lines.insert(format!("{path} {kind}{must}"));
            parts.push((path, field));
        }
        for (inside, sign) in [("items", "[]"), ("additionalProperties", "{}")] {
            if part[inside].is_object() {
                parts.push((format!("{path}{sign}"), &part[inside]));
            }
        }
    }
    lines
}

/// Within v1alpha1: definitions stay when a release is rolled back, and Helm writes objects of an earlier chart to them.
/// After a new field: `KPROXIDE_UPDATE=1 cargo test -p kproxide-testkit --test chart fields`.
#[test]
fn fields_of_v1alpha1_are_only_added_and_no_new_one_must_be_given() {
    let path = repository("tests/data/v1alpha1.txt");
    let now: BTreeSet<String> = FIVE.iter().flat_map(|plural| fields(plural)).collect();
    let of_release = std::fs::read_to_string(&path).unwrap_or_default();
    let of_release: BTreeSet<&str> = of_release.lines().collect();
    for line in &of_release {
        let optional = line.trim_end_matches(" required");
        assert!(
            now.contains(*line) || now.contains(optional),
            "{line} is gone, has another type, or must be given now"
        );
    }
    let paths: BTreeSet<&str> = of_release
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    for line in now.iter().filter(|line| line.ends_with(" required")) {
        let path = line.split(' ').next().unwrap();
        let parent = path.rsplit_once('.').unwrap().0.trim_end_matches("[]");
        let is_new = !paths.contains(path) && paths.contains(parent);
        assert!(!is_new, "{line} is new, and objects of the release lack it");
    }
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        let lines: Vec<&str> = now.iter().map(String::as_str).collect();
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    let missing: Vec<&String> = now
        .iter()
        .filter(|line| !of_release.contains(line.as_str()))
        .collect();
    assert!(
        missing.is_empty() || std::env::var_os("KPROXIDE_UPDATE").is_some(),
        "new fields: {missing:?}"
    );
}
