//! NodeClaim: our record of one machine, both ways and without loss.

use jiff::Timestamp;
use kproxide_planner::claim::{Condition, Intent, Op, Phase};
use kproxide_planner::facts::{Adopts, ClaimCondition, ClaimFacts, ClaimSpec, ClaimStatus};
use kproxide_planner::ids::{
    ClaimName, ClassName, ClusterName, Digest, InstanceTypeName, NodeName, PoolName, StorageName,
    Uid, Vmid,
};
use kproxide_planner::keys;
use kube::api::ObjectMeta;

use super::{Unreadable, created, flagged_in, name, taint_facts, taint_object};
use crate::kube::crd::{
    ClaimAdopts, ClaimIntent, ClaimOp, ClaimPhase, ClaimResources, ConditionStatus, NodeClaim,
    NodeClaimSpec, NodeClaimStatus, StatusCondition,
};

/// # Errors
/// A field that cannot be read: the claim is left exactly as it is, its machine too.
pub fn claim_facts(claim: &NodeClaim) -> Result<ClaimFacts, Unreadable> {
    let meta = &claim.metadata;
    let unreadable = |field: &str, problem: String| Unreadable {
        object: format!("NodeClaim/{}", name(meta)),
        field: field.to_owned(),
        problem,
    };
    let status = match &claim.status {
        Some(status) => {
            status_facts(status).map_err(|(field, problem)| unreadable(field, problem))?
        }
        None => ClaimStatus::default(),
    };
    Ok(ClaimFacts {
        uid: Uid::from(meta.uid.as_deref().unwrap_or_default()),
        created: created(meta),
        deleting_since: meta.deletion_timestamp.as_ref().map(|time| time.0),
        has_finalizer: has_finalizer(meta),
        spec: spec_facts(&claim.spec).map_err(|(field, problem)| unreadable(field, problem))?,
        status,
        replace: flagged_in(meta, keys::REPLACE),
        do_not_disrupt: flagged_in(meta, keys::DO_NOT_DISRUPT),
        paused: flagged_in(meta, keys::PAUSE),
    })
}

/// A claim to be created: its finalizer is in it from the start, so that it can never vanish before its machine.
pub fn claim_object(claim: &ClaimName, spec: &ClaimSpec) -> NodeClaim {
    let mut object = NodeClaim::new(claim.as_str(), spec_object(spec));
    object.metadata.finalizers = Some(vec![keys::FINALIZER.to_owned()]);
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

pub(in crate::kube) fn has_finalizer(meta: &ObjectMeta) -> bool {
    meta.finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == keys::FINALIZER)
}

fn spec_facts(spec: &NodeClaimSpec) -> Result<ClaimSpec, (&'static str, String)> {
    let NodeClaimSpec {
        pool,
        class,
        cluster,
        vmid,
        vm_name,
        hypervisor,
        storage,
        instance_type,
        resources:
            ClaimResources {
                milli_cores,
                memory_bytes,
                disk_bytes,
            },
        address,
        labels,
        annotations,
        taints,
        template_digest,
        policy_digest,
        adopts,
    } = spec;
    let address = address
        .as_deref()
        .map(|text| {
            text.parse()
                .map_err(|_| ("spec.address", format!("{text:?} is not an IP address")))
        })
        .transpose()?;
    Ok(ClaimSpec {
        pool: PoolName::from(pool.as_str()),
        class: ClassName::from(class.as_str()),
        cluster: ClusterName::from(cluster.as_str()),
        vmid: Vmid(*vmid),
        vm_name: vm_name.as_str().into(),
        hypervisor: hypervisor.as_str().into(),
        storage: storage.as_deref().map(StorageName::from),
        instance_type: InstanceTypeName::from(instance_type.as_str()),
        milli_cores: *milli_cores,
        memory_bytes: *memory_bytes,
        disk_bytes: *disk_bytes,
        address,
        labels: labels.clone(),
        annotations: annotations.clone(),
        taints: taints.iter().map(taint_facts).collect(),
        template_digest: Digest::from(template_digest.as_str()),
        policy_digest: Digest::from(policy_digest.as_str()),
        adopts: adopts.as_ref().map(|adopts| {
            let ClaimAdopts {
                claim_uid,
                nonce,
                condemned,
            } = adopts;
            Adopts {
                claim_uid: Uid::from(claim_uid.as_str()),
                nonce: nonce.as_str().into(),
                condemned: *condemned,
            }
        }),
    })
}

