//! Topology spread, as far as it is evaluated: where no other pod counts, every Node that has the topology's label will do.

use std::sync::Arc;

use super::Planning;
use crate::ids::Uid;
use crate::selector::selects;
use crate::world::PodView;

const FIELD: &str = "spec.topologySpreadConstraints";

/// The pods that the constraints of a shape count, on Nodes and on their way there.
#[derive(Clone, Debug)]
pub(super) enum Counted {
    None,
    One(Uid),
    Several,
}

impl<'w> Planning<'w> {
    /// The first field of this pod that is not evaluated yet; `None`: all are.
    ///
    /// A `DoNotSchedule` constraint is evaluated for a pod that it counts alone, such as that of a Deployment with one replica (k3s's CoreDNS).
    /// Then every topology has 0 pods, the one that takes it has 1, and `maxSkew` is never below 1: any Node with the label takes it, whatever
    /// the constraint's policies on Nodes. With a second pod the counts matter, and a place would be a guess. The pods of a moved pod's own
    /// name are no second one: the scheduler does not count a pod that is being deleted.
    pub(super) fn unsupported(&mut self, pod: &PodView<'w>) -> Option<Arc<str>> {
        let spec = pod.spec();
        if let Some(field) = spec.unsupported.first() {
            return Some(field.clone());
        }
        let is_alone = spec.spread.is_empty()
            || match self.counted(pod) {
                Counted::None => true,
                Counted::One(uid) => *uid == *pod.uid(),
                Counted::Several => false,
            };
        (!is_alone).then(|| FIELD.into())
    }

    fn counted(&mut self, pod: &PodView<'w>) -> &Counted {
        let world = self.tick.world;
        self.counted.entry(pod.shape_id()).or_insert_with(|| {
            let selectors: Vec<_> = pod
                .spec()
                .spread
                .iter()
                .filter_map(|constraint| constraint.selector.as_ref())
                .collect();
            let mut counting = world.pods_in(pod.namespace()).filter(|other| {
                let counts = other.is_alive() && !other.is_deleting();
                counts
                    && selectors
                        .iter()
                        .any(|selector| selects(selector, other.labels()))
            });
            match (counting.next(), counting.next()) {
                (None, _) => Counted::None,
                (Some(one), None) => Counted::One(one.uid().clone()),
                (Some(_), Some(_)) => Counted::Several,
            }
        })
    }
}
