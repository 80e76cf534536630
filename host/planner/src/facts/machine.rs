//! What a VM is made to be beside its size and its place: said by a NodeClass, written down in the claim, and sent to Proxmox.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A claim takes it over from its class, so that a class that is changed changes no machine on its way. Everything in it is part of the class's
/// digest: what does not change a VM has no place here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineSpec {
    /// First-boot configuration. Not given: the template's stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Options of the VM.
    #[serde(skip_serializing_if = "VmOptions::is_template")]
    pub vm_options: VmOptions,
}

/// Options of the VM. What is not given stays as the template has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmOptions {
    /// The CPU that the VM shows to its guest, such as `host`, `x86-64-v2-AES` or `custom-NAME`.
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

/// Settings for cloud-init, through Proxmox's cloud-init drive. What is not given stays as the template has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloudInit {
    /// The user that cloud-init makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Public SSH keys for that user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// The first interface asks DHCP for its address.
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

/// The network of addresses that are handed out.
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
