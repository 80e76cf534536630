//! The configuration of a fresh clone, as parameters of one change: size, network, disks, cloud-init. Pure.
//!
//! Applied between clone and first start: cloud-init reads its drive once, and a clone copies everything from its
//! template, protection and start behaviour included.

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use super::request::{Params, percent_encode};
use super::vm_config::{VmConfig, split_options};

/// What a machine shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineConfig {
    /// CPU cores, on one socket.
    pub cores: u32,
    /// Memory, without ballooning: what Kubernetes counts on must be there.
    pub memory_mib: u64,
    /// For people; compared as lower-case sets, and never evidence of ownership.
    pub tags: Vec<String>,
    /// First-boot configuration; `None` leaves the template's.
    pub cloud_init: Option<CloudInit>,
}

/// NodeClass's `cloudInit`, with the claim's own address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloudInit {
    /// Public keys, one per element, as in `authorized_keys`.
    pub ssh_keys: Vec<String>,
    /// Of the first network interface; none leaves the template's.
    pub address: Option<Address>,
    /// Name servers; none leaves the hypervisor's.
    pub nameservers: Vec<IpAddr>,
    /// DNS search domain.
    pub search_domain: Option<String>,
    /// The user to create; none leaves the image's.
    pub user: Option<String>,
}

/// Where a machine's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// DHCP.
    Dhcp,
    /// One of a pool's, recorded in the claim.
    Static {
        /// The machine's address.
        ip: IpAddr,
        /// Length of the network's prefix.
        prefix: u8,
        /// The way out.
        gateway: Option<IpAddr>,
    },
}

/// Which bridge it should be on, only the template can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the template has no network interface net0, but cloudInit.dhcp or cloudInit.ipPool gives it an address: add a network device to the template, or leave both out"
)]
pub struct NoInterface;

impl MachineConfig {
    /// The parameters that turn the clone with configuration `clone` into this machine.
    ///
    /// `cluster_id` and `vmid` make its MAC address, so that a machine has the same one however often this is done.
    ///
    /// # Errors
    /// The machine is to have an address, but no interface.
    pub fn params(
        &self,
        clone: &VmConfig,
        cluster_id: &str,
        vmid: u32,
    ) -> Result<Params, NoInterface> {
        let MachineConfig {
            cores,
            memory_mib,
            tags,
            cloud_init,
        } = self;
        let mut params = Params::new()
            .with("cores", cores)
            .with("sockets", 1)
            .with("memory", memory_mib)
            .with("balloon", 0)
            .with_flag("onboot", true)
            // Inherited from the template; it would make our own removal fail.
            .with_flag("protection", false);
        if !clone.agent_enabled() {
            params.push("agent", 1);
        }
        if !tags.is_empty() {
            params.push("tags", tags.join(";"));
        }
        match clone.raw.get("net0") {
            Some(template) => params.push("net0", net0(template, cluster_id, vmid)),
            None if cloud_init.as_ref().is_some_and(|it| it.address.is_some()) => {
                return Err(NoInterface);
            }
            None => {}
        }
        for disk in clone.disks.iter().filter(|disk| disk.is_data()) {
            let mut disk = disk.clone();
            disk.options.retain(|(name, _)| name != "backup");
            disk.options.push(("backup".to_owned(), "0".to_owned()));
            params.push(disk.key.clone(), disk.value());
        }
        if let Some(cloud_init) = cloud_init {
            cloud_init.add_to(&mut params);
        }
        Ok(params)
    }
}

impl CloudInit {
    fn add_to(&self, params: &mut Params) {
        let CloudInit {
            ssh_keys,
            address,
            nameservers,
            search_domain,
            user,
        } = self;
        // Proxmox's default upgrades every package at first boot: minutes of delay, and machines that differ.
        params.push("ciupgrade", 0);
        if let Some(address) = address {
            params.push("ipconfig0", address);
        }
        if !ssh_keys.is_empty() {
            params.push("sshkeys", encoded_keys(ssh_keys));
        }
        if let Some(user) = user {
            params.push("ciuser", user);
        }
        if !nameservers.is_empty() {
            let servers: Vec<String> = nameservers.iter().map(IpAddr::to_string).collect();
            params.push("nameserver", servers.join(" "));
        }
        if let Some(domain) = search_domain {
            params.push("searchdomain", domain);
        }
    }
}

