//! The configuration of a fresh clone, as parameters of one change: size, network, disks, cloud-init. Pure.
//!
//! Applied between clone and first start: cloud-init reads its drive once, and a clone copies everything from its
//! template, protection and start behaviour included.

use std::net::IpAddr;

use kproxide_planner::facts::{CloudInit, MachineSpec, Network, VmOptions};

use super::interfaces::{Machine, interfaces};
use super::request::{Params, percent_encode};
use super::vm_config::{VmConfig, split_options};

/// What a machine shall be.
#[derive(Debug, Clone, Copy)]
pub struct MachineConfig<'a> {
    /// CPU cores, on one socket.
    pub cores: u64,
    /// Memory, without ballooning: what Kubernetes counts on must be there.
    pub memory_mib: u64,
    /// The claim's own address, if it has one.
    pub address: Option<IpAddr>,
    /// For people; compared as lower-case sets, and never evidence of ownership.
    pub tags: &'a [String],
    /// What the class says.
    pub machine: &'a MachineSpec,
}

/// Why a clone cannot be made what it shall be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Which bridge it should be on, only the template can say.
    #[error(
        "the template has no network interface net0, but cloudInit.dhcp or cloudInit.ipPool gives it an address: add a network device to the template, or leave both out"
    )]
    NoInterface,
    /// Where an interface leads, neither the class says nor the template.
    #[error(
        "its class names no bridge for {0}, and the template has no such interface: give network[].bridge"
    )]
    NoBridge(String),
    /// The claim was made when its class had no pool.
    #[error("its class takes addresses from cloudInit.ipPool, but the claim has none")]
    NoAddress,
}

impl MachineConfig<'_> {
    /// The parameters that turn the clone with configuration `clone` into this machine.
    ///
    /// `cluster_id` and `vmid` make its MAC address, so that a machine has the same one however often this is done.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn params(&self, clone: &VmConfig, cluster_id: &str, vmid: u32) -> Result<Params, Unfit> {
        let MachineConfig {
            cores,
            memory_mib,
            address,
            tags,
            machine:
                MachineSpec {
                    cloud_init,
                    vm_options: VmOptions { cpu_type },
                    network,
                },
        } = self;
        let address = match cloud_init {
            Some(cloud_init) => address_of(cloud_init, *address)?,
            None => None,
        };
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
        if let Some(cpu_type) = cpu_type {
            params.push("cpu", cpu(cpu_type, clone.raw.get("cpu")));
        }
        if !tags.is_empty() {
            params.push("tags", tags.join(";"));
        }
        let machine = Machine {
            cluster_id,
            vmid,
            cores: *cores,
        };
        let (interfaces, surplus) = interfaces(clone, network, machine)?;
        if address.is_some() && interfaces.is_empty() {
            return Err(Unfit::NoInterface);
        }
        for (name, value) in interfaces {
            params.push(name, value);
        }
        if let Some(hotplug) = without_memory_hotplug(clone) {
            params.push("hotplug", hotplug);
        }
        let keys = clone.raw.keys().map(String::as_str);
        let resizing = keys.filter(|key| resizes(key));
        let deleted: Vec<&str> = resizing.chain(surplus).collect();
        if !deleted.is_empty() {
            params.push("delete", deleted.join(","));
        }
        for disk in clone.disks.iter().filter(|disk| disk.is_data()) {
            let mut disk = disk.clone();
            disk.options.retain(|(name, _)| name != "backup");
            disk.options.push(("backup".to_owned(), "0".to_owned()));
            params.push(disk.key.clone(), disk.value());
        }
        if let Some(cloud_init) = cloud_init {
            add_cloud_init(cloud_init, address, &mut params);
        }
        Ok(params)
    }
}

/// A key that gives the machine less CPU than `cores` says, or that must add up to other cores and memory.
fn resizes(key: &str) -> bool {
    let numa = key.strip_prefix("numa");
    matches!(key, "vcpus" | "cpulimit" | "smp")
        || numa.is_some_and(|node| node.parse::<u8>().is_ok())
}

