use serde_json::{Value, json};

use super::*;

mod hostile;

fn facts(pod: Value) -> PodFacts {
    pod_facts(&serde_json::from_value(pod).unwrap())
}

fn spec(spec: Value) -> PodSpec {
    facts(json!({"metadata": {"name": "a"}, "spec": spec})).spec
}

fn unsupported(of: Value) -> Vec<String> {
    spec(of)
        .unsupported
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_pod_that_the_scheduler_could_not_place() {
    let pod = facts(json!({
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "other": "x"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u2", "controller": true}],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                            "lastTransitionTime": "2026-01-01T00:00:05Z", "message": "0/3 nodes"}],
        },
    }));
    assert_eq!(
        pod.unschedulable_since.unwrap().to_string(),
        "2026-01-01T00:00:05Z"
    );
    assert_eq!(
        (
            pod.spec.requests.milli_cores,
            pod.spec.requests.memory_bytes,
            pod.spec.requests.pods
        ),
        (500, 512 << 20, 1)
    );
    assert_eq!(&*pod.owner.unwrap().kind, "ReplicaSet");
    assert!(pod.do_not_disrupt && !pod.mirror && !pod.ready);
    assert_eq!(pod.spec.unsupported, []);
}

/// Its words change with every release (since 1.35 they name no taint); only the condition's status and reason are an interface.
#[test]
fn b5_an_unschedulable_pod_is_one_whatever_the_scheduler_says() {
    let waiting = |message: Value| {
        facts(json!({
            "metadata": {"name": "a"}, "spec": {},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastTransitionTime": "2026-01-01T00:00:05Z", "message": message}]},
        }))
    };
    let silent = waiting(Value::Null);
    assert!(silent.unschedulable_since.is_some());
    for message in [
        "",
        "0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }. preemption: not eligible",
        "0/1 nodes are available: 1 node(s) had untolerated taint(s)",
        "0/4 nodes are available: 2 Insufficient cpu, 4 Insufficient memory.",
        "0 Knoten verfügbar",
        "no nodes available to schedule pods",
    ] {
        assert_eq!(waiting(json!(message)), silent, "{message}");
    }
}

#[test]
fn a_gated_pod_is_not_unschedulable() {
    let pod = facts(json!({"metadata": {"name": "a"}, "spec": {},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}));
    assert_eq!(pod.unschedulable_since, None);
}

