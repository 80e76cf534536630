//! Leader election by a Lease, by client-go's rules.
//!
//! - Time is measured here, never compared across machines: a Lease is stale when *we* have not seen it change for its duration. Its wall-clock
//!   fields are for people.
//! - Every write is a replacement with the resource version that was read, so one of two contenders loses.
//! - A leader stops *before* others may take over: its [`Fence`] ends a renew deadline after the last successful renewal began, however long that
//!   request took.
//!
//! Two leaders must be harmless all the same: every transition elsewhere is a compare-and-set.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::error::Error;
use kproxide_common::clock::Clock;

/// How the Lease is held. `retry` < `renew_deadline` < `duration`.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    /// Unique among replicas, over their restarts too.
    pub identity: String,
    /// Another replica may take the Lease after this long without a renewal.
    pub duration: Duration,
    /// This process stops leading after this long without a successful renewal.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry: Duration,
}

/// Whether we lead, and until when at least.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// `None`: another replica leads, or none does.
    pub until: Option<Instant>,
    /// Of our present or last term: the Lease's transitions and a random part.
    pub epoch: Arc<str>,
}

/// A cheap look at who leads. Effects are begun only while [`Fence::leads`].
#[derive(Clone, Debug)]
pub struct Fence(watch::Receiver<Leadership>);

impl Fence {
    /// One that always leads: for a dry run, which takes no Lease.
    pub fn open(epoch: &str) -> Self {
        let far = Instant::now() + Duration::from_secs(100 * 365 * 24 * 60 * 60);
        Self(
            watch::channel(Leadership {
                until: Some(far),
                epoch: epoch.into(),
            })
            .1,
        )
    }

    /// We lead now.
    pub fn leads(&self) -> bool {
        self.is_leader_until().is_some()
    }

    /// The moment at which we stop leading unless the Lease is renewed; `None` if we do not lead now.
    pub fn is_leader_until(&self) -> Option<Instant> {
        self.0
            .borrow()
            .until
            .filter(|until| Instant::now() < *until)
    }

    /// Written into every intent: whose it is.
    pub fn epoch(&self) -> Arc<str> {
        self.0.borrow().epoch.clone()
    }

    /// Waits until leadership begins, ends or is prolonged. Never returns if the elector is gone and nothing can change any more.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What to do about the Lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is none, it was released, or its holder has let it lapse: write it as ours, with one transition more.
    Acquire,
    /// It is ours: write it again.
    Renew,
    /// Another replica holds it at least until then.
    Wait(Instant),
    /// This process led and may no longer: the deadline has passed, or another replica has the Lease.
    StepDown,
}

/// The Lease as it was last seen to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub spec: LeaseSpec,
    /// When this content was first seen, by our own clock.
    pub at: Instant,
}

/// The rule. `leading_until` is set while we lead.
pub fn next(seen: Option<&Seen>, me: &str, leading_until: Option<Instant>, now: Instant) -> Step {
    let holder = seen
        .and_then(|seen| seen.spec.holder_identity.as_deref())
        .unwrap_or_default();
    if let Some(until) = leading_until {
        return if now < until && holder == me {
            Step::Renew
        } else {
            Step::StepDown
        };
    }
    let Some(seen) = seen else {
        return Step::Acquire;
    };
    // It is ours from before a restart, or was released. So no other process can believe that it leads.
    if holder.is_empty() || holder == me {
        return Step::Acquire;
    }
    let duration = Duration::from_secs(
        seen.spec
            .lease_duration_seconds
            .unwrap_or(0)
            .max(0)
            .unsigned_abs()
            .into(),
    );
    let free_at = seen.at + duration;
    if now < free_at {
        Step::Wait(free_at)
    } else {
        Step::Acquire
    }
}

/// Keeps trying to hold the Lease; tells of it through the [`Fence`]. Ends when stopped, after releasing a Lease that is ours.
///
/// From `resign` on this process does not lead any more, and does not renew. The Lease is still released by `stop`, once running steps have come to a
/// safe point; if that takes longer than the Lease lasts, it lapses.
///
/// `random` is a text that no other run of this process has: it makes epochs unique.
pub fn elector(
    client: Client,
    settings: LeaseSettings,
    clock: Clock,
    random: String,
    resign: CancellationToken,
    stop: CancellationToken,
) -> (Fence, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = watch::channel(Leadership::default());
    let elector = Elector {
        client,
        settings,
        clock,
        random,
        fence: sender,
        lease: None,
        seen: None,
        until: None,
    };
    (Fence(receiver), elector.run(resign, stop))
}

struct Elector {
    client: Client,
    settings: LeaseSettings,
    clock: Clock,
    random: String,
    fence: watch::Sender<Leadership>,
    /// As last read or written; the next write replaces it.
    lease: Option<Lease>,
    seen: Option<Seen>,
    until: Option<Instant>,
}

