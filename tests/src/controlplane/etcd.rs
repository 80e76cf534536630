//! What a test asks of etcd itself, by the JSON form of its API.

use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};

use super::StartError;

/// Forgetting a test's history takes milliseconds; the rest is for a computer that is busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// The version that is compacted to: every older one is forgotten.
pub(super) async fn compact(client_port: u16) -> Result<u64, StartError> {
    let client = crate::kubelet::plain_client(DEADLINE).map_err(StartError::Etcd)?;
    // Any read tells the present version; this one is of a key that there is not.
    let seen = ask(&client, client_port, "range", &json!({ "key": "AA==" })).await?;
    let revision = seen["header"]["revision"]
        .as_str()
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or_else(|| StartError::Etcd(format!("no revision in {seen}")))?;
    let wanted = json!({ "revision": revision.to_string(), "physical": true });
    ask(&client, client_port, "compaction", &wanted).await?;
    Ok(revision)
}

async fn ask(client: &Client, port: u16, what: &str, body: &Value) -> Result<Value, StartError> {
    let failed = |problem: String| StartError::Etcd(format!("{what}: {problem}"));
    let answer = client
        .post(format!("http://127.0.0.1:{port}/v3/kv/{what}"))
        .body(body.to_string())
        .send()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let status = answer.status();
    let text = answer
        .text()
        .await
        .map_err(|error| failed(error.to_string()))?;
    if !status.is_success() {
        return Err(failed(format!("{status}: {text}")));
    }
    serde_json::from_str(&text).map_err(|error| failed(format!("{error}: {text}")))
}
