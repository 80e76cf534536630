//! What a plan must not do: the words of the last check.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ids::Vmid;

/// What a plan must not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Violation {
    TooManyLaunches,
    NotReserved,
    NameTaken,
    BadName,
    NoSuchPool,
    NoTemplate,
    PoolNotInUse,
    PoolLimit,
    Requirement,
    NumberTaken(Vmid),
    NumberOutOfRange(Vmid),
    AddressTaken(IpAddr),
    LedgerFull,
    WrongCluster,
    NoKey,
    Hypervisor(String),
    NoRoom,
    TooManyMachines,
    NoSuchClaim,
    NotOurs,
    OwnNode,
    ControlPlane,
    Protected,
    NotArmed,
    Budget,
    Window,
    MinNodes,
    PoolStays,
    ServerStays,
    NotCounted,
    Frozen,
    Anchor,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyLaunches => f.write_str("more launches than one tick may begin"),
            Self::NotReserved => f.write_str("nothing is reserved for it in the Ledger"),
            Self::NameTaken => f.write_str("its name is taken"),
            Self::BadName => f.write_str("its name is no DNS label"),
            Self::NoTemplate => f.write_str("it clones no template of its class"),
            Self::NoSuchPool => f.write_str("its pool does not exist"),
            Self::PoolNotInUse => {
                f.write_str("its pool is paused, being deleted, or cannot be used")
            }
            Self::Requirement => f.write_str("its pool requires other machines"),
            Self::PoolLimit => f.write_str("it would pass a limit of its pool"),
            Self::NumberTaken(vmid) => write!(f, "VMID {vmid} is in use"),
            Self::NumberOutOfRange(vmid) => write!(f, "VMID {vmid} is outside the cluster's range"),
            Self::AddressTaken(address) => write!(f, "address {address} is in use"),
            Self::LedgerFull => f.write_str("the Ledger is full"),
            Self::WrongCluster => {
                f.write_str("its Proxmox cluster is not its pool's, or cannot be written to")
            }
            Self::NoKey => f.write_str("the ownership key is missing"),
            Self::Hypervisor(reason) => write!(f, "its hypervisor cannot take it: {reason}"),
            Self::NoRoom => f.write_str("its hypervisor has no room for it"),
            Self::TooManyMachines => f.write_str("its hypervisor would hold too many machines"),
            Self::NoSuchClaim => f.write_str("the claim does not exist"),
            Self::NotOurs => f.write_str("the claim is another one of that name"),
            Self::OwnNode => f.write_str("kproxide runs on its Node"),
            Self::ControlPlane => f.write_str("its Node is a control plane"),
            Self::Protected => f.write_str("it must not be disrupted"),
            Self::NotArmed => f.write_str("nothing may be removed yet"),
            Self::Budget => f.write_str("more removals than its pool's budget"),
            Self::Window => f.write_str("outside the times that its pool allows"),
            Self::PoolStays => f.write_str("nobody deletes its pool"),
            Self::ServerStays => f.write_str("nobody wants its server empty"),
            Self::MinNodes => f.write_str("its pool would fall below minNodes"),
            Self::NotCounted => f.write_str("the Ledger does not count it for the breaker"),
            Self::Frozen => f.write_str("too many machines are bad at once"),
            Self::Anchor => f.write_str("the anchor of its Proxmox cluster is not in order"),
        }
    }
}
