//! Since when each thing is so, as far as this process has seen it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::judge::{Finding, Level};

#[derive(Default)]
pub(super) struct Holding(BTreeMap<(String, &'static str), Timestamp>);

impl Holding {
    /// Each trouble with the time since when it is there. What is over is forgotten.
    pub(super) fn count(&mut self, findings: &mut [Finding], now: Timestamp) {
        let Self(before) = self;
        let mut holding = BTreeMap::new();
        let bad = findings.iter_mut().filter(|it| it.level != Level::Ok);
        for finding in bad {
            let key = (finding.object.clone(), finding.reason.word);
            let seen = before.get(&key).copied().unwrap_or(now);
            finding.since.get_or_insert(seen);
            holding.insert(key, seen);
        }
        *before = holding;
    }
}
