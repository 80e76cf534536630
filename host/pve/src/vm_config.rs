//! A VM's configuration as `GET …/config` gives it: the truth about one VM.

use std::collections::BTreeMap;

use serde_json::Value;

use super::types;

/// A VM's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmConfig {
    /// Missing while the clone runs.
    pub name: Option<String>,
    /// With its line breaks; a clone in progress has Proxmox's own words here.
    pub description: String,
    /// Names this state; a change can be made conditional on it.
    pub digest: Option<String>,
    /// Lower case, from `smbios1`; the guest shows it as `systemUUID` of its Node.
    pub smbios_uuid: Option<String>,
    /// True if Proxmox refuses to remove it.
    pub protection: bool,
    /// The snapshot that its state comes from (`parent`). A clone does not inherit it. A VM gets it with its first
    /// snapshot. It has snapshots without it only if a user rolled it back to the first snapshot and then deleted that
    /// snapshot.
    pub snapshot: Option<String>,
    /// True if it is a template.
    pub template: bool,
    /// `clone`, `backup`, …, if locked.
    pub lock: Option<String>,
    /// As stored: lower case and sorted, by default.
    pub tags: Vec<String>,
    /// Every volume attached or left behind (`unusedN`), in the order of their keys.
    pub disks: Vec<Disk>,
    /// Memory.
    pub memory_mib: Option<u64>,
    /// Cores per socket.
    pub cores: Option<u64>,
    /// Sockets; one if absent.
    pub sockets: u64,
    /// Every key with its value as text, `digest` excepted.
    pub raw: BTreeMap<String, String>,
}

/// A drive of a VM: `scsi0=local:9000/vm-9000-disk-0.qcow2,size=1G`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `scsi0`, `virtio1`, `efidisk0`, `unused2`, ….
    pub key: String,
    /// `storage:volume`, or a path of a passed-through device.
    pub volume: String,
    /// What follows the volume, in order.
    pub options: Vec<(String, String)>,
}

/// The keys of drives.
const DRIVES: [&str; 7] = [
    "ide", "sata", "scsi", "virtio", "efidisk", "tpmstate", "unused",
];

impl Disk {
    /// Parses a drive; none if the key is not one's or the drive is empty (`none,media=cdrom`).
    pub fn parse(key: &str, value: &str) -> Option<Disk> {
        let number = DRIVES.iter().find_map(|drive| key.strip_prefix(drive))?;
        number
            .parse::<u8>()
            .ok()
            .filter(|_| !number.starts_with('+'))?;
        let (volume, options) = split_options(value);
        let volume = volume.or_else(|| {
            options
                .iter()
                .find(|(name, _)| name == "file" || name == "volume")
                .map(|(_, volume)| volume.clone())
        })?;
        if matches!(&*volume, "" | "none" | "cdrom") {
            return None;
        }
        Some(Disk {
            key: key.to_owned(),
            volume,
            options: options
                .into_iter()
                .filter(|(name, _)| name != "file" && name != "volume")
                .collect(),
        })
    }

    /// The storage's ID; none for a passed-through device.
    pub fn storage(&self) -> Option<&str> {
        match self.volume.split_once(':') {
            Some((storage, _)) if !self.volume.starts_with('/') => Some(storage),
            Some(_) | None => None,
        }
    }

    /// True for a volume that linked clones can build on. Proxmox: `qm template` gives it this name; the flag `template`
    /// alone does not.
    pub fn is_base(&self) -> bool {
        let name = self.volume.rsplit(['/', ':']).next();
        name.is_some_and(|name| name.starts_with("base-"))
    }

    /// True for a CD, the cloud-init drive included.
    pub fn is_cdrom(&self) -> bool {
        self.option("media") == Some("cdrom")
    }

    /// True for Proxmox's generated cloud-init drive.
    pub fn is_cloud_init(&self) -> bool {
        self.is_cdrom() && self.volume.contains("cloudinit")
    }

    /// True for a volume that is attached no more (`unusedN`): a clone does not get it.
    pub fn is_unused(&self) -> bool {
        self.key.starts_with("unused")
    }

    /// True for a drive that a guest uses as a disk and that can be left out of backups.
    pub fn is_data(&self) -> bool {
        let special = ["efidisk", "tpmstate", "unused"];
        !self.is_cdrom() && !special.iter().any(|kind| self.key.starts_with(kind))
    }

