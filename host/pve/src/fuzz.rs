//! Proxmox's words, near what its daemons say and far from it: the targets of this adapter.

use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use kproxide_planner::facts::{CloneSpec, MachineSpec};
use kproxide_planner::ids::Vmid;
use serde_json::{Value, json};

use super::cloudinit::MachineConfig;
use super::error::{Error, Executed, Meaning};
use super::fixtures;
use super::inventory::{GuestStatus, Inventory};
use super::machine::CloneRequest;
use super::ownership::{Key, Marker, NotOurs, prove, with_line};
use super::request::Params;
use super::task::{Outcome, Upid};
use super::types;
use super::vm_config::{Disk, VmConfig};
use super::{classify, convert};
use kproxide_common::foreign;
use kproxide_common::mutate::{mutated, mutated_text};
use kproxide_planner::fuzz::Draw;

const VMID: u32 = 301;
const UPID: &str = "UPID:pve1:00001798:0004118B:6B00E484:qmclone:9000:aut@pve!full:";

/// Answers of Proxmox's own daemons.
fn recordings() -> &'static [Value] {
    static ALL: OnceLock<Vec<Value>> = OnceLock::new();
    ALL.get_or_init(|| {
        let text = include_str!("../../../tests/data/pve/recordings.json");
        serde_json::from_str(text).expect("recordings are JSON")
    })
}

/// Any answer to any call: never a panic, an end within the hour, and nothing believed that the answer does not say.
pub fn answer(data: &[u8]) {
    let mut draw = Draw::new(data);
    let call = draw.byte();
    let recording = draw.pick(recordings());
    let status = match draw.byte() % 4 {
        0 => 200,
        1 => 100 + draw.below(500),
        _ => recording["status"].as_u64().unwrap_or(200) as usize,
    };
    let body = match draw.byte() % 8 {
        0 => Value::String(String::from_utf8_lossy(draw.clone().rest()).into_owned()),
        _ => mutated(&recording["body"], &mut draw),
    };
    let reason = recording["reason"].as_str().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let asked = asked(call, status as u16, reason, &body);
        let ended = tokio::time::timeout(Duration::from_secs(3600), asked).await;
        assert!(ended.is_ok(), "call {call} did not end");
    });
}

async fn asked(call: u8, status: u16, reason: &str, body: &Value) {
    let (reason, given) = (reason.to_owned(), body.clone());
    let said = match body {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            body.clone()
        }
    };
    let (client, _) = fixtures::one(move |_| fixtures::answer(status, &reason, given.clone()));
    let upid: Upid = UPID.parse().expect("a UPID");
    let error = match call % 18 {
        0 => client.version().await.err(),
        1 => client.permissions(None).await.err(),
        2 | 3 => match client.inventory().await {
            Ok(inventory) => {
                is_sound(&inventory);
                None
            }
            Err(error) => Some(error),
        },
        4 => {
            let free = client.vmid_is_free(VMID).await;
            if let Ok(true) = free {
                let number = types::as_count(&said["data"]);
                assert_eq!(number, Some(VMID.into()), "absence was taken from {body}");
            }
            free.err()
        }
        5 => match client.read_config("pve1", VMID).await {
            Ok(config) => {
                config_is_sound(&config);
                None
            }
            Err(error) => Some(error),
        },
        6 => {
            let params = Params::new().with("cores", 2);
            let done = client.configure("pve1", VMID, params, Some("d")).await;
            done.err()
        }
        7 => client.resize_disk("pve1", VMID, "scsi0", 2).await.err(),
        8 => client.clone_vm(&clone_request()).await.err(),
        9 => client.start("pve1", VMID).await.err(),
        10 => client.destroy("pve1", VMID).await.err(),
        11 => client.status_current("pve1", VMID).await.err(),
        12 => client.agent_ping("pve1", VMID).await.err(),
        13 => {
            let started = client.agent_exec("pve1", VMID, &["sh"], Some("true"));
            started.await.err()
        }
        14 => client.agent_exec_status("pve1", VMID, 4242).await.err(),
        15 => client.find_clone("pve1", 9000, VMID, None).await.err(),
        16 => match client.task_outcome(&upid).await {
            Ok(outcome) => {
                let is_ok = said["data"]["exitstatus"] == "OK";
                assert!(outcome != Outcome::Ok || is_ok, "{body}");
                None
            }
            Err(error) => Some(error),
        },
        _ => client.task_log(&upid, 50).await.err(),
    };
    if let Some(error) = error {
        explains_itself(&error);
    }
}

