//! Storages and their volumes: names, space, base images and linked clones.

use std::collections::BTreeMap;

use super::Pve;
use super::locks::Held;
use super::state::State;
use super::tasks::Worker;
use super::topology::{StorageKind, StorageSpec};

pub(crate) struct Storage {
    pub(crate) name: String,
    pub(crate) kind: StorageKind,
    pub(crate) shared: bool,
    pub(crate) capacity: u64,
    /// Bytes used by things that are no volumes.
    pub(crate) base_used: u64,
    pub(crate) content: Vec<String>,
    /// Files that are no volumes of machines: name → bytes.
    pub(crate) files: BTreeMap<String, u64>,
    nodes: Vec<String>,
    pub(crate) online: bool,
}

/// Where a volume is: storage, hypervisor (empty on shared storage), name without the base image it hangs on.
pub(crate) type VolumeKey = (String, String, String);

#[derive(Clone)]
pub(crate) struct Volume {
    pub(crate) storage: String,
    /// The hypervisor that has it; empty on shared storage.
    pub(crate) node: String,
    pub(crate) name: String,
    pub(crate) vmid: u32,
    pub(crate) size: u64,
    /// Bytes it takes from the storage.
    pub(crate) used: u64,
    pub(crate) format: &'static str,
    /// The name of the base image a linked clone hangs on.
    pub(crate) parent: Option<String>,
    pub(crate) created: i64,
    /// Set by tests: removing it fails.
    pub(crate) stuck: bool,
}

impl Storage {
    pub(crate) fn new(spec: StorageSpec) -> Storage {
        let StorageSpec {
            name,
            kind,
            shared,
            capacity,
            used,
            content,
            files,
            nodes,
        } = spec;
        Storage {
            name,
            kind,
            shared,
            capacity,
            base_used: used,
            content,
            files,
            nodes,
            online: true,
        }
    }

    pub(crate) fn is_on(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|name| name == node)
    }

    /// Whether templates become base images that linked clones can hang on.
    pub(crate) fn has_base_images(&self) -> bool {
        self.kind != StorageKind::Lvm
    }

    /// The storage type as Proxmox names it.
    pub(crate) fn plugin(&self) -> &'static str {
        match self.kind {
            StorageKind::Dir => "dir",
            StorageKind::LvmThin => "lvmthin",
            StorageKind::ZfsPool => "zfspool",
            StorageKind::Lvm => "lvm",
            StorageKind::Rbd => "rbd",
            StorageKind::Nfs => "nfs",
        }
    }

    pub(crate) fn format(&self) -> &'static str {
        if self.is_files() { "qcow2" } else { "raw" }
    }

    /// Whether volumes are files in a folder per machine.
    pub(crate) fn is_files(&self) -> bool {
        matches!(self.kind, StorageKind::Dir | StorageKind::Nfs)
    }

    /// Where files of this storage are on a server.
    pub(crate) fn path(&self) -> String {
        match (self.kind, self.name.as_str()) {
            (_, "local") => "/var/lib/vz".into(),
            (StorageKind::Nfs, name) => format!("/mnt/pve/{name}"),
            (_, name) => format!("/srv/{name}"),
        }
    }
}

impl Volume {
    pub(crate) fn new(storage: &Storage, node: &str, vmid: u32, size: u64, created: i64) -> Volume {
        Volume {
            storage: storage.name.clone(),
            node: if storage.shared {
                String::new()
            } else {
                node.to_owned()
            },
            name: String::new(),
            vmid,
            size,
            used: if storage.kind == StorageKind::Lvm {
                size
            } else {
                size.min(512 << 10)
            },
            format: storage.format(),
            parent: None,
            created,
            stuck: false,
        }
    }

    pub(crate) fn key(&self) -> VolumeKey {
        (self.storage.clone(), self.node.clone(), self.name.clone())
    }

    /// The volume id; that of a linked clone names its base image first, except on LVM-thin.
    pub(crate) fn volid(&self, kind: StorageKind) -> String {
        match (&self.parent, kind) {
            (
                Some(parent),
                StorageKind::Dir | StorageKind::Nfs | StorageKind::ZfsPool | StorageKind::Rbd,
            ) => {
                format!("{}:{parent}/{}", self.storage, self.name)
            }
            (Some(_), StorageKind::Lvm | StorageKind::LvmThin) | (None, _) => {
                format!("{}:{}", self.storage, self.name)
            }
        }
    }
}

