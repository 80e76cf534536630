//! What real Nodes have shown of what the next machine brings. Nodes that are there come first. Before the first of them
//! the rows count that the NodeClass's status keeps ([`crate::check::learned`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::believed;
use super::csi::Shown;
use crate::check::learned::KEPT;
use crate::claim::Condition;
use crate::facts::{ClaimSpec, ClassFacts, InstanceType, Labels, LearnedNode, PodSpec};
use crate::ids::{ClassName, InstanceTypeName, NodeName, ObjectKey};
use crate::keys::REVISION;
use crate::kubernetes::resources::{Resources, is_huge_pages};
use crate::plan::report::Doubt;
use crate::planning::Planning;
use crate::planning::claims::stages::Stage;
use crate::planning::machines::shape::{self, promised, signed, size_of_claim};
use crate::planning::pods::fit::NodeProfile;
use crate::time::later;
use crate::world::{NodeView, PodView, World};

/// A type of another size is another one.
pub(in crate::planning) type TypeKey = (ClassName, InstanceTypeName, u64, u64);

/// What static pods ask, and labels that come after the join, count if so many of a type's last Nodes have them: two
/// thirds.
const MOST: (usize, usize) = (2, 3);

/// The least that so many of the last Nodes of a type offer is what the next one will offer.
const LAST: usize = 3;

/// After this time a machine is tried again though its type has offered too little.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_hours(6);

/// What an image's other partitions and its filesystem take of a disk, as a rule.
const IMAGE_BYTES: u64 = 1 << 30;

/// A Node in service, or one that was.
#[derive(Clone, Debug)]
pub(in crate::planning) struct Seen {
    pub(in crate::planning) node: NodeName,
    since: Timestamp,
    pub(in crate::planning) offered: Resources,
}

/// Which Node has taught how little its type offers.
pub(in crate::planning) struct Teacher {
    pub(in crate::planning) node: NodeName,
    pub(in crate::planning) since: Timestamp,
    /// One machine is tried again.
    pub(in crate::planning) again: Timestamp,
}

/// What real Nodes have shown.
#[derive(Debug, Default)]
pub(in crate::planning) struct Learned {
    /// What those of each instance type offer: the least of each resource that is believed.
    offered: BTreeMap<TypeKey, Resources>,
    /// What is not believed.
    pub(in crate::planning) doubts: Vec<Doubt>,
    /// The last of each instance type, the newest first.
    seen: BTreeMap<TypeKey, Vec<Seen>>,
    /// Types of which a machine is on its way, and what their Nodes show, if they are there.
    coming: BTreeMap<TypeKey, Vec<Seen>>,
    /// Labels that the Nodes of each type get from others after they have joined.
    labels: BTreeMap<TypeKey, Labels>,
    /// What the pods of DaemonSets ask: as their templates, or more where something adds to them.
    daemons: Vec<(ObjectKey, PodSpec)>,
    /// What static pods of the type's Nodes ask.
    statics: BTreeMap<TypeKey, Resources>,
    csi: BTreeMap<ClassName, Shown>,
    nothing: Shown,
    /// Some pod has a volume. Otherwise no machine needs a count of them.
    has_volumes: bool,
}

impl Learned {
    /// What CSI drivers have said of the class's Nodes.
    pub(in crate::planning) fn csi(&self, class: &ClassName) -> &Shown {
        self.csi.get(class).unwrap_or(&self.nothing)
    }

    /// How many volumes of each driver a machine with these labels will hold. Its template has so many disks.
    pub(in crate::planning) fn volume_limits(
        &self,
        name: &ClassName,
        class: &ClassFacts,
        labels: &Labels,
        template_disks: u32,
    ) -> BTreeMap<Arc<str>, u32> {
        match self.has_volumes {
            true => self.csi(name).limits(class, labels, template_disks),
            false => BTreeMap::new(),
        }
    }