fn spec_object(spec: &ClaimSpec) -> NodeClaimSpec {
    let ClaimSpec {
        pool,
        class,
        cluster,
        vmid,
        vm_name,
        hypervisor,
        storage,
        instance_type,
        milli_cores,
        memory_bytes,
        disk_bytes,
        address,
        labels,
        annotations,
        taints,
        template_digest,
        policy_digest,
        adopts,
    } = spec;
    NodeClaimSpec {
        pool: pool.to_string(),
        class: class.to_string(),
        cluster: cluster.to_string(),
        vmid: vmid.0,
        vm_name: vm_name.to_string(),
        hypervisor: hypervisor.to_string(),
        storage: storage.as_ref().map(ToString::to_string),
        instance_type: instance_type.to_string(),
        resources: ClaimResources {
            milli_cores: *milli_cores,
            memory_bytes: *memory_bytes,
            disk_bytes: *disk_bytes,
        },
        address: address.map(|address| address.to_string()),
        labels: labels.clone(),
        annotations: annotations.clone(),
        taints: taints.iter().map(taint_object).collect(),
        template_digest: template_digest.to_string(),
        policy_digest: policy_digest.to_string(),
        adopts: adopts.as_ref().map(|adopts| {
            let Adopts {
                claim_uid,
                nonce,
                condemned,
            } = adopts;
            ClaimAdopts {
                claim_uid: claim_uid.to_string(),
                nonce: nonce.to_string(),
                condemned: *condemned,
            }
        }),
    }
}

fn status_facts(status: &NodeClaimStatus) -> Result<ClaimStatus, (&'static str, String)> {
    let NodeClaimStatus {
        phase,
        intent,
        upid,
        nonce,
        smbios_uuid,
        disks,
        node_name,
        node_uid,
        hypervisor,
        started_at,
        draining_since,
        conditions,
    } = status;
    Ok(ClaimStatus {
        phase: phase_facts(*phase),
        intent: intent
            .as_ref()
            .map(|ClaimIntent { op, attempt, epoch }| Intent {
                op: op_facts(*op),
                attempt: *attempt,
                epoch: epoch.clone(),
            }),
        upid: upid.as_deref().map(Into::into),
        nonce: nonce.as_deref().map(Into::into),
        smbios_uuid: smbios_uuid.as_deref().map(Uid::from),
        disks: disks.iter().map(|disk| disk.as_str().into()).collect(),
        node_name: node_name.as_deref().map(NodeName::from),
        node_uid: node_uid.as_deref().map(Uid::from),
        hypervisor: hypervisor.as_deref().map(Into::into),
        started_at: started_at
            .as_deref()
            .map(|text| moment("status.startedAt", text))
            .transpose()?,
        draining_since: draining_since
            .as_deref()
            .map(|text| moment("status.drainingSince", text))
            .transpose()?,
        conditions: conditions
            .iter()
            .map(condition_facts)
            .collect::<Result<_, _>>()?,
    })
}

/// The whole status, to replace the one that is there.
pub fn status_object(status: &ClaimStatus) -> NodeClaimStatus {
    let ClaimStatus {
        phase,
        intent,
        upid,
        nonce,
        smbios_uuid,
        disks,
        node_name,
        node_uid,
        hypervisor,
        started_at,
        draining_since,
        conditions,
    } = status;
    NodeClaimStatus {
        phase: phase_object(*phase),
        intent: intent
            .as_ref()
            .map(|Intent { op, attempt, epoch }| ClaimIntent {
                op: op_object(*op),
                attempt: *attempt,
                epoch: epoch.clone(),
            }),
        upid: upid.as_deref().map(str::to_owned),
        nonce: nonce.as_deref().map(str::to_owned),
        smbios_uuid: smbios_uuid.as_ref().map(ToString::to_string),
        disks: disks.iter().map(ToString::to_string).collect(),
        node_name: node_name.as_ref().map(ToString::to_string),
        node_uid: node_uid.as_ref().map(ToString::to_string),
        hypervisor: hypervisor.as_deref().map(str::to_owned),
        started_at: started_at.map(|moment| moment.to_string()),
        draining_since: draining_since.map(|moment| moment.to_string()),
        conditions: conditions.iter().map(condition_object).collect(),
    }
}

