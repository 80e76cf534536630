//! One claim's drive: look, decide, perform, until it waits.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kproxide_planner::claim::{
    self, Attempted, Change, Effect, LABELS_RESTORED, Op, Outcome, Phase, StatusChange, Step,
    Subject, Then, looks, next,
};
use kproxide_planner::facts::ClaimFacts;
use kproxide_planner::ids::{ClaimName, StorageName, Uid};
use kproxide_planner::plan::{Plan, Preference, Removable, Standing, Verdict};
use kproxide_planner::time::later;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::clone_turn::CloneTurn;
use super::outcome::{self, Stopped};
use super::pause::{Driven, Pause};
use super::reserve::read_claim;
use super::status::Recorded;
use super::subject::Surroundings;
use kproxide_kube::claims::StoredClaim;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::error::Meaning;
use kproxide_pve::task::{self, Upid};

/// Steps of one drive, at most. A whole life has fewer, so only a decision that goes in circles reaches this.
const STEPS_MAX: u32 = 64;

/// A task is followed for this long before the claim is looked at again.
const FOLLOWED_FOR: Duration = Duration::from_secs(30);

/// The pause after a task's status could not be read.
const UNFOLLOWED: SignedDuration = SignedDuration::from_secs(5);

/// The pause after a failed attempt whose outcome the planner was not asked about.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(5);

/// Why a cancelled drive rests.
const RECALLED: &str = "kproxide is stopping, or a later plan wants something else";

/// What the plan has to say of one claim, beside its verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct News {
    /// What the condition `Unneeded` has to say from now on, if it changes.
    standing: Option<Standing>,
    /// The same of the condition `Removable`.
    removable: Option<Removable>,
    /// What has to change about the taint of a Node that is to go next.
    preference: Option<Preference>,
}