#[test]
fn r7_a_gated_pod_is_not_unschedulable_whatever_its_condition_says() {
    let pod = |gates: Value| {
        facts(
            json!({"metadata": {"name": "a"}, "spec": {"schedulingGates": gates},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastTransitionTime": "2026-01-01T00:00:05Z"}]}}),
        )
    };
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(pod(gates).unschedulable_since, None);
    assert!(pod(json!([])).unschedulable_since.is_some());
    assert!(pod(Value::Null).unschedulable_since.is_some());
}

#[test]
fn init_and_sidecar_containers_overhead_and_limits_count() {
    let pod = spec(json!({
        "containers": [{"resources": {"limits": {"cpu": "1"}}}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"resources": {"requests": {"cpu": "3"}}},
        ],
        "overhead": {"cpu": "250m"},
    }));
    assert_eq!(pod.requests.milli_cores, 3100 + 250);
}

#[test]
fn huge_pages_are_a_resource_by_their_size() {
    let pages =
        json!({"hugepages-2Mi": "64Mi", "hugepages-1Gi": "1Gi", "memory": "1Gi", "cpu": "1"});
    let volumes = json!([{"name": "v", "emptyDir": {"medium": "HugePages-2Mi"}}]);
    let pod = spec(json!({
        "containers": [{"resources": {"limits": pages}}, {"resources": {"requests": {"hugepages-2Mi": "2Mi"}}}],
        "volumes": volumes,
    }));
    assert_eq!(pod.unsupported, []);
    assert!(pod.empty_dir);
    assert_eq!(pod.requests.extended("hugepages-2Mi"), 66 << 20);
    assert_eq!(pod.requests.extended("hugepages-1Gi"), 1 << 30);
    let of_the_pod = spec(json!({
        "resources": {"requests": {"hugepages-2Mi": "128Mi"}},
        "containers": [{"resources": {"requests": pages}}],
    }));
    assert_eq!(of_the_pod.requests.extended("hugepages-2Mi"), 128 << 20);
    assert_eq!(of_the_pod.requests.extended("hugepages-1Gi"), 1 << 30);
    let node = json!({"status": {"allocatable": {"hugepages-2Mi": "512Mi", "hugepages-1Gi": "0"}}});
    let node = crate::convert::node_facts(&serde_json::from_value(node).unwrap());
    assert_eq!(node.allocatable.extended("hugepages-2Mi"), 512 << 20);
    assert_eq!(node.allocatable.extended("hugepages-1Gi"), 0);
}

/// The API server has merged these from the pod's RuntimeClass.
#[test]
fn what_a_runtime_class_adds_is_read_from_the_pod() {
    let pod = spec(json!({
        "runtimeClassName": "kata",
        "overhead": {"cpu": "250m", "memory": "160Mi"},
        "nodeSelector": {"disk": "ssd", "kata": "yes"},
        "tolerations": [{"key": "kata", "operator": "Exists"}],
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
    }));
    assert_eq!(pod.unsupported, []);
    assert_eq!(
        (pod.requests.milli_cores, pod.requests.memory_bytes),
        (1250, 160 << 20)
    );
    assert_eq!(pod.node_selector.len(), 2);
    assert_eq!(pod.tolerations[0].key.as_deref(), Some("kata"));
}

/// The CPU of a pod of two containers and a sidecar that ask for 1 each, while the first and the sidecar are resized.
fn resized(status: Value) -> i64 {
    let asks = |name: &str| json!({"name": name, "resources": {"requests": {"cpu": "1"}}});
    let mut sidecar = asks("s");
    sidecar["restartPolicy"] = json!("Always");
    let pod = facts(json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [asks("a"), asks("b")], "initContainers": [sidecar, asks("i")]},
        "status": status,
    }));
    assert_eq!(pod.spec.unsupported, []);
    pod.spec.requests.milli_cores
}

#[test]
fn r27_a_pod_that_is_resized_counts_with_the_largest_of_spec_and_status() {
    let status = |in_force: &str, granted: &str| {
        json!([
            {"name": "b", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}},
            {"name": "a", "resources": {"requests": {"cpu": in_force}}, "allocatedResources": {"cpu": granted}},
        ])
    };
    let of = |in_force: &str, granted: &str| {
        resized(json!({"containerStatuses": status(in_force, granted)}))
    };
    assert_eq!(resized(json!({})), 3000);
    assert_eq!(of("1", "1"), 3000);
    assert_eq!(of("2", "1"), 4000, "its old size is still in force");
    assert_eq!(of("500m", "1500m"), 3500, "granted, and not in force yet");
    assert_eq!(of("500m", "500m"), 3000, "asked, and not granted yet");
    let ungranted = json!([{"name": "a", "allocatedResources": {"cpu": "2"}}]);
    assert_eq!(resized(json!({"containerStatuses": ungranted})), 3000);

    let pending =
        |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    let of = |reason: &str| {
        resized(json!({"containerStatuses": status("500m", "500m"), "conditions": pending(reason)}))
    };
    assert_eq!(of("Deferred"), 3000);
    assert_eq!(of("Infeasible"), 2500);
    let of_init = |name: &str| {
        let status = json!([{"name": name, "resources": {"requests": {"cpu": "4"}}}]);
        resized(json!({"initContainerStatuses": status}))
    };
    assert_eq!(of_init("s"), 6000);
    assert_eq!(of_init("i"), 3000, "it has run");
}