impl State {
    /// Adds a volume under the first free name and returns its volume id.
    pub(crate) fn add_volume(&mut self, mut volume: Volume, cloudinit: bool, base: bool) -> String {
        volume.name = self.free_name(&volume, cloudinit, base);
        let volid = volume.volid(self.storages[&volume.storage].kind);
        self.volumes.insert(volume.key(), volume);
        volid
    }

    /// The volume for cloud-init has one name only. If something was left there, the storage's tools refuse.
    pub(crate) fn refuse_second_cloudinit(&self, volume: &Volume) -> Result<(), String> {
        let name = self.free_name(volume, true, false);
        let key = (volume.storage.clone(), volume.node.clone(), name.clone());
        if !self.volumes.contains_key(&key) {
            return Ok(());
        }
        let there = &self.storages[&volume.storage];
        let storage = &there.name;
        Err(match there.kind {
            StorageKind::Dir | StorageKind::Nfs => {
                let path = there.path();
                format!("disk image '{path}/images/{name}' already exists")
            }
            StorageKind::Lvm | StorageKind::LvmThin => format!(
                "lvcreate '{storage}/{name}' error:   Logical Volume \"{name}\" already exists in volume group \"{storage}\""
            ),
            StorageKind::ZfsPool => {
                format!("zfs error: cannot create '{storage}/{name}': dataset already exists")
            }
            StorageKind::Rbd => {
                format!("rbd create '{name}' error: rbd: create error: (17) File exists")
            }
        })
    }

    fn free_name(&self, volume: &Volume, cloudinit: bool, base: bool) -> String {
        let files = self.storages[&volume.storage].is_files();
        let vmid = volume.vmid;
        let full = |leaf: String| {
            if files {
                format!("{vmid}/{leaf}.qcow2")
            } else {
                leaf
            }
        };
        if cloudinit {
            return full(format!("vm-{vmid}-cloudinit"));
        }
        let taken = |leaf: &str| {
            let name = full(leaf.to_owned());
            self.volumes
                .contains_key(&(volume.storage.clone(), volume.node.clone(), name))
        };
        let free = (0..).find(|n| {
            !taken(&format!("vm-{vmid}-disk-{n}")) && !taken(&format!("base-{vmid}-disk-{n}"))
        });
        let number: u32 = free.expect("the numbers do not run out");
        full(format!(
            "{}-{vmid}-disk-{number}",
            if base { "base" } else { "vm" }
        ))
    }

    /// The volume behind a volume id, as seen from `node`.
    pub(crate) fn volume(&self, node: &str, volid: &str) -> Option<&Volume> {
        self.volumes.get(&self.volume_key(node, volid)?)
    }

    /// The key of a volume id: linked clones are named `storage:base/name`.
    pub(crate) fn volume_key(&self, node: &str, volid: &str) -> Option<VolumeKey> {
        let (storage, path) = volid.split_once(':')?;
        let storage = self.storages.get(storage)?;
        let parts: Vec<&str> = path.split('/').collect();
        let keep = if storage.is_files() { 2 } else { 1 };
        let name = parts[parts.len().saturating_sub(keep)..].join("/");
        let node = if storage.shared { "" } else { node };
        Some((storage.name.clone(), node.to_owned(), name))
    }

    /// Whether a linked clone hangs on this base image.
    pub(crate) fn has_clones(&self, base: &Volume) -> bool {
        self.volumes.values().any(|volume| {
            volume.storage == base.storage && volume.parent.as_deref() == Some(base.name.as_str())
        })
    }

    /// Bytes in use, as seen from `node`.
    pub(crate) fn used_bytes(&self, storage: &Storage, node: &str) -> u64 {
        let here = |volume: &&Volume| {
            volume.storage == storage.name && (storage.shared || volume.node == node)
        };
        let volumes: u64 = self
            .volumes
            .values()
            .filter(here)
            .map(|volume| volume.used)
            .sum();
        (storage.base_used + volumes).min(storage.capacity)
    }