/// What `hotplug` becomes in a machine. Proxmox: with memory hotplug a guest starts with 1 GiB. Whether it uses the rest is for its kernel to say. `None`: it
/// is off.
pub(super) fn without_memory_hotplug(config: &VmConfig) -> Option<String> {
    let hotplug = config.raw.get("hotplug")?;
    let kinds: Vec<&str> = hotplug.split(',').map(str::trim).collect();
    let kept: Vec<&str> = kinds.iter().copied().filter(|it| *it != "memory").collect();
    let text = match kept.is_empty() {
        true => "0".to_owned(),
        false => kept.join(","),
    };
    (kept.len() < kinds.len()).then_some(text)
}

fn add_cloud_init(cloud_init: &CloudInit, ipconfig: Option<String>, params: &mut Params) {
    let CloudInit {
        user,
        ssh_keys,
        dhcp: _,
        network: _,
        nameservers,
        search_domain,
    } = cloud_init;
    // Proxmox's default upgrades every package at first boot: minutes of delay, and machines that differ.
    params.push("ciupgrade", 0);
    if let Some(ipconfig) = ipconfig {
        params.push("ipconfig0", ipconfig);
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

/// As `ipconfig0` has it; `None`: as the template has it.
fn address_of(cloud_init: &CloudInit, claimed: Option<IpAddr>) -> Result<Option<String>, Unfit> {
    let Some(Network {
        prefix_length,
        gateway,
    }) = cloud_init.network
    else {
        return Ok(cloud_init.dhcp.then(|| "ip=dhcp".to_owned()));
    };
    let ip = claimed.ok_or(Unfit::NoAddress)?;
    let six = if ip.is_ipv6() { "6" } else { "" };
    let gateway = gateway.map_or_else(String::new, |gateway| format!(",gw{six}={gateway}"));
    Ok(Some(format!("ip{six}={ip}/{prefix_length}{gateway}")))
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

/// This CPU type, with what else the template says of the CPU: `host,flags=+aes`.
fn cpu(cpu_type: &str, template: Option<&String>) -> String {
    let (_, options) = template
        .map(|template| split_options(template))
        .unwrap_or_default();
    let mut cpu = cpu_type.to_owned();
    for (name, value) in options.iter().filter(|(name, _)| name != "cputype") {
        cpu.push_str(&format!(",{name}={value}"));
    }
    cpu
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

    /// The parameters of a machine on this clone.
    fn configured(
        clone: &VmConfig,
        cloud_init: impl Into<Option<CloudInit>>,
    ) -> Result<Params, Unfit> {
        let machine = MachineSpec {
            cloud_init: cloud_init.into(),
            ..MachineSpec::default()
        };
        let config = MachineConfig {
            cores: 4,
            memory_mib: 8192,
            address: Some("10.0.0.5".parse().unwrap()),
            tags: &["kproxide".to_owned(), "pool-a".to_owned()],
            machine: &machine,
        };
        config.params(clone, "cluster", 101)
    }

    #[test]
    fn a_machine_is_configured_completely() {
        let params = configured(&clone(), CloudInit::default()).unwrap();
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
                "virtio=02:CA:F6:74:B4:68,bridge=vmbr7,firewall=1,tag=5",
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
    fn r10_what_a_template_says_of_the_size_does_not_stay() {
        let with = |keys: &[(&str, &str)]| {
            let mut clone = clone();
            let keys = keys.iter().map(|(key, value)| (*key, *value));
            clone
                .raw
                .extend(keys.map(|(key, value)| (key.to_owned(), value.to_owned())));
            let params = configured(&clone, None).unwrap();
            ["delete", "hotplug"].map(|name| params.get(name).map(str::to_owned))
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(with(&[("numa", "1"), ("cpuunits", "50")]), [None, None]);
        assert_eq!(with(&[("vcpus", "1")]), [is("vcpus"), None]);
        let several = [
            ("cpulimit", "0.5"),
            ("numa0", "cpus=0"),
            ("numa1", "cpus=1"),
        ];
        assert_eq!(with(&several), [is("cpulimit,numa0,numa1"), None]);
        let hotplug = [("hotplug", "disk,memory,usb"), ("smp", "1")];
        assert_eq!(with(&hotplug), [is("smp"), is("disk,usb")]);
        assert_eq!(with(&[("hotplug", "memory")]), [None, is("0")]);
        assert_eq!(with(&[("hotplug", "network,cpu")]), [None, None]);
    }

    #[test]
    fn the_agent_is_enabled_where_the_template_forgot_it() {
        let bare = VmConfig::default();
        let params = configured(&bare, None).unwrap();
        assert_eq!(params.get("agent"), Some("1"));
    }

    #[test]
    fn without_cloud_init_a_template_keeps_its_own() {
        let params = configured(&clone(), None).unwrap();
        assert_eq!(params.get("ciupgrade"), None);
    }

    #[test]
    fn an_interface_is_never_made_up() {
        let bare = VmConfig::default();
        let params = configured(&bare, None).unwrap();
        assert_eq!(params.get("net0"), None);
        let wants_address = CloudInit {
            dhcp: true,
            ..CloudInit::default()
        };
        let refused = configured(&bare, wants_address);
        assert_eq!(refused.unwrap_err(), Unfit::NoInterface);
    }

    /// kproximate's B10: a key with a comment, `+`, `/` and `=` broke every scale-up.
    #[test]
    fn b10_ssh_keys_survive_both_encodings() {
        let key = "ssh-rsa AAAAB3+zaC1/yc2E= ops team@host";
        let cloud_init = CloudInit {
            ssh_keys: vec![key.to_owned(), "\nssh-ed25519 AAAA b\n".to_owned()],
            ..CloudInit::default()
        };
        let params = configured(&clone(), cloud_init).unwrap();
        let value = params.get("sshkeys").unwrap();
        assert_eq!(
            value,
            "ssh-rsa%20AAAAB3%2BzaC1%2Fyc2E%3D%20ops%20team%40host%0Assh-ed25519%20AAAA%20b%0A"
        );
        let call = crate::request::Call::put(&["nodes", "pve1", "qemu", "101", "config"])
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
        let address = |network: Option<(u8, Option<&str>)>, claimed: Option<&str>| {
            let cloud_init = CloudInit {
                dhcp: network.is_none(),
                network: network.map(|(prefix_length, gateway)| Network {
                    prefix_length,
                    gateway: gateway.map(|gateway| gateway.parse().unwrap()),
                }),
                ..CloudInit::default()
            };
            address_of(&cloud_init, claimed.map(|ip| ip.parse().unwrap()))
        };
        let is = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(address(None, None), is("ip=dhcp"));
        assert_eq!(
            address(Some((24, Some("10.0.0.1"))), Some("10.0.0.5")),
            is("ip=10.0.0.5/24,gw=10.0.0.1")
        );
        assert_eq!(
            address(Some((24, None)), Some("10.0.0.5")),
            is("ip=10.0.0.5/24")
        );
        assert_eq!(
            address(Some((64, Some("fd00::1"))), Some("fd00::5")),
            is("ip6=fd00::5/64,gw6=fd00::1")
        );
        assert_eq!(
            address(Some((64, Some("fe80::1"))), Some("2001:db8:20::5")),
            is("ip6=2001:db8:20::5/64,gw6=fe80::1")
        );
        assert_eq!(address(Some((24, None)), None), Err(Unfit::NoAddress));
        assert_eq!(address_of(&CloudInit::default(), None), Ok(None));
    }

    #[test]
    fn cloud_init_names_what_is_set() {
        let cloud_init = CloudInit {
            dhcp: true,
            nameservers: vec!["10.0.0.53".parse().unwrap(), "fd00::53".parse().unwrap()],
            search_domain: Some("lab.example".to_owned()),
            user: Some("ops".to_owned()),
            ..CloudInit::default()
        };
        let params = configured(&clone(), cloud_init).unwrap();
        assert_eq!(params.get("ipconfig0"), Some("ip=dhcp"));
        assert_eq!(params.get("nameserver"), Some("10.0.0.53 fd00::53"));
        assert_eq!(params.get("searchdomain"), Some("lab.example"));
        assert_eq!(params.get("ciuser"), Some("ops"));
    }

    #[test]
    fn a_cpu_type_replaces_the_templates_and_nothing_else() {
        for (template, expected) in [
            (None, "host"),
            (Some("kvm64"), "host"),
            (
                Some("cputype=kvm64,flags=+aes;-pcid"),
                "host,flags=+aes;-pcid",
            ),
            (
                Some("x86-64-v2-AES,hidden=1,flags=+aes"),
                "host,hidden=1,flags=+aes",
            ),
        ] {
            assert_eq!(cpu("host", template.map(str::to_owned).as_ref()), expected);
        }
    }
}
