//! Everything that is known, owned and mutable, fed by [`Delta`]s.
//!
//! Applying a change keeps the indexes that planning reads, so a tick costs what has to be decided, not what exists. Serialized, a World is a
//! Snapshot: any tick can be saved and planned again.

mod interner;
mod joined;
mod pairs;
mod pods;
mod shared;
mod snapshot;
mod storage;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

pub(crate) use interner::Id;
use jiff::Timestamp;
pub use joined::Joined;
pub(crate) use pods::ShapeView;
use pods::selectors;
pub(crate) use views::PendingPods;
pub use views::{NodeView, PodView};

use crate::facts::{
    ClaimFacts, ClassFacts, ClusterFacts, DaemonSetFacts, Delta, DisruptionBudgetFacts, HostFacts,
    InventoryFacts, LabelSelector, Labels, LedgerEntry, LedgerFacts, OrphanLook, Phase, PodFacts,
    PodTemplate, PolicyFacts, PolicyRef, PoolFacts, Shape, TemplateFacts, VolumeAttachmentFacts,
};
use crate::ids::{
    ClaimName, ClassName, ClusterName, InstanceTypeName, NodeName, ObjectKey, PodKey, PoolName,
    Uid, Vmid,
};
use crate::plan::{Awaited, DecorationMemo, Plan};

/// What is known. See the module.
#[derive(Clone, Debug, Default)]
pub struct World {
    pods: pods::Pods,
    /// Each once, although pods with volumes have specs of their own.
    templates: shared::Shared<PodTemplate>,
    daemon_sets: BTreeMap<ObjectKey, DaemonSetFacts>,
    budgets: BTreeMap<ObjectKey, DisruptionBudgetFacts>,
    namespaces: BTreeMap<Arc<str>, Labels>,
    attachments: BTreeMap<String, VolumeAttachmentFacts>,
    storage: storage::Storage,
    clusters: BTreeMap<ClusterName, ClusterFacts>,
    classes: BTreeMap<ClassName, Arc<ClassFacts>>,
    pools: BTreeMap<PoolName, PoolFacts>,
    claims: BTreeMap<ClaimName, ClaimFacts>,
    joined: Arc<Joined>,
    ledger: Option<LedgerFacts>,
    inventories: BTreeMap<ClusterName, InventoryFacts>,
    orphans: BTreeMap<ClusterName, BTreeMap<Vmid, OrphanLook>>,
    policies: BTreeMap<PolicyRef, PolicyFacts>,
    host: HostFacts,
    /// What label policies answered, as long as they would be asked the same again.
    decorations: BTreeMap<(PoolName, InstanceTypeName), DecorationMemo>,
    /// What the last plan expected of the scheduler.
    awaited: Awaited,
    /// The last plan, if it holds as long as nothing changes.
    settled: Option<Arc<Plan>>,
}

impl World {
    pub fn apply(&mut self, delta: Delta) {
        self.receive(delta);
        self.regroup();
    }

