//! What CSI drivers will say of a machine that is not there yet: how many volumes it holds, and which labels its Node gets.
//!
//! The Nodes of the class show it. Before the first one the NodeClass says it (`csi`), and for Proxmox's own driver a
//! default does.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claims::ClaimState;
use super::fit::Rooms;
use crate::facts::{ClassFacts, Labels, LearnedNode, TopologyValue};
use crate::keys::{PROXMOX_CSI, PROXMOX_CSI_LIMIT, REGION, ZONE};
use crate::learned;

/// The driver's own default.
const PROXMOX_CSI_VOLUMES: u32 = 24;
/// `scsi0` to `scsi30`.
const SCSI_SLOTS: u32 = 31;

/// What the Nodes of a class have shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// The smallest limit of each driver.
    limits: BTreeMap<Arc<str>, u32>,
    /// `None`: Nodes differ in a way that tells nothing about the next one.
    topology: BTreeMap<Arc<str>, Option<TopologyValue>>,
}

impl Shown {
    /// Takes in what the drivers say of the Node of this claim.
    pub(super) fn learn(&mut self, row: &ClaimState<'_>) {
        let Some((node, csi)) = row.node.and_then(|node| Some((node, node.csi()?))) else {
            return;
        };
        for (name, driver) in &csi.drivers {
            self.limit(name, driver.limit);
            let keys = driver.topology_keys.iter();
            let labels = &node.facts.labels;
            for (key, value) in learned::topology(keys, &row.claim.spec, node.name(), labels) {
                self.label_as(&key, value);
            }
        }
    }

    /// Takes in what the drivers said of a Node that is gone.
    pub(super) fn recall(&mut self, row: &LearnedNode) {
        for (name, driver) in &row.csi {
            self.limit(name, driver.limit);
            for (key, text) in &driver.topology {
                if let Some(value) = TopologyValue::read(text) {
                    self.label_as(key, value);
                }
            }
        }
    }

    fn limit(&mut self, driver: &Arc<str>, limit: Option<u32>) {
        if let Some(limit) = limit {
            let least = self.limits.entry(driver.clone()).or_insert(limit);
            *least = limit.min(*least);
        }
    }

    fn label_as(&mut self, key: &Arc<str>, value: TopologyValue) {
        let known = self.topology.entry(key.clone());
        let known = known.or_insert_with(|| Some(value.clone()));
        if *known != Some(value) {
            *known = None;
        }
    }

    /// How many volumes of each driver a machine of the class will hold.
    pub(super) fn limits(
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
        let mut limits = BTreeMap::from([(PROXMOX_CSI.into(), usual)]);
        let settings = class.csi.iter();
        limits.extend(settings.filter_map(|one| Some((one.driver.clone(), one.limit?))));
        limits.extend(self.limits.clone());
        limits
    }

    /// The labels that drivers give to a Node with this name and these labels.
    pub(super) fn label(&self, class: &ClassFacts, name: &str, labels: &mut Labels) {
        let settings = class.csi.iter().flat_map(|one| &one.topology);
        let shown = self.topology.iter();
        let shown = shown.filter_map(|(key, value)| Some((key, value.as_ref()?)));
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

/// How much room the class says that there is on a new Node.
pub(super) fn rooms(class: &ClassFacts) -> Arc<Rooms> {
    let settings = class.csi.iter();
    let rooms = settings.filter_map(|one| Some((one.driver.clone(), one.capacity_bytes?)));
    Arc::new(rooms.collect())
}
