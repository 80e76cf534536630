//! What real Nodes have shown of what the next machine brings. Nodes that are there come first. Before the first of them
//! the rows count that the NodeClass's status keeps ([`crate::learned`]).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Planning;
use super::claims::Stage;
use super::csi::Shown;
use super::machines::{promised, signed, size_of_claim};
use crate::facts::{ClassFacts, InstanceType, Labels, LearnedNode};
use crate::ids::{ClassName, InstanceTypeName};
use crate::resources::Resources;
use crate::world::{NodeView, World};

/// A type of another size is another one.
type TypeKey = (ClassName, InstanceTypeName, u64, u64);

/// Static pods count if they stand on so many of a type's last Nodes: two thirds.
const MOST: (usize, usize) = (2, 3);

/// What real Nodes have shown.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// What those of each instance type offer: the least of each resource.
    offered: BTreeMap<TypeKey, Resources>,
    /// What static pods of the type's Nodes ask.
    statics: BTreeMap<TypeKey, Resources>,
    csi: BTreeMap<ClassName, Shown>,
    nothing: Shown,
    /// Some pod has a volume. Otherwise no machine needs a count of them.
    has_volumes: bool,
}

impl Learned {
    /// What CSI drivers have said of the class's Nodes.
    pub(super) fn csi(&self, class: &ClassName) -> &Shown {
        self.csi.get(class).unwrap_or(&self.nothing)
    }

    /// How many volumes of each driver a machine with these labels will hold. Its template has so many disks.
    pub(super) fn volume_limits(
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

    /// What a machine of this type will offer: as the Nodes of its type and size do, before the first its size less the class's overhead.
    pub(super) fn allocatable(
        &self,
        class_name: &ClassName,
        class: &ClassFacts,
        size: &InstanceType,
        template_disk: u64,
    ) -> Resources {
        let milli_cores = u64::from(size.cores) * 1000;
        let key = (
            class_name.clone(),
            size.name.clone(),
            milli_cores,
            size.memory_bytes,
        );
        let statics = self.statics.get(&key).cloned().unwrap_or_default();
        if let Some(offered) = self.offered.get(&key) {
            return offered.minus(&statics);
        }
        let nominal = Resources {
            milli_cores: signed(milli_cores.saturating_sub(class.overhead_milli_cores)),
            memory_bytes: signed(
                size.memory_bytes
                    .saturating_sub(class.overhead_memory_bytes),
            ),
            ephemeral_bytes: signed(size.disk_bytes.unwrap_or(template_disk)),
            pods: i64::from(size.max_pods),
            extended: size.extended.extended.clone(),
        };
        nominal.minus(&statics)
    }

    fn lower(&mut self, key: TypeKey, offered: &Resources) {
        match self.offered.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(offered.clone());
            }
            Entry::Occupied(mut least) => least.get_mut().lower_to(offered),
        }
    }

    /// What Nodes have shown that may be gone: of a type that has none now, and of a class whose drivers say nothing now.
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
        let living: BTreeSet<TypeKey> = self.offered.keys().cloned().collect();
        // A driver that the newest Node lacks may be gone.
        let newest = rows.first();
        let recalls_csi =
            !self.csi.contains_key(name) && newest.is_some_and(|row| !row.csi.is_empty());
        for row in &rows {
            if !living.contains(&key(row))
                && let Some(offered) = row.allocatable()
            {
                self.lower(key(row), &offered);
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
            let sum = statics(&rows);
            if !sum.is_zero() {
                self.statics.insert(key, sum);
            }
        }
    }
}

/// What the static pods ask that stand on most of these Nodes, each as on the newest.
fn statics(rows: &[&LearnedNode]) -> Resources {
    let names: BTreeSet<&Arc<str>> = rows.iter().flat_map(|row| row.static_pods.keys()).collect();
    let mut sum = Resources::default();
    for name in names {
        let mut on = rows.iter().filter_map(|row| row.static_pod(name));
        let count = on.clone().count();
        if let Some(newest) = on.next()
            && count * MOST.1 >= rows.len() * MOST.0
        {
            sum.add(&newest);
        }
    }
    sum
}

/// Class and template are as they were when the Node came. Where Proxmox does not answer, the template counts as the same.
fn is_current(world: &World, class: &ClassFacts, row: &LearnedNode) -> bool {
    let inventories = world.inventories().values();
    let templates = inventories.filter_map(|inventory| inventory.templates.get(&class.template));
    let mut templates = templates.flatten().peekable();
    row.settings == class.digest
        && (templates.peek().is_none() || templates.any(|one| one.digest == *row.template.as_str()))
}

impl Planning<'_> {
    /// A Node's kubelet says what it offers before anything else is ready.
    pub(super) fn learn(&self) -> Learned {
        let mut learned = Learned {
            has_volumes: self.tick.world.has_volumes(),
            ..Learned::default()
        };
        for row in &self.rows {
            let spec = &row.claim.spec;
            if row.node.is_some_and(|node| node.csi().is_some()) {
                let shown = learned.csi.entry(spec.class.clone());
                shown.or_default().learn(row);
            }
            let offers = |node: &NodeView<'_>| node.facts.allocatable.milli_cores > 0;
            let Some(node) = row.node.filter(offers) else {
                continue;
            };
            let class = self.tick.world.classes().get(&spec.class);
            let offered = match (row.stage, class) {
                (Stage::Coming, Some(class)) => promised(node.facts, &size_of_claim(class, spec)),
                (Stage::Coming | Stage::Overdue | Stage::InService | Stage::Leaving, _) => {
                    node.facts.allocatable.clone()
                }
            };
            let key = (
                spec.class.clone(),
                spec.instance_type.clone(),
                spec.resources.milli_cores,
                spec.resources.memory_bytes,
            );
            learned.lower(key, &offered);
        }
        for (name, class) in self.tick.world.classes() {
            learned.recall(self.tick.world, name, class);
        }
        learned
    }
}