fn moment(field: &'static str, text: &str) -> Result<Timestamp, (&'static str, String)> {
    text.parse().map_err(|_| {
        (
            field,
            format!("{text:?} is not a moment such as 2026-01-31T12:00:00Z"),
        )
    })
}

fn condition_facts(condition: &StatusCondition) -> Result<ClaimCondition, (&'static str, String)> {
    let StatusCondition {
        kind,
        status,
        last_transition_time,
        reason,
        message,
    } = condition;
    let kind = CONDITIONS
        .iter()
        .find(|(_, word)| word == kind)
        .map(|(condition, _)| *condition)
        .ok_or_else(|| {
            (
                "status.conditions",
                format!("{kind:?} is not a condition of this version"),
            )
        })?;
    Ok(ClaimCondition {
        kind,
        status: *status == ConditionStatus::True,
        since: moment("status.conditions.lastTransitionTime", last_transition_time)?,
        reason: reason.clone(),
        message: message.clone(),
    })
}

fn condition_object(condition: &ClaimCondition) -> StatusCondition {
    let ClaimCondition {
        kind,
        status,
        since,
        reason,
        message,
    } = condition;
    StatusCondition {
        kind: condition_word(*kind).to_owned(),
        status: if *status {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        },
        last_transition_time: since.to_string(),
        reason: truncated(reason, 63),
        message: truncated(message, 4000),
    }
}

/// The schema bounds these texts in characters.
pub(in crate::kube) fn truncated(text: &str, longest: usize) -> String {
    text.chars().take(longest).collect()
}

const CONDITIONS: [(Condition, &str); 12] = [
    (Condition::Reserved, "Reserved"),
    (Condition::Launched, "Launched"),
    (Condition::Registered, "Registered"),
    (Condition::Initialized, "Initialized"),
    (Condition::Unneeded, "Unneeded"),
    (Condition::NodeMissing, "NodeMissing"),
    (Condition::Drained, "Drained"),
    (Condition::VolumesDetached, "VolumesDetached"),
    (Condition::InstanceTerminating, "InstanceTerminating"),
    (Condition::StuckLocked, "StuckLocked"),
    (Condition::OwnershipMismatch, "OwnershipMismatch"),
    (Condition::ProtectedVM, "ProtectedVM"),
];

fn condition_word(condition: Condition) -> &'static str {
    match condition {
        Condition::Reserved => "Reserved",
        Condition::Launched => "Launched",
        Condition::Registered => "Registered",
        Condition::Initialized => "Initialized",
        Condition::Unneeded => "Unneeded",
        Condition::NodeMissing => "NodeMissing",
        Condition::Drained => "Drained",
        Condition::VolumesDetached => "VolumesDetached",
        Condition::InstanceTerminating => "InstanceTerminating",
        Condition::StuckLocked => "StuckLocked",
        Condition::OwnershipMismatch => "OwnershipMismatch",
        Condition::ProtectedVM => "ProtectedVM",
    }
}

fn phase_facts(phase: ClaimPhase) -> Phase {
    match phase {
        ClaimPhase::Pending => Phase::Pending,
        ClaimPhase::Launching => Phase::Launching,
        ClaimPhase::Launched => Phase::Launched,
        ClaimPhase::Registered => Phase::Registered,
        ClaimPhase::Initialized => Phase::Initialized,
        ClaimPhase::Draining => Phase::Draining,
        ClaimPhase::Terminating => Phase::Terminating,
    }
}

