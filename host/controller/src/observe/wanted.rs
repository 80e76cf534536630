//! What the pools ask of each cluster, and what its credentials lack for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kproxide_planner::facts::{Interface, Join, TemplateChoice};
use kproxide_planner::ids::ClusterName;
use kproxide_planner::world::World;

use super::Lookups;
use kproxide_pve::preflight::{Missing, Scope, network_paths};

/// Privileges that the credentials of a cluster do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub message: String,
    /// For a root shell on any of its servers.
    pub commands: Vec<String>,
}

impl Lacking {
    /// `None`: nothing is missing.
    pub fn of(gaps: &[Missing]) -> Option<Self> {
        let texts: Vec<String> = gaps.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| Self {
            message: format!(
                "the credentials may not do what machines need. {}",
                texts.join("; ")
            ),
            commands: gaps.iter().flat_map(|gap| gap.pveum.clone()).collect(),
        })
    }
}

/// What the classes of pools want of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// And whether there is one per hypervisor.
    pub templates: BTreeSet<(TemplateChoice, bool)>,
    /// The network interfaces that classes describe, each with the template of their clones.
    pub interfaces: BTreeSet<(TemplateChoice, Interface)>,
    /// Machines of one of them join through the guest agent.
    pub guest_exec: bool,
}

impl Wanted {
    /// What the credentials must be allowed for it, as far as that is known without a look at the templates.
    pub fn scope(&self, pool: &str, templates: &Lookups, vnets: &BTreeSet<Arc<str>>) -> Scope {
        let known = templates.values().flatten();
        let known = known.filter(|template| template.vmid.0 > 0);
        Scope {
            pool: Some(pool.to_owned()),
            memory_hotplug: known.clone().any(|template| template.hotplugs_memory),
            templates: known.map(|template| template.vmid.0).collect(),
            guest_exec: self.guest_exec,
            networks: self.networks(templates, vnets),
            ..Scope::default()
        }
    }

    /// What a clone and its change take of plain bridges: the interfaces of the class, and those of the template, which the clone has
    /// first. Of which zone a VNet is, the credentials cannot see; Proxmox lists one only where they may use it.
    fn networks(&self, templates: &Lookups, vnets: &BTreeSet<Arc<str>>) -> Vec<String> {
        let mut paths = Vec::new();
        for (name, interface) in &self.interfaces {
            let templates = templates.get(name).into_iter().flatten();
            for template in templates.filter(|template| template.vmid.0 > 0) {
                let own = template.connections.get(&interface.name);
                let connected = interface.connection(own);
                let all = connected.iter().chain(template.connections.values());
                let plain = all.filter(|it| !vnets.contains(&it.bridge));
                paths.extend(plain.flat_map(network_paths));
            }
        }
        paths
    }
}

/// What each cluster must have: for the classes whose pools use it.
pub fn wanted(world: &World) -> BTreeMap<ClusterName, Wanted> {
    let mut all: BTreeMap<ClusterName, Wanted> = BTreeMap::new();
    for pool in world.pools().values() {
        let Some(class) = world.classes().get(&pool.node_class) else {
            continue;
        };
        let of_pool = world
            .clusters()
            .keys()
            .filter(|cluster| pool.clusters.is_empty() || pool.clusters.contains(cluster));
        for cluster in of_pool {
            let wanted = all.entry(cluster.clone()).or_default();
            let template = class.template_in(cluster);
            let network = class.network.iter();
            let interfaces = network.map(|it| (template.clone(), it.clone()));
            wanted.interfaces.extend(interfaces);
            wanted
                .templates
                .insert((template, class.template.is_local()));
            wanted.guest_exec |= class.join.way() == Join::GuestExec;
        }
    }
    all
}
