//! A toy kube-scheduler: the filters of [`super::placement`], two scores, no preemption. It keeps the room of nominations that others make.
//!
//! A pod that uses a filter which is not here stays Pending with a message that says so: a wrong placement would teach a test
//! something false.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    Kube,
    neighbours::Neighbours,
    object::{field_mut, items, time},
    placement::{Misfit, NodeView, PodNeeds, Resources, Used},
    store::{Change, ChangeKind, Key, Stored},
    volumes::PodVolumes,
};

/// Which of the nodes that fit is taken; equal ones by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scoring {
    /// The emptiest node, as kube-scheduler does by default.
    #[default]
    LeastAllocated,
    /// The fullest node.
    MostAllocated,
}

/// Binds pods until it is dropped.
pub async fn run(kube: Kube, scoring: Scoring) {
    let kube = kube.as_user("system:kube-scheduler");
    let (present, mut changes) =
        kube.subscribe(&["nodes", "pods", "persistentvolumeclaims", "namespaces"]);
    let mut scheduler = Scheduler::new(kube, scoring);
    for change in &present {
        scheduler.apply(change);
    }
    scheduler.schedule();
    while let Some(change) = changes.recv().await {
        scheduler.apply(&change);
        while let Ok(change) = changes.try_recv() {
            scheduler.apply(&change);
        }
        scheduler.schedule();
    }
}

struct Scheduler {
    kube: Kube,
    scoring: Scoring,
    nodes: BTreeMap<String, NodeState>,
    pods: BTreeMap<Key, PodState>,
    /// What to try in the next pass.
    queue: BTreeSet<Place>,
    /// What failed; tried again when a node changes so that it fits there, or a pod makes room.
    parked: BTreeSet<Place>,
    /// The same of pods that spread, or want others near or far: other pods that come, end or move make a difference to them as well.
    parked_by_spread: BTreeSet<Place>,
    /// The same of pods with claims.
    parked_by_volume: BTreeSet<Place>,
    /// Pods on nodes that do not want others near.
    repelling: BTreeSet<Key>,
    /// Pods without a node for which room on one is kept.
    nominated: BTreeSet<Key>,
    arrivals: u64,
}

#[derive(Default)]
struct NodeState {
    /// None while only pods know of the node.
    view: Option<NodeView>,
    used: Used,
}

struct PodState {
    uid: String,
    needs: Arc<PodNeeds>,
    node: Option<String>,
    nominated: Option<String>,
    place: Place,
}

/// A place in the queue: by priority, then by arrival, but pods for one node before those that can go anywhere. The real
/// scheduler has no such rule; there the pods of a DaemonSet are mostly bound while others still back off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    priority: Reverse<i64>,
    roams: bool,
    arrival: u64,
    key: Key,
}

impl Scheduler {
    fn new(kube: Kube, scoring: Scoring) -> Self {
        Self {
            kube,
            scoring,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            queue: BTreeSet::new(),
            parked: BTreeSet::new(),
            parked_by_spread: BTreeSet::new(),
            parked_by_volume: BTreeSet::new(),
            repelling: BTreeSet::new(),
            nominated: BTreeSet::new(),
            arrivals: 0,
        }
    }

    fn apply(&mut self, change: &Change) {
        match (&*change.resource.plural, change.kind) {
            ("nodes", ChangeKind::Deleted) => {
                if let Some(state) = self.nodes.get_mut(&change.object.key.name) {
                    state.view = None;
                }
            }
            ("nodes", ChangeKind::Added | ChangeKind::Modified) => self.apply_node(&change.object),
            ("persistentvolumeclaims", _) => self.queue.append(&mut self.parked_by_volume),
            ("namespaces", _) => self.queue.append(&mut self.parked_by_spread),
            (_, kind) => self.apply_pod(&change.object, kind),
        }
    }

