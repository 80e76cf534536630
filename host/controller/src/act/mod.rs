//! Acting: performs what the planner decided, one step at a time, several claims at once.
//!
//! ```text
//! Plan ─► reserve (Ledger, claims) ─► drive per claim: looks ─► observe ─► claim::next ─► perform ─► … until it waits
//! ```
//!
//! Nothing here decides. [`kproxide_planner::claim::looks`] says what to read, [`kproxide_planner::claim::next`] what
//! to do. This module reads and does it. It keeps what the claims do not say: which of them are being driven (so that
//! none is driven twice), how long the others rest, and which have a turn to clone.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::{Phase, Restored, Waits};
use kproxide_planner::facts::LedgerFacts;
use kproxide_planner::ids::{ClaimName, Uid};
use kproxide_planner::plan::{FinalizerStep, Launch, Plan, RemovalReason, Verdict, decision};
use kproxide_planner::time::later;
use kproxide_planner::world::World;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use kproxide_common::chain::chain;
use kproxide_kube::error::{Cas, Error};
use kproxide_kube::{definition, finalizers};

mod context;

mod reserve;
mod script;

mod subject;

mod clone_turn;

mod pause;

mod drive;

mod observe_claim;

mod status;

mod launch;

mod join;

mod evidence;

mod drain;

mod terminate;

mod anchors;

mod orphans;

mod leftovers;

mod outcome;

#[cfg(test)]
mod tests;

pub use anchors::RefusedAnchor;
use clone_turn::CloneTurn;
pub use context::{ClaimNote, Context, Fence, Identity, Nonces, Rules};
use drive::{Drive, News};
use leftovers::Asked;
pub use leftovers::Leftover;
use orphans::OrphanLooks;
use pause::{Driven, Pause, Waiting};
use reserve::Reservation;
pub use script::{MOUNT_IT, Script};
use subject::Surroundings;

/// A claim that waits for something to change is looked at again at most this often.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// A claim that rests keeps its clone's turn for so long: longer than most clones take, and no hold, however long, keeps others from cloning for longer.
const CLONE_TURN_RESTS: SignedDuration = SignedDuration::from_mins(5);

/// A drive that panicked is not repeated for so long.
const AFTER_PANIC: SignedDuration = SignedDuration::from_secs(60);

/// Drives claims beside the loop.
pub struct Actor {
    context: Arc<Context>,
    drives: JoinSet<Ended>,
    /// Claims that are driven, or rest until something changes or a moment comes.
    claims: BTreeMap<ClaimName, Claim>,
    /// Of claims that rest while their clones' tasks go on, each until that moment: else more would be under way on a storage than it bears.
    clone_turns: BTreeMap<ClaimName, (CloneTurn, Timestamp)>,
    /// Of removals past the point of no return whose last drive ended with waiting.
    waiting: BTreeMap<ClaimName, Waiting>,
    /// Of other claims whose last drive ended with something in its way.
    held_up: BTreeMap<ClaimName, Waiting>,
    /// When labels of ours were last put right.
    restored: BTreeMap<ClaimName, Restored>,
    /// Brings every drive to rest: each has a token that is a child of it.
    stopping: CancellationToken,
    orphan_looks: OrphanLooks,
    asked: Asked,
}

/// What was begun of a plan.
#[derive(Debug, Default)]
pub struct Started {
    /// As it was written, for the world to know before its watch says so. `None`: there was nothing to write, or the write was refused.
    pub ledger: Option<Box<LedgerFacts>>,
    pub launched: BTreeSet<ClaimName>,
    pub refused_anchors: Vec<RefusedAnchor>,
}

/// A drive's end.
struct Ended {
    claim: ClaimName,
    driven: Driven,
    /// What it was driven with.
    verdict: Verdict,
}

enum Claim {
    /// Being driven, with this verdict. The token brings the drive to rest at its next safe point.
    UnderWay(Verdict, CancellationToken),
    Resting(Rest),
}

struct Rest {
    /// Not before then, unless another verdict wants something else.
    earliest: Timestamp,
    /// A look is due then, whatever else happens. `None`: when something changes.
    wake_at: Option<Timestamp>,
    verdict: Verdict,
    /// The drive before it left the claim being removed.
    removing: bool,
}

impl Rest {
    /// Something failed or is waited for: nothing new about the claim ends that sooner, what is to be noted of it included.
    fn is_back_off(&self) -> bool {
        self.wake_at == Some(self.earliest)
    }

    /// Whether what a plan says of the claim leaves it at rest; `noting`: there is something to be written down of it.
    ///
    /// A hold asks for nothing but rest, and takes no back-off's place: it may be over in a moment, and what was refused would be asked for again at once.
    fn goes_on(&self, verdict: &Verdict, noting: bool) -> bool {
        let is_hold = matches!(verdict, Verdict::Hold(_));
        match self.is_back_off() {
            true => is_hold || self.verdict == *verdict,
            false => self.verdict == *verdict && !noting,
        }
    }
}

