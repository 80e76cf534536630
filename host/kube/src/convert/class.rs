//! NodeClass: its specification is the planner's own type. What is here are rules, and what is read from `cloudInit`: addresses, and the
//! settings that a claim records.

use std::net::IpAddr;

use jiff::SignedDuration;
use kproxide_planner::facts::{
    AddressRange, ClassFacts, ClassJoin, ClassSpec, CloneMode, CloudInit, CloudInitSpec, Existence,
    GeneratedTypes, InstanceType, IpPool, MachineSpec, Network, Template,
};
use kproxide_planner::ids::Digest;
use kproxide_planner::keys;
use serde_json::{Map, Value};
use sha2::Digest as _;

use super::Problems;
use super::defaults::least_class;

/// A failed machine takes room from others for so long at most.
const LONGEST_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// As far as it could be read; nothing is launched while the facts have a problem.
pub fn class_facts(written: &Map<String, Value>) -> ClassFacts {
    let mut problems = Problems::default();
    problems.too_deep(written);
    let mut spec: ClassSpec = problems.read(written, least_class());
    let generated = spec.generated_types.iter();
    let generated: Vec<_> = generated.flat_map(GeneratedTypes::sizes).collect();
    spec.instance_types.extend(generated);
    check(&spec, &mut problems);
    let cloud_init = spec.cloud_init.as_ref();
    let pool = cloud_init.and_then(|settings| settings.ip_pool.as_ref());
    let (network, ranges) = pool.and_then(|pool| network(pool, &mut problems)).unzip();
    let machine = MachineSpec {
        cloud_init: cloud_init.map(|settings| settings_of(settings, network, &mut problems)),
        vm_options: spec.vm_options.clone(),
    };
    ClassFacts {
        digest: digest(&spec, &machine),
        machine,
        addresses: pool.map(|_| ranges.unwrap_or_default()),
        // The status has them.
        learned: Vec::new(),
        problem: problems.text(),
        // The metadata has it.
        existence: Existence::default(),
        spec,
    }
}

/// What the schema cannot say, or an API server with an older schema did not.
fn check(spec: &ClassSpec, problems: &mut Problems) {
    let Template {
        name,
        clone,
        storage,
        ..
    } = &spec.template;
    if *clone == CloneMode::Linked && storage.is_some() {
        problems.add(
            "template.storage",
            "cannot be used with clone: linked, which stays on the template's storage; use clone: full, or leave storage out",
        );
    }
    problems.label_value("spec.template.name", keys::TEMPLATE, name);
    check_sizes(&spec.instance_types, problems);
    if spec.join.template.is_some() == spec.join.guest_exec.is_some() {
        problems.add("join", "set exactly one of template and guestExec");
    }
    if spec.join.keeps_failed() > LONGEST_KEPT {
        problems.add(
            "join.keepFailed",
            "is longer than 7 days, which is the most",
        );
    }
    if let Some(cpu_type) = &spec.vm_options.cpu_type {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if cpu_type.is_empty() || !cpu_type.chars().all(is_inner) {
            problems.add(
                "vmOptions.cpuType",
                format_args!("{cpu_type:?} is not a CPU type of Proxmox; write it like host, x86-64-v2-AES or custom-NAME"),
            );
        }
    }
}

/// Of one class, generated or not.
const SIZES_MAX: usize = 100;

fn check_sizes(instance_types: &[InstanceType], problems: &mut Problems) {
    if instance_types.is_empty() {
        problems.add(
            "instanceTypes",
            "is empty, and so is generatedTypes: give at least one size",
        );
    }
    if instance_types.len() > SIZES_MAX {
        problems.add(
            "generatedTypes",
            format_args!(
                "with instanceTypes, these are {} sizes: at most {SIZES_MAX} are taken",
                instance_types.len()
            ),
        );
    }
    for (index, one) in instance_types.iter().enumerate() {
        if instance_types[..index]
            .iter()
            .any(|earlier| earlier.name == one.name)
        {
            problems.add(
                "instanceTypes",
                format_args!(
                    "{:?} is there twice, also counting those of generatedTypes",
                    one.name
                ),
            );
        }
        if one.cores == 0 || one.memory_mib == 0 {
            problems.add(
                "instanceTypes",
                format_args!("{:?} needs cores and memoryMiB above 0", one.name),
            );
        }
    }
}

