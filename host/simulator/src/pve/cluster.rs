//! What the API says of the cluster as a whole, and logins.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::Pve;
use super::access::Identity;
use super::answer::{Answer, Refusal, Reply};
use super::broadcast::is_fresh;
use super::serve::Call;
use super::state::{Node, Presence, State};
use super::storage::Storage;
use super::topology::Version;
use super::vm::Vm;

/// `GET /version`
pub(crate) async fn version(call: Call) -> Answer {
    let (version, release) = match call.pve.state().version {
        Version::V8 => ("8.4.14", "8.4"),
        Version::V9 => ("9.2.11", "9.2"),
    };
    Ok(json!({"version": version, "release": release, "repoid": "14a22df35955d97d"}).into())
}

/// `GET /access/permissions[?path=]`
pub(crate) async fn permissions(call: Call) -> Answer {
    let state = call.pve.state();
    let found = match call.params.get("path") {
        Some(path) => [(path.to_owned(), state.privileges(&call.who, path))].into(),
        None => state.all_privileges(&call.who),
    };
    let object: Map<String, Value> = found
        .into_iter()
        .map(|(path, privileges)| {
            let held: Map<String, Value> = privileges
                .into_iter()
                .map(|(k, v)| (k, u8::from(v).into()))
                .collect();
            (path, held.into())
        })
        .collect();
    Ok(Value::from(object).into())
}

/// `POST /access/ticket`
pub(crate) async fn ticket(call: Call) -> Answer {
    let params = &call.params;
    let name = params.get("username").unwrap_or_default();
    let user = match params.get("realm") {
        Some(realm) if !name.contains('@') => format!("{name}@{realm}"),
        Some(_) | None => name.to_owned(),
    };
    let now = call.pve.clock().unix_seconds();
    let mut state = call.pve.state();
    let password = params.get("password").unwrap_or_default();
    let Some((ticket, csrf)) = state.access.log_in(&user, password, now) else {
        return Err(Refusal::Unauthorized("authentication failure"));
    };
    let cluster = state.cluster.clone();
    let mut data =
        json!({"username": user, "ticket": ticket, "CSRFPreventionToken": csrf, "cap": {}});
    if let Some(cluster) = cluster {
        data["clustername"] = cluster.into();
    }
    Ok(data.into())
}

/// `GET /cluster/status`: the only place that tells of the quorum. It learns of a loss some seconds late.
pub(crate) async fn status(call: Call) -> Answer {
    let state = call.pve.state();
    let now = Instant::now();
    let lag = std::time::Duration::from_secs_f64(call.pve.timings().quorum_lag_s);
    let quorate = state.seems_quorate(now, lag);
    let mut entries = Vec::new();
    if let Some(name) = &state.cluster {
        entries.push(json!({
            "type": "cluster",
            "id": "cluster",
            "name": name,
            "nodes": state.nodes.len(),
            "version": state.nodes.len(),
            "quorate": u8::from(quorate),
        }));
    }
    for node in state.nodes.values() {
        let local = node.name == call.node;
        // A server that lost the quorum no longer sees the others.
        let online = local || (quorate && node.presence != Presence::Offline);
        entries.push(json!({
            "type": "node",
            "id": format!("node/{}", node.name),
            "name": node.name,
            "nodeid": if state.cluster.is_some() { node.id } else { 0 },
            "ip": node.ip(),
            "local": u8::from(local),
            "online": u8::from(online),
            "level": "",
        }));
    }
    Ok(Value::from(entries).into())
}

/// `GET /cluster/nextid`: the lowest free VMID, which it does not reserve.
pub(crate) async fn next_id(call: Call) -> Answer {
    let state = call.pve.state();
    if let Some(wanted) = call.params.integer("vmid") {
        let taken = u32::try_from(wanted).is_ok_and(|vmid| state.vms.contains_key(&vmid));
        if taken {
            return Err(Refusal::parameter(
                "vmid",
                format!("VM {wanted} already exists"),
            ));
        }
        return Ok(Value::from(wanted.to_string()).into());
    }
    let free = (100..1_000_000).find(|vmid| !state.vms.contains_key(vmid));
    let free: u32 =
        free.ok_or_else(|| Refusal::failed("unable to get any free VMID in range [100, 1000000]"))?;
    Ok(Value::from(free.to_string()).into())
}

