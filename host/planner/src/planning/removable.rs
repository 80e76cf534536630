//! Why each machine stays, for the condition `Removable` of its claim. Reasons come and go with every pod, so one is
//! written after it has held for a minute, and the condition of one claim at most every five minutes: 12 an hour.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::Planning;
use crate::claim::Condition;
use crate::plan::{AwaitedReason, Removable};
use crate::reasons::{Kept, REMOVING};
use crate::report::NodeOutcome;
use crate::time::later;

const HOLDS: SignedDuration = SignedDuration::from_mins(1);
const RESTS: SignedDuration = SignedDuration::from_mins(5);

impl Planning<'_> {
    /// After the report, which has why each Node stays or goes.
    pub(super) fn tell_removable(&mut self) {
        let known = self.tick.world.awaited().removable.iter();
        let known: BTreeMap<_, _> = known.map(|it| (&it.uid, it)).collect();
        let rows = self.rows.iter().filter(|row| row.node.is_some());
        for (row, told) in rows.zip(&self.report.nodes) {
            let (kept, may_go) = match &told.outcome {
                NodeOutcome::Removing(reason) => (Kept::Removing(*reason), true),
                NodeOutcome::Kept(kept) => (kept.clone(), false),
            };
            let Some(word) = kept.word() else { continue };
            let change = Removable {
                claim: row.name.clone(),
                uid: row.claim.uid.clone(),
                may_go: may_go || word == REMOVING,
                reason: word.into(),
                message: kept.to_string().into(),
            };
            let known = known.get(&change.uid).copied();
            let is_same =
                |it: &&AwaitedReason| it.reason == change.reason && it.message == change.message;
            let since = known.filter(is_same).map_or(self.tick.now, |it| it.since);
            let mut written = known.and_then(|it| it.written);
            let mut conditions = row.claim.status.conditions.iter();
            let is_written = conditions.any(|it| {
                it.kind == Condition::Removable
                    && it.status == change.may_go
                    && *it.reason == *change.reason
                    && *it.message == *change.message
            });
            if !is_written {
                let rested = written.map_or(since, |written| later(written, RESTS));
                if self.tick.reached(later(since, HOLDS).max(rested)) {
                    written = Some(self.tick.now);
                    self.removable.push(change.clone());
                }
            }
            let rests = written.is_some_and(|written| self.tick.now < later(written, RESTS));
            if !is_written || rests {
                self.awaited.removable.push(AwaitedReason {
                    claim: change.claim,
                    uid: change.uid,
                    reason: change.reason,
                    message: change.message,
                    since,
                    written,
                });
            }
        }
    }
}
