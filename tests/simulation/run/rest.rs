//! How a run comes to rest, stays there, and is found at rest by a new process.

mod people;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::{LOOK, Stage};
use crate::bound::bound;
use crate::plan::{FaultPlan, QUIET};
use crate::settled::{about_to_end, check_empty, ledger_entries, nobody_leads, problems};
use crate::wire::Wires;

/// The Ledger lets go of what has rested by then at the latest.
const LET_GO: Duration = Duration::from_secs(10 * 60);
/// A condition that has changed often says after so long what is so: until then a new process would say it.
const HELD_BACK: Duration = Duration::from_secs(11 * 60);
/// An anchor is moved on so often.
const MOVE: Duration = Duration::from_secs(4 * 60);

impl Stage<'_> {
    /// Waits until nothing is wrong, then for a while in which nothing may be asked for. Returns how long it took to come to rest.
    pub(super) async fn come_to_rest(&self, plan: &FaultPlan) -> Result<Duration, String> {
        let (quiet, began) = (plan.quiet.max(HELD_BACK), Instant::now());
        let bound = bound(self.scenario, plan);
        let deadline = began + bound + quiet;
        let (mut calm_since, mut effects) = (Instant::now(), self.effects());
        let mut moves = self.anchor_moves();
        loop {
            let mut found = problems(self.lab, self.scenario);
            found.extend(about_to_end(self.lab));
            found.extend(nobody_leads(self.lab));
            if !found.is_empty() {
                self.people_answer();
            }
            if !found.is_empty() || self.effects() != effects {
                (calm_since, effects) = (Instant::now(), self.effects());
                moves = self.anchor_moves();
            }
            if calm_since.elapsed() >= quiet {
                self.moves_in(quiet, moves)?;
                return Ok(calm_since - began);
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "L4: no rest after {} minutes: {found:#?}",
                    bound.as_secs() / 60
                ));
            }
            sleep(LOOK).await;
        }
    }

    /// Nothing is asked for any more, for as long as the Ledger still holds something that only time takes away, but that the Ledger lets go of it.
    pub(super) async fn stay_at_rest(&self, quarantine: Duration) -> Result<(), String> {
        let deadline = Instant::now() + quarantine + LET_GO;
        let (effects, of_ledger) = (self.effects(), self.ledger_writes());
        while ledger_entries(self.lab)
            .iter()
            .any(|entry| entry["state"] == "quarantined")
        {
            if Instant::now() >= deadline {
                return Err(format!(
                    "VMIDs rest for longer than {quarantine:?}: {:?}",
                    ledger_entries(self.lab)
                ));
            }
            sleep(LOOK * 6).await;
            let asked = self.effects() - effects - (self.ledger_writes() - of_ledger);
            let found = problems(self.lab, self.scenario);
            if asked > 0 || !found.is_empty() {
                return Err(format!(
                    "the world was at rest and did not stay so: {asked} effects, {found:#?}"
                ));
            }
        }
        Ok(())
    }

    /// An anchor is moved on every four minutes by two writes, the Ledger's and its own, and once more by a leader that begins.
    pub(super) fn moves_in(&self, time: Duration, before: u64) -> Result<(), String> {
        let moves = self.anchor_moves() - before;
        let most = 2 * (time.as_secs() / MOVE.as_secs() + 2);
        if moves > most {
            return Err(format!(
                "at rest the anchor was written {moves} times in {time:?}, more than {most} times"
            ));
        }
        Ok(())
    }

    pub(super) fn ledger_writes(&self) -> u64 {
        self.wires.iter().map(Wires::ledger_writes).sum()
    }

    /// A new process finds nothing to do.
    pub(super) async fn restart(&self) -> Result<(), String> {
        self.log.line("world", "a new process starts, at rest");
        let wires = &self.wires[0];
        wires.begin(None);
        let (app, handle) = self.host(wires, 0);
        let vitals = app.vitals();
        let (effects, moves) = (self.effects(), self.anchor_moves());
        let running = app.run();
        tokio::pin!(running);
        let watching = async {
            sleep(QUIET).await;
            let (ask, answer) = oneshot::channel();
            vitals
                .debug_plan
                .send(ask)
                .await
                .map_err(|_| "the host takes no questions".to_owned())?;
            let plan = answer
                .await
                .map_err(|_| "the host does not answer".to_owned())?;
            check_empty(&plan)
        };
        let watched = tokio::select! {
            biased;
            ended = &mut running => return Err(format!("the restarted host ended: {ended:?}")),
            watched = watching => watched,
        };
        handle.stop.cancel();
        running
            .await
            .map_err(|error| format!("the restarted host did not stop in order: {error:?}"))?;
        watched?;
        if self.effects() != effects {
            return Err(format!(
                "a restart at rest made {} effects",
                self.effects() - effects
            ));
        }
        let found = problems(self.lab, self.scenario);
        if !found.is_empty() {
            return Err(format!("after a restart: {found:#?}"));
        }
        self.moves_in(QUIET, moves)
    }
}
