//! What the Nodes of a class show now, and which of it is kept.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::claim::Condition;
use crate::facts::{
    Amounts, ClaimFacts, ClaimSpec, ClassFacts, CsiNodeFacts, Labels, LearnedDriver, LearnedNode,
    TopologyValue,
};
use crate::ids::{ClassName, InstanceTypeName, NodeName};
use crate::keys::{HOSTNAME, REGION, ZONE};
use crate::world::{NodeView, PodView, World};

/// Rows of each instance type and size.
pub const KEPT: usize = 5;

/// What the Nodes of the class that came into service last show: at most [`KEPT`] of each type and size.
pub fn shown(world: &World, name: &ClassName, class: &ClassFacts) -> Vec<LearnedNode> {
    let claims = world.claims().values();
    let of_class = claims.filter(|claim| claim.spec.class == *name && claim.spec.adopts.is_none());
    let mut served: Vec<_> = of_class
        .filter_map(|claim| Some((claim.status.since(Condition::Initialized)?, claim)))
        .collect();
    served.sort_by_key(|(since, _)| Reverse(*since));
    let mut few = Few::default();
    let rows = served.into_iter().filter_map(|(since, claim)| {
        let key = &claim.spec.instance_type;
        let size = &claim.spec.resources;
        let node = world.node_of(claim).filter(shows)?;
        few.is_one(key, size.milli_cores, size.memory_bytes)
            .then(|| row(world, class, claim, &node, since))
    });
    rows.collect()
}

/// Its kubelet works, and has said what the Node offers.
fn shows(node: &NodeView<'_>) -> bool {
    node.facts.ready && node.facts.allocatable.milli_cores > 0
}

/// Counts rows of each type and size.
#[derive(Default)]
struct Few(BTreeMap<(InstanceTypeName, u64, u64), usize>);

impl Few {
    /// It is one of the first [`KEPT`].
    fn is_one(&mut self, name: &InstanceTypeName, milli_cores: u64, memory_bytes: u64) -> bool {
        let key = (name.clone(), milli_cores, memory_bytes);
        let count = self.0.entry(key).or_default();
        *count += 1;
        *count <= KEPT
    }
}

/// These rows and those of the Nodes in service. The last [`KEPT`] of each type and size stay. A row that is here keeps
/// its digests: they are those of the time when its Node came.
pub fn kept(
    stored: Vec<LearnedNode>,
    class: &ClassFacts,
    now: Vec<LearnedNode>,
) -> Vec<LearnedNode> {
    let mut rows: BTreeMap<NodeName, LearnedNode> = BTreeMap::new();
    for row in stored {
        rows.insert(row.node.clone(), row);
    }
    for mut row in now {
        if let Some(before) = rows
            .get(&row.node)
            .filter(|before| before.since == row.since)
        {
            row.template = before.template.clone();
            row.settings = before.settings.clone();
            // A device that fails is no property of the type.
            keep_devices(&mut row.allocatable, &before.allocatable);
        }
        rows.insert(row.node.clone(), row);
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    // A class that cannot be read says nothing about its types.
    rows.retain(|row| {
        let mut types = class.instance_types.iter();
        let is_offered = types.any(|one| {
            (&one.name, one.cores, one.memory_bytes())
                == (&row.instance_type, row.cores, row.memory_bytes)
        });
        class.problem.is_some() || (is_offered && row.settings == class.digest)
    });
    rows.sort_by(|a, b| (b.since, &a.node).cmp(&(a.since, &b.node)));
    let mut few = Few::default();
    rows.retain(|row| {
        few.is_one(
            &row.instance_type,
            u64::from(row.cores) * 1000,
            row.memory_bytes,
        )
    });
    rows
}

/// Extended resources are a Node's devices.
fn keep_devices(amounts: &mut Amounts, before: &Amounts) {
    for (name, amount) in before.iter().filter(|(name, _)| name.contains('/')) {
        let parsed = |text: &String| text.parse::<i64>().unwrap_or(0);
        let now = amounts.get(name).map_or(0, parsed);
        if now < parsed(amount) {
            amounts.insert(name.clone(), amount.clone());
        }
    }
}

/// Keys of labels that decide where DaemonSets run.
fn daemon_keys(world: &World) -> BTreeSet<&str> {
    let specs = world.daemon_sets().values().map(|set| &set.spec);
    let keys = specs.flat_map(|spec| {
        let terms = spec.node_affinity.iter().flatten();
        let expressions = terms.flat_map(|term| &term.match_expressions);
        let selected = spec.node_selector.keys().map(String::as_str);
        selected.chain(expressions.map(|requirement| &*requirement.key))
    });
    keys.collect()
}

fn row(
    world: &World,
    class: &ClassFacts,
    claim: &ClaimFacts,
    node: &NodeView<'_>,
    since: Timestamp,
) -> LearnedNode {
    let spec = &claim.spec;
    let suffix = format!("-{}", node.name());
    let mirrors = node.pods().filter(PodView::is_mirror);
    let static_pods = mirrors.map(|pod| {
        let name = pod.name();
        let name = name
            .strip_suffix(&suffix)
            .map_or_else(|| name.clone(), Arc::from);
        (name, pod.spec().requests.quantities())
    });
    let csi = node.csi().map(|csi| drivers(csi, spec, node));
    let keys = daemon_keys(world);
    let labels = node.facts.labels.iter();
    let labels = labels.filter(|(key, _)| {
        keys.contains(key.as_str()) && !spec.labels.contains_key(*key) && *key != HOSTNAME
    });
    LearnedNode {
        node: node.name().clone(),
        since,
        instance_type: spec.instance_type.clone(),
        cores: u32::try_from(spec.resources.milli_cores / 1000).unwrap_or(u32::MAX),
        memory_bytes: spec.resources.memory_bytes,
        template: spec.template_digest.clone(),
        settings: class.digest.clone(),
        allocatable: node.facts.allocatable.quantities(),
        static_pods: static_pods.collect(),
        labels: labels
            .map(|(key, value)| (key.as_str().into(), value.clone()))
            .collect(),
        csi: csi.unwrap_or_default(),
    }
}

fn drivers(
    csi: &CsiNodeFacts,
    spec: &ClaimSpec,
    node: &NodeView<'_>,
) -> BTreeMap<Arc<str>, LearnedDriver> {
    let drivers = csi.drivers.iter().map(|(name, driver)| {
        let keys = driver.topology_keys.iter();
        let topology = topology(keys, spec, node.name(), &node.facts.labels);
        let learned = LearnedDriver {
            limit: driver.limit,
            topology: topology
                .map(|(key, value)| (key, value.to_string()))
                .collect(),
        };
        (name.clone(), learned)
    });
    drivers.collect()
}

/// What the values of a driver's labels stand for. Kubernetes and kproxide set hostname, zone and region themselves.
pub(crate) fn topology<'a>(
    keys: impl Iterator<Item = &'a Arc<str>> + 'a,
    spec: &'a ClaimSpec,
    node: &'a NodeName,
    labels: &'a Labels,
) -> impl Iterator<Item = (Arc<str>, TopologyValue)> + 'a {
    let others = keys.filter(|key| ![HOSTNAME, ZONE, REGION].contains(&&***key));
    others.filter_map(move |key| {
        let value = match labels.get(&**key)?.as_str() {
            value if *value == *node.0 => TopologyValue::NodeName,
            value if *value == *spec.hypervisor => TopologyValue::Hypervisor,
            value if *value == *spec.cluster.as_str() => TopologyValue::Cluster,
            value => TopologyValue::Same(value.into()),
        };
        Some((key.clone(), value))
    })
}
