use std::fs;

use kproxide_testkit::require_controlplane;
use serde_json::Value;

use crate::render::{chart, repository, the};

#[tokio::test]
async fn each_example_renders() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut rendered = 0;
    for entry in fs::read_dir(repository("examples/values")).unwrap() {
        let path = entry.unwrap().path().display().to_string();
        programs
            .helm(&["template", "kproxide", &chart(), "--values", &path])
            .await
            .unwrap();
        rendered += 1;
    }
    assert!(rendered >= 3, "only {rendered} examples");
}

/// The scripts of a first installation make a template that joins nothing by itself, on a local storage.
#[tokio::test]
async fn the_smallest_example_makes_machines_that_join() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let path = repository("examples/values/minimal.yaml")
        .display()
        .to_string();
    let rendered = programs
        .helm(&["template", "kproxide", &chart(), "--values", &path])
        .await
        .unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let class = &the(&objects, "NodeClass")["spec"];
    assert_eq!(class["template"]["placement"], "local");
    assert!(class["join"]["guestExec"].is_object(), "{class}");
}
