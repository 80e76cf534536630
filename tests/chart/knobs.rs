//! What a person can set beside the objects: each knob in what comes out, and objects that come only when asked for.

use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{named, names, render, required_values, the, values};

fn pod(objects: &[Value]) -> &Value {
    &the(objects, "Deployment")["spec"]["template"]["spec"]
}

#[tokio::test]
async fn each_part_of_the_pod_can_be_set() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "a": "b" } },
    }]);
    let first = json!({ "name": "first", "image": "busybox", "command": ["true"] });
    let given = json!({
        "podSecurityContext": { "runAsUser": 7 },
        "securityContext": { "privileged": false },
        "hostAliases": [{ "ip": "10.0.0.11", "hostnames": ["pve1.example"] }],
        "dnsPolicy": "None",
        "dnsConfig": { "nameservers": ["10.0.0.1"] },
        "topologySpreadConstraints": spread,
        "initContainers": [first],
        "extraEnv": [{ "name": "TZ", "value": "Europe/Berlin" }],
        "imagePullSecrets": [{ "name": "registry" }],
        "nodeSelector": { "disk": "ssd" },
        "priorityClassName": "",
    });
    let objects = render(&programs, &values(given.clone())).await.unwrap();
    let pod = pod(&objects);
    let user = &pod["securityContext"];
    assert_eq!(
        (&user["runAsUser"], &user["runAsGroup"]),
        (&json!(7), &json!(65532))
    );
    assert_eq!(pod["containers"][0]["securityContext"]["privileged"], false);
    for same in [
        "hostAliases",
        "dnsPolicy",
        "dnsConfig",
        "topologySpreadConstraints",
        "initContainers",
        "imagePullSecrets",
        "nodeSelector",
    ] {
        assert_eq!(pod[same], given[same], "{same}");
    }
    assert_eq!(pod["priorityClassName"], Value::Null);
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env.last().unwrap(), &given["extraEnv"][0]);
    assert!(env.len() > 3, "{env:?}");
}

#[tokio::test]
async fn an_affinity_holds_together_with_the_charts_in_each_term() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let of = |key: &str| json!({ "key": key, "operator": "Exists" });
    let other = json!({ "weight": 3, "preference": { "matchExpressions": [of("fast")] } });
    let apart =
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone" }] });
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [of("a")] },
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["b"] }] },
            ] },
            "preferredDuringSchedulingIgnoredDuringExecution": [other],
        },
        "podAntiAffinity": apart,
    });
    let objects = render(&programs, &values(json!({ "affinity": affinity })))
        .await
        .unwrap();
    let found = &pod(&objects)["affinity"];
    assert_eq!(found["podAntiAffinity"], apart);
    let node = &found["nodeAffinity"];
    let terms = &node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms.as_array().unwrap().len(), 2);
    for term in terms.as_array().unwrap() {
        assert_eq!(term["matchExpressions"][0]["key"], "kproxide.dev/claim");
        assert_eq!(term["matchExpressions"][1]["key"], "kubernetes.io/arch");
    }
    assert_eq!(terms[0]["matchExpressions"][2], of("a"));
    assert_eq!(terms[1]["matchFields"][0]["values"], json!(["b"]));
    let preferred = &node["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[1], other);
}

/// k0s and hosted control planes show no Node of their own.
#[tokio::test]
async fn a_pod_that_may_run_on_managed_nodes_prefers_others() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let more = json!({ "allowManagedNodes": true, "image": { "architectures": [] } });
    let objects = render(&programs, &values(more)).await.unwrap();
    let node = &pod(&objects)["affinity"]["nodeAffinity"];
    assert_eq!(
        node["requiredDuringSchedulingIgnoredDuringExecution"],
        Value::Null
    );
    let preferred = node["preferredDuringSchedulingIgnoredDuringExecution"]
        .as_array()
        .unwrap();
    let keys: Vec<&Value> = preferred
        .iter()
        .map(|one| &one["preference"]["matchExpressions"][0]["key"])
        .collect();
    assert_eq!(
        keys,
        [
            "kproxide.dev/claim",
            "node-role.kubernetes.io/control-plane"
        ]
    );
    assert!(preferred[0]["weight"].as_u64() > preferred[1]["weight"].as_u64());
}

