//! Whether a pod fits at a place, how many of it, and if not, why: the only list of filters.
//!
//! A place is a Node, a machine on its way, or a machine that could be made (one place for each instance type and
//! hypervisor). It has three parts, and a filter stands with the part that it reads:
//!
//! - [`NodeProfile`]: what selectors and tolerations are held against. No pod changes it.
//! - [`Free`]: what pods may still take. [`Free::put`] and [`Free::take_back`] keep it.
//! - The Node with its pods, where there is one.
//!
//! Packing keeps the first two apart: machines of one instance type have one [`Free`] and a profile for each hypervisor.
//! What depends on other places as well stands in `topology`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::volumes::{self, Attachable};
use crate::facts::{
    HostPort, Labels, NodeSelectorTerm, PodSpec, Reach, SpreadConstraint, Taint, Toleration,
    VolumeNeed, VolumeWait,
};
use crate::kubernetes::resources::Resources;
use crate::kubernetes::{selector, taints};
use crate::plan::report::Misfit;
use crate::world::{Attached, NodeView, PodView};

/// Somewhere a pod could run. See the module.
#[derive(Clone)]
pub(in crate::planning) struct Place<'w> {
    pub(in crate::planning) profile: NodeProfile<'w>,
    pub(in crate::planning) free: Free,
    pub(in crate::planning) node: Option<NodeView<'w>>,
}

/// What a pod's selector, affinity and tolerations are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::planning) struct NodeProfile<'w> {
    pub(in crate::planning) name: Arc<str>,
    pub(in crate::planning) labels: Cow<'w, Labels>,
    pub(in crate::planning) taints: Cow<'w, [Taint]>,
    pub(in crate::planning) cordoned: bool,
    /// Its CSI drivers have perhaps not said how much room there is. Of some drivers the NodeClass says it.
    pub(in crate::planning) room: Option<Arc<Rooms>>,
    /// Its VM has moved: its labels, if they said so. Volumes have to be reached by both.
    pub(in crate::planning) moved: Option<Arc<Labels>>,
}

/// The largest volume of each CSI driver, in bytes.
pub(in crate::planning) type Rooms = BTreeMap<Arc<str>, u64>;

/// The room that pods can still take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::planning) struct Free {
    pub(in crate::planning) resources: Resources,
    /// Ports of the pods that were put here, and how many of the pods take each port.
    ports: BTreeMap<HostPort, u32>,
    pub(in crate::planning) attachable: Attachable,
}

impl<'w> Place<'w> {
    /// A Node as it is.
    pub(in crate::planning) fn of(node: NodeView<'w>) -> Self {
        Self {
            profile: NodeProfile::of(&node),
            free: Free {
                attachable: Attachable::of(&node),
                ..Free::of(node.facts.allocatable.minus(&node.requested()))
            },
            node: Some(node),
        }
    }

    /// A Node as it is, holding what is attached to it.
    pub(in crate::planning) fn with_attached(node: NodeView<'w>, attached: &Attached<'_>) -> Self {
        let mut place = Self::of(node);
        for (volume, driver) in attached.get(node.name()).into_iter().flatten() {
            place.free.attachable.hold(volume, driver);
        }
        place
    }

    /// The first filter that keeps a pod of this spec away.
    pub(in crate::planning) fn misfit<'a>(&'a self, spec: &'a PodSpec) -> Option<Misfit<'a>> {
        self.free
            .misfit(spec)
            .or_else(|| self.taken_by_pods(spec))
            .or_else(|| self.profile.misfit(spec))
    }