fn explains_itself(error: &Error) {
    assert!(!error.chain().is_empty());
    let _ = (error.reaction(), error.meaning.reaction());
}

fn clone_request() -> CloneRequest {
    CloneRequest {
        clone: CloneSpec {
            hypervisor: "pve1".into(),
            vmid: Vmid(9000),
            full: true,
            storage: None,
        },
        hypervisor: "pve1".to_owned(),
        newid: VMID,
        name: "node-a".to_owned(),
        pool: Some("k8s".to_owned()),
        description: "kproxide: v1".to_owned(),
    }
}

fn is_sound(inventory: &Inventory) {
    for pair in inventory.guests.windows(2) {
        assert!(pair[0].vmid < pair[1].vmid);
    }
    for hypervisor in &inventory.hypervisors {
        assert!((0.0..=1.0).contains(&hypervisor.cpu_usage));
        for storage in &hypervisor.storages {
            assert!(storage.available <= storage.total);
        }
    }
    for guest in &inventory.guests {
        let host = inventory.hypervisor(&guest.hypervisor);
        let speaks = host.is_some_and(|host| host.online);
        assert!(speaks || guest.status == GuestStatus::Unknown);
    }
    let facts = convert::inventory_facts(inventory, Default::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(facts.guests.len(), inventory.guests.len());
}

/// The text of a task's name, of its end, and its state: nothing is taken for done that does not say so.
pub fn task(data: &[u8]) {
    let mut draw = Draw::new(data);
    let text = match draw.byte() % 4 {
        0 => String::from_utf8_lossy(draw.clone().rest()).into_owned(),
        _ => mutated_text(UPID, &mut draw),
    };
    let parts: Vec<&str> = text.split(':').collect();
    let is_hex = |part: &str| {
        let digits = part.trim_start_matches('0');
        // A signed number of 64 bits.
        let fits = digits.len() < 16 || (digits.len() == 16 && digits.as_bytes()[0] < b'8');
        !part.is_empty() && fits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_one = parts.len() >= 8
        && parts[0] == "UPID"
        && parts[2..5].iter().all(|part| is_hex(part))
        && [1, 5, 7].iter().all(|index| !parts[*index].is_empty())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    match text.parse::<Upid>() {
        Ok(upid) => {
            assert!(is_one, "{text:?} was taken for a UPID");
            assert_eq!((upid.as_str(), &*upid.hypervisor), (&*text, parts[1]));
            assert!(upid.started_at >= 0);
        }
        Err(error) => assert!(!is_one, "{error}"),
    }

    let ends = [
        "OK",
        "WARNINGS: 2",
        "unexpected status",
        "clone failed: no space",
    ];
    let seed = draw.word(&ends);
    let end = mutated_text(seed, &mut draw);
    match Outcome::of_exit_status(&end) {
        Outcome::Ok => assert_eq!(end, "OK"),
        Outcome::Warnings(_) => assert!(end.starts_with("WARNINGS: "), "{end:?}"),
        Outcome::Failed { text, .. } | Outcome::Unknown(text) => {
            assert_eq!(text, foreign::said(&end));
        }
        Outcome::Running => panic!("{end:?} is an end"),
    }
}

/// Any value of any key of a VM's configuration.
pub fn vm_config(data: &[u8]) {
    const KEYS: [&str; 16] = [
        "scsi0",
        "virtio15",
        "ide2",
        "sata0",
        "efidisk0",
        "tpmstate0",
        "unused255",
        "net0",
        "smbios1",
        "boot",
        "bootdisk",
        "agent",
        "memory",
        "tags",
        "description",
        "lock",
    ];
    const VALUES: [&str; 12] = [
        "local-lvm:vm-201-disk-0,discard=on,size=32G",
        "shared:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2,size=1.5T,backup=0",
        "file=/dev/disk/by-id/ata-1,size=528K",
        "none,media=cdrom",
        "local:cloudinit,media=cdrom,size=4M",
        "virtio=BC:24:11:65:78:28,bridge=vmbr7,firewall=1,tag=5",
        "uuid=655EB185-7d8f-474c-9984-564d9c1ec88f,manufacturer=a",
        "order=ide2;scsi0;net0",
        "1,fstrim_cloned_disks=1",
        "current=4096",
        "4096",
        "foo;bar",
    ];
    let mut draw = Draw::new(data);
    let entries = (0..=draw.below(6)).map(|_| {
        let key = draw.word(&KEYS);
        let key = match draw.byte() % 4 {
            0 => mutated_text(key, &mut draw),
            _ => key.to_owned(),
        };
        let seed = draw.word(&VALUES);
        let value = match draw.byte() % 8 {
            0 => json!(draw.number()),
            1 => json!(draw.text(40)),
            _ => json!(mutated_text(seed, &mut draw)),
        };
        (key, value)
    });
    let config = VmConfig::from_data(&entries.collect());
    config_is_sound(&config);
}

fn config_is_sound(config: &VmConfig) {
    for disk in &config.disks {
        let read = Disk::parse(&disk.key, &disk.value());
        assert_eq!(read.as_ref(), Some(disk), "{}", disk.value());
        assert!(disk.key.ends_with(|c: char| c.is_ascii_digit()));
        let _ = (disk.storage(), disk.is_cdrom(), disk.is_cloud_init());
        if let Some(bytes) = disk.size_bytes() {
            let size = disk.option("size").unwrap_or_default();
            assert!(size.starts_with(|c: char| c.is_ascii_digit()), "{size}");
            let digits = size.trim_end_matches(['K', 'M', 'G', 'T']);
            assert!(!digits.contains(['e', '+', '-']), "{size}");
            let near: f64 = digits.parse().expect("a decimal number");
            let factors = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
            let unit = factors.iter().find(|(unit, _)| size.ends_with(unit));
            let near = near * unit.map_or(1.0, |(_, power)| f64::from(*power).exp2());
            assert!(
                (bytes as f64 - near).abs() <= 1.0 + near * 1e-9,
                "{size}: {bytes}"
            );
        }
    }
    if let Some(uuid) = &config.smbios_uuid {
        assert_eq!(uuid.len(), 36);
        assert!(!uuid.contains(|c: char| c.is_ascii_uppercase()));
    }
    if let Some(boot) = config.boot_disk() {
        assert!(boot.is_data() && config.disks.contains(boot));
    }
    let machine = MachineConfig {
        cores: 2,
        memory_mib: 2048,
        address: None,
        tags: &[],
        machine: &MachineSpec::default(),
    };
    let params = machine
        .params(config, "cluster", VMID)
        .expect("no address, no obstacle");
    assert_eq!(params.get("protection"), Some("0"));
    if config.raw.contains_key("net0") {
        let net0 = params.get("net0").unwrap_or_default();
        assert!(net0.contains("=02:"), "{net0} has not our address");
    }
}

/// Any description: nothing is a proof but the very line that our key makes for this VM, this claim and this try.
pub fn marker(data: &[u8]) {
    let mut draw = Draw::new(data);
    let key = |byte: u8| Key::new(vec![byte; 32]).expect("long enough");
    let ours = Marker {
        cluster_id: "0dc58eea-1b04-4b04-ba4f-c09d2b1c5a16".to_owned(),
        claim_uid: "655eb185-7d8f-474c-9984-564d9c1ec88f".to_owned(),
        vmid: VMID,
        nonce: "a1b2c3".to_owned(),
    };
    let genuine = ours.sign(&key(1));
    let mut description = String::new();
    for _ in 0..draw.below(4) {
        let mut other = ours.clone();
        match draw.byte() % 4 {
            0 => other.vmid = draw.number() as u32,
            1 => other.claim_uid = "another".to_owned(),
            2 => other.nonce = "old".to_owned(),
            _ => {}
        }
        let line = match draw.byte() % 8 {
            0 => ours.sign(&key(2)),
            1 => ours.tombstone(&key(1)),
            2 => other.sign(&key(1)),
            3 => draw.text(40),
            4 => other
                .sign(&key(1))
                .replace("kproxide:", "kproxide-tombstone:"),
            _ => mutated_text(&genuine, &mut draw),
        };
        description.push_str(&line);
        description.push_str(draw.word(&["\n", "\r\n", "\n\n", " ", "\r", ""]));
    }
    let words =
        |line: &str| -> Vec<String> { line.split_ascii_whitespace().map(str::to_owned).collect() };
    let keys = [key(1)];
    let proven = prove(&description, &keys, &ours);
    if proven.is_ok() {
        // Only blanks may differ from what we write.
        let mut lines = description
            .lines()
            .filter(|line| line.trim().starts_with("kproxide:"));
        let spaced = |line: &str| line.trim().replacen("kproxide:", "kproxide: ", 1);
        let line = lines.next().map(|line| words(&spaced(line)));
        assert_eq!(line, Some(words(&genuine)), "{description:?}");
        assert!(lines.next().is_none());
    }
    for keys in [vec![], vec![key(2), key(3)]] {
        let by_others = prove(&description, &keys, &ours);
        let own = description.contains(&ours.sign(&key(2)));
        assert!(
            by_others.is_err() || (own && !keys.is_empty()),
            "{description:?}"
        );
    }
    if let Ok(found) = Marker::find_tombstone(&description)
        && found.verify(&keys, VMID) == Ok(&ours)
    {
        let mac = ours.tombstone(&key(1));
        let mac = mac.rsplit('=').next().unwrap_or_default();
        assert!(description.contains(mac), "{description:?}");
    }
    // Whatever people have written: with our line it is proven, and a copy of the VM is not.
    let marked = with_line(&description, &genuine);
    assert_eq!(prove(&marked, &keys, &ours), Ok(()), "{marked:?}");
    let copy = Marker {
        vmid: VMID + 1,
        ..ours
    };
    assert_eq!(prove(&marked, &keys, &copy), Err(NotOurs::Forged));
}

/// Any status with any text: it means something, and "it did not happen" is said only of what is known.
pub fn classify(data: &[u8]) {
    let mut draw = Draw::new(data);
    let recording = draw.pick(recordings());
    let status = match draw.byte() % 4 {
        0 => draw.number() as u16,
        1 => 595 + u16::from(draw.byte() % 5),
        2 => 400 + u16::from(draw.byte()),
        _ => 500,
    };
    let message = recording["body"]["message"].as_str();
    let seed = message.or(recording["reason"].as_str()).unwrap_or_default();
    let text = match draw.byte() % 8 {
        0 => draw.text(60),
        _ => mutated_text(seed.trim(), &mut draw),
    };
    let names = ["vmid", "upid", "name", ""];
    let parameters: Vec<(String, String)> = (0..draw.below(3))
        .map(|_| {
            (
                draw.word(&names).to_owned(),
                mutated_text("already exists", &mut draw),
            )
        })
        .collect();
    let (meaning, executed) = classify::answer(status, &text, &parameters);
    assert!(!meaning.to_string().is_empty());
    let _ = meaning.reaction();
    if executed == Executed::No {
        assert!(
            meaning != Meaning::Unexpected && meaning != Meaning::AnswerLost,
            "{status} {text}"
        );
    }
    // The connection was lost after sending: whatever the text says.
    if (597..=599).contains(&status) {
        assert_eq!(executed, Executed::Unknown);
    }
    let by_task = classify::task(&text);
    assert!(!by_task.to_string().is_empty());
}

#[cfg(test)]
mod tests;
