//! Pods that the scheduler should have bound by now. When nothing happens for too long, something keeps them that the planner
//! does not see, and it no longer counts on it.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use super::Planning;
use crate::ids::NodeName;
use crate::plan::Nominated;
use crate::time::later;
use crate::world::{PodView, World};

/// The scheduler binds a pod to the Node that it has nominated once the pods are gone that it preempted.
const NOMINATION_LASTS: SignedDuration = SignedDuration::from_mins(2);

impl<'w> Planning<'w> {
    /// A pod with a nomination counts as placed on its Node. Those of a high priority come first, as in the scheduler.
    pub(super) fn place_nominated(&mut self) {
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
            let need = needs.find(|need| need.shape == pod.shape_id() && need.unserved.is_none());
            let Some(need) = need else { continue };
            if !self.tick.reached(later(since, NOMINATION_LASTS))
                && self.snapshot.put_nominated(world, &pod, node)
            {
                need.left -= 1;
                need.on_nodes.get_or_insert_with(|| (node.clone(), 0)).1 += 1;
            }
        }
    }
}

fn nominated_since(world: &World, pod: &PodView<'_>, node: &NodeName) -> Option<Timestamp> {
    let mut known = world.awaited().nominated.iter();
    let key = pod.key();
    let known = known.find(|it| it.pod == key && it.uid == *pod.uid() && it.node == *node);
    Some(known?.since)
}
