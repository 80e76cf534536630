//! Addresses of machines as numbers, and those that are taken.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::facts::LedgerFacts;
use crate::world::World;

/// Addresses that the Ledger or a claim holds.
pub(in crate::planning) fn used_addresses(world: &World, ledger: &LedgerFacts) -> BTreeSet<IpAddr> {
    let entries = ledger.entries.iter().filter_map(|entry| entry.address);
    let claims = world
        .claims()
        .values()
        .filter_map(|claim| claim.spec.address);
    entries.chain(claims).collect()
}

pub(in crate::planning) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

pub(in crate::planning) fn address(number: u128, is_ipv4: bool) -> IpAddr {
    match is_ipv4 {
        true => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        false => IpAddr::V6(Ipv6Addr::from(number)),
    }
}
