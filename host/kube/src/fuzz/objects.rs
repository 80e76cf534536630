//! Our own records from JSON to the planner's facts and back.

use std::sync::OnceLock;

use jiff::Timestamp;
use kproxide_planner::facts::{ClaimFacts, LedgerFacts};
use serde_json::{Value, json};

use crate::convert::{claim_facts, claim_object, ledger_facts, ledger_object, status_object};
use crate::crd::{Ledger, NodeClaim};
use crate::view::CustomView;
use kproxide_common::foreign::shown;
use kproxide_common::mutate::mutated;
use kproxide_planner::fuzz::Draw;

/// A record that is read means the same after it was written again; one that cannot be read is an error, never a panic.
pub fn objects(data: &[u8]) {
    let mut draw = Draw::new(data);
    let is_claim = draw.flag();
    let object = mutated(&seeds()[usize::from(is_claim)], &mut draw);
    if is_claim {
        let Ok(claim) = serde_json::from_value::<CustomView<NodeClaim>>(object) else {
            return;
        };
        match claim_facts(&claim) {
            Ok(facts) => claim_comes_back(facts),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    } else {
        let Ok(ledger) = serde_json::from_value::<CustomView<Ledger>>(object) else {
            return;
        };
        match ledger_facts(&ledger) {
            Ok(facts) => assert_eq!(ledger_again(&facts), facts),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn claim_comes_back(mut facts: ClaimFacts) {
    let mut object = claim_object(&"workers-x7".into(), &facts.spec);
    object.status = status_object(&facts.status, None);
    let text = serde_json::to_string(&object).expect("plain data");
    let object: CustomView<NodeClaim> =
        serde_json::from_str(&text).expect("what we write can be read");
    let again = claim_facts(&object).expect("what we write can be read");
    assert_eq!(again.spec, facts.spec);
    // The schema bounds these texts, so what the API server stores is never longer. What acts on a terminal is taken out.
    for condition in &mut facts.status.conditions {
        condition.reason = shown(&condition.reason).chars().take(63).collect();
        condition.message = shown(&condition.message).chars().take(4000).collect();
        let second = condition.since.as_second();
        condition.since = Timestamp::from_second(second).expect("it was a time before");
    }
    assert_eq!(again.status, facts.status);
    assert!(again.has_finalizer);
}

fn ledger_again(facts: &LedgerFacts) -> LedgerFacts {
    let text = serde_json::to_string(&ledger_object(facts)).expect("plain data");
    let object: CustomView<Ledger> =
        serde_json::from_str(&text).expect("what we write can be read");
    ledger_facts(&object).expect("what we write can be read")
}

/// A Ledger and a claim with every field set.
fn seeds() -> &'static [Value; 2] {
    static SEEDS: OnceLock<[Value; 2]> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let moment = "2026-01-31T12:00:00.5Z";
        let entry = |state: &str, since: Option<&str>, until: Option<&str>| {
            json!({
                "claim": "workers-x7", "pool": "workers", "cluster": "lab", "vmid": 600,
                "hypervisor": "pve1", "storage": "ceph", "milliCores": 4000,
                "memoryBytes": 8589934592u64, "diskBytes": 0, "address": "fd00::1",
                "state": state, "since": since, "until": until,
            })
        };
        let acknowledged = json!({
            "kproxide.dev/acknowledge-removal": "12@2026-01-31T12:00:00Z",
            "kproxide.dev/acknowledge-anchor": "lab:9-c",
            "kproxide.dev/acknowledge-orphan": "lab:201:abc",
        });
        let ledger = json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "Ledger",
            "metadata": {"name": "kproxide", "resourceVersion": "17", "annotations": acknowledged},
            "spec": {
                "entries": [
                    entry("reserved", Some(moment), None),
                    entry("live", None, None),
                    entry("quarantined", Some(moment), Some(moment)),
                ],
                "policyState": [{
                    "pool": "workers", "kind": "host-selection", "policy": "round-robin",
                    "sequence": 7, "previous": "lab/pve2", "state": "AP8H",
                }],
                "backoff": [{
                    "hypervisor": "lab/pve2", "storage": "ceph", "class": "Refused",
                    "message": "full", "failures": 3, "until": moment, "nodeClass": "default",
                }],
                "failedLaunches": [{
                    "pool": "workers", "inARow": 2, "message": "full", "at": moment,
                }],
                "removals": [{"claim": "workers-x8", "at": moment, "reason": "Underutilized"}],
                "tries": [{
                    "workload": "Deployment default/web", "pool": "workers", "instanceType": "medium",
                    "pods": "01", "settings": "02", "machines": [{"claim": "workers-x8", "inVain": true}],
                    "givenUp": [moment], "rounds": 2, "late": 1, "at": moment, "node": "workers-x8",
                }],
                "inVain": [{"pool": "workers", "settings": "02", "claim": "workers-x8", "at": moment}],
                "offered": [{"nodeClass": "default", "nodes": {"workers-x8": "03"}, "changed": moment}],
                "deletions": [{"pool": "workers", "poolUID": "7e1d"}],
                "freeze": {"since": moment, "machines": 12},
                "orphans": [{"cluster": "lab", "vmid": 603, "claimUID": "0b1c", "since": moment}],
                "anchors": [{
                    "cluster": "lab", "vmid": 2999, "mark": "6-a", "next": "7-b", "at": moment,
                    "watchedSince": moment,
                    "foreign": {"vmid": 2998, "mark": "9-c", "since": moment, "moved": 2},
                }],
            },
        });
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z",
                "reason": "Because", "message": "so", "observedGeneration": 2,
            })
        };
        let claim = json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodeClaim",
            "metadata": {
                "name": "workers-x7", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z",
                "deletionTimestamp": "2026-01-31T12:00:00Z",
                "finalizers": ["kproxide.dev/machine"],
                "annotations": {
                    "kproxide.dev/pause": "true", "kproxide.dev/replace": "true",
                    "kproxide.dev/do-not-disrupt": "true",
                },
            },
            "spec": {
                "pool": "workers", "class": "default", "cluster": "lab", "vmid": 600,
                "vmName": "workers-x7", "hypervisor": "pve1", "storage": "ceph",
                "clone": {"hypervisor": "pve2", "vmid": 9000, "full": true, "storage": "ceph"},
                "instanceType": "m",
                "resources": {"milliCores": 4000, "memoryBytes": 8589934592u64, "diskBytes": 1},
                "machine": {"cloudInit": {
                    "user": "ops", "sshKeys": ["ssh-ed25519 AAAA"], "dhcp": false,
                    "network": {"prefixLength": 24, "gateway": "10.0.0.1"},
                    "nameservers": ["10.0.0.53"], "searchDomain": "lab.example",
                }, "vmOptions": {"cpuType": "host"}, "network": [{
                    "name": "net0", "bridge": "vmbr0", "vlan": 7, "model": "virtio", "mtu": 1,
                    "macPrefix": "BC:24:11", "rateMBps": 100, "queues": "auto", "firewall": true,
                    "trunks": [10],
                }]},
                "address": "10.0.0.10", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
                "templateDigest": "t1", "policyDigest": "p1",
                "policy": "spread@1a2b3c4d",
                "adopts": {"claimUID": "0b1d", "nonce": "x4", "condemned": true},
                "replaces": "workers-w6",
            },
            "status": {
                "phase": "Draining",
                "intent": {"op": "Clone", "attempt": 2, "epoch": "3-ab"},
                "upid": "UPID:pve1:0:0:0:qmclone:600:a@pam:", "nonce": "n",
                "smbiosUUID": "0dc58eea-1b04-4b04-ba4f-c09d2b1c5a16",
                "disks": ["ceph:vm-600-disk-0"], "nodeName": "workers-x7", "nodeUID": "u",
                "hypervisor": "pve2", "address": "10.0.0.7", "startedAt": moment, "drainingSince": moment, "removalDecision": "ab",
                "blockedDrains": {"inARow": 2, "at": moment, "pods": ["ab", "cd"], "retry": "ef"},
                "conditions": [condition("Launched"), condition("Drained")],
            },
        });
        [ledger, claim]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::crds;

    /// Else the target would fuzz nothing: what is not in a seed is in no input.
    #[test]
    fn the_seeds_are_records_with_every_field() {
        for object in seeds() {
            let kind = object["kind"].as_str().unwrap();
            let mut definitions = crds().iter();
            let definition = definitions.find(|crd| crd.spec.names.kind == kind).unwrap();
            let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
            let unset = unset(&schema["openAPIV3Schema"], &[object], kind);
            assert_eq!(unset, [] as [String; 0]);
        }
        // What is in no schema, and that all of it can be read.
        let [ledger, claim] = seeds();
        let ledger: CustomView<Ledger> = serde_json::from_value(ledger.clone()).unwrap();
        let ledger = ledger_facts(&ledger).unwrap();
        // It is written as it was: another version of kproxide may read it.
        let again = serde_json::to_value(ledger_object(&ledger)).unwrap();
        assert_eq!(again, without_nulls(seeds()[0].clone()));
        assert!(ledger.acknowledged.is_some() && ledger.anchor_acknowledged.is_some());
        assert!(ledger.orphans_acknowledged.is_some());
        let claim: CustomView<NodeClaim> = serde_json::from_value(claim.clone()).unwrap();
        let claim = claim_facts(&claim).unwrap();
        let mut again = claim_object(&"workers-x7".into(), &claim.spec);
        again.status = status_object(&claim.status, Some(2));
        let again = serde_json::to_value(again).unwrap();
        for part in ["spec", "status"] {
            assert_eq!(again[part], seeds()[1][part]);
        }
        assert!(claim.deleting_since.is_some() && claim.has_finalizer);
        assert!(claim.replace && claim.do_not_disrupt && claim.paused);
    }

    fn without_nulls(mut value: Value) -> Value {
        match &mut value {
            Value::Object(fields) => fields.retain(|_, field| {
                *field = without_nulls(field.take());
                !field.is_null()
            }),
            Value::Array(items) => {
                (items.iter_mut()).for_each(|item| *item = without_nulls(item.take()));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        value
    }

    /// The fields of a schema that none of these values has.
    fn unset(schema: &Value, values: &[&Value], path: &str) -> Vec<String> {
        let fields = schema["properties"].as_object().into_iter().flatten();
        let each = fields.flat_map(|(name, field)| {
            let path = format!("{path}.{name}");
            let mut found = Vec::new();
            for value in values {
                match &value[name] {
                    Value::Null => {}
                    Value::Array(items) => found.extend(items),
                    value => found.push(value),
                }
            }
            if found.is_empty() {
                return vec![path];
            }
            unset(field.get("items").unwrap_or(field), &found, &path)
        });
        each.collect()
    }
}
