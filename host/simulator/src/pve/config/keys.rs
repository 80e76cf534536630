//! What single configuration keys need: privileges, normal forms, hot plugging.

use std::collections::BTreeSet;

use base64::Engine;

use crate::pve::answer::{Refusal, percent_decode};
use crate::pve::serve::Call;
use crate::pve::state::is_indexed;
use crate::pve::vm::{Drive, is_drive_key};

/// Keys that only root itself may set, not even a token of root.
const ROOT_ONLY: [&str; 12] = [
    "affinity",
    "amd-sev",
    "arch",
    "args",
    "hookscript",
    "hugepages",
    "intel-tdx",
    "ivshmem",
    "keephugepages",
    "lock",
    "spice_enhancements",
    "vmgenid",
];

/// The value as it is stored, or why it is refused.
pub(crate) fn normalize(key: &str, value: &str) -> Result<String, Refusal> {
    match key {
        "tags" => Ok(sorted_tags(value)),
        "sshkeys" => {
            let keys = percent_decode(value, false);
            let valid = keys
                .lines()
                .filter(|line| !line.trim().is_empty())
                .all(is_public_key);
            if valid {
                Ok(value.to_owned())
            } else {
                Err(Refusal::failed("SSH public key validation error"))
            }
        }
        "hookscript" => {
            let text = format!("script '{value}' does not exist\n");
            Err(Refusal::parameter("hookscript", text))
        }
        _ if is_boolean(key) => Ok(if matches!(value, "1" | "on" | "yes") {
            "1"
        } else {
            "0"
        }
        .to_owned()),
        _ => Ok(value.to_owned()),
    }
}

fn is_boolean(key: &str) -> bool {
    matches!(
        key,
        "acpi"
            | "autostart"
            | "ciupgrade"
            | "freeze"
            | "kvm"
            | "localtime"
            | "numa"
            | "onboot"
            | "protection"
            | "reboot"
            | "tablet"
            | "tdf"
            | "template"
    )
}

/// Tags in lower case, sorted, each once.
fn sorted_tags(value: &str) -> String {
    let tags: BTreeSet<String> = tags_of(value).map(str::to_lowercase).collect();
    tags.into_iter().collect::<Vec<_>>().join(";")
}

fn tags_of(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ';', ' ']).filter(|tag| !tag.is_empty())
}

/// Type, base64 and perhaps a comment, as `ssh-keygen` would accept.
fn is_public_key(line: &str) -> bool {
    let mut parts = line.split_whitespace();
    let kind = parts.next().unwrap_or_default();
    let known =
        kind.starts_with("ssh-") || kind.starts_with("ecdsa-sha2-") || kind.starts_with("sk-");
    let body = parts
        .next()
        .and_then(|body| base64::engine::general_purpose::STANDARD.decode(body).ok());
    // The decoded key begins with the length of its type's name and that name.
    let named = body.is_some_and(|body| body.get(4..4 + kind.len()) == Some(kind.as_bytes()));
    known && named
}

/// Whether the key takes effect while the machine runs.
pub(super) fn hot_plugs(key: &str) -> bool {
    matches!(
        key,
        "agent"
            | "cicustom"
            | "cipassword"
            | "citype"
            | "ciupgrade"
            | "ciuser"
            | "description"
            | "name"
            | "nameserver"
            | "onboot"
            | "protection"
            | "searchdomain"
            | "shares"
            | "sshkeys"
            | "startup"
            | "tags"
    ) || is_indexed(key, "net")
        || is_indexed(key, "ipconfig")
        || is_drive_key(key)
}