impl std::fmt::Display for Address {
    /// As `ipconfig0` has it.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Dhcp => out.write_str("ip=dhcp"),
            Address::Static {
                ip,
                prefix,
                gateway,
            } => {
                let six = if ip.is_ipv6() { "6" } else { "" };
                write!(out, "ip{six}={ip}/{prefix}")?;
                match gateway {
                    Some(gateway) => write!(out, ",gw{six}={gateway}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Proxmox: the value of `sshkeys` is itself percent-encoded, a blank as `%20` and never as `+` (which is part of most
/// keys); the form's encoding comes on top.
fn encoded_keys(keys: &[String]) -> String {
    let mut lines = String::new();
    for key in keys.iter().flat_map(|keys| keys.lines()) {
        let key = key.trim();
        if !key.is_empty() {
            lines.push_str(key);
            lines.push('\n');
        }
    }
    percent_encode(&lines)
}

/// A locally administered unicast address that no other machine of any of our clusters has, as far as 40 bits of hash go.
pub fn mac_address(cluster_id: &str, vmid: u32) -> String {
    let hash = Sha256::digest(format!("kproxide mac\n{cluster_id}\n{vmid}"));
    let mut mac = "02".to_owned();
    for byte in &hash[..5] {
        mac.push_str(&format!(":{byte:02X}"));
    }
    mac
}

/// The template's first interface with our address: `virtio=02:…,bridge=vmbr0,tag=7`.
fn net0(template: &str, cluster_id: &str, vmid: u32) -> String {
    let mac = mac_address(cluster_id, vmid);
    /// The keys of an interface that are not models.
    const OPTIONS: [&str; 9] = [
        "bridge",
        "firewall",
        "link_down",
        "macaddr",
        "model",
        "mtu",
        "queues",
        "rate",
        "tag",
    ];
    let (bare_model, options) = split_options(template);
    let model = options
        .iter()
        .find_map(|(name, value)| match name.as_str() {
            "model" => Some(value.clone()),
            other if !OPTIONS.contains(&other) && other != "trunks" => Some(other.to_owned()),
            _ => None,
        })
        .or(bare_model)
        .unwrap_or_else(|| "virtio".to_owned());
    let mut interface = format!("{model}={mac}");
    for (name, value) in &options {
        if name != "model" && name != "macaddr" && *name != model {
            interface.push_str(&format!(",{name}={value}"));
        }
    }
    interface
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone() -> VmConfig {
        let json = r#"{"agent":"1,fstrim_cloned_disks=1","net0":"virtio=BC:24:11:65:78:28,bridge=vmbr7,firewall=1,tag=5",
            "scsi0":"local:9000/base/101/vm-101-disk-0.qcow2,discard=on,size=1G","scsi1":"local:2,backup=1,size=2G",
            "ide2":"local:101/vm-101-cloudinit.qcow2,media=cdrom","efidisk0":"local:3,size=4M","boot":"order=scsi0"}"#;
        VmConfig::from_data(&serde_json::from_str(json).unwrap())
    }

    fn machine(cloud_init: impl Into<Option<CloudInit>>) -> MachineConfig {
        MachineConfig {
            cores: 4,
            memory_mib: 8192,
            tags: vec!["kproxide".to_owned(), "pool-a".to_owned()],
            cloud_init: cloud_init.into(),
        }
    }

    #[test]
    fn a_machine_is_configured_completely() {
        let params = machine(CloudInit::default())
            .params(&clone(), "cluster", 101)
            .unwrap();
        let mac = mac_address("cluster", 101);
        let expected = [
            ("cores", "4"),
            ("sockets", "1"),
            ("memory", "8192"),
            ("balloon", "0"),
            ("onboot", "1"),
            ("protection", "0"),
            ("tags", "kproxide;pool-a"),
            (
                "net0",
                &format!("virtio={mac},bridge=vmbr7,firewall=1,tag=5"),
            ),
            (
                "scsi0",
                "local:9000/base/101/vm-101-disk-0.qcow2,discard=on,size=1G,backup=0",
            ),
            ("scsi1", "local:2,size=2G,backup=0"),
            ("ciupgrade", "0"),
        ];
        assert_eq!(params.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_agent_is_enabled_where_the_template_forgot_it() {
        let bare = VmConfig::default();
        let params = machine(None::<CloudInit>)
            .params(&bare, "cluster", 101)
            .unwrap();
        assert_eq!(params.get("agent"), Some("1"));
    }

    #[test]
    fn without_cloud_init_a_template_keeps_its_own() {
        let params = machine(None::<CloudInit>)
            .params(&clone(), "cluster", 101)
            .unwrap();
        assert_eq!(params.get("ciupgrade"), None);
    }

    #[test]
    fn an_interface_is_never_made_up() {
        let bare = VmConfig::default();
        let params = machine(None::<CloudInit>)
            .params(&bare, "cluster", 101)
            .unwrap();
        assert_eq!(params.get("net0"), None);
        let wants_address = CloudInit {
            address: Some(Address::Dhcp),
            ..CloudInit::default()
        };
        let refused = machine(wants_address).params(&bare, "cluster", 101);
        assert_eq!(refused.unwrap_err(), NoInterface);
    }

    /// kproximate's B10: a key with a comment, `+`, `/` and `=` broke every scale-up.
    #[test]
    fn b10_ssh_keys_survive_both_encodings() {
        let key = "ssh-rsa AAAAB3+zaC1/yc2E= ops team@host";
        let cloud_init = CloudInit {
            ssh_keys: vec![key.to_owned(), "\nssh-ed25519 AAAA b\n".to_owned()],
            ..CloudInit::default()
        };
        let params = machine(cloud_init)
            .params(&clone(), "cluster", 101)
            .unwrap();
        let value = params.get("sshkeys").unwrap();
        assert_eq!(
            value,
            "ssh-rsa%20AAAAB3%2BzaC1%2Fyc2E%3D%20ops%20team%40host%0Assh-ed25519%20AAAA%20b%0A"
        );
        let call = crate::pve::request::Call::put(&["nodes", "pve1", "qemu", "101", "config"])
            .params(Params::new().with("sshkeys", value));
        let request = call.request();
        let body = std::str::from_utf8(request.body()).unwrap();
        assert!(
            body.starts_with("sshkeys=ssh-rsa%2520AAAAB3%252Bza"),
            "{body}"
        );
        assert!(!body.contains('+'));
    }

    #[test]
    fn addresses() {
        assert_eq!(Address::Dhcp.to_string(), "ip=dhcp");
        let address = |ip: &str, prefix, gateway: Option<&str>| Address::Static {
            ip: ip.parse().unwrap(),
            prefix,
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        };
        assert_eq!(
            address("10.0.0.5", 24, Some("10.0.0.1")).to_string(),
            "ip=10.0.0.5/24,gw=10.0.0.1"
        );
        assert_eq!(address("10.0.0.5", 24, None).to_string(), "ip=10.0.0.5/24");
        assert_eq!(
            address("fd00::5", 64, Some("fd00::1")).to_string(),
            "ip6=fd00::5/64,gw6=fd00::1"
        );
    }

    #[test]
    fn cloud_init_names_what_is_set() {
        let cloud_init = CloudInit {
            address: Some(Address::Dhcp),
            nameservers: vec!["10.0.0.53".parse().unwrap(), "fd00::53".parse().unwrap()],
            search_domain: Some("lab.example".to_owned()),
            user: Some("ops".to_owned()),
            ..CloudInit::default()
        };
        let params = machine(cloud_init)
            .params(&clone(), "cluster", 101)
            .unwrap();
        assert_eq!(params.get("ipconfig0"), Some("ip=dhcp"));
        assert_eq!(params.get("nameserver"), Some("10.0.0.53 fd00::53"));
        assert_eq!(params.get("searchdomain"), Some("lab.example"));
        assert_eq!(params.get("ciuser"), Some("ops"));
    }

    #[test]
    fn interfaces_keep_their_model() {
        let mac = mac_address("cluster", 101);
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
            assert_eq!(net0(template, "cluster", 101), expected);
        }
    }

    #[test]
    fn mac_addresses_are_stable_and_apart() {
        assert_eq!(mac_address("a", 1), mac_address("a", 1));
        assert_ne!(mac_address("a", 1), mac_address("a", 2));
        assert_ne!(mac_address("a", 1), mac_address("b", 1));
        assert!(mac_address("a", 1).starts_with("02:"));
    }
}
