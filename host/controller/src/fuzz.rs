//! What people write: flags, objects, credentials. It is refused in words, or holds together.

use std::sync::OnceLock;
use std::time::Duration;

use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::args::Run;
use crate::config::Config;
use kproxide_common::mutate::{mutated, mutated_text};
use kproxide_kube::convert::{class_facts, cluster_facts, pool_facts};
use kproxide_planner::fuzz::Draw;
use kproxide_planner::time::parse_period;
use kproxide_pve::auth::Credentials;

/// One kind of setting, chosen by the first byte.
pub fn settings(data: &[u8]) {
    let mut draw = Draw::new(data);
    match draw.byte() % 6 {
        0 => flags(&mut draw),
        1 => period(&mut draw),
        2 => credentials(&mut draw),
        kind => object(usize::from(kind - 3), &mut draw),
    }
}

const DURATIONS: [&str; 8] = ["10s", "15s", "2s", "0s", "1500ms", "24h", "8760h", "PT5M"];

fn flags(draw: &mut Draw<'_>) {
    const FLAGS: [&str; 12] = [
        "--poll-interval",
        "--batch-idle",
        "--batch-max",
        "--inventory-max-age",
        "--cold-start",
        "--quarantine",
        "--lease-duration",
        "--lease-renew-deadline",
        "--lease-retry",
        "--max-launches-per-tick",
        "--admin-address",
        "--log-format",
    ];
    let mut line = Vec::new();
    for _ in 0..draw.below(5) {
        let value = mutated_text(draw.word(&DURATIONS), draw);
        line.push(format!("{}={value}", draw.word(&FLAGS)));
    }
    let Ok(run) = Run::from_flags(&line) else {
        return;
    };
    match Config::new(&run) {
        Ok(config) => {
            let lease = &config.lease;
            assert!(lease.retry < lease.renew_deadline && lease.renew_deadline < lease.duration);
            assert!(config.timing.batch_idle <= config.timing.batch_max);
            // The fence adds them to the present.
            let year = Duration::from_secs(366 * 24 * 60 * 60);
            assert!(lease.duration <= year && config.timing.cold_start <= year);
        }
        Err(error) => assert!(error.to_string().contains("--"), "{error}"),
    }
}

fn period(draw: &mut Draw<'_>) {
    let text = mutated_text(draw.word(&["90s", "1h30m", "7d", "1500ms", "36600d"]), draw);
    match parse_period(&text) {
        Ok(period) => assert!(!period.is_negative() && period.as_hours() <= 100 * 366 * 24),
        Err(problem) => assert!(problem.contains(&format!("{text:?}"))),
    }
}

