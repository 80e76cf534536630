//! The settings of a VM apart from size and place. A NodeClass gives them, the claim records them, Proxmox gets them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::interface::Interface;

/// The settings of a VM apart from size and place. A claim holds a copy, so that a change of the class does not change
/// machines that are being launched. The class's digest covers all of it, so only settings that change a VM belong
/// here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineSpec {
    /// Settings for cloud-init. Not given: the template's stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Options of the VM.
    #[serde(skip_serializing_if = "VmOptions::is_template")]
    pub vm_options: VmOptions,
    /// Its network interfaces, by number. Empty: as the template has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<Interface>,
}

/// Options of the VM. An option that is not given stays as the template has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmOptions {
    /// Proxmox's CPU type: `host`, `x86-64-v2-AES`, or `custom-NAME` for a model of yours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub cpu_type: Option<String>,
}

impl VmOptions {
    /// All of them are the template's.
    pub fn is_template(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings for cloud-init, through Proxmox's cloud-init drive. A setting that is not given stays as the template has
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloudInit {
    /// The user that cloud-init creates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Public SSH keys for that user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// The first interface gets its address from DHCP.
    pub dhcp: bool,
    /// The first interface has the claim's own address, in this network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// DNS servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub nameservers: Vec<IpAddr>,
    /// DNS search domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_domain: Option<String>,
}

/// The network of the addresses that kproxide hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Network {
    /// Length of its prefix.
    pub prefix_length: u8,
    /// The router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub gateway: Option<IpAddr>,
}

/// Who writes the Nodes' `spec.providerID`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ProviderId {
    /// kproxide writes `proxmox://REGION/VMID` where it is empty and no cloud controller manager is going to write it.
    #[default]
    Auto,
    /// The kubelet writes it (k3s and RKE2 do); kproxide never does.
    Kubelet,
    /// A cloud controller manager writes it; kproxide never does.
    Ccm,
    /// Nobody writes it.
    None,
}
