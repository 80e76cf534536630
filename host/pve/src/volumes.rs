//! The volumes on a storage: looked at, never written to.

use serde::Deserialize;

use super::client::Client;
use super::error::Error;
use super::request::{Call, Params};
use super::types;

/// A volume that bears a VM's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// `local-lvm:vm-101-disk-0`.
    pub volid: String,
    /// The number that it bears; there need not be such a VM.
    pub vmid: u32,
}

impl Client {
    /// The disks of VMs on a storage, as this hypervisor sees it.
    ///
    /// Proxmox: those of a number without VM are shown only to who has `Datastore.Allocate` on the storage or `VM.Config.Disk` on `/vms`. So a
    /// volume that is not listed may be there.
    pub async fn volumes(&self, hypervisor: &str, storage: &str) -> Result<Vec<Volume>, Error> {
        #[derive(Deserialize)]
        struct Content {
            #[serde(default, deserialize_with = "types::text")]
            volid: Option<String>,
            #[serde(default, deserialize_with = "types::count")]
            vmid: Option<u64>,
        }
        let call = Call::get(&["nodes", hypervisor, "storage", storage, "content"])
            .protected()
            .params(Params::new().with("content", "images"));
        let content: Vec<Content> = self.fetch(call).await?;
        let volume = |content: Content| {
            Some(Volume {
                volid: content.volid?,
                vmid: u32::try_from(content.vmid?).ok()?,
            })
        };
        Ok(content.into_iter().filter_map(volume).collect())
    }
}