impl Elector {
    async fn run(mut self, resign: CancellationToken, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = resign.cancelled() => {}
            () = self.hold() => {}
        }
        self.fence.send_modify(|leadership| leadership.until = None);
        if timeout(self.settings.duration, stop.cancelled())
            .await
            .is_ok()
        {
            self.release().await;
        }
    }

    /// For ever.
    async fn hold(&mut self) {
        loop {
            let pause = self.turn().await;
            tokio::time::sleep_until(pause).await;
        }
    }

    /// One try; returns when the next one is due.
    async fn turn(&mut self) -> Instant {
        let now = Instant::now();
        let retry_at = now + self.settings.retry;
        // A leader's try ends with its term: what comes later is too late anyway.
        let latest = self.until.unwrap_or(now + self.settings.renew_deadline);
        let tried = tokio::time::timeout_at(latest, self.attempt(now)).await;
        match tried {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // What stands there is unknown now.
                self.lease = None;
                tracing::warn!(lease = %self.settings.name, error = &error as &dyn std::error::Error, "lease not renewed");
            }
            Err(_) => {
                self.lease = None;
                tracing::warn!(lease = %self.settings.name, "lease not renewed in time");
            }
        }
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.step_down("not renewed in time");
            return Instant::now() + self.settings.retry;
        }
        // A leader must not sleep past the end of its term.
        self.until.map_or(retry_at, |until| retry_at.min(until))
    }

    /// Reads if necessary, decides, writes.
    async fn attempt(&mut self, began: Instant) -> Result<(), Error> {
        // While we lead, what we wrote last stands there unless the replacement conflicts.
        if self.lease.is_none() || self.until.is_none() {
            self.read().await?;
        }
        match next(
            self.seen.as_ref(),
            &self.settings.identity,
            self.until,
            Instant::now(),
        ) {
            // Looked at again on every try: only so is it known when it last changed.
            Step::Wait(_) => Ok(()),
            Step::StepDown => {
                self.step_down("somebody else holds it");
                Ok(())
            }
            step @ (Step::Acquire | Step::Renew) => {
                let spec = self.spec(step == Step::Renew);
                self.write(spec).await?;
                let until = began + self.settings.renew_deadline;
                self.until = Some(until);
                let epoch = match step {
                    Step::Renew => self.fence.borrow().epoch.clone(),
                    Step::Acquire | Step::Wait(_) | Step::StepDown => {
                        let transitions = self
                            .seen
                            .as_ref()
                            .and_then(|seen| seen.spec.lease_transitions)
                            .unwrap_or(0);
                        tracing::info!(lease = %self.settings.name, identity = %self.settings.identity, transitions, "leading");
                        format!("{transitions}-{}", self.random).into()
                    }
                };
                self.fence.send_replace(Leadership {
                    until: Some(until),
                    epoch,
                });
                Ok(())
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let found = self
            .client
            .namespaced::<Lease>(&self.settings.namespace)
            .get_opt(&self.settings.name)
            .await
            .map_err(Error::of("get", "leases", &self.settings.name))?;
        self.observe(found);
        Ok(())
    }

    fn observe(&mut self, lease: Option<Lease>) {
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone());
        match spec {
            None => self.seen = None,
            Some(spec) if self.seen.as_ref().is_none_or(|seen| seen.spec != spec) => {
                self.seen = Some(Seen {
                    spec,
                    at: Instant::now(),
                });
            }
            Some(_) => {}
        }
        self.lease = lease;
    }

    fn spec(&self, renews: bool) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let before = self.seen.as_ref().map(|seen| &seen.spec);
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.settings.duration.as_secs())
                    .unwrap_or(i32::MAX)
                    .max(1),
            ),
            acquire_time: if renews {
                before.and_then(|spec| spec.acquire_time.clone())
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            // The first holder begins term 0; each later term counts one more, our own of before a restart included.
            lease_transitions: Some(if renews || before.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }
    }

    async fn write(&mut self, spec: LeaseSpec) -> Result<(), Error> {
        let api = self.client.namespaced::<Lease>(&self.settings.namespace);
        let name = &self.settings.name;
        let written = match &self.lease {
            Some(lease) => {
                let lease = Lease {
                    spec: Some(spec),
                    ..lease.clone()
                };
                api.replace(name, &PostParams::default(), &lease)
                    .await
                    .map_err(Error::of("update", "leases", name))?
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                };
                let lease = Lease {
                    metadata,
                    spec: Some(spec),
                };
                api.create(&PostParams::default(), &lease)
                    .await
                    .map_err(Error::of("create", "leases", name))?
            }
        };
        self.observe(Some(written));
        Ok(())
    }

    fn step_down(&mut self, why: &str) {
        if self.until.take().is_some() {
            tracing::warn!(lease = %self.settings.name, identity = %self.settings.identity, why, "no longer leading");
            self.fence.send_modify(|leadership| leadership.until = None);
        }
    }

    /// Lets others in at once. Best effort: a Lease that is not released lapses.
    async fn release(&mut self) {
        if self.until.is_none() || self.lease.is_none() {
            return;
        }
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            ..self.spec(true)
        };
        match timeout(self.settings.renew_deadline, self.write(spec)).await {
            Ok(Ok(())) => tracing::info!(lease = %self.settings.name, "lease released"),
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.settings.name, error = &error as &dyn std::error::Error, "lease not released");
            }
            Err(_) => tracing::warn!(lease = %self.settings.name, "lease not released in time"),
        }
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;

#[cfg(any(test, feature = "fuzz"))]
mod fixtures;

#[cfg(test)]
mod tests;