    /// Sets the size of a volume; on thick storage the new part takes space at once.
    pub(crate) fn grow_volume(
        &mut self,
        key: &VolumeKey,
        node: &str,
        size: u64,
    ) -> Result<(), String> {
        let volume = self
            .volumes
            .get(key)
            .ok_or_else(|| format!("volume '{}:{}' does not exist", key.0, key.2))?;
        let storage = self.check_storage(&volume.storage, node)?;
        let more = if storage.kind == StorageKind::Lvm {
            size - volume.size
        } else {
            0
        };
        self.check_space(storage, node, more, &volume.name)?;
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.size = size;
            volume.used += more;
        }
        Ok(())
    }

    /// Refuses when `bytes` more do not fit, in the words of the tool that would fail.
    pub(crate) fn check_space(
        &self,
        storage: &Storage,
        node: &str,
        bytes: u64,
        name: &str,
    ) -> Result<(), String> {
        let free = storage.capacity - self.used_bytes(storage, node);
        if bytes <= free {
            return Ok(());
        }
        // LVM allocates in extents of 4 MiB.
        let extents = |bytes: u64| bytes.div_ceil(4 << 20);
        Err(match storage.kind {
            StorageKind::Dir | StorageKind::Nfs => format!(
                "unable to create image: 'storage-{}'-locked command failed: qemu-img: {}/images/{name}: No space left on device",
                storage.name,
                storage.path()
            ),
            StorageKind::Lvm | StorageKind::LvmThin => format!(
                "lvcreate '{}/{name}' error:   Volume group \"{0}\" has insufficient free space ({} extents): {} required.",
                storage.name,
                extents(free),
                extents(bytes)
            ),
            StorageKind::ZfsPool => format!(
                "zfs error: cannot create '{}/{name}': out of space",
                storage.name
            ),
            StorageKind::Rbd => format!(
                "rbd create '{name}' error: rbd: create error: (28) No space left on device"
            ),
        })
    }

    /// Refuses when the storage is offline or not on this server.
    pub(crate) fn check_storage(&self, name: &str, node: &str) -> Result<&Storage, String> {
        let storage = self
            .storages
            .get(name)
            .ok_or_else(|| format!("storage '{name}' does not exist"))?;
        if !storage.is_on(node) {
            return Err(format!(
                "storage '{name}' is not available on node '{node}'"
            ));
        }
        if !storage.online {
            return Err(format!("storage '{name}' is not online"));
        }
        Ok(storage)
    }
}

impl Pve {
    /// The lock that guards allocations on a storage; the task log gets what the wait says.
    pub(crate) async fn lock_storage(
        &self,
        node: &str,
        storage: &str,
        worker: &Worker,
    ) -> Result<Held, String> {
        let shared = self.state().check_storage(storage, node)?.shared;
        let log = |line: &str| worker.log(line);
        if shared {
            self.locks()
                .shared_storage(storage, &worker.killed, || self.state().has_quorum(), log)
                .await
        } else {
            self.locks().local_storage(node, storage, log).await
        }
    }

    /// Removes a volume, under its storage's lock.
    pub(crate) async fn free_volume(
        &self,
        node: &str,
        volid: &str,
        worker: &Worker,
    ) -> Result<(), String> {
        let storage = volid.split(':').next().unwrap_or_default();
        let _lock = self.lock_storage(node, storage, worker).await?;
        let mut state = self.state();
        let Some(key) = state.volume_key(node, volid) else {
            return Err(format!("unable to parse volume ID '{volid}'"));
        };
        let Some(volume) = state.volumes.get(&key) else {
            if let Some(storage) = state.storages.get_mut(storage) {
                storage.files.remove(&key.2);
            }
            return Ok(());
        };
        if state.has_clones(volume) {
            return Err(format!(
                "base volume '{volid}' is still in use by linked cloned"
            ));
        }
        if volume.stuck {
            let path = state
                .storages
                .get(&volume.storage)
                .map(Storage::path)
                .unwrap_or_default();
            return Err(format!(
                "unlink '{path}/images/{}' failed - Operation not permitted",
                volume.name
            ));
        }
        state.volumes.remove(&key);
        Ok(())
    }
}