fn network(pool: &IpPool, problems: &mut Problems) -> Option<(Network, Vec<AddressRange>)> {
    let parsed = pool.cidr.split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        (length <= bits(address)).then_some((address, length))
    });
    let Some((network, prefix_length)) = parsed else {
        problems.add(
            "cloudInit.ipPool.cidr",
            format_args!("{:?} is not a network such as 10.0.0.0/24", pool.cidr),
        );
        return None;
    };
    let mut address = |field: &str, text: &str, or_link_local: bool| -> Option<IpAddr> {
        let field = format!("cloudInit.ipPool.{field}");
        let Ok(address) = text.parse::<IpAddr>() else {
            problems.add(&field, format_args!("{text:?} is not an IP address"));
            return None;
        };
        let is_taken = contains(network, prefix_length, address)
            || (or_link_local && network.is_ipv6() && is_link_local(address));
        if !is_taken {
            problems.add(&field, format_args!("{text:?} is outside of {}", pool.cidr));
            return None;
        }
        Some(address)
    };
    // All are read before any is missed: each wrong one is told.
    let gateway = match pool.gateway.as_deref() {
        // Routers of IPv6 tell their link-local address, and a Node takes it from them.
        Some(text) => address("gateway", text, true).map(Some),
        None => Some(None),
    };
    let mut ranges = Vec::new();
    for (index, range) in pool.ranges.iter().enumerate() {
        let first = address(&format!("ranges[{index}].first"), &range.first, false);
        let last = address(&format!("ranges[{index}].last"), &range.last, false);
        let range = first.zip(last);
        ranges.push(range.map(|(first, last)| AddressRange { first, last }));
    }
    for (index, range) in ranges.iter().enumerate() {
        let Some(range) = range else { continue };
        let field = format!("cloudInit.ipPool.ranges[{index}]");
        if range.first > range.last {
            problems.add(
                &field,
                format_args!(
                    "{}-{} is empty: first must not be larger than last",
                    range.first, range.last
                ),
            );
        }
        let is_inside = |gateway| range.first <= gateway && gateway <= range.last;
        if gateway.flatten().is_some_and(is_inside) {
            problems.add(&field, "holds the gateway: leave it out of the range");
        }
        for reserved in reserved_addresses(network, prefix_length) {
            if range.first <= reserved && reserved <= range.last {
                problems.add(
                    &field,
                    format_args!(
                        "holds {reserved}, the network's own or broadcast address: leave it out of the range"
                    ),
                );
            }
        }
        if ranges[..index]
            .iter()
            .flatten()
            .any(|other| range.first <= other.last && other.first <= range.last)
        {
            problems.add(&field, "overlaps an earlier range");
        }
    }
    let network = Network {
        prefix_length,
        gateway: gateway?,
    };
    Some((network, ranges.into_iter().collect::<Option<_>>()?))
}

/// As fe80::1 is. It is of every link, and of no network that has a prefix to choose from.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    }
}