    fn apply_node(&mut self, stored: &Stored) {
        let view = NodeView::of(&stored.value());
        let state = self.nodes.entry(view.name.clone()).or_default();
        if state.view.as_ref() == Some(&view) {
            return;
        }
        // As kube-scheduler's queueing hints: who does not fit on this node is not tried again, and keeps the message of the last time.
        let fits = |place: &Place| {
            let pod = self.pods.get(&place.key);
            pod.is_some_and(|pod| pod.needs.misfits(&view, &state.used).is_empty())
        };
        let (mut again, parked) = std::mem::take(&mut self.parked).into_iter().partition(fits);
        self.parked = parked;
        self.queue.append(&mut again);
        self.queue.append(&mut self.parked_by_spread);
        self.queue.append(&mut self.parked_by_volume);
        state.view = Some(view);
    }

    fn apply_pod(&mut self, stored: &Stored, kind: ChangeKind) {
        self.queue.append(&mut self.parked_by_spread);
        self.queue.append(&mut self.parked_by_volume);
        let gone = kind == ChangeKind::Deleted || stored.finished();
        let node = stored.node_name.clone().filter(|node| !node.is_empty());
        let known = self.pods.get(&stored.key);
        // A pod on its node is of interest again if it is being resized.
        if !gone
            && known.is_some_and(|known| {
                let is_same = known.uid == stored.uid && known.node == node && node.is_some();
                is_same && *known.needs == PodNeeds::of(&stored.value())
            })
        {
            return;
        }
        self.forget(&stored.key);
        if gone {
            return;
        }
        let pod = stored.value();
        let waits = node.is_none();
        let ours = pod["spec"]["schedulerName"] == "default-scheduler";
        if waits
            && (!ours || stored.terminating || !items(&pod["spec"], "schedulingGates").is_empty())
        {
            return;
        }
        self.arrivals += 1;
        let priority = pod["spec"]["priority"].as_i64().unwrap_or(0);
        let needs = PodNeeds::of(&pod);
        let place = Place {
            priority: Reverse(priority),
            roams: !needs.is_pinned(),
            arrival: self.arrivals,
            key: stored.key.clone(),
        };
        let state = PodState {
            uid: stored.uid.clone(),
            needs: Arc::new(needs),
            node: None,
            nominated: pod["status"]["nominatedNodeName"]
                .as_str()
                .map(str::to_owned),
            place,
        };
        if waits {
            self.queue.insert(state.place.clone());
            if state.nominated.is_some() {
                self.nominated.insert(stored.key.clone());
            }
        }
        self.pods.insert(stored.key.clone(), state);
        if let Some(node) = node {
            self.assign(&stored.key, &node);
        }
    }

    /// Takes the pod out of the books and frees what it held.
    fn forget(&mut self, key: &Key) {
        let Some(state) = self.pods.remove(key) else {
            return;
        };
        self.queue.remove(&state.place);
        self.parked.remove(&state.place);
        self.parked_by_spread.remove(&state.place);
        self.parked_by_volume.remove(&state.place);
        self.repelling.remove(key);
        self.nominated.remove(key);
        if let Some(node) = state.node.and_then(|node| self.nodes.get_mut(&node)) {
            node.used.take_back(&state.needs);
            self.queue.append(&mut self.parked);
            self.queue.append(&mut self.parked_by_volume);
        }
    }

    fn assign(&mut self, key: &Key, name: &str) {
        let Some(pod) = self.pods.get_mut(key) else {
            return;
        };
        pod.node = Some(name.to_owned());
        self.nominated.remove(key);
        let node = self.nodes.entry(name.to_owned()).or_default();
        node.used.put(&pod.needs);
        if !pod.needs.away.is_empty() {
            self.repelling.insert(key.clone());
        }
    }