    /// Whether a pod of this spec fits once these pods are gone from the Node.
    pub(in crate::planning) fn fits_without(
        &self,
        spec: &PodSpec,
        is_gone: impl Fn(&PodView<'w>) -> bool,
    ) -> bool {
        let pods = self.node.iter().flat_map(|node| node.pods());
        let alive = pods.filter(PodView::is_alive);
        let (gone, staying): (Vec<_>, Vec<_>) = alive.partition(is_gone);
        let mut free = self.free.clone();
        for pod in gone {
            free.resources.add(&pod.spec().requests);
            free.attachable.take_back(pod.spec(), 1);
        }
        let ports = staying.iter().flat_map(|pod| &pod.spec().host_ports);
        free.misfit(spec).is_none()
            && taken(spec, ports).is_none()
            && self.profile.misfit(spec).is_none()
    }

    /// How many pods of this spec fit, `most` at most.
    pub(in crate::planning) fn how_many(&self, spec: &PodSpec, most: u32) -> u32 {
        match self.misfit(spec) {
            Some(_) => 0,
            None => self.free.how_many(spec, most),
        }
    }

    /// Looks at the Node's pods only for a pod with host ports. Nodes have many pods, and few pods have host ports.
    fn taken_by_pods<'a>(&self, spec: &'a PodSpec) -> Option<Misfit<'a>> {
        let node = self.node.filter(|_| !spec.host_ports.is_empty())?;
        let alive = node.pods().filter(|pod| pod.is_alive());
        taken(spec, alive.flat_map(|pod| &pod.spec().host_ports))
    }
}

/// The parts of a pod that [`NodeProfile::misfit`] reads. Pods with equal parts get the same answer.
pub(in crate::planning) type Demanded<'a> = (
    &'a BTreeMap<String, String>,
    &'a Option<Vec<NodeSelectorTerm>>,
    &'a [Toleration],
    &'a [SpreadConstraint],
    &'a [VolumeNeed],
    &'a Option<Box<VolumeWait>>,
);

pub(in crate::planning) fn demanded(spec: &PodSpec) -> Demanded<'_> {
    (
        &spec.node_selector,
        &spec.node_affinity,
        &spec.tolerations,
        &spec.spread,
        &spec.volumes,
        &spec.volume_wait,
    )
}

/// The pod fits only some Nodes. Such pods are placed first, so that others do not take their room.
pub(in crate::planning) fn is_picky(spec: &PodSpec) -> bool {
    !spec.requests.extended.is_empty()
        || !spec.node_selector.is_empty()
        || spec.node_affinity.is_some()
        || !spec.host_ports.is_empty()
        || !spec.pod_affinity.is_empty()
        || !spec.pod_anti_affinity.is_empty()
        || !spec.spread.is_empty()
        || !spec.volumes.is_empty()
}

/// The scheduler has chosen the pod's Node, and a volume is being made there.
pub(in crate::planning) fn has_its_node(spec: &PodSpec) -> bool {
    let is_chosen = |need: &VolumeNeed| matches!(need.reach, Some(Reach::Chosen(_)));
    spec.volumes.iter().any(is_chosen)
}

/// The first of these ports that conflicts with a port of the pod, by kube-scheduler's rules: port and protocol must be
/// equal, and the addresses equal or one of them 0.0.0.0. `::` is an address like any other.
fn taken<'a, 't>(
    spec: &'a PodSpec,
    mut ports: impl Iterator<Item = &'t HostPort>,
) -> Option<Misfit<'a>> {
    if spec.host_ports.is_empty() {
        return None;
    }
    let wanted = ports.find_map(|taken| conflicting(&spec.host_ports, taken))?;
    Some(Misfit::HostPort(Cow::Borrowed(wanted)))
}

/// The first of these ports, which are ascending, that cannot be had beside this one. A Node may have thousands.
fn conflicting<'a>(wanted: &'a [HostPort], taken: &HostPort) -> Option<&'a HostPort> {
    let order = |it: &HostPort| (it.port, &*it.protocol).cmp(&(taken.port, &*taken.protocol));
    let wanted = &wanted[wanted.partition_point(|it| order(it).is_lt())..];
    let wanted = &wanted[..wanted.partition_point(|it| order(it).is_eq())];
    if *taken.address == *HostPort::EVERY_ADDRESS {
        return wanted.first();
    }
    let at = |address: &str| wanted.binary_search_by(|it| (*it.address).cmp(address));
    let of_every = at(HostPort::EVERY_ADDRESS).ok();
    let found = of_every.into_iter().chain(at(&taken.address).ok()).min();
    Some(&wanted[found?])
}

