//! Pods with PersistentVolumeClaims. The real volume controller binds and the real scheduler places; the test plays the
//! provisioner and the driver.

use kproxide_testkit::controlplane::Api;
use kproxide_testkit::eventually;
use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{SOON, Scene, Stage};

pub(crate) const HOST: &str = "kubernetes.io/hostname";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub(crate) const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// What a provisioner makes.
#[derive(Clone, Copy)]
pub(crate) struct Driver {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    /// Its volumes can be reached from Nodes with the same value of this label. `None`: from all.
    key: Option<&'static str>,
}

/// As k3s has it.
pub(crate) const LOCAL_PATH: Driver = Driver {
    class: "local-path",
    name: "rancher.io/local-path",
    key: Some(HOST),
};
pub(crate) const PROXMOX: Driver = Driver {
    class: "proxmox",
    name: "csi.proxmox.sinextra.dev",
    key: Some(ZONE),
};
/// A storage in the network.
pub(crate) const SHARED: Driver = Driver {
    class: "shared",
    name: "shared.example",
    key: None,
};

impl Driver {
    pub(crate) async fn install(&self, api: &Api) {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.class},
            "provisioner": self.name, "volumeBindingMode": "WaitForFirstConsumer",
        });
        api.create(CLASSES, &class).await.unwrap();
    }

    /// Makes a volume for each claim for which the scheduler has chosen a Node; removes those whose claim is gone.
    pub(crate) async fn provision(&self, api: &Api) {
        let volumes = api.list(VOLUMES).await.unwrap();
        for volume in &volumes {
            if volume["status"]["phase"] == "Released" {
                let name = volume["metadata"]["name"].as_str().unwrap();
                let _ = api.delete(&format!("{VOLUMES}/{name}")).await;
            }
        }
        for claim in api.list(CLAIMS).await.unwrap() {
            let chosen = &claim["metadata"]["annotations"][SELECTED_NODE];
            let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
            let is_there = volumes
                .iter()
                .any(|volume| volume["metadata"]["name"] == *name);
            let is_ours = claim["spec"]["storageClassName"] == self.class;
            let Some(node) = chosen.as_str().filter(|_| is_ours && !is_there) else {
                continue;
            };
            let node = api.find(&format!("/api/v1/nodes/{node}")).await.unwrap();
            let Some(node) = node else {
                // The scheduler chooses anew once the provisioner has given the Node up.
                let again = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
                let claim = claim["metadata"]["name"].as_str().unwrap();
                let _ = api.merge(&format!("{CLAIMS}/{claim}"), &again).await;
                continue;
            };
            let source = match self.key {
                Some(HOST) => json!({"local": {"path": "/opt/local-path"}}),
                _ => json!({"csi": {"driver": self.name, "volumeHandle": name}}),
            };
            let mut volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": self.name}},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Delete", "storageClassName": self.class,
                    "claimRef": {
                        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                        "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"],
                    },
                },
            });
            if let Some(key) = self.key {
                let value = &node["metadata"]["labels"][key];
                volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
                ]}});
            }
            let spec = volume["spec"].as_object_mut().unwrap();
            spec.extend(source.as_object().unwrap().clone());
            api.create(VOLUMES, &volume).await.unwrap();
        }
    }

    async fn until_running(&self, stage: &Stage<'_>, app: &str, count: usize) {
        eventually(
            SOON,
            &format!("{count} pods of {app} with volumes"),
            async || {
                self.provision(stage.api()).await;
                let ready = stage.ready_pods(app).await.len();
                if ready == count {
                    Ok(())
                } else {
                    Err(format!("{ready} run; {}", stage.describe().await))
                }
            },
        )
        .await;
    }

    async fn until_machines(&self, stage: &Stage<'_>, count: usize) {
        eventually(SOON, &format!("{count} machines"), async || {
            self.provision(stage.api()).await;
            match stage.machines().len() {
                now if now == count => Ok(()),
                now => Err(format!("{now} machines; {}", stage.describe().await)),
            }
        })
        .await;
    }
}

/// Each replica has a claim, and keeps the others away from its Node.
pub(crate) fn stateful_set(name: &str, replicas: u32, class: &str) -> Value {
    let labels = json!({"app": name});
    let selector = json!({"matchLabels": labels});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "selector": selector,
            "podManagementPolicy": "Parallel",
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": HOST, "labelSelector": selector},
                    ]}},
                    "containers": [{
                        "name": "main", "image": "registry.k8s.io/pause:3.10",
                        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
        },
    })
}

#[test]
#[ignore = "tier: e2e"]
fn stateful_replicas_with_volumes_of_their_nodes_come_from_zero_and_their_nodes_stay() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        LOCAL_PATH.install(stage.api()).await;
        let set = stateful_set("db", 3, LOCAL_PATH.class);
        stage.api().create(STATEFUL_SETS, &set).await.unwrap();
        LOCAL_PATH.until_running(&stage, "db", 3).await;
        assert_eq!(stage.born(), 3, "{}", stage.describe().await);
        // The claim of a replica that is gone keeps its volume, and the volume its Node.
        let one = json!({ "spec": { "replicas": 1 } });
        let path = format!("{STATEFUL_SETS}/db");
        stage.api().merge(&path, &one).await.unwrap();
        LOCAL_PATH.until_running(&stage, "db", 1).await;
        stage.until_all_kept("LocalVolume", 2).await;
        for claim in ["data-db-1", "data-db-2"] {
            let path = format!("{CLAIMS}/{claim}");
            stage.api().delete(&path).await.unwrap();
        }
        LOCAL_PATH.until_machines(&stage, 1).await;
        LOCAL_PATH.until_running(&stage, "db", 1).await;
        stage.end().await;
    });
}

#[test]
#[ignore = "tier: e2e"]
fn a_volume_of_a_hypervisor_brings_its_pod_back_there() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        PROXMOX.install(stage.api()).await;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": PROXMOX.class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        stage.api().create(CLAIMS, &claim).await.unwrap();
        let spec = json!({
            "nodeSelector": {ZONE: "pve2"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        });
        stage.deploy("web", 1, "500m", "256Mi", spec).await;
        PROXMOX.until_running(&stage, "web", 1).await;
        // Without the selector the volume alone says where its pod can go.
        stage.scale("web", 0).await;
        PROXMOX.until_machines(&stage, 0).await;
        let anywhere = json!({"spec": {"template": {"spec": {"nodeSelector": null}}}});
        let path = format!("{}/web", crate::stage::DEPLOYMENTS);
        stage.api().merge(&path, &anywhere).await.unwrap();
        stage.scale("web", 1).await;
        PROXMOX.until_running(&stage, "web", 1).await;
        assert_eq!(stage.placed(), [("pve2".to_owned(), 1)].into());
        assert_eq!(stage.born(), 2, "{}", stage.describe().await);
        stage.end().await;
    });
}