    /// What a machine of this type will offer: as the last Nodes of its type and size do, before the first its size less
    /// the class's overhead.
    pub(in crate::planning) fn allocatable(
        &self,
        class_name: &ClassName,
        class: &ClassFacts,
        size: &InstanceType,
        template_disk: u64,
    ) -> Resources {
        let key = type_key(class_name, size);
        match self.offered.get(&key) {
            Some(offered) => self.beside_statics(&key, offered.clone()),
            None => self.nominal(class_name, class, size, template_disk),
        }
    }

    /// The same by its size, whatever its last Nodes offer.
    pub(in crate::planning) fn nominal(
        &self,
        class_name: &ClassName,
        class: &ClassFacts,
        size: &InstanceType,
        template_disk: u64,
    ) -> Resources {
        let nominal = nominal(class, size, template_disk);
        self.beside_statics(&type_key(class_name, size), nominal)
    }

    /// What the static pods of the type leave.
    fn beside_statics(&self, key: &TypeKey, amounts: Resources) -> Resources {
        match self.statics.get(key) {
            Some(statics) => amounts.minus(statics),
            None => amounts,
        }
    }

    /// The Node of the type that offers least of this resource.
    pub(in crate::planning) fn teacher(
        &self,
        class: &ClassName,
        size: &InstanceType,
        resource: &str,
    ) -> Option<Teacher> {
        let key = type_key(class, size);
        let seen = self.seen.get(&key)?;
        let newest = seen.first()?;
        let believed = self.offered.get(&key)?.amount(resource);
        let nodes = seen.iter().map(|it| (it.offered.amount(resource), it));
        let (_, least) = nodes
            .filter(|(amount, _)| *amount >= believed)
            .min_by_key(|(amount, _)| *amount)?;
        Some(Teacher {
            node: least.node.clone(),
            since: least.since,
            again: later(newest.since, TRIED_AGAIN),
        })
    }

    /// A machine of this type may be tried as if it offered its nominal size: the last one came long ago.
    pub(in crate::planning) fn is_tried_again(
        &self,
        class: &ClassName,
        size: &InstanceType,
        now: Timestamp,
    ) -> bool {
        let key = type_key(class, size);
        let newest = self.seen.get(&key).and_then(|seen| seen.first());
        let is_due = newest.is_some_and(|newest| now >= later(newest.since, TRIED_AGAIN));
        is_due && !self.coming.contains_key(&key)
    }

    /// What the DaemonSets' pods ask that will run on such a machine.
    pub(in crate::planning) fn daemons_on(
        &self,
        class: &ClassName,
        size: &InstanceType,
        profile: &NodeProfile<'_>,
    ) -> Vec<&PodSpec> {
        let sets = self.daemon_sets_on(class, size, profile).into_iter();
        sets.map(|(_, spec)| spec).collect()
    }

