//! What CSI drivers will say of a machine that is not there yet: how many volumes it holds, and which labels its Node gets.
//!
//! The Nodes of the class show it. Before the first one the NodeClass says it (`csi`), and for Proxmox's own driver a
//! default does.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::learned::is_most;
use crate::check::learned;
use crate::facts::{ClassFacts, Labels, LearnedNode, TopologyValue};
use crate::ids::{ClassName, InstanceTypeName, NodeName};
use crate::keys::{PROXMOX_CSI, PROXMOX_CSI_LIMIT, REGION, ZONE};
use crate::plan::report::Doubt;
use crate::planning::claims::stages::ClaimState;
use crate::planning::pods::fit::Rooms;

/// The driver's own default.
const PROXMOX_CSI_VOLUMES: u32 = 24;
/// `scsi0` to `scsi30`.
const SCSI_SLOTS: u32 = 31;

/// As Kubernetes has called such a limit.
const VOLUMES_OF: &str = "attachable-volumes-csi-";

/// What the Nodes of a class have shown. One alone does not speak for it: whoever is root there writes it.
#[derive(Clone, Debug, Default)]
pub(in crate::planning) struct Shown {
    /// The two smallest limits of each driver, ascending.
    limits: BTreeMap<Arc<str>, Vec<Limit>>,
    topology: BTreeMap<Arc<str>, Vec<(TopologyValue, usize)>>,
    /// Nodes of which a driver says something.
    nodes: usize,
}

/// What a driver says of this Node; without a number it sets none.
type Limit = (u32, NodeName, InstanceTypeName);
const NONE: u32 = u32::MAX;

impl Shown {
    /// Takes in what the drivers say of the Node of this claim.
    pub(in crate::planning) fn learn(&mut self, row: &ClaimState<'_>) {
        let Some((node, csi)) = row.node.and_then(|node| Some((node, node.csi()?))) else {
            return;
        };
        let spec = &row.claim.spec;
        for (name, driver) in &csi.drivers {
            self.limit(name, driver.limit, node.name(), &spec.instance_type);
        }
        let keys = csi.drivers.values().flat_map(|it| &it.topology_keys);
        let labels = learned::topology(keys, spec, node.name(), &node.facts.labels);
        self.label_as(labels.collect());
        self.nodes += usize::from(!csi.drivers.is_empty());
    }

    /// Takes in what the drivers said of a Node that is gone.
    pub(in crate::planning) fn recall(&mut self, row: &LearnedNode) {
        for (name, driver) in &row.csi {
            self.limit(name, driver.limit, &row.node, &row.instance_type);
        }
        let labels = row.csi.values().flat_map(|it| &it.topology);
        let labels =
            labels.filter_map(|(key, text)| Some((key.clone(), TopologyValue::read(text)?)));
        self.label_as(labels.collect());
        self.nodes += usize::from(!row.csi.is_empty());
    }

    fn limit(
        &mut self,
        driver: &Arc<str>,
        limit: Option<u32>,
        node: &NodeName,
        instance_type: &InstanceTypeName,
    ) {
        let least = self.limits.entry(driver.clone()).or_default();
        least.push((limit.unwrap_or(NONE), node.clone(), instance_type.clone()));
        least.sort_unstable();
        least.truncate(2);
    }

    /// Of one Node, however many drivers name a label.
    fn label_as(&mut self, labels: BTreeMap<Arc<str>, TopologyValue>) {
        for (key, value) in labels {
            let values = self.topology.entry(key).or_default();
            match values.iter_mut().find(|(known, _)| *known == value) {
                Some((_, count)) => *count += 1,
                None => values.push((value, 1)),
            }
        }
    }

    /// Drivers whose least limit is far below what the next machine is said to hold.
    pub(in crate::planning) fn doubts(&self, name: &ClassName, class: &ClassFacts) -> Vec<Doubt> {
        let own = own_limits(class, BTreeMap::new());
        let limits = self.limits.iter().filter_map(|(driver, least)| {
            let (amount, node, instance_type) = least.first()?;
            let nominal = believed(least, own.get(driver).copied())?;
            (u64::from(*amount) * 5 < u64::from(nominal) * 4).then(|| Doubt {
                class: name.clone(),
                instance_type: instance_type.clone(),
                node: node.clone(),
                resource: format!("{VOLUMES_OF}{driver}").into(),
                amount: (*amount).into(),
                nominal: nominal.into(),
                by_static_pods: false,
            })
        });
        limits.collect()
    }

    /// How many volumes of each driver a machine of the class will hold.
    pub(in crate::planning) fn limits(
        &self,
        class: &ClassFacts,
        labels: &Labels,
        template_disks: u32,
    ) -> BTreeMap<Arc<str>, u32> {
        let of_label = labels
            .get(PROXMOX_CSI_LIMIT)
            .and_then(|text| text.parse().ok());
        let usual: u32 = of_label.unwrap_or(PROXMOX_CSI_VOLUMES);
        let usual = usual.min(SCSI_SLOTS.saturating_sub(template_disks));
        let mut limits = own_limits(class, BTreeMap::from([(PROXMOX_CSI.into(), usual)]));
        for (driver, least) in &self.limits {
            if let Some(limit) = believed(least, limits.get(driver).copied()) {
                limits.insert(driver.clone(), limit);
            }
        }
        limits
    }

    /// The labels that drivers give to a Node with this name and these labels.
    pub(in crate::planning) fn label(&self, class: &ClassFacts, name: &str, labels: &mut Labels) {
        let settings = class.csi.iter().flat_map(|one| &one.topology);
        let shown = self.topology.iter().filter_map(|(key, values)| {
            let mut values = values.iter();
            let (value, _) = values.find(|(_, count)| is_most(*count, self.nodes))?;
            Some((key, value))
        });
        for (key, value) in settings.chain(shown) {
            let value = match value {
                TopologyValue::NodeName => Some(name.to_owned()),
                TopologyValue::Hypervisor => labels.get(ZONE).cloned(),
                TopologyValue::Cluster => labels.get(REGION).cloned(),
                TopologyValue::Same(value) => Some(value.to_string()),
            };
            if let Some(value) = value {
                labels.insert(key.to_string(), value);
            }
        }
    }
}

/// What the class says, over what is usual.
fn own_limits(class: &ClassFacts, mut limits: BTreeMap<Arc<str>, u32>) -> BTreeMap<Arc<str>, u32> {
    let settings = class.csi.iter();
    limits.extend(settings.filter_map(|one| Some((one.driver.clone(), one.limit?))));
    limits
}

/// The second smallest; of one Node alone no less than is known without it. `None`: no limit.
fn believed(least: &[Limit], own: Option<u32>) -> Option<u32> {
    let limit = match least {
        [(only, ..)] => (*only).max(own.unwrap_or(1)),
        [_, (second, ..), ..] => *second,
        [] => NONE,
    };
    (limit != NONE).then_some(limit)
}

/// How much room the class says that there is on a new Node.
pub(in crate::planning) fn rooms(class: &ClassFacts) -> Arc<Rooms> {
    let settings = class.csi.iter();
    let rooms = settings.filter_map(|one| Some((one.driver.clone(), one.capacity_bytes()?)));
    Arc::new(rooms.collect())
}
