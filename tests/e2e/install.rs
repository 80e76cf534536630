//! The chart's values for a simulated Proxmox VE, and its installation by Helm.

use std::io::Write as _;

use kproxide_simulator::serve::Served;
use kproxide_testkit::{ControlPlane, free_port};
use serde_json::{Value, json};

use crate::binary::repository;
use crate::stage::{CORES, MEMORY_MIB, NAMESPACE, OVERHEAD_MIB, RELEASE};

/// What the chart is installed with.
pub(crate) fn values(served: &Served) -> Value {
    let token = served.token.as_ref().unwrap();
    json!({
        "clusters": { "lab": {
            "credentials": { "tokenId": token.id, "tokenSecret": token.secret },
            "spec": {
                "endpoints": [served.pve_wire.url()],
                "tls": { "fingerprints": [served.pve_wire.fingerprint()] },
                "pool": "k8s",
            },
        }},
        "nodeClasses": { "default": { "spec": {
            "template": { "name": "k8s-node", "placement": "local" },
            "instanceTypes": [{ "name": "medium", "cores": CORES, "memoryMiB": MEMORY_MIB }],
            "overhead": { "cpu": "0", "memory": format!("{OVERHEAD_MIB}Mi") },
        }}},
        "nodePools": { "default": { "spec": {
            "limits": { "maxNodes": 10 },
            "scaleDown": { "stabilization": "1s", "minNodeAge": "1s", "unneededTime": "1s" },
        }}},
        "admin": { "port": free_port().unwrap() },
        // Nobody runs its Job here.
        "crds": { "hook": false },
        "log": "info,kproxide=debug",
        "logFormat": "text",
        // Seconds where production has minutes.
        "extraArgs": flags(),
    })
}

fn flags() -> Vec<&'static str> {
    vec![
        "--poll-interval=1s",
        "--inventory-max-age=1s",
        "--cold-start=0s",
        "--lease-duration=4s",
        "--lease-renew-deadline=3s",
        "--lease-retry=500ms",
    ]
}

/// The flags of all cases, and no anchor: then every request for a configuration is about a machine.
pub(crate) fn without_anchor() -> Value {
    let mut flags = flags();
    flags.push("--anchor=false");
    json!({ "extraArgs": flags })
}

/// A file of values for Helm.
pub(crate) fn write(values: &Value) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(values.to_string().as_bytes()).unwrap();
    file
}

pub(crate) async fn install(cluster: &ControlPlane, values: &Value) {
    let file = write(values);
    let path = file.path().display().to_string();
    let chart = repository("charts/kproxide").display().to_string();
    let args = [
        "install",
        RELEASE,
        &chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--values",
        &path,
    ];
    cluster.helm(&args).await.unwrap();
}

/// RFC 7386 without its null.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
