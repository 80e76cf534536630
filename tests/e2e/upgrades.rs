//! From the chart of an earlier release to today's, back, and anew over what is left: by real Helm, with both ways in which
//! it applies objects.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::{Bench, on_a_cluster};
use crate::binary::repository;
use crate::definitions::{POOLS, forget, has_the_field, helm_and_job, spec_of};
use crate::install::{merge, values, write};
use crate::stage::{NAMESPACE, POOL, RELEASE, Scene, Stage};

/// What the earlier release does not have.
const FIELD: &str = "expireAfter";
const EARLIER: &str = "0.0.9";

/// The earlier release: its chart, and its program as far as the Job runs it.
struct Earlier {
    folder: TempDir,
}

impl Earlier {
    /// Today's chart with one field of NodePools taken out of it.
    fn new() -> Self {
        let earlier = Earlier {
            folder: tempfile::tempdir().unwrap(),
        };
        copy(&repository("charts/kproxide"), &earlier.chart());
        let at = |path: &str| earlier.chart().join(path);

        let file = at("crds/nodepools.yaml");
        let text = fs::read_to_string(&file).unwrap();
        let mut definition: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(definition["metadata"]["name"], POOLS);
        definition["metadata"]["annotations"]["kproxide.dev/version"] = json!(EARLIER);
        take_out(spec_of(&mut definition));
        fs::write(&file, definition.to_string()).unwrap();

        // Its templates pass on what the schema lets through.
        let file = at("values.schema.json");
        let mut schema: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let pools = "/properties/nodePools/additionalProperties/properties/spec/properties";
        take_out(schema.pointer_mut(pools).unwrap());
        fs::write(&file, schema.to_string()).unwrap();

        let file = at("Chart.yaml");
        let chart = fs::read_to_string(&file).unwrap();
        let lines = chart.lines().map(|line| match line.split_once(": ") {
            Some(("version", _)) => format!("version: {EARLIER}\n"),
            Some(_) | None => format!("{line}\n"),
        });
        fs::write(&file, lines.collect::<String>()).unwrap();

        // The definitions that it would apply are those that Helm has just brought.
        let program = earlier.program();
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        earlier
    }

    fn chart(&self) -> PathBuf {
        self.folder.path().join("chart")
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

fn take_out(properties: &mut Value) {
    let removed = properties.as_object_mut().unwrap().remove(FIELD);
    assert!(removed.is_some(), "the case shows nothing");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
}

/// What `kubectl get` shows of the field.
async fn shown(bench: &Bench) -> String {
    let output = format!("--output=jsonpath={{.spec.{FIELD}}}");
    let get = ["get", "nodepool", "default", &output];
    bench.cluster.kubectl(&get).await.unwrap()
}

/// How Helm has written the pool: `Apply` on the server, or `Update`.
async fn ways(bench: &Bench) -> Vec<Value> {
    let pool = bench.cluster.api().get(POOL).await.unwrap();
    let mut fields = pool["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .clone();
    fields.retain(|it| it["manager"] == "helm");
    fields.iter().map(|it| it["operation"].clone()).collect()
}

/// One `helm upgrade` sets a field that is new, and can be taken back. `flags`: those of the installation; Helm keeps to
/// them later.
async fn there_and_back(bench: &Bench, flags: &[&str], way: &str) {
    let earlier = Earlier::new();
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    // Another case may have made it.
    let _ = bench
        .cluster
        .api()
        .create("/api/v1/namespaces", &namespace)
        .await;
    forget(bench).await;
    let Scene {
        topology, guests, ..
    } = Scene::default();
    let served = Stage::serve(bench, topology, guests, 0).await;
    let mut before = values(&served);
    merge(&mut before, json!({ "crds": { "hook": true } }));
    let mut after = before.clone();
    after["nodePools"]["default"]["spec"][FIELD] = json!("30d");

    let text = |path: &Path| path.display().to_string();
    let (file, chart) = (write(&before), text(&earlier.chart()));
    let of_file = text(file.path());
    let to = ["--namespace", NAMESPACE, "--values"];
    let install = [&["install", RELEASE, &chart][..], &to, &[&of_file], flags].concat();
    let (installed, _) = helm_and_job(bench, &earlier.program(), &install).await;
    installed.unwrap();
    assert!(!has_the_field(bench).await, "the case shows nothing");
    assert_eq!(shown(bench).await, "");

    let (file, chart) = (write(&after), text(&repository("charts/kproxide")));
    let of_file = text(file.path());
    let upgrade = [&["upgrade", RELEASE, &chart][..], &to, &[&of_file]].concat();
    let (upgraded, said) = helm_and_job(bench, &bench.binary, &upgrade).await;
    upgraded.unwrap();
    assert!(said.contains(&format!("{POOLS} updated")), "{said}");
    assert_eq!(shown(bench).await, "30d");
    assert_eq!(ways(bench).await, [way]);

    // No Job runs, and the definitions stay as they are: what the field says goes.
    let rollback = ["rollback", RELEASE, "1", "--namespace", NAMESPACE];
    bench.cluster.helm(&rollback).await.unwrap();
    assert!(has_the_field(bench).await, "a rollback took it away");
    assert_eq!(shown(bench).await, "");

    // The program works with the objects of the earlier chart and with the newer definitions.
    let stage = Stage::run(bench, served, &before, &bench.binary, false).await;
    stage.deploy("web", 1, "3", "1Gi", json!({})).await;
    stage.until_running("web", 1).await;
    stage.until_in_step(1).await;
    let machine = stage.claims().await[0]["metadata"]["uid"].clone();

    // Definitions, pool and machine are left, and serve the next installation.
    let stage = stage.reinstall(|_| ()).await;
    stage.until_more_ticks(3).await;
    stage.until_in_step(1).await;
    assert_eq!(stage.claims().await[0]["metadata"]["uid"], machine);
    stage.end().await;
}

#[test]
#[ignore = "tier: helm"]
fn an_upgrade_from_an_earlier_chart_sets_a_new_field_and_can_be_rolled_back() {
    on_a_cluster(async |bench| there_and_back(bench, &[], "Apply").await);
}

/// As Helm 3 did, and as Helm 4 goes on with what Helm 3 has installed.
#[test]
#[ignore = "tier: helm"]
fn so_does_one_that_helm_applies_on_its_own_side() {
    on_a_cluster(async |bench| there_and_back(bench, &["--server-side=false"], "Update").await);
}