/// `GET /cluster/ha/resources`
pub(crate) async fn ha_resources(call: Call) -> Answer {
    let state = call.pve.state();
    let managed = state.vms.values().filter(|vm| vm.ha_managed);
    let entries = managed.map(|vm| {
        json!({
            "sid": format!("vm:{}", vm.vmid),
            "type": "vm",
            "state": if vm.running.is_some() { "started" } else { "stopped" },
            "digest": vm.digest(),
        })
    });
    Ok(Value::from(entries.collect::<Vec<_>>()).into())
}

/// `GET /cluster/resources[?type=]`: existence, lock, tags and pool of machines as they are; everything else as it was
/// last broadcast.
pub(crate) async fn resources(call: Call) -> Answer {
    let state = call.pve.state();
    let wants = |kind: &str| call.params.get("type").is_none_or(|wanted| wanted == kind);
    let view = View {
        pve: &call.pve,
        state: &state,
        who: &call.who,
        now: Instant::now(),
    };
    let mut entries = Vec::new();
    if call.params.get("type").is_none() {
        entries.extend(view.pools());
    }
    if wants("vm") {
        entries.extend(state.vms.values().filter_map(|vm| view.vm(vm)));
    }
    if wants("node") {
        entries.extend(state.nodes.values().map(|node| view.node(node)));
    }
    if wants("storage") {
        let pairs = state
            .nodes
            .values()
            .flat_map(|node| state.storages.values().map(move |storage| (node, storage)));
        entries.extend(pairs.filter_map(|(node, storage)| view.storage(node, storage)));
    }
    if call.params.get("type").is_none() && state.version == Version::V9 {
        entries.extend(state.nodes.values().filter_map(|node| view.zone(node)));
    }
    Ok(Value::from(entries).into())
}

/// The cluster as one caller sees it at one moment.
pub(crate) struct View<'a> {
    pub(crate) pve: &'a Pve,
    pub(crate) state: &'a State,
    pub(crate) who: &'a Identity,
    pub(crate) now: Instant,
}

