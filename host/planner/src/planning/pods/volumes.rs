//! Volumes: which places reach those of a pod, and how many more a place can hold. As kube-scheduler's plugins
//! VolumeBinding, VolumeZone and NodeVolumeLimits filter; `world/storage/needs.rs` says what the claims of a pod ask.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fit::{NodeProfile, Rooms};
use crate::facts::{CsiNodeFacts, NodeSelectorTerm, PodSpec, Reach, VolumeNeed};
use crate::kubernetes::selector::{selects, term_matches};
use crate::plan::report::Misfit;
use crate::world::{NodeView, PodView};

/// The first volume of the pod that keeps it away from Nodes that look so.
pub(in crate::planning) fn misfit<'a>(
    spec: &'a PodSpec,
    profile: &NodeProfile<'_>,
) -> Option<Misfit<'a>> {
    if let Some(wait) = &spec.volume_wait {
        return Some(Misfit::VolumeWait(Cow::Borrowed(wait)));
    }
    let mut taken = Taken::new();
    let mut needs = spec.volumes.iter();
    let need = needs.find(|need| !reaches_beside(need, profile, &mut taken))?;
    Some(Misfit::Volume(Cow::Borrowed(need)))
}

/// The PersistentVolumes that other claims of the pod would be bound to.
type Taken<'a> = BTreeSet<&'a Arc<str>>;

/// Whether a Node that looks so reaches the volume.
pub(in crate::planning) fn reaches(need: &VolumeNeed, profile: &NodeProfile<'_>) -> bool {
    reaches_beside(need, profile, &mut Taken::new())
}

fn reaches_beside<'a>(
    need: &'a VolumeNeed,
    profile: &NodeProfile<'_>,
    taken: &mut Taken<'a>,
) -> bool {
    let Some(reach) = &need.reach else {
        return true;
    };
    let is_reached = |profile: &_, taken: &mut Taken<'a>| {
        is_reached(reach, need.driver.as_ref(), profile, taken)
    };
    // The scheduler goes by the labels, and the volume stays on its server.
    let moved = profile.moved.as_ref();
    let stays_reached = moved.is_none_or(|labels| {
        let there = NodeProfile {
            labels: Cow::Borrowed(&**labels),
            moved: None,
            ..profile.clone()
        };
        is_reached(&there, &mut taken.clone())
    });
    stays_reached && is_reached(profile, taken)
}

fn is_reached<'a>(
    reach: &'a Reach,
    driver: Option<&Arc<str>>,
    profile: &NodeProfile<'_>,
    taken: &mut Taken<'a>,
) -> bool {
    let NodeProfile {
        name, labels, room, ..
    } = profile;
    let any =
        |terms: &[NodeSelectorTerm]| terms.iter().any(|term| term_matches(term, name, labels));
    match reach {
        Reach::Affinity(terms) | Reach::Zone(terms) | Reach::Class(terms) => any(terms),
        Reach::Chosen(node) => *node.0 == **name,
        Reach::Room {
            bytes,
            enough,
            known,
        } => {
            let any = |selectors: &[_]| selectors.iter().any(|one| selects(one, labels));
            // Its driver has not said yet how much room there is. Where the class does not say it either, kproxide
            // tries a machine.
            let may_do = |room: &Arc<Rooms>| {
                let largest = driver.and_then(|driver| room.get(driver));
                largest.is_none_or(|largest| largest >= bytes)
            };
            any(enough) || (!any(known) && room.as_ref().is_some_and(may_do))
        }
        Reach::Free { volumes, made } => {
            let free = volumes.iter().find(|volume| {
                let is_there = volume.nodes.as_ref().is_none_or(|terms| any(terms));
                is_there && !taken.contains(&volume.name)
            });
            match (free, made) {
                (Some(volume), _) => taken.insert(&volume.name),
                (None, Some(made)) => made
                    .iter()
                    .all(|reach| is_reached(reach, driver, profile, taken)),
                (None, None) => false,
            }
        }
    }
}

/// How many volumes of CSI drivers a place can still hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::planning) struct Attachable {
    /// Only drivers that name a limit.
    left: BTreeMap<Arc<str>, i64>,
    /// How many pods of this place have each volume ([`VolumeNeed::attached`]). It is attached once.
    attached: BTreeMap<Arc<str>, u32>,
}

impl Attachable {
    pub(in crate::planning) fn with(limits: &BTreeMap<Arc<str>, u32>) -> Self {
        let left = limits.iter();
        Self {
            left: left
                .map(|(driver, most)| (driver.clone(), i64::from(*most)))
                .collect(),
            attached: BTreeMap::new(),
        }
    }

