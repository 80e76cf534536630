//! Ledger: our books, both ways and without loss.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use kproxide_planner::facts::{
    Anchor, Backoff, EntryState, ForeignMark, Freeze, LedgerEntry, LedgerFacts, Mark, OrphanSeen,
    PolicyKind, PolicyState, Removal,
};
use kproxide_planner::ids::{
    ClaimName, ClusterName, HypervisorId, PoolName, StorageName, Uid, Vmid,
};
use kproxide_planner::keys;
use kproxide_planner::plan::RemovalReason;

use super::Unreadable;
use crate::kube::crd::{self, LEDGER_NAME, Ledger, LedgerEntryState, LedgerPolicyKind, LedgerSpec};

/// # Errors
/// A row that cannot be read: nothing is launched or freed on books that are only half understood.
pub fn ledger_facts(ledger: &Ledger) -> Result<LedgerFacts, Unreadable> {
    let LedgerSpec {
        entries,
        policy_state,
        backoff,
        removals,
        freeze,
        orphans,
        anchors,
    } = &ledger.spec;
    let annotation = |key: &str| {
        let annotations = ledger.metadata.annotations.as_ref()?;
        Some(annotations.get(key)?.as_str().into())
    };
    Ok(LedgerFacts {
        resource_version: ledger
            .metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
            .into(),
        entries: read_rows("entries", entries, entry_facts)?,
        policy_state: read_rows("policyState", policy_state, policy_state_facts)?,
        backoff: read_rows("backoff", backoff, backoff_facts)?,
        removals: read_rows("removals", removals, removal_facts)?,
        freeze: freeze
            .as_ref()
            .map(freeze_facts)
            .transpose()
            .map_err(|problem| Unreadable {
                object: format!("Ledger/{LEDGER_NAME}"),
                field: "spec.freeze".to_owned(),
                problem,
            })?,
        acknowledged: annotation(keys::ACKNOWLEDGE_REMOVAL),
        orphans: read_rows("orphans", orphans, orphan_facts)?,
        anchors: read_rows("anchors", anchors, anchor_facts)?,
        anchor_acknowledged: annotation(keys::ACKNOWLEDGE_ANCHOR),
    })
}

/// The whole Ledger, to replace the one of that resource version.
pub fn ledger_object(facts: &LedgerFacts) -> Ledger {
    let LedgerFacts {
        resource_version,
        entries,
        policy_state,
        backoff,
        removals,
        freeze,
        acknowledged,
        orphans,
        anchors,
        anchor_acknowledged,
    } = facts;
    let mut ledger = Ledger::new(
        LEDGER_NAME,
        LedgerSpec {
            entries: entries.iter().map(entry_object).collect(),
            policy_state: policy_state.iter().map(policy_state_object).collect(),
            backoff: backoff.iter().map(backoff_object).collect(),
            removals: removals.iter().map(removal_object).collect(),
            freeze: freeze.as_ref().map(freeze_object),
            orphans: orphans.iter().map(orphan_object).collect(),
            anchors: anchors.iter().map(anchor_object).collect(),
        },
    );
    ledger.metadata.resource_version =
        (!resource_version.is_empty()).then(|| resource_version.to_string());
    // A person's word outlives our writes for as long as the planner keeps it.
    let words = [
        (keys::ACKNOWLEDGE_REMOVAL, acknowledged),
        (keys::ACKNOWLEDGE_ANCHOR, anchor_acknowledged),
    ];
    let annotations: BTreeMap<String, String> = words
        .into_iter()
        .filter_map(|(key, word)| Some((key.to_owned(), word.as_ref()?.to_string())))
        .collect();
    ledger.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    ledger
}

fn read_rows<R, F>(
    list: &str,
    rows: &[R],
    read: impl Fn(&R) -> Result<F, String>,
) -> Result<Vec<F>, Unreadable> {
    rows.iter()
        .enumerate()
        .map(|(index, row)| {
            read(row).map_err(|problem| Unreadable {
                object: format!("Ledger/{LEDGER_NAME}"),
                field: format!("spec.{list}[{index}]"),
                problem,
            })
        })
        .collect()
}

fn entry_facts(entry: &crd::LedgerEntry) -> Result<LedgerEntry, String> {
    let crd::LedgerEntry {
        claim,
        pool,
        cluster,
        vmid,
        hypervisor,
        storage,
        milli_cores,
        memory_bytes,
        disk_bytes,
        address,
        state,
        since,
        until,
    } = entry;
    Ok(LedgerEntry {
        claim: ClaimName::from(claim.as_str()),
        pool: PoolName::from(pool.as_str()),
        cluster: ClusterName::from(cluster.as_str()),
        vmid: Vmid(*vmid),
        hypervisor: hypervisor.as_str().into(),
        storage: storage.as_deref().map(StorageName::from),
        milli_cores: *milli_cores,
        memory_bytes: *memory_bytes,
        disk_bytes: *disk_bytes,
        address: address
            .as_deref()
            .map(|text| {
                text.parse()
                    .map_err(|_| format!("address {text:?} is not an IP address"))
            })
            .transpose()?,
        state: match state {
            LedgerEntryState::Reserved => EntryState::Reserved {
                since: moment("since", since.as_deref())?,
            },
            LedgerEntryState::Live => EntryState::Live,
            LedgerEntryState::Quarantined => EntryState::Quarantined {
                until: moment("until", until.as_deref())?,
            },
        },
    })
}

