//! The effects on one VM, each a call with its contract. Order, retries and proofs of ownership are the caller's.
//!
//! Calls that start a task return its [`Upid`]; what the task does is known only when it has ended
//! ([`Client::follow`]). A write that fails with [`super::error::Executed::Unknown`] must be looked for, not repeated.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kproxide_planner::facts::{BridgeKind, CloneSpec};
use serde::Deserialize;
use serde_json::Value;

use super::client::Client;
use super::error::{Error, Executed, Failure, Meaning};
use super::request::{Call, Params};
use super::task::Upid;
use super::types;
use super::vm_config::VmConfig;

/// Proxmox: a VM has no less.
const LEAST_MEMORY_MIB: u32 = 16;

/// What a clone shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneRequest {
    /// From what, and how.
    pub clone: CloneSpec,
    /// Where the new VM shall be.
    pub hypervisor: String,
    /// The new VM's number: its identity, and the lock that lets only one of two racing clones succeed.
    pub newid: u32,
    /// A DNS name.
    pub name: String,
    /// The resource pool. Proxmox: the VM enters it when the task ends, and is invisible to a pool's token until then.
    pub pool: Option<String>,
    /// At most 8 KiB; holds the ownership marker.
    pub description: String,
}

/// Which Proxmox answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// `9.2.11`.
    pub version: String,
    /// `9.2`.
    #[serde(default)]
    pub release: String,
}

impl Version {
    /// The major number; 0 if the text has none.
    pub fn major(&self) -> u32 {
        self.version
            .split(['.', '-'])
            .next()
            .and_then(|major| major.parse().ok())
            .unwrap_or(0)
    }
}

/// What a VM does, asked from its hypervisor and not ten seconds old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentStatus {
    /// Whether its process runs; none if the answer does not say.
    pub running: Option<bool>,
    /// `clone`, `backup`, ….
    pub lock: Option<String>,
    /// True if Proxmox's HA starts and stops it.
    pub ha_managed: bool,
}

/// What a command in a guest has come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecStatus {
    /// False while it runs.
    pub exited: bool,
    /// The exit code, unless killed by a signal.
    pub exit_code: Option<i64>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

#[derive(Debug, Deserialize)]
struct Interface {
    iface: String,
    #[serde(rename = "type", default, deserialize_with = "types::text")]
    kind: Option<String>,
}

/// What machines can be connected to on one server, by name.
pub type Bridges = BTreeMap<Arc<str>, BridgeKind>;

/// Of one server. Further ones are not known.
const BRIDGES_MAX: usize = 4096;

/// Privileges by path: `/pool/k8s` → `VM.Allocate`, ….
pub type Permissions = BTreeMap<String, BTreeMap<String, Value>>;

fn vm<'a>(hypervisor: &'a str, vmid: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["nodes", hypervisor, "qemu", vmid], rest].concat()
}

impl Client {
    /// The version of the endpoint that answers. Unprotected: says nothing about the daemon's health.
    pub async fn version(&self) -> Result<Version, Error> {
        self.fetch(Call::get(&["version"])).await
    }

    /// The privileges on `path`, those inherited included; on every path with an entry if none is given.
    pub async fn permissions(&self, path: Option<&str>) -> Result<Permissions, Error> {
        let params = Params::new().with_some("path", path);
        self.fetch(Call::get(&["access", "permissions"]).params(params))
            .await
    }

    /// The bridges and virtual networks of a server to which the credentials may connect machines. Others are not told.
    pub async fn bridges(&self, hypervisor: &str) -> Result<Bridges, Error> {
        let call = Call::get(&["nodes", hypervisor, "network"]);
        let call = call.params(Params::new().with("type", "any_bridge"));
        let found: Vec<Interface> = self.fetch(call).await?;
        let found = found.into_iter().take(BRIDGES_MAX).map(|found| {
            let kind = match found.kind.as_deref() {
                Some("vnet") => BridgeKind::Vnet,
                Some(_) | None => BridgeKind::Plain,
            };
            (found.iface.into(), kind)
        });
        Ok(found.collect())
    }

