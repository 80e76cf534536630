//! Policies from a ConfigMap, replaced while kproxide runs.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{NAMESPACE, Scene, Stage};

const CONFIG_MAP: &str = "mine";

fn config_map(module: &[u8]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG_MAP, "namespace": NAMESPACE },
        "binaryData": { "own.wasm": STANDARD.encode(module) },
    })
}

/// Writes the ConfigMap and lets the kubelet's stand-in bring the mount up to date.
async fn provide(stage: &Stage<'_>, module: &[u8]) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}");
    stage.api().apply(&path, &config_map(module)).await.unwrap();
    stage.pod.refresh_volumes().await.unwrap();
}

#[test]
fn a_new_module_decides_the_next_launch_and_a_broken_one_is_refused() {
    on_a_cluster(async |bench| {
        let folder = tempfile::tempdir().unwrap();
        let export = std::process::Command::new(&bench.binary)
            .args(["policy", "show", "files"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(export.status.success(), "{export:?}");
        let module =
            |name: &str| std::fs::read(folder.path().join(format!("{name}.wasm"))).unwrap();

        let stage = Stage::set(
            bench,
            Scene::with(json!({
                "policies": { "configMaps": [{ "name": CONFIG_MAP }] },
                "nodePools": { "default": { "spec": {
                    "policies": { "hostSelection": { "use": "own" } },
                    "scaleDown": { "enabled": false },
                }}},
            })),
        )
        .await;
        provide(&stage, &module("pack")).await;
        stage
            .until_event("default", "PolicyLoaded", "policy own")
            .await;
        stage.deploy("first", 2, "3", "1Gi", json!({})).await;
        stage.until_running("first", 2).await;
        // `pack` fills the first hypervisor before the next.
        assert_eq!(stage.placed(), [("pve1".to_owned(), 2)].into());

        provide(&stage, b"not wasm").await;
        stage
            .until_event("default", "PolicyRefused", "the last good one stays")
            .await;
        stage.deploy("second", 1, "3", "1Gi", json!({})).await;
        stage.until_running("second", 1).await;
        assert_eq!(stage.placed(), [("pve1".to_owned(), 3)].into());

        provide(&stage, &module("spread")).await;
        stage
            .until_event("default", "PolicyLoaded", "policy own is now")
            .await;
        // `spread` prefers hypervisors without a machine: the two others.
        eventually_taken(&stage, 2).await;
        stage.deploy("third", 2, "3", "1Gi", json!({})).await;
        stage.until_running("third", 2).await;
        let expected = [("pve1", 3), ("pve2", 1), ("pve3", 1)];
        assert_eq!(
            stage.placed(),
            expected
                .map(|(name, count)| (name.to_owned(), count))
                .into()
        );
        stage.end().await;
    });
}

/// Waits until so many different modules were taken: equal Events are told apart by their digests.
pub(crate) async fn eventually_taken(stage: &Stage<'_>, modules: usize) {
    kproxide_testkit::eventually(crate::stage::SOON, "the module to be taken", async || {
        let told = stage.events("default").await;
        let taken = told.iter().filter(|(reason, _)| reason == "PolicyLoaded");
        let taken: BTreeSet<_> = taken.collect();
        if taken.len() == modules {
            Ok(())
        } else {
            Err(format!("{told:?}"))
        }
    })
    .await;
}
