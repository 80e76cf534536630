//! What charts that many people install ask of Nodes, all at once and from zero.

use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{Scene, Stage};

const HOST: &str = "kubernetes.io/hostname";

/// As RKE2's CoreDNS: no two of it on one Node.
fn coredns() -> Value {
    let selector = json!({"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["coredns"]},
    ]});
    json!({
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": selector},
        ]}},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
    })
}

/// Containers with a port of the Node, as ingress-nginx, or on its network, as Calico's typha.
fn ports(ports: Value) -> Value {
    json!([{
        "name": "main", "image": "registry.k8s.io/pause:3.10", "ports": ports,
        "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}},
    }])
}

#[test]
#[ignore = "tier: helm"]
fn what_ordinary_charts_ask_comes_from_zero() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        let share = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "share"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
                "nfs": {"server": "nas.example", "path": "/media"}, "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
            },
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "media"},
            "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "share",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        let api = stage.api();
        api.create("/api/v1/persistentvolumes", &share)
            .await
            .unwrap();
        api.create(claims, &claim).await.unwrap();
        let media = json!({
            "volumes": [{"name": "media", "persistentVolumeClaim": {"claimName": "media"}}],
        });
        let web = json!([
            {"containerPort": 80, "hostPort": 80}, {"containerPort": 443, "hostPort": 443},
        ]);
        let typha = json!([{"containerPort": 5473, "name": "calico-typha"}]);
        for (name, spec) in [
            ("coredns", coredns()),
            ("ingress", json!({"containers": ports(web)})),
            (
                "typha",
                json!({"hostNetwork": true, "containers": ports(typha)}),
            ),
            ("media", media),
        ] {
            stage.deploy(name, 2, "200m", "64Mi", spec).await;
        }
        for name in ["coredns", "ingress", "typha", "media"] {
            stage.until_running(name, 2).await;
        }
        assert_eq!(
            stage.born(),
            2,
            "one of each on a Node: {}",
            stage.describe().await
        );
        stage.end().await;
    });
}