#[tokio::test]
async fn several_replicas_are_spread_and_have_a_budget_and_none_leaves_all_else() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    for (replicas, budgets) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        let objects = render(&programs, &values(json!({ "replicas": replicas })))
            .await
            .unwrap();
        let deployment = the(&objects, "Deployment");
        assert_eq!(deployment["spec"]["replicas"], replicas);
        assert_eq!(names(&objects, "PodDisruptionBudget").len(), budgets);
        assert_eq!(names(&objects, "NodePool"), ["default"]);
        assert_eq!(names(&objects, "ServiceAccount"), ["kproxide"]);
        let spread = &pod(&objects)["topologySpreadConstraints"];
        assert_eq!(spread.is_null(), budgets == 0);
        if budgets > 0 {
            // One control-plane Node is enough.
            assert_eq!(spread[0]["whenUnsatisfiable"], "ScheduleAnyway");
            let budget = &the(&objects, "PodDisruptionBudget")["spec"];
            assert_eq!(budget["maxUnavailable"], 1);
            assert_eq!(budget["selector"], deployment["spec"]["selector"]);
        }
    }
}

#[tokio::test]
async fn a_service_and_its_monitor_find_the_admin_port() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let more = json!({
        "admin": { "port": 9090 },
        "service": { "port": 80, "annotations": { "a": "b" } },
        "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" }, "interval": "30s" },
    });
    let objects = render(&programs, &values(more)).await.unwrap();
    let service = the(&objects, "Service");
    assert_eq!(
        service["spec"]["ports"],
        json!([{ "name": "admin", "port": 80, "targetPort": "admin" }])
    );
    assert_eq!(service["metadata"]["annotations"], json!({ "a": "b" }));
    let pod = &the(&objects, "Deployment")["spec"]["template"];
    assert_eq!(
        pod["spec"]["containers"][0]["ports"],
        json!([{ "name": "admin", "containerPort": 9090 }])
    );
    let holds = |labels: &Value, selector: &Value| {
        let selector = selector.as_object().unwrap();
        assert!(!selector.is_empty());
        selector.iter().all(|(key, value)| labels[key] == *value)
    };
    assert!(holds(
        &pod["metadata"]["labels"],
        &service["spec"]["selector"]
    ));
    let monitor = the(&objects, "ServiceMonitor");
    assert!(holds(
        &service["metadata"]["labels"],
        &monitor["spec"]["selector"]["matchLabels"]
    ));
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(
        monitor["spec"]["endpoints"],
        json!([{ "port": "admin", "path": "/metrics", "interval": "30s" }])
    );
    let without = json!({ "service": { "enabled": false } });
    let objects = render(&programs, &values(without)).await.unwrap();
    assert!(names(&objects, "Service").is_empty());
    assert!(names(&objects, "ServiceMonitor").is_empty());
}