impl Actor {
    pub fn new(context: Context) -> Self {
        Self {
            context: Arc::new(context),
            drives: JoinSet::new(),
            claims: BTreeMap::new(),
            clone_turns: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held_up: BTreeMap::new(),
            restored: BTreeMap::new(),
            stopping: CancellationToken::new(),
            orphan_looks: OrphanLooks::default(),
            asked: Asked::default(),
        }
    }

    /// Why our objects cannot be relied on, by a fresh look at their definitions.
    ///
    /// # Errors
    /// It could not be read: nothing follows from that, and every claim that is deleted waits for a look of its own.
    pub async fn definition_problem(&self) -> Result<Option<String>, Error> {
        definition::problem(&self.context.kube).await
    }

    /// Of the reservations that are old enough to be given up, those whose claims do not exist, by a fresh look at each.
    pub async fn unclaimed(&self, world: &World) -> BTreeSet<ClaimName> {
        let now = self.context.clock.now();
        reserve::unclaimed(&self.context.kube, world, now).await
    }

    /// By how much our clock is ahead of the API server's; `None`: the server has not said lately what time it is.
    pub fn clock_ahead(&self) -> Option<SignedDuration> {
        let there = self.context.kube.server_time()?;
        Some(self.context.clock.now().duration_since(there))
    }

    /// Begins to perform a plan: writes its Ledger, then drives its launches and every claim that has something to do.
    ///
    /// If the Ledger's write is refused, no launch of this plan takes place, and no removal begins that it would have counted. Nothing begins once `term`, the
    /// epoch in which the plan was made, is over: a tick may wait for an answer for longer than a Lease lasts, and what had to come to pass before anything may be
    /// removed was of that term.
    pub async fn start(&mut self, plan: &Plan, world: &World, term: &str) -> Started {
        let mut started = Started::default();
        if !self.leads_in(term) {
            return started;
        }
        let now = self.context.clock.now();
        let reservation = reserve::write_ledger(&self.context.kube, plan).await;
        if !self.leads_in(term) {
            started.ledger = match reservation {
                Reservation::Stands(ledger) => Some(ledger),
                Reservation::Unneeded | Reservation::Refused => None,
            };
            return started;
        }
        self.set_finalizers(&plan.finalizers, term).await;
        if let Reservation::Stands(_) | Reservation::Unneeded = reservation {
            for launch in &plan.launches {
                if self.launch(launch, world, term) {
                    started.launched.insert(launch.claim.clone());
                }
            }
        }
        match reservation {
            Reservation::Stands(_) | Reservation::Unneeded => {
                self.adopt(&plan.adoptions, world, term).await;
            }
            // Since when an orphan has been waiting is in the Ledger, or it is not known.
            Reservation::Refused => {}
        }
        self.claims.retain(|name, claim| {
            matches!(claim, Claim::UnderWay(..)) || world.claims().contains_key(name)
        });
        self.clone_turns
            .retain(|name, (_, until)| now < *until && world.claims().contains_key(name));
        for waiting in [&mut self.waiting, &mut self.held_up] {
            waiting.retain(|name, _| world.claims().contains_key(name));
        }
        self.restored
            .retain(|name, _| world.claims().contains_key(name));
        let is_refused = matches!(reservation, Reservation::Refused);
        // Claims to adopt were written meanwhile.
        let advances = match self.leads_in(term) {
            true => plan.advances.as_slice(),
            false => &[],
        };
        for advance in advances {
            // What the breaker has not counted durably does not begin.
            if is_refused && plan.rests_on_ledger(advance, world.ledger()) {
                continue;
            }
            self.advance(
                &advance.claim,
                &advance.uid,
                &advance.verdict,
                News::of(plan, &advance.uid),
                world,
                (term, now),
            );
        }
        if let Reservation::Stands(ledger) = reservation {
            // Last: whoever waits for Proxmox here has begun everything else.
            if self.leads_in(term) {
                started.refused_anchors = self.anchor(&plan.anchors, term).await;
            }
            started.ledger = Some(ledger);
        }
        started
    }