    /// The same, with their names.
    pub(in crate::planning) fn daemon_sets_on(
        &self,
        class: &ClassName,
        size: &InstanceType,
        profile: &NodeProfile<'_>,
    ) -> Vec<(&ObjectKey, &PodSpec)> {
        let mut later = profile.clone();
        for (key, value) in self
            .labels
            .get(&type_key(class, size))
            .into_iter()
            .flatten()
        {
            let labels = later.labels.to_mut();
            labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let daemons = self.daemons.iter().map(|(key, spec)| (key, spec));
        daemons
            .filter(|(_, spec)| later.misfit(spec).is_none())
            .collect()
    }

    /// The least of the Nodes that come and of the last ones in service, of those that are there and those that are
    /// gone.
    fn lower_to_last(&mut self, world: &World) {
        let mut all = std::mem::take(&mut self.seen);
        for seen in all.values_mut() {
            seen.sort_by(|a, b| (b.since, &a.node).cmp(&(a.since, &b.node)));
            seen.dedup_by(|b, a| {
                let is_same = a.node == b.node;
                if is_same {
                    // What is kept of a Node knows of devices that it has lost.
                    for (name, amount) in &b.offered.extended {
                        let most = a.offered.extended(name).max(*amount);
                        a.offered.set_extended(name.clone(), most);
                    }
                }
                is_same
            });
            seen.truncate(LAST);
        }
        let keys: BTreeSet<&TypeKey> = all.keys().chain(self.coming.keys()).collect();
        for key in keys {
            let nodes = [all.get(key), self.coming.get(key)];
            let nodes: Vec<Seen> = nodes.into_iter().flatten().flatten().cloned().collect();
            let nominal = nominal_of(world, key);
            if let Some(least) = believed::least(key, &nodes, &nominal, &mut self.doubts) {
                self.offered.insert(key.clone(), least);
            }
        }
        self.seen = all;
    }

    /// What Nodes have shown that may be gone.
    fn recall(&mut self, world: &World, name: &ClassName, class: &ClassFacts) {
        let rows: Vec<_> = class
            .learned
            .iter()
            .filter(|row| is_current(world, class, row))
            .collect();
        let key = |row: &LearnedNode| {
            let cores = u64::from(row.cores) * 1000;
            (
                name.clone(),
                row.instance_type.clone(),
                cores,
                row.memory_bytes,
            )
        };
        // A driver that the newest Node lacks may be gone.
        let newest = rows.first();
        let recalls_csi =
            !self.csi.contains_key(name) && newest.is_some_and(|row| !row.csi.is_empty());
        for row in &rows {
            if let Some(offered) = row.allocatable() {
                let (node, since) = (row.node.clone(), row.since);
                let seen = self.seen.entry(key(row)).or_default();
                seen.push(Seen {
                    node,
                    since,
                    offered,
                });
            }
            if recalls_csi && !row.csi.is_empty() {
                self.csi.entry(name.clone()).or_default().recall(row);
            }
        }
        let mut of_type: BTreeMap<TypeKey, Vec<&LearnedNode>> = BTreeMap::new();
        for row in rows {
            of_type.entry(key(row)).or_default().push(row);
        }
        for (key, rows) in of_type {
            let (nominal, is_most) = (nominal_of(world, &key), |count| is_most(count, rows.len()));
            let sum = believed::statics(&key, &rows, &nominal, is_most, &mut self.doubts);
            if !sum.is_zero() {
                self.statics.insert(key.clone(), sum);
            }
            let labels = later_labels(&rows);
            if !labels.is_empty() {
                self.labels.insert(key, labels);
            }
        }
    }
}

pub(in crate::planning) fn is_most(count: usize, all: usize) -> bool {
    count * MOST.1 >= all * MOST.0
}

/// Labels that most of these Nodes have, with one value.
fn later_labels(rows: &[&LearnedNode]) -> Labels {
    let mut counts: BTreeMap<(&Arc<str>, &String), usize> = BTreeMap::new();
    for label in rows.iter().flat_map(|row| &row.labels) {
        *counts.entry(label).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .filter(|(_, count)| is_most(*count, rows.len()));
    most.map(|((key, value), _)| (key.to_string(), value.clone()))
        .collect()
}

fn type_key(class: &ClassName, size: &InstanceType) -> TypeKey {
    let milli_cores = u64::from(size.cores) * 1000;
    (
        class.clone(),
        size.name.clone(),
        milli_cores,
        size.memory_bytes(),
    )
}

/// The size of a type less the class's overhead, and less what every kubelet takes off it: huge pages are no memory, and
/// the last tenth of a disk is kept back (`nodefs.available<10%`).
fn nominal(class: &ClassFacts, size: &InstanceType, template_disk: u64) -> Resources {
    let milli_cores = u64::from(size.cores) * 1000;
    let memory_bytes = size.memory_bytes();
    let memory_bytes = signed(memory_bytes.saturating_sub(class.overhead.memory_bytes()));
    let extended: BTreeMap<_, _> = size
        .extended()
        .map(|(name, count)| (name.clone(), count))
        .collect();
    let huge_pages = extended.iter().filter(|(name, _)| is_huge_pages(name));
    let huge_pages = huge_pages.fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let disk_bytes = size.disk_bytes().unwrap_or(template_disk);
    let disk_bytes = disk_bytes.saturating_sub(IMAGE_BYTES);
    Resources {
        milli_cores: signed(milli_cores.saturating_sub(class.overhead.milli_cores())),
        memory_bytes: memory_bytes.saturating_sub(huge_pages).max(0),
        ephemeral_bytes: signed(disk_bytes - disk_bytes.div_ceil(10)),
        pods: i64::from(size.max_pods),
        extended,
    }
}

/// What the class's status keeps of this type.
fn rows_of<'w>(world: &'w World, key: &TypeKey) -> Vec<&'w LearnedNode> {
    let (class, name, milli_cores, memory_bytes) = key;
    let Some(class) = world.classes().get(class) else {
        return Vec::new();
    };
    let rows = class.learned.iter().filter(|row| {
        let size = (u64::from(row.cores) * 1000, row.memory_bytes);
        row.instance_type == *name && size == (*milli_cores, *memory_bytes)
    });
    rows.filter(|row| is_current(world, class, row)).collect()
}

