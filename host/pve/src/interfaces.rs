//! The network interfaces of a machine, as its configuration has them: `net0=virtio=02:…,bridge=vmbr0,tag=7`. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::facts::{Connection, Interface};
use sha2::{Digest as _, Sha256};

use super::cloudinit::Unfit;
use super::vm_config::{VmConfig, split_options};

/// The keys of an interface that are not models.
const OPTIONS: [&str; 10] = [
    "bridge",
    "firewall",
    "link_down",
    "macaddr",
    "model",
    "mtu",
    "queues",
    "rate",
    "tag",
    "trunks",
];

/// Names and values, and the names of those that go.
type Interfaces<'c> = (Vec<(String, String)>, Vec<&'c str>);

/// Of which machine they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) cluster_id: &'a str,
    pub(super) vmid: u32,
    pub(super) cores: u64,
}

/// The interfaces of a clone by name, and the names of those that it has to lose. Without a word of the class, its first one gets
/// an address of its own, and the others stay.
pub(super) fn interfaces<'c>(
    clone: &'c VmConfig,
    wanted: &[Interface],
    machine: Machine<'_>,
) -> Result<Interfaces<'c>, Unfit> {
    if wanted.is_empty() {
        let net0 = clone.raw.get("net0");
        let net0 = net0.map(|template| Card::read(template).line(&machine.mac(0, "02")));
        return Ok((
            net0.map(|it| ("net0".to_owned(), it)).into_iter().collect(),
            Vec::new(),
        ));
    }
    let mut lines = Vec::new();
    for interface in wanted {
        let template = clone.raw.get(&*interface.name);
        let mut card = template.map_or_else(Card::default, |template| Card::read(template));
        card.change(interface, machine.cores);
        if card.option("bridge").is_none() {
            return Err(Unfit::NoBridge(interface.name.to_string()));
        }
        let number = interface.number().unwrap_or_default();
        let prefix = interface.mac_prefix.as_deref().unwrap_or("02");
        lines.push((
            interface.name.to_string(),
            card.line(&machine.mac(number, prefix)),
        ));
    }
    let is_wanted = |key: &str| wanted.iter().any(|it| *it.name == *key);
    let keys = clone.raw.keys().map(String::as_str);
    let surplus = keys.filter(|key| is_interface(key) && !is_wanted(key));
    Ok((lines, surplus.collect()))
}

/// What the interfaces of a template are connected to, by their names.
pub(super) fn connections(config: &VmConfig) -> BTreeMap<Arc<str>, Connection> {
    let interfaces = config.raw.iter().filter(|(key, _)| is_interface(key));
    let connected = interfaces.filter_map(|(key, value)| {
        let card = Card::read(value);
        let trunks = card.option("trunks").unwrap_or_default();
        let connection = Connection {
            bridge: card.option("bridge")?.into(),
            vlan: card.option("tag").and_then(|tag| tag.parse().ok()),
            trunks: trunks.split(';').flat_map(vlans).collect(),
        };
        Some((Arc::from(key.as_str()), connection))
    });
    connected.collect()
}

/// One VLAN, or a range of them such as `10-20`.
fn vlans(text: &str) -> Vec<u16> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if last <= 4094 => (first..=last).collect(),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => Vec::new(),
    }
}

fn is_interface(key: &str) -> bool {
    let number = key.strip_prefix("net");
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

impl Machine<'_> {
    /// Behind the prefix an address that no other interface of any of our machines has, as far as a hash goes. The first one's is as
    /// it was before machines had several.
    fn mac(self, number: u8, prefix: &str) -> String {
        let Machine {
            cluster_id, vmid, ..
        } = self;
        let of_number = match number {
            0 => String::new(),
            number => format!("\n{number}"),
        };
        let hash = Sha256::digest(format!("kproxide mac\n{cluster_id}\n{vmid}{of_number}"));
        let mut mac = prefix.to_owned();
        let given = prefix.split(':').count();
        for byte in hash.iter().take(6_usize.saturating_sub(given)) {
            mac.push_str(&format!(":{byte:02X}"));
        }
        mac
    }
}

/// An interface without its address.
#[derive(Default)]
struct Card {
    model: Option<String>,
    options: Vec<(String, String)>,
}

impl Card {
    fn read(value: &str) -> Self {
        let (bare_model, mut options) = split_options(value);
        let model = options
            .iter()
            .find_map(|(name, value)| match name.as_str() {
                "model" => Some(value.clone()),
                other => (!OPTIONS.contains(&other)).then(|| other.to_owned()),
            })
            .or(bare_model);
        options.retain(|(name, _)| {
            name != "model" && name != "macaddr" && Some(name) != model.as_ref()
        });
        Self { model, options }
    }

    fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter();
        let found = options.find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    fn change(&mut self, interface: &Interface, cores: u64) {
        let Interface {
            name: _,
            bridge,
            vlan,
            model,
            mtu,
            mac_prefix: _,
            rate,
            queues,
            firewall,
            trunks,
        } = interface;
        if let Some(model) = model {
            self.model = Some(model.as_str().to_owned());
        }
        let text = |number: &dyn ToString| number.to_string();
        let trunks: Vec<String> = trunks.iter().map(u16::to_string).collect();
        let changes = [
            ("bridge", bridge.as_deref().map(str::to_owned)),
            ("tag", vlan.map(|it| text(&it))),
            ("mtu", mtu.map(|it| text(&it))),
            ("rate", rate.map(|it| text(&it))),
            ("queues", queues.map(|it| text(&it.of(cores)))),
            ("firewall", firewall.map(|it| text(&u8::from(it)))),
            ("trunks", (!trunks.is_empty()).then(|| trunks.join(";"))),
        ];
        for (name, value) in changes {
            let Some(value) = value else { continue };
            match self.options.iter_mut().find(|(known, _)| known == name) {
                Some(option) => option.1 = value,
                None => self.options.push((name.to_owned(), value)),
            }
        }
    }

