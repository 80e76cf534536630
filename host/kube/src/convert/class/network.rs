//! The network interfaces of a NodeClass.

use kproxide_planner::facts::{CardModel, Interface};

use super::Problems;

/// By number: the order in which they are written means nothing.
pub(super) fn interfaces(written: &[Interface], problems: &mut Problems) -> Vec<Interface> {
    let mut interfaces = written.to_vec();
    interfaces.sort_by_key(Interface::number);
    for (index, one) in written.iter().enumerate() {
        let field = |name: &str| format!("network[{index}].{name}");
        let name = &one.name;
        if one.number().is_none() {
            problems.add(
                &field("name"),
                format_args!("{name:?} is none of net0 to net31"),
            );
        }
        if written[..index].iter().any(|earlier| earlier.name == *name) {
            problems.add(&field("name"), format_args!("{name:?} is there twice"));
        }
        if let Some(bridge) = &one.bridge
            && !is_bridge(bridge)
        {
            problems.add(
                &field("bridge"),
                format_args!("{bridge:?} is not a bridge or VNet such as vmbr0: 1 to 15 letters, digits, -, _ or ."),
            );
        }
        for vlan in one.vlan.iter().chain(&one.trunks) {
            if !(1..=4094).contains(vlan) {
                problems.add(&field("vlan"), format_args!("{vlan} is no VLAN: 1 to 4094"));
            }
        }
        if let Some(mtu) = one.mtu
            && mtu != 1
            && !(576..=65520).contains(&mtu)
        {
            problems.add(
                &field("mtu"),
                format_args!("{mtu} is neither 1, which means its bridge's, nor 576 to 65520"),
            );
        }
        if one.mtu.is_some() && one.model.is_some_and(|model| model != CardModel::Virtio) {
            problems.add(&field("mtu"), "is for model virtio alone");
        }
        if let Some(prefix) = &one.mac_prefix
            && let Err(problem) = prefix_bytes(prefix)
        {
            problems.add(&field("macPrefix"), format_args!("{prefix:?} {problem}"));
        }
        if one.rate == Some(0) {
            problems.add(&field("rateMBps"), "is 0: leave it out for no limit");
        }
    }
    if !written.is_empty() && written.iter().all(|it| &*it.name != "net0") {
        problems.add(
            "network",
            "has no net0: by its address a machine joins. Add it, or leave network out to have the template's",
        );
    }
    interfaces
}

fn is_bridge(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=15).contains(&name.len()) && name.chars().all(is_inner)
}

/// 1 to 5 bytes of an address that one machine alone has.
fn prefix_bytes(prefix: &str) -> Result<(), &'static str> {
    let bytes: Option<Vec<u8>> = prefix
        .split(':')
        .map(|byte| {
            let is_hex = byte.len() == 2 && byte.bytes().all(|c| c.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(byte, 16).ok()).flatten()
        })
        .collect();
    match bytes.as_deref() {
        Some([first, ..]) if first & 1 == 1 => {
            Err("begins a multicast address: its first byte must be even")
        }
        Some(bytes) if (1..=5).contains(&bytes.len()) => Ok(()),
        Some(_) | None => Err("is not 1 to 5 bytes such as BC:24:11"),
    }
}