impl News {
    pub(super) fn of(plan: &Plan, uid: &Uid) -> Self {
        let unneeded = plan.unneeded.iter().find(|it| it.uid == *uid);
        Self {
            standing: unneeded.map(|it| it.standing.clone()),
            removable: plan.removable.iter().find(|it| it.uid == *uid).cloned(),
            preference: plan.preferences.iter().find(|it| it.uid == *uid).cloned(),
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

pub(super) struct Drive {
    pub(super) context: Arc<Context>,
    pub(super) claim: StoredClaim,
    pub(super) surroundings: Surroundings,
    pub(super) clone_turn: CloneTurn,
    verdict: Verdict,
    /// The term as leader in which the plan was made. The verdict, and the cold start that had to pass, belong to that
    /// term.
    epoch: Arc<str>,
    stopping: CancellationToken,
    news: News,
    /// Proxmox has begun the clone, and the claim does not say so yet.
    cloning: bool,
    acted: bool,
}

impl Drive {
    pub(super) fn new(
        context: Arc<Context>,
        claim: StoredClaim,
        surroundings: Surroundings,
        verdict: Verdict,
        stopping: CancellationToken,
        epoch: Arc<str>,
    ) -> Self {
        Self {
            epoch,
            context,
            claim,
            surroundings,
            clone_turn: CloneTurn::default(),
            verdict,
            stopping,
            news: News::default(),
            cloning: false,
            acted: false,
        }
    }

    pub(super) fn note(&mut self, news: News) {
        self.news = news;
    }

    /// Takes over the turn that an earlier drive of this claim has kept.
    pub(super) fn resume_clone_turn(&mut self, turn: CloneTurn) {
        self.clone_turn = turn;
        self.give_back_clone_turn();
    }

    pub(super) async fn run(mut self) -> Driven {
        let pause = self.steps().await;
        self.give_back_clone_turn();
        // If the UPID of a clone is unknown, nobody can tell whether the clone still runs. So it does not keep its
        // turn.
        let goes_on = self.cloning || self.facts().status.upid.is_some();
        let status = &self.facts().status;
        Driven {
            pause,
            acted: self.acted,
            removing: status.phase > Phase::Initialized,
            is_final: status.phase == Phase::Terminating,
            about_to: status.intent.as_ref().map(|intent| intent.op),
            restored: self.surroundings.hint.restored,
            clone_turn: if goes_on {
                self.clone_turn
            } else {
                CloneTurn::None
            },
        }
    }

    async fn steps(&mut self) -> Pause {
        let News {
            standing,
            removable,
            preference,
        } = std::mem::take(&mut self.news);
        let now = self.context.clock.now();
        let standing = standing.map(|it| claim::unneeded(&it, now));
        let removable = removable.map(|it| claim::removable(&it, now));
        for change in standing.into_iter().chain(removable) {
            // While the watch lags, the plan does not see the last record and asks for it again. Do not write it twice.
            if !change.is_in(&self.facts().status)
                && let Recorded::Ended(pause) = self.record(&change).await
            {
                return pause;
            }
        }
        if let Some(preference) = preference {
            self.prefer(&preference).await;
        }
        let mut last: Option<Attempted> = None;
        let mut steps = 0;
        while steps < STEPS_MAX {
            if self.stopping.is_cancelled() && !last.as_ref().is_some_and(is_unrecorded) {
                return self.recalled(last.as_ref());
            }
            let wanted = looks(&self.subject(), last.as_ref());
            let observed = self.observe(&wanted, last.take()).await;
            let now = self.context.clock.now();
            let step = match Pause::of(next(&self.subject(), &observed, now)) {
                Ok(pause) => return pause,
                Err(step) => step,
            };
            // A newer plan has overtaken this decision, so its effect is not performed. A record may still be written:
            // the outcome of a clone must not be forgotten, and otherwise plans could overtake every record. But a
            // record that leads to a clone is left to the next drive, because a clone cannot be undone.
            let is_told =
                matches!(&step, Step::Record { change, then } if !is_clone_next(change, then));
            if self.stopping.is_cancelled() && !is_told {
                return self.recalled(observed.last.as_ref());
            }
            tracing::debug!(claim = %self.name(), ?step, "step");
            if let Step::Follow { upid, op } = &step {
                match self.follow(upid, *op).await {
                    Ok(outcome) => last = Some(self.attempted(Some(*op), outcome)),
                    Err(pause) => return pause,
                }
                continue;
            }
            steps += 1;
            if let Step::Record { change, then } = &step {
                // The turn may take minutes to come. The launch's deadline counts only from the record after it.
                if is_clone_next(change, then) && self.clone_turn.is_awaited() {
                    if !self.take_clone_turn().await {
                        return self.wait(RECALLED);
                    }
                    continue;
                }
                let recorded = self.record(change).await;
                // From now on the claim says that the clone runs.
                self.cloning &= !matches!(recorded, Recorded::Written);
                let is_said = (change.note.as_ref()).is_some_and(|it| it.reason == LABELS_RESTORED);
                if is_said && matches!(recorded, Recorded::Written) {
                    self.surroundings.hint.restored.said = Some(self.context.clock.now());
                }
                match (recorded, then) {
                    (Recorded::Written, Then::Continue) => {
                        self.give_back_clone_turn();
                        last = Some(self.attempted(None, Outcome::Done));
                    }
                    // Another writer changed the claim: decide anew. If only this drive knows the outcome, keep it for
                    // that decision.
                    (Recorded::Changed, Then::Continue) => {
                        last = observed.last.filter(is_unrecorded);
                    }
                    // Whether it was written or not, what led to this record is not repeated before its pause is over.
                    (Recorded::Written | Recorded::Changed, Then::BackOff { until, why }) => {
                        return Pause::BackOff {
                            until: *until,
                            why: why.clone(),
                        };
                    }
                    (Recorded::Ended(pause), then) => return pause.no_shorter_than(then),
                }
                continue;
            }
            let Step::Do(effect) = step else {
                continue;
            };
            // Check as late as possible, because observing may have taken a while.
            if !self.leads() {
                return self.wait("somebody else leads, or did in between");
            }
            self.acted = true;
            let op = effect.op();
            let outcome = self.perform(effect).await;
            if op == Op::PatchNode {
                self.surroundings.hint.restored.written = Some(self.context.clock.now());
            }
            self.cloning |= op == Op::Clone && matches!(outcome, Outcome::Running(_));
            if !matches!(outcome, Outcome::Done | Outcome::Running(_)) {
                tracing::info!(claim = %self.name(), did = ?op, %outcome, "step ended");
            }
            if op.changes_claim() {
                match read_claim(&self.context, &self.claim.name, &self.claim.facts.uid).await {
                    Ok(claim) => self.claim = claim,
                    Err(pause) => return pause,
                }
            }
            last = Some(self.attempted(Some(op), outcome));
        }
        tracing::error!(claim = %self.name(), "a drive took too many steps; it goes on with the next tick");
        self.wait("too many steps at once")
    }

    /// Notes the attempt, and counts it if it has ended.
    fn attempted(&self, op: Option<Op>, outcome: Outcome) -> Attempted {
        let result = match &outcome {
            Outcome::Running(_) => None,
            Outcome::Done | Outcome::Warnings(_) | Outcome::Evicted { .. } => Some("done"),
            Outcome::Failed { .. } => Some("failed"),
            Outcome::Unknown(_) => Some("unknown"),
        };
        if let Some(result) = result {
            let step = op.map_or_else(|| "Record".to_owned(), |op| format!("{op:?}"));
            let steps = &self.context.metrics.steps;
            steps.with_label_values(&[step.as_str(), result]).inc();
        }
        Attempted { op, outcome }
    }

    async fn perform(&mut self, effect: Effect) -> Outcome {
        let op = effect.op();
        let performed = match effect {
            Effect::Clone => self.clone_machine().await,
            Effect::Configure(proven) => self.configure(&proven).await,
            Effect::Resize(proven, bytes) => self.resize(&proven, bytes).await,
            Effect::Start(proven) => self.start(&proven).await,
            Effect::Join(proven) => self.join(&proven).await,
            Effect::PatchNode(node, patch) => self.patch_node(&node, &patch).await,
            Effect::Cordon(node) => self.cordon(&node).await,
            Effect::Uncordon(node) => self.uncordon(&node).await,
            Effect::OutOfService(node) => self.out_of_service(&node).await,
            Effect::Evict(pods) => self.evict(&pods).await,
            Effect::DeleteClaim => self.delete_claim().await,
            Effect::Tombstone(proven) => self.tombstone(&proven).await,
            Effect::Shutdown(proven, grace) => self.shutdown(&proven, grace).await,
            Effect::Stop(proven) => self.stop(&proven).await,
            Effect::Destroy(proven) => self.destroy(&proven).await,
            Effect::DeleteNode(node) => self.delete_node(&node).await,
            Effect::Quarantine { until, failure } => self.quarantine(until, failure).await,
            Effect::RemoveFinalizer => self.remove_finalizer().await,
        };
        let mut error = match performed {
            Ok(outcome) | Err(Stopped::With(outcome)) => return outcome,
            Err(Stopped::ByProxmox(error)) => error,
        };
        self.note_cloud_init(&mut error.meaning);
        let mut outcome = outcome::of_proxmox(&error, self.facts().spec.vmid);
        if let (Outcome::Failed { text, .. }, Some(client)) = (&mut outcome, self.proxmox()) {
            let scope = match op == Op::Clone {
                true => self.clone_scope(),
                false => self.scope(),
            };
            *text = client.explained(&error, &scope).await;
        }
        outcome
    }

    /// The task's outcome. Or the drive ends: it was cancelled, or the task cannot be followed. The next drive sees
    /// what became of the VM.
    async fn follow(&mut self, upid: &str, op: Op) -> Result<Outcome, Pause> {
        let Ok(parsed) = upid.parse::<Upid>() else {
            return Ok(Outcome::Unknown(format!("{upid} is not a task")));
        };
        let unfollowed = |why: String| Pause::BackOff {
            until: later(self.context.clock.now(), UNFOLLOWED),
            why: format!("task {upid} could not be followed: {why}"),
        };
        let Some(client) = self.proxmox() else {
            return Err(unfollowed("no usable connection to its cluster".to_owned()));
        };
        let followed = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return Err(self.wait(RECALLED)),
            followed = client.follow(&parsed, FOLLOWED_FOR) => followed,
        };
        match followed {
            Ok(outcome) => {
                if op == Op::Clone {
                    self.note_lock(&outcome);
                }
                Ok(self.of_task(upid, outcome))
            }
            Err(error) => Err(unfollowed(error.chain())),
        }
    }

    pub(super) fn of_task(&self, upid: &str, mut ended: task::Outcome) -> Outcome {
        if let task::Outcome::Failed { meaning, .. } = &mut ended {
            self.note_cloud_init(meaning);
        }
        outcome::of_task(upid, ended, self.storage(), self.facts().spec.vmid)
    }

    /// Proxmox: a full clone's goes to the storage that was asked for, any other to that of the template's.
    fn note_cloud_init(&self, meaning: &mut Meaning) {
        let clone = self.facts().spec.clone.as_ref();
        let asked = clone.filter(|clone| clone.full);
        let asked = asked.and_then(|clone| clone.storage.as_ref());
        if let Some(storage) = asked.or(self.surroundings.cloud_init.as_ref()) {
            meaning.note_cloud_init(storage.as_str());
        }
    }

    /// Waits for the right to clone. false: the drive was cancelled.
    async fn take_clone_turn(&mut self) -> bool {
        let stopping = self.stopping.clone();
        let turn = tokio::select! {
            biased;
            () = stopping.cancelled() => return false,
            turn = self.clone_turn() => turn,
        };
        self.clone_turn = turn;
        true
    }

    /// Gives the turn to others once the claim is past its clone or closed.
    fn give_back_clone_turn(&mut self) {
        let status = &self.facts().status;
        let intent = status.intent.as_ref();
        let cloning =
            status.phase == Phase::Launching && intent.is_some_and(|intent| intent.op == Op::Clone);
        if !cloning {
            self.clone_turn = CloneTurn::default();
        }
    }

    /// This process leads, in the same term as when the plan was made.
    pub(super) fn leads(&self) -> bool {
        self.context.fence.leads_in(&self.epoch)
    }

    /// The drive was cancelled after that attempt. If it failed, it rests, so that the next plan does not try the same
    /// again at once.
    fn recalled(&self, last: Option<&Attempted>) -> Pause {
        let failed = last.is_some_and(|last| match &last.outcome {
            Outcome::Done | Outcome::Warnings(_) | Outcome::Running(_) => false,
            Outcome::Evicted { refused } => !refused.is_empty(),
            Outcome::Failed { .. } | Outcome::Unknown(_) => true,
        });
        if !failed {
            return self.wait(RECALLED);
        }
        Pause::BackOff {
            until: later(self.context.clock.now(), AFTER_FAILURE),
            why: RECALLED.to_owned(),
        }
    }

    fn wait(&self, why: &str) -> Pause {
        Pause::Wait {
            until: None,
            why: why.to_owned(),
        }
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            name: &self.claim.name,
            claim: &self.claim.facts,
            verdict: &self.verdict,
            settings: &self.surroundings.settings,
            pool: &self.surroundings.pool,
            hint: &self.surroundings.hint,
        }
    }

    pub(super) fn name(&self) -> &ClaimName {
        &self.claim.name
    }

    pub(super) fn facts(&self) -> &ClaimFacts {
        &self.claim.facts
    }

    /// The storage for the machine's disks, if the plan chose one.
    pub(super) fn storage(&self) -> Option<&StorageName> {
        self.facts().spec.storage.as_ref()
    }

    pub(super) fn acted(&mut self) {
        self.acted = true;
    }

    /// As [`Context::client_in`], in the leadership of the drive's plan.
    pub(super) fn proxmox(&self) -> Option<PveClient> {
        self.context
            .client_in(&self.facts().spec.cluster, self.epoch.clone())
    }
}

/// A task has begun, and only this process knows its UPID. It must be written down before anything else: otherwise no
/// later leader would know that a clone still runs, or what a destroy warned of.
fn is_unrecorded(last: &Attempted) -> bool {
    last.op.is_some_and(Op::is_uncertain_after_loss) && matches!(last.outcome, Outcome::Running(_))
}

/// The clone is asked for directly after this record.
fn is_clone_next(change: &StatusChange, then: &Then) -> bool {
    let to_clone = match &change.intent {
        Change::Set((op, _)) => *op == Op::Clone,
        Change::Keep | Change::Clear => false,
    };
    to_clone && *then == Then::Continue
}
