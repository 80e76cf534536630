//! Ledger: our books. Its specification is the planner's own type; what is here stands in the object's metadata.

use std::collections::BTreeMap;

use kproxide_planner::facts::LedgerFacts;
use kproxide_planner::keys;

use super::{Unreadable, created, record};
use crate::crd::{LEDGER_NAME, Ledger};
use crate::view::CustomView;

/// # Errors
/// A row that cannot be read: nothing is launched or freed on books that are only half understood.
pub(crate) fn ledger_facts(ledger: &CustomView<Ledger>) -> Result<LedgerFacts, Unreadable> {
    let annotation = |key: &str| {
        let annotations = ledger.metadata.annotations.as_ref()?;
        Some(annotations.get(key)?.as_str().into())
    };
    let version = ledger.metadata.resource_version.as_deref();
    Ok(LedgerFacts {
        resource_version: version.unwrap_or_default().into(),
        created: Some(created(&ledger.metadata)),
        orphans_acknowledged: annotation(keys::ACKNOWLEDGE_ORPHAN),
        acknowledged: annotation(keys::ACKNOWLEDGE_REMOVAL),
        anchor_acknowledged: annotation(keys::ACKNOWLEDGE_ANCHOR),
        ..record(ledger, "spec", &ledger.spec)?
    })
}

