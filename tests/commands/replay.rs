//! What the author's tools make of the answers of a host that runs.

use std::fs;
use std::path::Path;

use kproxide_testkit::eventually;
use serde_json::Value;

use super::{SOON, printed};

/// By what the host has noted, and by its world: what other policies would have done.
pub(super) async fn asks_another_policy(claim: &str, admin: &str, folder: &Path) {
    let saved = async |what: &str| {
        let path = folder.join(format!("{what}.json"));
        // It is answered once in a while, and others have asked.
        eventually(SOON, "an answer", async || {
            let answer = reqwest::get(format!("{admin}/debug/{what}")).await;
            let answer = answer.and_then(reqwest::Response::error_for_status);
            let answer = answer.map_err(|error| error.to_string())?;
            fs::write(&path, answer.bytes().await.unwrap()).map_err(|error| error.to_string())
        })
        .await;
        path.display().to_string()
    };
    let decisions = saved("decisions").await;
    let kind = ["--kind", "host-selection"];
    let facts = printed(&[
        "policy", "show", "facts", "--from", &decisions, kind[0], kind[1],
    ])
    .await;
    assert!(facts.starts_with("rank:\n"), "{facts}");
    let path = folder.join("facts.yaml");
    fs::write(&path, facts).unwrap();
    let facts = path.display().to_string();
    let ranking = printed(&["policy", "run", "pack", "--facts", &facts]).await;
    assert!(ranking.contains("host-selection for pool"), "{ranking}");

    let replayed = async |policy: &str| -> Value {
        let replay = [
            "policy", "replay", "--policy", policy, &decisions, "-o", "json",
        ];
        serde_json::from_str(&printed(&replay).await).unwrap()
    };
    // The policy that decided decides the same again.
    let again = replayed("spread").await;
    let made = again["decisions"].as_array().unwrap();
    assert!(
        !made.is_empty() && again["changed"] == 0,
        "{claim}: {again}"
    );
    let carried = &again["hypervisors"][0];
    assert!(carried["before"].as_i64() >= Some(1), "{again}");
    assert_eq!(carried["before"], carried["after"], "{again}");

    let plan = saved("plan").await;
    let whole = printed(&["policy", "replay", "--policy", "pack", &plan]).await;
    assert!(
        whole.contains("decisions would change") && whole.contains("Machines of each"),
        "{whole}"
    );
    printed(&["policy", "show", "facts", "--admin", admin]).await;
}