#[test]
fn v3_a_limit_of_the_pod_is_its_request_where_no_container_asks() {
    let of = |container: Value| {
        let pod = spec(json!({
            "resources": {"limits": {"cpu": "6", "hugepages-2Mi": "8Mi"}},
            "containers": [{"resources": container}, {}],
        }));
        let requests = &pod.requests;
        (
            requests.milli_cores,
            requests.extended("hugepages-2Mi") >> 20,
        )
    };
    assert_eq!(of(json!({})), (6000, 8));
    assert_eq!(of(json!({"requests": {"cpu": "250m"}})), (250, 8));
    assert_eq!(
        of(json!({"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}})),
        (1000, 8)
    );
}

#[test]
fn r27_requests_of_the_pod_as_a_whole_are_resized_too() {
    let of = |status: Value| {
        let pod = facts(json!({
            "metadata": {"name": "a"},
            "spec": {
                "resources": {"requests": {"cpu": "2"}},
                "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            },
            "status": status,
        }));
        let requests = &pod.spec.requests;
        (requests.milli_cores, requests.memory_bytes >> 30)
    };
    assert_eq!(of(json!({})), (2000, 1));
    let in_force = json!({"requests": {"cpu": "3", "memory": "9Gi"}});
    assert_eq!(of(json!({"resources": in_force})), (3000, 1));
    let granted = json!({"resources": {}, "allocatedResources": {"cpu": "4"}});
    assert_eq!(of(granted), (4000, 1));
}

#[test]
fn constraints_of_topology_spread_that_must_hold_are_kept() {
    let selector = json!({"matchLabels": {"k8s-app": "kube-dns"}});
    let spec = spec(json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector},
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector},
    ]}));
    let [one] = &spec.spread[..] else {
        panic!("{:?}", spec.spread);
    };
    assert_eq!(&*one.topology_key, "kubernetes.io/hostname");
    let labels = &one.selector.as_ref().unwrap().match_labels;
    assert_eq!(labels["k8s-app"], "kube-dns");
    assert_eq!(spec.unsupported, []);
    assert_eq!((one.max_skew, one.min_domains), (1, 1));
    assert_eq!((one.any_affinity, one.honors_taints), (false, false));
    let spec = self::spec(json!({"topologySpreadConstraints": [{
        "maxSkew": 2, "minDomains": 3, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
    }]}));
    let one = &spec.spread[0];
    assert_eq!((one.max_skew, one.min_domains), (2, 3));
    assert_eq!((one.any_affinity, one.honors_taints), (true, true));
}

/// A pod with a label and these required terms of anti-affinity.
fn away_from(terms: serde_json::Value) -> Vec<PodTerm> {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "default", "labels": {"version": "7"}},
        "spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}},
    });
    let facts = pod_facts(&serde_json::from_value(pod).unwrap());
    assert_eq!(facts.spec.unsupported, []);
    facts.spec.pod_anti_affinity.clone()
}

#[test]
fn terms_say_in_which_namespaces_pods_are_meant() {
    let terms = away_from(json!([
        {"topologyKey": "a", "labelSelector": {}},
        {"topologyKey": "b", "labelSelector": {}, "namespaces": ["y", "x"]},
        {"topologyKey": "c", "labelSelector": {}, "namespaceSelector": {}},
        {"topologyKey": "d"},
        {"topologyKey": "e", "namespaces": ["x"], "namespaceSelector": {"matchLabels": {"team": "a"}}},
    ]));
    let found: Vec<_> = terms
        .iter()
        .map(|term| (&*term.topology_key, &term.namespaces))
        .collect();
    let named = Namespaces::Named(vec!["x".into(), "y".into()]);
    let of_team = LabelSelector {
        match_labels: Labels::from([("team".to_owned(), "a".to_owned())]),
        match_expressions: vec![],
    };
    let selected = Namespaces::Selected(of_team, vec!["x".into()]);
    assert_eq!(
        found,
        [
            ("a", &Namespaces::Own),
            ("b", &named),
            ("c", &Namespaces::All),
            ("d", &Namespaces::Own),
            ("e", &selected),
        ]
    );
    assert_eq!(terms[3].selector, None, "it selects no pod");
}

