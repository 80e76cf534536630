//! NodeClaim: our record of one machine. Its specification and status are the planner's own types. What is here stands in
//! the object's metadata, or is bounded by the schema.

use std::sync::Arc;

use jiff::Timestamp;
use kproxide_planner::facts::{ClaimFacts, ClaimSpec, ClaimStatus};
use kproxide_planner::ids::{ClaimName, Uid};
use kproxide_planner::keys;
use kproxide_planner::plan::decision;
use kube::api::ObjectMeta;
use serde_json::{Map, Value};

use super::{Unreadable, created, flagged_in, record};
use crate::crd::NodeClaim;
use crate::view::{CustomView, fields};
use kproxide_common::foreign;

/// # Errors
/// A field that cannot be read: the claim is left exactly as it is, its machine too.
pub(crate) fn claim_facts(claim: &CustomView<NodeClaim>) -> Result<ClaimFacts, Unreadable> {
    let meta = &claim.metadata;
    Ok(ClaimFacts {
        uid: Uid::from(meta.uid.as_deref().unwrap_or_default()),
        created: created(meta),
        deleting_since: meta.deletion_timestamp.as_ref().map(|time| time.0),
        has_finalizer: has_finalizer(meta),
        other_finalizers: other_finalizers(meta),
        spec: record(claim, "spec", &claim.spec)?,
        status: record(claim, "status", &claim.status)?,
        replace: flagged_in(meta, keys::REPLACE),
        do_not_disrupt: flagged_in(meta, keys::DO_NOT_DISRUPT),
        discard_local_volumes: flagged_in(meta, keys::DISCARD_LOCAL_VOLUMES),
        paused: flagged_in(meta, keys::PAUSE),
    })
}

/// A claim to be created: its finalizer is in it from the start, so that it can never vanish before its machine.
pub(crate) fn claim_object(claim: &ClaimName, spec: &ClaimSpec) -> CustomView<NodeClaim> {
    let mut object = CustomView::new(claim.as_str(), spec);
    object.metadata.finalizers = Some(vec![keys::FINALIZER.to_owned()]);
    let decision = decision::launch(claim, spec).to_string();
    object.metadata.annotations = Some([(keys::DECISION.to_owned(), decision)].into());
    object.metadata.labels = Some(
        [
            (keys::POOL, spec.pool.as_str()),
            (keys::CLASS, spec.class.as_str()),
        ]
        .into_iter()
        // An object's name may be longer than a label's value.
        .filter(|(_, value)| value.len() <= 63)
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect(),
    );
    object
}

pub(crate) fn has_finalizer(meta: &ObjectMeta) -> bool {
    meta.finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == keys::FINALIZER)
}

fn other_finalizers(meta: &ObjectMeta) -> Vec<Arc<str>> {
    let all = meta.finalizers.iter().flatten();
    let others = all.filter(|finalizer| *finalizer != keys::FINALIZER);
    others.map(|finalizer| finalizer.as_str().into()).collect()
}

/// The whole status, to replace the one that is there. `generation`: of the object that it was found for.
pub(crate) fn status_object(status: &ClaimStatus, generation: Option<i64>) -> Map<String, Value> {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        // Kubernetes' own have whole seconds.
        condition.since = Timestamp::from_second(condition.since.as_second()).unwrap_or_default();
        condition.reason = truncated(&condition.reason, 63);
        condition.message = truncated(&condition.message, 4000);
    }
    let mut object = fields(&status);
    let written = object.get_mut("conditions").and_then(Value::as_array_mut);
    for (row, condition) in written.into_iter().flatten().zip(&status.conditions) {
        row["status"] = condition.word().into();
        if let Some(generation) = generation {
            row["observedGeneration"] = generation.into();
        }
    }
    object
}

