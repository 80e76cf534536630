//! The shapes of text values and what the server says of a value that does not have its shape.

use super::Format;

/// What is wrong with `value`, if anything.
pub(super) fn complaint(format: Format, name: &str, value: &str) -> Option<String> {
    let invalid = |ok: bool, text: &str| (!ok).then(|| format!("invalid format - {text}\n"));
    match format {
        Format::Any => None,
        Format::Max(length) => (value.chars().count() > length)
            .then(|| format!("value may only be {length} characters long")),
        Format::VmidList => invalid(
            items(value).all(is_vmid),
            "value does not look like a valid VM ID",
        ),
        Format::NodeName => invalid(
            is_label(value),
            "value does not look like a valid node name",
        ),
        Format::StorageId => storage_complaint(value),
        Format::StorageIdList => items(value).find_map(storage_complaint),
        Format::PoolId => invalid(
            is_pool(value),
            &format!("value '{value}' does not look like a valid pool name"),
        ),
        Format::DnsName => invalid(
            value.split('.').all(is_label),
            "value does not look like a valid DNS name",
        ),
        Format::ConfigId => config_id_complaint(value),
        Format::ConfigIdList => items(value).find_map(config_id_complaint),
        Format::Tags => invalid(items(value).all(is_tag), "invalid characters in tag"),
        Format::UrlEncoded => invalid(
            is_url_encoded(value),
            &format!("invalid urlencoded string: {value}"),
        ),
        Format::Growth => {
            let size = value.strip_prefix('+').unwrap_or(value);
            let valid = crate::pve::vm::parse_size(size).is_some();
            (!valid).then(|| "value does not match the regex pattern".into())
        }
        Format::Disk => {
            let valid = crate::pve::vm::is_drive_key(value) && !value.starts_with("unused");
            (!valid).then(|| {
                format!(
                    "value '{value}' does not have a value in the enumeration '{}'",
                    disks()
                )
            })
        }
        Format::VolumeId => invalid(
            value.contains(':'),
            &format!("unable to parse volume ID '{value}'"),
        ),
        Format::Network => property_complaint(name, value, &NETWORK_KEYS, |key| {
            NETWORK_MODELS.contains(&key)
        }),
        Format::IpConfig => ip_config_complaint(name, value),
        Format::Agent => {
            property_complaint(name, value, &AGENT_KEYS, |key| matches!(key, "0" | "1"))
        }
        Format::Cpu => property_complaint(name, value, &CPU_KEYS, |kind| {
            let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            !kind.is_empty() && kind.chars().all(is_inner)
        }),
        Format::Memory => {
            let number = value.strip_prefix("current=").unwrap_or(value);
            match number.parse::<u64>() {
                Ok(mebibytes) if mebibytes >= 16 => None,
                Ok(_) => Some("invalid format - format error\nmemory.current: value must have a minimum value of 16\n".into()),
                Err(_) => Some(format!(
                    "invalid format - format error\nmemory.current: type check ('integer') failed - got '{number}'\n"
                )),
            }
        }
    }
}

const NETWORK_KEYS: [&str; 17] = [
    "model",
    "macaddr",
    "bridge",
    "queues",
    "rate",
    "tag",
    "trunks",
    "firewall",
    "link_down",
    "mtu",
    "host-managed",
    "e1000",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];
