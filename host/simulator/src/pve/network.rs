//! Bridges and VNets: who may connect machines to them.
//!
//! Proxmox asks for `SDN.Use` at `/sdn/zones/ZONE/BRIDGE/VLAN` for each VLAN of an interface, its own and those of its trunks;
//! where it has none, at `/sdn/zones/ZONE/BRIDGE`.

use std::collections::BTreeSet;

use super::access::Identity;
use super::answer::Refusal;
use super::state::State;
use super::vm::option_of;

/// The zone of bridges that belong to a server itself.
const LOCAL: &str = "localnetwork";

/// As a topology writes it: `vmbr0`, or `ZONE/VNET`.
pub(crate) struct Bridge<'a> {
    pub(crate) zone: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Bridge<'a> {
    pub(crate) fn read(text: &'a str) -> Self {
        let (zone, name) = text.split_once('/').unwrap_or((LOCAL, text));
        Self { zone, name }
    }

    pub(crate) fn is_vnet(&self) -> bool {
        self.zone != LOCAL
    }
}

impl State {
    /// Refuses unless `who` may connect a machine as this interface says, such as `virtio,bridge=vmbr0,tag=7`.
    pub(crate) fn require_network(&self, who: &Identity, interface: &str) -> Result<(), Refusal> {
        let Some(name) = option_of(interface, "bridge") else {
            return Ok(());
        };
        let all = self.nodes.values().flat_map(|node| &node.bridges);
        let mut all = all.map(|text| Bridge::read(text));
        let zone = all.find(|it| it.name == name).map_or(LOCAL, |it| it.zone);
        let path = format!("/sdn/zones/{zone}/{name}");
        let vlans = vlans(interface);
        if vlans.is_empty() {
            return self.require(who, &path, "SDN.Use");
        }
        for vlan in vlans {
            self.require(who, &format!("{path}/{vlan}"), "SDN.Use")?;
        }
        Ok(())
    }

    /// A right on one VLAN of it suffices.
    pub(crate) fn may_see_network(&self, who: &Identity, bridge: &Bridge<'_>) -> bool {
        let path = format!("/sdn/zones/{}/{}", bridge.zone, bridge.name);
        let below = format!("{path}/");
        let mut paths = self.access.paths().filter(|it| it.starts_with(&below));
        self.may(who, &path, "SDN.Use") || paths.any(|path| self.may(who, path, "SDN.Use"))
    }
}

/// The interface's own VLAN, and those of its trunks in order, a range one by one.
fn vlans(interface: &str) -> Vec<u16> {
    let own = option_of(interface, "tag").and_then(|tag| tag.parse().ok());
    let trunks = option_of(interface, "trunks").unwrap_or_default();
    let trunks: BTreeSet<u16> = trunks
        .split(';')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect();
    own.into_iter().chain(trunks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::pve::topology::{AclSpec, Topology};
    use crate::rng::Seed;

    /// Rights, and whether they count below; an interface; at which path Proxmox refused it.
    type Row<'a> = (&'a [(&'a str, bool)], &'a str, Option<&'a str>);

    /// Rows of recordings of its daemons.
    #[test]
    fn connecting_takes_the_right_at_the_path_that_proxmox_names() {
        let rows: [Row<'_>; 12] = [
            (&[], "bridge=vmbr0", Some("localnetwork/vmbr0")),
            (
                &[("localnetwork/vmbr0/100", false)],
                "bridge=vmbr0",
                Some("localnetwork/vmbr0"),
            ),
            (
                &[("localnetwork/vmbr0/100", false)],
                "bridge=vmbr0,tag=100",
                None,
            ),
            (
                &[("localnetwork", false)],
                "bridge=vmbr0",
                Some("localnetwork/vmbr0"),
            ),
            (&[("localnetwork", true)], "bridge=vmbr0", None),
            (
                &[("localnetwork/vmbr0", false)],
                "bridge=vmbr1",
                Some("localnetwork/vmbr1"),
            ),
            (
                &[("localnetwork/vmbr0", false)],
                "bridge=vmbr0,tag=100",
                Some("localnetwork/vmbr0/100"),
            ),
            (
                &[("localnetwork/vmbr0", false)],
                "bridge=vmbr0,trunks=200",
                Some("localnetwork/vmbr0/200"),
            ),
            (
                &[
                    ("localnetwork/vmbr0/100", false),
                    ("localnetwork/vmbr0/200", false),
                ],
                "bridge=vmbr0,tag=100,trunks=200-201",
                Some("localnetwork/vmbr0/201"),
            ),
            (&[("z1", false)], "bridge=vn1", Some("z1/vn1")),
            (&[("z1/vn1", false)], "bridge=vn1", None),
            (&[("z1/vn1", false)], "bridge=vn1,tag=5", Some("z1/vn1/5")),
        ];
        for (rights, interface, refused) in rows {
            let mut topology = Topology::of(1);
            topology.hypervisors[0].bridges = vec!["vmbr0".into(), "vmbr1".into(), "z1/vn1".into()];
            let grants = rights.iter().map(|(path, propagate)| AclSpec {
                path: format!("/sdn/zones/{path}"),
                subject: "t@pve".into(),
                privileges: vec!["SDN.Use".into()],
                propagate: *propagate,
            });
            topology.acl = grants.collect();
            let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
            let state = State::build(topology, &clock, Seed(1));
            let who = Identity {
                user: "t@pve".into(),
                token: None,
            };
            let told = state.require_network(&who, &format!("virtio,{interface}"));
            let told = told.err().map(|refusal| refusal.text());
            let expected = refused.map(|path| format!("/sdn/zones/{path}, SDN.Use"));
            assert!(
                told.as_deref()
                    .unwrap_or_default()
                    .contains(expected.as_deref().unwrap_or_default())
                    && told.is_some() == expected.is_some(),
                "{rights:?} {interface}: {told:?}"
            );
        }
    }
}