fn entry_object(entry: &LedgerEntry) -> crd::LedgerEntry {
    let LedgerEntry {
        claim,
        pool,
        cluster,
        vmid,
        hypervisor,
        storage,
        milli_cores,
        memory_bytes,
        disk_bytes,
        address,
        state,
    } = entry;
    let (state, since, until) = match state {
        EntryState::Reserved { since } => {
            (LedgerEntryState::Reserved, Some(since.to_string()), None)
        }
        EntryState::Live => (LedgerEntryState::Live, None, None),
        EntryState::Quarantined { until } => {
            (LedgerEntryState::Quarantined, None, Some(until.to_string()))
        }
    };
    crd::LedgerEntry {
        claim: claim.to_string(),
        pool: pool.to_string(),
        cluster: cluster.to_string(),
        vmid: vmid.0,
        hypervisor: hypervisor.to_string(),
        storage: storage.as_ref().map(ToString::to_string),
        milli_cores: *milli_cores,
        memory_bytes: *memory_bytes,
        disk_bytes: *disk_bytes,
        address: address.map(|address| address.to_string()),
        state,
        since,
        until,
    }
}

fn policy_state_facts(row: &crd::LedgerPolicyState) -> Result<PolicyState, String> {
    let crd::LedgerPolicyState {
        pool,
        kind,
        policy,
        sequence,
        previous,
        state,
    } = row;
    Ok(PolicyState {
        pool: PoolName::from(pool.as_str()),
        kind: match kind {
            LedgerPolicyKind::HostSelection => PolicyKind::HostSelection,
            LedgerPolicyKind::ScaleDown => PolicyKind::ScaleDown,
            LedgerPolicyKind::Labels => PolicyKind::Labels,
        },
        policy: policy.as_str().into(),
        sequence: *sequence,
        previous: previous
            .as_deref()
            .map(|text| HypervisorId::try_from(text.to_owned()))
            .transpose()?,
        state: BASE64
            .decode(state)
            .map_err(|_| "state is not base64".to_owned())?,
    })
}

fn policy_state_object(row: &PolicyState) -> crd::LedgerPolicyState {
    let PolicyState {
        pool,
        kind,
        policy,
        sequence,
        previous,
        state,
    } = row;
    crd::LedgerPolicyState {
        pool: pool.to_string(),
        kind: match kind {
            PolicyKind::HostSelection => LedgerPolicyKind::HostSelection,
            PolicyKind::ScaleDown => LedgerPolicyKind::ScaleDown,
            PolicyKind::Labels => LedgerPolicyKind::Labels,
        },
        policy: policy.to_string(),
        sequence: *sequence,
        previous: previous.as_ref().map(ToString::to_string),
        state: BASE64.encode(state),
    }
}

fn backoff_facts(row: &crd::LedgerBackoff) -> Result<Backoff, String> {
    let crd::LedgerBackoff {
        hypervisor,
        storage,
        class,
        message,
        failures,
        until,
    } = row;
    Ok(Backoff {
        hypervisor: HypervisorId::try_from(hypervisor.clone())?,
        storage: storage.as_deref().map(StorageName::from),
        class: class.as_str().into(),
        message: message.clone(),
        failures: *failures,
        until: moment("until", Some(until))?,
    })
}

fn backoff_object(row: &Backoff) -> crd::LedgerBackoff {
    let Backoff {
        hypervisor,
        storage,
        class,
        message,
        failures,
        until,
    } = row;
    crd::LedgerBackoff {
        hypervisor: hypervisor.to_string(),
        storage: storage.as_ref().map(ToString::to_string),
        class: class.to_string(),
        message: message.clone(),
        failures: *failures,
        until: until.to_string(),
    }
}

fn removal_facts(row: &crd::LedgerRemoval) -> Result<Removal, String> {
    let crd::LedgerRemoval { claim, at, reason } = row;
    Ok(Removal {
        claim: ClaimName::from(claim.as_str()),
        at: moment("at", Some(at))?,
        reason: RemovalReason::from_word(reason)
            .ok_or_else(|| format!("reason {reason:?} is not one of kproxide's"))?,
    })
}

fn removal_object(row: &Removal) -> crd::LedgerRemoval {
    let Removal { claim, at, reason } = row;
    crd::LedgerRemoval {
        claim: claim.to_string(),
        at: at.to_string(),
        reason: reason.as_str().to_owned(),
    }
}

