//! NodeClass: its specification is the planner's own type. What is here are rules, and what is read from `cloudInit`: addresses, and the
//! settings that a claim records.

mod network;
mod sizes;

use std::net::IpAddr;

use jiff::SignedDuration;
use kproxide_planner::facts::{
    AddressRange, ClassFacts, ClassJoin, ClassSpec, CloneMode, CloudInit, CloudInitSpec, Existence,
    IpPool, MachineSpec, Network, Template, TemplateInCluster,
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
    sizes::complete(&mut spec, &mut problems);
    check(&spec, &mut problems);
    let cloud_init = spec.cloud_init.as_ref();
    let pool = cloud_init.and_then(|settings| settings.ip_pool.as_ref());
    let (network, ranges) = pool.and_then(|pool| network(pool, &mut problems)).unzip();
    let machine = MachineSpec {
        cloud_init: cloud_init.map(|settings| settings_of(settings, network, &mut problems)),
        vm_options: spec.vm_options.clone(),
        network: network::interfaces(&spec.network, &mut problems),
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
        tags,
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
    if name.is_some() != tags.is_empty() {
        problems.add("template", "set exactly one of name and tags");
    }
    for (cluster, own) in &spec.clusters {
        let Some(TemplateInCluster { name, tags, vmid }) = &own.template else {
            continue;
        };
        let given = [name.is_some(), !tags.is_empty(), vmid.is_some()];
        if given.into_iter().filter(|it| *it).count() != 1 {
            problems.add(
                &format!("clusters.{cluster}.template"),
                "set exactly one of name, tags and vmid",
            );
        }
    }
    let own = spec.clusters.values().filter_map(|it| it.template.as_ref());
    let names = own.map(|it| &it.name).chain([name]);
    for name in names.flatten() {
        problems.label_value("spec.template.name", keys::TEMPLATE, name);
    }
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
    let mut shown = serde_json::to_vec(&shown).expect("a specification is plain data");
    if !spec.clusters.is_empty() {
        let clusters = serde_json::to_vec(&spec.clusters);
        shown.extend(clusters.expect("a specification is plain data"));
    }
    Digest::from(kproxide_common::hex::hex(&sha2::Sha256::digest(shown)))
}

#[cfg(test)]
mod tests;
