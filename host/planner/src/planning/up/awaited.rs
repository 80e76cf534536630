//! What should happen soon by itself: the scheduler binds pods, something takes taints off. Pods that the scheduler should have bound by now. When nothing happens for too long, something keeps them that the planner
//! does not see, and it no longer counts on it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{PoolFacts, Shape, Taint};
use crate::ids::NodeName;
use crate::kubernetes::taints::delays_service;
use crate::plan::report::SCHEDULER_PATIENCE;
use crate::plan::{AwaitedShape, Nominated, RefusedNode};
use crate::planning::Planning;
use crate::time::later;
use crate::world::{NodeView, PodView, World};

/// The scheduler binds a pod to the Node that it has nominated once the pods are gone that it preempted.
const NOMINATION_LASTS: SignedDuration = SignedDuration::from_mins(2);

/// A taint that something takes off by itself is expected to go within this time.
const TAINT_PASSES: SignedDuration = SignedDuration::from_mins(5);

/// For so long a Node is no place for pods that the scheduler has not put there.
const REFUSAL_LASTS: SignedDuration = SignedDuration::from_hours(1);

impl<'w> Planning<'w> {
    /// A pod with a nomination counts as placed on its Node. Those of a high priority come first, as in the scheduler.
    pub(in crate::planning) fn place_nominated(&mut self) {
        let world = self.tick.world;
        let pods = world.nominated();
        let mut pods: Vec<_> = pods
            .filter_map(|pod| Some((pod, pod.nominated()?)))
            .collect();
        pods.sort_by_key(|(pod, _)| (Reverse(pod.spec().priority), pod.key()));
        for (pod, node) in pods {
            let since = nominated_since(world, &pod, node).unwrap_or(self.tick.now);
            self.awaited.nominated.push(Nominated {
                pod: pod.key(),
                uid: pod.uid().clone(),
                node: node.clone(),
                since,
            });
            let mut needs = self.needs.iter_mut();
            let need = needs.find(|need| {
                need.shape == pod.shape_id() && need.unserved.is_none() && need.left > 0
            });
            let Some(need) = need else { continue };
            if !self.tick.reached(later(since, NOMINATION_LASTS))
                && self.snapshot.put_nominated(world, &pod, node)
            {
                need.left -= 1;
                need.on_nodes.get_or_insert_with(|| (node.clone(), 0)).1 += 1;
            }
        }
    }

    /// The taints of a Node in service once those have gone that pass, if they are expected to.
    pub(in crate::planning) fn lasting_taints(
        &mut self,
        node: &NodeView<'w>,
        pool: Option<&PoolFacts>,
    ) -> Option<Vec<Taint>> {
        let startup = pool.map_or(&[][..], |pool| &pool.startup_taints);
        let passes = |taint: &Taint| delays_service(startup, taint);
        if !node.facts.taints.iter().any(passes) {
            return None;
        }
        let mut known = self.tick.world.awaited().passing.iter();
        let known = known.find(|(name, _)| name == node.name());
        let since = known.map_or(self.tick.now, |(_, since)| *since);
        self.awaited.passing.push((node.name().clone(), since));
        if self.tick.reached(later(since, TAINT_PASSES)) {
            return None;
        }
        let lasting = node.facts.taints.iter().filter(|taint| !passes(taint));
        Some(lasting.cloned().collect())
    }

    /// Where pods are not expected any more.
    pub(in crate::planning) fn recall_refusals(&mut self) {
        let awaited = by_shape(self.tick.world);
        for need in &mut self.needs {
            let known = awaited.get(&need.content).map(|it| &it.refused);
            for refused in known.into_iter().flatten() {
                if !self.tick.reached(later(refused.since, REFUSAL_LASTS)) {
                    need.refused.push(refused.clone());
                }
            }
        }
    }

    /// Since when pods are expected on which Node. Where that is too long, the next plan expects them there no more.
    pub(in crate::planning) fn review_awaited(&mut self) {
        let awaited = by_shape(self.tick.world);
        for need in &mut self.needs {
            let mut fits = None;
            if let Some((node, _)) = &need.on_nodes {
                let known = awaited.get(&need.content).and_then(|it| it.fits.as_ref());
                let known = known.filter(|(known, _)| known == node);
                let since = known.map_or(self.tick.now, |(_, since)| *since);
                // While pods of this shape come and are bound, none of them waits for long.
                let waiting = need.pods.iter().filter_map(|pod| pod.unschedulable_since());
                let since = waiting.min().map_or(since, |first| first.max(since));
                need.is_refused_now = self.tick.reached(later(since, SCHEDULER_PATIENCE));
                match need.is_refused_now {
                    true => need.refused.push(RefusedNode {
                        node: node.clone(),
                        since: self.tick.now,
                    }),
                    false => fits = Some((node.clone(), since)),
                }
            }
            if need.is_refused_now {
                let next_tick = later(self.tick.now, SignedDuration::from_secs(1));
                self.tick.reached(next_tick);
            }
            if fits.is_some() || !need.refused.is_empty() {
                self.awaited.shapes.push(AwaitedShape {
                    shape: need.content.clone(),
                    fits,
                    refused: need.refused.clone(),
                });
            }
        }
    }
}

fn by_shape(world: &World) -> BTreeMap<&Shape, &AwaitedShape> {
    let awaited = world.awaited().shapes.iter();
    awaited.map(|it| (&it.shape, it)).collect()
}

fn nominated_since(world: &World, pod: &PodView<'_>, node: &NodeName) -> Option<Timestamp> {
    let mut known = world.awaited().nominated.iter();
    let key = pod.key();
    let known = known.find(|it| it.pod == key && it.uid == *pod.uid() && it.node == *node);
    Some(known?.since)
}