/// The whole Ledger, to replace the one of that resource version.
pub(crate) fn ledger_object(facts: &LedgerFacts) -> CustomView<Ledger> {
    let mut spec = facts.clone();
    let version = std::mem::take(&mut spec.resource_version);
    spec.created = None;
    // A person's word outlives our writes for as long as the planner keeps it.
    let words = [
        (keys::ACKNOWLEDGE_REMOVAL, spec.acknowledged.take()),
        (keys::ACKNOWLEDGE_ANCHOR, spec.anchor_acknowledged.take()),
        (keys::ACKNOWLEDGE_ORPHAN, spec.orphans_acknowledged.take()),
    ];
    let annotations: BTreeMap<String, String> = words
        .into_iter()
        .filter_map(|(key, word)| Some((key.to_owned(), word?.to_string())))
        .collect();
    let mut ledger = CustomView::new(LEDGER_NAME, &spec);
    ledger.metadata.resource_version = (!version.is_empty()).then(|| version.to_string());
    ledger.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    ledger
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kproxide_planner::facts::{
        Anchor, Backoff, EntryState, FailedLaunches, ForeignMark, Freeze, InVain, LedgerEntry,
        Mark, Offered, OrphanSeen, PolicyKind, PolicyState, PoolDeletion, Removal, Tried, Tries,
    };
    use kproxide_planner::ids::{HypervisorId, Vmid};
    use kproxide_planner::plan::RemovalReason;
    use serde_json::json;

    use super::*;

    fn entry(vmid: u32, state: EntryState) -> LedgerEntry {
        LedgerEntry {
            claim: "workers-x7".into(),
            pool: "workers".into(),
            cluster: "lab".into(),
            vmid: Vmid(vmid),
            hypervisor: "pve1".into(),
            storage: None,
            milli_cores: 4000,
            memory_bytes: 8 << 30,
            disk_bytes: 0,
            address: None,
            state,
        }
    }

    fn mark(text: &str) -> Mark {
        Mark::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn nothing_is_lost_on_the_way_to_the_api_and_back() {
        let moment: Timestamp = "2026-01-31T12:00:00.5Z".parse().unwrap();
        let facts = LedgerFacts {
            resource_version: "17".into(),
            entries: vec![
                entry(600, EntryState::Reserved { since: moment }),
                entry(601, EntryState::Live),
                LedgerEntry {
                    storage: Some("ceph".into()),
                    address: Some("fd00::1".parse().unwrap()),
                    ..entry(
                        602,
                        EntryState::Quarantined {
                            since: None,
                            until: moment,
                        },
                    )
                },
            ],
            policy_state: vec![PolicyState {
                pool: "workers".into(),
                kind: PolicyKind::HostSelection,
                policy: "round-robin".into(),
                sequence: 7,
                previous: Some(HypervisorId::new("lab", "pve2")),
                state: vec![0, 255, 7],
            }],
            backoff: vec![Backoff {
                hypervisor: HypervisorId::new("lab", "pve2"),
                storage: Some("ceph".into()),
                node_class: None,
                class: "no-space".into(),
                message: "storage ceph is full".to_owned(),
                failures: 3,
                until: moment,
            }],
            failed_launches: vec![FailedLaunches {
                pool: "workers".into(),
                in_a_row: 2,
                message: "storage ceph is full".to_owned(),
                at: moment,
            }],
            removals: RemovalReason::ALL
                .map(|reason| Removal {
                    claim: "workers-x8".into(),
                    at: moment,
                    reason: reason.in_ledger(),
                })
                .into(),
            tries: vec![Tries {
                given_up: vec![moment],
                workload: "Deployment default/web".into(),
                pool: "workers".into(),
                instance_type: "medium".into(),
                pods: "01".into(),
                settings: "02".into(),
                machines: vec![Tried {
                    claim: "workers-x9".into(),
                    in_vain: true,
                }],
                rounds: 2,
                late: 1,
                at: Some(moment),
                node: Some("workers-x9".into()),
            }],
            in_vain: vec![InVain {
                pool: "workers".into(),
                settings: "02".into(),
                claim: "workers-x9".into(),
                at: moment,
            }],
            offered: vec![Offered {
                node_class: "standard".into(),
                nodes: [("workers-x9".into(), "03".into())].into(),
                changed: Some(moment),
            }],
            freeze: Some(Freeze {
                since: moment,
                machines: 12,
            }),
            deletions: vec![PoolDeletion {
                pool: "workers".into(),
                uid: "7e1d".into(),
            }],
            acknowledged: Some("12@2026-01-31T12:00:00Z".into()),
            orphans: vec![OrphanSeen {
                cluster: "lab".into(),
                vmid: Vmid(603),
                claim_uid: "0b1c".into(),
                since: moment,
            }],
            anchors: vec![Anchor {
                cluster: "lab".into(),
                vmid: Vmid(2999),
                mark: Some(mark("6-a")),
                next: mark("7-b"),
                at: moment,
                watched_since: Some(moment),
                foreign: Some(ForeignMark {
                    vmid: Vmid(2998),
                    mark: mark("9-c"),
                    since: moment,
                    moved: 2,
                }),
            }],
            anchor_acknowledged: Some("lab:9-c".into()),
            // Of an object that says nothing of its age.
            created: Some(Timestamp::UNIX_EPOCH),
            orphans_acknowledged: Some("lab:201:abc".into()),
        };
        let object = ledger_object(&facts);
        let of_92f4022 = [
            "Empty",
            "Underutilized",
            "Expired",
            "Replace",
            "PoolDeleted",
            "Repair",
            "NodeDeleted",
            "LaunchFailed",
            "Deleted",
            "Lost",
        ];
        for removal in object.spec["removals"].as_array().unwrap() {
            let word = removal["reason"].as_str().unwrap();
            assert!(of_92f4022.contains(&word), "{word}");
        }
        let mut later = object.clone();
        later.spec["removals"][0]["reason"] = "WordOfALaterVersion".into();
        let later = ledger_facts(&later).unwrap();
        assert_eq!(later.removals[0].reason, RemovalReason::Replace);
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(
            ledger_facts(&serde_json::from_str(&text).unwrap()).unwrap(),
            facts
        );
    }

    /// 5,000 entries must stay well below etcd's limit of 1.5 MB.
    #[test]
    fn an_entry_is_small() {
        let moment: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let entry = entry(
            600,
            EntryState::Quarantined {
                since: None,
                until: moment,
            },
        );
        assert!(serde_json::to_string(&entry).unwrap().len() <= 220);
    }

    #[test]
    fn f66_books_that_are_only_half_understood_are_refused() {
        let mut ledger = ledger_object(&LedgerFacts {
            entries: vec![entry(600, EntryState::Live)],
            ..LedgerFacts::default()
        });
        ledger.spec["entries"][0]["state"] = json!("reserved");
        assert_eq!(
            ledger_facts(&ledger).unwrap_err().to_string(),
            "Ledger/kproxide: spec.entries[0]: missing field `since`"
        );
    }
}
