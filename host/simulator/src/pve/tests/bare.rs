//! Machines that are no clones.

use http::Method;
use serde_json::{Value, json};

use super::World;
use crate::pve::Topology;

#[tokio::test(start_paused = true)]
async fn a_machine_without_disks_is_made_in_its_pool_and_its_description_changes_by_digest() {
    let world = World::new(Topology::of(3));
    let form = "vmid=150&name=anchor&pool=k8s&memory=16&description=one";
    let made = world.task(Method::POST, "/nodes/pve2/qemu", form).await;
    assert_eq!(made, "OK");
    let config = world.get("/nodes/pve2/qemu/150/config").await;
    assert_eq!(
        (
            &config["description"],
            &config["memory"],
            config.get("lock")
        ),
        (&json!("one"), &json!("16"), None)
    );
    let listed = world.get("/cluster/resources?type=vm").await;
    let is_it = |vm: &&Value| vm["vmid"] == 150;
    let vm = listed.as_array().unwrap().iter().find(is_it).unwrap();
    assert_eq!((&vm["pool"], &vm["node"]), (&json!("k8s"), &json!("pve2")));

    let digest = config["digest"].as_str().unwrap();
    let change = |text: &str| format!("description={text}&digest={digest}");
    let path = "/nodes/pve2/qemu/150/config";
    let (status, _) = world.call(Method::PUT, path, &change("two")).await;
    assert_eq!(status, 200);
    let refused = world.refusal(Method::PUT, path, &change("three")).await;
    assert!(refused.contains("checksum mismatch"), "{refused}");

    for node in ["pve1", "pve2"] {
        let path = format!("/nodes/{node}/qemu");
        assert_eq!(
            world.refusal(Method::POST, &path, form).await,
            "unable to create VM 150 - VM 150 already exists on node 'pve2'"
        );
    }
    let (status, _) = world
        .call(Method::POST, "/nodes/pve1/qemu", "vmid=151&name=a_b")
        .await;
    assert_eq!(status, 400);
}