#[test]
fn label_keys_stand_for_the_pods_own_values() {
    let terms = away_from(json!([{
        "topologyKey": "a",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version", "missing"],
        "mismatchLabelKeys": ["version"],
    }]));
    let selector = terms[0].selector.as_ref().unwrap();
    let found: Vec<_> = selector
        .match_expressions
        .iter()
        .map(|one| (&*one.key, one.operator, one.values[0].to_string()))
        .collect();
    assert_eq!(
        found,
        [
            ("version", Operator::In, "7".to_owned()),
            ("version", Operator::NotIn, "7".to_owned()),
        ]
    );
}

#[test]
fn what_is_not_evaluated_is_named_by_its_field() {
    let odd = json!([{"key": "a", "operator": "Like"}]);
    assert_eq!(
        unsupported(
            json!({"topologySpreadConstraints": [{"labelSelector": {"matchExpressions": odd}}]})
        ),
        ["spec.topologySpreadConstraints.labelSelector"]
    );
    let terms = "requiredDuringSchedulingIgnoredDuringExecution";
    let of_namespaces = json!({"matchExpressions": odd});
    assert_eq!(
        unsupported(json!({"affinity": {"podAffinity": {terms: [
            {"labelSelector": {"matchExpressions": odd}},
            {"namespaceSelector": of_namespaces},
        ]}}})),
        [
            "spec.affinity.podAffinity",
            "spec.affinity.podAffinity.namespaceSelector"
        ]
    );
    assert!(
        unsupported(json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}))
            .is_empty()
    );
    assert_eq!(
        unsupported(json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]})),
        [""; 0]
    );
    assert_eq!(
        unsupported(json!({"resourceClaims": [{"name": "gpu"}]})),
        ["spec.resourceClaims"]
    );
    assert_eq!(
        unsupported(json!({"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "csi": {}}, {"name": "c", "ephemeral": {}},
            {"name": "d", "rbd": {}}, {"name": "e", "awsElasticBlockStore": {}},
        ]})),
        ["spec.volumes.awsElasticBlockStore", "spec.volumes.rbd"]
    );
    let odd = unsupported(json!({"containers": [{"resources": {"requests": {"cpu": "many"}}}]}));
    assert!(
        odd[0].starts_with("spec.containers.resources.requests") && odd[0].contains("many"),
        "{odd:?}"
    );
}

#[test]
fn volumes_on_the_node_are_seen() {
    let pod = spec(
        json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "configMap": {}}]}),
    );
    assert!(pod.local_volumes && !pod.empty_dir && pod.unsupported.is_empty());
    assert!(spec(json!({"volumes": [{"name": "a", "emptyDir": {}}]})).empty_dir);
}

#[test]
fn affinity_and_tolerations_are_read() {
    let pod = spec(json!({
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            ]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}},
                {"weight": 9, "preference": {"matchExpressions": [{"key": "ssd", "operator": "IsNew"}]}},
            ],
        }},
        "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
    }));
    let terms = pod.node_affinity.as_ref().unwrap();
    assert_eq!(terms[0].match_expressions[0].operator, Operator::Exists);
    assert_eq!(&*terms[1].match_fields[0].values[0], "n1");
    // A preference with an operator of a later Kubernetes is left out, and the pod is served.
    let preferred = pod.preferred_node_affinity.iter();
    let preferred = preferred.map(|it| (it.weight, &*it.preference.match_expressions[0].key));
    assert_eq!(preferred.collect::<Vec<_>>(), [(7, "ssd")]);
    assert_eq!(pod.unsupported, []);
    assert_eq!(pod.tolerations[0].key, None);
    assert_eq!(pod.tolerations[1].effect, Some(TaintEffect::NoSchedule));
}