    /// Puts finalizers on what machines need, and takes them off what none needs any more.
    async fn set_finalizers(&self, steps: &[FinalizerStep], term: &str) {
        for step in steps.iter().take_while(|_| self.leads_in(term)) {
            match finalizers::set(&self.context.kube, step).await {
                Ok(Cas::Written(()) | Cas::Conflict | Cas::Gone) => {}
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(object = ?step.object, error, "the finalizer was not changed; the next tick tries again");
                }
            }
        }
    }

    fn leads_in(&self, term: &str) -> bool {
        self.context.fence.leads_in(term)
    }

    /// Resolves when a drive has changed something, or a rest is over: a reason to tick. Safe to drop and to call again.
    pub async fn finished(&mut self) {
        loop {
            let wake_at = self.next_wake();
            tokio::select! {
                biased;
                Some(ended) = self.drives.join_next() => match ended {
                    Ok(ended) => {
                        if self.note_end(ended) {
                            return;
                        }
                    }
                    // Panics are caught in the drive; only an abort ends here, and that is our own.
                    Err(error) => tracing::error!(%error, "a drive was cut off"),
                },
                () = sleep_until(wake_at), if wake_at.is_some() => {
                    self.wake();
                    return;
                }
                else => std::future::pending::<()>().await,
            }
        }
    }

    /// Lets every drive come to a point where its intent says all, and waits for that.
    pub async fn stop(&mut self) {
        self.stopping.cancel();
        while self.drives.join_next().await.is_some() {}
    }

    /// Removals that have begun here. Their claims say so a moment later, and the watch of the claims later still; plans must not wait for that,
    /// or two of them spend one budget.
    pub fn removing(&self) -> BTreeMap<ClaimName, RemovalReason> {
        let begun = self.claims.iter().filter_map(|(name, claim)| {
            let verdict = match claim {
                Claim::UnderWay(verdict, _) => verdict,
                Claim::Resting(rest) if rest.removing => &rest.verdict,
                Claim::Resting(_) => return None,
            };
            match verdict {
                Verdict::Remove(reason) => Some((name.clone(), *reason)),
                Verdict::Keep | Verdict::GiveUp(_) | Verdict::Hold(_) => None,
            }
        });
        begun.collect()
    }

    /// False if there is nothing to begin with.
    fn launch(&mut self, launch: &Launch, world: &World, term: &str) -> bool {
        let Some(surroundings) = Surroundings::of_launch(&launch.spec, world, &self.context) else {
            tracing::warn!(claim = %launch.claim, "not launched: its pool, class or cluster is gone");
            return false;
        };
        let stopping = self.stopping.child_token();
        let under_way = Claim::UnderWay(Verdict::Keep, stopping.clone());
        if self
            .claims
            .insert(launch.claim.clone(), under_way)
            .is_some()
        {
            tracing::error!(claim = %launch.claim, "a claim of this name is being driven already");
            return false;
        }
        let decision_id = decision::launch(&launch.claim, &launch.spec);
        tracing::info!(claim = %launch.claim, hypervisor = %launch.spec.hypervisor, vmid = launch.spec.vmid.0, reason = %launch.reason, decision_id = decision_id.as_str(), "launching");
        let context = self.context.clone();
        let launch = launch.clone();
        let term: Arc<str> = term.into();
        self.spawn(launch.claim.clone(), Verdict::Keep, async move {
            match reserve::create_claim(&context, &launch.claim, &launch.spec, &term).await {
                Ok(claim) => {
                    Drive::new(context, claim, surroundings, Verdict::Keep, stopping, term)
                        .run()
                        .await
                }
                Err(pause) => Driven::idle(pause),
            }
        });
        true
    }

    fn advance(
        &mut self,
        name: &ClaimName,
        uid: &Uid,
        verdict: &Verdict,
        news: News,
        world: &World,
        (term, now): (&str, Timestamp),
    ) {
        let Some(claim) = world.claims().get(name).filter(|claim| claim.uid == *uid) else {
            return;
        };
        let has_news = !news.is_none();
        match self.claims.get(name) {
            Some(Claim::UnderWay(_, stopping)) => {
                // It may have been waiting for long for its turn to be cloned, and now shall be left alone, or made elsewhere. Nothing whatever may go on
                // that is held.
                let is_held = matches!(verdict, Verdict::Hold(_));
                if is_held || claim.status.phase == Phase::Pending && *verdict != Verdict::Keep {
                    stopping.cancel();
                }
                return;
            }
            Some(Claim::Resting(rest))
                if now < rest.earliest && rest.goes_on(verdict, has_news) =>
            {
                return;
            }
            Some(Claim::Resting(_)) | None => {}
        }
        let Some(mut surroundings) = Surroundings::of_claim(name, claim, world, &self.context)
        else {
            return;
        };
        let waiting = self.waiting.get(name);
        surroundings.hint.waits = waiting.map(|waiting| waiting.waits.clone());
        surroundings.hint.restored = self.restored.get(name).copied().unwrap_or_default();
        if !has_news
            && let Some(pause) =
                subject::without_looking(name, claim, verdict, &surroundings, world, now)
        {
            self.rest(name.clone(), Driven::idle(pause), verdict.clone(), now);
            return;
        }
        let (context, stopping) = (self.context.clone(), self.stopping.child_token());
        let under_way = Claim::UnderWay(verdict.clone(), stopping.clone());
        self.claims.insert(name.clone(), under_way);
        let (name, uid, verdict) = (name.clone(), uid.clone(), verdict.clone());
        let (turn, _) = self.clone_turns.remove(&name).unwrap_or_default();
        let term: Arc<str> = term.into();
        self.spawn(name.clone(), verdict.clone(), async move {
            match reserve::read_claim(&context, &name, &uid).await {
                Ok(claim) => {
                    let mut drive =
                        Drive::new(context, claim, surroundings, verdict, stopping, term);
                    drive.note(news);
                    drive.resume_clone_turn(turn);
                    drive.run().await
                }
                Err(pause) => Driven::idle_with(pause, turn),
            }
        });
    }

    /// Runs one drive, whose panic is its own.
    fn spawn(
        &mut self,
        claim: ClaimName,
        verdict: Verdict,
        drive: impl Future<Output = Driven> + Send + 'static,
    ) {
        let clock = self.context.clock;
        self.drives.spawn(async move {
            let driven = AssertUnwindSafe(drive)
                .catch_unwind()
                .await
                .unwrap_or_else(|_| {
                    tracing::error!(%claim, "a drive panicked; its claim rests");
                    Driven::idle(Pause::BackOff {
                        until: later(clock.now(), AFTER_PANIC),
                        why: "an error of kproxide".to_owned(),
                    })
                });
            Ended {
                claim,
                driven,
                verdict,
            }
        });
    }

    /// True if the loop should look.
    fn note_end(&mut self, ended: Ended) -> bool {
        let Ended {
            claim,
            mut driven,
            verdict,
        } = ended;
        let acted = driven.acted;
        if driven.restored != Restored::default() {
            self.restored.insert(claim.clone(), driven.restored);
        }
        let turn = std::mem::take(&mut driven.clone_turn);
        if turn.is_taken() {
            let until = later(self.context.clock.now(), CLONE_TURN_RESTS);
            self.clone_turns.insert(claim.clone(), (turn, until));
        }
        self.rest(claim, driven, verdict, self.context.clock.now());
        acted
    }

    fn rest(&mut self, claim: ClaimName, driven: Driven, verdict: Verdict, now: Timestamp) {
        let Driven {
            pause,
            removing,
            is_final,
            about_to,
            acted,
            ..
        } = driven;
        if let Pause::Wait { why, .. } | Pause::BackOff { why, .. } = &pause
            && is_final
        {
            let before = self.waiting.remove(&claim);
            let waiting = Waiting::after(before, about_to, why, now);
            self.waiting.insert(claim.clone(), waiting);
        }
        let before = self.held_up.remove(&claim).filter(|_| !acted);
        if let Pause::BackOff { why, .. } = &pause
            && !is_final
        {
            let waiting = Waiting::after(before, about_to, why, now);
            self.held_up.insert(claim.clone(), waiting);
        }
        let look_again = later(now, LOOK_AGAIN);
        let (earliest, wake_at) = match pause {
            Pause::Done => {
                self.claims.remove(&claim);
                return;
            }
            Pause::Wait { until, why } => {
                tracing::debug!(%claim, why, "waiting");
                (
                    until.map_or(look_again, |until| until.min(look_again)),
                    until,
                )
            }
            Pause::BackOff { until, why } => {
                tracing::debug!(%claim, why, %until, "backing off");
                (until, Some(until))
            }
        };
        self.claims.insert(
            claim,
            Claim::Resting(Rest {
                earliest,
                wake_at,
                verdict,
                removing,
            }),
        );
    }

    /// What keeps claims from going on, and since when. Removals past the point of no return say it in their condition `Stalled`.
    pub fn held_up(&self) -> BTreeMap<ClaimName, Waits> {
        let held_up = self.held_up.iter();
        held_up
            .map(|(name, waiting)| (name.clone(), waiting.waits.clone()))
            .collect()
    }

    fn next_wake(&self) -> Option<Instant> {
        let earliest = self.claims.values().filter_map(|claim| match claim {
            Claim::Resting(rest) => rest.wake_at,
            Claim::UnderWay(..) => None,
        });
        let wait = earliest.min()?.duration_since(self.context.clock.now());
        Some(Instant::now() + Duration::try_from(wait).unwrap_or_default())
    }

    /// Rests that are over wake the loop once.
    fn wake(&mut self) {
        let now = self.context.clock.now();
        for claim in self.claims.values_mut() {
            if let Claim::Resting(rest) = claim
                && rest.wake_at.is_some_and(|at| at <= now)
            {
                rest.wake_at = None;
                rest.earliest = now;
            }
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