    /// One of many changes. Whoever receives them calls [`Self::regroup`] before anybody plans.
    pub fn receive(&mut self, delta: Delta) {
        if !self.is_old_news(&delta) {
            self.settled = None;
        }
        match delta {
            Delta::Pod(key, facts) => self.set_pod(key, facts),
            Delta::Node(name, facts) => self.pods.set_node(name, facts),
            Delta::DaemonSet(key, facts) => {
                let old = self.daemon_sets.get(&key).into_iter();
                let mut specs = old.chain(facts.as_deref()).map(|it| &it.spec);
                self.pods.must_regroup |= specs.any(|it| selectors(it).next().is_some());
                set(&mut self.daemon_sets, key, facts);
            }
            Delta::DisruptionBudget(key, facts) => {
                let old = self.budgets.get(&key).map(|it| &it.selector);
                self.pods.must_regroup |= old != facts.as_ref().map(|it| &it.selector);
                set(&mut self.budgets, key, facts);
            }
            Delta::Namespace(name, labels) => set(&mut self.namespaces, name, labels),
            Delta::VolumeAttachment(name, facts) => {
                set(&mut self.attachments, name, facts.map(Box::new));
            }
            Delta::VolumeClaim(key, facts) => {
                let concerned = self.storage.set_claim(key, facts.map(|facts| *facts));
                self.resolve_again(&concerned);
            }
            Delta::Volume(name, facts) => {
                let concerned = self.storage.set_volume(&name, facts.map(|facts| *facts));
                self.resolve_again(&concerned);
            }
            Delta::StorageClass(name, facts) => {
                let concerned = self.storage.set_class(&name, facts.map(|facts| *facts));
                self.resolve_again(&concerned);
            }
            Delta::CsiNode(name, facts) => self.pods.set_csi_node(name, facts),
            Delta::CsiDriver(name, facts) => {
                let concerned = self.storage.set_driver(&name, facts.map(|facts| *facts));
                self.resolve_again(&concerned);
            }
            Delta::StorageCapacity(key, facts) => {
                let concerned = self.storage.set_capacity(key, facts.map(|facts| *facts));
                self.resolve_again(&concerned);
            }
            Delta::Cluster(name, facts) => set(&mut self.clusters, name, facts),
            Delta::Class(name, facts) => {
                let shared = facts.map(|facts| Box::new(Arc::from(facts)));
                set(&mut self.classes, name, shared);
            }
            Delta::Pool(name, facts) => {
                if facts.is_none() {
                    self.decorations.retain(|(pool, _), _| *pool != name);
                }
                set(&mut self.pools, name, facts);
            }
            Delta::Claim(name, facts) => {
                let old = self.claims.get(&name);
                Joined::set(&mut self.joined, &name, old, facts.as_deref());
                set(&mut self.claims, name, facts);
            }
            Delta::Ledger(facts) => self.ledger = facts.map(|facts| *facts),
            Delta::Inventory(name, facts) => set(&mut self.inventories, name, facts),
            Delta::Orphans(name, looks) if looks.is_empty() => {
                self.orphans.remove(&name);
            }
            Delta::Orphans(name, looks) => {
                self.orphans.insert(name, looks);
            }
            Delta::Policy(policy, facts) => {
                set(&mut self.policies, policy, facts.map(Box::new));
            }
            Delta::Host(facts) => {
                self.pods.serve(facts.served.clone());
                self.host = facts;
            }
        }
    }

    /// Which pods are alike depends on the labels that selectors read. If those are others now, every pod is looked at: not with each change, since
    /// anybody may bring new ones with each of many pods.
    pub fn regroup(&mut self) {
        if !self.pods.must_regroup {
            return;
        }
        let of_budgets = self.budgets.values().filter_map(|it| it.selector.as_ref());
        let of_daemons = self.daemon_sets.values();
        let of_daemons = of_daemons.flat_map(|it| selectors(&it.spec));
        let of_pods = self.pods.specs.iter();
        let of_pods = of_pods.flat_map(|(_, spec)| selectors(spec));
        let all = of_budgets.chain(of_daemons).chain(of_pods);
        let keys: BTreeSet<&str> = all.flat_map(LabelSelector::keys).collect();
        let keys = keys.into_iter().map(str::to_owned).collect();
        self.pods.project_on(keys);
    }

    fn set_pod(&mut self, key: PodKey, mut facts: Option<Box<PodFacts>>) {
        let key = match self.pods.known_key(&key) {
            Some(known) => known.clone(),
            None => PodKey {
                namespace: self.storage.shared_name(key.namespace),
                name: key.name,
            },
        };
        let claims = facts.as_mut().map(|facts| mem::take(&mut facts.claims));
        let claims = claims.unwrap_or_default();
        let has_claims = !claims.is_empty();
        let concerned = self.storage.set_pod(&key, claims);
        if let Some(facts) = &mut facts {
            self.storage.resolve(&self.pods, &key, facts);
            // Specs of other pods are equal as a whole, and there once already.
            if has_claims {
                let template = &mut facts.spec.template;
                *template = self.templates.share(template.clone());
            }
        }
        self.pods.set_pod(key, facts);
        self.resolve_again(&concerned);
    }