    /// One pass over the queue.
    fn schedule(&mut self) {
        // Room only shrinks during a pass: what failed for one pod fails for all pods with the same needs.
        let mut failed: Vec<(Arc<PodNeeds>, String)> = Vec::new();
        while let Some(place) = self.queue.pop_first() {
            let key = place.key.clone();
            let Some(needs) = self.pods.get(&key).map(|pod| pod.needs.clone()) else {
                continue;
            };
            let spreads = needs.is_social();
            if let Some((_, message)) = failed.iter().find(|(other, _)| *other == needs) {
                self.refuse(&key, message);
                self.parked.insert(place);
                continue;
            }
            let volumes = PodVolumes::of(&self.kube, &key.namespace, &needs.claims);
            let chosen = match &volumes {
                Ok(volumes) => self.choose(&key, &needs, volumes),
                Err(message) => Err(message.clone()),
            };
            match chosen {
                // Bound when its volumes are.
                Ok(node) if volumes.is_ok_and(|it| it.choose(&self.kube, &key, &node)) => {
                    self.parked_by_volume.insert(place);
                }
                Ok(node) => {
                    let uid = self
                        .pods
                        .get(&key)
                        .map(|pod| pod.uid.clone())
                        .unwrap_or_default();
                    // A pod that went away or was bound by somebody else comes back as a change.
                    if self.kube.bind(&key, &uid, &node).is_ok() {
                        self.assign(&key, &node);
                        self.queue.append(&mut self.parked_by_spread);
                    }
                }
                Err(message) if !needs.claims.is_empty() => {
                    self.refuse(&key, &message);
                    self.parked_by_volume.insert(place);
                }
                Err(message) if spreads => {
                    self.refuse(&key, &message);
                    self.parked_by_spread.insert(place);
                }
                Err(message) => {
                    self.refuse(&key, &message);
                    failed.push((needs, message));
                    self.parked.insert(place);
                }
            }
        }
    }

    fn choose(&self, key: &Key, needs: &PodNeeds, volumes: &PodVolumes) -> Result<String, String> {
        if let Some(field) = &needs.unsupported {
            return Err(format!("the simulated scheduler has no filter for {field}"));
        }
        let neighbours = match needs.spread.is_empty() {
            true => Vec::new(),
            false => self.neighbours(key),
        };
        let pods: Vec<_> = neighbours
            .iter()
            .filter(|other| other.key != *key && !other.terminating && !other.finished())
            .filter_map(|other| Some((&other.labels, other.node_name.as_deref()?)))
            .collect();
        let own = neighbours.iter().find(|other| other.key == *key);
        let own_labels = own.map(|own| own.labels.clone()).unwrap_or_default();
        let views: Vec<&NodeView> = match needs.spread.is_empty() {
            true => Vec::new(),
            false => self.nodes.values().flat_map(|node| &node.view).collect(),
        };
        let near = self.near(needs);
        let mut reasons = BTreeMap::<Misfit, usize>::new();
        let mut best: Option<((i64, i64), &str)> = None;
        let (mut total, mut short) = (0, 0);
        let nodes = self
            .nodes
            .values()
            .filter_map(|state| Some((state.view.as_ref()?, state)));
        for (view, state) in nodes {
            total += 1;
            let mut misfits = needs.misfits(view, &self.used_before(key, view, state));
            if misfits.is_empty() && !needs.spread.is_empty() {
                misfits.extend(needs.spread_misfit(&own_labels, view, &views, &pods));
            }
            if misfits.is_empty() {
                misfits.extend(volumes.misfit(view));
            }
            if misfits.is_empty() {
                misfits.extend(near.as_ref().and_then(|near| near.misfit(needs, view)));
            }
            if misfits.is_empty() {
                let score = (needs.preference(view), self.score(view, state, needs));
                // Names ascend, so that the first of equal scores has the smallest name.
                if best.is_none_or(|(best, _)| score > best) {
                    best = Some((score, &view.name));
                }
            }
            short += usize::from(misfits.iter().any(Misfit::is_of_pods));
            for misfit in misfits {
                *reasons.entry(misfit).or_default() += 1;
            }
        }
        match best {
            Some((_, name)) => Ok(name.to_owned()),
            None if total == 0 => Err("no nodes available to schedule pods".to_owned()),
            None => Err(message(&reasons, total, short)),
        }
    }