    /// Of a Node: what its drivers say, less what its pods have.
    pub(in crate::planning) fn of(node: &NodeView<'_>) -> Self {
        let mut attachable = Self::with(&node.csi().map(limits).unwrap_or_default());
        attachable.put_all(node);
        attachable
    }

    fn put_all(&mut self, node: &NodeView<'_>) {
        if self.left.is_empty() {
            return;
        }
        for pod in node.pods().filter(PodView::is_alive) {
            self.put(pod.spec(), 1);
        }
    }

    /// Of a Node whose drivers have perhaps not registered yet.
    pub(in crate::planning) fn of_coming(
        node: &NodeView<'_>,
        predicted: BTreeMap<Arc<str>, u32>,
    ) -> Self {
        let mut all = predicted;
        for (name, driver) in node.csi().iter().flat_map(|csi| &csi.drivers) {
            match driver.limit {
                Some(limit) => all.insert(name.clone(), limit),
                None => all.remove(name),
            };
        }
        let mut attachable = Self::with(&all);
        attachable.put_all(node);
        attachable
    }

    /// A volume that is attached although no pod of the Node has it. kube-scheduler counts it once more for a pod that
    /// asks for it.
    pub(in crate::planning) fn hold(&mut self, volume: &Arc<str>, driver: &Arc<str>) {
        if let Some(left) = self.left.get_mut(driver)
            && !self.attached.contains_key(volume)
        {
            *left -= 1;
        }
    }

    pub(in crate::planning) fn misfit<'a>(&self, spec: &'a PodSpec) -> Option<Misfit<'a>> {
        let mut limited = self.limited(spec).map(|(driver, _)| driver);
        let driver = limited.find(|driver| self.times(spec, driver) < 1)?;
        Some(Misfit::VolumeLimit {
            driver: Cow::Borrowed(driver),
        })
    }

    /// How many pods of this spec its volumes leave room for, `most` at most.
    pub(in crate::planning) fn how_many(&self, spec: &PodSpec, most: u32) -> u32 {
        let times = self
            .limited(spec)
            .map(|(driver, _)| self.times(spec, driver));
        let times = times
            .min()
            .map(|times| u32::try_from(times.max(0)).unwrap_or(u32::MAX));
        times.map_or(most, |times| times.min(most))
    }

    pub(in crate::planning) fn put(&mut self, spec: &PodSpec, count: u32) {
        self.change(spec, i64::from(count));
    }

    pub(in crate::planning) fn take_back(&mut self, spec: &PodSpec, count: u32) {
        self.change(spec, -i64::from(count));
    }

    fn change(&mut self, spec: &PodSpec, by: i64) {
        let Self { left, attached } = self;
        for need in &spec.volumes {
            let Some(left) = need.driver.as_ref().and_then(|driver| left.get_mut(driver)) else {
                continue;
            };
            match need.attached() {
                None => *left -= by,
                Some(volume) => {
                    let pods = attached.get(volume).copied().unwrap_or(0);
                    let after = u32::try_from((i64::from(pods) + by).max(0)).unwrap_or(u32::MAX);
                    *left -= i64::from(after > 0) - i64::from(pods > 0);
                    match after {
                        0 => attached.remove(volume),
                        _ => attached.insert(volume.clone(), after),
                    };
                }
            }
        }
    }

    /// The needs of a spec whose driver has a limit here.
    fn limited<'a>(
        &self,
        spec: &'a PodSpec,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a VolumeNeed)> {
        spec.volumes.iter().filter_map(|need| {
            let driver = need.driver.as_ref()?;
            self.left.contains_key(driver).then_some((driver, need))
        })
    }

    /// How many pods of this spec fit, as far as this driver goes. Volumes that exist are shared by pods of one spec.
    fn times(&self, spec: &PodSpec, driver: &Arc<str>) -> i64 {
        let mut shared: BTreeSet<&Arc<str>> = BTreeSet::new();
        let mut each = 0;
        for (_, need) in self.limited(spec).filter(|(of, _)| *of == driver) {
            match need.attached() {
                None => each += 1,
                Some(volume) if self.attached.contains_key(volume) => {}
                Some(volume) => {
                    shared.insert(volume);
                }
            }
        }
        let left = self.left.get(driver).copied().unwrap_or(i64::MAX);
        let left = left - i64::try_from(shared.len()).unwrap_or(i64::MAX);
        match each {
            0 if left >= 0 || shared.is_empty() => i64::MAX,
            0 => 0,
            each => left / each,
        }
    }
}

/// The limits that a Node's drivers name.
fn limits(csi: &CsiNodeFacts) -> BTreeMap<Arc<str>, u32> {
    let limits = csi.drivers.iter();
    limits
        .filter_map(|(name, driver)| Some((name.clone(), driver.limit?)))
        .collect()
}