    /// What the volumes of these pods ask may have changed.
    fn resolve_again(&mut self, concerned: &storage::Concerned) {
        for key in self.storage.pods_of(concerned) {
            let Some(pod) = self.pods.get(&key) else {
                continue;
            };
            let mut facts = pod.to_facts();
            self.storage.resolve(&self.pods, &key, &mut facts);
            if facts.spec != *pod.spec() {
                self.pods.set_pod(key, Some(Box::new(facts)));
            }
        }
    }

    /// Inventories are read every few seconds, and most of the time they say the same.
    fn is_old_news(&mut self, delta: &Delta) -> bool {
        let Delta::Inventory(name, Some(new)) = delta else {
            return false;
        };
        self.inventories.get_mut(name).is_some_and(|old| {
            old.taken_at = new.taken_at;
            *old == **new
        })
    }

    /// Keeps what a plan learned for the next ones: answers of label policies, since when it expects pods on Nodes, and the plan itself
    /// if it holds until something changes.
    /// Forgetting them costs the same work again, nothing else.
    pub fn remember(&mut self, plan: &Plan) {
        // Moments differ: this is the plan that is remembered already.
        if let Some(settled) = &self.settled
            && settled.settled_at == plan.settled_at
        {
            return;
        }
        self.settled = plan.settled_at.map(|_| Arc::new(plan.clone()));
        self.awaited = plan.awaited.clone();
        for memo in &plan.decorations {
            self.decorations.insert(memo.key(), memo.clone());
        }
    }