    /// Is the number free in the whole cluster? Reserves nothing, works without quorum, and counts VMs we may not see.
    ///
    /// # Errors
    /// [`Meaning::Undecodable`] if the answer does not repeat the number: that a VM is gone is concluded from it, so that what stands in between must not
    /// be able to say it by accident.
    pub async fn vmid_is_free(&self, vmid: u32) -> Result<bool, Error> {
        let call = Call::get(&["cluster", "nextid"]).params(Params::new().with("vmid", vmid));
        match self.fetch::<Value>(call.clone()).await {
            Ok(answer) if types::as_count(&answer) == Some(vmid.into()) => Ok(true),
            Ok(answer) => {
                let text = format!("asked whether VMID {vmid} is free, it answered {answer}");
                let failure = Failure::new(Meaning::Undecodable, Executed::No, Some(200), text);
                Err(Error::new(&call, "the endpoint", failure))
            }
            Err(error) if error.meaning == Meaning::VmidTaken => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts a clone. Success means only that the task has begun.
    ///
    /// On [`Meaning::VmidTaken`], here or at the task's end, a VM has this VMID, perhaps from an earlier try of ours:
    /// look at its marker, never remove it. A failed task has cleaned up, except after a crash of its hypervisor
    /// (`lock: clone` stays), and if it fails to enter the pool (a VM without disks stays on the target).
    pub async fn clone_vm(&self, request: &CloneRequest) -> Result<Upid, Error> {
        let CloneRequest {
            clone, hypervisor, ..
        } = request;
        let is_elsewhere = *clone.hypervisor != **hypervisor;
        let mut params = Params::new()
            .with("newid", request.newid)
            .with("name", &request.name)
            .with("description", &request.description)
            .with_flag("full", clone.full)
            .with_some("pool", request.pool.as_ref())
            .with_some("target", is_elsewhere.then_some(hypervisor));
        if clone.full {
            // Proxmox refuses it with a linked clone.
            params = params.with_some("storage", clone.storage.as_ref());
        }
        let template = clone.vmid.to_string();
        let call = Call::post(&vm(&clone.hypervisor, &template, &["clone"])).params(params);
        self.fetch(call).await.map_err(|error| {
            if error.meaning == Meaning::NotFound {
                error.mean(Meaning::TemplateMissing {
                    vmid: clone.vmid.0,
                    hypervisor: clone.hypervisor.to_string(),
                })
            } else {
                error
            }
        })
    }

    /// Makes a VM without disks and network, which is not started. Success means only that the task has begun.
    ///
    /// The VMID is taken before Proxmox answers. [`Meaning::VmidTaken`]: another VM has it. The VM enters its pool at
    /// the task's end, and is invisible to a pool's token until then.
    pub async fn create_vm(
        &self,
        hypervisor: &str,
        vmid: u32,
        name: &str,
        pool: &str,
        description: &str,
    ) -> Result<Upid, Error> {
        let params = Params::new()
            .with("vmid", vmid)
            .with("name", name)
            .with("pool", pool)
            .with("memory", LEAST_MEMORY_MIB)
            .with("description", description);
        let call = Call::post(&["nodes", hypervisor, "qemu"]).params(params);
        self.fetch(call).await
    }

    /// The VM's configuration, pending changes applied. Current, and cheap: unprotected.
    ///
    /// [`Meaning::NotFound`] means: not on this hypervisor; it may have migrated.
    pub async fn read_config(&self, hypervisor: &str, vmid: u32) -> Result<VmConfig, Error> {
        let call = Call::get(&vm(hypervisor, &vmid.to_string(), &["config"]));
        let data: BTreeMap<String, Value> = self.fetch(call).await?;
        Ok(VmConfig::from_data(&data))
    }

    /// Changes the configuration, at once and completely, if it still is the one with `digest`
    /// (else [`Meaning::DigestMismatch`] and nothing is changed).
    pub async fn configure(
        &self,
        hypervisor: &str,
        vmid: u32,
        params: Params,
        digest: Option<&str>,
    ) -> Result<(), Error> {
        let params = params.with_some("digest", digest);
        let call = Call::put(&vm(hypervisor, &vmid.to_string(), &["config"])).params(params);
        self.perform(call).await
    }

    /// Replaces the description: how a tombstone is written. Conditional on `digest` as [`Self::configure`] is.
    pub async fn set_description(
        &self,
        hypervisor: &str,
        vmid: u32,
        description: &str,
        digest: Option<&str>,
    ) -> Result<(), Error> {
        let params = Params::new().with("description", description);
        self.configure(hypervisor, vmid, params, digest).await
    }

    /// Grows a disk to `size_gib`. Shrinking and missing disks fail in the task ([`Meaning::ShrinkRefused`],
    /// [`Meaning::DiskMissing`]). Version 7 answered without a task, when it was done.
    pub async fn resize_disk(
        &self,
        hypervisor: &str,
        vmid: u32,
        disk: &str,
        size_gib: u64,
    ) -> Result<Option<Upid>, Error> {
        let params = Params::new()
            .with("disk", disk)
            .with("size", format!("{size_gib}G"));
        let call = Call::put(&vm(hypervisor, &vmid.to_string(), &["resize"])).params(params);
        self.fetch(call).await
    }

    /// Starts the VM; writes its cloud-init drive first. Repeatable: a running VM fails the task with
    /// [`Meaning::AlreadyRunning`] and stays as it is.
    pub async fn start(&self, hypervisor: &str, vmid: u32) -> Result<Upid, Error> {
        self.status_change(hypervisor, vmid, "start", Params::new())
            .await
    }

    /// Asks the guest to shut down, by its agent or ACPI. The task fails with [`Meaning::ShutdownTimeout`] when `patience`
    /// is over; until then it holds the VM's lock, so that everything but [`Self::stop`] fails as busy.
    pub async fn shutdown(
        &self,
        hypervisor: &str,
        vmid: u32,
        patience: Duration,
    ) -> Result<Upid, Error> {
        let params = Params::new().with("timeout", patience.as_secs());
        self.status_change(hypervisor, vmid, "shutdown", params)
            .await
    }

    /// Pulls the plug, ending a shutdown in progress. A stopped VM is fine. The one effect without a guard of Proxmox's
    /// own: prove ownership first.
    pub async fn stop(&self, hypervisor: &str, vmid: u32) -> Result<Upid, Error> {
        let params = Params::new().with_flag("overrule-shutdown", true);
        self.status_change(hypervisor, vmid, "stop", params).await
    }

    async fn status_change(
        &self,
        hypervisor: &str,
        vmid: u32,
        change: &str,
        params: Params,
    ) -> Result<Upid, Error> {
        let vmid = vmid.to_string();
        let call = Call::post(&vm(hypervisor, &vmid, &["status", change])).params(params);
        self.fetch(call).await
    }

    /// Removes the stopped VM, its disks, and its traces in backup and HA jobs.
    ///
    /// Only with quorum, its hypervisor online, and ownership proven on a fresh read: Proxmox checks none of that. Disks go
    /// first, the configuration last. Warnings at the task's end mean that a volume was left behind. Volumes that the
    /// configuration does not name are never touched: on shared storage they can be another cluster's.
    pub async fn destroy(&self, hypervisor: &str, vmid: u32) -> Result<Upid, Error> {
        let params = Params::new()
            .with_flag("purge", true)
            .with_flag("destroy-unreferenced-disks", false);
        let call = Call::delete(&vm(hypervisor, &vmid.to_string(), &[])).params(params);
        self.fetch(call).await
    }

    /// What the VM does now. Protected, and asks QEMU: not for polling many.
    pub async fn status_current(
        &self,
        hypervisor: &str,
        vmid: u32,
    ) -> Result<CurrentStatus, Error> {
        #[derive(Deserialize)]
        struct Current {
            #[serde(default, deserialize_with = "types::text")]
            status: Option<String>,
            #[serde(default, deserialize_with = "types::text")]
            lock: Option<String>,
            #[serde(default)]
            ha: BTreeMap<String, Value>,
        }
        let vmid = vmid.to_string();
        let call = Call::get(&vm(hypervisor, &vmid, &["status", "current"])).protected();
        let current: Current = self.fetch(call).await?;
        Ok(CurrentStatus {
            running: match current.status.as_deref() {
                Some("running") => Some(true),
                Some("stopped") => Some(false),
                Some(_) | None => None,
            },
            lock: current.lock.filter(|lock| !lock.is_empty()),
            ha_managed: current.ha.get("managed").is_some_and(types::as_flag),
        })
    }

    /// Does the guest's agent answer? If not, a worker of the hypervisor is busy for three seconds: poll slowly.
    pub async fn agent_ping(&self, hypervisor: &str, vmid: u32) -> Result<bool, Error> {
        let vmid = vmid.to_string();
        let mut call = Call::post(&vm(hypervisor, &vmid, &["agent", "ping"]));
        call.repeatable = true;
        match self.perform(call).await {
            Ok(()) => Ok(true),
            Err(error) if error.meaning == Meaning::AgentDown => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The addresses of the guest's interfaces that are not of loopback or the link alone, each with its interface, as
    /// the guest calls it.
    pub async fn agent_addresses(
        &self,
        hypervisor: &str,
        vmid: u32,
    ) -> Result<Vec<(String, IpAddr)>, Error> {
        #[derive(Deserialize)]
        struct Interfaces {
            result: Vec<Interface>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Interface {
            #[serde(default, deserialize_with = "types::text")]
            name: Option<String>,
            // Not there for an interface without any.
            #[serde(default)]
            ip_addresses: Vec<Address>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Address {
            #[serde(default, deserialize_with = "types::text")]
            ip_address: Option<String>,
        }
        let vmid = vmid.to_string();
        let path = vm(hypervisor, &vmid, &["agent", "network-get-interfaces"]);
        let interfaces: Interfaces = self.fetch(Call::get(&path).protected()).await?;
        let mut found = Vec::new();
        for Interface { name, ip_addresses } in interfaces.result {
            let name = name.unwrap_or_default();
            let addresses = ip_addresses.into_iter().filter_map(|it| it.ip_address);
            let addresses = addresses.filter_map(|it| it.parse().ok());
            found.extend(addresses.filter(reaches_out).map(|it| (name.clone(), it)));
        }
        Ok(found)
    }

    /// Starts a command of `/bin/sh` in the guest, with `input` (ASCII, at most 65,536 letters) as its standard input. Returns its process ID.
    ///
    /// What must happen once needs a lock in the guest: a request may arrive late, and an answer that tells nothing is asked for once more.
    ///
    /// Proxmox: a program that is not there is 596 "Broken pipe". So is a daemon that was restarted meanwhile, but hardly twice.
    pub async fn agent_exec(
        &self,
        hypervisor: &str,
        vmid: u32,
        command: &[&str],
        input: Option<&str>,
    ) -> Result<i64, Error> {
        let ask = || self.agent_exec_once(hypervisor, vmid, command, input);
        let first = match ask().await {
            Err(error) if error.is_broken_pipe() => error,
            other => return other,
        };
        let second = match self.agent_ping(hypervisor, vmid).await {
            Ok(true) => ask().await,
            Ok(false) => return Err(first.mean(Meaning::AgentDown)),
            Err(error) => Err(error),
        };
        second.map_err(|mut error| {
            if error.is_broken_pipe() {
                error.executed = Executed::No;
                return error.mean(Meaning::NoShell);
            }
            // Whatever this one came to, the first may have been done.
            error.executed = first.executed;
            error
        })
    }

    async fn agent_exec_once(
        &self,
        hypervisor: &str,
        vmid: u32,
        command: &[&str],
        input: Option<&str>,
    ) -> Result<i64, Error> {
        #[derive(Deserialize)]
        struct Started {
            pid: i64,
        }
        let mut params = Params::new();
        for part in command {
            params.push("command", part);
        }
        let params = params.with_some("input-data", input);
        let vmid = vmid.to_string();
        let call = Call::post(&vm(hypervisor, &vmid, &["agent", "exec"])).params(params);
        let started: Started = self.fetch(call).await?;
        Ok(started.pid)
    }

    /// The state of a command that [`Self::agent_exec`] started. Proxmox forgets the command once it has reported that
    /// it exited.
    pub async fn agent_exec_status(
        &self,
        hypervisor: &str,
        vmid: u32,
        pid: i64,
    ) -> Result<ExecStatus, Error> {
        #[derive(Deserialize)]
        struct Status {
            #[serde(default, deserialize_with = "types::flag")]
            exited: bool,
            #[serde(default, deserialize_with = "types::integer")]
            exitcode: Option<i64>,
            #[serde(rename = "out-data", default, deserialize_with = "types::text")]
            stdout: Option<String>,
            #[serde(rename = "err-data", default, deserialize_with = "types::text")]
            stderr: Option<String>,
        }
        let vmid = vmid.to_string();
        let call = Call::get(&vm(hypervisor, &vmid, &["agent", "exec-status"]))
            .protected()
            .params(Params::new().with("pid", pid));
        let status: Status = self.fetch(call).await?;
        Ok(ExecStatus {
            exited: status.exited,
            exit_code: status.exitcode,
            stdout: printed(status.stdout),
            stderr: printed(status.stderr),
        })
    }
}

/// What a command has printed: Proxmox shows each of its bytes as one letter.
fn printed(shown: Option<String>) -> String {
    let shown = shown.unwrap_or_default();
    let bytes: Result<Vec<u8>, _> = shown.chars().map(u8::try_from).collect();
    bytes.map_or(shown, |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Not of loopback, and not an IPv6 address that every interface gives itself.
fn reaches_out(address: &IpAddr) -> bool {
    let is_of_link = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !is_of_link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n1_what_a_guest_prints_is_shown_as_it_printed_it() {
        let bytes = "größer ✓ 🐧\n".bytes();
        let shown = bytes.map(char::from).collect::<String>();
        assert_eq!(printed(Some(shown)), "größer ✓ 🐧\n");
        // Cut in the middle of a letter, and what is no byte at all.
        assert_eq!(printed(Some("\u{93} x".to_owned())), "\u{fffd} x");
        assert_eq!(printed(Some("✓".to_owned())), "✓");
        assert_eq!(printed(None), "");
    }

    #[test]
    fn loopback_and_ipv6_addresses_of_the_link_reach_nobody() {
        for (address, reaches) in [
            ("192.168.1.7", true),
            // No interface gives itself one of these where DHCP works.
            ("169.254.0.1", true),
            ("127.0.0.1", false),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("fe80::1", false),
            ("::1", false),
        ] {
            assert_eq!(reaches_out(&address.parse().unwrap()), reaches, "{address}");
        }
    }
}