#[test]
fn daemon_set_pods_tolerate_what_their_controller_adds() {
    let set = serde_json::from_value(
        json!({"metadata": {"name": "cni"}, "spec": {"template": {"spec": {"hostNetwork": true}}}}),
    )
    .unwrap();
    let tolerations = &daemon_set_facts(&set).spec.tolerations;
    for key in ["network-unavailable", "unschedulable"] {
        let key = format!("node.kubernetes.io/{key}");
        assert!(
            tolerations
                .iter()
                .any(|one| one.key.as_deref() == Some(key.as_str())),
            "{key}"
        );
    }
}

#[test]
fn nulls_are_missing_fields() {
    let pod = facts(
        json!({"metadata": {"name": "a", "labels": null}, "spec": {"containers": null, "affinity": null}, "status": null}),
    );
    assert_eq!(pod.phase, PodPhase::Pending);
}

fn ports(of: Value) -> Vec<String> {
    let text = |port: &HostPort| format!("{}/{} {}", port.port, port.protocol, port.address);
    spec(of).host_ports.iter().map(text).collect()
}

#[test]
fn host_ports_are_those_of_containers_and_sidecars() {
    let with = |port: u16| json!([{"containerPort": 1, "hostPort": port}]);
    assert_eq!(
        ports(json!({
            "initContainers": [{"ports": with(10)}, {"ports": with(11), "restartPolicy": "Always"}],
            "containers": [
                {"ports": [
                    {"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"},
                    {"containerPort": 81},
                    {"containerPort": 82, "hostPort": 0},
                    {"containerPort": 83, "hostPort": 8083, "hostIP": ""},
                ]},
                {"ports": with(8083)},
            ],
        })),
        ["11/TCP 0.0.0.0", "8080/UDP 10.0.0.1", "8083/TCP 0.0.0.0"]
    );
}

#[test]
fn on_the_hosts_network_each_port_is_the_hosts() {
    let template = |on_host: bool| json!({"hostNetwork": on_host, "containers": [{"ports": [{"containerPort": 9100}, {"containerPort": 1, "hostPort": 2}]}]});
    assert_eq!(ports(template(false)), ["2/TCP 0.0.0.0"]);
    assert_eq!(ports(template(true)), ["2/TCP 0.0.0.0", "9100/TCP 0.0.0.0"]);
    let set =
        json!({"metadata": {"name": "exporter"}, "spec": {"template": {"spec": template(true)}}});
    let facts = daemon_set_facts(&serde_json::from_value(set).unwrap());
    assert_eq!(facts.spec.host_ports.len(), 2);
}

#[test]
fn the_sockets_of_csi_drivers_are_seen_in_the_folders_of_a_daemon_set() {
    let set: DaemonSetView = serde_json::from_value(json!({
        "metadata": {"name": "csi"},
        "spec": {"template": {"spec": {"containers": [], "volumes": [
            {"name": "a", "hostPath": {"path": "/var/lib/kubelet/plugins/a.example.com/"}},
            {"name": "b", "hostPath": {"path": "/var/lib/kubelet/plugins/b.example.com", "type": "DirectoryOrCreate"}},
            {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}},
            {"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet"}},
            {"name": "deep", "hostPath": {"path": "/var/lib/kubelet/plugins/kubernetes.io/csi"}},
            {"name": "none", "emptyDir": {}},
        ]}}},
    }))
    .unwrap();
    let facts = daemon_set_facts(&set);
    assert_eq!(
        facts.csi_drivers,
        ["a.example.com".into(), "b.example.com".into()]
    );
    assert!(facts.spec.local_volumes && facts.spec.empty_dir);
    assert!(facts.spec.unsupported.is_empty());
}