impl<'w> NodeProfile<'w> {
    pub(in crate::planning) fn of(node: &NodeView<'w>) -> Self {
        Self {
            name: node.name().0.clone(),
            labels: Cow::Borrowed(&node.facts.labels),
            taints: Cow::Borrowed(&node.facts.taints),
            cordoned: node.facts.unschedulable,
            room: None,
            moved: None,
        }
    }

    /// A Node as if its cordon and these taints were gone.
    pub(in crate::planning) fn without(
        node: &NodeView<'w>,
        is_gone: impl Fn(&Taint) -> bool,
    ) -> Self {
        let taints = node.facts.taints.iter().filter(|taint| !is_gone(taint));
        Self {
            taints: Cow::Owned(taints.cloned().collect()),
            cordoned: false,
            ..Self::of(node)
        }
    }

    pub(in crate::planning) fn misfit<'a>(&'a self, spec: &'a PodSpec) -> Option<Misfit<'a>> {
        if self.cordoned && !taints::tolerates_cordon(&spec.tolerations) {
            return Some(Misfit::Cordon);
        }
        let unmatched = selector::unmatched(spec, &self.name, &self.labels);
        unmatched.map(Misfit::Labels).or_else(|| {
            match taints::untolerated(&spec.tolerations, &*self.taints) {
                Some(taint) => Some(Misfit::Taint(Cow::Borrowed(taint))),
                None => volumes::misfit(spec, self),
            }
        })
    }
}

impl Free {
    pub(in crate::planning) fn of(resources: Resources) -> Self {
        Self {
            resources,
            ports: BTreeMap::new(),
            attachable: Attachable::default(),
        }
    }

    /// What is left of it after a pod of each of these DaemonSets.
    pub(in crate::planning) fn with(
        resources: Resources,
        attachable: Attachable,
        daemons: &[&PodSpec],
    ) -> Self {
        let mut free = Self {
            attachable,
            ..Self::of(resources)
        };
        for daemon in daemons {
            free.put(daemon, 1);
        }
        free
    }

    pub(in crate::planning) fn misfit<'a>(&'a self, spec: &'a PodSpec) -> Option<Misfit<'a>> {
        if !spec.requests.fits(&self.resources) {
            return Some(Misfit::TooLittle {
                asked: Cow::Borrowed(&spec.requests),
                free: Cow::Borrowed(&self.resources),
            });
        }
        taken(spec, self.ports.keys()).or_else(|| self.attachable.misfit(spec))
    }

    /// How many pods of this spec fit, `most` at most.
    pub(in crate::planning) fn how_many(&self, spec: &PodSpec, most: u32) -> u32 {
        if self.misfit(spec).is_some() {
            return 0;
        }
        // A pod that takes a port keeps its own kind away.
        let times = match spec.host_ports.is_empty() {
            true => spec.requests.times_in(&self.resources),
            false => 1,
        };
        let most = u32::try_from(times).unwrap_or(u32::MAX).min(most);
        self.attachable.how_many(spec, most)
    }

    pub(in crate::planning) fn put(&mut self, spec: &PodSpec, count: u32) {
        self.resources
            .subtract_times(&spec.requests, i64::from(count));
        for port in spec.host_ports.iter().filter(|_| count > 0) {
            *self.ports.entry(port.clone()).or_default() += count;
        }
        self.attachable.put(spec, count);
    }

    pub(in crate::planning) fn take_back(&mut self, spec: &PodSpec, count: u32) {
        self.resources.add_times(&spec.requests, i64::from(count));
        for port in &spec.host_ports {
            if let Some(pods) = self.ports.get_mut(port) {
                *pods -= count;
            }
        }
        self.ports.retain(|_, pods| *pods > 0);
        self.attachable.take_back(spec, count);
    }
}