fn phase_object(phase: Phase) -> ClaimPhase {
    match phase {
        Phase::Pending => ClaimPhase::Pending,
        Phase::Launching => ClaimPhase::Launching,
        Phase::Launched => ClaimPhase::Launched,
        Phase::Registered => ClaimPhase::Registered,
        Phase::Initialized => ClaimPhase::Initialized,
        Phase::Draining => ClaimPhase::Draining,
        Phase::Terminating => ClaimPhase::Terminating,
    }
}

fn op_facts(op: ClaimOp) -> Op {
    match op {
        ClaimOp::Clone => Op::Clone,
        ClaimOp::Configure => Op::Configure,
        ClaimOp::Resize => Op::Resize,
        ClaimOp::Start => Op::Start,
        ClaimOp::Join => Op::Join,
        ClaimOp::Evict => Op::Evict,
        ClaimOp::Shutdown => Op::Shutdown,
        ClaimOp::Stop => Op::Stop,
        ClaimOp::Tombstone => Op::Tombstone,
        ClaimOp::Destroy => Op::Destroy,
    }
}

fn op_object(op: Op) -> ClaimOp {
    match op {
        Op::Clone => ClaimOp::Clone,
        Op::Configure => ClaimOp::Configure,
        Op::Resize => ClaimOp::Resize,
        Op::Start => ClaimOp::Start,
        Op::Join => ClaimOp::Join,
        Op::Evict => ClaimOp::Evict,
        Op::Shutdown => ClaimOp::Shutdown,
        Op::Stop => ClaimOp::Stop,
        Op::Tombstone => ClaimOp::Tombstone,
        Op::Destroy => ClaimOp::Destroy,
    }
}

#[cfg(test)]
pub(in crate::kube) mod tests {
    use kproxide_planner::facts::{Taint, TaintEffect};

    use super::*;

    /// A claim's specification with every field set.
    pub(in crate::kube) fn full_spec() -> ClaimSpec {
        ClaimSpec {
            pool: "workers".into(),
            class: "default".into(),
            cluster: "lab".into(),
            vmid: Vmid(600),
            vm_name: "workers-x7".into(),
            hypervisor: "pve1".into(),
            storage: Some("ceph".into()),
            instance_type: "m".into(),
            milli_cores: 4000,
            memory_bytes: 8 << 30,
            disk_bytes: Some(32 << 30),
            address: Some("10.0.0.10".parse().unwrap()),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            annotations: [("c".to_owned(), "d".to_owned())].into(),
            taints: vec![Taint {
                key: "k".into(),
                value: "v".into(),
                effect: TaintEffect::NoExecute,
            }],
            template_digest: "t1".into(),
            policy_digest: "p1".into(),
            adopts: Some(Adopts {
                claim_uid: "0b1c".into(),
                nonce: "abc".into(),
                condemned: true,
            }),
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
            hypervisor: Some("pve2".into()),
            started_at: Some(moment),
            draining_since: Some(moment),
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
        object.status = Some(status_object(&full_status()));
        let text = serde_json::to_string(&object).unwrap();
        let back = claim_facts(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(back.spec, full_spec());
        assert_eq!(back.status, full_status());
        assert!(back.has_finalizer);
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
                },
                "spec": {
                    "pool": "workers", "class": "default", "cluster": "lab",
                    "vmid": 600, "vmName": "workers-x7", "hypervisor": "pve1", "storage": "ceph",
                    "instanceType": "m",
                    "resources": {"milliCores": 4000, "memoryBytes": 8589934592u64, "diskBytes": 34359738368u64},
                    "address": "10.0.0.10",
                    "labels": {"a": "b"}, "annotations": {"c": "d"},
                    "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
                    "templateDigest": "t1", "policyDigest": "p1",
                    "adopts": {"claimUID": "0b1c", "nonce": "abc", "condemned": true},
                },
            })
        );
    }

    #[test]
    fn f66_a_record_that_cannot_be_read_is_an_error_that_names_the_field() {
        let mut object = claim_object(&"workers-x7".into(), &full_spec());
        object.spec.address = Some("somewhere".into());
        let problem = claim_facts(&object).unwrap_err().to_string();
        assert_eq!(
            problem,
            "NodeClaim/workers-x7: spec.address: \"somewhere\" is not an IP address"
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