const NETWORK_MODELS: [&str; 6] = ["e1000", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3"];
const AGENT_KEYS: [&str; 5] = [
    "enabled",
    "fstrim_cloned_disks",
    "freeze-fs-on-backup",
    "guest-fsfreeze",
    "type",
];

const CPU_KEYS: [&str; 8] = [
    "cputype",
    "flags",
    "guest-phys-bits",
    "hidden",
    "hv-vendor-id",
    "level",
    "phys-bits",
    "reported-model",
];

/// Checks the keys of `key=value,key=value`. The first part may be a bare word that `is_default` accepts.
fn property_complaint(
    name: &str,
    value: &str,
    keys: &[&str],
    is_default: impl Fn(&str) -> bool,
) -> Option<String> {
    let name = name
        .strip_suffix("[n]")
        .map_or_else(|| name.to_owned(), |family| format!("{family}0"));
    for (at, part) in value.split(',').enumerate() {
        let known = match part.split_once('=') {
            Some((key, _)) => keys.contains(&key),
            None => at == 0 && is_default(part),
        };
        if !known {
            let key = part.split('=').next().unwrap_or(part);
            return Some(format!(
                "invalid format - format error\n{name}.{key}: property is not defined in schema and the schema does not allow additional properties\n"
            ));
        }
    }
    None
}

fn ip_config_complaint(name: &str, value: &str) -> Option<String> {
    if let Some(text) = property_complaint(name, value, &["ip", "gw", "ip6", "gw6"], |_| false) {
        return Some(text);
    }
    let fail = |key: &str, text: &str| {
        Some(format!(
            "invalid format - format error\nipconfig0.{key}: invalid format - {text}\n"
        ))
    };
    let mut has_ip = false;
    let mut gateway = None;
    for (key, value) in value.split(',').filter_map(|part| part.split_once('=')) {
        match key {
            "ip" if value == "dhcp" => has_ip = true,
            "ip" if is_cidr::<std::net::Ipv4Addr>(value, 32) => has_ip = true,
            "ip" => {
                return fail(
                    "ip",
                    "value does not look like a valid ipv4 network configuration",
                );
            }
            "ip6"
                if matches!(value, "auto" | "dhcp")
                    || is_cidr::<std::net::Ipv6Addr>(value, 128) => {}
            "ip6" => {
                return fail(
                    "ip6",
                    "value does not look like a valid ipv6 network configuration",
                );
            }
            "gw" => gateway = Some(value),
            _ => {}
        }
    }
    match gateway {
        Some(gateway) if gateway.parse::<std::net::Ipv4Addr>().is_err() => {
            fail("gw", "value does not look like a valid ipv4 address")
        }
        Some(_) if !has_ip => Some("invalid format - format error\nipconfig0.gw: gateway specified without specifying an IP address\n".into()),
        Some(_) | None => None,
    }
}

fn is_cidr<Address: std::str::FromStr>(text: &str, longest: u32) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    address.parse::<Address>().is_ok() && bits.parse::<u32>().is_ok_and(|bits| bits <= longest)
}

/// The parts of a list, which commas, semicolons or spaces separate.
fn items(value: &str) -> impl Iterator<Item = &str> {
    value
        .split([',', ';', ' ', '\0'])
        .filter(|item| !item.is_empty())
}

/// A VMID: 100 to 999999999.
fn is_vmid(text: &str) -> bool {
    let digits =
        text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0') && text.len() <= 9;
    digits && text.parse::<u32>().is_ok_and(|vmid| vmid >= 100)
}

/// A tag, in lower or upper case.
fn is_tag(text: &str) -> bool {
    let first = text
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    first
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'.'))
}

/// One part of a DNS name.
fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    inner && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

fn is_pool(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    };
    text.split('/').count() <= 3 && text.split('/').all(part)
}

fn storage_complaint(text: &str) -> Option<String> {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let last = text
        .bytes()
        .last()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    let inner = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    (!(first && last && inner && text.len() >= 2))
        .then(|| format!("invalid format - storage ID '{text}' contains illegal characters\n"))
}

fn config_id_complaint(text: &str) -> Option<String> {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let inner = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    (!(first && inner && text.len() >= 2))
        .then(|| format!("invalid format - invalid configuration ID '{text}'\n"))
}

/// Text in which everything but unreserved characters is escaped. A bare space or plus sign is not.
fn is_url_encoded(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'%' => {
                let hex = |offset: usize| bytes.get(at + offset).is_some_and(u8::is_ascii_hexdigit);
                if !(hex(1) && hex(2)) {
                    return false;
                }
                3
            }
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => 1,
            byte if byte.is_ascii_alphanumeric() => 1,
            _ => return false,
        };
    }
    true
}

/// All disks that a machine can have, in the server's order.
fn disks() -> String {
    let family =
        |name: &'static str, count: u32| (0..count).map(move |number| format!("{name}{number}"));
    let mut names: Vec<String> = family("ide", 4)
        .chain(family("scsi", 31))
        .chain(family("virtio", 16))
        .collect();
    names.extend(family("sata", 6));
    names.extend(["efidisk0".to_owned(), "tpmstate0".to_owned()]);
    names.join(", ")
}