impl View<'_> {
    fn fresh(&self, at: Instant) -> bool {
        is_fresh(at, self.now, self.pve.timings())
    }

    fn pools(&self) -> Vec<Value> {
        let visible = |name: &&String| {
            self.state
                .may(self.who, &format!("/pool/{name}"), "Pool.Audit")
        };
        let names = self.state.pools.keys().filter(visible);
        names.map(|name| self.pool(name)).collect()
    }

    fn pool(&self, name: &str) -> Value {
        let mut entry = json!({"id": format!("/pool/{name}"), "type": "pool", "pool": name});
        let members = self.state.pools.get(name).map(|pool| &pool.vms);
        let vms = members
            .into_iter()
            .flatten()
            .filter_map(|vmid| self.state.vms.get(vmid));
        let statuses: Vec<_> = vms
            .filter_map(|vm| vm.status.as_ref())
            .filter(|status| self.fresh(status.at))
            .collect();
        if !statuses.is_empty() {
            entry["cpu"] = statuses.iter().map(|status| status.cpu).sum::<f64>().into();
            entry["maxcpu"] = statuses
                .iter()
                .map(|status| status.cpus)
                .sum::<u64>()
                .into();
            entry["mem"] = statuses
                .iter()
                .map(|status| status.memory_used)
                .sum::<u64>()
                .into();
            entry["maxmem"] = statuses
                .iter()
                .map(|status| status.memory)
                .sum::<u64>()
                .into();
            entry["uptime"] = statuses.iter().map(|status| status.uptime_s).max().into();
        }
        entry
    }

    /// A machine as a member of its pool.
    pub(crate) fn member(&self, vm: &Vm) -> Option<Value> {
        let mut entry = self.vm(vm)?;
        if let Some(object) = entry.as_object_mut() {
            for key in ["lock", "pool", "tags"] {
                object.remove(key);
            }
        }
        Some(entry)
    }

    /// A machine, if the caller may see it.
    pub(crate) fn vm(&self, vm: &Vm) -> Option<Value> {
        if !self
            .state
            .may(self.who, &format!("/vms/{}", vm.vmid), "VM.Audit")
        {
            return None;
        }
        let mut entry = json!({
            "id": format!("qemu/{}", vm.vmid),
            "type": "qemu",
            "vmid": vm.vmid,
            "node": vm.node,
            "status": "unknown",
        });
        for key in ["lock", "tags"] {
            if let Some(value) = vm.get(key) {
                entry[key] = value.into();
            }
        }
        if let Some(pool) = self.state.pool_of(vm.vmid) {
            entry["pool"] = pool.into();
        }
        if vm.ha_managed {
            entry["hastate"] = "started".into();
        }
        if let Some(status) = vm.status.as_ref().filter(|status| self.fresh(status.at)) {
            let counters = ["disk", "diskread", "diskwrite", "netin", "netout"];
            for counter in counters {
                entry[counter] = 0.into();
            }
            if self.state.version == Version::V9 {
                entry["memhost"] = status.memory_used.into();
            }
            entry["status"] = if status.running { "running" } else { "stopped" }.into();
            entry["name"] = status.name.as_str().into();
            entry["template"] = u8::from(status.template).into();
            entry["uptime"] = status.uptime_s.into();
            entry["cpu"] = status.cpu.into();
            entry["maxcpu"] = status.cpus.into();
            entry["mem"] = status.memory_used.into();
            entry["maxmem"] = status.memory.into();
            entry["maxdisk"] = status.disk.into();
        }
        Some(entry)
    }

    /// A server; its load only for who may audit it.
    pub(crate) fn node(&self, node: &Node) -> Value {
        let name = node.name.as_str();
        let mut entry = json!({"id": format!("node/{name}"), "type": "node", "node": name, "status": "unknown"});
        if node.maintenance {
            entry["hastate"] = "maintenance".into();
        }
        let status = node.status.as_ref().filter(|status| self.fresh(status.at));
        if let Some(status) = status {
            entry["status"] = "online".into();
            entry["level"] = "".into();
            if self
                .state
                .may(self.who, &format!("/nodes/{name}"), "Sys.Audit")
            {
                entry["uptime"] = status.uptime_s.into();
                entry["cpu"] = status.cpu.into();
                entry["maxcpu"] = node.threads.into();
                entry["mem"] = status.memory_used.into();
                entry["maxmem"] = node.memory.into();
                entry["disk"] = (20u64 << 30).into();
                entry["maxdisk"] = (100u64 << 30).into();
                entry["cgroup-mode"] = 2.into();
            }
        }
        if node.presence == Presence::Offline && self.state.cluster.is_some() {
            entry["status"] = "offline".into();
        }
        entry
    }

    /// The network zone that every server has. It is listed though the server has broadcast nothing.
    fn zone(&self, node: &Node) -> Option<Value> {
        let visible = self
            .state
            .may(self.who, "/sdn/zones/localnetwork", "SDN.Audit");
        visible.then(|| {
            json!({
                "id": format!("network/{}/zone/localnetwork", node.name),
                "type": "network",
                "network": "localnetwork",
                "network-type": "zone",
                "node": node.name,
                "status": "ok",
            })
        })
    }

    fn storage(&self, node: &Node, storage: &Storage) -> Option<Value> {
        let path = format!("/storage/{}", storage.name);
        let visible = ["Datastore.Audit", "Datastore.AllocateSpace"]
            .iter()
            .any(|privilege| self.state.may(self.who, &path, privilege));
        if !visible || !storage.is_on(&node.name) {
            return None;
        }
        let mut entry = json!({
            "id": format!("storage/{}/{}", node.name, storage.name),
            "type": "storage",
            "storage": storage.name,
            "node": node.name,
            "plugintype": storage.plugin(),
            "content": storage.content.join(","),
            "shared": u8::from(storage.shared),
            "status": "unknown",
        });
        let status = node
            .status
            .as_ref()
            .filter(|status| self.fresh(status.at) && node.presence != Presence::Offline);
        if let Some((used, total)) = status.and_then(|status| status.storages.get(&storage.name)) {
            entry["status"] = "available".into();
            entry["disk"] = (*used).into();
            entry["maxdisk"] = (*total).into();
        }
        Some(entry)
    }
}

/// Turns the entries of a list into an answer.
pub(crate) fn listed(entries: impl Iterator<Item = Value>) -> Answer {
    Ok(Reply::from(Value::from(entries.collect::<Vec<_>>())))
}