#[tokio::test]
async fn common_labels_and_annotations_are_on_every_object_and_hide_none_of_the_charts() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let more = json!({
        "commonLabels": { "team": "platform" },
        "commonAnnotations": { "owner": "me", "helm.sh/resource-policy": "delete" },
        "podLabels": { "app.kubernetes.io/name": "mine", "colour": "blue" },
        "podAnnotations": { "owner": "pod" },
        "serviceAccount": { "annotations": { "owner": "account" } },
        "replicas": 2,
        "networkPolicy": { "enabled": true },
        "serviceMonitor": { "enabled": true },
        "nodeClasses": { "default": { "joinScript": { "command": "true" } } },
        "clusters": { "proxmox": { "credentials": {
            "existingSecret": "", "tokenId": "a@pve!t", "tokenSecret": "s",
        } } },
    });
    let objects = render(&programs, &values(more)).await.unwrap();
    assert!(objects.len() > 20, "{}", objects.len());
    for object in &objects {
        let metadata = &object["metadata"];
        let what = format!("{} {}", object["kind"], metadata["name"]);
        assert_eq!(metadata["labels"]["team"], "platform", "{what}");
        assert_eq!(
            metadata["labels"]["app.kubernetes.io/managed-by"], "Helm",
            "{what}"
        );
        let owner = if object["kind"] == "ServiceAccount" {
            "account"
        } else {
            "me"
        };
        assert_eq!(metadata["annotations"]["owner"], owner, "{what}");
        let kept = ["ProxmoxCluster", "NodeClass", "NodePool"].map(Value::from);
        if kept.contains(&object["kind"]) {
            let policy = &metadata["annotations"]["helm.sh/resource-policy"];
            assert_eq!(*policy, "keep", "{what}");
        }
    }
    let pod = &the(&objects, "Deployment")["spec"]["template"]["metadata"];
    assert_eq!(
        pod["labels"],
        json!({
            "app.kubernetes.io/name": "kproxide", "app.kubernetes.io/instance": "kproxide",
            "team": "platform", "colour": "blue",
        })
    );
    assert_eq!(pod["annotations"]["owner"], "pod");
}

#[tokio::test]
async fn kproxide_reaches_names_the_api_server_and_each_endpoint_and_no_more() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let proxmox = json!({ "ipBlock": { "cidr": "10.0.0.0/24" } });
    let ntp = json!({ "ports": [{ "port": 123, "protocol": "UDP" }] });
    let given = |ingress: bool| {
        values(json!({
            "clusters": {
                "proxmox": { "spec": { "endpoints": ["https://10.0.0.1:8006", "https://10.0.0.2:8007"] } },
                "lab": {
                    "credentials": { "existingSecret": "lab" },
                    "spec": { "endpoints": ["https://[fd00::1]", "https://10.0.0.3:8006/"] },
                },
            },
            "networkPolicy": {
                "enabled": ingress,
                "egress": { "enabled": true, "apiServerPorts": [6443], "to": [proxmox], "more": [ntp] },
            },
        }))
    };
    for (ingress, types) in [
        (false, json!(["Egress"])),
        (true, json!(["Ingress", "Egress"])),
    ] {
        let objects = render(&programs, &given(ingress)).await.unwrap();
        let policy = &the(&objects, "NetworkPolicy")["spec"];
        assert_eq!(policy["policyTypes"], types);
        assert_eq!(policy["ingress"].is_null(), !ingress);
        let rules = policy["egress"].as_array().unwrap();
        let mut ports: Vec<u64> = rules[1]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["port"].as_u64().unwrap())
            .collect();
        ports.sort_unstable();
        assert_eq!(
            rules[0]["ports"][0],
            json!({ "port": 53, "protocol": "UDP" })
        );
        assert_eq!(ports, [443, 6443, 8006, 8007]);
        assert_eq!(rules[1]["to"], json!([proxmox]));
        assert_eq!(rules[2], ntp);
        assert_eq!(rules.len(), 3);
    }
    let objects = render(&programs, &required_values()).await.unwrap();
    assert!(names(&objects, "NetworkPolicy").is_empty());
}

#[tokio::test]
async fn extra_objects_are_rendered_as_they_are() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "one" }, "data": { "a": "{{ b }}" } });
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: two\n";
    let objects = render(&programs, &values(json!({ "extraObjects": [map, text] })))
        .await
        .unwrap();
    assert_eq!(names(&objects, "ConfigMap"), ["one", "two"]);
    assert_eq!(*named(&objects, "ConfigMap", "one"), map);
}

/// Its name is its message: it is what Helm shows of a second release.
#[tokio::test]
async fn one_object_has_the_same_name_in_every_release_and_grants_nothing() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    for name in ["a", "b"] {
        let objects = render(&programs, &values(json!({ "fullnameOverride": name })))
            .await
            .unwrap();
        let only = named(&objects, "ClusterRole", "only-one-kproxide-in-a-cluster");
        assert_eq!(only["rules"], json!([]));
    }
}