    fn line(&self, mac: &str) -> String {
        let model = self.model.as_deref().unwrap_or("virtio");
        let mut line = format!("{model}={mac}");
        for (name, value) in &self.options {
            line.push_str(&format!(",{name}={value}"));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{CardModel, Queues};

    use super::*;

    const MACHINE: Machine<'_> = Machine {
        cluster_id: "cluster",
        vmid: 101,
        cores: 6,
    };

    fn clone(interfaces: &[(&str, &str)]) -> VmConfig {
        let raw = interfaces.iter();
        let raw = raw.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        VmConfig {
            raw: raw.collect(),
            ..VmConfig::default()
        }
    }

    fn interface(name: &str) -> Interface {
        Interface {
            name: name.into(),
            ..Interface::default()
        }
    }

    #[test]
    fn without_a_word_of_the_class_the_first_one_gets_an_address_and_the_others_stay() {
        let mac = MACHINE.mac(0, "02");
        for (template, expected) in [
            (
                "e1000=AA:BB:CC:DD:EE:FF,bridge=vmbr1",
                format!("e1000={mac},bridge=vmbr1"),
            ),
            (
                "model=virtio,macaddr=AA:BB:CC:DD:EE:FF,bridge=vmbr1",
                format!("virtio={mac},bridge=vmbr1"),
            ),
            (
                "virtio,bridge=vmbr1,trunks=2;3",
                format!("virtio={mac},bridge=vmbr1,trunks=2;3"),
            ),
        ] {
            let clone = clone(&[("net0", template), ("net1", "virtio,bridge=vmbr2")]);
            let (lines, surplus) = interfaces(&clone, &[], MACHINE).unwrap();
            assert_eq!(lines, [("net0".to_owned(), expected)]);
            assert_eq!(surplus, [""; 0]);
        }
    }

    #[test]
    fn c1_16_what_the_class_says_replaces_what_the_template_says_and_the_rest_stays() {
        let clone = clone(&[
            (
                "net0",
                "virtio=AA:BB:CC:DD:EE:FF,bridge=vmbr0,firewall=1,tag=5",
            ),
            ("net1", "e1000=AA:BB:CC:DD:EE:FE,bridge=vmbr1"),
            ("net3", "virtio=AA:BB:CC:DD:EE:FD,bridge=vmbr3"),
            ("netmask", "no interface"),
        ]);
        let wanted = [
            Interface {
                vlan: Some(7),
                firewall: Some(false),
                queues: Some(Queues::Auto),
                ..interface("net0")
            },
            Interface {
                bridge: Some("vn1".into()),
                model: Some(CardModel::Virtio),
                mtu: Some(1),
                rate: Some(100),
                trunks: vec![10, 20],
                mac_prefix: Some("BC:24:11".into()),
                ..interface("net2")
            },
        ];
        let (lines, surplus) = interfaces(&clone, &wanted, MACHINE).unwrap();
        let (net0, net2) = (MACHINE.mac(0, "02"), MACHINE.mac(2, "BC:24:11"));
        let expected = [
            (
                "net0",
                format!("virtio={net0},bridge=vmbr0,firewall=0,tag=7,queues=6"),
            ),
            (
                "net2",
                format!("virtio={net2},bridge=vn1,mtu=1,rate=100,trunks=10;20"),
            ),
        ];
        assert_eq!(lines, expected.map(|(name, line)| (name.to_owned(), line)));
        assert_eq!(surplus, ["net1", "net3"]);
        let unsaid = interfaces(&clone, &[interface("net2")], MACHINE);
        assert_eq!(unsaid.unwrap_err(), Unfit::NoBridge("net2".to_owned()));
    }

    #[test]
    fn addresses_are_stable_and_apart() {
        let of = |cluster_id, vmid, number| {
            let machine = Machine {
                cluster_id,
                vmid,
                cores: 1,
            };
            machine.mac(number, "02")
        };
        assert_eq!(of("a", 1, 0), of("a", 1, 0));
        for other in [of("a", 2, 0), of("b", 1, 0), of("a", 1, 1)] {
            assert_ne!(of("a", 1, 0), other);
        }
        // Those of machines that are there.
        assert_eq!(of("cluster", 101, 0), "02:CA:F6:74:B4:68");
    }

    #[test]
    fn c2_11_the_prefix_of_an_address_stays_as_it_is() {
        for prefix in ["02", "BC:24:11", "bc:24:11:00:01"] {
            let mac = MACHINE.mac(1, prefix);
            assert!(
                mac.starts_with(&format!("{prefix}:")) && mac.len() == 17,
                "{mac}"
            );
        }
    }

    #[test]
    fn where_a_template_is_connected_is_read() {
        let template = clone(&[
            ("net0", "virtio=AA:BB:CC:DD:EE:FF,bridge=vmbr0,tag=5"),
            ("net1", "virtio,bridge=vmbr1,trunks=2;4-6"),
            ("net2", "virtio=AA:BB:CC:DD:EE:FE"),
        ]);
        let connections = connections(&template);
        assert_eq!(connections.len(), 2);
        let (net0, net1) = (&connections["net0"], &connections["net1"]);
        assert_eq!((&*net0.bridge, net0.vlan), ("vmbr0", Some(5)));
        assert_eq!((&*net1.bridge, net1.vlan), ("vmbr1", None));
        assert_eq!(net1.trunks, [2, 4, 5, 6]);
    }
}