/// Refuses a change of keys that the caller may not change. `None` as a value deletes the key.
pub(super) fn check_privileges<'a>(
    call: &Call,
    keys: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<(), Refusal> {
    if call.who.is_root() {
        return Ok(());
    }
    let state = call.pve.state();
    let vm = format!("/vms/{}", call.var("vmid"));
    for (key, value) in keys {
        if ROOT_ONLY.contains(&key) || is_indexed(key, "parallel") {
            return Err(Refusal::Failed(format!("only root can set '{key}' config")));
        }
        // Those of a drive depend on its value and are asked for later.
        if !is_drive_key(key) {
            state.require_any(&call.who, &vm, privileges_of(key, value))?;
        }
        if is_indexed(key, "net") {
            // Neither changed nor deleted where its old bridge may not be used.
            let old = state.vms.get(&call.vmid()).and_then(|vm| vm.get(key));
            for interface in [old, value].into_iter().flatten() {
                state.require_network(&call.who, interface)?;
            }
        }
        if let Some(drive) = value
            .filter(|_| is_drive_key(key))
            .and_then(|value| Drive::parse(key, value))
        {
            let storage = format!("/storage/{}", drive.storage());
            let (_, name) = drive.volid.split_once(':').unwrap_or_default();
            let is_new = name == "cloudinit" || name.parse::<f64>().is_ok();
            let privileges = ["Datastore.AllocateSpace", "Datastore.Audit"];
            let enough = if is_new { 1 } else { 2 };
            state.require_any(&call.who, &storage, &privileges[..enough])?;
        }
        if key == "startup" {
            state.require(&call.who, "/", "Sys.Modify")?;
        }
        if key == "tags" {
            let old = state
                .vms
                .get(&call.vmid())
                .and_then(|vm| vm.get("tags"))
                .unwrap_or_default();
            let changed = changed_tags(old, value.unwrap_or_default());
            let free = |tag: &String| {
                let allowed = state
                    .allowed_tags
                    .as_ref()
                    .is_none_or(|allowed| allowed.contains(tag));
                allowed && !state.registered_tags.contains(tag)
            };
            if let Some(tag) = changed.into_iter().find(|tag| !free(tag))
                && !state.may(&call.who, "/", "Sys.Modify")
            {
                return Err(Refusal::Forbidden(format!(
                    "/, Sys.Modify for modifying tag '{tag}'"
                )));
            }
        }
    }
    Ok(())
}

/// Tags that are in one list only: removing a tag needs the same right as adding it. Added ones first.
fn changed_tags(old: &str, new: &str) -> Vec<String> {
    let [old, new] =
        [old, new].map(|list| tags_of(list).map(str::to_owned).collect::<BTreeSet<_>>());
    new.difference(&old)
        .chain(old.difference(&new))
        .cloned()
        .collect()
}

/// One of these lets somebody change the key.
pub(crate) fn privileges_of(key: &str, value: Option<&str>) -> &'static [&'static str] {
    let is_cdrom = value.is_some_and(|value| value.contains("media=cdrom"));
    match key {
        "cores" | "sockets" | "cpu" | "cpulimit" | "cpuunits" | "numa" | "vcpus" | "smp" => {
            &["VM.Config.CPU"]
        }
        "memory" | "balloon" | "shares" | "allow-ksm" => &["VM.Config.Memory"],
        "ciuser" | "cipassword" | "cicustom" | "citype" | "ciupgrade" | "sshkeys"
        | "nameserver" | "searchdomain" => &["VM.Config.Cloudinit", "VM.Config.Network"],
        "smbios1" | "machine" | "vga" | "scsihw" | "watchdog" | "rng0" | "audio0" | "hotplug"
        | "tablet" | "acpi" | "kvm" => &["VM.Config.HWType"],
        "boot" | "bootdisk" | "vmstatestorage" => &["VM.Config.Disk"],
        _ if is_indexed(key, "numa") => &["VM.Config.CPU"],
        _ if is_indexed(key, "net") => &["VM.Config.Network"],
        _ if is_indexed(key, "ipconfig") => &["VM.Config.Cloudinit", "VM.Config.Network"],
        _ if is_indexed(key, "hostpci") || is_indexed(key, "usb") || is_indexed(key, "serial") => {
            &["VM.Config.HWType"]
        }
        _ if is_drive_key(key)
            && is_cdrom
            && value.is_some_and(|value| value.contains("cloudinit")) =>
        {
            &["VM.Config.Cloudinit", "VM.Config.CDROM"]
        }
        _ if is_drive_key(key) && is_cdrom => &["VM.Config.CDROM"],
        _ if is_drive_key(key) => &["VM.Config.Disk"],
        _ => &["VM.Config.Options"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_stored_lower_sorted_unique() {
        assert_eq!(normalize("tags", "Foo;bar,foo x").unwrap(), "bar;foo;x");
    }

    #[test]
    fn ssh_keys_are_validated_after_decoding() {
        let key = "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIDpUuWdL7yBRmbJ%2FA%2BkKxwoOBA6qS7tQCKG5QGPn5Jof%20a%40b%0A";
        assert_eq!(normalize("sshkeys", key).unwrap(), key);
        let refused = normalize("sshkeys", "ssh-ed25519%20nonsense").unwrap_err();
        assert_eq!(refused.text(), "SSH public key validation error");
    }

    #[test]
    fn removed_tags_count_as_changed() {
        assert_eq!(changed_tags("a;b", "b;c"), ["c", "a"]);
    }
}