    pub fn pod(&self, key: &PodKey) -> Option<PodView<'_>> {
        self.pods.get(key)
    }

    /// Every pod, by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = PodView<'_>> {
        self.pods.iter()
    }

    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// Different shapes among the pods; what planning costs grows with it.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn shape_count(&self) -> usize {
        self.pods.shape_count()
    }

    /// What its pods have in common, in no order.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (Id, ShapeView<'_>)> {
        debug_assert!(!self.pods.must_regroup, "received and not regrouped");
        self.pods.shapes()
    }

    pub(crate) fn pending(&self) -> Vec<(Shape, PendingPods<'_>)> {
        debug_assert!(!self.pods.must_regroup, "received and not regrouped");
        self.pods.pending()
    }

    /// Pending pods for which the scheduler has nominated a Node, in no order.
    pub(crate) fn nominated(&self) -> impl Iterator<Item = PodView<'_>> {
        self.pods.nominated()
    }

    /// Pods that are being deleted and still take room on their Nodes, in no order.
    pub(crate) fn ending(&self) -> impl Iterator<Item = PodView<'_>> {
        self.pods.ending()
    }

    pub(crate) fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    /// Pods without a Node whose scheduler is not served.
    pub(crate) fn of_other_schedulers(&self) -> Vec<(Shape, PendingPods<'_>)> {
        self.pods.of_other_schedulers()
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.pods.has_pending()
    }

    /// Every Node, by name.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.pods.nodes()
    }

    /// The size of a table by [`NodeView::index`].
    pub(crate) fn node_places(&self) -> usize {
        self.pods.node_places()
    }

    pub fn node(&self, name: &NodeName) -> Option<NodeView<'_>> {
        self.pods.node(name)
    }

    /// The one Node that runs in the VM with this SMBIOS UUID; none if several claim it.
    pub fn node_by_uuid(&self, smbios: &Uid) -> Option<NodeView<'_>> {
        only(self.unclaimed(smbios))
    }

    /// The Nodes with the UUID of a VM that are not recorded as another machine's.
    fn unclaimed(&self, smbios: &Uid) -> Vec<NodeView<'_>> {
        let nodes = self.nodes_with_uuid(smbios);
        let nodes = nodes.filter_map(|name| self.node(name));
        nodes
            .filter(|node| !self.joined.is_anothers(node.facts, smbios))
            .collect()
    }

    /// The names of all Nodes with the UUID of a VM, in either order of its bytes.
    pub fn nodes_with_uuid(&self, smbios: &Uid) -> impl Iterator<Item = &NodeName> {
        let swapped = smbios.swapped();
        let swapped = swapped.filter(|swapped| swapped != smbios);
        let mut names: Vec<&NodeName> = self.pods.nodes_with_uuid(smbios).collect();
        names.extend(
            swapped
                .iter()
                .flat_map(|uuid| self.pods.nodes_with_uuid(uuid)),
        );
        names.into_iter()
    }

    /// The Node of a claim. `None`, too, if several claim to be it.
    pub fn node_of(&self, claim: &ClaimFacts) -> Option<NodeView<'_>> {
        only(self.nodes_of(claim))
    }

    /// The Nodes that may be a claim's: the one recorded, else those with the UUID of its VM, or of these the one with
    /// the VM's name.
    pub fn nodes_of(&self, claim: &ClaimFacts) -> Vec<NodeView<'_>> {
        let status = &claim.status;
        if let (Some(name), Some(uid)) = (&status.node_name, &status.node_uid)
            && let Some(node) = self.node(name)
            && node.facts.uid == *uid
        {
            return vec![node];
        }
        let uuid = status.smbios_uuid.as_ref();
        let mut found = uuid.map_or_else(Vec::new, |uuid| self.unclaimed(uuid));
        found.retain(|node| claim.may_become(node.facts));
        let is_named = |node: &NodeView<'_>| node.name().as_str() == &*claim.spec.vm_name;
        if found.iter().any(is_named) {
            found.retain(is_named);
        }
        found
    }

    pub fn daemon_sets(&self) -> &BTreeMap<ObjectKey, DaemonSetFacts> {
        &self.daemon_sets
    }

    pub fn disruption_budgets(&self) -> &BTreeMap<ObjectKey, DisruptionBudgetFacts> {
        &self.budgets
    }

    /// The labels of each namespace.
    pub fn namespaces(&self) -> &BTreeMap<Arc<str>, Labels> {
        &self.namespaces
    }

    pub fn volume_attachments(&self) -> &BTreeMap<String, VolumeAttachmentFacts> {
        &self.attachments
    }

    /// There is a CSIDriver of this name.
    pub(crate) fn knows_driver(&self, name: &str) -> bool {
        self.storage.drivers.contains_key(name)
    }

    /// Some pod names a PersistentVolumeClaim.
    pub(crate) fn has_volumes(&self) -> bool {
        self.storage.has_users()
    }

    /// Some driver says how much room there is for new volumes.
    pub(crate) fn knows_room(&self) -> bool {
        !self.storage.capacities.is_empty()
    }

    /// A PersistentVolume with a claim that no other Node reaches, because its node affinity names this one.
    pub(crate) fn local_volume(&self, node: &NodeView<'_>) -> Option<&Arc<str>> {
        let labels = &node.facts.labels;
        let host = labels.get(crate::keys::HOSTNAME).map(String::as_str);
        let names = [Some(&*node.name().0), host];
        let mut names = names.into_iter().flatten();
        names.find_map(|name| self.storage.local_volume(name, labels))
    }

    pub(crate) fn attached(&self) -> Attached<'_> {
        let mut attached = Attached::new();
        for VolumeAttachmentFacts { node, volume } in self.attachments.values() {
            let volume = volume.as_ref();
            let volume = volume.and_then(|name| self.storage.attached(name));
            attached.entry(node).or_default().extend(volume);
        }
        attached
    }

    pub fn clusters(&self) -> &BTreeMap<ClusterName, ClusterFacts> {
        &self.clusters
    }

    pub fn classes(&self) -> &BTreeMap<ClassName, Arc<ClassFacts>> {
        &self.classes
    }

    pub fn pools(&self) -> &BTreeMap<PoolName, PoolFacts> {
        &self.pools
    }

    /// The PersistentVolumeClaims that a pod uses.
    pub fn volume_claims_of(&self, pod: &PodKey) -> &[crate::facts::PodClaim] {
        self.storage.claims_of(pod)
    }

    pub fn joined(&self) -> &Arc<Joined> {
        &self.joined
    }

    pub fn claims(&self) -> &BTreeMap<ClaimName, ClaimFacts> {
        &self.claims
    }

    /// A claim names this number.
    pub(crate) fn is_claimed(&self, cluster: &ClusterName, vmid: Vmid) -> bool {
        let mut claims = self.claims.values();
        claims.any(|claim| claim.spec.vmid == vmid && claim.spec.cluster == *cluster)
    }

    /// `None`: it was never written.
    pub fn ledger(&self) -> Option<&LedgerFacts> {
        self.ledger.as_ref()
    }

    pub fn inventories(&self) -> &BTreeMap<ClusterName, InventoryFacts> {
        &self.inventories
    }

    /// Guests that no claim named when they were looked at, by cluster.
    pub fn orphans(&self) -> &BTreeMap<ClusterName, BTreeMap<Vmid, OrphanLook>> {
        &self.orphans
    }

    pub(crate) fn orphan(&self, cluster: &ClusterName, vmid: Vmid) -> Option<&OrphanLook> {
        self.orphans.get(cluster)?.get(&vmid)
    }

    pub fn policies(&self) -> &BTreeMap<PolicyRef, PolicyFacts> {
        &self.policies
    }

    /// The templates of a class in a Proxmox cluster.
    pub fn templates(&self, class: &ClassFacts, cluster: &ClusterName) -> &[TemplateFacts] {
        let inventory = self.inventories.get(cluster);
        let templates = inventory.and_then(|it| it.templates.get(&class.template_in(cluster)));
        templates.map_or(&[][..], Vec::as_slice)
    }

    /// The templates of a class in all Proxmox clusters.
    pub fn all_templates(&self, class: &ClassFacts) -> impl Iterator<Item = &TemplateFacts> {
        let clusters = self.inventories.keys();
        clusters.flat_map(|cluster| self.templates(class, cluster))
    }

    /// From when on machines leave this hypervisor. `None`: they stay.
    pub fn empties_from(&self, cluster: &ClusterName, hypervisor: &str) -> Option<Timestamp> {
        let inventory = self.inventories.get(cluster);
        let facts = inventory.and_then(|it| it.hypervisors.get(hypervisor));
        self.clusters.get(cluster)?.empties_from(hypervisor, facts)
    }

    /// The claim says that its removal has begun, or is about to say so.
    pub(crate) fn removal_has_begun(&self, name: &ClaimName, claim: &ClaimFacts) -> bool {
        claim.status.phase > Phase::Initialized
            || claim.deleting_since.is_some()
            || self.host.removing.contains_key(name)
    }

    /// From when on a removal that has begun takes no place in its pool's budget. `None`: as long as it is under way.
    pub(crate) fn gives_place_back(
        &self,
        name: &ClaimName,
        claim: &ClaimFacts,
        ledger: &LedgerFacts,
    ) -> Option<Timestamp> {
        // kproxide takes its finalizer off once the VM is proven gone. If a person has done it, the VM still counts.
        let counts = |entry: &LedgerEntry| entry.claim == *name && entry.counts();
        let is_over = claim.deleting_since.is_some() && !claim.has_finalizer;
        if is_over && !ledger.entries.iter().any(counts) {
            return claim.deleting_since;
        }
        let runs_nothing = self.node_of(claim).is_none_or(|node| node.is_empty());
        claim.status.gives_place_back().filter(|_| runs_nothing)
    }

    pub fn host(&self) -> &HostFacts {
        &self.host
    }

    /// The plan for this moment, if nothing has changed since it was made.
    pub(crate) fn settled_plan(&self, now: Timestamp) -> Option<&Plan> {
        self.settled.as_deref().filter(|plan| plan.holds_at(now))
    }

    pub(crate) fn decorations(&self) -> &BTreeMap<(PoolName, InstanceTypeName), DecorationMemo> {
        &self.decorations
    }
}

/// If there is one and no more.
fn only(mut nodes: Vec<NodeView<'_>>) -> Option<NodeView<'_>> {
    let last = nodes.pop();
    last.filter(|_| nodes.is_empty())
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<Box<V>>) {
    match value {
        Some(value) => map.insert(key, *value),
        None => map.remove(&key),
    };
}

/// What is attached to each Node (by its VolumeAttachments), and the CSI drivers that did it.
pub(crate) type Attached<'w> = BTreeMap<&'w NodeName, BTreeSet<(&'w Arc<str>, &'w Arc<str>)>>;

#[cfg(test)]
mod tests;