    /// An option's value.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options
            .iter()
            .find(|(candidate, _)| candidate == name)
            .map(|(_, value)| value.as_str())
    }

    /// The size in bytes, if the configuration says it: `32G`, `528K`, `1.5T`, or plain bytes.
    pub fn size_bytes(&self) -> Option<u64> {
        let size = self.option("size")?;
        let (digits, factor) = match size.char_indices().last()? {
            (end, 'K') => (&size[..end], 1_u128 << 10),
            (end, 'M') => (&size[..end], 1 << 20),
            (end, 'G') => (&size[..end], 1 << 30),
            (end, 'T') => (&size[..end], 1 << 40),
            (_, _) => (size, 1),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let number = |digits: &str| -> Option<u128> {
            let is_number = (1..=20).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten()
        };
        let tenths = 10_u128.pow(u32::try_from(fraction.len()).ok().filter(|it| *it <= 20)?);
        let bytes = number(whole)? * factor + number(fraction)? * factor / tenths;
        u64::try_from(bytes).ok()
    }

    /// As written in a configuration.
    pub fn value(&self) -> String {
        // A path may hold the sign that names an option.
        let prefix = if self.volume.contains('=') {
            "file="
        } else {
            ""
        };
        let mut value = format!("{prefix}{}", self.volume);
        for (name, option) in &self.options {
            value.push_str(&format!(",{name}={option}"));
        }
        value
    }
}

impl VmConfig {
    /// Reads the `data` of an answer.
    pub fn from_data(data: &BTreeMap<String, Value>) -> VmConfig {
        let mut raw: BTreeMap<String, String> = data
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), types::as_text(value)?)))
            .collect();
        let digest = raw.remove("digest");
        let flag = |key: &str| data.get(key).is_some_and(types::as_flag);
        let count = |key: &str| data.get(key).and_then(types::as_count);
        VmConfig {
            name: raw.get("name").cloned(),
            description: raw.get("description").cloned().unwrap_or_default(),
            digest,
            smbios_uuid: raw
                .get("smbios1")
                .and_then(|value| option_of(value, "uuid"))
                .filter(|uuid| is_uuid(uuid))
                .map(|uuid| uuid.to_ascii_lowercase()),
            protection: flag("protection"),
            snapshot: raw.get("parent").filter(|name| !name.is_empty()).cloned(),
            template: flag("template"),
            lock: raw.get("lock").filter(|lock| !lock.is_empty()).cloned(),
            tags: raw
                .get("tags")
                .map(|tags| types::list(tags))
                .unwrap_or_default(),
            disks: raw
                .iter()
                .filter_map(|(key, value)| Disk::parse(key, value))
                .collect(),
            // Since version 8 memory can be written as a property (`current=4096`).
            memory_mib: count("memory").or_else(|| {
                let memory = raw.get("memory")?;
                option_of(memory, "current")?.parse().ok()
            }),
            cores: count("cores"),
            sockets: count("sockets").unwrap_or(1),
            raw,
        }
    }

    /// The drive that the VM boots from: the first disk of its boot order, or the first disk there is.
    pub fn boot_disk(&self) -> Option<&Disk> {
        let find = |key: &str| {
            self.disks
                .iter()
                .find(|disk| disk.key == key && disk.is_data())
        };
        let order = self
            .raw
            .get("boot")
            .and_then(|boot| option_of(boot, "order"))
            .unwrap_or_default();
        order
            .split(';')
            .find_map(find)
            .or_else(|| self.raw.get("bootdisk").and_then(|key| find(key)))
            .or_else(|| {
                ["scsi0", "virtio0", "sata0", "ide0"]
                    .into_iter()
                    .find_map(find)
            })
    }

    /// True if the guest agent's device is there.
    pub fn agent_enabled(&self) -> bool {
        self.raw.get("agent").is_some_and(|agent| {
            let (enabled, _) = split_options(agent);
            let enabled = enabled.or_else(|| option_of(agent, "enabled"));
            enabled.is_some_and(|enabled| types::as_flag(&Value::String(enabled)))
        })
    }
}

/// Any other text would be recorded as the machine's, and no Node would ever match it.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups
            .iter()
            .all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The value of one option in a comma-separated value.
pub(super) fn option_of(value: &str, name: &str) -> Option<String> {
    split_options(value)
        .1
        .into_iter()
        .find(|(candidate, _)| candidate == name)
        .map(|(_, value)| value)
}

