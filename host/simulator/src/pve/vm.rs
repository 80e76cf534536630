//! One machine: its configuration file, its disks as the configuration names them, and what runs.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Keys that Proxmox writes as numbers in JSON. All others are strings, `memory` and `agent` included.
const NUMERIC: [&str; 21] = [
    "acpi",
    "autostart",
    "balloon",
    "ciupgrade",
    "cores",
    "cpulimit",
    "cpuunits",
    "freeze",
    "keephugepages",
    "kvm",
    "localtime",
    "numa",
    "onboot",
    "protection",
    "reboot",
    "shares",
    "sockets",
    "tablet",
    "tdf",
    "template",
    "vcpus",
];

/// A configuration: keys and values as in the configuration file.
pub(crate) type Config = BTreeMap<String, String>;

pub(crate) struct Vm {
    pub(crate) vmid: u32,
    pub(crate) node: String,
    /// Counts every machine that ever came to be, so that two machines with one VMID can be told apart.
    pub(crate) incarnation: u64,
    /// Who caused it to be: a user or token, or `world` for what was there from the start.
    pub(crate) creator: String,
    pub(crate) config: Config,
    /// Changes that wait for the next start; `None` deletes the key.
    pub(crate) pending: BTreeMap<String, Option<String>>,
    pub(crate) running: Option<Running>,
    pub(crate) status: Option<VmStatus>,
    pub(crate) ha_managed: bool,
    /// Set by tests: this machine starts but its guest never comes up.
    pub(crate) never_boots: bool,
    /// Set by tests: the guest ignores an orderly shutdown.
    pub(crate) ignores_shutdown: bool,
}

/// The process of a started machine.
pub(crate) struct Running {
    pub(crate) since: Instant,
    pub(crate) pid: u32,
    pub(crate) guest: Guest,
}

/// What is known of the inside of a running machine.
#[derive(Default)]
pub(crate) struct Guest {
    pub(crate) agent: bool,
    pub(crate) hostname: Option<String>,
    pub(crate) addresses: Vec<String>,
    pub(crate) commands: BTreeMap<u32, Command>,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) command_count: u32,
    /// The agent answers, and can start nothing.
    pub(crate) has_no_shell: bool,
}

/// A command that the guest agent was asked to run.
#[derive(Default)]
pub(crate) struct Command {
    pub(crate) result: Option<CommandResult>,
}

/// How a command in the guest ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandResult {
    pub exitcode: i32,
    /// It was killed, and there is no exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
}

/// The last broadcast status of a machine: up to ten seconds old.
#[derive(Clone)]
pub(crate) struct VmStatus {
    pub(crate) at: Instant,
    pub(crate) name: String,
    pub(crate) running: bool,
    pub(crate) template: bool,
    pub(crate) uptime_s: u64,
    pub(crate) cpus: u64,
    pub(crate) cpu: f64,
    pub(crate) memory: u64,
    pub(crate) memory_used: u64,
    pub(crate) disk: u64,
}

impl Vm {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    /// The key as it will be after the next start.
    pub(crate) fn get_pending(&self, key: &str) -> Option<&str> {
        match self.pending.get(key) {
            Some(change) => change.as_deref(),
            None => self.get(key),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.get("name")
            .map_or_else(|| format!("VM{}", self.vmid), str::to_owned)
    }

    pub(crate) fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    pub(crate) fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.get("protection") == Some("1")
    }

    /// Virtual processors.
    pub(crate) fn cpus(&self) -> u64 {
        let number = |key| self.get(key).and_then(|v| v.parse::<u64>().ok());
        number("vcpus")
            .unwrap_or_else(|| number("sockets").unwrap_or(1) * number("cores").unwrap_or(1))
    }

    /// Bytes of RAM.
    pub(crate) fn memory(&self) -> u64 {
        self.get("memory")
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(512)
            << 20
    }

    /// The UUID that the guest sees as its system UUID.
    pub(crate) fn smbios_uuid(&self) -> Option<String> {
        option_of(self.get("smbios1")?, "uuid").map(str::to_owned)
    }

    /// The MAC address of the first network card.
    pub(crate) fn mac(&self) -> Option<String> {
        let (model, _) = self.get("net0")?.split_once(',')?;
        model.split_once('=').map(|(_, mac)| mac.to_owned())
    }

    pub(crate) fn agent_enabled(&self) -> bool {
        let agent = self.get("agent").unwrap_or("0");
        let first = agent.split(',').next().unwrap_or("0");
        first == "1" || first == "enabled=1"
    }

    /// The digest that guards a change against a concurrent one: over the file, so it changes with every key.
    pub(crate) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (key, value) in &self.config {
            for part in [key, ": ", value, "\n"] {
                hash.update(part);
            }
        }
        hash.update("[PENDING]\n");
        for (key, value) in &self.pending {
            hash.update(format!("{key}: {value:?}\n"));
        }
        // Proxmox's digest is a SHA-1: 40 hexadecimal digits.
        hash.finalize()
            .iter()
            .take(20)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The answer of `GET config`: with pending changes applied unless `current`.
    pub(crate) fn config_json(&self, current: bool) -> Value {
        let mut config = self.config.clone();
        if !current {
            for (key, change) in &self.pending {
                match change {
                    Some(value) => config.insert(key.clone(), value.clone()),
                    None => config.remove(key),
                };
            }
        }
        let mut object: Map<String, Value> = config
            .iter()
            .map(|(k, v)| (k.clone(), value_json(k, v)))
            .collect();
        object.insert("digest".into(), self.digest().into());
        object.into()
    }