/// The first and the last address of an IPv4 network that has more than two: no machine can have them.
fn reserved_addresses(network: IpAddr, prefix_length: u8) -> Vec<IpAddr> {
    match network {
        IpAddr::V4(network) if prefix_length <= 30 => {
            let hosts = u32::MAX.checked_shr(u32::from(prefix_length)).unwrap_or(0);
            let first = network.to_bits() & !hosts;
            [first, first | hosts]
                .map(|address| IpAddr::from(std::net::Ipv4Addr::from_bits(address)))
                .into()
        }
        IpAddr::V4(_) | IpAddr::V6(_) => Vec::new(),
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn contains(network: IpAddr, prefix_length: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(prefix_length))
                .unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(prefix_length))
                .unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

fn settings_of(
    settings: &CloudInitSpec,
    network: Option<Network>,
    problems: &mut Problems,
) -> CloudInit {
    let CloudInitSpec {
        user,
        ssh_keys,
        dhcp,
        ip_pool,
        nameserver,
        search_domain,
    } = settings;
    if *dhcp == Some(true) && ip_pool.is_some() {
        problems.add("cloudInit", "dhcp: true and ipPool exclude each other");
    }
    CloudInit {
        user: user.clone(),
        ssh_keys: ssh_keys.clone(),
        dhcp: *dhcp == Some(true),
        network,
        nameservers: nameservers(nameserver.as_deref().unwrap_or_default(), problems),
        search_domain: search_domain.clone(),
    }
}

/// Separated by blanks or commas.
fn nameservers(text: &str, problems: &mut Problems) -> Vec<IpAddr> {
    let mut servers = Vec::new();
    for server in text.split([' ', ',']).filter(|part| !part.is_empty()) {
        match server.parse() {
            Ok(server) => servers.push(server),
            Err(_) => problems.add(
                "cloudInit.nameserver",
                format_args!("{server:?} is not an address; write it like 10.0.0.53"),
            ),
        }
    }
    servers
}

/// Of what a machine shows: not of how long things may take, of sizes on offer (each claim records its own), of addresses on offer, or of tags.
fn digest(spec: &ClassSpec, machine: &MachineSpec) -> Digest {
    let join = ClassJoin {
        keep_failed: None,
        ..spec.join.clone()
    };
    let shown = (&spec.template, spec.arch, spec.os, join, machine);
    let shown = serde_json::to_vec(&shown).expect("a specification is plain data");
    Digest::from(kproxide_common::hex::hex(&sha2::Sha256::digest(shown)))
}

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{Join, ProviderId};
    use serde_json::{Value, json};

    use super::*;

    fn read(change: impl FnOnce(&mut Value)) -> ClassFacts {
        let mut spec = json!({
            "template": {"name": "debian-13-k3s"},
            "instanceTypes": [{"name": "m", "cores": 4, "memoryMiB": 8192}],
        });
        change(&mut spec);
        class_facts(&serde_json::from_value(spec).unwrap())
    }

    fn problem(change: impl FnOnce(&mut Value)) -> String {
        read(change).problem.expect("a problem")
    }

    fn with_pool(pool: Value) -> impl FnOnce(&mut Value) {
        move |spec| spec["cloudInit"] = json!({"ipPool": pool})
    }

    #[test]
    fn sizes_are_generated_beside_those_that_are_written() {
        let facts = read(|spec| {
            spec["generatedTypes"] = json!([
                {"family": "general", "cores": [2, 4], "memoryPerCoreMiB": [2048, 4096], "maxPods": 60},
                {"family": "odd", "cores": [1], "memoryPerCoreMiB": [1536]},
            ]);
        });
        assert_eq!(facts.problem, None);
        let sizes: Vec<(&str, u32, u32)> = facts
            .instance_types
            .iter()
            .map(|size| (size.name.as_str(), size.cores, size.memory_mib))
            .collect();
        assert_eq!(
            sizes[1..],
            [
                ("general-2x4", 2, 4096),
                ("general-2x8", 2, 8192),
                ("general-4x8", 4, 8192),
                ("general-4x16", 4, 16384),
                ("odd-1x1.5", 1, 1536),
            ]
        );
        let general = &facts.instance_types[1];
        assert_eq!(
            (general.family.as_deref(), general.max_pods),
            (Some("general"), 60)
        );

        let only = read(|spec| {
            spec["instanceTypes"] = json!([]);
            spec["generatedTypes"] =
                json!([{"family": "a", "cores": [1], "memoryPerCoreMiB": [1024]}]);
        });
        assert_eq!((only.problem, only.spec.instance_types.len()), (None, 1));
        let neither = read(|spec| spec["instanceTypes"] = json!([]));
        let said = neither.problem.unwrap();
        assert!(
            said.contains("instanceTypes: is empty, and so is generatedTypes"),
            "{said}"
        );
        let many: Vec<u32> = (1..=32).collect();
        let too_many = read(|spec| {
            spec["generatedTypes"] = json!([{"family": "a", "cores": many, "memoryPerCoreMiB": [1024, 2048, 4096, 8192]}]);
        });
        let said = too_many.problem.unwrap();
        assert!(said.contains("these are 129 sizes: at most 100"), "{said}");
        let twice = read(|spec| {
            spec["generatedTypes"] =
                json!([{"family": "a", "cores": [2, 2], "memoryPerCoreMiB": [1024]}]);
        });
        assert!(twice.problem.unwrap().contains("\"a-2x2\" is there twice"));
    }

    #[test]
    fn a_template_and_a_size_are_enough() {
        let facts = read(|_| {});
        assert_eq!(facts.problem, None);
        assert_eq!(facts.instance_types[0].memory_bytes(), 8 << 30);
        assert_eq!(facts.instance_types[0].max_pods, 110);
        assert_eq!(facts.timeouts.join.as_secs(), 600);
        assert_eq!(facts.join.way(), Join::Template);
        assert_eq!(facts.addresses, None);
        assert_eq!(facts.machine, MachineSpec::default());
        assert_eq!(facts.provider_id, ProviderId::Auto);
    }

    /// Huge pages are counted in bytes.
    #[test]
    fn r29_a_type_may_offer_more_than_32_bits_of_a_resource() {
        let facts = read(|spec| {
            let offered = json!({"hugepages-1Gi": 8_589_934_592_u64, "hugepages-2Mi": 0});
            spec["instanceTypes"][0]["extendedResources"] = offered;
        });
        assert_eq!(facts.problem, None);
        let offered: Vec<_> = facts.instance_types[0].extended().collect();
        assert_eq!(offered, [(&"hugepages-1Gi".into(), 8 << 30)]);
    }

    #[test]
    fn an_address_pool_is_read_and_checked() {
        let facts = read(with_pool(json!({
            "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "ranges": [{"first": "10.0.0.10", "last": "10.0.0.19"}],
        })));
        assert_eq!(facts.problem, None);
        assert_eq!(facts.addresses.unwrap()[0].last.to_string(), "10.0.0.19");
        assert_eq!(
            facts.machine.cloud_init.unwrap().network,
            Some(Network {
                prefix_length: 24,
                gateway: Some("10.0.0.1".parse().unwrap())
            })
        );

        let check = |pool: Value, expected: &str| {
            let text = problem(with_pool(pool));
            assert!(text.contains(expected), "{text}");
        };
        let range = |first: &str, last: &str| json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "ranges": [{"first": first, "last": last}]});
        check(
            range("10.0.0.1", "10.0.0.9"),
            "ranges[0]: holds the gateway",
        );
        check(range("10.0.0.9", "10.0.0.5"), "10.0.0.9-10.0.0.5 is empty");
        check(range("10.0.0.200", "10.0.0.255"), "holds 10.0.0.255");
        check(range("10.0.0.0", "10.0.0.0"), "holds 10.0.0.0");
        check(
            range("10.0.1.1", "10.0.1.9"),
            "\"10.0.1.1\" is outside of 10.0.0.0/24",
        );
        check(
            range("ten", "10.0.0.9"),
            "ranges[0].first: \"ten\" is not an IP address",
        );
        check(
            json!({"cidr": "10.0.0.0/33", "ranges": []}),
            "\"10.0.0.0/33\" is not a network",
        );
    }

    #[test]
    fn r36_the_gateway_of_an_ipv6_network_may_be_link_local() {
        let pool = |cidr: &str, gateway: &str, first: &str| {
            let range = json!({"first": first, "last": first});
            read(with_pool(
                json!({"cidr": cidr, "gateway": gateway, "ranges": [range]}),
            ))
        };
        let facts = pool("2001:db8:20::/64", "fe80::1", "2001:db8:20::10");
        assert_eq!(facts.problem, None);
        let network = facts.machine.cloud_init.unwrap().network.unwrap();
        assert_eq!(network.gateway, Some("fe80::1".parse().unwrap()));

        for (cidr, gateway, first) in [
            ("10.0.0.0/24", "fe80::1", "10.0.0.10"),
            ("10.0.0.0/24", "169.254.0.1", "10.0.0.10"),
            ("2001:db8:20::/64", "2001:db8:21::1", "2001:db8:20::10"),
            ("2001:db8:20::/64", "2001:db8:20::1", "fe80::10"),
        ] {
            let text = pool(cidr, gateway, first).problem.expect("a problem");
            assert!(text.contains(&format!("is outside of {cidr}")), "{text}");
        }
    }

    #[test]
    fn r36_each_wrong_address_is_told() {
        let text = problem(with_pool(json!({
            "cidr": "10.0.0.0/24", "gateway": "10.0.1.1",
            "ranges": [
                {"first": "10.0.2.5", "last": "10.0.3.9"},
                {"first": "ten", "last": "10.0.0.9"},
                {"first": "10.0.0.30", "last": "10.0.0.20"},
            ],
        })));
        for expected in [
            "gateway: \"10.0.1.1\" is outside of 10.0.0.0/24",
            "ranges[0].first: \"10.0.2.5\" is outside of 10.0.0.0/24",
            "ranges[0].last: \"10.0.3.9\" is outside of 10.0.0.0/24",
            "ranges[1].first: \"ten\" is not an IP address",
            "ranges[2]: 10.0.0.30-10.0.0.20 is empty",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn problems_name_field_value_and_fix() {
        let text = problem(|spec| spec["timeouts"] = json!({"join": "ten minutes"}));
        assert!(
            text.starts_with("spec.timeouts.join: \"ten minutes\" is not a length of time"),
            "{text}"
        );
        let text = problem(|spec| {
            spec["template"] = json!({"name": "t", "clone": "linked", "storage": "ceph"})
        });
        assert!(
            text.contains("spec.template.storage: cannot be used with clone: linked"),
            "{text}"
        );
    }

    #[test]
    fn a_cpu_type_is_a_word_of_proxmox() {
        let with = |cpu_type: &str| {
            let cpu_type = cpu_type.to_owned();
            read(move |spec| spec["vmOptions"] = json!({"cpuType": cpu_type}))
        };
        for good in ["host", "x86-64-v2-AES", "custom-lab_1"] {
            let facts = with(good);
            assert_eq!(facts.problem, None);
            assert_eq!(facts.machine.vm_options.cpu_type.as_deref(), Some(good));
        }
        for bad in ["", "host,flags=+aes", "x86 64", "hôst"] {
            let text = with(bad).problem.expect("a problem");
            assert!(
                text.contains("spec.vmOptions.cpuType")
                    && text.contains("is not a CPU type of Proxmox"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_digest_is_of_what_machines_show() {
        let digest = |change: fn(&mut Value)| read(change).digest;
        let base = digest(|_| {});
        // Claims have recorded it.
        assert_eq!(
            base.as_str(),
            "ce2b991f6b44d4339239f4d5483cd6d677471a181d587c1a50c2debef9f93dd9"
        );
        assert_eq!(
            base,
            digest(|spec| spec["timeouts"] = json!({"join": "1m"}))
        );
        assert_eq!(base, digest(|spec| spec["tags"] = json!(["k8s"])));
        assert_ne!(
            base,
            digest(|spec| spec["template"]["name"] = json!("other"))
        );
        assert_ne!(
            base,
            digest(|spec| spec["cloudInit"] = json!({"user": "ops"}))
        );
        assert_ne!(
            base,
            digest(|spec| spec["vmOptions"] = json!({"cpuType": "host"}))
        );
        assert_eq!(base, digest(|spec| spec["vmOptions"] = json!({})));
    }
}
