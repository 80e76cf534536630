//! Why each machine stays, for the condition `Removable` of its claim. Reasons come and go with every pod, so one is
//! written after it has held for a minute, and the condition of one claim at most every five minutes: 12 an hour.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::claim::Condition;
use crate::plan::report::NodeOutcome;
use crate::plan::{AwaitedReason, Removable};
use crate::planning::Planning;
use crate::reasons::kept::{Kept, REMOVING};
use crate::time::later;

const HOLDS: SignedDuration = SignedDuration::from_mins(1);
const RESTS: SignedDuration = SignedDuration::from_mins(5);

impl Planning<'_> {
    /// After the report, which has why each Node stays or goes.
    pub(in crate::planning) fn tell_removable(&mut self) {
        let known = self.tick.world.awaited().removable.iter();
        let known: BTreeMap<_, _> = known.map(|it| (&it.uid, it)).collect();
        let told = self.report.nodes.iter();
        let told: BTreeMap<_, _> = told.map(|told| (&told.claim, told)).collect();
        for row in &self.rows {
            let Some(told) = told.get(row.name) else {
                continue;
            };
            let removing;
            let kept = match &told.outcome {
                NodeOutcome::Removing(reason) => {
                    removing = Kept::Removing(*reason);
                    &removing
                }
                NodeOutcome::Kept(kept) => kept,
            };
            let Some(word) = kept.word() else { continue };
            let (may_go, message) = (word == REMOVING, kept.to_string());
            let known = known.get(&row.claim.uid).copied();
            let mut conditions = row.claim.status.conditions.iter();
            let is_written = conditions.any(|it| {
                it.kind == Condition::Removable
                    && it.status == may_go
                    && it.reason == word
                    && it.message == message
            });
            if is_written && known.is_none() {
                continue;
            }
            let change = Removable {
                claim: row.name.clone(),
                uid: row.claim.uid.clone(),
                may_go,
                reason: word.into(),
                message: message.into(),
            };
            let is_same =
                |it: &&AwaitedReason| it.reason == change.reason && it.message == change.message;
            let since = known.filter(is_same).map_or(self.tick.now, |it| it.since);
            let mut written = known.and_then(|it| it.written);
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
