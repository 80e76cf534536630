//! What the API says of single servers and their storages.

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::answer::{Answer, Refusal};
use super::cluster::{View, listed};
use super::network::Bridge;
use super::serve::Call;
use super::state::State;
use super::storage::{Storage, Volume};
use super::topology::Version;

/// `GET /nodes`
pub(crate) async fn list(call: Call) -> Answer {
    let state = call.pve.state();
    let view = View {
        pve: &call.pve,
        state: &state,
        who: &call.who,
        now: Instant::now(),
    };
    listed(state.nodes.values().map(|node| {
        let mut entry = view.node(node);
        if let Some(object) = entry.as_object_mut() {
            object.remove("cgroup-mode");
            object.remove("hastate");
        }
        let made_up = || fingerprint(&node.name);
        entry["ssl_fingerprint"] = node.fingerprint.clone().unwrap_or_else(made_up).into();
        entry
    }))
}

/// `GET /nodes/{node}/status`
pub(crate) async fn status(call: Call) -> Answer {
    let state = call.pve.state();
    let node = state
        .nodes
        .get(&call.node)
        .ok_or_else(|| Refusal::failed("no such node"))?;
    let used = node
        .status
        .as_ref()
        .map_or(node.base_memory, |status| status.memory_used);
    let cpu = node.status.as_ref().map_or(0.0, |status| status.cpu);
    let load = format!("{:.2}", cpu * f64::from(node.threads));
    let mut memory = json!({"total": node.memory, "used": used, "free": node.memory - used});
    let (pveversion, kernel) = match state.version {
        Version::V8 => ("pve-manager/8.4.14/14a22df35955d97d", "6.8.12-15-pve"),
        Version::V9 => {
            memory["available"] = (node.memory - used).into();
            ("pve-manager/9.2.11/14a22df35955d97d", "6.14.8-2-pve")
        }
    };
    Ok(json!({
        "uptime": node.up_since.elapsed().as_secs(),
        "cpu": cpu,
        "wait": 0,
        "idle": 0,
        "loadavg": [load, load, load],
        "memory": memory,
        "swap": {"total": 0, "used": 0, "free": 0},
        "ksm": {"shared": 0},
        "rootfs": {"total": 100u64 << 30, "used": 20u64 << 30, "avail": 80u64 << 30, "free": 80u64 << 30},
        "cpuinfo": {
            "cpus": node.threads,
            "cores": node.cores,
            "sockets": 1,
            "model": "Simulated",
            "vendor": "Simulated",
            "family": "25",
            "mhz": "3000.000",
            "hvm": "1",
            "user_hz": 100,
            "flags": "fpu sse sse2",
        },
        "boot-info": {"mode": "efi"},
        "current-kernel": {"sysname": "Linux", "release": kernel, "version": "#1 SMP PREEMPT_DYNAMIC", "machine": "x86_64"},
        "kversion": format!("Linux {kernel} #1 SMP PREEMPT_DYNAMIC"),
        "pveversion": pveversion,
    })
    .into())
}

/// `GET /nodes/{node}/config`: the settings of the server itself. Not recorded; Proxmox adds the digest of the file.
pub(crate) async fn config(call: Call) -> Answer {
    let state = call.pve.state();
    let notes = state.nodes.get(&call.node).map(|node| node.notes.as_str());
    let notes = notes.unwrap_or_default();
    // Proxmox's is a SHA-1; it has 40 characters.
    let digest: [u8; 32] = Sha256::digest(notes.as_bytes()).into();
    let digest: String = digest[..20].iter().map(|it| format!("{it:02x}")).collect();
    let mut config = json!({"digest": digest});
    if !notes.is_empty() {
        // Proxmox keeps notes as lines of a comment, each with its end.
        config["description"] = format!("{}\n", notes.trim_end()).into();
    }
    Ok(config.into())
}

/// `GET /nodes/{node}/network`: the bridges and VNets.
pub(crate) async fn network(call: Call) -> Answer {
    let state = call.pve.state();
    let wanted = call.params.get("type").unwrap_or("any_bridge");
    let bridges = state
        .nodes
        .get(&call.node)
        .map(|node| node.bridges.clone())
        .unwrap_or_default();
    let usable = |bridge: &Bridge<'_>| state.may_see_network(&call.who, bridge);
    let is_shown = |bridge: &Bridge<'_>| match wanted {
        "any_bridge" | "include_sdn" => true,
        "bridge" | "any_local_bridge" => !bridge.is_vnet(),
        "vnet" => bridge.is_vnet(),
        _ => false,
    };
    let bridges = bridges.iter().map(|text| Bridge::read(text));
    let bridges = bridges.filter(|it| is_shown(it) && usable(it));
    listed(bridges.map(|bridge| match bridge.is_vnet() {
        true => json!({"iface": bridge.name, "type": "vnet", "active": "1", "vlanaware": 0, "ipam": 0}),
        false => json!({"iface": bridge.name, "type": "bridge", "active": 1, "autostart": 1, "method": "manual"}),
    }))
}

