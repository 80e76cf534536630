//! A NodePool that is deleted, with its machines or without them.

use kproxide_testkit::eventually;
use serde_json::{Value, json};

use crate::bench::on_a_cluster;
use crate::stage::{POOL, SOON, Scene, Stage};

async fn until_pool_gone(stage: &Stage<'_>) {
    eventually(SOON, "the NodePool gone", async || {
        let found = stage.api().find(POOL).await.unwrap();
        found.map_or(Ok(()), |pool| Err(pool["status"].to_string()))
    })
    .await;
}

#[test]
#[ignore = "tier: e2e"]
fn a_deleted_pool_goes_once_its_machines_have_gone_one_after_the_other() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        stage.deploy("web", 2, "3", "1Gi", json!({})).await;
        stage.until_running("web", 2).await;
        stage.until_in_step(2).await;
        stage.api().delete(POOL).await.unwrap();
        until_pool_gone(&stage).await;
        assert_eq!(stage.claims().await, [] as [Value; 0]);
        let gone: Vec<_> = stage
            .births()
            .iter()
            .filter_map(|it| it.destroyed)
            .collect();
        assert_eq!(gone.len(), 2, "nothing was made in their place");
        stage.until_nothing_is_left().await;
        stage.end().await;
    });
}

/// One machine on each hypervisor.
fn one_each(values: &mut Value) {
    values["clusters"]["lab"]["spec"]["maxMachinesPerHypervisor"] = json!(1);
}

/// As a GitOps tool prunes a pool that has another name now, and as Helm uninstalls and installs again.
#[test]
#[ignore = "tier: e2e"]
fn machines_outlive_their_pool_and_the_release() {
    on_a_cluster(async |bench| {
        let stage = Stage::set(bench, Scene::default()).await;
        stage.deploy("web", 1, "3", "1Gi", json!({})).await;
        stage.until_running("web", 1).await;
        stage.until_in_step(1).await;
        let machine = stage.claims().await[0]["metadata"]["uid"].clone();
        let renamed = |values: &mut Value| {
            let pools = values["nodePools"].as_object_mut().unwrap();
            let pool = pools.remove("default").unwrap();
            pools.insert("renamed".to_owned(), pool);
            one_each(values);
        };
        let stage = stage.reinstall(renamed).await;
        assert!(
            stage.api().find(POOL).await.unwrap().is_some(),
            "the chart kept it"
        );
        stage.until_more_ticks(3).await;
        let keep =
            json!({ "metadata": { "annotations": { "kproxide.dev/keep-machines": "true" } } });
        stage.api().merge(POOL, &keep).await.unwrap();
        stage.api().delete(POOL).await.unwrap();
        until_pool_gone(&stage).await;
        // The machine counts without its pool. So one of three hypervisors has room for none of the renamed pool's.
        stage.deploy("more", 3, "3", "1Gi", json!({})).await;
        stage.until_running("more", 2).await;
        stage.until_more_ticks(3).await;
        stage.until_in_step(3).await;
        let pools = async |stage: &Stage<'_>| {
            let mut claims = stage.claims().await;
            claims.sort_by_key(|claim| claim["metadata"]["uid"] != machine);
            assert_eq!(claims[0]["metadata"]["uid"], machine);
            let pools = claims.iter().map(|claim| claim["spec"]["pool"].clone());
            pools.collect::<Vec<_>>()
        };
        let expected = ["default", "renamed", "renamed"];
        assert_eq!(pools(&stage).await, expected);
        // A new pool of the old name takes it up.
        let stage = stage.reinstall(one_each).await;
        stage.until_more_ticks(3).await;
        assert_eq!(pools(&stage).await, expected);
        stage.until_in_step(3).await;
        let mut births = stage.births().into_iter();
        assert!(
            births.all(|it| it.destroyed.is_none()),
            "no machine is lost"
        );
        stage.end().await;
    });
}