    /// What is taken of a node for this pod: others of its priority or above have their nomination there.
    fn used_before<'s>(&self, key: &Key, view: &NodeView, state: &'s NodeState) -> Cow<'s, Used> {
        let priority = self.pods.get(key).map(|pod| pod.place.priority);
        let others = self.nominated.iter().filter(|other| *other != key);
        let others = others.filter_map(|other| self.pods.get(other));
        let mut used = Cow::Borrowed(&state.used);
        for other in others.filter(|other| other.nominated.as_ref() == Some(&view.name)) {
            // Reversed: the higher one is the smaller.
            if Some(other.place.priority) <= priority {
                used.to_mut().put(&other.needs);
            }
        }
        used
    }

    /// The pods on nodes, as far as they make a difference to this one.
    fn near<'a>(&'a self, needs: &'a PodNeeds) -> Option<Neighbours<'a>> {
        if !needs.wants_neighbours() && self.repelling.is_empty() {
            return None;
        }
        let standing = self.pods.values().filter_map(|pod| {
            let node = self.nodes.get(pod.node.as_ref()?)?;
            Some((&*pod.needs, node.view.as_ref()?))
        });
        let namespaces = self.kube.objects("namespaces").into_iter();
        let namespaces = namespaces.map(|it| (it.key.name.clone(), it.labels.clone()));
        Some(Neighbours::of(needs, standing, &namespaces.collect()))
    }

    /// The pods of a pod's namespace, itself among them.
    fn neighbours(&self, key: &Key) -> Vec<Arc<Stored>> {
        let mut pods = self.kube.objects("pods");
        pods.retain(|other| other.key.namespace == key.namespace);
        pods
    }

    /// The mean free share of CPU and memory after the placement, in thousandths; negated for the fullest.
    fn score(&self, view: &NodeView, state: &NodeState, needs: &PodNeeds) -> i64 {
        let free = |name: &str| {
            let amount = |of: &Resources| of.get(name).copied().unwrap_or(0);
            let allocatable = amount(&view.allocatable).max(1);
            let used = amount(&state.used.amounts) + amount(&needs.requests);
            i64::try_from(i128::from(allocatable - used) * 1_000 / i128::from(allocatable))
                .unwrap_or(0)
        };
        let least = (free("cpu") + free("memory")) / 2;
        match self.scoring {
            Scoring::LeastAllocated => least,
            Scoring::MostAllocated => -least,
        }
    }

    fn refuse(&self, key: &Key, message: &str) {
        let Some(pod) = self.kube.look("pods", &key.namespace, &key.name) else {
            return;
        };
        let old = super::object::condition(&pod, "PodScheduled");
        if old.is_some_and(|old| old["message"] == message) {
            return;
        }
        let since = old.map_or(Value::Null, |old| old["lastTransitionTime"].clone());
        let mut conditions = items(&pod["status"], "conditions").to_vec();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": if since.is_null() { json!(time(self.kube.clock().now())) } else { since },
        }));
        let mut pod = Arc::unwrap_or_clone(pod);
        *field_mut(field_mut(&mut pod, "status"), "conditions") = json!(conditions);
        // A pod that changed meanwhile comes back as a change.
        let _ = self.kube.write("pods", "status", pod);
    }
}

/// kube-scheduler's text for `total` nodes, on `short` of which nothing but other pods is in the way: only there could the
/// eviction of other pods help.
fn message(reasons: &BTreeMap<Misfit, usize>, total: usize, short: usize) -> String {
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts.join(", ")
    };
    let misfits = sorted(
        reasons
            .iter()
            .map(|(misfit, count)| format!("{count} {misfit}"))
            .collect(),
    );
    let preemption = [
        (short, "No preemption victims found for incoming pod"),
        (total - short, "Preemption is not helpful for scheduling"),
    ];
    let preemption = preemption.iter().filter(|(count, _)| *count > 0);
    let preemption = sorted(
        preemption
            .map(|(count, text)| format!("{count} {text}"))
            .collect(),
    );
    format!(
        "0/{total} nodes are available: {misfits}. no new claims to deallocate, preemption: 0/{total} nodes are available: \
         {preemption}."
    )
}

#[cfg(test)]
mod tests;