/// Splits `default,name=value,…` into the default key's value, if it comes first, and the named ones.
pub(super) fn split_options(value: &str) -> (Option<String>, Vec<(String, String)>) {
    let mut default = None;
    let mut options = Vec::new();
    for (position, part) in value.split(',').enumerate() {
        match part.split_once('=') {
            // `import-from=a=b` keeps what follows the first sign.
            Some((name, option)) => options.push((name.trim().to_owned(), option.to_owned())),
            None if position == 0 && !part.is_empty() => default = Some(part.to_owned()),
            None => {}
        }
    }
    (default, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> VmConfig {
        VmConfig::from_data(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn odd_sizes_and_keys_are_none() {
        let size = |size: &str| {
            let disk = Disk::parse("scsi0", &format!("local:d,size={size}")).unwrap();
            disk.size_bytes()
        };
        assert_eq!(size("1.5G"), Some(3 << 29));
        assert_eq!(size("9007199254740993"), Some((1 << 53) + 1));
        for odd in [
            "",
            "G",
            "1e3G",
            "+1G",
            "-0",
            "inf",
            "1.G",
            ".5G",
            "99999999T",
            "ü",
        ] {
            assert_eq!(size(odd), None, "{odd}");
        }
        assert_eq!(Disk::parse("scsi+1", "local:d"), None);
        let disk = Disk::parse("scsi0", "file=/dev/by-path/a=b,size=1G").unwrap();
        assert_eq!(Disk::parse("scsi0", &disk.value()), Some(disk));
        for odd in [
            "uuid=",
            "uuid=1",
            "uuid=+55eb185-7d8f-474c-9984-564d9c1ec88f",
        ] {
            let config = config(&format!(r#"{{"smbios1":"{odd}"}}"#));
            assert_eq!(config.smbios_uuid, None, "{odd}");
        }
    }

    #[test]
    fn a_recorded_configuration() {
        let config = config(
            r#"{"memory":"4096","boot":"order=ide2;scsi0;net0","cores":2,"agent":"1","template":1,"tags":"bar;foo",
                "scsi0":"shared:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2,size=1G","unused0":"local:old",
                "ide2":"shared:101/vm-101-cloudinit.qcow2,media=cdrom,size=4M","ide3":"none,media=cdrom",
                "smbios1":"uuid=655EB185-7d8f-474c-9984-564d9c1ec88f","digest":"00e7","scsihw":"virtio-scsi-single"}"#,
        );
        assert_eq!(
            (config.memory_mib, config.cores, config.sockets),
            (Some(4096), Some(2), 1)
        );
        assert_eq!(config.tags, ["bar", "foo"]);
        assert!(config.template && !config.protection && config.agent_enabled());
        assert_eq!(
            config.smbios_uuid.as_deref(),
            Some("655eb185-7d8f-474c-9984-564d9c1ec88f")
        );
        assert_eq!(config.digest.as_deref(), Some("00e7"));
        let keys: Vec<&str> = config.disks.iter().map(|disk| disk.key.as_str()).collect();
        assert_eq!(keys, ["ide2", "scsi0", "unused0"]);
        let boot = config.boot_disk().unwrap();
        assert_eq!(
            (boot.key.as_str(), boot.size_bytes()),
            ("scsi0", Some(1 << 30))
        );
        assert_eq!(boot.storage(), Some("shared"));
        assert_eq!(
            boot.value(),
            "shared:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2,size=1G"
        );
    }

    #[test]
    fn a_clone_in_progress() {
        let config =
            config(r#"{"description":" qmclone temporary file","digest":"eb","lock":"clone"}"#);
        assert_eq!(config.lock.as_deref(), Some("clone"));
        assert_eq!(config.name, None);
    }

    #[test]
    fn a_passed_through_disk_is_on_no_storage() {
        assert_eq!(
            Disk::parse("scsi1", "/dev/disk/by-id/x,size=1T")
                .unwrap()
                .storage(),
            None
        );
    }

    #[test]
    fn the_agent_in_its_spellings() {
        for (agent, enabled) in [
            ("1", true),
            ("enabled=1,type=virtio", true),
            ("0", false),
            ("1,fstrim_cloned_disks=1", true),
        ] {
            let config = config(&format!(r#"{{"agent":"{agent}"}}"#));
            assert_eq!(config.agent_enabled(), enabled, "{agent}");
        }
    }
}