fn credentials(draw: &mut Draw<'_>) {
    let id = mutated_text("kproxide@pve!autoscaler", draw);
    let secret = mutated_text("0dc58eea-1b04-4b04-ba4f-c09d2b1c5a16", draw);
    // A few characters may well be part of the words.
    let secret = secret.trim();
    match Credentials::token(&id, secret) {
        Ok(token) => {
            let (user, name) = token.name().split_once('!').expect("a token has a name");
            let (user, realm) = user.split_once('@').expect("a user has a realm");
            assert!(!user.is_empty() && !realm.is_empty() && !name.is_empty());
            assert!(token.name().bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(secret.len() < 12 || !format!("{token:?}").contains(secret));
        }
        Err(error) => {
            assert!(secret.len() < 12 || !error.to_string().contains(secret));
        }
    }
    let user = mutated_text("root@pam", draw);
    if let Ok(login) = Credentials::password(&user, secret) {
        let (user, realm) = login.name().split_once('@').expect("a user has a realm");
        assert!(!user.is_empty() && !realm.is_empty());
    }
}

/// A specification without a problem is one that can be planned with.
fn object(kind: usize, draw: &mut Draw<'_>) {
    let spec = mutated(&seeds()[kind], draw);
    match kind {
        0 => {
            let Ok(spec) = serde_json::from_value(spec) else {
                return;
            };
            let (facts, connection) = cluster_facts(&spec);
            if facts.problem.is_none() {
                let (first, last) = (facts.vmid_range.first.0, facts.vmid_range.last.0);
                assert!(first >= 100 && first <= last && !(first..=last).contains(&9999));
                for factor in [facts.overcommit.cpu, facts.overcommit.memory] {
                    assert!(factor.is_finite() && factor > 0.0);
                }
                assert!(facts.concurrency.per_storage > 0 && facts.concurrency.per_hypervisor > 0);
                assert!(connection.is_some());
            }
        }
        1 => {
            let Ok(spec) = serde_json::from_value(spec) else {
                return;
            };
            let facts = class_facts(&spec);
            if facts.problem.is_none() {
                let sized = |one: &kproxide_planner::facts::InstanceType| {
                    one.cores > 0 && one.memory_bytes() > 0
                };
                assert!(facts.instance_types.iter().all(sized));
                for range in facts.addresses.iter().flatten() {
                    assert_eq!(range.first.is_ipv4(), range.last.is_ipv4());
                    assert!(range.first <= range.last);
                }
            }
        }
        _ => {
            let Ok(spec) = serde_json::from_value(spec) else {
                return;
            };
            let meta = ObjectMeta {
                name: Some("workers".to_owned()),
                ..ObjectMeta::default()
            };
            let facts = pool_facts(&meta, &spec);
            if facts.problem.is_none() {
                assert!(facts.limits.min_nodes <= facts.limits.max_nodes);
                assert!(!facts.drain_timeout.is_negative());
                let headroom = facts.headroom.resources();
                assert!(headroom.milli_cores >= 0 && headroom.memory_bytes >= 0);
            }
        }
    }
}

/// A cluster, a class and a pool.
fn seeds() -> &'static [Value; 3] {
    static SEEDS: OnceLock<[Value; 3]> = OnceLock::new();
    SEEDS.get_or_init(|| {
        [
            json!({
                "endpoints": ["https://pve1.example:8006"], "credentials": "lab",
                "tls": {"caFile": "/etc/ca.pem"}, "pool": "kproxide",
                "vmidRange": {"first": 600, "last": 699},
                "hypervisors": {"include": ["pve1"], "exclude": ["pve2"]},
                "minAvailableCpuCores": 2, "minAvailableMemoryMB": 1024,
                "overcommit": {"cpu": 4.0, "memory": 1.0},
                "systemReserved": {"cpu": "500m", "memory": "1Gi"},
                "maxMachinesPerHypervisor": 5,
                "concurrency": {"perStorage": 3, "perHypervisor": 3},
            }),
            json!({
                "template": {"name": "k8s-node", "placement": "shared", "clone": "auto"},
                "instanceTypes": [
                    {"name": "m", "cores": 4, "memoryMiB": 8192, "diskGiB": 32, "maxPods": 110,
                     "extendedResources": {"nvidia.com/gpu": 1}},
                ],
                "overhead": {"cpu": "100m", "memory": "512Mi"},
                "cloudInit": {
                    "user": "a", "sshKeys": ["ssh-ed25519 AAAA a"], "nameserver": "10.0.0.1",
                    "ipPool": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1",
                               "ranges": [{"first": "10.0.0.10", "last": "10.0.0.20"}]},
                },
                "join": {"template": {}}, "tags": ["k8s"],
                "timeouts": {"clone": "1h", "provision": "5m", "agent": "3m", "join": "10m"},
            }),
            json!({
                "nodeClass": "default", "clusters": ["lab"],
                "limits": {"minNodes": 1, "maxNodes": 5, "cpuCores": 20, "memoryMiB": 65536},
                "weight": 1, "labels": {"team": "a"},
                "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                "labelTemplates": {"rack": "{{ .Hypervisor.Name }}"},
                "scaleDown": {"enabled": true}, "drainTimeout": "15m", "repairAfter": "10m",
                "headroom": {"cpu": "1", "memory": "1Gi"},
            }),
        ]
    })
}

#[cfg(test)]
mod tests;
