//! Since when each thing is so, as far as this process has seen it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::judge::{Finding, Level};

#[derive(Default)]
pub(super) struct Holding(BTreeMap<(String, &'static str), Timestamp>);

impl Holding {
    /// Each trouble with the time since when it is there. What is over is forgotten. A condition that is not as it should be
    /// counts as one trouble, whatever the reason: an outage that changes its reason is no new one.
    pub(super) fn count(&mut self, findings: &mut [Finding], now: Timestamp) {
        let Self(before) = self;
        let mut holding = BTreeMap::new();
        let bad = findings.iter_mut().filter(|it| it.level != Level::Ok);
        for finding in bad {
            let condition = finding.condition().map(|(condition, _)| condition);
            let key = (
                finding.object.clone(),
                condition.unwrap_or(finding.reason.word),
            );
            let seen = before.get(&key).copied().unwrap_or(now);
            finding.since.get_or_insert(seen);
            holding.insert(key, seen);
        }
        *before = holding;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Group, Reason, reasons};

    #[test]
    fn an_outage_that_changes_its_reason_is_no_new_one_and_what_is_over_begins_anew() {
        let mut holding = Holding::default();
        let mut since = |second: i64, reason: Option<&'static Reason>| {
            let at = |second| Timestamp::from_second(second).unwrap();
            let (group, object) = (Group::Proxmox, "ProxmoxCluster/home");
            let finding = match reason {
                Some(reason) => Finding::error(group, object, reason, "words"),
                None => Finding::ok(group, object, ""),
            };
            let mut findings = [finding];
            holding.count(&mut findings, at(second));
            findings[0].since.map(Timestamp::as_second)
        };
        assert_eq!(since(10, Some(&reasons::NO_QUORUM)), Some(10));
        assert_eq!(since(20, Some(&reasons::UNREACHABLE)), Some(10));
        assert_eq!(since(30, Some(&reasons::NO_QUORUM)), Some(10));
        assert_eq!(since(40, None), None);
        assert_eq!(since(50, Some(&reasons::UNREACHABLE)), Some(50));
        // Another condition of the same object.
        assert_eq!(since(60, Some(&reasons::TOKEN_OVER_PRIVILEGED)), Some(60));
    }
}
