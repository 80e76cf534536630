//! The network interfaces of a VM, where a NodeClass describes them.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A network interface of the VM. What is not given is as the template has it at the interface of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interface {
    /// Proxmox's name of it: `net0` to `net31`. A machine joins by the address of `net0`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^net([0-9]|[12][0-9]|3[01])$"), length(max = 5))
    )]
    pub name: Arc<str>,
    /// The bridge, such as `vmbr0`, or the VNet of an SDN zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^[A-Za-z0-9_.-]+$"), length(min = 1, max = 15))
    )]
    pub bridge: Option<Arc<str>>,
    /// Its VLAN: 1 to 4094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 4094)))]
    pub vlan: Option<u16>,
    /// The card that the guest sees. Not given, also by the template: `virtio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<CardModel>,
    /// Bytes of its largest packet: 576 to 65520, or 1 for what its bridge has. With model `virtio` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65520)))]
    pub mtu: Option<u16>,
    /// The first bytes of its MAC address, such as `BC:24:11`: 1 to 5. Not given: `02`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            regex(pattern = "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){0,4}$"),
            length(max = 14)
        )
    )]
    pub mac_prefix: Option<Arc<str>>,
    /// At most so many megabytes per second, in each direction.
    #[serde(default, rename = "rateMBps", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10240)))]
    pub rate: Option<u32>,
    /// How many queues the card has: 1 to 64, or `auto` for as many as the machine has cores, at most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Queues>,
    /// Proxmox's firewall filters it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// VLANs that pass with their tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 32), inner(range(min = 1, max = 4094)))
    )]
    pub trunks: Vec<u16>,
}

impl Interface {
    /// What it is connected to, on a clone whose own interface of that name is `template`. `None`: nobody says to what.
    pub fn connection(&self, template: Option<&Connection>) -> Option<Connection> {
        let bridge = self.bridge.as_ref();
        let trunks = match self.trunks.is_empty() {
            true => template.map(|it| it.trunks.clone()),
            false => Some(self.trunks.clone()),
        };
        Some(Connection {
            bridge: bridge.or(template.map(|it| &it.bridge))?.clone(),
            vlan: self.vlan.or(template.and_then(|it| it.vlan)),
            trunks: trunks.unwrap_or_default(),
        })
    }

    /// Its number; `None`: it has no name of Proxmox's.
    pub fn number(&self) -> Option<u8> {
        let digits = self.name.strip_prefix("net")?;
        let number: u8 = digits.parse().ok()?;
        (number < 32 && digits == number.to_string()).then_some(number)
    }
}

/// What an interface is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// A bridge or a VNet.
    pub bridge: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// VLANs that pass with their tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CardModel {
    Virtio,
    E1000,
    E1000e,
    Rtl8139,
    Vmxnet3,
}

impl CardModel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Rtl8139 => "rtl8139",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

/// How many queues a card has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queues {
    /// As many as the machine has cores.
    Auto,
    Number(u32),
}

/// Proxmox: a card has no more.
const MOST_QUEUES: u32 = 64;

impl Queues {
    pub fn of(self, cores: u64) -> u32 {
        let cores = u32::try_from(cores).unwrap_or(MOST_QUEUES);
        let number = match self {
            Self::Auto => cores,
            Self::Number(number) => number,
        };
        number.clamp(1, MOST_QUEUES)
    }
}

impl Serialize for Queues {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::Number(number) => number.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Queues {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "invalid type: expected auto, or a number from 1 to 64"
        )]
        enum Form {
            Text(String),
            Number(i64),
        }
        let text = match Form::deserialize(from)? {
            Form::Text(text) => text,
            Form::Number(number) => number.to_string(),
        };
        let number = text.parse().ok();
        let number = number.filter(|it| (1..=MOST_QUEUES).contains(it));
        match (&*text, number) {
            ("auto", _) => Ok(Self::Auto),
            (_, Some(number)) => Ok(Self::Number(number)),
            (_, None) => Err(de::Error::custom(format_args!(
                "{text:?} is neither auto nor a number from 1 to {MOST_QUEUES}"
            ))),
        }
    }
}

/// What the API server accepts.
#[cfg(feature = "schema")]
impl schemars::JsonSchema for Queues {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Queues".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": "^(auto|[1-9]|[1-5][0-9]|6[0-4])$",
            "maxLength": 4,
            "minimum": 1,
            "maximum": 64,
        })
    }
}