#[test]
fn r15_r22_annotations_of_other_autoscalers_say_whether_a_pod_may_be_evicted() {
    let with = |key: &str, value: &str| {
        facts(json!({
            "metadata": {"name": "p", "annotations": {key: value}},
            "spec": {"containers": [], "volumes": [
                {"name": "socket", "hostPath": {"path": "/run/x"}}, {"name": "scratch", "emptyDir": {}},
            ]},
        }))
    };
    let safe = keys::SAFE_TO_EVICT;
    for (value, is_safe, stays) in [
        ("true", true, false),
        ("false", false, true),
        ("True", false, false),
    ] {
        let pod = with(safe, value);
        assert_eq!(
            (pod.safe_to_evict, pod.do_not_disrupt),
            (is_safe, stays),
            "{value}"
        );
    }
    let in_4_hours = Some("1970-01-01T04:00:00Z".parse().unwrap());
    for (value, stays, until) in [
        ("true", true, None),
        ("4h", false, in_4_hours),
        ("3h60m", false, in_4_hours),
        ("soon", true, None),
        ("false", false, None),
    ] {
        let pod = with(keys::KARPENTER_DO_NOT_DISRUPT, value);
        assert_eq!(
            (pod.do_not_disrupt, pod.protected_until),
            (stays, until),
            "{value}"
        );
    }
    let started = facts(json!({
        "metadata": {"name": "p", "annotations": {keys::KARPENTER_DO_NOT_DISRUPT: "1h"},
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": []},
        "status": {"startTime": "2026-01-01T02:00:00Z"},
    }));
    assert_eq!(
        started.protected_until,
        Some("2026-01-01T03:00:00Z".parse().unwrap())
    );
    let waited_for = with(safe, "on-completion");
    assert!(waited_for.on_completion && !waited_for.safe_to_evict && !waited_for.do_not_disrupt);
    for (names, is_local) in [("socket, scratch", false), ("scratch", true), ("", true)] {
        let spec = with(keys::SAFE_TO_EVICT_LOCAL_VOLUMES, names).spec;
        assert_eq!(
            (spec.local_volumes, spec.empty_dir),
            (is_local, is_local),
            "{names}"
        );
    }
}

#[test]
fn r17_a_pod_that_another_controller_lets_run_once_is_as_a_jobs() {
    let owned = |kind: Option<&str>, policy: &str| {
        let owner =
            kind.map(|kind| json!({"kind": kind, "name": "o", "uid": "u", "controller": true}));
        facts(json!({
            "metadata": {"name": "p", "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
            "spec": {"containers": [], "restartPolicy": policy},
        }))
        .is_of_job()
    };
    assert!(owned(Some("EphemeralRunner"), "Never") && owned(Some("TaskRun"), "Never"));
    assert!(owned(Some("Job"), "Never") && owned(Some("Job"), "OnFailure"));
    assert!(!owned(Some("ReplicaSet"), "Always") && !owned(None, "Never"));
}

#[test]
fn a_pod_has_started_once_a_container_ran_whatever_became_of_it() {
    let at = "2026-01-01T00:00:00Z";
    let started =
        |status: Value| facts(json!({"metadata": {"name": "a"}, "status": status})).started;
    let state = |state: Value| json!({"phase": "Failed", "containerStatuses": [{"name": "a"}, {"name": "b", "state": state}]});
    assert!(started(state(
        json!({"terminated": {"exitCode": 1, "startedAt": at}})
    )));
    assert!(started(state(
        json!({"running": {"startedAt": at}, "terminated": null})
    )));
    let again = json!([{"name": "a", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    assert!(started(json!({"containerStatuses": again})));
    let init = json!([{"name": "i", "state": {"terminated": {"startedAt": at}}}]);
    assert!(started(
        json!({"phase": "Pending", "initContainerStatuses": init})
    ));

    assert!(!started(json!({"phase": "Failed", "reason": "OutOfcpu"})));
    assert!(!started(
        json!({"phase": "Failed", "reason": "NodeAffinity", "containerStatuses": null})
    ));
    assert!(!started(state(
        json!({"waiting": {"reason": "ContainerCreating"}})
    )));
    assert!(!started(state(
        json!({"terminated": {"exitCode": 137, "startedAt": null}})
    )));
}
