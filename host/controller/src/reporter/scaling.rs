//! Pods that trigger a launch or get none, and where machines are placed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::ids::{ClaimName, Digest, PodKey};
use kproxide_planner::plan::report::{PendingOutcome, PendingShape, PlacementReport};
use kproxide_planner::world::World;

use super::{PODS_TOLD_MAX, REPEAT, Reporter};
use kproxide_kube::events::{About, Event};

impl Reporter {
    pub(super) fn pending(
        &mut self,
        shape: &PendingShape,
        launched: &BTreeMap<&ClaimName, Digest>,
        world: &World,
        now: Timestamp,
    ) {
        let mut decision = None;
        let (reason, message) = match &shape.outcome {
            // The scheduler or a coming machine will help. This was reported before.
            PendingOutcome::FitsNode(_) | PendingOutcome::FitsClaim(_) => return,
            // The plan was not carried out. The next one will be reported.
            PendingOutcome::Launching(claims)
                if self.kube.is_some()
                    && !claims.iter().any(|claim| launched.contains_key(claim)) =>
            {
                return;
            }
            PendingOutcome::Launching(claims) => {
                let ids: Vec<_> = claims.iter().filter_map(|it| launched.get(it)).collect();
                let ids: Vec<&str> = ids.into_iter().map(Digest::as_str).collect();
                decision = (!ids.is_empty()).then(|| Digest::from(ids.join(",")));
                let names: Vec<_> = claims.iter().map(|claim| claim.to_string()).collect();
                (
                    "TriggeredScaleUp",
                    format!("pod triggered scale-up: {}", names.join(", ")),
                )
            }
            PendingOutcome::Unhelped(reasons) => {
                let reasons: Vec<_> = reasons
                    .iter()
                    .map(|(pool, why)| format!("pool {pool}: {why}"))
                    .collect();
                (
                    "NotTriggerScaleUp",
                    format!("pod didn't trigger scale-up: {}", reasons.join("; ")),
                )
            }
            PendingOutcome::Refused(_)
            | PendingOutcome::NotSupported(_)
            | PendingOutcome::TooMany(_)
            | PendingOutcome::LaterTick
            | PendingOutcome::Expendable { .. }
            | PendingOutcome::OtherScheduler { .. }
            | PendingOutcome::NoPool => (
                "NotTriggerScaleUp",
                format!("pod didn't trigger scale-up: {}", shape.outcome),
            ),
        };
        // Such a pod may well be none of our business: said once, as long as it is remembered.
        let is_of_others = matches!(shape.outcome, PendingOutcome::OtherScheduler { .. });
        let repeats = match is_of_others {
            true => SignedDuration::MAX,
            false => REPEAT,
        };
        let subject = (About::shape(&shape.example), reason);
        if self.said.is_news(subject, &message, repeats, now) {
            let decision_id = decision.as_ref().map(Digest::as_str);
            tracing::info!(pod = %shape.example, pods = shape.count, reason, text = message, decision_id, "pending");
        }
        for key in shape.pods.iter().take(PODS_TOLD_MAX) {
            let Some(about) = pod(key, world) else {
                continue;
            };
            let subject = (about.clone(), reason);
            if self.said.is_news(subject, &message, repeats, now) {
                let event = Event::normal(about, reason, message.clone());
                self.events.say(event.decided(decision.clone()));
            }
        }
    }

    pub(super) fn placement(
        &mut self,
        placement: &PlacementReport,
        launched: &BTreeMap<&ClaimName, Digest>,
        world: &World,
        now: Timestamp,
    ) {
        let PlacementReport {
            claim,
            pool,
            hypervisor,
            score,
            reason,
            fallback,
            rejected,
            pods: _,
        } = placement;
        let decision = launched.get(claim).cloned();
        if decision.is_some() {
            self.metrics
                .launches
                .with_label_values(&[pool.as_str(), hypervisor.cluster.as_str(), &hypervisor.name])
                .inc();
        } else if self.kube.is_some() {
            return;
        }
        tracing::info!(%claim, %pool, %hypervisor, score, reason, decision_id = decision.as_ref().map(Digest::as_str), "placed");
        let Some(facts) = world.pools().get(pool) else {
            return;
        };
        let about = About::pool(pool, &facts.existence.uid);
        if let Some(fallback) = fallback
            && self.news(&about, "PolicyFallback", fallback, now)
        {
            let message = format!("the built-in policy spread chose instead: {fallback}");
            tracing::warn!(%pool, text = message, "policy fallback");
            self.events
                .say(Event::warning(about.clone(), "PolicyFallback", message));
        }
        let refused = rejected.iter();
        let refused = refused.map(|(other, why)| format!("; not on {other}: {why}"));
        let refused: String = refused.collect();
        let message = format!("{claim} on {hypervisor}: {reason}{refused}");
        let event = Event::normal(about, "ScaledUpGroup", message);
        self.events.say(event.decided(decision));
    }
}

fn pod(key: &PodKey, world: &World) -> Option<About> {
    Some(About::pod(key, world.pod(key)?.uid()))
}