fn freeze_facts(freeze: &crd::LedgerFreeze) -> Result<Freeze, String> {
    let crd::LedgerFreeze { since, machines } = freeze;
    Ok(Freeze {
        since: moment("since", Some(since))?,
        machines: *machines,
    })
}

fn freeze_object(freeze: &Freeze) -> crd::LedgerFreeze {
    let Freeze { since, machines } = freeze;
    crd::LedgerFreeze {
        since: since.to_string(),
        machines: *machines,
    }
}

fn orphan_facts(row: &crd::LedgerOrphan) -> Result<OrphanSeen, String> {
    let crd::LedgerOrphan {
        cluster,
        vmid,
        claim_uid,
        since,
    } = row;
    Ok(OrphanSeen {
        cluster: ClusterName::from(cluster.as_str()),
        vmid: Vmid(*vmid),
        claim_uid: Uid::from(claim_uid.as_str()),
        since: moment("since", Some(since))?,
    })
}

fn orphan_object(row: &OrphanSeen) -> crd::LedgerOrphan {
    let OrphanSeen {
        cluster,
        vmid,
        claim_uid,
        since,
    } = row;
    crd::LedgerOrphan {
        cluster: cluster.to_string(),
        vmid: vmid.0,
        claim_uid: claim_uid.to_string(),
        since: since.to_string(),
    }
}

fn anchor_facts(row: &crd::LedgerAnchor) -> Result<Anchor, String> {
    let crd::LedgerAnchor {
        cluster,
        vmid,
        mark,
        next,
        at,
        watched_since,
        foreign,
    } = row;
    let shown = |foreign: &crd::LedgerForeignMark| -> Result<ForeignMark, String> {
        Ok(ForeignMark {
            vmid: Vmid(foreign.vmid),
            mark: Mark::try_from(foreign.mark.clone())?,
            since: moment("since", Some(&foreign.since))?,
            moved: foreign.moved,
        })
    };
    let watched = |since: &String| moment("watchedSince", Some(since));
    Ok(Anchor {
        cluster: ClusterName::from(cluster.as_str()),
        vmid: Vmid(*vmid),
        mark: mark.clone().map(Mark::try_from).transpose()?,
        next: Mark::try_from(next.clone())?,
        at: moment("at", Some(at))?,
        watched_since: watched_since.as_ref().map(watched).transpose()?,
        foreign: foreign.as_ref().map(shown).transpose()?,
    })
}

fn anchor_object(row: &Anchor) -> crd::LedgerAnchor {
    let Anchor {
        cluster,
        vmid,
        mark,
        next,
        at,
        watched_since,
        foreign,
    } = row;
    crd::LedgerAnchor {
        cluster: cluster.to_string(),
        vmid: vmid.0,
        mark: mark.as_ref().map(ToString::to_string),
        next: next.to_string(),
        at: at.to_string(),
        watched_since: watched_since.map(|since| since.to_string()),
        foreign: foreign.as_ref().map(|foreign| crd::LedgerForeignMark {
            vmid: foreign.vmid.0,
            mark: foreign.mark.to_string(),
            since: foreign.since.to_string(),
            moved: foreign.moved,
        }),
    }
}

fn moment(field: &str, text: Option<&str>) -> Result<Timestamp, String> {
    let text = text.ok_or_else(|| format!("{field} is missing"))?;
    text.parse()
        .map_err(|_| format!("{field} {text:?} is not a moment such as 2026-01-31T12:00:00Z"))
}

#[cfg(test)]
mod tests {
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
                    ..entry(602, EntryState::Quarantined { until: moment })
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
                class: "no-space".into(),
                message: "storage ceph is full".to_owned(),
                failures: 3,
                until: moment,
            }],
            removals: RemovalReason::ALL
                .map(|reason| Removal {
                    claim: "workers-x8".into(),
                    at: moment,
                    reason,
                })
                .into(),
            freeze: Some(Freeze {
                since: moment,
                machines: 12,
            }),
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
        };
        let text = serde_json::to_string(&ledger_object(&facts)).unwrap();
        assert_eq!(
            ledger_facts(&serde_json::from_str(&text).unwrap()).unwrap(),
            facts
        );
    }

    /// 5,000 entries must stay well below etcd's limit of 1.5 MB.
    #[test]
    fn an_entry_is_small() {
        let moment: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let entry = entry_object(&entry(600, EntryState::Quarantined { until: moment }));
        assert!(serde_json::to_string(&entry).unwrap().len() <= 220);
    }

    #[test]
    fn f66_books_that_are_only_half_understood_are_refused() {
        let mut ledger = ledger_object(&LedgerFacts {
            entries: vec![entry(600, EntryState::Live)],
            ..LedgerFacts::default()
        });
        ledger.spec.entries[0].state = LedgerEntryState::Reserved;
        assert_eq!(
            ledger_facts(&ledger).unwrap_err().to_string(),
            "Ledger/kproxide: spec.entries[0]: since is missing"
        );
    }
}