/// By its size, as far as that is known of a type that may have gone from its class.
fn nominal_of(world: &World, (class, name, milli_cores, memory_bytes): &TypeKey) -> Resources {
    let class = world.classes().get(class);
    let size = class.and_then(|class| {
        let mut types = class.instance_types.iter();
        types.find(|it| {
            (&it.name, u64::from(it.cores) * 1000, it.memory_bytes())
                == (name, *milli_cores, *memory_bytes)
        })
    });
    match class.zip(size) {
        Some((class, size)) => {
            let disks = world.all_templates(class).map(|it| it.boot_bytes());
            nominal(class, size, disks.min().unwrap_or(0))
        }
        None => Resources {
            milli_cores: signed(*milli_cores),
            memory_bytes: signed(*memory_bytes),
            ..Resources::default()
        },
    }
}

/// What a DaemonSet's pods ask: each resource as its template, or as its pods of the newest revision where that is more.
/// Something may add a container or a default to each of them.
fn daemons(world: &World) -> Vec<(ObjectKey, PodSpec)> {
    if world.daemon_sets().is_empty() {
        return Vec::new();
    }
    let mut of_set: BTreeMap<ObjectKey, Vec<PodView<'_>>> = BTreeMap::new();
    let on_nodes = world.nodes().flat_map(|node| node.pods());
    let pending = world.pending().into_iter();
    let pending = pending.flat_map(|(_, pods)| pods.iter());
    for pod in on_nodes.chain(pending) {
        if pod.is_of_daemon_set()
            && pod.is_alive()
            && let Some(owner) = pod.owner()
        {
            let key = ObjectKey::new(pod.namespace(), &owner.name);
            of_set.entry(key).or_default().push(pod);
        }
    }
    let specs = world.daemon_sets().iter().map(|(key, set)| {
        let mut spec = set.spec.clone();
        let pods = of_set.get(key).map_or(&[][..], Vec::as_slice);
        let revision = |pod: &PodView<'_>| pod.labels().get(REVISION).cloned();
        let newest = pods.iter().max_by_key(|pod| (pod.created(), pod.name()));
        let newest = newest.and_then(revision);
        for pod in pods.iter().filter(|pod| revision(pod) == newest) {
            spec.requests.raise_to(&pod.spec().requests);
        }
        (key.clone(), spec)
    });
    specs.collect()
}

/// When the last Node of this type and size came into service of which the class's status knows.
fn newest_kept(class: &ClassFacts, spec: &ClaimSpec) -> Option<Timestamp> {
    let of_type = class.learned.iter().filter(|kept| {
        kept.instance_type == spec.instance_type
            && u64::from(kept.cores) * 1000 == spec.resources.milli_cores
            && kept.memory_bytes == spec.resources.memory_bytes
    });
    of_type.map(|kept| kept.since).max()
}

