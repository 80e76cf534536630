//! Pools: named sets of machines and storages that rights are granted on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::answer::{Answer, Refusal, Reply};
use super::cluster::{View, listed};
use super::pause;
use super::serve::Call;

/// How long a lock of the cluster file system is tried for.
const CLUSTER_LOCK: Duration = Duration::from_secs(10);

/// `GET /pools[?poolid=]`
pub(crate) async fn list(call: Call) -> Answer {
    let state = call.pve.state();
    let view = View {
        pve: &call.pve,
        state: &state,
        who: &call.who,
        now: Instant::now(),
    };
    if let Some(name) = call.params.get("poolid") {
        state.require(&call.who, &format!("/pool/{name}"), "Pool.Audit")?;
        let pool = state
            .pools
            .get(name)
            .ok_or_else(|| Refusal::failed(format!("pool '{name}' does not exist")))?;
        let members: Vec<Value> = pool
            .vms
            .iter()
            .filter_map(|vmid| view.member(state.vms.get(vmid)?))
            .collect();
        let mut entry = json!({"poolid": name, "members": members});
        if !pool.comment.is_empty() {
            entry["comment"] = pool.comment.as_str().into();
        }
        return listed(std::iter::once(entry));
    }
    let visible = |name: &&String| state.may(&call.who, &format!("/pool/{name}"), "Pool.Audit");
    listed(state.pools.keys().filter(visible).map(|name| {
        let mut entry = json!({"poolid": name});
        let comment = state
            .pools
            .get(name)
            .map(|pool| pool.comment.as_str())
            .unwrap_or_default();
        if !comment.is_empty() {
            entry["comment"] = comment.into();
        }
        entry
    }))
}

/// `PUT /pools?poolid=`
pub(crate) async fn update(call: Call) -> Answer {
    if !call.pve.state().has_quorum() {
        pause(CLUSTER_LOCK).await;
        return Err(Refusal::failed(
            "update pools failed: cfs-lock 'file-user_cfg' error: no quorum!",
        ));
    }
    let params = &call.params;
    let name = params.get("poolid").unwrap_or_default();
    let remove = params.flag("delete") == Some(true);
    let may_move = params.flag("allow-move") == Some(true);
    let vms: Vec<u32> = params
        .get("vms")
        .unwrap_or_default()
        .split([',', ';', ' '])
        .filter_map(|id| id.parse().ok())
        .collect();
    let mut state = call.pve.state();
    if !state.pools.contains_key(name) {
        return Err(Refusal::failed(format!(
            "update pools failed: pool '{name}' does not exist"
        )));
    }
    for vmid in vms {
        let current = state.pool_of(vmid).map(str::to_owned);
        match (remove, current) {
            (true, Some(current)) if current == name => {}
            (true, Some(_) | None) => {
                return Err(Refusal::failed(format!(
                    "update pools failed: VM {vmid} is not a pool member"
                )));
            }
            (false, Some(current)) if current != name && !may_move => {
                return Err(Refusal::failed(format!(
                    "update pools failed: VM {vmid} belongs already to pool '{current}'"
                )));
            }
            (false, Some(_) | None) => {}
        }
        for pool in state.pools.values_mut() {
            pool.vms.remove(&vmid);
        }
        if let Some(pool) = state.pools.get_mut(name).filter(|_| !remove) {
            pool.vms.insert(vmid);
        }
    }
    if let (Some(comment), Some(pool)) = (params.get("comment"), state.pools.get_mut(name)) {
        pool.comment = comment.to_owned();
    }
    Ok(Reply::null())
}