/// `GET /nodes/{node}/storage`
pub(crate) async fn storages(call: Call) -> Answer {
    let state = call.pve.state();
    let params = &call.params;
    let wanted = |storage: &&Storage| {
        let path = format!("/storage/{}", storage.name);
        let held = state.privileges(&call.who, &path);
        let visible =
            held.contains_key("Datastore.Audit") || held.contains_key("Datastore.AllocateSpace");
        let contents = params.get("content").unwrap_or_default();
        let of_content = contents.is_empty()
            || contents
                .split(',')
                .any(|kind| storage.content.iter().any(|c| c == kind));
        let on_target = params
            .get("target")
            .is_none_or(|target| storage.is_on(target) && storage.shared);
        let named = params
            .get("storage")
            .is_none_or(|name| name == storage.name);
        visible && storage.is_on(&call.node) && of_content && on_target && named
    };
    listed(state.storages.values().filter(wanted).map(|storage| {
        let (used, total) = if storage.online {
            (state.used_bytes(storage, &call.node), storage.capacity)
        } else {
            (0, 0)
        };
        let mut entry = json!({
            "storage": storage.name,
            "type": storage.plugin(),
            "content": storage.content.join(","),
            "shared": u8::from(storage.shared),
            "enabled": 1,
            "active": u8::from(storage.online),
            "total": total,
            "used": used,
            "avail": total - used,
        });
        if total > 0 {
            entry["used_fraction"] = (used as f64 / total as f64).into();
        }
        entry
    }))
}

/// `GET /nodes/{node}/storage/{storage}/content`
pub(crate) async fn content(call: Call) -> Answer {
    let state = call.pve.state();
    let storage = state
        .check_storage(call.var("storage"), &call.node)
        .map_err(Refusal::Failed)?;
    let kind = call.params.get("content").unwrap_or("images");
    let owner = call.params.integer("vmid");
    let wanted = |volume: &&Volume| {
        let here = volume.storage == storage.name && (storage.shared || volume.node == call.node);
        here && owner.is_none_or(|owner| owner == i64::from(volume.vmid))
            && sees_volume(&state, &call, volume)
    };
    if kind != "images" {
        let of_kind = |name: &&String| owner.is_none() && name.split('/').next() == Some(kind);
        let ctime = call.pve.clock().at(state.started).as_second();
        return listed(storage.files.iter().filter(|(name, _)| of_kind(name)).map(
            |(name, size)| {
                json!({
                    "volid": format!("{}:{name}", storage.name),
                    "size": size,
                    "format": name.rsplit('.').next(),
                    "ctime": ctime,
                    "content": kind,
                })
            },
        ));
    }
    listed(state.volumes.values().filter(wanted).map(|volume| {
        let parent = volume.parent.as_ref();
        let parent = parent.map(|parent| {
            if storage.is_files() {
                format!("../{parent}")
            } else {
                parent.clone()
            }
        });
        json!({
            "volid": volume.volid(storage.kind),
            "vmid": volume.vmid,
            "size": volume.size,
            "used": volume.used,
            "format": volume.format,
            "parent": parent,
            "ctime": volume.created,
            "content": "images",
        })
    }))
}

/// Volumes of machines are shown to who may see the machine or manage the storage.
fn sees_volume(state: &State, call: &Call, volume: &Volume) -> bool {
    let storage = format!("/storage/{}", volume.storage);
    state.may(&call.who, &storage, "Datastore.Allocate")
        || state.may(
            &call.who,
            &format!("/vms/{}", volume.vmid),
            "VM.Config.Disk",
        )
}

/// `DELETE /nodes/{node}/storage/{storage}/content/{volume}`
pub(crate) async fn delete_volume(call: Call) -> Answer {
    let storage_name = call.var("storage").to_owned();
    let volume = call.var("volume");
    let volid = if volume.contains(':') {
        volume.to_owned()
    } else {
        format!("{storage_name}:{volume}")
    };
    {
        let state = call.pve.state();
        let storage = state
            .check_storage(&storage_name, &call.node)
            .map_err(Refusal::Failed)?;
        let path = format!("/storage/{}", storage.name);
        let owner = state.volume(&call.node, &volid).map(|volume| volume.vmid);
        let of_machine = owner
            .is_some_and(|vmid| state.may(&call.who, &format!("/vms/{vmid}"), "VM.Config.Disk"));
        if !of_machine {
            state.require(&call.who, &path, "Datastore.Allocate")?;
        }
        let used_by = state
            .vms
            .values()
            .find(|vm| vm.drives().iter().any(|drive| drive.volid == volid));
        if let Some(vm) = used_by.filter(|vm| vm.vmid == owner.unwrap_or(vm.vmid)) {
            let text = format!(
                "Cannot remove image, a guest with VMID '{}' exists!",
                vm.vmid
            );
            return Err(Refusal::parameter("volume", text));
        }
    }
    let node = call.node.clone();
    Ok(call.pve.start_task(
        &call.node,
        "imgdel",
        &storage_name,
        &call.who,
        |pve, worker| async move {
            pve.free_volume(&node, &volid, &worker).await?;
            worker.log(&format!("Removed volume '{volid}'"));
            Ok(())
        },
    ))
}

/// A stable certificate fingerprint for a server that has no certificate.
fn fingerprint(name: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(name.as_bytes()).into();
    hash.iter()
        .map(|byte| format!("{byte:02X}"))
        .collect::<Vec<_>>()
        .join(":")
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprint_has_the_form_of_a_sha256() {
        let text = fingerprint("pve1");
        assert_eq!(text.split(':').count(), 32);
    }
}