/// Class and template are as they were when the Node came. Where Proxmox does not answer, the template counts as the same.
fn is_current(world: &World, class: &ClassFacts, row: &LearnedNode) -> bool {
    let mut templates = world.all_templates(class).peekable();
    row.settings == class.digest
        && (templates.peek().is_none() || templates.any(|one| one.digest == *row.template.as_str()))
}

impl Planning<'_> {
    /// A Node's kubelet says what it offers before anything else is ready.
    pub(in crate::planning) fn learn(&self) -> Learned {
        let mut learned = Learned {
            has_volumes: self.tick.world.has_volumes(),
            daemons: daemons(self.tick.world),
            ..Learned::default()
        };
        let mut new_nodes: BTreeMap<TypeKey, Vec<(Option<Timestamp>, &NodeView<'_>)>> =
            BTreeMap::new();
        for row in &self.rows {
            let spec = &row.claim.spec;
            let key = (
                spec.class.clone(),
                spec.instance_type.clone(),
                spec.resources.milli_cores,
                spec.resources.memory_bytes,
            );
            if row.stage == Stage::Coming {
                learned.coming.entry(key.clone()).or_default();
            }
            if row.node.is_some_and(|node| node.csi().is_some()) {
                let shown = learned.csi.entry(spec.class.clone());
                shown.or_default().learn(row);
            }
            let offers = |node: &NodeView<'_>| node.facts.allocatable.milli_cores > 0;
            let Some(node) = row.node.as_ref().filter(|node| offers(node)) else {
                continue;
            };
            let served = row.claim.status.since(Condition::Initialized);
            let class = self.tick.world.classes().get(&spec.class);
            let is_new = match row.stage {
                Stage::Coming => true,
                // The class's status keeps the newest of a type. What it does not keep any more is older.
                Stage::InService => {
                    let newest = class.and_then(|class| newest_kept(class, spec));
                    served > newest
                }
                Stage::Overdue | Stage::Leaving => false,
            };
            if is_new {
                let nodes = new_nodes.entry(key.clone()).or_default();
                nodes.push((served, node));
            }
            let (nodes, offered) = match (row.stage, class) {
                (Stage::Coming, Some(class)) => (
                    &mut learned.coming,
                    promised(node.facts, &size_of_claim(class, spec)),
                ),
                (Stage::Coming | Stage::Overdue | Stage::InService | Stage::Leaving, _) => {
                    (&mut learned.seen, node.facts.allocatable.clone())
                }
            };
            nodes.entry(key).or_default().push(Seen {
                node: node.name().clone(),
                since: served.unwrap_or(row.claim.created),
                offered,
            });
        }
        for (name, class) in self.tick.world.classes() {
            learned.recall(self.tick.world, name, class);
        }
        // Before the class's status knows the Node, no other machine is made for pods that do not fit beside them.
        for (key, mut nodes) in new_nodes {
            // All Nodes on their way count. Of those in service, which come first, only as many count as the status keeps.
            nodes.sort_by_key(|(served, _)| Reverse(*served));
            let nodes = nodes.into_iter().enumerate();
            let counting = nodes.filter(|(place, (served, _))| *place < KEPT || served.is_none());
            let sums = counting.map(|(_, (_, node))| {
                let statics = node.pods();
                let statics = statics.filter(|pod| pod.is_alive() && pod.is_mirror());
                (
                    node.name().clone(),
                    shape::sum(statics.map(|pod| pod.spec())),
                )
            });
            let sums: Vec<(NodeName, Resources)> = sums.collect();
            let world = self.tick.world;
            let rows = rows_of(world, &key);
            let nominal = nominal_of(world, &key);
            let statics = believed::new_statics(&key, &sums, &rows, &nominal, &mut learned.doubts);
            if !statics.is_zero() {
                let known = learned.statics.entry(key).or_default();
                known.raise_to(&statics);
            }
        }
        learned.lower_to_last(self.tick.world);
        for (name, shown) in &learned.csi {
            if let Some(class) = self.tick.world.classes().get(name) {
                learned.doubts.extend(shown.doubts(name, class));
            }
        }
        learned
    }
}