    /// All disks, cloud-init drives included, in the order in which Proxmox works through them.
    pub(crate) fn drives(&self) -> Vec<Drive> {
        let drives = self
            .config
            .iter()
            .filter_map(|(key, value)| Drive::parse(key, value));
        let mut queue: VecDeque<Drive> = drives.collect();
        queue
            .make_contiguous()
            .sort_by(|one, other| drive_order(&one.key).cmp(&drive_order(&other.key)));
        queue.into()
    }

    /// The first disk that is no CD-ROM.
    pub(crate) fn boot_disk(&self) -> Option<Drive> {
        let drives = self.config.iter();
        drives
            .filter_map(|(key, value)| Drive::parse(key, value))
            .filter(|drive| !drive.is_cdrom())
            .min_by(|one, other| drive_order(&one.key).cmp(&drive_order(&other.key)))
    }

    /// Pending changes take effect, as at a start.
    pub(crate) fn apply_pending(&mut self) {
        for (key, change) in std::mem::take(&mut self.pending) {
            match change {
                Some(value) => self.config.insert(key, value),
                None => self.config.remove(&key),
            };
        }
    }
}

/// A value of the configuration in the JSON type that Proxmox gives it.
pub(crate) fn value_json(key: &str, value: &str) -> Value {
    if !NUMERIC.contains(&key) {
        return value.into();
    }
    match value.parse::<i64>() {
        Ok(number) => number.into(),
        Err(_) => value
            .parse::<f64>()
            .map_or_else(|_| value.into(), Value::from),
    }
}

/// The option `name` of a value like `uuid=…,serial=…`.
pub(crate) fn option_of<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value
        .split(',')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// One line of a configuration that names a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    pub(crate) key: String,
    /// `storage:name`.
    pub(crate) volid: String,
    pub(crate) options: Vec<String>,
}

impl Drive {
    /// The drive in a configuration line; `None` for lines that are no drives and for empty CD-ROM drives.
    pub(crate) fn parse(key: &str, value: &str) -> Option<Drive> {
        if !is_drive_key(key) {
            return None;
        }
        let mut parts = value.split(',').map(str::to_owned);
        let volid = parts.next()?;
        let volid = volid
            .strip_prefix("file=")
            .map_or(volid.clone(), str::to_owned);
        volid.contains(':').then(|| Drive {
            key: key.to_owned(),
            volid,
            options: parts.collect(),
        })
    }

    pub(crate) fn storage(&self) -> &str {
        self.volid.split(':').next().unwrap_or_default()
    }

    pub(crate) fn is_cdrom(&self) -> bool {
        self.options.iter().any(|option| option == "media=cdrom")
    }

    /// The drive that Proxmox writes cloud-init data to: allocated anew for every clone.
    pub(crate) fn is_cloudinit(&self) -> bool {
        self.is_cdrom() && self.volid.contains("cloudinit")
    }

    /// An ISO image in a CD-ROM drive: belongs to the storage, not to the machine.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_cdrom() && !self.is_cloudinit()
    }

    /// The configuration line, with the size as given.
    pub(crate) fn line(volid: &str, options: &[String], size: u64) -> String {
        let kept = options.iter().filter(|option| !option.starts_with("size="));
        let mut parts = vec![volid.to_owned()];
        parts.extend(kept.cloned());
        parts.push(format!("size={}", size_text(size)));
        parts.join(",")
    }
}

/// `scsi0`, `virtio1`, `efidisk0`, `unused0` and the like.
pub(crate) fn is_drive_key(key: &str) -> bool {
    let name = key.trim_end_matches(|c: char| c.is_ascii_digit());
    name.len() < key.len()
        && matches!(
            name,
            "ide" | "sata" | "scsi" | "virtio" | "efidisk" | "tpmstate" | "unused"
        )
}

fn drive_order(key: &str) -> (&str, u32) {
    let name = key.trim_end_matches(|c: char| c.is_ascii_digit());
    (name, key[name.len()..].parse().unwrap_or(0))
}

/// A size as Proxmox writes it: in the largest unit that keeps it whole.
pub(crate) fn size_text(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(
        || bytes.to_string(),
        |(shift, unit)| format!("{}{unit}", bytes >> shift),
    )
}

/// `10G`, `512M` or plain bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: f64 = digits.parse().ok()?;
    (number >= 0.0).then(|| (number * (1u64 << shift) as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_told_from_other_lines() {
        assert!(Drive::parse("net0", "virtio,bridge=vmbr0").is_none());
        assert!(Drive::parse("scsihw", "virtio-scsi-single").is_none());
        assert!(Drive::parse("ide2", "none,media=cdrom").is_none());
        let iso = Drive::parse("ide2", "local:iso/x.iso,media=cdrom").unwrap();
        assert!(iso.is_foreign() && !iso.is_cloudinit());
        let cloudinit = Drive::parse("ide2", "ceph:vm-101-cloudinit,media=cdrom,size=4M").unwrap();
        assert!(cloudinit.is_cloudinit());
        assert_eq!(cloudinit.storage(), "ceph");
    }

    #[test]
    fn sizes_read_as_proxmox_writes_them() {
        assert_eq!(size_text(10 << 30), "10G");
        assert_eq!(size_text(3 << 29), "1536M");
        assert_eq!(parse_size("1536M"), Some(3 << 29));
        assert_eq!(parse_size("0.5G"), Some(1 << 29));
        assert_eq!(parse_size("x"), None);
    }

    #[test]
    fn numbers_and_strings_have_their_recorded_types() {
        assert_eq!(value_json("cores", "2"), Value::from(2));
        assert_eq!(value_json("memory", "4096"), Value::from("4096"));
        assert_eq!(value_json("agent", "1"), Value::from("1"));
    }
}