/// A text of a status, clean. The schema bounds these texts in characters.
pub fn truncated(text: &str, longest: usize) -> String {
    foreign::shown(text).chars().take(longest).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use kproxide_planner::claim::{Condition, Intent, Op, Phase};
    use kproxide_planner::facts::{
        Adopts, BlockedDrains, ClaimCondition, ClaimResources, CloneSpec, CloudInit, Interface,
        MachineSpec, Network, Taint, TaintEffect, VmOptions,
    };
    use kproxide_planner::ids::Vmid;
    use serde_json::json;

    use super::*;

    /// What they are on the wire.
    const CONDITIONS: [(Condition, &str); 16] = [
        (Condition::Reserved, "Reserved"),
        (Condition::Launched, "Launched"),
        (Condition::Registered, "Registered"),
        (Condition::Initialized, "Initialized"),
        (Condition::Unneeded, "Unneeded"),
        (Condition::Removable, "Removable"),
        (Condition::NodeMissing, "NodeMissing"),
        (Condition::NotProvenOff, "NotProvenOff"),
        (Condition::Drained, "Drained"),
        (Condition::VolumesDetached, "VolumesDetached"),
        (Condition::InstanceTerminating, "InstanceTerminating"),
        (Condition::Stalled, "Stalled"),
        (Condition::StuckLocked, "StuckLocked"),
        (Condition::OwnershipMismatch, "OwnershipMismatch"),
        (Condition::ProtectedVM, "ProtectedVM"),
        (Condition::Ready, "Ready"),
    ];

    fn full_machine() -> MachineSpec {
        MachineSpec {
            cloud_init: Some(CloudInit {
                user: Some("ops".to_owned()),
                ssh_keys: vec!["ssh-ed25519 AAAA".to_owned()],
                dhcp: false,
                network: Some(Network {
                    prefix_length: 24,
                    gateway: Some("10.0.0.1".parse().unwrap()),
                }),
                nameservers: vec!["10.0.0.53".parse().unwrap()],
                search_domain: Some("lab.example".to_owned()),
            }),
            vm_options: VmOptions {
                cpu_type: Some("host".to_owned()),
            },
            network: vec![Interface {
                name: "net0".into(),
                bridge: Some("vmbr7".into()),
                vlan: Some(7),
                ..Interface::default()
            }],
        }
    }

    /// A claim's specification with every field set.
    pub(crate) fn full_spec() -> ClaimSpec {
        ClaimSpec {
            pool: "workers".into(),
            class: "default".into(),
            cluster: "lab".into(),
            vmid: Vmid(600),
            vm_name: "workers-x7".into(),
            hypervisor: "pve1".into(),
            storage: Some("ceph".into()),
            clone: Some(CloneSpec {
                hypervisor: "pve2".into(),
                vmid: Vmid(9000),
                full: true,
                storage: Some("ceph".into()),
            }),
            instance_type: "m".into(),
            resources: ClaimResources {
                milli_cores: 4000,
                memory_bytes: 8 << 30,
                disk_bytes: Some(32 << 30),
            },
            address: Some("10.0.0.10".parse().unwrap()),
            machine: Some(Box::new(full_machine())),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            annotations: [("c".to_owned(), "d".to_owned())].into(),
            taints: vec![Taint {
                key: "k".into(),
                value: "v".into(),
                effect: TaintEffect::NoExecute,
            }],
            template_digest: "t1".into(),
            policy_digest: "p1".into(),
            policy: Some("spread@p1".into()),
            adopts: Some(Adopts {
                claim_uid: "0b1c".into(),
                nonce: "abc".into(),
                condemned: true,
            }),
            replaces: Some("workers-w6".into()),
        }
    }

    fn full_status() -> ClaimStatus {
        let moment: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        ClaimStatus {
            phase: Phase::Draining,
            intent: Some(Intent {
                op: Op::Clone,
                attempt: 2,
                epoch: "3-ab".into(),
            }),
            upid: Some("UPID:pve1:0:0:0:qmclone:600:a@pam:".into()),
            nonce: Some("n".into()),
            smbios_uuid: Some("f0e1".into()),
            disks: vec!["ceph:vm-600-disk-0".into()],
            node_name: Some("workers-x7".into()),
            node_uid: Some("u".into()),
            address: Some("10.0.0.10".parse().unwrap()),
            hypervisor: Some("pve2".into()),
            started_at: Some(moment),
            draining_since: Some(moment),
            removal_decision: Some("d0".into()),
            blocked_drains: Some(BlockedDrains {
                in_a_row: 3,
                at: moment,
                pods: vec!["d1".into()],
                retry: "d2".into(),
            }),
            conditions: CONDITIONS
                .iter()
                .map(|(kind, _)| ClaimCondition {
                    kind: *kind,
                    status: *kind != Condition::Drained,
                    since: moment,
                    reason: "Because".into(),
                    message: "so".into(),
                })
                .collect(),
        }
    }

    #[test]
    fn nothing_is_lost_on_the_way_to_the_api_and_back() {
        let mut object = claim_object(&"workers-x7".into(), &full_spec());
        let status = status_object(&full_status(), Some(2));
        for (row, (_, word)) in CONDITIONS.iter().enumerate() {
            assert_eq!(status["conditions"][row]["type"], *word);
            assert_eq!(status["conditions"][row]["observedGeneration"], 2);
        }
        object.status = status;
        let text = serde_json::to_string(&object).unwrap();
        let back = claim_facts(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(back.spec, full_spec());
        assert_eq!(back.status, full_status());
        assert!(back.has_finalizer);
    }

    #[test]
    fn conditions_have_whole_seconds_and_ready_is_unknown_before_a_machine_is_in_service() {
        let condition = |kind, status, reason: &str| ClaimCondition {
            kind,
            status,
            since: "2026-01-31T12:00:00.987654321Z".parse().unwrap(),
            reason: reason.to_owned(),
            message: String::new(),
        };
        let status = ClaimStatus {
            conditions: vec![
                condition(Condition::Launched, false, "NotInService"),
                condition(Condition::Drained, true, "AwaitsDevices"),
                condition(Condition::Ready, false, "NotInService"),
                condition(Condition::Ready, false, "AwaitsDevices"),
                condition(Condition::Ready, false, "NodeNotReady"),
                condition(Condition::Ready, true, "NodeReady"),
            ],
            ..ClaimStatus::default()
        };
        let object = status_object(&status, None);
        let words: Vec<&Value> = object["conditions"].as_array().unwrap().iter().collect();
        let of = |field: &str| words.iter().map(|it| it[field].clone()).collect::<Vec<_>>();
        let expected = ["False", "True", "Unknown", "Unknown", "False", "True"];
        assert_eq!(of("status"), expected);
        assert_eq!(of("lastTransitionTime"), ["2026-01-31T12:00:00Z"; 6]);
    }

    #[test]
    fn the_object_on_the_wire() {
        let object = claim_object(&"workers-x7".into(), &full_spec());
        assert_eq!(
            serde_json::to_value(&object).unwrap(),
            serde_json::json!({
                "apiVersion": "kproxide.dev/v1alpha1",
                "kind": "NodeClaim",
                "metadata": {
                    "name": "workers-x7",
                    "finalizers": ["kproxide.dev/machine"],
                    "labels": {"kproxide.dev/pool": "workers", "kproxide.dev/class": "default"},
                    "annotations": {"kproxide.dev/decision": decision::launch(&"workers-x7".into(), &full_spec())},
                },
                "spec": {
                    "pool": "workers", "class": "default", "cluster": "lab",
                    "vmid": 600, "vmName": "workers-x7", "hypervisor": "pve1", "storage": "ceph",
                    "clone": {"hypervisor": "pve2", "vmid": 9000, "full": true, "storage": "ceph"},
                    "instanceType": "m",
                    "resources": {"milliCores": 4000, "memoryBytes": 8589934592u64, "diskBytes": 34359738368u64},
                    "address": "10.0.0.10",
                    "machine": {"cloudInit": {
                        "user": "ops", "sshKeys": ["ssh-ed25519 AAAA"], "dhcp": false,
                        "network": {"prefixLength": 24, "gateway": "10.0.0.1"},
                        "nameservers": ["10.0.0.53"], "searchDomain": "lab.example",
                    }, "vmOptions": {"cpuType": "host"},
                    "network": [{"name": "net0", "bridge": "vmbr7", "vlan": 7}]},
                    "labels": {"a": "b"}, "annotations": {"c": "d"},
                    "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
                    "templateDigest": "t1", "policyDigest": "p1", "policy": "spread@p1",
                    "adopts": {"claimUID": "0b1c", "nonce": "abc", "condemned": true},
                    "replaces": "workers-w6",
                },
            })
        );
    }

    #[test]
    fn w20_a_claim_of_an_earlier_version_has_no_name_of_a_policy_and_no_address() {
        let mut stored = serde_json::to_value(full_spec()).unwrap();
        stored.as_object_mut().unwrap().remove("policy");
        let spec: ClaimSpec = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(spec.policy, None);
        // The API server holds the specification to what it was.
        assert_eq!(serde_json::to_value(&spec).unwrap(), stored);
        let status: ClaimStatus = serde_json::from_value(json!({"phase": "Initialized"})).unwrap();
        assert_eq!(status.address, None);
    }

    #[test]
    fn f66_a_record_that_cannot_be_read_is_an_error_that_names_the_field() {
        let mut object = claim_object(&"workers-x7".into(), &full_spec());
        object.spec["address"] = json!("somewhere");
        let problem = claim_facts(&object).unwrap_err().to_string();
        assert_eq!(
            problem,
            "NodeClaim/workers-x7: spec.address: invalid IP address syntax"
        );
    }

    #[test]
    fn annotations_are_read() {
        let mut object = claim_object(&"c".into(), &full_spec());
        object.metadata.annotations = Some(
            [
                (keys::REPLACE, "true"),
                (keys::DO_NOT_DISRUPT, "true"),
                (keys::PAUSE, "yes"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        );
        let facts = claim_facts(&object).unwrap();
        assert!(facts.replace && facts.do_not_disrupt && !facts.paused);
    }
}
