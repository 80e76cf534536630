//! What label templates make of a machine is on its Node.

use serde_json::json;

use crate::bench::on_a_cluster;
use crate::stage::{CORES, MEMORY_MIB, Scene, Stage};

#[test]
#[ignore = "tier: e2e"]
fn the_results_of_label_templates_are_on_the_nodes() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(
            bench,
            Scene::with(json!({ "nodePools": { "default": { "spec": {
                "labels": { "example.com/tier": "burst" },
                "labelTemplates": {
                    "topology.kubernetes.io/zone": "{{ .TargetHost }}",
                    "example.com/size": "{{ .Cores }}x{{ .MemoryMiB }}",
                    "example.com/of": "{{ .Pool }}.{{ .InstanceType }}",
                },
            }}}})),
        )
        .await;
        // Each pod needs a machine of its own, and `spread` takes another hypervisor each time.
        stage.deploy("wide", 2, "3", "1Gi", json!({})).await;
        stage.until_running("wide", 2).await;
        // A Node has all of its labels before its claim is Initialized; pods may run on it earlier.
        stage.until_in_step(2).await;
        let nodes = stage.nodes().await;
        let machines = stage.machines();
        assert_eq!(
            (nodes.len(), machines.len(), stage.placed().len()),
            (2, 2, 2)
        );
        for node in nodes {
            let labels = &node["metadata"]["labels"];
            let machine = machines
                .iter()
                .find(|vm| Some(vm.name.as_str()) == node["metadata"]["name"].as_str())
                .unwrap();
            assert_eq!(
                labels["topology.kubernetes.io/zone"],
                machine.hypervisor.as_str()
            );
            assert_eq!(labels["topology.kubernetes.io/region"], "lab");
            assert_eq!(labels["example.com/size"], format!("{CORES}x{MEMORY_MIB}"));
            assert_eq!(labels["example.com/of"], "default.medium");
            assert_eq!(labels["example.com/tier"], "burst");
            assert_eq!(labels["kproxide.dev/pool"], "default");
        }
        stage.end().await;
    });
}
