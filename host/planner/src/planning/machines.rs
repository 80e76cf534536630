//! A machine as pods will see it: labels and taints of its Node, what it will offer, what DaemonSets will take of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::Planning;
use super::claims::Stage;
use super::csi::{self, Shown};
use super::fit::NodeProfile;
use crate::facts::{
    ClaimSpec, ClassFacts, InstanceType, Labels, NodeFacts, PodSpec, PoolFacts, Taint,
};
use crate::ids::{ClassName, HypervisorId, InstanceTypeName, PoolName};
use crate::keys;
use crate::question::Decoration;
use crate::resources::Resources;
use crate::world::{NodeView, World};

/// Stands for the name of a machine that has none yet; no object can have it.
pub(super) const NEW: &str = "(new)";

/// The labels that a claim asks for its Node. Precedence: ours, then the label policy's, then the pool's; of zone and region the policy's win.
pub(crate) fn claim_labels(
    claim: &str,
    pool_name: &PoolName,
    pool: &PoolFacts,
    class: &ClassFacts,
    size: &InstanceType,
    hypervisor: &HypervisorId,
    decoration: &Decoration,
) -> Labels {
    let mut labels = pool.labels.clone();
    labels.insert(keys::REGION.to_owned(), hypervisor.cluster.to_string());
    labels.insert(keys::ZONE.to_owned(), hypervisor.name.to_string());
    labels.extend(decoration.labels.clone());
    let ours = [
        (keys::INSTANCE_TYPE, size.name.as_str()),
        (keys::POOL, pool_name.as_str()),
        (keys::CLASS, pool.class.as_str()),
        (keys::TEMPLATE, &class.template),
        (keys::CLAIM, claim),
    ];
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// The pool's taints and the label policy's, each once.
pub(super) fn claim_taints(pool: &PoolFacts, decoration: &Decoration) -> Vec<Taint> {
    let mut all = pool.taints.clone();
    for taint in &decoration.taints {
        if !all.contains(taint) {
            all.push(taint.clone());
        }
    }
    all
}

/// A machine with these labels: its kubelet adds architecture, operating system (under their old names too) and host name.
pub(super) fn profile(
    name: &str,
    class: &ClassFacts,
    shown: &Shown,
    mut labels: Labels,
    taints: Vec<Taint>,
) -> NodeProfile<'static> {
    shown.label(class, name, &mut labels);
    for (key, value) in [
        (keys::ARCH, &*class.arch),
        (keys::BETA_ARCH, &*class.arch),
        (keys::OS, &*class.os),
        (keys::BETA_OS, &*class.os),
        (keys::HOSTNAME, name),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    NodeProfile {
        name: name.into(),
        labels: Cow::Owned(labels),
        taints: Cow::Owned(taints),
        cordoned: false,
        room: Some(csi::rooms(class)),
    }
}

/// The pods of the DaemonSets that will run on such a machine.
pub(super) fn daemons_on<'w>(world: &'w World, profile: &NodeProfile<'_>) -> Vec<&'w PodSpec> {
    let specs = world.daemon_sets().values().map(|set| &set.spec);
    specs
        .filter(|spec| profile.misfit(spec).is_none())
        .collect()
}

/// What these ask together.
pub(super) fn sum<'a>(specs: impl Iterator<Item = &'a PodSpec>) -> Resources {
    let mut total = Resources::default();
    for spec in specs {
        total.add(&spec.requests);
    }
    total
}

/// The instance type that a claim was made from. Whatever has become of the type, the machine has the size that its claim says.
pub(super) fn size_of_claim(class: &ClassFacts, spec: &ClaimSpec) -> InstanceType {
    let mut types = class.instance_types.iter();
    let named = types.find(|size| size.name == spec.instance_type);
    InstanceType {
        name: spec.instance_type.clone(),
        cores: u32::try_from(spec.resources.milli_cores / 1000).unwrap_or(u32::MAX),
        memory_bytes: spec.resources.memory_bytes,
        disk_bytes: spec.resources.disk_bytes,
        max_pods: named.map_or(110, |size| size.max_pods),
        extended: named.map(|size| size.extended.clone()).unwrap_or_default(),
    }
}

/// What a Node on its way into service offers: device plugins register their resources after the kubelet has said the rest.
pub(super) fn promised(node: &NodeFacts, size: &InstanceType) -> Resources {
    let mut offered = node.allocatable.clone();
    for (name, amount) in &size.extended.extended {
        if !offered.extended.contains_key(name) {
            offered.set_extended(name.clone(), *amount);
        }
    }
    offered
}

/// What real Nodes have shown.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// What those of each instance type offer: the least of each resource. A type of another size is another one.
    offered: BTreeMap<(ClassName, InstanceTypeName, u64, u64), Resources>,
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
        if let Some(offered) = self.offered.get(&key) {
            return offered.clone();
        }
        Resources {
            milli_cores: signed(milli_cores.saturating_sub(class.overhead_milli_cores)),
            memory_bytes: signed(
                size.memory_bytes
                    .saturating_sub(class.overhead_memory_bytes),
            ),
            ephemeral_bytes: signed(size.disk_bytes.unwrap_or(template_disk)),
            pods: i64::from(size.max_pods),
            extended: size.extended.extended.clone(),
        }
    }
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
            match learned.offered.entry(key) {
                Entry::Vacant(vacant) => {
                    vacant.insert(offered);
                }
                Entry::Occupied(mut least) => least.get_mut().lower_to(&offered),
            }
        }
        learned
    }
}

pub(super) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
