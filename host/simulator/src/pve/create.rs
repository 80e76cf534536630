//! Making a machine that is no clone: one without disks and without a network, which is all that kproxide makes in this way.

use std::time::Duration;

use super::Pve;
use super::access::Identity;
use super::answer::{Answer, Params, Refusal};
use super::config::{normalized, privileges_of};
use super::serve::Call;
use super::state::{State, is_indexed};
use super::tasks::Worker;
use super::vm::{Config, is_drive_key};

/// Parameters that steer the call and are no keys of the configuration.
const STEERING: [&str; 2] = ["pool", "vmid"];
/// Those of the real server that this one has not got.
const MISSING: [&str; 10] = [
    "archive",
    "bwlimit",
    "force",
    "ha-managed",
    "import-working-storage",
    "live-restore",
    "lock",
    "start",
    "storage",
    "unique",
];
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// What is to be made.
struct Order {
    vmid: u32,
    node: String,
    pool: Option<String>,
    config: Config,
    who: Identity,
}

/// `POST /nodes/{node}/qemu`. The number is taken before the server answers.
pub(crate) async fn create(call: Call) -> Answer {
    let order = Order::read(&call)?;
    order.take_number(&call.pve).await?;
    let (vmid, who) = (order.vmid.to_string(), call.who.clone());
    let number = call.number.to_string();
    Ok(call.pve.start_task(
        &call.node,
        "qmcreate",
        &vmid,
        &who,
        move |pve, worker| async move {
            pve.take(pve.timings().config, "create", &number).await;
            order.carry_out(&pve, &worker)
        },
    ))
}

/// The right to make a machine with that VMID or in the pool; then, for every key, the right to change it there.
pub(crate) fn may_create(state: &State, call: &Call) -> Result<(), Refusal> {
    let vm = format!("/vms/{}", call.params.get("vmid").unwrap_or_default());
    require(state, &call.who, &call.params, &vm, &["VM.Allocate"]).map_err(|_| {
        // The server does not say here what it misses.
        Refusal::Forbidden(String::new())
    })
}

fn require(
    state: &State,
    who: &Identity,
    params: &Params,
    vm: &str,
    privileges: &[&str],
) -> Result<(), Refusal> {
    let by_pool = params.get("pool").is_some_and(|pool| {
        let path = format!("/pool/{pool}");
        state.require_any(who, &path, privileges).is_ok()
    });
    match by_pool {
        true => Ok(()),
        false => state.require_any(who, vm, privileges),
    }
}

impl Order {
    fn read(call: &Call) -> Result<Order, Refusal> {
        let params = &call.params;
        let vmid = params.integer("vmid").and_then(|id| u32::try_from(id).ok());
        let mut order = Order {
            vmid: vmid.unwrap_or(0),
            node: call.node.clone(),
            pool: params.get("pool").map(str::to_owned),
            config: Config::new(),
            who: call.who.clone(),
        };
        let state = call.pve.state();
        let vm = format!("/vms/{}", order.vmid);
        for (key, values) in params.iter().filter(|(key, _)| !STEERING.contains(key)) {
            if MISSING.contains(&key) || is_drive_key(key) || is_indexed(key, "net") {
                return Err(Refusal::Failed(format!(
                    "the simulator makes machines without '{key}' only"
                )));
            }
            let value = values.last().map_or("", String::as_str);
            if !call.who.is_root() {
                require(
                    &state,
                    &call.who,
                    params,
                    &vm,
                    privileges_of(key, Some(value)),
                )?;
            }
            order.config.insert(key.to_owned(), normalized(key, value)?);
        }
        if let Some(pool) = order.pool.as_ref()
            && !state.pools.contains_key(pool)
        {
            return Err(Refusal::Forbidden(format!("pool '{pool}' does not exist")));
        }
        let lag = Duration::from_secs_f64(call.pve.timings().quorum_lag_s);
        if !state.seems_quorate(tokio::time::Instant::now(), lag) {
            return Err(Refusal::failed("cluster not ready - no quorum?"));
        }
        Ok(order)
    }

    async fn take_number(&self, pve: &Pve) -> Result<(), Refusal> {
        let Order {
            vmid, node, who, ..
        } = self;
        let locks = pve.locks();
        let lock = locks.config(node, *vmid, LOCK_TIMEOUT, |_| ()).await;
        let _lock = lock.map_err(Refusal::Failed)?;
        let mut state = pve.state();
        if let Some(other) = state.vms.get(vmid) {
            return Err(Refusal::Failed(format!(
                "unable to create VM {vmid} - VM {vmid} already exists on node '{}'",
                other.node
            )));
        }
        let written = state.write_config(node, *vmid);
        written.map_err(|why| Refusal::Failed(format!("unable to create VM {vmid} - {why}")))?;
        let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
        // A test that wants machines which never boot means those that are to boot.
        let duds = state.duds;
        state.add_vm(*vmid, node, locked, &who.full(), &pve.clock());
        state.duds = duds;
        if let Some(birth) = state.births.last_mut() {
            birth.bare = true;
        }
        Ok(())
    }

    fn carry_out(self, pve: &Pve, worker: &Worker) -> Result<(), String> {
        worker.log(&format!("making VM {} without disks", self.vmid));
        let mut state = pve.state();
        if let Err(why) = state.write_config(&self.node, self.vmid) {
            // Without quorum the locked configuration cannot be removed either.
            return Err(format!("unable to create VM {} - {why}", self.vmid));
        }
        let mut config = self.config;
        state.complete_hardware(&mut config, &pve.clock());
        if let Some(vm) = state.vms.get_mut(&self.vmid) {
            vm.config = config;
        }
        if let Some(pool) = &self.pool
            && let Some(pool) = state.pools.get_mut(pool)
        {
            pool.vms.insert(self.vmid);
        }
        Ok(())
    }
}
